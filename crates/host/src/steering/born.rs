//! Connections that begin without a socket: their key, what of a first packet must be known to give the connection to somebody, and which of them a
//! node has accepted. The programs check cookies (`programs/cookie.h`); who gets a connection is decided elsewhere.

use aya::Btf;
use aya::maps::{Array, HashMap, MapData, MapError};
use aya_obj::btf::BtfKind;
use leat_logic::handoff::{ServerId, TcpState, TcpWindow, WindowScale};

use super::attach::Programs;
use super::change::Marks;
use super::flows::{Flow, FlowKey};
use super::held::{ETHERNET, Packet};
use super::layout::{MARK_ACCEPTED, NAMED_WORKERS, RawBirth, RawCookieKey, RawKey};
use super::{Doing, Result};

/// What all servers of a cluster make cookies with, and nobody else.
#[derive(Clone, Copy)]
pub struct CookieKey([u8; 16]);

impl CookieKey {
    /// From bytes that are random or made of a secret, and used for nothing else.
    #[must_use]
    pub fn new(bytes: [u8; 16]) -> CookieKey {
        CookieKey(bytes)
    }

    pub(super) fn raw(self) -> RawCookieKey {
        let number = u128::from_le_bytes(self.0);
        // Zeros would mean that there is none.
        RawCookieKey { halves: [number as u64 | 1, (number >> 64) as u64] }
    }
}

/// A call of the kernel's `bpf_sk_assign_tcp_reqsk` as the objects have it (`ASSIGN_PLACE`): as if it were helper number "leat".
const ASSIGN_PLACE: [u8; 8] = [0x85, 0, 0, 0, 0x74, 0x61, 0x65, 0x6c];
/// What makes of a helper's call one of a kernel function (`BPF_PSEUDO_KFUNC_CALL`), which aya doesn't know of.
const KERNEL_FUNCTION: u8 = 2 << 4;

/// An object with this kernel's numbers of the functions that it calls.
pub(super) fn for_this_kernel(object: &[u8]) -> Result<Vec<u8>> {
    let doing = || "looking for bpf_sk_assign_tcp_reqsk in this kernel".to_owned();
    let types = Btf::from_sys_fs().doing(doing)?;
    let number = types.id_by_type_name_kind("bpf_sk_assign_tcp_reqsk", BtfKind::Func).doing(doing)?;
    let mut object = object.to_vec();
    for instruction in object.chunks_exact_mut(8).filter(|instruction| *instruction == ASSIGN_PLACE) {
        instruction[1] = KERNEL_FUNCTION;
        instruction[4..].copy_from_slice(&number.to_le_bytes());
    }
    Ok(object)
}

/// The places of fields that a SYN's answer packs into its timestamp, as `programs/cookie.h` does.
pub(super) const NO_WINDOW_SCALE: u32 = 15;
/// The span of time that a cookie's options take the place of.
pub(super) const OPTIONS_SPAN_MS: u32 = 1 << 7;
const MSS_OF_IPV4: [u16; 4] = [536, 1300, 1440, 1460];
const MSS_OF_IPV6: [u16; 4] = [1220, 1360, 1420, 1440];
const OWN_WINDOW_SCALE: u8 = 7;
const FIRST_WINDOW: u32 = 64_240;
/// What the timestamp option takes of a segment.
const TIMESTAMP_BYTES: u16 = 12;

/// A TCP segment in a frame, as far as it's understood here.
pub(super) struct Segment<'a> {
    pub(super) sequence: u32,
    pub(super) acknowledged: u32,
    pub(super) window: u16,
    /// What it says of its client's clock, and what it echoes of ours.
    pub(super) stamps: Option<(u32, u32)>,
    /// It acknowledges, and neither begins nor resets.
    pub(super) acknowledges: bool,
    /// Selectively.
    pub(super) has_gaps: bool,
    pub(super) has_fin: bool,
    pub(super) payload: &'a [u8],
}

impl Segment<'_> {
    pub(super) fn read(frame: &[u8]) -> Option<Segment<'_>> {
        let is_ipv4 = frame.get(12..ETHERNET)? == [0x08, 0x00];
        let ip = frame.get(ETHERNET..)?;
        // Short frames are filled up: the IP header says where they end.
        let length = |at: usize| Some(usize::from(u16::from_be_bytes(ip.get(at..at + 2)?.try_into().ok()?)));
        let length = if is_ipv4 { length(2)? } else { length(4)? + 40 };
        let content = Packet::read(ip.get(..length)?, is_ipv4)?.content;
        let number = |at: usize| Some(u32::from_be_bytes(content.get(at..at + 4)?.try_into().ok()?));
        let header = usize::from(content.get(12)? >> 4) * 4;
        let (flags, options) = (*content.get(13)?, content.get(20..header)?);
        Some(Segment {
            sequence: number(4)?,
            acknowledged: number(8)?,
            window: u16::from_be_bytes(content.get(14..16)?.try_into().ok()?),
            stamps: stamps(options),
            acknowledges: flags & (ACK | RST | SYN) == ACK,
            has_gaps: option(options, SACK).is_some(),
            has_fin: flags & FIN != 0,
            payload: content.get(header..)?,
        })
    }
}

impl<'a> Segment<'a> {
    /// What of it follows on a sequence number; none where that isn't in it, nor its end.
    pub(super) fn after(&self, sequence: u32) -> Option<Segment<'a>> {
        let known = usize::try_from(sequence.wrapping_sub(self.sequence)).ok()?;
        Some(Segment { sequence, payload: self.payload.get(known..)?, ..*self })
    }

    /// What of it is before a sequence number that is in it.
    pub(super) fn before(&self, sequence: u32) -> Option<Segment<'a>> {
        let known = usize::try_from(sequence.wrapping_sub(self.sequence)).ok()?;
        let is_within = (1..self.payload.len()).contains(&known);
        is_within.then(|| Segment { payload: &self.payload[..known], has_fin: false, ..*self })
    }
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Kinds of options (RFC 7323 and RFC 2018).
const TIMESTAMPS: u8 = 8;
const SACK: u8 = 5;

/// What a timestamp option says, and what it echoes.
fn stamps(options: &[u8]) -> Option<(u32, u32)> {
    let &[a, b, c, d, e, f, g, h] = option(options, TIMESTAMPS)?.first_chunk()?;
    Some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])))
}

/// What the first option of a kind holds.
fn option(mut options: &[u8], kind: u8) -> Option<&[u8]> {
    loop {
        match options {
            [1, rest @ ..] => options = rest,
            [found @ 2..=255, length @ 2..=255, ..] => {
                let (option, rest) = options.split_at_checked(usize::from(*length))?;
                if *found == kind {
                    return option.get(2..);
                }
                options = rest;
            }
            _ => return None,
        }
    }
}

/// A connection that no server has yet, and what its client has said.
#[derive(Debug)]
pub struct Arrival {
    /// Who talks to whom.
    pub key: FlowKey,
    /// Its entry.
    pub flow: Flow,
    /// The first bytes: as many as were in one packet.
    pub payload: Vec<u8>,
    /// The client has said at once that it sends no more.
    pub has_fin: bool,
    pub(super) sequence: u32,
    pub(super) acknowledged: u32,
    pub(super) window: u16,
    /// What the first packet says of its client's clock, and what it echoes of ours.
    pub(super) stamps: Option<(u32, u32)>,
}

impl Arrival {
    pub(super) fn new(key: FlowKey, flow: Flow, first: &Segment<'_>) -> Arrival {
        let &Segment { sequence, acknowledged, window, stamps, has_fin, payload, .. } = first;
        Arrival { key, flow, payload: payload.to_vec(), has_fin, sequence, acknowledged, window, stamps }
    }

    /// The connection as a socket would have it that has received the payload, and whose application hasn't read it.
    #[must_use]
    pub fn state(&self) -> TcpState {
        let echo = self.stamps.map_or(0, |(_, echo)| echo);
        let Options { mss, window_scale, sack } = Options::of(echo, self.key.vip.is_ipv4(), OWN_WINDOW_SCALE);
        let snd_wnd = u32::from(self.window) << window_scale.map_or(0, |scale| scale.send);
        TcpState {
            local: self.key.vip,
            remote: self.key.client,
            send_next: self.acknowledged,
            receive_next: self.sequence.wrapping_add(self.payload.len() as u32),
            window: TcpWindow {
                snd_wl1: self.sequence,
                snd_wnd,
                max_window: snd_wnd,
                rcv_wnd: FIRST_WINDOW,
                rcv_wup: self.sequence,
            },
            mss: mss - TIMESTAMP_BYTES,
            window_scale,
            sack,
            timestamp: Some(echo),
            unread: self.payload.clone(),
            sent: Vec::new(),
            unsent: Vec::new(),
        }
    }
}

/// What both sides of a connection have agreed on, as far as a cookie has it.
pub(super) struct Options {
    /// The client's, without what options take.
    pub(super) mss: u16,
    pub(super) window_scale: Option<WindowScale>,
    pub(super) sack: bool,
}

impl Options {
    /// From a cookie's lowest bits. `scale`: of the windows that the client is told.
    pub(super) fn of(bits: u32, is_ipv4: bool, scale: u8) -> Options {
        let send = bits & 15;
        Options {
            mss: if is_ipv4 { MSS_OF_IPV4 } else { MSS_OF_IPV6 }[(bits >> 4 & 3) as usize],
            window_scale: (send != NO_WINDOW_SCALE).then(|| WindowScale { send: send.min(14) as u8, receive: scale }),
            sack: bits >> 6 & 1 != 0,
        }
    }
}

/// Whether a packet that begins a connection can say that it's this worker's: the last two numbers together say that it's nobody's.
#[must_use]
pub fn can_name(worker: ServerId) -> bool {
    worker.worker() < NAMED_WORKERS - 1
}

/// A connection that began by a cookie: which, and whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Birth {
    /// Which of all connections.
    pub serial: u64,
    /// The number of its home's worker.
    pub home: u16,
    /// The number of the worker that is to have it.
    pub worker: u16,
}

/// A node's: connections that began by a cookie.
pub(super) struct Births {
    last: HashMap<MapData, RawKey, RawBirth>,
    places: Array<MapData, u32>,
    marks: Marks,
}

impl Births {
    pub(super) fn new(programs: &mut Programs, key: CookieKey) -> Result<Births> {
        let doing = || "map of the cookies' key".to_owned();
        Array::try_from(programs.map("cookie_keys")?).doing(doing)?.set(0, key.raw(), 0).doing(doing)?;
        Ok(Births {
            last: HashMap::try_from(programs.map("births")?).doing(|| "map of births".to_owned())?,
            places: Array::try_from(programs.map("places")?).doing(|| "map of listeners' places".to_owned())?,
            marks: Marks::new(programs)?,
        })
    }

    pub(super) fn set_workers(&mut self, numbers: &[u16]) -> Result<()> {
        for number in 0..NAMED_WORKERS {
            let place = numbers.iter().position(|known| *known == number).map_or(0, |place| place as u32 + 1);
            self.places.set(u32::from(number), place, 0).doing(|| "map of listeners' places".to_owned())?;
        }
        Ok(())
    }

    pub(super) fn accept(&self, key: FlowKey) -> Result<Option<Birth>> {
        let doing = || "looking up a birth".to_owned();
        match self.last.get(&key.raw(), 0) {
            Ok(birth) if birth.is_accepted == 0 => {
                let RawBirth { serial, names, .. } = birth;
                self.marks.set(key, MARK_ACCEPTED, serial)?;
                Ok(Some(Birth { serial, home: names / NAMED_WORKERS, worker: names % NAMED_WORKERS }))
            }
            Ok(_) | Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(error).doing(doing),
        }
    }
}
