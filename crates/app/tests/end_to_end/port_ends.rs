//! How connections end at a dispatcher's ports: what is cut, what ends in order, and what is heard before.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::on_both_reactors;
use crate::ports::{Nodes, configuration, connect, count, dispatch, rest};
use crate::reload::engines;
use crate::support::patience::PATIENCE;
use crate::support::server::signal;
use crate::support::{Directory, Reactor, Server, eventually};
use crate::upgrade::{ended, upgrade};

const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
const SELECT: &[u8] = b"*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n";
const POP: &[u8] = b"*3\r\n$5\r\nBLPOP\r\n$1\r\nk\r\n$1\r\n0\r\n";

/// Answers each GET with this value.
fn answer_gets(mut stream: &TcpStream, value: &[u8]) {
    let answer = [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat();
    while stream.read_exact(&mut [0; GET.len()]).is_ok() {
        let _ = stream.write_all(&answer);
    }
}

fn hear(stream: &mut TcpStream, expected: &[u8]) {
    let mut heard = vec![0; expected.len()];
    stream.read_exact(&mut heard).unwrap();
    assert!(heard == expected, "{} instead of {}", heard.escape_ascii(), expected.escape_ascii());
}

fn assert_is_cut(stream: &mut TcpStream) {
    let error = stream.read_to_end(&mut Vec::new()).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

fn a_request_s_time_begins_with_its_first_byte(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(1, |_, stream| answer_gets(&stream, b"v"));
    let tick = format!("[[cluster.port]]\nname = \"tick\"\nlisten = \"127.0.0.4:0\"\nnode_port = {}\n", nodes.port);
    let keys = format!("protocol = \"redis\"\nhead_timeout = \"2s\"\n{tick}idle_timeout = \"100ms\"");
    let text = configuration(1, nodes.port, &keys).replace("[admin]", "[limits]\nstall_timeout = \"100ms\"\n[admin]");
    let server = Server::configured_with_listeners(reactor, &directory, &text, 2);
    let mut kept = connect(server.address());
    kept.write_all(GET).unwrap();
    hear(&mut kept, b"$1\r\nv\r\n");
    // Whoever says half of something now is cut when a request's time is over.
    let mut half = connect(server.address());
    half.write_all(&GET[..9]).unwrap();
    assert_is_cut(&mut half);
    // That time begins now for the other one, whoever is looked at meanwhile.
    kept.write_all(&GET[..9]).unwrap();
    assert_eq!(rest(&mut connect(server.addresses()[1])), b"");
    kept.write_all(&GET[9..]).unwrap();
    hear(&mut kept, b"$1\r\nv\r\n");
    assert_eq!(count(&server, "mistakes_total"), 1);
}

fn a_server_that_ends_says_all_that_it_has(reactor: Reactor) {
    let directory = Directory::new();
    let value = vec![b'v'; 200_000];
    let sent = value.clone();
    let nodes = Nodes::start(1, move |_, stream| answer_gets(&stream, &sent));
    let mut server = dispatch(reactor, &directory, 1, nodes.port, "protocol = \"redis\"");
    let mut idle = connect(server.address());
    idle.write_all(GET).unwrap();
    let expected = [b"$200000\r\n", &value[..], b"\r\n"].concat();
    hear(&mut idle, &expected);
    let mut slow = connect(server.address());
    slow.write_all(GET).unwrap();
    let size = expected.len() as u64;
    eventually("the answer is on its way", || (count(&server, "sent_bytes_total") == 2 * size).then_some(()));
    let mut busy = connect(server.address());
    busy.write_all(&GET.repeat(100)).unwrap();
    eventually("it's told", || (count(&server, "requests_total") == 102).then_some(()));
    server.signal("TERM");
    assert_eq!(rest(&mut idle), b"", "nothing was under way");
    assert!(rest(&mut slow) == expected, "all of it");
    assert!(rest(&mut busy) == expected.repeat(100), "all of them");
    assert!(server.wait_for_end().success());
}

fn who_is_let_go_before_hearing_all_is_cut(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(1, |_, mut stream| {
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(&vec![b'x'; 50_000_000]);
    });
    let server = dispatch(reactor, &directory, 1, nodes.port, "idle_timeout = \"300ms\"");
    let mut client = connect(server.address());
    client.read_exact(&mut [0; 10]).unwrap();
    eventually("it's let go", || (count(&server, "connections") == 0).then_some(()));
    assert_is_cut(&mut client);
}

fn who_is_let_go_as_the_server_ends_is_cut(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(1, |_, mut stream| {
        let _ = stream.write_all(b"half of it");
        let _ = stream.read(&mut [0; 1]);
    });
    let limits = "[limits]\ndrain_timeout = \"300ms\"\n[cluster.health]";
    let text = configuration(1, nodes.port, "").replace("[cluster.health]", limits);
    let mut server = Server::configured(reactor, &directory, &text);
    let mut clients = [(); 8].map(|()| connect(server.address()));
    clients.iter_mut().for_each(|client| hear(client, b"half of it"));
    server.signal("TERM");
    clients.iter_mut().for_each(assert_is_cut);
    assert!(server.wait_for_end().success());
}

fn who_waits_for_others_and_goes_takes_nothing(reactor: Reactor) {
    let directory = Directory::new();
    let (asked, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (asking, ending) = (asked.clone(), ended.clone());
    // As Redis does: it forgets who ends while nobody has pushed anything.
    let nodes = Nodes::start(1, move |_, mut stream| {
        if stream.read_exact(&mut [0; POP.len()]).is_err() {
            return;
        }
        if asking.fetch_add(1, Ordering::SeqCst) == 1 {
            stream.write_all(b"*2\r\n$1\r\nk\r\n$3\r\njob\r\n").unwrap();
        }
        if matches!(stream.read(&mut [0; 1]), Ok(0)) {
            ending.fetch_add(1, Ordering::SeqCst);
        }
    });
    let server = dispatch(reactor, &directory, 1, nodes.port, "protocol = \"redis\"");
    let mut gone = connect(server.address());
    gone.write_all(POP).unwrap();
    eventually("the node is asked", || (asked.load(Ordering::SeqCst) == 1).then_some(()));
    drop(gone);
    eventually("the node hears that the client has gone", || (ended.load(Ordering::SeqCst) == 1).then_some(()));
    // Who only ends its side hears what there is.
    let mut half_closed = connect(server.address());
    half_closed.write_all(POP).unwrap();
    half_closed.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut half_closed), b"*2\r\n$1\r\nk\r\n$3\r\njob\r\n");
    eventually("both are over", || (count(&server, "connections") == 0).then_some(()));
    assert_eq!(count(&server, "failures_total"), 0, "no node has failed");
}

fn empty_lines_and_empty_requests_wait_for_nothing(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(2, |_, stream| answer_gets(&stream, b"v"));
    let server = dispatch(reactor, &directory, 2, nodes.port, "protocol = \"redis\"");
    let mut client = connect(server.address());
    for nothing in [&b"\r\n"[..], b"*0\r\n", b"*-1\r\n\r\n", b" \r\n"] {
        client.write_all(&[nothing, GET, nothing].concat()).unwrap();
        hear(&mut client, b"$1\r\nv\r\n");
    }
    client.write_all(&[GET, b"\r\n"].concat()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut client), b"$1\r\nv\r\n", "an empty line at the end is no half request");
    assert_eq!(count(&server, "requests_total"), 5);
}

fn each_request_to_a_node_that_is_away_goes_where_its_key_is_asked_for_later(reactor: Reactor) {
    let directory = Directory::new();
    let requests: Vec<_> = (0..60).map(|key| format!("*2\r\n$3\r\nGET\r\n$3\r\nk{key:02}\r\n")).collect();
    let size = requests[0].len();
    let nodes = Nodes::start(3, move |number, mut stream| {
        while stream.read_exact(&mut vec![0; size]).is_ok() {
            let _ = stream.write_all(format!(":{number}\r\n").as_bytes());
        }
    });
    // Nobody listens at the fourth, and no probe has said so.
    let text = configuration(4, nodes.port, "protocol = \"redis\"").replace("100ms", "1m");
    let server = Server::configured(reactor, &directory, &text);
    server.signal("STOP");
    let mut client = connect(server.address());
    client.write_all(requests.concat().as_bytes()).unwrap();
    server.signal("CONT");
    let hear = |client: &mut TcpStream| {
        let mut answer = [0; 4];
        client.read_exact(&mut answer).unwrap();
        answer[1]
    };
    let first: Vec<u8> = requests.iter().map(|_| hear(&mut client)).collect();
    assert!(count(&server, "connect_failures_total") > 0);
    let mut later = connect(server.address());
    let ask = |request: &String| {
        later.write_all(request.as_bytes()).unwrap();
        hear(&mut later)
    };
    assert_eq!(requests.iter().map(ask).collect::<Vec<u8>>(), first);
}

fn without_a_node_each_request_is_answered_so(reactor: Reactor) {
    let directory = Directory::new();
    // Nobody listens at the port of tcpmux, and no probe has said so.
    let text = configuration(3, 1, "protocol = \"redis\"").replace("100ms", "1m");
    let server = Server::configured(reactor, &directory, &text);
    let refused = b"-ERR leat: no node is up that could have this key\r\n";
    // The first one finds out, the others know.
    for _ in 0..3 {
        for first in [&b"*2\r\n$6\r\nSELECT\r\n$1\r\n1\r\n"[..], b"PING\r\n", GET] {
            let mut client = connect(server.address());
            client.write_all(&[first, GET, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\nabc\r\n", GET].concat()).unwrap();
            hear(&mut client, &refused.repeat(4));
        }
    }
}

fn what_clients_say_takes_no_node_out(reactor: Reactor) {
    let directory = Directory::new();
    let breaks_off = Arc::new(AtomicBool::new(false));
    let breaking = breaks_off.clone();
    let nodes = Nodes::start(2, move |number, mut stream| {
        while stream.read_exact(&mut [0; GET.len()]).is_ok() {
            if number == 2 && breaking.load(Ordering::SeqCst) {
                return;
            }
            let _ = stream.write_all(format!(":{number}\r\n").as_bytes());
        }
    });
    let server = dispatch(reactor, &directory, 2, nodes.port, "protocol = \"redis\"");
    let ask = |key: char, times: usize| {
        let mut client = connect(server.address());
        client.write_all(format!("*2\r\n$3\r\nGET\r\n$1\r\n{key}\r\n").repeat(times).as_bytes()).unwrap();
        let mut answer = [0; 4];
        client.read_exact(&mut answer).map(|()| answer[1])
    };
    let second = ('a'..='z').find(|&key| ask(key, 1).unwrap() == b'2').expect("a key of the second node");
    breaks_off.store(true, Ordering::SeqCst);
    // Redis closes without a word where it's told what no client of it says. That is no reason to look for the key elsewhere.
    for times in [100, 1, 1, 1, 1, 1, 1, 1] {
        let error = ask(second, times).expect_err("the key is asked for where it is, and not at the other node");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    breaks_off.store(false, Ordering::SeqCst);
    assert_eq!(ask(second, 1).unwrap(), b'2');
}

fn a_node_that_breaks_off_before_it_has_heard_anything_is_ejected(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(2, |number, mut stream| {
        // Whoever leaves the header unread resets as it closes.
        if number == 1 {
            let _ = stream.write_all(b"n1\n");
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    let server = dispatch(reactor, &directory, 2, nodes.port, "send_proxy = \"v1\"");
    // The first node has a client, so that others are sent to the second one.
    let mut clients = Vec::new();
    eventually("the second node is ejected", || {
        let mut client = connect(server.address());
        if client.read_exact(&mut [0; 3]).is_ok() {
            clients.push(client);
        }
        server.stderr().iter().any(|line| line.contains("it: node n2 is ejected: its requests failed")).then_some(())
    });
}

fn a_mistake_is_told_after_the_answers_to_what_came_before(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(2, |_, stream| answer_gets(&stream, b"v"));
    let server = dispatch(reactor, &directory, 2, nodes.port, "protocol = \"redis\"");
    let gets: String = ('a'..='z').map(|key| format!("*2\r\n$3\r\nGET\r\n$1\r\n{key}\r\n")).collect();
    for (turn, wrong) in (1..).zip([&b"!\r\n"[..], b"*x\r\n", b"*2\r\n$3\r\nGET\r\n!1\r\na\r\n"]) {
        let mut client = connect(server.address());
        client.write_all(&[gets.as_bytes(), wrong].concat()).unwrap();
        hear(&mut client, &b"$1\r\nv\r\n".repeat(26));
        let told = rest(&mut client);
        assert!(told.starts_with(b"-ERR Protocol error: ") && told.ends_with(b"\r\n"), "{}", told.escape_ascii());
        assert_eq!((count(&server, "mistakes_total"), count(&server, "failures_total")), (turn, 0));
    }
}

fn who_has_heard_a_part_when_the_engine_dies_is_cut(reactor: Reactor) {
    let directory = Directory::new();
    let nodes = Nodes::start(1, |_, mut stream| {
        let _ = stream.write_all(b"a part");
        let _ = stream.read(&mut [0]);
    });
    let server = dispatch(reactor, &directory, 1, nodes.port, "protocol = \"tcp\"");
    let mut client = connect(server.address());
    hear(&mut client, b"a part");
    engines(&server).into_iter().for_each(|pid| signal(pid, "KILL"));
    assert_is_cut(&mut client);
}

/// Between two requests, with half of one said, and with what it has said once for all nodes.
fn who_may_have_several_nodes_crosses_upgrades(reactor: Reactor) {
    let directory = Directory::new();
    let introduced = Arc::new(AtomicUsize::new(0));
    let told = introduced.clone();
    let nodes = Nodes::start(2, move |_, mut stream| {
        let mut select = [0; SELECT.len()];
        if stream.read_exact(&mut select).is_err() {
            // A probe.
            return;
        }
        assert_eq!(select, SELECT);
        told.fetch_add(1, Ordering::SeqCst);
        let _ = stream.write_all(b"+OK\r\n");
        answer_gets(&stream, b"v");
    });
    let log = "protocol = \"redis\"\n[cluster.port.access_log]\npath = \"log\"\nformat = \"json\"";
    let server = dispatch(reactor, &directory, 2, nodes.port, log);
    let mut clients = [(); 8].map(|()| connect(server.address()));
    for client in &mut clients {
        client.write_all(&[SELECT, GET].concat()).unwrap();
        hear(client, b"+OK\r\n$1\r\nv\r\n");
        client.write_all(&GET[..9]).unwrap();
    }
    for _ in 0..3 {
        upgrade(&server);
        for client in &mut clients {
            client.write_all(&[&GET[9..], &GET[..9]].concat()).unwrap();
            hear(client, b"$1\r\nv\r\n");
        }
    }
    // Nodes that come later are told what the others were; the first that a client has may not be that of its key.
    assert!(introduced.load(Ordering::SeqCst) >= 4 * clients.len());
    drop(clients);
    eventually("a line for each, with all of its requests", || {
        let log = std::fs::read_to_string(directory.at("log")).ok()?;
        (log.lines().filter(|line| line.contains("\"requests\":5")).count() == 8).then_some(())
    });
}

/// It's in the middle of a request, so it stays in the old engine until that is answered.
fn who_waits_for_an_answer_stays_until_it_is_there(reactor: Reactor) {
    let directory = Directory::new();
    let may_answer = Arc::new(AtomicBool::new(false));
    let told = may_answer.clone();
    let nodes = Nodes::start(1, move |_, mut stream| {
        let _ = stream.read_exact(&mut [0; GET.len()]);
        eventually("it may answer", || told.load(Ordering::SeqCst).then_some(()));
        let _ = stream.write_all(b"$1\r\nv\r\n");
        answer_gets(&stream, b"w");
    });
    let server = dispatch(reactor, &directory, 1, nodes.port, "protocol = \"redis\"");
    let mut client = connect(server.address());
    client.write_all(GET).unwrap();
    let before = engines(&server);
    server.signal("USR2");
    server.wait_for_stdout("second start", |lines| (lines.len() >= 2).then_some(()));
    may_answer.store(true, Ordering::SeqCst);
    hear(&mut client, b"$1\r\nv\r\n");
    ended(&server, &before);
    client.write_all(GET).unwrap();
    hear(&mut client, b"$1\r\nv\r\n");
}

on_both_reactors!(
    who_may_have_several_nodes_crosses_upgrades,
    who_waits_for_an_answer_stays_until_it_is_there,
    a_mistake_is_told_after_the_answers_to_what_came_before,
    who_has_heard_a_part_when_the_engine_dies_is_cut,
    without_a_node_each_request_is_answered_so,
    what_clients_say_takes_no_node_out,
    a_node_that_breaks_off_before_it_has_heard_anything_is_ejected,
    each_request_to_a_node_that_is_away_goes_where_its_key_is_asked_for_later,
    a_request_s_time_begins_with_its_first_byte,
    a_server_that_ends_says_all_that_it_has,
    who_is_let_go_before_hearing_all_is_cut,
    who_is_let_go_as_the_server_ends_is_cut,
    who_waits_for_others_and_goes_takes_nothing,
    empty_lines_and_empty_requests_wait_for_nothing,
);
