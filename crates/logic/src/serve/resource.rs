//! What a path turned out to be, in the form that replies are made from. A resource is made once and sent many times: its field lines
//! are laid out when it's made.

use std::sync::Arc;

use bytes::Bytes;

use super::coding::{Coding, CodingSet};
use super::etag::ETag;
use super::version::Version;
use crate::http::{EntityTag, HttpDate, Status, Validators};
use crate::time::UnixTime;

/// Fields that say something of the resource that was asked for, or of how long it may be kept.
const NOT_OF_ERRORS: [&[u8]; 5] = [b"accept-ranges", b"cache-control", b"etag", b"expires", b"last-modified"];

/// What a path names. `F` is the storage's open file.
#[derive(Clone, Debug)]
pub enum Found<F> {
    /// Content to send: a file, its precompressed sibling, a directory's index or a listing.
    Resource(Arc<Resource<F>>),
    /// Something that has another name: the path of the right one, percent-encoded, without the query, which the caller adds. Permanent.
    Redirect(Bytes),
    /// A directory whose index isn't sent as it is, as a handler answers for it: the index's path, decoded.
    HandledIndex(Bytes),
    /// Nothing, or nothing that may be known of. 404.
    NotFound,
    /// Something that may not be read or isn't a file. 403.
    Forbidden,
    /// Nobody knows just now.
    Unavailable(Cause),
}

/// Why the storage can't tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Cause {
    /// The queue to the threads that wait for disks is full.
    #[error("the storage queue is full: raise `files.io_threads`, or use a faster disk")]
    QueueFull,
    /// No file descriptor is left.
    #[error("no file descriptor is left: raise the limit on open files (ulimit -n)")]
    DescriptorsExhausted,
    /// The kernel has no memory for it.
    #[error("the kernel has no memory left to open or read a file")]
    MemoryExhausted,
    /// The file changed each time it was read.
    #[error("the file changed each time that it was read")]
    Changing,
    /// The disk or file system reported an error, by its number.
    #[error("the file system reported an error (errno {0})")]
    Failed(i32),
}

impl Cause {
    /// The status of a reply that tells of it: 503 where trying again can help, 500 otherwise.
    #[must_use]
    pub fn status(self) -> Status {
        if matches!(self, Cause::Failed(_)) { Status::INTERNAL_SERVER_ERROR } else { Status::SERVICE_UNAVAILABLE }
    }
}

/// Where the bytes are.
#[derive(Clone, Debug)]
pub enum Content<F> {
    /// In memory, all of them.
    Memory(Bytes),
    /// In a file, from offset 0. It may change while it's being sent: `Storage::unchanged` tells.
    File(F),
}

/// What is known of a resource before its field lines are laid out.
#[derive(Clone, Debug)]
pub struct Description {
    /// Length of the content as sent, in bytes.
    pub len_bytes: u64,
    /// Strong validator; none when the content hasn't been hashed or can't be pinned down.
    pub etag: Option<ETag>,
    /// Last modification; none for what has no such time, or one in the future (RFC 9110 section 8.8.2.1).
    pub modified: Option<UnixTime>,
    /// Media type, with its charset.
    pub content_type: Bytes,
    /// The coding of a precompressed sibling.
    pub coding: Option<Coding>,
    /// The codings in which there are siblings: where there are any, another client could have got another one.
    pub siblings: CodingSet,
}

/// Content with what a reply says about it.
#[derive(Clone, Debug)]
pub struct Resource<F> {
    /// Length, validators, type.
    pub description: Description,
    /// The bytes, or where they are.
    pub content: Content<F>,
    fields: Bytes,
    validators_end: usize,
    type_start: usize,
    type_end: usize,
}

impl<F> Resource<F> {
    /// Lays out the field lines, with those that the site adds: [`super::policy::FilePolicy::fields`].
    #[must_use]
    pub fn new(description: Description, content: Content<F>, added: &[u8]) -> Resource<F> {
        let mut fields = Vec::with_capacity(256 + added.len());
        if let Some(etag) = &description.etag {
            line(&mut fields, b"ETag", etag.as_bytes());
        }
        if let Some(modified) = description.modified {
            line(&mut fields, b"Last-Modified", &HttpDate::from(modified).format());
        }
        if !description.siblings.is_empty() {
            line(&mut fields, b"Vary", b"Accept-Encoding");
        }
        fields.extend_from_slice(added);
        let validators_end = fields.len();
        line(&mut fields, b"Accept-Ranges", b"bytes");
        if let Some(coding) = description.coding {
            line(&mut fields, b"Content-Encoding", coding.name().as_bytes());
        }
        let type_start = fields.len();
        line(&mut fields, b"Content-Type", &description.content_type);
        let type_end = fields.len();
        line(&mut fields, b"Content-Length", description.len_bytes.to_string().as_bytes());
        Resource { description, content, fields: fields.into(), validators_end, type_start, type_end }
    }

    /// What a condition is evaluated against.
    #[must_use]
    pub fn validators(&self) -> Validators<'_> {
        let description = &self.description;
        let entity_tag = description.etag.as_ref().and_then(|etag| EntityTag::parse(etag.as_bytes()));
        Validators { entity_tag, last_modified: description.modified }
    }

    /// Field lines of a 200, each with its CRLF: validators, site's fields, Accept-Ranges, Content-Encoding, Content-Type, Content-Length.
    #[must_use]
    pub fn fields_whole(&self) -> &Bytes {
        &self.fields
    }

    /// Appends the field lines of a reply whose page for an error it is: those that are true of the page. Of what was asked for there is nothing
    /// to tell, and how long a cache may keep an error isn't what the site says of its files.
    pub fn push_fields_of_error(&self, out: &mut Vec<u8>) {
        for line in self.fields.split_inclusive(|&byte| byte == b'\n') {
            let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
            if !NOT_OF_ERRORS.iter().any(|known| name.eq_ignore_ascii_case(known)) {
                out.extend_from_slice(line);
            }
        }
    }

    /// Field lines of a 206 with one range: all but Content-Length.
    #[must_use]
    pub fn fields_range(&self) -> &[u8] {
        &self.fields[..self.type_end]
    }

    /// Field lines of a 206 with several ranges: all but Content-Type and Content-Length.
    #[must_use]
    pub fn fields_multipart(&self) -> &[u8] {
        &self.fields[..self.type_start]
    }

    /// Field lines of a 304: validators, Vary and the site's fields (RFC 9110 section 15.4.5).
    #[must_use]
    pub fn fields_not_modified(&self) -> &[u8] {
        &self.fields[..self.validators_end]
    }
}

fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// A directory that the storage watches. Never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatchId(pub u64);

/// Which changes make an answer untrue: those in one directory, to one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The deepest directory of the path that exists.
    pub directory: WatchId,
    /// How many bytes of the path name that directory, its final slash included; the name after them is the one to notice.
    pub directory_bytes: u16,
}

/// How long an answer may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// For this one reply.
    No,
    /// For so long without asking again, and until a change is noticed.
    For {
        /// From the moment of the answer, in nanoseconds.
        fresh_ns: u64,
        /// What is watched; none where nothing can be, and only asking again helps.
        watch: Option<Watch>,
    },
}

/// The storage's answer to a [`super::path::LoadRequest`].
#[derive(Clone, Debug)]
pub struct Loaded<F> {
    /// What was found.
    pub found: Found<F>,
    /// The state of the file behind it; none where there's no such thing, and asking again means loading again.
    pub version: Option<Version>,
    /// How long it may be kept.
    pub keep: Keep,
}

/// What has changed in a watched place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// One name in one directory came, went or was written to.
    Name {
        /// The directory.
        directory: WatchId,
        /// The name in it.
        name: Bytes,
    },
    /// A directory and its name are no longer what they were. Directories below it are reported one by one.
    Directory(WatchId),
    /// Anything may have changed: a root was swapped, or notices were lost.
    Everything,
}
