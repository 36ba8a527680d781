//! GIOP 1.0 to 1.2, CORBA's protocol (IIOP where it goes over TCP): each request goes by its object's key (CORBA 3.3, part 2, section 9.4). Answers say
//! whose they are, so that they may come in any order.
//!
//! A message may go on in fragments. Those of GIOP 1.1 follow it at once; those of 1.2 name their request. Nothing in a message is changed.

mod answer;
mod cdr;

use super::{About, Begin, Limits, Mistake, Order, Parser, Piece, Request, Scope, Separable};
use crate::dispatch::Facts;
use cdr::Reader;

pub(super) const ABOUT: About = About {
    name: "iiop",
    about: "CORBA's GIOP 1.0 to 1.2: each request goes to a node by load, or under a policy that goes by content by its object key",
    parser: |limits| Box::new(Giop { limits, left: 0, fragmented: None }),
    is_store: false,
    separable: Some(Separable { order: Order::Answers, answers: || Box::<answer::Answering>::default() }),
};

const HEADER_BYTES: usize = 12;
/// The largest message that is passed on.
const MESSAGE_BYTES_MAX: u32 = 1 << 30;

/// What a message is, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Request,
    Reply,
    CancelRequest,
    LocateRequest,
    LocateReply,
    CloseConnection,
    MessageError,
    Fragment,
}

/// A message's header.
#[derive(Clone, Copy, Debug)]
struct Header {
    minor: u8,
    is_little: bool,
    has_followers: bool,
    kind: Kind,
    /// All of it, header included.
    size: u64,
}

/// The header at the beginning of `input`; `None` until it's there. `Err`: it isn't one.
fn header(input: &[u8]) -> Result<Option<Header>, ()> {
    let known = input.len().min(4);
    if input[..known] != b"GIOP"[..known] {
        return Err(());
    }
    let Some(header) = input.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let (major, minor, flags) = (header[4], header[5], header[6]);
    // In 1.0 the flags are one boolean.
    if major != 1 || minor > 2 || minor == 0 && flags > 1 {
        return Err(());
    }
    let kind = match header[7] {
        0 => Kind::Request,
        1 => Kind::Reply,
        2 => Kind::CancelRequest,
        3 => Kind::LocateRequest,
        4 => Kind::LocateReply,
        5 => Kind::CloseConnection,
        6 => Kind::MessageError,
        7 if minor > 0 => Kind::Fragment,
        _ => return Err(()),
    };
    let is_little = flags & 1 != 0;
    let size = [header[8], header[9], header[10], header[11]];
    let size = if is_little { u32::from_le_bytes(size) } else { u32::from_be_bytes(size) };
    if size > MESSAGE_BYTES_MAX {
        return Err(());
    }
    let size = u64::from(size) + HEADER_BYTES as u64;
    Ok(Some(Header { minor, is_little, has_followers: minor > 0 && flags & 2 != 0, kind, size }))
}

const NOT_GIOP: Mistake = Mistake::Client("a message isn't GIOP 1.0, 1.1 or 1.2");
const MALFORMED: Mistake = Mistake::Client("a GIOP request's head is malformed, or in several fragments");

#[derive(Debug)]
struct Giop {
    limits: Limits,
    /// Bytes of the message in hand; 0 between messages.
    left: u64,
    /// The request of which fragments follow that don't name it (GIOP 1.1).
    fragmented: Option<u32>,
}

impl Parser for Giop {
    fn begin<'i>(&mut self, input: &'i [u8], _is_all: bool) -> Result<Begin<'i>, Mistake> {
        self.left = 0;
        let Some(header) = header(input).map_err(|()| NOT_GIOP)? else { return Ok(Begin::NeedMore) };
        let is_whole = input.len() as u64 >= header.size;
        let message = &input[..input.len().min(usize::try_from(header.size).unwrap_or(usize::MAX))];
        let mut reader = Reader::new(message, HEADER_BYTES, header.is_little);
        let found = match header.kind {
            Kind::Request => request(&mut reader, header.minor),
            Kind::LocateRequest => locate_request(&mut reader, header.minor),
            Kind::CancelRequest => {
                reader.number().map(|id| Request { is_answered: false, ..Request::new(Scope::Cancels(id)) })
            }
            Kind::Fragment if header.minor == 1 => {
                let id = self.fragmented.ok_or(NOT_GIOP)?;
                Some(Request { is_answered: false, ..Request::new(Scope::Follows(id)) })
            }
            Kind::Fragment => {
                reader.number().map(|id| Request { is_answered: false, ..Request::new(Scope::Follows(id)) })
            }
            Kind::CloseConnection | Kind::MessageError => Some(Request::new(Scope::Ends(Vec::new()))),
            Kind::Reply | Kind::LocateReply => return Err(Mistake::Client("it answers, and nobody has asked it")),
        };
        match found {
            Some(mut request) => {
                request.has_followers = header.has_followers;
                if header.minor == 1 && header.kind != Kind::CancelRequest {
                    let id = request.id.or(self.fragmented);
                    self.fragmented = id.filter(|_| header.has_followers);
                }
                Ok(Begin::Request(request))
            }
            None if is_whole || reader.is_bad() => Err(MALFORMED),
            None if input.len() >= self.limits.head_bytes_max => Err(Mistake::TooLong),
            None => Ok(Begin::NeedMore),
        }
    }

    fn go_on(&mut self, input: &[u8]) -> Result<Piece, Mistake> {
        if self.left == 0 {
            let Some(header) = header(input).map_err(|()| NOT_GIOP)? else {
                return Ok(Piece { bytes: 0, is_last: false });
            };
            self.left = header.size;
        }
        let bytes = self.left.min(input.len() as u64);
        self.left -= bytes;
        Ok(Piece { bytes: bytes as usize, is_last: self.left == 0 })
    }
}

/// A Request message after its header.
fn request<'i>(reader: &mut Reader<'i>, minor: u8) -> Option<Request<'i>> {
    if minor < 2 {
        reader.skip_contexts()?;
        let id = reader.number()?;
        let is_answered = reader.octet()? != 0;
        if minor == 1 {
            reader.skip(3)?;
        }
        let path = reader.sequence()?;
        let method = reader.string()?;
        return Some(about(id, is_answered, path, method));
    }
    let id = reader.number()?;
    // Whether an answer is wanted, and from whom: any but none is an answer.
    let is_answered = reader.octet()? & 3 != 0;
    reader.skip(3)?;
    let path = reader.target()?;
    let method = reader.string()?;
    Some(about(id, is_answered, path, method))
}

fn locate_request<'i>(reader: &mut Reader<'i>, minor: u8) -> Option<Request<'i>> {
    let id = reader.number()?;
    let path = if minor < 2 { reader.sequence()? } else { reader.target()? };
    Some(about(id, true, path, b""))
}

fn about<'i>(id: u32, is_answered: bool, path: &'i [u8], method: &'i [u8]) -> Request<'i> {
    let scope = Scope::Content(Facts { method, path, ..Facts::default() });
    Request { id: Some(id), is_answered, ..Request::new(scope) }
}

#[cfg(test)]
pub(super) mod tests;
