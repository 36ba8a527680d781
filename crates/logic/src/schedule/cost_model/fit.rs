//! Least squares over batches with forgetting, within bounds: projected coordinate descent on the normal equations, a few sweeps now and
//! then. Each batch counts by the inverse of its predicted time, as the noise of a sum grows with its length.

use super::operation::RANGE;
use super::{Batch, Operation};

/// Two features for each operation: how many, and how many KiB.
const FEATURES: usize = 2 * Operation::COUNT;

/// Batches between two solutions.
const BATCHES_EACH_SOLUTION: u32 = 16;
/// What is left of older batches at each solution: half after some 370 batches.
const KEPT_EACH_SOLUTION: f64 = 0.97;
const SWEEPS: usize = 4;
/// How much staying where it is counts for a price, beside what was measured.
const INERTIA: f64 = 0.001;
/// A batch that took more (or less) than this many times what was expected counts as if it had taken that.
const SURPRISE_MAX: f64 = 4.0;
/// Weight below which a feature's past is forgotten altogether, before it gets into numbers that processors are slow with.
const TRACE_MIN: f64 = 1e-9;
/// Added to the predicted time of a batch when it's weighed, in nanoseconds: what reading the clock is off by.
const CLOCK_NOISE_NS: f64 = 500.0;

type Vector = [f64; FEATURES];

#[inline]
pub(super) fn kib(bytes: u64) -> f64 {
    bytes as f64 * (1.0 / 1024.0)
}

#[derive(Clone, Debug)]
pub(super) struct Fit {
    /// The prices: nanoseconds for each operation, then for each KiB.
    prices: Vector,
    lowest: Vector,
    highest: Vector,
    /// The normal equations: sums of features times features, and of features times time.
    squares: Box<[Vector; FEATURES]>,
    products: Vector,
    batches: u32,
}

impl Fit {
    pub(super) fn new() -> Fit {
        let (mut prices, mut lowest, mut highest) = ([0.0; FEATURES], [0.0; FEATURES], [0.0; FEATURES]);
        for &operation in Operation::ALL {
            let prior = operation.prior();
            let at = 2 * operation.index();
            (prices[at], lowest[at], highest[at]) = (prior.each_ns, prior.each_ns / RANGE, prior.each_ns * RANGE);
            // Bytes may well cost nothing: what is sent from a page cache without a copy, say.
            (prices[at + 1], highest[at + 1]) = (prior.kib_ns, prior.kib_ns * RANGE);
        }
        let squares = Box::new([[0.0; FEATURES]; FEATURES]);
        Fit { prices, lowest, highest, squares, products: [0.0; FEATURES], batches: 0 }
    }

    #[inline]
    pub(super) fn price(&self, operation: Operation) -> (f64, f64) {
        let at = 2 * operation.index();
        (self.prices[at], self.prices[at + 1])
    }

    /// Takes in a batch; what it was predicted to take, in nanoseconds.
    pub(super) fn observe(&mut self, batch: &Batch, measured_ns: f64) -> f64 {
        let mut present = [(0, 0.0); FEATURES];
        let mut count = 0;
        for &operation in Operation::ALL {
            let values = [f64::from(batch.operations(operation)), kib(batch.bytes(operation))];
            for (value, at) in values.into_iter().zip(2 * operation.index()..) {
                if value > 0.0 {
                    present[count] = (at, value);
                    count += 1;
                }
            }
        }
        let present = &present[..count];
        let predicted_ns: f64 = present.iter().map(|&(at, value)| self.prices[at] * value).sum();
        let believed_ns = measured_ns.clamp(predicted_ns / SURPRISE_MAX, predicted_ns * SURPRISE_MAX);
        let weight = 1.0 / (predicted_ns + CLOCK_NOISE_NS);
        for &(row, value) in present {
            for &(column, other) in present {
                self.squares[row][column] += weight * value * other;
            }
            self.products[row] += weight * value * believed_ns;
        }
        self.batches += 1;
        if self.batches == BATCHES_EACH_SOLUTION {
            self.batches = 0;
            self.solve();
            self.forget();
        }
        predicted_ns
    }

    fn solve(&mut self) {
        let before = self.prices;
        for _ in 0..SWEEPS {
            for at in 0..FEATURES {
                let row = &self.squares[at];
                let square = row[at];
                if square == 0.0 {
                    continue;
                }
                let explained: f64 = row.iter().zip(&self.prices).map(|(sum, price)| sum * price).sum();
                let inertia = INERTIA * square;
                let rest = self.products[at] - explained + square * self.prices[at];
                let price = (rest + inertia * before[at]) / (square + inertia);
                self.prices[at] = price.clamp(self.lowest[at], self.highest[at]);
            }
        }
    }

    fn forget(&mut self) {
        for at in 0..FEATURES {
            self.products[at] *= KEPT_EACH_SOLUTION;
            self.squares[at].iter_mut().for_each(|sum| *sum *= KEPT_EACH_SOLUTION);
        }
        for at in 0..FEATURES {
            if self.squares[at][at] < TRACE_MIN {
                self.products[at] = 0.0;
                self.squares[at] = [0.0; FEATURES];
                self.squares.iter_mut().for_each(|row| row[at] = 0.0);
            }
        }
    }
}

#[cfg(test)]
impl Fit {
    pub(super) fn numbers(&self) -> impl Iterator<Item = f64> + '_ {
        self.squares.iter().flatten().chain(&self.products).copied()
    }
}
