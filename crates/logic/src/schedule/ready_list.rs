//! A first-in-first-out list of children, threaded through their seats. Which list a child belongs on is the policy's business.

use super::seat::{NONE, Seat};

/// Eight bytes for any number of children.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadyList {
    pub(super) head: u32,
    tail: u32,
}

impl ReadyList {
    pub(super) const EMPTY: ReadyList = ReadyList { head: NONE, tail: NONE };

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// Whether there is exactly one child.
    #[inline]
    pub(super) fn is_single(&self) -> bool {
        self.head == self.tail && self.head != NONE
    }

    /// Appends; whether the list was empty before.
    #[inline]
    pub(super) fn push(&mut self, seats: &mut [Seat], child: u32) -> bool {
        seats[child as usize].next = NONE;
        let was_empty = self.is_empty();
        if was_empty {
            self.head = child;
        } else {
            seats[self.tail as usize].next = child;
        }
        self.tail = child;
        was_empty
    }

    #[inline]
    pub(super) fn pop(&mut self, seats: &[Seat]) -> Option<u32> {
        let child = self.head;
        if child == NONE {
            return None;
        }
        self.head = if child == self.tail { NONE } else { seats[child as usize].next };
        Some(child)
    }

    /// Takes one child out wherever it is, by walking the list; whether it was there.
    pub(super) fn remove(&mut self, seats: &mut [Seat], child: u32) -> bool {
        let mut rest = std::mem::replace(self, ReadyList::EMPTY);
        let mut found = false;
        while let Some(other) = rest.pop(seats) {
            if other == child {
                found = true;
            } else {
                self.push(seats, other);
            }
        }
        found
    }
}
