//! When a node is probed: as its link comes up, until one probe arrives or several haven't, and again later if none has.

use std::time::Duration;

use crate::time::Instant;

/// Probes that mustn't arrive before a node's replies are taken not to.
const TRIES: u32 = 3;
/// From one to the next, and from the last to the end.
const TRY_PAUSE: Duration = Duration::from_millis(200);
/// Until those that didn't arrive are tried again; each time twice as long.
const PAUSE_MIN: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Have one more sent.
    Send,
    /// The node has sent some, and none has arrived.
    Failed,
    /// The node can't send any, or doesn't know what that is: nothing is known.
    Unknown,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    phase: Phase,
    pause: Duration,
    has_failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// `at`: the next try, or the end.
    Trying {
        tries: u32,
        at: Instant,
        was_sent: bool,
    },
    /// Until then nothing is tried.
    Resting {
        until: Instant,
    },
    Over,
}

impl Probe {
    pub(super) fn new() -> Probe {
        Probe { phase: Phase::Over, pause: PAUSE_MIN, has_failed: false }
    }

    /// The link is up. What was found before holds until something else is.
    pub(super) fn begin(&mut self, now: Instant) {
        self.phase = Phase::Trying { tries: 0, at: now, was_sent: false };
    }

    /// The link is down.
    pub(super) fn stop(&mut self) {
        self.phase = Phase::Over;
    }

    pub(super) fn poll(&mut self, now: Instant) -> Option<Turn> {
        match &mut self.phase {
            Phase::Resting { until } if *until <= now => {
                self.begin(now);
                self.poll(now)
            }
            Phase::Trying { tries, at, .. } if *at <= now && *tries < TRIES => {
                *tries += 1;
                *at = now.after(TRY_PAUSE);
                Some(Turn::Send)
            }
            Phase::Trying { at, was_sent, .. } if *at <= now => {
                let is_new = *was_sent && !self.has_failed;
                self.has_failed |= *was_sent;
                self.phase =
                    if self.has_failed { Phase::Resting { until: now.after(self.pause) } } else { Phase::Over };
                self.pause = (self.pause * 2).min(PAUSE_MAX);
                Some(if is_new { Turn::Failed } else { Turn::Unknown })
            }
            _ => None,
        }
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        match self.phase {
            Phase::Trying { at, .. } => at,
            Phase::Resting { until } => until,
            Phase::Over => Instant::NEVER,
        }
    }

    /// The node says that it has sent one.
    pub(super) fn sent(&mut self) {
        if let Phase::Trying { was_sent, .. } = &mut self.phase {
            *was_sent = true;
        }
    }

    /// One has arrived. Returns whether they didn't before.
    pub(super) fn arrived(&mut self) -> bool {
        (self.phase, self.pause) = (Phase::Over, PAUSE_MIN);
        std::mem::take(&mut self.has_failed)
    }

    pub(super) fn is_under_way(&self) -> bool {
        matches!(self.phase, Phase::Trying { .. })
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant { ns: ms * 1_000_000 }
    }

    #[test]
    fn one_that_arrives_is_enough_however_many_are_lost() {
        let mut probe = Probe::new();
        probe.begin(at(0));
        assert_eq!(
            [at(0), at(0), at(199), at(200)].map(|now| probe.poll(now)),
            [Some(Turn::Send), None, None, Some(Turn::Send)]
        );
        probe.sent();
        assert!(!probe.arrived() && !probe.has_failed() && !probe.is_under_way());
        assert_eq!((probe.poll(at(400)), probe.poll_timeout()), (None, Instant::NEVER));
    }

    #[test]
    fn those_that_never_arrive_are_tried_again_ever_later() {
        let mut probe = Probe::new();
        probe.begin(at(0));
        let mut turns = Vec::new();
        for ms in (0..10_000).step_by(100) {
            turns.extend(probe.poll(at(ms)).filter(|turn| *turn != Turn::Send).map(|turn| (ms, turn)));
            probe.sent();
        }
        // Once that they don't arrive is news.
        assert_eq!(turns, [(600, Turn::Failed), (3_200, Turn::Unknown), (7_800, Turn::Unknown)]);
        assert!(probe.has_failed() && probe.arrived() && !probe.has_failed());
    }

    #[test]
    fn of_a_node_that_sends_none_nothing_is_known() {
        let mut probe = Probe::new();
        probe.begin(at(0));
        let turns: Vec<Turn> = (0..1_000).step_by(100).filter_map(|ms| probe.poll(at(ms))).collect();
        assert_eq!(turns, [Turn::Send, Turn::Send, Turn::Send, Turn::Unknown]);
        assert!(!probe.has_failed() && probe.poll_timeout() == Instant::NEVER);
    }
}
