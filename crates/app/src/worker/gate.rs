//! What a site may not do now, because it's over a quota or overloaded: its events wait beside the tree until it may. `Quotas` and `Admission`
//! decide; nothing that was begun is broken off.

use std::collections::VecDeque;

use leat_host::reactor::Token;
use leat_logic::admission::{MemoryAccount, Quotas, Rate, Resource};
use leat_logic::schedule::Cost;
use leat_logic::time::Instant;

use super::{Host, Stage, Worker};
use crate::config::{self, Config};

/// Events of one site that go on in one turn: each may use up what there is, which is seen afterwards only.
const GO_ON_MAX: usize = 16;
/// When to look again at a site that isn't read because its requests wait: it goes on by itself before that.
const READING_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);
/// What may be used at once after a pause, as a part of a second's.
const BURSTS_EACH_SECOND: u64 = 20;
/// The least that may be used at once: a few segments, and a slice of a handler.
const BURST_BYTES_MIN: u64 = 16 * 1024;
const BURST_NS_MIN: u64 = 200_000;
/// Something that waits.
#[derive(Clone, Copy, Debug)]
enum Parked {
    Connection(Stage, Token),
    Program(Token),
}

/// One site's gate.
#[derive(Debug, Default)]
pub(super) struct Gate {
    quotas: Quotas,
    /// Whether there are any.
    is_limited: bool,
    /// The stages that may not go on, one bit each.
    closed: u8,
    /// When to look again.
    until: Instant,
    /// It's in the list of those that are looked at.
    is_watched: bool,
    parked: VecDeque<Parked>,
    /// Connections that aren't received from while too much is held.
    unread: Vec<Token>,
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
        self.quotas.memory.map_or(0, |memory| memory.held())
    }

    /// Whether nothing may be received, because too much is held already.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.is_limited && self.quotas.memory.is_some_and(|memory| memory.is_paused())
    }

    #[inline]
    pub(super) fn is_limited(&self) -> bool {
        self.is_limited
    }

    pub(super) fn park(&mut self, stage: Stage, token: Token) {
        self.parked.push_back(Parked::Connection(stage, token));
    }

    pub(super) fn park_program(&mut self, token: Token) {
        self.parked.push_back(Parked::Program(token));
    }

    /// Has a connection received from when less is held again.
    pub(super) fn leave_unread(&mut self, token: Token) {
        self.unread.push(token);
    }

    /// Bytes that may be sent in one turn.
    pub(super) fn bytes_max(&self, most: usize, now: Instant) -> usize {
        if !self.is_limited {
            return most;
        }
        let available = self.quotas.available(Resource::Network, now).max(BURST_BYTES_MIN);
        usize::try_from(available).unwrap_or(most).min(most)
    }

    fn configure(&mut self, quota: Option<&config::SiteQuota>, workers: u64) {
        let held = self.held_bytes();
        self.quotas = Quotas::new();
        self.is_limited = false;
        let Some(quota) = quota else { return };
        let part = |all: u64| (all > 0).then(|| all.div_ceil(workers));
        let burst = |per_s: u64, least: u64| Rate { per_s, burst: (per_s / BURSTS_EACH_SECOND).max(least) };
        let rate = |all: u64| part(all).map(|per_s| burst(per_s, BURST_BYTES_MIN));
        self.quotas.set(Resource::Network, rate(quota.network_rate));
        self.quotas.set(Resource::Disk, rate(quota.disk_rate));
        let cpu = (quota.cpu < 100).then(|| burst(u64::from(quota.cpu) * 10_000_000, BURST_NS_MIN));
        self.quotas.set(Resource::Cpu, cpu);
        self.quotas.memory = part(quota.memory).map(|bytes| {
            let mut memory = MemoryAccount::new(bytes);
            memory.hold(held);
            memory
        });
        self.is_limited = quota.network_rate > 0 || quota.disk_rate > 0 || quota.memory > 0 || cpu.is_some();
    }

    /// Finds out what may not go on now, and when to look again.
    fn judge(&mut self, is_read: bool, now: Instant) {
        self.closed = 0;
        self.until = Instant::NEVER;
        let sending = bit(Stage::Serve) | bit(Stage::Transmit);
        for (resource, stages) in [(Resource::Cpu, ALL_STAGES), (Resource::Network, sending), (Resource::Disk, sending)]
        {
            if let Some(until) = self.quotas.blocked_until(resource, now) {
                self.closed |= stages;
                self.until = self.until.min(until);
            }
        }
        if !is_read {
            self.closed |= bit(Stage::Receive);
            self.until = self.until.min(now.after(READING_PAUSE));
        }
    }
}

impl<H: Host> Worker<H> {
    /// Puts the configured quotas in force.
    pub(super) fn arrange_gates(&mut self, config: &Config) {
        self.gates.resize_with(self.sites.len(), Gate::default);
        for (gate, site) in self.gates.iter_mut().zip(&self.sites) {
            let configured = config.sites.iter().find(|configured| configured.name == site.name);
            gate.configure(configured.map(|site| &site.quota), config.workers.max(1) as u64);
        }
    }

    /// A site with quotas has used so much for one event.
    pub(super) fn charge_quotas(&mut self, site: u32, cost: Cost, sent_bytes: u64, read_bytes: u64) {
        let quotas = &mut self.gates[site as usize].quotas;
        for (resource, amount) in
            [(Resource::Cpu, cost.ns), (Resource::Network, sent_bytes), (Resource::Disk, read_bytes)]
        {
            if amount > 0 {
                quotas.charge(resource, self.now, amount);
            }
        }
        self.judge_gate(site);
    }

    /// Finds out whether a site may go on.
    pub(super) fn judge_gate(&mut self, site: u32) {
        let is_read = self.admission.is_reading(site as usize);
        let gate = &mut self.gates[site as usize];
        gate.judge(is_read, self.now);
        if gate.closed != 0 && !std::mem::replace(&mut gate.is_watched, true) {
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
            self.judge_gate(site);
            self.go_on(site);
            let gate = &mut self.gates[site as usize];
            let is_done = gate.closed == 0 && gate.parked.is_empty();
            gate.is_watched = !is_done;
            !is_done
        });
        self.watched_gates = watched;
    }

    fn go_on(&mut self, site: u32) {
        for _ in 0..GO_ON_MAX.min(self.gates[site as usize].parked.len()) {
            let Some(parked) = self.gates[site as usize].parked.pop_front() else { return };
            match parked {
                Parked::Program(token) => self.queue_program(token),
                Parked::Connection(stage, token) => {
                    if let Some(connection) = self.connections.get(token) {
                        connection.flags.queued = false;
                        if !connection.flags.closing {
                            self.queue(stage, token);
                        }
                    }
                }
            }
        }
    }

    /// Whether what is held for a connection must be accounted for.
    pub(super) fn is_memory_limited(&mut self, token: Token) -> bool {
        let Some(connection) = self.connections.get(token) else { return false };
        let gate = &self.gates[connection.site as usize];
        gate.is_limited && gate.quotas.memory.is_some()
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
            if let Some(memory) = &mut self.gates[site as usize].quotas.memory {
                memory.hold(u64::from(held));
            }
        }
    }

    /// Bytes of a site's are held no more; its connections may be received from again if that was too many.
    pub(super) fn release_memory(&mut self, site: u32, bytes: u32) {
        let gate = &mut self.gates[site as usize];
        let Some(memory) = &mut gate.quotas.memory else { return };
        if bytes > 0 && memory.release(u64::from(bytes)) {
            for token in std::mem::take(&mut gate.unread) {
                if let Some(connection) = self.connections.get(token) {
                    connection.flags.unread = false;
                    self.arm_receive(token);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant { ns: 1_000_000_000_000 + ms * 1_000_000 }
    }

    fn gate(quota: &config::SiteQuota) -> Gate {
        let mut gate = Gate::default();
        gate.configure(Some(quota), 2);
        gate
    }

    #[test]
    fn without_quotas_everything_goes_on() {
        let mut gate = gate(&config::SiteQuota::default());
        assert!(!gate.is_limited() && !gate.is_full());
        gate.quotas.charge(Resource::Cpu, at_ms(0), u64::MAX);
        gate.judge(true, at_ms(0));
        assert_eq!((gate.closed, gate.until), (0, Instant::NEVER));
        assert_eq!(gate.bytes_max(1_000_000, at_ms(0)), 1_000_000);
    }

    #[test]
    fn a_rate_stops_what_sends_and_nothing_else() {
        let mut gate = gate(&config::SiteQuota { network_rate: 2_000_000, ..Default::default() });
        // A worker of two has a megabyte each second, and a twentieth of it at once.
        assert_eq!(gate.bytes_max(1_000_000, at_ms(0)), 50_000);
        gate.quotas.charge(Resource::Network, at_ms(0), 150_000);
        gate.judge(true, at_ms(0));
        assert!(gate.is_closed(Stage::Serve) && gate.is_closed(Stage::Transmit));
        assert!(!gate.is_closed(Stage::Receive) && !gate.is_closed(Stage::Compute));
        assert_eq!(gate.until, at_ms(100));
        gate.judge(true, at_ms(100));
        assert_eq!(gate.closed, 0);
    }

    #[test]
    fn processor_time_stops_everything() {
        let mut gate = gate(&config::SiteQuota { cpu: 10, ..Default::default() });
        gate.quotas.charge(Resource::Cpu, at_ms(0), 25_000_000);
        gate.judge(true, at_ms(0));
        assert!(Stage::ALL.into_iter().all(|stage| gate.is_closed(stage)));
        assert_eq!(gate.until, at_ms(200), "a tenth of a worker, of which 5 ms may be used at once");
    }

    #[test]
    fn who_waits_too_long_is_not_read() {
        let mut gate = gate(&config::SiteQuota::default());
        gate.judge(false, at_ms(0));
        assert!(gate.is_closed(Stage::Receive) && !gate.is_closed(Stage::Serve));
        assert_eq!(gate.until, at_ms(10));
    }
}
