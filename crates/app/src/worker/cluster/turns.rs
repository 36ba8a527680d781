//! Connections that change hands by the many while nobody waits for them, as idle ones of a node that drains: each has its turn in the tree, so that
//! requests being served have theirs. Decides nothing about them: `flows` takes them apart and puts them together.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use leat_logic::handoff::{FlowId, Image};
use leat_logic::schedule::{Cost, LeafId, Share};
use leat_logic::time::Instant;

use super::super::{Event, Host, Task, Worker};
use super::{Cluster, Part};
use crate::worker::BELL;

/// Taken at one turn: some hundred microseconds' work, and what is said of them shares a write.
const TURN_COUNT: usize = 8;

/// Requests are taken to wait for turns for so long after the last: those of a drain come by some hundred at a time, with pauses.
const HELD_UP: Duration = Duration::from_millis(500);

/// What is to be done with a flow when its turn comes.
enum Turn {
    Freeze,
    Thaw(Box<Image>),
}

/// See the module.
#[derive(Default)]
pub(super) struct Turns {
    order: VecDeque<FlowId>,
    /// Of those in order the ones that are still to be touched.
    wanted: BTreeMap<FlowId, Turn>,
    /// Whether an event of theirs is in the tree.
    is_queued: bool,
    leaf: Option<LeafId>,
    /// Until when requests that wait are taken to wait for turns.
    held_up_until: Option<Instant>,
}

impl Turns {
    fn add(&mut self, flow: FlowId, turn: Turn) {
        if self.wanted.insert(flow, turn).is_none() {
            self.order.push_back(flow);
        }
    }

    /// A flow isn't to be touched any more.
    pub(super) fn remove(&mut self, flow: FlowId) {
        self.wanted.remove(&flow);
    }

    pub(super) fn len(&self) -> usize {
        self.wanted.len()
    }

    /// Whether the next one is given away: that adds to what waits for a link.
    fn next_is_freeze(&mut self) -> bool {
        while let Some(flow) = self.order.front() {
            match self.wanted.get(flow) {
                Some(turn) => return matches!(turn, Turn::Freeze),
                None => drop(self.order.pop_front()),
            }
        }
        false
    }

    fn next(&mut self) -> Option<(FlowId, Turn)> {
        loop {
            let flow = self.order.pop_front()?;
            if let Some(turn) = self.wanted.remove(&flow) {
                return Some((flow, turn));
            }
        }
    }
}

impl<F> Cluster<F> {
    /// Whether nobody waits for a flow that is given away: it's idle, and its home doesn't need it for its next request.
    fn may_wait(&mut self, flow: FlowId) -> bool {
        match &mut self.part {
            Part::Node(node) => !node.of(flow).is_some_and(|flows| flows.is_lent(flow)),
            Part::Peer(_) => true,
            Part::Home(home) => home.leaving.is_some(),
            Part::Front(_) => false,
        }
    }
}

impl<H: Host> Worker<H> {
    /// Freezes a flow's connection: when its turn comes if nobody waits for it, else as soon as it can be. What is being sent on it goes along, so that a few
    /// hundred at once would be more than a link takes; once that has begun, it's over soon.
    pub(super) fn freeze_in_turn(&mut self, flow: FlowId) {
        let Some(cluster) = &mut self.cluster else { return };
        let connection = cluster.flows.token(flow).map(|token| &self.connections[token]);
        let is_idle = connection.is_some_and(|known| known.exchange.is_none() && known.inbox.is_empty());
        // Whoever asks a peer that isn't the request's own waits.
        let is_first = !cluster.flows.is_freezing(flow) && !matches!(cluster.part, Part::Peer(_));
        if (is_idle || is_first) && cluster.may_wait(flow) {
            cluster.turns.add(flow, Turn::Freeze);
            self.queue_turns();
        } else {
            self.freeze(flow);
        }
    }

    /// Makes a connection from an image: when its turn comes if it's idle, else at once.
    pub(super) fn thaw_in_turn(&mut self, flow: FlowId, image: Image) {
        let Some(cluster) = &mut self.cluster else { return };
        if image.reply.is_none() && image.next_bytes().is_empty() && cluster.may_wait(flow) {
            cluster.turns.add(flow, Turn::Thaw(Box::new(image)));
            self.queue_turns();
        } else {
            self.thaw_now(flow, image);
        }
    }

    /// Puts their event in the tree, if there is none.
    pub(super) fn queue_turns(&mut self) {
        let Some(cluster) = &mut self.cluster else { return };
        let turns = &mut cluster.turns;
        if turns.is_queued || turns.wanted.is_empty() || turns.next_is_freeze() && cluster.links.are_loaded() {
            return;
        }
        // They are what work of an unknown site is: nobody's in particular, and with a share that nobody can take.
        let leaf = turns.leaf.or_else(|| self.tree.add_leaf(self.unknown.node, Share::default()).ok());
        let event = Event { task: Task::Handoffs, token: BELL, queued_us: self.now_us, is_unknown: false };
        turns.leaf = leaf;
        turns.is_queued = leaf.is_some_and(|leaf| self.tree.push(leaf, event).is_ok());
    }

    /// The tree has been made anew: so are their leaf and their event.
    pub(in crate::worker) fn requeue_turns(&mut self) {
        if let Some(cluster) = &mut self.cluster {
            (cluster.turns.leaf, cluster.turns.is_queued) = (None, false);
        }
        self.queue_turns();
    }

    /// Nobody waits for turns any more once there have been none for a while.
    pub(in crate::worker) fn end_hold_up(&mut self) {
        let turns = self.cluster.as_mut().map(|cluster| &mut cluster.turns);
        if turns.is_some_and(|turns| turns.held_up_until.take_if(|until| *until <= self.now).is_some()) {
            self.admission.set_held_up(false);
        }
    }

    /// A turn has come.
    pub(in crate::worker) fn take_turns(&mut self, leaf: LeafId) -> Cost {
        let before = self.host.processor_time();
        if let Some(cluster) = &mut self.cluster {
            cluster.turns.is_queued = false;
            cluster.turns.held_up_until = Some(self.now.after(HELD_UP));
        }
        self.admission.set_held_up(true);
        for _ in 0..TURN_COUNT {
            if self.cluster.as_mut().is_some_and(|it| it.turns.next_is_freeze() && it.links.are_loaded()) {
                break;
            }
            match self.cluster.as_mut().and_then(|cluster| cluster.turns.next()) {
                Some((flow, Turn::Freeze)) => self.freeze(flow),
                Some((flow, Turn::Thaw(image))) => self.thaw_now(flow, *image),
                None => break,
            }
        }
        self.run_effects();
        self.queue_turns();
        let spent = self.host.processor_time().saturating_sub(before);
        self.meter.measured(spent);
        let cost = self.meter.charge(leaf);
        self.tree.charge(leaf, cost);
        cost
    }
}

#[cfg(test)]
mod tests {
    use leat_logic::handoff::{HttpState, ServerId};

    use super::*;

    fn flow(serial: u64) -> FlowId {
        FlowId { home: ServerId(0), serial }
    }

    #[test]
    fn what_arrives_does_not_wait_for_links_behind_what_is_not_given_away_any_more() {
        let mut turns = Turns::default();
        let image = Image { flow: flow(2), tcp: None, congestion: None, http: HttpState::default(), reply: None };
        turns.add(flow(1), Turn::Freeze);
        turns.add(flow(2), Turn::Thaw(Box::new(image)));
        turns.add(flow(3), Turn::Freeze);
        assert!(turns.next_is_freeze());
        turns.remove(flow(1));
        assert!(!turns.next_is_freeze() && turns.len() == 2);
        assert!(matches!(turns.next(), Some((next, Turn::Thaw(_))) if next == flow(2)));
        assert!(turns.next_is_freeze());
        turns.remove(flow(3));
        assert!(!turns.next_is_freeze() && turns.next().is_none());
    }
}
