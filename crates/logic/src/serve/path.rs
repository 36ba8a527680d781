//! Which paths are looked for at all. Comes after `http::target`, which has decoded the path once and resolved its dot segments;
//! before the storage, which keeps the kernel from leaving the root whatever the path says.

use std::sync::Arc;

use bytes::Bytes;

use super::coding::CodingOrder;
use super::limits::{PATH_BYTES_MAX, PATH_SEGMENTS_MAX, SEGMENT_BYTES_MAX};
use super::policy::FilePolicy;
use super::resource::Found;
use super::version::Known;
use crate::http::encode_path;

/// A question to the storage that has passed this file's checks: what does this path name, for this site and this client?
#[derive(Clone, Debug)]
pub struct LoadRequest {
    policy: Arc<FilePolicy>,
    path: Bytes,
    codings: CodingOrder,
    known: Option<Known>,
}

impl LoadRequest {
    /// Checks `path` (decoded, beginning with a slash) against `policy`.
    ///
    /// # Errors
    ///
    /// The answer itself, where no file has to be looked for: 404 for a path that can't exist, has a hidden name or `..` in it; a redirect
    /// for one with empty segments, since any number of such paths would name one file.
    pub fn new<F>(policy: &Arc<FilePolicy>, path: &[u8], codings: CodingOrder) -> Result<LoadRequest, Found<F>> {
        if path.first() != Some(&b'/') || path.len() > PATH_BYTES_MAX || memchr::memchr(0, path).is_some() {
            return Err(Found::NotFound);
        }
        let mut empty_segments = false;
        let last = path.iter().filter(|&&byte| byte == b'/').count() - 1;
        if last >= PATH_SEGMENTS_MAX {
            return Err(Found::NotFound);
        }
        for (place, segment) in path[1..].split(|&byte| byte == b'/').enumerate() {
            empty_segments |= segment.is_empty() && place != last;
            let is_well_known = place == 0 && segment == b".well-known";
            let is_impossible = segment == b"." || segment == b".." || segment.len() > SEGMENT_BYTES_MAX;
            if is_impossible || (is_hidden(segment, policy) && !is_well_known) {
                return Err(Found::NotFound);
            }
        }
        if empty_segments {
            return Err(Found::Redirect(without_empty_segments(path)));
        }
        Ok(LoadRequest { policy: policy.clone(), path: Bytes::copy_from_slice(path), codings, known: None })
    }

    /// The same question from somebody who holds an answer: "as it was" is answer enough.
    #[must_use]
    pub fn unless(mut self, known: Option<Known>) -> LoadRequest {
        self.known = known;
        self
    }

    /// The site's rules.
    #[must_use]
    pub fn policy(&self) -> &Arc<FilePolicy> {
        &self.policy
    }

    /// The path from the root, beginning with a slash: no NUL, no `.`, `..` or empty segment, no name over the kernel's limit. A slash at
    /// the end means a directory.
    #[must_use]
    pub fn path(&self) -> &Bytes {
        &self.path
    }

    /// The same path without its first slash, as the kernel wants it below a root.
    #[must_use]
    pub fn relative(&self) -> &[u8] {
        &self.path[1..]
    }

    /// The codings to try, best first.
    #[must_use]
    pub fn codings(&self) -> CodingOrder {
        self.codings
    }

    /// What the asker holds.
    #[must_use]
    pub fn known(&self) -> Option<&Known> {
        self.known.as_ref()
    }
}

/// Whether a listing may show `name`, and a request may name it below the root's first level.
#[must_use]
pub fn is_hidden(name: &[u8], policy: &FilePolicy) -> bool {
    name.first() == Some(&b'.') && !policy.dotfiles
}

/// The location of the directory that `path` names without a final slash; percent-encoded, no query.
#[must_use]
pub fn directory_location(path: &[u8]) -> Bytes {
    let mut location = Vec::with_capacity(path.len() + 16);
    encode_path(path, &mut location);
    location.push(b'/');
    location.into()
}

fn without_empty_segments(path: &[u8]) -> Bytes {
    let mut shorter = Vec::with_capacity(path.len());
    for &byte in path {
        if byte != b'/' || shorter.last() != Some(&b'/') {
            shorter.push(byte);
        }
    }
    let mut location = Vec::with_capacity(shorter.len());
    encode_path(&shorter, &mut location);
    location.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(path: &[u8]) -> Result<Bytes, Found<()>> {
        let policy = Arc::new(FilePolicy::new("/srv"));
        LoadRequest::new::<()>(&policy, path, CodingOrder::NONE).map(|request| request.path().clone())
    }

    #[test]
    fn ordinary_paths_pass() {
        for path in [
            &b"/"[..],
            b"/index.html",
            b"/a/b/",
            b"/a b/\xff\n",
            b"/a..b/c.",
            b"/.well-known/acme-challenge/x",
            b"/...x/../",
        ] {
            let expected = !path.starts_with(b"/...");
            assert_eq!(verdict(path).is_ok(), expected, "{}", path.escape_ascii());
        }
    }

    #[test]
    fn hidden_and_impossible_names_are_not_found() {
        let long_name = [&b"/"[..], &[b'a'; SEGMENT_BYTES_MAX + 1]].concat();
        let long_path = b"/abcdefg".repeat(PATH_BYTES_MAX / 8 + 1);
        let deep = b"/a".repeat(PATH_SEGMENTS_MAX + 1);
        let shapes: &[&[u8]] = &[
            b"",
            b"index.html",
            b"/..",
            b"/../etc/passwd",
            b"/a/../b",
            b"/a/./b",
            b"/.",
            b"/.git/config",
            b"/a/.env",
            b"/.well-known/.x",
            b"/a/.well-known/x",
            b"/a\0.html",
            b"/a/..",
            &long_name,
            &long_path,
            &deep,
        ];
        for path in shapes {
            assert!(matches!(verdict(path), Err(Found::NotFound)), "{}", path.escape_ascii());
        }
    }

    #[test]
    fn dotfiles_are_served_where_the_site_says_so_but_never_dot_dot() {
        let policy = Arc::new(FilePolicy { dotfiles: true, ..FilePolicy::new("/srv") });
        assert!(LoadRequest::new::<()>(&policy, b"/.git/config", CodingOrder::NONE).is_ok());
        assert!(LoadRequest::new::<()>(&policy, b"/.git/../..", CodingOrder::NONE).is_err());
    }

    #[test]
    fn empty_segments_redirect_to_one_spelling_that_stays_on_this_host() {
        for (path, location) in
            [(&b"//"[..], &b"/"[..]), (b"//evil.example/x", b"/evil.example/x"), (b"/a//b///c//", b"/a/b/c/")]
        {
            let Err(Found::Redirect(found)) = verdict(path) else { panic!("{}", path.escape_ascii()) };
            assert_eq!(found, location);
        }
    }

    #[test]
    fn a_location_has_no_byte_that_could_end_a_field_or_name_a_host() {
        assert_eq!(directory_location(b"/a b/\r\n\"<%2e?#'&\\"), &b"/a%20b/%0D%0A%22%3C%252e%3F%23'&%5C/"[..]);
        assert_eq!(directory_location("/ü".as_bytes()), &b"/%C3%BC/"[..]);
    }
}
