//! The home's side: which server holds each flow that arrived here, and how it changes. The only place where that is decided.
//!
//! Sockets, steering entries and sessions are the host's, which node is the right one its caller's. What it wants done comes out of
//! [`Home::poll_effect`]; what became of that goes in by the methods that are named there.

mod claims;
mod doubts;
mod drain;
mod nodes;
mod passing;
mod reconcile;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::effect::{Birth, CutReason, Effect, Target};
use super::limits::{ATTEMPTS_MAX, UNBORN_MAX};
use super::message::{Message, RecallTerms};
use super::placing::{Rules, There};
use super::progress::Told;
use super::{Ends, FlowId, Generation, Incarnation, ServerId};
use crate::time::Instant;
use claims::Claims;
use drain::Recalls;
use nodes::Nodes;
use reconcile::Lists;

/// A node in one of its lives.
type Life = (ServerId, Incarnation);

/// What a home may keep, and how long it waits.
#[derive(Clone, Debug)]
pub struct HomeLimits {
    /// Flows, wherever they are held.
    pub flows_max: usize,
    /// Images of flows that are held by nodes, all together. A flow whose image isn't kept is cut when its node dies.
    pub kept_bytes_max: usize,
    /// How long a node may send after a heartbeat. Longer: a node's death is noticed later; shorter: a hiccup silences it.
    pub lease: Duration,
    /// After a birth of which its node says nothing, the node is asked: the packet may be lost, and with it the offer. Any other offer is answered as long
    /// as its session lasts, however long that takes a node with much to do.
    pub birth_timeout: Duration,
    /// After a start, how long nodes have to say which flows they hold: an attempt to connect to the life before may still be under way.
    pub claims_timeout: Duration,
}

impl Default for HomeLimits {
    fn default() -> HomeLimits {
        HomeLimits {
            flows_max: 1_000_000,
            kept_bytes_max: 256 * 1024 * 1024,
            lease: Duration::from_secs(1),
            birth_timeout: Duration::from_millis(100),
            claims_timeout: Duration::from_secs(10),
        }
    }
}

/// Why a flow can't be given to a node now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GiveError {
    /// The flow isn't here.
    #[error("the flow isn't here")]
    NotHere,
    /// No session with the node, or it hasn't said yet what it holds, or it takes nothing on.
    #[error("the node isn't connected, or drains")]
    NotConnected,
    /// As many offers are unanswered as the node allows.
    #[error("the node has as many unanswered offers as it allows")]
    NoCredit,
}

/// Where a flow that is here as an image is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Into a socket of this server.
    Here,
    /// To a node; back to the one that it came from, too.
    Node(ServerId),
}

/// What has happened, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HomeCounters {
    /// Offers sent.
    pub offered: u64,
    /// Offers taken.
    pub taken: u64,
    /// Flows that began at a node.
    pub born: u64,
    /// Offers refused, or lost.
    pub refused: u64,
    /// Flows that nodes returned.
    pub returned: u64,
    /// Flows whose node died and that went on. One whose client must ask again counts once it hasn't been cut for want of that.
    pub recovered: u64,
    /// Flows cut, by this home or since their node's death because nobody asked again.
    pub cut: u64,
    /// Images dropped for want of memory.
    pub dropped_images: u64,
}

/// Who holds a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// A live socket here.
    Here,
    /// A socket here that is being frozen for a node.
    Freezing(ServerId),
    /// A node has been asked. With `own`, this server's frozen socket is still there.
    Offered { life: Life, own: bool },
    /// A node. It has been told so under `unconfirmed` until it uses the generation that followed; if that's the same, it's asked whether it has it.
    Node { life: Life, unconfirmed: Option<Generation>, recalled: Option<RecallTerms> },
    /// Nobody: an image here, whose place is being chosen.
    Held,
    /// A socket here that is being made.
    Thawing,
    /// Nobody: its node is gone, and the host looks whether it can go on.
    Recovering,
    /// A steering entry from before this home's start says so; the node hasn't.
    Unclear(Option<ServerId>),
}

#[derive(Debug)]
struct Flow {
    generation: Generation,
    holder: Holder,
    /// The last image, when it came, and what its node told since.
    image: Option<Bytes>,
    kept: Instant,
    told: Told,
    /// A node that has a frozen socket of it, to be released when the flow has settled.
    giver: Option<(Life, Generation)>,
    attempts: u8,
    /// Who has refused it since it came, or says that it never came.
    refusers: Vec<Life>,
    /// Whoever holds it has it for one request; then it lives here again.
    is_lent: bool,
    /// Its node died, and it may still be cut because its client doesn't ask again.
    is_doubtful: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Home {
    limits: HomeLimits,
    flows: BTreeMap<FlowId, Flow>,
    nodes: Nodes,
    lists: Lists,
    /// Flows that were to begin at a node, and until when that is waited for, the oldest first.
    births: VecDeque<(Instant, FlowId)>,
    /// Flows that were to begin at a node and have been given up, the oldest first. What follows a process that died there doesn't know which those are.
    unborn: VecDeque<(ServerId, FlowId)>,
    /// Flows that may be doubtful, and from when on they aren't any more, the oldest first.
    doubts: VecDeque<(Instant, FlowId)>,
    claims: Claims,
    recalls: Recalls,
    kept_bytes: usize,
    rules: Option<Rules>,
    /// Nodes that have said what they hold, ever, and those that have been left it.
    known: BTreeSet<ServerId>,
    heirs: BTreeSet<ServerId>,
    /// The workers of this server that are homes, for nodes to make links to.
    homes: Vec<u16>,
    counters: HomeCounters,
    effects: VecDeque<Effect>,
}

impl Home {
    /// A home without flows.
    #[must_use]
    pub fn new(limits: HomeLimits) -> Home {
        Home {
            limits,
            flows: BTreeMap::new(),
            nodes: Nodes::default(),
            lists: Lists::default(),
            births: VecDeque::new(),
            unborn: VecDeque::new(),
            doubts: VecDeque::new(),
            claims: Claims::default(),
            recalls: Recalls::default(),
            kept_bytes: 0,
            rules: None,
            known: BTreeSet::new(),
            heirs: BTreeSet::new(),
            homes: Vec::new(),
            counters: HomeCounters::default(),
            effects: VecDeque::new(),
        }
    }

    /// A home that starts with the steering entries that its life before has left. Nodes will say which of them they hold; the others are cut
    /// after `claims_timeout`, and not before every lease that could have been granted has run out.
    #[must_use]
    pub fn recover(
        now: Instant,
        limits: HomeLimits,
        entries: impl IntoIterator<Item = (FlowId, Target, Generation)>,
    ) -> Home {
        let mut home = Home::new(limits);
        for (flow, target, generation) in entries {
            let node = match target {
                Target::Node(node) => Some(node),
                Target::Hold => None,
            };
            home.flows.insert(flow, Flow { generation, ..Flow::new(Holder::Unclear(node)) });
            home.recalls.add_unseen(flow);
            home.claims.last_until(now.after(home.lease_as_seen_here().max(home.limits.claims_timeout)));
        }
        home
    }

    /// Which workers of this server are homes: nodes are told with their next lease, and drop what they have of others that say nothing.
    pub fn set_homes(&mut self, homes: &[u16]) {
        if self.homes != homes {
            self.homes = homes.to_vec();
        }
    }

    /// A flow begins: accepted, or made here. False when there are too many, and it must stay here for good.
    pub fn open(&mut self, flow: FlowId) -> bool {
        let has_room = self.flows.len() < self.limits.flows_max;
        if has_room {
            self.flows.insert(flow, Flow::new(Holder::Here));
        }
        has_room
    }

    /// A flow begins at a node: its client's first packet goes there, and `image` is what a socket here would have made of it. It's an offer that the
    /// packet carries: the node says that it has taken it, or that it never came.
    ///
    /// # Errors
    /// Why that can't be; nothing has changed then.
    pub fn born(&mut self, now: Instant, flow: FlowId, node: ServerId, image: Bytes) -> Result<(), GiveError> {
        let life = self.nodes.ready(node)?;
        if self.flows.contains_key(&flow) || self.flows.len() >= self.limits.flows_max {
            return Err(GiveError::NotHere);
        }
        let generation = Generation::BORN;
        let is_lent = self.rules.is_some_and(|rules| rules.are_births_lent);
        let record = Flow { generation, is_lent, ..Flow::new(Holder::Offered { life, own: false }) };
        self.flows.insert(flow, record);
        self.keep(now, flow, image);
        self.nodes.take_credit(life);
        self.births.push_back((now.after(self.limits.birth_timeout), flow));
        self.counters.born += 1;
        Ok(())
    }

    /// A flow has begun at a node by a choice that stands: nobody was asked, and it can't be refused. Otherwise as [`Home::born`]. To be said before anything
    /// that the node says of it; without an image it's cut if the node dies. False if it's known already.
    pub fn begun(&mut self, now: Instant, flow: FlowId, node: ServerId, image: Option<Bytes>) -> bool {
        if self.flows.contains_key(&flow) {
            return false;
        }
        let (generation, is_lent) = (Generation::BORN, self.rules.is_some_and(|rules| rules.are_births_lent));
        let lease = self.lease_as_seen_here();
        let life = self.nodes.present(node, now.after(lease));
        let holder = life.map_or(Holder::Unclear(Some(node)), |life| Holder::Offered { life, own: false });
        self.flows.insert(flow, Flow { generation, is_lent, ..Flow::new(holder) });
        if let Some(image) = image {
            self.keep(now, flow, image);
        }
        match life {
            Some(life) => {
                self.nodes.take_credit(life);
                self.births.push_back((now.after(self.limits.birth_timeout), flow));
            }
            // Its link has just gone. It says so itself when it's back, which it may do as long as its lease could run.
            None => self.claims.last_until(now.after(lease)),
        }
        self.counters.born += 1;
        true
    }

    /// A flow that was to begin at a node has begun elsewhere, and no packet of it has gone there: as if nothing had been said.
    pub fn never_born(&mut self, flow: FlowId) {
        if self.flows.get(&flow).is_some_and(Flow::is_unheard_birth) {
            self.answered(flow);
            self.remove(flow);
        }
    }

    /// A flow is over that is held here, or its addresses have been taken into use by another: whoever has something of it drops it.
    pub fn forget(&mut self, flow: FlowId) {
        self.answered(flow);
        let Some(record) = self.remove(flow) else { return };
        match record.holder {
            Holder::Here | Holder::Held | Holder::Recovering => {}
            Holder::Freezing(_) | Holder::Thawing => self.effects.push_back(Effect::CloseSilently { flow }),
            Holder::Offered { life, own } => {
                if own {
                    self.effects.push_back(Effect::CloseSilently { flow });
                }
                self.send(life, Message::Release { flow, generation: record.generation });
            }
            Holder::Node { life, unconfirmed, .. } => {
                self.send(life, Message::Release { flow, generation: record.generation });
                if let Some(generation) = unconfirmed {
                    self.send(life, Message::Release { flow, generation });
                }
            }
            Holder::Unclear(_) => {}
        }
        if record.holder != Holder::Here {
            self.effects.push_back(Effect::Unsteer { flow, generation: record.generation });
        }
    }

    /// Gives a flow that lives here to a node.
    ///
    /// # Errors
    /// Why that can't be now; nothing has changed then.
    pub fn give(&mut self, flow: FlowId, node: ServerId) -> Result<(), GiveError> {
        self.nodes.ready(node)?;
        let record = self.flows.get_mut(&flow).filter(|record| record.holder == Holder::Here);
        record.ok_or(GiveError::NotHere)?.holder = Holder::Freezing(node);
        self.effects.push_back(Effect::Freeze { flow });
        Ok(())
    }

    /// Gives a flow that lives here to a node for the request in hand only, as request splitting does: once that has been answered, the node gives
    /// the flow back by itself ([`super::Node::replied`]). It's placed then like any other, and is still lent to whoever takes it but this server.
    ///
    /// # Errors
    /// Why that can't be now; nothing has changed then.
    pub fn lend(&mut self, flow: FlowId, node: ServerId) -> Result<(), GiveError> {
        self.give(flow, node)?;
        if let Some(record) = self.flows.get_mut(&flow) {
            record.is_lent = true;
        }
        Ok(())
    }

    /// [`Effect::Freeze`] has been done; `image` is encoded.
    pub fn frozen(&mut self, now: Instant, flow: FlowId, image: Bytes) {
        let Some(record) = self.flows.get(&flow) else { return };
        let Holder::Freezing(node) = record.holder else { return };
        self.keep(now, flow, image);
        if self.offer(flow, node, true).is_err() {
            self.take_up_again(flow);
        }
    }

    /// [`Effect::Freeze`] can't be done: the socket lives on here.
    pub fn freeze_failed(&mut self, flow: FlowId) {
        if let Some(record) = self.flows.get_mut(&flow)
            && matches!(record.holder, Holder::Freezing(_))
        {
            record.holder = Holder::Here;
            record.is_lent = false;
        }
    }

    /// Says where a flow goes that is here as an image.
    ///
    /// # Errors
    /// Why the node can't have it; another place is to be named.
    pub fn place(&mut self, flow: FlowId, destination: Destination) -> Result<(), GiveError> {
        let Some(record) = self.flows.get_mut(&flow).filter(|record| record.holder == Holder::Held) else {
            return Err(GiveError::NotHere);
        };
        match destination {
            Destination::Node(node) => {
                if let Some((life, returned)) = record.giver.filter(|(life, _)| life.0 == node)
                    && self.nodes.session(life).is_some()
                {
                    self.leave_with_giver(flow, life, returned);
                    return Ok(());
                }
                self.offer(flow, node, false)
            }
            Destination::Here => {
                record.generation = record.generation.next();
                record.holder = Holder::Thawing;
                let generation = record.generation;
                let image = record.image.clone().unwrap_or_default();
                self.effects.push_back(Effect::Steer { flow, to: Target::Hold, generation });
                self.effects.push_back(Effect::Thaw { flow, generation, image });
                Ok(())
            }
        }
    }

    /// [`Effect::Thaw`] has been done: the flow lives here.
    pub fn thawed(&mut self, flow: FlowId) {
        if self.flows.get(&flow).is_some_and(|record| record.holder == Holder::Thawing) {
            self.settle_here(flow);
        }
    }

    /// [`Effect::Thaw`] can't be done.
    pub fn thaw_failed(&mut self, flow: FlowId) {
        if let Some(record) = self.flows.get_mut(&flow)
            && record.holder == Holder::Thawing
        {
            record.holder = Holder::Held;
            self.place_again(flow);
        }
    }

    /// A flow that is nowhere but here can't go on: the answer to [`Effect::Recover`] or [`Effect::Place`] when there is no better one.
    pub fn cut(&mut self, flow: FlowId, reason: CutReason) {
        let is_here = self
            .flows
            .get(&flow)
            .is_some_and(|record| matches!(record.holder, Holder::Held | Holder::Recovering | Holder::Unclear(_)));
        if !is_here {
            return;
        }
        self.end_doubt(flow);
        if let Some(record) = self.remove(flow) {
            self.counters.cut += 1;
            // First: the host still knows the entry, and that nobody is to hear the rest.
            self.effects.push_back(Effect::Cut { flow, reason });
            self.effects.push_back(Effect::Unsteer { flow, generation: record.generation });
        }
    }

    /// Asks for a flow back, as for a drain.
    pub fn recall(&mut self, flow: FlowId, terms: RecallTerms) {
        let Some(record) = self.flows.get_mut(&flow) else { return };
        if let Holder::Node { life, recalled, .. } = &mut record.holder {
            *recalled = Some(terms);
            let (life, generation) = (*life, record.generation);
            self.send(life, Message::Recall { flow, generation, terms });
        }
    }

    /// This home ends: what such nodes have is theirs for good, and none of them needs a lease any more. To be said once nothing is on its way to them, and
    /// again until all of it is so: true then. One that isn't connected now is waited for: it may have flows, and would be silent with them.
    pub fn bequeath(&mut self, is_heir: impl Fn(ServerId) -> bool) -> bool {
        for (session, _) in self.nodes.ready_nodes().filter(|(_, node)| is_heir(*node)) {
            self.effects.push_back(Effect::Send { session, message: Message::Bequeath });
        }
        let mut heirs = self.known.iter().filter(|node| is_heir(**node)).peekable();
        heirs.peek().is_some() && heirs.all(|node| self.heirs.contains(node)) && self.flows.is_empty()
    }

    /// Answers [`Effect::Where`]. A flow that isn't with the node any more needs no answer.
    pub fn tell(&mut self, flow: FlowId, number: u32, there: There) {
        if let Some(&Flow { generation, holder: Holder::Node { life, .. }, .. }) = self.flows.get(&flow) {
            self.send(life, Message::There { flow, generation, number, there });
        }
    }

    /// Has a node send one byte here ([`Effect::Probed`]), as if to a client. False if that can't be said to it now.
    pub fn probe(&mut self, node: ServerId, ends: Ends, sequence: u32) -> bool {
        let life = self.nodes.ready(node);
        if let Ok(life) = life {
            self.send(life, Message::Probe { ends, sequence });
        }
        life.is_ok()
    }

    /// Asks a node for a connection that a server which isn't leat has there ([`Effect::Yielded`]). False if that can't be said to it now.
    pub fn ask_to_yield(&mut self, node: ServerId, ends: Ends, next: u32, acknowledged: u32) -> bool {
        let life = self.nodes.ready(node);
        if let Ok(life) = life {
            self.send(life, Message::Yield { ends, next, acknowledged });
        }
        life.is_ok()
    }

    /// What nodes go by from now on. They forget what was answered before.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = Some(rules);
        for (session, _) in self.nodes.ready_nodes() {
            self.effects.push_back(Effect::Send { session, message: Message::Rules(rules) });
        }
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Flows, wherever they are held.
    #[must_use]
    pub fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// The flows that such nodes hold, or are being given.
    pub fn flows_of(&self, is_asked: impl Fn(ServerId) -> bool) -> impl Iterator<Item = FlowId> {
        self.flows.iter().filter(move |(_, record)| record.is_at_any(&is_asked)).map(|(&flow, _)| flow)
    }

    /// The node that has a flow, and has said so; none for a flow that there isn't.
    #[must_use]
    pub fn holder(&self, flow: FlowId) -> Option<Option<ServerId>> {
        self.flows.get(&flow).map(|record| match record.holder {
            Holder::Node { life, .. } => Some(life.0),
            _ => None,
        })
    }

    /// Whether the node that has given back a flow which is here as an image has another process by now.
    #[must_use]
    pub fn is_giver_followed(&self, flow: FlowId) -> bool {
        let giver = self.flows.get(&flow).and_then(|record| record.giver);
        giver.is_some_and(|(life, _)| self.nodes.follower(life).is_some())
    }

    /// Whether a node can be given anything, by the process that it has now.
    #[must_use]
    pub fn is_connected(&self, node: ServerId) -> bool {
        self.nodes.has_ready(node)
    }

    /// Whether a flow that is here as an image has been refused, or couldn't be thawed, since it came.
    #[must_use]
    pub fn was_refused(&self, flow: FlowId) -> bool {
        self.flows.get(&flow).is_some_and(|record| record.attempts > 0)
    }

    /// Who has refused a flow that is here as an image, since it came.
    #[must_use]
    pub fn refusers(&self, flow: FlowId) -> Vec<ServerId> {
        let record = self.flows.get(&flow);
        record.map_or_else(Vec::new, |record| record.refusers.iter().map(|life| life.0).collect())
    }

    /// Offers that a node hasn't answered yet, births among them.
    #[must_use]
    pub fn unanswered(&self, node: ServerId) -> u32 {
        self.nodes.unanswered(node)
    }

    /// For each flow that a node holds, or is being given, that node.
    pub fn holders(&self) -> impl Iterator<Item = ServerId> {
        self.flows.values().filter_map(|record| record.node())
    }

    /// Whether such nodes have all flows, and nobody else has anything of any.
    #[must_use]
    pub fn all_are_at(&self, is_heir: impl Fn(ServerId) -> bool) -> bool {
        let is_at = |record: &Flow| matches!(record.holder, Holder::Node { life, .. } if is_heir(life.0));
        self.flows.values().all(is_at)
    }

    /// What has happened so far.
    #[must_use]
    pub fn counters(&self) -> HomeCounters {
        self.counters
    }

    /// Bytes of images kept.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Steers first, then sends: a packet that comes early finds a silent node, one that comes late no old socket.
    fn offer(&mut self, flow: FlowId, node: ServerId, own: bool) -> Result<(), GiveError> {
        let life = self.nodes.ready(node)?;
        let record = self.flows.get_mut(&flow).ok_or(GiveError::NotHere)?;
        let image = record.image.clone().ok_or(GiveError::NotHere)?;
        let is_lent = record.is_lent;
        record.generation = record.generation.next();
        record.holder = Holder::Offered { life, own };
        let generation = record.generation;
        self.counters.offered += 1;
        self.nodes.take_credit(life);
        self.effects.push_back(Effect::Steer { flow, to: Target::Node(node), generation });
        self.send(life, Message::Offer { flow, generation, image, is_lent });
        Ok(())
    }

    /// A node has the flow.
    fn settle_at_node(&mut self, flow: FlowId, life: Life) {
        self.answered(flow);
        let Some(record) = self.flows.get_mut(&flow) else { return };
        let own = matches!(record.holder, Holder::Offered { own: true, .. });
        record.holder = Holder::Node { life, unconfirmed: None, recalled: None };
        record.forget_attempts();
        self.counters.taken += u64::from(own || record.generation != Generation::BORN);
        if own {
            self.effects.push_back(Effect::CloseSilently { flow });
        }
        self.release_giver(flow);
        if self.kept_bytes > self.limits.kept_bytes_max {
            self.counters.dropped_images += 1;
            self.drop_image(flow);
        }
    }

    /// This server's own frozen socket goes on.
    fn take_up_again(&mut self, flow: FlowId) {
        self.settle_here(flow);
        if let Some(&Flow { generation, .. }) = self.flows.get(&flow) {
            self.effects.push_back(Effect::Unfreeze { flow, generation });
        }
    }

    /// A socket here has the flow.
    fn settle_here(&mut self, flow: FlowId) {
        let Some(record) = self.flows.get_mut(&flow) else { return };
        record.holder = Holder::Here;
        record.forget_attempts();
        record.is_lent = false;
        let generation = record.generation;
        self.effects.push_back(Effect::Unsteer { flow, generation });
        self.drop_image(flow);
        self.release_giver(flow);
    }

    /// What a node wanted to return stays there.
    fn leave_with_giver(&mut self, flow: FlowId, life: Life, returned: Generation) {
        let Some(record) = self.flows.get_mut(&flow) else { return };
        record.generation = record.generation.next();
        record.giver = None;
        record.forget_attempts();
        record.holder = Holder::Node { life, unconfirmed: Some(returned), recalled: None };
        let next = record.generation;
        self.effects.push_back(Effect::Steer { flow, to: Target::Node(life.0), generation: next });
        self.send(life, Message::Keep { flow, generation: returned, next });
    }

    /// A node won't have it, or never got it.
    fn offer_failed(&mut self, flow: FlowId) {
        let Some(record) = self.flows.get(&flow) else { return };
        let Holder::Offered { life, own, .. } = record.holder else { return };
        self.counters.refused += 1;
        if record.is_unheard_birth() {
            return self.take_up(flow, Birth::Denied);
        }
        self.answered(flow);
        let Some(record) = self.flows.get_mut(&flow) else { return };
        record.refusers.push(life);
        if own {
            self.take_up_again(flow);
        } else {
            record.holder = Holder::Held;
            self.place_again(flow);
        }
    }

    /// If it was offered: one offer less is unanswered.
    fn answered(&mut self, flow: FlowId) {
        if let Some(Flow { holder: Holder::Offered { life, .. }, .. }) = self.flows.get(&flow) {
            self.nodes.return_credit(*life);
        }
    }

    fn place_again(&mut self, flow: FlowId) {
        let Some(record) = self.flows.get_mut(&flow) else { return };
        record.attempts += 1;
        let giver = record.giver.filter(|&(life, _)| self.nodes.session(life).is_some());
        match (&record.image, giver) {
            (Some(_), _) if record.attempts < ATTEMPTS_MAX => self.ask_for_place(flow),
            // Nobody can take it, or not yet. Its frozen socket is still there: it goes on as if it hadn't been asked for.
            (_, Some((life, returned))) => self.leave_with_giver(flow, life, returned),
            (Some(_), None) => self.cut(flow, CutReason::NoPlace),
            (None, None) => self.cut(flow, CutReason::LostOnTheWay),
        }
    }

    fn ask_for_place(&mut self, flow: FlowId) {
        let Some(record) = self.flows.get(&flow) else { return };
        let giver = record.giver.filter(|&(life, _)| self.nodes.session(life).is_some());
        let giver = giver.map(|((node, _), _)| node);
        let image = record.image.clone().unwrap_or_default();
        self.effects.push_back(Effect::Place { flow, giver, image });
    }

    /// Its node can't send any more, and what it did last isn't known.
    fn begin_recovery(&mut self, flow: FlowId) {
        let is_unheard = self.flows.get(&flow).is_some_and(Flow::is_unheard_birth);
        self.take_up(flow, if is_unheard { Birth::Unknown } else { Birth::Known });
    }

    /// Has the host look how a flow goes on that nobody has any more.
    fn take_up(&mut self, flow: FlowId, birth: Birth) {
        self.answered(flow);
        self.never_begin(flow);
        // Its frozen socket is from before what the node may have done: the flow goes on from the recovered image only.
        self.release_giver(flow);
        let Some(record) = self.flows.get_mut(&flow) else { return };
        let own = matches!(record.holder, Holder::Offered { own: true, .. });
        record.holder = Holder::Recovering;
        record.generation = record.generation.next();
        let generation = record.generation;
        let (image, kept, told) = (record.image.clone(), record.kept, record.told.clone());
        let is_kept = image.is_some();
        self.effects.push_back(Effect::Steer { flow, to: Target::Hold, generation });
        self.effects.extend(image.map(|image| Effect::Recover { flow, image, kept, told, birth }));
        if own {
            // Only now: until then the host knows by it that the node hasn't said to have taken the flow.
            self.effects.push_back(Effect::CloseSilently { flow });
        }
        if !is_kept {
            self.cut(flow, CutReason::NoImage);
        }
    }

    /// If it was to begin at a node: none of the node's processes is to let that happen any more, nor one that follows (see `hear_list`).
    fn never_begin(&mut self, flow: FlowId) {
        let Some(record) = self.flows.get(&flow).filter(|record| record.generation == Generation::BORN) else { return };
        let (Holder::Offered { life: (node, _), own: false } | Holder::Unclear(Some(node))) = record.holder else {
            return;
        };
        let generation = Generation::BORN;
        for (session, _) in self.nodes.ready_nodes().filter(|(_, known)| *known == node) {
            self.effects.push_back(Effect::Send { session, message: Message::Release { flow, generation } });
        }
        self.unborn.push_back((node, flow));
        if self.unborn.len() > UNBORN_MAX {
            self.unborn.pop_front();
        }
    }

    fn keep(&mut self, now: Instant, flow: FlowId, image: Bytes) {
        self.drop_image(flow);
        if let Some(record) = self.flows.get_mut(&flow) {
            self.kept_bytes += image.len();
            (record.image, record.kept) = (Some(image), now);
        }
    }

    fn drop_image(&mut self, flow: FlowId) {
        if let Some(record) = self.flows.get_mut(&flow) {
            self.kept_bytes -= record.image.take().map_or(0, |image| image.len());
            self.kept_bytes -= std::mem::take(&mut record.told).len_bytes();
        }
    }

    /// The frozen socket that a node has kept until now isn't needed any more.
    fn release_giver(&mut self, flow: FlowId) {
        if let Some((life, generation)) = self.flows.get_mut(&flow).and_then(|record| record.giver.take()) {
            self.send(life, Message::Release { flow, generation });
        }
    }

    fn remove(&mut self, flow: FlowId) -> Option<Flow> {
        // It was over in order.
        self.has_gone_on(flow);
        self.drop_image(flow);
        self.release_giver(flow);
        self.flows.remove(&flow)
    }

    /// To a node in that life, if there is a session with it. What isn't sent is made good when the next session begins.
    fn send(&mut self, life: Life, message: Message) {
        if let Some(session) = self.nodes.session(life) {
            self.effects.push_back(Effect::Send { session, message });
        }
    }

    fn lease_as_seen_here(&self) -> Duration {
        // Clocks may differ in pace by 2 %; a millisecond for the rounding of the grant.
        self.limits.lease + self.limits.lease / 50 + Duration::from_millis(1)
    }
}

impl Flow {
    /// Whether one of such nodes has it, or is being given it.
    fn is_at_any(&self, is_asked: &impl Fn(ServerId) -> bool) -> bool {
        self.node().is_some_and(is_asked)
    }

    /// The node that has it, or is being given it.
    fn node(&self) -> Option<ServerId> {
        match self.holder {
            Holder::Offered { life, .. } | Holder::Node { life, .. } => Some(life.0),
            Holder::Unclear(id) => id,
            _ => None,
        }
    }

    /// Whether it's to begin at a node that has said nothing of it.
    fn is_unheard_birth(&self) -> bool {
        self.generation == Generation::BORN && matches!(self.holder, Holder::Offered { own: false, .. })
    }

    fn new(holder: Holder) -> Flow {
        Flow {
            generation: Generation::default(),
            holder,
            image: None,
            kept: Instant::default(),
            told: Told::default(),
            giver: None,
            attempts: 0,
            refusers: Vec::new(),
            is_lent: false,
            is_doubtful: false,
        }
    }

    /// It has a place.
    fn forget_attempts(&mut self) {
        self.attempts = 0;
        self.refusers = Vec::new();
    }
}
