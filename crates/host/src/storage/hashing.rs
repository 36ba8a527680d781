//! Tags of files, from their content.

use std::sync::Arc;

use leat_logic::serve::etag::{ETag, ETagHasher};
use rustix::io::Errno;

use super::file::OpenFile;
use super::hashes::Hashes;
use super::limits;
use super::residency::{is_resident, read_waiting};

/// The tag of a file; none when it changed meanwhile. Waits for the disk.
pub(super) fn hash_file(file: &OpenFile) -> Result<Option<ETag>, Errno> {
    let mut hasher = ETagHasher::default();
    let mut piece = vec![0; limits::HASH_READ_BYTES];
    let mut offset = 0;
    loop {
        let read = read_waiting(file, &mut piece, offset)?;
        hasher.update(&piece[..read]);
        offset += read as u64;
        if read < piece.len() || offset > file.version().len_bytes {
            break;
        }
    }
    let is_whole = offset == file.version().len_bytes && file.is_unchanged();
    Ok(is_whole.then(|| hasher.finish()))
}

/// A file that nobody else hashes until this is dropped.
pub(super) struct Hashing {
    file: Arc<OpenFile>,
    hashes: Arc<Hashes>,
    is_paid: bool,
}

impl Hashing {
    /// None if somebody does or has. `is_paid`: whoever asked for the file pays for what is read. Nobody waits for the tag, and those who wait for what the
    /// quota has left would wait behind all of the file: it's hashed once it's in memory, and until then by somebody who asks later.
    pub(super) fn begin(file: Arc<OpenFile>, hashes: &Arc<Hashes>, is_paid: bool) -> Option<Hashing> {
        hashes.begin(file.version()).then(|| Hashing { file, hashes: hashes.clone(), is_paid })
    }

    pub(super) fn run(self) {
        let version = self.file.version();
        if self.is_paid && !is_resident(&self.file, 0, version.len_bytes) {
            return;
        }
        if let Ok(Some(etag)) = hash_file(&self.file) {
            self.hashes.remember(*version, etag);
        }
    }
}

impl Drop for Hashing {
    fn drop(&mut self) {
        self.hashes.end(self.file.version());
    }
}
