//! The cases: what is asked of handing connections over, and what it must reach. A case is one file.

pub(crate) mod dispatcher_cpu;
mod drain;
mod first_byte;
mod ready;
pub(crate) mod spread;

use super::bench::Bench;
use crate::experiment::Case;
use crate::result::Mark;

pub(super) use dispatcher_cpu::NAME as COST;

/// All, in the order of the table.
pub(super) fn all() -> Vec<Box<dyn Case<Bench>>> {
    vec![
        Box::new(dispatcher_cpu::DispatcherCpu),
        Box::new(spread::Spread),
        Box::new(first_byte::FirstByte),
        Box::new(ready::Ready),
        Box::new(drain::Drain),
    ]
}

/// Those that don't move what lives at a node, as another server's connections stay.
pub(super) fn of_foreign_nodes() -> Vec<Box<dyn Case<Bench>>> {
    vec![Box::new(dispatcher_cpu::DispatcherCpu), Box::new(first_byte::FirstByte)]
}

/// leat's `value` must be at most `limit`; `doubt` says why it doesn't count, and is empty otherwise.
fn at_most(
    (case, point): (&str, &str),
    mark: &str,
    value: Option<f64>,
    limit: Option<f64>,
    unit: &str,
    doubt: String,
) -> Mark {
    let case = if point.is_empty() { case.to_owned() } else { format!("{case} {point}") };
    Mark::at_most((case, super::bench::LEAT), mark, value, limit, unit, doubt)
}
