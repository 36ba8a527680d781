//! Nodes whose server isn't leat: Debian's nginx, unmodified, in the nodes' namespaces. Says so and ends where there is none.

use std::fmt::Display;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leat_host::steering::gives_to_shared_listeners;

use super::{Folder, Lab, is_possible, replays, within};

const VIP: &str = "10.77.0.100:80";
/// What `leat ctl nodes` says of a node that gets requests.
const FIT: &str = "may be chosen";
pub(super) const SIZES: [usize; 3] = [1 << 10, 64 << 10, 3 << 20];

/// nginx at a node; ends with it.
pub(super) struct Nginx {
    process: Child,
    log: String,
    errors: String,
}

impl Nginx {
    /// Its workers share the address of their listeners, where the kernel gives connections to such listeners behind fronts too.
    pub(super) fn start(lab: &Lab, folder: &Folder, node: &str) -> Nginx {
        Nginx::start_with(lab, folder, node, if gives_to_shared_listeners() { "reuseport" } else { "" })
    }

    /// `options`: of how it listens.
    pub(super) fn start_with(lab: &Lab, folder: &Folder, node: &str, options: &str) -> Nginx {
        let at = |name: &str| folder.path(&format!("{node}-{name}"));
        let text = format!(
            "daemon off;\nworker_processes 2;\npid {};\nerror_log {};\nevents {{ worker_connections 512; }}\nhttp {{\n\
             log_format who '$remote_addr|$http_x_forwarded_for|$uri';\naccess_log {} who;\n\
             client_body_temp_path {};\nserver {{\nlisten 127.0.0.1:8080 {options};\nlisten [::1]:8080 {options};\n\
             root {};\nlocation = /health {{ if (-f {}) {{ return 503; }} return 200 well; }}\n\
             location = /a/switch {{ return 101; }}\n}}\n}}\n",
            at("pid"),
            at("error.log"),
            at("access.log"),
            at("body"),
            folder.path("site"),
            // Who writes this file has it say that it isn't well.
            at("ill"),
        );
        fs::write(at("nginx.conf"), text).expect("a configuration");
        let namespace = format!("--net=/run/netns/leat-lab-{}-{node}", lab.name);
        let mut command = Command::new("nsenter");
        command.args([&namespace, "nginx", "-c", &at("nginx.conf")]).stderr(Stdio::null());
        Nginx { process: command.spawn().expect("nsenter can be run"), log: at("access.log"), errors: at("error.log") }
    }

    /// Client, what was forwarded, and path, of every request but probes.
    pub(super) fn requests(&self) -> Vec<(String, String, String)> {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let fields = log.lines().map(|line| line.split('|').map(str::to_owned).collect::<Vec<_>>());
        let requests = fields.filter_map(|fields| <[String; 3]>::try_from(fields).ok().map(Into::into));
        requests.filter(|(_, _, path): &(String, String, String)| path != "/health").collect()
    }

    /// What it has complained of.
    pub(super) fn complaints(&self) -> String {
        fs::read_to_string(&self.errors).unwrap_or_default()
    }

    /// At once, with all its connections.
    pub(super) fn kill(&mut self) {
        self.signal("-KILL");
        self.process.wait().expect("it has ended");
    }

    fn signal(&self, signal: &str) {
        let parent = self.process.id();
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        // The parent first: it would have others in their place.
        let pids = [parent.to_string()].into_iter().chain(children.split_whitespace().map(str::to_owned));
        assert!(Command::new("kill").arg(signal).args(pids).status().is_ok_and(|status| status.success()));
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.process.id().to_string()).status();
        let _ = self.process.wait();
    }
}

pub(super) fn has_nginx() -> bool {
    let has = Command::new("nginx").arg("-v").output().is_ok();
    assert!(has || std::env::var_os("LEAT_REQUIRE_NAMESPACES").is_none(), "nginx is missing");
    if !has {
        println!("skipped: there is no nginx");
    }
    has
}

pub(super) fn content(size: usize) -> Vec<u8> {
    (0..size).map(|place| (place * 7 + place / 251) as u8).collect()
}

/// Two nodes with nginx, of which the dispatcher knows that they answer.
fn up(lab: &Lab, folder: &Folder, born: bool) -> [Nginx; 2] {
    up_with(lab, folder, &format!("born = {born}\npolicy = 'round_robin'"), ["", ""])
}

/// The same, with other words in `[cluster]` and at the nodes.
pub(super) fn up_with(lab: &Lab, folder: &Folder, cluster: &str, of_nodes: [impl Display; 2]) -> [Nginx; 2] {
    for size in SIZES {
        fs::write(folder.path(&format!("site/{size}")), content(size)).expect("a file to serve");
    }
    let servers = "for = ['127.0.0.1:8080', '[::1]:8080']";
    let [of_n1, of_n2] = of_nodes;
    let text = format!(
        "[admin]\nlisten = '127.0.0.1:9180'\nsocket = '{}'\n[cluster]\n{cluster}\nvip = ['10.77.0.100:80', '[fd77::100]:80']\n\
         dispatchers = ['10.77.0.1', 'fd77::1']\nkey_file = 'cluster.key'\nreport_interval = '50ms'\n\
         [cluster.health]\nslow_start = '0s'\n\
         [[cluster.node]]\nname = 'n1'\naddress = ['10.77.0.11', 'fd77::11']\n{servers}\n{of_n1}\n\
         [[cluster.node]]\nname = 'n2'\naddress = ['10.77.0.12', 'fd77::12']\n{servers}\n{of_n2}\n",
        folder.path("leat.sock")
    );
    fs::write(folder.path("cluster.toml"), text).expect("a configuration");
    lab.well(&["up", &folder.path("cluster.toml")]);
    let nodes = ["n1", "n2"].map(|node| Nginx::start(lab, folder, node));
    within("both servers answer", || ["n1", "n2"].iter().all(|node| state(folder, node) == FIT));
    nodes
}

fn ask(folder: &Folder, command: leat::ctl::Command) -> serde_json::Value {
    leat::ctl::ask(Path::new(&folder.path("leat.sock")), &command).expect("the dispatcher answers")
}

/// Whether a node may be chosen, by an engine that may be about to begin.
pub(super) fn is_fit(folder: &Folder, node: &str) -> bool {
    let nodes = leat::ctl::ask(Path::new(&folder.path("leat.sock")), &leat::ctl::Command::Nodes);
    nodes.is_ok_and(|nodes| standing(&nodes, node) == FIT)
}

fn standing(nodes: &serde_json::Value, node: &str) -> String {
    let found = nodes["nodes"].as_array().and_then(|nodes| nodes.iter().find(|known| known["name"] == node));
    found.and_then(|node| node["standing"].as_str()).unwrap_or_default().to_owned()
}

fn state(folder: &Folder, node: &str) -> String {
    standing(&ask(folder, leat::ctl::Command::Nodes), node)
}

/// Connections that a node has, by its dispatcher's books.
pub(super) fn held(folder: &Folder, node: &str) -> u64 {
    ask(folder, leat::ctl::Command::Flows)["nodes"][node].as_u64().expect("a number")
}

pub(super) fn get(stream: &mut TcpStream, size: usize, end: &str) -> std::io::Result<Vec<u8>> {
    stream.write_all(format!("GET /{size} HTTP/1.1\r\nHost: x\r\n{end}\r\n").as_bytes())?;
    read_reply(stream)
}

/// A reply's content, by its length.
pub(super) fn read_reply(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("a head");
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut content = vec![0; length.expect("a length")];
    stream.read_exact(&mut content)?;
    Ok(content)
}

#[test]
fn nginx_answers_under_the_vip_and_sees_the_clients() {
    if is_possible() && has_nginx() {
        nginx_answers("foreign", "");
    }
}

/// `of_node`: what each node's section says besides.
pub(super) fn nginx_answers(name: &str, of_node: &str) {
    let (lab, folder) = (Lab::new(), Folder::new(name));
    let mut servers = up_with(&lab, &folder, "policy = 'round_robin'", [of_node; 2]);
    assert!(of_node.is_empty() || replays::have_replayed(&lab));
    let turns = 60;
    lab.at("client1", || {
        for turn in 0..turns {
            let mut stream = TcpStream::connect(VIP).expect("the dispatcher listens");
            let size = SIZES[turn % SIZES.len()];
            assert!(get(&mut stream, size, "").expect("a reply") == content(size), "turn {turn}");
            assert!(get(&mut stream, SIZES[1], "Connection: close\r\n").expect("a reply") == content(SIZES[1]));
            assert_eq!(stream.read(&mut byte()).expect("an end, and no reset"), 0);
        }
    });
    // The same port again and again, and each time nginx has closed first: its kernel remembers the last connection.
    lab.at("client1", || {
        for turn in 0..turns {
            let mut stream = super::born::begin(41_000);
            let reply = get(&mut stream, SIZES[0], "Connection: close\r\n").expect("a reply");
            assert!(reply == content(SIZES[0]), "turn {turn}");
            assert_eq!(stream.read(&mut byte()).expect("an end, and no reset"), 0);
        }
    });
    let vip6 = lab.curl("client1", &format!("http://[fd77::100]/{}", SIZES[1]));
    assert_eq!(vip6, "200");
    let born = lab.number("dispatcher", "leat_births_total") as usize;
    let seen: Vec<_> = servers.iter().map(Nginx::requests).collect();
    assert_eq!(seen[0].len() + seen[1].len(), 3 * turns + 1);
    assert!(seen.iter().all(|seen| seen.len() > turns / 2), "{} and {} requests", seen[0].len(), seen[1].len());
    let is_clients = |client: &str| client == "198.18.0.1" || client.starts_with("2001:2:");
    if born > 0 {
        assert_eq!(born, 2 * turns + 1);
        let tells = |host: &str, program: &str, what: &str| {
            let page = lab.well(&["exec", host, "curl", "-s", "http://127.0.0.1:9180/metrics"]);
            page.contains(&format!("leat_steering_total{{program=\"{program}\",what=\"{what}\"}} "))
        };
        within("it's told what the programs have counted", || {
            tells("dispatcher", "dispatcher", "steered") && ["n1", "n2"].iter().all(|node| tells(node, "node", "born"))
        });
        assert!(seen.iter().flatten().all(|(client, _, _)| is_clients(client)), "{seen:?}");
    }

    // What begins slowly is proxied, byte for byte as well; an upload of several packets isn't.
    lab.at("client1", || {
        let mut slow = TcpStream::connect(VIP).expect("the dispatcher listens");
        slow.set_nodelay(true).expect("it's allowed");
        for byte in format!("GET /{}?slow HTTP/1.1\r\nHost: x\r\n\r\n", SIZES[2]).as_bytes() {
            slow.write_all(&[*byte]).expect("it's open");
            std::thread::yield_now();
        }
        assert!(read_reply(&mut slow).expect("a reply") == content(SIZES[2]));
        let mut upload = TcpStream::connect(VIP).expect("the dispatcher listens");
        upload.write_all(b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n").expect("it's open");
        upload.write_all(&vec![b'y'; 300_000]).expect("it's open");
        let mut status = [0; 12];
        upload.read_exact(&mut status).expect("a reply");
        assert_eq!(&status, b"HTTP/1.1 405");
    });
    let all = || servers.iter().flat_map(Nginx::requests).collect::<Vec<_>>();
    within("it's logged", || all().len() == 3 * turns + 3);
    let proxied: Vec<_> = all().into_iter().filter(|(_, told, _)| told != "-").collect();
    assert!(proxied.iter().all(|(_, told, _)| is_clients(told)), "{proxied:?}");
    assert!(!proxied.is_empty(), "a head byte by byte isn't one packet");
    if born == 0 {
        return println!("skipped: no connection can begin at a node here");
    }

    // A server that dies is given nothing new; its connections end as they would without leat.
    let mut kept = lab.at("client1", || {
        let connect = |_| {
            let mut stream = TcpStream::connect(VIP).expect("the dispatcher listens");
            get(&mut stream, SIZES[0], "").expect("a reply");
            stream
        };
        (0..8).map(connect).collect::<Vec<_>>()
    });
    within("they are counted", || held(&folder, "n1") + held(&folder, "n2") >= 8);
    let at_n1 = held(&folder, "n1");
    assert!(at_n1 > 0 && held(&folder, "n2") > 0);
    servers[0].kill();
    within("its node is down", || state(&folder, "n1") != FIT);
    let alive = kept.iter_mut().map(get_again).filter(|is_alive| *is_alive).count();
    assert!(alive as u64 + at_n1 >= 8, "what the other has goes on: {alive} of 8, and {at_n1} had ended");
    assert!(alive < 8, "what it had has ended");
    for _ in 0..10 {
        assert_eq!(lab.curl("client1", &format!("http://{VIP}/{}", SIZES[0])), "200");
    }
    servers[0] = Nginx::start(&lab, &folder, "n1");
    within("it's back", || state(&folder, "n1") == FIT);
}

#[test]
fn who_is_cut_as_soon_as_a_connection_has_begun_hears_so() {
    if !is_possible() || !has_nginx() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("foreign"));
    let mut servers = up(&lab, &folder, true);
    // More than the kernels on its way take.
    let large = fs::File::create(folder.path("site/large")).expect("a file to serve");
    large.set_len(64 << 20).expect("it's empty");
    // Heads of several packets are proxied, so connections begin at the dispatcher.
    let mut clients: Vec<_> = lab.at("client1", || {
        let begin = |_| {
            let mut stream = super::motion::connect();
            stream.set_nodelay(true).expect("it's allowed");
            for part in ["GET /large", " HTTP/1.1\r\nHost: x\r\n\r\n"] {
                stream.write_all(part.as_bytes()).expect("it's open");
            }
            stream
        };
        (0..4).map(begin).collect()
    });
    for stream in &mut clients {
        stream.read_exact(&mut [0; 100]).expect("a reply begins");
    }
    servers.iter_mut().for_each(Nginx::kill);
    for stream in &mut clients {
        let error = stream.read_to_end(&mut Vec::new()).expect_err("it can't be all of it");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
}

fn byte() -> [u8; 1] {
    [0]
}

fn get_again(stream: &mut TcpStream) -> bool {
    match get(stream, SIZES[0], "") {
        Ok(reply) => reply == content(SIZES[0]),
        Err(error) => {
            println!("{:?} ends: {error}", stream.local_addr());
            false
        }
    }
}

#[test]
fn connections_at_nginx_outlive_leat_and_a_drained_node_gets_no_more() {
    if !is_possible() || !has_nginx() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("foreign-life"));
    let servers = up(&lab, &folder, true);
    let connect = || {
        let mut stream = TcpStream::connect(VIP).expect("the dispatcher listens");
        get(&mut stream, SIZES[0], "").expect("a reply");
        stream
    };
    let mut clients = lab.at("client1", || (0..10).map(|_| connect()).collect::<Vec<_>>());
    if lab.number("dispatcher", "leat_births_total") == 0 {
        return println!("skipped: no connection can begin at a node here");
    }
    within("they are counted", || held(&folder, "n1") + held(&folder, "n2") == 10);
    let drain = leat::ctl::Command::Drain { node: "n1".to_owned() };
    ask(&folder, drain);
    let before = servers[0].requests().len();
    clients.extend(lab.at("client1", || (0..10).map(|_| connect()).collect::<Vec<_>>()));
    assert_eq!(servers[0].requests().len(), before, "nothing new");
    assert!(clients.iter_mut().all(get_again), "what it has stays until it ends");
    // leat dies at the other node, and with it nothing.
    kill_leat(&lab, "n2");
    within("its link is down", || state(&folder, "n2") != FIT);
    assert!(clients.iter_mut().all(get_again), "the kernel and nginx have them");
    // And so does the dispatcher. The next one finds entries that no node will ever claim: they're in nobody's books.
    lab.kill("dispatcher");
    within("it has ended", || lab.processes("dispatcher").is_empty());
    assert!(clients.iter_mut().all(get_again), "programs and entries are the kernel's");
    let mut again = super::restart::start(&lab, &folder.path("cluster.toml"), &folder.path("again.log"));
    let asked = || leat::ctl::ask(Path::new(&folder.path("leat.sock")), &leat::ctl::Command::Flows);
    within("it answers", || asked().is_ok());
    within("one node is back", || state(&folder, "n1") == FIT);
    within("they are counted again", || held(&folder, "n1") > 0);
    assert_eq!(lab.number("dispatcher", "leat_flows"), 0);
    assert!(lab.number("dispatcher", "leat_flow_entries") >= clients.len() as u64);
    assert!(clients.iter_mut().all(get_again));
    clients.extend(lab.at("client1", || [connect()]));
    assert_eq!(lab.number("dispatcher", "leat_births_total"), 1, "the entries in place hinder nothing");
    clients.clear();
    within("the node is empty", || held(&folder, "n1") == 0);
    lab.kill("dispatcher");
    again.wait().expect("it has ended");
}

#[test]
fn what_begins_while_no_node_is_there_begins_at_the_first_that_comes() {
    if !is_possible() || !has_nginx() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("foreign-first"));
    let mut servers = up(&lab, &folder, true);
    let connect = || TcpStream::connect(VIP).expect("programs answer, whoever lives");
    assert!(get_again(&mut lab.at("client1", connect)));
    if lab.number("dispatcher", "leat_births_total") == 0 {
        return println!("skipped: no connection can begin at a node here");
    }
    // The next dispatcher has no links yet.
    lab.kill_engine("dispatcher");
    let mut early = lab.at("client1", connect);
    assert!(get_again(&mut early));
    assert_eq!(lab.number("dispatcher", "leat_births_total"), 1);
    // And this one has links to nodes whose servers are away.
    servers.iter_mut().for_each(Nginx::kill);
    lab.kill_engine("dispatcher");
    let asked = || leat::ctl::ask(Path::new(&folder.path("leat.sock")), &leat::ctl::Command::Nodes);
    let is_away = |node| asked().is_ok_and(|nodes| standing(&nodes, node).contains("its own health checks"));
    within("both have said so", || is_away("n1") && is_away("n2"));
    let mut late = lab.at("client1", connect);
    late.write_all(format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", SIZES[0]).as_bytes()).expect("it's open");
    let _again = ["n1", "n2"].map(|node| Nginx::start(&lab, &folder, node));
    assert_eq!(read_reply(&mut late).expect("a reply"), content(SIZES[0]));
    let names = ["leat_births_total", "leat_node_waits_total"];
    assert_eq!(lab.numbers(names.map(|name| ("dispatcher", 9180, name))), [1, 1]);
    assert!(get_again(&mut late));
}

/// leat dies at a node, and its server doesn't.
pub(super) fn kill_leat(lab: &Lab, node: &str) {
    let leat: Vec<String> =
        lab.processes(node).split_whitespace().filter(|pid| is_leat(pid)).map(str::to_owned).collect();
    assert!(leat.len() >= 2, "a supervisor and an engine");
    // An engine that outlives its supervisor by a moment would put its books in order.
    let send = |signal| Command::new("kill").arg(signal).args(&leat).status().expect("there is kill").success();
    assert!(send("-STOP"));
    // An engine that has died with its supervisor can't be sent anything any more: what counts is that none is left.
    send("-KILL");
    within("leat dies", || !lab.processes(node).split_whitespace().any(|pid| leat.iter().any(|killed| killed == pid)));
}

fn is_leat(pid: &str) -> bool {
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("leat"))
}

#[test]
fn where_no_connection_can_begin_nginx_is_reached_by_proxy() {
    if !is_possible() || !has_nginx() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("foreign-proxy"));
    let servers = up(&lab, &folder, false);
    lab.at("client1", || {
        for size in SIZES {
            let mut stream = TcpStream::connect(VIP).expect("the dispatcher listens");
            let reply = get(&mut stream, size, "X-Forwarded-For: 192.0.2.66\r\n").expect("a reply");
            assert!(reply == content(size), "{}", String::from_utf8_lossy(&reply));
            assert!(get(&mut stream, size, "").expect("a reply") == content(size));
        }
    });
    let seen: Vec<_> = servers.iter().flat_map(Nginx::requests).collect();
    assert_eq!(seen.len(), 2 * SIZES.len());
    assert!(
        seen.iter().all(|(_, told, _)| told == "198.18.0.1"),
        "by the dispatcher's word and nobody else's: {seen:?}"
    );
    assert_eq!(lab.number("dispatcher", "leat_births_total"), 0);
    // Before anybody has looked: who never got a request isn't asked again for it.
    let [mut first, _second] = servers;
    first.kill();
    lab.at("client1", || {
        for turn in 0..40 {
            let mut stream = TcpStream::connect(VIP).expect("the dispatcher listens");
            assert!(get(&mut stream, SIZES[0], "").expect("a reply") == content(SIZES[0]), "turn {turn}");
        }
    });
    let retries = lab.number("dispatcher", "leat_upstream_retries_total{site=\"cluster\"}");
    println!("{retries} of 40 requests were passed on to the other");
}

/// Connections for which no listener of a host has had room.
fn overflows(lab: &Lab, host: &str) -> u64 {
    let counters = lab.well(&["exec", host, "nstat", "-asz", "TcpExtListenOverflows"]);
    let count = counters.lines().find_map(|line| line.strip_prefix("TcpExtListenOverflows")?.split_whitespace().next());
    count.expect("the kernel counts them").parse().expect("a number")
}

#[test]
fn who_finds_no_room_at_a_server_that_stands_still_waits_for_it() {
    // One more than it says fit into its queue. So many that some of them are looked at, and no more than find room together when they ask again.
    const BACKLOG: u64 = 23;
    const WITHOUT_ROOM: u64 = 24;
    // That often only after one that hears nothing would have been given up.
    const SAID: u64 = 6;
    if !is_possible() || !has_nginx() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("foreign-crowd"));
    let [mut n1, mut n2] = up(&lab, &folder, true);
    n2.kill();
    n1.kill();
    within("nobody is well", || ["n1", "n2"].iter().all(|node| state(&folder, node) != FIT));
    let n1 = Nginx::start_with(&lab, &folder, "n1", &format!("backlog={BACKLOG}"));
    within("n1 is back", || state(&folder, "n1") == FIT);
    n1.signal("-STOP");
    let ask = || {
        let mut stream = TcpStream::connect(VIP)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        get(&mut stream, SIZES[0], "")
    };
    std::thread::scope(|scope| {
        let (lab, ask) = (&lab, &ask);
        let begin = || scope.spawn(move || lab.at("client1", ask));
        let clients: Vec<_> = std::iter::repeat_with(begin).take((BACKLOG + 1 + WITHOUT_ROOM) as usize).collect();
        within("those without room have asked again", || overflows(lab, "n1") >= WITHOUT_ROOM * SAID);
        n1.signal("-CONT");
        for client in clients {
            assert_eq!(client.join().expect("it ends").expect("an answer"), content(SIZES[0]));
        }
    });
    assert_eq!(lab.number("dispatcher", "leat_replies_unheard_total"), 0);
    assert_eq!(lab.number("dispatcher", "leat_detours"), 0);
    assert!(n1.requests().iter().all(|(_, forwarded, _)| forwarded == "-"), "none was proxied");
}

#[test]
fn an_upgrade_beside_nginx_changes_links_once() {
    if !is_possible() || !has_nginx() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("upgraded"));
    let _servers = up(&lab, &folder, true);
    // A reply that is passed on keeps the old engine here until its client has it.
    let big = 8 << 20;
    fs::write(folder.path(&format!("site/{big}")), content(big)).expect("a file to serve");
    let mut stream = lab.at("client1", || {
        let mut stream = TcpStream::connect(("10.77.0.11", 80)).expect("leat listens beside its server");
        stream.write_all(format!("GET /{big} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).expect("it's open");
        stream.peek(&mut [0]).expect("its beginning");
        stream
    });
    let said = || fs::read_to_string(format!("/run/leat-lab/{}/dispatcher.log", lab.name)).unwrap_or_default();
    let ups = || said().matches("node n1: its link is up").count();
    lab.tell_supervisor("n1", "-USR2");
    within("its new process has a link", || ups() == 2 && state(&folder, "n1") == FIT);
    lab.at("client1", || {
        for turn in 0..20 {
            let mut stream = TcpStream::connect(VIP).expect("the dispatcher listens");
            assert!(get(&mut stream, SIZES[0], "").expect("a reply") == content(SIZES[0]), "turn {turn}");
        }
    });
    // It takes more than a second to see that this stands still.
    assert!(lab.number("dispatcher", "leat_births_total") >= 20);
    assert_eq!(ups(), 2, "{}", said());
    assert!(read_reply(&mut stream).expect("a reply") == content(big));
}
