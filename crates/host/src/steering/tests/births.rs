//! Connections that begin by a cookie, with no socket until their request comes.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use super::transplant::{Next, said_before};
use super::*;
use crate::tap;

/// Who listens at an address's port, whatever the address.
fn listen_widely(at: SocketAddr) -> OwnedFd {
    let wide: IpAddr = if at.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    crate::socket::listen(SocketAddr::new(wide, at.port())).unwrap()
}

/// Has a VIP's SYNs answered: somebody listens there.
pub(super) fn answer_at(dispatcher: &Dispatcher, vip: SocketAddr) -> OwnedFd {
    dispatcher.answer(vip).unwrap();
    listen_widely(vip)
}

/// The answer to a SYN, as far as it matters: sequence number and timestamp.
fn answer(dispatcher: &Dispatcher, syn: &Segment) -> Option<(u32, u32)> {
    let (verdict, frame) = run(dispatcher, "dispatcher_ingress", &syn.frame());
    if verdict != REDIRECT {
        return None;
    }
    let l4 = if syn.from.is_ipv4() { 34 } else { 54 };
    let tcp = &frame[l4..];
    assert_eq!(checksum(&[&pseudo_header(syn.to.ip(), syn.from.ip(), 6, tcp.len()), tcp]), 0);
    assert!(!syn.from.is_ipv4() || checksum(&[&frame[14..34]]) == 0);
    let number = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
    assert_eq!((number(8), tcp[13], number(32)), (syn.sequence.wrapping_add(1), SYN | ACK, syn.timestamp.unwrap()));
    Some((number(4), number(28)))
}

fn urgent_pointer(frame: &[u8], from: SocketAddr) -> u16 {
    let at = if from.is_ipv4() { 34 } else { 54 } + 18;
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

/// A segment that echoes our clock.
fn echoing(segment: &Segment, echo: u32) -> Vec<u8> {
    let mut frame = segment.frame();
    let l4 = if segment.from.is_ipv4() { 34 } else { 54 };
    frame[l4 + 28..l4 + 32].copy_from_slice(&echo.to_be_bytes());
    frame
}

#[test]
fn a_syn_is_answered_without_a_socket_and_who_got_the_answer_is_believed() {
    where_connections_begin("cookie", |path| {
        let dispatcher = &load_for_births(path);
        for (client, vip) in [(CLIENT4, VIP4), (CLIENT6, VIP6)] {
            let mut syn = Segment::new(client, vip, SYN, 7000);
            syn.timestamp = Some(99);
            assert_eq!(answer(dispatcher, &syn), None, "it's no VIP");
            dispatcher.answer(syn.to).unwrap();
            assert_eq!(answer(dispatcher, &syn), None, "nobody listens");
            let _listener = listen_widely(syn.to);
            let old = Segment { timestamp: None, ..syn.clone() };
            assert_eq!(arrive(dispatcher, &old), PASS, "without a clock it's the kernel's");
            let (number, clock) = answer(dispatcher, &syn).expect("an answer");
            assert_eq!(priority(dispatcher, "dispatcher_ingress", &syn.frame()), INTERACTIVE);

            let mut ack = Segment { flags: ACK, sequence: 7001, ..syn.clone() };
            let entry = || dispatcher.flows().get(ack.key()).unwrap();
            let arrive = |segment: &Segment, echo| run(dispatcher, "dispatcher_ingress", &echoing(segment, echo)).0;
            for (acknowledged, sequence, echo) in
                [(number, 7001, clock), (number + 1, 7002, clock), (number + 1, 7001, clock ^ 64)]
            {
                let forged = Segment { acknowledged, sequence, ..ack.clone() };
                assert_eq!((arrive(&forged, echo), entry()), (PASS, None));
            }
            ack.acknowledged = number + 1;
            assert_eq!(arrive(&ack, clock), DROP, "it has said what it's for");
            let flow = dispatcher.flows().get(ack.key()).unwrap().expect("an entry");
            assert!(flow.born && flow.held && flow.heard.client_next == 7001 && flow.id.serial >> 63 == 1, "{flow:?}");
            let (home, holder) = (ServerId::new(0, 2), ServerId::new(1, 7));
            dispatcher.flows().bear(ack.key(), &flow, home, holder).unwrap();
            ack.payload = b"GET / HTTP/1.1".to_vec();
            for (segment, names) in [
                (ack.clone(), 0x0207),
                (Segment { payload: Vec::new(), ..ack.clone() }, 0),
                (Segment { acknowledged: number + 2, ..ack.clone() }, 0),
                (Segment { flags: ACK | URG, ..ack.clone() }, 0),
            ] {
                let (verdict, frame) = run(dispatcher, "dispatcher_ingress", &echoing(&segment, clock));
                assert_eq!((verdict, urgent_pointer(&frame, segment.from)), (REDIRECT, names));
            }
            assert_eq!(arrive(&syn, 0), REDIRECT, "a flow that lives: the node's kernel challenges it");

            let mut later = Segment { from: SocketAddr::new(syn.from.ip(), 40_001), ..syn.clone() };
            let (number, clock) = answer(dispatcher, &later).expect("an answer");
            dispatcher.stop_answering(syn.to).unwrap();
            assert_eq!(arrive(&later, 0), PASS, "what begins is the listener's");
            (later.flags, later.sequence, later.acknowledged) = (ACK, 7001, number + 1);
            assert_eq!(arrive(&later, clock), DROP, "it had an answer, and goes on");
            assert!(dispatcher.flows().get(later.key()).unwrap().is_some_and(|flow| flow.born));
        }
        let counters = dispatcher.counters().unwrap();
        assert_eq!((counters.answered, counters.awaited), (6, 4));
    });
}

#[test]
fn what_overtakes_a_connections_first_packet_has_nobody_reset() {
    where_connections_begin("overtaken", |path| {
        let dispatcher = &load_for_births(path);
        for (client, vip) in [(CLIENT4, VIP4), (CLIENT6, VIP6)] {
            let syn = Segment { timestamp: Some(99), ..Segment::new(client, vip, SYN, 7000) };
            let _listener = answer_at(dispatcher, syn.to);
            let (number, clock) = answer(dispatcher, &syn).expect("an answer");
            let arrive = |segment: &Segment, echo| run(dispatcher, "dispatcher_ingress", &echoing(segment, echo)).0;
            let first = Segment {
                flags: ACK,
                sequence: 7001,
                acknowledged: number + 1,
                payload: vec![b'a'; 1400],
                ..syn.clone()
            };
            let second = Segment { sequence: 8401, ..first.clone() };
            let last = Segment { flags: ACK | FIN, sequence: 9801, payload: Vec::new(), ..first.clone() };
            for segment in [&second, &last] {
                assert_eq!(arrive(segment, clock), DROP, "its client says it again");
                assert_eq!(arrive(segment, clock.wrapping_sub(4_000)), PASS, "it's of a connection that is over");
            }
            assert_eq!(
                arrive(&Segment { payload: Vec::new(), ..second.clone() }, clock),
                PASS,
                "nothing is lost with it"
            );
            assert_eq!(dispatcher.flows().get(first.key()).unwrap(), None);
            assert_ne!(arrive(&first, clock), PASS);
            assert!(dispatcher.flows().get(first.key()).unwrap().is_some_and(|flow| flow.born), "it has begun");
        }
        let counters = dispatcher.counters().unwrap();
        assert_eq!((counters.resets, counters.awaited), (4, 2));
    });
}

#[test]
fn who_connects_and_says_nothing_is_remembered_as_long_as_the_cookie_is_good_unless_many_do() {
    where_connections_begin("silent", |path| {
        let dispatcher = &Dispatcher::load_for_births(path, 1000, CookieKey::new([7; 16]), &[]).unwrap();
        let syn = Segment { timestamp: Some(99), ..Segment::new(CLIENT4, VIP4, SYN, 7000) };
        let _listener = answer_at(dispatcher, syn.to);
        let connect = |port| {
            let syn = Segment { from: SocketAddr::new(syn.from.ip(), port), ..syn.clone() };
            let (number, clock) = answer(dispatcher, &syn).expect("an answer");
            let ack = Segment { flags: ACK, sequence: 7001, acknowledged: number + 1, ..syn };
            assert_eq!(run(dispatcher, "dispatcher_ingress", &echoing(&ack, clock)).0, DROP);
        };
        let left_after = |seconds| {
            let later = crate::clock::now().after(Duration::from_secs(seconds));
            let (mut left, mut place) = dispatcher.flows().sweep(None, 256, later).unwrap();
            while place.is_some() {
                let (more, next) = dispatcher.flows().sweep(place, 256, later).unwrap();
                (left, place) = (left + more, next);
            }
            left
        };
        connect(30_000);
        assert_eq!((left_after(60), left_after(65)), (1, 0));
        (30_000..30_300).for_each(connect);
        assert_eq!((left_after(4), left_after(6)), (300, 0), "more than are looked at in one go");
    });
}

#[test]
fn who_has_an_answer_of_the_process_before_goes_on_before_the_next_one_answers() {
    where_connections_begin("next-process", |path| {
        let syns = [(CLIENT4, VIP4), (CLIENT6, VIP6)]
            .map(|ends| Segment { timestamp: Some(99), ..Segment::new(ends.0, ends.1, SYN, 7000) });
        let _listeners = ["0.0.0.0:80", "[::]:80"].map(|wide| crate::socket::listen(wide.parse().unwrap()).unwrap());
        let before = load_for_births(path);
        let vips = syns.clone().map(|syn| syn.to);
        let next = with_nodes(Dispatcher::load_for_births(path, 100, CookieKey::new([7; 16]), &vips).unwrap());
        for syn in &syns {
            before.answer(syn.to).unwrap();
            let (number, clock) = answer(&before, syn).expect("an answer");
            assert_eq!(arrive(&next, syn), PASS, "the listener answers until this one does");
            let ack = Segment { flags: ACK, sequence: 7001, acknowledged: number + 1, ..syn.clone() };
            assert_eq!(run(&next, "dispatcher_ingress", &echoing(&ack, clock)).0, DROP, "the kernel would reset it");
            assert!(next.flows().get(ack.key()).unwrap().is_some_and(|flow| flow.born));
        }
    });
}

#[test]
fn a_connection_begins_once_though_two_processors_see_packets_of_it_at_once() {
    where_connections_begin("at-once", |path| {
        let dispatcher = &load_for_births(path);
        let syn = Segment { timestamp: Some(99), ..Segment::new(CLIENT4, VIP4, SYN, 7000) };
        let _listener = answer_at(dispatcher, syn.to);
        for turn in 0..2_000 {
            let (number, clock) = answer(dispatcher, &syn).expect("an answer");
            let ack = Segment { flags: ACK, sequence: 7001, acknowledged: number + 1, ..syn.clone() };
            let request = Segment { payload: b"GET / HTTP/1.1".to_vec(), ..ack.clone() };
            let mut programs = dispatcher.programs.lock().unwrap();
            let program = &*programs.classifier("dispatcher_ingress").unwrap();
            let ready = AtomicUsize::new(0);
            let arrive = |segment: &Segment| {
                let frame = echoing(segment, clock);
                ready.fetch_add(1, Ordering::AcqRel);
                while ready.load(Ordering::Acquire) < 2 {
                    std::thread::yield_now();
                }
                let options = TestRunOptions { data_in: Some(&frame), ..TestRunOptions::default() };
                program.test_run(options).unwrap().return_value
            };
            let verdicts = std::thread::scope(|scope| {
                let other = scope.spawn(|| arrive(&ack));
                [arrive(&request), other.join().unwrap()]
            });
            assert!(!verdicts.contains(&PASS), "turn {turn}: {verdicts:?}: a packet is this host's own");
        }
        let counters = dispatcher.counters().unwrap();
        assert_eq!((counters.awaited, counters.admitted), (2_000, 0));
    });
}

#[test]
fn a_node_believes_nobody_who_has_no_cookie() {
    where_connections_begin("forged", |path| {
        let mut node = Node::load_for_births(path, CookieKey::new([7; 16])).unwrap();
        for (client, vip) in [(CLIENT4, VIP4), (CLIENT6, VIP6)] {
            let service = Service { vip: vip.parse().unwrap(), own: None, marked: true, foreign: None };
            node.add_service(&service).unwrap();
            let mut ack = Segment::new(client, vip, ACK, 7001);
            (ack.acknowledged, ack.timestamp, ack.payload) = (1234, Some(99), b"GET / HTTP/1.1".to_vec());
            for frame in [ack.frame(), echoing(&ack, 55), Segment { timestamp: None, ..ack }.frame()] {
                let options = TestRunOptions { data_in: Some(&frame), ..TestRunOptions::default() };
                let program = node.programs.classifier("node_ingress").unwrap();
                assert_eq!(program.test_run(options).unwrap().return_value, DROP);
            }
        }
        assert_eq!(node.counters().unwrap(), NodeCounters { forged: 6, ..NodeCounters::default() });
    });
}

/// A client that has been answered, and its first packet.
pub(super) fn first_packet(dispatcher: &Dispatcher, syn: &Segment, payload: &[u8]) -> (Segment, Vec<u8>) {
    let (number, clock) = answer(dispatcher, syn).expect("an answer");
    let ack = Segment { flags: ACK, sequence: syn.sequence + 1, acknowledged: number + 1, ..syn.clone() };
    assert_eq!(run(dispatcher, "dispatcher_ingress", &echoing(&ack, clock)).0, DROP, "it has said what it's for");
    let request = Segment { payload: payload.to_vec(), ..ack };
    let frame = echoing(&request, clock);
    (request, frame)
}

#[test]
fn a_reset_behind_a_first_packet_waits_with_it() {
    where_connections_begin("aborted", |path| {
        let dispatcher = &load_for_births(path);
        let syn = Segment { timestamp: Some(99), ..Segment::new(CLIENT4, VIP4, SYN, 7000) };
        let _listener = answer_at(dispatcher, syn.to);
        let payload = b"GET / HTTP/1.1\r\nHost: c\r\n\r\n";
        let (request, frame) = first_packet(dispatcher, &syn, payload);
        // Nothing has been said of taps: what is to wait is lost.
        let waits = |frame: &[u8]| {
            let lost = || dispatcher.counters().unwrap().lost;
            let before = lost();
            assert_eq!(run(dispatcher, "dispatcher_ingress", frame).0, DROP);
            lost() > before
        };
        let is_reset = || dispatcher.flows().get(request.key()).unwrap().is_some_and(|flow| flow.reset);
        let reset = |sequence| Segment { flags: RST | ACK, sequence, payload: Vec::new(), ..request.clone() }.frame();
        assert!(waits(&frame));
        assert!(waits(&reset(request.sequence + payload.len() as u32)), "whoever gets the request is to hear it");
        assert!(!is_reset(), "nor is it known whether that has come");
        assert!(!waits(&reset(request.sequence)), "there's nothing to be given to anybody");
        assert!(is_reset());
    });
}

#[test]
fn a_choice_that_stands_sends_requests_for_the_same_on_and_tells_of_each() {
    where_connections_begin("standing", |path| {
        let dispatcher = &load_for_births(path);
        let (home, workers) = (ServerId::new(0, 0), [ServerId::new(1, 7), ServerId::new(1, 8)]);
        for (client, vip) in [(CLIENT4, VIP4), (CLIENT6, VIP6)] {
            let first = Segment { timestamp: Some(99), ..Segment::new(client, vip, SYN, 7000) };
            let _listener = answer_at(dispatcher, first.to);
            let plain = b"GET /a?b HTTP/1.1\r\nHost: c\r\n\r\n";
            let content = dispatcher.content(first.to, plain).unwrap();
            let mut port = 40_010;
            let mut arrive = |payload: &[u8]| {
                port += 1;
                let syn = Segment { from: SocketAddr::new(first.from.ip(), port), ..first.clone() };
                let (request, frame) = first_packet(dispatcher, &syn, payload);
                let (verdict, frame) = run(dispatcher, "dispatcher_ingress", &frame);
                // Nothing has been said of taps: what is to be looked at is dropped.
                let names = (verdict == REDIRECT).then(|| urgent_pointer(&frame, request.from));
                (names, request)
            };
            assert_eq!(arrive(plain).0, None, "nothing has been chosen");
            let until = crate::clock::now().after(Duration::from_secs(60));
            let choice = StandingChoice {
                until,
                home,
                limit: 3,
                holders: &workers,
                first: 0,
                are_foreign: false,
                are_watched: false,
            };
            dispatcher.choose_for(content, &choice).unwrap();
            for other in [
                &b"GET /a HTTP/1.1\r\nHost: c\r\n\r\n"[..],
                b"GET /a?b HTTP/1.1\r\nHost: d\r\n\r\n",
                b"GET /a?b HTTP/1.1\r\nX: y\r\nHost: c\r\n\r\n",
                b"GET /a?b HTTP/1.1\r\nHost: c\r\n",
                b"POST /a?b HTTP/1.1\r\nHost: c\r\n\r\n",
                b"GET /a?b HTTP/1.1\r\nHost: c\r\n\r\nmore",
            ] {
                assert_eq!(arrive(other).0, None, "{}", String::from_utf8_lossy(other));
                assert!(dispatcher.poll_begun(home).is_none());
            }
            let long = b"GET /a?b HTTP/1.1\r\nHost: c\r\nCookie: whatever\r\n\r\n";
            for (payload, holder) in [(&plain[..], workers[0]), (long, workers[1]), (plain, workers[0])] {
                let (names, request) = arrive(payload);
                assert_eq!(names, Some(holder.worker()));
                let begun = dispatcher.poll_begun(home).expect("it's told");
                assert_eq!((begun.holder, begun.content, begun.arrival.key), (holder, content, request.key()));
                assert_eq!((&begun.arrival.payload[..], begun.arrival.has_fin), (payload, false));
                let state = begun.arrival.state();
                let next = request.sequence + payload.len() as u32;
                assert_eq!((state.receive_next, state.send_next), (next, request.acknowledged));
                let entry = dispatcher.flows().get(request.key()).unwrap().expect("an entry");
                assert_eq!((entry.id, entry.holder), (begun.arrival.flow.id, holder));
                assert!(!entry.born && !entry.held && entry.generation == Generation::BORN, "{entry:?}");
                assert_eq!((entry.heard.client_next, entry.heard.acknowledged), (next, request.acknowledged));
                // Nobody can say any more that somebody else has it.
                let asked = Flow { id: FlowId { home: ServerId(0), ..entry.id }, ..entry };
                let bear = |holder| dispatcher.flows().bear(request.key(), &asked, home, holder);
                assert!(matches!(bear(workers[1]), Err(Error::Gone)));
            }
            assert_eq!(arrive(plain).0, None, "so many and no more");
            dispatcher.choose_for(content, &StandingChoice { until: crate::clock::now(), ..choice }).unwrap();
            std::iter::from_fn(|| (crate::clock::now() < until).then(|| arrive(plain).0))
                .find(Option::is_none)
                .expect("it's over, by a clock that may be a tick late");
            while dispatcher.poll_begun(home).is_some() {}
            assert!(dispatcher.poll_begun(ServerId::new(0, 5)).is_none());
        }
    });
}

#[test]
fn a_connection_begins_once_though_two_say_where() {
    where_connections_begin("once", |path| {
        let dispatcher = &load_for_births(path);
        let first = Segment { timestamp: Some(99), ..Segment::new(CLIENT4, VIP4, SYN, 7000) };
        let _listener = answer_at(dispatcher, first.to);
        let payload = b"GET / HTTP/1.1\r\nHost: c\r\n\r\n";
        // The first worker's number is that of nobody.
        let (home, workers) = (ServerId::new(0, 0), [ServerId::new(1, 0), ServerId::new(1, 1)]);
        let until = crate::clock::now().after(Duration::from_secs(60));
        let choice = StandingChoice {
            until,
            home,
            limit: u32::MAX,
            holders: &workers[..1],
            first: 0,
            are_foreign: false,
            are_watched: false,
        };
        let mut turns = [0; 2];
        for turn in 0..2_000 {
            dispatcher
                .choose_for(dispatcher.content(first.to, payload).unwrap(), &StandingChoice { limit: 0, ..choice })
                .unwrap();
            let syn = Segment { from: SocketAddr::new(first.from.ip(), 20_000 + turn), ..first.clone() };
            let (request, frame) = first_packet(dispatcher, &syn, payload);
            let flow = dispatcher.flows().get(request.key()).unwrap().expect("an entry");
            dispatcher.choose_for(dispatcher.content(first.to, payload).unwrap(), &choice).unwrap();
            let ready = AtomicUsize::new(0);
            let meet = || {
                ready.fetch_add(1, Ordering::AcqRel);
                while ready.load(Ordering::Acquire) < 2 {
                    std::thread::yield_now();
                }
            };
            let has_borne = std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    meet();
                    dispatcher.flows().bear(request.key(), &flow, home, workers[1]).is_ok()
                });
                meet();
                run(dispatcher, "dispatcher_ingress", &frame);
                other.join().unwrap()
            });
            let is_told = dispatcher.poll_begun(home).is_some();
            assert!(has_borne != is_told, "turn {turn}: {has_borne} {is_told}");
            let entry = dispatcher.flows().get(request.key()).unwrap().expect("an entry");
            assert_eq!(entry.holder, workers[usize::from(has_borne)]);
            turns[usize::from(has_borne)] += 1;
            assert!(dispatcher.flows().delete(request.key(), entry.id).unwrap());
        }
        println!("by the choice {}, by a worker {}", turns[0], turns[1]);
    });
}

#[test]
fn what_began_here_is_reset_from_here() {
    in_lab("own", |dispatcher| {
        let begins = 0;
        let segment = |flags, sequence| Segment::new(VIP4, CLIENT4, flags, sequence);
        let leave_at = |flags, sequence| run(dispatcher, "dispatcher_egress", &segment(flags, sequence).frame()).0;
        let leave = |flags| leave_at(flags, begins);
        let key = FlowKey { client: segment(0, begins).to, vip: segment(0, begins).from };
        dispatcher.flows().hold(key, id(1)).unwrap();
        assert_eq!((leave(RST), leave(RST | ACK)), (DROP, DROP), "nobody has it yet");
        let flow = dispatcher.flows().get(key).unwrap().unwrap();
        dispatcher.flows().delete(key, flow.id).unwrap();
        assert_eq!(flow.heard.acknowledged, begins, "nothing but what answered the SYN");
        dispatcher.flows().admit(key, &flow).unwrap();
        assert!(dispatcher.flows().get(key).unwrap().is_some_and(|flow| flow.own && !flow.born));
        assert_eq!(leave(RST | ACK), PASS, "its socket says so");
        assert_eq!(leave_at(RST, 5), PASS, "its client has heard a socket, which is gone");
        assert_eq!(leave(RST), DROP, "a packet may have overtaken the first");
        let began = std::time::Instant::now();
        while leave(RST) == DROP {
            assert!(began.elapsed().as_secs() < 10, "the first is here by now");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    });
}

/// On a connection at a server that isn't leat what is new waits, whatever order it comes in; what has been said before is sent on.
#[test]
fn what_a_client_says_next_at_another_server_waits_though_something_before_it_is_missing() {
    where_connections_begin("next", |path| {
        let dispatcher = &load_for_births(path);
        let syn = Segment { timestamp: Some(99), ..Segment::new(CLIENT4, VIP4, SYN, 7000) };
        let _listener = answer_at(dispatcher, syn.to);
        let payload = b"GET / HTTP/1.1\r\nHost: c\r\n\r\n";
        let (request, _) = first_packet(dispatcher, &syn, payload);
        let flow = dispatcher.flows().get(request.key()).unwrap().expect("an entry");
        let to = (ServerId::new(0, 0), ServerId::new(1, 0));
        dispatcher.flows().entrust(request.key(), &flow, to, payload.len(), true).unwrap();
        let arrive = |ahead: u32| {
            let before = dispatcher.counters().unwrap().asked;
            let segment = Segment { sequence: request.sequence + ahead, ..request.clone() };
            let verdict = run(dispatcher, "dispatcher_ingress", &segment.frame()).0;
            (verdict == REDIRECT, dispatcher.counters().unwrap().asked - before)
        };
        let (bytes, sent_on, waits) = (payload.len() as u32, (true, 0), (false, 1));
        assert_eq!(arrive(0), sent_on, "the first request");
        assert_eq!(arrive(2 * bytes), waits, "the third, as the second is missing");
        assert_eq!(arrive(0), sent_on, "the first once more: its holder may not have got it");
        assert_eq!(arrive(bytes), waits, "the second");
    });
}

#[test]
fn what_waits_goes_on_in_the_order_in_which_its_client_has_said_it() {
    let piece = |flags, sequence: u32, payload: &[u8]| -> Box<[u8]> {
        let segment = Segment { payload: payload.to_vec(), ..Segment::new(CLIENT4, VIP4, flags, sequence) };
        [&[0; tap::OFFLOADS], &segment.frame()[..]].concat().into()
    };
    let first = u32::MAX - 9;
    let [begin, again] = [b"GET /a", b"GET / "].map(|payload| piece(ACK, first, payload));
    let (next, end) = (piece(ACK, first.wrapping_add(20), b"GET /b"), piece(ACK | FIN, first.wrapping_add(26), b""));
    let no_segment: Box<[u8]> = [0; tap::OFFLOADS].into();
    let mut waiting = [&end, &no_segment, &next, &begin, &again].map(Clone::clone);
    held::put_in_order(&mut waiting);
    assert_eq!(waiting, [begin, again, next, end, no_segment], "beyond the end of the numbers too");
}

/// A connection that goes from one server that isn't leat to another: between the reset for the one and the packet that makes it at the other, whichever got
/// something of it would reset its client.
#[test]
fn what_a_client_acknowledges_between_two_servers_reaches_neither() {
    where_connections_begin("between", |path| {
        let dispatcher = &load_for_births(path);
        let syn = Segment { timestamp: Some(99), ..Segment::new(CLIENT4, VIP4, SYN, 7000) };
        let _listener = answer_at(dispatcher, syn.to);
        let payload = b"GET / HTTP/1.1\r\nHost: c\r\n\r\n";
        let (request, _) = first_packet(dispatcher, &syn, payload);
        let key = request.key();
        let flow = || dispatcher.flows().get(key).unwrap().expect("an entry");
        let servers = [1, 2].map(|node| (ServerId::new(0, 0), ServerId::new(node, 0)));
        dispatcher.flows().entrust(key, &flow(), servers[0], payload.len(), true).unwrap();
        let arrive = |frame: &[u8]| run(dispatcher, "dispatcher_ingress", frame).0;
        let asked = || dispatcher.counters().unwrap().asked;
        let next =
            Segment { sequence: request.sequence + payload.len() as u32, payload: payload.to_vec(), ..request.clone() };
        let end = next.sequence + payload.len() as u32;
        let only_acknowledges = Segment { sequence: end, payload: Vec::new(), ..next.clone() };
        assert_eq!((arrive(&next.frame()), asked()), (DROP, 1), "it waits");
        assert_eq!(arrive(&only_acknowledges.frame()), REDIRECT);

        let in_tap = [&[0; tap::OFFLOADS], &next.frame()[..]].concat().into();
        let waiting = Next::read(key, flow(), &[in_tap]).expect("it's there");
        let planting = waiting.planting();
        assert_eq!(arrive(&planting.reset()[tap::OFFLOADS..]), REDIRECT, "the first server's");
        assert!(flow().reset);
        let neither_gets = |turn: &str| {
            assert_eq!(arrive(&only_acknowledges.frame()), DROP, "{turn}");
            assert_eq!(arrive(&request.frame()), DROP, "{turn}: it has been answered");
        };
        neither_gets("the first has been reset");
        let planted = dispatcher.plant(&waiting, servers[1]).unwrap();
        neither_gets("the second has got nothing");
        assert!(dispatcher.plant_again(&planted), "its packet may have been lost");

        let made = planting.frames(payload, CookieKey::new([7; 16]), false);
        assert_eq!(arrive(&made[0][tap::OFFLOADS..]), REDIRECT, "the second server's");
        assert_eq!(arrive(&only_acknowledges.frame()), REDIRECT);
        assert!(dispatcher.plant_again(&planted), "its client hasn't heard from it");

        // The client has, and what it asks for next is the first one's again.
        let third = Segment { sequence: end, acknowledged: next.acknowledged + 100, ..next.clone() };
        let before = asked();
        assert_eq!((arrive(&third.frame()), asked() - before), (DROP, 1), "it waits");
        let in_tap = [&[0; tap::OFFLOADS], &third.frame()[..]].concat().into();
        let waiting = Next::read(key, flow(), &[in_tap]).expect("it's there");
        let planted_again = dispatcher.plant(&waiting, servers[0]).unwrap();
        assert!(!dispatcher.plant_again(&planted), "another worker may have planted it, and not know of this");
        assert!(dispatcher.plant_again(&planted_again));
    });
}

/// What is sent again with more is taken as TCP takes it: its holder gets what it may lack, and what is new waits.
#[test]
fn of_what_a_client_sends_again_with_more_only_the_new_is_looked_at() {
    where_connections_begin("overlap", |path| {
        let dispatcher = &load_for_births(path);
        for (client, vip) in [(CLIENT4, VIP4), (CLIENT6, VIP6)] {
            let syn = Segment { timestamp: Some(99), ..Segment::new(client, vip, SYN, 7000) };
            let _listener = answer_at(dispatcher, syn.to);
            let payload = b"GET / HTTP/1.1\r\nHost: c\r\n\r\n";
            let (request, _) = first_packet(dispatcher, &syn, payload);
            let (key, bytes) = (request.key(), payload.len() as u32);
            let flow = || dispatcher.flows().get(key).unwrap().expect("an entry");
            let to = (ServerId::new(0, 0), ServerId::new(1, 0));
            dispatcher.flows().entrust(key, &flow(), to, payload.len(), true).unwrap();
            let next = b"GET /2 HTTP/1.1\r\n\r\n";
            let again =
                Segment { sequence: request.sequence + 5, payload: [&payload[5..], next].concat(), ..request.clone() };
            assert_eq!(run(dispatcher, "dispatcher_ingress", &again.frame()).0, DROP, "it waits");
            assert!(flow().is_looked_at());
            let in_tap =
                |segment: &Segment| -> Box<[u8]> { [&[0; tap::OFFLOADS], &segment.frame()[..]].concat().into() };
            let lacking = said_before(key, &in_tap(&again), flow().watch.looked_to);
            let frames: Vec<_> = lacking.iter().map(|frame| &frame[tap::OFFLOADS..]).collect();
            let known = Segment { payload: payload[5..].to_vec(), flags: ACK | 8, ..again.clone() };
            assert_eq!(frames, [&known.frame()[..]]);
            assert_eq!(run(dispatcher, "dispatcher_ingress", frames[0]).0, REDIRECT, "its holder gets it");
            // The same once more, longer: each byte counts once.
            let longer = Segment { payload: [&again.payload[..], b"GET"].concat(), ..again.clone() };
            let waiting = [&longer, &again, &request].map(in_tap);
            let next_of = |frames: &[Box<[u8]>]| Next::read(key, flow(), frames).expect("it's there");
            for (frames, said) in [(&waiting[1..], &next[..]), (&waiting[..], &[&next[..], b"GET"].concat())] {
                let next = next_of(frames);
                assert_eq!((next.sequence(), &next.arrival.payload[..]), (request.sequence + bytes, said));
            }
            assert!(said_before(key, &waiting[0], longer.sequence).is_empty(), "nothing of it is known");
        }
    });
}
