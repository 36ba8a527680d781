//! Figure 12 of the paper: processor time of a request under weighted fair beside round robin, small files.

use std::io;

use super::Measured;
use crate::experiment::{Case, Samples};
use crate::result::{Figure, Mark};
use crate::shares::bench::{Bench, SMALL_FILE};
use crate::shares::leat::{Setup, SharedSite};
use crate::shares::tree_bench::TreeBench;

const NAME: &str = "policy-cost";
const FAIR: &str = "weighted_fair";
const PLAIN: &str = "round_robin";
const CONNECTIONS: usize = 32;
const LIMIT_PERCENT: f64 = 2.0;
/// More rounds than others have: a difference of a hundredth is looked for.
const ROUNDS_FACTOR: u32 = 3;
/// Leaves of two sites.
const LEAVES: u32 = 6;

pub(super) struct PolicyCost;

impl Case<Bench> for PolicyCost {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "CPU a request, weighted fair and round robin, two sites with a file of 612 bytes (figure 12)"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let sites = || vec![SharedSite::of_weight("a", 200), SharedSite::of_weight("b", 100)];
        let start = |policy| bench.start(&Setup { root_policy: policy, ..Setup::of_sites(sites()) });
        // Both at once, as one that isn't asked anything costs nothing: turns can be short.
        let servers = [(FAIR, start(FAIR)?), (PLAIN, start(PLAIN)?)];
        let clients = ["a", "b"].map(|site| (bench.saturate(CONNECTIONS), bench.file(site, SMALL_FILE, "")));
        for round in 0..bench.options.rounds * ROUNDS_FACTOR {
            let mut cpu_us = [0.0; 2];
            for place in 0..2 {
                // Who comes first changes, too.
                let place = (place + round as usize) % 2;
                let (policy, started) = &servers[place];
                let trial = bench.measure(started, &clients)?;
                cpu_us[place] = trial.cpu_us_per_request();
                bench.records.record((NAME, "", round), policy, "cpu_us", cpu_us[place]);
                bench.records.record((NAME, "", round), policy, "answered_per_s", trial.answered_per_s());
            }
            bench.records.record((NAME, "", round), FAIR, "beside_round_robin", cpu_us[0] / cpu_us[1]);
        }
        let tree = TreeBench::build()?;
        for policy in [FAIR, PLAIN] {
            if let Some(instructions) = tree.event_instructions(policy, LEAVES, "stages") {
                bench.records.record((NAME, "", 0), policy, "event_instructions", instructions);
            }
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let ratio = Measured { samples, case: NAME, point: "", subject: FAIR, metric: "beside_round_robin" };
        let more_percent = ratio.median().map(|ratio| (ratio - 1.0) * 100.0);
        let doubt = ratio.doubt(LIMIT_PERCENT / 2.0);
        vec![ratio.at_most(more_percent, Some(LIMIT_PERCENT), "%", "more CPU a request than round robin", doubt)]
    }

    fn figures(&self, samples: &Samples) -> Vec<Figure> {
        let of = |subject| {
            let measured = Measured { samples, case: NAME, point: "", subject, metric: "event_instructions" };
            measured.told("instructions for an event in the tree", "")
        };
        [FAIR, PLAIN].into_iter().filter_map(of).collect()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            ("cpu_us", "CPU us a request", 2),
            ("beside_round_robin", "beside round robin", 3),
            ("answered_per_s", "answered/s", 0),
            ("event_instructions", "instructions an event", 0),
        ]
    }
}
