//! By which way a connection's first request gets to its node, as `hand_over` says and a reload changes, and what becomes of it where nothing can be
//! handed over.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use super::motion::{self, Begun};
use super::{Folder, Lab, is_possible, restart};

#[test]
fn a_first_request_takes_the_way_that_hand_over_names() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("ways"));
    let files = BTreeMap::from([("small".to_owned(), motion::content("small", 1_000))]);
    motion::up(&lab, &folder, Begun::AtNode, &files, "policy = 'round_robin'\nhand_over = 'never'");
    let socket = folder.path("leat.sock");
    let ask_some = || {
        lab.at("client1", || {
            for _ in 0..20 {
                let (mut stream, mut rest) = (motion::connect(), Vec::new());
                for _ in 0..2 {
                    motion::ask(&mut stream, &["small"]);
                    assert!(motion::read_reply(&mut stream, &mut rest).expect("a reply") == files["small"]);
                }
            }
        });
        lab.number("dispatcher", "leat_births_total") + lab.number("dispatcher", "leat_handoffs_total")
    };
    let explain = || motion::tell(&socket, &["ctl", "explain", "GET /small"]);
    let status_of = |method: &str| {
        lab.at("client1", || {
            let mut stream = motion::connect();
            write!(stream, "{method} /small HTTP/1.1\r\nHost: files.test\r\nConnection: close\r\n\r\n").expect("sent");
            let mut reply = String::new();
            stream.read_to_string(&mut reply).expect("a reply");
            reply.split(' ').nth(1).map(str::to_owned)
        })
    };
    assert_eq!(ask_some(), 0, "all were proxied");
    let methods = ["TRACE", "PATCH", "UNHEARD-OF"];
    let proxied = methods.map(status_of);
    assert_eq!(proxied[0].as_deref(), Some("405"), "as a node says");
    let said = explain();
    assert!(said.contains("first request: proxy: `hand_over` in [cluster] says so ("), "{said}");
    let file = folder.path("cluster.toml");
    let text = fs::read_to_string(&file).expect("it's there");
    fs::write(&file, text.replace("'never'", "'always'")).expect("a configuration");
    lab.reload("dispatcher");
    assert_eq!(ask_some(), 20, "every connection went to a node");
    assert_eq!(methods.map(status_of), proxied, "whichever way");
    let said = explain();
    assert!(!said.contains("first request: proxy: it takes the least") && said.contains(", proxy "), "{said}");
}

#[test]
fn a_request_that_its_node_never_got_is_passed_on_to_another() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("second"));
    let files = BTreeMap::from([("small".to_owned(), motion::content("small", 1_000))]);
    motion::up(&lab, &folder, Begun::AtNode, &files, "policy = 'round_robin'\nhand_over = 'never'");
    let file = folder.path("cluster.toml");
    let text = fs::read_to_string(&file).expect("it's there");
    // Its link is up, and nothing listens there.
    fs::write(&file, text.replace("name = 'n1'", "name = 'n1'\nport = 81")).expect("a configuration");
    lab.reload("dispatcher");
    let statuses = lab.at("client1", || {
        let ask = |turn: usize| {
            let mut stream = motion::connect();
            let (method, rest) = [("GET", "\r\n"), ("PATCH", "Content-Length: 3\r\n\r\nabc")][turn % 2];
            write!(stream, "{method} /small HTTP/1.1\r\nHost: files.test\r\nConnection: close\r\n{rest}")
                .expect("sent");
            let mut reply = Vec::new();
            stream.read_to_end(&mut reply).expect("a reply");
            String::from_utf8_lossy(&reply[9..12]).into_owned()
        };
        (0..30).map(ask).collect::<Vec<_>>()
    });
    let expected: Vec<_> = (0..30).map(|turn| ["200", "405"][turn % 2]).collect();
    assert_eq!(statuses, expected, "whatever the method");
    let retries = lab.number("dispatcher", "leat_upstream_retries_total{site=\"cluster\"}");
    assert!((1..=10).contains(&retries), "{retries}: it's soon left out");
    assert_eq!(lab.number("dispatcher", "leat_upstream_failures_total{site=\"cluster\"}"), 0);
    let nodes = motion::tell(&folder.path("leat.sock"), &["ctl", "nodes"]);
    assert_eq!(nodes.matches("may be chosen").count(), 2, "{nodes}");
}

/// What each request of a lab's log is called, by its target; lines of all servers in one file.
pub(super) fn ids(log: &str) -> BTreeMap<String, Vec<String>> {
    let mut ids: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in fs::read_to_string(log).unwrap_or_default().lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("a whole line");
        let text = |field: &str| line[field].as_str().expect("a text").to_owned();
        ids.entry(text("target")).or_default().push(text("id"));
    }
    ids
}

#[test]
fn every_server_calls_a_request_the_same() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("ids"));
    let files = BTreeMap::from([("small".to_owned(), motion::content("small", 1_000))]);
    let log = folder.path("access.log");
    motion::up(&lab, &folder, Begun::AtNode, &files, "policy = 'round_robin'\nhand_over = 'never'");
    let file = folder.path("cluster.toml");
    let text = fs::read_to_string(&file).expect("it's there");
    let logged = format!("{text}[site.access_log]\npath = '{log}'\nformat = 'json'\n");
    let ask = |targets: [&str; 3]| {
        lab.at("client1", || {
            let (mut stream, mut rest) = (motion::connect(), Vec::new());
            for target in targets {
                motion::ask(&mut stream, &[target]);
                motion::read_reply(&mut stream, &mut rest).expect("a reply");
            }
        });
    };
    let all_reload = |text: &str| {
        fs::write(&file, text).expect("a configuration");
        ["dispatcher", "n1", "n2", "n3"].iter().for_each(|host| lab.reload(host));
    };
    all_reload(&logged);
    ask(["small?a", "small?b", "small?c"]);
    // What is proxied is logged by who answers, under the name that the dispatcher gave it.
    let are_logged = |targets: [&str; 3]| targets.iter().all(|&target| ids(&log).contains_key(target));
    super::within("nodes have logged them", || are_logged(["/small?a", "/small?b", "/small?c"]));
    let names = ids(&log);
    assert!(names.values().all(|ids| ids.len() == 1), "{names:?}");
    let connections: BTreeSet<_> =
        names.values().filter_map(|ids| ids[0].rsplit_once('-')).map(|(flow, _)| flow).collect();
    assert_eq!(connections.len(), 1, "one connection's: {names:?}");
    assert!(names["/small?b"][0].ends_with("-2"), "{names:?}");
    // A connection that has been handed over: whoever answers calls its requests by it, and nobody else has seen them.
    all_reload(&logged.replace("'never'", "'always'"));
    ask(["small?d", "small?e", "small?f"]);
    super::within("a node has logged them", || are_logged(["/small?d", "/small?e", "/small?f"]));
    let names = ids(&log);
    let number = |target: &str| names[target][0].rsplit_once('-').map(|(_, number)| number.to_owned());
    let numbers = ["/small?d", "/small?e", "/small?f"].map(|target| (names[target].len(), number(target)));
    assert_eq!(numbers, ["1", "2", "3"].map(|number| (1, Some(number.to_owned()))), "{names:?}");
}

#[test]
fn a_request_waits_for_a_node_while_links_may_come_back() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("links"));
    let files = BTreeMap::from([("small".to_owned(), motion::content("small", 1_000))]);
    motion::up(&lab, &folder, Begun::AtNode, &files, "policy = 'round_robin'");
    let nodes = ["n1", "n2", "n3"];
    let lost = || motion::tell(&folder.path("leat.sock"), &["ctl", "nodes"]).matches("the link to it is lost").count();
    // Longer than their leases.
    nodes.iter().for_each(|node| lab.stop(node));
    super::within("no node is up", || lost() == nodes.len());
    lab.at("client1", || {
        let (mut stream, mut rest) = (motion::connect(), Vec::new());
        motion::ask(&mut stream, &["small"]);
        nodes.iter().for_each(|node| lab.signal(node, "-CONT"));
        assert!(motion::read_reply(&mut stream, &mut rest).expect("a reply") == files["small"]);
    });
}

#[test]
fn what_a_peer_that_stands_still_was_asked_for_is_answered_all_the_same() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("fetch"));
    let files: BTreeMap<String, Vec<u8>> =
        (0..16).map(|number| format!("f{number}")).map(|name| (name.clone(), motion::content(&name, 1_000))).collect();
    motion::up(&lab, &folder, Begun::AtNode, &files, "policy = 'consistent_hash'");
    let ask_all = |stream: &mut std::net::TcpStream| {
        lab.at("client1", || {
            let mut rest = Vec::new();
            for (name, content) in &files {
                motion::ask(stream, &[name]);
                let reply = motion::read_reply(stream, &mut rest).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(reply == *content, "{name} is as it should be");
            }
        });
    };
    let fetches = || lab.numbers(["n1", "n2", "n3"].map(|node| (node, 9180, "leat_fetches_total")));
    let mut stream = lab.at("client1", motion::connect);
    // What is cheaper has been learned by then.
    ask_all(&mut stream);
    let before = fetches();
    ask_all(&mut stream);
    let fetched = fetches();
    assert!(fetched.iter().sum::<u64>() > before.iter().sum::<u64>() + 4, "{before:?} {fetched:?}");
    let nodes = ["n1", "n2", "n3"];
    let log = |node: &str| fs::read_to_string(format!("/run/leat-lab/{}/{node}.log", lab.name)).expect("it's there");
    let mut logs = String::new();
    // Now and then what seems dearer is tried: then the connection is given to who stands still, and its node's lease is waited for.
    for _ in 0..4 {
        let holder = nodes.into_iter().find(|node| super::foreign::held(&folder, node) == 1).expect("a node has it");
        ask_all(&mut stream);
        let others = || nodes.into_iter().filter(|node| *node != holder);
        others().for_each(|node| lab.stop(node));
        ask_all(&mut stream);
        logs = log(holder);
        if logs.contains("it said nothing in time") {
            return;
        }
        others().for_each(|node| lab.signal(node, "-CONT"));
        let may_be_chosen =
            || motion::tell(&folder.path("leat.sock"), &["ctl", "nodes"]).matches("may be chosen").count();
        super::within("they're back", || may_be_chosen() == nodes.len());
    }
    panic!("one is fetched from who stands still: {logs}");
}

#[test]
fn what_is_asked_next_stays_where_its_connection_is_once_nodes_have_memory_for_it() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("memory"));
    let files: BTreeMap<String, Vec<u8>> =
        (0..16).map(|number| format!("f{number}")).map(|name| (name.clone(), motion::content(&name, 1_000))).collect();
    let policy = "policy = 'mix_lard'";
    motion::up(&lab, &folder, Begun::AtNode, &files, policy);
    let mut stream = lab.at("client1", motion::connect);
    let mut ask_all = || {
        lab.at("client1", || {
            let mut rest = Vec::new();
            for (name, content) in &files {
                motion::ask(&mut stream, &[name]);
                let reply =
                    motion::read_reply(&mut stream, &mut rest).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(reply == *content, "{name} is as it should be");
            }
        });
    };
    let nodes = ["n1", "n2", "n3"];
    let went = || lab.number("dispatcher", "leat_handoffs_returned_total") + lab.total(nodes, "leat_fetches_total");
    let explained = || motion::tell(&folder.path("leat.sock"), &["ctl", "explain", "GET http://10.77.0.100/f0"]);
    super::within("all nodes have had hardly anything read for a while", || explained().contains(": stay: "));
    let before = went();
    (0..2).for_each(|_| ask_all());
    assert_eq!(went(), before, "what is asked stays");
    let file = folder.path("cluster.toml");
    let text = fs::read_to_string(&file).expect("it's there");
    let text = text.replacen(policy, &format!("{policy}\nmix_lard = {{ may_stay = false }}"), 1);
    fs::write(&file, text).expect("a configuration");
    lab.reload("dispatcher");
    super::within("nodes go by where content is", || {
        ask_all();
        went() > before + 4
    });
}

#[test]
fn what_was_proxied_to_a_node_that_stands_still_is_asked_of_another() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("lapse"));
    let files = BTreeMap::from([("small".to_owned(), motion::content("small", 1_000))]);
    motion::up(&lab, &folder, Begun::AtNode, &files, "policy = 'round_robin'\nhand_over = 'never'");
    lab.stop("n1");
    lab.at("client1", || {
        // So many at once that each node is asked.
        let mut clients: Vec<_> = (0..9).map(|_| (motion::connect(), Vec::new())).collect();
        clients.iter_mut().for_each(|(stream, _)| motion::ask(stream, &["small"]));
        for (stream, rest) in &mut clients {
            assert!(motion::read_reply(stream, rest).expect("a reply") == files["small"]);
        }
    });
    let retries = lab.number("dispatcher", "leat_upstream_retries_total{site=\"cluster\"}");
    assert!((1..=9).contains(&retries), "{retries}");
    lab.signal("n1", "-CONT");
}

#[test]
fn what_a_dispatcher_answers_itself_is_in_its_log() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("own"));
    let files = BTreeMap::from([("small".to_owned(), motion::content("small", 1_000))]);
    let log = folder.path("own.log");
    motion::up(&lab, &folder, Begun::AtNode, &files, "policy = 'round_robin'");
    let file = folder.path("cluster.toml");
    let text = fs::read_to_string(&file).expect("it's there");
    fs::write(&file, format!("{text}[cluster.access_log]\npath = '{log}'\n")).expect("a configuration");
    lab.reload("dispatcher");
    let status_of = |request: &str| {
        lab.at("client1", || {
            let mut stream = motion::connect();
            stream.write_all(request.as_bytes()).expect("sent");
            let mut reply = String::new();
            stream.read_to_string(&mut reply).expect("a reply");
            reply.split(' ').nth(1).map(str::to_owned).unwrap_or_default()
        })
    };
    assert_eq!(status_of("GET /small HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), "200");
    assert_eq!(status_of("GET /bad HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n"), "400");
    let nodes = ["n1", "n2", "n3"];
    let lost = || motion::tell(&folder.path("leat.sock"), &["ctl", "nodes"]).matches("the link to it is lost").count();
    nodes.iter().for_each(|node| lab.stop(node));
    super::within("no node is up", || lost() == nodes.len());
    assert_eq!(status_of("GET /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), "503");
    nodes.iter().for_each(|node| lab.signal(node, "-CONT"));
    let lines = || fs::read_to_string(&log).unwrap_or_default();
    super::within("both are logged", || lines().lines().count() >= 2);
    let (lines, has) = (lines(), |wanted: &str| lines().contains(wanted));
    assert!(has("\"GET /bad HTTP/1.1\" 400 ") && has("\"GET /none HTTP/1.1\" 503 "), "{lines}");
    assert!(!has("/small"), "its node logs that, where its site says so: {lines}");
}

/// Where the dispatcher of a lab keeps its flows' entries.
fn pinned_flows(lab: &Lab) -> PathBuf {
    let namespace = fs::metadata(format!("/run/netns/leat-lab-{}-dispatcher", lab.name)).expect("the lab is up");
    let mark = format!("leat-{}-", namespace.ino());
    let pins = fs::read_dir("/sys/fs/bpf").expect("a lab mounts it").flatten();
    let of_lab = pins.filter(|pins| pins.file_name().to_string_lossy().starts_with(&mark));
    let versions = of_lab.flat_map(|pins| fs::read_dir(pins.path()).expect("it's a directory").flatten());
    let flows = versions.map(|version| version.path().join("flows")).find(|path| path.exists());
    flows.expect("the dispatcher has pinned them")
}

#[test]
fn what_the_full_map_has_no_room_for_is_proxied_and_no_node_is_to_blame() {
    if !is_possible() {
        return;
    }
    if Command::new("bpftool").arg("version").output().is_err() {
        println!("skipped: bpftool makes a small map");
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("full"));
    let files = BTreeMap::from([("small".to_owned(), motion::content("small", 1_000))]);
    motion::up(&lab, &folder, Begun::AtNode, &files, "policy = 'round_robin'");
    lab.kill("dispatcher");
    super::within("it has ended", || lab.processes("dispatcher").is_empty());
    // What is pinned is used as it is.
    let pin = pinned_flows(&lab);
    fs::remove_file(&pin).expect("root may");
    let mut made = Command::new("bpftool");
    made.args(["map", "create"]).arg(&pin);
    let sizes = ["type", "hash", "key", "36", "value", "64", "entries", "4", "name", "flows", "flags", "1"];
    assert!(made.args(sizes).status().is_ok_and(|status| status.success()));
    let log = folder.path("again.log");
    let mut again = restart::start(&lab, &folder.path("cluster.toml"), &log);
    let said = || fs::read_to_string(&log).unwrap_or_default();
    super::within("all nodes are known", || said().matches("its link is up").count() == 3);
    let clients = lab.at("client1", || {
        let mut clients: Vec<_> = (0..40).map(|_| (motion::connect(), Vec::new())).collect();
        for (stream, rest) in &mut clients {
            motion::ask(stream, &["small"]);
            assert!(motion::read_reply(stream, rest).expect("a reply") == files["small"]);
        }
        clients
    });
    // Few entries are counted every four seconds.
    super::within("all four are counted", || lab.number("dispatcher", "leat_flow_entries") == 4);
    let nodes = motion::tell(&folder.path("leat.sock"), &["ctl", "nodes"]);
    assert_eq!(nodes.matches("may be chosen").count(), 3, "{nodes}{}", said());
    assert_eq!(said().matches("all 4 entries for flows are taken").count(), 1, "{}", said());
    drop(clients);
    lab.kill("dispatcher");
    again.wait().expect("it has been killed");
}
