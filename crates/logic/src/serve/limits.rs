//! Every limit of `serve` that a configuration doesn't set, in one place.

/// Longest decoded path that is looked for, in bytes: the kernel's own limit (PATH_MAX) less room for a root and a sibling's suffix.
pub const PATH_BYTES_MAX: usize = 3_072;
/// Longest name between two slashes, in bytes (NAME_MAX of Linux).
pub const SEGMENT_BYTES_MAX: usize = 255;
/// Most directories in a path: each costs a watch and a step of the way.
pub const PATH_SEGMENTS_MAX: usize = 128;

/// Files up to this size are read into memory and served from there, in bytes.
pub const MEMORY_FILE_BYTES_MAX: u64 = 64 << 10;
/// Files up to this size are hashed before their first reply; larger ones have no ETag until a background hash is done. In bytes.
pub const HASH_AT_LOAD_BYTES_MAX: u64 = 4 << 20;

/// Most entries of a directory that a listing shows; past it, the page says that it was cut.
pub const LISTING_ENTRIES_MAX: usize = 5_000;

/// How long an answer is used without asking the file system whether it's still true. In nanoseconds.
pub const FRESH_NS: u64 = 1_000_000_000;

/// Bytes of small files that one worker keeps.
pub const CACHE_BYTES_MAX: usize = 64 << 20;
/// Files in memory that one worker keeps.
pub const CACHE_MEMORY_ENTRIES_MAX: usize = 65_536;
/// Open files that one worker keeps.
pub const CACHE_OPEN_FILES_MAX: usize = 1_024;
/// Answers without a file (404, redirects) that one worker keeps. Anybody can make as many of these as they like: small, and it also
/// bounds what a flood of names that hash alike can cost a lookup.
pub const CACHE_ABSENT_ENTRIES_MAX: usize = 1_024;
/// What a cached answer is taken to cost beside its content and its path, in bytes.
pub const CACHE_ENTRY_OVERHEAD_BYTES: usize = 512;
