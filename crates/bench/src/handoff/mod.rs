//! The experiments of handing connections over: what it costs a dispatcher beside proxies, what it adds to the first byte, and a drain.
//!
//! A lab of leat's (`leat lab`) has the client, the dispatcher and the nodes, each in a network namespace. The proxies run in the dispatcher's, on
//! ports of their own, with the same nodes behind them.

mod bench;
mod case;

use std::io;

use clap::Args;

use crate::experiment::{self, About, RunOptions};
use bench::Bench;

const ABOUT: About = About {
    folder: "handoff",
    title: "Connections are handed over",
    how: "Dispatcher and proxies on one core, the client on another, the nodes on the others.",
};

/// `leat-bench handoff`
#[derive(Args, Clone, Debug)]
pub(crate) struct HandoffOptions {
    #[command(flatten)]
    run: RunOptions,
    /// Connections that are drained idle.
    #[arg(long, default_value_t = 10_000)]
    idle: usize,
}

/// Runs the cases and writes what they brought.
///
/// # Errors
/// As [`experiment::run_cases`].
pub(crate) fn run(options: &HandoffOptions) -> io::Result<()> {
    experiment::run_cases(ABOUT, case::all(), &options.run, |program| Bench::new(options.clone(), program))
}
