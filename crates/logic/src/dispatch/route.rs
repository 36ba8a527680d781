//! By which way a request is served that belongs to a node: the dispatcher's choice and the cost model's decision joined, for the first request
//! of a connection and for each that follows on the node that has it.

use std::net::IpAddr;
use std::time::Duration;

use super::cost::{Because, Decision, Place, Side, Situation, Way, Ways, Work};
use super::direct::Whom;
use super::dispatcher::{Choice, Dispatcher, Refusal, Settings};
use super::facts::{ContentKey, Facts};
use super::node::NodeId;
use super::policy::{Candidate, PolicyKind, PolicySettings, Why};
use crate::time::Instant;

/// Whether a connection goes to the node of its first request, or that request is proxied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandOver {
    /// Wherever it can: the dispatcher is what limits a cluster.
    #[default]
    Always,
    /// If that takes less CPU time of the whole system, by what was measured.
    WhenCheaper,
    /// Never.
    Never,
}

impl HandOver {
    /// What is left of what could be done with a connection's first request.
    fn narrow(self, possible: Ways) -> Ways {
        let gives = possible.and(Ways::of(&[Way::BornThere, Way::MovedThere]));
        match self {
            HandOver::Always if gives != Ways::default() => gives,
            HandOver::Never => possible.and(Ways::of(&[Way::Proxy])),
            HandOver::Always | HandOver::WhenCheaper => possible,
        }
    }
}

/// Where a request has come to.
#[derive(Clone, Copy, Debug)]
pub struct Whence {
    /// The node that has its connection; `None` for the dispatcher.
    pub holder: Option<NodeId>,
    /// Who asks, if a node's own replies may not reach everybody.
    pub client: Option<IpAddr>,
    /// Requests that the connection has had before.
    pub had: u32,
    /// What can be done if it doesn't belong to its holder.
    pub possible: Ways,
}

/// What is to be done with a request.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The node that it belongs to.
    pub choice: Choice,
    /// How it gets there.
    pub decision: Decision,
}

/// How long nodes may go by what they were answered: content that is asked for all the time must stay in the table.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

impl Dispatcher {
    /// The node for a request and the way to it. Remembers what [`Dispatcher::choose`] remembers.
    ///
    /// # Errors
    /// There is no node for it.
    pub fn route(&mut self, facts: &Facts<'_>, whence: &Whence, now: Instant) -> Result<Route, Refusal> {
        let choice = match self.kept(facts, whence, now) {
            Some(choice) => choice,
            None => {
                let choice = self.choose(facts, now)?;
                // Of several that have the content, the one that has the connection.
                let holder = whence.holder.filter(|holder| self.has_content(choice.key, *holder));
                Choice { node: holder.unwrap_or(choice.node), ..choice }
            }
        };
        let is_heard = whence.client.is_none_or(|client| self.direct.allows(choice.node, client, now));
        let possible = if is_heard { whence.possible } else { whence.possible.and(Ways::of(&NOT_DIRECT)) };
        let situation = self.situation(facts, &choice, &Whence { possible, ..*whence }, now);
        if whence.holder.is_some() {
            let site = self.keys().site(facts);
            self.expected.followed(site, situation.is_here);
        }
        let decision = self.costs.decide(&situation).unwrap_or(ONLY_PROXY);
        Ok(Route { choice, decision })
    }

    /// A request that may go anywhere, as its content does: where its connection is.
    fn kept(&self, facts: &Facts<'_>, whence: &Whence, now: Instant) -> Option<Choice> {
        let (holder, class) = (whence.holder?, self.settings().rules.classify(facts));
        let is_anywhere = class.is_dynamic() || !self.settings().policy.goes_by_content();
        let key = self.keys().content(facts);
        (is_anywhere && self.may_choose(holder, facts, now)).then_some(Choice {
            node: holder,
            why: Why::HasConnection,
            class,
            key,
            stands: false,
        })
    }

    /// Whether the node that has a connection serves a request whose content is at another: where that takes memory from nothing, and it has little to do, or no more
    /// than the other. Handing the connection on, or fetching the reply, would be for nothing.
    fn may_stay(&self, holder: NodeId, choice: &Choice, facts: &Facts<'_>, now: Instant) -> bool {
        let Settings { policy, parameters: PolicySettings { mix_lard, .. }, .. } = self.settings();
        if *policy != PolicyKind::MixLard
            || !mix_lard.may_stay
            || choice.class.is_dynamic()
            || !self.has_memory(holder, now)
        {
            return false;
        }
        let mut candidates = Vec::new();
        if self.candidates(facts, now, &mut candidates).is_err() {
            return false;
        }
        let load = |id| candidates.iter().find(|candidate| candidate.id == id).map(Candidate::load);
        load(holder).is_some_and(|has| {
            has <= u64::from(mix_lard.load_low) || load(choice.node).is_some_and(|other| has <= other)
        })
    }

    fn situation(&self, facts: &Facts<'_>, choice: &Choice, whence: &Whence, now: Instant) -> Situation {
        let site = self.keys().site(facts);
        let is_at_holder = whence.holder == Some(choice.node);
        let may_stay = !is_at_holder && whence.holder.is_some_and(|holder| self.may_stay(holder, choice, facts, now));
        let requests_left = self.expected.requests_left(site, whence.had);
        Situation {
            place: if whence.holder.is_some() { Place::Node } else { Place::Dispatcher },
            possible: match whence.holder {
                _ if is_at_holder => Ways::of(&[Way::Stay]),
                Some(_) if may_stay => whence.possible.or(Ways::of(&[Way::Stay])),
                Some(_) => whence.possible,
                None => self.settings().hand_over.narrow(whence.possible),
            },
            reply_bytes: self.expected.reply_bytes(choice.key, site),
            requests_left,
            run_left: self.expected.run_left(site, requests_left),
            is_here: is_at_holder || may_stay,
        }
    }

    /// What [`Dispatcher::route`] would decide for a request that belongs to `choice`, as a connection's first and on another node's connection.
    pub(super) fn explain_ways(&self, facts: &Facts<'_>, choice: &Choice, now: Instant) -> Vec<(Place, Decision)> {
        let others = self.others(choice.node, facts, now);
        let may_stay = !others.is_empty() && others.into_iter().all(|other| self.may_stay(other, choice, facts, now));
        let stays = if may_stay { Ways::of(&[Way::Stay]) } else { Ways::default() };
        let next = Ways::of(&[Way::MovedThere, Way::Fetch]).or(stays);
        let at = |place, possible| {
            let whence = Whence { holder: None, client: None, had: 0, possible };
            let is_here = may_stay && place == Place::Node;
            let situation = Situation { place, possible, is_here, ..self.situation(facts, choice, &whence, now) };
            self.costs.explain(&situation)
        };
        let is_heard = self.direct.detour(choice.node).is_none_or(|detour| matches!(detour.whom, Whom::Prefix(_)));
        let first = at(Place::Dispatcher, self.first_ways).map(|free| {
            if !is_heard {
                return Decision { way: Way::Proxy, because: Because::Unheard, ..free };
            }
            let narrowed = at(Place::Dispatcher, self.settings().hand_over.narrow(self.first_ways));
            match narrowed {
                Some(told) if told.way != free.way => Decision { way: told.way, because: Because::Told, ..free },
                _ => free,
            }
        });
        let next = at(Place::Node, next);
        let named = |place| move |decision| (place, decision);
        first.map(named(Place::Dispatcher)).into_iter().chain(next.map(named(Place::Node))).collect()
    }

    /// The node at which a client's connection begins that nobody has yet. `None`: its first request is proxied, or there is no node for it. Remembers what
    /// [`Dispatcher::choose`] remembers, but only of a connection that begins there.
    pub fn bear(&mut self, facts: &Facts<'_>, client: IpAddr, now: Instant) -> Option<Choice> {
        let possible = Ways::of(&[Way::BornThere, Way::Proxy]);
        let left = self.settings().hand_over.narrow(possible);
        if !self.direct.allows_all() && !self.direct.allows(self.planned(facts, now).ok()?.node, client, now) {
            return None;
        }
        if left.contains(Way::Proxy) {
            let choice = self.planned(facts, now).ok()?;
            let whence = Whence { holder: None, client: None, had: 0, possible };
            let situation = self.situation(facts, &choice, &whence, now);
            if self.costs.decide(&situation)?.way != Way::BornThere {
                return None;
            }
        }
        self.choose(facts, now).ok()
    }

    /// Whether nodes have to ask for the requests that follow a connection's first, and how long an answer holds.
    #[must_use]
    pub fn answers_hold(&self) -> Option<Duration> {
        let time = self.settings().parameters.mix_lard.entry_time / 4;
        (self.settings().policy.goes_by_content() || self.serve_different_things()).then_some(time.min(ANSWER_TIME_MAX))
    }

    /// A reply for this content had so many bytes.
    pub fn replied(&mut self, content: ContentKey, bytes: u64) {
        self.expected.replied(content, ContentKey::default(), bytes);
    }

    /// A connection has ended after so many requests.
    pub fn connection_ended(&mut self, requests: u32) {
        self.expected.connection_ended(ContentKey::default(), requests);
    }

    /// A piece of work took so much processor time.
    pub fn measured(&mut self, work: Work, side: Side, reply_bytes: u64, cpu: Duration) {
        self.costs.measured(work, side, reply_bytes, cpu);
    }
}

/// What can be done where a node's own replies don't reach the client.
const NOT_DIRECT: [Way; 2] = [Way::Proxy, Way::Fetch];

/// When nothing is said to be possible: whoever has the connection asks the node.
const ONLY_PROXY: Decision =
    Decision { way: Way::Proxy, because: Because::Only, estimates: [None; Way::ALL.len()], requests: 1.0 };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::direct::Family;
    use crate::dispatch::{DynamicRules, LoadReport, NodeSettings, PolicyKind, Serves, Settings};

    fn dispatcher(policy: PolicyKind) -> Dispatcher {
        let rules = DynamicRules { methods: vec!["POST".into()], ..DynamicRules::default() };
        let mut dispatcher = Dispatcher::new(Settings { policy, rules, ..Settings::default() }, &[7; 32], 1);
        let node =
            |name: &str| NodeSettings { name: name.into(), weight: 100, serves: Serves::default(), near: Vec::new() };
        dispatcher.set_nodes(&[node("a"), node("b"), node("c")], Instant::default());
        dispatcher
    }

    fn facts(path: &str) -> Facts<'_> {
        Facts { method: b"GET", path: path.as_bytes(), ..Facts::default() }
    }

    fn whence(holder: NodeId) -> Whence {
        let possible = Ways::of(&[Way::MovedThere, Way::Fetch]);
        Whence { holder: Some(holder), client: None, had: 1, possible }
    }

    #[test]
    fn the_next_request_stays_where_its_content_is_and_else_the_model_decides() {
        let mut dispatcher = dispatcher(PolicyKind::MixLard);
        let now = Instant { ns: 1 };
        let home = dispatcher.choose(&facts("/x.html"), now).unwrap().node;
        let other = ["a", "b", "c"].map(|name| dispatcher.find(name).unwrap()).into_iter().find(|node| *node != home);
        let stays = dispatcher.route(&facts("/x.html"), &whence(home), now).unwrap();
        assert_eq!((stays.choice.node, stays.decision.way), (home, Way::Stay));
        let key = stays.choice.key;
        for _ in 0..10 {
            dispatcher.replied(key, 1_000);
        }
        let small = dispatcher.route(&facts("/x.html"), &whence(other.unwrap()), now).unwrap();
        assert_eq!((small.choice.node, small.decision.way), (home, Way::Fetch), "{}", small.decision);
        for _ in 0..20 {
            dispatcher.replied(key, 1 << 20);
        }
        let large = dispatcher.route(&facts("/x.html"), &whence(other.unwrap()), now).unwrap();
        assert_eq!(large.decision.way, Way::MovedThere, "{}", large.decision);
    }

    #[test]
    fn the_next_request_stays_where_there_is_memory_for_it_and_little_to_do() {
        let mut dispatcher = dispatcher(PolicyKind::MixLard);
        let now = Instant { ns: 1 };
        let home = dispatcher.choose(&facts("/x.html"), now).unwrap().node;
        let nodes = ["a", "b", "c"].map(|name| dispatcher.find(name).unwrap());
        let holder = nodes.into_iter().find(|node| *node != home).unwrap();
        let low = dispatcher.settings().parameters.mix_lard.load_low;
        let report = |active, has_memory| LoadReport { active, has_memory, ..LoadReport::default() };
        let way = |dispatcher: &mut Dispatcher| {
            let key = dispatcher.planned(&facts("/x.html"), now).unwrap().key;
            dispatcher.replied(key, 1_000);
            dispatcher.route(&facts("/x.html"), &whence(holder), now).unwrap().decision.way
        };
        let tell = |dispatcher: &mut Dispatcher, home_active, active, has_memory| {
            dispatcher.report(home, report(home_active, true), now);
            dispatcher.report(holder, report(active, has_memory), now);
        };
        assert_eq!(way(&mut dispatcher), Way::Fetch, "nothing is known of its memory");
        let changes = dispatcher.changes();
        tell(&mut dispatcher, 0, low, true);
        assert_eq!(way(&mut dispatcher), Way::Stay);
        assert!(dispatcher.changes() > changes, "nodes forget what they were told before");
        let changes = dispatcher.changes();
        tell(&mut dispatcher, 0, low + 1, true);
        assert_eq!(
            (way(&mut dispatcher), dispatcher.changes()),
            (Way::Fetch, changes),
            "it has more to do than the other"
        );
        tell(&mut dispatcher, low + 1, low + 1, true);
        assert_eq!(way(&mut dispatcher), Way::Stay);
        tell(&mut dispatcher, low + 1, low + 1, false);
        assert_eq!(way(&mut dispatcher), Way::Fetch);
        tell(&mut dispatcher, 0, 0, true);
        let said = dispatcher.explain(&facts("/x.html"), now).to_string();
        assert!(!said.contains("stay"), "the third has said nothing: {said}");
        nodes.into_iter().for_each(|node| dispatcher.report(node, report(0, true), now));
        let said = dispatcher.explain(&facts("/x.html"), now).to_string();
        assert!(said.contains("stay: it takes the least CPU time (stay 0 us, moved_there "), "{said}");
        let mut settings = dispatcher.settings().clone();
        settings.parameters.mix_lard.may_stay = false;
        dispatcher.configure(settings.clone());
        assert_eq!(way(&mut dispatcher), Way::Fetch, "it isn't wanted");
        settings.parameters.mix_lard.may_stay = true;
        dispatcher.configure(Settings { policy: PolicyKind::ConsistentHash, ..settings });
        let hashed = dispatcher.choose(&facts("/x.html"), now).unwrap().node;
        let other = nodes.into_iter().find(|node| *node != hashed).unwrap();
        let route = dispatcher.route(&facts("/x.html"), &whence(other), now).unwrap();
        assert_ne!(route.decision.way, Way::Stay, "by another policy content has its node");
    }

    #[test]
    fn a_first_request_is_handed_over_as_it_is_configured_and_else_as_the_model_says() {
        let now = Instant { ns: 1 };
        let (page, possible) = (facts("/x.html"), Ways::of(&[Way::MovedThere, Way::Proxy]));
        let decide = |hand_over, bytes, born_us| {
            let mut dispatcher = dispatcher(PolicyKind::RoundRobin);
            dispatcher.configure(Settings { hand_over, ..dispatcher.settings().clone() });
            let key = dispatcher.planned(&page, now).unwrap().key;
            dispatcher.replied(key, bytes);
            dispatcher.connection_ended(1);
            // What the dispatcher has of it, it has of a connection that begins there as well.
            dispatcher.measured(Work::Born, Side::Dispatcher, 0, Duration::from_micros(60));
            dispatcher.measured(Work::Born, Side::Node, 0, Duration::from_micros(born_us));
            dispatcher.measured(Work::Moved, Side::Dispatcher, 0, Duration::from_micros(43));
            dispatcher.measured(
                Work::Proxied,
                Side::Dispatcher,
                bytes,
                Duration::from_micros(42 + (bytes >> 10) * 36 / 100),
            );
            let whence = Whence { holder: None, client: None, had: 0, possible };
            let moved = dispatcher.route(&page, &whence, now).unwrap();
            let born = dispatcher.bear(&page, IpAddr::from([198, 18, 0, 1]), now).map(|choice| choice.node);
            let said = dispatcher.explain(&page, now).to_string();
            let line = said.lines().find(|line| line.contains("first request")).unwrap_or_default().trim().to_owned();
            // A connection that isn't born takes no node's turn.
            let next = dispatcher.choose(&page, now).unwrap().node;
            assert_ne!(next, born.unwrap_or(moved.choice.node), "they take turns");
            (moved.decision.way, born.is_some(), line)
        };
        let (way, is_born, line) = decide(HandOver::Always, 1_000, 6);
        assert_eq!((way, is_born), (Way::MovedThere, true));
        assert!(
            line.starts_with("as a connection's first request: born_there: it takes the least CPU time (born_there "),
            "{line}"
        );
        let (way, is_born, line) = decide(HandOver::Never, 1 << 20, 6);
        assert_eq!((way, is_born), (Way::Proxy, false));
        assert!(line.contains("proxy: `hand_over` in [cluster] says so (born_there "), "{line}");
        assert_eq!(decide(HandOver::WhenCheaper, 1_000, 6).0, Way::Proxy, "small, and the only one of its connection");
        assert_eq!(decide(HandOver::WhenCheaper, 1 << 20, 6).0, Way::MovedThere);
        assert!(decide(HandOver::WhenCheaper, 1_000, 6).1, "that is cheap");
        let (_, is_born, line) = decide(HandOver::WhenCheaper, 1_000, 190);
        assert!(
            !is_born && line.contains("request: proxy: it takes the least CPU time"),
            "it was measured otherwise: {line}"
        );
    }

    #[test]
    fn a_node_that_clients_do_not_hear_is_proxied() {
        let mut dispatcher = dispatcher(PolicyKind::RoundRobin);
        let page = facts("/x.html");
        let mut now = Instant { ns: 1 };
        let node = dispatcher.planned(&page, now).unwrap().node;
        dispatcher.direct_mut().begin_probes(node, &[Family::V4], now);
        while dispatcher.direct_mut().poll_event().is_none() {
            dispatcher.direct_mut().probe_sent(node, Family::V4);
            dispatcher.direct_mut().poll_probe(now);
            now = now.after(Duration::from_millis(50));
        }
        let clients = ["198.18.0.1", "2001:db8::1"].map(|client| client.parse::<IpAddr>().unwrap());
        let said = dispatcher.explain(&page, now).to_string();
        assert!(said.contains("first request: proxy: clients don't hear the node's own replies ("), "{said}");
        assert!(
            said.contains("may be chosen, proxied for all IPv4 clients: what it sends under the VIP doesn't get"),
            "{said}"
        );
        let possible = Ways::of(&[Way::MovedThere, Way::Proxy]);
        let born = clients.map(|client| dispatcher.bear(&page, client, now).map(|choice| choice.node));
        assert_eq!(born, [None, Some(node)]);
        let mut ways = Vec::new();
        for _ in 0..3 {
            let whence = Whence { holder: None, client: Some(clients[0]), had: 0, possible };
            let route = dispatcher.route(&page, &whence, now).unwrap();
            ways.push((route.choice.node == node, route.decision.way));
        }
        assert_eq!(ways, [(false, Way::MovedThere), (false, Way::MovedThere), (true, Way::Proxy)]);
    }

    #[test]
    fn what_may_go_anywhere_stays_where_its_connection_is() {
        let posted = Facts { method: b"POST", ..facts("/app") };
        for policy in [PolicyKind::MixLard, PolicyKind::RoundRobin] {
            let mut dispatcher = dispatcher(policy);
            let now = Instant { ns: 1 };
            for name in ["a", "b", "c"] {
                let holder = dispatcher.find(name).unwrap();
                let route = dispatcher.route(&posted, &whence(holder), now).unwrap();
                assert_eq!((route.choice.node, route.decision.way), (holder, Way::Stay), "{policy}");
            }
            let holder = dispatcher.find("a").unwrap();
            dispatcher.set_draining(holder, true, now);
            let route = dispatcher.route(&posted, &whence(holder), now).unwrap();
            assert_ne!(route.choice.node, holder, "it drains");
        }
        assert_eq!(dispatcher(PolicyKind::RoundRobin).answers_hold(), None);
        assert!(dispatcher(PolicyKind::MixLard).answers_hold().is_some());
    }
}
