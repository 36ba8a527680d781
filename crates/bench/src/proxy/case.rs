//! What a request costs each front, by kind, and how late replies are at a rate that all can do.

use std::io;

use super::bench::{Bench, Load, What};
use super::front::{LEAT, PEERS};
use super::upstream::{CHUNKED, LARGE, LARGE_BYTES, SMALL, SMALL_BYTES};
use crate::experiment::{Case, Samples};
use crate::load::{Demand, Spacing};
use crate::result::{Figure, Mark};
use crate::shares::confidence::{Estimate, estimate};

/// The better peer's processor time times this.
pub(super) const FACTOR: f64 = 1.05;
const CPU: &str = "cpu_us";
const SLICE_P99: &str = "slice_p99_us";
/// Of what the slowest front answers: all of them keep up, and none is idle.
const PART_OF_SLOWEST: f64 = 0.6;

pub(super) fn all() -> Vec<Box<dyn Case<Bench>>> {
    let get = |point, path, connections| Load { point, what: What::Get(path), connections, close: false };
    let post = |point, bytes, connections| Load { point, what: What::Post(bytes), connections, close: false };
    let kept = |name, title, loads| Box::new(Cost { name, title, loads }) as Box<dyn Case<Bench>>;
    vec![
        kept(
            "get",
            "GET, replies with a length, connections kept",
            vec![
                get("1 KB, 32 connections", SMALL, 32),
                get("1 KB, 1 connection", SMALL, 1),
                get("100 KB, 32 connections", LARGE, 32),
                get("100 KB, 1 connection", LARGE, 1),
            ],
        ),
        kept(
            "chunked",
            "GET, replies in chunks of 8 KB, connections kept",
            vec![get("100 KB, 32 connections", CHUNKED, 32), get("100 KB, 1 connection", CHUNKED, 1)],
        ),
        kept(
            "post",
            "POST, connections kept",
            vec![
                post("1 KB, 32 connections", SMALL_BYTES, 32),
                post("1 KB, 1 connection", SMALL_BYTES, 1),
                post("100 KB, 32 connections", LARGE_BYTES, 32),
                post("100 KB, 1 connection", LARGE_BYTES, 1),
            ],
        ),
        kept(
            "close",
            "GET, each request on a connection of its own",
            vec![Load { close: true, ..get("1 KB, 32 at once", SMALL, 32) }],
        ),
        Box::new(Rate(get("1 KB, 32 connections", SMALL, 32))),
    ]
}

fn columns() -> Vec<(&'static str, &'static str, usize)> {
    vec![
        (CPU, "us of CPU a request", 2),
        ("answered_per_s", "answered/s", 0),
        ("p50_us", "p50 us", 0),
        ("p99_us", "p99 us", 0),
        (SLICE_P99, "p99 of a slice, us", 0),
        ("late_us", "generator late by, us (p99)", 0),
        ("busy_percent", "% of its core", 0),
        ("failed", "failed", 0),
    ]
}

/// A closed loop at each of some loads.
struct Cost {
    name: &'static str,
    title: &'static str,
    loads: Vec<Load>,
}

impl Case<Bench> for Cost {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> &'static str {
        self.title
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        bench.rounds(self.name, &self.loads, Demand::Saturate)
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let of_load = |load: &Load| LEAT.map(|leat| cost_mark(samples, (self.name, load.point), leat));
        self.loads.iter().flat_map(of_load).collect()
    }

    fn figures(&self, samples: &Samples) -> Vec<Figure> {
        let pairs = self.loads.iter().flat_map(|load| LEAT.map(|leat| (load.point, leat)));
        let figure = |(point, leat): (&str, &str)| {
            let (peer, ratio) = beside_the_better(samples, (self.name, point), leat)?;
            // Of one round nothing is known, and infinity is no number in JSON.
            ratio.half_width.is_finite().then(|| Figure {
                case: format!("{}: {point}", self.name),
                subject: leat.to_owned(),
                figure: format!("half of the 95 % confidence interval of its CPU in {peer}'s"),
                value: ratio.half_width,
                unit: "times".to_owned(),
            })
        };
        pairs.filter_map(figure).collect()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        columns()
    }
}

/// The cheaper peer by the medians, and the mean of what leat takes in what it does, round by round.
fn beside_the_better(samples: &Samples, (case, point): (&str, &str), leat: &str) -> Option<(String, Estimate)> {
    let (peer, _) = samples.least(case, point, CPU, |server| PEERS.contains(&server))?;
    let [own, others] = [leat, &peer].map(|who| samples.values(case, point, who, CPU));
    let ratios: Vec<f64> = own.iter().zip(&others).map(|(own, other)| own / other).collect();
    (!ratios.is_empty()).then(|| estimate(&ratios)).flatten().map(|ratio| (peer, ratio))
}

/// Met only where it's known to be.
fn cost_mark(samples: &Samples, (case, point): (&str, &str), leat: &str) -> Mark {
    let found = beside_the_better(samples, (case, point), leat);
    let peer_median = found.as_ref().and_then(|(peer, _)| samples.median(case, point, peer, CPU));
    let value = samples.median(case, point, leat, CPU).zip(peer_median).map(|(own, other)| own / other);
    let (peer, ratio) = found.map_or((String::new(), None), |(peer, ratio)| (peer, Some(ratio)));
    let mut doubt = samples.failures(case, point, leat);
    if let Some(ratio) = ratio
        && value.is_some_and(|value| value <= FACTOR)
        && ratio.mean + ratio.half_width > FACTOR
        && doubt.is_empty()
    {
        doubt = match ratio.half_width {
            half_width if half_width.is_finite() => format!("known to {:.1} % only", 100.0 * half_width / ratio.mean),
            _ => "one round says nothing".to_owned(),
        };
    }
    let text = format!("CPU a request in that of the better peer, {peer}");
    Mark::at_most((format!("{case}: {point}"), leat), &text, value, Some(FACTOR), "times", doubt)
}

/// An open loop.
struct Rate(Load);

impl Rate {
    const NAME: &str = "rate";
}

impl Case<Bench> for Rate {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn title(&self) -> &'static str {
        "GET of 1 KB, connections kept, at 60 % of what the slowest front can"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let per_s = PART_OF_SLOWEST * bench.least_capacity(&self.0)?;
        bench.records.note(Self::NAME, &format!("{per_s:.0} requests/s, arrivals by Poisson"));
        bench.rounds(Self::NAME, &[self.0], Demand::Rate { per_s, spacing: Spacing::Poisson })
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let point = self.0.point;
        let best = samples.least(Self::NAME, point, SLICE_P99, |server| PEERS.contains(&server));
        let (peer, limit) = best.map_or((String::new(), None), |(peer, limit)| (peer, Some(limit)));
        let text = format!("p99 of the median slice no worse than the best peer's, {peer}'s");
        let mark = |leat: &str| {
            let value = samples.median(Self::NAME, point, leat, SLICE_P99);
            let doubt = samples.failures(Self::NAME, point, leat);
            Mark::at_most((format!("{}: {point}", Self::NAME), leat), &text, value, limit, "us", doubt)
        };
        LEAT.map(mark).into()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        columns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Records;

    fn marked(leat: &[f64], haproxy: &[f64]) -> Mark {
        let mut records = Records::default();
        for (who, values) in [("leat-epoll", leat), ("nginx", &[9.0; 5]), ("haproxy", haproxy)] {
            for (round, &value) in (0..).zip(values) {
                records.record(("get", "x", round), who, CPU, value);
            }
        }
        cost_mark(&records.samples, ("get", "x"), "leat-epoll")
    }

    #[test]
    fn a_mark_is_met_where_it_is_known_to_be() {
        let haproxy = [5.0, 5.0, 5.0, 5.0, 5.0];
        let good = marked(&[4.0, 4.1, 4.0, 4.1, 4.0], &haproxy);
        assert!(good.met && good.mark.ends_with("haproxy"), "{good:?}");
        assert!(!marked(&[5.5, 5.6, 5.5, 5.6, 5.5], &haproxy).met);
        let unknown = marked(&[3.0, 7.0, 4.0, 6.0, 5.0], &haproxy);
        assert!(!unknown.met && unknown.note.starts_with("known to"), "{unknown:?}");
        assert_eq!(marked(&[4.0], &[5.0]).note, "one round says nothing");
        assert_eq!(marked(&[], &haproxy).note, "it wasn't measured");
    }
}
