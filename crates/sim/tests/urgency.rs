//! The policies that go by urgency under more load than there is room for, in virtual time: who goes first, and that nobody waits for longer than the policy says.

use std::time::Duration;

use leat::config::{Config, First, Owner, Schedule};
use leat_logic::schedule::PolicyKind;
use leat_sim::crowd::{Asking, Demand, Got, What, run_under};

const WARM_UP: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(2);
/// What computes for that long, on average.
const BURN: What = What::Burn(200, 500);
const BURNS_PER_S: f64 = 1e6 / 350.0;
const SEEDS: std::ops::Range<u64> = 0..2;

fn site(asking: Asking, what: What) -> Demand {
    Demand { weight: 100, asking, what }
}

fn got(arrange: impl FnOnce(&mut Config), demands: &[Demand], seed: u64) -> Vec<Got> {
    let got = run_under(arrange, demands, seed, WARM_UP, WINDOW).unwrap();
    for (site, got) in got.iter().enumerate() {
        let (answered, refused) = (got.answered_ns.len(), got.refused_ns.len());
        println!(
            "site {site}: {} offered, {answered} answered, {refused} refused, p99 {:.1} ms",
            got.offered,
            got.p99_ms()
        );
    }
    got
}

/// The policy at the root, between an owner's sites, and below a stage.
fn places(policy: PolicyKind) -> [fn(&mut Config, PolicyKind); 3] {
    assert!(matches!(policy, PolicyKind::Deadline | PolicyKind::ShortestRemaining));
    [
        |config, policy| config.schedule.root = policy,
        |config, policy| {
            config.owners = vec![Owner { name: "owner".to_owned(), policy, ..Owner::default() }];
            config.sites.iter_mut().for_each(|site| site.owner = "owner".to_owned());
        },
        |config, policy| {
            let gather_us = config.schedule.gather_us;
            config.schedule = Schedule {
                first: First::Stages,
                serve: policy,
                transmit: policy,
                compute: policy,
                gather_us,
                ..Schedule::default()
            };
        },
    ]
}

/// A hundred connections want a long file again and again: a short one waits for the turn that is under way and for none of theirs.
#[test]
fn short_replies_overtake_long_ones_wherever_shortest_remaining_is() {
    // All are sent in turns: nothing is kept in memory.
    let without_cache = |config: &mut Config| config.files.cache_size = 0;
    let short = site(Asking::Kept(200, 1_000.0), What::SmallFile);
    let long = site(Asking::Again(100), What::File { is_read: true });
    for seed in SEEDS {
        let alone_ms = got(without_cache, &[short], seed)[0].p99_ms();
        for place in places(PolicyKind::ShortestRemaining) {
            let arrange = |policy| {
                move |config: &mut Config| {
                    without_cache(config);
                    place(config, policy);
                }
            };
            let turns = got(arrange(PolicyKind::RoundRobin), &[short, long], seed);
            let shortest = got(arrange(PolicyKind::ShortestRemaining), &[short, long], seed);
            assert!(shortest[0].answered_ns.len() as f64 > shortest[0].offered as f64 * 0.99);
            let late_ms = |got: &[Got]| got[0].p99_ms() - alone_ms;
            // A turn is 170 us.
            let (shortest_ms, turns_ms) = (late_ms(&shortest), late_ms(&turns));
            assert!(shortest_ms < 0.45 && shortest_ms < turns_ms * 0.7, "{shortest_ms} ms, {turns_ms} ms in turns");
            let long = |got: &[Got]| got[1].answered_ns.len() as f64;
            assert!(long(&shortest) > long(&turns) * 0.95, "the long ones get what is left");
        }
    }
}

fn delays(config: &mut Config, delays_ms: [u64; 2]) {
    for (site, ms) in config.sites.iter_mut().zip(delays_ms) {
        site.max_queue_delay = Duration::from_millis(ms);
    }
}

/// The first wants a third of the processor, the second all of it.
#[test]
fn the_shorter_delay_goes_first_wherever_deadline_is() {
    let hasty = site(Asking::Kept(100, BURNS_PER_S / 3.0), BURN);
    let patient = site(Asking::Again(40), BURN);
    for seed in SEEDS {
        let alone_ms = got(|_| {}, &[hasty], seed)[0].p99_ms();
        for place in places(PolicyKind::Deadline) {
            let arrange = |config: &mut Config| {
                delays(config, [10, 1_000]);
                place(config, PolicyKind::Deadline);
            };
            let got = got(arrange, &[hasty, patient], seed);
            assert!(got[0].answered_ns.len() as f64 > got[0].offered as f64 * 0.99);
            // What has begun goes on to its end.
            assert!(got[0].p99_ms() < alone_ms + 1.0, "{} and {alone_ms} alone", got[0].p99_ms());
            let rest = got[1].answered_ns.len() as f64 / WINDOW.as_secs_f64() / (BURNS_PER_S * 2.0 / 3.0);
            assert!(rest > 0.9, "the patient ones get what is left: {rest} of it");
        }
    }
}

/// The first would take everything: the second's requests wait for nearly as long as they may, and no longer.
#[test]
fn the_longer_delay_is_served_when_it_is_due() {
    let hasty = site(Asking::Again(16), BURN);
    let patient = site(Asking::Kept(100, BURNS_PER_S / 10.0), BURN);
    for seed in SEEDS {
        for place in places(PolicyKind::Deadline) {
            let arrange = |config: &mut Config| {
                delays(config, [20, 100]);
                place(config, PolicyKind::Deadline);
            };
            let got = got(arrange, &[hasty, patient], seed);
            let [hasty, patient] = &got[..] else { unreachable!() };
            assert!(patient.answered_ns.len() as f64 > patient.offered as f64 * 0.95);
            let middle_ms = patient.answered_ns[patient.answered_ns.len() / 2] / 1_000_000;
            assert!((60..90).contains(&middle_ms), "{middle_ms} ms");
            assert!(patient.p99_ms() < 100.0, "{} ms", patient.p99_ms());
            assert!(hasty.answered_ns.len() as f64 > WINDOW.as_secs_f64() * BURNS_PER_S * 0.8);
        }
    }
}
