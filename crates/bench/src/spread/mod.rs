//! The experiments of fronts that spread connections over nodes and see no request (`spread = "l4"`): what a front costs beside HAProxy in TCP mode, and
//! what becomes of connections while fronts and nodes come and go.
//!
//! A lab of leat's (`leat lab`) has the client, two fronts and three nodes, each in a network namespace. HAProxy runs in the first front's, with the same
//! nodes behind it.

mod bench;
mod case;

use std::io;

use crate::experiment::{self, About, RunOptions};
use bench::Bench;

/// Runs the cases and writes what they brought.
///
/// # Errors
/// An unknown case, a lab that can't be built (it needs root), or files that can't be written.
pub(crate) fn run(options: &RunOptions) -> io::Result<()> {
    let about = About {
        folder: "spread",
        title: "Fronts spread connections",
        how: "Fronts and HAProxy on one core, the client on another, the nodes on the others.",
    };
    experiment::run_cases(about, case::all(), options, |program| Bench::new(options.clone(), program))
}
