//! All first requests handed over, all proxied, and each by the way that the cost model takes for the cheaper: by size, by requests on a connection, by the
//! client's distance, and by congestion control.

use std::io;
use std::time::Duration;

use super::bench::{Bench, Cluster, SIZES, Trial};
use crate::experiment::{Case, Samples};
use crate::load::Plan;
use crate::result::Mark;

const NAME: &str = "cost-model";
const TOTAL: &str = "system_us";
const ROUND_TRIPS_MS: [u32; 3] = [0, 20, 100];
const ALGORITHMS: [&str; 2] = ["cubic", "bbr"];
const REQUESTS: [u32; 2] = [1, 10];
const CHEAPER: &str = "when_cheaper";
const FIXED: [&str; 2] = ["always", "never"];
/// Of what the better of both costs.
const LIMIT: f64 = 1.1;
const VIP: &str = "10.77.0.100:80";

pub(super) struct CostModel;

/// All there are.
pub(super) fn all() -> Vec<Box<dyn Case<Bench>>> {
    vec![Box::new(CostModel)]
}

/// One load.
#[derive(Clone, Copy)]
struct Point {
    round_trip_ms: u32,
    algorithm: &'static str,
    requests: u32,
    /// Its place in [`SIZES`].
    size: usize,
}

impl Point {
    fn name(self) -> String {
        let Point { round_trip_ms, algorithm, requests, size } = self;
        format!("{} x {requests} in {round_trip_ms} ms by {algorithm}", SIZES[size].0)
    }

    fn all() -> impl Iterator<Item = Point> {
        let of_trip = |round_trip_ms| ALGORITHMS.map(|algorithm| (round_trip_ms, algorithm));
        ROUND_TRIPS_MS
            .into_iter()
            .flat_map(of_trip)
            .flat_map(|(round_trip_ms, algorithm)| Point::of(round_trip_ms, algorithm))
    }

    fn of(round_trip_ms: u32, algorithm: &'static str) -> impl Iterator<Item = Point> {
        let of_requests =
            move |requests| (0..SIZES.len()).map(move |size| Point { round_trip_ms, algorithm, requests, size });
        REQUESTS.into_iter().flat_map(of_requests)
    }

    /// As many connections as keep the servers busy, and no more of the long replies than lines hold.
    fn plan(self, bench: &Bench) -> Plan {
        let is_long = SIZES[self.size].2 > 1 << 17;
        let connections = match (self.round_trip_ms, is_long) {
            (0, false) => 32,
            (0, true) => 8,
            (_, false) => 256,
            (_, true) => 24,
        };
        Plan {
            requests_per_connection: Some(self.requests),
            // Until the first have come to their end.
            warm_up: Duration::from_millis(300 + 8 * u64::from(self.round_trip_ms)),
            window: Duration::from_secs_f64(bench.options.seconds * if self.round_trip_ms > 50 { 2.0 } else { 1.0 }),
            drain: Duration::from_secs(5),
            verify_every: 8,
            seed: bench.options.seed,
            sleep: true,
            ..Plan::saturate(VIP.parse().expect("it's written as an address"), connections)
        }
    }
}

impl Case<Bench> for CostModel {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "processor time of the whole system for a request, by what is done with connections' first requests"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        for round in 0..bench.options.rounds {
            for round_trip_ms in ROUND_TRIPS_MS {
                let cluster = bench.up(round_trip_ms)?;
                for algorithm in ALGORITHMS {
                    bench.set_congestion_control(&cluster, algorithm)?;
                    for point in Point::of(round_trip_ms, algorithm) {
                        turns(bench, &cluster, point, round);
                    }
                }
            }
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        Point::all().map(|point| mark(samples, &point.name())).collect()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            (TOTAL, "us a request, all processes", 1),
            ("handed_over_percent", "connections handed over, %", 0),
            ("answered_per_s", "answered/s", 0),
            ("p50_us", "p50 us", 0),
            ("failed", "failed", 0),
        ]
    }
}

/// Each way's turn at a point, the order moved on by one in each round.
fn turns(bench: &mut Bench, cluster: &Cluster, point: Point, round: u32) {
    let mut ways = [CHEAPER, FIXED[0], FIXED[1]];
    ways.rotate_left(round as usize % 3);
    let plan = point.plan(bench);
    for way in ways {
        let trial = bench
            .set_hand_over(cluster, way, point.round_trip_ms)
            .and_then(|()| bench.measure(cluster, &plan, SIZES[point.size].1));
        match trial {
            Ok(trial) => record(bench, (NAME, &point.name(), round), way, &trial),
            Err(error) => bench.records.note(NAME, &format!("{way}, {}, round {round}: {error}", point.name())),
        }
    }
}

fn record(bench: &mut Bench, at: (&str, &str, u32), way: &str, trial: &Trial) {
    let outcome = &trial.outcome;
    let failed = outcome.failed() - outcome.left_over();
    let records = &mut bench.records;
    records.record(at, way, TOTAL, trial.spent.as_secs_f64() * 1e6 / outcome.answered.max(1) as f64);
    records.record(at, way, "handed_over_percent", trial.handed_over * 100.0);
    records.record(at, way, "answered_per_s", outcome.answered_per_s());
    records.record(at, way, "p50_us", outcome.latency_us(0.5));
    records.record(at, way, "failed", failed as f64);
    if failed > 0 {
        records.note(NAME, &format!("{way}, {}, round {}: {:?}", at.1, at.2, outcome.failures));
    }
}

/// Beside the better of both in the same rounds: which that is, all rounds say together.
fn mark(samples: &Samples, point: &str) -> Mark {
    let better = samples.least(NAME, point, TOTAL, |way| FIXED.contains(&way));
    let value = better.as_ref().and_then(|(better, _)| {
        let of = |way: &str| samples.values(NAME, point, way, TOTAL);
        let ratios = of(CHEAPER).into_iter().zip(of(better)).map(|(cheaper, better)| cheaper / better).collect();
        crate::experiment::samples::median(ratios)
    });
    let failed: f64 = samples.values(NAME, point, CHEAPER, "failed").iter().sum();
    let note = match value {
        None => "it wasn't measured".to_owned(),
        Some(_) if failed > 0.0 => format!("{failed} failures"),
        Some(_) => String::new(),
    };
    Mark {
        case: format!("{NAME} {point}"),
        subject: CHEAPER.to_owned(),
        mark: format!("at most a tenth more than {}", better.map_or_else(String::new, |(better, _)| better)),
        value,
        limit: Some(LIMIT),
        unit: "times".to_owned(),
        met: note.is_empty() && value.is_some_and(|value| value <= LIMIT),
        note,
    }
}
