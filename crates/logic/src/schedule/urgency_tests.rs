//! The policies that go by urgency, by ticks: at the root, below it and above it, and against a plain search.

use super::{Cost, LeafId, NodeId, PolicyKind, Share, Tree, Urgency};

fn due(deadline_ns: u64) -> Urgency {
    Urgency { deadline_ns, ..Urgency::NONE }
}

fn left(remaining: u64) -> Urgency {
    Urgency { remaining, ..Urgency::NONE }
}

/// Below `parent`, or the root.
fn node(tree: &mut Tree<u64>, parent: Option<NodeId>, policy: PolicyKind) -> NodeId {
    tree.add_node(parent.unwrap_or(tree.root()), policy, Share::default()).unwrap()
}

/// Below `parent`, or the root.
fn leaf(tree: &mut Tree<u64>, parent: Option<NodeId>) -> LeafId {
    tree.add_leaf(parent.unwrap_or(tree.root()), Share::default()).unwrap()
}

/// The events that are left, in the order in which they're served at so much each.
fn served(tree: &mut Tree<u64>, cost_ns: u64) -> Vec<u64> {
    let next = || {
        let (leaf, event) = tree.pop()?;
        tree.charge(leaf, Cost::from_ns(cost_ns));
        Some(event)
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn the_most_urgent_event_is_found_below_nested_nodes() {
    let mut tree = Tree::new(PolicyKind::Deadline);
    let nodes = [(); 2].map(|()| node(&mut tree, None, PolicyKind::Deadline));
    let leaves = [0, 0, 1, 1].map(|at: usize| leaf(&mut tree, Some(nodes[at])));
    for (leaf, at) in [(0, 50), (2, 40), (1, 30), (3, 60), (3, 1), (0, 51)] {
        tree.push_with(leaves[leaf], at, || due(at)).unwrap();
    }
    tree.push(leaves[2], 99).unwrap();
    assert_eq!(served(&mut tree, 1), [1, 30, 40, 50, 51, 60, 99]);
}

#[test]
fn the_shortest_goes_first_and_the_unknown_last_within_a_leaf_and_among_leaves() {
    let mut tree = Tree::new(PolicyKind::ShortestRemaining);
    let leaves = [(); 3].map(|()| leaf(&mut tree, None));
    tree.push(leaves[0], 9_000).unwrap();
    for (leaf, bytes) in [(1, 700), (2, 20), (1, 8), (0, 300), (2, 701)] {
        tree.push_with(leaves[leaf], bytes, || left(bytes)).unwrap();
    }
    assert_eq!(served(&mut tree, 1), [8, 20, 300, 700, 701, 9_000]);
}

#[test]
fn who_is_no_more_urgent_than_others_waits_behind_them() {
    for policy in [PolicyKind::Deadline, PolicyKind::ShortestRemaining] {
        let mut tree = Tree::new(policy);
        let one = leaf(&mut tree, None);
        (0..50).for_each(|event| tree.push_with(one, event, || Urgency { deadline_ns: 7, remaining: 7 }).unwrap());
        assert_eq!(served(&mut tree, 1), (0..50).collect::<Vec<_>>(), "{policy}");
    }
}

/// As long as there are two long replies, turn by turn, a short one that comes waits for one turn at most.
#[test]
fn short_replies_overtake_long_ones_that_take_turns() {
    const TURN: u64 = 512;
    let mut tree = Tree::new(PolicyKind::WeightedFair);
    let site = node(&mut tree, None, PolicyKind::ShortestRemaining);
    let transmit = leaf(&mut tree, Some(site));
    for bytes in [5_000, 9_000] {
        tree.push_with(transmit, bytes, || left(bytes)).unwrap();
    }
    let mut ended = Vec::new();
    let mut turns = 0;
    while let Some((leaf, bytes)) = tree.pop() {
        tree.charge(leaf, Cost::from_ns(bytes.min(TURN)));
        turns += 1;
        match bytes.saturating_sub(TURN) {
            0 => ended.push((turns, bytes)),
            rest => tree.push_with(transmit, rest, || left(rest)).unwrap(),
        }
        if turns % 4 == 1 && turns < 10 {
            tree.push_with(transmit, turns, || left(turns)).unwrap();
        }
    }
    let order: Vec<u64> = ended.iter().map(|&(turn, _)| turn).collect();
    assert_eq!(order[..3], [2, 6, 10], "the short ones, each at the next turn");
    assert_eq!(order[3..], [13, 13 + 18], "the shorter of the long ones, then the other");
}

/// With 10 and 30 ns of grace: an event waits for all of the other site's that were queued in the 20 ns before it, and for none after that.
#[test]
fn a_shorter_grace_goes_first_and_the_longer_is_served_when_it_is_due() {
    let mut tree = Tree::new(PolicyKind::Deadline);
    let sites = [(); 2].map(|()| node(&mut tree, None, PolicyKind::WeightedFair));
    let [patient, hasty] = sites.map(|site| leaf(&mut tree, Some(site)));
    tree.push_with(patient, 1_000, || due(30)).unwrap();
    let mut order = Vec::new();
    // A hasty event each nanosecond, which is as much as can be served.
    for now in 0..40 {
        tree.push_with(hasty, now, || due(now + 10)).unwrap();
        let (leaf, event) = tree.pop().unwrap();
        tree.charge(leaf, Cost::from_ns(1));
        order.push(event);
    }
    assert_eq!(order.iter().position(|&event| event == 1_000), Some(20));
    assert_eq!(order[..20], (0..20).collect::<Vec<_>>());
}

#[test]
fn a_node_is_as_urgent_as_its_leaves_whatever_its_policy() {
    let policies = [PolicyKind::RoundRobin, PolicyKind::WeightedFair, PolicyKind::StrictPriority];
    for policy in policies.into_iter().chain([PolicyKind::ShortestRemaining]) {
        let mut tree = Tree::new(PolicyKind::Deadline);
        let sites = [(); 2].map(|()| node(&mut tree, None, policy));
        let owner = node(&mut tree, Some(sites[1]), policy);
        let leaves = [leaf(&mut tree, Some(sites[0])), leaf(&mut tree, Some(owner))];
        for (leaf, at) in [(0, 50), (1, 40), (1, 60), (0, 70), (1, 65)] {
            tree.push_with(leaves[leaf], at, || Urgency { deadline_ns: at, remaining: 1 }).unwrap();
        }
        assert_eq!(served(&mut tree, 1_000_000), [40, 50, 60, 65, 70], "{policy}");
    }
}

/// An event that is due isn't held up by what its node serves before it; a long reply doesn't go before others for short ones that its node serves after it.
#[test]
fn a_node_is_due_as_its_earliest_and_has_as_little_left_as_its_next() {
    for (policy, order) in
        [(PolicyKind::Deadline, [0, 1_000, 500, 900]), (PolicyKind::ShortestRemaining, [0, 900, 1_000, 500])]
    {
        two_sites_under(policy, order);
    }
}

fn two_sites_under(policy: PolicyKind, order: [u64; 4]) {
    let urgency = |at| Urgency { deadline_ns: at, remaining: at };
    let mut tree = Tree::new(policy);
    let sites = [(); 2].map(|()| node(&mut tree, None, PolicyKind::StrictPriority));
    let high = Share { weight: 1, priority: 9 };
    let transmit = sites.map(|site| leaf(&mut tree, Some(site)));
    let serve = sites.map(|site| tree.add_leaf(site, high).unwrap());
    tree.push_with(transmit[0], 500, || urgency(500)).unwrap();
    tree.push_with(transmit[1], 900, || urgency(900)).unwrap();
    tree.push_with(serve[1], 0, || urgency(0)).unwrap();
    tree.push_with(serve[0], 1_000, || urgency(1_000)).unwrap();
    assert_eq!(served(&mut tree, 1), order, "{policy}");
}

#[test]
fn what_has_begun_keeps_its_urgency_and_goes_before_its_equals() {
    for (root, site) in [
        (PolicyKind::Deadline, PolicyKind::WeightedFair),
        (PolicyKind::WeightedFair, PolicyKind::Deadline),
        (PolicyKind::ShortestRemaining, PolicyKind::ShortestRemaining),
    ] {
        let mut tree = Tree::new(root);
        let site = node(&mut tree, None, site);
        let compute = leaf(&mut tree, Some(site));
        let urgency = Urgency { deadline_ns: 100, remaining: 100 };
        for event in 0..3 {
            tree.push_with(compute, event, || urgency).unwrap();
        }
        let mut order = Vec::new();
        while let Some((leaf, event)) = tree.pop() {
            order.push(event);
            if order.len() < 4 {
                tree.push_first(leaf, event).unwrap();
            }
            tree.charge(leaf, Cost::from_ns(10));
        }
        assert_eq!(order, [0, 0, 0, 0, 1, 2], "{root}");
    }
}

#[test]
fn queues_from_before_somebody_went_by_urgency_keep_their_order() {
    let mut tree = Tree::new(PolicyKind::WeightedFair);
    let early = leaf(&mut tree, None);
    (0..4).for_each(|event| tree.push(early, event).unwrap());
    let site = node(&mut tree, None, PolicyKind::Deadline);
    let late = leaf(&mut tree, Some(site));
    tree.push_with(late, 11, || due(9)).unwrap();
    tree.push_with(late, 10, || due(8)).unwrap();
    tree.push(early, 4).unwrap();
    let events = served(&mut tree, 1_000);
    assert_eq!(events.iter().copied().filter(|&event| event < 10).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(events.iter().copied().filter(|&event| event >= 10).collect::<Vec<_>>(), [10, 11]);
    tree.release();
    tree.push_with(late, 12, || due(1)).unwrap();
    assert_eq!(served(&mut tree, 1), [12]);
}

#[test]
fn a_node_whose_first_leaf_is_removed_is_as_urgent_as_the_rest() {
    let mut tree = Tree::new(PolicyKind::Deadline);
    let sites = [(); 2].map(|()| node(&mut tree, None, PolicyKind::Deadline));
    let leaves = [0, 0, 1].map(|at: usize| leaf(&mut tree, Some(sites[at])));
    for (leaf, at) in [(0, 10), (1, 30), (2, 20)] {
        tree.push_with(leaves[leaf], at, || due(at)).unwrap();
    }
    assert_eq!(tree.remove(leaves[0]).unwrap(), [(leaves[0], 10)]);
    assert_eq!(served(&mut tree, 1), [20, 30]);
}

/// Three levels of one of the two: always the least of all that waits, whatever comes and goes.
#[test]
fn the_most_urgent_of_all_is_always_served() {
    for seed in 0..40 {
        let mut state = seed;
        let mut below = |end: u64| {
            state = u64::wrapping_mul(state, 6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % end
        };
        let (policy, urgency): (_, fn(u64) -> Urgency) =
            if seed % 2 == 0 { (PolicyKind::Deadline, due) } else { (PolicyKind::ShortestRemaining, left) };
        let mut tree = Tree::new(policy);
        let mut leaves = Vec::new();
        for _ in 0..4 {
            let owner = node(&mut tree, None, policy);
            for _ in 0..3 {
                let site = node(&mut tree, Some(owner), policy);
                leaves.extend((0..2).map(|_| leaf(&mut tree, Some(site))));
            }
        }
        let mut waiting = Vec::new();
        for _ in 0..3_000 {
            if below(2) == 0 {
                let event = below(1_000);
                tree.push_with(leaves[below(24) as usize], event, || urgency(event)).unwrap();
                waiting.push(event);
            } else {
                let least = waiting.iter().enumerate().min_by_key(|&(_, event)| event).map(|(at, _)| at);
                let popped = tree.pop();
                assert_eq!(popped.map(|(_, event)| event), least.map(|at| waiting.swap_remove(at)), "seed {seed}");
                if let Some((leaf, _)) = popped.filter(|_| below(2) == 0) {
                    tree.charge(leaf, Cost::from_ns(5));
                }
            }
        }
    }
}
