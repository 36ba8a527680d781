//! The experiments of connections that go from one server that isn't leat to another between two requests: whether every reply is right and its server's
//! that has it, what that costs a dispatcher beside proxies that choose for each request, and how long a request takes that changes its node.
//!
//! Labs of leat's (`leat lab`) have the client, the dispatcher and two nodes with nginx, each in a network namespace. Costs and times are measured on the bench of
//! `handoff`, whose proxies choose by a consistent hash of what is asked for.

mod bench;
mod case;

use std::io;

use clap::Args;

use crate::experiment::{self, About, RunOptions};
use bench::Bench;

const ABOUT: About = About {
    folder: "transplants",
    title: "Connections go from one server that isn't leat to another",
    how: "Dispatcher and proxies on one core, the client on another, the nodes on the others.",
};

/// `leat-bench transplants`
#[derive(Args, Clone, Debug)]
pub(crate) struct TransplantOptions {
    #[command(flatten)]
    run: RunOptions,
    /// Requests in the case that compares every byte, over all its points.
    #[arg(long, default_value_t = 100_000)]
    requests: u64,
    /// Longest time for each of these points: what hasn't been asked for by then isn't.
    #[arg(long, default_value_t = 60)]
    limit_s: u64,
}

/// Runs the cases and writes what they brought.
///
/// # Errors
/// As [`experiment::run_cases`].
pub(crate) fn run(options: &TransplantOptions) -> io::Result<()> {
    experiment::run_cases(ABOUT, case::all(), &options.run, |program| Ok(Bench::new(options.clone(), program)))
}
