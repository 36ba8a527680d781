//! The comparison of the ways: CPU time of the whole system for what may be expected of a connection, and latency between equals. Where the
//! expectations come from is `expected`'s, what a piece of work costs `curve`'s.

use std::fmt;
use std::time::Duration;

use super::curve::{Curve, Prior, Side};

/// How a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By the node that has the connection.
    Stay,
    /// The connection is born at the node: the request's packet goes there (`bpf_sk_assign_tcp_reqsk`).
    BornThere,
    /// The connection is frozen here and thawed at the node.
    MovedThere,
    /// The dispatcher asks the node and passes the reply on.
    Proxy,
    /// The node that has the connection asks the one that has the content and passes the reply on.
    Fetch,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 5] = [Way::Stay, Way::BornThere, Way::MovedThere, Way::Proxy, Way::Fetch];

    /// As in metrics and explanations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Way::Stay => "stay",
            Way::BornThere => "born_there",
            Way::MovedThere => "moved_there",
            Way::Proxy => "proxy",
            Way::Fetch => "fetch",
        }
    }
}

/// Some of the ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ways(u8);

impl Ways {
    /// These.
    #[must_use]
    pub fn of(ways: &[Way]) -> Ways {
        Ways(ways.iter().fold(0, |set, way| set | 1 << *way as u8))
    }

    /// Those that are in both.
    #[must_use]
    pub fn and(self, other: Ways) -> Ways {
        Ways(self.0 & other.0)
    }

    /// Those that are in either.
    #[must_use]
    pub fn or(self, other: Ways) -> Ways {
        Ways(self.0 | other.0)
    }

    /// Whether `way` is one of them.
    #[must_use]
    pub fn contains(self, way: Way) -> bool {
        self.0 & 1 << way as u8 != 0
    }
}

/// Work that is measured. What serving a request costs in any case isn't in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A connection's birth at a node, once.
    Born,
    /// A connection's first move from the dispatcher to a node, once.
    Moved,
    /// A connection's move from node to node, once.
    HandedOn,
    /// Steering the client's packets to a node, for one reply.
    Steered,
    /// Passing on one reply at the dispatcher, and what the node has of it more than of one that it gives directly.
    Proxied,
    /// Passing on one reply at a node, and giving it at the other.
    Fetched,
    /// Reading one reply's content that isn't in memory.
    Missed,
    /// A connection's return from a node to the server that gave it away, once.
    Returned,
}

impl Work {
    /// All of it.
    pub const ALL: [Work; 8] = [
        Work::Born,
        Work::Moved,
        Work::HandedOn,
        Work::Steered,
        Work::Proxied,
        Work::Fetched,
        Work::Missed,
        Work::Returned,
    ];

    /// Before anything is measured: the prototype's figures for dispatcher and nodes, and how much later the first byte comes.
    fn prior(self) -> (Prior, Prior, Duration) {
        let line = |fixed_us, kib_us| Prior { fixed_us, kib_us };
        let (dispatcher, node, latency_us) = match self {
            Work::Born => (line(6.0, 0.0), line(12.0, 0.0), 30),
            Work::Moved => (line(43.0, 0.0), line(66.0, 0.0), 115),
            Work::Returned => (line(25.0, 0.0), line(44.0, 0.0), 115),
            Work::HandedOn => (line(16.0, 0.0), line(70.0, 0.0), 130),
            Work::Steered => (line(0.4, 0.02), line(0.0, 0.0), 1),
            // The node's is what `leat-bench ways` finds beyond that: nobody measures what it takes a node to be asked by a third.
            Work::Proxied => (line(42.0, 0.36), line(20.0, 0.0), 60),
            Work::Fetched => (line(0.0, 0.0), line(40.0, 0.36), 60),
            Work::Missed => (line(0.0, 0.0), line(30.0, 0.25), 2000),
        };
        (dispatcher, node, Duration::from_micros(latency_us))
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The dispatcher, for a connection that it has.
    Dispatcher,
    /// A node that has the connection, for a request that belongs to another.
    Node,
}

/// What is to be decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Situation {
    /// Who asks.
    pub place: Place,
    /// What could be done.
    pub possible: Ways,
    /// Bytes of the reply, as far as known.
    pub reply_bytes: u64,
    /// Requests that the connection still brings, this one included.
    pub requests_left: f64,
    /// Those of them that belong to the same node before one doesn't, this one included.
    pub run_left: f64,
    /// Whether the content is in the asking node's memory.
    pub is_here: bool,
}

/// What a way would cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// CPU time of the dispatcher, in us.
    pub dispatcher_us: f64,
    /// CPU time of the nodes, in us.
    pub node_us: f64,
    /// How much later the replies come, in us in all.
    pub latency_us: f64,
}

impl Estimate {
    /// CPU time of the whole system, in us.
    #[must_use]
    pub fn cpu_us(self) -> f64 {
        self.dispatcher_us + self.node_us
    }

    fn plus(self, other: Estimate, times: f64) -> Estimate {
        Estimate {
            dispatcher_us: self.dispatcher_us + other.dispatcher_us * times,
            node_us: self.node_us + other.node_us * times,
            latency_us: self.latency_us + other.latency_us * times,
        }
    }
}

/// Why a way was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// It's the only one.
    Only,
    /// It takes the least CPU time.
    Cheapest,
    /// It takes hardly more CPU time than the cheapest, and the replies come earlier.
    Sooner,
    /// To learn what it costs.
    Trying,
    /// Another would take less CPU time, but isn't wanted.
    Told,
    /// Clients don't get what the node sends by itself.
    Unheard,
}

/// What was decided. Displays as one line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// What to do.
    pub way: Way,
    /// Why.
    pub because: Because,
    /// What each way would cost, in the order of [`Way::ALL`]; `None` where it isn't possible.
    pub estimates: [Option<Estimate>; Way::ALL.len()],
    /// For so many requests of the connection, this one included.
    pub requests: f64,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let because = match self.because {
            Because::Only => "nothing else is possible",
            Because::Cheapest => "it takes the least CPU time",
            Because::Sooner => "it takes hardly more CPU time than the cheapest and answers sooner",
            Because::Trying => "to learn what it costs",
            Because::Told => "`hand_over` in [cluster] says so",
            Because::Unheard => "clients don't hear the node's own replies",
        };
        write!(f, "{}: {because}", self.way.name())?;
        let known = Way::ALL.iter().zip(&self.estimates).filter_map(|(way, estimate)| Some((way, (*estimate)?)));
        for (index, (way, estimate)) in known.enumerate() {
            let separator = if index == 0 { " (" } else { ", " };
            write!(f, "{separator}{} {:.0} us", way.name(), estimate.cpu_us())?;
        }
        if self.requests.round() > 1.0 {
            write!(f, ", for some {:.0} requests", self.requests)?;
        }
        f.write_str(")")
    }
}

/// A way within this much of the cheapest is taken if it answers sooner.
const TIE: f64 = 1.03;

/// Of so many decisions, these try the second-best way. Several together: what is done once in a while takes up to twice as long as what is done all the
/// time, and would never seem to be worth it.
const TRY_EVERY: u32 = 8192;
const TRIES: std::ops::Range<u32> = 224..256;

/// A way that is dearer by more than this isn't tried.
const TRY_COST_MAX: f64 = 3.0;

/// What the ways cost, as far as it was measured.
#[derive(Clone, Debug)]
pub struct CostModel {
    curves: [[Curve; 2]; Work::ALL.len()],
    decisions: u32,
}

impl Default for CostModel {
    fn default() -> Self {
        let curves = |work: Work| {
            let (dispatcher, node, _) = work.prior();
            [Curve::new(dispatcher), Curve::new(node)]
        };
        CostModel { curves: Work::ALL.map(curves), decisions: 0 }
    }
}

impl CostModel {
    /// A piece of work took so much CPU time at one side; `reply_bytes` is the reply that it was for, 0 for work that is done once.
    pub fn measured(&mut self, work: Work, side: Side, reply_bytes: u64, cpu: Duration) {
        self.curves[work as usize][side as usize].measured(reply_bytes, cpu.as_secs_f64() * 1e6);
    }

    /// How many times as long as supposed work takes on this machine: on average of the kinds that were measured, however often each was. What is done all the
    /// time, and costs other than was supposed, says nothing of the rest.
    fn machine(&self) -> f64 {
        let logarithms = self.curves.iter().flatten().filter_map(Curve::ratio).map(f64::ln);
        let (sum, count) = logarithms.fold((0.0, 0.0), |(sum, count), logarithm| (sum + logarithm, count + 1.0));
        if count > 0.0 { f64::exp(sum / count) } else { 1.0 }
    }

    /// What a piece of work is expected to cost.
    #[must_use]
    pub fn estimate(&self, work: Work, reply_bytes: u64) -> Estimate {
        let machine = self.machine();
        let [dispatcher, node] = &self.curves[work as usize];
        Estimate {
            dispatcher_us: dispatcher.at(reply_bytes, machine),
            node_us: node.at(reply_bytes, machine),
            latency_us: work.prior().2.as_secs_f64() * 1e6,
        }
    }

    /// Which way to take. `None` when nothing is possible.
    pub fn decide(&mut self, situation: &Situation) -> Option<Decision> {
        self.decisions = self.decisions.wrapping_add(1);
        let may_try = TRIES.contains(&(self.decisions % TRY_EVERY));
        self.judge(situation, may_try)
    }

    /// What [`CostModel::decide`] would say if it tried nothing; changes nothing.
    #[must_use]
    pub fn explain(&self, situation: &Situation) -> Option<Decision> {
        self.judge(situation, false)
    }

    fn judge(&self, situation: &Situation, may_try: bool) -> Option<Decision> {
        let estimates = Way::ALL.map(|way| situation.possible.contains(way).then(|| self.cost(way, situation)));
        let mut order: Vec<(Way, Estimate)> =
            Way::ALL.into_iter().zip(estimates).filter_map(|(way, estimate)| Some((way, estimate?))).collect();
        order.sort_by(|(_, a), (_, b)| a.cpu_us().total_cmp(&b.cpu_us()));
        let (cheapest, least) = *order.first()?;
        let requests = match situation.place {
            Place::Dispatcher => situation.requests_left,
            Place::Node => situation.run_left,
        };
        let decided = |way, because| Some(Decision { way, because, estimates, requests });
        let Some((second, more)) = order.get(1) else { return decided(cheapest, Because::Only) };
        if may_try && more.cpu_us() <= least.cpu_us() * TRY_COST_MAX {
            return decided(*second, Because::Trying);
        }
        let ties = order.iter().filter(|(_, estimate)| estimate.cpu_us() <= least.cpu_us() * TIE);
        let soonest = ties.min_by(|(_, a), (_, b)| a.latency_us.total_cmp(&b.latency_us));
        match soonest {
            Some((way, _)) if *way != cheapest => decided(*way, Because::Sooner),
            _ => decided(cheapest, Because::Cheapest),
        }
    }

    /// What `way` costs for the rest of the connection at the dispatcher, for the run of requests that belong to one node at a node: what comes
    /// after that costs the same whatever is decided now.
    fn cost(&self, way: Way, situation: &Situation) -> Estimate {
        let work = |work| self.estimate(work, situation.reply_bytes);
        let (left, run) = (situation.requests_left.max(1.0), situation.run_left.max(1.0));
        let none = Estimate::default();
        match (situation.place, way) {
            (_, Way::Stay) if situation.is_here => none,
            (_, Way::Stay) => none.plus(work(Work::Missed), run),
            (_, Way::Fetch) => none.plus(work(Work::Fetched), run),
            (Place::Dispatcher, Way::Proxy) => self.admitted(situation).plus(work(Work::Proxied), left),
            (Place::Node, Way::Proxy) => none.plus(work(Work::Fetched), run),
            (Place::Dispatcher, Way::BornThere) => self.handed_off(Work::Born, situation, left, run),
            (Place::Dispatcher, Way::MovedThere) => {
                self.handed_off(Work::Moved, situation, left, run).plus(self.admitted(situation), 1.0)
            }
            (Place::Node, Way::MovedThere | Way::BornThere) => none.plus(self.estimate(Work::HandedOn, 0), 1.0),
        }
    }

    /// What a connection that could begin at a node costs the dispatcher to have it begin here: its packet is looked at and sent on either way.
    fn admitted(&self, situation: &Situation) -> Estimate {
        let may_be_born = situation.possible.contains(Way::BornThere);
        let dispatcher_us = if may_be_born { self.estimate(Work::Born, 0).dispatcher_us } else { 0.0 };
        Estimate { dispatcher_us, ..Estimate::default() }
    }

    /// A handoff at the beginning, steering for every reply, and what each request costs later that belongs to another node.
    fn handed_off(&self, once: Work, situation: &Situation, left: f64, run: f64) -> Estimate {
        let at_node = |way| self.cost(way, &Situation { place: Place::Node, is_here: false, ..*situation });
        let away = [Way::MovedThere, Way::Fetch, Way::Stay].map(at_node);
        let away = away.into_iter().min_by(|a, b| a.cpu_us().total_cmp(&b.cpu_us())).unwrap_or_default();
        // Each of these is for a whole run.
        let runs_away = ((left - run) / run).max(0.0);
        self.estimate(once, 0).plus(self.estimate(Work::Steered, situation.reply_bytes), left).plus(away, runs_away)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn situation(place: Place, ways: &[Way], reply_bytes: u64) -> Situation {
        Situation { place, possible: Ways::of(ways), reply_bytes, requests_left: 1.0, run_left: 1.0, is_here: false }
    }

    #[test]
    fn only_what_is_possible_is_decided() {
        let mut model = CostModel::default();
        assert_eq!(model.decide(&situation(Place::Dispatcher, &[], 1)), None);
        let decision = model.decide(&situation(Place::Dispatcher, &[Way::Proxy], 1 << 30)).expect("one is possible");
        assert_eq!((decision.way, decision.because), (Way::Proxy, Because::Only));
    }

    #[test]
    fn a_node_keeps_what_it_has_and_weighs_the_rest() {
        let ways = [Way::Stay, Way::MovedThere, Way::Fetch];
        let model = CostModel::default();
        let way = |situation: Situation| model.explain(&situation).expect("three are possible").way;
        let small = situation(Place::Node, &ways, 1024);
        assert_eq!(way(Situation { is_here: true, ..small }), Way::Stay);
        assert_eq!(way(Situation { possible: Ways::of(&[Way::Fetch, Way::MovedThere]), ..small }), Way::Fetch);
        assert_eq!(way(Situation { run_left: 10.0, requests_left: 10.0, ..small }), Way::MovedThere);
        assert_eq!(way(situation(Place::Node, &ways, 1 << 20)), Way::MovedThere);
    }

    #[test]
    fn between_equals_the_sooner_is_taken() {
        let mut model = CostModel::default();
        let at_node = |model: &CostModel| {
            let ways = [Way::Fetch, Way::MovedThere];
            model.explain(&situation(Place::Node, &ways, 1 << 17)).expect("two are possible")
        };
        let us = Duration::from_micros;
        model.measured(Work::Fetched, Side::Node, 1 << 17, us(101));
        model.measured(Work::Fetched, Side::Dispatcher, 1 << 17, us(0));
        model.measured(Work::HandedOn, Side::Node, 0, us(80));
        model.measured(Work::HandedOn, Side::Dispatcher, 0, us(20));
        let equal = at_node(&model);
        assert_eq!((equal.way, equal.because), (Way::Fetch, Because::Sooner), "{equal}");
        model.measured(Work::Fetched, Side::Node, 1 << 17, us(131));
        let dearer = at_node(&model);
        assert_eq!((dearer.way, dearer.because), (Way::MovedThere, Because::Cheapest), "{dearer}");
    }

    #[test]
    fn the_second_best_is_tried_now_and_then_and_found_to_be_better() {
        let mut model = CostModel::default();
        let one_shot = situation(Place::Dispatcher, &[Way::MovedThere, Way::Proxy], 1024);
        let mut moved = 0;
        for _ in 0..20_000 {
            let decision = model.decide(&one_shot).expect("two are possible");
            match decision.way {
                Way::MovedThere => {
                    moved += 1;
                    model.measured(Work::Moved, Side::Dispatcher, 0, Duration::from_micros(10));
                    model.measured(Work::Moved, Side::Node, 0, Duration::from_micros(15));
                }
                _ => model.measured(Work::Proxied, Side::Dispatcher, 1024, Duration::from_micros(42)),
            }
        }
        assert!(moved > 18_000, "{moved}");
    }

    #[test]
    fn what_is_done_all_the_time_says_little_of_the_rest() {
        let mut model = CostModel::default();
        let us = Duration::from_micros;
        model.measured(Work::Proxied, Side::Dispatcher, 1024, us(42));
        let before = model.estimate(Work::Born, 0);
        // Ten times as dear as it was supposed to be; what the nodes have of it isn't measured.
        (0..1_000).for_each(|_| model.measured(Work::Born, Side::Dispatcher, 0, us(60)));
        let after = model.estimate(Work::Born, 0);
        assert!((after.dispatcher_us - 60.0).abs() < 1.0, "{after:?}");
        assert!(after.node_us < before.node_us * 4.0, "{after:?}");
        (0..10).for_each(|_| model.measured(Work::Born, Side::Node, 0, us(5)));
        assert!((model.estimate(Work::Born, 0).node_us - 5.0).abs() < 0.1);
    }

    #[test]
    fn a_decision_reads_well() {
        let model = CostModel::default();
        let decision = model.explain(&situation(Place::Dispatcher, &[Way::MovedThere, Way::Proxy], 1 << 20));
        let text = decision.expect("two are possible").to_string();
        assert_eq!(text, "moved_there: it takes the least CPU time (moved_there 130 us, proxy 431 us)");
        let ten =
            Situation { requests_left: 10.0, run_left: 10.0, ..situation(Place::Dispatcher, &[Way::Proxy], 1024) };
        let text = model.explain(&ten).expect("one is possible").to_string();
        assert!(text.ends_with(" us, for some 10 requests)"), "{text}");
    }
}
