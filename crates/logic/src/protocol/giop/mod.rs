//! GIOP 1.0 to 1.2, CORBA's protocol (IIOP where it goes over TCP): each request goes by its object's key (CORBA 3.3, part 2, section 9.4). Answers say
//! whose they are, so that they may come in any order.
//!
//! A message may go on in fragments. Those of GIOP 1.1 follow it at once; those of 1.2 name their request. Which code sets a client uses it says in its
//! first request (CORBA 3.3, part 2, section 7.10.2.5): to nodes that come later that is said in the first one that they get. Nothing else in a message
//! is changed.

mod answer;
mod cdr;

use super::{About, Begin, Limits, Mistake, Order, Parser, Piece, Request, Scope, Separable};
use crate::dispatch::Facts;
use cdr::{Contexts, Reader};

pub(super) const ABOUT: About = About {
    name: "iiop",
    about: "CORBA's GIOP 1.0 to 1.2: each request goes to a node by load, or under a policy that goes by content by its object key",
    parser: |limits| Box::new(Giop { limits, left: 0, fragmented: None, code_sets: None, has_begun: false }),
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

/// The service context that says which code sets a client uses.
const CODE_SETS: u32 = 1;
/// What it says is 12 bytes.
const CODE_SETS_BYTES_MAX: usize = 64;

const NOT_GIOP: Mistake = Mistake::Client("a message isn't GIOP 1.0, 1.1 or 1.2");
const MALFORMED: Mistake = Mistake::Client("a GIOP request's head is malformed, or in several fragments");

#[derive(Debug)]
struct Giop {
    limits: Limits,
    /// Bytes of the message in hand; 0 between messages.
    left: u64,
    /// The request of which fragments follow that don't name it (GIOP 1.1).
    fragmented: Option<u32>,
    /// What the client has said of its code sets.
    code_sets: Option<Vec<u8>>,
    /// It has said something.
    has_begun: bool,
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
                if header.kind == Kind::Request && (!self.has_begun || self.code_sets.is_some()) {
                    match self.contexts(message, &header) {
                        Ok(contexts) => {
                            let said = contexts.found.filter(|said| said.len() <= CODE_SETS_BYTES_MAX);
                            self.code_sets = said.map(<[u8]>::to_vec).or_else(|| self.code_sets.take());
                        }
                        // A node may have to be told of them with this one. Contexts that are longer than may be waited for are looked at by nobody.
                        Err(is_bad) if !is_bad && !is_whole && input.len() < self.limits.head_bytes_max => {
                            return Ok(Begin::NeedMore);
                        }
                        Err(_) => {}
                    }
                }
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
            self.has_begun = true;
        }
        let bytes = self.left.min(input.len() as u64);
        self.left -= bytes;
        Ok(Piece { bytes: bytes as usize, is_last: self.left == 0 })
    }

    fn knows(&self) -> Option<Vec<u8>> {
        match (&self.code_sets, self.fragmented) {
            (_, Some(_)) => None,
            (Some(code_sets), None) => Some([&[u8::from(self.has_begun)], &code_sets[..]].concat()),
            (None, None) => Some(Vec::from_iter(self.has_begun.then_some(1))),
        }
    }

    fn learn(&mut self, known: &[u8]) {
        let Some((has_begun, code_sets)) = known.split_first() else { return };
        self.has_begun = *has_begun != 0;
        self.code_sets = (!code_sets.is_empty()).then(|| code_sets.to_vec());
    }

    fn introduce(&self, request: &[u8]) -> Option<(usize, Vec<u8>)> {
        let code_sets = self.code_sets.as_ref()?;
        let header = header(request).ok().flatten().filter(|header| header.kind == Kind::Request)?;
        let contexts = self.contexts(request, &header).ok()?;
        if contexts.found.is_some() {
            return Some((0, Vec::new()));
        }
        // What follows stays at the same places of eight, as whatever is in it is written at multiples of its size.
        let size = code_sets.len().next_multiple_of(8);
        let number = |value: u32| if header.is_little { value.to_le_bytes() } else { value.to_be_bytes() };
        let grown = u32::try_from(header.size).ok()?.checked_add(size as u32 + 8)? - HEADER_BYTES as u32;
        let mut words = request[..contexts.at].to_vec();
        words[8..HEADER_BYTES].copy_from_slice(&number(grown));
        words[contexts.at - 4..].copy_from_slice(&number(contexts.count + 1));
        words.extend_from_slice(&number(CODE_SETS));
        words.extend_from_slice(&number(size as u32));
        words.extend_from_slice(code_sets);
        words.resize(contexts.at + 8 + size, 0);
        Some((contexts.at, words))
    }
}

impl Giop {
    /// The service contexts of a Request message. `Err`: they aren't there; true if they won't be when more has come.
    fn contexts<'i>(&self, message: &'i [u8], header: &Header) -> Result<Contexts<'i>, bool> {
        // However much has come: whether they are found doesn't depend on it.
        let head = &message[..message.len().min(self.limits.head_bytes_max)];
        let mut reader = Reader::new(head, HEADER_BYTES, header.is_little);
        if header.minor == 2 {
            let mut skip = || {
                reader.number()?;
                reader.skip(4)?;
                reader.target()?;
                reader.string()
            };
            skip().ok_or(false)?;
        }
        reader.contexts(CODE_SETS).ok_or_else(|| reader.is_bad())
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
