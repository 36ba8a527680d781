//! Packets are lost on the way between clients and servers, and data servers die in mid-reply: every byte of every reply is compared.

use std::io;
use std::time::Duration;

use super::super::bench::{Bench, Cluster, Load, Trial, size};
use super::super::setup::{Kind, Setup};
use super::{at_most, saturate, with_setup};
use crate::experiment::{Case, Samples};
use crate::lab::faults::{self, Happened, Storm, Wire};
use crate::result::Mark;

/// All requests are delegated, and connections go to and fro.
const SETUP: Setup = Setup::new(Kind::Full(3), 1, 3);
const CONNECTION_SERVER: &str = "cs";
/// Sizes and how often each is asked for.
const SIZES: [(&str, f64); 4] = [("4 KB", 0.80), ("64 KB", 0.15), ("128 KB", 0.04), ("1 MB", 0.01)];
const REQUESTS: u64 = 1_000_000;
const REQUESTS_PER_CONNECTION: u32 = 10;

/// What becomes of packets; data servers die or don't.
pub(super) struct Faults {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) wire: Wire,
    pub(super) connections: usize,
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
        with_setup(bench, self.name, (&Setup { wire: Some(self.wire), ..SETUP }, None), |bench, cluster| {
            let (trial, happened) = self.measure(bench, cluster)?;
            let found = (&trial.outcomes[0], happened);
            faults::record(&mut bench.records, (self.name, &SETUP.name()), (&cluster.lab, CONNECTION_SERVER), found)
        });
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let judged = faults::judged(samples, self.name, &SETUP.name(), REQUESTS as f64);
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
    fn measure(&self, bench: &Bench, cluster: &Cluster) -> io::Result<(Trial, Happened)> {
        let load = Load {
            warm_up: Duration::ZERO,
            drain: Duration::from_secs(10),
            requests_max: REQUESTS,
            verify_every: 1,
            ..saturate(bench, self.connections, Some(REQUESTS_PER_CONNECTION))
        };
        let behind = SETUP.hosts().into_iter().skip(SETUP.connection_servers).map(|machine| machine.host);
        let dying = behind.filter(|_| self.deaths).collect();
        let sizes = SIZES.map(|(name, weight)| (size(name), weight));
        Storm::of_deaths(dying).beside(&cluster.lab, || bench.measure_mix(cluster, &sizes, &load))
    }
}
