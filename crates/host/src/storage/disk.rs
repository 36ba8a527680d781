//! The kernel's file system as a [`Storage`]: answers on the worker what is in memory, and has the pool wait for the rest.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use leat_logic::handoff::FileState;
use leat_logic::serve::etag::ETag;
use leat_logic::serve::limits::FRESH_NS;
use leat_logic::serve::path::LoadRequest;
use leat_logic::serve::resource::{Cause, Change, Found, Keep, Loaded, Watch};
use leat_logic::time::Instant;
use rustix::io::Errno;

use super::account::Reading;
use super::file::OpenFile;
use super::hashing::Hashing;
use super::load::{Answer, Look, WouldWait, cause};
use super::load_job::{Completion, Completions, Load, LoadJob, Loads, unavailable};
use super::open::{Patience, Root};
use super::pool::{Full, Lane, Pool};
use super::residency;
use super::watch::{self, Added, UnderWay, Watches};
use super::watch_tree::Names;
use super::{Outcome, Payer, Storage, StorageEvent, Ticket, directory, limits, watch_tree};
use crate::clock;
use crate::wake::Bell;

type File = Arc<OpenFile>;

/// One worker's way to files. See the module.
pub struct DiskStorage {
    pool: Arc<Pool>,
    completions: Arc<Completions>,
    pub(super) watches: Watches,
    roots: BTreeMap<PathBuf, Arc<Root>>,
    loads: Loads,
    next_serial: u64,
    /// Events that come before anything else at the next poll.
    ahead: Vec<StorageEvent<File>>,
    roots_checked_at: Option<Instant>,
    checking_roots: bool,
}

impl std::fmt::Debug for DiskStorage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("DiskStorage")
            .field("roots", &self.roots)
            .field("loads", &self.loads.len())
            .finish_non_exhaustive()
    }
}

impl DiskStorage {
    /// Files for one worker, with a pool that it shares with others.
    ///
    /// # Errors
    /// Those of eventfd(2): no descriptors left. Without inotify it works, and notices changes a second later.
    pub fn new(pool: Arc<Pool>) -> std::io::Result<DiskStorage> {
        Self::with_watches_max(pool, limits::WATCHES_MAX)
    }

    pub(super) fn with_watches_max(pool: Arc<Pool>, watches_max: usize) -> std::io::Result<DiskStorage> {
        Ok(DiskStorage {
            pool,
            completions: Arc::new(Completions { bell: Bell::new()?, list: Mutex::default() }),
            watches: Watches::new(watches_max),
            roots: BTreeMap::new(),
            loads: Loads::default(),
            next_serial: 0,
            ahead: Vec::new(),
            roots_checked_at: None,
            checking_roots: false,
        })
    }

    /// Whether changes are noticed at once; without, at the next look a second later.
    #[must_use]
    pub fn is_watching(&self) -> bool {
        self.watches.inotify.is_some()
    }

    /// Answers from the kernel's memory; `None` when the disk is needed or the root isn't open yet.
    fn load_cached(&mut self, payer: Option<Payer>, request: &LoadRequest) -> Option<Option<Loaded<File>>> {
        let root = self.roots.get(&request.policy().root)?.clone();
        // What is known of directories is what they are now.
        self.take_notices();
        let mut watch = self.watches.find(&root.path, request);
        if let (None, Some(inotify)) = (watch, self.watches.inotify.clone()) {
            let depth = self.watches.depth(&root.path, request);
            let added = watch::add(&inotify, &root, request, depth, Patience::Cached).ok()?;
            let mut changes = Vec::new();
            watch = self.watches.adopt(&root.path, request, depth, &added, &mut self.loads, &mut changes);
            self.announce(changes);
        }
        let names = self.names(&root, watch, payer, request);
        let (hashes, patience, may_hash) = (&self.pool.hashes, Patience::Cached, false);
        let look = Look { root: &root, request, hashes, names, patience, may_hash, now: clock::wall() };
        match look.look() {
            Ok(answer) => Some(self.conclude(payer, answer, watch)),
            Err(WouldWait) => None,
        }
    }

    /// What is known of the names in the directory of what `request` names. Where they haven't been read, the pool reads them.
    fn names(&mut self, root: &Arc<Root>, watch: Option<Watch>, payer: Option<Payer>, request: &LoadRequest) -> Names {
        let is_of_file =
            |watch: &Watch| usize::from(watch.directory_bytes) == watch_tree::path_bytes(request.relative());
        let Some(Watch { directory, .. }) = watch.filter(is_of_file) else { return Names::UNKNOWN };
        if self.watches.is_listing_due(directory) {
            let (root, completions) = (root.clone(), self.completions.clone());
            let path = Bytes::copy_from_slice(watch_tree::directory(request.relative()));
            let job = move || {
                let reading = Reading::begin(payer);
                let names = directory::names(&root, &path);
                reading.end().into_iter().for_each(|read| completions.push(Completion::Event(read)));
                completions.push(Completion::Listed { directory, names });
            };
            // When the queue is full, somebody asks again.
            if self.pool.submit(Lane::Names, Box::new(job)).is_ok() {
                self.watches.begin_listing(directory);
            }
        }
        self.watches.names(directory)
    }

    fn load_in_pool(&mut self, ticket: Ticket, payer: Option<Payer>, request: LoadRequest) -> Result<(), Full> {
        if self.loads.join(ticket, &request) {
            return Ok(());
        }
        if self.loads.len() >= limits::LOADS_IN_FLIGHT_MAX {
            return Err(Full);
        }
        self.next_serial += 1;
        let serial = self.next_serial;
        let depth = self.watches.depth(&request.policy().root, &request);
        let root = self.roots.get(&request.policy().root).cloned();
        let watch = self.watches.find(&request.policy().root, &request);
        let names = root.as_ref().map_or(Names::UNKNOWN, |root| self.names(root, watch, payer, &request));
        let job = LoadJob {
            serial,
            payer,
            request: request.clone(),
            root: root.map(Ok),
            depth,
            added: None,
            names,
            is_answered: false,
            inotify: self.watches.inotify.clone(),
            pool: Arc::downgrade(&self.pool),
            completions: self.completions.clone(),
        };
        self.pool.submit(Lane::Names, Box::new(move || job.run(Lane::Names)))?;
        self.loads.insert(serial, ticket, payer, request);
        Ok(())
    }

    /// The answer as the worker gets it, under the watch that covers it.
    fn conclude(&mut self, payer: Option<Payer>, answer: Answer, watch: Option<Watch>) -> Option<Loaded<File>> {
        let Answer::Found { found, version, fresh_ns, watchable, to_hash } = answer else { return None };
        if matches!(found, Found::Unavailable(Cause::DescriptorsExhausted)) && self.ahead.is_empty() {
            self.ahead.push(StorageEvent::DescriptorsShort);
        }
        if let Some(file) = to_hash {
            file.note_settled();
            if let Some(hashing) = Hashing::begin(file, &self.pool.hashes, payer.is_some()) {
                // When the lane is full, it's dropped there, and begun again by somebody who asks later.
                let _ = self.pool.submit(Lane::Background, Box::new(move || hashing.run()));
            }
        }
        let keep = fresh_ns.map_or(Keep::No, |fresh_ns| Keep::For { fresh_ns, watch: watch.filter(|_| watchable) });
        Some(Loaded { found, version, keep })
    }

    fn complete_load(
        &mut self,
        load: &Load,
        root: Result<Arc<Root>, Errno>,
        depth: usize,
        added: &Added,
        answer: Answer,
    ) -> Option<Loaded<File>> {
        let mut watch = None;
        if let Ok(root) = root {
            let mut changes = Vec::new();
            let current = self.roots.entry(root.path.clone()).or_insert_with(|| root.clone());
            let is_current = current.identity == root.identity;
            if load.spoiled || !is_current {
                self.watches.release(&added.descriptors, &mut self.loads);
            } else {
                watch = self.watches.adopt(&root.path, &load.request, depth, added, &mut self.loads, &mut changes);
            }
            self.announce(changes);
            let mut loaded = self.conclude(load.payer, answer, watch);
            if let Some(loaded) = &mut loaded
                && (load.spoiled || !is_current)
            {
                loaded.keep = Keep::No;
            }
            return loaded;
        }
        self.conclude(load.payer, answer, watch)
    }

    fn announce(&mut self, changes: Vec<Change>) {
        self.ahead.extend(changes.into_iter().map(StorageEvent::Changed));
    }

    /// Reads what the kernel has to say of watched directories.
    fn take_notices(&mut self) {
        let notices = self.watches.read(&mut self.loads);
        self.announce(notices.changes);
        if notices.root_went {
            self.check_roots();
        }
    }

    /// Sees in the pool whether the roots' paths lead where they led.
    fn check_roots(&mut self) {
        if self.checking_roots || self.roots.is_empty() {
            return;
        }
        let roots: Vec<Arc<Root>> = self.roots.values().cloned().collect();
        let completions = self.completions.clone();
        let job = move || {
            let leads_elsewhere = |root: &&Arc<Root>| {
                rustix::fs::stat(&root.path).map_or(true, |stat| (stat.st_dev, stat.st_ino) != root.identity)
            };
            let moved = roots.iter().filter(leads_elsewhere).map(|root| root.path.clone()).collect();
            completions.push(Completion::RootsChecked { moved });
        };
        // When the queue is full, the next second comes.
        self.checking_roots = self.pool.submit(Lane::Names, Box::new(job)).is_ok();
    }

    fn forget_roots(&mut self, moved: &[PathBuf]) {
        for path in moved {
            self.roots.remove(path);
            self.watches.drop_root(path, &mut self.loads, &mut Vec::new());
        }
        if !moved.is_empty() {
            self.loads.spoil_all();
            self.ahead.push(StorageEvent::Changed(Change::Everything));
        }
    }

    /// Has a thread of the pool read for an answer.
    fn submit_read(
        &self,
        payer: Option<Payer>,
        read: impl FnOnce() -> StorageEvent<File> + Send + 'static,
    ) -> Result<(), Full> {
        let completions = self.completions.clone();
        let job = move || {
            let reading = Reading::begin(payer);
            let answer = read();
            let events = reading.end().into_iter().chain([answer]);
            events.for_each(|event| completions.push(Completion::Event(event)));
        };
        self.pool.submit(Lane::Reads, Box::new(job))
    }
}

impl Storage for DiskStorage {
    type File = File;

    fn load(&mut self, ticket: Ticket, payer: Option<Payer>, request: LoadRequest) -> Outcome<Option<Loaded<File>>> {
        let cached = self.load_cached(payer, &request);
        if !self.ahead.is_empty() {
            self.completions.push(Completion::Nudge);
        }
        if let Some(loaded) = cached {
            return Outcome::Ready(loaded);
        }
        match self.load_in_pool(ticket, payer, request) {
            Ok(()) => Outcome::Pending,
            Err(Full) => Outcome::Ready(self.conclude(payer, unavailable(Cause::QueueFull), None)),
        }
    }

    fn make_resident(
        &mut self,
        ticket: Ticket,
        payer: Option<Payer>,
        file: &File,
        offset: u64,
        len_bytes: u64,
    ) -> Outcome<Result<(), Cause>> {
        if residency::is_resident(file, offset, len_bytes) {
            return Outcome::Ready(Ok(()));
        }
        let file = file.clone();
        let job = move || {
            let result = residency::bring(&file, offset, len_bytes).map_err(cause);
            StorageEvent::Resident { ticket, result }
        };
        self.submit_read(payer, job).map_or(Outcome::Ready(Err(Cause::QueueFull)), |()| Outcome::Pending)
    }

    fn read(
        &mut self,
        ticket: Ticket,
        payer: Option<Payer>,
        file: &File,
        offset: u64,
        len_bytes: usize,
    ) -> Outcome<Result<Bytes, Cause>> {
        let len = len_bytes.min(limits::READ_BYTES_MAX);
        match residency::read_cached(file, len, offset) {
            Ok(content) => return Outcome::Ready(Ok(content.into())),
            Err(Errno::AGAIN) => {}
            Err(errno) => return Outcome::Ready(Err(cause(errno))),
        }
        let file = file.clone();
        let job = move || {
            let mut content = vec![0; len];
            let read = residency::read_waiting(&file, &mut content, offset);
            let result = read.map_err(cause).map(|read| {
                content.truncate(read);
                content.into()
            });
            StorageEvent::Read { ticket, result }
        };
        self.submit_read(payer, job).map_or(Outcome::Ready(Err(Cause::QueueFull)), |()| Outcome::Pending)
    }

    fn unchanged(&self, file: &File) -> bool {
        file.is_unchanged()
    }

    fn tag(&self, file: &File) -> Option<ETag> {
        if file.is_settled() { self.pool.hashes.get(file.version()) } else { None }
    }

    fn export(&self, file: &File) -> Option<(OwnedFd, FileState)> {
        file.export()
    }

    fn import(&self, descriptor: OwnedFd, state: FileState) -> Option<File> {
        OpenFile::import(descriptor, state).map(Arc::new)
    }

    fn poll(&mut self, out: &mut Vec<StorageEvent<File>>) {
        // Changes first: an answer that was found before one of them must not be kept.
        self.take_notices();
        out.append(&mut self.ahead);
        for completion in self.completions.take() {
            match completion {
                Completion::Loaded { serial, root, depth, added, answer } => {
                    let Some(mut load) = self.loads.remove(serial) else { continue };
                    let tickets = std::mem::take(&mut load.tickets);
                    let loaded = self.complete_load(&load, root, depth, &added, answer);
                    out.append(&mut self.ahead);
                    out.extend(
                        tickets.into_iter().map(|ticket| StorageEvent::Loaded { ticket, loaded: loaded.clone() }),
                    );
                }
                Completion::Listed { directory, names } => self.watches.end_listing(directory, names),
                Completion::Event(event) => out.push(event),
                Completion::RootsChecked { moved } => {
                    self.checking_roots = false;
                    self.forget_roots(&moved);
                    out.append(&mut self.ahead);
                }
                Completion::Nudge => {}
            }
        }
        out.append(&mut self.ahead);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.roots_checked_at.is_none_or(|checked_at| now.since(checked_at) >= Duration::from_nanos(FRESH_NS)) {
            self.roots_checked_at = Some(now);
            self.check_roots();
        }
    }

    fn wake_fd(&self) -> Option<RawFd> {
        Some(self.completions.bell.as_raw_fd())
    }

    fn watch_fd(&self) -> Option<RawFd> {
        self.watches.inotify.as_ref().map(|inotify| inotify.as_raw_fd())
    }
}
