//! Points in time, as numbers that the host hands in. Reading a clock is the host's business.

use std::time::Duration;

/// A point on the host's monotonic clock, in nanoseconds since an origin that only the host knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant {
    /// Nanoseconds since the clock's origin.
    pub ns: u64,
}

impl Instant {
    /// A point that no timer reaches.
    pub const NEVER: Instant = Instant { ns: u64::MAX };

    /// The point `duration` later; saturates at [`Instant::NEVER`].
    #[must_use]
    pub fn after(self, duration: Duration) -> Instant {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Instant { ns: self.ns.saturating_add(ns) }
    }

    /// The first multiple of `step` that isn't earlier: what needn't be exact is due together with others.
    #[must_use]
    pub fn rounded_up(self, step: Duration) -> Instant {
        let step_ns = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX).max(1);
        Instant { ns: self.ns.checked_next_multiple_of(step_ns).unwrap_or(u64::MAX) }
    }

    /// Time from `earlier` to here; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.ns.saturating_sub(earlier.ns))
    }
}

/// A point on the wall clock: seconds and nanoseconds since 1970-01-01T00:00:00Z, as in a file's modification time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds within the second, 0 to 999,999,999.
    pub nanoseconds: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_rounded_up_is_never_early() {
        let at = |ns| Instant { ns }.rounded_up(Duration::from_nanos(20)).ns;
        assert_eq!([at(0), at(1), at(19), at(20), at(21)], [0, 20, 20, 20, 40]);
        assert_eq!(Instant::NEVER.rounded_up(Duration::from_nanos(20)), Instant::NEVER);
        assert_eq!(Instant { ns: 7 }.rounded_up(Duration::ZERO).ns, 7);
    }
}
