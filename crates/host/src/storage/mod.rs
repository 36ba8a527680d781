//! Files for a worker that never waits: what may wait for a disk is asked for here and answered later.
//!
//! [`Storage`] is what the worker is written against; [`disk`] is the kernel's file system, the simulator has a pretend one.

mod account;
mod directory;
pub mod disk;
mod file;
mod hashes;
mod hashing;
pub mod limits;
mod load;
mod load_job;
mod open;
mod pool;
mod priority;
mod residency;
mod watch;
mod watch_tree;

use std::os::fd::{OwnedFd, RawFd};

use bytes::Bytes;
use leat_logic::handoff::FileState;
use leat_logic::serve::etag::ETag;
use leat_logic::serve::path::LoadRequest;
use leat_logic::serve::resource::{Cause, Change, Loaded};
use leat_logic::time::Instant;

pub use self::account::{disk_bytes, disk_bytes_of_all};
pub use self::disk::DiskStorage;
pub use self::file::OpenFile;
pub use self::pool::{Pool, PoolLimits};

/// Tells the answer to one question from others. The asker chooses it; the storage only gives it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Whose account it goes to what a thread of the storage has the disk read for a question. The asker chooses it; the storage only gives it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Payer(pub u32);

/// What became of a question.
#[derive(Clone, Debug)]
pub enum Outcome<T> {
    /// Answered at once: everything was in memory.
    Ready(T),
    /// The answer comes by [`Storage::poll`].
    Pending,
}

/// What the storage has to say.
#[derive(Clone, Debug)]
pub enum StorageEvent<F> {
    /// The answer to [`Storage::load`].
    Loaded {
        /// The question's ticket.
        ticket: Ticket,
        /// None: what the asker holds ([`LoadRequest::unless`]) is as it was, and fresh again.
        loaded: Option<Loaded<F>>,
    },
    /// The answer to [`Storage::make_resident`].
    Resident {
        /// The question's ticket.
        ticket: Ticket,
        /// Whether the bytes are in memory now.
        result: Result<(), Cause>,
    },
    /// The answer to [`Storage::read`].
    Read {
        /// The question's ticket.
        ticket: Ticket,
        /// As many bytes as were asked for, fewer only at the file's end.
        result: Result<Bytes, Cause>,
    },
    /// So much was read from the disk for the answer that comes next. What the asking thread had read itself isn't in it:
    /// see [`disk_bytes`].
    FromDisk {
        /// Who pays for it.
        payer: Payer,
        /// As the kernel counts: with what it read ahead, and without what was in memory.
        bytes: u64,
    },
    /// To be handed to [`leat_logic::serve::cache::Cache::apply`] before any answer that comes after it.
    Changed(Change),
    /// Descriptors are short: [`leat_logic::serve::cache::Cache::release_files`] gives some back.
    DescriptorsShort,
}

/// Files, asked for by one worker. No call waits for a disk or another thread.
///
/// A question without a payer is nobody's: what is read for it isn't counted.
pub trait Storage {
    /// An open file; a clone is the same open file. Its content may change: see [`Storage::unchanged`].
    type File: Clone;

    /// Asks what a path names. `None` inside means that what the asker holds ([`LoadRequest::unless`]) is as it was, and fresh again
    /// ([`leat_logic::serve::cache::Cache::renew`]). Where the kernel has it all in memory, the answer comes at once.
    fn load(
        &mut self,
        ticket: Ticket,
        payer: Option<Payer>,
        request: LoadRequest,
    ) -> Outcome<Option<Loaded<Self::File>>>;

    /// Asks that `len_bytes` bytes of `file` from `offset` be in memory, so that sending them doesn't wait. A range past the file's end
    /// is as good as one up to it.
    fn make_resident(
        &mut self,
        ticket: Ticket,
        payer: Option<Payer>,
        file: &Self::File,
        offset: u64,
        len_bytes: u64,
    ) -> Outcome<Result<(), Cause>>;

    /// Asks for a copy of up to `len_bytes` bytes (at most [`limits::READ_BYTES_MAX`]) of `file` from `offset`.
    fn read(
        &mut self,
        ticket: Ticket,
        payer: Option<Payer>,
        file: &Self::File,
        offset: u64,
        len_bytes: usize,
    ) -> Outcome<Result<Bytes, Cause>>;

    /// Whether `file` still has the content that it was opened with. To be asked before the last piece of a reply goes out: on "no", the
    /// connection has to be cut.
    fn unchanged(&self, file: &Self::File) -> bool;

    /// The tag of `file`'s content, if it had none when it was opened and has been hashed since.
    fn tag(&self, file: &Self::File) -> Option<ETag>;

    /// `file` as it goes along with a reply to another process: a descriptor, and what it was when it was opened. `None`: it can't.
    fn export(&self, file: &Self::File) -> Option<(OwnedFd, FileState)>;

    /// A file that [`Storage::export`] gave elsewhere. `None`: it isn't what it's said to be.
    fn import(&self, descriptor: OwnedFd, state: FileState) -> Option<Self::File>;

    /// Appends what has happened to `out`, in the order in which it has to be handled.
    fn poll(&mut self, out: &mut Vec<StorageEvent<Self::File>>);

    /// Does what has to be done every second; to be called about that often with the monotonic time.
    fn handle_timeout(&mut self, now: Instant);

    /// Becomes readable when an answer waits for [`Storage::poll`].
    fn wake_fd(&self) -> Option<RawFd>;

    /// Becomes readable when a change waits for [`Storage::poll`].
    fn watch_fd(&self) -> Option<RawFd>;
}

#[cfg(test)]
mod tests;
