//! What a site may use of things that aren't shared by the tree: bytes to the network, bytes from disk, CPU time, memory. What comes out is
//! when to go on; nothing that was begun is broken off.

use crate::time::Instant;

/// How much may be used: steadily, and at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Units for each second: bytes, or nanoseconds of CPU time. At least 1.
    pub per_s: u64,
    /// Units that may be used at once.
    pub burst: u64,
}

/// A token bucket that may go into debt, since what an operation uses is often known afterwards only.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    rate: Rate,
    /// When it was, or will be, without a debt and with nothing saved up.
    empty_at_ns: u64,
}

const NS_PER_S: u128 = 1_000_000_000;

impl Bucket {
    /// A full bucket.
    #[must_use]
    pub fn new(rate: Rate) -> Bucket {
        Bucket { rate: Rate { per_s: rate.per_s.max(1), ..rate }, empty_at_ns: 0 }
    }

    /// Time in which `amount` comes in, in nanoseconds, rounded up so that no more than the rate is ever given.
    fn time_ns(&self, amount: u64) -> u64 {
        let ns = (u128::from(amount) * NS_PER_S).div_ceil(u128::from(self.rate.per_s));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    fn emptied_ns(&self, now: Instant) -> u64 {
        self.empty_at_ns.max(now.ns.saturating_sub(self.time_ns(self.rate.burst)))
    }

    /// Notes that `amount` was used at `now`.
    pub fn charge(&mut self, now: Instant, amount: u64) {
        self.empty_at_ns = self.emptied_ns(now).saturating_add(self.time_ns(amount));
    }

    /// When something may be used again: `None` for now.
    #[must_use]
    pub fn blocked_until(&self, now: Instant) -> Option<Instant> {
        (self.empty_at_ns > now.ns).then_some(Instant { ns: self.empty_at_ns })
    }

    /// How much may be used at once now.
    #[must_use]
    pub fn available(&self, now: Instant) -> u64 {
        let saved_ns = now.ns.saturating_sub(self.emptied_ns(now));
        let amount = u128::from(saved_ns) * u128::from(self.rate.per_s) / NS_PER_S;
        u64::try_from(amount).unwrap_or(u64::MAX).min(self.rate.burst)
    }
}

/// Bytes held for a site. Above the high mark it isn't read from, until it's down to the low one.
#[derive(Clone, Copy, Debug)]
pub struct MemoryAccount {
    held: u64,
    high: u64,
    is_paused: bool,
}

impl MemoryAccount {
    /// Nothing held yet, and up to `high` bytes before reading pauses.
    #[must_use]
    pub fn new(high: u64) -> MemoryAccount {
        MemoryAccount { held: 0, high, is_paused: false }
    }

    /// Down to where what is held must go before reading goes on: seven eighths, so that it doesn't pause and go on with every buffer.
    fn low(&self) -> u64 {
        self.high - self.high / 8
    }

    /// `bytes` more are held.
    pub fn hold(&mut self, bytes: u64) {
        self.held = self.held.saturating_add(bytes);
        self.is_paused |= self.held > self.high;
    }

    /// `bytes` are given back; whether reading may go on that was paused until now.
    pub fn release(&mut self, bytes: u64) -> bool {
        self.held = self.held.saturating_sub(bytes);
        let was_paused = self.is_paused;
        self.is_paused &= self.held > self.low();
        was_paused && !self.is_paused
    }

    /// Bytes held now.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Whether the site's sockets shouldn't be read now.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }
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
    /// All that there are.
    pub const ALL: [Resource; 3] = [Resource::Network, Resource::Disk, Resource::Cpu];
}

/// All that a site may use; what has no quota isn't limited.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quotas {
    buckets: [Option<Bucket>; 3],
    /// Bytes of memory.
    pub memory: Option<MemoryAccount>,
}

impl Quotas {
    /// No limits.
    #[must_use]
    pub fn new() -> Quotas {
        Quotas::default()
    }

    /// Sets or lifts the limit of a resource. A debt is forgotten.
    pub fn set(&mut self, resource: Resource, rate: Option<Rate>) {
        self.buckets[resource as usize] = rate.map(Bucket::new);
    }

    /// Notes that `amount` of a resource was used.
    pub fn charge(&mut self, resource: Resource, now: Instant, amount: u64) {
        if let Some(bucket) = &mut self.buckets[resource as usize] {
            bucket.charge(now, amount);
        }
    }

    /// When a resource may be used again: `None` for now.
    #[must_use]
    pub fn blocked_until(&self, resource: Resource, now: Instant) -> Option<Instant> {
        self.buckets[resource as usize].and_then(|bucket| bucket.blocked_until(now))
    }

    /// How much of a resource may be used at once now, and at least one unit when anything may: for the size of the next piece.
    #[must_use]
    pub fn available(&self, resource: Resource, now: Instant) -> u64 {
        match self.buckets[resource as usize] {
            None => u64::MAX,
            Some(bucket) if bucket.blocked_until(now).is_some() => 0,
            Some(bucket) => bucket.available(now).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant { ns: 1_000_000_000_000 + ms * 1_000_000 }
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let mut bucket = Bucket::new(Rate { per_s: 1_000, burst: 100 });
        assert_eq!(bucket.available(at_ms(0)), 100);
        bucket.charge(at_ms(0), 100);
        assert_eq!((bucket.available(at_ms(0)), bucket.blocked_until(at_ms(0))), (0, None));
        bucket.charge(at_ms(0), 50);
        assert_eq!(bucket.blocked_until(at_ms(0)), Some(at_ms(50)));
        assert_eq!(bucket.blocked_until(at_ms(50)), None);
        assert_eq!(bucket.available(at_ms(60)), 10);
        assert_eq!(bucket.available(at_ms(60_000)), 100, "no more is saved up than the burst");
    }

    #[test]
    fn over_long_times_exactly_the_rate_is_given() {
        for (per_s, piece) in [(999_983, 1_448), (7, 3), (12_500_000, 65_536)] {
            let mut bucket = Bucket::new(Rate { per_s, burst: piece });
            let (mut now, mut used) = (at_ms(0), 0);
            for _ in 0..10_000 {
                now = bucket.blocked_until(now).unwrap_or(now);
                bucket.charge(now, piece);
                used += piece;
            }
            let given = now.since(at_ms(0)).as_secs_f64() * per_s as f64;
            assert!((used as f64 - given) <= 2.0 * piece as f64 + 1.0, "{per_s}: {used} of {given}");
            assert!(used as f64 >= given * 0.9999, "{per_s}: {used} of {given}");
        }
    }

    #[test]
    fn numbers_without_end_are_cut() {
        let mut bucket = Bucket::new(Rate { per_s: 0, burst: u64::MAX });
        bucket.charge(at_ms(0), u64::MAX);
        bucket.charge(at_ms(0), u64::MAX);
        assert_eq!(bucket.blocked_until(at_ms(0)), Some(Instant::NEVER));
    }

    #[test]
    fn memory_pauses_above_the_high_mark_and_goes_on_at_the_low_one() {
        let mut memory = MemoryAccount::new(800);
        memory.hold(800);
        assert!(!memory.is_paused());
        memory.hold(1);
        assert!(memory.is_paused());
        assert!(!memory.release(100));
        assert!(memory.is_paused());
        assert!(memory.release(1));
        assert!(!memory.is_paused());
        assert!(!memory.release(10_000));
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn what_has_no_quota_is_not_limited() {
        let mut quotas = Quotas::new();
        quotas.set(Resource::Disk, Some(Rate { per_s: 10, burst: 10 }));
        for resource in Resource::ALL {
            quotas.charge(resource, at_ms(0), 20);
        }
        assert_eq!(quotas.blocked_until(Resource::Network, at_ms(0)), None);
        assert_eq!(quotas.available(Resource::Cpu, at_ms(0)), u64::MAX);
        assert_eq!(quotas.blocked_until(Resource::Disk, at_ms(0)), Some(at_ms(1_000)));
        assert_eq!(
            (quotas.available(Resource::Disk, at_ms(0)), quotas.available(Resource::Disk, at_ms(1_000))),
            (0, 1)
        );
    }
}
