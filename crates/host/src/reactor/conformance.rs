//! What every reactor must do, run for each of them against real sockets. Waits are for completions, never for time to pass.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{
    Completion, Epoll, IoUring, Listener, RECEIVE_BUFFER_BYTES, RECEIVE_BUFFERS, Reactor, SendNow, Socket, Token,
    Transmit,
};
use crate::socket;
use crate::wake::Bell;

/// A reactor that has missed a completion for so long has lost it.
const PATIENCE: Duration = Duration::from_secs(10);
const LISTENER: Token = Token { index: 9, generation: 0 };

struct Bench<R: Reactor> {
    reactor: R,
    listener: OwnedFd,
    address: std::net::SocketAddr,
    waiting: Vec<Completion>,
    next: u32,
}

impl<R: Reactor> Bench<R> {
    fn new(mut reactor: R) -> Bench<R> {
        let listener = socket::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket::local_address(&listener).unwrap();
        reactor.accept(Listener(listener.as_raw_fd() as u32), LISTENER);
        Bench { reactor, listener, address, waiting: Vec::new(), next: 100 }
    }

    /// Waits for a completion that `pick` takes; the others stay for later.
    fn until<T>(&mut self, mut pick: impl FnMut(&mut R, &Completion) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            for place in 0..self.waiting.len() {
                if let Some(found) = pick(&mut self.reactor, &self.waiting[place]) {
                    self.waiting.remove(place);
                    return found;
                }
            }
            assert!(start.elapsed() < PATIENCE, "no such completion among {:?}", self.waiting);
            self.reactor.wait(Some(Duration::from_millis(100)), &mut self.waiting).unwrap();
        }
    }

    fn connect(&mut self) -> (TcpStream, Socket, Token) {
        let client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let socket = self.until(|_, completion| match completion {
            Completion::Accepted { socket, listener } => {
                assert_eq!(*listener, LISTENER);
                Some(*socket)
            }
            _ => None,
        });
        self.next += 1;
        (client, socket, Token { index: self.next, generation: 7 })
    }

    /// The next bytes for a connection.
    fn take(&mut self, wanted: Token) -> Vec<u8> {
        let start = Instant::now();
        loop {
            let place = self
                .waiting
                .iter()
                .position(|completion| matches!(completion, Completion::Received { token, .. } if *token == wanted));
            if let Some(place) = place
                && let Completion::Received { buffer, .. } = self.waiting.remove(place)
            {
                let bytes = self.reactor.bytes(&buffer).to_vec();
                self.reactor.release(buffer);
                return bytes;
            }
            assert!(start.elapsed() < PATIENCE, "nothing was received; waiting: {:?}", self.waiting);
            self.reactor.wait(Some(Duration::from_millis(100)), &mut self.waiting).unwrap();
        }
    }

    fn ended(&mut self, wanted: Token) {
        self.until(|_, completion| match completion {
            Completion::EndOfInput { token } if *token == wanted => Some(()),
            _ => None,
        });
    }

    fn sent(&mut self, wanted: Token) -> bool {
        self.until(|_, completion| match completion {
            Completion::Sent { token, error } if *token == wanted => Some(error.is_none()),
            _ => None,
        })
    }

    fn transmit(&mut self, head: &[u8], body: &[u8]) -> Transmit {
        let mut buffer = self.reactor.send_buffer();
        assert!(buffer.is_empty());
        buffer.extend_from_slice(head);
        Transmit { head: buffer, body: Bytes::copy_from_slice(body) }
    }
}

fn a_request_and_its_reply<R: Reactor>(reactor: R) {
    let mut bench = Bench::new(reactor);
    let (mut client, socket, token) = bench.connect();
    bench.reactor.receive_once(socket, token);
    client.write_all(b"first").unwrap();
    assert_eq!(bench.take(token), b"first");
    let transmit = bench.transmit(b"head ", b"body");
    bench.reactor.send(socket, token, transmit);
    bench.reactor.receive(socket, token);
    assert!(bench.sent(token));
    let mut reply = [0; 9];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"head body");
    for round in 0..5 {
        let text = format!("round {round}");
        client.write_all(text.as_bytes()).unwrap();
        assert_eq!(bench.take(token), text.as_bytes());
    }
    client.shutdown(Shutdown::Write).unwrap();
    bench.ended(token);
    let transmit = bench.transmit(b"after the end", b"");
    bench.reactor.send(socket, token, transmit);
    assert!(bench.sent(token));
    bench.reactor.close(socket, false);
    bench.reactor.wait(Some(Duration::ZERO), &mut bench.waiting).unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "after the end");
}

fn nothing_is_lost_by_a_pause<R: Reactor>(reactor: R) {
    let mut bench = Bench::new(reactor);
    let (mut client, socket, token) = bench.connect();
    bench.reactor.receive(socket, token);
    client.write_all(b"before").unwrap();
    assert_eq!(bench.take(token), b"before");
    bench.reactor.pause(socket, token);
    bench.until(|_, completion| match completion {
        Completion::ReceiveStopped { token: stopped, error: None } if *stopped == token => Some(()),
        _ => None,
    });
    client.write_all(b"during").unwrap();
    bench.reactor.receive(socket, token);
    assert_eq!(bench.take(token), b"during");
    client.write_all(b"after").unwrap();
    assert_eq!(bench.take(token), b"after");
}

fn a_slow_reader_gets_everything<R: Reactor>(reactor: R) {
    let mut bench = Bench::new(reactor);
    let (mut client, socket, token) = bench.connect();
    let body: Vec<u8> = (0..8_000_000u32).map(|number| (number % 251) as u8).collect();
    let transmit = bench.transmit(b"head", &body);
    bench.reactor.send(socket, token, transmit);
    let reader = std::thread::spawn(move || {
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        got
    });
    assert!(bench.sent(token));
    bench.reactor.close(socket, false);
    bench.reactor.wait(Some(Duration::ZERO), &mut bench.waiting).unwrap();
    let got = reader.join().unwrap();
    assert_eq!(got.len(), body.len() + 4);
    assert!(got[4..] == body[..]);
}

fn sending_without_waiting<R: Reactor>(reactor: R) {
    let mut bench = Bench::new(reactor);
    let (mut client, socket, token) = bench.connect();
    let chunk = [7u8; 65536];
    let mut total = 0;
    let filled = loop {
        match bench.reactor.send_now(socket, &chunk, false) {
            SendNow::Sent(count) => total += count,
            other => break other,
        }
    };
    assert!(matches!(filled, SendNow::Blocked), "{filled:?}");
    bench.reactor.await_writable(socket, token);
    let reader = std::thread::spawn(move || {
        let mut got = 0;
        let mut room = [0; 65536];
        loop {
            match client.read(&mut room).unwrap() {
                0 => return got,
                count => got += count,
            }
        }
    });
    bench.until(|_, completion| match completion {
        Completion::Writable { token: writable } if *writable == token => Some(()),
        _ => None,
    });
    bench.reactor.close(socket, false);
    bench.reactor.wait(Some(Duration::ZERO), &mut bench.waiting).unwrap();
    assert_eq!(reader.join().unwrap(), total);
}

fn a_shutdown_completes_everything<R: Reactor>(reactor: R) {
    let mut bench = Bench::new(reactor);
    let (_client, socket, token) = bench.connect();
    bench.reactor.receive(socket, token);
    let transmit = bench.transmit(b"", &vec![1; 32_000_000]);
    bench.reactor.send(socket, token, transmit);
    bench.reactor.wait(Some(Duration::ZERO), &mut bench.waiting).unwrap();
    bench.reactor.shutdown(socket, token, true);
    bench.ended(token);
    assert!(!bench.sent(token), "a send that was cut short has failed");
    bench.reactor.close(socket, true);
}

fn a_reset_reaches_the_client<R: Reactor>(reactor: R) {
    let mut bench = Bench::new(reactor);
    let (mut client, socket, _) = bench.connect();
    bench.reactor.close(socket, true);
    bench.reactor.wait(Some(Duration::ZERO), &mut bench.waiting).unwrap();
    let error = client.read(&mut [0; 1]).expect_err("a reset is no end of file");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// More connections than there are buffers have something to say: each is heard once buffers come back.
fn buffers_run_out_and_come_back<R: Reactor>(reactor: R) {
    let mut bench = Bench::new(reactor);
    let (mut client, socket, token) = bench.connect();
    bench.reactor.receive(socket, token);
    let whole = RECEIVE_BUFFER_BYTES * (RECEIVE_BUFFERS as usize + 100);
    let writer = std::thread::spawn(move || {
        for number in 0..whole as u32 / 4 {
            client.write_all(&number.to_be_bytes()).unwrap();
        }
        client
    });
    // Nothing is given back until all buffers are taken.
    let start = Instant::now();
    let mut held = Vec::new();
    while held.len() < RECEIVE_BUFFERS as usize {
        assert!(start.elapsed() < PATIENCE, "only {} buffers were filled", held.len());
        bench.reactor.wait(Some(Duration::from_millis(100)), &mut bench.waiting).unwrap();
        for completion in bench.waiting.drain(..) {
            if let Completion::Received { buffer, .. } = completion {
                held.push(buffer);
            }
        }
    }
    let mut got = Vec::new();
    for buffer in held {
        got.extend_from_slice(bench.reactor.bytes(&buffer));
        bench.reactor.release(buffer);
    }
    while got.len() < whole {
        got.extend(bench.take(token));
    }
    assert_eq!(got.len(), whole);
    let in_order = got.chunks(4).enumerate().all(|(place, bytes)| bytes == (place as u32).to_be_bytes());
    assert!(in_order, "bytes changed places");
    drop(writer.join().unwrap());
    bench.ended(token);
}

fn a_bell_is_heard_each_time<R: Reactor>(reactor: R) {
    let mut bench = Bench::new(reactor);
    let bell = Bell::new().unwrap();
    let name = Token { index: 3, generation: 0 };
    bench.reactor.poll_readable(bell.as_raw_fd(), name);
    for _ in 0..3 {
        bell.ring();
        bench.until(|_, completion| match completion {
            Completion::Readable { token } if *token == name => Some(()),
            _ => None,
        });
        bell.hear();
    }
}

fn a_socket_that_is_given_up_works_elsewhere<R: Reactor>(reactor: R) {
    let mut bench = Bench::new(reactor);
    let (mut client, socket, token) = bench.connect();
    bench.reactor.receive(socket, token);
    client.write_all(b"x").unwrap();
    assert_eq!(bench.take(token), b"x");
    bench.reactor.pause(socket, token);
    bench.until(|_, completion| match completion {
        Completion::ReceiveStopped { token: stopped, .. } if *stopped == token => Some(()),
        _ => None,
    });
    let given = bench.reactor.give_up(socket).unwrap();
    let again = Socket(given.into_raw_fd() as u32);
    let token = Token { index: 4, generation: 1 };
    bench.reactor.receive(again, token);
    client.write_all(b"y").unwrap();
    assert_eq!(bench.take(token), b"y");
}

fn accepting_stops_and_goes_on<R: Reactor>(reactor: R) {
    let mut bench = Bench::new(reactor);
    let listener = Listener(bench.listener.as_raw_fd() as u32);
    drop(bench.connect());
    bench.reactor.stop_accepting(listener, LISTENER);
    bench.reactor.wait(Some(Duration::ZERO), &mut bench.waiting).unwrap();
    bench.waiting.clear();
    let waiting = TcpStream::connect(bench.address).unwrap();
    bench.reactor.wait(Some(Duration::from_millis(20)), &mut bench.waiting).unwrap();
    assert!(bench.waiting.is_empty(), "{:?}", bench.waiting);
    bench.reactor.accept(listener, LISTENER);
    bench.until(|_, completion| matches!(completion, Completion::Accepted { .. }).then_some(()));
    drop(waiting);
}

macro_rules! for_every_reactor {
    ($($case:ident)*) => {
        mod io_uring {
            $(#[test] fn $case() { super::$case(super::IoUring::new().expect("io_uring works here")); })*
        }
        mod epoll {
            $(#[test] fn $case() { super::$case(super::Epoll::new().unwrap()); })*
        }
    };
}

for_every_reactor! {
    a_request_and_its_reply
    nothing_is_lost_by_a_pause
    a_slow_reader_gets_everything
    sending_without_waiting
    a_shutdown_completes_everything
    a_reset_reaches_the_client
    buffers_run_out_and_come_back
    a_bell_is_heard_each_time
    a_socket_that_is_given_up_works_elsewhere
    accepting_stops_and_goes_on
}
