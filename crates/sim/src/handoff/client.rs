//! Clients: what they ask for and when, and what they make of each byte that comes.

use leat_logic::handoff::{FlowId, ServerId};

use crate::agenda::{MILLISECOND, SECOND};
use crate::random::Random;

/// Every request is as long as this, so that the count of bytes tells the count of requests.
pub(super) const REQUEST_BYTES: u64 = 32;
/// Every reply's head.
pub(super) const HEAD_BYTES: u64 = 16;
/// What a client takes at a time.
pub(super) const WINDOW_BYTES: u64 = 2_000;

/// One request of a client.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// Bytes of the reply, with its head.
    pub(super) length: u64,
    /// The server that should answer.
    pub(super) wanted: ServerId,
    /// Before it's sent: with zero, together with the one before.
    pause_ns: u64,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) flow: FlowId,
    pub(super) asked: Vec<Asked>,
    /// Bytes sent, and acknowledged by some server.
    pub(super) sent: u64,
    pub(super) acknowledged: u64,
    /// Bytes of the server's stream, all in order.
    pub(super) received: u64,
    /// What the head and the content of the reply that is coming look like.
    head: Option<u8>,
    version: Option<u8>,
    next_request_ns: u64,
    /// Sends nothing any more, and says nothing of it.
    pub(super) vanishes_ns: u64,
    pub(super) is_over: bool,
    /// A reset came before everything had.
    pub(super) was_cut: bool,
}

/// What a client sends, with which it says all that it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) flow: FlowId,
    /// Data: from the first byte that nobody has acknowledged to the last.
    pub(super) data: (u64, u64),
    pub(super) acknowledgement: u64,
    pub(super) is_end: bool,
}

/// What a server's byte must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Head,
    Content(u64),
}

impl Client {
    pub(super) fn new(random: &mut Random, flow: FlowId, servers: u64, now_ns: u64) -> Client {
        let count = random.between(1, 6);
        let ask = |random: &mut Random| Asked {
            length: HEAD_BYTES + *random.pick(&[0, 40, 700, 3_000, 20_000, 60_000]),
            wanted: ServerId(random.below(servers) as u32),
            pause_ns: *random.pick(&[0, MILLISECOND, 200 * MILLISECOND, 3 * SECOND]),
        };
        Client {
            flow,
            asked: (0..count).map(|_| ask(random)).collect(),
            sent: 0,
            acknowledged: 0,
            received: 0,
            head: None,
            version: None,
            next_request_ns: now_ns,
            vanishes_ns: if random.percent(4) { now_ns + random.below(5 * SECOND) } else { u64::MAX },
            is_over: false,
            was_cut: false,
        }
    }

    /// The reply that a byte of the server's stream belongs to (from 1), its first byte, and the one behind its last.
    pub(super) fn reply_at(&self, position: u64) -> Option<(u64, u64, u64)> {
        let mut start = 0;
        for (index, asked) in self.asked.iter().enumerate() {
            if position < start + asked.length {
                return Some((index as u64 + 1, start, start + asked.length));
            }
            start += asked.length;
        }
        None
    }

    /// Where the reply to a request begins and ends.
    pub(super) fn reply(&self, number: u64) -> (u64, u64) {
        let start = self.asked.iter().take(number as usize - 1).map(|asked| asked.length).sum::<u64>();
        (start, start + self.asked[number as usize - 1].length)
    }

    pub(super) fn total(&self) -> u64 {
        self.asked.iter().map(|asked| asked.length).sum()
    }

    pub(super) fn has_everything(&self) -> bool {
        self.received == self.total()
    }

    /// It asks for all at once.
    pub(super) fn pipeline(&mut self) {
        self.asked.iter_mut().for_each(|asked| asked.pause_ns = 0);
    }

    /// What it sends now; asks for the next when its time has come.
    pub(super) fn speak(&mut self, now_ns: u64) -> Option<Packet> {
        if self.is_over || now_ns >= self.vanishes_ns {
            return None;
        }
        while let Some(asked) = self.asked.get((self.sent / REQUEST_BYTES) as usize) {
            // The next is asked for when its time has come: with others under way only if it is to be pipelined.
            let (_, end) = if self.sent == 0 { (0, 0) } else { self.reply(self.sent / REQUEST_BYTES) };
            let is_time = now_ns >= self.next_request_ns + asked.pause_ns && self.received >= end;
            if !is_time && (asked.pause_ns > 0 || self.sent == 0) {
                break;
            }
            self.sent += REQUEST_BYTES;
            self.next_request_ns = now_ns;
        }
        Some(Packet {
            flow: self.flow,
            data: (self.acknowledged, self.sent),
            acknowledgement: self.received,
            is_end: self.has_everything(),
        })
    }

    /// Bytes from a server. An error says what is wrong with them.
    pub(super) fn receive(&mut self, start: u64, bytes: &[u8], acknowledged: u64) -> Result<(), String> {
        self.acknowledged = self.acknowledged.max(acknowledged.min(self.sent));
        if start > self.received {
            return Ok(());
        }
        for &byte in bytes.iter().skip((self.received - start) as usize) {
            self.take(byte)?;
        }
        Ok(())
    }

    fn take(&mut self, byte: u8) -> Result<(), String> {
        let position = self.received;
        let Some((number, start, end)) = self.reply_at(position) else {
            return Err(format!("{}: more bytes than there are", self.flow));
        };
        if number * REQUEST_BYTES > self.sent {
            return Err(format!("{}: an answer to request {number}, which wasn't sent", self.flow));
        }
        let place =
            if position < start + HEAD_BYTES { Place::Head } else { Place::Content(position - start - HEAD_BYTES) };
        let (what, expected, found) = match place {
            Place::Head => ("head", *self.head.get_or_insert(byte), byte),
            Place::Content(offset) => {
                let version = version_of(self.flow, number, offset, byte);
                ("content", *self.version.get_or_insert(version), version)
            }
        };
        if expected != found {
            return Err(format!(
                "{}: byte {position}, {what} of reply {number}: {found} instead of {expected}",
                self.flow
            ));
        }
        self.received += 1;
        if self.received == end {
            (self.head, self.version) = (None, None);
        }
        Ok(())
    }

    /// The reply that is coming may begin anew on another server, which may have other content.
    pub(super) fn expects_another(&mut self) {
        (self.head, self.version) = (None, None);
    }

    pub(super) fn handle_reset(&mut self) {
        if !self.is_over {
            self.is_over = true;
            self.was_cut = !self.has_everything();
        }
    }
}

/// A byte of a reply's content, of one version.
pub(super) fn content_byte(flow: FlowId, number: u64, offset: u64, version: u8) -> u8 {
    mask(flow, number, offset).wrapping_add(version)
}

fn version_of(flow: FlowId, number: u64, offset: u64, byte: u8) -> u8 {
    byte.wrapping_sub(mask(flow, number, offset))
}

fn mask(flow: FlowId, number: u64, offset: u64) -> u8 {
    let mixed = (flow.serial * 1_000_003 + number * 10_007 + offset).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8
}
