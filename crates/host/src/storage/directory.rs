//! Reading a directory for its listing.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use bytes::Bytes;
use leat_logic::serve::limits::LISTING_ENTRIES_MAX;
use leat_logic::serve::listing::{self, Entry};
use leat_logic::serve::path::{LoadRequest, is_hidden};
use rustix::fs::{AtFlags, FileType, RawDir};
use rustix::io::Errno;

use super::open::{Named, Patience, Root, version_of};

/// The page that lists the directory `relative`. Waits for the disk.
pub(super) fn list(root: &Root, request: &LoadRequest, relative: &[u8], named: &Named) -> Result<Bytes, Errno> {
    let descriptor = root.read(relative, named, request.policy().symlinks, Patience::Wait)?;
    let (entries, is_cut) = entries(root, request, relative, &descriptor)?;
    Ok(listing::render(request.path(), entries, is_cut))
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
