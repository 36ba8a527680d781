//! Where the next request of a kept connection belongs: what a home answers, how long a node goes by it, and what nodes tell homes of what they
//! have seen, so that the answers get better. Which node it is, and by which way, is `dispatch`'s to say.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::ServerId;
use super::limits::{HEAD_BYTES_MAX, PLACES_MAX, SAMPLES_MAX};
use super::wire::{DecodeError, Reader, put_bytes, put_number};
use crate::dispatch::ContentKey;
use crate::time::Instant;

/// What is to be done with the request in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum There {
    /// The node that has the connection serves it.
    Stay,
    /// It asks that server and passes the reply on.
    Fetch(ServerId),
    /// It gives the connection back with the request: it goes on where the content is.
    Move,
    /// Nobody serves it at the moment: it's refused.
    Nowhere,
}

/// A request in hand, and what its node knows that matters for its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The request's number on its connection.
    pub number: u32,
    /// The request's head, as it came.
    pub head: Bytes,
    /// The connection can't be given back: its client has ended its side, say.
    pub is_stuck: bool,
}

/// What nodes go by until they are told otherwise. With each, what was answered before is forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Nodes ask for content that they haven't been given; otherwise they serve whatever comes.
    pub is_asked: bool,
    /// How long an answer holds, in milliseconds.
    pub keep_ms: u32,
    /// Connections that begin at nodes are lent, as those are that a connection server gives them.
    pub are_births_lent: bool,
    /// Nodes tell of every reply as it begins, as they do of those of lent connections; otherwise of long ones.
    pub are_all_told: bool,
}

impl Rules {
    /// Before a home has said anything. A connection that begins may be there sooner than that: its home may want to be told of every reply.
    pub const UNTOLD: Rules = Rules { is_asked: false, keep_ms: 0, are_births_lent: false, are_all_told: true };
}

/// Something that a node has seen and its home would like to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// A reply had so many bytes.
    Reply {
        /// Of which content.
        content: ContentKey,
        /// Content bytes.
        bytes: u64,
    },
    /// A piece of work, by its place in `dispatch::cost::Work::ALL`, took so much processor time.
    Work {
        /// Which.
        work: u8,
        /// Of the reply that it was for; 0 for work that is done once.
        reply_bytes: u64,
        /// Nanoseconds.
        cpu_ns: u64,
    },
    /// A connection has ended after so many requests.
    Connection {
        /// On whichever node.
        requests: u32,
    },
}

/// Of an answer, a bit: nobody serves it. Who doesn't know that takes the answer as it stands, and serves the request.
const NOWHERE: u8 = 1;

/// The same of a question: its connection can't be given back.
const STUCK: u8 = 1;

impl There {
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        let (code, server) = match self {
            There::Stay | There::Nowhere => (0, ServerId(0)),
            There::Fetch(server) => (1, server),
            There::Move => (2, ServerId(0)),
        };
        out.push(code);
        put_number(out, u64::from(server.0));
        out.push(if self == There::Nowhere { NOWHERE } else { 0 });
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<There, DecodeError> {
        let code = reader.byte("an answer")?;
        let server = ServerId(reader.number_u32("an answer's server")?);
        let bits = if reader.is_empty() { 0 } else { reader.byte("an answer")? };
        match code {
            0 if bits & NOWHERE != 0 => Ok(There::Nowhere),
            0 => Ok(There::Stay),
            1 => Ok(There::Fetch(server)),
            2 => Ok(There::Move),
            found => Err(DecodeError::Unknown { what: "an answer", found: u64::from(found) }),
        }
    }
}

impl Question {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_number(out, u64::from(self.number));
        put_bytes(out, &self.head);
        // Once the round trip to the client.
        put_number(out, 0);
        out.push(if self.is_stuck { STUCK } else { 0 });
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Question, DecodeError> {
        let number = reader.number_u32("the request's number")?;
        let head = Bytes::copy_from_slice(reader.bytes(HEAD_BYTES_MAX, "the head")?);
        if !reader.is_empty() {
            reader.number("the round trip")?;
        }
        let bits = if reader.is_empty() { 0 } else { reader.byte("the question")? };
        Ok(Question { number, head, is_stuck: bits & STUCK != 0 })
    }
}

impl Rules {
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_asked) | u8::from(self.are_births_lent) << 1 | u8::from(self.are_all_told) << 2);
        put_number(out, u64::from(self.keep_ms));
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Rules, DecodeError> {
        let flags = reader.byte("the rules")?;
        let keep_ms = reader.number_u32("the rules")?;
        Ok(Rules { is_asked: flags & 1 != 0, keep_ms, are_births_lent: flags & 2 != 0, are_all_told: flags & 4 != 0 })
    }
}

/// As they travel: a count, then for each its kind (a byte) and two numbers or three.
pub(super) fn encode_samples(samples: &[Sample], out: &mut Vec<u8>) {
    put_number(out, samples.len() as u64);
    for sample in samples {
        match *sample {
            Sample::Reply { content, bytes } => {
                out.push(0);
                put_number(out, content.0);
                put_number(out, bytes);
            }
            Sample::Work { work, reply_bytes, cpu_ns } => {
                out.extend_from_slice(&[1, work]);
                put_number(out, reply_bytes);
                put_number(out, cpu_ns);
            }
            Sample::Connection { requests } => {
                out.push(2);
                put_number(out, u64::from(requests));
            }
        }
    }
}

pub(super) fn decode_samples(reader: &mut Reader<'_>) -> Result<Vec<Sample>, DecodeError> {
    let count = reader.number_up_to(SAMPLES_MAX as u64, "the number of samples")?;
    let mut samples = Vec::new();
    for _ in 0..count {
        samples.push(match reader.byte("a sample")? {
            0 => Sample::Reply { content: ContentKey(reader.number("a sample")?), bytes: reader.number("a sample")? },
            1 => Sample::Work {
                work: reader.byte("a sample")?,
                reply_bytes: reader.number("a sample")?,
                cpu_ns: reader.number("a sample")?,
            },
            2 => Sample::Connection { requests: reader.number_u32("a sample")? },
            found => return Err(DecodeError::Unknown { what: "a sample", found: u64::from(found) }),
        });
    }
    Ok(samples)
}

/// What a node has been told of contents: bounded, and each answer holds for the same time. An answer isn't prolonged by its use: the home hears
/// now and then of what is still asked for.
#[derive(Debug, Default)]
pub struct Places {
    all: BTreeMap<ContentKey, (Instant, There)>,
    /// In the order in which they end; one that was told anew is there twice.
    ends: VecDeque<(Instant, ContentKey)>,
    keep: Duration,
}

impl Places {
    /// Nothing is known any more; what comes holds for `keep`.
    pub fn begin(&mut self, keep: Duration) {
        *self = Places { keep, ..Places::default() };
    }

    /// Nothing is known any more: something of it was wrong.
    pub fn forget(&mut self) {
        self.begin(self.keep);
    }

    /// Remembers an answer.
    pub fn put(&mut self, content: ContentKey, there: There, now: Instant) {
        while let Some(&(end, oldest)) = self.ends.front()
            && (end <= now || self.ends.len() >= PLACES_MAX)
        {
            self.ends.pop_front();
            if self.all.get(&oldest).is_some_and(|(until, _)| *until == end) {
                self.all.remove(&oldest);
            }
        }
        if self.keep > Duration::ZERO {
            let end = now.after(self.keep);
            self.ends.push_back((end, content));
            self.all.insert(content, (end, there));
        }
    }

    /// What was answered, if that still holds.
    #[must_use]
    pub fn get(&self, content: ContentKey, now: Instant) -> Option<There> {
        self.all.get(&content).filter(|(end, _)| *end > now).map(|(_, there)| *there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant { ns: ms * 1_000_000 }
    }

    #[test]
    fn answers_hold_for_a_time_and_are_bounded() {
        let mut places = Places::default();
        places.put(ContentKey(1), There::Stay, at(0));
        assert_eq!(places.get(ContentKey(1), at(0)), None, "nothing holds before there are rules");
        places.begin(Duration::from_millis(10));
        places.put(ContentKey(1), There::Stay, at(0));
        places.put(ContentKey(2), There::Fetch(ServerId(3)), at(5));
        places.put(ContentKey(1), There::Move, at(6));
        assert_eq!(places.get(ContentKey(1), at(12)), Some(There::Move), "the later answer counts");
        assert_eq!(places.get(ContentKey(2), at(15)), None);
        for content in 0..2 * PLACES_MAX as u64 {
            places.put(ContentKey(content), There::Stay, at(20));
        }
        assert!(places.all.len() <= PLACES_MAX && places.ends.len() <= PLACES_MAX);
        places.begin(Duration::from_millis(10));
        assert_eq!(places.get(ContentKey(PLACES_MAX as u64), at(21)), None, "new rules, nothing known");
    }
}
