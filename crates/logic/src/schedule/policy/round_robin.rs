//! Round robin: ready children take turns, an event each, whatever their share and whatever an event costs.

use super::Policy;
use crate::schedule::ready_list::ReadyList;
use crate::schedule::seat::Seat;

/// The children in the order of their turns.
pub(in crate::schedule) struct RoundRobin {
    turns: ReadyList,
}

impl Policy for RoundRobin {
    const NAME: &'static str = "round_robin";
    const ABOUT: &'static str = "children take turns, one event each; weights, priorities and costs don't count";

    fn new() -> RoundRobin {
        RoundRobin { turns: ReadyList::EMPTY }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    #[inline]
    fn ready(&mut self, seats: &mut [Seat], child: u32) {
        self.turns.push(seats, child);
    }

    #[inline]
    fn take(&mut self, seats: &mut [Seat]) -> Option<u32> {
        self.turns.pop(seats)
    }

    #[inline]
    fn give_back(&mut self, seats: &mut [Seat], child: u32, _cost_ns: u64, is_ready: bool) {
        if is_ready {
            self.turns.push(seats, child);
        }
    }

    #[inline]
    fn take_at_once(&mut self, seats: &mut [Seat]) -> Option<u32> {
        self.turns.pop(seats)
    }

    #[inline]
    fn give_back_at_once(&mut self, seats: &mut [Seat], child: u32, cost_ns: u64, is_ready: bool) -> Option<bool> {
        self.give_back(seats, child, cost_ns, is_ready);
        Some(!self.turns.is_empty())
    }

    fn each_urgent(&self, seats: &[Seat], visit: &mut dyn FnMut(u32)) {
        self.turns.each(seats, visit);
    }

    fn withdraw(&mut self, seats: &mut [Seat], child: u32) {
        self.turns.remove(seats, child);
    }
}
