//! Connections in motion between nodes: the next request of a kept connection, and replies under way when their node drains or dies. All of it
//! must be so wherever a connection began.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::{Folder, Lab, is_possible, within};

const VIP: &str = "10.77.0.100:80";

/// Content that tells which file it's of and where in it.
pub(super) fn content(name: &str, length: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(length + 32);
    while text.len() < length {
        text.extend_from_slice(format!("{name} {:08}\n", text.len()).as_bytes());
    }
    text.truncate(length);
    text
}

/// Where connections begin.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Begun {
    /// Here, and are moved.
    AtDispatcher,
    /// There, if the kernel can do that.
    AtNode,
}

type Files = BTreeMap<String, Vec<u8>>;

/// A lab of three nodes that serve `files`.
pub(super) fn up(lab: &Lab, folder: &Folder, begun: Begun, files: &Files, settings: &str) {
    up_with(lab, folder, begun, files, [settings, ""]);
}

/// The same with keys of the site's own.
pub(super) fn up_with(lab: &Lab, folder: &Folder, begun: Begun, files: &Files, [settings, of_site]: [&str; 2]) {
    for (name, content) in files {
        fs::write(folder.path(&format!("site/{name}")), content).expect("a file to serve");
    }
    let node = |number| format!("[[cluster.node]]\nname = 'n{number}'\naddress = '10.77.0.1{number}'\n");
    let nodes: String = (1..=3).map(node).collect();
    // As many for a node whose link has come late as for the others.
    let text = format!(
        "[admin]\nsocket = '{}'\n[cluster]\nvip = '{VIP}'\ndispatchers = '10.77.0.1'\nkey_file = 'cluster.key'\n{settings}\n\
         [cluster.health]\nslow_start = '0s'\n{nodes}[[site]]\nroot = 'site'\n{of_site}",
        folder.path("leat.sock")
    );
    fs::write(folder.path("cluster.toml"), text).expect("a configuration");
    lab.well(&["up", &folder.path("cluster.toml")]);
    let log = || fs::read_to_string(format!("/run/leat-lab/{}/dispatcher.log", lab.name)).unwrap_or_default();
    within("they are linked", || log().matches("its link is up").count() >= 3);
    if begun == Begun::AtDispatcher {
        // Those of clients without timestamps do.
        lab.well(&["exec", "client1", "sh", "-c", "echo 0 > /proc/sys/net/ipv4/tcp_timestamps"]);
    }
}

pub(super) fn connect() -> TcpStream {
    let stream = TcpStream::connect(VIP).expect("the dispatcher listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time-out");
    stream
}

pub(super) fn ask(stream: &mut TcpStream, names: &[&str]) {
    let requests: String = names.iter().map(|name| format!("GET /{name} HTTP/1.1\r\nHost: x\r\n\r\n")).collect();
    stream.write_all(requests.as_bytes()).expect("it's open");
}

/// The content of the next reply, and what has come of the one after.
pub(super) fn read_reply(stream: &mut TcpStream, rest: &mut Vec<u8>) -> io::Result<Vec<u8>> {
    let (head, content) = read_any_reply(stream, rest)?;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    Ok(content)
}

/// The same, whatever its status, with its head.
pub(super) fn read_any_reply(stream: &mut TcpStream, rest: &mut Vec<u8>) -> io::Result<(String, Vec<u8>)> {
    let mut room = [0; 65536];
    loop {
        if let Some(end) = rest.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&rest[..end]).into_owned();
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            let length: usize = length.and_then(|length| length.parse().ok()).expect("its length is told");
            if rest.len() >= end + 4 + length {
                let content = rest[end + 4..end + 4 + length].to_vec();
                rest.drain(..end + 4 + length);
                return Ok((head, content));
            }
        }
        match stream.read(&mut room)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => rest.extend_from_slice(&room[..count]),
        }
    }
}

fn total(lab: &Lab, name: &str) -> u64 {
    lab.total(["n1", "n2", "n3"], name)
}

#[test]
fn requests_of_a_kept_connection_go_where_their_content_is() {
    go_where_content_is(Begun::AtDispatcher);
}

#[test]
fn requests_of_a_kept_connection_go_where_their_content_is_if_begun_at_a_node() {
    go_where_content_is(Begun::AtNode);
}

/// A reply with the node's kernel and not yet with the client would be lost by a connection that is closed as more comes, and the node's reset goes
/// nowhere: its client would wait for the rest until it gives up.
#[test]
fn who_says_more_than_it_was_to_gets_its_last_reply_whole() {
    for begun in [Begun::AtDispatcher, Begun::AtNode] {
        more_is_said(begun);
    }
}

fn more_is_said(begun: Begun) {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("more"));
    let large = content("large", 128 << 10);
    up(&lab, &folder, begun, &BTreeMap::from([("large".to_owned(), large.clone())]), "policy = 'round_robin'");
    let mut stream = lab.at("client1", || {
        let mut stream = connect();
        stream.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it's open");
        stream
    });
    // The client's has no room for more than four fifths of it.
    let numbers = |node| lab.well(&["exec", node, "curl", "-s", "http://127.0.0.1:9180/metrics"]);
    let has_replied = |node| numbers(node).contains("leat_requests_total{site=\"default\",status=\"2xx\"} 1\n");
    within("the reply is with the node's kernel", || ["n1", "n2", "n3"].into_iter().any(has_replied));
    ask(&mut stream, &["large"]);
    let reply = read_reply(&mut stream, &mut Vec::new()).expect("the rest comes");
    assert!(reply == large, "it's as it should be");
    let end = stream.read(&mut [0; 1]);
    assert!(end.is_ok_and(|count| count == 0), "the second one isn't answered");
}

#[test]
fn clients_that_have_said_all_they_want_are_answered_wherever_that_is() {
    for begun in [Begun::AtDispatcher, Begun::AtNode] {
        half_closed_are_answered(begun);
    }
}

fn half_closed_are_answered(begun: Begun) {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("said"));
    let names: Vec<String> = (0..24).map(|number| format!("f{number}")).collect();
    let files: BTreeMap<String, Vec<u8>> =
        names.iter().enumerate().map(|(place, name)| (name.clone(), content(name, 1_000 + 3_000 * place))).collect();
    up(&lab, &folder, begun, &files, "policy = 'consistent_hash'");
    let logged = fs::read_to_string(folder.path("cluster.toml")).expect("it's there");
    let logged = format!("{logged}[site.access_log]\npath = 'access.log'\nformat = 'json'\n");
    fs::write(folder.path("cluster.toml"), logged).expect("a configuration");
    ["dispatcher", "n1", "n2", "n3"].iter().for_each(|host| lab.reload(host));
    let clients = 500;
    lab.at("client1", || {
        for turn in 0..clients {
            // Its end comes while the second request's place is looked for, and its connection may be about to leave; of every other client when the
            // reply from there begins.
            let wanted = [&names[turn % names.len()], &names[turn * 7 % names.len()]];
            let (mut stream, mut rest) = (connect(), Vec::new());
            ask(&mut stream, &wanted.map(String::as_str));
            for (place, name) in wanted.into_iter().enumerate() {
                if place == turn % 2 {
                    if place == 1 && rest.is_empty() {
                        stream.peek(&mut [0]).expect("a second reply");
                    }
                    stream.shutdown(Shutdown::Write).expect("it's open");
                }
                let reply = read_reply(&mut stream, &mut rest).unwrap_or_else(|error| panic!("client {turn}: {error}"));
                assert!(reply == files[name], "client {turn}: {name} is as it should be");
            }
            assert_eq!(stream.read(&mut [0]).expect("an end, and no reset"), 0, "client {turn}");
        }
    });
    let moved = lab.number("dispatcher", "leat_handoffs_returned_total") + total(&lab, "leat_fetches_total");
    assert!(moved > 10, "{moved} requests were for others");
    // One that was fetched is logged by who answered it, and by nobody else.
    let ids = || super::ways::ids(&folder.path("access.log"));
    let count = |ids: &BTreeMap<String, Vec<String>>| ids.values().map(Vec::len).sum::<usize>();
    super::within("all are logged", || count(&ids()) >= 2 * clients);
    let ids = ids();
    let known: BTreeSet<&String> = ids.values().flatten().collect();
    assert_eq!((count(&ids), known.len()), (2 * clients, 2 * clients));
}

fn go_where_content_is(begun: Begun) {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("kept"));
    let file = |number: usize| {
        let name = format!("f{number}");
        let length = if number.is_multiple_of(2) { 1_000 } else { 400_000 };
        (name.clone(), content(&name, length))
    };
    let files: BTreeMap<String, Vec<u8>> = (0..24).map(file).collect();
    up(&lab, &folder, begun, &files, "policy = 'mix_lard'\nmix_lard = { may_stay = false }");
    lab.at("client1", || {
        for round in 0..6 {
            let (mut stream, mut rest) = (connect(), Vec::new());
            let names: Vec<&str> = files.keys().map(String::as_str).cycle().skip(round * 7).take(24).collect();
            // One after the other, and then some at once.
            for name in &names[..16] {
                ask(&mut stream, &[name]);
                let reply = read_reply(&mut stream, &mut rest).expect("a reply");
                assert!(reply == files[*name], "{name} is as it should be");
            }
            ask(&mut stream, &names[16..]);
            for name in &names[16..] {
                let reply = read_reply(&mut stream, &mut rest).expect("a reply");
                assert!(reply == files[*name], "{name} is as it should be, in its place");
            }
        }
    });
    let at_home = |name| lab.number("dispatcher", name);
    // What is counted is told now and then.
    within("nodes have asked", || at_home("leat_questions_total") > 20);
    // Which of both is for the cost model to say, by what each takes on this machine: how often is for the tests of `leat_logic::dispatch::cost`.
    within("connections moved to their content, or that was fetched", || {
        at_home("leat_handoffs_returned_total") + total(&lab, "leat_fetches_total") > 30
    });
    // Whoever fetched it.
    assert_eq!(total(&lab, "leat_requests_total{site=\"default\",status=\"2xx\"}"), 6 * 24, "each counts once");
    let misses = total(&lab, "leat_cache_misses_total");
    assert!(misses <= 24 + 6, "each file is in one memory, not {misses} reads");
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
}

/// Has `leat` tell a dispatcher something. What it says to that.
pub(super) fn tell(socket: &str, words: &[&str]) -> String {
    let program = std::env::var_os("LEAT_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_leat").into());
    let said = std::process::Command::new(program).args(words).args(["--socket", socket]).output();
    String::from_utf8_lossy(&said.expect("leat can be run").stdout).into_owned()
}

/// Clients that read a large file slowly, all at once. `meanwhile` runs when each has got some of it.
pub(super) fn read_slowly(
    lab: &Lab,
    clients: usize,
    name: &str,
    whole: &[u8],
    meanwhile: impl FnOnce() + Send,
) -> Vec<io::Result<bool>> {
    let begun = std::sync::Barrier::new(clients + 1);
    lab.at("client1", || {
        std::thread::scope(|scope| {
            let client = || {
                let mut stream = connect();
                ask(&mut stream, &[name]);
                let (mut came, mut room) = (Vec::new(), vec![0; 65_536]);
                let mut waits = true;
                loop {
                    let count = stream.read(&mut room)?;
                    came.extend_from_slice(&room[..count]);
                    let head = came.windows(4).take(1_024).position(|bytes| bytes == b"\r\n\r\n").map(|at| at + 4);
                    if count == 0 || head.is_some_and(|head| came.len() - head >= whole.len()) {
                        return Ok(head.is_some_and(|head| came[head..] == *whole));
                    }
                    if waits && came.len() > whole.len() / 8 {
                        waits = false;
                        begun.wait();
                    }
                    // Its pace: nothing is waited for.
                    std::thread::sleep(Duration::from_millis(10));
                }
            };
            let threads: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
            begun.wait();
            meanwhile();
            threads.into_iter().map(|thread| thread.join().expect("no client panics")).collect()
        })
    })
}

#[test]
fn replies_under_way_leave_a_drained_node_and_none_is_cut() {
    leave_a_drained_node(Begun::AtDispatcher);
}

#[test]
fn replies_under_way_leave_a_drained_node_and_none_is_cut_if_begun_at_a_node() {
    leave_a_drained_node(Begun::AtNode);
}

fn leave_a_drained_node(begun: Begun) {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("busy"));
    let files = BTreeMap::from([("big".to_owned(), content("big", 3_000_000))]);
    up(&lab, &folder, begun, &files, "policy = 'round_robin'");
    let socket = folder.path("leat.sock");
    let outcomes = read_slowly(&lab, 100, "big", &files["big"], || {
        let said = tell(&socket, &["drain", "n1", "--timeout", "20"]);
        assert!(said.contains("n1 is empty after "), "{said}");
    });
    let whole = outcomes.iter().filter(|outcome| matches!(outcome, Ok(true))).count();
    assert_eq!(whole, 100, "{outcomes:?}");
    assert!(total(&lab, "leat_replies_continued_total") >= 10, "they moved in mid-reply");
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
}

/// A connection, and what has come of the next reply.
type Client = (TcpStream, Vec<u8>);

/// One that has been answered.
fn begin(files: &BTreeMap<String, Vec<u8>>) -> Client {
    let mut client = (connect(), Vec::new());
    asks(&mut client, files);
    client
}

fn asks((stream, rest): &mut Client, files: &BTreeMap<String, Vec<u8>>) {
    ask(stream, &["small"]);
    // It asserts that the status is 200.
    assert!(read_reply(stream, rest).expect("a reply") == files["small"]);
}

/// Clients that ask and ask while something is done.
pub(super) fn asking<T>(clients: Vec<Client>, asks: impl Fn(&mut Client) + Sync, meanwhile: impl FnOnce() -> T) -> T {
    /// Also if what is done fails: a test that fails ends.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let is_over = AtomicBool::new(false);
    let (is_over, asks) = (&is_over, &asks);
    std::thread::scope(|scope| {
        let _over = Over(is_over);
        for mut client in clients {
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    asks(&mut client);
                }
            });
        }
        meanwhile()
    })
}

#[test]
fn upgrades_of_a_node_cut_nothing_and_its_link_stays_up() {
    upgrade_nodes(Begun::AtDispatcher);
}

#[test]
fn upgrades_of_a_node_cut_nothing_and_its_link_stays_up_if_begun_at_a_node() {
    upgrade_nodes(Begun::AtNode);
}

fn upgrade_nodes(begun: Begun) {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("upgraded"));
    let files =
        BTreeMap::from([("small".to_owned(), content("small", 10_000)), ("big".to_owned(), content("big", 8 << 20))]);
    // Heads may take as long as four upgrades do on a machine that has other work to do.
    up(&lab, &folder, begun, &files, "policy = 'round_robin'\n[limits]\nhead_timeout = '60s'");
    let (mut idle, mut half, busy) = lab.at("client1", || {
        let some = |count| (0..count).map(|_| begin(&files)).collect::<Vec<Client>>();
        (some(60), some(60), some(8))
    });
    half.iter_mut().for_each(|(stream, _)| stream.write_all(b"GET /small HT").expect("it's open"));
    let said = || fs::read_to_string(format!("/run/leat-lab/{}/dispatcher.log", lab.name)).unwrap_or_default();
    let changes = || said().matches(": its link is ").count();
    let before = changes();
    let outcomes = asking(
        busy,
        |client| asks(client, &files),
        || {
            read_slowly(&lab, 8, "big", &files["big"], || {
                for node in ["n1", "n2", "n3", "n1"] {
                    super::spread::upgrade(&lab, node);
                }
            })
        },
    );
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(true))), "{outcomes:?}");
    for (stream, rest) in &mut half {
        stream.write_all(b"TP/1.1\r\nHost: x\r\n\r\n").expect("it's open");
        assert!(read_reply(stream, rest).expect("a reply") == files["small"]);
    }
    idle.iter_mut().for_each(|client| asks(client, &files));
    // The old process stays until homes have links to the new one, and they never take a link from each other.
    assert_eq!(changes(), before, "{}", said());
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
}

#[test]
fn requests_are_served_while_thousands_of_idle_connections_leave_a_node() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("thousands"));
    let files = BTreeMap::from([("small".to_owned(), content("small", 10_000))]);
    up(&lab, &folder, Begun::AtDispatcher, &files, "policy = 'round_robin'");
    let socket = folder.path("leat.sock");
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limits.maximum, ..limits };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).expect("up to the hard limit");
    // All of them are at one node.
    ["n2", "n3"].iter().for_each(|node| _ = tell(&socket, &["drain", node, "--timeout", "20"]));
    lab.at("client1", || {
        let mut idle: Vec<_> = (0..6_000).map(|_| begin(&files)).collect();
        let busy: Vec<_> = (0..16).map(|_| begin(&files)).collect();
        tell(&socket, &["ctl", "resume", "n2"]);
        let asks_well = |client: &mut Client| asks(client, &files);
        let said = asking(busy, asks_well, || tell(&socket, &["drain", "n1", "--timeout", "20"]));
        assert!(said.contains("n1 is empty after "), "{said}");
        idle.iter_mut().for_each(|client| asks(client, &files));
    });
    assert!(lab.number("dispatcher", "leat_handoffs_returned_total") >= 6_000, "idle ones have moved");
    assert_eq!(total(&lab, "leat_handoffs_waiting"), 0);
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
}

#[test]
fn nobody_waits_in_vain_at_a_node_whose_connections_nobody_takes() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("vain"));
    let files = BTreeMap::from([("small".to_owned(), content("small", 10_000))]);
    up(&lab, &folder, Begun::AtNode, &files, "policy = 'round_robin'");
    let socket = folder.path("leat.sock");
    ["n2", "n3"].iter().for_each(|node| _ = tell(&socket, &["drain", node, "--timeout", "20"]));
    lab.at("client1", || {
        let mut idle: Vec<_> = (0..500).map(|_| begin(&files)).collect();
        let busy: Vec<_> = (0..32).map(|_| begin(&files)).collect();
        // It's asked for all of them, and has each back at once, again and again.
        // That's work: some may be told that there is too much of it.
        let asks_on = |(stream, rest): &mut Client| {
            ask(stream, &["small"]);
            read_any_reply(stream, rest).expect("a reply");
        };
        let said = asking(busy, asks_on, || tell(&socket, &["drain", "n1", "--timeout", "5"]));
        assert!(!said.contains("n1 is empty"), "{said}");
        idle.iter_mut().for_each(|client| asks(client, &files));
    });
    assert!(lab.number("n1", "leat_handoffs_returned_total") >= 532, "they were on their way");
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
}

#[test]
fn what_went_on_without_a_node_that_stood_still_is_gone_there() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("stood"));
    let files = BTreeMap::from([("small".to_owned(), content("small", 100))]);
    up(&lab, &folder, Begun::AtDispatcher, &files, "policy = 'round_robin'");
    let mut clients = lab.at("client1", || (0..30).map(|_| (connect(), Vec::new())).collect::<Vec<_>>());
    for (stream, rest) in &mut clients {
        ask(stream, &["small"]);
        assert!(read_reply(stream, rest).expect("a reply") == files["small"]);
    }
    let held = lab.number("n1", "leat_flows");
    assert!(held > 0 && lab.number("n1", "leat_connections{worker=\"0\"}") >= held, "{held}");
    lab.stop("n1");
    // Longer than its lease: those of which it has told go on elsewhere, and others are cut, as nobody knows what it did last.
    let ends = ["leat_flows_cut_total", "leat_flows_recovered_total"];
    super::within("its flows are taken back", || {
        lab.numbers(ends.map(|name| ("dispatcher", 9180, name))).iter().sum::<u64>() >= held
    });
    let log = || fs::read_to_string(format!("/run/leat-lab/{}/dispatcher.log", lab.name)).unwrap_or_default();
    super::within("its end is said", || log().contains("node n1: its lease has run out"));
    lab.signal("n1", "-CONT");
    super::within("it knows that they are", || lab.number("n1", "leat_flows") == 0);
    let sockets =
        || lab.well(&["exec", "n1", "ss", "-Htn", "state", "established", "src", VIP.split(':').next().unwrap()]);
    super::within("nothing is left of them", || sockets().trim().is_empty());
}

/// Large files are hashed when they have been asked for, and go on elsewhere only under their tags.
pub(super) fn await_tags(lab: &Lab, name: &str) {
    for node in 1..=3 {
        let url = format!("http://10.77.0.1{node}/{name}");
        let has_tag = || lab.well(&["exec", "client1", "curl", "-sI", &url]).contains("ETag: \"");
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while !has_tag() {
            assert!(std::time::Instant::now() < until, "n{node} has hashed it");
        }
    }
}

#[test]
fn a_connection_that_rests_goes_on_elsewhere_when_its_node_dies() {
    rest_through_a_death(Begun::AtDispatcher);
}

#[test]
fn a_connection_that_rests_goes_on_elsewhere_when_its_node_dies_if_begun_at_a_node() {
    rest_through_a_death(Begun::AtNode);
}

fn rest_through_a_death(begun: Begun) {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("rests"));
    let files = BTreeMap::from([("small".to_owned(), content("small", 100))]);
    up(&lab, &folder, begun, &files, "policy = 'round_robin'");
    let mut clients = lab.at("client1", || (0..30).map(|_| (connect(), Vec::new())).collect::<Vec<_>>());
    let asks = |(stream, rest): &mut Client| {
        ask(stream, &["small"]);
        assert!(read_reply(stream, rest).expect("a reply") == files["small"]);
    };
    // Each rests, and once more: what it was told first is out of date.
    for told in [30, 60] {
        clients.iter_mut().for_each(asks);
        super::within("they rest", || total(&lab, "leat_rests_told_total") >= told);
    }
    let held = lab.number("n1", "leat_flows");
    assert!(held > 0, "{held}");
    lab.kill("n1");
    // What half of them ask before the dispatcher knows is sent again by their kernels.
    clients[..15].iter_mut().for_each(asks);
    super::within("they are elsewhere", || lab.number("dispatcher", "leat_flows_recovered_total") >= held);
    clients.iter_mut().for_each(asks);
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
}

/// Clients that have asked for `small` and rest, some of them at n1: how many.
fn at_rest(lab: &Lab, folder: &Folder, begun: Begun, files: &BTreeMap<String, Vec<u8>>) -> (Vec<Client>, u64) {
    up(lab, folder, begun, files, "policy = 'round_robin'");
    let mut clients = lab.at("client1", || (0..30).map(|_| (connect(), Vec::new())).collect::<Vec<_>>());
    clients.iter_mut().for_each(|(stream, _)| ask(stream, &["small"]));
    for (stream, rest) in &mut clients {
        assert!(read_reply(stream, rest).expect("a reply") == files["small"]);
    }
    within("they rest", || total(lab, "leat_rests_told_total") >= 30);
    let held = lab.number("n1", "leat_flows");
    assert!(held > 0, "{held}");
    (clients, held)
}

#[test]
fn a_request_that_its_dead_node_has_acknowledged_is_answered_elsewhere() {
    if !is_possible() {
        return;
    }
    for begun in [Begun::AtDispatcher, Begun::AtNode] {
        let (lab, folder) = (Lab::new(), Folder::new("asked"));
        let files = BTreeMap::from([("small".to_owned(), content("small", 100))]);
        let (mut clients, held) = at_rest(&lab, &folder, begun, &files);
        let reads = |(stream, rest): &mut Client| assert!(read_reply(stream, rest).expect("a reply") == files["small"]);
        // Its kernel goes on, and acknowledges what is asked.
        lab.stop("n1");
        clients.iter_mut().for_each(|(stream, _)| ask(stream, &["small"]));
        let unread = || lab.well(&["exec", "n1", "ss", "-Htn", "state", "established", "src", "10.77.0.100"]);
        let asked = || unread().lines().filter(|line| line.split_whitespace().next() != Some("0")).count() as u64;
        super::within("its kernel has all that is asked there", || asked() >= held);
        lab.kill("n1");
        clients.iter_mut().for_each(reads);
        assert!(lab.number("dispatcher", "leat_flows_recovered_total") >= held);
        assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
        // And on from there.
        clients.iter_mut().for_each(|(stream, _)| ask(stream, &["small"]));
        clients.iter_mut().for_each(reads);
    }
}

#[test]
fn what_a_dead_node_has_just_answered_goes_on_at_another() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("answered"));
    let files = BTreeMap::from([("small".to_owned(), content("small", 100))]);
    up(&lab, &folder, Begun::AtNode, &files, "policy = 'round_robin'");
    let mut clients = lab.at("client1", || (0..12).map(|_| (connect(), Vec::new())).collect::<Vec<_>>());
    let reads = |(stream, rest): &mut Client| assert!(read_reply(stream, rest).expect("a reply") == files["small"]);
    let asks = |(stream, _): &mut Client| ask(stream, &["small"]);
    clients.iter_mut().for_each(asks);
    clients.iter_mut().for_each(reads);
    // It can't tell of a rest any more.
    lab.stop("n1");
    let held = lab.number("dispatcher", "leat_flows");
    assert!(held > 0, "{held}");
    lab.kill("n1");
    clients.iter_mut().for_each(asks);
    clients.iter_mut().for_each(reads);
    assert!(lab.number("dispatcher", "leat_flows_recovered_total") > 0);
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
}

#[test]
fn what_a_dead_node_has_just_fetched_for_its_clients_is_told_of_too() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("fetched"));
    let names: Vec<String> = (0..24).map(|number| format!("f{number}")).collect();
    let files: BTreeMap<String, Vec<u8>> = names.iter().map(|name| (name.clone(), content(name, 6_000))).collect();
    // What another node has is fetched, mostly: it's short.
    up(&lab, &folder, Begun::AtNode, &files, "policy = 'consistent_hash'");
    let next = AtomicUsize::new(0);
    let asks = |(stream, rest): &mut Client| {
        let name = &names[next.fetch_add(1, Ordering::Relaxed) * 5 % names.len()];
        ask(stream, &[name]);
        assert!(read_reply(stream, rest).expect("a reply") == files[name], "{name} is as it should be");
    };
    let clients = lab.at("client1", || (0..12).map(|_| (connect(), Vec::new())).collect());
    let log = || fs::read_to_string(format!("/run/leat-lab/{}/dispatcher.log", lab.name)).unwrap_or_default();
    asking(clients, asks, || {
        within("they have asked for a while", || next.load(Ordering::Relaxed) > 2_000);
        let fullest = ["n1", "n2", "n3"].into_iter().max_by_key(|node| lab.number(node, "leat_flows"));
        let fullest = fullest.expect("there are three");
        lab.kill(fullest);
        within("its death is known", || log().contains(&format!("node {fullest}: its link is down")));
    });
    assert!(lab.number("dispatcher", "leat_flows_recovered_total") > 1);
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
}

#[test]
fn a_reply_goes_on_elsewhere_when_its_node_dies() {
    outlive_a_node(Begun::AtDispatcher);
}

#[test]
fn a_reply_goes_on_elsewhere_when_its_node_dies_if_begun_at_a_node() {
    outlive_a_node(Begun::AtNode);
}

fn outlive_a_node(begun: Begun) {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("death"));
    let files = BTreeMap::from([("big".to_owned(), content("big", 10_000_000))]);
    up(&lab, &folder, begun, &files, "policy = 'round_robin'");
    await_tags(&lab, "big");
    let outcomes = read_slowly(&lab, 12, "big", &files["big"], || lab.kill("n1"));
    let whole = outcomes.iter().filter(|outcome| matches!(outcome, Ok(true))).count();
    assert_eq!(whole, 12, "{outcomes:?}");
    assert!(lab.number("dispatcher", "leat_flows_recovered_total") >= 2, "some were at the node that died");
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
}

/// It began before the node had hashed the file, and nobody else has been asked for that.
#[test]
fn the_first_reply_of_a_large_file_goes_on_elsewhere_when_its_node_dies() {
    if !is_possible() {
        return;
    }
    for begun in [Begun::AtDispatcher, Begun::AtNode] {
        let (lab, folder) = (Lab::new(), Folder::new("untagged"));
        let files = BTreeMap::from([("big".to_owned(), content("big", 40_000_000))]);
        up(&lab, &folder, begun, &files, "policy = 'consistent_hash'\nload_bound_percent = 10000");
        let held = |node: &&str| super::foreign::held(&folder, node) > 0;
        let outcomes = read_slowly(&lab, 3, "big", &files["big"], || {
            let holders: Vec<_> = ["n1", "n2", "n3"].into_iter().filter(held).collect();
            assert_eq!(holders.len(), 1, "one node has been asked");
            // By then it has a tag, and the dispatcher knows.
            std::thread::sleep(Duration::from_secs(3));
            lab.kill(holders[0]);
        });
        let whole = outcomes.iter().filter(|outcome| matches!(outcome, Ok(true))).count();
        assert_eq!(whole, 3, "{outcomes:?}");
        assert_eq!(lab.number("dispatcher", "leat_flows_recovered_total"), 3);
        assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
    }
}

#[test]
fn connections_come_back_to_a_node_whose_process_died_with_them() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("back"));
    let big = content("big", 8 << 20);
    let files = BTreeMap::from([("big".to_owned(), big.clone())]);
    up(&lab, &folder, Begun::AtNode, &files, "policy = 'round_robin'");
    await_tags(&lab, "big");
    let socket = folder.path("leat.sock");
    let links = || fs::read_to_string(format!("/run/leat-lab/{}/dispatcher.log", lab.name)).unwrap_or_default();
    let is_up = |times| links().matches("node n1: its link is up").count() == times;
    let drain = |node: &str| assert!(tell(&socket, &["drain", node, "--timeout", "20"]).contains(" is empty after "));
    let outcomes = read_slowly(&lab, 12, "big", &big, || {
        lab.kill_engine("n1");
        within("it has its link again", || is_up(2));
        await_tags(&lab, "big");
        // All that n1 had has to go there again.
        drain("n2");
        drain("n3");
    });
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(true))), "{outcomes:?}");
    let said = fs::read_to_string(format!("/run/leat-lab/{}/n1.log", lab.name)).expect("its log");
    // Until it has read the file again it says so, and others are asked.
    let mut refused = said.lines().filter(|line| line.contains("isn't taken over"));
    assert!(refused.all(|line| line.ends_with("isn't the same here")), "{said}");
}

/// Reads all that a client that has ended its side is answered, up to the end of the connection.
fn read_to_the_end((stream, rest): &mut Client, replies: &[Vec<u8>]) {
    for reply in replies {
        assert!(read_reply(stream, rest).expect("a reply") == *reply, "another reply");
    }
    assert!(rest.is_empty() && stream.read(&mut [0]).expect("an end, and no reset") == 0, "more than it asked for");
}

#[test]
fn who_has_ended_its_side_gets_all_and_the_end_when_its_node_dies() {
    if !is_possible() {
        return;
    }
    for begun in [Begun::AtDispatcher, Begun::AtNode] {
        let (lab, folder) = (Lab::new(), Folder::new("ended"));
        let files =
            ["big", "small"].map(|name| (name.to_owned(), content(name, if name == "big" { 10_000_000 } else { 100 })));
        let files = BTreeMap::from(files);
        up(&lab, &folder, begun, &files, "policy = 'round_robin'");
        await_tags(&lab, "big");
        let mut clients = lab.at("client1", || (0..24).map(|_| (connect(), Vec::new())).collect::<Vec<_>>());
        for (place, (stream, rest)) in clients.iter_mut().enumerate() {
            ask(stream, if place % 2 == 0 { &["big"] } else { &["big", "small", "small"] });
            let mut room = [0; 10_000];
            stream.read_exact(&mut room).expect("the beginning of a reply");
            rest.extend_from_slice(&room);
            // Before that it wouldn't be handed over.
            stream.shutdown(Shutdown::Write).expect("it's open");
        }
        assert!(lab.number("n1", "leat_flows") >= 5, "some are there");
        lab.kill("n1");
        for (place, client) in clients.iter_mut().enumerate() {
            let names = if place % 2 == 0 { &["big"][..] } else { &["big", "small", "small"] };
            read_to_the_end(client, &names.iter().map(|name| files[*name].clone()).collect::<Vec<_>>());
        }
        assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
    }
}

#[test]
fn who_has_ended_its_side_is_answered_elsewhere_when_its_node_dies_with_the_request() {
    if !is_possible() {
        return;
    }
    for begun in [Begun::AtDispatcher, Begun::AtNode] {
        let (lab, folder) = (Lab::new(), Folder::new("ended-asked"));
        let files = BTreeMap::from([("small".to_owned(), content("small", 100))]);
        let (mut clients, held) = at_rest(&lab, &folder, begun, &files);
        lab.stop("n1");
        for (place, (stream, _)) in clients.iter_mut().enumerate() {
            // Some have nothing to ask any more.
            if place % 2 == 0 {
                ask(stream, &["small"]);
            }
            stream.shutdown(Shutdown::Write).expect("it's open");
        }
        let ended = || lab.well(&["exec", "n1", "ss", "-Htn", "state", "close-wait", "src", "10.77.0.100"]);
        within("its kernel has heard all of them", || ended().lines().count() as u64 >= held);
        lab.kill("n1");
        for (place, client) in clients.iter_mut().enumerate() {
            read_to_the_end(client, &vec![files["small"].clone(); 1 - place % 2]);
        }
        assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
    }
}

#[test]
fn content_that_is_too_long_is_refused_wherever_its_connection_began() {
    if !is_possible() {
        return;
    }
    for begun in [Begun::AtDispatcher, Begun::AtNode] {
        let (lab, folder) = (Lab::new(), Folder::new("too-long"));
        let files = BTreeMap::from([("small".to_owned(), content("small", 100))]);
        up(&lab, &folder, begun, &files, "policy = 'round_robin'");
        let (mut stream, mut rest) = lab.at("client1", || (connect(), Vec::new()));
        let request = "POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("it's open");
        let (head, _) = read_any_reply(&mut stream, &mut rest).expect("a reply");
        assert!(head.starts_with("HTTP/1.1 413 ") && head.contains("\r\nConnection: close"), "{head}");
        if begun == Begun::AtDispatcher {
            assert_eq!(lab.number("dispatcher", "leat_handoffs_total"), 1);
        }
    }
}
