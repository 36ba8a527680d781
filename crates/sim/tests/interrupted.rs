//! A worker whose core others take for a part of the time: who asks for little isn't refused for that.

use std::time::Duration;

use leat_sim::crowd::{Asking, Demand, Got, What, run_interrupted};

const BURNS_PER_S: f64 = 1e6 / 350.0;

fn got(interruption_ms: (u64, u64), asking: Asking) -> Got {
    got_after(3, interruption_ms, Demand { weight: 100, asking, what: What::Burn(200, 500) })
}

fn got_after(warm_up_s: u64, interruption_ms: (u64, u64), demand: Demand) -> Got {
    let (ms, asking) = (Duration::from_millis, demand.asking);
    let interruption = (ms(interruption_ms.0), ms(interruption_ms.1));
    let warm_up = Duration::from_secs(warm_up_s);
    let got = run_interrupted(interruption, &[demand], 1, warm_up, Duration::from_secs(4)).unwrap();
    let got = got.into_iter().next().unwrap();
    let (answered, refused) = (got.answered_ns.len(), got.refused_ns.len());
    println!("{interruption_ms:?} {asking:?}: {answered} answered, {refused} refused, p99 {:.1} ms", got.p99_ms());
    got
}

#[test]
fn who_asks_for_less_than_what_is_left_of_the_core_is_not_refused() {
    // By turns, as the kernel shares a core; and as a group of processes stands still that has used up its part of a period.
    for interruption_ms in [(3, 3), (5, 5), (10, 10), (50, 50), (20, 80), (50, 150)] {
        let left = interruption_ms.0 as f64 / (interruption_ms.0 + interruption_ms.1) as f64;
        for load in [0.3, 0.6] {
            let rate = BURNS_PER_S * left * load;
            for asking in [Asking::Kept(4_000, rate), Asking::Kept(100, rate), Asking::New(rate)] {
                let got = got(interruption_ms, asking);
                assert_eq!(got.refused_ns.len(), 0, "{asking:?} with {interruption_ms:?}");
                assert!(got.p99_ms() < interruption_ms.1 as f64 + 5.0, "{} ms", got.p99_ms());
            }
        }
    }
}

/// A worker that has stood still for longer than any request may wait refuses those that waited, and no more after that, where a refusal costs what a reply does.
#[test]
fn clients_that_connect_for_each_request_are_served_again_after_a_long_interruption() {
    for clients in [500, 5_000] {
        let demand = Demand { weight: 100, asking: Asking::Anew(clients), what: What::Burn(1, 5) };
        let undisturbed = got_after(3, (1_000_000, 1), demand).answered_ns.len();
        let got = got_after(9, (6_000, 1_300), demand);
        assert_eq!(got.refused_ns.len(), 0, "{clients}");
        assert!(
            got.answered_ns.len() * 100 > undisturbed * 95,
            "{clients}: {} of {undisturbed}",
            got.answered_ns.len()
        );
    }
}
