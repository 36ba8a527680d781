//! The experiment of the ways by which a connection's first request gets to its node: whether `hand_over = "when_cheaper"` costs the whole system hardly
//! more than the better of handing over always and never.
//!
//! Each way has a lab of its own (`leat lab`), and the three take turns: what one has learned of costs is its own. A case is a distance (`client_delay`), or
//! a dispatcher at which no connection can begin at its node.

mod bench;
mod case;

use std::io;

use crate::experiment::{self, About, RunOptions};
use bench::Bench;

/// Runs the case and writes what it brought.
///
/// # Errors
/// A lab that can't be built (it needs root), or files that can't be written.
pub(crate) fn run(options: &RunOptions) -> io::Result<()> {
    let about = About {
        folder: "ways",
        title: "A first request takes the cheaper way",
        how: "The dispatcher on one core, the client on another, the nodes on the others. Processor time of all of them together.",
    };
    experiment::run_cases(about, case::all(), options, |program| Bench::new(options.clone(), program))
}
