//! Owners in the metrics: who belongs to whom, and what of an owner's own quotas is used. All else of an owner is its sites' together, which whoever reads the
//! page can add up.

use std::collections::BTreeSet;
use std::sync::Arc;

use leat_host::lock::lock;
use leat_logic::admission::Resource;

use super::page::{Family, Page, RESOURCES, seconds_of_ns};
use super::{Number, ServerMetrics, WorkerMetrics};
use crate::config::Config;

/// What is counted of an owner at one worker.
#[derive(Debug, Default)]
pub struct OwnerMetrics {
    /// What those below it have used of its quotas, by resource, in nanoseconds in which as much comes in.
    pub quota_used_ns: [Number; Resource::COUNT],
}

/// Who belongs to whom, by name: an empty one for nobody.
#[derive(Debug, Default)]
pub(super) struct Belonging {
    /// Every site that is configured; none before a configuration is in force.
    names: Option<BTreeSet<String>>,
    sites: Vec<[String; 2]>,
    owners: Vec<[String; 2]>,
}

const SITE_INFO: Family = Family {
    name: "leat_site_info",
    kind: "gauge",
    labels: "site, owner",
    help: "1 for each configured site that has an owner.",
};
const OWNER_INFO: Family = Family {
    name: "leat_owner_info",
    kind: "gauge",
    labels: "owner, parent",
    help: "1 for each configured owner; `parent` is the owner that its share is part of, empty for none.",
};
const OWNER_QUOTA_USED: Family = Family {
    name: "leat_owner_quota_used_seconds_total",
    kind: "counter",
    labels: "owner, resource",
    help: "Time in which as much comes in as those below an owner have used of its own quota. Its rate is the part of the quota that is used.",
};

pub(super) const FAMILIES: [&Family; 3] = [&SITE_INFO, &OWNER_INFO, &OWNER_QUOTA_USED];

impl WorkerMetrics {
    /// The numbers of an owner, which stay over reloads.
    #[must_use]
    pub fn owner(&self, name: &str) -> Arc<OwnerMetrics> {
        lock(&self.owners).get_or_add(name, OwnerMetrics::default)
    }
}

impl ServerMetrics {
    /// Notes which sites a configuration has, and who belongs to whom.
    pub fn set_configured(&self, config: &Config) {
        let pair = |name: &String, owner: &String| [name.clone(), owner.clone()];
        let owned = config.sites.iter().filter(|site| !site.owner.is_empty());
        let belonging = Belonging {
            names: Some(config.sites.iter().map(|site| site.name.clone()).collect()),
            sites: owned.map(|site| pair(&site.name, &site.owner)).collect(),
            owners: config.owners.iter().map(|owner| pair(&owner.name, &owner.owner)).collect(),
        };
        *lock(&self.belonging) = belonging;
    }

    /// Who tells the sites that are configured from those that a reload has taken away. leat's own always are.
    pub(super) fn configured(&self) -> impl Fn(&str) -> bool {
        let names = lock(&self.belonging).names.clone();
        move |name| name.starts_with('(') || names.as_ref().is_none_or(|names| names.contains(name))
    }

    pub(super) fn render_owners(&self, page: &mut Page, workers: &[Arc<WorkerMetrics>]) {
        let belonging = lock(&self.belonging);
        let infos =
            [(&SITE_INFO, ["site", "owner"], &belonging.sites), (&OWNER_INFO, ["owner", "parent"], &belonging.owners)];
        for (family, [label, above], pairs) in infos {
            page.family(family);
            for [name, owner] in pairs {
                page.line("", &[(label, name), (above, owner)], 1);
            }
        }
        page.family(&OWNER_QUOTA_USED);
        for [name, _] in &belonging.owners {
            let parts = workers.iter().filter_map(|worker| lock(&worker.owners).get(name).cloned());
            let parts: Vec<Arc<OwnerMetrics>> = parts.collect();
            for (resource, label) in RESOURCES.iter().enumerate() {
                let used_ns: u64 = parts.iter().map(|part| part.quota_used_ns[resource].get()).sum();
                if used_ns > 0 {
                    page.value("", &[("owner", name), ("resource", label)], &seconds_of_ns(used_ns));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Owner, Site};

    #[test]
    fn owners_are_told_with_their_parents_and_what_all_workers_have_used() {
        let server = ServerMetrics::default();
        for worker in 0..2 {
            let metrics = Arc::new(WorkerMetrics::new(worker));
            metrics.owner("a").quota_used_ns[Resource::Cpu as usize].add(250_000_000);
            server.add_worker(metrics);
        }
        let owner = |name: &str, owner: &str| Owner { name: name.into(), owner: owner.into(), ..Owner::default() };
        let sites = vec![Site { name: "s".into(), owner: "b".into(), ..Site::default() }, Site::default()];
        server.set_configured(&Config { owners: vec![owner("a", ""), owner("b", "a")], sites, ..Config::default() });
        let text = server.render();
        for line in [
            "leat_site_info{site=\"s\",owner=\"b\"} 1",
            "leat_owner_info{owner=\"b\",parent=\"a\"} 1",
            "leat_owner_info{owner=\"a\",parent=\"\"} 1",
            "leat_owner_quota_used_seconds_total{owner=\"a\",resource=\"cpu\"} 0.5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        server.set_configured(&Config::default());
        assert!(!server.render().contains("owner=\""), "a reload has taken them away");
    }
}
