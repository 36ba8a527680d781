//! What is known of a client whose connection's node has died: what it said last (`programs/kept.h`), and what it answers when it's asked what it has. What becomes
//! of the connection is decided elsewhere.

use aya::maps::{HashMap, MapData, MapError};

use super::attach::Programs;
use super::born::Segment;
use super::flows::FlowKey;
use super::layout::{KEPT_BYTES_MAX, RawKeptRequest, RawKey};
use super::{Doing, Result};
use crate::tap::OFFLOADS;

/// What a client says in answer to a segment from before what it has (RFC 9293, section 3.10.7.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    /// The first sequence number that it hasn't got.
    pub acknowledged: u32,
    /// Its window, unscaled.
    pub window: u16,
    /// It has something beyond that (RFC 2018).
    pub has_gaps: bool,
}

impl Said {
    /// The last of these frames that says anything of that.
    pub(super) fn last_of(frames: &[Box<[u8]>]) -> Option<Said> {
        let segments = frames.iter().rev().filter_map(|frame| Segment::read(frame.get(OFFLOADS..)?));
        let mut told = segments.filter(|segment| segment.acknowledges);
        told.next().map(|Segment { acknowledged, window, has_gaps, .. }| Said { acknowledged, window, has_gaps })
    }
}

/// What a client said last, or its beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// At most [`KEPT_BYTES_MAX`] of it.
    pub bytes: Vec<u8>,
    /// So many followed on them.
    pub more: u64,
}

/// The last packets of clients.
pub(super) struct KeptRequests(HashMap<MapData, RawKey, RawKeptRequest>);

impl KeptRequests {
    pub(super) fn new(programs: &mut Programs) -> Result<KeptRequests> {
        let doing = || "map of clients' last requests".to_owned();
        Ok(KeptRequests(HashMap::try_from(programs.map("kept_requests")?).doing(doing)?))
    }

    /// What a client said last, if it ends with that; nothing if it doesn't.
    pub(super) fn of(&self, key: FlowKey, end: u32) -> Result<Kept> {
        let kept = match self.0.get(&key.raw(), 0) {
            Ok(kept) => kept,
            Err(MapError::KeyNotFound) => return Ok(Kept::default()),
            Err(error) => return Err(error).doing(|| "looking up a client's last request".to_owned()),
        };
        let bytes = (kept.bytes as usize).min(KEPT_BYTES_MAX);
        let is_last = kept.sequence.wrapping_add(kept.bytes).wrapping_add(kept.more) == end;
        let kept = is_last.then(|| Kept { bytes: kept.payload[..bytes].to_vec(), more: u64::from(kept.more) });
        Ok(kept.unwrap_or_default())
    }
}
