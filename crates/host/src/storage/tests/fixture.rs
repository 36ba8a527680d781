//! A directory, a storage that serves it, and a cache, put together as a worker does.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leat_logic::serve::cache::{Cache, CacheLimits, Lookup};
use leat_logic::serve::coding::CodingOrder;
use leat_logic::serve::path::LoadRequest;
use leat_logic::serve::policy::FilePolicy;
use leat_logic::serve::resource::{Content, Found, Loaded, Resource};
use leat_logic::time::Instant;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::clock;
use crate::storage::open::version_of;
use crate::storage::watch_tree::Names;
use crate::storage::{DiskStorage, OpenFile, Outcome, Pool, PoolLimits, Storage, StorageEvent, Ticket, limits};

pub(super) type File = Arc<OpenFile>;
pub(super) type FoundFile = Found<File>;

/// A directory that goes with the test.
pub(super) struct Directory(pub(super) PathBuf);

impl Directory {
    pub(super) fn new() -> Directory {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("leat-storage-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) struct Fixture {
    pub(super) directory: Directory,
    pub(super) root: PathBuf,
    pub(super) policy: FilePolicy,
    pub(super) pool: Arc<Pool>,
    pub(super) storage: DiskStorage,
    pub(super) cache: Cache<File>,
    pub(super) events: VecDeque<StorageEvent<File>>,
    next_ticket: u64,
}

impl Fixture {
    pub(super) fn new() -> Fixture {
        Fixture::with(PoolLimits::default(), limits::WATCHES_MAX)
    }

    pub(super) fn with(pool_limits: PoolLimits, watches_max: usize) -> Fixture {
        let directory = Directory::new();
        let root = directory.0.join("root");
        std::fs::create_dir(&root).unwrap();
        let pool = Pool::new(pool_limits);
        let storage = DiskStorage::with_watches_max(pool.clone(), watches_max).unwrap();
        let cache = Cache::new(CacheLimits::default(), 1);
        let policy = FilePolicy::new(&root);
        Fixture { directory, root, policy, pool, storage, cache, events: VecDeque::new(), next_ticket: 0 }
    }

    /// Writes a file below the root, with the directories on its way.
    pub(super) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// The same, and waits until its times can tell a later write.
    pub(super) fn write_settled(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.write(name, content);
        settle(&path);
        path
    }

    pub(super) fn request(&self, path: &str, codings: CodingOrder) -> Result<LoadRequest, FoundFile> {
        LoadRequest::new(&Arc::new(self.policy.clone()), path.as_bytes(), codings)
    }

    /// Asks as often as it takes, and keeps what changed meanwhile in `events`.
    pub(super) fn ask(&mut self, request: LoadRequest) -> Option<Loaded<File>> {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        match self.storage.load(ticket, None, request) {
            Outcome::Ready(loaded) => loaded,
            Outcome::Pending => self.wait_for(|event| match event {
                StorageEvent::Loaded { ticket: of, loaded } if *of == ticket => Some(loaded.clone()),
                _ => None,
            }),
        }
    }

    pub(super) fn load(&mut self, path: &str) -> Loaded<File> {
        self.load_coded(path, CodingOrder::NONE)
    }

    pub(super) fn load_coded(&mut self, path: &str, codings: CodingOrder) -> Loaded<File> {
        let request = self.request(path, codings).expect("a path that is looked for");
        self.ask(request).expect("nothing is known, so nothing is unchanged")
    }

    pub(super) fn find(&mut self, path: &str) -> FoundFile {
        match self.request(path, CodingOrder::NONE) {
            Ok(request) => self.ask(request).unwrap().found,
            Err(found) => found,
        }
    }

    /// What is known of names once the directory of `path` has been read: the first load below a root opens it, the next has the names read.
    pub(super) fn names(&mut self, path: &str) -> Names {
        let request = self.request(path, CodingOrder::NONE).unwrap();
        loop {
            let watch = self.storage.watches.find(&self.root, &request).expect("a directory that is watched");
            match self.storage.watches.names(watch.directory) {
                Names::UNKNOWN => self.wait(),
                names => return names,
            }
        }
    }

    /// Loads and keeps, as a worker does.
    pub(super) fn keep(&mut self, path: &str) {
        let request = self.request(path, CodingOrder::NONE).expect("a path that is looked for");
        let loaded = self.ask(request.clone()).unwrap();
        self.cache.insert(0, &request, &loaded, Instant { ns: 0 });
        assert!(self.is_kept(path), "{path} wasn't kept: {loaded:?}");
    }

    pub(super) fn is_kept(&mut self, path: &str) -> bool {
        !matches!(self.cache.lookup(0, CodingOrder::NONE, path.as_bytes(), Instant { ns: 0 }), Lookup::Absent)
    }

    /// Handles notices until `path` is no longer kept.
    pub(super) fn wait_until_dropped(&mut self, path: &str) {
        while self.is_kept(path) {
            if let Some(event) = self.events.pop_front() {
                self.apply(&event);
            } else {
                self.wait();
            }
        }
    }

    /// Handles what notices there are by now.
    pub(super) fn settle_notices(&mut self) {
        self.poll();
        while let Some(event) = self.events.pop_front() {
            self.apply(&event);
        }
    }

    pub(super) fn wait_for<T>(&mut self, mut take: impl FnMut(&StorageEvent<File>) -> Option<T>) -> T {
        loop {
            let taken = self.events.iter().enumerate().find_map(|(place, event)| Some((place, take(event)?)));
            if let Some((place, value)) = taken {
                self.events.remove(place);
                return value;
            }
            self.wait();
        }
    }

    pub(super) fn poll(&mut self) {
        let mut events = Vec::new();
        self.storage.poll(&mut events);
        self.events.extend(events);
    }

    fn apply(&mut self, event: &StorageEvent<File>) {
        if let StorageEvent::Changed(change) = event {
            self.cache.apply(change);
        }
    }

    pub(super) fn wait(&mut self) {
        let descriptors = [self.storage.wake_fd(), self.storage.watch_fd()];
        let mut polled: Vec<PollFd<'_>> = descriptors
            .into_iter()
            .flatten()
            // SAFETY: the storage holds them open, and isn't dropped here.
            .map(|descriptor| PollFd::from_borrowed_fd(unsafe { BorrowedFd::borrow_raw(descriptor) }, PollFlags::IN))
            .collect();
        let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
        let ready = rustix::event::poll(&mut polled, Some(&limit)).unwrap();
        assert!(ready > 0, "nothing has happened for 20 seconds");
        self.poll();
    }
}

/// Waits until a file's times are old enough for a later write to show: time itself is what is waited for.
pub(super) fn settle(path: &Path) {
    let version = version_of(&rustix::fs::lstat(path).unwrap());
    while !version.is_settled_at(clock::wall(), limits::TIMESTAMP_GRANULARITY_LOCAL_NS) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(super) fn resource(found: &FoundFile) -> &Arc<Resource<File>> {
    let Found::Resource(resource) = found else { panic!("no resource: {found:?}") };
    resource
}

pub(super) fn memory(found: &FoundFile) -> &[u8] {
    let Content::Memory(content) = &resource(found).content else { panic!("not in memory: {found:?}") };
    content
}

pub(super) fn file(found: &FoundFile) -> File {
    let Content::File(file) = &resource(found).content else { panic!("not a file: {found:?}") };
    file.clone()
}
