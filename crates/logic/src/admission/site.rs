//! Whether one site's requests wait for too long, by how long each has waited when its turn comes: to be served, and, where the reply takes
//! turns to be sent, for the first of those. How long a client then takes to read it is no wait of the site's. A queue that never runs low for some
//! time is overload, not a burst or a round of few clients (Nichols and Jacobson, "Controlling Queue Delay", 2012); what then waits longer than a short limit is
//! thrown away at the head, so that what is served is fresh (as in Maurer, "Fail at Scale", 2015).

use std::sync::Arc;

use super::crowd::Crowd;
use super::in_flight::{Counted, InFlight};
use super::limits::{
    AGAIN_NS, BURST_NS, BURST_REST_NS, CALM_NS, CROWD_DELAY_NS, LET_IN_MAX, OVERLOADED_DELAY_NS, QUEUE_DELAY_MAX_NS,
    REFUSALS_EACH_REQUEST, RELAXED_PART, SHARE_USED_MIN, TURNS_PERIOD_NS, WAITING_REQUESTS_MIN,
};
use super::refusal::Slots;
use crate::schedule::Cost;
use crate::time::Instant;

/// How the mean cost of a site's requests moves with each.
const COST_SHIFT: u32 = 4;

/// How a site's requests are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// They may be refused.
    #[default]
    Ordinary,
    /// They're never refused: those of the admin address.
    Reserved,
    /// They aren't requests yet: connections and heads whose site isn't known. While they wait for too long, nothing is accepted.
    Unknown,
}

/// What is asked of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteLimits {
    /// Requests that may be in flight on all workers that count together: admitted and not finished.
    pub in_flight_max: u32,
    /// The longest that a request may wait for its turn, overload or not, in nanoseconds.
    pub queue_delay_max_ns: u64,
    /// Whose requests they are.
    pub standing: Standing,
}

impl Default for SiteLimits {
    fn default() -> SiteLimits {
        SiteLimits { in_flight_max: u32::MAX, queue_delay_max_ns: QUEUE_DELAY_MAX_NS, standing: Standing::default() }
    }
}

/// What has happened to a site's requests, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteCounts {
    /// Waiting for their turn now, to be served or to have their reply sent.
    pub waiting: u32,
    /// Started and not finished now.
    pub started: u32,
    /// How long the last request that started, or was refused when its turn came, had waited, in nanoseconds.
    pub delay_ns: u64,
    /// Requests that started.
    pub served: u64,
    /// Refused because too many were in flight.
    pub refused_in_flight: u64,
    /// Refused because they had waited for too long.
    pub refused_late: u64,
}

/// How long what waits at one place has waited, from what has had its turn there.
#[derive(Debug, Default)]
struct Queue {
    /// Waiting for their turn now.
    waiting: u32,
    /// How long the last had waited, in nanoseconds.
    delay_ns: u64,
    /// Since when all had waited for too long.
    late_since: Option<Instant>,
    /// How many have had their turn since then.
    late: u32,
    is_overloaded: bool,
    /// When it last ceased to be.
    relaxed_at: Option<Instant>,
}

impl Queue {
    /// One has its turn; what counts as late is `late_ns`. `is_calm`: the site wasn't overloaded lately. How long it has waited.
    fn leave(&mut self, arrived: Instant, now: Instant, late_ns: u64, is_calm: bool) -> u64 {
        self.waiting = self.waiting.saturating_sub(1);
        self.delay_ns = now.ns.saturating_sub(arrived.ns);
        if self.delay_ns <= late_ns / RELAXED_PART || self.waiting == 0 {
            self.relax(now);
        } else if self.delay_ns > late_ns {
            self.is_overloaded |= self.was_overloaded_within(AGAIN_NS, now) || self.is_too_much(now, is_calm);
        } else if !self.is_overloaded {
            self.late_since = None;
        }
        self.delay_ns
    }

    /// One more is late. Whether all have been for so long, and so many wait, that it's neither a burst nor a round of few clients.
    fn is_too_much(&mut self, now: Instant, is_calm: bool) -> bool {
        if self.late_since.is_none() {
            self.late = 0;
        }
        self.late = self.late.saturating_add(1);
        let for_ns = now.ns.saturating_sub(self.late_since.get_or_insert(now).ns);
        let rest_ns = for_ns.saturating_mul(u64::from(self.waiting) + 1) / u64::from(self.late);
        let is_little = is_calm && rest_ns <= BURST_REST_NS;
        if is_little && for_ns >= TURNS_PERIOD_NS {
            (self.late_since, self.late) = (Some(now), 0);
        }
        for_ns >= BURST_NS && !is_little
    }

    fn was_overloaded_within(&self, ns: u64, now: Instant) -> bool {
        self.is_overloaded || self.relaxed_at.is_some_and(|at| now.ns.saturating_sub(at.ns) < ns)
    }

    /// One has gone before its turn.
    fn abandon(&mut self, now: Instant) {
        self.waiting = self.waiting.saturating_sub(1);
        if self.waiting == 0 {
            self.relax(now);
        }
    }

    fn relax(&mut self, now: Instant) {
        self.late_since = None;
        if std::mem::take(&mut self.is_overloaded) {
            self.relaxed_at = Some(now);
        }
    }
}

#[derive(Debug)]
pub(super) struct Site {
    pub(super) limits: SiteLimits,
    /// Requests that wait to be served.
    requests: Queue,
    /// Replies that wait to be sent, and of which nothing is on its way.
    replies: Queue,
    /// Who asks.
    pub(super) crowd: Crowd,
    in_flight: Counted,
    started: u32,
    served: u64,
    refused_in_flight: u64,
    pub(super) refused_late: u64,
    is_within_share: bool,
    /// The worker does something else for a while, which none of the requests is about.
    pub(super) is_held_up: bool,
    /// The part of the worker that it has: what it's entitled to, or more where others leave some of theirs. More than 0.
    pub(super) share: f64,
    /// For what it has refused.
    pub(super) slots: Slots,
    /// For those who ask anew, as they were refused and not held.
    anew: Slots,
    /// Moving average of what requests cost; 0 when nothing is known.
    cost_ns: u64,
}

impl Site {
    pub(super) fn new(limits: SiteLimits) -> Site {
        Site {
            limits,
            requests: Queue::default(),
            replies: Queue::default(),
            crowd: Crowd::default(),
            in_flight: Counted::default(),
            started: 0,
            served: 0,
            refused_in_flight: 0,
            refused_late: 0,
            is_within_share: false,
            is_held_up: false,
            share: 1.0,
            slots: Slots::default(),
            anew: Slots::default(),
            cost_ns: 0,
        }
    }

    pub(super) fn counts(&self) -> SiteCounts {
        SiteCounts {
            waiting: self.waiting(),
            started: self.started,
            delay_ns: self.requests.delay_ns,
            served: self.served,
            refused_in_flight: self.refused_in_flight,
            refused_late: self.refused_late,
        }
    }

    pub(super) fn set_share(&mut self, given: f64, used: f64) {
        self.is_within_share = used < given * SHARE_USED_MIN;
        // One that is entitled to nothing now, as it wants nothing or has to wait for all others, has no turn to wait for.
        self.share = if given > 0.0 { given.max(used) } else { 1.0 };
    }

    /// How long its requests may wait when it's overloaded.
    pub(super) fn late_ns(&self) -> u64 {
        let turns_ns = self.cost_ns as f64 / self.share * WAITING_REQUESTS_MIN;
        let may_wait = self.is_held_up || self.is_small_crowd();
        let delay_ns = if may_wait { CROWD_DELAY_NS } else { OVERLOADED_DELAY_NS };
        delay_ns.max(turns_ns as u64)
    }

    /// Whether everybody who asks would be served soon enough if all did at once: then what waits is a round of few clients, which grows no further.
    fn is_small_crowd(&self) -> bool {
        let size = self.crowd.size();
        size > 0 && f64::from(size) * self.cost_ns as f64 / self.share <= CROWD_DELAY_NS as f64
    }

    /// Whether requests wait for too long to be served.
    pub(super) fn is_overloaded(&self) -> bool {
        self.is_over(&self.requests)
    }

    /// Whether neither requests nor replies have waited for too long lately, so that what waits may be a burst.
    fn is_calm(&self, now: Instant) -> bool {
        ![&self.requests, &self.replies].iter().any(|queue| queue.was_overloaded_within(CALM_NS, now))
    }

    fn is_over(&self, queue: &Queue) -> bool {
        queue.is_overloaded && !self.is_within_share
    }

    /// Whether refusing a request is much cheaper than serving it. Taken to be so until the first was finished.
    pub(super) fn is_worth_refusing(&self, refusal: Cost) -> bool {
        self.cost_ns == 0 || self.cost_ns >= refusal.ns.saturating_mul(REFUSALS_EACH_REQUEST)
    }

    /// Whether a request that has just come may wait for its turn.
    pub(super) fn arrive(&mut self) -> bool {
        let max = if self.limits.standing == Standing::Ordinary { self.limits.in_flight_max } else { u32::MAX };
        if !self.in_flight.enter(max) {
            self.refused_in_flight += 1;
            return false;
        }
        self.requests.waiting += 1;
        true
    }

    /// Counts with others from now on.
    pub(super) fn count_with(&mut self, in_flight: Arc<InFlight>) {
        self.in_flight.count_with(in_flight);
    }

    /// Some may have ended.
    fn count_ended(&mut self) {
        self.in_flight.keep(self.requests.waiting.saturating_add(self.started));
    }

    /// Whether a request whose turn has come is served.
    pub(super) fn start(&mut self, arrived: Instant, now: Instant, is_worth_refusing: bool) -> bool {
        let delay_ns = self.requests.leave(arrived, now, self.late_ns(), self.is_calm(now));
        if self.is_late(&self.requests, delay_ns, is_worth_refusing) {
            self.refused_late += 1;
            self.count_ended();
            return false;
        }
        self.started += 1;
        self.served += 1;
        true
    }

    /// Whether a reply that is ready may wait for its turn to be sent: not if replies have to wait for too long, and those before it are enough for
    /// that. Refusing it now costs less than when its turn has come.
    pub(super) fn reply(&mut self, is_worth_refusing: bool) -> bool {
        let is_overloaded = self.is_over(&self.replies) && self.limits.standing != Standing::Reserved;
        if is_overloaded && is_worth_refusing && self.is_long(&self.replies) {
            self.refused_late += 1;
            self.started = self.started.saturating_sub(1);
            self.count_ended();
            return false;
        }
        self.replies.waiting += 1;
        true
    }

    /// Whether a reply whose turn has come is sent. If not, its request isn't being served any more.
    pub(super) fn send(&mut self, ready: Instant, now: Instant, is_worth_refusing: bool) -> bool {
        let delay_ns = self.replies.leave(ready, now, self.late_ns(), self.is_calm(now));
        if self.is_late(&self.replies, delay_ns, is_worth_refusing) {
            self.refused_late += 1;
            self.started = self.started.saturating_sub(1);
            self.count_ended();
            return false;
        }
        true
    }

    fn is_late(&self, queue: &Queue, delay_ns: u64, is_worth_refusing: bool) -> bool {
        if self.limits.standing == Standing::Reserved {
            return false;
        }
        let is_shed = self.is_over(queue) && is_worth_refusing && delay_ns > self.late_ns();
        is_shed || delay_ns > self.limits.queue_delay_max_ns
    }

    /// Until when a request that arrived then may wait, whatever becomes of others.
    pub(super) fn may_wait_until(&self, arrived: Instant) -> Instant {
        match (self.limits.standing, self.limits.queue_delay_max_ns) {
            (Standing::Ordinary, max) if max < u64::MAX => {
                Instant { ns: arrived.ns.saturating_add(max).saturating_add(1) }
            }
            _ => Instant::NEVER,
        }
    }

    /// Whether so many requests wait that those behind them are late as well. If not, and nobody waits where the worker can't see it, they have waited because it
    /// was held up, as on a machine that is busy with something else, and refusing one would let nobody wait less.
    pub(super) fn has_many_requests(&self) -> bool {
        self.is_long(&self.requests)
    }

    /// The same of replies.
    pub(super) fn has_many_replies(&self) -> bool {
        self.is_long(&self.replies)
    }

    fn is_long(&self, queue: &Queue) -> bool {
        f64::from(queue.waiting) * self.cost_ns as f64 / self.share > self.late_ns() as f64
    }

    /// Whether what one asks anew will have its turn soon who is refused now; if so, that's counted on.
    pub(super) fn has_room(&mut self, now: Instant) -> bool {
        let is_soon = |queue: &Queue| queue.waiting == 0 || queue.delay_ns < self.soon_ns();
        self.is_small_crowd() || (is_soon(&self.requests) && is_soon(&self.replies) && self.let_go(now).is_ok())
    }

    /// What has its turn within this time isn't late, nor makes others so.
    fn soon_ns(&self) -> u64 {
        self.late_ns() / RELAXED_PART
    }

    /// How long one of its requests keeps it at work.
    fn turn_ns(&self) -> u64 {
        (self.cost_ns as f64 / self.share) as u64
    }

    /// How many requests have their turn soon where none waits.
    pub(super) fn room(&self) -> usize {
        (self.soon_ns() / self.turn_ns().max(1)).clamp(1, LET_IN_MAX) as usize
    }

    /// One is refused and may ask anew at once: so many as can be served then. With more, each would be refused again, and none served for all the refusing;
    /// whoever doesn't ask is made up for in the time in which it would have been served.
    pub(super) fn let_go(&mut self, now: Instant) -> Result<(), Instant> {
        let (booked_ns, soon_ns) = (self.anew.booked_ns(now), self.soon_ns());
        if booked_ns > soon_ns {
            return Err(Instant { ns: now.ns + (booked_ns - soon_ns) });
        }
        self.anew.book(self.turn_ns(), now);
        Ok(())
    }

    fn waiting(&self) -> u32 {
        self.requests.waiting.saturating_add(self.replies.waiting)
    }

    /// For how long those that wait for their turn will keep it at work.
    pub(super) fn waiting_ns(&self) -> u64 {
        u64::from(self.waiting()).saturating_mul(self.turn_ns())
    }

    pub(super) fn finish(&mut self, cost: Cost) {
        self.started = self.started.saturating_sub(1);
        self.count_ended();
        self.cost_ns = match self.cost_ns {
            0 => cost.ns,
            known => known - (known >> COST_SHIFT) + (cost.ns >> COST_SHIFT),
        };
    }

    pub(super) fn abandon(&mut self, now: Instant) {
        self.requests.abandon(now);
        self.count_ended();
    }

    /// The client of a request whose reply waits to be sent has gone.
    pub(super) fn abandon_reply(&mut self, now: Instant) {
        self.replies.abandon(now);
        self.started = self.started.saturating_sub(1);
        self.count_ended();
    }
}

#[cfg(test)]
mod tests {
    use super::super::crowd::LastAsked;
    use super::super::{Admission, Verdict};
    use super::*;

    /// Longer than any burst.
    const LONG_MS: u64 = 10_000;

    fn site(cost_us: u64, given: f64) -> Site {
        let mut site = Site::new(SiteLimits::default());
        site.finish(Cost::from_ns(cost_us * 1_000));
        site.set_share(given, given);
        site
    }

    #[test]
    fn requests_may_wait_for_the_turn_that_their_site_is_due() {
        assert_eq!(site(300, 1.0).late_ns(), OVERLOADED_DELAY_NS);
        assert_eq!(site(300, 0.1).late_ns(), OVERLOADED_DELAY_NS);
        assert_eq!(site(300, 0.01).late_ns(), 60_000_000, "two requests in a hundredth of a worker");
        assert_eq!(site(300, 0.0).late_ns(), OVERLOADED_DELAY_NS, "that of a site that is due nothing never comes");
        assert_eq!(Site::new(SiteLimits::default()).late_ns(), OVERLOADED_DELAY_NS);
        let mut busy = site(300, 0.01);
        busy.set_share(0.01, 0.95);
        assert_eq!(busy.late_ns(), OVERLOADED_DELAY_NS, "its turns come often, as others leave theirs");
    }

    #[test]
    fn workers_keep_a_limit_together() {
        let at = Instant { ns: 1_000_000_000 };
        let limits = SiteLimits { in_flight_max: 5, ..SiteLimits::default() };
        let shared = Arc::new(InFlight::default());
        let mut workers: Vec<Site> = (0..4).map(|_| Site::new(limits)).collect();
        // One that was let in before they counted together counts.
        assert!(workers[0].arrive());
        workers.iter_mut().for_each(|worker| worker.count_with(shared.clone()));
        let came = |workers: &mut [Site]| (0..12).filter(|number| workers[number % workers.len()].arrive()).count();
        assert_eq!(came(&mut workers), 4);
        assert!(workers[1].start(at, at, true), "it's in flight as it was");
        assert_eq!(came(&mut workers), 0);
        workers[1].finish(Cost::from_ns(1_000));
        workers[2].abandon(at);
        workers[0].count_with(shared.clone());
        assert_eq!(came(&mut workers[3..]), 2, "one worker may have all that others leave");
        drop(workers);
        assert!(Site::new(limits).arrive() && shared.enter(1), "who goes takes its own along");
    }

    #[test]
    fn replies_are_refused_when_ready_only_while_those_before_them_wait_too_long() {
        let at = |ms: u64| Instant { ns: 1_000_000_000 + ms * 1_000_000 };
        let mut site = site(300, 1.0);
        assert!((0..200).all(|_| site.reply(true)), "a burst may pass");
        assert!(site.send(at(0), at(20), true), "it's late, but not for long yet");
        assert!(!site.send(at(0), at(80), true), "all have been late for longer than a burst");
        assert!(!site.reply(true), "198 wait, some 60 ms");
        assert!(site.reply(false), "where a refusal is as dear as the reply, it's no use");
        (0..170).for_each(|_| site.abandon_reply(at(81)));
        assert!(site.reply(true), "29 wait, 9 ms");
        assert!(site.send(at(82), at(84), true), "and the next has waited for 2 ms: it's over");
        assert!((0..200).all(|_| site.reply(true)));
    }

    #[test]
    fn what_is_served_soon_is_no_overload_unless_one_was_lately() {
        let at = |ms: u64| Instant { ns: 1_000_000_000 + ms * 1_000_000 };
        // So many come at once, and then one for each that is served, one a millisecond; all have waited for 20 ms.
        for (waiting, refused_from_ms) in [(145, u64::MAX), (155, 51)] {
            let mut site = site(300, 1.0);
            (0..waiting).for_each(|_| assert!(site.arrive()));
            let mut serve = |ms| site.arrive() && site.start(at(ms), at(20 + ms), true);
            assert!((1..refused_from_ms.min(LONG_MS)).all(&mut serve), "{waiting}");
            assert_eq!(serve(refused_from_ms.min(LONG_MS)), refused_from_ms > LONG_MS, "{waiting}");
        }
        // If turns come less often than they did, that's soon seen.
        let mut slower = site(300, 1.0);
        (0..100).for_each(|_| assert!(slower.arrive()));
        assert!((1..LONG_MS).all(|ms| slower.arrive() && slower.start(at(ms), at(20 + ms), true)));
        let mut serve =
            |turn: u64| slower.arrive() && slower.start(at(LONG_MS + 3 * turn), at(LONG_MS + 3 * turn + 20), true);
        assert!((0..110).any(|turn| !serve(turn)));
        // After one, those whom it refused may come back together.
        for (calm_ms, refused_from_ms) in [(3_900_u64, 51), (4_100, u64::MAX)] {
            let mut site = site(300, 1.0);
            (0..400).for_each(|_| assert!(site.arrive()));
            assert!((1..=51).any(|ms| !site.start(at(ms), at(20 + ms), true)));
            (0..349).for_each(|_| site.abandon(at(72)));
            assert_eq!(site.counts().waiting, 0);
            (0..100).for_each(|_| assert!(site.arrive()));
            let mut serve = |ms| site.arrive() && site.start(at(calm_ms + ms), at(calm_ms + 20 + ms), true);
            assert!((1..refused_from_ms.min(LONG_MS)).all(&mut serve), "{calm_ms}");
            assert_eq!(serve(refused_from_ms.min(LONG_MS)), refused_from_ms > LONG_MS, "{calm_ms}");
        }
    }

    #[test]
    fn a_round_of_few_clients_is_no_overload() {
        let at = |ms: u64| Instant { ns: 1_000_000_000 + ms * 1_000_000 };
        for (clients, share, is_small) in [(290, 1.0, true), (310, 1.0, false), (160, 0.5, false), (140, 0.5, true)] {
            let (mut site, mut marks) = (site(500, share), 0);
            (0..clients).for_each(|_| site.crowd.add(&mut LastAsked::default(), &mut marks, at(0)));
            assert_eq!(site.late_ns() == CROWD_DELAY_NS, is_small, "{clients} with {share} of a worker");
            (0..2 * clients).for_each(|_| assert!(site.arrive()));
            assert!((1..=60).all(|ms| site.start(at(0), at(20 + ms), true) == (is_small || ms < 51)));
            assert!(!site.start(at(0), at(1_120), true), "what has waited for longer than anything may is refused");
            site.set_share(share / 4.0, 1.0);
            assert!(!is_small || site.late_ns() == CROWD_DELAY_NS, "it has what the others leave");
        }
    }

    #[test]
    fn who_waits_behind_what_passes_is_not_refused() {
        let at = |ms: u64| Instant { ns: 1_000_000_000 + ms * 1_000_000 };
        let mut admission = Admission::new(Cost::from_ns(10_000));
        admission.set_site(0, SiteLimits::default());
        admission.sites[0] = site(300, 1.0);
        (0..400).for_each(|_| assert_eq!(admission.arrive(0, at(0)), Verdict::Admit));
        admission.set_held_up(true);
        assert!((0..100).all(|turn| admission.start(0, at(turn), at(turn + 140)) == Verdict::Admit));
        admission.set_held_up(false);
        assert!((0..100).any(|turn| admission.start(0, at(turn), at(turn + 140)) != Verdict::Admit));
    }

    #[test]
    fn few_that_have_waited_because_the_worker_was_held_up_are_not_refused() {
        // One request a connection, so that nobody is seen to ask again; each time the worker stands still for 60 ms.
        let at = |ms: u64| Instant { ns: 1_000_000_000 + ms * 1_000_000 };
        for (waiting, is_refused) in [(32, false), (90, true)] {
            let mut admission = Admission::new(Cost::from_ns(10_000));
            admission.set_site(0, SiteLimits::default());
            admission.sites[0] = site(300, 1.0);
            (0..waiting).for_each(|_| assert_eq!(admission.arrive(0, at(0)), Verdict::Admit));
            let mut start = |ms| {
                admission.arrive(0, at(ms));
                admission.start(0, at(ms), at(ms + 60)) == Verdict::Admit
            };
            let is_served = (0..100).map(|turn| turn * 60).all(&mut start);
            assert_eq!(is_served, !is_refused, "{waiting} wait at any time");
        }
    }

    #[test]
    fn who_comes_late_after_refusals_is_refused_where_that_is_much_cheaper() {
        let at = |ms: u64| Instant { ns: 5_000_000_000 + ms * 1_000_000 };
        for (cost_us, is_served) in [(300, false), (31, false), (29, true)] {
            let mut admission = Admission::new(Cost::from_ns(10_000));
            admission.set_site(0, SiteLimits::default());
            admission.sites[0] = site(cost_us, 1.0);
            // The worker has stood still for longer than any may wait.
            (0..100).for_each(|_| assert_eq!(admission.arrive(0, at(0)), Verdict::Admit));
            assert!((0..100).all(|_| admission.start(0, at(0), at(1_200)) != Verdict::Admit));
            assert!(admission.is_holding(at(1_200)));
            let verdict = admission.arrive_late(0, at(1_200), at(1_220), false);
            assert_eq!(verdict == Verdict::Admit, is_served, "{cost_us} us, where a refusal costs 10");
        }
    }

    #[test]
    fn who_comes_late_as_another_site_refuses_is_served() {
        let at = |ms: u64| Instant { ns: 5_000_000_000 + ms * 1_000_000 };
        let mut admission = Admission::new(Cost::from_ns(10_000));
        for number in 0..2 {
            admission.set_site(number, SiteLimits::default());
            admission.sites[number] = site(300, 0.5);
        }
        (0..200).for_each(|_| assert_eq!(admission.arrive(0, at(0)), Verdict::Admit));
        assert!((0..200).all(|_| admission.start(0, at(0), at(1_200)) != Verdict::Admit));
        assert!(admission.is_holding(at(1_200)));
        assert_ne!(admission.arrive_late(0, at(1_000), at(1_200), false), Verdict::Admit);
        assert_eq!(admission.arrive_late(1, at(1_000), at(1_200), false), Verdict::Admit);
        assert_eq!(admission.start(1, at(1_000), at(1_200)), Verdict::Admit);
    }

    #[test]
    fn no_more_ask_anew_than_are_served_meanwhile() {
        let at = |us: u64| Instant { ns: 1_000_000_000 + us * 1_000 };
        // At once what takes 2.5 ms, and then one in the time of each.
        for (share, at_once, next_us) in [(1.0, 9, 200), (0.5, 5, 500), (0.01, 1, 15_000)] {
            let mut site = site(300, share);
            assert!((0..at_once).all(|_| site.let_go(at(0)) == Ok(())), "{share}");
            assert_eq!(site.let_go(at(0)), Err(at(next_us)), "{share}");
            assert_eq!([site.let_go(at(next_us)).is_ok(), site.let_go(at(next_us)).is_ok()], [true, false], "{share}");
        }
        assert_eq!([1.0, 0.5, 0.01].map(|share| site(300, share).room()), [8, 4, 1]);
    }

    #[test]
    fn without_a_limit_only_overload_refuses() {
        let at = |ms: u64| Instant { ns: 1_000_000_000 + ms * 1_000_000 };
        for (limit_ns, waits_on) in [(u64::MAX, true), (QUEUE_DELAY_MAX_NS, false)] {
            let limits = SiteLimits { queue_delay_max_ns: limit_ns, ..SiteLimits::default() };
            let mut site = Site { limits, ..site(300, 1.0) };
            (0..200).for_each(|_| assert!(site.arrive()));
            // An hour late, and the first that is: that's no overload yet.
            assert_eq!(site.start(at(0), at(3_600_000), true), waits_on);
            assert!(!site.start(at(0), at(3_600_060), true), "all have been late for longer than a burst");
        }
    }

    #[test]
    fn what_waits_between_two_turns_of_a_small_share_is_not_refused() {
        let mut site = site(300, 0.01);
        for turn in 1..100_u64 {
            site.arrive();
            site.arrive();
            let now = Instant { ns: 1_000_000_000 + turn * 30_000_000 };
            assert!(site.start(Instant { ns: now.ns - 50_000_000 }, now, true), "turn {turn}");
        }
        assert!(!site.is_overloaded());
        for turn in 100..110_u64 {
            let now = Instant { ns: 1_000_000_000 + turn * 30_000_000 };
            let is_served = site.start(Instant { ns: now.ns - 70_000_000 }, now, true);
            assert_eq!(is_served, turn < 102, "turn {turn}: after a burst's time it's refused");
        }
    }
}
