//! A node's process that ends. One that another follows, as in an upgrade, passes what is live here to that one, which others know as one more worker of the
//! node. Decides when the process that leaves has nothing to do with other nodes any more, and what the one that follows tells of what it has taken over.

use std::time::Duration;

use super::{Flow, Peer, Phase};
use crate::handoff::limits::HOMES_MAX;
use crate::handoff::{Ends, FlowId, Generation, Message};
use crate::time::Instant;

/// Processes of a node that may live at a time: all but one have only replies to end that can't pass.
pub const LIVES_MAX: u16 = 4;

/// Workers that one of them may have: others must be able to tell all of a node's apart.
pub const WORKERS_MAX: u16 = HOMES_MAX as u16 / LIVES_MAX;

/// How often a process that leaves looks whether it can end its links.
pub(super) const LOOK_PAUSE: Duration = Duration::from_millis(20);

impl Peer {
    /// This process ends: from now on nothing is given and nothing taken, and the links to other nodes end as soon as nothing is on its way. Those to fronts
    /// stay: what goes on here till its end, they have to know.
    pub fn leave(&mut self) {
        self.is_leaving = true;
        self.present_at = Instant::default();
    }

    /// Whether this process ends.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Whether no other node has to do with this process any more.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.is_leaving && self.sessions.values().all(|session| session.front.is_some())
    }

    /// Whether a flow can pass to the process that takes over: it's live, and no other node is to have it.
    #[must_use]
    pub fn may_pass(&self, flow: FlowId) -> bool {
        self.flows.get(&flow).is_some_and(|known| known.phase == Phase::Here)
    }

    /// A flow passes. Nobody is told: that's for the process that takes it over, which has to know under which generation it was here.
    pub fn pass(&mut self, flow: FlowId) -> Option<Generation> {
        if !self.may_pass(flow) {
            return None;
        }
        self.flows.remove(&flow).map(|known| known.generation)
    }

    /// A flow goes on here that another process of this node had, or that has come back from there: under a generation that's higher than that process's,
    /// or under its own. One that has never changed hands is nobody else's business.
    pub fn take_over(&mut self, flow: FlowId, generation: Generation, ends: Option<Ends>) {
        let ends = ends.filter(|_| generation != Generation::default());
        self.flows.insert(flow, Flow { ends, ..Flow::new(generation, Phase::Here) });
        if ends.is_some() {
            self.tell_fronts(flow);
        }
    }

    /// Tells other nodes once nothing of theirs is taken any more. What they had offered meanwhile goes on where it is, and they end the links; with a
    /// process that takes over they make new ones.
    pub(super) fn bequeath_left(&mut self) {
        if !self.is_leaving || self.flows.values().any(Flow::is_on_its_way) {
            return;
        }
        let untold = self.sessions.iter_mut().filter(|(_, known)| known.front.is_none() && !known.is_bequeathed);
        let untold = untold.map(|(session, known)| {
            known.is_bequeathed = true;
            *session
        });
        untold.collect::<Vec<_>>().into_iter().for_each(|session| self.send(session, Message::Bequeath));
    }
}
