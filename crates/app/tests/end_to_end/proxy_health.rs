//! Servers of a proxy that fail: which of them are left out, until when, and who is asked in their place.

use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::proxy::{HELLO, count, nobody, serve};
use super::reload::engines;
use crate::on_both_reactors;
use crate::support::{Directory, Reactor, Server, Upstream, eventually};

const GET: &str = "GET /api/x HTTP/1.1\r\nHost: it.test\r\n\r\n";
const POST: &str = "POST /api/ HTTP/1.1\r\nHost: it.test\r\nContent-Length: 0\r\n\r\n";

fn who_says_nothing_is_given_up(reactor: Reactor) {
    let directory = Directory::new();
    let upstream = Upstream::start(|conversation| conversation.until_closed());
    let server = serve(reactor, &directory, &[upstream.address()], "timeout = \"200ms\"");
    assert_eq!(server.get("/api/").status, 504);
    assert_eq!(upstream.accepted(), 1, "there is no other, so that nobody else would know");
}

fn who_refuses_is_left_out(reactor: Reactor) {
    let directory = Directory::new();
    let upstream = Upstream::saying(HELLO);
    let server = serve(reactor, &directory, &[nobody(), upstream.address()], "");
    let mut client = server.connect();
    for _ in 0..6 {
        client.send(POST);
        assert_eq!(client.reply().text(), "hello");
    }
    let told = server.stderr().iter().filter(|line| line.contains("can't be connected to")).count();
    assert_eq!(told, 1, "{:?}", server.stderr());
    assert!(count(&server, "retries") >= 1);
    let alone = serve(reactor, &Directory::new(), &[nobody()], "");
    assert_eq!(alone.get("/api/").status, 502);
    let directory = Directory::new();
    let handler = "[[site.handler]]\npath = \"/*\"\nproxy = { to = \"unix:nowhere\" }\n";
    let absent = Server::configured(reactor, &directory, &format!("[[site]]\nlisten = \"127.0.0.1:0\"\n{handler}"));
    assert_eq!(absent.get("/").status, 502);
    let is_told = |line: &String| line.contains("/nowhere: it can't be connected to");
    eventually("the log says why", || absent.stderr().iter().any(is_told).then_some(()));
}

/// As a program that fails at each request does, or a balancer that has no server: there is always somebody who takes connections.
fn who_gives_no_replies_is_left_out_until_it_does(reactor: Reactor) {
    for said in ["", "HTTP/1.1 ", "\x15\x03\x03\x00\x02\x02\x46"] {
        let directory = Directory::new();
        let is_well = Arc::new(AtomicBool::new(false));
        let told = is_well.clone();
        let failing = Upstream::start(move |conversation| {
            while conversation.head().is_some() {
                if !told.load(Ordering::SeqCst) {
                    conversation.say(said);
                    return conversation.end();
                }
                conversation.say(HELLO);
            }
        });
        let sound = Upstream::saying(HELLO);
        let server = serve(reactor, &directory, &[failing.address(), sound.address()], "");
        let (mut client, start) = (server.connect(), Instant::now());
        let failed = (0..20).filter(|_| client.ask(POST).status == 502).count();
        // One finds it out; whatever time this takes, no second has more than one that looks.
        let tried_max = 1 + start.elapsed().as_secs() as usize;
        assert!((1..=tried_max).contains(&failed), "{failed} of 20 have failed, {tried_max} may have");
        assert_eq!(failing.accepted(), failed);
        is_well.store(true, Ordering::SeqCst);
        eventually("it's asked again", || {
            assert_eq!(client.ask(POST).status, 200);
            (failing.accepted() > failed).then_some(())
        });
        server.wait_for_stderr(&["it answers again"]);
        let before = failing.heads().len();
        (0..4).for_each(|_| assert_eq!(client.ask(POST).status, 200));
        assert!(failing.heads().len() > before, "it has its turns again");
    }
}

/// Its kernel goes on taking connections and requests.
fn who_hangs_is_left_out_and_others_answer_what_may_be_repeated(reactor: Reactor) {
    let directory = Directory::new();
    let hung = Upstream::start(|conversation| conversation.until_closed());
    let sound = Upstream::saying(HELLO);
    let server = serve(reactor, &directory, &[hung.address(), sound.address()], "timeout = \"300ms\"");
    let (mut client, start) = (server.connect(), Instant::now());
    (0..20).for_each(|_| assert_eq!(client.get("/api/").text(), "hello"));
    let tried_max = 1 + start.elapsed().as_secs() as usize;
    let tried = hung.accepted();
    assert!((1..=tried_max).contains(&tried), "{tried} of 20 have waited for it, {tried_max} may have");
    assert_eq!(count(&server, "retries") as usize, tried);
    // What mustn't be done twice isn't.
    let told = eventually("it's asked again", || match client.ask(POST).status {
        200 => None,
        status => Some(status),
    });
    assert_eq!((told, count(&server, "retries") as usize), (504, hung.accepted() - 1));
}

/// Nothing else that happens would have anybody look: the other server is busy all the time.
fn who_waits_is_served_once_who_was_left_out_may_be_tried(reactor: Reactor) {
    let directory = Directory::with(&[("site/index.html", b"a file")]);
    let has_failed = AtomicBool::new(false);
    let failing = Upstream::start(move |conversation| {
        while conversation.head().is_some() {
            if !has_failed.swap(true, Ordering::SeqCst) {
                return conversation.end();
            }
            conversation.say(HELLO);
        }
    });
    let busy = Upstream::start(|conversation| conversation.until_closed());
    let text = format!(
        "workers = 1\n[[site]]\nroot = \"site\"\nlisten = \"127.0.0.1:0\"\nmax_queue_delay = \"20s\"\n[[site.handler]]\npath = \"/api/*\"\n\
         proxy = {{ to = [\"{}\", \"{}\"], connections = 1, queue = 10 }}\n",
        failing.address(),
        busy.address()
    );
    let server = Server::configured(reactor, &directory, &text);
    assert_eq!(server.connect().ask(POST).status, 502);
    let mut holding = server.connect();
    holding.send(POST);
    eventually("the other one is busy", || (busy.accepted() == 1).then_some(()));
    let mut waiting = [0, 1, 2].map(|_| server.connect());
    let start = Instant::now();
    waiting.iter_mut().for_each(|client| client.send(POST));
    waiting.iter_mut().for_each(|client| assert_eq!(client.reply().text(), "hello"));
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    server.wait_for_stderr(&["it answers again"]);
}

/// A server isn't to blame for what leat has too few of.
fn without_descriptors_no_server_is_left_out(reactor: Reactor) {
    let directory = Directory::new();
    let upstream = Upstream::saying(HELLO);
    let server = serve(reactor, &directory, &[upstream.address()], "");
    let mut client = server.connect();
    assert_eq!(client.get("/").text(), "a file");
    let engine = engines(&server)[0];
    let limit = |count: &str| {
        let arguments = [format!("--pid={engine}"), format!("--nofile={count}")];
        assert!(Command::new("prlimit").args(arguments).status().unwrap().success());
    };
    let usual = std::fs::read_to_string(format!("/proc/{engine}/limits")).unwrap();
    let usual = usual.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next()).unwrap();
    // The next one would be beyond the limit, whatever is open.
    limit("3:");
    for _ in 0..10 {
        let reply = client.get("/api/");
        assert_eq!((reply.status, reply.must("retry-after")), (503, "1"));
    }
    limit(&format!("{usual}:"));
    assert_eq!(client.get("/api/").text(), "hello");
    let told = server.wait_for_stderr(&["no file descriptor is left"]);
    assert!(told.contains(&format!("no connection to {} can be made", upstream.address())), "{told}");
    assert!(!server.stderr().iter().any(|line| line.contains("can't be connected to")), "{:?}", server.stderr());
    assert_eq!((upstream.accepted(), count(&server, "retries")), (1, 0));
}

fn a_server_may_have_a_name(reactor: Reactor) {
    let directory = Directory::new();
    let upstream = Upstream::saying(HELLO);
    let named = |name: &str| {
        let port = upstream.address().port();
        format!(
            "[admin]\nlisten = \"127.0.0.1:0\"\n[[site]]\nname = \"it\"\nlisten = \"127.0.0.1:0\"\n[[site.handler]]\npath = \"/*\"\nproxy = {{ to = \"{name}:{port}\", connect_timeout = \"1s\" }}\n"
        )
    };
    let server = Server::configured(reactor, &directory, &named("LOCALHOST"));
    assert_eq!(server.get("/").text(), "hello");
    assert_eq!(server.request("GET / HTTP/1.0\r\n\r\n").text(), "hello");
    let host = format!("\r\nHost: localhost:{}\r\n", upstream.address().port());
    assert!(upstream.heads()[1].contains(&host), "{:?}", upstream.heads());
    let directory = Directory::new();
    let server = Server::configured(reactor, &directory, &named("nowhere.invalid"));
    assert_eq!(server.get("/").status, 502);
    let is_told = |line: &String| line.contains("nowhere.invalid") && line.contains("its name can't be looked up");
    eventually("the log says why", || server.stderr().iter().any(is_told).then_some(()));
    assert_eq!(count(&server, "failures"), 1);
    server.reload(reactor, &directory, &named("localhost"));
    assert_eq!(server.get("/").text(), "hello");
}

/// A server that ends in the middle of its reply, each time after so many bytes, and another that is asked for the rest.
fn who_breaks_off(served: &'static [u8], head: &'static str, rest: &'static str) -> [Upstream; 2] {
    let first = Upstream::start(move |conversation| {
        conversation.head();
        conversation.say(head);
        conversation.stream.write_all(served).unwrap();
        conversation.end();
    });
    [first, Upstream::saying(rest)]
}

fn a_reply_goes_on_at_another_server_when_its_own_breaks_off(reactor: Reactor) {
    let directory = Directory::new();
    let [first, second] = who_breaks_off(
        b"0123",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nETag: \"e\"\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n\
         HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 4-9/10\r\nETag: \"e\"\r\nContent-Length: 6\r\n\r\n456789",
    );
    let server = serve(reactor, &directory, &[first.address(), second.address()], "");
    let mut client = server.connect();
    let reply = client.ask("GET /api/x HTTP/1.1\r\nHost: it.test\r\nIf-None-Match: \"d\"\r\n\r\n");
    assert_eq!((reply.status, reply.text()), (200, "0123456789".to_owned()));
    let asked = second.heads().pop().unwrap();
    assert!(
        asked.contains("\r\nRange: bytes=4-\r\nIf-Range: \"e\"\r\n") && !asked.contains("If-None-Match"),
        "{asked}"
    );
    assert_eq!((count(&server, "retries"), count(&server, "failures")), (1, 0));
    // The connection is as good as ever.
    assert_eq!(client.get("/api/x").body, b"0123456789");
}

/// Asks, and is cut. How often another server was asked, how often that was a failure, and what the second has had.
fn when_cut(reactor: Reactor, head: &'static str, rest: &'static str, request: &str) -> (u64, u64, usize) {
    let directory = Directory::new();
    let [first, second] = who_breaks_off(b"0123", head, rest);
    let server = serve(reactor, &directory, &[first.address(), second.address()], "timeout = \"500ms\"");
    let mut client = server.connect();
    client.send(request);
    assert!(client.try_reply().is_err(), "{head}{rest}");
    (count(&server, "retries"), count(&server, "failures"), second.accepted())
}

fn nothing_but_the_same_content_goes_on(reactor: Reactor) {
    const STRONG: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nETag: \"e\"\r\n\r\n";
    let rests = [
        "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 10\r\n\r\n0123456789",
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 4-9/10\r\nETag: \"f\"\r\nContent-Length: 6\r\n\r\n456789",
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 3-9/10\r\nETag: \"e\"\r\nContent-Length: 7\r\n\r\n3456789",
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 4-9/10\r\nETag: \"e\"\r\nContent-Length: 5\r\n\r\n45678",
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 4-9/10\r\nETag: \"e\"\r\nContent-Length: 6\r\n\r\n456",
    ];
    for rest in rests {
        assert_eq!(when_cut(reactor, STRONG, rest, GET), (1, 1, 1), "{rest}");
    }
    for head in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nETag: W/\"e\"\r\n\r\n",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 10\r\nETag: \"e\"\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nETag: \"e\"\r\n\r\n6\r\n",
    ] {
        assert_eq!(when_cut(reactor, head, HELLO, GET), (0, 1, 0), "{head}");
    }
    assert_eq!(when_cut(reactor, STRONG, HELLO, POST), (0, 1, 0), "it may have had its effect");
}

on_both_reactors!(
    a_reply_goes_on_at_another_server_when_its_own_breaks_off,
    nothing_but_the_same_content_goes_on,
    a_server_may_have_a_name,
    who_says_nothing_is_given_up,
    who_refuses_is_left_out,
    who_gives_no_replies_is_left_out_until_it_does,
    who_hangs_is_left_out_and_others_answer_what_may_be_repeated,
    who_waits_is_served_once_who_was_left_out_may_be_tried,
    without_descriptors_no_server_is_left_out,
);
