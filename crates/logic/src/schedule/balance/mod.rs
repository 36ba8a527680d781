//! Shares over workers: which weight each site has on each worker, and which connections move, so that what sites use of the whole machine is
//! in proportion to their weights. Decides nothing within a worker, where the tree makes the weights come true.
//!
//! The goal is a weighted max-min allocation of all workers together. A site that uses less than its due has its weights raised
//! on all workers alike, one that uses more has them lowered, by what was measured; since the tree is fair and work-conserving, that
//! ends at the goal where weights can reach it at all (iterative proportional fitting). Whether they can is worked out in `moves`; only where
//! they can't does a connection move.

mod fill;
mod moves;

use super::share::Share;
use fill::{fill, spread};

/// How much of what a site is off by is made good at once: less than 1, as what was measured is an interval old.
const GAIN: f64 = 0.5;
/// The most that a site may be taken to have had too much in one plan, in parts of its due. More than 1 too little is impossible.
const OFF_MAX: f64 = 2.0;
/// How far the odds of what a site's weights entitle it to may be from those of its due: further, it isn't weights that keep it from its due, and
/// what was raised in vain would have to come down before shares hold again.
const ODDS_MAX: f64 = 4.0;
/// A site's weights are at most raised (or lowered) by this factor over where they would be if load sat evenly.
const FACTOR_MAX: f64 = 256.0;
/// How fast the weights of a site that doesn't want more go back to where they were, as a power.
const RELAX: f64 = 0.9;
/// Factors nearer to 1 than this are as good as 1.
const REST: f64 = 0.01;
/// The greatest weight in a plan, small enough to leave room for what is added between plans.
const PLAN_WEIGHT_MAX: f64 = (Share::WEIGHT_MAX / 2) as f64;

/// What one site did on one worker in the last interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteLoad {
    /// CPU time charged to it, in nanoseconds.
    pub used_ns: u64,
    /// Whether it would have used more: events of it were waiting nearly all the time.
    pub is_backlogged: bool,
    /// Its connections there that could move, now or when their exchange is over.
    pub connections: u32,
}

/// What a site is entitled to: a part of its owner's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entitlement {
    /// The number of its owner. Sites without owners each have one of their own.
    pub owner: usize,
    /// Relative to the owner's other sites.
    pub weight: u32,
}

/// What there is to share out, and among whom.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// CPU time of each worker in the interval that it could use for sites, in nanoseconds.
    pub capacities_ns: Vec<u64>,
    /// The weight of each owner.
    pub owners: Vec<u32>,
    /// By number.
    pub sites: Vec<Entitlement>,
}

impl Machine {
    /// Workers that are alike, and sites without owners.
    #[must_use]
    pub fn of_sites(workers: usize, interval_ns: u64, weights: &[u32]) -> Machine {
        let sites = (0..weights.len()).map(|owner| Entitlement { owner, weight: 1 }).collect();
        Machine { capacities_ns: vec![interval_ns; workers], owners: weights.to_vec(), sites }
    }
}

/// Connections of a site that go from one worker to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Whose connections.
    pub site: usize,
    /// The worker that gives them up.
    pub from: usize,
    /// The worker that takes them.
    pub to: usize,
    /// How many.
    pub connections: u32,
}

/// What to do for the next interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The weight of each owner on each worker: `owners[worker][owner]`.
    pub owners: Vec<Vec<u32>>,
    /// The weight of each site among its owner's on each worker: `sites[worker][site]`.
    pub sites: Vec<Vec<u32>>,
    /// Connections to move.
    pub moves: Vec<Move>,
}

/// Plans from interval to interval.
#[derive(Clone, Debug, Default)]
pub struct Balancer {
    /// How far each site's weights have been raised.
    factors: Vec<f64>,
    /// Plans in a row that found that no weights would do, since moves were last looked for.
    short_plans: u32,
    /// How often in a row none was found that helps.
    looks_in_vain: u32,
}

impl Balancer {
    /// A balancer that has seen nothing.
    #[must_use]
    pub fn new() -> Balancer {
        Balancer::default()
    }

    /// Whether no site's weights are raised or lowered.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.factors.iter().all(|factor| factor.ln().abs() < REST)
    }

    /// Plans for the next interval from what `loads[worker][site]` were in the last. Connections that were told to move count where they're
    /// going.
    pub fn plan(&mut self, machine: &Machine, loads: &[Vec<SiteLoad>]) -> Plan {
        let demand = Demand::of(machine, loads);
        self.adjust(machine, loads, &demand);
        let moves = self.moves(machine, loads, &demand);
        let (owners, sites) = local_weights(machine, loads, &self.factors);
        Plan { owners, sites, moves }
    }

    fn adjust(&mut self, machine: &Machine, loads: &[Vec<SiteLoad>], demand: &Demand) {
        self.factors.resize(demand.dues.len(), 1.0);
        let entitled = entitled(machine, loads, demand, &self.factors);
        let total = machine.capacities_ns.iter().map(|&ns| ns as f64).sum::<f64>();
        let odds = |part: f64| part / (total - part).max(f64::MIN_POSITIVE);
        for (site, factor) in self.factors.iter_mut().enumerate() {
            let (due, used) = (demand.dues[site], demand.used[site]);
            if !demand.is_hungry[site] || due <= 0.0 {
                // There may be thousands, nearly all of them as they were.
                if *factor != 1.0 {
                    *factor = factor.powf(RELAX);
                }
            } else {
                // By what it was off, not by the factor: then too much in one interval and as much too little in the next come to nothing.
                let missed = ((due - used) / due).max(-OFF_MAX);
                let off = odds(entitled[site]) / odds(due);
                let is_vain = if missed > 0.0 { off > ODDS_MAX } else { off < 1.0 / ODDS_MAX };
                *factor *= if is_vain { 1.0 } else { (missed * GAIN).exp() };
            }
        }
        // Only proportions matter: the factors of those that want more stay around 1, so that one that wakes finds itself in proportion.
        let hungry = || (0..self.factors.len()).filter(|&site| demand.is_hungry[site]);
        let total: f64 = hungry().map(|site| demand.dues[site]).sum();
        if total > 0.0 {
            let mean: f64 = hungry().map(|site| self.factors[site].ln() * demand.dues[site]).sum::<f64>() / total;
            hungry().collect::<Vec<_>>().into_iter().for_each(|site| self.factors[site] /= mean.exp());
        }
        self.factors.iter_mut().for_each(|factor| *factor = factor.clamp(1.0 / FACTOR_MAX, FACTOR_MAX));
    }

    fn moves(&mut self, machine: &Machine, loads: &[Vec<SiteLoad>], demand: &Demand) -> Vec<Move> {
        // Those that use nothing have nothing to move, and there may be thousands of them.
        let using: Vec<usize> =
            (0..machine.sites.len()).filter(|&site| demand.is_hungry[site] || demand.used[site] > 0.0).collect();
        let sites = using.iter().map(|&site| machine.sites[site]).collect();
        let machine = &Machine { sites, ..machine.clone() };
        let loads = &loads.iter().map(|loads| using.iter().map(|&site| loads[site]).collect()).collect::<Vec<Vec<_>>>();
        let moves = self.moves_among(machine, loads, &demand.of_sites(&using));
        moves.into_iter().map(|it| Move { site: using[it.site], ..it }).collect()
    }

    fn moves_among(&mut self, machine: &Machine, loads: &[Vec<SiteLoad>], demand: &Demand) -> Vec<Move> {
        if !moves::is_short(machine, loads, demand) {
            (self.short_plans, self.looks_in_vain) = (0, 0);
            return Vec::new();
        }
        self.short_plans += 1;
        if self.short_plans < moves::PATIENCE_PLANS << self.looks_in_vain.min(moves::IN_VAIN_MAX) {
            return Vec::new();
        }
        // What was moved shows in what is measured next, and only then can be judged.
        self.short_plans = 0;
        let moves = moves::choose(machine, loads, demand);
        self.looks_in_vain = if moves.is_empty() { self.looks_in_vain + 1 } else { 0 };
        moves
    }
}

/// What sites want of all workers, and what they ought to get, in nanoseconds.
#[derive(Clone, Debug)]
struct Demand {
    /// Whether a site would have used more on some worker.
    is_hungry: Vec<bool>,
    used: Vec<f64>,
    dues: Vec<f64>,
}

impl Demand {
    fn of(machine: &Machine, loads: &[Vec<SiteLoad>]) -> Demand {
        let greatest = machine.capacities_ns.iter().copied().max().unwrap_or(0) as f64;
        let sites = 0..machine.sites.len();
        let of_site = |site: usize| loads.iter().map(move |sites| sites[site]);
        let used: Vec<f64> =
            sites.clone().map(|site| of_site(site).map(|load| load.used_ns as f64).sum::<f64>()).collect();
        let is_hungry: Vec<bool> =
            sites.clone().map(|site| of_site(site).any(|load| load.is_backlogged && load.connections > 0)).collect();
        // One that waits anywhere could use as many workers as it has connections.
        let want = |site: usize| {
            let connections: usize = of_site(site).map(|load| load.connections as usize).sum();
            let most = greatest * connections.clamp(1, loads.len().max(1)) as f64;
            if is_hungry[site] { most } else { used[site] }
        };
        let wants: Vec<f64> = sites.map(want).collect();
        let dues = dues(machine, &wants);
        Demand { is_hungry, used, dues }
    }

    /// That of some, in their order.
    fn of_sites(&self, sites: &[usize]) -> Demand {
        let of = |values: &[f64]| sites.iter().map(|&site| values[site]).collect();
        let is_hungry = sites.iter().map(|&site| self.is_hungry[site]).collect();
        Demand { is_hungry, used: of(&self.used), dues: of(&self.dues) }
    }
}

/// Each site's weight on each worker if what it gets follows its connections. One without connections anywhere may get them on any.
fn weights(machine: &Machine, loads: &[Vec<SiteLoad>]) -> Vec<Vec<f64>> {
    let mut within = vec![0.0; machine.owners.len()];
    for site in &machine.sites {
        within[site.owner] += f64::from(site.weight.max(1));
    }
    let count = loads.len() as f64;
    let connections = |site: usize| loads.iter().map(|sites| f64::from(sites[site].connections)).sum::<f64>();
    let totals: Vec<f64> = (0..machine.sites.len()).map(connections).collect();
    let weight = |site: usize, load: &SiteLoad| {
        let Entitlement { owner, weight } = machine.sites[site];
        let share = f64::from(machine.owners[owner].max(1)) * f64::from(weight.max(1)) / within[owner];
        // Half by where the connections are, half evenly: what comes new isn't starved where the site has none yet.
        let part = if totals[site] > 0.0 { f64::from(load.connections) / totals[site] } else { 1.0 / count };
        share * (part + 1.0 / count) / 2.0
    };
    loads.iter().map(|sites| sites.iter().enumerate().map(|(site, load)| weight(site, load)).collect()).collect()
}

/// What the weights with these factors entitle sites to, of what those leave who want less.
fn entitled(machine: &Machine, loads: &[Vec<SiteLoad>], demand: &Demand, factors: &[f64]) -> Vec<f64> {
    let mut entitled = vec![0.0; factors.len()];
    for ((weights, loads), &capacity_ns) in weights(machine, loads).iter().zip(loads).zip(&machine.capacities_ns) {
        let raised: Vec<f64> = weights.iter().zip(factors).map(|(weight, factor)| weight * factor).collect();
        let want = |(load, &is_hungry): (&SiteLoad, &bool)| match load.connections {
            1.. if is_hungry => f64::INFINITY,
            _ => load.used_ns as f64,
        };
        let wants: Vec<f64> = loads.iter().zip(&demand.is_hungry).map(want).collect();
        let here = fill(capacity_ns as f64, &wants, &raised);
        entitled.iter_mut().zip(here).for_each(|(entitled, here)| *entitled += here);
    }
    entitled
}

/// What each site ought to get: the machine is shared among owners, and each owner's part among its sites.
fn dues(machine: &Machine, wants: &[f64]) -> Vec<f64> {
    let total = machine.capacities_ns.iter().map(|&ns| ns as f64).sum();
    let owner_wants =
        spread(machine.owners.len(), machine.sites.iter().map(|site| site.owner).zip(wants.iter().copied()));
    let owner_weights: Vec<f64> = machine.owners.iter().map(|&weight| f64::from(weight.max(1))).collect();
    let owner_dues = fill(total, &owner_wants, &owner_weights);
    let mut dues = vec![0.0; wants.len()];
    let mut wanting = vec![Vec::new(); machine.owners.len()];
    for site in (0..wants.len()).filter(|&site| wants[site] > 0.0) {
        wanting[machine.sites[site].owner].push(site);
    }
    for (members, due) in wanting.into_iter().zip(owner_dues) {
        let member_wants: Vec<f64> = members.iter().map(|&site| wants[site]).collect();
        let weights: Vec<f64> = members.iter().map(|&site| f64::from(machine.sites[site].weight.max(1))).collect();
        for (site, due) in members.into_iter().zip(fill(due, &member_wants, &weights)) {
            dues[site] = due;
        }
    }
    dues
}

/// Weights as the tree takes them, for owners and for sites among their owner's.
fn local_weights(machine: &Machine, loads: &[Vec<SiteLoad>], factors: &[f64]) -> (Vec<Vec<u32>>, Vec<Vec<u32>>) {
    let (mut owners, mut sites) = (Vec::new(), Vec::new());
    for (weights, loads) in weights(machine, loads).iter().zip(loads) {
        let raised: Vec<f64> = weights.iter().zip(factors).map(|(weight, factor)| weight * factor).collect();
        let of_owners = |is_counted: &dyn Fn(usize) -> bool| {
            let counted = (0..raised.len()).filter(|&site| is_counted(site));
            spread(machine.owners.len(), counted.map(|site| (machine.sites[site].owner, raised[site])))
        };
        // An owner is worth what those of its sites are worth that want something; if none does, what all are.
        let is_wanting = |site: usize| loads[site].is_backlogged || loads[site].used_ns > 0;
        let (wanting, all) = (of_owners(&is_wanting), of_owners(&|_| true));
        let worth: Vec<f64> =
            wanting.iter().zip(&all).map(|(&wanting, &all)| if wanting > 0.0 { wanting } else { all }).collect();
        owners.push(whole(&worth));
        sites.push(whole_within(machine, &raised));
    }
    (owners, sites)
}

/// Numbers in the same proportion, the greatest [`PLAN_WEIGHT_MAX`].
fn whole(weights: &[f64]) -> Vec<u32> {
    let greatest = weights.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    weights.iter().map(|weight| (weight / greatest * PLAN_WEIGHT_MAX).round().max(1.0) as u32).collect()
}

/// As [`whole`], for each owner's sites apart.
fn whole_within(machine: &Machine, weights: &[f64]) -> Vec<u32> {
    let mut greatest = vec![f64::MIN_POSITIVE; machine.owners.len()];
    for (site, &weight) in machine.sites.iter().zip(weights) {
        greatest[site.owner] = greatest[site.owner].max(weight);
    }
    let whole = |(site, weight): (&Entitlement, &f64)| {
        (weight / greatest[site.owner] * PLAN_WEIGHT_MAX).round().max(1.0) as u32
    };
    machine.sites.iter().zip(weights).map(whole).collect()
}

#[cfg(test)]
mod tests;
