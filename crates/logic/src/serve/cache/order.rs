//! Which entry goes first: SIEVE (Zhang et al., NSDI 2024).
//!
//! Entries stand in the order of their arrival, each with one bit for "used since the hand last came by". The hand walks from the oldest to
//! the newest; it takes the bit from those that have it and takes out the first that hasn't. A hit moves nothing, and a crowd of names that
//! are asked for once goes at the hand's next round, while those that are used stay.

/// No entry.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    newer: u32,
    older: u32,
}

/// The links between entries, shared by all orders: an entry is in one of them. The bits stand apart, dense: they're all that a hit touches.
#[derive(Debug, Default)]
pub(super) struct Links {
    links: Vec<Link>,
    used: Vec<u64>,
}

impl Links {
    #[inline]
    pub(super) fn mark_used(&mut self, place: u32) {
        if let Some(bits) = self.used.get_mut(place as usize / 64) {
            *bits |= 1 << (place % 64);
        }
    }

    pub(super) fn is_used(&self, place: u32) -> bool {
        self.used.get(place as usize / 64).is_some_and(|bits| bits >> (place % 64) & 1 == 1)
    }

    fn clear_used(&mut self, place: u32) {
        if let Some(bits) = self.used.get_mut(place as usize / 64) {
            *bits &= !(1 << (place % 64));
        }
    }
}

/// One order of arrival, with its hand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    newest: u32,
    oldest: u32,
    hand: u32,
    count: usize,
}

impl Default for Order {
    fn default() -> Order {
        Order { newest: NONE, oldest: NONE, hand: NONE, count: 0 }
    }
}

impl Order {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Puts an entry that is in no order at the newest end, unused.
    pub(super) fn push(&mut self, links: &mut Links, place: u32) {
        if links.links.len() <= place as usize {
            links.links.resize(place as usize + 1, Link { newer: NONE, older: NONE });
            links.used.resize(place as usize / 64 + 1, 0);
        }
        links.links[place as usize] = Link { newer: NONE, older: self.newest };
        links.clear_used(place);
        match links.links.get_mut(self.newest as usize) {
            Some(before) => before.newer = place,
            None => self.oldest = place,
        }
        self.newest = place;
        self.count += 1;
    }

    /// Takes out an entry that is in this order.
    pub(super) fn remove(&mut self, links: &mut Links, place: u32) {
        let Link { newer, older } = links.links[place as usize];
        match links.links.get_mut(newer as usize) {
            Some(link) => link.older = older,
            None => self.newest = older,
        }
        match links.links.get_mut(older as usize) {
            Some(link) => link.newer = newer,
            None => self.oldest = newer,
        }
        if self.hand == place {
            self.hand = newer;
        }
        self.count -= 1;
    }

    /// The entry that goes next, which the caller then has to remove; none when the order is empty.
    pub(super) fn victim(&mut self, links: &mut Links) -> Option<u32> {
        let mut place = if self.hand == NONE { self.oldest } else { self.hand };
        // Ends within one round and a step: the first round takes every bit.
        while let Some(&Link { newer, .. }) = links.links.get(place as usize) {
            if !links.is_used(place) {
                self.hand = place;
                return Some(place);
            }
            links.clear_used(place);
            place = if newer == NONE { self.oldest } else { newer };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evict(order: &mut Order, links: &mut Links) -> Option<u32> {
        let victim = order.victim(links)?;
        order.remove(links, victim);
        Some(victim)
    }

    #[test]
    fn the_paper_s_example_in_exact_order() {
        // Figure 2 of the paper in small: A..G arrive, A, B and G are used; the hand passes A and B and takes C, then D.
        let (mut order, mut links) = (Order::default(), Links::default());
        for place in 0..7 {
            order.push(&mut links, place);
        }
        for used in [0, 1, 6] {
            links.mark_used(used);
        }
        assert_eq!(evict(&mut order, &mut links), Some(2));
        order.push(&mut links, 7);
        links.mark_used(0);
        assert_eq!(evict(&mut order, &mut links), Some(3));
        order.push(&mut links, 8);
        links.mark_used(1);
        assert_eq!(evict(&mut order, &mut links), Some(4));
        // On to F, past G whose bit goes, the newcomers, round to the oldest.
        let rest: Vec<_> = std::iter::from_fn(|| evict(&mut order, &mut links)).collect();
        assert_eq!(rest, [5, 7, 8, 6, 0, 1]);
        assert_eq!(order.count(), 0);
    }

    #[test]
    fn entries_may_go_out_of_turn_wherever_the_hand_is() {
        let (mut order, mut links) = (Order::default(), Links::default());
        for place in 0..4 {
            order.push(&mut links, place);
        }
        assert_eq!(order.victim(&mut links), Some(0));
        order.remove(&mut links, 3);
        order.remove(&mut links, 0);
        order.push(&mut links, 0);
        assert_eq!(evict(&mut order, &mut links), Some(1));
        assert_eq!(evict(&mut order, &mut links), Some(2));
        assert_eq!(evict(&mut order, &mut links), Some(0));
        assert_eq!(evict(&mut order, &mut links), None);
    }

    #[test]
    fn names_asked_for_once_do_not_push_out_those_in_use() {
        let (mut order, mut links) = (Order::default(), Links::default());
        for place in 0..100 {
            order.push(&mut links, place);
        }
        let mut lost = 0;
        for _ in 0..10_000 {
            for used in 0..20 {
                links.mark_used(used);
            }
            let victim = evict(&mut order, &mut links).unwrap();
            lost += u32::from(victim < 20);
            order.push(&mut links, victim);
        }
        assert_eq!(lost, 0);
    }
}
