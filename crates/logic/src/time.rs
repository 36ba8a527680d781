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
