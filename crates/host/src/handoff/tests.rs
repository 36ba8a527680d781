//! Connections that are moved while their clients keep quiet, on the loopback of a namespace: what is moved with them. Clients that don't keep
//! quiet are in `tests/handoff`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use leat_logic::handoff::{Congestion, TcpState};

use super::{Error, Freezer, forget_way, repair};
use crate::connections::forget_handshake;
use crate::namespace;
use crate::reactor::SendNow;
use crate::socket::{self, set_option};

/// Runs a test in a namespace of its own, or says that it can't.
fn in_namespace(name: &str, parameters: &'static [(&str, &str)], test: impl FnOnce() + Send + 'static) {
    let Some(namespace) = namespace::for_test(name) else { return };
    for (parameter, value) in parameters {
        namespace.set(parameter, value).unwrap();
    }
    namespace.run(test).unwrap();
}

fn connection(address: &str) -> (TcpStream, OwnedFd) {
    let listener = TcpListener::bind(address).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let (server, _) = listener.accept().unwrap();
    socket::set_nonblocking(server.as_raw_fd(), true).unwrap();
    (client, server.into())
}

/// Freezes a connection, closes it, and makes it anew.
fn moved(socket: OwnedFd) -> (TcpStream, TcpState) {
    let freezer = Freezer::new();
    let frozen = freezer.freeze(socket).unwrap();
    let state = frozen.state().clone();
    frozen.close_silently();
    let stream = TcpStream::from(freezer.thaw(&state).unwrap());
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    (stream, state)
}

fn exchange(from: &mut TcpStream, to: &mut TcpStream, text: &[u8]) {
    from.write_all(text).unwrap();
    let mut received = vec![0; text.len()];
    to.read_exact(&mut received).unwrap();
    assert_eq!(received, text);
}

fn goes_on_after_moves(address: &str) -> TcpState {
    let (mut client, server) = connection(address);
    let (mut server, state) = moved(server);
    exchange(&mut client, &mut server, b"question");
    exchange(&mut server, &mut client, b"answer");
    let (mut server, _) = moved(server.into());
    exchange(&mut server, &mut client, &[b'x'; 100_000]);
    exchange(&mut client, &mut server, b"again");
    drop(server);
    assert_eq!(client.read(&mut [0; 8]).unwrap(), 0, "the end arrives, and no reset");
    state
}

#[test]
fn a_connection_goes_on_after_it_was_moved_twice() {
    in_namespace("moves", &[], || {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let state = goes_on_after_moves(address);
            assert!(state.sack && state.timestamp.is_some() && state.window_scale.is_some(), "{state:?}");
            assert!(state.mss > 60_000, "{state:?}");
        }
    });
}

#[test]
fn the_congestion_window_of_a_far_client_goes_along() {
    in_namespace("windows", &[], || {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (mut client, server) = connection(address);
            let freezer = Freezer::new().with_complaints_to(|error| panic!("{error}"));
            let stopped = |server: OwnedFd| {
                let frozen = freezer.freeze(server).unwrap();
                let (state, known) = (frozen.state().clone(), frozen.congestion());
                frozen.close_silently();
                (state, known)
            };
            let limit = |server: &OwnedFd| {
                let limit = socket::option(server.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE).unwrap();
                limit.cast_unsigned()
            };
            let (state, near) = stopped(server);
            assert!(near.cwnd <= 10, "{near:?}");
            let far = Congestion { srtt_us: 100_000, cwnd: 80, ..near };
            let until = Instant::now() + Duration::from_secs(10);
            // The first one begins anew, and has the program loaded.
            let (state, known) = loop {
                let (state, known) = stopped(freezer.thaw_knowing(&state, far).unwrap());
                if known.cwnd > 10 || Instant::now() > until {
                    break (state, known);
                }
                std::thread::yield_now();
            };
            assert_eq!((known.cwnd, known.srtt_us), (80, 100_000), "it has sent nothing since");
            let server = freezer.thaw_knowing(&state, known).unwrap();
            assert_eq!(repair::info(server.as_raw_fd()).unwrap().congestion().cwnd, 80);
            assert_eq!(limit(&server), 80 * u32::from(state.mss) * 12, "a fifth more in each round trip");
            let mut server = TcpStream::from(server);
            exchange(&mut server, &mut client, b"answer");
            exchange(&mut client, &mut server, b"question");
            let server = OwnedFd::from(server);
            assert_eq!(limit(&server), u32::MAX, "a round trip has been measured");
            let (state, _) = stopped(server);
            let server = freezer.thaw_knowing(&state, far).unwrap();
            assert_ne!(limit(&server), u32::MAX);
            forget_way(&server);
            assert_eq!(limit(&server), u32::MAX, "whoever has it now doesn't know of the limit");
            // Another server may say anything.
            let (state, _) = stopped(server);
            let most = Congestion { srtt_us: 1, cwnd: u32::MAX, ..near };
            let server = freezer.thaw_knowing(&TcpState { mss: u16::MAX, ..state }, most).unwrap();
            assert_eq!(repair::info(server.as_raw_fd()).unwrap().congestion().cwnd, 1 << 20);
        }
    });
}

#[test]
fn a_client_without_options_is_moved_without_them() {
    const OLD: &[(&str, &str)] =
        &[("net.ipv4.tcp_timestamps", "0"), ("net.ipv4.tcp_sack", "0"), ("net.ipv4.tcp_window_scaling", "0")];
    in_namespace("old", OLD, || {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let state = goes_on_after_moves(address);
            assert!(!state.sack && state.timestamp.is_none() && state.window_scale.is_none(), "{state:?}");
            assert!(state.window.rcv_wnd <= 65_535);
        }
    });
}

#[test]
fn a_client_with_a_small_window_gets_segments_that_fit_into_it() {
    const SMALL: &[(&str, &str)] = &[("net.ipv4.tcp_wmem", "4096 16384 100000")];
    in_namespace("small", SMALL, || {
        // The smallest that this kernel takes.
        let set = |bytes: u32| std::fs::write("/proc/sys/net/ipv4/tcp_rmem", format!("{bytes} {bytes} {bytes}"));
        set(2304).or_else(|_| set(4096)).unwrap();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (mut client, server) = connection(address);
            let segment = |socket: i32| socket::option(socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG).unwrap();
            let before = segment(server.as_raw_fd());
            let (mut server, state) = moved(server);
            let after = segment(server.as_raw_fd());
            assert!(after <= before && after >= before / 2, "{after} in place of {before}: {state:?}");
            exchange(&mut server, &mut client, &[b'x'; 1_000]);
            // More than it reads: what waits goes along, in as many small segments as it takes.
            let (server, content) = (OwnedFd::from(server), vec![b'y'; 1_000_000]);
            socket::set_nonblocking(server.as_raw_fd(), true).unwrap();
            set_option(server.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 1 << 20).unwrap();
            let mut written = 0;
            while let SendNow::Sent(count) = send(&server, &content[written..]) {
                written += count;
            }
            let (server, state) = moved(server);
            assert!(state.unsent.len() > 10 * after as usize, "{} unsent", state.unsent.len());
            drop(server);
            let mut received = Vec::new();
            client.read_to_end(&mut received).unwrap();
            assert!(received == content[..written], "{} of {written}", received.len());
        }
    });
}

#[test]
fn what_was_not_read_and_what_was_not_sent_go_along() {
    in_namespace("queues", &[("net.ipv4.tcp_wmem", "4096 16384 1000000")], || {
        let (mut client, server) = connection("127.0.0.1:0");
        client.write_all(b"not read yet").unwrap();
        // The client doesn't read: what fits into its window is acknowledged, the rest stays unsent.
        let content: Vec<u8> = (0..20_000_000u32).map(|i| (i % 251) as u8).collect();
        let mut written = 0;
        while let SendNow::Sent(count) = send(&server, &content[written..]) {
            written += count;
        }
        let frozen = Freezer::new().freeze(server).unwrap();
        let outstanding = frozen.state().sent.len() + frozen.state().unsent.len();
        assert_eq!(frozen.come(), ((written - outstanding) as u64, 0));
        let (mut server, state) = moved(frozen.resume().unwrap());
        assert_eq!(state.unread, b"not read yet");
        assert!(!state.unsent.is_empty());
        let outstanding = state.sent.len() + state.unsent.len();
        assert_eq!([&state.sent[..], &state.unsent].concat(), content[written - outstanding..written]);
        let mut received = [0; 12];
        server.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"not read yet");
        let rest = content[written..].to_vec();
        let writer = std::thread::spawn(move || server.write_all(&rest).map(|()| server));
        let mut received = vec![0; content.len()];
        client.read_exact(&mut received).unwrap();
        assert!(received == content, "every byte once, in order");
        writer.join().unwrap().unwrap();
    });
}

fn send(socket: &OwnedFd, bytes: &[u8]) -> SendNow {
    socket::send(socket.as_raw_fd(), bytes, false)
}

#[test]
fn all_that_a_paced_connection_has_sent_is_known_to_be_sent() {
    in_namespace(
        "paced",
        &[("net.ipv4.tcp_rmem", "4096 6000000 6000000"), ("net.ipv4.tcp_wmem", "4096 4000000 4000000")],
        || {
            // A timer sends, every few microseconds, while the connection is frozen. Often enough for one to fall between any two steps.
            for _ in 0..1000 {
                let (client, server) = connection("127.0.0.1:0");
                socket::set_option(server.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, i32::MAX).unwrap();
                let SendNow::Sent(written) = send(&server, &[7; 1 << 20]) else { panic!("there is room") };
                let frozen = Freezer::new().freeze(server).unwrap();
                let sent = written - frozen.state().unsent.len();
                let received = || repair::unread_bytes(client.as_raw_fd()).unwrap();
                let start = Instant::now();
                // What was sent last may not have come yet.
                while received() < sent && start.elapsed() < Duration::from_secs(5) {
                    std::thread::yield_now();
                }
                assert_eq!(received(), sent, "bytes that came, and those that are said to be sent");
                frozen.close_silently();
            }
        },
    );
}

#[test]
fn a_connection_that_nobody_takes_goes_on() {
    in_namespace("resume", &[], || {
        let (mut client, server) = connection("127.0.0.1:0");
        let address = socket::local_address(&server).unwrap();
        let mut server = TcpStream::from(Freezer::new().freeze(server).unwrap().resume().unwrap());
        server.set_nonblocking(false).unwrap();
        exchange(&mut client, &mut server, b"question");
        exchange(&mut server, &mut client, b"answer");
        socket::listen(address).expect("the address can be listened on again");
    });
}

#[test]
fn what_is_known_of_a_connection_neednt_be_asked() {
    in_namespace("known", &[], || {
        let (mut client, mut server) = connection("127.0.0.1:0");
        let (freezer, mut known) = (Freezer::new(), None);
        for unread in [&b""[..], b"", b"what nobody has read yet", b""] {
            let mut stream = TcpStream::from(server);
            stream.set_nonblocking(false).unwrap();
            exchange(&mut stream, &mut client, b"a longer answer");
            // It acknowledges the answer.
            exchange(&mut client, &mut stream, b"question");
            client.write_all(unread).unwrap();
            if !unread.is_empty() {
                stream.peek(&mut [0; 1]).unwrap();
            }
            let ends = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
            let counted = freezer.freeze_between(ends, stream.into(), known).unwrap();
            let state = counted.state().clone();
            let asked = freezer.freeze(counted.resume().unwrap()).unwrap();
            assert_eq!(state.unread, unread);
            assert_eq!(TcpState { timestamp: state.timestamp, ..asked.state().clone() }, state);
            known = Some(asked.known());
            let mut stream = TcpStream::from(asked.resume().unwrap());
            stream.set_nonblocking(false).unwrap();
            stream.read_exact(&mut vec![0; unread.len()]).unwrap();
            server = stream.into();
        }
    });
}

#[test]
fn what_a_frozen_connection_misses_is_sent_again() {
    in_namespace("misses", &[], || {
        let (mut client, server) = connection("127.0.0.1:0");
        let freezer = Freezer::new();
        let frozen = freezer.freeze(server).unwrap();
        client.write_all(b"into the void").unwrap();
        assert_eq!(frozen.state().unread, b"");
        let mut server = TcpStream::from(frozen.resume().unwrap());
        server.set_nonblocking(false).unwrap();
        let mut received = [0; 13];
        server.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"into the void");
    });
}

#[test]
fn what_a_frozen_connection_still_acknowledges_is_old_to_the_client() {
    in_namespace("clock", &[], || {
        let (mut client, server) = connection("127.0.0.1:0");
        let raw = server.as_raw_fd();
        let frozen = Freezer::new().freeze(server).unwrap();
        let then = frozen.state().timestamp.unwrap();
        let behind = then.wrapping_sub(repair::timestamp(raw).unwrap()).cast_signed();
        assert!(behind > 1_000_000, "{behind} ms behind where the taker begins");
        let mut server = TcpStream::from(frozen.resume().unwrap());
        let ahead = repair::timestamp(raw).unwrap().wrapping_sub(then).cast_signed();
        assert!((0..10_000).contains(&ahead), "{ahead} ms ahead of where it was");
        server.set_nonblocking(false).unwrap();
        exchange(&mut client, &mut server, b"question");
    });
}

#[test]
fn whatever_the_last_server_hadnt_sent_is_taken_over() {
    const UNSENT_BYTES: usize = 900_000;
    in_namespace("unsent", &[], || {
        let (mut client, server) = connection("127.0.0.1:0");
        let freezer = Freezer::new();
        let frozen = freezer.freeze(server).unwrap();
        let mut state = frozen.state().clone();
        frozen.close_silently();
        state.unsent = vec![b'x'; UNSENT_BYTES];
        state.send_next = state.send_next.wrapping_add(UNSENT_BYTES as u32);
        let _server = freezer.thaw(&state).unwrap();
        client.read_exact(&mut vec![0; UNSENT_BYTES]).unwrap();
    });
}

#[test]
fn a_clock_that_goes_on_from_an_odd_number_goes_in_milliseconds() {
    in_namespace("odd-clock", &[], || {
        let (mut client, server) = connection("127.0.0.1:0");
        let freezer = Freezer::new();
        let frozen = freezer.freeze(server).unwrap();
        let mut state = frozen.state().clone();
        frozen.close_silently();
        let then = state.timestamp.unwrap() | 1;
        state.timestamp = Some(then);
        let mut server = TcpStream::from(freezer.thaw(&state).unwrap());
        server.set_nonblocking(false).unwrap();
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_millis(50) {
            exchange(&mut client, &mut server, b"question");
        }
        let ahead = repair::timestamp(server.as_raw_fd()).unwrap().wrapping_sub(then).cast_signed();
        assert!((0..10_000).contains(&ahead), "{ahead} ms ahead of where it was");
    });
}

#[test]
fn a_socket_that_began_behind_its_clients_end_leaves_nothing_when_it_is_closed() {
    in_namespace("ended", &[], || {
        let (mut client, server) = connection("127.0.0.1:0");
        let port = client.peer_addr().unwrap().port();
        let freezer = Freezer::new();
        let frozen = freezer.freeze(server).unwrap();
        let mut state = frozen.state().clone();
        frozen.close_silently();
        state.receive_next = state.receive_next.wrapping_add(1);
        let server = freezer.thaw(&state).unwrap();
        socket::expect_no_end(&server).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut server = TcpStream::from(server);
        server.write_all(b"that's all").unwrap();
        drop(server);
        let mut all = String::new();
        client.read_to_string(&mut all).unwrap();
        assert_eq!(all, "that's all");
        // It would be in FIN_WAIT2, and for a minute.
        let deadline = Instant::now() + Duration::from_secs(10);
        let is_left = || {
            let sockets = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
            sockets.lines().any(|line| {
                line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&format!(":{port:04X}")))
            })
        };
        while is_left() {
            assert!(Instant::now() < deadline, "it's still there");
            std::thread::yield_now();
        }
    });
}

#[test]
fn only_an_established_connection_is_frozen() {
    in_namespace("refuses", &[], || {
        let (mut client, server) = connection("127.0.0.1:0");
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut server = TcpStream::from(server);
        server.set_nonblocking(false).unwrap();
        assert_eq!(server.read(&mut [0; 8]).unwrap(), 0);
        let refused = Freezer::new().freeze(server.into()).unwrap_err();
        assert!(matches!(refused.error, Error::NotEstablished { state: 8 }), "{}", refused.error);
        let mut server = TcpStream::from(refused.socket);
        exchange(&mut server, &mut client, b"still here");
    });
}

#[test]
fn a_state_that_cannot_be_names_the_step() {
    in_namespace("nonsense", &[], || {
        let (_client, server) = connection("127.0.0.1:0");
        let freezer = Freezer::new();
        let frozen = freezer.freeze(server).unwrap();
        let mut state = frozen.state().clone();
        let error = freezer.thaw(&state).unwrap_err();
        assert!(error.to_string().starts_with("connect: "), "the connection is there already: {error}");
        assert!(error.is_taken());
        state.local = SocketAddr::new("192.0.2.1".parse().unwrap(), 80);
        let error = freezer.thaw(&state).unwrap_err();
        assert!(error.to_string().starts_with("bind: ") && !error.is_taken(), "{error}");
        state.remote = "[2001:db8::1]:4000".parse().unwrap();
        assert!(matches!(freezer.thaw(&state).unwrap_err(), Error::Addresses { .. }));
    });
}

#[test]
fn a_handshake_with_the_same_ends_gives_way() {
    in_namespace("handshake", &[], || {
        let (_client, server) = connection("127.0.0.1:0");
        let freezer = Freezer::new();
        let frozen = freezer.freeze(server).unwrap();
        let mut state = frozen.state().clone();
        // The kernel keeps its handshakes until clients have sent something.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set_option(listener.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 10).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (state.local, state.remote) = (client.peer_addr().unwrap(), client.local_addr().unwrap());
        assert!(freezer.thaw(&state).unwrap_err().is_taken());
        assert!(forget_handshake(state.local, state.remote).unwrap());
        let _thawed = freezer.thaw(&state).unwrap();
        assert!(!forget_handshake(state.local, state.remote).unwrap(), "it's a connection now");
        assert!(freezer.thaw(&state).unwrap_err().is_taken());
    });
}

/// What a move costs without steering: `cargo test -p leat-host --release -- --ignored --nocapture costs`.
#[test]
#[ignore = "a measurement"]
fn costs() {
    in_namespace("costs", &[], || {
        let freezer = Freezer::new();
        let (client, mut server) = connection("127.0.0.1:0");
        let mut freezes = Vec::new();
        let mut closes = Vec::new();
        let mut thaws = Vec::new();
        for _ in 0..5000 {
            let start = std::time::Instant::now();
            let frozen = freezer.freeze(server).unwrap();
            freezes.push(start.elapsed());
            let state = frozen.state().clone();
            let start = std::time::Instant::now();
            frozen.close_silently();
            closes.push(start.elapsed());
            let start = std::time::Instant::now();
            server = freezer.thaw(&state).unwrap();
            thaws.push(start.elapsed());
        }
        drop(client);
        for (name, mut times) in [("freeze", freezes), ("close", closes), ("thaw", thaws)] {
            times.sort();
            println!("{name}: median {:?}, 99 % {:?}", times[times.len() / 2], times[times.len() * 99 / 100]);
        }
    });
}
