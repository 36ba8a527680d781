//! The timed table: content key -> nodes, bounded, in the order of last use. What goes in, and how long it counts, is the policy's.

use std::time::Duration;

use hashbrown::HashTable;

use super::facts::ContentKey;
use super::node::NodeSet;
use crate::time::Instant;

const NONE: u32 = u32::MAX;

/// What is remembered of a piece of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// Which content.
    pub key: ContentKey,
    /// Where it was sent.
    pub nodes: NodeSet,
    /// When it was asked for last.
    pub used: Instant,
    /// When `nodes` changed last.
    pub changed: Instant,
}

struct Slot {
    entry: TableEntry,
    newer: u32,
    older: u32,
}

/// Entries by key; the one that hasn't been used for longest makes room.
pub(super) struct Table {
    /// By the key itself: it is a hash already.
    index: HashTable<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    entries_max: usize,
}

impl Table {
    pub(super) fn new(entries_max: usize) -> Table {
        Table {
            index: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            entries_max: entries_max.clamp(1, NONE as usize - 1),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Memory that it holds, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.index.allocation_size()
            + self.slots.capacity() * size_of::<Slot>()
            + self.free.capacity() * size_of::<u32>()
    }

    pub(super) fn get(&self, key: ContentKey) -> Option<&TableEntry> {
        self.find(key).map(|place| &self.slots[place as usize].entry)
    }

    /// Remembers that `key` was sent to one of `nodes` now.
    pub(super) fn put(&mut self, key: ContentKey, nodes: NodeSet, now: Instant) {
        let place = self.find(key).unwrap_or_else(|| self.insert(key, now));
        let entry = &mut self.slots[place as usize].entry;
        entry.used = now;
        if entry.nodes != nodes {
            (entry.nodes, entry.changed) = (nodes, now);
        }
        if place != self.newest {
            self.unlink(place);
            self.link_newest(place);
        }
    }

    /// Drops entries that weren't used for `time`, `count_max` of them at most.
    pub(super) fn expire(&mut self, time: Duration, now: Instant, count_max: usize) {
        for _ in 0..count_max {
            match self.slots.get(self.oldest as usize) {
                Some(slot) if now.since(slot.entry.used) > time => self.remove(self.oldest),
                _ => return,
            }
        }
    }

    /// Bounds it anew.
    pub(super) fn set_entries_max(&mut self, entries_max: usize) {
        let bound = Table::new(entries_max).entries_max;
        if bound < self.len() {
            // Rare, and the only way to give memory back.
            let kept: Vec<TableEntry> = self.iter().take(bound).copied().collect();
            *self = Table::new(bound);
            for entry in kept.iter().rev() {
                self.put(entry.key, entry.nodes, entry.used);
                self.slots[self.newest as usize].entry.changed = entry.changed;
            }
        }
        self.entries_max = bound;
    }

    /// Last used first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &TableEntry> {
        let mut place = self.newest;
        std::iter::from_fn(move || {
            let slot = self.slots.get(place as usize)?;
            place = slot.older;
            Some(&slot.entry)
        })
    }

    fn find(&self, key: ContentKey) -> Option<u32> {
        self.index.find(key.0, |place| self.slots[*place as usize].entry.key == key).copied()
    }

    fn insert(&mut self, key: ContentKey, now: Instant) -> u32 {
        if self.len() >= self.entries_max {
            self.remove(self.oldest);
        }
        let entry = TableEntry { key, nodes: NodeSet::EMPTY, used: now, changed: now };
        let slot = Slot { entry, newer: NONE, older: NONE };
        let place = match self.free.pop() {
            Some(place) => {
                self.slots[place as usize] = slot;
                place
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        let slots = &self.slots;
        self.index.insert_unique(key.0, place, |place| slots[*place as usize].entry.key.0);
        self.link_newest(place);
        place
    }

    fn remove(&mut self, place: u32) {
        let key = self.slots[place as usize].entry.key;
        if let Ok(found) = self.index.find_entry(key.0, |other| *other == place) {
            found.remove();
        }
        self.unlink(place);
        self.free.push(place);
    }

    fn unlink(&mut self, place: u32) {
        let Slot { newer, older, .. } = self.slots[place as usize];
        match self.slots.get_mut(newer as usize) {
            Some(slot) => slot.older = older,
            None => self.newest = older,
        }
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, place: u32) {
        let older = std::mem::replace(&mut self.newest, place);
        let slot = &mut self.slots[place as usize];
        (slot.newer, slot.older) = (NONE, older);
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = place,
            None => self.oldest = place,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::NodeId;
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant { ns: seconds * 1_000_000_000 }
    }

    fn set(node: u8) -> NodeSet {
        NodeSet::EMPTY.with(NodeId(node))
    }

    fn keys(table: &Table) -> Vec<u64> {
        table.iter().map(|entry| entry.key.0).collect()
    }

    #[test]
    fn use_refreshes_the_timer_and_disuse_ends_it() {
        let mut table = Table::new(10);
        for key in 1..=3 {
            table.put(ContentKey(key), set(1), at(key));
        }
        table.put(ContentKey(1), set(1), at(4));
        assert_eq!(keys(&table), [1, 3, 2]);
        table.expire(Duration::from_secs(2), at(5), 10);
        assert_eq!(keys(&table), [1, 3], "the others weren't unused for more than 2 s");
        table.expire(Duration::from_secs(2), at(9), 1);
        assert_eq!(keys(&table), [1], "one at most");
        let entry = table.get(ContentKey(1)).expect("it's there");
        assert_eq!((entry.used, entry.changed), (at(4), at(1)));
        table.put(ContentKey(1), set(2), at(9));
        assert_eq!(table.get(ContentKey(1)).map(|entry| entry.changed), Some(at(9)));
    }

    #[test]
    fn the_bound_holds_and_the_longest_unused_goes() {
        let mut table = Table::new(3);
        for key in 0..100 {
            table.put(ContentKey(key), set(0), at(key));
            table.put(ContentKey(0), set(0), at(key));
        }
        assert_eq!(keys(&table), [0, 99, 98]);
        assert!(table.slots.len() <= 4, "places are used again");
        table.set_entries_max(2);
        assert_eq!(keys(&table), [0, 99]);
        assert_eq!(table.get(ContentKey(0)).map(|entry| entry.changed), Some(at(0)));
        table.set_entries_max(3);
        table.put(ContentKey(5), set(0), at(200));
        assert_eq!(keys(&table), [5, 0, 99]);
    }

    #[test]
    fn it_agrees_with_a_list() {
        let (mut table, mut list) = (Table::new(8), Vec::<u64>::new());
        let mut seed = 1_u64;
        for now in 0..5000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = (seed >> 33) % 13;
            if (seed >> 50).is_multiple_of(7) {
                table.expire(Duration::from_secs(5), at(now), 3);
                let mut dropped = 0;
                while dropped < 3 && list.last().is_some_and(|entry| now - (entry >> 8) > 5) {
                    list.pop();
                    dropped += 1;
                }
            }
            table.put(ContentKey(key), set(0), at(now));
            list.retain(|entry| entry & 255 != key);
            list.insert(0, now << 8 | key);
            list.truncate(8);
            assert_eq!(keys(&table), list.iter().map(|entry| entry & 255).collect::<Vec<_>>());
            assert_eq!(table.len(), list.len());
        }
    }
}
