//! A dispatcher's part: each request is given to a node with its connection, packets follow, and what no node takes is answered here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leat_host::reactor::{Reactor, Token};
use leat_host::steering::{self, FlowKey, Heard};
use leat_logic::dispatch::cost::{Side, Way, Ways, Work};
use leat_logic::dispatch::{Capacity, Dispatcher, Facts, LoadReport, NodeId, Outcome, Rooms, Whence};
use leat_logic::handoff;
use leat_logic::handoff::{
    CutReason, Destination, FlowId, Generation, Image, Load, RecallTerms, Resets, ServerId, SessionId, Target,
};
use leat_logic::http::{Request, Status};
use leat_logic::schedule::Operation;
use leat_logic::split::Loads;
use leat_logic::time::Instant;

use super::super::handler::{Passed, PassedOutcome};
use super::super::{HELD_PACKETS_INDEX, Host, Worker};
use super::direct::{Probes, TakenBack};
use super::flows::TIMES_MEASURED;
use super::inquiry::Inquiries;
use super::leave::Leaving;
use super::standing::Standing;
use super::sweep::Sweep;
use super::transplant::Transplants;
use super::waiting::Waiting;
use super::{DISPATCHER, Part, Shared, Split, born, number_of, placing, recovery};
use crate::config::{self, Config, Role};

/// Nodes that a request is offered to before it's refused.
const OFFERS_MAX: u8 = 3;

/// See the module.
pub(super) struct Home {
    pub(super) flows: handoff::Home,
    /// Flows that it has taken up from an earlier life.
    pub(super) left: Vec<(FlowId, FlowKey)>,
    pub(super) id: ServerId,
    pub(super) dispatcher: Dispatcher,
    /// Up to which of its changes nodes have been told.
    pub(super) changes_told: Option<u64>,
    /// A connection server's: it serves, and nodes are its data servers.
    pub(super) split: Option<Split>,
    /// Without it nothing can be handed over, and everything is proxied.
    pub(super) steering: Option<Arc<steering::Dispatcher>>,
    /// By their places in the configuration.
    pub(super) nodes: Vec<NodeId>,
    /// What addresses each of them has.
    addresses: Vec<Vec<IpAddr>>,
    /// Numbers of those that a reload has removed.
    removed: BTreeSet<u32>,
    /// Nodes' workers whose link is up, and what each has to do.
    pub(super) linked: BTreeMap<ServerId, Load>,
    /// How many connections may be on their way to each of these.
    pub(super) rooms: Rooms,
    /// The one of each node that was asked last.
    asked_last: BTreeMap<u32, ServerId>,
    pub(super) next_serial: u64,
    /// Requests that are on their way to a node: which, and how many have been asked before.
    pub(super) asked: BTreeMap<FlowId, Asked>,
    pub(super) waiting: Waiting,
    /// Nodes that are being emptied, and when to ask them next.
    pub(super) draining: BTreeSet<u32>,
    /// Connections are to begin at nodes.
    pub(super) bears: bool,
    /// Nodes tell of every reply before they send any of it.
    pub(super) are_all_told: bool,
    /// Connections that began at nodes and haven't left them since: they count as under way there from then on, and not from the node's next report.
    pub(super) begun: BTreeMap<FlowId, NodeId>,
    /// Connections that began at servers that aren't leat.
    pub(super) entrusted: u64,
    /// Where others begin without being looked at.
    pub(super) standing: Standing,
    /// Those of which a next request is looked at, and those that go on at another of such servers.
    pub(super) transplants: Transplants,
    /// This worker is to go, and with it this home: how all flows are asked to come back.
    pub(super) retiring: Option<RecallTerms>,
    /// Another process is about to have this home: nothing is given away any more.
    pub(super) is_resigning: bool,
    /// This server is stopped, and its peer goes on.
    pub(super) leaving: Option<Leaving>,
    pub(super) recall_at: Instant,
    /// Flows that didn't come back in time, and when their clients are told.
    pub(super) given_up: Vec<(FlowId, FlowKey)>,
    pub(super) reset_at: Instant,
    pub(super) sweep: Sweep,
    pub(super) probes: Probes,
    /// Flows whose clients hear nothing of the node that has them: they're asked for.
    pub(super) taken_back: BTreeMap<FlowId, TakenBack>,
    /// Flows of dead nodes, whose clients are asked what they have.
    pub(super) inquiries: Inquiries,
    /// Connections that were cut, whose clients may not know.
    pub(super) resets: Resets,
    /// Packets that waited were taken in on the way: connections may be among them that nobody has yet.
    pub(super) has_taken_in: bool,
}

#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) node: NodeId,
    pub(super) at: Instant,
    offers: u8,
    /// Processor time, if the connection was frozen at once.
    spent: Option<Duration>,
}

impl Home {
    /// `resumed`: the last flow's number, where this worker has given up its home and has it back.
    pub(super) fn new(
        config: &Config,
        shared: &Shared,
        worker: u16,
        now: Instant,
        (seed, resumed): (u64, Option<u64>),
    ) -> Result<Home, String> {
        let cluster = &config.cluster;
        let key = cluster.key_file.as_ref().ok_or("`key_file` is missing in [cluster]")?;
        let mut dispatcher = Dispatcher::new(cluster.settings(), key.bytes(), seed);
        let is_first = shared.workers().first() == Some(&worker);
        let steering = match shared.dispatcher(config) {
            Ok(steering) => Some(steering),
            Err(error) => {
                if is_first {
                    let instead = if config.role == Role::Dispatcher { "proxied" } else { "answered here" };
                    let why = "as connections can't be handed over";
                    crate::log::warning(format_args!("requests are {instead}, {why}: {error}"));
                }
                None
            }
        };
        let bears = born::are_wanted(config);
        dispatcher.set_first_ways(born::first_ways(steering.as_ref(), bears));
        let id = ServerId::new(DISPATCHER, u32::from(worker));
        let all = shared.homes();
        let homes = if config.role == Role::Dispatcher { &all[..] } else { &[] };
        let left = match steering.as_ref().filter(|steering| resumed.is_some() || steering.was_left()) {
            Some(steering) => recovery::take_up(steering, id, homes, is_first, now)?,
            None => recovery::Left::nothing(),
        };
        let recovery::Left { home: mut flows, known, lost } = left;
        let recall_at = if known.is_empty() { Instant::NEVER } else { now };
        flows.set_homes(&all);
        let mut home = Home {
            flows,
            left: known,
            id,
            dispatcher,
            changes_told: None,
            bears,
            are_all_told: placing::are_all_told(config),
            split: (config.role == Role::ConnectionServer).then(|| Split::new(config.split_rules())),
            steering,
            nodes: Vec::new(),
            removed: BTreeSet::new(),
            addresses: Vec::new(),
            // Never one that an entry of an earlier life may have.
            next_serial: resumed.unwrap_or(seed >> 1),
            linked: BTreeMap::new(),
            rooms: Rooms::default(),
            asked_last: BTreeMap::new(),
            asked: BTreeMap::new(),
            waiting: Waiting::new(now),
            draining: BTreeSet::new(),
            begun: BTreeMap::new(),
            entrusted: 0,
            standing: Standing::default(),
            transplants: Transplants::default(),
            retiring: None,
            is_resigning: false,
            leaving: None,
            recall_at,
            reset_at: if lost.is_empty() { Instant::NEVER } else { now.after(recovery::LAST_WORDS) },
            given_up: lost,
            sweep: Sweep::new(is_first, now),
            probes: Probes::default(),
            taken_back: BTreeMap::new(),
            inquiries: Inquiries::default(),
            resets: Resets::default(),
            has_taken_in: false,
        };
        home.set_nodes(cluster, now);
        // Nodes may be linked, and have connections, before its first turn.
        home.renew_rules();
        Ok(home)
    }

    /// Takes up the nodes of a configuration, whose places stay. One that it doesn't have any more is emptied. Returns numbers that somebody else has now.
    pub(super) fn set_nodes(&mut self, cluster: &config::Cluster, now: Instant) -> Vec<u32> {
        let name = |node: &NodeId| self.dispatcher.name(*node).to_owned();
        let before: Vec<(String, Vec<IpAddr>)> =
            self.nodes.iter().map(name).zip(std::mem::take(&mut self.addresses)).collect();
        self.addresses = cluster.nodes.iter().map(|node| node.address.clone()).collect();
        self.dispatcher.set_nodes(&cluster.node_settings(), now);
        self.nodes = cluster.nodes.iter().filter_map(|node| self.dispatcher.find(&node.name)).collect();
        let mut changed = Vec::new();
        for (place, (node, &id)) in cluster.nodes.iter().zip(&self.nodes).enumerate() {
            let number = number_of(place);
            let is_same = |(name, address): &(String, Vec<IpAddr>)| *name == node.name && *address == node.address;
            if !before.get(place).is_some_and(is_same) {
                changed.push(number);
                self.draining.remove(&number);
                if self.steering.is_some() {
                    // Until its link is there.
                    self.dispatcher.await_link(id, now);
                }
            }
            let has_changed = match node.is_removed() {
                true => self.removed.insert(number),
                false => self.removed.remove(&number),
            };
            if has_changed {
                self.dispatcher.set_draining(id, node.is_removed(), now);
                match node.is_removed() {
                    true => _ = self.draining.insert(number),
                    false => _ = self.draining.remove(&number),
                }
                self.recall_at = now;
            }
        }
        changed
    }

    /// Readable when packets of flows on their way wait.
    pub(super) fn held_packets(&self) -> Result<Vec<OwnedFd>, String> {
        let Some(steering) = &self.steering else { return Ok(Vec::new()) };
        steering.descriptors().map_err(|error| error.to_string())
    }

    pub(super) fn node(&self, server: ServerId) -> Option<NodeId> {
        let place = server.server().checked_sub(number_of(0))?;
        self.nodes.get(usize::try_from(place).ok()?).copied()
    }

    /// A node's number.
    pub(super) fn number(&self, node: NodeId) -> Option<u32> {
        self.nodes.iter().position(|known| *known == node).map(number_of)
    }

    /// A node's workers that can be offered connections, beginning with the one whose turn it is.
    pub(super) fn workers(&mut self, number: u32) -> Vec<ServerId> {
        let of_node = self.linked.iter().filter(|(server, load)| server.server() == number && !load.is_foreign);
        let mut workers: Vec<ServerId> = of_node.map(|(server, _)| *server).collect();
        let last = self.asked_last.get(&number);
        let next = workers.iter().position(|server| last.is_none_or(|last| server > last)).unwrap_or(0);
        workers.rotate_left(next);
        self.asked_last.extend(workers.first().map(|first| (number, *first)));
        workers
    }

    /// Has a flow that lives here given to a node. False when none of its workers can have it.
    fn give(&mut self, flow: FlowId, node: NodeId) -> bool {
        let workers = self.number(node).map(|number| self.workers(number)).unwrap_or_default();
        workers.into_iter().any(|server| self.flows.give(flow, server).is_ok())
    }

    /// Has a flow that lives here, and that isn't to go, lent to a node, and to no other if this one doesn't take it.
    pub(super) fn lend(&mut self, now: Instant, flow: FlowId, node: NodeId) -> bool {
        let Some(number) = self.number(node) else { return false };
        let mut workers = self.lender(flow, number);
        let is_lent = !self.is_retiring() && workers.any(|server| self.flows.lend(flow, server).is_ok());
        if is_lent {
            self.dispatcher.begin(node);
            self.asked.insert(flow, Asked { node, at: now, offers: OFFERS_MAX, spent: None });
        }
        is_lent
    }

    /// Who is lent a flow that has come home as an image: the worker that has given it back, where its node is chosen again.
    pub(super) fn lend_on(
        &mut self,
        now: Instant,
        flow: FlowId,
        giver: ServerId,
        (facts, image): (&Facts<'_>, &Image),
    ) -> Option<ServerId> {
        let node = self.dispatcher.choose(facts, now).ok().map(|choice| choice.node).filter(|_| !self.is_retiring())?;
        let number = self.number(node)?;
        let server = if number == giver.server() { giver } else { self.lender(flow, number).next()? };
        self.is_heard(server, Some(image), now).then_some(())?;
        self.dispatcher.begin(node);
        self.split.iter_mut().for_each(|split| split.taken(flow, node));
        Some(server)
    }

    /// The workers of a node that can be lent a flow, in the order in which they're asked.
    pub(super) fn lender(&self, flow: FlowId, number: u32) -> impl Iterator<Item = ServerId> + use<> {
        let of_node = self.linked.iter().filter(|(server, load)| server.server() == number && !load.is_foreign);
        let mut workers: Vec<ServerId> = of_node.map(|(server, _)| *server).collect();
        // Always to the same one: another couldn't make the socket until that has dropped the one that came back last.
        let turn = flow.serial.checked_rem(workers.len() as u64).unwrap_or(0);
        workers.rotate_left(turn as usize);
        workers.into_iter()
    }

    /// A name for one more flow.
    pub(super) fn next_flow(&mut self) -> FlowId {
        self.next_serial += 1;
        FlowId { home: self.id, serial: self.next_serial }
    }

    /// Beside what there is to do here, how much there is at those nodes that may be chosen for a request.
    pub(super) fn loads(&mut self, own: Loads, facts: &Facts<'_>, now: Instant) -> Loads {
        let Capacity { weight, active, is_near } = self.dispatcher.capacity(facts, now);
        Loads { servers_percent: weight, delegated: active, is_near, ..own }
    }

    /// Which node would get a request and why, in words.
    pub(super) fn explain_choice(&self, facts: &Facts<'_>, now: Instant) -> String {
        self.dispatcher.explain(facts, now).to_string()
    }

    /// Who may be given a flow that is here as an image, in the order in which they're asked: the workers of the node that was chosen for it, and others'
    /// where that has refused it. None of the node that has `followed` its giver.
    fn takers(
        &mut self,
        flow: FlowId,
        chosen: Option<NodeId>,
        followed: Option<ServerId>,
        request: Option<&Request<'_>>,
        now: Instant,
    ) -> Vec<ServerId> {
        let number = chosen.and_then(|node| self.number(node));
        let mut workers = number.map(|number| self.workers(number)).unwrap_or_default();
        let refusers = self.flows.refusers(flow);
        if followed.is_none() && refusers.is_empty() {
            return workers;
        }
        let facts = request.map_or(Facts { path: b"/", ..Facts::default() }, Facts::of);
        for place in 0..self.nodes.len() {
            let (node, number) = (self.nodes[place], number_of(place));
            if chosen != Some(node) && self.dispatcher.may_choose(node, &facts, now) {
                workers.extend(self.workers(number));
            }
        }
        // Who has refused it would do so again: whoever else may be chosen comes first.
        workers.sort_by_key(|server| refusers.iter().any(|refuser| refuser.server() == server.server()));
        workers.retain(|server| followed.is_none_or(|followed| server.server() != followed.server()));
        workers
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        let sweep_at = if self.steering.is_some() { self.sweep.at } else { Instant::NEVER };
        let leave_at = self.leaving.as_ref().map_or(Instant::NEVER, Leaving::poll_timeout);
        let waiting = self.waiting.poll_timeout();
        // Who has given up its home has nothing of nodes to look at.
        let direct = match self.steering {
            Some(_) => self.dispatcher.direct().poll_timeout().min(self.probes.poll_timeout()),
            None => Instant::NEVER,
        };
        let own = sweep_at.min(self.recall_at).min(self.reset_at).min(self.resets.poll_timeout());
        let own = own.min(self.inquiries.poll_timeout());
        let unread = if self.is_retiring() { self.standing.poll_timeout() } else { Instant::NEVER };
        let next = self.transplants.poll_timeout().min(unread);
        self.flows.poll_timeout().min(own).min(waiting).min(leave_at).min(direct).min(next)
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.flows.handle_timeout(now);
        self.renew_rules();
        if now >= self.recall_at {
            self.recall_some(now);
        }
        if let Some(steering) = &self.steering {
            self.sweep.handle_timeout(steering, now);
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
        // Another process of it may have followed.
        if let Some(peer) = peer.filter(|peer| !self.flows.is_connected(*peer)) {
            self.leave_out(now, peer);
        }
    }

    /// A node's worker is given nothing any more.
    fn leave_out(&mut self, now: Instant, peer: ServerId) {
        if self.linked.remove(&peer).is_none() {
            return;
        }
        self.rooms.forget(peer);
        let is_last = !self.linked.keys().any(|server| server.server() == peer.server());
        if let Some(node) = self.node(peer).filter(|_| is_last) {
            self.end_probes(node);
            self.dispatcher.link_changed(node, false, now);
            self.waiting.link_lost(now);
            crate::log::warning(format_args!("node {}: its link is down", self.dispatcher.name(node)));
        }
    }

    /// A request that was on its way to a node has got there, or hasn't.
    pub(super) fn settled(&mut self, flow: FlowId, outcome: Outcome, now: Instant) -> Option<Asked> {
        let asked = self.asked.remove(&flow)?;
        self.dispatcher.end(asked.node, outcome, now);
        Some(asked)
    }
}

fn held_packets(place: u32) -> Token {
    Token { index: HELD_PACKETS_INDEX + place, generation: 0 }
}

impl<H: Host> Worker<H> {
    pub(super) fn poll_held_packets(&mut self, taps: &[OwnedFd]) {
        for (place, descriptor) in (0..).zip(taps) {
            self.reactor.poll_shared(descriptor.as_raw_fd(), held_packets(place));
        }
    }

    pub(super) fn stop_polling_held_packets(&mut self, taps: &[OwnedFd]) {
        for (place, descriptor) in (0..).zip(taps) {
            self.reactor.stop_polling(descriptor.as_raw_fd(), held_packets(place));
        }
    }

    /// Packets of flows that are on their way have come. What is left is seen to in the next turn: nothing says once more that it's there.
    pub(in crate::worker) fn receive_held_packets(&mut self) {
        let Some(cluster) = &mut self.cluster else { return };
        if let Some(steering) = cluster.part.steering() {
            let is_more = steering.receive(self.now);
            cluster.receive_at = if is_more { self.now } else { Instant::NEVER };
            self.place_arrivals();
        }
    }

    /// Gives the request in hand, and its connection, to a node.
    pub(in crate::worker) fn dispatch(&mut self, token: Token) {
        let before = self.dispatch_again(token, 0);
        let flow = self.cluster.as_ref().and_then(|cluster| cluster.flows.at(token));
        self.run_effects();
        let Some(cluster) = &mut self.cluster else { return };
        let Part::Home(home) = &mut cluster.part else { return };
        let Some(flow) = flow.filter(|flow| cluster.flows.is_frozen(*flow)) else { return };
        let Some(asked) = home.asked.get_mut(&flow) else { return };
        let Some(before) = before else { return self.meter.did(Operation::HandOver, 0) };
        // What the node's answer costs isn't in it.
        let spent = self.host.processor_time().saturating_sub(before);
        asked.spent = Some(spent);
        self.meter.took(Operation::HandOver, spent);
    }

    /// When it began to hand the connection over, by the thread's clock, if it does and that is to be measured.
    fn dispatch_again(&mut self, token: Token, offers: u8) -> Option<Duration> {
        let now = self.now;
        let connection = &self.connections[token];
        let request = connection.exchange.as_ref().and_then(|exchange| Request::read_again(&exchange.head))?;
        let Some(cluster) = self.cluster.as_mut() else {
            self.reply_error(token, Status::SERVICE_UNAVAILABLE);
            return None;
        };
        let Part::Home(home) = &mut cluster.part else { return None };
        let stays = home.is_retiring() || home.is_resigning;
        let can_move = home.steering.as_ref().is_some_and(|steering| steering.can_move());
        let can_move = can_move && !connection.flags.ended && !stays;
        let possible = if can_move { &[Way::MovedThere, Way::Proxy][..] } else { &[Way::Proxy] };
        let possible = Ways::of(possible);
        let had = connection.http.request_count().saturating_sub(1);
        let client = home.client_in_doubt(connection.socket);
        let whence = Whence { holder: None, client, had, possible };
        let route = match home.dispatcher.route(&Facts::of(&request), &whence, now) {
            Ok(route) if offers < OFFERS_MAX => route,
            Err(refusal) if home.waiting.add(refusal, token, now) => {
                self.metrics.node_waits.increment();
                return None;
            }
            _ => {
                self.reply_error(token, Status::SERVICE_UNAVAILABLE);
                return None;
            }
        };
        let (chosen, is_moving) = (route.choice.node, route.decision.way == Way::MovedThere);
        if let Some(exchange) = self.connections[token].exchange.as_mut() {
            exchange.content = route.choice.key;
            exchange.is_fetched = !route.choice.class.is_dynamic();
        }
        let flow = cluster.flows.at(token).unwrap_or_else(|| home.next_flow());
        if can_move && cluster.flows.at(token).is_none() && home.flows.open(flow) {
            cluster.flows.settle(flow, token);
        }
        let before = (is_moving && cluster.flows.is_to_be_measured(now)).then(|| self.host.processor_time());
        if is_moving && home.give(flow, chosen) {
            home.dispatcher.begin(chosen);
            home.asked.insert(flow, Asked { node: chosen, at: now, offers: offers + 1, spent: None });
        } else {
            self.proxy_to_node(token, Some(chosen));
        }
        before
    }

    /// Has a node answer without its being given the connection, or another one where it can't be reached and that does no harm.
    fn proxy_to_node(&mut self, token: Token, first: Option<NodeId>) {
        let connection = &self.connections[token];
        let vip = self.listeners[connection.listener as usize].sites.name.address;
        let Some(Part::Home(home)) = self.cluster.as_ref().map(|cluster| &cluster.part) else { return };
        let request = connection.exchange.as_ref().and_then(|exchange| Request::read_again(&exchange.head));
        let second = first
            .zip(request)
            .and_then(|(first, request)| home.dispatcher.second(&Facts::of(&request), first, self.now));
        let cluster = &self.config.cluster;
        let address = |node| {
            let place = home.nodes.iter().position(|known| *known == node)?;
            cluster.proxy_address(cluster.nodes.get(place)?, vip)
        };
        let peers: Vec<_> = first.into_iter().chain(second).filter_map(address).collect();
        match peers.is_empty() {
            false => self.proxy_to(token, peers, None),
            true => self.reply_error(token, Status::SERVICE_UNAVAILABLE),
        }
    }

    /// Books what has become of requests that were proxied.
    pub(in crate::worker) fn settle_passed(&mut self) {
        let (now, config) = (self.now, self.config.clone());
        for Passed { peer, outcome, .. } in self.take_passed() {
            let home = match self.cluster.as_mut().map(|cluster| &mut cluster.part) {
                Some(Part::Home(home)) => home,
                Some(Part::Node(node)) if outcome == PassedOutcome::Failed => {
                    node.forget_places();
                    continue;
                }
                _ => continue,
            };
            let place = config.cluster.node_at(peer.ip());
            let Some(node) = place.and_then(|place| home.nodes.get(place).copied()) else { continue };
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

    /// A flow that was to be given away stays: its request is offered to another node if this one is to blame, or answered here.
    pub(super) fn stays_here(&mut self, token: Token, outcome: Outcome) {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return };
        let flow = cluster.flows.at(token);
        match &mut cluster.part {
            Part::Home(home) => {
                let asked = flow.and_then(|flow| home.settled(flow, outcome, now));
                match asked.filter(|asked| outcome == Outcome::Failed && asked.offers < OFFERS_MAX) {
                    _ if home.split.is_some() => self.begin_with(token),
                    Some(asked) => _ = self.dispatch_again(token, asked.offers),
                    // Whatever keeps it from moving: the node that was chosen can answer all the same.
                    None => self.proxy_to_node(token, asked.map(|asked| asked.node)),
                }
            }
            _ => self.begin_with(token),
        }
    }

    /// Packets go there from now on.
    pub(super) fn steer(&mut self, flow: FlowId, to: Target, generation: Generation) {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return };
        let Some(key) = cluster.flows.key(flow) else { return };
        let Some(steering) = cluster.part.steering() else { return };
        let flows = steering.flows();
        let steered = match to {
            Target::Hold => flows.hold_again(key, flow),
            // What comes until the node has it would be lost there: it waits here as long as the frozen socket does.
            Target::Node(node) => {
                let heard = cluster.flows.frozen_state(flow).map(|state| (Heard::of(state), state.send_next));
                let steered = match heard {
                    Some((heard, said)) => flows.offer(key, flow, (node, generation), heard, said),
                    None => flows.steer(key, flow, (node, generation)),
                };
                if let (Ok(()), Some((heard, _)), Part::Home(home)) = (&steered, heard, &mut cluster.part) {
                    home.watch_moved(node, key, flow, heard, now);
                }
                steered
            }
        };
        match steered {
            Ok(()) if !cluster.flows.is_frozen(flow) && to != Target::Hold => cluster.part.release(key, now),
            Ok(()) => {}
            // Its client has begun another connection.
            Err(steering::Error::Gone) if to == Target::Hold => {}
            Err(steering::Error::Gone) => {
                if let Part::Home(home) = &mut cluster.part {
                    home.flows.forget(flow);
                }
            }
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
        // What the client still has to say goes to the node; its entry goes when both have said goodbye.
        if !is_here
            && let Some(steering) = cluster.part.steering()
            && let Err(error) = steering.flows().close(key, flow)
        {
            crate::log::warning(format_args!("a flow's entry can't be closed: {error}"));
        }
        if !is_here {
            cluster.part.came_back(flow, self.now);
            cluster.flows.remove(flow);
        }
    }

    /// A flow is here as an image: which node is to have it?
    pub(super) fn place(&mut self, flow: FlowId, giver: Option<ServerId>, image: &Bytes) {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return };
        let was_reset = cluster.was_reset(flow);
        let Part::Home(home) = &mut cluster.part else { return };
        if was_reset {
            return home.flows.forget(flow);
        }
        let decoded = Image::decode(image).ok();
        home.came_back(flow, now);
        if let Some(image) = decoded.as_ref().filter(|image| home.was_unheard(flow, image, now)) {
            self.metrics.flows_taken_back.increment();
            return home.place_where_heard(flow, image, now);
        }
        if home.split.is_some() {
            let server = match &home.leaving {
                // One whose server is gone goes on here first: a worker of the peer that is only late has its socket yet.
                Some(leaving) => giver.and_then(|giver| home.heir(leaving.to, flow, giver)),
                None => giver.zip(decoded).and_then(|(giver, image)| self.lends_on(flow, &image, giver)),
            };
            return self.place_lent(flow, server);
        }
        // Who has lost its lease may have a socket of it yet, and would be chosen again: from here it's proxied. A reply under way only nodes can go on with.
        if giver.is_none()
            && home.flows.was_refused(flow)
            && decoded.as_ref().is_some_and(|image| image.reply.is_none())
            && home.flows.place(flow, Destination::Here).is_ok()
        {
            return;
        }
        let request = decoded.as_ref().and_then(|image| Request::read_again(image.next_bytes()));
        let chosen = match &request {
            Some(request) => home.dispatcher.choose(&Facts::of(request), now).map(|choice| choice.node),
            None => {
                let holder = giver.and_then(|giver| home.can_stay(flow, giver, decoded.as_ref(), now));
                home.dispatcher.choose_for_idle(holder, now)
            }
        };
        // Its giver doesn't serve it, and who does may be about to come back: it waits here.
        let holder = giver.and_then(|giver| home.node(giver));
        let can_stay = |request| holder.is_some_and(|node| home.dispatcher.serves(node, &Facts::of(request)));
        if chosen.is_err_and(|refusal| home.waiting.may_wait(refusal, now))
            && request.as_ref().is_some_and(|request| !can_stay(request))
            && home.flows.place(flow, Destination::Here).is_ok()
        {
            return;
        }
        // Its process drains and another has followed, which can't make a socket beside a frozen one.
        let followed = giver.filter(|_| home.flows.is_giver_followed(flow));
        let mut workers = home.takers(flow, chosen.ok(), followed, request.as_ref(), now);
        workers.retain(|server| home.is_heard(*server, decoded.as_ref(), now));
        // A reply under way only nodes can go on with.
        let is_at_rest = decoded.as_ref().is_some_and(|image| image.reply.is_none());
        // From worker to worker of one node by way of here: as long as one has a socket of it, even a frozen one, no other can.
        if let Some(giver) = giver.filter(|_| !is_at_rest) {
            workers.retain(|server| *server == giver || server.server() != giver.server());
        }
        if followed.is_some() && workers.is_empty() && is_at_rest && home.flows.place(flow, Destination::Here).is_ok() {
            return;
        }
        // It belongs where it is.
        let stays = giver.filter(|giver| workers.contains(giver) && !home.is_retiring());
        let is_givers = giver.is_some_and(|giver| workers.iter().any(|server| server.server() == giver.server()));
        if (home.is_retiring() || is_givers && stays.is_none())
            && is_at_rest
            && home.flows.place(flow, Destination::Here).is_ok()
        {
            return;
        }
        let nodes = stays.into_iter().chain(workers).chain(giver).map(Destination::Node);
        // With no node at all it lives here, until there is one.
        let place = nodes.chain([Destination::Here]).find(|place| home.flows.place(flow, *place).is_ok());
        match (place, decoded.as_ref().filter(|_| request.is_some())) {
            (Some(Destination::Node(server)), Some(image)) if Some(server) != giver => {
                home.watch_placed(server, flow, image, now);
            }
            (None, _) => home.flows.cut(flow, CutReason::NoPlace),
            _ => {}
        }
    }

    /// A connection server's flow goes on here, unless it's lent to somebody else.
    fn place_lent(&mut self, flow: FlowId, server: Option<ServerId>) {
        let now = self.now;
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        let places = server.map(Destination::Node).into_iter().chain([Destination::Here]);
        let place = places.into_iter().find(|place| home.flows.place(flow, *place).is_ok());
        match place {
            Some(Destination::Node(_)) => {}
            Some(Destination::Here) => home.came_back(flow, now),
            None => home.flows.cut(flow, CutReason::NoPlace),
        }
    }

    /// Nothing is left of a flow's connection.
    pub(super) fn flow_is_lost(&mut self, flow: FlowId) {
        if let Some(cluster) = &mut self.cluster {
            cluster.flows.remove(flow);
            cluster.part.came_back(flow, self.now);
            match &mut cluster.part {
                Part::Home(home) => {
                    home.settled(flow, Outcome::Unknown, self.now);
                    home.flows.forget(flow);
                }
                Part::Node(node) => node.of(flow).into_iter().for_each(|flows| flows.ended(flow, false)),
                Part::Peer(peer) => peer.flows.ended(flow),
                Part::Front(_) => {}
            }
        }
    }

    pub(super) fn node_reported(&mut self, server: ServerId, load: Load) {
        let now = self.now;
        match self.cluster.as_mut().map(|cluster| &mut cluster.part) {
            Some(Part::Peer(peer)) => return peer.reported(server, load, now),
            Some(Part::Front(_)) => return self.node_drains(server, Some(load.is_draining)),
            _ => {}
        }
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        if load.is_draining {
            home.leave_out(now, server);
        } else if let Some(node) = home.node(server) {
            let is_new = home.linked.insert(server, load).is_none();
            home.heed_room(node, server, &load, now);
            let workers = home.linked.iter().filter(|(known, _)| known.server() == server.server());
            let (workers, loads): (Vec<&ServerId>, Vec<&Load>) = workers.unzip();
            // As long as one of them says otherwise: of a process that has just begun nothing may be known yet.
            if home.dispatcher.told_failing(node, loads.iter().all(|load| load.is_failing), now) {
                crate::log::warning(format_args!("node {}: its health checks fail", home.dispatcher.name(node)));
            }
            // They don't know yet what waits to be accepted.
            let unanswered: u32 = workers.into_iter().map(|worker| home.flows.unanswered(*worker)).sum();
            let busy_permille = loads.iter().map(|load| load.cpu_permille).sum::<u32>() / loads.len().max(1) as u32;
            let report = LoadReport {
                active: loads.iter().map(|load| load.requests).sum::<u32>() + unanswered,
                busy_permille: u16::try_from(busy_permille).unwrap_or(u16::MAX),
                has_memory: loads.iter().all(|load| load.has_memory),
            };
            home.dispatcher.report(node, report, now);
            if is_new && loads.len() == 1 {
                self.link_is_up(node);
            }
        }
    }

    /// A flow has got to its node.
    pub(super) fn flow_was_taken(&mut self, flow: FlowId) {
        let now = self.now;
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        if let Some(split) = &mut home.split {
            // It's the data server's until the connection comes back.
            if let Some(asked) = home.asked.remove(&flow) {
                split.taken(flow, asked.node);
            }
        } else {
            let asked = home.settled(flow, Outcome::Served, now);
            if let Some(spent) = asked.and_then(|asked| asked.spent) {
                home.dispatcher.measured(Work::Moved, Side::Dispatcher, 0, spent.mul_f64(TIMES_MEASURED));
            }
        }
    }
}
