//! Keys and values of the programs' maps, as `programs/flow.h` lays them out. Loading compares their sizes with the maps'.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use aya::Pod;

/// Changes whenever a layout does: programs of another version must not find these maps.
pub(super) const VERSION: &str = "16";

pub(super) const FLOW_HELD: u8 = 1;
pub(super) const FLOW_NODE_CLOSED: u8 = 2;
pub(super) const FLOW_BORN: u8 = 4;
pub(super) const FLOW_HERE: u8 = 8;
pub(super) const FLOW_FOREIGN: u8 = 16;
pub(super) const FLOW_OFFERED: u8 = 32;
pub(super) const FLOW_CUT: u8 = 64;
pub(super) const FLOW_WATCHED: u8 = 128;

/// `enum flow_turn`.
pub(super) const TURN_CLIENT: u8 = 0;
pub(super) const TURN_LEAT: u8 = 1;
pub(super) const TURN_PLANTED: u8 = 2;
pub(super) const TURN_NOBODY: u8 = 3;
pub(super) const TURN_PLANTING: u8 = 4;

pub(super) const CHANGE_MAKES: u8 = 1;
pub(super) const CHANGE_REPLACES: u8 = 2;
pub(super) const CHANGE_HOLDER: u8 = 4;
pub(super) const CHANGE_HEARD: u8 = 8;
pub(super) const CHANGE_DELETES: u8 = 16;
pub(super) const CHANGE_BEGINS: u8 = 32;
pub(super) const CHANGE_LOOKED: u8 = 64;

pub(super) const CHANGE_DONE: u32 = 0;
pub(super) const CHANGE_GONE: u32 = 1;
pub(super) const CHANGE_FULL: u32 = 2;

pub(super) const FLOWS_MADE: u32 = 0;
pub(super) const FLOWS_OVER: u32 = 1;
pub(super) const HEIRS: u32 = 2;

/// Workers of smaller numbers can be named by a packet that begins a connection.
pub(super) const NAMED_WORKERS: u16 = 256;

pub(super) const NODE_NEIGHBOUR: u32 = 1;
pub(super) const NODE_ROUTED: u32 = 2;
pub(super) const NODE_PEER: u32 = 3;

pub(super) const SERVICE_OWN: u32 = 1;
pub(super) const SERVICE_MARKED: u32 = 2;
pub(super) const SERVICE_FOREIGN: u32 = 4;

pub(super) const SPREAD_OWN: u16 = 1;
pub(super) const SPREAD_REFUSES: u16 = 2;

/// In the lease's place where all servers are foreign.
pub const NO_LEASE: u64 = u64::MAX;

pub(super) const CLOSING_MARK: u32 = 0x6c65_6174;

/// `enum dispatcher_counter`.
pub(super) mod dispatcher_counter {
    pub(in super::super) const STEERED: u32 = 0;
    pub(in super::super) const HELD: u32 = 1;
    pub(in super::super) const LOST: u32 = 2;
    pub(in super::super) const REPLACED: u32 = 3;
    pub(in super::super) const ERRORS: u32 = 4;
    pub(in super::super) const RESETS: u32 = 5;
    pub(in super::super) const ANSWERED: u32 = 6;
    pub(in super::super) const AWAITED: u32 = 7;
    pub(in super::super) const STALE: u32 = 8;
    pub(in super::super) const ADMITTED: u32 = 9;
    pub(in super::super) const ASKED: u32 = 10;
    pub(in super::super) const CROWDED: u32 = 11;
}

/// `enum node_counter`.
pub(super) mod node_counter {
    pub(in super::super) const RECEIVED: u32 = 0;
    pub(in super::super) const STRAY: u32 = 1;
    pub(in super::super) const RESTORED: u32 = 2;
    pub(in super::super) const RESETS: u32 = 3;
    pub(in super::super) const GOODBYES: u32 = 4;
    pub(in super::super) const FENCED: u32 = 5;
    pub(in super::super) const BORN: u32 = 6;
    pub(in super::super) const REPEATED: u32 = 7;
    pub(in super::super) const FORGED: u32 = 8;
    pub(in super::super) const UNHEARD: u32 = 9;
    pub(in super::super) const GIVEN: u32 = 10;
    pub(in super::super) const PLANTED: u32 = 11;
    pub(in super::super) const REPLAYED: u32 = 12;
    pub(in super::super) const CROWDED: u32 = 13;
}

/// `struct flow_key`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RawKey {
    pub(super) client: [u8; 16],
    pub(super) vip: [u8; 16],
    pub(super) client_port: [u8; 2],
    pub(super) vip_port: [u8; 2],
}

/// `struct flow`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawFlow {
    pub(super) seen_ns: u64,
    pub(super) holder: u32,
    pub(super) client_next: u32,
    pub(super) acknowledged: u32,
    pub(super) timestamp: u32,
    pub(super) window: u16,
    pub(super) flags: u8,
    pub(super) client_fin: u8,
    pub(super) reset: u8,
    pub(super) repeats: u8,
    pub(super) wraps: u16,
    pub(super) serial: u64,
    pub(super) home: u32,
    pub(super) generation: u32,
    pub(super) said: u32,
    pub(super) base: u32,
    pub(super) looked_to: u32,
    pub(super) turn: u8,
    pub(super) options: u8,
    pub(super) scale: u8,
    pub(super) unused: u8,
}

/// `struct change`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct RawChange {
    pub(super) ethernet: [u8; 14],
    pub(super) what: u8,
    pub(super) cleared: u8,
    pub(super) key: RawKey,
    pub(super) home: u32,
    pub(super) to: RawFlow,
}

/// `struct node`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawNode {
    pub(super) address6: [u8; 16],
    pub(super) address4: [u8; 4],
    pub(super) ifindex: u32,
    pub(super) reach: u32,
}

/// `struct service_key`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RawServiceKey {
    pub(super) address: [u8; 16],
    pub(super) port: [u8; 2],
}

/// `struct service`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawService {
    pub(super) vip: [u8; 16],
    pub(super) flags: u32,
    pub(super) listener: [u8; 16],
    pub(super) listener_port: [u8; 2],
    pub(super) unused: [u8; 2],
}

/// `struct cookie_key`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawCookieKey {
    pub(super) halves: [u64; 2],
}

/// `struct birth`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawBirth {
    pub(super) serial: u64,
    pub(super) echo: u32,
    pub(super) names: u16,
    pub(super) is_accepted: u16,
    pub(super) client_next: u32,
    pub(super) sequence: u32,
}

/// `enum mark_kind`.
pub(super) const MARK_GIVEN: u8 = 0;
pub(super) const MARK_KEPT: u8 = 1;
pub(super) const MARK_ACCEPTED: u8 = 2;

/// `struct mark`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct RawMark {
    pub(super) ethernet: [u8; 14],
    pub(super) what: u8,
    pub(super) unused: u8,
    pub(super) key: RawKey,
    pub(super) unused2: u32,
    pub(super) serial: u64,
}

/// `enum replay_ends`, the first two of them together.
pub(super) const REPLAY_BOTH_END: u8 = 3;
pub(super) const REPLAY_SETTLED: u8 = 4;

/// `struct replay`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawReplay {
    pub(super) seen_ns: u64,
    pub(super) sequence: u32,
    pub(super) clock: u32,
    pub(super) is_answered: u8,
    pub(super) ends: u8,
    pub(super) server_scale: u8,
    pub(super) told_scale: u8,
    pub(super) server_end: u32,
}

/// `PLANTING_KIND`, `PLANTING_NUMBER`, and the bits of a planting's terms.
pub(super) const PLANTING_KIND: u8 = 253;
pub(super) const PLANTING_NUMBER: u16 = 0x6c74;
pub(super) const PLANTING_SACK: u8 = 1;
pub(super) const PLANTING_TIMESTAMPS: u8 = 2;
pub(super) const PLANTING_GOES_ON: u8 = 4;
pub(super) const PLANTING_HERE: u8 = 8;

/// As much of a reply as is noted.
pub(super) const REPLY_BYTES_MAX: usize = 1024;

/// `struct reply`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct RawReply {
    pub(super) next: u32,
    pub(super) begin: u32,
    pub(super) end: u32,
    pub(super) shown: u32,
    pub(super) request: [u8; 4],
    pub(super) is_awaited: u8,
    pub(super) is_muddled: u8,
    pub(super) is_given: u8,
    pub(super) is_whole: u8,
    pub(super) tail: [u8; 8],
    pub(super) tail_bytes: u16,
    pub(super) bytes: u16,
    pub(super) head: [u8; REPLY_BYTES_MAX],
}

/// As much of what a client said last as is kept of each connection.
pub(super) const KEPT_BYTES_MAX: usize = 1024;

/// As much of what followed on that as is kept of some.
pub(super) const KEPT_REST_BYTES_MAX: usize = 4096;

/// `struct kept_request`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct RawKeptRequest {
    pub(super) sequence: u32,
    pub(super) acknowledged: u32,
    pub(super) bytes: u32,
    pub(super) more: u32,
    pub(super) payload: [u8; KEPT_BYTES_MAX],
}

/// `struct kept_rest`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct RawKeptRest {
    pub(super) sequence: u32,
    pub(super) bytes: u32,
    pub(super) payload: [u8; KEPT_REST_BYTES_MAX],
}

/// The most turns by which a standing choice divides connections.
pub const CHOICE_TURNS: usize = 16;

/// `struct choice`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawChoice {
    pub(super) until_ns: u64,
    pub(super) content: u64,
    pub(super) home: u32,
    pub(super) limit: u32,
    pub(super) used: u32,
    pub(super) flags: u32,
    pub(super) first: u32,
    pub(super) turns: u32,
    pub(super) holders: [u32; CHOICE_TURNS],
}

/// `struct begun`, without the payload that follows.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawBegun {
    pub(super) key: RawKey,
    pub(super) home: u32,
    pub(super) holder: u32,
    pub(super) sequence: u32,
    pub(super) acknowledged: u32,
    pub(super) timestamp: u32,
    pub(super) echo: u32,
    pub(super) window: u32,
    pub(super) serial: u64,
    pub(super) content: u64,
    pub(super) repeats: u16,
    pub(super) flags: u16,
    pub(super) bytes: u32,
}

/// Of `struct begun`.
pub(super) const BEGUN_BYTES: usize = 88;

impl RawBegun {
    /// From what the program has written.
    pub(super) fn read(bytes: &[u8]) -> Option<RawBegun> {
        let half = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let key = RawKey {
            client: bytes.get(..16)?.try_into().ok()?,
            vip: bytes.get(16..32)?.try_into().ok()?,
            client_port: bytes.get(32..34)?.try_into().ok()?,
            vip_port: bytes.get(34..36)?.try_into().ok()?,
        };
        Some(RawBegun {
            key,
            home: word(36)?,
            holder: word(40)?,
            sequence: word(44)?,
            acknowledged: word(48)?,
            timestamp: word(52)?,
            echo: word(56)?,
            window: word(60)?,
            serial: long(64)?,
            content: long(72)?,
            repeats: half(80)?,
            flags: half(82)?,
            bytes: word(84)?,
        })
    }
}

/// `struct heir`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawHeir {
    pub(super) node: u32,
    pub(super) begins: u32,
}

/// `struct owners`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawOwners {
    pub(super) current: u16,
    pub(super) previous: u16,
}

/// `struct spread_service`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawSpreadService {
    pub(super) server: [u8; 16],
    pub(super) server_port: [u8; 2],
    pub(super) flags: u16,
}

/// `struct bucket_key`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawBucketKey {
    pub(super) halves: [u64; 2],
    pub(super) has_moved: u64,
}

/// `struct moved`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawMoved {
    pub(super) number: u16,
    pub(super) is_over: u16,
}

// SAFETY: as the others: `repr(C)`, only integers and arrays of them, and no padding, so that every byte is initialised and any will do.
unsafe impl Pod for RawKey {}
// SAFETY: as above.
unsafe impl Pod for RawFlow {}
// SAFETY: as above.
unsafe impl Pod for RawChange {}
// SAFETY: as above.
unsafe impl Pod for RawMark {}
// SAFETY: as above.
unsafe impl Pod for RawNode {}
// SAFETY: as above.
unsafe impl Pod for RawServiceKey {}
// SAFETY: as above.
unsafe impl Pod for RawService {}
// SAFETY: as above.
unsafe impl Pod for RawCookieKey {}
// SAFETY: as above.
unsafe impl Pod for RawBirth {}
// SAFETY: as above.
unsafe impl Pod for RawReplay {}
#[cfg(test)]
impl Default for RawReply {
    fn default() -> RawReply {
        RawReply {
            next: 0,
            begin: 0,
            end: 0,
            shown: 0,
            request: [0; 4],
            is_awaited: 0,
            is_muddled: 0,
            is_given: 0,
            is_whole: 0,
            tail: [0; 8],
            tail_bytes: 0,
            bytes: 0,
            head: [0; REPLY_BYTES_MAX],
        }
    }
}

// SAFETY: as above.
unsafe impl Pod for RawReply {}
// SAFETY: as above.
unsafe impl Pod for RawKeptRequest {}
// SAFETY: as above.
unsafe impl Pod for RawKeptRest {}
// SAFETY: as above.
unsafe impl Pod for RawChoice {}
// SAFETY: as above.
unsafe impl Pod for RawHeir {}
// SAFETY: as above.
unsafe impl Pod for RawOwners {}
// SAFETY: as above.
unsafe impl Pod for RawSpreadService {}
// SAFETY: as above.
unsafe impl Pod for RawBucketKey {}
// SAFETY: as above.
unsafe impl Pod for RawMoved {}

/// IPv4 as IPv6.
pub(super) fn raw_ip(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

pub(super) fn raw_port(address: SocketAddr) -> [u8; 2] {
    address.port().to_be_bytes()
}

pub(super) fn raw_ipv4(ip: Option<Ipv4Addr>) -> [u8; 4] {
    ip.map_or([0; 4], |ip| ip.octets())
}

pub(super) fn raw_ipv6(ip: Option<Ipv6Addr>) -> [u8; 16] {
    ip.map_or([0; 16], |ip| ip.octets())
}

pub(super) fn socket_address(ip: [u8; 16], port: [u8; 2]) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(Ipv6Addr::from(ip)).to_canonical(), u16::from_be_bytes(port))
}
