//! The experiments of handing connections over: what it costs a dispatcher beside proxies, what it adds to the first byte, and a drain.
//!
//! A lab of leat's (`leat lab`) has the client, the dispatcher and the nodes, each in a network namespace. The proxies run in the dispatcher's, on
//! ports of their own, with the same nodes behind them.

pub(crate) mod bench;
pub(crate) mod case;

use std::io;

use clap::Args;

use crate::experiment::{self, About, RunOptions};
use bench::Bench;

const HOW: &str = "Dispatcher and proxies on one core, the client on another, the nodes on the others.";

/// `leat-bench handoff`
#[derive(Args, Clone, Debug)]
pub(crate) struct HandoffOptions {
    #[command(flatten)]
    run: RunOptions,
    /// Connections that are drained idle.
    #[arg(long, default_value_t = 10_000)]
    idle: usize,
    /// Packets are those of the wire, none larger than a frame. Results go to a folder of their own.
    #[arg(long)]
    frames: bool,
    /// The nodes' server is nginx, where connections begin and stay. Results go to a folder of their own.
    #[arg(long, conflicts_with = "frames")]
    nginx: bool,
    /// Each request goes to the node that has its content, and each node has its own: what the experiment of transplants is run on.
    #[arg(skip)]
    by_content: bool,
}

impl HandoffOptions {
    /// In front of nginx, by content.
    pub(crate) fn by_content_at_nginx(run: RunOptions) -> Self {
        Self { run, idle: 0, frames: false, nginx: true, by_content: true }
    }

    fn about(&self) -> About {
        let (folder, title) = match (self.frames, self.nginx) {
            (true, _) => ("handoff-frames", "Connections are handed over, packets no larger than frames"),
            (false, true) => ("handoff-nginx", "Connections begin at nginx"),
            (false, false) => ("handoff", "Connections are handed over"),
        };
        About { folder, title, how: HOW }
    }
}

/// Runs the cases and writes what they brought.
///
/// # Errors
/// As [`experiment::run_cases`].
pub(crate) fn run(options: &HandoffOptions) -> io::Result<()> {
    let cases = if options.nginx { case::of_foreign_nodes() } else { case::all() };
    experiment::run_cases(options.about(), cases, &options.run, |program| Bench::new(options.clone(), program))
}
