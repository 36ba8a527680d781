//! Who is received from while more of a site's memory is held than may be. Whoever's next bytes go on at once is: they let go of what is held, or a program
//! waits for them. Of those whose content has to lie here as a whole, the one that has waited longest is, until it lies here no more. Nobody else is. So
//! however many wait, something that is held is let go, and all come to their turn. When too much is held, is `quota`'s to say.

use std::collections::BTreeMap;

use crate::time::Instant;

/// What becomes of what somebody sends next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It completes a head, which has a limit of its own; or a program that has had all before it takes it; or it's thrown away.
    GoesOn,
    /// It's kept until all has come.
    IsGathered,
    /// It's the first of something, or there is no place for it yet.
    Waits,
}

/// One that isn't received from.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    since: Instant,
    /// In the line of those who gather.
    place: Option<u64>,
}

/// Those of one site that aren't received from, since too much is held.
#[derive(Debug)]
pub struct Unread<K> {
    all: BTreeMap<K, Waiting>,
    /// Those who gather, by their places: in the order in which they have come.
    line: BTreeMap<u64, K>,
    places: u64,
    /// Who gathers at present.
    first: Option<K>,
}

impl<K> Default for Unread<K> {
    fn default() -> Unread<K> {
        Unread { all: BTreeMap::new(), line: BTreeMap::new(), places: 0, first: None }
    }
}

impl<K: Copy + Ord> Unread<K> {
    /// Whether somebody is received from although too much is held; if not, it waits from now on.
    pub fn ask(&mut self, who: K, next: Next, now: Instant) -> bool {
        if next == Next::GoesOn || next == Next::IsGathered && self.first == Some(who) {
            return true;
        }
        let waiting = self.all.entry(who).or_insert(Waiting { since: now, place: None });
        if next == Next::IsGathered && waiting.place.is_none() {
            self.places += 1;
            waiting.place = Some(self.places);
            self.line.insert(self.places, who);
        }
        false
    }

    /// Whether it's the one that gathers.
    #[must_use]
    pub fn is_first(&self, who: K) -> bool {
        self.first == Some(who)
    }

    /// Whose turn it is to gather, if the one before has come to its end: `gathers` says of somebody whether content of it lies here, or will.
    pub fn next_first(&mut self, mut gathers: impl FnMut(K) -> bool) -> Option<K> {
        if self.first.is_some_and(&mut gathers) {
            return None;
        }
        self.first = None;
        while let Some((_, who)) = self.line.pop_first() {
            if let Some(waiting) = self.all.get_mut(&who) {
                waiting.place = None;
            }
            if gathers(who) {
                self.first = Some(who);
                break;
            }
        }
        self.first
    }

    /// Somebody is received from again; since when it wasn't.
    pub fn end_wait(&mut self, who: K) -> Option<Instant> {
        let waiting = self.all.remove(&who)?;
        waiting.place.and_then(|place| self.line.remove(&place));
        Some(waiting.since)
    }

    /// Somebody has gone.
    pub fn forget(&mut self, who: K) {
        self.end_wait(who);
        self.first.take_if(|first| *first == who);
    }

    /// There is room: all are received from, each since when it wasn't.
    #[must_use]
    pub fn end_all(&mut self) -> Vec<(K, Instant)> {
        self.line.clear();
        self.first = None;
        std::mem::take(&mut self.all).into_iter().map(|(who, waiting)| (who, waiting.since)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Instant {
        Instant { ns }
    }

    #[test]
    fn what_goes_on_is_received_and_what_begins_waits() {
        let mut unread = Unread::default();
        assert!(unread.ask('a', Next::GoesOn, at(1)));
        assert!(!unread.ask('b', Next::Waits, at(1)) && !unread.ask('b', Next::Waits, at(2)));
        assert!(unread.ask('b', Next::GoesOn, at(3)), "whoever it was before");
        assert_eq!(unread.end_wait('b'), Some(at(1)));
        assert_eq!((unread.end_wait('b'), unread.end_wait('a')), (None, None));
        assert_eq!(unread.next_first(|_| true), None, "nobody gathers");
    }

    #[test]
    fn who_has_waited_longest_gathers_until_it_is_done() {
        let mut unread = Unread::default();
        for (who, ns) in [('c', 1), ('a', 2), ('b', 3), ('a', 4)] {
            assert!(!unread.ask(who, Next::IsGathered, at(ns)));
        }
        assert_eq!(unread.next_first(|_| true), Some('c'));
        assert_eq!(unread.end_wait('c'), Some(at(1)));
        assert!(unread.ask('c', Next::IsGathered, at(5)) && unread.is_first('c'));
        assert!(!unread.ask('a', Next::IsGathered, at(5)));
        assert_eq!(unread.next_first(|who| who == 'c'), None, "it isn't done");
        // Its content is with its program; who came next has been answered otherwise.
        assert_eq!(unread.next_first(|who| who == 'b'), Some('b'));
        unread.forget('b');
        assert!(!unread.ask('a', Next::IsGathered, at(6)), "it stands in line again");
        assert_eq!(unread.next_first(|_| true), Some('a'));
        assert_eq!(unread.next_first(|_| false), None);
    }

    #[test]
    fn who_has_gone_leaves_nothing_in_the_way() {
        let mut unread = Unread::default();
        for who in 0..100 {
            unread.ask(who, Next::IsGathered, at(1));
            unread.forget(who - 1);
        }
        assert_eq!(unread.next_first(|_| true), Some(99));
        assert!(unread.line.is_empty());
        unread.ask(7, Next::IsGathered, at(2));
        assert_eq!(unread.end_all(), [(7, at(2)), (99, at(1))]);
        assert!(unread.all.is_empty() && unread.line.is_empty() && unread.first.is_none());
    }
}
