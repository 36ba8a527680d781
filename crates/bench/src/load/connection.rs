//! One of the generator's connections: what it has asked for and how it receives.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use super::reply::{Fault, Progress, ReplyReader};
use crate::workload::mix::Mix;

/// A request without its whole reply.
#[derive(Clone, Copy)]
pub(super) struct Outstanding {
    pub(super) intended_ns: u64,
    pub(super) target: u32,
    /// Compare the body, not only its length.
    pub(super) verify: bool,
}

/// A reply that has just become complete.
pub(super) struct Answered {
    pub(super) request: Outstanding,
    /// The server will close.
    pub(super) close: bool,
    /// It says that the server has too much to do.
    pub(super) is_refusal: bool,
    /// By its content it's another server's than the one before it on this connection.
    pub(super) is_anothers: bool,
}

/// What the next receive should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// Up to this many bytes, to look at.
    Look { bytes: u32 },
    /// This many bytes of a body, unseen.
    Discard { bytes: u32 },
}

/// Replies up to this length are received in one piece.
pub(super) const WHOLE_REPLY_BYTES: u32 = 16 << 10;
/// Enough for any head that servers send.
const HEAD_BYTES: u32 = 1 << 10;
/// A shorter rest is cheaper to copy than to ask for apart.
const DISCARD_BYTES_MIN: u64 = 2 << 10;

#[derive(Default)]
pub(super) struct Connection {
    pub(super) socket: Option<OwnedFd>,
    /// Counts sockets, so that a completion meant for the one before is known.
    pub(super) generation: u32,
    pub(super) outstanding: VecDeque<Outstanding>,
    pub(super) reader: ReplyReader,
    /// Whose the last reply was that said so.
    pub(super) server: Option<u32>,
    /// Requests sent on this socket.
    pub(super) requests: u32,
    /// A receive is submitted.
    pub(super) armed: bool,
    /// Slots that become free when the server has closed.
    pub(super) slots_held: u32,
}

impl Connection {
    /// Reads replies out of `bytes` into `answered`.
    ///
    /// # Errors
    /// A reply that isn't what was asked for, or bytes that nobody asked for.
    pub(super) fn read(&mut self, mut bytes: &[u8], mix: &Mix, answered: &mut Vec<Answered>) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let request = *self.outstanding.front().ok_or(Fault::MalformedHead)?;
            let progress = self.reader.take(&mut bytes, mix.target(request.target), request.verify)?;
            self.note(progress, mix, answered);
        }
        Ok(())
    }

    /// Notes `count` bytes that were discarded.
    pub(super) fn discarded(&mut self, count: u64, mix: &Mix, answered: &mut Vec<Answered>) {
        let progress = self.reader.skip(count);
        self.note(progress, mix, answered);
    }

    fn note(&mut self, progress: Progress, mix: &Mix, answered: &mut Vec<Answered>) {
        if let Progress::Complete { close, is_refusal } = progress
            && let Some(request) = self.outstanding.pop_front()
        {
            let said = self.reader.server().filter(|_| mix.target(request.target).body.tells_servers_apart());
            let before = if said.is_some() { std::mem::replace(&mut self.server, said) } else { None };
            let is_anothers = before.is_some() && before != said;
            answered.push(Answered { request, close, is_refusal, is_anothers });
        }
    }

    /// What to receive next, one receive at a time.
    pub(super) fn want(&self, mix: &Mix) -> Want {
        let Some(request) = self.outstanding.front() else { return Want::Look { bytes: HEAD_BYTES } };
        match self.reader.body_left() {
            Some(left) if !request.verify && left >= DISCARD_BYTES_MIN => {
                Want::Discard { bytes: u32::try_from(left).unwrap_or(u32::MAX) }
            }
            Some(_) => Want::Look { bytes: WHOLE_REPLY_BYTES },
            None => {
                let whole = u64::from(WHOLE_REPLY_BYTES - HEAD_BYTES);
                let long = mix.target(request.target).body_bytes.is_none_or(|bytes| bytes > whole);
                Want::Look { bytes: if long && !request.verify { HEAD_BYTES } else { WHOLE_REPLY_BYTES } }
            }
        }
    }
}
