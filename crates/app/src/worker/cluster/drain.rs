//! A dispatcher's: what nodes have that are being emptied, or of a home that is to go or has begun anew, is asked for, not all of it at once.

use std::time::Duration;

use leat_logic::handoff::{FlowId, RecallTerms, ServerId};
use leat_logic::time::Instant;
use serde_json::Value;

use super::home::Home;
use crate::ctl;

/// Connections of draining nodes that are on their way at a time, and the time until more are asked for.
const RECALL_COUNT: usize = 512;
const RECALL_PAUSE: Duration = Duration::from_millis(5);
const ARRIVAL_PAUSE: Duration = Duration::from_millis(200);

/// Connections from before a home's start that are looked at at a time, and the time until more are: few beside what clients ask for meanwhile.
const UNSEEN_COUNT: usize = 16;
const UNSEEN_PAUSE: Duration = Duration::from_millis(20);

impl Home {
    fn flows_at(&self, number: u32) -> impl Iterator<Item = FlowId> {
        self.flows.flows_of(move |server| server.server() == number)
    }

    /// Has a node that is given nothing new asked for what it has.
    pub(super) fn begin_drain(&mut self, node: &str, now: Instant) -> Value {
        let number = self.dispatcher.find(node).and_then(|node| self.number(node));
        let count = number.map_or(0, |number| self.flows_at(number).count());
        self.draining.extend(number);
        self.recall_at = now;
        ctl::drain(node, count as u64)
    }

    /// A node may have new flows again, and keeps those that it has.
    pub(super) fn end_drain(&mut self, node: &str) {
        if let Some(number) = self.dispatcher.find(node).and_then(|node| self.number(node)) {
            self.draining.remove(&number);
        }
    }

    /// Has all flows come back, as this home is to go: replies under way as well, or each once they have ended.
    pub(super) fn retire(&mut self, now: Instant, terms: RecallTerms) {
        self.retiring = Some(terms);
        self.recall_at = now;
    }

    /// Whether this worker is to go, and with it this home.
    pub(super) fn is_retiring(&self) -> bool {
        self.retiring.is_some()
    }

    /// Asks nodes for some of what they have: not for all at once, as others take only so many at a time, and there are clients to be served.
    pub(super) fn recall_some(&mut self, now: Instant) {
        let is_left = self.flows.recall_unseen(UNSEEN_COUNT);
        let unseen_at = if is_left { now.after(UNSEEN_PAUSE) } else { Instant::NEVER };
        self.recall_at = unseen_at.min(self.recall_drained(now));
    }

    /// Asks draining nodes. When to ask them next.
    fn recall_drained(&mut self, now: Instant) -> Instant {
        let Home { flows, draining, retiring, .. } = self;
        if draining.is_empty() && retiring.is_none() {
            return Instant::NEVER;
        }
        let is_draining = |server: ServerId| draining.contains(&server.server()).then_some(RecallTerms::AtOnce);
        let is_left = flows.recall_some(now, |server| is_draining(server).or(*retiring), RECALL_COUNT);
        // One that was on its way there may arrive yet.
        now.after(if is_left { RECALL_PAUSE } else { ARRIVAL_PAUSE })
    }
}
