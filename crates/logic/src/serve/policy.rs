//! What a site allows and prefers about its files: the part of its configuration that this folder reads.

use std::path::PathBuf;

use bytes::Bytes;

use super::coding::Coding;
use super::limits;
use super::mime::MimeTable;
use super::path_pattern::PathPattern;

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

/// A header that a site adds. Name and value are already checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedHeader {
    /// The paths, as they are asked for, with whose files it goes.
    pub paths: PathPattern,
    /// A token.
    pub name: Bytes,
    /// What it says there.
    pub value: Bytes,
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
    /// Paths that handlers answer for: an index among them is a program's source, perhaps, and never sent.
    pub handled: Vec<PathPattern>,
    /// Whether a directory with no index gets a page that lists it.
    pub listing: bool,
    /// Codings in which a file may have a precompressed sibling, in the site's order of preference. Empty: none is looked for.
    pub precompressed: Vec<Coding>,
    /// Media types by name.
    pub mime: MimeTable,
    /// What goes with replies that are made of a file.
    pub headers: Vec<AddedHeader>,
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
            handled: Vec::new(),
            listing: false,
            precompressed: Vec::new(),
            mime: MimeTable::default(),
            headers: Vec::new(),
            memory_file_bytes_max: limits::MEMORY_FILE_BYTES_MAX,
        }
    }

    /// Whether a handler answers for the file at `path`.
    #[must_use]
    pub fn is_handled(&self, path: &[u8]) -> bool {
        self.handled.iter().any(|paths| paths.split(path).is_some())
    }

    /// Whether a handler answers for an index that the directory at `path` may have.
    #[must_use]
    pub fn may_have_handled_index(&self, path: &[u8]) -> bool {
        let is_handled = |index: &str| self.is_handled(&[path, index.as_bytes()].concat());
        path.ends_with(b"/") && !self.handled.is_empty() && self.index.iter().any(|index| is_handled(index))
    }

    /// The field lines that go with the file at `path`, each with its CRLF. Of several headers with one name the last that fits counts.
    #[must_use]
    pub fn fields(&self, path: &[u8]) -> Vec<u8> {
        let fit: Vec<_> = self.headers.iter().filter(|header| header.paths.split(path).is_some()).collect();
        let mut lines = Vec::new();
        for (place, header) in fit.iter().enumerate() {
            if !fit[place + 1..].iter().any(|later| later.name.eq_ignore_ascii_case(&header.name)) {
                [&header.name[..], b": ", &header.value, b"\r\n"].iter().for_each(|part| lines.extend_from_slice(part));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_headers_with_one_name_the_last_that_fits_counts() {
        let header = |paths, name: &'static str, value: &'static str| AddedHeader {
            paths: PathPattern::parse(paths).expect("a pattern"),
            name: name.into(),
            value: value.into(),
        };
        let headers = vec![
            header("/*", "Cache-Control", "no-cache"),
            header("/*", "X-A", "1"),
            header("*.css", "cache-control", "max-age=60"),
            header("/old/*", "Cache-Control", "no-store"),
        ];
        let policy = FilePolicy { headers, ..FilePolicy::new("/srv") };
        let fields = |path: &str| String::from_utf8(policy.fields(path.as_bytes())).expect("ASCII");
        assert_eq!(fields("/"), "Cache-Control: no-cache\r\nX-A: 1\r\n");
        assert_eq!(fields("/a.css"), "X-A: 1\r\ncache-control: max-age=60\r\n");
        assert_eq!(fields("/old/a.css"), "X-A: 1\r\nCache-Control: no-store\r\n");
        assert_eq!(FilePolicy::new("/srv").fields(b"/"), b"");
    }
}
