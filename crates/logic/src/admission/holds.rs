//! Connections that were refused something and aren't served for a while, though they're listened to: who of them is next. In which order, is decided here;
//! how many are let go before their time is for `site`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::limits::{FRESH_NS, HOLD_MAX_NS};
use crate::time::Instant;

/// All that are held, by site. One that has been let go before its time, or has ended, may be told once more: the connection knows until when it's held.
#[derive(Debug)]
pub struct Holds<K> {
    sites: BTreeMap<u32, Held<K>>,
    next: Instant,
}

#[derive(Debug)]
struct Held<K> {
    /// In the order in which they end.
    ends: BTreeSet<(Instant, K)>,
    /// Who has asked meanwhile, and when.
    asked: VecDeque<(Instant, K)>,
}

impl<K> Default for Holds<K> {
    fn default() -> Holds<K> {
        Holds { sites: BTreeMap::new(), next: Instant::NEVER }
    }
}

impl<K: Copy + Ord> Holds<K> {
    /// When there's something to be done.
    #[must_use]
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Has [`Holds::next`] be no later than that.
    pub fn look_at(&mut self, at: Instant) {
        self.next = self.next.min(at);
    }

    /// Whether nobody is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    /// Sites that hold any.
    #[must_use]
    pub fn sites(&self) -> Vec<u32> {
        self.sites.keys().copied().collect()
    }

    /// A connection is held from now on.
    pub fn add(&mut self, site: u32, connection: K, until: Instant) {
        let held = self.sites.entry(site).or_insert(Held { ends: BTreeSet::new(), asked: VecDeque::new() });
        held.ends.insert((until, connection));
        self.look_at(until);
    }

    /// One that is held has asked for something. To be told once while it's held.
    pub fn ask(&mut self, site: u32, connection: K, now: Instant) {
        let Some(held) = self.sites.get_mut(&site) else { return };
        // Nobody is held for longer than that.
        while held.asked.front().is_some_and(|&(at, _)| now.ns.saturating_sub(at.ns) > HOLD_MAX_NS) {
            held.asked.pop_front();
        }
        held.asked.push_back((now, connection));
        self.look_at(now);
    }

    /// The one of a site's that has asked last, if what it asks may still be served soon enough.
    pub fn take_fresh(&mut self, site: u32, now: Instant) -> Option<K> {
        let asked = &mut self.sites.get_mut(&site)?.asked;
        asked.pop_back_if(|(at, _)| now.ns.saturating_sub(at.ns) < FRESH_NS).map(|(_, connection)| connection)
    }

    /// Whether one of a site's has asked.
    #[must_use]
    pub fn has_asked(&self, site: u32) -> bool {
        self.sites.get(&site).is_some_and(|held| !held.asked.is_empty())
    }

    /// The one of a site's that has waited longest for an answer.
    pub fn take_stale(&mut self, site: u32) -> Option<K> {
        self.sites.get_mut(&site)?.asked.pop_front().map(|(_, connection)| connection)
    }

    /// All whose time is over, each with when that was.
    pub fn take_ended(&mut self, now: Instant) -> Vec<(Instant, K)> {
        let mut ended = Vec::new();
        if now < self.next {
            return ended;
        }
        self.sites.retain(|_, held| {
            while held.ends.first().is_some_and(|&(until, _)| until <= now) {
                ended.extend(held.ends.pop_first());
            }
            !held.ends.is_empty()
        });
        let first = self.sites.values().filter_map(|held| held.ends.first());
        self.next = first.map(|&(until, _)| until).min().unwrap_or(Instant::NEVER);
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant { ns: 1_000_000_000 + ms * 1_000_000 }
    }

    #[test]
    fn who_has_just_asked_is_next_and_then_who_has_waited_longest() {
        let mut holds = Holds::default();
        (0..5).for_each(|number| holds.add(1, number, at(2_000 + number)));
        for (number, ms) in [(3, 0), (1, 1), (4, 20), (2, 24)] {
            holds.ask(1, number, at(ms));
            holds.ask(2, number, at(ms));
        }
        let fresh: Vec<u64> = std::iter::from_fn(|| holds.take_fresh(1, at(24))).collect();
        assert_eq!(fresh, [2, 4], "the others asked too long ago");
        let stale: Vec<u64> = std::iter::from_fn(|| holds.take_stale(1)).collect();
        assert_eq!(stale, [3, 1], "the first hasn't asked");
        assert!(!holds.has_asked(1) && holds.take_fresh(2, at(24)).is_none(), "nobody is held there");
        holds.ask(1, 0, at(30));
        holds.ask(1, 1, at(3_000));
        assert_eq!(holds.take_stale(1), Some(1), "the other's time must be over");
    }

    #[test]
    fn whose_time_is_over_is_told_once_and_when_to_look_next() {
        let mut holds = Holds::default();
        assert!(holds.is_empty() && holds.next() == Instant::NEVER);
        [(2, 20, 300), (1, 10, 100), (1, 11, 100), (1, 12, 200)]
            .into_iter()
            .for_each(|(site, number, ms)| holds.add(site, number, at(ms)));
        assert_eq!((holds.next(), holds.sites()), (at(100), vec![1, 2]));
        assert_eq!(holds.take_ended(at(99)), []);
        assert_eq!(holds.take_ended(at(100)), [(at(100), 10), (at(100), 11)]);
        assert_eq!(holds.next(), at(200));
        holds.ask(1, 12, at(150));
        assert_eq!(holds.next(), at(150), "somebody has asked");
        assert_eq!((holds.take_ended(at(150)), holds.next()), (vec![], at(200)));
        holds.look_at(at(180));
        assert_eq!(holds.next(), at(180));
        assert_eq!(holds.take_ended(at(500)), [(at(200), 12), (at(300), 20)]);
        assert!(holds.is_empty() && holds.next() == Instant::NEVER);
        assert_eq!(holds.take_stale(1), None);
    }
}
