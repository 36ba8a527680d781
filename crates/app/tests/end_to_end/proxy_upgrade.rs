//! Replies of other servers that are under way when a new engine takes over: those go along, with the servers' connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::proxy::{HELLO, configuration, count, serve};
use super::reload::engines;
use crate::on_both_reactors;
use crate::support::client::find;
use crate::support::directory::noise;
use crate::support::server::write_configuration;
use crate::support::{Client, Directory, Reactor, Server, Upstream, eventually};
use crate::upgrade::{ended, upgrade};

/// Parts in which a reply is said.
const PARTS: usize = 4;
const BYTES: usize = 1_000_000;

/// How many parts may be said.
#[derive(Clone, Default)]
struct Gate(Arc<AtomicUsize>);

impl Gate {
    fn open(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn wait(&self, part: usize) {
        eventually("the next part may be said", || (self.0.load(Ordering::SeqCst) >= part).then_some(()));
    }
}

fn chunked(content: &[u8]) -> Vec<u8> {
    let chunk = |chunk: &[u8]| [format!("{:x};x=y\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
    let mut all = content.chunks(1009).map(chunk).collect::<Vec<_>>().concat();
    all.extend_from_slice(b"0\r\nX-Trailer: z\r\n\r\n");
    all
}

/// What these chunks have.
fn unchunked(mut chunks: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    loop {
        let end = find(chunks, b"\r\n").unwrap();
        let size = str::from_utf8(&chunks[..end]).unwrap().split(';').next().unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return content;
        }
        content.extend_from_slice(&chunks[end + 2..][..size]);
        chunks = &chunks[end + 2 + size + 2..];
    }
}

/// Says `content` by length, in chunks or to the connection's end, as the path wants it, in parts; the rest of them waits for the gate.
fn upstream(gate: &Gate, content: &[u8]) -> Upstream {
    let (gate, content) = (gate.clone(), content.to_vec());
    Upstream::start(move |conversation| {
        while let Some(head) = conversation.head() {
            let (framing, said) = match head.split(['/', ' ']).nth(3) {
                Some("length") => (format!("Content-Length: {}", content.len()), content.clone()),
                Some("chunks") => ("Transfer-Encoding: chunked".to_owned(), chunked(&content)),
                _ => ("Connection: close".to_owned(), content.clone()),
            };
            conversation.say(format!("HTTP/1.1 200 OK\r\nETag: \"e\"\r\n{framing}\r\n\r\n"));
            for (part, bytes) in said.chunks(said.len().div_ceil(PARTS)).enumerate() {
                gate.wait(part);
                conversation.say(bytes);
            }
            if framing == "Connection: close" {
                return conversation.end();
            }
        }
    })
}

fn ask(server: &Server, path: &str, version: &str) -> Client {
    let mut client = server.connect();
    client.send(format!("GET /api/{path} HTTP/{version}\r\nHost: it.test\r\nX-Request-Id: {path}\r\n\r\n"));
    client
}

fn long_replies_cross_upgrades(reactor: Reactor) {
    let (gate, content) = (Gate::default(), noise(BYTES, 3));
    let upstream = upstream(&gate, &content);
    let directory = Directory::new();
    let server = serve(reactor, &directory, &[upstream.address()], "");
    let asked = [("length", "1.1"), ("chunks", "1.1"), ("close", "1.1"), ("length", "1.0"), ("chunks", "1.0")];
    let mut clients = asked.map(|(path, version)| ask(&server, path, version));
    // Who doesn't read isn't in the way.
    let mut unread = ask(&server, "chunks", "1.1");
    for client in &mut clients[..3] {
        // Pipelined: answered after it.
        client.send("GET / HTTP/1.1\r\nHost: it.test\r\n\r\n");
    }
    eventually("all are asked", || (upstream.heads().len() == 6).then_some(()));
    for _ in 1..PARTS {
        upgrade(&server);
        gate.open();
    }
    for (client, (path, version)) in clients.iter_mut().zip(asked) {
        match version {
            "1.1" => {
                let reply = client.reply();
                assert!(reply.status == 200 && reply.body == content, "{path}: {} bytes", reply.body.len());
                assert_eq!(client.reply().text(), "a file");
            }
            _ => assert!(client.until_closed().ends_with(&content), "{path}"),
        }
    }
    assert!(unread.reply().body == content);
    // Connections that can be are used again.
    let before = upstream.accepted();
    assert!(unread.get("/api/length").body == content);
    assert_eq!(upstream.accepted(), before);
}

/// What the reply is goes along, so that it needn't end with its server.
fn a_reply_that_breaks_off_after_an_upgrade_goes_on_at_another_server(reactor: Reactor) {
    let gate = Gate::default();
    let told = gate.clone();
    let first = Upstream::start(move |conversation| {
        let _ = conversation.head();
        conversation.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\nETag: \"e\"\r\n\r\n0123");
        told.wait(1);
        conversation.end();
    });
    let rest =
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 4-9/10\r\nETag: \"e\"\r\nContent-Length: 6\r\n\r\n456789";
    let second = Upstream::saying(rest);
    let directory = Directory::new();
    let server = serve(reactor, &directory, &[first.address(), second.address()], "");
    let mut client = ask(&server, "x", "1.1");
    assert_eq!(client.reply_head().unwrap().status, 200);
    assert_eq!(client.read_content(4).unwrap(), b"0123");
    upgrade(&server);
    gate.open();
    assert_eq!(client.read_content(6).unwrap(), b"456789");
    assert!(second.heads().pop().unwrap().contains("\r\nRange: bytes=4-\r\nIf-Range: \"e\"\r\n"));
    assert_eq!(count(&server, "retries"), 1);
}

fn a_reply_of_a_server_that_is_gone_ends_in_the_old_engine(reactor: Reactor) {
    let (gate, content) = (Gate::default(), noise(BYTES, 3));
    let (before, after) = (upstream(&gate, &content), Upstream::saying(HELLO));
    let directory = Directory::new();
    let server = serve(reactor, &directory, &[before.address()], "");
    let mut client = ask(&server, "length", "1.1");
    let head = client.reply_head().unwrap();
    assert_eq!(head.status, 200);
    let engines = engines(&server);
    write_configuration(reactor, &directory, &configuration(&[after.address()], ""));
    server.signal("USR2");
    server.wait_for_stdout("second start", |lines| (lines.len() >= 2).then_some(()));
    (1..PARTS).for_each(|_| gate.open());
    assert!(client.read_content(BYTES).unwrap() == content);
    ended(&server, &engines);
    assert_eq!(client.get("/api/x").text(), "hello");
}

/// By length, in chunks, and with leave to send it; who has all of it says what it was.
fn slow_uploads_and_late_replies_cross_upgrades(reactor: Reactor) {
    let gate = Gate::default();
    let told = gate.clone();
    let upstream = Upstream::start(move |conversation| {
        while let Some(head) = conversation.head() {
            let content = match head.contains("Transfer-Encoding: chunked") {
                true => unchunked(&conversation.chunks().unwrap()),
                false => conversation.content(if head.contains("Content-Length: 0\r\n") { 0 } else { BYTES }).unwrap(),
            };
            // It takes longer than an upgrade to make the reply.
            told.wait(1);
            conversation.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", content.len()));
            conversation.say(content);
        }
    });
    let directory = Directory::new();
    let server = serve(reactor, &directory, &[upstream.address()], "");
    let content = noise(BYTES, 9);
    let chunks = chunked(&content);
    let post = |framing: &str| format!("POST /api/x HTTP/1.1\r\nHost: it.test\r\n{framing}\r\n\r\n");
    let by_length = format!("Content-Length: {BYTES}");
    let uploads = [
        (post(&by_length), &content),
        (post("Transfer-Encoding: chunked"), &chunks),
        (post(&format!("{by_length}\r\nExpect: 100-continue")), &content),
    ];
    let mut clients = uploads.map(|(head, said)| {
        let mut client = server.connect();
        client.send(&head);
        if head.contains("Expect") {
            assert_eq!(client.reply_head().unwrap().status, 100);
        }
        (client, said)
    });
    let mut empty = server.connect();
    empty.send(post("Content-Length: 0"));
    for part in 0..PARTS {
        for (client, said) in &mut clients {
            let parts = said.len().div_ceil(PARTS);
            client.send(&said[part * parts..said.len().min((part + 1) * parts)]);
        }
        upgrade(&server);
    }
    gate.open();
    for (client, _) in &mut clients {
        let reply = client.reply();
        assert!(reply.status == 200 && reply.body == content, "{}, {} bytes", reply.status, reply.body.len());
        client.send("GET / HTTP/1.1\r\nHost: it.test\r\n\r\n");
        assert_eq!(client.reply().text(), "a file");
    }
    assert_eq!(empty.reply().status, 200);
    assert_eq!(upstream.accepted(), 4);
}

/// Threads of the engine that serve.
fn workers(server: &Server) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", engines(server)[0])).unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("worker ")).count()
}

/// Nothing keeps a worker that goes, however long it takes: it passes to those that stay.
fn long_replies_and_uploads_outlive_their_workers(reactor: Reactor) {
    let (gate, content) = (Gate::default(), noise(BYTES, 3));
    let upstream = upstream(&gate, &content);
    let directory = Directory::new();
    let large = noise(10 << 20, 4);
    directory.write("site/large.bin", &large);
    directory.write("site/index.html", "a file");
    let text = |workers: usize| {
        let text = configuration(&[upstream.address()], "").replace("workers = 1", &format!("workers = {workers}"));
        format!("{text}\n[limits]\ndrain_timeout = \"100ms\"\n")
    };
    let server = Server::configured(reactor, &directory, &text(4));
    let mut replies: Vec<_> = (0..8).map(|_| ask(&server, "chunks", "1.1")).collect();
    let mut downloads: Vec<_> = (0..8).map(|_| server.connect()).collect();
    let mut halves: Vec<_> = (0..8).map(|_| server.connect()).collect();
    downloads.iter_mut().for_each(|client| client.send("GET /large.bin HTTP/1.1\r\nHost: it.test\r\n\r\n"));
    halves.iter_mut().for_each(|client| client.send("GET / HTTP/1.1\r\nHost: it"));
    eventually("all are asked", || (upstream.heads().len() == replies.len()).then_some(()));
    assert!(server.reload(reactor, &directory, &text(1)).contains("is in force"));
    eventually("one is left", || (workers(&server) == 1).then_some(()));
    (1..PARTS).for_each(|_| gate.open());
    for client in &mut replies {
        assert!(client.reply().body == content);
    }
    for client in &mut downloads {
        assert!(client.reply().body == large);
    }
    for client in &mut halves {
        client.send(".test\r\n\r\n");
        assert_eq!(client.reply().text(), "a file");
    }
}

on_both_reactors!(
    long_replies_and_uploads_outlive_their_workers,
    slow_uploads_and_late_replies_cross_upgrades,
    long_replies_cross_upgrades,
    a_reply_that_breaks_off_after_an_upgrade_goes_on_at_another_server,
    a_reply_of_a_server_that_is_gone_ends_in_the_old_engine,
);
