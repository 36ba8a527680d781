//! What a run has written down so far.

use super::samples::{Sample, Samples};

/// Samples, and what has to be said about them.
#[derive(Default)]
pub(crate) struct Records {
    pub(crate) samples: Samples,
    /// Case and words.
    notes: Vec<(String, String)>,
}

impl Records {
    /// Records one number: of a case, a point of it (empty for its only one) and a round.
    pub(crate) fn record(&mut self, at: (&str, &str, u32), subject: &str, metric: &'static str, value: f64) {
        let (case, point, round) = at;
        let (case, point, server) = (case.to_owned(), point.to_owned(), subject.to_owned());
        self.samples.push(Sample { case, point, server, round, metric, value });
    }

    pub(crate) fn note(&mut self, case: &str, text: &str) {
        self.notes.push((case.to_owned(), text.to_owned()));
    }

    /// Takes what another bench has written down.
    pub(crate) fn take_in(&mut self, other: Records) {
        self.samples.take_in(other.samples);
        self.notes.extend(other.notes);
    }

    /// What has been said of a case.
    pub(crate) fn notes(&self, case: &str) -> impl Iterator<Item = &str> {
        self.notes.iter().filter(move |(of, _)| of == case).map(|(_, text)| text.as_str())
    }
}
