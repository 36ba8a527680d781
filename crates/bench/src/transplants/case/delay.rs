//! How long a request takes whose node is that of the request before, and one whose node is another: one client, one connection, 1 KB. Contents say whose they
//! are, so that the client knows which of them has changed, whoever chose.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use hdrhistogram::Histogram;

use crate::experiment::{Case, Samples};
use crate::handoff::bench::{HAPROXY, LEAT, SIZES};
use crate::lab::asking::ask_for_target;
use crate::lab::{CLIENT, CLIENT_CORE};
use crate::result::Mark;
use crate::transplants::bench::Bench;
use crate::workload::mix::Mix;

const NAME: &str = "delay";
const STAYS: &str = "stays at its node";
const CHANGES: &str = "changes its node";
/// Requests to each in a second of the round's length.
const REQUESTS_PER_S: f64 = 2_000.0;
/// One after the other to one of them, before the next one has its turn.
const IN_A_ROW: usize = 50;
/// What a change may take beyond HAProxy's.
const ADDED_US_MAX: f64 = 300.0;

pub(super) struct Delay;

impl Case<Bench> for Delay {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "1 KB on a kept connection, one request at a time: those that stay at their node, and those that change it"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        bench.beside_proxies(|beside| {
            let ways = beside.dispatchers();
            let mix = beside.spread_requests(&SIZES[0]);
            let run = beside.run_options().clone();
            let turns = (run.seconds * REQUESTS_PER_S) as usize / IN_A_ROW;
            for round in 0..run.rounds {
                let mut random = fastrand::Rng::with_seed(run.seed.wrapping_add(u64::from(round)));
                let heard = beside.lab.at(CLIENT, CLIENT_CORE, || take_turns(&ways, &mix, turns, &mut random))?;
                for ((name, _), times) in ways.iter().zip(&heard) {
                    for (point, times) in [(STAYS, &times.stays), (CHANGES, &times.changes)] {
                        let found = [
                            ("p50_us", times.value_at_quantile(0.5) as f64 / 1e3),
                            ("p99_us", times.value_at_quantile(0.99) as f64 / 1e3),
                            ("requests", times.len() as f64),
                        ];
                        for (metric, value) in found.into_iter().filter(|_| !times.is_empty()) {
                            beside.records.record((NAME, point, round), name, metric, value);
                        }
                    }
                }
            }
            Ok(())
        })
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let median = |server| samples.median(NAME, CHANGES, server, "p50_us");
        let limit = median(HAPROXY).map(|haproxy| haproxy + ADDED_US_MAX);
        let text = "no more than HAProxy's and 0.3 ms, median";
        vec![Mark::at_most((format!("{NAME}: {CHANGES}"), LEAT), text, median(LEAT), limit, "us", String::new())]
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![("p50_us", "p50 us", 0), ("p99_us", "p99 us", 0), ("requests", "requests", 0)]
    }
}

/// Of one dispatcher or proxy.
struct Times {
    stays: Histogram<u64>,
    changes: Histogram<u64>,
}

/// A connection to each, and some requests on it at a time; the first turn isn't counted.
fn take_turns(
    ways: &[(&str, SocketAddr)],
    mix: &Mix,
    turns: usize,
    random: &mut fastrand::Rng,
) -> io::Result<Vec<Times>> {
    let fresh = || Histogram::new_with_bounds(1_000, 100_000_000_000, 3).map_err(io::Error::other);
    let begin = |(_, address): &(&str, SocketAddr)| {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok((stream, None, Times { stays: fresh()?, changes: fresh()? }))
    };
    let mut all = ways.iter().map(begin).collect::<io::Result<Vec<_>>>()?;
    for turn in 0..=turns {
        for ((stream, before, times), (name, _)) in all.iter_mut().zip(ways) {
            for _ in 0..IN_A_ROW {
                let target = mix.target(mix.draw(random));
                let began = Instant::now();
                let server = ask_for_target(stream, target);
                let took_ns = began.elapsed().as_nanos() as u64;
                let server = server.map_err(|error| io::Error::other(format!("{name}: {error}")))?;
                let has_changed = before.replace(server).is_some_and(|before| before != server);
                if turn > 0 {
                    let times = if has_changed { &mut times.changes } else { &mut times.stays };
                    times.saturating_record(took_ns);
                }
            }
        }
    }
    Ok(all.into_iter().map(|(_, _, times)| times).collect())
}
