//! The experiment of serving files: leat beside its peers, case by case, every case with its mark.
//!
//! Each case is a file in `case/`. A case collects samples in several rounds, in each of which every server has its
//! turn, fresh, in another order; medians are compared. Table, plots, raw samples and `result.json` go to one folder.

mod bench;
mod case;
pub(crate) mod cold_disk;
mod disturbance;
mod second_opinion;

use std::io;
use std::path::PathBuf;

use clap::Args;

use crate::experiment::{self, leat_build};
use crate::result::ExperimentResult;
use bench::Bench;
use second_opinion::SecondOpinion;

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
    let mut cases = experiment::select(cases, &options.case)?;
    if options.second_opinion {
        cases.push(Box::new(SecondOpinion));
    }
    for server in &servers.missing {
        eprintln!("skipped: {} isn't there", server.name());
    }
    if let Some(command) = servers.install_command() {
        eprintln!("to have all peers, as root: {command}");
    }
    let result = ExperimentResult::begin("serve", options.rounds, options.seconds);
    let mut bench = Bench::new(options.clone(), servers.present)?;
    let heading = ("Serving files, beside the peers", "Server on one core, client on another.");
    experiment::run(&options.out, heading, result, &cases, &mut bench)
}
