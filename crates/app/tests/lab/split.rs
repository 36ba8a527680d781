//! Request splitting with the real binary: a connection server and its data servers in namespaces, and clients that can't tell them apart.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::{Folder, Lab, is_possible};

const VIP: &str = "10.77.0.100:80";
const SIZES: [usize; 5] = [4 << 10, 64 << 10, 300_000, 1 << 20, 10 << 20];

/// Files of all sizes, and a cluster that delegates as `split` says, each server with so many workers.
fn write_cluster(folder: &Folder, workers: u32, split: &str) {
    for size in SIZES {
        fs::write(folder.path(&format!("site/{size}")), content(size)).expect("a file to serve");
    }
    let text = format!(
        "workers = {workers}\nrole = 'connection_server'\n[admin]\nsocket = '{}'\n[cluster]\nvip = '{VIP}'\ndispatchers = '10.99.0.1'\n\
         key_file = 'cluster.key'\npolicy = 'round_robin'\n[[cluster.node]]\nname = 'ds1'\naddress = '10.99.0.11'\n\
         [[cluster.node]]\nname = 'ds2'\naddress = '10.99.0.12'\n[split]\n{split}\n[[site]]\nroot = 'site'\n",
        folder.path("leat.sock")
    );
    fs::write(folder.path("cluster.toml"), text).expect("a configuration");
}

/// No two places of a file are alike nearby.
fn content(size: usize) -> Vec<u8> {
    (0..size).map(|place| (place.wrapping_mul(2_654_435_761) >> 13) as u8 ^ (size >> 3) as u8).collect()
}

fn connect() -> TcpStream {
    let stream = TcpStream::connect(VIP).expect("the connection server listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("it's a socket");
    stream
}

fn request(size: usize) -> String {
    format!("GET /{size} HTTP/1.1\r\nHost: x\r\n\r\n")
}

/// Reads a reply and compares its content.
fn expect_reply(stream: &mut TcpStream, size: usize) -> io::Result<()> {
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

fn ask(stream: &mut TcpStream, size: usize) {
    stream.write_all(request(size).as_bytes()).expect("it can be sent");
    expect_reply(stream, size).expect("a reply");
}

#[test]
fn requests_are_split_and_no_client_can_tell() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(21), Folder::new("split"));
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
    assert_eq!(given, lab.number("ds1", taken) + lab.number("ds2", taken), "every one of them was taken");
    assert_eq!(lab.number("cs", "leat_flows_cut_total"), 0);
    let explained = leat::ctl::Command::Split { request: format!("GET /{}", SIZES[1]) };
    let explained = leat::ctl::ask(folder.path("leat.sock").as_ref(), &explained).expect("it answers");
    assert_eq!(explained["delegated"], true, "{explained}");
    assert!(explained["delegating_us"].as_f64().is_some_and(|us| us > 0.0), "{explained}");
}

#[test]
fn data_servers_and_links_are_out_of_clients_reach() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(22), Folder::new("hidden"));
    write_cluster(&folder, 1, "delegation = 'full'");
    lab.well(&["up", &folder.path("cluster.toml")]);
    let reached = lab.at("client1", || {
        let hosts = ["10.99.0.1", "10.99.0.11", "10.99.0.12", "10.77.0.100"];
        let ports = [22, 80, 443, 7450, 8080, 9180];
        let addresses = hosts.iter().flat_map(|host| ports.map(|port| format!("{host}:{port}")));
        let is_open = |address: &String| {
            let address: SocketAddr = address.parse().expect("it's written as an address");
            TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok()
        };
        addresses.filter(is_open).collect::<Vec<_>>()
    });
    assert_eq!(reached, ["10.77.0.100:80"], "what a port scan finds");
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
    let (lab, folder) = (Lab::new(23), Folder::new("dead"));
    write_cluster(&folder, 1, "delegation = 'full'\nsize_min = '1KiB'");
    lab.well(&["up", &folder.path("cluster.toml")]);
    lab.at("client1", || {
        // They have these: what they did last isn't known.
        let mut taken: Vec<TcpStream> = (0..4).map(|_| connect()).collect();
        taken.iter_mut().for_each(|stream| ask(stream, SIZES[0]));
        // And are offered those, but don't get to take them.
        let mut offered: Vec<TcpStream> = (0..4).map(|_| connect()).collect();
        ["ds1", "ds2"].iter().for_each(|host| lab.stop(host));
        offered.iter_mut().for_each(|stream| stream.write_all(request(SIZES[1]).as_bytes()).expect("it can be sent"));
        ["ds1", "ds2"].iter().for_each(|host| lab.kill(host));
        offered.iter_mut().for_each(|stream| expect_reply(stream, SIZES[1]).expect("a reply"));
        for mut stream in taken {
            let end = stream.read(&mut [0]).map_err(|error| error.kind());
            assert_eq!(end, Err(io::ErrorKind::ConnectionReset), "it's told, without having said more");
        }
        offered.iter_mut().for_each(|stream| ask(stream, SIZES[2]));
        SIZES.iter().for_each(|&size| ask(&mut connect(), size));
    });
    assert!(lab.number("cs", "leat_flows_recovered_total") >= 1, "what had been offered came back");
    assert_eq!(lab.number("cs", "leat_flows_cut_total"), 4);
}

#[test]
fn data_servers_die_under_load_and_no_client_hangs() {
    if !is_possible() {
        return;
    }
    let (lab, folder) = (Lab::new(24), Folder::new("load"));
    write_cluster(&folder, 2, "delegation = 'full'\nsize_min = '1KiB'");
    lab.well(&["up", &folder.path("cluster.toml")]);
    let (clients, rounds) = (16, 40);
    let begun = std::sync::Barrier::new(clients + 1);
    // How often each was told that its connection is over: no reply is half another's, and nobody waits in vain.
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
    // One may have gone to the server that died second.
    assert!(ends.iter().all(|&ends| ends <= 3), "{ends:?}");
    lab.at("client1", || SIZES.iter().for_each(|&size| ask(&mut connect(), size)));
}
