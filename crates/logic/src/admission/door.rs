//! Whether connections are accepted while requests are refused. Whose first request is refused has cost far more than who is dropped by the kernel, so those
//! have slots of their own: what is refused on connections that are there keeps nobody out.

use super::limits::{CROWDED_NS, HOLD_MAX_NS};
use super::refusal::Slots;
use crate::time::Instant;

/// A worker's.
#[derive(Debug, Default)]
pub(super) struct Door {
    /// Of all that were turned away.
    all: Slots,
    is_narrow: bool,
    /// By site, of those that have any booked.
    sites: Vec<(usize, Slots)>,
    /// When most of those who came were dropped, as was seen last.
    crowded_at: Option<Instant>,
}

impl Door {
    /// A site refuses the first request of a connection.
    pub(super) fn turn_away(&mut self, site: usize, slot_ns: u64, now: Instant) {
        self.all.book(slot_ns, now);
        self.is_narrow |= self.all.is_full(now);
        self.sites.retain(|(_, slots)| slots.booked_ns(now) > 0);
        let at = self.sites.iter().position(|&(known, _)| known == site).unwrap_or(self.sites.len());
        if at == self.sites.len() {
            self.sites.push((site, Slots::default()));
        }
        self.sites[at].1.book(slot_ns, now);
    }

    /// Most of those who come are dropped now, as it's narrow.
    pub(super) fn saw_crowd(&mut self, now: Instant) {
        self.crowded_at = Some(now);
    }

    /// Whether all slots have been booked, and more than half of them are still to come, or most of those who come are still dropped: all those would be let in, and
    /// most turned away.
    pub(super) fn is_narrow(&mut self, now: Instant) -> bool {
        let is_crowded = self.crowded_at.is_some_and(|at| now.ns.saturating_sub(at.ns) < CROWDED_NS);
        self.is_narrow &= is_crowded || self.all.hold_ns(now) > HOLD_MAX_NS / 2;
        self.is_narrow
    }

    /// Whether nobody is let in for now, as all sites that turn clients away have enough to do.
    pub(super) fn is_shut(&mut self, now: Instant, has_enough: impl Fn(usize) -> bool) -> bool {
        let mut turn_away = self.sites.iter().filter(|(_, slots)| slots.booked_ns(now) > 0).peekable();
        turn_away.peek().is_some() && turn_away.all(|&(site, _)| has_enough(site)) && self.is_narrow(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD_MAX_MS: u64 = HOLD_MAX_NS / 1_000_000;
    const SLOT_NS: u64 = 1_000_000;

    fn at_ms(ms: u64) -> Instant {
        Instant { ns: 5_000_000_000 + ms * 1_000_000 }
    }

    #[test]
    fn it_is_narrow_from_when_slots_are_booked_out_until_half_of_them_have_passed() {
        let mut door = Door::default();
        (0..HOLD_MAX_MS).for_each(|_| door.turn_away(1, SLOT_NS, at_ms(0)));
        assert!(!door.is_narrow(at_ms(0)), "a burst fits in beside them");
        (0..HOLD_MAX_MS).for_each(|_| door.turn_away(1, SLOT_NS, at_ms(0)));
        assert!(door.is_narrow(at_ms(0)) && door.is_narrow(at_ms(HOLD_MAX_MS / 2 - 1)));
        assert!(!door.is_narrow(at_ms(HOLD_MAX_MS / 2 + 1)));
        assert!(!door.is_narrow(at_ms(0)), "not again before the limit is reached again");
        (0..HOLD_MAX_MS).for_each(|_| door.turn_away(1, SLOT_NS, at_ms(0)));
        door.saw_crowd(at_ms(HOLD_MAX_MS));
        assert!(door.is_narrow(at_ms(HOLD_MAX_MS + 10)) && !door.is_narrow(at_ms(HOLD_MAX_MS + 200)));
    }

    #[test]
    fn it_is_shut_while_those_who_turn_clients_away_have_enough() {
        let mut door = Door::default();
        (0..2 * HOLD_MAX_MS).for_each(|_| door.turn_away(1, SLOT_NS, at_ms(0)));
        assert!(door.is_shut(at_ms(0), |_| true) && !door.is_shut(at_ms(0), |_| false));
        door.turn_away(2, SLOT_NS, at_ms(0));
        assert!(!door.is_shut(at_ms(0), |site| site == 1), "some may be for the other");
        assert!(door.is_shut(at_ms(2), |site| site == 1), "that turned one away, and no more");
        assert!(!door.is_shut(at_ms(HOLD_MAX_MS), |_| true));
        door.saw_crowd(at_ms(2 * HOLD_MAX_MS));
        assert!(!door.is_shut(at_ms(2 * HOLD_MAX_MS + 50), |_| true), "nobody turns anybody away");
    }
}
