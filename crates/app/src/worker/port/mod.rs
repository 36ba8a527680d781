//! A dispatcher's ports for protocols other than HTTP: clients' bytes go to nodes and nodes' answers come back, without a server here. Decides
//! nothing itself: `protocol::Session` says which bytes are whose, `dispatch::Dispatcher` names the node.
//!
//! | file | does |
//! |---|---|
//! | `relay` | moves the bytes of one client |
//! | `node` | connects to nodes, and finds out which can be reached |
//! | `end` | time-outs, drains, the log's line |
//! | `passage` | lets clients go to the next engine, and takes them in |
//! | `ask` | answers `leat ctl` |

mod ask;
mod end;
mod node;
mod passage;
mod relay;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use leat_host::reactor::{Reactor, Socket, Token};
use leat_logic::dispatch::{Dispatcher, NodeId};
use leat_logic::protocol::{Limits, Protocol, Session, proxy_header};
use leat_logic::schedule::Operation;
use leat_logic::time::Instant;

use super::event::urgency;
use super::settings::Site;
use super::stream::Owner;
use super::{Event, Host, Stage, Task, Worker};
use crate::config::Config;
pub(super) use passage::Arrival;
use relay::Relay;

/// One port as a worker uses it. Kept over reloads for as long as its name is.
struct Port {
    settings: Rc<Settings>,
    dispatcher: Dispatcher,
    /// Where nodes take connections, by their places.
    addresses: Vec<Option<SocketAddr>>,
    /// Relays that go on.
    relays: usize,
    /// The configuration doesn't have it any more: it goes with its last relay.
    is_gone: bool,
    probes: BTreeMap<u32, Probe>,
}

/// A look whether a node can be reached.
struct Probe {
    stream: Token,
    node: NodeId,
    until: Instant,
}

/// What a reload may change.
struct Settings {
    protocol: Protocol,
    limits: Limits,
    is_by_request: bool,
    /// Nodes take connections at the port that those have come to.
    is_port_kept: bool,
    send_proxy: Option<proxy_header::Version>,
    head_timeout: Duration,
    connect_timeout: Duration,
    idle_timeout: Duration,
    probe_timeout: Duration,
    site: Rc<Site>,
}

/// All ports of a worker, by the numbers of the sites that stand for them, and their clients, by slot.
#[derive(Default)]
pub(super) struct Ports {
    ports: BTreeMap<u32, Port>,
    relays: BTreeMap<u32, Box<Relay>>,
}

impl Ports {
    /// Clients that there are.
    pub(super) fn len(&self) -> usize {
        self.relays.len()
    }

    /// Whether connections of this site are relayed.
    pub(super) fn has(&self, site: u32) -> bool {
        self.ports.contains_key(&site)
    }
}

impl<H: Host> Worker<H> {
    /// Takes up the ports of a configuration. Clients of those that have gone keep their nodes.
    pub(super) fn arrange_ports(&mut self, config: &Config, numbers: &[u32]) {
        let now = self.now;
        let wanted: Vec<(u32, usize)> =
            numbers.iter().zip(&config.sites).filter_map(|(&number, site)| Some((number, site.port?))).collect();
        let Ports { ports, .. } = &mut self.ports;
        ports.retain(|number, port| {
            port.is_gone = wanted.iter().all(|(wanted, _)| wanted != number);
            port.relays > 0 || !port.is_gone
        });
        for (number, place) in wanted {
            let (wanted, cluster) = (&config.cluster.ports[place], &config.cluster);
            let settings = Rc::new(Settings {
                protocol: wanted.protocol,
                limits: wanted.limits(),
                is_by_request: wanted.is_by_request(),
                is_port_kept: wanted.node_port == 0,
                send_proxy: wanted.send_proxy,
                head_timeout: wanted.head_timeout,
                connect_timeout: wanted.connect_timeout,
                idle_timeout: wanted.idle_timeout,
                probe_timeout: cluster.health.timeout,
                site: self.sites[number as usize].clone(),
            });
            // Without a key all dispatchers agree on where content is, and so does whoever knows this.
            let key = cluster.key_file.as_ref().map_or([0; 32], |key| *key.bytes());
            let choices = wanted.settings(cluster);
            let port = ports.entry(number).or_insert_with(|| Port {
                settings: settings.clone(),
                dispatcher: Dispatcher::new(choices.clone(), &key, self.boundary),
                addresses: Vec::new(),
                relays: 0,
                is_gone: false,
                probes: BTreeMap::new(),
            });
            port.settings = settings;
            let targets = wanted.targets(cluster);
            let nodes: Vec<_> = targets.iter().map(|(node, _)| node.clone()).collect();
            port.dispatcher.configure(choices);
            port.dispatcher.set_nodes(&nodes, now);
            port.addresses.clear();
            for (node, address) in targets {
                let Some(id) = port.dispatcher.find(&node.name) else { continue };
                if port.addresses.len() <= id.index() {
                    port.addresses.resize(id.index() + 1, None);
                }
                port.addresses[id.index()] = Some(address);
            }
        }
    }

    /// A client has come to a port.
    pub(super) fn open_relay(&mut self, site: u32, socket: Socket, must_tell: bool) {
        let (client, server) = (self.reactor.peer(socket), self.reactor.own_address(socket));
        let now = self.now;
        let Some(settings) = self.enter_port(site) else { return self.reactor.close(socket, true) };
        settings.site.metrics.port.accepted.increment();
        let session = Session::new(settings.protocol, settings.limits, settings.is_by_request);
        // The owner is known once the stream has its token.
        let token = self.open_stream(socket, false, Owner::Probe);
        self.belongs_to_relay(token, token);
        let mut relay = Relay::new(token, site, settings, session, client.zip(server), now);
        relay.must_tell = must_tell;
        relay.node_port = server.map(|server| server.port()).filter(|_| relay.settings.is_port_kept);
        self.ports.relays.insert(token.index, Box::new(relay));
        // Some protocols want a node before the client has said anything.
        self.queue_relay(token);
    }

    /// One more client is at a port.
    fn enter_port(&mut self, site: u32) -> Option<Rc<Settings>> {
        let port = self.ports.ports.get_mut(&site)?;
        port.relays += 1;
        port.settings.site.metrics.port.open.set(port.relays as u64);
        Some(port.settings.clone())
    }

    /// A client isn't there any more.
    fn leave_port(&mut self, site: u32) {
        let Some(port) = self.ports.ports.get_mut(&site) else { return };
        port.relays -= 1;
        port.settings.site.metrics.port.open.set(port.relays as u64);
        if port.is_gone && port.relays == 0 {
            self.ports.ports.remove(&site);
        }
    }

    /// The relay hears of a stream, and fails with the process.
    fn belongs_to_relay(&mut self, stream: Token, relay: Token) {
        if let Some(stream) = self.streams.get(stream) {
            stream.owner = Owner::Relay(relay);
            stream.fail_with_the_process(&mut self.reactor);
        }
    }

    /// Something has changed for a relay: it's looked at when the tree says so.
    pub(super) fn queue_relay(&mut self, token: Token) {
        let Some(relay) = self.ports.relays.get_mut(&token.index).filter(|relay| relay.token == token) else { return };
        if std::mem::replace(&mut relay.is_queued, true) {
            return;
        }
        let leaf = self.leaves[relay.site as usize][Stage::Transmit as usize];
        let event = Event { task: Task::Relay, token, queued_us: self.now_us, is_unknown: false };
        let (site, admission, now) = (relay.site, &self.admission, self.now);
        if self.tree.push_with(leaf, event, || urgency(admission, site, now, u64::MAX)).is_err() {
            // More wait than there may be connections.
            self.end_relay(token, end::End::Overloaded);
        }
    }

    /// A relay's event was in a tree that is gone.
    pub(super) fn requeue_relay(&mut self, token: Token) {
        if let Some(relay) = self.ports.relays.get_mut(&token.index) {
            relay.is_queued = false;
        }
        self.queue_relay(token);
    }

    /// Moves what can be moved.
    pub(super) fn run_relay(&mut self, token: Token) {
        let Some(relay) = self.ports.relays.get_mut(&token.index).filter(|relay| relay.token == token) else { return };
        relay.is_queued = false;
        if relay.is_leaving && self.pass_relay(token) {
            return;
        }
        let Some(relay) = self.ports.relays.get(&token.index) else { return };
        let site = relay.site;
        let Some(mut relay) = self.ports.relays.remove(&token.index) else { return };
        let before = relay.moved_bytes();
        let outcome = self.relay(&mut relay);
        let moved = relay.moved_bytes() - before;
        self.meter.did(Operation::Receive, moved);
        self.meter.did(Operation::Send, moved);
        if let Some(port) = self.ports.ports.get(&site) {
            relay.count(&port.settings.site.metrics.port);
        }
        self.ports.relays.insert(token.index, relay);
        match outcome {
            Ok(false) => {}
            Ok(true) => self.queue_relay(token),
            Err(end) => self.end_relay(token, end),
        }
    }
}
