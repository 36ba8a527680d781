//! The pretend storage: answers now or later, notices changes, fails now and then. It follows the real one's rules on what may be kept, as
//! the worker relies on them; `Faults` says which of them a run breaks on purpose.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::{OwnedFd, RawFd};
use std::rc::Rc;

use bytes::Bytes;
use leat_host::storage::{Outcome, Payer, Storage, StorageEvent, Ticket};
use leat_logic::handoff::FileState;
use leat_logic::serve::coding::CodingSet;
use leat_logic::serve::etag::ETag;
use leat_logic::serve::limits::FRESH_NS;
use leat_logic::serve::path::{LoadRequest, directory_location};
use leat_logic::serve::resource::{Cause, Change, Content, Description, Found, Keep, Loaded, Resource, Watch, WatchId};
use leat_logic::serve::version::Version;
use leat_logic::time::Instant;

use crate::agenda::{Happening, MILLISECOND, SECOND};
use crate::files::{Name, OpenFile};
use crate::world::World;

/// Pretend descriptors: no real one is negative.
pub(crate) const WAKE: RawFd = -2;
pub(crate) const WATCH: RawFd = -3;

/// The least age at which a file's times tell one state from the next.
const GRANULARITY_NS: u64 = 20 * MILLISECOND;
/// The longest that a notice of change takes to become readable.
pub(crate) const NOTICE_DELAY_NS_MAX: u64 = 2 * MILLISECOND;
/// The longest that a disk takes.
const DISK_NS_MAX: u64 = 60 * MILLISECOND;

/// The longest that the storage may go without [`Storage::handle_timeout`], which is to come about every second.
const TIMEOUT_GAP_NS_MAX: u64 = 3 * SECOND;
/// The only directory in a site's root.
pub(crate) const DIRECTORY: &str = "/docs/";

type File = Rc<OpenFile>;

#[derive(Debug)]
enum Question {
    Load { request: LoadRequest, answer: Option<Option<Loaded<File>>>, spoiled: bool },
    Resident { len: u64, result: Option<Result<(), Cause>> },
    Read { file: File, offset: u64, len: usize, result: Option<Result<Bytes, Cause>> },
}

impl Question {
    /// What had to be read for the answer: all of a file that was looked for, as it's hashed.
    fn disk_bytes(&self) -> u64 {
        match self {
            Question::Load { answer: Some(Some(Loaded { found: Found::Resource(resource), .. })), .. } => {
                resource.description.len_bytes
            }
            Question::Resident { len, .. } => *len,
            Question::Read { len, .. } => *len as u64,
            Question::Load { .. } => 0,
        }
    }
}

/// What the storage remembers; the worker's end of it is [`SimStorage`].
#[derive(Debug, Default)]
pub(crate) struct StorageState {
    questions: BTreeMap<u64, (Ticket, Option<Payer>, Question)>,
    next_question: u64,
    /// Answered, in the order of the answers.
    answered: Vec<u64>,
    /// Changes that can be read.
    notices: Vec<Change>,
    watches: BTreeMap<(usize, &'static str), WatchId>,
    /// Tags of large files that have been hashed.
    hashed: BTreeMap<Version, ETag>,
    handled_timeout_at: Option<Instant>,
}

impl StorageState {
    /// Questions without an answer.
    pub(crate) fn pending(&self) -> usize {
        self.questions.len()
    }

    /// The deepest directory of a path. There are two in each site: the root and `docs`.
    fn watch(&mut self, site: usize, path: &str) -> Watch {
        let directory = if path.starts_with(DIRECTORY) { DIRECTORY } else { "/" };
        let next = WatchId(self.watches.len() as u64 + 1);
        let id = *self.watches.entry((site, directory)).or_insert(next);
        Watch { directory: id, directory_bytes: directory.len() as u16 }
    }

    fn ask(&mut self, ticket: Ticket, payer: Option<Payer>, question: Question) -> u64 {
        self.next_question += 1;
        self.questions.insert(self.next_question, (ticket, payer, question));
        self.next_question
    }
}

/// A site's number from its root.
fn site_of(request: &LoadRequest) -> usize {
    let root = request.policy().root.to_string_lossy();
    root.trim_start_matches("/site").parse().unwrap_or(0)
}

/// The file that answers a request, where there is one.
fn name_of(request: &LoadRequest) -> Name {
    let mut path = String::from_utf8_lossy(request.path()).into_owned();
    if path.ends_with('/') {
        path.push_str("index.html");
    }
    (site_of(request), path)
}

/// A large file is read from end to end first.
struct NeedsHash;

impl World {
    /// Whatever happens to a name: the storage hears of it.
    pub(crate) fn name_changed(&mut self, name: &Name) {
        for (_, _, question) in self.storage.questions.values_mut() {
            if let Question::Load { request, answer: Some(_), spoiled } = question {
                *spoiled |= name_of(request) == *name;
            }
        }
        if !self.faults.watching {
            return;
        }
        let watch = self.storage.watch(name.0, &name.1);
        let change = match self.random.below(40) {
            0 => Change::Directory(watch.directory),
            1 => Change::Everything,
            _ => {
                let file = Bytes::copy_from_slice(&name.1.as_bytes()[usize::from(watch.directory_bytes)..]);
                Change::Name { directory: watch.directory, name: file }
            }
        };
        self.storage.notices.push(change);
        let delay_ns = self.random.below(NOTICE_DELAY_NS_MAX);
        self.agenda.after(delay_ns, Happening::Notice);
    }

    /// A disk has moved its heads: looks into a question.
    pub(crate) fn answer_question(&mut self, serial: u64) {
        let Some((ticket, payer, mut question)) = self.storage.questions.remove(&serial) else { return };
        let failed = self.random.below(1_000) < self.faults.disk_errors_in_1000;
        match &mut question {
            Question::Load { request, answer, .. } => {
                let request = request.clone();
                *answer = Some(if failed { Some(unavailable()) } else { self.look(&request, true).unwrap_or(None) });
            }
            Question::Resident { result, .. } => *result = Some(if failed { Err(Cause::Failed(5)) } else { Ok(()) }),
            Question::Read { file, offset, len, result } => {
                let bytes = file.read(*offset, *len).into();
                *result = Some(if failed { Err(Cause::Failed(5)) } else { Ok(bytes) });
            }
        }
        self.storage.questions.insert(serial, (ticket, payer, question));
        self.storage.answered.push(serial);
        self.rung.insert(WAKE);
    }

    /// A file to begin with that has been read from end to end before.
    pub(crate) fn put_known(&mut self, name: &Name, bytes: Vec<u8>) {
        let etag = ETag::of(&bytes);
        self.files.put(0, name, bytes);
        let inode = self.files.inode(name);
        self.storage.hashed.extend(inode.map(|inode| (inode.borrow().version, etag)));
    }

    /// What a path names at this moment; `None` inside when the asker holds it already.
    fn look(&mut self, request: &LoadRequest, may_hash: bool) -> Result<Option<Loaded<File>>, NeedsHash> {
        let name = name_of(request);
        let path = String::from_utf8_lossy(request.path()).into_owned();
        let watch = self.faults.watching.then(|| self.storage.watch(name.0, &path));
        let keep = |fresh_ns| Keep::For { fresh_ns, watch };
        let Some(inode) = self.files.inode(&name) else {
            let found = match () {
                () if path == DIRECTORY.trim_end_matches('/') => Found::Redirect(directory_location(request.path())),
                () if path == "/" || path == DIRECTORY => Found::Forbidden,
                () => Found::NotFound,
            };
            return Ok(Some(Loaded { found, version: None, keep: keep(FRESH_NS) }));
        };
        let version = inode.borrow().version;
        let settled = version.is_settled_at(self.agenda.wall(), GRANULARITY_NS);
        let is_large = version.len_bytes > request.policy().memory_file_bytes_max;
        if settled && request.known().is_some_and(|known| known.version == version && (known.tagged || !is_large)) {
            return Ok(None);
        }
        let state = inode.borrow();
        let bytes = state.pages.borrow();
        let (content, etag, fresh_ns) = if is_large {
            if settled && !may_hash && !self.storage.hashed.contains_key(&version) {
                return Err(NeedsHash);
            }
            let hashed = &mut self.storage.hashed;
            let etag = settled.then(|| *hashed.entry(version).or_insert_with(|| ETag::of(&bytes)));
            let file = self.files.open(&inode);
            (Content::File(file), etag, settled.then_some(FRESH_NS))
        } else {
            let fresh_ns = if settled { FRESH_NS } else { GRANULARITY_NS };
            (Content::Memory(bytes.clone().into()), Some(ETag::of(&bytes)), Some(fresh_ns))
        };
        let description = Description {
            len_bytes: bytes.len() as u64,
            etag,
            modified: (version.modified <= self.agenda.wall()).then_some(version.modified),
            content_type: Bytes::from_static(b"text/plain"),
            coding: None,
            siblings: CodingSet::default(),
        };
        let resource = Resource::new(description, content, &request.policy().fields(request.path()));
        Ok(Some(Loaded {
            found: Found::Resource(resource.into()),
            version: settled.then_some(version),
            keep: fresh_ns.map_or(Keep::No, keep),
        }))
    }
}

fn unavailable() -> Loaded<File> {
    Loaded { found: Found::Unavailable(Cause::Failed(5)), version: None, keep: Keep::No }
}

/// A worker's end of the storage.
#[derive(Debug)]
pub(crate) struct SimStorage {
    world: Rc<RefCell<World>>,
}

impl SimStorage {
    pub(crate) fn new(world: Rc<RefCell<World>>) -> SimStorage {
        SimStorage { world }
    }

    /// Has a disk look into a question.
    fn ask_disk(&self, ticket: Ticket, payer: Option<Payer>, question: Question) {
        let mut world = self.world.borrow_mut();
        let serial = world.storage.ask(ticket, payer, question);
        let delay_ns = world.random.below(DISK_NS_MAX);
        world.agenda.after(delay_ns, Happening::Storage(serial));
    }

    fn is_cached(&self) -> bool {
        let mut world = self.world.borrow_mut();
        let percent = world.faults.cached_percent;
        world.random.percent(percent)
    }
}

impl Storage for SimStorage {
    type File = File;

    fn load(&mut self, ticket: Ticket, payer: Option<Payer>, request: LoadRequest) -> Outcome<Option<Loaded<File>>> {
        if self.is_cached() {
            let looked = self.world.borrow_mut().look(&request, false);
            if let Ok(loaded) = looked {
                return Outcome::Ready(loaded);
            }
        }
        self.ask_disk(ticket, payer, Question::Load { request, answer: None, spoiled: false });
        Outcome::Pending
    }

    fn make_resident(
        &mut self,
        ticket: Ticket,
        payer: Option<Payer>,
        _file: &File,
        _offset: u64,
        len: u64,
    ) -> Outcome<Result<(), Cause>> {
        if self.is_cached() {
            return Outcome::Ready(Ok(()));
        }
        self.ask_disk(ticket, payer, Question::Resident { len, result: None });
        Outcome::Pending
    }

    fn read(
        &mut self,
        ticket: Ticket,
        payer: Option<Payer>,
        file: &File,
        offset: u64,
        len: usize,
    ) -> Outcome<Result<Bytes, Cause>> {
        if self.is_cached() {
            return Outcome::Ready(Ok(file.read(offset, len).into()));
        }
        self.ask_disk(ticket, payer, Question::Read { file: file.clone(), offset, len, result: None });
        Outcome::Pending
    }

    fn unchanged(&self, file: &File) -> bool {
        self.world.borrow().faults.trusts_files || file.is_unchanged()
    }

    fn tag(&self, _file: &File) -> Option<ETag> {
        None
    }

    fn export(&self, _file: &File) -> Option<(OwnedFd, FileState)> {
        // Pretend files have no descriptors.
        None
    }

    fn import(&self, _descriptor: OwnedFd, _state: FileState) -> Option<File> {
        None
    }

    fn poll(&mut self, out: &mut Vec<StorageEvent<File>>) {
        let mut world = self.world.borrow_mut();
        // Changes first: an answer that was found before one of them must not be kept.
        out.extend(world.storage.notices.drain(..).map(StorageEvent::Changed));
        for serial in std::mem::take(&mut world.storage.answered) {
            let Some((ticket, payer, question)) = world.storage.questions.remove(&serial) else { continue };
            let bytes = question.disk_bytes();
            out.extend(payer.filter(|_| bytes > 0).map(|payer| StorageEvent::FromDisk { payer, bytes }));
            match question {
                Question::Load { answer: Some(mut loaded), spoiled, .. } => {
                    if let (Some(loaded), true) = (&mut loaded, spoiled) {
                        loaded.keep = Keep::No;
                    }
                    out.push(StorageEvent::Loaded { ticket, loaded });
                }
                Question::Resident { result: Some(result), .. } => out.push(StorageEvent::Resident { ticket, result }),
                Question::Read { result: Some(result), .. } => out.push(StorageEvent::Read { ticket, result }),
                _ => {}
            }
        }
        if world.random.percent(1) {
            out.push(StorageEvent::DescriptorsShort);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let mut world = self.world.borrow_mut();
        let before = world.storage.handled_timeout_at.replace(now);
        if before.is_some_and(|before| now.since(before).as_nanos() as u64 > TIMEOUT_GAP_NS_MAX) {
            world.violation(format!("handle_timeout wasn't called for {:?}", before.map(|before| now.since(before))));
        }
    }

    fn wake_fd(&self) -> Option<RawFd> {
        Some(WAKE)
    }

    fn watch_fd(&self) -> Option<RawFd> {
        self.world.borrow().faults.watching.then_some(WATCH)
    }
}
