//! What the dispatcher adds to the first byte: from opening a connection to the first byte of the reply, one client at a time.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::at_most;
use crate::experiment::{Case, Samples};
use crate::handoff::bench::{Bench, DIRECT, HAPROXY, LEAT, SIZES};
use crate::lab::asking::ask_for;
use crate::lab::{CLIENT, CLIENT_CORE};
use crate::result::Mark;

const NAME: &str = "first-byte";
/// Connections to each in a second of the round's length.
const CONNECTIONS_PER_S: f64 = 400.0;

pub(super) struct FirstByte;

impl Case<Bench> for FirstByte {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "connection and 1 KB, one after the other: until the first byte, and what is added to a node's own"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let mut ways = vec![(DIRECT, Bench::node())];
        ways.extend(bench.dispatchers());
        let count = (bench.options.run.seconds * CONNECTIONS_PER_S) as usize;
        for round in 0..bench.options.run.rounds {
            let times = bench.lab.at(CLIENT, CLIENT_CORE, || take_turns(&ways, count))?;
            let quantile = |times: &Histogram<u64>, quantile| times.value_at_quantile(quantile) as f64 / 1e3;
            for ((name, _), own) in ways.iter().zip(&times) {
                for (time, added, place) in [("p50_us", "p50_added_us", 0.5), ("p99_us", "p99_added_us", 0.99)] {
                    let value = quantile(own, place);
                    bench.records.record((NAME, "", round), name, time, value);
                    if *name != DIRECT {
                        bench.records.record((NAME, "", round), name, added, value - quantile(&times[0], place));
                    }
                }
            }
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let mark = |(metric, text)| {
            let median = |server| samples.median(NAME, "", server, metric);
            at_most((NAME, ""), text, median(LEAT), median(HAPROXY), "us", String::new())
        };
        [("p50_added_us", "adds less than HAProxy, median"), ("p99_added_us", "adds less than HAProxy, p99")]
            .map(mark)
            .into()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            ("p50_us", "p50 us", 0),
            ("p99_us", "p99 us", 0),
            ("p50_added_us", "added", 0),
            ("p99_added_us", "added, p99", 0),
        ]
    }
}

/// A connection to each, and again; the first few aren't counted.
fn take_turns(ways: &[(&str, SocketAddr)], count: usize) -> io::Result<Vec<Histogram<u64>>> {
    let fresh = || Histogram::new_with_bounds(1_000, 100_000_000_000, 3).map_err(io::Error::other);
    let mut times = ways.iter().map(|_| fresh()).collect::<io::Result<Vec<_>>>()?;
    let warm_up = count / 10;
    for turn in 0..count + warm_up {
        for ((name, address), times) in ways.iter().zip(&mut times) {
            let time = first_byte(*address).map_err(|error| io::Error::other(format!("{name}: {error}")))?;
            if turn >= warm_up {
                times.saturating_record(time.as_nanos() as u64);
            }
        }
    }
    Ok(times)
}

fn first_byte(address: SocketAddr) -> io::Result<Duration> {
    let began = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    let first = ask_for(&mut stream, SIZES[0].wanted())?;
    Ok(first - began)
}
