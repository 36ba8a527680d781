//! Clients of ports that pass to the next engine, and those that come from the one before: with their node's connection where all of theirs is that node's, and
//! without any where they are between two requests, each of which may go to another node. Who is in the middle of such a request stays until it's answered.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use leat_host::reactor::{Reactor, Token};
use leat_logic::dispatch::{NodeId, Outcome};
use leat_logic::handoff::{RelayState, ServerEnd, Talk, Verdict};
use leat_logic::protocol::{Session, SessionState, proxy_header};
use leat_logic::time::Instant;

use super::super::stream::{Contents, Owner};
use super::super::{Host, Worker};
use super::relay::{Relay, To};
use crate::listener::ListenerName;
use crate::passage::Passenger;

/// How a client of a port goes on elsewhere.
enum Way {
    /// All that it says is for this node.
    With { stream: Token, node: NodeId },
    /// No node has any part in it.
    Alone(SessionState),
}

/// A client of a port that was understood, and isn't relayed yet.
pub(in crate::worker) struct Arrival {
    socket: OwnedFd,
    site: u32,
    ends: Option<(SocketAddr, SocketAddr)>,
    session: Session,
    of_client: Contents,
    server: Option<ServerArrival>,
    state: RelayState,
}

struct ServerArrival {
    socket: OwnedFd,
    node: NodeId,
    contents: Contents,
}

impl<H: Host> Worker<H> {
    /// Sends clients of ports on their way, `room` at most.
    pub(in crate::worker) fn pass_relays(&mut self, room: usize) {
        let waiting = self.ports.relays.values().filter(|relay| !relay.is_leaving && !relay.stays);
        let waiting: Vec<Token> = waiting.map(|relay| relay.token).collect();
        waiting.into_iter().filter(|&token| self.pass_relay(token)).take(room).for_each(drop);
    }

    /// Another engine may take those that one hasn't taken.
    pub(in crate::worker) fn offer_relays_again(&mut self) {
        self.ports.relays.values_mut().for_each(|relay| relay.stays = false);
    }

    /// Sends a client on its way, now or as soon as the reactor has let go of it. Whether it has begun.
    pub(super) fn pass_relay(&mut self, token: Token) -> bool {
        let Some((way, listener)) = self.way_of_relay(token) else {
            self.thaw_relay(token);
            return false;
        };
        if let Some(relay) = self.ports.relays.get_mut(&token.index) {
            relay.is_leaving = true;
        }
        let server = if let Way::With { stream, .. } = &way { Some(*stream) } else { None };
        let mut are_free = true;
        for stream in server.into_iter().chain([token]) {
            are_free &= self.streams.get(stream).is_some_and(|stream| stream.freeze(&mut self.reactor));
        }
        if are_free {
            self.pass_relay_now(token, way, listener);
        }
        true
    }

    /// How a client can go on elsewhere, if it can now, and a listener of its port.
    fn way_of_relay(&mut self, token: Token) -> Option<(Way, ListenerName)> {
        let relay = self.ports.relays.get(&token.index).filter(|relay| relay.token == token)?;
        let listening = self.listeners.iter().find(|listening| listening.sites.port == Some(relay.site))?;
        let client = self.streams.get(token).filter(|client| client.can_travel())?;
        if relay.stays || relay.must_tell || !self.passages.is_giving() {
            return None;
        }
        let way = match relay.only_node() {
            Some((stream, node)) => {
                self.streams.get(stream).filter(|stream| stream.can_travel())?;
                Way::With { stream, node }
            }
            None => relay.session.export().filter(|_| client.is_flushed()).map(Way::Alone)?,
        };
        Some((way, listening.sites.name))
    }

    /// A client that was to go on elsewhere goes on here.
    fn thaw_relay(&mut self, token: Token) {
        let Some(relay) = self.ports.relays.get_mut(&token.index) else { return };
        if !std::mem::take(&mut relay.is_leaving) {
            return;
        }
        let streams: Vec<Token> = relay.open_legs().map(|(_, to)| to.stream).chain([token]).collect();
        for stream in streams {
            if let Some(stream) = self.streams.get(stream) {
                stream.thaw(&mut self.reactor);
            }
        }
        self.queue_relay(token);
    }

    fn pass_relay_now(&mut self, token: Token, way: Way, listener: ListenerName) {
        // Both are there, and giving up a socket doesn't fail.
        let (Some(relay), Some((socket, client))) =
            (self.ports.relays.remove(&token.index), self.give_up_stream(token))
        else {
            return;
        };
        let (age, received_bytes, sent_bytes) = (self.now.since(relay.began), relay.received_bytes, relay.sent_bytes);
        let nodes = relay.nodes.clone();
        let mut state = RelayState { nodes, age, received_bytes, sent_bytes, ..RelayState::default() };
        let server = match way {
            Way::With { stream, node } => {
                let Some(port) = self.ports.ports.get_mut(&relay.site) else { return };
                port.request_ended(node, Outcome::Unknown, self.now);
                let talk = Talk::Relay(port.dispatcher.name(node).to_owned());
                let Some((server, of_server)) = self.give_up_stream(stream) else { return };
                // All that the client has said is the server's.
                let to_server = [of_server.outbox, client.inbox].concat();
                let (to_client, from_server) = (client.outbox, of_server.inbox);
                Some((server, ServerEnd { to_server, from_server, to_client, drawn: 0, talk }))
            }
            Way::Alone(session) => {
                (state.at_rest, state.input) = (Some(session), client.inbox);
                let streams: Vec<Token> = relay.open_legs().map(|(_, to)| to.stream).collect();
                streams.into_iter().for_each(|stream| self.close_stream(stream));
                None
            }
        };
        self.leave_port(relay.site);
        let mut image = Vec::new();
        proxy_header::write(proxy_header::Version::V2, relay.ends, &mut image);
        image.extend(state.encode());
        let site = relay.settings.site.name.clone();
        self.give(Passenger { socket, file: None, listener, site, generation: None, worker: None, server, image });
    }

    /// Finds everything that a client of a port needs to go on, without touching it.
    pub(in crate::worker) fn understand_relay(&self, site: u32, passenger: Passenger) -> Result<Arrival, Verdict> {
        let Passenger { socket, server, image, .. } = passenger;
        let port = self.ports.ports.get(&site).ok_or(Verdict::Refused)?;
        let (told, ends) = proxy_header::read(&image).ok().flatten().ok_or(Verdict::Refused)?;
        let state = RelayState::decode(&image[told..]).map_err(|_| Verdict::Refused)?;
        let settings = &port.settings;
        let resume = |state| Session::resume(settings.protocol, settings.limits, settings.is_by_request, state);
        let (session, of_client, server) = match (&state.at_rest, server) {
            (Some(at_rest), None) => {
                let contents = Contents { inbox: state.input.clone(), outbox: Vec::new() };
                (resume(at_rest).ok_or(Verdict::Refused)?, contents, None)
            }
            (None, Some((server, end))) => {
                let Talk::Relay(name) = &end.talk else { return Err(Verdict::Refused) };
                let node = port.dispatcher.find(name).ok_or(Verdict::Refused)?;
                let contents = Contents { inbox: end.from_server, outbox: end.to_server };
                let server = ServerArrival { socket: server, node, contents };
                let contents = Contents { inbox: Vec::new(), outbox: end.to_client };
                (Session::passing(settings.protocol, settings.limits), contents, Some(server))
            }
            _ => return Err(Verdict::Refused),
        };
        Ok(Arrival { socket, site, ends, session, of_client, server, state })
    }

    /// Goes on with a client of a port; `stays`: the next engine doesn't take it.
    pub(in crate::worker) fn settle_relay(&mut self, arrival: Arrival, stays: bool) {
        let Arrival { socket, site, ends, session, of_client, server, state } = arrival;
        let Some(settings) = self.enter_port(site) else { return };
        let Some(token) = self.take_over_stream(socket, Owner::Probe, of_client) else {
            return self.leave_port(site);
        };
        self.belongs_to_relay(token, token);
        let mut to = None;
        if let Some(ServerArrival { socket, node, contents }) = server {
            let Some(stream) = self.take_over_stream(socket, Owner::Relay(token), contents) else {
                self.cut_stream(token);
                return self.leave_port(site);
            };
            self.belongs_to_relay(stream, token);
            if let Some(port) = self.ports.ports.get_mut(&site) {
                port.dispatcher.begin(node);
            }
            to = Some(To::connected(stream, node));
        }
        let own = self.streams.get(token).and_then(|stream| self.reactor.own_address(stream.socket()));
        let began_ns = self.now.ns.saturating_sub(u64::try_from(state.age.as_nanos()).unwrap_or(u64::MAX));
        let mut relay = Relay::new(token, site, settings, session, ends, self.now);
        relay.resume(to, state, Instant { ns: began_ns });
        relay.stays = stays;
        relay.node_port = own.map(|own| own.port()).filter(|_| relay.settings.is_port_kept);
        self.ports.relays.insert(token.index, Box::new(relay));
        self.queue_relay(token);
    }
}
