//! Connections that go from one server that isn't leat to another between two requests: Debian's nginx, unmodified, in the nodes' namespaces.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::foreign::{Nginx, SIZES, content, has_nginx, held, is_fit, read_reply, up_with};
use super::{Folder, Lab, is_possible, replays, within};

const VIPS: [&str; 2] = ["10.77.0.100:80", "[fd77::100]:80"];

/// Two servers, of which each has what the other hasn't. `of_node`: what each node's section says besides.
fn up(lab: &Lab, folder: &Folder, of_node: &str) -> [Nginx; 2] {
    for side in ["a", "b"] {
        fs::create_dir_all(folder.path(&format!("site/{side}"))).expect("a folder to serve");
        for size in SIZES {
            fs::write(folder.path(&format!("site/{side}/{size}")), content(size)).expect("a file to serve");
        }
    }
    up_with(lab, folder, "policy = 'round_robin'", ["a", "b"].map(|side| format!("paths = '/{side}/*'\n{of_node}")))
}

/// Two that have the same, and of which content decides; none where that can't be.
fn up_alike(name: &str) -> Option<(Lab, Folder, [Nginx; 2])> {
    (is_possible() && has_nginx()).then(|| {
        let (lab, folder) = (Lab::new(), Folder::new(name));
        let servers = up_with(&lab, &folder, "policy = 'mix_lard'", ["", ""]);
        (lab, folder, servers)
    })
}

fn get(stream: &mut TcpStream, path: &str) -> Vec<u8> {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).expect("it's open");
    read_reply(stream).expect("a reply")
}

/// Whether each of them was asked for what it has, and has nothing to complain of.
fn each_has_its_own(servers: &[Nginx; 2], count: usize) {
    within("all is logged", || servers.iter().map(|server| server.requests().len()).sum::<usize>() >= count);
    for (server, side) in servers.iter().zip(["/a/", "/b/"]) {
        let requests = server.requests();
        assert!(requests.iter().all(|(_, _, path)| path.starts_with(side)), "{side}: {requests:?}");
        assert_eq!(server.complaints(), "", "{side}");
    }
}

#[test]
fn each_request_of_a_connection_is_answered_by_the_server_that_has_it() {
    if is_possible() && has_nginx() {
        each_by_who_has_it("transplants", "");
    }
}

pub(super) fn each_by_who_has_it(name: &str, of_node: &str) {
    let (lab, folder) = (Lab::new(), Folder::new(name));
    let servers = up(&lab, &folder, of_node);
    assert!(of_node.is_empty() || replays::have_replayed(&lab));
    let turns = 40;
    lab.at("client1", || {
        for vip in VIPS {
            let mut stream = TcpStream::connect(vip).expect("the dispatcher listens");
            for turn in 0..turns {
                let (side, size) = (["a", "b"][turn / 2 % 2], SIZES[turn % SIZES.len()]);
                assert!(get(&mut stream, &format!("/{side}/{size}")) == content(size), "{vip}: turn {turn}");
            }
            let mut end = Vec::new();
            stream.shutdown(std::net::Shutdown::Write).expect("it's open");
            stream.read_to_end(&mut end).expect("an end, and no reset");
        }
    });
    if lab.number("dispatcher", "leat_births_total") == 0 {
        return println!("skipped: this kernel makes no connection of a packet");
    }
    each_has_its_own(&servers, VIPS.len() * turns);
    let moved = lab.number("dispatcher", "leat_transplants_total") as usize;
    assert_eq!(moved, VIPS.len() * (turns / 2 - 1));
    assert_eq!(lab.number("dispatcher", "leat_transplants_impossible_total"), 0);
}

/// What is written at once is in a packet of its own.
fn connect(vip: &str) -> TcpStream {
    let stream = TcpStream::connect(vip).expect("the dispatcher listens");
    stream.set_nodelay(true).expect("it's allowed");
    stream
}

/// A client, and what it sends.
struct Client(TcpStream);

impl Client {
    /// One whose connection is at the first server.
    fn new(vip: &str) -> Client {
        Client::of(vip, "a")
    }

    /// One whose connection is at the server that has that side.
    fn of(vip: &str, side: &str) -> Client {
        let mut stream = connect(vip);
        assert!(get(&mut stream, &format!("/{side}/1024")) == content(SIZES[0]));
        Client(stream)
    }

    fn send(&mut self, method: &str, path: &str, rest: &str) {
        self.0.write_all(format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{rest}").as_bytes()).expect("it's open");
    }

    /// A reply's status, without content.
    fn status(&mut self) -> String {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            self.0.read_exact(&mut byte).expect("a reply");
            head.push(byte[0]);
        }
        String::from_utf8_lossy(&head[9..12]).into_owned()
    }

    /// The status of a reply with content.
    fn answered(&mut self, path: &str) -> String {
        self.send("GET", path, "\r\n");
        // It may be read twice.
        let mut status = [0; 12];
        while self.0.peek(&mut status).expect("a reply") < status.len() {
            std::thread::yield_now();
        }
        read_reply(&mut self.0).expect("a reply");
        String::from_utf8_lossy(&status[9..]).into_owned()
    }

    fn reads(&mut self, size: usize) {
        assert!(read_reply(&mut self.0).expect("a reply") == content(size), "{size} bytes");
    }

    /// What follows is answered by who has it.
    fn goes_on(mut self) {
        for side in ["b", "a", "b"] {
            assert!(get(&mut self.0, &format!("/{side}/1024")) == content(SIZES[0]));
        }
    }
}

/// Whatever a request looks like, and however it comes.
#[test]
fn what_is_asked_in_odd_ways_is_answered_by_who_has_it() {
    if is_possible() && has_nginx() {
        odd_ways("odd", "");
    }
}

pub(super) fn odd_ways(name: &str, of_node: &str) {
    let (lab, folder) = (Lab::new(), Folder::new(name));
    let servers = up(&lab, &folder, of_node);
    assert!(of_node.is_empty() || replays::have_replayed(&lab));
    let small = SIZES[0];
    lab.at("client1", || {
        for vip in VIPS {
            // Heads that with an option more don't fit into a packet, and that don't anyway.
            for bytes in [1_380, 3_000, 10_000 - 2_500] {
                let mut client = Client::new(vip);
                client.send("GET", "/b/1024", &format!("Cookie: {}\r\n\r\n", "x".repeat(bytes)));
                client.reads(small);
                client.goes_on();
            }
            // Content in the same packet, in another one, and more than comes at once.
            for (first, second) in [(5, 0), (0, 5), (0, 300_000)] {
                let mut client = Client::new(vip);
                let length = first + second;
                client.send("POST", "/b/1024", &format!("Content-Length: {length}\r\n\r\n{}", "y".repeat(first)));
                client.0.write_all(&vec![b'y'; second]).expect("it's open");
                let reply = read_reply(&mut client.0).expect("a reply");
                assert!(reply.starts_with(b"<html>"), "nginx's own page");
                client.goes_on();
            }
            // Content in a packet of its own, of a connection's first request and of a later one, that may look like a request.
            let like_a_request = "GET /b/1024 HTTP/1.1\r\nHost: x\r\n\r\n";
            for (is_first, content) in [true, false].into_iter().flat_map(|is| [(is, "a=b"), (is, like_a_request)]) {
                let mut client = if is_first { Client(connect(vip)) } else { Client::new(vip) };
                let began = Instant::now();
                client.send("POST", "/a/1024", &format!("Content-Length: {}\r\n\r\n", content.len()));
                client.0.write_all(content.as_bytes()).expect("it's open");
                assert!(read_reply(&mut client.0).expect("a reply").starts_with(b"<html>"), "nginx's own page");
                match is_first || content == "a=b" {
                    true => client.goes_on(),
                    // Which reply is of which request isn't known where that is: it ends, or goes on, and nobody else answers.
                    false => drop(client.0.write_all(like_a_request.as_bytes())),
                }
                assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
            }
            // Content that its client doesn't send unasked.
            let mut client = Client::new(vip);
            client.send("PUT", "/b/1024", "Content-Length: 5000\r\nExpect: 100-continue\r\n\r\n");
            let status = client.status();
            assert!(["100", "405"].contains(&&status[..]), "{status}");
            // A reply without content, whose length is told.
            let mut client = Client::new(vip);
            client.send("HEAD", "/b/1024", "\r\n");
            assert_eq!(client.status(), "200");
            client.send("HEAD", "/a/1024", "\r\n");
            assert_eq!(client.status(), "200");
            client.goes_on();
            // Byte by byte.
            let mut client = Client::new(vip);
            for byte in b"GET /b/1024 HTTP/1.1\r\nHost: x\r\n\r\n" {
                client.0.write_all(&[*byte]).expect("it's open");
                std::thread::yield_now();
            }
            client.reads(small);
            client.goes_on();
            // What leat refuses and nginx doesn't: as a connection's first request it would be refused as well.
            let many = "x: y\r\n".repeat(110) + "\r\n";
            for (refused, status) in [(&many[..], "431"), ("Content-Length: 0\r\nExpect: foo\r\n\r\n", "417")] {
                let mut client = Client::new(vip);
                client.send("POST", "/a/1024", refused);
                assert_eq!(client.status(), status);
            }
            // Before the one before it is answered.
            let mut client = Client::new(vip);
            client.send("GET", &format!("/a/{}", SIZES[2]), "\r\n");
            client.send("GET", "/b/1024", "\r\n");
            client.reads(SIZES[2]);
            client.reads(small);
            client.goes_on();
            // Three at once.
            let mut client = Client::new(vip);
            client.send("GET", "/b/1024", &"\r\nGET /b/1024 HTTP/1.1\r\nHost: x\r\n".repeat(2));
            client.0.write_all(b"\r\n").expect("it's open");
            (0..3).for_each(|_| client.reads(small));
            // Two at once, for either server, whether it's known where the first belongs or not.
            for sides in [["a", "b"], ["b", "a"]] {
                let mut client = Client::new(vip);
                for _ in 0..3 {
                    client.send(
                        "GET",
                        &format!("/{}/1024", sides[0]),
                        &format!("\r\nGET /{}/1024 HTTP/1.1\r\nHost: x\r\n\r\n", sides[1]),
                    );
                    (0..2).for_each(|_| client.reads(small));
                }
                client.goes_on();
            }
            // The last ones: each side may end it.
            let mut client = Client::new(vip);
            client.send("GET", "/b/1024", "\r\n");
            client.0.shutdown(std::net::Shutdown::Write).expect("it's open");
            client.reads(small);
            assert_eq!(client.0.read(&mut [0]).expect("an end, and no reset"), 0);
            let mut client = Client::new(vip);
            client.send("GET", "/b/1024", "Connection: close\r\n\r\n");
            client.reads(small);
            assert_eq!(client.0.read(&mut [0]).expect("an end, and no reset"), 0);
        }
    });
    if lab.number("dispatcher", "leat_births_total") > 0 {
        each_has_its_own(&servers, 2 * 70);
        assert!(lab.number("dispatcher", "leat_transplants_total") > 0);
    }
}

/// Their servers aren't asked for what they don't serve.
#[test]
fn what_no_node_serves_at_the_moment_is_refused_on_kept_connections() {
    if !is_possible() || !has_nginx() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("unserved"));
    let servers = up(&lab, &folder, "");
    let clients = |side: &str| lab.at("client1", || VIPS.map(|vip| Client::of(vip, side)));
    let (mut of_first, mut others, mut of_drained) = (clients("a"), clients("a"), clients("b"));
    if lab.number("dispatcher", "leat_births_total") == 0 {
        return println!("skipped: this kernel makes no connection of a packet");
    }
    for client in &mut others {
        assert_eq!(client.answered("/c/1024"), "503", "no node ever has it");
        assert_eq!(client.answered("/a/1024"), "200");
    }
    let socket = folder.path("leat.sock");
    let tell =
        |word| lab.well(&["exec", "dispatcher", env!("CARGO_BIN_EXE_leat"), "ctl", "--socket", &socket, word, "n2"]);
    tell("drain");
    for client in &mut of_first {
        for (side, status) in [("b", "503"), ("a", "200"), ("b", "503")] {
            assert_eq!(client.answered(&format!("/{side}/1024")), status, "{side}");
        }
    }
    for client in &mut of_drained {
        assert_eq!(client.answered("/b/1024"), "200", "it has it, and the connection");
    }
    tell("resume");
    for client in &mut of_first {
        assert_eq!(client.answered("/b/1024"), "200");
    }
    each_has_its_own(&servers, 2 * (3 + 1 + 1 + 1 + 1));
    assert_eq!(lab.number("dispatcher", "leat_transplants_cut_total"), 0);
}

/// A host whose processes stand still, until this is dropped: one that stands can't be ended in order, should something fail.
struct Stopped<'a>(&'a Lab, &'a str);

impl Stopped<'_> {
    fn new<'a>(lab: &'a Lab, host: &'a str) -> Stopped<'a> {
        lab.stop(host);
        Stopped(lab, host)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg("-CONT").args(self.0.processes(self.1).split_whitespace()).status();
    }
}

/// After a start of the dispatcher, when it has a link to one of them only.
#[test]
fn what_is_asked_before_all_nodes_are_linked_waits_for_them() {
    if !is_possible() || !has_nginx() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("unlinked"));
    let servers = up(&lab, &folder, "");
    let mut clients = lab.at("client1", || VIPS.map(Client::new));
    if lab.number("dispatcher", "leat_births_total") == 0 {
        return println!("skipped: this kernel makes no connection of a packet");
    }
    let mut count = clients.len();
    // The node for what is asked, and the one that has the connection.
    for (client, lacking) in clients.iter_mut().zip(["n2", "n1"]) {
        let linked = if lacking == "n2" { "n1" } else { "n2" };
        let stopped = Stopped::new(&lab, lacking);
        let before = lab.processes("dispatcher");
        let killed = Instant::now();
        lab.kill_engine("dispatcher");
        within("another engine has a link", || {
            let now = lab.processes("dispatcher");
            now != before && now.split_whitespace().count() == 2 && is_fit(&folder, linked)
        });
        client.send("GET", "/b/1024", "\r\n");
        client.0.set_read_timeout(Some(Duration::from_millis(500))).expect("it's allowed");
        let early = client.0.peek(&mut [0]);
        drop(stopped);
        client.0.set_read_timeout(Some(Duration::from_secs(20))).expect("it's allowed");
        let reply = read_reply(&mut client.0);
        // Links are waited for no longer than 5 s: on a busy machine that may not do.
        if killed.elapsed() < Duration::from_secs(5) {
            let is_neither = early.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            assert!(is_neither, "without {lacking}, neither a reply nor a reset: {early:?}");
            assert!(reply.expect("a reply") == content(SIZES[0]), "without {lacking}");
            count += 1;
        }
        within("both are linked", || ["n1", "n2"].iter().all(|node| is_fit(&folder, node)));
    }
    each_has_its_own(&servers, count);
}

/// Whoever is followed by another process, and when.
#[test]
fn no_upgrade_has_a_request_answered_by_who_has_not_what_it_is_for() {
    if !is_possible() || !has_nginx() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("exchanged"));
    let servers = up(&lab, &folder, "");
    let (began, has_ended) = (Instant::now(), AtomicBool::new(false));
    // Nobody goes on for ever if something else fails.
    let is_over = || has_ended.load(Ordering::Relaxed) || began.elapsed() > Duration::from_secs(120);
    let (mut count, mut cut) = (0, 0);
    std::thread::scope(|scope| {
        let client = |vip| {
            let (mut count, mut cut) = (0_usize, 0);
            while !is_over() {
                let mut stream = connect(vip);
                for side in ["a", "b"].into_iter().cycle() {
                    let asked = stream.write_all(format!("GET /{side}/1024 HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
                    match asked.and_then(|()| read_reply(&mut stream)) {
                        Ok(reply) => assert!(reply == content(SIZES[0]), "{side}: {}", String::from_utf8_lossy(&reply)),
                        Err(_) => {
                            cut += 1;
                            break;
                        }
                    }
                    count += 1;
                    if is_over() {
                        break;
                    }
                }
            }
            (count, cut)
        };
        let lab = &lab;
        let threads: Vec<_> =
            [0, 1, 0, 1].into_iter().map(|vip| scope.spawn(move || lab.at("client1", || client(VIPS[vip])))).collect();
        let said = |what: &str| {
            let log = fs::read_to_string(format!("/run/leat-lab/{}/dispatcher.log", lab.name)).expect("its log");
            log.matches(what).count()
        };
        for host in ["dispatcher", "n1", "dispatcher", "n2"] {
            let sign =
                if host == "dispatcher" { "listening on http://" } else { &format!("node {host}: its link is up") };
            let before = said(sign);
            lab.tell_supervisor(host, "-USR2");
            within("another engine has taken over", || said(sign) > before);
            within("both are linked", || ["n1", "n2"].iter().all(|node| is_fit(&folder, node)));
        }
        has_ended.store(true, Ordering::Relaxed);
        for thread in threads {
            let (of_count, of_cut) = thread.join().expect("it ends well");
            (count, cut) = (count + of_count, cut + of_cut);
        }
    });
    println!("{cut} connections of {count} requests were reset");
    each_has_its_own(&servers, count);
}

/// What nginx makes of it is another matter: it would have to be told of a protocol.
#[test]
fn what_is_said_behind_a_101_goes_on_where_it_is() {
    if !is_possible() || !has_nginx() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("switched"));
    let _servers = up(&lab, &folder, "");
    lab.at("client1", || {
        for vip in VIPS {
            let mut client = Client::new(vip);
            client.send("GET", "/a/switch", "Connection: upgrade\r\nUpgrade: x\r\n\r\n");
            assert_eq!(client.status(), "101");
            // As if a request began, and nothing follows in time.
            for word in ["hello", ", serv", "er\r\n"] {
                client.0.write_all(word.as_bytes()).expect("it's open");
                std::thread::sleep(Duration::from_millis(300));
            }
            assert_eq!(client.status(), "400", "its server has heard it, and it's none of its words");
            // What no request begins with.
            let mut client = Client::new(vip);
            client.send("GET", "/a/switch", "Connection: upgrade\r\nUpgrade: x\r\n\r\n");
            assert_eq!(client.status(), "101");
            client.0.write_all(b"\x81\x05hello").expect("it's open");
            assert_eq!(client.status(), "400", "the same");
        }
    });
    for number in ["leat_transplants_cut_total", "leat_transplants_total"] {
        assert_eq!(lab.number("dispatcher", number), 0, "{number}");
    }
}

/// Connections of a node that drains leave it with their next requests, where content decides.
#[test]
fn a_drained_node_is_left_with_the_next_request() {
    let Some((lab, folder, _servers)) = up_alike("drained") else { return };
    let mut clients = lab.at("client1", || {
        let connect = |_| TcpStream::connect(VIPS[0]).expect("the dispatcher listens");
        let mut clients: Vec<TcpStream> = (0..12).map(connect).collect();
        for (turn, client) in clients.iter_mut().enumerate() {
            client.write_all(format!("GET /1024?{turn} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).expect("it's open");
            assert!(read_reply(client).expect("a reply") == content(SIZES[0]));
        }
        clients
    });
    if lab.number("dispatcher", "leat_births_total") == 0 {
        return println!("skipped: this kernel makes no connection of a packet");
    }
    within("they are counted", || held(&folder, "n1") + held(&folder, "n2") == 12);
    let (drained, other) = if held(&folder, "n1") > 0 { ("n1", "n2") } else { ("n2", "n1") };
    lab.well(&[
        "exec",
        "dispatcher",
        env!("CARGO_BIN_EXE_leat"),
        "ctl",
        "--socket",
        &folder.path("leat.sock"),
        "drain",
        drained,
    ]);
    for client in &mut clients {
        assert!(get(client, "/1024") == content(SIZES[0]));
    }
    within("the drained one is empty", || held(&folder, drained) == 0 && held(&folder, other) == 12);
}

/// Where a request that belongs elsewhere comes with another one's beginning, nobody knows where the next one begins.
#[test]
fn requests_that_come_at_once_are_all_answered_wherever_their_packets_end() {
    let Some((lab, _folder, _servers)) = up_alike("at-once") else { return };
    let [small, large, _] = SIZES;
    lab.at("client1", || {
        // Each has one of them.
        for size in [small, large] {
            assert!(get(&mut connect(VIPS[0]), &format!("/{size}")) == content(size));
        }
        for (first, then) in [(small, [large, small, large]), (large, [small, large, small])] {
            let requests = then.map(|size| format!("GET /{size} HTTP/1.1\r\nHost: x\r\n\r\n"));
            let all = requests.concat();
            for cut in 1..all.len() {
                let mut stream = connect(VIPS[0]);
                assert!(get(&mut stream, &format!("/{first}")) == content(first));
                let (mut read, mut whole) = (0, requests[0].len());
                stream.write_all(&all.as_bytes()[..cut]).expect("it's open");
                // The rest comes once what came before it has been looked at.
                while whole <= cut {
                    assert!(
                        read_reply(&mut stream).expect("a reply") == content(then[read]),
                        "{cut} of {first}: {read}"
                    );
                    read += 1;
                    whole += requests[read].len();
                }
                stream.write_all(&all.as_bytes()[cut..]).expect("it's open");
                for size in &then[read..] {
                    assert!(read_reply(&mut stream).expect("a reply") == content(*size), "{cut} of {first}");
                }
            }
        }
    });
}

/// Whether a reply has content is known by its request, of which a packet may have a byte only.
#[test]
fn a_connection_goes_on_at_once_behind_a_request_in_many_packets() {
    let Some((lab, _folder, _servers)) = up_alike("in-many") else { return };
    let [small, large, _] = SIZES;
    lab.at("client1", || {
        for first in 1..4 {
            let mut client = Client(connect(VIPS[0]));
            // A server that wasn't done would be asked for 10 s.
            client.0.set_read_timeout(Some(Duration::from_secs(5))).expect("a time-out");
            // It begins at a server, as its first request is in one packet.
            assert!(get(&mut client.0, &format!("/{small}")) == content(small));
            for (size, other) in [(small, large), (large, small)] {
                let request = format!("HEAD /{size} HTTP/1.1\r\nHost: x\r\n\r\n");
                let (beginning, rest) = request.split_at(first);
                [beginning, rest].iter().for_each(|part| client.0.write_all(part.as_bytes()).expect("it's open"));
                assert_eq!(client.status(), "200", "{first}, {size}");
                client.send("GET", &format!("/{other}"), "\r\n");
                client.reads(other);
            }
        }
    });
    if lab.number("dispatcher", "leat_births_total") > 0 {
        assert!(lab.number("dispatcher", "leat_transplants_total") > 0);
    }
}

/// Clients acknowledge out of turn where packets are lost or overtaken, also between two servers.
#[test]
fn no_connection_is_reset_where_packets_are_lost_and_overtaken() {
    if !(is_possible() && has_nginx()) {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("lossy"));
    let wire = "[lab]\nclient_delay = '3ms'\nclient_loss = '2%'\nclient_reorder = '5%'\noffloads = false\n";
    // Behind the second node's section.
    let _servers = up_with(&lab, &folder, "policy = 'mix_lard'", ["", wire]);
    let (clients, requests, begun) = (24, 10, Instant::now());
    let [small, large, _] = SIZES;
    let ask = |number: usize| {
        for round in 0.. {
            if begun.elapsed() > Duration::from_secs(8) {
                return;
            }
            let mut stream = connect(VIPS[(number + round) % VIPS.len()]);
            for turn in 0..requests {
                // Each has one of them, now and then.
                let size = if (number + turn).is_multiple_of(2) { small } else { large };
                let all = format!("GET /{size} HTTP/1.1\r\nHost: x\r\n\r\n");
                stream.write_all(all.as_bytes()).expect("it's open");
                let reply = read_reply(&mut stream);
                assert!(reply.is_ok_and(|reply| reply == content(size)), "client {number}: {round}, {turn}");
            }
        }
    };
    lab.at("client1", || {
        std::thread::scope(|scope| (0..clients).for_each(|number| drop(scope.spawn(move || ask(number)))));
    });
    let moved = lab.number("dispatcher", "leat_transplants_total");
    assert!(moved > 100 || lab.number("dispatcher", "leat_births_total") == 0, "{moved} went on elsewhere");
}
