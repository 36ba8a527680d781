//! The experiments of request splitting (Rawal, Karne and Wijesinha, "Mini Web Server Clusters for HTTP Request Splitting"): clusters bound by their
//! links and by their processors, beside as many separate servers, beside HAProxy, and beside what the paper published.
//!
//! Every setup is a lab of its own (`leat lab`), built anew in each round and taken down after its measurements.

mod bench;
mod case;
mod paper;
mod setup;

use std::io;
use std::path::PathBuf;

use clap::Args;

use crate::experiment::{self, Case, leat_build};
use crate::result::ExperimentResult;
use bench::Bench;

/// The folder of its results.
const EXPERIMENT: &str = "split";
const FAULTS: &str = "split-faults";

/// `leat-bench split`
#[derive(Args, Clone, Debug)]
pub(crate) struct SplitOptions {
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
    #[arg(long, default_value_t = 2)]
    rounds: u32,
    /// What each server's link carries where links bind.
    #[arg(long, default_value_t = 100)]
    link_mbit: u32,
    /// leat's binary; without it, it's built here, in this program's own profile.
    #[arg(long)]
    leat: Option<PathBuf>,
    /// Folder whose sub-folder gets the results.
    #[arg(long, default_value = "experiments")]
    out: PathBuf,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// `leat-bench split-faults`
#[derive(Args, Clone, Debug)]
pub(crate) struct FaultOptions {
    /// Only these cases; `--list` names them.
    #[arg(long)]
    case: Vec<String>,
    /// Name the cases and end.
    #[arg(long)]
    list: bool,
    /// Length of each case: a million requests take some minutes.
    #[arg(long, default_value_t = 300.0)]
    seconds: f64,
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
pub(crate) fn run(options: &SplitOptions) -> io::Result<()> {
    let how = "Connection servers (or the proxy) on one core, the client on another, data servers on the others.";
    run_cases(case::all(), options, EXPERIMENT, ("Requests are split", how))
}

/// Runs those with faults.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_faults(options: &FaultOptions) -> io::Result<()> {
    let FaultOptions { case, list, seconds, leat, out, seed } = options.clone();
    let options = SplitOptions { case, list, seconds, rounds: 1, link_mbit: 0, leat, out, seed };
    let how = "Every byte of every reply is compared.";
    run_cases(case::faults(), &options, FAULTS, ("Requests are split, and packets are lost or servers die", how))
}

fn run_cases(
    cases: Vec<Box<dyn Case<Bench>>>,
    options: &SplitOptions,
    experiment: &str,
    (title, how): (&str, &str),
) -> io::Result<()> {
    let cases = experiment::select(cases, &options.case)?;
    if options.list {
        cases.iter().for_each(|case| println!("{:16} {}", case.name(), case.title()));
        return Ok(());
    }
    let program = options.leat.clone().map_or_else(leat_build::build, Ok)?;
    let mut bench = Bench::new(options.clone(), program)?;
    let findings = experiment::run(&cases, &mut bench);
    let result = ExperimentResult::new(experiment, options.rounds, options.seconds, findings);
    experiment::write(&options.out.join(experiment), (title, how), &result, &cases, &bench.records)
}
