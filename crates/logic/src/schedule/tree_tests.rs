//! The tree by ticks: exact orders and exact shares, no clock.

use super::{Cost, LeafId, PolicyKind, Share, Tree};
use std::collections::BTreeMap;

/// A root of one policy with a leaf for each share.
fn flat(policy: PolicyKind, shares: &[Share]) -> (Tree<u64>, Vec<LeafId>) {
    let mut tree = Tree::new(policy);
    let leaves = shares.iter().map(|&share| tree.add_leaf(tree.root(), share).unwrap()).collect();
    (tree, leaves)
}

fn weights(weights: &[u32]) -> Vec<Share> {
    weights.iter().map(|&weight| Share::weight(weight)).collect()
}

fn fill(tree: &mut Tree<u64>, leaves: &[LeafId], events: u64) {
    for event in 0..events {
        for &leaf in leaves {
            tree.push(leaf, event).unwrap();
        }
    }
}

/// Pops and charges `ticks` events of `cost_ns`; the leaves' positions in the order that they were served.
fn serve(tree: &mut Tree<u64>, leaves: &[LeafId], ticks: usize, cost_ns: u64) -> Vec<usize> {
    let positions: BTreeMap<LeafId, usize> = leaves.iter().copied().zip(0..).collect();
    (0..ticks)
        .map_while(|_| {
            let (leaf, _) = tree.pop()?;
            tree.charge(leaf, Cost::from_ns(cost_ns));
            Some(positions[&leaf])
        })
        .collect()
}

fn counts(order: &[usize], leaves: usize) -> Vec<usize> {
    (0..leaves).map(|leaf| order.iter().filter(|&&served| served == leaf).count()).collect()
}

#[test]
fn round_robin_takes_turns() {
    let (mut tree, leaves) = flat(PolicyKind::RoundRobin, &weights(&[1, 9, 1]));
    fill(&mut tree, &leaves, 3);
    assert_eq!(serve(&mut tree, &leaves, 100, 7), [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    assert!(tree.is_empty());
}

#[test]
fn weights_two_to_one_and_four_to_one_are_exact() {
    let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&[2, 1]));
    fill(&mut tree, &leaves, 10);
    assert_eq!(serve(&mut tree, &leaves, 9, 1_000), [0, 1, 0, 1, 0, 0, 1, 0, 0]);

    let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&[1, 4]));
    fill(&mut tree, &leaves, 20);
    assert_eq!(serve(&mut tree, &leaves, 10, 300), [0, 1, 1, 1, 1, 0, 1, 1, 1, 1]);
}

#[test]
fn sixteen_weights_are_exact_over_every_cycle() {
    let shares: Vec<u32> = (1..=16).collect();
    let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&shares));
    fill(&mut tree, &leaves, 16 * 50);
    for cycle in 0..50 {
        let order = serve(&mut tree, &leaves, 136, 4_999);
        assert_eq!(counts(&order, 16), (1..=16).collect::<Vec<_>>(), "cycle {cycle}");
    }
}

#[test]
fn strict_priority_starves_the_lower() {
    let shares = [Share::priority(0), Share::priority(7), Share::priority(7), Share::priority(255)];
    let (mut tree, leaves) = flat(PolicyKind::StrictPriority, &shares);
    fill(&mut tree, &leaves, 2);
    assert_eq!(serve(&mut tree, &leaves, 100, 5), [3, 3, 1, 2, 1, 2, 0, 0]);
}
