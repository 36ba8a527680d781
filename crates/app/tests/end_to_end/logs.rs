//! Access logs: one line for each request, in the format that every analyser knows or as JSON, and nothing a client sends can break a line.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::on_both_reactors;
use crate::support::server::{binary, run, signal, write_configuration};
use crate::support::{Client, Directory, Reactor, Server, Upstream, eventually};

const JSON_FIELDS: [&str; 15] = [
    "body_bytes",
    "complete",
    "host",
    "id",
    "method",
    "peer",
    "referer",
    "request_number",
    "site",
    "status",
    "target",
    "time",
    "time_us",
    "user_agent",
    "version",
];

fn logging(reactor: Reactor, directory: &Directory, format: &str) -> Server {
    directory.write("site/a.txt", "alpha\n");
    let text = format!(
        "[[site]]\nname = \"logged\"\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n[site.access_log]\npath = \"access.log\"\nformat = \"{format}\"\n"
    );
    Server::configured(reactor, directory, &text)
}

fn lines(path: &Path, count: usize) -> Vec<String> {
    eventually("the lines are written", || {
        let text = fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        (lines.len() >= count && text.ends_with('\n')).then_some(lines)
    })
}

/// `[21/Nov/2026:02:13:06 +0000]`
fn is_time(text: &str) -> bool {
    let shape = |byte: u8| match byte {
        b'0'..=b'9' => '9',
        b'a'..=b'z' | b'A'..=b'Z' => 'a',
        b'+' | b'-' => '+',
        other => char::from(other),
    };
    text.bytes().map(shape).collect::<String>() == "[99/aaa/9999:99:99:99 +9999]"
}

/// Address, identity, user, time, then the rest of a line.
fn parts(line: &str) -> (&str, &str) {
    let (address, rest) = line.split_once(" - - ").unwrap_or_else(|| panic!("{line}"));
    let (time, rest) = rest.split_at(rest.find("] ").unwrap_or_else(|| panic!("{line}")) + 1);
    assert!(is_time(time), "{line}");
    (address, &rest[1..])
}

fn combined_lines_have_exactly_their_fields(reactor: Reactor) {
    let directory = Directory::new();
    let server = logging(reactor, &directory, "combined");
    let mut client = server.connect();
    client.get("/a.txt");
    client.ask("GET /none?q=1 HTTP/1.1\r\nHost: localhost\r\nReferer: http://from.example/\r\nUser-Agent: tester/1.0 (x)\r\n\r\n");
    client.ask("HEAD /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.ask("GET /a.txt HTTP/1.1\r\nHost: localhost\r\nRange: bytes=1-2\r\n\r\n");
    client.ask("POST /a.txt HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    let lines = lines(&directory.at("access.log"), 5);
    let rests: Vec<_> = lines.iter().map(|line| parts(line)).collect();
    assert!(rests.iter().all(|(address, _)| *address == "127.0.0.1"), "{lines:?}");
    assert_eq!(rests[0].1, r#""GET /a.txt HTTP/1.1" 200 6 "-" "-""#);
    assert!(rests[1].1.starts_with(r#""GET /none?q=1 HTTP/1.1" 404 "#), "{}", rests[1].1);
    assert!(rests[1].1.ends_with(r#" "http://from.example/" "tester/1.0 (x)""#), "{}", rests[1].1);
    assert!(
        rests[2].1.starts_with(r#""HEAD /a.txt HTTP/1.1" 200 0 "#)
            || rests[2].1.starts_with(r#""HEAD /a.txt HTTP/1.1" 200 - "#),
        "{}",
        rests[2].1
    );
    assert_eq!(rests[3].1, r#""GET /a.txt HTTP/1.1" 206 2 "-" "-""#);
    assert!(rests[4].1.starts_with(r#""POST /a.txt HTTP/1.0" 405 "#), "{}", rests[4].1);
}

fn a_request_behind_empty_lines_is_logged_as_it_is(reactor: Reactor) {
    let directory = Directory::new();
    let server = logging(reactor, &directory, "combined");
    let mut client = server.connect();
    for before in ["\r\n", "\r\n\r\n"] {
        client.ask(format!("{before}GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    }
    for line in lines(&directory.at("access.log"), 2) {
        assert_eq!(parts(&line).1, r#""GET /a.txt HTTP/1.1" 200 6 "-" "-""#);
    }
}

fn of_a_reply_that_is_cut_what_was_sent_counts(reactor: Reactor) {
    let directory = Directory::new();
    let server = logging(reactor, &directory, "json");
    directory.write("site/long", "x".repeat(64 << 20));
    let mut client = server.connect();
    client.send("GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.reply_head().expect("the reply begins");
    drop(client);
    let lines = lines(&directory.at("access.log"), 1);
    let line: serde_json::Value = serde_json::from_str(&lines[0]).expect("JSON");
    assert_eq!(line["complete"], false, "{line}");
    let sent = line["body_bytes"].as_u64().expect("a number");
    // What fits into the kernel's buffers.
    assert!((1..32 << 20).contains(&sent), "{line}");
}

fn nothing_that_a_client_sends_breaks_a_line(reactor: Reactor) {
    let directory = Directory::new();
    let server = logging(reactor, &directory, "combined");
    for agent in ["a\" 200 6 \"forged", "tab\there", "back\\slash", "caf\u{e9}"] {
        let request = format!("GET /a.txt HTTP/1.1\r\nHost: localhost\r\nUser-Agent: {agent}\r\n\r\n");
        assert!(matches!(server.request(request).status, 200 | 400));
    }
    server.request("GET /%0a127.0.0.1%22%20x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    server.get("/a.txt?last");
    let lines = eventually("the last line", || {
        // Workers pass their lines on at different times: the last request's needn't be the last line.
        Some(lines(&directory.at("access.log"), 2)).filter(|lines| lines.iter().any(|line| line.contains("?last")))
    });
    for line in &lines {
        let (_, rest) = parts(line);
        let quotes = rest.replace("\\\\", "").replace("\\\"", "").matches('"').count();
        assert_eq!(quotes, 6, "{line}");
        assert!(line.bytes().all(|byte| byte >= 0x20 && byte != 0x7f), "{line:?}");
    }
}

fn json_lines_have_exactly_their_fields(reactor: Reactor) {
    let directory = Directory::new();
    let server = logging(reactor, &directory, "json");
    let mut client = server.connect();
    client.get("/a.txt");
    client.ask("GET /none?q=\"x\" HTTP/1.1\r\nHost: shop.example\r\nReferer: http://from.example/\"\\\r\nUser-Agent: tester/1.0\r\n\r\n");
    client.get("/a.txt?last");
    let lines = lines(&directory.at("access.log"), 3);
    let parsed: Vec<serde_json::Map<String, serde_json::Value>> =
        lines.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect();
    for entry in &parsed {
        let mut keys: Vec<_> = entry.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, JSON_FIELDS);
        assert!(
            entry["time_us"].is_u64() && entry["time"].as_str().is_some_and(|time| time.ends_with('Z')),
            "{entry:?}"
        );
    }
    let ids: std::collections::BTreeSet<_> = parsed.iter().map(|entry| entry["id"].as_str()).collect();
    assert!(ids.len() == 3 && !ids.contains(&None), "each has its own: {ids:?}");
    let first = &parsed[0];
    assert_eq!(
        (&first["peer"], &first["site"], &first["host"]),
        (&"127.0.0.1".into(), &"logged".into(), &"localhost".into())
    );
    assert_eq!(
        (&first["method"], &first["target"], &first["version"]),
        (&"GET".into(), &"/a.txt".into(), &"HTTP/1.1".into())
    );
    assert_eq!((&first["status"], &first["body_bytes"], &first["complete"]), (&200.into(), &6.into(), &true.into()));
    assert_eq!((&first["request_number"], &first["referer"]), (&1.into(), &"".into()));
    let second = &parsed[1];
    assert_eq!(
        (&second["status"], &second["request_number"], &second["host"]),
        (&404.into(), &2.into(), &"shop.example".into())
    );
    assert_eq!((&second["target"], &second["referer"]), (&"/none?q=\"x\"".into(), &"http://from.example/\"\\".into()));
    assert_eq!(second["user_agent"], "tester/1.0");
}

fn a_refused_head_has_a_number_of_its_own(reactor: Reactor) {
    let directory = Directory::new();
    let server = logging(reactor, &directory, "json");
    let mut client = server.connect();
    client.get("/a.txt");
    assert_eq!(client.ask("GET /b.txt HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n").status, 400);
    let told: Vec<_> = lines(&directory.at("access.log"), 2)
        .iter()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|entry| (entry["status"].as_u64(), entry["request_number"].as_u64()))
        .collect();
    assert_eq!(told, [(Some(200), Some(1)), (Some(400), Some(2))]);
}

fn what_is_no_sites_is_in_the_first_ones_log(reactor: Reactor) {
    let directory = Directory::new();
    directory.write("site/a.txt", "alpha\n");
    let site = |host: &str, log: &str| {
        format!(
            "[[site]]\nhosts = [\"{host}\"]\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n[site.access_log]\npath = \"{log}\"\n"
        )
    };
    let text = [site("first.test", "first.log"), site("second.test", "second.log")].concat();
    let server = Server::configured(reactor, &directory, &text);
    assert_eq!(server.request("GET /bad HTTP/1.1\r\nHost: second.test\r\nno colon\r\n\r\n").status, 400);
    let long = "x".repeat(200_000);
    assert_eq!(server.request(format!("GET /long HTTP/1.1\r\nHost: x\r\nX: {long}\r\n\r\n")).status, 431);
    assert_eq!(server.request("GET /a.txt HTTP/1.1\r\nHost: third.test\r\n\r\n").status, 421);
    assert_eq!(server.request("GET /a.txt HTTP/1.1\r\nHost: second.test\r\n\r\n").status, 200);
    let lines = lines(&directory.at("first.log"), 3);
    let has = |wanted: &str| lines.iter().any(|line| parts(line).1.starts_with(wanted));
    assert!(has(r#""GET /bad HTTP/1.1" 400 "#) && has(r#""GET /long HTTP/1.1" 431 "#), "{lines:?}");
    assert!(lines.len() == 3 && has(r#""GET /a.txt HTTP/1.1" 421 "#), "{lines:?}");
}

fn every_request_is_logged_once(reactor: Reactor) {
    let directory = Directory::new();
    let server = logging(reactor, &directory, "combined");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.connect();
                client.send(
                    (0..500)
                        .map(|n| format!("GET /a.txt?{thread}-{n} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
                        .collect::<String>(),
                );
                for _ in 0..500 {
                    assert_eq!(client.reply().status, 200);
                }
            });
        }
    });
    let mut targets: Vec<_> = lines(&directory.at("access.log"), 2000)
        .iter()
        .map(|line| line.split(' ').nth(6).unwrap().to_owned())
        .collect();
    targets.sort();
    targets.dedup();
    assert_eq!(targets.len(), 2000);
}

fn the_log_can_go_to_standard_output(reactor: Reactor) {
    let directory = Directory::with(&[("site/a.txt", b"alpha\n")]);
    let server = Server::configured(
        reactor,
        &directory,
        "[[site]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n[site.access_log]\npath = \"-\"\n",
    );
    server.get("/a.txt");
    server.wait_for_stdout("log line", |lines| {
        lines.iter().any(|line| line.contains("\"GET /a.txt HTTP/1.1\" 200 6")).then_some(())
    });
}

fn a_log_that_was_moved_is_opened_anew(reactor: Reactor) {
    let directory = Directory::new();
    let server = logging(reactor, &directory, "combined");
    server.get("/a.txt?first");
    lines(&directory.at("access.log"), 1);
    fs::rename(directory.at("access.log"), directory.at("access.log.1")).unwrap();
    server.signal("USR1");
    // The file is opened at the first line after the signal.
    eventually("a new file", || {
        server.get("/a.txt?second");
        directory.at("access.log").exists().then_some(())
    });
    assert!(lines(&directory.at("access.log"), 1)[0].contains("?second"));
    assert!(lines(&directory.at("access.log.1"), 1)[0].contains("?first"));
}

fn a_full_disk_holds_nobody_up_and_is_counted(reactor: Reactor) {
    let directory = Directory::with(&[("site/a.txt", b"alpha\n")]);
    let text = "[admin]\nlisten = \"127.0.0.1:0\"\n[[site]]\nname = \"full\"\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n\
                [site.access_log]\npath = \"/dev/full\"\n";
    let server = Server::configured(reactor, &directory, text);
    let (mut admin, mut asked) = (Client::connect(server.admin()), 0);
    for count in [1, 30] {
        (0..count).for_each(|_| assert_eq!(server.get("/a.txt").status, 200));
        asked += count;
        // No line has to follow for that.
        eventually("what couldn't be written is counted", || {
            let metrics = admin.get("/metrics").text();
            let start = "leat_access_log_lines_dropped_total{site=\"full\"} ";
            let dropped = metrics.lines().find_map(|line| line.strip_prefix(start)?.parse::<u32>().ok())?;
            assert!(dropped <= asked, "{dropped} of {asked}");
            (dropped == asked).then_some(())
        });
    }
    assert!(server.wait_for_stderr(&["can't be written"]).contains("/dev/full"));
    assert_eq!(
        server.stderr().iter().filter(|line| line.contains("can't be written")).count(),
        1,
        "{:?}",
        server.stderr()
    );
}

fn what_was_answered_before_the_end_is_in_the_log(reactor: Reactor) {
    let directory = Directory::new();
    let mut server = logging(reactor, &directory, "combined");
    for _ in 0..50 {
        server.get("/a.txt");
    }
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    assert_eq!(fs::read_to_string(directory.at("access.log")).unwrap().lines().count(), 50);
}

/// A server that `sh` starts, after `before` and with `after`: what it may do, and where its messages go.
fn started_by_shell(reactor: Reactor, directory: &Directory, text: &str, before: &str, after: &str) -> Server {
    let file = write_configuration(reactor, directory, text);
    let command = format!("{before} exec '{}' serve --config '{}' {after}", binary().display(), file.display());
    Server::start_program(Path::new("/bin/sh"), &[OsStr::new("-c"), OsStr::new(&command)], 1)
}

/// A limit for the size of files is as good as a disk that is full, but for the signal.
fn a_full_disk_cuts_no_line_that_follows(reactor: Reactor) {
    let directory = Directory::with(&[("site/a.txt", b"alpha\n")]);
    let text = "workers = 1\n[admin]\nlisten = \"127.0.0.1:0\"\n[[site]]\nname = \"full\"\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n\
                [site.access_log]\npath = \"access.log\"\n";
    let server = started_by_shell(reactor, &directory, text, "trap '' XFSZ; ulimit -f 64;", "");
    let (mut admin, mut client, mut asked) = (Client::connect(server.admin()), server.connect(), 0);
    let mut count_dropped = || {
        let metrics = admin.get("/metrics").text();
        let start = "leat_access_log_lines_dropped_total{site=\"full\"} ";
        metrics.lines().find_map(|line| line.strip_prefix(start)?.parse::<usize>().ok()).unwrap_or_default()
    };
    eventually("the disk is full", || {
        (0..20).for_each(|_| assert_eq!(client.get("/a.txt").status, 200));
        asked += 20;
        (count_dropped() > 0).then_some(())
    });
    let log = directory.at("access.log");
    let written = || fs::read_to_string(&log).unwrap().matches('\n').count();
    eventually("each line is written or counted", || {
        let counted = written() + count_dropped();
        assert!(counted <= asked, "{counted} of {asked}: lines are counted that were written");
        (counted == asked).then_some(())
    });
    assert!(!fs::read_to_string(&log).unwrap().ends_with('\n'), "the last line must be cut for what follows");
    // Half of it is made free.
    let file = fs::File::options().write(true).open(&log).unwrap();
    let full = file.metadata().unwrap().len();
    file.set_len(full / 2 - 7).unwrap();
    let text = eventually("a line after that", || {
        client.get("/a.txt?after");
        fs::read_to_string(&log).ok().filter(|text| text.contains("?after") && text.ends_with('\n'))
    });
    assert!(text.lines().all(|line| line.matches("127.0.0.1").count() == 1), "{text}");
}

fn a_pipe_that_nobody_reads_is_told(reactor: Reactor) {
    let directory = Directory::with(&[("site/a.txt", b"alpha\n")]);
    directory.fifo("access.log");
    let text = "[[site]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n[site.access_log]\npath = \"access.log\"\n";
    let file = write_configuration(reactor, &directory, text);
    let (code, _, told) = run(&[OsStr::new("serve"), OsStr::new("--config"), file.as_os_str()]);
    assert!(code == Some(1) && told.contains("access.log can't be written"), "{code:?}: {told}");
    let mut reader = pipe(&directory.at("access.log"));
    let server = Server::configured(reactor, &directory, text);
    server.get("/a.txt");
    assert!(read_until(&mut reader, "\n").contains("\"GET /a.txt HTTP/1.1\" 200 6"));
}

/// Who looks for why pages are slow looks for those whose clients gave up.
fn a_request_whose_client_did_not_wait_is_in_the_log(reactor: Reactor) {
    let directory = Directory::new();
    let (heard, is_heard) = std::sync::mpsc::channel();
    let upstream = Upstream::start(move |conversation| {
        conversation.head();
        heard.send(()).unwrap();
        conversation.until_closed();
    });
    let text = format!(
        "workers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\n[site.access_log]\npath = \"access.log\"\n\
         [[site.handler]]\npath = \"/*\"\nproxy = {{ to = \"{}\" }}\n",
        upstream.address()
    );
    let server = Server::configured(reactor, &directory, &text);
    let mut client = server.connect();
    client.send("GET /slow HTTP/1.1\r\nHost: it.test\r\n\r\n");
    is_heard.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
    drop(client);
    let line = &lines(&directory.at("access.log"), 1)[0];
    assert!(line.contains("\"GET /slow HTTP/1.1\" 499 0 "), "{line}");
}

/// Both ends of a named pipe, which don't wait.
fn pipe(path: &Path) -> fs::File {
    const O_NONBLOCK: i32 = 0o4000;
    fs::File::options().read(true).write(true).custom_flags(O_NONBLOCK).open(path).unwrap()
}

fn read_until(pipe: &mut fs::File, end: &str) -> String {
    let mut read = Vec::new();
    eventually("it comes by the pipe", || {
        let mut piece = [0; 64 << 10];
        let count = pipe.read(&mut piece).unwrap_or_default();
        read.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&read);
        text.contains(end).then(|| text.into_owned())
    })
}

fn who_doesnt_read_messages_holds_nobody_up(reactor: Reactor) {
    let directory = Directory::with(&[("site/a.txt", b"alpha\n"), ("cgi/none", b"not executable")]);
    directory.fifo("messages");
    let mut messages = pipe(&directory.at("messages"));
    let text = "workers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"site\"\n\
                [[site.handler]]\npath = \"/cgi/*\"\ncgi = { command = \"cgi\" }\n";
    let to = format!("2> '{}'", directory.at("messages").display());
    let server = started_by_shell(reactor, &directory, text, "", &to);
    while messages.write(&[b'x'; 4096]).is_ok() {}
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!((client.get("/cgi/none").status, client.get("/a.txt").status), (500, 200));
    }
    assert!(read_until(&mut messages, "can't be started").contains("xxx"));
}

fn who_doesnt_read_messages_keeps_no_engine_from_being_started(reactor: Reactor) {
    let directory = Directory::with(&[("site/a.txt", b"alpha\n"), ("other/a.txt", b"beta\n")]);
    directory.fifo("messages");
    let mut messages = pipe(&directory.at("messages"));
    let text = |root: &str| format!("workers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{root}\"\n");
    let to = format!("2> '{}'", directory.at("messages").display());
    let mut server = started_by_shell(reactor, &directory, &text("site"), "", &to);
    while messages.write(&[b'x'; 4096]).is_ok() {}
    let answers = |content: &str| {
        eventually("the engine answers", || {
            let mut client = Client::try_connect(server.address()).ok()?;
            client.try_send("GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
            (client.try_reply().ok()?.text() == content).then_some(())
        });
    };
    for _ in 0..2 {
        let before = crate::reload::engines(&server);
        before.iter().for_each(|&pid| signal(pid, "KILL"));
        eventually("it's dead", || before.iter().all(|pid| !server.processes().contains(pid)).then_some(()));
        answers("alpha\n");
    }
    assert!(read_until(&mut messages, "starts again").contains("xxx"));
    while messages.write(&[b'x'; 4096]).is_ok() {}
    write_configuration(reactor, &directory, &text("other"));
    server.signal("HUP");
    answers("beta\n");
    // A configuration that the new binary refuses is told of, and the engine goes on.
    let before = crate::reload::engines(&server);
    write_configuration(reactor, &directory, "[[sight]]\n");
    server.signal("USR2");
    // Nobody can hear when it has been looked at: if it takes longer than that, only less is tested.
    std::thread::sleep(std::time::Duration::from_millis(300));
    write_configuration(reactor, &directory, &text("site"));
    server.signal("USR2");
    eventually("there's another engine", || (crate::reload::engines(&server) != before).then_some(()));
    answers("alpha\n");
    server.signal("TERM");
    server.wait_for_end();
}

on_both_reactors!(
    combined_lines_have_exactly_their_fields,
    a_request_behind_empty_lines_is_logged_as_it_is,
    of_a_reply_that_is_cut_what_was_sent_counts,
    nothing_that_a_client_sends_breaks_a_line,
    json_lines_have_exactly_their_fields,
    a_refused_head_has_a_number_of_its_own,
    what_is_no_sites_is_in_the_first_ones_log,
    every_request_is_logged_once,
    the_log_can_go_to_standard_output,
    a_log_that_was_moved_is_opened_anew,
    a_full_disk_holds_nobody_up_and_is_counted,
    what_was_answered_before_the_end_is_in_the_log,
    a_full_disk_cuts_no_line_that_follows,
    a_pipe_that_nobody_reads_is_told,
    a_request_whose_client_did_not_wait_is_in_the_log,
    who_doesnt_read_messages_holds_nobody_up,
    who_doesnt_read_messages_keeps_no_engine_from_being_started,
);
