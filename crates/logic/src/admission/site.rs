//! Whether one site's requests wait for too long, by how long each has waited when its turn comes. A queue that never runs low for some
//! time is overload, not a burst (Nichols and Jacobson, "Controlling Queue Delay", 2012); what then waits longer than a short limit is
//! thrown away at the head, so that what is served is fresh (as in Maurer, "Fail at Scale", 2015).

use super::limits::{
    AGAIN_NS, BURST_NS, OVERLOADED_DELAY_NS, QUEUE_DELAY_MAX_NS, REFUSALS_EACH_REQUEST, RELAXED_DELAY_NS,
    SHARE_USED_MIN,
};
use crate::schedule::Cost;
use crate::time::Instant;

/// How the mean cost of a site's requests moves with each.
const COST_SHIFT: u32 = 4;

/// How a site's requests are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// They may be refused.
    #[default]
    Ordinary,
    /// They're never refused: the admin address, health checks.
    Reserved,
    /// They aren't requests yet: connections and heads whose site isn't known. While they wait for too long, nothing is accepted.
    Unknown,
}

/// What is asked of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteLimits {
    /// Requests that may be in flight: admitted and not finished.
    pub in_flight_max: u32,
    /// The longest that a request may wait for its turn, overload or not, in nanoseconds.
    pub queue_delay_max_ns: u64,
    /// Whose requests they are.
    pub standing: Standing,
}

impl Default for SiteLimits {
    fn default() -> SiteLimits {
        SiteLimits { in_flight_max: u32::MAX, queue_delay_max_ns: QUEUE_DELAY_MAX_NS, standing: Standing::default() }
    }
}

/// What has happened to a site's requests, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteCounts {
    /// Waiting for their turn now.
    pub waiting: u32,
    /// Started and not finished now.
    pub started: u32,
    /// How long the last request that started, or was refused when its turn came, had waited, in nanoseconds.
    pub delay_ns: u64,
    /// Requests that started.
    pub served: u64,
    /// Refused because too many were in flight.
    pub refused_in_flight: u64,
    /// Refused because they had waited for too long.
    pub refused_late: u64,
}

#[derive(Debug)]
pub(super) struct Site {
    pub(super) limits: SiteLimits,
    pub(super) counts: SiteCounts,
    /// Since when all that started had waited for too long.
    late_since: Option<Instant>,
    is_overloaded: bool,
    /// When it last ceased to be.
    relaxed_at: Option<Instant>,
    is_within_share: bool,
    /// Moving average of what requests cost; 0 when nothing is known.
    cost_ns: u64,
}

impl Site {
    pub(super) fn new(limits: SiteLimits) -> Site {
        Site {
            limits,
            counts: SiteCounts::default(),
            late_since: None,
            is_overloaded: false,
            relaxed_at: None,
            is_within_share: false,
            cost_ns: 0,
        }
    }

    pub(super) fn set_share(&mut self, given: f64, used: f64) {
        self.is_within_share = used < given * SHARE_USED_MIN;
    }

    pub(super) fn is_overloaded(&self) -> bool {
        self.is_overloaded && !self.is_within_share
    }

    /// Whether refusing a request is much cheaper than serving it. Taken to be so until the first was finished.
    pub(super) fn is_worth_refusing(&self, refusal: Cost) -> bool {
        self.cost_ns == 0 || self.cost_ns >= refusal.ns.saturating_mul(REFUSALS_EACH_REQUEST)
    }

    /// Whether a request that has just come may wait for its turn.
    pub(super) fn arrive(&mut self) -> bool {
        let in_flight = self.counts.waiting.saturating_add(self.counts.started);
        if in_flight >= self.limits.in_flight_max && self.limits.standing == Standing::Ordinary {
            self.counts.refused_in_flight += 1;
            return false;
        }
        self.counts.waiting += 1;
        true
    }

    /// Whether a request whose turn has come is served.
    pub(super) fn start(&mut self, arrived: Instant, now: Instant, is_worth_refusing: bool) -> bool {
        self.counts.waiting = self.counts.waiting.saturating_sub(1);
        let delay_ns = now.ns.saturating_sub(arrived.ns);
        self.counts.delay_ns = delay_ns;
        self.watch(delay_ns, now);
        if self.is_late(delay_ns, is_worth_refusing) {
            self.counts.refused_late += 1;
            return false;
        }
        self.counts.started += 1;
        self.counts.served += 1;
        true
    }

    fn is_late(&self, delay_ns: u64, is_worth_refusing: bool) -> bool {
        if self.limits.standing == Standing::Reserved {
            return false;
        }
        let is_shed = self.is_overloaded() && is_worth_refusing && delay_ns > OVERLOADED_DELAY_NS;
        is_shed || delay_ns > self.limits.queue_delay_max_ns
    }

    /// Finds out from each delay whether the site is overloaded.
    fn watch(&mut self, delay_ns: u64, now: Instant) {
        if delay_ns <= RELAXED_DELAY_NS || self.counts.waiting == 0 {
            self.relax(now);
        } else if delay_ns > OVERLOADED_DELAY_NS {
            let since = *self.late_since.get_or_insert(now);
            let is_again = self.relaxed_at.is_some_and(|at| now.ns.saturating_sub(at.ns) < AGAIN_NS);
            self.is_overloaded |= is_again || now.ns.saturating_sub(since.ns) >= BURST_NS;
        } else if !self.is_overloaded {
            self.late_since = None;
        }
    }

    fn relax(&mut self, now: Instant) {
        self.late_since = None;
        if std::mem::take(&mut self.is_overloaded) {
            self.relaxed_at = Some(now);
        }
    }

    /// Whether what comes now will have its turn soon.
    pub(super) fn has_room(&self) -> bool {
        self.counts.waiting == 0 || self.counts.delay_ns < RELAXED_DELAY_NS
    }

    /// What those that wait for their turn will cost.
    pub(super) fn waiting_ns(&self) -> u64 {
        u64::from(self.counts.waiting).saturating_mul(self.cost_ns)
    }

    pub(super) fn finish(&mut self, cost: Cost) {
        self.counts.started = self.counts.started.saturating_sub(1);
        self.cost_ns = match self.cost_ns {
            0 => cost.ns,
            known => known - (known >> COST_SHIFT) + (cost.ns >> COST_SHIFT),
        };
    }

    pub(super) fn abandon(&mut self, now: Instant) {
        self.counts.waiting = self.counts.waiting.saturating_sub(1);
        if self.counts.waiting == 0 {
            self.relax(now);
        }
    }
}
