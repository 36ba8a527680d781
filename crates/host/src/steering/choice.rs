//! Standing choices: connections whose first request is for the same begin where they say, without anybody being asked (`programs/choice.h`), and are read
//! here afterwards. What is chosen, and for how long, is decided elsewhere.

use std::collections::{BTreeMap, VecDeque};
use std::hash::Hasher;
use std::net::SocketAddr;
use std::sync::Mutex;

use aya::maps::{HashMap, MapData, RingBuf};
use leat_logic::handoff::{FlowId, Generation, ServerId};
use leat_logic::time::Instant;
use siphasher::sip::SipHasher24;

use super::attach::Programs;
use super::born::{Arrival, CookieKey, Segment};
use super::flows::{Flow, Heard, Watch};
use super::layout::{BEGUN_BYTES, CHOICE_TURNS, FLOW_FOREIGN, FLOW_WATCHED, RawBegun, RawChoice, raw_ip, raw_port};
use super::{Doing, Result};
use crate::lock::lock;

/// As `programs/choice.h` has them.
const REQUEST_BYTES: std::ops::RangeInclusive<usize> = 24..=1460;
const LINES_BYTES_MAX: usize = 256;

/// Where connections begin for a while.
#[derive(Debug, Clone, Copy)]
pub struct StandingChoice<'a> {
    /// So long.
    pub until: Instant,
    /// Whose they are.
    pub home: ServerId,
    /// So many at the most.
    pub limit: u32,
    /// Which nodes' workers have them, in turns; of more than [`CHOICE_TURNS`] the first ones.
    pub holders: &'a [ServerId],
    /// Whose turn it is, counted on from one choice to the next.
    pub first: u32,
    /// They aren't leat: their connections are in nobody's books.
    pub are_foreign: bool,
    /// And each of their requests is looked at.
    pub are_watched: bool,
}

/// A connection that has begun by a standing choice.
#[derive(Debug)]
pub struct Begun {
    /// As it would have come.
    pub arrival: Arrival,
    /// Who has it.
    pub holder: ServerId,
    /// What was chosen for.
    pub content: u64,
}

/// A dispatcher's.
pub(super) struct Choices {
    pub(super) key: CookieKey,
    map: Mutex<HashMap<MapData, u64, RawChoice>>,
    begun: Mutex<Unread>,
}

struct Unread {
    ring: RingBuf<MapData>,
    /// Read for other workers.
    of: BTreeMap<ServerId, VecDeque<Begun>>,
}

impl Choices {
    pub(super) fn new(programs: &mut Programs, key: CookieKey) -> Result<Choices> {
        let doing = || "maps of standing choices".to_owned();
        let ring = RingBuf::try_from(programs.map("begun")?).doing(doing)?;
        Ok(Choices {
            key,
            map: Mutex::new(HashMap::try_from(programs.map("choices")?).doing(doing)?),
            begun: Mutex::new(Unread { ring, of: BTreeMap::new() }),
        })
    }

    /// What a first packet is for; none where nothing can be chosen before.
    pub(super) fn content(&self, vip: SocketAddr, payload: &[u8]) -> Option<u64> {
        let lines = lines(payload)?;
        let [first, second] = self.key.raw().halves;
        let mut hasher = SipHasher24::new_with_keys(first, second);
        hasher.write(&raw_ip(vip.ip()));
        hasher.write(&u64::from(u16::from_ne_bytes(raw_port(vip))).to_ne_bytes());
        hasher.write(lines);
        Some(hasher.finish())
    }

    pub(super) fn set(&self, content: u64, choice: &StandingChoice<'_>) -> Result<()> {
        let mut holders = [0; CHOICE_TURNS];
        for (turn, holder) in holders.iter_mut().zip(choice.holders) {
            *turn = holder.0;
        }
        let turns = choice.holders.len().min(CHOICE_TURNS) as u32;
        let flags = match (choice.are_foreign, choice.are_watched) {
            (true, true) => FLOW_FOREIGN | FLOW_WATCHED,
            (true, false) => FLOW_FOREIGN,
            (false, _) => 0,
        };
        let raw = RawChoice {
            until_ns: choice.until.ns,
            content,
            home: choice.home.0,
            limit: if turns == 0 { 0 } else { choice.limit },
            first: choice.first % turns.max(1),
            turns: turns.max(1),
            flags: flags.into(),
            holders,
            ..RawChoice::default()
        };
        lock(&self.map).insert(content, raw, 0).doing(|| "a standing choice".to_owned())
    }

    /// The next of a home's that has begun.
    pub(super) fn poll(&self, home: ServerId) -> Option<Begun> {
        let mut unread = lock(&self.begun);
        let Unread { ring, of } = &mut *unread;
        // All of them: who comes later must find its own, read or not.
        while let Some(record) = ring.next() {
            if let Some((home, begun)) = read(&record) {
                of.entry(home).or_default().push_back(begun);
            }
        }
        of.get_mut(&home)?.pop_front()
    }
}

/// The request's line and the host's, without the end of that, of a payload that is a whole request without a body.
fn lines(payload: &[u8]) -> Option<&[u8]> {
    let is_whole = payload.starts_with(b"GET ") && payload.ends_with(b"\r\n\r\n");
    if !is_whole || !REQUEST_BYTES.contains(&payload.len()) {
        return None;
    }
    let mut ends = memchr::memchr_iter(b'\r', &payload[..LINES_BYTES_MAX.min(payload.len())]);
    let (line_end, host_end) = (ends.next()?, ends.next()?);
    let host = payload[line_end..host_end].strip_prefix(b"\r\n")?;
    let is_host = host.get(..5)?.eq_ignore_ascii_case(b"host:");
    (is_host && host_end <= payload.len() - 4).then(|| &payload[..host_end])
}

/// Whose it is, and what a record says.
fn read(record: &[u8]) -> Option<(ServerId, Begun)> {
    let (raw, payload) = record.split_at_checked(BEGUN_BYTES)?;
    let raw = RawBegun::read(raw)?;
    let payload = payload.get(..raw.bytes as usize)?;
    let home = ServerId(raw.home);
    let RawBegun { sequence, acknowledged, timestamp, echo, .. } = raw;
    let window = u16::try_from(raw.window).ok()?;
    let heard = Heard { client_next: sequence, acknowledged, window, timestamp, ..Heard::last(acknowledged, sequence) };
    let flow = Flow {
        id: FlowId { home, serial: raw.serial },
        holder: ServerId(raw.holder),
        generation: Generation::BORN,
        held: false,
        born: false,
        own: false,
        foreign: raw.flags & u16::from(FLOW_FOREIGN) != 0,
        client_fin: false,
        node_closed: false,
        reset: false,
        cut: false,
        heard,
        repeats: raw.repeats as u8,
        watched: raw.flags & u16::from(FLOW_WATCHED) != 0,
        watch: Watch::default(),
    };
    let stamps = Some((timestamp, echo));
    let first = Segment {
        sequence,
        acknowledged,
        window,
        stamps,
        acknowledges: true,
        has_gaps: false,
        has_fin: false,
        payload,
    };
    let arrival = Arrival::new(raw.key.key(), flow, &first);
    Some((home, Begun { arrival, holder: ServerId(raw.holder), content: raw.content }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_surely_for_the_same_has_the_same_lines() {
        let of = |payload: &'static str| lines(payload.as_bytes()).map(|lines| std::str::from_utf8(lines).unwrap());
        let plain = Some("GET /a HTTP/1.1\r\nHost: b");
        assert_eq!(of("GET /a HTTP/1.1\r\nHost: b\r\n\r\n"), plain);
        assert_eq!(of("GET /a HTTP/1.1\r\nHost: b\r\nCookie: c\r\nX: y\r\n\r\n"), plain);
        assert_eq!(of("GET /a HTTP/1.1\r\nhOST:b\r\n\r\n"), Some("GET /a HTTP/1.1\r\nhOST:b"));
        for other in [
            "GET /a HTTP/1.1\r\nHost: b\r\n",
            "GET /a HTTP/1.1\r\nX: y\r\nHost: b\r\n\r\n",
            "HEAD /a HTTP/1.1\r\nHost: b\r\n\r\n",
            "GET /a HTTP/1.1\nHost: b\r\n\r\n",
            "GET /a HTTP/1.1\r\nHost: bbbbbbb",
            "GET /a HTTP/1.1\r\n\r\nHost: b\r\n",
            "GET /aaaaaaaaaaaaaaaaaaaaaaaa",
            "\r\n\r\n",
            "",
        ] {
            assert_eq!(of(other), None, "{other:?}");
        }
        let long = format!("GET /{} HTTP/1.1\r\nHost: b\r\n\r\n", "a".repeat(LINES_BYTES_MAX));
        assert_eq!(lines(long.as_bytes()), None);
    }
}
