//! What a worker keeps of each connection, idle or not: small, as there are thousands, and none of it on the heap while nothing is asked.
//!
//! The protocol's state is `http::Connection`'s; what a request in progress needs is the [`Exchange`]'s.

use std::net::SocketAddr;
use std::time::Duration;

use leat_host::reactor::{Reactor, ReceiveBuffer, Socket, Token};
use leat_logic::admission::LastAsked;
use leat_logic::http;
use leat_logic::schedule::LeafId;
use leat_logic::time::Instant;

use super::Stage;
use super::exchange::{Exchange, Piece, Standing};
use super::handler::Run;
use super::stream::Rooms;

/// Bytes received and not yet consumed.
///
/// The usual request comes in one receive buffer, is parsed where it lies and the buffer goes back at once. What is left (half a head, a
/// pipelined request) moves to memory of its own, so that no client can sit on the worker's receive buffers.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    held: Option<ReceiveBuffer>,
    kept: Vec<u8>,
}

impl Inbox {
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_none() && self.kept.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.held.as_ref().map_or(0, ReceiveBuffer::len) + self.kept.len()
    }

    /// Adds what was received behind what is there.
    pub(super) fn add<R: Reactor>(&mut self, reactor: &mut R, buffer: ReceiveBuffer) {
        if self.is_empty() {
            self.held = Some(buffer);
            return;
        }
        self.keep(reactor);
        self.kept.extend_from_slice(reactor.bytes(&buffer));
        reactor.release(buffer);
    }

    pub(super) fn bytes<'a, R: Reactor>(&'a self, reactor: &'a R) -> &'a [u8] {
        match &self.held {
            Some(buffer) => reactor.bytes(buffer),
            None => &self.kept,
        }
    }

    /// Drops the first `count` bytes and gives the receive buffer back.
    pub(super) fn consume<R: Reactor>(&mut self, reactor: &mut R, count: usize) {
        if let Some(buffer) = self.held.take() {
            debug_assert!(self.kept.is_empty(), "a buffer is held only while nothing else is there");
            self.kept.extend_from_slice(&reactor.bytes(&buffer)[count..]);
            reactor.release(buffer);
        } else if count >= self.kept.len() {
            // An idle connection holds no memory.
            self.kept = Vec::new();
        } else {
            self.kept.drain(..count);
        }
    }

    /// What has moved to memory of its own: everything, after [`Inbox::keep`].
    pub(super) fn kept(&self) -> &[u8] {
        &self.kept
    }

    /// Where to receive more behind what is there: memory of its own, with room for `bytes` in all.
    pub(super) fn room<R: Reactor>(&mut self, reactor: &mut R, rooms: &mut Rooms, bytes: usize) -> &mut Vec<u8> {
        self.keep(reactor);
        if self.kept.capacity() < bytes {
            let mut room = rooms.take();
            room.extend_from_slice(&self.kept);
            self.kept = room;
        }
        &mut self.kept
    }

    /// As [`Inbox::consume`] of what is kept, for a connection from which much comes: the memory is for the next of those.
    pub(super) fn consume_kept(&mut self, count: usize, rooms: &mut Rooms) {
        if count > 0 {
            let rest = self.kept[count..].to_vec();
            rooms.give(std::mem::replace(&mut self.kept, rest));
        }
    }

    /// Puts in what was received elsewhere; nothing else is there yet.
    pub(super) fn put(&mut self, bytes: Vec<u8>) {
        debug_assert!(self.is_empty(), "bytes would lose their order");
        self.kept = bytes;
    }

    /// Moves everything out of the receive buffer.
    pub(super) fn keep<R: Reactor>(&mut self, reactor: &mut R) {
        self.consume(reactor, 0);
    }

    pub(super) fn clear<R: Reactor>(&mut self, reactor: &mut R) {
        if let Some(buffer) = self.held.take() {
            reactor.release(buffer);
        }
        self.kept = Vec::new();
    }
}

/// One connection.
pub(super) struct Connection<F> {
    pub(super) http: http::Connection,
    pub(super) inbox: Inbox,
    /// The request in progress.
    pub(super) exchange: Option<Box<Exchange<F>>>,
    pub(super) socket: Socket,
    /// Who is at its other end, or whoever a balancer has said that is; `None` where it was gone as it was accepted, and for the admin address.
    pub(super) client: Option<SocketAddr>,
    /// The site of the last request, which pays for receiving the next.
    pub(super) site: u32,
    /// Where its events wait while its site isn't known; else at its listener's.
    pub(super) leaf: Option<LeafId>,
    pub(super) generation: u16,
    /// Where it was accepted.
    pub(super) listener: u16,
    /// When the oldest bytes arrived that nobody has looked at yet, as [`super::Worker::now_us`].
    pub(super) arrived_us: u32,
    /// For admission control.
    pub(super) last_asked: LastAsked,
    /// When it's looked at again, if it's held.
    pub(super) held_until: Instant,
    /// What its site's memory quota knows of.
    pub(super) accounted_bytes: u32,
    /// Discarded after the last reply.
    pub(super) lingered_bytes: u32,
    /// When its event was queued, as [`super::Worker::now_us`]: another that is in the tree comes to nothing, as its request has been refused.
    pub(super) queued_us: u32,
    /// For how long its site's quota has kept what it sent last from being looked at.
    pub(super) parked_us: u32,
    pub(super) flags: Flags,
}

impl<F> Connection<F> {
    /// Whether the client is waited for, and leat doesn't receive or hasn't looked at what has come: then it isn't the client who is late. Who gathers may
    /// wait only as long as it might be silent.
    pub(super) fn awaits_us(&self) -> bool {
        let is_unseen = self.flags.unread && !self.awaits_content() || self.flags.queued && self.exchange.is_none();
        is_unseen && self.http.awaits_input()
    }

    /// Whether a handler is at work for the client. A file that another server has is no work.
    pub(super) fn is_being_handled(&self) -> bool {
        let exchange = self.exchange.as_ref().filter(|exchange| !exchange.is_fetched);
        exchange.and_then(|exchange| exchange.run.as_ref()).is_some_and(Run::is_needed)
    }

    /// Bytes that lie here for it and nobody else: received and not processed, or waiting to be sent. A program's stream has some beside.
    pub(super) fn held_bytes(&self) -> usize {
        let Some(exchange) = &self.exchange else { return self.inbox.len() };
        let of_run = exchange.run.as_ref().map_or(0, Run::held_bytes);
        self.inbox.len() + of_run + exchange.pieces.iter().map(Piece::held).sum::<usize>()
    }

    /// Whether content of its request lies here until a program has had all of it, or will.
    pub(super) fn is_gathering(&self) -> bool {
        self.exchange.as_ref().and_then(|exchange| exchange.run.as_ref()).is_some_and(Run::is_gathering)
    }

    /// Whether not all of that has come.
    pub(super) fn awaits_content(&self) -> bool {
        self.is_gathering() && self.expects_content()
    }

    /// Who a balancer has said that the client is.
    pub(super) fn told_client(&self) -> Option<SocketAddr> {
        self.client.filter(|_| self.flags.told)
    }

    /// The stream to the program that answers its request.
    pub(super) fn program_stream(&self) -> Option<Token> {
        self.exchange.as_ref().and_then(|exchange| exchange.run.as_ref()).and_then(Run::stream)
    }

    /// An event of it has been kept from its place in the order for so long, as its site was over a quota: that is no wait for others.
    pub(super) fn was_parked(&mut self, stage: Stage, time: Duration) {
        match self.exchange.as_deref_mut() {
            Some(exchange) if exchange.standing == Standing::Waiting => exchange.queued = exchange.queued.after(time),
            Some(exchange) if exchange.standing == Standing::Replied => exchange.replied = exchange.replied.after(time),
            None if stage == Stage::Receive => {
                let time_us = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
                self.parked_us = self.parked_us.saturating_add(time_us);
            }
            _ => {}
        }
    }

    /// Whether a program waits for the content of the request in hand.
    pub(super) fn expects_content(&self) -> bool {
        self.exchange.as_ref().and_then(|exchange| exchange.run.as_ref()).is_some_and(Run::expects_content)
    }
}

/// What is under way for a connection. Plain facts, no state machine: that is `http::Connection`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flags {
    /// The slot is in use.
    pub(super) open: bool,
    /// The reactor receives for it.
    pub(super) receiving: bool,
    /// Receiving ends with the next bytes.
    pub(super) once: bool,
    /// The last bytes filled a receive buffer: there may be more.
    pub(super) behind: bool,
    /// Its last request had long content, which is received in few large parts.
    pub(super) uploads: bool,
    /// The reactor has been asked to stop receiving.
    pub(super) pausing: bool,
    /// A send is with the reactor.
    pub(super) sending: bool,
    /// The reactor tells when it's writable.
    pub(super) awaiting: bool,
    /// The client has ended its side.
    pub(super) ended: bool,
    /// An event of it is in the tree.
    pub(super) queued: bool,
    /// That waits beside the tree.
    pub(super) parked: bool,
    /// Earlier replies wait, or are what is being sent.
    pub(super) coalesced: bool,
    /// Its last request was refused: what comes next isn't looked at for a while, [`Connection::held_until`] then or before; or, if that is all it asks, it
    /// isn't told before.
    pub(super) held: bool,
    /// While it's held, something has come.
    pub(super) asked: bool,
    /// It goes to another worker as soon as receiving has stopped.
    pub(super) departing: bool,
    /// It goes to the next engine as soon as the reactor has let go of it.
    pub(super) leaving: bool,
    /// The next engine doesn't take it as it is.
    pub(super) stays: bool,
    /// Nor will it later: its next reply is the last.
    pub(super) unwanted: bool,
    /// Nothing is received for it, as its site holds too much.
    pub(super) unread: bool,
    /// What comes next may have waited where the worker couldn't see it.
    pub(super) was_hidden: bool,
    /// It isn't held any more so that it asks anew: what comes next is too old to be served.
    pub(super) let_go: bool,
    /// A balancer hasn't told yet who the client is.
    pub(super) untold: bool,
    /// A balancer has told.
    pub(super) told: bool,
    /// Its home is to be told when it rests.
    pub(super) may_rest: bool,
    /// It closes as soon as nothing is under way.
    pub(super) closing: bool,
    /// With a reset.
    pub(super) cut: bool,
    /// It lives on elsewhere: its client is to hear nothing of how it ends here.
    pub(super) elsewhere: bool,
}

impl Flags {
    /// Whether the reactor still owes a completion.
    pub(super) fn busy(self) -> bool {
        self.receiving || self.sending || self.awaiting
    }
}

/// What a site still has of a connection that isn't there any more: `Worker::leave_nothing`.
#[must_use]
pub(super) struct Left {
    pub(super) token: Token,
    pub(super) site: u32,
    pub(super) held_bytes: u32,
    pub(super) flags: Flags,
}

/// All connections of a worker, by slot.
pub(super) struct Connections<F> {
    slots: Vec<Connection<F>>,
    free: Vec<u32>,
    /// Slots lent to what isn't a connection.
    lent: usize,
}

/// Slots added at a time: doubling would leave half of the memory of many thousand idle connections unused.
const GROWTH: usize = 1024;

impl<F> Connections<F> {
    pub(super) fn new() -> Connections<F> {
        Connections { slots: Vec::new(), free: Vec::new(), lent: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len() - self.lent
    }

    /// Slots, used or not: every index is below.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn open(&mut self, now: Instant, socket: Socket, listener: u16) -> Token {
        let http = http::Connection::new(now);
        let index = match self.free.pop() {
            Some(index) => {
                let slot = &mut self.slots[index as usize];
                slot.http = http;
                slot.generation = slot.generation.wrapping_add(1);
                index
            }
            None => {
                if self.slots.len() == self.slots.capacity() {
                    self.slots.reserve_exact(GROWTH);
                }
                let index = self.slots.len() as u32;
                self.slots.push(Connection {
                    http,
                    inbox: Inbox::default(),
                    exchange: None,
                    socket,
                    client: None,
                    site: 0,
                    leaf: None,
                    generation: 0,
                    listener,
                    arrived_us: 0,
                    last_asked: LastAsked::default(),
                    held_until: Instant::NEVER,
                    accounted_bytes: 0,
                    lingered_bytes: 0,
                    queued_us: 0,
                    parked_us: 0,
                    flags: Flags::default(),
                });
                index
            }
        };
        let slot = &mut self.slots[index as usize];
        slot.socket = socket;
        slot.client = None;
        slot.listener = listener;
        slot.leaf = None;
        slot.site = super::UNKNOWN_SITE;
        slot.arrived_us = super::microseconds(now);
        slot.last_asked = LastAsked::default();
        slot.lingered_bytes = 0;
        slot.parked_us = 0;
        slot.flags = Flags { open: true, ..Flags::default() };
        Token { index, generation: slot.generation }
    }

    /// Lends a slot, for its token, to something that the reactor or the tree is to know by one and that isn't a connection.
    pub(super) fn lend(&mut self) -> Token {
        // Nothing looks at a slot that isn't open.
        let token = self.open(Instant::default(), Socket(u32::MAX), 0);
        self.slots[token.index as usize].flags = Flags::default();
        self.lent += 1;
        token
    }

    /// Takes a slot back that was lent.
    pub(super) fn take_back(&mut self, token: Token) {
        self.lent -= 1;
        self.free.push(token.index);
    }

    /// Frees the slot. Its inbox must be empty: the reactor wants its buffers back. Returns what was in progress, and what its site has of it.
    pub(super) fn close(&mut self, index: u32) -> (Option<Box<Exchange<F>>>, Left) {
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.flags.open && slot.inbox.is_empty() && !slot.flags.busy());
        let left = Left {
            token: Token { index, generation: slot.generation },
            site: slot.site,
            held_bytes: std::mem::take(&mut slot.accounted_bytes),
            flags: std::mem::take(&mut slot.flags),
        };
        self.free.push(index);
        (slot.exchange.take(), left)
    }

    /// The connection that a token names, if it's still that one.
    pub(super) fn get(&mut self, token: Token) -> Option<&mut Connection<F>> {
        self.slots.get_mut(token.index as usize).filter(|slot| slot.flags.open && slot.generation == token.generation)
    }

    /// Whoever is in a slot now.
    pub(super) fn token(&self, index: u32) -> Option<Token> {
        let slot = self.slots.get(index as usize)?;
        slot.flags.open.then_some(Token { index, generation: slot.generation })
    }
}

impl<F> std::ops::Index<Token> for Connections<F> {
    type Output = Connection<F>;

    fn index(&self, token: Token) -> &Connection<F> {
        &self.slots[token.index as usize]
    }
}

impl<F> std::ops::IndexMut<Token> for Connections<F> {
    fn index_mut(&mut self, token: Token) -> &mut Connection<F> {
        &mut self.slots[token.index as usize]
    }
}
