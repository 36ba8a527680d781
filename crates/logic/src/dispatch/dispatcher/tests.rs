//! Candidates, the books, and explanations, by ticks.

use super::super::classify::Rule;
use super::*;
use crate::serve::path_pattern::PathPattern;

fn at(seconds: u64) -> Instant {
    Instant { ns: seconds * 1_000_000_000 }
}

fn node(name: &str, paths: &[&str]) -> NodeSettings {
    let paths: Vec<_> = paths.iter().map(|path| PathPattern::parse(path).expect("a pattern")).collect();
    NodeSettings { name: name.to_owned(), weight: 100, serves: Serves::new(&[], &paths), near: Vec::new() }
}

fn dispatcher(policy: PolicyKind, nodes: &[NodeSettings]) -> Dispatcher {
    let settings = Settings {
        policy,
        rules: DynamicRules { extensions: vec!["php".into()], ..DynamicRules::default() },
        ..Settings::default()
    };
    let mut dispatcher = Dispatcher::new(settings, &[1; 32], 7);
    dispatcher.set_nodes(nodes, at(0));
    dispatcher
}

fn facts(text: &str) -> Facts<'_> {
    Facts::written(text).expect("it has a path")
}

fn name(dispatcher: &mut Dispatcher, text: &str, second: u64) -> Result<String, Refusal> {
    let choice = dispatcher.choose(&facts(text), at(second))?;
    Ok(dispatcher.name(choice.node).to_owned())
}

#[test]
fn only_nodes_that_serve_a_request_are_chosen() {
    let nodes = [node("a", &["/images/*"]), node("b", &["/images/*", "/css/*"]), node("c", &["/css/*"])];
    let mut dispatcher = dispatcher(PolicyKind::RoundRobin, &nodes);
    let turns: Vec<_> = (0..4).map(|_| name(&mut dispatcher, "/images/x.png", 1).expect("there is one")).collect();
    assert_eq!(turns, ["a", "b", "a", "b"]);
    assert_eq!(name(&mut dispatcher, "/other", 1), Err(Refusal::NobodyServes));
    let b = dispatcher.find("b").expect("configured");
    dispatcher.set_draining(b, true, at(1));
    assert_eq!(name(&mut dispatcher, "/css/x.css", 1).as_deref(), Ok("c"));
    let c = dispatcher.find("c").expect("configured");
    dispatcher.link_changed(c, false, at(1));
    assert_eq!(name(&mut dispatcher, "/css/x.css", 1), Err(Refusal::NobodyUp));
}

#[test]
fn what_nodes_were_told_is_out_of_date_when_one_goes_and_when_it_is_back() {
    let mut dispatcher = dispatcher(PolicyKind::RoundRobin, &[node("a", &["/a/*"]), node("b", &["/b/*"])]);
    let b = dispatcher.find("b").expect("configured");
    let mut last = dispatcher.changes();
    let mut is_new =
        |dispatcher: &Dispatcher| std::mem::replace(&mut last, dispatcher.changes()) != dispatcher.changes();
    for is_in in [false, true] {
        dispatcher.set_draining(b, !is_in, at(1));
        assert!(is_new(&dispatcher), "{is_in}");
        dispatcher.set_draining(b, !is_in, at(1));
        assert!(!is_new(&dispatcher), "it was so before");
    }
    for is_up in [false, true] {
        dispatcher.link_changed(b, is_up, at(2));
        assert!(is_new(&dispatcher), "{is_up}");
    }
    dispatcher.told_failing(b, true, at(3));
    dispatcher.link_changed(b, false, at(3));
    is_new(&dispatcher);
    dispatcher.link_changed(b, true, at(3));
    assert!(!is_new(&dispatcher), "it isn't well yet");
    assert!(dispatcher.serves(b, &facts("/b/x")) && !dispatcher.serves(b, &facts("/a/x")), "whether it's well or not");
}

#[test]
fn the_second_for_a_request_is_another_that_serves_it_and_nothing_is_remembered() {
    for policy in [PolicyKind::RoundRobin, PolicyKind::MixLard, PolicyKind::ConsistentHash] {
        let nodes = [node("a", &["/images/*"]), node("b", &["/images/*"]), node("c", &["/css/*"])];
        let mut dispatcher = dispatcher(policy, &nodes);
        let facts = facts("/images/x.png");
        let first = dispatcher.choose(&facts, at(1)).expect("there is one").node;
        let other = if dispatcher.name(first) == "a" { "b" } else { "a" };
        let other = dispatcher.find(other).expect("configured");
        assert_eq!(dispatcher.second(&facts, first, at(1)), Some(other), "{policy:?}");
        let next = dispatcher.choose(&facts, at(1)).expect("there is one").node;
        assert_eq!(
            next == first,
            policy != PolicyKind::RoundRobin,
            "{policy:?}: content stays, and turns are as they were"
        );
        dispatcher.set_draining(other, true, at(1));
        assert_eq!(dispatcher.second(&facts, first, at(1)), None, "{policy:?}: it takes nothing on");
    }
}

#[test]
fn a_connection_at_rest_stays_where_it_is_as_long_as_that_may_be_chosen() {
    let mut dispatcher = dispatcher(PolicyKind::RoundRobin, &[node("a", &[]), node("b", &[]), node("c", &[])]);
    let (a, b) = (dispatcher.find("a"), dispatcher.find("b"));
    for _ in 0..6 {
        assert_eq!(dispatcher.choose_for_idle(b, at(1)).ok(), b);
    }
    assert_eq!(dispatcher.choose_for_idle(None, at(1)).ok(), a, "nobody's turn has passed");
    dispatcher.set_draining(b.expect("configured"), true, at(1));
    for _ in 0..6 {
        assert!(dispatcher.choose_for_idle(b, at(1)).is_ok_and(|chosen| Some(chosen) != b), "it's being emptied");
    }
}

#[test]
fn a_connection_at_rest_may_go_to_any_node_where_none_serves_everything() {
    let nodes = [node("a", &["/images/*"]), node("b", &["/css/*"])];
    let mut dispatcher = dispatcher(PolicyKind::ConsistentHash, &nodes);
    let (a, b) = (dispatcher.find("a"), dispatcher.find("b"));
    assert!((0..20).any(|_| dispatcher.choose_for_idle(a, at(1)).ok() == b));
    dispatcher.set_draining(a.expect("configured"), true, at(1));
    assert!((0..6).all(|_| dispatcher.choose_for_idle(a, at(1)).ok() == b), "it's emptied");
    assert_eq!(dispatcher.choose_any(at(1)), Err(Refusal::NobodyServes));
}

#[test]
fn a_dead_node_loses_its_contents_and_is_chosen_again_when_it_is_back() {
    let mut dispatcher = dispatcher(PolicyKind::MixLard, &[node("a", &[]), node("b", &[])]);
    let first = name(&mut dispatcher, "/x", 1).expect("there is one");
    let (dead, other) = if first == "a" { ("a", "b") } else { ("b", "a") };
    let id = dispatcher.find(dead).expect("configured");
    for second in [2, 4, 6] {
        assert_eq!(dispatcher.poll_timeout(), Some(at(if second == 2 { 0 } else { second })));
        while let Some(probed) = dispatcher.poll_probe(at(second)) {
            let went_down = dispatcher.probe_ended(probed, probed != id, at(second));
            assert_eq!(went_down, probed == id && second == 6);
        }
    }
    assert_eq!(name(&mut dispatcher, "/x", 7).as_deref(), Ok(other));
    for second in [8, 10] {
        while let Some(probed) = dispatcher.poll_probe(at(second)) {
            dispatcher.probe_ended(probed, true, at(second));
        }
    }
    assert_eq!(name(&mut dispatcher, "/x", 60).as_deref(), Ok(other), "it's there now");
    assert_eq!(dispatcher.table().count(), 1);
}

#[test]
fn half_of_the_nodes_can_be_ejected_and_the_last_are_tried_all_the_same() {
    let nodes = ["a", "b", "c", "d"].map(|name| node(name, &[]));
    let mut dispatcher = dispatcher(PolicyKind::LeastConnections, &nodes);
    let mut fail = |name: &str| {
        let id = dispatcher.find(name).expect("configured");
        (0..20).any(|_| {
            dispatcher.begin(id);
            dispatcher.end(id, Outcome::Failed, at(1))
        })
    };
    assert_eq!(["a", "b", "c", "d"].map(&mut fail), [true, true, false, false]);
    for name in ["c", "d"] {
        let id = dispatcher.find(name).expect("configured");
        dispatcher.link_changed(id, false, at(1));
    }
    assert!(["a", "b"].contains(&&*name(&mut dispatcher, "/x", 2).expect("a last resort")));
    let explanation = dispatcher.explain(&facts("/x"), at(2));
    let standings: Vec<_> = explanation.nodes.iter().map(|line| line.standing).collect();
    let unlinked = Standing::Unfit(State::Unlinked);
    assert_eq!(standings, [Standing::LastResort, Standing::LastResort, unlinked, unlinked]);
}

#[test]
fn a_node_with_too_much_to_do_is_not_ejected_for_what_it_fails_to_take() {
    // Who has said that there is no room, if anybody has; when requests fail; and whether that ejects the node.
    for (is_leat, second, is_ejected) in
        [(None, 2, true), (Some(true), 2, false), (Some(false), 2, true), (Some(true), 60, true)]
    {
        let mut dispatcher = dispatcher(PolicyKind::LeastConnections, &[node("a", &[]), node("b", &[])]);
        let a = dispatcher.find("a").expect("configured");
        if let Some(is_leat) = is_leat {
            dispatcher.had_no_room(a, is_leat, at(1));
        }
        let mut fail = || {
            dispatcher.begin(a);
            dispatcher.end(a, Outcome::Failed, at(second))
        };
        assert_eq!((0..20).any(|_| fail()), is_ejected, "{is_leat:?} at {second}");
    }
}

#[test]
fn nodes_keep_their_places_by_name() {
    let mut dispatcher = dispatcher(PolicyKind::MixLard, &[node("a", &[]), node("b", &[])]);
    let b = dispatcher.find("b").expect("configured");
    dispatcher.begin(b);
    dispatcher.set_draining(b, true, at(1));
    for page in 0..20 {
        name(&mut dispatcher, &format!("/{page}"), 1).expect("a is there");
    }
    dispatcher.set_nodes(&[node("c", &[]), NodeSettings { weight: 50, ..node("b", &[]) }], at(2));
    assert_eq!((dispatcher.find("a"), dispatcher.find("b")), (None, Some(b)));
    assert_eq!(dispatcher.find("c").map(NodeId::index), Some(0), "the place is free");
    let line = dispatcher.nodes(at(2)).find(|line| line.name == "b").expect("b is there");
    assert_eq!((line.active, line.weight, line.standing), (1, 50, Standing::Draining));
    let choice = dispatcher.choose(&facts("/1"), at(3)).expect("c is there");
    assert_eq!(choice.why, Why::New, "what a had isn't what c has");
    let many: Vec<_> = (0..100).map(|number| node(&format!("n{number}"), &[])).collect();
    dispatcher.set_nodes(&many, at(4));
    assert_eq!(dispatcher.nodes(at(4)).count(), NODES_MAX);
}

#[test]
fn a_policy_is_changed_while_it_runs() {
    let mut dispatcher = dispatcher(PolicyKind::MixLard, &[node("a", &[]), node("b", &[])]);
    name(&mut dispatcher, "/x", 1).expect("there is one");
    assert_eq!(dispatcher.table_size().0, 1);
    for policy in PolicyKind::ALL {
        dispatcher.configure(Settings { policy: *policy, ..dispatcher.settings().clone() });
        name(&mut dispatcher, "/x", 2).expect("there is one");
    }
    assert_eq!(dispatcher.table_size(), (0, 0));
}

#[test]
fn explaining_says_what_would_happen_and_changes_nothing() {
    for policy in PolicyKind::ALL {
        let mut dispatcher = dispatcher(*policy, &[node("a", &[]), node("b", &[]), node("c", &["/only/*"])]);
        for second in 1..200 {
            let text = format!("/{}{}", second % 5, if second % 3 == 0 { ".php" } else { "" });
            let explained = dispatcher.explain(&facts(&text), at(second));
            assert_eq!(explained, dispatcher.explain(&facts(&text), at(second)));
            let choice = dispatcher.choose(&facts(&text), at(second)).expect("there is one");
            assert_eq!(explained.chosen, Ok((dispatcher.name(choice.node).to_owned(), choice.why)));
            dispatcher.begin(choice.node);
            if second % 4 == 0 {
                dispatcher.end(choice.node, Outcome::Served, at(second));
            }
        }
    }
}

#[test]
fn an_explanation_reads_well() {
    let mut dispatcher = dispatcher(PolicyKind::MixLard, &[node("a", &[]), node("b", &[]), node("c", &["/only/*"])]);
    let a = dispatcher.find("a").expect("configured");
    let b = dispatcher.find("b").expect("configured");
    dispatcher.report(a, LoadReport { active: 3, busy_permille: 120, has_memory: false }, at(9));
    dispatcher.choose(&facts("/x"), at(8)).expect("there is one");
    dispatcher.report(b, LoadReport { active: 1, busy_permille: 900, has_memory: false }, at(9));
    dispatcher.set_draining(a, true, at(9));
    let text = dispatcher.explain(&facts("/y.php"), at(10)).to_string();
    let expected = "\
dynamic (by its extension) request under the policy mix_lard
  goes to b: a dynamic request, and this node has the least to do
  as a connection's first request: born_there: it takes the least CPU time (born_there 19 us, moved_there 116 us, proxy 74 us)
  on another node's connection: fetch: it takes the least CPU time (moved_there 86 us, fetch 46 us)
  nodes:
    a  draining                     load 3, busy 12.0 %, weight 100, reported 1.0 s ago
    b  may be chosen                load 1, busy 90.0 %, weight 100, reported 1.0 s ago
    c  serves other hosts or paths  load 0, weight 100, no report
";
    assert_eq!(text, expected);
    let text = dispatcher.explain(&facts("/x"), at(10)).to_string();
    assert!(text.contains(": last used 2.0 s ago, at ") && text.contains("that is without a host"), "{text}");
    dispatcher.set_nodes(&[], at(11));
    let text = dispatcher.explain(&facts("/x"), at(11)).to_string();
    assert!(text.contains("goes nowhere: no node serves this host and path"), "{text}");
    assert_eq!(dispatcher.settings().rules.classify(&facts("/y.php")), Class::Dynamic(Rule::Extension));
}

#[test]
fn the_nearest_nodes_that_are_well_are_chosen_of() {
    let network = |text: &str, prefix| Network::new(text.parse().expect("an address"), prefix).expect("a network");
    let near = |name: &str, near: &[Network]| NodeSettings { near: near.to_vec(), ..node(name, &[]) };
    let (wide, narrow) = (network("10.0.0.0", 8), network("10.8.0.0", 16));
    let nodes = [
        near("a", &[wide]),
        near("b", &[wide, narrow]),
        near("c", &[narrow]),
        near("d", &[network("2001:db8:8::", 48)]),
        node("e", &[]),
    ];
    let mut dispatcher = dispatcher(PolicyKind::RoundRobin, &nodes);
    assert!(dispatcher.goes_by_client());
    let chosen = |dispatcher: &mut Dispatcher, client: &str| {
        let facts = facts("/x").by(client.parse().ok());
        let mut names: Vec<_> = (0..10)
            .map(|_| {
                dispatcher.choose(&facts, at(1)).map(|choice| dispatcher.name(choice.node).to_owned()).expect("one")
            })
            .collect();
        names.sort();
        names.dedup();
        names.concat()
    };
    assert_eq!(chosen(&mut dispatcher, "10.8.1.1"), "bc", "the longest prefix counts");
    assert_eq!(chosen(&mut dispatcher, "10.9.1.1"), "ab");
    assert_eq!(chosen(&mut dispatcher, "::ffff:10.9.1.1"), "ab", "it's an IPv4 address");
    assert_eq!(chosen(&mut dispatcher, "2001:db8:8::1"), "d");
    assert_eq!(chosen(&mut dispatcher, "192.0.2.1"), "abcde", "near to none");
    assert_eq!(chosen(&mut dispatcher, ""), "abcde", "nobody knows whose it is");

    let far = Capacity { weight: 500, active: 0, is_near: false };
    assert_eq!(dispatcher.capacity(&facts("/x").by("192.0.2.1".parse().ok()), at(1)), far);
    let client = "10.8.1.1".parse().ok();
    let (b, c) = (dispatcher.find("b").expect("configured"), dispatcher.find("c").expect("configured"));
    dispatcher.begin(b);
    let two = Capacity { weight: 200, active: 1, is_near: true };
    assert_eq!(dispatcher.capacity(&facts("/x").by(client), at(1)), two, "only those that are near");
    let explanation = dispatcher.explain(&facts("/x").by(client), at(1));
    let standings: Vec<_> = explanation.nodes.iter().map(|line| line.standing).collect();
    let (near, farther) = (Standing::Near, Standing::Farther);
    assert_eq!(standings, [farther, near, near, farther, farther]);

    dispatcher.set_draining(c, true, at(1));
    assert_eq!(chosen(&mut dispatcher, "10.8.1.1"), "b");
    dispatcher.link_changed(b, false, at(1));
    assert_eq!(chosen(&mut dispatcher, "10.8.1.1"), "a", "the next one");
    let a = dispatcher.find("a").expect("configured");
    dispatcher.set_draining(a, true, at(1));
    assert_eq!(chosen(&mut dispatcher, "10.8.1.1"), "de", "as if there were no networks");
    assert!(!dispatcher.capacity(&facts("/x").by(client), at(1)).is_near);
}
