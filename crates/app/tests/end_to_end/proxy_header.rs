//! Balancers in front that tell by the PROXY protocol who their clients are: whom leat believes, where the address counts, and what becomes of
//! those who don't tell.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leat_logic::protocol::proxy_header::{Version, write};

use crate::on_both_reactors;
use crate::ports::{Nodes, configuration, connect, count, rest};
use crate::support::{Client, Directory, Reactor, Server, Upstream, eventually};
use crate::upgrade::upgrade;

fn serve(reactor: Reactor, directory: &Directory, from: &str, more: &str) -> Server {
    directory.write("site/index.html", "a file");
    Server::configured(reactor, directory, &site(from, more))
}

fn site(from: &str, more: &str) -> String {
    format!(
        "workers = 1\n[admin]\nlisten = \"127.0.0.1:0\"\n[proxy_protocol]\nfrom = \"{from}\"\n\
         [[site]]\nroot = \"site\"\nlisten = \"127.0.0.1:0\"\naccess_log = {{ path = \"log\" }}\n{more}\n"
    )
}

fn header(version: Version) -> Vec<u8> {
    let mut header = Vec::new();
    let ends = ("192.0.2.77:4711".parse().unwrap(), "198.51.100.1:80".parse().unwrap());
    write(version, Some(ends), &mut header);
    header
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

fn lines(directory: &Directory, count: usize) -> Vec<String> {
    eventually("the log's lines", || {
        let text = std::fs::read_to_string(directory.at("log")).ok()?;
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    })
}

fn the_client_is_who_the_balancer_says(reactor: Reactor) {
    let directory = Directory::new();
    let upstream = Upstream::saying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let handler =
        format!("[[site.handler]]\npath = \"/api/*\"\n[site.handler.proxy]\nto = [\"{}\"]\n", upstream.address());
    let server = serve(reactor, &directory, "127.0.0.0/8", &handler);
    for version in [Version::V1, Version::V2] {
        let mut client = server.connect();
        // However it comes; and the connection's other requests have none.
        let header = header(version);
        client.send(&header[..9]);
        client.send([&header[9..], REQUEST].concat());
        assert_eq!(client.reply().text(), "a file");
        assert_eq!(client.get("/").text(), "a file");
        assert_eq!(client.get("/api/").status, 200);
    }
    let told = upstream.heads();
    assert!(told.iter().all(|head| head.contains("X-Forwarded-For: 192.0.2.77\r\n")), "{told:?}");
    let logged = lines(&directory, 6);
    assert!(logged.iter().all(|line| line.starts_with("192.0.2.77 ")), "{logged:?}");
}

fn a_balancer_that_speaks_for_itself_is_the_client(reactor: Reactor) {
    let directory = Directory::new();
    let server = serve(reactor, &directory, "127.0.0.1", "");
    for header in [&b"PROXY UNKNOWN\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"] {
        let mut client = server.connect();
        client.send([header, REQUEST].concat());
        assert_eq!(client.reply().text(), "a file");
    }
    assert!(lines(&directory, 2).iter().all(|line| line.starts_with("127.0.0.1 ")));
}

fn who_is_believed_must_tell_and_nobody_else_may(reactor: Reactor) {
    let directory = Directory::new();
    let server = serve(reactor, &directory, "127.0.0.1", "");
    let mut silent = connect(server.address());
    silent.write_all(REQUEST).unwrap();
    let ended = silent.read_to_end(&mut Vec::new());
    assert!(matches!(ended.map_err(|error| error.kind()), Ok(0) | Err(ErrorKind::ConnectionReset)));
    let line = server.wait_for_stderr(&["[proxy_protocol]"]);
    assert!(line.contains("a connection from 127.0.0.1 is cut: it doesn't begin with a PROXY header"), "{line}");
    let page = Client::connect(server.admin()).get("/metrics").text();
    assert!(page.contains("leat_proxy_headers_refused_total 1"), "and the admin address needs none");
    server.reload(reactor, &directory, &site("192.0.2.0/24", ""));
    assert_eq!(server.request(REQUEST).text(), "a file");
    assert_eq!(server.request([header(Version::V1), REQUEST.to_vec()].concat()).status, 400);
}

fn a_port_s_nodes_are_told_what_the_balancer_tells(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(1, |_, mut stream| {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        let _ = stream.write_all(&all);
    });
    let log = "send_proxy = \"v1\"\naccess_log = { path = \"log\" }\n[proxy_protocol]\nfrom = \"127.0.0.1\"\n";
    let server = Server::configured(reactor, &directory, &configuration(1, nodes.port, log));
    let mut client = connect(server.address());
    client.write_all(&[&header(Version::V2), &b"hello"[..]].concat()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(String::from_utf8_lossy(&rest(&mut client)), "PROXY TCP4 192.0.2.77 198.51.100.1 4711 80\r\nhello");
    assert!(lines(&directory, 1)[0].starts_with("192.0.2.77 "));
    let mut silent = connect(server.address());
    silent.write_all(b"hello").unwrap();
    assert_eq!(silent.read_to_end(&mut Vec::new()).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    assert!(lines(&directory, 2)[1].ends_with("\"it doesn't begin with a PROXY header\""));
}

fn a_header_is_no_content_whoever_has_gone(reactor: Reactor) {
    let directory = Directory::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hearing = heard.clone();
    let nodes = Nodes::start(1, move |_, mut stream| {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        hearing.lock().unwrap().push(String::from_utf8_lossy(&all).into_owned());
    });
    let from = "[proxy_protocol]\nfrom = \"127.0.0.1\"\n";
    let server = Server::configured(reactor, &directory, &configuration(1, nodes.port, from));
    // It's reset before it's accepted, so that nobody can say whose it is.
    server.signal("STOP");
    for _ in 0..4 {
        let mut client = connect(server.address());
        client.write_all(&[&header(Version::V1), &b"hello"[..]].concat()).unwrap();
        rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    }
    server.signal("CONT");
    let mut client = connect(server.address());
    client.write_all(&[&header(Version::V1), &b"the last"[..]].concat()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    rest(&mut client);
    eventually("all are over", || (count(&server, "connections") == 0).then_some(()));
    let heard = eventually("the node has heard all", || {
        let heard = heard.lock().unwrap();
        (heard.len() == nodes.accepted[0].load(Ordering::SeqCst)).then(|| heard.clone())
    });
    assert!(heard.iter().any(|all| all == "the last"), "{heard:?}");
    assert!(heard.iter().all(|all| !all.contains("PROXY")), "{heard:?}");
}

fn who_the_client_is_goes_along_with_its_connection(reactor: Reactor) {
    let directory = Directory::new();
    let server = serve(reactor, &directory, "127.0.0.1", "");
    let mut client = server.connect();
    client.send([&header(Version::V2)[..], REQUEST].concat());
    assert_eq!(client.reply().text(), "a file");
    upgrade(&server);
    assert_eq!(client.get("/").text(), "a file", "in another engine");
    let two = site("127.0.0.1", "").replace("workers = 1", "workers = 2");
    server.reload(reactor, &directory, &two);
    server.reload(reactor, &directory, &site("127.0.0.1", ""));
    assert_eq!(client.get("/").text(), "a file", "with whichever worker is left");
    let logged = lines(&directory, 3);
    assert!(logged.iter().all(|line| line.starts_with("192.0.2.77 ")), "{logged:?}");
}

/// Each request has a connection of its own: one that was told of a client speaks for no other, and a second header would be no request.
fn a_server_behind_is_told_who_the_client_is(reactor: Reactor) {
    for (version, name) in [(Version::V1, "v1"), (Version::V2, "v2")] {
        let (behind, directory) = (Directory::new(), Directory::new());
        let told = serve(reactor, &behind, "127.0.0.1", "");
        let handler = format!(
            "[[site.handler]]\npath = \"/api/*\"\n[site.handler.proxy]\nto = [\"{}\"]\nstrip_path = true\nsend_proxy = \"{name}\"\n",
            told.address()
        );
        let server = serve(reactor, &directory, "127.0.0.1", &handler);
        let mut client = server.connect();
        client.send([&header(version)[..], b"GET /api/ HTTP/1.1\r\nHost: x\r\n\r\n"].concat());
        assert_eq!(client.reply().text(), "a file");
        assert_eq!(client.get("/api/").text(), "a file");
        let logged = lines(&behind, 2);
        assert!(logged.iter().all(|line| line.starts_with("192.0.2.77 ")), "{logged:?}");
    }
}

on_both_reactors!(
    a_server_behind_is_told_who_the_client_is,
    a_header_is_no_content_whoever_has_gone,
    who_the_client_is_goes_along_with_its_connection,
    the_client_is_who_the_balancer_says,
    a_balancer_that_speaks_for_itself_is_the_client,
    who_is_believed_must_tell_and_nobody_else_may,
    a_port_s_nodes_are_told_what_the_balancer_tells,
);
