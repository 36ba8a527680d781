//! Which directories are watched, by name and by the kernel's number: a tree for each root.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use leat_logic::serve::coding::{Coding, CodingSet};
use leat_logic::serve::resource::{Watch, WatchId};
use leat_logic::time::Instant;

use super::limits;

/// The kernel's number of a watch.
pub(super) type Descriptor = i32;

#[derive(Debug)]
struct Node {
    parent: Option<WatchId>,
    name: Box<[u8]>,
    children: BTreeMap<Box<[u8]>, WatchId>,
    descriptor: Descriptor,
    listing: Listing,
    /// What the directory's names said when they were read.
    names: Names,
    /// Codings of names that the kernel has told of.
    noticed: CodingSet,
    /// Whether it has told of new ones since somebody began to read them.
    has_new: bool,
}

/// What is known of a directory's names before any of them is looked up: most directories have no siblings, and nothing but files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Names {
    /// Codings in whose suffix a name may end. Other siblings needn't be looked up: a name that isn't there costs as much as one that is.
    pub(super) codings: CodingSet,
    /// Whether what is there is a regular file or a directory: it may be opened for reading without a look at what it is.
    pub(super) are_plain: bool,
}

impl Names {
    /// Nobody has read them.
    pub(super) const UNKNOWN: Names = Names { codings: CodingSet::ALL, are_plain: false };
}

/// Whether a directory's names have been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    Due,
    UnderWay { begun: Instant },
    Done { begun: Instant },
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct WatchTree {
    roots: BTreeMap<PathBuf, WatchId>,
    nodes: BTreeMap<WatchId, Node>,
    /// One inode may be reached from several roots, and has one number.
    by_descriptor: BTreeMap<Descriptor, Vec<WatchId>>,
    next: u64,
}

/// A directory that is no longer watched, and the kernel's watch if nothing else needs it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Dropped {
    pub(super) id: WatchId,
    pub(super) unneeded: Option<Descriptor>,
}

/// The directory in which `relative` is, without a slash at its end.
pub(super) fn directory(relative: &[u8]) -> &[u8] {
    &relative[..memchr::memrchr(b'/', relative).unwrap_or(0)]
}

/// How many bytes of the path, its first slash included, name that directory, its last slash included.
pub(super) fn path_bytes(relative: &[u8]) -> usize {
    memchr::memrchr(b'/', relative).map_or(1, |last| last + 2)
}

/// The directories on the way to `relative`: all its segments but the last.
pub(super) fn directories(relative: &[u8]) -> impl Iterator<Item = &[u8]> {
    directory(relative).split(|&byte| byte == b'/').filter(|name| !name.is_empty())
}

impl WatchTree {
    /// How many directories on the way to `relative` are watched, the root being the first.
    pub(super) fn depth(&self, root: &Path, relative: &[u8]) -> usize {
        let Some(mut id) = self.roots.get(root) else { return 0 };
        let mut depth = 1;
        for name in directories(relative) {
            let Some(child) = self.nodes.get(id).and_then(|node| node.children.get(name)) else { break };
            id = child;
            depth += 1;
        }
        depth
    }

    /// The directory in which `relative` is, when it's watched and so are all above it.
    pub(super) fn find(&self, root: &Path, relative: &[u8]) -> Option<Watch> {
        let root = *self.roots.get(root)?;
        let directory = directories(relative).try_fold(root, |id, name| self.child(id, name))?;
        Some(Watch { directory, directory_bytes: u16::try_from(path_bytes(relative)).ok()? })
    }

    /// Adds the directories on the way to `relative` from the `depth`th on, which the kernel watches under the numbers `added`. Gives the
    /// deepest one; none when the tree has changed since `depth` was asked for, and then nothing is added.
    pub(super) fn adopt(&mut self, root: &Path, relative: &[u8], depth: usize, added: &[Descriptor]) -> Option<Watch> {
        if self.depth(root, relative) < depth || depth + added.len() == 0 {
            return None;
        }
        let names = std::iter::once(&b""[..]).chain(directories(relative));
        let mut at: Option<WatchId> = None;
        let mut directory_bytes = 0;
        for (place, name) in names.take(depth + added.len()).enumerate() {
            let existing = match at {
                None => self.roots.get(root).copied(),
                Some(id) => self.nodes.get(&id)?.children.get(name).copied(),
            };
            let descriptor = place.checked_sub(depth).map(|place| added[place]);
            at = Some(match (existing, descriptor) {
                (Some(id), None) => id,
                (Some(id), Some(descriptor)) if self.nodes.get(&id)?.descriptor == descriptor => id,
                (None, Some(descriptor)) => self.add(root, at, name, descriptor),
                // Another directory has this name by now: the notice of it is under way.
                _ => return None,
            });
            directory_bytes += name.len() + 1;
        }
        Some(Watch { directory: at?, directory_bytes: u16::try_from(directory_bytes).ok()? })
    }

    fn add(&mut self, root: &Path, parent: Option<WatchId>, name: &[u8], descriptor: Descriptor) -> WatchId {
        self.next += 1;
        let id = WatchId(self.next);
        let node = Node {
            parent,
            name: name.into(),
            children: BTreeMap::new(),
            descriptor,
            listing: Listing::Due,
            names: Names::UNKNOWN,
            noticed: CodingSet::default(),
            has_new: false,
        };
        self.nodes.insert(id, node);
        self.by_descriptor.entry(descriptor).or_default().push(id);
        match parent {
            Some(parent) => {
                if let Some(node) = self.nodes.get_mut(&parent) {
                    node.children.insert(name.into(), id);
                }
            }
            None => {
                self.roots.insert(root.to_owned(), id);
            }
        }
        id
    }

    /// What is known of a directory's names, with those that were noticed since it's watched.
    pub(super) fn names(&self, id: WatchId) -> Names {
        let Some(node) = self.nodes.get(&id) else { return Names::UNKNOWN };
        Names { codings: node.names.codings.union(node.noticed), are_plain: node.names.are_plain && !node.has_new }
    }

    /// Whether a directory's names should be read: for the first time, or because new ones may be all that keeps them from being known as plain.
    pub(super) fn is_listing_due(&self, id: WatchId, now: impl FnOnce() -> Instant) -> bool {
        self.nodes.get(&id).is_some_and(|node| match node.listing {
            Listing::Due => true,
            Listing::UnderWay { .. } => false,
            Listing::Done { begun } => {
                node.names.are_plain && node.has_new && now().since(begun) >= limits::NAMES_LISTED_AGAIN_AFTER
            }
        })
    }

    /// Notes that somebody reads a directory's names.
    pub(super) fn begin_listing(&mut self, id: WatchId, now: Instant) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.listing = Listing::UnderWay { begun: now };
            // Not so what comes while they're read: nobody knows whether it was seen. Until then what was read before doesn't hold either.
            node.names.are_plain &= !node.has_new;
            node.has_new = false;
        }
    }

    /// Notes what a directory's names were; one that has gone meanwhile is nothing to note anything of.
    pub(super) fn end_listing(&mut self, id: WatchId, names: Names) {
        if let Some(node) = self.nodes.get_mut(&id)
            && let Listing::UnderWay { begun } = node.listing
        {
            node.listing = Listing::Done { begun };
            node.names = names;
        }
    }

    /// Something happened to a name in the directory. If it `is_new`, nobody knows what it is.
    pub(super) fn notice(&mut self, id: WatchId, name: &[u8], is_new: bool) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if let Some(coding) = Coding::of_name(name) {
            node.noticed = node.noticed.with(coding);
        }
        node.has_new |= is_new;
    }

    /// The directories behind a number of the kernel's.
    pub(super) fn of_descriptor(&self, descriptor: Descriptor) -> &[WatchId] {
        self.by_descriptor.get(&descriptor).map_or(&[], Vec::as_slice)
    }

    pub(super) fn child(&self, id: WatchId, name: &[u8]) -> Option<WatchId> {
        self.nodes.get(&id)?.children.get(name).copied()
    }

    pub(super) fn root(&self, root: &Path) -> Option<WatchId> {
        self.roots.get(root).copied()
    }

    /// The root above a directory, and its path from there: empty, or with a slash at the end.
    pub(super) fn path(&self, id: WatchId) -> Option<(&Path, Vec<u8>)> {
        let mut names = Vec::new();
        let mut at = id;
        let mut node = self.nodes.get(&at)?;
        while let Some(parent) = node.parent {
            names.push(&node.name);
            at = parent;
            node = self.nodes.get(&at)?;
        }
        let root = self.roots.iter().find(|(_, root)| **root == at)?.0;
        let path = names.iter().rev().flat_map(|name| name.iter().copied().chain([b'/'])).collect();
        Some((root, path))
    }

    /// Forgets a directory and all below it, the deepest first.
    pub(super) fn drop_below(&mut self, id: WatchId, dropped: &mut Vec<Dropped>) {
        // Depth is bounded by the depth of a path: limits::PATH_SEGMENTS_MAX in leat-logic.
        let children: Vec<WatchId> =
            self.nodes.get(&id).map(|node| node.children.values().copied().collect()).unwrap_or_default();
        for child in children {
            self.drop_below(child, dropped);
        }
        let Some(node) = self.nodes.remove(&id) else { return };
        match node.parent.and_then(|parent| self.nodes.get_mut(&parent)) {
            Some(parent) => {
                parent.children.remove(&node.name);
            }
            None => self.roots.retain(|_, root| *root != id),
        }
        let mut unneeded = None;
        if let Some(ids) = self.by_descriptor.get_mut(&node.descriptor) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_descriptor.remove(&node.descriptor);
                unneeded = Some(node.descriptor);
            }
        }
        dropped.push(Dropped { id, unneeded });
    }

    /// The directory without watched ones below it that has been watched longest, other than `but`.
    pub(super) fn oldest_leaf(&self, but: WatchId) -> Option<WatchId> {
        self.nodes.iter().find(|(id, node)| node.children.is_empty() && **id != but).map(|(id, _)| *id)
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn roots(&self) -> Vec<WatchId> {
        self.roots.values().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(directory: u64, directory_bytes: u16) -> Option<Watch> {
        Some(Watch { directory: WatchId(directory), directory_bytes })
    }

    #[test]
    fn a_chain_grows_from_the_depth_that_is_known() {
        let mut tree = WatchTree::default();
        let root = Path::new("/srv");
        assert_eq!(tree.depth(root, b"a/b/file"), 0);
        assert_eq!(tree.adopt(root, b"a/b/file", 0, &[10, 11]), watch(2, 3));
        assert_eq!(tree.depth(root, b"a/b/file"), 2);
        assert_eq!(tree.adopt(root, b"a/b/file", 2, &[12]), watch(3, 5));
        assert_eq!(tree.adopt(root, b"a/b/", 3, &[]), watch(3, 5));
        assert_eq!(tree.adopt(root, b"file", 1, &[]), watch(1, 1));
        assert_eq!(tree.path(WatchId(3)), Some((root, b"a/b/".to_vec())));
        for (relative, found) in [
            (&b"file"[..], watch(1, 1)),
            (b"a/file", watch(2, 3)),
            (b"a/b/file", watch(3, 5)),
            (b"a/b/", watch(3, 5)),
            (b"a/c/file", None),
        ] {
            assert_eq!(tree.find(root, relative), found, "{relative:?}");
        }
        // Two loads that watched the same directory agree; two that found different ones under a name don't.
        assert_eq!(tree.adopt(root, b"a/b/file", 2, &[12]), watch(3, 5));
        assert_eq!(tree.adopt(root, b"a/b/file", 2, &[13]), None);
    }

    #[test]
    fn of_names_in_a_directory_those_are_known_that_were_read_and_those_that_were_noticed() {
        let mut tree = WatchTree::default();
        tree.adopt(Path::new("/srv"), b"file", 0, &[10]);
        let (id, gzip) = (WatchId(1), CodingSet::default().with(Coding::Gzip));
        let (start, plain) = (Instant { ns: 0 }, |codings| Names { codings, are_plain: true });
        assert_eq!(tree.names(id), Names::UNKNOWN);
        tree.begin_listing(id, start);
        tree.notice(id, b"while.it.is.read.br", false);
        tree.notice(id, b"without.a.coding", false);
        assert_eq!(tree.names(id), Names::UNKNOWN);
        tree.end_listing(id, plain(gzip));
        assert_eq!(tree.names(id), plain(gzip.with(Coding::Brotli)));
        tree.notice(id, b"later.zst", false);
        assert_eq!(tree.names(id), plain(CodingSet::ALL));
        tree.drop_below(id, &mut Vec::new());
        tree.end_listing(id, plain(gzip));
        assert_eq!(tree.names(id), Names::UNKNOWN);
    }

    #[test]
    fn names_are_read_again_after_a_while_if_new_ones_are_all_that_may_be_unlike_files() {
        let mut tree = WatchTree::default();
        tree.adopt(Path::new("/srv"), b"file", 0, &[10]);
        let id = WatchId(1);
        let at = |seconds: u64| move || Instant { ns: seconds * 1_000_000_000 };
        let names = |are_plain| Names { codings: CodingSet::default(), are_plain };
        assert!(tree.is_listing_due(id, at(0)));
        tree.begin_listing(id, at(0)());
        assert!(!tree.is_listing_due(id, at(100)), "somebody reads them");
        tree.notice(id, b"new while they are read", true);
        tree.end_listing(id, names(true));
        assert_eq!(tree.names(id), names(false), "whether the new one was seen isn't known");
        assert!(!tree.is_listing_due(id, at(9)));
        assert!(tree.is_listing_due(id, at(10)));
        tree.begin_listing(id, at(10)());
        assert_eq!(tree.names(id), names(false), "the new one may be anything until it's seen");
        tree.end_listing(id, names(true));
        assert_eq!(tree.names(id), names(true));
        assert!(!tree.is_listing_due(id, at(100)), "nothing is new");
        tree.notice(id, b"changed", false);
        assert_eq!(tree.names(id), names(true));
        tree.notice(id, b"new", true);
        assert_eq!(tree.names(id), names(false));
        tree.begin_listing(id, at(100)());
        tree.end_listing(id, names(false));
        tree.notice(id, b"newer", true);
        assert!(!tree.is_listing_due(id, at(200)), "what was unlike files before is likely there still");
    }

    #[test]
    fn dropping_a_directory_drops_what_is_below_and_keeps_shared_watches() {
        let mut tree = WatchTree::default();
        tree.adopt(Path::new("/srv"), b"a/b/file", 0, &[10, 11, 12]);
        tree.adopt(Path::new("/srv/a"), b"b/file", 0, &[11, 12]);
        let mut dropped = Vec::new();
        tree.drop_below(WatchId(2), &mut dropped);
        assert_eq!(dropped, [Dropped { id: WatchId(3), unneeded: None }, Dropped { id: WatchId(2), unneeded: None }]);
        assert_eq!(tree.of_descriptor(12), [WatchId(5)]);
        assert_eq!(tree.depth(Path::new("/srv"), b"a/b/file"), 1);
        assert_eq!(tree.adopt(Path::new("/srv"), b"a/b/file", 2, &[12]), None);
        dropped.clear();
        tree.drop_below(WatchId(4), &mut dropped);
        assert_eq!(dropped[0].unneeded, Some(12));
        assert_eq!(tree.len(), 1);
    }
}
