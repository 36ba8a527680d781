//! A load on a thread of the pool, and how its answer gets back to the worker.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bytes::Bytes;
use leat_logic::serve::path::LoadRequest;
use leat_logic::serve::resource::{Cause, Found, WatchId};
use rustix::io::Errno;

use super::account::Reading;
use super::file::OpenFile;
use super::load::{Answer, Look, WouldWait, cause};
use super::open::{Patience, Root};
use super::pool::{Lane, Pool};
use super::watch::{self, Added, Inotify, UnderWay};
use super::watch_tree::Names;
use super::{Payer, StorageEvent, Ticket};
use crate::clock;
use crate::lock::lock;
use crate::wake::Bell;

type File = Arc<OpenFile>;

/// What a thread of the pool has to say.
pub(super) enum Completion {
    Loaded {
        serial: u64,
        root: Result<Arc<Root>, Errno>,
        depth: usize,
        added: Added,
        answer: Answer,
    },
    /// The directory's names have been read.
    Listed {
        directory: WatchId,
        names: Names,
    },
    Event(StorageEvent<File>),
    RootsChecked {
        moved: Vec<PathBuf>,
    },
    /// Nothing but that the worker has to poll.
    Nudge,
}

/// Where the pool puts what a worker will read.
pub(super) struct Completions {
    pub(super) bell: Bell,
    pub(super) list: Mutex<Vec<Completion>>,
}

impl Completions {
    pub(super) fn push(&self, completion: Completion) {
        let mut list = self.list();
        if list.is_empty() {
            // Under the lock, so that a bell is never heard before its message is there, nor left ringing for one that was taken.
            self.bell.ring();
        }
        list.push(completion);
    }

    pub(super) fn take(&self) -> Vec<Completion> {
        let mut list = self.list();
        if !list.is_empty() {
            self.bell.hear();
        }
        std::mem::take(&mut list)
    }

    fn list(&self) -> MutexGuard<'_, Vec<Completion>> {
        lock(&self.list)
    }
}

/// A load on a thread of the pool.
pub(super) struct LoadJob {
    pub(super) serial: u64,
    pub(super) payer: Option<Payer>,
    pub(super) request: LoadRequest,
    pub(super) root: Option<Result<Arc<Root>, Errno>>,
    pub(super) depth: usize,
    pub(super) added: Option<Added>,
    /// What was known of the names in the directory.
    pub(super) names: Names,
    pub(super) is_answered: bool,
    pub(super) inotify: Option<Inotify>,
    pub(super) pool: Weak<Pool>,
    pub(super) completions: Arc<Completions>,
}

impl LoadJob {
    /// Looks, and goes on in the lane of large reads when that's what it comes to.
    pub(super) fn run(mut self, lane: Lane) {
        let Some(pool) = self.pool.upgrade() else { return };
        let reading = Reading::begin(self.payer);
        let opened = self.root.take().unwrap_or_else(|| Root::open(&self.request.policy().root).map(Arc::new));
        let answer = match &opened {
            Ok(root) => {
                if let (None, Some(inotify)) = (&self.added, &self.inotify) {
                    self.added = watch::add(inotify, root, &self.request, self.depth, Patience::Wait).ok();
                }
                // What they were when it was asked may have become something else while it waited.
                let names = Names { are_plain: false, ..self.names };
                let (request, patience, may_hash) = (&self.request, Patience::Wait, lane == Lane::Reads);
                Look { root, request, hashes: &pool.hashes, names, patience, may_hash, now: clock::wall() }.look()
            }
            Err(errno) => Ok(unavailable(cause(*errno))),
        };
        self.root = Some(opened);
        if let Some(read) = reading.end() {
            self.completions.push(Completion::Event(read));
        }
        match answer {
            Ok(answer) => self.answer(answer),
            Err(WouldWait) => {
                // When that lane is full, the job is dropped there: its end tells the worker.
                let _ = pool.submit(Lane::Reads, Box::new(move || self.run(Lane::Reads)));
            }
        }
    }

    fn answer(&mut self, answer: Answer) {
        self.is_answered = true;
        let root = self.root.take().unwrap_or(Err(Errno::BUSY));
        let added = self.added.take().unwrap_or_default();
        self.completions.push(Completion::Loaded { serial: self.serial, root, depth: self.depth, added, answer });
    }
}

impl Drop for LoadJob {
    fn drop(&mut self) {
        if !self.is_answered {
            self.answer(unavailable(Cause::QueueFull));
        }
    }
}

/// A load that the pool is busy with, and who waits for it.
pub(super) struct Load {
    pub(super) tickets: Vec<Ticket>,
    /// Who asked first.
    pub(super) payer: Option<Payer>,
    pub(super) request: LoadRequest,
    /// Whether something changed that its answer may not have seen: then it's not kept.
    pub(super) spoiled: bool,
}

/// All of them, by serial number.
#[derive(Default)]
pub(super) struct Loads {
    by_serial: BTreeMap<u64, Load>,
    latest_of_path: BTreeMap<Bytes, u64>,
}

impl Loads {
    pub(super) fn len(&self) -> usize {
        self.by_serial.len()
    }

    /// Lets `ticket` wait for a load that asks the same and whose answer will be good enough. False when there's none.
    pub(super) fn join(&mut self, ticket: Ticket, request: &LoadRequest) -> bool {
        let Some(load) = self.latest_of_path.get(request.path()).and_then(|serial| self.by_serial.get_mut(serial))
        else {
            return false;
        };
        let other = &load.request;
        let is_same = Arc::ptr_eq(other.policy(), request.policy())
            && other.codings() == request.codings()
            && other.known() == request.known();
        if is_same && !load.spoiled {
            load.tickets.push(ticket);
        }
        is_same && !load.spoiled
    }

    pub(super) fn insert(&mut self, serial: u64, ticket: Ticket, payer: Option<Payer>, request: LoadRequest) {
        self.latest_of_path.insert(request.path().clone(), serial);
        self.by_serial.insert(serial, Load { tickets: vec![ticket], payer, request, spoiled: false });
    }

    pub(super) fn remove(&mut self, serial: u64) -> Option<Load> {
        let load = self.by_serial.remove(&serial)?;
        if self.latest_of_path.get(load.request.path()) == Some(&serial) {
            self.latest_of_path.remove(load.request.path());
        }
        Some(load)
    }
}

impl UnderWay for Loads {
    fn spoil_if(&mut self, root: &Path, path: &[u8], name: Option<&[u8]>) {
        for load in self.by_serial.values_mut() {
            let Some(rest) = load.request.relative().strip_prefix(path) else { continue };
            let segment = rest.split(|&byte| byte == b'/').next().unwrap_or_default();
            // A sibling's name begins with its file's; an index or a listing may depend on any name.
            let concerned = name.is_none_or(|name| segment.is_empty() || name.starts_with(segment));
            load.spoiled |= concerned && load.request.policy().root == root;
        }
    }

    fn spoil_all(&mut self) {
        for load in self.by_serial.values_mut() {
            load.spoiled = true;
        }
    }
}

/// An answer that tells of trouble and isn't kept.
pub(super) fn unavailable(cause: Cause) -> Answer {
    Answer::Found { found: Found::Unavailable(cause), version: None, fresh_ns: None, watchable: false, to_hash: None }
}
