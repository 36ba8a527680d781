//! The plug-in point for protocols: where a request begins and ends, what it's about, and where its answer ends. Bytes in, facts out; nothing is
//! received, sent or chosen here. One file (or folder) for each protocol; a new one is that and a line in the list below, and the configuration,
//! the reference and the test that all must pass have it. `docs/parsers.md` shows how.
//!
//! | file | decides |
//! |---|---|
//! | `session` | which bytes of a client go to which of its nodes, and whose answer comes next |
//! | `prologue` | what a node is told that comes later, of what was said to all |
//! | `proxy_header` | what the PROXY protocol says before all else |
//! | the others | see the list |

mod giop;
mod http;
mod prologue;
pub mod proxy_header;
mod redis;
mod session;
mod tcp;
mod tls;

#[cfg(test)]
mod conformance;

use std::fmt;

use crate::dispatch::Facts;

pub use session::{ClientStep, Leg, NodeStep, Session, SessionState};

/// Requests of one client that may wait for their answers at once; it's read from again when there are fewer.
pub const REQUESTS_MAX: usize = 1024;
/// Bytes of what a client has said once for all nodes: who it is, say.
pub const PROLOGUE_BYTES_MAX: usize = 4096;
/// Nodes that one client's requests go to at once.
pub const LEGS_MAX: usize = 64;

/// What parsers are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that may have to be seen before it's known where a request goes.
    pub head_bytes_max: usize,
    /// For `tcp`: bytes by which a connection's node is chosen.
    pub first_bytes: usize,
}

/// Why a conversation can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    /// Where a request goes would be known only after more bytes than are allowed.
    #[error("a request doesn't say what it's about within the bytes that `head_size` allows")]
    TooLong,
    /// The client speaks something else.
    #[error("the client doesn't speak the port's protocol: {0}")]
    Client(&'static str),
    /// A node does.
    #[error("the node doesn't speak the port's protocol: {0}")]
    Node(&'static str),
}

/// Who is to have a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope<'i> {
    /// The node of this content.
    Content(Facts<'i>),
    /// The same, where what says so isn't in one piece.
    Gathered(Gathered),
    /// Any.
    Any,
    /// Every node that the client has or will have to do with, as it changes how they take what follows; the first one's answer counts.
    Every(Replaces),
    /// Whoever has the request of this number.
    Follows(u32),
    /// The same, and nobody waits for its answer any more. It may come all the same.
    Cancels(u32),
    /// Nobody: it's answered with these bytes.
    Nobody(Vec<u8>),
    /// Nobody, and the client wants to end.
    Ends(Vec<u8>),
}

/// What of that which was said to all nodes before a request makes up for, so that nodes that come later needn't be told both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaces {
    /// Nothing.
    Nothing,
    /// The same said before: nothing that was said in between depends on it.
    Same,
    /// It says who the client is: the last such, once it has been taken.
    Login,
    /// The same, and how it wants to be spoken to.
    Greeting,
}

impl Replaces {
    const ALL: [Replaces; 4] = [Replaces::Nothing, Replaces::Same, Replaces::Login, Replaces::Greeting];

    fn says_who(self) -> bool {
        matches!(self, Replaces::Login | Replaces::Greeting)
    }

    /// Whether one of the other kind said before needn't be told any more.
    fn covers(self, before: Replaces) -> bool {
        before == Replaces::Login && self.says_who() || before == Replaces::Greeting && self == Replaces::Greeting
    }
}

/// What says where a request goes, put together from the pieces in which it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gathered {
    pub(crate) host: Vec<u8>,
    pub(crate) method: Vec<u8>,
}

impl Gathered {
    /// The same as facts.
    #[must_use]
    pub fn facts(&self) -> Facts<'_> {
        Facts { host: &self.host, method: &self.method, ..Facts::default() }
    }
}

/// A request that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'i> {
    /// Who is to have it.
    pub scope: Scope<'i>,
    /// Its number, where answers name theirs.
    pub id: Option<u32>,
    /// Whether an answer comes.
    pub is_answered: bool,
    /// Whether it goes on in others that follow it.
    pub has_followers: bool,
    /// Whether its answer may wait for what other clients do. A client that ends meanwhile doesn't want it.
    pub waits: bool,
}

impl<'i> Request<'i> {
    /// A request that gets one answer, in its turn.
    #[must_use]
    pub fn new(scope: Scope<'i>) -> Request<'i> {
        Request { scope, id: None, is_answered: true, has_followers: false, waits: false }
    }
}

/// What begins where no request is in hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin<'i> {
    /// More must have come to say.
    NeedMore,
    /// So many bytes that are no request's, and for nobody.
    Nothing(usize),
    /// A request, of which nothing has been consumed yet.
    Request(Request<'i>),
}

/// The bytes that belong to a request or an answer in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// So many, from the first on; none when more must have come.
    pub bytes: usize,
    /// Whether it ends with them.
    pub is_last: bool,
}

/// The same of an answer, and what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Which bytes.
    pub piece: Piece,
    /// The node says that it ends the connection, and answers nothing more. The client hears of it only if it waits for this node and for no other.
    pub is_aside: bool,
    /// The request that is answered with them, where answers name theirs.
    pub id: Option<u32>,
}

/// Finds requests in what a client says.
pub trait Parser: Send + fmt::Debug {
    /// What begins at the first byte. Asked again with the same bytes and more until it can say; `is_all`: no more will come.
    ///
    /// # Errors
    /// It isn't the protocol.
    fn begin<'i>(&mut self, input: &'i [u8], is_all: bool) -> Result<Begin<'i>, Mistake>;

    /// Which bytes belong to the request in hand; the first of `input` is the first that it hasn't named before.
    ///
    /// # Errors
    /// It isn't the protocol.
    fn go_on(&mut self, input: &[u8]) -> Result<Piece, Mistake>;

    /// What a node is to be told instead of a request's first bytes if it's the first that it has of this client: so many of them, and what, where the
    /// client has said something to another node once for all. None where it needn't be told, as it has been with this one; `None` if this one can't tell.
    fn introduce(&self, _request: &[u8]) -> Option<(usize, Vec<u8>)> {
        None
    }

    /// What it knows of its client between two requests, for [`Parser::learn`] elsewhere; `None` while that can't be told.
    fn knows(&self) -> Option<Vec<u8>> {
        Some(Vec::new())
    }

    /// Goes on where another, who knew this, has been between two requests.
    fn learn(&mut self, _known: &[u8]) {}

    /// What a request is answered with that no node can have; empty where there is no such answer.
    fn unavailable(&self) -> &'static [u8] {
        b""
    }

    /// What a client is told of its mistake before the connection ends; empty where there are no words for it.
    fn explain(&self, _mistake: Mistake) -> Vec<u8> {
        Vec::new()
    }
}

/// Finds answers in what a node says.
pub trait Answers: Send + fmt::Debug {
    /// Which bytes belong to the answer in hand, or to the one that begins.
    ///
    /// # Errors
    /// It isn't the protocol.
    fn go_on(&mut self, input: &[u8]) -> Result<Answer, Mistake>;

    /// Whether the answer that has ended last says that what was asked for isn't done.
    fn has_refused(&self) -> bool {
        false
    }
}

/// In which order answers go to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As the requests came.
    Requests,
    /// As they come, each in one piece: they say whose they are.
    Answers,
}

/// How the requests of one connection can go to different nodes.
pub(crate) struct Separable {
    pub(crate) order: Order,
    pub(crate) answers: fn() -> Box<dyn Answers>,
}

/// What there is to say of a protocol.
struct About {
    name: &'static str,
    about: &'static str,
    parser: fn(Limits) -> Box<dyn Parser>,
    /// Its servers keep what they are told: content that goes to another node next time isn't found there.
    is_store: bool,
    /// `None`: a connection goes where its first request goes, and nothing after that is looked at.
    separable: Option<Separable>,
}

/// Makes the list of protocols into one type.
macro_rules! protocols {
    ($($variant:ident in $module:ident),+ $(,)?) => {
        /// A protocol that a port can have.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Protocol {
            $(#[doc = concat!("See `", stringify!($module), "`.")] $variant,)+
        }

        impl Protocol {
            /// All that there are, in the order of the reference.
            pub const ALL: &'static [Protocol] = &[$(Protocol::$variant),+];

            const fn of(self) -> &'static About {
                match self {
                    $(Protocol::$variant => &$module::ABOUT,)+
                }
            }
        }
    };
}

protocols! {
    Tcp in tcp,
    Tls in tls,
    Http in http,
    Redis in redis,
    Iiop in giop,
}

impl Protocol {
    /// Its name in the configuration, the log and the metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.of().name
    }

    /// One line for the reference.
    #[must_use]
    pub const fn about(self) -> &'static str {
        self.of().about
    }

    /// Whether each request of a connection may go to another node.
    #[must_use]
    pub const fn is_separable(self) -> bool {
        self.of().separable.is_some()
    }

    /// Whether the same content must go to the same node, or isn't found.
    #[must_use]
    pub const fn is_store(self) -> bool {
        self.of().is_store
    }

    /// A parser for one client.
    #[must_use]
    pub fn parser(self, limits: Limits) -> Box<dyn Parser> {
        (self.of().parser)(limits)
    }

    pub(crate) fn separable(self) -> Option<&'static Separable> {
        self.of().separable.as_ref()
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
