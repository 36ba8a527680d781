//! Shares over workers: what each worker says it did goes to the balancer, and its plan to the workers. What is planned is `Balancer`'s to say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leat_logic::schedule::PolicyKind;
use leat_logic::schedule::balance::{Balancer, Entitlement, Machine, Plan, SiteLoad};
use leat_logic::time::Instant;

use crate::config::{Config, First};
use crate::metrics::{SiteMetrics, WorkerMetrics};
use crate::worker::control::{Control, Mailbox};

/// Between two plans while there is something to plan.
const INTERVAL: Duration = Duration::from_millis(50);
/// Between two looks at workers that have nothing to do.
const IDLE_INTERVAL: Duration = Duration::from_millis(500);
/// The part of the time in which a site isn't served that it must have waited to be taken for one that wants more.
const WAITED_PART: f64 = 0.7;

/// A worker that takes part.
pub struct Member {
    /// Names it.
    pub number: usize,
    /// What it has counted.
    pub metrics: Arc<WorkerMetrics>,
    /// How to tell it.
    pub mailbox: Arc<Mailbox>,
}

/// What a worker had counted of a site when it was last looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    used_ns: u64,
    waited_us: u64,
}

impl Counted {
    fn of(site: &SiteMetrics) -> Counted {
        let sum = |read: fn(&crate::metrics::StageMetrics) -> u64| site.stages.iter().map(read).sum();
        Counted { used_ns: sum(|stage| stage.used_ns.get()), waited_us: sum(|stage| stage.waited_us.get()) }
    }
}

/// A worker's sites as they were last looked at. Their metrics are found by name once: there may be hundreds.
struct Known {
    metrics: Arc<WorkerMetrics>,
    sites: Vec<(Arc<SiteMetrics>, Counted)>,
}

impl Known {
    fn of(config: &Config, metrics: &Arc<WorkerMetrics>) -> Known {
        let sites = config.sites.iter().map(|site| metrics.site(&site.name));
        let sites = sites.map(|site| (site.clone(), Counted::of(&site))).collect();
        Known { metrics: metrics.clone(), sites }
    }
}

/// See the module.
#[derive(Default)]
pub struct Balance {
    balancer: Balancer,
    /// By worker, then by site.
    known: BTreeMap<usize, Known>,
    looked: Instant,
    /// The configuration that the balancer's past is of.
    config: Option<Arc<Config>>,
}

impl Balance {
    /// Looks at the workers, and tells them what to do; how long until the next time, if ever.
    pub fn step(&mut self, config: &Arc<Config>, members: &[Member], now: Instant) -> Option<Duration> {
        if members.len() < 2 || config.sites.len() < 2 || !can_plan(config) {
            return None;
        }
        if self.config.as_ref().is_none_or(|known| !Arc::ptr_eq(known, config)) {
            *self = Balance { config: Some(config.clone()), ..Balance::default() };
        }
        let elapsed = now.since(std::mem::replace(&mut self.looked, now));
        let mut loads = Vec::with_capacity(members.len());
        let mut is_new = self.known.len() != members.len();
        for Member { number, metrics, .. } in members {
            if self.known.get(number).is_none_or(|known| !Arc::ptr_eq(&known.metrics, metrics)) {
                is_new = true;
                self.known.insert(*number, Known::of(config, metrics));
            }
            let sites = self.known.get_mut(number).into_iter().flat_map(|known| &mut known.sites);
            let load = |(site, counted): &mut (Arc<SiteMetrics>, Counted)| {
                let before = std::mem::replace(counted, Counted::of(site));
                load(counted, &before, site, elapsed)
            };
            loads.push(sites.map(load).collect::<Vec<_>>());
        }
        self.known.retain(|number, _| members.iter().any(|member| member.number == *number));
        if is_new {
            return Some(INTERVAL);
        }
        let wanting = (0..config.sites.len()).filter(|&site| loads.iter().any(|sites| sites[site].is_backlogged));
        let wanting = wanting.count();
        // One that wants more where nobody else does is kept from it by weights that were raised for others.
        if wanting == 0 || (wanting == 1 && self.balancer.is_at_rest()) {
            // Nobody competes: whatever the weights are, each gets what there is.
            let is_idle = loads.iter().flatten().all(|load| load.used_ns == 0);
            return Some(if is_idle { IDLE_INTERVAL } else { INTERVAL });
        }
        let machine = machine(config, &loads, elapsed);
        let mut plan = self.balancer.plan(&machine, &loads);
        if wanting == 1 {
            plan.moves.clear();
        }
        tell(config, members, &machine, plan);
        Some(INTERVAL)
    }
}

/// Tells workers their parts of a plan.
fn tell(config: &Arc<Config>, members: &[Member], machine: &Machine, plan: Plan) {
    for ((member, owners), sites) in members.iter().zip(plan.owners).zip(plan.sites) {
        let (owners, sites) = weights(config, machine, &owners, &sites);
        member.mailbox.send(Control::Weigh { config: config.clone(), owners, sites });
    }
    for it in plan.moves {
        let (from, to) = (&members[it.from].mailbox, members[it.to].mailbox.clone());
        let site = config.sites[it.site].name.clone();
        from.send(Control::Depart { site, connections: it.connections, to });
    }
}

/// Whether shares are divided by weight alone, by sites below owners at most: of other trees no plan is made, and each worker keeps its own.
fn can_plan(config: &Config) -> bool {
    let is_flat = config.owners.iter().all(|owner| owner.owner.is_empty());
    let is_fair = config.owners.iter().all(|owner| owner.policy == PolicyKind::WeightedFair);
    config.schedule.first == First::Sites && config.schedule.root == PolicyKind::WeightedFair && is_flat && is_fair
}

fn load(now: &Counted, before: &Counted, site: &SiteMetrics, elapsed: Duration) -> SiteLoad {
    let used_ns = now.used_ns.saturating_sub(before.used_ns);
    let waited_ns = now.waited_us.saturating_sub(before.waited_us) as f64 * 1e3;
    let unserved_ns = (elapsed.as_nanos() as f64 - used_ns as f64).max(0.0);
    let connections = u32::try_from(site.connections.get()).unwrap_or(u32::MAX);
    SiteLoad { used_ns, is_backlogged: used_ns > 0 && waited_ns > unserved_ns * WAITED_PART, connections }
}

/// Owners first, in the order of the configuration, then one for each site without.
fn machine(config: &Config, loads: &[Vec<SiteLoad>], elapsed: Duration) -> Machine {
    let mut owners: Vec<u32> = config.owners.iter().map(|owner| owner.weight).collect();
    let sites = config
        .sites
        .iter()
        .map(|site| match config.owners.iter().position(|owner| owner.name == site.owner) {
            Some(owner) => Entitlement { owner, weight: site.weight },
            None => {
                owners.push(site.weight);
                Entitlement { owner: owners.len() - 1, weight: 1 }
            }
        })
        .collect();
    let capacity_ns = |sites: &Vec<SiteLoad>| {
        let used_ns = sites.iter().map(|load| load.used_ns).sum::<u64>();
        let is_full = sites.iter().any(|load| load.is_backlogged);
        // Others may have the processor for a part of the time.
        if is_full { used_ns } else { used_ns.max(elapsed.as_nanos() as u64) }
    };
    Machine { capacities_ns: loads.iter().map(capacity_ns).collect(), owners, sites }
}

/// A worker's weights, of owners and of sites, in the order of the configuration.
fn weights(config: &Config, machine: &Machine, owners: &[u32], sites: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let configured = config.owners.len();
    let of_site = |(site, &weight): (&Entitlement, &u32)| match site.owner {
        own if own >= configured => owners[own],
        _ => weight,
    };
    (owners[..configured].to_vec(), machine.sites.iter().zip(sites).map(of_site).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Owner, Site};

    fn config() -> Arc<Config> {
        let site = |name: &str, owner: &str, weight| Site {
            name: name.to_owned(),
            owner: owner.to_owned(),
            weight,
            ..Site::default()
        };
        let owners = vec![Owner { name: "x".to_owned(), weight: 300, ..Owner::default() }];
        Arc::new(Config { owners, sites: vec![site("a", "x", 50), site("b", "", 100)], ..Config::default() })
    }

    fn members() -> Vec<Member> {
        let member = |number| Member {
            number,
            metrics: Arc::new(WorkerMetrics::new(number)),
            mailbox: Arc::new(Mailbox::new().unwrap()),
        };
        (0..2).map(member).collect()
    }

    /// Both workers have served `a` and `b` for so many milliseconds each, and the sites waited, or didn't.
    fn work(members: &[Member], used_ms: [[u64; 2]; 2], have_waited: [bool; 2]) {
        for (member, used_ms) in members.iter().zip(used_ms) {
            for ((name, used_ms), has_waited) in ["a", "b"].into_iter().zip(used_ms).zip(have_waited) {
                let site = member.metrics.site(name);
                site.connections.set(4);
                site.stages[1].used_ns.add(used_ms * 1_000_000);
                site.stages[1].waited_us.add(if has_waited { 200_000 } else { 0 });
            }
        }
    }

    /// The last weights that a worker was told.
    fn told(member: &Member) -> Option<(Vec<u32>, Vec<u32>)> {
        member.mailbox.take().into_iter().rev().find_map(|message| match message {
            Control::Weigh { owners, sites, .. } => Some((owners, sites)),
            _ => None,
        })
    }

    #[test]
    fn who_gets_less_than_its_due_is_raised() {
        let (config, members, mut balance) = (config(), members(), Balance::default());
        let at_ms = |ms: u64| Instant { ns: 1_000_000_000 + ms * 1_000_000 };
        assert_eq!(balance.step(&config, &members, at_ms(0)), Some(INTERVAL));
        work(&members, [[25, 25], [25, 25]], [true; 2]);
        balance.step(&config, &members, at_ms(50));
        for member in &members {
            let (owners, sites) = told(member).expect("a plan");
            // 3:1 is due, and 1:1 was had.
            assert!(owners[0] > sites[1] * 3, "{owners:?} {sites:?}");
        }
    }

    #[test]
    fn who_wants_more_alone_is_not_kept_from_it_by_what_was_planned_for_two() {
        let (config, members, mut balance) = (config(), members(), Balance::default());
        let mut steps = 0;
        let mut step = |balance: &mut Balance| {
            steps += 1;
            balance.step(&config, &members, Instant { ns: 1_000_000_000 + steps * 50_000_000 });
            told(&members[0])
        };
        step(&mut balance);
        for _ in 0..5 {
            // `a` waits now and then, though it gets all that it asks for.
            work(&members, [[30, 20], [30, 20]], [true; 2]);
            step(&mut balance);
        }
        work(&members, [[40, 10], [40, 10]], [false, true]);
        let mut last = step(&mut balance);
        for _ in 0..80 {
            work(&members, [[40, 10], [40, 10]], [false, true]);
            last = step(&mut balance).or(last);
        }
        let (owners, sites) = last.expect("a plan");
        let ratio = f64::from(owners[0]) / f64::from(sites[1]);
        assert!((ratio - 3.0).abs() < 0.1, "{ratio} for 3:1");
    }

    #[test]
    fn who_has_nothing_to_do_is_told_nothing() {
        let (config, members, mut balance) = (config(), members(), Balance::default());
        assert_eq!(balance.step(&config, &members, Instant { ns: 1 }), Some(INTERVAL));
        assert_eq!(balance.step(&config, &members, Instant { ns: 50_000_000 }), Some(IDLE_INTERVAL));
        assert_eq!(told(&members[0]), None);
        assert_eq!(balance.step(&config, &members[..1], Instant { ns: 60_000_000 }), None);
    }
}
