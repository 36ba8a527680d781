//! All first requests handed over, all proxied, and each by the way that the cost model takes for the cheaper: by size, by requests on a connection, by the
//! client's distance, by congestion control, and by whether connections can begin at nodes.

use std::io;
use std::time::Duration;

use super::bench::{Bench, Cluster, SIZES, Setting, Trial};
use crate::experiment::samples::median;
use crate::experiment::{Case, Samples};
use crate::load::Plan;
use crate::result::Mark;

const TOTAL: &str = "system_us";
const ALGORITHMS: [&str; 2] = ["cubic", "bbr"];
const REQUESTS: [u32; 2] = [1, 10];
const CHEAPER: &str = "when_cheaper";
const FIXED: [&str; 2] = ["always", "never"];
/// How long a cluster gets used to another load: what it learns of connections and costs, nodes tell four times a second, a few samples each time.
const SETTLING: Duration = Duration::from_secs(2);
/// Of what the better of both costs.
const LIMIT: f64 = 1.1;
const VIP: &str = "10.77.0.100:80";

/// One distance.
pub(super) struct Distance {
    name: &'static str,
    title: &'static str,
    setting: Setting,
}

/// All there are.
pub(super) fn all() -> Vec<Box<dyn Case<Bench>>> {
    let case = |name, title, round_trip_ms, born| Distance { name, title, setting: Setting { round_trip_ms, born } };
    vec![
        Box::new(case("near", "clients beside the servers", 0, true)),
        Box::new(case("20ms", "round trips of 20 ms", 20, true)),
        Box::new(case("100ms", "round trips of 100 ms", 100, true)),
        Box::new(case("moved", "clients beside the servers, connections can only be moved", 0, false)),
    ]
}

/// One load.
#[derive(Clone, Copy)]
struct Point {
    algorithm: &'static str,
    requests: u32,
    /// Its place in [`SIZES`].
    size: usize,
}

impl Point {
    fn name(self) -> String {
        let Point { algorithm, requests, size } = self;
        format!("{} x {requests} by {algorithm}", SIZES[size].0)
    }

    fn all() -> impl Iterator<Item = Point> {
        ALGORITHMS.into_iter().flat_map(Point::of)
    }

    fn of(algorithm: &'static str) -> impl Iterator<Item = Point> {
        let of_requests = move |requests| (0..SIZES.len()).map(move |size| Point { algorithm, requests, size });
        REQUESTS.into_iter().flat_map(of_requests)
    }

    /// So many requests, on as many connections as keep the servers busy, and no more of the long replies than lines hold. All connections come to their end,
    /// so that none is counted by halves.
    fn plan(self, setting: Setting, seed: u64, share: f64) -> Plan {
        let is_far = setting.round_trip_ms > 0;
        let (connections, all) = match (SIZES[self.size].2, is_far) {
            (bytes, false) if bytes > 1 << 17 => (8, 160),
            // All bytes pass through the process that is the line.
            (bytes, true) if bytes > 1 << 17 => (8, 48),
            (bytes, false) => (32, if bytes > 1 << 14 { 960 } else { 1_920 }),
            (bytes, true) if bytes > 1 << 14 => (48, 480),
            // Several lives of as many connections: one of ten requests takes so little that a tenth of it is what two rounds differ by.
            (_, true) => (192, 1_920 * self.requests.min(4)),
        };
        let whole_lives = u64::from(self.requests) * connections as u64;
        let all = (f64::from(all) * share) as u64;
        Plan {
            requests_per_connection: Some(self.requests),
            warm_up: Duration::ZERO,
            window: Duration::from_secs(20),
            drain: Duration::from_secs(5),
            requests_max: all.next_multiple_of(whole_lives),
            verify_every: 8,
            seed,
            sleep: true,
            ..Plan::saturate(VIP.parse().expect("it's written as an address"), connections)
        }
    }
}

impl Case<Bench> for Distance {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> &'static str {
        self.title
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let ways = [FIXED[0], CHEAPER, FIXED[1]].map(|way| bench.up(self.setting, way));
        let mut clusters = ways.into_iter().collect::<io::Result<Vec<Cluster>>>()?;
        for algorithm in ALGORITHMS {
            clusters.iter().try_for_each(|cluster| cluster.set_congestion_control(algorithm))?;
            for point in Point::of(algorithm) {
                clusters.iter().for_each(|cluster| settle(bench, self, cluster, point));
                for round in 0..bench.options.rounds {
                    clusters.iter().for_each(|cluster| turn(bench, self, cluster, point, round));
                    clusters.reverse();
                }
            }
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        Point::all().map(|point| mark(samples, self.name, &point.name())).collect()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            (TOTAL, "us a request, all processes", 1),
            ("handed_over_percent", "connections handed over, %", 0),
            ("p50_us", "p50 us", 0),
            ("failed", "failed", 0),
        ]
    }
}

/// Until a cluster knows what connections bring now: what came before was another load.
fn settle(bench: &mut Bench, case: &Distance, cluster: &Cluster, point: Point) {
    let plan = point.plan(case.setting, bench.options.seed, bench.options.seconds);
    let plan = Plan { requests_max: u64::MAX, window: SETTLING, ..plan };
    if let Err(error) = bench.measure(cluster, &plan, SIZES[point.size].1) {
        bench.records.note(case.name, &format!("{}, {}, settling: {error}", cluster.hand_over, point.name()));
    }
}

/// A cluster's turn at a point.
fn turn(bench: &mut Bench, case: &Distance, cluster: &Cluster, point: Point, round: u32) {
    let (share, file) = (bench.options.seconds, SIZES[point.size].1);
    let plan = point.plan(case.setting, bench.options.seed, share);
    match bench.measure(cluster, &plan, file) {
        Ok(trial) => {
            record(bench, (case.name, &point.name(), round), cluster.hand_over, &trial);
            if cluster.hand_over == CHEAPER && round + 1 == bench.options.rounds {
                let estimates = cluster.estimates(file).unwrap_or_else(|error| error.to_string());
                bench.records.note(case.name, &format!("{}, {estimates}", point.name()));
            }
        }
        Err(error) => {
            bench.records.note(case.name, &format!("{}, {}: {error}", cluster.hand_over, point.name()));
        }
    }
}

fn record(bench: &mut Bench, at: (&str, &str, u32), way: &str, trial: &Trial) {
    let outcome = &trial.outcome;
    let failed = outcome.failed();
    let records = &mut bench.records;
    records.record(at, way, TOTAL, trial.system_us);
    records.record(at, way, "handed_over_percent", trial.handed_over * 100.0);
    records.record(at, way, "p50_us", outcome.latency_us(0.5));
    records.record(at, way, "failed", failed as f64);
    if failed > 0 {
        records.note(at.0, &format!("{way}, {}, round {}: {:?}", at.1, at.2, outcome.failures));
    }
}

/// Beside the better of both in the same rounds: which that is, all rounds say together.
fn mark(samples: &Samples, case: &str, point: &str) -> Mark {
    let of = |way: &str| samples.values(case, point, way, TOTAL);
    let better = samples.least(case, point, TOTAL, |way| FIXED.contains(&way)).map(|(better, _)| better);
    let ratios = |better: &String| of(CHEAPER).into_iter().zip(of(better)).map(|(cheaper, better)| cheaper / better);
    let value = better.as_ref().and_then(|better| median(ratios(better).collect()));
    let mark = format!("at most a tenth more than {}", better.unwrap_or_default());
    let doubt = samples.failures(case, point, CHEAPER);
    Mark::at_most((format!("{case} {point}"), CHEAPER), &mark, value, Some(LIMIT), "times", doubt)
}
