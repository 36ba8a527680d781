//! Flows of which a home has nothing but their steering entries: until when a node may say that it has one, and what becomes of those that none has.

use std::collections::VecDeque;

use super::super::FlowId;
use super::super::effect::CutReason;
use super::{Holder, Home, Life};
use crate::time::Instant;

/// See the module.
#[derive(Debug)]
pub(super) struct Claims {
    /// When all are given up that no node has claimed.
    end: Instant,
    /// Flows that their node doesn't have any more, and when they're given up, the oldest first.
    denied: VecDeque<(Instant, FlowId)>,
}

impl Default for Claims {
    fn default() -> Claims {
        Claims { end: Instant::NEVER, denied: VecDeque::new() }
    }
}

impl Claims {
    /// Nodes may claim until then, or longer.
    pub(super) fn last_until(&mut self, until: Instant) {
        self.end = if self.end == Instant::NEVER { until } else { self.end.max(until) };
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        self.end.min(self.denied.front().map_or(Instant::NEVER, |&(until, _)| until))
    }
}

impl Home {
    /// A node in that life has said all that it holds. If it's of its node's only process, what that node is thought to have beyond that was with a process that
    /// has ended: its clients needn't wait for as long as a link that is slow to come back may take. But others may want to return some of it still.
    pub(super) fn hear_denials(&mut self, now: Instant, life: Life) {
        if !self.nodes.is_only(life) {
            return;
        }
        let until = now.after(self.lease_as_seen_here());
        let unclaimed = self.flows_where(|record| record.holder == Holder::Unclear(Some(life.0)));
        self.claims.denied.extend(unclaimed.into_iter().map(|flow| (until, flow)));
    }

    pub(super) fn end_claims(&mut self, now: Instant) {
        while let Some(&(until, flow)) = self.claims.denied.front()
            && until <= now
        {
            self.claims.denied.pop_front();
            self.give_up_unclaimed(flow);
        }
        if self.claims.end <= now {
            self.claims.end = Instant::NEVER;
            for flow in self.flows_where(|record| matches!(record.holder, Holder::Unclear(_))) {
                self.give_up_unclaimed(flow);
            }
        }
    }

    fn give_up_unclaimed(&mut self, flow: FlowId) {
        match self.flows.get(&flow) {
            Some(record) if !matches!(record.holder, Holder::Unclear(_)) => {}
            // A node has returned what it had of it.
            Some(record) if record.image.is_some() => self.begin_recovery(flow),
            Some(_) => self.cut(flow, CutReason::LostOnTheWay),
            None => {}
        }
    }
}
