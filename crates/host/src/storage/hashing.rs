//! Tags of files, from their content: at once, or of large ones bit by bit, when there's time and whoever pays for the disk may go on.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use leat_logic::serve::etag::{ETag, ETagHasher};
use rustix::io::Errno;

use super::file::OpenFile;
use super::hashes::Hashes;
use super::residency::read_waiting;
use super::{Payer, limits};

/// The tag of a file; none when it changed meanwhile. Waits for the disk.
pub(super) fn hash_file(file: &OpenFile) -> Result<Option<ETag>, Errno> {
    let mut hash = Hash::default();
    while hash.read_on(file)? {}
    Ok(hash.finish(file))
}

/// The hash of the first bytes of a file.
#[derive(Default)]
struct Hash {
    hasher: ETagHasher,
    offset: u64,
    piece: Vec<u8>,
}

impl Hash {
    /// Takes the next bytes; whether there may be more.
    fn read_on(&mut self, file: &OpenFile) -> Result<bool, Errno> {
        self.piece.resize(limits::HASH_READ_BYTES, 0);
        let read = read_waiting(file, &mut self.piece, self.offset)?;
        self.hasher.update(&self.piece[..read]);
        self.offset += read as u64;
        Ok(read == self.piece.len() && self.offset <= file.version().len_bytes)
    }

    fn finish(self, file: &OpenFile) -> Option<ETag> {
        let is_whole = self.offset == file.version().len_bytes && file.is_unchanged();
        is_whole.then(|| self.hasher.finish())
    }
}

/// A file that nobody else hashes until this is dropped.
pub(super) struct Hashing {
    file: Arc<OpenFile>,
    hashes: Arc<Hashes>,
    hash: Box<Hash>,
    /// Whether it stops now and then.
    is_paced: bool,
}

impl Hashing {
    /// None if somebody does or has.
    pub(super) fn begin(file: Arc<OpenFile>, hashes: &Arc<Hashes>, is_paced: bool) -> Option<Hashing> {
        let is_begun = hashes.begin(file.version());
        is_begun.then(|| Hashing { file, hashes: hashes.clone(), hash: Box::default(), is_paced })
    }

    /// Goes on to the end, or for a turn: then what is left is returned.
    pub(super) fn run(mut self) -> Option<Hashing> {
        let until = if self.is_paced { self.hash.offset + limits::HASH_TURN_BYTES } else { u64::MAX };
        while self.hash.read_on(&self.file).ok()? {
            if self.hash.offset >= until {
                // Many may wait for long.
                self.hash.piece = Vec::new();
                return Some(self);
            }
        }
        if let Some(etag) = std::mem::take(&mut self.hash).finish(&self.file) {
            self.hashes.remember(*self.file.version(), etag);
        }
        None
    }
}

impl Drop for Hashing {
    fn drop(&mut self) {
        self.hashes.end(self.file.version());
    }
}

/// Files that are to be hashed for those who pay for what is read: one at a time for each, when that may go on.
#[derive(Default)]
pub(super) struct Turns(BTreeMap<Payer, Turn>);

#[derive(Default)]
struct Turn {
    waiting: VecDeque<Hashing>,
    is_running: bool,
}

impl Turns {
    /// Too many are dropped, and begun again by somebody who asks later.
    pub(super) fn add(&mut self, payer: Payer, hashing: Hashing) {
        let turn = self.0.entry(payer).or_default();
        if turn.waiting.len() < limits::HASHES_WAITING_MAX {
            turn.waiting.push_back(hashing);
        }
    }

    /// What is to run next, unless something does.
    pub(super) fn next(&mut self, payer: Payer) -> Option<Hashing> {
        let turn = self.0.get_mut(&payer).filter(|turn| !turn.is_running)?;
        let next = turn.waiting.pop_front();
        turn.is_running = next.is_some();
        next
    }

    /// What ran has `left` something or is over. Whether anything waits.
    pub(super) fn ran(&mut self, payer: Payer, left: Option<Hashing>) -> bool {
        let Some(turn) = self.0.get_mut(&payer) else { return false };
        turn.is_running = false;
        if let Some(left) = left {
            turn.waiting.push_front(left);
        }
        let waits = !turn.waiting.is_empty();
        if !waits {
            self.0.remove(&payer);
        }
        waits
    }

    /// Nothing can run.
    pub(super) fn give_up(&mut self, payer: Payer) {
        self.0.remove(&payer);
    }
}
