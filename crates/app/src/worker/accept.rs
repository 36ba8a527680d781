//! Accepting connections, in the tree's order as all work is, and where they wait while their site isn't known: at leaves by client prefix and
//! listener, so that one network's flood takes its own turns and not everybody's.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use leat_host::reactor::{Reactor, Socket, Token};
use leat_logic::admission::LetIn;
use leat_logic::schedule::{Cost, LeafId, NodeId, Operation, PrefixLeaves, Share};
use leat_logic::time::Instant;

use super::storage::DESCRIPTORS_GIVEN_BACK;
use super::{ADMIN_SITE, Event, Host, Stage, Task, UNKNOWN_SITE, Worker};
use crate::listener::ListenerName;
use crate::log;

/// Connections accepted by one event: some twenty microseconds' work.
const ACCEPTS_MAX: usize = 2;
/// Connections accepted at a listener that is about to close: as many as its queue may hold.
const LAST_ACCEPTS_MAX: usize = 4096;
/// Connections that are accepted at once, whatever else there is to do: more than a queue holds that is bound.
const FEW: u32 = 64;
/// How long a listener that is to close waits for the ends of handshakes. Those of distant clients take longer; but who comes meanwhile isn't heard.
const HANDSHAKE_TIME: Duration = Duration::from_millis(3);
/// Connections that the admin address may have beside all others: it answers when the sites' clients have taken all.
const ADMIN_CONNECTIONS_MAX: usize = 16;

/// The part of the tree for work whose site isn't known.
pub(super) struct UnknownBranch {
    pub(super) node: NodeId,
    prefixes: PrefixLeaves,
}

impl UnknownBranch {
    pub(super) fn new(node: NodeId, seed: u64) -> UnknownBranch {
        UnknownBranch { node, prefixes: PrefixLeaves::new(node, seed) }
    }
}

/// Whether a listener hears clients. The descriptor keeps its socket open.
pub(super) enum ListenerState {
    Open(OwnedFd),
    /// Who is connecting is still let in until then, and nobody new is heard.
    Closing {
        _descriptor: OwnedFd,
        at: Instant,
    },
    Closed,
}

impl ListenerState {
    /// Neither closed nor about to be.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, ListenerState::Open(_))
    }

    /// Has an open one be closed then.
    fn close_at(&mut self, at: Instant) {
        *self = match std::mem::replace(self, ListenerState::Closed) {
            ListenerState::Open(_descriptor) => ListenerState::Closing { _descriptor, at },
            other => other,
        };
    }
}

impl<H: Host> Worker<H> {
    /// Gives every listener a leaf, where connections wait whose site isn't known: theirs are gone with the old tree.
    pub(super) fn replant_unknown(&mut self) {
        for index in 0..self.listeners.len() {
            let name = self.listeners[index].sites.name;
            self.listeners[index].leaf = self.leaf_of_listener(&name);
            self.listeners[index].queued = false;
        }
        for index in 0..self.connections.slots() as u32 {
            if let Some(token) = self.connections.token(index) {
                self.connections[token].leaf = None;
            }
        }
    }

    /// A leaf for accepting at a listener.
    pub(super) fn leaf_of_listener(&mut self, name: &ListenerName) -> LeafId {
        if name.is_admin {
            return self.leaves[ADMIN_SITE as usize][0];
        }
        let unknown = self.leaves[UNKNOWN_SITE as usize][0];
        self.tree.add_leaf(self.unknown.node, Share::default()).unwrap_or(unknown)
    }

    /// Connections wait at a listener.
    pub(super) fn connections_wait(&mut self, listener: Token) {
        if let Some(listening) = self.listeners.get_mut(listener.index as usize) {
            listening.awaited = false;
            listening.knocked = true;
            self.queue_accept(listener);
        }
    }

    /// Those that wait at a listener are accepted when the tree says so.
    pub(super) fn queue_accept(&mut self, listener: Token) {
        let Some(listening) = self.listeners.get_mut(listener.index as usize) else { return };
        if !listening.accepting || listening.queued {
            return;
        }
        let event = Event { task: Task::Accept, token: listener, queued_us: self.now_us, is_unknown: false };
        listening.queued = self.tree.push(listening.leaf, event).is_ok();
    }

    /// Accepts a few connections of those that wait.
    pub(super) fn accept(&mut self, listener: Token, leaf: LeafId) -> Cost {
        let Some(listening) = self.listeners.get_mut(listener.index as usize) else { return Cost::from_ns(0) };
        listening.queued = false;
        let (socket, is_admin) = (listening.socket, listening.sites.name.is_admin);
        if !listening.accepting {
            return Cost::from_ns(0);
        }
        if !is_admin && !self.admission.is_accepting(self.now) {
            listening.accepting = false;
            self.is_shut = true;
            self.look_soon();
            return Cost::from_ns(0);
        }
        for _ in 0..ACCEPTS_MAX {
            if !self.has_room(is_admin) {
                self.no_room_at(listener);
                return self.meter.charge(leaf);
            }
            let listening = &mut self.listeners[listener.index as usize];
            listening.knocked = false;
            if let Some(parked) = listening.parked.pop_front() {
                self.accepted(listener, parked);
                continue;
            }
            match self.reactor.accept(socket) {
                Ok(Some(accepted)) => {
                    self.count_knock(listener, accepted);
                    self.meter.did(Operation::Accept, 0);
                    self.accepted(listener, accepted);
                }
                Ok(None) => {
                    self.await_at(listener);
                    self.none_waits_at(listener.index);
                    return self.meter.charge(leaf);
                }
                Err(error) => {
                    self.accept_failed(listener, &error);
                    return self.meter.charge(leaf);
                }
            }
        }
        self.queue_accept(listener);
        self.meter.charge(leaf)
    }

    fn await_at(&mut self, listener: Token) {
        let listening = &mut self.listeners[listener.index as usize];
        if !std::mem::replace(&mut listening.awaited, true) {
            self.reactor.await_connections(listening.socket, listener);
        }
    }

    /// Accepts all who wait at a listener that is about to close; `is_owed`: even if there are too many, or too much to do.
    pub(super) fn accept_all(&mut self, index: usize, is_owed: bool) {
        let listener = Token { index: index as u32, generation: 0 };
        while let Some(parked) = self.listeners[index].parked.pop_front() {
            self.accepted(listener, parked);
        }
        for _ in 0..LAST_ACCEPTS_MAX {
            let listening = &self.listeners[index];
            let has_room = listening.accepting && self.has_room(listening.sites.name.is_admin);
            if !has_room && !is_owed {
                return;
            }
            let Ok(Some(accepted)) = self.reactor.accept(listening.socket) else { return };
            self.accepted(listener, accepted);
        }
    }

    /// Accepts all who wait at a listener, if they are few and there's room for them. Whether nobody waits then who has waited before.
    pub(super) fn accept_few(&mut self, index: usize) -> bool {
        let (socket, is_admin) = (self.listeners[index].socket, self.listeners[index].sites.name.is_admin);
        let waiting = self.reactor.knocking(socket).waiting;
        if waiting > FEW {
            return false;
        }
        // Who comes first is accepted first.
        for _ in 0..waiting {
            if !self.has_room(is_admin) {
                return false;
            }
            match self.reactor.accept(socket) {
                Ok(Some(accepted)) => self.accepted(Token { index: index as u32, generation: 0 }, accepted),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
        true
    }

    pub(super) fn accepted(&mut self, listener: Token, socket: Socket) {
        self.metrics.accepted.increment();
        if let Some(site) = self.listeners[listener.index as usize].sites.port {
            let must_tell = self.must_tell(listener.index as usize, socket);
            self.open_relay(site, socket, must_tell);
            return;
        }
        let token = self.open(listener.index as u16, socket);
        if !self.accepted_birth(token) {
            return;
        }
        let is_holding = self.admission.is_holding(self.now);
        let must_tell = self.must_tell(listener.index as usize, socket);
        let connection = &mut self.connections[token];
        connection.flags.untold = must_tell;
        connection.flags.receiving = true;
        connection.flags.once = true;
        connection.flags.was_hidden = is_holding;
        self.reactor.receive_once(socket, token);
    }

    /// Who comes now waits in the kernel's queue, and is accepted when others have gone. Nobody has to go before somebody is there who waits.
    fn no_room_at(&mut self, listener: Token) {
        let listening = &mut self.listeners[listener.index as usize];
        let is_admin = listening.sites.name.is_admin;
        if !std::mem::take(&mut listening.knocked) && listening.parked.is_empty() {
            return self.await_at(listener);
        }
        self.stop_accepting_at(listener.index as usize);
        if !is_admin {
            self.want_room();
        }
    }

    /// Makes a connection known, at the leaf where it waits until its site is known.
    pub(super) fn open(&mut self, listener: u16, socket: Socket) -> Token {
        let token = self.connections.open(self.now, socket, listener);
        self.metrics.connections.set(self.connections.len() as u64);
        if self.listeners[listener as usize].sites.name.is_admin {
            self.connections[token].site = ADMIN_SITE;
            return token;
        }
        let client = self.reactor.peer(socket);
        let address = client.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |client| client.ip());
        let leaf = self.leaf_of_client(address, listener);
        let connection = &mut self.connections[token];
        (connection.client, connection.leaf) = (client, leaf);
        token
    }

    /// Where clients of this one's network wait at a listener.
    pub(super) fn leaf_of_client(&mut self, client: IpAddr, listener: u16) -> Option<LeafId> {
        self.unknown.prefixes.leaf(&mut self.tree, client, u32::from(listener), self.now).ok()
    }

    /// The site of a new connection has become known: it pays for having been accepted.
    pub(super) fn charge_accept(&mut self, token: Token, payer: LeafId) {
        let listener = self.connections[token].listener;
        let accept_ns = self.meter.price(Operation::Accept, 0);
        self.tree.transfer(self.listeners[listener as usize].leaf, payer, accept_ns);
    }

    fn accept_failed(&mut self, listener: Token, error: &io::Error) {
        if let Some(listening) = self.listeners.get_mut(listener.index as usize) {
            listening.accepting = false;
        }
        // Said once: it is tried again whenever a connection has closed, and each second.
        self.metrics.accept_failures.increment();
        if self.rations.accepting.take(self.second, 1) {
            log::warning(format_args!(
                "can't accept a connection: {error}; raise the limit on open files (ulimit -n), or lower limits.connections"
            ));
        }
        let given_back = self.cache.release_files(DESCRIPTORS_GIVEN_BACK);
        if given_back > 0 {
            self.resume_accepting();
        }
    }

    /// Whether a listener may have one more connection.
    pub(super) fn has_room(&self, is_admin: bool) -> bool {
        let more = if is_admin { ADMIN_CONNECTIONS_MAX } else { 0 };
        self.connections.len() + self.ports.len() < self.connections_max.saturating_add(more)
    }

    pub(super) fn stop_accepting_at(&mut self, index: usize) {
        let listening = &mut self.listeners[index];
        if std::mem::take(&mut listening.accepting) {
            listening.awaited = false;
            let token = Token { index: index as u32, generation: 0 };
            self.reactor.stop_awaiting_connections(listening.socket, token);
        }
    }

    /// Accepts at every listener that should and doesn't.
    pub(super) fn resume_accepting(&mut self) {
        self.listen_again(false);
    }

    /// As [`Worker::resume_accepting`], and finds out where somebody waits for whom there may be no room.
    pub(super) fn ask_who_waits(&mut self) {
        self.listen_again(true);
    }

    fn listen_again(&mut self, is_full: bool) {
        self.is_shut = false;
        if self.drain.is_some() {
            return;
        }
        for index in 0..self.listeners.len() {
            let listening = &self.listeners[index];
            let is_admin = listening.sites.name.is_admin;
            if listening.accepting || !listening.state.is_open() || !(is_full || self.has_room(is_admin)) {
                continue;
            }
            if is_admin || self.admission.is_accepting(self.now) {
                let listening = &mut self.listeners[index];
                listening.accepting = true;
                let (has_parked, listener) =
                    (!listening.parked.is_empty(), Token { index: index as u32, generation: 0 });
                // An event that is still in the tree goes on by itself.
                if has_parked {
                    self.queue_accept(listener);
                } else if !listening.queued {
                    self.await_at(listener);
                }
            } else {
                self.is_shut = true;
            }
        }
    }

    /// Closes a listener whose address has gone from the configuration: what listens in its place may be `0.0.0.0`. Who is connecting by now is let in: the
    /// kernel would reset them. Who comes from now on isn't heard until the supervisor has closed the socket as well, and tries again a second later.
    pub(super) fn retire_listener(&mut self, index: usize) {
        if !self.listeners[index].state.is_open() {
            return;
        }
        self.reactor.let_in(self.listeners[index].socket, &LetIn::of_all(0.0));
        self.accept_all(index, false);
        self.stop_accepting_at(index);
        self.listeners[index].state.close_at(self.now.after(HANDSHAKE_TIME));
    }

    /// Closes retired listeners whose time has come; when to look again.
    pub(super) fn close_retired_listeners(&mut self) -> Instant {
        let mut next = Instant::NEVER;
        for index in 0..self.listeners.len() {
            match self.listeners[index].state {
                ListenerState::Closing { at, .. } if self.now < at => next = next.min(at),
                ListenerState::Closing { .. } => self.close_listener(index),
                ListenerState::Open(_) | ListenerState::Closed => {}
            }
        }
        next
    }

    /// Who has connected meanwhile has been heard by nobody else, however much there is to do.
    fn close_listener(&mut self, index: usize) {
        self.accept_all(index, true);
        self.listeners[index].state = ListenerState::Closed;
    }

    /// Stops accepting for good. Who has connected by now is still let in: the kernel would reset them.
    pub(super) fn end_accepting(&mut self) {
        for index in 0..self.listeners.len() {
            match self.listeners[index].state {
                ListenerState::Open(_) => {
                    self.accept_all(index, false);
                    self.stop_accepting_at(index);
                    self.listeners[index].state = ListenerState::Closed;
                }
                ListenerState::Closing { .. } => self.close_listener(index),
                ListenerState::Closed => {}
            }
        }
    }

    /// The leaf at which work for a connection waits.
    #[inline]
    pub(super) fn leaf(&self, stage: Stage, token: Token) -> LeafId {
        let connection = &self.connections[token];
        match connection.site {
            UNKNOWN_SITE => connection.leaf.unwrap_or(self.listeners[connection.listener as usize].leaf),
            site => self.leaves[site as usize][stage as usize],
        }
    }
}
