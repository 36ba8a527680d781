//! Connections that begin at the node: who has one of which the other hasn't heard yet.

use super::super::limits::UNBORN_MAX;
use super::*;

/// A flow that begins at the node, as far as its home knows.
fn be_born() -> Pair {
    let mut pair = Pair::new();
    pair.home.forget(FLOW);
    pair.home.born(pair.now, FLOW, NODE, IMAGE).unwrap();
    pair
}

#[test]
fn a_birth_is_an_offer_that_says_nothing() {
    let mut pair = be_born();
    assert!(pair.node.born(pair.now, FLOW) && !pair.node.born(pair.now, FLOW), "once");
    pair.talk();
    pair.node.tell_births();
    pair.talk();
    assert_eq!((pair.home_did.clone(), pair.node_did.clone()), (vec![], vec![]));
    assert_eq!(
        (pair.home.flows_of(|node| node == NODE).count(), pair.home.counters().born, pair.home.counters().taken),
        (1, 1, 0)
    );
    // From here on it's a flow like any other.
    pair.hand_back();
    assert!(matches!(pair.home_did.last(), Some(Effect::Place { giver: Some(NODE), .. })));

    // A connection server's is lent.
    let mut pair = Pair::new();
    pair.home.set_rules(Rules { are_births_lent: true, ..Rules::default() });
    pair.home.forget(FLOW);
    pair.home.born(pair.now, FLOW, NODE, IMAGE).unwrap();
    pair.talk();
    assert!(pair.node.born(pair.now, FLOW) && pair.node.is_lent(FLOW) && pair.node.replied(FLOW, 2));
    pair.node.frozen(FLOW, IMAGE);
    pair.talk();
    pair.home.place(FLOW, Destination::Node(NODE)).unwrap();
    pair.talk();
    assert!(pair.node.is_lent(FLOW) && pair.node.replied(FLOW, 3), "it's left there, for one request more");

    // One that is over before anybody was told of it.
    let mut pair = be_born();
    assert!(pair.node.born(pair.now, FLOW));
    pair.node.ended(FLOW, false);
    pair.node.tell_births();
    pair.talk();
    assert_eq!((pair.home_did.clone(), pair.home.flow_count()), (vec![unsteer(1)], 0));
}

#[test]
fn a_flow_that_never_came_to_its_node_goes_on_from_its_image_and_never_begins_there() {
    let mut pair = be_born();
    let kept = pair.now;
    assert!(pair.home.born(pair.now, FLOW, NODE, IMAGE).is_err(), "it's another flow's name");
    pair.pass(Duration::from_millis(150));
    assert_eq!((pair.home_did.clone(), pair.node_did.clone()), (vec![], vec![Effect::AcceptAll]));
    pair.node.none_waits();
    pair.talk();
    let recover = Effect::Recover { flow: FLOW, image: IMAGE, kept, told: Told::default(), birth: Birth::Denied };
    assert_eq!(pair.home_did, [steer(Target::Hold, 2), recover], "what comes meanwhile waits");
    assert!(!pair.node.born(pair.now, FLOW), "its packet was late");
    pair.home.recovered(pair.now, FLOW, IMAGE, false);
    pair.home.place(FLOW, Destination::Node(NODE)).unwrap();
    pair.talk();
    assert!(matches!(pair.node_did[..], [_, Effect::Thaw { generation: Generation(3), .. }]));
    assert!(!pair.home.was_refused(FLOW));
    pair.node.thaw_failed(FLOW, RefuseReason::Kernel);
    pair.talk();
    assert!(pair.home.was_refused(FLOW), "another place is to be found");
    assert_eq!(pair.home.refusers(FLOW), [NODE]);
    pair.home.place(FLOW, Destination::Here).unwrap();
    assert_eq!(pair.home.refusers(FLOW), [NODE], "it isn't settled yet");
    pair.home.thawed(FLOW);
    assert!(!pair.home.was_refused(FLOW) && pair.home.refusers(FLOW).is_empty());
}

#[test]
fn who_waits_to_be_accepted_begins_though_the_home_has_asked() {
    let mut pair = be_born();
    pair.pass(Duration::from_millis(150));
    // Not even a list without it says that it isn't there.
    pair.lose();
    pair.reconnect();
    assert_eq!(pair.node_did, [Effect::AcceptAll, Effect::AcceptAll]);
    assert!(pair.node.born(pair.now, FLOW));
    pair.node.none_waits();
    pair.node.tell_births();
    pair.talk();
    assert_eq!(pair.home_did, []);
    assert_eq!(pair.home.flows_of(|node| node == NODE).count(), 1);
}

#[test]
fn a_birth_of_which_the_home_hasnt_heard_yet_is_told_when_it_asks() {
    let mut pair = be_born();
    assert!(pair.node.born(pair.now, FLOW));
    pair.pass(Duration::from_millis(150));
    assert_eq!((pair.home_did.clone(), pair.node_did.clone()), (vec![], vec![]), "it stays where it is");
    assert_eq!(pair.home.flows_of(|node| node == NODE).count(), 1);
    pair.home.recall(FLOW, RecallTerms::AtOnce);
    pair.talk();
    assert_eq!(pair.node_did, [FREEZE], "asked for a flow that is known to be there, it gives it back");
}

#[test]
fn a_home_of_an_older_version_asks_for_a_birth_without_saying_so() {
    let mut pair = be_born();
    pair.talk();
    assert!(pair.node.born(pair.now, FLOW));
    let recall = || Message::Recall { flow: FLOW, generation: Generation::BORN, terms: RecallTerms::AtOnce };
    pair.node.handle_message(pair.now, pair.session(), recall());
    pair.talk();
    assert_eq!(pair.node_did, [], "it's told that it has begun, and gets nothing back");
    pair.node.handle_message(pair.now, pair.session(), recall());
    assert_eq!(pair.node.poll_effect(), Some(FREEZE), "it knows, and asks");
}

#[test]
fn a_birth_whose_word_is_late_stays_where_it_is() {
    let mut pair = be_born();
    assert!(pair.node.born(pair.now, FLOW));
    pair.node.tell_births();
    let told = pair.collect_node();
    // A full link keeps the word for longer than the home waits for it.
    pair.pass(Duration::from_millis(150));
    told.into_iter().for_each(|message| pair.home.handle_message(pair.now, pair.session(), message));
    pair.talk();
    assert_eq!(
        (pair.home_did.clone(), pair.node_did.clone()),
        (vec![], vec![]),
        "it isn't frozen in the middle of its reply"
    );
    assert_eq!(pair.home.flows_of(|node| node == NODE).count(), 1);
}

#[test]
fn a_node_that_takes_its_time_isnt_asked_for_what_it_was_offered() {
    let mut pair = Pair::new();
    pair.offer();
    pair.pass(Duration::from_millis(800));
    pair.node.thawed(FLOW);
    pair.talk();
    assert!(!pair.node_did.contains(&FREEZE), "{:?}", pair.node_did);
    assert_eq!(pair.home.flows_of(|node| node == NODE).count(), 1);
}

#[test]
fn what_began_at_a_node_that_dies_goes_on_from_what_the_client_had_sent() {
    for birth in [Birth::Unknown, Birth::Known] {
        let mut pair = be_born();
        let kept = pair.now;
        pair.node.born(pair.now, FLOW);
        if birth == Birth::Known {
            // It says that it has it.
            pair.node.tell_births();
            pair.talk();
        }
        pair.home.disconnected(pair.session());
        pair.now = pair.now.after(Duration::from_secs(3));
        pair.home.handle_timeout(pair.now);
        pair.collect_home();
        let recover = Effect::Recover { flow: FLOW, image: IMAGE, kept, told: Told::default(), birth };
        assert!(pair.home_did.contains(&recover), "{:?}", pair.home_did);
    }
}

#[test]
fn what_a_node_says_of_a_flow_that_has_just_begun_is_believed() {
    let mut pair = be_born();
    let (kept, progress) = (pair.now, Bytes::from_static(b"progress"));
    pair.home.set_rules(Rules { is_asked: true, ..Rules::default() });
    pair.talk();
    pair.node.born(pair.now, FLOW);
    pair.node.began(FLOW, progress.clone());
    pair.talk();
    pair.home.disconnected(pair.session());
    pair.now = pair.now.after(Duration::from_secs(3));
    pair.home.handle_timeout(pair.now);
    pair.collect_home();
    let mut told = Told::default();
    told.add(progress);
    let recover = Effect::Recover { flow: FLOW, image: IMAGE, kept, told, birth: Birth::Known };
    assert!(pair.home_did.contains(&recover));

    let mut pair = be_born();
    pair.home.set_rules(Rules { is_asked: true, ..Rules::default() });
    pair.talk();
    pair.node.born(pair.now, FLOW);
    let question = Question { number: 2, head: Bytes::from_static(b"head"), is_stuck: false };
    assert!(pair.node.ask(pair.now, FLOW, question.clone()));
    pair.talk();
    assert_eq!(pair.home_did, [Effect::Where { flow: FLOW, node: NODE, question: question.clone() }]);
    pair.home.tell(FLOW, question.number, There::Nowhere);
    pair.talk();
    assert!(pair.node_did.contains(&Effect::Told { flow: FLOW, there: Some(There::Nowhere) }));
    assert!(pair.node.ask(pair.now, FLOW, question));
    pair.pass(Duration::from_millis(100));
    assert!(pair.node_did.contains(&Effect::Told { flow: FLOW, there: None }), "nobody answers");
}

/// A flow that has begun at the node by a choice that stood.
fn begin_unasked() -> Pair {
    let mut pair = Pair::new();
    pair.home.forget(FLOW);
    assert!(pair.home.begun(pair.now, FLOW, NODE, Some(IMAGE)));
    assert!(!pair.home.begun(pair.now, FLOW, OTHER, None), "it's known");
    pair
}

#[test]
fn what_has_begun_unasked_is_as_if_it_had_been_asked() {
    let mut pair = begin_unasked();
    assert!(pair.node.born(pair.now, FLOW));
    pair.node.tell_births();
    pair.talk();
    assert_eq!((pair.home_did.clone(), pair.home.counters().born), (vec![], 1));
    assert_eq!(pair.home.holder(FLOW), Some(Some(NODE)));

    let mut pair = begin_unasked();
    let kept = pair.now;
    pair.pass(Duration::from_millis(150));
    pair.node.none_waits();
    pair.talk();
    let recover = Effect::Recover { flow: FLOW, image: IMAGE, kept, told: Told::default(), birth: Birth::Denied };
    assert_eq!(pair.home_did, [steer(Target::Hold, 2), recover], "its packet was lost");
}

#[test]
fn what_has_begun_unasked_while_the_link_was_down_is_asked_for_when_its_up_again() {
    for is_accepted in [true, false] {
        let mut pair = Pair::new();
        pair.home.forget(FLOW);
        pair.lose();
        pair.home.begun(pair.now, FLOW, NODE, Some(IMAGE));
        assert_eq!(pair.home.flows_of(|node| node == NODE).count(), 1);
        if is_accepted {
            assert!(pair.node.born(pair.now, FLOW));
        }
        pair.reconnect();
        if !is_accepted {
            assert_eq!(pair.node_did.last(), Some(&Effect::AcceptAll), "it may wait to be accepted");
            pair.node.none_waits();
            pair.talk();
            let is_denied = |did: &Effect| matches!(did, Effect::Recover { birth: Birth::Denied, .. });
            assert!(pair.home_did.iter().any(is_denied), "{:?}", pair.home_did);
        } else {
            pair.talk();
            assert_eq!(pair.home.holder(FLOW), Some(Some(NODE)));
        }
    }
}

#[test]
fn what_has_begun_unasked_at_a_node_that_never_comes_back_goes_on_elsewhere_after_its_lease() {
    let mut pair = Pair::new();
    pair.home.forget(FLOW);
    pair.home.disconnected(pair.session());
    pair.home.begun(pair.now, FLOW, NODE, Some(IMAGE));
    pair.now = pair.now.after(Duration::from_millis(900));
    pair.home.handle_timeout(pair.now);
    assert_eq!(pair.home.poll_effect(), None, "it may have a lease yet");
    assert!(pair.home.poll_timeout() <= pair.now.after(Duration::from_millis(200)));
    pair.now = pair.now.after(Duration::from_millis(200));
    pair.home.handle_timeout(pair.now);
    pair.collect_home();
    assert!(pair.home_did.iter().any(|did| matches!(did, Effect::Recover { .. })), "{:?}", pair.home_did);
}

#[test]
fn a_word_of_a_birth_that_was_only_in_the_steering_entries_is_believed() {
    let mut pair = Pair::new();
    let entry = (FLOW, Target::Node(NODE), Generation::BORN);
    pair.home = Home::recover(pair.now, HomeLimits::default(), [entry]);
    pair.node.disconnected(pair.session());
    pair.reconnect();
    assert!(pair.node.born(pair.now, FLOW), "it had waited to be accepted");
    pair.node.tell_births();
    pair.talk();
    assert_eq!(pair.home.holder(FLOW), Some(Some(NODE)));
}

#[test]
fn what_began_elsewhere_leaves_nothing_behind() {
    let mut pair = be_born();
    pair.home.never_born(FLOW);
    pair.talk();
    assert_eq!((pair.home_did.clone(), pair.node_did.clone(), pair.home.flow_count()), (vec![], vec![], 0));
    assert_eq!(pair.home.unanswered(NODE), 0);
}

#[test]
fn what_was_given_up_at_a_process_doesnt_begin_at_the_one_that_follows() {
    for is_denied in [true, false] {
        let mut pair = be_born();
        if is_denied {
            pair.pass(Duration::from_millis(150));
            pair.node.none_waits();
            pair.talk();
        }
        pair.lose();
        pair.now = pair.now.after(Duration::from_secs(3));
        pair.home.handle_timeout(pair.now);
        pair.collect_home();
        assert!(pair.home_did.iter().any(|did| matches!(did, Effect::Recover { .. })), "{:?}", pair.home_did);
        pair.node = Node::new(NodeLimits::default(), Incarnation(2));
        pair.reconnect();
        assert!(!pair.node.born(pair.now, FLOW), "its packet was late, or it had waited to be accepted");
    }
}

#[test]
fn who_is_told_again_what_isnt_to_begin_forgets_nothing_for_that() {
    let mut node = Node::new(NodeLimits::default(), Incarnation(1));
    let (now, session) = (Instant::default(), SessionId(1));
    node.connected(now, session, None);
    let other = FlowId { serial: FLOW.serial + 1, ..FLOW };
    for flow in std::iter::once(FLOW).chain(std::iter::repeat_n(other, UNBORN_MAX)) {
        node.handle_message(now, session, Message::Release { flow, generation: Generation::BORN });
    }
    assert!(!node.born(now, FLOW) && !node.born(now, other));
}

#[test]
fn what_was_given_up_at_a_process_doesnt_begin_at_another_that_is_there() {
    let mut pair = be_born();
    // Of the same node: it hasn't had a lease, and isn't asked.
    let session = SessionId(1_000);
    pair.home.connected(NODE, session);
    let hello = Message::Hello { incarnation: Incarnation(2), number: 1, offers_max: 9, process: None };
    for message in [hello, Message::Holding { flows: vec![], is_last: true }] {
        pair.home.handle_message(pair.now, session, message);
    }
    let denied = Message::Refused { flow: FLOW, generation: Generation::BORN, reason: RefuseReason::Absent };
    pair.home.handle_message(pair.now, pair.session(), denied);
    let release = Message::Release { flow: FLOW, generation: Generation::BORN };
    let said: Vec<Effect> = std::iter::from_fn(|| pair.home.poll_effect()).collect();
    assert!(said.contains(&Effect::Send { session, message: release }), "{said:?}");
}
