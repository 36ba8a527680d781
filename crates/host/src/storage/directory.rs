//! Reading a directory: for its listing, and to learn what its names say before any of them is looked up.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use bytes::Bytes;
use leat_logic::serve::coding::{Coding, CodingSet};
use leat_logic::serve::limits::LISTING_ENTRIES_MAX;
use leat_logic::serve::listing::{self, Entry};
use leat_logic::serve::path::{LoadRequest, is_hidden};
use leat_logic::serve::policy::SymlinkPolicy;
use rustix::fs::{AtFlags, FileType, RawDir};
use rustix::io::Errno;

use super::limits;
use super::open::{Named, Patience, Root, version_of};
use super::watch_tree::Names;

/// The page that lists the directory `relative`. Waits for the disk.
pub(super) fn list(root: &Root, request: &LoadRequest, relative: &[u8], named: Named) -> Result<Bytes, Errno> {
    let descriptor = root.read(relative, named, request.policy().symlinks, Patience::Wait)?;
    let (entries, is_cut) = entries(root, request, relative, &descriptor)?;
    Ok(listing::render(request.path(), entries, is_cut))
}

/// What the names in the directory `relative` say; nothing where that can't be told, or costs too much. Waits for the disk.
pub(super) fn names(root: &Root, relative: &[u8]) -> Names {
    try_names(root, relative).unwrap_or(Names::UNKNOWN)
}

fn try_names(root: &Root, relative: &[u8]) -> Result<Names, Errno> {
    let named = root.name(relative, SymlinkPolicy::Deny, Patience::Wait)?;
    if named.kind != FileType::Directory {
        return Err(Errno::NOTDIR);
    }
    let directory = root.read(relative, named, SymlinkPolicy::Deny, Patience::Wait)?;
    let mut buffer = [MaybeUninit::uninit(); 32 << 10];
    let mut read = RawDir::new(directory.as_fd(), &mut buffer);
    let mut names = Names { codings: CodingSet::default(), are_plain: true };
    let mut count = 0;
    while let Some(entry) = read.next() {
        count += 1;
        if count > limits::NAMES_LISTED_MAX {
            return Err(Errno::FBIG);
        }
        let entry = entry?;
        if let Some(coding) = Coding::of_name(entry.file_name().to_bytes()) {
            names.codings = names.codings.with(coding);
        }
        names.are_plain &= matches!(entry.file_type(), FileType::RegularFile | FileType::Directory);
    }
    Ok(names)
}

fn entries(
    root: &Root,
    request: &LoadRequest,
    relative: &[u8],
    directory: &OwnedFd,
) -> Result<(Vec<Entry>, bool), Errno> {
    let mut entries = Vec::new();
    let mut buffer = [MaybeUninit::uninit(); 32 << 10];
    let mut read = RawDir::new(directory.as_fd(), &mut buffer);
    while let Some(entry) = read.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." || is_hidden(name, request.policy()) {
            continue;
        }
        if entries.len() == LISTING_ENTRIES_MAX {
            return Ok((entries, true));
        }
        let Some((kind, version)) = stat(root, request, relative, directory, name) else { continue };
        if matches!(kind, FileType::RegularFile | FileType::Directory) {
            entries.push(Entry {
                name: name.to_vec(),
                is_directory: kind == FileType::Directory,
                len_bytes: version.len_bytes,
                modified: version.modified,
            });
        }
    }
    Ok((entries, false))
}

/// What a name leads to, if a request for it would be answered; none when it wouldn't or it has gone.
fn stat(
    root: &Root,
    request: &LoadRequest,
    relative: &[u8],
    directory: &OwnedFd,
    name: &[u8],
) -> Option<(FileType, leat_logic::serve::version::Version)> {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind != FileType::Symlink {
        return Some((kind, version_of(&stat)));
    }
    let separator: &[u8] = if relative.is_empty() { b"" } else { b"/" };
    let named = root.name(&[relative, separator, name].concat(), request.policy().symlinks, Patience::Wait).ok()?;
    Some((named.kind, named.version))
}
