//! Requests that come on connections which have been given to a node: where does each belong? A node goes by what its home has answered before,
//! and asks for what it doesn't know; then it serves the request, fetches the reply from its peer, or gives the connection back. What was seen on
//! the way is told, so that the answers get better.

use std::time::Duration;

use bytes::Bytes;
use leat_host::reactor::Token;
use leat_logic::dispatch::cost::{Side, Way, Ways, Work};
use leat_logic::dispatch::{ContentKey, Facts, Whence};
use leat_logic::handoff::{FlowId, HomeLimits, Question, Rules, Sample, ServerId, There};
use leat_logic::http::client::is_repeatable;
use leat_logic::http::{BodyLength, Request, Status};

use super::super::exchange::{Exchange, Placing};
use super::super::{File, Host, Stage, Worker};
use super::Part;
use super::home::Home;
use super::number_of;
use crate::config::{ClusterNode, Config, RepliesTold, Role};

/// Samples of each kind that are kept until the next heartbeat: of more, the first. Most of what there is to see are replies.
const SAMPLES_OF_KIND_MAX: usize = 32;
const KINDS: usize = 3;

/// What a node has seen and not told yet.
#[derive(Default)]
pub(super) struct Samples {
    seen: Vec<Sample>,
    counts: [usize; KINDS],
}

impl Samples {
    pub(super) fn add(&mut self, sample: Sample) {
        let kind = match sample {
            Sample::Reply { .. } => 0,
            Sample::Work { .. } => 1,
            Sample::Connection { .. } => 2,
        };
        if self.counts[kind] < SAMPLES_OF_KIND_MAX {
            self.counts[kind] += 1;
            self.seen.push(sample);
        }
    }

    pub(super) fn add_work(&mut self, work: Work, reply_bytes: u64, cpu: Duration) {
        let cpu_ns = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
        self.add(Sample::Work { work: work as u8, reply_bytes, cpu_ns });
    }

    pub(super) fn take(&mut self) -> Vec<Sample> {
        std::mem::take(self).seen
    }
}

impl Part {
    /// Whether this node is configured for a request.
    fn has(&self, facts: &Facts<'_>) -> bool {
        match self {
            Part::Node(node) => node.serves.has(facts),
            Part::Peer(peer) => peer.serves(facts),
            Part::Home(_) | Part::Front(_) => true,
        }
    }

    /// A piece of a node's work took so much processor time.
    pub(super) fn measured(&mut self, work: Work, reply_bytes: u64, cpu: Duration) {
        match self {
            Part::Node(node) => node.samples.add_work(work, reply_bytes, cpu),
            Part::Peer(peer) => peer.dispatcher.measured(work, Side::Node, reply_bytes, cpu),
            Part::Home(_) | Part::Front(_) => {}
        }
    }
}

/// Whether nodes tell of all replies.
pub(super) fn are_all_told(config: &Config) -> bool {
    config.role == Role::ConnectionServer || config.cluster.replies_told == RepliesTold::All
}

impl Home {
    /// What a reload says of the replies that nodes tell of.
    pub(super) fn configure_told(&mut self, config: &Config) {
        let are_all_told = are_all_told(config);
        if std::mem::replace(&mut self.are_all_told, are_all_told) != are_all_told {
            self.changes_told = None;
        }
    }

    /// Has nodes forget what they were answered when that may be wrong.
    pub(super) fn renew_rules(&mut self) {
        let changes = self.dispatcher.changes();
        if self.changes_told != Some(changes) {
            self.changes_told = Some(changes);
            let hold = self.dispatcher.answers_hold();
            let keep_ms = hold.map_or(0, |hold| u32::try_from(hold.as_millis()).unwrap_or(u32::MAX));
            let (are_births_lent, are_all_told) = (self.split.is_some(), self.are_all_told);
            self.flows.set_rules(Rules { is_asked: hold.is_some(), keep_ms, are_births_lent, are_all_told });
        }
    }

    /// What nodes have seen.
    fn learn(&mut self, sample: Sample) {
        match sample {
            Sample::Reply { content, bytes } => self.dispatcher.replied(content, bytes),
            Sample::Connection { requests } => self.dispatcher.connection_ended(requests),
            Sample::Work { work, reply_bytes, cpu_ns } => {
                if let Some(work) = Work::ALL.get(usize::from(work)) {
                    self.dispatcher.measured(*work, Side::Node, reply_bytes, Duration::from_nanos(cpu_ns));
                }
            }
        }
    }
}

impl<H: Host> Worker<H> {
    /// Whether the request in hand is to be served here and now. If not, whatever else is to be done with it has begun.
    pub(in crate::worker) fn belongs_here(&mut self, token: Token) -> bool {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return true };
        let node = match &mut cluster.part {
            Part::Node(node) => node,
            Part::Peer(_) => return self.belongs_to_peer(token),
            Part::Home(_) | Part::Front(_) => return true,
        };
        let Some(flow) = cluster.flows.at(token) else { return true };
        let is_freezing = cluster.flows.is_freezing(flow);
        let connection = &mut self.connections[token];
        let number = connection.http.request_count();
        let Some(exchange) = connection.exchange.as_mut() else { return true };
        // What a connection server has lent goes by its rules (see `split`).
        if exchange.placing == Placing::Here || node.of(flow).is_some_and(|flows| flows.is_lent(flow)) {
            return true;
        }
        if is_freezing {
            self.freeze_goes_on(token);
            return false;
        }
        if number == 1 {
            // The connection began here because of it.
            self.was_given(flow, token);
            return true;
        }
        let request = Request::read_again(&exchange.head);
        let content = request.map(|request| node.keys.content(&Facts::of(&request))).unwrap_or_default();
        let Some(home) = node.home(flow.home) else { return true };
        exchange.content = content;
        // Who leaves and is still here couldn't be frozen.
        let is_stuck = connection.flags.ended || matches!(exchange.placing, Placing::Leaving | Placing::Stuck);
        let there = match exchange.placing {
            Placing::Told(there) => Some(there),
            _ => home.places.get(content, now).filter(|there| !is_stuck || *there != There::Move).map(Some),
        };
        let is_served = match there {
            Some(Some(There::Stay)) => true,
            Some(Some(There::Nowhere)) => false,
            Some(None) => {
                exchange.placing = Placing::Here;
                return self.goes_by_file(token);
            }
            Some(Some(There::Fetch(server))) => {
                exchange.placing = Placing::Here;
                self.fetch(token, server);
                return false;
            }
            Some(Some(There::Move)) => {
                exchange.placing = Placing::Leaving;
                home.flows.give_back(flow);
                self.run_effects();
                return false;
            }
            None => {
                let head = Bytes::copy_from_slice(&exchange.head);
                exchange.placing = if is_stuck { Placing::Stuck } else { Placing::Unknown };
                if home.flows.ask(now, flow, Question { number, head, is_stuck }) {
                    self.run_effects();
                    return false;
                }
                exchange.placing = Placing::Here;
                return self.goes_by_file(token);
            }
        };
        exchange.placing = Placing::Here;
        is_served || self.refuse_unserved(token)
    }

    /// Nobody says who is to serve the request in hand: a node is that the configuration names for it, if possible this one. True if it's to be answered here.
    fn goes_by_file(&mut self, token: Token) -> bool {
        let Some(exchange) = self.connections[token].exchange.as_ref().filter(|exchange| exchange.error.is_none())
        else {
            return true;
        };
        let Some(request) = Request::read_again(&exchange.head) else { return true };
        let (cluster, facts) = (&self.config.cluster, Facts::of(&request));
        if self.cluster.as_ref().is_none_or(|cluster| cluster.part.has(&facts)) {
            return true;
        }
        let is_others =
            |node: &ClusterNode| node.name != cluster.name && !node.is_removed() && node.serves().has(&facts);
        let others: Vec<usize> = (0..cluster.nodes.len()).filter(|&place| is_others(&cluster.nodes[place])).collect();
        // Connections take turns.
        match others.get(token.index as usize % others.len().max(1)) {
            Some(&place) => {
                self.fetch(token, ServerId::new(number_of(place), 0));
                false
            }
            None => self.refuse_unserved(token),
        }
    }

    /// The request in hand isn't this node's to serve, and there is nobody else: it's refused. What is wrong with it any node can say: true if it's to be
    /// answered here all the same.
    pub(super) fn refuse_unserved(&mut self, token: Token) -> bool {
        if self.connections[token].exchange.as_ref().is_none_or(|exchange| exchange.error.is_some()) {
            return true;
        }
        if self.start(token) {
            self.reply_error(token, Status::SERVICE_UNAVAILABLE);
        }
        false
    }

    /// A request in hand has come with its connection: it has been given to this node.
    pub(super) fn was_given(&mut self, flow: FlowId, token: Token) {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return };
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return };
        let request = Request::read_again(&exchange.head);
        match (&mut cluster.part, request) {
            (Part::Node(node), Some(request)) => {
                exchange.content = node.keys.content(&Facts::of(&request));
                if let Some(home) = node.home(flow.home) {
                    home.places.put(exchange.content, There::Stay, now);
                }
            }
            (Part::Peer(peer), Some(request)) => exchange.content = peer.keys.content(&Facts::of(&request)),
            (Part::Node(_) | Part::Peer(_), None) => {}
            (Part::Home(_) | Part::Front(_), _) => return,
        }
        exchange.placing = Placing::Here;
    }

    /// The home has answered where a request belongs, or nobody has.
    pub(super) fn told(&mut self, flow: FlowId, there: Option<There>) {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return };
        let Part::Node(node) = &mut cluster.part else { return };
        let Some(token) = cluster.flows.token(flow) else { return };
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return };
        match exchange.placing {
            Placing::Unknown => {
                exchange.placing = Placing::Told(there);
                // That nobody serves it may be over at any moment.
                if let (Some(home), Some(there)) =
                    (node.home(flow.home), there.filter(|there| *there != There::Nowhere))
                {
                    home.places.put(exchange.content, there, now);
                }
            }
            // By a home that doesn't know that it can't move, perhaps; and what can may have another answer.
            Placing::Stuck => exchange.placing = Placing::Told(there.filter(|there| *there != There::Move)),
            Placing::Told(_) | Placing::Leaving | Placing::Here => return,
        }
        exchange.queued = now;
        self.queue(Stage::Serve, token);
    }

    pub(super) fn follow_rules(&mut self, home: ServerId, rules: Rules) {
        if let Some(Part::Node(node)) = self.cluster.as_mut().map(|cluster| &mut cluster.part)
            && let Some(home) = node.home(home)
        {
            home.places.begin(Duration::from_millis(u64::from(rules.keep_ms)));
            if node.is_foreign()
                && let Err(error) = node.guard.steering().watch(rules.is_asked)
            {
                crate::log::warning(format_args!("what the server says can't be noted: {error}"));
            }
        }
    }

    /// Has a peer answer. If that fails, and may be tried again, this node does so by its own address if it's configured for the request; of a file also if
    /// the peer says nothing for as long as shows that a server is dead.
    pub(super) fn fetch(&mut self, token: Token, server: ServerId) {
        if !self.start(token) {
            return;
        }
        let vip = self.listeners[self.connections[token].listener as usize].sites.name.address;
        let Some(cluster) = &self.cluster else { return };
        let request =
            self.connections[token].exchange.as_ref().and_then(|exchange| Request::read_again(&exchange.head));
        let has_it = request.is_some_and(|request| cluster.part.has(&Facts::of(&request)));
        let own = has_it.then_some(cluster.own);
        let cluster = &self.config.cluster;
        let find = |id: ServerId| (0..).zip(&cluster.nodes).find(|(place, _)| number_of(*place) == id.server());
        let address = |id| find(id).and_then(|(_, node)| cluster.proxy_address(node, vip));
        let peers: Vec<_> = [Some(server), own].into_iter().flatten().filter_map(address).collect();
        let mut patience = None;
        if let Some(exchange) = self.connections[token].exchange.as_mut() {
            exchange.is_fetched = true;
            // A program may take its time, and would have to do its work twice.
            let is_files = exchange.site.as_ref().is_some_and(|site| !site.may_be_handled(&exchange.path));
            let request = Request::read_again(&exchange.head);
            let may_repeat =
                request.is_some_and(|request| is_repeatable(request.method, request.body != BodyLength::None));
            patience = (is_files && may_repeat).then(|| HomeLimits::default().lease.max(cluster.health.timeout));
        }
        self.metrics.fetches.increment();
        self.proxy_to(token, peers, patience);
    }

    /// A node asks where a request belongs.
    pub(super) fn answer_where(&mut self, flow: FlowId, holder: ServerId, question: &Question) {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return };
        let Part::Home(home) = &mut cluster.part else { return };
        self.metrics.questions.increment();
        let &Question { number, ref head, is_stuck } = question;
        let whence = Whence {
            holder: home.node(holder),
            client: cluster.flows.key(flow).map(|key| key.client.ip()),
            had: number.saturating_sub(1),
            possible: Ways::of(if is_stuck { &[Way::Fetch] } else { &[Way::MovedThere, Way::Fetch] }),
        };
        let request = Request::read_again(head);
        let route = request.map(|request| home.dispatcher.route(&Facts::of(&request), &whence, now));
        // Nobody may be chosen for it: who has the connection is as good as any other that is configured for it.
        let is_nowhere = route.as_ref().is_some_and(Result::is_err)
            && whence
                .holder
                .zip(request)
                .is_some_and(|(node, request)| !home.dispatcher.serves(node, &Facts::of(&request)));
        let may_wait = matches!(route, Some(Err(refusal)) if home.waiting.may_wait(refusal, now));
        let route = route.and_then(Result::ok);
        let server = route.and_then(|route| Some((route.decision.way, home.number(route.choice.node)?)));
        let there = match server {
            // It waits here for a node that may be about to come back, as a first request does.
            None if is_nowhere && may_wait && !is_stuck && !home.is_resigning => There::Move,
            None if is_nowhere => There::Nowhere,
            Some((Way::Stay, _)) | None => There::Stay,
            Some((_, number)) if number == holder.server() => There::Stay,
            Some((Way::Fetch | Way::Proxy, number)) => There::Fetch(ServerId::new(number, 0)),
            // What has begun can't be put into a server that isn't leat.
            Some((_, number)) if home.foreign(number).is_some() => There::Fetch(ServerId::new(number, 0)),
            // It would be on its way as this process gives up its home.
            Some((Way::MovedThere, number)) if home.is_resigning => There::Fetch(ServerId::new(number, 0)),
            Some((Way::MovedThere | Way::BornThere, _)) => There::Move,
        };
        home.flows.tell(flow, number, there);
    }

    pub(super) fn learn(&mut self, samples: Vec<Sample>) {
        if let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) {
            samples.into_iter().for_each(|sample| home.learn(sample));
        }
    }

    /// A reply has ended: how long it was, and what it cost if it was passed on.
    pub(in crate::worker) fn note_reply(&mut self, exchange: &Exchange<File<H>>) {
        let Some(cluster) = &mut self.cluster else { return };
        let (bytes, cost) = (exchange.body_bytes, Duration::from_nanos(exchange.cost_ns));
        let is_known = exchange.content != ContentKey::default() && exchange.status == 200;
        match &mut cluster.part {
            Part::Node(_) | Part::Peer(_) if is_known => {
                match &mut cluster.part {
                    Part::Node(node) => node.samples.add(Sample::Reply { content: exchange.content, bytes }),
                    Part::Peer(peer) => peer.dispatcher.replied(exchange.content, bytes),
                    Part::Home(_) | Part::Front(_) => {}
                }
                if exchange.is_fetched {
                    cluster.part.measured(Work::Fetched, bytes, cost);
                }
            }
            Part::Home(home) if is_known => {
                home.dispatcher.replied(exchange.content, bytes);
                home.dispatcher.measured(Work::Proxied, Side::Dispatcher, bytes, cost);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_rare_is_told_beside_what_is_not() {
        let mut samples = Samples::default();
        let reply = Sample::Reply { content: ContentKey(1), bytes: 1 };
        (0..10_000).for_each(|_| samples.add(reply));
        samples.add_work(Work::Moved, 0, Duration::from_micros(7));
        samples.add(Sample::Connection { requests: 3 });
        let told = samples.take();
        let is_moved = |sample: &Sample| matches!(sample, Sample::Work { cpu_ns: 7_000, .. });
        assert!(told.iter().any(is_moved) && told.contains(&Sample::Connection { requests: 3 }), "{told:?}");
        assert_eq!(told.len(), SAMPLES_OF_KIND_MAX + 2);
        samples.add(reply);
        assert_eq!(samples.take(), [reply], "room again");
    }
}
