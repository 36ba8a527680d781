//! The experiments of nodes whose server isn't leat: whether every reply is right, and what it costs the server that its connections begin at it.
//!
//! A lab of leat's (`leat lab`) has the client, the dispatcher and two nodes, each in a network namespace, and in the nodes' the server that is tried.

mod bench;
mod case;
mod server;

use std::io;
use std::path::PathBuf;

use clap::Args;

use crate::experiment::{self, leat_build};
use crate::result::ExperimentResult;
use bench::Bench;

/// The folder of its results.
const EXPERIMENT: &str = "foreign";

/// `leat-bench foreign`
#[derive(Args, Clone, Debug)]
pub(crate) struct ForeignOptions {
    /// Only these cases; `--list` names them.
    #[arg(long)]
    case: Vec<String>,
    /// Name the cases and end.
    #[arg(long)]
    list: bool,
    /// Length of one measurement.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// How often everything has its turn.
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// Requests to each server in the cases that compare every byte.
    #[arg(long, default_value_t = 100_000)]
    requests: u64,
    /// leat's binary; without it, it's built here, in this program's own profile.
    #[arg(long)]
    leat: Option<PathBuf>,
    /// Folder whose sub-folder gets the results.
    #[arg(long, default_value = "experiments")]
    out: PathBuf,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the cases and writes what they brought.
///
/// # Errors
/// An unknown case, a lab that can't be built (it needs root), or files that can't be written.
pub(crate) fn run(options: &ForeignOptions) -> io::Result<()> {
    let cases = experiment::select(case::all(), &options.case)?;
    if options.list {
        cases.iter().for_each(|case| println!("{:16} {}", case.name(), case.title()));
        return Ok(());
    }
    let program = options.leat.clone().map_or_else(leat_build::build, Ok)?;
    let mut bench = Bench::new(options.clone(), &program)?;
    let findings = experiment::run(&cases, &mut bench);
    let result = ExperimentResult::new(EXPERIMENT, options.rounds, options.seconds, findings);
    let how = "The dispatcher on one core, the client on another, each server on one of the others.";
    experiment::write(
        &options.out.join(EXPERIMENT),
        ("Nodes whose server isn't leat", how),
        &result,
        &cases,
        &bench.records,
    )
}
