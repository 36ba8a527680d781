//! The cases: what is asked of fronts. A case is one file.

mod changes;
mod front_cpu;

use super::bench::Bench;
use crate::experiment::Case;

/// All, in the order of the table. The one that kills fronts is the last of its lab.
pub(super) fn all() -> Vec<Box<dyn Case<Bench>>> {
    let changes = |name, is_foreign| Box::new(changes::Changes { name, is_foreign });
    vec![Box::new(front_cpu::FrontCpu), changes("changes", false), changes("changes-nginx", true)]
}
