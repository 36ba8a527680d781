//! Strict priority: of the ready children, those with the highest priority are served, in turns; the others wait for as long as it takes.

use super::Policy;
use crate::schedule::ready_list::ReadyList;
use crate::schedule::seat::Seat;
use crate::schedule::share::Share;
use std::hint::cold_path;

const WORD_BITS: usize = 64;
const WORDS: usize = 256 / WORD_BITS;

/// A list of children for each priority.
pub(in crate::schedule) struct StrictPriority {
    /// Which priorities have ready children, by bit.
    bits: [u64; WORDS],
    /// By priority, up to the highest that was ever ready.
    turns: Vec<ReadyList>,
}

impl StrictPriority {
    #[inline]
    fn highest(&self) -> Option<usize> {
        for word in (0..WORDS).rev() {
            if self.bits[word] != 0 {
                return Some(word * WORD_BITS + (WORD_BITS - 1 - self.bits[word].leading_zeros() as usize));
            }
        }
        None
    }

    #[inline]
    fn clear_if_empty(&mut self, priority: usize) {
        if self.turns[priority].is_empty() {
            self.bits[priority / WORD_BITS] &= !(1 << (priority % WORD_BITS));
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, priority: usize) {
        self.turns.resize(priority + 1, ReadyList::EMPTY);
    }
}

impl Policy for StrictPriority {
    const NAME: &'static str = "strict_priority";
    const ABOUT: &'static str = "the children with the highest priority are served, in turns; the others wait";

    fn new() -> StrictPriority {
        StrictPriority { bits: [0; WORDS], turns: Vec::new() }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.bits.iter().all(|&word| word == 0)
    }

    #[inline]
    fn ready(&mut self, seats: &mut [Seat], child: u32) {
        let priority = usize::from(seats[child as usize].priority);
        if priority >= self.turns.len() {
            self.grow(priority);
        }
        self.turns[priority].push(seats, child);
        self.bits[priority / WORD_BITS] |= 1 << (priority % WORD_BITS);
    }

    #[inline]
    fn take(&mut self, seats: &mut [Seat]) -> Option<u32> {
        let priority = self.highest()?;
        let child = self.turns[priority].pop(seats);
        self.clear_if_empty(priority);
        child
    }

    #[inline]
    fn take_at_once(&mut self, seats: &mut [Seat]) -> Option<u32> {
        // Asked after the others: few nodes have it.
        cold_path();
        self.take(seats)
    }

    #[inline]
    fn give_back_at_once(&mut self, seats: &mut [Seat], child: u32, cost_ns: u64, is_ready: bool) -> Option<bool> {
        cold_path();
        self.give_back(seats, child, cost_ns, is_ready);
        Some(is_ready || !self.is_empty())
    }

    #[inline]
    fn give_back(&mut self, seats: &mut [Seat], child: u32, _cost_ns: u64, is_ready: bool) {
        if is_ready {
            self.ready(seats, child);
        }
    }

    fn each_urgent(&self, seats: &[Seat], visit: &mut dyn FnMut(u32)) {
        self.turns.iter().rev().for_each(|turns| turns.each(seats, visit));
    }

    fn withdraw(&mut self, seats: &mut [Seat], child: u32) {
        for priority in 0..self.turns.len() {
            if !self.turns[priority].is_empty() && self.turns[priority].remove(seats, child) {
                self.clear_if_empty(priority);
                return;
            }
        }
    }

    fn reshare(&mut self, seats: &mut [Seat], child: u32, share: Share, is_ready: bool) {
        if is_ready {
            self.withdraw(seats, child);
        }
        seats[child as usize].set_share(share);
        if is_ready {
            self.ready(seats, child);
        }
    }
}
