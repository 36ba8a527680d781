//! Connection and response times at equal load, bound by links: one server, and one connection server with three data servers.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::super::bench::{Bench, Cluster, Load, Trial, size};
use super::super::paper;
use super::super::setup::{Kind, Setup};
use super::{at_most, saturate, with_setup};
use crate::experiment::{Case, Plot, Samples, plot::Scale};
use crate::lab::{CLIENT, CLIENT_CORE};
use crate::result::{Figure, Mark};

const NAME: &str = "times";
const SIZE: &str = "64 KB";
const ONE: Setup = Setup::new(Kind::Separate, 1, 0);
const SPLIT: Setup = Setup::new(Kind::Partial, 1, 3);
/// Of what one server's link carries; from the fifth on, one server has too much.
const LOADS: [f64; 8] = [0.3, 0.6, 0.8, 0.95, 1.05, 1.5, 2.5, 3.5];
const SATURATED: f64 = 1.0;
/// A reply's bytes on the wire, for each of its own: heads of packets.
const WIRE: f64 = 1.045;
const CONNECTIONS: usize = 512;
/// Between two connections that are only opened.
const PROBE_PAUSE: Duration = Duration::from_millis(5);
const PROBE_LIMIT: Duration = Duration::from_secs(3);

pub(super) struct Times;

impl Case<Bench> for Times {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "connection and response times at equal load, 64 KB, links limited: one server, and one with three data servers"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let rate = bench.options.link_mbit;
        let one_per_s = f64::from(rate) * 1e6 / 8.0 / (size(SIZE).bytes as f64 * WIRE);
        for round in 0..bench.options.run.rounds {
            for setup in [ONE, SPLIT] {
                with_setup(bench, NAME, (&setup, Some(rate)), |bench, cluster| {
                    for load in LOADS {
                        let (trial, connecting_us) = offer(bench, cluster, load * one_per_s)?;
                        let (point, name) = (format!("{load:.2}"), setup.name());
                        let at = (NAME, point.as_str(), round);
                        let latency = &trial.outcomes[0].latency_ns;
                        bench.records.record(at, &name, "connecting_us", connecting_us);
                        bench.records.record(at, &name, "response_us", latency.value_at_quantile(0.5) as f64 / 1e3);
                        bench.records.record(
                            at,
                            &name,
                            "response_p99_us",
                            latency.value_at_quantile(0.99) as f64 / 1e3,
                        );
                        bench.records.record(at, &name, "answered_per_s", trial.answered_per_s());
                        bench.records.record(at, &name, "failed", trial.failed() as f64);
                    }
                    Ok(())
                });
            }
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let saturated = LOADS.iter().filter(|load| **load > SATURATED);
        let mark = |load: &f64| {
            let point = format!("{load:.2}");
            let part = ratio(samples, &point, "response_us").map(|times| 1.0 / times);
            let text = "1+3 partial's response time, of one server's at the same load";
            at_most((NAME, &point), text, part, 1.0, "", samples.failures(NAME, &point, &SPLIT.name()))
        };
        saturated.map(mark).collect()
    }

    fn figures(&self, samples: &Samples) -> Vec<Figure> {
        let times = [
            ("connecting_us", "connection", paper::CONNECTION_TIME),
            ("response_us", "response", paper::RESPONSE_TIME),
        ];
        let pairs = LOADS.iter().flat_map(|load| times.map(|time| (format!("{load:.2}"), time)));
        let figure = |(point, (metric, what, paper)): (String, (&'static str, &str, f64))| {
            Some(Figure {
                case: format!("{NAME} {point}"),
                subject: SPLIT.name(),
                figure: format!(
                    "{what} time: so many times shorter than one server's; the paper's, at one server's limit: {paper:.1}"
                ),
                value: ratio(samples, &point, metric)?,
                unit: String::new(),
            })
        };
        pairs.filter_map(figure).collect()
    }

    fn caption(&self, point: &str, _samples: &Samples) -> String {
        format!("{point} of what one server's link carries")
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            ("connecting_us", "connection, p50 us", 0),
            ("response_us", "response, p50 us", 0),
            ("response_p99_us", "p99 us", 0),
            ("answered_per_s", "answered/s", 0),
            ("failed", "failed", 0),
        ]
    }

    fn plots(&self, samples: &Samples) -> Vec<Plot> {
        let line = |setup: &Setup, metric| {
            let place =
                |load: &f64| Some((*load, samples.median(NAME, &format!("{load:.2}"), &setup.name(), metric)? / 1e3));
            (setup.name(), LOADS.iter().filter_map(place).collect())
        };
        let plot = |name, metric, what: &str| Plot {
            name,
            title: format!("{what} time, 64 KB, median (ms)"),
            x: ("load, of what one server's link carries", Scale::Linear),
            y: Scale::Logarithmic,
            series: vec![line(&ONE, metric), line(&SPLIT, metric)],
        };
        vec![plot("connection-time", "connecting_us", "Connection"), plot("response-time", "response_us", "Response")]
    }
}

/// How many times longer one server's is.
fn ratio(samples: &Samples, point: &str, metric: &str) -> Option<f64> {
    let of = |setup: &Setup| samples.median(NAME, point, &setup.name(), metric);
    of(&ONE).zip(of(&SPLIT)).map(|(one, split)| one / split)
}

/// So many requests in a second, and meanwhile now and then a connection that is only opened: how long that takes, in the middle.
fn offer(bench: &Bench, cluster: &Cluster, rate: f64) -> io::Result<(Trial, f64)> {
    let load = Load { rate: Some(rate), warm_up: Duration::from_millis(500), ..saturate(bench, CONNECTIONS, Some(1)) };
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let probe =
            scope.spawn(|| cluster.lab.at(CLIENT, CLIENT_CORE + 1, || open_now_and_then(cluster.addresses[0], &ended)));
        let trial = bench.measure(cluster, size(SIZE), &load);
        ended.store(true, Ordering::Relaxed);
        let times = probe.join().map_err(|_| io::Error::other("the probe panicked"))??;
        Ok((trial?, times.value_at_quantile(0.5) as f64 / 1e3))
    })
}

fn open_now_and_then(address: SocketAddr, ended: &AtomicBool) -> io::Result<Histogram<u64>> {
    let mut times = Histogram::new_with_bounds(1_000, 100_000_000_000, 3).map_err(io::Error::other)?;
    while !ended.load(Ordering::Relaxed) {
        let began = Instant::now();
        // One that fails took as long as it was waited for.
        let _ = TcpStream::connect_timeout(&address, PROBE_LIMIT);
        times.saturating_record(began.elapsed().as_nanos() as u64);
        std::thread::sleep(PROBE_PAUSE);
    }
    Ok(times)
}
