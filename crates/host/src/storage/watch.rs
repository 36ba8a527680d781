//! Noticing changes: the kernel's notices (inotify) turned into what the cache has to drop.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use leat_logic::serve::path::LoadRequest;
use leat_logic::serve::policy::SymlinkPolicy;
use leat_logic::serve::resource::{Change, Watch, WatchId};
use rustix::fs::FileType;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::limits;
use super::load::WouldWait;
use super::open::{Patience, Root};
use super::watch_tree::{Descriptor, Names, WatchTree, directories};
use crate::clock;

/// Where the kernel's notices come from; shared with the pool's threads, which may add watches.
pub(super) type Inotify = Arc<OwnedFd>;

/// What became of watching the directories on the way to a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Added {
    /// From the depth that was known on.
    pub(super) descriptors: Vec<Descriptor>,
    /// Whether the deepest directory that exists is watched.
    pub(super) is_complete: bool,
}

/// Watches the directories on the way to what `request` names, from the `depth`th on. A directory that can't be watched ends it: one
/// behind a symbolic link or on another file system, or when the user's share of watches is used up.
pub(super) fn add(
    inotify: &Inotify,
    root: &Root,
    request: &LoadRequest,
    depth: usize,
    patience: Patience,
) -> Result<Added, WouldWait> {
    let mut added = Added::default();
    let mut prefix_len = 0;
    let names = std::iter::once(&b""[..]).chain(directories(request.relative()));
    for (place, name) in names.enumerate() {
        prefix_len += name.len() + usize::from(place > 1);
        if place < depth {
            continue;
        }
        match root.name(&request.relative()[..prefix_len], SymlinkPolicy::Deny, patience) {
            Ok(named) if named.kind != FileType::Directory => break,
            Ok(named) if !root.is_watchable(named.version.device) => return Ok(added),
            Ok(named) => match add_one(inotify, &named.descriptor) {
                Ok(descriptor) => added.descriptors.push(descriptor),
                Err(_) => return Ok(added),
            },
            Err(Errno::AGAIN) if patience == Patience::Cached => {
                // What has been added must not be lost: the rest is another attempt's.
                return if added.descriptors.is_empty() { Err(WouldWait) } else { Ok(added) };
            }
            // A name that comes into being shows in the directory above it.
            Err(Errno::NOENT | Errno::NOTDIR) => break,
            Err(_) => return Ok(added),
        }
    }
    added.is_complete = true;
    Ok(added)
}

fn add_one(inotify: &Inotify, directory: &OwnedFd) -> Result<Descriptor, Errno> {
    let flags = WatchFlags::MODIFY
        | WatchFlags::ATTRIB
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR
        | WatchFlags::EXCL_UNLINK;
    // By its descriptor, so that it's the directory that was checked, whatever its name leads to by now.
    inotify::add_watch(inotify, format!("/proc/self/fd/{}", directory.as_raw_fd()), flags)
}

/// A load under way, as far as changes concern it.
pub(super) trait UnderWay {
    /// Something that its answer depends on may have changed: below `root`, at `path` (a directory's path, empty or with a slash at its
    /// end), `name` in it; every name without one.
    fn spoil_if(&mut self, root: &Path, path: &[u8], name: Option<&[u8]>);
    /// Anything may have changed.
    fn spoil_all(&mut self);
}

/// A worker's watched directories.
#[derive(Debug)]
pub(super) struct Watches {
    pub(super) inotify: Option<Inotify>,
    tree: WatchTree,
    watches_max: usize,
}

/// What the notices said.
#[derive(Debug, Default)]
pub(super) struct Notices {
    pub(super) changes: Vec<Change>,
    /// A root itself was moved or deleted: time to see where its path leads.
    pub(super) root_went: bool,
}

impl Watches {
    /// None to begin with. Where the kernel gives no instance, nothing is ever watched.
    pub(super) fn new(watches_max: usize) -> Watches {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok().map(Arc::new);
        Watches { inotify, tree: WatchTree::default(), watches_max }
    }

    pub(super) fn depth(&self, root: &Path, request: &LoadRequest) -> usize {
        self.tree.depth(root, request.relative())
    }

    /// Takes over what [`add`] has added. Gives the deepest directory when it's watched, and so are all above it.
    pub(super) fn adopt(
        &mut self,
        root: &Path,
        request: &LoadRequest,
        depth: usize,
        added: &Added,
        under_way: &mut impl UnderWay,
        changes: &mut Vec<Change>,
    ) -> Option<Watch> {
        let adopted = self.tree.adopt(root, request.relative(), depth, &added.descriptors);
        if adopted.is_none() {
            self.release(&added.descriptors, under_way);
        }
        let watch = adopted?;
        while self.tree.len() > self.watches_max {
            let Some(oldest) = self.tree.oldest_leaf(watch.directory) else { break };
            self.drop_below(oldest, under_way, changes);
        }
        added.is_complete.then_some(watch)
    }

    /// The directory of what `request` names, when it's watched and so are all above it.
    pub(super) fn find(&self, root: &Path, request: &LoadRequest) -> Option<Watch> {
        self.tree.find(root, request.relative())
    }

    /// What is known of a directory's names.
    pub(super) fn names(&self, directory: WatchId) -> Names {
        self.tree.names(directory)
    }

    /// Whether somebody should read a directory's names, and says so in [`Watches::begin_listing`].
    pub(super) fn is_listing_due(&self, directory: WatchId) -> bool {
        self.tree.is_listing_due(directory, clock::now)
    }

    /// Notes that somebody reads a directory's names from now on.
    pub(super) fn begin_listing(&mut self, directory: WatchId) {
        self.tree.begin_listing(directory, clock::now());
    }

    /// Notes what a directory's names were.
    pub(super) fn end_listing(&mut self, directory: WatchId, names: Names) {
        self.tree.end_listing(directory, names);
    }

    /// Gives up watches that nobody has taken over.
    pub(super) fn release(&mut self, descriptors: &[Descriptor], under_way: &mut impl UnderWay) {
        let Some(inotify) = &self.inotify else { return };
        for &descriptor in descriptors {
            if self.tree.of_descriptor(descriptor).is_empty() {
                // Another load may have been given the same watch.
                under_way.spoil_all();
                let _ = inotify::remove_watch(inotify, descriptor);
            }
        }
    }

    /// Gives up all watches below a root.
    pub(super) fn drop_root(&mut self, root: &Path, under_way: &mut impl UnderWay, changes: &mut Vec<Change>) {
        if let Some(id) = self.tree.root(root) {
            self.drop_below(id, under_way, changes);
        }
    }

    /// Reads what notices there are.
    pub(super) fn read(&mut self, under_way: &mut impl UnderWay) -> Notices {
        let mut notices = Notices::default();
        let Some(inotify) = self.inotify.clone() else { return notices };
        let mut buffer = [MaybeUninit::uninit(); limits::NOTICE_BYTES];
        let mut reader = inotify::Reader::new(&*inotify, &mut buffer);
        let mut events = 0;
        // An error is "no more", and a reactor that's level-triggered comes back for what is left past the limit.
        while events < limits::NOTICES_MAX || !reader.is_buffer_empty() {
            let Ok(event) = reader.next() else { break };
            let name = event.file_name().map(std::ffi::CStr::to_bytes);
            self.handle(event.wd(), event.events(), name, under_way, &mut notices);
            events += 1;
        }
        notices
    }

    fn handle(
        &mut self,
        descriptor: Descriptor,
        flags: ReadFlags,
        name: Option<&[u8]>,
        under_way: &mut impl UnderWay,
        notices: &mut Notices,
    ) {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            for root in self.tree.roots() {
                self.drop_below(root, under_way, &mut Vec::new());
            }
            under_way.spoil_all();
            notices.changes = vec![Change::Everything];
            return;
        }
        let ids = self.tree.of_descriptor(descriptor).to_vec();
        if ids.is_empty() && !flags.contains(ReadFlags::IGNORED) {
            // Of a watch that a load under way has just added, or one that was just given up.
            under_way.spoil_all();
        }
        let is_gone =
            flags.intersects(ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT);
        for id in ids {
            let Some(name) = name.filter(|_| !is_gone) else {
                notices.root_went |= self.tree.path(id).is_some_and(|(_, path)| path.is_empty());
                self.drop_below(id, under_way, &mut notices.changes);
                continue;
            };
            if flags.contains(ReadFlags::ISDIR)
                && let Some(child) = self.tree.child(id, name)
            {
                self.drop_below(child, under_way, &mut notices.changes);
            }
            if let Some((root, path)) = self.tree.path(id) {
                under_way.spoil_if(root, &path, Some(name));
            }
            // What is changed under its name remains what it is; a directory is no less plain than a file.
            let is_new = flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) && !flags.contains(ReadFlags::ISDIR);
            self.tree.notice(id, name, is_new);
            let change = Change::Name { directory: id, name: Bytes::copy_from_slice(name) };
            // A file that's being written gives many in a row.
            if notices.changes.last() != Some(&change) {
                notices.changes.push(change);
            }
        }
    }

    fn drop_below(&mut self, id: WatchId, under_way: &mut impl UnderWay, changes: &mut Vec<Change>) {
        if let Some((root, path)) = self.tree.path(id) {
            under_way.spoil_if(root, &path, None);
        }
        let mut dropped = Vec::new();
        self.tree.drop_below(id, &mut dropped);
        for directory in dropped {
            changes.push(Change::Directory(directory.id));
            if let Some(descriptor) = directory.unneeded {
                self.release(&[descriptor], under_way);
            }
        }
    }
}
