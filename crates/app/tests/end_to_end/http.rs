//! Connections and requests: persistence, pipelining, odd splits, versions, Host (RFC 9112 sections 2, 3, 9).

use std::io::Write;
use std::process::Command;
use std::sync::{Mutex, mpsc};

use crate::on_both_reactors;
use crate::support::client::replies_in;
use crate::support::directory::noise;
use crate::support::{Client, Directory, Reactor, Server, Upstream, curl, eventually};

const GET: &str = "GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n";
const GET_LAST: &str = "GET /a.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

fn site() -> Directory {
    Directory::with(&[
        ("a.txt", b"alpha\n"),
        ("b.txt", b"beta, longer\n"),
        ("index.html", b"<p>home</p>\n"),
        ("empty.txt", b""),
    ])
}

fn a_file_is_served_with_its_length_and_type(reactor: Reactor) {
    let (site, date) = (site(), "GMT");
    let server = Server::of(reactor, site.path());
    let reply = server.get("/a.txt");
    assert_eq!((reply.status, reply.version.as_str(), reply.text().as_str()), (200, "HTTP/1.1", "alpha\n"));
    assert_eq!(reply.must("content-length"), "6");
    assert!(reply.must("date").ends_with(date), "{:?}", reply.fields);
    assert!(reply.field("transfer-encoding").is_none());
}

fn an_empty_file_has_length_zero(reactor: Reactor) {
    let site = site();
    let reply = Server::of(reactor, site.path()).get("/empty.txt");
    assert_eq!((reply.status, reply.must("content-length"), reply.body.len()), (200, "0", 0));
}

fn a_connection_serves_many_requests(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    for round in 0..200 {
        let (path, content) = if round % 2 == 0 { ("/a.txt", "alpha\n") } else { ("/b.txt", "beta, longer\n") };
        let reply = client.get(path);
        assert_eq!((reply.status, reply.text().as_str()), (200, content));
        assert!(!reply.says_close());
    }
}

fn close_is_said_and_done(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    let reply = client.ask(GET_LAST);
    assert_eq!(reply.status, 200);
    assert!(reply.says_close());
    assert_eq!(client.until_closed(), b"");
}

/// Most of it is with the kernel when it's closed, which drops all that's yet to be sent where it resets.
fn who_says_more_than_a_last_request_gets_its_whole_reply(reactor: Reactor) {
    let site = site();
    let large = noise(16_000_000, 3);
    site.write("large.bin", &large);
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    client.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let head = client.reply_head().unwrap();
    assert_eq!(head.status, 200);
    client.send(GET);
    assert!(client.until_closed() == large, "less than the whole reply");
}

fn pipelined_requests_in_one_segment_are_answered_in_order(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    let (a, b, none) = ("GET /a.txt", "GET /b.txt", "GET /none");
    let rest = " HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let batch: String = [a, b, none, a, a, b].iter().cycle().take(600).flat_map(|start| [*start, rest]).collect();
    client.send(batch);
    for round in 0..600 {
        let reply = client.reply();
        let expected = [
            (200, "alpha\n"),
            (200, "beta, longer\n"),
            (404, ""),
            (200, "alpha\n"),
            (200, "alpha\n"),
            (200, "beta, longer\n"),
        ];
        let (status, content) = expected[round % 6];
        assert_eq!(reply.status, status, "reply {round}");
        assert!(status == 404 || reply.text() == content, "reply {round}: {}", reply.text());
    }
}

fn a_pipeline_ends_where_a_request_says_close(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    client.send(format!("{GET}{GET_LAST}{GET}{GET}"));
    let statuses: Vec<_> = replies_in(&client.until_closed()).iter().map(|reply| reply.status).collect();
    assert_eq!(statuses, [200, 200]);
}

fn a_pipeline_behind_a_large_reply_waits_its_turn(reactor: Reactor) {
    let site = site();
    let large = noise(3_000_000, 1);
    site.write("large.bin", &large);
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    client.send(format!(
        "GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n{GET}GET /large.bin HTTP/1.1\r\nHost: h\r\n\r\n{GET_LAST}"
    ));
    assert!(client.reply().body == large);
    assert_eq!(client.reply().text(), "alpha\n");
    assert!(client.reply().body == large);
    assert_eq!(client.reply().text(), "alpha\n");
    assert_eq!(client.until_closed(), b"");
}

/// What has been answered goes out, though what comes after it in the pipeline isn't.
fn a_pipeline_is_answered_up_to_what_takes_time(reactor: Reactor) {
    let site = site();
    let (answer, answered) = mpsc::channel();
    let answered = Mutex::new(answered);
    let upstream = Upstream::start(move |conversation| {
        while conversation.head().is_some() {
            answered.lock().unwrap().recv().unwrap();
            conversation.say("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow");
        }
    });
    let text = format!(
        "workers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{}\"\n\
         [[site.handler]]\npath = \"/slow\"\nproxy = {{ to = \"{}\" }}\n\
         [[site.handler]]\npath = \"/burn\"\nburn = {{ forever = true }}\n",
        site.path().display(),
        upstream.address()
    );
    let directory = Directory::new();
    let server = Server::configured(reactor, &directory, &text);
    let mut client = server.connect();
    let slow = "GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for _ in 0..20 {
        client.send([&GET.repeat(5), slow, &GET.repeat(5)].concat());
        for _ in 0..5 {
            assert_eq!(client.reply().text(), "alpha\n");
        }
        answer.send(()).unwrap();
        assert_eq!(client.reply().text(), "slow");
        for _ in 0..5 {
            assert_eq!(client.reply().text(), "alpha\n");
        }
    }
    client.send([&GET.repeat(5), "GET /burn?us=forever HTTP/1.1\r\nHost: localhost\r\n\r\n", GET].concat());
    for _ in 0..5 {
        assert_eq!(client.reply().text(), "alpha\n");
    }
}

/// What took too long is answered where it stands in the pipeline, and what is behind it after that.
fn a_pipeline_goes_on_after_a_time_out(reactor: Reactor) {
    let site = site();
    let upstream = Upstream::start(|conversation| {
        let _ = conversation.head();
        conversation.until_closed();
    });
    let text = format!(
        "workers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{}\"\n\
         [[site.handler]]\npath = \"/slow\"\nproxy = {{ to = \"{}\", timeout = \"200ms\" }}\n",
        site.path().display(),
        upstream.address()
    );
    let directory = Directory::new();
    let server = Server::configured(reactor, &directory, &text);
    let slow = "GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut clients = [server.connect(), server.connect()];
    for client in &mut clients {
        client.send([GET, slow, GET].concat());
    }
    for client in &mut clients {
        let statuses = [client.reply().status, client.reply().status, client.reply().status];
        assert_eq!(statuses, [200, 504, 200]);
    }
}

/// More replies than the kernel takes for a client that reads none at first.
fn who_reads_late_gets_all_of_a_pipeline(reactor: Reactor) {
    const REQUESTS: usize = 20_000;
    const ANSWERED: &str = "leat_requests_total{site=\"default\",status=\"2xx\"} ";
    let site = site();
    let content = noise(1500, 5);
    site.write("page.html", &content);
    let text = format!(
        "workers = 1\n[admin]\nlisten = \"127.0.0.1:0\"\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{}\"\n",
        site.path().display()
    );
    let directory = Directory::new();
    let server = Server::configured(reactor, &directory, &text);
    let mut client = server.connect();
    let request = "GET /page.html HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut sending = client.stream().try_clone().unwrap();
    let sender =
        std::thread::spawn(move || sending.write_all([&request.repeat(REQUESTS), GET_LAST].concat().as_bytes()));
    let mut before = 0;
    eventually("the kernel is full, and no more replies are taken for sent", || {
        let numbers = Client::connect(server.admin()).get("/metrics").text();
        let answered =
            numbers.lines().find_map(|line| line.strip_prefix(ANSWERED)).map_or(0, |count| count.parse().unwrap());
        (answered > 0 && std::mem::replace(&mut before, answered) == answered).then_some(())
    });
    assert!(before < REQUESTS, "{before} replies, which nobody has read");
    for round in 0..REQUESTS {
        assert!(client.reply().body == content, "reply {round}");
    }
    assert_eq!(client.reply().text(), "alpha\n");
    assert_eq!(client.until_closed(), b"");
    sender.join().unwrap().unwrap();
}

fn a_request_may_be_split_anywhere(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    let pair = format!("{GET}GET /b.txt HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n");
    for split in 1..pair.len() {
        client.send(&pair[..split]);
        client.send(&pair[split..]);
        assert_eq!(client.reply().text(), "alpha\n", "split at {split}");
        assert_eq!(client.reply().text(), "beta, longer\n", "split at {split}");
    }
}

fn a_request_may_come_byte_by_byte(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    for byte in GET.repeat(5).bytes() {
        client.send([byte]);
    }
    for _ in 0..5 {
        assert_eq!(client.reply().text(), "alpha\n");
    }
}

fn empty_lines_before_a_request_are_skipped(reactor: Reactor) {
    // RFC 9112 section 2.2: at least one.
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    assert_eq!(client.ask(format!("\r\n{GET}")).status, 200);
    assert_eq!(client.ask(format!("\r\n{GET}")).status, 200);
}

fn http_1_0_closes_unless_asked(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    let reply = client.ask("GET /a.txt HTTP/1.0\r\n\r\n");
    assert_eq!((reply.status, reply.text().as_str()), (200, "alpha\n"));
    assert_eq!(reply.must("content-length"), "6");
    assert_eq!(client.until_closed(), b"");
}

fn http_1_0_keeps_alive_when_asked(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    let reply = client.ask("GET /a.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(reply.status, 200);
    assert!(reply.list("connection").contains(&"keep-alive".to_owned()), "{:?}", reply.fields);
    assert_eq!(client.ask("GET /b.txt HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").text(), "beta, longer\n");
}

fn http_1_0_gets_no_chunks(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    for path in ["/", "/none", "/a.txt"] {
        let reply = server.request(format!("GET {path} HTTP/1.0\r\n\r\n"));
        assert!(reply.field("transfer-encoding").is_none(), "{path}: {:?}", reply.fields);
    }
}

fn other_major_versions_are_505(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    for version in ["HTTP/2.0", "HTTP/3.0", "HTTP/9.9"] {
        let mut client = server.connect();
        client.send(format!("GET /a.txt {version}\r\nHost: localhost\r\n\r\n"));
        let replies = replies_in(&client.until_closed());
        assert_eq!(replies.len(), 1, "{version}");
        assert_eq!(replies[0].status, 505, "{version}");
    }
}

fn malformed_request_lines_are_400(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let lines = [
        "GET /a.txt",
        "GET",
        "GET  /a.txt HTTP/1.1",
        "GET /a.txt  HTTP/1.1",
        "GET /a.txt http/1.1",
        "GET /a.txt HTTP/1.1 ",
        " GET /a.txt HTTP/1.1",
        "GET\t/a.txt\tHTTP/1.1",
        "GET /a b.txt HTTP/1.1",
        "G(T /a.txt HTTP/1.1",
        "GET a.txt HTTP/1.1",
        "GET /a.txt HTTP/1.",
        "GET /a.txt HTTP/11",
        "GET /\u{1}a HTTP/1.1",
    ];
    for line in lines {
        let mut client = server.connect();
        client.send(format!("{line}\r\nHost: localhost\r\n\r\n"));
        let replies = replies_in(&client.until_closed());
        assert_eq!(replies.len(), 1, "{line:?}");
        assert!(matches!(replies[0].status, 400 | 505), "{line:?}: {}", replies[0].status);
    }
}

fn host_must_come_exactly_once(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let heads = [
        "",
        "Host: a\r\nHost: a\r\n",
        "Host: a\r\nHost: b\r\n",
        "Host: a b\r\n",
        "Host: a/b\r\n",
        "Host: a@b\r\n",
        "Host: a:port\r\n",
        "Host: [::1\r\n",
    ];
    for head in heads {
        let mut client = server.connect();
        client.send(format!("GET /a.txt HTTP/1.1\r\n{head}\r\n"));
        let replies = replies_in(&client.until_closed());
        assert_eq!((replies.len(), replies[0].status), (1, 400), "{head:?}");
    }
    for host in ["localhost", "LOCALHOST:80", "127.0.0.1", "[::1]:8080", ""] {
        assert_eq!(server.request(format!("GET /a.txt HTTP/1.1\r\nHost: {host}\r\n\r\n")).status, 200, "{host:?}");
    }
}

fn an_absolute_target_is_taken(reactor: Reactor) {
    // RFC 9112 section 3.2.2; its authority stands in for Host.
    let site = site();
    let server = Server::of(reactor, site.path());
    let reply = server.request("GET http://other.example/a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!((reply.status, reply.text().as_str()), (200, "alpha\n"));
    assert_eq!(server.request("GET http://other.example HTTP/1.1\r\nHost: localhost\r\n\r\n").text(), "<p>home</p>\n");
}

fn a_query_does_not_change_the_file(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    for path in ["/a.txt?", "/a.txt?x=1&y=%00", "/a.txt?/../b.txt", "/a.txt?a?b"] {
        assert_eq!(server.get(path).text(), "alpha\n", "{path}");
    }
}

fn a_half_closed_client_gets_its_answers(reactor: Reactor) {
    let site = site();
    let large = noise(2_000_000, 2);
    site.write("large.bin", &large);
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    client.send(format!("{GET}GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n{GET}"));
    client.finish_sending();
    assert_eq!(client.reply().text(), "alpha\n");
    assert!(client.reply().body == large);
    assert_eq!(client.reply().text(), "alpha\n");
    assert_eq!(client.until_closed(), b"");
}

fn half_a_request_and_an_end_gets_no_success(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    client.send(&GET[..GET.len() - 2]);
    client.finish_sending();
    let replies = replies_in(&client.until_closed());
    assert!(replies.iter().all(|reply| reply.status == 400), "{replies:?}");
}

fn a_client_that_vanishes_harms_nobody(reactor: Reactor) {
    let site = site();
    site.write("large.bin", noise(5_000_000, 3));
    let server = Server::of(reactor, site.path());
    for round in 0..50 {
        let mut client = server.connect();
        // Closing with unread data makes the kernel send a reset.
        client.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1 + round % 3));
        if round % 2 == 0 {
            client.reply_head().unwrap();
        }
    }
    assert_eq!(server.get("/a.txt").text(), "alpha\n");
}

fn curl_reuses_its_connection(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let (a, b) = (server.url("/a.txt"), server.url("/b.txt"));
    let printed = curl(&[
        "--http1.1",
        "--write-out",
        "%{http_code} %{num_connects}\n",
        &a,
        "--next",
        "--silent",
        "--write-out",
        "%{http_code} %{num_connects}\n",
        &b,
    ]);
    assert_eq!(String::from_utf8_lossy(&printed), "alpha\n200 1\nbeta, longer\n200 0\n");
}

fn two_addresses_can_be_listened_on(reactor: Reactor) {
    let site = site();
    let arguments = [
        "serve",
        site.path().to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--listen",
        "[::1]:0",
        "--reactor",
        reactor.name(),
    ];
    let server = Server::start(&arguments.map(std::ffi::OsStr::new), 2);
    for &address in server.addresses() {
        assert_eq!(crate::support::Client::connect(address).get("/a.txt").text(), "alpha\n", "{address}");
    }
}

fn the_reactor_that_was_asked_for_is_in_use(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    assert_eq!(server.get("/a.txt").status, 200);
    let mut links = String::new();
    for pid in server.processes() {
        let listed = Command::new("ls").args(["-l", &format!("/proc/{pid}/fd")]).output().unwrap();
        links.push_str(&String::from_utf8_lossy(&listed.stdout));
    }
    assert_eq!(links.contains("io_uring"), reactor.name() == "io_uring", "{links}\n{:?}", server.stderr());
}

on_both_reactors!(
    a_file_is_served_with_its_length_and_type,
    an_empty_file_has_length_zero,
    a_connection_serves_many_requests,
    close_is_said_and_done,
    who_says_more_than_a_last_request_gets_its_whole_reply,
    pipelined_requests_in_one_segment_are_answered_in_order,
    a_pipeline_ends_where_a_request_says_close,
    a_pipeline_behind_a_large_reply_waits_its_turn,
    a_pipeline_is_answered_up_to_what_takes_time,
    a_pipeline_goes_on_after_a_time_out,
    who_reads_late_gets_all_of_a_pipeline,
    a_request_may_be_split_anywhere,
    a_request_may_come_byte_by_byte,
    empty_lines_before_a_request_are_skipped,
    http_1_0_closes_unless_asked,
    http_1_0_keeps_alive_when_asked,
    http_1_0_gets_no_chunks,
    other_major_versions_are_505,
    malformed_request_lines_are_400,
    host_must_come_exactly_once,
    an_absolute_target_is_taken,
    a_query_does_not_change_the_file,
    a_half_closed_client_gets_its_answers,
    half_a_request_and_an_end_gets_no_success,
    a_client_that_vanishes_harms_nobody,
    curl_reuses_its_connection,
    two_addresses_can_be_listened_on,
    the_reactor_that_was_asked_for_is_in_use,
);
