//! One connection's life on the server's side (RFC 9112 section 9): heads and bodies in, one request at a time; when to go on, when to
//! close, and when time is up.
//!
//! The caller owns the bytes and does the I/O. It hands in everything received and not consumed, answers each request before it asks for
//! the next, and keeps what follows a request (pipelining) until then:
//!
//! ```text
//! handle_input* -> Request -> (handle_input -> Body)* -> BodyEnd     reply -> handle_transmit_progress* -> handle_reply_sent
//! ```
//!
//! A reply may begin before the body has ended: what is left of the body is then read and discarded after the reply.

mod state;

pub use state::ConnectionState;

use std::time::Duration;

use super::body::{BodyDecoder, BodyLength, BodyStep};
use super::head::{HeadProgress, HeadStep};
use super::known_sections::KnownSections;
use super::method::Method;
use super::outcome::{AfterReply, EndOfInput, Expired, Persistence, Progress};
use super::rejection::RejectReason;
use super::request::{Request, Version};
use super::{HEAD_BYTES_CEILING, Limits};
use crate::time::Instant;

/// The state of one connection: 48 bytes, no heap.
#[derive(Clone, Debug)]
pub struct Connection {
    /// When the current phase's clock was last set: see [`Connection::poll_timeout`].
    since: Instant,
    body: BodyDecoder,
    head: HeadProgress,
    /// Requests handed out.
    requests: RequestCount,
    /// How long it had lingered when the clock was set.
    lingered_ms: u16,
    phase: Phase,
    flags: Flags,
}

/// 24 bits are enough to count requests, and keep the connection small.
#[derive(Clone, Copy, Debug, Default)]
struct RequestCount([u8; 3]);

impl RequestCount {
    const MAX: u32 = 0xFF_FFFF;

    fn get(self) -> u32 {
        u32::from_le_bytes([self.0[0], self.0[1], self.0[2], 0])
    }

    fn of(count: u32) -> RequestCount {
        let [low, middle, high, _] = count.min(Self::MAX).to_le_bytes();
        RequestCount([low, middle, high])
    }

    fn increment(&mut self) {
        *self = RequestCount::of(self.get() + 1);
    }
}

/// How long a client may go on sending what is discarded, if that doesn't cease for [`Limits::linger_timeout`]: many read no reply before they have sent all.
const LINGERING_MAX: Duration = Duration::from_secs(30);

/// A client's kernel repeats what nobody has acknowledged within that time, if it ever does.
pub const ASKED_AGAIN_WITHIN: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before the first byte of a head.
    Idle,
    /// Within a head.
    Head,
    /// A request has been handed out, its body has not ended.
    Body,
    /// A request has been handed out, its body has ended, its reply has not.
    Reply,
    /// The reply is out, the body has not ended.
    Drain,
    /// A refusal is to be answered, or with [`Flags::ASKED_BEFORE`] to be begun.
    Rejected,
    /// Everything is answered; what comes is discarded until the client closes.
    Lingering,
    Closed,
}

/// Facts about the request in hand, and about the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flags(u8);

impl Flags {
    const REPLYING: u8 = 1;
    const HTTP10: u8 = 2;
    const CLIENT_CLOSES: u8 = 4;
    const MUST_CLOSE: u8 = 8;
    const CONTINUE_AWAITED: u8 = 16;
    /// What lasts longer than a request.
    const INPUT_ENDED: u8 = 32;
    /// The next request may have come to a server that has died. With [`Flags::MUST_CLOSE`], its client is known to have nothing of an answer.
    const ASKED_BEFORE: u8 = 64;
    /// Only on the way: whoever had the request in hand doesn't have what it names.
    const UNSERVED: u8 = 128;

    fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    fn set(&mut self, flag: u8, value: bool) {
        self.0 = (self.0 & !flag) | (u8::from(value) * flag);
    }
}

impl Connection {
    /// A connection that has just been accepted.
    #[must_use]
    pub fn new(now: Instant) -> Connection {
        Connection {
            since: now,
            body: BodyDecoder::default(),
            head: HeadProgress::default(),
            requests: RequestCount::default(),
            lingered_ms: 0,
            phase: Phase::Idle,
            flags: Flags::default(),
        }
    }

    /// Takes in `input`: everything received and not yet consumed. Returns how many bytes are done with, and what came of it. Call again
    /// at once with the rest until it answers [`Progress::NeedInput`], [`Progress::Reject`] or [`Progress::Ended`].
    pub fn handle_input<'i>(&mut self, now: Instant, input: &'i [u8], limits: &Limits) -> (usize, Progress<'i>) {
        self.handle_input_knowing(&mut KnownSections::default(), now, input, limits)
    }

    /// As [`Connection::handle_input`], by somebody who has seen many heads.
    #[inline]
    pub fn handle_input_knowing<'i>(
        &mut self,
        known: &mut KnownSections,
        now: Instant,
        input: &'i [u8],
        limits: &Limits,
    ) -> (usize, Progress<'i>) {
        match self.phase {
            Phase::Idle | Phase::Head => self.handle_head(known, now, input, limits),
            Phase::Body => self.handle_body(now, input, limits),
            Phase::Drain => self.drain(now, input, limits),
            Phase::Reply => (0, Progress::NeedInput),
            Phase::Rejected if self.flags.has(Flags::ASKED_BEFORE) => {
                (input.len(), self.reject(now, RejectReason::RequestLost))
            }
            Phase::Lingering => {
                if !input.is_empty() {
                    self.go_on_lingering(now);
                }
                (input.len(), Progress::NeedInput)
            }
            Phase::Rejected | Phase::Closed => (input.len(), Progress::NeedInput),
        }
    }

    // Inlined, what it returns would be moved once more.
    #[inline(never)]
    fn handle_head<'i>(
        &mut self,
        known: &mut KnownSections,
        now: Instant,
        input: &'i [u8],
        limits: &Limits,
    ) -> (usize, Progress<'i>) {
        // Filled in where it is returned: a request is too large to be moved for nothing.
        let mut found = (0, Progress::Request(Request::default()));
        if let (consumed, Progress::Request(request)) = &mut found {
            match self.head.step(input, limits, known, request) {
                HeadStep::Head(length) => {
                    *consumed = length;
                    let is_safe = matches!(request.method, Method::Get | Method::Head | Method::Options);
                    if self.flags.has(Flags::ASKED_BEFORE) && !is_safe {
                        return (length, self.reject(now, RejectReason::RequestLost));
                    }
                    self.begin_request(now, request);
                }
                HeadStep::NeedInput(skipped) => found = self.wait_for_head(now, skipped, input.len()),
                HeadStep::Reject(reason) => found = (input.len(), self.reject(now, reason)),
            }
        }
        found
    }

    #[cold]
    fn wait_for_head<'i>(&mut self, now: Instant, consumed: usize, received: usize) -> (usize, Progress<'i>) {
        if self.phase == Phase::Idle && self.head.has_begun() {
            self.phase = Phase::Head;
            // The first head's time runs from accept: a client that connects has something to say.
            if self.requests.get() > 0 {
                self.since = now;
            }
        }
        if self.flags.has(Flags::INPUT_ENDED) {
            self.phase = Phase::Closed;
            return (received, Progress::Ended);
        }
        (consumed, Progress::NeedInput)
    }

    fn begin_request(&mut self, now: Instant, request: &Request<'_>) {
        let http10 = request.version == Version::Http10;
        let options = request.connection;
        self.requests.increment();
        self.head = HeadProgress::default();
        self.since = now;
        let client_closes = options.close || (http10 && !options.keep_alive);
        self.flags = Flags(self.flags.0 & Flags::INPUT_ENDED);
        self.flags.set(Flags::HTTP10, http10);
        self.flags.set(Flags::CLIENT_CLOSES, client_closes);
        self.flags.set(Flags::CONTINUE_AWAITED, request.expect_continue);
        self.phase = if request.body == BodyLength::None {
            Phase::Reply
        } else {
            self.body = BodyDecoder::new(request.body);
            Phase::Body
        };
    }

    fn handle_body<'i>(&mut self, now: Instant, input: &'i [u8], limits: &Limits) -> (usize, Progress<'i>) {
        match self.body.step(input, limits) {
            Ok((consumed, step)) => {
                if consumed > 0 {
                    self.body_came(now, consumed, limits);
                    // A client that sends its body awaits no leave to do so.
                    self.flags.set(Flags::CONTINUE_AWAITED, false);
                }
                let progress = match step {
                    BodyStep::NeedInput => Progress::NeedInput,
                    BodyStep::Content(content) => Progress::Body(content),
                    BodyStep::End => {
                        self.phase = Phase::Reply;
                        Progress::BodyEnd
                    }
                };
                (consumed, progress)
            }
            Err(_) if self.flags.has(Flags::REPLYING) => {
                // The reply that is on its way has to do; nothing can follow it.
                self.flags.set(Flags::MUST_CLOSE, true);
                (0, Progress::NeedInput)
            }
            Err(reason) => (input.len(), self.reject(now, reason)),
        }
    }

    /// The clock of a body goes on by the time that so many bytes may take, never past now: who keeps the least rate keeps up with it.
    fn body_came(&mut self, now: Instant, bytes: usize, limits: &Limits) {
        let time = (bytes as u64).saturating_mul(1_000_000_000).checked_div(limits.body_rate_min);
        self.since = match time {
            Some(ns) => now.min(self.since.after(Duration::from_nanos(ns))),
            None if bytes > 0 => now,
            None => self.since,
        };
    }

    /// Discards the rest of a body whose reply is out, then goes on with the next head.
    fn drain<'i>(&mut self, now: Instant, input: &'i [u8], limits: &Limits) -> (usize, Progress<'i>) {
        let mut consumed = 0;
        loop {
            match self.body.step(&input[consumed..], limits) {
                Ok((count, step)) => {
                    consumed += count;
                    self.body_came(now, count, limits);
                    match step {
                        BodyStep::Content(_) => {}
                        BodyStep::NeedInput => return (consumed, Progress::NeedInput),
                        BodyStep::End => break,
                    }
                }
                Err(_) => {
                    // Its request has been answered: a second answer would be taken for the next one's.
                    self.begin_lingering(now);
                    return (input.len(), Progress::Ended);
                }
            }
        }
        self.begin_idle(now);
        (consumed, Progress::BodyEnd)
    }

    fn begin_lingering(&mut self, now: Instant) {
        (self.phase, self.since, self.lingered_ms) = (Phase::Lingering, now, 0);
    }

    /// The client still sends.
    fn go_on_lingering(&mut self, now: Instant) {
        // Whole milliseconds only, so that none is lost however often something comes.
        let ms = u16::try_from(now.since(self.since).as_millis()).unwrap_or(u16::MAX);
        self.since = self.since.after(Duration::from_millis(ms.into()));
        self.lingered_ms = self.lingered_ms.saturating_add(ms);
    }

    /// How long it had lingered when the clock was set.
    fn lingered(&self) -> Duration {
        match self.phase {
            Phase::Lingering => Duration::from_millis(self.lingered_ms.into()),
            _ => Duration::ZERO,
        }
    }

    /// A head that is refused is a request too: it's answered, logged, and not to have the number of the one before.
    fn enter_rejected(&mut self) {
        if matches!(self.phase, Phase::Idle | Phase::Head) {
            self.requests.increment();
        }
        self.flags.set(Flags::ASKED_BEFORE, false);
        self.phase = Phase::Rejected;
    }

    fn reject<'i>(&mut self, now: Instant, reason: RejectReason) -> Progress<'i> {
        self.enter_rejected();
        self.since = now;
        Progress::Reject(reason.into())
    }

    fn begin_idle(&mut self, now: Instant) {
        self.phase = Phase::Idle;
        self.since = now;
        self.head = HeadProgress::default();
        self.flags = Flags(self.flags.0 & Flags::INPUT_ENDED);
    }

    /// The client has ended its side (a read of zero bytes). Call it when everything received has been handed in as far as
    /// [`Connection::handle_input`] would take it; what a pipelining client sent before it ended its side is still answered.
    pub fn handle_end_of_input(&mut self) -> EndOfInput {
        self.flags.set(Flags::INPUT_ENDED, true);
        let replying = self.flags.has(Flags::REPLYING);
        match self.phase {
            Phase::Reply | Phase::Rejected => EndOfInput::AnswerFirst,
            Phase::Body if replying => {
                self.flags.set(Flags::MUST_CLOSE, true);
                EndOfInput::AnswerFirst
            }
            Phase::Head | Phase::Body => {
                self.phase = Phase::Closed;
                EndOfInput::Abort
            }
            Phase::Idle | Phase::Drain | Phase::Lingering | Phase::Closed => {
                self.phase = Phase::Closed;
                EndOfInput::Close
            }
        }
    }

    /// When to call [`Connection::handle_timeout`]; [`Instant::NEVER`] while the client waits for us.
    #[must_use]
    pub fn poll_timeout(&self, limits: &Limits) -> Instant {
        let timeout = match self.phase {
            Phase::Idle | Phase::Head if self.flags.has(Flags::ASKED_BEFORE) => ASKED_AGAIN_WITHIN,
            Phase::Idle if self.requests.get() > 0 => limits.idle_timeout,
            Phase::Idle | Phase::Head => limits.head_timeout,
            Phase::Reply if !self.flags.has(Flags::REPLYING) => return Instant::NEVER,
            Phase::Body | Phase::Reply | Phase::Drain | Phase::Rejected => limits.stall_timeout,
            Phase::Lingering => {
                let left = LINGERING_MAX.max(limits.linger_timeout).saturating_sub(self.lingered());
                limits.linger_timeout.min(left)
            }
            Phase::Closed => return Instant::NEVER,
        };
        self.since.after(timeout)
    }

    /// Time has passed. `None` when [`Connection::poll_timeout`] lies ahead still.
    pub fn handle_timeout(&mut self, now: Instant, limits: &Limits) -> Option<Expired> {
        if now < self.poll_timeout(limits) {
            return None;
        }
        Some(self.expire(now))
    }

    /// As if its time were up: for one that [`Connection::waits_since`], where others need its place.
    pub fn expire(&mut self, now: Instant) -> Expired {
        let expired = match self.phase {
            Phase::Idle | Phase::Head if self.flags.has(Flags::ASKED_BEFORE) => {
                if self.flags.has(Flags::MUST_CLOSE) {
                    return self.refuse_late(now, RejectReason::RequestLost);
                }
                Expired::Stalled
            }
            Phase::Idle if self.requests.get() > 0 && !self.flags.has(Flags::INPUT_ENDED) => {
                // The last reply may not have been read yet, and the next request be on its way.
                self.begin_lingering(now);
                return Expired::Idle;
            }
            Phase::Idle => Expired::Idle,
            Phase::Head => return self.refuse_late(now, RejectReason::HeadTimeout),
            Phase::Body if !self.flags.has(Flags::REPLYING) => {
                return self.refuse_late(now, RejectReason::BodyTimeout);
            }
            Phase::Lingering => Expired::Linger,
            Phase::Body | Phase::Reply | Phase::Drain | Phase::Rejected | Phase::Closed => Expired::Stalled,
        };
        self.phase = Phase::Closed;
        expired
    }

    fn refuse_late(&mut self, now: Instant, reason: RejectReason) -> Expired {
        self.enter_rejected();
        self.since = now;
        Expired::Late(reason.into())
    }

    /// 100 (Continue) has been sent.
    pub fn handle_continue_sent(&mut self) {
        self.flags.set(Flags::CONTINUE_AWAITED, false);
    }

    /// Nobody wants the content of the request in hand: it isn't waited for, and the reply is the last.
    pub fn give_up_content(&mut self) {
        self.flags.set(Flags::MUST_CLOSE, true);
    }

    /// True while the time that passes is the client's: to send a head, or content that nothing has been answered to yet.
    #[must_use]
    pub fn awaits_input(&self) -> bool {
        match self.phase {
            Phase::Idle | Phase::Head | Phase::Drain | Phase::Lingering => true,
            Phase::Body => !self.flags.has(Flags::REPLYING),
            Phase::Reply | Phase::Rejected | Phase::Closed => false,
        }
    }

    /// From `since` until now nothing was received, whatever the client has sent: that time isn't counted.
    pub fn handle_unread(&mut self, since: Instant, now: Instant) {
        if self.awaits_input() {
            self.since = self.since.after(now.since(since.max(self.since)));
        }
    }

    /// The kernel has taken bytes of the reply.
    pub fn handle_transmit_progress(&mut self, now: Instant) {
        self.since = now;
    }

    /// A reply begins, to the request in hand or to a refusal: decides what it says of the connection. `close`: the caller wants an end,
    /// as when the worker drains or when the reply's length can't be told in advance.
    pub fn reply(&mut self, now: Instant, limits: &Limits, close: bool) -> Persistence {
        self.since = now;
        self.flags.set(Flags::REPLYING, true);
        // A client that awaits leave to send its body may take the final status for a refusal and not send it: nobody knows then
        // where the next request begins (RFC 9110 section 10.1.1).
        let body_in_doubt = self.phase == Phase::Body && self.flags.has(Flags::CONTINUE_AWAITED);
        let is_last = close
            || body_in_doubt
            || self.phase == Phase::Rejected
            || self.flags.has(Flags::CLIENT_CLOSES)
            || self.flags.has(Flags::MUST_CLOSE)
            || self.requests.get() >= limits.requests_per_connection_max.min(RequestCount::MAX);
        if is_last {
            self.flags.set(Flags::MUST_CLOSE, true);
            Persistence::Close
        } else if self.flags.has(Flags::HTTP10) {
            Persistence::KeepAlive
        } else {
            Persistence::Persistent
        }
    }

    /// Whether the client has said that the request that is being answered is its last, and all of that has come.
    #[must_use]
    pub fn is_last_request(&self) -> bool {
        self.flags.has(Flags::CLIENT_CLOSES) && self.phase == Phase::Reply
    }

    /// Whether the request that is being answered has all come: what is behind it is the next one's.
    #[must_use]
    pub fn has_all_content(&self) -> bool {
        self.phase == Phase::Reply
    }

    /// The whole reply has been handed to the kernel.
    pub fn handle_reply_sent(&mut self, now: Instant) -> AfterReply {
        let must_close = self.flags.has(Flags::MUST_CLOSE) || !matches!(self.phase, Phase::Reply | Phase::Body);
        if must_close {
            let has_more_to_say = self.phase != Phase::Reply || !self.flags.has(Flags::CLIENT_CLOSES);
            let linger = has_more_to_say && !self.flags.has(Flags::INPUT_ENDED) && self.phase != Phase::Closed;
            self.begin_lingering(now);
            if !linger {
                self.phase = Phase::Closed;
            }
            return AfterReply::Close { linger };
        }
        if self.phase == Phase::Body {
            self.phase = Phase::Drain;
            self.since = now;
            return AfterReply::DrainBody;
        }
        self.begin_idle(now);
        AfterReply::NextRequest
    }

    /// After [`AfterReply::Close`], waits for the client's end all the same: as long as that, somebody can see what it has acknowledged. Whether there is
    /// an end to wait for.
    pub fn linger(&mut self, now: Instant) -> bool {
        if self.phase == Phase::Closed && !self.flags.has(Flags::INPUT_ENDED) {
            self.begin_lingering(now);
        }
        self.phase == Phase::Lingering
    }

    /// Requests handed out so far, and the one that was refused.
    #[must_use]
    pub fn request_count(&self) -> u32 {
        self.requests.get()
    }

    /// True after the last reply, while what the client still sends is discarded.
    #[must_use]
    pub fn is_lingering(&self) -> bool {
        self.phase == Phase::Lingering
    }

    /// Since when it has waited for a whole request, or for the client's end after a last reply; `None` while anything is owed to the client.
    #[must_use]
    pub fn waits_since(&self) -> Option<Instant> {
        let waits = matches!(self.phase, Phase::Idle | Phase::Head | Phase::Lingering);
        let since = Instant { ns: self.since.ns.saturating_sub(self.lingered().as_nanos() as u64) };
        (waits && !self.flags.has(Flags::ASKED_BEFORE)).then_some(since)
    }

    /// True between requests with nothing received of the next: a draining worker may close it now.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }
}

const _: () = assert!(size_of::<Connection>() <= 48 && HEAD_BYTES_CEILING <= u16::MAX as usize);
