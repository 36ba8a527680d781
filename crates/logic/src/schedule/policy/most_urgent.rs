//! Most urgent first, by one of the measures of urgency: what the policies that go by deadline and by remaining work have in common.

use super::Policy;
use crate::schedule::event_queue::Urgency;
use crate::schedule::seat::Seat;
use crate::schedule::urgency_heap::UrgencyHeap;
use std::marker::PhantomData;

/// Which number of an [`Urgency`] counts, lowest first.
pub(in crate::schedule) trait Measure {
    /// As [`Policy::NAME`].
    const NAME: &'static str;
    /// As [`Policy::ABOUT`].
    const ABOUT: &'static str;

    fn key(urgency: Urgency) -> u64;
}

/// The ready children by their urgency.
pub(in crate::schedule) struct MostUrgent<M> {
    ready: UrgencyHeap,
    measure: PhantomData<M>,
}

impl<M: Measure> Policy for MostUrgent<M> {
    const NAME: &'static str = M::NAME;
    const ABOUT: &'static str = M::ABOUT;

    fn new() -> MostUrgent<M> {
        MostUrgent { ready: UrgencyHeap::new(), measure: PhantomData }
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
        Some(M::key(urgency))
    }

    fn each_urgent(&self, _seats: &[Seat], visit: &mut dyn FnMut(u32)) {
        self.ready.first().into_iter().for_each(|(_, child)| visit(child));
    }

    fn rekey(&mut self, seats: &mut [Seat], child: u32) {
        self.ready.remove(child);
        self.ready(seats, child);
    }
}
