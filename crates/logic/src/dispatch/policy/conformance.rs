//! What every dispatch policy must keep.

use super::super::classify::{Class, Rule};
use super::super::facts::ContentKey;
use super::super::node::NodeId;
use super::*;

fn nodes(shares: &[u64]) -> Vec<Candidate> {
    let candidate = |(place, share): (usize, &u64)| Candidate {
        id: NodeId(place as u8 * 3),
        seed: (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        share: *share,
        active: 0,
        unheard: 0,
        busy_permille: 0,
        forgotten: Instant::default(),
    };
    shares.iter().enumerate().map(candidate).collect()
}

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

struct Run {
    policy: Box<dyn AnyPolicy>,
    seed: u64,
    now: Instant,
}

impl Run {
    fn new(kind: PolicyKind) -> Run {
        let now = Instant { ns: 1_000_000_000 };
        Run { policy: kind.start(&PolicySettings::default()), seed: 0x1ea7, now }
    }

    /// A request for one of `contents`, every fourth dynamic.
    fn choose(&mut self, candidates: &[Candidate], contents: u64) -> Plan {
        self.now.ns += 1_000_000;
        let content = random(&mut self.seed) % contents;
        let class = if content.is_multiple_of(4) { Class::Dynamic(Rule::Path) } else { Class::Static };
        let key = ContentKey(content.wrapping_add(1).wrapping_mul(0xd6e8_feb8_6659_fd93));
        let ask = Ask { key, class, candidates, random: random(&mut self.seed), now: self.now };
        let plan = self.policy.plan(&ask);
        assert_eq!(plan, self.policy.plan(&ask), "a plan changes nothing");
        assert!(candidates.iter().any(|c| c.id == plan.node), "only a candidate can be chosen");
        self.policy.commit(&ask, &plan);
        plan
    }

    /// Requests given to each node when `width` of them are under way at a time, ended in the order in which they began.
    fn spread(&mut self, candidates: &mut [Candidate], width: usize, requests: usize) -> Vec<usize> {
        let (mut under_way, mut counts) = (std::collections::VecDeque::new(), vec![0; candidates.len()]);
        for _ in 0..requests {
            let node = self.choose(candidates, 1000).node;
            let place = candidates.iter().position(|c| c.id == node).expect("it was a candidate");
            candidates[place].active += 1;
            counts[place] += 1;
            under_way.push_back(place);
            if under_way.len() > width
                && let Some(place) = under_way.pop_front()
            {
                candidates[place].active -= 1;
            }
        }
        counts
    }
}

#[test]
fn names_are_found_and_all_different() {
    for kind in PolicyKind::ALL {
        assert_eq!(PolicyKind::from_name(kind.name()), Some(*kind));
        assert!(!kind.about().ends_with('.') && !kind.about().is_empty());
    }
}

#[test]
fn the_only_candidate_is_chosen() {
    for kind in PolicyKind::ALL {
        let mut run = Run::new(*kind);
        for load in [0, 1, 1000, u32::MAX] {
            let mut alone = nodes(&[1]);
            alone[0].active = load;
            alone[0].busy_permille = u16::MAX;
            assert_eq!(run.choose(&alone, 10).node, alone[0].id, "{kind}");
        }
    }
}

#[test]
fn everybody_gets_about_their_part() {
    for kind in PolicyKind::ALL {
        let counts = Run::new(*kind).spread(&mut nodes(&[100_000, 200_000, 100_000]), 40, 40_000);
        let part = |place: usize| counts[place] as f64 / 40_000.0;
        // Policies that go by content know weights only through loads.
        let tolerance = if *kind == PolicyKind::MixLard { 0.12 } else { 0.06 };
        for (place, wanted) in [0.25, 0.5, 0.25].into_iter().enumerate() {
            assert!((part(place) - wanted).abs() < tolerance, "{kind}: {counts:?}");
        }
    }
}

#[test]
fn between_two_reports_not_all_go_to_the_node_that_had_least_to_do() {
    for kind in [PolicyKind::LeastConnections, PolicyKind::PowerOfTwo, PolicyKind::MixLard] {
        let (mut run, mut candidates) = (Run::new(kind), nodes(&[100_000, 100_000]));
        candidates[0].active = 2;
        for _ in 0..100 {
            let node = run.choose(&candidates, u64::MAX).node;
            candidates.iter_mut().filter(|c| c.id == node).for_each(|c| c.unheard += 1);
        }
        let counts: Vec<u32> = candidates.iter().map(|c| c.unheard).collect();
        assert!(counts.iter().all(|count| (45..=55).contains(count)), "{kind}: {counts:?}");
    }
}

#[test]
fn a_run_replays() {
    for kind in PolicyKind::ALL {
        let plans = || {
            let (mut run, candidates) = (Run::new(*kind), nodes(&[100_000, 50_000, 70_000, 10]));
            (0..500).map(|_| run.choose(&candidates, 100)).collect::<Vec<_>>()
        };
        assert_eq!(plans(), plans());
    }
}

#[test]
fn nodes_come_and_go() {
    for kind in PolicyKind::ALL {
        let (mut run, all) = (Run::new(*kind), nodes(&[100_000; 5]));
        for _ in 0..2000 {
            let mask = random(&mut run.seed);
            let mut some: Vec<_> =
                all.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1).map(|(_, c)| *c).collect();
            for candidate in &mut some {
                candidate.active = (random(&mut run.seed) % 200) as u32;
            }
            if !some.is_empty() {
                run.choose(&some, 50);
            }
        }
    }
}

#[test]
fn settings_change_while_it_runs() {
    for kind in PolicyKind::ALL {
        let (mut run, candidates) = (Run::new(*kind), nodes(&[100_000; 3]));
        for entries_max in [16, 1000, 20] {
            let mix_lard = MixLardSettings { entries_max, ..MixLardSettings::default() };
            run.policy.configure(&PolicySettings { mix_lard, load_bound_percent: 100 });
            for _ in 0..500 {
                run.choose(&candidates, 2000);
            }
            assert!(run.policy.table().is_none_or(|table| table.len() <= entries_max), "{kind}");
        }
    }
}

#[test]
fn a_hash_moves_only_what_it_must_and_a_full_node_is_passed_over() {
    let (run, all) = (Run::new(PolicyKind::ConsistentHash), nodes(&[100_000; 5]));
    let choose = |key: u64, candidates: &[Candidate]| {
        let key = ContentKey(key.wrapping_mul(0xd6e8_feb8_6659_fd93));
        run.policy.plan(&Ask { key, class: Class::Static, candidates, random: 0, now: run.now })
    };
    let mut moved = 0;
    for key in 1..2000 {
        let (with, without) = (choose(key, &all), choose(key, &all[1..]));
        if with.node == all[0].id {
            moved += 1;
        } else {
            assert_eq!(with.node, without.node);
        }
        let mut loaded = all.clone();
        for candidate in &mut loaded {
            candidate.active = if candidate.id == with.node { 13 } else { 8 };
        }
        assert_eq!(choose(key, &loaded).why, Why::PastFull(with.node), "45 under way and 1.25 of a fifth of 46 are 12");
    }
    assert!((320..480).contains(&moved), "{moved} of 2000 were the first node's");
}
