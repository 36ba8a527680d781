//! Leaves for work whose site isn't known yet, by client prefix and listener, so that one network's flood of connections or slow heads takes
//! its own turns and not everybody's. Decides at which leaf such work waits; it's moved to its site's leaf by [`Tree::transfer`].
//!
//! A set-associative table: a key has four places where its leaf can be. A place that has been idle is used again; when all four are
//! busy, one of them is shared.

use super::member::{LeafId, NodeId, TreeError};
use super::share::Share;
use super::tree::Tree;
use crate::client_prefix::ClientPrefix;
use crate::time::Instant;
use foldhash::fast::FixedState;
use std::hash::BuildHasher;
use std::net::IpAddr;

/// Leaves that there may be.
const PLACES: usize = 256;
/// Places where one key's leaf may be.
const WAYS: usize = 4;
/// How long a leaf must not have been asked for before another prefix gets it, in nanoseconds. By then its debts are a matter of the past.
const IDLE_NS: u64 = 1_000_000_000;

/// What is taken for one client, with the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Prefix {
    client: ClientPrefix,
    listener: u32,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    prefix: Prefix,
    leaf: LeafId,
    used: Instant,
}

/// The leaves below one node.
pub struct PrefixLeaves {
    node: NodeId,
    /// Leaves are made when they're first needed.
    places: Box<[Option<Place>; PLACES]>,
    hasher: FixedState,
    shared: u64,
}

impl PrefixLeaves {
    /// No leaves yet below `node`, whose policy should be weighted fair. `seed` should be unknown to clients.
    #[must_use]
    pub fn new(node: NodeId, seed: u64) -> PrefixLeaves {
        let hasher = FixedState::with_seed(seed);
        PrefixLeaves { node, places: Box::new([None; PLACES]), hasher, shared: 0 }
    }

    /// The leaf for work of `client` that came by `listener`.
    ///
    /// # Errors
    /// The node has been removed.
    pub fn leaf<E: Copy>(
        &mut self,
        tree: &mut Tree<E>,
        client: IpAddr,
        listener: u32,
        now: Instant,
    ) -> Result<LeafId, TreeError> {
        let prefix = Prefix { client: ClientPrefix::of(client), listener };
        let hash = self.hasher.hash_one(prefix);
        let set = (hash as usize % (PLACES / WAYS)) * WAYS;
        let ways = &mut self.places[set..set + WAYS];
        if let Some(place) = ways.iter_mut().flatten().find(|place| place.prefix == prefix) {
            place.used = now;
            return Ok(place.leaf);
        }
        if let Some(free) = ways.iter_mut().find(|way| way.is_none()) {
            let leaf = tree.add_leaf(self.node, Share::default())?;
            *free = Some(Place { prefix, leaf, used: now });
            return Ok(leaf);
        }
        let is_idle = |place: &Place| now.ns.saturating_sub(place.used.ns) >= IDLE_NS && tree.queued(place.leaf) == 0;
        if let Some(place) = ways.iter_mut().flatten().filter(|place| is_idle(place)).min_by_key(|place| place.used) {
            (place.prefix, place.used) = (prefix, now);
            return Ok(place.leaf);
        }
        self.shared += 1;
        let way = (hash >> 32) as usize % WAYS;
        ways[way].map(|place| place.leaf).ok_or(TreeError::Removed(self.node.into()))
    }

    /// How often a prefix had to share another's leaf, for the metrics.
    #[must_use]
    pub fn shared(&self) -> u64 {
        self.shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Cost, PolicyKind};
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    fn v4(number: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(number))
    }

    fn at_s(s: u64) -> Instant {
        Instant { ns: s * 1_000_000_000 }
    }

    fn branch() -> (Tree<u32>, PrefixLeaves) {
        let mut tree = Tree::new(PolicyKind::WeightedFair);
        let node = tree.add_node(tree.root(), PolicyKind::WeightedFair, Share::default()).unwrap();
        (tree, PrefixLeaves::new(node, 7))
    }

    #[test]
    fn a_prefix_on_a_listener_is_one_client() {
        let (mut tree, mut leaves) = branch();
        let mut leaf =
            |client: &str, listener| leaves.leaf(&mut tree, client.parse().unwrap(), listener, at_s(0)).unwrap();
        let first = leaf("192.0.2.1", 0);
        assert_eq!(leaf("192.0.2.254", 0), first);
        assert_eq!(leaf("::ffff:192.0.2.9", 0), first);
        assert_ne!(leaf("192.0.3.1", 0), first);
        assert_ne!(leaf("192.0.2.1", 1), first);
        let sixth = leaf("2001:db8:0:1::1", 0);
        assert_eq!(leaf("2001:db8:0:ff::2", 0), sixth);
        assert_ne!(leaf("2001:db8:0:100::1", 0), sixth);
    }

    #[test]
    fn leaves_are_bounded_and_idle_ones_are_used_again() {
        let (mut tree, mut leaves) = branch();
        let names: BTreeSet<LeafId> =
            (0..100_000).map(|it| leaves.leaf(&mut tree, v4(it << 8), 0, at_s(0)).unwrap()).collect();
        assert_eq!(names.len(), PLACES);
        let shared = leaves.shared();
        assert!(shared >= 100_000 - PLACES as u64);
        for it in 0..PLACES as u32 {
            leaves.leaf(&mut tree, v4(0x0a00_0000 + (it << 8)), 0, at_s(2 + u64::from(it))).unwrap();
        }
        assert_eq!(leaves.shared(), shared, "all were idle");
        assert_eq!(tree.members().count(), 2 + PLACES);
    }

    #[test]
    fn a_leaf_with_events_is_not_given_away() {
        let (mut tree, mut leaves) = branch();
        for it in 0..10_000 {
            let leaf = leaves.leaf(&mut tree, v4(it << 8), 0, at_s(0)).unwrap();
            tree.push(leaf, it).unwrap();
        }
        let shared = leaves.shared();
        leaves.leaf(&mut tree, v4(0x0a00_0000), 0, at_s(100)).unwrap();
        assert_eq!(leaves.shared(), shared + 1);
    }

    #[test]
    fn a_flood_takes_its_own_turns() {
        let (mut tree, mut leaves) = branch();
        let flood = leaves.leaf(&mut tree, v4(0x0a00_0001), 0, at_s(0)).unwrap();
        (0..1_000).for_each(|it| tree.push(flood, it).unwrap());
        for _ in 0..100 {
            let (leaf, _) = tree.pop().unwrap();
            tree.charge(leaf, Cost::from_ns(5_000));
        }
        let other = leaves.leaf(&mut tree, v4(0x0b00_0001), 0, at_s(0)).unwrap();
        tree.push(other, 7).unwrap();
        assert_eq!(tree.pop(), Some((other, 7)), "served at once");
    }

    #[test]
    fn what_a_head_cost_is_moved_to_its_site() {
        let (mut tree, mut leaves) = branch();
        let site = tree.add_leaf(tree.root(), Share::default()).unwrap();
        let client = leaves.leaf(&mut tree, v4(1), 0, at_s(0)).unwrap();
        let all = tree.root();
        tree.push(client, 1).unwrap();
        tree.pop().unwrap();
        tree.charge(client, Cost::from_ns(3_000));
        tree.transfer(client, site, 2_000);
        let charged = |tree: &Tree<u32>, leaf| tree.usage(leaf).unwrap().charged_ns;
        assert_eq!((charged(&tree, client), charged(&tree, site)), (1_000, 2_000));
        tree.transfer(client, site, 5_000);
        assert_eq!((charged(&tree, client), charged(&tree, site)), (0, 3_000), "no more than there is");
        assert_eq!(tree.usage(all).unwrap().charged_ns, 3_000);
    }
}
