//! A line that is long, and not quite reliable: decides which frame arrives, and when. Time comes in and frames come out; whence and whither is
//! `carry`'s.

use std::collections::BTreeMap;
use std::time::Duration;

/// What waits on a line: some 100 ms of 1.3 Gbit a second. What comes beyond is lost, as in any full queue.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// A frame that is overtaken arrives later by half of the delay, and this at least.
const OVERTAKEN_MIN: Duration = Duration::from_millis(1);

/// What a line does to frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// How long each is under way.
    pub delay: Duration,
    /// How many of a hundred don't arrive.
    pub loss_percent: u8,
    /// How many of a hundred are overtaken by those behind them.
    pub reorder_percent: u8,
}

/// One direction of a line. Times are since any beginning.
pub(super) struct Line {
    traits: Traits,
    random: u64,
    /// By when they arrive, and in which order they came.
    waiting: BTreeMap<(Duration, u64), Box<[u8]>>,
    bytes: usize,
    count: u64,
}

impl Line {
    /// What is lost and overtaken depends on the seed and the frames' order only.
    pub(super) fn new(traits: Traits, seed: u64) -> Line {
        Line { traits, random: seed, waiting: BTreeMap::new(), bytes: 0, count: 0 }
    }

    /// A frame goes in.
    pub(super) fn send(&mut self, now: Duration, frame: &[u8]) {
        let is_lost = self.happens(self.traits.loss_percent);
        let is_overtaken = self.happens(self.traits.reorder_percent);
        if is_lost || self.bytes + frame.len() > WAITING_BYTES_MAX {
            return;
        }
        let extra = if is_overtaken { OVERTAKEN_MIN.max(self.traits.delay / 2) } else { Duration::ZERO };
        self.count += 1;
        self.bytes += frame.len();
        self.waiting.insert((now + self.traits.delay + extra, self.count), frame.into());
    }

    /// The next frame that has arrived.
    pub(super) fn poll(&mut self, now: Duration) -> Option<Box<[u8]>> {
        let first = self.waiting.first_entry().filter(|first| first.key().0 <= now)?;
        let frame = first.remove();
        self.bytes -= frame.len();
        Some(frame)
    }

    /// When the next one arrives.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        self.waiting.first_key_value().map(|(&(due, _), _)| due)
    }

    /// SplitMix64 (Steele, Lea and Flood, 2014).
    fn happens(&mut self, percent: u8) -> bool {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % 100 < u64::from(percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(20);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Frames by their numbers, one each millisecond, and when each arrives.
    fn arrivals(traits: Traits, count: u64) -> Vec<(u64, Duration)> {
        let mut line = Line::new(traits, 1);
        (0..count).for_each(|number| line.send(ms(number), &number.to_le_bytes()));
        let mut arrived = Vec::new();
        while let Some(due) = line.poll_timeout() {
            let before = due.checked_sub(Duration::from_nanos(1));
            assert!(before.is_none_or(|before| line.poll(before).is_none()), "not before its time");
            let frame = line.poll(due).expect("it's due");
            arrived.push((u64::from_le_bytes((*frame).try_into().expect("eight bytes")), due));
        }
        assert_eq!(line.bytes, 0);
        arrived
    }

    #[test]
    fn all_arrive_in_order_and_late() {
        let all: Vec<_> = (0..100).map(|number| (number, ms(number) + DELAY)).collect();
        assert_eq!(arrivals(Traits { delay: DELAY, ..Traits::default() }, 100), all);
        assert_eq!(arrivals(Traits::default(), 3), [(0, ms(0)), (1, ms(1)), (2, ms(2))]);
    }

    #[test]
    fn about_as_many_are_lost_as_are_to_be() {
        let traits = Traits { delay: DELAY, loss_percent: 5, reorder_percent: 0 };
        let left = arrivals(traits, 10_000);
        assert!((9_400..9_600).contains(&left.len()), "{}", left.len());
        assert!(left.is_sorted());
        assert_eq!(arrivals(traits, 10_000), left, "a seed is a run");
    }

    #[test]
    fn the_overtaken_arrive_later_and_once() {
        let arrived = arrivals(Traits { delay: DELAY, loss_percent: 0, reorder_percent: 10 }, 1_000);
        let late = arrived.iter().filter(|&&(number, at)| at == ms(number) + DELAY + DELAY / 2).count();
        assert!((70..130).contains(&late), "{late}");
        let mut numbers: Vec<_> = arrived.iter().map(|&(number, _)| number).collect();
        assert!(!numbers.is_sorted());
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..1_000));
    }

    #[test]
    fn a_full_line_loses_what_comes_and_takes_more_once_there_is_room() {
        let mut line = Line::new(Traits { delay: DELAY, ..Traits::default() }, 1);
        let frame = vec![0; 1 << 20];
        (0..40).for_each(|_| line.send(ms(0), &frame));
        assert_eq!(std::iter::from_fn(|| line.poll(ms(20))).count(), 16);
        line.send(ms(20), &frame);
        assert_eq!(line.poll_timeout(), Some(ms(40)));
    }
}
