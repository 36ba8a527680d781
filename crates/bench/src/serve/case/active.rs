//! Thousands of connections of which a tenth is active: latency at half of the slowest main peer's capacity.

use std::io;
use std::time::Duration;

use super::{Case, Judge, LEAT, SLICE_P99, latency_figures, load_columns};
use crate::experiment::Samples;
use crate::load::{Demand, Plan, Spacing};
use crate::result::{Figure, Mark};
use crate::serve::bench::{Bench, Turns};
use crate::server::{Site, is_peer};
use crate::workload::file_set::FileSet;

const NAME: &str = "active";
const ACTIVE: usize = 400;
const IDLE: usize = 3_600;
const CAPACITY: &str = "capacity";
/// Whose capacity sets the load: slower ones would leave the others nearly idle.
const MAIN_PEERS: [&str; 3] = ["nginx", "h2o", "lighttpd"];
const PART_OF_SLOWEST: f64 = 0.5;

pub(super) struct Active;

impl Case<Bench> for Active {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "612-byte file, 4,000 connections, 400 of them active, at half of what the slowest of nginx, h2o, lighttpd can"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let root = bench.folder().join(NAME);
        let files = FileSet::of_sizes(&root, &[("file.html", 612)], bench.options.seed)?;
        let site = Site { root: root.clone(), only_file: Some(root.join("file.html")), close: false };
        let mix = files.mix(false, |_| true);
        let window = bench.window();
        let plan = move |address| Plan {
            idle: IDLE,
            window,
            warm_up: Duration::from_millis(500),
            ..Plan::saturate(address, ACTIVE)
        };
        bench.rounds(
            Turns { case: NAME, site: &site, rounds: bench.few_rounds() },
            |server| MAIN_PEERS.contains(&server),
            |bench, server, round| {
                let running = bench.start(server, &site)?;
                let measured = bench.measure(&running, &plan(running.address()), &mix)?;
                bench.record_load((NAME, CAPACITY, round), server.name(), &measured);
                Ok(())
            },
        );
        let slowest = bench.records.samples.least(NAME, CAPACITY, "answered_per_s", |_| true);
        let Some((_, slowest_per_s)) = slowest else { return Ok(()) };
        let demand = Demand::Rate { per_s: slowest_per_s * PART_OF_SLOWEST, spacing: Spacing::Poisson };
        let wanted = |server: &str| server != "nginx-threads" && server != "nothing-sendfile";
        let turns = Turns { case: NAME, site: &site, rounds: bench.options.rounds };
        bench.rounds(turns, wanted, |bench, server, round| {
            let running = bench.start(server, &site)?;
            let plan = Plan { demand, seed: 1 + u64::from(round), ..plan(running.address()) };
            let measured = bench.measure_latency(&running, &plan, &mix)?;
            bench.record_load((NAME, "", round), server.name(), &measured);
            Ok(())
        });
        let plan = Plan { idle: 0, ..plan(std::net::SocketAddr::from(([127, 0, 0, 1], 0))) };
        bench.prove_offer((NAME, ""), &site, &plan, &mix);
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let judge = Judge { samples, case: NAME, point: "", metric: SLICE_P99, unit: "us" };
        LEAT.map(|leat| judge.below_best(leat, is_peer, "p99 of the median slice no worse than the best peer's")).into()
    }

    fn figures(&self, samples: &Samples) -> Vec<Figure> {
        latency_figures(samples, NAME, "")
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        load_columns()
    }
}
