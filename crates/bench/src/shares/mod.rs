//! The experiments of shares: whether sites get what they are given, and whether an overloaded server stays useful.
//!
//! Each case is a file in `case/` and belongs to one of four experiments, each with a folder of its own. leat is started with a
//! configuration of the case's, driven by a client for each site on one thread, and its counters are read from its admin address.

mod bench;
mod case;
pub(crate) mod confidence;
mod leat;
mod meter;
mod pairs;
mod stalls;
mod tree_bench;
mod wire;

use std::io;
use std::path::PathBuf;

use clap::Args;

use crate::experiment::{self, Case, leat_build};
use crate::result::ExperimentResult;
use bench::Bench;

/// `leat-bench shares`
#[derive(Args, Clone, Debug)]
pub(crate) struct SharesOptions {
    /// Only these cases; `--list` names them.
    #[arg(long)]
    case: Vec<String>,
    /// Only these points of a case that has some to choose from: the floods of `flood`, by the beginnings of their names.
    #[arg(long)]
    point: Vec<String>,
    /// Only these servers, in cases that have several.
    #[arg(long)]
    server: Vec<String>,
    /// Name the cases and end.
    #[arg(long)]
    list: bool,
    /// Length of one batch of a measurement.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Batches of one measurement at most; fewer where the confidence interval is narrow enough.
    #[arg(long, default_value_t = 8)]
    rounds: u32,
    /// leat's binary; without it, it's built here, in this program's own profile.
    #[arg(long)]
    leat: Option<PathBuf>,
    /// Folder whose sub-folders get the results.
    #[arg(long, default_value = "experiments")]
    out: PathBuf,
    /// Without the other servers.
    #[arg(long)]
    no_peers: bool,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl SharesOptions {
    /// Whether a server has its turn in a case that has several.
    fn wants(&self, server: &str) -> bool {
        self.server.is_empty() || self.server.iter().any(|wanted| wanted == server)
    }
}

/// Runs the cases and writes what they brought, an experiment to a folder.
///
/// # Errors
/// An unknown case, or files that can't be written.
pub(crate) fn run(options: &SharesOptions) -> io::Result<()> {
    if options.list {
        for (experiment, _, cases) in case::all() {
            cases.iter().for_each(|case| println!("{experiment:10} {:16} {}", case.name(), case.title()));
        }
        return Ok(());
    }
    let known: Vec<&str> = case::all().iter().flat_map(|(_, _, cases)| cases).map(|case| case.name()).collect();
    if let Some(unknown) = options.case.iter().find(|name| !known.contains(&name.as_str())) {
        let message = format!("no case is named {unknown}: `leat-bench shares --list` names them all");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let program = options.leat.clone().map_or_else(leat_build::build, Ok)?;
    for (experiment, title, cases) in case::all() {
        let is_wanted =
            |case: &dyn Case<Bench>| options.case.is_empty() || options.case.iter().any(|name| name == case.name());
        let cases: Vec<Box<dyn Case<Bench>>> = cases.into_iter().filter(|case| is_wanted(case.as_ref())).collect();
        if cases.is_empty() {
            continue;
        }
        let result = ExperimentResult::begin(experiment, options.rounds, options.seconds);
        let mut bench = Bench::new(options.clone(), program.clone())?;
        let heading = (title, bench.placement(1).describe());
        experiment::run(&options.out.join(experiment), heading, result, &cases, &mut bench)?;
    }
    Ok(())
}
