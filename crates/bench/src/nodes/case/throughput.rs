//! One to six nodes, each with a small part of a core: whether they answer in proportion, and with how many the dispatcher would be what binds.

use std::io;

use super::super::bench::{Bench, HAPROXY, LEAT};
use super::super::setup::{Limits, Policy, Setup};
use super::{at_most, percent};
use crate::experiment::{Case, Plot, Samples, plot::Scale};
use crate::load::Plan;
use crate::result::{Figure, Mark};
use crate::workload::mix::Mix;

const NAME: &str = "throughput";
const NODES_MAX: usize = 6;
/// So little that six of them want less than the dispatcher, which has a core of its own, can give them: they are what binds.
const LIMITS: Limits = Limits { cpu_percent: 5, disk: None };
/// By how many hundredths less than in proportion is allowed.
const LOST_PERCENT: f64 = 5.0;
/// Name, file, length, and connections for each node: so many that something always waits there, though it may use its processor only once in 20 ms, and does
/// some ten of the smallest then.
const SIZES: [(&str, &str, u64, usize); 3] =
    [("1 KB", "1k", 1 << 10, 48), ("64 KB", "64k", 64 << 10, 24), ("1 MB", "1m", 1 << 20, 12)];

pub(super) struct Throughput;

impl Case<Bench> for Throughput {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "one to six nodes, a twentieth of a core each, one request a connection"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let files = bench.sizes(&SIZES.map(|(_, file, bytes, _)| (file, bytes)))?;
        for round in 0..bench.options.rounds {
            for nodes in 1..=NODES_MAX {
                let limits = Some(LIMITS);
                let setup = Setup { nodes, policy: Policy::LeastConnections, limits, wire: None, are_all_told: true };
                let mut cluster = bench.up(&setup, &files)?;
                if let Err(error) = bench.add_proxy(&mut cluster) {
                    bench.records.note(NAME, &format!("HAProxy, round {round}: {error}"));
                }
                for (size, file, _, connections) in SIZES {
                    let mix = Mix::new(vec![(files.requests(file, true), 1.0)]);
                    let plan = Plan { may_be_refused: true, ..bench.saturate(connections * nodes, 1) };
                    for who in [LEAT, HAPROXY] {
                        let trial = bench.measure(&cluster, who, &plan, &mix)?;
                        let (at, name) = ((NAME, size, round), row(who, nodes));
                        let (dispatcher_us, nodes_us) = (trial.dispatcher_us(who == LEAT), trial.nodes_us());
                        let records = &mut bench.records;
                        records.record(at, &name, "answered_per_s", trial.outcome.answered_per_s());
                        records.record(at, &name, "dispatcher_us", dispatcher_us);
                        records.record(at, &name, "nodes_us", nodes_us);
                        records.record(at, &name, "binds_at", nodes_us / dispatcher_us);
                        records.record(at, &name, "used_percent", trial.used_percent(LIMITS));
                        records.record(at, &name, "busiest_percent", trial.busiest_percent());
                        records.record(at, &name, "refused_per_s", trial.outcome.refused_per_s());
                        records.record(at, &name, "failed", trial.failed() as f64);
                        if trial.failed() > 0 {
                            records.note(NAME, &format!("{name}, {size}, round {round}: {:?}", trial.outcome.failures));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let mark = |size: &str| {
            let lost = in_proportion(samples, size, LEAT, NODES_MAX).map(|percent| 100.0 - percent);
            let failed = samples.failures(NAME, size, &row(LEAT, NODES_MAX));
            at_most((NAME, size), "six nodes: less than six times one's", lost, LOST_PERCENT, "%", failed)
        };
        SIZES.map(|(size, ..)| mark(size)).to_vec()
    }

    fn figures(&self, samples: &Samples) -> Vec<Figure> {
        let figure = |size: &str, who: &str, text: &str, value: Option<f64>, unit: &str| {
            let (case, subject) = (format!("{NAME} {size}"), who.to_owned());
            value.map(|value| Figure { case, subject, figure: text.to_owned(), value, unit: unit.to_owned() })
        };
        let of = |(size, who): (&str, &str)| {
            let binds = samples.median(NAME, size, &row(who, NODES_MAX), "binds_at");
            let proportion = in_proportion(samples, size, who, NODES_MAX);
            [
                figure(
                    size,
                    who,
                    "nodes of one core at which a dispatcher of one core would be at its limit",
                    binds,
                    "nodes",
                ),
                figure(size, who, "six nodes, of six times one's", proportion, "%"),
            ]
        };
        let both = SIZES.iter().flat_map(|&(size, ..)| [(size, LEAT), (size, HAPROXY)]);
        both.flat_map(of).flatten().collect()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            ("answered_per_s", "answered/s", 0),
            ("dispatcher_us", "dispatcher's us a request", 1),
            ("nodes_us", "nodes' us a request", 1),
            ("binds_at", "binds at so many nodes", 1),
            ("used_percent", "% that the nodes used of their processor time", 0),
            ("busiest_percent", "% that the busiest used of the mean", 0),
            ("refused_per_s", "refused/s", 0),
            ("failed", "failed", 0),
        ]
    }

    fn plots(&self, samples: &Samples) -> Vec<Plot> {
        let line = |size: &str, who: &str| {
            let point =
                |nodes: usize| Some((nodes as f64, in_proportion(samples, size, who, nodes)? * nodes as f64 / 100.0));
            (format!("{who}, {size}"), (1..=NODES_MAX).filter_map(point).collect())
        };
        vec![Plot {
            name: "throughput",
            title: "Requests answered, of one node's".to_owned(),
            x: ("nodes", Scale::Linear),
            y: Scale::Linear,
            series: SIZES.iter().flat_map(|&(size, ..)| [line(size, LEAT), line(size, HAPROXY)]).collect(),
        }]
    }
}

fn row(who: &str, nodes: usize) -> String {
    format!("{who}, {nodes}")
}

/// What so many nodes answer, in hundredths of as many times one's.
fn in_proportion(samples: &Samples, size: &str, who: &str, nodes: usize) -> Option<f64> {
    let answered = |nodes| samples.median(NAME, size, &row(who, nodes), "answered_per_s");
    percent(answered(nodes), answered(1).map(|one| one * nodes as f64))
}
