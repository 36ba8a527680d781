//! Nodes that die while clients ask without a pause, for what no other server could make: a node tells of short replies as they stand. How long who is in the
//! middle of a reply has to wait. And nodes to which requests were passed on.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::motion::{
    Begun, ask, asking, await_tags, connect, content, read_any_reply, read_reply, read_slowly, up, up_with,
};
use super::{Folder, Lab, is_possible, within};

/// What `/bit-by-bit` says comes in two parts: the first is sent before it can be told of.
const HANDLERS: &str = "[[site.handler]]\npath = '/there'\nredirect = { to = '/here', kind = 'temporary' }\n\
    [[site.handler]]\npath = '/made/*'\nproxy = { to = '127.0.0.1:9000' }\n\
    [[site.handler]]\npath = '/bit-by-bit'\n\
    cgi = { command = ['/bin/sh', '-c', 'echo Content-Length: 9; echo; printf \"it is \"; sleep 0.01; echo so'] }\n";

/// What is asked for, and how its reply begins.
const ASKED: [(&str, &str); 4] = [
    ("small", "HTTP/1.1 200 "),
    ("nothing", "HTTP/1.1 404 "),
    ("there", "HTTP/1.1 302 "),
    ("made/by-another", "HTTP/1.1 201 "),
];

/// A server that answers each request, at this address of its host.
fn answer_all(listener: TcpListener) {
    for stream in listener.incoming() {
        let mut stream = stream.expect("a connection");
        thread::spawn(move || {
            let mut room = [0; 4096];
            // leat writes a head at once.
            while stream.read(&mut room).is_ok_and(|count| count > 0) {
                let _ = stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 7\r\n\r\nit's so");
            }
        });
    }
}

#[test]
fn replies_that_only_their_node_could_make_are_whole_when_it_dies() {
    if !is_possible() {
        return;
    }
    for begun in [Begun::AtDispatcher, Begun::AtNode] {
        let (lab, folder) = (Lab::new(), Folder::new("deaths"));
        let files = BTreeMap::from([("small".to_owned(), b"small".to_vec())]);
        up_with(&lab, &folder, begun, &files, ["policy = 'round_robin'", HANDLERS]);
        for node in ["n1", "n2", "n3"] {
            let listener = lab.at(node, || TcpListener::bind("127.0.0.1:9000").expect("nobody has it"));
            thread::spawn(|| answer_all(listener));
        }
        let clients = lab.at("client1", || (0..24).map(|_| connect()).collect::<Vec<_>>());
        let (is_over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            for (place, mut stream) in clients.into_iter().enumerate() {
                let (is_over, answered) = (&is_over, &answered);
                scope.spawn(move || {
                    let mut rest = Vec::new();
                    for (name, beginning) in ASKED.iter().cycle().skip(place) {
                        ask(&mut stream, &[name]);
                        let (head, _) = read_any_reply(&mut stream, &mut rest).expect("a reply");
                        assert!(head.starts_with(beginning), "{name}: {head}");
                        answered.fetch_add(1, Ordering::Relaxed);
                        if is_over.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                });
            }
            let recovered = || lab.number("dispatcher", "leat_flows_recovered_total");
            let cut = || lab.number("dispatcher", "leat_flows_cut_total");
            // A panic would leave the clients at it.
            let died = std::panic::catch_unwind(|| {
                for node in ["n1", "n2"] {
                    let (before, known) = (answered.load(Ordering::Relaxed), recovered());
                    within("all nodes are asked", || answered.load(Ordering::Relaxed) > before + 2000);
                    lab.kill_engine(node);
                    within("what it had goes on", || recovered() > known || cut() > 0);
                }
            });
            is_over.store(true, Ordering::Relaxed);
            died.expect("they go on");
        });
        let mut clients = lab.at("client1", || (0..24).map(|_| (connect(), Vec::new())).collect::<Vec<_>>());
        clients.iter_mut().for_each(|(stream, _)| ask(stream, &["bit-by-bit"]));
        for (stream, rest) in &mut clients {
            assert_eq!(read_reply(stream, rest).expect("a reply"), b"it is so\n");
        }
        lab.kill_engine("n3");
        for (stream, rest) in &mut clients {
            ask(stream, &["small"]);
            assert_eq!(read_reply(stream, rest).expect("another reply"), b"small");
        }
        assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
    }
}

#[test]
fn who_asks_for_several_replies_at_once_gets_all_of_them_when_their_node_dies() {
    const ASKED: [&str; 5] = ["small", "page", "small", "page", "small"];
    if !is_possible() {
        return;
    }
    for begun in [Begun::AtDispatcher, Begun::AtNode] {
        let (lab, folder) = (Lab::new(), Folder::new("pipelined"));
        let files = BTreeMap::from(
            [("small", 100), ("page", 20_000)].map(|(name, bytes)| (name.to_owned(), content(name, bytes))),
        );
        up(&lab, &folder, begun, &files, "policy = 'round_robin'");
        let clients = lab.at("client1", || (0..24).map(|_| (connect(), Vec::new())).collect::<Vec<_>>());
        clients.iter().for_each(|(stream, _)| stream.set_nodelay(true).expect("an option"));
        let (turns, recovered) = (AtomicU64::new(0), || lab.number("dispatcher", "leat_flows_recovered_total"));
        let requests = ASKED.map(|name| format!("GET /{name} HTTP/1.1\r\nHost: x\r\n\r\n")).concat();
        let cookies = format!("Host: x\r\nCookie: {}\r\n", "c".repeat(2800));
        let all_requests = [requests.replacen("Host: x\r\n", &cookies, 1), requests];
        let take_turn = |(stream, rest): &mut (TcpStream, Vec<u8>)| {
            // In two packets, of which the second begins somewhere.
            let turn = turns.fetch_add(1, Ordering::Relaxed) as usize;
            let requests = &all_requests[turn % all_requests.len()];
            let (first, second) = requests.split_at(turn * 7 % requests.len());
            [first, second].iter().for_each(|part| stream.write_all(part.as_bytes()).expect("it's open"));
            for name in ASKED {
                assert!(read_reply(stream, rest).expect("a reply") == files[name], "{name}");
            }
        };
        asking(clients, take_turn, || {
            for node in ["n1", "n2", "n3"] {
                let (before, known) = (turns.load(Ordering::Relaxed), recovered());
                within("all nodes are asked", || turns.load(Ordering::Relaxed) > before + 2000);
                lab.kill_engine(node);
                within("what it had goes on", || recovered() > known);
            }
        });
        assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
    }
}

#[test]
fn who_is_in_the_middle_of_a_reply_when_its_node_dies_waits_for_no_timer() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("waits"));
    let big = content("big", 3 << 20);
    up(&lab, &folder, Begun::AtNode, &BTreeMap::from([("big".to_owned(), big.clone())]), "policy = 'round_robin'");
    await_tags(&lab, "big");
    let clients = lab.at("client1", || (0..12).map(|_| connect()).collect::<Vec<_>>());
    let (is_over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let longest = thread::scope(|scope| {
        let (is_over, answered, big) = (&is_over, &answered, &big);
        let read = |mut stream| {
            scope.spawn(move || {
                let (mut rest, mut longest) = (Vec::new(), Duration::ZERO);
                while !is_over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    ask(&mut stream, &["big"]);
                    assert!(read_reply(&mut stream, &mut rest).expect("a reply") == *big);
                    longest = longest.max(began.elapsed());
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                longest
            })
        };
        let readers: Vec<_> = clients.into_iter().map(read).collect();
        let recovered = || lab.number("dispatcher", "leat_flows_recovered_total");
        let died = std::panic::catch_unwind(|| {
            within("all have begun", || answered.load(Ordering::Relaxed) > 60);
            lab.kill_engine("n1");
            within("what it had goes on", || recovered() > 0);
        });
        is_over.store(true, Ordering::Relaxed);
        died.expect("they go on");
        readers.into_iter().map(|reader| reader.join().expect("a reader")).max().expect("there are some")
    });
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
    // The kernel would send again after a second, and, as it took that for a mistake, go on three seconds later: more than 5 s with the lease.
    assert!(longest < Duration::from_secs(4), "{longest:?}");
}

#[test]
fn replies_that_were_passed_on_go_on_at_another_node_when_theirs_dies() {
    if !is_possible() {
        return;
    }
    for is_heard in [true, false] {
        let (lab, folder) = (Lab::new(), Folder::new("broken-off"));
        let big = content("big", 8 << 20);
        let files = BTreeMap::from([("big".to_owned(), big.clone())]);
        up(&lab, &folder, Begun::AtNode, &files, "policy = 'round_robin'\nhand_over = 'never'");
        await_tags(&lab, "big");
        let outcomes = read_slowly(&lab, 12, "big", &big, || match is_heard {
            true => lab.kill("n1"),
            false => drop(lab.well(&["exec", "n1", "ip", "link", "set", "eth0", "down"])),
        });
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(true))), "{outcomes:?}");
        let counted =
            |family: &str| lab.number("dispatcher", &format!("leat_upstream_{family}_total{{site=\"cluster\"}}"));
        assert!(counted("retries") > 0 && counted("failures") == 0, "those that n1 had");
    }
}

/// A server that hears requests and answers none.
fn hear_all(listener: &TcpListener, heard: &Arc<AtomicU64>) {
    for stream in listener.incoming() {
        let (mut stream, heard) = (stream.expect("a connection"), heard.clone());
        thread::spawn(move || {
            let mut room = [0; 4096];
            heard.fetch_add(u64::from(stream.read(&mut room).is_ok_and(|count| count > 0)), Ordering::Relaxed);
            while stream.read(&mut room).is_ok_and(|count| count > 0) {}
        });
    }
}

/// How a client is answered that posts so many bytes on a connection that a node has already.
fn post(mut stream: TcpStream, bytes: usize) -> io::Result<String> {
    let mut rest = Vec::new();
    ask(&mut stream, &["small"]);
    read_reply(&mut stream, &mut rest)?;
    let head = format!("POST /made/it HTTP/1.1\r\nHost: x\r\nContent-Length: {bytes}\r\n\r\n");
    let (first, second) = head.split_at(head.len() / 2);
    stream.write_all(first.as_bytes())?;
    stream.write_all(&[second.as_bytes(), &vec![b'x'; bytes]].concat())?;
    let (head, _) = read_any_reply(&mut stream, &mut rest)?;
    assert_eq!(stream.read(&mut [0; 10])?, 0, "its end");
    Ok(head)
}

#[test]
fn who_has_asked_for_what_may_have_been_done_is_told_when_its_node_dies() {
    if !is_possible() {
        return;
    }
    for begun in [Begun::AtDispatcher, Begun::AtNode] {
        let (lab, folder) = (Lab::new(), Folder::new("posts"));
        let files = BTreeMap::from([("small".to_owned(), b"small".to_vec())]);
        up_with(&lab, &folder, begun, &files, ["policy = 'round_robin'", HANDLERS]);
        let heard = Arc::new(AtomicU64::new(0));
        let nodes = ["n1", "n2", "n3"];
        for node in nodes {
            let listener = lab.at(node, || TcpListener::bind("127.0.0.1:9000").expect("nobody has it"));
            let heard = heard.clone();
            thread::spawn(move || hear_all(&listener, &heard));
        }
        let clients = lab.at("client1", || (0..12).map(|_| connect()).collect::<Vec<_>>());
        let posting = |(place, stream)| {
            let bytes = [10, 2000, 60_000][place % 3];
            thread::spawn(move || (bytes, post(stream, bytes)))
        };
        let posts: Vec<_> = clients.into_iter().enumerate().map(posting).collect();
        within("all are being asked", || heard.load(Ordering::Relaxed) >= posts.len() as u64);
        nodes.iter().for_each(|node| lab.kill_engine(node));
        for post in posts {
            let (bytes, answer) = post.join().expect("no panic");
            let head = answer.as_ref().map(String::as_str).unwrap_or_default();
            assert!(head.starts_with("HTTP/1.1 502 ") && head.contains("Connection: close"), "{bytes}: {answer:?}");
        }
        assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
    }
}

/// A node that refuses much tells of its refusals too, as who was refused has often asked again by the time it dies.
#[test]
fn who_is_refused_again_and_again_is_cut_by_no_nodes_death() {
    const OF_SITE: &str = "max_in_flight = 1\n[[site.handler]]\npath = '/burn'\nburn = { us = 2000 }\n";
    if !is_possible() {
        return;
    }
    for begun in [Begun::AtDispatcher, Begun::AtNode] {
        let (lab, folder) = (Lab::new(), Folder::new("refused"));
        up_with(&lab, &folder, begun, &BTreeMap::new(), ["policy = 'round_robin'", OF_SITE]);
        let clients = lab.at("client1", || (0..48).map(|_| (connect(), Vec::new())).collect::<Vec<_>>());
        let (served, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        let ask_once = |(stream, rest): &mut (TcpStream, Vec<u8>)| {
            ask(stream, &["burn"]);
            let (head, _) = read_any_reply(stream, rest).expect("a reply");
            assert!(head.starts_with("HTTP/1.1 200 ") || head.starts_with("HTTP/1.1 503 "), "{head}");
            if head.starts_with("HTTP/1.1 200 ") { &served } else { &refused }.fetch_add(1, Ordering::Relaxed);
        };
        let recovered = || lab.number("dispatcher", "leat_flows_recovered_total");
        let cut = || lab.number("dispatcher", "leat_flows_cut_total");
        asking(clients, ask_once, || {
            for node in ["n1", "n2", "n3"] {
                let (before, known) = ([&served, &refused].map(|count| count.load(Ordering::Relaxed)), recovered());
                within("some are served and some refused", || {
                    served.load(Ordering::Relaxed) > before[0] + 100 && refused.load(Ordering::Relaxed) > before[1] + 50
                });
                lab.kill_engine(node);
                within("what it had goes on", || recovered() > known || cut() > 0);
            }
        });
        assert_eq!(cut(), 0);
    }
}
