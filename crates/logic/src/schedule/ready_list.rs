//! A first-in-first-out list of children, threaded through their seats. Which list a child belongs on is the policy's business.

use super::seat::{NONE, Seat};

/// Eight bytes for any number of children.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadyList {
    pub(super) head: u32,
    /// Means nothing while the list is empty.
    pub(super) tail: u32,
}

impl ReadyList {
    pub(super) const EMPTY: ReadyList = ReadyList { head: NONE, tail: NONE };

    /// A list of one.
    #[inline]
    pub(super) fn of(child: u32) -> ReadyList {
        ReadyList { head: child, tail: child }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    #[inline]
    pub(super) fn push(&mut self, seats: &mut [Seat], child: u32) {
        if self.is_empty() {
            *self = ReadyList::of(child);
        } else {
            self.append(seats, child);
        }
    }

    /// As [`ReadyList::push`], to a list that isn't empty.
    #[inline]
    pub(super) fn append(&mut self, seats: &mut [Seat], child: u32) {
        seats[self.tail as usize].next = child;
        self.tail = child;
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

    /// Calls `visit` with each child, in their order.
    pub(super) fn each(mut self, seats: &[Seat], visit: &mut dyn FnMut(u32)) {
        while let Some(child) = self.pop(seats) {
            visit(child);
        }
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
