//! Request splitting with the real binary: a connection server and its data servers in namespaces, and clients that can't tell them apart.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::motion::read_slowly;
use super::{Folder, Lab, is_possible, within};

pub(super) const VIP: &str = "10.77.0.100:80";
pub(super) const SIZES: [usize; 5] = [4 << 10, 64 << 10, 300_000, 1 << 20, 10 << 20];

/// A connection server: what clients know it by, its own address, its data servers, what it delegates, and more of its file.
pub(super) struct Cluster<'a> {
    pub(super) vip: &'a str,
    pub(super) own: &'a str,
    pub(super) admin_port: u16,
    pub(super) data_servers: &'a [(&'a str, &'a str)],
    pub(super) split: &'a str,
    pub(super) workers: u32,
    pub(super) rest: &'a str,
}

const TWO: [(&str, &str); 2] = [("ds1", "10.99.0.11"), ("ds2", "10.99.0.12")];
pub(super) const ONLY: Cluster<'_> =
    Cluster { vip: VIP, own: "10.99.0.1", admin_port: 9180, data_servers: &TWO, split: "", workers: 1, rest: "" };

impl Cluster<'_> {
    /// Writes its file, and files of all sizes to serve.
    pub(super) fn write(&self, folder: &Folder, name: &str) -> String {
        for size in SIZES {
            fs::write(folder.path(&format!("site/{size}")), content(size)).expect("a file to serve");
        }
        let Cluster { vip, own, admin_port, data_servers, split, workers, rest } = self;
        let nodes =
            data_servers.iter().map(|(name, at)| format!("[[cluster.node]]\nname = '{name}'\naddress = '{at}'\n"));
        let text = format!(
            "workers = {workers}\nrole = 'connection_server'\n[admin]\nlisten = '127.0.0.1:{admin_port}'\nsocket = '{}'\n[cluster]\n\
             vip = '{vip}'\ndispatchers = '{own}'\nkey_file = 'cluster.key'\npolicy = 'round_robin'\n{}[split]\n{split}\n[[site]]\n\
             root = 'site'\nlisten = '{vip}'\n{rest}",
            folder.path(&format!("{name}.sock")),
            nodes.collect::<String>()
        );
        let file = folder.path(&format!("{name}.toml"));
        fs::write(&file, text).expect("a configuration");
        file
    }
}

/// Files of all sizes, and a cluster that delegates as `split` says, each server with so many workers.
fn write_cluster(folder: &Folder, workers: u32, split: &str) {
    Cluster { workers, split, ..ONLY }.write(folder, "cluster");
}

/// No two places of a file are alike nearby.
pub(super) fn content(size: usize) -> Vec<u8> {
    (0..size).map(|place| (place.wrapping_mul(2_654_435_761) >> 13) as u8 ^ (size >> 3) as u8).collect()
}

pub(super) fn connect() -> TcpStream {
    connect_to(VIP)
}

pub(super) fn connect_to(vip: &str) -> TcpStream {
    let stream = TcpStream::connect(vip).expect("the connection server listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("it's a socket");
    stream
}

pub(super) fn request(size: usize) -> String {
    format!("GET /{size} HTTP/1.1\r\nHost: x\r\n\r\n")
}

/// Reads a reply and compares its content.
pub(super) fn expect_reply(stream: &mut TcpStream, size: usize) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
    let mut body = vec![0; size];
    stream.read_exact(&mut body)?;
    assert!(body == content(size), "other bytes than those of the file of {size}");
    Ok(())
}

pub(super) fn ask(stream: &mut TcpStream, size: usize) {
    stream.write_all(request(size).as_bytes()).expect("it can be sent");
    expect_reply(stream, size).expect("a reply");
}

#[test]
fn requests_are_split_and_no_client_can_tell() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("split"));
    write_cluster(&folder, 2, "delegation = 'full'\nsize_min = '64KiB'\nrequests_max = 3");
    lab.well(&["up", &folder.path("cluster.toml")]);
    lab.at("client1", || {
        SIZES.iter().for_each(|&size| ask(&mut connect(), size));
        // Small ones come home to the connection server, large ones go, and what stays at a data server goes on to the other after three.
        let mut stream = connect();
        for size in SIZES.iter().chain(SIZES.iter().rev()).chain(&SIZES) {
            ask(&mut stream, *size);
        }
        // All at once: in order, whoever answers.
        let mut stream = connect();
        let order = [SIZES[0], SIZES[3], SIZES[0], SIZES[1], SIZES[2], SIZES[2], SIZES[2], SIZES[0], SIZES[3]];
        stream.write_all(order.map(request).concat().as_bytes()).expect("it can be sent");
        order.iter().for_each(|&size| expect_reply(&mut stream, size).expect("a reply"));
        // An upload that nobody takes, and a request after it on the same connection.
        stream.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc").expect("it can be sent");
        stream.write_all(request(SIZES[1]).as_bytes()).expect("it can be sent");
        let mut reply = [0; 12];
        stream.read_exact(&mut reply).expect("a reply");
        assert_eq!(&reply, b"HTTP/1.1 405");
    });
    let (delegated, taken) = ("leat_requests_delegated_total", "leat_handoffs_total");
    let (given, returned) = (lab.number("cs", delegated), lab.number("cs", "leat_handoffs_returned_total"));
    assert!(given >= 12 && returned >= 6, "{given} given, {returned} returned");
    let taken = lab.total(["ds1", "ds2"], taken);
    assert!(
        (8..=given).contains(&taken),
        "{given} given, {taken} taken: the others came home, and went back to the same"
    );
    assert_eq!(lab.number("cs", "leat_flows_cut_total"), 0);
    let explained = leat::ctl::Command::Split { request: format!("GET /{}", SIZES[1]), client: None };
    let explained = leat::ctl::ask(folder.path("cluster.sock").as_ref(), &explained).expect("it answers");
    assert_eq!(explained["delegated"], true, "{explained}");
    assert!(explained["delegating_us"].as_f64().is_some_and(|us| us > 0.0), "{explained}");
}

#[test]
fn what_is_explained_is_so() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("explain"));
    let rest = "precompressed = ['gz']\n[[site.handler]]\npath = '/moved'\n[site.handler.redirect]\nto = '/'\n";
    let file = Cluster { split: "delegation = 'full'\nsize_min = '4KiB'", rest, ..ONLY }.write(&folder, "cluster");
    let text = fs::read_to_string(&file).expect("it's there");
    fs::write(&file, text.replace("address = '10.99.0.1", "paths = '/only/*'\naddress = '10.99.0.1"))
        .expect("it's written");
    fs::write(folder.path("site/coded"), content(70_000)).expect("a file");
    fs::write(folder.path("site/coded.gz"), content(9_000)).expect("another");
    lab.well(&["up", &file]);
    let explain = |path: &str| {
        let command = leat::ctl::Command::Split { request: format!("GET /{path}"), client: None };
        leat::ctl::ask(folder.path("cluster.sock").as_ref(), &command)
    };
    let ask_for = |path: &str, encoding: &str| {
        let url = format!("http://{VIP}/{path}");
        lab.well(&["exec", "client1", "curl", "-s", "-m", "5", "-o", "/dev/null", "-H", encoding, &url]);
    };
    ask_for(&SIZES[1].to_string(), "X: y");
    let told = explain(&SIZES[1].to_string()).expect("it's known");
    let said = told["text"].as_str().expect("a text");
    assert!(told["delegated"] == false && said.contains("no data server serves it"), "{said}");
    assert!(said.contains("goes nowhere: no node serves this host and path"), "{said}");
    ask_for("coded", "Accept-Encoding: gzip");
    let told = explain("coded").expect("it's known as well");
    assert_eq!((&told["bytes"], &told["coding"]), (&9_000.into(), &"gzip".into()), "{told}");
    ask_for("coded", "X: y");
    let told = explain("coded").expect("it's known as it is");
    assert_eq!((&told["bytes"], told["coding"].is_null()), (&70_000.into(), true), "{told}");
    assert!(explain("moved").is_err_and(|why| why.contains("a handler answers")));
}

#[test]
fn a_connection_that_is_left_at_a_data_server_stays_for_as_many_requests_again() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("again"));
    let split = "delegation = 'full'\nrequests_max = 3";
    Cluster { data_servers: &TWO[..1], split, ..ONLY }.write(&folder, "cluster");
    lab.well(&["up", &folder.path("cluster.toml")]);
    lab.at("client1", || {
        let mut stream = connect();
        (0..12).for_each(|_| ask(&mut stream, SIZES[1]));
    });
    // With the fourth request, the seventh and the tenth.
    assert_eq!(lab.number("cs", "leat_handoffs_returned_total"), 3);
    assert_eq!(lab.number("cs", "leat_requests_delegated_total"), 4);
}

#[test]
fn what_a_data_server_does_not_have_its_connection_server_answers() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("lacking"));
    // They have one file, and a page of their own for whatever they don't have.
    fs::create_dir_all(folder.path("files/ds1")).expect("a directory of the data server's");
    fs::write(folder.path(&format!("files/ds1/{}", SIZES[1])), content(SIZES[1])).expect("a file to serve");
    for at in ["files/ds1", "site"] {
        fs::write(folder.path(&format!("{at}/page")), "a page").expect("a file to serve");
    }
    let split = "delegation = 'full'\nrequests_max = 3";
    let rest = "fallback = '/page'\n[lab]\nnode_files = 'files'\n";
    Cluster { data_servers: &TWO[..1], split, rest, ..ONLY }.write(&folder, "cluster");
    lab.well(&["up", &folder.path("cluster.toml")]);
    lab.at("client1", || {
        // Known at the connection server from here on, so that connections begin at the data server with them.
        for _ in 0..2 {
            [1, 2, 3].into_iter().for_each(|place| ask(&mut connect(), SIZES[place]));
        }
        let mut stream = connect();
        for place in [1, 2, 1, 1, 3, 2, 1, 1, 1, 1, 2] {
            ask(&mut stream, SIZES[place]);
        }
        let places = [1, 1, 2, 3, 1];
        stream.write_all(places.map(|place| request(SIZES[place])).concat().as_bytes()).expect("it can be sent");
        places.into_iter().for_each(|place| expect_reply(&mut stream, SIZES[place]).expect("a reply"));
    });
    assert!(lab.number("cs", "leat_handoffs_returned_total") > 4, "they went there");
    assert_eq!(lab.number("cs", "leat_flows_cut_total"), 0);
}

#[test]
fn data_servers_and_links_are_out_of_clients_reach() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("hidden"));
    write_cluster(&folder, 1, "delegation = 'full'");
    lab.well(&["up", &folder.path("cluster.toml")]);
    let flows = ["leat_flows", "leat_handoffs_total", "leat_flows_cut_total"];
    let [at_cs, at_ds] = ["cs", "ds1"].map(|host| flows.map(|name| (host, 9180, name)));
    let state = || (lab.numbers(at_cs), lab.numbers(at_ds));
    let before = state();
    // As a client that takes a data server's address for its own, and the router for the way to the servers.
    for command in ["addr add 10.99.0.11/32 dev lo", "route add 10.99.0.0/24 via 198.18.0.254 src 10.99.0.11"] {
        let words: Vec<&str> = ["exec", "client1", "ip"].into_iter().chain(command.split(' ')).collect();
        lab.well(&words);
    }
    let is_open = |host: &str, port: u16| {
        let address: SocketAddr = format!("{host}:{port}").parse().expect("it's written as an address");
        TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok()
    };
    let open = lab.at("client1", || {
        let hosts = ["10.99.0.1", "10.99.0.12"];
        let hidden = hosts.iter().flat_map(|host| [22, 80, 443, 7450, 8080, 9180].map(|port| (*host, port)));
        let seen = (1..=u16::MAX).map(|port| ("10.77.0.100", port));
        hidden.chain(seen).filter(|(host, port)| is_open(host, *port)).collect::<Vec<_>>()
    });
    assert_eq!(open, [("10.77.0.100", 80)], "what a port scan finds");
    // What the link's port would be told, to every address, by either protocol.
    lab.at("client1", || {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("it's a socket");
        for host in ["10.99.0.1", "10.99.0.12", "10.77.0.100"] {
            for message in [&b"\x09\x20\x01\x02\x03"[..], &[0xff; 1024]] {
                let _ = socket.send_to(message, (host, 7450));
            }
        }
        assert!(socket.recv(&mut [0; 64]).is_err(), "nothing answers");
    });
    assert_eq!(state(), before, "nothing has changed");
    lab.well(&["exec", "client1", "ip", "route", "del", "10.99.0.0/24"]);
    // From the servers' own network, without the key: whatever is said, nothing comes of it.
    lab.at("ds2", || {
        for message in [&b"\x09\x20\x01\x02\x03"[..], &[0xff; 4096], b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"] {
            let mut stream = TcpStream::connect("10.99.0.1:7450").expect("links are awaited there");
            stream.set_read_timeout(Some(Duration::from_secs(10))).expect("it's a socket");
            let _ = stream.write_all(message).and_then(|()| stream.shutdown(std::net::Shutdown::Write));
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
        }
    });
    lab.at("client1", || SIZES.iter().for_each(|&size| ask(&mut connect(), size)));
    assert_eq!(lab.number("cs", "leat_flows_cut_total"), 0);
}

#[test]
fn no_client_waits_for_dead_data_servers() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("dead"));
    write_cluster(&folder, 1, "delegation = 'full'\nsize_min = '1KiB'");
    lab.well(&["up", &folder.path("cluster.toml")]);
    lab.at("client1", || {
        // They have these, and have told of what they answered.
        let mut taken: Vec<TcpStream> = (0..4).map(|_| connect()).collect();
        taken.iter_mut().for_each(|stream| ask(stream, SIZES[0]));
        // These ask again before anybody knows that they have died.
        let mut asking: Vec<TcpStream> = (0..4).map(|_| connect()).collect();
        asking.iter_mut().for_each(|stream| ask(stream, SIZES[1]));
        // And are offered those, but don't get to take them.
        let mut offered: Vec<TcpStream> = (0..4).map(|_| connect()).collect();
        ["ds1", "ds2"].iter().for_each(|host| lab.stop(host));
        offered.iter_mut().for_each(|stream| stream.write_all(request(SIZES[1]).as_bytes()).expect("it can be sent"));
        ["ds1", "ds2"].iter().for_each(|host| lab.kill(host));
        asking.iter_mut().for_each(|stream| stream.write_all(request(SIZES[0]).as_bytes()).expect("it can be sent"));
        offered.iter_mut().for_each(|stream| expect_reply(stream, SIZES[1]).expect("a reply"));
        asking.iter_mut().for_each(|stream| expect_reply(stream, SIZES[0]).expect("a reply"));
        taken.iter_mut().for_each(|stream| ask(stream, SIZES[0]));
        offered.iter_mut().for_each(|stream| ask(stream, SIZES[2]));
        SIZES.iter().for_each(|&size| ask(&mut connect(), size));
    });
    let recovered = lab.number("cs", "leat_flows_recovered_total");
    // Of those that were being offered, the ones that the death came to know of before their requests did are answered at once.
    assert!(recovered >= 8, "what had been taken came back: {recovered}");
    assert_eq!(lab.number("cs", "leat_flows_cut_total"), 0);
}

#[test]
fn data_servers_die_under_load_and_no_client_hangs() {
    let ends = die_under_load("delegation = 'full'\nsize_min = '1KiB'");
    // One may have gone to the server that died second.
    assert!(ends.iter().all(|&ends| ends <= 3), "{ends:?}");
}

#[test]
fn data_servers_die_whose_replies_were_told_with_their_connections() {
    let ends = die_under_load("delegation = 'full'\nsize_min = '1KiB'\nrequests_max = 1");
    assert!(ends.iter().all(|&ends| ends <= 3), "{ends:?}");
}

/// How often each client was told that its connection is over, while all data servers die: no reply is half another's, and nobody waits in vain.
fn die_under_load(split: &str) -> Vec<u32> {
    if !is_possible() {
        return Vec::new();
    }
    let (lab, folder) = (Lab::new(), Folder::new("load"));
    write_cluster(&folder, 2, split);
    lab.well(&["up", &folder.path("cluster.toml")]);
    let (clients, rounds) = (16, 40);
    let begun = std::sync::Barrier::new(clients + 1);
    let client = |number: usize| {
        let (mut stream, mut ends) = (connect(), 0);
        for round in 0..rounds {
            if round == rounds / 4 {
                begun.wait();
            }
            let size = SIZES[(number + round) % 4];
            let mut answered = stream.write_all(request(size).as_bytes());
            answered = answered.and_then(|()| expect_reply(&mut stream, size));
            if let Err(error) = answered {
                let waited = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                assert!(!waited, "client {number} waits for nothing");
                (stream, ends) = (connect(), ends + 1);
            }
        }
        ends
    };
    let ends: Vec<u32> = lab.at("client1", || {
        std::thread::scope(|scope| {
            let client = &client;
            let threads: Vec<_> = (0..clients).map(|number| scope.spawn(move || client(number))).collect();
            begun.wait();
            ["ds1", "ds2"].iter().for_each(|host| lab.kill(host));
            threads.into_iter().map(|thread| thread.join().expect("no client panics")).collect()
        })
    });
    lab.at("client1", || SIZES.iter().for_each(|&size| ask(&mut connect(), size)));
    ends
}

#[test]
fn a_connection_server_that_is_upgraded_or_stopped_takes_home_what_data_servers_have() {
    if !is_possible() {
        return;
    }
    for delegation in ["full", "partial"] {
        let (lab, folder) = (Lab::new(), Folder::new("home"));
        write_cluster(&folder, 2, &format!("delegation = '{delegation}'\nsize_min = '64KiB'"));
        lab.well(&["up", &folder.path("cluster.toml")]);
        let size = SIZES[4];
        let mut kept: Vec<TcpStream> = lab.at("client1", || (0..20).map(|_| connect()).collect());
        kept.iter_mut().for_each(|stream| ask(stream, SIZES[3]));
        let read_while = |signal: &(dyn Fn() + Sync)| {
            let replies = read_slowly(&lab, 6, &size.to_string(), &content(size), signal);
            assert!(replies.iter().all(|reply| matches!(reply, Ok(true))), "{delegation}: {replies:?}");
        };
        let processes = || lab.processes("cs").split_whitespace().count();
        read_while(&|| {
            lab.tell_supervisor("cs", "-USR2");
            within("another engine is there", || processes() == 3);
        });
        // Whoever is there goes to the other one.
        within("the old one ends", || processes() == 2);
        let passed = lab.number("cs", "leat_connections_taken_total");
        assert!(passed >= kept.len() as u64, "{delegation}: {passed}");
        for _ in 0..2 {
            kept.iter_mut().for_each(|stream| ask(stream, SIZES[3]));
        }
        read_while(&|| lab.tell_supervisor("cs", "-TERM"));
    }
}

#[test]
fn servers_that_are_reloaded_to_fewer_workers_cut_nothing() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("splitfewer"));
    let (own, delegated) = (content(34 << 20), content(38 << 20));
    fs::create_dir_all(folder.path("site")).expect("a folder to serve");
    fs::write(folder.path("site/own"), &own).expect("a file to serve");
    fs::write(folder.path("site/delegated"), &delegated).expect("a file to serve");
    let write = |workers| {
        // Much less than the replies take.
        let rest = "[limits]\ndrain_timeout = '1s'\n";
        let split = "delegation = 'full'\nsize_min = '36MiB'";
        Cluster { workers, split, rest, ..ONLY }.write(&folder, "cluster");
    };
    write(2);
    lab.well(&["up", &folder.path("cluster.toml")]);
    let mut idle = lab.at("client1", || (0..20).map(|_| connect()).collect::<Vec<_>>());
    lab.at("client1", || idle.iter_mut().for_each(|stream| ask(stream, SIZES[0])));
    let mut of_delegated = Vec::new();
    let of_own = read_slowly(&lab, 6, "own", &own, || {
        of_delegated = read_slowly(&lab, 6, "delegated", &delegated, || {
            write(1);
            ["cs", "ds1", "ds2"].iter().for_each(|host| lab.reload(host));
        });
    });
    let are_whole = |outcomes: &[io::Result<bool>]| outcomes.iter().all(|outcome| matches!(outcome, Ok(true)));
    assert!(are_whole(&of_own) && are_whole(&of_delegated), "{of_own:?}, delegated: {of_delegated:?}");
    lab.at("client1", || idle.iter_mut().for_each(|stream| ask(stream, SIZES[0])));
    assert_eq!(lab.number("cs", "leat_flows_cut_total"), 0);
}

#[test]
fn what_an_upgraded_connection_server_doesnt_get_back_in_time_is_reset() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("given-up"));
    let split = "delegation = 'full'\nsize_min = '64KiB'";
    let file = Cluster { split, rest: "[limits]\ndrain_timeout = '1s'\n", ..ONLY }.write(&folder, "cluster");
    let big = content(64 << 20);
    fs::write(folder.path("site/big"), &big).expect("a file to serve");
    lab.well(&["up", &file]);
    let mut idle = lab.at("client1", connect);
    ask(&mut idle, SIZES[0]);
    let replies = read_slowly(&lab, 4, "big", &big, || {
        // Nobody but the data servers that have it open can go on with it.
        fs::write(folder.path("site/other"), "other").expect("a file");
        fs::rename(folder.path("site/other"), folder.path("site/big")).expect("it's there");
        lab.tell_supervisor("cs", "-USR2");
    });
    let kinds: Vec<_> = replies.iter().map(|reply| reply.as_ref().map_err(io::Error::kind)).collect();
    assert!(kinds.iter().all(|kind| *kind == Err(io::ErrorKind::ConnectionReset)), "{kinds:?}");
    let log = fs::read_to_string(format!("/run/leat-lab/{}/cs.log", lab.name)).expect("its log");
    assert_eq!(log.matches("4 connections are cut: ").count(), 1, "{log}");
    ask(&mut idle, SIZES[0]);
}

#[test]
fn clients_of_a_connection_server_that_died_are_reset_wherever_their_connections_were() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("orphans"));
    write_cluster(&folder, 1, "delegation = 'full'\nsize_min = '4KiB'");
    lab.well(&["up", &folder.path("cluster.toml")]);
    let mut idle: Vec<TcpStream> = lab.at("client1", || (0..6).map(|_| connect()).collect());
    idle.iter_mut().for_each(|stream| ask(stream, SIZES[1]));
    assert_eq!(lab.total(["ds1", "ds2"], "leat_flows"), 6, "data servers have them");
    lab.kill_engine("cs");
    // They say nothing themselves: nobody but the next engine can tell them.
    for mut stream in idle {
        let heard = stream.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(heard, Err(io::ErrorKind::ConnectionReset));
    }
    within("no entry is left", || lab.number("cs", "leat_flow_entries") == 0);
}

#[test]
fn a_connection_that_comes_home_is_passed_on_without_a_socket() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("passed-on"));
    let split = "delegation = 'full'\nsize_min = '64KiB'\nrequests_max = 1";
    lab.well(&["up", &Cluster { data_servers: &TWO[..1], split, ..ONLY }.write(&folder, "cluster")]);
    let requests = 9;
    lab.at("client1", || {
        let mut stream = connect();
        (0..requests).for_each(|_| ask(&mut stream, SIZES[1]));
        // Now one that is the connection server's.
        ask(&mut stream, SIZES[0]);
        ask(&mut stream, SIZES[1]);
    });
    let number = |name| lab.number("cs", name);
    // Each but the first comes home first. Only before the first and the last there was a socket to take.
    assert_eq!(number("leat_requests_delegated_total"), requests + 1);
    assert_eq!(number("leat_handoffs_returned_total"), requests);
    assert_eq!(number("leat_requests_kept_total"), 1);
    assert_eq!((number("leat_flows_cut_total"), lab.number("ds1", "leat_handoffs_total")), (0, 2));
}

#[test]
fn connections_begin_at_data_servers_and_stay_there_though_links_are_full() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("begin"));
    let split = "delegation = 'full'\nsize_min = '64KiB'";
    let rest = "[lab]\nnode_rate_mbit = 40\ndispatcher_rate_mbit = 40\n";
    lab.well(&["up", &Cluster { split, rest, ..ONLY }.write(&folder, "cluster")]);
    let (clients, rounds) = (16, 2);
    lab.at("client1", || {
        // Now their sizes are known to the connection server.
        [SIZES[0], SIZES[1], SIZES[2]].into_iter().for_each(|size| ask(&mut connect(), size));
        std::thread::scope(|scope| {
            for _ in 0..clients {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let mut stream = connect();
                        ask(&mut stream, SIZES[2]);
                        // One that goes home, and one that is lent anew.
                        ask(&mut stream, SIZES[0]);
                        ask(&mut stream, SIZES[1]);
                    }
                });
            }
        });
    });
    let number = |name| lab.number("cs", name);
    if number("leat_births_total") == 0 {
        return println!("skipped: no connection can begin at a data server here");
    }
    let all = clients * rounds;
    // One whose file's size had to be looked up anew began at the connection server.
    let born = number("leat_births_total");
    assert!((all / 2..=all).contains(&born), "{born} of {all} began there");
    assert_eq!(number("leat_handoffs_returned_total"), all, "each went home once, between two replies");
    // The first two, and two of each connection, but for one or the other that was kept on a busy machine.
    let delegated = number("leat_requests_delegated_total");
    assert!((2 * all - 2..=2 * all + 2).contains(&delegated), "{delegated} were delegated");
    assert_eq!(number("leat_flows_cut_total"), 0);
}

#[test]
fn a_reload_says_where_connections_begin() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("where"));
    let full = "delegation = 'full'\nsize_min = '64KiB'";
    let write = |split| Cluster { split, ..ONLY }.write(&folder, "cluster");
    lab.well(&["up", &write(full)]);
    // The second one's size is known.
    let begin = || {
        lab.at("client1", || {
            [(), ()].map(|()| {
                let mut stream = connect();
                ask(&mut stream, SIZES[1]);
                stream
            })
        })
    };
    let [_, mut early] = begin();
    let born = || lab.number("cs", "leat_births_total");
    if born() == 0 {
        return println!("skipped: no connection can begin at a data server here");
    }
    for split in ["delegation = 'partial'", "delegation = 'full'\nsize_min = '64KiB'\npeer = 'ds1'"] {
        write(split);
        lab.reload("cs");
        let before = born();
        begin();
        assert_eq!(born(), before, "{split}");
        lab.at("client1", || ask(&mut early, SIZES[1]));
    }
    write(full);
    lab.reload("cs");
    let before = born();
    begin();
    assert!(born() > before, "they begin there again");
    assert_eq!(lab.number("cs", "leat_flows_cut_total"), 0);
}

#[test]
fn connection_servers_share_a_data_server() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("shared"));
    let one = [("ds1", "10.99.0.11")];
    let split = "delegation = 'full'\nsize_min = '64KiB'";
    let first = Cluster { data_servers: &one, split, ..ONLY };
    let second = Cluster { vip: "10.77.0.101:80", own: "10.99.0.2", admin_port: 9181, ..first };
    lab.well(&["up", &first.write(&folder, "first"), &second.write(&folder, "second")]);
    asked_by_turns(&lab, [first.vip, second.vip]);
    for (host, port) in [("cs1", 9180), ("cs2", 9181)] {
        let delegated = lab.number_at(host, port, "leat_requests_delegated_total");
        assert_eq!(delegated, lab.number_at("ds1", port, "leat_handoffs_total"), "{host}");
        assert!(delegated >= 2, "{host} has delegated {delegated}");
        assert_eq!(lab.number_at(host, port, "leat_flows_cut_total"), 0);
    }
}

#[test]
fn every_server_is_its_peers_data_server() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("peers"));
    let split = "delegation = 'full'\nsize_min = '64KiB'";
    let first = Cluster { data_servers: &[("b", "10.99.0.2")], split, ..ONLY };
    let other = [("a", "10.99.0.1")];
    let second =
        Cluster { vip: "10.77.0.101:80", own: "10.99.0.2", admin_port: 9181, data_servers: &other, split, ..ONLY };
    lab.well(&["up", &first.write(&folder, "first"), &second.write(&folder, "second")]);
    asked_by_turns(&lab, [first.vip, second.vip]);
    for (host, peer, port) in [("cs1", "cs2", 9180), ("cs2", "cs1", 9181)] {
        let delegated = lab.number_at(host, port, "leat_requests_delegated_total");
        assert_eq!(delegated, lab.number_at(peer, port, "leat_handoffs_total"), "{host}");
        assert!(delegated >= 2, "{host} has delegated {delegated}");
        assert_eq!(lab.number_at(host, port, "leat_flows_cut_total"), 0);
    }
}

/// All sizes of both, on connections that stay, one after the other.
fn asked_by_turns(lab: &Lab, vips: [&str; 2]) {
    lab.at("client1", || {
        let mut streams = vips.map(connect_to);
        for size in SIZES.iter().chain(SIZES.iter().rev()).chain(&SIZES) {
            streams.iter_mut().for_each(|stream| ask(stream, *size));
        }
    });
}

#[test]
fn links_are_equally_busy_with_short_connections() {
    // The kernel takes such a reply at once, and the connection is closed behind it: it counts until the client has it.
    expect_balance(SIZES[1], 10, 30..=70);
}

#[test]
fn links_are_equally_busy_with_long_replies() {
    // All wait for the same file to be looked up, and are judged one after the other. Each counts once, and where it is, for as long as it's being sent.
    expect_balance(SIZES[3], 2, 40..=60);
}

/// Short connections for replies of `size` bytes, so many of each client after the other, on links that bind: so many in a hundred are to be delegated.
fn expect_balance(size: usize, rounds: u64, expected: std::ops::RangeInclusive<u64>) {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("links"));
    let rest = "[lab]\nnode_rate_mbit = 40\ndispatcher_rate_mbit = 40\n";
    lab.well(&["up", &Cluster { data_servers: &TWO[..1], rest, ..ONLY }.write(&folder, "cluster")]);
    let clients = 16;
    lab.at("client1", || {
        std::thread::scope(|scope| {
            for _ in 0..clients {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let mut stream = connect();
                        let request = format!("GET /{size} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
                        stream.write_all(request.as_bytes()).expect("it can be sent");
                        expect_reply(&mut stream, size).expect("a reply");
                    }
                });
            }
        });
    });
    let percent = lab.number("cs", "leat_requests_delegated_total") * 100 / (clients * rounds);
    assert!(expected.contains(&percent), "{percent} % were delegated");
}
