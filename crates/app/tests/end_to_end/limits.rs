//! Limits on what a client may ask for and how long it may take, and many clients at once.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::on_both_reactors;
use crate::support::client::{ended, replies_in};
use crate::support::directory::noise;
use crate::support::server::binary;
use crate::support::{Client, Directory, Reactor, Server, eventually};

fn site() -> Directory {
    Directory::with(&[("a.txt", b"alpha\n")])
}

fn limited(reactor: Reactor, site: &Directory, configuration: &Directory, limits: &str) -> Server {
    let text =
        format!("workers = 1\n[limits]\n{limits}\n[[site]]\nlisten = [\"127.0.0.1:0\"]\nroot = {:?}\n", site.path());
    Server::configured(reactor, configuration, &text)
}

/// Sends a request that is refused, and expects one reply with one of `statuses` and the end.
fn refused(server: &Server, request: &[u8], statuses: &[u16]) {
    let mut client = server.connect();
    let _ = client.try_send(request);
    let replies = replies_in(&client.until_closed());
    assert_eq!(replies.len(), 1);
    assert!(statuses.contains(&replies[0].status), "{}, not one of {statuses:?}", replies[0].status);
}

/// Whether the server's side of this connection still exists as such.
fn is_established(server: &Server, client: &Client) -> bool {
    let server_port = server.address().port();
    let client_port = client.stream().local_addr().unwrap().port();
    let wanted = format!("0100007F:{server_port:04X} 0100007F:{client_port:04X} 01");
    fs::read_to_string("/proc/net/tcp").unwrap().contains(&wanted)
}

fn a_head_that_is_too_long_is_431(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let long = format!("GET /a.txt HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    refused(&server, long.as_bytes(), &[431]);
    let many: String = (0..60).map(|n| format!("X-{n}: {}\r\n", "y".repeat(1000))).collect();
    refused(&server, format!("GET /a.txt HTTP/1.1\r\nHost: localhost\r\n{many}\r\n").as_bytes(), &[431]);
    // Nor does an endless one cost more than the limit.
    refused(
        &server,
        format!("GET /a.txt HTTP/1.1\r\nHost: localhost\r\nX: {}", "x".repeat(4_000_000)).as_bytes(),
        &[431],
    );
}

fn too_many_headers_are_431(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let fields = |count: usize| (0..count).map(|n| format!("X-{n}: y\r\n")).collect::<String>();
    assert_eq!(server.get_with("/a.txt", &fields(98)).status, 200);
    refused(&server, format!("GET /a.txt HTTP/1.1\r\nHost: localhost\r\n{}\r\n", fields(101)).as_bytes(), &[431]);
    refused(&server, format!("GET /a.txt HTTP/1.1\r\nHost: localhost\r\n{}\r\n", fields(900)).as_bytes(), &[431]);
}

fn a_target_that_is_too_long_is_414(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    assert_eq!(server.get(&format!("/a.txt?{}", "q".repeat(8_000))).status, 200);
    refused(&server, format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(9_000)).as_bytes(), &[414]);
    refused(
        &server,
        format!("GET /a.txt?{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(1_000_000)).as_bytes(),
        &[414],
    );
    refused(&server, "G".repeat(200_000).as_bytes(), &[400, 414, 431, 501]);
}

fn limits_can_be_set(reactor: Reactor) {
    let (site, configuration) = (site(), Directory::new());
    let server = limited(
        reactor,
        &site,
        &configuration,
        "head_size = \"2KiB\"\nheader_count = 10\ntarget_size = \"100B\"\nbody_size = \"10B\"",
    );
    refused(
        &server,
        format!("GET /a.txt HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(2_100)).as_bytes(),
        &[431],
    );
    refused(
        &server,
        format!("GET /a.txt HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: y\r\n".repeat(10)).as_bytes(),
        &[431],
    );
    refused(&server, format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(100)).as_bytes(), &[414]);
    refused(&server, b"POST /a.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\nhello world", &[413]);
    refused(
        &server,
        b"POST /a.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n",
        &[413],
    );
    let mut client = server.connect();
    assert_eq!(
        client.ask("POST /a.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhelloworld").status,
        405
    );
    assert_eq!(client.get("/a.txt").status, 200);
}

fn a_slow_head_is_408(reactor: Reactor) {
    let (site, configuration) = (site(), Directory::new());
    let server = limited(reactor, &site, &configuration, "head_timeout = \"300ms\"\nidle_timeout = \"60s\"");
    let start = Instant::now();
    refused(&server, b"GET /a.txt HTTP/1.1\r\nHost: loc", &[408]);
    assert!(start.elapsed() >= Duration::from_millis(290), "{:?}", start.elapsed());
    // After a good request, too.
    let mut client = server.connect();
    assert_eq!(client.get("/a.txt").status, 200);
    client.send("GET /a.t");
    let replies = replies_in(&client.until_closed());
    assert_eq!(replies.iter().map(|reply| reply.status).collect::<Vec<_>>(), [408]);
}

fn a_head_that_drips_is_408_all_the_same(reactor: Reactor) {
    let (site, configuration) = (site(), Directory::new());
    let server = limited(reactor, &site, &configuration, "head_timeout = \"300ms\"");
    let client = server.connect();
    let mut stream = client.stream();
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    stream.write_all(b"GET /a.txt HTTP/1.1\r\nX: ").unwrap();
    let start = Instant::now();
    let mut received = Vec::new();
    // Each read waits for 20 ms at most: that's the pace of the drops.
    let drops = (0..500).take_while(|_| {
        let mut piece = [0; 1024];
        match stream.read(&mut piece) {
            Ok(0) => return false,
            Ok(count) => received.extend_from_slice(&piece[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return false,
        }
        stream.write_all(b"x").is_ok()
    });
    let drops = drops.count();
    assert!(drops < 200, "{drops} drops in {:?}", start.elapsed());
    assert!(received.is_empty() || received.starts_with(b"HTTP/1.1 408 "), "{:?}", String::from_utf8_lossy(&received));
}

fn a_connection_that_never_asks_is_closed(reactor: Reactor) {
    let (site, configuration) = (site(), Directory::new());
    let server = limited(reactor, &site, &configuration, "head_timeout = \"300ms\"\nidle_timeout = \"300ms\"");
    let sent = server.connect().until_closed();
    assert!(sent.is_empty() || sent.starts_with(b"HTTP/1.1 408 "), "{:?}", String::from_utf8_lossy(&sent));
}

fn an_idle_connection_is_closed_in_silence(reactor: Reactor) {
    let (site, configuration) = (site(), Directory::new());
    let server = limited(reactor, &site, &configuration, "idle_timeout = \"300ms\"");
    let mut client = server.connect();
    assert_eq!(client.get("/a.txt").status, 200);
    let start = Instant::now();
    assert_eq!(client.until_closed(), b"");
    assert!(start.elapsed() >= Duration::from_millis(250), "{:?}", start.elapsed());
    // A request that was on its way meanwhile doesn't reset the connection: its last reply may not have been read.
    client.send("GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.stream().peek(&mut [0]).expect("not reset"), 0);
}

fn a_reader_that_stalls_is_cut(reactor: Reactor) {
    let (site, configuration) = (site(), Directory::new());
    let content = noise(30 << 20, 1);
    site.write("large.bin", &content);
    let server = limited(reactor, &site, &configuration, "stall_timeout = \"400ms\"\nlinger_timeout = \"100ms\"");
    let mut client = server.connect();
    client.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n");
    eventually("the server gives up", || (!is_established(&server, &client)).then_some(()));
    let received = client.until_closed();
    assert!(received.len() < content.len(), "all {} bytes came", received.len());
    assert_eq!(server.get("/a.txt").text(), "alpha\n");
}

fn a_slow_reader_that_moves_is_not_cut(reactor: Reactor) {
    let (site, configuration) = (site(), Directory::new());
    let content = noise(12 << 20, 2);
    site.write("large.bin", &content);
    let server = limited(reactor, &site, &configuration, "stall_timeout = \"1s\"");
    let mut client = server.connect();
    client.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    client.reply_head().unwrap();
    let mut received = Vec::new();
    let start = Instant::now();
    while received.len() < content.len() {
        // The pace of this reader: 512 KiB in 100 ms, so that the whole takes longer than the time-out.
        received.extend(client.read_content(512 << 10).expect("not cut"));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(start.elapsed() > Duration::from_secs(2) && received == content);
}

fn a_body_that_stalls_is_cut(reactor: Reactor) {
    let (site, configuration) = (site(), Directory::new());
    let server = limited(reactor, &site, &configuration, "stall_timeout = \"300ms\"\nlinger_timeout = \"100ms\"");
    let mut client = server.connect();
    client.send("POST /a.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhello");
    let replies = replies_in(&client.until_closed());
    assert!(replies.iter().all(|reply| matches!(reply.status, 405 | 408)) && replies.len() <= 1, "{replies:?}");
}

fn a_connection_can_be_limited_to_some_requests(reactor: Reactor) {
    let (site, configuration) = (site(), Directory::new());
    let server = limited(reactor, &site, &configuration, "requests_per_connection = 3");
    let mut client = server.connect();
    let closes: Vec<_> = (0..3).map(|_| client.get("/a.txt").says_close()).collect();
    assert_eq!(closes, [false, false, true]);
    assert_eq!(client.until_closed(), b"");
}

fn past_the_connection_limit_new_ones_wait(reactor: Reactor) {
    let (site, configuration) = (site(), Directory::new());
    let server = limited(reactor, &site, &configuration, "connections = 2");
    let mut open = [server.connect(), server.connect()];
    for client in &mut open {
        assert_eq!(client.get("/a.txt").status, 200);
    }
    let mut third = server.connect();
    third.send("GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let [first, second] = open;
    drop(first);
    assert_eq!(third.reply().text(), "alpha\n");
    drop(second);
}

/// A server that has room for 20 connections, and a client that has one of them and has been answered.
fn crowded(reactor: Reactor, site: &Directory, configuration: &Directory) -> (Server, Client) {
    let admin = "connections = 20\n[admin]\nlisten = \"127.0.0.1:0\"";
    let server = limited(reactor, site, configuration, admin);
    let mut kept = Client::connect_from([127, 0, 7, 1].into(), server.address());
    assert_eq!(kept.get("/a.txt").status, 200);
    (server, kept)
}

/// Whoever else comes is answered, who has one connection keeps it, and what was done is told.
fn others_find_room(server: &Server, mut kept: Client) {
    for _ in 0..3 {
        let mut other = Client::connect_from([127, 0, 8, 1].into(), server.address());
        assert_eq!(other.get("/a.txt").text(), "alpha\n");
    }
    assert_eq!(kept.get("/a.txt").text(), "alpha\n");
    assert!(server.wait_for_stderr(&["no room for more than 20 "]).contains("127.0.9.0/24"));
    let page = Client::connect(server.admin()).get("/metrics").text();
    let ended = page.lines().filter(|line| line.starts_with("leat_displaced_connections_total"));
    let ended: f64 = ended.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
    assert!(ended >= 3.0, "{ended}");
}

fn idle_connections_make_room_for_new_ones(reactor: Reactor) {
    let (site, configuration) = (site(), Directory::new());
    let (server, kept) = crowded(reactor, &site, &configuration);
    let mut idle: Vec<_> = (0..25).map(|_| Client::connect_from([127, 0, 9, 1].into(), server.address())).collect();
    for client in &mut idle {
        client.send("GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    for client in &mut idle {
        assert_eq!(client.reply().text(), "alpha\n");
    }
    others_find_room(&server, kept);
    // In order: after the reply nothing, and no reset.
    assert_eq!(idle[0].until_closed(), b"");
}

fn slow_heads_make_room_for_new_connections(reactor: Reactor) {
    let (site, configuration) = (site(), Directory::new());
    let (server, kept) = crowded(reactor, &site, &configuration);
    let mut slow: Vec<_> = (0..25).map(|_| Client::connect_from([127, 0, 9, 1].into(), server.address())).collect();
    for client in &mut slow {
        client.send("GET /a.txt HTTP/1.1\r\nHost: local");
    }
    others_find_room(&server, kept);
    let replies = replies_in(&slow[0].until_closed());
    assert_eq!(replies.iter().map(|reply| reply.status).collect::<Vec<_>>(), [408]);
}

/// A reply under way makes no room, however slowly it's read.
fn replies_under_way_keep_their_connections(reactor: Reactor) {
    let (site, configuration) = (site(), Directory::new());
    site.write("large.bin", noise(4_000_000, 5));
    let server = limited(reactor, &site, &configuration, "connections = 2");
    let mut readers = [server.connect(), server.connect()];
    for reader in &mut readers {
        reader.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(reader.reply_head().unwrap().status, 200);
    }
    let mut third = server.connect();
    third.send("GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n");
    server.wait_for_stderr(&["all are needed, and new ones wait"]);
    for reader in &mut readers {
        assert_eq!(reader.read_content(4_000_000).unwrap().len(), 4_000_000);
    }
    assert_eq!(third.reply().text(), "alpha\n");
}

fn connections_leave_descriptors_for_files(reactor: Reactor) {
    let site = site();
    for number in 0..40 {
        fs::write(site.path().join(format!("{number}.bin")), vec![b'x'; 100_000]).unwrap();
    }
    let leat = binary();
    let arguments = [OsStr::new("--nofile=128:128"), leat.as_os_str(), OsStr::new("serve"), site.path().as_os_str()];
    let more = ["--listen", "127.0.0.1:0", "--workers", "1", "--reactor", reactor.name()].map(OsStr::new);
    let server = Server::start_program(Path::new("prlimit"), &[&arguments[..], &more[..]].concat(), 1);
    let mut clients: Vec<_> = (0..200).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate().take(40) {
        assert_eq!(client.get(&format!("/{number}.bin")).body.len(), 100_000, "client {number}");
    }
    // Those that had to wait are accepted when others go.
    let mut last = clients.pop().unwrap();
    drop(clients);
    assert_eq!(last.get("/a.txt").status, 200);
}

fn who_starts_with_few_descriptors_serves(reactor: Reactor) {
    let site = site();
    let (mut refused, mut served) = (0, 0);
    for limit in (8..48).step_by(2) {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={limit}:{limit}")).arg(binary()).arg("serve").arg(site.path());
        command.args(["--listen", "127.0.0.1:0", "--workers", "2", "--reactor", reactor.name()]);
        let mut leat = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("prlimit can be run");
        let mut line = String::new();
        BufReader::new(leat.stdout.take().expect("it's a pipe")).read_line(&mut line).expect("a line or none");
        match line.trim_end().strip_prefix("listening on http://") {
            Some(address) => {
                let address = address.trim_end_matches('/').parse().expect("an address");
                let status = Client::connect(address).get("/a.txt").status;
                leat.kill().and_then(|()| leat.wait()).expect("it's there");
                assert_eq!(status, 200, "{limit} descriptors");
                served += 1;
            }
            None => {
                let output = leat.wait_with_output().expect("it ends");
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.code() == Some(1), "{limit} descriptors: {said}");
                let is_named = said.contains("Too many open files") || said.contains("raise the limit");
                assert!(is_named, "{limit} descriptors: {said}");
                refused += 1;
            }
        }
    }
    assert!(refused > 3 && served > 3, "{refused} refused, {served} served");
}

fn three_thousand_connections_are_served(reactor: Reactor) {
    // Both ends need descriptors. The server must see to its own.
    let own = std::process::id().to_string();
    let _ = Command::new("prlimit").args(["--pid", &own, "--nofile=16384:"]).status();
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut clients: Vec<_> = (0..3000).map(|_| server.connect()).collect();
    for round in 0..3 {
        for client in &mut clients {
            client.send("GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n");
        }
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.reply().text(), "alpha\n", "round {round}, client {number}");
        }
    }
}

fn slow_heads_do_not_hold_up_others(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut slow: Vec<_> = (0..500).map(|_| server.connect()).collect();
    for client in &mut slow {
        client.send("GET /a.txt HTTP/1.1\r\nHost: local");
    }
    for _ in 0..50 {
        assert_eq!(server.get("/a.txt").text(), "alpha\n");
    }
    for client in &mut slow {
        client.send("host\r\n\r\n");
        assert_eq!(client.reply().text(), "alpha\n");
    }
}

fn a_flood_of_new_connections_is_served(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    for _ in 0..1500 {
        let mut client = server.connect();
        client.send("GET /a.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert_eq!(client.reply().text(), "alpha\n");
    }
    let closed = server.connect().try_send("").map_err(|error| ended(&error));
    assert!(closed.is_ok());
}

on_both_reactors!(
    a_head_that_is_too_long_is_431,
    too_many_headers_are_431,
    a_target_that_is_too_long_is_414,
    limits_can_be_set,
    a_slow_head_is_408,
    a_head_that_drips_is_408_all_the_same,
    a_connection_that_never_asks_is_closed,
    an_idle_connection_is_closed_in_silence,
    a_reader_that_stalls_is_cut,
    a_slow_reader_that_moves_is_not_cut,
    a_body_that_stalls_is_cut,
    a_connection_can_be_limited_to_some_requests,
    past_the_connection_limit_new_ones_wait,
    idle_connections_make_room_for_new_ones,
    slow_heads_make_room_for_new_connections,
    replies_under_way_keep_their_connections,
    connections_leave_descriptors_for_files,
    who_starts_with_few_descriptors_serves,
    three_thousand_connections_are_served,
    slow_heads_do_not_hold_up_others,
    a_flood_of_new_connections_is_served,
);
