//! The programs, packet by packet (`BPF_PROG_TEST_RUN`). Whole connections are in `tests/handoff`.

mod births;
mod foreign;
mod kept;
mod over;
mod replays;
mod spread;
mod strangers;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aya::programs::{TestRun, TestRunOptions};
use leat_logic::handoff::{FlowId, Generation, ServerId};

use super::attach::Programs;
use super::*;
use crate::namespace;

const CLIENT4: &str = "192.0.2.7:40000";
const VIP4: &str = "198.51.100.1:80";
const CLIENT6: &str = "[2001:db8::7]:40000";
const VIP6: &str = "[2001:db8:1::1]:80";

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
const URG: u8 = 32;

/// `TC_PRIO_INTERACTIVE`.
const INTERACTIVE: u32 = 6;

/// What a program says of a packet (include/uapi/linux/pkt_cls.h).
const PASS: u32 = u32::MAX;
const DROP: u32 = 2;
const REDIRECT: u32 = 7;

/// A BPF file system, gone at the end.
struct Pins(PathBuf);

impl Drop for Pins {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Does something in a namespace of its own, with a directory for pins.
fn in_namespace(name: &str, test: impl FnOnce(&Path) + Send + 'static) {
    let Some(namespace) = namespace::for_test(name) else { return };
    let pins = Pins(std::env::temp_dir().join(format!("leat-{}-{name}", std::process::id())));
    std::fs::create_dir_all(&pins.0).unwrap();
    assert!(Command::new("mount").args(["-t", "bpf", "bpf"]).arg(&pins.0).status().unwrap().success());
    let path = pins.0.clone();
    namespace.ip("link set lo up").unwrap();
    namespace.run(move || test(&path)).unwrap();
}

/// As [`in_namespace`], where connections can begin by a packet, or a line that says that they can't.
fn where_connections_begin(name: &str, test: impl FnOnce(&Path) + Send + 'static) {
    match can_bear() {
        Ok(()) => in_namespace(name, test),
        Err(error) => println!("skipped: {error}"),
    }
}

fn can_bear() -> Result<()> {
    born::for_this_kernel(&[]).map(drop)
}

/// `bpf_loop` is as old as that.
fn can_replay() -> bool {
    aya::util::KernelVersion::current().unwrap() >= aya::util::KernelVersion::new(5, 17, 0)
}

/// How nodes are reached in these tests.
fn reach(routed: bool) -> Reach {
    let (ipv4, ipv6) = (Some([203, 0, 113, 9].into()), Some("2001:db8:9::9".parse().unwrap()));
    Reach { interface: "lo".to_owned(), ipv4, ipv6, routed, forwards: false }
}

/// With programs that answer SYNs, where the kernel takes them, and once more with those that don't.
fn in_lab(name: &str, test: impl Fn(&Dispatcher) + Send + 'static) {
    in_namespace(name, move |path| {
        if can_bear().is_ok() {
            test(&load_for_births(&path.join("born")));
        }
        if can_replay() {
            let key = CookieKey::new([7; 16]);
            test(&with_nodes(Dispatcher::load_for_replays(&path.join("replayed"), 100, key, &[]).unwrap()));
        }
        test(&with_nodes(Dispatcher::load(&path.join("moved"), 100).unwrap()));
    });
}

/// Twice: changed by either program, whichever this kernel would take.
fn in_lab_by_both(name: &str, test: impl Fn(&Dispatcher) + Send + 'static) {
    in_namespace(name, move |path| {
        for program in ["change_flow", "change_flow_as_packet"] {
            let folder = path.join(program);
            std::fs::create_dir(&folder).unwrap();
            let mut dispatcher = match can_bear() {
                Ok(()) => load_for_births(&folder),
                Err(_) => with_nodes(Dispatcher::load(&folder, 100).unwrap()),
            };
            dispatcher.change_by(program).unwrap();
            test(&dispatcher);
            drop(dispatcher);
            std::fs::remove_dir_all(&folder).unwrap();
        }
    });
}

fn load_for_births(path: &Path) -> Dispatcher {
    with_nodes(Dispatcher::load_for_births(path, 100, CookieKey::new([7; 16]), &[]).unwrap())
}

fn with_nodes(dispatcher: Dispatcher) -> Dispatcher {
    dispatcher.set_node(1, &reach(false)).unwrap();
    dispatcher.set_node(2, &reach(true)).unwrap();
    dispatcher.set_node(4, &Reach { forwards: true, ..reach(false) }).unwrap();
    dispatcher
}

/// A TCP segment from one to the other.
#[derive(Clone)]
struct Segment {
    from: SocketAddr,
    to: SocketAddr,
    flags: u8,
    sequence: u32,
    acknowledged: u32,
    window: u16,
    timestamp: Option<u32>,
    payload: Vec<u8>,
}

impl Segment {
    fn new(from: &str, to: &str, flags: u8, sequence: u32) -> Segment {
        let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
        let payload = Vec::new();
        Segment { from, to, flags, sequence, acknowledged: 0, window: 100, timestamp: None, payload }
    }

    fn key(&self) -> FlowKey {
        FlowKey { client: self.from, vip: self.to }
    }

    fn frame(&self) -> Vec<u8> {
        let mut tcp = [self.from.port().to_be_bytes(), self.to.port().to_be_bytes()].concat();
        tcp.extend(self.sequence.to_be_bytes());
        tcp.extend(self.acknowledged.to_be_bytes());
        tcp.extend([if self.timestamp.is_some() { 8 << 4 } else { 5 << 4 }, self.flags]);
        tcp.extend(self.window.to_be_bytes());
        tcp.extend([0; 4]);
        if let Some(timestamp) = self.timestamp {
            tcp.extend([1, 1, 8, 10]);
            tcp.extend(timestamp.to_be_bytes());
            tcp.extend([0; 4]);
        }
        tcp.extend(&self.payload);
        let sum = checksum(&[&pseudo_header(self.from.ip(), self.to.ip(), 6, tcp.len()), &tcp]);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        frame(self.from.ip(), self.to.ip(), 6, &tcp)
    }
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn pseudo_header(from: IpAddr, to: IpAddr, protocol: u8, bytes: usize) -> Vec<u8> {
    [octets(from), octets(to), vec![0, 0, 0, protocol], (bytes as u32).to_be_bytes().to_vec()].concat()
}

/// RFC 1071.
fn checksum(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    let mut sum: u32 =
        bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | two.get(1).map_or(0, |b| u32::from(*b))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn frame(from: IpAddr, to: IpAddr, protocol: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![2; 12];
    if from.is_ipv4() {
        let mut header = vec![0x45, 0];
        header.extend((20 + content.len() as u16).to_be_bytes());
        header.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
        header.extend([octets(from), octets(to)].concat());
        let sum = checksum(&[&header]);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend([0x08, 0x00]);
        bytes.extend(header);
    } else {
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        bytes.extend((content.len() as u16).to_be_bytes());
        bytes.extend([protocol, 64]);
        bytes.extend([octets(from), octets(to)].concat());
    }
    bytes.extend(content);
    bytes
}

/// A router's message that a segment was too big.
fn too_big(router: &str, about: &Segment) -> Vec<u8> {
    let router: IpAddr = router.parse().unwrap();
    let quoted = &about.frame()[14..];
    let quoted = &quoted[..quoted.len().min(64)];
    let is_ipv4 = router.is_ipv4();
    let (protocol, kind) = if is_ipv4 { (1, [3, 4]) } else { (58, [2, 0]) };
    let mut icmp = [&kind[..], &[0, 0], &1300u32.to_be_bytes(), quoted].concat();
    let pseudo = if is_ipv4 { Vec::new() } else { pseudo_header(router, about.from.ip(), protocol, icmp.len()) };
    let sum = checksum(&[&pseudo, &icmp]);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    frame(router, about.from.ip(), protocol, &icmp)
}

/// A program's verdict, and the packet as it leaves.
fn run_program(programs: &mut Programs, program: &str, frame: &[u8]) -> (u32, Vec<u8>) {
    let mut out = vec![0; frame.len() + 64];
    let options = TestRunOptions { data_in: Some(frame), data_out: Some(&mut out), ..TestRunOptions::default() };
    let result = programs.classifier(program).unwrap().test_run(options).unwrap();
    out.truncate(result.data_size_out as usize);
    (result.return_value, out)
}

fn run(dispatcher: &Dispatcher, program: &str, frame: &[u8]) -> (u32, Vec<u8>) {
    run_program(&mut dispatcher.programs.lock().unwrap(), program, frame)
}

/// With which priority a packet leaves.
fn priority(dispatcher: &Dispatcher, program: &str, frame: &[u8]) -> u32 {
    // `struct __sk_buff` (include/uapi/linux/bpf.h), of which it's the ninth number.
    let mut context = [0; 192];
    let options = TestRunOptions { data_in: Some(frame), ctx_out: Some(&mut context), ..TestRunOptions::default() };
    dispatcher.programs.lock().unwrap().classifier(program).unwrap().test_run(options).unwrap();
    u32::from_ne_bytes(context[32..36].try_into().unwrap())
}

fn arrive(dispatcher: &Dispatcher, segment: &Segment) -> u32 {
    run(dispatcher, "dispatcher_ingress", &segment.frame()).0
}

/// A flow's name.
fn id(serial: u64) -> FlowId {
    FlowId { home: ServerId::new(0, 3), serial }
}

/// A flow at node 1 whose client would send byte 1000 next.
fn steer(dispatcher: &Dispatcher, key: FlowKey, node: u32) {
    let heard = Heard { client_next: 1000, acknowledged: 500, window: 1, timestamp: 0, base: 500, wraps: 0 };
    let holder = ServerId::new(node, 5);
    dispatcher.flows().offer(key, id(1), (holder, Generation(1)), heard, 0).unwrap();
    dispatcher.flows().unhold(key, id(1)).unwrap();
}

#[test]
fn packets_of_a_flow_are_sent_on_and_others_pass() {
    in_lab("pass", |dispatcher| {
        for (client, vip) in [(CLIENT4, VIP4), (CLIENT6, VIP6)] {
            let segment = Segment::new(client, vip, ACK, 1000);
            assert_eq!(arrive(dispatcher, &segment), PASS);
            steer(dispatcher, segment.key(), 1);
            assert_eq!(arrive(dispatcher, &segment), REDIRECT);
            let other = Segment { from: SocketAddr::new(segment.from.ip(), 1), ..segment.clone() };
            assert_eq!(arrive(dispatcher, &other), PASS);
            assert!(dispatcher.flows().delete(segment.key(), id(1)).unwrap());
            assert_eq!(arrive(dispatcher, &segment), PASS);
            steer(dispatcher, segment.key(), 3);
            assert_eq!(arrive(dispatcher, &segment), DROP, "nobody knows node 3");
        }
        assert_eq!(dispatcher.counters().unwrap(), DispatcherCounters { steered: 2, lost: 2, ..Default::default() });
    });
}

#[test]
fn a_flow_that_is_made_while_none_is_found_is_steered() {
    in_lab("sweep", |dispatcher| {
        let (flows, segment) = (dispatcher.flows(), Segment::new(CLIENT4, VIP4, ACK, 1000));
        let sweep = || flows.sweep(None, 256, crate::clock::now()).unwrap();
        assert_eq!(sweep(), (0, None));
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    sweep();
                }
            });
            for round in 0..500 {
                steer(dispatcher, segment.key(), 1);
                assert_eq!(arrive(dispatcher, &segment), REDIRECT, "round {round}");
                assert!(flows.delete(segment.key(), id(1)).unwrap());
                assert_eq!(arrive(dispatcher, &segment), PASS, "round {round}");
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(sweep(), (0, None));
    });
}

#[test]
fn what_the_client_said_last_is_remembered() {
    in_lab("heard", |dispatcher| {
        for (client, vip) in [(CLIENT4, VIP4), (CLIENT6, VIP6)] {
            let mut segment = Segment::new(client, vip, ACK, 1000);
            steer(dispatcher, segment.key(), 1);
            (segment.acknowledged, segment.window, segment.timestamp) = (700, 44, Some(0x0102_0304));
            segment.payload = vec![1; 7];
            arrive(dispatcher, &segment);
            let heard =
                Heard { client_next: 1007, acknowledged: 700, window: 44, timestamp: 0x0102_0304, base: 500, wraps: 0 };
            assert_eq!(dispatcher.flows().get(segment.key()).unwrap().unwrap().heard, heard);
            // An old one, and one that somebody made up.
            segment.acknowledged = 600;
            arrive(dispatcher, &segment);
            (segment.sequence, segment.acknowledged) = (0x4000_0000, 900);
            assert_eq!(arrive(dispatcher, &segment), REDIRECT, "the node's kernel sorts it out");
            assert_eq!(dispatcher.flows().get(segment.key()).unwrap().unwrap().heard, heard);
        }
    });
}

#[test]
fn more_than_sequence_numbers_tell_is_counted() {
    const STEP: u32 = 1 << 22;
    in_lab("wraps", |dispatcher| {
        let mut segment = Segment::new(CLIENT4, VIP4, ACK, 1000);
        let (key, flows) = (segment.key(), dispatcher.flows());
        let since = |first| flows.get(key).unwrap().unwrap().heard.acknowledged_since(first);
        steer(dispatcher, key, 1);
        assert_eq!((since(500), since(400), since(501)), (Some(0), Some(100), None));
        for _ in 0..(2 << 32) / u64::from(STEP) + 1 {
            segment.acknowledged = segment.acknowledged.wrapping_add(STEP);
            arrive(dispatcher, &segment);
        }
        let acknowledged = (2 << 32) + u64::from(STEP);
        assert_eq!((since(500), since(400)), (Some(acknowledged - 500), Some(acknowledged - 400)));
        // Whoever gets it next, gets it as an image of now.
        flows.steer(key, id(1), (ServerId::new(2, 5), Generation(2))).unwrap();
        assert_eq!((since(STEP), since(STEP - 7)), (Some(0), Some(7)));
    });
}

#[test]
fn what_packets_say_and_what_leat_says_is_both_kept() {
    in_lab_by_both("both", |dispatcher| {
        let fin = Segment::new(CLIENT4, VIP4, FIN | ACK, 1000);
        let heard = Heard { client_next: 1000, acknowledged: 0, window: 1, timestamp: 0, base: 0, wraps: 0 };
        for round in 0..500 {
            let (flows, key, id) = (dispatcher.flows(), fin.key(), id(round));
            flows.offer(key, id, (ServerId::new(1, 5), Generation(1)), heard, 0).unwrap();
            flows.unhold(key, id).unwrap();
            let both = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    both.wait();
                    for _ in 0..20 {
                        flows.unhold(key, id).unwrap();
                    }
                    flows.close(key, id).unwrap();
                });
                both.wait();
                assert_eq!(arrive(dispatcher, &fin), REDIRECT);
            });
            let flow = flows.get(key).unwrap().unwrap();
            assert!(flow.client_fin && flow.node_closed, "round {round}: {flow:?}");
            assert_eq!((flow.heard.client_next, flow.holder), (1001, ServerId::new(1, 5)));
        }
    });
}

#[test]
fn a_change_is_made_of_the_flow_that_is_meant_only() {
    in_lab_by_both("meant", |dispatcher| {
        let (flows, key) = (dispatcher.flows(), Segment::new(CLIENT4, VIP4, ACK, 1000).key());
        steer(dispatcher, key, 1);
        let before = flows.get(key).unwrap();
        flows.unhold(key, id(2)).unwrap();
        flows.close(key, FlowId { home: ServerId::new(0, 4), serial: 1 }).unwrap();
        assert!(!flows.delete(key, id(2)).unwrap());
        // An arrival whose client has begun anew meanwhile.
        let old = Flow { id: id(2), ..before.unwrap() };
        let (home, node) = (ServerId::new(0, 2), ServerId::new(1, 7));
        assert!(matches!(flows.bear(key, &old, home, node), Err(Error::Gone)));
        // A flow that its home moves on, though its client has used the port anew.
        assert!(matches!(flows.steer(key, id(2), (node, Generation(3))), Err(Error::Gone)));
        assert!(matches!(flows.hold_again(key, id(2)), Err(Error::Gone)));
        assert_eq!(flows.get(key).unwrap(), before);
        flows.hold(key, id(2)).unwrap();
        assert_eq!(flows.get(key).unwrap().map(|flow| (flow.id, flow.held)), Some((id(2), true)), "the next flow's");

        let far = |number: u8| FlowKey { client: SocketAddr::new([192, 0, 2, number].into(), 1), ..key };
        assert!((0..99).all(|number| flows.hold(far(number), id(3)).is_ok()));
        assert!(matches!(flows.hold(far(99), id(3)), Err(Error::Full { capacity: 100 })));
        assert!(matches!(flows.bear(far(99), &old, home, node), Err(Error::Full { .. })));
    });
}

#[test]
fn only_a_flow_that_is_over_is_replaced() {
    in_lab("syn", |dispatcher| {
        let segment = |flags, sequence| Segment::new(CLIENT4, VIP4, flags, sequence);
        let key = segment(0, 0).key();
        let flow = || dispatcher.flows().get(key).unwrap();
        steer(dispatcher, key, 1);
        assert_eq!(arrive(dispatcher, &segment(SYN, 77)), REDIRECT, "the node's kernel challenges it");
        arrive(dispatcher, &segment(RST, 1001));
        arrive(dispatcher, &segment(RST | ACK, 999));
        assert!(!flow().unwrap().reset, "only the exact number is believed");
        arrive(dispatcher, &segment(RST, 1000));
        assert!(flow().unwrap().reset);
        assert_eq!(arrive(dispatcher, &segment(SYN, 77)), PASS);
        assert_eq!(flow(), None);

        steer(dispatcher, key, 1);
        arrive(dispatcher, &segment(FIN | ACK, 1000));
        let after = flow().unwrap();
        assert!(after.client_fin && after.heard.client_next == 1001);
        assert_eq!(arrive(dispatcher, &segment(SYN, 77)), PASS);
        assert_eq!(dispatcher.counters().unwrap().replaced, 2);
    });
}

#[test]
fn packets_for_a_routed_node_get_its_address_and_right_checksums() {
    in_lab("routed", |dispatcher| {
        for (client, vip, node, router) in
            [(CLIENT4, VIP4, "203.0.113.9", "192.0.2.254"), (CLIENT6, VIP6, "2001:db8:9::9", "2001:db8::ff")]
        {
            let mut segment = Segment::new(client, vip, ACK, 1000);
            segment.payload = b"some odd payload!".to_vec();
            steer(dispatcher, segment.key(), 2);
            let (verdict, sent) = run(dispatcher, "dispatcher_ingress", &segment.frame());
            assert_eq!(verdict, REDIRECT);
            let port = segment.to.port();
            let expected = Segment { to: SocketAddr::new(node.parse().unwrap(), port), ..segment.clone() };
            assert_eq!(sent, expected.frame());

            // A message about a segment to the client: to the node, and as if the client had said it.
            let reply = Segment::new(vip, client, ACK, 1);
            let (verdict, sent) = run(dispatcher, "dispatcher_ingress", &too_big(router, &reply));
            assert_eq!(verdict, REDIRECT);
            let (at, length) = if segment.from.is_ipv4() { (26, 4) } else { (22, 16) };
            assert_eq!(sent[at..at + length], octets(segment.from.ip()));
            assert_eq!(sent[at + length..at + 2 * length], octets(node.parse().unwrap()));
            let icmp = &sent[at + 2 * length..];
            let pseudo = if length == 4 {
                Vec::new()
            } else {
                pseudo_header(segment.from.ip(), node.parse().unwrap(), 58, icmp.len())
            };
            assert_eq!(checksum(&[&pseudo, icmp]), 0);
            let stranger = Segment::new(vip, &client.replace("40000", "40001"), ACK, 1);
            assert_eq!(run(dispatcher, "dispatcher_ingress", &too_big(router, &stranger)).0, PASS);
        }
        assert_eq!(dispatcher.counters().unwrap().errors, 2);
    });
}

#[test]
fn what_an_earlier_flow_has_left_is_cleared_away() {
    in_lab("cleared", |dispatcher| {
        let segment = Segment::new(CLIENT4, VIP4, ACK, 1000);
        steer(dispatcher, segment.key(), 1);
        dispatcher.flows().close(segment.key(), id(1)).unwrap();
        assert_eq!(arrive(dispatcher, &segment), REDIRECT);
        assert!(!dispatcher.flows().delete(segment.key(), id(2)).unwrap(), "it's the later flow's to say");
        dispatcher.flows().clear(segment.key()).unwrap();
        assert_eq!(arrive(dispatcher, &segment), PASS);
        dispatcher.flows().clear(segment.key()).unwrap();
    });
}

#[test]
fn packets_that_nodes_send_each_other_dont_go_round_for_ever() {
    in_lab("hops", |dispatcher| {
        for (client, vip, hops_at) in [(CLIENT4, VIP4, 22), (CLIENT6, VIP6, 21)] {
            let segment = Segment::new(client, vip, ACK, 1000);
            steer(dispatcher, segment.key(), 4);
            let arrived = segment.frame();
            let (verdict, sent) = run(dispatcher, "dispatcher_ingress", &arrived);
            assert_eq!((verdict, sent[hops_at]), (REDIRECT, arrived[hops_at] - 1));
            if segment.from.is_ipv4() {
                assert_eq!(checksum(&[&sent[14..34]]), 0);
            }
            let (mut last, mut rounds) = (sent, 0);
            while let (REDIRECT, next) = run(dispatcher, "dispatcher_ingress", &last) {
                (last, rounds) = (next, rounds + 1);
                assert!(rounds < 256, "it goes round");
            }
            assert_eq!(last[hops_at], 1);
        }
        assert_eq!(dispatcher.counters().unwrap().lost, 2);
    });
}

#[test]
fn acknowledgements_of_what_only_the_new_holder_can_have_said_do_not_wait() {
    in_lab("offer", |dispatcher| {
        for (client, vip) in [(CLIENT4, VIP4), (CLIENT6, VIP6)] {
            let late = Segment { acknowledged: 600, ..Segment::new(client, vip, ACK, 1000) };
            let (flows, key) = (dispatcher.flows(), late.key());
            flows.hold(key, id(1)).unwrap();
            flows.hold(key, id(1)).unwrap();
            let heard = Heard { client_next: 1000, acknowledged: 500, window: 1, timestamp: 0, base: 500, wraps: 0 };
            flows.offer(key, id(1), (ServerId::new(1, 5), Generation(1)), heard, 600).unwrap();
            let held = |segment: &Segment| {
                // There is no tap, so what would wait is lost.
                assert_eq!(arrive(dispatcher, segment), DROP);
                assert!(flows.get(key).unwrap().unwrap().held);
            };
            held(&late);
            held(&Segment { acknowledged: 599, ..late.clone() });
            held(&Segment { acknowledged: 600 + (1 << 23), ..late.clone() });
            let answer = Segment { acknowledged: 601, ..late.clone() };
            assert_eq!(arrive(dispatcher, &answer), REDIRECT);
            let heard = flows.get(key).unwrap().unwrap().heard;
            assert_eq!(heard.acknowledged, 601, "should the holder die, it's known what its client has");
            held(&late);
            held(&Segment { payload: b"GET".to_vec(), ..answer.clone() });
            held(&Segment { flags: ACK | FIN, ..answer.clone() });
            held(&Segment { flags: ACK | RST, ..answer.clone() });
            flows.unhold(key, id(1)).unwrap();
            let flow = flows.get(key).unwrap().unwrap();
            assert_eq!((flow.held, flow.holder, flow.heard), (false, ServerId::new(1, 5), heard));
            assert_eq!(arrive(dispatcher, &answer), REDIRECT);
            // Held anew, as on the way back, it isn't offered any more.
            flows.hold(key, id(1)).unwrap();
            held(&Segment { acknowledged: 602, ..late });
        }
    });
}

#[test]
fn a_flow_that_others_hold_is_not_reset_from_here() {
    in_lab("reset", |dispatcher| {
        let reset = Segment::new(VIP4, CLIENT4, RST, 5);
        let leave = |segment: &Segment| run(dispatcher, "dispatcher_egress", &segment.frame()).0;
        assert_eq!(leave(&reset), PASS);
        let key = FlowKey { client: reset.to, vip: reset.from };
        dispatcher.flows().hold(key, id(1)).unwrap();
        assert_eq!(leave(&reset), DROP);
        assert_eq!(leave(&Segment::new(VIP4, CLIENT4, ACK, 5)), PASS);
    });
}

#[test]
fn who_was_cut_is_reset_from_here_whatever_it_says() {
    in_lab("cut", |dispatcher| {
        let segment = |flags, sequence| Segment { acknowledged: 700, ..Segment::new(CLIENT4, VIP4, flags, sequence) };
        let (key, flows) = (segment(0, 0).key(), dispatcher.flows());
        let reset = Segment::new(VIP4, CLIENT4, RST, 5).frame();
        steer(dispatcher, key, 1);
        flows.hold(key, id(1)).unwrap();
        assert_eq!(run(dispatcher, "dispatcher_egress", &reset).0, DROP);
        flows.cut(key, id(1), &Heard::default()).unwrap();
        assert_eq!(run(dispatcher, "dispatcher_egress", &reset).0, PASS);
        // The kernel takes the number from it, and so does leat.
        assert_eq!(arrive(dispatcher, &segment(ACK, 1000)), PASS);
        let flow = flows.get(key).unwrap().unwrap();
        assert!(flow.cut && !flow.held && !flow.reset && flow.heard.acknowledged == 700, "{flow:?}");
        arrive(dispatcher, &segment(RST, 1000));
        assert!(flows.get(key).unwrap().unwrap().reset, "it knows");
        assert_eq!(arrive(dispatcher, &segment(SYN, 77)), PASS);
        assert_eq!(flows.get(key).unwrap(), None, "it has begun anew");
        // One that had a socket here has no entry, and the next one's is its own.
        let heard = Heard::last(600, 1000);
        flows.cut(key, id(2), &heard).unwrap();
        assert_eq!(flows.get(key).unwrap().map(|flow| (flow.cut, flow.heard.acknowledged)), Some((true, 600)));
        flows.cut(key, id(3), &Heard::default()).unwrap();
        assert_eq!(flows.get(key).unwrap().map(|flow| (flow.id, flow.heard.acknowledged)), Some((id(2), 600)));
    });
}

#[test]
fn who_connects_does_not_wait_behind_replies_to_others() {
    in_lab("first", |dispatcher| {
        for (client, vip) in [(CLIENT4, VIP4), (CLIENT6, VIP6)] {
            let leave = |segment: &Segment| priority(dispatcher, "dispatcher_egress", &segment.frame());
            let reply = Segment::new(vip, client, ACK, 5);
            assert_eq!(leave(&Segment { flags: SYN | ACK, timestamp: Some(1), ..reply.clone() }), INTERACTIVE);
            assert_eq!(leave(&reply), 0);
            // What follows on data must not overtake it.
            assert_eq!(leave(&Segment { flags: FIN | ACK, ..reply.clone() }), 0);
            assert_eq!(leave(&Segment { payload: vec![1; 1000], ..reply }), 0);
        }
    });
}

#[test]
fn an_heir_gets_what_begins_and_what_has_no_socket_here() {
    in_lab("heir", |dispatcher| {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let listener = std::net::TcpListener::bind(host).unwrap();
            let vip = listener.local_addr().unwrap();
            let stream = std::net::TcpStream::connect(vip).unwrap();
            let own = Segment { from: stream.local_addr().unwrap(), to: vip, ..Segment::new(CLIENT4, VIP4, ACK, 1) };
            let mut other = own.clone();
            other.from.set_port(if own.from.port() == 1 { 2 } else { 1 });
            let syn = Segment { flags: SYN, ..other.clone() };
            let all = || [&own, &other, &syn].map(|segment| arrive(dispatcher, segment));
            let reply = Segment { from: other.to, to: other.from, ..other.clone() };
            let error = || run(dispatcher, "dispatcher_ingress", &too_big("192.0.2.1", &reply)).0;
            assert_eq!(all(), [PASS; 3]);
            // The server closes first: its kernel remembers that.
            let over = std::net::TcpStream::connect(vip).unwrap();
            let before = Segment { from: over.local_addr().unwrap(), ..own.clone() };
            let again = Segment { flags: SYN, ..before.clone() };
            let _first = listener.accept().unwrap();
            drop(listener.accept().unwrap());
            assert_eq!(std::io::Read::read(&mut &over, &mut [0]).unwrap(), 0);
            drop(over);
            dispatcher.bequeath(vip, 1).unwrap();
            assert_eq!(arrive(dispatcher, &before), PASS, "its last packets are for whoever remembers it");
            assert_eq!(arrive(dispatcher, &again), REDIRECT, "its client uses the port again");
            assert_eq!(arrive(dispatcher, &before), REDIRECT, "what follows is of the new connection");
            assert_eq!(all(), [PASS, REDIRECT, REDIRECT], "what has a socket stays");
            if vip.is_ipv4() {
                assert_eq!(error(), REDIRECT);
            }
            dispatcher.bequeath(vip, 2).unwrap();
            assert_eq!(all(), [PASS, DROP, DROP], "a routed node can't be one");
            dispatcher.bequeath(vip, 1).unwrap();
            dispatcher.reclaim(vip, Some(1)).unwrap();
            assert_eq!(all(), [PASS, REDIRECT, PASS], "what begins is this host's again");
            dispatcher.reclaim(vip, None).unwrap();
            assert_eq!(all(), [PASS; 3]);
            dispatcher.reclaim(vip, Some(1)).unwrap();
            assert_eq!(all(), [PASS; 3], "it never was");
        }
    });
}

#[test]
fn past_the_lease_the_end_of_what_is_over_is_acknowledged() {
    use std::net::{TcpListener, TcpStream};
    in_namespace("fenced", |path| {
        let mut node = match can_bear() {
            Ok(()) => Node::load_for_births(path, CookieKey::new([7; 16])).unwrap(),
            Err(_) => Node::load(path).unwrap(),
        };
        for address in ["127.0.0.1:80", "[::1]:80"] {
            let listener = TcpListener::bind(address).unwrap();
            node.add_service(&Service { vip: address.parse().unwrap(), own: None, marked: false, foreign: None })
                .unwrap();
            let client = TcpStream::connect(address).unwrap();
            let port = client.local_addr().unwrap().to_string();
            let mut leave = |flags| {
                let frame = Segment::new(address, &port, flags, 1000).frame();
                run_program(&mut node.programs, "node_egress", &frame).0
            };
            let server = listener.accept().unwrap().0;
            assert_eq!(leave(ACK), DROP, "it lives");
            // The server closes first: it's the one that remembers.
            drop(server);
            assert_eq!(std::io::Read::read(&mut &client, &mut [0]).unwrap(), 0);
            drop(client);
            assert_eq!((leave(ACK), leave(RST | ACK)), (PASS, DROP));
        }
    });
}

/// The same of a node's: `costs_of_a_node`.
#[test]
#[ignore = "a measurement"]
fn costs_of_a_node() {
    where_connections_begin("node-costs", |path| {
        let server = "127.0.0.1:80";
        let (listener, at) = (std::net::TcpListener::bind(server).unwrap(), server.parse().unwrap());
        let client = std::net::TcpStream::connect(server).unwrap();
        let _server = listener.accept().unwrap();
        let port = client.local_addr().unwrap().to_string();
        for is_replayed in [false, true] {
            let key = CookieKey::new([7; 16]);
            let load = if is_replayed { Node::load_for_replays } else { Node::load_for_births };
            let mut node = load(&path.join(is_replayed.to_string()), key).unwrap();
            node.add_service(&Service { vip: at, own: None, marked: false, foreign: Some(at) }).unwrap();
            for (program, from, to, payload) in [
                ("node_egress", server, &*port, 1400),
                ("node_ingress", &*port, server, 0),
                ("node_ingress", &*port, server, 100),
            ] {
                let segment = Segment { timestamp: Some(1), ..Segment::new(from, to, ACK, 1000) };
                let segment = Segment { payload: vec![0; payload], ..segment };
                if let Some(replays) = &mut node.replays {
                    let key = if program == "node_ingress" {
                        segment.key()
                    } else {
                        FlowKey { client: segment.to, vip: segment.from }
                    };
                    replays.put(key, layout::RawReplay { sequence: 1, clock: 1, is_answered: 1, ..Default::default() });
                }
                let frame = segment.frame();
                let options = TestRunOptions { data_in: Some(&frame), repeat: 1_000_000, ..TestRunOptions::default() };
                let time = node.programs.classifier(program).unwrap().test_run(options).unwrap().duration;
                println!("{program} of another server, {payload} bytes, replayed {is_replayed}: {time:?} a packet");
            }
        }
    });
}

#[test]
fn flows_are_steered_by_the_clock_of_older_kernels_as_well() {
    in_namespace("older", |path| {
        let object = attach::for_older_kernel(super::dispatcher::OBJECT);
        assert!(object != super::dispatcher::OBJECT);
        let dispatcher = with_nodes(Dispatcher::with_programs(&object, path, 100, None).unwrap());
        let segment = Segment::new(CLIENT4, VIP4, ACK, 1000);
        steer(&dispatcher, segment.key(), 1);
        assert_eq!(arrive(&dispatcher, &segment), REDIRECT);
    });
}

#[test]
fn processes_leave_no_taps_behind_and_none_steers_by_anothers() {
    in_namespace("taps", |path| {
        let other = Dispatcher::load(&path.join("other"), 100).unwrap();
        other.attach("lo").unwrap();
        assert_eq!(crate::interfaces::outward().unwrap(), Vec::<String>::new());
        for _ in 0..3 {
            let dispatcher = Dispatcher::load(path, 100).unwrap();
            dispatcher.attach("lo").unwrap();
            assert_eq!(dispatcher.taps.lock().unwrap().keys().count(), 2);
        }
    });
}

#[test]
fn what_a_process_has_given_up_is_found_as_left_by_the_next_one_beside_it() {
    in_namespace("resigned", |path| {
        let load = || Dispatcher::load(path, 100).unwrap();
        let (id, key) = (
            FlowId { home: ServerId(0), serial: 9 },
            FlowKey { client: CLIENT4.parse().unwrap(), vip: VIP4.parse().unwrap() },
        );
        let before = load();
        before.attach("lo").unwrap();
        before.flows().hold(key, id).unwrap();
        before.flows().steer(key, id, (ServerId(1), Generation(1))).unwrap();
        assert!(!load().was_left(), "it steers by them");
        before.resign().unwrap();
        let next = load();
        assert!(next.was_left());
        assert_eq!(next.flows().get(key).unwrap().map(|flow| flow.id), Some(id), "what there is stays");
        next.attach("lo").unwrap();
        drop(before);
        assert_eq!(next.taps.lock().unwrap().keys().count(), 2, "its taps are its own");
        assert!(!load().was_left());
    });
}

/// What the programs cost: `cargo test -p leat-host --release --lib steering -- --ignored --nocapture costs`.
#[test]
#[ignore = "a measurement"]
fn costs() {
    in_lab("costs", |dispatcher| {
        for (client, vip) in [(CLIENT4, VIP4), (CLIENT6, VIP6)] {
            let mut segment = Segment::new(client, vip, ACK, 1000);
            segment.timestamp = Some(1);
            for (what, node) in [("of no flow", None), ("of a flow", Some(1))] {
                if let Some(node) = node {
                    steer(dispatcher, segment.key(), node);
                }
                let mut programs = dispatcher.programs.lock().unwrap();
                let frame = segment.frame();
                let options = TestRunOptions { data_in: Some(&frame), repeat: 1_000_000, ..TestRunOptions::default() };
                let time = programs.classifier("dispatcher_ingress").unwrap().test_run(options).unwrap().duration;
                println!("{vip} {what}: {time:?} a packet, without the redirect itself");
            }
        }
        let key = |number: u32| FlowKey {
            client: SocketAddr::new(IpAddr::from(number.to_be_bytes()), 1),
            vip: VIP4.parse().unwrap(),
        };
        let start = std::time::Instant::now();
        for round in 0..100_000 {
            dispatcher.flows().hold(key(round % 50), id(1)).unwrap();
        }
        println!("an update: {:?}", start.elapsed() / 100_000);
    });
}
