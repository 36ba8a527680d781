//! Replies that go out together: those to requests that a client has sent without waiting for the one before (pipelining, RFC 9112 section 9.3.2). A
//! short reply with a whole request behind it waits for that one's, for as long as the request is in the tree and for a millisecond at most: one
//! send, and full segments. The order of requests is the tree's as ever.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use leat_host::reactor::{Reactor, Token, Transmit};
use leat_logic::http::Persistence;
use leat_logic::schedule::Operation;
use memchr::memmem;

use super::connection::Flags;
use super::{Host, Worker};

/// Bytes that go out together. More gains nothing: a send costs little beside them.
const BYTES_MAX: usize = 16 * 1024;
/// How long a reply may wait.
const WAIT_MAX_US: u32 = 1000;
/// So far the end of the next request's head is looked for.
const HEAD_LOOK_BYTES: usize = 4096;

/// What waits on a connection.
struct Waiting {
    bytes: Vec<u8>,
    /// [`Worker::now_us`] when the first of it came.
    since_us: u32,
}

/// See the module.
#[derive(Default)]
pub(super) struct Coalesced {
    waiting: HashMap<Token, Waiting>,
    /// The same in the order in which they began to wait, and some that have gone since.
    order: VecDeque<(Token, u32)>,
    /// Whose event is under way, in which alone a reply can begin to wait: what follows it is in the tree as the event ends.
    event: Option<Token>,
    /// Its reply waits, and counts as sent as soon as the event has ended.
    replied: bool,
}

impl Coalesced {
    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl<H: Host> Worker<H> {
    /// What of a whole reply is to be sent now, behind those that have waited for it; nothing if it waits itself.
    pub(super) fn coalesce(
        &mut self,
        token: Token,
        persistence: Persistence,
        head: Vec<u8>,
        body: Bytes,
    ) -> Option<(Vec<u8>, Bytes)> {
        let bytes = self.coalesced.waiting.get(&token).map_or(0, |waiting| waiting.bytes.len());
        let is_short = bytes + head.len() + body.len() <= BYTES_MAX;
        if !is_short || persistence != Persistence::Persistent || !self.may_wait(token) {
            let Some(mut together) = self.take_waiting(token) else { return Some((head, body)) };
            together.extend_from_slice(&head);
            return Some((together, body));
        }
        let Coalesced { waiting, order, replied, .. } = &mut self.coalesced;
        let waiting = waiting.entry(token).or_insert_with(|| {
            order.push_back((token, self.now_us));
            Waiting { bytes: self.reactor.send_buffer(), since_us: self.now_us }
        });
        waiting.bytes.extend_from_slice(&head);
        waiting.bytes.extend_from_slice(&body);
        *replied = true;
        self.connections[token].flags.coalesced = true;
        None
    }

    /// Whether another request has come whole, and nothing is about to become of its connection. A cluster's replies are told of one by one.
    fn may_wait(&self, token: Token) -> bool {
        let connection = &self.connections[token];
        let flags = connection.flags;
        let is_leaving = self.passages.is_giving() || self.is_retiring() || self.departures.are_any();
        let is_plain = self.cluster.is_none() && !is_leaving && !flags.held && !flags.ended && !flags.sending;
        let is_refusal = connection.exchange.as_ref().is_some_and(|exchange| exchange.refusal.is_some());
        let is_in_event = self.coalesced.event == Some(token);
        if !is_in_event || !is_plain || is_refusal || !connection.http.has_all_content() || connection.inbox.is_empty()
        {
            return false;
        }
        let input = connection.inbox.bytes(&self.reactor);
        memmem::find(&input[..input.len().min(HEAD_LOOK_BYTES)], b"\r\n\r\n").is_some()
    }

    fn take_waiting(&mut self, token: Token) -> Option<Vec<u8>> {
        let waiting = self.coalesced.waiting.remove(&token)?;
        self.connections[token].flags.coalesced = false;
        Some(waiting.bytes)
    }

    /// An event is about to be run.
    pub(super) fn event_begins(&mut self, token: Token) {
        self.coalesced.event = Some(token);
    }

    /// It has ended.
    pub(super) fn event_ended(&mut self, token: Token) {
        self.coalesced.event = None;
        if std::mem::take(&mut self.coalesced.replied)
            && self.connections.get(token).is_some_and(|connection| !connection.flags.closing)
        {
            self.reply_sent(token, self.now);
        }
        let is_queued = |flags: &Flags| flags.queued && !flags.parked;
        if self.coalesced.waiting.contains_key(&token)
            && self.connections.get(token).is_none_or(|connection| !is_queued(&connection.flags))
        {
            self.send_waiting(token);
        }
    }

    /// Sends what has waited for long enough; all, if something long comes next.
    pub(super) fn send_coalesced(&mut self, all: bool) {
        while let Some(&(token, since_us)) = self.coalesced.order.front() {
            if !all && self.now_us.wrapping_sub(since_us) < WAIT_MAX_US {
                return;
            }
            self.coalesced.order.pop_front();
            if self.coalesced.waiting.get(&token).is_some_and(|waiting| waiting.since_us == since_us) {
                self.send_waiting(token);
            }
        }
    }

    /// Sends what waits on a connection: on its own, as there is nothing yet to go with it.
    pub(super) fn send_waiting(&mut self, token: Token) {
        let Some(Waiting { bytes: head, .. }) = self.coalesced.waiting.remove(&token) else { return };
        let Some(connection) = self.connections.get(token).filter(|connection| !connection.flags.closing) else {
            return;
        };
        connection.flags.sending = true;
        let socket = connection.socket;
        self.charge_apart(token, Operation::Send, head.len() as u64);
        self.reactor.send(socket, token, Transmit { head, body: Bytes::new(), unhurried: false });
    }
}
