//! One site, or one client, floods the server; another goes on as before. leat beside servers that know no shares.

use std::io;
use std::time::Duration;

use super::{LEAT, Measured};
use crate::experiment::{Case, Samples};
use crate::load::Plan;
use crate::result::Mark;
use crate::shares::bench::{Bench, Clients, FILE, LARGE_FILE, SMALL_FILE, Started};
use crate::shares::leat::{Setup, SharedSite};
use crate::shares::pairs::{self, Count, RATIO};
use crate::workload::mix::{CLOSE, Mix, Target};

const NAME: &str = "flood";
const VICTIM: &str = "victim";
const FLOODER: &str = "flooder";
/// leat again, with requests that compute.
const LEAT_COMPUTING: &str = "leat, computing";
/// What the victim asks for, in parts of what the server can answer to as many connections: within its half, dear as replies are beside a flood.
const LOAD: f64 = 0.2;
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
/// A turn is so long at least: what spoils the machine lasts longer or is seldom.
const WINDOW_MIN: Duration = Duration::from_millis(250);
/// Requests of the victim's in a turn at least.
const SAMPLES_MIN: f64 = 300.0;
/// A flood isn't waited for at its end.
const FLOOD_DRAIN: Duration = Duration::from_millis(20);
/// Peers are a hundred times off: that's seen sooner.
const PEER_ROUNDS_MAX: u32 = 3;

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
    /// Instances of a server for the victim alone and for both; a server that remembers nothing is both.
    fn run_on(bench: &mut Bench, name: &str, instances: [&Started; 2], rounds: u32) -> io::Result<()> {
        let requests = requests(bench, name == LEAT_COMPUTING);
        let greedy = (Plan { window: WINDOW_MIN, ..bench.saturate(CONNECTIONS) }, requests.victim.clone());
        let wanted = bench.options.point.clone();
        let is_wanted = |kind: &&str| wanted.is_empty() || wanted.iter().any(|point| kind.starts_with(point.as_str()));
        let kinds: Vec<&str> = KINDS.into_iter().filter(is_wanted).collect();
        let mut counts = vec![Count::default(); kinds.len()];
        for round in 0..rounds {
            // Each time, as the machine isn't always as fast.
            let capacity_per_s = bench.capacity_per_s(instances[0], std::slice::from_ref(&greedy))?;
            let window = WINDOW_MIN.max(Duration::from_secs_f64(SAMPLES_MIN / (capacity_per_s * LOAD)));
            let seed = bench.options.seed + u64::from(round);
            let offer = Plan { window, seed, ..bench.offer(capacity_per_s * LOAD, CONNECTIONS) };
            let victim = (offer, requests.victim.clone());
            for (kind, count) in kinds.iter().zip(&mut counts) {
                let (plan, mix) = flood(bench, kind, &requests, capacity_per_s);
                let flooder = (Plan { window, drain: FLOOD_DRAIN, ..plan }, mix);
                let at = (NAME, *kind, round);
                match bench.measure_pair(instances, &victim, &flooder, round) {
                    Ok(pair) => {
                        let name = count.take(&pair, &mut bench.records, at, name);
                        if let [Some(victim), Some(flooder)] =
                            [VICTIM, FLOODER].map(|site| pair.beside.cores_used(site))
                        {
                            bench.records.record(at, &name, "share", victim / (victim + flooder));
                        }
                    }
                    Err(error) => {
                        count.miss();
                        bench.records.note(NAME, &format!("{name}, {kind}, round {round}: {error}"));
                    }
                }
            }
        }
        kinds.iter().zip(counts).for_each(|(kind, count)| count.record(&mut bench.records, (NAME, kind), name));
        Ok(())
    }
}

impl Case<Bench> for Flood {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "one site floods, another asks for a fifth of what the server can do"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let sites = [VICTIM, FLOODER].map(|site| SharedSite::of_weight(site, 100));
        for name in [LEAT_COMPUTING, LEAT].into_iter().filter(|name| bench.options.wants(name)).collect::<Vec<_>>() {
            let setup = Setup::of_sites(sites.to_vec());
            let (alone, beside) = (bench.start(&setup)?, bench.start(&setup)?);
            Self::run_on(bench, name, [&alone, &beside], bench.options.rounds)?;
        }
        let rounds = bench.options.rounds.min(PEER_ROUNDS_MAX);
        bench.each_peer(NAME, FILE, |bench, name, started| Self::run_on(bench, name, [started; 2], rounds));
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let mut marks = Vec::new();
        for kind in KINDS {
            for subject in [LEAT_COMPUTING, LEAT] {
                let at = |metric| Measured { samples, case: NAME, point: kind, subject, metric };
                let mark = "p99 in the server, beside and alone";
                let doubt = pairs::doubt(samples, (NAME, kind), subject);
                marks.push(at(RATIO).at_most(at(RATIO).median(), Some(P99_FACTOR), "x", mark, doubt));
                marks.push(at("kept").keeps(LIMIT_PERCENT, "requests of what it is entitled to that aren't answered"));
            }
        }
        marks
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        pairs::COLUMNS.to_vec()
    }
}
