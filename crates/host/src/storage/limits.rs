//! Every limit of the storage that a configuration doesn't set, in one place.

use std::time::Duration;

/// Most bytes that one [`super::Storage::read`] gives.
pub const READ_BYTES_MAX: usize = 256 << 10;

/// Threads that wait for disks, for the whole process. They start when there's work and stay.
pub const POOL_THREADS_MAX: usize = 32;
/// How many of them may be busy bringing large files into memory, so that names and small files always find one.
pub const POOL_READ_THREADS_MAX: usize = 24;
/// Questions that wait for a thread in each lane, for the whole process; past it, they're refused.
pub const POOL_QUEUE_MAX: usize = 4_096;
/// Stack of a thread of the pool, in bytes.
pub const POOL_STACK_BYTES: usize = 256 << 10;

/// Directories that one worker watches; past it, the one that has been watched longest is given up.
pub const WATCHES_MAX: usize = 16_384;
/// Names that are read of a directory to learn what they say; where there are more, each file and each sibling is looked up.
pub const NAMES_LISTED_MAX: usize = 16_384;
/// How long it takes at least until the names of a directory are read again because there are new ones.
pub const NAMES_LISTED_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Loads under way for one worker; past it, they're refused.
pub const LOADS_IN_FLIGHT_MAX: usize = 4_096;

/// How often a name is looked up again when a rename elsewhere confuses the kernel.
pub const OPEN_ATTEMPTS_MAX: usize = 16;

/// Hashes of large files that are remembered, for the whole process.
pub const HASHES_REMEMBERED_MAX: usize = 65_536;
/// How often a small file is read again that changes while it's being read.
pub const READ_ATTEMPTS_MAX: usize = 3;

/// How much older than its file a precompressed sibling may be: a deployment sets times in no particular order. In seconds.
pub const SIBLING_AGE_SECONDS_MAX: i64 = 2;

/// How coarse the times of local file systems are, with a margin: the kernel's tick is at most 10 ms. In nanoseconds.
pub const TIMESTAMP_GRANULARITY_LOCAL_NS: u64 = 20_000_000;
/// The same where another machine or an old format keeps the time (FAT: 2 s). In nanoseconds.
pub const TIMESTAMP_GRANULARITY_OTHER_NS: u64 = 2_500_000_000;

/// How far apart the bytes are that are looked at where the kernel says that every page is there or on its way.
pub const RESIDENCY_PROBE_STRIDE_BYTES: u64 = 512 << 10;
/// How far apart they are where the kernel says nothing: the least that it reads ahead.
pub const RESIDENCY_PROBE_STRIDE_ALONE_BYTES: u64 = 16 << 10;
/// Bytes that are read at a time to bring a file into memory.
pub const RESIDENCY_READ_BYTES: usize = 128 << 10;
/// Bytes that are read at a time for a hash.
pub const HASH_READ_BYTES: usize = 128 << 10;

/// Notices of change that are read at a time, in bytes.
pub const NOTICE_BYTES: usize = 16 << 10;
/// Notices after which the worker gets on with its work before it reads more.
pub const NOTICES_MAX: usize = 4_096;
