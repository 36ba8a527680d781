//! How many refusals a worker can afford: each books a slot in the part of its time that refusals may take (the generic cell rate algorithm,
//! ITU-T I.371, with times for cells). Who is refused is for `site` to say.

use super::limits::{HOLD_MAX_NS, REFUSAL_BURST_NS, REFUSAL_PART, RETRY_AFTER_S};
use crate::schedule::Cost;
use crate::time::Instant;

/// How a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For the Retry-After field, in seconds.
    pub retry_after_s: u32,
    /// How long the connection isn't read after the refusal, in nanoseconds; 0 if it's read on at once.
    pub hold_ns: u64,
    /// Whether the part of the worker's time that refusals may take has room for it. Then it's nobody's, else its site pays for it.
    pub is_covered: bool,
}

/// Slots that follow each other.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// When the last ends that has been booked.
    booked_until: Instant,
}

/// The latest that a slot may end.
fn end_max_ns(now: Instant) -> u64 {
    now.ns.saturating_add(REFUSAL_BURST_NS + HOLD_MAX_NS)
}

impl Slots {
    pub(super) fn book(&mut self, slot_ns: u64, now: Instant) {
        let begin_ns = self.booked_until.ns.max(now.ns);
        self.booked_until.ns = begin_ns.saturating_add(slot_ns).min(end_max_ns(now));
    }

    pub(super) fn booked_ns(&self, now: Instant) -> u64 {
        self.booked_until.ns.saturating_sub(now.ns)
    }

    /// How long until the last slot's turn.
    pub(super) fn hold_ns(&self, now: Instant) -> u64 {
        self.booked_ns(now).saturating_sub(REFUSAL_BURST_NS)
    }

    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.booked_until.ns >= end_max_ns(now)
    }
}

/// A worker's budget. Each site has slots of its own, as wide as its share is small, so that one that is hardly over its share isn't held for
/// what another refuses.
#[derive(Debug)]
pub(super) struct RefusalBudget {
    cost_ns: u64,
    /// Those of all sites together.
    all: Slots,
}

impl RefusalBudget {
    pub(super) fn new(cost: Cost) -> RefusalBudget {
        RefusalBudget { cost_ns: cost.ns, all: Slots::default() }
    }

    pub(super) fn cost(&self) -> Cost {
        Cost::from_ns(self.cost_ns)
    }

    pub(super) fn set_cost(&mut self, cost: Cost) {
        self.cost_ns = cost.ns;
    }

    pub(super) fn slot_ns(&self) -> u64 {
        self.cost_ns.saturating_mul(REFUSAL_PART)
    }

    /// For a site that has `share` of the worker, from 0 to 1, and has booked `own`.
    pub(super) fn refuse(&mut self, own: &mut Slots, share: f64, now: Instant) -> Refusal {
        let slot_ns = self.slot_ns();
        self.all.book(slot_ns, now);
        own.book((slot_ns as f64 / share) as u64, now);
        let is_covered = !(self.all.is_full(now) && own.is_full(now));
        Refusal { retry_after_s: RETRY_AFTER_S, hold_ns: own.hold_ns(now), is_covered }
    }

    /// Whether so much has been refused that sites have connections held.
    pub(super) fn is_holding(&self, now: Instant) -> bool {
        self.all.hold_ns(now) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant { ns: 5_000_000_000 + ms * 1_000_000 }
    }

    /// Refusals of a site with that share, all at once.
    fn refusals(budget: &mut RefusalBudget, share: f64, count: usize) -> Vec<Refusal> {
        let mut own = Slots::default();
        (0..count).map(|_| budget.refuse(&mut own, share, at_ms(0))).collect()
    }

    #[test]
    fn a_few_refusals_hold_nobody_and_many_are_spread_out() {
        let mut budget = RefusalBudget::new(Cost::from_ns(10_000));
        let slot_ns = 10_000 * REFUSAL_PART;
        let holds: Vec<u64> = refusals(&mut budget, 1.0, 100).iter().map(|refusal| refusal.hold_ns).collect();
        assert_eq!(holds.iter().filter(|&&hold_ns| hold_ns == 0).count() as u64, REFUSAL_BURST_NS / slot_ns);
        assert!(holds.windows(2).all(|pair| pair[1] == 0 || pair[1] - pair[0] <= slot_ns));
        assert_eq!(holds[99], 100 * slot_ns - REFUSAL_BURST_NS);
        assert_eq!(budget.refuse(&mut Slots::default(), 1.0, at_ms(10_000)).hold_ns, 0, "later it's all forgotten");
    }

    #[test]
    fn a_site_is_held_for_its_own_refusals_and_more_if_its_share_is_small() {
        let mut budget = RefusalBudget::new(Cost::from_ns(10_000));
        let (small, large) = (refusals(&mut budget, 0.1, 200), refusals(&mut budget, 0.9, 10));
        assert_eq!(small[199].hold_ns, 200 * 10 * 10_000 * REFUSAL_PART - REFUSAL_BURST_NS);
        assert!(large.iter().all(|refusal| refusal.hold_ns == 0));
        assert!(small.iter().chain(&large).all(|refusal| refusal.is_covered), "the worker has room for all of them");
    }

    #[test]
    fn holds_have_a_limit() {
        let mut budget = RefusalBudget::new(Cost::from_ns(1_000_000));
        let refused = refusals(&mut budget, 1.0, 10_000);
        assert_eq!(refused.iter().map(|refusal| refusal.hold_ns).max(), Some(HOLD_MAX_NS));
        assert!(refused[0].is_covered && !refused[9_999].is_covered);
        let other = refusals(&mut budget, 0.5, 1);
        assert!(other[0].is_covered, "it hasn't booked out the worker");
    }
}
