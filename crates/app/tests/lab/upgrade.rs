//! A dispatcher is upgraded, several times in a row and under load: what nodes have goes on, and so does what is its own. That is half a head, a connection
//! that was never handed over, a request that it passes on with the body or the reply under way. None is cut, and every byte is right.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::motion::{connect, content};
use super::{Folder, Lab, is_possible, within};

const UPGRADES: usize = 4;
/// Small files. Those who ask for one after the other belong to one node after the other, where content says which.
const NAMES: [&str; 8] = ["small", "f1", "f2", "f3", "f4", "f5", "f6", "f7"];
const ROUND_ROBIN: &str = "policy = 'round_robin'";
/// For a client to be heard and to be answered.
const PATIENCE: Duration = Duration::from_secs(10);
const UPLOAD_BYTES: usize = 1_000_000;
const SMALL_BYTES: usize = 10_000;
/// More than the buffers of all sockets on the way have room for.
const LONG_BYTES: usize = 48 << 20;

/// A dispatcher before two nodes, whose program tells the sum of what it was sent.
fn up(lab: &Lab, folder: &Folder, settings: &str) {
    for name in NAMES {
        fs::write(folder.path(&format!("site/{name}")), content(name, SMALL_BYTES)).expect("a file to serve");
    }
    fs::write(folder.path("site/long"), content("long", LONG_BYTES)).expect("a file to serve");
    let program = folder.path("sum");
    fs::write(&program, "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nexec cksum\n").expect("a program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it's ours");
    let text = format!(
        "workers = 2\n[limits]\nhead_timeout = '2m'\n[cluster]\nvip = '10.77.0.100:80'\ndispatchers = '10.77.0.1'\nkey_file = 'cluster.key'\n{settings}\n\
         [[cluster.node]]\nname = 'n1'\naddress = '10.77.0.11'\n[[cluster.node]]\nname = 'n2'\naddress = '10.77.0.12'\n\
         [[cluster.port]]\nname = 'port'\nlisten = '10.77.0.1:8080'\nnode_port = 80\n\
         [admin]\nlisten = '127.0.0.1:9180'\n[[site]]\nroot = 'site'\n[site.limits]\nbody_size = '8MiB'\n\
         [[site.handler]]\npath = '/sum'\n[site.handler.cgi]\ncommand = '{program}'\n"
    );
    fs::write(folder.path("cluster.toml"), text).expect("a configuration");
    lab.well(&["up", &folder.path("cluster.toml")]);
}

fn log_of(lab: &Lab) -> String {
    fs::read_to_string(format!("/run/leat-lab/{}/dispatcher.log", lab.name)).expect("its log")
}

/// Has a new engine take over, and waits until it has: the supervisor says then where it listens. False if it never does.
fn upgrade(lab: &Lab) -> bool {
    let starts = || log_of(lab).matches("listening on http://").count();
    let before = starts();
    lab.tell_supervisor("dispatcher", "-USR2");
    let start = Instant::now();
    while starts() == before {
        if start.elapsed() > Duration::from_secs(20) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// What `cksum` says of these bytes.
fn sum(bytes: &[u8]) -> String {
    let mut child = Command::new("cksum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("there is cksum");
    child.stdin.take().expect("it's piped").write_all(bytes).expect("it reads");
    String::from_utf8(child.wait_with_output().expect("it ends").stdout).expect("digits")
}

/// No client may panic: the others would wait for it.
fn ask(stream: &mut TcpStream, name: &str) -> io::Result<()> {
    stream.write_all(format!("GET /{name} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())
}

fn read_small(stream: &mut TcpStream) -> io::Result<()> {
    read_file(stream, "small")
}

/// A reply that isn't what was asked for, as an error. A node that has too much to do for a moment may say so.
fn not_served(reply: &[u8]) -> io::Error {
    let is_busy = reply.starts_with(b"HTTP/1.1 503 ") && reply.windows(13).any(|bytes| bytes == b"Retry-After: ");
    let kind = if is_busy { io::ErrorKind::ResourceBusy } else { io::ErrorKind::Other };
    io::Error::new(kind, String::from_utf8_lossy(reply))
}

/// Reads a reply of a small file, after what may be left of the one before.
fn read_file(stream: &mut TcpStream, name: &str) -> io::Result<()> {
    let (mut came, mut room) = (Vec::new(), [0; 16_384]);
    loop {
        let begin = came.windows(9).position(|bytes: &[u8]| bytes == b"HTTP/1.1 ").unwrap_or(came.len());
        let reply = &came[begin..];
        if let Some(end) = reply.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            if !reply.starts_with(b"HTTP/1.1 200 ") {
                return Err(not_served(reply));
            }
            if reply.len() >= end + 4 + SMALL_BYTES {
                let is_right = reply[end + 4..] == content(name, SMALL_BYTES);
                return if is_right { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) };
            }
        }
        match stream.read(&mut room)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => came.extend_from_slice(&room[..count]),
        }
    }
}

fn ask_small(stream: &mut TcpStream) -> io::Result<()> {
    ask(stream, "small")?;
    read_small(stream)
}

/// Half a head at first, and the rest of it in pieces, one in each round.
fn half_a_head(stream: &mut TcpStream, round: usize) -> io::Result<()> {
    let pieces: [&[u8]; UPGRADES + 1] = [b"GET /sm", b"all HTT", b"P/1.1\r\nHo", b"st: x\r", b"\n\r\n"];
    stream.write_all(pieces[round])?;
    if round == UPGRADES { read_small(stream) } else { Ok(()) }
}

/// A body that comes in pieces, one in each round.
fn upload(stream: &mut TcpStream, round: usize, body: &[u8], expected: &str) -> io::Result<()> {
    if round == 0 {
        let head = format!("POST /sum HTTP/1.1\r\nHost: x\r\nContent-Length: {UPLOAD_BYTES}\r\n\r\n");
        stream.write_all(head.as_bytes())?;
    }
    let piece = body.len() / (UPGRADES + 1);
    stream.write_all(&body[round * piece..(round + 1) * piece])?;
    if round < UPGRADES {
        return Ok(());
    }
    let (mut reply, mut room) = (String::new(), [0; 4096]);
    while !reply.contains(expected.trim_end()) {
        match stream.read(&mut room)? {
            0 => return Err(io::Error::other(format!("an end after {reply}"))),
            count => reply.push_str(&String::from_utf8_lossy(&room[..count])),
        }
        if reply.starts_with("HTTP/1.1 503 ") && reply.contains("\r\n\r\n") {
            return Err(not_served(reply.as_bytes()));
        }
    }
    // The same connection goes on.
    ask_small(stream)
}

/// A long reply that is read in pieces, one in each round.
fn download(stream: &mut TcpStream, round: usize, came: &mut Vec<u8>, long: &[u8]) -> io::Result<()> {
    if round == 0 {
        ask(stream, "long")?;
    }
    let until = if round < UPGRADES { LONG_BYTES / (UPGRADES + 2) * (round + 1) } else { usize::MAX };
    let mut room = vec![0; 65_536];
    while came.len() < until {
        let count = stream.read(&mut room)?;
        came.extend_from_slice(&room[..count]);
        let head = came.windows(4).take(1_024).position(|bytes| bytes == b"\r\n\r\n").map(|at| at + 4);
        match head {
            Some(head) if came.len() - head >= LONG_BYTES => {
                let is_right = came[head..] == *long;
                return if is_right { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) };
            }
            _ if count == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => {}
        }
    }
    Ok(())
}

/// A connection to the VIP; or to a port, where the dispatcher passes bytes on and a node's leat answers.
fn reach(kind: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(if kind == "port" { "10.77.0.1:8080" } else { "10.77.0.100:80" })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Clients that ask and ask do it at this pace: where processors have more to do than they can, nodes' leases run out, and that isn't what is looked at here.
fn pace() {
    std::thread::sleep(Duration::from_millis(5));
}

/// What a client does in each round.
type Step<'a> = Box<dyn FnMut(&mut TcpStream, usize) -> io::Result<()> + Send + 'a>;

/// Clients of all kinds go on while the dispatcher is upgraded. Returns what went wrong, by kind, and how many requests were refused by a server that had
/// too much to do.
fn upgrade_under_load(lab: &Lab) -> (BTreeMap<String, usize>, u64) {
    let long = content("long", LONG_BYTES);
    let body: Vec<u8> = content("body", UPLOAD_BYTES);
    let expected = sum(&body);
    let failures = std::sync::Mutex::new(BTreeMap::<String, usize>::new());
    let refused = AtomicU64::new(0);
    let failed = |kind: &str, round: usize, error: &io::Error| {
        if error.kind() == io::ErrorKind::ResourceBusy {
            refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        *failures.lock().expect("nobody panics").entry(format!("{kind} in round {round}: {error}")).or_default() += 1;
    };
    let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let kinds = [("idle", 30), ("half a head", 24), ("upload", 8), ("download", 6), ("port", 4)];
    let steppers: usize = kinds.iter().map(|(_, count)| count).sum();
    let (begun, done) = (Barrier::new(steppers + 1), Barrier::new(steppers + 1));
    lab.at("client1", || {
        std::thread::scope(|scope| {
            for (kind, count) in kinds {
                for _ in 0..count {
                    let (begun, done, failed, body, expected, long) = (&begun, &done, &failed, &body, &expected, &long);
                    scope.spawn(move || {
                        let mut came = Vec::new();
                        let mut step: Step<'_> = match kind {
                            "idle" => Box::new(|stream, round| {
                                // One in two rounds: what rests in between has passed.
                                if round % 2 == 0 { ask_small(stream) } else { Ok(()) }
                            }),
                            "port" => Box::new(|stream, _| ask_small(stream)),
                            "half a head" => Box::new(half_a_head),
                            "upload" => Box::new(|stream, round| upload(stream, round, body, expected)),
                            _ => Box::new(|stream, round| download(stream, round, &mut came, long)),
                        };
                        let mut stream = Some(reach(kind));
                        for round in 0..=UPGRADES {
                            let outcome = match &mut stream {
                                Some(Ok(stream)) => step(stream, round),
                                Some(Err(error)) => Err(io::Error::from(error.kind())),
                                // It has failed before.
                                None => Ok(()),
                            };
                            if let Err(error) = outcome {
                                failed(kind, round, &error);
                                stream = None;
                            }
                            begun.wait();
                            done.wait();
                        }
                    });
                }
            }
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut stream = reach("busy");
                    while !is_over.load(Ordering::Relaxed) {
                        pace();
                        let name = NAMES[asked.fetch_add(1, Ordering::Relaxed) % NAMES.len()];
                        let asks = |mut stream: TcpStream| {
                            ask(&mut stream, name)?;
                            read_file(&mut stream, name).map(|()| stream)
                        };
                        stream = stream.and_then(asks).or_else(|error| {
                            failed("busy", 0, &error);
                            reach("busy")
                        });
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        pace();
                        if let Err(error) = reach("new").and_then(|mut stream| ask_small(&mut stream)) {
                            failed("new", 0, &error);
                        }
                    }
                });
            }
            for round in 0..=UPGRADES {
                begun.wait();
                if round < UPGRADES && !upgrade(lab) {
                    failed("an upgrade", round, &io::ErrorKind::TimedOut.into());
                }
                done.wait();
            }
            is_over.store(true, Ordering::Relaxed);
        });
    });
    assert!(asked.load(Ordering::Relaxed) > 100, "the busy ones were");
    (failures.into_inner().expect("nobody panics"), refused.into_inner())
}

fn cuts_nothing(name: &str, settings: &str) {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new(name));
    up(&lab, &folder, settings);
    let (failures, refused) = upgrade_under_load(&lab);
    if !failures.is_empty() {
        lab.show_logs();
    }
    assert_eq!(failures, BTreeMap::new(), "{}", log_of(&lab));
    // Processors that have more to do than they can make nodes refuse some requests, and upgrades none.
    let by_nodes = ["receive", "serve", "transmit"]
        .map(|stage| lab.total(["n1", "n2"], &format!("leat_refused_total{{site=\"default\",stage=\"{stage}\"}}")));
    assert_eq!(refused, by_nodes.iter().sum::<u64>(), "{}", log_of(&lab));
    within("what is left is the last engine", || lab.processes("dispatcher").split_whitespace().count() == 2);
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0, "{}", log_of(&lab));
}

#[test]
fn upgrades_of_a_dispatcher_under_load_cut_nothing() {
    cuts_nothing("upgrades", ROUND_ROBIN);
}

#[test]
fn upgrades_of_a_dispatcher_that_passes_everything_on_cut_nothing() {
    cuts_nothing("proxying", "policy = 'round_robin'\nhand_over = 'never'");
}

#[test]
fn upgrades_of_a_dispatcher_whose_nodes_give_connections_to_each_other_cut_nothing() {
    cuts_nothing("wandering", "policy = 'consistent_hash'");
}

/// Those of these that aren't the supervisor, which was there first and starts the others.
fn engines(before: &BTreeSet<u32>) -> impl Iterator<Item = u32> {
    let parent = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse::<u32>().ok())
    };
    before.iter().copied().filter(move |pid| parent(pid).is_some_and(|parent| before.contains(&parent)))
}

/// Sends it from here: what it's to come into the middle of is over by the time that another process could.
fn send(signal: Signal, pids: impl Iterator<Item = u32>) {
    for pid in pids.filter_map(|pid| Pid::from_raw(pid.cast_signed())) {
        // It may have ended by itself.
        let _ = kill_process(pid, signal);
    }
}

/// The processes at the dispatcher.
fn processes(lab: &Lab) -> BTreeSet<u32> {
    lab.processes("dispatcher").split_whitespace().flat_map(str::parse).collect()
}

#[test]
fn a_new_engine_that_refuses_or_dies_leaves_a_dispatcher_as_it_was() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("stays"));
    up(&lab, &folder, ROUND_ROBIN);
    let file = folder.path("cluster.toml");
    let text = fs::read_to_string(&file).expect("it's there");
    let read_all = |clients: &mut [TcpStream]| {
        lab.at("client1", || {
            for stream in clients {
                ask_small(stream).expect("a reply");
            }
        });
    };
    let mut idle: Vec<TcpStream> = lab.at("client1", || (0..30).map(|_| connect()).collect());
    read_all(&mut idle);
    let mut half = lab.at("client1", connect);
    half.write_all(b"GET /small HTTP/1.1\r\nHost:").expect("half a head");
    let said = |words: &str| log_of(&lab).matches(words).count();
    let before = processes(&lab);
    fs::write(&file, format!("nonsense = 1\n{text}")).expect("a configuration");
    lab.tell_supervisor("dispatcher", "-USR2");
    within("the new binary refuses it", || said("the new binary isn't used") == 1);
    assert_eq!((processes(&lab), said("another engine follows")), (before, 0), "nobody was in its way");
    read_all(&mut idle);
    half.write_all(b" x\r\n\r\n").expect("it's open");
    read_small(&mut half).expect("a reply");
    fs::write(&file, &text).expect("a configuration");
    // It dies when the old one has begun to give up what nodes have, or has given it up: that one has it again. Where it dies later, yet another follows.
    let resumed = || said("no other engine follows");
    for _ in 0..50 {
        let (before, follows) = (processes(&lab), said("another engine follows"));
        lab.tell_supervisor("dispatcher", "-USR2");
        let mut new = BTreeSet::new();
        within("a new engine is there", || {
            new = &processes(&lab) - &before;
            !new.is_empty()
        });
        let start = Instant::now();
        while said("another engine follows") == follows {
            assert!(start.elapsed() < Duration::from_secs(20), "the new engine never gets ready");
        }
        send(Signal::KILL, new.iter().copied());
        within("one engine is left", || {
            let now = processes(&lab);
            now.len() == 2 && now.is_disjoint(&new)
        });
        read_all(&mut idle);
        read_all(&mut [lab.at("client1", connect)]);
        if resumed() >= 2 {
            break;
        }
    }
    assert!(resumed() >= 2, "{}", log_of(&lab));
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0, "{}", log_of(&lab));
    assert!(upgrade(&lab));
    read_all(&mut idle);
}

#[test]
fn an_old_engine_that_dies_in_an_upgrade_is_followed() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("followed"));
    up(&lab, &folder, ROUND_ROBIN);
    let mut idle: Vec<TcpStream> = lab.at("client1", || (0..30).map(|_| connect()).collect());
    let read_all = |clients: &mut [TcpStream]| {
        lab.at("client1", || {
            for stream in clients {
                ask_small(stream).expect("a reply");
            }
        });
    };
    read_all(&mut idle);
    let long = content("long", LONG_BYTES);
    let outcomes = super::motion::read_slowly(&lab, 4, "long", &long, || {
        for _ in 0..3 {
            let before = processes(&lab);
            lab.tell_supervisor("dispatcher", "-USR2");
            within("another engine is there", || !processes(&lab).is_subset(&before));
            // Whatever it has given up by then.
            send(Signal::KILL, engines(&before));
            within("the new one is left", || {
                let now = processes(&lab);
                now.len() == 2 && !now.is_subset(&before)
            });
        }
    });
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(true))), "{outcomes:?}");
    read_all(&mut idle);
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0, "{}", log_of(&lab));
}

#[test]
fn an_old_engine_that_stands_still_holds_up_no_upgrade() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("still"));
    up(&lab, &folder, ROUND_ROBIN);
    let mut idle: Vec<TcpStream> = lab.at("client1", || (0..10).map(|_| connect()).collect());
    lab.at("client1", || idle.iter_mut().for_each(|stream| ask_small(stream).expect("a reply")));
    assert_eq!(lab.number("dispatcher", "leat_flows"), 10, "nodes have them, and it knows");
    let before = processes(&lab);
    send(Signal::STOP, engines(&before));
    assert!(upgrade(&lab), "{}", log_of(&lab));
    within("the old one has been killed", || processes(&lab).intersection(&before).count() == 1);
    lab.at("client1", || idle.iter_mut().for_each(|stream| ask_small(stream).expect("a reply")));
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0, "{}", log_of(&lab));
}

#[test]
fn a_stop_in_the_middle_of_a_dispatchers_upgrade_ends_both_engines() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("stopped"));
    up(&lab, &folder, ROUND_ROBIN);
    let mut own = lab.at("client1", connect);
    own.write_all(b"GET /small HTTP/1.1\r\nHost:").expect("half a head");
    let before = processes(&lab);
    lab.tell_supervisor("dispatcher", "-USR2");
    within("another engine is there", || !processes(&lab).is_subset(&before));
    lab.tell_supervisor("dispatcher", "-TERM");
    own.write_all(b" x\r\n\r\n").expect("it's open");
    read_small(&mut own).expect("a last reply");
    within("all have ended", || processes(&lab).is_empty());
}

#[test]
fn a_node_that_is_upgraded_while_its_dispatcher_is_away_ends_no_connection() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("both"));
    up(&lab, &folder, ROUND_ROBIN);
    let is_over = AtomicBool::new(false);
    let log = || fs::read_to_string(format!("/run/leat-lab/{}/n1.log", lab.name)).expect("its log");
    let listens = || log().matches("listening on http://0.0.0.0:80/").count();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let (mut stream, mut answered, start) = (lab.at("client1", connect), 0, Instant::now());
                    while !is_over.load(Ordering::Relaxed) && start.elapsed() < Duration::from_secs(120) {
                        pace();
                        match ask_small(&mut stream).map_err(|error| (error.kind(), error)) {
                            Ok(()) | Err((io::ErrorKind::ResourceBusy, _)) => answered += 1,
                            // What is at the dispatcher in that moment dies with it.
                            Err((io::ErrorKind::ConnectionReset, _)) => stream = lab.at("client1", connect),
                            Err((_, error)) => panic!("after {answered} replies: {error}"),
                        }
                    }
                    answered
                })
            })
            .collect();
        for _ in 0..4 {
            let before = listens();
            lab.tell_supervisor("n1", "-USR2");
            within("the next process is there", || listens() > before);
            lab.kill_engine("dispatcher");
            within("one process is left, and the dispatcher has its links", || {
                let is_linked = lab.processes("dispatcher").split_whitespace().count() == 2;
                is_linked && lab.processes("n1").split_whitespace().count() == 2
            });
        }
        is_over.store(true, Ordering::Relaxed);
        let answered: u32 = clients.into_iter().map(|client| client.join().expect("none is ended")).sum();
        assert!(answered > 400, "{answered}");
    });
}
