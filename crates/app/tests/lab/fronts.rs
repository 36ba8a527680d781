//! Servers that aren't leat behind fronts: Debian's nginx, unmodified, at nodes whose packets come by a table. Says so and ends where there is none.

use std::fs;
use std::io::Read;
use std::time::{Duration, Instant};

use super::foreign::{Nginx, SIZES, content, get, has_nginx};
use super::motion::{connect, read_slowly, tell};
use super::spread::route_to;
use super::{Folder, Lab, is_possible, within};

const FRONTS: [&str; 2] = ["front1", "front2"];
const NODES: [&str; 3] = ["n1", "n2", "n3"];
const BIG: usize = 8 << 20;

/// Two fronts, and three nodes beside whose servers leat runs, of which none runs yet.
fn up(lab: &Lab, folder: &Folder) {
    for size in SIZES.into_iter().chain([BIG]) {
        fs::write(folder.path(&format!("site/{size}")), content(size)).expect("a file to serve");
    }
    let node = |number| {
        format!(
            "[[cluster.node]]\nname = 'n{number}'\naddress = ['10.77.0.1{number}', 'fd77::1{number}']\n\
             for = ['127.0.0.1:8080', '[::1]:8080']\n"
        )
    };
    let text = format!(
        "[admin]\nsocket = '{}'\n[cluster]\nspread = 'l4'\nvip = ['10.77.0.100:80', '[fd77::100]:80']\nreport_interval = '50ms'\n\
         dispatchers = ['10.77.0.1', '10.77.0.2', 'fd77::1', 'fd77::2']\nkey_file = 'cluster.key'\n\
         [cluster.health]\ninterval = '200ms'\ntimeout = '200ms'\nslow_start = '0s'\n{}",
        folder.path("leat.sock"),
        [1, 2, 3].map(node).concat()
    );
    fs::write(folder.path("cluster.toml"), text).expect("a configuration");
    lab.well(&["up", &folder.path("cluster.toml")]);
}

/// Whether all of these fronts give this node connections.
fn takes(folder: &Folder, fronts: &[&str], node: &str) -> bool {
    let line = format!("  {node}  may be chosen  ");
    fronts.iter().all(|front| tell(&folder.path(&format!("leat.sock.{front}")), &["ctl", "nodes"]).contains(&line))
}

#[test]
fn nginx_behind_fronts_sees_its_clients_and_nothing_that_comes_or_goes_cuts_its_connections() {
    if !is_possible() || !has_nginx() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("fronts"));
    up(&lab, &folder);
    let mut servers = ["n1", "n2"].map(|node| Nginx::start(&lab, &folder, node));
    within("both are found well", || ["n1", "n2"].iter().all(|node| takes(&folder, &FRONTS, node)));
    let get_all = |clients: &mut Vec<_>| {
        lab.at("client1", || {
            for (turn, stream) in clients.iter_mut().enumerate() {
                let size = SIZES[turn % SIZES.len()];
                assert!(get(stream, size, "").expect("a reply") == content(size), "client {turn}");
            }
        });
    };
    let mut clients = lab.at("client1", || (0..60).map(|_| connect()).collect::<Vec<_>>());
    get_all(&mut clients);
    assert_eq!(lab.curl("client1", &format!("http://[fd77::100]/{}", SIZES[1])), "200");
    let seen = servers.each_ref().map(Nginx::requests);
    assert!(seen.iter().all(|seen| seen.len() > 15), "{} and {} requests", seen[0].len(), seen[1].len());
    let is_clients = |client: &str| client == "198.18.0.1" || client.starts_with("2001:2:");
    assert!(seen.iter().flatten().all(|(client, ..)| is_clients(client)), "{seen:?}");
    let held = |node: &str| lab.number(node, "leat_flows");
    assert_eq!(held("n1") + held("n2"), 60, "leat counts them, though it has none");

    // The same port again and again, and each time nginx has closed first: its kernel remembers the last connection, which holds the next one up for no second.
    let began = Instant::now();
    lab.at("client1", || {
        for turn in 0..30 {
            let mut stream = super::born::begin(41_000);
            assert!(
                get(&mut stream, SIZES[0], "Connection: close\r\n").expect("a reply") == content(SIZES[0]),
                "{turn}"
            );
            assert_eq!(stream.read(&mut [0]).expect("an end, and no reset"), 0);
        }
    });
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());

    // A front dies, and a node is added: its server begins to listen beside a leat that has waited for it.
    let mut added = None;
    let outcomes = read_slowly(&lab, 8, &BIG.to_string(), &content(BIG), || {
        lab.kill("front1");
        lab.well(&["exec", "front1", "ip", "link", "set", "eth0", "down"]);
        route_to(&lab, &["10.77.0.2"]);
        added = Some(Nginx::start(&lab, &folder, "n3"));
        within("the third is found well", || takes(&folder, &["front2"], "n3"));
    });
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(true))), "{outcomes:?}");
    get_all(&mut clients);
    let passed_on = lab.numbers(NODES.map(|node| (node, 9180, "leat_packets_passed_on_total")));
    assert!(passed_on[2] > 0, "the new node has sent on what isn't its own: {passed_on:?}");
    // Where kernels remember no handshake, as under a flood of SYNs, connections begin all the same.
    NODES.iter().for_each(|node| drop(lab.well(&["exec", node, "sysctl", "-qw", "net.ipv4.tcp_syncookies=2"])));
    lab.at("client1", || (0..30).for_each(|_| clients.push(connect())));
    get_all(&mut clients);
    assert!(added.as_ref().is_some_and(|added| added.requests().len() > 3), "the new node has some of its own");

    // A server that dies is found dead, beside a leat that lives. What it had has ended, and nothing else.
    servers[0].kill();
    within("fronts know that it's down", || !takes(&folder, &["front2"], "n1"));
    lab.at("client1", || {
        clients.retain_mut(|stream| get(stream, SIZES[0], "").is_ok_and(|reply| reply == content(SIZES[0])));
    });
    // Fifty, give or take five, as hashes have it.
    assert!((25..90).contains(&clients.len()), "{} of 90 are left", clients.len());
    clients = lab.at("client1", || (0..40).map(|_| connect()).collect());
    get_all(&mut clients);
    servers[0] = Nginx::start(&lab, &folder, "n1");
    within("it's back", || takes(&folder, &["front2"], "n1"));
    get_all(&mut clients);
    // So is one that listens and says that it isn't well. It goes on with its connections, of which there are some by now.
    clients = lab.at("client1", || (0..40).map(|_| connect()).collect());
    get_all(&mut clients);
    let before = servers[0].requests().len();
    fs::write(folder.path("n1-ill"), "").expect("a file");
    within("fronts know that it isn't well", || !takes(&folder, &["front2"], "n1"));
    get_all(&mut clients);
    assert!(servers[0].requests().len() > before + 3);
    fs::remove_file(folder.path("n1-ill")).expect("it's there");
    within("it's back", || takes(&folder, &["front2"], "n1"));
    get_all(&mut clients);

    // A node that drains gets nothing new, and keeps what it has.
    clients = lab.at("client1", || (0..40).map(|_| connect()).collect());
    get_all(&mut clients);
    assert!(tell(&folder.path("leat.sock.front2"), &["ctl", "drain", "n2"]).contains("n2 is given nothing new"));
    let before = held("n2");
    assert!(before > 0);
    lab.at("client1", || (0..20).for_each(|_| clients.push(connect())));
    get_all(&mut clients);
    assert_eq!(held("n2"), before);
    // leat dies beside a server, and with it nothing: it gets new connections too.
    super::foreign::kill_leat(&lab, "n3");
    lab.at("client1", || (0..20).for_each(|_| clients.push(connect())));
    get_all(&mut clients);
    assert!(takes(&folder, &["front2"], "n3"));
    clients.clear();
    within("the node that drains is empty", || held("n2") == 0);

    // One is told itself: fronts see that it refuses them. It's empty when nothing more begins there and the last connection has ended.
    clients = lab.at("client1", || (0..20).map(|_| connect()).collect());
    get_all(&mut clients);
    assert!(held("n1") > 0);
    let socket = folder.path("leat.sock.n1");
    let text = std::thread::scope(|scope| {
        let drain = scope.spawn(|| tell(&socket, &["drain", "n1"]));
        within("fronts know that it refuses them", || !takes(&folder, &["front2"], "n1"));
        let before = servers[0].requests().len();
        get_all(&mut clients);
        assert!(servers[0].requests().len() > before, "it keeps what it has");
        assert!(!drain.is_finished(), "it isn't empty");
        clients.clear();
        drain.join().expect("it ends")
    });
    assert!(text.contains("n1 is given nothing new, and ") && text.contains("n1 is empty after "), "{text}");
    assert_eq!(held("n1"), 0);
    clients = lab.at("client1", || (0..20).map(|_| connect()).collect());
    get_all(&mut clients);
    assert_eq!(held("n1"), 0, "nothing begins there");
    assert!(tell(&socket, &["ctl", "resume", "n1"]).contains("n1 may be chosen again"));
    within("it's back", || takes(&folder, &["front2"], "n1"));
}

/// Where the kernel gives no packet to a listener that may share its address, that's said.
#[test]
fn a_server_that_this_kernel_gives_nothing_is_told_of() {
    if !is_possible() || !has_nginx() {
        return;
    }
    if leat_host::steering::gives_to_shared_listeners() {
        return println!("skipped: since Linux 6.6 such a server has its connections");
    }
    let (lab, folder) = (Lab::new(), Folder::new("shared"));
    up(&lab, &folder);
    let _server = Nginx::start_with(&lab, &folder, "n1", "reuseport");
    let log = || fs::read_to_string(format!("/run/leat-lab/{}/n1.log", lab.name)).unwrap_or_default();
    within("it's said", || log().contains("(nginx: `listen` without `reuseport`)"));
    assert!(!takes(&folder, &FRONTS, "n1"));
}
