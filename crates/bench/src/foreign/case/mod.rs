//! The cases: what is asked of nodes whose server isn't leat. A case is one file.

mod ends;
mod node_cpu;
mod right;

use super::bench::Bench;
use crate::experiment::Case;

/// All, in the order of the table. Those that lose packets are the last: what they change stays.
pub(super) fn all() -> Vec<Box<dyn Case<Bench>>> {
    let right = |name, is_large, has_loss| Box::new(right::Right { name, is_large, has_loss });
    vec![
        Box::new(node_cpu::NodeCpu),
        Box::new(ends::Ends),
        right("right", false, false),
        right("large", true, false),
        right("right-with-loss", false, true),
        right("large-with-loss", true, true),
    ]
}
