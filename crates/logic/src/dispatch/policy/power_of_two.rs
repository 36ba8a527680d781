//! Two nodes drawn by weight, of which the one with less to do is chosen (Mitzenmacher, 2001): nearly as even as asking all, and dispatchers
//! that know the same old loads don't all run to the same node.

use super::{Ask, Candidate, Plan, Policy, PolicySettings, Why};

pub(super) struct PowerOfTwo;

impl Policy for PowerOfTwo {
    const NAME: &'static str = "power_of_two";
    const ABOUT: &'static str = "the less loaded of two nodes drawn at random: right for several dispatchers";

    fn new(_: &PolicySettings) -> Self {
        PowerOfTwo
    }

    fn plan(&self, ask: &Ask<'_>) -> Plan {
        let first = draw(ask.candidates.iter(), ask.random >> 32);
        let others = ask.candidates.iter().filter(|c| first.is_none_or(|first| c.id != first.id));
        match (first, draw(others, ask.random & 0xffff_ffff)) {
            (Some(first), Some(second)) if second.pressure() < first.pressure() => {
                Plan::new(second, Why::LessThan(first.id))
            }
            (Some(first), Some(second)) => Plan::new(first, Why::LessThan(second.id)),
            _ => Plan::new(&ask.least(Candidate::pressure), Why::Only),
        }
    }
}

/// One of `candidates` by share; `random` has 32 bits. `None` when there are none.
fn draw<'a>(candidates: impl Iterator<Item = &'a Candidate> + Clone, random: u64) -> Option<&'a Candidate> {
    let total: u64 = candidates.clone().map(|c| c.share).sum();
    let mut mark = ((u128::from(total) * u128::from(random)) >> 32) as u64;
    for candidate in candidates {
        if mark < candidate.share {
            return Some(candidate);
        }
        mark -= candidate.share;
    }
    None
}
