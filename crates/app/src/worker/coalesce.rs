//! Replies that go out together: those to requests that a client has sent without waiting for the one before (pipelining, RFC 9112 section 9.3.2). A
//! short reply with more requests behind it waits for theirs, which are next in their site's order, until the turn ends at most: one send, and the
//! segments full.

use bytes::Bytes;
use leat_host::reactor::{Reactor, Token, Transmit};
use leat_logic::http::Persistence;
use leat_logic::schedule::Operation;
use memchr::memmem;

use super::{Host, Stage, Worker};

/// Bytes that go out together. More gains nothing: a send costs little beside them.
const BYTES_MAX: usize = 16 * 1024;
/// Replies that go out together, and requests of one client that are served before others'.
const REPLIES_MAX: usize = 32;
/// So far the end of the next request's head is looked for.
const HEAD_LOOK_BYTES: usize = 4096;

/// What waits on a connection.
struct Waiting {
    token: Token,
    bytes: Vec<u8>,
    replies: usize,
}

/// See the module. Empty between two turns.
#[derive(Default)]
pub(super) struct Coalesced {
    waiting: Vec<Waiting>,
    /// Connections whose reply waits and is yet to be taken for sent, as the event that made it is still under way.
    replied: Vec<Token>,
}

impl Coalesced {
    /// The last one is the likeliest.
    fn find(&self, token: Token) -> Option<usize> {
        self.waiting.iter().rposition(|waiting| waiting.token == token)
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
        let place = self.coalesced.find(token);
        let (bytes, replies) = place.map_or((0, 0), |place| {
            let waiting = &self.coalesced.waiting[place];
            (waiting.bytes.len(), waiting.replies)
        });
        let waits = bytes + head.len() + body.len() <= BYTES_MAX
            && replies + 1 < REPLIES_MAX
            && persistence == Persistence::Persistent
            && self.may_coalesce(token);
        if !waits {
            let Some(place) = place else { return Some((head, body)) };
            let mut together = self.coalesced.waiting.swap_remove(place).bytes;
            together.extend_from_slice(&head);
            return Some((together, body));
        }
        let place = place.unwrap_or_else(|| {
            self.coalesced.waiting.push(Waiting { token, bytes: self.reactor.send_buffer(), replies: 0 });
            self.coalesced.waiting.len() - 1
        });
        let waiting = &mut self.coalesced.waiting[place];
        waiting.bytes.extend_from_slice(&head);
        waiting.bytes.extend_from_slice(&body);
        waiting.replies += 1;
        self.coalesced.replied.push(token);
        None
    }

    /// Whether another request has come whole, and nothing is about to become of its connection. A cluster's replies are told of one by one.
    fn may_coalesce(&self, token: Token) -> bool {
        let connection = &self.connections[token];
        let flags = connection.flags;
        let is_leaving = self.passages.is_giving() || self.is_retiring() || self.departures.are_any();
        let is_plain = self.cluster.is_none() && !is_leaving && !flags.held && !flags.ended && !flags.sending;
        let is_refusal = connection.exchange.as_ref().is_some_and(|exchange| exchange.refusal.is_some());
        if !is_plain || is_refusal || !connection.http.has_all_content() || connection.inbox.is_empty() {
            return false;
        }
        let input = connection.inbox.bytes(&self.reactor);
        memmem::find(&input[..input.len().min(HEAD_LOOK_BYTES)], b"\r\n\r\n").is_some()
    }

    /// Queues what comes next on a connection: before others', if a reply waits for it.
    pub(super) fn queue_next(&mut self, stage: Stage, token: Token) {
        match self.coalesced.find(token) {
            Some(_) => self.queue_first(stage, token),
            None => self.queue(stage, token),
        }
    }

    /// An event has ended: replies that it made, and that wait, count as sent.
    pub(super) fn settle_coalesced(&mut self) {
        while let Some(token) = self.coalesced.replied.pop() {
            if self.connections.get(token).is_some_and(|connection| !connection.flags.closing) {
                self.reply_sent(token, self.now);
            }
        }
    }

    /// Sends what waits.
    pub(super) fn send_coalesced(&mut self) {
        self.settle_coalesced();
        while let Some(Waiting { token, bytes, .. }) = self.coalesced.waiting.pop() {
            self.send_waiting(token, bytes);
        }
    }

    /// Sends what waits on a connection on which something else is to be sent.
    pub(super) fn send_coalesced_before(&mut self, token: Token) {
        if let Some(place) = self.coalesced.find(token) {
            let bytes = self.coalesced.waiting.swap_remove(place).bytes;
            self.send_waiting(token, bytes);
        }
    }

    fn send_waiting(&mut self, token: Token, head: Vec<u8>) {
        let Some(connection) = self.connections.get(token).filter(|connection| !connection.flags.closing) else {
            return;
        };
        connection.flags.sending = true;
        connection.flags.coalesced = true;
        let socket = connection.socket;
        self.charge_apart(token, Operation::Send, head.len() as u64);
        self.reactor.send(socket, token, Transmit { head, body: Bytes::new(), unhurried: false });
    }
}
