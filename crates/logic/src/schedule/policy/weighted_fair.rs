//! Weighted fair: children that want it get service in proportion to their weights, by start-time fair queuing (Goyal, Vin and Cheng,
//! 1996), which needs no cost before the event has run and stays fair when a node's own service varies, as it does below the root.
//!
//! A child's key is its start tag: the virtual time at which it has had all that it has used so far. The lowest is served; virtual time is
//! the tag of the child that was served last; cost over weight is added to a tag. A child that wakes starts no earlier than virtual time less
//! a lag that is nothing unless it's set, so that idling saves no more than that up, and no later than its own tag, so that it's served at
//! once unless it has had more than its share.

use super::Policy;
use crate::schedule::calendar::{Calendar, LEAD_MAX, is_before};
use crate::schedule::seat::Seat;
use crate::schedule::share::Share;

/// Virtual time and the ready children by start tag.
pub(in crate::schedule) struct WeightedFair {
    ready: Calendar,
    /// How far a child that wakes may be behind virtual time.
    lag_max: u64,
}

impl WeightedFair {
    /// With virtual time at `now`.
    pub(super) fn starting_at(now: u64) -> WeightedFair {
        WeightedFair { ready: Calendar::new(now), lag_max: 0 }
    }

    /// Tags that are equal differ by less than this.
    #[cfg(test)]
    pub(super) fn width(&self) -> u64 {
        self.ready.width()
    }

    /// The earliest that a child may start that wakes now.
    #[inline]
    fn earliest(&self) -> u64 {
        self.ready.now().wrapping_sub(self.lag_max)
    }

    /// Keeps a tag within what the calendar can hold: debts of more than that are forgiven.
    fn limit(&self, seat: &mut Seat) {
        let limit = self.ready.now().wrapping_add(LEAD_MAX);
        if is_before(limit, seat.key) {
            seat.key = limit;
        }
    }
}

impl Policy for WeightedFair {
    const NAME: &'static str = "weighted_fair";
    const ABOUT: &'static str = "cost is shared in proportion to weight among the children that want it";

    fn new() -> WeightedFair {
        WeightedFair::starting_at(0)
    }

    fn join(&mut self, seats: &mut [Seat], child: u32) {
        seats[child as usize].key = self.ready.now();
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    #[inline]
    fn ready(&mut self, seats: &mut [Seat], child: u32) {
        let earliest = self.earliest();
        let seat = &mut seats[child as usize];
        if is_before(seat.key, earliest) {
            seat.key = earliest;
        }
        self.ready.insert(seats, child);
    }

    #[inline]
    fn take(&mut self, seats: &mut [Seat]) -> Option<u32> {
        self.ready.take(seats)
    }

    #[inline]
    fn give_back(&mut self, seats: &mut [Seat], child: u32, cost_ns: u64, is_ready: bool) {
        let seat = &mut seats[child as usize];
        seat.key = seat.key.wrapping_add(seat.virtual_time(cost_ns));
        if is_ready {
            self.ready.insert(seats, child);
        }
    }

    #[inline]
    fn take_at_once(&mut self, seats: &mut [Seat]) -> Option<u32> {
        self.ready.take_at_once(seats)
    }

    #[inline]
    fn give_back_at_once(&mut self, seats: &mut [Seat], child: u32, cost_ns: u64, is_ready: bool) -> Option<bool> {
        let seat = &mut seats[child as usize];
        let key = seat.key.wrapping_add(seat.virtual_time(cost_ns));
        if is_ready {
            return self.ready.insert_at_once(seats, child, key).then_some(true);
        }
        seat.key = key;
        Some(!self.ready.is_empty())
    }

    fn correct(&mut self, seats: &mut [Seat], child: u32, delta_ns: i64) {
        let now = self.ready.now();
        let seat = &mut seats[child as usize];
        let earliest = now.wrapping_sub(self.lag_max);
        if !seat.pending && is_before(seat.key, earliest) {
            seat.key = earliest;
        }
        let delta = seat.virtual_time(delta_ns.unsigned_abs());
        if seat.pending {
            self.ready.stray(seat.key);
        }
        if delta_ns >= 0 {
            seat.key = seat.key.wrapping_add(delta);
            self.limit(seat);
        } else {
            seat.key = seat.key.wrapping_sub(delta);
            // What is given back is at most what was taken: this only stops nonsense from wrapping round.
            if is_before(seat.key, now.wrapping_sub(LEAD_MAX)) {
                seat.key = now.wrapping_sub(LEAD_MAX);
            }
            if seat.pending {
                self.ready.hasten(seats, child);
            }
        }
    }

    fn each_urgent(&self, seats: &[Seat], visit: &mut dyn FnMut(u32)) {
        self.ready.each(seats, visit);
    }

    fn set_lag_max(&mut self, virtual_time: u64) {
        self.lag_max = virtual_time.min(LEAD_MAX);
    }

    fn withdraw(&mut self, seats: &mut [Seat], child: u32) {
        self.ready.remove(seats, child);
    }

    /// What a child has had beyond its share, or is behind it, stays the same amount of cost: it's worth more virtual time at a lower weight.
    fn reshare(&mut self, seats: &mut [Seat], child: u32, share: Share, is_ready: bool) {
        if is_ready {
            self.ready.remove(seats, child);
        }
        let now = self.ready.now();
        let seat = &mut seats[child as usize];
        let is_behind = is_before(seat.key, now);
        let ahead = seat.key.wrapping_sub(now);
        let cost_ns = seat.cost_ns(if is_behind { ahead.wrapping_neg() } else { ahead });
        seat.set_share(share);
        let ahead = seat.virtual_time(cost_ns);
        seat.key = now.wrapping_add(if is_behind { ahead.wrapping_neg() } else { ahead });
        if is_ready {
            self.ready.insert(seats, child);
        }
    }
}
