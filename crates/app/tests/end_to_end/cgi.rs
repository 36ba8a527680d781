//! CGI (RFC 3875): what programs are told, what becomes of what they say, and that nothing of them stays.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::on_both_reactors;
use crate::support::{Client, Directory, Reactor, Reply, Server, eventually};

/// A directory with programs, by name and text, and a site.
fn programs(texts: &[(&str, &str)]) -> Directory {
    let directory = Directory::new();
    directory.write("site/index.html", "a file");
    for (name, text) in texts {
        let path = directory.write(&format!("cgi/{name}"), format!("#!/bin/sh\n{text}"));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    directory
}

/// A server for them, with more keys for the handler.
fn serve(reactor: Reactor, directory: &Directory, keys: &str) -> Server {
    let text = format!(
        "workers = 1\n[[site]]\nname = \"it\"\nroot = \"site\"\nlisten = \"127.0.0.1:0\"\n\
         [site.limits]\nbody_size = \"64MiB\"\n\
         [[site.handler]]\npath = \"/cgi/*\"\n[site.handler.cgi]\ncommand = \"cgi\"\n{keys}\n"
    );
    Server::configured(reactor, directory, &text)
}

fn ask(server: &Server, request: &str) -> Reply {
    server.connect().ask(format!("{request} HTTP/1.1\r\nHost: it.test\r\n\r\n"))
}

/// Whether programs of this server run; shells have its mark in their environment only if leat passed it on.
fn count(server: &Server, pattern: &str) -> usize {
    let ours = server.processes();
    let entries = std::fs::read_dir("/proc").unwrap();
    let numbers = entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter(|number| {
            let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
            let after_name = stat.rsplit(") ").next().unwrap_or_default();
            let mut fields = after_name.split(' ');
            let is_zombie = fields.next() == Some("Z");
            let parent: u32 = fields.next().and_then(|field| field.parse().ok()).unwrap_or_default();
            let command = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            !is_zombie && ours.contains(&parent) && String::from_utf8_lossy(&command).contains(pattern)
        })
        .count()
}

fn a_program_is_told_and_answers(reactor: Reactor) {
    let directory = programs(&[(
        "tell",
        "printf 'Content-Type: text/plain\\nX-Own: yes\\n\\n'\n\
         echo \"$REQUEST_METHOD $SCRIPT_NAME|$PATH_INFO|$QUERY_STRING|$SERVER_PROTOCOL|$HTTP_X_SAID|$APP_MODE|$REMOTE_ADDR|$SERVER_ADDR\"\n",
    )]);
    let server = serve(reactor, &directory, "environment = { APP_MODE = \"test\" }");
    let mut client = server.connect();
    let reply = client.ask("GET /cgi/tell/more%20of/it?a=b&c HTTP/1.1\r\nHost: it.test\r\nX-Said: hello\r\n\r\n");
    assert_eq!((reply.status, reply.must("content-type"), reply.must("x-own")), (200, "text/plain", "yes"));
    assert_eq!(reply.must("transfer-encoding"), "chunked");
    assert_eq!(reply.text(), "GET /cgi/tell|/more of/it|a=b&c|HTTP/1.1|hello|test|127.0.0.1|127.0.0.1\n");
    // The connection goes on, and so does the server.
    assert_eq!(client.get("/").text(), "a file");
    assert_eq!(
        client.get("/cgi/tell").text(),
        "GET /cgi/tell||||||127.0.0.1|127.0.0.1\n".replace("||||||", "|||HTTP/1.1||test|")
    );
    let old = server.connect().ask("GET /cgi/tell HTTP/1.0\r\n\r\n");
    assert_eq!((old.says_close(), old.field("transfer-encoding")), (true, None));
    assert!(old.text().contains("HTTP/1.0"));
    let head = client.ask("HEAD /cgi/tell HTTP/1.1\r\nHost: it.test\r\n\r\n");
    assert_eq!((head.status, head.must("x-own"), head.body.len()), (200, "yes", 0));
    assert_eq!(client.get("/cgi/tell").status, 200);
}

fn statuses_and_redirects_are_passed_on(reactor: Reactor) {
    let directory = programs(&[
        ("status", "printf 'Status: 404 Not here\\nContent-Type: text/plain\\n\\nnothing'"),
        ("redirect", "printf 'Location: /elsewhere\\n\\n'"),
        ("length", "printf 'Content-Length: 5\\n\\nhello and more'"),
        ("empty", "printf 'Status: 204\\n\\n'"),
        ("reset", "printf 'Status: 205\\n\\nnothing may be here'"),
        ("on", "printf 'Content-Length: 5\\n\\nhello'; exec sleep 1000"),
    ]);
    let server = serve(reactor, &directory, "");
    let mut client = server.connect();
    let status = client.get("/cgi/status");
    assert_eq!((status.status, status.text()), (404, "nothing".to_owned()));
    let redirect = client.get("/cgi/redirect");
    assert_eq!((redirect.status, redirect.must("location")), (302, "/elsewhere"));
    let length = client.get("/cgi/length");
    assert_eq!((length.must("content-length"), length.text()), ("5", "hello".to_owned()));
    assert_eq!(client.get("/cgi/empty").status, 204);
    let reset = client.get("/cgi/reset");
    assert_eq!((reset.status, reset.must("content-length"), reset.body.len()), (205, "0", 0));
    // The length says what there is to say: not even for a program that goes on is there anything to wait for.
    assert_eq!(client.get("/cgi/on").text(), "hello");
    let head = client.ask("HEAD /cgi/on HTTP/1.1\r\nHost: it.test\r\n\r\n");
    assert_eq!((head.must("content-length"), head.body.len()), ("5", 0));
    client.send("GET / HTTP/1.1\r\nHost: it.test\r\n\r\n");
    client.finish_sending();
    assert_eq!(client.reply().text(), "a file");
}

fn last_words_are_logged_without_a_newline(reactor: Reactor) {
    let directory = programs(&[("dies", "printf 'dies of %s' \"$QUERY_STRING\" >&2; printf 'X: y\\n\\nok'")]);
    let server = serve(reactor, &directory, "");
    assert_eq!(ask(&server, "GET /cgi/dies?this").text(), "ok");
    server.wait_for_stderr(&["dies of this"]);
    assert_eq!(ask(&server, "GET /cgi/dies?that").text(), "ok");
    let line = server.wait_for_stderr(&["dies of that"]);
    assert!(!line.contains("this"), "{line}");
}

fn what_is_no_reply_is_502(reactor: Reactor) {
    let directory = programs(&[
        ("silent", "exit 0"),
        ("garbage", "echo this is no header; echo; echo text"),
        ("short", "printf 'Content-Length: 10\\n\\nhalf'"),
        ("errors", "echo something went wrong >&2; printf 'X: y\\n\\n'"),
    ]);
    let server = serve(reactor, &directory, "");
    assert_eq!(ask(&server, "GET /cgi/silent").status, 502);
    assert_eq!(ask(&server, "GET /cgi/garbage").status, 502);
    assert!(server.wait_for_stderr(&["header line 1"]).contains("it /cgi/*"));
    let mut client = server.connect();
    client.send("GET /cgi/short HTTP/1.1\r\nHost: it.test\r\n\r\n");
    assert!(client.try_reply().map_or(true, |reply| reply.status == 502), "half a reply must not look whole");
    assert_eq!(ask(&server, "GET /cgi/errors").status, 200);
    server.wait_for_stderr(&["something went wrong"]);
    for missing in ["/cgi/none", "/cgi/", "/cgi", "/cgi/.hidden", "/cgi/..%2fsite%2findex.html"] {
        assert_eq!(ask(&server, &format!("GET {missing}")).status, 404, "{missing}");
    }
}

/// Without a length only its end tells whether that was all.
fn half_a_reply_of_a_killed_program_doesnt_look_whole(reactor: Reactor) {
    use std::io::Read;
    let directory = programs(&[
        ("dies", "printf 'X: y\\n\\nsomething'; kill -9 $$"),
        ("closes", "printf 'X: y\\n\\nall of it'; exec 1>&-; exec sleep 1000"),
        ("goes-on", "printf 'X: y\\n\\nall of it'; exec 1>&- 0<&- 2>&-; while :; do :; done"),
        ("fails", "printf 'X: y\\n\\nall of it'; exit 1"),
    ]);
    let server = serve(reactor, &directory, "[site.access_log]\npath = \"log\"\nformat = \"json\"");
    for version in ["1.1", "1.0"] {
        for (name, is_whole) in [("dies", false), ("closes", true), ("goes-on", true), ("fails", true)] {
            let mut client = server.connect();
            client.send(format!("GET /cgi/{name} HTTP/{version}\r\nHost: it.test\r\n\r\n"));
            if version == "1.0" {
                // It ends with the connection.
                let mut reply = Vec::new();
                let ended = client.stream().read_to_end(&mut reply).map(|_| reply.ends_with(b"all of it"));
                assert_eq!(ended.ok(), is_whole.then_some(true), "{name}");
                continue;
            }
            match client.try_reply() {
                Ok(reply) if is_whole => assert_eq!(reply.text(), "all of it", "{name}"),
                reply => assert!(reply.is_err() && !is_whole, "{name}"),
            }
        }
    }
    server.wait_for_stderr(&["signal 9 ended it in the middle of its reply"]);
    let told = || std::fs::read_to_string(directory.at("log")).unwrap_or_default();
    eventually("the log tells them apart", || {
        let lines = told();
        let told_of =
            |name: &str, state: &str| lines.lines().filter(|line| line.contains(name) && line.contains(state)).count();
        let [cut, whole] = ["\"complete\":false", "\"complete\":true"];
        (told_of("cgi/dies", cut) == 2 && told_of("cgi/fails", whole) == 2).then_some(())
    });
}

fn a_program_that_cant_be_started_is_told(reactor: Reactor) {
    let directory = programs(&[("whole", "printf 'X: y\\n\\nhello'")]);
    let plain = directory.write("cgi/plain", "#!/bin/sh\nexit 0\n");
    std::fs::set_permissions(plain, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let odd = directory.write("cgi/odd", "#!/no/such/shell\n");
    std::fs::set_permissions(odd, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let server = serve(reactor, &directory, "");
    for name in ["plain", "odd"] {
        assert_eq!(ask(&server, &format!("GET /cgi/{name}")).status, 500, "{name}");
        server.wait_for_stderr(&[&format!("cgi/{name} can't be started")]);
    }
    assert_eq!(ask(&server, "GET /cgi/whole").text(), "hello");
}

fn content_reaches_the_program(reactor: Reactor) {
    let directory = programs(&[
        ("count", "printf 'X: y\\n\\n'; echo \"$CONTENT_LENGTH $(wc -c)\""),
        ("echo", "printf 'Content-Type: application/octet-stream\\n\\n'; cat"),
        ("deaf", "printf 'X: y\\n\\ndeaf'"),
    ]);
    let server = serve(reactor, &directory, "");
    let mut client = server.connect();
    let counted = client.ask("POST /cgi/count HTTP/1.1\r\nHost: it.test\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(counted.text(), "5 5\n");
    let chunks = "3\r\nabc\r\n4;x\r\ndefg\r\n0\r\nT: v\r\n\r\n";
    let counted =
        client.ask(format!("POST /cgi/count HTTP/1.1\r\nHost: it.test\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"));
    assert_eq!(counted.text(), "7 7\n");
    // More than all buffers on the way, there and back at once.
    let content: Vec<u8> = (0..3_000_000u32).map(|number| (number % 251) as u8).collect();
    let mut sender = server.connect();
    let writer = sender.stream().try_clone().unwrap();
    let head = format!("POST /cgi/echo HTTP/1.1\r\nHost: it.test\r\nContent-Length: {}\r\n\r\n", content.len());
    let body = content.clone();
    let sending = std::thread::spawn(move || {
        use std::io::Write;
        let mut writer = writer;
        writer.write_all(head.as_bytes()).unwrap();
        writer.write_all(&body).unwrap();
    });
    let echoed = sender.reply();
    sending.join().unwrap();
    assert!(echoed.body == content, "{} bytes came back", echoed.body.len());
    assert_eq!(sender.get("/").text(), "a file");
    // One that doesn't listen answers all the same, and the connection goes on.
    let mut client = server.connect();
    let deaf = client.ask(format!(
        "POST /cgi/deaf HTTP/1.1\r\nHost: it.test\r\nContent-Length: 50000\r\n\r\n{}",
        "x".repeat(50_000)
    ));
    assert_eq!(deaf.text(), "deaf");
    assert_eq!(client.get("/").text(), "a file");
    let bad = server
        .connect()
        .ask("POST /cgi/count HTTP/1.1\r\nHost: it.test\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n");
    assert_eq!(bad.status, 400);
}

fn a_client_that_awaits_leave_gets_it(reactor: Reactor) {
    let directory = programs(&[("count", "printf 'X: y\\n\\n'; wc -c")]);
    let server = serve(reactor, &directory, "");
    let mut client = server.connect();
    client.send("POST /cgi/count HTTP/1.1\r\nHost: it.test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(client.reply_head().unwrap().status, 100);
    client.send("hello");
    assert_eq!(client.reply().text(), "5\n");
    assert_eq!(client.get("/").text(), "a file");
}

fn a_program_ends_with_its_client(reactor: Reactor) {
    let directory = programs(&[("endless", "while :; do :; done"), ("asleep", "sleep 1000")]);
    let server = serve(reactor, &directory, "");
    for name in ["endless", "asleep"] {
        let mut client = server.connect();
        client.send(format!("GET /cgi/{name} HTTP/1.1\r\nHost: it.test\r\n\r\n"));
        eventually("it runs", || (count(&server, name) == 1).then_some(()));
        drop(client);
        eventually("it has ended", || (count(&server, name) == 0).then_some(()));
    }
    assert_eq!(ask(&server, "GET /").text(), "a file");
}

/// What a program had started is the supervisor's once the program has been killed, and isn't forgotten when it ends.
fn nothing_of_a_killed_programs_children_stays(reactor: Reactor) {
    let directory = programs(&[("family", "echo Content-Type: text/plain; echo; sleep 100 | sleep 100 & sleep 100")]);
    let server = serve(reactor, &directory, "");
    for _ in 0..5 {
        let mut client = server.connect();
        client.send("GET /cgi/family HTTP/1.1\r\nHost: it.test\r\n\r\n");
        client.reply_head().unwrap();
    }
    let children = || {
        let list = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", server.pid())).unwrap();
        list.split_ascii_whitespace().count()
    };
    eventually("the engine is the only child again", || {
        (children() == 1 && count(&server, "sleep") == 0).then_some(())
    });
}

/// Programs that start others in process groups and sessions of their own, by name.
const ELSEWHERE: [(&str, &str); 4] = [
    ("group", "timeout 1000 sh -c 'while :; do :; done' \"$0\"; echo"),
    ("session", "setsid sh -c 'while :; do :; done' \"$0\"; echo"),
    ("orphan", "(setsid sh -c 'while :; do :; done' \"$0\" &); sleep 1000"),
    ("left_in_its_group", "(sh -c 'while :; do :; done' \"$0\" &); sleep 1000"),
];

fn what_programs_start_elsewhere_ends_with_them(reactor: Reactor) {
    let left = "(setsid sh -c 'while :; do :; done' \"$0\" > /dev/null 2>&1 < /dev/null &); printf 'X: y\\n\\nleft'";
    let directory = programs(&[&ELSEWHERE[..], &[("left", left)]].concat());
    let mut server = serve(reactor, &directory, "[limits]\ndrain_timeout = \"500ms\"");
    for (name, _) in ELSEWHERE {
        let program = directory.at(&format!("cgi/{name}")).display().to_string();
        let mut client = server.connect();
        client.send(format!("GET /cgi/{name} HTTP/1.1\r\nHost: it.test\r\n\r\n"));
        eventually("it runs", || (running(&program) > 0).then_some(()));
        drop(client);
        eventually("all have ended", || (running(&program) == 0).then_some(()));
    }
    assert_eq!(ask(&server, "GET /cgi/left").text(), "left");
    let programs = directory.at("cgi").display().to_string();
    eventually("nothing is left", || (running(&programs) == 0).then_some(()));
    let mut clients = ELSEWHERE.map(|_| server.connect());
    for (client, (name, _)) in clients.iter_mut().zip(ELSEWHERE) {
        client.send(format!("GET /cgi/{name} HTTP/1.1\r\nHost: it.test\r\n\r\n"));
    }
    eventually("all run", || (count(&server, "cgi/") >= 4).then_some(()));
    server.signal("TERM");
    server.wait_for_end();
    assert_eq!(running(&programs), 0);
}

fn a_silent_program_is_killed_in_time(reactor: Reactor) {
    let directory = programs(&[
        ("silent", "sleep 1000"),
        ("stuck", "printf 'Content-Type: text/plain\\n\\nhalf'; sleep 1000"),
        ("late", "exec 1>&-; exec 0<&-; sleep 1000"),
    ]);
    let server = serve(reactor, &directory, "timeout = \"300ms\"");
    assert_eq!(ask(&server, "GET /cgi/silent").status, 504);
    let mut client = server.connect();
    client.send("GET /cgi/stuck HTTP/1.1\r\nHost: it.test\r\n\r\n");
    assert!(client.try_reply().is_err(), "half a reply must not look whole");
    assert_eq!(ask(&server, "GET /cgi/late").status, 502, "its end of output is the end of its reply");
    eventually("all have ended", || (count(&server, "cgi/") == 0).then_some(()));
}

fn content_that_comes_too_slowly_is_408(reactor: Reactor) {
    let directory = programs(&[("reads", "cat > /dev/null; printf 'X: y\\n\\nread'")]);
    let server = serve(
        reactor,
        &directory,
        "[limits]\nstall_timeout = \"300ms\"\nbody_rate = \"1KiB/s\"\n[admin]\nlisten = \"127.0.0.1:0\"",
    );
    let head = "POST /cgi/reads HTTP/1.1\r\nHost: it.test\r\nContent-Length: 3000\r\n\r\n";
    let mut stalled = server.connect();
    stalled.send(head);
    // It never stalls, and would take half a minute.
    let mut slow = server.connect();
    slow.send(head);
    let reply = eventually("the slow one is answered", || {
        slow.try_send("x").ok()?;
        slow.stream().set_read_timeout(Some(std::time::Duration::from_millis(10))).unwrap();
        slow.try_reply().ok()
    });
    assert!(reply.status == 408 && reply.says_close());
    assert_eq!(stalled.reply().status, 408);
    eventually("the programs have ended", || (count(&server, "reads") == 0).then_some(()));
    let told = Client::connect(server.admin()).get("/metrics").text();
    assert!(told.contains("reason=\"body_timeout\"} 2"), "{told}");
    let mut quick = server.connect();
    quick.send(format!("{head}{}", "x".repeat(3000)));
    assert_eq!(quick.reply().text(), "read");
}

fn only_so_many_run_and_only_so_many_wait(reactor: Reactor) {
    let directory = programs(&[("hold", "read line; printf 'X: y\\n\\nheld'")]);
    let server = serve(reactor, &directory, "processes = 1\nqueue = 1");
    let head = "POST /cgi/hold HTTP/1.1\r\nHost: it.test\r\nContent-Length: 3\r\n\r\n";
    let (mut first, mut second) = (server.connect(), server.connect());
    first.send(head);
    eventually("the first runs", || (count(&server, "hold") == 1).then_some(()));
    second.send(head);
    // Whoever comes third finds no place, once the second has one.
    eventually("a third is refused", || {
        let mut third = server.connect();
        third.send(format!("{head}go\n"));
        third.stream().set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
        third.try_reply().ok().filter(|reply| reply.status == 503)
    });
    first.send("go\n");
    assert_eq!(first.reply().text(), "held");
    second.send("go\n");
    assert_eq!(second.reply().text(), "held");
}

fn a_place_is_waited_for_no_longer_than_for_the_server(reactor: Reactor) {
    let directory = programs(&[("hold", "read line; printf 'X: y\\n\\nheld'")]);
    let text = "workers = 1\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[site]]\nname = \"it\"\nroot = \"site\"\nlisten = \"127.0.0.1:0\"\nmax_queue_delay = \"300ms\"\n\
         [[site.handler]]\npath = \"/cgi/*\"\n[site.handler.cgi]\ncommand = \"cgi\"\nprocesses = 1\nqueue = 2\n";
    let server = Server::configured(reactor, &directory, text);
    let head = "POST /cgi/hold HTTP/1.1\r\nHost: it.test\r\nContent-Length: 3\r\n\r\n";
    let mut first = server.connect();
    first.send(head);
    eventually("the first runs", || (count(&server, "hold") == 1).then_some(()));
    let mut others = [server.connect(), server.connect(), server.connect()];
    others.iter_mut().for_each(|other| other.send(format!("{head}go\n")));
    // The first wants nothing and goes on: none of these is answered because a place was free.
    for other in &mut others {
        let reply = other.reply();
        assert_eq!((reply.status, reply.must("retry-after")), (503, "1"));
    }
    let page = Client::connect(server.admin()).get("/metrics").text();
    assert!(page.contains("leat_refused_total{site=\"it\",stage=\"serve\"} 3\n"), "{page}");
    first.send("go\n");
    assert_eq!(first.reply().text(), "held");
}

fn a_fast_program_waits_for_a_slow_client(reactor: Reactor) {
    let directory = programs(&[("much", "printf 'X: y\\n\\n'; yes | head -c 100000000")]);
    let server = serve(reactor, &directory, "timeout = \"1s\"");
    let mut client = server.connect();
    client.send("GET /cgi/much HTTP/1.1\r\nHost: it.test\r\n\r\n");
    assert_eq!(client.reply_head().unwrap().status, 200);
    // It fills what is on the way, and no more; that takes longer than its time.
    let started = std::time::Instant::now();
    eventually("it has waited for longer than its own time", || {
        (started.elapsed() > std::time::Duration::from_millis(2500)).then_some(())
    });
    let memory: u64 = server.processes().into_iter().map(resident_kib).max().unwrap();
    assert!(memory < 60_000, "{memory} KiB are resident");
    let got = client.read_content(20_000_000).unwrap();
    assert_eq!(got.len(), 20_000_000, "the program is still there");
    drop(client);
    eventually("it has ended", || (count(&server, "much") == 0).then_some(()));
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

fn what_programs_say_to_slow_clients_counts_as_their_sites_memory(reactor: Reactor) {
    const CLIENTS: usize = 20;
    let directory = programs(&[("endless", "printf 'Content-Type: text/plain\\n\\n'\nexec cat /dev/zero\n")]);
    let keys = "processes = 20\n[site.quota]\nmemory = \"512KiB\"\n[admin]\nlisten = \"127.0.0.1:0\"";
    let server = serve(reactor, &directory, keys);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    let held_bytes = || {
        let page = Client::connect(server.admin()).get("/metrics").text();
        let line = page.lines().find(|line| line.starts_with("leat_memory_held_bytes{site=\"it\"}"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).unwrap_or_default()
    };
    for client in &mut clients {
        client.send("GET /cgi/endless HTTP/1.1\r\nHost: it.test\r\n\r\n");
    }
    eventually("more is held than may be", || (held_bytes() > 512 << 10).then_some(()));
    // Nothing new is read: not a request, and of each program no more than was on its way.
    let mut last = server.connect();
    assert!(held_bytes() < 2 << 20, "{} bytes", held_bytes());
    last.send("GET /index.html HTTP/1.1\r\nHost: it.test\r\n\r\n");
    drop(clients);
    assert_eq!(last.reply().text(), "a file");
    eventually("nothing is held", || (held_bytes() == 0).then_some(()));
}

/// Their connections are for the most part not read, for longer than a client may be silent.
fn uploads_are_all_answered_however_little_their_site_may_hold(reactor: Reactor) {
    const CLIENTS: usize = 24;
    const BYTES: usize = 100_000;
    let directory = programs(&[("count", "printf 'Content-Type: text/plain\\n\\n'\nexec wc -c\n")]);
    // None is refused for how long it has waited, as 72 programs may take longer than a second, two at a time.
    let text = "workers = 1\n[[site]]\nname = \"it\"\nroot = \"site\"\nlisten = \"127.0.0.1:0\"\nmax_queue_delay = \"0s\"\n\
                [site.quota]\nmemory = \"256KiB\"\n\
                [[site.handler]]\npath = \"/cgi/*\"\ncgi = { command = \"cgi\", processes = 2, queue = 100 }\n\
                [limits]\nhead_timeout = \"1s\"\nidle_timeout = \"1s\"\n[admin]\nlisten = \"127.0.0.1:0\"";
    let server = Server::configured(reactor, &directory, text);
    let head = "POST /cgi/count HTTP/1.1\r\nHost: it.test\r\n";
    let content = "x".repeat(BYTES);
    let known = format!("{head}Content-Length: {BYTES}\r\n\r\n{content}");
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n{BYTES:x}\r\n{content}\r\n0\r\n\r\n");
    let all = [&known, &chunked, &known].map(String::as_str).concat();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = server.connect();
                client.send(&all);
                for _ in 0..3 {
                    let reply = client.reply();
                    assert_eq!((reply.status, reply.text().trim()), (200, "100000"));
                }
            });
        }
    });
    let page = || Client::connect(server.admin()).get("/metrics").text();
    eventually("nothing is held", || page().contains("leat_memory_held_bytes{site=\"it\"} 0\n").then_some(()));
    eventually("no program is left", || page().contains("leat_programs 0\n").then_some(()));
}

fn an_endless_program_leaves_others_their_share(reactor: Reactor) {
    let directory = programs(&[
        ("endless", "while :; do :; done"),
        ("quick", "printf 'X: y\\n\\nquick'"),
        ("parent", "printf 'X: y\\n\\n'; sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done'"),
    ]);
    let server = serve(reactor, &directory, "");
    let mut hogs: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    for hog in &mut hogs {
        hog.send("GET /cgi/endless HTTP/1.1\r\nHost: it.test\r\n\r\n");
    }
    eventually("all run", || (count(&server, "endless") == 3).then_some(()));
    for _ in 0..20 {
        assert_eq!(ask(&server, "GET /").text(), "a file");
    }
    assert_eq!(ask(&server, "GET /cgi/quick").text(), "quick");
    assert_eq!(ask(&server, "GET /cgi/parent").text(), "done\n");
    drop(hogs);
    eventually("all have ended", || (count(&server, "endless") == 0).then_some(()));
}

/// A process that computes on one core until it's dropped.
struct Outsider(std::process::Child);

impl Outsider {
    fn on(core: &str) -> Outsider {
        let hog = ["-c", core, "sh", "-c", "while :; do :; done"];
        Outsider(std::process::Command::new("taskset").args(hog).spawn().expect("taskset, of util-linux"))
    }
}

impl Drop for Outsider {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("it's a child of ours");
    }
}

/// The core that a server's only worker is pinned to.
fn workers_core(server: &Server) -> String {
    let engine = server.processes().into_iter().find(|&pid| pid != server.pid()).expect("an engine");
    let threads = std::fs::read_dir(format!("/proc/{engine}/task")).unwrap();
    let mut statuses = threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap());
    let worker = statuses.find(|status| status.starts_with("Name:\tworker")).expect("a worker");
    let cores = worker.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"));
    cores.expect("proc(5) has it").to_owned()
}

fn programs_dont_starve_beside_a_busy_process(reactor: Reactor) {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        println!("skipped: needs root");
        return;
    }
    let texts = [("compute", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; printf 'X: y\\n\\ndone'")];
    let directory = programs(&texts);
    let server = serve(reactor, &directory, "");
    let outsider = Outsider::on(&workers_core(&server));
    let started = std::time::Instant::now();
    assert_eq!(ask(&server, "GET /cgi/compute").text(), "done");
    // Below everything else on the core it would take ten seconds and more, of which it computes 0.03.
    assert!(started.elapsed() < std::time::Duration::from_secs(3), "{:?}", started.elapsed());
    drop(outsider);
}

fn programs_compute_no_more_than_their_sites_quota(reactor: Reactor) {
    let texts = [
        ("endless", "while :; do :; done"),
        // In a process group of its own.
        ("elsewhere", "timeout 1000 sh -c 'while :; do :; done'; echo"),
    ];
    let directory = programs(&texts);
    for (name, _) in texts {
        let server = serve(reactor, &directory, "[site.quota]\ncpu = \"20%\"\n[admin]\nlisten = \"127.0.0.1:0\"");
        computes_no_more_than_a_fifth(&server, name);
    }
}

fn computes_no_more_than_a_fifth(server: &Server, name: &str) {
    let computed = || {
        let page = Client::connect(server.admin()).get("/metrics").text();
        let line = page.lines().find(|line| line.starts_with("leat_compute_seconds_total{site=\"it\"}"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or_default()
    };
    let mut client = server.connect();
    client.send(format!("GET /cgi/{name} HTTP/1.1\r\nHost: it.test\r\n\r\n"));
    eventually("it's at work", || (computed() > 0.1).then_some(()));
    let (started, before) = (std::time::Instant::now(), computed());
    eventually("it has computed", || (computed() > before + 0.2).then_some(()));
    let part = 0.2 / started.elapsed().as_secs_f64();
    assert!(part < 0.25, "{part} of a processor");
}

/// Its site's quota keeps it from running for longer than it may be silent.
fn a_program_isnt_silent_while_it_may_not_run(reactor: Reactor) {
    let texts = [("compute", "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; printf 'X: y\\n\\ndone'")];
    let directory = programs(&texts);
    let keys = "timeout = \"4s\"\n[site.quota]\ncpu = \"1%\"\n[admin]\nlisten = \"127.0.0.1:0\"";
    let server = serve(reactor, &directory, keys);
    let started = std::time::Instant::now();
    let mut client = server.connect();
    client.stream().set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let reply = client.get("/cgi/compute");
    assert_eq!((reply.status, reply.text()), (200, "done".to_owned()));
    assert!(started.elapsed() > std::time::Duration::from_secs(4), "nothing kept it: {:?}", started.elapsed());
}

fn nothing_stays_when_the_server_goes(reactor: Reactor) {
    let directory = programs(&[("endless", "while :; do :; done")]);
    for signal in ["INT", "KILL"] {
        let mut server = serve(reactor, &directory, "[limits]\ndrain_timeout = \"500ms\"");
        let mut client = server.connect();
        client.send("GET /cgi/endless HTTP/1.1\r\nHost: it.test\r\n\r\n");
        eventually("it runs", || (count(&server, "endless") == 1).then_some(()));
        let program = directory.at("cgi/endless").display().to_string();
        server.signal(signal);
        if signal == "INT" {
            server.wait_for_stderr(&["stopping"]);
            server.signal(signal);
        }
        server.wait_for_end();
        eventually("it has ended", || (running(&program) == 0).then_some(()));
    }
}

fn an_engine_that_is_killed_leaves_no_program(reactor: Reactor) {
    let directory = programs(&[("endless", "while :; do :; done")]);
    let server = serve(reactor, &directory, "");
    let mut client = server.connect();
    client.send("GET /cgi/endless HTTP/1.1\r\nHost: it.test\r\n\r\n");
    eventually("it runs", || (count(&server, "endless") == 1).then_some(()));
    for pid in server.processes().into_iter().filter(|&pid| pid != server.pid()) {
        crate::support::server::signal(pid, "KILL");
    }
    let program = directory.at("cgi/endless").display().to_string();
    eventually("it has ended", || (running(&program) == 0).then_some(()));
    eventually("the server goes on", || {
        let mut client = Client::try_connect(server.address()).ok()?;
        client.try_send("GET / HTTP/1.1\r\nHost: it.test\r\n\r\n").ok()?;
        client.try_reply().ok()
    });
}

fn nobody_left_to_end_programs_still_ends_them(reactor: Reactor) {
    let directory = programs(&[("endless", "while :; do :; done")]);
    let mut server = serve(reactor, &directory, "");
    // Two: at any moment one of them at least is stopped.
    let mut clients = [server.connect(), server.connect()];
    clients.iter_mut().for_each(|client| client.send("GET /cgi/endless HTTP/1.1\r\nHost: it.test\r\n\r\n"));
    eventually("both run", || (count(&server, "endless") == 2).then_some(()));
    // All are stopped first, so that none sees another's end.
    for name in ["STOP", "KILL"] {
        server.processes().into_iter().for_each(|pid| crate::support::server::signal(pid, name));
    }
    server.wait_for_end();
    let programs = directory.at("cgi").display().to_string();
    eventually("they have ended", || (running(&programs) == 0).then_some(()));
}

/// Processes with this in their command line.
fn running(command: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap();
    let lines = entries.filter_map(|entry| std::fs::read(entry.unwrap().path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(command)).count()
}

on_both_reactors!(
    a_program_is_told_and_answers,
    statuses_and_redirects_are_passed_on,
    last_words_are_logged_without_a_newline,
    what_is_no_reply_is_502,
    half_a_reply_of_a_killed_program_doesnt_look_whole,
    a_program_that_cant_be_started_is_told,
    content_reaches_the_program,
    a_client_that_awaits_leave_gets_it,
    a_program_ends_with_its_client,
    nothing_of_a_killed_programs_children_stays,
    what_programs_start_elsewhere_ends_with_them,
    a_silent_program_is_killed_in_time,
    content_that_comes_too_slowly_is_408,
    only_so_many_run_and_only_so_many_wait,
    a_place_is_waited_for_no_longer_than_for_the_server,
    a_fast_program_waits_for_a_slow_client,
    what_programs_say_to_slow_clients_counts_as_their_sites_memory,
    uploads_are_all_answered_however_little_their_site_may_hold,
    an_endless_program_leaves_others_their_share,
    programs_dont_starve_beside_a_busy_process,
    programs_compute_no_more_than_their_sites_quota,
    a_program_isnt_silent_while_it_may_not_run,
    nothing_stays_when_the_server_goes,
    an_engine_that_is_killed_leaves_no_program,
    nobody_left_to_end_programs_still_ends_them,
);
