//! Who gets how much of a worker when all want more than there is, who is refused then, and what nobody may exceed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::on_both_reactors;
use crate::support::{Client, Directory, Reactor, Server, eventually};

/// Requests that are counted once everybody asks.
const COUNTED: usize = 400;

/// Sites `a` and `b` of one worker, or of as many as `schedule` begins with on a line of its own, with these lines each, and an admin address.
fn server(reactor: Reactor, directory: &Directory, schedule: &str, a: &str, b: &str) -> Server {
    directory.write("site/index.html", "a file");
    directory.write("site/large", vec![7; 3_000_000]);
    directory.write("site/middle", vec![7; 200_000]);
    directory.write("site/quarter", vec![7; 50_000]);
    let site = |name: &str, lines: &str| {
        format!(
            "[[site]]\nname = \"{name}\"\nhosts = [\"{name}.test\"]\nroot = \"site\"\nlisten = \"127.0.0.1:0\"\n{lines}\n\
             [[site.handler]]\npath = \"/burn\"\nburn = {{ us = 1000, us_max = 100000, forever = true }}\n"
        )
    };
    let (workers, schedule) = match schedule.split_once('\n') {
        Some((workers, schedule)) if workers.starts_with("workers") => (workers, schedule),
        _ => ("workers = 1", schedule),
    };
    let text = format!("{workers}\n[admin]\nlisten = \"127.0.0.1:0\"\n{schedule}\n{}{}", site("a", a), site("b", b));
    Server::configured(reactor, directory, &text)
}

/// Clients that ask again and again, and what they were answered.
struct Crowd {
    served: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    fn new(server: &Server, clients: usize, site: &str, target: &str) -> Crowd {
        let (served, refused, stop): (Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<AtomicBool>) = Default::default();
        let request = format!("GET {target} HTTP/1.1\r\nHost: {site}.test\r\n\r\n");
        let threads = (0..clients)
            .map(|_| {
                let mut client = server.connect();
                let (served, refused, stop, request) = (served.clone(), refused.clone(), stop.clone(), request.clone());
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        match client.ask(&request).status {
                            200 => served.fetch_add(1, Ordering::Relaxed),
                            503 => refused.fetch_add(1, Ordering::Relaxed),
                            other => panic!("status {other}"),
                        };
                    }
                })
            })
            .collect();
        Crowd { served, refused, stop, threads }
    }

    fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }

    fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// A metric of the admin page, added up over what `words` don't tell apart.
fn metric(server: &Server, name: &str, words: &[&str]) -> f64 {
    let page = Client::connect(server.admin()).get("/metrics").text();
    let lines = page.lines().filter(|line| line.starts_with(name) && words.iter().all(|word| line.contains(word)));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// How many times as much `a` gets as `b`, in requests and in processor time.
fn ratios(server: &Server, a: &Crowd, b: &Crowd) -> (f64, f64) {
    let used = |site: &str| metric(server, "leat_processor_seconds_total", &[&format!("site=\"{site}\"")]);
    eventually("everybody is served", || (a.served() > 10 && b.served() > 10).then_some(()));
    let (a_before, b_before) = (a.served(), b.served());
    let (a_used, b_used) = (used("a"), used("b"));
    eventually("enough is counted", || (a.served() + b.served() > a_before + b_before + COUNTED).then_some(()));
    let requests = (a.served() - a_before) as f64 / (b.served() - b_before).max(1) as f64;
    (requests, (used("a") - a_used) / (used("b") - b_used))
}

fn is_about(found: f64, wanted: f64) -> bool {
    (found / wanted - 1.0).abs() < 0.2
}

fn weights_divide_a_worker(reactor: Reactor) {
    let directory = Directory::new();
    let server = server(reactor, &directory, "", "weight = 300", "weight = 100");
    let (a, b) = (Crowd::new(&server, 6, "a", "/burn"), Crowd::new(&server, 6, "b", "/burn"));
    let (requests, used) = ratios(&server, &a, &b);
    assert!(is_about(requests, 3.0) && is_about(used, 3.0), "{requests} in requests, {used} in processor time");
    a.end();
    b.end();
}

fn shares_hold_over_two_workers(reactor: Reactor) {
    let directory = Directory::new();
    let server = server(reactor, &directory, "workers = 2\n", "weight = 300", "weight = 100");
    // By chance more of one site's connections may come to one worker than to the other.
    let (a, b) = (Crowd::new(&server, 8, "a", "/burn"), Crowd::new(&server, 8, "b", "/burn"));
    let found = eventually("the shares are right", || {
        let (requests, used) = ratios(&server, &a, &b);
        (is_about(requests, 3.0) && is_about(used, 3.0)).then_some((requests, used))
    });
    assert!(found.0 > 2.0);
    a.end();
    b.end();
}

fn few_connections_move_to_where_their_share_is(reactor: Reactor) {
    let directory = Directory::new();
    let server = server(reactor, &directory, "workers = 2\n", "weight = 100", "weight = 100");
    let (a, b) = (Crowd::new(&server, 2, "a", "/burn"), Crowd::new(&server, 6, "b", "/burn"));
    eventually("the shares are right", || {
        let (requests, _) = ratios(&server, &a, &b);
        is_about(requests, 1.0).then_some(())
    });
    a.end();
    b.end();
}

fn a_reload_changes_shares_and_drops_nothing(reactor: Reactor) {
    let directory = Directory::new();
    let server = server(reactor, &directory, "", "weight = 100", "weight = 100");
    let (a, b) = (Crowd::new(&server, 6, "a", "/burn"), Crowd::new(&server, 6, "b", "/burn"));
    let (before, _) = ratios(&server, &a, &b);
    assert!(is_about(before, 1.0), "{before}");
    let text = std::fs::read_to_string(directory.at("leat.toml")).unwrap();
    let (_, text) = text.split_once('\n').unwrap();
    let owners = "[[owner]]\nname = \"x\"\nweight = 100\n[[owner]]\nname = \"y\"\nweight = 400\n";
    let text = text.replacen("weight = 100", "owner = \"x\"", 1).replacen("weight = 100", "owner = \"y\"", 1);
    let said = server.reload(reactor, &directory, &text.replacen("[[site]]", &format!("{owners}[[site]]"), 1));
    assert!(!said.contains("refused"), "{said}");
    let (after, used) = ratios(&server, &a, &b);
    assert!(is_about(after, 0.25) && is_about(used, 0.25), "{after} in requests, {used} in processor time");
    a.end();
    b.end();
}

fn an_overloaded_site_refuses_and_the_others_do_not(reactor: Reactor) {
    let directory = Directory::new();
    let server = server(reactor, &directory, "", "", "");
    // A hundred that each want 2 ms: 200 ms would have to be waited, and 150 are more than a crowd is let wait.
    let crowd = Crowd::new(&server, 100, "a", "/burn?us=2000");
    eventually("late ones are refused", || (crowd.refused() > 20).then_some(()));
    let mut other = server.connect();
    for _ in 0..20 {
        assert_eq!(other.ask("GET /burn HTTP/1.1\r\nHost: b.test\r\n\r\n").status, 200);
        assert_eq!(Client::connect(server.admin()).get("/health").status, 200);
    }
    let served = crowd.served();
    eventually("others are served", || (crowd.served() > served + 20).then_some(()));
    crowd.end();
    assert_eq!(metric(&server, "leat_refused_total", &["site=\"b\""]), 0.0);
    assert!(metric(&server, "leat_refused_total", &["site=\"a\""]) >= 20.0);
    assert!(metric(&server, "leat_queue_delay_seconds_count", &["site=\"a\""]) >= 40.0);
}

fn a_refusal_says_when_to_come_back_and_keeps_the_connection(reactor: Reactor) {
    let directory = Directory::new();
    let server = server(reactor, &directory, "", "max_in_flight = 1", "");
    let mut first = server.connect();
    first.send("GET /burn?us=forever HTTP/1.1\r\nHost: a.test\r\n\r\n");
    eventually("it's being served", || (metric(&server, "leat_requests_started", &["\"a\""]) == 1.0).then_some(()));
    let mut second = server.connect();
    let refused = second.ask("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!((refused.status, refused.must("retry-after"), refused.says_close()), (503, "2", false));
    assert_eq!(second.ask("GET / HTTP/1.1\r\nHost: b.test\r\n\r\n").text(), "a file");
    drop(first);
    eventually("there is room again", || {
        (second.ask("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").status == 200).then_some(())
    });
}

/// Most of them when they have been held, as they couldn't be afterwards.
fn clients_that_connect_for_each_request_hear_of_refusals(reactor: Reactor) {
    const CLIENTS: u32 = 200;
    let directory = Directory::new();
    let server = server(reactor, &directory, "", "max_in_flight = 1\nmax_queue_delay = \"300ms\"", "");
    let mut first = server.connect();
    first.send("GET /burn?us=forever HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let of_a = |name: &str| metric(&server, name, &["site=\"a\""]);
    eventually("it's being served", || (of_a("leat_requests_started") == 1.0).then_some(()));
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
    }
    // One that goes away meanwhile harms nobody.
    drop(clients.pop());
    for client in &mut clients {
        let refused = client.reply();
        assert_eq!((refused.status, refused.must("retry-after"), refused.says_close()), (503, "2", true));
        assert_eq!(client.until_closed(), b"");
    }
    eventually("each counts once", || (of_a("leat_refused_total") == f64::from(CLIENTS)).then_some(()));
    drop(first);
    eventually("there is room again", || {
        let mut next = server.connect();
        (next.ask("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").status == 200).then_some(())
    });
}

fn as_many_are_in_flight_as_may_be_on_all_workers_together(reactor: Reactor) {
    let directory = Directory::new();
    let server = server(reactor, &directory, "workers = 4\n", "max_in_flight = 5", "");
    let mut clients: Vec<Client> = (0..16).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("GET /burn?us=forever HTTP/1.1\r\nHost: a.test\r\n\r\n");
    }
    let of_a = |name: &str| metric(&server, name, &["site=\"a\""]);
    eventually("each is served or refused", || {
        let refused = of_a("leat_refused_total");
        (refused + of_a("leat_requests_started") + of_a("leat_requests_waiting") >= 16.0).then_some(())
    });
    assert_eq!(of_a("leat_refused_total"), 11.0);
    drop(clients);
    let mut next = server.connect();
    eventually("there is room again", || {
        (next.ask("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").status == 200).then_some(())
    });
}

fn no_site_waits_longer_than_it_may(reactor: Reactor) {
    let directory = Directory::new();
    let server = server(reactor, &directory, "", "max_queue_delay = \"20ms\"", "max_queue_delay = 0");
    // Slices of another request of the same site come first come, first served: one that never ends keeps nobody waiting.
    let mut endless = server.connect();
    endless.send("GET /burn?us=forever HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let mut client = server.connect();
    for _ in 0..20 {
        assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").status, 200);
    }
}

/// Its turn never comes, as others always go before it: it's told in time all the same.
fn a_request_whose_turn_does_not_come_is_refused_in_time(reactor: Reactor) {
    let directory = Directory::new();
    let schedule = "[schedule]\nroot = \"strict_priority\"";
    let server =
        server(reactor, &directory, schedule, "priority = 1", "max_queue_delay = \"500ms\"\nstages = \"round_robin\"");
    let mut endless: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for client in &mut endless {
        client.send("GET /burn?us=forever HTTP/1.1\r\nHost: a.test\r\n\r\n");
    }
    eventually("it burns", || (metric(&server, "leat_requests_started", &["\"a\""]) == 4.0).then_some(()));
    for target in ["/", "/burn", "/", "/burn"] {
        let mut client = server.connect();
        let start = Instant::now();
        let refused = client.ask(format!("GET {target} HTTP/1.1\r\nHost: b.test\r\n\r\n"));
        assert_eq!((refused.status, refused.must("retry-after"), refused.says_close()), (503, "2", true));
        assert!(start.elapsed() >= Duration::from_millis(490), "{:?}", start.elapsed());
        assert_eq!(client.until_closed(), b"");
    }
    drop(endless);
    let mut next = server.connect();
    eventually("its turn comes", || {
        next = server.connect();
        (next.ask("GET / HTTP/1.1\r\nHost: b.test\r\n\r\n").status == 200).then_some(())
    });
}

/// Nobody else asks: what a request waits for is its own site's quota, and not the server.
fn what_a_sites_own_quota_holds_back_is_not_late(reactor: Reactor) {
    let directory = Directory::new();
    let quota = "max_queue_delay = \"100ms\"\n[site.quota]\nnetwork_rate = \"40KB/s\"";
    let server = server(reactor, &directory, "", quota, "");
    let mut client = server.connect();
    for _ in 0..4 {
        assert_eq!(client.ask("GET /quarter HTTP/1.1\r\nHost: a.test\r\n\r\n").status, 200);
    }
}

/// Under `deadline` those who may wait for a second leave nearly everything to those who may wait for 20 ms: in turns, these would have half.
fn who_may_wait_for_less_goes_first_and_the_others_are_not_forgotten(reactor: Reactor) {
    let directory = Directory::new();
    let schedule = "[schedule]\nroot = \"deadline\"";
    let server = server(reactor, &directory, schedule, "max_queue_delay = \"20ms\"", "max_queue_delay = \"1s\"");
    let mut patient: Vec<Client> = (0..6).map(|_| server.connect()).collect();
    for client in &mut patient {
        client.send("GET /burn?us=forever HTTP/1.1\r\nHost: b.test\r\n\r\n");
    }
    let hasty = Crowd::new(&server, 6, "a", "/burn");
    let used = |site: &str| metric(&server, "leat_processor_seconds_total", &[&format!("site=\"{site}\"")]);
    eventually("all are at work", || (hasty.served() > 10 && used("b") > 0.0).then_some(()));
    let before = (used("a"), used("b"));
    eventually("enough is counted", || (used("a") > before.0 + 0.3).then_some(()));
    let used = (used("a") - before.0, used("b") - before.1);
    // What the clients leave is theirs, too.
    assert!(used.1 < used.0 * 0.6, "{used:?}");
    hasty.end();
}

/// Small ones and large ones, all in turns: as long as there are small ones, the large ones have what these leave, and all are whole.
fn replies_are_whole_under_shortest_remaining(reactor: Reactor) {
    let directory = Directory::new();
    directory.write("site/small", vec![5; 40_000]);
    let schedule =
        "[files]\ncache_size = 0\n[schedule]\nroot = \"shortest_remaining\"\nstages = \"shortest_remaining\"";
    let server = server(reactor, &directory, schedule, "", "stages = \"weighted_fair\"");
    let mut clients: Vec<(Client, usize)> = Vec::new();
    for (site, path, bytes) in [("a", "large", 3_000_000), ("a", "small", 40_000), ("b", "large", 3_000_000)].repeat(8)
    {
        let mut client = server.connect();
        client.send(format!("GET /{path} HTTP/1.1\r\nHost: {site}.test\r\n\r\n"));
        clients.push((client, bytes));
    }
    for (client, bytes) in &mut clients {
        let reply = client.reply();
        assert_eq!((reply.status, reply.body.len()), (200, *bytes));
    }
}

fn slow_heads_and_idle_connections_keep_nobody_out(reactor: Reactor) {
    let directory = Directory::new();
    let server = server(reactor, &directory, "", "", "");
    let mut slow: Vec<Client> = (0..300).map(|_| server.connect()).collect();
    let start = Instant::now();
    let mut client = server.connect();
    for round in 0..50 {
        for client in &mut slow {
            let _ = client.try_send(if round == 0 { "GET / HTTP/1.1\r\nHost: a.test\r\n" } else { "X: y\r\n" });
        }
        assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: b.test\r\n\r\n").text(), "a file");
        assert_eq!(Client::connect(server.admin()).get("/health").status, 200);
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

fn a_rate_is_kept(reactor: Reactor) {
    let directory = Directory::new();
    let quota = "[site.quota]\nnetwork_rate = \"2MB/s\"";
    let server = server(reactor, &directory, "", quota, "");
    let start = Instant::now();
    let reply = server.connect().ask("GET /large HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(reply.body.len(), 3_000_000);
    // What may be sent at once is less than half of it.
    assert!(start.elapsed() > Duration::from_millis(700), "{:?}", start.elapsed());
    let start = Instant::now();
    assert_eq!(server.connect().ask("GET /large HTTP/1.1\r\nHost: b.test\r\n\r\n").body.len(), 3_000_000);
    assert!(start.elapsed() < Duration::from_millis(700), "{:?}", start.elapsed());
}

/// Files that go into leat's cache, one that is hashed before its first reply and one that is hashed meanwhile: all are read once.
fn what_is_read_from_the_disk_is_paid_for_once(reactor: Reactor) {
    const RATE: f64 = 4e6;
    let directory = Directory::new();
    let server = server(reactor, &directory, "", "[site.quota]\ndisk_rate = \"4MB/s\"", "");
    let small = (0..20).map(|number| (format!("small{number}"), 60_000));
    let files: Vec<(String, usize)> =
        small.chain([("hashed".to_owned(), 3_000_000), ("hashed_later".to_owned(), 6_000_000)]).collect();
    let is_on_disk: Vec<bool> =
        files.iter().map(|(name, bytes)| directory.write_to_disk(&format!("site/{name}"), vec![7; *bytes])).collect();
    if is_on_disk.contains(&false) {
        assert!(std::env::var_os("CI").is_none(), "the test directory's file system doesn't let go of its pages");
        eprintln!("skipped: the test directory's file system keeps everything in memory; set TMPDIR to a disk");
        return;
    }
    let used = || metric(&server, "leat_quota_used_seconds_total", &["site=\"a\",resource=\"disk_rate\""]);
    let ask_for_all = |site: &str| {
        let mut client = server.connect();
        for (name, bytes) in &files {
            let reply = client.ask(format!("GET /{name} HTTP/1.1\r\nHost: {site}.test\r\n\r\n"));
            assert_eq!((reply.status, reply.body.len()), (200, *bytes));
        }
    };
    let seconds = files.iter().map(|(_, bytes)| *bytes).sum::<usize>() as f64 / RATE;
    let start = Instant::now();
    ask_for_all("a");
    let (took, paid) = (start.elapsed().as_secs_f64(), used());
    // Directories and the like are read as well.
    assert!((seconds..seconds * 1.3).contains(&paid), "{paid} s paid for {seconds} s");
    // Some may be read at once, and what was read last is paid for afterwards.
    assert!(took > seconds * 0.7, "{took} s for {seconds} s");
    ask_for_all("a");
    ask_for_all("b");
    assert!(used() - paid < 0.05, "{} s paid for what is in memory", used() - paid);
}

/// Bytes of a site's that are sent in a second, in millions: never much more than `most`.
fn sent_each_second(server: &Server, site: &str, most: f64) -> f64 {
    let sent = || metric(server, "leat_body_bytes_total", &[&format!("site=\"{site}\"")]);
    let (start, before) = (Instant::now(), sent());
    eventually("a second passes", || (start.elapsed() > Duration::from_secs(1)).then_some(()));
    let found = (sent() - before) / start.elapsed().as_secs_f64() / 1e6;
    // A twentieth may be saved up, and the time is that of a busy machine.
    assert!(found < most * 1.15, "{found} million bytes in a second, and {most} is the quota");
    found
}

fn a_quota_is_whole_wherever_connections_are(reactor: Reactor) {
    let directory = Directory::new();
    // Little enough for one client of a busy machine to ask for all of it; replies are counted when they end, so four at a time are of a quarter.
    let server = server(reactor, &directory, "workers = 4\n", "[site.quota]\nnetwork_rate = \"4MB/s\"", "");
    for (connections, path) in [(1, "/middle"), (4, "/quarter")] {
        let crowd = Crowd::new(&server, connections, "a", path);
        eventually("all of it is used", || (sent_each_second(&server, "a", 4.0) > 3.8).then_some(()));
        crowd.end();
    }
    let used = metric(&server, "leat_quota_used_seconds_total", &["site=\"a\",resource=\"network_rate\""]);
    assert!(used > 1.9 && metric(&server, "leat_quota_wait_seconds_total", &["site=\"a\""]) > 1.0, "{used} s");
}

fn sites_share_their_owners_quota_and_a_reload_changes_it(reactor: Reactor) {
    let directory = Directory::new();
    let owner = "workers = 4\n[[owner]]\nname = \"x\"\n[owner.quota]\nnetwork_rate = \"20MB/s\"";
    let server = server(reactor, &directory, owner, "owner = \"x\"\nweight = 300", "owner = \"x\"\nweight = 100");
    let (a, b) = (Crowd::new(&server, 16, "a", "/middle"), Crowd::new(&server, 16, "b", "/middle"));
    let shares_are_right = |most: f64| {
        let (a, b) = (sent_each_second(&server, "a", most), sent_each_second(&server, "b", most));
        ((a + b) / most > 0.9 && (a + b) / most < 1.1 && is_about(a / b, 3.0)).then_some(())
    };
    eventually("they have parts by weight", || shares_are_right(20.0));
    let text = std::fs::read_to_string(directory.at("leat.toml")).unwrap();
    let (_, text) = text.split_once('\n').unwrap();
    server.reload(reactor, &directory, &text.replace("20MB/s", "10MB/s"));
    eventually("what was sent before is over", || (sent_each_second(&server, "a", 20.0) < 10.0).then_some(()));
    eventually("they have parts of the new quota", || shares_are_right(10.0));
    server.reload(reactor, &directory, &text.replace("20MB/s", "0"));
    let served = a.served() + b.served();
    eventually("it's lifted", || (a.served() + b.served() > served + 50).then_some(()));
    a.end();
    b.end();
}

fn a_site_computes_no_more_than_its_part(reactor: Reactor) {
    let directory = Directory::new();
    let server = server(reactor, &directory, "", "[site.quota]\ncpu = \"20%\"", "");
    let crowd = Crowd::new(&server, 4, "a", "/burn?us=5000");
    eventually("it's at work", || (crowd.served() > 5).then_some(()));
    let (start, before) = (Instant::now(), server.processor_time());
    eventually("a second passes", || (start.elapsed() > Duration::from_secs(1)).then_some(()));
    let part = (server.processor_time() - before).as_secs_f64() / start.elapsed().as_secs_f64();
    assert!(part < 0.3, "{part} of a processor");
    assert!(part > 0.05, "{part} of a processor");
    crowd.end();
}

fn memory_held_for_a_site_is_bounded_and_nothing_is_broken(reactor: Reactor) {
    let directory = Directory::new();
    let server = server(reactor, &directory, "", "[site.quota]\nmemory = \"256KiB\"", "");
    let mut client = server.connect();
    assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").status, 200);
    // Each holds up its connection with a handler, and sends a body behind it: what is received of it has to be kept.
    let mut held: Vec<Client> = (0..12).map(|_| server.connect()).collect();
    let body = vec![b'x'; 60_000];
    for client in &mut held {
        client.send("GET /burn?us=50000 HTTP/1.1\r\nHost: a.test\r\n\r\n");
        client.send(format!("POST /index.html HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n", body.len()));
        client.send(&body);
    }
    for client in &mut held {
        let first = client.reply().status;
        assert!(matches!(first, 200 | 503), "{first}");
        assert_eq!(client.reply().status, 405);
    }
    assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").status, 200);
}

fn what_clients_send_while_their_site_may_not_go_on_is_left_to_their_kernel(reactor: Reactor) {
    let directory = Directory::new();
    let server = server(reactor, &directory, "", "[site.quota]\ncpu = \"1%\"", "");
    let mut client = server.connect();
    // What was used is paid for by seconds in which little is read out of what comes.
    assert_eq!(client.ask("GET /burn?us=50000 HTTP/1.1\r\nHost: a.test\r\n\r\n").status, 200);
    client.stream().set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let requests = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n".repeat(1_000);
    let taken_bytes = (0..4_000).take_while(|_| client.try_send(&requests).is_ok()).count() * requests.len();
    assert!(taken_bytes < 64 << 20, "{taken_bytes} bytes");
}

fn who_asks_far_ahead_is_read_no_faster_than_answered(reactor: Reactor) {
    let directory = Directory::new();
    let server = server(reactor, &directory, "", "", "");
    let mut client = server.connect();
    client.stream().set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let requests = "GET /burn?us=1000 HTTP/1.1\r\nHost: a.test\r\n\r\n".repeat(1_000);
    let taken_bytes = (0..4_000).take_while(|_| client.try_send(&requests).is_ok()).count() * requests.len();
    assert!(taken_bytes < 64 << 20, "{taken_bytes} bytes");
}

on_both_reactors! {
    weights_divide_a_worker,
    shares_hold_over_two_workers,
    few_connections_move_to_where_their_share_is,
    a_reload_changes_shares_and_drops_nothing,
    an_overloaded_site_refuses_and_the_others_do_not,
    a_refusal_says_when_to_come_back_and_keeps_the_connection,
    clients_that_connect_for_each_request_hear_of_refusals,
    as_many_are_in_flight_as_may_be_on_all_workers_together,
    no_site_waits_longer_than_it_may,
    a_request_whose_turn_does_not_come_is_refused_in_time,
    what_a_sites_own_quota_holds_back_is_not_late,
    who_may_wait_for_less_goes_first_and_the_others_are_not_forgotten,
    replies_are_whole_under_shortest_remaining,
    slow_heads_and_idle_connections_keep_nobody_out,
    a_rate_is_kept,
    a_quota_is_whole_wherever_connections_are,
    what_is_read_from_the_disk_is_paid_for_once,
    sites_share_their_owners_quota_and_a_reload_changes_it,
    a_site_computes_no_more_than_its_part,
    memory_held_for_a_site_is_bounded_and_nothing_is_broken,
    what_clients_send_while_their_site_may_not_go_on_is_left_to_their_kernel,
    who_asks_far_ahead_is_read_no_faster_than_answered,
}
