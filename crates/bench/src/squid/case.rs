//! How much of what clients ask for a cluster of caches has, and how fast it answers, by how content is spread.

use std::io;
use std::time::Duration;

use super::bench::{Bench, HASH, LARD, ONE, Setup, TURNS};
use crate::experiment::{Case, Samples};
use crate::result::Mark;

const NAME: &str = "cluster-cache";
const HITS: &str = "hit_percent";
const ANSWERED: &str = "answered_per_s";
const SETUPS: [Setup; 4] = [ONE, LARD, HASH, TURNS];
/// What the origin takes: as long as the options say, for so many at once or for all, or no longer than it must.
const FEW: &str = "the origin takes its time, for few at once";
const SLOW: &str = "the origin takes its time";
const FAST: &str = "the origin answers at once";
const POINTS: [&str; 3] = [FEW, SLOW, FAST];
/// Percentage points of hits that a cluster may lack.
const LACKING_MAX: f64 = 2.0;
/// Round robin's throughput times this.
const FACTOR: f64 = 1.5;

pub(super) fn all() -> Vec<Box<dyn Case<Bench>>> {
    vec![Box::new(ClusterCache)]
}

struct ClusterCache;

impl Case<Bench> for ClusterCache {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "two caches and a working set twice one's size, one request a connection, popularity by Zipf"
    }

    /// In every round each setup has its turn, the order moved on by one.
    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        for round in 0..bench.options.run.rounds {
            let mut setups = SETUPS;
            setups.rotate_left(round as usize % SETUPS.len());
            for point in POINTS {
                for setup in setups {
                    if let Err(error) = turn(bench, setup, point, round) {
                        bench.records.note(NAME, &format!("{}, {point}, round {round}: {error}", setup.name));
                    }
                }
            }
        }
        let options = &bench.options;
        let text = format!(
            "each of two caches has {} MB; the slow origin takes {} ms, where it's for few at once for {}",
            options.memory_mb, options.origin_ms, options.origin_at_once
        );
        bench.records.note(NAME, &text);
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        POINTS.into_iter().flat_map(|point| marks(samples, point)).collect()
    }

    fn caption(&self, point: &str, _samples: &Samples) -> String {
        point.to_owned()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            (HITS, "% from a cache", 2),
            (ANSWERED, "answered/s", 0),
            ("p50_ms", "p50 ms", 1),
            ("p99_ms", "p99 ms", 1),
            ("squid_us", "us of Squid a request", 0),
            ("dispatcher_us", "us of leat", 0),
            ("failed", "failed", 0),
        ]
    }
}

fn turn(bench: &mut Bench, setup: Setup, point: &str, round: u32) -> io::Result<()> {
    let pause = if point == FAST { Duration::ZERO } else { Duration::from_millis(bench.options.origin_ms) };
    let at_once = if point == FEW { bench.options.origin_at_once.max(1) } else { usize::MAX };
    let trial = bench.measure(setup, (pause, at_once))?;
    let outcome = &trial.outcome;
    let at = (NAME, point, round);
    let records = &mut bench.records;
    records.record(at, setup.name, HITS, 100.0 - 100.0 * trial.missed as f64 / outcome.answered.max(1) as f64);
    records.record(at, setup.name, ANSWERED, outcome.answered_per_s());
    records.record(at, setup.name, "p50_ms", outcome.latency_us(0.5) / 1e3);
    records.record(at, setup.name, "p99_ms", outcome.latency_us(0.99) / 1e3);
    let each_us = |spent: Duration| spent.as_secs_f64() * 1e6 / outcome.answered.max(1) as f64;
    records.record(at, setup.name, "squid_us", each_us(trial.squids));
    records.record(at, setup.name, "dispatcher_us", each_us(trial.dispatcher));
    records.record(at, setup.name, "failed", outcome.failed() as f64);
    if outcome.failed() > 0 {
        records.note(NAME, &format!("{}, {point}, round {round}: {:?}", setup.name, outcome.failures));
    }
    Ok(())
}

/// By the medians of the rounds.
fn marks(samples: &Samples, point: &str) -> [Mark; 2] {
    let median = |setup: Setup, metric| samples.median(NAME, point, setup.name, metric);
    let mark = |text: &str, value: Option<f64>, limit: f64, unit: &str| {
        let doubt = samples.failures(NAME, point, LARD.name);
        Mark::at_most((format!("{NAME}: {point}"), LARD.name), text, value, Some(limit), unit, doubt)
    };
    let lacking = median(ONE, HITS).zip(median(LARD, HITS)).map(|(one, lard)| one - lard);
    let slower = median(TURNS, ANSWERED).zip(median(LARD, ANSWERED)).map(|(turns, lard)| turns / lard);
    [
        mark("hits within 2 points of one cache of the summed size", lacking, LACKING_MAX, "points"),
        mark("1.5 times round robin's throughput, as its part of this one's", slower, 1.0 / FACTOR, ""),
    ]
}
