//! The experiments of request splitting (Rawal, Karne and Wijesinha, "Mini Web Server Clusters for HTTP Request Splitting"): clusters bound by their
//! links and by their processors, beside as many separate servers, beside HAProxy, and beside what the paper published.
//!
//! Every setup is a lab of its own (`leat lab`), built anew in each round and taken down after its measurements.

mod bench;
mod case;
mod paper;
mod setup;

use std::io;

use clap::Args;

use crate::experiment::{self, About, RunOptions};
use bench::Bench;

const ABOUT: About = About {
    folder: "split",
    title: "Requests are split",
    how: "Connection servers (or the proxy) have a core each, the client has another, data servers have the others.",
};
const FAULTS: About = About {
    folder: "split-faults",
    title: "Requests are split, and packets are lost or servers die",
    how: "Every byte of every reply is compared.",
};

/// `leat-bench split`
#[derive(Args, Clone, Debug)]
#[command(mut_arg("rounds", |rounds| rounds.default_value("2")))]
pub(crate) struct SplitOptions {
    #[command(flatten)]
    run: RunOptions,
    /// What each server's link carries where links bind.
    #[arg(long, default_value_t = 100)]
    link_mbit: u32,
}

/// `leat-bench split-faults`: a million requests take some minutes in each case.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("seconds", |seconds| seconds.default_value("600")))]
#[command(mut_arg("rounds", |rounds| rounds.default_value("1").hide(true)))]
pub(crate) struct FaultOptions {
    #[command(flatten)]
    run: RunOptions,
}

/// Runs the cases and writes what they brought.
///
/// # Errors
/// As [`experiment::run_cases`].
pub(crate) fn run(options: &SplitOptions) -> io::Result<()> {
    experiment::run_cases(ABOUT, case::all(), &options.run, |program| Bench::new(options.clone(), program.to_owned()))
}

/// Runs those with faults.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_faults(options: &FaultOptions) -> io::Result<()> {
    let options = SplitOptions { run: options.run.clone(), link_mbit: 0 };
    let cases = case::faults();
    experiment::run_cases(FAULTS, cases, &options.run.clone(), |program| Bench::new(options, program.to_owned()))
}
