//! Weighted fair: children that want it get service in proportion to their weights, by start-time fair queuing (Goyal, Vin and Cheng,
//! 1996), which needs no cost before the event has run and stays fair when a node's own service varies, as it does below the root.
//!
//! A child's key is its start tag: the virtual time at which it has had all that it has used so far. The lowest is served; virtual time is
//! the tag of the child that was served last; cost over weight is added to a tag. A child that wakes starts no earlier than virtual time,
//! so that idling saves nothing up, and no later than its own tag, so that it's served at once unless it has had more than its share.

use super::Policy;
use crate::schedule::seat::Seat;
use crate::schedule::wheel::{LEAD_MAX, Wheel, is_before};

/// Tags are compared on a circle of 2^64. Every time that virtual time passes a multiple of this, tags that are far behind are brought up,
/// before they could be taken for tags that are ahead. At weight 1 that's after 27 minutes of uninterrupted service.
const SWEEP_BITS: u32 = 60;

/// Virtual time and the ready children by start tag.
pub(in crate::schedule) struct WeightedFair {
    ready: Wheel,
}

impl WeightedFair {
    /// With virtual time at `now`.
    pub(super) fn starting_at(now: u64) -> WeightedFair {
        WeightedFair { ready: Wheel::new(now) }
    }

    /// Brings idle children's tags up to virtual time.
    #[cold]
    #[inline(never)]
    fn sweep(&self, seats: &mut [Seat], parent: u32) {
        let now = self.ready.now();
        for seat in seats.iter_mut().filter(|seat| seat.parent == parent && !seat.pending) {
            if is_before(seat.key, now) {
                seat.key = now;
            }
        }
    }

    /// Keeps a tag within what the wheel can hold: debts of more than that are forgiven.
    #[inline]
    fn limit(&self, seat: &mut Seat) {
        let now = self.ready.now();
        if is_before(now.wrapping_add(LEAD_MAX), seat.key) {
            seat.key = now.wrapping_add(LEAD_MAX);
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
        let now = self.ready.now();
        let seat = &mut seats[child as usize];
        // Behind virtual time, or so far ahead that it can only be a leftover.
        if seat.key.wrapping_sub(now) > LEAD_MAX {
            seat.key = now;
        }
        self.ready.insert(seats, child);
    }

    #[inline]
    fn take(&mut self, seats: &mut [Seat]) -> Option<u32> {
        let before = self.ready.now();
        let child = self.ready.take(seats)?;
        if (before ^ self.ready.now()) >> SWEEP_BITS != 0 {
            self.sweep(seats, seats[child as usize].parent);
        }
        Some(child)
    }

    #[inline]
    fn give_back(&mut self, seats: &mut [Seat], child: u32, cost_ns: u64, is_ready: bool) {
        let seat = &mut seats[child as usize];
        seat.key = seat.key.wrapping_add(seat.virtual_time(cost_ns, LEAD_MAX));
        self.limit(seat);
        if is_ready {
            self.ready.insert(seats, child);
        }
    }

    fn correct(&mut self, seats: &mut [Seat], child: u32, delta_ns: i64) {
        let now = self.ready.now();
        let seat = &mut seats[child as usize];
        if !seat.pending && is_before(seat.key, now) {
            seat.key = now;
        }
        if seat.pending {
            self.ready.disturb();
        }
        let delta = seat.virtual_time(delta_ns.unsigned_abs(), LEAD_MAX);
        if delta_ns >= 0 {
            seat.key = seat.key.wrapping_add(delta);
            self.limit(seat);
        } else {
            seat.key = seat.key.wrapping_sub(delta);
            // What is given back is at most what was taken: this only stops nonsense from wrapping round.
            if is_before(seat.key, now.wrapping_sub(LEAD_MAX)) {
                seat.key = now.wrapping_sub(LEAD_MAX);
            }
        }
    }

    fn withdraw(&mut self, seats: &mut [Seat], child: u32) {
        self.ready.remove(seats, child);
    }
}
