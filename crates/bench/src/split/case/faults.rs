//! Packets are lost on the way between clients and servers, and data servers die in mid-reply: every byte of every reply is compared.

use std::io;
use std::time::Duration;

use super::super::bench::{Bench, Cluster, Load, Trial, size};
use super::super::setup::{Kind, Setup};
use super::{at_most, with_setup};
use crate::experiment::{Case, Samples};
use crate::lab::faults;
use crate::result::Mark;

/// Every request but the smallest is delegated, and connections go to and fro.
const SETUP: Setup = Setup { wire_packets: true, ..Setup::new(Kind::Full(3), 1, 3) };
/// Sizes and how often each is asked for.
const SIZES: [(&str, f64); 4] = [("4 KB", 0.80), ("64 KB", 0.15), ("128 KB", 0.04), ("1 MB", 0.01)];
const REQUESTS: f64 = 1e6;
const CONNECTIONS: usize = 64;
const REQUESTS_PER_CONNECTION: u32 = 10;

/// So many of a hundred packets are lost, each way; data servers die or don't.
pub(super) struct Faults {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) lost_percent: u32,
    pub(super) deaths: bool,
}

impl Case<Bench> for Faults {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> &'static str {
        self.title
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        with_setup(bench, self.name, (&SETUP, None), |bench, cluster| {
            faults::lose_packets(&cluster.lab, self.lost_percent)?;
            let (trial, deaths) = self.measure(bench, cluster)?;
            faults::record(&mut bench.records, (self.name, ""), &SETUP.name(), &trial.outcomes[0], deaths);
            Ok(())
        });
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let judged = faults::judged(samples, self.name, &SETUP.name(), REQUESTS);
        let mark = |(text, value, limit): (String, Option<f64>, f64)| {
            at_most((self.name, ""), &text, value, limit, "", String::new())
        };
        judged.map(mark).to_vec()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        faults::COLUMNS.to_vec()
    }
}

impl Faults {
    /// The load, and how often a data server died meanwhile.
    fn measure(&self, bench: &Bench, cluster: &Cluster) -> io::Result<(Trial, u64)> {
        let load = Load {
            connections: CONNECTIONS,
            requests: Some(REQUESTS_PER_CONNECTION),
            rate: None,
            warm_up: Duration::ZERO,
            window: Duration::from_secs_f64(bench.options.run.seconds),
            verify_every: 1,
        };
        let behind = SETUP.hosts().into_iter().skip(SETUP.connection_servers).map(|machine| machine.host);
        let dying: Vec<_> = behind.filter(|_| self.deaths).collect();
        let sizes = SIZES.map(|(name, weight)| (size(name), weight));
        faults::while_they_die(&cluster.lab, &dying, || bench.measure_mix(cluster, &sizes, &load))
    }
}
