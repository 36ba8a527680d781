//! The queues of all leaves in one block of memory, so that an empty leaf holds none. Says in which order a leaf's events leave (first in,
//! first out), not which leaf is next.

use super::seat::NONE;

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

/// One leaf's queue: where its first and last events are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    head: u32,
    tail: u32,
    pub(super) len: u32,
}

impl Queue {
    pub(super) const EMPTY: Queue = Queue { head: NONE, tail: NONE, len: 0 };
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
    /// Alongside `entries`, and empty for as long as nobody says how urgent an event is.
    urgencies: Vec<Urgency>,
}

impl<E: Copy> EventQueues<E> {
    pub(super) fn new(len_max: u32) -> EventQueues<E> {
        EventQueues { entries: Vec::new(), free: NONE, len: 0, len_max: len_max.min(NONE - 1), urgencies: Vec::new() }
    }

    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Appends `event`; where it is, or the event again when the tree is full.
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
        if !self.urgencies.is_empty() {
            self.urgencies.push(Urgency::NONE);
        }
        self.link(queue, at);
        Ok(at)
    }

    /// Takes the oldest event out. The queue must not be empty.
    #[inline]
    pub(super) fn take(&mut self, queue: &mut Queue) -> E {
        let at = queue.head;
        let entry = &mut self.entries[at as usize];
        let event = entry.event;
        queue.head = entry.next;
        queue.len -= 1;
        entry.next = self.free;
        self.free = at;
        self.len -= 1;
        event
    }

    /// Notes how urgent the event at `at` is.
    pub(super) fn set_urgency(&mut self, at: u32, urgency: Urgency) {
        if self.urgencies.is_empty() {
            self.urgencies.resize(self.entries.len(), Urgency::NONE);
        }
        self.urgencies[at as usize] = urgency;
    }

    /// How urgent the oldest event of a queue is.
    pub(super) fn urgency(&self, queue: &Queue) -> Urgency {
        if queue.len == 0 {
            return Urgency::NONE;
        }
        self.urgencies.get(queue.head as usize).copied().unwrap_or(Urgency::NONE)
    }

    /// Gives memory back when nothing is queued: what a burst needed isn't held for ever.
    pub(super) fn release(&mut self) {
        if self.len == 0 {
            *self = EventQueues::new(self.len_max);
        }
    }
}
