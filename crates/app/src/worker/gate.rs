//! What a site may not do now, because it's over a quota or overloaded: its events wait beside the tree until it may. `Quotas` and `Admission`
//! decide; nothing that was begun is broken off.

use std::collections::VecDeque;
use std::sync::Arc;

use leat_host::reactor::Token;
use leat_logic::admission::{Next, Quotas, Resource, Unread};
use leat_logic::schedule::Cost;
use leat_logic::time::Instant;

use super::aggregates::BURST_BYTES_MIN;
use super::{Host, Stage, Worker};
use crate::config::Config;
use crate::metrics::OwnerMetrics;

/// Events of one site and stage that go on in one turn: one at first, since each may use up what there is, which is seen afterwards only; twice as many
/// with each turn after which there is more.
const GO_ON_MAX: usize = 16;
/// When to look again at a site that isn't read because its requests wait, or because it's over its memory: it mostly goes on by itself before that.
const READING_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);
/// Something that waits, and since when, unless it does so for overload: that is told by how long requests wait.
#[derive(Clone, Copy, Debug)]
enum Parked {
    Connection(Token, Option<Instant>),
    Program(Token),
}

/// One site's gate.
#[derive(Debug, Default)]
pub(super) struct Gate {
    quotas: Quotas,
    /// The numbers of the site's owner, the owner's owner and so on.
    owners: Vec<Arc<OwnerMetrics>>,
    /// The stages that may not go on, one bit each.
    closed: u8,
    /// When to look again.
    until: Instant,
    /// It's in the list of those that are looked at.
    is_watched: bool,
    /// By stage.
    parked: [VecDeque<Parked>; Stage::COUNT],
    /// How many of these may have ended since somebody looked.
    ended: usize,
    /// Events of each stage that go on with the next look.
    pace: usize,
    /// When something was seen to be held back by quotas.
    held_back: Option<Instant>,
    /// Connections that aren't received from while too much is held.
    pub(super) unread: Unread<Token>,
}

const ALL_STAGES: u8 = (1 << Stage::COUNT) - 1;

const fn bit(stage: Stage) -> u8 {
    1 << stage as u8
}

impl Gate {
    #[inline]
    pub(super) fn is_closed(&self, stage: Stage) -> bool {
        self.closed & bit(stage) != 0
    }

    /// Bytes of memory that are held, if that has a quota.
    pub(super) fn held_bytes(&self) -> u64 {
        if self.quotas.has_memory_limit() { self.quotas.held() } else { 0 }
    }

    /// Whether nothing may be received, because too much is held already.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.quotas.is_full()
    }

    #[inline]
    pub(super) fn is_limited(&self) -> bool {
        self.quotas.is_limited()
    }

    /// Whether what is read from the disk has to be paid for.
    pub(super) fn has_disk_limit(&self) -> bool {
        self.quotas.has_limit(Resource::Disk)
    }

    pub(super) fn park(&mut self, stage: Stage, token: Token, now: Instant) {
        let is_over_quota = stage != Stage::Receive || self.is_closed(Stage::Serve);
        self.parked[stage as usize].push_back(Parked::Connection(token, is_over_quota.then_some(now)));
    }

    pub(super) fn park_program(&mut self, token: Token) {
        self.parked[Stage::Compute as usize].push_back(Parked::Program(token));
    }

    fn waiting(&self) -> usize {
        self.parked.iter().map(VecDeque::len).sum()
    }

    /// One that may be parked has ended. Those that aren't there any more are forgotten when they may be half of all: so they're never many, and looking
    /// for them costs little for each.
    fn one_has_ended(&mut self, mut is_there: impl FnMut(Parked) -> bool) {
        self.ended += 1;
        if self.ended * 2 > self.waiting() {
            self.ended = 0;
            self.parked.iter_mut().for_each(|parked| parked.retain(|&it| is_there(it)));
        }
    }

    /// Whether so many bytes may be held at all.
    pub(super) fn can_hold(&self, bytes: usize) -> bool {
        self.quotas.can_hold(bytes as u64)
    }

    /// Bytes that may be sent in one turn.
    pub(super) fn bytes_max(&self, most: usize, now: Instant) -> usize {
        if !self.is_limited() {
            return most;
        }
        let available = self.quotas.available(Resource::Network, now).max(BURST_BYTES_MIN);
        usize::try_from(available).unwrap_or(most).min(most)
    }

    /// Finds out what may not go on now, and when to look again; whether quotas are why.
    fn judge(&mut self, is_read: bool, now: Instant) -> bool {
        self.closed = 0;
        self.until = self.quotas.settle_at().unwrap_or(Instant::NEVER);
        let sending = bit(Stage::Serve) | bit(Stage::Transmit);
        for (resource, stages) in [(Resource::Cpu, ALL_STAGES), (Resource::Network, sending), (Resource::Disk, sending)]
        {
            if let Some(until) = self.quotas.blocked_until(resource, now) {
                self.closed |= stages;
                self.until = self.until.min(until);
            }
        }
        let is_held_back = self.closed != 0;
        if !is_read {
            self.closed |= bit(Stage::Receive);
        }
        if !is_read || self.is_full() {
            self.until = self.until.min(now.after(READING_PAUSE));
        }
        is_held_back
    }

    /// Whether there is nothing to be looked at again.
    fn is_at_rest(&self) -> bool {
        self.closed == 0 && self.waiting() == 0 && !self.is_full() && self.quotas.settle_at().is_none()
    }
}

impl<H: Host> Worker<H> {
    /// Puts the configured quotas in force.
    pub(super) fn arrange_gates(&mut self, config: &Config) {
        self.gates.resize_with(self.sites.len(), Gate::default);
        let owners = config.owners_by_name();
        for (gate, configured) in self.gates.iter_mut().zip(&self.configured) {
            let configured = configured.map(|number| &config.sites[number]);
            let path = configured.map(|site| self.aggregates.path(config.workers, &owners, site, self.now));
            gate.quotas.arrange(path.unwrap_or_default());
            let above = configured.into_iter().flat_map(|site| owners.above(&site.owner));
            gate.owners = above.map(|owner| self.metrics.owner(&owner.name)).collect();
        }
        (0..self.gates.len() as u32).for_each(|site| self.read_on(site));
    }

    /// A site with quotas has used so much for one event.
    pub(super) fn charge_quotas(&mut self, site: u32, cost: Cost, sent_bytes: u64) {
        self.charge_resources(site, &[(Resource::Cpu, cost.ns), (Resource::Network, sent_bytes)]);
    }

    /// So much has been read from the disk for a site.
    pub(super) fn charge_disk(&mut self, site: u32, bytes: u64) {
        if bytes > 0 {
            self.charge_resources(site, &[(Resource::Disk, bytes)]);
        }
    }

    fn charge_resources(&mut self, site: u32, used: &[(Resource, u64)]) {
        let Gate { quotas, owners, .. } = &mut self.gates[site as usize];
        let metrics = &self.sites[site as usize].metrics;
        for &(resource, amount) in used {
            if amount > 0 {
                let mut most_ns = 0;
                quotas.charge(resource, self.now, amount, |place, ns| {
                    most_ns = ns.max(most_ns);
                    if let Some(owner) = place.checked_sub(1).and_then(|above| owners.get(above)) {
                        owner.quota_used_ns[resource as usize].add(ns);
                    }
                });
                metrics.quota_used_ns[resource as usize].add(most_ns);
            }
        }
        self.judge_gate(site);
    }

    /// Whether an event of a site's may not run although it was let go on: others have used up what there was.
    pub(super) fn is_held_back(&mut self, site: u32, stage: Stage) -> bool {
        self.gates[site as usize].is_limited() && {
            self.judge_gate(site);
            self.gates[site as usize].is_closed(stage)
        }
    }

    /// Finds out whether a site may go on.
    pub(super) fn judge_gate(&mut self, site: u32) {
        let is_read = self.admission.is_reading(site as usize);
        let gate = &mut self.gates[site as usize];
        let is_held_back = gate.judge(is_read, self.now) && gate.waiting() > 0;
        if let Some(since) = std::mem::replace(&mut gate.held_back, is_held_back.then_some(self.now)) {
            let held_back_ns = self.now.since(since).as_nanos() as u64;
            self.sites[site as usize].metrics.quota_wait_ns.add(held_back_ns);
        }
        if !gate.is_at_rest() && !std::mem::replace(&mut gate.is_watched, true) {
            self.watched_gates.push(site);
        }
    }

    /// When a gate wants to be looked at again.
    pub(super) fn next_gate(&self) -> Instant {
        let gates = self.watched_gates.iter().map(|&site| self.gates[site as usize].until);
        gates.min().unwrap_or(Instant::NEVER)
    }

    /// Lets those go on who may again.
    pub(super) fn look_at_gates(&mut self) {
        let mut watched = std::mem::take(&mut self.watched_gates);
        watched.retain(|&site| {
            let gate = &mut self.gates[site as usize];
            gate.quotas.settle(self.now, gate.waiting());
            let was_open = gate.closed & !bit(Stage::Receive) == 0;
            gate.pace = if was_open { (gate.pace * 2).clamp(1, GO_ON_MAX) } else { 1 };
            self.judge_gate(site);
            self.read_on(site);
            self.go_on(site);
            let gate = &mut self.gates[site as usize];
            gate.is_watched = !gate.is_at_rest();
            gate.is_watched
        });
        self.watched_gates = watched;
    }

    /// Something of a site's has ended that may be parked.
    pub(super) fn forget_parked(&mut self, site: u32) {
        let Worker { gates, connections, programs, .. } = self;
        gates[site as usize].one_has_ended(|parked| match parked {
            Parked::Connection(token, _) => connections.get(token).is_some(),
            Parked::Program(token) => programs.is_there(token),
        });
    }

    fn go_on(&mut self, site: u32) {
        for stage in Stage::ALL {
            let gate = &mut self.gates[site as usize];
            if gate.is_closed(stage) {
                continue;
            }
            let parked = &mut gate.parked[stage as usize];
            let going: Vec<Parked> = parked.drain(..gate.pace.min(parked.len())).collect();
            if !parked.is_empty() {
                gate.until = self.now;
            }
            for parked in going {
                match parked {
                    Parked::Program(token) => self.queue_program(token),
                    Parked::Connection(token, since) => {
                        if let Some(connection) = self.connections.get(token) {
                            connection.flags.queued = false;
                            connection.flags.parked = false;
                            if let Some(since) = since {
                                connection.was_parked(stage, self.now.since(since));
                            }
                            if !connection.flags.closing {
                                self.queue(stage, token);
                            }
                        }
                    }
                }
            }
        }
    }

    /// Whether what is held for a connection must be accounted for.
    pub(super) fn is_memory_limited(&mut self, token: Token) -> bool {
        let Some(connection) = self.connections.get(token) else { return false };
        self.gates[connection.site as usize].quotas.has_memory_limit()
    }

    /// Takes account of what is held for a connection and its program; `site_before` has paid for it until now.
    pub(super) fn account_memory(&mut self, site_before: u32, token: Token) {
        let Some(connection) = self.connections.get(token) else { return };
        let stream = connection.program_stream().and_then(|stream| self.streams.get(stream));
        let held = (connection.held_bytes() + stream.map_or(0, |stream| stream.held_bytes())) as u32;
        let before = std::mem::replace(&mut connection.accounted_bytes, held);
        let site = connection.site;
        if site != site_before || held != before {
            self.release_memory(site_before, before);
            self.gates[site as usize].quotas.hold(u64::from(held));
            self.judge_gate(site);
        }
    }

    /// Bytes of a site's are held no more; its connections may be received from again if that was too many.
    pub(super) fn release_memory(&mut self, site: u32, bytes: u32) {
        if bytes > 0 {
            self.gates[site as usize].quotas.release(u64::from(bytes));
            self.read_on(site);
        }
    }

    /// Receives again what wasn't read because too much was held, by this worker or by others.
    fn read_on(&mut self, site: u32) {
        let Worker { gates, connections, .. } = self;
        let gate = &mut gates[site as usize];
        gate.quotas.look_at_memory();
        let ended = if gate.is_full() {
            let gathers = |token| connections.get(token).is_some_and(|connection| connection.is_gathering());
            let first = gate.unread.next_first(gathers);
            first.and_then(|token| Some((token, gate.unread.end_wait(token)?))).into_iter().collect()
        } else {
            gate.unread.end_all()
        };
        for (token, since) in ended {
            if let Some(connection) = self.connections.get(token) {
                connection.flags.unread = false;
                connection.http.handle_unread(since, self.now);
                self.receive_on(token);
            }
        }
    }

    /// Whether a connection is received from although too much of its site's is held.
    pub(super) fn may_receive(&mut self, token: Token) -> bool {
        let connection = &self.connections[token];
        let next = if connection.awaits_content() {
            Next::IsGathered
        } else if let Some(stream) = connection.program_stream().filter(|_| connection.expects_content()) {
            let stream = self.streams.get(stream).filter(|stream| !stream.is_connecting() && stream.is_flushed());
            stream.map_or(Next::Waits, |_| Next::GoesOn)
        } else if connection.exchange.is_none() && !connection.http.is_idle() {
            Next::GoesOn
        } else {
            Next::Waits
        };
        self.gates[connection.site as usize].unread.ask(token, next, self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Aggregates;
    use super::*;
    use crate::config::{Quota, Site};

    fn at_ms(ms: u64) -> Instant {
        Instant { ns: 1_000_000_000_000 + ms * 1_000_000 }
    }

    fn gate(quota: Quota) -> Gate {
        let site = Site { quota, ..Site::default() };
        let config = Config { workers: 2, ..Config::default() };
        let mut gate = Gate::default();
        gate.quotas.arrange(Aggregates::default().path(config.workers, &config.owners_by_name(), &site, at_ms(0)));
        gate
    }

    #[test]
    fn without_quotas_everything_goes_on() {
        let mut gate = gate(Quota::default());
        assert!(!gate.is_limited() && !gate.is_full());
        gate.quotas.charge(Resource::Cpu, at_ms(0), u64::MAX, |_, _| ());
        assert!(!gate.judge(true, at_ms(0)));
        assert_eq!((gate.closed, gate.until), (0, Instant::NEVER));
        assert_eq!(gate.bytes_max(1_000_000, at_ms(0)), 1_000_000);
    }

    #[test]
    fn a_rate_stops_what_sends_and_nothing_else() {
        let mut gate = gate(Quota { network_rate: 1_000_000, ..Quota::default() });
        // One worker of two may have all of it, and a twentieth at once.
        assert_eq!(gate.bytes_max(1_000_000, at_ms(0)), 50_000);
        gate.quotas.charge(Resource::Network, at_ms(0), 150_000, |_, _| ());
        assert!(gate.judge(true, at_ms(0)));
        assert!(gate.is_closed(Stage::Serve) && gate.is_closed(Stage::Transmit));
        assert!(!gate.is_closed(Stage::Receive) && !gate.is_closed(Stage::Compute));
        assert_eq!(gate.until, at_ms(100));
        assert!(!gate.judge(true, at_ms(100)));
        assert_eq!(gate.closed, 0);
    }

    #[test]
    fn processor_time_stops_everything() {
        let mut gate = gate(Quota { cpu: 10, ..Quota::default() });
        gate.quotas.charge(Resource::Cpu, at_ms(0), 50_000_000, |_, _| ());
        gate.judge(true, at_ms(0));
        assert!(Stage::ALL.into_iter().all(|stage| gate.is_closed(stage)));
        assert_eq!(gate.until, at_ms(200), "a tenth of two workers, of which 10 ms may be used at once");
    }

    #[test]
    fn who_comes_and_goes_at_a_closed_gate_leaves_nothing_there() {
        let mut gate = gate(Quota { network_rate: 1, ..Quota::default() });
        const STAY: u32 = 100;
        let mut looks = 0;
        for index in 0..100_000 {
            gate.park(Stage::Serve, Token { index, generation: 0 }, at_ms(0));
            if index >= STAY {
                gate.one_has_ended(|parked| {
                    looks += 1;
                    matches!(parked, Parked::Connection(token, _) if token.index < STAY)
                });
            }
            assert!(gate.waiting() <= 2 * STAY as usize + 2, "{} after {index}", gate.waiting());
        }
        assert!(gate.waiting() >= STAY as usize && looks < 400_000, "{looks} looks");
    }

    #[test]
    fn who_waits_too_long_is_not_read() {
        let mut gate = gate(Quota::default());
        assert!(!gate.judge(false, at_ms(0)), "it's no quota that holds back");
        assert!(gate.is_closed(Stage::Receive) && !gate.is_closed(Stage::Serve));
        assert_eq!(gate.until, at_ms(10));
    }
}
