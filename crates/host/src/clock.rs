//! The two clocks, as the numbers that `leat-logic` takes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leat_logic::time::{Instant, UnixTime};

/// The monotonic clock: nanoseconds since the machine started.
#[must_use]
pub fn now() -> Instant {
    instant(rustix::time::ClockId::Monotonic)
}

/// The same as of the kernel's last tick, a few milliseconds ago: so cookies have it (`bpf_ktime_get_coarse_ns`).
#[must_use]
pub fn last_tick() -> Instant {
    instant(rustix::time::ClockId::MonotonicCoarse)
}

fn instant(clock: rustix::time::ClockId) -> Instant {
    let time = rustix::time::clock_gettime(clock);
    Instant { ns: time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned() }
}

/// Processor time of the calling thread.
#[must_use]
pub fn thread_processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// Uses so much processor time, however often the thread is interrupted. Returns what it came to: the clock is read about twice in a microsecond.
pub fn burn(time: Duration) -> Duration {
    let start = thread_processor_time();
    loop {
        let used = thread_processor_time().saturating_sub(start);
        if used >= time {
            return used;
        }
    }
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
