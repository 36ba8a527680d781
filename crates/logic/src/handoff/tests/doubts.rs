//! What counts as recovered, and what as cut, of flows whose client must ask again.

use super::*;

/// A flow at a node that goes on only if its client asks again, since another node died with it.
fn doubtful() -> Pair {
    let mut pair = Pair::new();
    pair.hand_over();
    pair.lose_at_other();
    pair.home.recovered(pair.now, FLOW, IMAGE, true);
    pair.home.place(FLOW, Destination::Node(NODE)).unwrap();
    pair.talk();
    pair.node.thawed(FLOW);
    pair.talk();
    assert_eq!((counts(&pair), pair.home.holder(FLOW)), ((0, 0), Some(Some(NODE))), "nobody knows yet");
    pair
}

/// Flows recovered, and cut.
fn counts(pair: &Pair) -> (u64, u64) {
    let counters = pair.home.counters();
    (counters.recovered, counters.cut)
}

#[test]
fn who_isnt_asked_again_was_cut() {
    let mut pair = doubtful();
    pair.node.ended(FLOW, true);
    pair.talk();
    assert_eq!(counts(&pair), (0, 1));
}

#[test]
fn who_ends_in_order_or_doesnt_end_in_time_went_on() {
    let mut pair = doubtful();
    pair.node.ended(FLOW, false);
    pair.talk();
    assert_eq!(counts(&pair), (1, 0));

    let mut pair = doubtful();
    let passed = |pair: &mut Pair, quarters| (0..quarters).for_each(|_| pair.pass(Duration::from_millis(250)));
    passed(&mut pair, 27);
    assert_eq!(counts(&pair), (0, 0));
    passed(&mut pair, 2);
    assert_eq!(counts(&pair), (1, 0));
    // Whatever cuts it then has nothing to do with that death.
    pair.node.ended(FLOW, true);
    pair.talk();
    assert_eq!(counts(&pair), (1, 0));
}

#[test]
fn who_is_answered_has_gone_on() {
    let mut pair = doubtful();
    pair.node.began(FLOW, Bytes::from_static(b"progress"));
    pair.talk();
    assert_eq!(counts(&pair), (1, 0));
}

#[test]
fn it_counts_once_whoever_cuts_it() {
    let mut pair = doubtful();
    pair.hand_back();
    pair.home.cut(FLOW, CutReason::NoPlace);
    assert_eq!(counts(&pair), (0, 1));

    let mut pair = doubtful();
    pair.hand_back();
    pair.home.place(FLOW, Destination::Here).unwrap();
    pair.home.thawed(FLOW);
    pair.home.was_cut(FLOW);
    pair.home.forget(FLOW);
    assert_eq!(counts(&pair), (0, 1));
}
