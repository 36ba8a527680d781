//! A worker whose core others take for a part of the time: who asks for little isn't refused for that.

use std::time::Duration;

use leat_sim::crowd::{Asking, Demand, Got, What, run_interrupted};

const BURNS_PER_S: f64 = 1e6 / 350.0;

fn got(interruption_ms: (u64, u64), asking: Asking) -> Got {
    let demand = Demand { weight: 100, asking, what: What::Burn(200, 500) };
    let ms = Duration::from_millis;
    let interruption = (ms(interruption_ms.0), ms(interruption_ms.1));
    let got = run_interrupted(interruption, &[demand], 1, Duration::from_secs(3), Duration::from_secs(4)).unwrap();
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
