//! A connection server that is stopped hands everything to its peer: no client can tell, whatever it was doing.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::split::{Cluster, ONLY, SIZES, VIP, ask, connect, connect_to, content, expect_reply, request};
use super::{Folder, Lab, is_possible, within};

/// The smallest and that one are the connection server's own; the others, and so the largest, are delegated.
const SPLIT: &str = "delegation = 'full'\npaths = ['/65536', '/300000', '/1048576']\nrequests_max = 3\npeer = 'b'";
const OWN: usize = 2_000_000;
const LARGE: usize = SIZES[3];

/// Two connection servers and a data server; the second is the first one's peer.
struct Servers {
    lab: Lab,
    folder: Folder,
    file: String,
    workers: u32,
}

impl Servers {
    fn up(name: &str, workers: u32) -> Servers {
        let (lab, folder) = (Lab::new(), Folder::new(name));
        let both = [("ds1", "10.99.0.11"), ("b", "10.99.0.2")];
        // On a busy machine nothing is to end but by what is tested.
        let rest = "[limits]\nhead_timeout = '2m'\nstall_timeout = '2m'\n";
        let first = Cluster { data_servers: &both, split: SPLIT, workers, rest, ..ONLY };
        let second =
            Cluster { vip: "10.77.0.101:80", own: "10.99.0.2", admin_port: 9181, data_servers: &both[..1], ..ONLY };
        let file = first.write(&folder, "first");
        fs::write(folder.path(&format!("site/{OWN}")), content(OWN)).expect("a file to serve");
        lab.well(&["up", &file, &second.write(&folder, "second")]);
        let servers = Servers { lab, folder, file, workers };
        servers.wait_for_links(&format!("/run/leat-lab/{}/cs1.log", servers.lab.name));
        servers
    }

    /// Until each worker has its link to the peer.
    fn wait_for_links(&self, log: &str) {
        let said = || fs::read_to_string(log).unwrap_or_default();
        within("the peer is linked", || said().matches("node b: its link is up").count() >= self.workers as usize);
    }

    /// Stops the first connection server, and waits until it has ended.
    fn stop(&self) {
        self.lab.tell_supervisor("cs1", "-TERM");
        within("it has ended", || self.lab.processes("cs1").is_empty());
    }

    /// Starts it again.
    fn start(&self) -> Child {
        let namespace = format!("/run/netns/leat-lab-{}-cs1", self.lab.name);
        let program = std::env::var_os("LEAT_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_leat").into());
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={namespace}")).arg(program).args(["connection-server", "--config", &self.file]);
        let log = self.folder.path("again.log");
        let file = fs::File::create(&log).expect("a file for what it says");
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn().expect("nsenter can be run");
        self.wait_for_links(&log);
        child
    }

    fn number(&self, host: &str, name: &str) -> u64 {
        self.lab.number(host, name)
    }
}

/// Clients that don't pause, each on a connection of one request or a few and then on the next, while something happens. How many replies there were.
fn under_load(lab: &Lab, work: impl FnOnce() + Send) -> u64 {
    let (is_over, replies) = (AtomicBool::new(false), AtomicU64::new(0));
    lab.at("client1", || {
        std::thread::scope(|scope| {
            for number in 0..8 {
                let (is_over, replies) = (&is_over, &replies);
                scope.spawn(move || {
                    for round in 0.. {
                        if is_over.load(Ordering::Relaxed) {
                            return;
                        }
                        let mut stream = connect();
                        // Who has one request only ends the connection while it is about to move, sooner or later.
                        let requests = if number % 2 == 0 { 5 } else { 1 };
                        for size in SIZES[..3].iter().cycle().skip(number + round).take(requests) {
                            ask(&mut stream, *size);
                            replies.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            // Also when something is in vain: they would go on for ever.
            let _end = Ends(&is_over);
            within("they're at it", || replies.load(Ordering::Relaxed) > 100);
            work();
            let before = replies.load(Ordering::Relaxed);
            within("they go on", || replies.load(Ordering::Relaxed) > before + 100);
        });
    });
    replies.into_inner()
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A download of which the beginning has come.
fn begin(size: usize) -> (TcpStream, Vec<u8>) {
    let mut stream = connect();
    stream.write_all(request(size).as_bytes()).expect("it can be sent");
    let mut beginning = vec![0; 4096];
    stream.read_exact(&mut beginning).expect("it comes");
    (stream, beginning)
}

fn finish((mut stream, mut came): (TcpStream, Vec<u8>), size: usize) -> TcpStream {
    let head = came.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
    let begun = came.len();
    came.resize(head + size, 0);
    stream.read_exact(&mut came[begun..]).expect("the rest of it");
    assert!(came[head..] == content(size), "other bytes than those of the file of {size}");
    stream
}

#[test]
fn a_connection_server_that_is_stopped_hands_everything_to_its_peer() {
    stop_and_start("peer", 1);
}

#[test]
fn every_worker_of_a_connection_server_hands_over_what_it_has() {
    stop_and_start("peer-workers", 2);
}

fn stop_and_start(name: &str, workers: u32) {
    if !is_possible() {
        return;
    }
    let servers = Servers::up(name, workers);
    let lab = &servers.lab;
    // Only what is provably the same content goes on elsewhere: a file that has just been written isn't.
    let is_tagged = |size: &usize| begin(*size).1.windows(5).any(|bytes| bytes == b"ETag:");
    within("files are old enough", || lab.at("client1", || [OWN, LARGE, LARGE].iter().all(is_tagged)));
    let (mut idle, half, downloads) = lab.at("client1", || {
        let asked = |size: &usize| {
            let mut stream = connect();
            ask(&mut stream, *size);
            stream
        };
        let idle: Vec<TcpStream> = SIZES[..4].iter().cycle().take(20).map(asked).collect();
        let mut half = connect();
        half.write_all(&request(SIZES[1]).as_bytes()[..20]).expect("it can be sent");
        let downloads: Vec<_> = [OWN, LARGE].iter().cycle().take(8).map(|&size| (begin(size), size)).collect();
        (idle, half, downloads)
    });
    under_load(lab, || servers.stop());
    let inherited = servers.number("cs2", "leat_connections_inherited_total");
    assert!(inherited >= 20 + 1 + 8, "{inherited} are the peer's");
    let refused = servers.number("cs2", "leat_handoffs_refused_total");
    assert_eq!(refused, 0, "nothing that is there is refused");
    let go_on = |idle: &mut Vec<TcpStream>| {
        lab.at("client1", || {
            idle.iter_mut().zip(SIZES[..4].iter().cycle().skip(1)).for_each(|(stream, size)| ask(stream, *size));
            ask(&mut connect(), SIZES[0]);
        });
    };
    let mut half = half;
    lab.at("client1", || {
        half.write_all(&request(SIZES[1]).as_bytes()[20..]).expect("it can be sent");
        expect_reply(&mut half, SIZES[1]).expect("a reply");
        for (download, size) in downloads {
            idle.push(finish(download, size));
        }
    });
    idle.push(half);
    go_on(&mut idle);

    // It's back: what begins is its own, and the peer keeps what it has.
    let mut again = None;
    under_load(lab, || again = Some(servers.start()));
    go_on(&mut idle);
    assert!(servers.number("cs1", "leat_requests_delegated_total") > 0);
    lab.at("client1", || idle.extend((0..4).map(|_| connect())));
    go_on(&mut idle);

    // And is stopped once more; now its machine goes as well, and the peer gets the address.
    under_load(lab, || servers.stop());
    again.expect("it was started").wait().expect("it has ended");
    lab.well(&["exec", "cs1", "ip", "link", "set", "eth0", "down"]);
    lab.well(&["exec", "cs2", "ip", "addr", "add", "10.77.0.100/32", "dev", "eth0"]);
    // Whoever asks for the router's address tells it the own: what `arping -U` does, and VRRP.
    lab.well(&["exec", "cs2", "sysctl", "-qw", "net.ipv4.conf.all.arp_announce=0"]);
    lab.well(&["exec", "cs2", "ip", "neigh", "flush", "dev", "eth0"]);
    lab.at("cs2", || {
        let socket = UdpSocket::bind("10.77.0.100:0").expect("the address is this host's");
        socket.send_to(b"here", "10.77.0.254:9").expect("it can be sent");
    });
    go_on(&mut idle);
    assert_eq!(servers.number("cs2", "leat_flows_cut_total"), 0);
    lab.at("client1", || ask(&mut connect_to("10.77.0.101:80"), SIZES[0]));
}

#[test]
fn without_its_peer_a_connection_server_ends_as_any_server() {
    if !is_possible() {
        return;
    }
    let servers = Servers::up("peerless", 1);
    let lab = &servers.lab;
    lab.kill("cs2");
    within("its link is down", || servers.number("cs1", "leat_flows") == 0);
    let download = lab.at("client1", || begin(OWN));
    lab.tell_supervisor("cs1", "-TERM");
    lab.at("client1", || finish(download, OWN));
    within("it has ended", || lab.processes("cs1").is_empty());
    let refused =
        lab.at("client1", || TcpStream::connect_timeout(&VIP.parse().expect("an address"), Duration::from_secs(5)));
    assert!(refused.is_err(), "nobody listens");
}
