//! The servers that requests are passed on to, as one worker sees them: which is asked next, over which connection, and how long a connection is
//! kept for later. Servers that can't be reached are left out for a while, then one request tries them.

use std::time::Duration;

use crate::time::Instant;

/// So long is a server left out that can't be reached, unless there is no other; twice as long each time that it still can't.
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
    /// When it may be asked again, if it couldn't be reached.
    left_out_until: Option<Instant>,
    /// How long it was left out last.
    left_out_for: Duration,
    /// A request finds out whether it's there again.
    is_tried: bool,
}

impl<A, C> Upstream<A, C> {
    fn is_left_out(&self, now: Instant) -> bool {
        self.left_out_until.is_some_and(|until| now < until)
    }
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
            self.all.push(Upstream {
                address,
                active: 0,
                kept: Vec::new(),
                left_out_until: None,
                left_out_for: Duration::ZERO,
                is_tried: false,
            });
            self.all.len() - 1
        })
    }

    /// How the server at a place is reached.
    #[must_use]
    pub fn address(&self, place: usize) -> Option<&A> {
        self.all.get(place).map(|upstream| &upstream.address)
    }

    /// The server to ask: the one with the fewest requests, in turn where several have as few. One that can't be reached, or that has just failed
    /// (`but`), comes after all others. `None`: all have as many requests as they may.
    #[must_use]
    pub fn choose(&mut self, now: Instant, but: Option<usize>) -> Option<usize> {
        let count = self.all.len();
        let in_turn = (0..count).map(|step| (self.next + step) % count);
        let free = in_turn.filter(|&place| self.all[place].active < self.limits.requests_max);
        let found = free.min_by_key(|&place| {
            let upstream = &self.all[place];
            (upstream.is_left_out(now), but == Some(place), upstream.active)
        })?;
        self.next = found + 1;
        Some(found)
    }

    /// A request goes to that server: over the connection returned, or over a new one.
    pub fn begin(&mut self, now: Instant, place: usize, reuse: Reuse) -> Option<C> {
        let connect_for = self.limits.connect_for;
        let upstream = self.all.get_mut(place)?;
        upstream.active += 1;
        if upstream.left_out_until.is_some_and(|until| until <= now) {
            // The others wait for what comes of this one.
            upstream.is_tried = true;
            upstream.left_out_until = Some(now.after(connect_for));
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
        let Some(upstream) = self.all.get_mut(place) else { return false };
        let is_news = upstream.left_out_until.is_none();
        // Requests that were on their way there when it failed say nothing new.
        upstream.left_out_for = match (is_news, std::mem::take(&mut upstream.is_tried)) {
            (true, _) => LEFT_OUT_MIN,
            (false, true) => (upstream.left_out_for * 2).min(LEFT_OUT_MAX),
            (false, false) => upstream.left_out_for,
        };
        upstream.left_out_until = Some(now.after(upstream.left_out_for));
        is_news
    }

    /// A server has been reached. Whether that is news.
    pub fn reached(&mut self, place: usize) -> bool {
        self.all.get_mut(place).is_some_and(|upstream| {
            upstream.is_tried = false;
            upstream.left_out_until.take().is_some()
        })
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
        // Better than nobody.
        assert_eq!(next(&mut upstreams, at(0)), Some(0));
        assert!(upstreams.reached(0) && !upstreams.reached(0));
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
