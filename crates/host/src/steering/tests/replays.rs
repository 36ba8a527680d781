//! Connections at servers that aren't leat whose handshakes are replayed.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use super::born::Options;
use super::layout::RawReplay;
use super::transplant::Planting;
use super::*;
use crate::tap::{self, Tap};
use leat_logic::handoff::WindowScale;

const KEY: [u8; 16] = [7; 16];

fn shell(command: &str) {
    assert!(Command::new("sh").args(["-c", command]).status().unwrap().success(), "{command}");
}

/// Where a frame's TCP header begins.
fn tcp_at(frame: &[u8]) -> usize {
    if frame[12..14] == [0x08, 0x00] { 34 } else { 54 }
}

fn number(frame: &[u8], at: usize) -> u32 {
    let at = tcp_at(frame) + at;
    u32::from_be_bytes(frame[at..at + 4].try_into().unwrap())
}

/// What follows the timestamps, if there are any, as an option has it, and its sum right.
fn with_options(segment: &Segment, options: &[u8]) -> Vec<u8> {
    let mut frame = Segment { payload: options.to_vec(), ..segment.clone() }.frame();
    let tcp = tcp_at(&frame);
    let header = if segment.timestamp.is_some() { 32 } else { 20 };
    frame[tcp + 12] = ((header + options.len() / 4 * 4) as u8 / 4) << 4;
    frame[tcp + 16..tcp + 18].fill(0);
    let sum = checksum(&[&pseudo_header(segment.from.ip(), segment.to.ip(), 6, frame.len() - tcp), &frame[tcp..]]);
    frame[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// A packet as it leaves, whose sum is right.
fn pass(node: &mut Node, program: &str, frame: &[u8]) -> Vec<u8> {
    let (verdict, out) = run_program(&mut node.programs, program, frame);
    assert_eq!(verdict, PASS);
    let (ip, tcp) = out.split_at(tcp_at(&out));
    let addresses = if ip.len() == 34 { &ip[26..] } else { &ip[22..] };
    assert_eq!(checksum(&[addresses, &[0, 0, 0, 6], &(tcp.len() as u32).to_be_bytes(), tcp]), 0);
    out
}

/// Packets get the numbers, clocks and windows that their readers take for the other side's, and sums stay right.
#[test]
fn each_packet_is_translated_for_who_reads_it() {
    in_namespace("translated", |path| {
        shell("ip link set lo up");
        let mut node = Node::load_for_replays(path, CookieKey::new(KEY)).unwrap();
        for server in ["127.0.0.1:80", "[::1]:80"] {
            let at = server.parse().unwrap();
            let listener = TcpListener::bind(server).unwrap();
            node.add_service(&Service { vip: at, own: None, marked: false, foreign: Some(at) }).unwrap();
            let client = TcpStream::connect(server).unwrap();
            let _server = listener.accept().unwrap();
            let port = client.local_addr().unwrap().to_string();
            // Numbers pass their end.
            let (sequence, clock) = (0xffff_f000, 0x1000_0000);
            let raw =
                RawReplay { sequence, clock, is_answered: 1, server_scale: 9, told_scale: 7, ..RawReplay::default() };
            let says = Segment {
                acknowledged: 9000,
                timestamp: Some(77),
                payload: b"GET".to_vec(),
                ..Segment::new(&port, server, ACK, 1000)
            };
            let replies = Segment { window: 100, ..Segment::new(server, &port, ACK, 9000) };
            let frame = says.frame();
            assert!(pass(&mut node, "node_ingress", &frame) == frame, "{server}: it's of the kernel's own handshake");
            node.replays.as_mut().unwrap().put(says.key(), raw);
            let mut inward = |program: &str, frame: &[u8]| pass(&mut node, program, frame);

            // In: what the client has of the server's.
            let frame = inward("node_ingress", &says.frame());
            assert_eq!((number(&frame, 4), number(&frame, 8)), (1000, 9000u32.wrapping_add(sequence)));
            assert_eq!((number(&frame, 24), number(&frame, 28)), (77, clock));
            let sack = [[1, 1, 5, 18], 10_000u32.to_be_bytes(), 11_000u32.to_be_bytes()].concat();
            let sack = [sack, [12_000u32.to_be_bytes(), 13_000u32.to_be_bytes()].concat()].concat();
            let frame = inward("node_ingress", &with_options(&says, &sack));
            let edges = [36, 40, 44, 48].map(|at| number(&frame, at).wrapping_sub(sequence));
            assert_eq!((edges, number(&frame, 28)), ([10_000, 11_000, 12_000, 13_000], clock));
            assert_eq!(number(&frame, 32), 0x0101_0512);
            // As many blocks as there is room for: up to the end of all options behind the timestamps, and one more without.
            for (timestamp, blocks) in [(Some(77), 1), (Some(77), 2), (Some(77), 3), (None, 1), (None, 3), (None, 4)] {
                let edges: Vec<u32> = (0..2 * blocks).map(|edge| 10_000 + edge * 1000).collect();
                let option = [1, 1, 5, 2 + 8 * blocks as u8].into_iter();
                let option: Vec<u8> = option.chain(edges.iter().flat_map(|edge| edge.to_be_bytes())).collect();
                let frame = inward("node_ingress", &with_options(&Segment { timestamp, ..says.clone() }, &option));
                let at = if timestamp.is_some() { 36 } else { 24 };
                let told = |edge| number(&frame, at + 4 * edge).wrapping_sub(sequence);
                assert_eq!((0..edges.len()).map(told).collect::<Vec<_>>(), edges, "{server}: {timestamp:?}");
                assert!(timestamp.is_none() || number(&frame, 28) == clock);
            }
            // One that says that it's longer than there is room is left as it is.
            let wrong = with_options(&says, &[1, 1, 5, 255, 0, 0, 0, 9]);
            assert_eq!(number(&inward("node_ingress", &wrong), 36), 9);
            let bare = inward("node_ingress", &Segment { timestamp: None, ..says.clone() }.frame());
            assert_eq!((number(&bare, 8), &bare[tcp_at(&bare) + 20..]), (9000u32.wrapping_add(sequence), &b"GET"[..]));

            // So is what a router quotes of what was sent.
            let sent = Segment { sequence: 9500, ..replies.clone() };
            let message = too_big(if says.from.is_ipv4() { "192.0.2.77" } else { "2001:db8::77" }, &sent);
            let (verdict, out) = run_program(&mut node.programs, "node_ingress", &message);
            let quoted_at = tcp_at(&message) + 8 + tcp_at(&message) - 14;
            let quoted = u32::from_be_bytes(out[quoted_at + 4..quoted_at + 8].try_into().unwrap());
            assert_eq!((verdict, quoted), (PASS, 9500u32.wrapping_add(sequence)), "{server}");
            let icmp = &out[tcp_at(&out)..];
            let (router, kernel) = if says.from.is_ipv4() {
                (Vec::new(), Vec::new())
            } else {
                (out[22..54].to_vec(), [&(icmp.len() as u32).to_be_bytes()[..], &[0, 0, 0, 58]].concat())
            };
            assert_eq!(checksum(&[&router, &kernel, icmp]), 0, "{server}");
            let mut pass = |program: &str, frame: &[u8]| pass(&mut node, program, frame);

            // Out: the server's numbers, its clock and its window, which it tells in larger units.
            for timestamp in [None, Some(99u32)] {
                let frame = pass("node_egress", &Segment { timestamp, ..replies.clone() }.frame());
                assert_eq!(number(&frame, 4), 9000u32.wrapping_sub(sequence));
                assert_eq!(number(&frame, 12) & 0xffff, 400);
                assert!(timestamp.is_none_or(|own| number(&frame, 24) == own.wrapping_sub(clock)));
            }
            let frame = pass("node_egress", &Segment { window: u16::MAX, ..replies.clone() }.frame());
            assert_eq!(number(&frame, 12) & 0xffff, 0xffff, "no more than it can say");
        }
    });
}

/// A goodbye counts for what the kernel takes it for: nobody ends a connection by numbers that are made up.
#[test]
fn only_goodbyes_that_the_kernel_believes_count() {
    in_namespace("goodbyes", |path| {
        shell("ip link set lo up");
        let mut node = Node::load_for_replays(path, CookieKey::new(KEY)).unwrap();
        for server in ["127.0.0.1:80", "[::1]:80"] {
            let at = server.parse().unwrap();
            let listener = TcpListener::bind(server).unwrap();
            node.add_service(&Service { vip: at, own: None, marked: false, foreign: Some(at) }).unwrap();
            let client = TcpStream::connect(server).unwrap();
            let end = listener.accept().unwrap().0;
            let port = client.local_addr().unwrap().to_string();
            let next = expected(&end);
            let mut ends_after = |before: u8, program, segment: &Segment| {
                let key = if program == "node_ingress" {
                    segment.key()
                } else {
                    FlowKey { client: segment.to, vip: segment.from }
                };
                let replays = node.replays.as_mut().unwrap();
                let of_server = if before & 2 == 0 { 0 } else { 9501 };
                let raw = RawReplay { sequence: 70, is_answered: 1, server_end: of_server, ..RawReplay::default() };
                replays.put(key, RawReplay { ends: before, ..raw });
                pass(&mut node, program, &segment.frame());
                node.replays.as_ref().unwrap().ends(key)
            };
            let says = |flags, sequence: u32, bytes, acknowledged| {
                let payload = vec![1; bytes];
                Segment { acknowledged, payload, ..Segment::new(&port, server, flags, sequence) }
            };
            for (flags, ahead, bytes, expected) in [
                (RST, 0, 0, 4),
                (RST | ACK, 0, 0, 4),
                (RST, 1, 0, 0),
                (RST, u32::MAX, 0, 0),
                (RST, 0x1234_5678, 0, 0),
                (FIN | ACK, 0, 0, 1),
                (FIN | ACK, 0, 100, 1),
                // Some of it has come before, or all, or none of what is in front of it.
                (FIN | ACK, u32::MAX - 49, 100, 1),
                (FIN | ACK, u32::MAX, 0, 1),
                (FIN | ACK, 1, 100, 0),
                (FIN | ACK, u32::MAX - 1, 0, 0),
                (FIN | ACK, 0x1234_5678, 100, 0),
            ] {
                let segment = says(flags, next.wrapping_add(ahead), bytes, 9000);
                assert_eq!(ends_after(0, "node_ingress", &segment), expected, "{server}: {flags}, {ahead}, {bytes}");
            }
            // It's settled when the client has heard the server's end, whoever was first.
            for (before, flags, acknowledged, expected) in [
                (3, ACK, 9500, 3),
                (3, ACK, 9501, 7),
                (1, ACK, 9501, 1),
                (2, ACK, 9501, 2),
                (2, FIN | ACK, 9500, 3),
                (2, FIN | ACK, 9501, 7),
            ] {
                let segment = says(flags, next, 0, acknowledged);
                assert_eq!(ends_after(before, "node_ingress", &segment), expected, "{server}: {before}, {flags}");
            }
            // A reset without ACK says only that there was no connection, perhaps not yet.
            for (flags, expected) in [(FIN | ACK, 2), (RST | ACK, 4)] {
                let segment = Segment { payload: vec![1; 9], ..Segment::new(server, &port, flags, 9000) };
                assert_eq!(ends_after(0, "node_egress", &segment), expected, "{server}: {flags}");
            }
        }
    });
}

/// The sequence number that a connection's client is to use next.
fn expected(end: &TcpStream) -> u32 {
    const RECEIVE_QUEUE: i32 = 1;
    let (end, tcp) = (end.as_raw_fd(), libc::IPPROTO_TCP);
    crate::socket::set_option(end, tcp, libc::TCP_REPAIR, 1).unwrap();
    crate::socket::set_option(end, tcp, libc::TCP_REPAIR_QUEUE, RECEIVE_QUEUE).unwrap();
    let next = crate::socket::option(end, tcp, libc::TCP_QUEUE_SEQ).unwrap();
    // Without asking the client for anything.
    crate::socket::set_option(end, tcp, libc::TCP_REPAIR, -1).unwrap();
    next.cast_unsigned()
}

/// A client whose packets this test writes, in front of a server of this namespace's.
struct Client {
    tap: Tap,
    planting: Planting,
    ethernet: [u8; 14],
}

impl Client {
    fn send(&self, flags: u8, (sequence, acknowledged): (u32, u32), stamps: (u32, u32), payload: &[u8]) {
        let payload = payload.to_vec();
        let of = Segment { acknowledged, timestamp: Some(stamps.0), payload, ..self.segment(flags, sequence) };
        let mut frame = of.frame();
        let tcp = tcp_at(&frame);
        frame[tcp + 28..tcp + 32].copy_from_slice(&stamps.1.to_be_bytes());
        frame[tcp + 16..tcp + 18].fill(0);
        let sum = checksum(&[&pseudo_header(of.from.ip(), of.to.ip(), 6, frame.len() - tcp), &frame[tcp..]]);
        frame[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
        frame[..14].copy_from_slice(&self.ethernet);
        self.tap.write(&[&[0; tap::OFFLOADS][..], &frame].concat());
    }

    fn segment(&self, flags: u8, sequence: u32) -> Segment {
        let FlowKey { client, vip } = self.planting.key;
        Segment::new(&client.to_string(), &vip.to_string(), flags, sequence)
    }

    /// The next TCP packet that the server sends.
    fn hears(&self) -> Vec<u8> {
        let mut buffer = vec![0; tap::FRAME_BYTES_MAX];
        loop {
            Tap::wait([&self.tap, &self.tap], Some(Duration::from_secs(10))).unwrap();
            let frame = &self.tap.read(&mut buffer).expect("the server says something")[tap::OFFLOADS..];
            let protocol = if frame[12..14] == [0x08, 0x00] { frame.get(23) } else { frame.get(20) };
            if matches!(frame[12..14], [0x08, 0x00] | [0x86, 0xdd]) && protocol == Some(&6) {
                return frame.to_vec();
            }
        }
    }
}

/// A connection that is expected, whose reads don't wait for ever.
fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    listener.set_nonblocking(true).unwrap();
    let began = crate::clock::now();
    let accepted = std::iter::repeat_with(|| listener.accept()).find(|accepted| {
        assert!(crate::clock::now() < began.after(Duration::from_secs(10)), "no connection has come");
        accepted.is_ok()
    });
    let (end, peer) = accepted.unwrap().unwrap();
    end.set_nonblocking(false).unwrap();
    end.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    (end, peer)
}

/// Of a server's packet: sequence number, what it acknowledges, flags, and the clocks of both.
fn facts(frame: &[u8]) -> (u32, u32, u8, (u32, u32)) {
    let at = tcp_at(frame);
    let stamps = if frame[at + 12] >> 4 >= 8 { (number(frame, 24), number(frame, 28)) } else { (0, 0) };
    (number(frame, 4), number(frame, 8), frame[at + 13], stamps)
}

/// The kernel has the whole handshake with the program, and the client none of it: what it began elsewhere goes on at the server, which sees it.
#[test]
fn a_server_goes_on_with_what_its_client_has_begun_elsewhere() {
    in_namespace("replayed", |path| {
        shell("ip link set lo up; sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0");
        let mut node = Node::load_for_replays(path, CookieKey::new(KEY)).unwrap();
        // Once more where the kernel keeps nothing of a SYN.
        let families = [(CLIENT4, VIP4, "127.0.0.1:8080"), (CLIENT6, VIP6, "[::1]:8080")];
        for ((client, vip, server), cookies) in [1, 2].into_iter().flat_map(|cookies| families.map(|of| (of, cookies)))
        {
            shell(&format!("sysctl -qw net.ipv4.tcp_syncookies={cookies}"));
            let foreign = Some(server.parse().unwrap());
            node.add_service(&Service { vip: vip.parse().unwrap(), own: None, marked: false, foreign }).unwrap();
            let tap = Tap::make(b"client%d").unwrap();
            let (name, of) = (tap.name(), Segment::new(client, vip, ACK, 5000));
            // The same ends as before: the server's kernel remembers the last connection, and its client's clock.
            let clock_of_client = cookies * 1000;
            let (client_ip, vip_ip) = (of.from.ip(), of.to.ip());
            shell(&format!(
                "ip link set {name} address 02:00:00:00:00:01 up; ip addr replace {vip_ip} dev lo; \
                 ip route replace {client_ip} dev {name}; ip neigh replace {client_ip} lladdr 02:00:00:00:00:02 dev {name}"
            ));
            node.attach(name).unwrap();
            let ethernet = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &of.frame()[12..14]].concat().try_into().unwrap();
            let (sequence, acknowledged, window, stamps) = (5000, 9000, 1000, Some((clock_of_client, 456)));
            let options = Options { mss: 1440, window_scale: Some(WindowScale { send: 7, receive: 7 }), sack: true };
            let planting = Planting { key: of.key(), sequence, acknowledged, window, stamps, options, ethernet };
            let client = Client { tap, planting, ethernet };
            let began = |payload: &[u8]| {
                let frames = client.planting.frames(payload, CookieKey::new(KEY), false);
                frames.iter().for_each(|frame| client.tap.write(frame));
            };

            // Nobody listens: it's refused, by the number that its client expects.
            began(b"GET");
            let (at, _, flags, _) = facts(&client.hears());
            assert_eq!((at, flags & RST), (9000, RST), "{vip}");

            let listener = TcpListener::bind(server).unwrap();
            // What was made in the same span would be what was refused.
            std::thread::sleep(Duration::from_millis(130));
            let long = [b'x'; 2000];
            began(&long);
            let (mut end, peer) = accept(&listener);
            assert_eq!((peer, end.local_addr().unwrap()), (of.from, of.to));
            let mut read = [0; 2000];
            end.read_exact(&mut read).unwrap();
            assert!(read == long, "{vip}");
            let mut heard = facts(&client.hears());
            while heard.1 != 7000 {
                assert_eq!((heard.0, heard.2), (9000, ACK), "{vip}: only what has come is acknowledged");
                heard = facts(&client.hears());
            }
            assert!(heard.3.0.wrapping_sub(456) < 10_000, "its clock goes on from what the client was told: {heard:?}");
            end.write_all(b"hello").unwrap();
            let (at, to, _, (clock, echo)) = facts(&client.hears());
            assert_eq!((at, to, echo), (9000, 7000, clock_of_client), "{vip}");
            // What it acknowledges frees the server's queue, and what it says is heard.
            client.send(ACK, (7000, 9005), (clock_of_client + 1, clock), b"more");
            end.read_exact(&mut read[..4]).unwrap();
            assert_eq!(&read[..4], b"more");
            assert!(crate::connections::is_quiet(of.to, of.from).unwrap(), "{vip}");

            // Both say goodbye, the server first; its kernel still answers the client's repeated.
            drop(end);
            let goodbye = std::iter::from_fn(|| Some(facts(&client.hears()))).find(|heard| heard.2 & FIN != 0).unwrap();
            assert_eq!((goodbye.0, goodbye.1), (9005, 7004), "{vip}");
            for _ in 0..2 {
                client.send(FIN | ACK, (7004, 9006), (clock_of_client + 2, goodbye.3.0), b"");
                let last = std::iter::from_fn(|| Some(facts(&client.hears()))).find(|heard| heard.1 == 7005).unwrap();
                assert_eq!((last.0, last.2), (9006, ACK), "{vip}");
            }
            let now = crate::clock::now();
            assert_eq!(node.sweep(None, now).unwrap(), (1, None), "the client may not have heard it");
            assert_eq!(node.sweep(None, now.after(Duration::from_secs(3))).unwrap(), (0, None));
        }
        let counters = node.counters().unwrap();
        assert_eq!((counters.planted, counters.unheard, counters.replayed), (4, 4, 4));
    });
}

/// Where all entries are taken, what begins is refused, and counted for what it is.
#[test]
fn what_there_is_no_room_for_is_refused() {
    in_namespace("crowded", |path| {
        let key = CookieKey::new(KEY);
        let mut node = Node::load_with_room(path, key, Some(1)).unwrap();
        let foreign = Some("127.0.0.1:8080".parse().unwrap());
        node.add_service(&Service { vip: VIP4.parse().unwrap(), own: None, marked: false, foreign }).unwrap();
        let seen_ns = crate::clock::now().ns;
        let over = RawReplay { seen_ns, is_answered: 1, ends: 4, ..RawReplay::default() };
        node.replays.as_mut().unwrap().put(Segment::new("192.0.2.9:9", VIP4, ACK, 0).key(), over);
        for (port, crowded, unheard) in [(1001, 1, 0), (1002, 2, 0), (1003, 2, 1)] {
            if unheard > 0 {
                let later = crate::clock::now().after(Duration::from_secs(3));
                assert_eq!(node.sweep(None, later).unwrap(), (0, None));
            }
            let of = Segment::new(&format!("192.0.2.9:{port}"), VIP4, ACK, 5000);
            let options = Options { mss: 1440, window_scale: None, sack: true };
            let (sequence, acknowledged, window, stamps) = (5000, 9000, 100, Some((1, 2)));
            let ethernet = *of.frame().first_chunk().unwrap();
            let planting = Planting { key: of.key(), sequence, acknowledged, window, stamps, options, ethernet };
            let frames = planting.frames(b"GET", key, false);
            let (verdict, _) = run_program(&mut node.programs, "node_ingress", &frames[0][tap::OFFLOADS..]);
            let counters = node.counters().unwrap();
            assert_eq!((verdict, counters.crowded, counters.unheard), (PASS, crowded, unheard), "{port}");
        }
    });
}

/// What is silent is kept as long as its kernel has it.
#[test]
fn what_was_replayed_is_forgotten_when_it_is_over() {
    in_namespace("replays-over", |path| {
        shell("ip link set lo up");
        let mut node = Node::load_for_replays(path, CookieKey::new(KEY)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:80").unwrap();
        let client = TcpStream::connect("127.0.0.1:80").unwrap();
        let server = listener.accept().unwrap().0;
        let key = FlowKey { client: client.local_addr().unwrap(), vip: client.peer_addr().unwrap() };
        let gone = FlowKey { client: CLIENT4.parse().unwrap(), vip: VIP4.parse().unwrap() };
        let replays = node.replays.as_mut().unwrap();
        let mut is_kept = |key, seconds, ends, is_answered: u8| {
            let now = crate::clock::now();
            replays.put(key, RawReplay { seen_ns: now.ns, ends, is_answered, ..RawReplay::default() });
            replays.sweep(None, now.after(Duration::from_secs(seconds))).unwrap().0 == 1
        };
        for (key, seconds, ends, is_answered, kept) in [
            (key, 3600, 0, 1, true),
            (key, 3600, 1, 1, true),
            (key, 16, 3, 1, true),
            (gone, 14, 3, 1, true),
            (gone, 16, 3, 1, false),
            (key, 1, 4, 1, true),
            (key, 3, 4, 1, false),
            (key, 3, 7, 1, false),
            (key, 1, 0, 0, true),
            (key, 3, 0, 0, false),
            (gone, 59, 0, 1, true),
            (gone, 61, 0, 1, false),
        ] {
            assert_eq!(is_kept(key, seconds, ends, is_answered), kept, "{seconds} s, {ends}, {is_answered}");
            if kept {
                assert!(!is_kept(key, 3, 4, 1));
            }
        }
        for end in [server, client] {
            crate::socket::reset_on_close(end.as_raw_fd());
        }
        assert!(!is_kept(key, 61, 0, 1), "its kernel has it no more");

        // One call looks at some, and asks the kernel for few of those; those that live don't keep others from being asked for.
        let server = TcpStream::connect("127.0.0.1:80").unwrap();
        let lives = FlowKey { client: server.local_addr().unwrap(), vip: server.peer_addr().unwrap() };
        let seen_ns = crate::clock::now().ns;
        let silent = RawReplay { seen_ns, is_answered: 1, ..RawReplay::default() };
        replays.put(lives, silent);
        let ports = 1..=3000;
        ports.for_each(|port| replays.put(FlowKey { client: SocketAddr::new(gone.client.ip(), port), ..gone }, silent));
        let (mut entries, mut calls) = (3001, 0);
        while entries > 1 {
            let (mut place, mut left) = (None, 0);
            loop {
                let now = crate::clock::now().after(Duration::from_secs(61));
                let (some, next) = replays.sweep(place, now).unwrap();
                (place, left, calls) = (next, left + some, calls + 1);
                assert!(some <= 1024);
                if next.is_none() {
                    break;
                }
            }
            assert!(left < entries && left + 64 * calls >= 3001, "{left} of {entries} after {calls}");
            entries = left;
        }
    });
}

/// Programs that replay handshakes and those that don't follow one another, and whether any connection would be cut is known before.
#[test]
fn programs_that_replay_and_those_that_do_not_follow_one_another() {
    in_namespace("follow", |path| {
        if !can_replay() {
            return println!("skipped: before Linux 5.17");
        }
        let key = CookieKey::new([7; 16]);
        let born = || can_bear().is_ok().then(|| Node::load_for_births(path, key).unwrap());
        let attach = |node: &mut Node| node.attach("lo").unwrap();
        born().iter_mut().for_each(attach);
        assert!(!has_replays_left(path));
        let mut node = Node::load_for_replays(path, key).unwrap();
        attach(&mut node);
        assert!(!has_replays_left(path));
        let of = Segment::new(CLIENT4, VIP4, ACK, 1000);
        node.replays.as_mut().unwrap().put(of.key(), RawReplay::default());
        drop(node);
        assert!(has_replays_left(path));
        born().iter_mut().for_each(attach);
        let mut node = Node::load_for_replays(path, key).unwrap();
        attach(&mut node);
        node.detach("lo").unwrap();
    });
}
