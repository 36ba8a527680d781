//! What an aggregate - a site, or an owner with all that is below it - may use, over all workers: each of them sees at once what the others have
//! used. Those who wait stand in one line for all workers, each with a place as long as its claim. When to take a place is for `quota`.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::limits::MEMORY_LOW_PART;
use crate::time::Instant;

/// How much may be used: steadily, and at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Units for each second: bytes, or nanoseconds of CPU time. At least 1.
    pub per_s: u64,
    /// Units that may be used at once.
    pub burst: u64,
}

/// What has a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Bytes sent.
    Network,
    /// Bytes read from disk.
    Disk,
    /// Nanoseconds of CPU time.
    Cpu,
}

impl Resource {
    /// How many there are.
    pub const COUNT: usize = 3;
    /// All that there are.
    pub const ALL: [Resource; Resource::COUNT] = [Resource::Network, Resource::Disk, Resource::Cpu];
}

const NS_PER_S: u128 = 1_000_000_000;

impl Rate {
    /// Time in which `amount` comes in, in nanoseconds, rounded up so that no more than the rate is ever given. None without a limit.
    fn time_ns(self, amount: u64) -> u64 {
        if self.per_s == 0 {
            return 0;
        }
        let ns = (u128::from(amount) * NS_PER_S).div_ceil(u128::from(self.per_s));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// No more is saved up than the burst.
    fn without_too_much(self, at_ns: u64, now: Instant) -> u64 {
        at_ns.max(now.ns.saturating_sub(self.time_ns(self.burst)))
    }
}

/// A token bucket that may go into debt, since what an operation uses is often known afterwards only.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    /// The rate in force and the one before, or the next: 0 for no limit, and the burst.
    rates: [[AtomicU64; 2]; 2],
    /// When it was, or will be, without a debt and with nothing saved up, in nanoseconds but for the last bit: that says which rate is in force. So a
    /// booking is made at the rate in force or not at all, and a debt isn't stretched that was made at the new rate already.
    state: AtomicU64,
}

const RATE_BIT: u64 = 1;

impl Bucket {
    /// Sets or lifts the limit. A debt stays as many units. Not for two at a time.
    fn set(&self, rate: Option<Rate>, now: Instant) {
        let next = rate.map_or(Rate { per_s: 0, burst: 0 }, |rate| Rate { per_s: rate.per_s.max(1), ..rate });
        let state = self.state.load(Relaxed);
        let before = self.rate(state);
        if before == next {
            return;
        }
        let [per_s, burst] = &self.rates[(!state & RATE_BIT) as usize];
        per_s.store(next.per_s, Relaxed);
        burst.store(next.burst, Relaxed);
        let put_in_force = |state: u64| {
            let at_ns = state & !RATE_BIT;
            let debt_ns = match (before.per_s, next.per_s) {
                // What was used without a limit is nobody's debt.
                (0, _) | (_, 0) => 0,
                (before, next) => u128::from(at_ns.saturating_sub(now.ns)) * u128::from(before) / u128::from(next),
            };
            let at_ns = at_ns.min(now.ns).saturating_add(u64::try_from(debt_ns).unwrap_or(u64::MAX));
            Some(at_ns & !RATE_BIT | !state & RATE_BIT)
        };
        // The new rate is there for whoever sees that it's in force.
        let _ = self.state.fetch_update(Release, Relaxed, put_in_force);
    }

    /// The rate that was in force when the state was this.
    fn rate(&self, state: u64) -> Rate {
        let [per_s, burst] = &self.rates[(state & RATE_BIT) as usize];
        Rate { per_s: per_s.load(Relaxed), burst: burst.load(Relaxed) }
    }

    fn rate_now(&self) -> Rate {
        self.rate(self.state.load(Acquire))
    }

    pub(super) fn is_limited(&self) -> bool {
        self.per_s() > 0
    }

    pub(super) fn per_s(&self) -> u64 {
        self.rate_now().per_s
    }

    /// Time in which `amount` comes in, in nanoseconds.
    pub(super) fn time_ns(&self, amount: u64) -> u64 {
        self.rate_now().time_ns(amount)
    }

    /// Changes when it's empty, by the rate in force; when it was before.
    fn change(&self, to: impl Fn(u64, Rate) -> u64) -> (u64, Rate) {
        let mut rate = Rate { per_s: 0, burst: 0 };
        let changed = |state: u64| {
            rate = self.rate(state);
            // Rounded up, as no more than the rate is ever given.
            let at_ns = to(state & !RATE_BIT, rate);
            Some(at_ns.saturating_add(at_ns & RATE_BIT) & !RATE_BIT | state & RATE_BIT)
        };
        let state = self.state.fetch_update(Relaxed, Acquire, changed).unwrap_or_else(|state| state);
        (state & !RATE_BIT, rate)
    }

    /// Takes `amount` at the end of the line: it may be used from what is returned on.
    pub(super) fn book(&self, now: Instant, amount: u64) -> Instant {
        let later = |at_ns, rate: Rate| rate.without_too_much(at_ns, now).saturating_add(rate.time_ns(amount));
        let (before_ns, rate) = self.change(later);
        Instant { ns: rate.without_too_much(before_ns, now) }
    }

    /// What was booked isn't used.
    pub(super) fn give_back(&self, amount: u64) {
        // Rounded up by less than a unit.
        self.change(|at_ns, rate| at_ns.saturating_sub(rate.time_ns(amount)));
    }

    /// What was used had not been booked.
    pub(super) fn owe(&self, amount: u64) {
        self.change(|at_ns, rate| at_ns.saturating_add(rate.time_ns(amount)));
    }

    /// When there is something for those who haven't booked.
    pub(super) fn empty_at(&self) -> Instant {
        match self.state.load(Relaxed) | RATE_BIT {
            u64::MAX => Instant::NEVER,
            state => Instant { ns: state & !RATE_BIT },
        }
    }

    /// How much may be used at once now by those who haven't booked.
    pub(super) fn available(&self, now: Instant) -> u64 {
        let rate = self.rate_now();
        let saved_ns = now.ns.saturating_sub(rate.without_too_much(self.empty_at().ns, now));
        let amount = u128::from(saved_ns) * u128::from(rate.per_s) / NS_PER_S;
        u64::try_from(amount).unwrap_or(u64::MAX).min(rate.burst)
    }
}

/// See the module. Workers hold it in common.
#[derive(Debug)]
pub struct Aggregate {
    pub(super) buckets: [Bucket; Resource::COUNT],
    /// Bytes of memory that are held.
    held: AtomicU64,
    held_max: AtomicU64,
    /// The sum of what its workers, or the sites and owners right below it, have of it while they wait.
    claims: AtomicU64,
}

impl Default for Aggregate {
    /// Without limits.
    fn default() -> Aggregate {
        Aggregate {
            buckets: Default::default(),
            held: AtomicU64::new(0),
            held_max: AtomicU64::new(u64::MAX),
            claims: AtomicU64::new(0),
        }
    }
}

impl Aggregate {
    /// Sets or lifts the limit of a resource. Each worker says so, one at a time, when it has the new configuration.
    pub fn set(&self, resource: Resource, rate: Option<Rate>, now: Instant) {
        self.buckets[resource as usize].set(rate, now);
    }

    /// Sets or lifts the limit of memory.
    pub fn set_memory(&self, held_max: Option<u64>) {
        self.held_max.store(held_max.unwrap_or(u64::MAX), Relaxed);
    }

    pub(super) fn has_memory_limit(&self) -> bool {
        self.held_max.load(Relaxed) < u64::MAX
    }

    pub(super) fn hold(&self, bytes: u64) {
        self.held.fetch_add(bytes, Relaxed);
    }

    pub(super) fn release(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Relaxed);
    }

    /// Whether so many bytes may be held at all.
    pub(super) fn can_hold(&self, bytes: u64) -> bool {
        bytes <= self.held_max.load(Relaxed)
    }

    /// Whether so much is held that nothing more should be read.
    pub(super) fn is_full(&self) -> bool {
        self.held.load(Relaxed) > self.held_max.load(Relaxed)
    }

    /// Whether so little is held that what has been stopped may go on: not with every buffer that is free again.
    pub(super) fn has_room(&self) -> bool {
        let max = self.held_max.load(Relaxed);
        self.held.load(Relaxed) <= max - max / MEMORY_LOW_PART
    }

    /// Somebody has another claim than before.
    pub(super) fn change_claim(&self, before: u64, after: u64) {
        self.claims.fetch_add(after.wrapping_sub(before), Relaxed);
    }

    /// The sum of all claims, at least 1.
    pub(super) fn claims(&self) -> u64 {
        self.claims.load(Relaxed).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant { ns: 1_000_000_000_000 + ms * 1_000_000 }
    }

    fn bucket(per_s: u64, burst: u64) -> Bucket {
        let bucket = Bucket::default();
        bucket.set(Some(Rate { per_s, burst }), at_ms(0));
        bucket
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let bucket = bucket(1_000, 100);
        assert_eq!(bucket.available(at_ms(0)), 100);
        assert!(bucket.book(at_ms(0), 100) <= at_ms(0), "that much is there at once");
        assert_eq!((bucket.available(at_ms(0)), bucket.empty_at()), (0, at_ms(0)));
        assert_eq!(bucket.book(at_ms(0), 50), at_ms(0));
        assert_eq!(bucket.book(at_ms(0), 10), at_ms(50), "who comes later stands behind");
        assert_eq!(bucket.empty_at(), at_ms(60));
        bucket.give_back(10);
        assert_eq!(bucket.available(at_ms(60)), 10);
        assert_eq!(bucket.available(at_ms(60_000)), 100, "no more is saved up than the burst");
    }

    #[test]
    fn over_long_times_exactly_the_rate_is_given() {
        for (per_s, piece) in [(999_983, 1_448), (7, 3), (12_500_000, 65_536)] {
            let (bucket, mut now, mut used) = (bucket(per_s, piece), at_ms(0), 0);
            for _ in 0..10_000 {
                now = now.max(bucket.empty_at());
                bucket.book(now, piece);
                used += piece;
            }
            let given = now.since(at_ms(0)).as_secs_f64() * per_s as f64;
            assert!((used as f64 - given) <= 2.0 * piece as f64 + 1.0, "{per_s}: {used} of {given}");
            assert!(used as f64 >= given * 0.9999, "{per_s}: {used} of {given}");
        }
    }

    #[test]
    fn numbers_without_end_are_cut() {
        let bucket = bucket(0, u64::MAX);
        bucket.book(at_ms(0), u64::MAX);
        bucket.book(at_ms(0), u64::MAX);
        assert_eq!(bucket.empty_at(), Instant::NEVER);
        bucket.give_back(u64::MAX);
        bucket.set(Some(Rate { per_s: u64::MAX, burst: u64::MAX }), at_ms(1));
        assert!(bucket.empty_at() < Instant::NEVER);
    }

    #[test]
    fn a_debt_is_as_many_units_at_another_rate() {
        let bucket = bucket(1_000, 0);
        bucket.book(at_ms(0), 2_000);
        bucket.set(Some(Rate { per_s: 4_000, burst: 0 }), at_ms(1_000));
        assert_eq!(bucket.empty_at(), at_ms(1_250));
        bucket.set(Some(Rate { per_s: 4_000, burst: 10 }), at_ms(1_100));
        assert_eq!(bucket.empty_at(), at_ms(1_250), "the second worker that says so changes nothing");
        bucket.set(None, at_ms(1_100));
        bucket.book(at_ms(1_100), 1_000_000);
        bucket.set(Some(Rate { per_s: 1, burst: 0 }), at_ms(1_100));
        assert_eq!(bucket.empty_at(), at_ms(1_100), "what was used without a limit isn't owed");
    }

    #[test]
    fn what_is_booked_while_the_rate_changes_is_booked_at_one_rate_or_the_other() {
        const BOOKINGS: u64 = 200_000;
        let bucket = bucket(1_000_000, 0);
        std::thread::scope(|scope| {
            let booking = scope.spawn(|| {
                (0..BOOKINGS).for_each(|_| {
                    bucket.book(at_ms(0), 2);
                })
            });
            let mut per_s = [1_000, 1_000_000_000].into_iter().cycle();
            while !booking.is_finished() {
                bucket.set(Some(Rate { per_s: per_s.next().unwrap_or(1), burst: 0 }), at_ms(0));
            }
        });
        bucket.set(Some(Rate { per_s: 1_000_000_000, burst: 0 }), at_ms(0));
        // A unit is a nanosecond.
        let owed = bucket.empty_at().since(at_ms(0)).as_nanos() as u64;
        let wanted = 2 * BOOKINGS;
        assert!(owed.abs_diff(wanted) < wanted / 100, "{owed} units of {wanted}");
    }
}
