//! A pretend file system: inodes with pages, names that lead to them, and the whole history of what each name led to.
//!
//! What matters is modelled as Linux does it. Times tick every few milliseconds. Pages that a socket's queue points to change with the file
//! when it is written in place, and stay as they were when it is truncated first. An open file outlives its name.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use leat_logic::serve::etag::ETag;
use leat_logic::serve::version::Version;
use leat_logic::time::UnixTime;

use crate::agenda::{MILLISECOND, wall_at};

/// The tick of a file system's clock.
const TICK_NS: u64 = 4 * MILLISECOND;

/// Bytes of a file that others may hold on to.
pub(crate) type Pages = Rc<RefCell<Vec<u8>>>;

#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) pages: Pages,
    pub(crate) version: Version,
    pub(crate) links: u64,
}

/// An open file, with what was true when it was opened.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) inode: Rc<RefCell<Inode>>,
    pub(crate) version: Version,
    links: u64,
}

impl OpenFile {
    /// By the same rule as the kernel's open files: see `leat_host::storage::OpenFile::is_unchanged`.
    pub(crate) fn is_unchanged(&self) -> bool {
        let inode = self.inode.borrow();
        inode.version.len_bytes == self.version.len_bytes
            && inode.version.modified == self.version.modified
            && (inode.version.changed == self.version.changed || inode.links != self.links)
    }

    /// Bytes from `offset`, fewer than `len` only at the end.
    pub(crate) fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let inode = self.inode.borrow();
        let pages = inode.pages.borrow();
        let start = (offset as usize).min(pages.len());
        pages[start..(start + len).min(pages.len())].to_vec()
    }
}

/// One state of what a name led to.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    pub(crate) bytes: Rc<Vec<u8>>,
    pub(crate) etag: ETag,
}

/// A site's number and a path in it.
pub(crate) type Name = (usize, String);

#[derive(Debug, Default)]
pub(crate) struct Files {
    names: BTreeMap<Name, Rc<RefCell<Inode>>>,
    /// When each state began; `None` for no file.
    history: BTreeMap<Name, Vec<(u64, Option<Content>)>>,
    next_inode: u64,
    opened: Vec<Weak<OpenFile>>,
}

impl Files {
    pub(crate) fn inode(&self, name: &Name) -> Option<Rc<RefCell<Inode>>> {
        self.names.get(name).cloned()
    }

    pub(crate) fn known_names(&self) -> Vec<Name> {
        self.history.keys().cloned().collect()
    }

    pub(crate) fn open(&mut self, inode: &Rc<RefCell<Inode>>) -> Rc<OpenFile> {
        let (version, links) = (inode.borrow().version, inode.borrow().links);
        let file = Rc::new(OpenFile { inode: inode.clone(), version, links });
        self.opened.retain(|file| file.strong_count() > 0);
        self.opened.push(Rc::downgrade(&file));
        file
    }

    /// Open files that somebody still holds.
    pub(crate) fn open_files(&self) -> usize {
        self.opened.iter().filter(|file| file.strong_count() > 0).count()
    }

    /// A new file under `name`, in the place of one that there may be: how a careful writer replaces a file.
    pub(crate) fn put(&mut self, now_ns: u64, name: &Name, bytes: Vec<u8>) {
        self.unlink(now_ns, name);
        self.next_inode += 1;
        let tick = tick(now_ns);
        let version =
            Version { device: 1, inode: self.next_inode, len_bytes: bytes.len() as u64, modified: tick, changed: tick };
        let inode = Inode { pages: Rc::new(RefCell::new(bytes)), version, links: 1 };
        self.names.insert(name.clone(), Rc::new(RefCell::new(inode)));
        self.record(now_ns, name);
    }

    pub(crate) fn remove(&mut self, now_ns: u64, name: &Name) {
        self.unlink(now_ns, name);
        self.record(now_ns, name);
    }

    fn unlink(&mut self, now_ns: u64, name: &Name) {
        if let Some(inode) = self.names.remove(name) {
            let mut inode = inode.borrow_mut();
            inode.links -= 1;
            inode.version.changed = tick(now_ns);
        }
    }

    /// Writes `bytes` at `offset`, in place: whoever holds the pages sees it.
    pub(crate) fn write(&mut self, now_ns: u64, name: &Name, offset: usize, bytes: &[u8]) {
        self.touch(now_ns, name, |inode| {
            let mut pages = inode.pages.borrow_mut();
            let end = offset + bytes.len();
            if pages.len() < end {
                pages.resize(end, 0);
            }
            pages[offset..end].copy_from_slice(bytes);
        });
    }

    /// Cuts a file: those who hold its pages keep them as they were.
    pub(crate) fn truncate(&mut self, now_ns: u64, name: &Name, len: usize) {
        self.touch(now_ns, name, |inode| {
            let kept = inode.pages.borrow().iter().take(len).copied().collect();
            inode.pages = Rc::new(RefCell::new(kept));
        });
    }

    fn touch(&mut self, now_ns: u64, name: &Name, change: impl FnOnce(&mut Inode)) {
        let Some(inode) = self.names.get(name) else { return };
        {
            let mut inode = inode.borrow_mut();
            change(&mut inode);
            let len_bytes = inode.pages.borrow().len() as u64;
            let tick = tick(now_ns);
            inode.version = Version { len_bytes, modified: tick, changed: tick, ..inode.version };
        }
        self.record(now_ns, name);
    }

    fn record(&mut self, now_ns: u64, name: &Name) {
        let content = self.names.get(name).map(|inode| {
            let bytes = inode.borrow().pages.borrow().clone();
            Content { etag: ETag::of(&bytes), bytes: Rc::new(bytes) }
        });
        self.history.entry(name.clone()).or_default().push((now_ns, content));
    }

    /// Everything that a name led to at some time from `from_ns` to `to_ns`.
    pub(crate) fn states(&self, name: &Name, from_ns: u64, to_ns: u64) -> Vec<Option<Content>> {
        let Some(history) = self.history.get(name) else { return vec![None] };
        let mut states: Vec<_> = history
            .iter()
            .enumerate()
            .filter(|(place, (began_ns, _))| {
                let ended_ns = history.get(place + 1).map_or(u64::MAX, |next| next.0);
                *began_ns <= to_ns && ended_ns >= from_ns
            })
            .map(|(_, (_, content))| content.clone())
            .collect();
        if history.first().is_none_or(|(began_ns, _)| *began_ns > from_ns) {
            states.push(None);
        }
        states
    }

    /// The state of a name now.
    pub(crate) fn current(&self, name: &Name) -> Option<Content> {
        self.history.get(name)?.last()?.1.clone()
    }
}

fn tick(now_ns: u64) -> UnixTime {
    wall_at(now_ns - now_ns % TICK_NS)
}
