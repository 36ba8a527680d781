//! Nodes that serve different paths: what becomes of the next requests of a connection whose node doesn't serve them.

use std::fs;
use std::net::Shutdown;

use super::motion::{self, content, tell};
use super::{Folder, Lab, is_possible, within};

const LARGE: usize = 1 << 20;

/// A lab of two nodes, each with files of its own.
fn up(name: &str) -> (Lab, Folder) {
    let (lab, folder) = (Lab::new(), Folder::new(name));
    let node = |number, path: &str| {
        for (file, bytes) in [("x", 3_000), ("m", LARGE)] {
            let directory = folder.path(&format!("files/n{number}/{path}"));
            fs::create_dir_all(&directory).expect("a directory of the node's");
            fs::write(format!("{directory}/{file}"), content(&format!("{path}/{file}"), bytes))
                .expect("a file to serve");
        }
        format!("[[cluster.node]]\nname = 'n{number}'\naddress = '10.77.0.1{number}'\npaths = ['/{path}/*']\n")
    };
    let text = format!(
        "[admin]\nsocket = '{}'\n[cluster]\nvip = '10.77.0.100:80'\ndispatchers = '10.77.0.1'\nkey_file = 'cluster.key'\n{}{}\
         [[site]]\nroot = 'site'\nlisten = '0.0.0.0:80'\n[lab]\nnode_files = 'files'\n",
        folder.path("leat.sock"),
        node(1, "a"),
        node(2, "b"),
    );
    fs::write(folder.path("cluster.toml"), text).expect("a configuration");
    lab.well(&["up", &folder.path("cluster.toml")]);
    within("they're linked", || {
        tell(&folder.path("leat.sock"), &["ctl", "nodes"]).matches("  may be chosen").count() == 2
    });
    (lab, folder)
}

/// Of one connection, what each of these was answered with.
fn statuses(lab: &Lab, paths: &[&str]) -> Vec<String> {
    lab.at("client1", || {
        let (mut stream, mut rest) = (motion::connect(), Vec::new());
        let ask = |path: &&str| {
            motion::ask(&mut stream, &[path]);
            let (head, _) = motion::read_any_reply(&mut stream, &mut rest).expect("a reply");
            let is_told_when = head.contains("\r\nRetry-After: ");
            assert_eq!(head.starts_with("HTTP/1.1 503 "), is_told_when, "{head}");
            head[9..12].to_owned()
        };
        paths.iter().map(ask).collect()
    })
}

#[test]
fn what_no_node_serves_at_the_moment_is_refused_by_the_node_that_is_asked() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = up("unserved");
    let socket = folder.path("leat.sock");
    assert_eq!(statuses(&lab, &["a/x", "b/x", "c/x", "a/none", "a/x"]), ["200", "200", "503", "404", "200"]);
    tell(&socket, &["drain", "n2", "--timeout", "20"]);
    assert_eq!(statuses(&lab, &["b/x"]), ["503"], "a first request");
    assert_eq!(statuses(&lab, &["a/x", "b/x", "a/x", "b/x"]), ["200", "503", "200", "503"]);
    // At once: nothing of that is remembered.
    tell(&socket, &["ctl", "resume", "n2"]);
    assert_eq!(statuses(&lab, &["b/x"]), ["200"]);
    assert_eq!(statuses(&lab, &["a/x", "b/x", "a/x"]), ["200", "200", "200"]);
}

#[test]
fn a_kept_connections_request_waits_for_a_node_that_has_just_been_lost() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = up("awaited");
    let mut rest = Vec::new();
    let mut stream = lab.at("client1", motion::connect);
    motion::ask(&mut stream, &["a/x"]);
    motion::read_reply(&mut stream, &mut rest).expect("a reply");
    lab.stop("n2");
    within("n2 is lost", || tell(&folder.path("leat.sock"), &["ctl", "nodes"]).matches("  may be chosen").count() == 1);
    motion::ask(&mut stream, &["b/x"]);
    within("the request waits", || lab.number("dispatcher", "leat_node_waits_total") == 1);
    lab.signal("n2", "-CONT");
    let (head, body) = motion::read_any_reply(&mut stream, &mut rest).expect("a reply");
    assert!(head.starts_with("HTTP/1.1 200 ") && body == content("b/x", 3_000), "{head}");
}

#[test]
fn a_node_that_nobody_answers_goes_by_its_file() {
    if !is_possible() {
        return;
    }
    let (lab, _folder) = up("unanswered");
    let mut stream = lab.at("client1", || {
        let mut stream = motion::connect();
        motion::ask(&mut stream, &["a/x"]);
        motion::read_reply(&mut stream, &mut Vec::new()).expect("a reply");
        stream
    });
    lab.stop("dispatcher");
    // Another one serves the first by the file, and nobody the second.
    motion::ask(&mut stream, &["b/x", "c/x"]);
    let numbers = || lab.well(&["exec", "n1", "curl", "-s", "http://127.0.0.1:9180/metrics"]);
    let is_answered =
        |status| numbers().contains(&format!("leat_requests_total{{site=\"default\",status=\"{status}\"}} 1\n"));
    within("it's answered", || is_answered("5xx") || is_answered("4xx"));
    // Without a lease a node says nothing.
    lab.signal("dispatcher", "-CONT");
    let mut rest = Vec::new();
    let mut next = || motion::read_any_reply(&mut stream, &mut rest).expect("a reply");
    let (head, body) = next();
    assert!(head.starts_with("HTTP/1.1 200 ") && body == content("b/x", 3_000), "{head}");
    let (head, _) = next();
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
}

#[test]
fn who_ends_its_side_behind_several_requests_gets_each_from_who_serves_it() {
    if !is_possible() {
        return;
    }
    let (lab, _folder) = up("ended");
    let files = ["a/m", "b/m", "a/m", "b/m"];
    lab.at("client1", || {
        for turn in 0..10 {
            let (mut stream, mut rest) = (motion::connect(), Vec::new());
            motion::ask(&mut stream, &files);
            stream.shutdown(Shutdown::Write).expect("it's open");
            for file in files {
                let (head, body) = motion::read_any_reply(&mut stream, &mut rest).expect("a reply");
                assert!(
                    head.starts_with("HTTP/1.1 200 ") && body == content(file, LARGE),
                    "turn {turn}, {file}: {head}"
                );
            }
        }
    });
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
}
