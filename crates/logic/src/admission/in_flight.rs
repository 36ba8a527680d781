//! How many requests of a site are in flight on all workers: a limit is kept exactly, wherever they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Those of one site. Nothing else is ordered by it.
#[derive(Debug, Default)]
pub struct InFlight(AtomicU32);

impl InFlight {
    /// Counts one more, unless there are `max` already.
    pub(super) fn enter(&self, max: u32) -> bool {
        let more = |count: u32| (count < max).then_some(count.saturating_add(1));
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// So many come that have been let in already.
    fn join(&self, count: u32) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// So many have ended.
    fn leave(&self, count: u32) {
        if count > 0 {
            self.0.fetch_sub(count, Ordering::Relaxed);
        }
    }
}

/// What one worker has counted among those: gone with it.
#[derive(Debug, Default)]
pub(super) struct Counted {
    all: Arc<InFlight>,
    own: u32,
}

impl Counted {
    /// Counts one more, unless there are `max` on all workers.
    pub(super) fn enter(&mut self, max: u32) -> bool {
        let enters = self.all.enter(max);
        self.own += u32::from(enters);
        enters
    }

    /// No more than so many are left of this worker's.
    pub(super) fn keep(&mut self, left: u32) {
        self.all.leave(self.own.saturating_sub(left));
        self.own = self.own.min(left);
    }

    /// Counts with others from now on.
    pub(super) fn count_with(&mut self, all: Arc<InFlight>) {
        all.join(self.own);
        self.all.leave(self.own);
        self.all = all;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.all.leave(self.own);
    }
}
