//! What every policy must do, whatever its order: names that lead back to it, and a tree that loses nothing, doubles nothing, keeps each
//! leaf's events in their order (by urgency where its node goes by that) and never says that it's empty when it isn't.

use super::PolicyKind;
use crate::schedule::{Cost, LeafId, Member, NodeId, Share, Tree, Urgency};
use std::collections::{BTreeMap, VecDeque};

#[test]
fn names_lead_back_to_their_policies() {
    for &kind in PolicyKind::ALL {
        assert_eq!(PolicyKind::from_name(kind.name()), Some(kind));
        assert!(kind.name().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{kind}");
        assert!(!kind.about().is_empty(), "{kind}");
    }
    assert_eq!(PolicyKind::from_name("fifo"), None);
}

/// Numbers without a pattern, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// What ought to be in a leaf below a node of this policy: keys and events.
#[derive(Clone, Debug)]
struct Queue {
    policy: PolicyKind,
    events: VecDeque<(u64, u64)>,
}

impl Queue {
    fn push(&mut self, urgency: Urgency, event: u64) {
        let key = match self.policy {
            PolicyKind::Deadline => urgency.deadline_ns,
            PolicyKind::ShortestRemaining => urgency.remaining,
            _ => 0,
        };
        let at = self.events.partition_point(|&(other, _)| other <= key);
        self.events.insert(at, (key, event));
    }
}

/// A tree beside what ought to be in it.
struct Model {
    numbers: Numbers,
    tree: Tree<u64>,
    nodes: Vec<NodeId>,
    queues: BTreeMap<LeafId, Queue>,
    /// Popped and not charged yet.
    out: Vec<LeafId>,
    /// What has been told of each leaf.
    told: BTreeMap<LeafId, (u64, u64)>,
    charged_ns: u64,
    served: u64,
    next_event: u64,
    what: String,
}

impl Model {
    fn new(kind: PolicyKind, seed: u64) -> Model {
        let tree = Tree::new(kind);
        let nodes = vec![tree.root()];
        let what = format!("{kind}, seed {seed}");
        let (queues, out) = (BTreeMap::new(), Vec::new());
        let told = BTreeMap::new();
        Model { numbers: Numbers(seed), tree, nodes, queues, out, told, charged_ns: 0, served: 0, next_event: 0, what }
    }

    fn share(&mut self) -> Share {
        Share { weight: 1 + self.numbers.below(9) as u32, priority: self.numbers.below(256) as u8 }
    }

    fn any_leaf(&mut self) -> Option<LeafId> {
        let at = self.numbers.below(self.queues.len().max(1) as u64) as usize;
        self.queues.keys().nth(at).copied()
    }

    fn grow(&mut self, kind: PolicyKind) {
        let parent = self.nodes[self.numbers.below(self.nodes.len() as u64) as usize];
        let share = self.share();
        if self.numbers.below(3) > 0 {
            let leaf = self.tree.add_leaf(parent, share).unwrap();
            let queue = Queue { policy: self.tree.policy(parent).unwrap(), events: VecDeque::new() };
            assert!(self.queues.insert(leaf, queue).is_none(), "{}: a name used again", self.what);
        } else if let Ok(node) = self.tree.add_node(parent, kind, share) {
            self.nodes.push(node);
        }
    }

    fn push(&mut self) {
        let Some(leaf) = self.any_leaf() else { return };
        let event = self.next_event;
        self.next_event += 1;
        let mut urgency = Urgency::NONE;
        if self.numbers.below(2) == 0 {
            self.tree.push(leaf, event).unwrap();
        } else {
            urgency = Urgency { deadline_ns: self.numbers.below(1_000), remaining: self.numbers.below(1_000) };
            self.tree.push_with(leaf, event, || urgency).unwrap();
        }
        self.queues.get_mut(&leaf).unwrap().push(urgency, event);
    }

    fn pop(&mut self) {
        let Some((leaf, event)) = self.tree.pop() else {
            assert!(self.queues.values().all(|queue| queue.events.is_empty()), "{}: says that it's empty", self.what);
            return;
        };
        let queue = self.queues.get_mut(&leaf).unwrap();
        let expected = queue.events.pop_front().map(|(_, event)| event);
        assert_eq!(expected, Some(event), "{}: out of order", self.what);
        self.served += 1;
        self.out.push(leaf);
    }

    fn charge(&mut self) {
        let Some(leaf) = self.out.pop() else { return };
        let cost = Cost::from_ns(self.numbers.below(1_000_000));
        self.tree.charge(leaf, cost);
        if self.queues.contains_key(&leaf) {
            self.charged_ns += cost.ns;
        }
    }

    fn remove(&mut self) {
        let (member, leaves) = match self.any_leaf() {
            Some(leaf) if self.numbers.below(4) > 0 => (Member::Leaf(leaf), vec![leaf]),
            _ if self.nodes.len() > 1 => {
                let at = 1 + self.numbers.below(self.nodes.len() as u64 - 1) as usize;
                (Member::Node(self.nodes[at]), self.leaves_below(self.nodes[at]))
            }
            _ => return,
        };
        // What is out can't be charged to a leaf that has gone: settle it first, so that the sums stay comparable.
        while !self.out.is_empty() {
            self.charge();
        }
        let mut returned: BTreeMap<LeafId, VecDeque<u64>> = BTreeMap::new();
        for (leaf, event) in self.tree.remove(member).unwrap() {
            returned.entry(leaf).or_default().push_back(event);
        }
        for leaf in leaves {
            let expected = self.queues.remove(&leaf).unwrap().events.into_iter().map(|(_, event)| event);
            assert!(expected.eq(returned.remove(&leaf).unwrap_or_default()), "{}", self.what);
            assert!(self.tree.push(leaf, 0).is_err(), "{}: a removed leaf takes events", self.what);
        }
        assert!(returned.is_empty(), "{}: events of leaves that weren't removed", self.what);
        let tree = &self.tree;
        self.nodes.retain(|&node| tree.policy(node).is_ok());
    }

    fn leaves_below(&self, node: NodeId) -> Vec<LeafId> {
        let mut leaves = Vec::new();
        let mut nodes = vec![node];
        while let Some(node) = nodes.pop() {
            for child in self.tree.children(node) {
                match child {
                    Member::Node(node) => nodes.push(node),
                    Member::Leaf(leaf) => leaves.push(leaf),
                }
            }
        }
        leaves
    }

    /// What leaves have used since it was asked last is told of each, and of no other.
    fn take_used(&mut self) {
        let mut now = BTreeMap::new();
        self.tree.take_used(|leaf, served, charged_ns| {
            assert!(now.insert(leaf, (served, charged_ns)).is_none(), "told twice");
        });
        for (&leaf, queue) in &self.queues {
            assert!(
                queue.events.is_empty() || now.contains_key(&leaf),
                "{}: events wait and aren't told of",
                self.what
            );
            let (served, charged_ns) = now.remove(&leaf).unwrap_or_default();
            let told = self.told.entry(leaf).or_default();
            *told = (told.0 + served, told.1.saturating_add_signed(charged_ns));
            assert_eq!(*told, self.tree.served(leaf), "{}", self.what);
        }
        assert!(now.is_empty(), "{}: told of leaves that have gone", self.what);
    }

    fn check(&self) {
        let queued: usize = self.queues.values().map(|queue| queue.events.len()).sum();
        assert_eq!(self.tree.len(), queued, "{}", self.what);
        assert_eq!(self.tree.is_empty(), queued == 0, "{}", self.what);
    }
}

/// `kinds(n)` is the policy of the n-th node.
fn exercise(root: PolicyKind, seed: u64, kinds: impl Fn(u64) -> PolicyKind) {
    let mut model = Model::new(root, seed);
    for step in 0..3_000 {
        match model.numbers.below(20) {
            0 if model.queues.len() < 40 => model.grow(kinds(step)),
            1 if model.numbers.below(6) == 0 => model.remove(),
            2 => {
                let share = model.share();
                if let Some(leaf) = model.any_leaf() {
                    model.tree.set_share(leaf, share).unwrap();
                }
            }
            3..=10 => model.push(),
            11..=15 => model.pop(),
            _ => model.charge(),
        }
        model.check();
        if step % 7 == 0 {
            model.take_used();
        }
    }
    while !model.tree.is_empty() {
        model.pop();
    }
    model.pop();
    while !model.out.is_empty() {
        model.charge();
    }
    let usage = model.tree.usage(model.tree.root()).unwrap();
    assert_eq!((usage.served, usage.uncharged, usage.queued), (model.served, 0, 0), "{}", model.what);
    assert_eq!(usage.charged_ns, model.charged_ns, "{}: what is charged is the sum of the costs", model.what);
}

#[test]
fn nothing_is_lost_doubled_or_reordered() {
    for &kind in PolicyKind::ALL {
        for seed in 0..12 {
            exercise(kind, seed, |_| kind);
        }
    }
}

#[test]
fn policies_may_be_mixed() {
    for seed in 0..30 {
        let all = PolicyKind::ALL;
        exercise(all[seed as usize % all.len()], seed, |step| all[step as usize % all.len()]);
    }
}

#[test]
fn children_that_are_alike_are_served_alike() {
    for &kind in PolicyKind::ALL {
        let mut tree = Tree::new(kind);
        let leaves: Vec<_> = (0..5).map(|_| tree.add_leaf(tree.root(), Share::default()).unwrap()).collect();
        for event in 0..100 {
            for &leaf in &leaves {
                tree.push_with(leaf, event, || Urgency { deadline_ns: event, remaining: event }).unwrap();
            }
        }
        for tick in 1..=500 {
            let (leaf, _) = tree.pop().unwrap();
            tree.charge(leaf, Cost::from_ns(1_000));
            let served = leaves.iter().map(|&leaf| tree.usage(leaf).unwrap().served);
            let (least, most) = (served.clone().min().unwrap(), served.max().unwrap());
            assert!(most - least <= 1, "{kind}, tick {tick}");
        }
    }
}
