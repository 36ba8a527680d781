//! Children by urgency, lowest key first, first in first out among equals: a 4-ary heap. What a key means is the policy's business.

/// One child's place in the order.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The key, then the order of coming in, then the child: one comparison orders by all.
    order: u128,
}

impl Entry {
    #[inline]
    fn child(self) -> u32 {
        self.order as u32
    }
}

const ARITY: usize = 4;

/// The ready children of one node.
#[derive(Debug)]
pub(super) struct UrgencyHeap {
    entries: Vec<Entry>,
    /// Counts up with what came in behind its equals, and down with what came in before them. Begins anew when the heap is empty; one that hasn't been for
    /// hours, as it's always busy, is numbered anew before it wraps.
    last: u32,
    first: u32,
}

/// Where counting begins.
const MIDDLE: u32 = 1 << 31;

impl UrgencyHeap {
    pub(super) fn new() -> UrgencyHeap {
        UrgencyHeap { entries: Vec::new(), last: MIDDLE, first: MIDDLE }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Calls `visit` with each child, in no order.
    pub(super) fn each(&self, visit: &mut dyn FnMut(u32)) {
        self.entries.iter().for_each(|entry| visit(entry.child()));
    }

    /// The first child with its key.
    #[inline]
    pub(super) fn first(&self) -> Option<(u64, u32)> {
        self.entries.first().map(|entry| ((entry.order >> 64) as u64, entry.child()))
    }

    #[inline]
    pub(super) fn insert(&mut self, key: u64, child: u32) {
        if self.last == u32::MAX {
            self.renumber();
        }
        self.last = if self.entries.is_empty() { MIDDLE } else { self.last.wrapping_add(1) };
        self.put(key, self.last, child);
    }

    /// As [`UrgencyHeap::insert`], before its equals.
    pub(super) fn insert_first(&mut self, key: u64, child: u32) {
        if self.first == 0 {
            self.renumber();
        }
        self.first = if self.entries.is_empty() { MIDDLE } else { self.first.wrapping_sub(1) };
        self.put(key, self.first, child);
    }

    /// Counts anew, in the order that there is: what is sorted is a heap.
    #[cold]
    #[inline(never)]
    fn renumber(&mut self) {
        self.entries.sort_unstable_by_key(|entry| entry.order);
        (self.last, self.first) = (MIDDLE, MIDDLE);
        for entry in &mut self.entries {
            self.last += 1;
            entry.order = entry.order >> 64 << 64 | u128::from(self.last) << 32 | u128::from(entry.child());
        }
    }

    #[inline]
    fn put(&mut self, key: u64, sequence: u32, child: u32) {
        let order = u128::from(key) << 64 | u128::from(sequence) << 32 | u128::from(child);
        self.entries.push(Entry { order });
        self.sift_up(self.entries.len() - 1);
    }

    #[inline]
    pub(super) fn take(&mut self) -> Option<u32> {
        let last = self.entries.pop()?;
        let Some(first) = self.entries.first_mut() else {
            return Some(last.child());
        };
        let child = std::mem::replace(first, last).child();
        self.sift_down(0);
        Some(child)
    }

    /// Takes one child out wherever it is; looks through all. Whether it was there.
    pub(super) fn remove(&mut self, child: u32) -> bool {
        let Some(at) = self.entries.iter().position(|entry| entry.child() == child) else { return false };
        self.entries.swap_remove(at);
        if at < self.entries.len() {
            self.sift_down(at);
            self.sift_up(at);
        }
        true
    }

    #[inline]
    fn sift_up(&mut self, mut at: usize) {
        let entry = self.entries[at];
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.entries[parent].order <= entry.order {
                break;
            }
            self.entries[at] = self.entries[parent];
            at = parent;
        }
        self.entries[at] = entry;
    }

    #[inline]
    fn sift_down(&mut self, mut at: usize) {
        let entry = self.entries[at];
        loop {
            let children = at * ARITY + 1;
            let end = (children + ARITY).min(self.entries.len());
            let Some(first) = (children..end).min_by_key(|&child| self.entries[child].order) else { break };
            if entry.order <= self.entries[first].order {
                break;
            }
            self.entries[at] = self.entries[first];
            at = first;
        }
        self.entries[at] = entry;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As after some hours in which there was always somebody.
    #[test]
    fn equals_are_in_the_order_of_coming_in_however_many_have_come_in() {
        let mut heap = UrgencyHeap::new();
        heap.insert(7, 0);
        heap.last = u32::MAX - 3;
        (1..6).for_each(|child| heap.insert(7, child));
        heap.insert(6, 99);
        assert_eq!([(); 7].map(|()| heap.take().unwrap()), [99, 0, 1, 2, 3, 4, 5]);
        heap.insert(7, 0);
        heap.first = 2;
        (1..6).for_each(|child| heap.insert_first(7, child));
        heap.insert(8, 99);
        assert_eq!([(); 7].map(|()| heap.take().unwrap()), [5, 4, 3, 2, 1, 0, 99]);
    }
}
