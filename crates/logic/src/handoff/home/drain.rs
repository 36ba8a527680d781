//! Which flows are asked for when nodes are to be emptied, or when nothing is known of what they have, and how many at a time: as many as keep givers and takers busy, and no more than these have room
//! for. Whose turn it is to be emptied is the caller's to say.

use std::collections::VecDeque;
use std::time::Duration;

use super::super::message::RecallTerms;
use super::super::{FlowId, ServerId};
use super::{Flow, Holder, Home};
use crate::time::Instant;

/// By then a flow that hasn't come back is taken for one in the middle of a reply that can't move, and no other waits for it. All flows are looked through no
/// more often: there may be a million, and few that can't move.
const PATIENCE: Duration = Duration::from_millis(100);

/// What has been asked for, and what will be.
#[derive(Debug, Default)]
pub(super) struct Recalls {
    /// Found when all flows were last looked through, and not asked for since.
    waiting: VecDeque<FlowId>,
    look_at: Instant,
    /// On their way, and how long each may be.
    out: VecDeque<(Instant, FlowId)>,
    /// Flows from before this home's start. Of none of them there is an image: if their nodes died they'd be cut.
    unseen: VecDeque<FlowId>,
}

impl Recalls {
    pub(super) fn add_unseen(&mut self, flow: FlowId) {
        self.unseen.push_back(flow);
    }
}

impl Home {
    /// Asks nodes for flows back, as for a drain, each on the terms that `asked` gives if it's to be asked at all: for so many that `most` are on their way,
    /// first for those that haven't been asked for. What nobody took stays where it was, and is asked for again. False when it's seen that none are left.
    pub fn recall_some(&mut self, now: Instant, asked: impl Fn(ServerId) -> Option<RecallTerms>, most: usize) -> bool {
        let mut recalls = std::mem::take(&mut self.recalls);
        let is_out = |flow: &FlowId| self.flows.get(flow).is_some_and(Flow::is_on_its_way);
        recalls.out.retain(|(until, flow)| now < *until && is_out(flow));
        let mut is_left = true;
        if recalls.waiting.is_empty() && recalls.out.len() < most && now >= recalls.look_at {
            recalls.look_at = now.after(PATIENCE);
            (recalls.waiting, is_left) = self.find_held(&asked);
        }
        while recalls.out.len() < most
            && let Some(flow) = recalls.waiting.pop_front()
        {
            if let Some(terms) = self.flows.get(&flow).and_then(|record| record.terms(&asked)) {
                self.recall(flow, terms);
                recalls.out.push_back((now.after(PATIENCE), flow));
            }
        }
        self.recalls = recalls;
        is_left
    }

    /// Asks for so many flows from before this home's start, each when it's at rest: it may be left where it is, and there's an image of it then. Whether
    /// others are left.
    pub fn recall_unseen(&mut self, most: usize) -> bool {
        for _ in 0..most.min(self.recalls.unseen.len()) {
            let Some(flow) = self.recalls.unseen.pop_front() else { break };
            match self.flows.get(&flow).filter(|record| record.image.is_none()).map(|record| record.holder) {
                // Its node hasn't said yet that it has it.
                Some(Holder::Unclear(_)) => self.recalls.unseen.push_back(flow),
                Some(Holder::Node { recalled: None, .. }) => self.recall(flow, RecallTerms::AtRest),
                _ => {}
            }
        }
        !self.recalls.unseen.is_empty()
    }

    /// Time is over: forgets the flows that haven't come back, but for what such nodes have. Nobody speaks to their clients any more, who are to be told by the
    /// caller: which flows.
    pub fn give_up(&mut self, is_kept: impl Fn(ServerId) -> bool) -> Vec<FlowId> {
        let has_socket = |record: &Flow| matches!(record.holder, Holder::Here | Holder::Freezing(_));
        let away = self.flows_where(|record| !has_socket(record) && !record.is_at_any(&is_kept));
        away.iter().for_each(|&flow| self.forget(flow));
        self.counters.cut += away.len() as u64;
        away
    }

    /// Whether nothing is on its way that would be lost with this process: a socket that is being frozen, offered or made here, or an image whose place is
    /// being looked for. What nodes have they will tell whoever follows, and what begins there without having been here, too.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.flows.values().all(|record| match record.holder {
            Holder::Here | Holder::Node { .. } | Holder::Unclear(_) => true,
            Holder::Offered { .. } => record.is_unheard_birth(),
            Holder::Freezing(_) | Holder::Held | Holder::Thawing | Holder::Recovering => false,
        })
    }

    /// Whether a flow lives here, and nobody is about to have it.
    #[must_use]
    pub fn is_here(&self, flow: FlowId) -> bool {
        self.flows.get(&flow).is_some_and(|record| record.holder == Holder::Here)
    }

    /// The flows whose sockets here are about to be frozen: they may still stay.
    #[must_use]
    pub fn freezing(&self) -> Vec<FlowId> {
        self.flows_where(|record| matches!(record.holder, Holder::Freezing(_)))
    }

    /// The flows that such nodes hold: those that haven't been asked for, if there are any. And whether any are there, or may arrive.
    fn find_held(&self, asked: &impl Fn(ServerId) -> Option<RecallTerms>) -> (VecDeque<FlowId>, bool) {
        let (mut fresh, mut stale, mut is_left) = (VecDeque::new(), VecDeque::new(), false);
        for (&flow, record) in &self.flows {
            if record.terms(asked).is_some() {
                if record.is_on_its_way() { &mut stale } else { &mut fresh }.push_back(flow);
            }
            is_left |= record.is_at_any(&|node| asked(node).is_some());
        }
        // Replies that can't move are waited for; a recall that came to nothing is repeated.
        (if fresh.is_empty() { stale } else { fresh }, is_left)
    }
}

impl Flow {
    /// Whether its node has been asked for it, or it has come back and isn't settled.
    fn is_on_its_way(&self) -> bool {
        matches!(
            self.holder,
            Holder::Node { recalled: Some(_), .. }
                | Holder::Held
                | Holder::Thawing
                | Holder::Offered { own: false, .. }
        )
    }

    /// On which terms it's to be asked for. A node that has been asked for it at rest gives it back by itself.
    fn terms(&self, asked: &impl Fn(ServerId) -> Option<RecallTerms>) -> Option<RecallTerms> {
        let Holder::Node { life, recalled, .. } = self.holder else { return None };
        let is_coming = recalled == Some(RecallTerms::AtRest);
        asked(life.0).filter(|terms| !(is_coming && *terms == RecallTerms::AtRest))
    }
}
