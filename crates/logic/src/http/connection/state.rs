//! A connection's state as plain numbers, so that it can go on in another process or on another machine. How the numbers are packed for the
//! way is the handoff's business.

use std::time::Duration;

use super::super::body::{BodyDecoder, BodyState};
use super::super::head::HeadProgress;
use super::{Connection, Flags, Phase, RequestCount};
use crate::time::Instant;

/// What [`Connection::export`] says and [`Connection::import`] takes. The codes stay the same in all versions. Goes along with what the
/// caller has received and not consumed: a head that is half there is searched again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionState {
    /// How long the current phase's clock has run.
    pub elapsed: Duration,
    /// Requests handed out.
    pub requests: u32,
    /// The phase's code.
    pub phase: u8,
    /// Facts about the request in hand, one bit each.
    pub flags: u8,
    /// Empty lines passed over before the head that is awaited.
    pub empty_lines: u8,
    /// How far the body of the request in hand has come.
    pub body: BodyState,
}

impl ConnectionState {
    /// The reply under way, or the next one, will be the last.
    pub fn close_after_reply(&mut self) {
        self.flags |= Flags::MUST_CLOSE;
    }

    /// The reply under way has been sent to its end: the next request is awaited. Returns whether it's so; otherwise the connection was to end with that reply, or
    /// some of the request's body is still to come, and nothing is changed.
    pub fn end_reply(&mut self) -> bool {
        let is_whole = matches!(PHASES.get(usize::from(self.phase)), Some(Phase::Idle | Phase::Reply));
        let is_last = self.flags & (Flags::CLIENT_CLOSES | Flags::MUST_CLOSE) != 0;
        if is_whole && !is_last {
            let (requests, flags) = (self.requests, self.flags & Flags::INPUT_ENDED);
            *self = ConnectionState { requests, flags, ..ConnectionState::default() };
        }
        is_whole && !is_last
    }

    /// Between requests: the next one may have come to a server that has died. If the client sends it again, that server's kernel hadn't acknowledged
    /// it, so the client has nothing of an answer; one that may have had an effect is refused (RFC 9110 section 9.2.2). The request of a client that
    /// sends nothing again soon is lost: that's answered if the client `has_nothing` of an answer, else it's cut.
    pub fn expect_again(&mut self, has_nothing: bool) {
        self.flags |= Flags::ASKED_BEFORE;
        if has_nothing {
            self.flags |= Flags::MUST_CLOSE;
        }
        self.elapsed = Duration::ZERO;
    }

    /// The request in hand, or between requests the next one, has died with its server, may have had an effect, and nothing of an answer is with its client:
    /// whoever goes on refuses it, whatever its client says.
    pub fn lose_request(&mut self) {
        let is_new = matches!(PHASES.get(usize::from(self.phase)), Some(Phase::Idle | Phase::Head));
        *self = ConnectionState {
            requests: self.requests + u32::from(is_new),
            phase: REJECTED,
            flags: self.flags & Flags::INPUT_ENDED | Flags::ASKED_BEFORE,
            ..ConnectionState::default()
        };
    }

    /// The client has ended its side, behind whatever has been received.
    pub fn end_input(&mut self) {
        self.flags |= Flags::INPUT_ENDED;
    }

    /// Whether the client has ended its side.
    #[must_use]
    pub fn has_input_ended(&self) -> bool {
        self.flags & Flags::INPUT_ENDED != 0
    }

    /// Whoever has the request in hand doesn't have what it names, and has it answered elsewhere.
    pub fn give_up_request(&mut self) {
        self.flags |= Flags::UNSERVED;
    }

    /// Whether the request in hand comes from a server that doesn't have what it names.
    #[must_use]
    pub fn is_request_given_up(&self) -> bool {
        self.flags & Flags::UNSERVED != 0
    }

    /// Whether the reply in hand is the last.
    #[must_use]
    pub fn closes_after_reply(&self) -> bool {
        self.flags & Flags::MUST_CLOSE != 0
    }

    /// Whether the next request may have come to a server that has died.
    #[must_use]
    pub fn expects_again(&self) -> bool {
        self.flags & Flags::ASKED_BEFORE != 0 && self.phase != REJECTED
    }

    /// Whether a client whose request is lost is told so by an answer, now or if it doesn't ask again.
    #[must_use]
    pub fn tells_of_loss(&self) -> bool {
        self.flags & Flags::ASKED_BEFORE != 0 && (self.phase == REJECTED || self.closes_after_reply())
    }
}

/// By code.
const PHASES: [Phase; 8] = [
    Phase::Idle,
    Phase::Head,
    Phase::Body,
    Phase::Reply,
    Phase::Drain,
    Phase::Rejected,
    Phase::Lingering,
    Phase::Closed,
];

/// The code of [`Phase::Rejected`].
const REJECTED: u8 = 5;
const _: () = assert!(matches!(PHASES[REJECTED as usize], Phase::Rejected));

impl Connection {
    /// This connection's state, to be imported elsewhere.
    #[must_use]
    pub fn export(&self, now: Instant) -> ConnectionState {
        let phase = PHASES.iter().position(|&phase| phase == self.phase).unwrap_or_default();
        ConnectionState {
            elapsed: now.since(self.since),
            requests: self.requests.get(),
            phase: phase.to_le_bytes()[0],
            flags: self.flags.0,
            empty_lines: self.head.empty_lines(),
            body: self.body.export(),
        }
    }

    /// A connection that goes on where another stood. `None` for numbers that no connection exports.
    #[must_use]
    pub fn import(now: Instant, state: &ConnectionState) -> Option<Connection> {
        let phase = *PHASES.get(usize::from(state.phase))?;
        let is_known = state.requests <= RequestCount::MAX;
        let elapsed_ns = u64::try_from(state.elapsed.as_nanos()).unwrap_or(u64::MAX);
        is_known.then_some(Connection {
            since: Instant { ns: now.ns.saturating_sub(elapsed_ns) },
            body: BodyDecoder::import(&state.body)?,
            head: HeadProgress::after_empty_lines(state.empty_lines)?,
            requests: RequestCount::of(state.requests),
            lingered_ms: 0,
            phase,
            flags: Flags(state.flags & !Flags::UNSERVED),
        })
    }
}
