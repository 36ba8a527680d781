//! Children in the order of their keys, at nearly the cost of a list: a calendar queue (Brown, 1988) of 64 slots that turns with virtual time.
//! Which key a child has is the policy's business.
//!
//! A slot is as wide as a part of 32 to 64 of what keys are usually ahead of virtual time; one bit for each slot, so a rotation and a bit
//! scan find the first child. Within a slot, children leave first in, first out. That changes when a child is served, by less than a
//! thirtieth of what another's event may delay it by anyway, and never how much it gets: keys are exact (as with the rounded time
//! stamps of Stephens, Bennett and Zhang, 1999). Keys further ahead wait in a heap. When many do, slots become wider; when only the first
//! quarter of them is used, narrower.
//!
//! Keys from before the slots are overdue: their children are first, the last that came before the others.
//!
//! A key may go up while its child is in the calendar: the child is moved when its slot's turn comes.

use super::ready_list::ReadyList;
use super::seat::Seat;
use super::urgency_heap::UrgencyHeap;

const SLOTS: usize = 64;

/// How far ahead of virtual time a key may be; less than half of the circle of keys, which is as far as order goes.
pub(super) const LEAD_MAX: u64 = 1 << 57;

/// The width of a slot, as a power of two: at first that of some nanoseconds at weight 1.
const WIDTH_BITS_FIRST: u32 = 24;
const WIDTH_BITS_MIN: u32 = 4;
/// A period is no longer than the time between two sweeps.
const WIDTH_BITS_MAX: u32 = SWEEP_EACH.trailing_zeros() - PERIOD.trailing_zeros();

/// Slots and children that pass between two looks at the slots' width.
const PERIOD: i32 = 1 << 10;
/// Keys in one period that lie beyond the slots before slots become wider. A child whose keys are always that far ahead has 16 at most.
const FAR_EACH_PERIOD_MAX: u32 = 8;
/// Slots become narrower when none beyond these is used.
const SLOTS_USED_MIN: u64 = SLOTS as u64 / 4;
/// Keys in one period that lie beyond the slots from which on they aren't too wide: fewer are a few children's that cost much for their weight.
const FAR_EACH_PERIOD_MIN: u32 = FAR_EACH_PERIOD_MAX / 2;
/// Periods in a row after which slots become narrower, at the earliest and at the latest. The latter is for many children, as putting each in its
/// place takes time; for few it's so many times less. Slots that are too wide make turns long.
const WIDE_PERIODS_MIN: u32 = 1;
const WIDE_PERIODS_MAX: u32 = 64;
const CHILDREN_EACH_WIDE_PERIOD: usize = 64;

/// Every time that virtual time has passed so far, keys that are far behind are brought up, before they could be taken for keys that are ahead.
/// At weight 1 that's after 27 minutes of uninterrupted service.
const SWEEP_EACH: u64 = 1 << 60;

/// What becomes of the first child beyond the slots.
enum Far {
    /// It's the first of all.
    Taken(u32),
    /// Its key had gone up.
    Moved,
    /// Another comes first.
    Later,
}

/// The ready children of one node by key.
#[derive(Debug)]
pub(super) struct Calendar {
    /// Virtual time: the key of the child that was taken last, but for those that were overdue.
    now: u64,
    /// Where the slot begins from which on children are looked for.
    floor: u64,
    /// Which slots aren't empty, by bit, from the floor on.
    filled: u64,
    /// The list of the slot at the floor.
    origin: usize,
    /// The width of a slot, as a power of two.
    width_bits: u32,
    /// Slots and children until the end of the period.
    period_left: i32,
    /// Keys beyond the slots in this period.
    far_count: u32,
    /// Periods in a row at whose end slots seemed too wide, and the furthest that keys were ahead then.
    wide_periods: u32,
    spread_max: u64,
    /// How many it takes: the more, the more often it was wrong; and how many it may at most, by the children that there were.
    wide_periods_min: u32,
    wide_periods_max: u32,
    /// Whether slots were made narrower and not wider since.
    was_narrowed: bool,
    /// When keys were last brought up.
    swept: u64,
    /// The children of each slot. What is in the list of an empty one means nothing.
    /// In a box, as nodes with other policies would otherwise be as large.
    lists: Box<[ReadyList; SLOTS]>,
    /// Children beyond the slots, by how far their keys are ahead of `far_base`.
    far: UrgencyHeap,
    far_base: u64,
}

impl Calendar {
    /// An empty calendar at virtual time `now`.
    pub(super) fn new(now: u64) -> Calendar {
        let floor = now & (u64::MAX << WIDTH_BITS_FIRST);
        Calendar {
            now,
            floor,
            filled: 0,
            origin: 0,
            width_bits: WIDTH_BITS_FIRST,
            period_left: PERIOD,
            far_count: 0,
            wide_periods: 0,
            spread_max: 0,
            wide_periods_min: WIDE_PERIODS_MIN,
            wide_periods_max: WIDE_PERIODS_MIN,
            was_narrowed: false,
            swept: floor,
            lists: Box::new([ReadyList::EMPTY; SLOTS]),
            far: UrgencyHeap::new(),
            far_base: floor,
        }
    }

    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.filled == 0 && self.far.is_empty()
    }

    /// Adds a child, which isn't in the calendar.
    #[inline]
    pub(super) fn insert(&mut self, seats: &mut [Seat], child: u32) {
        let lead = self.lead(seats[child as usize].key);
        if lead < SLOTS as u64 {
            self.enlist(seats, child, lead);
        } else {
            self.insert_elsewhere(seats, child);
        }
    }

    /// Slots from the floor to `key`; more than there are if it's before the floor.
    #[inline]
    fn lead(&self, key: u64) -> u64 {
        key.wrapping_sub(self.floor) >> self.width_bits
    }

    /// Adds a child to the slot that is `lead` after the floor.
    #[inline]
    fn enlist(&mut self, seats: &mut [Seat], child: u32, lead: u64) {
        let list = &mut self.lists[(self.origin + lead as usize) % SLOTS];
        let bit = 1 << (lead % SLOTS as u64);
        // Whether a slot is empty can't be foreseen: no branches. A child that is first is put behind itself, which means nothing.
        let is_empty = self.filled & bit == 0;
        let before = if is_empty { child } else { list.tail };
        list.head = if is_empty { child } else { list.head };
        list.tail = child;
        self.filled |= bit;
        seats[before as usize].next = child;
    }

    /// Adds a child before all others.
    fn enlist_first(&mut self, seats: &mut [Seat], child: u32) {
        if self.filled & 1 == 0 {
            return self.enlist(seats, child, 0);
        }
        let list = &mut self.lists[self.origin];
        seats[child as usize].next = std::mem::replace(&mut list.head, child);
    }

    /// Adds a child whose key is overdue, or beyond the slots.
    #[inline(never)]
    fn insert_elsewhere(&mut self, seats: &mut [Seat], child: u32) {
        let key = seats[child as usize].key;
        if is_before(key, self.floor) {
            return self.enlist_first(seats, child);
        }
        if self.far.is_empty() {
            self.far_base = self.floor;
        }
        self.far.insert(key.wrapping_sub(self.far_base), child);
        self.far_count += 1;
        if self.far_count >= FAR_EACH_PERIOD_MAX {
            if std::mem::take(&mut self.was_narrowed) {
                self.wide_periods_min = (self.wide_periods_min * 4).min(self.wide_periods_max);
            }
            self.widen(seats);
        }
    }

    /// Takes the first child out, and turns virtual time to its key.
    #[inline]
    pub(super) fn take(&mut self, seats: &mut [Seat]) -> Option<u32> {
        loop {
            if !self.far.is_empty() {
                match self.take_far(seats)? {
                    Far::Taken(child) => return Some(child),
                    Far::Moved => continue,
                    Far::Later => {}
                }
            }
            if self.filled == 0 {
                return None;
            }
            let ahead = self.filled.trailing_zeros();
            let slot = (self.origin + ahead as usize) % SLOTS;
            let ReadyList { head: child, tail } = self.lists[slot];
            let Seat { key, next, .. } = seats[child as usize];
            if self.lead(key) == u64::from(ahead) {
                self.now = key;
            } else if self.is_moved(seats, child, ahead) {
                continue;
            }
            self.origin = slot;
            self.filled >>= ahead;
            // As above: what is behind the last child means nothing.
            self.filled ^= u64::from(child == tail);
            self.lists[slot].head = next;
            self.floor = self.floor.wrapping_add(u64::from(ahead) << self.width_bits);
            self.period_left -= ahead as i32 + 1;
            if self.period_left < 0 {
                self.end_period(seats, child);
            }
            return Some(child);
        }
    }

    /// The key of the first child of the slot that is `ahead` of the floor isn't in that slot: if it has gone up, the child is put where it
    /// belongs now. Otherwise it's overdue.
    #[cold]
    #[inline(never)]
    fn is_moved(&mut self, seats: &mut [Seat], child: u32, ahead: u32) -> bool {
        let Seat { key, next, .. } = seats[child as usize];
        let slot_starts = self.floor.wrapping_add(u64::from(ahead) << self.width_bits);
        if is_before(key, slot_starts) {
            return false;
        }
        let list = &mut self.lists[(self.origin + ahead as usize) % SLOTS];
        if child == list.tail {
            self.filled &= !(1 << ahead);
        } else {
            list.head = next;
        }
        self.insert(seats, child);
        true
    }

    /// Takes the first child of those beyond the slots, unless one in the slots comes before it; `None` if there's no child at all.
    #[inline(never)]
    fn take_far(&mut self, seats: &mut [Seat]) -> Option<Far> {
        let key_then = self.far_base.wrapping_add(self.far.first_key()?);
        let lead = self.lead(key_then);
        if self.filled != 0 && lead > u64::from(self.filled.trailing_zeros()) {
            return Some(Far::Later);
        }
        let child = self.far.take()?;
        let key = seats[child as usize].key;
        if is_before(key_then, key) {
            self.insert(seats, child);
            return Some(Far::Moved);
        }
        self.skip(lead);
        self.now = key_then;
        if self.filled == 0 && lead >= SLOTS as u64 {
            // The slots are of no use as they are.
            self.widen(seats);
        }
        if self.period_left < 0 {
            self.end_period(seats, child);
        }
        Some(Far::Taken(child))
    }

    /// Turns the floor over `lead` slots that are empty.
    fn skip(&mut self, lead: u64) {
        self.floor = self.floor.wrapping_add(lead << self.width_bits);
        self.origin = (self.origin + (lead % SLOTS as u64) as usize) % SLOTS;
        self.filled = self.filled.checked_shr(u32::try_from(lead).unwrap_or(u32::MAX)).unwrap_or(0);
        self.period_left = self.period_left.saturating_sub_unsigned(u32::try_from(lead).unwrap_or(u32::MAX));
    }

    #[cold]
    #[inline(never)]
    fn end_period(&mut self, seats: &mut [Seat], taken: u32) {
        self.period_left = PERIOD;
        let spread = self.spread(seats);
        if self.far_count >= FAR_EACH_PERIOD_MIN || spread >> self.width_bits >= SLOTS_USED_MIN {
            self.wide_periods = 0;
            self.spread_max = 0;
        } else if spread > 0 {
            // A single child, or children whose keys are all alike, say nothing of how wide slots should be.
            self.wide_periods += 1;
            self.spread_max = self.spread_max.max(spread);
        }
        if self.wide_periods >= self.wide_periods_min {
            let width_bits = (self.spread_max / SLOTS_USED_MIN).checked_ilog2().unwrap_or(0).max(WIDTH_BITS_MIN);
            self.wide_periods = 0;
            self.was_narrowed = true;
            self.arrange(seats, width_bits.min(self.width_bits));
        }
        self.far_count = 0;
        if self.floor.wrapping_sub(self.swept) >= SWEEP_EACH {
            self.swept = self.floor;
            self.sweep(seats, taken);
        }
    }

    /// How far the children in the last slot that isn't empty are from virtual time: ahead of it, or behind if they're in the same slot.
    fn spread(&self, seats: &[Seat]) -> u64 {
        let Some(lead) = self.filled.checked_ilog2() else { return 0 };
        let mut list = self.lists[(self.origin + lead as usize) % SLOTS];
        let keys = std::iter::from_fn(|| list.pop(seats)).map(|child| seats[child as usize].key);
        keys.map(|key| (key.wrapping_sub(self.now) as i64).unsigned_abs()).max().unwrap_or(0)
    }

    /// Brings idle children's keys up to virtual time.
    fn sweep(&mut self, seats: &mut [Seat], taken: u32) {
        let parent = seats[taken as usize].parent;
        for seat in seats.iter_mut().filter(|seat| seat.parent == parent && !seat.pending) {
            if is_before(seat.key, self.now) {
                seat.key = self.now;
            }
        }
        // So that no key is too far ahead of where the heap counts from.
        self.arrange(seats, self.width_bits);
    }

    fn widen(&mut self, seats: &mut [Seat]) {
        if self.width_bits < WIDTH_BITS_MAX {
            self.arrange(seats, self.width_bits + 1);
        }
    }

    /// Makes slots of another width, and puts every child in its place.
    #[cold]
    #[inline(never)]
    fn arrange(&mut self, seats: &mut [Seat], width_bits: u32) {
        let mut children = Vec::new();
        for lead in (0..SLOTS).filter(|lead| self.filled >> lead & 1 == 1) {
            let mut list = self.lists[(self.origin + lead) % SLOTS];
            children.extend(std::iter::from_fn(|| list.pop(seats)));
        }
        children.extend(std::iter::from_fn(|| self.far.take()));
        let periods = u32::try_from(children.len() / CHILDREN_EACH_WIDE_PERIOD).unwrap_or(u32::MAX);
        self.wide_periods_max = periods.clamp(WIDE_PERIODS_MIN, WIDE_PERIODS_MAX);
        self.wide_periods_min = self.wide_periods_min.min(self.wide_periods_max);
        self.filled = 0;
        self.width_bits = width_bits;
        self.floor &= u64::MAX << width_bits;
        self.far_base = self.floor;
        self.far_count = 0;
        for child in children {
            let key = seats[child as usize].key;
            match self.lead(key) {
                lead if lead < SLOTS as u64 => self.enlist(seats, child, lead),
                _ if is_before(key, self.floor) => self.enlist(seats, child, 0),
                // Doesn't count as another that is far ahead.
                _ => self.far.insert(key.wrapping_sub(self.far_base), child),
            }
        }
    }

    /// A child's key has gone down: if it's beyond the slots, it's put in its place. In the slots it has less far to go than it's worth.
    pub(super) fn hasten(&mut self, seats: &mut [Seat], child: u32) {
        if !self.far.is_empty() && self.far.remove(child) {
            self.insert(seats, child);
        }
    }

    /// Takes one child out wherever it is; looks through all.
    pub(super) fn remove(&mut self, seats: &mut [Seat], child: u32) {
        if self.far.remove(child) {
            return;
        }
        for lead in (0..SLOTS).filter(|lead| self.filled >> lead & 1 == 1) {
            let list = &mut self.lists[(self.origin + lead) % SLOTS];
            if list.remove(seats, child) {
                if list.is_empty() {
                    self.filled &= !(1 << lead);
                }
                return;
            }
        }
    }

    /// Keys that differ by less are equal.
    #[cfg(test)]
    pub(super) fn width(&self) -> u64 {
        1 << self.width_bits
    }
}

/// Whether `a` comes before `b`, on a circle where both are less than half of it apart.
#[inline]
pub(super) fn is_before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}
