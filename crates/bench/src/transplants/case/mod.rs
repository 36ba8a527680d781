//! The cases: what is asked of connections that change their server. A case is one file.

mod cpu;
mod delay;
mod right;

use super::bench::Bench;
use crate::experiment::Case;

/// All, in the order of the table.
pub(super) fn all() -> Vec<Box<dyn Case<Bench>>> {
    vec![Box::new(right::Right), Box::new(cpu::Cpu), Box::new(delay::Delay)]
}
