//! What a connection answers its caller: what came of input, of its end, of a reply, of time.

use super::rejection::Rejection;
use super::request::Request;
#[cfg(doc)]
use super::{body::BodyLength, connection::Connection};

/// What came of the input.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "taken apart at once: a box would be an allocation for each request")]
pub enum Progress<'i> {
    /// Nothing more can be said before more bytes come, or before the request in hand is answered.
    NeedInput,
    /// A head. If [`Request::body`] isn't [`BodyLength::None`], `Body` and `BodyEnd` follow.
    Request(Request<'i>),
    /// A run of the body's content, never empty.
    Body(&'i [u8]),
    /// The body has ended.
    BodyEnd,
    /// To be answered with the status and then closed.
    Reject(Rejection),
    /// The client has ended its side and everything it asked for has been answered: close.
    Ended,
}

/// What the client's end of input means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOfInput {
    /// A reply is owed: send it, then see [`Connection::handle_reply_sent`].
    AnswerFirst,
    /// Nothing is owed: close.
    Close,
    /// A head or a body was cut off: close without an answer, as there may be nobody to read it.
    Abort,
}

/// How the reply must speak of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// HTTP/1.1, goes on: no Connection field is needed.
    Persistent,
    /// HTTP/1.0, goes on: `Connection: keep-alive`.
    KeepAlive,
    /// Ends after the reply: `Connection: close`.
    Close,
}

/// What to do once a reply is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterReply {
    /// Hand in what is left of the input, and receive.
    NextRequest,
    /// The same; the rest of the body is discarded on the way.
    DrainBody,
    /// Close. With `linger`: shut down the sending side first and go on handing input in until it ends or
    /// [`Expired::Linger`], since closing on unread bytes would reset the connection and could take the reply with it
    /// (RFC 9112 section 9.6).
    Close {
        /// Whether the client may still be sending.
        linger: bool,
    },
}

/// What a time-out means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// No request came: close without a word, as after a last reply if there was one.
    Idle,
    /// A head or a body began and came too slowly: answer this, then close.
    Late(Rejection),
    /// The client takes no reply, or doesn't send the rest of a body that is answered: cut the connection.
    Stalled,
    /// The client has had its time to read the last reply: close.
    Linger,
}
