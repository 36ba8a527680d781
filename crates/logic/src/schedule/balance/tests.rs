//! Workers with trees of their own, clients that ask again a while after each reply, and plans in between: do sites get their shares of the
//! whole machine?

use super::*;
use crate::schedule::{Cost, LeafId, PolicyKind, Tree};
use std::collections::BTreeSet;

const INTERVAL_NS: u64 = 100_000_000;
/// From the end of a request to the arrival of the next on its connection.
const GAP_NS: u64 = 60_000;

/// Numbers without a pattern, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// What handlers compute between two looks at who else wants the worker.
const SLICE_NS: u64 = 100_000;

struct Worker {
    /// Events are a site and what its request has left to cost.
    tree: Tree<(usize, u64)>,
    slice_ns: u64,
    leaves: Vec<LeafId>,
    now_ns: u64,
    /// When each connection's next request arrives: (time, site).
    arrivals: BTreeSet<(u64, u64, usize)>,
    connections: Vec<u32>,
    /// Connections to give up, by site and worker.
    leaving: Vec<(usize, usize)>,
    used_ns: Vec<u64>,
    /// Whose request was served last: it can't have the next waiting if it has one connection.
    last: usize,
    /// How often a site, if it wasn't served last, had nothing waiting when the next was chosen; and how often one was chosen.
    idle: Vec<u32>,
    services: u32,
}

impl Worker {
    fn new(weights: &[u32], connections: Vec<u32>, slice_ns: u64) -> Worker {
        let mut tree = Tree::new(PolicyKind::WeightedFair);
        let leaves = weights.iter().map(|&it| tree.add_leaf(tree.root(), Share::weight(it)).unwrap()).collect();
        let mut arrivals = BTreeSet::new();
        for (site, &count) in connections.iter().enumerate() {
            (0..u64::from(count)).for_each(|it| assert!(arrivals.insert((it * 10_000, it, site))));
        }
        let sites = weights.len();
        Worker {
            tree,
            slice_ns,
            leaves,
            now_ns: 0,
            arrivals,
            connections,
            leaving: Vec::new(),
            used_ns: vec![0; sites],
            last: 0,
            idle: vec![0; sites],
            services: 0,
        }
    }

    /// Serves until `end_ns`; connections that left: (site, to worker).
    fn run(&mut self, end_ns: u64, numbers: &mut Numbers) -> Vec<(usize, usize)> {
        let mut left = Vec::new();
        while self.now_ns < end_ns {
            while let Some(&(at, number, site)) = self.arrivals.first()
                && at <= self.now_ns
            {
                self.arrivals.remove(&(at, number, site));
                self.tree.push(self.leaves[site], (site, 200_000 + numbers.below(300_000))).unwrap();
            }
            self.services += 1;
            for (site, idle) in self.idle.iter_mut().enumerate() {
                *idle += u32::from(site != self.last && self.tree.queued(self.leaves[site]) == 0);
            }
            let Some((leaf, (site, left_ns))) = self.tree.pop() else {
                self.now_ns = self.arrivals.first().map_or(end_ns, |&(at, ..)| at.min(end_ns));
                continue;
            };
            let cost_ns = left_ns.min(self.slice_ns);
            self.now_ns += cost_ns;
            self.tree.charge(leaf, Cost::from_ns(cost_ns));
            self.used_ns[site] += cost_ns;
            self.last = site;
            if cost_ns < left_ns {
                self.tree.push_first(leaf, (site, left_ns - cost_ns)).unwrap();
            } else if let Some(at) = self.leaving.iter().position(|&(leaving, _)| leaving == site) {
                left.push(self.leaving.remove(at));
                self.connections[site] -= 1;
            } else {
                self.arrive(site, numbers);
            }
        }
        left
    }

    fn arrive(&mut self, site: usize, numbers: &mut Numbers) {
        self.arrivals.insert((self.now_ns + GAP_NS + numbers.below(20_000), numbers.below(1 << 31), site));
    }

    /// What there was in the interval; the next begins.
    fn loads(&mut self) -> Vec<SiteLoad> {
        let services = std::mem::take(&mut self.services);
        let load = |site: usize| SiteLoad {
            used_ns: self.used_ns[site],
            is_backlogged: self.connections[site] > 0 && self.idle[site] * 20 <= services,
            connections: self.connections[site],
        };
        let loads = (0..self.used_ns.len()).map(load).collect();
        self.used_ns.fill(0);
        self.idle.fill(0);
        loads
    }
}

/// Runs intervals with a plan after each; what each site used in the last `counted` of them, as parts of the whole, and how many
/// connections moved in all.
fn run(
    weights: &[u32],
    connections: &[&[u32]],
    (intervals, counted): (usize, usize),
    slice_ns: u64,
) -> (Vec<f64>, u32) {
    let machine = Machine::of_sites(connections.len(), INTERVAL_NS, weights);
    let mut workers: Vec<Worker> = connections.iter().map(|it| Worker::new(weights, it.to_vec(), slice_ns)).collect();
    let mut balancer = Balancer::new();
    let mut numbers = Numbers(5);
    let (mut used, mut moved) = (vec![0.0; weights.len()], 0);
    for interval in 0..=intervals {
        let left: Vec<(usize, usize)> =
            workers.iter_mut().flat_map(|worker| worker.run(interval as u64 * INTERVAL_NS, &mut numbers)).collect();
        for (site, to) in left {
            workers[to].connections[site] += 1;
            workers[to].arrive(site, &mut numbers);
        }
        let loads: Vec<Vec<SiteLoad>> = workers.iter_mut().map(Worker::loads).collect();
        if interval > intervals - counted {
            for load in &loads {
                used.iter_mut().zip(load).for_each(|(used, load)| *used += load.used_ns as f64);
            }
        }
        let plan = balancer.plan(&machine, &loads);
        for (worker, (owners, _)) in workers.iter_mut().zip(plan.owners.iter().zip(&plan.sites)) {
            for (&leaf, &weight) in worker.leaves.iter().zip(owners) {
                worker.tree.set_share(leaf, Share::weight(weight)).unwrap();
            }
        }
        for it in plan.moves {
            moved += it.connections;
            (0..it.connections).for_each(|_| workers[it.from].leaving.push((it.site, it.to)));
        }
    }
    let all: f64 = used.iter().sum();
    (used.into_iter().map(|used| used / all).collect(), moved)
}

fn assert_shares(weights: &[u32], connections: &[&[u32]], moves_max: u32) {
    let (parts, moved) = run(weights, connections, (60, 40), u64::MAX);
    let all: f64 = weights.iter().map(|&it| f64::from(it)).sum();
    for (part, &weight) in parts.iter().zip(weights) {
        let due = f64::from(weight) / all;
        assert!((part / due - 1.0).abs() < 0.02, "{weights:?} {connections:?}: {parts:?}, {moved} moved");
    }
    assert!(moved <= moves_max, "{weights:?} {connections:?}: {moved} moved");
}

#[test]
fn connections_that_sit_evenly_stay() {
    assert_shares(&[2, 1], &[&[4, 4], &[4, 4]], 0);
    assert_shares(&[4, 1], &[&[2, 2], &[2, 2]], 0);
    assert_shares(&[1, 2, 3], &[&[4, 4, 4], &[4, 4, 4], &[4, 4, 4]], 0);
}

#[test]
fn weights_make_up_for_connections_that_sit_unevenly() {
    assert_shares(&[2, 1], &[&[4, 0], &[2, 4]], 0);
    assert_shares(&[2, 1], &[&[6, 2], &[2, 6]], 0);
    assert_shares(&[1, 1, 1], &[&[4, 4, 0], &[0, 2, 6]], 0);
}

#[test]
fn connections_move_where_weights_cannot_help() {
    // Each site on a worker of its own: no weights matter.
    assert_shares(&[2, 1], &[&[4, 0], &[0, 4]], 3);
    // All on one worker.
    assert_shares(&[2, 1], &[&[4, 4], &[0, 0]], 4);
    assert_shares(&[4, 1], &[&[4, 0], &[0, 4]], 4);
    assert_shares(&[4, 1], &[&[0, 4], &[4, 0]], 4);
}

#[test]
fn few_connections_are_enough_where_shares_are_feasible_at_all() {
    assert_shares(&[2, 1], &[&[3, 1], &[0, 2]], 3);
    assert_shares(&[2, 1], &[&[3, 0], &[0, 2]], 3);
    assert_shares(&[4, 1], &[&[3, 2], &[0, 0]], 4);
    assert_shares(&[4, 1], &[&[0, 2], &[4, 0]], 4);
}

#[test]
fn one_worker_keeps_the_configured_proportions() {
    let machine = Machine::of_sites(1, INTERVAL_NS, &[4, 1, 3]);
    let load = SiteLoad { used_ns: 1_000, is_backlogged: true, connections: 3 };
    let plan = Balancer::new().plan(&machine, &[vec![load; 3]]);
    let weights = &plan.owners[0];
    assert!((f64::from(weights[0]) / f64::from(weights[1]) - 4.0).abs() < 0.001, "{weights:?}");
    assert!((f64::from(weights[2]) / f64::from(weights[1]) - 3.0).abs() < 0.001, "{weights:?}");
    assert!(plan.moves.is_empty());
}

#[test]
fn who_waits_now_and_then_and_gets_what_it_asks_for_is_not_raised_further_and_further() {
    let machine = Machine::of_sites(2, 100, &[4, 1]);
    let load = |used_ns| SiteLoad { used_ns, is_backlogged: true, connections: 8 };
    let mut balancer = Balancer::new();
    for _ in 0..200 {
        let plan = balancer.plan(&machine, &vec![vec![load(65), load(35)]; 2]);
        let ratio = f64::from(plan.owners[0][0]) / f64::from(plan.owners[0][1]);
        assert!((4.0..4.0 * ODDS_MAX * 1.7).contains(&ratio), "{ratio}");
    }
}

#[test]
fn shares_hold_for_a_site_that_is_served_in_bursts() {
    const INTERVAL_NS: f64 = 1e8;
    let machine = Machine::of_sites(1, INTERVAL_NS as u64, &[4, 1]);
    let (mut balancer, mut numbers, mut used) = (Balancer::new(), Numbers(3), [0.0; 2]);
    let mut part = 0.2;
    for interval in 0..2_000 {
        // What comes sooner in one interval isn't there in the next.
        let swing = [0.4, 1.6, 1.3, 0.7][interval % 4] + numbers.below(100) as f64 / 500.0 - 0.1;
        let light_ns = INTERVAL_NS * (part * swing).min(1.0);
        let load = |used_ns: f64| SiteLoad { used_ns: used_ns as u64, is_backlogged: true, connections: 8 };
        let plan = balancer.plan(&machine, &[vec![load(INTERVAL_NS - light_ns), load(light_ns)]]);
        let [heavy, light] = [0, 1].map(|site| f64::from(plan.owners[0][site]));
        part = light / (heavy + light);
        used[0] += INTERVAL_NS - light_ns;
        used[1] += light_ns;
    }
    let ratio = used[0] / used[1];
    assert!((ratio - 4.0).abs() < 0.04, "{ratio}");
}

#[test]
fn what_an_idle_site_leaves_goes_to_the_others_by_weight() {
    let machine = Machine::of_sites(2, 900, &[2, 1, 6]);
    let busy = SiteLoad { used_ns: 100, is_backlogged: true, connections: 4 };
    let quiet = SiteLoad { used_ns: 150, is_backlogged: false, connections: 4 };
    let loads = vec![vec![busy, busy, quiet]; 2];
    assert_eq!(Demand::of(&machine, &loads).dues, [1_000.0, 500.0, 300.0]);
    let plan = Balancer::new().plan(&machine, &loads);
    assert_eq!(plan.owners[0], plan.owners[1]);
    assert!(plan.owners[0][2] > plan.owners[0][0], "one that wakes finds its weight: {:?}", plan.owners);
}

#[test]
fn owners_share_the_machine_and_their_sites_the_owner() {
    let site = |owner, weight| Entitlement { owner, weight };
    let machine =
        Machine { capacities_ns: vec![600, 600], owners: vec![2, 1], sites: vec![site(0, 1), site(0, 3), site(1, 1)] };
    let busy = SiteLoad { used_ns: 100, is_backlogged: true, connections: 4 };
    let loads = vec![vec![busy; 3], vec![busy, SiteLoad::default(), busy]];
    let demand = Demand::of(&machine, &loads);
    assert_eq!(demand.dues, [200.0, 600.0, 400.0]);
    let gets = moves::best(&machine, &loads, &demand);
    for (due, get) in demand.dues.iter().zip(&gets) {
        assert!((get / due - 1.0).abs() < 0.01, "{gets:?}");
    }
}

#[test]
fn nothing_to_share_is_no_trouble() {
    let plan = Balancer::new().plan(&Machine::of_sites(0, 1, &[]), &[]);
    assert_eq!(plan, Plan::default());
    let plan = Balancer::new().plan(&Machine::of_sites(2, 0, &[1, 2]), &vec![vec![SiteLoad::default(); 2]; 2]);
    assert!(plan.moves.is_empty() && plan.owners.iter().flatten().all(|&weight| weight >= 1));
}

#[test]
fn three_or_four_connections_may_sit_anywhere() {
    for weights in [[2, 1], [4, 1]] {
        for (a, b) in [(3, 3), (4, 2)] {
            for (a0, b0) in (0..=a).flat_map(|a0| (0..=b).map(move |b0| (a0, b0))) {
                assert_shares(&weights, &[&[a0, b0], &[a - a0, b - b0]], 5);
            }
        }
    }
}

#[test]
fn two_connections_may_sit_anywhere_where_requests_are_served_in_slices() {
    for weights in [[2, 1], [4, 1]] {
        for (a, b) in (0..=2).flat_map(|a| (0..=2).map(move |b| (a, b))) {
            let (parts, moved) = run(&weights, &[&[a, b], &[2 - a, 2 - b]], (60, 40), SLICE_NS);
            let ratio = parts[0] / parts[1] / f64::from(weights[0]) * f64::from(weights[1]);
            assert!((ratio - 1.0).abs() < 0.02, "{weights:?} from {a}, {b}: {parts:?}, {moved} moved");
            assert!(moved <= 4, "{weights:?} from {a}, {b}: {moved} moved");
        }
    }
}

#[test]
fn two_connections_may_sit_anywhere_for_2_to_1_without_slices() {
    for (a, b) in (0..=2).flat_map(|a| (0..=2).map(move |b| (a, b))) {
        assert_shares(&[2, 1], &[&[a, b], &[2 - a, 2 - b]], 4);
    }
}

/// A connection each on any of four workers, so that nothing brings all of them their dues: looking for moves among all took seconds at every second plan.
#[test]
fn hundreds_of_sites_that_nothing_brings_their_dues_are_planned_for_in_little_work() {
    const SITES: usize = 300;
    let (mut numbers, mut balancer, machine) =
        (Numbers(1), Balancer::new(), Machine::of_sites(4, INTERVAL_NS, &[100; SITES]));
    let load = SiteLoad { used_ns: 4 * INTERVAL_NS / SITES as u64, is_backlogged: true, connections: 1 };
    let at: Vec<u64> = (0..SITES).map(|_| numbers.below(4)).collect();
    let of_worker = |worker| at.iter().map(|&at| if at == worker { load } else { SiteLoad::default() }).collect();
    let loads: Vec<Vec<SiteLoad>> = (0..4).map(of_worker).collect();
    for _ in 0..1_000 {
        balancer.plan(&machine, &loads);
    }
    let looks = balancer.looks_in_vain;
    assert!((1..50).contains(&looks), "{looks} looks in a thousand plans");
    let demand = Demand::of(&machine, &loads);
    assert!(moves::is_short(&machine, &loads, &demand));
    assert!(moves::tries_max(&machine, &loads) <= 20);
}
