//! What a configuration that can't be used leaves behind: nothing. And what becomes of one that nobody could use at the time.

use std::fs;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::on_both_reactors;
use crate::reload::engines;
use crate::support::server::{signal, write_configuration};
use crate::support::{Client, Directory, Reactor, Server, eventually};

fn site() -> Directory {
    Directory::with(&[("one/a.txt", b"one\n"), ("two/a.txt", b"two\n")])
}

fn text(workers: usize, listen: &str, root: &str) -> String {
    format!("workers = {workers}\n[[site]]\nlisten = [{listen}]\nroot = \"{root}\"\n")
}

fn kill_engine(server: &Server) {
    let before = engines(server);
    before.iter().for_each(|&pid| signal(pid, "KILL"));
    eventually("it's dead", || before.iter().all(|pid| !server.processes().contains(pid)).then_some(()));
}

/// The next engine answers. A dead process's ring may live for a moment and accept one more client, who is reset with it.
fn answers(server: &Server, content: &str) {
    eventually("the next engine answers", || {
        let mut client = Client::try_connect(server.address()).ok()?;
        client.try_send("GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
        assert_eq!(client.try_reply().ok()?.text(), content);
        Some(())
    });
}

fn the_next_engine_has_the_configuration_in_force(reactor: Reactor) {
    let site = site();
    let server = Server::configured(reactor, &site, &text(2, "\"127.0.0.1:0\"", "one"));
    // It's being edited: nobody has asked for it yet.
    for edited in ["[[site]\n".to_owned(), text(2, "\"127.0.0.1:0\"", "two")] {
        site.write("leat.toml", &edited);
        kill_engine(&server);
        answers(&server, "one\n");
    }
}

fn an_engine_that_has_run_for_a_second_is_followed_at_once_however_often(reactor: Reactor) {
    let site = site();
    let server = Server::configured(reactor, &site, &text(1, "\"127.0.0.1:0\"", "one"));
    let ends = |when: &str| server.stderr().iter().filter(|line| line.contains(when)).count();
    for deaths in 1..=4 {
        let start = Instant::now();
        eventually("a second has passed", || (start.elapsed() > Duration::from_secs(1)).then_some(()));
        kill_engine(&server);
        eventually("it's known", || (ends("has ended") == deaths).then_some(()));
        answers(&server, "one\n");
        assert_eq!(ends("it starts again at once"), deaths, "{:?}", server.stderr());
    }
}

fn an_engine_that_can_serve_nothing_is_followed_by_others(reactor: Reactor) {
    let site = site();
    let server = Server::configured(reactor, &site, &text(2, "\"127.0.0.1:0\"", "one"));
    fs::rename(site.at("one"), site.at("away")).unwrap();
    kill_engine(&server);
    server.wait_for_stderr(&["nothing is served"]);
    fs::rename(site.at("away"), site.at("one")).unwrap();
    answers(&server, "one\n");
}

/// A configuration that the supervisor takes and the engine doesn't: its access log can't be written.
fn refused_by_engine(site: &Directory, workers: usize, listen: &str) -> String {
    let link = site.at("access.log");
    if !link.is_symlink() {
        std::os::unix::fs::symlink(site.at("absent/access.log"), link).unwrap();
    }
    format!("{}[site.access_log]\npath = \"access.log\"\n", text(workers, listen, "one"))
}

fn all_are_answered(server: &Server) {
    for _ in 0..32 {
        assert_eq!(server.get("/a.txt").text(), "one\n");
    }
}

fn sockets_of_a_refused_configuration_are_closed(reactor: Reactor) {
    let site = site();
    let server = Server::configured(reactor, &site, &text(1, "\"127.0.0.1:0\"", "one"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("\"127.0.0.1:0\", \"{}\"", taken.local_addr().unwrap());
    let line = server.reload(reactor, &site, &text(4, &listen, "one"));
    assert!(line.contains("the old one stays"), "{line}");
    all_are_answered(&server);
    let line = server.reload(reactor, &site, &refused_by_engine(&site, 4, "\"127.0.0.1:0\""));
    assert!(line.contains("the old one stays"), "{line}");
    all_are_answered(&server);
}

fn a_refused_address_can_be_had_later(reactor: Reactor) {
    let site = site();
    let server = Server::configured(reactor, &site, &text(2, "\"127.0.0.1:0\"", "one"));
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let listen = format!("\"127.0.0.1:0\", \"{free}\"");
    let line = server.reload(reactor, &site, &refused_by_engine(&site, 2, &listen));
    assert!(line.contains("the old one stays"), "{line}");
    assert!(Client::try_connect(free).is_err(), "nobody serves there");
    let line = server.reload(reactor, &site, &text(2, &listen, "one"));
    assert!(line.contains("the new configuration is in force"), "{line}");
    assert_eq!(Client::connect(free).get("/a.txt").text(), "one\n");
}

fn one_address_of_a_port_becomes_all_and_one_again(reactor: Reactor) {
    let site = site();
    let port = TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
    let (one, all) = (format!("\"127.0.0.1:{port}\""), format!("\"0.0.0.0:{port}\""));
    let server = Server::configured(reactor, &site, &text(2, &one, "one"));
    for listen in [&all, &one] {
        let line = server.reload(reactor, &site, &text(2, listen, "one"));
        assert!(line.contains("the new configuration is in force"), "{line}");
        eventually("it's answered", || {
            let mut client = Client::try_connect(server.address()).ok()?;
            client.try_send("GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
            assert_eq!(client.try_reply().ok()?.text(), "one\n");
            Some(())
        });
    }
}

fn a_configuration_that_comes_while_no_engine_runs_is_put_in_force(reactor: Reactor) {
    let site = site();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let listen = format!("\"127.0.0.1:0\", \"{free}\"");
    let server = Server::configured_with_listeners(reactor, &site, &text(2, &listen, "one"), 2);
    fs::rename(site.at("one"), site.at("away")).unwrap();
    kill_engine(&server);
    // By now there's mostly none.
    server.wait_for_stderr(&["starts again 1s after its last start"]);
    let line = server.reload(reactor, &site, &text(2, "\"127.0.0.1:0\"", "two"));
    assert!(line.contains("the new configuration is in force"), "{line}");
    answers(&server, "two\n");
    assert!(Client::try_connect(free).is_err(), "it's no address any more");
}

fn reloads_do_not_have_an_engine_start_all_the_time(reactor: Reactor) {
    let site = site();
    let server = Server::configured(reactor, &site, &text(1, "\"127.0.0.1:0\"", "one"));
    fs::rename(site.at("one"), site.at("away")).unwrap();
    kill_engine(&server);
    server.wait_for_stderr(&["starts again 400ms after its last start"]);
    let bad = refused_by_engine(&site, 1, "\"127.0.0.1:0\"").replace("\"one\"", "\"two\"");
    write_configuration(reactor, &site, &bad);
    let ends = || server.stderr().iter().filter(|line| line.contains("starts again")).count();
    let before = ends();
    for _ in 0..40 {
        server.signal("HUP");
        std::thread::sleep(Duration::from_millis(50));
    }
    let more = ends() - before;
    assert!((1..=4).contains(&more), "{more} engines in two seconds");
}

fn workers_that_cannot_be_started_leave_all_as_it_was(reactor: Reactor) {
    let site = site();
    let server = Server::configured(reactor, &site, &text(1, "\"127.0.0.1:0\"", "one"));
    all_are_answered(&server);
    let engine = engines(&server)[0];
    let open = fs::read_dir(format!("/proc/{engine}/fd")).unwrap().count();
    let limit = |count: usize| {
        let arguments = [format!("--pid={engine}"), format!("--nofile={count}:")];
        assert!(std::process::Command::new("prlimit").args(arguments).status().unwrap().success());
    };
    // There is room for the new sockets, and not for all that each worker wants.
    for room in [10, 14, 18] {
        limit(open + room);
        let line = server.reload(reactor, &site, &text(8, "\"127.0.0.1:0\"", "two"));
        assert!(line.contains("the old one stays in force: a worker can't be started"), "room for {room}: {line}");
        all_are_answered(&server);
        assert_eq!(engines(&server), [engine]);
    }
    limit(open + 200);
    let line = server.reload(reactor, &site, &text(8, "\"127.0.0.1:0\"", "two"));
    assert!(line.contains("the new configuration is in force"), "{line}");
    answers(&server, "two\n");
    assert_eq!(engines(&server), [engine]);
}

on_both_reactors!(
    the_next_engine_has_the_configuration_in_force,
    an_engine_that_has_run_for_a_second_is_followed_at_once_however_often,
    an_engine_that_can_serve_nothing_is_followed_by_others,
    sockets_of_a_refused_configuration_are_closed,
    a_refused_address_can_be_had_later,
    one_address_of_a_port_becomes_all_and_one_again,
    a_configuration_that_comes_while_no_engine_runs_is_put_in_force,
    reloads_do_not_have_an_engine_start_all_the_time,
    workers_that_cannot_be_started_leave_all_as_it_was,
);
