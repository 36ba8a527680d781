//! A node's part: connections arrive from its homes and are served like any other; the kernel lets nothing out under a VIP without a lease.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use leat_host::reactor::{Socket, Token};
use leat_host::{connections, process, storage};
use leat_logic::dispatch::{KeyMaker, MemoryWatch, Serves};
use leat_logic::handoff::{
    self, Effect, FlowId, Generation, Incarnation, Load, Message, NodeCounters, NodeLimits, Places, ServerId, SessionId,
};
use leat_logic::split::Rules;
use leat_logic::time::Instant;

use super::super::{Host, Stage, Worker};
use super::Part;
use super::checks::Checks;
use super::foreign::Foreign;
use super::placing::Samples;
use super::rest::Resting;
use super::shared::{Lease, NodeGuard, Shared};
use crate::config::Config;
use crate::metrics::WorkerMetrics;

/// Time between two messages with what was seen.
const TELL_PAUSE: Duration = Duration::from_millis(250);
/// The same between two looks at what the programs have counted.
const COUNT_PAUSE: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Node {
    pub(super) id: ServerId,
    /// Each of the dispatcher's workers is one, and knows nothing of the others.
    homes: BTreeMap<ServerId, Home>,
    pub(super) guard: Arc<NodeGuard>,
    is_draining: bool,
    was_told_failing: bool,
    /// This process is to end, whether another follows, and by when.
    leaves: Option<(bool, Instant)>,
    /// Until when connections are accepted nevertheless, as homes may have had some begin here.
    pub(super) accepts_until: Option<Instant>,
    /// It goes on in the connection server's place when that is stopped.
    pub(super) is_peer: bool,
    pub(super) keys: KeyMaker,
    pub(super) samples: Samples,
    tell_at: Instant,
    /// Which requests of a connection server are answered here.
    pub(super) rules: Rules,
    /// What it's configured for.
    pub(super) serves: Serves,
    /// The server in whose place this node stands, if that isn't leat.
    foreign: Option<Foreign>,
    /// Where that is leat and `path` is written.
    pub(super) checks: Option<Arc<Checks>>,
    /// Listeners at which connections may wait that homes have asked for.
    pub(super) unaccepted: BTreeSet<u32>,
    /// When homes are to be told what has begun and ended here.
    pub(super) births_at: Instant,
    pub(super) resting: Resting,
    /// When it's looked what the programs have counted.
    count_at: Instant,
    /// The same of connections that find a listener's queue full, and how many had by then; none if the kernel doesn't tell.
    overflows_at: Instant,
    overflows: Option<u64>,
    memory: MemoryWatch,
}

/// What this worker is to one home.
pub(super) struct Home {
    pub(super) flows: handoff::Node,
    /// What it has answered, by content.
    pub(super) places: Places,
    lease: Lease,
}

impl Node {
    pub(super) fn new(config: &Config, shared: &Shared, worker: u16, now: Instant) -> Result<Node, String> {
        let cluster = &config.cluster;
        let place = cluster.nodes.iter().position(|node| node.name == cluster.name);
        let place = place.ok_or_else(|| format!("no [[cluster.node]] has the name `{}`", cluster.name))?;
        let id = ServerId::new(super::number_of(place), u32::from(worker));
        let key = cluster.key_file.as_ref().ok_or("`key_file` is missing in [cluster]")?;
        let own = cluster.own_node().filter(|node| !node.server.is_empty());
        let guard = shared.node(config)?;
        let foreign = own.map(|node| Foreign::watch(config, node, Some(guard.clone()))).transpose();
        Ok(Node {
            foreign: foreign.map_err(|error| format!("no thread can be started: {error}"))?,
            checks: shared.checks(config),
            id,
            homes: BTreeMap::new(),
            guard,
            is_draining: false,
            was_told_failing: false,
            leaves: None,
            accepts_until: None,
            is_peer: config.split.peer == cluster.name,
            keys: KeyMaker::new(key.bytes()),
            samples: Samples::default(),
            tell_at: Instant::default(),
            rules: config.split_rules(),
            serves: cluster.own_serves(),
            unaccepted: BTreeSet::new(),
            births_at: Instant::NEVER,
            resting: Resting::default(),
            count_at: Instant::default(),
            overflows_at: Instant::default(),
            overflows: connections::overflows().ok(),
            memory: MemoryWatch::new(storage::disk_bytes_of_all(), now),
        })
    }

    /// Whether this node stands in the place of a server that isn't leat.
    pub(super) fn is_foreign(&self) -> bool {
        self.foreign.is_some()
    }

    /// The machine of a flow.
    pub(super) fn of(&mut self, flow: FlowId) -> Option<&mut handoff::Node> {
        self.home(flow.home).map(|home| &mut home.flows)
    }

    pub(super) fn home(&mut self, id: ServerId) -> Option<&mut Home> {
        self.homes.get_mut(&id)
    }

    /// Has homes told of the flows that have begun here.
    pub(super) fn tell_births(&mut self) {
        self.homes.values_mut().for_each(|home| home.flows.tell_births());
    }

    /// All connections have been accepted that homes may have asked for.
    pub(super) fn none_waits(&mut self) {
        self.homes.values_mut().for_each(|home| home.flows.none_waits());
    }

    /// Nothing counts any more that homes have answered.
    pub(super) fn forget_places(&mut self) {
        self.homes.values_mut().for_each(|home| home.places.forget());
    }

    pub(super) fn connected(&mut self, now: Instant, peer: ServerId, session: SessionId) {
        let process = self.guard.process();
        self.begin_home(now, peer).connected(now, session, Some(process));
    }

    /// A connection of that home has begun here. False if it goes on elsewhere. One that was to begin at the process before may come before the first link.
    pub(super) fn born(&mut self, now: Instant, flow: FlowId) -> bool {
        self.begin_home(now, flow.home).born(now, flow)
    }

    /// A connection of that home has come from the process before, or back from the next one.
    pub(super) fn take_over(&mut self, now: Instant, flow: FlowId, generation: Generation) {
        self.begin_home(now, flow.home).take_over(now, flow, generation);
    }

    fn begin_home(&mut self, now: Instant, id: ServerId) -> &mut handoff::Node {
        let (is_draining, leaves) = (self.is_draining, self.leaves);
        let first = self.foreign_load().unwrap_or(Load { is_failing: self.is_failing(), ..Load::default() });
        let home = self.homes.entry(id).or_insert_with(|| {
            let mut flows = handoff::Node::new(NodeLimits::default(), Incarnation(process::random_number()));
            flows.drain(is_draining);
            leaves.into_iter().for_each(|(is_followed, end)| flows.leave(now, is_followed, end));
            // Its first heartbeat already says whose server this is, and whether it's well.
            flows.set_load(first);
            Home { flows, places: Places::default(), lease: Lease::default() }
        });
        &mut home.flows
    }

    pub(super) fn disconnected(&mut self, peer: Option<ServerId>, session: SessionId) {
        if let Some(home) = peer.and_then(|peer| self.homes.get_mut(&peer)) {
            home.flows.disconnected(session);
        }
    }

    pub(super) fn handle_message(&mut self, now: Instant, peer: ServerId, session: SessionId, message: Message) {
        if let Some(home) = self.homes.get_mut(&peer) {
            home.flows.handle_message(now, session, message);
        }
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        self.homes.values().map(|home| home.flows.poll_timeout()).min().unwrap_or(Instant::NEVER)
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.homes.values_mut().for_each(|home| home.flows.handle_timeout(now));
    }

    pub(super) fn poll_effect(&mut self) -> Option<(ServerId, Effect)> {
        self.homes.iter_mut().find_map(|(&id, home)| Some((id, home.flows.poll_effect()?)))
    }

    /// The dispatcher's workers to which there are to be links: those that any of them has named, and those whose flows are here.
    pub(super) fn sought(&self) -> Vec<u16> {
        let named =
            self.homes.values().filter(|home| home.flows.session().is_some()).flat_map(|home| home.flows.homes());
        let held = self.homes.iter().filter(|(_, home)| home.flows.flow_count() > 0).map(|(id, _)| id.worker());
        let mut sought: Vec<u16> = named.copied().chain(held).collect();
        sought.sort_unstable();
        sought.dedup();
        sought
    }

    pub(super) fn flow_count(&self) -> usize {
        self.homes.values().map(|home| home.flows.flow_count()).sum()
    }

    pub(super) fn counters(&self) -> NodeCounters {
        self.homes.values().map(|home| home.flows.counters()).fold(NodeCounters::default(), |sum, one| NodeCounters {
            taken: sum.taken + one.taken,
            born: sum.born + one.born,
            refused: sum.refused + one.refused,
            returned: sum.returned + one.returned,
            inherited: sum.inherited + one.inherited,
            released: sum.released + one.released,
            orphaned: sum.orphaned + one.orphaned,
        })
    }

    /// Takes nothing on any more, and gives back what is here as soon as each reply has ended.
    pub(super) fn drain(&mut self) {
        self.is_draining = true;
        self.homes.values_mut().for_each(|home| home.flows.drain(true));
        self.give_back_all();
    }

    /// Gives back what is here as soon as each reply has ended.
    fn give_back_all(&mut self) {
        for home in self.homes.values_mut() {
            let live: Vec<FlowId> = home.flows.live_flows().collect();
            live.into_iter().for_each(|flow| home.flows.give_back(flow));
        }
    }

    /// This process is to end. Homes are given back what is here.
    pub(super) fn leave(&mut self, now: Instant, is_followed: bool, end: Instant) {
        self.leaves = Some((is_followed, end));
        self.guard.share(is_followed);
        self.homes.values_mut().for_each(|home| home.flows.leave(now, is_followed, end));
    }

    /// Whether homes have back what was here, and know who follows. `is_late`: those that there is no link to aren't waited for any more, nor those that have
    /// said nothing for a lease.
    pub(super) fn has_left(&self, now: Instant, is_late: bool) -> bool {
        let is_silent = |home: &handoff::Node| home.session().is_none() || home.is_fenced(now);
        let has_left = |home: &handoff::Node| home.has_left() || is_late && is_silent(home);
        self.homes.values().all(|home| has_left(&home.flows))
    }

    /// What is reported in place of leat's own load.
    fn foreign_load(&self) -> Option<Load> {
        self.foreign.as_ref().map(|foreign| foreign.load(self.guard.has_births()))
    }

    /// Whether this node's own checks say that it isn't well.
    pub(super) fn is_failing(&self) -> bool {
        self.checks.as_ref().is_some_and(|checks| checks.is_failing())
    }

    /// Whether connections that were to begin here have found a queue full since the last look. Listeners count other packets that they drop as well: those that
    /// end TIME_WAIT for a connection that begins (`time_wait.h`).
    fn looks_crowded(&mut self, now: Instant) -> bool {
        if now < self.overflows_at {
            return false;
        }
        self.overflows_at = now.after(TELL_PAUSE);
        let overflows = connections::overflows().ok();
        let before = std::mem::replace(&mut self.overflows, overflows);
        before.zip(overflows).is_some_and(|(before, now)| before != now)
    }

    /// How much there is to do, and what was seen. `many_wait`: before there's no room, so that some is left for those who ask for little.
    pub(super) fn report(&mut self, connections: u32, requests: u32, many_wait: bool, now: Instant) {
        self.checks.iter().for_each(|checks| checks.begin());
        if self.memory.is_due(now) {
            self.memory.look(storage::disk_bytes_of_all(), now);
        }
        let (is_failing, has_memory) = (self.is_failing(), self.memory.has_some(now));
        let own = Load { flows: connections, requests, is_failing, has_memory, ..Load::default() };
        let load = self.foreign_load().unwrap_or(own);
        let is_crowded = self.looks_crowded(now) || many_wait;
        for home in self.homes.values_mut() {
            home.flows.set_load(Load { is_crowded, ..load });
        }
        if now >= self.tell_at {
            self.tell_at = now.after(TELL_PAUSE);
            if self.was_told_failing && self.is_failing() {
                self.give_back_all();
            }
            // What is given back before homes know could only come here again.
            self.was_told_failing = self.is_failing();
            let samples = self.samples.take();
            if !samples.is_empty() {
                // What is so for one home's flows is so for the others'.
                self.homes.values_mut().for_each(|home| home.flows.tell(samples.clone()));
            }
        }
    }

    /// Reads what the programs have counted, now and then.
    pub(super) fn count_packets(&mut self, metrics: &WorkerMetrics, now: Instant) {
        if now < self.count_at {
            return;
        }
        self.count_at = now.after(COUNT_PAUSE);
        // What can't be read now can be later.
        if let Ok(counters) = self.guard.steering().counters() {
            metrics.node_counts.iter().zip(counters.values()).for_each(|(number, count)| number.set(count));
        }
    }

    fn renew_lease(&mut self, id: ServerId, until: Instant) {
        if let Some(home) = self.homes.get_mut(&id) {
            home.lease.until_ns = NodeGuard::until_ns(until);
            home.lease.has_flows = home.flows.flow_count() > 0;
            self.guard.set_lease(self.id.worker(), id, home.lease);
        }
    }

    /// What is held of homes that have said nothing for a lease, and that another one, which has just been heard, doesn't name, nobody will ask for: without
    /// their leases this whole machine would be silent.
    fn drop_lost(&mut self, heard: ServerId, now: Instant) {
        let named = self.homes.get(&heard).map(|home| home.flows.homes().to_vec()).unwrap_or_default();
        if named.is_empty() {
            return;
        }
        for (id, Home { flows, .. }) in &mut self.homes {
            let is_lost = flows.session().is_none() && flows.is_fenced(now) && !named.contains(&id.worker());
            if is_lost && flows.flow_count() > 0 {
                let (count, number) = (flows.flow_count(), id.worker());
                crate::log::warning(format_args!(
                    "{count} connections end: they are of worker {number} of the server that gave them here, which it doesn't have any more"
                ));
                flows.drop_orphans();
            }
        }
    }

    /// A home of which nothing is held here any more needn't have granted anything for the others' flows to go on; one of which something has just begun must have.
    pub(super) fn settle_leases(&mut self) {
        for (&id, home) in &mut self.homes {
            let has_flows = home.flows.flow_count() > 0;
            if has_flows != home.lease.has_flows {
                home.lease.has_flows = has_flows;
                self.guard.set_lease(self.id.worker(), id, home.lease);
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Nobody renews them any more, and what they stood for is gone.
        self.guard.forget(self.id.worker());
    }
}

/// A socket of the reactor's, for one call.
pub(super) struct Borrowed(pub(super) Socket);

impl AsRawFd for Borrowed {
    fn as_raw_fd(&self) -> RawFd {
        self.0.0.cast_signed()
    }
}

impl<H: Host> Worker<H> {
    pub(super) fn renew_lease(&mut self, home: ServerId, until: Instant) {
        let Some(cluster) = &mut self.cluster else { return };
        let Part::Node(node) = &mut cluster.part else { return };
        node.renew_lease(home, until);
        node.drop_lost(home, self.now);
        cluster.links.set_homes(0, &node.sought(), self.now);
    }

    /// A connection has arrived, or is back: on with what is there of it.
    pub(in crate::worker) fn begin_with(&mut self, token: Token) {
        let connection = &mut self.connections[token];
        if let Some(exchange) = &mut connection.exchange {
            exchange.queued = self.now;
            let is_begun = exchange.status != 0 || exchange.run.is_some();
            self.queue(if is_begun { Stage::Transmit } else { Stage::Serve }, token);
        } else if !connection.inbox.is_empty() || connection.flags.ended {
            // Its end as well: the turn in which that would have been seen may have gone into freezing it.
            self.queue(Stage::Receive, token);
        }
        self.arm_receive(token);
        if self.is_retiring() {
            self.offer_to_heirs(token);
        }
    }
}
