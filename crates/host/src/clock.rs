//! The two clocks, as the numbers that `leat-logic` takes.

use std::time::{SystemTime, UNIX_EPOCH};

use leat_logic::time::{Instant, UnixTime};

/// The monotonic clock: nanoseconds since the machine started.
#[must_use]
pub fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Instant { ns: time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned() }
}

/// The wall clock.
#[must_use]
pub fn wall() -> UnixTime {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => {
            UnixTime { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanoseconds: since.subsec_nanos() }
        }
        Err(error) => {
            let before = error.duration();
            UnixTime { seconds: -i64::try_from(before.as_secs()).unwrap_or(i64::MAX), nanoseconds: 0 }
        }
    }
}
