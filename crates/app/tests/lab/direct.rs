//! Nodes whose own replies don't reach clients: they're found by a probe, or by what clients say, and proxied for as long as that is so. Nobody waits in vain.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::motion::{self, Begun};
use super::{Folder, Lab, is_possible, restart, within};

const VIPS: [&str; 2] = ["10.77.0.100:80", "[fd77::100]:80"];

/// Asks for a file on a connection of its own. How long the whole reply took.
fn ask(vip: &str, name: &str, content: &[u8]) -> Duration {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(vip).expect("the dispatcher listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time-out");
    motion::ask(&mut stream, &[name]);
    let reply = motion::read_reply(&mut stream, &mut Vec::new()).expect("a reply");
    assert!(reply == content, "{name} by {vip}");
    begun.elapsed()
}

/// Asks on a connection that the server is to close: then nobody can take it back.
fn begin_once(name: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(VIPS[0])?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(format!("GET /{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())?;
    Ok(stream)
}

/// The same, and awaits the answer.
fn ask_once(name: &str) -> std::io::Result<usize> {
    begin_once(name)?.read_to_end(&mut Vec::new())
}

/// As many at once as is said, each with a connection of its own. How long the slowest took.
fn ask_some(lab: &Lab, vip: &str, count: usize, (name, content): (&str, &[u8])) -> Duration {
    lab.at("client1", || {
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..count).map(|_| scope.spawn(|| ask(vip, name, content))).collect();
            clients.into_iter().map(|client| client.join().expect("it gets its reply")).max().unwrap_or_default()
        })
    })
}

fn given(lab: &Lab, node: &str) -> u64 {
    lab.number(node, "leat_births_total") + lab.number(node, "leat_handoffs_total")
}

#[test]
fn a_node_whose_probe_is_dropped_is_proxied_from_the_first_request_on() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("probed"));
    let small = motion::content("small", 1_000);
    fs::write(folder.path("site/small"), &small).expect("a file to serve");
    let file = folder.path("cluster.toml");
    let text = format!(
        "[admin]\nsocket = '{}'\n[cluster]\nvip = ['10.77.0.100:80', '[fd77::100]:80']\ndispatchers = ['10.77.0.1', 'fd77::1']\nkey_file = 'cluster.key'\n\
         policy = 'round_robin'\n[[cluster.node]]\nname = 'n1'\naddress = ['10.77.0.11', 'fd77::11']\n\
         [[cluster.node]]\nname = 'n2'\naddress = ['10.78.0.2', 'fd78::2']\nrouted = true\n\
         [[site]]\nroot = 'site'\nlisten = ['0.0.0.0:80', '[::]:80']\n",
        folder.path("leat.sock")
    );
    fs::write(&file, text).expect("a configuration");
    lab.well(&["up", &file]);
    // The router takes what comes from the VIP for forged where the VIP isn't; of IPv6 it has no such filter.
    let filter =
        |value: u8| lab.well(&["exec", "router", "sysctl", "-qw", &format!("net.ipv4.conf.eth1.rp_filter={value}")]);
    filter(1);
    lab.kill("dispatcher");
    within("it has ended", || lab.processes("dispatcher").is_empty());
    let log = folder.path("again.log");
    let mut again = restart::start(&lab, &file, &log);
    let said = || fs::read_to_string(&log).unwrap_or_default();
    within("both nodes are known", || said().matches("its link is up").count() == 2);
    assert_eq!(
        said().matches("node n2: requests of all IPv4 clients are proxied to it, as what it").count(),
        1,
        "{}",
        said()
    );
    let before = given(&lab, "n2");
    let slowest = ask_some(&lab, VIPS[0], 20, ("small", &small));
    assert_eq!(given(&lab, "n2"), before, "{}", said());
    assert_eq!(lab.number("dispatcher", "leat_flows_taken_back_total"), 0, "nobody had to wait: {slowest:?}");
    ask_some(&lab, VIPS[1], 20, ("small", &small));
    assert!(given(&lab, "n2") > before, "that of IPv6 arrives");
    let nodes = motion::tell(&folder.path("leat.sock"), &["ctl", "nodes"]);
    assert!(nodes.contains("may be chosen, proxied for all IPv4 clients: what it sends under the VIP"), "{nodes}");
    filter(0);
    within("it's tried again", || {
        said().contains("node n2: connections of all IPv4 clients are handed over to it again")
    });
    let before = given(&lab, "n2");
    ask_some(&lab, VIPS[0], 20, ("small", &small));
    assert!(given(&lab, "n2") > before, "{}", said());
    let warnings = said().matches("are proxied to it").count();
    assert_eq!(warnings, 1, "{}", said());
    lab.kill("dispatcher");
    again.wait().expect("it has been killed");
}

#[test]
fn clients_that_hear_nothing_of_their_node_are_answered_all_the_same() {
    hears_nothing(Begun::AtNode);
}

#[test]
fn clients_that_hear_nothing_of_the_node_that_they_were_moved_to_are_answered_all_the_same() {
    hears_nothing(Begun::AtDispatcher);
}

/// What has the clients' router drop all that a node says under the VIP.
fn mute(lab: &Lab, node: &str) -> String {
    let link = lab.well(&["exec", node, "ip", "-o", "link", "show", "eth0"]);
    let hardware = link.split_once("link/ether ").and_then(|(_, rest)| rest.split_whitespace().next());
    format!(
        "add table ip test\nadd chain ip test forward {{ type filter hook forward priority 0; }}\n\
         add rule ip test forward ether saddr {} ip saddr 10.77.0.100 drop\n",
        hardware.expect("it has an address")
    )
}

fn hears_nothing(begun: Begun) {
    if !is_possible() {
        return;
    }
    if Command::new("nft").arg("--version").output().is_err() {
        println!("skipped: nft drops what a node says");
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("unheard"));
    let files = [("small", 1_000), ("large", 100_000), ("huge", 8 << 20)];
    let files: BTreeMap<String, Vec<u8>> =
        files.iter().map(|(name, length)| ((*name).to_owned(), motion::content(name, *length))).collect();
    motion::up(&lab, &folder, begun, &files, "policy = 'round_robin'");
    let said =
        || fs::read_to_string(Path::new("/run/leat-lab").join(&lab.name).join("dispatcher.log")).unwrap_or_default();
    within("all nodes are known", || said().matches("its link is up").count() == 3);
    let content = |name: &'static str| (name, files[name].as_slice());
    // Beyond what a probe sees: only the clients' router drops what n1 says under the VIP.
    let drop = mute(&lab, "n1");
    let is_dropped = |is_dropped: bool| {
        lab.well(&["exec", "router", "nft", if is_dropped { &drop } else { "delete table ip test" }]);
    };
    is_dropped(true);
    let slowest = ["small", "large", "huge"].map(|name| ask_some(&lab, VIPS[0], 6, content(name)));
    assert!(slowest.iter().all(|time| *time < Duration::from_secs(5)), "{slowest:?}");
    let warning = "node n1: requests of clients in 198.18.0.0/24 are proxied to it, as clients hear nothing of it";
    assert_eq!(said().matches(warning).count(), 1, "{}", said());
    assert!(lab.number("dispatcher", "leat_flows_taken_back_total") >= 2, "{}", said());
    let nodes = motion::tell(&folder.path("leat.sock"), &["ctl", "nodes"]);
    assert!(nodes.contains("may be chosen, proxied for clients in 198.18.0.0/24: clients hear nothing"), "{nodes}");
    let again = "node n1: connections of clients in 198.18.0.0/24 are handed over to it again";
    let is_tried = |times| {
        is_dropped(false);
        within("one is tried", || {
            ask_some(&lab, VIPS[0], 3, content("small"));
            said().matches(again).count() == times
        });
    };
    is_tried(1);
    let before = given(&lab, "n1");
    ask_some(&lab, VIPS[0], 12, content("small"));
    assert!(given(&lab, "n1") > before, "{}", said());
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0, "{}", said());
    assert_eq!(said().matches(warning).count(), 1, "{}", said());
    // What the server has closed can't come back. Nobody waits for it.
    is_dropped(true);
    let before = given(&lab, "n1");
    let ask_all =
        || lab.at("client1", || (0..60).map(|_| std::thread::spawn(|| ask_once("small"))).collect::<Vec<_>>());
    let outcomes: Vec<_> = ask_all().into_iter().map(|client| client.join().expect("it ends")).collect();
    let kinds: Vec<_> =
        outcomes.iter().filter_map(|outcome| outcome.as_ref().err().map(std::io::Error::kind)).collect();
    assert!(kinds.iter().all(|kind| *kind == ErrorKind::ConnectionReset), "{kinds:?}");
    let given = given(&lab, "n1") - before;
    assert!((1..=24).contains(&given), "about a third, as turns are chosen in advance: {given}");
    assert!(kinds.len() as u64 <= given, "only those of n1, which had {given}: {kinds:?}");
    is_tried(2);
}

#[test]
fn a_kept_connection_that_moves_to_a_node_that_is_not_heard_is_answered_all_the_same() {
    if !is_possible() {
        return;
    }
    if Command::new("nft").arg("--version").output().is_err() {
        println!("skipped: nft drops what a node says");
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("moves"));
    let names: Vec<String> = (0..12).map(|number| format!("f{number}")).collect();
    let files: BTreeMap<String, Vec<u8>> =
        names.iter().map(|name| (name.clone(), motion::content(name, 1 << 20))).collect();
    motion::up(&lab, &folder, Begun::AtNode, &files, "policy = 'consistent_hash'");
    names.iter().for_each(|name| motion::await_tags(&lab, name));
    let read = |(stream, rest): &mut (TcpStream, Vec<u8>), name: &String| {
        motion::ask(stream, &[name]);
        assert!(motion::read_reply(stream, rest).expect("a reply") == files[name], "{name}");
    };
    let begin = |name: &String| {
        let mut client = (motion::connect(), Vec::new());
        read(&mut client, name);
        client
    };
    // None of them is at n1, which then gets what belongs there.
    let tell = |words: &[&str]| motion::tell(&folder.path("leat.sock"), words);
    tell(&["drain", "n1", "--timeout", "20"]);
    let mut clients: Vec<_> = lab.at("client1", || names.iter().map(begin).collect());
    tell(&["ctl", "resume", "n1"]);
    lab.well(&["exec", "router", "nft", &mute(&lab, "n1")]);
    let before = given(&lab, "n1");
    lab.at("client1", || {
        std::thread::scope(|scope| {
            for (turn, client) in clients.iter_mut().enumerate() {
                let (names, read) = (&names, &read);
                scope
                    .spawn(move || (0..names.len()).for_each(|step| read(client, &names[(turn + step) % names.len()])));
            }
        });
    });
    assert!(given(&lab, "n1") > before, "some have moved to it");
}

/// Whoever finds no room at a node says the same again, as one who hears nothing does. Few are sent where some find none, and what that node can't take is no fault
/// of its.
#[test]
fn who_finds_no_room_at_a_node_is_not_taken_for_one_who_hears_nothing() {
    const CLIENTS: usize = 3_000;
    const OF_SITE: &str = "[[site.handler]]\npath = '/burn'\nburn = { us = 10000 }\n";
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("no-room"));
    motion::up_with(&lab, &folder, Begun::AtNode, &BTreeMap::new(), ["policy = 'round_robin'", OF_SITE]);
    let number = |name| lab.number("dispatcher", name);
    lab.at("client1", || {
        let begin = || begin_once("burn").and_then(|client| client.set_nonblocking(true).map(|()| client));
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| begin().expect("the dispatcher answers")).collect();
        within("many have found no room", || {
            for client in &mut clients {
                let read = client.read_to_end(&mut Vec::new());
                if !read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                    *client = begin().expect("the dispatcher answers");
                }
            }
            number("leat_births_put_off_total") > 20_000
        });
    });
    let nodes = motion::tell(&folder.path("leat.sock"), &["ctl", "nodes"]);
    assert_eq!(nodes.matches("may be chosen  load").count(), 3, "{nodes}");
    let said = |host| {
        fs::read_to_string(Path::new("/run/leat-lab").join(&lab.name).join(format!("{host}.log"))).expect("its log")
    };
    assert!(!said("dispatcher").contains("clients hear nothing"), "{}", said("dispatcher"));
    assert_eq!(
        (number("leat_flows_taken_back_total"), number("leat_flows_cut_total")),
        (0, 0),
        "{}",
        said("dispatcher")
    );
    let mut dropped = 0;
    for node in ["n1", "n2", "n3"] {
        dropped += lab.number(node, "leat_knocks_dropped_total");
        // A late copy of a connection's first packet has made a socket there that waits to be accepted.
        assert!(!said(node).contains("Cannot assign requested address"), "{}", said(node));
    }
    assert!(dropped > 0, "nodes had room for all");
}
