//! What operations cost: a + b * bytes for each kind, fitted while running to what batches of them were measured to take. Decides what is
//! charged for an operation and who pays for what the charges missed; when the clock is read is for the worker to say.

mod batch;
mod fit;
mod operation;

pub use batch::Batch;
pub use operation::Operation;

use super::share::Cost;
use fit::Fit;

/// How much of the error metric a batch makes up.
const ERROR_GAIN: f64 = 1.0 / 64.0;

/// The price of each operation, learnt from measured batches.
#[derive(Clone, Debug)]
pub struct CostModel {
    fit: Fit,
    /// Moving averages, in nanoseconds.
    error_ns: f64,
    measured_ns: f64,
}

impl CostModel {
    /// A model that knows what operations cost on a machine like those that it was made on.
    #[must_use]
    pub fn new() -> CostModel {
        CostModel { fit: Fit::new(), error_ns: 0.0, measured_ns: 0.0 }
    }

    /// What an operation on `bytes` bytes is expected to cost.
    #[inline]
    #[must_use]
    pub fn predict(&self, operation: Operation, bytes: u64) -> Cost {
        let (each_ns, kib_ns) = self.fit.price(operation);
        // Prices are within bounds, so this is neither negative nor too large.
        Cost::from_ns((each_ns + kib_ns * fit::kib(bytes)).round() as u64)
    }

    /// Learns that the operations of `batch` took `measured_ns` of CPU time together; what has been charged too little (or too much, if
    /// negative) for them, to be corrected by [`Batch::corrections`].
    pub fn observe(&mut self, batch: &Batch, measured_ns: u64) -> i64 {
        if batch.is_empty() {
            return signed(measured_ns);
        }
        let predicted_ns = self.fit.observe(batch, measured_ns as f64);
        self.error_ns += ((measured_ns as f64 - predicted_ns).abs() - self.error_ns) * ERROR_GAIN;
        self.measured_ns += (measured_ns as f64 - self.measured_ns) * ERROR_GAIN;
        signed(measured_ns).saturating_sub(signed(batch.charged_ns()))
    }

    /// Learns the same of a few operations that were measured by themselves; who pays for them, and how far off whole batches are, is no matter.
    pub fn learn(&mut self, sample: &Batch, measured_ns: u64) {
        if !sample.is_empty() {
            self.fit.observe(sample, measured_ns as f64);
        }
    }

    /// How far off the last predictions of whole batches were, as a part of what was measured: 0.05 is five per cent. For the metrics.
    #[must_use]
    pub fn relative_error(&self) -> f64 {
        if self.measured_ns > 0.0 { self.error_ns / self.measured_ns } else { 0.0 }
    }

    /// What an operation costs by now: nanoseconds, and nanoseconds for each KiB. For the metrics.
    #[must_use]
    pub fn price(&self, operation: Operation) -> (f64, f64) {
        self.fit.price(operation)
    }
}

impl Default for CostModel {
    fn default() -> CostModel {
        CostModel::new()
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
