//! Whether a worker that has nothing to do is woken by the first arrival, or a little later by several: waking costs more than a small request.
//! It decides from how often something arrives and from what came of doing so before; how to wait is the host's, whether there is nothing
//! to do the worker's.

use std::time::Duration;

use crate::time::Instant;

/// Over so long it is counted how often something arrives: whoever asks after a longer calm is served at once.
const WINDOW: Duration = Duration::from_millis(1);
/// Waits that are judged together.
const TRIAL_WAITS: u32 = 16;
/// What must have arrived in them: one and a half for each, or those who were made to wait waited for nobody.
const TRIAL_ARRIVALS_MIN: u32 = TRIAL_WAITS * 3 / 2;
/// How long everybody is served at once after a trial that brought less.
const PAUSE: Duration = Duration::from_millis(100);
/// More isn't waited for: they would wait for each other's replies.
const ARRIVALS: u32 = 16;

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
    /// Since the last harvest.
    arrivals: u32,
    window_began: Instant,
    window_arrivals: u32,
    /// Between two arrivals, on average over the last whole window.
    gap_ns: u64,
    is_gathering: bool,
    trial_waits: u32,
    trial_arrivals: u32,
    paused_until: Instant,
}

impl Gathering {
    /// Nobody is made to wait for longer than `longest`; for nobody at all if that's zero.
    #[must_use]
    pub fn new(longest: Duration) -> Gathering {
        Gathering {
            longest,
            arrivals: 0,
            window_began: Instant::default(),
            window_arrivals: 0,
            gap_ns: u64::MAX,
            is_gathering: false,
            trial_waits: 0,
            trial_arrivals: 0,
            paused_until: Instant::default(),
        }
    }

    /// The worker has nothing to do and is about to wait: for several, if they are likely to come in time?
    #[must_use]
    pub fn begin(&mut self) -> Option<Gather> {
        let is_likely = u128::from(self.gap_ns) <= self.longest.as_nanos();
        self.is_gathering = is_likely && self.window_began >= self.paused_until;
        self.is_gathering.then_some(Gather { arrivals: ARRIVALS, time: self.longest })
    }

    /// A request, or a part of one, has come.
    #[inline]
    pub fn arrived(&mut self) {
        self.arrivals += 1;
    }

    /// All that had come by `now` has been taken over.
    pub fn harvested(&mut self, now: Instant) {
        let arrivals = std::mem::take(&mut self.arrivals);
        // Nobody came: nobody was made to wait.
        if std::mem::take(&mut self.is_gathering) && arrivals > 0 {
            self.judge(now, arrivals);
        }
        self.window_arrivals += arrivals;
        let elapsed = now.since(self.window_began);
        if elapsed >= WINDOW {
            self.gap_ns = (elapsed.as_nanos() as u64).div_ceil(u64::from(self.window_arrivals.max(1)));
            self.window_began = now;
            self.window_arrivals = 0;
        }
    }

    fn judge(&mut self, now: Instant, arrivals: u32) {
        self.trial_waits += 1;
        self.trial_arrivals += arrivals;
        if self.trial_waits < TRIAL_WAITS {
            return;
        }
        if self.trial_arrivals < TRIAL_ARRIVALS_MIN {
            self.paused_until = now.after(PAUSE);
        }
        self.trial_waits = 0;
        self.trial_arrivals = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_micros(50);

    /// A worker that serves in no time and is woken as it wants to be. Returns when each arrival was served.
    fn serve(gathering: &mut Gathering, arrivals_us: &[u64]) -> Vec<u64> {
        let mut served = Vec::new();
        let mut now_us = 0;
        let mut left = arrivals_us;
        while let Some(&first_us) = left.first() {
            let woken_us = match gathering.begin() {
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
            (0..count).for_each(|_| gathering.arrived());
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
        let arrivals = every(60, 10_000);
        assert_eq!(serve(&mut Gathering::new(LONGEST), &arrivals), arrivals);
    }

    #[test]
    fn nobody_waits_when_no_time_is_given() {
        let arrivals = every(1, 10_000);
        assert_eq!(serve(&mut Gathering::new(Duration::ZERO), &arrivals), arrivals);
    }

    #[test]
    fn who_comes_after_a_calm_is_served_at_once() {
        let mut arrivals = every(5, 10_000);
        let calm_us = 10_000 * 5 + 2_000;
        arrivals.extend([calm_us, calm_us + 10]);
        let served = serve(&mut Gathering::new(LONGEST), &arrivals);
        assert_eq!(served[10_000..], [calm_us, calm_us + 10]);
    }

    #[test]
    fn more_than_a_batch_is_not_waited_for() {
        let served = serve(&mut Gathering::new(LONGEST), &every(1, 10_000));
        assert!(served.chunk_by(|one, other| one == other).all(|batch| batch.len() <= ARRIVALS as usize));
    }

    /// It asks again 20 us after it has been answered: there is nobody to wait for but itself.
    #[test]
    fn a_lone_client_that_asks_again_and_again_is_soon_left_alone() {
        let mut gathering = Gathering::new(LONGEST);
        let (mut now_us, mut waits) = (0, 0);
        for _ in 0..50_000 {
            let gather = gathering.begin();
            now_us += gather.map_or(20, |gather| gather.time.as_micros() as u64);
            waits += u32::from(gather.is_some());
            gathering.arrived();
            gathering.harvested(Instant { ns: now_us * 1_000 });
        }
        // Over a second: a trial in each pause.
        assert!(waits <= 11 * TRIAL_WAITS, "{waits} waits in {now_us} us");
    }

    /// As wakings for time-outs and descriptors are.
    #[test]
    fn a_waking_without_an_arrival_says_nothing() {
        let mut gathering = Gathering::new(LONGEST);
        let arrivals = every(15, 1_000);
        serve(&mut gathering, &arrivals);
        for _ in 0..100 {
            assert!(gathering.begin().is_some());
            gathering.harvested(Instant { ns: 15_000_000 });
        }
    }
}
