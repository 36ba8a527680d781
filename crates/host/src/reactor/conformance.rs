//! What every reactor must do, run for each of them against real sockets. Waits are for completions, never for time to pass.

use std::io::{IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use leat_logic::schedule::Gather;

use super::{
    Completion, Epoll, IoUring, Listener, Peer, RECEIVE_BUFFER_BYTES, RECEIVE_BUFFERS, Reactor, SendNow, Socket, Token,
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
        reactor.await_connections(Listener(listener.as_raw_fd() as u32), LISTENER);
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

    /// Accepts the connection that has been asked for.
    fn accept(&mut self) -> Socket {
        let told = self.until(|_, completion| match completion {
            Completion::ConnectionsWait { listener } => Some(*listener),
            _ => None,
        });
        assert_eq!(told, LISTENER);
        let listener = Listener(self.listener.as_raw_fd() as u32);
        let socket = self.reactor.accept(listener).unwrap().expect("a connection waits");
        assert!(self.reactor.accept(listener).unwrap().is_none(), "no other does");
        self.reactor.await_connections(listener, LISTENER);
        socket
    }

    fn connect(&mut self) -> (TcpStream, Socket, Token) {
        let client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let socket = self.accept();
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
            Completion::Sent { token, error, .. } if *token == wanted => Some(error.is_none()),
            _ => None,
        })
    }

    fn transmit(&mut self, head: &[u8], body: &[u8]) -> Transmit {
        let mut buffer = self.reactor.send_buffer();
        assert!(buffer.is_empty());
        buffer.extend_from_slice(head);
        Transmit { head: buffer, body: Bytes::copy_from_slice(body), unhurried: false }
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

/// Everything is there when it's first looked for: more than one buffer, and the last of them not full.
fn what_comes_after_a_long_first_request_is_heard<R: Reactor>(reactor: R) {
    let mut bench = Bench::new(reactor);
    let (mut client, socket, token) = bench.connect();
    let long = vec![b'x'; RECEIVE_BUFFER_BYTES + 100];
    client.write_all(&long).unwrap();
    bench.reactor.receive_once(socket, token);
    let mut got = bench.take(token).len();
    bench.reactor.receive(socket, token);
    while got < long.len() {
        got += bench.take(token).len();
    }
    client.write_all(b"more").unwrap();
    assert_eq!(bench.take(token), b"more");
}

/// Once a receive has filled its buffer the rest is had at once, as much of it as is wanted, and nothing is lost or told twice.
fn what_is_left_by_a_full_buffer_is_had_at_once<R: Reactor>(reactor: R) {
    let mut bench = Bench::new(reactor);
    let (mut client, socket, token) = bench.connect();
    let long: Vec<u8> = (0..RECEIVE_BUFFER_BYTES + 1_000).map(|at| (at % 251) as u8).collect();
    client.write_all(&long).unwrap();
    bench.reactor.receive_once(socket, token);
    let mut got = bench.take(token);
    assert_eq!(got.len(), RECEIVE_BUFFER_BYTES);
    assert_eq!(bench.reactor.receive_now(socket, token, &mut got, 600).unwrap(), 600);
    assert_eq!(bench.reactor.receive_now(socket, token, &mut got, 600).unwrap(), 400);
    assert_eq!(bench.reactor.receive_now(socket, token, &mut got, 600).unwrap(), 0);
    assert_eq!(got, long);
    bench.reactor.receive_once(socket, token);
    client.write_all(b"more").unwrap();
    assert_eq!(bench.take(token), b"more");
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(bench.reactor.receive_now(socket, token, &mut got, 600).unwrap(), 0);
    bench.reactor.receive_once(socket, token);
    bench.ended(token);
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

/// Sends of a size that is expected to fit, until one doesn't: it waits, and no byte changes its place.
fn small_sends_find_no_room<R: Reactor>(reactor: R) {
    let mut bench = Bench::new(reactor);
    let (mut client, socket, token) = bench.connect();
    let mut number = 0u32;
    let mut send = |bench: &mut Bench<R>| {
        let words: Vec<u8> = (number..number + 500).flat_map(u32::to_be_bytes).collect();
        let (head, body) = words.split_at(if number.is_multiple_of(1000) { words.len() } else { 700 });
        let transmit = bench.transmit(head, body);
        bench.reactor.send(socket, token, transmit);
        number += 500;
    };
    let is_told = |bench: &mut Bench<R>| {
        bench.reactor.wait(Some(Duration::from_millis(50)), &mut bench.waiting).unwrap();
        bench
            .waiting
            .drain(..)
            .any(|completion| matches!(completion, Completion::Sent { error: None, waited: false, .. }))
    };
    send(&mut bench);
    while is_told(&mut bench) {
        send(&mut bench);
    }
    let reader = std::thread::spawn(move || {
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        got
    });
    let waited = bench.until(|_, completion| match completion {
        Completion::Sent { error: None, waited, .. } => Some(*waited),
        _ => None,
    });
    assert!(waited);
    send(&mut bench);
    assert!(bench.sent(token));
    bench.reactor.close(socket, false);
    bench.reactor.wait(Some(Duration::ZERO), &mut bench.waiting).unwrap();
    let got = reader.join().unwrap();
    let words: Vec<u32> = got.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
    assert!(words.len() > 1000 && words.is_sorted() && words.len() == *words.last().unwrap() as usize + 1);
}

fn a_small_send_on_a_broken_connection_fails<R: Reactor>(reactor: R) {
    let mut bench = Bench::new(reactor);
    let (client, socket, token) = bench.connect();
    bench.reactor.receive(socket, token);
    socket::reset_on_close(client.as_raw_fd());
    drop(client);
    bench.until(|_, completion| matches!(completion, Completion::ReceiveStopped { .. }).then_some(()));
    for unhurried in [true, false] {
        let mut transmit = bench.transmit(b"too late", b"");
        transmit.unhurried = unhurried;
        bench.reactor.send(socket, token, transmit);
        assert!(!bench.sent(token));
    }
    bench.reactor.close(socket, true);
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
    // The second time there is room already.
    for time in 0..2 {
        if time > 0 {
            bench.reactor.await_writable(socket, token);
        }
        bench.until(|_, completion| match completion {
            Completion::Writable { token: writable } if *writable == token => Some(()),
            _ => None,
        });
    }
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
    bench.reactor.stop_polling(bell.as_raw_fd(), name);
    // What was on its way may still come.
    bench.reactor.wait(Some(Duration::from_millis(20)), &mut bench.waiting).unwrap();
    bench.waiting.clear();
    bell.ring();
    bench.reactor.wait(Some(Duration::from_millis(20)), &mut bench.waiting).unwrap();
    assert!(bench.waiting.is_empty(), "{:?}", bench.waiting);
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
    let given = bench.reactor.give_up(socket, token).unwrap();
    let again = bench.reactor.adopt(given).unwrap();
    let token = Token { index: 4, generation: 1 };
    bench.reactor.receive(again, token);
    client.write_all(b"y").unwrap();
    assert_eq!(bench.take(token), b"y");
    // The same again, by the same token, as of a connection that couldn't be handed over.
    bench.reactor.pause(again, token);
    bench.until(|_, completion| match completion {
        Completion::ReceiveStopped { token: stopped, .. } if *stopped == token => Some(()),
        _ => None,
    });
    let given = bench.reactor.give_up(again, token).unwrap();
    let again = bench.reactor.adopt(given).unwrap();
    bench.reactor.receive(again, token);
    client.write_all(b"z").unwrap();
    assert_eq!(bench.take(token), b"z");
    bench.reactor.await_writable(again, token);
    bench.until(|_, completion| {
        matches!(completion, Completion::Writable { token: told } if *told == token).then_some(())
    });
}

fn what_was_closed_last_is_closed_though_the_reactor_ends<R: Reactor>(reactor: R) {
    let mut bench = Bench::new(reactor);
    let connections = [bench.connect(), bench.connect()];
    for (_, socket, _) in &connections {
        bench.reactor.close(*socket, false);
    }
    drop(bench);
    for (mut client, ..) in connections {
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    }
}

fn one_end_of_a_pair_is_a_connection_like_any<R: Reactor>(reactor: R) {
    let mut bench = Bench::new(reactor);
    let (mut other, ours) = UnixStream::pair().unwrap();
    other.set_read_timeout(Some(PATIENCE)).unwrap();
    let socket = bench.reactor.adopt(ours.into()).unwrap();
    let token = Token { index: 5, generation: 2 };
    bench.reactor.receive_once(socket, token);
    other.write_all(b"one").unwrap();
    assert_eq!(bench.take(token), b"one");
    // Asked for again, as somebody does who takes only as much as he has room for.
    bench.reactor.receive_once(socket, token);
    other.write_all(b"two").unwrap();
    assert_eq!(bench.take(token), b"two");
    assert!(matches!(bench.reactor.send_now(socket, b"three", false), SendNow::Sent(5)));
    let parts = [b"", &b", "[..], b"four", b"", b", five"].map(IoSlice::new);
    assert!(matches!(bench.reactor.send_parts_now(socket, &parts[..3]), SendNow::Sent(6)));
    assert!(matches!(bench.reactor.send_parts_now(socket, &parts[3..]), SendNow::Sent(6)));
    bench.reactor.shutdown(socket, token, false);
    let mut got = String::new();
    other.read_to_string(&mut got).unwrap();
    assert_eq!(got, "three, four, five");
    bench.reactor.receive_once(socket, token);
    drop(other);
    bench.ended(token);
    bench.reactor.close(socket, false);
}

fn connects<R: Reactor>(bench: &mut Bench<R>, to: &Peer, token: Token) -> std::io::Result<Socket> {
    let socket = bench.reactor.connect(to)?;
    bench.reactor.await_writable(socket, token);
    bench.until(|_, completion| match completion {
        Completion::Writable { token: writable } if *writable == token => Some(()),
        _ => None,
    });
    bench.reactor.connected(socket)?;
    Ok(socket)
}

fn connecting_to_a_peer<R: Reactor>(reactor: R) {
    let mut bench = Bench::new(reactor);
    let directory =
        std::env::temp_dir().join(format!("leat-connect-{}-{:?}", std::process::id(), std::thread::current().id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("socket");
    let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let internet = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = internet.local_addr().unwrap();
    for (number, to) in [Peer::Unix(path.clone()), Peer::Internet(address)].iter().enumerate() {
        let token = Token { index: number as u32 + 1, generation: 0 };
        let socket = connects(&mut bench, to, token).unwrap();
        let mut other: Box<dyn ReadWrite> = match to {
            Peer::Unix(_) => Box::new(unix.accept().unwrap().0),
            Peer::Internet(_) => Box::new(internet.accept().unwrap().0),
        };
        let transmit = bench.transmit(b"a question", b"");
        bench.reactor.send(socket, token, transmit);
        assert!(bench.sent(token));
        let mut asked = [0; 10];
        other.read_exact(&mut asked).unwrap();
        bench.reactor.receive(socket, token);
        other.write_all(b"an answer").unwrap();
        assert_eq!(bench.take(token), b"an answer");
        drop(other);
        bench.ended(token);
        bench.reactor.close(socket, false);
    }
    drop((unix, internet));
    let gone = Peer::Internet(address);
    assert!(connects(&mut bench, &gone, Token { index: 8, generation: 0 }).is_err(), "nobody listens there");
    assert!(bench.reactor.connect(&Peer::Unix(path)).is_err(), "nobody listens there");
    std::fs::remove_dir_all(&directory).unwrap();
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

/// Waiting for room ends when that is wanted, and the socket can go to another reactor with what has been sent.
fn waiting_for_room_can_end<R: Reactor>(reactor: R) {
    let mut bench = Bench::new(reactor);
    let (mut client, socket, token) = bench.connect();
    let piece = [7; 64 * 1024];
    let mut sent_bytes = 0;
    while let SendNow::Sent(count) = bench.reactor.send_now(socket, &piece, false) {
        sent_bytes += count;
    }
    bench.reactor.await_writable(socket, token);
    bench.reactor.wait(Some(Duration::ZERO), &mut bench.waiting).unwrap();
    bench.reactor.stop_awaiting_writable(socket, token);
    bench.until(|_, completion| {
        matches!(completion, Completion::Writable { token: told } if *told == token).then_some(())
    });
    drop(bench.reactor.give_up(socket, token).unwrap());
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), sent_bytes);
}

fn who_has_ended_its_side_and_reads_nothing_has_no_room<R: Reactor>(reactor: R) {
    let mut bench = Bench::new(reactor);
    let (mut client, socket, token) = bench.connect();
    bench.reactor.receive(socket, token);
    client.shutdown(std::net::Shutdown::Write).unwrap();
    bench.ended(token);
    for _ in 0..2 {
        let sent_bytes = fill(&mut bench, socket, token);
        client.read_exact(&mut vec![0; sent_bytes]).unwrap();
        bench.until(|_, completion| {
            matches!(completion, Completion::Writable { token: told } if *told == token).then_some(())
        });
    }
    fill(&mut bench, socket, token);
    bench.reactor.stop_awaiting_writable(socket, token);
    bench.until(|_, completion| {
        matches!(completion, Completion::Writable { token: told } if *told == token).then_some(())
    });
    bench.reactor.close(socket, true);
}

/// Sends until there is no room for good: what is on its way arrives, and makes room for more. Returns how much that was; room is awaited then.
fn fill<R: Reactor>(bench: &mut Bench<R>, socket: Socket, token: Token) -> usize {
    let piece = [7; 64 * 1024];
    let mut sent_bytes = 0;
    for _ in 0..50 {
        while let SendNow::Sent(count) = bench.reactor.send_now(socket, &piece, false) {
            sent_bytes += count;
        }
        bench.reactor.await_writable(socket, token);
        let until = Instant::now() + Duration::from_millis(50);
        while Instant::now() < until && bench.waiting.is_empty() {
            bench.reactor.wait(Some(until - Instant::now()), &mut bench.waiting).unwrap();
        }
        if bench.waiting.is_empty() {
            return sent_bytes;
        }
        bench.waiting.clear();
    }
    panic!("there is always room");
}

fn accepting_stops_and_goes_on<R: Reactor>(reactor: R) {
    let mut bench = Bench::new(reactor);
    let listener = Listener(bench.listener.as_raw_fd() as u32);
    drop(bench.connect());
    bench.reactor.stop_awaiting_connections(listener, LISTENER);
    bench.reactor.wait(Some(Duration::ZERO), &mut bench.waiting).unwrap();
    bench.waiting.clear();
    let waiting = TcpStream::connect(bench.address).unwrap();
    bench.reactor.wait(Some(Duration::from_millis(20)), &mut bench.waiting).unwrap();
    assert!(bench.waiting.is_empty(), "{:?}", bench.waiting);
    bench.reactor.await_connections(listener, LISTENER);
    bench.accept();
    drop(waiting);
}

/// However many are wanted: whoever is there when the time is over isn't kept waiting for others, nor is who comes alone after it.
fn waiting_for_several_ends_in_time<R: Reactor>(reactor: R) {
    let mut bench = Bench::new(reactor);
    let (mut client, socket, token) = bench.connect();
    let (mut other, other_socket, other_token) = bench.connect();
    bench.reactor.receive(socket, token);
    bench.reactor.receive(other_socket, other_token);
    let gather = Gather { arrivals: 16, time: Duration::from_micros(100) };
    for (timeout, round) in [(None, 0), (Some(PATIENCE), 1), (Some(Duration::from_micros(50)), 2)] {
        client.write_all(b"one").unwrap();
        other.write_all(b"two").unwrap();
        let start = Instant::now();
        let received = |completion: &Completion| matches!(completion, Completion::Received { .. });
        while bench.waiting.iter().filter(|completion| received(completion)).count() < 2 {
            bench.reactor.wait_for_several(gather, timeout, &mut bench.waiting).unwrap();
            assert!(start.elapsed() < PATIENCE, "in round {round} only {:?}", bench.waiting);
        }
        assert_eq!(bench.take(token), b"one");
        assert_eq!(bench.take(other_token), b"two");
        let late = std::thread::spawn({
            let mut client = client.try_clone().unwrap();
            move || client.write_all(b"late").unwrap()
        });
        while !bench.waiting.iter().any(received) {
            bench.reactor.wait_for_several(gather, timeout, &mut bench.waiting).unwrap();
            assert!(start.elapsed() < PATIENCE, "in round {round} nobody came late");
        }
        late.join().unwrap();
        assert_eq!(bench.take(token), b"late");
    }
    let start = Instant::now();
    bench.reactor.wait_for_several(gather, Some(Duration::ZERO), &mut bench.waiting).unwrap();
    assert!(start.elapsed() < PATIENCE && bench.waiting.is_empty(), "{:?}", bench.waiting);
}

/// Only io_uring can, from Linux 6.12 on.
#[test]
fn one_wait_brings_as_many_as_are_wanted() {
    let mut bench = Bench::new(IoUring::new().expect("io_uring works here"));
    let mut clients: Vec<_> = (0..3).map(|_| bench.connect()).collect();
    for (_, socket, token) in &clients {
        bench.reactor.receive(*socket, *token);
    }
    bench.reactor.wait(Some(Duration::ZERO), &mut bench.waiting).unwrap();
    bench.waiting.clear();
    let writer = std::thread::spawn(move || {
        clients.iter_mut().for_each(|(client, ..)| client.write_all(b"request").unwrap());
        clients
    });
    let gather = Gather { arrivals: 3, time: PATIENCE };
    bench.reactor.wait_for_several(gather, Some(2 * PATIENCE), &mut bench.waiting).unwrap();
    assert_eq!(bench.waiting.len(), 3, "{:?}", bench.waiting);
    writer.join().unwrap();
}

/// The kernel waits on threads of its own for room in their sockets.
#[test]
fn clients_that_ended_their_side_and_read_nothing_have_few_threads() {
    const BYTES: usize = 8 << 20;
    let threads = || {
        let name = format!("iou-wrk-{}\n", rustix::thread::gettid().as_raw_nonzero());
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        tasks
            .filter(|task| {
                std::fs::read(task.as_ref().unwrap().path().join("comm")).is_ok_and(|it| it == name.as_bytes())
            })
            .count()
    };
    let mut bench = Bench::new(IoUring::new().expect("io_uring works here"));
    let clients: Vec<_> = (0..80).map(|_| bench.connect()).collect();
    let body = Bytes::from(vec![7; BYTES]);
    for (client, socket, token) in &clients {
        client.shutdown(std::net::Shutdown::Write).unwrap();
        bench.reactor.send(*socket, *token, Transmit { body: body.clone(), ..Transmit::default() });
    }
    let start = Instant::now();
    while threads() < 64 && start.elapsed() < PATIENCE {
        bench.reactor.wait(Some(Duration::from_millis(10)), &mut bench.waiting).unwrap();
    }
    // More would come at once.
    bench.reactor.wait(Some(Duration::from_millis(100)), &mut bench.waiting).unwrap();
    assert_eq!(threads(), 64);
    let (clients, tokens): (Vec<_>, Vec<_>) = clients.into_iter().map(|(client, _, token)| (client, token)).unzip();
    let readers: Vec<_> = clients
        .into_iter()
        .map(|mut client| std::thread::spawn(move || client.read_exact(&mut vec![0; BYTES]).unwrap()))
        .collect();
    tokens.into_iter().for_each(|token| assert!(bench.sent(token)));
    readers.into_iter().for_each(|reader| reader.join().unwrap());
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
    what_comes_after_a_long_first_request_is_heard
    nothing_is_lost_by_a_pause
    what_is_left_by_a_full_buffer_is_had_at_once
    a_slow_reader_gets_everything
    small_sends_find_no_room
    a_small_send_on_a_broken_connection_fails
    sending_without_waiting
    a_shutdown_completes_everything
    a_reset_reaches_the_client
    buffers_run_out_and_come_back
    a_bell_is_heard_each_time
    a_socket_that_is_given_up_works_elsewhere
    what_was_closed_last_is_closed_though_the_reactor_ends
    one_end_of_a_pair_is_a_connection_like_any
    connecting_to_a_peer
    waiting_for_room_can_end
    who_has_ended_its_side_and_reads_nothing_has_no_room
    accepting_stops_and_goes_on
    waiting_for_several_ends_in_time
}
