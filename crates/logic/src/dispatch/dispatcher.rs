//! Who may be chosen, and the books: nodes with their loads and health, the policy in force. Whom to choose of several is the policy's.

use std::fmt;
use std::time::Duration;

use super::classify::{Class, DynamicRules, Rule};
use super::cost::{CostModel, Expected, Way, Ways};
use super::direct::{Detour, Direct};
use super::explain::{Explanation, NodeLine};
use super::facts::{ContentKey, Facts, KeyMaker};
use super::health::{Health, HealthSettings, Outcome, State};
use super::limits::{EJECTED_PERCENT_MAX, NODES_MAX, WEIGHT_MAX};
use super::node::{Load, LoadReport, Node, NodeId, NodeSet, Serves};
use super::policy::{AnyPolicy, Ask, Candidate, Plan, PolicyKind, PolicySettings, Why};
use super::route::HandOver;
use super::table::TableEntry;
use crate::network::Network;
use crate::time::Instant;

/// How a dispatcher dispatches. All of it can be changed while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which policy.
    pub policy: PolicyKind,
    /// Its parameters, and those of the others.
    pub parameters: PolicySettings,
    /// What makes a request dynamic.
    pub rules: DynamicRules,
    /// When a node is fit.
    pub health: HealthSettings,
    /// A load report that is older counts for nothing.
    pub report_age: Duration,
    /// Whether a connection goes to the node of its first request.
    pub hand_over: HandOver,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            policy: PolicyKind::default(),
            parameters: PolicySettings::default(),
            rules: DynamicRules::default(),
            health: HealthSettings::default(),
            report_age: Duration::from_secs(3),
            hand_over: HandOver::default(),
        }
    }
}

/// A node as it is configured. It's the same node as long as its name is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// How everybody calls it.
    pub name: String,
    /// 100 for an ordinary one.
    pub weight: u32,
    /// What it has.
    pub serves: Serves,
    /// The networks whose clients it's near to.
    pub near: Vec<Network>,
}

/// What a request was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Whom.
    pub node: NodeId,
    /// Why this one.
    pub why: Why,
    /// The request's class.
    pub class: Class,
    /// The request's content.
    pub key: ContentKey,
    /// For a moment others for that content would be given it as well, or have their turns by nothing else than that they come ([`Why::Turn`]).
    pub stands: bool,
}

/// Why nobody can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No node is configured for this host and path.
    #[error("no node serves this host and path")]
    NobodyServes,
    /// Those that are configured for it are down or draining.
    #[error("every node that serves this host and path is down or draining")]
    NobodyUp,
}

/// What those that may be chosen for a request can take together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Their weights.
    pub weight: u32,
    /// Requests that they have under way.
    pub active: u32,
    /// Whether they are near to the client.
    pub is_near: bool,
}

/// Why a node is a candidate, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It may be chosen.
    Candidate,
    /// So it may, as it's near to the client.
    Near,
    /// Another one is nearer to the client.
    Farther,
    /// It may be chosen, but its own replies don't reach all clients.
    Proxied(Detour),
    /// It's configured for other hosts or paths.
    ServesOther,
    /// It takes on nothing new.
    Draining,
    /// It isn't fit.
    Unfit(State),
    /// It was ejected, but nobody else is left.
    LastResort,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Standing::Candidate => f.write_str("may be chosen"),
            Standing::Near => f.write_str("may be chosen, near to the client"),
            Standing::Farther => f.write_str("another one is nearer to the client"),
            Standing::Proxied(detour) => write!(f, "may be chosen, {detour}"),
            Standing::ServesOther => f.write_str("serves other hosts or paths"),
            Standing::Draining => f.write_str("draining"),
            Standing::Unfit(state) => write!(f, "{state}"),
            Standing::LastResort => f.write_str("ejected, but nobody else is left"),
        }
    }
}

/// Chooses a node for each request.
pub struct Dispatcher {
    settings: Settings,
    keys: KeyMaker,
    policy: Box<dyn AnyPolicy>,
    /// By place; `None` where a node was removed.
    nodes: Vec<Option<Node>>,
    /// Nodes that serve the same.
    groups: Vec<(Serves, NodeSet)>,
    /// Of a generator that the host has seeded.
    random: u64,
    /// Kept for its memory.
    candidates: Vec<Candidate>,
    /// What requests are like, and what the ways cost.
    pub(super) expected: Expected,
    pub(super) costs: CostModel,
    /// Counts what outdates answers that were given to nodes.
    changes: u64,
    /// What can be done with a connection's first request.
    pub(super) first_ways: Ways,
    /// Whose connections nodes may have.
    pub(super) direct: Direct,
}

impl Dispatcher {
    /// A dispatcher without nodes. `cluster_key` is the same at all that should agree on content keys; `seed` differs at each.
    #[must_use]
    pub fn new(settings: Settings, cluster_key: &[u8; 32], seed: u64) -> Dispatcher {
        Dispatcher {
            policy: settings.policy.start(&settings.parameters),
            settings,
            keys: KeyMaker::new(cluster_key),
            nodes: Vec::new(),
            groups: Vec::new(),
            random: seed | 1,
            candidates: Vec::new(),
            expected: Expected::default(),
            costs: CostModel::default(),
            changes: 0,
            first_ways: Ways::of(&[Way::BornThere, Way::MovedThere, Way::Proxy]),
            direct: Direct::default(),
        }
    }

    /// Other settings from here on. A policy of another kind starts with nothing remembered.
    pub fn configure(&mut self, settings: Settings) {
        self.changes += 1;
        if settings.policy == self.settings.policy {
            self.policy.configure(&settings.parameters);
        } else {
            self.policy = settings.policy.start(&settings.parameters);
        }
        self.settings = settings;
    }

    /// What it goes by.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether nodes' own replies reach clients.
    #[must_use]
    pub fn direct(&self) -> &Direct {
        &self.direct
    }

    /// The same, to be told.
    pub fn direct_mut(&mut self) -> &mut Direct {
        &mut self.direct
    }

    /// These nodes and no others; past [`NODES_MAX`] they are left out. Those known by name keep their places, loads and health.
    pub fn set_nodes(&mut self, nodes: &[NodeSettings], now: Instant) {
        self.changes += 1;
        let nodes = &nodes[..nodes.len().min(NODES_MAX)];
        for place in &mut self.nodes {
            if place.as_ref().is_some_and(|node| nodes.iter().all(|settings| settings.name != node.name)) {
                *place = None;
            }
        }
        self.groups.clear();
        for settings in nodes {
            let weight = settings.weight.clamp(1, WEIGHT_MAX);
            let id = match self.find(&settings.name) {
                Some(id) => id,
                None => self.add(&settings.name, now),
            };
            if let Some(node) = self.node_mut(id) {
                node.weight = weight;
                node.near.clone_from(&settings.near);
            }
            match self.groups.iter_mut().find(|(serves, _)| *serves == settings.serves) {
                Some((_, set)) => *set = set.with(id),
                None => self.groups.push((settings.serves.clone(), NodeSet::EMPTY.with(id))),
            }
        }
    }

    fn add(&mut self, name: &str, now: Instant) -> NodeId {
        let node = Node {
            name: name.to_owned(),
            weight: 1,
            seed: self.keys.node(name),
            near: Vec::new(),
            is_draining: false,
            is_excused: false,
            health: Health::new(now),
            load: Load::default(),
            // Whoever had this place before isn't this node.
            forgotten: now,
        };
        let place = self.nodes.iter().position(Option::is_none).unwrap_or_else(|| {
            self.nodes.push(None);
            self.nodes.len() - 1
        });
        self.nodes[place] = Some(node);
        NodeId(place as u8)
    }

    /// The node of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.iter().find(|(_, node)| node.name == name).map(|(id, _)| id)
    }

    /// A node's name; empty when there is no such node any more.
    #[must_use]
    pub fn name(&self, node: NodeId) -> &str {
        self.node(node).map_or("", |node| &node.name)
    }

    fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().filter_map(|(place, node)| Some((NodeId(place as u8), node.as_ref()?)))
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.index())?.as_ref()
    }

    fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id.index())?.as_mut()
    }

    /// The node for a request. What the choice remembers is remembered; that the node is given the request is told by [`Dispatcher::begin`].
    ///
    /// # Errors
    ///
    /// There is no node for it.
    pub fn choose(&mut self, facts: &Facts<'_>, now: Instant) -> Result<Choice, Refusal> {
        let mut candidates = std::mem::take(&mut self.candidates);
        let chosen = self.candidates(facts, now, &mut candidates).map(|()| {
            let ask = self.ask(facts, &candidates, now);
            let plan = self.policy.plan(&ask);
            self.policy.commit(&ask, &plan);
            self.choice(&ask, &plan)
        });
        self.candidates = candidates;
        self.random = next_random(self.random);
        chosen
    }

    /// What [`Dispatcher::choose`] would say; nothing is remembered.
    pub(super) fn planned(&self, facts: &Facts<'_>, now: Instant) -> Result<Choice, Refusal> {
        let mut candidates = Vec::new();
        self.candidates(facts, now, &mut candidates)?;
        let ask = self.ask(facts, &candidates, now);
        let plan = self.policy.plan(&ask);
        Ok(self.choice(&ask, &plan))
    }

    /// The node that would have a request if `first` weren't there: it's asked where that one fails. Nothing is remembered, as content stays where it is.
    #[must_use]
    pub fn second(&self, facts: &Facts<'_>, first: NodeId, now: Instant) -> Option<NodeId> {
        let mut candidates = Vec::new();
        self.fit_of(self.serving(facts).without(first), facts, now, &mut candidates).ok()?;
        Some(self.policy.plan(&self.ask(facts, &candidates, now)).node)
    }

    fn choice(&self, ask: &Ask<'_>, plan: &Plan) -> Choice {
        // By a cookie a request may be dynamic whose content is static for others.
        let is_by_content = !ask.class.is_dynamic() && self.settings.rules.cookies.is_empty();
        let is_there = matches!(plan.why, Why::New | Why::Remembered(1) | Why::Hashed);
        let stands = ask.candidates.len() == 1 || plan.why == Why::Turn || is_by_content && is_there;
        Choice { node: plan.node, why: plan.why, class: ask.class, key: ask.key, stands }
    }

    /// What this server can do with a connection's first request; until told, everything.
    pub fn set_first_ways(&mut self, ways: Ways) {
        self.first_ways = ways;
    }

    /// The node for a connection of which nobody knows what it will bring.
    ///
    /// # Errors
    /// There is no node.
    pub fn choose_any(&mut self, now: Instant) -> Result<NodeId, Refusal> {
        let anything = Facts { path: b"/", ..Facts::default() };
        self.choose_of(self.serving(&anything), now)
    }

    fn choose_of(&mut self, nodes: NodeSet, now: Instant) -> Result<NodeId, Refusal> {
        let mut candidates = std::mem::take(&mut self.candidates);
        let chosen = self.fit_of(nodes, &Facts::default(), now, &mut candidates);
        self.random = next_random(self.random);
        // As if each were content of its own, nowhere yet: by load, and evenly where that's equal.
        let (key, class, random) = (ContentKey(self.random), Class::Dynamic(Rule::Method), self.random);
        let plan = chosen.map(|()| {
            let ask = Ask { key, class, candidates: &candidates, random, now };
            let plan = self.policy.plan(&ask);
            self.policy.commit(&ask, &plan);
            plan.node
        });
        self.candidates = candidates;
        plan
    }

    /// The same where a node has it, has been asked for it and has nothing to do for it: it stays there if that node may be chosen. Moved for nothing it could
    /// come to one that is about to stop. Where each node serves some hosts or paths only, any may have it until it's asked for something.
    ///
    /// # Errors
    /// There is no node.
    pub fn choose_for_idle(&mut self, holder: Option<NodeId>, now: Instant) -> Result<NodeId, Refusal> {
        let anything = Facts { path: b"/", ..Facts::default() };
        if let Some(holder) = holder.filter(|holder| self.may_choose(*holder, &anything, now)) {
            return Ok(holder);
        }
        let chosen = self.choose_any(now);
        if chosen != Err(Refusal::NobodyServes) {
            return chosen;
        }
        let all = self.groups.iter().fold(NodeSet::EMPTY, |all, (_, nodes)| all.or(*nodes));
        self.choose_of(all, now)
    }

    /// What those that may be chosen for a request can take; nothing if there is none.
    pub fn capacity(&mut self, facts: &Facts<'_>, now: Instant) -> Capacity {
        let mut candidates = std::mem::take(&mut self.candidates);
        let is_any = self.candidates(facts, now, &mut candidates).is_ok();
        let (share, active) = candidates.iter().filter(|_| is_any).fold((0, 0_u32), |(share, active), candidate| {
            (share + candidate.share / 1000, active.saturating_add(candidate.active))
        });
        let is_near = is_any && candidates.first().is_some_and(|first| self.nearness(first.id, facts).is_some());
        self.candidates = candidates;
        Capacity { weight: u32::try_from(share).unwrap_or(u32::MAX), active, is_near }
    }

    /// Whether it may count who asks: some node is near to some clients.
    #[must_use]
    pub fn goes_by_client(&self) -> bool {
        self.iter().any(|(_, node)| !node.near.is_empty())
    }

    fn nearness(&self, id: NodeId, facts: &Facts<'_>) -> Option<u8> {
        facts.client.zip(self.node(id)).and_then(|(client, node)| node.nearness(client))
    }

    fn ask<'a>(&self, facts: &Facts<'_>, candidates: &'a [Candidate], now: Instant) -> Ask<'a> {
        let (key, class) = (self.keys.content(facts), self.settings.rules.classify(facts));
        Ask { key, class, candidates, random: next_random(self.random), now }
    }

    /// Whether a node has memory for more contents than it's given.
    pub(super) fn has_memory(&self, id: NodeId, now: Instant) -> bool {
        self.node(id).is_some_and(|node| node.load.has_memory(now, self.settings.report_age))
    }

    /// Who else may be chosen.
    pub(super) fn others(&self, node: NodeId, facts: &Facts<'_>, now: Instant) -> Vec<NodeId> {
        let mut candidates = Vec::new();
        let _ = self.candidates(facts, now, &mut candidates);
        candidates.into_iter().map(|candidate| candidate.id).filter(|id| *id != node).collect()
    }

    /// Fills in who may be chosen.
    pub(super) fn candidates(
        &self,
        facts: &Facts<'_>,
        now: Instant,
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), Refusal> {
        self.fit_of(self.serving(facts), facts, now, candidates)
    }

    /// Fills in who of some nodes may be chosen.
    fn fit_of(
        &self,
        nodes: NodeSet,
        facts: &Facts<'_>,
        now: Instant,
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), Refusal> {
        candidates.clear();
        if nodes.is_empty() {
            return Err(Refusal::NobodyServes);
        }
        let fit = |wanted: fn(State) -> bool| {
            let nodes = nodes.iter().filter_map(|id| Some((id, self.node(id)?)));
            nodes.filter(move |(_, node)| !node.is_draining && wanted(node.health.state(now)))
        };
        candidates.extend(fit(|state| state == State::Up).map(|(id, node)| self.candidate(id, node, now)));
        if candidates.is_empty() {
            let ejected = fit(|state| matches!(state, State::Ejected(_)));
            candidates.extend(ejected.map(|(id, node)| self.candidate(id, node, now)));
        }
        // Of several, those that are nearest to the client; all where none is near.
        if let Some(nearest) = candidates.iter().filter_map(|candidate| self.nearness(candidate.id, facts)).max() {
            candidates.retain(|candidate| self.nearness(candidate.id, facts) == Some(nearest));
        }
        if candidates.is_empty() { Err(Refusal::NobodyUp) } else { Ok(()) }
    }

    /// Whether no node may be chosen, whatever the request.
    #[must_use]
    pub fn is_nobody_up(&self, now: Instant) -> bool {
        let is_fit = |state| matches!(state, State::Up | State::Ejected(_));
        !self.iter().any(|(_, node)| !node.is_draining && is_fit(node.health.state(now)))
    }

    /// Whether a node is among those that may be chosen.
    #[must_use]
    pub fn may_choose(&self, id: NodeId, facts: &Facts<'_>, now: Instant) -> bool {
        let mut candidates = Vec::new();
        self.candidates(facts, now, &mut candidates).is_ok() && candidates.iter().any(|candidate| candidate.id == id)
    }

    /// Whether the policy remembers the content at that node.
    pub(super) fn has_content(&self, key: ContentKey, id: NodeId) -> bool {
        let entry = self.policy.table().and_then(|table| table.get(key));
        entry.is_some_and(|entry| entry.nodes.contains(id))
    }

    /// Whether not every node may have every request.
    #[must_use]
    pub fn serve_different_things(&self) -> bool {
        self.groups.len() > 1
    }

    pub(super) fn keys(&self) -> &KeyMaker {
        &self.keys
    }

    /// Counts up whenever what nodes were told of contents may be wrong: the policy, the weights or the nodes have changed, or those that may
    /// be chosen, or have memory for more.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether a node is configured for a request, however it is.
    #[must_use]
    pub fn serves(&self, id: NodeId, facts: &Facts<'_>) -> bool {
        self.serving(facts).contains(id)
    }

    fn serving(&self, facts: &Facts<'_>) -> NodeSet {
        let groups = self.groups.iter().filter(|(serves, _)| serves.has(facts));
        groups.fold(NodeSet::EMPTY, |all, (_, nodes)| all.or(*nodes))
    }

    fn candidate(&self, id: NodeId, node: &Node, now: Instant) -> Candidate {
        let age_max = self.settings.report_age;
        Candidate {
            id,
            seed: node.seed,
            share: u64::from(node.weight) * node.health.share_permille(&self.settings.health, now),
            active: node.load.active(now, age_max),
            unheard: node.load.unheard(),
            busy_permille: node.load.busy_permille(now, age_max),
            forgotten: node.forgotten,
        }
    }

    /// `node` was given a request.
    pub fn begin(&mut self, node: NodeId) {
        if let Some(node) = self.node_mut(node) {
            node.load.begin();
        }
    }

    /// `node` was given a request of whose end nothing will be heard: only the node's reports tell what it has to do.
    pub fn begin_unheard(&mut self, node: NodeId) {
        if let Some(node) = self.node_mut(node) {
            node.load.begin_unheard();
        }
    }

    /// A request that `node` was given has ended. True when the node has just been ejected because of it.
    pub fn end(&mut self, id: NodeId, outcome: Outcome, now: Instant) -> bool {
        let health = self.settings.health;
        let is_excused = || self.node(id).is_some_and(|node| node.is_excused) && self.direct.is_crowded(id, now);
        let outcome = if outcome == Outcome::Failed && is_excused() { Outcome::Unknown } else { outcome };
        let may_be_ejected = outcome == Outcome::Failed && self.may_eject(id, now);
        let Some(node) = self.node_mut(id) else { return false };
        node.load.end();
        node.health.request_ended(outcome, may_be_ejected, &health, now)
    }

    /// Whether one more node may be ejected.
    fn may_eject(&self, id: NodeId, now: Instant) -> bool {
        let out = self.iter().filter(|(other, node)| *other != id && node.health.state(now) != State::Up).count();
        (out + 1) * 100 <= self.iter().count() * EJECTED_PERCENT_MAX
    }

    /// A node has had no room for connections that were to begin there. One that says so itself, as it's `leat`, does what it can, and what it fails to take is no
    /// reason to eject it: others would have that to do as well. A server whose queue is full for an agent beside it may be standing still.
    pub fn had_no_room(&mut self, id: NodeId, is_leat: bool, now: Instant) {
        self.direct.was_crowded(id, now);
        if let Some(node) = self.node_mut(id) {
            node.is_excused = is_leat;
        }
    }

    /// `node` has said how much it has to do.
    pub fn report(&mut self, node: NodeId, report: LoadReport, now: Instant) {
        let age_max = self.settings.report_age;
        if let Some(node) = self.node_mut(node) {
            let had_memory = node.load.has_memory(now, age_max);
            node.load.report(report, now);
            self.changes += u64::from(had_memory != report.has_memory);
        }
    }

    /// A node that is to be probed now. Each is told once; [`Dispatcher::probe_ended`] says what came of it, a time-out included.
    pub fn poll_probe(&mut self, now: Instant) -> Option<NodeId> {
        let health = self.settings.health;
        let due = self
            .nodes
            .iter_mut()
            .position(|node| node.as_mut().is_some_and(|node| node.health.begin_probe(&health, now)));
        due.map(|place| NodeId(place as u8))
    }

    /// When [`Dispatcher::poll_probe`] has something to say next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.iter().filter_map(|(_, node)| node.health.probe_at(&self.settings.health)).min()
    }

    /// Tells what came of a probe. True when the node has just gone down.
    pub fn probe_ended(&mut self, id: NodeId, is_well: bool, now: Instant) -> bool {
        let health = self.settings.health;
        self.change(id, now, |node| node.health.probe_ended(is_well, &health, now))
    }

    /// A probe couldn't be made, for want of something of this machine's: another is due at its time.
    pub fn drop_probe(&mut self, id: NodeId) {
        if let Some(node) = self.node_mut(id) {
            node.health.drop_probe();
        }
    }

    /// Tells what a node's own checks have come to. True when the node has just gone down.
    pub fn told_failing(&mut self, id: NodeId, is_failing: bool, now: Instant) -> bool {
        self.change(id, now, |node| node.health.told_failing(is_failing, now))
    }

    /// Tells of the link to a node. True when the node has just gone down.
    pub fn link_changed(&mut self, id: NodeId, is_up: bool, now: Instant) -> bool {
        self.change(id, now, |node| node.health.link_changed(is_up, now))
    }

    /// A node has nothing before its first link is there.
    pub fn await_link(&mut self, id: NodeId, now: Instant) {
        if let Some(node) = self.node_mut(id) {
            node.health.await_link(now);
        }
    }

    /// Whether the link to a node is lost.
    #[must_use]
    pub fn is_unlinked(&self, id: NodeId, now: Instant) -> bool {
        self.node(id).is_some_and(|node| node.health.state(now) == State::Unlinked)
    }

    /// Has `node` take on nothing new, or lets it again.
    pub fn set_draining(&mut self, id: NodeId, is_draining: bool, now: Instant) {
        self.change(id, now, |node| !std::mem::replace(&mut node.is_draining, is_draining) && is_draining);
    }

    /// Whether it takes on nothing new.
    #[must_use]
    pub fn is_draining(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| node.is_draining)
    }

    /// Another weight until the nodes are set anew.
    pub fn set_weight(&mut self, id: NodeId, weight: u32) {
        self.changes += 1;
        if let Some(node) = self.node_mut(id) {
            node.weight = weight.clamp(1, WEIGHT_MAX);
        }
    }

    /// How many nodes say of themselves that they aren't well.
    #[must_use]
    pub fn unwell(&self) -> usize {
        self.iter().filter(|(_, node)| node.health.is_unwell()).count()
    }

    /// What is remembered of a node that has just gone is forgotten. Once it's back, so is what nodes were told without it.
    fn change(&mut self, id: NodeId, now: Instant, change: impl FnOnce(&mut Node) -> bool) -> bool {
        let Some(node) = self.node_mut(id) else { return false };
        let is_in = |node: &Node| !node.is_draining && node.health.state(now) == State::Up;
        let was_in = is_in(node);
        let has_gone = change(node);
        if has_gone {
            node.forgotten = now;
        }
        let is_back = !was_in && is_in(node);
        self.changes += u64::from(has_gone || is_back);
        has_gone
    }

    /// Where a request would go and why; nothing is changed by asking.
    #[must_use]
    pub fn explain(&self, facts: &Facts<'_>, now: Instant) -> Explanation {
        let mut candidates = Vec::new();
        let allowed = self.candidates(facts, now, &mut candidates);
        let ask = self.ask(facts, &candidates, now);
        let entry = self.policy.table().and_then(|table| table.get(ask.key)).copied();
        let chosen = allowed.map(|()| self.policy.plan(&ask));
        let ways =
            chosen.as_ref().map(|plan| self.explain_ways(facts, &self.choice(&ask, plan), now)).unwrap_or_default();
        let serving = self.serving(facts);
        let standing = |id: NodeId, node: &Node| {
            let is_candidate = candidates.iter().any(|c| c.id == id);
            match node.health.state(now) {
                _ if !serving.contains(id) => Standing::ServesOther,
                _ if node.is_draining => Standing::Draining,
                State::Up if !is_candidate => Standing::Farther,
                State::Up if self.nearness(id, facts).is_some() => {
                    self.direct.detour(id).map_or(Standing::Near, Standing::Proxied)
                }
                State::Up => self.candidate_standing(id),
                _ if is_candidate => Standing::LastResort,
                state => Standing::Unfit(state),
            }
        };
        let goes_by_content = !ask.class.is_dynamic() && self.settings.policy.goes_by_content();
        let goes_by_host = self.groups.iter().any(|(serves, _)| serves.goes_by_host());
        Explanation {
            class: ask.class,
            key: ask.key,
            policy: self.settings.policy,
            lacks_host: facts.host.is_empty() && (goes_by_content || goes_by_host),
            chosen: chosen.map(|Plan { node, why, .. }| (self.name(node).to_owned(), why)),
            ways,
            entry: entry.map(|entry| (self.names(entry.nodes), now.since(entry.used))),
            nodes: self.iter().map(|(id, node)| self.line(node, standing(id, node), now)).collect(),
        }
    }

    /// Every node as it is now, in the order of their places.
    pub fn nodes(&self, now: Instant) -> impl Iterator<Item = NodeLine> {
        self.iter().map(move |(id, node)| {
            let standing = match node.health.state(now) {
                _ if node.is_draining => Standing::Draining,
                State::Up => self.candidate_standing(id),
                state => Standing::Unfit(state),
            };
            self.line(node, standing, now)
        })
    }

    fn candidate_standing(&self, id: NodeId) -> Standing {
        self.direct.detour(id).map_or(Standing::Candidate, Standing::Proxied)
    }

    fn line(&self, node: &Node, standing: Standing, now: Instant) -> NodeLine {
        let age_max = self.settings.report_age;
        NodeLine {
            name: node.name.clone(),
            standing,
            weight: node.weight,
            share_permille: node.health.share_permille(&self.settings.health, now),
            active: node.load.active(now, age_max),
            busy_permille: node.load.busy_permille(now, age_max),
            report_age: node.load.report_age(now),
        }
    }

    /// What the policy remembers of contents, last used first; nothing under a policy without a table.
    pub fn table(&self) -> impl Iterator<Item = &TableEntry> {
        self.policy.table().into_iter().flat_map(super::table::Table::iter)
    }

    /// How many contents are remembered, and the memory that takes in bytes.
    #[must_use]
    pub fn table_size(&self) -> (usize, usize) {
        self.policy.table().map_or((0, 0), |table| (table.len(), table.bytes()))
    }

    /// The names of `nodes`.
    #[must_use]
    pub fn names(&self, nodes: NodeSet) -> Vec<String> {
        nodes.iter().filter_map(|id| self.node(id)).map(|node| node.name.clone()).collect()
    }
}

/// Xorshift (Marsaglia, 2003).
fn next_random(mut random: u64) -> u64 {
    random ^= random << 13;
    random ^= random >> 7;
    random ^ (random << 17)
}

#[cfg(test)]
mod tests;
