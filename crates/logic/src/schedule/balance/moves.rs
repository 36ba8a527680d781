//! Which connections to move when no weights give every site its due. What sites would get by the best weights is worked out, now and after
//! each move that could help; the move that helps most is made. Where none does, two are tried at once: with two connections each, one site's may
//! have to make room for the other's.

use super::fill::fill;
use super::{Demand, Machine, Move, SiteLoad, weights};

/// Plans in a row that must find that weights don't do before a connection moves.
pub(super) const PATIENCE_PLANS: u32 = 2;
/// Looking for moves is dear: each time that none helps, twice as many plans pass before the next, until that has been so often.
pub(super) const IN_VAIN_MAX: u32 = 4;
/// What may be tried for one move, in sites on workers of which each try works out what they would get: as much as 16 sites on 4 workers take.
const WORK_MAX: usize = 25_000;
/// Part of its due that a site must miss.
const SHORT_PART: f64 = 0.01;
/// Moves in one plan.
const MOVES_MAX: usize = 2;
/// Part of the machine that a move must gain for those who miss something.
const GAIN_MIN: f64 = 0.003;
/// Sites whose moves are tried, of those furthest from their due on either side.
const SITES_TRIED_MAX: usize = 8;
/// Connections that may move together: with few, a worker may have to be cleared of a site to be worth anything to another.
const GROUP_MAX: u32 = 4;
/// The part of a worker with other sites on it that one connection can use: while its reply is on its way, another's turn comes.
const SINGLE_PART: f64 = 0.5;
/// Moves that are tried in pairs: with more there are enough connections for one at a time to help.
const PAIRED_MAX: usize = 24;
/// How often weights are adjusted to find what can be reached.
const ROUNDS: usize = 64;
/// Part of its due by which a site may miss it there.
const TOLERANCE: f64 = 0.001;
/// As far as weights are raised or lowered there.
const FACTOR_MAX: f64 = 4_096.0;

/// Whether a site can't get its due by weights alone.
pub(super) fn is_short(machine: &Machine, loads: &[Vec<SiteLoad>], demand: &Demand) -> bool {
    let gets = best(machine, loads, demand);
    demand.dues.iter().zip(&gets).any(|(due, get)| due - get > due * SHORT_PART)
}

/// The moves that bring sites nearer to their dues.
pub(super) fn choose(machine: &Machine, loads: &[Vec<SiteLoad>], demand: &Demand) -> Vec<Move> {
    let gain_min = machine.capacities_ns.iter().map(|&ns| ns as f64).sum::<f64>() * GAIN_MIN;
    let mut loads = loads.to_vec();
    let mut moves: Vec<Move> = Vec::new();
    while moves.len() < MOVES_MAX {
        let gets = best(machine, &loads, demand);
        let missing_now = missing(demand, &gets);
        let after = |moves: &[Move]| missing(demand, &best(machine, &all_moved(&loads, moves), demand));
        let mut candidates = candidates(&loads, demand, &gets);
        let tries_max = tries_max(machine, &loads);
        candidates.truncate(tries_max);
        let most_helpful = |tried: Vec<Vec<Move>>| {
            let tried = tried.into_iter().map(|moves| (after(&moves), moves));
            let least = tried.min_by(|(a, _), (b, _)| a.total_cmp(b));
            least.filter(|(missing_then, _)| missing_now - missing_then >= gain_min).map(|(_, moves)| moves)
        };
        let single = most_helpful(candidates.iter().map(|&it| vec![it]).collect());
        let pair = || {
            (moves.is_empty() && candidates.len() <= PAIRED_MAX.min(tries_max.isqrt()))
                .then(|| most_helpful(pairs(&candidates)))?
        };
        let Some(found) = single.or_else(pair) else { break };
        loads = all_moved(&loads, &found);
        moves.extend(found);
    }
    moves
}

/// How many moves may be tried: those of the sites first that are furthest from their due.
pub(super) fn tries_max(machine: &Machine, loads: &[Vec<SiteLoad>]) -> usize {
    WORK_MAX / (machine.sites.len() * loads.len()).max(1)
}

/// Moves of two sites each.
fn pairs(candidates: &[Move]) -> Vec<Vec<Move>> {
    let others = |one: &Move| candidates.iter().filter(|other| other.site > one.site).copied().collect::<Vec<_>>();
    candidates.iter().flat_map(|&one| others(&one).into_iter().map(move |other| vec![one, other])).collect()
}

fn all_moved(loads: &[Vec<SiteLoad>], moves: &[Move]) -> Vec<Vec<SiteLoad>> {
    moves.iter().fold(loads.to_vec(), |loads, &it| moved(&loads, it))
}

/// What all sites together are kept from getting though it's their due.
fn missing(demand: &Demand, gets: &[f64]) -> f64 {
    demand.dues.iter().zip(gets).map(|(due, get)| (due - get).max(0.0)).sum()
}

/// One connection, or several where there are few, of the sites that are furthest from their due, to anywhere else.
fn candidates(loads: &[Vec<SiteLoad>], demand: &Demand, gets: &[f64]) -> Vec<Move> {
    let off = |site: usize| (demand.dues[site] - gets[site]).abs();
    let mut sites: Vec<usize> = (0..gets.len()).collect();
    sites.sort_by(|&a, &b| off(b).total_cmp(&off(a)));
    sites.truncate(SITES_TRIED_MAX);
    let workers = 0..loads.len();
    let mut candidates = Vec::new();
    for site in sites {
        for from in workers.clone() {
            let all = loads[from][site].connections;
            // With many, one at a time is enough.
            let group = if all <= GROUP_MAX { all } else { 1 };
            for connections in 1..=group.min(all) {
                let others = workers.clone().filter(|&to| to != from);
                candidates.extend(others.map(|to| Move { site, from, to, connections }));
            }
        }
    }
    candidates
}

/// The loads after a move. What was used goes along with the connections.
fn moved(loads: &[Vec<SiteLoad>], it: Move) -> Vec<Vec<SiteLoad>> {
    let mut after = loads.to_vec();
    let from = &mut after[it.from][it.site];
    let used_ns = from.used_ns / u64::from(from.connections.max(1)) * u64::from(it.connections);
    from.connections = from.connections.saturating_sub(it.connections);
    from.used_ns -= used_ns;
    let to = &mut after[it.to][it.site];
    to.connections += it.connections;
    to.used_ns += used_ns;
    after
}

/// What sites would get of all workers with the weights that bring them nearest to their dues.
pub(super) fn best(machine: &Machine, loads: &[Vec<SiteLoad>], demand: &Demand) -> Vec<f64> {
    let limits: Vec<Vec<f64>> =
        (0..loads.len()).map(|worker| limits(machine, worker, &loads[worker], demand)).collect();
    let weights = weights(machine, loads);
    let mut factors = vec![1.0_f64; demand.dues.len()];
    let mut gets = vec![0.0; factors.len()];
    for _ in 0..ROUNDS {
        gets.fill(0.0);
        for (worker, limits) in limits.iter().enumerate() {
            let raised: Vec<f64> = weights[worker].iter().zip(&factors).map(|(it, factor)| it * factor).collect();
            let here = fill(machine.capacities_ns[worker] as f64, limits, &raised);
            gets.iter_mut().zip(here).for_each(|(get, here)| *get += here);
        }
        if demand.dues.iter().zip(&gets).all(|(due, get)| (due - get).abs() <= due * TOLERANCE) {
            break;
        }
        for ((factor, due), get) in factors.iter_mut().zip(&demand.dues).zip(&gets) {
            if *get > 0.0 {
                *factor = (*factor * due / get).clamp(1.0 / FACTOR_MAX, FACTOR_MAX);
            }
        }
    }
    gets
}

/// The most that each site can use of one worker, whatever its weight.
fn limits(machine: &Machine, worker: usize, loads: &[SiteLoad], demand: &Demand) -> Vec<f64> {
    let capacity = machine.capacities_ns[worker] as f64;
    let present = loads.iter().filter(|load| load.connections > 0).count();
    let limit = |(site, load): (usize, &SiteLoad)| match (demand.is_hungry[site], load.connections) {
        (false, _) => load.used_ns as f64,
        (true, 0) => 0.0,
        (true, 1) if present > 1 => capacity * SINGLE_PART,
        _ => f64::INFINITY,
    };
    loads.iter().enumerate().map(limit).collect()
}
