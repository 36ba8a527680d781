//! The flags of every experiment that has a lab, and what is done with them.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use super::{Bench, Case, leat_build};
use crate::result::ExperimentResult;

/// How cases are run. Defaults are another for some experiments.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunOptions {
    /// Only these cases; `--list` names them.
    #[arg(long)]
    pub(crate) case: Vec<String>,
    /// Name the cases and end.
    #[arg(long)]
    pub(crate) list: bool,
    /// Length of one measurement.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) seconds: f64,
    /// How often everything has its turn.
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: u32,
    /// leat's binary; without it, it's built here, in this program's own profile.
    #[arg(long)]
    pub(crate) leat: Option<PathBuf>,
    /// Folder whose sub-folder gets the results.
    #[arg(long, default_value = "experiments")]
    pub(crate) out: PathBuf,
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// What an experiment is.
#[derive(Clone, Copy)]
pub(crate) struct About {
    /// The folder of its results.
    pub(crate) folder: &'static str,
    pub(crate) title: &'static str,
    /// Who runs where, in words.
    pub(crate) how: &'static str,
}

/// Runs the cases that are wanted on what `bench` makes of leat's binary, and writes what they brought.
///
/// # Errors
/// An unknown case, a lab that can't be built (it needs root), or files that can't be written.
pub(crate) fn run_cases<B: Bench>(
    about: About,
    cases: Vec<Box<dyn Case<B>>>,
    options: &RunOptions,
    bench: impl FnOnce(&Path) -> io::Result<B>,
) -> io::Result<()> {
    let cases = super::select(cases, &options.case)?;
    if options.list {
        cases.iter().for_each(|case| println!("{:16} {}", case.name(), case.title()));
        return Ok(());
    }
    let program = options.leat.clone().map_or_else(leat_build::build, Ok)?;
    let result = ExperimentResult::begin(about.folder, options.rounds, options.seconds);
    let mut bench = bench(&program)?;
    super::run(&options.out.join(about.folder), (about.title, about.how), result, &cases, &mut bench)
}
