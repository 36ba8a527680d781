//! Throughput and latency against offered load, for the plots: the small file, an open loop.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use super::{Case, load_columns};
use crate::experiment::Samples;
use crate::experiment::plot::{Plot, Scale};
use crate::load::{Demand, Plan, Spacing};
use crate::result::Mark;
use crate::serve::bench::{Bench, Turns};
use crate::server::{Site, is_variant};
use crate::workload::file_set::FileSet;

const NAME: &str = "curve";
const RATES_PER_S: [u32; 9] = [5_000, 10_000, 20_000, 40_000, 60_000, 80_000, 100_000, 120_000, 150_000];
/// A server that answers less than this share of what is offered isn't asked for more.
const KEPT_UP_MIN: f64 = 0.8;

pub(super) struct Curve;

impl Case<Bench> for Curve {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "612-byte file, 256 connections: throughput and latency against offered load"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let root = bench.folder().join(NAME);
        let files = FileSet::of_sizes(&root, &[("file.html", 612)], bench.options.seed)?;
        let site = Site { root: root.clone(), only_file: Some(root.join("file.html")), close: false };
        let mix = files.mix(false, |_| true);
        let wanted = |server: &str| !is_variant(server) && server != "nothing-sendfile";
        let window = bench.window().min(Duration::from_millis(700));
        let shape = Plan {
            window,
            warm_up: Duration::from_millis(300),
            drain: Duration::from_millis(200),
            ..Plan::saturate(([127, 0, 0, 1], 0).into(), 256)
        };
        let mut behind: BTreeSet<String> = BTreeSet::new();
        for rate in RATES_PER_S {
            let point = rate.to_string();
            let demand = Demand::Rate { per_s: f64::from(rate), spacing: Spacing::Poisson };
            let keeps_up = behind.clone();
            bench.rounds(
                Turns { case: NAME, site: &site, rounds: bench.few_rounds() },
                |server| wanted(server) && !keeps_up.contains(server),
                |bench, server, round| {
                    let running = bench.start(server, &site)?;
                    let plan = Plan { demand, address: running.address(), seed: 1 + u64::from(round), ..shape.clone() };
                    let measured = bench.measure(&running, &plan, &mix)?;
                    bench.record_load((NAME, &point, round), server.name(), &measured);
                    Ok(())
                },
            );
            for server in bench.records.samples.servers(NAME) {
                let answered = bench.records.samples.median(NAME, &point, &server, "answered_per_s");
                if answered.is_some_and(|answered| answered < f64::from(rate) * KEPT_UP_MIN) {
                    behind.insert(server);
                }
            }
            bench.prove_offer((NAME, &point), &site, &shape, &mix);
        }
        Ok(())
    }

    fn marks(&self, _samples: &Samples) -> Vec<Mark> {
        Vec::new()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        load_columns()
    }

    fn plots(&self, samples: &Samples) -> Vec<Plot> {
        let x = ("offered per second", Scale::Linear);
        let throughput = series(samples, "answered_per_s");
        let latency = series(samples, "p99_us");
        vec![
            Plot {
                name: "throughput",
                title: "answered per second".to_owned(),
                x,
                y: Scale::Linear,
                series: throughput,
            },
            Plot {
                name: "latency",
                title: "p99 latency, us (log)".to_owned(),
                x,
                y: Scale::Logarithmic,
                series: latency,
            },
        ]
    }
}

fn series(samples: &Samples, metric: &str) -> Vec<(String, Vec<(f64, f64)>)> {
    let points = samples.points(NAME);
    let of = |server: String| {
        let values = points.iter().filter_map(|point| {
            let value = samples.median(NAME, point, &server, metric)?;
            Some((point.parse().ok()?, value))
        });
        let values = values.collect();
        (server, values)
    };
    samples.servers(NAME).into_iter().map(of).collect()
}
