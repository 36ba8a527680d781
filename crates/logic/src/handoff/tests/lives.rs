//! Two processes of one node, as in an upgrade: which of them is given what is new, who has what was about to begin, and when the old one may end.

use super::super::continuation::ACKNOWLEDGED_WITHIN;
use super::*;

const OLD: SessionId = SessionId(10);
const NEW: SessionId = SessionId(20);
const LEASE: Duration = Duration::from_millis(1_021);

/// A home, and what it says to processes of which the test decides what they say.
struct Desk {
    now: Instant,
    home: Home,
    did: Vec<Effect>,
}

impl Desk {
    fn new() -> Desk {
        Desk { now: Instant { ns: 1_000_000_000 }, home: Home::new(HomeLimits::default()), did: Vec::new() }
    }

    /// The old process, with a lease.
    fn with_old() -> Desk {
        let mut desk = Desk::new();
        desk.comes(OLD, 1, 1);
        desk.beats(OLD, 1, false);
        desk.heard();
        desk
    }

    fn hears(&mut self, session: SessionId, message: Message) {
        self.home.handle_message(self.now, session, message);
    }

    fn says_hello(&mut self, session: SessionId, incarnation: u64, number: u64) {
        self.says_hello_of(session, incarnation, number, None);
    }

    fn says_hello_of(&mut self, session: SessionId, incarnation: u64, number: u64, process: Option<Process>) {
        self.home.connected(NODE, session);
        self.hears(session, Message::Hello { incarnation: Incarnation(incarnation), number, offers_max: 9, process });
    }

    /// Says hello, and that it holds nothing.
    fn comes(&mut self, session: SessionId, incarnation: u64, number: u64) {
        self.says_hello(session, incarnation, number);
        self.hears(session, Message::Holding { flows: vec![], is_last: true });
    }

    fn beats(&mut self, session: SessionId, number: u64, is_draining: bool) {
        self.hears(session, Message::Heartbeat { number, load: Load { is_draining, ..Load::default() } });
    }

    fn pass(&mut self, duration: Duration) {
        self.now = self.now.after(duration);
        self.home.handle_timeout(self.now);
    }

    /// What was said since the last call, without leases.
    fn heard(&mut self) -> Vec<(SessionId, Message)> {
        let (mut said, did) = (Vec::new(), &mut self.did);
        while let Some(effect) = self.home.poll_effect() {
            match effect {
                Effect::Send { message: Message::Lease { .. }, .. } => {}
                Effect::Send { session, message } => said.push((session, message)),
                effect => did.push(effect),
            }
        }
        said
    }

    /// Who is offered a connection now.
    fn offered(&mut self, serial: u64) -> Option<SessionId> {
        let flow = FlowId { serial, ..FLOW };
        self.home.open(flow);
        self.home.give(flow, NODE).ok()?;
        self.home.frozen(self.now, flow, IMAGE);
        let offered = |(session, message)| matches!(message, Message::Offer { .. }).then_some(session);
        self.heard().into_iter().find_map(offered)
    }

    fn reports(&mut self) -> usize {
        self.heard();
        let reports = self.did.iter().filter(|effect| matches!(effect, Effect::Load { .. })).count();
        self.did.clear();
        reports
    }

    /// How many connections have been looked at since the last call that nobody has any more.
    fn recovered(&mut self) -> usize {
        self.heard();
        let of_dead = |effect: &Effect| matches!(effect, Effect::Recover { .. });
        let before = self.did.len();
        self.did.retain(|effect| !of_dead(effect));
        before - self.did.len()
    }

    fn be_born(&mut self) {
        self.home.born(self.now, FLOW, NODE, IMAGE).unwrap();
    }
}

fn taken() -> Message {
    Message::Taken { flow: FLOW, generation: Generation::BORN }
}

#[test]
fn what_is_new_goes_to_the_old_process_until_the_new_one_can_be_given_anything() {
    let mut desk = Desk::with_old();
    desk.says_hello(NEW, 2, 1);
    assert_eq!((desk.offered(1), desk.home.is_connected(NODE)), (Some(OLD), true), "it hasn't said what it holds");
    desk.hears(NEW, Message::Holding { flows: vec![], is_last: true });
    assert_eq!(desk.offered(2), Some(OLD), "it has no lease");
    desk.beats(NEW, 1, false);
    assert_eq!(desk.offered(3), Some(NEW));
    desk.reports();
    desk.beats(OLD, 2, false);
    assert_eq!(desk.reports(), 0, "what the other one has to do says nothing of the node any more");
    desk.beats(NEW, 2, true);
    assert_eq!(desk.offered(4), Some(OLD), "it takes nothing on");
    desk.beats(OLD, 3, true);
    assert_eq!(desk.offered(5), None, "nor does this one");
    desk.beats(NEW, 3, false);
    assert_eq!(desk.offered(6), Some(NEW));
}

#[test]
fn a_process_that_drains_still_does_when_its_link_comes_back() {
    let mut desk = Desk::with_old();
    desk.comes(NEW, 2, 1);
    desk.beats(NEW, 1, false);
    desk.beats(OLD, 2, true);
    desk.home.disconnected(OLD);
    desk.comes(SessionId(30), 1, 2);
    assert_eq!(desk.offered(1), Some(NEW));
    desk.beats(SessionId(30), 3, true);
    assert_eq!(desk.offered(2), Some(NEW));
}

#[test]
fn an_old_process_isnt_preferred_for_a_younger_link() {
    let mut desk = Desk::with_old();
    desk.comes(NEW, 2, 1);
    desk.beats(NEW, 1, false);
    desk.home.disconnected(OLD);
    desk.comes(SessionId(30), 1, 2);
    desk.beats(SessionId(30), 2, false);
    assert_eq!(desk.offered(1), Some(NEW));
}

#[test]
fn a_process_is_told_that_another_follows_when_that_can_be_given_what_is_new() {
    let mut desk = Desk::with_old();
    let followed = vec![(OLD, Message::Followed { hears_passed: true })];
    desk.comes(NEW, 2, 1);
    desk.beats(OLD, 2, false);
    assert_eq!(desk.heard(), [], "it has no lease");
    desk.beats(NEW, 1, false);
    assert_eq!(desk.heard(), []);
    for number in 3..5 {
        desk.beats(OLD, number, false);
        assert_eq!(desk.heard(), followed);
    }
    desk.home.disconnected(NEW);
    desk.beats(OLD, 5, false);
    assert_eq!(desk.heard(), []);
}

#[test]
fn who_is_listened_to_no_more_is_the_oldest_that_drains() {
    let mut desk = Desk::with_old();
    for life in 2..5 {
        desk.comes(SessionId(10 * life), life, 1);
        desk.beats(SessionId(10 * life), 1, life == 3);
    }
    desk.heard();
    desk.did.clear();
    desk.comes(SessionId(50), 5, 1);
    desk.heard();
    assert_eq!(desk.did, [Effect::Disconnect { session: SessionId(30) }]);
}

#[test]
fn a_birth_is_whose_process_has_accepted_it() {
    for says_first in [true, false] {
        let mut desk = Desk::with_old();
        desk.be_born();
        desk.comes(NEW, 2, 1);
        desk.beats(NEW, 1, false);
        desk.heard();
        if says_first {
            desk.hears(NEW, taken());
        } else {
            // The old one is asked for it, and hasn't got it: then the other is.
            desk.pass(Duration::from_millis(150));
            let recall = Message::Recall { flow: FLOW, generation: Generation::BORN, terms: RecallTerms::IfUnborn };
            assert_eq!(desk.heard(), [(OLD, recall.clone())]);
            let (flow, generation) = (FLOW, Generation::BORN);
            desk.hears(OLD, Message::Refused { flow, generation, reason: RefuseReason::Absent });
            assert_eq!(desk.heard(), [(NEW, recall)]);
            desk.hears(NEW, taken());
        }
        assert_eq!((desk.heard(), desk.home.unanswered(NODE)), (vec![], 0));
        desk.home.recall(FLOW, RecallTerms::AtOnce);
        assert!(matches!(desk.heard()[..], [(NEW, Message::Recall { .. })]));
    }
}

#[test]
fn a_process_says_what_it_has_accepted_before_it_says_that_it_drains() {
    let mut node = Node::new(NodeLimits::default(), Incarnation(1));
    let now = Instant::default();
    node.connected(now, OLD, None);
    while node.poll_effect().is_some() {}
    assert!(node.born(now, FLOW));
    node.leave(now, false, Instant::NEVER);
    node.handle_timeout(now);
    let said = std::iter::from_fn(|| node.poll_effect()).filter_map(|effect| match effect {
        Effect::Send { message, .. } => Some(message),
        _ => None,
    });
    assert!(matches!(&said.collect::<Vec<_>>()[..], [told, Message::Heartbeat { .. }] if *told == taken()));
}

#[test]
fn that_connections_found_no_room_is_told_once_however_often_the_load_is_seen_before() {
    let mut node = Node::new(NodeLimits::default(), Incarnation(1));
    let mut now = Instant::default();
    node.connected(now, OLD, None);
    let mut tells = |loads: &[Load]| {
        while node.poll_effect().is_some() {}
        loads.iter().for_each(|load| node.set_load(*load));
        now = now.after(NodeLimits::default().heartbeat_interval);
        node.handle_timeout(now);
        std::iter::from_fn(|| node.poll_effect()).find_map(|effect| match effect {
            Effect::Send { message: Message::Heartbeat { load, .. }, .. } => Some((load.is_crowded, load.requests)),
            _ => None,
        })
    };
    let crowded = Load { is_crowded: true, requests: 1, ..Load::default() };
    assert_eq!(tells(&[crowded, Load::default()]), Some((true, 0)), "the rest is as it was seen last");
    assert_eq!(tells(&[Load::default()]), Some((false, 0)));
}

#[test]
fn a_birth_isnt_asked_for_at_a_process_that_has_no_lease() {
    let mut desk = Desk::with_old();
    desk.be_born();
    desk.comes(NEW, 2, 1);
    let (flow, generation) = (FLOW, Generation::BORN);
    desk.hears(OLD, Message::Refused { flow, generation, reason: RefuseReason::Absent });
    desk.heard();
    assert!(matches!(desk.did.last(), Some(Effect::Recover { birth: Birth::Denied, .. })), "{:?}", desk.did);
}

#[test]
fn what_a_process_holds_that_is_lost_before_its_first_lease_goes_on_elsewhere() {
    let held = Holding { flow: FLOW, generation: Generation::BORN, phase: HoldingPhase::Taken };
    let list = Message::Holding { flows: vec![held], is_last: true };
    // It was to begin at the old one.
    let mut desk = Desk::with_old();
    desk.be_born();
    desk.says_hello(NEW, 2, 1);
    desk.hears(NEW, list.clone());
    desk.home.disconnected(NEW);
    desk.pass(LEASE + Duration::from_millis(1));
    desk.heard();
    assert!(matches!(desk.did.last(), Some(Effect::Recover { .. })), "{:?}", desk.did);

    // It has it from before the home's start.
    let entries = [(FLOW, Target::Node(NODE), Generation::BORN)];
    let mut desk = Desk { home: Home::recover(Instant::default(), HomeLimits::default(), entries), ..Desk::new() };
    desk.says_hello(NEW, 2, 1);
    desk.hears(NEW, list);
    assert_eq!(desk.home.holder(FLOW), Some(Some(NODE)));
    desk.home.disconnected(NEW);
    desk.pass(LEASE + Duration::from_millis(1));
    desk.heard();
    assert_eq!(desk.home.flow_count(), 0, "there is no image of it");
}

#[test]
fn each_life_has_its_own_lease() {
    let mut desk = Desk::with_old();
    assert_eq!(desk.offered(1), Some(OLD));
    let flow = FlowId { serial: 1, ..FLOW };
    desk.hears(OLD, Message::Taken { flow, generation: Generation(1) });
    desk.comes(NEW, 2, 1);
    for number in 1..6 {
        desk.beats(NEW, number, false);
        desk.pass(LEASE / 4);
    }
    desk.heard();
    let lapse = [Effect::Lapsed { node: NODE }, Effect::Disconnect { session: OLD }];
    assert!(desk.did.windows(2).any(|did| did == lapse), "{:?}", desk.did);
    assert!(desk.did.iter().any(|effect| matches!(effect, Effect::Recover { .. })), "{:?}", desk.did);
    assert_eq!(desk.offered(2), Some(NEW));
}

#[test]
fn what_a_process_accepts_before_it_has_a_session_is_its_own() {
    let mut desk = Desk::with_old();
    desk.be_born();
    let mut node = Node::new(NodeLimits::default(), Incarnation(2));
    assert!(node.born(desk.now, FLOW));
    desk.now = desk.now.after(Duration::from_millis(50));
    node.handle_timeout(desk.now);
    assert!(node.poll_effect().is_none() && node.flow_count() == 1 && node.is_fenced(desk.now));
    node.connected(desk.now, NEW, None);
    desk.home.connected(NODE, NEW);
    while let Some(effect) = node.poll_effect() {
        let Effect::Send { session, message } = effect else { continue };
        desk.hears(session, message);
    }
    assert!(!desk.heard().contains(&(NEW, Message::Release { flow: FLOW, generation: Generation::BORN })));
    desk.home.recall(FLOW, RecallTerms::AtOnce);
    assert!(matches!(desk.heard()[..], [(NEW, Message::Recall { .. })]));
}

#[test]
fn what_the_process_before_hasnt_may_be_its_followers_until_the_home_knows_that_one() {
    let mut node = Node::new(NodeLimits::default(), Incarnation(1));
    let now = Instant::default();
    let said = |node: &mut Node| std::iter::from_fn(|| node.poll_effect()).collect::<Vec<_>>();
    let (flow, generation) = (FLOW, Generation::BORN);
    let refused = Message::Refused { flow, generation, reason: RefuseReason::Absent };
    let refused = Effect::Send { session: OLD, message: refused };
    node.connected(now, OLD, None);
    node.leave(now, true, Instant::NEVER);
    node.handle_message(now, OLD, Message::Recall { flow, generation, terms: RecallTerms::IfUnborn });
    assert!(said(&mut node).contains(&Effect::AcceptAll));
    node.none_waits();
    assert!(!said(&mut node).contains(&refused));
    node.handle_message(now, OLD, Message::Followed { hears_passed: true });
    node.handle_timeout(now);
    assert!(said(&mut node).contains(&Effect::AcceptAll));
    node.none_waits();
    assert!(said(&mut node).contains(&refused));
}

/// The pair's node ends, with a flow.
fn leaving(is_followed: bool) -> Pair {
    let mut pair = Pair::new();
    pair.hand_over();
    pair.node.leave(pair.now, is_followed, Instant::NEVER);
    pair.node.handle_timeout(pair.now);
    pair.talk();
    pair
}

#[test]
fn a_process_that_ends_gives_back_what_it_has() {
    let mut pair = leaving(false);
    assert!(pair.node_did == [FREEZE] && !pair.node.has_left());
    assert!(pair.home.give(FLOW, NODE).is_err(), "it isn't here");
    pair.node.frozen(FLOW, IMAGE);
    pair.talk();
    // Nobody else has room: it's asked again.
    pair.home.place(FLOW, Destination::Node(NODE)).unwrap();
    pair.talk();
    pair.node_did.clear();
    pair.pass(Duration::from_millis(199));
    assert_eq!(pair.node_did, []);
    pair.pass(Duration::from_millis(1));
    assert_eq!(pair.node_did, [FREEZE]);
    pair.node.frozen(FLOW, IMAGE);
    pair.talk();
    pair.home.place(FLOW, Destination::Here).unwrap();
    pair.home.thawed(FLOW);
    pair.talk();
    assert!(pair.node.has_left());
}

#[test]
fn a_process_that_ends_stays_until_its_home_knows_what_it_refused() {
    let mut pair = Pair::new();
    pair.offer();
    pair.node.leave(pair.now, false, Instant::NEVER);
    pair.pass(Duration::ZERO);
    assert!(!pair.node.has_left(), "it's being thawed");
    pair.node.thaw_failed(FLOW, RefuseReason::Kernel);
    assert!(!pair.node.has_left(), "its home would have to take it for one that had begun here");
    pair.talk();
    pair.pass(Duration::from_millis(250));
    assert!(pair.node.has_left());
}

#[test]
fn a_process_that_is_followed_stays_until_its_home_knows_by_whom() {
    let mut pair = leaving(true);
    pair.pass(Duration::from_secs(1));
    assert!(pair.node_did.is_empty() && !pair.node.has_left());
    let session = pair.session();
    pair.node.handle_message(pair.now, session, Message::Followed { hears_passed: true });
    pair.pass(Duration::ZERO);
    assert_eq!(pair.node_did, [FREEZE]);

    // It's stopped meanwhile, and its successor as well.
    let mut pair = leaving(true);
    pair.node.leave(pair.now, false, Instant::NEVER);
    pair.pass(Duration::ZERO);
    assert_eq!(pair.node_did, [FREEZE]);

    // A home of an older version doesn't say so.
    let mut pair = leaving(true);
    (0..20).for_each(|_| pair.pass(Duration::from_millis(250)));
    assert_eq!(pair.node_did, [FREEZE]);

    // Nor is there always time to wait for it so long.
    let mut pair = Pair::new();
    pair.hand_over();
    pair.node.leave(pair.now, true, pair.now.after(Duration::from_secs(2)));
    (0..3).for_each(|_| pair.pass(Duration::from_millis(250)));
    assert_eq!(pair.node_did, []);
    pair.pass(Duration::from_millis(250));
    assert_eq!(pair.node_did, [FREEZE]);
}

#[test]
fn a_process_that_has_nothing_stays_as_well_until_it_is_followed() {
    let mut pair = Pair::new();
    let session = pair.session();
    pair.node.handle_message(pair.now, session, Message::Followed { hears_passed: true });
    pair.pass(Duration::ZERO);
    assert!(pair.node_did.is_empty(), "it doesn't end");
    pair.node.leave(pair.now, true, Instant::NEVER);
    assert!(!pair.node.has_left());
    pair.node.handle_message(pair.now, session, Message::Followed { hears_passed: true });
    pair.node.handle_timeout(pair.now);
    assert!(!pair.node.has_left(), "its home may offer it something yet");
    pair.talk();
    assert!(pair.node.has_left() && pair.home.give(FLOW, NODE).is_err());

    // Without a link there is nobody to wait for.
    let mut pair = Pair::new();
    pair.node.leave(pair.now, true, Instant::NEVER);
    pair.lose();
    assert!(pair.node.has_left());
}

#[test]
fn the_cut_of_a_giver_whose_flow_went_on_elsewhere_resets_nobody() {
    let mut pair = Pair::new();
    let node = pair.session();
    pair.hand_over();
    pair.hand_back();
    let other = pair.connect_other();
    pair.home.place(FLOW, Destination::Node(OTHER)).unwrap();
    let cut = |generation| Message::Ended { flow: FLOW, generation: Generation(generation), is_cut: true };
    let is_reset = |pair: &Pair| pair.home_did.contains(&Effect::Reset { flow: FLOW });
    // While the other hasn't said that it has it, and after that.
    for is_taken in [false, true] {
        if is_taken {
            let taken = Message::Taken { flow: FLOW, generation: Generation(3) };
            pair.home.handle_message(pair.now, other, taken);
        }
        pair.home.handle_message(pair.now, node, cut(1));
        pair.talk();
        assert!(!is_reset(&pair) && pair.home.flow_count() == 1, "{:?}", pair.home_did);
    }
    assert_eq!(pair.home.holder(FLOW), Some(Some(OTHER)));
    // Nor is it the giver's to say under the generation that the other has.
    pair.home.handle_message(pair.now, node, cut(3));
    pair.talk();
    assert!(!is_reset(&pair) && pair.home.flow_count() == 1, "{:?}", pair.home_did);
    pair.home.handle_message(pair.now, other, cut(3));
    pair.talk();
    assert!(is_reset(&pair) && pair.home.flow_count() == 0, "{:?}", pair.home_did);
}

#[test]
fn what_could_not_be_frozen_while_its_home_ends_is_inherited_as_it_is() {
    let mut pair = Pair::new();
    pair.lend();
    assert!(pair.node.replied(FLOW, 1));
    pair.home.bequeath(|node| node == NODE);
    pair.talk();
    assert_eq!((pair.home.flow_count(), pair.node.flow_count()), (1, 1), "it's still under way");
    pair.node_did.clear();
    pair.node.freeze_failed(FLOW);
    pair.talk();
    assert_eq!(pair.node_did, [Effect::Inherit { flows: vec![FLOW] }]);
    assert_eq!((pair.home.flow_count(), pair.node.flow_count()), (0, 0));
}

#[test]
fn nothing_is_left_at_a_node_of_what_it_could_not_thaw() {
    let mut pair = Pair::new();
    pair.offer();
    pair.node.thaw_failed(FLOW, RefuseReason::Kernel);
    assert_eq!(pair.node.flow_count(), 0);
    pair.lose();
    // The refusal was lost; what the node says that it has doesn't name it.
    pair.home_did.clear();
    pair.reconnect();
    let unfreeze = Effect::Unfreeze { flow: FLOW, generation: Generation(1) };
    assert_eq!(pair.home_did, [unsteer(1), unfreeze]);
    pair.node.thawed(FLOW);
    pair.node.thaw_failed(FLOW, RefuseReason::Kernel);
    assert!(pair.collect_node().is_empty(), "it's over");
}

/// A process that says that it's its node's only one.
fn only(number: u64) -> Option<Process> {
    Some(Process { number, is_only: true })
}

#[test]
fn what_a_process_had_goes_on_as_soon_as_the_next_one_is_the_only_one() {
    let mut desk = Desk::with_old();
    assert_eq!(desk.offered(1), Some(OLD));
    desk.hears(OLD, Message::Taken { flow: FlowId { serial: 1, ..FLOW }, generation: Generation(1) });
    assert_eq!(desk.offered(2), Some(OLD), "it's answered by nobody");
    desk.home.disconnected(OLD);
    desk.says_hello_of(NEW, 2, 1, only(2));
    desk.pass(ACKNOWLEDGED_WITHIN - Duration::from_millis(1));
    assert_eq!(desk.recovered(), 0, "what was offered last may be under way to its client");
    desk.pass(Duration::from_millis(1));
    assert_eq!(desk.recovered(), 2);
    desk.pass(LEASE);
    assert_eq!(desk.recovered(), 0, "once");
}

/// A home that has started again, and knows of three flows from their entries: two at the node, one of them handed on before.
fn started_again() -> (Desk, [FlowId; 3]) {
    let flows = [1, 2, 3].map(|serial| FlowId { serial, ..FLOW });
    let mut desk = Desk::new();
    let entries = [(flows[0], NODE, 1), (flows[1], NODE, 2), (flows[2], OTHER, 1)];
    let entries = entries.map(|(flow, node, generation)| (flow, Target::Node(node), Generation(generation)));
    desk.home = Home::recover(desk.now, HomeLimits::default(), entries);
    (desk, flows)
}

impl Desk {
    /// What was cut since the last call.
    fn cut(&mut self) -> Vec<FlowId> {
        self.heard();
        let cut = |effect: &Effect| match effect {
            Effect::Cut { flow, reason: CutReason::LostOnTheWay } => Some(*flow),
            _ => None,
        };
        let flows = self.did.iter().filter_map(cut).collect();
        self.did.retain(|effect| cut(effect).is_none());
        flows
    }
}

#[test]
fn what_a_home_that_started_again_hasnt_heard_of_is_given_up_once_its_process_is_known_to_be_gone() {
    let (mut desk, flows) = started_again();
    desk.says_hello_of(NEW, 2, 1, only(2));
    desk.hears(NEW, Message::Holding { flows: vec![], is_last: true });
    // Another node had handed the second one on, and hadn't heard yet that it may forget it.
    desk.home.connected(OTHER, OLD);
    desk.hears(OLD, Message::Hello { incarnation: Incarnation(1), number: 1, offers_max: 9, process: None });
    let returning = Holding { flow: flows[1], generation: Generation(1), phase: HoldingPhase::Returning };
    desk.hears(OLD, Message::Holding { flows: vec![returning], is_last: true });
    desk.hears(OLD, Message::Return { flow: flows[1], generation: Generation(1), image: IMAGE });
    desk.pass(LEASE - Duration::from_millis(1));
    assert_eq!((desk.cut(), desk.recovered()), (vec![], 0), "somebody may have something of it");
    desk.pass(Duration::from_millis(1));
    assert_eq!((desk.cut(), desk.recovered()), (vec![flows[0]], 1));
    desk.pass(HomeLimits::default().claims_timeout);
    assert_eq!((desk.cut(), desk.recovered()), (vec![flows[2]], 0), "of the other node nobody has said so");
}

#[test]
fn beside_another_process_nothing_is_given_up_sooner() {
    let (mut desk, flows) = started_again();
    desk.says_hello_of(NEW, 2, 1, Some(Process { number: 2, is_only: false }));
    desk.hears(NEW, Message::Holding { flows: vec![], is_last: true });
    desk.pass(LEASE * 2);
    assert_eq!(desk.cut(), []);
    // The other one's link took longer.
    desk.says_hello_of(OLD, 1, 1, Some(Process { number: 1, is_only: false }));
    let here = Holding { flow: flows[0], generation: Generation(1), phase: HoldingPhase::Taken };
    desk.hears(OLD, Message::Holding { flows: vec![here], is_last: true });
    desk.beats(OLD, 1, false);
    desk.pass(LEASE / 2);
    desk.beats(OLD, 2, false);
    desk.home.handle_timeout(desk.now);
    assert_eq!(desk.cut(), []);
}

#[test]
fn a_process_that_isnt_the_only_one_has_others_keep_what_they_have() {
    let (mut desk, other) = (Desk::with_old(), Some(Process { number: 2, is_only: false }));
    assert_eq!(desk.offered(1), Some(OLD));
    desk.home.disconnected(OLD);
    desk.says_hello_of(NEW, 2, 1, other);
    desk.pass(ACKNOWLEDGED_WITHIN);
    assert_eq!(desk.recovered(), 0);
    desk.pass(LEASE);
    assert_eq!(desk.recovered(), 1);
}

#[test]
fn who_was_the_only_one_knows_nothing_of_who_came_later() {
    let mut desk = Desk::new();
    desk.says_hello_of(OLD, 1, 1, only(1));
    // Another worker of the same process, and a process that came since.
    for (session, process) in [(SessionId(11), only(1)), (NEW, Some(Process { number: 2, is_only: false }))] {
        desk.says_hello_of(session, session.0, 1, process);
        desk.hears(session, Message::Holding { flows: vec![], is_last: true });
        desk.beats(session, 1, false);
    }
    assert_eq!(desk.offered(1), Some(NEW));
    desk.says_hello_of(SessionId(12), 3, 1, only(1));
    desk.beats(NEW, 2, true);
    assert_eq!(desk.offered(2), Some(SessionId(11)), "it's of the process that lives");
    desk.pass(ACKNOWLEDGED_WITHIN);
    assert_eq!(desk.recovered(), 0);
}

#[test]
fn a_process_that_is_over_is_granted_nothing_and_heard_nevertheless() {
    let mut desk = Desk::with_old();
    assert_eq!(desk.offered(1), Some(OLD));
    desk.says_hello_of(NEW, 2, 1, only(2));
    assert_eq!(desk.offered(2), None, "the other hasn't said what it holds");
    // Both have come late.
    desk.hears(OLD, Message::Taken { flow: FlowId { serial: 1, ..FLOW }, generation: Generation(1) });
    desk.beats(OLD, 2, false);
    desk.pass(ACKNOWLEDGED_WITHIN);
    assert_eq!(desk.recovered(), 0, "it's listened on to, as its session is there");
    desk.pass(Duration::from_millis(20));
    assert_eq!(desk.recovered(), 1);
    assert!(!desk.did.iter().any(|effect| matches!(effect, Effect::Lapsed { .. })), "its node is well");
}

/// The old process has a flow, drains, and another has followed.
fn followed() -> (Desk, FlowId, Generation) {
    let mut desk = Desk::with_old();
    assert_eq!(desk.offered(1), Some(OLD));
    let (flow, generation) = (FlowId { serial: 1, ..FLOW }, Generation(1));
    desk.hears(OLD, Message::Taken { flow, generation });
    desk.comes(NEW, 2, 1);
    desk.beats(NEW, 1, false);
    desk.beats(OLD, 2, true);
    desk.heard();
    (desk, flow, generation)
}

#[test]
fn what_passes_is_the_younger_processs_when_that_says_so() {
    let (mut desk, flow, generation) = followed();
    desk.home.recall(flow, RecallTerms::AtRest);
    let recall = Message::Recall { flow, generation, terms: RecallTerms::AtRest };
    assert_eq!(desk.heard(), [(OLD, recall.clone())]);
    desk.hears(NEW, Message::Taken { flow, generation });
    assert_eq!(desk.heard(), [(OLD, Message::Release { flow, generation }), (NEW, recall)]);
    // What the old one's end would have brought about.
    desk.home.disconnected(OLD);
    for number in 2..8 {
        desk.beats(NEW, number, false);
        desk.pass(LEASE / 4);
    }
    assert_eq!((desk.recovered(), desk.home.holder(flow)), (0, Some(Some(NODE))));
    desk.hears(NEW, Message::Ended { flow, generation, is_cut: false });
    assert_eq!(desk.home.holder(flow), None);
}

#[test]
fn who_has_followed_is_asked_before_what_a_dead_process_had_goes_on_elsewhere() {
    let (asked, denied) = (
        |flow, generation| (NEW, Message::Recall { flow, generation, terms: RecallTerms::IfUnborn }),
        |flow, generation| Message::Refused { flow, generation, reason: RefuseReason::Absent },
    );
    let dead = || {
        let (mut desk, flow, generation) = followed();
        desk.home.disconnected(OLD);
        for number in 2..8 {
            desk.beats(NEW, number, false);
            desk.pass(LEASE / 4);
        }
        (desk, flow, generation)
    };
    // It hasn't got it.
    let (mut desk, flow, generation) = dead();
    assert!(desk.heard().contains(&asked(flow, generation)));
    assert_eq!(desk.recovered(), 0);
    desk.hears(NEW, denied(flow, generation));
    assert_eq!(desk.recovered(), 1);
    // It has, and its word was on its way.
    let (mut desk, flow, generation) = dead();
    desk.hears(NEW, Message::Taken { flow, generation });
    desk.hears(NEW, Message::Ended { flow, generation, is_cut: false });
    assert_eq!((desk.recovered(), desk.home.holder(flow)), (0, None));
    // It's asked by its list, as its session breaks.
    for holds in [true, false] {
        let (mut desk, flow, generation) = dead();
        desk.home.disconnected(NEW);
        let again = SessionId(21);
        desk.says_hello(again, 2, 2);
        let held = Holding { flow, generation, phase: HoldingPhase::Taken };
        desk.hears(again, Message::Holding { flows: Vec::from_iter(holds.then_some(held)), is_last: true });
        assert_eq!(desk.recovered(), usize::from(!holds));
    }
    // It's lost as well.
    let (mut desk, ..) = dead();
    desk.home.disconnected(NEW);
    desk.pass(2 * LEASE);
    assert_eq!(desk.recovered(), 1);
}

#[test]
fn a_process_passes_what_its_home_has_heard_of_and_takes_anothers_word_for() {
    let mut pair = leaving(true);
    let (session, flow) = (pair.session(), FLOW);
    let may_pass = |pair: &Pair| pair.node.may_pass(pair.now, flow);
    assert!(!may_pass(&pair), "nobody is known to follow");
    pair.node.handle_message(pair.now, session, Message::Followed { hears_passed: true });
    assert!(!may_pass(&pair), "its home may be about to offer something");
    pair.pass(Duration::from_millis(250));
    assert!(may_pass(&pair), "it's to be given back, and may go instead");
    let generation = pair.node.pass(flow).unwrap();
    pair.node.frozen(flow, IMAGE);
    pair.talk();
    assert_eq!(pair.home.holder(flow), Some(Some(NODE)), "it isn't frozen any more");
    pair.lose();
    pair.reconnect();
    assert_eq!(pair.home.holder(flow), Some(Some(NODE)), "as the list says");
    // It's back.
    pair.node.take_over(pair.now, flow, generation);
    assert!(!may_pass(&pair), "in this session nothing has been said");
    pair.pass(Duration::from_secs(1));
    pair.node_did.clear();
    pair.node.frozen(flow, IMAGE);
    pair.talk();
    assert_eq!(pair.home.holder(flow), Some(None), "it's given back");

    // An older home doesn't take another's word.
    let mut pair = leaving(true);
    pair.node.handle_message(pair.now, session, Message::Followed { hears_passed: false });
    pair.pass(Duration::from_millis(250));
    assert!(!may_pass(&pair));
    // Nor does one whose lease has run out know what has become of it.
    let mut pair = leaving(true);
    pair.node.handle_message(pair.now, session, Message::Followed { hears_passed: true });
    pair.pass(Duration::from_millis(250));
    pair.now = pair.now.after(2 * LEASE);
    assert!(!may_pass(&pair));
}

#[test]
fn what_another_process_has_had_is_this_ones_and_its_home_is_told() {
    let mut pair = Pair::new();
    let flow = FlowId { serial: 77, ..FLOW };
    pair.node.take_over(pair.now, flow, Generation(4));
    let said = std::iter::from_fn(|| pair.node.poll_effect()).collect::<Vec<_>>();
    let taken = Message::Taken { flow, generation: Generation(4) };
    assert_eq!(said, [Effect::Send { session: pair.session(), message: taken }]);
    // Without a session its list tells of it.
    pair.lose();
    let other = FlowId { serial: 78, ..FLOW };
    pair.node.take_over(pair.now, other, Generation(1));
    pair.reconnect();
    assert_eq!(pair.node.flow_count(), 0, "the home knows neither");
    let silent = |flow| Effect::CloseSilently { flow };
    assert!(pair.node_did.contains(&silent(flow)) && pair.node_did.contains(&silent(other)), "{:?}", pair.node_did);
}
