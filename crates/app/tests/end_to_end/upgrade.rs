//! A new engine takes over live connections: idle ones, half a request, replies and uploads under way. None is cut, and the old one ends.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use crate::on_both_reactors;
use crate::reload::{Load, engines};
use crate::support::directory::noise;
use crate::support::server::{signal, write_configuration};
use crate::support::{Client, Directory, Reactor, Server, eventually};

const LARGE_BYTES: usize = 10 << 20;

/// A site with a small file and one that is larger than all socket buffers.
fn site() -> (Directory, Vec<u8>) {
    let content = noise(LARGE_BYTES, 5);
    (Directory::with(&[("one/a.txt", b"one\n"), ("one/large.bin", &content), ("two/b.txt", b"two\n")]), content)
}

fn start(reactor: Reactor, site: &Directory, workers: &str) -> Server {
    let root = site.at("one");
    let arguments = ["serve", root.to_str().unwrap(), "--listen", "127.0.0.1:0", "--workers", workers];
    Server::start(
        &[&arguments[..], &["--reactor", reactor.name()]].concat().into_iter().map(OsStr::new).collect::<Vec<_>>(),
        1,
    )
}

/// Has a new engine take over, and waits until the old one has ended: it does when all its connections have gone.
pub(crate) fn upgrade(server: &Server) {
    let before = engines(server);
    server.signal("USR2");
    ended(server, &before);
}

pub(crate) fn ended(server: &Server, before: &[u32]) {
    eventually("the old engine has ended, and a new one runs", || {
        let now = engines(server);
        (!now.is_empty() && now.iter().all(|pid| !before.contains(pid))).then_some(())
    });
}

fn is_kept(client: &mut Client) {
    let reply = client.get("/a.txt");
    assert!(reply.text() == "one\n" && !reply.says_close(), "{reply:?}");
}

/// Whichever listener they come to.
fn every_new_client_is_answered(server: &Server) {
    let mut clients: Vec<Client> = (0..64).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(is_kept);
}

/// A client that has the head of the large file's reply and no more.
fn download(server: &Server) -> Client {
    let mut client = server.connect();
    client.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.reply_head().unwrap().status, 200);
    client
}

fn idle_connections_survive_and_the_old_engine_ends(reactor: Reactor) {
    let (site, _) = site();
    let server = start(reactor, &site, "2");
    let mut clients: Vec<Client> = (0..300).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(is_kept);
    upgrade(&server);
    clients.iter_mut().for_each(is_kept);
    server.wait_for_stderr(&["300 connections have gone to the new engine"]);
}

fn half_a_request_crosses_an_upgrade(reactor: Reactor) {
    let (site, _) = site();
    let server = start(reactor, &site, "2");
    let (mut head, mut upload) = (server.connect(), server.connect());
    is_kept(&mut head);
    head.send("GET /a.txt HTTP/1.1\r\nHos");
    // Files take no uploads: that is said at once, and the rest of the body is read all the same.
    let body = noise(300_000, 1);
    upload.send(format!("PUT /new HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len()));
    upload.send(&body[..100_000]);
    assert_eq!(upload.reply().status, 405);
    upgrade(&server);
    upload.send(&body[100_000..200_000]);
    head.send("t: localhost\r\n\r\n");
    assert_eq!(head.reply().text(), "one\n");
    upgrade(&server);
    upload.send(&body[200_000..]);
    is_kept(&mut upload);
}

fn a_slow_download_crosses_upgrades(reactor: Reactor) {
    let (site, content) = site();
    let server = start(reactor, &site, "2");
    let mut clients: Vec<Client> = (0..8).map(|_| download(&server)).collect();
    let mut parts = server.connect();
    parts.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-4999999,6000000-9999999\r\n\r\n");
    assert_eq!(parts.reply_head().unwrap().status, 206);
    let mut had: Vec<Vec<u8>> = vec![Vec::new(); clients.len()];
    for round in 0..3 {
        upgrade(&server);
        if round == 0 {
            // Whoever has begun with the old content gets all of it.
            site.write("one/large.new", noise(LARGE_BYTES, 6));
            fs::rename(site.at("one/large.new"), site.at("one/large.bin")).unwrap();
        }
        for (client, had) in clients.iter_mut().zip(&mut had) {
            had.extend(client.read_content(1_000_000).unwrap());
        }
    }
    for (client, had) in clients.iter_mut().zip(&mut had) {
        had.extend(client.read_content(content.len() - had.len()).unwrap());
        assert!(*had == content, "{} bytes, not all of them the file's", had.len());
        is_kept(client);
    }
    let body = parts.read_content(9_000_000).unwrap();
    let second = body.windows(4).rposition(|window| window == b"\r\n\r\n").unwrap() + 4;
    assert!(body[second..] == content[6_000_000..6_000_000 + body.len() - second]);
    assert!(server.get("/large.bin").body == noise(LARGE_BYTES, 6));
}

fn a_file_that_changes_on_the_way_cuts_its_reply(reactor: Reactor) {
    let (site, content) = site();
    let server = start(reactor, &site, "1");
    let mut client = download(&server);
    upgrade(&server);
    site.write("one/large.bin", noise(LARGE_BYTES, 7));
    let got = client.read_content(content.len());
    assert!(got.is_err() || got.unwrap().len() < content.len(), "a torn reply was completed");
}

fn pipelined_requests_cross_an_upgrade(reactor: Reactor) {
    let (site, content) = site();
    let server = start(reactor, &site, "2");
    let mut client = server.connect();
    let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.send([ask("/large.bin"), ask("/a.txt").repeat(500), ask("/large.bin")].concat());
    client.reply_head().unwrap();
    upgrade(&server);
    assert!(client.read_content(content.len()).unwrap() == content);
    for _ in 0..500 {
        assert_eq!(client.reply().text(), "one\n");
    }
    assert!(client.reply().body == content);
}

/// What a client has sent ahead comes in all at once, far more than would be asked for: it travels too.
fn much_that_was_sent_ahead_crosses_an_upgrade(reactor: Reactor) {
    let (site, content) = site();
    let server = start(reactor, &site, "1");
    let mut client = download(&server);
    let body = noise(900_000, 2);
    let put = format!("PUT /new HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    let all = [put.as_bytes(), &body, b"GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n"].concat();
    let mut sending = client.stream().try_clone().unwrap();
    // The server may leave some of it with the kernel until the reply under way has ended.
    let sender = std::thread::spawn(move || sending.write_all(&all));
    upgrade(&server);
    assert!(client.read_content(content.len()).unwrap() == content);
    sender.join().unwrap().unwrap();
    let refused = client.reply();
    assert!(refused.status == 405 && !refused.says_close(), "{refused:?}");
    assert_eq!(client.reply().text(), "one\n");
}

fn the_end_of_a_connection_crosses_an_upgrade(reactor: Reactor) {
    let (site, content) = site();
    let server = start(reactor, &site, "1");
    let mut closing = server.connect();
    closing.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    closing.reply_head().unwrap();
    let mut ended = download(&server);
    ended.finish_sending();
    // Refused, and read on for a while so that the refusal arrives.
    let mut lingering = server.connect();
    lingering.send("GET /a b c HTTP/1.1\r\n\r\n");
    assert_eq!(lingering.reply().status, 400);
    upgrade(&server);
    for client in [&mut closing, &mut ended] {
        assert!(client.read_content(content.len()).unwrap() == content);
        assert!(client.until_closed().is_empty());
    }
    lingering.finish_sending();
    assert!(lingering.until_closed().is_empty());
}

fn a_handlers_reply_ends_in_the_old_engine(reactor: Reactor) {
    let (site, _) = site();
    let wait = "#!/bin/sh\nwhile ! [ -e ../go ]; do sleep 0.01; done\nprintf 'Content-Type: text/plain\\n\\nsaid'\n";
    let program = site.write("cgi/wait", wait);
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    let text = "workers = 2\n[[site]]\nroot = \"one\"\nlisten = \"127.0.0.1:0\"\n\
                [[site.handler]]\npath = \"/cgi/*\"\n[site.handler.cgi]\ncommand = \"cgi\"\n";
    let server = Server::configured(reactor, &site, text);
    let mut asking = server.connect();
    asking.send("GET /cgi/wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut idle = server.connect();
    is_kept(&mut idle);
    let before = engines(&server);
    server.signal("USR2");
    server.wait_for_stdout("second start", |lines| (lines.len() >= 2).then_some(()));
    is_kept(&mut idle);
    site.write("go", "");
    assert_eq!(asking.reply().text(), "said");
    ended(&server, &before);
    is_kept(&mut asking);
}

fn a_configuration_that_the_new_engine_refuses_changes_nothing(reactor: Reactor) {
    let (site, content) = site();
    let text = |log: &str| {
        format!("[[site]]\nroot = \"one\"\nlisten = \"127.0.0.1:0\"\n[site.access_log]\npath = \"{log}\"\n")
    };
    let server = Server::configured(reactor, &site, &text("access.log"));
    let (mut idle, mut downloading) = (server.connect(), download(&server));
    is_kept(&mut idle);
    let write = |text: &str| {
        site.write("leat.toml", format!("reactor = \"{}\"\n{text}\n[admin]\nlisten = \"\"\n", reactor.name()));
    };
    write("nonsense = 1");
    server.signal("USR2");
    server.wait_for_stderr(&["doesn't accept the configuration"]);
    is_kept(&mut idle);
    // Only the engine finds that this log can't be opened.
    std::os::unix::fs::symlink("/nonexistent/log", site.at("no.log")).unwrap();
    write(&text("no.log"));
    let before = engines(&server);
    server.signal("USR2");
    server.wait_for_stderr(&["the new engine isn't used"]);
    is_kept(&mut idle);
    is_kept(&mut server.connect());
    eventually("only the old engine is left", || (engines(&server) == before).then_some(()));
    let line = server.reload(reactor, &site, &text("access.log"));
    assert!(line.contains("the new configuration is in force"), "{line}");
    upgrade(&server);
    assert!(downloading.read_content(content.len()).unwrap() == content);
    is_kept(&mut idle);
}

fn another_reactor_and_other_workers_take_over(reactor: Reactor) {
    let (site, content) = site();
    let other = if reactor == Reactor::Epoll { Reactor::IoUring } else { Reactor::Epoll };
    let text = |workers: usize| format!("workers = {workers}\n[[site]]\nroot = \"one\"\nlisten = \"127.0.0.1:0\"\n");
    let server = Server::configured(reactor, &site, &text(3));
    let mut idle: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    idle.iter_mut().for_each(is_kept);
    let mut downloads: Vec<Client> = (0..6).map(|_| download(&server)).collect();
    for (reactor, workers) in [(other, 1), (reactor, 4)] {
        let before = engines(&server);
        let line = server.reload(reactor, &site, &text(workers));
        assert!(line.contains("the new configuration is in force"), "{line}");
        ended(&server, &before);
        idle.iter_mut().for_each(is_kept);
        every_new_client_is_answered(&server);
    }
    for client in &mut downloads {
        assert!(client.read_content(content.len()).unwrap() == content);
        is_kept(client);
    }
}

/// The engine before had more workers, each with a listener: nobody waits at one that is no worker's, nor after the engine has crashed.
fn fewer_workers_take_over(reactor: Reactor) {
    let (site, _) = site();
    let text = |workers: usize| format!("workers = {workers}\n[[site]]\nroot = \"one\"\nlisten = \"127.0.0.1:0\"\n");
    let server = Server::configured(reactor, &site, &text(4));
    write_configuration(reactor, &site, &text(1));
    upgrade(&server);
    every_new_client_is_answered(&server);
    server.reload(reactor, &site, &text(4));
    write_configuration(reactor, &site, &text(2));
    let before = engines(&server);
    signal(before[0], "KILL");
    ended(&server, &before);
    every_new_client_is_answered(&server);
}

fn a_site_that_is_gone_ends_its_replies_in_the_old_engine(reactor: Reactor) {
    let (site, content) = site();
    let other = if reactor == Reactor::Epoll { Reactor::IoUring } else { Reactor::Epoll };
    let text =
        |name: &str, root: &str| format!("[[site]]\nname = \"{name}\"\nroot = \"{root}\"\nlisten = \"127.0.0.1:0\"\n");
    let server = Server::configured(reactor, &site, &text("first", "one"));
    let mut idle = server.connect();
    is_kept(&mut idle);
    let mut downloading = download(&server);
    let before = engines(&server);
    server.reload(other, &site, &text("second", "two"));
    eventually("the new engine answers", || (idle.get("/b.txt").text() == "two\n").then_some(()));
    assert!(downloading.read_content(content.len()).unwrap() == content);
    ended(&server, &before);
    assert_eq!(downloading.get("/b.txt").text(), "two\n");
}

fn an_address_that_is_gone_closes_idle_connections(reactor: Reactor) {
    let (site, _) = site();
    let other = if reactor == Reactor::Epoll { Reactor::IoUring } else { Reactor::Epoll };
    let text = |listen: &str| format!("[[site]]\nroot = \"one\"\nlisten = [{listen}]\n");
    let server = Server::configured_with_listeners(reactor, &site, &text("\"127.0.0.1:0\", \"127.0.0.2:0\""), 2);
    let mut gone = Client::connect(server.addresses()[1]);
    is_kept(&mut gone);
    let before = engines(&server);
    server.reload(other, &site, &text("\"127.0.0.1:0\""));
    assert!(gone.until_closed().is_empty());
    ended(&server, &before);
}

fn ten_upgrades_in_a_row_under_load(reactor: Reactor) {
    let (site, content) = site();
    let server = start(reactor, &site, "2");
    let mut idle: Vec<Client> = (0..50).map(|_| server.connect()).collect();
    idle.iter_mut().for_each(is_kept);
    let mut downloading = download(&server);
    let mut upload = server.connect();
    upload.send("PUT /new HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n");
    assert_eq!(upload.reply().status, 405);
    Load::during(server.address(), |load| {
        for round in 0..10 {
            let before = engines(&server);
            server.signal("USR2");
            if round % 2 == 0 {
                ended(&server, &before);
            } else {
                // The next one follows while this one's connections are on their way.
                eventually("a new engine runs", || {
                    engines(&server).iter().any(|pid| !before.contains(pid)).then_some(())
                });
            }
            upload.send("x");
            load.more_answers(50);
        }
    });
    idle.iter_mut().for_each(is_kept);
    is_kept(&mut upload);
    assert!(downloading.read_content(content.len()).unwrap() == content);
    is_kept(&mut downloading);
}

on_both_reactors!(
    idle_connections_survive_and_the_old_engine_ends,
    half_a_request_crosses_an_upgrade,
    a_slow_download_crosses_upgrades,
    a_file_that_changes_on_the_way_cuts_its_reply,
    pipelined_requests_cross_an_upgrade,
    much_that_was_sent_ahead_crosses_an_upgrade,
    the_end_of_a_connection_crosses_an_upgrade,
    a_handlers_reply_ends_in_the_old_engine,
    a_configuration_that_the_new_engine_refuses_changes_nothing,
    another_reactor_and_other_workers_take_over,
    fewer_workers_take_over,
    a_site_that_is_gone_ends_its_replies_in_the_old_engine,
    an_address_that_is_gone_closes_idle_connections,
    ten_upgrades_in_a_row_under_load,
);
