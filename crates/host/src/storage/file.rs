//! A file that is being served.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use leat_logic::handoff::FileState;
use leat_logic::serve::version::Version;

use super::open::{links_of, version_of};

/// An open regular file, with what was true of it when it was opened.
#[derive(Debug)]
pub struct OpenFile {
    descriptor: OwnedFd,
    version: Version,
    links: u64,
    /// Whether what was read of it from its opening on is what its version stands for.
    settled: AtomicBool,
}

impl OpenFile {
    pub(super) fn new(descriptor: OwnedFd, version: Version, links: u64) -> OpenFile {
        OpenFile { descriptor, version, links, settled: AtomicBool::new(false) }
    }

    /// A file that another process had open, with what was true of it when it was opened there. `None` when it's another file.
    pub(super) fn import(descriptor: OwnedFd, state: FileState) -> Option<OpenFile> {
        let now = version_of(&rustix::fs::fstat(&descriptor).ok()?);
        let FileState { version, links } = state;
        let is_same = (now.device, now.inode) == (version.device, version.inode);
        is_same.then(|| OpenFile::new(descriptor, version, links))
    }

    /// It can't have changed unseen since it was opened: [`Version::is_settled_at`].
    pub(super) fn note_settled(&self) {
        self.settled.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Relaxed)
    }

    /// Another descriptor of it, and what was true of it when it was opened.
    pub(super) fn export(&self) -> Option<(OwnedFd, FileState)> {
        let descriptor = self.descriptor.try_clone().ok()?;
        Some((descriptor, FileState { version: self.version, links: self.links }))
    }

    /// The state in which it was opened.
    #[must_use]
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Whether the content is still what it was. A file that is deleted or replaced by another under its name is: its link count shows
    /// why its change time moved. One whose change time moved for no such reason isn't, even with its modification time as it was: times
    /// can be set back.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        let Ok(stat) = rustix::fs::fstat(&self.descriptor) else { return false };
        let now = version_of(&stat);
        now.len_bytes == self.version.len_bytes
            && now.modified == self.version.modified
            && (now.changed == self.version.changed || links_of(&stat) != self.links)
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsRawFd for OpenFile {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}
