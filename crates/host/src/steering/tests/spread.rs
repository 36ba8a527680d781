//! Connections that go by a table.

use std::net::{TcpListener, TcpStream};

use leat_logic::spread::{BUCKETS, Owners};

use super::*;
use crate::tap::{FRAME_BYTES_MAX, OFFLOADS, Tap};

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
pub(super) fn sum_of(segment: &Segment, frame: &[u8]) -> u16 {
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

/// A tap by which clients' packets come, and what the kernel says to them.
struct Network(Tap);

impl Network {
    fn new() -> Network {
        let tap = Tap::make(b"leat%d").unwrap();
        let network = Network(tap);
        ip(&format!("link set {} address 02:02:02:02:02:02 up", network.0.name()));
        network
    }

    /// A VIP that a client can reach, and who listens there.
    fn listen(&self, syn: &Segment) -> TcpListener {
        let [own, client_ip] = [syn.to.ip(), syn.from.ip()];
        let (name, gateway) = (self.0.name(), if own.is_ipv4() { "192.0.2.1/24" } else { "2001:db8::1/64" });
        ip(&format!("address add {own} dev lo"));
        ip(&format!("address add {gateway} dev {name}{}", if own.is_ipv4() { "" } else { " nodad" }));
        ip(&format!("neighbour add {client_ip} lladdr 02:02:02:02:02:03 dev {name}"));
        TcpListener::bind(syn.to).unwrap()
    }

    fn send(&self, segment: &Segment) {
        self.0.write(&[&[0; OFFLOADS], &segment.frame()[..]].concat());
    }

    /// The sequence number of the next segment with these flags that the kernel sends to the client.
    fn hear(&self, flags: u8, is_ipv4: bool) -> u32 {
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        loop {
            Tap::wait([&self.0, &self.0], Some(Duration::from_secs(10))).unwrap();
            let frame = self.0.read(&mut buffer).expect("the kernel says something");
            let tcp = frame.get(OFFLOADS + if is_ipv4 { 34 } else { 54 }..).unwrap_or_default();
            if tcp.get(13) == Some(&flags) {
                return u32::from_be_bytes(tcp[4..8].try_into().unwrap());
            }
        }
    }
}

fn ip(arguments: &str) {
    assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success(), "ip {arguments}");
}

/// A node's program on a segment that a front has named a bucket's previous owner in: its verdict, and who is named behind it.
fn arrive_naming(spread: &mut Spread, segment: &Segment, named: u16) -> (u32, u16) {
    let (verdict, frame) = run_program(&mut spread.programs, "peer_ingress", &naming(segment, named));
    (verdict, urgent_pointer(&frame, segment.from.is_ipv4()))
}

/// The answer was lost, and its node says it once more when the client's second SYN has gone to the bucket's next owner.
#[test]
fn a_handshake_that_another_node_has_answered_goes_on_there() {
    in_namespace("another", |path| {
        let mut spread = spread(path, |_| Owners::default());
        let network = Network::new();
        for (client, vip) in [(CLIENT4, VIP4), (CLIENT6, VIP6)] {
            let syn = Segment::new(client, vip, SYN, 7000);
            let _listener = network.listen(&syn);
            network.send(&syn);
            let answered = network.hear(SYN | ACK, syn.from.is_ipv4());
            let mut run = |flags, acknowledged: u32, named| {
                let segment = Segment { flags, acknowledged, sequence: 7001, ..syn.clone() };
                arrive_naming(&mut spread, &segment, named)
            };
            let (own, anothers) = (answered.wrapping_add(1), answered.wrapping_add(9));
            assert_eq!(run(ACK, own, 2), (PASS, 2), "it goes by this one's answer");
            assert_eq!(run(ACK, anothers, 2), (REDIRECT, 0), "it goes by another's");
            assert_eq!(run(ACK | FIN, anothers, 2), (REDIRECT, 0));
            assert_eq!(run(ACK, anothers, 0), (PASS, 0), "no other has answered: this kernel refuses it");
            assert_eq!(run(RST, 0, 2), (PASS, 2), "whose it is can't be told");
        }
    });
}

/// What the last owner of its bucket has of a client's port is over, and its next SYN went to the owner before.
#[test]
fn a_connection_that_began_elsewhere_is_not_taken_for_the_one_before_it() {
    in_namespace("next", |path| {
        let mut spread = spread(path, |_| Owners::default());
        let network = Network::new();
        for (client, vip) in [(CLIENT4, VIP4), (CLIENT6, VIP6)] {
            let syn = Segment::new(client, vip, SYN, 7000);
            let listener = network.listen(&syn);
            network.send(&syn);
            let mut last = Segment { flags: ACK, sequence: 7001, ..syn.clone() };
            last.acknowledged = network.hear(SYN | ACK, syn.from.is_ipv4()).wrapping_add(1);
            network.send(&last);
            drop(listener.accept().unwrap());
            last.acknowledged = network.hear(FIN | ACK, syn.from.is_ipv4()).wrapping_add(1);
            last.flags = FIN | ACK;
            network.send(&last);
            network.hear(ACK, syn.from.is_ipv4());
            let far = 1 << 24;
            let later = Segment {
                flags: ACK,
                sequence: last.sequence + far,
                acknowledged: last.acknowledged.wrapping_add(far),
                ..last.clone()
            };
            assert_eq!(arrive_naming(&mut spread, &last, 2), (PASS, 2), "it's said again, and answered");
            assert_eq!(arrive_naming(&mut spread, &later, 2), (REDIRECT, 0));
            let near = Segment { acknowledged: last.acknowledged, ..later.clone() };
            assert_eq!(arrive_naming(&mut spread, &near, 2), (PASS, 2), "it may have said much");
            assert_eq!(arrive_naming(&mut spread, &later, 0), (PASS, 0), "nobody else has it");
        }
    });
}

/// The same where the one before it had been handed on.
#[test]
fn a_connection_that_began_elsewhere_does_not_follow_the_one_before_it() {
    in_namespace("follows", |path| {
        let dispatcher = &with_nodes(Dispatcher::load(path, 100).unwrap());
        for (client, vip) in [(CLIENT4, VIP4), (CLIENT6, VIP6)] {
            let segment = |sequence, acknowledged| Segment { acknowledged, ..Segment::new(client, vip, ACK, sequence) };
            let arrive = |segment, named| run(dispatcher, "dispatcher_ingress", &naming(segment, named)).0;
            let (last, later) = (segment(1000, 500), segment(1000 + (1 << 24), 500 + (1 << 24)));
            steer(dispatcher, last.key(), 1);
            assert_eq!(arrive(&later, 2), REDIRECT, "it lives: its holder's kernel sorts it out");
            dispatcher.flows().close(last.key(), id(1)).unwrap();
            assert_eq!((arrive(&last, 2), arrive(&later, 0)), (REDIRECT, REDIRECT));
            assert_eq!(arrive(&later, 2), PASS, "the next program sends it on");
            assert_eq!(dispatcher.flows().get(last.key()).unwrap(), None);
        }
    });
}

#[test]
fn fronts_find_a_node_well_as_long_as_its_server_is() {
    in_namespace("served", |path| {
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
