//! Nodes that ask their own sites by `path` of `[cluster.health]`, and are given nothing while these don't answer well.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use super::foreign::held;
use super::motion::tell;
use super::{Folder, Lab, connect_and_ask, is_possible, within};

/// A cluster of two nodes with a program that says whether a node is well: not while there is a file of its address.
fn up(lab: &Lab, folder: &Folder) {
    let program = folder.path("health");
    let text = format!(
        "#!/bin/sh\n[ -e '{}'-$SERVER_NAME ] && printf 'Status: 503\\n'\nprintf 'Content-Type: text/plain\\n\\nasked\\n'\n",
        folder.path("ill")
    );
    fs::write(&program, text).expect("a program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it can be run");
    let node = |number| format!("[[cluster.node]]\nname = 'n{number}'\naddress = '10.77.0.1{number}'\n");
    let text = format!(
        "[admin]\nlisten = '127.0.0.1:9180'\nsocket = '{}'\n[cluster]\nvip = '10.77.0.100:80'\ndispatchers = '10.77.0.1'\n\
         key_file = 'cluster.key'\npolicy = 'round_robin'\nreport_interval = '50ms'\n\
         [cluster.health]\npath = '/health'\ninterval = '1s'\ntimeout = '1s'\nrise = 3\nslow_start = '0s'\n{}{}\
         [[site]]\nroot = 'site'\n[[site.handler]]\npath = '/health'\ncgi = {{ command = '{program}' }}\n\
         [site.access_log]\npath = '{}'\n",
        folder.path("leat.sock"),
        node(1),
        node(2),
        folder.path("access.log"),
    );
    fs::write(folder.path("cluster.toml"), text).expect("a configuration");
    lab.well(&["up", &folder.path("cluster.toml")]);
}

#[test]
fn a_node_whose_health_path_fails_is_given_nothing_and_comes_back_with_it() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("checks"));
    up(&lab, &folder);
    let socket = folder.path("leat.sock");
    let is = |what: &str| within(what, || tell(&socket, &["ctl", "nodes"]).contains(what));
    let flows = |node: &str| held(&folder, node);
    let mut clients: Vec<TcpStream> = Vec::new();
    let connect = |clients: &mut Vec<TcpStream>, count: usize| connect_and_ask(&lab, clients, count);
    ["  n1  may be chosen", "  n2  may be chosen"].into_iter().for_each(is);
    connect(&mut clients, 20);
    assert!(flows("n1") > 5 && flows("n2") > 5, "{}", tell(&socket, &["ctl", "flows"]));

    // Its application is broken; files could still be had of it, and its links are there.
    fs::write(folder.path("ill-10.77.0.11"), "").expect("a file");
    is("  n1  down: its own health checks fail");
    let explained = tell(&socket, &["ctl", "explain", "/large"]);
    assert!(explained.contains("its own health checks fail"), "{explained}");
    assert!(lab.number("dispatcher", "leat_nodes_unwell") > 0);
    assert_eq!((lab.number("n1", "leat_nodes_unwell") > 0, lab.number("n2", "leat_nodes_unwell")), (true, 0));
    // What it had goes to the other one as well.
    within("it has nothing any more", || flows("n1") == 0);
    connect(&mut clients, 20);
    assert_eq!((flows("n1"), flows("n2")), (0, 40));
    let log = fs::read_to_string(format!("/run/leat-lab/{}/n1.log", lab.name)).unwrap_or_default();
    assert!(log.contains("10.77.0.11:80 answers to GET /health with 503: this node is given nothing new"), "{log}");

    fs::remove_file(folder.path("ill-10.77.0.11")).expect("it was there");
    is("  n1  may be chosen");
    let mut others = Vec::new();
    connect(&mut others, 20);
    assert!(flows("n1") > 5, "{}", tell(&socket, &["ctl", "flows"]));
    assert_eq!(lab.number("dispatcher", "leat_nodes_unwell"), 0);
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);

    // Requests of people are logged, by whom they were asked for.
    let logged = fs::read_to_string(folder.path("access.log")).unwrap_or_default();
    assert!(logged.contains("GET /large") && !logged.contains("/health"), "{logged}");
    lab.at("client1", || {
        use std::io::{Read, Write};
        let mut stream = TcpStream::connect("10.77.0.100:80").expect("the dispatcher listens");
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it's open");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply");
        assert!(reply.starts_with("HTTP/1.1 200 ") && reply.contains("asked"), "{reply}");
    });
    within("it's logged", || {
        fs::read_to_string(folder.path("access.log")).is_ok_and(|log| log.contains("GET /health HTTP/1.1\" 200"))
    });
}
