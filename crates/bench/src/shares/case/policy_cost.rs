//! Figure 12 of the paper: processor time of a request under weighted fair beside round robin, small files.

use std::io;
use std::time::Duration;

use super::Measured;
use crate::experiment::samples::median;
use crate::experiment::{Case, Samples};
use crate::load::Plan;
use crate::result::{Figure, Mark};
use crate::shares::bench::{Bench, SMALL_FILE};
use crate::shares::leat::{Setup, SharedSite};
use crate::shares::tree_bench::TreeBench;

const NAME: &str = "policy-cost";
const FAIR: &str = "weighted_fair";
const PLAIN: &str = "round_robin";
const CONNECTIONS: usize = 32;
const LIMIT_PERCENT: f64 = 2.0;
/// More rounds than others have, of many pairs of short windows: a difference of a hundredth is looked for, and what else the machine does
/// changes within a second.
const ROUNDS_FACTOR: u32 = 3;
const PAIRS_EACH_ROUND: u32 = 16;
const WINDOW_PART: f64 = 0.1;
const WARM_UP: Duration = Duration::from_millis(15);
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
        let window = Duration::from_secs_f64(bench.options.seconds * WINDOW_PART);
        let plan = Plan { warm_up: WARM_UP, window, ..bench.saturate(CONNECTIONS) };
        let clients = ["a", "b"].map(|site| (plan.clone(), bench.file(site, SMALL_FILE, "")));
        for round in 0..bench.options.rounds * ROUNDS_FACTOR {
            let (mut cpu_us, mut answered_per_s) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
            for pair in 0..PAIRS_EACH_ROUND as usize {
                for place in 0..2 {
                    // Who comes first changes, too.
                    let place = (place + pair) % 2;
                    let trial = bench.measure(&servers[place].1, &clients)?;
                    cpu_us[place].push(trial.cpu_us_per_request());
                    answered_per_s[place].push(trial.answered_per_s());
                }
            }
            let ratios = cpu_us[0].iter().zip(&cpu_us[1]).map(|(fair, plain)| fair / plain).collect();
            let mut keep = |policy, metric, values| {
                if let Some(median) = median(values) {
                    bench.records.record((NAME, "", round), policy, metric, median);
                }
            };
            keep(FAIR, "beside_round_robin", ratios);
            for ((policy, _), (cpu_us, answered_per_s)) in servers.iter().zip(cpu_us.into_iter().zip(answered_per_s)) {
                keep(policy, "cpu_us", cpu_us);
                keep(policy, "answered_per_s", answered_per_s);
            }
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
