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

/// Fields that belong to one connection and end with it (RFC 9110 section 7.6.1), whether or not `Connection` names them.
const HOP_BY_HOP: [&[u8]; 7] =
    [b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"];

/// Whether a field goes no further than the next server: a known one, or one that a `Connection` among `connections` names.
fn is_hop_by_hop<'n>(name: &[u8], mut connections: impl Iterator<Item = &'n [u8]>) -> bool {
    HOP_BY_HOP.iter().any(|known| name.eq_ignore_ascii_case(known))
        || connections.any(|options| {
            options.split(|&byte| byte == b',').any(|option| option.trim_ascii().eq_ignore_ascii_case(name))
        })
}
