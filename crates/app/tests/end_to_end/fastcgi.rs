//! FastCGI: responders that leat starts, and those of somebody else.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::on_both_reactors;
use crate::support::server::signal;
use crate::support::{Client, Directory, Reactor, Reply, Server, eventually};

/// A directory with the responder in it.
fn directory() -> Directory {
    let directory = Directory::new();
    directory.write("site/index.html", "a file");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/responder.c");
    let status = Command::new("cc").arg("-O1").arg("-o").arg(directory.at("responder")).arg(source).status();
    assert!(status.expect("a C compiler is there, as rustc needs one to link").success());
    directory
}

fn serve(reactor: Reactor, directory: &Directory, keys: &str) -> Server {
    let text = format!(
        "workers = 1\n[[site]]\nname = \"it\"\nroot = \"site\"\nlisten = \"127.0.0.1:0\"\n[site.limits]\nbody_size = \"64MiB\"\n\
         [[site.handler]]\npath = \"/app/*\"\n[site.handler.fastcgi]\n{keys}\n"
    );
    Server::configured(reactor, directory, &text)
}

fn ask(server: &Server, request: &str) -> Reply {
    server.connect().ask(format!("{request} HTTP/1.1\r\nHost: it.test\r\n\r\n"))
}

fn line<'t>(text: &'t str, name: &str) -> &'t str {
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {text}"))
}

fn a_responder_is_told_and_answers(reactor: Reactor) {
    let directory = directory();
    let server = serve(reactor, &directory, "command = \"responder\"\nprocesses = 1\nenvironment = { OWN = \"yes\" }");
    let mut client = server.connect();
    let first = client.ask("GET /app/a%20b?q=1 HTTP/1.1\r\nHost: it.test\r\nX-Said: hello\r\n\r\n");
    assert_eq!((first.status, first.must("content-type")), (200, "text/plain"));
    let text = first.text();
    for (name, value) in [
        ("SCRIPT_NAME=", "/app"),
        ("PATH_INFO=", "/a b"),
        ("QUERY_STRING=", "q=1"),
        ("HTTP_X_SAID=", "hello"),
        ("OWN=", "yes"),
        ("input ", "0"),
    ] {
        assert_eq!(line(&text, name), value, "{name}");
    }
    server.wait_for_stderr(&["said for the log"]);
    let again = client.get("/app").text();
    assert_eq!(line(&again, "process "), line(&text, "process "), "one process takes one request after the other");
    assert_eq!(client.get("/").text(), "a file");
    let posted = client.ask("POST /app HTTP/1.1\r\nHost: it.test\r\nContent-Length: 5\r\n\r\nhello").text();
    assert_eq!((line(&posted, "input "), line(&posted, "CONTENT_LENGTH=")), ("5", "5"));
    let long = format!("POST /app HTTP/1.1\r\nHost: it.test\r\nContent-Length: 500000\r\n\r\n{}", "x".repeat(500_000));
    assert_eq!(line(&client.ask(long).text(), "input "), "500000");
    assert_eq!(client.get("/app?bytes=3000000").body.len(), 3_000_000);
    let head = client.ask("HEAD /app HTTP/1.1\r\nHost: it.test\r\n\r\n");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(client.get("/app?complain").status, 200);
    server.wait_for_stderr(&["a complaint"]);
    // One that ends its connection after a reply is connected to anew.
    assert_eq!(client.get("/app?close").status, 200);
    assert_eq!(client.get("/app").status, 200);
}

/// A responder reads as much as CONTENT_LENGTH says, so chunks are gathered first.
fn chunks_come_with_their_length(reactor: Reactor) {
    let directory = directory();
    let server = serve(reactor, &directory, "command = \"responder\"\nprocesses = 1");
    let mut client = server.connect();
    let head = "POST /app HTTP/1.1\r\nHost: it.test\r\nTransfer-Encoding: chunked\r\n";
    let long = format!("2710\r\n{}\r\n", "x".repeat(10_000)).repeat(100) + "0\r\n\r\n";
    for (chunks, length) in
        [("5\r\nhello\r\n6;x\r\n world\r\n0\r\nT: v\r\n\r\n", "11"), ("0\r\n\r\n", "0"), (&long, "1000000")]
    {
        let told = client.ask(format!("{head}\r\n{chunks}")).text();
        assert_eq!((line(&told, "input "), line(&told, "CONTENT_LENGTH=")), (length, length));
        assert!(!told.contains("TRANSFER_ENCODING"));
    }
    client.send(format!("{head}Expect: 100-continue\r\n\r\n"));
    assert_eq!(client.reply_head().unwrap().status, 100);
    client.send("5\r\nhello\r\n");
    // The responder, of which there is one, is still everybody's.
    assert_eq!(ask(&server, "GET /app").status, 200);
    client.send("0\r\n\r\n");
    assert_eq!(line(&client.reply().text(), "CONTENT_LENGTH="), "5");
    assert_eq!(client.ask(format!("{head}\r\nno chunk\r\n")).status, 400);
    // What is longer has to come with its length.
    let mut client = server.connect();
    client.send(format!("{head}\r\n"));
    let chunk = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
    (0..17).for_each(|_| client.send(&chunk));
    client.send("0\r\n\r\n");
    assert_eq!(client.reply().status, 411);
    assert_eq!(client.get("/app").status, 200);
}

fn a_script_must_be_a_file(reactor: Reactor) {
    let directory = directory();
    directory.write("site/a.run", "a script");
    directory.write("site/upload.jpg", "somebody's");
    directory.write("site/.hidden.run", "a script");
    std::fs::create_dir(directory.at("site/directory.run")).unwrap();
    let serve = |keys: &str| {
        let text = format!(
            "workers = 1\n[[site]]\nroot = \"site\"\nlisten = \"127.0.0.1:0\"\n\
             [[site.handler]]\npath = \"*.run\"\nfastcgi = {{ command = \"responder\", processes = 1{keys} }}\n"
        );
        Server::configured(reactor, &directory, &text)
    };
    let server = serve("");
    let mut client = server.connect();
    for _ in 0..2 {
        assert_eq!(line(&client.get("/a.run?q").text(), "SCRIPT_NAME="), "/a.run");
    }
    let posted = client.ask("POST /a.run HTTP/1.1\r\nHost: it.test\r\nContent-Length: 5\r\n\r\nhello").text();
    assert_eq!(line(&posted, "input "), "5");
    for path in ["/upload.jpg/x.run", "/none.run", "/a.run/x.run", "/.hidden.run", "/none/x.run"] {
        assert_eq!(client.get(path).status, 404, "{path}");
        let posted = format!("POST {path} HTTP/1.1\r\nHost: it.test\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(client.ask(posted).status, 404, "{path}");
    }
    assert_eq!(client.get("/directory.run").status, 301);
    let server = serve(", needs_file = false");
    assert_eq!(line(&server.get("/upload.jpg/x.run").text(), "SCRIPT_NAME="), "/upload.jpg/x.run");
}

/// As MediaWiki and Moodle want it.
fn a_path_may_go_on_behind_a_script(reactor: Reactor) {
    let directory = directory();
    directory.write("site/a.run", "a script");
    directory.write("site/b.run", "a script");
    directory.write("site/dir.run/file", "a file");
    directory.write("site/upload.jpg", "somebody's");
    for keys in ["command = \"responder\", processes = 1", "command = \"responder\", processes = 1, needs_file = false"]
    {
        let text = format!(
            "workers = 1\n[[site]]\nroot = \"site\"\nlisten = \"127.0.0.1:0\"\n[[site.access]]\npath = \"/a.run/closed/*\"\ndeny = \"127.0.0.1\"\n\
             [[site.handler]]\npath = \"/b.run\"\nredirect = {{ to = \"/\" }}\n\
             [[site.handler]]\npath = \"*.run\"\nfastcgi = {{ {keys} }}\n"
        );
        let server = Server::configured(reactor, &directory, &text);
        let mut client = server.connect();
        for (request, method) in [("GET /a.run/x%20y/z.txt?q", "GET"), ("POST /a.run/x%20y/z.txt?q", "POST")] {
            let told = client.ask(format!("{request} HTTP/1.1\r\nHost: it.test\r\nContent-Length: 2\r\n\r\nhi")).text();
            for (name, value) in [
                ("SCRIPT_NAME=", "/a.run"),
                ("PATH_INFO=", "/x y/z.txt"),
                ("QUERY_STRING=", "q"),
                ("REQUEST_URI=", "/a.run/x%20y/z.txt?q"),
                ("REQUEST_METHOD=", method),
                ("input ", "2"),
            ] {
                assert_eq!(line(&told, name), value, "{request}: {name}");
            }
            assert!(line(&told, "SCRIPT_FILENAME=").ends_with("/site/a.run"), "{told}");
        }
        assert_eq!(line(&client.get("/a.run/").text(), "PATH_INFO="), "/");
        assert!(!client.get("/a.run").text().contains("PATH_INFO"), "nothing is left of the request before");
        assert_eq!(client.get("/dir.run/file").text(), "a file");
        assert_eq!(client.get("/a.run/closed/x").status, 403);
        // Somebody else answers for it, and for nothing behind it.
        assert_eq!(client.get("/b.run").status, 301);
        for path in ["/b.run/x", "/none.run/x", "/upload.jpg/x.run/y", "/dir.run/none", "/a.runs/x"] {
            assert_eq!(client.get(path).status, 404, "{path}");
        }
    }
}

fn a_responder_that_fails_is_told_apart(reactor: Reactor) {
    let directory = directory();
    let server = serve(reactor, &directory, "command = \"responder\"\nprocesses = 1\ntimeout = \"400ms\"");
    assert_eq!(ask(&server, "GET /app?garbage").status, 502);
    assert_eq!(ask(&server, "GET /app").status, 200);
    assert_eq!(ask(&server, "GET /app?refuse").status, 503);
    assert_eq!(ask(&server, "GET /app").status, 200);
    // What ends with its process may have come too late for it, and is then asked again, of the next one. Who asks afterwards waits for that.
    for (what, status) in [("crash", 502), ("hang", 504), ("endless", 504), ("crash", 502)] {
        assert_eq!(ask(&server, &format!("GET /app?{what}")).status, status, "{what}");
        assert_eq!(ask(&server, "GET /app").status, 200, "after {what}");
    }
    server.wait_for_stderr(&["ended with code 3"]);
}

/// With an admin address, one worker, and as much patience of requests.
fn serve_measured(reactor: Reactor, directory: &Directory, max_queue_delay: &str, keys: &str) -> Server {
    let text = format!(
        "workers = 1\n[admin]\nlisten = \"127.0.0.1:0\"\n[[site]]\nname = \"it\"\nroot = \"site\"\nlisten = \"127.0.0.1:0\"\n\
         max_queue_delay = \"{max_queue_delay}\"\n[[site.handler]]\npath = \"/app/*\"\n[site.handler.fastcgi]\n{keys}\n"
    );
    Server::configured(reactor, directory, &text)
}

fn metric(server: &Server, name: &str) -> u64 {
    let page = Client::connect(server.admin()).get("/metrics").text();
    line(&page, &format!("{name} ")).parse().unwrap()
}

/// Crashes one after the other, as fast as they're answered, among others' requests.
fn a_request_that_crashes_its_program_harms_nobody_else(reactor: Reactor) {
    let directory = directory();
    let server = serve_measured(reactor, &directory, "10s", "command = \"responder\"\nprocesses = 3");
    let is_over = Arc::new(AtomicBool::new(false));
    let others: Vec<_> = (0..6)
        .map(|_| {
            let (mut client, is_over) = (server.connect(), is_over.clone());
            std::thread::spawn(move || {
                let mut statuses = BTreeMap::new();
                while !is_over.load(Ordering::Relaxed) {
                    *statuses.entry(client.get("/app?bytes=100").status).or_insert(0) += 1;
                }
                statuses
            })
        })
        .collect();
    let mut client = server.connect();
    let crashes: Vec<u16> = (0..20).map(|_| client.get("/app?crash").status).collect();
    is_over.store(true, Ordering::Relaxed);
    for other in others {
        let statuses = other.join().unwrap();
        assert!(statuses.keys().eq([&200]), "{statuses:?}");
    }
    assert_eq!(crashes, [502; 20]);
    assert_eq!(metric(&server, "leat_refused_total{site=\"it\",stage=\"serve\"}"), 0);
}

fn a_killed_program_is_replaced_before_anybody_is_refused(reactor: Reactor) {
    let directory = directory();
    let server = serve_measured(reactor, &directory, "10s", "command = \"responder\"\nprocesses = 1");
    for round in 0..20 {
        let reply = ask(&server, "GET /app");
        assert_eq!(reply.status, 200, "round {round}");
        signal(line(&reply.text(), "process ").parse().unwrap(), "KILL");
    }
}

/// No storm of starts, and who finds none is told so at once, and counted.
fn a_program_that_never_answers_is_started_ever_more_seldom(reactor: Reactor) {
    let directory = directory();
    for (script, said) in
        [("#!/bin/sh\nexit 7\n", "a program has ended with code 7"), ("#!/none\n", "responder can't be started")]
    {
        directory.write("responder", script);
        let begun = Instant::now();
        let server = serve_measured(reactor, &directory, "50ms", "command = \"responder\"\nprocesses = 1");
        let mut refused = 0;
        eventually("five starts have failed", || {
            match ask(&server, "GET /app").status {
                503 => refused += 1,
                status => assert_eq!(status, 502),
            }
            (server.stderr().iter().filter(|line| line.contains(said)).count() >= 5).then_some(())
        });
        // Pauses of 0.1, 0.2, 0.4 and 0.8 s.
        assert!(begun.elapsed() >= Duration::from_millis(1500), "{:?}", begun.elapsed());
        assert!(refused > 0);
        assert_eq!(metric(&server, "leat_refused_total{site=\"it\",stage=\"serve\"}"), refused);
    }
}

fn requests_wait_for_a_responder(reactor: Reactor) {
    let directory = directory();
    let server = serve(reactor, &directory, "command = \"responder\"\nprocesses = 2\nqueue = 100");
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let mut client = server.connect();
            std::thread::spawn(move || {
                (0..10).map(|_| line(&client.get("/app").text(), "process ").to_owned()).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut processes: Vec<String> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    assert_eq!(processes.len(), 80);
    processes.sort();
    processes.dedup();
    assert_eq!(processes.len(), 2, "{processes:?}");
}

fn an_endless_responder_leaves_others_their_share(reactor: Reactor) {
    let directory = directory();
    let server = serve(reactor, &directory, "command = \"responder\"\nprocesses = 2");
    assert_eq!(ask(&server, "GET /app").status, 200);
    let mut endless = server.connect();
    endless.send("GET /app?endless HTTP/1.1\r\nHost: it.test\r\n\r\n");
    for _ in 0..20 {
        assert_eq!(ask(&server, "GET /").text(), "a file");
        assert_eq!(ask(&server, "GET /app").status, 200);
    }
}

fn somebody_elses_responder_is_connected_to(reactor: Reactor) {
    let directory = directory();
    let socket = directory.at("socket");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let standard_input = Stdio::from(std::os::fd::OwnedFd::from(listener));
    let mut child = Command::new(directory.at("responder")).stdin(standard_input).spawn().unwrap();
    let keys = format!("address = \"unix:{}\"\nprocesses = 1", socket.display());
    let server = serve(reactor, &directory, &keys);
    assert_eq!(line(&ask(&server, "GET /app").text(), "process "), child.id().to_string());
    assert_eq!(ask(&server, "GET /app?crash").status, 502);
    child.wait().unwrap();
    assert_eq!(ask(&server, "GET /app").status, 502, "nobody is there");
    server.wait_for_stderr(&["can't connect to"]);
}

/// php-fpm has five processes by default, and one that holds a kept connection takes no other.
fn a_connection_to_somebody_elses_responder_is_not_kept(reactor: Reactor) {
    let directory = directory();
    let socket = directory.at("socket");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let standard_input = Stdio::from(std::os::fd::OwnedFd::from(listener));
    let mut child = Command::new(directory.at("responder")).stdin(standard_input).spawn().unwrap();
    let keys = |kept: &str| format!("address = \"unix:{}\"\nprocesses = 1{kept}", socket.display());
    // The second server has nobody to talk to unless the first one lets go.
    for _ in 0..2 {
        let server = serve(reactor, &directory, &keys(""));
        for _ in 0..3 {
            assert_eq!(line(&ask(&server, "GET /app").text(), "process "), child.id().to_string());
        }
        let other = serve(reactor, &directory, &keys("\nkeep_connections = true"));
        assert_eq!(line(&ask(&other, "GET /app").text(), "process "), child.id().to_string());
    }
    let keeping = serve(reactor, &directory, &keys("\nkeep_connections = true\ntimeout = \"300ms\""));
    let mut client = keeping.connect();
    for _ in 0..2 {
        assert_eq!(client.ask("GET /app HTTP/1.1\r\nHost: it.test\r\n\r\n").status, 200);
    }
    let other = serve(reactor, &directory, &keys("\ntimeout = \"300ms\""));
    assert_eq!(ask(&other, "GET /app").status, 504, "the kept connection holds the only process");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The client has all of its reply, to HEAD or by the reply's length, and its connection goes on, whatever becomes of the responder.
fn what_fails_after_its_reply_takes_nothing_back(reactor: Reactor) {
    let directory = directory();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let keys = format!("address = \"{}\"\nprocesses = 1\ntimeout = \"400ms\"", listener.local_addr().unwrap());
    let server = serve(reactor, &directory, &keys);
    let refusal = [&[1, 3, 0, 1, 0, 8, 0, 0][..], &[0, 0, 0, 0, 1, 0, 0, 0]].concat();
    for (method, content) in [("HEAD", ""), ("GET", "hello")] {
        // It ends, says what is no record, refuses after all, or says nothing.
        for (last, stays) in [(&b""[..], false), (b"no record", true), (&refusal[..], true), (b"", true)] {
            let mut client = server.connect();
            client.send(format!("{method} /app HTTP/1.1\r\nHost: it.test\r\n\r\n"));
            let (mut responder, _) = listener.accept().unwrap();
            let said = format!("Content-Length: 5\n\n{content}");
            responder.write_all(&[1, 6, 0, 1, 0, u8::try_from(said.len()).unwrap(), 0, 0]).unwrap();
            responder.write_all(said.as_bytes()).unwrap();
            let head = client.reply_head().unwrap();
            assert_eq!((head.status, head.must("content-length")), (200, "5"));
            assert_eq!(client.read_content(content.len()).unwrap(), content.as_bytes());
            responder.write_all(last).unwrap();
            let kept = stays.then_some(responder);
            assert_eq!(client.get("/").text(), "a file", "{method}, then {last:?}");
            drop(kept);
        }
    }
}

/// php-fpm ends no line: its request does, however that ends, and what another says meanwhile is another's.
fn a_line_for_the_log_ends_with_its_request(reactor: Reactor) {
    let directory = directory();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = serve(reactor, &directory, &format!("address = \"{}\"", listener.local_addr().unwrap()));
    let begin = |words: &str| {
        let mut client = server.connect();
        client.send("GET /app HTTP/1.1\r\nHost: it.test\r\n\r\n");
        let (mut responder, _) = listener.accept().unwrap();
        let head = "Content-Length: 5\n\n";
        for (kind, said) in [(7, words), (6, head)] {
            responder.write_all(&[1, kind, 0, 1, 0, u8::try_from(said.len()).unwrap(), 0, 0]).unwrap();
            responder.write_all(said.as_bytes()).unwrap();
        }
        // By then the words have been heard as well.
        assert_eq!(client.reply_head().unwrap().status, 200);
        (client, responder)
    };
    let is_logged = |words: &str| assert!(server.wait_for_stderr(&[words]).ends_with(&format!(": {words}")), "{words}");
    let [lost, (mut client, mut complete), left] =
        ["of one that is lost", "of one that is complete", "of one that is left"].map(begin);
    complete.write_all(&[1, 6, 0, 1, 0, 5, 0, 0, b'h', b'e', b'l', b'l', b'o']).unwrap();
    complete.write_all(&[1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    assert_eq!(client.read_content(5).unwrap(), b"hello");
    is_logged("of one that is complete");
    drop(lost.1);
    is_logged("of one that is lost");
    drop(left.0);
    is_logged("of one that is left");
}

fn less_than_was_announced_is_502_if_it_comes_at_once(reactor: Reactor) {
    let directory = directory();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = serve(reactor, &directory, &format!("address = \"{}\"", listener.local_addr().unwrap()));
    let mut client = server.connect();
    client.send("GET /app HTTP/1.1\r\nHost: it.test\r\n\r\n");
    let (mut responder, _) = listener.accept().unwrap();
    let said = b"Content-Length: 5\n\nhi";
    let end = [1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let records = [&[1, 6, 0, 1, 0, said.len() as u8, 0, 0], &said[..], &end].concat();
    responder.write_all(&records).unwrap();
    assert_eq!(client.reply().status, 502);
    assert_eq!(client.get("/").text(), "a file");
}

fn with_processes(processes: u32) -> String {
    format!(
        "workers = 1\n[[site]]\nroot = \"site\"\nlisten = \"127.0.0.1:0\"\n[[site.handler]]\npath = \"/app/*\"\n\
         [site.handler.fastcgi]\ncommand = \"responder\"\nprocesses = {processes}\n"
    )
}

fn a_reload_lets_content_come_to_its_end(reactor: Reactor) {
    let directory = directory();
    let server = Server::configured(reactor, &directory, &with_processes(1));
    let mut client = server.connect();
    client.send("POST /app HTTP/1.1\r\nHost: it.test\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.reply_head().unwrap().status, 100);
    server.reload(reactor, &directory, &with_processes(2));
    // The handler that it began with has gone from the configuration.
    assert_eq!(ask(&server, "GET /app").status, 200);
    client.send("5\r\nhello\r\n0\r\n\r\n");
    assert_eq!(line(&client.reply().text(), "CONTENT_LENGTH="), "5");
}

/// Half of a head was there when the server was told to stop: the request is answered like any other.
fn a_server_that_stops_still_answers(reactor: Reactor) {
    let directory = directory();
    let mut server = serve(reactor, &directory, "command = \"responder\"\nprocesses = 1");
    assert_eq!(server.get("/app").status, 200);
    let mut client = server.connect();
    client.send("GET /app?bytes=10 HTTP/1.1\r\nHost: it.test\r\n");
    // Whoever is answered after that was accepted before.
    assert_eq!(server.get("/app").status, 200);
    server.signal("TERM");
    eventually("new clients are refused", || Client::try_connect(server.address()).is_err().then_some(()));
    client.send("\r\n");
    let reply = client.reply();
    assert!(reply.status == 200 && reply.body.len() == 10 && reply.says_close(), "{reply:?}");
    assert!(server.wait_for_end().success());
}

fn a_reload_keeps_what_it_does_not_change(reactor: Reactor) {
    let directory = directory();
    let text = with_processes;
    let server = Server::configured(reactor, &directory, &text(1));
    let process = |server: &Server| line(&ask(server, "GET /app").text(), "process ").to_owned();
    let first = process(&server);
    server.reload(reactor, &directory, &text(1));
    assert_eq!(process(&server), first);
    server.reload(reactor, &directory, &text(2));
    eventually("the old one has gone", || (!Path::new(&format!("/proc/{first}")).exists()).then_some(()));
    assert_ne!(process(&server), first);
    // What else is polled is still heard of: the engine's next word, and a file that changes.
    server.reload(reactor, &directory, &text(1));
    for round in 0..20 {
        directory.replace("site/index.html", format!("round {round}"));
        eventually("the change is seen", || (ask(&server, "GET /").text() == format!("round {round}")).then_some(()));
    }
}

on_both_reactors!(
    a_responder_is_told_and_answers,
    chunks_come_with_their_length,
    a_script_must_be_a_file,
    a_path_may_go_on_behind_a_script,
    a_responder_that_fails_is_told_apart,
    a_request_that_crashes_its_program_harms_nobody_else,
    a_killed_program_is_replaced_before_anybody_is_refused,
    a_program_that_never_answers_is_started_ever_more_seldom,
    requests_wait_for_a_responder,
    an_endless_responder_leaves_others_their_share,
    somebody_elses_responder_is_connected_to,
    a_connection_to_somebody_elses_responder_is_not_kept,
    what_fails_after_its_reply_takes_nothing_back,
    a_line_for_the_log_ends_with_its_request,
    less_than_was_announced_is_502_if_it_comes_at_once,
    a_reload_lets_content_come_to_its_end,
    a_server_that_stops_still_answers,
    a_reload_keeps_what_it_does_not_change,
);
