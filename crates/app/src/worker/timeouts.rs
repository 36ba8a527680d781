//! Time-outs: nothing is armed for a connection. A sweep looks at all of them when the earliest could be due, which costs a few nanoseconds for
//! each and nothing for each request.

use std::time::Duration;

use leat_host::reactor::Reactor;
use leat_logic::http::{Expired, Status};
use leat_logic::time::Instant;

use super::{Host, Stage, Worker};

/// The shortest time between two sweeps.
const SWEEP_PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest: other things are looked at too.
const SWEEP_PAUSE_MAX: Duration = Duration::from_secs(1);
/// How often a slow client's acknowledgements are looked at before the last bytes of a file go out.
pub(super) const ACKNOWLEDGED_CHECK: Duration = Duration::from_millis(20);
/// An idle connection of a draining worker, or of an address that has gone from the configuration, is closed after so long without a request.
const DRAIN_IDLE: Duration = Duration::from_millis(500);

impl<H: Host> Worker<H> {
    /// How long the reactor may wait.
    pub(super) fn time_to_next_timeout(&self) -> Option<Duration> {
        let next = self.sweep_at.min(self.flush_at).min(self.holds.next()).min(self.looks.next).min(self.next_gate());
        let next = next.min(self.programs.look_at).min(self.cluster_timeout()).min(self.ports_timeout());
        let next = next.min(self.room.next()).min(self.late.next());
        (next != Instant::NEVER).then(|| next.since(self.now))
    }

    /// The shortest time in which anything can time out, so that no connection that comes after a sweep is missed before the next.
    fn sweep_pause(&self) -> Duration {
        let shortest = self
            .sites
            .iter()
            .flat_map(|site| {
                let limits = &site.limits;
                [limits.head_timeout, limits.idle_timeout, limits.stall_timeout, limits.linger_timeout]
            })
            .min();
        shortest.unwrap_or(SWEEP_PAUSE_MAX).clamp(SWEEP_PAUSE_MIN, SWEEP_PAUSE_MAX)
    }

    /// Looks at every connection.
    pub(super) fn handle_timeouts(&mut self) {
        let mut next = self.now.after(self.sweep_pause());
        for index in 0..self.connections.slots() as u32 {
            let Some(token) = self.connections.token(index) else { continue };
            let due = self.handle_connection_timeout(token);
            next = next.min(due);
        }
        next = next.min(self.handle_relay_timeouts()).min(self.pass_all());
        if let Some(drain) = self.drain {
            next = next.min(drain.deadline).min(self.end_births());
            if self.now >= drain.deadline {
                self.forget_arrivals();
                self.give_up_what_is_away();
            }
        }
        if let Some(retiring) = &self.retiring {
            let (accept_until, deadline) = (retiring.accept_until, retiring.deadline);
            // Flows come back, or end, when that can be: nothing presses, as the process lives on.
            let deadline =
                if self.has_flows_of_its_own() { deadline.max(self.now.after(SWEEP_PAUSE_MAX)) } else { deadline };
            next = next.min(if self.now < accept_until { accept_until } else { deadline });
            if self.now >= accept_until {
                self.accept_last_births();
                self.end_accepting();
            }
            if self.now >= deadline && self.drain.is_none() {
                let deadline = self.now.after(self.config.limits.drain_timeout);
                self.drain = Some(super::Drain { deadline, keep_idle: true, since: self.now });
                self.give_up_flows(|_| false);
            }
        }
        if self.listeners.iter().any(|listening| !listening.accepting && listening.state.is_open()) {
            self.resume_accepting();
        }
        let closes_at = self.close_retired_listeners();
        self.sweep_at = next.max(self.now.after(SWEEP_PAUSE_MIN)).min(closes_at);
    }

    /// Deals with one connection's time-outs; returns when to look again.
    fn handle_connection_timeout(&mut self, token: leat_host::reactor::Token) -> Instant {
        let connection = &mut self.connections[token];
        if connection.flags.closing {
            return Instant::NEVER;
        }
        if let Some(drain) = self.drain
            && self.now >= drain.deadline
        {
            match connection.http.is_idle() && connection.inbox.is_empty() {
                true => self.close(token),
                false => self.cut(token),
            }
            return Instant::NEVER;
        }
        if self.cluster.is_some() {
            self.tell_when_tagged(token);
        }
        let connection = &mut self.connections[token];
        let mut acknowledged_check = Instant::NEVER;
        if let Some(exchange) = connection.exchange.as_mut()
            && exchange.awaits_acknowledgement
        {
            if self.reactor.unacknowledged_bytes(connection.socket) == 0 {
                exchange.awaits_acknowledgement = false;
                exchange.blocked_since = None;
                self.queue(Stage::Transmit, token);
                return Instant::NEVER;
            }
            acknowledged_check = self.now.after(ACKNOWLEDGED_CHECK);
        }
        let run_due = match connection.exchange.as_ref().is_some_and(|exchange| exchange.run.is_some()) {
            true => self.handle_run_timeout(token),
            false => Instant::NEVER,
        };
        let acknowledged_check = acknowledged_check.min(run_due);
        let goes_home = self.goes_home(token);
        let ends_since = match self.drain {
            Some(drain) => (!drain.keep_idle).then_some(drain.since),
            None => self.gone_since(token),
        };
        let connection = &mut self.connections[token];
        let limits = &self.sites[connection.site as usize].limits;
        let mut due = match connection.awaits_us() {
            // Nothing tells that the client has gone: what it sent last may lie for as long as a connection may be idle.
            true if connection.flags.unread => {
                let left = limits.idle_timeout.saturating_sub(self.reactor.since_arrival(connection.socket));
                connection.http.poll_timeout(limits).max(self.now.after(left))
            }
            true => Instant::NEVER,
            false => connection.http.poll_timeout(limits),
        };
        if let Some(since) = ends_since
            && connection.http.is_idle()
            && connection.inbox.is_empty()
            && !goes_home
        {
            due = due.min(since.after(DRAIN_IDLE));
            if self.now >= due {
                self.close(token);
                return Instant::NEVER;
            }
        }
        if self.now < due {
            return due.min(acknowledged_check);
        }
        if let Some(exchange) = connection.exchange.as_mut()
            && exchange.has_been_read_of(self.reactor.unacknowledged_bytes(connection.socket))
        {
            connection.http.handle_transmit_progress(self.now);
            return connection.http.poll_timeout(limits).min(acknowledged_check);
        }
        match connection.http.handle_timeout(self.now, limits) {
            None => return due,
            Some(expired) => self.end_expired(token, expired),
        }
        Instant::NEVER
    }

    /// A connection's time is up.
    pub(super) fn end_expired(&mut self, token: leat_host::reactor::Token, expired: Expired) {
        let connection = &mut self.connections[token];
        match expired {
            Expired::Idle if connection.http.is_lingering() => self.finish(token),
            Expired::Idle | Expired::Linger => self.close(token),
            Expired::Stalled => {
                self.metrics.stalled.increment();
                self.cut(token);
            }
            // Its turn to gather hasn't come.
            Expired::Late(_) if connection.flags.unread && connection.exchange.is_some() => {
                connection.inbox.clear(&mut self.reactor);
                self.fail_run_later(token, Status::SERVICE_UNAVAILABLE);
            }
            Expired::Late(rejection) if connection.exchange.is_some() => {
                connection.inbox.clear(&mut self.reactor);
                self.refuse_content(token, rejection);
            }
            Expired::Late(rejection) => {
                self.begin_refusal(token, rejection.reason);
                self.reply_rejection(token, rejection);
            }
        }
    }

    /// Whether everything that a drain waits for has ended.
    pub(super) fn is_drained(&self) -> bool {
        let leaving = match &self.retiring {
            // Whoever has connected by then has been let in.
            Some(retiring) => {
                self.now >= retiring.accept_until && !self.listeners.iter().any(|listening| listening.state.is_open())
            }
            None => self.drain.is_some(),
        };
        leaving
            && self.connections.len() == 0
            && self.ports.len() == 0
            && !self.streams.are_cut()
            && self.passages.are_settled()
            && self.has_left_to_peer()
            && self.has_left_routers()
            && self.has_taken_home()
            && (self.has_left_peers() && self.has_left_homes()
                || self.drain.is_some_and(|drain| self.now >= drain.deadline))
            && (self.retiring.is_none() || self.drain.is_some() || self.has_left_cluster())
    }
}
