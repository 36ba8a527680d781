//! Whether a worker that has nothing to do is woken by the first arrival, or a little later by several: waking costs more than a small request.
//! It decides from how often something arrives, and from how soon clients ask again; how to wait is the host's, whether there is nothing
//! to do the worker's.

use std::time::Duration;

use crate::time::Instant;

/// Over so long it is counted what arrives: whoever asks after a longer calm is served at once.
const WINDOW: Duration = Duration::from_millis(1);
/// A connection whose requests are nearer to each other than so many waits would get fewer answers for being made to wait.
const WAITS_APART_MIN: u32 = 12;
/// So many must be likely within the time. One isn't worth it: at 22,000 a second 50 us saved 6 % of a small reply's processor time and
/// made its p99 half as long again.
const LIKELY_MIN: u32 = 2;
/// More isn't waited for: they would wait for each other's replies.
const ARRIVALS: u32 = 8;

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    /// Until so many have arrived,
    pub arrivals: u32,
    /// or so much time is over and at least one has: who comes later than that is served at once.
    pub time: Duration,
}

/// See the module.
#[derive(Debug)]
pub struct Gathering {
    longest: Duration,
    /// A connection that asks again sooner would get fewer answers for being made to wait.
    apart_min: Duration,
    /// What the window that isn't over has brought so far.
    window_began: Instant,
    arrivals: u32,
    /// Those of connections that ask again and again.
    hasty: u32,
    /// What the last one says.
    pays: bool,
}

impl Gathering {
    /// Nobody is made to wait for longer than `longest`; nobody at all if that's zero.
    #[must_use]
    pub fn new(longest: Duration) -> Gathering {
        let apart_min = longest.saturating_mul(WAITS_APART_MIN);
        Gathering { longest, apart_min, window_began: Instant::default(), arrivals: 0, hasty: 0, pays: false }
    }

    /// The worker has nothing to do and is about to wait: for several?
    #[must_use]
    pub fn plan(&self) -> Option<Gather> {
        self.pays.then_some(Gather { arrivals: ARRIVALS, time: self.longest })
    }

    /// A request, or a part of one, has come, so long after the connection's last one.
    #[inline]
    pub fn arrived(&mut self, since_last: Duration) {
        self.arrivals += 1;
        self.hasty += u32::from(since_last < self.apart_min);
    }

    /// All that had come by `now` has been taken over.
    pub fn harvested(&mut self, now: Instant) {
        let elapsed = now.since(self.window_began);
        if elapsed >= WINDOW {
            let is_likely = self.longest.saturating_mul(self.arrivals) >= elapsed.saturating_mul(LIKELY_MIN);
            self.pays = is_likely && self.hasty <= self.arrivals / 2;
            self.window_began = now;
            (self.arrivals, self.hasty) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_micros(50);

    /// A worker that serves in no time requests of many clients, and is woken as it wants to be. Returns when each arrival was served.
    fn serve(gathering: &mut Gathering, arrivals_us: &[u64]) -> Vec<u64> {
        let mut served = Vec::new();
        let mut now_us = 0;
        let mut left = arrivals_us;
        while let Some(&first_us) = left.first() {
            let woken_us = match gathering.plan() {
                // The kernel's part: at the last that is wanted, when the time is over, or at the first after that.
                Some(gather) => {
                    let last_us = left.get(gather.arrivals as usize - 1).copied().unwrap_or(u64::MAX);
                    last_us.min(now_us + gather.time.as_micros() as u64).max(first_us)
                }
                None => first_us,
            };
            now_us = now_us.max(woken_us);
            let count = left.iter().take_while(|&&arrival_us| arrival_us <= now_us).count();
            left = &left[count..];
            (0..count).for_each(|_| gathering.arrived(Duration::MAX));
            gathering.harvested(Instant { ns: now_us * 1_000 });
            served.extend(std::iter::repeat_n(now_us, count));
        }
        served
    }

    fn every(gap_us: u64, count: u64) -> Vec<u64> {
        (1..=count).map(|number| number * gap_us).collect()
    }

    fn wakings(served: &[u64]) -> usize {
        served.chunk_by(|one, other| one == other).count()
    }

    #[test]
    fn what_comes_often_is_served_together_and_in_time() {
        let arrivals = every(15, 10_000);
        let served = serve(&mut Gathering::new(LONGEST), &arrivals);
        assert!(wakings(&served) < 10_000 / 3 + 100, "{}", wakings(&served));
        let latest = arrivals.iter().zip(&served).map(|(arrived, served)| served - arrived).max();
        assert!(latest <= Some(50), "{latest:?}");
    }

    #[test]
    fn what_comes_seldom_is_served_at_once() {
        for gap_us in [60, 30] {
            let arrivals = every(gap_us, 10_000);
            assert_eq!(serve(&mut Gathering::new(LONGEST), &arrivals), arrivals);
        }
    }

    #[test]
    fn nobody_waits_when_no_time_is_given() {
        let arrivals = every(1, 10_000);
        assert_eq!(serve(&mut Gathering::new(Duration::ZERO), &arrivals), arrivals);
    }

    #[test]
    fn who_comes_after_a_calm_is_served_at_once() {
        let mut arrivals = every(5, 10_000);
        let calm_us = 10_000 * 5 + 20_000;
        arrivals.extend([calm_us, calm_us + 10]);
        let served = serve(&mut Gathering::new(LONGEST), &arrivals);
        assert_eq!(served[10_000..], [calm_us, calm_us + 10]);
    }

    #[test]
    fn more_than_a_batch_is_not_waited_for() {
        let served = serve(&mut Gathering::new(LONGEST), &every(1, 10_000));
        assert!(served.chunk_by(|one, other| one == other).all(|batch| batch.len() <= ARRIVALS as usize));
    }

    /// Each of a few clients asks again 20 us after it has been answered: all of them together are less than what is waited for.
    #[test]
    fn clients_that_ask_again_at_once_are_served_at_once() {
        let mut gathering = Gathering::new(LONGEST);
        for turn in 1..10_000 {
            assert_eq!(gathering.plan(), None);
            (0..4).for_each(|_| gathering.arrived(Duration::from_micros(20)));
            gathering.harvested(Instant { ns: turn * 20_000 });
        }
    }

    #[test]
    fn a_few_hasty_clients_among_many_change_nothing() {
        let mut gathering = Gathering::new(LONGEST);
        for turn in 1..1_000 {
            let cycles_us = [20, 5_000, 5_000];
            cycles_us.into_iter().for_each(|cycle_us| gathering.arrived(Duration::from_micros(cycle_us)));
            gathering.harvested(Instant { ns: turn * 50_000 });
            assert_eq!(gathering.plan().is_some(), turn >= 20, "in turn {turn}");
        }
    }
}
