//! The experiments of a cluster's nodes: whether more of them do more, whether content that is asked for where it is makes one large memory of theirs, and
//! what becomes of connections while packets are lost and nodes die.
//!
//! Every setup is a lab of its own (`leat lab`), whose nodes are held to a part of a core, and to memory, a disk and files of their own, by control groups.

mod bench;
mod case;
mod setup;

use std::io;
use std::path::PathBuf;

use clap::Args;

use crate::experiment::{self, Case, leat_build};
use crate::result::ExperimentResult;
use bench::Bench;

/// The folders of their results.
const EXPERIMENT: &str = "nodes";
const FAULTS: &str = "nodes-faults";

/// `leat-bench nodes`
#[derive(Args, Clone, Debug)]
pub(crate) struct NodesOptions {
    /// Only these cases; `--list` names them.
    #[arg(long)]
    case: Vec<String>,
    /// Name the cases and end.
    #[arg(long)]
    list: bool,
    /// Only these policies, by their names in the tables, where a case compares some: for a look.
    #[arg(long)]
    policy: Vec<String>,
    /// Length of one measurement.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// How often everything has its turn.
    #[arg(long, default_value_t = 2)]
    rounds: u32,
    /// leat's binary; without it, it's built here, in this program's own profile.
    #[arg(long)]
    leat: Option<PathBuf>,
    /// Folder whose sub-folder gets the results.
    #[arg(long, default_value = "experiments")]
    out: PathBuf,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// `leat-bench nodes-faults`
#[derive(Args, Clone, Debug)]
pub(crate) struct FaultOptions {
    /// Only these cases; `--list` names them.
    #[arg(long)]
    case: Vec<String>,
    /// Name the cases and end.
    #[arg(long)]
    list: bool,
    /// A case ends after so many seconds, or with a million requests.
    #[arg(long, default_value_t = 600.0)]
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
pub(crate) fn run(options: &NodesOptions) -> io::Result<()> {
    let how =
        "The dispatcher on one core, the client on another, the nodes on the others, each held to its part of them.";
    run_cases(case::all(), options, EXPERIMENT, ("More nodes do more", how))
}

/// Runs those with faults.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_faults(options: &FaultOptions) -> io::Result<()> {
    let FaultOptions { case, list, seconds, leat, out, seed } = options.clone();
    let options = NodesOptions { case, list, policy: Vec::new(), seconds, rounds: 1, leat, out, seed };
    let how = "Every byte of every reply is compared.";
    run_cases(
        case::faults(),
        &options,
        FAULTS,
        ("Connections are handed over, and packets are lost and nodes die", how),
    )
}

fn run_cases(
    cases: Vec<Box<dyn Case<Bench>>>,
    options: &NodesOptions,
    experiment: &str,
    heading: (&str, &str),
) -> io::Result<()> {
    let cases = experiment::select(cases, &options.case)?;
    if options.list {
        cases.iter().for_each(|case| println!("{:16} {}", case.name(), case.title()));
        return Ok(());
    }
    let program = options.leat.clone().map_or_else(leat_build::build, Ok)?;
    let result = ExperimentResult::begin(experiment, options.rounds, options.seconds);
    let mut bench = Bench::new(options.clone(), program)?;
    experiment::run(&options.out.join(experiment), heading, result, &cases, &mut bench)
}
