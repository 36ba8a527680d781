//! Requests that are passed on to other servers: what those are told, what comes back, and what is made of servers that misbehave.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Barrier, mpsc};

use crate::on_both_reactors;
use crate::support::{Client, Directory, Reactor, Server, Upstream, eventually};

pub const HELLO: &str =
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Own: yes\r\nServer: other\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\nhello";

/// A site whose `/api/*` goes to `to`, with more keys for the handler.
pub fn serve(reactor: Reactor, directory: &Directory, to: &[SocketAddr], keys: &str) -> Server {
    directory.write("site/index.html", "a file");
    Server::configured(reactor, directory, &configuration(to, keys))
}

/// The configuration of [`serve`].
pub fn configuration(to: &[SocketAddr], keys: &str) -> String {
    let to: Vec<_> = to.iter().map(|address| format!("\"{address}\"")).collect();
    format!(
        "workers = 1\n[admin]\nlisten = \"127.0.0.1:0\"\n[[site]]\nname = \"it\"\nroot = \"site\"\nlisten = \"127.0.0.1:0\"\n\
         [site.limits]\nbody_size = \"64MiB\"\n\
         [[site.handler]]\npath = \"/api/*\"\n[site.handler.proxy]\nto = [{}]\n{keys}\n",
        to.join(", ")
    )
}

/// An address that refuses.
pub fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

pub fn count(server: &Server, family: &str) -> u64 {
    let mut admin = Client::connect(server.admin());
    let page = admin.get("/metrics").text();
    let line = page.lines().find(|line| line.starts_with(&format!("leat_upstream_{family}_total{{site=\"it\"}}")));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default()
}

fn requests_go_on_over_connections_that_stay(reactor: Reactor) {
    let directory = Directory::new();
    let upstream = Upstream::saying(HELLO);
    let server = serve(reactor, &directory, &[upstream.address()], "");
    let mut client = server.connect();
    for _ in 0..3 {
        let reply = client
            .ask("GET /api/x%20y?z HTTP/1.1\r\nHost: it.test\r\nConnection: x-mine\r\nX-Mine: 1\r\nX-Yours: 2\r\n\r\n");
        assert_eq!((reply.status, reply.text(), reply.must("x-own")), (200, "hello".to_owned(), "yes"));
        assert_eq!((reply.field("x-hop"), reply.must("server")), (None, "leat"));
    }
    assert_eq!(client.get("/").text(), "a file");
    let head = client.ask("HEAD /api/ HTTP/1.1\r\nHost: it.test\r\n\r\n");
    assert_eq!(head.must("content-length"), "5");
    assert_eq!(upstream.heads().len(), 4);
    let told = &upstream.heads()[0];
    assert!(told.starts_with("GET /api/x%20y?z HTTP/1.1\r\nHost: it.test\r\nX-Yours: 2\r\n"), "{told}");
    assert!(told.contains("X-Forwarded-Host: it.test\r\nX-Forwarded-Proto: http\r\n"), "{told}");
    assert!(told.contains("X-Forwarded-For: 127.0.0.1\r\n") && !told.to_lowercase().contains("x-mine"), "{told}");
    assert_eq!(server.request("TRACE /api/ HTTP/1.1\r\nHost: it.test\r\n\r\n").status, 501);
}

/// Whoever ends a connection first keeps its port for a minute: with one for each request leat would soon have none left.
fn a_connection_for_one_request_keeps_no_port(reactor: Reactor) {
    let directory = Directory::new();
    let (told, ends) = mpsc::channel();
    let upstream = Upstream::start(move |conversation| {
        conversation.head();
        conversation.say(HELLO);
        let end = conversation.stream.read(&mut [0]);
        let _ = told.send(end.map_err(|error| error.kind()));
    });
    let server = serve(reactor, &directory, &[upstream.address()], "idle_connections = 0");
    let mut client = server.connect();
    for _ in 0..2 {
        assert_eq!(client.get("/api/").text(), "hello");
        assert_eq!(ends.recv(), Ok(Err(ErrorKind::ConnectionReset)));
    }
    assert!(upstream.heads().iter().all(|head| head.contains("\r\nConnection: close\r\n")), "{:?}", upstream.heads());
}

/// Some servers say 999 to robots: that is no failure of a server.
fn a_status_without_a_class_is_counted_apart(reactor: Reactor) {
    let directory = Directory::new();
    let upstream = Upstream::saying("HTTP/1.1 999 Denied\r\nContent-Length: 2\r\n\r\nno");
    let server = serve(reactor, &directory, &[upstream.address()], "");
    assert_eq!(server.get("/api/").status, 999);
    let page = Client::connect(server.admin()).get("/metrics").text();
    let counted: Vec<_> = page.lines().filter(|line| line.starts_with("leat_requests_total{site=\"it\"")).collect();
    assert_eq!(counted, ["leat_requests_total{site=\"it\",status=\"other\"} 1"]);
}

fn a_site_may_be_a_proxy_alone_and_keep_a_part_of_the_path(reactor: Reactor) {
    let directory = Directory::new();
    let upstream = Upstream::saying(HELLO);
    let text = format!(
        "[[site]]\nlisten = \"127.0.0.1:0\"\n\
         [[site.handler]]\npath = \"/api/*\"\nproxy = {{ to = \"{to}\", strip_path = true }}\n\
         [[site.handler]]\npath = \"/*\"\nproxy = {{ to = \"{to}\" }}\n",
        to = upstream.address()
    );
    let server = Server::configured(reactor, &directory, &text);
    let mut client = server.connect();
    for (path, target, prefix) in [
        ("/api/a%20b?c", "/a%20b?c", true),
        ("/api", "/", true),
        ("//api/./x", "/x", true),
        ("/other/x", "/other/x", false),
        ("/other/é?é", "/other/%C3%A9?%C3%A9", false),
    ] {
        assert_eq!(client.get(path).text(), "hello", "{path}");
        let told = upstream.heads().pop().unwrap();
        assert!(told.starts_with(&format!("GET {target} HTTP/1.1\r\n")), "{path}: {told}");
        assert_eq!(told.contains("X-Forwarded-Prefix: /api\r\n"), prefix, "{path}: {told}");
    }
    assert_eq!(client.ask("OPTIONS * HTTP/1.1\r\nHost: it.test\r\n\r\n").status, 204);
}

/// As GitLab's projects, npm's scopes and RabbitMQ's virtual hosts are named.
fn an_encoded_slash_goes_on_as_it_came(reactor: Reactor) {
    let directory = Directory::new();
    directory.write("site/a/index.html", "a file");
    let upstream = Upstream::saying(HELLO);
    let text = format!(
        "[[site]]\nroot = \"site\"\nlisten = \"127.0.0.1:0\"\n[[site.access]]\npath = \"/api/closed/*\"\ndeny = \"127.0.0.1\"\n\
         [[site.handler]]\npath = \"/api/own/*\"\nredirect = {{ to = \"/a/\" }}\n\
         [[site.handler]]\npath = \"/api/*\"\nproxy = {{ to = \"{to}\" }}\n\
         [[site.handler]]\npath = \"/npm/*\"\nproxy = {{ to = \"{to}\", strip_path = true }}\n",
        to = upstream.address()
    );
    let server = Server::configured(reactor, &directory, &text);
    let mut client = server.connect();
    for (path, target) in [
        ("/api/projects/group%2Fname/x", "/api/projects/group%2Fname/x"),
        ("/api/queues/%2f/name?q=%2F", "/api/queues/%2f/name?q=%2F"),
        ("/npm/@scope%2Fname", "/@scope%2Fname"),
    ] {
        assert_eq!(client.get(path).text(), "hello", "{path}");
        assert!(upstream.heads().pop().unwrap().starts_with(&format!("GET {target} HTTP/1.1\r\n")), "{path}");
    }
    // What another handler's, no handler's, or below another path could be if the slash is data.
    for path in ["/api/own%2Fx", "/api%2Fx", "/a%2Findex.html", "/own/..%2Fapi/x", "/api/..%2Fa/", "/api%2F..%2Fa/"] {
        assert_eq!(client.get(path).status, 404, "{path}");
    }
    // Whoever reads the slash as one finds what is kept from the client.
    for path in ["/api/closed%2Fx", "/api/closed/%2f", "/api/%2fclosed/x"] {
        assert_eq!(client.get(path).status, 403, "{path}");
    }
    assert_eq!(upstream.heads().len(), 3);
    // The fallback's path has none, whatever the request's had.
    let text = format!(
        "[[site]]\nroot = \"site\"\nlisten = \"127.0.0.1:0\"\nfallback = \"/npm/index\"\n\
         [[site.handler]]\npath = \"/npm/*\"\nproxy = {{ to = \"{to}\", strip_path = true }}\n",
        to = upstream.address()
    );
    let server = Server::configured(reactor, &directory, &text);
    assert_eq!(server.connect().get("/zzz/admin/users%2F").text(), "hello");
    assert!(upstream.heads().pop().unwrap().starts_with("GET /index HTTP/1.1\r\n"), "{:?}", upstream.heads());
}

fn content_goes_both_ways(reactor: Reactor) {
    let directory = Directory::new();
    let upstream = Upstream::start(|conversation| {
        while let Some(head) = conversation.head() {
            let content = match head.contains("Transfer-Encoding: chunked") {
                true => conversation.chunks(),
                false => conversation.content(3_000_000),
            };
            let Some(content) = content else { return };
            conversation.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            for piece in content.chunks(70_000) {
                conversation.say(format!("{:x}\r\n", piece.len()));
                conversation.say(piece);
                conversation.say("\r\n");
            }
            conversation.say("0\r\n\r\n");
        }
    });
    let server = serve(reactor, &directory, &[upstream.address()], "");
    let mut client = server.connect();
    let content: Vec<u8> = (0..3_000_000u32).map(|at| (at % 251) as u8).collect();
    for _ in 0..2 {
        let head = format!("POST /api/ HTTP/1.1\r\nHost: it.test\r\nContent-Length: {}\r\n\r\n", content.len());
        client.send([head.as_bytes(), &content].concat());
        assert!(client.reply().body == content);
    }
    let head = "PUT /api/ HTTP/1.1\r\nHost: it.test\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(format!("{head}3;x=y\r\nabc\r\n"));
    client.send("2\r\nde\r\n0\r\nTrailer: dropped\r\n\r\n");
    let sent = client.reply().text();
    assert!(sent.ends_with("0\r\n\r\n") && !sent.contains("railer"), "{sent}");
    assert_eq!(sent.replace("\r\n", " ").split(' ').filter(|part| part.len() > 1).collect::<String>(), "abcde");
    assert_eq!(upstream.accepted(), 1);
}

/// Replies of which the first bytes are exactly what is received at a time, or one more or less, for a client that doesn't read before it has asked for all.
fn long_replies_arrive_whole_and_in_order(reactor: Reactor) {
    const LENGTHS: [usize; 9] = [4_095, 4_096, 8_191, 8_192, 8_193, 65_536, 73_728, 3_000_000, 1];
    let directory = Directory::new();
    let content = |number: usize| -> Vec<u8> { (0..LENGTHS[number]).map(|at| ((at + number) % 251) as u8).collect() };
    let upstream = Upstream::start(move |conversation| {
        while let Some(head) = conversation.head() {
            let number: usize = head.split(['/', ' ']).nth(3).unwrap().parse().unwrap();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", LENGTHS[number]);
            // Head and content together are what's named; the rest follows.
            let together = [head.as_bytes(), &content(number)].concat();
            let (first, rest) = together.split_at(LENGTHS[number].min(together.len()));
            conversation.say(first);
            conversation.say(rest);
        }
    });
    let server = serve(reactor, &directory, &[upstream.address()], "");
    let mut client = server.connect();
    for number in 0..LENGTHS.len() {
        client.send(format!("GET /api/{number} HTTP/1.1\r\nHost: it.test\r\n\r\n"));
    }
    for number in 0..LENGTHS.len() {
        assert!(client.reply().body == content(number), "{number}");
    }
}

fn what_follows_long_content_is_the_next_request(reactor: Reactor) {
    let directory = Directory::new();
    let upstream = Upstream::start(|conversation| {
        while let Some(head) = conversation.head() {
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
            let Some(content) = conversation.content(length.unwrap_or_default()) else { return };
            conversation.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", content.len()));
            conversation.say(content);
        }
    });
    let server = serve(reactor, &directory, &[upstream.address()], "");
    let mut client = server.connect();
    for length in [30_000, 33_000, 200_000, 65_536 - 8_192, 1_000_000, 10] {
        let content: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let head = format!("POST /api/ HTTP/1.1\r\nHost: it.test\r\nContent-Length: {length}\r\n\r\n");
        client.send([head.as_bytes(), &content, b"GET / HTTP/1.1\r\nHost: it.test\r\n\r\n"].concat());
        assert!(client.reply().body == content, "{length}");
        assert_eq!(client.reply().text(), "a file");
    }
}

fn leave_to_send_content_is_given(reactor: Reactor) {
    let directory = Directory::new();
    let upstream = Upstream::start(|conversation| {
        conversation.head();
        conversation.content(5);
        conversation.say(HELLO);
        conversation.until_closed();
    });
    let server = serve(reactor, &directory, &[upstream.address()], "");
    let mut client = server.connect();
    client.send("POST /api/ HTTP/1.1\r\nHost: it.test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(client.reply_head().unwrap().status, 100);
    client.send("12345");
    assert_eq!(client.reply().text(), "hello");
}

fn interim_replies_come_as_they_are_said(reactor: Reactor) {
    const HINTS: &str =
        "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n";
    let directory = Directory::new();
    let (leave, may_go) = mpsc::channel::<()>();
    let may_go = std::sync::Mutex::new(may_go);
    let upstream = Upstream::start(move |conversation| {
        while conversation.head().is_some() {
            for _ in 0..2 {
                conversation.say(HINTS);
                may_go.lock().unwrap().recv().unwrap();
            }
            conversation.say(format!("{HINTS}{HELLO}"));
        }
    });
    let server = serve(reactor, &directory, &[upstream.address()], "");
    let mut client = server.connect();
    for _ in 0..2 {
        client.send("GET /api/ HTTP/1.1\r\nHost: it.test\r\n\r\n");
        for said in 0..3 {
            let hints = client.reply_head().unwrap();
            assert_eq!((hints.status, hints.must("link"), hints.field("x-hop")), (103, "</a.css>; rel=preload", None));
            if said < 2 {
                leave.send(()).unwrap();
            }
        }
        assert_eq!(client.reply().text(), "hello");
    }
    // Who speaks HTTP/1.0 doesn't know that there is such a thing.
    (0..2).for_each(|_| leave.send(()).unwrap());
    let old = server.connect().ask("GET /api/ HTTP/1.0\r\n\r\n");
    assert_eq!((old.status, old.text()), (200, "hello".to_owned()));
    // A server that ends after hints has said nothing that could be the reply.
    let upstream = Upstream::saying(HINTS);
    let server = serve(reactor, &directory, &[upstream.address()], "timeout = \"500ms\"");
    let mut client = server.connect();
    client.send("GET /api/ HTTP/1.1\r\nHost: it.test\r\n\r\n");
    assert_eq!(client.reply_head().unwrap().status, 103);
    assert_eq!(client.reply_head().unwrap().status, 504);
}

fn an_early_reply_gets_through(reactor: Reactor) {
    let directory = Directory::new();
    let upstream = Upstream::start(|conversation| {
        conversation.head();
        conversation.say("HTTP/1.1 413 Too much\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
        conversation.until_closed();
    });
    let server = serve(reactor, &directory, &[upstream.address()], "");
    let mut client = server.connect();
    client.send("POST /api/ HTTP/1.1\r\nHost: it.test\r\nContent-Length: 50000\r\n\r\nabc");
    let reply = client.reply();
    assert_eq!((reply.status, reply.text()), (413, "no".to_owned()));
}

/// Some too small to be sent from where they lie, more than are sent together, and larger than what is received at once.
fn chunks_of_any_size_come_through(reactor: Reactor) {
    let directory = Directory::new();
    let sizes =
        [[1; 300].as_slice(), &[20_000, 1, 4095, 4096, 4097], &[7; 1000], &[100_000, 2, 65_536, 8192, 3]].concat();
    let content: Vec<u8> = (0..sizes.iter().sum::<usize>()).map(|at| (at % 251) as u8).collect();
    let mut reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    let mut rest = content.as_slice();
    for &size in &sizes {
        let chunk;
        (chunk, rest) = rest.split_at(size);
        reply.extend_from_slice(format!("{size:x}{}\r\n", if size > 1000 { ";it=said" } else { "" }).as_bytes());
        reply.extend_from_slice(chunk);
        reply.extend_from_slice(b"\r\n");
    }
    reply.extend_from_slice(b"0\r\nX-Trailer: 1\r\n\r\n");
    let upstream = Upstream::start(move |conversation| {
        while conversation.head().is_some() {
            conversation.say(&reply);
        }
    });
    let server = serve(reactor, &directory, &[upstream.address()], "");
    let mut client = server.connect();
    for _ in 0..3 {
        let reply = client.get("/api/");
        assert_eq!((reply.status, reply.field("content-length")), (200, None));
        assert!(reply.body == content, "what came isn't what was sent");
    }
    let mut old = server.connect();
    old.send("GET /api/ HTTP/1.0\r\nHost: it.test\r\n\r\n");
    assert!(old.until_closed().ends_with(&content), "what came isn't what was sent");
}

/// More lies there than can wait for the server, which is told the host three times, and nothing more comes: wherever that is cut, the rest follows.
fn content_that_lies_there_goes_on_by_itself(reactor: Reactor) {
    const CHUNKS: usize = 21_000;
    let directory = Directory::new();
    let (leave, may_go) = mpsc::channel::<()>();
    let may_go = std::sync::Mutex::new(may_go);
    let (heard, is_heard) = mpsc::channel();
    let upstream = Upstream::start(move |conversation| {
        while let Some(head) = conversation.head() {
            if head.starts_with("POST") {
                let content = conversation.chunks().unwrap_or_default();
                let count = content.iter().filter(|&&byte| byte == b'x').count();
                conversation.say(format!("HTTP/1.1 200 OK\r\nX-Count: {count}\r\nContent-Length: 0\r\n\r\n"));
            } else {
                heard.send(()).unwrap();
                may_go.lock().unwrap().recv().unwrap();
                conversation.say(HELLO);
            }
        }
    });
    let server = serve(reactor, &directory, &[upstream.address()], "[site.quota]\nmemory = \"64MiB\"");
    let held_bytes = || {
        let page = Client::connect(server.admin()).get("/metrics").text();
        let line = page.lines().find(|line| line.starts_with("leat_memory_held_bytes{site=\"it\"}"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).unwrap_or_default()
    };
    for pad in 0..6 {
        let mut client = server.connect();
        client.send("GET /api/ HTTP/1.1\r\nHost: it.test\r\n\r\n");
        is_heard.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
        let (host, pad) = ("h".repeat(4500), "p".repeat(pad));
        let head = format!("POST /api/ HTTP/1.1\r\nHost: {host}\r\nX-Pad: {pad}\r\nTransfer-Encoding: chunked\r\n\r\n");
        let request = [head, "1\r\nx\r\n".repeat(CHUNKS), "0\r\n\r\n".to_owned()].concat();
        client.send(&request);
        eventually("all of it lies there", || (held_bytes() >= request.len()).then_some(()));
        leave.send(()).unwrap();
        assert_eq!(client.reply().text(), "hello");
        assert_eq!(client.reply().must("x-count"), CHUNKS.to_string());
    }
}

fn half_a_reply_never_looks_whole(reactor: Reactor) {
    let directory = Directory::new();
    let upstream = Upstream::start(|conversation| {
        let head = conversation.head().unwrap_or_default();
        if head.contains("/length") {
            conversation.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        } else {
            conversation.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n");
        }
        conversation.end();
    });
    let server = serve(reactor, &directory, &[upstream.address()], "");
    for path in ["length", "chunked"] {
        let mut client = server.connect();
        client.send(format!("GET /api/{path} HTTP/1.1\r\nHost: it.test\r\n\r\n"));
        // It's wrong from the first where all of that is heard at once.
        let reply = client.try_reply();
        assert!(reply.as_ref().map_or(true, |reply| reply.status == 502), "{path}: {reply:?}");
    }
    server.wait_for_stderr(&["in the middle of its reply"]);
    assert_eq!(count(&server, "failures"), 2);
}

/// A client of HTTP/1.0, to which a reply without a length ends with the connection.
fn half_a_reply_without_a_length_ends_with_a_reset(reactor: Reactor) {
    let directory = Directory::new();
    let (end, ends) = mpsc::channel::<()>();
    let ends = std::sync::Mutex::new(ends);
    let upstream = Upstream::start(move |conversation| {
        conversation.head();
        conversation.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n");
        let _ = ends.lock().unwrap().recv();
        conversation.end();
    });
    let server = serve(reactor, &directory, &[upstream.address()], "");
    let mut client = server.connect();
    client.send("GET /api/ HTTP/1.0\r\nHost: it.test\r\n\r\n");
    let (mut got, mut byte) = (Vec::new(), [0]);
    while !got.ends_with(b"\r\n\r\nhalf") {
        client.stream().read_exact(&mut byte).unwrap();
        got.push(byte[0]);
    }
    end.send(()).unwrap();
    let error = client.stream().read(&mut byte).expect_err("an end in order makes it look whole");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// A server that resets the connection while it's sent content: who is told of that by a send sees an end in order when receiving.
fn a_reset_in_the_middle_of_an_upload_is_no_end(reactor: Reactor) {
    let directory = Directory::new();
    let upstream = Upstream::start(|conversation| {
        conversation.head();
        // What it hasn't read has its kernel reset the connection.
        conversation.content(1);
        conversation.say("HTTP/1.1 200 OK\r\n\r\nhalf");
    });
    let server = serve(reactor, &directory, &[upstream.address()], "");
    let content = vec![b'x'; 1 << 20];
    for _ in 0..50 {
        let mut client = server.connect();
        let mut sender = client.stream().try_clone().unwrap();
        let content = content.clone();
        let sending = std::thread::spawn(move || {
            use std::io::Write;
            let head = format!("POST /api/ HTTP/1.1\r\nHost: it.test\r\nContent-Length: {}\r\n\r\n", content.len());
            let _ = sender.write_all(head.as_bytes()).and_then(|()| sender.write_all(&content));
        });
        let reply = client.try_reply();
        assert!(reply.as_ref().map_or(true, |reply| reply.status == 502), "{reply:?}");
        drop(client);
        sending.join().unwrap();
    }
}

/// Where a site holds too much, nothing is heard that comes while something waits for the client. Some of these replies wait as a whole as the end comes.
fn an_end_is_heard_that_comes_while_the_client_is_behind(reactor: Reactor) {
    const LENGTHS: std::ops::Range<usize> = 8..40;
    let directory = Directory::new();
    let together = std::sync::Arc::new(std::sync::Barrier::new(LENGTHS.len() + 1));
    let theirs = together.clone();
    let upstream = Upstream::start(move |conversation| {
        let head = conversation.head().unwrap();
        let bytes: usize = head.split(['/', ' ']).nth(3).and_then(|bytes| bytes.parse().ok()).unwrap();
        conversation.say("HTTP/1.0 200 OK\r\n\r\n");
        theirs.wait();
        conversation.say(vec![b'x'; bytes]);
        theirs.wait();
        theirs.wait();
        conversation.end();
    });
    let server = serve(reactor, &directory, &[upstream.address()], "[site.quota]\nmemory = \"256KiB\"");
    let mut clients: Vec<_> = LENGTHS.map(|count| (server.connect(), count << 14)).collect();
    for (client, bytes) in &mut clients {
        client.send(format!("GET /api/{bytes} HTTP/1.0\r\nHost: it.test\r\n\r\n"));
        assert_eq!(client.reply_head().unwrap().status, 200);
    }
    together.wait();
    together.wait();
    // The worker has taken in what had come by then.
    assert_eq!(Client::connect(server.admin()).get("/health").status, 200);
    together.wait();
    for (client, bytes) in &mut clients {
        assert_eq!(client.until_closed().len(), *bytes);
    }
}

/// The rest is waited for, not looked for.
fn half_a_line_keeps_no_worker_busy(reactor: Reactor) {
    for half in ["HTTP/1.1 200 OK\r\nX-Half: ", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1"] {
        let directory = Directory::new();
        let (said, is_said) = mpsc::channel();
        let upstream = Upstream::start(move |conversation| {
            conversation.head();
            conversation.say(half);
            said.send(()).unwrap();
            conversation.until_closed();
        });
        let server = serve(reactor, &directory, &[upstream.address()], "");
        let mut client = server.connect();
        client.send("GET /api/ HTTP/1.1\r\nHost: it.test\r\n\r\n");
        is_said.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
        let mut other = server.connect();
        for _ in 0..200 {
            assert_eq!(other.get("/").text(), "a file");
        }
        let events = |stage: &str| {
            let page = Client::connect(server.admin()).get("/metrics").text();
            let sample = format!("leat_events_total{{site=\"it\",stage=\"{stage}\"}} ");
            page.lines().find_map(|line| line.strip_prefix(&sample)?.parse::<u32>().ok()).unwrap_or_default()
        };
        // They're told of now and then.
        eventually("the requests' events are counted", || (events("serve") >= 200).then_some(()));
        let count = events("transmit");
        assert!(count < 20, "{count} events for {half:?}");
    }
}

fn what_is_no_reply_is_502(reactor: Reactor) {
    let directory = Directory::new();
    let upstream = Upstream::start(|conversation| {
        let head = conversation.head().unwrap_or_default();
        if head.contains("/garbage") {
            conversation.say("SSH-2.0-OpenSSH\r\n\r\n");
        } else if head.contains("/switch") {
            conversation.say("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n");
        } else if head.contains("/both") {
            conversation.say("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
        } else if head.contains("/chunk") {
            conversation.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\nno chunk\r\n");
        }
        conversation.end();
    });
    let server = serve(reactor, &directory, &[upstream.address()], "");
    for path in ["garbage", "switch", "both", "chunk", "end"] {
        assert_eq!(server.get(&format!("/api/{path}")).status, 502, "{path}");
    }
    // Only the last was worth another try.
    assert_eq!((upstream.accepted(), count(&server, "retries"), count(&server, "failures")), (6, 1, 5));
}

/// What comes with a request is kept for the server that can be reached.
fn content_waits_for_who_can_be_reached(reactor: Reactor) {
    let directory = Directory::new();
    let upstream = Upstream::start(|conversation| {
        while let Some(head) = conversation.head() {
            let content = match head.contains("Transfer-Encoding: chunked") {
                true => conversation.chunks(),
                false => conversation.content(8),
            };
            let Some(content) = content else { return };
            conversation.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", content.len()));
            conversation.say(content);
        }
    });
    for (fields, content, passed_on) in [
        ("Content-Length: 8", "all of i", "all of i"),
        ("Transfer-Encoding: chunked", "3\r\nall\r\n3\r\n of\r\n0\r\n\r\n", "3\r\nall\r\n3\r\n of\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked", "0\r\n\r\n", "0\r\n\r\n"),
    ] {
        let server = serve(reactor, &directory, &[nobody(), upstream.address()], "");
        let request = format!("PUT /api/ HTTP/1.1\r\nHost: it.test\r\n{fields}\r\n\r\n{content}");
        assert_eq!(server.request(&request).text(), passed_on, "{fields}");
        assert_eq!(count(&server, "retries"), 1, "{fields}");
    }
}

/// Content that a server has had can't be sent to another: its request would be followed by the next in its place.
fn content_is_never_sent_twice(reactor: Reactor) {
    let directory = Directory::new();
    let upstream = Upstream::start(|conversation| {
        conversation.head();
        conversation.content(5);
        conversation.end();
    });
    let server = serve(reactor, &directory, &[upstream.address()], "");
    for method in ["GET", "OPTIONS"] {
        let request = format!("{method} /api/ HTTP/1.1\r\nHost: it.test\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(server.request(&request).status, 502, "{method}");
    }
    assert_eq!((upstream.accepted(), count(&server, "retries")), (2, 0));
}

fn a_kept_connection_that_ends_costs_nobody_a_reply(reactor: Reactor) {
    let directory = Directory::new();
    // Each connection answers once, and ends when it is asked again.
    let upstream = Upstream::start(|conversation| {
        conversation.head();
        conversation.say(HELLO);
        conversation.head();
        conversation.end();
    });
    let server = serve(reactor, &directory, &[upstream.address()], "");
    let mut client = server.connect();
    for _ in 0..4 {
        assert_eq!(client.get("/api/").text(), "hello");
    }
    assert_eq!((count(&server, "retries"), count(&server, "failures")), (3, 0));
    // What might be done twice isn't sent twice.
    assert_eq!(client.ask("POST /api/ HTTP/1.1\r\nHost: it.test\r\nContent-Length: 0\r\n\r\n").status, 502);
}

fn several_kept_connections_that_end_cost_nobody_a_reply(reactor: Reactor) {
    for keys in ["", "retries = 0"] {
        let directory = Directory::new();
        let begun = Barrier::new(3);
        // Three connections are needed at once, and all end when they are used again.
        let upstream = Upstream::start(move |conversation| {
            conversation.head();
            if conversation.number <= 3 {
                begun.wait();
            }
            conversation.say(HELLO);
            conversation.head();
            conversation.end();
        });
        let server = serve(reactor, &directory, &[upstream.address()], keys);
        let mut clients = [(); 3].map(|()| server.connect());
        for client in &mut clients {
            client.send("GET /api/ HTTP/1.1\r\nHost: it.test\r\n\r\n");
        }
        for client in &mut clients {
            assert_eq!(client.reply().text(), "hello");
        }
        for _ in 0..3 {
            assert_eq!(clients[0].get("/api/").text(), "hello");
        }
        assert_eq!((count(&server, "retries"), count(&server, "failures")), (3, 0), "{keys}");
    }
}

fn a_client_that_goes_is_noticed(reactor: Reactor) {
    let directory = Directory::new();
    let (gone, is_gone) = mpsc::channel();
    let (heard, is_heard) = mpsc::channel();
    let upstream = Upstream::start(move |conversation| {
        conversation.head();
        heard.send(()).unwrap();
        conversation.until_closed();
        gone.send(()).unwrap();
    });
    let server = serve(reactor, &directory, &[upstream.address()], "");
    let mut client = server.connect();
    client.send("GET /api/ HTTP/1.1\r\nHost: it.test\r\n\r\n");
    is_heard.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
    drop(client);
    is_gone.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
}

/// The end comes while a reply is under way that needs no handler, and half of the next request's content before it.
fn a_client_that_ends_in_the_middle_of_its_content_is_noticed(reactor: Reactor) {
    let directory = Directory::new();
    let (gone, is_gone) = mpsc::channel();
    let upstream = Upstream::start(move |conversation| {
        conversation.head();
        conversation.until_closed();
        gone.send(()).unwrap();
    });
    let file = vec![b'f'; 8 << 20];
    directory.write("site/long", &file);
    let server = serve(reactor, &directory, &[upstream.address()], "");
    let mut client = server.connect();
    client.send("GET /long HTTP/1.1\r\nHost: it.test\r\n\r\n");
    client.reply_head().unwrap();
    client.send("PUT /api/ HTTP/1.1\r\nHost: it.test\r\nContent-Length: 10\r\n\r\nhalf");
    client.finish_sending();
    assert_eq!(client.read_content(file.len()).unwrap().len(), file.len());
    is_gone.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
    assert!(client.try_reply().is_err());
}

fn more_than_may_be_at_once_wait(reactor: Reactor) {
    let directory = Directory::new();
    let (leave, may_go) = mpsc::channel::<()>();
    let may_go = std::sync::Mutex::new(may_go);
    let (heard, is_heard) = mpsc::channel();
    let upstream = Upstream::start(move |conversation| {
        while conversation.head().is_some() {
            heard.send(()).unwrap();
            may_go.lock().unwrap().recv().unwrap();
            conversation.say(HELLO);
        }
    });
    let server = serve(reactor, &directory, &[upstream.address()], "connections = 1\nqueue = 1");
    let mut clients: Vec<_> = (0..2).map(|_| server.connect()).collect();
    clients[0].send("GET /api/ HTTP/1.1\r\nHost: it.test\r\n\r\n");
    is_heard.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
    clients[1].send("GET /api/ HTTP/1.1\r\nHost: it.test\r\n\r\n");
    leave.send(()).unwrap();
    leave.send(()).unwrap();
    assert_eq!(clients[0].reply().text(), "hello");
    assert_eq!(clients[1].reply().text(), "hello");
    assert_eq!(upstream.accepted(), 1);
}

/// Between two waves of requests all connections are unused.
fn as_many_connections_are_kept_as_have_been_used(reactor: Reactor) {
    const CLIENTS: usize = 40;
    let directory = Directory::new();
    let all_have_asked = std::sync::Barrier::new(CLIENTS);
    let upstream = Upstream::start(move |conversation| {
        while conversation.head().is_some() {
            all_have_asked.wait();
            conversation.say(HELLO);
        }
    });
    let server = serve(reactor, &directory, &[upstream.address()], "");
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    for _ in 0..2 {
        clients.iter_mut().for_each(|client| client.send("GET /api/ HTTP/1.1\r\nHost: it.test\r\n\r\n"));
        clients.iter_mut().for_each(|client| assert_eq!(client.reply().text(), "hello"));
    }
    assert_eq!(upstream.accepted(), CLIENTS);
}

fn who_has_waited_longest_is_next(reactor: Reactor) {
    let directory = Directory::new();
    let (leave, may_go) = mpsc::channel::<()>();
    let may_go = std::sync::Mutex::new(may_go);
    let upstream = Upstream::start(move |conversation| {
        while conversation.head().is_some() {
            may_go.lock().unwrap().recv().unwrap();
            conversation.say(HELLO);
        }
    });
    let server = serve(reactor, &directory, &[upstream.address()], "connections = 1\nqueue = 10");
    let mut other = server.connect();
    let mut clients: Vec<_> = (0..5).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(format!("GET /api/{number} HTTP/1.1\r\nHost: it.test\r\n\r\n"));
        // The site's requests have their turns as they come: the one before this has a place now.
        assert_eq!(other.get("/").text(), "a file");
    }
    (0..5).for_each(|_| leave.send(()).unwrap());
    for client in &mut clients {
        assert_eq!(client.reply().text(), "hello");
    }
    let asked: Vec<_> = upstream.heads().iter().filter_map(|head| head.split(' ').nth(1).map(str::to_owned)).collect();
    assert_eq!(asked, ["/api/0", "/api/1", "/api/2", "/api/3", "/api/4"]);
}

on_both_reactors!(
    requests_go_on_over_connections_that_stay,
    a_connection_for_one_request_keeps_no_port,
    a_status_without_a_class_is_counted_apart,
    a_site_may_be_a_proxy_alone_and_keep_a_part_of_the_path,
    an_encoded_slash_goes_on_as_it_came,
    content_goes_both_ways,
    long_replies_arrive_whole_and_in_order,
    what_follows_long_content_is_the_next_request,
    leave_to_send_content_is_given,
    interim_replies_come_as_they_are_said,
    an_early_reply_gets_through,
    chunks_of_any_size_come_through,
    content_that_lies_there_goes_on_by_itself,
    half_a_reply_never_looks_whole,
    half_a_reply_without_a_length_ends_with_a_reset,
    a_reset_in_the_middle_of_an_upload_is_no_end,
    an_end_is_heard_that_comes_while_the_client_is_behind,
    half_a_line_keeps_no_worker_busy,
    what_is_no_reply_is_502,
    content_waits_for_who_can_be_reached,
    content_is_never_sent_twice,
    a_kept_connection_that_ends_costs_nobody_a_reply,
    several_kept_connections_that_end_cost_nobody_a_reply,
    a_client_that_goes_is_noticed,
    a_client_that_ends_in_the_middle_of_its_content_is_noticed,
    more_than_may_be_at_once_wait,
    as_many_connections_are_kept_as_have_been_used,
    who_has_waited_longest_is_next,
);
