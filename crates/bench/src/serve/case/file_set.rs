//! A set of files: processor time and latency at parts of the slowest server's capacity, the same for all.
//!
//! Every server has answered for every file once before it is measured, as in the original after its long warm-up: what a
//! first look costs (opening, hashing) is another question.

use std::io;
use std::time::Duration;

use super::{
    Case, Judge, LEAT, SATURATED, SATURATED_CAPTION, SLICE_P99, last, latency_figures, load_columns, saturated_figures,
};
use crate::experiment::Samples;
use crate::load::{Demand, Plan, Spacing};
use crate::result::{Figure, Mark};
use crate::serve::bench::{Bench, Turns};
use crate::server::{Site, is_variant};
use crate::workload::file_set::FileSet;
use crate::workload::specweb99::{self, SetFile};

const SPECWEB99_DIRECTORIES: u32 = 100;
/// Of the set that fits in no server's own memory (leat keeps 128 MiB of contents, nobody keeps so many files open), but in the kernel's.
const MANY_DIRECTORIES: u64 = 400;
const MANY_FILES_IN_EACH: u64 = 100;
const MANY_BYTES: u64 = 8 << 10;
/// Parts of the slowest server's capacity at which latency is measured.
const LOADS: [(&str, f64); 2] = [("50%", 0.5), ("80%", 0.8)];

/// Where processor time is judged.
const CPU_POINT: &str = "80%";

pub(super) struct ServedSet {
    name: &'static str,
    title: &'static str,
    files: fn() -> Vec<SetFile>,
    peers: &'static [&'static str],
}

pub(super) fn all() -> [ServedSet; 2] {
    [
        ServedSet {
            name: "specweb99",
            title: "SPECweb99 static set, Zipf over 100 directories",
            files: || specweb99::files(SPECWEB99_DIRECTORIES),
            peers: &["nginx", "h2o", "lighttpd"],
        },
        ServedSet {
            name: "many",
            title: "40,000 files of 8 KB, all asked for equally often",
            files: many,
            // lighttpd keeps a file open for some seconds, and answers 403 once it has no descriptors left.
            peers: &["nginx", "h2o"],
        },
    ]
}

fn many() -> Vec<SetFile> {
    let names = (0..MANY_DIRECTORIES).flat_map(|directory| (0..MANY_FILES_IN_EACH).map(move |file| (directory, file)));
    let file = |(directory, file)| SetFile { path: format!("{directory}/{file}.html"), bytes: MANY_BYTES, weight: 1.0 };
    names.map(file).collect()
}

impl Case<Bench> for ServedSet {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> &'static str {
        self.title
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let root = bench.folder().join(self.name);
        let files = FileSet::create(&root, (self.files)(), bench.options.seed)?;
        let site = Site { root, only_file: None, close: false };
        let mix = files.mix(false, |_| true);
        let window = bench.window();
        let seed = bench.options.seed;
        let plan =
            move |address| Plan { window, seed, warm_up: Duration::from_millis(500), ..Plan::saturate(address, 64) };
        bench.rounds(
            Turns { case: self.name, site: &site, rounds: bench.few_rounds() },
            |server| !is_variant(server),
            |bench, server, round| {
                let running = bench.start(server, &site)?;
                running.visit(files.paths())?;
                let measured = bench.measure(&running, &plan(running.address()), &mix)?;
                bench.record_load((self.name, SATURATED, round), server.name(), &measured);
                Ok(())
            },
        );
        let compared = |server: &str| LEAT.contains(&server) || self.peers.contains(&server);
        let Some(slowest_per_s) = self.slowest(&bench.records.samples, compared) else { return Ok(()) };
        for (point, part) in LOADS {
            let demand = Demand::Rate { per_s: slowest_per_s * part, spacing: Spacing::Poisson };
            let turns = Turns { case: self.name, site: &site, rounds: bench.options.rounds };
            bench.rounds(turns, compared, |bench, server, round| {
                let running = bench.start(server, &site)?;
                running.visit(files.paths())?;
                let seed = seed + u64::from(round);
                let plan = Plan { demand, connections: 256, seed, ..plan(running.address()) };
                let measured = bench.measure_latency(&running, &plan, &mix)?;
                bench.record_load((self.name, point, round), server.name(), &measured);
                Ok(())
            });
        }
        self.prove(bench)
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let mut marks = Vec::new();
        for leat in LEAT {
            for peer in self.peers {
                let judge = Judge { samples, case: self.name, point: CPU_POINT, metric: "cpu_us", unit: "us" };
                marks.push(judge.beside(leat, peer, 1.0, &format!("less CPU a request than {peer}")));
                for (point, _) in LOADS {
                    let judge = Judge { samples, case: self.name, point, metric: SLICE_P99, unit: "us" };
                    let text =
                        format!("p99 of the median slice lower than {peer}'s at {point} of the slowest one's capacity");
                    marks.push(judge.beside(leat, peer, 1.0, &text));
                }
            }
        }
        marks
    }

    fn figures(&self, samples: &Samples) -> Vec<Figure> {
        let latencies = LOADS.iter().flat_map(|(point, _)| latency_figures(samples, self.name, point));
        latencies.chain(saturated_figures(samples, self.name)).collect()
    }

    fn points(&self, samples: &Samples) -> Vec<String> {
        last(samples.points(self.name), SATURATED)
    }

    fn caption(&self, point: &str, _samples: &Samples) -> String {
        match point {
            SATURATED => SATURATED_CAPTION.to_owned(),
            CPU_POINT => format!("At {point} of the slowest one's capacity; processor time is judged here"),
            _ => format!("At {point} of the slowest one's capacity"),
        }
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        load_columns()
    }
}

impl ServedSet {
    /// A do-nothing server has one reply: one of the set's mean length stands for the set.
    fn prove(&self, bench: &mut Bench) -> io::Result<()> {
        let set = (self.files)();
        let total: f64 = set.iter().map(|file| file.weight).sum();
        let mean_bytes = set.iter().map(|file| file.bytes as f64 * file.weight / total).sum::<f64>() as u64;
        let root = bench.folder().join(format!("{}-mean", self.name));
        let files = FileSet::of_sizes(&root, &[("mean.html", mean_bytes)], bench.options.seed)?;
        let site = Site { root: root.clone(), only_file: Some(root.join("mean.html")), close: false };
        let plan = Plan::saturate(std::net::SocketAddr::from(([127, 0, 0, 1], 0)), 64);
        for point in [LOADS[0].0, LOADS[1].0] {
            bench.prove_offer((self.name, point), &site, &plan, &files.mix(false, |_| true));
        }
        Ok(())
    }

    /// The least capacity of the servers that `compared` accepts.
    fn slowest(&self, samples: &Samples, compared: impl Fn(&str) -> bool) -> Option<f64> {
        samples.least(self.name, SATURATED, "answered_per_s", compared).map(|(_, capacity)| capacity)
    }
}
