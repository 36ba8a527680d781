//! Streams to the nodes of a port: connecting, trying another when one can't be reached, and finding out when it can be again.

use leat_host::process::is_out_of_descriptors;
use leat_host::reactor::{Peer, Reactor, Token};
use leat_logic::dispatch::{Facts, NodeId, Outcome};
use leat_logic::protocol::{Leg, proxy_header};
use leat_logic::time::Instant;

use super::super::stream::{Owner, Probed};
use super::super::{Host, Worker};
use super::end::End;
use super::relay::{Relay, TRIES_MAX, To, Wanted};
use super::{Port, Probe};

impl Port {
    /// A node couldn't be reached: it's down until a probe reaches it, or, where there are none, ejected when that happens often.
    fn failed(&mut self, node: NodeId, now: Instant) {
        let has_probes = !self.dispatcher.settings().health.interval.is_zero();
        self.settings.site.metrics.port.connect_failures.increment();
        if has_probes && self.dispatcher.link_changed(node, false, now) {
            let name = &self.settings.site.name;
            crate::log::warning(format_args!("{name}: node {} can't be reached", self.dispatcher.name(node)));
        }
    }

    /// What a node was given has ended.
    pub(super) fn request_ended(&mut self, node: NodeId, outcome: Outcome, now: Instant) {
        if self.dispatcher.end(node, outcome, now) {
            let (name, node) = (&self.settings.site.name, self.dispatcher.name(node));
            crate::log::warning(format_args!("{name}: node {node} is ejected: its requests failed"));
        }
    }

    /// The node for what is wanted, or any.
    pub(super) fn choose(&mut self, wanted: Option<&Facts<'_>>, now: Instant) -> Result<NodeId, End> {
        let chosen = match wanted {
            Some(facts) => self.dispatcher.choose(facts, now).map(|choice| choice.node),
            None => self.dispatcher.choose_any(now),
        };
        chosen.map_err(|_| End::NoNode)
    }

    fn is_reached(&mut self, node: NodeId, now: Instant) {
        let was_down = self.dispatcher.is_unlinked(node, now);
        self.dispatcher.link_changed(node, true, now);
        if was_down {
            let name = &self.settings.site.name;
            crate::log::info(format_args!("{name}: node {} can be reached again", self.dispatcher.name(node)));
        }
    }

    /// When it has something to do by itself.
    fn poll_timeout(&self) -> Instant {
        let probes = self.probes.values().map(|probe| probe.until).min().unwrap_or(Instant::NEVER);
        self.dispatcher.poll_timeout().unwrap_or(Instant::NEVER).min(probes)
    }
}

impl<H: Host> Worker<H> {
    /// A stream to a node, as one more leg. Another node, if that can't be reached.
    pub(super) fn open_leg(&mut self, relay: &mut Relay, node: NodeId, wanted: Option<Wanted>) -> Result<Leg, End> {
        let Some((leg, prologue)) = relay.session.open() else { return Err(End::Overloaded) };
        let mut first = Vec::new();
        if let Some(version) = relay.settings.send_proxy {
            proxy_header::write(version, relay.ends, &mut first);
        }
        let has_heard = !prologue.is_empty();
        first.extend_from_slice(prologue);
        if relay.legs.len() <= leg {
            relay.legs.resize_with(leg + 1, || None);
        }
        if let Err(end) = self.connect_leg(relay, leg, node, first, wanted, 0) {
            relay.session.close(leg);
            return Err(end);
        }
        relay.legs[leg].iter_mut().for_each(|to| to.has_heard = has_heard);
        Ok(leg)
    }

    /// Connects a leg to a node, or to others as long as that fails at once, and has it told `first`.
    fn connect_leg(
        &mut self,
        relay: &mut Relay,
        leg: Leg,
        node: NodeId,
        first: Vec<u8>,
        wanted: Option<Wanted>,
        tried: u8,
    ) -> Result<(), End> {
        let (mut node, mut tries) = (node, tried);
        loop {
            let Some(port) = self.ports.ports.get_mut(&relay.site) else { return Err(End::NoNode) };
            let mut address = port.addresses.get(node.index()).copied().flatten().ok_or(End::NoNode)?;
            if let Some(number) = relay.node_port {
                address.set_port(number);
            }
            tries += 1;
            relay.settings.site.metrics.port.connects.increment();
            let peer = Peer::Internet(address);
            match self.reactor.connect(&peer) {
                Ok(socket) => {
                    let name = port.dispatcher.name(node).to_owned();
                    if !relay.nodes.contains(&name) {
                        relay.nodes.push(name);
                    }
                    let connect_by = self.now.after(relay.settings.connect_timeout);
                    let stream = self.open_stream(socket, true, Owner::Relay(relay.token));
                    relay.legs[leg] = Some(To::new(stream, node, connect_by, wanted, tries));
                    self.belongs_to_relay(stream, relay.token);
                    if let Some(stream) = self.streams.get(stream) {
                        *stream.outbox() = first;
                    }
                    return Ok(());
                }
                // No other could be reached either, and none is to blame.
                Err(error) if is_out_of_descriptors(&error) => {
                    self.say_out_of_descriptors(&relay.settings.site.name, &peer);
                    return Err(End::NoNode);
                }
                Err(_) => {
                    port.failed(node, self.now);
                    if tries >= TRIES_MAX {
                        return Err(End::NoNode);
                    }
                    node = port.choose(wanted.as_ref().map(Wanted::facts).as_ref(), self.now)?;
                }
            }
        }
    }

    /// A node couldn't be reached, or broke off before anything was said: what it was to be told is told another.
    pub(super) fn try_another(&mut self, relay: &mut Relay, leg: Leg) -> Result<(), End> {
        let now = self.now;
        let Some(to) = relay.legs[leg].take() else { return Ok(()) };
        let first = self.streams.get(to.stream).map(|stream| stream.take_outbox()).unwrap_or_default();
        self.close_stream(to.stream);
        let Some(port) = self.ports.ports.get_mut(&relay.site) else { return Err(End::NoNode) };
        if to.connect_by.is_some() {
            port.failed(to.node, now);
        }
        let owed = relay.session.owed(leg);
        (0..owed).for_each(|place| {
            port.request_ended(to.node, if place == 0 { Outcome::Failed } else { Outcome::Unknown }, now);
        });
        let wanted = to.wanted.as_ref().map(Wanted::facts);
        let chosen = if to.tries < TRIES_MAX { port.choose(wanted.as_ref(), now) } else { Err(End::NoNode) };
        let connected = chosen.and_then(|node| self.connect_leg(relay, leg, node, first, to.wanted, to.tries));
        match connected {
            Err(End::NoNode) if relay.session.refuse_all(leg) => return Ok(()),
            connected => connected?,
        }
        // That one may have given its place to another too.
        let has_heard = to.has_heard;
        if let (Some(to), Some(port)) = (&mut relay.legs[leg], self.ports.ports.get_mut(&relay.site)) {
            to.has_heard = has_heard;
            (0..owed).for_each(|_| port.dispatcher.begin(to.node));
        }
        Ok(())
    }

    /// When a port has something to do by itself.
    pub(in crate::worker) fn ports_timeout(&self) -> Instant {
        self.ports.ports.values().map(Port::poll_timeout).min().unwrap_or(Instant::NEVER)
    }

    /// Begins probes that are due, and ends those that take too long.
    pub(in crate::worker) fn handle_ports_timeout(&mut self) {
        let now = self.now;
        let mut begun = Vec::new();
        let mut late = Vec::new();
        for (&site, port) in &mut self.ports.ports {
            late.extend(port.probes.values().filter(|probe| now >= probe.until).map(|probe| probe.stream));
            while let Some(node) = port.dispatcher.poll_probe(now) {
                begun.push((site, node, port.addresses.get(node.index()).copied().flatten()));
            }
        }
        late.into_iter().for_each(|stream| self.settle_probe(stream, Probed::Silent));
        for (site, node, address) in begun {
            let socket = address.map(|address| self.reactor.connect(&Peer::Internet(address)));
            let is_ours = matches!(&socket, Some(Err(error)) if is_out_of_descriptors(error));
            let stream = match socket {
                Some(Ok(socket)) => Some(self.open_stream(socket, true, Owner::Probe)),
                _ => None,
            };
            let Some(port) = self.ports.ports.get_mut(&site) else { continue };
            match stream {
                Some(stream) => {
                    let until = now.after(port.settings.probe_timeout);
                    port.probes.insert(stream.index, Probe { stream, node, until });
                }
                None if is_ours => port.dispatcher.drop_probe(node),
                None => {
                    port.dispatcher.probe_ended(node, false, now);
                }
            }
        }
    }

    /// The reactor says something of a probe's stream.
    pub(in crate::worker) fn probe_ended(&mut self, stream: Token) {
        let probed = self.streams.get(stream).map_or(Probed::Silent, |stream| stream.probed());
        self.settle_probe(stream, probed);
    }

    pub(in crate::worker) fn settle_probe(&mut self, stream: Token, probed: Probed) {
        let (now, is_well) = (self.now, probed == Probed::Well);
        for port in self.ports.ports.values_mut() {
            if port.probes.get(&stream.index).is_some_and(|probe| probe.stream == stream)
                && let Some(probe) = port.probes.remove(&stream.index)
            {
                if port.dispatcher.probe_ended(probe.node, is_well, now) {
                    let (name, node) = (&port.settings.site.name, port.dispatcher.name(probe.node));
                    crate::log::warning(format_args!("{name}: node {node} is down: its probes fail"));
                }
                if is_well {
                    port.is_reached(probe.node, now);
                }
            }
        }
        self.spread_probe_ended(stream, probed);
        self.close_stream(stream);
    }
}
