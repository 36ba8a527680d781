//! A home and a node that talk, step by step: the order of what hosts must do, and each fault that the simulator has found.

use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::time::Instant;

mod births;
mod doubts;
mod lives;

const NODE: ServerId = ServerId(1);
const OTHER: ServerId = ServerId(2);
const FLOW: FlowId = FlowId { home: ServerId(0), serial: 9 };
const IMAGE: Bytes = Bytes::from_static(b"image");

/// Home and node with the session between them; effects other than `Send` are written down.
struct Pair {
    now: Instant,
    home: Home,
    node: Node,
    session: u64,
    /// What the home, and the node, did.
    home_did: Vec<Effect>,
    node_did: Vec<Effect>,
}

impl Pair {
    fn new() -> Pair {
        let mut pair = Pair {
            now: Instant { ns: 1_000_000_000 },
            home: Home::new(HomeLimits::default()),
            node: Node::new(NodeLimits::default(), Incarnation(1)),
            session: 0,
            home_did: Vec::new(),
            node_did: Vec::new(),
        };
        assert!(pair.home.open(FLOW));
        pair.reconnect();
        pair.pass(Duration::from_millis(250));
        pair.home_did.clear();
        pair.node_did.clear();
        pair
    }

    fn session(&self) -> SessionId {
        SessionId(self.session)
    }

    fn reconnect(&mut self) {
        self.session += 1;
        self.node.connected(self.now, self.session(), None);
        self.home.connected(NODE, self.session());
        self.talk();
    }

    /// Lends the node the flow for the request in hand.
    fn lend(&mut self) {
        self.home.lend(FLOW, NODE).unwrap();
        self.home.frozen(self.now, FLOW, IMAGE);
        self.talk();
        self.node.thawed(FLOW);
        self.talk();
    }

    /// Has another node be there, of which only the test decides what it says.
    fn connect_other(&mut self) -> SessionId {
        let session = SessionId(1_000);
        let hello = Message::Hello { incarnation: Incarnation(1), number: 1, offers_max: 9, process: None };
        let heartbeat = Message::Heartbeat { number: 1, load: Load::default() };
        self.home.connected(OTHER, session);
        for message in [hello, Message::Holding { flows: vec![], is_last: true }, heartbeat] {
            self.home.handle_message(self.now, session, message);
        }
        session
    }

    fn pass(&mut self, duration: Duration) {
        self.now = self.now.after(duration);
        self.home.handle_timeout(self.now);
        self.node.handle_timeout(self.now);
        self.talk();
    }

    /// Delivers messages until nobody has any.
    fn talk(&mut self) {
        loop {
            let to_node = self.collect_home();
            let to_home = self.collect_node();
            if to_node.is_empty() && to_home.is_empty() {
                return;
            }
            let session = self.session();
            to_node.into_iter().for_each(|message| self.node.handle_message(self.now, session, message));
            to_home.into_iter().for_each(|message| self.home.handle_message(self.now, session, message));
        }
    }

    fn collect_home(&mut self) -> Vec<Message> {
        collect(std::iter::from_fn(|| self.home.poll_effect()), &mut self.home_did, self.session)
    }

    fn collect_node(&mut self) -> Vec<Message> {
        collect(std::iter::from_fn(|| self.node.poll_effect()), &mut self.node_did, self.session)
    }

    /// Until the node has been asked to thaw.
    fn offer(&mut self) {
        self.home.give(FLOW, NODE).unwrap();
        self.home.frozen(self.now, FLOW, IMAGE);
        self.talk();
    }

    fn hand_over(&mut self) {
        self.offer();
        self.node.thawed(FLOW);
        self.talk();
        self.home_did.clear();
        self.node_did.clear();
    }

    /// Until the home has been asked for a place.
    fn hand_back(&mut self) {
        self.node.give_back(FLOW);
        self.node.frozen(FLOW, IMAGE);
        self.talk();
    }

    /// The node gives the flow back; another takes it, and dies.
    fn lose_at_other(&mut self) {
        self.hand_back();
        self.connect_other();
        self.home.place(FLOW, Destination::Node(OTHER)).unwrap();
        for _ in 0..12 {
            self.pass(Duration::from_millis(100));
        }
    }

    /// As if what was said had been lost with its session.
    fn lose(&mut self) {
        self.collect_home();
        self.collect_node();
        self.home.disconnected(self.session());
        self.node.disconnected(self.session());
    }
}

fn collect(effects: impl Iterator<Item = Effect>, did: &mut Vec<Effect>, current: u64) -> Vec<Message> {
    let mut messages = Vec::new();
    for effect in effects {
        match effect {
            Effect::Send { session, message } if session.0 == current => messages.push(message),
            Effect::Send { .. } | Effect::Load { .. } | Effect::LeaseUntil { .. } => {}
            effect => did.push(effect),
        }
    }
    messages
}

fn steer(to: Target, generation: u32) -> Effect {
    Effect::Steer { flow: FLOW, to, generation: Generation(generation) }
}

fn unsteer(generation: u32) -> Effect {
    Effect::Unsteer { flow: FLOW, generation: Generation(generation) }
}

const FREEZE: Effect = Effect::Freeze { flow: FLOW };
const CLOSE: Effect = Effect::CloseSilently { flow: FLOW };

#[test]
fn the_giver_closes_when_the_taker_has_it_and_not_before() {
    let mut pair = Pair::new();
    pair.offer();
    assert_eq!(pair.home_did, [FREEZE, steer(Target::Node(NODE), 1)]);
    assert_eq!(pair.node_did, [Effect::Thaw { flow: FLOW, generation: Generation(1), image: IMAGE }]);
    pair.node.thawed(FLOW);
    pair.talk();
    assert_eq!(pair.home_did[2..], [CLOSE]);
    pair.node.ended(FLOW, false);
    pair.talk();
    assert_eq!(pair.home_did[3..], [unsteer(1)]);
    assert_eq!((pair.home.flow_count(), pair.home.kept_bytes(), pair.node.flow_count()), (0, 0, 0));
}

#[test]
fn a_flow_that_nobody_takes_goes_on_where_it_was() {
    let mut pair = Pair::new();
    pair.offer();
    pair.node.thaw_failed(FLOW, RefuseReason::Kernel);
    pair.talk();
    let unfreeze = Effect::Unfreeze { flow: FLOW, generation: Generation(1) };
    assert_eq!(pair.home_did[2..], [unsteer(1), unfreeze]);
    pair.node.drain(true);
    pair.home_did.clear();
    pair.offer();
    assert!(pair.home_did.ends_with(&[Effect::Unfreeze { flow: FLOW, generation: Generation(2) }]));
}

#[test]
fn an_offer_that_was_lost_comes_back_when_the_node_says_what_it_has() {
    let mut pair = Pair::new();
    pair.home.give(FLOW, NODE).unwrap();
    pair.home.frozen(pair.now, FLOW, IMAGE);
    pair.lose();
    assert_eq!(pair.home_did, [FREEZE, steer(Target::Node(NODE), 1)]);
    pair.reconnect();
    assert_eq!(pair.home_did[2..], [unsteer(1), Effect::Unfreeze { flow: FLOW, generation: Generation(1) }]);
}

#[test]
fn a_flow_that_was_taken_and_has_ended_isnt_taken_for_a_lost_offer() {
    let mut pair = Pair::new();
    pair.offer();
    pair.home_did.clear();
    pair.node.thawed(FLOW);
    pair.node.ended(FLOW, false);
    pair.lose();
    pair.reconnect();
    assert_eq!(pair.home_did, [CLOSE, unsteer(1)]);
    assert_eq!(pair.home.flow_count(), 0);
}

#[test]
fn a_session_that_comes_late_doesnt_replace_a_newer_one() {
    let mut pair = Pair::new();
    pair.lose();
    let (late, current) = (SessionId(50), SessionId(51));
    pair.node.connected(pair.now, late, None);
    let from_late: Vec<Message> = collect(std::iter::from_fn(|| pair.node.poll_effect()), &mut Vec::new(), 50);
    pair.session = current.0;
    pair.node.connected(pair.now, current, None);
    pair.home.connected(NODE, current);
    pair.talk();
    pair.pass(Duration::from_millis(250));
    pair.hand_over();
    // The list of the late one is empty, as it was then.
    pair.home.connected(NODE, late);
    from_late.into_iter().for_each(|message| pair.home.handle_message(pair.now, late, message));
    pair.talk();
    assert_eq!(pair.home_did, [Effect::Disconnect { session: late }]);
    assert_eq!(pair.home.flows_of(|node| node == NODE).count(), 1);
}

#[test]
fn what_comes_back_stays_frozen_there_until_it_lives_elsewhere() {
    let mut pair = Pair::new();
    pair.hand_over();
    pair.hand_back();
    assert_eq!(pair.home_did, [Effect::Place { flow: FLOW, giver: Some(NODE), image: IMAGE }]);
    assert_eq!(pair.home.place(FLOW, Destination::Node(OTHER)), Err(GiveError::NotConnected));
    pair.home.place(FLOW, Destination::Here).unwrap();
    pair.talk();
    assert_eq!(pair.node_did, [FREEZE]);
    pair.home.thawed(FLOW);
    pair.talk();
    assert_eq!(pair.home_did.last(), Some(&unsteer(3)));
    assert_eq!(pair.node_did, [FREEZE, CLOSE]);
}

#[test]
fn a_home_is_settled_while_nothing_is_on_its_way_that_only_it_knows_of() {
    let mut pair = Pair::new();
    let is_settled = |pair: &Pair| (pair.home.is_settled(), pair.home.freezing());
    assert_eq!(is_settled(&pair), (true, vec![]));
    pair.home.give(FLOW, NODE).unwrap();
    assert_eq!(is_settled(&pair), (false, vec![FLOW]), "it's being frozen");
    pair.home.freeze_failed(FLOW);
    assert!(pair.home.is_settled(), "it's here");
    pair.offer();
    assert_eq!(is_settled(&pair), (false, vec![]), "nobody has taken it yet");
    pair.node.thawed(FLOW);
    pair.talk();
    assert!(pair.home.is_settled(), "a node has it, and will say so to whoever asks");
    pair.hand_back();
    assert!(!pair.home.is_settled(), "its image waits for a place");
    pair.home.place(FLOW, Destination::Here).unwrap();
    pair.talk();
    assert!(!pair.home.is_settled(), "a socket is being made");
    pair.home.thawed(FLOW);
    assert!(pair.home.is_settled());
    let begun = FlowId { serial: 10, ..FLOW };
    pair.home.born(pair.now, begun, NODE, IMAGE).unwrap();
    assert!(pair.home.is_settled(), "its packet is on the way, and the node will say what became of it");
}

#[test]
fn what_finds_no_other_place_goes_on_at_its_giver_though_messages_are_lost() {
    let mut pair = Pair::new();
    pair.hand_over();
    pair.hand_back();
    pair.home.place(FLOW, Destination::Node(NODE)).unwrap();
    pair.lose();
    pair.reconnect();
    assert_eq!(pair.node_did, [FREEZE, Effect::Unfreeze { flow: FLOW, generation: Generation(3) }]);
    assert_eq!(pair.home_did.last(), Some(&steer(Target::Node(NODE), 3)));
}

#[test]
fn an_offer_is_lost_also_to_a_node_that_still_has_something_older_of_the_flow() {
    let mut pair = Pair::new();
    pair.hand_over();
    pair.hand_back();
    pair.home.place(FLOW, Destination::Here).unwrap();
    pair.home.thawed(FLOW);
    pair.home.give(FLOW, NODE).unwrap();
    pair.home.frozen(pair.now, FLOW, IMAGE);
    pair.lose();
    pair.home_did.clear();
    pair.reconnect();
    assert_eq!(pair.home_did, [unsteer(4), Effect::Unfreeze { flow: FLOW, generation: Generation(4) }]);
    assert_eq!(pair.node_did, [FREEZE, CLOSE]);
}

#[test]
fn what_was_to_be_kept_and_is_gone_goes_on_from_what_was_returned() {
    let mut pair = Pair::new();
    pair.hand_over();
    pair.hand_back();
    pair.lose();
    // The home is so late with its answer that the node has given up.
    let late = pair.now;
    pair.node.handle_timeout(late.after(Duration::from_secs(100)));
    pair.home.place(FLOW, Destination::Here).unwrap();
    pair.home.thaw_failed(FLOW);
    pair.reconnect();
    assert_eq!(pair.node_did, [FREEZE, CLOSE]);
    pair.home_did.clear();
    pair.home.place(FLOW, Destination::Node(NODE)).unwrap();
    pair.talk();
    // Its frozen socket is known to be gone: it's offered like to any other.
    assert_eq!(pair.node_did[2..], [Effect::Thaw { flow: FLOW, generation: Generation(4), image: IMAGE }]);
}

#[test]
fn nothing_is_taken_back_before_the_lease_has_run_out() {
    let mut pair = Pair::new();
    let kept = pair.now;
    pair.hand_over();
    pair.lose();
    pair.pass(Duration::from_millis(900));
    assert!(!pair.node.is_fenced(pair.now) && pair.home_did.is_empty());
    pair.pass(Duration::from_millis(110));
    assert!(pair.node.is_fenced(pair.now) && pair.home_did.is_empty());
    pair.pass(Duration::from_millis(20));
    let recover = Effect::Recover { flow: FLOW, image: IMAGE, kept, told: Told::default(), birth: Birth::Known };
    assert_eq!(pair.home_did, [steer(Target::Hold, 2), recover]);
    // The node comes back with a socket that isn't its any more, and is told so before it gets a lease.
    pair.session += 1;
    let session = pair.session();
    pair.node.connected(pair.now, session, None);
    pair.home.connected(NODE, session);
    for message in pair.collect_node() {
        pair.home.handle_message(pair.now, session, message);
    }
    let answers = pair.collect_home();
    assert!(matches!(answers[..], [Message::Release { .. }, Message::Lease { .. }]), "{answers:?}");
}

#[test]
fn a_home_that_stood_still_goes_on_with_nodes_that_are_alive() {
    let mut pair = Pair::new();
    pair.hand_over();
    pair.now = pair.now.after(Duration::from_secs(3));
    pair.node.handle_timeout(pair.now);
    assert!(pair.node.is_fenced(pair.now));
    // What the node has said meanwhile lies unread.
    pair.home.handle_timeout(pair.now);
    assert!(pair.home_did.is_empty() && pair.collect_home().is_empty());
    pair.talk();
    pair.pass(Duration::from_millis(1));
    assert!(!pair.node.is_fenced(pair.now) && pair.home_did.is_empty());
}

#[test]
fn a_node_that_says_nothing_though_its_session_is_there_is_waited_for_a_moment_longer() {
    let mut pair = Pair::new();
    pair.hand_over();
    pair.now = pair.home.poll_timeout();
    for is_over in [false, true] {
        pair.home.handle_timeout(pair.now);
        pair.collect_home();
        let recovers = pair.home_did.iter().any(|effect| matches!(effect, Effect::Recover { .. }));
        assert_eq!(recovers, is_over);
        pair.now = pair.home.poll_timeout();
    }
}

#[test]
fn a_giver_whose_flow_went_on_elsewhere_doesnt_get_it_back() {
    let mut pair = Pair::new();
    pair.hand_over();
    // What the first still has is too old.
    pair.lose_at_other();
    assert!(pair.home_did.iter().any(|effect| matches!(effect, Effect::Recover { .. })));
    assert_eq!(pair.node_did, [FREEZE, CLOSE]);
    pair.home.recovered(pair.now, FLOW, IMAGE, false);
    pair.talk();
    assert_eq!(pair.home_did.last(), Some(&Effect::Place { flow: FLOW, giver: None, image: IMAGE }));
}

#[test]
fn what_everybody_else_refuses_stays_with_its_giver_however_often_it_was_offered() {
    let mut pair = Pair::new();
    pair.hand_over();
    pair.hand_back();
    let session = pair.connect_other();
    let mut offers = 0;
    while let Some(Effect::Place { .. }) = pair.home_did.last() {
        offers += 1;
        pair.home.place(FLOW, Destination::Node(OTHER)).unwrap();
        let generation = Generation(2 + offers);
        let reason = RefuseReason::Image;
        pair.home.handle_message(pair.now, session, Message::Refused { flow: FLOW, generation, reason });
        pair.talk();
    }
    assert!(offers >= 3 && !pair.home_did.iter().any(|effect| matches!(effect, Effect::Cut { .. })), "{offers}");
    let unfreeze = |effect: &Effect| matches!(effect, Effect::Unfreeze { .. });
    assert!(pair.node_did.last().is_some_and(unfreeze), "{:?}", pair.node_did);
}

#[test]
fn who_is_asked_for_a_flow_at_rest_is_asked_once() {
    let mut pair = Pair::new();
    pair.hand_over();
    pair.node_did.clear();
    let wanted = |terms: RecallTerms| move |node| (node == NODE).then_some(terms);
    let ask = |pair: &mut Pair, terms| {
        pair.now = pair.now.after(Duration::from_millis(100));
        assert!(pair.home.recall_some(pair.now, wanted(terms), 4), "it's still there");
        pair.talk();
        (std::mem::take(&mut pair.node_did), pair.node.keeps_reply(FLOW))
    };
    assert_eq!(ask(&mut pair, RecallTerms::AtRest), (vec![FREEZE], true));
    assert_eq!(ask(&mut pair, RecallTerms::AtRest), (vec![], true));
    pair.lose();
    pair.reconnect();
    assert_eq!((&*pair.node_did, pair.node.keeps_reply(FLOW)), (&[][..], true), "asked on another link, it's the same");
    assert_eq!(ask(&mut pair, RecallTerms::AtOnce), (vec![], false), "its node is to be emptied meanwhile");
    // What is given back for another reason takes its reply along.
    pair.node.freeze_failed(FLOW);
    pair.node.give_back(FLOW);
    assert!(!pair.node.keeps_reply(FLOW));
}

#[test]
fn a_drain_asks_for_all_in_the_end_and_for_few_at_a_time() {
    let mut pair = Pair::new();
    let flows: Vec<FlowId> = (100..110).map(|serial| FlowId { serial, ..FLOW }).collect();
    for &flow in &flows {
        assert!(pair.home.open(flow));
        pair.home.give(flow, NODE).unwrap();
        pair.home.frozen(pair.now, flow, IMAGE);
        pair.talk();
        pair.node.thawed(flow);
        pair.talk();
    }
    pair.node_did.clear();
    let asked = |pair: &mut Pair| {
        assert!(pair.home.recall_some(pair.now, |node| (node == NODE).then_some(RecallTerms::AtOnce), 4));
        pair.talk();
        let frozen = |effect| match effect {
            Effect::Freeze { flow } => Some(flow),
            _ => None,
        };
        pair.node_did.drain(..).filter_map(frozen).collect::<Vec<_>>()
    };
    assert_eq!(asked(&mut pair), flows[..4]);
    assert_eq!(asked(&mut pair), [], "as many as may be are on their way");
    // The first are in the middle of replies: that doesn't keep the others for long.
    pair.now = pair.now.after(Duration::from_millis(100));
    assert_eq!(asked(&mut pair), flows[4..8]);
    for flow in &flows[4..7] {
        pair.node.frozen(*flow, IMAGE);
    }
    pair.talk();
    assert_eq!(asked(&mut pair), [], "three are here as images");
    for flow in &flows[4..7] {
        pair.home.place(*flow, Destination::Here).unwrap();
        pair.home.thawed(*flow);
    }
    assert_eq!(asked(&mut pair), flows[8..]);
    // What couldn't be frozen is asked for again, also behind those that are still in the middle of replies.
    pair.node.freeze_failed(flows[9]);
    let mut again = Vec::new();
    for _ in 0..3 {
        pair.now = pair.now.after(Duration::from_millis(100));
        again.extend(asked(&mut pair));
    }
    assert_eq!(again, flows[9..]);
}

#[test]
fn what_hasnt_come_back_in_time_is_given_up_and_counted() {
    let mut pair = Pair::new();
    let [here, freezing, thawing, kept] = [1, 2, 3, 4].map(|serial| FlowId { serial, ..FLOW });
    [here, freezing, thawing, kept].into_iter().for_each(|flow| assert!(pair.home.open(flow)));
    pair.connect_other();
    pair.home.give(kept, OTHER).unwrap();
    pair.home.frozen(pair.now, kept, IMAGE);
    pair.home.give(thawing, NODE).unwrap();
    pair.home.frozen(pair.now, thawing, IMAGE);
    pair.talk();
    pair.node.thawed(thawing);
    pair.talk();
    pair.node.give_back(thawing);
    pair.talk();
    pair.node.frozen(thawing, IMAGE);
    pair.talk();
    pair.home.place(thawing, Destination::Here).unwrap();
    pair.home.give(freezing, NODE).unwrap();
    pair.hand_over();
    assert_eq!(pair.home.give_up(|node| node == OTHER), [thawing, FLOW]);
    assert_eq!((pair.home.counters().cut, pair.home.flow_count()), (2, 3));
    pair.talk();
    // Both drop it: its client is told by the host.
    let close = |flow| Effect::CloseSilently { flow };
    assert!(pair.home_did.contains(&close(thawing)) && pair.node_did.contains(&close(FLOW)));
    assert_eq!(pair.home.give_up(|node| node == OTHER), []);
}

#[test]
fn a_home_that_starts_again_takes_up_what_nodes_hold_and_cuts_the_rest() {
    let mut pair = Pair::new();
    pair.hand_over();
    pair.lose();
    let lost = FlowId { serial: 10, ..FLOW };
    let entries = [FLOW, lost].map(|flow| (flow, Target::Node(NODE), Generation(1)));
    pair.home = Home::recover(pair.now, HomeLimits::default(), entries);
    pair.reconnect();
    for _ in 0..40 {
        pair.pass(Duration::from_millis(250));
    }
    let cut = Effect::Cut { flow: lost, reason: CutReason::LostOnTheWay };
    let steer = Effect::Steer { flow: FLOW, to: Target::Node(NODE), generation: Generation(1) };
    assert_eq!(pair.home_did, [steer, cut, Effect::Unsteer { flow: lost, generation: Generation(1) }]);
    pair.node.ended(FLOW, false);
    pair.talk();
    assert_eq!(pair.home_did.last(), Some(&unsteer(1)));
}

#[test]
fn a_home_that_starts_again_asks_for_an_image_of_each_flow_that_rests() {
    let mut pair = Pair::new();
    pair.hand_over();
    pair.lose();
    pair.home = Home::recover(pair.now, HomeLimits::default(), [(FLOW, Target::Node(NODE), Generation(1))]);
    assert!(pair.home.recall_unseen(16), "its node hasn't said yet that it has it");
    pair.reconnect();
    pair.node_did.clear();
    assert!(!pair.home.recall_unseen(16), "all have been asked for");
    pair.talk();
    assert_eq!((&*pair.node_did, pair.node.keeps_reply(FLOW)), (&[FREEZE][..], true));
    pair.node.frozen(FLOW, IMAGE);
    pair.talk();
    pair.home.place(FLOW, Destination::Node(NODE)).unwrap();
    pair.talk();
    assert_eq!(pair.node_did.last(), Some(&Effect::Unfreeze { flow: FLOW, generation: Generation(3) }));
    // Its node dies.
    pair.home_did.clear();
    pair.lose();
    pair.now = pair.now.after(Duration::from_secs(5));
    pair.home.handle_timeout(pair.now);
    pair.talk();
    let is_recovered = |effect: &Effect| matches!(effect, Effect::Recover { flow: FLOW, image, .. } if *image == IMAGE);
    assert!(pair.home_did.iter().any(is_recovered), "{:?}", pair.home_did);
}

#[test]
fn memory_for_images_is_bounded() {
    let mut pair = Pair::new();
    pair.home = Home::new(HomeLimits { kept_bytes_max: 4, ..HomeLimits::default() });
    assert!(pair.home.open(FLOW));
    pair.reconnect();
    pair.pass(Duration::from_millis(250));
    pair.hand_over();
    assert_eq!((pair.home.kept_bytes(), pair.home.counters().dropped_images), (0, 1));
    // No room for it to come back: it stays.
    pair.hand_back();
    assert_eq!(pair.node_did, [FREEZE, Effect::Unfreeze { flow: FLOW, generation: Generation(2) }]);
}

#[test]
fn a_flow_that_is_lent_comes_home_by_itself_once_its_request_is_answered() {
    let mut pair = Pair::new();
    pair.lend();
    pair.home_did.clear();
    assert!(pair.node.replied(FLOW, 1), "it's wanted back");
    pair.node.frozen(FLOW, IMAGE);
    pair.talk();
    // The next request is the node's as well: nobody makes a socket for it.
    assert_eq!(pair.home_did, [Effect::Place { flow: FLOW, giver: Some(NODE), image: IMAGE }]);
    pair.home.place(FLOW, Destination::Node(NODE)).unwrap();
    pair.talk();
    assert_eq!(pair.node_did.last(), Some(&Effect::Unfreeze { flow: FLOW, generation: Generation(3) }));
    assert!(pair.node.replied(FLOW, 2), "it's lent for that one only");
    pair.node.frozen(FLOW, IMAGE);
    pair.talk();
    pair.home.place(FLOW, Destination::Here).unwrap();
    pair.home_did.clear();
    pair.talk();
    let generation = Generation(5);
    let thaw = Effect::Thaw { flow: FLOW, generation, image: IMAGE };
    assert_eq!(pair.home_did, [Effect::Steer { flow: FLOW, to: Target::Hold, generation }, thaw]);
    pair.home.thawed(FLOW);
    pair.talk();
    assert_eq!(pair.node_did.last(), Some(&Effect::CloseSilently { flow: FLOW }));
    assert_eq!((pair.node.flow_count(), pair.home.flow_count()), (0, 1));
    // What is given for good stays.
    pair.hand_over();
    assert!(!pair.node.replied(FLOW, 1));
}

#[test]
fn a_flow_whose_home_forgot_to_have_lent_it_is_given_back_once_for_each_request() {
    let mut pair = Pair::new();
    pair.lend();
    // Its home's next life knows of a lent flow only where it is.
    pair.lose();
    let entry = (FLOW, Target::Node(NODE), Generation(1));
    pair.home = Home::recover(pair.now, HomeLimits::default(), [entry]);
    pair.reconnect();
    for number in 1..3 {
        assert!(pair.node.replied(FLOW, number), "it's wanted back");
        pair.node.frozen(FLOW, IMAGE);
        pair.talk();
        assert_eq!(pair.home_did.last(), Some(&Effect::Place { flow: FLOW, giver: Some(NODE), image: IMAGE }));
        pair.home.place(FLOW, Destination::Node(NODE)).unwrap();
        pair.talk();
        assert!(matches!(pair.node_did.last(), Some(Effect::Unfreeze { .. })), "{:?}", pair.node_did);
        assert!(!pair.node.replied(FLOW, number), "nothing has been answered since");
    }
}

const INHERIT: fn(&[FlowId]) -> Effect = |flows| Effect::Inherit { flows: flows.to_vec() };

#[test]
fn a_home_that_ends_leaves_a_node_what_that_has() {
    let mut pair = Pair::new();
    pair.lend();
    pair.home_did.clear();
    pair.node_did.clear();
    let is_heir = |node| node == NODE;
    assert!(pair.home.all_are_at(is_heir) && !pair.home.all_are_at(|node| node == OTHER));
    assert!(!pair.home.bequeath(is_heir), "the node hasn't heard of it");
    pair.talk();
    assert_eq!((pair.home_did.clone(), pair.node_did.clone()), (vec![unsteer(1)], vec![INHERIT(&[FLOW])]));
    assert!(pair.home.bequeath(is_heir), "now it has, and said so");
    assert!(!pair.home.bequeath(|_| false), "there must be somebody");
    pair.connect_other();
    pair.home.disconnected(SessionId(1_000));
    assert!(!pair.home.bequeath(|_| true), "another has been there, and may come back with flows");
    // The home is gone for good: nothing is dropped for that.
    pair.talk();
    pair.lose();
    pair.pass(Duration::from_secs(100));
    assert_eq!((pair.node.flow_count(), pair.node.counters().inherited), (0, 1));
    assert!(!pair.node_did.iter().any(|did| matches!(did, Effect::CloseSilently { .. })), "{:?}", pair.node_did);
    // Its next life lends what is then asked back, as ever.
    pair.home = Home::new(HomeLimits::default());
    pair.home.open(FLOW);
    pair.reconnect();
    pair.pass(Duration::from_millis(250));
    pair.lend();
    assert!(pair.node.replied(FLOW, 2));
}

#[test]
fn what_was_on_its_way_back_to_a_home_that_ends_stays() {
    // It had been frozen, and was said to come back; it had been frozen, and its home has left it there; it's being frozen.
    for case in 0..3 {
        let mut pair = Pair::new();
        pair.lend();
        assert!(pair.node.replied(FLOW, 1));
        if case < 2 {
            pair.node.frozen(FLOW, IMAGE);
        }
        if case == 1 {
            let returned = pair.collect_node();
            returned.into_iter().for_each(|message| pair.home.handle_message(pair.now, pair.session(), message));
            pair.collect_home();
        }
        pair.home_did.clear();
        pair.home.bequeath(|node| node == NODE);
        if case == 1 {
            pair.home.place(FLOW, Destination::Node(NODE)).unwrap();
        }
        pair.talk();
        if case == 2 {
            assert_eq!(pair.home.flow_count(), 1, "it's still under way");
            pair.node.frozen(FLOW, IMAGE);
            pair.talk();
        }
        let did = &pair.node_did[pair.node_did.len() - 2..];
        assert!(matches!(did, [Effect::Unfreeze { .. }, Effect::Inherit { .. }]), "{case}: {did:?}");
        assert_eq!(pair.node_did.last(), Some(&INHERIT(&[FLOW])));
        assert_eq!((pair.home.flow_count(), pair.node.flow_count()), (0, 0), "{case}");
        assert!(pair.home.place(FLOW, Destination::Here).is_err(), "{case}: nobody else goes on with it");
        assert!(!pair.home_did.iter().any(|did| matches!(did, Effect::Recover { .. })), "{:?}", pair.home_did);
    }
}

#[test]
fn what_is_offered_while_its_home_ends_is_inherited_once_it_is_taken() {
    let mut pair = Pair::new();
    pair.home.bequeath(|node| node == NODE);
    pair.talk();
    pair.offer();
    assert_eq!(pair.home.flow_count(), 1, "an heir doesn't have what it's only offered");
    pair.node.thawed(FLOW);
    pair.talk();
    assert_eq!((pair.home.flow_count(), pair.node_did.last()), (0, Some(&INHERIT(&[FLOW]))));
    assert!(pair.home_did.contains(&Effect::CloseSilently { flow: FLOW }), "{:?}", pair.home_did);
}
