//! Fronts that spread connections over nodes by a table: whichever of them a packet comes to, and whatever comes or goes, it finds its connection.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::motion::{ask, connect, content, read_reply, read_slowly, tell};
use super::{Folder, Lab, is_possible, restart, within};

const NODES: [&str; 3] = ["n1", "n2", "n3"];

fn read(stream: &mut TcpStream, content: &[u8]) {
    read_file(stream, "small", content);
}

fn read_file(stream: &mut TcpStream, name: &str, content: &[u8]) {
    ask(stream, &[name]);
    assert!(read_reply(stream, &mut Vec::new()).expect("a reply") == content, "{name} is as it should be");
}

/// Two fronts and three nodes.
pub(super) fn up(lab: &Lab, folder: &Folder, settings: &str) {
    up_with(lab, folder, settings, [""; 3]);
}

/// The same, with settings of each node's own.
fn up_with(lab: &Lab, folder: &Folder, settings: &str, of_nodes: [&str; 3]) {
    let node = |(number, own): (usize, &str)| {
        format!("[[cluster.node]]\nname = 'n{number}'\naddress = ['10.77.0.1{number}', 'fd77::1{number}']\n{own}\n")
    };
    let nodes: String = (1..).zip(of_nodes).map(node).collect();
    let text = format!(
        "workers = 2\n[limits]\nhead_timeout = '2m'\n[admin]\nsocket = '{}'\n[cluster]\nspread = 'l4'\nvip = ['10.77.0.100:80', '[fd77::100]:80']\n\
         dispatchers = ['10.77.0.1', '10.77.0.2', 'fd77::1', 'fd77::2']\nkey_file = 'cluster.key'\n{settings}\n\
         [cluster.health]\ninterval = '200ms'\ntimeout = '200ms'\n{nodes}[[site]]\nroot = 'site'\nlisten = ['0.0.0.0:80', '[::]:80']\n",
        folder.path("leat.sock"),
    );
    fs::write(folder.path("cluster.toml"), text).expect("a configuration");
    lab.well(&["up", &folder.path("cluster.toml")]);
}

const BY_CONTENT: &str = "policy = 'consistent_hash'\nload_bound_percent = 10000";

/// Whether who listens at a control socket may choose each of the nodes.
fn knows_all(socket: &str) -> bool {
    let listed = tell(socket, &["ctl", "nodes"]);
    listed.lines().filter(|line| line.contains("  may be chosen  ")).count() == NODES.len()
}

/// Has a new process take over at a node, and waits until the old one has ended: it does when it has nothing any more.
pub(super) fn upgrade(lab: &Lab, node: &str) {
    let processes = || -> BTreeSet<u32> { lab.processes(node).split_whitespace().flat_map(str::parse).collect() };
    let before = processes();
    lab.tell_supervisor(node, "-USR2");
    within("only the supervisor is who it was, and has a new engine", || {
        let now = processes();
        now.len() == 2 && now.intersection(&before).count() == 1
    });
}

/// As a routing protocol does when a front is gone.
pub(super) fn route_to(lab: &Lab, fronts: &[&str]) {
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
    up(&lab, &folder, "");
    let socket = |front: &str| control_of(&folder, front);
    let passed_on = || lab.total(NODES, "leat_packets_passed_on_total");
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
    let spread = lab.numbers(["front1", "front2"].map(|front| (front, 9180, "leat_packets_spread_total")));
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
    let left = |clients: &mut Vec<TcpStream>| {
        let is_well = |stream: &mut TcpStream| {
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

#[test]
fn a_front_that_is_stopped_spreads_nothing_afterwards_and_goes_on_from_its_table_when_it_is_started_again() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("spreadstop"));
    let small = content("small", 1_000);
    fs::write(folder.path("site/small"), &small).expect("a file to serve");
    up(&lab, &folder, "");
    route_to(&lab, &["10.77.0.2"]);
    let get = || lab.curl("client1", "http://10.77.0.100/small");
    within("connections are spread", || get() == "200");
    let mut clients: Vec<_> = lab.at("client1", || (0..20).map(|_| connect()).collect());
    let mut read_all = || lab.at("client1", || clients.iter_mut().for_each(|stream| read(stream, &small)));
    read_all();
    // Who takes over goes on with it.
    upgrade(&lab, "front2");
    read_all();
    lab.tell_supervisor("front2", "-TERM");
    read_all();
    assert_eq!(get(), "200", "routers have a while to see it");
    within("it ends", || lab.processes("front2").is_empty());
    let command = ["exec", "client1", "curl", "-s", "-m", "1", "-o", "/dev/null", "http://10.77.0.100/small"];
    assert!(!lab.leat(&command).status.success(), "nobody spreads them any more");
    let mut again = restart::start_at(&lab, "front2", &folder.path("cluster.toml"), &folder.path("again.log"));
    within("it does again", || get() == "200");
    read_all();
    // One that dies leaves them to its table.
    lab.kill("front2");
    again.wait().expect("it has been killed");
    read_all();
    assert_eq!(get(), "200");
}

#[test]
fn nodes_choose_by_content_and_no_connection_depends_on_the_node_it_came_to() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("spreadcontent"));
    let names: Vec<String> = (0..12).map(|number| format!("f{number}")).collect();
    let files: Vec<_> = names.iter().map(|name| content(name, 200_000)).collect();
    for (name, file) in names.iter().zip(&files) {
        fs::write(folder.path(&format!("site/{name}")), file).expect("a file to serve");
    }
    let big = content("big", 8 << 20);
    fs::write(folder.path("site/big"), &big).expect("a file to serve");
    up(&lab, &folder, BY_CONTENT);
    let socket = |host: &str| control_of(&folder, host);
    NODES.iter().for_each(|node| within("nodes have their links", || knows_all(&socket(node))));
    let total = |name| lab.total(NODES, name);

    // Whichever node a connection comes to, its request is served where its content is.
    let mut clients = lab.at("client1", || {
        let mut clients: Vec<_> = (0..60).map(|_| connect()).collect();
        for (number, stream) in clients.iter_mut().enumerate() {
            read_file(stream, &names[number % 12], &files[number % 12]);
        }
        clients
    });
    assert_eq!(lab.curl("client", "http://[fd77::100]/f1"), "200");
    let moved = total("leat_handoffs_total");
    assert!(
        (25..=61).contains(&moved),
        "two of three come to another node than their content's: {moved} of 61 were moved"
    );
    let misses = total("leat_cache_misses_total");
    assert!(misses <= 2 * 12 + 3, "each file is at one node, in the memory of its two workers, not {misses} reads");
    // The fronts send their packets there without a detour.
    let followed = |front| lab.number(front, "leat_flow_entries");
    within("both fronts know", || followed("front1") >= 20 && followed("front1") == followed("front2"));

    // The next ones may go elsewhere, and back.
    lab.at("client1", || {
        for round in 1..4 {
            for (number, stream) in clients.iter_mut().enumerate() {
                let file = (number * 5 + round) % 12;
                read_file(stream, &names[file], &files[file]);
            }
        }
    });

    // A node drains: what is at it moves, replies under way too, and it's empty.
    let outcomes = read_slowly(&lab, 8, "big", &big, || {
        let said = tell(&socket("n1"), &["drain", "n1", "--timeout", "15"]);
        assert!(said.contains("n1 is empty after"), "{said}");
    });
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(true))), "{outcomes:?}");
    // It dies, and whoever came to it first and lives elsewhere doesn't notice.
    lab.kill("n1");
    lab.at("client1", || {
        for (number, stream) in clients.iter_mut().enumerate() {
            read_file(stream, &names[number % 12], &files[number % 12]);
        }
    });

    // Without a word, now: only what lived at n2 is lost.
    let at = |node: &str| {
        lab.number(node, "leat_connections{worker=\"0\"}") + lab.number(node, "leat_connections{worker=\"1\"}")
    };
    let at_n3 = at("n3") as usize;
    lab.kill("n2");
    let left = lab.at("client1", || {
        let is_well = |stream: &mut TcpStream| {
            ask(stream, &["f1"]);
            read_reply(stream, &mut Vec::new()).is_ok()
        };
        clients.iter_mut().filter_map(|stream| is_well(stream).then_some(())).count()
    });
    assert!(left > 10 && left + 4 >= at_n3.min(60), "{left} are left, {at_n3} were at n3");
}

#[test]
fn a_far_client_gets_as_much_at_once_from_the_node_that_its_connection_moves_to() {
    if !is_possible() {
        return;
    }
    const ROUND_TRIP: Duration = Duration::from_millis(50);
    let (lab, folder) = (Lab::new(), Folder::new("spreadfar"));
    let names: Vec<String> = (0..12).map(|number| format!("f{number}")).collect();
    // By a new connection's window they take four round trips.
    let files: Vec<_> = names.iter().map(|name| content(name, 200_000)).collect();
    for (name, file) in names.iter().zip(&files) {
        fs::write(folder.path(&format!("site/{name}")), file).expect("a file to serve");
    }
    up_with(&lab, &folder, BY_CONTENT, ["", "", "[lab]\nclient_delay = '25ms'"]);
    NODES.iter().for_each(|node| within("nodes have their links", || knows_all(&control_of(&folder, node))));
    let times = lab.at("client1", || {
        let mut stream = connect();
        let time = |place: usize| {
            let begin = Instant::now();
            read_file(&mut stream, &names[place % 12], &files[place % 12]);
            begin.elapsed()
        };
        (0..48).map(time).collect::<Vec<_>>()
    });
    let moved = lab.total(NODES, "leat_handoffs_total");
    assert!(moved >= 20, "{moved} of 48 requests moved it");
    let sooner = times[12..].iter().filter(|time| **time < ROUND_TRIP * 5 / 2).count();
    assert!(sooner >= 27, "{sooner} of 36 came within two and a half round trips: {times:?}, {moved} moved");
}

/// Nodes that choose by content, linked with each other, and the names of a dozen files of theirs.
fn with_small_files(name: &str) -> (Lab, Folder, Vec<String>) {
    let (lab, folder) = (Lab::new(), Folder::new(name));
    let names: Vec<String> = (0..12).map(|number| format!("f{number}")).collect();
    for name in &names {
        fs::write(folder.path(&format!("site/{name}")), content(name, 1_000)).expect("a file to serve");
    }
    up(&lab, &folder, BY_CONTENT);
    NODES.iter().for_each(|node| within("nodes have their links", || knows_all(&control_of(&folder, node))));
    (lab, folder, names)
}

/// A host's control socket.
fn control_of(folder: &Folder, host: &str) -> String {
    folder.path(&format!("leat.sock.{host}"))
}

/// What becomes of connections of one request each, until `is_over`: replies, and those that hear nothing for a while.
fn ask_until(is_over: &AtomicBool, names: &[String]) -> (usize, usize) {
    let (mut answered, mut left_alone) = (0, 0);
    for number in 0..20_000 {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        // A node that has just gone refuses them, or resets them.
        let Ok(mut stream) = TcpStream::connect("10.77.0.100:80") else { continue };
        stream.set_read_timeout(Some(Duration::from_secs(4))).expect("a time-out");
        let name = &names[number * 5 % names.len()];
        let mut reply = Vec::new();
        let asked = write!(stream, "GET /{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        match asked.and_then(|()| stream.read_to_end(&mut reply)) {
            Ok(_) if reply.starts_with(b"HTTP/1.1 200 ") => answered += 1,
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => left_alone += 1,
            _ => {}
        }
    }
    (answered, left_alone)
}

#[test]
fn a_node_that_is_stopped_while_others_hand_on_to_it_leaves_nobody_without_an_answer() {
    if !is_possible() {
        return;
    }
    let (lab, _folder, names) = with_small_files("spreadstop");
    for node in ["n2", "n3"] {
        let is_over = AtomicBool::new(false);
        let (answered, left_alone) = std::thread::scope(|scope| {
            let clients: Vec<_> =
                (0..12).map(|_| scope.spawn(|| lab.at("client1", || ask_until(&is_over, &names)))).collect();
            // All of them are in the middle of asking, and go on until it has ended.
            std::thread::sleep(Duration::from_secs(1));
            lab.tell_supervisor(node, "-TERM");
            within("it ends", || lab.processes(node).trim().is_empty());
            is_over.store(true, Ordering::Relaxed);
            let counts = clients.into_iter().map(|client| client.join().expect("it ends well"));
            counts.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
        });
        assert!(answered > 50, "{answered} when {node} was stopped");
        assert_eq!(left_alone, 0, "beside {answered} that had a reply when {node} was stopped");
    }
}

#[test]
fn who_is_on_the_way_to_a_node_that_dies_hears_so() {
    if !is_possible() {
        return;
    }
    let (lab, folder, names) = with_small_files("spreadlost");
    // It takes nothing and refuses nothing.
    lab.stop("n2");
    let mut clients = lab.at("client1", || {
        let asked = |name: &String| {
            let mut stream = connect();
            ask(&mut stream, &[name]);
            stream
        };
        names.iter().cycle().take(60).map(asked).collect::<Vec<_>>()
    });
    let others = ["n1", "n3"];
    within("the others give it up", || others.iter().all(|node| !knows_all(&control_of(&folder, node))));
    lab.tell_supervisor("n2", "-CONT");
    lab.kill_engine("n2");
    let is_reset = |stream: &mut TcpStream| match read_reply(stream, &mut Vec::new()) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
            true
        }
    };
    let reset = lab.at("client1", || clients.iter_mut().filter_map(|stream| is_reset(stream).then_some(())).count());
    assert_eq!(reset as u64, lab.total(others, "leat_flows_cut_total"), "all that had been offered, and nobody else");
    assert!(reset > 0, "a third of what comes to the others belongs there");
}

#[test]
fn nodes_that_choose_by_content_serve_only_what_they_are_said_to() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("spreadserves"));
    for name in ["a", "b"] {
        fs::create_dir(folder.path(&format!("site/{name}"))).expect("a folder to serve");
        fs::write(folder.path(&format!("site/{name}/x")), content(name, 1_000)).expect("a file to serve");
    }
    let of_nodes = ["paths = '/a/*'", "paths = '/b/*'", "paths = '/b/*'"];
    up_with(&lab, &folder, BY_CONTENT, of_nodes);
    let socket = |host: &str| control_of(&folder, host);
    NODES.iter().for_each(|node| within("nodes have their links", || knows_all(&socket(node))));
    let [hits, misses] =
        ["leat_cache_hits_total", "leat_cache_misses_total"].map(|name| NODES.map(|node| (node, 9180, name)));
    let all_served = || {
        let (hits, misses) = (lab.numbers(hits), lab.numbers(misses));
        [0, 1, 2].map(|node| hits[node] + misses[node])
    };

    let mut clients = lab.at("client1", || (0..30).map(|_| connect()).collect::<Vec<_>>());
    let mut read_all = |name: &str| {
        let before = all_served();
        lab.at("client1", || {
            for stream in &mut clients {
                read_file(stream, &format!("{name}/x"), &content(name, 1_000));
            }
        });
        let after = all_served();
        [0, 1, 2].map(|node| after[node] - before[node])
    };
    for _ in 0..3 {
        let [n1, n2, n3] = read_all("a");
        assert!(n1 >= 20 && n2 + n3 == 0, "only n1 serves /a/*: {n1}, {n2}, {n3}");
        let [n1, n2, n3] = read_all("b");
        assert!(n1 == 0 && n2 + n3 >= 20, "n1 serves no /b/*: {n1}, {n2}, {n3}");
    }
    // What is at rest may be at any node.
    let said = tell(&socket("n2"), &["drain", "n2", "--timeout", "15"]);
    assert!(said.contains("n2 is empty after"), "{said}");
    assert_eq!(read_all("b")[1], 0);
}

#[test]
fn fronts_and_nodes_take_up_a_node_that_a_reload_adds_or_removes() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("spreadreload"));
    let small = content("small", 1_000);
    fs::write(folder.path("site/small"), &small).expect("a file to serve");
    up(&lab, &folder, BY_CONTENT);
    let path = folder.path("cluster.toml");
    let whole = fs::read_to_string(&path).expect("it's there");
    let third = whole.find("[[cluster.node]]\nname = 'n3'").expect("it's there");
    let without = format!("{}{}", &whole[..third], &whole[whole.find("[[site]]").expect("it's there")..]);
    let others = ["front1", "front2", "n1", "n2"];
    let all_say = |what: &str| {
        let say = |host: &&str| tell(&control_of(&folder, host), &["ctl", "nodes"]).contains(what);
        within(what, || others.iter().all(&say));
    };
    all_say("  n3  may be chosen");
    let mut clients: Vec<TcpStream> = lab.at("client1", || (0..30).map(|_| connect()).collect());
    for (text, said) in [(without, "  n3  draining"), (whole, "  n3  may be chosen")] {
        fs::write(&path, text).expect("a configuration");
        others.iter().for_each(|host| lab.reload(host));
        all_say(said);
        lab.at("client1", || {
            (0..10).for_each(|_| clients.push(connect()));
            clients.iter_mut().for_each(|stream| read(stream, &small));
        });
    }
}

#[test]
fn connections_pass_to_the_next_process_of_a_node_that_spreads_nothing_further() {
    upgrades_cut_nothing("spreadupgrade", "");
}

#[test]
fn connections_pass_to_the_next_process_of_a_node_wherever_they_have_come_from() {
    upgrades_cut_nothing("contentupgrade", BY_CONTENT);
}

fn upgrades_cut_nothing(name: &str, settings: &str) {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new(name));
    let chooses = !settings.is_empty();
    let names: Vec<String> = (0..12).map(|number| format!("f{number}")).collect();
    let files: Vec<_> = names.iter().map(|name| content(name, 20_000)).collect();
    for (name, file) in names.iter().zip(&files) {
        fs::write(folder.path(&format!("site/{name}")), file).expect("a file to serve");
    }
    let big = content("big", 8 << 20);
    fs::write(folder.path("site/big"), &big).expect("a file to serve");
    up(&lab, &folder, settings);
    let socket = |host: &str| control_of(&folder, host);
    let all_linked = || NODES.iter().for_each(|node| within("nodes have their links", || knows_all(&socket(node))));
    if chooses {
        all_linked();
    }
    let total = |name| lab.total(NODES, name);
    let mut round = 0;
    let mut read_all = |clients: &mut Vec<TcpStream>| {
        round += 1;
        lab.at("client1", || {
            for (number, stream) in clients.iter_mut().enumerate() {
                let file = (number * 5 + round) % 12;
                read_file(stream, &names[file], &files[file]);
            }
        });
    };
    let mut clients: Vec<TcpStream> = lab.at("client1", || (0..60).map(|_| connect()).collect());
    read_all(&mut clients);
    // Half a request, which the next process goes on to read.
    lab.at("client1", || clients.iter_mut().for_each(|stream| stream.write_all(b"GET /f0 HT").expect("it's open")));
    let outcomes = read_slowly(&lab, 8, "big", &big, || {
        NODES.iter().for_each(|node| upgrade(&lab, node));
        NODES.iter().for_each(|node| upgrade(&lab, node));
    });
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(true))), "{outcomes:?}");
    assert!(total("leat_connections_taken_total") >= 60, "they have passed with what was under way");
    lab.at("client1", || {
        for stream in &mut clients {
            stream.write_all(b"TP/1.1\r\nHost: x\r\n\r\n").expect("it's open");
            assert!(read_reply(stream, &mut Vec::new()).expect("a reply") == files[0], "f0 is as it should be");
        }
    });
    (0..3).for_each(|_| read_all(&mut clients));
    if !chooses {
        return;
    }
    // The next ones know each other, hand on, and what has passed is theirs to give: nobody relies on what an earlier process knew.
    all_linked();
    (0..3).for_each(|_| read_all(&mut clients));
    assert!(total("leat_handoffs_total") >= 20, "connections are handed on as before");
    let said = tell(&socket("n1"), &["drain", "n1", "--timeout", "15"]);
    assert!(said.contains("n1 is empty after"), "{said}");
    lab.kill("n1");
    read_all(&mut clients);
}
