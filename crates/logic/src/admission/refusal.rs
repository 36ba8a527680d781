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

#[derive(Debug)]
pub(super) struct RefusalBudget {
    cost_ns: u64,
    /// When the last slot ends that has been booked.
    booked_until: Instant,
    is_booked_out: bool,
}

impl RefusalBudget {
    pub(super) fn new(cost: Cost) -> RefusalBudget {
        RefusalBudget { cost_ns: cost.ns, booked_until: Instant::default(), is_booked_out: false }
    }

    pub(super) fn cost(&self) -> Cost {
        Cost::from_ns(self.cost_ns)
    }

    pub(super) fn set_cost(&mut self, cost: Cost) {
        self.cost_ns = cost.ns;
    }

    pub(super) fn refuse(&mut self, now: Instant) -> Refusal {
        let begin_ns = self.booked_until.ns.max(now.ns);
        let slot_ns = self.cost_ns.saturating_mul(REFUSAL_PART);
        let end_max_ns = now.ns.saturating_add(REFUSAL_BURST_NS + HOLD_MAX_NS);
        self.booked_until.ns = begin_ns.saturating_add(slot_ns).min(end_max_ns);
        self.is_booked_out |= self.booked_until.ns == end_max_ns;
        let hold_ns = (self.booked_until.ns - now.ns).saturating_sub(REFUSAL_BURST_NS);
        let is_covered = self.booked_until.ns < end_max_ns;
        Refusal { retry_after_s: RETRY_AFTER_S, hold_ns, is_covered }
    }

    /// Whether the next refusal would hold its connection.
    pub(super) fn is_in_debt(&self, now: Instant) -> bool {
        self.booked_until.ns.saturating_sub(now.ns) > REFUSAL_BURST_NS
    }

    /// Whether holds have reached their limit, and not gone down to half of it since.
    pub(super) fn is_booked_out(&mut self, now: Instant) -> bool {
        let booked_ns = self.booked_until.ns.saturating_sub(now.ns);
        self.is_booked_out &= booked_ns > REFUSAL_BURST_NS + HOLD_MAX_NS / 2;
        self.is_booked_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD_MAX_MS: u64 = HOLD_MAX_NS / 1_000_000;

    fn at_ms(ms: u64) -> Instant {
        Instant { ns: 5_000_000_000 + ms * 1_000_000 }
    }

    #[test]
    fn a_few_refusals_hold_nobody_and_many_are_spread_out() {
        let mut budget = RefusalBudget::new(Cost::from_ns(10_000));
        let slot_ns = 10_000 * REFUSAL_PART;
        let holds: Vec<u64> = (0..100).map(|_| budget.refuse(at_ms(0)).hold_ns).collect();
        assert_eq!(holds.iter().filter(|&&hold_ns| hold_ns == 0).count() as u64, REFUSAL_BURST_NS / slot_ns);
        assert!(holds.windows(2).all(|pair| pair[1] == 0 || pair[1] - pair[0] <= slot_ns));
        assert_eq!(holds[99], 100 * slot_ns - REFUSAL_BURST_NS);
        assert!(!budget.is_booked_out(at_ms(0)));
        assert_eq!(budget.refuse(at_ms(10_000)).hold_ns, 0, "later it's all forgotten");
    }

    #[test]
    fn holds_have_a_limit_and_are_booked_out_until_half_of_it_has_passed() {
        let mut budget = RefusalBudget::new(Cost::from_ns(1_000_000));
        let refusals: Vec<Refusal> = (0..10_000).map(|_| budget.refuse(at_ms(0))).collect();
        assert_eq!(refusals.iter().map(|refusal| refusal.hold_ns).max(), Some(HOLD_MAX_NS));
        assert!(refusals[0].is_covered && !refusals[9_999].is_covered);
        assert!(budget.is_booked_out(at_ms(0)) && budget.is_booked_out(at_ms(HOLD_MAX_MS / 2 - 1)));
        assert!(!budget.is_booked_out(at_ms(HOLD_MAX_MS / 2 + 1)));
        assert!(!budget.is_booked_out(at_ms(0)), "not again before the limit is reached again");
    }
}
