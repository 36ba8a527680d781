//! When requests are meant to be sent: an open loop, deaf to how the server does.

use clap::ValueEnum;

/// How the gaps between arrivals are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Spacing {
    /// Exponential gaps, as from many users who don't know of each other.
    Poisson,
    /// Equal gaps.
    Constant,
}

/// Endless arrival times, in nanoseconds from zero.
pub(crate) struct Arrivals {
    spacing: Spacing,
    gap_ns: f64,
    next_ns: f64,
    random: fastrand::Rng,
}

impl Arrivals {
    /// `rate_per_s` is positive.
    pub(crate) fn new(spacing: Spacing, rate_per_s: f64, seed: u64) -> Self {
        let mut arrivals =
            Self { spacing, gap_ns: 1e9 / rate_per_s, next_ns: 0.0, random: fastrand::Rng::with_seed(seed) };
        arrivals.advance();
        arrivals
    }

    /// When the next request is meant to be sent.
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns as u64
    }

    /// Moves on to the one after.
    pub(crate) fn advance(&mut self) {
        self.next_ns += match self.spacing {
            Spacing::Constant => self.gap_ns,
            // 1 - f64() is never 0, so the logarithm is finite.
            Spacing::Poisson => -(1.0 - self.random.f64()).ln() * self.gap_ns,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_met_and_the_seed_decides() {
        for spacing in [Spacing::Poisson, Spacing::Constant] {
            let take = |seed| {
                let mut arrivals = Arrivals::new(spacing, 100_000.0, seed);
                (0..100_000).for_each(|_| arrivals.advance());
                arrivals.next_ns()
            };
            assert_eq!(take(3), take(3));
            assert!((980_000_000..1_020_000_000).contains(&take(3)), "{spacing:?} {}", take(3));
        }
    }
}
