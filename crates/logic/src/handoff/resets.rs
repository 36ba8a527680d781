//! How often the client of a connection that was cut is told so, and when. A reset is one packet: it may be lost, and a client that has got more than it was
//! heard to acknowledge drops one from before that (RFC 9293, section 3.10.7.4). One that only waits would wait for ever.
//!
//! What is said, and whether it has been heard, the host knows.

use std::collections::BTreeMap;
use std::time::Duration;

use super::limits::{RESET_REPEATS_MAX, RESETS_MAX};
use super::{Ends, FlowId};
use crate::time::Instant;

/// From the cut to the first repeat; each pause after it is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// A connection whose client may not know that it was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    /// Which it was.
    pub flow: FlowId,
    /// Whose.
    pub ends: Ends,
    repeats: u8,
}

/// All of them. See the module.
#[derive(Debug, Default)]
pub struct Resets(BTreeMap<(Instant, FlowId), Reset>);

impl Resets {
    /// A connection was cut, and its client has been told once. Beyond [`RESETS_MAX`] that is all.
    pub fn add(&mut self, now: Instant, flow: FlowId, ends: Ends) {
        self.wait(now, Reset { flow, ends, repeats: 0 });
    }

    /// The next client to be told again: [`Resets::again`] unless it's seen to know.
    pub fn poll(&mut self, now: Instant) -> Option<Reset> {
        let first = self.0.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }

    /// It has been told, and may not have heard.
    pub fn again(&mut self, now: Instant, reset: Reset) {
        if reset.repeats + 1 < RESET_REPEATS_MAX {
            self.wait(now, Reset { repeats: reset.repeats + 1, ..reset });
        }
    }

    /// When [`Resets::poll`] has one.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        self.0.first_key_value().map_or(Instant::NEVER, |(&(due, _), _)| due)
    }

    fn wait(&mut self, now: Instant, reset: Reset) {
        if self.0.len() < RESETS_MAX {
            self.0.insert((now.after(FIRST_PAUSE * (1 << reset.repeats)), reset.flow), reset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handoff::ServerId;

    fn at(ms: u64) -> Instant {
        Instant { ns: ms * 1_000_000 }
    }

    fn add(resets: &mut Resets, serial: u64) {
        let address = "10.0.0.1:80".parse().unwrap();
        resets.add(at(0), FlowId { home: ServerId(1), serial }, Ends { client: address, vip: address });
    }

    #[test]
    fn who_is_not_seen_to_know_is_told_again_ever_more_seldom_and_then_given_up() {
        let mut resets = Resets::default();
        add(&mut resets, 1);
        let mut told = Vec::new();
        while resets.poll_timeout() != Instant::NEVER {
            let due = resets.poll_timeout();
            assert_eq!(resets.poll(Instant { ns: due.ns - 1 }), None, "it's still there");
            let reset = resets.poll(due).unwrap();
            told.push(due.ns / 1_000_000);
            resets.again(due, reset);
        }
        assert_eq!(told, [200, 600, 1_400, 3_000, 6_200, 12_600]);
    }

    #[test]
    fn who_knows_is_left_alone() {
        let mut resets = Resets::default();
        add(&mut resets, 1);
        add(&mut resets, 2);
        let known = resets.poll(at(200)).unwrap();
        let other = resets.poll(at(200)).unwrap();
        assert!(known.flow != other.flow && resets.poll(at(200)).is_none());
        resets.again(at(200), other);
        assert_eq!((resets.poll_timeout(), resets.poll(at(600)).unwrap().flow), (at(600), other.flow));
        assert_eq!(resets.poll_timeout(), Instant::NEVER);
    }

    #[test]
    fn no_more_than_a_limit_are_told_again() {
        let mut resets = Resets::default();
        (0..=RESETS_MAX as u64).for_each(|serial| add(&mut resets, serial));
        let told = std::iter::from_fn(|| resets.poll(at(200))).count();
        assert_eq!(told, RESETS_MAX);
    }
}
