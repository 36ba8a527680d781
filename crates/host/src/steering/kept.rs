//! What is known of a client whose connection's node has died: what it said last (`programs/kept.h`), and what it answers when it's asked what it has. What becomes
//! of the connection is decided elsewhere.

use aya::Pod;
use aya::maps::{HashMap, MapData, MapError};

use super::attach::Programs;
use super::born::Segment;
use super::flows::FlowKey;
use super::layout::{KEPT_BYTES_MAX, KEPT_REST_BYTES_MAX, RawKeptRequest, RawKeptRest, RawKey};
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
    /// All of it, or the first.
    pub bytes: Vec<u8>,
    /// So many followed on them.
    pub more: u64,
}

/// What clients said last.
pub(super) struct KeptRequests {
    requests: HashMap<MapData, RawKey, RawKeptRequest>,
    rests: HashMap<MapData, RawKey, RawKeptRest>,
}

impl KeptRequests {
    pub(super) fn new(programs: &mut Programs) -> Result<KeptRequests> {
        let doing = || "map of clients' last requests".to_owned();
        let requests = HashMap::try_from(programs.map("kept_requests")?).doing(doing)?;
        let rests = HashMap::try_from(programs.map("kept_rests")?).doing(doing)?;
        Ok(KeptRequests { requests, rests })
    }

    /// What a client said last, if it ends with that; nothing if it doesn't.
    pub(super) fn of(&self, key: FlowKey, end: u32) -> Result<Kept> {
        let Some(kept) = of(&self.requests, key)? else { return Ok(Kept::default()) };
        let kept_end = kept.sequence.wrapping_add(kept.bytes);
        if kept_end.wrapping_add(kept.more) != end {
            return Ok(Kept::default());
        }
        let mut bytes = kept.payload[..(kept.bytes as usize).min(KEPT_BYTES_MAX)].to_vec();
        let mut more = kept.more;
        if more > 0
            && let Some(rest) = of(&self.rests, key)?.filter(|rest| rest.sequence == kept_end)
        {
            // Some may have come since.
            let rest_bytes = rest.bytes.min(more);
            bytes.extend_from_slice(&rest.payload[..(rest_bytes as usize).min(KEPT_REST_BYTES_MAX)]);
            more -= rest_bytes;
        }
        Ok(Kept { bytes, more: u64::from(more) })
    }
}

fn of<V: Pod>(map: &HashMap<MapData, RawKey, V>, key: FlowKey) -> Result<Option<V>> {
    match map.get(&key.raw(), 0) {
        Ok(value) => Ok(Some(value)),
        Err(MapError::KeyNotFound) => Ok(None),
        Err(error) => Err(error).doing(|| "looking up a client's last request".to_owned()),
    }
}
