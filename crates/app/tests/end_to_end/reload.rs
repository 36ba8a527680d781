//! Changes while it serves: a new configuration, another number of workers, a new binary, and not one request dropped.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::on_both_reactors;
use crate::support::server::binary;
use crate::support::{Client, Directory, Reactor, Server, eventually};
use crate::upgrade::upgrade;

/// Clients that ask all the time while something is done to the server, and note whatever goes wrong.
#[derive(Default)]
pub struct Load {
    stop: AtomicBool,
    answered: AtomicUsize,
    wrong: Mutex<Vec<String>>,
}

impl Load {
    /// Runs `work` under load and fails the test if one request wasn't answered.
    pub fn during(address: SocketAddr, work: impl FnOnce(&Load)) {
        let load = Load::default();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| load.connect_for_each(address));
                scope.spawn(|| load.keep_alive(address));
            }
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                load.more_answers(200);
                work(&load);
                load.more_answers(200);
            }));
            load.stop.store(true, Ordering::Relaxed);
            if let Err(panic) = outcome {
                std::panic::resume_unwind(panic);
            }
        });
        let wrong = load.wrong.into_inner().unwrap();
        assert!(
            wrong.is_empty(),
            "{} of {} requests were dropped: {:?}",
            wrong.len(),
            load.answered.into_inner(),
            &wrong[..wrong.len().min(5)]
        );
    }

    /// Waits until so many more requests have been answered.
    pub fn more_answers(&self, count: usize) {
        let wanted = self.answered.load(Ordering::Relaxed) + count;
        eventually("the load is answered", || (self.answered.load(Ordering::Relaxed) >= wanted).then_some(()));
    }

    fn note(&self, what: String) {
        self.wrong.lock().unwrap().push(what);
    }

    fn connect_for_each(&self, address: SocketAddr) {
        while !self.stop.load(Ordering::Relaxed) {
            let reply = Client::try_connect(address).and_then(|mut client| {
                client.try_send("GET /a.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
                client.try_reply()
            });
            match reply {
                Ok(reply) if reply.status == 200 => _ = self.answered.fetch_add(1, Ordering::Relaxed),
                Ok(reply) => self.note(format!("new connection: status {}", reply.status)),
                Err(error) => self.note(format!("new connection: {error}")),
            }
        }
    }

    fn keep_alive(&self, address: SocketAddr) {
        let mut client = None;
        while !self.stop.load(Ordering::Relaxed) {
            let open = client.take().map_or_else(|| Client::try_connect(address), Ok);
            let reply = open.and_then(|mut open| {
                open.try_send("GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
                open.try_reply().map(|reply| (open, reply))
            });
            match reply {
                Ok((open, reply)) if reply.status == 200 => {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                    // A server that wants to be rid of a connection says so in a reply; cutting it between requests is a race.
                    if !reply.says_close() {
                        client = Some(open);
                    }
                }
                Ok((_, reply)) => self.note(format!("kept connection: status {}", reply.status)),
                Err(error) => self.note(format!("kept connection: {error}")),
            }
        }
    }
}

fn site() -> Directory {
    Directory::with(&[("one/a.txt", b"one\n"), ("two/a.txt", b"two\n")])
}

fn text(workers: usize, root: &str) -> String {
    format!("workers = {workers}\n[[site]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"{root}\"\n")
}

fn reload(server: &Server, reactor: Reactor, site: &Directory, text: &str) {
    let line = server.reload(reactor, site, text);
    assert!(line.contains("the new configuration is in force"), "{line}");
}

fn a_reload_changes_what_is_served(reactor: Reactor) {
    let site = site();
    let server = Server::configured(reactor, &site, &text(2, "one"));
    let mut kept = server.connect();
    assert_eq!(kept.get("/a.txt").text(), "one\n");
    reload(&server, reactor, &site, &text(2, "two"));
    assert_eq!(server.get("/a.txt").text(), "two\n");
    assert_eq!(kept.get("/a.txt").text(), "two\n");
}

fn reloads_drop_nothing(reactor: Reactor) {
    let site = site();
    let server = Server::configured(reactor, &site, &text(2, "one"));
    Load::during(server.address(), |load| {
        for round in 0..6 {
            reload(&server, reactor, &site, &text(2, if round % 2 == 0 { "two" } else { "one" }));
            load.more_answers(100);
        }
    });
}

fn the_number_of_workers_changes_and_drops_nothing(reactor: Reactor) {
    let site = site();
    let server = Server::configured(reactor, &site, &text(1, "one"));
    Load::during(server.address(), |load| {
        for workers in [4, 2, 1, 4, 2] {
            reload(&server, reactor, &site, &text(workers, "one"));
            load.more_answers(300);
        }
    });
}

fn workers_that_come_while_others_go_drop_nothing(reactor: Reactor) {
    let site = site();
    let server = Server::configured(reactor, &site, &text(3, "one"));
    Load::during(server.address(), |load| {
        for fewer in [&[1][..], &[2, 1]] {
            for &workers in fewer {
                reload(&server, reactor, &site, &text(workers, "one"));
            }
            // Those that go accept for 2 s, and then end with their sockets.
            std::thread::sleep(Duration::from_millis(1800));
            reload(&server, reactor, &site, &text(2, "one"));
            // By then they have ended, and what closes after them has been closed.
            std::thread::sleep(Duration::from_millis(1000));
            load.more_answers(300);
            reload(&server, reactor, &site, &text(3, "one"));
            load.more_answers(300);
        }
    });
}

fn a_download_outlives_its_worker(reactor: Reactor) {
    let site = site();
    let content = crate::support::directory::noise(30 << 20, 3);
    site.write("one/large.bin", &content);
    let server = Server::configured(reactor, &site, &text(4, "one"));
    let mut clients: Vec<_> = (0..12).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client.reply_head().unwrap();
    }
    reload(&server, reactor, &site, &text(1, "two"));
    for client in &mut clients {
        assert!(client.read_content(content.len()).unwrap() == content);
    }
}

fn what_follows_at_a_worker_that_goes_is_the_new_configurations(reactor: Reactor) {
    let site = site();
    let content = crate::support::directory::noise(30 << 20, 3);
    site.write("one/large.bin", &content);
    let server = Server::configured(reactor, &site, &text(4, "one"));
    let mut clients: Vec<_> = (0..12).map(|_| server.connect()).collect();
    for client in &mut clients {
        // The second is there before the first has been answered, so that it can't be another worker's.
        let requests = ["/large.bin", "/a.txt"].map(|path| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        client.send(requests.concat());
        client.reply_head().unwrap();
    }
    reload(&server, reactor, &site, &text(1, "two"));
    for client in &mut clients {
        assert!(client.read_content(content.len()).unwrap() == content);
        assert_eq!(client.reply().text(), "two\n");
    }
}

/// Neither while they want nothing, nor at a reload: a worker that looked at each of them, or for each among all, would do nothing else.
fn thousands_of_sites_hold_nobody_up(reactor: Reactor) {
    const SITES: usize = 15_000;
    let site = site();
    let sites = |root: &str| {
        let of_one = |number| {
            format!(
                "[[site]]\nname = \"s{number}\"\nhosts = [\"s{number}.test\"]\nlisten = [\"127.0.0.1:0\"]\nroot = \"{root}\"\n"
            )
        };
        let first = text(1, root);
        (0..SITES).map(of_one).fold(first, |text, site| text + &site)
    };
    let server = Server::configured(reactor, &site, &sites("one"));
    let mut client = server.connect();
    // What the start has left to be done is done in the first of them.
    let [_, used] = [(); 2].map(|()| {
        let (began, used_before) = (Instant::now(), server.processor_time());
        while began.elapsed() < Duration::from_secs(1) {
            assert_eq!(client.get("/a.txt").text(), "one\n");
            // Not all the time: what is used is then what is done beside requests.
            std::thread::sleep(Duration::from_millis(5));
        }
        (server.processor_time() - used_before).as_secs_f64() / began.elapsed().as_secs_f64()
    });
    assert!(used < 0.2, "{used} of a processor");
    let is_done = AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !is_done.load(Ordering::Relaxed) {
                let asked = Instant::now();
                assert_eq!(client.get("/a.txt").status, 200);
                longest = longest.max(asked.elapsed());
            }
            longest
        });
        reload(&server, reactor, &site, &sites("two"));
        is_done.store(true, Ordering::Relaxed);
        asking.join().unwrap()
    });
    assert!(longest < Duration::from_millis(1_500), "{longest:?} without an answer");
    assert_eq!(server.get("/a.txt").text(), "two\n");
}

/// Programs are looked at every few milliseconds, and so are handlers.
fn thousands_of_handlers_hold_no_program_up(reactor: Reactor) {
    let site = site();
    let of_one = |number| {
        format!(
            "[[site]]\nname = \"s{number}\"\nhosts = [\"s{number}.test\"]\nlisten = [\"127.0.0.1:0\"]\n\
             [[site.handler]]\npath = \"/*\"\nproxy = {{ to = [\"127.0.0.1:9\"] }}\n"
        )
    };
    let program = "[[site.handler]]\npath = \"/program\"\n\
                   cgi = { command = [\"/bin/sh\", \"-c\", 'echo Content-Type: text/plain; echo; echo hello; sleep 0.02'] }\n";
    let first = text(1, "one") + program;
    let server = Server::configured(reactor, &site, &(0..5_000).map(of_one).fold(first, |text, site| text + &site));
    // What the start has left to be done is done in the first of them.
    let [_, used] = [(); 2].map(|()| {
        let used_before = server.processor_time();
        for _ in 0..10 {
            assert_eq!(server.get("/program").text(), "hello\n");
        }
        server.processor_time() - used_before
    });
    assert!(used < Duration::from_millis(500), "{used:?} for ten programs");
}

fn a_broken_configuration_keeps_the_old(reactor: Reactor) {
    let site = site();
    let server = Server::configured(reactor, &site, &text(2, "one"));
    Load::during(server.address(), |_| {
        for broken in [
            "[[site]\n",
            "[[site]]\nroot = \"absent\"\nlisten = [\"127.0.0.1:0\"]\n",
            "wrokers = 3\n[[site]]\nroot = \"one\"\nlisten = [\"127.0.0.1:0\"]\n",
        ] {
            let line = server.reload(reactor, &site, broken);
            assert!(line.contains("the old one stays"), "{line}");
            assert_eq!(server.get("/a.txt").text(), "one\n");
        }
    });
    reload(&server, reactor, &site, &text(2, "two"));
    assert_eq!(server.get("/a.txt").text(), "two\n");
}

fn an_address_can_come_and_go(reactor: Reactor) {
    let site = site();
    let server = Server::configured(reactor, &site, &text(2, "one"));
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let both = format!("workers = 2\n[[site]]\nlisten = [\"127.0.0.1:0\", \"{free}\"]\nroot = \"one\"\n");
    reload(&server, reactor, &site, &both);
    assert_eq!(Client::connect(free).get("/a.txt").text(), "one\n");
    // Who is connected there is answered once more, and let go of.
    let mut idle = Client::connect(free);
    assert_eq!(idle.get("/a.txt").text(), "one\n");
    // Answered once, so that it's known to have been accepted: what waits for that goes with its address.
    let mut begun = Client::connect(free);
    assert_eq!(begun.get("/a.txt").text(), "one\n");
    begun.send("GET /a.txt HTTP/1.1\r\nHost: local");
    let mut other = server.connect();
    assert_eq!(other.get("/a.txt").text(), "one\n");
    reload(&server, reactor, &site, &text(2, "one"));
    begun.send("host\r\n\r\n");
    let last = begun.reply();
    assert!(last.says_close() && last.text() == "one\n", "{last:?}");
    assert_eq!(begun.until_closed(), b"");
    assert_eq!(idle.until_closed(), b"");
    assert!(!other.get("/a.txt").says_close(), "its address is still there");
    eventually("the address is given up", || Client::try_connect(free).err());
    assert_eq!(server.get("/a.txt").text(), "one\n");
}

/// Two sites at one address, of which the first sends a header of this value, and may send very little if it's held back.
fn an_address_that_leaving_workers_had_can_come_back(reactor: Reactor) {
    let site = site();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let both = |workers: usize| {
        format!("workers = {workers}\n[[site]]\nlisten = [\"127.0.0.1:0\", \"{free}\"]\nroot = \"one\"\n")
    };
    let server = Server::configured_with_listeners(reactor, &site, &both(4), 2);
    // Workers that go accept for two more seconds what was on its way to them: nothing at addresses that go too.
    for _ in 0..2 {
        reload(&server, reactor, &site, &text(1, "one"));
        reload(&server, reactor, &site, &both(4));
        reload(&server, reactor, &site, &both(1));
        reload(&server, reactor, &site, &text(1, "one"));
        reload(&server, reactor, &site, &both(4));
        assert_eq!(Client::connect(free).get("/a.txt").text(), "one\n");
    }
}

fn from_one_address_to_every_one_and_back(reactor: Reactor) {
    let site = site();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let at = |host: &str| format!("workers = 2\n[[site]]\nlisten = [\"{host}:{port}\"]\nroot = \"one\"\n");
    let server = Server::configured(reactor, &site, &at("127.0.0.1"));
    Load::during(([127, 0, 0, 1], port).into(), |load| {
        for round in 0..12 {
            reload(&server, reactor, &site, &at(if round % 2 == 0 { "0.0.0.0" } else { "127.0.0.1" }));
            load.more_answers(100);
        }
    });
}

fn held_back(header: &str, is_held_back: bool, more: &str) -> String {
    let quota = if is_held_back { "[site.quota]\nnetwork_rate = \"1B/s\"\n" } else { "" };
    let first = "hosts = [\"a.test\"]\nlisten = [\"127.0.0.1:0\"]\nroot = \"one\"\n";
    let second = "hosts = [\"b.test\"]\nlisten = [\"127.0.0.1:0\"]\nroot = \"two\"\n";
    format!("workers = 1\n[[site]]\n{first}headers = {{ X-Version = \"{header}\" }}\n{more}{quota}[[site]]\n{second}")
}

fn request(path: &str, host: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

/// A request that the server has read and that its site's quota holds back, and who holds it back.
fn held_back_request(server: &Server, path: &str) -> (Client, Client) {
    let mut first = server.connect();
    first.send(request("/large.bin", "a.test"));
    first.reply_head().unwrap();
    let mut second = server.connect();
    second.send(request(path, "a.test"));
    // The worker has come to that before.
    assert_eq!(server.request(request("/a.txt", "b.test")).text(), "two\n");
    (first, second)
}

fn a_request_from_before_leaves_no_old_header_lines(reactor: Reactor) {
    let site = site();
    site.write("one/large.bin", crate::support::directory::noise(1 << 20, 3));
    let server = Server::configured(reactor, &site, &held_back("old", true, ""));
    let (_first, mut second) = held_back_request(&server, "/a.txt");
    reload(&server, reactor, &site, &held_back("new", false, ""));
    assert_eq!(second.reply().text(), "one\n");
    for _ in 0..2 {
        assert_eq!(second.ask(request("/a.txt", "a.test")).must("x-version"), "new");
    }
}

fn a_request_from_before_has_its_handler(reactor: Reactor) {
    let site = site();
    site.write("one/large.bin", crate::support::directory::noise(1 << 20, 3));
    site.write(
        "say",
        "#!/bin/sh\nhead -c 300000 /dev/zero | tr '\\0' '\\n' >&2\nprintf 'Content-Type: text/plain\\n\\nsaid'",
    );
    fs::set_permissions(site.at("say"), fs::Permissions::from_mode(0o755)).unwrap();
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/responder.c");
    let built = std::process::Command::new("cc").arg("-o").arg(site.at("responder")).arg(source).status();
    assert!(built.expect("a C compiler is there, as rustc needs one to link").success());
    let handlers = |timeout: &str| {
        let cgi = format!(
            "[[site.handler]]\npath = \"/cgi/*\"\n[site.handler.cgi]\ncommand = \"say\"\ntimeout = \"{timeout}\"\n"
        );
        let fastcgi = format!(
            "[[site.handler]]\npath = \"/app/*\"\n[site.handler.fastcgi]\ncommand = \"responder\"\nprocesses = 1\ntimeout = \"{timeout}\"\n"
        );
        format!("{cgi}{fastcgi}")
    };
    let server = Server::configured(reactor, &site, &held_back("old", true, &handlers("9s")));
    let (_first, mut cgi) = held_back_request(&server, "/cgi/a");
    let mut fastcgi = server.connect();
    fastcgi.send(request("/app/a", "a.test"));
    assert_eq!(server.request(request("/a.txt", "b.test")).text(), "two\n");
    reload(&server, reactor, &site, &held_back("old", false, &handlers("8s")));
    assert_eq!(fastcgi.reply().status, 200);
    assert_eq!(cgi.reply().text(), "said");
}

fn a_new_binary_takes_over_and_drops_nothing(reactor: Reactor) {
    let site = site();
    // A copy, so that it can be replaced as a package manager does.
    let copy = site.at("leat");
    fs::copy(binary(), &copy).unwrap();
    let server = start_copy(&site, reactor);
    let before = engines(&server);
    Load::during(server.address(), |load| {
        fs::copy(binary(), site.at("leat.new")).unwrap();
        fs::rename(site.at("leat.new"), &copy).unwrap();
        server.signal("USR2");
        eventually("a new engine runs and the old one has ended", || {
            let now = engines(&server);
            (!now.is_empty() && now.iter().all(|pid| !before.contains(pid))).then_some(())
        });
        load.more_answers(200);
    });
    assert_eq!(server.get("/a.txt").text(), "one\n");
    let executable = fs::read_link(format!("/proc/{}/exe", server.pid())).unwrap();
    assert_eq!(executable, copy);
}

fn what_stands_at_the_binarys_path_takes_over(reactor: Reactor) {
    let site = site();
    let releases = ["first", "second", "third"].map(|name| site.at(name));
    for release in &releases {
        fs::copy(binary(), release).unwrap();
    }
    let named = site.at("leat");
    std::os::unix::fs::symlink(&releases[0], &named).unwrap();
    let server = start_copy(&site, reactor);
    let runs = |release: &Path| {
        upgrade(&server);
        assert_eq!(fs::read_link(format!("/proc/{}/exe", server.pid())).unwrap(), release);
        assert_eq!(server.get("/a.txt").text(), "one\n");
    };
    // The link leads elsewhere; then the binary itself is moved away, and another one is put there.
    fs::remove_file(&named).unwrap();
    std::os::unix::fs::symlink(&releases[1], &named).unwrap();
    runs(&releases[1]);
    fs::remove_file(&named).unwrap();
    fs::rename(&releases[1], site.at("second.old")).unwrap();
    fs::rename(&releases[2], &named).unwrap();
    runs(&named);
}

fn a_download_outlives_its_binary(reactor: Reactor) {
    let site = site();
    let content = crate::support::directory::noise(30 << 20, 4);
    site.write("one/large.bin", &content);
    fs::copy(binary(), site.at("leat")).unwrap();
    let server = start_copy(&site, reactor);
    let mut client = server.connect();
    client.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.reply_head().unwrap();
    let before = engines(&server);
    server.signal("USR2");
    eventually("a new engine runs", || engines(&server).iter().any(|pid| !before.contains(pid)).then_some(()));
    assert!(client.read_content(content.len()).unwrap() == content);
    // An idle connection may stay until the drain time-out: cutting it would be a race with its next request.
    drop(client);
    eventually("the old engine has ended", || engines(&server).iter().all(|pid| !before.contains(pid)).then_some(()));
}

fn a_broken_new_binary_keeps_the_old(reactor: Reactor) {
    let site = site();
    fs::copy(binary(), site.at("leat")).unwrap();
    let server = start_copy(&site, reactor);
    Load::during(server.address(), |load| {
        replace_copy(&site, "#!/bin/sh\nexit 1\n");
        server.signal("USR2");
        server.wait_for_stderr(&["old one goes on"]);
        load.more_answers(100);
        // It starts, accepts everything, and is something else.
        replace_copy(&site, "#!/bin/sh\necho 'other 1.0'\n");
        server.signal("USR2");
        server.wait_for_stderr(&["leat isn't leat: `--version` says \"other 1.0\""]);
        load.more_answers(100);
        fs::remove_file(site.at("leat")).unwrap();
        server.signal("USR2");
        server.wait_for_stderr(&["leat can't be started: no such file"]);
        load.more_answers(100);
    });
}

fn a_new_binary_that_hangs_keeps_the_old(reactor: Reactor) {
    let site = site();
    fs::copy(binary(), site.at("leat")).unwrap();
    let mut server = start_copy(&site, reactor);
    // What it starts holds its standard error, too, and says something without end.
    replace_copy(&site, "#!/bin/sh\nsleep 1000 &\nexec yes\n");
    server.signal("USR2");
    server.wait_for_stderr(&["old one goes on", "took longer than"]);
    assert_eq!(server.get("/a.txt").text(), "one\n");
    let is_left = || server.processes().iter().any(|pid| command_of(*pid).contains("sleep"));
    eventually("nothing is left of it", || (!is_left()).then_some(()));
    server.signal("TERM");
    assert_eq!(server.wait_for_end().code(), Some(0));
}

fn signals_in_a_row_do_no_harm(reactor: Reactor) {
    let site = site();
    let mut server = Server::configured(reactor, &site, &text(2, "one"));
    for _ in 0..20 {
        server.signal("HUP");
    }
    assert_eq!(server.get("/a.txt").text(), "one\n");
    server.signal("TERM");
    assert_eq!(server.wait_for_end().code(), Some(0));
}

/// Every process of the server but the one that watches.
pub fn engines(server: &Server) -> Vec<u32> {
    server.processes().into_iter().filter(|pid| *pid != server.pid()).collect()
}

/// As a package manager does.
fn replace_copy(site: &Directory, script: &str) {
    site.write("leat.new", script);
    fs::set_permissions(site.at("leat.new"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(site.at("leat.new"), site.at("leat")).unwrap();
}

fn command_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

/// `leat serve` from the copy of the binary in `site`.
fn start_copy(site: &Directory, reactor: Reactor) -> Server {
    let root = site.at("one");
    let arguments = ["serve", root.to_str().unwrap(), "--listen", "127.0.0.1:0", "--reactor", reactor.name()];
    Server::start_program(&site.at("leat"), &arguments.map(OsStr::new), 1)
}

on_both_reactors!(
    a_reload_changes_what_is_served,
    reloads_drop_nothing,
    the_number_of_workers_changes_and_drops_nothing,
    workers_that_come_while_others_go_drop_nothing,
    a_download_outlives_its_worker,
    what_follows_at_a_worker_that_goes_is_the_new_configurations,
    thousands_of_sites_hold_nobody_up,
    thousands_of_handlers_hold_no_program_up,
    a_broken_configuration_keeps_the_old,
    an_address_can_come_and_go,
    an_address_that_leaving_workers_had_can_come_back,
    from_one_address_to_every_one_and_back,
    a_request_from_before_leaves_no_old_header_lines,
    a_request_from_before_has_its_handler,
    a_new_binary_takes_over_and_drops_nothing,
    what_stands_at_the_binarys_path_takes_over,
    a_download_outlives_its_binary,
    a_broken_new_binary_keeps_the_old,
    a_new_binary_that_hangs_keeps_the_old,
    signals_in_a_row_do_no_harm,
);
