//! The experiment of serving files: leat beside its peers, case by case, every case with its mark.
//!
//! Each case is a file in `case/`. A case collects samples in several rounds, in each of which every server has its
//! turn, fresh, in another order; medians are compared. Table, plots, raw samples and `result.json` go to one folder.

mod bench;
mod case;
mod cold_disk;
mod leat_build;
mod machine;
mod plot;
mod samples;
mod second_opinion;
mod table;

use std::fs;
use std::io;
use std::path::PathBuf;

use clap::Args;

use crate::result::{ExperimentResult, Findings};
use bench::Bench;
pub(crate) use machine::Conditions;
use machine::Watch;

/// `leat-bench serve`
#[derive(Args, Clone, Debug)]
pub(crate) struct ServeOptions {
    /// Only these cases; `--list` names them.
    #[arg(long)]
    case: Vec<String>,
    /// Name the cases and servers and end.
    #[arg(long)]
    list: bool,
    /// Only these servers.
    #[arg(long)]
    server: Vec<String>,
    /// How often each server has its turn.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Length of one measurement.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// leat's binary; without it, it's built here, in this program's own profile.
    #[arg(long)]
    leat: Option<PathBuf>,
    /// Where results go.
    #[arg(long, default_value = "experiments/serve")]
    out: PathBuf,
    /// Also measure the small file with wrk and h2load.
    #[arg(long)]
    second_opinion: bool,
    /// Processor of the server.
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// Processor of the client.
    #[arg(long, default_value_t = 1)]
    client_core: usize,
    /// Folder on a block device for files that have to come from the disk.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    disk_folder: PathBuf,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn leat_is_wanted(options: &ServeOptions) -> bool {
    options.server.is_empty() || options.server.iter().any(|name| name.starts_with("leat"))
}

/// Runs the cases and writes what they brought.
///
/// # Errors
/// An unknown case or server, or files that can't be written. A server that fails is told and left out.
pub(crate) fn run(options: &ServeOptions) -> io::Result<()> {
    let mut options = options.clone();
    if options.leat.is_none() && !options.list && leat_is_wanted(&options) {
        options.leat = Some(leat_build::build()?);
    }
    let options = &options;
    let servers = crate::server::all(options.leat.as_deref());
    let cases = case::all();
    if options.list {
        for case in &cases {
            println!("{:16} {}", case.name(), case.title());
        }
        println!("servers: {}", servers.present.iter().map(|server| server.name()).collect::<Vec<_>>().join(" "));
        return Ok(());
    }
    if let Some(unknown) = options.case.iter().find(|name| cases.iter().all(|case| case.name() != name.as_str())) {
        let message = format!("no case is named {unknown}: `leat-bench serve --list` names them all");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    for server in &servers.missing {
        eprintln!("skipped: {} isn't there", server.name());
    }
    if let Some(command) = servers.install_command() {
        eprintln!("to have all peers, as root: {command}");
    }
    let mut bench = Bench::new(options.clone(), servers.present)?;
    let (mut marks, mut figures) = (Vec::new(), Vec::new());
    for case in &cases {
        if options.case.is_empty() || options.case.iter().any(|name| name == case.name()) {
            eprintln!("case {}: {}", case.name(), case.title());
            let watch = Watch::begin();
            if let Err(error) = case.run(&mut bench) {
                eprintln!("case {} ended early: {error}", case.name());
                bench.note(case.name(), &format!("ended early: {error}"));
            }
            let conditions = watch.end(case.name());
            eprintln!("  {}", conditions.describe());
            bench.conditions.push(conditions);
            marks.extend(case.marks(&bench.samples));
            figures.extend(case.figures(&bench.samples));
        }
    }
    if options.second_opinion {
        second_opinion::run(&mut bench)?;
    }
    fs::create_dir_all(&options.out)?;
    let findings = Findings { marks, figures, conditions: bench.conditions.clone() };
    let result = ExperimentResult::new("serve", options.rounds, options.seconds, findings);
    result.write(&options.out)?;
    fs::write(options.out.join("samples.csv"), bench.samples.csv())?;
    let table = table::markdown(&result, &cases, &bench);
    fs::write(options.out.join("table.md"), &table)?;
    plot::write_all(&bench.samples, &options.out).map_err(io::Error::other)?;
    println!("{table}");
    Ok(())
}
