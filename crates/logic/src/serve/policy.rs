//! What a site allows and prefers about its files: the part of its configuration that this folder reads.

use std::path::PathBuf;

use bytes::Bytes;

use super::coding::Coding;
use super::limits;
use super::mime::MimeTable;

/// What a symbolic link on the way to a file may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SymlinkPolicy {
    /// Lead to anything below the root; one that leads out is refused.
    #[default]
    Beneath,
    /// Nothing: any link is refused.
    Deny,
    /// Lead anywhere the server may read.
    Follow,
}

/// One site's rules for files. Shared by reference: a reload makes new ones, and requests under way keep the old.
#[derive(Clone, Debug)]
pub struct FilePolicy {
    /// The directory that is served. May be a symbolic link that a deployment swaps; it's looked up again every second.
    pub root: PathBuf,
    /// What symbolic links below the root may do.
    pub symlinks: SymlinkPolicy,
    /// Whether names that begin with a dot are served. `/.well-known/` always is (RFC 8615).
    pub dotfiles: bool,
    /// Names tried for a path that ends in a slash, in order.
    pub index: Vec<Box<str>>,
    /// Whether a directory with no index gets a page that lists it.
    pub listing: bool,
    /// Codings in which a file may have a precompressed sibling, in the site's order of preference. Empty: none is looked for.
    pub precompressed: Vec<Coding>,
    /// Media types by name.
    pub mime: MimeTable,
    /// Field lines that go with every reply made of a file, each with its CRLF, already checked; empty for none.
    pub fields: Bytes,
    /// Files up to this size are read into memory, in bytes.
    pub memory_file_bytes_max: u64,
}

impl FilePolicy {
    /// The defaults for a site that serves `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> FilePolicy {
        FilePolicy {
            root: root.into(),
            symlinks: SymlinkPolicy::default(),
            dotfiles: false,
            index: vec!["index.html".into()],
            listing: false,
            precompressed: Vec::new(),
            mime: MimeTable::default(),
            fields: Bytes::new(),
            memory_file_bytes_max: limits::MEMORY_FILE_BYTES_MAX,
        }
    }
}
