//! Deadline: the child whose first event should have been served earliest goes first (earliest deadline first; Liu and Layland, 1973).
//! Events without a deadline wait for all that have one.

use super::Policy;
use crate::schedule::event_queue::Urgency;
use crate::schedule::seat::Seat;
use crate::schedule::urgency_heap::UrgencyHeap;

/// The ready children by their first event's deadline.
pub(in crate::schedule) struct Deadline {
    ready: UrgencyHeap,
}

impl Policy for Deadline {
    const NAME: &'static str = "deadline";
    const ABOUT: &'static str =
        "the child whose first event has the earliest deadline is served; events without one come last";

    fn new() -> Deadline {
        Deadline { ready: UrgencyHeap::new() }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    #[inline]
    fn ready(&mut self, seats: &mut [Seat], child: u32) {
        self.ready.insert(seats[child as usize].key, child);
    }

    #[inline]
    fn take(&mut self, _seats: &mut [Seat]) -> Option<u32> {
        self.ready.take()
    }

    #[inline]
    fn give_back(&mut self, seats: &mut [Seat], child: u32, _cost_ns: u64, is_ready: bool) {
        if is_ready {
            self.ready(seats, child);
        }
    }

    fn withdraw(&mut self, _seats: &mut [Seat], child: u32) {
        self.ready.remove(child);
    }

    fn urgency_key(urgency: Urgency) -> Option<u64> {
        Some(urgency.deadline_ns)
    }

    fn urgency(&self) -> Urgency {
        self.ready.first_key().map_or(Urgency::NONE, |deadline_ns| Urgency { deadline_ns, ..Urgency::NONE })
    }

    fn hurry(&mut self, seats: &mut [Seat], child: u32) {
        self.ready.remove(child);
        self.ready(seats, child);
    }
}
