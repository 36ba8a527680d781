//! The client's side of HTTP/1.1, for requests that are passed on to another server (RFC 9110 section 7.6, RFC 9112): the head that goes out,
//! what comes back, and which server is asked over which connection. Decides what is passed on, where a reply ends, and whether its connection
//! can be used again.
//!
//! When a request is sent again, and how bytes travel, is for others.

mod ending;
mod reply;
mod request;
mod upstreams;

pub use ending::{Ending, Seen, ending};
pub use reply::{BadReply, ReaderState, ReplyHead, ReplyPart, ReplyReader, ReplyStep, Whole, field};
pub(crate) use request::TOLD;
pub use request::{Forward, Rest, Teller, WEBSOCKET, asks_for_websocket, is_repeatable, write_head};
pub use upstreams::{Reuse, UpstreamLimits, Upstreams};

use super::field::members;

/// Fields that belong to one connection and end with it (RFC 9110 section 7.6.1), whether or not `Connection` names them.
const HOP_BY_HOP: [&[u8]; 7] =
    [b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"];

/// The fields of one message that go no further than the next server.
struct HopByHop<'m> {
    /// By its `Connection` fields.
    named: Vec<&'m [u8]>,
}

impl<'m> HopByHop<'m> {
    /// `connections`: what these fields say.
    fn of(connections: impl Iterator<Item = &'m [u8]>) -> HopByHop<'m> {
        let named = connections.flat_map(members).filter(|option| !option.is_empty());
        HopByHop { named: named.collect() }
    }

    fn has(&self, name: &[u8]) -> bool {
        HOP_BY_HOP.iter().chain(&self.named).any(|known| name.eq_ignore_ascii_case(known))
    }
}
