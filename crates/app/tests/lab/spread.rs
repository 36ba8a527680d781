//! Fronts that spread connections over nodes by a table: whichever of them a packet comes to, and whatever comes or goes, it finds its connection.

use std::fs;

use super::motion::{ask, connect, content, read_reply, read_slowly, tell};
use super::{Folder, Lab, is_possible, within};

const NODES: [&str; 3] = ["n1", "n2", "n3"];

fn read(stream: &mut std::net::TcpStream, content: &[u8]) {
    ask(stream, &["small"]);
    assert_eq!(read_reply(stream, &mut Vec::new()).expect("a reply"), content);
}

/// As a routing protocol does when a front is gone.
fn route_to(lab: &Lab, fronts: &[&str]) {
    let hops: Vec<_> = fronts.iter().flat_map(|front| ["nexthop", "via", front]).collect();
    lab.well(&[&["exec", "router", "ip", "route", "replace", "10.77.0.100/32"], &hops[..]].concat());
}

#[test]
fn a_front_that_dies_and_nodes_that_come_and_go_cut_nothing() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("spread"));
    let (small, big) = (content("small", 1_000), content("big", 8 << 20));
    fs::write(folder.path("site/small"), &small).expect("a file to serve");
    fs::write(folder.path("site/big"), &big).expect("a file to serve");
    let node =
        |number| format!("[[cluster.node]]\nname = 'n{number}'\naddress = ['10.77.0.1{number}', 'fd77::1{number}']\n");
    let text = format!(
        "workers = 2\n[admin]\nsocket = '{}'\n[cluster]\nspread = 'l4'\nvip = ['10.77.0.100:80', '[fd77::100]:80']\n\
         dispatchers = ['10.77.0.1', '10.77.0.2', 'fd77::1', 'fd77::2']\nkey_file = 'cluster.key'\n\
         [cluster.health]\ninterval = '200ms'\ntimeout = '200ms'\n{}[[site]]\nroot = 'site'\nlisten = ['0.0.0.0:80', '[::]:80']\n",
        folder.path("leat.sock"),
        [1, 2, 3].map(node).concat()
    );
    fs::write(folder.path("cluster.toml"), text).expect("a configuration");
    lab.well(&["up", &folder.path("cluster.toml")]);
    let socket = |front: &str| folder.path(&format!("leat.sock.{front}"));
    let passed_on = || NODES.map(|node| lab.number(node, "leat_packets_passed_on_total")).iter().sum::<u64>();
    for front in ["front1", "front2"] {
        assert!(tell(&socket(front), &["ctl", "drain", "n3"]).contains("n3 is given nothing new"));
    }
    let mut clients = lab.at("client1", || {
        let mut clients: Vec<_> = (0..60).map(|_| connect()).collect();
        clients.iter_mut().for_each(|stream| read(stream, &small));
        clients
    });
    let accepted = |node: &str| {
        lab.number(node, "leat_connections{worker=\"0\"}") + lab.number(node, "leat_connections{worker=\"1\"}")
    };
    let at_first = NODES.map(accepted);
    assert!(at_first[0] >= 15 && at_first[1] >= 15 && at_first[2] < 5, "{at_first:?} of 60");
    assert_eq!(lab.curl("client", "http://[fd77::100]/small"), "200");
    let spread = ["front1", "front2"].map(|front| lab.number(front, "leat_packets_spread_total"));
    assert!(spread.iter().all(|packets| *packets > 50), "both have some: {spread:?}");

    let outcomes = read_slowly(&lab, 8, "big", &big, || {
        lab.kill("front1");
        lab.well(&["exec", "front1", "ip", "link", "set", "eth0", "down"]);
        route_to(&lab, &["10.77.0.2"]);
        // A node is added.
        tell(&socket("front2"), &["ctl", "resume", "n3"]);
    });
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(true))), "{outcomes:?}");
    let before = passed_on();
    lab.at("client1", || clients.iter_mut().for_each(|stream| read(stream, &small)));
    assert!(passed_on() > before, "the new node has sent on what isn't its own");
    // New ones find their node as well where it remembers no handshake, as under a flood of SYNs: what ends one names somebody, and is kept all the same.
    NODES.iter().for_each(|node| drop(lab.well(&["exec", node, "sysctl", "-qw", "net.ipv4.tcp_syncookies=2"])));
    lab.at("client1", || (0..30).for_each(|_| clients.push(connect())));
    lab.at("client1", || clients.iter_mut().for_each(|stream| read(stream, &small)));
    within("the new node has connections of its own", || accepted("n3") > 3);
    let listed = tell(&socket("front2"), &["ctl", "nodes"]);
    assert!(listed.contains("n3  may be chosen  weight 100, 33.3 % of new connections"), "{listed}");

    // Nothing has changed.
    lab.reload("front2");
    lab.at("client1", || clients.iter_mut().for_each(|stream| read(stream, &small)));
    // What is at a dead node is lost, and nothing else.
    lab.kill("n3");
    let left = |clients: &mut Vec<std::net::TcpStream>| {
        let is_well = |stream: &mut std::net::TcpStream| {
            ask(stream, &["small"]);
            read_reply(stream, &mut Vec::new()).is_ok()
        };
        clients.iter_mut().filter_map(|stream| is_well(stream).then_some(())).count()
    };
    let left = lab.at("client1", || left(&mut clients));
    assert!(left >= 60, "{left} of 90");
    // Each worker probes for itself, and the first one's word counts: so all must have seen it.
    within("new connections go to the others", || {
        let listed = tell(&socket("front2"), &["ctl", "nodes"]);
        listed.lines().any(|line| line.starts_with("  n3  ") && !line.contains("may be chosen"))
    });
    lab.at("client1", || (0..30).for_each(|_| read(&mut connect(), &small)));
    // A front whose process has died goes on with the table that it has.
    lab.kill("front2");
    lab.at("client1", || (0..30).for_each(|_| read(&mut connect(), &small)));
}
