//! Opening names below a root, and nothing else, whatever the names are.
//!
//! The kernel resolves the whole path at once and refuses to leave the root (`openat2`, Linux 5.6). Where a sandbox forbids that call, names
//! are walked one by one and no symbolic link is followed. Nothing is opened for reading before it's known to be a regular file or a
//! directory: opening a FIFO would wake its writer, opening a device may do anything. Whoever knows that already says so ([`Root::open_plain`]).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use leat_logic::serve::policy::SymlinkPolicy;
use leat_logic::serve::version::Version;
use leat_logic::time::UnixTime;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::limits;

/// Whether a call may wait for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// No: what isn't in memory is `EAGAIN`.
    Cached,
    /// Yes: on a thread of the pool.
    Wait,
}

/// The directory that a site serves, held open.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) path: PathBuf,
    descriptor: OwnedFd,
    /// Device and inode: what the path led to when it was opened.
    pub(super) identity: (u64, u64),
    /// Whether the file system is this machine's alone, so that the kernel sees every change.
    local: bool,
    /// Whether the kernel resolves whole paths; sandboxes answer `ENOSYS` or `EPERM`.
    has_openat2: bool,
    /// Who this process is, which doesn't change once it serves.
    user: u32,
    /// Whose directory it is, and most likely what's in it.
    owner: u32,
}

/// Something that exists below a root.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) descriptor: OwnedFd,
    /// Whether it's open for reading, or as a name only.
    is_readable: bool,
    pub(super) kind: FileType,
    pub(super) version: Version,
    pub(super) links: u64,
    /// Whether a symbolic link was on the way: then changes of what it leads to don't show where the name is.
    pub(super) through_symlink: bool,
    owner: u32,
}

impl Root {
    pub(super) fn open(path: &Path) -> Result<Root, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = retry(|| rustix::fs::openat(CWD, path, flags, Mode::empty()))?;
        let stat = rustix::fs::fstat(&descriptor)?;
        let local = rustix::fs::fstatfs(&descriptor).is_ok_and(|statfs| is_local(statfs.f_type as u64));
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let probe = retry(|| rustix::fs::openat2(&descriptor, ".", flags, Mode::empty(), ResolveFlags::BENEATH));
        let has_openat2 = !matches!(probe, Err(Errno::NOSYS | Errno::PERM));
        let (identity, owner) = ((stat.st_dev, stat.st_ino), stat.st_uid);
        let user = rustix::process::geteuid().as_raw();
        Ok(Root { path: path.to_owned(), descriptor, identity, local, has_openat2, user, owner })
    }

    /// Whether changes of a file on `device` can be noticed by watching.
    pub(super) fn is_watchable(&self, device: u64) -> bool {
        self.local && device == self.identity.0
    }

    /// How coarse the times of a file on `device` are, in nanoseconds.
    pub(super) fn granularity_ns(&self, device: u64) -> u64 {
        if self.is_watchable(device) {
            limits::TIMESTAMP_GRANULARITY_LOCAL_NS
        } else {
            limits::TIMESTAMP_GRANULARITY_OTHER_NS
        }
    }

    /// Looks `relative` up (no first slash; empty for the root itself).
    pub(super) fn name(&self, relative: &[u8], symlinks: SymlinkPolicy, patience: Patience) -> Result<Named, Errno> {
        let mut through_symlink = false;
        let mut opened = self.open_below(relative, OFlags::PATH, SymlinkPolicy::Deny, patience);
        if symlinks != SymlinkPolicy::Deny && opened.as_ref().is_err_and(|&errno| errno == Errno::LOOP) {
            through_symlink = true;
            opened = self.open_below(relative, OFlags::PATH, symlinks, patience);
        }
        let named = Named::of(opened?, false, through_symlink)?;
        if named.kind == FileType::Symlink { Err(Errno::LOOP) } else { Ok(named) }
    }

    /// As [`Root::name`] of what is known to be a regular file or a directory, and not behind a link: it's open for reading at once.
    pub(super) fn open_plain(&self, relative: &[u8], patience: Patience) -> Result<Named, Errno> {
        let descriptor = self.open_to_read(relative, self.owner, SymlinkPolicy::Deny, patience)?;
        Named::of(descriptor, true, false)
    }

    /// Opens for reading what was found under the same name to be a regular file or a directory, if it isn't open yet. `ESTALE` when it's
    /// something else by now.
    pub(super) fn read(
        &self,
        relative: &[u8],
        named: Named,
        symlinks: SymlinkPolicy,
        patience: Patience,
    ) -> Result<OwnedFd, Errno> {
        if named.is_readable {
            return Ok(named.descriptor);
        }
        let symlinks = if named.through_symlink { symlinks } else { SymlinkPolicy::Deny };
        let descriptor = self.open_to_read(relative, named.owner, symlinks, patience)?;
        if version_of(&rustix::fs::fstat(&descriptor)?) == named.version { Ok(descriptor) } else { Err(Errno::STALE) }
    }

    /// Opens for reading what is thought to be `owner`'s.
    fn open_to_read(
        &self,
        relative: &[u8],
        owner: u32,
        symlinks: SymlinkPolicy,
        patience: Patience,
    ) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        if owner == self.user {
            // Only a file's owner may ask that reading leave no trace.
            let opened = self.open_below(relative, flags | OFlags::NOATIME, symlinks, patience);
            if !opened.as_ref().is_err_and(|&errno| errno == Errno::PERM) {
                return opened;
            }
        }
        self.open_below(relative, flags, symlinks, patience)
    }

    fn open_below(
        &self,
        relative: &[u8],
        flags: OFlags,
        symlinks: SymlinkPolicy,
        patience: Patience,
    ) -> Result<OwnedFd, Errno> {
        let path = if relative.is_empty() { b"." } else { relative };
        if !self.has_openat2 {
            return walk(self.descriptor.as_fd(), path, flags, symlinks, patience);
        }
        let mut resolve = ResolveFlags::NO_MAGICLINKS;
        match symlinks {
            SymlinkPolicy::Deny => resolve |= ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            SymlinkPolicy::Beneath => resolve |= ResolveFlags::BENEATH,
            SymlinkPolicy::Follow => {}
        }
        if patience == Patience::Cached {
            resolve |= ResolveFlags::CACHED;
        }
        for _ in 0..limits::OPEN_ATTEMPTS_MAX {
            let path = std::ffi::OsStr::from_bytes(path);
            match rustix::fs::openat2(&self.descriptor, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                // A rename elsewhere made the kernel unsure that the root wasn't left.
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if patience == Patience::Wait => {}
                // Before Linux 5.12 the kernel can't be asked not to wait.
                Err(Errno::INVAL) if patience == Patience::Cached => return Err(Errno::AGAIN),
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }
}

impl Named {
    fn of(descriptor: OwnedFd, is_readable: bool, through_symlink: bool) -> Result<Named, Errno> {
        let stat = rustix::fs::fstat(&descriptor)?;
        Ok(Named {
            descriptor,
            is_readable,
            kind: FileType::from_raw_mode(stat.st_mode),
            version: version_of(&stat),
            links: links_of(&stat),
            through_symlink,
            owner: stat.st_uid,
        })
    }
}

/// Opens `path` below `root` name by name, following no link unless anything may be followed.
pub(super) fn walk(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    symlinks: SymlinkPolicy,
    patience: Patience,
) -> Result<OwnedFd, Errno> {
    if patience == Patience::Cached {
        return Err(Errno::AGAIN);
    }
    let flags = flags | OFlags::CLOEXEC;
    if symlinks == SymlinkPolicy::Follow {
        return retry(|| rustix::fs::openat(root, std::ffi::OsStr::from_bytes(path), flags, Mode::empty()));
    }
    let mut directory: Option<OwnedFd> = None;
    let mut names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).peekable();
    while let Some(name) = names.next() {
        if name == b".." {
            return Err(Errno::XDEV);
        }
        let is_last = names.peek().is_none();
        let flags = if is_last { flags } else { OFlags::PATH | OFlags::CLOEXEC } | OFlags::NOFOLLOW;
        let parent = directory.as_ref().map_or(root, AsFd::as_fd);
        let opened = retry(|| rustix::fs::openat(parent, std::ffi::OsStr::from_bytes(name), flags, Mode::empty()))?;
        if !is_last && FileType::from_raw_mode(rustix::fs::fstat(&opened)?.st_mode) == FileType::Symlink {
            return Err(Errno::LOOP);
        }
        directory = Some(opened);
    }
    directory.ok_or(Errno::NOENT)
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    rustix::io::retry_on_intr(&mut call)
}

/// How many names a file has.
#[allow(clippy::useless_conversion, reason = "on some processors the kernel counts in 32 bits")]
pub(super) fn links_of(stat: &Stat) -> u64 {
    u64::from(stat.st_nlink)
}

/// What a file's `stat` says of its version.
pub(super) fn version_of(stat: &Stat) -> Version {
    let time = |seconds, nanoseconds| UnixTime { seconds, nanoseconds };
    Version {
        device: stat.st_dev,
        inode: stat.st_ino,
        len_bytes: u64::try_from(stat.st_size).unwrap_or(0),
        modified: time(stat.st_mtime, stat.st_mtime_nsec as u32),
        changed: time(stat.st_ctime, stat.st_ctime_nsec as u32),
    }
}

/// File systems that only this machine writes to, by their magic numbers (linux/magic.h).
fn is_local(magic: u64) -> bool {
    const EXT: u64 = 0xEF53;
    const XFS: u64 = 0x5846_5342;
    const BTRFS: u64 = 0x9123_683E;
    const F2FS: u64 = 0xF2F5_2010;
    const BCACHEFS: u64 = 0xCA45_1A4E;
    const ZFS: u64 = 0x2FC1_2FC1;
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58F6;
    const SQUASHFS: u64 = 0x7371_7368;
    const EROFS: u64 = 0xE0F5_E1E2;
    [EXT, XFS, BTRFS, F2FS, BCACHEFS, ZFS, TMPFS, RAMFS, SQUASHFS, EROFS].contains(&magic)
}
