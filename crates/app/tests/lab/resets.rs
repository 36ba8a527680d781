//! Clients whose connections are cut hear so, though a reset is lost, or is from before what they have got. One that only waits says nothing by itself.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;

use super::motion::{self, Begun};
use super::{Folder, Lab, is_possible, within};

/// What has the clients' router drop the first reset to each of their ports.
const FIRST_RESETS: &str = "add table ip test\nadd set ip test told { type inet_service; size 65535; flags dynamic; }\n\
     add chain ip test forward { type filter hook forward priority 0; }\n\
     add rule ip test forward ip saddr 10.77.0.100 tcp flags & rst == rst tcp dport != @told add @told { tcp dport } drop\n";

/// What has it drop all that they acknowledge with nothing else to say.
const ACKNOWLEDGEMENTS: &str = "add table ip test\nadd chain ip test forward { type filter hook forward priority 0; }\n\
     add rule ip test forward ip daddr 10.77.0.100 tcp flags & (syn | fin | rst | psh | ack) == ack drop\n";

/// A lab, if there can be one in which packets are dropped.
fn lab(name: &str, begun: Begun) -> Option<(Lab, Folder, Vec<u8>)> {
    if !is_possible() {
        return None;
    }
    if Command::new("nft").arg("--version").output().is_err() {
        println!("skipped: nft drops resets");
        return None;
    }
    let (lab, folder, small) = (Lab::new(), Folder::new(name), motion::content("small", 100));
    let files = BTreeMap::from([("small".to_owned(), small.clone())]);
    motion::up(&lab, &folder, begun, &files, "policy = 'round_robin'");
    Some((lab, folder, small))
}

fn drops(lab: &Lab, what: &str) {
    lab.well(&["exec", "router", "nft", what]);
}

/// How many of them are told that they're cut; the others have something to read.
fn told(clients: &mut [TcpStream]) -> usize {
    let mut count = 0;
    for stream in clients {
        match stream.read(&mut [0; 4_096]) {
            Ok(bytes) => assert!(bytes > 0, "an end that says that all is well"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
                count += 1;
            }
        }
    }
    count
}

#[test]
fn who_is_cut_at_home_hears_so_though_the_reset_is_lost() {
    let Some((lab, _folder, _)) = lab("lost", Begun::AtDispatcher) else { return };
    let mut clients: Vec<_> = lab.at("client1", || (0..24).map(|_| motion::connect()).collect());
    // Who said what it has would be told by an answer.
    [FIRST_RESETS, ACKNOWLEDGEMENTS].iter().for_each(|what| drops(&lab, what));
    lab.stop("n1");
    // Nobody knows whether it was done there.
    for stream in &mut clients {
        stream.write_all(b"POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").expect("it's open");
    }
    let count = told(&mut clients);
    assert!(count > 0, "some were for n1");
    assert!(lab.number("dispatcher", "leat_flows_cut_total") >= count as u64);
}

#[test]
fn who_is_cut_at_a_node_hears_so_though_the_reset_is_lost() {
    let Some((lab, _folder, small)) = lab("lost", Begun::AtNode) else { return };
    let mut clients: Vec<_> = lab.at("client1", || (0..24).map(|_| motion::connect()).collect());
    for stream in &mut clients {
        motion::ask(stream, &["small"]);
        assert!(motion::read_reply(stream, &mut Vec::new()).expect("a reply") == small);
    }
    let rests = || lab.total(["n1", "n2", "n3"], "leat_rests_told_total");
    within("they rest", || rests() >= 24);
    [FIRST_RESETS, ACKNOWLEDGEMENTS].iter().for_each(|what| drops(&lab, what));
    lab.stop("n1");
    // It may have been done there, so nobody else does it, and whether its client has anything of an answer isn't known.
    for stream in &mut clients {
        stream.write_all(b"POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").expect("it's open");
    }
    let queues = || lab.well(&["exec", "client1", "ss", "-Htn", "dst", "10.77.0.100"]);
    let is_acknowledged = |line: &str| line.split_whitespace().nth(2) == Some("0");
    within("their kernels have all acknowledged", || queues().lines().all(is_acknowledged));
    // It isn't sent again then: another node waits for it in vain.
    lab.kill("n1");
    let count = told(&mut clients);
    assert!(count > 0, "some were at n1");
    let ends = ["leat_flows_cut_total", "leat_flows_recovered_total"];
    assert_eq!(ends.map(|name| lab.number("dispatcher", name)), [count as u64, 0], "cut, whoever did that at last");
}

#[test]
fn who_resets_while_nobody_hears_it_is_kept_nowhere() {
    if !is_possible() {
        return;
    }
    let (lab, folder, small) = (Lab::new(), Folder::new("unheard"), motion::content("small", 100));
    let files = BTreeMap::from([("small".to_owned(), small.clone())]);
    motion::up(&lab, &folder, Begun::AtNode, &files, "policy = 'round_robin'");
    let clients: Vec<_> = lab.at("client1", || {
        let one = || {
            let mut stream = motion::connect();
            motion::ask(&mut stream, &["small"]);
            assert!(motion::read_reply(&mut stream, &mut Vec::new()).expect("a reply") == small);
            stream
        };
        (0..24).map(|_| one()).collect()
    });
    let rests = || lab.total(["n1", "n2", "n3"], "leat_rests_told_total");
    within("they rest", || rests() >= 24);
    assert!(super::foreign::held(&folder, "n1") > 0, "some are at n1");
    // A node that can't be reached: what is sent there is lost, and its connections are about to go on elsewhere.
    lab.well(&["exec", "n1", "ip", "link", "set", "eth0", "down"]);
    for stream in clients {
        rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO)).expect("it's a socket");
    }
    let nodes = || motion::tell(&folder.path("leat.sock"), &["ctl", "nodes"]);
    within("its lease is over", || nodes().contains("the link to it is lost"));
    within("nobody has them", || lab.number("dispatcher", "leat_flows") == 0);
    assert_eq!(["n2", "n3"].map(|node| lab.number(node, "leat_flows")), [0, 0]);
    assert_eq!(lab.number("dispatcher", "leat_flows_recovered_total"), 0);
}

#[test]
fn who_is_cut_hears_so_though_it_has_got_more_than_it_was_heard_to_say() {
    let Some((lab, folder, small)) = lab("more", Begun::AtNode) else { return };
    for node in ["n2", "n3"] {
        motion::tell(&folder.path("leat.sock"), &["drain", node, "--timeout", "20"]);
    }
    drops(&lab, ACKNOWLEDGEMENTS);
    let mut clients: Vec<_> = lab.at("client1", || (0..6).map(|_| motion::connect()).collect());
    // Twice: a first request of which the node hasn't told anything would be answered by another.
    for _ in 0..2 {
        for stream in &mut clients {
            motion::ask(stream, &["small"]);
            assert!(motion::read_reply(stream, &mut Vec::new()).expect("a reply") == small);
        }
    }
    lab.kill("n1");
    within("they are cut", || lab.number("dispatcher", "leat_flows_cut_total") == 6);
    drops(&lab, "delete table ip test");
    assert_eq!(told(&mut clients), 6);
}

#[test]
fn who_resets_right_behind_a_request_leaves_nothing() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("behind"));
    let files = BTreeMap::from([("small".to_owned(), motion::content("small", 3_000))]);
    motion::up(&lab, &folder, Begun::AtNode, &files, "policy = 'round_robin'");
    lab.at("client1", || {
        for _ in 0..50 {
            let mut stream = motion::connect();
            motion::ask(&mut stream, &["small"]);
            rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO)).expect("it's a socket");
        }
    });
    within("nobody has them", || lab.number("dispatcher", "leat_flows") == 0);
    // Who counts this one has looked at theirs.
    let mut kept = lab.at("client1", motion::connect);
    motion::ask(&mut kept, &["small"]);
    motion::read_reply(&mut kept, &mut Vec::new()).expect("a reply");
    within("no other entry is left", || lab.number("dispatcher", "leat_flow_entries") == 1);
}
