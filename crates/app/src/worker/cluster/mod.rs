//! A worker's part in a cluster: flows change hands here, by what the handoff's machines say. Decides nothing itself: `dispatch::Dispatcher`
//! names the node, `handoff::Home` and `handoff::Node` say who holds a flow, the host freezes, thaws and steers (`docs/decisions/0011-roles.md`).
//!
//! | file | does |
//! |---|---|
//! | `link` | carries messages between home and node |
//! | `lull` | a home's: when what nodes tell may lie unread for a moment |
//! | `flows` | knows where each flow is, and takes connections apart and puts them together |
//! | `turns` | those that nobody waits for, each in its turn |
//! | `home` | a dispatcher's: from a request to a node, and back when nobody takes it |
//! | `drain` | a dispatcher's: nodes that are emptied, and homes that are to go |
//! | `resign` | a dispatcher's process that another one follows |
//! | `born` | connections that begin at a node, both sides |
//! | `checks` | a node's: whether its own sites answer well, and how any server is asked |
//! | `direct` | both: whether a node's own replies reach clients |
//! | `foreign` | a node's whose server isn't leat: whether that answers, and how much it has to do |
//! | `node` | a node's: connections that arrive, and their end |
//! | `recovery` | a home's: flows whose node is gone |
//! | `inquiry` | the same: what their clients have, as they say when they're asked |
//! | `reply` | both: replies under way that change hands |
//! | `told` | a node's: replies of which homes are being told, and that wait for it |
//! | `rest` | a node's: connections that have nothing to do, of which homes are told |
//! | `placing` | both: requests that come on connections which have been given to a node |
//! | `shared` | is what workers share: programs in the kernel, and leases |
//! | `front` | a front's: which nodes can be reached, and whose each bucket is |
//! | `spread` | a front's, and its nodes': packets go by a table, and nobody but the node sees the request |
//! | `served` | such a node's whose server isn't leat, as it's emptied |
//! | `peer` | such a node's that chooses by content and hands on to the others |
//! | `succession` | such a node's process that another one follows |
//! | `part` | what each part does as a flow changes hands |
//! | `sweep` | entries of flows that are over |
//! | `waiting` | a home's: requests for which there is no node at the moment |
//! | `leave` | a connection server's that is stopped, and its peer's |
//! | `split` | a connection server's, and its data servers': which requests are delegated, and when a connection comes home |

mod born;
mod checks;
mod direct;
mod drain;
mod flows;
mod foreign;
mod front;
mod home;
mod inquiry;
mod leave;
mod link;
mod lull;
mod node;
mod part;
mod peer;
mod placing;
mod questions;
mod recovery;
mod reply;
mod resign;
mod rest;
mod served;
mod shared;
mod split;
mod spread;
mod standing;
mod succession;
mod sweep;
mod told;
mod transplant;
mod turns;
mod waiting;

use std::os::fd::OwnedFd;

use leat_host::handoff::Freezer;
use leat_host::reactor::Token;
use leat_host::steering::Heard;
use leat_logic::dispatch::Outcome;
use leat_logic::handoff::limits::HOMES_MAX;
use leat_logic::handoff::{Effect, FlowId, LinkKey, RecallTerms, Sample, ServerId};
use leat_logic::spread::{FRONT, Followed};
use leat_logic::time::Instant;

use super::{File, Host, Worker};
use crate::config::{Config, Role};
use crate::metrics::{Number, WorkerMetrics};
use flows::Flows;
use home::Home;
use link::Links;
use node::Node;
use peer::Peer;
pub(super) use reply::TOLD_AS_IT_STANDS_BYTES_MAX;
use resign::Resignation;
pub use shared::Shared;
use split::Split;
pub(in crate::worker) use split::UnderWay;
pub(in crate::worker) use spread::Spread;

/// The dispatcher's number.
const DISPATCHER: u32 = 0;

/// What every front is called: nodes tell them apart by where they have found them.
const FRONT_ID: ServerId = ServerId(FRONT);

/// What a worker is called in the cluster, by its number in this process. Only those that live at one time needn't be mistaken for each other.
pub(crate) fn worker_number(worker: usize) -> u16 {
    (worker % HOMES_MAX) as u16
}

/// A node's number in messages and in the steering map, by its place in the configuration.
fn number_of(place: usize) -> u32 {
    u32::try_from(place).map_or(u32::MAX, |place| place + DISPATCHER + 1)
}

/// See the module.
pub(super) struct Cluster<F> {
    part: Part,
    links: Links,
    flows: Flows<F>,
    freezer: Freezer,
    turns: turns::Turns,
    arrivals: reply::Arrivals<F>,
    told: told::Told,
    /// When flows are looked at again that are to be frozen.
    look_at: Instant,
    /// By which packets come that wait. The reactor polls them.
    taps: Vec<OwnedFd>,
    /// When more of what has come there is taken in.
    receive_at: Instant,
    /// Another process is about to have this home.
    resignation: Option<Resignation>,
    key: LinkKey,
    own: ServerId,
}

enum Part {
    Home(Box<Home>),
    Node(Box<Node>),
    /// One of several nodes behind fronts that hand on to each other.
    Peer(Box<Peer>),
    /// Such a front's worker that the nodes talk to.
    Front(Box<Followed>),
}

impl Part {
    /// What a connection server keeps of what it delegates.
    fn split(&mut self) -> Option<&mut Split> {
        match self {
            Part::Home(home) => home.split.as_mut(),
            _ => None,
        }
    }

    /// Whether replies are made here.
    fn serves(&self) -> bool {
        match self {
            Part::Home(home) => home.split.is_some(),
            Part::Node(_) | Part::Peer(_) => true,
            Part::Front(_) => false,
        }
    }

    /// Whether a flow that is to be given away waits for the end of a reply under way, even of one that others could go on with. A home has them do so only
    /// when it ends.
    fn keeps_reply(&mut self, flow: FlowId) -> bool {
        match self {
            Part::Home(home) => home.leaving.is_none(),
            Part::Node(node) => node.of(flow).is_some_and(|flows| flows.keeps_reply(flow)),
            Part::Peer(_) | Part::Front(_) => false,
        }
    }

    /// Takes over what may change. Returns nodes' numbers that somebody else has now, or that nobody had.
    fn configure(&mut self, config: &Config, shared: &Shared, now: Instant) -> Vec<u32> {
        if let Some(steering) = self.steering() {
            shared::set_nodes(steering, config, shared);
        }
        match self {
            Part::Home(home) => {
                home.configure_told(config);
                home.dispatcher.configure(config.cluster.settings());
                home.split.iter_mut().for_each(|split| split.balance.configure(config.split_rules()));
                home.arrange_births(config, shared);
                home.set_nodes(&config.cluster, now)
            }
            Part::Node(node) => {
                node.rules = config.split_rules();
                node.serves = config.cluster.own_serves();
                node.checks = shared.checks(config);
                Vec::new()
            }
            Part::Peer(peer) => peer.configure(config, shared, now),
            Part::Front(_) => Vec::new(),
        }
    }

    /// What is to be done next, and for which home.
    fn poll_effect(&mut self) -> Option<(ServerId, Effect)> {
        match self {
            Part::Home(home) => home.flows.poll_effect().map(|effect| (home.id, effect)),
            Part::Node(node) => node.poll_effect(),
            Part::Peer(peer) => peer.flows.poll_effect().map(|effect| (peer.id, effect)),
            Part::Front(front) => front.poll_effect().map(|effect| (FRONT_ID, effect)),
        }
    }
}

impl Part {
    fn count(&self, metrics: &WorkerMetrics) {
        let count = |number: &Number, value: usize| number.set(value as u64);
        match self {
            Part::Home(home) => {
                let counters = home.flows.counters();
                count(&metrics.flows, home.flows.flow_count());
                home.sweep.count(metrics);
                metrics.handoffs.set(counters.taken);
                metrics.births.set(counters.born + home.entrusted);
                metrics.handoffs_refused.set(counters.refused);
                metrics.handoffs_returned.set(counters.returned);
                metrics.flows_recovered.set(counters.recovered);
                metrics.flows_cut.set(counters.cut);
                count(&metrics.detours, home.dispatcher.direct().detours());
                count(&metrics.nodes_unwell, home.dispatcher.unwell());
            }
            Part::Node(node) => {
                let counters = node.counters();
                count(&metrics.flows, node.flow_count());
                metrics.births.set(counters.born);
                metrics.handoffs.set(counters.taken);
                metrics.handoffs_refused.set(counters.refused);
                metrics.handoffs_returned.set(counters.returned);
                metrics.connections_inherited.set(counters.inherited);
                metrics.flows_cut.set(counters.orphaned);
                count(&metrics.nodes_unwell, usize::from(node.is_failing()));
            }
            Part::Peer(peer) => {
                let counters = peer.flows.counters();
                count(&metrics.flows, peer.flows.flow_count());
                peer.sweep.count(metrics);
                metrics.handoffs.set(counters.taken);
                metrics.handoffs_refused.set(counters.refused);
                metrics.flows_cut.set(counters.lost);
                count(&metrics.nodes_unwell, peer.dispatcher.unwell());
            }
            Part::Front(front) => metrics.flow_entries.set(front.len() as u64),
        }
    }
}

impl<H: Host> Worker<H> {
    /// Takes up the part that the configuration gives this server, at the worker's first one; later ones only change what may change.
    pub(super) fn arrange_cluster(&mut self, config: &Config) {
        // A dispatcher without VIPs only passes on.
        if config.role == Role::Server || config.cluster.vip.is_empty() {
            return;
        }
        if let Some(cluster) = &mut self.cluster {
            if let Part::Peer(peer) = &cluster.part {
                cluster.links.move_to(peer.fronts(), peer::nodes_before(&config.cluster));
            }
            let mut changed = cluster.part.configure(config, &self.shared, self.now);
            changed.extend(self.spread.iter_mut().flat_map(|spread| spread.renumber(&config.cluster, self.now)));
            cluster.links.replaced.extend(&changed);
            // Whoever has had such a number isn't who has it now, or was no node.
            let of_others = cluster.links.sessions_of(&changed);
            of_others.into_iter().for_each(|session| self.end_session(session));
            self.run_effects();
        } else if !config.cluster.is_spread() || config.cluster.hands_on() && self.takes_part(config) {
            match self.make_cluster(config, None) {
                Ok(cluster) => self.begin_cluster(cluster),
                Err(error) => crate::log::error(format_args!("connections can't be handed over: {error}")),
            }
        }
        if config.cluster.is_spread() {
            // Behind the programs that send packets after connections which have moved.
            self.arrange_spread(config);
        }
    }

    fn begin_cluster(&mut self, cluster: Cluster<File<H>>) {
        self.poll_held_packets(&cluster.taps);
        self.cluster = Some(Box::new(cluster));
        self.run_effects();
    }

    /// Nodes talk to one of a front's workers.
    fn takes_part(&self, config: &Config) -> bool {
        config.role == Role::Node || self.shared.workers().first() == Some(&worker_number(self.metrics.worker))
    }

    /// `resumed`: see [`Home::new`].
    fn make_cluster(&mut self, config: &Config, resumed: Option<u64>) -> Result<Cluster<File<H>>, String> {
        let secret = config.cluster.key_file.as_ref().ok_or("`key_file` is missing in [cluster]")?;
        let key = LinkKey::from_secret(secret.bytes()).ok_or("the key is too short")?;
        let mut links = Links::default();
        let worker = worker_number(self.metrics.worker);
        let (mut flows, mut taps) = (Flows::default(), Vec::new());
        let (part, own) = match config.role {
            Role::Dispatcher if config.cluster.is_spread() => {
                self.listen_for_links(&mut links, &[], config.cluster.link_port)?;
                (Part::Front(Box::new(Followed::new(self.now))), FRONT_ID)
            }
            Role::Node if config.cluster.is_spread() => {
                let peer = Peer::new(config, &self.shared, worker, self.now, self.boundary)?;
                taps = peer.steering.descriptors().map_err(|error| error.to_string())?;
                let at = config.cluster.own_node().and_then(|node| node.address.first()).copied();
                let port = config.cluster.link_port.saturating_add(worker);
                self.listen_for_links(&mut links, at.as_slice(), port)?;
                links.seek(peer::sought(&config.cluster), config.cluster.link_port, self.now);
                let own = peer.id;
                (Part::Peer(Box::new(peer)), own)
            }
            Role::Dispatcher | Role::ConnectionServer => {
                let mut home = Home::new(config, &self.shared, worker, self.now, (self.boundary, resumed))?;
                std::mem::take(&mut home.left).into_iter().for_each(|(flow, key)| flows.begin_away(flow, key));
                taps = home.held_packets()?;
                // A connection server's clients are to find nothing but its sites.
                let at = if config.role == Role::Dispatcher { &[][..] } else { &config.cluster.dispatchers };
                self.listen_for_links(&mut links, at, config.cluster.link_port.saturating_add(worker))?;
                let own = home.id;
                (Part::Home(Box::new(home)), own)
            }
            Role::Node | Role::Server => {
                let node = Node::new(config, &self.shared, worker, self.now)?;
                // One machine may have an address of each family: one of them is enough.
                let dispatcher = config.cluster.dispatchers.first().copied();
                links.seek(dispatcher.into_iter(), config.cluster.link_port, self.now);
                let own = node.id;
                (Part::Node(Box::new(node)), own)
            }
        };
        Ok(Cluster {
            part,
            links,
            flows,
            freezer: Freezer::new().with_complaints_to(begins_anew),
            turns: turns::Turns::default(),
            arrivals: reply::Arrivals::default(),
            told: told::Told::default(),
            look_at: Instant::NEVER,
            taps,
            receive_at: Instant::NEVER,
            resignation: None,
            key,
            own,
        })
    }

    /// Does what the machines want done.
    fn run_effects(&mut self) {
        while let Some((home, effect)) = self.cluster.as_mut().and_then(|cluster| cluster.part.poll_effect()) {
            self.run_effect_measured(home, effect);
        }
        if let Some(cluster) = &self.cluster {
            cluster.part.count(&self.metrics);
        }
        match self.cluster.as_mut().map(|cluster| &mut cluster.part) {
            Some(Part::Home(home)) => {
                let has_taken_in = std::mem::take(&mut home.has_taken_in);
                if home.have_nodes_changed() {
                    self.dispatch_waiting();
                } else if has_taken_in {
                    self.place_arrivals();
                }
            }
            Some(Part::Node(node)) => node.settle_leases(),
            _ => {}
        }
    }

    fn run_effect(&mut self, home: ServerId, effect: Effect) {
        match effect {
            Effect::Freeze { flow } => self.freeze_in_turn(flow),
            Effect::Unfreeze { flow, .. } => self.unfreeze(flow),
            Effect::Thaw { flow, image, .. } => self.thaw(flow, &image),
            Effect::CloseSilently { flow } => self.close_silently(flow),
            Effect::Steer { flow, to, generation } => self.steer(flow, to, generation),
            Effect::Unsteer { flow, .. } => self.unsteer(flow),
            Effect::Place { flow, giver, image } => self.place(flow, giver, &image),
            Effect::Recover { flow, image, kept, told, birth } => self.recover(flow, &image, (kept, birth), &told),
            Effect::AcceptAll => self.accept_all_births(),
            Effect::Cut { flow, reason } => self.cut_flow(flow, reason),
            Effect::Reset { flow } => self.was_reset(flow),
            Effect::LeaseUntil { until } => self.renew_lease(home, until),
            Effect::Send { session, message } => self.send_message(session, &message),
            Effect::Disconnect { session } => self.end_session(session),
            Effect::Lapsed { node } => self.lapsed(node),
            Effect::Where { flow, node, question } => self.answer_where(flow, node, &question),
            Effect::Told { flow, there } => self.told(flow, there),
            Effect::Inherit { flows } => self.inherit(&flows),
            Effect::Rules(rules) => self.follow_rules(home, rules),
            Effect::Seen(samples) => self.learn(samples),
            Effect::Probe { ends, sequence } => self.send_probe(home, ends, sequence),
            Effect::Probed { sequence, is_sent } => self.probe_was_sent(sequence, is_sent),
            Effect::Yield { ends, next, acknowledged } => self.answer_yield(home, ends, next, acknowledged),
            Effect::Yielded { ends, next, answer, shown } => self.was_yielded(ends, next, (answer, shown)),
            Effect::Load { node, load, .. } => self.node_reported(node, load),
            Effect::Follow { ends, node, is_over } => self.follow(ends, node, is_over),
            Effect::Unfollow { ends } => self.unfollow(ends),
        }
    }

    /// When the cluster has something to do by itself.
    pub(super) fn cluster_timeout(&self) -> Instant {
        let Some(cluster) = &self.cluster else { return self.spread_timeout() };
        let part = match &cluster.part {
            Part::Home(home) => home.poll_timeout(),
            Part::Node(node) => node.poll_timeout().min(node.births_at).min(node.resting.look_at),
            Part::Peer(peer) => peer.poll_timeout(),
            Part::Front(front) => front.poll_timeout(),
        };
        let resignation = cluster.resignation.as_ref().map_or(Instant::NEVER, Resignation::poll_timeout);
        let own = cluster.look_at.min(cluster.receive_at).min(cluster.arrivals.poll_timeout());
        part.min(cluster.links.poll_timeout()).min(own).min(resignation).min(self.spread_timeout())
    }

    /// Does what is due.
    pub(super) fn handle_cluster_timeout(&mut self) {
        self.read_begun();
        self.handle_spread_timeout();
        self.handle_link_timeout();
        self.queue_turns();
        self.tell_of_rests();
        self.leave_peers_if_empty();
        let now = self.now;
        if self.cluster.as_ref().is_some_and(|cluster| now >= cluster.receive_at) {
            self.receive_held_packets();
        }
        let Some(cluster) = &mut self.cluster else { return };
        if now >= cluster.look_at {
            cluster.look_at = Instant::NEVER;
            cluster.flows.take_unacknowledged().into_iter().for_each(|flow| self.freeze_in_turn(flow));
        }
        let requests = self.requests_under_way();
        let (workers, many_wait) = (self.shared.workers(), std::mem::take(&mut self.knocks.are_many));
        let Some(cluster) = &mut self.cluster else { return };
        self.metrics.handoffs_waiting.set(cluster.turns.len() as u64);
        let is_too_late = matches!(&cluster.part, Part::Home(home) if home.waiting.poll_timeout() <= now);
        match &mut cluster.part {
            Part::Home(home) => {
                home.flows.set_homes(&self.shared.homes());
                home.handle_timeout(now);
            }
            Part::Node(node) => {
                node.report(u32::try_from(self.connections.len()).unwrap_or(u32::MAX), requests, many_wait, now);
                node.handle_timeout(now);
                node.tell(now);
                node.count_packets(&self.metrics, now);
            }
            Part::Peer(peer) => {
                peer.handle_timeout(&self.shared, &workers, requests, now);
                for (place, server) in peer.sought_workers() {
                    cluster.links.set_homes(place, peer.flows.workers_of(server), now);
                }
            }
            Part::Front(front) => front.handle_timeout(now),
        }
        if is_too_late {
            self.dispatch_waiting();
        }
        self.heed_replies();
        self.seek_tags();
        self.handle_transplants();
        self.run_effects();
        self.handle_inquiries();
        self.reset_given_up();
        self.repeat_resets();
        self.handle_leaving();
        self.handle_resignation();
    }

    /// A connection that belongs to a flow, or to a peer, is about to end: the kernel may say so to the client.
    pub(super) fn flow_ends(&mut self, token: Token) {
        let connection = &self.connections[token];
        let (socket, is_elsewhere) = (connection.socket, connection.flags.elsewhere);
        if let Some(cluster) = &mut self.cluster
            && let Part::Node(node) = &cluster.part
            && (node.is_peer && !is_elsewhere || cluster.flows.at(token).is_some())
            && let Err(error) = leat_host::steering::mark_closing(&node::Borrowed(socket))
        {
            crate::log::warning(format_args!("a connection can't be marked as closing: {error}"));
        }
    }

    /// This worker is to go: what it holds goes to others, or comes back to be given to them.
    pub(super) fn leave_cluster(&mut self) {
        match self.cluster.as_mut().map(|cluster| &mut cluster.part) {
            // Its process lives on, so replies may end where they are: who has no use for one would ask for it again and again.
            Some(Part::Home(home)) => home.retire(self.now, RecallTerms::AtRest),
            Some(Part::Node(node)) => node.drain(),
            Some(Part::Peer(peer)) => peer.end(self.now),
            Some(Part::Front(_)) | None => return,
        }
        self.run_effects();
    }

    /// Whether no server has anything of this worker's any more.
    pub(super) fn has_left_cluster(&self) -> bool {
        match self.cluster.as_ref().map(|cluster| &cluster.part) {
            Some(Part::Home(home)) => {
                let is_all_read = home.standing.poll_timeout() == Instant::NEVER;
                let is_settled = home.given_up.is_empty() && home.transplants.count() == 0;
                is_all_read && is_settled && home.flows.flow_count() == 0
            }
            Some(Part::Node(node)) => node.flow_count() == 0,
            Some(Part::Peer(peer)) => peer.flows.owned() == 0,
            Some(Part::Front(_)) | None => true,
        }
    }

    /// Whether this is a node's worker behind fronts, which know by its name what it has.
    pub(super) fn is_behind_fronts(&self) -> bool {
        matches!(self.cluster.as_ref().map(|cluster| &cluster.part), Some(Part::Peer(_)))
    }

    /// Whether who connects here sends this server the first packet: those of a node are its dispatcher's to answer.
    pub(super) fn hears_first_packets(&self) -> bool {
        !matches!(self.cluster.as_ref().map(|cluster| &cluster.part), Some(Part::Node(_)))
    }

    /// Whether a worker that goes has flows which are to end by themselves: those that nodes have of a dispatcher's worker, or that it has here and that go
    /// by its books; those of a node's that nobody else can take, as a reply is under way and the workers that stay can't have a socket beside this one's.
    pub(super) fn has_flows_of_its_own(&self) -> bool {
        match self.cluster.as_ref().map(|cluster| &cluster.part) {
            Some(Part::Home(home)) => home.flows.flow_count() > 0,
            Some(Part::Node(node)) => node.flow_count() > 0,
            Some(Part::Peer(_) | Part::Front(_)) | None => false,
        }
    }

    /// Whether a connection may go to another worker of this server: a dispatcher's may, and is no flow any more; one that a home has given here
    /// goes back to that, and one that has come from another node is known elsewhere as this worker's.
    pub(super) fn may_leave(&mut self, token: Token) -> bool {
        let Some(cluster) = &self.cluster else { return true };
        let Some(flow) = cluster.flows.at(token) else { return true };
        match &cluster.part {
            Part::Home(_) => true,
            Part::Peer(peer) => peer.flows.lives_where_it_began(flow),
            Part::Node(_) | Part::Front(_) => false,
        }
    }

    /// A connection that belongs to a flow has ended. `cut`: by a reset, and what its client said last.
    pub(super) fn flow_ended(&mut self, token: Token, cut: Option<Heard>) {
        let Some(cluster) = &mut self.cluster else { return };
        let key = cluster.flows.at(token).and_then(|flow| cluster.flows.key(flow));
        let Some(flow) = cluster.flows.remove_at(token) else { return };
        let requests = self.connections[token].http.request_count();
        match &mut cluster.part {
            Part::Home(home) => {
                home.dispatcher.connection_ended(requests);
                home.settled(flow, Outcome::Unknown, self.now);
                if cut.is_some() {
                    home.flows.was_cut(flow);
                }
                home.flows.forget(flow);
                if let (Some(key), Some(heard)) = (key, cut) {
                    cluster.part.keep_cut(flow, key, &heard, self.now);
                }
            }
            Part::Node(node) => {
                node.samples.add(Sample::Connection { requests });
                node.of(flow).into_iter().for_each(|flows| flows.ended(flow, cut.is_some()));
                return node.tell_soon(self.now);
            }
            Part::Peer(peer) => {
                peer.dispatcher.connection_ended(requests);
                peer.flows.ended(flow);
            }
            Part::Front(_) => {}
        }
        self.run_effects();
    }

    /// Something has changed for a connection that may be about to be frozen. Whether it is.
    pub(super) fn freeze_goes_on(&mut self, token: Token) -> bool {
        let Some(flow) = self.freezing_flow(token) else { return false };
        self.freeze_in_turn(flow);
        self.run_effects();
        true
    }

    /// A reply has ended: a flow that is wanted elsewhere may go now.
    pub(super) fn flow_is_between_requests(&mut self, token: Token) {
        if self.cluster.is_some() {
            self.freeze_goes_on(token);
        }
    }

    /// Whether the reply under way is about to leave with its connection.
    pub(super) fn reply_moves(&mut self, token: Token) -> bool {
        let exchange = self.connections[token].exchange.as_ref();
        let can_move = exchange.is_some_and(|exchange| exchange.can_go_on_elsewhere());
        let Some(flow) = self.freezing_flow(token).filter(|_| can_move) else { return false };
        let keeps_reply = self.cluster.as_mut().is_some_and(|cluster| cluster.part.keeps_reply(flow));
        !keeps_reply && self.freeze_goes_on(token)
    }

    /// The flow that a connection is, if it's known to the cluster.
    pub(super) fn flow_at(&self, token: Token) -> Option<FlowId> {
        self.cluster.as_ref()?.flows.at(token)
    }

    fn freezing_flow(&self, token: Token) -> Option<FlowId> {
        let flows = &self.cluster.as_ref()?.flows;
        flows.at(token).filter(|&flow| flows.is_freezing(flow))
    }
}

/// Said once by a process.
fn begins_anew(why: &leat_host::steering::Error) {
    crate::log::warning(format_args!(
        "congestion windows don't go along with connections that move, so far clients get less at once: {why}"
    ));
}
