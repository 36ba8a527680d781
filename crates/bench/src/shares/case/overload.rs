//! Load past what the server can do: goodput stays at its peak, and what is answered is answered soon.

use std::io;
use std::time::Duration;

use super::{LEAT, Measured};
use crate::experiment::plot::{Plot, Scale};
use crate::experiment::{Case, Records, Samples};
use crate::load::Plan;
use crate::result::{Figure, Mark};
use crate::shares::bench::{Bench, LARGE_FILE, SMALL_FILE, Started, Trial};
use crate::shares::leat::{Setup, SharedSite};
use crate::workload::mix::Mix;

const NAME: &str = "overload";
const SITE: &str = "a";
const LOADS: [f64; 4] = [0.5, 1.0, 2.0, 5.0];
/// Requests of 200 to 500 us, files that take as long, and requests of 6 us.
const COMPUTING: &str = "computing";
const LARGE: &str = "1 MB";
const SMALL: &str = "612 bytes";
const KINDS: [&str; 3] = [COMPUTING, LARGE, SMALL];
/// Enough that they don't limit what is offered while answers and refusals are quick.
const CONNECTIONS: usize = 4_000;
const LOST_PERCENT: f64 = 5.0;
const P99_US: f64 = 50_000.0;
const ROUNDS_MAX: u32 = 2;
/// Until a server that queues what it can't do has as much waiting as it ever will.
const WARM_UP: Duration = Duration::from_secs(2);
const WINDOW_FACTOR: f64 = 2.0;

pub(super) struct Overload;

fn point(kind: &str, load: f64) -> String {
    format!("{kind}, load {load}")
}

fn mix(bench: &Bench, kind: &str) -> Mix {
    match kind {
        COMPUTING => bench.burn(SITE),
        LARGE => bench.file(SITE, LARGE_FILE, ""),
        _ => bench.file(SITE, SMALL_FILE, ""),
    }
}

impl Overload {
    fn run_on(bench: &mut Bench, name: &str, started: &Started, kind: &str) -> io::Result<()> {
        let mix = mix(bench, kind);
        let greedy = (bench.saturate(64), mix.clone());
        let trials = (0..3).map(|_| bench.measure_on_two(started, &greedy)).collect::<io::Result<Vec<_>>>()?;
        let capacity_per_s = trials.iter().map(Trial::answered_per_s).fold(1.0, f64::max);
        let idle_cost_us = trials.iter().map(Trial::cpu_us_per_request).fold(f64::INFINITY, f64::min);
        for round in 0..bench.options.rounds.min(ROUNDS_MAX) {
            for load in LOADS {
                let plan = bench.offer(capacity_per_s * load, CONNECTIONS);
                let plan = Plan { warm_up: WARM_UP, window: plan.window.mul_f64(WINDOW_FACTOR), ..plan };
                let trial = bench.measure_on_two(started, &(plan, mix.clone()))?;
                let at = (NAME, point(kind, load));
                record(&mut bench.records, (at.0, &at.1, round), name, &trial, capacity_per_s, idle_cost_us);
            }
        }
        Ok(())
    }
}

fn record(records: &mut Records, at: (&str, &str, u32), name: &str, trial: &Trial, capacity_per_s: f64, cost_us: f64) {
    let outcome = &trial.outcomes[0];
    records.record(at, name, "offered", outcome.offered_per_s() / capacity_per_s);
    records.record(at, name, "sent", outcome.sent_per_s() / capacity_per_s);
    records.record(at, name, "answered_per_s", outcome.answered_per_s());
    records.record(at, name, "refused_per_s", outcome.refused_per_s());
    records.record(at, name, "goodput", outcome.answered_per_s() / capacity_per_s);
    // Where nobody was answered there are no times.
    if outcome.answered > 0 {
        records.record(at, name, "p99_us", outcome.answered_us(0.99));
    }
    records.record(at, name, "unanswered", outcome.left_over() as f64 / outcome.offered.max(1) as f64);
    if outcome.refused > 0 {
        records.record(at, name, "refused_p99_us", outcome.refused_us(0.99));
        // What isn't spent on replies, at what they cost below saturation, was spent on refusals.
        let spent_us = trial.server_time.as_secs_f64() * 1e6 - outcome.answered as f64 * cost_us;
        records.record(at, name, "refusal_us", (spent_us / outcome.refused as f64).max(0.0));
    }
}

impl Case<Bench> for Overload {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "offered load up to five times what the server can do"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        for kind in KINDS {
            let started = bench.start(&Setup::of_sites(vec![SharedSite::of_weight(SITE, 100)]))?;
            Self::run_on(bench, LEAT, &started, kind)?;
            drop(started);
            match kind {
                COMPUTING => {}
                LARGE => {
                    bench.each_peer(NAME, LARGE_FILE, |bench, name, started| Self::run_on(bench, name, started, kind))
                }
                _ => bench.each_peer(NAME, SMALL_FILE, |bench, name, started| Self::run_on(bench, name, started, kind)),
            }
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let mut marks = Vec::new();
        for kind in [COMPUTING, LARGE] {
            let goodput = |load| samples.median(NAME, &point(kind, load), LEAT, "goodput");
            let peak = LOADS.into_iter().filter_map(goodput).fold(1.0, f64::max);
            let point = point(kind, 5.0);
            let at = |metric| Measured { samples, case: NAME, point: &point, subject: LEAT, metric };
            let lost_percent = at("goodput").median().map(|goodput| (1.0 - goodput / peak) * 100.0);
            let mark = "goodput below its peak, at five times what the server can do";
            marks.push(at("goodput").at_most(lost_percent, Some(LOST_PERCENT), "%", mark, String::new()));
            let p99_us = at("p99_us");
            marks.push(p99_us.at_most(p99_us.median(), Some(P99_US), "us", "p99 of what is answered", String::new()));
        }
        marks
    }

    fn figures(&self, samples: &Samples) -> Vec<Figure> {
        let mut figures = Vec::new();
        for kind in KINDS {
            let point = point(kind, 5.0);
            for subject in samples.servers(NAME) {
                let at = |metric| Measured { samples, case: NAME, point: &point, subject: &subject, metric };
                figures.extend(at("goodput").told("goodput, of what the server can do", "x"));
                figures.extend(at("p99_us").told("p99 of what is answered", "us"));
                figures.extend(at("refusal_us").told("cost of a refusal", "us"));
                figures.extend(at("sent").told("what the generator got out, of what the server can do", "x"));
            }
        }
        figures
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            ("offered", "offered", 2),
            ("sent", "sent", 2),
            ("goodput", "goodput", 3),
            ("answered_per_s", "answered/s", 0),
            ("refused_per_s", "refused/s", 0),
            ("p99_us", "p99 us", 0),
            ("refused_p99_us", "p99 of refusals, us", 0),
            ("unanswered", "neither, of offered", 3),
            ("refusal_us", "CPU us a refusal", 2),
        ]
    }

    fn plots(&self, samples: &Samples) -> Vec<Plot> {
        let plot = |metric: &'static str, name, title: &str, y| {
            let of = |kind: &'static str| {
                samples.servers(NAME).into_iter().map(move |subject| {
                    let points = LOADS.into_iter().filter_map(|load| {
                        let value = samples.median(NAME, &point(kind, load), &subject, metric)?;
                        Some((load * 100.0, value))
                    });
                    (format!("{subject}, {kind}"), points.collect())
                })
            };
            let series = KINDS.into_iter().flat_map(of).collect();
            Plot {
                name,
                title: title.to_owned(),
                x: ("offered, % of what the server can do", Scale::Linear),
                y,
                series,
            }
        };
        vec![
            plot("goodput", "goodput", "goodput, of what the server can do", Scale::Linear),
            plot("p99_us", "overload-latency", "p99 of what is answered, us (log)", Scale::Logarithmic),
        ]
    }
}
