//! What each site uses, counted from the tree every few milliseconds: for the metrics, for admission control and for the other workers.

use std::sync::Arc;
use std::time::Duration;

use leat_logic::admission::{self, SiteLimits};
use leat_logic::schedule::PolicyKind;
use leat_logic::time::Instant;

use super::entitlement::PlanWeights;
use super::settings::{Site, SiteKind};
use super::shares::{Place, weights_of_places};
use super::{Host, Stage, Worker, entitlement};
use crate::config::{self, Config, First};

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(10);
/// Connections are counted with each of so many looks: that takes longer.
const LOOKS_EACH_COUNT: u32 = 4;
/// Who uses less than this part of its share has always been served at once: it can't have wanted more.
const MODEST: f64 = 0.75;
/// What is left after each interval of what was used before: half after some 50 ms.
const KEPT: f64 = 0.875;

/// What is known of one site's use of this worker.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    /// What the tree had counted when it was last asked, for each stage: events, and nanoseconds.
    counted: [(u64, u64); Stage::COUNT],
    /// Nanoseconds for each stage, of which the older count for less and less.
    recent_ns: [f64; Stage::COUNT],
}

impl Usage {
    fn recent_ns(&self) -> f64 {
        self.recent_ns.iter().sum()
    }
}

/// When to look next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looks {
    pub(super) next: Instant,
    pub(super) count: u32,
}

impl<H: Host> Worker<H> {
    /// Something has been charged: it will be looked at.
    #[inline]
    pub(super) fn look_soon(&mut self) {
        if self.looks.next == Instant::NEVER {
            self.looks.next = self.now.after(INTERVAL);
        }
    }

    /// Takes over what the tree has counted. Nothing is asked for as long as nothing is used.
    pub(super) fn look_at_usage(&mut self) {
        let used_ns = self.count_usage();
        self.resume_accepting();
        self.bound_listener_queues();
        self.departures.forget_old(self.now);
        self.end_hold_up();
        self.looks.count = self.looks.count.wrapping_add(1);
        if self.looks.count.is_multiple_of(LOOKS_EACH_COUNT) {
            self.count_connections();
        }
        let has_more = used_ns > 0 || !self.tree.is_empty() || self.listener_queue_max.is_some();
        self.looks.next = if has_more { self.now.after(INTERVAL) } else { Instant::NEVER };
        let places: Vec<&Place> = self.sites.iter().map(|site| &site.place).collect();
        let wants: Vec<bool> = (0..places.len()).map(|site| self.wants(site)).collect();
        let is_served = |site: &Site| matches!(site.kind, SiteKind::Files | SiteKind::Cluster);
        let wanting = self.sites.iter().zip(&wants).filter(|(site, wants)| **wants && is_served(site)).count();
        self.is_shared = wanting > 1;
        let mut is_prompt = false;
        let given = entitlement::parts(&self.config, &places, &wants, &self.plan_weights);
        let all_ns: f64 = self.usages.iter().map(Usage::recent_ns).sum();
        let used = |site: usize| if all_ns > 0.0 { self.usages[site].recent_ns() / all_ns } else { 0.0 };
        let used: Vec<f64> = (0..places.len()).map(used).collect();
        let kept = |site: &Site| match site.kind {
            SiteKind::Admin => Some(f64::from(self.config.schedule.admin_share) / 100.0),
            SiteKind::Unknown => Some(f64::from(self.config.schedule.unknown_share) / 100.0),
            SiteKind::Files | SiteKind::Cluster => None,
        };
        let kept: Vec<Option<f64>> = self.sites.iter().map(|site| kept(site)).collect();
        // What is kept and isn't used is the sites'.
        let kept_and_used: f64 =
            kept.iter().zip(&used).filter_map(|(kept, used)| Some(kept.as_ref()?.min(*used))).sum();
        for (site, given) in given.into_iter().enumerate() {
            let (given, used) = (given * (1.0 - kept_and_used), used[site]);
            is_prompt |= wants[site] && is_served(&self.sites[site]) && used < given * MODEST;
            self.admission.set_share(site, given, used);
            self.judge_gate(site as u32);
            let counts = self.admission.counts(site);
            let metrics = &self.sites[site].metrics;
            let given = kept[site].filter(|_| wants[site]).unwrap_or(given);
            metrics.share_given.set_ratio(given);
            for (stage, part) in metrics.stages.iter().zip(self.stage_parts(site)) {
                stage.share_given.set_ratio(given * part);
            }
            metrics.share_used.set_ratio(used);
            metrics.waiting.set(u64::from(counts.waiting));
            metrics.started.set(u64::from(counts.started));
            metrics.memory_held_bytes.set(self.gates[site].held_bytes());
        }
        self.is_prompt = is_prompt;
        self.metrics.cost_model_error.set_ratio(self.meter.model().relative_error());
    }

    /// Whether a site has used something lately, or waits for its turn.
    fn wants(&self, site: usize) -> bool {
        Stage::ALL.into_iter().any(|stage| self.wants_at(site, stage))
    }

    fn wants_at(&self, site: usize, stage: Stage) -> bool {
        let is_queued = || self.leaves.get(site).is_some_and(|leaves| self.tree.queued(leaves[stage as usize]) > 0);
        self.usages[site].recent_ns[stage as usize] >= 1.0 || is_queued()
    }

    /// The part of a site's share that each of its stages is entitled to.
    fn stage_parts(&self, site: usize) -> [f64; Stage::COUNT] {
        match &self.sites[site].place {
            Place::Site { stages, .. } => {
                let policy = if self.config.schedule.first == First::Sites { *stages } else { PolicyKind::RoundRobin };
                entitlement::stage_parts(policy, Stage::ALL.map(|stage| self.wants_at(site, stage)))
            }
            // All has one leaf, which is counted for the first.
            Place::Admin | Place::Unknown => {
                entitlement::stage_parts(PolicyKind::RoundRobin, Stage::ALL.map(|stage| stage == Stage::Receive))
            }
        }
    }

    /// Adds up what was used since the last look, in nanoseconds.
    pub(super) fn count_usage(&mut self) -> u64 {
        let mut all_ns = 0;
        let unknown = self.tree.usage(self.unknown.node).unwrap_or_default();
        for ((site, usage), leaves) in self.sites.iter().zip(&mut self.usages).zip(&self.leaves) {
            usage.recent_ns.iter_mut().for_each(|recent_ns| *recent_ns *= KEPT);
            for (stage, &leaf) in leaves.iter().enumerate() {
                // The admin pages and unknown work have one leaf for all stages.
                if stage > 0 && leaf == leaves[0] {
                    break;
                }
                let (events, charged_ns) = match site.kind {
                    SiteKind::Unknown => (unknown.served, unknown.charged_ns),
                    _ => self.tree.served(leaf),
                };
                let (events_before, charged_before_ns) = usage.counted[stage];
                // A correction may have taken more back than has been charged since: that has been counted, and isn't again.
                usage.counted[stage] = (events, charged_ns.max(charged_before_ns));
                let metrics = &site.metrics.stages[stage];
                metrics.events.add(events.wrapping_sub(events_before));
                let used = charged_ns.saturating_sub(charged_before_ns);
                metrics.used_ns.add(used);
                usage.recent_ns[stage] += used as f64;
                all_ns += used;
            }
        }
        all_ns
    }

    /// The tree is new: nothing has been counted in it.
    pub(super) fn restart_usage(&mut self) {
        self.usages.resize_with(self.sites.len(), Usage::default);
        self.plan_weights = PlanWeights::default();
        self.usages.iter_mut().for_each(|usage| usage.counted = Default::default());
    }

    /// Uses other weights than the configured ones, so that shares hold over all workers.
    pub(super) fn weigh(&mut self, config: &Arc<Config>, owners: &[u32], sites: &[u32]) {
        if Arc::ptr_eq(config, &self.config) {
            let places: Vec<_> = self.sites.iter().map(|site| (site.name.as_str(), &site.place)).collect();
            let of_places = weights_of_places(config, &places, owners, sites);
            self.members.weigh(&mut self.tree, config, owners, &of_places);
            self.plan_weights = PlanWeights { owners: owners.to_vec(), sites: of_places };
        }
    }

    /// Tells how many connections each site has.
    fn count_connections(&mut self) {
        let mut counts = vec![0_u64; self.sites.len()];
        for index in 0..self.connections.slots() as u32 {
            if let Some(token) = self.connections.token(index) {
                counts[self.connections[token].site as usize] += 1;
            }
        }
        for (site, count) in self.sites.iter().zip(counts) {
            site.metrics.connections.set(count);
        }
    }

    /// Tells admission control what is asked of each site.
    pub(super) fn arrange_admission(&mut self, config: &Config) {
        for site in &self.sites {
            let configured = config.sites.iter().find(|configured| configured.name == site.name);
            let limits = match (site.kind, configured) {
                (SiteKind::Admin, _) => SiteLimits { standing: admission::Standing::Reserved, ..SiteLimits::default() },
                (SiteKind::Unknown, _) => {
                    SiteLimits { standing: admission::Standing::Unknown, ..SiteLimits::default() }
                }
                (_, Some(configured)) => site_limits(configured),
                (_, None) => SiteLimits::default(),
            };
            self.admission.set_site(site.number as usize, limits);
            let in_flight = configured.map(|configured| self.aggregates.in_flight(configured)).unwrap_or_default();
            self.admission.count_with(site.number as usize, in_flight);
        }
    }
}

fn site_limits(site: &config::Site) -> SiteLimits {
    let in_flight_max = match site.max_in_flight {
        0 => u32::MAX,
        max => max,
    };
    let queue_delay_max_ns = match u64::try_from(site.max_queue_delay.as_nanos()) {
        Ok(0) | Err(_) => u64::MAX,
        Ok(ns) => ns,
    };
    SiteLimits { in_flight_max, queue_delay_max_ns, standing: admission::Standing::Ordinary }
}
