//! What calls cost whoever stands between omniORB's client and its servers, and how many there are in a second.

use std::io;

use super::bench::{Bench, DIRECT, HAPROXY, LEAT};
use crate::experiment::{Case, Samples};
use crate::result::Mark;

pub(super) const NAME: &str = "echo";
const CPU: &str = "cpu_us";
const CALLS: &str = "calls_per_s";
/// Bytes each way: in words, and their number.
const SIZES: [(&str, usize); 3] = [("64 B", 64), ("4 KB", 4 << 10), ("64 KB", 64 << 10)];
const CONNECTIONS: [usize; 2] = [1, 32];

pub(super) fn all() -> Vec<Box<dyn Case<Bench>>> {
    vec![Box::new(Echo)]
}

struct Echo;

impl Case<Bench> for Echo {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "omniORB's client calls two servers, and every answer is compared"
    }

    /// In every round everybody has a turn at every point, the order moved on by one.
    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        for round in 0..bench.options.rounds {
            let mut asked = bench.asked();
            let count = asked.len();
            asked.rotate_left(round as usize % count);
            for connections in CONNECTIONS {
                for (size, bytes) in SIZES {
                    for who in &asked {
                        turn(bench, (&point(size, connections), round), who, (connections, bytes))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let points = samples.points(NAME);
        points.iter().flat_map(|point| LEAT.iter().flat_map(|(name, ..)| marks(samples, point, name))).collect()
    }

    fn caption(&self, point: &str, _samples: &Samples) -> String {
        point.to_owned()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            (CPU, "us of CPU a call", 2),
            (CALLS, "calls/s", 0),
            ("p50_us", "p50 us", 0),
            ("p99_us", "p99 us", 0),
            ("wrong", "wrong or failed", 0),
        ]
    }
}

fn point(size: &str, connections: usize) -> String {
    format!("{size}, {connections} {}", if connections == 1 { "connection" } else { "connections" })
}

fn turn(
    bench: &mut Bench,
    (point, round): (&str, u32),
    who: &str,
    (connections, bytes): (usize, usize),
) -> io::Result<()> {
    let calls = bench.call(who, connections, bytes)?;
    let seconds = bench.options.seconds;
    let at = (NAME, point, round);
    if who != DIRECT {
        bench.records.record(at, who, CPU, calls.spent.as_secs_f64() * 1e6 / calls.answered.max(1.0));
    }
    bench.records.record(at, who, CALLS, calls.answered / seconds);
    bench.records.record(at, who, "p50_us", calls.p50_us);
    bench.records.record(at, who, "p99_us", calls.p99_us);
    bench.records.record(at, who, "wrong", calls.wrong);
    Ok(())
}

/// Beside HAProxy, by the medians.
fn marks(samples: &Samples, point: &str, name: &str) -> [Mark; 2] {
    let median = |who: &str, metric| samples.median(NAME, point, who, metric);
    let wrong: f64 = samples.values(NAME, point, name, "wrong").iter().sum();
    let mark = |text: &str, value: Option<f64>, limit: Option<f64>, unit: &str| {
        let doubt = if wrong > 0.0 { format!("{wrong} calls went wrong") } else { String::new() };
        Mark::at_most((format!("{NAME} {point}"), name), text, value, limit, unit, doubt)
    };
    let time = |who| median(who, CALLS).map(|calls| 1e6 / calls);
    [
        mark("no more CPU a call than HAProxy in TCP mode", median(name, CPU), median(HAPROXY, CPU), "us"),
        mark("no more time a call than HAProxy in TCP mode", time(name), time(HAPROXY), "us"),
    ]
}
