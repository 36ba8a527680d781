//! The experiment of a front: requests are passed on to a server behind it, over HTTP/1.1 on one machine, by leat on both reactors, nginx and HAProxy.
//!
//! Each has one worker on one core; the generator and the server behind it, a thread of this program, have others, and are the same for all.

mod bench;
mod case;
mod front;
mod page;
mod upstream;

use std::io;

use clap::Args;

use crate::experiment::{self, About, RunOptions};
use bench::Bench;

const ABOUT: About = About {
    folder: "proxy",
    title: "Passing requests on to a server behind",
    how: "Front on one core, client on another, the server behind on a third, or with the client where there are two; everybody anew and in another order in each round.",
};
const QUICK_ROUNDS: u32 = 2;
const QUICK_SECONDS: f64 = 0.3;

/// `leat-bench proxy`
#[derive(Args, Clone, Debug)]
#[command(mut_arg("rounds", |rounds| rounds.default_value("7")))]
#[command(
    after_help = "Marks: leat's processor time a request is at most 1.05 times that of the better of nginx and HAProxy, at each point; its p99 at \
a rate that all can do is no worse than the best peer's. Writes result.json, samples.csv, table.md and, where there is none, README.md to the \
sub-folder proxy of --out."
)]
pub(crate) struct ProxyOptions {
    #[command(flatten)]
    run: RunOptions,
    /// Only see that it runs: 2 rounds of 0.3 s, whatever `--rounds` and `--seconds` say. Too few for a verdict.
    #[arg(long)]
    quick: bool,
    /// Processor of the front.
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// Processor of the client.
    #[arg(long, default_value_t = 1)]
    client_core: usize,
    /// Processor of the server behind the front. Without it, the third, or the client's where there is none.
    #[arg(long)]
    upstream_core: Option<usize>,
}

impl ProxyOptions {
    fn upstream_core(&self) -> usize {
        let has_third = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 2);
        self.upstream_core.unwrap_or(if has_third { 2 } else { self.client_core })
    }
}

/// Runs the cases and writes what they brought.
///
/// # Errors
/// As [`experiment::run_cases`]; a front isn't installed or doesn't start.
pub(crate) fn run(options: &ProxyOptions) -> io::Result<()> {
    let mut options = options.clone();
    if options.quick {
        (options.run.rounds, options.run.seconds) = (QUICK_ROUNDS, QUICK_SECONDS);
    }
    experiment::run_cases(ABOUT, case::all(), &options.run, |program| Bench::new(options.clone(), program))?;
    if options.run.list { Ok(()) } else { page::write(&options.run.out.join(ABOUT.folder)) }
}
