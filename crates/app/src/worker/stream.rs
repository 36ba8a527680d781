//! Streams: sockets of a worker that aren't HTTP clients': to a program that it started or a peer that it connected to, or of a client at a
//! port for another protocol. Bytes in both directions in
//! buffers of limited size; what they mean is the owner's. A stream has a slot among the connections, so that the reactor and the tree know
//! it by a token like any other.
//!
//! Back-pressure is by credit: a receive is asked for only while its bytes have a place, and an owner puts in no more than [`Stream::room`].

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use leat_host::reactor::{RECEIVE_BUFFER_BYTES, Reactor, ReceiveBuffer, SendNow, Socket, Token};

use super::handler::Handler;
use super::{Host, Stage, Worker};

/// Bytes received that the owner hasn't taken.
const INBOX_BYTES_MAX: usize = 128 * 1024;
/// Bytes that wait to be sent: all that a client's or another stream's inbox may hold goes out in one piece, behind a head.
const OUTBOX_BYTES_MAX: usize = INBOX_BYTES_MAX + RECEIVE_BUFFER_BYTES;
/// More than that isn't copied to be sent together with what follows: a call for each is the cheaper then.
const COPIED_BYTES_MAX: usize = 16 * 1024;
/// Buffers kept for those from whom much comes.
const ROOMS_MAX: usize = 16;

/// Who is told what comes by a stream.
pub(super) enum Owner {
    /// The cluster: it's a link to another server.
    Link,
    /// The client of this token at a port for another protocol: it's that one's own stream, or one to a node.
    Relay(Token),
    /// Nobody: whether a node of a port can be reached is found out.
    Probe,
    /// The connection whose request is being answered by it.
    Connection(Token),
    /// Nobody now: a handler keeps it for the next request to this responder.
    Kept { handler: Rc<Handler>, responder: usize },
}

/// What came of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probed {
    /// There was a connection.
    Well,
    /// The machine said that there is none to be had.
    Refused,
    /// Nobody said anything, or not in time.
    Silent,
}

/// One stream.
pub(super) struct Stream {
    token: Token,
    pub(super) owner: Owner,
    socket: Socket,
    inbox: Vec<u8>,
    /// Bytes of the inbox that have been taken.
    taken: usize,
    outbox: Vec<u8>,
    /// Bytes of the outbox that have been sent.
    sent: usize,
    flags: Flags,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    /// It isn't decided yet whether the peer is there.
    connecting: bool,
    /// A receive is with the reactor.
    receiving: bool,
    /// The reactor tells when it's writable.
    awaiting: bool,
    /// The peer will send no more.
    ended: bool,
    /// What it said may not be all: the connection has failed.
    broken: bool,
    /// The peer's machine said that nobody listens.
    refused: bool,
    /// The peer takes no more.
    deaf: bool,
    /// A relay's node that nothing has been sent to: what is in the outbox can be told to another.
    untold: bool,
    /// Nothing will be put in any more: our side ends after what is in the outbox.
    finishing: bool,
    /// Our side has ended.
    finished: bool,
    /// It closes as soon as nothing is under way.
    closing: bool,
    /// With a reset.
    cut: bool,
    /// Its owner's site holds too much.
    narrow: bool,
    /// Its owner says each time when more is received.
    paced: bool,
    /// More had come than is received at a time.
    plenty: bool,
    /// That is received when the request's turn comes: [`Stream::catch_up`].
    behind: bool,
    /// The kernel resets it unless it's closed in order.
    fragile: bool,
    /// It's about to go to another process: nothing is received or sent.
    frozen: bool,
}

/// What is in a stream that goes to another process, or comes from one.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// What has come and hasn't been taken.
    pub(super) inbox: Vec<u8>,
    /// What was put in and hasn't been sent.
    pub(super) outbox: Vec<u8>,
}

impl Stream {
    fn new(token: Token, owner: Owner, socket: Socket, connecting: bool) -> Stream {
        let untold = connecting && matches!(owner, Owner::Relay(_));
        let flags = Flags { connecting, untold, ..Flags::default() };
        Stream { token, owner, socket, inbox: Vec::new(), taken: 0, outbox: Vec::new(), sent: 0, flags }
    }

    pub(super) fn socket(&self) -> Socket {
        self.socket
    }

    /// Has the peer see a reset if the process ends before the stream does: an end in order would pass off a part of what was to be said as all of it.
    pub(super) fn fail_with_the_process<R: Reactor>(&mut self, reactor: &mut R) {
        self.flags.fragile = true;
        reactor.set_reset_on_close(self.socket, true);
    }

    /// Has the reactor let go of it, so that it can go to another process; the owner is told of all that has to end first. Whether nothing has.
    pub(super) fn freeze<R: Reactor>(&mut self, reactor: &mut R) -> bool {
        if !std::mem::replace(&mut self.flags.frozen, true) {
            self.interrupt(reactor);
        }
        !(self.flags.receiving || self.flags.awaiting)
    }

    /// It stays after all.
    pub(super) fn thaw<R: Reactor>(&mut self, reactor: &mut R) {
        if std::mem::take(&mut self.flags.frozen) {
            self.flush(reactor);
            self.ask(reactor);
        }
    }

    /// Whether it would be in another process what it is here: an end in order is heard there again, a failure isn't.
    pub(super) fn can_travel(&self) -> bool {
        let Flags { connecting, broken, deaf, .. } = self.flags;
        !(connecting || broken || deaf)
    }

    /// Has everything that is under way complete.
    fn interrupt<R: Reactor>(&self, reactor: &mut R) {
        if self.flags.receiving {
            reactor.pause(self.socket, self.token);
        }
        if self.flags.awaiting {
            reactor.stop_awaiting_writable(self.socket, self.token);
        }
    }

    /// Gets things going.
    fn begin<R: Reactor>(&mut self, reactor: &mut R) {
        if self.flags.connecting {
            self.flags.awaiting = true;
            reactor.await_writable(self.socket, self.token);
        } else {
            self.ask(reactor);
        }
    }

    /// What has come and hasn't been taken.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.inbox[self.taken..]
    }

    /// Has it receive little ahead of its owner, or again as much as usual.
    pub(super) fn narrow(&mut self, narrow: bool) {
        self.flags.narrow = narrow;
    }

    fn inbox_bytes_max(&self) -> usize {
        if self.flags.narrow { 2 * RECEIVE_BUFFER_BYTES } else { INBOX_BYTES_MAX }
    }

    /// Has it receive no more until [`Stream::go_on`], each time that something has come.
    pub(super) fn pace(&mut self) {
        self.flags.paced = true;
    }

    /// Whether its owner says when more is received.
    pub(super) fn is_paced(&self) -> bool {
        self.flags.paced
    }

    /// Whether so much had come last that there may be more by now.
    pub(super) fn has_plenty(&self) -> bool {
        self.flags.plenty
    }

    /// Takes the first `count` bytes, and asks for more; for a request, who takes asks ([`Stream::ask`]) once it knows that more is wanted.
    pub(super) fn take<R: Reactor>(&mut self, reactor: &mut R, count: usize) {
        self.taken += count;
        if self.taken == self.inbox.len() {
            self.inbox.clear();
            self.taken = 0;
        } else if self.taken > self.inbox_bytes_max() / 2 {
            self.inbox.drain(..std::mem::take(&mut self.taken));
        }
        if !self.is_requests() {
            self.ask(reactor);
        }
    }

    fn is_requests(&self) -> bool {
        matches!(self.owner, Owner::Connection(_))
    }

    /// Whether the peer will send no more than what is in the inbox.
    pub(super) fn has_ended(&self) -> bool {
        self.flags.ended
    }

    /// Whether it isn't decided yet whether the peer is there.
    pub(super) fn is_connecting(&self) -> bool {
        self.flags.connecting
    }

    /// Whether the connection has failed: what is in the inbox may be less than what the peer said.
    pub(super) fn is_broken(&self) -> bool {
        self.flags.broken
    }

    /// What came of it as a probe.
    pub(super) fn probed(&self) -> Probed {
        match self.flags {
            Flags { refused: true, .. } => Probed::Refused,
            Flags { broken: true, .. } => Probed::Silent,
            _ => Probed::Well,
        }
    }

    /// Whether the peer neither says nor hears anything more: a reset that a send was told of looks like an end in order to a receive.
    pub(super) fn is_gone(&self) -> bool {
        self.flags.broken || self.flags.ended && self.flags.deaf
    }

    /// Whether the connection has failed and the peer has had nothing of what is in the outbox.
    pub(super) fn is_lost_untold(&self) -> bool {
        self.is_gone() && self.flags.untold
    }

    /// Whether the peer has ended its side, and heard ours as far as is known.
    pub(super) fn has_ended_in_order(&self) -> bool {
        self.flags.ended && !self.is_gone() && self.is_flushed()
    }

    /// Bytes that may be put in. A peer that takes no more can be told anything, unless that is kept for another.
    pub(super) fn room(&self) -> usize {
        if self.flags.deaf && !self.flags.untold {
            OUTBOX_BYTES_MAX
        } else {
            OUTBOX_BYTES_MAX.saturating_sub(self.outbox.len() - self.sent)
        }
    }

    /// Whether there may be more in the kernel, which is received when its owner's turn comes.
    pub(super) fn is_behind(&self) -> bool {
        self.flags.behind
    }

    /// Receives what has come beyond a full buffer, as its owner is about to look: read and sent on in one go, bytes are still in the processor's cache.
    pub(super) fn catch_up<R: Reactor>(&mut self, reactor: &mut R) {
        let space = self.inbox_bytes_max().saturating_sub(self.inbox.len());
        if !self.flags.behind || space == 0 {
            return;
        }
        match reactor.receive_now(self.socket, self.token, &mut self.inbox, space) {
            Ok(count) => self.flags.behind = count == space,
            Err(_) => {
                self.flags.behind = false;
                self.ended(true);
            }
        }
    }

    /// Bytes that lie here, in both directions.
    pub(super) fn held_bytes(&self) -> usize {
        self.inbox.len() - self.taken + self.outbox.len() - self.sent
    }

    /// Whether everything that was put in is with the kernel.
    pub(super) fn is_flushed(&self) -> bool {
        self.flags.deaf || self.sent == self.outbox.len()
    }

    /// Takes what a peer that couldn't be reached was to be told.
    pub(super) fn take_outbox(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.outbox)
    }

    /// Where to put bytes in, no more than there is room for (and what little frames them): [`Stream::flush`] sends them.
    pub(super) fn outbox(&mut self) -> &mut Vec<u8> {
        &mut self.outbox
    }

    /// Ends our side after what is in the outbox.
    pub(super) fn finish<R: Reactor>(&mut self, reactor: &mut R) {
        self.flags.finishing = true;
        self.flush(reactor);
    }

    /// Sends what can be sent now; the rest follows by itself.
    pub(super) fn flush<R: Reactor>(&mut self, reactor: &mut R) {
        if self.flags.connecting || self.flags.awaiting || self.flags.closing || self.flags.frozen {
            return;
        }
        while self.sent < self.outbox.len() && !self.flags.deaf {
            match reactor.send_now(self.socket, &self.outbox[self.sent..], false) {
                SendNow::Sent(count) => {
                    self.sent += count;
                    self.flags.untold = false;
                }
                SendNow::Blocked => {
                    if self.sent > OUTBOX_BYTES_MAX / 2 {
                        self.outbox.drain(..std::mem::take(&mut self.sent));
                    }
                    self.flags.awaiting = true;
                    reactor.await_writable(self.socket, self.token);
                    return;
                }
                SendNow::EndOfFile => self.flags.deaf = true,
                SendNow::Failed(error) => self.is_deaf(&error),
            }
        }
        if self.flags.deaf && self.flags.untold {
            return;
        }
        self.outbox.clear();
        self.sent = 0;
        if self.flags.finishing && !std::mem::replace(&mut self.flags.finished, true) {
            reactor.shutdown(self.socket, self.token, false);
        }
    }

    /// A send has failed. A reset is told of once: a receive would take what follows it for an end in order.
    fn is_deaf(&mut self, error: &io::Error) {
        self.flags.deaf = true;
        self.flags.broken |= error.kind() == io::ErrorKind::ConnectionReset;
    }

    /// Sends bytes that there is room for, from where they lie. What can't be sent now waits in the outbox; the rest never was there.
    pub(super) fn say<R: Reactor>(&mut self, reactor: &mut R, mut bytes: &[u8]) {
        let Flags { connecting, awaiting, closing, deaf, frozen, .. } = self.flags;
        if !(connecting || awaiting || closing || deaf || frozen || bytes.is_empty()) {
            let outbox = &self.outbox[self.sent..];
            let outcome = match outbox.is_empty() {
                true => reactor.send_now(self.socket, bytes, false),
                false => reactor.send_parts_now(self.socket, &[IoSlice::new(outbox), IoSlice::new(bytes)]),
            };
            match outcome {
                SendNow::Sent(count) => {
                    let of_outbox = count.min(self.outbox.len() - self.sent);
                    self.sent += of_outbox;
                    bytes = &bytes[count - of_outbox..];
                    self.flags.untold = false;
                }
                SendNow::Blocked => {}
                SendNow::EndOfFile => self.flags.deaf = true,
                SendNow::Failed(error) => self.is_deaf(&error),
            }
        }
        self.outbox.extend_from_slice(bytes);
        self.flush(reactor);
    }

    /// Receives what comes next, unless its owner says when.
    pub(super) fn ask<R: Reactor>(&mut self, reactor: &mut R) {
        if !self.flags.paced {
            self.go_on(reactor);
        }
    }

    /// Receives what comes next, if there is a place for it.
    pub(super) fn go_on<R: Reactor>(&mut self, reactor: &mut R) {
        let Flags { connecting, receiving, ended, closing, behind, frozen, .. } = self.flags;
        let has_place = self.inbox.len() + RECEIVE_BUFFER_BYTES <= self.inbox_bytes_max();
        if !connecting && !receiving && !ended && !closing && !behind && !frozen && has_place {
            self.flags.receiving = true;
            reactor.receive_once(self.socket, self.token);
        }
    }

    fn received<R: Reactor>(&mut self, reactor: &mut R, buffer: ReceiveBuffer, rooms: &mut Rooms) {
        self.flags.receiving = false;
        let may_have_more = buffer.len() == RECEIVE_BUFFER_BYTES;
        self.flags.plenty = may_have_more;
        self.flags.behind = may_have_more && self.is_requests();
        if self.flags.behind && self.inbox.is_empty() {
            self.inbox = rooms.take();
        }
        if !self.flags.closing {
            self.inbox.extend_from_slice(reactor.bytes(&buffer));
        }
        reactor.release(buffer);
        if self.is_requests() {
            return;
        }
        let space = self.inbox_bytes_max().saturating_sub(self.inbox.len());
        if may_have_more
            && space > 0
            && !self.flags.closing
            && reactor.receive_now(self.socket, self.token, &mut self.inbox, space).is_err()
        {
            return self.ended(true);
        }
        self.ask(reactor);
    }

    /// Receiving has stopped, as was asked for.
    fn stopped<R: Reactor>(&mut self, reactor: &mut R) {
        self.flags.receiving = false;
        self.ask(reactor);
    }

    /// The peer has ended its side, or is gone: what it said before is in the inbox either way.
    fn ended(&mut self, broken: bool) {
        self.flags.receiving = false;
        self.flags.ended = true;
        self.flags.broken |= broken;
    }

    fn writable<R: Reactor>(&mut self, reactor: &mut R) {
        self.flags.awaiting = false;
        if std::mem::take(&mut self.flags.connecting)
            && let Err(error) = reactor.connected(self.socket)
        {
            self.flags.refused = error.kind() == io::ErrorKind::ConnectionRefused;
            self.flags.ended = true;
            self.flags.broken = true;
            self.flags.deaf = true;
            return;
        }
        self.flush(reactor);
        self.ask(reactor);
    }

    /// Closes it, now or once nothing is under way. Whether it's closed.
    fn close<R: Reactor>(&mut self, reactor: &mut R) -> bool {
        let was_closing = std::mem::replace(&mut self.flags.closing, true);
        let is_busy = self.flags.receiving || self.flags.awaiting;
        if !self.flags.cut && std::mem::take(&mut self.flags.fragile) {
            reactor.set_reset_on_close(self.socket, false);
        }
        match is_busy {
            // A shutdown would have the peer see an end in order before the reset.
            true if !was_closing && self.flags.cut => self.interrupt(reactor),
            true if !was_closing => reactor.shutdown(self.socket, self.token, true),
            true => {}
            false => reactor.close(self.socket, self.flags.cut),
        }
        !is_busy
    }
}

/// Something that the reactor says of a stream.
pub(super) enum News {
    Received(ReceiveBuffer),
    Stopped,
    Ended { broken: bool },
    Writable,
}

/// All streams of a worker, by slot.
#[derive(Default)]
pub(super) struct Streams {
    /// Each is looked for several times for each piece that it passes on.
    by_slot: Vec<Option<Box<Stream>>>,
    count: usize,
    /// Those that are flushed when the turn ends.
    unsent: Vec<Token>,
}

/// Empty buffers with room for all that an inbox may hold. The last one used is taken first: the processor's cache still has it.
#[derive(Default)]
pub(super) struct Rooms(Vec<Vec<u8>>);

impl Rooms {
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    /// Takes back a buffer that isn't needed any more; a small one isn't worth keeping.
    pub(super) fn give(&mut self, mut room: Vec<u8>) {
        if room.capacity() > RECEIVE_BUFFER_BYTES && self.0.len() < ROOMS_MAX {
            room.clear();
            self.0.push(room);
        }
    }
}

impl Streams {
    pub(super) fn get(&mut self, token: Token) -> Option<&mut Stream> {
        self.find(token).filter(|stream| !stream.flags.closing)
    }

    /// The same, though it be closing.
    fn find(&mut self, token: Token) -> Option<&mut Stream> {
        self.by_slot.get_mut(token.index as usize)?.as_deref_mut().filter(|stream| stream.token == token)
    }

    fn insert(&mut self, stream: Stream) {
        let slot = stream.token.index as usize;
        if self.by_slot.len() <= slot {
            self.by_slot.resize_with(slot + 1, || None);
        }
        self.count += usize::from(self.by_slot[slot].replace(Box::new(stream)).is_none());
    }

    fn remove(&mut self, token: Token) -> Option<Box<Stream>> {
        let stream = self.by_slot.get_mut(token.index as usize)?.take()?;
        self.count -= 1;
        Some(stream)
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Whether some are yet to be closed, which their users have let go of.
    pub(super) fn are_closing(&self) -> bool {
        self.by_slot.iter().flatten().any(|stream| stream.flags.closing)
    }

    /// Whether some are still to be closed with a reset. Were the process to end first, their peers would see an end in order.
    pub(super) fn are_cut(&self) -> bool {
        self.by_slot.iter().flatten().any(|stream| stream.flags.closing && stream.flags.cut)
    }

    /// Sends what was put into a stream when the turn ends. A server that is sent several requests in a row is woken once for all of them; with
    /// other work in between it has gone to sleep again, and waking it costs as much as half a send.
    pub(super) fn flush_soon(&mut self, token: Token) {
        self.unsent.push(token);
    }

    /// Sends what [`Streams::flush_soon`] has put off.
    pub(super) fn flush_now<R: Reactor>(&mut self, reactor: &mut R) {
        let mut unsent = std::mem::take(&mut self.unsent);
        for token in unsent.drain(..) {
            if let Some(stream) = self.get(token) {
                stream.flush(reactor);
            }
        }
        self.unsent = unsent;
    }

    /// What has come by a stream and hasn't been taken, until [`Streams::take_back`]. Nothing is received meanwhile.
    pub(super) fn lend(&mut self, token: Token) -> Option<Lent> {
        let stream = self.get(token)?;
        Some(Lent { inbox: std::mem::take(&mut stream.inbox), taken: std::mem::take(&mut stream.taken) })
    }

    /// Of what was lent, so much has been taken.
    fn restore<R: Reactor>(&mut self, reactor: &mut R, token: Token, lent: Lent, count: usize) -> Option<&mut Stream> {
        let stream = self.get(token)?;
        (stream.inbox, stream.taken) = (lent.inbox, lent.taken);
        stream.take(reactor, count);
        Some(stream)
    }

    /// The same; an empty inbox of those that are much received into is kept for another stream.
    pub(super) fn take_back<R: Reactor>(
        &mut self,
        reactor: &mut R,
        rooms: &mut Rooms,
        token: Token,
        lent: Lent,
        count: usize,
    ) {
        let Some(stream) = self.restore(reactor, token, lent, count) else { return };
        if stream.inbox.is_empty() && stream.inbox.capacity() > RECEIVE_BUFFER_BYTES {
            rooms.give(std::mem::take(&mut stream.inbox));
        }
    }

    /// Passes the first `count` bytes that one has received on to another, which has room for them. A little with more behind it may wait for that:
    /// the other's [`Stream::flush`] is called when no more is passed.
    pub(super) fn pass<R: Reactor>(&mut self, reactor: &mut R, from: Token, to: Token, count: usize) {
        let Some(lent) = self.lend(from) else { return };
        if let Some(sink) = self.get(to) {
            let (passed, behind) = lent.bytes().split_at(count);
            if behind.is_empty() || count > COPIED_BYTES_MAX {
                sink.say(reactor, passed);
            } else {
                sink.outbox().extend_from_slice(passed);
            }
        }
        self.restore(reactor, from, lent, count);
    }
}

/// An inbox that is being read, and how much of it had been taken before.
pub(super) struct Lent {
    inbox: Vec<u8>,
    taken: usize,
}

impl Lent {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.inbox[self.taken..]
    }
}

impl<H: Host> Worker<H> {
    /// A stream for a socket. `connecting`: its connect isn't decided yet.
    pub(super) fn open_stream(&mut self, socket: Socket, connecting: bool, owner: Owner) -> Token {
        self.open_stream_with(socket, connecting, owner, Contents::default())
    }

    /// A stream for a socket that was another process's, with what was in it there.
    pub(super) fn take_over_stream(&mut self, socket: OwnedFd, owner: Owner, contents: Contents) -> Option<Token> {
        let socket = self.reactor.adopt(socket).ok()?;
        Some(self.open_stream_with(socket, false, owner, contents))
    }

    fn open_stream_with(&mut self, socket: Socket, connecting: bool, owner: Owner, contents: Contents) -> Token {
        let token = self.connections.lend();
        let mut stream = Stream::new(token, owner, socket, connecting);
        (stream.inbox, stream.outbox) = (contents.inbox, contents.outbox);
        stream.begin(&mut self.reactor);
        stream.flush(&mut self.reactor);
        self.streams.insert(stream);
        token
    }

    /// Gives up a frozen stream of which the reactor has let go: its socket, and what is in it.
    pub(super) fn give_up_stream(&mut self, token: Token) -> Option<(OwnedFd, Contents)> {
        let socket = self.reactor.give_up(self.streams.get(token)?.socket, token).ok()?;
        let mut stream = self.streams.remove(token)?;
        self.connections.take_back(token);
        let inbox = stream.inbox.split_off(stream.taken);
        let outbox = stream.outbox.split_off(stream.sent);
        Some((socket, Contents { inbox, outbox }))
    }

    /// Closes a stream with a reset: what was said isn't all.
    pub(super) fn cut_stream(&mut self, token: Token) {
        if let Some(stream) = self.streams.get(token) {
            stream.flags.cut = true;
        }
        self.close_stream(token);
    }

    /// Closes a stream to a server when both sides have said everything. If the server hasn't ended it, that is done with a reset: who ends a connection in order
    /// before the other does keeps its port for a minute (RFC 9293 section 3.6.1), and there are no more than some thousands for each server.
    pub(super) fn close_stream_at_rest(&mut self, token: Token) {
        let Some(stream) = self.streams.get(token) else { return };
        let is_told = stream.is_flushed() && self.reactor.unacknowledged_bytes(stream.socket) == 0;
        stream.flags.cut |= is_told && !stream.flags.ended;
        self.close_stream(token);
    }

    /// Closes a stream, now or as soon as nothing is under way.
    pub(super) fn close_stream(&mut self, token: Token) {
        if self.streams.find(token).is_some_and(|stream| stream.close(&mut self.reactor)) {
            self.streams.remove(token);
            self.connections.take_back(token);
        }
    }

    /// The reactor says something of a token that is no connection's.
    pub(super) fn stream_news(&mut self, token: Token, news: News) {
        let Some(stream) = self.streams.find(token) else {
            if let News::Received(buffer) = news {
                self.reactor.release(buffer);
            }
            return;
        };
        match news {
            News::Received(buffer) => stream.received(&mut self.reactor, buffer, &mut self.rooms),
            News::Stopped => stream.stopped(&mut self.reactor),
            News::Ended { broken } => stream.ended(broken),
            News::Writable => stream.writable(&mut self.reactor),
        }
        if stream.flags.closing {
            self.close_stream(token);
            return;
        }
        match &stream.owner {
            Owner::Link => self.link_news(token),
            &Owner::Relay(client) => self.queue_relay(client),
            Owner::Probe => self.probe_ended(token),
            &Owner::Connection(connection) => {
                let is_there = self.connections.get(connection).is_some_and(|connection| !connection.flags.closing);
                if is_there && !self.passing_goes_on(connection) {
                    self.queue(Stage::Transmit, connection);
                }
            }
            Owner::Kept { handler, responder } => {
                // Its end, or something that nobody asked for.
                let (handler, responder) = (handler.clone(), *responder);
                handler.forget_stream(responder, token);
                self.close_stream(token);
                self.check_responder(&handler, responder);
            }
        }
    }
}
