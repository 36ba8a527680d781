//! Many runs, each from its seed, and what the simulator must find when a host is defective.

use leat_sim::{Defect, Options, run};

const SEEDS: u64 = 400;

fn options(seed: u64) -> Options {
    Options { seed, verbose: false, defect: None }
}

#[test]
fn runs_end_well() {
    let (mut replies, mut cuts) = (0, 0);
    for seed in 0..SEEDS {
        match run(options(seed)) {
            Ok(summary) => {
                replies += summary.replies;
                cuts += summary.cuts;
            }
            Err(failure) => panic!("{failure}"),
        }
    }
    // Runs in which nothing happens prove nothing.
    assert!(replies > 10 * SEEDS, "{replies} replies");
    assert!(cuts > SEEDS / 50, "{cuts} cuts");
}

/// Programs that answer while leave to send content waits for its client; content at less than `body_rate`; a request that meets the end of
/// an idle connection on its way.
#[test]
fn runs_that_failed_once_end_well() {
    for seed in [701_593, 701_805, 702_586, 710_080, 731_828] {
        run(options(seed)).unwrap();
    }
}

#[test]
fn a_seed_is_a_run() {
    for seed in [1, 77, 4_711] {
        let once = run(options(seed)).unwrap();
        assert_eq!(run(options(seed)).unwrap(), once);
        assert_ne!(run(options(seed + 1)).unwrap().fingerprint, once.fingerprint);
    }
}

/// The first failure that a defect leads to.
fn first_failure(defect: Defect) -> String {
    let failures = (0..SEEDS).find_map(|seed| run(Options { defect: Some(defect), ..options(seed) }).err());
    failures.expect("the defect goes unnoticed").to_string()
}

#[test]
fn torn_replies_are_found_when_the_storage_trusts_files() {
    let failure = first_failure(Defect::TrustsFiles);
    assert!(failure.contains("it fits no state of the file"), "{failure}");
}
