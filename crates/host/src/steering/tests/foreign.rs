//! What passes where a server answers that isn't leat.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use super::births::answer_at;
use super::born::{OPTIONS_SPAN_MS, Options};
use super::spread::sum_of;
use super::transplant::Planting;
use super::*;
use crate::tap;

/// Where another server answers, what leaves is let pass, but for a goodbye that nobody may hear: one that answers what found no connection.
#[test]
fn what_another_server_says_passes_without_a_lease() {
    where_connections_begin("leaves", |path| {
        let mut node = Node::load_for_births(path, CookieKey::new([7; 16])).unwrap();
        let foreign = Some("127.0.0.1:8080".parse().unwrap());
        for (client, vip) in [(CLIENT4, VIP4), (CLIENT6, VIP6)] {
            node.add_service(&Service { vip: vip.parse().unwrap(), own: None, marked: false, foreign }).unwrap();
            for (flags, verdict) in [(ACK, PASS), (FIN | ACK, PASS), (RST | ACK, PASS), (RST, DROP)] {
                let frame = Segment::new(vip, client, flags, 1000).frame();
                assert_eq!(run_program(&mut node.programs, "node_egress", &frame).0, verdict, "{vip}: {flags}");
            }
            // leat's own need one.
            let own = "198.51.100.2:80";
            let service = Service { vip: own.parse().unwrap(), own: None, marked: false, foreign: None };
            node.add_service(&service).unwrap();
            let frame = Segment::new(own, CLIENT4, ACK, 1000).frame();
            assert_eq!(run_program(&mut node.programs, "node_egress", &frame).0, DROP);
        }
    });
}

/// What only acknowledges is let in without a look at the connections: it makes none, and what the kernel answers where there is none doesn't leave.
#[test]
fn what_another_server_hears_may_be_nobodys() {
    where_connections_begin("hears", |path| {
        let mut node = Node::load_for_births(path, CookieKey::new([7; 16])).unwrap();
        let foreign = Some("127.0.0.1:8080".parse().unwrap());
        node.add_service(&Service { vip: VIP4.parse().unwrap(), own: None, marked: false, foreign }).unwrap();
        for (flags, payload, verdict) in [(ACK, 0, PASS), (ACK, 1, DROP), (FIN | ACK, 0, DROP), (RST, 0, DROP)] {
            let mut segment = Segment::new(CLIENT4, VIP4, flags, 1000);
            segment.payload = vec![0; payload];
            let frame = segment.frame();
            assert_eq!(run_program(&mut node.programs, "node_ingress", &frame).0, verdict, "{flags}, {payload} bytes");
        }
        let reset = Segment::new(VIP4, CLIENT4, RST, 1000).frame();
        assert_eq!(run_program(&mut node.programs, "node_egress", &reset).0, DROP);
    });
}

/// What goes on where the last packet of its connection ended is let in without a look at the connections, and nothing else is.
#[test]
fn what_goes_on_at_another_server_needs_no_look() {
    where_connections_begin("goes-on", |path| {
        let mut node = Node::load_for_births(path, CookieKey::new([7; 16])).unwrap();
        let server = "127.0.0.1:80";
        let (listener, at) = (TcpListener::bind(server).unwrap(), server.parse().unwrap());
        node.add_service(&Service { vip: at, own: None, marked: false, foreign: Some(at) }).unwrap();
        let client = TcpStream::connect(server).unwrap();
        let port = client.local_addr().unwrap().to_string();
        let mut arrive = |from: &str, flags, sequence| {
            let mut segment = Segment::new(from, server, flags, sequence);
            segment.payload = vec![0; 10];
            run_program(&mut node.programs, "node_ingress", &segment.frame()).0
        };
        assert_eq!((arrive(&port, ACK, 1000), arrive(&port, ACK, 1010)), (PASS, PASS));
        // Now there is none, which only who looks can know.
        for end in [listener.accept().unwrap().0, client] {
            crate::socket::reset_on_close(end.as_raw_fd());
        }
        for (from, flags, sequence, verdict) in [
            (&*port, ACK, 1020, PASS),
            ("127.0.0.1:9", ACK, 1030, DROP),
            (&*port, ACK, 1020, DROP),
            (&*port, ACK | FIN, 1030, DROP),
            (&*port, ACK, 1030, PASS),
        ] {
            assert_eq!(arrive(from, flags, sequence), verdict, "{from}: {flags}, {sequence}");
        }
    });
}

/// What the dispatcher has made of a client's next packet makes a connection at another server; what somebody else makes, or changes, doesn't.
#[test]
fn only_what_the_dispatcher_has_made_makes_a_connection_once_more() {
    where_connections_begin("planted", |path| {
        let key = CookieKey::new([7; 16]);
        let mut node = Node::load_for_births(path, key).unwrap();
        let foreign = Some("127.0.0.1:8080".parse().unwrap());
        for (client, vip) in [(CLIENT4, VIP4), (CLIENT6, VIP6)] {
            node.add_service(&Service { vip: vip.parse().unwrap(), own: None, marked: false, foreign }).unwrap();
            let options = Options { mss: 1440, window_scale: None, sack: true };
            let of = Segment::new(client, vip, ACK, 5000);
            let (key_of, stamps) = (of.key(), Some((1, 2)));
            let ethernet = *of.frame().first_chunk().unwrap();
            let (sequence, acknowledged, window) = (5000, 9000, 100);
            let planting = Planting { key: key_of, sequence, acknowledged, window, stamps, options, ethernet };
            let [first, second] = planting.frames(&[b'x'; 2000], key, false).try_into().unwrap();
            let mut arrive = |frame: &[u8]| run_program(&mut node.programs, "node_ingress", &frame[tap::OFFLOADS..]).0;
            assert_eq!(arrive(&second), DROP, "{vip}: what goes on from another makes none");
            // All of the option, the timestamps and the numbers.
            let tcp = tap::OFFLOADS + 14 + if vip == VIP4 { 20 } else { 40 };
            for place in (tcp + 4..tcp + 12).chain(tcp + 22..tcp + 40).chain(tcp + 44..tcp + 52) {
                let mut changed = first.clone();
                changed[place] ^= 1;
                assert_eq!(arrive(&changed), DROP, "{vip}: byte {}", place - tcp);
            }
            let other = planting.frames(b"GET", CookieKey::new([8; 16]), false);
            assert_eq!(arrive(&other[0]), DROP, "{vip}: another cluster's");
            let dispatchers = planting.frames(b"GET", key, true);
            assert_eq!(arrive(&dispatchers[0]), DROP, "{vip}: it's for the dispatcher itself");
            // Nobody listens: the kernel is to refuse it.
            assert_eq!(arrive(&first), PASS, "{vip}");
        }
        let counters = node.counters().unwrap();
        assert_eq!((counters.unheard, counters.planted, counters.forged), (2, 0, 2 * (1 + 34 + 2)));
    });
}

/// The kernel's clock goes on from what the first packet echoes: a round trip by that would take no time.
#[test]
fn a_round_trip_is_not_measured_by_a_first_packets_echo() {
    where_connections_begin("echo", |path| {
        let key = CookieKey::new([7; 16]);
        let dispatcher = Dispatcher::load_for_births(&path.join("dispatcher"), 16, key, &[]).unwrap();
        let mut node = Node::load_for_births(path, key).unwrap();
        for (client, vip, server, l4) in [(CLIENT4, VIP4, "127.0.0.1:8080", 34), (CLIENT6, VIP6, "[::1]:8080", 54)] {
            let _server = TcpListener::bind(server).unwrap();
            let syn = Segment { timestamp: Some(99), ..Segment::new(client, vip, SYN, 7000) };
            let foreign = Some(server.parse().unwrap());
            node.add_service(&Service { vip: syn.to, own: None, marked: false, foreign }).unwrap();
            let _listener = answer_at(&dispatcher, syn.to);
            let (request, mut frame) = births::first_packet(&dispatcher, &syn, b"GET / HTTP/1.1\r\n\r\n");
            frame[l4 + 16..l4 + 18].fill(0);
            let sum = sum_of(&request, &frame);
            frame[l4 + 16..l4 + 18].copy_from_slice(&sum.to_be_bytes());
            let (verdict, given) = run_program(&mut node.programs, "node_ingress", &frame);
            assert_eq!((verdict, sum_of(&request, &given)), (PASS, 0));
            let stamps = |frame: &[u8]| frame[l4 + 24..l4 + 32].to_vec();
            assert_eq!(stamps(&given), [&stamps(&frame)[..4], &[0; 4]].concat());
        }
    });
}

/// A client's port may be used again as soon as its connection is over, also where that has come from another server just now; what is late of one before it begins
/// nothing.
#[test]
fn a_port_that_is_used_again_at_once_begins_a_connection_and_what_is_late_begins_none() {
    where_connections_begin("again", |path| {
        let key = CookieKey::new([7; 16]);
        let dispatcher = Dispatcher::load_for_births(&path.join("dispatcher"), 16, key, &[]).unwrap();
        let mut node = Node::load_for_births(path, key).unwrap();
        // Nobody listens: the kernel refuses whatever begins.
        let foreign = Some("127.0.0.1:8080".parse().unwrap());
        node.add_service(&Service { vip: VIP4.parse().unwrap(), own: None, marked: false, foreign }).unwrap();
        let _listener = answer_at(&dispatcher, VIP4.parse().unwrap());
        let first_packet = |sequence: u32| {
            let syn = Segment { timestamp: Some(99), ..Segment::new(CLIENT4, VIP4, SYN, sequence) };
            births::first_packet(&dispatcher, &syn, b"GET / HTTP/1.1\r\n\r\n").1
        };
        let planted = |sequence: u32| {
            let options = Options { mss: 1440, window_scale: None, sack: true };
            let of = Segment::new(CLIENT4, VIP4, ACK, sequence);
            let (stamps, ethernet) = (Some((1, 2)), *of.frame().first_chunk().unwrap());
            let planting =
                Planting { key: of.key(), sequence, acknowledged: 9000, window: 100, stamps, options, ethernet };
            planting.frames(b"GET", key, false).remove(0)[tap::OFFLOADS..].to_vec()
        };
        let mut arrive = |frame: &[u8]| run_program(&mut node.programs, "node_ingress", frame).0;
        let span = || crate::clock::now().ns / 1_000_000 / u64::from(OPTIONS_SPAN_MS);
        for turn in 0..50 {
            // The first few begin as a span of time does within which cookies are the same: by their own clock it begins a little later.
            let before = span();
            while turn < 4 && span() == before {}
            // Some clients' numbers rise from connection to connection, those of others are anywhere.
            let begin = 7000 + turn * 10_000_000;
            let (one, moved) = (first_packet(begin), planted(begin + 40));
            assert_eq!((arrive(&one), arrive(&one)), (PASS, DROP), "turn {turn}");
            assert_eq!((arrive(&moved), arrive(&one), arrive(&moved)), (PASS, DROP, DROP), "turn {turn}");
            let next = first_packet(begin + if turn % 2 == 0 { 2_000_000 } else { 3_000_000_000 });
            assert_eq!((arrive(&next), arrive(&next)), (PASS, DROP), "turn {turn}: its port is used again");
            if turn % 2 == 0 {
                assert_eq!((arrive(&moved), arrive(&next)), (DROP, DROP), "turn {turn}");
            }
        }
    });
}

/// A node that watches a server, and a connection of that.
fn beside(path: &Path, server: &str) -> (Node, TcpStream, TcpStream) {
    let mut node = Node::load_for_births(path, CookieKey::new([7; 16])).unwrap();
    let (listener, at) = (TcpListener::bind(server).unwrap(), server.parse().unwrap());
    node.add_service(&Service { vip: at, own: None, marked: false, foreign: Some(at) }).unwrap();
    node.watch(true).unwrap();
    let client = TcpStream::connect(server).unwrap();
    (node, client, listener.accept().unwrap().0)
}

/// What another server says on a connection that has been given away is kept back, until the dispatcher sends its client's next packet there after all.
#[test]
fn a_connection_that_was_given_away_is_its_servers_again_with_its_clients_next_packet() {
    where_connections_begin("given", |path| {
        let server = "127.0.0.1:80";
        let (mut node, client, _server) = beside(path, server);
        let port = client.local_addr().unwrap().to_string();
        let asks = |sequence| {
            let payload = b"GET / HTTP/1.1\r\n\r\n".to_vec();
            Segment { acknowledged: 9000, payload, ..Segment::new(&port, server, ACK, sequence) }
        };
        let says = Segment { payload: vec![0; 10], ..Segment::new(server, &port, ACK, 9000) };
        let bytes = asks(0).payload.len() as u32;
        let key = asks(0).key();
        node.replies.as_mut().unwrap().begin(key, 1000 + bytes).unwrap();
        node.set_given(key, true).unwrap();
        for (asked, verdict) in [(None, DROP), (Some(1000), DROP), (Some(1000 + bytes), PASS)] {
            if let Some(sequence) = asked {
                assert_eq!(run_program(&mut node.programs, "node_ingress", &asks(sequence).frame()).0, PASS);
            }
            let (left, _) = run_program(&mut node.programs, "node_egress", &says.frame());
            assert_eq!(left, verdict, "{asked:?}");
        }
    });
}

/// Nobody has told the process that follows another yet whether anything is to be noted, and already packets pass its programs.
#[test]
fn what_is_said_while_another_process_takes_over_is_noted() {
    where_connections_begin("followed", |path| {
        let server = "127.0.0.1:80";
        let (mut node, client, _server) = beside(path, server);
        let port = client.local_addr().unwrap().to_string();
        let payload = b"GET / HTTP/1.1\r\n\r\n".to_vec();
        let asks = Segment { acknowledged: 9000, payload, ..Segment::new(&port, server, ACK, 1000) };
        node.replies.as_mut().unwrap().begin(asks.key(), 1000).unwrap();
        let mut next = Node::load_for_births(path, CookieKey::new([7; 16])).unwrap();
        run_program(&mut next.programs, "node_ingress", &asks.frame());
        let reply = next.last_reply(asks.key()).unwrap().unwrap();
        assert_eq!((reply.next, reply.is_awaited), (1000 + asks.payload.len() as u32, true));
        next.watch(false).unwrap();
        let more = Segment { sequence: reply.next, ..asks };
        run_program(&mut next.programs, "node_ingress", &more.frame());
        assert_eq!(next.last_reply(more.key()).unwrap(), Some(reply), "it was told");
    });
}

/// Whether a reply has content is known by it.
#[test]
fn what_a_client_asks_is_noted_however_it_is_divided() {
    where_connections_begin("divided", |path| {
        let server = "127.0.0.1:80";
        let (mut node, client, _server) = beside(path, server);
        let port = client.local_addr().unwrap().to_string();
        let request = b"HEAD / HTTP/1.1\r\n\r\n";
        let says = |at: usize, bytes: &[u8]| Segment {
            payload: bytes.to_vec(),
            ..Segment::new(&port, server, ACK, 1000 + at as u32)
        };
        let key = says(0, b"").key();
        let mut asked = |parts: &[&[u8]]| {
            node.replies.as_mut().unwrap().begin(key, 1000).unwrap();
            let mut at = 0;
            for part in parts {
                run_program(&mut node.programs, "node_ingress", &says(at, part).frame());
                at += part.len();
            }
            node.last_reply(key).unwrap().unwrap().request
        };
        for first in 0..request.len() {
            for second in first..request.len() {
                let parts = [&request[..first], &request[first..second], &request[second..]];
                assert_eq!(&asked(&parts), b"HEAD", "{first}, {second}");
            }
        }
        let single: Vec<&[u8]> = request.chunks(1).collect();
        assert_eq!(&asked(&single), b"HEAD");
        assert_eq!(&asked(&single[..3]), b"HEA\0");
    });
}

/// What leat says of a connection undoes nothing that is noted of it at the same time.
#[test]
fn what_a_server_says_is_noted_while_its_connection_is_marked() {
    where_connections_begin("marked", |path| {
        let mut node = Node::load_for_births(path, CookieKey::new([7; 16])).unwrap();
        node.watch(true).unwrap();
        let key = FlowKey { client: CLIENT4.parse().unwrap(), vip: VIP4.parse().unwrap() };
        let begin = 9000;
        node.replies.as_mut().unwrap().await_reply(key, begin, b"").unwrap();
        let Node { programs, replies, .. } = &mut node;
        let (program, replies) = (&*programs.classifier("node_egress").unwrap(), replies.as_ref().unwrap());
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    replies.set_given(key, false).unwrap();
                }
            });
            let lost = (1..=5_000_u32).find(|turn| {
                let says = Segment { payload: vec![b'x'], ..Segment::new(VIP4, CLIENT4, ACK, begin + turn - 1) };
                let frame = says.frame();
                let options = TestRunOptions { data_in: Some(&frame), ..TestRunOptions::default() };
                let verdict = program.test_run(options).unwrap().return_value;
                verdict != PASS || replies.last(key).unwrap().is_none_or(|noted| noted.end != begin + turn)
            });
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(lost, None);
        });
        replies.set_given(key, true).unwrap();
        assert!(replies.last(key).unwrap().expect("it's noted").is_given);
    });
}

/// How a reply ends is known, however it's divided.
#[test]
fn the_last_bytes_of_a_reply_are_noted_whatever_its_last_packets_have_of_them() {
    in_namespace("tails", |path| {
        let key = CookieKey::new([7; 16]);
        let mut node = match can_bear() {
            Ok(()) => Node::load_for_births(path, key).unwrap(),
            Err(_) if can_replay() => Node::load_for_replays(path, key).unwrap(),
            Err(error) => return println!("skipped: {error}"),
        };
        node.watch(true).unwrap();
        let reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        let says = |at: usize, bytes: &[u8]| Segment {
            payload: bytes.to_vec(),
            ..Segment::new(VIP4, CLIENT4, ACK, 9000 + at as u32)
        };
        let key = FlowKey { client: CLIENT4.parse().unwrap(), vip: VIP4.parse().unwrap() };
        let mut tail_of = |before: &[u8], parts: &[Segment]| {
            node.replies.as_mut().unwrap().await_reply(key, 9000, before).unwrap();
            for part in parts {
                assert_eq!(run_program(&mut node.programs, "node_egress", &part.frame()).0, PASS);
            }
            node.last_reply(key).unwrap().unwrap().tail
        };
        let end = reply.len();
        for first in 1..=8 {
            let cut = end - first;
            let parts = [says(0, &reply[..cut]), says(cut, &reply[cut..])];
            assert_eq!(tail_of(b"", &parts), reply[end - 8..], "{first}");
            // Said again, it's no news.
            let again = [&parts[..], &parts[1..]].concat();
            assert_eq!(tail_of(b"", &again), reply[end - 8..], "{first}");
            // The one in front of it has gone another way.
            assert_eq!(tail_of(b"", &[says(0, &reply[..3]), parts[1].clone()]), reply[cut..], "{first}");
            // What is known of a reply is of this one.
            assert_eq!(tail_of(b"0\r\n\r\n", &[says(0, &reply[..first])]), reply[..first], "{first}");
            for second in 1..=8 {
                let start = cut - second;
                let parts = [says(0, &reply[..start]), says(start, &reply[start..cut]), parts[1].clone()];
                assert_eq!(tail_of(b"", &parts), reply[end - 8..], "{first}, {second}");
            }
        }
        let parts: Vec<Segment> = (0..end).map(|at| says(at, &reply[at..=at])).collect();
        assert_eq!(tail_of(b"before", &parts), reply[end - 8..]);
        assert_eq!(tail_of(b"before", &parts[..3]), reply[..3]);
    });
}
