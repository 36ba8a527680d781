//! Connections that go by a table.

use std::net::{TcpListener, TcpStream};

use leat_logic::spread::{BUCKETS, Owners};

use super::*;

fn spread(path: &Path, owners: impl Fn(usize) -> Owners) -> Spread {
    let mut spread = Spread::load(path, SpreadPart::Front, [7; 16]).unwrap();
    spread.set_services(&[VIP4, VIP6].map(vip)).unwrap();
    spread.set_node(1, &reach(false)).unwrap();
    spread.set_node(2, &reach(false)).unwrap();
    (0..BUCKETS).for_each(|bucket| spread.set_bucket(bucket as u32, owners(bucket)).unwrap());
    spread
}

fn vip(address: &str) -> SpreadService {
    SpreadService { at: address.parse().unwrap(), is_own: false, server: None }
}

fn urgent_pointer(frame: &[u8], is_ipv4: bool) -> u16 {
    let at = if is_ipv4 { 14 + 20 + 18 } else { 14 + 40 + 18 };
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

/// The segment with another urgent pointer, its checksum right.
fn naming(segment: &Segment, number: u16) -> Vec<u8> {
    let (is_ipv4, mut frame) = (segment.from.is_ipv4(), segment.frame());
    let at = if is_ipv4 { 14 + 20 } else { 14 + 40 };
    frame[at + 16..at + 20].copy_from_slice(&[0, 0, (number >> 8) as u8, number as u8]);
    let sum = sum_of(segment, &frame);
    frame[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// 0 when the frame's TCP checksum is right.
fn sum_of(segment: &Segment, frame: &[u8]) -> u16 {
    let tcp = &frame[if segment.from.is_ipv4() { 14 + 20 } else { 14 + 40 }..];
    checksum(&[&pseudo_header(segment.from.ip(), segment.to.ip(), 6, tcp.len()), tcp])
}

#[test]
fn a_front_sends_packets_to_the_owner_and_names_the_one_before() {
    in_namespace("front", |path| {
        let mut spread = spread(path, |_| Owners { current: 1, previous: 2 });
        for (client, vip) in [(CLIENT4, VIP4), (CLIENT6, VIP6)] {
            for (flags, own, named) in [(SYN, 0, 0), (ACK, 0, 2), (SYN, 5, 0), (ACK, 5, 2), (ACK | URG, 5, 5)] {
                let segment = Segment::new(client, vip, flags, 1000);
                let (verdict, frame) = run_program(&mut spread.programs, "front_ingress", &naming(&segment, own));
                assert_eq!((verdict, urgent_pointer(&frame, segment.from.is_ipv4())), (REDIRECT, named), "{flags}");
                assert_eq!(sum_of(&segment, &frame), 0, "the checksum is right");
            }
            let elsewhere = Segment::new(client, &vip.replace("80", "81"), SYN, 1);
            assert_eq!(run_program(&mut spread.programs, "front_ingress", &elsewhere.frame()).0, PASS);
            let router = if client == CLIENT4 { "192.0.2.1" } else { "2001:db8::1" };
            let error = too_big(router, &Segment::new(vip, client, ACK, 5));
            assert_eq!(run_program(&mut spread.programs, "front_ingress", &error).0, REDIRECT);
        }
        spread.set_services(&[vip(VIP6)]).unwrap();
        let segment = Segment::new(CLIENT4, VIP4, SYN, 1000);
        assert_eq!(run_program(&mut spread.programs, "front_ingress", &segment.frame()).0, PASS, "no VIP any more");
        assert_eq!(spread.counters().unwrap(), SpreadCounters { spread: 12, ..SpreadCounters::default() });
    });
}

#[test]
fn a_front_follows_connections_that_have_left_their_bucket_until_they_are_over() {
    in_namespace("followed", |path| {
        // The bucket's owner can't be reached: only what is followed gets anywhere.
        let mut spread = spread(path, |_| Owners { current: 9, previous: 1 });
        for (client, vip) in [(CLIENT4, VIP4), (CLIENT6, VIP6)] {
            let key = FlowKey { client: client.parse().unwrap(), vip: vip.parse().unwrap() };
            let run = |spread: &mut Spread, client: &str, flags, named| {
                let segment = Segment::new(client, vip, flags, 1000);
                let (verdict, frame) = run_program(&mut spread.programs, "front_ingress", &naming(&segment, named));
                assert_eq!(sum_of(&segment, &frame), 0, "the checksum is right");
                (verdict, urgent_pointer(&frame, segment.from.is_ipv4()))
            };
            assert_eq!(run(&mut spread, client, ACK, 0), (DROP, 1), "it goes by its bucket");
            spread.set_moved(key, 2).unwrap();
            assert_eq!(run(&mut spread, client, ACK, 7), (REDIRECT, 0), "nobody else is named");
            assert_eq!(run(&mut spread, client, SYN, 0).0, REDIRECT, "its node's kernel challenges it");
            assert_eq!(run(&mut spread, &client.replace("40000", "40001"), ACK, 0).0, DROP, "another one's");
            spread.end_moved(key, 2).unwrap();
            assert_eq!(run(&mut spread, client, ACK | FIN, 0).0, REDIRECT, "goodbyes");
            assert_eq!(run(&mut spread, client, SYN, 0).0, DROP, "what begins goes by its bucket");
            assert_eq!(run(&mut spread, client, ACK, 0).0, DROP, "and so does what follows");
            spread.end_moved(key, 2).unwrap();
            assert_eq!(spread.moved().unwrap(), [], "it isn't made again");
            spread.set_moved(key, 2).unwrap();
            assert_eq!(spread.moved().unwrap(), [key]);
            // Another process finds it.
            drop(std::mem::replace(&mut spread, Spread::load(path, SpreadPart::Front, [7; 16]).unwrap()));
            assert_eq!((spread.moved().unwrap(), run(&mut spread, client, ACK, 0).0), (vec![key], REDIRECT));
            spread.remove_moved(key).unwrap();
            spread.remove_moved(key).unwrap();
            assert_eq!(run(&mut spread, client, ACK, 0).0, DROP);
        }
        assert_eq!(spread.counters().unwrap().followed, 8);
    });
}

#[test]
fn clients_fall_into_buckets_evenly_and_all_packets_of_one_into_the_same() {
    in_namespace("buckets", |path| {
        // Of node 9 nobody knows where it is.
        let owner = |bucket: usize| Owners { current: if bucket < BUCKETS / 4 { 1 } else { 9 }, previous: 0 };
        let mut spread = spread(path, owner);
        assert_eq!(spread.buckets().unwrap()[BUCKETS / 4 - 1..][..2], [owner(0), owner(BUCKETS)]);
        let mut first = 0;
        for port in 0..4000 {
            let from = SocketAddr::new("192.0.2.7".parse().unwrap(), 20_000 + port);
            let segment = Segment { from, ..Segment::new(CLIENT4, VIP4, SYN, 1) };
            let later = Segment { flags: ACK | FIN, sequence: 77, payload: vec![1; 9], ..segment.clone() };
            let (verdict, _) = run_program(&mut spread.programs, "front_ingress", &segment.frame());
            assert_eq!(run_program(&mut spread.programs, "front_ingress", &later.frame()).0, verdict);
            first += u32::from(verdict == REDIRECT);
        }
        assert!((900..1100).contains(&first), "{first} of 4000 in a quarter of the buckets");
        assert_eq!(spread.counters().unwrap().unreached, 2 * u64::from(4000 - first));
    });
}

#[test]
fn a_node_sends_on_what_it_has_no_connection_of() {
    in_namespace("peer", |path| {
        let mut spread = spread(path, |_| Owners::default());
        for (client, vip) in [(CLIENT4, VIP4), (CLIENT6, VIP6)] {
            let mut run = |flags, named| {
                let segment = Segment::new(client, vip, flags, 1000);
                let (verdict, frame) = run_program(&mut spread.programs, "peer_ingress", &naming(&segment, named));
                assert_eq!(sum_of(&segment, &frame), 0, "the checksum is right");
                (verdict, urgent_pointer(&frame, segment.from.is_ipv4()))
            };
            assert_eq!(run(ACK, 2), (REDIRECT, 0), "it isn't sent on once more");
            assert_eq!(run(ACK, 0), (PASS, 0), "nobody else is named: this kernel refuses it");
            assert_eq!(run(SYN, 2), (PASS, 2), "what begins, begins here");
            assert_eq!(run(ACK | URG, 2), (PASS, 2), "the client's own");
            assert_eq!(run(ACK, 9), (DROP, 0), "nobody knows node 9");
        }
        let counted = SpreadCounters { passed_on: 4, unreached: 2, ..SpreadCounters::default() };
        assert_eq!(spread.counters().unwrap(), counted);
    });
}

#[test]
fn a_node_keeps_what_it_has_a_connection_of() {
    in_namespace("own", |path| {
        let mut spread = spread(path, |_| Owners::default());
        assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(host).unwrap();
            let vip = listener.local_addr().unwrap();
            spread.set_services(&[SpreadService { at: vip, is_own: false, server: None }]).unwrap();
            let stream = TcpStream::connect(vip).unwrap();
            let mut segment = Segment::new(CLIENT4, VIP4, ACK, 1);
            (segment.from, segment.to) = (stream.local_addr().unwrap(), vip);
            assert_eq!(run_program(&mut spread.programs, "peer_ingress", &naming(&segment, 2)).0, PASS);
            // Beside it, another one's: the listener alone has nothing of it.
            segment.from.set_port(if segment.from.port() == 1 { 2 } else { 1 });
            assert_eq!(run_program(&mut spread.programs, "peer_ingress", &naming(&segment, 2)).0, REDIRECT);
        }
    });
}

#[test]
fn fronts_find_a_node_well_as_long_as_its_server_is() {
    in_namespace("served", |path| {
        assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
        let load = || Spread::load(path, SpreadPart::Served, [7; 16]).unwrap();
        let run = |spread: &mut Spread, to: &str, flags, named| {
            let segment = Segment::new(CLIENT4, to, flags, 1000);
            run_program(&mut spread.programs, "peer_ingress", &naming(&segment, named)).0
        };
        let (own, server) = ("198.51.100.9:80", Some("127.0.0.1:8080".parse().unwrap()));
        let at = |at: &str, is_own| SpreadService { at: at.parse().unwrap(), is_own, server };
        let mut spread = load();
        spread.set_node(2, &reach(false)).unwrap();
        spread.set_services(&[at(VIP4, false), at(own, true)]).unwrap();
        assert_eq!(run(&mut spread, VIP4, SYN, 0), PASS, "nobody listens: this kernel refuses it");
        assert_eq!(run(&mut spread, own, SYN, 0), PASS);
        let counted = SpreadCounters { unserved: 2, ..SpreadCounters::default() };
        assert_eq!(spread.counters().unwrap(), counted);
        spread.set_well(false).unwrap();
        assert_eq!(run(&mut spread, own, SYN, 0), REDIRECT, "it's refused");
        assert_eq!(run(&mut spread, VIP4, SYN, 0), PASS, "clients are the server's");
        // Another process goes on where this one ended.
        spread = load();
        spread.set_services(&[at(VIP4, false), at(own, true)]).unwrap();
        assert_eq!(run(&mut spread, own, SYN, 0), REDIRECT);
        spread.set_well(true).unwrap();
        assert_eq!(run(&mut spread, own, SYN, 0), PASS);
        // The two generations.
        assert_eq!(run(&mut spread, VIP4, ACK, 2), REDIRECT);
        assert_eq!(run(&mut spread, VIP4, ACK, 0), PASS);
        assert_eq!(run(&mut spread, own, ACK, 2), PASS, "what is for this node is nobody else's");
        assert_eq!(run(&mut spread, VIP4, SYN | ACK, 0), PASS);
    });
}

#[test]
fn what_begins_at_a_node_that_is_not_well_is_refused_as_the_kernel_would() {
    in_namespace("refused", |path| {
        let mut spread = Spread::load(path, SpreadPart::Served, [7; 16]).unwrap();
        for (client, own) in [(CLIENT4, VIP4), (CLIENT6, VIP6)] {
            spread.set_services(&[SpreadService { is_own: true, ..vip(own) }]).unwrap();
            spread.set_well(false).unwrap();
            let segment = Segment { timestamp: Some(7), ..Segment::new(client, own, SYN, u32::MAX) };
            let (verdict, frame) = run_program(&mut spread.programs, "peer_ingress", &segment.frame());
            let reset = Segment { flags: RST | ACK, acknowledged: 0, ..Segment { sequence: 0, ..segment.clone() } };
            let reset = Segment { from: segment.to, to: segment.from, ..reset };
            assert_eq!(verdict, REDIRECT);
            assert_eq!(frame[12..], reset.frame()[12..], "{client}");
        }
    });
}

/// What the programs cost: `cargo test -p leat-host --release --lib spread -- --ignored --nocapture costs`.
#[test]
#[ignore = "a measurement"]
fn costs() {
    in_namespace("spread-costs", |path| {
        let mut spread = spread(path, |_| Owners { current: 1, previous: 2 });
        for (what, program, flags, named) in [
            ("a front, SYN", "front_ingress", SYN, 0),
            ("a front, ACK", "front_ingress", ACK, 0),
            ("a node, not named", "peer_ingress", ACK, 0),
        ] {
            let frame = naming(&Segment::new(CLIENT4, VIP4, flags, 1000), named);
            println!("{what}: {:?} a packet, without the redirect itself", time(&mut spread, program, &frame));
        }
        assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let stream = TcpStream::connect(at).unwrap();
        let mut segment = Segment::new(CLIENT4, VIP4, ACK, 1);
        (segment.from, segment.to) = (stream.local_addr().unwrap(), at);
        for (what, part) in [("leat's, another named", SpreadPart::Peer), ("another server's", SpreadPart::Served)] {
            let mut spread = Spread::load(path, part, [7; 16]).unwrap();
            spread.set_services(&[SpreadService { at, is_own: false, server: None }]).unwrap();
            let time = time(&mut spread, "peer_ingress", &naming(&segment, 2));
            println!("a node, a connection of {what}: {time:?} a packet");
        }
    });
}

fn time(spread: &mut Spread, program: &str, frame: &[u8]) -> std::time::Duration {
    let options = TestRunOptions { data_in: Some(frame), repeat: 1_000_000, ..TestRunOptions::default() };
    spread.programs.classifier(program).unwrap().test_run(options).unwrap().duration
}
