//! Connections that pass to the next engine, and those that come from the one before: an upgrade in place. What of a connection travels is
//! `handoff::Image`'s to say; how, `crate::passage`'s.
//!
//! A connection goes whatever is under way, but for two things: a reply that a handler makes, and one that is with the kernel already. Both
//! come to an end here first. Who is answered by another server goes with that one's connection (`handler::passage`, `port::passage`).

use std::collections::BTreeMap;
use std::time::Duration;

use leat_host::handoff::forget_way;
use leat_host::reactor::{Reactor, Token};
use leat_host::storage::Storage;
use leat_logic::handoff::{self, FlowId, Generation, HttpState, Image, ReplyState, ServerId, Verdict};
use leat_logic::http;
use leat_logic::protocol::proxy_header;
use leat_logic::time::Instant;

use super::connection::Connection;
use super::exchange::{Exchange, Piece};
use super::{File, Host, Worker, handler, port};
use crate::passage::{Answer, Key, Passage, Passenger};

/// Connections of a worker's that are on their way at once: more would wait without being served.
const UNDER_WAY_MAX: usize = 128;
/// How often those are looked at again that couldn't go.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// An image over this stays until some of it has been consumed: with it a message of others' would be longer than any may be.
const IMAGE_BYTES_MAX: usize = 6 << 20;

/// What passes at a worker.
pub(super) struct Passages<F> {
    /// Where connections go.
    to: Option<Passage>,
    /// Those that have been given and not been settled.
    given: usize,
    /// Those that have been taken, and that the old engine hasn't let go of.
    taken: BTreeMap<Key, Arrival<F>>,
}

impl<F> Default for Passages<F> {
    fn default() -> Passages<F> {
        Passages { to: None, given: 0, taken: BTreeMap::new() }
    }
}

impl<F> Passages<F> {
    /// Whether connections go to another engine.
    pub(super) fn is_giving(&self) -> bool {
        self.to.is_some()
    }

    /// Whether nothing may still come of what is under way.
    pub(super) fn are_settled(&self) -> bool {
        self.given == 0 && self.taken.is_empty()
    }
}

/// What was understood, and isn't in a slot yet.
enum Arrival<F> {
    Http(Box<Arriving<F>>),
    Relay(Box<port::Arrival>),
}

/// A connection.
struct Arriving<F> {
    socket: std::os::fd::OwnedFd,
    listener: u16,
    site: Option<u32>,
    http: HttpState,
    file: Option<F>,
    reply: Option<(ReplyState, u32)>,
    /// Who a balancer has said that the client is.
    client: Option<std::net::SocketAddr>,
    /// Other servers know it.
    flow: Option<(FlowId, Generation)>,
    /// Another server answers it.
    server: Option<handler::ServerArrival>,
}

impl<H: Host> Worker<H> {
    /// Connections go there from now on.
    pub(super) fn pass_to(&mut self, passage: Passage) {
        self.passages.to = Some(passage);
        for index in 0..self.connections.slots() as u32 {
            if let Some(token) = self.connections.token(index) {
                let flags = &mut self.connections[token].flags;
                (flags.stays, flags.unwanted) = (false, false);
            }
        }
        self.offer_relays_again();
        self.pass_all();
    }

    /// Nothing more goes there.
    pub(super) fn passage_ended(&mut self, number: u32) {
        if self.passages.to.as_ref().is_some_and(|to| to.number == number) {
            self.passages.to = None;
        }
    }

    /// Whether a reply that begins now is a connection's last here.
    pub(super) fn ends_after_reply(&mut self, token: Token) -> bool {
        let is_giving = self.passages.is_giving();
        let passes = is_giving && !self.connections[token].flags.unwanted && !self.is_of_home(token);
        let goes_on = passes || self.goes_to_peer(token);
        let ends = match self.drain {
            Some(drain) => !drain.keep_idle || !goes_on,
            // What the address had goes on here, as it was, for who is connected: not for long.
            None => self.gone_since(token).is_some(),
        };
        // What its client has asked for already is answered, too.
        ends && self.connections[token].inbox.is_empty() && !self.goes_home(token)
    }

    /// Since when the address at which a connection was accepted has gone from the configuration.
    pub(super) fn gone_since(&self, token: Token) -> Option<Instant> {
        self.listeners[self.connections[token].listener as usize].gone_since
    }

    /// Sends connections on their way, as many as may be under way at once. Returns when to look again.
    pub(super) fn pass_all(&mut self) -> Instant {
        if !self.passages.is_giving() {
            return Instant::NEVER;
        }
        let mut room = UNDER_WAY_MAX.saturating_sub(self.passages.given);
        for index in 0..self.connections.slots() as u32 {
            if room == 0 {
                break;
            }
            if let Some(token) = self.connections.token(index)
                && self.pass(token)
            {
                room -= 1;
            }
        }
        self.pass_relays(room);
        self.now.after(LOOK_AGAIN)
    }

    /// Sends a connection on its way, now or as soon as the reactor has let go of it; not if what is under way can't travel. Whether it has
    /// begun.
    pub(super) fn pass(&mut self, token: Token) -> bool {
        let may_pass = self.passages.is_giving() && self.flow_may_pass(token) && self.run_may_pass(token);
        let connection = &mut self.connections[token];
        if !may_pass || !can_travel(connection) {
            if std::mem::take(&mut connection.flags.leaving) {
                self.flow_stays(token);
                self.thaw_run(token);
            }
            return false;
        }
        connection.flags.leaving = true;
        self.flow_leaves(token);
        let is_free = self.freeze_run(token);
        let connection = &mut self.connections[token];
        let flags = &mut connection.flags;
        if flags.receiving {
            // What the reactor receives before that has stopped goes along.
            if !std::mem::replace(&mut flags.pausing, true) {
                self.reactor.pause(connection.socket, token);
            }
        } else if flags.awaiting {
            self.reactor.stop_awaiting_writable(connection.socket, token);
        } else if is_free {
            self.pass_now(token);
        }
        true
    }

    /// A reply has ended: what couldn't travel before may now. Whether it does.
    pub(super) fn passes_after_reply(&mut self, token: Token) -> bool {
        self.connections[token].flags.stays = false;
        self.passages.given < UNDER_WAY_MAX && self.pass(token)
    }

    /// The reactor owes less than before: goes on with a connection that is leaving. Whether it is.
    pub(super) fn passing_goes_on(&mut self, token: Token) -> bool {
        self.connections[token].flags.leaving && self.pass(token)
    }

    fn pass_now(&mut self, token: Token) {
        let Some(image) = self.image_of(token) else { return self.stay(token) };
        let connection = &mut self.connections[token];
        let file = connection.exchange.as_ref().and_then(|exchange| file_of(exchange));
        let exported = file.map(|file| self.storage.export(file));
        let (None | Some(Some(_))) = &exported else { return self.stay(token) };
        let Ok(socket) = self.reactor.give_up(connection.socket, token) else { return self.stay(token) };
        forget_way(&socket);
        let server = self.give_up_server(token);
        let connection = &mut self.connections[token];
        let listener = self.listeners[connection.listener as usize].sites.name;
        let site = self.sites[connection.site as usize].name.clone();
        let file = exported.flatten();
        let worker = self.number_at_homes().filter(|_| self.is_of_home(token));
        let generation = self.flow_passes(token);
        let passenger = Passenger { socket, file, listener, site, generation, worker, server, image };
        let connection = &mut self.connections[token];
        connection.inbox.clear(&mut self.reactor);
        let (exchange, left) = self.connections.close(token.index);
        exchange.into_iter().for_each(|exchange| self.recycle(exchange));
        self.leave_nothing(left);
        self.give(passenger);
    }

    /// Gives to the next engine what isn't a worker's any more.
    pub(super) fn give(&mut self, passenger: Passenger) {
        self.passages.given += 1;
        let Some(to) = &self.passages.to else { return };
        let number = to.number;
        if let Some(passenger) = to.offer(passenger, self.mailbox.clone()) {
            self.returned(passenger, number, None);
        }
    }

    /// It can't travel as it is.
    fn stay(&mut self, token: Token) {
        let flags = &mut self.connections[token].flags;
        (flags.leaving, flags.stays) = (false, true);
        self.flow_stays(token);
        self.thaw_run(token);
        self.begin_with(token);
    }

    fn image_of(&self, token: Token) -> Option<Vec<u8>> {
        let connection = &self.connections[token];
        let exchange = connection.exchange.as_ref();
        let http = HttpState {
            connection: connection.http.export(self.now),
            input: connection.inbox.bytes(&self.reactor).to_vec(),
            head: exchange.map(|exchange| exchange.head.clone()).unwrap_or_default(),
            elapsed: exchange.map(|exchange| self.now.since(exchange.started)).unwrap_or_default(),
        };
        let reply = exchange.filter(|exchange| exchange.status != 0 || exchange.run.is_some());
        let reply = reply.map(|exchange| reply_of(exchange));
        // A name is for those that move between servers.
        let flow = self.flow_at(token).unwrap_or(FlowId { home: ServerId(0), serial: 0 });
        let image = Image { flow, tcp: None, congestion: None, http, reply }.encode().ok()?;
        // What a balancer has told is told again.
        let mut told = Vec::new();
        if let Some(client) = self.connections[token].told_client() {
            let listener = self.listeners[connection.listener as usize].sites.name.address;
            proxy_header::write(proxy_header::Version::V2, Some((client, listener)), &mut told);
        }
        let image = [told, image].concat();
        (image.len() <= IMAGE_BYTES_MAX).then_some(image)
    }

    /// A connection that was given is the new engine's.
    pub(super) fn passed(&mut self) {
        self.passages.given -= 1;
        self.metrics.connections_passed.increment();
    }

    /// A connection that was given to passage `number` goes on here.
    pub(super) fn returned(&mut self, passenger: Passenger, number: u32, verdict: Option<Verdict>) {
        self.passages.given -= 1;
        self.metrics.connections_returned.increment();
        // Where nothing was said, or by an engine that is leaving itself, another may take it at once.
        let is_refused = verdict.is_some() && self.passages.to.as_ref().is_some_and(|to| to.number == number);
        let token = match self.understand_arrival(passenger) {
            Ok(Arrival::Http(arrival)) => self.settle(*arrival),
            Ok(Arrival::Relay(arrival)) => return self.settle_relay(*arrival, is_refused),
            Err(_) => {
                crate::log::warning(format_args!("a connection that came back from the new engine is lost"));
                return;
            }
        };
        let Some(token) = token else { return };
        let connection = &mut self.connections[token];
        let is_at_rest = connection.exchange.is_none() && connection.inbox.is_empty();
        connection.flags.stays = is_refused;
        // What is under way may be why it's refused, and soon be over.
        connection.flags.unwanted = is_refused && (is_at_rest || verdict == Some(Verdict::Unwanted));
        if verdict == Some(Verdict::Unwanted) && is_at_rest {
            self.close(token);
        } else {
            self.begin_with(token);
        }
    }

    /// The old engine offers a connection.
    pub(super) fn offered(&mut self, passenger: Passenger, key: Key, answer: Answer) {
        if self.drain.is_some() {
            return answer.say(Verdict::Refused);
        }
        match self.understand_arrival(passenger) {
            Ok(mut arrival) => {
                if let Arrival::Http(arrival) = &mut arrival
                    && let Some((_, generation)) = arrival.flow.as_mut().filter(|(_, generation)| generation.0 > 0)
                    && self.is_behind_fronts()
                {
                    // Fronts take this engine's word for it from now on.
                    *generation = generation.next();
                }
                self.passages.taken.insert(key, arrival);
                answer.say(Verdict::Taken);
            }
            Err(verdict) => answer.say(verdict),
        }
    }

    /// The old engine has let go of a connection.
    pub(super) fn begin_arrival(&mut self, key: Key) {
        let Some(arrival) = self.passages.taken.remove(&key) else { return };
        self.metrics.connections_taken.increment();
        match arrival {
            Arrival::Http(arrival) => {
                if let Some(token) = self.settle(*arrival) {
                    self.begin_with(token);
                }
            }
            Arrival::Relay(arrival) => self.settle_relay(*arrival, false),
        }
    }

    /// This worker's time is over: what hasn't begun here goes on at the old engine, or not at all.
    pub(super) fn forget_arrivals(&mut self) {
        self.passages.taken.clear();
    }

    /// The old engine keeps a connection.
    pub(super) fn withdraw_arrival(&mut self, key: Key) {
        // Its other descriptor is the old engine's: closing this one does nothing to the connection.
        self.passages.taken.remove(&key);
    }

    /// Finds everything that a connection needs to go on, without touching it.
    fn understand_arrival(&self, passenger: Passenger) -> Result<Arrival<File<H>>, Verdict> {
        let number = |name: &str| self.sites.iter().find(|site| site.name == name).map(|site| site.number);
        if let Some(site) = number(&passenger.site).filter(|&site| self.ports.has(site)) {
            return self.understand_relay(site, passenger).map(|arrival| Arrival::Relay(Box::new(arrival)));
        }
        let Passenger { socket, file, listener, site, generation, worker, server, image } = passenger;
        if !self.takes_flow(generation, worker) {
            return Err(Verdict::Refused);
        }
        let place = self.listeners.iter().position(|listening| listening.sites.name == listener);
        let listener = place.and_then(|place| u16::try_from(place).ok()).ok_or(Verdict::Unwanted)?;
        let (told, client) = match proxy_header::read(&image) {
            Ok(Some((bytes, ends))) => (bytes, ends.map(|(client, _)| client)),
            _ => (0, None),
        };
        let Image { flow, http, reply, .. } = Image::decode(&image[told..]).map_err(|_| Verdict::Refused)?;
        http::Connection::import(self.now, &http.connection).ok_or(Verdict::Refused)?;
        let file = match file {
            Some((descriptor, state)) => Some(self.storage.import(descriptor, state).ok_or(Verdict::Refused)?),
            None => None,
        };
        let reply = match reply {
            Some(reply) if reply.has_content() && file.is_none() => return Err(Verdict::Refused),
            Some(reply) => number(&reply.site).map(|site| Some((reply, site))).ok_or(Verdict::Refused)?,
            None => None,
        };
        let server = match server {
            Some(server) => Some(self.understand_server(server, &http.head, reply.as_ref()).ok_or(Verdict::Refused)?),
            None => None,
        };
        let flow = generation.map(|generation| (flow, generation));
        let site = number(&site);
        Ok(Arrival::Http(Box::new(Arriving { socket, listener, site, http, file, reply, client, flow, server })))
    }

    /// Puts a connection into a slot.
    fn settle(&mut self, arrival: Arriving<File<H>>) -> Option<Token> {
        let Arriving { socket, listener, site, http: state, file, reply, client, flow, server } = arrival;
        let http = http::Connection::import(self.now, &state.connection)?;
        let socket = self.reactor.adopt(socket).ok()?;
        let token = self.open(listener, socket);
        self.flow_arrives(token, flow);
        if let Some(client) = client {
            self.know_client(token, client);
        }
        let started = Instant { ns: self.now.ns.saturating_sub(state.elapsed.as_nanos() as u64) };
        let connection = &mut self.connections[token];
        connection.http = http;
        connection.inbox.put(state.input);
        connection.arrived_us = self.now_us;
        connection.site = site.unwrap_or(connection.site);
        if !state.head.is_empty() {
            self.resume_request(token, &state.head);
        }
        if let Some((reply, site)) = reply {
            let site = self.sites[site as usize].clone();
            let connection = &mut self.connections[token];
            connection.site = site.number;
            let exchange = connection.exchange.get_or_insert_with(|| self.spare.pop().unwrap_or_else(Exchange::new));
            exchange.site = Some(site);
            resume_reply(exchange, reply, file);
        }
        if let Some(exchange) = &mut self.connections[token].exchange {
            exchange.started = started;
        }
        if let Some(server) = server
            && !self.resume_run(token, server)
        {
            self.cut(token);
            return None;
        }
        Some(token)
    }
}

/// Whether what is under way for a connection can go on elsewhere.
fn can_travel<F>(connection: &Connection<F>) -> bool {
    let flags = connection.flags;
    if flags.untold || flags.closing || flags.sending || flags.coalesced || flags.departing || flags.stays {
        return false;
    }
    connection.exchange.as_ref().is_none_or(|exchange| {
        let is_simple = exchange.error.is_none() && exchange.refusal.is_none();
        is_simple && (exchange.status == 0 || !exchange.pieces.is_empty() || exchange.run.is_some())
    })
}

/// The file that is still needed for a reply.
fn file_of<F>(exchange: &Exchange<F>) -> Option<&F> {
    exchange.unchecked.as_ref().or_else(|| {
        exchange.pieces.iter().find_map(|piece| match piece {
            Piece::File { file, .. } => Some(file),
            Piece::Bytes { .. } => None,
        })
    })
}

fn reply_of<F>(exchange: &Exchange<F>) -> ReplyState {
    let piece = |piece: &Piece<F>| match piece {
        Piece::Bytes { bytes, done } => handoff::Piece::Literal(bytes[*done..].to_vec()),
        &Piece::File { offset, end, .. } => handoff::Piece::Content { first: offset, length: end - offset },
    };
    let end = |piece: &Piece<F>| match piece {
        &Piece::File { end, .. } => end,
        Piece::Bytes { .. } => 0,
    };
    ReplyState {
        site: exchange.site.as_ref().map(|site| site.name.clone()).unwrap_or_default(),
        path: exchange.path.clone(),
        coding: None,
        // The file itself goes along, with the version under which it was opened: that proves as much.
        etag: Vec::new(),
        complete_length: exchange.pieces.iter().map(end).max().unwrap_or(0),
        status: exchange.status,
        content_bytes: exchange.body_bytes,
        // What another server has said goes along with that.
        pieces: exchange.pieces.iter().filter(|_| exchange.run.is_none()).map(piece).collect(),
        resend_bytes: 0,
    }
}

/// Goes on with a reply.
fn resume_reply<F: Clone>(exchange: &mut Exchange<F>, reply: ReplyState, file: Option<F>) {
    exchange.status = reply.status;
    exchange.path = reply.path;
    exchange.body_bytes = reply.content_bytes;
    exchange.pieces = reply
        .pieces
        .into_iter()
        .filter_map(|piece| match piece {
            handoff::Piece::Literal(bytes) => Some(Piece::Bytes { bytes: bytes.into(), done: 0 }),
            handoff::Piece::Content { first, length } => {
                file.clone().map(|file| Piece::File { file, offset: first, end: first + length })
            }
        })
        .collect();
    exchange.unchecked = file;
    // What it has waited for its client isn't known: as long as possible, which only makes the last look at the file more careful.
    exchange.blocked_since = Some(Instant::default());
}
