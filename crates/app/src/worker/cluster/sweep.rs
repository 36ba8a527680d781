//! Looking through the entries of the steering map for flows that are over, some of them at a time.

use std::time::Duration;

use leat_host::steering::{self, Place};
use leat_logic::time::Instant;

use super::shared::FLOWS_MAX;

/// Entries are looked through for what is over, so many at a time.
const SWEEP_COUNT: u32 = 4096;
const SWEEP_PAUSE: Duration = Duration::from_millis(200);
/// Until the next look once all have been seen.
const SEEN_PAUSE: Duration = Duration::from_secs(1);
/// The same while there are few. Empty room takes its time as well: the kernel goes through a million buckets for it, some milliseconds' work.
const FEW_PAUSE: Duration = Duration::from_secs(4);
const FEW: u64 = FLOWS_MAX as u64 / 64;

/// One worker does it for all.
pub(super) struct Sweep {
    pub(super) at: Instant,
    place: Option<Place>,
    seen: u64,
    /// Entries that there were when all had been looked through.
    pub(super) entries: u64,
}

impl Sweep {
    pub(super) fn new(is_first: bool, now: Instant) -> Sweep {
        let at = if is_first { now.after(SWEEP_PAUSE) } else { Instant::NEVER };
        Sweep { at, place: None, seen: 0, entries: 0 }
    }

    /// Goes on, if it's time.
    pub(super) fn handle_timeout(&mut self, steering: &steering::Dispatcher, now: Instant) {
        if now < self.at {
            return;
        }
        self.at = now.after(SWEEP_PAUSE);
        match steering.flows().sweep(self.place, SWEEP_COUNT, now) {
            Ok((left, place)) => {
                self.place = place;
                self.seen += left;
                if place.is_none() {
                    self.entries = std::mem::take(&mut self.seen);
                    self.at = now.after(if self.entries < FEW { FEW_PAUSE } else { SEEN_PAUSE });
                    if let Err(error) = steering.sweep_replays(now) {
                        crate::log::warning(format_args!("replayed handshakes can't be looked through: {error}"));
                    }
                }
            }
            Err(error) => crate::log::warning(format_args!("entries of flows can't be looked through: {error}")),
        }
    }
}
