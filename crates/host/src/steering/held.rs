//! Packets of flows that change hands: kept while they must wait, put back where they came from afterwards. The way here and back is a tap, one
//! for each interface.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use leat_logic::time::Instant;
use rustix::io::Errno;

use super::born::{Arrival, Segment};
use super::flows::{Flow, FlowKey, Flows};
use super::kept::Said;
use super::transplant::{Next, said_before};
use super::{Doing, Result};
use crate::tap::{self, OFFLOADS, Tap, interface_request};

/// Bytes of packets that wait, all together. What comes beyond is lost, and sent again by its client.
pub const HELD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Packets of one flow that wait.
pub const HELD_FRAMES_PER_FLOW_MAX: usize = 512;

/// Frames that are taken in of one tap at a time: who lets them come must not have a worker do nothing else.
const FRAMES_AT_ONCE: usize = 256;

/// By then a client has sent again whatever it was.
const HELD_AGE_MAX: Duration = Duration::from_secs(2);

pub(super) const ETHERNET: usize = 14;

/// A tap for packets that wait, which is up. It's gone when it's dropped.
pub(super) fn make_tap() -> Result<Tap> {
    let doing = || "making a tap for packets that wait".to_owned();
    let tap = Tap::make(NAME_PATTERN).doing(doing)?;
    set_up(tap.name()).doing(doing)?;
    Ok(tap)
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    tap: usize,
    frames: Vec<Box<[u8]>>,
}

/// All that waits.
#[derive(Debug)]
pub(super) struct Held {
    taps: Vec<Tap>,
    waiting: HashMap<FlowKey, Waiting>,
    /// Flows that nobody has yet, whose first packet is among those that wait.
    arrived: VecDeque<(FlowKey, Flow)>,
    /// Those at servers that aren't leat, of whose clients something waits.
    next: VecDeque<FlowKey>,
    /// Those of them that somebody sees to.
    seen_to: HashSet<FlowKey>,
    bytes: usize,
    buffer: Box<[u8]>,
}

impl Held {
    pub(super) fn new() -> Held {
        let buffer = vec![0; tap::FRAME_BYTES_MAX].into_boxed_slice();
        Held {
            taps: Vec::new(),
            waiting: HashMap::new(),
            arrived: VecDeque::new(),
            next: VecDeque::new(),
            seen_to: HashSet::new(),
            bytes: 0,
            buffer,
        }
    }

    pub(super) fn add(&mut self, tap: Tap) {
        self.taps.push(tap);
    }

    /// What becomes readable when packets come.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.taps.iter().map(|tap| tap.as_fd())
    }

    /// The taps' names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.taps.iter().map(Tap::name)
    }

    /// Takes in some of what has come. Packets of flows that wait no longer go back at once: they were on their way when it was decided. Returns whether there may
    /// be more.
    pub(super) fn receive(&mut self, flows: &Flows, now: Instant) -> bool {
        let mut is_more = false;
        for tap in 0..self.taps.len() {
            let mut buffer = std::mem::take(&mut self.buffer);
            let mut frames = 0;
            while frames < FRAMES_AT_ONCE
                && let Some(frame) = self.taps[tap].read(&mut buffer)
            {
                self.take_in(tap, frame, flows, now);
                frames += 1;
            }
            is_more |= frames == FRAMES_AT_ONCE;
            self.buffer = buffer;
        }
        self.forget_old(now);
        is_more
    }

    fn take_in(&mut self, tap: usize, frame: &[u8], flows: &Flows, now: Instant) {
        // What the kernel itself says on a new interface is nobody's.
        let Some(key) = frame.get(OFFLOADS..).and_then(read_key) else { return };
        let waits = |flow: &Flow| flow.held || flow.is_looked_at();
        let Some(flow) = flows.get(key).ok().flatten().filter(waits) else {
            self.taps[tap].write(frame);
            return;
        };
        if !flow.held && !flow.is_planted() {
            // Sent again with more, it may be what its holder lacks: nobody else would send that.
            said_before(key, frame, flow.watch.looked_to).iter().for_each(|said| self.taps[tap].write(said));
        }
        if self.bytes + frame.len() > HELD_BYTES_MAX {
            return;
        }
        let waiting = match self.waiting.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Waiting { since: now, tap, frames: Vec::new() }),
        };
        if waiting.frames.len() < HELD_FRAMES_PER_FLOW_MAX {
            waiting.frames.push(frame.into());
            self.bytes += frame.len();
            if flow.born && first_segment(frame, &flow).is_some() {
                self.arrived.push_back((key, flow));
            } else if !flow.held && !self.seen_to.contains(&key) {
                self.next.push_back(key);
            }
        }
    }

    /// The next flow that nobody has yet, and whose first packet has come.
    pub(super) fn poll_arrival(&mut self) -> Option<Arrival> {
        while let Some((key, flow)) = self.arrived.pop_front() {
            let frames = self.waiting.get(&key).map(|waiting| &waiting.frames);
            // Sent twice, it has arrived once.
            if let Some(first) = frames.into_iter().flatten().find_map(|frame| first_segment(frame, &flow)) {
                return Some(Arrival::new(key, flow, &first));
            }
        }
        None
    }

    /// What the next client says that is to be looked at.
    pub(super) fn poll_next(&mut self, flows: &Flows) -> Option<Next> {
        while let Some(key) = self.next.pop_front() {
            if !self.seen_to.contains(&key)
                && let Some(next) = self.next_of(key, flows)
            {
                self.seen_to.insert(key);
                return Some(next);
            }
        }
        None
    }

    /// Nobody sees to it any more.
    pub(super) fn seen_to(&mut self, key: FlowKey) {
        self.seen_to.remove(&key);
    }

    /// What waits of a connection at a server that isn't leat.
    pub(super) fn next_of(&self, key: FlowKey, flows: &Flows) -> Option<Next> {
        let flow = flows.get(key).ok().flatten().filter(Flow::is_looked_at)?;
        Next::read(key, flow, &self.waiting.get(&key)?.frames)
    }

    /// Whether a packet that waits of a flow says something both before and after a sequence number.
    pub(super) fn is_within_packet(&self, key: FlowKey, sequence: u32) -> bool {
        let frames = self.waiting.get(&key).map(|waiting| &waiting.frames);
        let segments = frames.into_iter().flatten().filter_map(|frame| Segment::read(frame.get(OFFLOADS..)?));
        segments.into_iter().any(|segment| segment.before(sequence).is_some())
    }

    /// How many packets of a flow wait.
    pub(super) fn count(&self, key: FlowKey) -> usize {
        self.waiting.get(&key).map_or(0, |waiting| waiting.frames.len())
    }

    /// What its client has said in those that came after so many.
    pub(super) fn said_since(&self, key: FlowKey, count: usize) -> Option<Said> {
        Said::last_of(self.waiting.get(&key)?.frames.get(count..)?)
    }

    /// What a flow's client has said and waits is said in another way, or again by itself.
    pub(super) fn forget(&mut self, key: FlowKey) {
        if let Some(waiting) = self.waiting.remove(&key) {
            self.bytes -= waiting.frames.iter().map(|frame| frame.len()).sum::<usize>();
        }
    }

    /// Lets packets arrive that were made here.
    pub(super) fn put_in(&self, frames: &[Box<[u8]>]) {
        // Whichever it is: they're known by their flow.
        let tap = self.taps.first();
        tap.into_iter().for_each(|tap| frames.iter().for_each(|frame| tap.write(frame)));
    }

    /// Puts a flow's packets back; its entry says where they go from there.
    pub(super) fn release(&mut self, key: FlowKey) {
        let Some(mut waiting) = self.waiting.remove(&key) else { return };
        put_in_order(&mut waiting.frames);
        for frame in &waiting.frames {
            self.bytes -= frame.len();
            self.taps[waiting.tap].write(frame);
        }
    }

    fn forget_old(&mut self, now: Instant) {
        let limit_ns = HELD_AGE_MAX.as_nanos() as u64;
        let bytes = &mut self.bytes;
        self.waiting.retain(|_, waiting| {
            let keep = now.ns.saturating_sub(waiting.since.ns) < limit_ns;
            if !keep {
                *bytes -= waiting.frames.iter().map(|frame| frame.len()).sum::<usize>();
            }
            keep
        });
    }
}

/// As their client has said them: the first makes the connection where it goes, and whatever gets there before it has no connection.
pub(super) fn put_in_order(frames: &mut [Box<[u8]>]) {
    let sequence = |frame: &[u8]| Segment::read(frame.get(OFFLOADS..)?).map(|segment| segment.sequence);
    let Some(base) = frames.iter().find_map(|frame| sequence(frame)) else { return };
    frames.sort_by_key(|frame| sequence(frame).map_or(i32::MAX, |sequence| sequence.wrapping_sub(base).cast_signed()));
}

/// The segment with which a client begins.
fn first_segment<'a>(frame: &'a [u8], flow: &Flow) -> Option<Segment<'a>> {
    Segment::read(frame.get(OFFLOADS..)?).filter(|segment| segment.sequence == flow.heard.client_next)
}

/// Whose a frame is: a client's segment, or a message about one that was sent to it. As `programs/packet.h` sees it.
fn read_key(frame: &[u8]) -> Option<FlowKey> {
    let is_ipv4 = match frame.get(12..ETHERNET)? {
        [0x08, 0x00] => true,
        [0x86, 0xdd] => false,
        _ => return None,
    };
    let packet = Packet::read(frame.get(ETHERNET..)?, is_ipv4)?;
    if packet.protocol == TCP {
        return Some(FlowKey { client: packet.source(0)?, vip: packet.destination(2)? });
    }
    let quotes = match (packet.protocol, packet.content.first()?) {
        (ICMP, kind) => matches!(kind, 3 | 11 | 12),
        (ICMPV6, kind) => matches!(kind, 1..=4),
        _ => false,
    };
    if !quotes {
        return None;
    }
    let quoted = Packet::read(packet.content.get(8..)?, is_ipv4)?;
    (quoted.protocol == TCP).then_some(FlowKey { client: quoted.destination(2)?, vip: quoted.source(0)? })
}

const ICMP: u8 = 1;
const TCP: u8 = 6;
const ICMPV6: u8 = 58;

pub(super) struct Packet<'a> {
    addresses: [IpAddr; 2],
    protocol: u8,
    pub(super) content: &'a [u8],
}

impl Packet<'_> {
    pub(super) fn read(bytes: &[u8], is_ipv4: bool) -> Option<Packet<'_>> {
        if is_ipv4 {
            let address = |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?));
            let header = usize::from(bytes.first()? & 15) * 4;
            let addresses = [address(12)?, address(16)?];
            return Some(Packet { addresses, protocol: *bytes.get(9)?, content: bytes.get(header..)? });
        }
        let address = |at: usize| Some(IpAddr::from(<[u8; 16]>::try_from(bytes.get(at..at + 16)?).ok()?));
        let addresses = [address(8)?, address(24)?];
        Some(Packet { addresses, protocol: *bytes.get(6)?, content: bytes.get(40..)? })
    }

    fn port(&self, at: usize) -> Option<u16> {
        Some(u16::from_be_bytes(self.content.get(at..at + 2)?.try_into().ok()?))
    }

    fn source(&self, port_at: usize) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.addresses[0], self.port(port_at)?))
    }

    fn destination(&self, port_at: usize) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.addresses[1], self.port(port_at)?))
    }
}

/// The kernel gives the first free of these names.
const NAME_PATTERN: &[u8] = b"leat-hold%d";

/// Whether an interface is a tap, of whichever process: nothing but what waits goes by it.
pub(crate) fn is_tap_name(name: &str) -> bool {
    name.as_bytes().starts_with(NAME_PATTERN.strip_suffix(b"%d").unwrap_or(NAME_PATTERN))
}

/// The same of one by its number. It's gone with the process that made it, and its number isn't used again.
pub(super) fn is_tap(interface: u32) -> bool {
    name_of(interface).is_ok_and(|name| is_tap_name(&name))
}

/// Whether there is no such interface any more.
pub(super) fn is_gone(interface: u32) -> bool {
    name_of(interface).is_err_and(|error| error == Errno::NODEV)
}

fn name_of(interface: u32) -> std::result::Result<String, Errno> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    rustix::net::netdevice::index_to_name(&socket, interface)
}

fn set_up(name: &str) -> io::Result<()> {
    // Without IPv6 the kernel has nothing of its own to say there. Where it can't be set there is no IPv6.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    let mut request = interface_request(name.as_bytes());
    request.ifr_ifru.ifru_mtu = 65_521;
    // SAFETY: SIOCSIFMTU reads a `struct ifreq`, which `request` is.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFMTU, &raw const request) })?;
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads a `struct ifreq`, which `request` is.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
