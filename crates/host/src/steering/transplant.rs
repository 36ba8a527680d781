//! Connections at servers that aren't leat, and what their clients say next: as it waits here, and made anew for another server, whose kernel makes the connection
//! of it (`programs/planted.h`). Where it belongs is decided elsewhere. `docs/decisions/0033-transplants.md` has the reasons.

use std::hash::Hasher;
use std::net::IpAddr;

use leat_logic::handoff::WindowScale;
use siphasher::sip::SipHasher24;

use super::born::{Arrival, CookieKey, NO_WINDOW_SCALE, OPTIONS_SPAN_MS, Options, Segment};
use super::flows::{Flow, FlowKey, Heard};
use super::held::ETHERNET;
use super::layout::{
    PLANTING_GOES_ON, PLANTING_HERE, PLANTING_KIND, PLANTING_NUMBER, PLANTING_SACK, PLANTING_TIMESTAMPS, raw_ip,
    raw_port,
};
use crate::tap::OFFLOADS;

/// The payload of a packet that's made here: with all headers it's within what every link takes.
const PAYLOAD_BYTES_MAX: usize = 1160;

const PLANTING_BYTES: usize = 20;
const STAMPS_BYTES: usize = 12;
const TCP: u8 = 6;
const PUSH_AND_ACK: u8 = 0x18;
const RESET_AND_ACK: u8 = 0x14;

/// What a client says next on a connection that is at a server which isn't leat.
#[derive(Debug)]
pub struct Next {
    /// As if the connection began with it: as much as has come in order, from where its last request ended.
    pub arrival: Arrival,
    /// How it came here.
    ethernet: [u8; ETHERNET],
}

impl Next {
    /// What waits of a flow, by its frames; none where its beginning isn't among them.
    pub(super) fn read(key: FlowKey, flow: Flow, frames: &[Box<[u8]>]) -> Option<Next> {
        let mut segments: Vec<Segment<'_>> =
            frames.iter().filter_map(|frame| Segment::read(frame.get(OFFLOADS..)?)).collect();
        segments.retain(|segment| !segment.payload.is_empty() || segment.has_fin);
        segments.sort_by_key(|segment| segment.sequence.wrapping_sub(flow.watch.looked_to).cast_signed());
        // What was made anew is sent again by its client from where it begins, which isn't known any more.
        let begins = |segment: &Segment<'_>| if flow.is_planted() { segment.sequence } else { flow.watch.looked_to };
        let has_new = |segment: &Segment<'_>| segment.after(begins(segment)).is_some_and(|new| !new.payload.is_empty());
        let place = segments.iter().position(has_new)?;
        let first = segments[place].after(begins(&segments[place]))?;
        let arrival = Arrival::new(key, flow, &first);
        let mut next = Next { arrival, ethernet: *frames.first()?.get(OFFLOADS..)?.first_chunk()? };
        for segment in &segments[place + 1..] {
            if let Some(more) = segment.after(next.end()) {
                next.arrival.payload.extend_from_slice(more.payload);
                next.arrival.has_fin |= more.has_fin;
            }
        }
        Some(next)
    }

    /// The sequence number behind what waits.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.sequence().wrapping_add(self.arrival.payload.len() as u32)
    }

    /// The one of its first byte: all that the client has said before is its holder's.
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.arrival.sequence
    }

    /// What the client has of what was said to it: so much is sure to have been sent.
    #[must_use]
    pub fn acknowledged(&self) -> u32 {
        self.arrival.acknowledged
    }

    /// What the client has said since, by its connection's entry: it acknowledges replies before those to what waits.
    pub fn hear(&mut self, flow: &Flow) {
        let Arrival { acknowledged, window, flow: own, .. } = &mut self.arrival;
        if flow.id == own.id && flow.heard.acknowledged.wrapping_sub(*acknowledged).cast_signed() > 0 {
            (*acknowledged, *window) = (flow.heard.acknowledged, flow.heard.window);
        }
    }

    /// Its last server may have told the client more of its clock than that echoed here: the next one goes on from there.
    pub fn was_shown(&mut self, clock: u32) {
        if let Some((_, echo)) = &mut self.arrival.stamps
            && clock.wrapping_sub(*echo).cast_signed() > 0
        {
            *echo = clock;
        }
    }

    pub(super) fn heard(&self) -> Heard {
        let Arrival { window, stamps, .. } = self.arrival;
        let timestamp = stamps.map_or(0, |(own, _)| own);
        Heard { window, timestamp, ..Heard::last(self.acknowledged(), self.sequence()) }
    }

    /// The connection as the next server is to have it.
    pub(super) fn planting(&self) -> Planting {
        let &Arrival { key, ref flow, sequence, acknowledged, window, stamps, .. } = &self.arrival;
        let options = Options::of(flow.watch.options.into(), key.vip.is_ipv4(), flow.watch.scale);
        Planting { key, sequence, acknowledged, window, stamps, options, ethernet: self.ethernet }
    }
}

/// A connection between two requests, of which nothing is under way, as another server's kernel can make it.
pub(super) struct Planting {
    pub(super) key: FlowKey,
    pub(super) sequence: u32,
    pub(super) acknowledged: u32,
    /// As it stands in a segment.
    pub(super) window: u16,
    pub(super) stamps: Option<(u32, u32)>,
    pub(super) options: Options,
    pub(super) ethernet: [u8; ETHERNET],
}

impl Planting {
    /// The client's packets, with what it says, for a node's server, or for the listener here.
    pub(super) fn frames(&self, payload: &[u8], key: CookieKey, is_here: bool) -> Vec<Box<[u8]>> {
        // Neither before any cookie that was made until now nor after any that's made from now on: their lowest bits aren't of the time.
        let made = (crate::clock::last_tick().ns / 1_000_000) as u32 | (OPTIONS_SPAN_MS - 1);
        let pieces = payload.chunks(PAYLOAD_BYTES_MAX).enumerate();
        pieces.map(|(place, piece)| self.frame(place * PAYLOAD_BYTES_MAX, piece, key, (is_here, made))).collect()
    }

    fn frame(&self, at: usize, payload: &[u8], key: CookieKey, (is_here, made): (bool, u32)) -> Box<[u8]> {
        let sequence = self.sequence.wrapping_add(at as u32);
        let scale = |scale: u8| scale & 15;
        let scales = match self.options.window_scale {
            Some(WindowScale { send, receive }) => scale(send) << 4 | scale(receive),
            None => (NO_WINDOW_SCALE as u8) << 4,
        };
        let terms = if self.options.sack { PLANTING_SACK } else { 0 }
            | if self.stamps.is_some() { PLANTING_TIMESTAMPS } else { 0 }
            | if at > 0 { PLANTING_GOES_ON } else { 0 }
            | if is_here { PLANTING_HERE } else { 0 };
        let (own, echo) = self.stamps.unwrap_or_default();
        // As `struct planting_text` in `programs/planted.h`, and what is echoed.
        let FlowKey { client, vip } = self.key;
        let mut text = [raw_ip(client.ip()), raw_ip(vip.ip())].concat();
        text.extend([raw_port(client), raw_port(vip)].concat());
        text.extend([sequence, self.acknowledged, made].map(u32::to_be_bytes).concat());
        text.extend(self.options.mss.to_be_bytes());
        text.extend([scales, terms]);
        text.extend([own, echo].map(u32::to_be_bytes).concat());
        let [first, second] = key.raw().halves;
        let mut hasher = SipHasher24::new_with_keys(first, second);
        hasher.write(&text);

        let mut options = vec![PLANTING_KIND, PLANTING_BYTES as u8];
        options.extend(PLANTING_NUMBER.to_be_bytes());
        options.extend(made.to_be_bytes());
        options.extend(self.options.mss.to_be_bytes());
        options.extend([scales, terms]);
        options.extend(hasher.finish().to_le_bytes());
        if let Some(stamps) = self.stamps {
            options.extend(stamps_option(stamps));
        }
        debug_assert!(options.len() <= PLANTING_BYTES + STAMPS_BYTES);
        self.way().segment((sequence, self.acknowledged), PUSH_AND_ACK, &options, payload)
    }

    /// What ends the connection at the server that has it: a reset of its client's, of which that server's kernel tells nobody.
    pub(super) fn reset(&self) -> Box<[u8]> {
        self.way().segment((self.sequence, self.acknowledged), RESET_AND_ACK, &[], &[])
    }

    fn way(&self) -> Way {
        Way { key: self.key, window: self.window, ethernet: self.ethernet }
    }
}

/// How a client's packets come here, and the window that it tells.
struct Way {
    key: FlowKey,
    window: u16,
    ethernet: [u8; ETHERNET],
}

impl Way {
    /// A segment from a client to a VIP, as a tap has it.
    fn segment(&self, (sequence, acknowledged): (u32, u32), flags: u8, options: &[u8], payload: &[u8]) -> Box<[u8]> {
        let FlowKey { client, vip } = self.key;
        let header = 20 + options.len();
        let mut tcp = [client.port().to_be_bytes(), vip.port().to_be_bytes()].concat();
        tcp.extend([sequence, acknowledged].map(u32::to_be_bytes).concat());
        tcp.extend([(header as u8 / 4) << 4, flags]);
        tcp.extend(self.window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(options);
        tcp.extend(payload);
        let mut frame = vec![0; OFFLOADS];
        frame.extend(self.ethernet);
        match (client.ip().to_canonical(), vip.ip().to_canonical()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let addresses = [from.octets(), to.octets()].concat();
                let pseudo = [&addresses[..], &[0, TCP], &(tcp.len() as u16).to_be_bytes()].concat();
                let sum = checksum([&pseudo, &tcp]);
                tcp[16..18].copy_from_slice(&sum.to_be_bytes());
                let length = (20 + tcp.len()) as u16;
                let mut ip =
                    [&[0x45, 0][..], &length.to_be_bytes(), &[0, 0, 0x40, 0, 64, TCP, 0, 0], &addresses].concat();
                let sum = checksum([&ip, &[]]);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend(ip);
            }
            (from, to) => {
                let addresses = [raw_ip(from), raw_ip(to)].concat();
                let pseudo = [&addresses[..], &(tcp.len() as u32).to_be_bytes(), &[0, 0, 0, TCP]].concat();
                let sum = checksum([&pseudo, &tcp]);
                tcp[16..18].copy_from_slice(&sum.to_be_bytes());
                frame.extend([0x60, 0, 0, 0]);
                frame.extend((tcp.len() as u16).to_be_bytes());
                frame.extend([TCP, 64]);
                frame.extend(addresses);
            }
        }
        frame.extend(tcp);
        frame.into()
    }
}

/// What a frame says before a sequence number that is in it, as packets of its client's own.
pub(super) fn said_before(key: FlowKey, frame: &[u8], sequence: u32) -> Vec<Box<[u8]>> {
    let Some(frame) = frame.get(OFFLOADS..) else { return Vec::new() };
    let said = Segment::read(frame).filter(|segment| segment.acknowledges);
    let said = said.and_then(|segment| segment.before(sequence));
    let (Some(said), Some(&ethernet)) = (said, frame.first_chunk()) else { return Vec::new() };
    let way = Way { key, window: said.window, ethernet };
    let options = said.stamps.map_or(Vec::new(), stamps_option);
    let pieces = said.payload.chunks(PAYLOAD_BYTES_MAX).enumerate();
    let packet = |(place, piece)| {
        let at = said.sequence.wrapping_add((place * PAYLOAD_BYTES_MAX) as u32);
        way.segment((at, said.acknowledged), PUSH_AND_ACK, &options, piece)
    };
    pieces.map(packet).collect()
}

/// A timestamp option, on a whole word.
fn stamps_option((own, echo): (u32, u32)) -> Vec<u8> {
    [&[1, 1, 8, 10][..], &own.to_be_bytes(), &echo.to_be_bytes()].concat()
}

/// The Internet checksum of two pieces (RFC 1071); the first has whole words.
fn checksum(pieces: [&[u8]; 2]) -> u16 {
    let words = pieces.into_iter().flat_map(|piece| piece.chunks(2));
    let sum: u32 =
        words.map(|word| u32::from(u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or_default()]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}
