//! One process of a node follows another, as in an upgrade: what the one that ends gives back to its home, and what goes to the other, socket and all. Decides
//! when either may be; how the home takes it is `home`'s to say.

use super::super::effect::Effect;
use super::super::message::Message;
use super::super::{FlowId, Generation};
use super::{Flow, Node, Phase};
use crate::time::Instant;

impl Node {
    /// This process ends, at `end` at the latest: it drains, and gives back what it has until it has nothing. One that is followed stays as it is until its home
    /// can give the other process what is new, so that its node is never without one; half of the time is for giving back, whatever its home says.
    pub fn leave(&mut self, now: Instant, is_followed: bool, end: Instant) {
        let patience = self.limits.follower_timeout.min(end.since(now) / 2);
        self.leaves_at = self.leaves_at.min(if is_followed { now.after(patience) } else { now });
    }

    /// Whether nothing keeps a process that ends: its home knows that, and what has become of all that was here.
    #[must_use]
    pub fn has_left(&self) -> bool {
        let is_known = self.is_draining && self.drain_told.is_none() && self.ended.is_empty();
        self.flows.is_empty() && (self.session.is_none() || is_known)
    }

    pub(super) fn is_waiting_to_leave(&self) -> bool {
        self.leaves_at != Instant::NEVER && !self.is_draining
    }

    /// What has begun, or was left here, since it gave back what it had, goes as well.
    pub(super) fn give_back_all(&mut self, now: Instant) {
        self.leaves_at = now.after(self.limits.give_back_pause);
        if !self.is_draining {
            self.drain(true);
            if !self.recalled.is_empty() {
                self.effects.push_back(Effect::AcceptAll);
            }
        }
        let live: Vec<FlowId> = self.live_flows().collect();
        live.into_iter().for_each(|flow| self.give_back(flow));
    }

    /// Whether a live flow, also one that is to be frozen, may go to the process that follows this one, socket and all, or is on its way there: its home
    /// listens to that, and has heard all that this one has to say of it.
    #[must_use]
    pub fn may_pass(&self, now: Instant, flow: FlowId) -> bool {
        let is_heard = self.may_pass && self.is_draining && self.drain_told.is_none() && !self.is_fenced(now);
        self.flows.get(&flow).is_some_and(|record| match record.phase {
            Phase::Passing => true,
            Phase::Live | Phase::Freezing => is_heard && !record.is_lent,
            Phase::Taking | Phase::Returning(_) => false,
        })
    }

    /// A flow's socket goes to the process that follows; this one says nothing more of it, until its home has heard that one, or it stays after all. Returns
    /// under which generation.
    pub fn pass(&mut self, flow: FlowId) -> Option<Generation> {
        let record = self.flows.get_mut(&flow)?;
        (record.phase, record.asked) = (Phase::Passing, None);
        Some(record.generation)
    }

    /// It doesn't go there after all.
    pub fn stay(&mut self, flow: FlowId) {
        if let Some(record) = self.flows.get_mut(&flow).filter(|record| record.phase == Phase::Passing) {
            record.phase = Phase::Live;
        }
    }

    /// A flow has come here from another process of this node, socket and all, or back from there.
    pub fn take_over(&mut self, now: Instant, flow: FlowId, generation: Generation) {
        if self.flows.get(&flow).is_some_and(|record| record.generation == generation) {
            return self.stay(flow);
        }
        self.lease_until = self.lease_until.max(now);
        self.flows.insert(flow, Flow::new(generation, Phase::Live, false));
        self.send(Message::Taken { flow, generation });
    }
}
