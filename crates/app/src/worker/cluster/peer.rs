//! A node behind fronts that chooses by content: it reads each request, and hands the connection on to the node where that belongs. Decides nothing itself:
//! `dispatch::Dispatcher` names the node and the way, `spread::Peer` says who has a flow. `docs/decisions/0020-spread-by-content.md` has the reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use leat_host::reactor::Token;
use leat_host::socket;
use leat_host::steering::{self, FlowKey};
use leat_logic::dispatch::cost::{Way, Ways};
use leat_logic::dispatch::{
    Dispatcher, Facts, HandOver, HealthSettings, KeyMaker, LoadReport, NodeId, Settings, Whence,
};
use leat_logic::handoff::{FlowId, Load, ServerId, SessionId};
use leat_logic::http::Request;
use leat_logic::spread;
use leat_logic::time::Instant;
use serde_json::Value;

use super::super::exchange::Placing;
use super::super::{Host, Worker};
use super::checks::Checks;
use super::node::Borrowed;
use super::sweep::Sweep;
use super::{Part, Shared, number_of};
use crate::config::{self, Config};
use crate::ctl::{self, Command};

/// Connections of a draining node that are on their way at a time, and the time until more follow.
const GIVEN_COUNT: usize = 256;
const GIVEN_PAUSE: Duration = Duration::from_millis(20);

/// See the module.
pub(super) struct Peer {
    pub(super) id: ServerId,
    pub(super) flows: spread::Peer,
    pub(super) dispatcher: Dispatcher,
    pub(super) keys: KeyMaker,
    pub(super) steering: Arc<steering::Dispatcher>,
    pub(super) sweep: Sweep,
    name: String,
    own: NodeId,
    /// By their places in the configuration.
    nodes: Vec<NodeId>,
    /// Those of them that a reload has removed.
    removed: BTreeSet<NodeId>,
    fronts: usize,
    /// Other nodes' workers whose link is up, and what each has to do.
    linked: BTreeMap<ServerId, Load>,
    next_serial: u64,
    /// Whether requests are looked at: a reload may have it otherwise.
    chooses: bool,
    is_draining: bool,
    /// This worker goes as soon as nothing is left here, or its whole process does.
    pub(super) is_ending: bool,
    checks: Option<Arc<Checks>>,
    give_at: Instant,
}

/// What is to be done with a request.
enum Then {
    Serve,
    Refuse,
    Give(NodeId, ServerId),
    Fetch(ServerId),
}

/// Where a node makes links to: the fronts, and the nodes before it. One machine may have an address of each family: the first one's is enough.
pub(super) fn sought(cluster: &config::Cluster) -> impl Iterator<Item = IpAddr> {
    fronts(cluster).chain(nodes_before(cluster))
}

/// Where the nodes before it are.
pub(super) fn nodes_before(cluster: &config::Cluster) -> impl Iterator<Item = IpAddr> {
    let own = cluster.nodes.iter().position(|node| node.name == cluster.name).unwrap_or(0);
    cluster.nodes.iter().take(own).filter_map(|node| node.address.first().copied())
}

fn fronts(cluster: &config::Cluster) -> impl Iterator<Item = IpAddr> {
    let is_ipv4 = cluster.dispatchers.first().is_some_and(IpAddr::is_ipv4);
    cluster.dispatchers.iter().copied().filter(move |address| address.is_ipv4() == is_ipv4)
}

/// Nodes that start slowly do so at another time for each of the others, and never for themselves: they wouldn't agree.
fn settings(cluster: &config::Cluster) -> Settings {
    let settings = cluster.settings();
    Settings { health: HealthSettings { slow_start: Duration::ZERO, ..settings.health }, ..settings }
}

impl Peer {
    pub(super) fn new(config: &Config, shared: &Shared, worker: u16, now: Instant, seed: u64) -> Result<Peer, String> {
        let cluster = &config.cluster;
        let key = cluster.key_file.as_ref().ok_or("`key_file` is missing in [cluster]")?;
        let place = cluster.nodes.iter().position(|node| node.name == cluster.name);
        let place = place.ok_or_else(|| format!("no [[cluster.node]] has the name `{}`", cluster.name))?;
        let mut dispatcher = Dispatcher::new(settings(cluster), key.bytes(), seed);
        dispatcher.set_first_ways(Ways::of(&[Way::MovedThere]));
        dispatcher.set_nodes(&cluster.node_settings(), now);
        let own = dispatcher.find(&cluster.name).ok_or("there are too many nodes")?;
        let steering = shared.dispatcher(config)?;
        let life = shared.life(cluster)?;
        let is_first = shared.workers().first() == Some(&worker);
        let fronts = fronts(cluster).count();
        let mut peer = Peer {
            id: ServerId::new(number_of(place), u32::from(life.worker(worker))),
            flows: spread::Peer::new(now, fronts),
            dispatcher,
            keys: KeyMaker::new(key.bytes()),
            steering,
            sweep: Sweep::new(is_first, now),
            name: cluster.name.clone(),
            own,
            nodes: Vec::new(),
            removed: BTreeSet::new(),
            fronts,
            linked: BTreeMap::new(),
            // Never one that an entry of an earlier life may have.
            next_serial: seed >> 1,
            chooses: cluster.hands_on(),
            is_draining: false,
            is_ending: false,
            checks: shared.checks(config),
            give_at: Instant::NEVER,
        };
        peer.set_nodes(cluster, now);
        peer.flows.set_process(life.process());
        Ok(peer)
    }

    /// Takes over what may change.
    pub(super) fn configure(&mut self, config: &Config, shared: &Shared, now: Instant) -> Vec<u32> {
        self.dispatcher.configure(settings(&config.cluster));
        self.chooses = config.cluster.hands_on();
        self.checks = shared.checks(config);
        self.set_nodes(&config.cluster, now)
    }

    /// Takes up the nodes of a configuration, whose places stay. One that it doesn't have any more is given nothing. Returns numbers that somebody else has now.
    fn set_nodes(&mut self, cluster: &config::Cluster, now: Instant) -> Vec<u32> {
        let name = |node: &NodeId| self.dispatcher.name(*node).to_owned();
        let before: Vec<String> = self.nodes.iter().map(name).collect();
        self.dispatcher.set_nodes(&cluster.node_settings(), now);
        self.nodes = cluster.nodes.iter().filter_map(|node| self.dispatcher.find(&node.name)).collect();
        self.removed.clear();
        let mut changed = Vec::new();
        for (place, (node, &id)) in cluster.nodes.iter().zip(&self.nodes).enumerate() {
            if before.get(place) != Some(&node.name) && id != self.own {
                changed.push(number_of(place));
                // Until its link is there.
                self.dispatcher.link_changed(id, false, now);
            }
            if node.is_removed() {
                self.removed.insert(id);
                self.dispatcher.set_draining(id, true, now);
            }
        }
        changed
    }

    pub(super) fn connected(&mut self, now: Instant, peer: ServerId, session: SessionId, place: Option<usize>) {
        self.flows.connected(now, session, peer, place.filter(|place| *place < self.fronts));
    }

    pub(super) fn disconnected(&mut self, now: Instant, peer: Option<ServerId>, session: SessionId) {
        self.flows.disconnected(now, session);
        if let Some(peer) = peer.filter(|peer| self.linked.remove(peer).is_some())
            && let Some(node) = self.node(peer.server())
            && self.workers(peer.server()).next().is_none()
        {
            self.dispatcher.link_changed(node, false, now);
            crate::log::warning(format_args!("node {}: its link is down", self.dispatcher.name(node)));
        }
    }

    /// Another node's worker has said how much it has to do.
    pub(super) fn reported(&mut self, server: ServerId, load: Load, now: Instant) {
        let Some(node) = self.node(server.server()) else { return };
        let is_new = self.workers(server.server()).next().is_none();
        self.linked.insert(server, load);
        let (active, drains, fails) =
            self.workers(server.server()).fold((0, true, true), |(active, drains, fails), (_, load)| {
                (active + load.requests, drains && load.is_draining, fails && load.is_failing)
            });
        if self.dispatcher.told_failing(node, fails, now) {
            crate::log::warning(format_args!("node {}: its health checks fail", self.dispatcher.name(node)));
        }
        self.dispatcher.report(node, LoadReport { active, ..LoadReport::default() }, now);
        self.dispatcher.set_draining(node, drains || self.removed.contains(&node), now);
        if is_new {
            self.dispatcher.link_changed(node, true, now);
            crate::log::info(format_args!("node {}: its link is up", self.dispatcher.name(node)));
        }
    }

    /// Servers whose workers are sought, by the places of their addresses.
    pub(super) fn sought_workers(&self) -> impl Iterator<Item = (usize, u32)> + use<> {
        let own = if self.flows.is_leaving() { number_of(0) } else { self.id.server() };
        let fronts = self.fronts;
        (number_of(0)..own).enumerate().map(move |(place, server)| (fronts + place, server))
    }

    /// How many of the servers to which links are made are fronts: the first ones.
    pub(super) fn fronts(&self) -> usize {
        self.fronts
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        self.flows.poll_timeout().min(self.sweep.at).min(self.give_at)
    }

    pub(super) fn handle_timeout(&mut self, shared: &Shared, workers: &[u16], requests: u32, now: Instant) {
        let flows = u32::try_from(self.flows.owned()).unwrap_or(u32::MAX);
        self.checks.iter().for_each(|checks| checks.begin());
        let is_failing = self.checks.as_ref().is_some_and(|checks| checks.is_failing());
        let load = Load { flows, requests, is_draining: self.is_draining, is_failing, ..Load::default() };
        self.flows.set_load(load, workers);
        if now >= self.flows.poll_timeout()
            && let Some(process) = shared.process()
        {
            self.flows.set_process(process);
        }
        self.dispatcher.told_failing(self.own, is_failing, now);
        // What this worker has to do, the others of this node have, more or less.
        let active = requests.saturating_mul(u32::try_from(workers.len()).unwrap_or(1));
        self.dispatcher.report(self.own, LoadReport { active, ..LoadReport::default() }, now);
        self.flows.handle_timeout(now);
        self.sweep.handle_timeout(&self.steering, now);
        if now >= self.give_at {
            self.give_some(now);
        }
    }

    /// A connection was accepted: it's a flow, if it has come by a VIP.
    pub(super) fn accepted(&mut self, socket: &impl AsRawFd, vips: &[SocketAddr]) -> Option<FlowId> {
        let (vip, _) = socket::ends(socket).ok()?;
        vips.contains(&vip).then(|| {
            self.next_serial += 1;
            let flow = FlowId { home: self.id, serial: self.next_serial };
            self.flows.begin(flow);
            flow
        })
    }

    /// Takes nothing on any more, and hands on what is here.
    pub(super) fn drain(&mut self, now: Instant) {
        self.is_draining = true;
        self.dispatcher.set_draining(self.own, true, now);
        self.give_at = now;
    }

    /// The same, and this worker goes when nothing is left.
    pub(super) fn end(&mut self, now: Instant) {
        self.is_ending = true;
        self.drain(now);
    }

    fn resume(&mut self, now: Instant) {
        self.is_draining = false;
        self.dispatcher.set_draining(self.own, false, now);
        self.give_at = Instant::NEVER;
    }

    /// Not all at once, as the others take only so many at a time.
    fn give_some(&mut self, now: Instant) {
        self.give_at = now.after(GIVEN_PAUSE);
        let live: Vec<FlowId> = self.flows.live().take(GIVEN_COUNT).collect();
        for flow in live {
            let node = self.dispatcher.choose_for_idle(None, now).ok().filter(|node| *node != self.own);
            let worker = node.and_then(|node| self.worker(node, flow));
            if !worker.is_some_and(|worker| self.flows.give(flow, worker)) {
                // There is nobody, for now.
                return;
            }
        }
    }

    /// Whether this node is configured for a request.
    pub(super) fn serves(&self, facts: &Facts<'_>) -> bool {
        self.dispatcher.serves(self.own, facts)
    }

    fn node(&self, number: u32) -> Option<NodeId> {
        let place = number.checked_sub(number_of(0))?;
        self.nodes.get(usize::try_from(place).ok()?).copied()
    }

    fn number(&self, node: NodeId) -> Option<u32> {
        self.nodes.iter().position(|known| *known == node).map(number_of)
    }

    fn workers(&self, number: u32) -> impl Iterator<Item = (&ServerId, &Load)> {
        self.linked.range(ServerId::new(number, 0)..ServerId::new(number + 1, 0))
    }

    /// The worker of a node that is offered a flow.
    fn worker(&self, node: NodeId, flow: FlowId) -> Option<ServerId> {
        let number = self.number(node)?;
        let takes = || self.workers(number).filter(|(_, load)| !load.is_draining).map(|(server, _)| *server);
        let turn = flow.serial.checked_rem(takes().count() as u64)?;
        takes().nth(usize::try_from(turn).ok()?)
    }

    /// What is to be done with a flow's request, which is the `number`th of its connection. `is_stuck`: that can't be given away.
    fn route(&mut self, flow: FlowId, facts: &Facts<'_>, (number, is_stuck): (u32, bool), now: Instant) -> Then {
        let is_told = number <= 1 && self.dispatcher.settings().hand_over == HandOver::Always;
        let possible = match is_told {
            _ if is_stuck => &[Way::Fetch][..],
            true => &[Way::MovedThere],
            false => &[Way::MovedThere, Way::Fetch],
        };
        let whence = Whence {
            holder: Some(self.own),
            client: None,
            had: number.saturating_sub(1),
            possible: Ways::of(possible),
        };
        let Ok(route) = self.dispatcher.route(facts, &whence, now) else {
            return if self.serves(facts) { Then::Serve } else { Then::Refuse };
        };
        let (node, way) = (route.choice.node, route.decision.way);
        if node == self.own {
            return Then::Serve;
        }
        match (way, self.worker(node, flow), self.number(node)) {
            (Way::MovedThere, Some(worker), _) => Then::Give(node, worker),
            (Way::Fetch, _, Some(number)) => Then::Fetch(ServerId::new(number, 0)),
            _ => Then::Serve,
        }
    }

    fn answer(&mut self, command: &Command, now: Instant) -> Result<Value, String> {
        match command {
            Command::Flows => {
                let moved = self.flows.counters().taken;
                let owned = self.flows.owned() as u64;
                Ok(ctl::list_flows([owned, 0, moved], &[(self.name.clone(), owned)]))
            }
            Command::Drain { node } | Command::Resume { node } if *node != self.name => {
                Err(format!("this is {}: {node} is drained where it is, by its own control socket", self.name))
            }
            Command::Drain { node } => {
                self.drain(now);
                Ok(ctl::drain(node, self.flows.owned() as u64))
            }
            Command::Resume { .. } => {
                self.resume(now);
                ctl::answer(&mut self.dispatcher, command, now)
            }
            command => ctl::answer(&mut self.dispatcher, command, now),
        }
    }
}

impl<H: Host> Worker<H> {
    /// Whether the request in hand is to be served here and now. If not, whatever else is to be done with it has begun.
    pub(super) fn belongs_to_peer(&mut self, token: Token) -> bool {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return true };
        let Part::Peer(peer) = &mut cluster.part else { return true };
        let chooses = (peer.chooses || peer.is_draining) && !peer.flows.is_leaving();
        let Some(flow) = cluster.flows.at(token) else { return true };
        let is_freezing = cluster.flows.is_freezing(flow);
        if !chooses && !is_freezing {
            return true;
        }
        let connection = &mut self.connections[token];
        let number = connection.http.request_count();
        let Some(exchange) = connection.exchange.as_mut() else { return true };
        if exchange.placing == Placing::Here {
            return true;
        }
        if is_freezing {
            self.freeze_goes_on(token);
            return false;
        }
        // Who leaves and is still here couldn't be frozen.
        let is_stuck = connection.flags.ended || exchange.placing == Placing::Leaving;
        let request = Request::read_again(&exchange.head);
        let then = match request {
            Some(request) => {
                let facts = Facts::of(&request);
                exchange.content = peer.keys.content(&facts);
                peer.route(flow, &facts, (number, is_stuck), now)
            }
            None => Then::Serve,
        };
        match then {
            Then::Give(node, worker) if peer.flows.give(flow, worker) => {
                exchange.placing = Placing::Leaving;
                peer.dispatcher.begin_unheard(node);
                self.run_effects();
                false
            }
            Then::Fetch(server) => {
                exchange.placing = Placing::Here;
                self.fetch(token, server);
                false
            }
            Then::Refuse => {
                exchange.placing = Placing::Here;
                self.refuse_unserved(token)
            }
            Then::Give(..) | Then::Serve => {
                exchange.placing = Placing::Here;
                true
            }
        }
    }

    /// A connection begins at this worker: it's a flow, if it has come by a VIP.
    pub(in crate::worker) fn begins_at_peer(&mut self, token: Token) {
        let socket = self.connections[token].socket;
        let Some(cluster) = &mut self.cluster else { return };
        if let Part::Peer(peer) = &mut cluster.part
            && let Some(flow) = peer.accepted(&Borrowed(socket), &self.config.cluster.vip)
        {
            cluster.flows.settle(flow, token);
        }
    }

    /// What a node that hands on says to a command; none if this is no such node.
    pub(super) fn answer_by_peer(&mut self, command: &Command) -> Option<Result<Value, String>> {
        let now = self.now;
        let Part::Peer(peer) = &mut self.cluster.as_mut()?.part else { return None };
        let answer = peer.answer(command, now);
        self.handle_cluster_timeout();
        Some(answer)
    }
}

/// Entries that an earlier life has left: connections that live elsewhere, and of which nobody says any more when they end.
pub(super) fn close_left(steering: &steering::Dispatcher) -> Result<(), steering::Error> {
    let (flows, mut place) = (steering.flows(), None);
    loop {
        let (entries, next) = flows.list(place, LEFT_COUNT)?;
        for (key, flow) in entries {
            close_one(flows, key, &flow)?;
        }
        match next {
            Some(_) => place = next,
            None => return Ok(()),
        }
    }
}

/// Entries that are read at a time.
const LEFT_COUNT: u32 = 4096;

fn close_one(flows: &steering::Flows, key: FlowKey, flow: &steering::Flow) -> Result<(), steering::Error> {
    // What was on its way has died with its giver.
    if flow.held { flows.delete(key, flow.id).map(drop) } else { flows.close(key, flow.id) }
}
