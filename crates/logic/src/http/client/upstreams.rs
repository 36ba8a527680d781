//! The servers that requests are passed on to, as one worker sees them: which is asked next, over which connection, and how long a connection is
//! kept for later. Servers that can't be reached or don't answer are left out for a while, then one request tries them.
//!
//! A connection brings back who couldn't be reached. It takes an answer to bring back who took requests and gave none: behind a balancer without servers,
//! or where a program hangs, the kernel still connects. A request that is just slow has nobody left out while others are answered.

use std::time::Duration;

use crate::time::Instant;

/// So long is a server left out that can't be reached or doesn't answer, unless there is no other; twice as long each time that it still doesn't.
const LEFT_OUT_MIN: Duration = Duration::from_secs(1);
const LEFT_OUT_MAX: Duration = Duration::from_secs(30);
/// A connection that has been idle for no longer is hardly ever being closed by its server at this moment.
const WARM: Duration = Duration::from_secs(1);

/// What may be held of each server.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamLimits {
    /// Requests at once.
    pub requests_max: usize,
    /// Connections that wait for a request.
    pub kept_max: usize,
    /// How long they wait.
    pub kept_for: Duration,
    /// How long a server may take to be reached.
    pub connect_for: Duration,
}

/// Which of the connections that are kept may carry a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Any: it can be sent again if the server ends the connection just now.
    Any,
    /// One that hasn't been idle for long.
    Warm,
    /// None.
    Never,
}

/// See the module. `A`: how a server is reached. `C`: a connection to it.
#[derive(Debug)]
pub struct Upstreams<A, C> {
    limits: UpstreamLimits,
    all: Vec<Upstream<A, C>>,
    /// Where the search for the next server begins.
    next: usize,
}

#[derive(Debug)]
struct Upstream<A, C> {
    address: A,
    /// Requests that are with it.
    active: usize,
    /// The one used last is the last.
    kept: Vec<(C, Instant)>,
    left_out: Option<LeftOut>,
    /// When it last answered a request.
    answered_at: Option<Instant>,
}

/// That a server has failed.
#[derive(Clone, Copy, Debug)]
struct LeftOut {
    fault: Fault,
    since: Instant,
    /// When it may be asked again.
    until: Instant,
    /// How long it was left out last.
    period: Duration,
    /// A request finds out whether it's there again.
    is_tried: bool,
}

/// What a server has failed at; the later, the more it takes to bring it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// There is no connection to be had.
    Connecting,
    /// It takes requests, and says nothing that is a reply.
    Answering,
}

impl<A, C> Upstream<A, C> {
    fn is_left_out(&self, now: Instant) -> bool {
        self.left_out.is_some_and(|left_out| now < left_out.until)
    }

    /// Has it left out. Whether that is news.
    fn fail(&mut self, now: Instant, fault: Fault) -> bool {
        let before = self.left_out;
        let (fault, since, period) = match before {
            None => (fault, now, LEFT_OUT_MIN),
            // Requests that were on their way there when it failed say nothing new.
            Some(before) if !before.is_tried => (fault.max(before.fault), before.since, before.period),
            Some(before) => (fault.max(before.fault), before.since, longer(before.period)),
        };
        self.left_out = Some(LeftOut { fault, since, until: now.after(period), period, is_tried: false });
        before.is_none()
    }
}

fn longer(period: Duration) -> Duration {
    (period * 2).min(LEFT_OUT_MAX)
}

impl<A: Clone + PartialEq, C: Copy + PartialEq> Upstreams<A, C> {
    /// For these servers. Others may follow: [`Upstreams::place`].
    #[must_use]
    pub fn new(addresses: &[A], limits: UpstreamLimits) -> Upstreams<A, C> {
        let mut upstreams = Upstreams { limits, all: Vec::new(), next: 0 };
        for address in addresses {
            upstreams.place(address);
        }
        upstreams
    }

    /// A server's place, whether or not it was known before.
    pub fn place(&mut self, address: &A) -> usize {
        self.all.iter().position(|known| known.address == *address).unwrap_or_else(|| {
            let address = address.clone();
            self.all.push(Upstream { address, active: 0, kept: Vec::new(), left_out: None, answered_at: None });
            self.all.len() - 1
        })
    }

    /// How the server at a place is reached.
    #[must_use]
    pub fn address(&self, place: usize) -> Option<&A> {
        self.all.get(place).map(|upstream| &upstream.address)
    }

    /// Whether a connection may carry a second request.
    #[must_use]
    pub fn keeps_connections(&self) -> bool {
        self.limits.kept_max > 0
    }

    /// The server to ask: the one with the fewest requests, in turn where several have as few. One that has just failed (`but`) comes after the others, and
    /// one that is left out isn't asked as long as any isn't. `None`: all have as many requests as they may.
    #[must_use]
    pub fn choose(&mut self, now: Instant, but: Option<usize>) -> Option<usize> {
        let count = self.all.len();
        let in_turn = (0..count).map(|step| (self.next + step) % count);
        // A place that is to be had at once isn't worth a request that fails.
        let are_all_left_out = self.all.iter().all(|upstream| upstream.is_left_out(now));
        let free = in_turn.filter(|&place| {
            let upstream = &self.all[place];
            upstream.active < self.limits.requests_max && (are_all_left_out || !upstream.is_left_out(now))
        });
        let found = free.min_by_key(|&place| (but == Some(place), self.all[place].active))?;
        self.next = found + 1;
        Some(found)
    }

    /// Whether another server than that one can be asked at once, and isn't left out.
    #[must_use]
    pub fn has_other(&self, now: Instant, but: usize) -> bool {
        let mut others = self.all.iter().enumerate().filter(|&(place, _)| place != but);
        others.any(|(_, other)| !other.is_left_out(now) && other.active < self.limits.requests_max)
    }

    /// When the next server that is left out may be tried.
    #[must_use]
    pub fn next_try(&self, now: Instant) -> Instant {
        let left_out =
            self.all.iter().filter(|upstream| upstream.is_left_out(now)).filter_map(|upstream| upstream.left_out);
        left_out.map(|left_out| left_out.until).min().unwrap_or(Instant::NEVER)
    }

    /// A request goes to that server: over the connection returned, or over a new one.
    pub fn begin(&mut self, now: Instant, place: usize, reuse: Reuse) -> Option<C> {
        let connect_for = self.limits.connect_for;
        let upstream = self.all.get_mut(place)?;
        upstream.active += 1;
        if let Some(left_out) = upstream.left_out.as_mut().filter(|left_out| left_out.until <= now) {
            // The others wait for what comes of this one, but not for ever: an answer may take longer than its client waits.
            if left_out.fault == Fault::Answering && left_out.is_tried {
                left_out.period = longer(left_out.period);
            }
            left_out.is_tried = true;
            left_out.until = now.after(match left_out.fault {
                Fault::Connecting => connect_for,
                Fault::Answering => connect_for.max(left_out.period),
            });
            // A kept one may have been closed long since, which would say nothing.
            return None;
        }
        let (_, since) = *upstream.kept.last()?;
        let fits = match reuse {
            Reuse::Any => true,
            Reuse::Warm => now.since(since) <= WARM,
            Reuse::Never => false,
        };
        if fits { upstream.kept.pop().map(|(connection, _)| connection) } else { None }
    }

    /// A request has ended; its connection may carry another. Returns a connection that is to be closed, as there are enough.
    pub fn end(&mut self, now: Instant, place: usize, usable: Option<C>) -> Option<C> {
        let upstream = self.all.get_mut(place)?;
        upstream.active = upstream.active.saturating_sub(1);
        upstream.kept.push((usable?, now));
        let is_excess = upstream.kept.len() > self.limits.kept_max;
        is_excess.then(|| upstream.kept.remove(0).0)
    }

    /// A kept connection is gone.
    pub fn forget(&mut self, place: usize, connection: C) {
        if let Some(upstream) = self.all.get_mut(place) {
            upstream.kept.retain(|&(kept, _)| kept != connection);
        }
    }

    /// A server couldn't be reached. Whether that is news.
    pub fn unreachable(&mut self, now: Instant, place: usize) -> bool {
        self.all.get_mut(place).is_some_and(|upstream| upstream.fail(now, Fault::Connecting))
    }

    /// A server ended a new connection in place of a reply, or said what is none. Whether that is news.
    pub fn unanswering(&mut self, now: Instant, place: usize) -> bool {
        self.all.get_mut(place).is_some_and(|upstream| upstream.fail(now, Fault::Answering))
    }

    /// A server has said nothing to a request since then, for as long as it may. Whether that is the server's fault: not if it has answered another one
    /// meanwhile, as then it's this request that takes long.
    pub fn silent(&mut self, now: Instant, place: usize, since: Instant) -> bool {
        let Some(upstream) = self.all.get_mut(place) else { return false };
        let is_to_blame = upstream.answered_at.is_none_or(|answered_at| answered_at < since);
        if is_to_blame {
            upstream.fail(now, Fault::Answering);
        }
        is_to_blame
    }

    /// A server has been reached. Whether that is news.
    pub fn reached(&mut self, place: usize) -> bool {
        let of_connecting = |left_out: &mut LeftOut| left_out.fault == Fault::Connecting;
        self.all.get_mut(place).is_some_and(|upstream| upstream.left_out.take_if(of_connecting).is_some())
    }

    /// A server has begun to answer a request that it was given then. Whether that is news: what it was given before it was left out shows nothing.
    pub fn answered(&mut self, now: Instant, place: usize, given_at: Instant) -> bool {
        let Some(upstream) = self.all.get_mut(place) else { return false };
        upstream.answered_at = Some(now);
        let is_over = |left_out: &mut LeftOut| left_out.fault == Fault::Answering && left_out.since < given_at;
        upstream.left_out.take_if(is_over).is_some()
    }

    /// Takes out the connections that nobody has used for too long. Returns when the next will have been.
    pub fn expire(&mut self, now: Instant, mut close: impl FnMut(C)) -> Instant {
        let mut next = Instant::NEVER;
        for upstream in &mut self.all {
            let old = upstream.kept.partition_point(|&(_, since)| since.after(self.limits.kept_for) <= now);
            upstream.kept.drain(..old).for_each(|(connection, _)| close(connection));
            next =
                next.min(upstream.kept.first().map_or(Instant::NEVER, |&(_, since)| since.after(self.limits.kept_for)));
        }
        next
    }

    /// Takes out all connections that are kept.
    pub fn take_kept(&mut self) -> Vec<C> {
        self.all.iter_mut().flat_map(|upstream| upstream.kept.drain(..)).map(|(connection, _)| connection).collect()
    }

    /// Whether a request is with any server.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.all.iter().any(|upstream| upstream.active > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Upstreams<&'static str, u32> {
        let [kept_for, connect_for] = [10, 5].map(Duration::from_secs);
        let limits = UpstreamLimits { requests_max: 2, kept_max: 2, kept_for, connect_for };
        Upstreams::new(&["a", "b", "c"], limits)
    }

    fn at(seconds: u64) -> Instant {
        Instant::default().after(Duration::from_secs(seconds))
    }

    fn next(upstreams: &mut Upstreams<&'static str, u32>, now: Instant) -> Option<usize> {
        let place = upstreams.choose(now, None)?;
        upstreams.begin(now, place, Reuse::Any);
        Some(place)
    }

    #[test]
    fn servers_take_turns_and_those_with_fewer_requests_come_first() {
        let mut upstreams = three();
        let turns: Vec<_> = (0..6).map(|_| next(&mut upstreams, at(0))).collect();
        assert_eq!(turns, [0, 1, 2, 0, 1, 2].map(Some));
        assert_eq!(next(&mut upstreams, at(0)), None);
        upstreams.end(at(0), 1, None);
        assert_eq!(next(&mut upstreams, at(0)), Some(1));
        assert!(upstreams.has_work());
    }

    #[test]
    fn who_cant_be_reached_is_left_out_for_a_moment() {
        let mut upstreams = three();
        assert!(upstreams.unreachable(at(0), 0));
        assert!(!upstreams.unreachable(at(0), 0));
        assert_eq!((0..4).map(|_| next(&mut upstreams, at(0))).collect::<Vec<_>>(), [1, 2, 1, 2].map(Some));
        // A place with one of the others is waited for.
        assert_eq!(next(&mut upstreams, at(0)), None);
        assert_eq!([0, 1].map(|second| upstreams.next_try(at(second))), [at(1), Instant::NEVER]);
        assert!(upstreams.reached(0) && !upstreams.reached(0));
        assert_eq!(next(&mut upstreams, at(0)), Some(0));
        (0..3).for_each(|place| assert!(upstreams.unreachable(at(0), place)));
        assert_eq!(next(&mut upstreams, at(0)), Some(0), "better than nobody");
        let mut upstreams = three();
        upstreams.unreachable(at(0), 0);
        assert_eq!(upstreams.choose(at(2), None), Some(0));
        assert_eq!(upstreams.choose(at(2), Some(1)), Some(2));
    }

    #[test]
    fn one_request_at_a_time_tries_who_cant_be_reached() {
        let mut upstreams = three();
        upstreams.limits.requests_max = 100;
        let is_asked = |upstreams: &mut Upstreams<&'static str, u32>, second| {
            (0..6).filter(|_| next(upstreams, at(second)) == Some(0)).count()
        };
        assert_eq!(is_asked(&mut upstreams, 0), 2);
        assert!(upstreams.unreachable(at(1), 0));
        assert!(!upstreams.unreachable(at(1), 0));
        assert_eq!([1, 2, 2, 6].map(|second| is_asked(&mut upstreams, second)), [0, 1, 0, 0]);
        // The one that has tried it failed: twice as long. One that nothing has come of for so long as that may take is followed by another.
        assert!(!upstreams.unreachable(at(6), 0));
        assert_eq!([7, 8, 12, 13].map(|second| is_asked(&mut upstreams, second)), [0, 1, 0, 1]);
        let mut now = 18;
        for left_out in [4, 8, 16, 30, 30] {
            assert!(!upstreams.unreachable(at(now), 0));
            now += left_out;
            assert_eq!([now - 1, now].map(|second| is_asked(&mut upstreams, second)), [0, 1]);
        }
        assert!(upstreams.reached(0));
        assert!(is_asked(&mut upstreams, now) > 1);
        assert!(upstreams.unreachable(at(now), 0));
        assert_eq!(is_asked(&mut upstreams, now + 1), 1, "it begins anew");
    }

    /// How many of six requests, in that second, go to the first server.
    fn asked(upstreams: &mut Upstreams<&'static str, u32>, second: u64) -> usize {
        upstreams.limits.requests_max = 1000;
        (0..6).filter(|_| next(upstreams, at(second)) == Some(0)).count()
    }

    #[test]
    fn who_takes_requests_and_answers_none_is_left_out_until_an_answer() {
        let mut upstreams = three();
        assert_eq!(asked(&mut upstreams, 0), 2);
        assert!(upstreams.unanswering(at(1), 0));
        assert!(!upstreams.unanswering(at(1), 0), "the other of the two");
        assert_eq!([1, 2, 2].map(|second| asked(&mut upstreams, second)), [0, 1, 0]);
        assert!(!upstreams.reached(0), "it could always be connected to");
        assert_eq!(asked(&mut upstreams, 2), 0);
        // Twice as long each time.
        let mut now = 2;
        for left_out in [2, 4, 8, 16, 30, 30] {
            assert!(!upstreams.unanswering(at(now), 0));
            now += left_out;
            assert_eq!([now - 1, now].map(|second| asked(&mut upstreams, second)), [0, 1]);
        }
        // What it had before it failed shows nothing, as a server that ends answers what it has.
        assert!(!upstreams.answered(at(now), 0, at(0)));
        assert_eq!(asked(&mut upstreams, now), 0);
        assert!(upstreams.answered(at(now), 0, at(now)));
        assert!(!upstreams.answered(at(now), 0, at(now)));
        assert!(asked(&mut upstreams, now) > 1);
        assert!(upstreams.unanswering(at(now), 0));
        assert_eq!(asked(&mut upstreams, now + 1), 1, "it begins anew");
    }

    #[test]
    fn who_is_tried_and_says_nothing_is_tried_ever_more_seldom() {
        let mut upstreams = three();
        assert!(upstreams.silent(at(60), 0, at(0)));
        // Nothing comes of any of these yet. None is followed by the next before there could be a connection.
        let tried = (60..180).filter(|&second| asked(&mut upstreams, second) > 0);
        assert_eq!(tried.collect::<Vec<_>>(), [61, 66, 71, 76, 84, 100, 130, 160]);
        // The first of them has been waited for long enough.
        assert!(upstreams.silent(at(180), 0, at(61)));
        assert_eq!([209, 210].map(|second| asked(&mut upstreams, second)), [0, 1]);
    }

    #[test]
    fn a_slow_request_is_no_fault_of_a_server_that_answers_others() {
        let mut upstreams = three();
        assert!(!upstreams.answered(at(30), 0, at(29)));
        assert!(!upstreams.silent(at(60), 0, at(0)));
        assert!(!upstreams.silent(at(90), 0, at(30)));
        assert_eq!(asked(&mut upstreams, 90), 2);
        // It has answered nobody since the next was given.
        assert!(upstreams.silent(at(91), 0, at(31)));
        assert_eq!(asked(&mut upstreams, 91), 0);
    }

    #[test]
    fn a_connection_isnt_enough_for_who_has_failed_at_both() {
        let mut upstreams = three();
        assert!(upstreams.unreachable(at(0), 0));
        assert!(!upstreams.unanswering(at(0), 0));
        assert!(!upstreams.unreachable(at(0), 0));
        assert!(!upstreams.reached(0));
        assert_eq!([0, 1].map(|second| asked(&mut upstreams, second)), [0, 1]);
        assert!(upstreams.answered(at(1), 0, at(1)));
        // An answer on an older connection is none to whether there is a new one.
        assert!(upstreams.unreachable(at(2), 0));
        assert!(!upstreams.answered(at(3), 0, at(3)));
        assert!(upstreams.reached(0));
    }

    #[test]
    fn a_request_that_tries_a_server_has_a_connection_of_its_own() {
        let mut upstreams = three();
        upstreams.begin(at(0), 0, Reuse::Any);
        upstreams.end(at(0), 0, Some(1));
        assert!(upstreams.unanswering(at(0), 0));
        assert_eq!(upstreams.begin(at(1), 0, Reuse::Any), None);
        assert!(upstreams.answered(at(1), 0, at(1)));
        assert_eq!(upstreams.begin(at(1), 0, Reuse::Any), Some(1));
    }

    #[test]
    fn another_server_is_one_that_can_be_asked_now() {
        let mut upstreams = three();
        assert!(upstreams.has_other(at(0), 0));
        upstreams.unreachable(at(0), 1);
        assert!(upstreams.has_other(at(0), 0) && upstreams.has_other(at(0), 2));
        upstreams.begin(at(0), 2, Reuse::Any);
        upstreams.begin(at(0), 2, Reuse::Any);
        assert!(!upstreams.has_other(at(0), 0));
        assert!(upstreams.has_other(at(1), 0), "it's time to try it");
        assert!(!Upstreams::<_, u32>::new(&["a"], upstreams.limits).has_other(at(0), 0));
    }

    #[test]
    fn connections_are_kept_for_a_while_and_used_again() {
        let mut upstreams = three();
        for _ in 0..3 {
            assert_eq!(upstreams.begin(at(0), 0, Reuse::Any), None);
        }
        assert_eq!(upstreams.end(at(1), 0, Some(1)), None);
        assert_eq!(upstreams.end(at(2), 0, Some(2)), None);
        assert_eq!(upstreams.end(at(3), 0, Some(3)), Some(1), "the oldest of too many goes");
        assert!(!upstreams.has_work());
        assert_eq!(upstreams.begin(at(3), 0, Reuse::Never), None);
        assert_eq!(upstreams.begin(at(3), 0, Reuse::Any), Some(3));
        assert_eq!(upstreams.begin(at(4), 0, Reuse::Warm), None, "it might be closing");
        assert_eq!(upstreams.begin(at(4), 0, Reuse::Any), Some(2));
        upstreams.end(at(4), 0, Some(2));
        upstreams.end(at(5), 0, Some(3));
        let mut closed = Vec::new();
        assert_eq!(upstreams.expire(at(14), |connection| closed.push(connection)), at(15));
        assert_eq!(closed, [2]);
        upstreams.forget(0, 3);
        assert_eq!(upstreams.take_kept(), []);
        assert_eq!((upstreams.place(&"d"), upstreams.place(&"b"), upstreams.address(3)), (3, 1, Some(&"d")));
    }
}
