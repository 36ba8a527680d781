//! Nodes that a reload adds and removes, and who else wants to link.

use std::fs;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::foreign::held;
use super::motion::tell;
use super::spread::upgrade;
use super::{Folder, Lab, ask, connect_and_ask, is_possible, within};

/// Writes the file of a cluster with these nodes, of weights.
fn write(folder: &Folder, nodes: &[(u8, u32)]) {
    let node = |(number, weight): &(u8, u32)| {
        format!("[[cluster.node]]\nname = 'n{number}'\naddress = '10.77.0.1{number}'\nweight = {weight}\n")
    };
    let text = format!(
        "[admin]\nsocket = '{}'\n[cluster]\nvip = '10.77.0.100:80'\ndispatchers = '10.77.0.1'\nkey_file = 'cluster.key'\n\
         policy = 'round_robin'\n[cluster.health]\nslow_start = '0s'\n{}[[site]]\nroot = 'site'\n",
        folder.path("leat.sock"),
        nodes.iter().map(node).collect::<String>()
    );
    fs::write(folder.path("cluster.toml"), text).expect("a configuration");
}

#[test]
fn a_reload_adds_and_removes_nodes_and_no_connection_is_cut() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("nodes"));
    write(&folder, &[(1, 100), (2, 100), (3, 100)]);
    lab.well(&["up", &folder.path("cluster.toml")]);
    let socket = folder.path("leat.sock");
    let listed = || tell(&socket, &["ctl", "nodes"]);
    let is = |what: &str| within(what, || listed().contains(what));
    let flows = |node: &str| held(&folder, node);
    let mut clients: Vec<TcpStream> = Vec::new();
    let connect = |clients: &mut Vec<TcpStream>, count: usize| connect_and_ask(&lab, clients, count);
    ["  n1  may be chosen", "  n2  may be chosen", "  n3  may be chosen"].into_iter().for_each(is);
    connect(&mut clients, 60);
    assert!(["n1", "n2", "n3"].iter().all(|node| flows(node) > 10), "{}", tell(&socket, &["ctl", "flows"]));

    // The first one goes. The others keep their places, whatever the file says.
    write(&folder, &[(2, 300), (3, 100)]);
    ["dispatcher", "n2", "n3"].into_iter().for_each(|host| lab.reload(host));
    is("  n1  draining");
    is("  n2  may be chosen  load 0, weight 300");
    within("it's empty", || flows("n1") == 0);
    connect(&mut clients, 40);
    assert_eq!((flows("n1"), flows("n2") + flows("n3")), (0, 100));
    assert!(flows("n2") > flows("n3") + 10, "by their new weights: {} and {}", flows("n2"), flows("n3"));

    // It's back, and the last one goes.
    write(&folder, &[(1, 100), (2, 100)]);
    ["dispatcher", "n2"].into_iter().for_each(|host| lab.reload(host));
    ["  n1  may be chosen", "  n3  draining"].into_iter().for_each(is);
    within("it's empty", || flows("n3") == 0);
    connect(&mut clients, 40);
    assert!(flows("n1") > 10);

    // One comes that this dispatcher has never heard of.
    lab.kill_engine("dispatcher");
    within("there are two nodes", || listed().matches("  may be chosen").count() == 2 && !listed().contains("  n3  "));
    write(&folder, &[(1, 100), (2, 100), (3, 100)]);
    ["dispatcher", "n1", "n2", "n3"].into_iter().for_each(|host| lab.reload(host));
    is("  n3  may be chosen");
    let mut others = Vec::new();
    connect(&mut others, 30);
    assert!(flows("n3") > 5);
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
    lab.at("client1", || clients.iter_mut().for_each(|stream| ask(stream).expect("a node answers")));
}

#[test]
fn a_node_that_goes_by_other_places_is_linked_when_all_go_by_them() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("places"));
    write(&folder, &[(1, 100), (2, 100), (3, 100)]);
    lab.well(&["up", &folder.path("cluster.toml")]);
    let listed = || tell(&folder.path("leat.sock"), &["ctl", "nodes"]);
    let are_linked = |count| within("they're linked", || listed().matches("  may be chosen").count() == count);
    are_linked(3);
    write(&folder, &[(2, 100), (3, 100)]);
    ["dispatcher", "n2", "n3"].into_iter().for_each(|host| lab.reload(host));
    // It's the second in its file, and the third to the dispatcher.
    upgrade(&lab, "n3");
    let log = format!("/run/leat-lab/{}/dispatcher.log", lab.name);
    let is_told =
        || fs::read_to_string(&log).unwrap_or_default().contains("node n3 isn't linked: it says that it's the 2.");
    within("that is told", is_told);
    // It's told there too, and not with each attempt.
    let said = || fs::read_to_string(format!("/run/leat-lab/{}/n3.log", lab.name)).unwrap_or_default();
    within("where to look is told", || said().contains("10.77.0.1:7450 ends each link as soon as it's made"));
    are_linked(1);
    lab.at("client1", || {
        let mut stream = TcpStream::connect("10.77.0.100:80").expect("the dispatcher listens");
        ask(&mut stream).expect("the other node answers");
    });
    assert!(said().matches("10.77.0.1:7450").count() < 5, "{}", said());
    ["n2", "dispatcher"].into_iter().for_each(|host| upgrade(&lab, host));
    are_linked(2);
    lab.at("client1", || {
        for _ in 0..20 {
            let mut stream = TcpStream::connect("10.77.0.100:80").expect("the dispatcher listens");
            ask(&mut stream).expect("a node answers");
        }
    });
}

/// What the dispatcher says of one.
const STRANGER: &str = "no link from 198.18.0.1: ";

#[test]
fn who_only_connects_keeps_no_node_from_its_link() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("strangers"));
    write(&folder, &[(1, 100), (2, 100)]);
    lab.well(&["up", &folder.path("cluster.toml")]);
    let socket = folder.path("leat.sock");
    let is_linked = || tell(&socket, &["ctl", "nodes"]).contains("  n1  may be chosen");
    let said = || fs::read_to_string(format!("/run/leat-lab/{}/dispatcher.log", lab.name)).expect("a lab's logs");
    within("the first is linked", is_linked);
    let (is_full, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            lab.at("client1", || {
                let mut strangers: Vec<TcpStream> = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    // Those that have been ended come again.
                    strangers.retain_mut(|stream| match stream.read(&mut [0; 256]) {
                        Ok(count) => count > 0,
                        Err(error) => error.kind() == ErrorKind::WouldBlock,
                    });
                    while strangers.len() < 100 {
                        let to = SocketAddr::from(([10, 77, 0, 1], 7450));
                        let Ok(stream) = TcpStream::connect_timeout(&to, Duration::from_secs(1)) else { break };
                        stream.set_nonblocking(true).expect("it's a socket");
                        strangers.push(stream);
                    }
                    is_full.store(true, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        });
        within("there are strangers", || is_full.load(Ordering::Relaxed));
        lab.kill_engine("n1");
        let start = std::time::Instant::now();
        within("its link is down", || !is_linked() || start.elapsed() > Duration::from_secs(2));
        // A panic would leave the strangers at it.
        let linked = std::panic::catch_unwind(|| within("it's linked again", is_linked));
        is_over.store(true, Ordering::Relaxed);
        linked.expect("nobody keeps it from that");
    });
    within("the end of a stranger's is told", || said().contains(STRANGER));
    let said = said();
    // One is from the node, perhaps, as its engine was killed.
    assert_eq!(said.matches(STRANGER).count(), 1, "{said}");
    assert!(said.matches("a link is down: ").count() < 3, "{said}");
}

#[test]
fn a_node_without_a_route_keeps_no_other_from_being_handed_connections() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("routes"));
    write(&folder, &[(1, 100), (2, 100)]);
    lab.well(&["up", &folder.path("cluster.toml")]);
    let path = folder.path("cluster.toml");
    let text = fs::read_to_string(&path).expect("it's there");
    let third = "[[cluster.node]]\nname = 'n3'\naddress = '10.99.0.9'\n[[site]]";
    fs::write(&path, text.replace("[[site]]", third)).expect("a configuration");
    lab.well(&["exec", "dispatcher", "ip", "route", "add", "unreachable", "10.99.0.9"]);
    // Neither a reload nor the start of an engine does.
    lab.reload("dispatcher");
    lab.kill_engine("dispatcher");
    let socket = folder.path("leat.sock");
    let listed = || tell(&socket, &["ctl", "nodes"]);
    within("the new engine has the others", || {
        let listed = listed();
        listed.contains("  n3  ") && listed.matches("  may be chosen").count() == 2
    });
    let clients = lab.at("client1", || {
        let mut clients: Vec<_> =
            (0..20).map(|_| TcpStream::connect("10.77.0.100:80").expect("the dispatcher listens")).collect();
        clients.iter_mut().for_each(|stream| ask(stream).expect("a node answers"));
        clients
    });
    assert_eq!(lab.number("dispatcher", "leat_flows"), clients.len() as u64, "nodes have them");
}

#[test]
fn a_weight_that_is_changed_over_http_counts_on_every_worker() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("http"));
    write(&folder, &[(1, 100), (2, 100)]);
    let token = "1f0c4a3be2d95778a0c1d2e3f4a5b6c7";
    fs::write(folder.path("token"), token).expect("it can be written");
    fs::set_permissions(folder.path("token"), fs::Permissions::from_mode(0o600)).expect("it's ours");
    let text = fs::read_to_string(folder.path("cluster.toml")).expect("it's there");
    let text = text.replace("[admin]\n", "workers = 2\n[admin]\ntoken_file = 'token'\n");
    fs::write(folder.path("cluster.toml"), text).expect("a configuration");
    lab.well(&["up", &folder.path("cluster.toml")]);
    let ask = |arguments: &[&str]| lab.well(&[&["exec", "dispatcher", "curl", "-s"], arguments].concat());
    let listed = || ask(&["http://127.0.0.1:9180/ctl/nodes"]);
    within("they're linked", || listed().matches("  may be chosen  ").count() == 2);
    let change = "http://127.0.0.1:9180/ctl/weight?node=n1&weight=50";
    let refused = ask(&["-X", "POST", change]);
    assert!(refused.starts_with("it takes the token of `token_file`"), "{refused}");
    assert!(!listed().contains("weight 50"), "{}", listed());
    let changed = ask(&["-X", "POST", "-H", &format!("Authorization: Bearer {token}"), change]);
    assert_eq!(changed, "n1 has weight 50 until the next reload\n");
    let nodes = listed();
    assert!(nodes.contains("  n1  may be chosen  load 0, weight 50"), "{nodes}");
    assert!(nodes.contains("  n2  may be chosen  load 0, weight 100"), "{nodes}");
    assert!(tell(&folder.path("leat.sock"), &["ctl", "nodes"]).contains("load 0, weight 50"));
    let explained =
        ask(&["-G", "--data-urlencode", "request=GET http://10.77.0.100/", "http://127.0.0.1:9180/ctl/explain"]);
    assert!(explained.contains("  goes to n"), "{explained}");
}
