//! What all workers of an engine count together: the sites and owners with quotas, and what the configuration lets them use; how often clients have asked for
//! what has a rate; how many requests of a site are in flight that may have so many only. Workers lock only to find and to limit them, at a reload; what is used is in atomic numbers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use leat_host::lock::lock;
use leat_host::process;
use leat_logic::admission::{AccessRule, Aggregate, ClientRate, ClientRates, InFlight, Rate, Resource};
use leat_logic::schedule::PolicyKind;
use leat_logic::time::Instant;

use crate::config::{Access, Owner, OwnersByName, Quota, Site};

/// What may be used at once after a pause, as a part of a second's.
const BURSTS_EACH_SECOND: u64 = 20;
/// The least that may be used at once: a few segments, and a slice of a handler.
pub(super) const BURST_BYTES_MIN: u64 = 16 * 1024;
const BURST_NS_MIN: u64 = 200_000;
/// A hundredth of a worker, each second.
const PERCENT_NS: u64 = 10_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Site,
    Owner,
}

type Known = BTreeMap<(Of, String), Weak<Aggregate>>;

/// By the site's name, the paths, the rate, and which it is of several that are the same.
type KnownRates = BTreeMap<(String, String, ClientRate, usize), Weak<ClientRates>>;

/// See the module.
#[derive(Debug, Default)]
pub struct Aggregates {
    known: Mutex<Known>,
    rates: Mutex<KnownRates>,
    in_flight: Mutex<BTreeMap<String, Weak<InFlight>>>,
}

impl Aggregates {
    /// The aggregates that a site belongs to, each with its weight in the next: its own, its owner's and so on, as far as the last that has a quota. What
    /// they may use is set to what is configured.
    pub(super) fn path(
        &self,
        workers: usize,
        owners: &OwnersByName<'_>,
        site: &Site,
        now: Instant,
    ) -> Vec<(Arc<Aggregate>, u32)> {
        let weight = |owner: Option<&&Owner>, weight| match owner {
            Some(owner) if owner.policy == PolicyKind::WeightedFair => weight,
            _ => 1,
        };
        let owners: Vec<&Owner> = owners.above(&site.owner).collect();
        let mut path = vec![(Of::Site, &site.name, &site.quota, weight(owners.first(), site.weight))];
        path.extend(owners.iter().enumerate().map(|(level, owner)| {
            (Of::Owner, &owner.name, &owner.quota.0, weight(owners.get(level + 1), owner.weight))
        }));
        while path.last().is_some_and(|(_, _, quota, _)| !quota.is_any()) {
            path.pop();
        }
        let workers = workers.max(1) as u64;
        let mut all = lock(&self.known);
        let each = path.into_iter().map(|(of, name, quota, weight)| {
            let aggregate = find(&mut all, of, name);
            limit(&aggregate, quota, workers, now);
            (aggregate, weight)
        });
        each.collect()
    }

    /// Where a site's requests are counted: of one that has a limit for them with those of all workers, as that is for all together.
    pub(super) fn in_flight(&self, site: &Site) -> Arc<InFlight> {
        if site.max_in_flight == 0 {
            return Arc::default();
        }
        let mut all = lock(&self.in_flight);
        if let Some(known) = all.get(&site.name).and_then(Weak::upgrade) {
            return known;
        }
        all.retain(|_, known| known.strong_count() > 0);
        let new = Arc::default();
        all.insert(site.name.clone(), Arc::downgrade(&new));
        new
    }

    /// The rules of a site for who may ask and how often. What clients have asked for counts on for as long as the rate is the same. `seed`: for new rates.
    pub(super) fn access_rules(&self, site: &Site) -> Vec<AccessRule> {
        let mut all = lock(&self.rates);
        all.retain(|_, rates| rates.strong_count() > 0);
        let rules = site.access.iter().enumerate().map(|(at, access)| {
            let rate_of = |access: &Access| ClientRate { requests: access.requests, per: access.per };
            let rate = rate_of(access);
            let is_same = |before: &&Access| before.path == access.path && rate_of(before) == rate;
            let before = site.access[..at].iter().filter(is_same).count();
            let key = (site.name.clone(), access.path.to_string(), rate, before);
            let rates = (access.requests > 0).then(|| {
                let known = all.get(&key).and_then(Weak::upgrade);
                known.unwrap_or_else(|| {
                    // Nobody outside may know who shares a place with whom.
                    let new = Arc::new(ClientRates::new(rate, process::random_number()));
                    all.insert(key, Arc::downgrade(&new));
                    new
                })
            });
            AccessRule { paths: access.path.clone(), allow: access.allow.clone(), deny: access.deny.clone(), rates }
        });
        rules.collect()
    }
}

fn find(all: &mut Known, of: Of, name: &str) -> Arc<Aggregate> {
    if let Some(aggregate) = all.get(&(of, name.to_owned())).and_then(Weak::upgrade) {
        return aggregate;
    }
    // Those of sites that are configured no more go with their last worker.
    all.retain(|_, aggregate| aggregate.strong_count() > 0);
    let aggregate = Arc::default();
    all.insert((of, name.to_owned()), Arc::downgrade(&aggregate));
    aggregate
}

fn limit(aggregate: &Aggregate, quota: &Quota, workers: u64, now: Instant) {
    let rate = |per_s: u64, least: u64| Rate { per_s, burst: (per_s / BURSTS_EACH_SECOND).max(least) };
    let bytes = |per_s: u64| (per_s > 0).then(|| rate(per_s, BURST_BYTES_MIN));
    aggregate.set(Resource::Network, bytes(quota.network_rate), now);
    aggregate.set(Resource::Disk, bytes(quota.disk_rate), now);
    let cpu = (quota.cpu < 100).then(|| rate(u64::from(quota.cpu) * PERCENT_NS * workers, BURST_NS_MIN));
    aggregate.set(Resource::Cpu, cpu, now);
    aggregate.set_memory((quota.memory > 0).then_some(quota.memory));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Access, Config, OwnerQuota};

    fn owner(name: &str, owner: &str, network_rate: u64) -> Owner {
        let quota = OwnerQuota(Quota { network_rate, ..Quota::default() });
        Owner { name: name.to_owned(), owner: owner.to_owned(), weight: 300, quota, ..Owner::default() }
    }

    #[test]
    fn a_site_belongs_to_its_owners_as_far_as_they_have_quotas() {
        let at = Instant { ns: 1 };
        let owners = vec![owner("free", "", 0), owner("top", "free", 1_000_000), owner("child", "top", 0)];
        let config = Config { owners, workers: 2, ..Config::default() };
        let owners = config.owners_by_name();
        let site = |name: &str, owner: &str, cpu| Site {
            name: name.to_owned(),
            owner: owner.to_owned(),
            weight: 50,
            quota: Quota { cpu, ..Quota::default() },
            ..Site::default()
        };
        let aggregates = Aggregates::default();
        let weights = |site: &Site| -> Vec<u32> {
            aggregates.path(config.workers, &owners, site, at).into_iter().map(|(_, weight)| weight).collect()
        };
        assert_eq!(weights(&site("a", "", 100)), [0; 0]);
        assert_eq!(weights(&site("a", "free", 100)), [0; 0]);
        assert_eq!(weights(&site("a", "", 20)), [1]);
        assert_eq!(weights(&site("a", "child", 100)), [50, 300, 300]);
        let (a, b) = (site("a", "top", 100), site("b", "child", 20));
        let (a, b) =
            (aggregates.path(config.workers, &owners, &a, at), aggregates.path(config.workers, &owners, &b, at));
        assert!(Arc::ptr_eq(&a[1].0, &b[2].0), "they have their owner's in common");
        assert!(
            Arc::ptr_eq(&b[0].0, &aggregates.path(config.workers, &owners, &site("b", "child", 20), at)[0].0),
            "as workers have"
        );
        assert_eq!(aggregates.known.lock().unwrap().len(), 4);
        drop((a, b));
        aggregates.path(config.workers, &owners, &site("c", "", 20), at);
        assert_eq!(aggregates.known.lock().unwrap().len(), 1, "nobody has the others any more");
    }

    #[test]
    fn a_rate_is_one_for_all_workers_and_stays_over_a_reload() {
        let aggregates = Aggregates::default();
        let rates = |requests| {
            let access = vec![Access { requests, ..Access::default() }];
            let site = Site { name: "a".to_owned(), access, ..Site::default() };
            aggregates.access_rules(&site).pop().and_then(|rule| rule.rates)
        };
        let (first, second) = (rates(5).unwrap(), rates(5).unwrap());
        assert!(Arc::ptr_eq(&first, &second) && rates(0).is_none());
        assert!(!Arc::ptr_eq(&first, &rates(6).unwrap()), "another rate begins anew");
        let access = [5, 6, 5].map(|requests| Access { requests, ..Access::default() }).to_vec();
        let site = Site { name: "a".to_owned(), access, ..Site::default() };
        let both = [(); 2].map(|()| aggregates.access_rules(&site));
        let same = |at: usize| Arc::ptr_eq(both[0][at].rates.as_ref().unwrap(), both[1][at].rates.as_ref().unwrap());
        assert!([0, 1, 2].into_iter().all(same), "all of a path are, each its own");
        assert!(!Arc::ptr_eq(both[0][0].rates.as_ref().unwrap(), both[0][2].rates.as_ref().unwrap()));
        drop(both);
        drop((first, second));
        assert!(rates(0).is_none() && aggregates.rates.lock().unwrap().is_empty());
    }
}
