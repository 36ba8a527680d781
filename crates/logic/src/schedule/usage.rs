//! What has been served and charged, for each leaf and each inner node, and what an event of a leaf is expected to cost. Numbers for the
//! metrics and `leat top`; the order of work doesn't depend on them but for the expected cost.

use super::share::Cost;

/// What an event is taken to cost before anything is known of its leaf.
const EXPECTED_NS_FIRST: u32 = 10_000;

/// How fast an expected cost follows what is charged: by 1/2^3 of the difference each time.
const EXPECTED_SHIFT: u32 = 3;

/// What a leaf, or all leaves below a node, have had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Events popped, without one that is still being served.
    pub served: u64,
    /// What they cost, in nanoseconds; for events that haven't been charged yet, what they're expected to cost.
    pub charged_ns: u64,
    /// Events waiting (leaves only).
    pub queued: u32,
    /// Events popped and not charged yet (leaves only).
    pub uncharged: u32,
}

/// What is counted for each member of the tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    pub(super) served: u64,
    pub(super) charged_ns: u64,
    /// What has been charged for events whose cost is still to come.
    advanced_ns: u64,
    pub(super) uncharged: u32,
    expected_ns: u32,
}

impl Account {
    pub(super) const NEW: Account =
        Account { served: 0, charged_ns: 0, advanced_ns: 0, uncharged: 0, expected_ns: EXPECTED_NS_FIRST };

    #[inline]
    pub(super) fn serve(&mut self, cost_ns: u64) {
        self.served += 1;
        self.charged_ns = self.charged_ns.saturating_add(cost_ns);
    }

    /// Learns from a cost that is known.
    #[inline]
    pub(super) fn learn(&mut self, cost: Cost) {
        let cost_ns = cost.ns.min(u64::from(u32::MAX)) as u32;
        self.expected_ns = self.expected_ns - (self.expected_ns >> EXPECTED_SHIFT) + (cost_ns >> EXPECTED_SHIFT);
    }

    /// What to charge for an event whose cost is still to come.
    pub(super) fn advance(&mut self) -> u64 {
        let expected_ns = u64::from(self.expected_ns);
        self.advanced_ns = self.advanced_ns.saturating_add(expected_ns);
        self.uncharged += 1;
        expected_ns
    }

    /// An event's cost has come: what had been charged for it, on average over those that are out. `None` when none are.
    pub(super) fn settle(&mut self) -> Option<u64> {
        let advance_ns = self.advanced_ns.checked_div(u64::from(self.uncharged))?;
        self.advanced_ns -= advance_ns;
        self.uncharged -= 1;
        Some(advance_ns)
    }

    pub(super) fn correct(&mut self, delta_ns: i64) {
        self.charged_ns = self.charged_ns.saturating_add_signed(delta_ns);
    }
}
