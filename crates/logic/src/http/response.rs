//! Writes reply heads (RFC 9112 sections 4 and 5) into the caller's buffer. Names and values are of types that hold no line end, so
//! nothing that a client sent can add a line.

use super::date::{CachedDate, HttpDate};
use super::entity_tag::EntityTag;
use super::field::{FieldName, FieldValue};
use super::outcome::Persistence;
use super::range::ByteRange;
use super::status::Status;

/// The interim reply that lets a client send its body (RFC 9110 section 15.2.1).
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Writes an interim reply of another server (RFC 9110 section 15.2): its field lines, each with its CRLF, are all that it has.
pub fn write_interim(out: &mut Vec<u8>, status: Status, lines: &[u8]) {
    write_status_line(out, status);
    out.extend_from_slice(lines);
    out.extend_from_slice(b"\r\n");
}

fn write_status_line(out: &mut Vec<u8>, status: Status) {
    match status.line() {
        Some(line) => out.extend_from_slice(line.as_bytes()),
        None => {
            out.extend_from_slice(b"HTTP/1.1 ");
            push_decimal(out, u64::from(status.code()));
            out.extend_from_slice(b" \r\n");
        }
    }
}

/// A head under construction. Fields stand in the order of the calls.
#[derive(Debug)]
#[must_use = "a head ends with `finish`"]
pub struct HeadWriter<'v> {
    out: &'v mut Vec<u8>,
}

impl<'v> HeadWriter<'v> {
    /// Status line, Server and Date.
    pub fn start(out: &'v mut Vec<u8>, status: Status, date: &CachedDate) -> HeadWriter<'v> {
        write_status_line(out, status);
        // One copy for what never changes but the date.
        let mut block = *b"Server: leat\r\nDate: _____________________________\r\n";
        block[20..49].copy_from_slice(date.as_bytes());
        out.extend_from_slice(&block);
        HeadWriter { out }
    }

    /// Any field.
    pub fn field(self, name: FieldName<'_>, value: FieldValue<'_>) -> HeadWriter<'v> {
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
        self.line(value.as_bytes())
    }

    /// Lines that were made with a `HeadWriter` before, as a cache of heads holds them.
    pub fn prepared(self, lines: &PreparedFields) -> HeadWriter<'v> {
        self.out.extend_from_slice(&lines.bytes);
        self
    }

    /// `Content-Length`. Not for 1xx and 204.
    pub fn content_length(self, bytes: u64) -> HeadWriter<'v> {
        self.out.extend_from_slice(b"Content-Length: ");
        push_decimal(self.out, bytes);
        self.line(b"")
    }

    /// `Content-Type`.
    pub fn content_type(self, value: FieldValue<'_>) -> HeadWriter<'v> {
        self.out.extend_from_slice(b"Content-Type: ");
        self.line(value.as_bytes())
    }

    /// `ETag`.
    pub fn entity_tag(self, tag: &EntityTag<'_>) -> HeadWriter<'v> {
        // The fields of a tag are open: what is written is checked here.
        let Some(strong) = EntityTag::strong(tag.opaque) else { return self };
        self.out.extend_from_slice(if tag.weak { b"ETag: W/\"" } else { b"ETag: \"" });
        self.out.extend_from_slice(strong.opaque);
        self.line(b"\"")
    }

    /// `Last-Modified`.
    pub fn last_modified(self, date: HttpDate) -> HeadWriter<'v> {
        self.out.extend_from_slice(b"Last-Modified: ");
        self.line(&date.format())
    }

    /// `Content-Range` of a 206 with one part.
    pub fn content_range(self, range: ByteRange, complete_length: u64) -> HeadWriter<'v> {
        self.out.extend_from_slice(b"Content-Range: ");
        range.push_content_range(self.out, complete_length);
        self.line(b"")
    }

    /// `Content-Range` of a 416.
    pub fn unsatisfied_range(self, complete_length: u64) -> HeadWriter<'v> {
        self.out.extend_from_slice(b"Content-Range: bytes */");
        push_decimal(self.out, complete_length);
        self.line(b"")
    }

    /// `Connection`, where one is needed.
    pub fn persistence(self, persistence: Persistence) -> HeadWriter<'v> {
        match persistence {
            Persistence::Persistent => {}
            Persistence::KeepAlive => self.out.extend_from_slice(b"Connection: keep-alive\r\n"),
            Persistence::Close => self.out.extend_from_slice(b"Connection: close\r\n"),
        }
        self
    }

    /// The empty line.
    pub fn finish(self) {
        self.out.extend_from_slice(b"\r\n");
    }

    fn line(self, rest: &[u8]) -> HeadWriter<'v> {
        self.out.extend_from_slice(rest);
        self.out.extend_from_slice(b"\r\n");
        self
    }
}

/// Field lines that are written once and sent often, such as those of a cached file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreparedFields {
    bytes: Vec<u8>,
}

impl PreparedFields {
    /// The lines that `write` makes.
    pub fn new(write: impl for<'v> FnOnce(HeadWriter<'v>) -> HeadWriter<'v>) -> PreparedFields {
        let mut bytes = Vec::new();
        let _ = write(HeadWriter { out: &mut bytes });
        PreparedFields { bytes }
    }

    /// Their length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Appends a number in decimal digits.
pub(super) fn push_decimal(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let start = write_decimal(&mut digits, number);
    out.extend_from_slice(&digits[start..]);
}

/// Writes a number at the end of `digits`; returns where it starts.
pub(super) fn write_decimal(digits: &mut [u8; 20], mut number: u64) -> usize {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10).to_le_bytes()[0];
        number /= 10;
        if number == 0 {
            return at;
        }
    }
}
