//! The way of an event: which node is asked next, and who pays. Knows nothing of how a policy chooses, nor of what an event is.
//!
//! **Costs.** The event that was popped last is being served until the tree is told its cost or popped again. Told in time, its leaf and
//! all nodes above take their place in the order by the true cost. Popped again first, they are charged what an event of that leaf is
//! expected to cost (an average of the last few), and the difference is made good when the cost comes. Either way, what is charged in the
//! end is exactly the sum of the costs, and an event whose cost never comes isn't free.

use super::event_queue::{EventQueues, Urgency};
use super::member::{LeafId, Refused};
use super::policy::{AnyPolicy, PolicyKind};
use super::seat::{NONE, Seat};
use super::share::{Cost, Share};
use super::usage::Uncharged;

/// Events that may be queued in a tree unless it's told otherwise.
const QUEUED_MAX_DEFAULT: u32 = 1 << 20;

pub(super) const ROOT: u32 = 0;

/// What is rarely looked at of a member.
pub(super) struct Details {
    pub(super) share: Share,
    pub(super) is_used: bool,
    pub(super) uncharged: Uncharged,
    /// What [`Tree::take_used`] has said of a leaf: events, and nanoseconds.
    pub(super) told: (u64, u64),
    /// Of a ready one, where somebody goes by it.
    pub(super) urgency: Urgency,
}

/// An event scheduling tree for events `E`: small values, as they're copied in and out.
///
/// ```
/// use leat_logic::schedule::{Cost, PolicyKind, Share, Tree};
///
/// let mut tree = Tree::new(PolicyKind::RoundRobin);
/// let send = tree.add_node(tree.root(), PolicyKind::WeightedFair, Share::default())?;
/// let site = tree.add_leaf(send, Share::weight(4))?;
/// tree.push(site, "an event").expect("the leaf is there and the tree isn't full");
/// while let Some((leaf, _event)) = tree.pop() {
///     tree.charge(leaf, Cost::from_ns(5_000));
/// }
/// # Ok::<(), leat_logic::schedule::TreeError>(())
/// ```
pub struct Tree<E> {
    /// One for each member, by index; the root is the first.
    pub(super) seats: Vec<Seat>,
    /// Alongside `seats`.
    pub(super) details: Vec<Details>,
    pub(super) policies: Vec<AnyPolicy>,
    pub(super) events: EventQueues<E>,
    /// The leaf whose event is being served, or [`NONE`].
    pub(super) serving: u32,
    /// The node that keeps what it has been charged, or [`NONE`].
    pub(super) keeper: u32,
    /// Whether any node's policy has ever gone by urgency: until then nobody looks for it.
    pub(super) is_urgent: bool,
    /// Leaves that [`Tree::take_used`] looks at.
    pub(super) stirred: Vec<u32>,
    /// Indices to be used again.
    pub(super) free_seats: Vec<u32>,
    /// Indices to be used again.
    pub(super) free_policies: Vec<u32>,
}

impl<E: Copy> Tree<E> {
    /// A tree that is only a root.
    #[must_use]
    pub fn new(policy: PolicyKind) -> Tree<E> {
        Tree::with_queued_max(policy, QUEUED_MAX_DEFAULT)
    }

    /// A tree that holds no more than `queued_max` events.
    #[must_use]
    pub fn with_queued_max(policy: PolicyKind, queued_max: u32) -> Tree<E> {
        let mut tree = Tree {
            seats: Vec::new(),
            details: Vec::new(),
            policies: Vec::new(),
            events: EventQueues::new(queued_max),
            serving: NONE,
            keeper: NONE,
            is_urgent: false,
            stirred: Vec::new(),
            free_seats: Vec::new(),
            free_policies: Vec::new(),
        };
        tree.add(NONE, Some(policy), Share::default());
        tree
    }

    /// Events waiting. One that is being served isn't among them.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len() as usize
    }

    /// Events waiting at a leaf; none at one that has been removed.
    #[inline]
    #[must_use]
    pub fn queued(&self, leaf: LeafId) -> usize {
        if self.is_current(leaf) { self.seats[leaf.index as usize].queue.len as usize } else { 0 }
    }

    /// Events of a leaf that have been served, and what they and all else at the leaf was charged, in nanoseconds.
    #[must_use]
    pub fn served(&self, leaf: LeafId) -> (u64, u64) {
        if !self.is_current(leaf) {
            return (0, 0);
        }
        let seat = &self.seats[leaf.index as usize];
        (seat.served, seat.charged_ns)
    }

    /// Whether no event is waiting.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.len() == 0
    }

    /// Queues `event` behind what `leaf` has. The event comes back if the leaf has been removed or the tree is full.
    #[inline]
    pub fn push(&mut self, leaf: LeafId, event: E) -> Result<(), Refused<E>> {
        self.push_with(leaf, event, || Urgency::NONE)
    }

    /// As [`Tree::push`], and says how urgent the event is, should anybody go by it.
    #[inline]
    pub fn push_with(&mut self, leaf: LeafId, event: E, urgency: impl FnOnce() -> Urgency) -> Result<(), Refused<E>> {
        if self.is_urgent {
            return self.push_urgent(leaf, event, Some(urgency()));
        }
        let Some(seat) = self.seats.get_mut(leaf.index as usize).filter(|seat| seat.generation == leaf.generation)
        else {
            return Err(Refused(event));
        };
        self.events.append(&mut seat.queue, event).map_err(Refused)?;
        if !seat.pending {
            self.stir(leaf.index);
            self.wake(leaf.index);
        }
        Ok(())
    }

    /// As [`Tree::push`], before what `leaf` has: the rest of what was begun. It's as urgent as the event that was popped last: where somebody goes
    /// by that, it's before those that are no more urgent.
    pub fn push_first(&mut self, leaf: LeafId, event: E) -> Result<(), Refused<E>> {
        if self.is_urgent {
            return self.push_urgent(leaf, event, None);
        }
        let Some(seat) = self.seats.get_mut(leaf.index as usize).filter(|seat| seat.generation == leaf.generation)
        else {
            return Err(Refused(event));
        };
        self.events.prepend(&mut seat.queue, event).map_err(Refused)?;
        if !seat.pending {
            self.stir(leaf.index);
            self.wake(leaf.index);
        }
        Ok(())
    }

    /// As [`Tree::push_with`] where somebody goes by urgency; as [`Tree::push_first`] without one.
    #[cold]
    #[inline(never)]
    fn push_urgent(&mut self, leaf: LeafId, event: E, urgency: Option<Urgency>) -> Result<(), Refused<E>> {
        if !self.is_current(leaf) {
            return Err(Refused(event));
        }
        let parent = self.seats[leaf.index as usize].parent;
        let policy = &self.policies[self.seats[parent as usize].policy as usize];
        // A leaf is in its parent's order, or first come, first served.
        let key = |urgency| policy.urgency_key(urgency).unwrap_or(0);
        let queue = &mut self.seats[leaf.index as usize].queue;
        let queued = match urgency {
            Some(urgency) => self.events.insert(queue, event, urgency, key(urgency)),
            None => self.events.insert_again(queue, event, key),
        };
        queued.map_err(Refused)?;
        self.stir(leaf.index);
        self.wake_urgent(leaf.index);
        Ok(())
    }

    /// Something is queued at a leaf that had nothing, or it's charged without an event.
    #[inline]
    fn stir(&mut self, leaf: u32) {
        if !std::mem::replace(&mut self.seats[leaf as usize].is_stirred, true) {
            self.stirred.push(leaf);
        }
    }

    /// Tells the nodes above a member that has become ready, up to the first that knew of other events.
    #[inline(never)]
    fn wake(&mut self, mut child: u32) {
        let seats = self.seats.as_mut_slice();
        loop {
            let seat = &mut seats[child as usize];
            let parent = seat.parent;
            if seat.pending || parent == NONE {
                return;
            }
            seat.pending = true;
            let policy = seats[parent as usize].policy;
            self.policies[policy as usize].ready(seats, child);
            child = parent;
        }
    }

    /// As [`Tree::wake`], and goes on to the top: nodes may be more urgent than before, or less.
    pub(super) fn wake_urgent(&mut self, mut child: u32) {
        loop {
            let Seat { parent, pending, key, .. } = self.seats[child as usize];
            if parent == NONE || self.is_served(child) {
                return;
            }
            let new_key = self.urgency_key(child).unwrap_or(key);
            let seat = &mut self.seats[child as usize];
            seat.pending = true;
            seat.key = new_key;
            let policy = self.seats[parent as usize].policy as usize;
            if !pending {
                self.policies[policy].ready(&mut self.seats, child);
            } else if new_key != key {
                self.policies[policy].rekey(&mut self.seats, child);
            }
            child = parent;
        }
    }

    /// Whether the event being served is of this member, so that it's not in its parent's order.
    pub(super) fn is_served(&self, member: u32) -> bool {
        let mut at = self.serving;
        while at != NONE && at != member {
            at = self.seats[at as usize].parent;
        }
        at == member && at != NONE
    }

    /// Finds out how urgent a member is: as the first event of a leaf. A node is due as early as any leaf below it, and has as little left as the one
    /// that it would serve next. Returns its key for its parent's policy, if that goes by urgency.
    fn urgency_key(&mut self, member: u32) -> Option<u64> {
        let Seat { parent, policy, queue, .. } = self.seats[member as usize];
        let urgency = match self.policies.get(policy as usize) {
            Some(policy) => {
                let mut first = None;
                policy.each_urgent(&self.seats, &mut |child| {
                    let urgency = self.details[child as usize].urgency;
                    let first = first.get_or_insert(urgency);
                    first.deadline_ns = first.deadline_ns.min(urgency.deadline_ns);
                });
                first.unwrap_or(Urgency::NONE)
            }
            None => self.events.urgency(&queue),
        };
        self.details[member as usize].urgency = urgency;
        self.policies[self.seats[parent as usize].policy as usize].urgency_key(urgency)
    }

    /// The event to run next, and its leaf, which is to be charged what it costs.
    #[inline]
    pub fn pop(&mut self) -> Option<(LeafId, E)> {
        if self.serving != NONE {
            self.put_off();
        }
        if self.is_empty() { None } else { self.descend(ROOT) }
    }

    /// The event to run next of those below a member that is being taken.
    #[inline]
    fn descend(&mut self, mut at: u32) -> Option<(LeafId, E)> {
        let seats = self.seats.as_mut_slice();
        loop {
            let seat = &mut seats[at as usize];
            let Some(policy) = self.policies.get_mut(seat.policy as usize) else {
                self.serving = at;
                let event = self.events.take(&mut seat.queue);
                return Some((LeafId { index: at, generation: seat.generation }, event));
            };
            let Some(child) = policy.take_at_once(seats) else {
                return self.descend_by_call(at);
            };
            at = child;
        }
    }

    /// As [`Tree::descend`], where a node's policy can't tell its next child at once.
    #[inline(never)]
    fn descend_by_call(&mut self, node: u32) -> Option<(LeafId, E)> {
        let policy = self.seats[node as usize].policy;
        let child = self.policies[policy as usize].take(&mut self.seats)?;
        self.descend(child)
    }

    /// Charges an event of `leaf` that has run: the one that was popped last if it is of that leaf, else one whose cost was put off, else
    /// the charge is on top of all others. A leaf that has been removed owes nothing.
    #[inline]
    pub fn charge(&mut self, leaf: LeafId, cost: Cost) {
        if leaf.index == self.serving && self.is_current(leaf) {
            self.finish(cost.ns);
        } else {
            self.settle(leaf, cost);
        }
    }

    /// Corrects what has been charged to `leaf` by `delta_ns`, for no event in particular: a measurement has shown what estimates had
    /// missed.
    pub fn correct(&mut self, leaf: LeafId, delta_ns: i64) {
        if self.is_current(leaf) {
            self.stir(leaf.index);
            self.apply(leaf.index, delta_ns);
        }
    }

    /// Moves `ns` of what has been charged to `from` to `to`, which turns out to be who it was for. Nodes above both aren't touched. What leaves a node
    /// that keeps its charges ([`Tree::keep_charges`]) is counted there no more, but neither it nor anything below it has its place in the order back.
    /// Nothing moves if one of them has been removed.
    pub fn transfer(&mut self, from: LeafId, to: LeafId, ns: u64) {
        let Some((moved_ns, both)) = self.what_moves(from, to, ns) else { return };
        if self.is_kept(from.index, both) {
            self.count(from.index, -moved_ns);
        } else {
            self.apply_below(from.index, both, -moved_ns);
        }
        self.apply_below(to.index, both, moved_ns);
    }

    /// As [`Tree::transfer`], of what had left a node that keeps its charges and comes back to it: it has its place in the order by that already.
    pub fn return_to_keeper(&mut self, from: LeafId, to: LeafId, ns: u64) {
        let Some((moved_ns, both)) = self.what_moves(from, to, ns) else { return };
        debug_assert!(self.is_kept(to.index, both), "nothing has left any other node");
        self.apply_below(from.index, both, -moved_ns);
        self.count(to.index, moved_ns);
    }

    /// What can be moved from one leaf to another, and the lowest node that both are below.
    fn what_moves(&mut self, from: LeafId, to: LeafId, ns: u64) -> Option<(i64, u32)> {
        if from == to || !self.is_current(from) || !self.is_current(to) {
            return None;
        }
        let moved_ns = ns.min(self.seats[from.index as usize].charged_ns);
        self.stir(from.index);
        self.stir(to.index);
        Some((i64::try_from(moved_ns).unwrap_or(i64::MAX), self.common_ancestor(from.index, to.index)))
    }

    /// Whether a leaf is below the node that keeps its charges, and `end` isn't.
    fn is_kept(&self, leaf: u32, end: u32) -> bool {
        self.above(leaf).take_while(|&at| at != end).any(|at| at == self.keeper)
    }

    /// A member and all that it's below.
    fn above(&self, member: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(member), |&at| Some(self.seats[at as usize].parent).filter(|&it| it != NONE))
    }

    /// The lowest node that both are below.
    fn common_ancestor(&self, one: u32, other: u32) -> u32 {
        self.above(one).find(|&at| self.above(other).any(|it| it == at)).unwrap_or(ROOT)
    }

    #[inline]
    fn is_current(&self, leaf: LeafId) -> bool {
        self.seats.get(leaf.index as usize).is_some_and(|seat| seat.generation == leaf.generation)
    }

    /// The cost of an event has come late.
    #[inline(never)]
    fn settle(&mut self, leaf: LeafId, cost: Cost) {
        if self.is_current(leaf) {
            self.stir(leaf.index);
            let advance_ns = self.details[leaf.index as usize].uncharged.settle().unwrap_or(0);
            let signed = |ns| i64::try_from(ns).unwrap_or(i64::MAX);
            self.apply(leaf.index, signed(cost.ns) - signed(advance_ns));
        }
    }

    fn apply(&mut self, leaf: u32, delta_ns: i64) {
        self.apply_below(leaf, NONE, delta_ns);
    }

    fn count(&mut self, leaf: u32, delta_ns: i64) {
        let charged_ns = &mut self.seats[leaf as usize].charged_ns;
        *charged_ns = charged_ns.saturating_add_signed(delta_ns);
    }

    /// Corrects a leaf, and all above it that are below `end`.
    fn apply_below(&mut self, leaf: u32, end: u32, delta_ns: i64) {
        self.count(leaf, delta_ns);
        let seats = self.seats.as_mut_slice();
        let mut child = leaf;
        loop {
            let parent = seats[child as usize].parent;
            if parent == NONE {
                return;
            }
            let policy = seats[parent as usize].policy;
            self.policies[policy as usize].correct(seats, child, delta_ns);
            if parent == end {
                return;
            }
            child = parent;
        }
    }

    /// Charges the event being served what it's expected to cost: its cost isn't known yet.
    #[inline(never)]
    pub(super) fn put_off(&mut self) {
        let leaf = self.serving as usize;
        let expected_ns = self.details[leaf].uncharged.advance(&self.seats[leaf]);
        self.finish(expected_ns);
    }

    /// The event being served has cost `cost_ns`: its leaf and all above take their places again.
    #[inline]
    fn finish(&mut self, cost_ns: u64) {
        let leaf = std::mem::replace(&mut self.serving, NONE);
        if self.is_urgent {
            return self.finish_urgent(leaf, cost_ns);
        }
        let is_ready = self.seats[leaf as usize].serve(cost_ns);
        self.ascend(leaf, cost_ns, is_ready);
    }

    /// A member that has been taken goes back with its cost, and all above it.
    #[inline]
    fn ascend(&mut self, mut child: u32, cost_ns: u64, mut is_ready: bool) {
        let seats = self.seats.as_mut_slice();
        loop {
            let seat = &mut seats[child as usize];
            let parent = seat.parent;
            if parent == NONE {
                return;
            }
            seat.pending = is_ready;
            let policy = seats[parent as usize].policy;
            let policy = &mut self.policies[policy as usize];
            let Some(is_any_ready) = policy.give_back_at_once(seats, child, cost_ns, is_ready) else {
                return self.ascend_by_call(child, cost_ns, is_ready);
            };
            is_ready = is_any_ready;
            child = parent;
        }
    }

    /// As [`Tree::ascend`], where the parent's policy can't take it back at once.
    #[inline(never)]
    fn ascend_by_call(&mut self, child: u32, cost_ns: u64, is_ready: bool) {
        let parent = self.seats[child as usize].parent;
        let policy = self.seats[parent as usize].policy;
        let is_ready = self.policies[policy as usize].give_back(&mut self.seats, child, cost_ns, is_ready);
        self.ascend(parent, cost_ns, is_ready);
    }

    /// As `finish`, and finds out how urgent each is by now.
    #[inline(never)]
    fn finish_urgent(&mut self, leaf: u32, cost_ns: u64) {
        let mut child = leaf;
        let mut is_ready = self.seats[child as usize].serve(cost_ns);
        loop {
            let parent = self.seats[child as usize].parent;
            if parent == NONE {
                return;
            }
            self.seats[child as usize].pending = is_ready;
            if let Some(key) = self.urgency_key(child) {
                self.seats[child as usize].key = key;
            }
            let policy = self.seats[parent as usize].policy;
            is_ready = self.policies[policy as usize].give_back(&mut self.seats, child, cost_ns, is_ready);
            child = parent;
        }
    }

    /// Gives back the memory that a burst of events took, if none is waiting now.
    pub fn release(&mut self) {
        self.events.release();
    }
}
