//! Which directories are watched, by name and by the kernel's number: a tree for each root.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use leat_logic::serve::coding::{Coding, CodingSet};
use leat_logic::serve::resource::{Watch, WatchId};

/// The kernel's number of a watch.
pub(super) type Descriptor = i32;

#[derive(Debug)]
struct Node {
    parent: Option<WatchId>,
    name: Box<[u8]>,
    children: BTreeMap<Box<[u8]>, WatchId>,
    descriptor: Descriptor,
    /// Codings in which the directory has names, as far as it was listed.
    listed: Listed,
    /// The same of names that the kernel has told of.
    noticed: CodingSet,
}

/// Whether a directory's names have been read, and what they said. Siblings that can't be there needn't be looked up: most directories have
/// none, and a name that isn't there costs as much as one that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Listed {
    /// Nobody has read them.
    #[default]
    No,
    /// Somebody reads them.
    UnderWay,
    /// The codings in which there were names.
    Codings(CodingSet),
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
        let (listed, noticed) = (Listed::No, CodingSet::default());
        let node = Node { parent, name: name.into(), children: BTreeMap::new(), descriptor, listed, noticed };
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
    pub(super) fn listed(&self, id: WatchId) -> Listed {
        match self.nodes.get(&id) {
            Some(Node { listed: Listed::Codings(listed), noticed, .. }) => Listed::Codings(listed.union(*noticed)),
            Some(node) => node.listed,
            None => Listed::No,
        }
    }

    /// Notes what became of listing a directory; one that has gone meanwhile is nothing to note anything of.
    pub(super) fn set_listed(&mut self, id: WatchId, listed: Listed) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.listed = listed;
        }
    }

    /// Something happened to a name in the directory, which perhaps wasn't there before.
    pub(super) fn notice(&mut self, id: WatchId, name: &[u8]) {
        if let (Some(coding), Some(node)) = (Coding::of_name(name), self.nodes.get_mut(&id)) {
            node.noticed = node.noticed.with(coding);
        }
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
        assert_eq!(tree.listed(id), Listed::No);
        tree.set_listed(id, Listed::UnderWay);
        tree.notice(id, b"while.it.is.read.br");
        tree.notice(id, b"without.a.coding");
        assert_eq!(tree.listed(id), Listed::UnderWay);
        tree.set_listed(id, Listed::Codings(gzip));
        assert_eq!(tree.listed(id), Listed::Codings(gzip.with(Coding::Brotli)));
        tree.notice(id, b"later.zst");
        assert_eq!(tree.listed(id), Listed::Codings(CodingSet::ALL));
        tree.drop_below(id, &mut Vec::new());
        tree.set_listed(id, Listed::Codings(gzip));
        assert_eq!(tree.listed(id), Listed::No);
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
