//! What a kind of work costs by the size of a reply: a prior straight line, times what measurements say of each size class. What the work is,
//! is the model's.

/// Whose processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The dispatcher's.
    Dispatcher,
    /// The nodes', together.
    Node,
}

/// What is taken to be true before anything is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prior {
    /// CPU time in us whatever the size.
    pub fixed_us: f64,
    /// CPU time in us for each KiB.
    pub kib_us: f64,
}

impl Prior {
    fn at(self, bytes: u64) -> f64 {
        self.fixed_us + self.kib_us * bytes as f64 / 1024.0
    }
}

/// Sizes of a factor of two: up to 1 KiB, 2 KiB, ... 16 MiB and more.
const CLASSES: usize = 15;

fn class(bytes: u64) -> usize {
    let kib = bytes.div_ceil(1024).max(1);
    (u64::BITS - (kib - 1).leading_zeros()).min(CLASSES as u32 - 1) as usize
}

/// An average in which late samples count more, as long as there are few all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Average {
    mean: f32,
    count: u16,
}

/// Samples after which the oldest count less than a new one.
const SAMPLES: u16 = 32;

impl Average {
    pub(super) fn add(&mut self, sample: f64) {
        self.count = (self.count + 1).min(SAMPLES);
        self.mean += (sample as f32 - self.mean) / f32::from(self.count);
    }

    /// `None` before the first sample.
    pub(super) fn mean(self) -> Option<f64> {
        (self.count > 0).then_some(f64::from(self.mean))
    }
}

/// A prior with what was measured: the ratio of both, for each size class and in all.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    prior: Prior,
    classes: [Average; CLASSES],
    all: Average,
}

/// No sample says that the prior is wrong by more than this: rather it was an accident.
const RATIO_MAX: f64 = 16.0;

/// A prior of nothing can't be scaled; a thousandth of a microsecond can.
const LEAST_US: f64 = 0.001;

impl Curve {
    pub(super) fn new(prior: Prior) -> Curve {
        Curve { prior, classes: [Average::default(); CLASSES], all: Average::default() }
    }

    /// A piece of work for a reply of `bytes` took `us`.
    pub(super) fn measured(&mut self, bytes: u64, us: f64) {
        let ratio = (us / self.prior.at(bytes).max(LEAST_US)).clamp(1.0 / RATIO_MAX, RATIO_MAX);
        self.classes[class(bytes)].add(ratio);
        self.all.add(ratio);
    }

    /// What was measured, of any size, against the prior; `None` if nothing was.
    pub(super) fn ratio(&self) -> Option<f64> {
        self.all.mean()
    }

    /// What it is expected to take, in us; `machine` is the ratio where this work hasn't been measured at all.
    pub(super) fn at(&self, bytes: u64, machine: f64) -> f64 {
        let ratio = self.classes[class(bytes)].mean().or(self.all.mean()).unwrap_or(machine);
        self.prior.at(bytes) * ratio
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_powers_of_two() {
        assert_eq!([0, 1, 1024, 1025, 2048, 2049].map(class), [0, 0, 0, 1, 1, 2]);
        assert_eq!([16 << 20, u64::MAX].map(class), [CLASSES - 1, CLASSES - 1]);
    }

    #[test]
    fn what_is_measured_replaces_what_was_supposed() {
        let mut curve = Curve::new(Prior { fixed_us: 10.0, kib_us: 1.0 });
        assert!((curve.at(10 << 10, 2.0) - 40.0).abs() < 1e-9, "the machine's ratio");
        for _ in 0..100 {
            curve.measured(10 << 10, 60.0);
        }
        assert!((curve.at(10 << 10, 2.0) - 60.0).abs() < 1e-3);
        assert!((curve.at(100 << 10, 2.0) - 330.0).abs() < 1e-3, "another class takes the ratio of all");
        for _ in 0..SAMPLES * 4 {
            curve.measured(10 << 10, 20.0);
        }
        assert!((curve.at(10 << 10, 2.0) - 20.0).abs() < 1.0, "old samples fade");
        curve.measured(100 << 10, 1e12);
        assert!(curve.at(100 << 10, 2.0) < 2000.0, "an accident is bounded");
    }
}
