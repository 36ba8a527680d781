//! How long a server has a client's requests, by the kernel's own times: from a request's arrival at the server's side of loopback until the first
//! bytes of its reply leave. Neither the generator's lateness nor the server's own idea of the time is in it.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::sys::tap::Tap;

/// Where the client that is watched comes from.
pub(super) const WATCHED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Bytes kept of a packet: its headers, and of the reply's first line enough to see the status.
const KEPT_BYTES: u32 = 128;
const REQUEST: u32 = u32::from_be_bytes(*b"GET ");
const REPLY: u32 = u32::from_be_bytes(*b"HTTP");
/// Where a reply's status stands.
const STATUS: Range<usize> = 9..12;
/// Where an IP header has its addresses.
const SOURCE: u32 = 12;
const DESTINATION: u32 = 16;
/// PACKET_HOST and PACKET_OUTGOING of linux/if_packet.h.
const ARRIVES: u32 = 0;
const LEAVES: u32 = 4;

/// Watches a client for one batch.
pub(super) struct Wire {
    tap: Tap,
    server_port: u16,
    window_ns: Range<u64>,
}

impl Wire {
    /// # Errors
    /// The kernel refuses to show packets: it takes CAP_NET_RAW.
    pub(super) fn open(server: SocketAddr) -> io::Result<Self> {
        Ok(Self { tap: Tap::open(&filter(WATCHED))?, server_port: server.port(), window_ns: 0..u64::MAX })
    }

    pub(super) fn window_begins(&mut self) {
        self.window_ns.start = now_ns();
    }

    pub(super) fn window_ends(&mut self) {
        self.window_ns.end = now_ns();
    }

    /// When the client has waited for the last replies: how long each request that came within the window took. One that has no reply counts as long as
    /// it has waited; one that was refused doesn't count.
    ///
    /// # Errors
    /// There were more packets than are kept.
    pub(super) fn end(mut self) -> io::Result<Times> {
        let mut asked = HashMap::new();
        let mut times = Times::default();
        let Self { tap, server_port, window_ns } = &mut self;
        tap.drain(|at_ns, bytes| match Segment::read(bytes) {
            Some(Segment { to, from, number, text }) if to == *server_port && text.starts_with(b"GET ") => {
                // The same again is a retransmission: it has come before.
                let first = asked.entry(from).or_insert((number, at_ns));
                if first.0 != number {
                    *first = (number, at_ns);
                }
            }
            Some(Segment { to, from, text, .. }) if from == *server_port => {
                let came_ns = asked.remove(&to).map(|(_, came_ns)| came_ns).filter(|ns| window_ns.contains(ns));
                if let (Some(came_ns), Some(b"200" | b"206")) = (came_ns, text.get(STATUS)) {
                    times.took_ns.push(at_ns.saturating_sub(came_ns));
                }
            }
            _ => {}
        });
        let end_ns = now_ns();
        let waiting = asked.into_values().filter(|(_, ns)| window_ns.contains(ns));
        times.took_ns.extend(waiting.map(|(_, came_ns)| end_ns.saturating_sub(came_ns)));
        times.took_ns.sort_unstable();
        match tap.lost()? {
            0 => Ok(times),
            lost => Err(io::Error::other(format!("{lost} packets weren't seen: make --seconds less"))),
        }
    }
}

/// How long a server had requests.
#[derive(Default)]
pub(super) struct Times {
    /// In nanoseconds, in order of length.
    pub(super) took_ns: Vec<u64>,
}

impl Times {
    /// At a part of a hundred of them, in microseconds; none where there are none.
    pub(super) fn us(&self, percent: usize) -> Option<f64> {
        self.took_ns.get(self.took_ns.len() * percent / 100).map(|&ns| ns as f64 / 1e3)
    }
}

/// Nanoseconds since 1970, as the kernel stamps packets.
fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// What is looked at of a TCP segment.
struct Segment<'a> {
    from: u16,
    to: u16,
    number: u32,
    text: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Out of an IPv4 packet.
    fn read(packet: &'a [u8]) -> Option<Self> {
        let tcp = packet.get(usize::from(packet.first()? & 0xf) * 4..)?;
        let port = |at: usize| Some(u16::from_be_bytes(tcp.get(at..at + 2)?.try_into().ok()?));
        let number = u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?);
        let text = tcp.get(usize::from(tcp.get(12)? >> 4) * 4..)?;
        Some(Self { from: port(0)?, to: port(2)?, number, text })
    }
}

/// Keeps segments that begin a request of `client` as they arrive, and those that begin a reply to it as they leave.
fn filter(client: Ipv4Addr) -> [libc::sock_filter; 19] {
    use libc::{
        BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_B, BPF_IND, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_LDX, BPF_MISC,
    };
    use libc::{BPF_MSH, BPF_RET, BPF_RSH, BPF_TAX, BPF_W, BPF_X};
    let step = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let is = |k: u32, jt: u8, jf: u8| libc::sock_filter { code: (BPF_JMP | BPF_JEQ | BPF_K) as u16, jt, jf, k };
    let direction = step(BPF_LD | BPF_B | BPF_ABS, (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE).cast_unsigned());
    let client = client.to_bits();
    [
        // Where the text begins: behind the IP header and the TCP header, whose length is in its thirteenth byte, in words.
        step(BPF_LDX | BPF_B | BPF_MSH, 0),
        step(BPF_LD | BPF_B | BPF_IND, 12),
        step(BPF_ALU | BPF_AND | BPF_K, 0xf0),
        step(BPF_ALU | BPF_RSH | BPF_K, 2),
        step(BPF_ALU | BPF_ADD | BPF_X, 0),
        step(BPF_MISC | BPF_TAX, 0),
        step(BPF_LD | BPF_W | BPF_IND, 0),
        is(REQUEST, 0, 4),
        direction,
        is(ARRIVES, 0, 8),
        step(BPF_LD | BPF_W | BPF_ABS, SOURCE),
        is(client, 5, 6),
        is(REPLY, 0, 5),
        direction,
        is(LEAVES, 0, 3),
        step(BPF_LD | BPF_W | BPF_ABS, DESTINATION),
        is(client, 0, 1),
        step(BPF_RET | BPF_K, KEPT_BYTES),
        step(BPF_RET | BPF_K, 0),
    ]
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use super::*;
    use crate::sys::socket;

    /// A reply to a request, after a while.
    fn answer(stream: &mut TcpStream, status: &str, after: Duration) {
        let mut bytes = [0; 64];
        let count = stream.read(&mut bytes).expect("a request");
        assert!(count > 0);
        // Not a synchronisation: this is the time that is measured.
        std::thread::sleep(after);
        // In one segment, which waits for nobody's acknowledgement.
        stream.set_nodelay(true).expect("set");
        stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes()).expect("sent");
    }

    #[test]
    fn a_watched_client_s_requests_are_timed_from_their_arrival_to_the_first_bytes_of_the_reply() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = listener.local_addr().expect("an address");
        let mut wire = match Wire::open(server) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                assert!(std::env::var_os("CI").is_none(), "packets can't be watched: {error}");
                return eprintln!("skipped: packets can't be watched: {error}");
            }
            wire => wire.expect("packets"),
        };
        let connect = |source| {
            let client: OwnedFd = socket::connect(server, None, source).expect("connected");
            (client, listener.accept().expect("accepted").0)
        };
        let ask = |client: &OwnedFd| socket::send(client, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", false).expect("sent");
        let (watched, mut watched_server) = connect(Some(WATCHED));
        let (other, mut other_server) = connect(None);
        ask(&watched);
        answer(&mut watched_server, "200 OK", Duration::ZERO);
        wire.window_begins();
        for (client, stream) in [(&watched, &mut watched_server), (&other, &mut other_server)] {
            ask(client);
            answer(stream, "200 OK", Duration::from_millis(30));
        }
        ask(&watched);
        answer(&mut watched_server, "503 Service Unavailable", Duration::ZERO);
        ask(&watched);
        wire.window_ends();
        let took_ns = wire.end().expect("no packets are lost").took_ns;
        // One was answered and one has waited until now; one came before the window, one was refused, and one was somebody else's.
        assert_eq!(took_ns.len(), 2, "{took_ns:?}");
        assert!((30_000_000..1_000_000_000).contains(&took_ns[1]), "{took_ns:?}");
    }
}
