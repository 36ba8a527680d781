//! HTTP/1.1 (RFC 9110, RFC 9112) as a state machine without I/O: bytes and points in time come in, requests and decisions come out.
//!
//! Decides what is a request, what is refused and why, where a body ends, which part of a representation is asked for, and whether a
//! connection goes on. Leaves to others: where bytes are kept, what a resource allows, what is answered, and every system call.

mod body;
pub mod client;
mod conditional;
mod connection;
mod date;
mod diagnosis;
mod entity_tag;
mod field;
pub mod forwarded;
mod head;
mod host;
mod known_sections;
mod method;
mod outcome;
mod range;
mod rejection;
mod request;
mod response;
mod scan;
mod status;
mod target;

use std::time::Duration;

pub use body::{BodyLength, BodyState};
pub use conditional::{Conditions, Precondition, Validators};
pub use connection::{ASKED_AGAIN_WITHIN, Connection, ConnectionState};
pub use date::{CachedDate, HTTP_DATE_BYTES, HttpDate};
pub use entity_tag::EntityTag;
pub use field::{FieldName, FieldValue, InvalidField};
pub use known_sections::KnownSections;
pub use method::Method;
pub use outcome::{AfterReply, EndOfInput, Expired, Persistence, Progress};
pub use range::{Boundary, ByteRange, ByteRanges, MultipartRanges, RANGE_COUNT_MAX, RangeOutcome};
pub use rejection::{RejectReason, Rejection};
pub use request::{Headers, Request, Version};
pub use response::{CONTINUE, HeadWriter, PreparedFields, write_interim};
pub use status::Status;
pub use target::{
    PathError, Target, TargetForm, as_uri, complete_path, decode_path, decode_path_to_pass_on, encode_path,
    rest_as_sent,
};

/// No head can be longer than this, whatever [`Limits::head_bytes_max`] says: a connection remembers its place in 16 bits.
pub const HEAD_BYTES_CEILING: usize = 65_535;

/// No head can have more fields than this, whatever [`Limits::header_count_max`] says: they are parsed on the stack.
pub const HEADER_COUNT_CEILING: usize = 128;

/// Empty lines that are passed over before a request line (RFC 9112 section 2.2 asks for at least one).
pub const EMPTY_LINES_MAX: u8 = 2;

/// Bytes of chunk extensions and trailers, together, in one body: nobody needs them, and each is work without content.
pub const CHUNK_OVERHEAD_BYTES_MAX: u16 = 8 * 1024;

/// What a client may send and how long it may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Request line and header section together, in bytes; at most [`HEAD_BYTES_CEILING`].
    pub head_bytes_max: usize,
    /// Lines in a header section; at most [`HEADER_COUNT_CEILING`].
    pub header_count_max: usize,
    /// The request target, in bytes.
    pub target_bytes_max: usize,
    /// The content of one request, in bytes, after any chunked coding is taken off.
    pub body_bytes_max: u64,
    /// Requests answered before the connection is closed.
    pub requests_per_connection_max: u32,
    /// From the first byte of a head (of the first head: from accept) to its end.
    pub head_timeout: Duration,
    /// From one reply to the first byte of the next head.
    pub idle_timeout: Duration,
    /// Without a byte moving, while a body is received or a reply is transmitted.
    pub stall_timeout: Duration,
    /// Bytes of a body in a second, one with another: who is behind by more than `stall_timeout` is too slow. 0 for any rate.
    pub body_rate_min: u64,
    /// After the last reply, without a byte from the client: what it still sends is read and discarded. Half a minute in all, or this if it's more.
    pub linger_timeout: Duration,
}

impl Limits {
    /// As much as can be represented.
    pub(crate) const WIDEST: Limits = Limits {
        head_bytes_max: HEAD_BYTES_CEILING,
        header_count_max: HEADER_COUNT_CEILING,
        target_bytes_max: HEAD_BYTES_CEILING,
        body_bytes_max: u64::MAX,
        requests_per_connection_max: u32::MAX,
        head_timeout: Duration::MAX,
        idle_timeout: Duration::MAX,
        stall_timeout: Duration::MAX,
        body_rate_min: 0,
        linger_timeout: Duration::MAX,
    };
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_bytes_max: 16 * 1024,
            header_count_max: 100,
            target_bytes_max: 8 * 1024,
            body_bytes_max: 1024 * 1024,
            requests_per_connection_max: 1_000_000,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            stall_timeout: Duration::from_secs(30),
            body_rate_min: 500,
            linger_timeout: Duration::from_secs(2),
        }
    }
}
