//! `leat ctl`: what a running server answers over its socket, also after its engine was started again, and what a file alone answers.

use std::ffi::OsStr;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::server::{binary, run, signal, write_configuration};
use crate::support::{Client, Directory, Reactor, Server, eventually};

fn ctl(arguments: &[&str]) -> (Option<i32>, String, String) {
    run(&["ctl"].iter().chain(arguments).map(OsStr::new).collect::<Vec<_>>())
}

#[test]
fn who_asks_when_no_descriptor_is_left_keeps_no_processor_busy() {
    let directory = Directory::with(&[("site/a.txt", b"alpha\n")]);
    let text = "workers = 1\n[admin]\nlisten = \"\"\nsocket = \"ctl.sock\"\n[[site]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n";
    let file = write_configuration(Reactor::Epoll, &directory, text);
    let command = format!("ulimit -n 28; exec {} serve --config {}", binary().display(), file.display());
    let server = Server::start_program(Path::new("sh"), &["-c", &command].map(OsStr::new), 1);
    let _clients: Vec<_> = (0..20).map(|_| Client::connect(server.address())).collect();
    let mut asking = Vec::new();
    eventually("nobody can be heard any more", || {
        let mut stream = UnixStream::connect(directory.at("ctl.sock")).ok()?;
        stream.set_read_timeout(Some(Duration::from_millis(300))).ok()?;
        stream.write_all(b"{}\n").ok()?;
        let is_unheard = stream.read(&mut [0; 100]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        asking.push(stream);
        is_unheard.then_some(())
    });
    let before = server.processor_time();
    std::thread::sleep(Duration::from_secs(1));
    let used = server.processor_time() - before;
    assert!(used < Duration::from_millis(300), "{used:?} of one second");
}

#[test]
fn a_running_server_answers_at_its_socket() {
    let directory = Directory::new();
    directory.write("site/a.txt", "alpha\n");
    let text = "workers = 1\n[admin]\nlisten = \"\"\nsocket = \"ctl.sock\"\n[[site]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n";
    let mut server = Server::configured(Reactor::Epoll, &directory, text);
    let socket = directory.at("ctl.sock");
    let ask = |arguments: &[&str]| {
        let socket = socket.to_str().expect("a path in UTF-8");
        ctl(&[arguments, &["--socket", socket]].concat())
    };
    assert_eq!(ask(&["status"]), (Some(0), "1 site on 1 address; workers: 1\n".into(), String::new()));
    let mode = socket.metadata().expect("it's there").permissions().mode();
    assert_eq!(mode & 0o077, 0, "nobody else can use it");
    let (code, counters, _) = ask(&["counters"]);
    assert!(code == Some(0) && counters.contains("# TYPE leat_"), "{counters}");
    let (code, json, _) = ask(&["status", "--json"]);
    assert!(code == Some(0) && json.contains("\"role\":\"server\""), "{json}");
    let (code, _, errors) = ask(&["nodes"]);
    assert_eq!(
        (code, errors.as_str()),
        (Some(1), "leat ctl: this leat is neither a dispatcher nor a connection server\n")
    );

    let engine = server.processes().into_iter().find(|pid| *pid != server.pid()).expect("an engine");
    signal(engine, "KILL");
    eventually("the next engine answers", || (ask(&["status"]).0 == Some(0)).then_some(()));
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    assert!(!socket.exists(), "nobody is there to be asked");
}

#[test]
fn a_second_leat_leaves_anothers_socket_alone() {
    let directory = Directory::with(&[("site/a.txt", b"alpha\n")]);
    let text = "workers = 1\n[admin]\nlisten = \"\"\nsocket = \"ctl.sock\"\n[[site]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n";
    let (socket, file) = (directory.at("ctl.sock"), write_configuration(Reactor::Epoll, &directory, text));
    let start = || Server::start(&[OsStr::new("serve"), OsStr::new("--config"), file.as_os_str()], 1);
    let ask = || ctl(&["status", "--socket", socket.to_str().expect("a path in UTF-8")]);
    // What a leat has left that was killed.
    drop(UnixListener::bind(&socket).unwrap());
    let mut first = start();
    assert_eq!(ask().0, Some(0));
    let (code, _, errors) = run(&[OsStr::new("serve"), OsStr::new("--config"), file.as_os_str()]);
    let place = format!("{}:5:10: error: another leat answers at `socket`, {}", file.display(), socket.display());
    assert!(code == Some(1) && errors.contains(&place) && errors.contains("write another path"), "{code:?} {errors}");
    assert_eq!(ask().0, Some(0), "the first one still answers");
    // An upgrade takes it over, and so does who follows on one that is about to end.
    let engines = first.processes();
    first.signal("USR2");
    eventually("another engine serves", || {
        (!first.processes().iter().any(|pid| engines.contains(pid) && *pid != first.pid())).then_some(())
    });
    eventually("it answers", || (ask().0 == Some(0)).then_some(()));
    let mut client = Client::connect(first.address());
    client.send("GET /a.txt HTTP/1.1\r\nHost: x\r\n");
    first.signal("TERM");
    eventually("it drains", || ask().1.contains("draining").then_some(()));
    let second = start();
    eventually("the second one answers", || (!ask().1.contains("draining")).then_some(()));
    assert!(second.get("/a.txt").text() == "alpha\n" && !first.has_ended());
}

#[test]
fn a_drain_gives_up_in_time_where_nobody_answers() {
    // As a process that stands still: the kernel takes the connection, and that's all.
    let directory = Directory::new();
    let socket = directory.at("ctl.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    let began = Instant::now();
    let arguments = [OsStr::new("drain"), OsStr::new("n1"), OsStr::new("--timeout"), OsStr::new("1")];
    let (code, _, errors) = run(&[&arguments[..], &[OsStr::new("--socket"), socket.as_os_str()]].concat());
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert!(code == Some(1) && errors.contains("there was no answer"), "{errors}");
    assert!(errors.contains("n1 may still have connections"), "{errors}");
}

#[test]
fn a_file_says_where_a_request_would_go() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cluster.toml");
    let (code, text, errors) = ctl(&["explain", "GET /app/x", "--config", example]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(text.starts_with("dynamic (by its path) request under the policy mix_lard\n  goes to n2: "), "{text}");
    // No request line can have that.
    let (code, _, errors) = ctl(&["explain", "GET http://a.example/a b", "--config", example]);
    let told = "leat ctl: write a request as in 'GET /path' or 'GET http://host/path'\n";
    assert_eq!((code, errors.as_str()), (Some(1), told));
    // Nobody is asked, so nothing is changed.
    for change in [&["drain", "n1"][..], &["resume", "n1"], &["weight", "n1", "50"], &["policy", "round_robin"]] {
        let (code, text, errors) = ctl(&[change, &["--config", example]].concat());
        let told = "leat ctl: only a running leat can be changed: ask it by --socket, without --config\n";
        assert_eq!((code, text.as_str(), errors.as_str()), (Some(1), "", told));
    }
    let (code, _, errors) = ctl(&["status", "--socket", "/nowhere/at/all"]);
    assert!(code == Some(1) && errors.contains("is leat running there, with `socket` in [admin]?"), "{errors}");
}

#[test]
fn what_is_wrong_with_a_command_is_told_in_one_line() {
    for (command, reason) in [
        (&["weight", "n1", "abc"][..], "`weight` is missing, or no"),
        (&["policy", "lard"], "there is no policy `lard`"),
    ] {
        let (code, text, errors) = ctl(command);
        assert_eq!((code, text.as_str()), (Some(2), ""), "{errors}");
        assert!(errors.starts_with(&format!("leat ctl: {reason}")) && errors.lines().count() == 1, "{errors}");
    }
}
