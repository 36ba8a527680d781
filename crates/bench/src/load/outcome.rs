//! What a run of the generator brought.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::{AdditionError, Histogram};

use super::slices::Slices;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Failure {
    /// The connection couldn't be opened.
    Connect,
    /// The server closed or reset the connection with requests unanswered.
    ClosedEarly,
    /// The head couldn't be understood.
    MalformedHead,
    /// Not the status that was to come, but this one.
    Status(u16),
    /// The body's length differs from the file's.
    Length,
    /// The body's bytes differ from the file's.
    Body,
    /// No reply before the run's end.
    Unanswered,
    /// No connection was free, and too many arrivals waited for one.
    Overflow,
    /// An idle connection was closed by the server.
    IdleClosed,
}

/// Bounds of the lengths by which latencies are told apart: SPECweb99's classes are within them.
pub(crate) const SIZES_BYTES: [u64; 3] = [1_000, 10_000, 100_000];

/// Of connections that were cut, so many are told of.
const CUT_TOLD_MAX: usize = 8;

/// The measured part of a run.
pub(crate) struct Outcome {
    /// Length of the measured window.
    pub(crate) window: Duration,
    /// Requests meant to be sent within the window (open loop), or sent (closed loop).
    pub(crate) offered: u64,
    /// Requests that went out within the window.
    pub(crate) sent: u64,
    /// Replies that were complete, and right, within the window.
    pub(crate) answered: u64,
    /// Those of them that another server had made than the reply before on the same connection, where contents say so.
    pub(crate) changes: u64,
    /// Replies within the window that said that the server has too much to do, where the plan lets it.
    pub(crate) refused: u64,
    /// Body and head bytes received within the window.
    pub(crate) received_bytes: u64,
    /// Connections opened within the window.
    pub(crate) connects: u64,
    /// Replies whose body was compared.
    pub(crate) verified: u64,
    /// From the intended time of sending to the last byte of the reply, in nanoseconds, of all requests that were
    /// meant to be sent within the window; one without a reply counts as long as it was waited for.
    pub(crate) latency_ns: Histogram<u64>,
    /// The same latencies, slice by slice of the window.
    pub(crate) slices: Slices,
    /// The same of replies that came, by the length of their bodies: up to each of [`SIZES_BYTES`], and beyond the last.
    pub(crate) by_size_ns: [Histogram<u64>; SIZES_BYTES.len() + 1],
    /// The same of those only that were answered within the window, whenever they were due, and of those that were refused.
    pub(crate) answered_ns: Histogram<u64>,
    pub(crate) refused_ns: Histogram<u64>,
    /// How much after its intended time a request was handed to the kernel, when a connection was free: the
    /// generator's own lateness.
    pub(crate) lateness_ns: Histogram<u64>,
    /// Failures of the whole run, by kind.
    pub(crate) failures: BTreeMap<Failure, u64>,
    /// The first few connections that ended with requests unanswered, for people.
    pub(crate) cut: Vec<String>,
    /// Time within the window that the generator wasn't just looking for work.
    pub(crate) busy: Duration,
    /// Processor time of the generator within the window, looking for work counted.
    pub(crate) cpu: Duration,
}

impl Outcome {
    pub(crate) fn new() -> Self {
        Self {
            window: Duration::ZERO,
            offered: 0,
            sent: 0,
            answered: 0,
            changes: 0,
            refused: 0,
            received_bytes: 0,
            connects: 0,
            verified: 0,
            latency_ns: histogram(),
            slices: Slices::default(),
            by_size_ns: std::array::from_fn(|_| histogram()),
            answered_ns: histogram(),
            refused_ns: histogram(),
            lateness_ns: histogram(),
            failures: BTreeMap::new(),
            cut: Vec::new(),
            busy: Duration::ZERO,
            cpu: Duration::ZERO,
        }
    }

    pub(crate) fn fail(&mut self, failure: Failure, count: u64) {
        if count > 0 {
            *self.failures.entry(failure).or_default() += count;
        }
    }

    /// A connection ended with requests unanswered.
    pub(crate) fn was_cut(&mut self, how: impl FnOnce() -> String) {
        if self.cut.len() < CUT_TOLD_MAX {
            self.cut.push(how());
        }
    }

    /// A request that was due so long after the window's begin took so long.
    pub(crate) fn took(&mut self, due_ns: u64, latency_ns: u64) {
        self.latency_ns.saturating_record(latency_ns);
        self.slices.record(due_ns, latency_ns);
    }

    /// A reply with so long a body, among those that [`Outcome::took`] was told of.
    pub(crate) fn was_long(&mut self, body_bytes: u64, latency_ns: u64) {
        let class = SIZES_BYTES.partition_point(|size| *size < body_bytes);
        self.by_size_ns[class].saturating_record(latency_ns);
    }

    /// Takes in what another thread's part of the same run brought.
    ///
    /// # Errors
    /// A time is beyond every bound.
    pub(crate) fn add(&mut self, part: &Outcome) -> Result<(), AdditionError> {
        self.window = self.window.max(part.window);
        self.offered += part.offered;
        self.sent += part.sent;
        self.answered += part.answered;
        self.changes += part.changes;
        self.refused += part.refused;
        self.received_bytes += part.received_bytes;
        self.connects += part.connects;
        self.verified += part.verified;
        self.latency_ns.add(&part.latency_ns)?;
        self.slices.add(&part.slices);
        for (all, part) in self.by_size_ns.iter_mut().zip(&part.by_size_ns) {
            all.add(part)?;
        }
        self.answered_ns.add(&part.answered_ns)?;
        self.refused_ns.add(&part.refused_ns)?;
        self.lateness_ns.add(&part.lateness_ns)?;
        part.failures.iter().for_each(|(&failure, &count)| self.fail(failure, count));
        let room = CUT_TOLD_MAX - self.cut.len();
        self.cut.extend(part.cut.iter().take(room).cloned());
        self.busy += part.busy;
        self.cpu += part.cpu;
        Ok(())
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Failures that a server shows when it is offered more than it can answer.
    pub(crate) fn left_over(&self) -> u64 {
        [Failure::Unanswered, Failure::Overflow].iter().filter_map(|kind| self.failures.get(kind)).sum()
    }

    pub(crate) fn answered_per_s(&self) -> f64 {
        per_second(self.answered, self.window)
    }

    pub(crate) fn refused_per_s(&self) -> f64 {
        per_second(self.refused, self.window)
    }

    pub(crate) fn offered_per_s(&self) -> f64 {
        per_second(self.offered, self.window)
    }

    pub(crate) fn sent_per_s(&self) -> f64 {
        per_second(self.sent, self.window)
    }

    /// Latency at a quantile (0 to 1), in microseconds.
    pub(crate) fn latency_us(&self, quantile: f64) -> f64 {
        self.latency_ns.value_at_quantile(quantile) as f64 / 1e3
    }

    /// The generator's own lateness at a quantile (0 to 1), in microseconds.
    pub(crate) fn lateness_us(&self, quantile: f64) -> f64 {
        self.lateness_ns.value_at_quantile(quantile) as f64 / 1e3
    }

    /// The p99 of every slice of the window, in microseconds.
    pub(crate) fn slice_p99s_us(&self) -> Vec<f64> {
        self.slices.p99s_us(self.window)
    }

    /// The same of those only that were answered.
    pub(crate) fn answered_us(&self, quantile: f64) -> f64 {
        self.answered_ns.value_at_quantile(quantile) as f64 / 1e3
    }

    /// How many were answered within such a time.
    pub(crate) fn answered_within(&self, time: Duration) -> u64 {
        self.answered_ns.count_between(0, time.as_nanos() as u64)
    }

    /// The same of those that were refused.
    pub(crate) fn refused_us(&self, quantile: f64) -> f64 {
        self.refused_ns.value_at_quantile(quantile) as f64 / 1e3
    }

    /// What the generator spends on a request, in microseconds: its processor time, less its share of looking for
    /// work. Time for which others had the processor counts for neither.
    pub(crate) fn generator_us_per_request(&self) -> f64 {
        if self.window.is_zero() {
            return 0.0;
        }
        let busy_share = self.busy.as_secs_f64() / self.window.as_secs_f64();
        self.cpu.as_secs_f64() * busy_share * 1e6 / self.answered.max(1) as f64
    }
}

fn per_second(count: u64, window: Duration) -> f64 {
    if window.is_zero() { 0.0 } else { count as f64 / window.as_secs_f64() }
}

/// 1 us to 100 s at three digits.
fn histogram() -> Histogram<u64> {
    let mut histogram =
        Histogram::new_with_bounds(1_000, 100_000_000_000, 3).expect("the bounds are in order and the digits allowed");
    histogram.auto(true);
    histogram
}
