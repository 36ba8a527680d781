//! The other end of a connection by which another server answers: what goes along, beside its socket, when the client's passes to the next engine.
//! What is said by it is known as far as it's read here: of a reply, where it ends; of a WebSocket and a client of a port, nothing.

use super::limits::{ETAG_BYTES_MAX, SITE_BYTES_MAX};
use super::passage::text;
use super::wire::{DecodeError, Reader, put_bytes, put_number};
use crate::http::BodyState;
use crate::http::client::{ReaderState, ReplyPart, Whole};

/// Bytes that are on their way in one direction: more than a worker's buffers hold.
const BYTES_MAX: usize = 1 << 20;

const WEBSOCKET: u8 = 0;
const RELAY: u8 = 1;
const REQUEST: u8 = 2;

const HEAD: u8 = 0;
const BODY: u8 = 1;
const REST: u8 = 2;

/// What is so of a request, one bit each.
const HAS_BEGUN: u8 = 1;
const IS_CHUNKED: u8 = 2;
const IS_PERSISTENT: u8 = 4;
const EXPECTS_CONTENT: u8 = 8;
const IS_KEPT: u8 = 16;
const IS_WHOLE: u8 = 32;
const KNOWN: u8 = 2 * IS_WHOLE - 1;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEnd {
    /// Bytes of the client's that the server hasn't been sent.
    pub to_server: Vec<u8>,
    /// Bytes of the server's that nobody has looked at.
    pub from_server: Vec<u8>,
    /// Bytes that the client hasn't been sent.
    pub to_client: Vec<u8>,
    /// The number by which the request is known; 0 where it has none.
    pub drawn: u64,
    /// What is said.
    pub talk: Talk,
}

/// What a server and its client say to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Talk {
    /// Whatever they like: HTTP is over.
    WebSocket,
    /// Whatever they like, at a port, with the node of that name.
    Relay(String),
    /// A request whose head has been said, and its reply.
    Request(ProxiedRequest),
}

/// A request that is passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxiedRequest {
    /// The server, as the configuration has it.
    pub server: String,
    /// Not all of its content has come.
    pub expects_content: bool,
    /// The connection has carried requests before.
    pub is_kept: bool,
    /// How far the reply has been read.
    pub reader: ReaderState,
    /// Whether the client gets the reply's content in chunks; `None` before there is a reply.
    pub is_chunked: Option<bool>,
    /// What the reply is, if another server can go on with it.
    pub whole: Option<Whole>,
}

impl ServerEnd {
    /// Bytes that are on their way.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.to_server.len() + self.from_server.len() + self.to_client.len()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for bytes in [&self.to_server, &self.from_server, &self.to_client] {
            put_bytes(out, bytes);
        }
        put_number(out, self.drawn);
        match &self.talk {
            Talk::WebSocket => out.push(WEBSOCKET),
            Talk::Relay(node) => {
                out.push(RELAY);
                put_bytes(out, node.as_bytes());
            }
            Talk::Request(request) => {
                out.push(REQUEST);
                request.encode(out);
            }
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<ServerEnd, DecodeError> {
        let to_server = reader.bytes(BYTES_MAX, "the bytes for the server")?.to_vec();
        let from_server = reader.bytes(BYTES_MAX, "the bytes of the server")?.to_vec();
        let to_client = reader.bytes(BYTES_MAX, "the bytes for the client")?.to_vec();
        let drawn = reader.number("the request's number")?;
        let talk = match reader.byte("what is said")? {
            WEBSOCKET => Talk::WebSocket,
            RELAY => Talk::Relay(text(reader.bytes(SITE_BYTES_MAX, "the node's name")?)?),
            REQUEST => Talk::Request(ProxiedRequest::decode(reader)?),
            found => return Err(DecodeError::Unknown { what: "what is said", found: found.into() }),
        };
        Ok(ServerEnd { to_server, from_server, to_client, drawn, talk })
    }
}

impl ProxiedRequest {
    fn encode(&self, out: &mut Vec<u8>) {
        let facts = [
            (self.is_chunked.is_some(), HAS_BEGUN),
            (self.is_chunked == Some(true), IS_CHUNKED),
            (self.reader.is_persistent, IS_PERSISTENT),
            (self.expects_content, EXPECTS_CONTENT),
            (self.is_kept, IS_KEPT),
            (self.whole.is_some(), IS_WHOLE),
        ];
        out.push(facts.into_iter().filter(|(is_so, _)| *is_so).map(|(_, bit)| bit).sum());
        put_bytes(out, self.server.as_bytes());
        match self.reader.next {
            ReplyPart::Head => out.push(HEAD),
            ReplyPart::Rest => out.push(REST),
            ReplyPart::Body(BodyState { place, remaining, received, overhead }) => {
                out.extend([BODY, place]);
                [remaining, received, overhead.into()].into_iter().for_each(|number| put_number(out, number));
            }
        }
        if let Some(whole) = &self.whole {
            put_bytes(out, whole.etag());
            put_number(out, whole.length());
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<ProxiedRequest, DecodeError> {
        let facts = reader.byte("what is so of a request")?;
        if facts & !KNOWN != 0 {
            return Err(DecodeError::Unknown { what: "what is so of a request", found: facts.into() });
        }
        let is = |bit: u8| facts & bit != 0;
        let server = text(reader.bytes(SITE_BYTES_MAX, "the server")?)?;
        let next = match reader.byte("the reply's part")? {
            HEAD => ReplyPart::Head,
            REST => ReplyPart::Rest,
            BODY => {
                let place = reader.byte("the place in the content")?;
                let (remaining, received) = (reader.number("the content")?, reader.number("the content")?);
                let overhead = reader.number_up_to(u16::MAX.into(), "the content's framing")?;
                ReplyPart::Body(BodyState { place, remaining, received, overhead: overhead as u16 })
            }
            found => return Err(DecodeError::Unknown { what: "the reply's part", found: found.into() }),
        };
        let whole = match is(IS_WHOLE) {
            false => None,
            true => {
                let etag = reader.bytes(ETAG_BYTES_MAX, "the entity tag")?.to_vec();
                Some(Whole::new(etag, reader.number("the content's length")?))
            }
        };
        Ok(ProxiedRequest {
            server,
            expects_content: is(EXPECTS_CONTENT),
            is_kept: is(IS_KEPT),
            reader: ReaderState { next, is_persistent: is(IS_PERSISTENT) },
            is_chunked: is(HAS_BEGUN).then(|| is(IS_CHUNKED)),
            whole,
        })
    }
}

/// One of each kind.
#[cfg(test)]
pub(super) fn examples() -> Vec<ServerEnd> {
    let body = BodyState { place: 6, remaining: 5, received: u64::MAX, overhead: u16::MAX };
    let request = |next, is_chunked: Option<bool>, whole| {
        let reader = ReaderState { next, is_persistent: is_chunked.is_some() };
        let (expects_content, is_kept) = (next == ReplyPart::Head, next != ReplyPart::Head);
        let server = "app.test:80".to_owned();
        Talk::Request(ProxiedRequest { server, expects_content, is_kept, reader, is_chunked, whole })
    };
    let whole = Some(Whole::new(b"\"abc\"".to_vec(), 1 << 40));
    let requests = [
        request(ReplyPart::Head, None, None),
        request(ReplyPart::Body(body), Some(true), None),
        request(ReplyPart::Rest, Some(false), whole),
    ];
    let talks = [Talk::WebSocket, Talk::Relay("n1".to_owned())].into_iter().chain(requests);
    let end =
        |talk| ServerEnd { to_server: vec![4; 300], from_server: vec![5], to_client: vec![], drawn: 1 << 63, talk };
    talks.map(end).collect()
}
