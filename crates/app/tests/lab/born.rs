//! Connections that begin at nodes, and those that can't: what clients do that isn't one packet with a request. On a kernel without what that needs
//! all of it must hold as well, by moving them.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};

use super::motion::tell;
use super::{Folder, Lab, is_possible, within};

const VIP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 100), 80);
const REQUEST: &[u8] = b"GET /page HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
const CONTENT: &[u8] = b"what is there";
/// The same port so often, and each time the node has closed first.
const TURNS: usize = 100;

/// A connection, from a port of its own or one that's named.
pub(super) fn begin(port: u16) -> TcpStream {
    // Programs that another test starts meanwhile aren't to have it: it would stay open, and wrk counts descriptors.
    let client = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket");
    sockopt::set_socket_reuseaddr(&client, true).expect("it's allowed");
    bind(&client, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).expect("the port is free");
    // Until the other side has acknowledged the end of the port's last connection, this side still has it.
    let deadline = Instant::now() + Duration::from_secs(5);
    while let Err(error) = connect(&client, &SocketAddr::V4(VIP)) {
        assert!(error == Errno::ADDRNOTAVAIL && Instant::now() < deadline, "the dispatcher doesn't answer: {error}");
        std::thread::yield_now();
    }
    let stream = TcpStream::from(client);
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a time-out");
    stream
}

fn ask(port: u16) -> TcpStream {
    let mut stream = begin(port);
    stream.write_all(REQUEST).expect("it's open");
    stream
}

fn is_answered(mut stream: TcpStream) -> bool {
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).expect("a reply");
    reply.starts_with(b"HTTP/1.1 200 ") && reply.ends_with(CONTENT)
}

#[test]
fn connections_begin_at_nodes_or_are_moved_there_and_all_are_answered() {
    are_all_answered(1);
}

#[test]
fn connections_begin_at_the_worker_of_a_node_that_a_worker_of_the_dispatcher_has_chosen() {
    are_all_answered(3);
}

fn are_all_answered(workers: u32) {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("born"));
    fs::write(folder.path("site/page"), CONTENT).expect("a file to serve");
    let text = format!(
        "workers = {workers}\n\
                [cluster]\nvip = '10.77.0.100:80'\ndispatchers = '10.77.0.1'\nkey_file = 'cluster.key'\n\
                [[cluster.node]]\nname = 'n1'\naddress = '10.77.0.11'\n[[cluster.node]]\nname = 'n2'\naddress = '10.77.0.12'\n\
                [admin]\nlisten = '127.0.0.1:9180'\n[[site]]\nroot = 'site'\n"
    );
    fs::write(folder.path("cluster.toml"), text).expect("a configuration");
    lab.well(&["up", &folder.path("cluster.toml")]);
    let counted = || {
        let number = |name| lab.number("dispatcher", name) as usize;
        (number("leat_births_total"), number("leat_handoffs_total"))
    };
    // Workers have their links one after the other: until all have, some connections are moved. Where the kernel can't do births, all are.
    let all_begin_at_nodes = || {
        let (before, _) = counted();
        lab.at("client1", || (0..12).for_each(|_| assert!(is_answered(ask(0)))));
        counted().0 == before + 12
    };
    (0..20).find(|_| all_begin_at_nodes());
    let before = counted();
    lab.at("client1", || {
        for turn in 0..TURNS {
            assert!(is_answered(ask(41_000)), "turn {turn}");
        }
        // Half a head, and a head that is longer than a packet.
        let mut slow = begin(0);
        slow.write_all(&REQUEST[..9]).expect("it's open");
        std::thread::sleep(Duration::from_millis(50));
        slow.write_all(&REQUEST[9..]).expect("it's open");
        assert!(is_answered(slow));
        let mut long = begin(0);
        let head = REQUEST.strip_suffix(b"\r\n").expect("its end");
        long.write_all(&[head, b"Filling: ", &[b'x'; 4_000], b"\r\n\r\n"].concat()).expect("it's open");
        assert!(is_answered(long));
        // Nothing at all: the end is told, and isn't a reset.
        let mut nothing = begin(0);
        nothing.shutdown(Shutdown::Write).expect("it's open");
        assert_eq!(nothing.read(&mut [0; 9]).expect("an end"), 0);
        // A body of several packets: the node says what it thinks of it.
        let mut upload = begin(0);
        upload
            .write_all(b"POST /page HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 30000\r\n\r\n")
            .expect("open");
        upload.write_all(&[b'y'; 30_000]).expect("it's open");
        let mut status = [0; 13];
        upload.read_exact(&mut status).expect("a reply");
        assert_eq!(&status, b"HTTP/1.1 405 ");
        fs::write("/proc/sys/net/ipv4/tcp_timestamps", "0").expect("root may");
        let mut timeless = begin(0);
        timeless.write_all(REQUEST).expect("it's open");
        assert!(is_answered(timeless));
    });
    let (born, moved) = counted();
    let (born, moved) = (born - before.0, moved - before.1);
    assert_eq!(born + moved, TURNS + 4);
    // A long head comes in one piece where packets are put together on the way.
    assert!(born == 0 || [TURNS + 1, TURNS + 2].contains(&born), "{born} began at a node");
    assert_eq!(lab.number("dispatcher", "leat_flows"), 0, "the books are empty");
}

#[test]
fn connections_that_begin_between_two_reports_are_shared_out() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("shared-out"));
    fs::write(folder.path("site/page"), CONTENT).expect("a file to serve");
    let text = "[cluster]\nvip = '10.77.0.100:80'\ndispatchers = '10.77.0.1'\nkey_file = 'cluster.key'\npolicy = 'least_connections'\n\
                [cluster.health]\nslow_start = '0s'\n\
                [[cluster.node]]\nname = 'n1'\naddress = '10.77.0.11'\n[[cluster.node]]\nname = 'n2'\naddress = '10.77.0.12'\n\
                [admin]\nlisten = '127.0.0.1:9180'\n[[site]]\nroot = 'site'\n";
    fs::write(folder.path("cluster.toml"), text).expect("a configuration");
    lab.well(&["up", &folder.path("cluster.toml")]);
    // All stay open: the ones before it count for each.
    let clients: Vec<TcpStream> = lab.at("client1", || {
        (0..60)
            .map(|_| {
                let mut stream = begin(0);
                stream.write_all(b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n").expect("it's open");
                stream.read_exact(&mut [0; 12]).expect("a reply");
                stream
            })
            .collect()
    });
    let taken =
        ["n1", "n2"].map(|node| lab.number(node, "leat_births_total") + lab.number(node, "leat_handoffs_total"));
    assert!(taken.iter().all(|taken| *taken >= 15), "{taken:?} of {}", clients.len());
}

#[test]
fn what_has_begun_at_a_node_stays_there_though_its_link_is_full() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("full"));
    let content: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(folder.path("site/page"), &content).expect("a file to serve");
    let text = "[cluster]\nvip = '10.77.0.100:80'\ndispatchers = '10.77.0.1'\nkey_file = 'cluster.key'\n\
                [[cluster.node]]\nname = 'n1'\naddress = '10.77.0.11'\n[admin]\nlisten = '127.0.0.1:9180'\n[[site]]\nroot = 'site'\n\
                [lab]\nnode_rate_mbit = 40\n";
    fs::write(folder.path("cluster.toml"), text).expect("a configuration");
    lab.well(&["up", &folder.path("cluster.toml")]);
    lab.at("client1", || {
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..2 {
                        let (mut stream, mut reply) = (begin(0), Vec::new());
                        stream.write_all(REQUEST).expect("it's open");
                        stream.read_to_end(&mut reply).expect("a reply");
                        assert!(reply.ends_with(&content), "{} bytes came", reply.len());
                    }
                });
            }
        });
    });
    let at_home = |name| lab.number("dispatcher", name);
    assert_eq!((at_home("leat_handoffs_returned_total"), at_home("leat_flows_cut_total")), (0, 0));
}

#[test]
fn requests_that_a_node_never_took_are_answered_by_another() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("untaken"));
    fs::write(folder.path("site/page"), CONTENT).expect("a file to serve");
    let text = "[cluster]\nvip = '10.77.0.100:80'\ndispatchers = '10.77.0.1'\nkey_file = 'cluster.key'\npolicy = 'round_robin'\n\
                [[cluster.node]]\nname = 'n1'\naddress = '10.77.0.11'\n[[cluster.node]]\nname = 'n2'\naddress = '10.77.0.12'\n\
                [admin]\nlisten = '127.0.0.1:9180'\n[[site]]\nroot = 'site'\n";
    fs::write(folder.path("cluster.toml"), text).expect("a configuration");
    lab.well(&["up", &folder.path("cluster.toml")]);
    lab.stop("n1");
    lab.at("client1", || {
        let mut clients: Vec<TcpStream> = (0..8).map(|_| begin(0)).collect();
        clients.iter_mut().for_each(|stream| stream.write_all(REQUEST).expect("it's open"));
        assert!(clients.into_iter().all(is_answered));
    });
    if lab.number("dispatcher", "leat_births_total") == 0 {
        return println!("skipped: no connection can begin at a node here");
    }
    assert!(lab.number("dispatcher", "leat_flows_recovered_total") >= 1, "n1 had its turn");
    assert_eq!(lab.number("dispatcher", "leat_flows_cut_total"), 0);
    // Whose lease has run out: what waits in its queue is nothing to it any more.
    lab.signal("n1", "-CONT");
    within("nothing is left", || lab.number("n1", "leat_connections{worker=\"0\"}") <= 1);
    lab.at("client1", || {
        for _ in 0..4 {
            let mut stream = begin(0);
            stream.write_all(REQUEST).expect("it's open");
            assert!(is_answered(stream));
        }
    });
}

#[test]
fn who_waits_at_a_full_node_that_is_stopped_is_answered_by_another() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("waits"));
    fs::write(folder.path("site/page"), CONTENT).expect("a file to serve");
    let socket = folder.path("leat.sock");
    let text = format!(
        "[admin]\nsocket = '{socket}'\n[limits]\nconnections = 16\n[cluster]\nvip = '10.77.0.100:80'\ndispatchers = '10.77.0.1'\n\
         key_file = 'cluster.key'\npolicy = 'round_robin'\n[[cluster.node]]\nname = 'n1'\naddress = '10.77.0.11'\n\
         [[cluster.node]]\nname = 'n2'\naddress = '10.77.0.12'\n[[site]]\nroot = 'site'\n"
    );
    fs::write(folder.path("cluster.toml"), text).expect("a configuration");
    lab.well(&["up", &folder.path("cluster.toml")]);
    tell(&socket, &["drain", "n2", "--timeout", "20"]);
    lab.at("client1", || {
        let mut clients: Vec<TcpStream> = (0..20).map(|_| begin(0)).collect();
        // They do something that nobody else may do in its place.
        let request = b"POST /page HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";
        clients.iter_mut().for_each(|stream| stream.write_all(request).expect("it's open"));
        let answered = |stream: &mut TcpStream| {
            let mut status = [0; 12];
            stream.read_exact(&mut status).map(|()| assert_eq!(&status, b"HTTP/1.1 405")).map_err(|error| error.kind())
        };
        // The last ones wait until others have gone.
        clients[..16].iter_mut().for_each(|stream| answered(stream).expect("a reply"));
        tell(&socket, &["ctl", "resume", "n2"]);
        lab.tell_supervisor("n1", "-TERM");
        let rest: Vec<_> = clients[16..].iter_mut().map(answered).collect();
        assert_eq!(rest, [Ok(()); 4]);
    });
}

/// Many ask for a few things, each over connections of its own: from the second one on the dispatcher's kernel knows where they begin.
#[test]
fn what_many_ask_for_begins_at_nodes_without_the_dispatcher_being_asked() {
    const CLIENTS: usize = 8;
    const REQUESTS: usize = 150;
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(), Folder::new("unasked"));
    for page in 0..4 {
        fs::write(folder.path(&format!("site/page{page}")), format!("page {page}")).expect("a file to serve");
    }
    let text = "workers = 2\n[cluster]\nvip = '10.77.0.100:80'\ndispatchers = '10.77.0.1'\nkey_file = 'cluster.key'\n\
                [[cluster.node]]\nname = 'n1'\naddress = '10.77.0.11'\n[[cluster.node]]\nname = 'n2'\naddress = '10.77.0.12'\n\
                [admin]\nlisten = '127.0.0.1:9180'\n[[site]]\nroot = 'site'\n";
    fs::write(folder.path("cluster.toml"), text).expect("a configuration");
    lab.well(&["up", &folder.path("cluster.toml")]);
    let at_home = |name| lab.number("dispatcher", name);
    // Ports are used again, which kernels at nodes have in TIME_WAIT: that what ends it is dropped there says nothing of how much room there is.
    let ask_all = || {
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                scope.spawn(move || {
                    for turn in 0..REQUESTS {
                        let port = 20_000 + client as u16;
                        let (mut stream, mut reply, page) = (begin(port), Vec::new(), (client + turn) % 4);
                        let request = format!(
                            "GET /page{page} HTTP/1.1\r\nHost: x\r\nX-Turn: {turn}\r\nConnection: close\r\n\r\n"
                        );
                        stream.write_all(request.as_bytes()).expect("it's open");
                        stream.read_to_end(&mut reply).expect("a reply");
                        assert!(reply.ends_with(format!("page {page}").as_bytes()), "client {client}, turn {turn}");
                    }
                });
            }
        });
    };
    lab.at("client1", ask_all);
    let before = at_home("leat_births_unasked_total");
    lab.at("client1", ask_all);
    if at_home("leat_births_total") == 0 {
        return println!("skipped: no connection can begin at a node here");
    }
    within("the books are empty", || at_home("leat_flows") == 0);
    assert!(before > (CLIENTS * REQUESTS / 4) as u64, "most are asked for in time");
    assert!(at_home("leat_births_unasked_total") - before > (CLIENTS * REQUESTS / 4) as u64, "and later on");
    assert_eq!(at_home("leat_births_put_off_total"), 0);
    assert_eq!((at_home("leat_flows_cut_total"), at_home("leat_flows_recovered_total")), (0, 0));
    // Each content has been at one node.
    let answered = |node| lab.number(node, "leat_births_total");
    assert_eq!(answered("n1") + answered("n2"), at_home("leat_births_total"));
}
