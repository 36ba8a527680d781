//! What each site uses, counted from the tree every few milliseconds: for the metrics, for admission control and for the other workers. Only those are
//! looked at that want something, or wanted something a moment ago: there may be thousands of others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leat_logic::admission::{self, SiteLimits};
use leat_logic::schedule::{LeafId, PolicyKind};
use leat_logic::time::Instant;

use super::entitlement::{self, Descent, PlanWeights};
use super::settings::SiteKind;
use super::shares::{Place, weights_of_places};
use super::{ADMIN_SITE, Host, Stage, UNKNOWN_SITE, Worker};
use crate::config::{self, Config, First};

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(10);
/// Connections are counted with each of so many looks: that takes longer.
const LOOKS_EACH_COUNT: u32 = 4;
/// With each of so many looks, shares are told of those too that have had nothing to do since the last: what they may have is asked for with their next
/// request, and what the metrics say is older by that much.
const LOOKS_EACH_TELLING: u32 = 16;
/// Who uses less than this part of its share has always been served at once: it can't have wanted more.
const MODEST: f64 = 0.75;
/// What is left after each interval of what was used before: half after some 50 ms.
const KEPT: f64 = 0.875;

/// What is known of one site's use of this worker.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    /// What corrections took back after it had been counted, and hasn't been charged again since: that much isn't counted again. In nanoseconds, by stage.
    counted_ahead_ns: [u64; Stage::COUNT],
    /// Nanoseconds for each stage, of which the older count for less and less.
    recent_ns: [f64; Stage::COUNT],
    /// It's in [`Usages::awake`].
    is_awake: bool,
    /// Something of it has been queued or charged since its share was told.
    is_stirred: bool,
}

impl Usage {
    fn recent_ns(&self) -> f64 {
        self.recent_ns.iter().sum()
    }

    /// Counts what a stage has been charged, or given back; what is new of it.
    fn count(&mut self, stage: Stage, charged_ns: i64) -> u64 {
        let ahead_ns = &mut self.counted_ahead_ns[stage as usize];
        let given_back_ns = ahead_ns.saturating_sub_signed(charged_ns);
        let used_ns = u64::try_from(charged_ns).unwrap_or(0).saturating_sub(*ahead_ns);
        *ahead_ns = given_back_ns;
        self.recent_ns[stage as usize] += used_ns as f64;
        used_ns
    }
}

/// What all sites use.
#[derive(Default)]
pub(super) struct Usages {
    /// By site.
    sites: Vec<Usage>,
    /// Those that are looked at.
    awake: Vec<usize>,
    /// Whose the tree's leaves are. Those that aren't here are of work whose site isn't known.
    of_leaves: HashMap<LeafId, (usize, Stage)>,
    /// Who is below whom.
    descent: Descent,
    /// Connections of each site, as they were told last.
    connections: Vec<u64>,
}

impl Usages {
    fn wake(&mut self, site: usize) {
        if !std::mem::replace(&mut self.sites[site].is_awake, true) {
            self.awake.push(site);
        }
    }
}

/// A site's share of this worker, from 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
struct SiteShare {
    given: f64,
    /// As it's in the metrics: what is kept for the admin pages and for unknown work is given to nobody else.
    shown: f64,
    used: f64,
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
        let has_more = used_ns > 0 || !self.tree.is_empty() || self.knocks.are_few;
        self.looks.next = if has_more { self.now.after(INTERVAL) } else { Instant::NEVER };
        let (wanting, resting): (Vec<usize>, Vec<usize>) =
            std::mem::take(&mut self.usages.awake).into_iter().partition(|&site| self.wants(site));
        self.share_among(&wanting);
        self.usages.awake = wanting;
        self.lay_to_rest(resting);
        self.metrics.cost_model_error.set_ratio(self.meter.model().relative_error());
    }

    /// Works out what share each site has among those that want something, and says so.
    fn share_among(&mut self, wanting: &[usize]) {
        let is_served = |site: usize| ![UNKNOWN_SITE, ADMIN_SITE].contains(&(site as u32));
        self.is_shared = wanting.iter().filter(|&&site| is_served(site)).count() > 1;
        let parts = entitlement::parts(&self.config, &self.usages.descent, wanting, &self.plan_weights);
        let all_ns: f64 = wanting.iter().map(|&site| self.usages.sites[site].recent_ns()).sum();
        let used = |usage: &Usage| if all_ns > 0.0 { usage.recent_ns() / all_ns } else { 0.0 };
        let kept = |site: usize| match site as u32 {
            ADMIN_SITE => Some(f64::from(self.config.schedule.admin_share) / 100.0),
            UNKNOWN_SITE => Some(f64::from(self.config.schedule.unknown_share) / 100.0),
            _ => None,
        };
        // What is kept and isn't used is the sites'.
        let kept_and_used: f64 =
            wanting.iter().filter_map(|&site| Some(kept(site)?.min(used(&self.usages.sites[site])))).sum();
        let tells_all = self.looks.count.is_multiple_of(LOOKS_EACH_TELLING);
        let mut is_prompt = false;
        let mut shares = Vec::new();
        for (&site, part) in wanting.iter().zip(parts) {
            let usage = &self.usages.sites[site];
            let (given, used) = (part * (1.0 - kept_and_used), used(usage));
            is_prompt |= is_served(site) && used < given * MODEST;
            if usage.is_stirred || tells_all {
                shares.push((site, SiteShare { given, shown: kept(site).unwrap_or(given), used }));
            }
        }
        self.is_prompt = is_prompt;
        for (site, share) in shares {
            self.usages.sites[site].is_stirred = false;
            self.tell_share(site, share);
        }
    }

    /// Looks no more at sites that want nothing, but for those that have something to tell still.
    fn lay_to_rest(&mut self, resting: Vec<usize>) {
        for site in resting {
            self.tell_share(site, SiteShare::default());
            let usage = &mut self.usages.sites[site];
            usage.recent_ns = Default::default();
            (usage.is_awake, usage.is_stirred) = (false, false);
            let counts = self.admission.counts(site);
            if counts.waiting > 0 || counts.started > 0 || self.gates[site].held_bytes() > 0 {
                self.usages.wake(site);
            }
        }
    }

    /// Says what a site's share is: to admission control, to its gate and in the metrics.
    fn tell_share(&mut self, site: usize, SiteShare { given, shown, used }: SiteShare) {
        self.admission.set_share(site, given, used);
        self.judge_gate(site as u32);
        let counts = self.admission.counts(site);
        let metrics = &self.sites[site].metrics;
        metrics.share_given.set_ratio(shown);
        for (stage, part) in metrics.stages.iter().zip(self.stage_parts(site)) {
            stage.share_given.set_ratio(shown * part);
        }
        metrics.share_used.set_ratio(used);
        metrics.waiting.set(u64::from(counts.waiting));
        metrics.started.set(u64::from(counts.started));
        metrics.memory_held_bytes.set(self.gates[site].held_bytes());
    }

    /// Whether a site has used something lately, or waits for its turn.
    fn wants(&self, site: usize) -> bool {
        Stage::ALL.into_iter().any(|stage| self.wants_at(site, stage))
    }

    fn wants_at(&self, site: usize, stage: Stage) -> bool {
        let is_queued = || self.leaves.get(site).is_some_and(|leaves| self.tree.queued(leaves[stage as usize]) > 0);
        self.usages.sites[site].recent_ns[stage as usize] >= 1.0 || is_queued()
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
        let Worker { usages, tree, sites, .. } = self;
        for &site in &usages.awake {
            usages.sites[site].recent_ns.iter_mut().for_each(|recent_ns| *recent_ns *= KEPT);
        }
        let mut all_ns = 0;
        tree.take_used(|leaf, events, charged_ns| {
            let nobody = (UNKNOWN_SITE as usize, Stage::Receive);
            let (site, stage) = usages.of_leaves.get(&leaf).copied().unwrap_or(nobody);
            usages.wake(site);
            usages.sites[site].is_stirred = true;
            let used_ns = usages.sites[site].count(stage, charged_ns);
            let metrics = &sites[site].metrics.stages[stage as usize];
            metrics.events.add(events);
            metrics.used_ns.add(used_ns);
            all_ns += used_ns;
        });
        all_ns
    }

    /// The tree is new: nothing has been counted in it, and everybody's share is to be told.
    pub(super) fn restart_usage(&mut self, config: &Config) {
        self.plan_weights = PlanWeights::default();
        let usages = &mut self.usages;
        usages.sites.resize_with(self.sites.len(), Usage::default);
        usages.connections.resize(self.sites.len(), 0);
        usages.sites.iter_mut().for_each(|usage| usage.counted_ahead_ns = Default::default());
        (0..self.sites.len()).for_each(|site| usages.wake(site));
        usages.descent = Descent::new(config, self.sites.iter().map(|site| &site.place));
        usages.of_leaves.clear();
        for (site, leaves) in self.leaves.iter().enumerate() {
            for (&leaf, stage) in leaves.iter().zip(Stage::ALL) {
                // The admin pages and unknown work have one leaf for all stages: it counts for the first.
                usages.of_leaves.entry(leaf).or_insert((site, stage));
            }
        }
    }

    /// Uses other weights than the configured ones, so that shares hold over all workers.
    pub(super) fn weigh(&mut self, config: &Arc<Config>, owners: &[u32], sites: &[u32]) {
        if Arc::ptr_eq(config, &self.config) {
            let places = self.configured.iter().copied().zip(self.sites.iter().map(|site| &site.place));
            let of_places = weights_of_places(config, places, owners, sites);
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
        for (site, (before, now)) in self.sites.iter().zip(self.usages.connections.iter().zip(&counts)) {
            if before != now {
                site.metrics.connections.set(*now);
            }
        }
        self.usages.connections = counts;
    }

    /// Tells admission control what is asked of each site.
    pub(super) fn arrange_admission(&mut self, config: &Config) {
        for (site, configured) in self.sites.iter().zip(&self.configured) {
            let configured = configured.map(|number| &config.sites[number]);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_correction_takes_back_is_not_counted_again() {
        let mut usage = Usage::default();
        let counted = [500, -300, 200, 250, -100, -50, 400].map(|charged_ns| usage.count(Stage::Serve, charged_ns));
        assert_eq!(counted, [500, 0, 0, 150, 0, 0, 250]);
        assert_eq!(usage.count(Stage::Transmit, 70), 70, "stages are apart");
        assert_eq!(usage.recent_ns(), 970.0);
    }
}
