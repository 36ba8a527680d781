//! A dispatcher's part: each request is given to a node with its connection, packets follow, and what no node takes is answered here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use bytes::Bytes;
use leat_host::interfaces;
use leat_host::reactor::{Reactor, Token};
use leat_host::steering::{self, FlowKey, Heard, Reach};
use leat_logic::dispatch::cost::{Side, Way, Ways, Work};
use leat_logic::dispatch::{Dispatcher, Facts, LoadReport, NodeId, Outcome, Whence};
use leat_logic::handoff;
use leat_logic::handoff::{
    CutReason, Destination, FlowId, HomeLimits, Image, Load, Progress, ServerId, SessionId, Target, Witness,
    continue_from,
};
use leat_logic::http::{Request, Status};
use leat_logic::time::Instant;
use serde_json::{Map, Value, json};

use super::super::handler::{Passed, PassedOutcome};
use super::super::{HELD_PACKETS_INDEX, Host, Worker};
use super::placing::ROUND_TRIP;
use super::{Part, born, link};
use crate::config::{self, Config};
use crate::ctl::{self, Command, Question};
use crate::pins;

/// Entries for flows, 150 bytes each while they exist.
pub(super) const FLOWS_MAX: u32 = 1 << 20;
/// Entries are looked through for what is over, so many at a time.
const SWEEP_COUNT: u32 = 4096;
const SWEEP_PAUSE: Duration = Duration::from_millis(200);
/// Connections that a draining node is asked for at a time, and the time until the next.
const RECALL_COUNT: usize = 256;
const RECALL_PAUSE: Duration = Duration::from_millis(20);
/// Nodes that a request is offered to before it's refused.
const OFFERS_MAX: u8 = 3;

/// See the module.
pub(super) struct Home {
    pub(super) flows: handoff::Home,
    pub(super) dispatcher: Dispatcher,
    /// Up to which of its changes nodes have been told.
    pub(super) changes_told: Option<u64>,
    /// Without it nothing can be handed over, and everything is proxied.
    pub(super) steering: Option<steering::Dispatcher>,
    nodes: Vec<NodeId>,
    /// Nodes whose link is up.
    linked: BTreeSet<ServerId>,
    next_serial: u64,
    /// Requests that are on their way to a node: which, and how many have been asked before.
    asked: BTreeMap<FlowId, Asked>,
    /// Nodes that are being emptied, and when to ask them next.
    draining: BTreeSet<ServerId>,
    recall_at: Instant,
    sweep_at: Instant,
    sweep_place: Option<steering::Place>,
}

#[derive(Clone, Copy)]
struct Asked {
    node: NodeId,
    offers: u8,
    /// Processor time, if the connection was frozen at once.
    spent: Option<Duration>,
}

impl Home {
    pub(super) fn new(config: &Config, now: Instant, seed: u64) -> Result<Home, String> {
        let cluster = &config.cluster;
        let key = cluster.key_file.as_ref().ok_or("`key_file` is missing in [cluster]")?;
        let mut dispatcher = Dispatcher::new(cluster.settings(), key.bytes(), seed);
        dispatcher.set_nodes(&cluster.node_settings(), now);
        let steering = match make_steering(cluster) {
            Ok(steering) => Some(steering),
            Err(error) => {
                crate::log::warning(format_args!("requests are proxied, as connections can't be handed over: {error}"));
                None
            }
        };
        let find = |node: &config::ClusterNode| {
            dispatcher.find(&node.name).ok_or_else(|| format!("there is no node {}", node.name))
        };
        let nodes = cluster.nodes.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        if steering.is_some() {
            // Until its link is there.
            for id in &nodes {
                dispatcher.link_changed(*id, false, now);
            }
        }
        Ok(Home {
            flows: handoff::Home::new(HomeLimits::default()),
            dispatcher,
            changes_told: None,
            steering,
            nodes,
            // Never one that an entry of an earlier life may have.
            next_serial: seed >> 1,
            linked: BTreeSet::new(),
            asked: BTreeMap::new(),
            draining: BTreeSet::new(),
            recall_at: Instant::NEVER,
            sweep_at: now.after(SWEEP_PAUSE),
            sweep_place: None,
        })
    }

    /// Readable when packets of flows on their way wait.
    pub(super) fn held_packets(&self) -> Result<Vec<OwnedFd>, String> {
        let Some(steering) = &self.steering else { return Ok(Vec::new()) };
        steering.descriptors().map_err(|error| error.to_string())
    }

    pub(super) fn node(&self, server: ServerId) -> Option<NodeId> {
        self.nodes.get(usize::try_from(server.0).ok()?.checked_sub(1)?).copied()
    }

    pub(super) fn server(&self, node: NodeId) -> Option<ServerId> {
        self.nodes.iter().position(|known| *known == node).map(number_of)
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        let sweep_at = if self.steering.is_some() { self.sweep_at } else { Instant::NEVER };
        self.flows.poll_timeout().min(sweep_at).min(self.recall_at)
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.flows.handle_timeout(now);
        self.renew_rules();
        if now >= self.recall_at {
            self.recall_some(now);
        }
        if now >= self.sweep_at
            && let Some(steering) = &self.steering
        {
            self.sweep_at = now.after(SWEEP_PAUSE);
            match steering.flows().sweep(self.sweep_place, SWEEP_COUNT, now) {
                Ok(place) => self.sweep_place = place,
                Err(error) => crate::log::warning(format_args!("entries of flows can't be looked through: {error}")),
            }
        }
    }

    pub(super) fn connected(&mut self, peer: ServerId, session: SessionId) {
        // It's up once it has said what it holds: then its first report comes.
        if self.node(peer).is_some() {
            self.flows.connected(peer, session);
        }
    }

    pub(super) fn disconnected(&mut self, now: Instant, peer: Option<ServerId>, session: SessionId) {
        self.flows.disconnected(session);
        let Some(peer) = peer.filter(|peer| self.linked.remove(peer)) else { return };
        if let Some(node) = self.node(peer) {
            self.dispatcher.link_changed(node, false, now);
            crate::log::warning(format_args!("node {}: its link is down", self.dispatcher.name(node)));
        }
    }

    /// How many flows each node holds.
    fn list_flows(&self) -> Value {
        let mut text = format!("{} connections\n", self.flows.flow_count());
        let mut nodes = Map::new();
        for (place, node) in self.nodes.iter().enumerate() {
            let (name, count) = (self.dispatcher.name(*node), self.flows.flows_of(number_of(place)).count());
            text += &format!("  {name}  {count}\n");
            nodes.insert(name.to_owned(), count.into());
        }
        let handoff::HomeCounters { born, taken, .. } = self.flows.counters();
        text += &format!("so far {born} began at a node, and {taken} were moved to one\n");
        json!({ "flows": self.flows.flow_count(), "nodes": nodes, "born": born, "moved": taken, "text": text })
    }

    /// Has a node that is given nothing new asked for what it has.
    fn begin_drain(&mut self, node: &str, now: Instant) -> Value {
        let server = self.dispatcher.find(node).and_then(|node| self.server(node));
        let count = server.map_or(0, |server| self.flows.flows_of(server).count());
        self.draining.extend(server);
        self.recall_at = now;
        let text = format!("{node} is given nothing new, and {count} connections are asked back\n");
        json!({ "node": node, "flows": count, "text": text })
    }

    /// A node may have new flows again, and keeps those that it has.
    fn end_drain(&mut self, node: &str) {
        if let Some(server) = self.dispatcher.find(node).and_then(|node| self.server(node)) {
            self.draining.remove(&server);
        }
    }

    /// Asks draining nodes for some of what they have: not for all at once, as the others take only so many at a time. What nobody could take
    /// stays where it was, and is asked for again.
    fn recall_some(&mut self, now: Instant) {
        let draining: Vec<ServerId> = self.draining.iter().copied().collect();
        let mut is_left = false;
        for server in draining {
            let flows: Vec<FlowId> = self.flows.flows_of(server).take(RECALL_COUNT).collect();
            is_left |= !flows.is_empty();
            flows.iter().for_each(|flow| self.flows.recall(*flow));
        }
        self.recall_at = match (is_left, self.draining.is_empty()) {
            (true, _) => now.after(RECALL_PAUSE),
            // One that was on its way there may arrive yet.
            (false, false) => now.after(SWEEP_PAUSE),
            (false, true) => Instant::NEVER,
        };
    }

    /// A request that was on its way to a node has got there, or hasn't.
    fn settled(&mut self, flow: FlowId, outcome: Outcome, now: Instant) -> Option<Asked> {
        let asked = self.asked.remove(&flow)?;
        self.dispatcher.end(asked.node, outcome, now);
        Some(asked)
    }
}

/// A node's number in messages and in the steering map, by its place in the configuration.
pub(super) fn number_of(place: usize) -> ServerId {
    ServerId(u32::try_from(place).map_or(u32::MAX, |place| place + link::HOME.0 + 1))
}

/// What tells two clusters of one machine apart.
pub(super) fn vip_name(cluster: &config::Cluster) -> String {
    cluster.vip.first().map(ToString::to_string).unwrap_or_default()
}

fn make_steering(cluster: &config::Cluster) -> Result<steering::Dispatcher, String> {
    let text = |error: steering::Error| error.to_string();
    let pins = pins::directory(&format!("dispatcher-{}", vip_name(cluster)))?;
    let steering = born::dispatcher(cluster, &pins)?;
    for (place, node) in cluster.nodes.iter().enumerate() {
        steering.set_node(number_of(place).0, &reach(node)?).map_err(text)?;
    }
    for interface in interfaces::outward().map_err(|error| format!("interfaces: {error}"))? {
        steering.attach(&interface).map_err(text)?;
    }
    // Only now: until the taps are there, packets could only be lost.
    for &vip in &cluster.vip {
        steering.answer(vip).map_err(text)?;
    }
    Ok(steering)
}

fn reach(node: &config::ClusterNode) -> Result<Reach, String> {
    let first = node.address.first().ok_or_else(|| format!("node {} has no address", node.name))?;
    let interface = interfaces::towards(*first).map_err(|error| format!("node {}: {error}", node.name))?;
    let ipv4 = node.address.iter().find_map(|address| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    });
    let ipv6 = node.address.iter().find_map(|address| match address {
        IpAddr::V6(address) => Some(*address),
        IpAddr::V4(_) => None,
    });
    Ok(Reach { interface, ipv4, ipv6, routed: node.routed })
}

impl Part {
    /// Packets of the flow wait from now on. Only a home has them.
    pub(super) fn hold(&mut self, flow: FlowId, key: FlowKey) -> Result<(), String> {
        match self {
            Part::Home(home) => {
                let steering = home.steering.as_ref().ok_or("nothing steers packets")?;
                steering.flows().hold(key, flow.serial).map_err(|error| error.to_string())
            }
            Part::Node(_) => Ok(()),
        }
    }

    /// The flow's packets come here again.
    pub(super) fn let_go(&mut self, flow: FlowId, key: FlowKey, now: Instant) {
        if let Part::Home(home) = self
            && let Some(steering) = &home.steering
        {
            if let Err(error) = steering.flows().delete(key, flow.serial) {
                crate::log::warning(format_args!("an entry of a flow can't be deleted: {error}"));
            }
            steering.release(key, now);
        }
    }

    /// The flow's packets go to its node, those that have waited first.
    pub(super) fn unhold(&mut self, flow: FlowId, key: FlowKey, now: Instant) {
        let Part::Home(home) = self else { return };
        let Some(steering) = &home.steering else { return };
        if let Some(node) = home.asked.get(&flow).and_then(|asked| home.server(asked.node))
            && let Err(error) = steering.flows().steer(key, flow.serial, node.0, None)
        {
            crate::log::warning(format_args!("a flow can't be steered: {error}"));
        }
        steering.release(key, now);
    }

    pub(super) fn frozen(&mut self, now: Instant, flow: FlowId, image: Bytes) {
        match self {
            Part::Home(home) => home.flows.frozen(now, flow, image),
            Part::Node(node) => node.flows.frozen(flow, image),
        }
    }

    pub(super) fn freeze_failed(&mut self, flow: FlowId) {
        match self {
            Part::Home(home) => home.flows.freeze_failed(flow),
            Part::Node(node) => node.flows.freeze_failed(flow),
        }
    }

    pub(super) fn thawed(&mut self, flow: FlowId) {
        match self {
            Part::Home(home) => home.flows.thawed(flow),
            Part::Node(node) => node.flows.thawed(flow),
        }
    }

    pub(super) fn thaw_failed(&mut self, flow: FlowId, reason: handoff::RefuseReason) {
        match self {
            Part::Home(home) => home.flows.thaw_failed(flow),
            Part::Node(node) => node.flows.thaw_failed(flow, reason),
        }
    }
}

impl<H: Host> Worker<H> {
    pub(super) fn poll_held_packets(&mut self, place: u32, descriptor: OwnedFd) {
        let token = Token { index: HELD_PACKETS_INDEX + place, generation: 0 };
        self.reactor.poll_readable(descriptor.as_raw_fd(), token);
        // The reactor polls it for as long as it's open: for this worker's life.
        std::mem::forget(descriptor);
    }

    /// Packets of flows that are on their way have come.
    pub(in crate::worker) fn receive_held_packets(&mut self) {
        if let Some(Part::Home(home)) = self.cluster.as_ref().map(|cluster| &cluster.part)
            && let Some(steering) = &home.steering
        {
            steering.receive(self.now);
            self.place_arrivals();
        }
    }

    /// Gives the request in hand, and its connection, to a node.
    pub(in crate::worker) fn dispatch(&mut self, token: Token) {
        let before = self.host.now();
        self.dispatch_again(token, 0);
        let flow = self.cluster.as_ref().and_then(|cluster| cluster.flows.at(token));
        self.run_effects();
        // What the node's answer costs isn't in it.
        let spent = self.host.now().since(before);
        let Some(cluster) = &mut self.cluster else { return };
        if let Part::Home(home) = &mut cluster.part
            && let Some(flow) = flow.filter(|flow| cluster.flows.is_frozen(*flow))
            && let Some(asked) = home.asked.get_mut(&flow)
        {
            asked.spent = Some(spent);
        }
    }

    fn dispatch_again(&mut self, token: Token, offers: u8) {
        let now = self.now;
        let connection = &self.connections[token];
        let request = connection.exchange.as_ref().and_then(|exchange| Request::read_again(&exchange.head));
        let Some(request) = request else { return };
        let Some(cluster) = self.cluster.as_mut() else { return self.reply_error(token, Status::SERVICE_UNAVAILABLE) };
        let Part::Home(home) = &mut cluster.part else { return };
        let can_move = home.steering.is_some() && !connection.flags.ended;
        let possible = Ways::of(&[if can_move { Way::MovedThere } else { Way::Proxy }]);
        let had = connection.http.request_count().saturating_sub(1);
        let whence = Whence { holder: None, had, round_trip: ROUND_TRIP, possible };
        let route = match home.dispatcher.route(&Facts::of(&request), &whence, now) {
            Ok(route) if offers < OFFERS_MAX => route,
            _ => return self.reply_error(token, Status::SERVICE_UNAVAILABLE),
        };
        let (chosen, is_moving) = (route.choice.node, route.decision.way == Way::MovedThere);
        if let Some(exchange) = self.connections[token].exchange.as_mut() {
            exchange.content = route.choice.key;
        }
        let server = home.server(chosen).unwrap_or(link::HOME);
        let flow = cluster.flows.at(token).unwrap_or_else(|| {
            home.next_serial += 1;
            FlowId { home: link::HOME, serial: home.next_serial }
        });
        if can_move && cluster.flows.at(token).is_none() && home.flows.open(flow) {
            cluster.flows.settle(flow, token);
        }
        if is_moving && home.flows.give(flow, server).is_ok() {
            home.dispatcher.begin(chosen);
            home.asked.insert(flow, Asked { node: chosen, offers: offers + 1, spent: None });
        } else {
            self.proxy_to_node(token, server);
        }
    }

    /// Has a node answer without its being given the connection.
    fn proxy_to_node(&mut self, token: Token, server: ServerId) {
        let vip = self.listeners[self.connections[token].listener as usize].sites.name.address;
        let cluster = &self.config.cluster;
        let node = server.0.checked_sub(link::HOME.0 + 1).and_then(|place| cluster.nodes.get(place as usize));
        match node.and_then(|node| cluster.proxy_address(node, vip)) {
            Some(address) => self.proxy_to(token, vec![address]),
            None => self.reply_error(token, Status::SERVICE_UNAVAILABLE),
        }
    }

    /// Books what has become of requests that were proxied.
    pub(in crate::worker) fn settle_passed(&mut self) {
        let (now, config) = (self.now, self.config.clone());
        for Passed { peer, outcome, .. } in self.take_passed() {
            let home = match self.cluster.as_mut().map(|cluster| &mut cluster.part) {
                Some(Part::Home(home)) => home,
                Some(Part::Node(node)) if outcome == PassedOutcome::Failed => {
                    node.places.forget();
                    continue;
                }
                Some(Part::Node(_)) | None => continue,
            };
            let place = config.cluster.nodes.iter().position(|node| node.address.contains(&peer.ip()));
            let Some(node) = place.and_then(|place| home.node(number_of(place))) else { continue };
            let outcome = match outcome {
                PassedOutcome::Begun => {
                    home.dispatcher.begin(node);
                    continue;
                }
                PassedOutcome::Answered => Outcome::Served,
                PassedOutcome::Failed => Outcome::Failed,
                PassedOutcome::Abandoned => Outcome::Unknown,
            };
            home.dispatcher.end(node, outcome, now);
        }
    }

    /// A flow that was to be given away stays: its request is offered to another node, or answered here.
    pub(super) fn stays_here(&mut self, token: Token) {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return };
        let flow = cluster.flows.at(token);
        match &mut cluster.part {
            Part::Home(home) => {
                let asked = flow.and_then(|flow| home.settled(flow, Outcome::Failed, now));
                match asked.filter(|asked| asked.offers < OFFERS_MAX) {
                    Some(asked) => self.dispatch_again(token, asked.offers),
                    // Whatever keeps it from moving: the node that was chosen can answer all the same.
                    None => {
                        let server = asked.and_then(|asked| home.server(asked.node)).unwrap_or(link::HOME);
                        self.proxy_to_node(token, server);
                    }
                }
            }
            Part::Node(_) => self.begin_with(token),
        }
    }

    /// Packets go there from now on.
    pub(super) fn steer(&mut self, flow: FlowId, to: Target) {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return };
        let Part::Home(home) = &mut cluster.part else { return };
        let Some(key) = cluster.flows.key(flow) else { return };
        let Some(steering) = &home.steering else { return };
        let flows = steering.flows();
        let steered = match to {
            Target::Hold => flows.hold(key, flow.serial),
            // What comes until the node has it would be lost there: it waits here as long as the frozen socket does.
            Target::Node(node) if cluster.flows.is_frozen(flow) => {
                let heard = cluster.flows.frozen_state(flow).map(Heard::of);
                flows.steer(key, flow.serial, node.0, heard).and_then(|()| flows.hold(key, flow.serial))
            }
            Target::Node(node) => flows.steer(key, flow.serial, node.0, None),
        };
        match steered {
            Ok(()) if !cluster.flows.is_frozen(flow) && to != Target::Hold => steering.release(key, now),
            Ok(()) => {}
            Err(error) => crate::log::warning(format_args!("a flow can't be steered: {error}")),
        }
    }

    /// The flow is over, or lives here again.
    pub(super) fn unsteer(&mut self, flow: FlowId) {
        let Some(cluster) = &mut self.cluster else { return };
        let is_here = cluster.flows.token(flow).is_some() || cluster.flows.is_frozen(flow);
        let Some(key) = cluster.flows.key(flow) else { return };
        if cluster.flows.token(flow).is_some() {
            cluster.part.let_go(flow, key, self.now);
        }
        let Part::Home(home) = &mut cluster.part else { return };
        // What the client still has to say goes to the node; its entry goes when both have said goodbye.
        if !is_here
            && let Some(steering) = &home.steering
            && let Err(error) = steering.flows().close(key, flow.serial)
        {
            crate::log::warning(format_args!("a flow's entry can't be closed: {error}"));
        }
        if !is_here {
            cluster.flows.remove(flow);
        }
    }

    /// Answers what was asked of the dispatcher, and does what it was told.
    pub(in crate::worker) fn answer_question(&mut self, question: Question) {
        let now = self.now;
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else {
            question.answer(Err("this leat is no dispatcher, or couldn't become one: its log says why".to_owned()));
            return;
        };
        let answer = match &question.command {
            Command::Flows => Ok(home.list_flows()),
            command => ctl::answer(&mut home.dispatcher, command, now).map(|answer| match command {
                Command::Drain { node } => home.begin_drain(node, now),
                Command::Resume { node } => {
                    home.end_drain(node);
                    answer
                }
                _ => answer,
            }),
        };
        home.renew_rules();
        question.answer(answer);
        self.run_effects();
    }

    /// A flow is here as an image: which node is to have it?
    pub(super) fn place(&mut self, flow: FlowId, giver: Option<ServerId>, image: &Bytes) {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return };
        let Part::Home(home) = &mut cluster.part else { return };
        let decoded = Image::decode(image).ok();
        let request = decoded.as_ref().and_then(|image| Request::read_again(&image.http.head));
        let chosen = match &request {
            Some(request) => home.dispatcher.choose(&Facts::of(request), now).map(|choice| choice.node),
            None => home.dispatcher.choose_any(now),
        };
        let chosen = chosen.ok().and_then(|node| home.server(node));
        let mut places = chosen.into_iter().chain(giver);
        if !places.any(|server| home.flows.place(now, flow, Destination::Node(server)).is_ok()) {
            home.flows.cut(flow, CutReason::NoPlace);
        }
    }

    /// A flow's node is gone: goes on from what its client has acknowledged, if that can be known.
    pub(super) fn recover(&mut self, flow: FlowId, image: &Bytes, progress: Option<&Bytes>) {
        let Some(cluster) = &mut self.cluster else { return };
        let key = cluster.flows.key(flow);
        let Part::Home(home) = &mut cluster.part else { return };
        let recovered = (|| {
            let entry = home.steering.as_ref()?.flows().get(key?).ok().flatten()?;
            let image = Image::decode(image).ok()?;
            let progress = progress.and_then(|progress| Progress::decode(progress).ok());
            let witness = witness(&image, &entry.heard)?;
            continue_from(image, progress, &witness).ok()?.encode().ok()
        })();
        match recovered {
            Some(image) => home.flows.recovered(flow, image.into()),
            None => home.flows.cut(flow, CutReason::Unrepeatable),
        }
    }

    /// A connection can't go on: what the client sends next finds no socket here, and the kernel resets it.
    pub(super) fn cut_flow(&mut self, flow: FlowId, reason: CutReason) {
        crate::log::warning(format_args!("a connection is cut: {reason}"));
        if let Some(cluster) = &mut self.cluster {
            if let Some(key) = cluster.flows.key(flow) {
                cluster.part.let_go(flow, key, self.now);
            }
            cluster.flows.remove(flow);
        }
    }

    /// Nothing is left of a flow's connection.
    pub(super) fn flow_is_lost(&mut self, flow: FlowId) {
        if let Some(cluster) = &mut self.cluster {
            cluster.flows.remove(flow);
            match &mut cluster.part {
                Part::Home(home) => home.flows.forget(flow),
                Part::Node(node) => node.flows.ended(flow),
            }
        }
    }

    pub(super) fn node_reported(&mut self, server: ServerId, load: Load) {
        let now = self.now;
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        if let Some(node) = home.node(server) {
            let report = LoadReport {
                active: load.requests,
                busy_permille: u16::try_from(load.cpu_permille).unwrap_or(u16::MAX),
            };
            home.dispatcher.report(node, report, now);
            if home.linked.insert(server) {
                home.dispatcher.link_changed(node, true, now);
                crate::log::info(format_args!("node {}: its link is up", home.dispatcher.name(node)));
            }
        }
    }

    /// A flow has got to its node.
    pub(super) fn flow_was_taken(&mut self, flow: FlowId) {
        let now = self.now;
        if let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) {
            let asked = home.settled(flow, Outcome::Served, now);
            if let Some(spent) = asked.and_then(|asked| asked.spent) {
                home.dispatcher.measured(Work::Moved, Side::Dispatcher, 0, spent);
            }
        }
    }
}

/// What the steering program saw of the client since the image was made.
fn witness(image: &Image, heard: &Heard) -> Option<Witness> {
    let tcp = image.tcp.as_ref()?;
    let scale = tcp.window_scale.map_or(0, |scale| scale.send);
    Some(Witness {
        acknowledged_bytes: u64::from(heard.acknowledged.wrapping_sub(tcp.unacknowledged())),
        window_bytes: u32::from(heard.window) << scale,
        client_bytes: u64::from(heard.client_next.wrapping_sub(tcp.receive_next)),
        timestamp: None,
        is_exact: false,
    })
}
