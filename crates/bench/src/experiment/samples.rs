//! Raw measurements, and their medians.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write;

/// One number of one round.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) case: String,
    /// Which load, when a case has several; else empty.
    pub(crate) point: String,
    pub(crate) server: String,
    pub(crate) round: u32,
    pub(crate) metric: &'static str,
    pub(crate) value: f64,
}

/// Middle and ends of several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// All samples of a run.
#[derive(Default)]
pub(crate) struct Samples {
    all: Vec<Sample>,
}

impl Samples {
    pub(crate) fn push(&mut self, sample: Sample) {
        self.all.push(sample);
    }

    pub(crate) fn take_in(&mut self, other: Samples) {
        self.all.extend(other.all);
    }

    /// The value of every round.
    pub(crate) fn values(&self, case: &str, point: &str, server: &str, metric: &str) -> Vec<f64> {
        let matching = self.all.iter().filter(|sample| {
            sample.case == case && sample.point == point && sample.server == server && sample.metric == metric
        });
        matching.map(|sample| sample.value).collect()
    }

    /// The spread over the rounds; none when nothing was measured.
    pub(crate) fn spread(&self, case: &str, point: &str, server: &str, metric: &str) -> Option<Spread> {
        spread(self.values(case, point, server, metric))
    }

    /// How often a subject's requests failed, in words; empty if they never did.
    pub(crate) fn failures(&self, case: &str, point: &str, subject: &str) -> String {
        let failed: f64 = self.values(case, point, subject, "failed").iter().sum();
        if failed > 0.0 { format!("{failed} failures") } else { String::new() }
    }

    pub(crate) fn median(&self, case: &str, point: &str, server: &str, metric: &str) -> Option<f64> {
        self.spread(case, point, server, metric).map(|spread| spread.median)
    }

    /// The least median of all servers that `wanted` accepts, and whose it is.
    pub(crate) fn least(
        &self,
        case: &str,
        point: &str,
        metric: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> Option<(String, f64)> {
        let servers = self.servers(case).into_iter().filter(|server| wanted(server));
        let medians = servers.filter_map(|server| {
            let median = self.median(case, point, &server, metric)?;
            Some((server, median))
        });
        medians.min_by(|left, right| left.1.total_cmp(&right.1))
    }

    /// Servers of a case, in the order in which they were first measured.
    pub(crate) fn servers(&self, case: &str) -> Vec<String> {
        self.distinct(case, |sample| &sample.server)
    }

    /// Points of a case, in the order in which they were first measured.
    pub(crate) fn points(&self, case: &str) -> Vec<String> {
        self.distinct(case, |sample| &sample.point)
    }

    /// Metrics of a case, in the order in which they were first measured.
    pub(crate) fn metrics(&self, case: &str, point: &str) -> Vec<&'static str> {
        let mut seen = BTreeSet::new();
        let of_case = self.all.iter().filter(|sample| sample.case == case && sample.point == point);
        of_case.map(|sample| sample.metric).filter(|metric| seen.insert(*metric)).collect()
    }

    fn distinct(&self, case: &str, key: impl Fn(&Sample) -> &String) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let of_case = self.all.iter().filter(|sample| sample.case == case);
        of_case.map(key).filter(|value| seen.insert((*value).clone())).cloned().collect()
    }

    /// One line for each sample of the cases that `wanted` accepts.
    pub(crate) fn csv(&self, wanted: impl Fn(&str) -> bool) -> String {
        let mut text = String::from("case,point,server,round,metric,value\n");
        for sample in self.all.iter().filter(|sample| wanted(&sample.case)) {
            let Sample { case, point, server, round, metric, value } = sample;
            let [point, server] = [point, server].map(|name| field(name));
            // Writing to a string can't fail.
            let _ = writeln!(text, "{case},{point},{server},{round},{metric},{value}");
        }
        text
    }
}

/// A name as a field of a line: in quotes if it has a comma.
fn field(name: &str) -> Cow<'_, str> {
    if name.contains(',') { Cow::Owned(format!("\"{name}\"")) } else { Cow::Borrowed(name) }
}

/// The middle of some values; none of none.
pub(crate) fn median(values: Vec<f64>) -> Option<f64> {
    spread(values).map(|spread| spread.median)
}

fn spread(mut values: Vec<f64>) -> Option<Spread> {
    values.sort_by(f64::total_cmp);
    let (&min, &max) = (values.first()?, values.last()?);
    let upper = values[values.len() / 2];
    let lower = values[(values.len() - 1) / 2];
    Some(Spread { median: f64::midpoint(lower, upper), min, max })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_comma_is_one_field() {
        assert_eq!(["leat", "leat, computing"].map(field), ["leat", "\"leat, computing\""]);
    }

    #[test]
    fn medians_are_between_the_ends() {
        assert_eq!(spread(vec![]), None);
        assert_eq!(spread(vec![3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(spread(vec![4.0, 1.0, 2.0, 3.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
    }

    #[test]
    fn the_least_of_the_wanted_is_found() {
        let mut samples = Samples::default();
        for (server, value) in [("a", 3.0), ("b", 1.0), ("c", 2.0)] {
            let (case, point) = ("x".to_owned(), String::new());
            samples.push(Sample { case, point, server: server.to_owned(), round: 0, metric: "cpu_us", value });
        }
        assert_eq!(samples.least("x", "", "cpu_us", |server| server != "b"), Some(("c".to_owned(), 2.0)));
    }
}
