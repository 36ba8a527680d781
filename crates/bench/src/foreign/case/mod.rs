//! The cases: what is asked of nodes whose server isn't leat. A case is one file.

mod node_cpu;
mod right;

use super::bench::Bench;
use crate::experiment::Case;

/// All, in the order of the table. The one that loses packets is the last: what it changes stays.
pub(super) fn all() -> Vec<Box<dyn Case<Bench>>> {
    vec![
        Box::new(node_cpu::NodeCpu),
        Box::new(right::Right { name: "right", has_loss: false }),
        Box::new(right::Right { name: "right-with-loss", has_loss: true }),
    ]
}
