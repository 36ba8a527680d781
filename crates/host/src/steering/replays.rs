//! Connections of a server that isn't leat whose handshake was replayed (`programs/replay.h`), as the kernel couldn't be handed them: each has an entry by which its
//! packets are translated. Which of them have ended is found out here.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use aya::maps::{HashMap, Map, MapData, MapError};
use leat_logic::time::Instant;

use super::attach::Programs;
use super::batch::{self, Place};
use super::flows::FlowKey;
use super::layout::{REPLAY_BOTH_END, RawKey, RawReplay};
use super::{Doing, Error, Result};
use crate::connections;

/// After both goodbyes, one whose acknowledgement was lost may come again. Where a dispatcher knows nothing of the server's, it keeps packets coming for
/// as long after its client's.
const OVER: Duration = Duration::from_secs(15);
/// Without a word from its client: then the kernel is asked whether there is such a connection.
const SILENT: Duration = Duration::from_secs(60);
/// So many entries are read at a time.
const RUN: u32 = 1024;

/// A node's.
pub(super) struct Replays {
    entries: HashMap<MapData, RawKey, RawReplay>,
    descriptor: OwnedFd,
}

impl Replays {
    pub(super) fn new(programs: &mut Programs) -> Result<Replays> {
        let doing = || "map of replayed handshakes".to_owned();
        let map = programs.map("replays")?;
        let Map::HashMap(data) = &map else {
            return Err(Error::Kernel { doing: doing(), reason: "it's of another kind".to_owned() });
        };
        let descriptor = data.fd().as_fd().try_clone_to_owned().doing(doing)?;
        Ok(Replays { entries: HashMap::try_from(map).doing(doing)?, descriptor })
    }

    /// Deletes what is over by the monotonic clock. Returns how many entries are left.
    pub(super) fn sweep(&mut self, now: Instant) -> Result<usize> {
        let (mut from, mut left): (Option<Place>, _) = (None, 0);
        loop {
            let doing = || "reading entries of replayed handshakes".to_owned();
            let (entries, next) = batch::read::<RawReplay>(self.descriptor.as_fd(), from, RUN).doing(doing)?;
            for (key, seen) in entries {
                left += 1;
                if is_over(&key, &seen, now.ns) && self.is_still(&key, &seen)? {
                    self.entries.remove(&key).doing(|| "deleting a replayed handshake".to_owned())?;
                    left -= 1;
                }
            }
            if next.is_none() {
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
    pub(super) fn put(&mut self, key: FlowKey, raw: RawReplay) {
        self.entries.insert(key.raw(), raw, 0).unwrap();
    }
}

fn is_over(key: &RawKey, replay: &RawReplay, now_ns: u64) -> bool {
    let quiet = Duration::from_nanos(now_ns.saturating_sub(replay.seen_ns));
    if replay.ends & REPLAY_BOTH_END == REPLAY_BOTH_END || replay.is_answered == 0 {
        return quiet >= OVER;
    }
    let FlowKey { client, vip } = key.key();
    // Rather too many than one too few.
    quiet >= SILENT && !connections::is_there(vip, client).unwrap_or(true)
}
