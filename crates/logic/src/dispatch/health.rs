//! Whether a node is fit to be chosen: by probes, by what it says of itself, by what becomes of its requests, and by the link to it. Probing is for
//! others; so is what happens to the requests of a node that fails.

use std::time::Duration;

use super::limits::{EJECTION_DOUBLINGS_MAX, EJECTIONS_FORGOTTEN, FIRST_LINK_TIME, SLOW_START_PERMILLE};
use crate::time::Instant;

/// When a node counts as unfit, and as fit again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// From one probe to the next; zero for no probes.
    pub interval: Duration,
    /// Probes that must fail in a row before a node is down.
    pub fall: u32,
    /// Probes that must succeed in a row before it is up again.
    pub rise: u32,
    /// Requests that must fail in a row before a node is ejected; 0 for never.
    pub eject_after: u32,
    /// How long the first ejection lasts; each further one twice as long as the one before.
    pub eject_time: Duration,
    /// How long one lasts at most.
    pub eject_time_max: Duration,
    /// Time in which a node that comes back grows to its whole weight.
    pub slow_start: Duration,
}

impl Default for HealthSettings {
    fn default() -> Self {
        HealthSettings {
            interval: Duration::from_secs(2),
            fall: 3,
            rise: 2,
            eject_after: 5,
            eject_time: Duration::from_secs(10),
            eject_time_max: Duration::from_secs(300),
            slow_start: Duration::from_secs(10),
        }
    }
}

/// What became of a request that a node was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered, with whatever status the node meant.
    Served,
    /// The node is to blame: it refused the connection, reset it, or said nothing in time.
    Failed,
    /// Nobody knows, or somebody else is to blame.
    Unknown,
}

/// What a node is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Fit.
    Up,
    /// Its probes fail.
    Failing,
    /// It asks itself by its health path, and says that this fails.
    Unwell,
    /// The link to it is lost.
    Unlinked,
    /// Its requests failed; it is tried again after this long.
    Ejected(Duration),
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            State::Up => f.write_str("up"),
            State::Failing => f.write_str("down: its probes fail"),
            State::Unwell => f.write_str("down: its own health checks fail, and its log says how"),
            State::Unlinked => f.write_str("down: the link to it is lost"),
            State::Ejected(left) => write!(f, "ejected for {:.1} s more: its requests failed", left.as_secs_f64()),
        }
    }
}

/// A node's health. Time comes in with each call and never goes back.
#[derive(Clone, Debug)]
pub struct Health {
    is_failing: bool,
    /// By its own word, which is no probe's: whoever reaches it needn't be served well.
    is_unwell: bool,
    is_unlinked: bool,
    /// A first link that is there by then was there from the start.
    awaited_until: Instant,
    /// Probes in a row that say otherwise than `is_failing`.
    contrary_probes: u32,
    next_probe: Instant,
    is_probing: bool,
    failures: u32,
    ejections: u32,
    ejected_until: Instant,
    last_failure: Instant,
    /// `None` for a node that has been up from the start, which owes no slow start.
    up_since: Option<Instant>,
}

impl Health {
    /// A node that is taken to be fit until it shows otherwise, and is probed at once.
    #[must_use]
    pub fn new(now: Instant) -> Health {
        Health {
            is_failing: false,
            is_unwell: false,
            is_unlinked: false,
            awaited_until: Instant::default(),
            contrary_probes: 0,
            next_probe: now,
            is_probing: false,
            failures: 0,
            ejections: 0,
            ejected_until: Instant::default(),
            last_failure: Instant::default(),
            up_since: None,
        }
    }

    /// What it is.
    #[must_use]
    pub fn state(&self, now: Instant) -> State {
        if self.is_unlinked {
            State::Unlinked
        } else if self.is_failing {
            State::Failing
        } else if self.is_unwell {
            State::Unwell
        } else if now < self.ejected_until {
            State::Ejected(self.ejected_until.since(now))
        } else {
            State::Up
        }
    }

    /// The part of its weight that counts, in thousandths: grows while it starts slowly.
    #[must_use]
    pub fn share_permille(&self, settings: &HealthSettings, now: Instant) -> u64 {
        let back = self.up_since.unwrap_or_default().max(self.ejected_until);
        let (age, whole) = (now.since(back).as_nanos(), settings.slow_start.as_nanos());
        if back == Instant::default() || age >= whole {
            return 1000;
        }
        let grown = (1000 - SLOW_START_PERMILLE) as u128 * age / whole;
        SLOW_START_PERMILLE + u64::try_from(grown).unwrap_or(0)
    }

    /// Whether it is to be probed now; whoever is told so ends the probe with [`Health::probe_ended`].
    pub fn begin_probe(&mut self, settings: &HealthSettings, now: Instant) -> bool {
        let is_due = self.probe_at(settings).is_some_and(|at| at <= now);
        if is_due {
            self.is_probing = true;
            self.next_probe = now.after(settings.interval);
        }
        is_due
    }

    /// When it is to be probed next; `None` while a probe is under way, or when there are none.
    #[must_use]
    pub fn probe_at(&self, settings: &HealthSettings) -> Option<Instant> {
        (!self.is_probing && !settings.interval.is_zero()).then_some(self.next_probe)
    }

    /// Tells what came of a probe. True when the node has just gone down by it.
    pub fn probe_ended(&mut self, is_well: bool, settings: &HealthSettings, now: Instant) -> bool {
        self.is_probing = false;
        if is_well != self.is_failing {
            self.contrary_probes = 0;
            return false;
        }
        self.contrary_probes += 1;
        if self.contrary_probes < if self.is_failing { settings.rise } else { settings.fall }.max(1) {
            return false;
        }
        self.contrary_probes = 0;
        self.is_failing = !is_well;
        self.up_since = Some(now);
        self.is_failing
    }

    /// The probe that was begun couldn't be made: nothing is known by it.
    pub fn drop_probe(&mut self) {
        self.is_probing = false;
    }

    /// Says at once what probes would come to by and by.
    pub fn set_failing(&mut self, is_failing: bool, now: Instant) {
        (self.is_failing, self.contrary_probes, self.up_since) = (is_failing, 0, Some(now));
    }

    /// Tells what the node's own checks have come to. True when the node has just gone down by it.
    pub fn told_failing(&mut self, is_failing: bool, now: Instant) -> bool {
        let was_failing = std::mem::replace(&mut self.is_unwell, is_failing);
        if was_failing && !is_failing {
            self.up_since = Some(now);
        }
        is_failing && !was_failing
    }

    /// Nothing is to be had of it before its first link is there. If that comes soon, the node doesn't come back with it: it owes no slow start.
    pub fn await_link(&mut self, now: Instant) {
        (self.is_unlinked, self.awaited_until) = (true, now.after(FIRST_LINK_TIME));
    }

    /// Whether it says itself that it isn't well.
    #[must_use]
    pub fn is_unwell(&self) -> bool {
        self.is_unwell
    }

    /// Tells of the link to the node. True when the node has just gone down by it.
    pub fn link_changed(&mut self, is_up: bool, now: Instant) -> bool {
        let was_up = !std::mem::replace(&mut self.is_unlinked, !is_up);
        if is_up && !was_up && now >= std::mem::take(&mut self.awaited_until) {
            self.up_since = Some(now);
        }
        was_up && !is_up
    }

    /// Tells what became of a request. True when the node has just been ejected by it; only if it `may_be_ejected`.
    pub fn request_ended(
        &mut self,
        outcome: Outcome,
        may_be_ejected: bool,
        settings: &HealthSettings,
        now: Instant,
    ) -> bool {
        match outcome {
            Outcome::Unknown => return false,
            Outcome::Served => {
                self.failures = 0;
                return false;
            }
            Outcome::Failed => self.failures = self.failures.saturating_add(1),
        }
        if now.since(self.last_failure) > EJECTIONS_FORGOTTEN {
            (self.ejections, self.failures) = (0, 1);
        }
        self.last_failure = now;
        let is_due = settings.eject_after > 0 && self.failures >= settings.eject_after;
        if !is_due || !may_be_ejected || now < self.ejected_until {
            return false;
        }
        let time = settings.eject_time.saturating_mul(1 << self.ejections.min(EJECTION_DOUBLINGS_MAX));
        self.ejected_until = now.after(time.min(settings.eject_time_max));
        self.ejections = self.ejections.saturating_add(1);
        // Back on trial: one failure is enough, one success ends it.
        self.failures = settings.eject_after - 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: HealthSettings = HealthSettings {
        interval: Duration::from_secs(2),
        fall: 3,
        rise: 2,
        eject_after: 2,
        eject_time: Duration::from_secs(10),
        eject_time_max: Duration::from_secs(25),
        slow_start: Duration::from_secs(9),
    };

    fn at(seconds: u64) -> Instant {
        Instant { ns: seconds * 1_000_000_000 }
    }

    #[test]
    fn probes_take_a_node_out_and_bring_it_back() {
        let mut health = Health::new(at(1));
        let mut probe = |second: u64, is_well: bool| {
            assert!(health.begin_probe(&SETTINGS, at(second)));
            assert!(!health.begin_probe(&SETTINGS, at(second)), "one at a time");
            let fell = health.probe_ended(is_well, &SETTINGS, at(second));
            assert!(!health.begin_probe(&SETTINGS, at(second + 1)), "not before the interval is over");
            (fell, health.state(at(second)))
        };
        assert_eq!(probe(1, false), (false, State::Up));
        assert_eq!(probe(3, false), (false, State::Up));
        assert_eq!(probe(5, true), (false, State::Up), "the count starts anew");
        assert_eq!(probe(7, false), (false, State::Up));
        assert_eq!(probe(9, false), (false, State::Up));
        assert_eq!(probe(11, false), (true, State::Failing));
        assert_eq!(probe(13, true), (false, State::Failing));
        assert_eq!(probe(15, true), (false, State::Up));
        let shares = [15, 16, 18, 24, 60].map(|second| health.share_permille(&SETTINGS, at(second)));
        assert_eq!(shares, [100, 200, 400, 1000, 1000]);
    }

    #[test]
    fn what_a_node_says_of_itself_and_probes_are_two_things() {
        let mut health = Health::new(at(1));
        assert!(health.told_failing(true, at(1)) && !health.told_failing(true, at(2)), "it goes down once");
        for second in [3, 5, 7] {
            assert!(!health.probe_ended(true, &SETTINGS, at(second)));
        }
        assert_eq!(health.state(at(7)), State::Unwell, "that it can be reached makes it no better");
        assert!(!health.told_failing(false, at(8)));
        assert_eq!((health.state(at(8)), health.share_permille(&SETTINGS, at(8))), (State::Up, 100));
        (0..3).for_each(|_| _ = health.probe_ended(false, &SETTINGS, at(9)));
        assert!(!health.told_failing(false, at(10)));
        assert_eq!(health.state(at(10)), State::Failing, "its word doesn't make it reachable");
    }

    #[test]
    fn a_new_node_owes_no_slow_start() {
        assert_eq!(Health::new(at(5)).share_permille(&SETTINGS, at(5)), 1000);
    }

    #[test]
    fn failed_requests_eject_for_longer_each_time() {
        let mut health = Health::new(at(0));
        let mut fail = |second| health.request_ended(Outcome::Failed, true, &SETTINGS, at(second));
        assert!(!fail(1));
        assert!(fail(1));
        assert!(!fail(2), "out already");
        assert!(fail(11), "on trial: the first is enough");
        assert!(fail(31));
        assert_eq!(health.state(at(32)), State::Ejected(Duration::from_secs(24)), "25 s at most");
        assert_eq!(health.state(at(56)), State::Up);
        assert_eq!(health.share_permille(&SETTINGS, at(56)), 100);
        let mut end = |outcome, second| health.request_ended(outcome, true, &SETTINGS, at(second));
        assert!(!end(Outcome::Served, 57), "that ends the trial");
        assert!(!end(Outcome::Failed, 58) && !end(Outcome::Unknown, 58) && end(Outcome::Failed, 58));
        assert!(!health.request_ended(Outcome::Failed, true, &SETTINGS, at(700)));
        assert_eq!(health.ejections, 0, "long ago");
    }

    #[test]
    fn nobody_is_ejected_who_may_not_be() {
        let mut health = Health::new(at(0));
        for _ in 0..10 {
            assert!(!health.request_ended(Outcome::Failed, false, &SETTINGS, at(1)));
        }
        let never = HealthSettings { eject_after: 0, ..SETTINGS };
        assert!(!health.request_ended(Outcome::Failed, true, &never, at(1)));
    }

    #[test]
    fn a_lost_link_is_told_once() {
        let mut health = Health::new(at(0));
        assert!(health.link_changed(false, at(1)));
        assert!(!health.link_changed(false, at(2)));
        assert_eq!(health.state(at(2)), State::Unlinked);
        assert!(!health.link_changed(true, at(3)));
        assert_eq!((health.state(at(3)), health.share_permille(&SETTINGS, at(3))), (State::Up, 100));
        assert!(!health.link_changed(true, at(9)));
        assert_eq!(health.share_permille(&SETTINGS, at(12)), 1000, "no second slow start");
    }

    #[test]
    fn who_is_linked_first_owes_no_slow_start() {
        let mut health = Health::new(at(0));
        health.await_link(at(0));
        assert_eq!(health.state(at(1)), State::Unlinked);
        assert!(!health.link_changed(true, at(2)));
        assert_eq!((health.state(at(2)), health.share_permille(&SETTINGS, at(2))), (State::Up, 1000));
        assert!(health.link_changed(false, at(3)));
        assert!(!health.link_changed(true, at(4)));
        assert_eq!(health.share_permille(&SETTINGS, at(4)), 100, "it has come back");
    }

    #[test]
    fn who_is_linked_first_long_after_the_others_starts_slowly() {
        let mut health = Health::new(at(0));
        health.await_link(at(0));
        assert!(!health.link_changed(true, at(60)));
        assert_eq!((health.state(at(60)), health.share_permille(&SETTINGS, at(60))), (State::Up, 100));
    }
}
