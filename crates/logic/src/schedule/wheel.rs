//! Children in the order of their keys, at a cost that doesn't grow with their number: a hierarchical timing wheel (Varghese and Lauck,
//! 1987) that turns with virtual time. Which key a child has is the policy's business.
//!
//! Eight levels of 64 lists. A child's level is that of the highest digit in which its key differs from the current virtual time, and its
//! list there is that digit; so the first child is in the first list of the lowest level that isn't empty, and two bit scans find it. A
//! list with several children is dealt out to lower levels once virtual time reaches it; each child moves down at most seven times, on
//! average about once. Children whose keys agree to 2^20 leave first in, first out.
//!
//! A key may be changed while its child is on the wheel. The child is moved when its list's turn comes: a key that went up is still
//! exact, a key that went down takes effect no later than where it was.

use super::ready_list::ReadyList;
use super::seat::{NONE, Seat};

/// Keys that differ only in these low bits are equal: at weight 1, a nanosecond and a half. With 20, what events of 2 to 6 us (or of 130 to
/// 400 us) make keys differ by falls onto one level, finely divided.
pub(super) const GRANULE_BITS: u32 = 20;
const DIGIT_BITS: u32 = 6;
const LISTS: usize = 1 << DIGIT_BITS;
/// With the granule, these take up all 64 bits of a key, so that keys wrap where the top level does (it has two bits left).
const LEVELS: usize = 8;
const TOP: usize = LEVELS - 1;

/// How far ahead of virtual time a key may be; less than half of the circle, which is as far as order goes.
pub(super) const LEAD_MAX: u64 = 1 << 57;

type Lists = [ReadyList; LEVELS * LISTS];

/// The ready children of one node by key.
#[derive(Debug)]
pub(super) struct Wheel {
    /// Virtual time: the key of the child that was taken last.
    now: u64,
    /// The only child, kept off the lists, or [`NONE`].
    only: u32,
    /// Which levels aren't empty, by bit.
    levels: u32,
    /// Which lists of each level aren't empty, by bit. What is in an empty list means nothing.
    digits: [u64; LEVELS],
    /// None as long as there has never been more than one child: most nodes never need them.
    lists: Option<Box<Lists>>,
    /// Whether a key has been changed on the wheel since it was last empty: then a child may not be where it belongs.
    is_disturbed: bool,
}

/// A list's level and digit.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    level: usize,
    digit: usize,
}

impl Place {
    #[inline]
    fn list(self) -> usize {
        (self.level * LISTS + self.digit) % (LEVELS * LISTS)
    }
}

impl Wheel {
    /// An empty wheel at virtual time `now`.
    pub(super) fn new(now: u64) -> Wheel {
        Wheel { now, only: NONE, levels: 0, digits: [0; LEVELS], lists: None, is_disturbed: false }
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
        if self.levels == 0 {
            if self.only == NONE {
                self.only = child;
                return;
            }
            self.enlist_only(seats);
        }
        self.enlist(seats, child);
    }

    #[inline(never)]
    fn enlist_only(&mut self, seats: &mut [Seat]) {
        self.is_disturbed = false;
        if self.lists.is_none() {
            self.lists = Some(Box::new([ReadyList::EMPTY; LEVELS * LISTS]));
        }
        let only = std::mem::replace(&mut self.only, NONE);
        self.enlist(seats, only);
    }

    /// Where `key` belongs now. What is already due belongs where virtual time is.
    #[inline]
    fn place(&self, key: u64) -> Place {
        let key = if is_before(key, self.now) { self.now } else { key };
        let differing = (key ^ self.now) >> GRANULE_BITS;
        // 43/256 is 1/6 for all numbers below 64.
        let level = ((63 - (differing | 1).leading_zeros()) * 43) >> 8;
        let digit = (key >> (GRANULE_BITS + DIGIT_BITS * level)) as usize % LISTS;
        Place { level: level as usize % LEVELS, digit }
    }

    #[inline]
    fn enlist(&mut self, seats: &mut [Seat], child: u32) {
        let place = self.place(seats[child as usize].key);
        let Some(lists) = &mut self.lists else { return };
        let list = &mut lists[place.list()];
        let digits = &mut self.digits[place.level];
        let bit = 1 << place.digit;
        if *digits & bit == 0 {
            *list = ReadyList::of(child);
            *digits |= bit;
            self.levels |= 1 << place.level;
        } else {
            list.append(seats, child);
        }
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
            let list = self.lists.as_ref()?[place.list()];
            let child = list.head;
            let key = seats[child as usize].key;
            // All on a list of level 0 have the same key, so the first is as good as the only one.
            let is_settled = list.is_single() || place.level == 0;
            if !is_settled || (self.is_disturbed && self.place(key) != place) {
                if let Some(child) = self.deal_out(seats, place) {
                    return Some(child);
                }
                continue;
            }
            let list = &mut self.lists.as_mut()?[place.list()];
            if list.is_single() {
                self.clear(place);
            } else {
                list.head = seats[child as usize].next;
            }
            self.turn_to(key);
            return Some(child);
        }
        None
    }

    /// A child's key has been changed, and it may be on the wheel.
    pub(super) fn disturb(&mut self) {
        self.is_disturbed = true;
    }

    #[inline]
    fn first_place(&self) -> Place {
        let level = self.levels.trailing_zeros() as usize % LEVELS;
        let digits = self.digits[level];
        if level < TOP {
            return Place { level, digit: digits.trailing_zeros() as usize % LISTS };
        }
        // On the top level, keys wrap: the first digit is the next one from virtual time's.
        let now = (self.now >> (GRANULE_BITS + DIGIT_BITS * TOP as u32)) as u32 % LISTS as u32;
        Place { level, digit: (digits.rotate_right(now).trailing_zeros() + now) as usize % LISTS }
    }

    #[inline]
    fn clear(&mut self, place: Place) {
        let digits = &mut self.digits[place.level];
        *digits &= !(1 << place.digit);
        if *digits == 0 {
            self.levels &= !(1 << place.level);
        }
    }

    #[inline]
    fn turn_to(&mut self, key: u64) {
        if is_before(self.now, key) {
            self.now = key;
        }
    }

    /// Empties a list: its first child is taken if its key is indeed within the list's range; the others go where they belong by then.
    #[inline(never)]
    fn deal_out(&mut self, seats: &mut [Seat], place: Place) -> Option<u32> {
        let list = self.lists.as_ref()?[place.list()];
        self.clear(place);
        let head_key = seats[list.head as usize].key;
        let (mut first, mut first_key, mut differing) = (list.head, head_key, 0);
        let mut at = first;
        while at != list.tail {
            at = seats[at as usize].next;
            let key = seats[at as usize].key;
            differing |= key ^ head_key;
            if is_before(key, first_key) {
                (first, first_key) = (at, key);
            }
        }
        // A changed key may lie outside of the list's range: then another list may come first.
        let taken = if !self.is_disturbed || self.place(first_key) == place { first } else { NONE };
        if taken != NONE {
            self.turn_to(first_key);
        }
        if taken == list.head && differing >> GRANULE_BITS == 0 {
            self.enlist_rest(seats, list);
            return Some(taken);
        }
        let mut next = list.head;
        loop {
            let child = next;
            next = seats[child as usize].next;
            if child != taken {
                self.enlist(seats, child);
            }
            if child == list.tail {
                return (taken != NONE).then_some(taken);
            }
        }
    }

    /// Adds all of a list but its head, whose keys are alike: children with the same weight whose events cost the same move together.
    fn enlist_rest(&mut self, seats: &mut [Seat], list: ReadyList) {
        if list.is_single() {
            return;
        }
        let second = seats[list.head as usize].next;
        let rest = ReadyList { head: second, tail: list.tail };
        let place = self.place(seats[second as usize].key);
        let Some(lists) = &mut self.lists else { return };
        let there = &mut lists[place.list()];
        if self.digits[place.level] >> place.digit & 1 == 0 {
            *there = rest;
            self.digits[place.level] |= 1 << place.digit;
            self.levels |= 1 << place.level;
        } else {
            seats[there.tail as usize].next = rest.head;
            there.tail = rest.tail;
        }
    }

    /// Takes one child off wherever it is; looks through all lists.
    pub(super) fn remove(&mut self, seats: &mut [Seat], child: u32) {
        if self.only == child {
            self.only = NONE;
            return;
        }
        let Some(lists) = &mut self.lists else { return };
        for level in 0..LEVELS {
            for digit in (0..LISTS).filter(|digit| self.digits[level] >> digit & 1 == 1) {
                let place = Place { level, digit };
                let list = &mut lists[place.list()];
                if list.remove(seats, child) {
                    if list.is_empty() {
                        self.clear(place);
                    }
                    return;
                }
            }
        }
    }
}

/// Whether `a` comes before `b`, on a circle where both are less than half of it apart.
#[inline]
pub(super) fn is_before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}
