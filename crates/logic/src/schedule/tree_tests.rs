//! The tree by ticks: exact orders and exact shares, no clock.

use super::calendar::is_before;
use super::policy::AnyPolicy;
use super::{Cost, DEPTH_MAX, LeafId, Member, PolicyKind, Refused, Share, Tree, TreeError};
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
fn weights_without_a_common_measure_are_exact_in_the_long_run() {
    let shares = [17, 19, 65_535 / 1_000, 101];
    let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&shares));
    let total: u32 = shares.iter().sum();
    fill(&mut tree, &leaves, 101 * 1_000);
    let order = serve(&mut tree, &leaves, total as usize * 900, 777);
    for (leaf, &served) in counts(&order, 4).iter().enumerate() {
        assert!(served.abs_diff(shares[leaf] as usize * 900) <= 1, "{leaf}: {served}");
    }
}

#[test]
fn shares_are_of_cost_and_not_of_events() {
    let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&[1, 1, 2]));
    let costs_ns = [10_000, 1_000, 500];
    fill(&mut tree, &leaves, 3_000);
    for _ in 0..1_000 {
        let (leaf, _) = tree.pop().unwrap();
        let at = leaves.iter().position(|&it| it == leaf).unwrap();
        tree.charge(leaf, Cost::from_ns(costs_ns[at]));
    }
    let charged: Vec<u64> = leaves.iter().map(|&leaf| tree.usage(leaf).unwrap().charged_ns).collect();
    // None is further from its share than by its largest event.
    assert!(charged[0].abs_diff(charged[1]) <= 10_000, "{charged:?}");
    assert!(charged[2].abs_diff(2 * charged[1]) <= 2_000, "{charged:?}");
}

#[test]
fn three_owners_share_exactly_whatever_their_sites_want() {
    let mut tree = Tree::new(PolicyKind::WeightedFair);
    let mut sites = Vec::new();
    for (weight, site_weights) in [(3, &[1, 2][..]), (2, &[1, 1, 1, 1][..]), (1, &[5][..])] {
        let owner = tree.add_node(tree.root(), PolicyKind::WeightedFair, Share::weight(weight)).unwrap();
        sites.extend(site_weights.iter().map(|&it| tree.add_leaf(owner, Share::weight(it)).unwrap()));
    }
    fill(&mut tree, &sites, 1_000);
    let order = serve(&mut tree, &sites, 6 * 12 * 10, 2_000);
    assert_eq!(counts(&order, 7), [120, 240, 60, 60, 60, 60, 120]);
    let usage = tree.usage(tree.root()).unwrap();
    assert_eq!((usage.served, usage.charged_ns, usage.queued), (720, 720 * 2_000, 7_000 - 720));
}

#[test]
fn strict_priority_starves_the_lower() {
    let shares = [Share::priority(0), Share::priority(7), Share::priority(7), Share::priority(255)];
    let (mut tree, leaves) = flat(PolicyKind::StrictPriority, &shares);
    fill(&mut tree, &leaves, 2);
    assert_eq!(serve(&mut tree, &leaves, 5, 5), [3, 3, 1, 2, 1]);
    tree.push(leaves[3], 0).unwrap();
    assert_eq!(serve(&mut tree, &leaves, 100, 5), [3, 2, 0, 0]);
}

#[test]
fn a_priority_that_changes_counts_for_events_that_are_queued() {
    let (mut tree, leaves) = flat(PolicyKind::StrictPriority, &[Share::priority(1), Share::priority(2)]);
    fill(&mut tree, &leaves, 2);
    tree.set_share(leaves[0], Share::priority(3)).unwrap();
    assert_eq!(serve(&mut tree, &leaves, 100, 5), [0, 0, 1, 1]);
}

#[test]
fn a_child_that_idles_saves_nothing_and_is_served_at_once_when_it_wakes() {
    let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&[1, 1]));
    fill(&mut tree, &leaves[..1], 1_000);
    assert_eq!(serve(&mut tree, &leaves, 500, 10_000), [0; 500]);
    fill(&mut tree, &leaves[1..], 100);
    let order = serve(&mut tree, &leaves, 20, 10_000);
    assert_eq!(order[..2], [1, 0], "served at once");
    assert_eq!(counts(&order, 2), [10, 10], "no more than its share");
}

#[test]
fn who_wants_less_than_its_share_comes_first_for_as_long_as_it_may_lag() {
    let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&[1, 3]));
    tree.set_lag_max([tree.root()], Cost::from_ns(20_000)).unwrap();
    fill(&mut tree, &leaves[..1], 1_000);
    serve(&mut tree, &leaves, 500, 1_000);
    fill(&mut tree, &leaves[1..], 100);
    // Three quarters of 20 us, and of the 4 us that go with the other's last event.
    assert_eq!(serve(&mut tree, &leaves, 19, 1_000), [vec![1; 18], vec![0]].concat());
    assert_eq!(counts(&serve(&mut tree, &leaves, 80, 1_000), 2), [20, 60]);

    // Who wants something all the time, but less than its share, lags as well.
    serve(&mut tree, &leaves, 400, 1_000);
    fill(&mut tree, &leaves[..1], 1_000);
    serve(&mut tree, &leaves, 500, 1_000);
    for event in 0..100 {
        tree.push(leaves[1], event).unwrap();
        assert_eq!(serve(&mut tree, &leaves, 2, 1_000), [1, 0], "{event}");
    }
    fill(&mut tree, &leaves[1..], 100);
    assert_eq!(serve(&mut tree, &leaves, 15, 1_000), [1; 15]);
}

#[test]
fn work_that_others_pay_for_does_not_come_before_who_wants_less_than_its_share() {
    for keeps in [false, true] {
        let (mut tree, mut leaves) = flat(PolicyKind::WeightedFair, &weights(&[1, 1]));
        tree.set_lag_max([tree.root()], Cost::from_ns(30_000)).unwrap();
        let node = tree.add_node(tree.root(), PolicyKind::WeightedFair, Share::weight(1)).unwrap();
        leaves.push(tree.add_leaf(node, Share::default()).unwrap());
        if keeps {
            tree.keep_charges(node).unwrap();
        }
        // The first and the last always want more, and the first pays for all that the last does; the second wants a quarter.
        let (mut first, mut served) = (0, vec![0; 3]);
        for event in 0..1_000 {
            fill(&mut tree, &[leaves[0], leaves[2]], 4);
            tree.push(leaves[1], event).unwrap();
            for place in 0..4 {
                let leaf = serve(&mut tree, &leaves, 1, 1_000)[0];
                if leaf == 2 {
                    tree.transfer(leaves[2], leaves[0], 1_000);
                }
                first += usize::from(place == 0 && leaf == 1);
                served[leaf] += 1;
            }
        }
        assert_eq!(tree.served(leaves[2]).1, 0, "the leaf has given back what it was charged");
        if keeps {
            assert!(first > 990 && served[1] == 1_000, "{first} {served:?}");
        } else {
            assert!(served[1] < 300, "{served:?}");
        }
    }
}

/// A tree whose second leaf, and two more below a node that keeps its charges, are siblings.
fn with_keeper() -> (Tree<u64>, Vec<LeafId>) {
    let (mut tree, mut leaves) = flat(PolicyKind::WeightedFair, &weights(&[1, 1]));
    let keeper = tree.add_node(tree.root(), PolicyKind::WeightedFair, Share::weight(1)).unwrap();
    tree.keep_charges(keeper).unwrap();
    leaves.extend((0..2).map(|_| tree.add_leaf(keeper, Share::default()).unwrap()));
    (tree, leaves)
}

#[test]
fn who_has_others_pay_for_it_does_not_come_before_its_siblings() {
    let (mut tree, leaves) = with_keeper();
    // The third has the first pay for all that it does; the fourth pays itself, and each of its events costs three times as much.
    fill(&mut tree, &leaves[2..], 1_000);
    let mut served = [0_u64; 4];
    for _ in 0..1_000 {
        let (leaf, _) = tree.pop().unwrap();
        let place = leaves.iter().position(|&it| it == leaf).unwrap();
        served[place] += 1;
        let cost_ns = if place == 3 { 3_000 } else { 1_000 };
        tree.charge(leaf, Cost::from_ns(cost_ns));
        if place == 2 {
            tree.transfer(leaf, leaves[0], cost_ns);
        }
    }
    assert!(served[2].abs_diff(750) <= 4, "{served:?}");
}

#[test]
fn what_comes_back_to_a_node_that_keeps_its_charges_is_not_charged_there_twice() {
    let (mut tree, leaves) = with_keeper();
    fill(&mut tree, &leaves[1..3], 1_000);
    let mut served = [0_u64; 4];
    for _ in 0..1_000 {
        let (leaf, _) = tree.pop().unwrap();
        let place = leaves.iter().position(|&it| it == leaf).unwrap();
        served[place] += 1;
        tree.charge(leaf, Cost::from_ns(1_000));
        if place == 2 {
            tree.transfer(leaf, leaves[0], 1_000);
            tree.return_to_keeper(leaves[0], leaves[3], 1_000);
        }
    }
    assert!(served[1].abs_diff(500) <= 2, "{served:?}");
    let charged = leaves.iter().map(|&leaf| tree.served(leaf).1).collect::<Vec<_>>();
    assert_eq!(charged, [0, served[1] * 1_000, 0, served[2] * 1_000]);
    tree.push(leaves[0], 0).unwrap();
    assert_eq!(tree.pop().map(|(leaf, _)| leaf), Some(leaves[0]), "it has paid for nothing");
}

#[test]
fn those_that_lag_keep_the_others_waiting_no_longer_than_is_set() {
    let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&[1, 1, 2, 3, 4]));
    tree.set_lag_max([tree.root()], Cost::from_ns(110_000)).unwrap();
    fill(&mut tree, &leaves[..1], 1_000);
    serve(&mut tree, &leaves, 500, 1_000);
    fill(&mut tree, &leaves[1..], 200);
    let order = serve(&mut tree, &leaves, 200, 1_000);
    let first = order.iter().position(|&leaf| leaf == 0).unwrap();
    assert!((100..=111).contains(&first), "{first}");
}

#[test]
fn a_child_that_sleeps_after_every_event_cannot_get_more_than_its_share() {
    let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&[1, 1]));
    fill(&mut tree, &leaves[..1], 1_000);
    let mut order = Vec::new();
    for _ in 0..100 {
        if tree.usage(leaves[1]).unwrap().queued == 0 {
            tree.push(leaves[1], 0).unwrap();
        }
        order.extend(serve(&mut tree, &leaves, 1, 3_000));
    }
    assert_eq!(counts(&order, 2), [50, 50]);
}

#[test]
fn a_weight_that_changes_counts_from_then_on() {
    let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&[1, 1]));
    fill(&mut tree, &leaves, 1_000);
    assert_eq!(counts(&serve(&mut tree, &leaves, 100, 5_000), 2), [50, 50]);
    tree.set_share(leaves[0], Share::weight(3)).unwrap();
    let order = serve(&mut tree, &leaves, 100, 5_000);
    assert_eq!(counts(&order, 2), [75, 25]);
    assert_eq!(tree.share(leaves[0]), Ok(Share::weight(3)));
}

#[test]
fn costs_that_come_late_are_charged_exactly() {
    let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&[1, 1]));
    fill(&mut tree, &leaves, 1_000);
    let mut out = Vec::new();
    for _ in 0..600 {
        out.push(tree.pop().unwrap().0);
        if out.len() == 4 {
            for leaf in out.drain(..) {
                tree.charge(leaf, Cost::from_ns(if leaf == leaves[0] { 30_000 } else { 10_000 }));
            }
        }
    }
    let usages: Vec<_> = leaves.iter().map(|&leaf| tree.usage(leaf).unwrap()).collect();
    assert_eq!(usages[0].uncharged + usages[1].uncharged, 0);
    assert_eq!(usages[0].charged_ns, usages[0].served * 30_000);
    assert_eq!(usages[1].charged_ns, usages[1].served * 10_000);
    assert!(usages[0].charged_ns.abs_diff(usages[1].charged_ns) <= 4 * 30_000, "{usages:?}");
}

#[test]
fn what_has_been_used_is_told_once() {
    let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&[1, 1, 1]));
    let told = |tree: &mut Tree<u64>| {
        let mut told = Vec::new();
        tree.take_used(|leaf, served, ns| told.push((leaves.iter().position(|&it| it == leaf).unwrap(), served, ns)));
        told
    };
    assert_eq!(told(&mut tree), []);
    tree.push(leaves[0], 1).unwrap();
    for _ in 0..2 {
        assert_eq!(told(&mut tree), [(0, 0, 0)], "as long as something waits");
    }
    tree.pop();
    assert_eq!(told(&mut tree), [(0, 0, 0)]);
    tree.charge(leaves[0], Cost::from_ns(500));
    assert_eq!(told(&mut tree), [(0, 1, 500)]);
    assert_eq!(told(&mut tree), []);
    tree.correct(leaves[1], 700);
    assert_eq!(told(&mut tree), [(1, 0, 700)]);
    tree.transfer(leaves[1], leaves[2], 300);
    assert_eq!(told(&mut tree), [(1, 0, -300), (2, 0, 300)]);
}

#[test]
fn an_event_that_is_never_charged_is_not_free() {
    let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&[1, 1]));
    fill(&mut tree, &leaves, 100);
    let order: Vec<_> = (0..6).map(|_| tree.pop().unwrap().0).collect();
    assert_eq!(order, [leaves[0], leaves[1], leaves[0], leaves[1], leaves[0], leaves[1]]);
    assert_eq!(tree.usage(leaves[0]).unwrap().uncharged, 3);
}

#[test]
fn a_correction_moves_a_child_that_is_queued() {
    let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&[1, 1, 1]));
    fill(&mut tree, &leaves, 100);
    assert_eq!(serve(&mut tree, &leaves, 3, 1_000), [0, 1, 2]);
    tree.correct(leaves[0], 2_500);
    assert_eq!(serve(&mut tree, &leaves, 8, 1_000), [1, 2, 1, 2, 1, 2, 0, 1]);
    // What was taken is given back: a turn late at most, and exactly.
    tree.correct(leaves[0], -2_500);
    let order = serve(&mut tree, &leaves, 30, 1_000);
    let served: Vec<u64> = leaves.iter().map(|&leaf| tree.usage(leaf).unwrap().served).collect();
    assert!(served.iter().max().unwrap() - served.iter().min().unwrap() <= 1, "{served:?} {order:?}");
}

#[test]
fn virtual_time_may_wrap() {
    for start in [u64::MAX - 5_000_000_000, u64::MAX / 2 - 5_000_000_000, (1 << 58) - 1, u64::MAX] {
        let mut tree = Tree::new(PolicyKind::WeightedFair);
        tree.policies[0] = AnyPolicy::weighted_fair_at(start);
        let leaves: Vec<_> =
            [1, 2, 3].iter().map(|&it| tree.add_leaf(tree.root(), Share::weight(it)).unwrap()).collect();
        fill(&mut tree, &leaves, 1_000);
        for cycle in 0..100 {
            assert_eq!(counts(&serve(&mut tree, &leaves, 6, 600), 3), [1, 2, 3], "from {start}, cycle {cycle}");
        }
    }
}

#[test]
fn a_child_is_served_at_once_however_long_it_has_slept() {
    // Each event is as long as virtual time can take at once, so that it goes round its whole circle in 128.
    for ticks in 1..300 {
        let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&[1, 1]));
        fill(&mut tree, &leaves[..1], 400);
        assert_eq!(serve(&mut tree, &leaves, ticks, u64::MAX), vec![0; ticks]);
        tree.push(leaves[1], 0).unwrap();
        assert_eq!(serve(&mut tree, &leaves, 1, 1), [1], "after {ticks}");
    }
}

#[test]
fn a_debt_is_limited() {
    let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&[1, 1]));
    for _ in 0..100 {
        tree.correct(leaves[0], i64::MAX);
        tree.correct(leaves[1], i64::MIN);
    }
    fill(&mut tree, &leaves, 10);
    let order = serve(&mut tree, &leaves, 20, 1_000);
    assert_eq!(order, [[1; 10], [0; 10]].concat());
}

#[test]
fn removal_gives_back_what_was_queued() {
    let mut tree = Tree::new(PolicyKind::WeightedFair);
    let owner = tree.add_node(tree.root(), PolicyKind::StrictPriority, Share::default()).unwrap();
    let below: Vec<_> = (0..3).map(|it| tree.add_leaf(owner, Share::priority(it)).unwrap()).collect();
    let other = tree.add_leaf(tree.root(), Share::default()).unwrap();
    fill(&mut tree, &below, 2);
    tree.push(other, 9).unwrap();
    assert_eq!(tree.pop(), Some((below[2], 0)));

    assert_eq!(tree.remove(below[1]).unwrap(), [(below[1], 0), (below[1], 1)]);
    assert_eq!(tree.push(below[1], 5), Err(Refused(5)));
    assert_eq!(tree.remove(below[1]), Err(TreeError::Removed(Member::Leaf(below[1]))));
    tree.charge(below[1], Cost::from_ns(1));

    let mut back = tree.remove(owner).unwrap();
    back.sort();
    assert_eq!(back, [(below[0], 0), (below[0], 1), (below[2], 1)]);
    tree.charge(below[2], Cost::from_ns(1));
    assert_eq!(tree.pop(), Some((other, 9)));
    assert_eq!(tree.pop(), None);
    assert_eq!(tree.usage(tree.root()).unwrap().served, 2, "what has been removed still counts");

    let again = tree.add_leaf(tree.root(), Share::default()).unwrap();
    assert!(!below.contains(&again) && again != other);
    assert_eq!(tree.add_leaf(owner, Share::default()), Err(TreeError::Removed(Member::Node(owner))));
    assert_eq!(tree.remove(tree.root()), Err(TreeError::IsRoot));
}

#[test]
fn a_removed_leafs_seat_has_no_memory() {
    let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&[1, 1]));
    tree.correct(leaves[0], 1_000_000_000);
    tree.remove(leaves[0]).unwrap();
    let again = tree.add_leaf(tree.root(), Share::default()).unwrap();
    fill(&mut tree, &[again, leaves[1]], 2);
    assert_eq!(serve(&mut tree, &[again, leaves[1]], 4, 100), [0, 1, 0, 1]);
}

#[test]
fn a_full_tree_refuses() {
    let mut tree = Tree::with_queued_max(PolicyKind::RoundRobin, 2);
    let leaf = tree.add_leaf(tree.root(), Share::default()).unwrap();
    tree.push(leaf, 1).unwrap();
    tree.push(leaf, 2).unwrap();
    assert_eq!(tree.push(leaf, 3), Err(Refused(3)));
    assert_eq!((tree.len(), tree.pop()), (2, Some((leaf, 1))));
    tree.push(leaf, 3).unwrap();
    assert_eq!((tree.pop(), tree.pop(), tree.pop()), (Some((leaf, 2)), Some((leaf, 3)), None));
    tree.release();
    tree.push(leaf, 4).unwrap();
    assert_eq!(tree.pop(), Some((leaf, 4)));
}

#[test]
fn depth_is_limited() {
    let mut tree = Tree::<u64>::new(PolicyKind::RoundRobin);
    let mut node = tree.root();
    for _ in 1..DEPTH_MAX {
        node = tree.add_node(node, PolicyKind::RoundRobin, Share::default()).unwrap();
    }
    assert_eq!(tree.add_node(node, PolicyKind::RoundRobin, Share::default()), Err(TreeError::TooDeep));
    assert!(tree.add_leaf(node, Share::default()).is_ok());
}

#[test]
fn a_snapshot_lists_all_with_what_they_used() {
    let (mut tree, leaves) = flat(PolicyKind::RoundRobin, &weights(&[1, 2]));
    fill(&mut tree, &leaves, 2);
    serve(&mut tree, &leaves, 3, 10);
    let snapshot = tree.snapshot();
    assert_eq!(snapshot.len(), 3);
    assert_eq!(snapshot[0].0, Member::Node(tree.root()));
    assert_eq!((snapshot[0].2.served, snapshot[0].2.charged_ns, snapshot[0].2.queued), (3, 30, 1));
    assert_eq!(snapshot[2].1, Share::weight(2));
    assert_eq!(
        tree.children(tree.root()).collect::<Vec<_>>(),
        leaves.iter().map(|&it| it.into()).collect::<Vec<Member>>()
    );
    assert_eq!(tree.policy(tree.root()), Ok(PolicyKind::RoundRobin));
}

/// Numbers without a pattern, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Whatever happens, the child that is served has the lowest tag of all that are ready, to the width of a slot: the calendar against a plain
/// search.
#[test]
fn weighted_fair_always_serves_the_lowest_tag() {
    for seed in 0..60 {
        let mut numbers = Numbers(seed);
        let mut tree = Tree::new(PolicyKind::WeightedFair);
        tree.policies[0] = AnyPolicy::weighted_fair_at(0_u64.wrapping_sub(numbers.below(1 << 30) << numbers.below(30)));
        let count = 1 + numbers.below(if seed % 2 == 0 { 6 } else { 300 });
        let leaves: Vec<_> = (0..count)
            .map(|_| tree.add_leaf(tree.root(), Share::weight(1 + numbers.below(20) as u32)).unwrap())
            .collect();
        let is_corrected = seed % 3 == 0;
        for _ in 0..5_000 {
            let leaf = leaves[numbers.below(count) as usize];
            match numbers.below(5) {
                0..=1 => tree.push(leaf, 0).unwrap(),
                2 if is_corrected => tree.correct(leaf, numbers.below(100_000) as i64),
                _ => {
                    let pending =
                        leaves.iter().map(|leaf| &tree.seats[leaf.index as usize]).filter(|seat| seat.pending);
                    let lowest = pending.map(|seat| seat.key).reduce(|a, b| if is_before(b, a) { b } else { a });
                    let width = tree.policies[0].virtual_width();
                    let popped = tree.pop().map(|(leaf, _)| leaf);
                    let key = popped.map(|leaf| tree.seats[leaf.index as usize].key);
                    assert_eq!(key.is_some(), lowest.is_some(), "seed {seed}");
                    if let (Some(key), Some(lowest)) = (key, lowest) {
                        // A slot's width may change with what is taken.
                        let width = width.max(tree.policies[0].virtual_width());
                        assert!(is_before(key, lowest.wrapping_add(width)), "seed {seed}: {key} {lowest} {width}");
                    }
                    if let Some(leaf) = popped {
                        let magnitude = numbers.below(40);
                        tree.charge(leaf, Cost::from_ns(numbers.below(1 << magnitude)));
                    }
                }
            }
        }
    }
}

#[test]
fn order_becomes_fine_again_when_all_weights_become_large() {
    let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&[2, 1]));
    fill(&mut tree, &leaves, 10_000);
    serve(&mut tree, &leaves, 300, 350_000);
    tree.set_share(leaves[0], Share::weight(32_768)).unwrap();
    tree.set_share(leaves[1], Share::weight(16_384)).unwrap();
    serve(&mut tree, &leaves, 2_000, 350_000);
    for round in 0..20 {
        let served = counts(&serve(&mut tree, &leaves, 300, 350_000), 2);
        assert!(served[0].abs_diff(200) <= 3, "{round}: {served:?}");
    }
}

#[test]
fn a_child_that_now_and_then_costs_much_for_its_weight_makes_nobody_elses_turns_long() {
    const SLICE_NS: u64 = 100_000;
    let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&[400, 100, 33]));
    let (sites, rare) = (&leaves[..2], leaves[2]);
    // It comes alone, or among requests of sites that aren't busy.
    let pop_rare = |tree: &mut Tree<u64>| {
        tree.push(rare, 0).unwrap();
        while let Some((leaf, _)) = tree.pop() {
            tree.charge(leaf, Cost::from_ns(if leaf == rare { 700_000 } else { SLICE_NS }));
        }
    };
    for _ in 0..40 {
        (0..10).for_each(|_| pop_rare(&mut tree));
        fill(&mut tree, sites, 300);
        pop_rare(&mut tree);
    }
    tree.set_share(leaves[0], Share::weight(32_767)).unwrap();
    tree.set_share(leaves[1], Share::weight(8_192)).unwrap();
    tree.set_share(rare, Share::weight(2_730)).unwrap();
    fill(&mut tree, sites, 100_000);
    let mut others_between = Vec::new();
    for slice in 0..40_000 {
        if slice % 1_000 == 0 {
            tree.push(rare, 0).unwrap();
        }
        let (leaf, _) = tree.pop().unwrap();
        tree.charge(leaf, Cost::from_ns(if leaf == rare { 700_000 } else { SLICE_NS }));
        match leaf == sites[1] {
            true => others_between.push(0),
            false => others_between.iter_mut().next_back().into_iter().for_each(|others| *others += 1),
        }
    }
    let longest = others_between[1_000..].iter().max().unwrap();
    assert!(*longest <= 12, "{longest} slices between two that are a fifth of all");
}

#[test]
fn what_a_child_has_had_too_much_is_the_same_at_another_weight() {
    for (before, after) in [(1, 100), (100, 1)] {
        let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&[before, before]));
        fill(&mut tree, &leaves, 100);
        tree.correct(leaves[0], 10_000);
        for &leaf in &leaves {
            tree.set_share(leaf, Share::weight(after)).unwrap();
        }
        let order = serve(&mut tree, &leaves, 40, 1_000);
        let first = order.iter().position(|&it| it == 0).unwrap();
        assert!((10..=11).contains(&first), "from {before} to {after}: {order:?}");
    }
}

#[test]
fn sixteen_weights_get_their_shares_of_costs_that_vary() {
    let shares: Vec<u32> = (1..=16).collect();
    let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&shares));
    let mut numbers = Numbers(3);
    fill(&mut tree, &leaves, 8_000);
    for _ in 0..40_000 {
        let (leaf, _) = tree.pop().unwrap();
        // From a small reply to a handler's slice, the dear ones rare.
        let magnitude = 11 + numbers.below(10);
        tree.charge(leaf, Cost::from_ns(1_000 + numbers.below(1 << magnitude)));
    }
    let charged: Vec<u64> = leaves.iter().map(|&leaf| tree.usage(leaf).unwrap().charged_ns).collect();
    let total: u64 = charged.iter().sum();
    for (charged, weight) in charged.iter().zip(shares) {
        let due = total * u64::from(weight) / 136;
        assert!(charged.abs_diff(due) * 100 < due * 3, "weight {weight}: {charged} of {due}");
    }
}

#[test]
fn what_idle_sites_leave_stays_with_their_owner_and_goes_back_at_once() {
    let mut tree = Tree::new(PolicyKind::WeightedFair);
    let owner = |tree: &mut Tree<u64>, weight, sites: &[u32]| -> Vec<LeafId> {
        let owner = tree.add_node(tree.root(), PolicyKind::WeightedFair, Share::weight(weight)).unwrap();
        sites.iter().map(|&it| tree.add_leaf(owner, Share::weight(it)).unwrap()).collect()
    };
    let mut sites = owner(&mut tree, 2, &[3, 1]);
    sites.extend(owner(&mut tree, 1, &[1]));
    sites.extend(owner(&mut tree, 1, &[1]));
    // The first owner's first site and the third owner are idle.
    fill(&mut tree, &sites[1..3], 2_000);
    assert_eq!(counts(&serve(&mut tree, &sites, 300, 1_000), 4), [0, 200, 100, 0]);
    fill(&mut tree, &[sites[0], sites[3]], 2_000);
    let order = serve(&mut tree, &sites, 400, 1_000);
    assert!(order[..4].contains(&0) && order[..4].contains(&3), "at once: {:?}", &order[..8]);
    let served = counts(&order, 4);
    for (served, due) in served.iter().zip([150, 50, 100, 100]) {
        assert!(served.abs_diff(due) <= 2, "and no more than its own: {served} of {due}");
    }
}

#[test]
fn what_has_begun_goes_before_what_its_leaf_has() {
    let (mut tree, leaves) = flat(PolicyKind::WeightedFair, &weights(&[1, 1]));
    fill(&mut tree, &leaves, 3);
    let mut order = Vec::new();
    let mut is_put_back = false;
    while let Some((leaf, event)) = tree.pop() {
        tree.charge(leaf, Cost::from_ns(10));
        if leaf == leaves[0] {
            order.push(event);
            if !std::mem::replace(&mut is_put_back, true) {
                tree.push_first(leaf, event).unwrap();
            }
        }
    }
    assert_eq!(order, [0, 0, 1, 2]);
    tree.push_first(leaves[1], 7).unwrap();
    tree.push(leaves[1], 8).unwrap();
    let rest: Vec<u64> = std::iter::from_fn(|| tree.pop().map(|(_, event)| event)).collect();
    assert_eq!(rest, [7, 8]);
}
