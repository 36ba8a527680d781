//! Figures 8 and 9 of the paper: two sites with the same requests and unequal weights, load rising past saturation.
//!
//! Both sites are offered the same rate, in parts of what the server can answer; or ask again at once, over a few connections, which fall
//! on two workers as it happens.

use std::io;
use std::time::Duration;

use super::Measured;
use crate::experiment::plot::{Plot, Scale};
use crate::experiment::{Case, Records, Samples};
use crate::load::Plan;
use crate::result::Mark;
use crate::shares::bench::{Bench, Clients, Started, Trial};
use crate::shares::leat::{Setup, SharedSite};

const NAME: &str = "two-sites";
/// Offered to both sites together, in parts of what the server can answer.
const LOADS: [f64; 5] = [0.5, 0.9, 1.3, 1.7, 2.5];
/// From here on, both sites want more than they are due, at 4:1 too.
const SATURATED: f64 = 1.6;
const WEIGHTS: [u32; 2] = [2, 4];
const CLOSED: &str = "closed loop";
/// Few enough that what waits is answered within the warm-up; a client that finds none free goes away.
const CONNECTIONS: usize = 100;
const WARM_UP: Duration = Duration::from_millis(400);
/// Until connections that have fallen on two workers as it happens have moved to where shares can be had.
const MOVES_WARM_UP: Duration = Duration::from_secs(1);
/// Of a batch, beside the options': the answers of the site that gets few must show its share.
const WINDOW_FACTOR: f64 = 2.0;
/// Over two workers, as plans are made every 50 ms and each is a little off.
const MOVES_WINDOW_FACTOR: f64 = 4.0;
const LIMIT_PERCENT: f64 = 2.0;

pub(super) struct TwoSites;

fn subject(weight: u32, workers: usize) -> String {
    format!("{weight}:1, {workers} worker{}", if workers == 1 { "" } else { "s" })
}

fn point(load: f64) -> String {
    format!("load {load}")
}

impl TwoSites {
    fn measure(
        bench: &mut Bench,
        started: &Started,
        clients: &[Clients],
        point: &str,
        subject: &str,
    ) -> io::Result<()> {
        let keep = |records: &mut Records, round: u32, trial: &Trial| {
            let at = (NAME, point, round);
            let [a, b] = [&trial.outcomes[0], &trial.outcomes[1]];
            let ratio = a.answered as f64 / b.answered.max(1) as f64;
            records.record(at, subject, "ratio", ratio);
            records.record(at, subject, "answered_per_s", trial.answered_per_s());
            records.record(at, subject, "refused_per_s", a.refused_per_s() + b.refused_per_s());
            records.record(at, subject, "p99_a_us", a.latency_us(0.99));
            records.record(at, subject, "p99_b_us", b.latency_us(0.99));
            let cores = trial.cores_used("a").zip(trial.cores_used("b")).filter(|(_, b)| *b > 0.0);
            let charged_ratio = cores.map(|(a, b)| a / b);
            charged_ratio.iter().for_each(|&charged| records.record(at, subject, "charged_ratio", charged));
            [ratio, charged_ratio.unwrap_or(ratio)]
        };
        let found = bench.until_sure(started, clients, LIMIT_PERCENT / 200.0, keep)?;
        eprintln!("  {subject:24} {point:32} {:.3} +- {:.3}", found.mean, found.half_width);
        Ok(())
    }

    fn run_on(bench: &mut Bench, weight: u32, workers: usize) -> io::Result<()> {
        let setup = Setup {
            workers,
            ..Setup::of_sites(vec![SharedSite::of_weight("a", weight * 100), SharedSite::of_weight("b", 100)])
        };
        let started = bench.start(&setup)?;
        let timed = |plan: Plan| match workers {
            1 => Plan { warm_up: WARM_UP, window: plan.window.mul_f64(WINDOW_FACTOR), ..plan },
            _ => Plan { warm_up: MOVES_WARM_UP, window: plan.window.mul_f64(MOVES_WINDOW_FACTOR), ..plan },
        };
        let closed =
            |bench: &Bench, connections| ["a", "b"].map(|site| (timed(bench.saturate(connections)), bench.burn(site)));
        let capacity_per_s = bench.capacity_per_s(&started, &closed(bench, 16))?;
        for load in LOADS {
            let each = |site| (timed(bench.offer(capacity_per_s * load / 2.0, CONNECTIONS)), bench.burn(site));
            let clients = ["a", "b"].map(each);
            Self::measure(bench, &started, &clients, &point(load), &subject(weight, workers))?;
        }
        let few: &[usize] = if workers == 1 { &[] } else { &[2, 3, 4] };
        for &connections in few.iter().chain(&[32]) {
            let clients = closed(bench, connections);
            let point = format!("{CLOSED}, {connections} connections a site");
            Self::measure(bench, &started, &clients, &point, &subject(weight, workers))?;
        }
        Ok(())
    }
}

impl Case<Bench> for TwoSites {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "two sites, 2:1 and 4:1, requests of 200 to 500 us, load rising past saturation (figures 8 and 9)"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        for workers in [1, 2] {
            for weight in WEIGHTS {
                Self::run_on(bench, weight, workers)?;
            }
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let mut marks = Vec::new();
        let loads = LOADS.into_iter().filter(|&load| load > SATURATED).map(point);
        let closed = samples.points(NAME).into_iter().filter(|point| point.starts_with(CLOSED));
        for point in loads.chain(closed) {
            for (weight, workers) in [(2, 1), (4, 1), (2, 2), (4, 2)] {
                let subject = subject(weight, workers);
                let is_asked = samples.points(NAME).is_empty()
                    || !point.starts_with(CLOSED)
                    || workers == 2
                    || point.contains(" 32 ");
                // A share is charged cost; answers are the check that it's the same to clients.
                for (metric, what) in [("charged_ratio", "charged"), ("ratio", "requests answered")] {
                    if is_asked {
                        let measured = Measured { samples, case: NAME, point: &point, subject: &subject, metric };
                        let mark = format!("{what} within {LIMIT_PERCENT} % of {weight}:1");
                        marks.push(measured.near(f64::from(weight), LIMIT_PERCENT, &mark));
                    }
                }
            }
        }
        marks
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            ("ratio", "answered, a : b", 3),
            ("charged_ratio", "charged, a : b", 3),
            ("answered_per_s", "answered/s", 0),
            ("refused_per_s", "refused/s", 0),
            ("p99_a_us", "p99 of a, us", 0),
            ("p99_b_us", "p99 of b, us", 0),
        ]
    }

    fn plots(&self, samples: &Samples) -> Vec<Plot> {
        let series = samples.servers(NAME).into_iter().map(|subject| {
            let points = LOADS.into_iter().filter_map(|load| {
                let ratio = samples.median(NAME, &point(load), &subject, "ratio")?;
                Some((load * 100.0, ratio))
            });
            let points = points.collect();
            (subject, points)
        });
        let x = ("offered, % of what the server can answer", Scale::Linear);
        let title = "requests answered, a : b".to_owned();
        vec![Plot { name: "two-sites", title, x, y: Scale::Linear, series: series.collect() }]
    }
}
