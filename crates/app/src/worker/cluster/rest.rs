//! Connections that have nothing to do: their homes are told how far they have come, so that they go on elsewhere if this node dies. Once for each
//! rest and not for each reply: for a connection that is asked again at once nothing is said.

use std::time::Duration;

use leat_host::reactor::{Reactor, Token};
use leat_logic::time::Instant;

use super::super::{Host, Worker};
use super::Part;

/// A connection rests when nothing was asked for so long.
const REST_AFTER: Duration = Duration::from_millis(100);

/// Connections that were answered since their homes were last told of them.
pub(super) struct Resting {
    tokens: Vec<Token>,
    pub(super) look_at: Instant,
}

impl Default for Resting {
    fn default() -> Resting {
        Resting { tokens: Vec::new(), look_at: Instant::NEVER }
    }
}

impl<H: Host> Worker<H> {
    /// A reply has ended: the connection may rest now.
    pub(in crate::worker) fn may_rest(&mut self, token: Token) {
        let Some(Part::Node(node)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        let is_known = std::mem::replace(&mut self.connections[token].flags.may_rest, true);
        if !is_known {
            node.resting.tokens.push(token);
            node.resting.look_at = node.resting.look_at.min(self.now.after(REST_AFTER));
        }
    }

    /// Tells homes of the connections that rest, if it's time to look.
    pub(super) fn tell_of_rests(&mut self) {
        let Some(Part::Node(node)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        if self.now < node.resting.look_at {
            return;
        }
        node.resting.look_at = Instant::NEVER;
        for token in std::mem::take(&mut node.resting.tokens) {
            if self.connections.token(token.index) != Some(token) {
                continue;
            }
            self.connections[token].flags.may_rest = false;
            if self.is_at_work(token) || self.is_lent(token) {
                continue;
            }
            let connection = &self.connections[token];
            // What the client hasn't acknowledged, a reply that was told of may still account for.
            let is_known_to_client = self.reactor.unacknowledged_bytes(connection.socket) == 0;
            if is_known_to_client && connection.http.export(self.now).elapsed >= REST_AFTER {
                self.tell_progress(token, None);
                self.metrics.rests_told.increment();
            } else {
                self.may_rest(token);
            }
        }
        self.flush_links();
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
