//! What was said last on connections of a server that isn't leat (`programs/replies.h`), by which it's known whether it has answered all that it was asked; and
//! which of them another server has been given.

use aya::maps::{Array, HashMap, MapData, MapError};

use super::attach::Programs;
use super::change::Marks;
use super::flows::FlowKey;
use super::layout::{MARK_GIVEN, MARK_KEPT, RawKey, RawReply};
use super::{Doing, Result};

/// The last reply of a connection, as far as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The sequence number behind the request.
    pub next: u32,
    /// The request's first bytes.
    pub request: [u8; 4],
    /// Of the reply's first byte.
    pub begin: u32,
    /// Behind the last one that was sent.
    pub end: u32,
    /// What the server's packets have said last of its clock; 0 without timestamps.
    pub shown: u32,
    /// The reply's first bytes: up to 1024 of its first packet.
    pub head: Vec<u8>,
    /// Its last ones: 8, or if it's shorter or one before its last packet was lost on the way, what is known of them.
    pub tail: Vec<u8>,
    /// Nothing of it was sent yet.
    pub is_awaited: bool,
    /// Which request it's the reply to isn't known: others came before they were due.
    pub is_muddled: bool,
    /// Another server has been given the connection.
    pub is_given: bool,
}

/// A node's.
pub(super) struct Replies {
    last: HashMap<MapData, RawKey, RawReply>,
    watching: Array<MapData, u32>,
    marks: Marks,
}

impl Replies {
    pub(super) fn new(programs: &mut Programs) -> Result<Replies> {
        Ok(Replies {
            last: HashMap::try_from(programs.map("replies")?).doing(|| "map of replies".to_owned())?,
            watching: Array::try_from(programs.map("watching")?).doing(|| "map of what is watched".to_owned())?,
            marks: Marks::new(programs)?,
        })
    }

    pub(super) fn watch(&mut self, is_watching: bool) -> Result<()> {
        self.watching.set(0, u32::from(is_watching), 0).doing(|| "map of what is watched".to_owned())
    }

    pub(super) fn last(&self, key: FlowKey) -> Result<Option<Reply>> {
        Ok(self.look_up(key)?.map(|raw| Reply {
            next: raw.next,
            request: raw.request,
            begin: raw.begin,
            end: raw.end,
            shown: raw.shown,
            head: raw.head.iter().take(raw.bytes.into()).copied().collect(),
            tail: raw.tail.iter().take(raw.tail_bytes.into()).copied().collect(),
            is_awaited: raw.is_awaited != 0,
            is_muddled: raw.is_muddled != 0,
            is_given: raw.is_given != 0,
        }))
    }

    pub(super) fn set_given(&self, key: FlowKey, is_given: bool) -> Result<()> {
        self.marks.set(key, if is_given { MARK_GIVEN } else { MARK_KEPT }, 0)
    }

    /// A connection whose client has said all up to `next`.
    #[cfg(test)]
    pub(super) fn begin(&mut self, key: FlowKey, next: u32) -> Result<()> {
        let raw = RawReply { next, ..RawReply::default() };
        self.last.insert(key.raw(), raw, 0).doing(|| "a reply".to_owned())
    }

    /// The reply to it is to begin there, behind one that ended so.
    #[cfg(test)]
    pub(super) fn await_reply(&mut self, key: FlowKey, begin: u32, tail: &[u8]) -> Result<()> {
        let mut raw = RawReply { end: begin, is_awaited: 1, tail_bytes: tail.len() as u16, ..RawReply::default() };
        raw.tail[..tail.len()].copy_from_slice(tail);
        self.last.insert(key.raw(), raw, 0).doing(|| "a reply".to_owned())
    }

    fn look_up(&self, key: FlowKey) -> Result<Option<RawReply>> {
        match self.last.get(&key.raw(), 0) {
            Ok(raw) => Ok(Some(raw)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(error).doing(|| "looking up a reply".to_owned()),
        }
    }
}
