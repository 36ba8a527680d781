//! Virtual time, and what is to happen when. Nothing else in a run moves the clock.

use std::collections::BTreeMap;

use leat_logic::time::{Instant, UnixTime};

pub(crate) const MILLISECOND: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// The wall clock when virtual time began: any will do, as long as files can be older.
const WALL_SECONDS: i64 = 1_700_000_000;

/// Something that happens at a point in time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Happening {
    /// Bytes get nearer to the server on a link.
    Upstream(u32),
    /// Bytes get nearer to the client on a link.
    Downstream(u32),
    /// A connection is in a listener's queue.
    Connected(u32),
    /// A client does its next thing.
    ClientActs(usize),
    /// A client looks at what has arrived.
    ClientReads(usize),
    /// A client is gone.
    ClientDies(usize),
    /// A program does its next thing.
    ProgramActs(u32),
    /// A question to the storage is looked into.
    Storage(u64),
    /// A notice of change can be read.
    Notice,
    /// A file changes.
    Mutation,
    /// A change that goes on.
    MutationStep(usize),
    /// The engine speaks to the worker.
    Mail(usize),
}

#[derive(Debug, Default)]
pub(crate) struct Agenda {
    now_ns: u64,
    next_serial: u64,
    /// By time, then in the order in which they were put in.
    queue: BTreeMap<(u64, u64), Happening>,
}

impl Agenda {
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// One nanosecond is never zero: a worker could take zero for "not set".
    pub(crate) fn instant(&self) -> Instant {
        Instant { ns: self.now_ns + SECOND }
    }

    pub(crate) fn wall(&self) -> UnixTime {
        wall_at(self.now_ns)
    }

    pub(crate) fn after(&mut self, delay_ns: u64, happening: Happening) {
        self.next_serial += 1;
        self.queue.insert((self.now_ns + delay_ns, self.next_serial), happening);
    }

    /// The next that is due.
    pub(crate) fn pop_due(&mut self) -> Option<Happening> {
        let entry = self.queue.first_entry()?;
        (entry.key().0 <= self.now_ns).then(|| entry.remove())
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.queue.first_key_value().map(|(&(at_ns, _), _)| at_ns)
    }

    pub(crate) fn advance_to(&mut self, at_ns: u64) {
        self.now_ns = self.now_ns.max(at_ns);
    }
}

pub(crate) fn wall_at(ns: u64) -> UnixTime {
    UnixTime { seconds: WALL_SECONDS + (ns / SECOND) as i64, nanoseconds: (ns % SECOND) as u32 }
}
