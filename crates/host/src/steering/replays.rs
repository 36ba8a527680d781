//! Connections of a server that isn't leat whose handshake was replayed (`programs/replay.h`), as the kernel couldn't be handed them: each has an entry by which its
//! packets are translated. Which of them have ended is found out here.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use aya::maps::{HashMap, Map, MapData, MapError};
use leat_logic::time::Instant;

use super::attach::Programs;
use super::batch::{self, Place};
use super::flows::FlowKey;
use super::layout::{REPLAY_BOTH_END, REPLAY_SETTLED, RawKey, RawReplay, VERSION};
use super::{Doing, Error, Result};
use crate::connections;

/// When nobody has anything to say any more, what was lost on its way may come again, as a client's goodbye whose acknowledgement was, and each time it does the
/// entry stays as long again. Nor is there anything to wait for where the kernel hasn't answered at once.
const OVER: Duration = Duration::from_secs(2);
/// After both goodbyes there may be more of a reply to come, as long as the client hasn't acknowledged the server's: then the kernel is asked. Where a dispatcher
/// knows nothing of the server's, it keeps packets coming for as long after its client's.
const HALF_OVER: Duration = Duration::from_secs(15);
/// Without a word from its client: then the kernel is asked whether there is such a connection.
const SILENT: Duration = Duration::from_secs(60);
/// So many entries are looked at in one call, and for so many of them the kernel is asked, some microseconds each: a worker has other things to do.
const RUN: u32 = 1024;
const ASKED_MAX: usize = 64;

/// A node's.
pub(super) struct Replays {
    entries: HashMap<MapData, RawKey, RawReplay>,
    descriptor: OwnedFd,
    /// So often all have been looked at.
    rounds: usize,
}

/// Whether an earlier process has left connections whose packets are translated, or what was known of them: other programs would cut them.
#[must_use]
pub fn has_replays_left(directory: &Path) -> bool {
    let map = MapData::from_pin(directory.join(VERSION).join("replays"));
    let entries = map.ok().and_then(|map| HashMap::<_, RawKey, RawReplay>::try_from(Map::HashMap(map)).ok());
    entries.is_some_and(|entries| entries.keys().next().is_some())
}

impl Replays {
    pub(super) fn new(programs: &mut Programs) -> Result<Replays> {
        let doing = || "map of replayed handshakes".to_owned();
        let map = programs.map("replays")?;
        let Map::HashMap(data) = &map else {
            return Err(Error::Kernel { doing: doing(), reason: "it's of another kind".to_owned() });
        };
        let descriptor = data.fd().as_fd().try_clone_to_owned().doing(doing)?;
        Ok(Replays { entries: HashMap::try_from(map).doing(doing)?, descriptor, rounds: 0 })
    }

    /// Deletes what is over by the monotonic clock. Some entries are looked at, from where the last call stopped; returns how many are left of these, and where
    /// to go on, nowhere when all have been seen.
    pub(super) fn sweep(&mut self, from: Option<Place>, now: Instant) -> Result<(u64, Option<Place>)> {
        let doing = || "reading entries of replayed handshakes".to_owned();
        let (entries, next) = batch::read::<RawReplay>(self.descriptor.as_fd(), from, RUN).doing(doing)?;
        let mut left = entries.len() as u64;
        let (mut over, mut silent) = (Vec::new(), Vec::new());
        for (key, seen) in entries {
            match look(&seen, now.ns) {
                Look::Lives => {}
                Look::IsOver => over.push((key, seen)),
                Look::IsSilent => silent.push((key, seen)),
            }
        }
        // Where there are more, each has its turn in one of the next rounds.
        let turns = silent.len().div_ceil(ASKED_MAX).max(1);
        over.extend(silent.into_iter().skip(self.rounds % turns).step_by(turns).filter(|(key, _)| is_gone(key)));
        for (key, seen) in over {
            if self.is_still(&key, &seen)? {
                self.delete(&key)?;
                left -= 1;
            }
        }
        if next.is_none() {
            self.rounds = self.rounds.wrapping_add(1);
        }
        Ok((left, next))
    }

    /// The program does it as well, where a listener doesn't take what was made for it.
    fn delete(&mut self, key: &RawKey) -> Result<()> {
        match self.entries.remove(key) {
            Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
            Err(error) => Err(error).doing(|| "deleting a replayed handshake".to_owned()),
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
    let is_silent = replay.ends & REPLAY_BOTH_END == REPLAY_BOTH_END && quiet >= HALF_OVER || quiet >= SILENT;
    match is_over {
        true if quiet >= OVER => Look::IsOver,
        false if is_silent => Look::IsSilent,
        _ => Look::Lives,
    }
}

/// Whether its kernel has a connection no more. Rather one that's kept too long than one too short.
fn is_gone(key: &RawKey) -> bool {
    let FlowKey { client, vip } = key.key();
    !connections::is_there(vip, client).unwrap_or(true)
}
