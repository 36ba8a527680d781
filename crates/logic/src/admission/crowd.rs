//! How many connections ask for a site: each has one request at most that waits, so that few can't make anybody wait for long. Whether that is
//! short enough is for `site` to say.

use super::limits::CROWD_PERIOD_NS;
use crate::time::Instant;

/// When a connection last asked, and for which site: worth something only to the admission control that wrote it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastAsked(u32);

/// The connections that have asked for one site, by periods. Each has a mark of its own, which tells who has been counted in it.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    period: LastAsked,
    began: Instant,
    /// In this period and in the one before.
    count: u32,
    count_before: u32,
}

impl Crowd {
    /// A connection asks that last did so at `last`. Marks count up in `marks`.
    pub(super) fn add(&mut self, last: &mut LastAsked, marks: &mut u32, now: Instant) {
        let since_ns = now.ns.saturating_sub(self.began.ns);
        if self.period == LastAsked::default() || since_ns >= CROWD_PERIOD_NS {
            self.count_before = if since_ns < 2 * CROWD_PERIOD_NS { self.count } else { 0 };
            self.count = 0;
            self.began = now;
            // 0 is the mark of those that never asked.
            *marks = marks.wrapping_add(1).max(1);
            self.period = LastAsked(*marks);
        }
        if *last != self.period {
            *last = self.period;
            self.count += 1;
        }
    }

    /// A connection has gone elsewhere, from where it may come back: it doesn't count twice then.
    pub(super) fn remove(&mut self, last: LastAsked) {
        if last == self.period {
            self.count = self.count.saturating_sub(1);
        }
    }

    /// How many have asked lately; 0 if nobody counts.
    pub(super) fn size(&self) -> u32 {
        self.count.max(self.count_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant { ns: 1_000_000_000_000 + ms * 1_000_000 }
    }

    #[test]
    fn each_connection_counts_once_in_a_period() {
        let (mut crowd, mut other, mut marks) = (Crowd::default(), Crowd::default(), 0);
        let mut connections = [LastAsked::default(); 10];
        for ms in 0..1_999 {
            connections.iter_mut().for_each(|last| crowd.add(last, &mut marks, at_ms(ms)));
            assert_eq!(crowd.size(), 10);
        }
        crowd.add(&mut connections[0], &mut marks, at_ms(2_000));
        assert_eq!(crowd.size(), 10, "those of the period before are still there");
        other.add(&mut connections[0], &mut marks, at_ms(2_001));
        assert_eq!(other.size(), 1, "another site counts for itself");
        crowd.add(&mut connections[1], &mut marks, at_ms(4_000));
        assert_eq!(crowd.size(), 1, "two periods later eight have gone, and one asks for the other site");
        crowd.add(&mut connections[2], &mut marks, at_ms(10_000));
        assert_eq!(crowd.size(), 1);
    }

    #[test]
    fn who_goes_and_comes_back_is_one() {
        let (mut crowd, mut marks) = (Crowd::default(), 0);
        for ms in 0..1_000 {
            let mut last = LastAsked::default();
            crowd.add(&mut last, &mut marks, at_ms(ms));
            assert_eq!(crowd.size(), 1);
            crowd.remove(last);
        }
        assert_eq!(crowd.size(), 0);
    }
}
