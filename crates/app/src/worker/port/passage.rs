//! Clients of ports that pass to the next engine, and those that come from the one before. A client whose whole connection is a node's can; one whose requests
//! may each go to another node stays, as does one that hasn't been given to a node.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use leat_host::reactor::Token;
use leat_logic::dispatch::{NodeId, Outcome};
use leat_logic::handoff::{RelayState, ServerEnd, Talk, Verdict};
use leat_logic::protocol::{Session, proxy_header};
use leat_logic::time::Instant;

use super::super::stream::{Contents, Owner};
use super::super::{Host, Worker};
use super::relay::{Relay, To};
use crate::listener::ListenerName;
use crate::passage::Passenger;

/// A client of a port that was understood, and isn't relayed yet.
pub(in crate::worker) struct Arrival {
    client: OwnedFd,
    server: OwnedFd,
    site: u32,
    node: NodeId,
    ends: Option<(SocketAddr, SocketAddr)>,
    of_client: Contents,
    of_server: Contents,
    state: RelayState,
}

impl<H: Host> Worker<H> {
    /// Sends clients of ports on their way, `room` at most. Returns how many.
    pub(in crate::worker) fn pass_relays(&mut self, room: usize) -> usize {
        let waiting = self.ports.relays.values().filter(|relay| !relay.is_leaving).map(|relay| relay.token);
        let waiting: Vec<Token> = waiting.collect();
        let may_go = waiting.into_iter().filter(|&token| self.pass_relay(token));
        may_go.take(room).count()
    }

    /// Another engine may take those that one hasn't taken.
    pub(in crate::worker) fn offer_relays_again(&mut self) {
        self.ports.relays.values_mut().for_each(|relay| relay.stays = false);
    }

    /// Sends a client on its way, now or as soon as the reactor has let go of it. Whether it has begun.
    pub(super) fn pass_relay(&mut self, token: Token) -> bool {
        let is_giving = self.passages.is_giving();
        let Some(relay) = self.ports.relays.get_mut(&token.index).filter(|relay| relay.token == token) else {
            return false;
        };
        let listening = self.listeners.iter().find(|listening| listening.sites.port == Some(relay.site));
        let (streams, reactor) = (&mut self.streams, &mut self.reactor);
        let mut can_travel = |stream| streams.get(stream).is_some_and(|stream| stream.can_travel());
        let node = relay.only_node().filter(|&(stream, _)| is_giving && can_travel(token) && can_travel(stream));
        let (Some(node), Some(listening), false) = (node, listening, relay.stays) else {
            self.thaw_relay(token);
            return false;
        };
        relay.is_leaving = true;
        let mut freeze = |stream| streams.get(stream).is_some_and(|stream| stream.freeze(reactor));
        let are_free = [freeze(token), freeze(node.0)];
        if are_free == [true; 2] {
            let listener = listening.sites.name;
            self.pass_relay_now(token, node, listener);
        }
        true
    }

    /// A client that was to go on elsewhere goes on here.
    fn thaw_relay(&mut self, token: Token) {
        let Some(relay) = self.ports.relays.get_mut(&token.index) else { return };
        if !std::mem::take(&mut relay.is_leaving) {
            return;
        }
        let node = relay.only_node().map(|(stream, _)| stream);
        for stream in node.into_iter().chain([token]) {
            if let Some(stream) = self.streams.get(stream) {
                stream.thaw(&mut self.reactor);
            }
        }
        self.queue_relay(token);
    }

    fn pass_relay_now(&mut self, token: Token, (stream, node): (Token, NodeId), listener: ListenerName) {
        let Some(relay) = self.ports.relays.remove(&token.index) else { return };
        let (client, server) = (self.give_up_stream(token), self.give_up_stream(stream));
        let (Some((socket, client)), Some((server, of_server))) = (client, server) else {
            // Both were there, and giving up a socket doesn't fail.
            return self.leave_port(relay.site);
        };
        let name = match self.ports.ports.get_mut(&relay.site) {
            Some(port) => {
                port.request_ended(node, Outcome::Unknown, self.now);
                port.dispatcher.name(node).to_owned()
            }
            None => String::new(),
        };
        self.leave_port(relay.site);
        let (age, received_bytes, sent_bytes) = (self.now.since(relay.began), relay.received_bytes, relay.sent_bytes);
        let state = RelayState { node: name, age, received_bytes, sent_bytes };
        // All that the client has said is the server's.
        let to_server = [of_server.outbox, client.inbox].concat();
        let (to_client, from_server) = (client.outbox, of_server.inbox);
        let end = ServerEnd { to_server, from_server, to_client, drawn: 0, talk: Talk::Relay(state) };
        let mut image = Vec::new();
        proxy_header::write(proxy_header::Version::V2, relay.ends, &mut image);
        let (site, server) = (relay.settings.site.name.clone(), Some((server, end)));
        self.give(Passenger { socket, file: None, listener, site, generation: None, server, image });
    }

    /// Finds everything that a client of a port needs to go on, without touching it.
    pub(in crate::worker) fn understand_relay(&self, passenger: Passenger) -> Result<Arrival, Verdict> {
        let Passenger { socket, site, server, image, .. } = passenger;
        let Some((server, end)) = server else { return Err(Verdict::Refused) };
        let ServerEnd { to_server, from_server, to_client, talk: Talk::Relay(state), .. } = end else {
            return Err(Verdict::Refused);
        };
        let site = self.sites.iter().find(|known| known.name == site).map(|known| known.number);
        let port = site.and_then(|site| Some((site, self.ports.ports.get(&site)?)));
        let (site, port) = port.ok_or(Verdict::Refused)?;
        let node = port.dispatcher.find(&state.node).ok_or(Verdict::Refused)?;
        let ends = proxy_header::read(&image).ok().flatten().and_then(|(_, ends)| ends);
        let of_client = Contents { inbox: Vec::new(), outbox: to_client };
        let of_server = Contents { inbox: from_server, outbox: to_server };
        Ok(Arrival { client: socket, server, site, node, ends, of_client, of_server, state })
    }

    /// Goes on with a client of a port; `stays`: the next engine doesn't take it.
    pub(in crate::worker) fn settle_relay(&mut self, arrival: Arrival, stays: bool) {
        let Arrival { client, server, site, node, ends, of_client, of_server, state } = arrival;
        let Some(settings) = self.enter_port(site) else { return };
        let RelayState { age, received_bytes, sent_bytes, node: name } = state;
        let token = self.take_over_stream(client, Owner::Probe, of_client);
        let stream = self.take_over_stream(server, Owner::Probe, of_server);
        let (Some(token), Some(stream)) = (token, stream) else { return self.leave_port(site) };
        let session = Session::passing(settings.protocol, settings.limits);
        let began = Instant { ns: self.now.ns.saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)) };
        let mut relay = Relay::new(token, site, settings, session, ends, self.now);
        relay.resume(To::connected(stream, node), name, began, (received_bytes, sent_bytes));
        relay.stays = stays;
        if let Some(port) = self.ports.ports.get_mut(&site) {
            port.dispatcher.begin(node);
        }
        self.belongs_to_relay(token, token);
        self.belongs_to_relay(stream, token);
        self.ports.relays.insert(token.index, Box::new(relay));
        self.queue_relay(token);
    }
}
