//! What an event costs in the scheduling tree, for 1 to 4,096 leaves and each policy: the paper's figure 11 (Vortex, section 4.5).
//!
//! `cargo bench -p leat-logic --bench schedule` prints a Markdown table and CSV. `-- --once POLICY LEAVES [CASE]` runs one case a fixed number
//! of times and prints nothing but its name, for counting instructions (under `valgrind --tool=callgrind`, say).
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock; the library never does"
)]

use leat_logic::schedule::{Cost, LeafId, PolicyKind, Share, Tree, Urgency};
use std::hint::black_box;
use std::time::Instant;

const LEAVES: [usize; 13] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
const ROUNDS: usize = 201;
/// Few enough that a round mostly fits between two preemptions of a busy machine: then the median stands them.
const EVENTS_EACH_ROUND: usize = 4_096;
const COST: Cost = Cost::from_ns(5_000);

/// As large as a worker's event.
type Event = [u64; 2];

/// What is done to the tree again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// The paper's worst case: all leaves are empty, an event is pushed onto each, the one that will be served first last; then all are
    /// popped and charged.
    NewFirst,
    /// As `NewFirst`, with the leaves woken in an order that has nothing to do with that of service.
    Shuffled,
    /// As `NewFirst`, without the charge: what is pushed is popped, and the next pop charges what is expected.
    Uncharged,
    /// All leaves have events: one is popped and charged, and its leaf gets another.
    Deep,
    /// The tree is empty: an event is pushed, popped and charged.
    Alone,
    /// As `Alone`, below a stage node: three levels, as in a worker.
    Stages,
}

const CASES: [(Case, &str); 6] = [
    (Case::NewFirst, "new_first"),
    (Case::Shuffled, "shuffled"),
    (Case::Uncharged, "uncharged"),
    (Case::Deep, "deep"),
    (Case::Alone, "alone"),
    (Case::Stages, "stages"),
];

struct Bench {
    tree: Tree<Event>,
    /// In the order in which they're woken.
    leaves: Vec<LeafId>,
    case: Case,
    round: u64,
    /// The leaf whose turn it is where they take turns.
    turn: usize,
}

impl Bench {
    fn new(kind: PolicyKind, leaves: usize, case: Case) -> Bench {
        let mut tree = Tree::new(kind);
        let mut parent = tree.root();
        if case == Case::Stages {
            parent = tree.add_node(parent, kind, Share::default()).expect("the root is there");
        }
        let priority = |at: usize| Share { weight: 1, priority: (at * 256 / leaves) as u8 };
        let leaves = (0..leaves).map(|at| tree.add_leaf(parent, priority(at)).expect("the parent is there")).collect();
        let mut bench = Bench { tree, leaves, case, round: 0, turn: 0 };
        match case {
            Case::Deep => (0..4).for_each(|_| bench.push_all()),
            Case::Shuffled => bench.shuffle(),
            _ => bench.stagger(),
        }
        bench
    }

    /// Charges the leaves so that those woken last have the lowest virtual time, at distances that are all different. All lie within the
    /// cost of an event: so the order is the same in the next round, as no leaf has fallen behind virtual time when it's woken again.
    fn stagger(&mut self) {
        let count = self.leaves.len() as u64;
        for (at, &leaf) in self.leaves.iter().enumerate() {
            let ahead = count - at as u64;
            let jitter_ns = if count < 1_000 { ahead * 7_919 % (4_000 / count) } else { 0 };
            self.tree.correct(leaf, (ahead * 4_000 / count + jitter_ns) as i64);
        }
    }

    fn shuffle(&mut self) {
        self.stagger();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for at in (1..self.leaves.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.leaves.swap(at, (state >> 33) as usize % (at + 1));
        }
    }

    /// How urgent the next event is: the later, the more so, as is the policies' worst case.
    fn urgency(&mut self) -> Urgency {
        self.round += 1;
        Urgency { deadline_ns: u64::MAX / 2 - self.round, remaining: u64::MAX / 2 - self.round }
    }

    fn push_all(&mut self) {
        for at in 0..self.leaves.len() {
            let urgency = self.urgency();
            let _ = self.tree.push_with(self.leaves[at], [1, 2], || urgency);
        }
    }

    /// Runs `events` events, or a few more; how many.
    fn run(&mut self, events: usize, is_urgent: bool) -> usize {
        let mut done = 0;
        while done < events {
            match self.case {
                Case::NewFirst | Case::Shuffled | Case::Uncharged => {
                    if is_urgent {
                        self.push_all();
                    } else {
                        for &leaf in &self.leaves {
                            let _ = self.tree.push(leaf, [1, 2]);
                        }
                    }
                    let is_charged = self.case != Case::Uncharged;
                    while let Some((leaf, event)) = self.tree.pop() {
                        black_box(event);
                        if is_charged {
                            self.tree.charge(leaf, COST);
                        }
                    }
                    done += self.leaves.len();
                }
                Case::Deep => {
                    let Some((leaf, event)) = self.tree.pop() else { break };
                    self.tree.charge(leaf, COST);
                    let _ = self.tree.push(leaf, event);
                    done += 1;
                }
                Case::Alone | Case::Stages => {
                    let leaf = self.leaves[self.turn];
                    self.turn = if self.turn + 1 < self.leaves.len() { self.turn + 1 } else { 0 };
                    let _ = self.tree.push(leaf, [1, 2]);
                    if let Some((leaf, event)) = self.tree.pop() {
                        black_box(event);
                        self.tree.charge(leaf, COST);
                    }
                    done += 1;
                }
            }
        }
        done
    }
}

fn is_urgent(kind: PolicyKind) -> bool {
    matches!(kind, PolicyKind::Deadline | PolicyKind::ShortestRemaining)
}

/// Nanoseconds for an event: medians for each policy, over rounds that take turns among the policies so that what else the machine does
/// falls on all alike.
fn measure(case: Case, leaves: usize) -> Vec<f64> {
    let mut benches: Vec<Bench> = PolicyKind::ALL.iter().map(|&kind| Bench::new(kind, leaves, case)).collect();
    let mut samples = vec![Vec::with_capacity(ROUNDS); benches.len()];
    for _ in 0..ROUNDS {
        for (at, bench) in benches.iter_mut().enumerate() {
            let is_urgent = is_urgent(PolicyKind::ALL[at]);
            bench.run(EVENTS_EACH_ROUND / 10, is_urgent);
            let start = Instant::now();
            let events = bench.run(EVENTS_EACH_ROUND, is_urgent);
            samples[at].push(start.elapsed().as_nanos() as f64 / events as f64);
        }
    }
    samples
        .into_iter()
        .map(|mut sample| {
            sample.sort_by(f64::total_cmp);
            sample[ROUNDS / 2]
        })
        .collect()
}

fn print_all(cases: &[(Case, &str)]) {
    let mut csv = String::from("case,leaves,policy,ns\n");
    let names: Vec<&str> = PolicyKind::ALL.iter().map(|kind| kind.name()).collect();
    for &(case, name) in cases {
        println!("\n## {name}: ns for an event\n\n| leaves | {} | weighted fair / round robin |", names.join(" | "));
        println!("|{}", "---:|".repeat(names.len() + 2));
        for leaves in LEAVES {
            let medians = measure(case, leaves);
            let cells: Vec<String> = medians.iter().map(|ns| format!("{ns:.1}")).collect();
            println!("| {leaves} | {} | {:.2} |", cells.join(" | "), medians[1] / medians[0]);
            for (policy, ns) in names.iter().zip(&medians) {
                csv += &format!("{name},{leaves},{policy},{ns:.2}\n");
            }
        }
    }
    println!("\n```csv\n{csv}```");
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let case = |name: Option<&String>| CASES.iter().find(|(_, known)| name.is_some_and(|name| name == known)).copied();
    match args.first().map(String::as_str) {
        Some("--once") => {
            let kind = args.get(1).and_then(|name| PolicyKind::from_name(name));
            let leaves = args.get(2).and_then(|leaves| leaves.parse().ok()).filter(|&leaves| leaves > 0);
            let (Some(kind), Some(leaves)) = (kind, leaves) else {
                eprintln!("usage: --once POLICY LEAVES [CASE]");
                std::process::exit(2);
            };
            let (case, name) = case(args.get(3)).unwrap_or(CASES[0]);
            let events = Bench::new(kind, leaves, case).run(1_000_000, is_urgent(kind));
            println!("{kind} {leaves} {name}: {events} events");
        }
        Some("--case") => print_all(case(args.get(1)).as_slice()),
        _ => print_all(&CASES),
    }
}
