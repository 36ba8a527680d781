//! Whether a node has memory for more contents than those that it's given, by how much it has disks read: what isn't read is in memory already.

use std::time::Duration;

use crate::time::Instant;

/// A node that has more read in a second has none to spare. Something is read now and then on any machine.
const READ_BYTES_PER_S: u64 = 256 << 10;
/// How long it must have had less read. Whether more fits is found out by trying: each time that it didn't, twice as long as before.
const CALM: Duration = Duration::from_secs(10);
const CALM_MAX: Duration = Duration::from_secs(640);
const LOOK_EACH: Duration = Duration::from_millis(250);

/// One node's.
#[derive(Clone, Copy, Debug)]
pub struct MemoryWatch {
    looked_at: Instant,
    read_bytes: u64,
    /// When too much was read last.
    scarce_at: Instant,
    calm: Duration,
}

impl MemoryWatch {
    /// The node has just started, and had so many bytes read: there's nothing in its memory that would have to go.
    #[must_use]
    pub fn new(read_bytes: u64, now: Instant) -> MemoryWatch {
        MemoryWatch { looked_at: now, read_bytes, scarce_at: now, calm: Duration::ZERO }
    }

    /// Whether it's time to tell how much has been read.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        now.since(self.looked_at) >= LOOK_EACH
    }

    /// It has had so many bytes read so far.
    pub fn look(&mut self, read_bytes: u64, now: Instant) {
        let bytes = read_bytes.saturating_sub(self.read_bytes) as f64;
        if bytes > READ_BYTES_PER_S as f64 * now.since(self.looked_at).as_secs_f64() {
            self.calm = match now.since(self.scarce_at) {
                fitted if fitted >= self.calm + CALM_MAX => CALM,
                _ if self.calm < CALM => CALM,
                tried if tried >= self.calm => (self.calm * 2).min(CALM_MAX),
                _ => self.calm,
            };
            self.scarce_at = now;
        }
        (self.looked_at, self.read_bytes) = (now, read_bytes);
    }

    /// Whether there's some to spare.
    #[must_use]
    pub fn has_some(&self, now: Instant) -> bool {
        now.since(self.scarce_at) >= self.calm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_s(s: u64) -> Instant {
        Instant { ns: (1_000 + s) * 1_000_000_000 }
    }

    #[test]
    fn there_is_some_once_little_has_been_read_for_a_while() {
        let mut watch = MemoryWatch::new(0, at_s(0));
        assert!(!watch.is_due(at_s(0)) && watch.is_due(at_s(1)));
        watch.look(5 << 20, at_s(0));
        for s in 1..10 {
            watch.look((5 << 20) + s * READ_BYTES_PER_S, at_s(s));
            assert!(!watch.has_some(at_s(s)), "after {s} s");
        }
        assert!(watch.has_some(at_s(10)));
        // By the time that has passed, not by looks.
        watch.look((5 << 20) + 19 * READ_BYTES_PER_S, at_s(19));
        assert!(watch.has_some(at_s(19)));
    }

    #[test]
    fn a_node_that_has_just_started_has_some_until_too_much_is_read() {
        let mut watch = MemoryWatch::new(5 << 20, at_s(0));
        watch.look((5 << 20) + READ_BYTES_PER_S, at_s(1));
        assert!(watch.has_some(at_s(1)));
        watch.look(6 << 20, at_s(3));
        assert!(!watch.has_some(at_s(12)) && watch.has_some(at_s(13)), "as later");
    }

    #[test]
    fn what_does_not_fit_is_tried_ever_more_rarely() {
        let (mut watch, mut now_s) = (MemoryWatch::new(0, at_s(0)), 0);
        for (reads, calm_s) in (1..).zip([10, 20, 40, 80, 160, 320, 640, 640]) {
            watch.look(reads << 30, at_s(now_s));
            assert!(!watch.has_some(at_s(now_s + calm_s - 1)) && watch.has_some(at_s(now_s + calm_s)), "{calm_s}");
            now_s += calm_s;
        }
        // All has fitted for long.
        now_s += 640;
        watch.look(9 << 30, at_s(now_s));
        assert!(!watch.has_some(at_s(now_s + 9)) && watch.has_some(at_s(now_s + 10)));
    }
}
