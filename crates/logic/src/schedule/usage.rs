//! What has been served and charged, for the metrics and `leat top`, and what is known of events whose cost is still to come. The order of
//! work depends on nothing here but the expected cost.

use super::seat::Seat;

/// What an event is taken to cost before anything is known of its leaf.
const EXPECTED_NS_FIRST: u64 = 10_000;

/// Events after which the older half is forgotten when the expected cost is worked out.
const WINDOW_EVENTS: u64 = 64;

/// What a leaf, or all leaves that are or have been below a node, have had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Events popped, without one that is still being served.
    pub served: u64,
    /// What they cost, in nanoseconds; for events that haven't been charged yet, what they're expected to cost.
    pub charged_ns: u64,
    /// Events waiting.
    pub queued: u64,
    /// Events popped and not charged yet.
    pub uncharged: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.served = self.served.wrapping_add(other.served);
        self.charged_ns = self.charged_ns.wrapping_add(other.charged_ns);
        self.queued += other.queued;
        self.uncharged += other.uncharged;
    }
}

/// Events of one leaf that were popped and whose cost is still to come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Uncharged {
    pub(super) events: u32,
    /// What has been charged for them for the time being.
    advanced_ns: u64,
    /// Where the window of the expected cost begins: what the leaf's `served` and `charged_ns` were then.
    served_then: u64,
    charged_ns_then: u64,
}

impl Uncharged {
    /// Another event's cost is still to come; what to charge for the time being: what the leaf's last events cost on average.
    pub(super) fn advance(&mut self, leaf: &Seat) -> u64 {
        let served = leaf.served.wrapping_sub(self.served_then);
        let charged_ns = leaf.charged_ns.saturating_sub(self.charged_ns_then);
        let expected_ns = charged_ns.checked_div(served).unwrap_or(EXPECTED_NS_FIRST);
        if served >= WINDOW_EVENTS {
            self.served_then = self.served_then.wrapping_add(served / 2);
            self.charged_ns_then = self.charged_ns_then.saturating_add(charged_ns / 2);
        }
        self.events = self.events.saturating_add(1);
        self.advanced_ns = self.advanced_ns.saturating_add(expected_ns);
        expected_ns
    }

    /// An event's cost has come: what had been charged for it, on average over those that are out. `None` when none are.
    pub(super) fn settle(&mut self) -> Option<u64> {
        let advance_ns = self.advanced_ns.checked_div(u64::from(self.events))?;
        self.advanced_ns -= advance_ns;
        self.events -= 1;
        Some(advance_ns)
    }
}
