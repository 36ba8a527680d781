//! The cases, by experiment: what is asked of leat's shares, and what it must reach. A case is one file.

mod anew;
mod endless;
mod entitlement;
mod event_cost;
mod flood;
mod overload;
mod policy_cost;
mod priority;
mod stages;
mod two_sites;

use super::bench::Bench;
use super::confidence::estimate;
use crate::experiment::{Case, Samples};
use crate::result::{Figure, Mark};

/// An experiment's folder, its title, and its cases in the order of the table.
type Experiment = (&'static str, &'static str, Vec<Box<dyn Case<Bench>>>);

/// leat's name among servers.
const LEAT: &str = "leat";

/// Every experiment.
pub(super) fn all() -> Vec<Experiment> {
    vec![
        (
            "shares",
            "Sites get the share they are given",
            vec![
                Box::new(two_sites::TwoSites),
                Box::new(entitlement::sixteen_sites()),
                Box::new(entitlement::owners()),
                Box::new(priority::Priority),
            ],
        ),
        (
            "tree",
            "What the event scheduling tree costs, and where the time goes",
            vec![Box::new(event_cost::EventCost), Box::new(policy_cost::PolicyCost), Box::new(stages::Stages)],
        ),
        ("isolation", "One site can't take from another", vec![Box::new(endless::Endless), Box::new(flood::Flood)]),
        ("overload", "More is asked for than can be done", vec![Box::new(overload::Overload), Box::new(anew::Anew)]),
    ]
}

/// A figure of a case: which samples.
#[derive(Clone, Copy)]
struct Measured<'a> {
    samples: &'a Samples,
    case: &'static str,
    point: &'a str,
    subject: &'a str,
    metric: &'static str,
}

impl Measured<'_> {
    fn values(self) -> Vec<f64> {
        self.samples.values(self.case, self.point, self.subject, self.metric)
    }

    fn median(self) -> Option<f64> {
        self.samples.median(self.case, self.point, self.subject, self.metric)
    }

    /// The mean must be at most `limit_percent` from `wanted`, and known to half of that.
    fn near(self, wanted: f64, limit_percent: f64, mark: &str) -> Mark {
        let off_percent = estimate(&self.values()).map(|found| (found.mean / wanted - 1.0).abs() * 100.0);
        self.at_most(off_percent, Some(limit_percent), "%", mark, self.doubt(limit_percent / 2.0))
    }

    /// The mean, a part of something, must be at most `limit_percent` below the whole, and known to half of that.
    fn keeps(self, limit_percent: f64, mark: &str) -> Mark {
        let lost_percent = estimate(&self.values()).map(|found| (1.0 - found.mean) * 100.0);
        self.at_most(lost_percent, Some(limit_percent), "%", mark, self.doubt(limit_percent / 2.0))
    }

    /// Why the mean isn't known well enough; empty when it is.
    fn doubt(self, half_width_percent_max: f64) -> String {
        let found = estimate(&self.values());
        let half_width_percent = found.map_or(0.0, |found| found.half_width / found.mean * 100.0);
        let is_known = half_width_percent <= half_width_percent_max;
        if is_known { String::new() } else { format!("known to {half_width_percent:.1} % only") }
    }

    /// `value` must be at most `limit`. A note says why it doesn't count.
    fn at_most(self, value: Option<f64>, limit: Option<f64>, unit: &str, mark: &str, note: String) -> Mark {
        let met = note.is_empty() && value.zip(limit).is_some_and(|(value, limit)| value <= limit);
        let note = if value.is_none() { format!("{} wasn't measured", self.metric) } else { note };
        Mark {
            case: if self.point.is_empty() { self.case.to_owned() } else { format!("{} {}", self.case, self.point) },
            subject: self.subject.to_owned(),
            mark: mark.to_owned(),
            value,
            limit,
            unit: unit.to_owned(),
            met,
            note,
        }
    }

    /// The median, told but not judged; none when it wasn't measured.
    fn told(self, figure: &str, unit: &str) -> Option<Figure> {
        Some(self.figure(figure, unit, self.median()?))
    }

    /// Something made of such samples, told but not judged.
    fn figure(self, figure: &str, unit: &str, value: f64) -> Figure {
        Figure {
            case: format!("{} {}", self.case, self.point).trim_end().to_owned(),
            subject: self.subject.to_owned(),
            figure: figure.to_owned(),
            value,
            unit: unit.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Records;

    fn near(values: &[f64]) -> Mark {
        let mut records = Records::default();
        for (round, &value) in values.iter().enumerate() {
            records.record(("x", "p", round as u32), "s", "ratio", value);
        }
        let measured = Measured { samples: &records.samples, case: "x", point: "p", subject: "s", metric: "ratio" };
        measured.near(2.0, 2.0, "mark")
    }

    #[test]
    fn a_mark_is_met_when_it_is_near_and_surely_so() {
        assert!(near(&[2.01, 2.02, 2.01]).met);
        assert!(!near(&[2.05, 2.05, 2.05]).met);
        assert!(near(&[1.9, 2.1, 2.0]).note.starts_with("known to"), "{:?}", near(&[1.9, 2.1, 2.0]));
        assert!(!near(&[]).met && near(&[]).value.is_none());
    }

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let mut names: Vec<_> = all().iter().flat_map(|(_, _, cases)| cases).map(|case| case.name()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
