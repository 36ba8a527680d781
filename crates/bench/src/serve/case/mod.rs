//! The cases: what is asked of every server, and what leat must reach.
//!
//! A case is one file (or one line in [`all`] where only sizes differ).

mod active;
mod cold;
mod curve;
mod file_set;
mod idle;
mod single_file;
mod start;

use super::bench::{Bench, KEPT_UP_MIN, OFFER_FACTOR};
use crate::experiment::{Case, GENERATOR, Samples};
use crate::result::{Figure, Mark};

/// leat on each of its reactors.
pub(crate) const LEAT: [&str; 2] = ["leat-io_uring", "leat-epoll"];

/// Every case, in the order of the table.
pub(crate) fn all() -> Vec<Box<dyn Case<Bench>>> {
    let mut cases: Vec<Box<dyn Case<Bench>>> = Vec::new();
    cases.extend(single_file::all().into_iter().map(|case| Box::new(case) as Box<dyn Case<Bench>>));
    cases.extend(file_set::all().into_iter().map(|case| Box::new(case) as Box<dyn Case<Bench>>));
    cases.push(Box::new(cold::Cold));
    cases.push(Box::new(idle::Idle));
    cases.push(Box::new(active::Active));
    cases.push(Box::new(start::Start));
    cases.push(Box::new(curve::Curve));
    cases
}

/// The point at which a closed loop finds what each server can answer.
const SATURATED: &str = "saturated";
const SATURATED_CAPTION: &str = "**Saturated** by a closed loop: told, not judged, as the generator wasn't shown to offer \
    half as much again";

/// What servers spend when saturated.
fn saturated_figures(samples: &Samples, case: &str) -> Vec<Figure> {
    let figures = samples.servers(case).into_iter().filter_map(|subject| {
        let value = samples.median(case, SATURATED, &subject, "cpu_us")?;
        let figure = "CPU a request, saturated by a closed loop; not judged".to_owned();
        Some(Figure { case: case.to_owned(), subject, figure, value, unit: "us".to_owned() })
    });
    figures.collect()
}

/// What percentiles beside peers are judged by: a p99 for each slice of each round, so that stalls of the machine, which hit servers by chance,
/// don't decide. Stalls that a server makes itself are hidden as well where they spoil fewer than half of the slices, hence [`latency_figures`].
const SLICE_P99: &str = "slice_p99_us";

/// What the median slice hides.
fn latency_figures(samples: &Samples, case: &str, point: &str) -> Vec<Figure> {
    let metrics = [
        ("p99_us", "p99 of whole rounds; not judged", 1.0, "us"),
        ("stalled", "slices with a stall; not judged", 100.0, "%"),
    ];
    let figures = samples.servers(case).into_iter().flat_map(|subject| {
        metrics.into_iter().filter_map(move |(metric, text, factor, unit)| {
            let values = samples.values(case, point, &subject, metric);
            // Of shares the mean, as rounds are equally long; the median of a few rounds would hide what is rare again.
            let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
            let value = factor * if unit == "%" { mean } else { samples.median(case, point, &subject, metric)? };
            let figure = if point.is_empty() { text.to_owned() } else { format!("{text} ({point})") };
            (!values.is_empty()).then(|| Figure {
                case: case.to_owned(),
                subject: subject.clone(),
                figure,
                value,
                unit: unit.to_owned(),
            })
        })
    });
    figures.collect()
}

/// `points` with `point` at the end.
fn last(mut points: Vec<String>, point: &str) -> Vec<String> {
    points.sort_by_key(|other| other == point);
    points
}

/// Columns of cases whose main figure is processor time.
fn load_columns() -> Vec<(&'static str, &'static str, usize)> {
    vec![
        ("cpu_us", "CPU us a request", 2),
        ("answered_per_s", "requests/s", 0),
        (SLICE_P99, "p99 us, slices", 0),
        ("p99_us", "p99 us, rounds", 0),
        ("stalled", "slices with a stall", 2),
        ("late_us", "generator late us", 0),
        ("server_busy", "core used", 2),
        ("kept_up", "answered / offered", 2),
        ("failures", "failures", 0),
    ]
}

/// Builds one case's marks.
struct Judge<'a> {
    samples: &'a Samples,
    case: &'static str,
    point: &'a str,
    metric: &'static str,
    unit: &'static str,
}

impl Judge<'_> {
    /// `subject`'s median must be at most `factor` times that of `other` (below it if `strictly`).
    fn beside(&self, subject: &str, other: &str, factor: f64, mark: &str) -> Mark {
        let limit = self.samples.median(self.case, self.point, other, self.metric).map(|value| value * factor);
        // Processor time of one that is saturated is of another load; latency of one that falls behind is what it is.
        let limit = limit.filter(|_| self.metric == SLICE_P99 || self.keeps_up(other));
        self.mark(subject, mark, limit, format!("{other} wasn't measured, or didn't keep up with the same load"))
    }

    /// `subject`'s median must be below that of the best server that `among` accepts.
    fn below_best(&self, subject: &str, among: impl Fn(&str) -> bool, mark: &str) -> Mark {
        // One that doesn't keep up isn't under the same load, and spends more than those that do.
        let best = self.samples.least(self.case, self.point, self.metric, |name| among(name) && self.keeps_up(name));
        let mark = best.as_ref().map_or(mark.to_owned(), |(name, _)| format!("{mark} ({name})"));
        self.mark(subject, &mark, best.map(|(_, value)| value), "no peer was measured".to_owned())
    }

    /// `subject`'s median must be at most `limit`.
    fn mark(&self, subject: &str, mark: &str, limit: Option<f64>, without_limit: String) -> Mark {
        let value = self.samples.median(self.case, self.point, subject, self.metric);
        let mut note = match (value, limit) {
            (None, _) => format!("{subject} wasn't measured"),
            (_, None) => without_limit,
            _ => String::new(),
        };
        let failures = self.samples.median(self.case, self.point, subject, "failures").unwrap_or(0.0);
        if failures > 0.0 {
            note = format!("{failures} requests failed");
        } else if value.is_some() && !self.keeps_up(subject) {
            note = format!("{subject} doesn't keep up with what it is offered");
        } else if note.is_empty() {
            note = self.offer_note(subject);
        }
        let met = note.is_empty() && value.zip(limit).is_some_and(|(value, limit)| value <= limit);
        Mark {
            case: if self.point.is_empty() { self.case.to_owned() } else { format!("{} {}", self.case, self.point) },
            subject: subject.to_owned(),
            mark: mark.to_owned(),
            value,
            limit,
            unit: self.unit.to_owned(),
            met,
            note,
        }
    }

    fn keeps_up(&self, server: &str) -> bool {
        self.samples.median(self.case, self.point, server, "kept_up").is_none_or(|share| share >= KEPT_UP_MIN)
    }

    /// Why a point doesn't count: the generator wasn't shown to offer enough. Empty when it was, or needn't be.
    fn offer_note(&self, subject: &str) -> String {
        let offer = self.samples.median(self.case, self.point, GENERATOR, "offer_per_s");
        let rate = self.samples.median(self.case, self.point, subject, "answered_per_s");
        match offer.zip(rate) {
            Some((offer, rate)) if offer < rate * OFFER_FACTOR * 0.999 => {
                format!("doesn't count: the generator was shown to offer only {:.2} times this rate", offer / rate)
            }
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::samples::Sample;

    /// One server's figures at the rate of 100/s: processor time, and share of what was offered that it answered.
    fn add(samples: &mut Samples, server: &str, cpu_us: f64, kept_up: f64) {
        for (metric, value) in [("cpu_us", cpu_us), ("kept_up", kept_up), ("answered_per_s", 100.0 * kept_up)] {
            let (case, point, server) = ("x".to_owned(), "p".to_owned(), server.to_owned());
            samples.push(Sample { case, point, server, round: 0, metric, value });
        }
    }

    fn judge(samples: &Samples) -> Judge<'_> {
        Judge { samples, case: "x", point: "p", metric: "cpu_us", unit: "us" }
    }

    #[test]
    fn only_servers_under_the_same_load_are_compared() {
        let mut samples = Samples::default();
        add(&mut samples, "ours", 5.0, 1.0);
        add(&mut samples, "drowned", 4.0, 0.6);
        add(&mut samples, "slower", 6.0, 1.0);
        let beside = |subject, other| judge(&samples).beside(subject, other, 1.0, "less");
        assert!(beside("ours", "slower").met);
        assert!(!beside("slower", "ours").met);
        assert!(beside("ours", "drowned").limit.is_none());
        assert!(!beside("drowned", "slower").met, "{:?}", beside("drowned", "slower"));
        let best = judge(&samples).below_best("ours", |name| name != "ours", "best");
        assert_eq!((best.limit, best.met), (Some(6.0), true));
    }

    #[test]
    fn a_server_that_falls_behind_has_latencies_all_the_same() {
        let mut samples = Samples::default();
        add(&mut samples, "ours", 5.0, 1.0);
        add(&mut samples, "drowned", 14.0, 0.6);
        for (server, value) in [("ours", 150.0), ("drowned", 90_000.0)] {
            let (case, point, server) = ("x".to_owned(), "p".to_owned(), server.to_owned());
            samples.push(Sample { case, point, server, round: 0, metric: SLICE_P99, value });
        }
        let judge = Judge { metric: SLICE_P99, ..judge(&samples) };
        assert!(judge.beside("ours", "drowned", 1.0, "less").met);
        assert!(!judge.beside("drowned", "ours", 1.0, "less").met);
    }

    #[test]
    fn a_rate_that_the_generator_was_not_shown_to_exceed_does_not_count() {
        for (offer_per_s, met) in [(149.0, false), (150.0, true)] {
            let mut samples = Samples::default();
            add(&mut samples, "ours", 5.0, 1.0);
            add(&mut samples, "slower", 6.0, 1.0);
            let (case, point, server) = ("x".to_owned(), "p".to_owned(), GENERATOR.to_owned());
            samples.push(Sample { case, point, server, round: 0, metric: "offer_per_s", value: offer_per_s });
            assert_eq!(judge(&samples).beside("ours", "slower", 1.0, "less").met, met);
        }
    }
}
