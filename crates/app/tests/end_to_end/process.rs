//! The program as a process: its command line, its messages, how it stops, and what happens when a part of it is killed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::on_both_reactors;
use crate::support::directory::noise;
use crate::support::server::{binary, run, signal};
use crate::support::{Client, Directory, Reactor, Server, eventually};

fn leat(arguments: &[&str]) -> (Option<i32>, String, String) {
    run(&arguments.iter().map(OsStr::new).collect::<Vec<_>>())
}

/// A site with a file that is larger than all socket buffers.
fn site() -> (Directory, Vec<u8>) {
    let content = noise(30 << 20, 1);
    (Directory::with(&[("site/a.txt", b"alpha\n"), ("site/large.bin", &content)]), content)
}

#[test]
fn help_names_commands_and_options() {
    let (code, text, _) = leat(&["--help"]);
    assert_eq!(code, Some(0));
    assert!(text.contains("serve") && text.contains("check"), "{text}");
    let (code, text, _) = leat(&["serve", "--help"]);
    assert_eq!(code, Some(0));
    for option in ["--listen", "--workers", "--reactor", "--config", "io_uring", "epoll"] {
        assert!(text.contains(option), "{option}: {text}");
    }
    let (code, text, _) = leat(&["--version"]);
    assert!(code == Some(0) && text.starts_with("leat "), "{text}");
}

#[test]
fn wrong_arguments_are_explained() {
    for (arguments, word) in [
        (&["--nonsense"][..], "--nonsense"),
        (&["serve", "--reactor", "kqueue"], "kqueue"),
        (&["serve", "--workers", "0"], "0"),
        (&["serve", "--listen", "nowhere"], "write it as in \"127.0.0.1:8080\""),
        (&["serve", "--listen", "8080"], "write \"0.0.0.0:8080\""),
        (&[], "serve"),
    ] {
        let (code, out, err) = leat(arguments);
        assert_eq!(code, Some(2), "{arguments:?}");
        assert!(out.is_empty() && err.contains(word), "{arguments:?}: {err}");
    }
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let directory = Directory::with(&[("file.txt", b"x")]);
    for name in ["absent", "file.txt"] {
        let path = directory.at(name);
        let (code, out, err) = leat(&["serve", path.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
        assert!(code.is_some_and(|code| code != 0), "{name}: {code:?}");
        assert!(!out.contains("listening") && err.contains(path.to_str().unwrap()), "{name}: {err}");
    }
}

#[test]
fn a_directory_that_may_not_be_entered_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let directory = Directory::with(&[("closed/file.txt", b"x")]);
    let closed = directory.at("closed");
    let set = |mode| std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(mode)).unwrap();
    set(0o000);
    let mut command = match std::fs::read_dir(&closed) {
        Err(_) => std::process::Command::new(binary()),
        // A user with privileges may enter anything: without them.
        Ok(_) => {
            let mut command = std::process::Command::new("setpriv");
            command.arg("--bounding-set=-dac_override,-dac_read_search").arg(binary());
            command
        }
    };
    let output = command.arg("serve").arg(&closed).args(["--listen", "127.0.0.1:0"]).output().unwrap();
    set(0o700);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("closed: error: can't be served: permission denied"), "{told}");
}

#[test]
fn a_configuration_that_is_not_there_is_named() {
    for command in [&["serve", "--config", "/nowhere/leat.toml"][..], &["check", "/nowhere/leat.toml"]] {
        let (code, _, err) = leat(command);
        assert_eq!(code, Some(1), "{command:?}");
        assert!(err.contains("/nowhere/leat.toml") && err.to_lowercase().contains("no such file"), "{err}");
    }
}

#[test]
fn check_names_file_line_and_cure() {
    let directory = Directory::with(&[("site/index.html", b"x")]);
    let text =
        "workers = 2\n[[site]]\nroot = \"site\"\nlistn = [\"127.0.0.1:0\"]\nweight = 0\n[limits]\nhead_timeout = 10\n";
    let path = directory.write("leat.toml", text);
    let path = path.to_str().unwrap();
    let (code, _, err) = leat(&["check", path]);
    assert_eq!(code, Some(1));
    for (line, words) in [(4, ["listn", "listen"]), (5, ["weight", "1"]), (7, ["head_timeout", "\"10s\""])] {
        let place = format!("{path}:{line}:");
        let at = err.find(&place).unwrap_or_else(|| panic!("no {place} in {err}"));
        let rest = &err[at..];
        let end = rest[1..].find(path).map_or(rest.len(), |next| next + 1);
        assert!(words.iter().all(|word| rest[..end].contains(word)) || line == 7, "{place} {}", &rest[..end]);
    }
    // The same words when it is to be served.
    let (code, out, served) = leat(&["serve", "--config", path]);
    assert!(code == Some(1) && out.is_empty() && served.contains(&format!("{path}:4:")), "{served}");
}

#[test]
fn check_passes_what_is_well() {
    let directory = Directory::with(&[("site/index.html", b"x")]);
    let path = directory.write("leat.toml", "[[site]]\nroot = \"site\"\nlisten = [\"127.0.0.1:8080\"]\n");
    let path = path.to_str().unwrap();
    for command in [&["check", path][..], &["check", "--config", path]] {
        let (code, out, err) = leat(command);
        assert_eq!(code, Some(0), "{err}");
        assert!(out.contains("leat.toml"), "{out}");
    }
    for command in [&["check"][..], &["check", path, "--config", path]] {
        let (code, _, err) = leat(command);
        assert!(code == Some(2) && err.contains("--config <FILE>"), "{code:?}: {err}");
    }
}

#[test]
fn what_is_no_file_is_refused_without_reading_it() {
    let directory = Directory::new();
    let pipe = directory.at("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (code, _, err) = leat(&["check", pipe.to_str().unwrap()]);
    assert!(code == Some(1) && err.contains("isn't a regular file"), "{code:?}: {err}");
}

#[test]
fn what_nobody_can_read_changes_no_exit_code() {
    let directory = Directory::with(&[("site/index.html", b"x")]);
    let text = "[[site]]\nroot = \"site\"\nlisten = [\"127.0.0.1:8080\"]\n";
    let well = directory.write("leat.toml", text);
    let wrong = directory.write("wrong.toml", "workers = 0\n");
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let code = |arguments: &[&OsStr]| {
        Command::new(binary()).args(arguments).stdout(full()).stderr(full()).status().unwrap().code()
    };
    let (check, config) = (OsStr::new("check"), OsStr::new("--config"));
    assert_eq!(code(&[check, well.as_os_str()]), Some(0));
    assert_eq!(code(&[check, wrong.as_os_str()]), Some(1));
    assert_eq!(code(&[OsStr::new("serve"), config, wrong.as_os_str()]), Some(1));
    assert_eq!(code(&["ctl", "status", "--socket", "/nowhere/leat.sock"].map(OsStr::new)), Some(1));
    assert_eq!(code(&["top", "--once", "127.0.0.1:1"].map(OsStr::new)), Some(1));
}

fn a_port_in_use_is_named(reactor: Reactor) {
    let (site, _) = site();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let first = Server::of(reactor, site.at("site"));
    // Somebody else's, and another leat's.
    for address in [other.local_addr().unwrap(), first.address()] {
        let address = address.to_string();
        let (code, out, err) =
            leat(&["serve", site.at("site").to_str().unwrap(), "--listen", &address, "--reactor", reactor.name()]);
        assert!(code.is_some_and(|code| code != 0), "{code:?}");
        assert!(
            !out.contains("listening")
                && err.contains(&address)
                && (err.contains("in use") || err.contains("listens there")),
            "{err}"
        );
    }
    assert_eq!(first.get("/a.txt").text(), "alpha\n");
}

fn sigterm_and_sigint_end_an_idle_server_at_once(reactor: Reactor) {
    let (site, _) = site();
    for name in ["TERM", "INT"] {
        let mut server = Server::of(reactor, site.at("site"));
        let mut idle = server.connect();
        assert_eq!(idle.get("/a.txt").status, 200);
        let start = Instant::now();
        server.signal(name);
        assert_eq!(server.wait_for_end().code(), Some(0), "{name}");
        assert!(start.elapsed() < Duration::from_secs(5), "{name}: {:?}", start.elapsed());
        assert_eq!(idle.until_closed(), b"", "{name}");
        assert!(server.processes().is_empty(), "{name}: left behind {:?}", server.processes());
    }
}

fn sigterm_lets_a_download_finish(reactor: Reactor) {
    let (site, content) = site();
    let mut server = Server::of(reactor, site.at("site"));
    let address = server.address();
    let mut client = server.connect();
    client.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.reply_head().unwrap();
    let mut body = client.read_content(100_000).unwrap();
    // To all of them, as systemd does.
    server.processes().into_iter().for_each(|pid| signal(pid, "TERM"));
    // New clients are turned away at once, so that they can go elsewhere.
    eventually("new connections are refused", || Client::try_connect(address).err());
    server.wait_for_stderr(&["still waiting", "connections: 1", "not answered yet: "]);
    assert!(!server.has_ended());
    body.extend(client.read_content(content.len() - body.len()).unwrap());
    assert!(body == content);
    assert_eq!(client.until_closed(), b"");
    assert_eq!(server.wait_for_end().code(), Some(0));
}

fn sigterm_lets_a_request_finish_and_then_closes(reactor: Reactor) {
    let (site, _) = site();
    let mut server = Server::of(reactor, site.at("site"));
    let address = server.address();
    let mut client = server.connect();
    client.send("GET /a.txt HTTP/1.1\r\nHost: local");
    // The head has been seen once another request has been answered after it by the same worker, or at all events soon.
    assert_eq!(server.get("/a.txt").status, 200);
    server.signal("TERM");
    eventually("new connections are refused", || Client::try_connect(address).err());
    client.send("host\r\n\r\n");
    let reply = client.reply();
    assert_eq!(reply.text(), "alpha\n");
    assert!(reply.says_close());
    assert_eq!(server.wait_for_end().code(), Some(0));
}

fn sigterm_lets_all_that_has_been_asked_for_be_answered(reactor: Reactor) {
    let (site, content) = site();
    let mut server = Server::of(reactor, site.at("site"));
    let address = server.address();
    let mut client = server.connect();
    let requests =
        ["large.bin", "a.txt", "a.txt"].map(|name| format!("GET /{name} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    client.send(requests.concat());
    client.reply_head().unwrap();
    server.signal("TERM");
    eventually("new connections are refused", || Client::try_connect(address).err());
    assert!(client.read_content(content.len()).unwrap() == content);
    for is_last in [false, true] {
        let reply = client.reply();
        assert_eq!((reply.text(), reply.says_close()), ("alpha\n".to_owned(), is_last));
    }
    assert_eq!(client.until_closed(), b"");
    assert_eq!(server.wait_for_end().code(), Some(0));
}

fn a_drain_has_an_end(reactor: Reactor) {
    let (site, _) = site();
    let text = "[limits]\ndrain_timeout = \"500ms\"\n[[site]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n";
    let mut server = Server::configured(reactor, &site, text);
    let mut stuck = server.connect();
    stuck.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stuck.reply_head().unwrap();
    let start = Instant::now();
    server.signal("TERM");
    server.wait_for_end();
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    assert!(server.processes().is_empty());
}

fn a_second_sigint_cuts_what_is_under_way_and_says_so(reactor: Reactor) {
    let (site, _) = site();
    let mut server = Server::of(reactor, site.at("site"));
    let mut client = TcpStream::connect(server.address()).unwrap();
    client.write_all(b"GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    client.read_exact(&mut [0; 1000]).unwrap();
    server.signal("INT");
    server.wait_for_stderr(&["stopping"]);
    server.signal("INT");
    server.wait_for_end();
    let ended = client.read_to_end(&mut Vec::new());
    assert_eq!(ended.expect_err("what is cut mustn't look whole").kind(), ErrorKind::ConnectionReset);
    assert!(server.processes().is_empty());
}

fn a_killed_engine_is_started_again(reactor: Reactor) {
    let (site, _) = site();
    let server = Server::of(reactor, site.at("site"));
    for round in 0..3 {
        assert_eq!(server.get("/a.txt").status, 200);
        let workers: Vec<_> = server.processes().into_iter().filter(|pid| *pid != server.pid()).collect();
        assert!(!workers.is_empty(), "no process beside the supervisor");
        for pid in &workers {
            signal(*pid, "KILL");
        }
        eventually("they are dead", || workers.iter().all(|pid| !server.processes().contains(pid)).then_some(()));
        // The listener stays: nobody is refused, new clients only wait. But a dead process's ring may live for a moment and accept one more
        // client, who is reset with it.
        eventually("the next engine answers", || {
            let mut client =
                Client::try_connect(server.address()).unwrap_or_else(|error| panic!("round {round}: {error}"));
            client.try_send("GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
            assert_eq!(client.try_reply().ok()?.text(), "alpha\n", "round {round}");
            Some(())
        });
    }
}

fn a_killed_supervisor_leaves_nobody_behind(reactor: Reactor) {
    let (site, _) = site();
    let mut server = Server::of(reactor, site.at("site"));
    assert_eq!(server.get("/a.txt").status, 200);
    server.signal("KILL");
    server.wait_for_end();
    // Nobody tries to connect then: another test's server may have got the port.
    eventually("all its processes have ended", || server.processes().is_empty().then_some(()));
}

fn it_starts_within_a_moment(reactor: Reactor) {
    let (site, _) = site();
    let start = Instant::now();
    let server = Server::of(reactor, site.at("site"));
    assert_eq!(server.get("/a.txt").status, 200);
    // The promise is 50 ms and is measured elsewhere; this only catches a start that has gone badly wrong.
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

on_both_reactors!(
    a_port_in_use_is_named,
    sigterm_and_sigint_end_an_idle_server_at_once,
    sigterm_lets_a_download_finish,
    sigterm_lets_a_request_finish_and_then_closes,
    sigterm_lets_all_that_has_been_asked_for_be_answered,
    a_drain_has_an_end,
    a_second_sigint_cuts_what_is_under_way_and_says_so,
    a_killed_engine_is_started_again,
    a_killed_supervisor_leaves_nobody_behind,
    it_starts_within_a_moment,
);
