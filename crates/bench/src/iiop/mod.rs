//! The experiment of CORBA calls (CASS, section 5.1): omniORB's client and two of its servers, with leat in between, which finds a server for each
//! call or for each connection, and with HAProxy in TCP mode, which can only do the latter.
//!
//! All of it is on one machine's loopback: a port needs no privileges. The programs in `orb` are built when the experiment begins.

mod bench;
mod case;
mod running;

use std::io;

use clap::Args;

use crate::experiment::{self, About, RunOptions};
use bench::Bench;

const ABOUT: About = About {
    folder: "iiop",
    title: "CORBA calls",
    how: "Dispatcher or proxy on one core, omniORB's client on another, its two servers on the others, or with it if there are none.",
};

/// `leat-bench iiop`
#[derive(Args, Clone, Debug)]
pub(crate) struct IiopOptions {
    #[command(flatten)]
    run: RunOptions,
}

/// Runs the cases and writes what they brought.
///
/// # Errors
/// As [`experiment::run_cases`]; omniORB's compiler or libraries are missing.
pub(crate) fn run(options: &IiopOptions) -> io::Result<()> {
    experiment::run_cases(ABOUT, case::all(), &options.run, |program| Bench::new(options.run.clone(), program))
}
