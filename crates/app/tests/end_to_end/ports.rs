//! Ports of a dispatcher for other protocols than HTTP: whose bytes go where, and what becomes of ends, silence and nodes that are away.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::on_both_reactors;
use crate::support::directory::noise;
use crate::support::patience::PATIENCE;
use crate::support::{Client, Directory, Reactor, Server, eventually};
use crate::upgrade::upgrade;

/// A node's server: it hands each connection to a function of the test, with the node's number.
pub(crate) struct Nodes {
    pub(crate) port: u16,
    pub(crate) accepted: Vec<Arc<AtomicUsize>>,
}

impl Nodes {
    /// At 127.0.0.2 and on, all at the same port.
    pub(crate) fn start(count: u8, answer: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> Nodes {
        let listeners = eventually("a port that all have free", || listen(count));
        let port = listeners[0].local_addr().unwrap().port();
        let answer = Arc::new(answer);
        let serve = |(number, listener): (usize, TcpListener)| {
            let accepted = Arc::new(AtomicUsize::new(0));
            let (count, answer) = (accepted.clone(), answer.clone());
            std::thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    count.fetch_add(1, Ordering::SeqCst);
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    let answer = answer.clone();
                    std::thread::spawn(move || answer(number, stream));
                }
            });
            accepted
        };
        let accepted = (1..).zip(listeners).map(serve).collect();
        Nodes { port, accepted }
    }

    fn accepted(&self) -> Vec<usize> {
        self.accepted.iter().map(|count| count.load(Ordering::SeqCst)).collect()
    }
}

fn listen(count: u8) -> Option<Vec<TcpListener>> {
    let first = TcpListener::bind("127.0.0.2:0").ok()?;
    let port = first.local_addr().ok()?.port();
    let others = (1..count).map(|place| TcpListener::bind(SocketAddr::from(([127, 0, 0, 2 + place], port))).ok());
    let others: Option<Vec<_>> = others.collect();
    Some(std::iter::once(first).chain(others?).collect())
}

/// A dispatcher with one port and so many nodes.
pub(crate) fn dispatch(reactor: Reactor, directory: &Directory, nodes: u8, node_port: u16, keys: &str) -> Server {
    Server::configured(reactor, directory, &configuration(nodes, node_port, keys))
}

pub(crate) fn configuration(nodes: u8, node_port: u16, keys: &str) -> String {
    let nodes: String = (1..=nodes)
        .map(|number| format!("[[cluster.node]]\nname = \"n{number}\"\naddress = \"127.0.0.{}\"\n", 1 + number))
        .collect();
    format!(
        "role = \"dispatcher\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[cluster.health]\ninterval = \"100ms\"\ntimeout = \"100ms\"\n\
         {nodes}[[cluster.port]]\nname = \"it\"\nlisten = \"127.0.0.1:0\"\nnode_port = {node_port}\n{keys}\n"
    )
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// All that comes until the end.
pub(crate) fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("an end in order");
    all
}

pub(crate) fn count(server: &Server, family: &str) -> u64 {
    let page = Client::connect(server.admin()).get("/metrics").text();
    let line = page.lines().find(|line| line.starts_with(&format!("leat_port_{family}{{site=\"it\"}}")));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default()
}

/// Says its number, then says everything again.
fn echo(number: usize, mut stream: TcpStream) {
    let _ = stream.write_all(format!("n{number}\n").as_bytes());
    let mut reading = stream.try_clone().unwrap();
    let _ = std::io::copy(&mut reading, &mut stream);
    let _ = stream.shutdown(Shutdown::Write);
}

/// The name that a node says at the beginning.
fn name(stream: &mut TcpStream) -> String {
    let mut name = [0; 3];
    stream.read_exact(&mut name).unwrap();
    String::from_utf8_lossy(&name[..2]).into_owned()
}

fn connections_go_to_whom_has_fewest(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(2, echo);
    let log = "[cluster.port.access_log]\npath = \"log\"\nformat = \"json\"";
    let server = dispatch(reactor, &directory, 2, nodes.port, log);
    let mut clients: Vec<TcpStream> = Vec::new();
    let mut names = Vec::new();
    for _ in 0..6 {
        let mut client = connect(server.address());
        // The server speaks first.
        names.push(name(&mut client));
        clients.push(client);
    }
    names.sort();
    assert_eq!(names, ["n1", "n1", "n1", "n2", "n2", "n2"]);
    assert_eq!(count(&server, "connections"), 6);
    let content: Vec<u8> = (0..2_000_000_u32).map(|at| (at % 251) as u8).collect();
    let mut client = clients.pop().unwrap();
    let mut writing = client.try_clone().unwrap();
    let sent = content.clone();
    let writer = std::thread::spawn(move || {
        writing.write_all(&sent).unwrap();
        // Only this side ends: what is on its way back still comes.
        writing.shutdown(Shutdown::Write).unwrap();
    });
    assert!(rest(&mut client) == content, "every byte comes back");
    writer.join().unwrap();
    let line = eventually("the log's line", || {
        std::fs::read_to_string(directory.at("log")).ok()?.lines().next().map(str::to_owned)
    });
    for part in [
        "\"site\":\"it\"",
        "\"protocol\":\"tcp\"",
        "\"received_bytes\":2000000",
        "\"sent_bytes\":2000003",
        "\"end\":\"done\"",
        "\"nodes\":[\"n",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert_eq!((count(&server, "accepted_total"), count(&server, "received_bytes_total")), (6, 2_000_000));
}

fn a_node_s_end_is_passed_on_and_so_is_its_reset(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(1, |_, mut stream| {
        let mut first = [0; 1];
        // Who only looks whether somebody is here says nothing.
        let Ok(()) = stream.read_exact(&mut first) else { return };
        stream.write_all(b"bye").unwrap();
        if first == *b"e" {
            stream.shutdown(Shutdown::Write).unwrap();
            let mut more = Vec::new();
            stream.read_to_end(&mut more).unwrap();
            assert_eq!(more, b"more");
        }
        // Otherwise bytes that nobody reads are in the socket as it closes: that resets.
    });
    let server = dispatch(reactor, &directory, 1, nodes.port, "");
    let mut client = connect(server.address());
    client.write_all(b"e").unwrap();
    assert_eq!(rest(&mut client), b"bye");
    client.write_all(b"more").unwrap();
    drop(client);
    eventually("the connection is over", || (count(&server, "connections") == 0).then_some(()));
    let mut client = connect(server.address());
    client.write_all(&[b'r'; 10_000]).unwrap();
    let error = client.read_to_end(&mut Vec::new()).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(count(&server, "failures_total"), 1);
}

fn a_node_that_is_away_is_passed_over_until_it_is_back(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(1, echo);
    // Nobody listens at 127.0.0.3 yet.
    let server = dispatch(reactor, &directory, 2, nodes.port, "policy = \"round_robin\"");
    for _ in 0..4 {
        assert_eq!(name(&mut connect(server.address())), "n1");
    }
    server.wait_for_stderr(&["node n2 can't be reached", "node n2 is down"]);
    let second = TcpListener::bind(("127.0.0.3", nodes.port)).unwrap();
    server.wait_for_stderr(&["node n2 can be reached again"]);
    std::thread::spawn(move || second.incoming().map_while(Result::ok).for_each(|stream| echo(2, stream)));
    eventually("the second node is chosen", || (name(&mut connect(server.address())) == "n2").then_some(()));
}

/// Answers with its number once it has been told something.
fn answer_hello(number: usize, mut stream: TcpStream) {
    if stream.read_exact(&mut [0; 5]).is_ok() {
        let _ = stream.write_all(format!("n{number}\n").as_bytes());
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

fn a_connection_goes_to_the_port_that_it_came_to(reactor: Reactor) {
    let directory = Directory::new();
    let say = |word: &'static [u8]| Nodes::start(1, move |_, mut stream| stream.write_all(word).unwrap());
    let (one, other) = (say(b"one"), say(b"other"));
    let listen = format!("listen = [\"127.0.0.9:{}\", \"127.0.0.9:{}\"]\n", one.port, other.port);
    let text = configuration(1, 0, "").replace("listen = \"127.0.0.1:0\"\nnode_port = 0", &listen);
    let server = Server::configured_with_listeners(reactor, &directory, &text, 2);
    for (nodes, word) in [(&one, &b"one"[..]), (&other, b"other")] {
        let address = server.addresses().iter().find(|address| address.port() == nodes.port).expect("it listens there");
        assert_eq!(rest(&mut connect(*address)), word);
    }
}

fn what_a_node_that_is_away_was_to_be_told_is_told_another(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(1, answer_hello);
    // Nobody listens at the other two, and no probe has said so.
    let server = Server::configured(reactor, &directory, &configuration(3, nodes.port, "").replace("100ms", "1m"));
    // What clients say is there at the same moment as the news that a node isn't.
    server.signal("STOP");
    let mut clients: Vec<TcpStream> = (0..6).map(|_| connect(server.address())).collect();
    clients.iter_mut().for_each(|client| client.write_all(b"hello").unwrap());
    server.signal("CONT");
    assert!(clients.iter_mut().all(|client| name(client) == "n1"));
    assert!(count(&server, "connect_failures_total") > 0);
}

fn a_node_that_breaks_off_untold_is_passed_over_and_one_that_was_told_cuts(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(1, |number, mut stream| {
        let mut first = [0; 1];
        match stream.read_exact(&mut first) {
            // Bytes that nobody reads are in the socket as it closes: that resets.
            Ok(()) if first == *b"r" => {}
            Ok(()) => stream.write_all(format!("n{number}\n").as_bytes()).unwrap(),
            Err(_) => {}
        }
    });
    let dying = TcpListener::bind(("127.0.0.3", nodes.port)).unwrap();
    let server = Server::configured(reactor, &directory, &configuration(2, nodes.port, "").replace("100ms", "1m"));
    let mut clients: Vec<TcpStream> = (0..4).map(|_| connect(server.address())).collect();
    eventually("each client has a node", || (count(&server, "connects_total") == 4).then_some(()));
    // Nobody has taken the connections in its queue: they are reset.
    drop(dying);
    for client in &mut clients {
        client.write_all(b"h").unwrap();
        assert_eq!(name(client), "n1");
    }
    let mut client = connect(server.address());
    client.write_all(&[b'r'; 10_000]).unwrap();
    let error = client.read_to_end(&mut Vec::new()).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "another may not be told what this one has heard");
    eventually("it's counted", || (count(&server, "failures_total") == 1).then_some(()));
}

fn a_drain_ends_relays_that_say_nothing_more(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(1, |_, mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
        let _ = stream.read(&mut [0; 1]);
        std::thread::park_timeout(PATIENCE * 2);
    });
    let limits = "[limits]\ndrain_timeout = \"300ms\"\n[cluster.health]";
    let of = |keys: &str| configuration(1, nodes.port, keys).replace("[cluster.health]", limits);
    let mut server = Server::configured(reactor, &directory, &of(""));
    let silent = connect(server.address());
    let half_closed = connect(server.address());
    half_closed.shutdown(Shutdown::Write).unwrap();
    let mut pouring = connect(server.address());
    pouring.set_write_timeout(Some(PATIENCE)).unwrap();
    pouring.write_all(&[b'x'; 100_000]).unwrap();
    eventually("all have nodes", || (count(&server, "connects_total") == 3).then_some(()));
    server.reload(reactor, &directory, &of("first_bytes = 4\nhead_timeout = \"10m\""));
    let undecided = connect(server.address());
    eventually("all are there", || (count(&server, "connections") == 4).then_some(()));
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    drop((silent, half_closed, pouring, undecided));
}

/// A listener at 127.0.0.2 whose queue is full: who connects hears nothing, neither yes nor no.
fn deaf() -> (OwnedFd, TcpStream, u16) {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 2], 0))).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    let address = SocketAddr::try_from(rustix::net::getsockname(&socket).unwrap()).unwrap();
    (socket, TcpStream::connect(address).unwrap(), address.port())
}

fn a_drain_ends_relays_and_probes_that_reach_nobody(reactor: Reactor) {
    let directory = Directory::new();
    let (_listener, _in_its_queue, port) = deaf();
    let limits = "[limits]\ndrain_timeout = \"300ms\"\n[cluster.health]";
    let text = configuration(1, port, "connect_timeout = \"10m\"").replace("[cluster.health]", limits);
    let mut server = Server::configured(reactor, &directory, &text.replace("100ms", "1m"));
    let silent = connect(server.address());
    let mut talking = connect(server.address());
    talking.write_all(&[b'x'; 100_000]).unwrap();
    let half_closed = connect(server.address());
    half_closed.shutdown(Shutdown::Write).unwrap();
    eventually("all wait for the node", || (count(&server, "connects_total") == 3).then_some(()));
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    drop((silent, talking, half_closed));
}

fn who_says_nothing_is_let_go(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(1, echo);
    let keys = "idle_timeout = \"200ms\"\n";
    let server = dispatch(reactor, &directory, 1, nodes.port, keys);
    let mut client = connect(server.address());
    assert_eq!(name(&mut client), "n1");
    assert_eq!(rest(&mut client), b"", "closed in order");
    let keys = "first_bytes = 4\nhead_timeout = \"200ms\"\n";
    server.reload(reactor, &directory, &configuration(1, nodes.port, keys));
    let mut client = connect(server.address());
    client.write_all(b"abc").unwrap();
    let error = client.read_to_end(&mut Vec::new()).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(count(&server, "mistakes_total"), 1);
}

fn without_a_node_a_client_is_cut(reactor: Reactor) {
    let directory = Directory::new();
    // Nobody listens at the port of tcpmux; one that has just been free may be another test's by now.
    let server = dispatch(reactor, &directory, 2, 1, "");
    let ended = connect(server.address()).read_to_end(&mut Vec::new());
    assert_eq!(ended.expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    assert!(count(&server, "connect_failures_total") > 0 && count(&server, "failures_total") == 1);
}

fn nodes_that_no_way_leads_to_have_nothing_under_way(reactor: Reactor) {
    let directory = Directory::new();
    let nowhere = TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap().port();
    let socket = directory.at("leat.sock").display().to_string();
    // Nobody listens at the first, which is known after a moment; connecting to the second, a broadcast address, fails at once.
    let text = configuration(2, nowhere, "policy = \"round_robin\"")
        .replace("[admin]\n", &format!("[admin]\nsocket = \"{socket}\"\n"))
        .replace("127.0.0.3", "127.255.255.255")
        .replace("interval = \"100ms\"", "interval = \"0s\"\neject_after = 0");
    let server = Server::configured(reactor, &directory, &text);
    for _ in 0..4 {
        let ended = connect(server.address()).read_to_end(&mut Vec::new());
        assert_eq!(ended.expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    }
    let (_, shown, errors) =
        crate::support::server::run(&["ctl", "--socket", &socket, "ports"].map(std::ffi::OsStr::new));
    assert!(shown.contains("  n1  may be chosen  under way 0\n"), "{shown}{errors}");
    assert!(shown.contains("  n2  may be chosen  under way 0\n"), "{shown}{errors}");
}

fn connections_outlive_a_reload_and_their_port(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(2, echo);
    let server = dispatch(reactor, &directory, 1, nodes.port, "");
    let mut before = connect(server.address());
    assert_eq!(name(&mut before), "n1");
    server.reload(reactor, &directory, &configuration(2, nodes.port, "nodes = \"n2\""));
    let mut after = connect(server.address());
    assert_eq!(name(&mut after), "n2");
    let gone = configuration(2, nodes.port, "")
        .replace("\"127.0.0.1:0\"\nnode_port", "\"127.0.0.4:0\"\nnode_port")
        .replace("\"it\"", "\"other\"");
    server.reload(reactor, &directory, &gone);
    before.write_all(b"hello").unwrap();
    let mut heard = [0; 5];
    before.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
    assert_eq!(nodes.accepted().iter().filter(|&&count| count > 0).count(), 2);
}

fn who_only_listens_hears_and_who_ends_in_a_request_is_cut(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(1, |_, mut stream| {
        // Half a request is no reason to speak: who does has the client cut, maybe before it has ended its side.
        if matches!(stream.read_to_end(&mut Vec::new()), Ok(0)) {
            let _ = stream.write_all(b"welcome");
        }
    });
    let server = dispatch(reactor, &directory, 1, nodes.port, "");
    let mut client = connect(server.address());
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut client), b"welcome", "although the client ended before it had a node");
    server.reload(reactor, &directory, &configuration(1, nodes.port, "protocol = \"redis\""));
    for (place, half) in
        [&b"*2\r\n$3\r\nGET\r\n$5\r\nk"[..], b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9\r\nval"].iter().enumerate()
    {
        let mut client = connect(server.address());
        client.write_all(half).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.read_to_end(&mut Vec::new()).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
        assert_eq!(count(&server, "mistakes_total"), place as u64 + 1);
    }
}

fn the_control_socket_shows_ports_and_drains_their_nodes(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(2, echo);
    let socket = directory.at("leat.sock").display().to_string();
    let with_socket = |line: &str| line.replace("[admin]\n", &format!("[admin]\nsocket = \"{socket}\"\n"));
    let server = Server::configured(reactor, &directory, &with_socket(&configuration(2, nodes.port, "")));
    let ctl = |words: &[&str]| {
        let arguments: Vec<&std::ffi::OsStr> =
            ["ctl", "--socket", &socket].into_iter().chain(words.iter().copied()).map(std::ffi::OsStr::new).collect();
        crate::support::server::run(&arguments)
    };
    let mut client = connect(server.address());
    let first = name(&mut client);
    let (code, shown, errors) = ctl(&["ports"]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(shown.starts_with("it  tcp, for each connection by least_connections  connections 1\n"), "{shown}");
    assert!(shown.contains(&format!("  {first}  may be chosen  under way 1\n")), "{shown}");
    let (code, _, errors) = ctl(&["drain", "n1"]);
    assert_eq!(code, Some(0), "{errors}");
    let mut others: Vec<TcpStream> = (0..4).map(|_| connect(server.address())).collect();
    assert!(others.iter_mut().all(|client| name(client) == "n2"));
    assert!(ctl(&["ports"]).1.contains("  n1  draining"));
    assert_eq!(ctl(&["resume", "n1"]).0, Some(0));
    let mut again: Vec<TcpStream> = (0..4).map(|_| connect(server.address())).collect();
    assert!(again.iter_mut().any(|client| name(client) == "n1"));
    for wrong in [&["drain", "n9"][..], &["resume", "n9"], &["weight", "n9", "50"]] {
        let (code, _, errors) = ctl(wrong);
        assert_eq!((code, errors.as_str()), (Some(1), "leat ctl: no port has a node `n9`\n"));
    }
    for of_vips in [&["nodes"][..], &["table"], &["flows"], &["explain", "GET /"], &["policy", "round_robin"]] {
        let (code, _, errors) = ctl(of_vips);
        assert!(code == Some(1) && errors.contains("has ports and no VIP"), "{errors}");
    }
    // A port that is gone is shown for as long as it has clients.
    let moved = configuration(2, nodes.port, "").replace("\"127.0.0.1:0\"\nnode_port", "\"127.0.0.4:0\"\nnode_port");
    server.reload(reactor, &directory, &with_socket(&moved.replace("\"it\"", "\"other\"")));
    others.extend(again);
    drop(others);
    let shown = eventually("one is left", || Some(ctl(&["ports"]).1).filter(|shown| shown.contains("connections 1\n")));
    assert!(shown.starts_with("it  tcp") && shown.contains("\nother  tcp"), "{shown}");
    drop(client);
    eventually("the port is gone", || ctl(&["ports"]).1.starts_with("other  tcp").then_some(()));
}

fn a_drain_waits_for_what_ports_have(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(2, echo);
    let socket = directory.at("leat.sock").display().to_string();
    let with_socket = format!("workers = 2\n[admin]\nsocket = \"{socket}\"\n");
    let text = configuration(2, nodes.port, "").replace("[admin]\n", &with_socket);
    let server = Server::configured(reactor, &directory, &text);
    let drain = |timeout: &str| {
        let arguments = ["drain", "n1", "--socket", &socket, "--timeout", timeout].map(std::ffi::OsStr::new);
        crate::support::server::run(&arguments)
    };
    let mut clients: Vec<TcpStream> = (0..4).map(|_| connect(server.address())).collect();
    clients.retain_mut(|client| name(client) == "n1");
    let (code, said, errors) = drain("1");
    assert_eq!((code, said.as_str()), (Some(1), "n1 is given nothing new by any port\n"), "{errors}");
    assert!(errors.contains(&format!("n1 still has {} connections after 1 s", clients.len())), "{errors}");
    drop(clients);
    let (code, said, errors) = drain("60");
    assert!(code == Some(0) && said.contains("n1 is empty after"), "{said}{errors}");
}

fn nodes_are_told_the_client(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(1, |_, mut stream| {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        let _ = stream.write_all(&all);
    });
    let tell = |server: &Server| {
        let mut client = connect(server.address());
        client.write_all(b"hello").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        (client.local_addr().unwrap(), rest(&mut client))
    };
    let server = dispatch(reactor, &directory, 1, nodes.port, "send_proxy = \"v1\"");
    let (own, heard) = tell(&server);
    let expected = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\nhello", own.port(), server.address().port());
    assert_eq!(String::from_utf8_lossy(&heard), expected);
    server.reload(reactor, &directory, &configuration(1, nodes.port, "send_proxy = \"v2\""));
    let (own, heard) = tell(&server);
    let (size, ends) = leat_logic::protocol::proxy_header::read(&heard).unwrap().unwrap();
    assert_eq!((ends, &heard[size..]), (Some((own, server.address())), &b"hello"[..]));
}

/// A ClientHello for a host, as short as may be.
fn client_hello(host: &str) -> Vec<u8> {
    let with_length = |bytes: usize, content: &[u8]| [&content.len().to_be_bytes()[8 - bytes..], content].concat();
    let name = with_length(2, &with_length(2, &[&[0][..], &with_length(2, host.as_bytes())].concat()));
    let extensions = with_length(2, &[&[0, 0][..], &name].concat());
    let body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0], &extensions].concat();
    let message = [&[1][..], &with_length(3, &body)].concat();
    [&[22, 3, 1][..], &with_length(2, &message)].concat()
}

fn tls_connections_go_by_their_server_name(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(2, |number, mut stream| {
        let mut first = [0; 60];
        if stream.read_exact(&mut first).is_ok() {
            let _ = stream.write_all(format!("n{number}\n").as_bytes());
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    let text = configuration(2, nodes.port, "protocol = \"tls\"")
        .replace("127.0.0.2\"\n", "127.0.0.2\"\nhosts = \"a.example\"\n")
        .replace("127.0.0.3\"\n", "127.0.0.3\"\nhosts = \"*.b.example\"\n");
    let server = Server::configured(reactor, &directory, &text);
    for (host, node) in [("a.example", "n1"), ("x.b.example", "n2"), ("y.b.example", "n2"), ("a.example", "n1")] {
        let mut client = connect(server.address());
        let hello = client_hello(host);
        client.write_all(&hello[..20]).unwrap();
        client.write_all(&hello[20..]).unwrap();
        assert_eq!(name(&mut client), node, "{host}");
    }
    let mut client = connect(server.address());
    client.write_all(&client_hello("c.example")).unwrap();
    assert!(client.read_to_end(&mut Vec::new()).is_err(), "nobody serves that");
    let mut client = connect(server.address());
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(client.read_to_end(&mut Vec::new()).is_err(), "that isn't TLS");
    eventually("it's counted", || (count(&server, "mistakes_total") == 1).then_some(()));
}

fn http_connections_go_by_their_first_request(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(2, |number, mut stream| {
        let mut head = [0; 10];
        if stream.read_exact(&mut head).is_ok() {
            let _ = stream.write_all(format!("n{number}\n").as_bytes());
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    let keys = "protocol = \"http\"\npolicy = \"consistent_hash\"";
    let server = dispatch(reactor, &directory, 2, nodes.port, keys);
    let node_of = |path: usize| {
        let mut client = connect(server.address());
        client.write_all(format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
        name(&mut client)
    };
    let first: Vec<String> = (0..20).map(node_of).collect();
    assert!(first.contains(&"n1".to_owned()) && first.contains(&"n2".to_owned()));
    assert_eq!((0..20).map(node_of).collect::<Vec<_>>(), first);
}

/// A client whose whole connection is a node's passes to the new engine: idle, in the middle of what is said, and with one side's end said already.
fn whole_connections_cross_upgrades(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(2, echo);
    let log = "[cluster.port.access_log]\npath = \"log\"\nformat = \"json\"";
    let server = dispatch(reactor, &directory, 2, nodes.port, log);
    let mut clients = [(); 3].map(|()| connect(server.address()));
    let names = clients.each_mut().map(name);
    let said = noise(8 << 20, 7);
    let sending = [&clients[1], &clients[2]].map(|stream| {
        let (mut stream, said) = (stream.try_clone().unwrap(), said.clone());
        std::thread::spawn(move || {
            stream.write_all(&said).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        })
    });
    let mut echoed = vec![0; said.len() / 2];
    clients[2].read_exact(&mut echoed).unwrap();
    for _ in 0..3 {
        upgrade(&server);
        clients[0].write_all(b"still there").unwrap();
        let mut heard = [0; 11];
        clients[0].read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"still there");
    }
    echoed.extend(rest(&mut clients[2]));
    assert!(echoed == said, "{} bytes", echoed.len());
    assert!(rest(&mut clients[1]) == said);
    sending.into_iter().for_each(|sending| sending.join().unwrap());
    // Who has fewest is told by those that have come as well.
    eventually("only the idle one is left", || (count(&server, "connections") == 1).then_some(()));
    let [mut idle, ..] = clients;
    idle.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut idle), b"");
    let line = eventually("a line for each", || {
        let log = std::fs::read_to_string(directory.at("log")).ok()?;
        let lines: Vec<_> = log.lines().map(str::to_owned).collect();
        (lines.len() == 3).then(|| lines[2].clone())
    });
    let (node, bytes) =
        (format!("\"nodes\":[\"{}\"]", names[0]), "\"received_bytes\":33,\"requests\":1,\"sent_bytes\":36");
    assert!(line.contains(&node) && line.contains(bytes), "{line}");
}

/// A call for each would cost more than all else that is done with them.
fn what_is_said_at_once_is_passed_on_at_once(reactor: Reactor) {
    const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    let (directory, largest) = (Directory::new(), Arc::new(AtomicUsize::new(0)));
    let seen = largest.clone();
    let nodes = Nodes::start(1, move |_, mut stream| {
        let mut heard = [0; 1 << 14];
        while let Ok(bytes @ 1..) = stream.read(&mut heard) {
            seen.fetch_max(bytes, Ordering::SeqCst);
            let _ = stream.write_all(&b"$1\r\nv\r\n".repeat(bytes / GET.len()));
        }
    });
    let server = dispatch(reactor, &directory, 1, nodes.port, "protocol = \"redis\"");
    let mut client = connect(server.address());
    let mut heard = [0; 1 << 14];
    // The first waits for a connection to the node.
    for count in [1, 100] {
        client.write_all(&GET.repeat(count)).unwrap();
        assert_eq!(client.read(&mut heard).unwrap(), 7 * count);
    }
    assert_eq!(largest.load(Ordering::SeqCst), 100 * GET.len());
    assert_eq!(count(&server, "requests_total"), 101);
}

on_both_reactors!(
    what_is_said_at_once_is_passed_on_at_once,
    whole_connections_cross_upgrades,
    who_only_listens_hears_and_who_ends_in_a_request_is_cut,
    the_control_socket_shows_ports_and_drains_their_nodes,
    a_drain_waits_for_what_ports_have,
    nodes_are_told_the_client,
    tls_connections_go_by_their_server_name,
    http_connections_go_by_their_first_request,
    connections_go_to_whom_has_fewest,
    a_node_s_end_is_passed_on_and_so_is_its_reset,
    a_node_that_is_away_is_passed_over_until_it_is_back,
    a_connection_goes_to_the_port_that_it_came_to,
    what_a_node_that_is_away_was_to_be_told_is_told_another,
    a_node_that_breaks_off_untold_is_passed_over_and_one_that_was_told_cuts,
    a_drain_ends_relays_that_say_nothing_more,
    a_drain_ends_relays_and_probes_that_reach_nobody,
    who_says_nothing_is_let_go,
    without_a_node_a_client_is_cut,
    nodes_that_no_way_leads_to_have_nothing_under_way,
    connections_outlive_a_reload_and_their_port,
);
