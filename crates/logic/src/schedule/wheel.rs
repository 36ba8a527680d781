//! Children in the order of their keys, at a cost that doesn't grow with their number: a hierarchical timing wheel (Varghese and Lauck,
//! 1987) that turns with virtual time. Which key a child has is the policy's business.
//!
//! Seven levels of 64 lists. A child's level is that of the highest digit in which its key differs from the current virtual time, and its
//! list there is that digit; so the first child is in the first list of the lowest level that isn't empty, and two bit scans find it. A
//! list with several children is dealt out to lower levels once virtual time reaches it; each child moves down at most six times, on
//! average about once. Children whose keys agree to 2^16 leave first in, first out.
//!
//! A key may be changed while its child is on the wheel. The child is moved when its list's turn comes: a key that went up is still
//! exact, a key that went down takes effect no later than where it was.

use super::ready_list::ReadyList;
use super::seat::{NONE, Seat};

/// Keys that differ only in these low bits are equal: at weight 1, a tenth of a nanosecond.
const GRANULE_BITS: u32 = 16;
const DIGIT_BITS: u32 = 6;
const LISTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 7;
const TOP: usize = LEVELS - 1;

/// How far ahead of virtual time a key may be: half of the top level, which is taken as a circle, so that keys may wrap.
pub(super) const LEAD_MAX: u64 = 1 << (GRANULE_BITS + DIGIT_BITS * LEVELS as u32 - 1);

/// The ready children of one node by key.
#[derive(Debug)]
pub(super) struct Wheel {
    /// Virtual time: the key of the child that was taken last.
    now: u64,
    /// Which levels aren't empty, by bit.
    levels: u32,
    /// Which lists of each level aren't empty, by bit.
    digits: [u64; LEVELS],
    /// `LEVELS * LISTS`, or none as long as there has never been more than one child: most nodes never need them.
    lists: Vec<ReadyList>,
    /// The only child, kept off the lists, or [`NONE`].
    only: u32,
}

/// A list's number: level * 64 + digit.
type Place = usize;

impl Wheel {
    /// An empty wheel at virtual time `now`.
    pub(super) fn new(now: u64) -> Wheel {
        Wheel { now, levels: 0, digits: [0; LEVELS], lists: Vec::new(), only: NONE }
    }

    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.only == NONE && self.levels == 0
    }

    /// Adds a child, which isn't on the wheel. Its key may be no more than [`LEAD_MAX`] ahead of virtual time.
    #[inline]
    pub(super) fn insert(&mut self, seats: &mut [Seat], child: u32) {
        if self.levels != 0 {
            return self.enlist(seats, child);
        }
        if self.only == NONE {
            self.only = child;
            return;
        }
        let other = std::mem::replace(&mut self.only, NONE);
        if self.lists.is_empty() {
            self.allocate();
        }
        self.enlist(seats, other);
        self.enlist(seats, child);
    }

    #[cold]
    #[inline(never)]
    fn allocate(&mut self) {
        self.lists = vec![ReadyList::EMPTY; LEVELS * LISTS];
    }

    /// Where `key` belongs now. What is already due belongs where virtual time is.
    #[inline]
    fn place(&self, key: u64) -> Place {
        let key = if is_before(key, self.now) { self.now } else { key };
        let differing = (key ^ self.now) >> GRANULE_BITS;
        // 43/256 is 1/6 for all numbers below 64.
        let level = (((63 - (differing | 1).leading_zeros()) * 43) >> 8).min(TOP as u32);
        let digit = (key >> (GRANULE_BITS + DIGIT_BITS * level)) as usize & (LISTS - 1);
        level as usize * LISTS + digit
    }

    #[inline]
    fn enlist(&mut self, seats: &mut [Seat], child: u32) {
        let place = self.place(seats[child as usize].key);
        self.lists[place].push(seats, child);
        let (level, digit) = (place / LISTS, place % LISTS);
        self.digits[level] |= 1 << digit;
        self.levels |= 1 << level;
    }

    /// Takes the first child off, and turns virtual time to its key.
    #[inline]
    pub(super) fn take(&mut self, seats: &mut [Seat]) -> Option<u32> {
        if self.only != NONE {
            let child = std::mem::replace(&mut self.only, NONE);
            self.turn_to(seats[child as usize].key);
            return Some(child);
        }
        while self.levels != 0 {
            let place = self.first_place();
            let list = self.lists[place];
            let child = list.head;
            let key = seats[child as usize].key;
            // All on a list of level 0 have the same key, so the first is as good as the only one.
            let is_settled = list.is_single() || place < LISTS;
            if is_settled && self.place(key) == place {
                self.lists[place].pop(seats);
                if self.lists[place].is_empty() {
                    self.clear(place);
                }
                self.turn_to(key);
                return Some(child);
            }
            if let Some(child) = self.deal_out(seats, place) {
                return Some(child);
            }
        }
        None
    }

    #[inline]
    fn first_place(&self) -> Place {
        let level = self.levels.trailing_zeros() as usize;
        let digits = self.digits[level];
        let digit = if level < TOP {
            digits.trailing_zeros()
        } else {
            let now = (self.now >> (GRANULE_BITS + DIGIT_BITS * TOP as u32)) as u32 % LISTS as u32;
            (digits.rotate_right(now).trailing_zeros() + now) % LISTS as u32
        };
        level * LISTS + digit as usize
    }

    #[inline]
    fn clear(&mut self, place: Place) {
        let level = place / LISTS;
        self.digits[level] &= !(1 << (place % LISTS));
        if self.digits[level] == 0 {
            self.levels &= !(1 << level);
        }
    }

    #[inline]
    fn turn_to(&mut self, key: u64) {
        if is_before(self.now, key) {
            self.now = key;
        }
    }

    /// Empties a list: its first child is taken when its key is indeed within the list's range; the others go where they belong by then.
    #[inline(never)]
    fn deal_out(&mut self, seats: &mut [Seat], place: Place) -> Option<u32> {
        let mut list = std::mem::replace(&mut self.lists[place], ReadyList::EMPTY);
        self.clear(place);
        let mut first = list.head;
        let mut at = first;
        while at != NONE {
            if is_before(seats[at as usize].key, seats[first as usize].key) {
                first = at;
            }
            at = seats[at as usize].next;
        }
        let key = seats[first as usize].key;
        // A changed key may lie outside of the list's range: then another list may come first.
        let taken = if self.place(key) == place {
            self.turn_to(key);
            first
        } else {
            NONE
        };
        while let Some(child) = list.pop(seats) {
            if child != taken {
                self.enlist(seats, child);
            }
        }
        (taken != NONE).then_some(taken)
    }

    /// Takes one child off wherever it is; looks through all lists.
    pub(super) fn remove(&mut self, seats: &mut [Seat], child: u32) {
        if self.only == child {
            self.only = NONE;
            return;
        }
        for place in 0..self.lists.len() {
            if !self.lists[place].is_empty() && self.lists[place].remove(seats, child) {
                if self.lists[place].is_empty() {
                    self.clear(place);
                }
                return;
            }
        }
    }
}

/// Whether `a` comes before `b`, on a circle where both are less than half of it apart.
#[inline]
pub(super) fn is_before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}
