//! The cases: what is asked of every server, and what leat must reach.
//!
//! A case is one file (or one line in [`all`] where only sizes differ).

mod active;
mod cold;
mod curve;
mod idle;
mod saturated;
mod specweb99;
mod start;

use std::io;

pub(crate) use curve::NAME as CURVE;

use super::bench::{Bench, GENERATOR, OFFER_FACTOR};
use super::samples::Samples;
use crate::result::Mark;

/// leat on each of its reactors.
pub(crate) const LEAT: [&str; 2] = ["leat-io_uring", "leat-epoll"];

/// One case of the experiment.
pub(crate) trait Case {
    /// As on the command line and in results.
    fn name(&self) -> &'static str;
    /// In words.
    fn title(&self) -> &'static str;
    /// Collects samples.
    fn run(&self, bench: &mut Bench) -> io::Result<()>;
    /// Judges them.
    fn marks(&self, samples: &Samples) -> Vec<Mark>;
    /// What the table shows: metric, heading, decimals.
    fn columns(&self) -> Vec<(&'static str, &'static str, usize)>;
}

/// Every case, in the order of the table.
pub(crate) fn all() -> Vec<Box<dyn Case>> {
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    cases.extend(saturated::all().into_iter().map(|case| Box::new(case) as Box<dyn Case>));
    cases.push(Box::new(specweb99::SpecWeb99));
    cases.push(Box::new(cold::Cold));
    cases.push(Box::new(idle::Idle));
    cases.push(Box::new(active::Active));
    cases.push(Box::new(start::Start));
    cases.push(Box::new(curve::Curve));
    cases
}

/// Columns of cases whose main figure is processor time.
fn load_columns() -> Vec<(&'static str, &'static str, usize)> {
    vec![
        ("cpu_us", "CPU us a request", 2),
        ("answered_per_s", "requests/s", 0),
        ("p99_us", "p99 us", 0),
        ("server_busy", "core used", 2),
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
        self.mark(subject, mark, limit, format!("{other} wasn't measured"))
    }

    /// `subject`'s median must be below that of the best server that `among` accepts.
    fn below_best(&self, subject: &str, among: impl Fn(&str) -> bool, mark: &str) -> Mark {
        let best = self.samples.least(self.case, self.point, self.metric, among);
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
