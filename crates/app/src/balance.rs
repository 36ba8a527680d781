//! Shares over workers: what each worker says it did goes to the balancer, and its plan to the workers. What is planned is `Balancer`'s to say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leat_logic::schedule::PolicyKind;
use leat_logic::schedule::balance::{Balancer, Entitlement, Machine, Plan, SiteLoad};
use leat_logic::time::Instant;

use crate::config::{Config, First, Owner};
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
    /// What is planned of it.
    units: Units,
}

impl Balance {
    /// Looks at the workers, and tells them what to do; how long until the next time, if ever.
    pub fn step(&mut self, config: &Arc<Config>, members: &[Member], now: Instant) -> Option<Duration> {
        if members.len() < 2 || config.sites.len() < 2 || !can_plan(config) {
            return None;
        }
        if self.config.as_ref().is_none_or(|known| !Arc::ptr_eq(known, config)) {
            *self = Balance { config: Some(config.clone()), units: Units::of(config), ..Balance::default() };
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
        let units = &self.units;
        let sites = loads;
        let loads: Vec<Vec<SiteLoad>> = sites.iter().map(|sites| units.loads(sites)).collect();
        let is_wanting = |&unit: &usize| loads.iter().any(|units| units[unit].is_backlogged);
        let wanting = (0..units.entitled.len()).filter(is_wanting).count();
        // One that wants more where nobody else does is kept from it by weights that were raised for others.
        if wanting == 0 || (wanting == 1 && self.balancer.is_at_rest()) {
            // Nobody competes: whatever the weights are, each gets what there is.
            let is_idle = loads.iter().flatten().all(|load| load.used_ns == 0);
            return Some(if is_idle { IDLE_INTERVAL } else { INTERVAL });
        }
        let machine = units.machine(&loads, elapsed);
        let mut plan = self.balancer.plan(&machine, &loads);
        if wanting == 1 {
            plan.moves.clear();
        }
        tell(config, members, units, &sites, plan);
        Some(INTERVAL)
    }
}

/// Tells workers their parts of a plan.
fn tell(config: &Arc<Config>, members: &[Member], units: &Units, loads: &[Vec<SiteLoad>], plan: Plan) {
    for ((member, owners), sites) in members.iter().zip(plan.owners).zip(plan.sites) {
        let (owners, sites) = units.weights(config, &owners, &sites);
        member.mailbox.send(Control::Weigh { config: config.clone(), owners, sites });
    }
    for it in plan.moves {
        let (from, to) = (&members[it.from].mailbox, members[it.to].mailbox.clone());
        let Some(site) = units.mover(it.site, &loads[it.from]) else { continue };
        let site = config.sites[site].name.clone();
        from.send(Control::Depart { site, connections: it.connections, to });
    }
}

/// Whether the machine is divided by weight alone: else no plan is made, and each worker keeps its own order.
fn can_plan(config: &Config) -> bool {
    config.schedule.first == First::Sites && config.schedule.root == PolicyKind::WeightedFair
}

/// What a plan is made of: a site; or all that is below an owner that has owners, or doesn't divide by weight. That is planned as a whole, and each worker
/// keeps its own order within it.
#[derive(Default)]
struct Units {
    /// Owners first, in the order of the configuration, then one for each site without.
    owners: Vec<u32>,
    entitled: Vec<Entitlement>,
    /// Of each site of the configuration, and whether that is all of it.
    of_sites: Vec<(usize, bool)>,
}

impl Units {
    fn of(config: &Config) -> Units {
        let owners = config.owners.iter().map(|owner| owner.weight).collect();
        let mut units = Units { owners, entitled: Vec::new(), of_sites: Vec::with_capacity(config.sites.len()) };
        let places: BTreeMap<&str, usize> =
            config.owners.iter().enumerate().map(|(place, owner)| (owner.name.as_str(), place)).collect();
        let above = |owner: &str| places.get(owner).copied();
        let owners = config.owners_by_name();
        // The outermost owner of each.
        let top = |place: usize| {
            owners.above(&config.owners[place].name).last().and_then(|owner| above(&owner.name)).unwrap_or(place)
        };
        let mut is_plain: Vec<bool> =
            config.owners.iter().map(|owner| owner.policy == PolicyKind::WeightedFair).collect();
        for (place, owner) in config.owners.iter().enumerate() {
            if above(&owner.owner).is_some() {
                is_plain[top(place)] = false;
            }
        }
        let mut wholes = BTreeMap::new();
        for site in &config.sites {
            let next = units.entitled.len();
            let of_site = match above(&site.owner).map(top) {
                None => {
                    units.owners.push(site.weight);
                    units.entitled.push(Entitlement { owner: units.owners.len() - 1, weight: 1 });
                    (next, true)
                }
                Some(owner) if is_plain[owner] => {
                    units.entitled.push(Entitlement { owner, weight: site.weight });
                    (next, true)
                }
                Some(owner) => {
                    let unit = *wholes.entry(owner).or_insert(next);
                    if unit == next {
                        units.entitled.push(Entitlement { owner, weight: 1 });
                    }
                    (unit, false)
                }
            };
            units.of_sites.push(of_site);
        }
        units
    }

    /// What each did on a worker where sites did so much.
    fn loads(&self, sites: &[SiteLoad]) -> Vec<SiteLoad> {
        let mut loads = vec![SiteLoad::default(); self.entitled.len()];
        for (&(unit, _), load) in self.of_sites.iter().zip(sites) {
            let sum = &mut loads[unit];
            sum.used_ns += load.used_ns;
            sum.is_backlogged |= load.is_backlogged;
            sum.connections = sum.connections.saturating_add(load.connections);
        }
        loads
    }

    fn machine(&self, loads: &[Vec<SiteLoad>], elapsed: Duration) -> Machine {
        let capacity_ns = |units: &Vec<SiteLoad>| {
            let used_ns = units.iter().map(|load| load.used_ns).sum::<u64>();
            let is_full = units.iter().any(|load| load.is_backlogged);
            // Others may have the processor for a part of the time.
            if is_full { used_ns } else { used_ns.max(elapsed.as_nanos() as u64) }
        };
        let capacities_ns = loads.iter().map(capacity_ns).collect();
        Machine { capacities_ns, owners: self.owners.clone(), sites: self.entitled.clone() }
    }

    /// A worker's weights, of owners and of sites, in the order of the configuration.
    fn weights(&self, config: &Config, owners: &[u32], units: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let configured = config.owners.len();
        let by_name = config.owners_by_name();
        let is_below = |owner: &Owner| by_name.above(&owner.owner).next().is_some();
        let of_owners = config.owners.iter().zip(owners).map(|(owner, &planned)| match is_below(owner) {
            true => owner.weight,
            false => planned,
        });
        let of_sites =
            config.sites.iter().zip(&self.of_sites).map(|(site, &(unit, is_all))| match self.entitled[unit] {
                Entitlement { owner, .. } if owner >= configured => owners[owner],
                _ if is_all => units[unit],
                _ => site.weight,
            });
        (of_owners.collect(), of_sites.collect())
    }

    /// The site of a unit that has most connections on a worker: its move.
    fn mover(&self, unit: usize, sites: &[SiteLoad]) -> Option<usize> {
        let of_unit = (0..sites.len()).filter(|&site| self.of_sites[site].0 == unit);
        of_unit.max_by_key(|&site| sites[site].connections)
    }
}

fn load(now: &Counted, before: &Counted, site: &SiteMetrics, elapsed: Duration) -> SiteLoad {
    let used_ns = now.used_ns.saturating_sub(before.used_ns);
    let waited_ns = now.waited_us.saturating_sub(before.waited_us) as f64 * 1e3;
    let unserved_ns = (elapsed.as_nanos() as f64 - used_ns as f64).max(0.0);
    let connections = u32::try_from(site.connections.get()).unwrap_or(u32::MAX);
    SiteLoad { used_ns, is_backlogged: used_ns > 0 && waited_ns > unserved_ns * WAITED_PART, connections }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Site;

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

    /// Two owners of a stranger's, one below the other, and sites below both.
    fn with_nested(config: &Config) -> Arc<Config> {
        let mut config = config.clone();
        let owner = |name: &str, owner: &str, weight| Owner {
            name: name.to_owned(),
            owner: owner.to_owned(),
            weight,
            ..Owner::default()
        };
        // The inner one comes first, as it may.
        config.owners.extend([owner("inner", "outer", 70), owner("outer", "", 100)]);
        let site = |name: &str, owner: &str, weight| Site {
            name: name.to_owned(),
            owner: owner.to_owned(),
            weight,
            ..Site::default()
        };
        config.sites.extend([site("c", "inner", 20), site("d", "outer", 30), site("e", "inner", 40)]);
        Arc::new(config)
    }

    #[test]
    fn a_strangers_nested_owner_keeps_nobody_from_its_share() {
        let (config, members, mut balance) = (with_nested(&config()), members(), Balance::default());
        let at_ms = |ms: u64| Instant { ns: 1_000_000_000 + ms * 1_000_000 };
        assert_eq!(balance.step(&config, &members, at_ms(0)), Some(INTERVAL));
        work(&members, [[25, 25], [25, 25]], [true; 2]);
        balance.step(&config, &members, at_ms(50));
        for member in &members {
            let (owners, sites) = told(member).expect("a plan");
            assert!(owners[0] > sites[1] * 3, "{owners:?} {sites:?}");
            assert_eq!((owners[1], &sites[2..]), (70, &[20, 30, 40][..]), "each worker keeps their order");
        }
    }

    #[test]
    fn what_is_below_an_owner_with_owners_is_planned_as_a_whole() {
        let config = with_nested(&config());
        let units = Units::of(&config);
        assert_eq!(units.owners, [300, 70, 100, 100]);
        assert_eq!(units.of_sites, [(0, true), (1, true), (2, false), (2, false), (2, false)]);
        let entitled = |owner, weight| Entitlement { owner, weight };
        assert_eq!(units.entitled, [entitled(0, 50), entitled(3, 1), entitled(2, 1)]);
        let load = |used_ns, is_backlogged, connections| SiteLoad { used_ns, is_backlogged, connections };
        let sites = [load(1, false, 1), load(2, false, 1), load(4, false, 2), load(8, true, 5), load(16, false, 3)];
        assert_eq!(units.loads(&sites), [sites[0], sites[1], load(28, true, 10)]);
        assert_eq!((units.mover(0, &sites), units.mover(2, &sites)), (Some(0), Some(3)));
        let (owners, sites) = units.weights(&config, &[5, 6, 7, 8], &[9, 10, 11]);
        assert_eq!((owners, sites), (vec![5, 70, 7], vec![9, 8, 20, 30, 40]));
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
