//! Shortest remaining first: the child whose first event belongs to the request with the least left to do goes first, which gives the lowest
//! mean response time (Schrage, 1968; for web servers Harchol-Balter and others, 2003). Under a load that never ends, long requests wait
//! for as long as it takes: put such a node under a weighted fair one.

use super::Policy;
use crate::schedule::event_queue::Urgency;
use crate::schedule::seat::Seat;
use crate::schedule::urgency_heap::UrgencyHeap;

/// The ready children by their first event's remaining work.
pub(in crate::schedule) struct ShortestRemaining {
    ready: UrgencyHeap,
}

impl Policy for ShortestRemaining {
    const NAME: &'static str = "shortest_remaining";
    const ABOUT: &'static str =
        "the child whose first event belongs to the request with the least left to do is served; unknown comes last";

    fn new() -> ShortestRemaining {
        ShortestRemaining { ready: UrgencyHeap::new() }
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
        Some(urgency.remaining)
    }

    fn urgency(&self) -> Urgency {
        self.ready.first_key().map_or(Urgency::NONE, |remaining| Urgency { remaining, ..Urgency::NONE })
    }

    fn hurry(&mut self, seats: &mut [Seat], child: u32) {
        self.ready.remove(child);
        self.ready(seats, child);
    }
}
