//! A request in progress and its reply: what is needed between the head's arrival and the reply's last byte, and not while a connection is idle.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use leat_host::reactor::PARTS_MAX;
use leat_logic::admission::Refusal;
use leat_logic::dispatch::ContentKey;
use leat_logic::handoff::{RequestId, There};
use leat_logic::http::Method;
use leat_logic::serve::coding::CodingOrder;
use leat_logic::serve::path::LoadRequest;
use leat_logic::serve::resource::{Loaded, Resource};
use leat_logic::time::Instant;

use super::Stage;
use super::handler::Run;
use super::receive::First;
use super::settings::Site;
use crate::ctl::http::Told;

/// See the module. Used again for later requests, so that a request needs no allocation.
pub(super) struct Exchange<F> {
    /// The head as it came: parsed again by the few requests that need more than what is below.
    pub(super) head: Vec<u8>,
    /// Decoded, without dot segments.
    pub(super) path: Vec<u8>,
    /// What came behind a path that is now a script's.
    pub(super) path_info: Vec<u8>,
    /// How much of the path comes before the first slash that was encoded: then it's no file's, but may be passed on.
    pub(super) encoded_slash: Option<usize>,
    pub(super) site: Option<Rc<Site>>,
    pub(super) method: Method,
    /// The head has preconditions or a range.
    pub(super) conditional: bool,
    pub(super) codings: CodingOrder,
    /// When the last of the head had arrived.
    pub(super) started: Instant,
    /// Since when it has waited for its turn: not while it was found out where in a cluster it belongs.
    pub(super) queued: Instant,
    pub(super) standing: Standing,
    /// The reply says that the request isn't served.
    pub(super) refusal: Option<Refusal>,
    /// What it has cost so far, and what of that has been charged to unknown work.
    pub(super) cost_ns: u64,
    pub(super) unknown_ns: u64,
    /// When the reply was handed to the reactor.
    pub(super) replied: Instant,
    /// Of the reply; 0 before there is one.
    pub(super) status: u16,
    /// The error that a site's error page is being looked up for.
    pub(super) error: Option<u16>,
    /// Its path named nothing, and has become the site's fallback.
    pub(super) fell_back: bool,
    /// Field lines that go with an error, whatever its page is.
    pub(super) error_fields: Vec<u8>,
    /// Its client may ask for what it asked for.
    pub(super) is_let_in: bool,
    /// Its path has been seen to be a file, for a handler that wants to know.
    pub(super) is_file: bool,
    /// Content bytes of the reply, and how many the kernel has taken.
    pub(super) body_bytes: u64,
    pub(super) question: Option<LoadRequest>,
    /// The engine has been asked for the answer.
    pub(super) asks: bool,
    pub(super) answer: Option<Answer<F>>,
    pub(super) pieces: VecDeque<Piece<F>>,
    /// The file that the pieces are from, until it has been seen unchanged after all but the last of them.
    pub(super) unchecked: Option<F>,
    /// Bytes of the piece's file up to here are in memory.
    pub(super) resident_end: u64,
    /// What the client hadn't acknowledged when it last made no progress; a stalled client makes none twice.
    unacknowledged_bytes: Option<usize>,
    /// When the reply first had to wait for the client.
    pub(super) blocked_since: Option<Instant>,
    /// The handler at work on it.
    pub(super) run: Option<Run>,
    /// Of one that came along with its connection: what this server's own rules say of it.
    pub(super) first: First,
    /// Another server has been asked to answer it: if it's here all the same, it's answered here.
    pub(super) stays: bool,
    /// What it names isn't here: its connection goes home with it.
    pub(super) given_up: bool,
    /// Its connection goes home with the reply, as soon as that is made.
    pub(super) goes_home: bool,
    /// The last bytes wait until the client has acknowledged all others.
    pub(super) awaits_acknowledgement: bool,
    /// In a cluster: which server is to answer, and the content that is asked for.
    pub(super) placing: Placing,
    pub(super) content: ContentKey,
    /// What the content of a reply from a file is: it may go on elsewhere.
    pub(super) resource: Option<Arc<Resource<F>>>,
    /// The reply is a file's, and another server is asked for it.
    pub(super) is_fetched: bool,
    /// Another server of the cluster is asked for the reply: it logs the request, and counts it. Not where the request is refused or fails here after all: then the reply is
    /// this server's, and logged here.
    pub(super) is_passed_on: bool,
    /// It's this node's check of itself: nobody's request.
    pub(super) is_check: bool,
    /// By which it's known if it has no other name; 0 until somebody wants to know.
    pub(super) drawn: u64,
}

/// What a request is called by every server that has to do with it.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestName<'a> {
    /// As the server of this cluster said from which it comes.
    Told(&'a str),
    /// By its connection and its place there, which travel.
    Flow(RequestId),
    /// By a number that was drawn here.
    Drawn(u64),
}

impl fmt::Display for RequestName<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestName::Told(name) => formatter.write_str(name),
            RequestName::Flow(id) => id.fmt(formatter),
            RequestName::Drawn(number) => write!(formatter, "{number:016x}"),
        }
    }
}

/// Where a request belongs that has come to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placing {
    /// Nobody has looked, or the home has been asked.
    Unknown,
    /// As the home says, if it says anything.
    Told(Option<There>),
    /// It goes back with its connection.
    Leaving,
    /// It couldn't: the home has been asked what else there is.
    Stuck,
    /// It's being served.
    Here,
}

/// What admission control knows of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing: it has been refused, never was a request, or was admitted by another server and has come with its connection.
    Apart,
    /// It has been refused at that stage, and its client hasn't heard so: it's held.
    Held(Stage),
    /// It has been admitted, and waits for its turn.
    Waiting,
    /// It's being served.
    Started,
    /// Its reply waits for its turn to be sent.
    Replied,
}

/// What the storage said, or for the admin address the engine.
pub(super) enum Answer<F> {
    Loaded(Option<Loaded<F>>),
    Resident(Result<(), leat_logic::serve::resource::Cause>),
    Read(Result<Bytes, leat_logic::serve::resource::Cause>),
    Told(Box<Told>),
}

/// A part of a reply that doesn't fit in one send.
pub(super) enum Piece<F> {
    Bytes { bytes: Bytes, done: usize },
    File { file: F, offset: u64, end: u64 },
}

impl<F> Exchange<F> {
    pub(super) fn new() -> Box<Exchange<F>> {
        Box::new(Exchange {
            head: Vec::new(),
            path: Vec::new(),
            path_info: Vec::new(),
            encoded_slash: None,
            site: None,
            method: Method::Get,
            conditional: false,
            codings: CodingOrder::NONE,
            started: Instant::default(),
            queued: Instant::default(),
            standing: Standing::Apart,
            refusal: None,
            cost_ns: 0,
            unknown_ns: 0,
            replied: Instant::default(),
            status: 0,
            error: None,
            fell_back: false,
            is_let_in: false,
            is_file: false,
            error_fields: Vec::new(),
            body_bytes: 0,
            question: None,
            asks: false,
            answer: None,
            pieces: VecDeque::new(),
            unchecked: None,
            resident_end: 0,
            unacknowledged_bytes: None,
            blocked_since: None,
            run: None,
            first: First::Admit,
            stays: false,
            given_up: false,
            goes_home: false,
            awaits_acknowledgement: false,
            placing: Placing::Unknown,
            content: ContentKey::default(),
            is_fetched: false,
            is_passed_on: false,
            is_check: false,
            drawn: 0,
            resource: None,
        })
    }

    /// Whether its path is the beginning of what was asked for, and so has to be a script.
    pub(super) fn is_script(&self) -> bool {
        !self.path_info.is_empty()
    }

    /// Whether its reply has begun and is made of content that has a strong tag, wherever that is.
    pub(super) fn can_go_on_elsewhere(&self) -> bool {
        let has_tag = self.resource.as_ref().is_some_and(|resource| resource.description.etag.is_some());
        has_tag && self.run.is_none() && self.error.is_none() && self.status != 0
    }

    /// Head and body of a reply that was made to go home, is in memory, and of which nothing has been sent. From here on it can't go elsewhere.
    pub(super) fn take_whole(&mut self) -> Option<(Vec<u8>, Bytes)> {
        let is_whole = |piece: &Piece<F>| matches!(piece, Piece::Bytes { done: 0, .. });
        if !self.goes_home || !(1..=2).contains(&self.pieces.len()) || !self.pieces.iter().all(is_whole) {
            return None;
        }
        let mut bytes = self.pieces.drain(..).map(|piece| match piece {
            Piece::Bytes { bytes, .. } => bytes,
            Piece::File { .. } => Bytes::new(),
        });
        let whole = (bytes.next()?.into(), bytes.next().unwrap_or_default());
        drop(bytes);
        self.resource = None;
        Some(whole)
    }

    /// Whether all that is left of its reply, several pieces, can go out in one send of `bytes_max` at most; of files no more than `copied_max`.
    pub(super) fn fits_one_send(&self, bytes_max: u64, copied_max: u64) -> bool {
        let in_files = |piece: &Piece<F>| if let Piece::File { .. } = piece { piece.left() } else { 0 };
        (2..=PARTS_MAX).contains(&self.pieces.len())
            && self.pieces.iter().map(in_files).sum::<u64>() <= copied_max
            && self.bytes_left() <= bytes_max
    }

    /// Bytes of its reply that the kernel hasn't taken: none before there is one, and `u64::MAX` while nobody can say.
    pub(super) fn bytes_left(&self) -> u64 {
        if self.run.is_some() { u64::MAX } else { self.pieces.iter().map(Piece::left).sum() }
    }

    /// Whether something has been done for it that another server can't take over with the request.
    pub(super) fn is_begun(&self) -> bool {
        self.status != 0 || self.placing == Placing::Here || self.run.is_some() || self.question.is_some() || self.asks
    }

    /// Its refusal, if its client has been told, with what it has cost since that was asked last, and how much of that was charged to unknown work, in
    /// nanoseconds.
    pub(super) fn take_refused(&mut self) -> Option<(Refusal, (u64, u64))> {
        let refusal = self.refusal.filter(|_| !matches!(self.standing, Standing::Held(_)))?;
        Some((refusal, (mem::take(&mut self.cost_ns), mem::take(&mut self.unknown_ns))))
    }

    /// Makes it ready for another request.
    pub(super) fn reset(&mut self) {
        self.head.clear();
        self.path.clear();
        self.path_info.clear();
        self.encoded_slash = None;
        self.site = None;
        self.method = Method::Get;
        self.conditional = false;
        self.codings = CodingOrder::NONE;
        self.standing = Standing::Apart;
        self.refusal = None;
        self.cost_ns = 0;
        self.unknown_ns = 0;
        self.status = 0;
        self.error = None;
        self.fell_back = false;
        self.is_let_in = false;
        self.is_file = false;
        self.error_fields.clear();
        self.body_bytes = 0;
        self.question = None;
        self.asks = false;
        self.answer = None;
        self.pieces.clear();
        self.unchecked = None;
        self.resident_end = 0;
        self.unacknowledged_bytes = None;
        self.blocked_since = None;
        self.run = None;
        self.first = First::Admit;
        self.stays = false;
        self.given_up = false;
        self.goes_home = false;
        self.awaits_acknowledgement = false;
        self.placing = Placing::Unknown;
        self.content = ContentKey::default();
        self.is_fetched = false;
        self.is_passed_on = false;
        self.is_check = false;
        self.drawn = 0;
        self.resource = None;
    }

    /// Told what the client hasn't acknowledged by now, whether that's less than the last time: all may be with the kernel, and the client still reading it.
    pub(super) fn has_been_read_of(&mut self, unacknowledged_bytes: usize) -> bool {
        match self.unacknowledged_bytes.replace(unacknowledged_bytes) {
            Some(before) => unacknowledged_bytes < before,
            None => unacknowledged_bytes > 0,
        }
    }
}

impl<F> Piece<F> {
    /// What of it is in memory, and the kernel hasn't taken.
    pub(super) fn unsent_bytes(&self) -> &[u8] {
        match self {
            Piece::Bytes { bytes, done } => &bytes[*done..],
            Piece::File { .. } => &[],
        }
    }

    /// How many bytes that are.
    pub(super) fn unsent(&self) -> u64 {
        self.unsent_bytes().len() as u64
    }

    /// Bytes of it that the kernel hasn't taken, wherever they are.
    pub(super) fn left(&self) -> u64 {
        match self {
            Piece::Bytes { .. } => self.unsent(),
            Piece::File { .. } => self.len(),
        }
    }

    /// As [`Piece::unsent`], of what isn't anybody else's too, as the cache's are.
    pub(super) fn held(&self) -> usize {
        match self {
            Piece::Bytes { bytes, done } if bytes.is_unique() => bytes.len() - done,
            Piece::Bytes { .. } | Piece::File { .. } => 0,
        }
    }

    /// Bytes that it adds to a reply.
    pub(super) fn len(&self) -> u64 {
        match self {
            Piece::Bytes { bytes, .. } => bytes.len() as u64,
            Piece::File { offset, end, .. } => end - offset,
        }
    }
}
