//! The queues of all leaves in one block of memory, so that an empty leaf holds none. Says in which order a leaf's events leave (first in,
//! first out, or by urgency), not which leaf is next.

use super::seat::NONE;
use super::urgency_heap::UrgencyHeap;

/// How pressing an event is, for the policies that order by it. Policies that don't never look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Urgency {
    /// When it should have been served, on the host's monotonic clock; `u64::MAX` for no deadline.
    pub deadline_ns: u64,
    /// How much is left to do for the request that it belongs to, in bytes or nanoseconds, alike in the whole tree; `u64::MAX` for unknown.
    pub remaining: u64,
}

impl Urgency {
    /// No deadline, and nobody knows how much is left: served after all that say more.
    pub const NONE: Urgency = Urgency { deadline_ns: u64::MAX, remaining: u64::MAX };
}

/// From here on a queue's head is no event's place but the number of its heap.
const SORTED: u32 = 1 << 31;

/// One leaf's queue: where its first and last events are, or its heap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    head: u32,
    tail: u32,
    pub(super) len: u32,
}

impl Queue {
    pub(super) const EMPTY: Queue = Queue { head: NONE, tail: NONE, len: 0 };

    /// An empty queue whose events leave by their keys, in a tree where somebody goes by urgency. No two have the same number.
    pub(super) fn sorted(number: u32) -> Queue {
        Queue { head: SORTED | number, ..Queue::EMPTY }
    }
}

struct Entry<E> {
    event: E,
    next: u32,
}

/// The events of a whole tree. Entries are used again in last-freed-first order, so that a lightly loaded tree stays on one cache line.
pub(super) struct EventQueues<E> {
    entries: Vec<Entry<E>>,
    free: u32,
    len: u32,
    len_max: u32,
    /// Alongside `entries`, and empty for as long as nobody goes by urgency.
    urgencies: Vec<Urgency>,
    /// The places of sorted queues' events, by the queues' numbers.
    sorted: Vec<UrgencyHeap>,
    /// How urgent the event was that was taken last out of a sorted queue.
    taken: Urgency,
}

impl<E: Copy> EventQueues<E> {
    pub(super) fn new(len_max: u32) -> EventQueues<E> {
        let len_max = len_max.min(SORTED);
        let (urgencies, sorted, taken) = (Vec::new(), Vec::new(), Urgency::NONE);
        EventQueues { entries: Vec::new(), free: NONE, len: 0, len_max, urgencies, sorted, taken }
    }

    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Appends `event` to a queue that isn't sorted; where it is, or the event again when the tree is full.
    #[inline]
    pub(super) fn append(&mut self, queue: &mut Queue, event: E) -> Result<u32, E> {
        let at = self.free;
        if at != NONE {
            let entry = &mut self.entries[at as usize];
            self.free = entry.next;
            *entry = Entry { event, next: NONE };
            self.link(queue, at);
            Ok(at)
        } else {
            self.append_slow(queue, event)
        }
    }

    /// As [`EventQueues::append`], before all others.
    pub(super) fn prepend(&mut self, queue: &mut Queue, event: E) -> Result<u32, E> {
        let Queue { head, tail, len } = *queue;
        let at = self.append(queue, event)?;
        if len > 0 {
            self.entries[tail as usize].next = NONE;
            self.entries[at as usize].next = head;
            (queue.head, queue.tail) = (at, tail);
        }
        Ok(at)
    }

    #[inline]
    fn link(&mut self, queue: &mut Queue, at: u32) {
        if queue.len == 0 {
            queue.head = at;
        } else {
            self.entries[queue.tail as usize].next = at;
        }
        queue.tail = at;
        queue.len += 1;
        self.len += 1;
    }

    #[cold]
    #[inline(never)]
    fn append_slow(&mut self, queue: &mut Queue, event: E) -> Result<u32, E> {
        if self.len >= self.len_max {
            return Err(event);
        }
        let at = self.entries.len() as u32;
        self.entries.push(Entry { event, next: NONE });
        self.link(queue, at);
        Ok(at)
    }

    /// Puts `event` in a sorted queue, behind those with the same key, or the event again when the tree is full.
    pub(super) fn insert(&mut self, queue: &mut Queue, event: E, urgency: Urgency, key: u64) -> Result<(), E> {
        let at = self.place(event, urgency)?;
        self.heap(queue).insert(key, at);
        queue.len += 1;
        Ok(())
    }

    /// As [`EventQueues::insert`], before those with the same key, and as urgent as the event that was taken last; `key` says by what that is.
    pub(super) fn insert_again(
        &mut self,
        queue: &mut Queue,
        event: E,
        key: impl FnOnce(Urgency) -> u64,
    ) -> Result<(), E> {
        let urgency = self.taken;
        let at = self.place(event, urgency)?;
        self.heap(queue).insert_first(key(urgency), at);
        queue.len += 1;
        Ok(())
    }

    /// Keeps an event that is in no queue.
    fn place(&mut self, event: E, urgency: Urgency) -> Result<u32, E> {
        let at = self.append(&mut Queue::EMPTY.clone(), event)?;
        self.urgencies.resize(self.entries.len(), Urgency::NONE);
        self.urgencies[at as usize] = urgency;
        Ok(at)
    }

    fn heap(&mut self, queue: &Queue) -> &mut UrgencyHeap {
        let number = (queue.head & !SORTED) as usize;
        if number >= self.sorted.len() {
            self.sorted.resize_with(number + 1, UrgencyHeap::new);
        }
        &mut self.sorted[number]
    }

    /// Takes the first event out. The queue must not be empty.
    #[inline]
    pub(super) fn take(&mut self, queue: &mut Queue) -> E {
        let at = queue.head;
        // This look is made anyway: so sorted queues cost the others nothing.
        let Some(entry) = self.entries.get_mut(at as usize) else {
            return self.take_sorted(queue);
        };
        let event = entry.event;
        queue.head = entry.next;
        queue.len -= 1;
        entry.next = self.free;
        self.free = at;
        self.len -= 1;
        event
    }

    /// As [`EventQueues::take`], from a sorted queue.
    #[cold]
    #[inline(never)]
    fn take_sorted(&mut self, queue: &mut Queue) -> E {
        let at = self.heap(queue).take().unwrap_or(NONE) as usize;
        self.taken = self.urgencies[at];
        queue.len -= 1;
        self.take(&mut Queue { head: at as u32, tail: at as u32, len: 1 })
    }

    /// How urgent the first event of a sorted queue is.
    pub(super) fn urgency(&self, queue: &Queue) -> Urgency {
        let heap = self.sorted.get((queue.head & !SORTED) as usize);
        heap.and_then(UrgencyHeap::first).map_or(Urgency::NONE, |(_, at)| self.urgencies[at as usize])
    }

    /// Gives memory back when nothing is queued: what a burst needed isn't held for ever.
    pub(super) fn release(&mut self) {
        if self.len == 0 {
            *self = EventQueues::new(self.len_max);
        }
    }
}
