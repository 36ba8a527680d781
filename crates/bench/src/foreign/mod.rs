//! The experiments of nodes whose server isn't leat: whether every reply is right, and what it costs the server that its connections begin at it.
//!
//! A lab of leat's (`leat lab`) has the client, the dispatcher and two nodes, each in a network namespace, and in the nodes' the server that is tried.

mod bench;
mod case;

use std::io;

use clap::Args;

use crate::experiment::{self, About, RunOptions};
use bench::Bench;

const ABOUT: About = About {
    folder: "foreign",
    title: "Nodes whose server isn't leat",
    how: "The dispatcher on one core, the client on another, each server on one of the others.",
};

/// `leat-bench foreign`
#[derive(Args, Clone, Debug)]
#[command(mut_arg("rounds", |rounds| rounds.default_value("7")))]
pub(crate) struct ForeignOptions {
    #[command(flatten)]
    run: RunOptions,
    /// Requests to each server in the cases that compare every byte.
    #[arg(long, default_value_t = 100_000)]
    requests: u64,
    /// Replies of 1 to 100 MB from each server, likewise.
    #[arg(long, default_value_t = 200)]
    large: u64,
    /// Only these servers, by name; the case `node-cpu` is nginx's in any case.
    #[arg(long)]
    server: Vec<String>,
    /// Longest time with each server in one of those cases: what hasn't been asked for by then isn't.
    #[arg(long, default_value_t = 60)]
    limit_s: u64,
}

/// Runs the cases and writes what they brought.
///
/// # Errors
/// As [`experiment::run_cases`].
pub(crate) fn run(options: &ForeignOptions) -> io::Result<()> {
    experiment::run_cases(ABOUT, case::all(), &options.run, |program| Bench::new(options.clone(), program))
}
