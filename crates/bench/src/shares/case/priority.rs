//! Figure 10 of the paper: strict priority. A site that comes first loses nothing to one that comes after it.

use std::io;

use super::Measured;
use crate::experiment::{Case, Samples};
use crate::result::Mark;
use crate::shares::bench::Bench;
use crate::shares::leat::{Setup, SharedSite};

const NAME: &str = "priority";
const FIRST: &str = "first";
const CONNECTIONS: usize = 16;
const FLOOD_CONNECTIONS: usize = 64;
const LIMIT_PERCENT: f64 = 2.0;

pub(super) struct Priority;

impl Case<Bench> for Priority {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "strict priority: a site alone, and beside one of lower priority with four times the connections (figure 10)"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let site = |name: &str, priority| SharedSite { priority, ..SharedSite::of_weight(name, 100) };
        let setup =
            Setup { root_policy: "strict_priority", ..Setup::of_sites(vec![site(FIRST, 1), site("second", 0)]) };
        let started = bench.start(&setup)?;
        let alone = (bench.saturate(CONNECTIONS), bench.burn(FIRST));
        let both = [alone.clone(), (bench.saturate(FLOOD_CONNECTIONS), bench.burn("second"))];
        for round in 0..bench.options.rounds {
            // Turn by turn, so that what else the machine does falls on both.
            let alone_per_s = bench.measure(&started, std::slice::from_ref(&alone))?.outcomes[0].answered_per_s();
            let trial = bench.measure(&started, &both)?;
            let [first, second] = [&trial.outcomes[0], &trial.outcomes[1]];
            let at = (NAME, "", round);
            bench.records.record(at, FIRST, "alone_per_s", alone_per_s);
            bench.records.record(at, FIRST, "answered_per_s", first.answered_per_s());
            bench.records.record(at, FIRST, "kept", first.answered_per_s() / alone_per_s);
            bench.records.record(at, FIRST, "p99_us", first.latency_us(0.99));
            bench.records.record(at, "second", "answered_per_s", second.answered_per_s());
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let measured = Measured { samples, case: NAME, point: "", subject: FIRST, metric: "kept" };
        vec![measured.keeps(LIMIT_PERCENT, "requests answered that it loses to the other")]
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            ("alone_per_s", "alone, answered/s", 0),
            ("answered_per_s", "both, answered/s", 0),
            ("kept", "both / alone", 3),
            ("p99_us", "p99 us", 0),
        ]
    }
}
