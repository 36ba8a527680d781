//! Connections that have nothing to do: their homes are told how far they have come, so that they go on elsewhere if this node dies. Once for each
//! rest and not for each reply: for a connection that is asked again at once nothing is said.

use std::time::Duration;

use leat_host::reactor::{Reactor, Token};
use leat_logic::time::Instant;

use super::super::{Host, Worker};
use super::Part;

/// A connection rests when nothing was asked for so long.
const REST_AFTER: Duration = Duration::from_millis(20);
/// All are looked at together, no sooner than this after the last time.
const LOOK_MIN: Duration = Duration::from_millis(10);
/// A client that hasn't acknowledged its reply is looked at less and less often, down to this.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Connections that were answered since their homes were last told of them.
pub(super) struct Resting {
    all: Vec<Rest>,
    pub(super) look_at: Instant,
}

/// One of them.
struct Rest {
    token: Token,
    due: Instant,
    pause: Duration,
}

impl Default for Resting {
    fn default() -> Resting {
        Resting { all: Vec::new(), look_at: Instant::NEVER }
    }
}

impl Resting {
    fn add(&mut self, token: Token, pause: Duration, now: Instant) {
        let due = now.after(pause);
        self.all.push(Rest { token, due, pause });
        self.look_at = self.look_at.min(due);
    }
}

impl<H: Host> Worker<H> {
    /// A reply has ended: the connection may rest now.
    pub(in crate::worker) fn may_rest(&mut self, token: Token) {
        let Some(Part::Node(node)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        let is_known = std::mem::replace(&mut self.connections[token].flags.may_rest, true);
        if !is_known {
            node.resting.add(token, REST_AFTER, self.now);
        }
    }

    /// Tells homes of the connections that rest, if it's time to look.
    pub(super) fn tell_of_rests(&mut self) {
        let Some(Part::Node(node)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        if self.now < node.resting.look_at {
            return;
        }
        let due: Vec<Rest> = node.resting.all.extract_if(.., |rest| rest.due <= self.now).collect();
        for rest in due {
            self.tell_of_rest(rest);
        }
        if let Some(Part::Node(node)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) {
            let first = node.resting.all.iter().map(|rest| rest.due).min();
            node.resting.look_at = first.map_or(Instant::NEVER, |due| due.max(self.now.after(LOOK_MIN)));
        }
        self.flush_links();
    }

    fn tell_of_rest(&mut self, Rest { token, pause, .. }: Rest) {
        if self.connections.token(token.index) != Some(token) {
            return;
        }
        self.connections[token].flags.may_rest = false;
        if self.is_at_work(token) || self.is_lent(token) {
            return;
        }
        let connection = &self.connections[token];
        let rested = connection.http.export(self.now).elapsed;
        // What the client hasn't acknowledged, a reply that was told of may still account for.
        let is_known_to_client = self.reactor.unacknowledged_bytes(connection.socket) == 0;
        if rested >= REST_AFTER && is_known_to_client {
            self.tell_progress(token, None, None);
            self.metrics.rests_told.increment();
            return;
        }
        // Asked meanwhile: it begins anew.
        let pause = if rested < pause { REST_AFTER } else { (pause * 2).min(PAUSE_MAX) };
        self.connections[token].flags.may_rest = true;
        if let Some(Part::Node(node)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) {
            node.resting.add(token, pause, self.now);
        }
    }

    /// Whether something is asked or going on: then the end of the next reply is time enough to look again.
    fn is_at_work(&self, token: Token) -> bool {
        let connection = &self.connections[token];
        let (flags, flows) = (connection.flags, self.cluster.as_ref().map(|cluster| &cluster.flows));
        let is_leaving = flows.is_none_or(|flows| flows.at(token).is_none_or(|flow| flows.is_freezing(flow)));
        let is_between = connection.http.is_idle() && connection.exchange.is_none() && connection.inbox.is_empty();
        !is_between || is_leaving || flags.closing || flags.ended || flags.sending
    }
}
