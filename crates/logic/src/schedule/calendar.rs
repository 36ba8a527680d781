//! Children in the order of their keys, at nearly the cost of a list: a calendar queue (Brown, 1988) of 64 lists that turns with virtual time.
//! Which key a child has is the policy's business.
//!
//! Keys are divided into slots, as wide as a part of 32 to 64 of what keys are usually ahead of virtual time. From that of virtual time on, each of 64
//! has a list, at its number modulo 64, and a bit that says whether it's empty: a bit scan finds the first child. Within a slot, children leave first in, first out. That changes when a child is served, by less than a
//! thirtieth of what another's event may delay it by anyway, and never how much it gets: keys are exact (as with the rounded time
//! stamps of Stephens, Bennett and Zhang, 1999). Keys further ahead wait in a heap. When many do, slots become wider; when only the first
//! quarter of them is used, narrower.
//!
//! Keys from before the slots are overdue: their children are first, the last that came before the others.
//!
//! A key may go up or down while its child is in the calendar: the list that it's in is marked, and the child is moved when the list's turn comes.

use super::ready_list::ReadyList;
use super::seat::{Seat, VIRTUAL_MAX};
use super::urgency_heap::UrgencyHeap;
use std::hint::select_unpredictable;

const SLOTS: u64 = u64::BITS as u64;

/// How far ahead of virtual time a key may be; less than half of the circle of keys, which is as far as order goes.
pub(super) const LEAD_MAX: u64 = VIRTUAL_MAX;

/// The width of a slot, as a power of two: at first that of some nanoseconds at weight 1.
const WIDTH_BITS_FIRST: u32 = 24;
const WIDTH_BITS_MIN: u32 = 4;
/// A period is no longer than the time between two sweeps.
const WIDTH_BITS_MAX: u32 = SWEEP_EACH.trailing_zeros() - PERIOD_SLOTS.trailing_zeros();

/// Slots that pass, or children that are taken, between two looks at the slots' width.
const PERIOD_SLOTS: u64 = 1 << 13;
const PERIOD_CHILDREN: i32 = 1 << 10;
/// Keys in one period that lie beyond the slots before slots become wider. A child whose keys are always that far ahead has 128 at most.
const FAR_EACH_PERIOD_MAX: u32 = 64;
/// Slots become narrower when none beyond these is used.
const SLOTS_USED_MIN: u64 = SLOTS / 4;
/// Keys in one period that lie beyond the slots from which on they aren't too wide: fewer are a few children's that cost much for their weight.
const FAR_EACH_PERIOD_MIN: u32 = FAR_EACH_PERIOD_MAX / 2;
/// Periods in a row after which slots become narrower, at the earliest and at the latest. The latter is for many children, as putting each in its
/// place takes time; for few it's so many times less. Slots that are too wide make turns long.
const WIDE_PERIODS_MIN: u32 = 1;
const WIDE_PERIODS_OF_FEW_MAX: u32 = 4;
const WIDE_PERIODS_MAX: u32 = 64;
const CHILDREN_EACH_WIDE_PERIOD: usize = 16;

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
// What each event needs of it, up to the lists, is together.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Calendar {
    /// Virtual time: the key of the child that was taken last, but for those that were overdue.
    now: u64,
    /// The number of the slot from which on children are looked for.
    first: u64,
    /// Which lists aren't empty, by bit, from the first slot's on.
    filled: u64,
    /// The slot before which a first child can be taken out of its slot at once: the period isn't over, none beyond the slots comes before, and all
    /// children in the slots before have their places by their keys.
    end: u64,
    /// Children until the end of the period, and the slot at its beginning.
    children_left: i32,
    /// The width of a slot, as a power of two.
    width_bits: u32,
    period_start: u64,
    /// What is in an empty one means nothing.
    lists: [ReadyList; SLOTS as usize],
    /// Lists of which a child's key may be of another slot, by bit, at the number of the list's slot modulo 64. Of empty ones it means nothing.
    strayed: u64,
    /// Children beyond the slots, by how far their keys are ahead of `far_base`.
    far: UrgencyHeap,
    far_base: u64,
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
}

impl Calendar {
    /// An empty calendar at virtual time `now`.
    pub(super) fn new(now: u64) -> Calendar {
        Calendar {
            now,
            first: now >> WIDTH_BITS_FIRST,
            filled: 0,
            width_bits: WIDTH_BITS_FIRST,
            end: (now >> WIDTH_BITS_FIRST) + PERIOD_SLOTS,
            children_left: PERIOD_CHILDREN,
            period_start: now >> WIDTH_BITS_FIRST,
            lists: [ReadyList::EMPTY; SLOTS as usize],
            strayed: 0,
            far: UrgencyHeap::new(),
            far_base: now,
            far_count: 0,
            wide_periods: 0,
            spread_max: 0,
            wide_periods_min: WIDE_PERIODS_MIN,
            wide_periods_max: WIDE_PERIODS_MIN,
            was_narrowed: false,
            swept: now,
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

    /// The number of a key's slot.
    #[inline]
    fn slot(&self, key: u64) -> u64 {
        key >> self.width_bits
    }

    /// The first key of a slot.
    fn start(&self, slot: u64) -> u64 {
        slot << self.width_bits
    }

    /// Slots from the first to that of `key`; more than there are if it's overdue.
    fn lead(&self, key: u64) -> u64 {
        self.slot(key.wrapping_sub(self.start(self.first)))
    }

    /// The list of a slot.
    #[inline]
    fn list(&mut self, slot: u64) -> &mut ReadyList {
        &mut self.lists[(slot % SLOTS) as usize]
    }

    /// Adds a child, which isn't in the calendar.
    #[inline]
    pub(super) fn insert(&mut self, seats: &mut [Seat], child: u32) {
        if !self.insert_at_once(seats, child, seats[child as usize].key) {
            self.insert_elsewhere(seats, child);
        }
    }

    /// Gives a child another key and adds it, if that's in one of the slots; whether it is.
    #[inline]
    pub(super) fn insert_at_once(&mut self, seats: &mut [Seat], child: u32, key: u64) -> bool {
        let slot = self.slot(key);
        let lead = slot.wrapping_sub(self.first);
        let is_in_slots = lead < SLOTS;
        if is_in_slots {
            seats[child as usize].key = key;
            self.enlist(seats, child, slot, lead);
        }
        is_in_slots
    }

    /// The key of a child that may be in the calendar will be another: the list of the one that it has is marked.
    pub(super) fn stray(&mut self, key: u64) {
        let slot = self.slot(key);
        if slot.wrapping_sub(self.first) < SLOTS {
            self.mark(slot);
        }
    }

    /// Marks the list of a slot as one with a child whose key may be of another.
    fn mark(&mut self, slot: u64) {
        self.strayed |= 1 << (slot % SLOTS);
        self.end = self.end.min(slot);
    }

    /// Adds a child to the list of a slot, which is `lead` after the first.
    #[inline]
    fn enlist(&mut self, seats: &mut [Seat], child: u32, slot: u64, lead: u64) {
        // That it's the only one can be foreseen, mostly: who comes alone is served sooner.
        if self.filled == 0 {
            // Not `1 << lead`, which the compiler would work out for both ways, in place of the bit instructions of the other.
            self.filled = 1_u64.rotate_left(lead as u32);
            *self.list(slot) = ReadyList::of(child);
            return;
        }
        let is_empty = self.filled >> lead & 1 == 0;
        self.filled |= 1 << lead;
        let list = self.list(slot);
        // Whether a list is empty can't be foreseen: no branches. A child that is first is put behind itself, which means nothing.
        let before = select_unpredictable(is_empty, child, list.tail);
        list.head = select_unpredictable(is_empty, child, list.head);
        list.tail = child;
        seats[before as usize].next = child;
    }

    /// As [`Calendar::enlist`], to the list of the slot that is `lead` after the first, where the child's key may not be by its number.
    fn enlist_strayed(&mut self, seats: &mut [Seat], child: u32, lead: u64) {
        let slot = self.first + lead;
        self.enlist(seats, child, slot, lead);
        self.mark(slot);
    }

    /// Adds a child before all others.
    fn enlist_first(&mut self, seats: &mut [Seat], child: u32) {
        if self.filled & 1 == 0 {
            return self.enlist_strayed(seats, child, 0);
        }
        seats[child as usize].next = std::mem::replace(&mut self.list(self.first).head, child);
        self.mark(self.first);
    }

    /// Adds a child whose key is overdue, or beyond the slots, or in one whose number has begun anew.
    #[inline(never)]
    fn insert_elsewhere(&mut self, seats: &mut [Seat], child: u32) {
        let key = seats[child as usize].key;
        let lead = self.lead(key);
        if lead < SLOTS {
            return self.enlist_strayed(seats, child, lead);
        }
        if is_before(key, self.start(self.first)) {
            return self.enlist_first(seats, child);
        }
        if self.far.is_empty() {
            self.far_base = self.now;
        }
        self.far.insert(key.wrapping_sub(self.far_base), child);
        self.set_end();
        self.far_count += 1;
        if self.far_count >= FAR_EACH_PERIOD_MAX {
            if std::mem::take(&mut self.was_narrowed) {
                self.wide_periods_min = (self.wide_periods_min * 4).min(self.wide_periods_max);
            }
            self.widen(seats);
        }
    }

    /// Calls `visit` with each child, the first of those in the slots first.
    pub(super) fn each(&self, seats: &[Seat], visit: &mut dyn FnMut(u32)) {
        for (slot, _) in self.filled_slots() {
            self.lists[(slot % SLOTS) as usize].each(seats, visit);
        }
        self.far.each(visit);
    }

    /// Takes the first child out, and turns virtual time to its key.
    #[inline]
    pub(super) fn take(&mut self, seats: &mut [Seat]) -> Option<u32> {
        self.take_at_once(seats).or_else(|| self.take_anyhow(seats))
    }

    /// As [`Calendar::take`], if nothing has to be looked at but the slots; otherwise none is taken.
    #[inline]
    pub(super) fn take_at_once(&mut self, seats: &mut [Seat]) -> Option<u32> {
        if self.filled == 0 {
            return None;
        }
        let ahead = self.filled.trailing_zeros();
        let slot = self.first + u64::from(ahead);
        self.children_left -= 1;
        if self.children_left < 0 || slot >= self.end {
            return None;
        }
        let child = self.list(slot).head;
        self.now = seats[child as usize].key;
        self.delist(seats, child, slot, ahead);
        Some(child)
    }

    /// Takes the first child out of the list of a slot, which is the first that isn't empty.
    #[inline]
    fn delist(&mut self, seats: &[Seat], child: u32, slot: u64, ahead: u32) {
        let list = self.list(slot);
        // As above: what is behind the last child means nothing.
        list.head = seats[child as usize].next;
        let is_last = child == list.tail;
        self.first = slot;
        self.filled = self.filled >> ahead ^ u64::from(is_last);
    }

    /// Says how far children can be taken at once.
    fn set_end(&mut self) {
        let of_period = PERIOD_SLOTS.saturating_sub(self.first.wrapping_sub(self.period_start));
        let of_far = self.far.first().map_or(u64::MAX, |(key, _)| self.lead(self.far_base.wrapping_add(key)));
        let strayed = self.strayed.rotate_right((self.first % SLOTS) as u32) & self.filled;
        let of_strayed = if strayed == 0 { u64::MAX } else { u64::from(strayed.trailing_zeros()) };
        self.end = self.first + of_period.min(of_far).min(of_strayed);
    }

    /// Whether it's time to look at the slots' width.
    fn is_period_over(&self) -> bool {
        self.children_left < 0 || self.first.wrapping_sub(self.period_start) >= PERIOD_SLOTS
    }

    /// As [`Calendar::take`], whatever there is.
    #[inline(never)]
    fn take_anyhow(&mut self, seats: &mut [Seat]) -> Option<u32> {
        let child = self.take_first(seats);
        if let Some(child) = child
            && self.is_period_over()
        {
            self.end_period(seats, child);
        }
        self.set_end();
        child
    }

    fn take_first(&mut self, seats: &mut [Seat]) -> Option<u32> {
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
            let start = self.start(self.first + u64::from(ahead));
            let child = self.list(self.slot(start)).head;
            let key = seats[child as usize].key;
            self.delist(seats, child, self.slot(start), ahead);
            if self.filled & 1 == 0 {
                self.strayed &= !(1 << (self.first % SLOTS));
            }
            if self.lead(key) == 0 {
                self.now = key;
            } else if !is_before(key, start) {
                // It has gone up.
                self.insert(seats, child);
                continue;
            }
            return Some(child);
        }
    }

    /// Takes the first child of those beyond the slots, unless one in the slots comes before it; `None` if there's no child at all.
    #[inline(never)]
    fn take_far(&mut self, seats: &mut [Seat]) -> Option<Far> {
        let (ahead, child) = self.far.first()?;
        let key_then = self.far_base.wrapping_add(ahead);
        let lead = self.lead(key_then);
        if self.filled != 0 && lead > u64::from(self.filled.trailing_zeros()) {
            return Some(Far::Later);
        }
        self.far.take();
        let key = seats[child as usize].key;
        if is_before(key_then, key) {
            self.insert(seats, child);
            return Some(Far::Moved);
        }
        self.now = key_then;
        self.first = self.slot(key_then);
        self.filled = self.filled.checked_shr(u32::try_from(lead).unwrap_or(u32::MAX)).unwrap_or(0);
        if self.filled == 0 && lead >= SLOTS {
            // The slots are of no use as they are.
            self.widen(seats);
        }
        Some(Far::Taken(child))
    }

    #[cold]
    #[inline(never)]
    fn end_period(&mut self, seats: &mut [Seat], taken: u32) {
        self.children_left = PERIOD_CHILDREN;
        self.period_start = self.first;
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
        if is_before(self.swept.wrapping_add(SWEEP_EACH), self.now) {
            self.swept = self.now;
            self.sweep(seats, taken);
        }
    }

    /// How far the children in the last list that isn't empty are from virtual time: ahead of it, or behind if they're in the same slot.
    fn spread(&mut self, seats: &[Seat]) -> u64 {
        let Some(ahead) = self.filled.checked_ilog2() else { return 0 };
        let now = self.now;
        let mut list = *self.list(self.first + u64::from(ahead));
        let keys = std::iter::from_fn(|| list.pop(seats)).map(|child| seats[child as usize].key);
        keys.map(|key| (key.wrapping_sub(now) as i64).unsigned_abs()).max().unwrap_or(0)
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
        for (slot, _) in self.filled_slots() {
            let mut list = *self.list(slot);
            children.extend(std::iter::from_fn(|| list.pop(seats)));
        }
        children.extend(std::iter::from_fn(|| self.far.take()));
        let periods = u32::try_from(children.len() / CHILDREN_EACH_WIDE_PERIOD).unwrap_or(u32::MAX);
        // That there are few may be so only now and then.
        self.wide_periods_max = periods.clamp(WIDE_PERIODS_OF_FEW_MAX, WIDE_PERIODS_MAX).max(self.wide_periods_max / 2);
        self.wide_periods_min = self.wide_periods_min.min(self.wide_periods_max);
        self.filled = 0;
        self.strayed = 0;
        self.width_bits = width_bits;
        self.first = self.slot(self.now);
        self.period_start = self.first;
        self.far_base = self.now;
        self.far_count = 0;
        for child in children {
            let key = seats[child as usize].key;
            match self.lead(key) {
                lead if lead < SLOTS => self.enlist_strayed(seats, child, lead),
                _ if is_before(key, self.now) => self.enlist_strayed(seats, child, 0),
                // Doesn't count as another that is far ahead.
                _ => self.far.insert(key.wrapping_sub(self.far_base), child),
            }
        }
        self.set_end();
    }

    /// The slots whose lists aren't empty, in their order, and which they are from the first on.
    fn filled_slots(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (filled, first) = (self.filled, self.first);
        (0..SLOTS).filter(move |lead| filled >> lead & 1 == 1).map(move |lead| (first + lead, lead))
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
        for (slot, lead) in self.filled_slots() {
            let list = self.list(slot);
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
