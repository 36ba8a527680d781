//! Tags of files too large to hash twice, remembered for the whole process by the state in which they were hashed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard};

use leat_logic::serve::etag::ETag;
use leat_logic::serve::version::Version;

use super::limits;
use crate::lock::lock;

#[derive(Debug, Default)]
struct State {
    known: BTreeMap<Version, ETag>,
    oldest_first: VecDeque<Version>,
    under_way: BTreeSet<Version>,
}

/// See the module. Only settled versions may be remembered: [`Version::is_settled_at`].
#[derive(Debug, Default)]
pub(super) struct Hashes(Mutex<State>);

impl Hashes {
    pub(super) fn get(&self, version: &Version) -> Option<ETag> {
        self.state().known.get(version).copied()
    }

    pub(super) fn remember(&self, version: Version, etag: ETag) {
        let mut state = self.state();
        if state.known.insert(version, etag).is_none() {
            state.oldest_first.push_back(version);
        }
        while state.oldest_first.len() > limits::HASHES_REMEMBERED_MAX {
            if let Some(oldest) = state.oldest_first.pop_front() {
                state.known.remove(&oldest);
            }
        }
    }

    /// Whether the caller is to hash this version: nobody has or is about to. [`Hashes::end`] has to follow.
    pub(super) fn begin(&self, version: &Version) -> bool {
        let mut state = self.state();
        !state.known.contains_key(version) && state.under_way.insert(*version)
    }

    pub(super) fn end(&self, version: &Version) {
        self.state().under_way.remove(version);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}
