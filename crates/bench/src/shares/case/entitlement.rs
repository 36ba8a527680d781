//! Many sites that all want everything: each gets what its weight, and its owner's, entitles it to.

use std::io;

use super::Measured;
use crate::experiment::{Case, Records, Samples};
use crate::result::Mark;
use crate::shares::bench::{Bench, Trial};
use crate::shares::leat::{Setup, SharedSite};

const CONNECTIONS: usize = 8;
const LIMIT_PERCENT: f64 = 3.0;
/// The least entitled site gets few requests in a batch.
const WINDOW_FACTOR: f64 = 4.0;

pub(super) struct Entitlement {
    name: &'static str,
    title: &'static str,
    setup: Setup,
}

/// Weights 1 to 16.
pub(super) fn sixteen_sites() -> Entitlement {
    let sites = (1..=16).map(|weight| SharedSite::of_weight(&format!("weight-{weight:02}"), weight));
    Entitlement {
        name: "sixteen-sites",
        title: "16 sites with weights 1 to 16",
        setup: Setup::of_sites(sites.collect()),
    }
}

/// Three owners with weights 1 to 3, each with sites of its own.
pub(super) fn owners() -> Entitlement {
    let site = |owner: &'static str, weight| {
        let name = format!("{owner}-{weight}");
        SharedSite { owner, ..SharedSite::of_weight(&name, weight) }
    };
    let sites = vec![
        site("one", 1),
        site("one", 2),
        site("two", 1),
        site("two", 3),
        site("three", 1),
        site("three", 2),
        site("three", 3),
    ];
    let owners = vec![("one", 1), ("two", 2), ("three", 3)];
    Entitlement {
        name: "owners",
        title: "three owners with weights 1, 2 and 3, whose sites divide their owner's share",
        setup: Setup { owners, ..Setup::of_sites(sites) },
    }
}

impl Entitlement {
    /// The part of everything that each site is entitled to, in the order of the setup.
    fn shares(&self) -> Vec<f64> {
        let Setup { sites, owners, .. } = &self.setup;
        let owned = |owner: &str| {
            sites.iter().filter(|site| site.owner == owner).map(|site| f64::from(site.weight)).sum::<f64>()
        };
        let all_owners: f64 = owners.iter().map(|&(_, weight)| f64::from(weight)).sum();
        let share = |site: &SharedSite| {
            let of_owner = owners.iter().find(|(name, _)| *name == site.owner);
            let above = of_owner.map_or(1.0, |&(_, weight)| f64::from(weight) / all_owners);
            above * f64::from(site.weight) / owned(site.owner)
        };
        sites.iter().map(share).collect()
    }
}

impl Case<Bench> for Entitlement {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> &'static str {
        self.title
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let started = bench.start(&self.setup)?;
        let mut plan = bench.saturate(CONNECTIONS);
        plan.window = plan.window.mul_f64(WINDOW_FACTOR);
        let sites = &self.setup.sites;
        let clients: Vec<_> = sites.iter().map(|site| (plan.clone(), bench.burn_evenly(&site.name))).collect();
        let shares = self.shares();
        let keep = |records: &mut Records, round: u32, trial: &Trial| {
            let all: u64 = trial.outcomes.iter().map(|outcome| outcome.answered).sum();
            let charged: f64 = sites.iter().filter_map(|site| trial.cores_used(&site.name)).sum();
            let mut worst: f64 = 1.0;
            for ((site, share), outcome) in sites.iter().zip(&shares).zip(&trial.outcomes) {
                let at = (self.name, "", round);
                let got = outcome.answered as f64 / all as f64 / share;
                records.record(at, &site.name, "entitled", *share);
                records.record(at, &site.name, "got", got);
                records.record(at, &site.name, "answered_per_s", outcome.answered_per_s());
                if let Some(cores) = trial.cores_used(&site.name).filter(|_| charged > 0.0) {
                    records.record(at, &site.name, "charged", cores / charged / share);
                }
                if (got - 1.0).abs() > (worst - 1.0).abs() {
                    worst = got;
                }
            }
            [worst]
        };
        bench.until_sure(&started, &clients, LIMIT_PERCENT / 200.0, keep)?;
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let mark = format!("requests answered within {LIMIT_PERCENT} % of what it is entitled to");
        let of = |site: &SharedSite| {
            let measured = Measured { samples, case: self.name, point: "", subject: &site.name, metric: "got" };
            measured.near(1.0, LIMIT_PERCENT, &mark)
        };
        self.setup.sites.iter().map(of).collect()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            ("entitled", "entitled to", 4),
            ("got", "answered / entitled", 3),
            ("charged", "charged / entitled", 3),
            ("answered_per_s", "answered/s", 0),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_divide_the_owners() {
        for case in [sixteen_sites(), owners()] {
            assert!((case.shares().iter().sum::<f64>() - 1.0).abs() < 1e-9, "{}", case.name);
        }
        assert!((sixteen_sites().shares()[15] - 16.0 / 136.0).abs() < 1e-9);
        let owners = owners().shares();
        assert!((owners[1] - 1.0 / 6.0 * 2.0 / 3.0).abs() < 1e-9);
        assert!((owners[6] - 0.5 * 0.5).abs() < 1e-9);
    }
}
