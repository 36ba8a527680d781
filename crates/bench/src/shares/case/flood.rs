//! One site, or one client, floods the server; another goes on as before. leat beside servers that know no shares.

use std::io;
use std::time::Duration;

use super::{LEAT, Measured};
use crate::experiment::{Case, Records, Samples};
use crate::load::Plan;
use crate::result::{Figure, Mark};
use crate::shares::bench::{Bench, Clients, FILE, LARGE_FILE, SMALL_FILE, Started, Trial};
use crate::shares::leat::{Setup, SharedSite};
use crate::workload::mix::{CLOSE, Mix, Target};

const NAME: &str = "flood";
const VICTIM: &str = "victim";
const FLOODER: &str = "flooder";
const ALONE: &str = "alone";
/// leat again, with requests that compute.
const LEAT_COMPUTING: &str = "leat, computing";
/// What the victim asks for, in parts of what the server can answer: within its half.
const LOAD: f64 = 0.3;
const CONNECTIONS: usize = 512;
const KINDS: [&str; 6] = [
    "ten times its share",
    "5,000 connections",
    "a connection for each request",
    "slow heads",
    "slow readers",
    "endless ranges",
];
/// Offers past this are more than the generator can send and time beside the victim's.
const FLOOD_PER_S_MAX: f64 = 30_000.0;
const P99_FACTOR: f64 = 1.5;
const LIMIT_PERCENT: f64 = 3.0;
/// Batches for each kind: there are many.
const ROUNDS_MAX: u32 = 3;
/// Requests of the victim's in a batch at least: of fewer, a p99 is chance.
const SAMPLES_MIN: f64 = 3_000.0;

pub(super) struct Flood;

/// How a server is asked: the victim's requests and the flooder's.
struct Requests {
    victim: Mix,
    flooder: Mix,
}

fn requests(bench: &Bench, is_computing: bool) -> Requests {
    if is_computing {
        return Requests { victim: bench.burn(VICTIM), flooder: bench.burn(FLOODER) };
    }
    Requests { victim: bench.file(VICTIM, FILE, ""), flooder: bench.file(FLOODER, FILE, "") }
}

/// A hundred single bytes of a large file, for which some servers walk the file a hundred times.
fn ranges() -> Mix {
    let ranges: Vec<String> = (0..100).map(|at| format!("{0}-{0}", at * 10_000)).collect();
    let fields = format!("Range: bytes={}\r\n", ranges.join(","));
    // All of the file is an answer, too, to who asks for so many.
    let mut target = Target::of_host(FLOODER, &format!("/{LARGE_FILE}"), &fields);
    target.statuses = 200..=206;
    Mix::new(vec![(target, 1.0)])
}

fn flood(bench: &Bench, kind: &str, requests: &Requests, capacity_per_s: f64) -> Clients {
    let none = Plan { is_flood: true, ..bench.saturate(0) };
    let closed = |connections| Plan { is_flood: true, ..bench.saturate(connections) };
    match kind {
        "ten times its share" => {
            let per_s = (capacity_per_s * 5.0).min(FLOOD_PER_S_MAX);
            (Plan { is_flood: true, ..bench.offer(per_s, 4 * CONNECTIONS) }, requests.flooder.clone())
        }
        "5,000 connections" => (closed(5_000), requests.flooder.clone()),
        "a connection for each request" => {
            let plan = Plan { requests_per_connection: Some(1), ..closed(64) };
            (plan, bench.file(FLOODER, SMALL_FILE, CLOSE))
        }
        "slow heads" => (Plan { slow_heads: 2_000, ..none }, requests.flooder.clone()),
        "slow readers" => (Plan { slow: 1_000, slow_bytes_per_s: 20_000, ..none }, bench.file(FLOODER, LARGE_FILE, "")),
        _ => (closed(64), ranges()),
    }
}

impl Flood {
    fn run_on(bench: &mut Bench, name: &str, started: &Started) -> io::Result<()> {
        let requests = requests(bench, name == LEAT_COMPUTING);
        let greedy = (bench.saturate(64), requests.victim.clone());
        let capacity_per_s = bench.capacity_per_s(started, std::slice::from_ref(&greedy))?;
        let offer = bench.offer(capacity_per_s * LOAD, CONNECTIONS);
        let window = offer.window.max(Duration::from_secs_f64(SAMPLES_MIN / (capacity_per_s * LOAD)));
        let victim = (Plan { window, ..offer }, requests.victim.clone());
        let wanted = bench.options.point.clone();
        let is_wanted = |kind: &&str| wanted.is_empty() || wanted.iter().any(|point| kind.starts_with(point.as_str()));
        for round in 0..bench.options.rounds.min(ROUNDS_MAX) {
            for kind in std::iter::once(ALONE).chain(KINDS.into_iter().filter(is_wanted)) {
                let mut clients = vec![victim.clone()];
                if kind != ALONE {
                    let (plan, mix) = flood(bench, kind, &requests, capacity_per_s);
                    clients.push((Plan { window, ..plan }, mix));
                }
                match bench.measure_watched(started, &clients) {
                    Ok(trial) => record(&mut bench.records, (NAME, kind, round), name, &trial),
                    Err(error) => bench.records.note(NAME, &format!("{name}, {kind}, round {round}: {error}")),
                }
            }
        }
        Ok(())
    }
}

fn record(records: &mut Records, at: (&str, &str, u32), name: &str, trial: &Trial) {
    let victim = &trial.outcomes[0];
    records.record(at, name, "kept", (victim.answered as f64 / victim.offered.max(1) as f64).min(1.0));
    // Where nobody got a connection, there are no times.
    if victim.answered > 0 {
        records.record(at, name, "p99_us", victim.latency_us(0.99));
        records.record(at, name, "p50_us", victim.latency_us(0.5));
    }
    trial.record_server_times(records, at, name);
    if let Some(flooder) = trial.outcomes.get(1) {
        records.record(at, name, "flooder_per_s", flooder.answered_per_s());
    }
}

impl Case<Bench> for Flood {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "one site floods, another asks for a third of what the server can do"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let sites = [VICTIM, FLOODER].map(|site| SharedSite::of_weight(site, 100));
        for name in [LEAT_COMPUTING, LEAT].into_iter().filter(|name| bench.options.wants(name)).collect::<Vec<_>>() {
            let started = bench.start(&Setup::of_sites(sites.to_vec()))?;
            Self::run_on(bench, name, &started)?;
        }
        bench.each_peer(NAME, FILE, Self::run_on);
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let mut marks = Vec::new();
        for kind in KINDS {
            for subject in [LEAT_COMPUTING, LEAT] {
                let at = |point, metric| Measured { samples, case: NAME, point, subject, metric };
                marks.push(at(kind, "p99_us").beside(
                    at(ALONE, "p99_us"),
                    P99_FACTOR,
                    "us",
                    "p99 within 1.5 times of alone",
                ));
                let alone = at(ALONE, "server_p99_us");
                let mark = "p99 in the server within 1.5 times of alone";
                marks.push(at(kind, "server_p99_us").beside(alone, P99_FACTOR, "us", mark));
                marks.push(
                    at(kind, "kept").keeps(LIMIT_PERCENT, "requests of what it is entitled to that aren't answered"),
                );
            }
        }
        marks
    }

    fn figures(&self, samples: &Samples) -> Vec<Figure> {
        let mut figures = Vec::new();
        for subject in samples.servers(NAME) {
            for kind in KINDS {
                let at = |point, metric| Measured { samples, case: NAME, point, subject: &subject, metric };
                let times = at(kind, "p99_us").median().zip(at(ALONE, "p99_us").median());
                if let Some((flooded, alone)) = times {
                    figures.push(at(kind, "p99_us").figure("p99 beside alone", "x", flooded / alone));
                }
            }
        }
        figures
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            ("kept", "answered / offered", 3),
            ("p50_us", "p50 us", 0),
            ("p99_us", "p99 us", 0),
            ("server_p50_us", "p50 in the server, us", 0),
            ("server_p90_us", "p90", 0),
            ("server_p99_us", "p99", 0),
            ("server_slice_p99_us", "p99 of the middle 50 ms", 0),
            ("server_samples", "of so many requests", 0),
            ("flooder_per_s", "flooder's answered/s", 0),
        ]
    }
}
