//! The experiments of handing connections over: what it costs a dispatcher beside proxies, what it adds to the first byte, and a drain.
//!
//! A lab of leat's (`leat lab`) has the client, the dispatcher and the nodes, each in a network namespace. The proxies run in the dispatcher's, on
//! ports of their own, with the same nodes behind them.

mod asking;
mod bench;
mod case;

use std::io;
use std::path::PathBuf;

use clap::Args;

use crate::experiment::{self, leat_build};
use crate::result::ExperimentResult;
use bench::Bench;

/// The folder of its results.
const EXPERIMENT: &str = "handoff";

/// `leat-bench handoff`
#[derive(Args, Clone, Debug)]
pub(crate) struct HandoffOptions {
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
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// leat's binary; without it, it's built here, in this program's own profile.
    #[arg(long)]
    leat: Option<PathBuf>,
    /// Connections that are drained idle.
    #[arg(long, default_value_t = 10_000)]
    idle: usize,
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
pub(crate) fn run(options: &HandoffOptions) -> io::Result<()> {
    let cases = experiment::select(case::all(), &options.case)?;
    if options.list {
        cases.iter().for_each(|case| println!("{:16} {}", case.name(), case.title()));
        return Ok(());
    }
    let program = options.leat.clone().map_or_else(leat_build::build, Ok)?;
    let mut bench = Bench::new(options.clone(), &program)?;
    let findings = experiment::run(&cases, &mut bench);
    let result = ExperimentResult::new(EXPERIMENT, options.rounds, options.seconds, findings);
    let how = "Dispatcher and proxies on one core, the client on another, the nodes on the others.";
    experiment::write(
        &options.out.join(EXPERIMENT),
        ("Connections are handed over", how),
        &result,
        &cases,
        &bench.records,
    )
}
