//! Looking through the entries of the steering map for flows that are over, and through those of replayed handshakes, some of them at a time.

use std::time::Duration;

use leat_host::steering::{self, DispatcherCounters, Place};
use leat_logic::time::Instant;

use super::shared::FLOWS_MAX;
use crate::metrics::WorkerMetrics;

/// Entries are looked through for what is over, so many at a time.
const SWEEP_COUNT: u32 = 4096;
const SWEEP_PAUSE: Duration = Duration::from_millis(200);
/// Until the next look once all have been seen.
const SEEN_PAUSE: Duration = Duration::from_secs(1);
/// The same while there are few. Empty room takes its time as well: the kernel goes through a million buckets for it, some milliseconds' work.
const FEW_PAUSE: Duration = Duration::from_secs(4);
const FEW: u64 = FLOWS_MAX as u64 / 64;
/// Of replayed handshakes fewer are looked at in one go, and sooner again: short connections would fill their map otherwise.
const REPLAYS_PAUSE: Duration = Duration::from_millis(5);

/// One worker does it for all.
pub(super) struct Sweep {
    pub(super) at: Instant,
    flows: Round,
    replays: Round,
    /// Entries that there were when all had been looked through.
    entries: u64,
    /// What the programs had counted then.
    counters: DispatcherCounters,
}

/// How far it has come in one of the maps.
struct Round {
    at: Instant,
    place: Option<Place>,
    seen: u64,
}

impl Round {
    /// So many are left of some entries, and there it goes on. Returns how many there are when all have been seen.
    fn go_on(&mut self, left: u64, place: Option<Place>, now: Instant) -> Option<u64> {
        self.place = place;
        self.seen += left;
        if place.is_some() {
            return None;
        }
        let entries = std::mem::take(&mut self.seen);
        self.at = now.after(if entries < FEW { FEW_PAUSE } else { SEEN_PAUSE });
        Some(entries)
    }
}

impl Sweep {
    pub(super) fn new(is_first: bool, now: Instant) -> Sweep {
        let at = if is_first { now.after(SWEEP_PAUSE) } else { Instant::NEVER };
        let round = || Round { at, place: None, seen: 0 };
        Sweep { at, flows: round(), replays: round(), entries: 0, counters: DispatcherCounters::default() }
    }

    /// Says what was found.
    pub(super) fn count(&self, metrics: &WorkerMetrics) {
        metrics.flow_entries.set(self.entries);
        metrics.dispatcher_counts.iter().zip(self.counters.values()).for_each(|(number, count)| number.set(count));
    }

    /// Goes on, if it's time.
    pub(super) fn handle_timeout(&mut self, steering: &steering::Dispatcher, now: Instant) {
        if now >= self.flows.at {
            self.flows.at = now.after(SWEEP_PAUSE);
            match steering.flows().sweep(self.flows.place, SWEEP_COUNT, now) {
                Ok((left, place)) => {
                    if let Some(entries) = self.flows.go_on(left, place, now) {
                        self.entries = entries;
                        // What can't be read now can be later.
                        self.counters = steering.counters().unwrap_or(self.counters);
                    }
                }
                Err(error) => crate::log::warning(format_args!("entries of flows can't be looked through: {error}")),
            }
        }
        if now >= self.replays.at {
            self.replays.at = now.after(REPLAYS_PAUSE);
            match steering.sweep_replays(self.replays.place, now) {
                Ok((left, place)) => {
                    self.replays.go_on(left, place, now);
                }
                Err(error) => {
                    self.replays.at = now.after(FEW_PAUSE);
                    crate::log::warning(format_args!("replayed handshakes can't be looked through: {error}"));
                }
            }
        }
        self.at = self.flows.at.min(self.replays.at);
    }
}
