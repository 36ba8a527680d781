//! Verdicts over time, of a dispatcher whose clients hear their nodes or do not.

use super::*;
use crate::handoff::{Ends, ServerId};

const NODE: NodeId = NodeId(1);
const V4: (NodeId, Family) = (NODE, Family::V4);

fn at(ms: u64) -> Instant {
    Instant { ns: ms * 1_000_000 }
}

fn ends(client: &str) -> Ends {
    Ends { client: client.parse().unwrap(), vip: "10.77.0.100:80".parse().unwrap() }
}

fn said(acknowledged: u32, now: Instant) -> Said {
    // Every look finds a repetition more.
    Said { next: 100, acknowledged, repeats: Some((now.ns / 200_000_000) as u8) }
}

/// A dispatcher at a time.
struct Case {
    direct: Direct,
    now: Instant,
}

impl Case {
    fn new() -> Case {
        Case { direct: Direct::default(), now: at(1_000) }
    }

    fn allows(&self, client: &str) -> bool {
        self.direct.allows(NODE, ends(client).client.ip(), self.now)
    }

    fn give(&mut self, client: &str) {
        let look = Look::new(NODE, ServerId(2048), ends(client), None, Some(said(7, self.now)));
        self.direct.watch(look, self.now);
    }

    /// What becomes of connections that were given, whose clients hear something or don't. Returns how many are taken back.
    fn pass(&mut self, time: Duration, hears: impl Fn(&Look) -> bool) -> u32 {
        let (end, mut taken_back) = (self.now.after(time), 0);
        while self.now < end {
            self.now = self.now.after(Duration::from_millis(50));
            while let Some(look) = self.direct.poll_look(false, self.now) {
                let said = said(if hears(&look) { 8 } else { 7 }, self.now);
                let verdict = self.direct.looked(look, Some(said), true, self.now);
                taken_back += u32::from(verdict == Verdict::TakeBack);
            }
        }
        taken_back
    }

    fn events(&mut self) -> Vec<String> {
        let text = |event: Event| match event.cause {
            Some(cause) => format!("{}: {cause}", event.whom),
            None => format!("{}: again", event.whom),
        };
        std::iter::from_fn(|| self.direct.poll_event().map(text)).collect()
    }
}

#[test]
fn two_connections_that_hear_nothing_have_their_prefix_proxied_until_one_does() {
    let mut case = Case::new();
    ["198.18.0.1:1", "198.18.0.2:1"].iter().for_each(|client| case.give(client));
    assert_eq!(case.pass(Duration::from_secs(1), |_| false), 2);
    assert_eq!(case.events(), ["clients in 198.18.0.0/24: clients hear nothing of it and repeat themselves"]);
    assert!(!case.allows("198.18.0.9:1") && case.allows("198.18.1.1:1") && case.allows("[2001:db8::1]:1"));
    assert_eq!(
        case.direct.detour(NODE).unwrap().to_string(),
        "proxied for clients in 198.18.0.0/24: clients hear nothing of it and repeat themselves"
    );
    assert_eq!(case.direct.detour(NodeId(0)), None);
    // One at a time is tried, each time later.
    case.pass(Duration::from_secs(5), |_| false);
    assert!(case.allows("198.18.0.9:1"));
    case.give("198.18.0.9:1");
    assert!(!case.allows("198.18.0.3:1"));
    assert_eq!(case.pass(Duration::from_secs(6), |_| false), 1);
    assert!(!case.allows("198.18.0.3:1") && case.events().is_empty(), "it's known");
    case.pass(Duration::from_secs(5), |_| false);
    assert!(case.allows("198.18.0.3:1"));
    case.give("198.18.0.3:1");
    case.pass(Duration::from_secs(1), |_| true);
    assert_eq!(case.events(), ["clients in 198.18.0.0/24: again"]);
    assert!(case.direct.allows_all() && case.direct.poll_timeout() == Instant::NEVER);
}

#[test]
fn who_finds_no_room_at_a_server_is_not_one_who_hears_nothing() {
    let mut case = Case::new();
    let clients = ["198.18.0.1:1", "198.18.0.2:1", "198.18.0.3:1"];
    clients.iter().for_each(|client| case.give(client));
    // The node tells once, and not of what is said again later.
    case.direct.was_crowded(NODE, case.now);
    assert_eq!(case.pass(CROWDED_TIME, |_| false), 0);
    assert!(case.direct.allows_all() && !case.direct.has_doubts());
    // That some found no room is no reason not to look at those who came later.
    clients.iter().for_each(|client| case.give(client));
    case.direct.was_crowded(NodeId(0), case.now);
    assert_eq!(case.pass(Duration::from_secs(1), |_| false), 3);
    assert_eq!(case.events().len(), 1);
    // Whoever is heard is heard.
    case.direct.was_crowded(NODE, case.now);
    case.pass(Duration::from_secs(5), |_| false);
    case.direct.was_crowded(NODE, case.now);
    case.give("198.18.0.1:2");
    case.pass(Duration::from_secs(1), |_| true);
    assert!(case.direct.allows_all());
}

#[test]
fn one_that_hears_nothing_is_nothing_if_others_do_or_it_was_long_ago() {
    let mut case = Case::new();
    case.give("198.18.0.1:1");
    case.pass(Duration::from_secs(1), |_| false);
    case.give("198.18.0.2:1");
    case.pass(Duration::from_secs(1), |_| true);
    assert!(case.direct.allows_all());
    for _ in 0..3 {
        case.give("198.18.0.1:1");
        assert_eq!(case.pass(DOUBT_TIME + Duration::from_secs(1), |_| false), 1);
        assert!(case.allows("198.18.0.1:1"));
    }
    assert_eq!(case.events(), Vec::<String>::new());
    case.give("198.18.0.1:1");
    case.pass(Duration::from_secs(1), |_| false);
    assert!(case.direct.has_doubts() && case.direct.allows_all(), "nobody is proxied yet");
    case.give("198.18.0.1:2");
    case.pass(Duration::from_secs(1), |_| false);
    assert_eq!((case.direct.allows_all(), case.direct.detours(), case.events().len()), (false, 1, 1));
    case.now = case.now.after(TRIAL_TIME);
    case.give("203.0.113.1:1");
    case.pass(Duration::from_secs(1), |_| true);
    assert!(case.direct.allows_all(), "who never comes back isn't remembered for ever");
    assert_eq!((case.direct.detours(), case.events()), (0, vec!["clients in 198.18.0.0/24: again".to_owned()]));
}

#[test]
fn a_node_that_nobody_hears_is_proxied_for_all_of_a_family_and_one_that_somebody_hears_is_not() {
    let all = "all IPv4 clients: clients hear nothing of it and repeat themselves".to_owned();
    for somebody in [false, true] {
        let mut case = Case::new();
        for third in 0..5 {
            [1, 2].iter().for_each(|port| case.give(&format!("198.18.{third}.1:{port}")));
            if somebody {
                case.give("203.0.113.1:1");
            }
            case.pass(Duration::from_secs(1), |look| look.ends.client.ip().to_string() == "203.0.113.1");
        }
        let events = case.events();
        assert_eq!(events.contains(&all), !somebody, "{events:?}");
        assert_eq!(case.allows("192.0.2.1:1"), somebody);
        assert!(case.allows("[2001:db8::1]:1"));
        if !somebody {
            case.pass(Duration::from_secs(5), |_| false);
            case.give("192.0.2.1:1");
            assert!(!case.allows("192.0.2.1:2"), "one is enough to try");
            case.pass(Duration::from_secs(1), |_| true);
            assert!(case.allows("192.0.2.1:2"));
        }
    }
}

#[test]
fn a_trial_that_shows_nothing_is_followed_by_another() {
    let mut case = Case::new();
    [1, 2].iter().for_each(|port| case.give(&format!("198.18.0.1:{port}")));
    case.pass(Duration::from_secs(6), |_| false);
    case.give("198.18.0.1:3");
    case.now = case.now.after(LOOK_PAUSE);
    let look = case.direct.poll_look(false, case.now).expect("it's time");
    assert!(look.matters && !case.allows("198.18.0.1:4"));
    case.direct.left(&look, case.now);
    assert!(!case.allows("198.18.0.1:4"));
    case.now = case.now.after(PAUSE_MIN);
    assert!(case.allows("198.18.0.1:4"));
}

#[test]
fn a_node_that_was_asked_can_show_that_its_clients_hear_nothing() {
    let mut case = Case::new();
    for port in 1..3 {
        let look = Look::new(NODE, ServerId(2048), ends(&format!("198.18.0.1:{port}")), None, Some(said(7, case.now)));
        case.direct.watch(look.moved(), case.now);
    }
    let mut asked = Vec::new();
    for _ in 0..3 {
        case.now = case.now.after(LOOK_PAUSE);
        while let Some(look) = case.direct.poll_look(false, case.now) {
            let verdict = case.direct.looked(look.clone(), Some(said(7, at(1_000))), true, case.now);
            asked.extend((verdict == Verdict::Ask).then_some(look));
        }
    }
    assert!(asked.len() == 2 && case.direct.allows_all());
    asked.iter().for_each(|look| case.direct.was_unheard(look, case.now));
    assert!(!case.allows("198.18.0.1:3") && case.direct.poll_timeout() <= case.now, "that is to be told");
    assert_eq!(case.events().len(), 1);
}

#[test]
fn what_cannot_come_back_is_given_up_once_others_hear_nothing_either() {
    let mut case = Case::new();
    let mut verdicts = Vec::new();
    for (port, start, looks) in [(1, 0, 3), (2, 1, 9)] {
        case.give(&format!("198.18.0.1:{port}"));
        for _ in 0..looks {
            case.now = case.now.after(LOOK_PAUSE);
            while let Some(look) = case.direct.poll_look(false, case.now) {
                let said = said(7, case.now);
                verdicts.push((start, case.direct.looked(look, Some(said), false, case.now)));
            }
        }
    }
    let given_up = |verdicts: &[(i32, Verdict)]| verdicts.iter().filter(|(_, it)| *it == Verdict::GiveUp).count();
    assert_eq!(given_up(&verdicts), 1, "the first, after 3 s: {verdicts:?}");
    case.now = case.now.after(LOOK_PAUSE);
    while let Some(look) = case.direct.poll_look(false, case.now) {
        let said = said(7, case.now);
        verdicts.push((1, case.direct.looked(look, Some(said), false, case.now)));
    }
    assert_eq!(given_up(&verdicts), 2, "{verdicts:?}");
    assert!(verdicts.iter().all(|(start, verdict)| *start == 1 || *verdict == Verdict::Wait), "{verdicts:?}");
    assert!(!case.allows("198.18.0.1:3") && case.direct.looks.is_empty());
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut case = Case::new();
    for number in 0..PREFIXES_MAX as u32 + 100 {
        let client = IpAddr::from((0x0A00_0000 + (number << 8)).to_be_bytes());
        case.direct.is_unheard(&Look::new(NODE, ServerId(0), ends(&format!("{client}:1")), None, None), case.now);
    }
    assert_eq!(case.direct.doubts.len(), PREFIXES_MAX);
    (0..LOOKS_MAX + 100).for_each(|_| case.give("192.0.2.1:1"));
    assert_eq!(case.direct.looks.len(), LOOKS_MAX);
}

#[test]
fn a_node_is_used_when_its_probe_has_arrived_and_proxied_if_none_does() {
    let mut case = Case::new();
    let (node, family) = V4;
    case.direct.begin_probes(node, &[family, Family::V6], case.now);
    assert!(!case.direct.is_probed(node));
    assert_eq!(case.direct.poll_probe(case.now), Some(V4));
    assert_eq!(case.direct.poll_probe(case.now), Some((node, Family::V6)));
    assert_eq!(case.direct.poll_probe(case.now), None);
    case.direct.probe_sent(node, family);
    case.direct.probe_sent(node, Family::V6);
    case.direct.probe_arrived(node, Family::V6);
    assert!(!case.direct.is_probed(node), "the other one is under way");
    for _ in 0..3 {
        case.now = case.now.after(Duration::from_millis(200));
        case.direct.poll_probe(case.now);
    }
    assert!(case.direct.is_probed(node) && !case.allows("192.0.2.1:1") && case.allows("[2001:db8::1]:1"));
    let cause = "what it sends under the VIP doesn't get to this dispatcher";
    assert_eq!(case.events(), [format!("all IPv4 clients: {cause}")]);
    // It's used all the same while it's probed again, and after a new link too.
    case.direct.end_probes(node);
    case.direct.begin_probes(node, &[family], case.now);
    assert!(case.direct.is_probed(node) && case.direct.poll_probe(case.now) == Some(V4));
    case.direct.probe_arrived(node, family);
    assert_eq!(case.events(), ["all IPv4 clients: again"]);
    assert!(case.direct.allows_all());
}

#[test]
fn connections_that_came_at_about_the_same_time_are_looked_at_together() {
    let mut case = Case::new();
    case.now = at(1_001);
    case.give("198.18.0.1:1");
    case.now = at(1_019);
    case.give("198.18.0.1:2");
    let due = case.direct.poll_timeout();
    assert_eq!(due, at(1_320), "and never early");
    assert!(case.direct.poll_look(false, due).is_some() && case.direct.poll_look(false, due).is_some());
    assert_eq!(case.direct.poll_timeout(), Instant::NEVER);
}
