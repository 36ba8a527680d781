//! A worker in virtual time with more to do than it can: requests of 200 to 500 us, from connections that ask again at once or from a new
//! connection each. How much is served, how fast, and who is refused?

use super::*;
use crate::schedule::{LeafId, PolicyKind, Share, Tree};
use std::collections::{BTreeSet, VecDeque};

const ACCEPT_NS: u64 = 10_000;
const RECEIVE_NS: u64 = 3_000;
const REFUSE_NS: u64 = 6_000;
/// From a reply to the next request of a connection that asks again at once.
const GAP_NS: u64 = 50_000;
/// Connections that the kernel holds until they're accepted: while nothing is accepted, each waits for all of these.
const BACKLOG: usize = 32;
/// Work after which completions are harvested again: what isn't harvested isn't in the tree, and waits for all that is.
const TURN_NS: u64 = 1_000_000;
/// Completions that are harvested at once.
const HARVEST: usize = 64;

/// Numbers without a pattern, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Time to the next of events that come by themselves, `mean_ns` on average.
    fn exponential(&mut self, mean_ns: f64) -> u64 {
        let uniform = (self.below(1 << 30) + 1) as f64 / (1_u64 << 30) as f64;
        (-uniform.ln() * mean_ns) as u64
    }
}

/// Where a site's requests come from.
#[derive(Clone, Copy)]
enum Load {
    /// So many connections that ask again at once.
    Closed(usize),
    /// A new connection for each request, so many each second.
    Open(f64),
}

#[derive(Clone, Copy)]
struct SiteSetup {
    weight: u32,
    load: Load,
    /// What a request costs: from, to.
    cost_ns: (u64, u64),
}

/// What one site got.
#[derive(Debug, Default)]
struct Result {
    /// From the request's arrival in the kernel to the end of its service, sorted.
    delays_ns: Vec<u64>,
    offered: u64,
    refused: u64,
}

impl Result {
    fn per_s(&self) -> f64 {
        self.delays_ns.len() as f64 / SECONDS as f64
    }

    fn p99_ms(&self) -> f64 {
        self.delays_ns.get(self.delays_ns.len() * 99 / 100).map_or(0.0, |&ns| ns as f64 / 1e6)
    }
}

const SECONDS: u64 = 8;

/// A request: when it came, whose it is, and whether its connection asks again.
type Request = (u64, usize, bool);

/// A request, and when it came as far as the worker can know: it sees nothing of the time before the accept.
type Known = (Request, u64);

struct Simulation {
    now: Instant,
    numbers: Numbers,
    setups: Vec<SiteSetup>,
    admission: Admission,
    tree: Tree<Known>,
    leaves: Vec<LeafId>,
    /// Requests to be read from connections: when, a number, the request.
    readable: BTreeSet<(u64, u64, Request)>,
    /// Requests of sites that aren't read from.
    paused: Vec<Vec<Request>>,
    /// New connections to come: when, and whose request they bring.
    coming: BTreeSet<(u64, usize)>,
    backlog: VecDeque<Request>,
    results: Vec<Result>,
}

impl Simulation {
    fn new(setups: &[SiteSetup]) -> Simulation {
        let mut admission = Admission::new(Cost::from_ns(REFUSE_NS + RECEIVE_NS + ACCEPT_NS));
        let mut tree = Tree::new(PolicyKind::WeightedFair);
        let leaves = setups.iter().map(|it| tree.add_leaf(tree.root(), Share::weight(it.weight)).unwrap()).collect();
        let (mut readable, mut coming) = (BTreeSet::new(), BTreeSet::new());
        for (site, setup) in setups.iter().enumerate() {
            admission.set_site(site, SiteLimits::default());
            match setup.load {
                Load::Closed(connections) => {
                    (0..connections as u64)
                        .for_each(|it| assert!(readable.insert((it * 1_000, it, (it * 1_000, site, true)))));
                }
                Load::Open(_) => assert!(coming.insert((1, site))),
            }
        }
        Simulation {
            now: Instant::default(),
            numbers: Numbers(11),
            setups: setups.to_vec(),
            admission,
            tree,
            leaves,
            readable,
            paused: vec![Vec::new(); setups.len()],
            coming,
            backlog: VecDeque::new(),
            results: setups.iter().map(|_| Result::default()).collect(),
        }
    }

    fn run(mut self) -> Vec<Result> {
        while self.now.ns < SECONDS * 1_000_000_000 {
            self.arrive_at_kernel();
            self.accept();
            self.receive();
            let turn_ends_ns = self.now.ns + TURN_NS;
            while self.now.ns < turn_ends_ns && self.serve() {}
            self.resume();
            if self.tree.is_empty() && self.backlog.is_empty() {
                let next = [self.readable.first().map(|it| it.0), self.coming.first().map(|it| it.0)];
                self.now.ns = next.into_iter().flatten().min().unwrap_or(u64::MAX).max(self.now.ns + 1);
            }
        }
        self.results.iter_mut().for_each(|it| it.delays_ns.sort_unstable());
        self.results
    }

    fn arrive_at_kernel(&mut self) {
        while let Some(&(at, site)) = self.coming.first()
            && at <= self.now.ns
        {
            self.coming.remove(&(at, site));
            self.results[site].offered += 1;
            if self.backlog.len() < BACKLOG {
                self.backlog.push_back((at, site, false));
            }
            if let Load::Open(per_s) = self.setups[site].load {
                self.coming.insert((at + 1 + self.numbers.exponential(1e9 / per_s), site));
            }
        }
    }

    fn accept(&mut self) {
        for _ in 0..HARVEST {
            if !self.admission.is_accepting(self.now) {
                return;
            }
            let Some(request) = self.backlog.pop_front() else { return };
            self.now.ns += ACCEPT_NS;
            self.readable.insert((self.now.ns, self.numbers.below(1 << 31), request));
        }
    }

    fn receive(&mut self) {
        for _ in 0..HARVEST {
            let Some(&(at, number, request)) = self.readable.first() else { return };
            if at > self.now.ns {
                return;
            }
            self.readable.remove(&(at, number, request));
            let (_, site, is_kept) = request;
            if !self.admission.is_reading(site) {
                self.paused[site].push(request);
                continue;
            }
            self.now.ns += RECEIVE_NS;
            self.results[site].offered += u64::from(is_kept);
            // The first request of a connection came with it.
            let arrived_ns = if is_kept { request.0 } else { at };
            match self.admission.arrive_after_hold(site, Instant { ns: arrived_ns }, self.now) {
                Verdict::Admit => self.tree.push(self.leaves[site], (request, arrived_ns)).unwrap(),
                Verdict::Refuse(refusal) => self.refuse(request, refusal),
            }
        }
    }

    /// Serves or refuses one request; whether there was one.
    fn serve(&mut self) -> bool {
        let Some((leaf, (request, known_ns))) = self.tree.pop() else { return false };
        let (arrived_ns, site, _) = request;
        let before_ns = self.now.ns;
        match self.admission.start(site, Instant { ns: known_ns }, self.now) {
            Verdict::Admit => {
                let (from, to) = self.setups[site].cost_ns;
                let cost_ns = from + self.numbers.below(to - from + 1);
                self.now.ns += cost_ns;
                self.admission.finish(site, Cost::from_ns(cost_ns));
                self.results[site].delays_ns.push(self.now.ns - arrived_ns);
                self.ask_again(request, 0);
            }
            Verdict::Refuse(refusal) => self.refuse(request, refusal),
        }
        self.tree.charge(leaf, Cost::from_ns(self.now.ns - before_ns));
        true
    }

    fn refuse(&mut self, request: Request, refusal: Refusal) {
        self.now.ns += REFUSE_NS;
        self.results[request.1].refused += 1;
        self.ask_again(request, refusal.hold_ns);
    }

    fn ask_again(&mut self, (_, site, is_kept): Request, hold_ns: u64) {
        if is_kept {
            let arrives_ns = self.now.ns + GAP_NS;
            let read_ns = arrives_ns.max(self.now.ns + hold_ns);
            self.readable.insert((read_ns, self.numbers.below(1 << 31), (arrives_ns, site, true)));
        }
    }

    fn resume(&mut self) {
        for site in 0..self.paused.len() {
            if self.admission.is_reading(site) {
                for request in std::mem::take(&mut self.paused[site]) {
                    self.readable.insert((self.now.ns, self.numbers.below(1 << 31), request));
                }
            }
        }
    }
}

/// 350 us on average.
const DEAR: (u64, u64) = (200_000, 500_000);
const DEAR_PER_S: f64 = 1e9 / 350_000.0;
const CHEAP: (u64, u64) = (5_000, 7_000);

fn alone(load: Load, cost_ns: (u64, u64)) -> Result {
    Simulation::new(&[SiteSetup { weight: 1, load, cost_ns }]).run().remove(0)
}

/// What is served when it's just enough.
fn peak(cost_ns: (u64, u64)) -> f64 {
    alone(Load::Closed(8), cost_ns).per_s()
}

#[test]
fn nothing_is_refused_below_capacity() {
    for part in [0.5, 0.8] {
        let result = alone(Load::Open(DEAR_PER_S * part), DEAR);
        assert_eq!(result.refused, 0, "at {part}");
        assert!(result.delays_ns.len() as u64 + 20 >= result.offered, "at {part}");
    }
    let result = alone(Load::Closed(20), DEAR);
    assert_eq!(result.refused, 0, "{} ms", result.p99_ms());
}

#[test]
fn at_capacity_little_is_refused() {
    let result = alone(Load::Open(DEAR_PER_S * 0.95), DEAR);
    assert!(result.refused * 50 < result.offered, "{} of {}", result.refused, result.offered);
    assert!(result.p99_ms() < 50.0, "{}", result.p99_ms());
}

#[test]
fn goodput_stays_at_five_times_capacity_with_a_connection_for_each_request() {
    let peak = peak(DEAR);
    for times in [1.2, 2.0, 5.0, 10.0] {
        let result = alone(Load::Open(DEAR_PER_S * times), DEAR);
        // Accepting those who are served is part of their cost.
        let accepted_peak = 1e9 / (1e9 / peak + ACCEPT_NS as f64);
        assert!(result.per_s() > accepted_peak * 0.95, "at {times}: {} of {accepted_peak}", result.per_s());
        assert!(result.p99_ms() < 50.0, "at {times}: {} ms", result.p99_ms());
    }
}

#[test]
fn goodput_stays_with_many_connections_that_ask_again_at_once() {
    let peak = peak(DEAR);
    for connections in [50, 200, 1_000, 4_000] {
        let result = alone(Load::Closed(connections), DEAR);
        assert!(result.per_s() > peak * 0.95, "{connections}: {} of {peak}", result.per_s());
        assert!(result.p99_ms() < 50.0, "{connections}: {} ms", result.p99_ms());
    }
}

#[test]
fn requests_as_cheap_as_refusals_are_not_refused() {
    let peak = peak(CHEAP);
    for connections in [100, 2_000] {
        let result = alone(Load::Closed(connections), CHEAP);
        assert_eq!(result.refused, 0, "{connections}");
        assert!(result.per_s() > peak * 0.95, "{connections}: {} of {peak}", result.per_s());
        assert!(result.p99_ms() < 50.0, "{connections}: {} ms", result.p99_ms());
    }
}

#[test]
fn a_site_that_floods_is_refused_and_its_neighbour_is_not() {
    let quiet = SiteSetup { weight: 1, load: Load::Open(DEAR_PER_S * 0.3), cost_ns: DEAR };
    let alone = Simulation::new(&[quiet]).run().remove(0);
    for connections in [100, 1_000] {
        let flood = SiteSetup { load: Load::Closed(connections), ..quiet };
        let results = Simulation::new(&[quiet, flood]).run();
        let what = format!("{connections}: {} ms, {} ms alone", results[0].p99_ms(), alone.p99_ms());
        assert_eq!(results[0].refused, 0, "{what}");
        assert!(results[0].per_s() > alone.per_s() * 0.97, "{what}");
        assert!(results[0].p99_ms() < 10.0, "{what}");
        assert!(results[1].refused > 0 && results[1].p99_ms() < 50.0, "{what}, {} ms", results[1].p99_ms());
    }
}

#[test]
fn both_get_their_shares_when_both_flood() {
    let site = |weight| SiteSetup { weight, load: Load::Closed(300), cost_ns: DEAR };
    let results = Simulation::new(&[site(4), site(1)]).run();
    let ratio = results[0].per_s() / results[1].per_s();
    assert!((ratio / 4.0 - 1.0).abs() < 0.03, "{ratio}");
    assert!(results.iter().all(|it| it.p99_ms() < 50.0), "{} {}", results[0].p99_ms(), results[1].p99_ms());
}
