//! The model against prices that are known: does it find them, stay within bounds, and charge exactly what was measured?

use super::*;
use crate::schedule::{LeafId, PolicyKind, Share, Tree};

/// Numbers without a pattern, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Between 1 - `part` and 1 + `part`.
    fn about(&mut self, part: f64) -> f64 {
        1.0 + part * (self.below(2_001) as f64 / 1_000.0 - 1.0)
    }
}

fn leaves(count: usize) -> (Tree<u32>, Vec<LeafId>) {
    let mut tree = Tree::new(PolicyKind::WeightedFair);
    let leaves = (0..count).map(|_| tree.add_leaf(tree.root(), Share::default()).unwrap()).collect();
    (tree, leaves)
}

/// What a machine charges: nanoseconds for each operation and each KiB.
const TRUTH: [(Operation, f64, f64); 5] = [
    (Operation::Turn, 1_800.0, 0.0),
    (Operation::Receive, 900.0, 30.0),
    (Operation::Serve, 400.0, 0.0),
    (Operation::Send, 3_600.0, 450.0),
    (Operation::Accept, 14_000.0, 0.0),
];

fn truth(operation: Operation) -> (f64, f64) {
    let found = TRUTH.iter().find(|(known, ..)| *known == operation);
    found.map_or((0.0, 0.0), |&(_, each_ns, kib_ns)| (each_ns, kib_ns))
}

/// Requests as they come: each received, served and sent; one in five on a new connection. What they take on the machine.
fn requests(batch: &mut Batch, numbers: &mut Numbers) -> f64 {
    batch.count(Operation::Turn, 0);
    for _ in 0..1 + numbers.below(40) {
        if numbers.below(5) == 0 {
            batch.count(Operation::Accept, 0);
        }
        batch.count(Operation::Receive, 100 + numbers.below(800));
        batch.count(Operation::Serve, 0);
        batch.count(Operation::Send, 300 + numbers.below(16_000));
    }
    let time = |&operation: &Operation| {
        let (each_ns, kib_ns) = truth(operation);
        f64::from(batch.operations(operation)) * each_ns + kib_ns * batch.bytes(operation) as f64 / 1024.0
    };
    Operation::ALL.iter().map(time).sum()
}

fn train(model: &mut CostModel, numbers: &mut Numbers, batches: usize, noise: f64, slower: f64) {
    let mut batch = Batch::new();
    for _ in 0..batches {
        batch.clear();
        let time = requests(&mut batch, numbers) * slower * numbers.about(noise);
        model.observe(&batch, time as u64);
    }
}

#[test]
fn whole_batches_are_predicted_well_soon() {
    let (mut model, mut numbers) = (CostModel::new(), Numbers(1));
    train(&mut model, &mut numbers, 200, 0.0, 1.0);
    train(&mut model, &mut numbers, 400, 0.0, 1.0);
    assert!(model.relative_error() < 0.01, "{}", model.relative_error());
}

#[test]
fn prices_of_operations_that_vary_apart_are_found() {
    let (mut model, mut numbers) = (CostModel::new(), Numbers(2));
    train(&mut model, &mut numbers, 20_000, 0.1, 1.0);
    let (accept_ns, _) = model.price(Operation::Accept);
    assert!((accept_ns / 14_000.0 - 1.0).abs() < 0.05, "{accept_ns}");
    let (_, send_kib_ns) = model.price(Operation::Send);
    assert!((send_kib_ns / 450.0 - 1.0).abs() < 0.15, "{send_kib_ns}");
    // Received, served and sent always come together: only their sum can be known.
    let together = [Operation::Receive, Operation::Serve, Operation::Send];
    let sum_ns = together.iter().map(|&it| model.price(it).0).sum::<f64>() + model.price(Operation::Receive).1 * 0.5;
    assert!((sum_ns / (900.0 + 15.0 + 400.0 + 3_600.0) - 1.0).abs() < 0.1, "{sum_ns}");
    // 10 % of even noise are 5 % off on average.
    assert!(model.relative_error() < 0.07, "{}", model.relative_error());
}

#[test]
fn a_machine_that_becomes_slower_is_followed() {
    let (mut model, mut numbers) = (CostModel::new(), Numbers(3));
    train(&mut model, &mut numbers, 3_000, 0.05, 1.0);
    train(&mut model, &mut numbers, 3_000, 0.05, 1.5);
    assert!(model.relative_error() < 0.05, "{}", model.relative_error());
}

#[test]
fn prices_stay_within_bounds_whatever_is_measured() {
    let (mut model, mut numbers) = (CostModel::new(), Numbers(4));
    let mut batch = Batch::new();
    for _ in 0..5_000 {
        batch.clear();
        for _ in 0..numbers.below(6) {
            let operation = Operation::ALL[numbers.below(Operation::COUNT as u64) as usize];
            let magnitude = numbers.below(40);
            batch.count(operation, numbers.below(1 << magnitude));
        }
        let magnitude = numbers.below(62);
        model.observe(&batch, numbers.below(1 << magnitude));
    }
    for &operation in Operation::ALL {
        let (each_ns, kib_ns) = model.price(operation);
        let prior = operation.prior();
        assert!(each_ns >= prior.each_ns / operation::RANGE && each_ns <= prior.each_ns * operation::RANGE);
        assert!(kib_ns >= 0.0 && kib_ns <= prior.kib_ns * operation::RANGE, "{kib_ns}");
    }
}

#[test]
fn one_batch_out_of_line_changes_little() {
    let (mut model, mut numbers) = (CostModel::new(), Numbers(5));
    train(&mut model, &mut numbers, 3_000, 0.0, 1.0);
    let before = model.predict(Operation::Send, 1_000);
    let mut batch = Batch::new();
    requests(&mut batch, &mut numbers);
    model.observe(&batch, 3_000_000_000);
    train(&mut model, &mut numbers, 16, 0.0, 1.0);
    let after = model.predict(Operation::Send, 1_000);
    assert!(after.ns.abs_diff(before.ns) < before.ns / 20, "{before:?} {after:?}");
}

#[test]
fn what_an_absent_operation_costs_is_remembered() {
    let (mut model, mut numbers) = (CostModel::new(), Numbers(6));
    train(&mut model, &mut numbers, 5_000, 0.0, 1.0);
    let before = model.predict(Operation::Accept, 0);
    let mut batch = Batch::new();
    batch.count(Operation::Turn, 0);
    for _ in 0..200_000 {
        model.observe(&batch, 1_800);
    }
    assert_eq!(model.predict(Operation::Accept, 0), before);
    assert!(model.squares_are_normal());
}

impl CostModel {
    fn squares_are_normal(&self) -> bool {
        self.fit.numbers().all(|number| number == 0.0 || number.is_normal())
    }
}

#[test]
fn charges_and_corrections_add_up_to_what_was_measured() {
    let (mut tree, leaves) = leaves(7);
    let (mut model, mut numbers) = (CostModel::new(), Numbers(7));
    let (mut batch, mut measured_ns) = (Batch::new(), 0);
    for round in 0..500_usize {
        batch.count(Operation::Turn, 0);
        for event in 0..1 + round % 23 {
            let leaf = leaves[(event * 3 + round) % 7];
            tree.push(leaf, 0).unwrap();
            let (leaf, _) = tree.pop().unwrap();
            let bytes = numbers.below(5_000);
            batch.count(Operation::Send, bytes);
            let cost = model.predict(Operation::Send, bytes);
            tree.charge(leaf, cost);
            batch.charge(leaf, cost);
        }
        let took_ns = batch.charged_ns() * (80 + numbers.below(50)) / 100;
        measured_ns += took_ns;
        let error_ns = model.observe(&batch, took_ns);
        for (leaf, delta_ns) in batch.corrections(error_ns) {
            tree.correct(leaf, delta_ns);
        }
        batch.clear();
    }
    assert_eq!(tree.usage(tree.root()).unwrap().charged_ns, measured_ns);
}

#[test]
fn an_error_is_divided_in_proportion() {
    let (_, leaves) = leaves(3);
    let mut batch = Batch::new();
    for (leaf, ns) in [(0, 100), (2, 300), (0, 200), (1, 400)] {
        batch.charge(leaves[leaf], Cost::from_ns(ns));
    }
    let divided = |error_ns| batch.corrections(error_ns).collect::<Vec<_>>();
    assert_eq!(divided(100), [(leaves[0], 30), (leaves[2], 30), (leaves[1], 40)]);
    assert_eq!(divided(-7), [(leaves[0], -2), (leaves[2], -2), (leaves[1], -3)]);
    batch.clear();
    assert_eq!(batch.corrections(100).count(), 0);
    batch.charge(leaves[1], Cost::from_ns(1));
    assert_eq!(batch.corrections(100).collect::<Vec<_>>(), [(leaves[1], 100)]);
}
