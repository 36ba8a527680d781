//! The tree's shape: members come, go and change their share while events are queued, and can be listed with what they have used. The way
//! of an event is in `tree`.

use super::event_queue::{Queue, Urgency};
use super::member::{DEPTH_MAX, LeafId, Member, NodeId, TreeError};
use super::policy::{AnyPolicy, PolicyKind};
use super::seat::{NONE, Seat, virtual_time_of_all};
use super::share::{Cost, Share};
use super::tree::{Details, ROOT, Tree};
use super::usage::{Uncharged, Usage};

impl<E: Copy> Tree<E> {
    /// The node that everything is below.
    #[must_use]
    pub fn root(&self) -> NodeId {
        NodeId { index: ROOT, generation: self.seats[ROOT as usize].generation }
    }

    /// Adds an inner node below `parent`.
    pub fn add_node(&mut self, parent: NodeId, policy: PolicyKind, share: Share) -> Result<NodeId, TreeError> {
        let parent = self.find(parent.into())?;
        if self.depth(parent) + 1 > DEPTH_MAX {
            return Err(TreeError::TooDeep);
        }
        let index = self.add(parent, Some(policy), share);
        Ok(NodeId { index, generation: self.seats[index as usize].generation })
    }

    /// Adds a leaf below `parent`.
    pub fn add_leaf(&mut self, parent: NodeId, share: Share) -> Result<LeafId, TreeError> {
        let parent = self.find(parent.into())?;
        let index = self.add(parent, None, share);
        Ok(LeafId { index, generation: self.seats[index as usize].generation })
    }

    pub(super) fn add(&mut self, parent: u32, kind: Option<PolicyKind>, share: Share) -> u32 {
        let policy = kind.map_or(NONE, |kind| self.add_policy(kind));
        let details =
            Details { share, is_used: true, uncharged: Uncharged::default(), told: (0, 0), urgency: Urgency::NONE };
        let index = match self.free_seats.pop() {
            Some(index) => {
                let generation = self.seats[index as usize].generation;
                self.seats[index as usize] = Seat::new(parent, policy, generation, share);
                self.details[index as usize] = details;
                index
            }
            None => {
                self.seats.push(Seat::new(parent, policy, 0, share));
                self.details.push(details);
                (self.seats.len() - 1) as u32
            }
        };
        if self.is_urgent {
            self.seats[index as usize].queue = Queue::sorted(index);
        }
        if parent != NONE {
            let policy = self.seats[parent as usize].policy as usize;
            self.policies[policy].join(&mut self.seats, index);
        }
        index
    }

    fn add_policy(&mut self, kind: PolicyKind) -> u32 {
        let policy = AnyPolicy::new(kind);
        if !self.is_urgent && policy.urgency_key(Urgency::NONE).is_some() {
            self.sort();
        }
        if let Some(at) = self.free_policies.pop() {
            self.policies[at as usize] = policy;
            at
        } else {
            self.policies.push(policy);
            (self.policies.len() - 1) as u32
        }
    }

    /// Has all queues sorted from now on, what is in them included: there is a node that goes by urgency.
    fn sort(&mut self) {
        self.is_urgent = true;
        for (index, seat) in self.seats.iter_mut().enumerate() {
            let mut list = std::mem::replace(&mut seat.queue, Queue::sorted(index as u32));
            while list.len > 0 {
                let event = self.events.take(&mut list);
                // There is room: it has just been made.
                let _ = self.events.insert(&mut seat.queue, event, Urgency::NONE, 0);
            }
        }
    }

    /// Changes a member's share from now on: what it has used already was charged at the old one.
    pub fn set_share(&mut self, member: impl Into<Member>, share: Share) -> Result<(), TreeError> {
        let index = self.find(member.into())?;
        self.details[index as usize].share = share;
        let Seat { parent, pending, .. } = self.seats[index as usize];
        if parent == NONE {
            self.seats[index as usize].set_share(share);
            return Ok(());
        }
        let is_ready = pending && !self.is_served(index);
        let policy = self.seats[parent as usize].policy as usize;
        self.policies[policy].reshare(&mut self.seats, index, share, is_ready);
        Ok(())
    }

    /// Lets the children of weighted fair nodes that wake have what they were due lately and didn't want, before the others go on: as much as makes
    /// these wait no longer than `cost` in all, divided by the weights that children have now. At first it's nothing.
    pub fn set_lag_max(&mut self, nodes: impl IntoIterator<Item = NodeId>, cost: Cost) -> Result<(), TreeError> {
        let mut weights = vec![0_u64; self.seats.len()];
        for (seat, details) in self.seats.iter().zip(&self.details) {
            if details.is_used && seat.parent != NONE {
                weights[seat.parent as usize] += u64::from(details.share.weight);
            }
        }
        for node in nodes {
            let index = self.find(node.into())? as usize;
            let policy = self.seats[index].policy as usize;
            self.policies[policy].set_lag_max(virtual_time_of_all(cost.ns, weights[index]));
        }
        Ok(())
    }

    /// Has a node, one of a tree, and all below it keep their places in the order when what was charged there is moved to others: who pays in the end is
    /// then charged beside it. Else one whose costs are all moved away would come before all others for as long as it has something to do.
    pub fn keep_charges(&mut self, node: NodeId) -> Result<(), TreeError> {
        self.keeper = self.find(node.into())?;
        Ok(())
    }

    /// Removes a member and all below it; what was queued comes back, each leaf's events in their order.
    pub fn remove(&mut self, member: impl Into<Member>) -> Result<Vec<(LeafId, E)>, TreeError> {
        let index = self.find(member.into())?;
        if index == ROOT {
            return Err(TreeError::IsRoot);
        }
        if self.serving != NONE {
            self.put_off();
        }
        let mut doomed = vec![index];
        let mut at = 0;
        while at < doomed.len() {
            let parent = doomed[at];
            let is_below = |&it: &u32| self.seats[it as usize].parent == parent && self.details[it as usize].is_used;
            doomed.extend((0..self.seats.len() as u32).filter(is_below));
            at += 1;
        }
        let mut events = Vec::new();
        // Children before parents, so that what each has used is handed up.
        for &at in doomed.iter().rev() {
            self.empty(at, &mut events);
            self.vacate(at);
        }
        Ok(events)
    }

    /// Takes all events out of a leaf, and it and the nodes that it leaves empty out of their parents' orders.
    fn empty(&mut self, leaf: u32, events: &mut Vec<(LeafId, E)>) {
        let seat = &mut self.seats[leaf as usize];
        if seat.queue.len == 0 {
            return;
        }
        let name = LeafId { index: leaf, generation: seat.generation };
        while seat.queue.len > 0 {
            events.push((name, self.events.take(&mut seat.queue)));
        }
        let mut child = leaf;
        loop {
            let parent = self.seats[child as usize].parent;
            if parent == NONE {
                return;
            }
            self.seats[child as usize].pending = false;
            let policy = self.seats[parent as usize].policy as usize;
            self.policies[policy].withdraw(&mut self.seats, child);
            if !self.policies[policy].is_empty() {
                if self.is_urgent {
                    self.wake_urgent(parent);
                }
                return;
            }
            child = parent;
        }
    }

    fn vacate(&mut self, member: u32) {
        if self.keeper == member {
            self.keeper = NONE;
        }
        let policy = self.seats[member as usize].policy;
        if policy != NONE {
            self.policies[policy as usize] = AnyPolicy::new(PolicyKind::RoundRobin);
            self.free_policies.push(policy);
        }
        // What it has used still counts for those above.
        let Seat { parent, served, charged_ns, .. } = self.seats[member as usize];
        let above = &mut self.seats[parent as usize];
        above.served = above.served.wrapping_add(served);
        above.charged_ns = above.charged_ns.wrapping_add(charged_ns);
        if self.seats[member as usize].is_stirred {
            self.stirred.retain(|&it| it != member);
        }
        self.details[member as usize].is_used = false;
        self.seats[member as usize].generation = self.seats[member as usize].generation.wrapping_add(1);
        self.free_seats.push(member);
    }

    pub(super) fn find(&self, member: Member) -> Result<u32, TreeError> {
        let (index, generation) = member.parts();
        match self.seats.get(index as usize) {
            Some(seat) if seat.generation == generation => Ok(index),
            _ => Err(TreeError::Removed(member)),
        }
    }

    /// Inner nodes from the root to `node`, both included.
    fn depth(&self, node: u32) -> usize {
        std::iter::successors(Some(node), |&at| self.parent(at)).count()
    }

    /// What a member has used since it was added.
    pub fn usage(&self, member: impl Into<Member>) -> Result<Usage, TreeError> {
        let index = self.find(member.into())?;
        Ok(self.usages()[index as usize])
    }

    /// Tells `each` of every leaf at which events have been queued or charged since this was asked last, or wait: how many have been served since, and
    /// what has been charged, in nanoseconds; less than nothing where a correction took back more. Costs nothing for all other leaves. What a leaf had
    /// that has been removed isn't told of.
    pub fn take_used(&mut self, mut each: impl FnMut(LeafId, u64, i64)) {
        let Tree { stirred, seats, details, .. } = self;
        stirred.retain(|&index| {
            let (seat, details) = (&mut seats[index as usize], &mut details[index as usize]);
            let (served, charged_ns) = std::mem::replace(&mut details.told, (seat.served, seat.charged_ns));
            let charged_since = seat.charged_ns.wrapping_sub(charged_ns) as i64;
            each(LeafId { index, generation: seat.generation }, seat.served.wrapping_sub(served), charged_since);
            seat.is_stirred = seat.pending;
            seat.pending
        });
    }

    /// All members with their shares and what they have used, the root first: the dashboard's picture, in one pass.
    #[must_use]
    pub fn snapshot(&self) -> Vec<(Member, Share, Usage)> {
        let usages = self.usages();
        self.members().map(|member| (member, self.details[member.index()].share, usages[member.index()])).collect()
    }

    /// By index. Inner nodes count nothing while events are served, as that would cost every event; it's added up here.
    fn usages(&self) -> Vec<Usage> {
        let mut usages = vec![Usage::default(); self.seats.len()];
        for (index, (seat, details)) in self.seats.iter().zip(&self.details).enumerate() {
            if !details.is_used {
                continue;
            }
            let own = Usage {
                served: seat.served,
                charged_ns: seat.charged_ns,
                queued: u64::from(seat.queue.len),
                uncharged: u64::from(details.uncharged.events),
            };
            let ancestors = std::iter::successors(Some(index as u32), |&at| self.parent(at));
            ancestors.for_each(|at| usages[at as usize] += own);
        }
        usages
    }

    fn parent(&self, member: u32) -> Option<u32> {
        Some(self.seats[member as usize].parent).filter(|&parent| parent != NONE)
    }

    /// A member's share.
    pub fn share(&self, member: impl Into<Member>) -> Result<Share, TreeError> {
        Ok(self.details[self.find(member.into())? as usize].share)
    }

    /// A node's policy.
    pub fn policy(&self, node: NodeId) -> Result<PolicyKind, TreeError> {
        let index = self.find(node.into())?;
        Ok(self.policies[self.seats[index as usize].policy as usize].kind())
    }

    /// The children of a node.
    pub fn children(&self, node: NodeId) -> impl Iterator<Item = Member> {
        let parent = self.find(node.into()).unwrap_or(NONE);
        self.members().filter(move |&member| parent != NONE && self.seats[member.index()].parent == parent)
    }

    /// All members, the root first.
    pub fn members(&self) -> impl Iterator<Item = Member> {
        self.details.iter().zip(&self.seats).zip(0..).filter(|((details, _), _)| details.is_used).map(
            |((_, seat), index)| {
                let generation = seat.generation;
                if seat.policy == NONE {
                    Member::Leaf(LeafId { index, generation })
                } else {
                    Member::Node(NodeId { index, generation })
                }
            },
        )
    }
}
