//! Connections through `proxy` that become WebSockets. What is said on them are bytes to leat, and to these tests.

use std::io::{Read, Write};

use crate::on_both_reactors;
use crate::reload::engines;
use crate::support::directory::noise;
use crate::support::{Client, Directory, Reactor, Server, Upstream, eventually};
use crate::upgrade::{ended, upgrade};

const ASK: &str = "GET /live/x HTTP/1.1\r\nHost: it.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: abc\r\n\r\n";
const AGREE: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: def\r\n\r\n";

/// Answers `/live/*` with an echo that says "hi" first and "bye" last, and everything else with a reply.
fn upstream() -> Upstream {
    Upstream::start(|conversation| {
        while let Some(head) = conversation.head() {
            if !head.contains("/live/") {
                conversation.say("HTTP/1.1 400 No\r\nContent-Length: 2\r\n\r\nno");
                continue;
            }
            assert!(head.contains("\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"), "{head}");
            assert!(head.contains("\r\nSec-WebSocket-Key: abc\r\n"), "{head}");
            conversation.say([AGREE, "hi"].concat());
            conversation.echo();
            conversation.say("bye");
            conversation.end();
            return;
        }
    })
}

fn serve(reactor: Reactor, to: &Upstream, limits: &str, keys: &str) -> (Directory, Server) {
    let directory = Directory::new();
    let text = format!(
        "workers = 1\n[limits]\n{limits}\n[[site]]\nlisten = \"127.0.0.1:0\"\n\
         [[site.handler]]\npath = \"/*\"\n[site.handler.proxy]\nto = \"{}\"\n{keys}\n",
        to.address()
    );
    let server = Server::configured(reactor, &directory, &text);
    (directory, server)
}

fn open(server: &Server) -> Client {
    let mut client = server.connect();
    client.send(ASK);
    let head = client.reply_head().unwrap();
    assert_eq!((head.status, head.must("upgrade"), head.must("connection")), (101, "websocket", "Upgrade"));
    assert_eq!(head.must("sec-websocket-accept"), "def");
    assert_eq!(client.read_content(2).unwrap(), b"hi");
    client
}

fn what_is_said_goes_both_ways_until_one_side_ends(reactor: Reactor) {
    let upstream = upstream();
    let (_directory, server) = serve(reactor, &upstream, "", "connections = 1");
    let mut client = open(&server);
    for round in 0..100u8 {
        let said = vec![round; 1000];
        client.send(&said);
        assert!(client.read_content(said.len()).unwrap() == said);
    }
    // Its place is free for requests, and for others like it.
    assert_eq!(server.get("/").text(), "no");
    let other = open(&server);
    drop(other);
    // More than all buffers hold, which nobody takes for a while.
    let said: Vec<u8> = (0..8_000_000u32).map(|at| (at % 251) as u8).collect();
    let mut sender = client.stream().try_clone().unwrap();
    let sent = said.clone();
    let sending = std::thread::spawn(move || {
        sender.write_all(&sent).unwrap();
        sender.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut echoed = Vec::new();
    client.stream().read_to_end(&mut echoed).unwrap();
    sending.join().unwrap();
    assert!(echoed == [&said[..], b"bye"].concat(), "{} bytes", echoed.len());
}

/// Around the size of a receive buffer (8 KiB), what is said is received in other ways; each message waits for the echo of the one before.
fn messages_of_all_sizes_follow_each_other(reactor: Reactor) {
    let upstream = upstream();
    let (_directory, server) = serve(reactor, &upstream, "", "");
    let mut client = open(&server);
    for size in [1, 8191, 8192, 8193, 5, 16_384, 16_385, 100, 200_000, 8192, 1].repeat(5) {
        let said = noise(size, size as u64);
        client.send(&said);
        assert!(client.read_content(size).unwrap() == said, "a message of {size} bytes");
    }
    client.finish_sending();
    assert_eq!(client.until_closed(), b"bye");
}

/// More is said at once than waits for the server, who answers when all of it has come.
fn a_long_message_goes_on_by_itself(reactor: Reactor) {
    const BYTES: usize = 1 << 20;
    let upstream = Upstream::start(|conversation| {
        let _ = conversation.head();
        conversation.say([AGREE, "hi"].concat());
        let said = conversation.content(BYTES).unwrap_or_default();
        conversation.say(if said.iter().all(|&byte| byte == b'm') { "all" } else { "???" });
        conversation.until_closed();
    });
    let (_directory, server) = serve(reactor, &upstream, "", "");
    let mut client = open(&server);
    client.send(vec![b'm'; BYTES]);
    assert_eq!(client.read_content(3).unwrap(), b"all");
}

fn nobody_is_cut_for_being_silent_for_a_while(reactor: Reactor) {
    let upstream = upstream();
    let limits = "stall_timeout = \"200ms\"\nidle_timeout = \"200ms\"\nhead_timeout = \"1s\"";
    let (_directory, server) = serve(reactor, &upstream, limits, "timeout = \"200ms\"");
    let mut client = open(&server);
    // Longer than a request may take, a reply may stall or a connection be idle: what is said by another one shows that time has passed.
    let mut limited = server.connect();
    limited.send("GET /live/y HTTP/1.1\r\nHost: it.test\r\nContent-Le");
    limited.until_closed();
    client.send("still there");
    assert_eq!(client.read_content(11).unwrap(), b"still there");
    let (_directory, server) = serve(reactor, &upstream, "", "websocket_timeout = \"200ms\"");
    assert_eq!(open(&server).until_closed(), b"");
}

fn it_is_no_request_in_flight(reactor: Reactor) {
    let upstream = upstream();
    let directory = Directory::new();
    let text = format!(
        "workers = 1\n[admin]\nlisten = \"127.0.0.1:0\"\n[[site]]\nname = \"it\"\nmax_in_flight = 1\nlisten = \"127.0.0.1:0\"\n\
         [[site.handler]]\npath = \"/*\"\n[site.handler.proxy]\nto = \"{}\"\n",
        upstream.address()
    );
    let server = Server::configured(reactor, &directory, &text);
    let mut clients = [open(&server), open(&server), open(&server)];
    assert_eq!(server.get("/").text(), "no");
    for client in &mut clients {
        client.send("still there");
        assert_eq!(client.read_content(11).unwrap(), b"still there");
    }
    drop(clients);
    assert_eq!(server.get("/").text(), "no");
    eventually("no request is left", || {
        let page = Client::connect(server.admin()).get("/metrics").text();
        page.contains("\nleat_requests_started{site=\"it\"} 0\n").then_some(())
    });
}

fn who_does_not_agree_answers(reactor: Reactor) {
    let upstream = upstream();
    let (_directory, server) = serve(reactor, &upstream, "", "");
    let mut client = server.connect();
    client.send(ASK.replace("/live/x", "/dead/x"));
    assert_eq!(client.reply().status, 400);
    assert_eq!(client.get("/").status, 400, "the connection goes on");
    // Another protocol isn't asked for.
    client.send(ASK.replace("/live/x", "/dead/x").replace("Upgrade: websocket", "Upgrade: h2c"));
    assert_eq!(client.reply().status, 400);
    assert!(!upstream.heads().pop().unwrap().contains("pgrade"));
    assert_eq!(upstream.accepted(), 1);
}

fn a_reload_leaves_it_alone_and_a_stop_does_not_wait_for_ever(reactor: Reactor) {
    let upstream = upstream();
    let (directory, mut server) = serve(reactor, &upstream, "", "");
    let mut client = open(&server);
    let text = "workers = 1\n[limits]\ndrain_timeout = \"500ms\"\n[[site]]\nlisten = \"127.0.0.1:0\"\n\
        [[site.handler]]\npath = \"/*\"\nredirect = { to = \"http://x.test/\" }\n";
    assert!(server.reload(reactor, &directory, text).contains("is in force"));
    client.send("on and on");
    assert_eq!(client.read_content(9).unwrap(), b"on and on");
    server.signal("TERM");
    assert_eq!(server.wait_for_end().code(), Some(0));
}

/// Idle, in the middle of what is said, and with its client's end said already: they pass to the new engine, and the old one ends.
fn it_crosses_upgrades(reactor: Reactor) {
    let upstream = upstream();
    let (_directory, server) = serve(reactor, &upstream, "", "");
    let (mut idle, mut busy, mut ended) = (open(&server), open(&server), open(&server));
    // More than all buffers hold, which nobody takes for a while.
    let said = noise(8 << 20, 7);
    let sending = [busy.stream(), ended.stream()].map(|stream| {
        let (mut stream, said) = (stream.try_clone().unwrap(), said.clone());
        std::thread::spawn(move || {
            stream.write_all(&said).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        })
    });
    let mut echoed = ended.read_content(said.len() / 2).unwrap();
    for _ in 0..3 {
        upgrade(&server);
        idle.send("still there");
        assert_eq!(idle.read_content(11).unwrap(), b"still there");
    }
    let whole = [&said[..], b"bye"].concat();
    echoed.extend(ended.until_closed());
    assert!(echoed == whole, "{} bytes", echoed.len());
    assert!(busy.until_closed() == whole);
    sending.into_iter().for_each(|sending| sending.join().unwrap());
    assert_eq!(upstream.accepted(), 3);
    idle.stream().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(idle.until_closed(), b"bye");
}

fn where_its_path_is_no_servers_any_more_it_stays_in_the_old_engine(reactor: Reactor) {
    let upstream = upstream();
    let (directory, server) = serve(reactor, &upstream, "", "");
    let mut client = open(&server);
    let before = engines(&server);
    // Workers start anew, and the path is another's.
    let other = if reactor == Reactor::Epoll { Reactor::IoUring } else { Reactor::Epoll };
    let text = "workers = 1\n[limits]\ndrain_timeout = \"1h\"\n[[site]]\nlisten = \"127.0.0.1:0\"\n\
        [[site.handler]]\npath = \"/*\"\nredirect = { to = \"http://x.test/\" }\n";
    assert!(server.reload(other, &directory, text).contains("is in force"));
    client.send("on and on");
    assert_eq!(client.read_content(9).unwrap(), b"on and on");
    assert!(engines(&server).iter().any(|pid| before.contains(pid)));
    drop(client);
    ended(&server, &before);
}

on_both_reactors!(
    it_crosses_upgrades,
    where_its_path_is_no_servers_any_more_it_stays_in_the_old_engine,
    what_is_said_goes_both_ways_until_one_side_ends,
    a_long_message_goes_on_by_itself,
    messages_of_all_sizes_follow_each_other,
    nobody_is_cut_for_being_silent_for_a_while,
    it_is_no_request_in_flight,
    who_does_not_agree_answers,
    a_reload_leaves_it_alone_and_a_stop_does_not_wait_for_ever,
);
