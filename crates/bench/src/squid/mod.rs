//! The experiment of a cluster cache (CASS, section 5.2): nodes that run Squid, an origin behind them, and a working set twice as large as what one
//! node can keep. Does a cluster whose dispatcher spreads content keep as much as one cache of the summed size?

mod bench;
mod case;

use std::io;

use clap::Args;

use crate::experiment::{self, About, RunOptions};
use bench::Bench;

const ABOUT: About = About {
    folder: "squid",
    title: "A cluster of caches",
    how: "The dispatcher on one core, the client and the origin on another, each Squid on one of the others.",
};

/// `leat-bench squid`
#[derive(Args, Clone, Debug)]
#[command(mut_arg("seconds", |seconds| seconds.default_value("3")))]
#[command(mut_arg("rounds", |rounds| rounds.default_value("3")))]
pub(crate) struct SquidOptions {
    #[command(flatten)]
    run: RunOptions,
    /// What the origin takes for a request where it isn't answered at once.
    #[arg(long, default_value_t = 10)]
    origin_ms: u64,
    /// How many requests it takes that time for at once where it can do only so much.
    #[arg(long, default_value_t = 4)]
    origin_at_once: usize,
    /// What one node may keep.
    #[arg(long, default_value_t = 16)]
    memory_mb: u32,
}

/// Runs the cases and writes what they brought.
///
/// # Errors
/// As [`experiment::run_cases`].
pub(crate) fn run(options: &SquidOptions) -> io::Result<()> {
    experiment::run_cases(ABOUT, case::all(), &options.run, |program| Bench::new(options.clone(), program.to_owned()))
}
