//! Connections of a server that isn't leat whose handshake was replayed (`programs/replay.h`), as the kernel couldn't be handed them: each has an entry by which its
//! packets are translated. Which of them have ended is found out here.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use aya::maps::{HashMap, Map, MapData, MapError};
use leat_logic::time::Instant;

use super::attach::Programs;
use super::batch::{self, Place};
use super::flows::FlowKey;
use super::layout::{REPLAY_BOTH_END, REPLAY_SETTLED, RawKey, RawReplay};
use super::{Doing, Error, Result};
use crate::connections;

/// After both goodbyes, one whose acknowledgement was lost may come again. Where a dispatcher knows nothing of the server's, it keeps packets coming for
/// as long after its client's. Until the client has acknowledged the server's, there may be more of a reply to come than that: the kernel is asked then.
const OVER: Duration = Duration::from_secs(15);
/// Without a word from its client: then the kernel is asked whether there is such a connection.
const SILENT: Duration = Duration::from_secs(60);
/// So many are asked for in one sweep, some microseconds each; the next one goes on with those behind them.
const ASKED_MAX: usize = 256;
/// So many entries are read at a time.
const RUN: u32 = 1024;

/// A node's.
pub(super) struct Replays {
    entries: HashMap<MapData, RawKey, RawReplay>,
    descriptor: OwnedFd,
    /// So many silent ones have been asked for since all were.
    asked: usize,
}

impl Replays {
    pub(super) fn new(programs: &mut Programs) -> Result<Replays> {
        let doing = || "map of replayed handshakes".to_owned();
        let map = programs.map("replays")?;
        let Map::HashMap(data) = &map else {
            return Err(Error::Kernel { doing: doing(), reason: "it's of another kind".to_owned() });
        };
        let descriptor = data.fd().as_fd().try_clone_to_owned().doing(doing)?;
        Ok(Replays { entries: HashMap::try_from(map).doing(doing)?, descriptor, asked: 0 })
    }

    /// Deletes what is over by the monotonic clock. Returns how many entries are left.
    pub(super) fn sweep(&mut self, now: Instant) -> Result<usize> {
        let (mut from, mut left): (Option<Place>, _) = (None, 0);
        let mut asking = Asking { skipped: self.asked, ..Asking::default() };
        loop {
            let doing = || "reading entries of replayed handshakes".to_owned();
            let (entries, next) = batch::read::<RawReplay>(self.descriptor.as_fd(), from, RUN).doing(doing)?;
            for (key, seen) in entries {
                left += 1;
                let is_over = match look(&seen, now.ns) {
                    Look::Lives => false,
                    Look::IsOver => true,
                    Look::IsSilent => asking.is_gone(&key),
                };
                if is_over && self.is_still(&key, &seen)? {
                    self.entries.remove(&key).doing(|| "deleting a replayed handshake".to_owned())?;
                    left -= 1;
                }
            }
            if next.is_none() {
                self.asked = if asking.is_cut_short { asking.lives } else { 0 };
                return Ok(left);
            }
            from = next;
        }
    }

    /// Its client may have said something meanwhile.
    fn is_still(&self, key: &RawKey, seen: &RawReplay) -> Result<bool> {
        match self.entries.get(key, 0) {
            Ok(now) => Ok(now.seen_ns == seen.seen_ns),
            Err(MapError::KeyNotFound) => Ok(false),
            Err(error) => Err(error).doing(|| "looking up a replayed handshake".to_owned()),
        }
    }

    #[cfg(test)]
    pub(super) fn ends(&self, key: FlowKey) -> u8 {
        self.entries.get(&key.raw(), 0).unwrap().ends
    }

    #[cfg(test)]
    pub(super) fn put(&mut self, key: FlowKey, raw: RawReplay) {
        self.entries.insert(key.raw(), raw, 0).unwrap();
    }
}

/// What an entry says by itself.
enum Look {
    Lives,
    IsOver,
    IsSilent,
}

fn look(replay: &RawReplay, now_ns: u64) -> Look {
    let quiet = Duration::from_nanos(now_ns.saturating_sub(replay.seen_ns));
    let is_over = replay.ends & REPLAY_SETTLED != 0 || replay.is_answered == 0;
    let is_silent = replay.ends & REPLAY_BOTH_END == REPLAY_BOTH_END && quiet >= OVER || quiet >= SILENT;
    match is_over {
        true if quiet >= OVER => Look::IsOver,
        false if is_silent => Look::IsSilent,
        _ => Look::Lives,
    }
}

/// Asks the kernel for silent ones, in one sweep.
#[derive(Default)]
struct Asking {
    /// So many at the beginning were asked for before, and lived.
    skipped: usize,
    /// So many live, as far as that's known by now.
    lives: usize,
    asked: usize,
    is_cut_short: bool,
}

impl Asking {
    /// Rather one that's kept too long than one too short.
    fn is_gone(&mut self, key: &RawKey) -> bool {
        if self.lives >= self.skipped {
            self.is_cut_short = self.asked == ASKED_MAX;
            if self.is_cut_short {
                return false;
            }
            self.asked += 1;
            let FlowKey { client, vip } = key.key();
            if !connections::is_there(vip, client).unwrap_or(true) {
                return true;
            }
        }
        self.lives += 1;
        false
    }
}
