//! What a home makes of sessions, messages and time. A session begins with the node's list of what it holds: whatever was lost with the
//! session before is made good by comparing that list with the home's own, so no message is ever sent twice for safety's sake.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::effect::{Effect, SessionId, Target};
use super::super::message::{Holding, HoldingPhase, Message, RecallTerms, RefuseReason};
use super::super::{FlowId, Generation, ServerId};
use super::nodes::Late;
use super::{Flow, Holder, Home, Life};
use crate::time::Instant;

/// What nodes have said so far of what they hold, until their lists are whole.
#[derive(Debug, Default)]
pub(super) struct Lists(BTreeMap<SessionId, BTreeMap<FlowId, Holding>>);

impl Home {
    /// A session with a node is open; both have proved who they are. It replaces an earlier one as soon as the node has said hello.
    pub fn connected(&mut self, node: ServerId, session: SessionId) {
        self.nodes.connect(node, session);
    }

    /// A session has ended, whatever the reason.
    pub fn disconnected(&mut self, session: SessionId) {
        self.lists.0.remove(&session);
        self.nodes.drop_session(session);
    }

    /// A message came. What comes on a session that has been replaced is dropped.
    pub fn handle_message(&mut self, now: Instant, session: SessionId, message: Message) {
        let Some((life, is_ready)) = self.nodes.state(session) else { return };
        match (message, life, is_ready) {
            (Message::Hello { incarnation, number, offers_max, process }, None, _) => {
                match self.nodes.hello(session, incarnation, number, offers_max, process) {
                    Ok(replaced) => {
                        replaced.into_iter().for_each(|replaced| self.disconnect(replaced));
                        if let Some(process) = process.filter(|process| process.is_only) {
                            self.nodes.outlive(now, session, process);
                        }
                    }
                    Err(Late) => self.disconnect(session),
                }
            }
            (Message::Holding { flows, is_last }, Some(life), false) => {
                self.hear_list(now, session, life, flows, is_last);
            }
            (Message::Heartbeat { number, load }, Some(life), is_ready) => {
                // What another process of the node says counts, if that has followed.
                if self.nodes.drains(session, load.is_draining) {
                    self.effects.push_back(Effect::Load { node: life.0, incarnation: life.1, load });
                }
                if is_ready {
                    self.grant(now, session, life, number);
                    // Said each time: whoever ends waits for it, and may do so at any time.
                    if self.nodes.follower(life).is_some() {
                        self.effects
                            .push_back(Effect::Send { session, message: Message::Followed { hears_passed: true } });
                    }
                }
            }
            (message, Some(life), true) if message.is_from_node() => self.handle_claim(now, life, message),
            // Out of turn: nothing that such a node says is to be relied on.
            _ => self.disconnect(session),
        }
    }

    /// The earliest time at which [`Home::handle_timeout`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        let birth = self.births.front().map_or(Instant::NEVER, |&(deadline, _)| deadline);
        let doubt = self.doubts.front().map_or(Instant::NEVER, |&(until, _)| until);
        birth.min(self.nodes.next_lapse()).min(self.claims.poll_timeout()).min(doubt)
    }

    /// Time has passed. Hand in the messages that have come first: a home that stood still isn't to find all its nodes dead.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.recall_unborn(now);
        self.end_old_doubts(now);
        for life in self.nodes.lapsed(now) {
            self.lapse(life);
        }
        self.end_claims(now);
    }

    fn recall_unborn(&mut self, now: Instant) {
        while let Some(&(deadline, flow)) = self.births.front() {
            let generation = Generation::BORN;
            let offered = self.flows.get(&flow).filter(|record| record.generation == generation);
            match offered.map(|record| record.holder) {
                Some(Holder::Offered { .. }) if deadline > now => return,
                Some(Holder::Offered { life, .. }) => {
                    self.send(life, Message::Recall { flow, generation, terms: RecallTerms::IfUnborn });
                }
                _ => {}
            }
            self.births.pop_front();
        }
    }

    fn grant(&mut self, now: Instant, session: SessionId, life: Life, number: u64) {
        // A lease that has run out in a hiccup is granted anew, as long as nothing has been made of that.
        if !self.nodes.grant(life, now.after(self.lease_as_seen_here())) {
            return;
        }
        let duration_ms = u32::try_from(self.limits.lease.as_millis()).unwrap_or(u32::MAX);
        self.effects.push_back(Effect::Send {
            session,
            message: Message::Lease { number, duration_ms, homes: self.homes.clone() },
        });
    }

    /// A node in that life can't send any more, and gets no lease before it has said anew what it holds.
    fn lapse(&mut self, life: Life) {
        if let Some(session) = self.nodes.session(life) {
            if !self.nodes.is_over(life) {
                self.effects.push_back(Effect::Lapsed { node: life.0 });
            }
            self.disconnect(session);
        }
        let may_have_passed = self.nodes.is_draining(life);
        for flow in self.flows_where(|record| record.is_at(life)) {
            if !(may_have_passed && self.seek_at_heir(flow)) {
                self.begin_recovery(flow);
            }
        }
        self.nodes.settle_lapse(life);
    }

    fn disconnect(&mut self, session: SessionId) {
        self.disconnected(session);
        self.effects.push_back(Effect::Disconnect { session });
    }

    pub(super) fn flows_where(&self, condition: impl Fn(&Flow) -> bool) -> Vec<FlowId> {
        self.flows.iter().filter(|(_, record)| condition(record)).map(|(&flow, _)| flow).collect()
    }

    fn hear_list(&mut self, now: Instant, session: SessionId, life: Life, flows: Vec<Holding>, is_last: bool) {
        let list = self.lists.0.entry(session).or_default();
        list.extend(flows.into_iter().map(|holding| (holding.flow, holding)));
        if list.len() > self.limits.flows_max {
            self.disconnect(session);
            return;
        }
        if !is_last {
            return;
        }
        let list = self.lists.0.remove(&session).unwrap_or_default();
        for holding in list.values() {
            self.compare(life, *holding);
        }
        self.expect_births(life);
        self.hear_denials(now, life);
        for flow in self.flows_where(|record| record.is_at(life)) {
            let record = self.flows.get(&flow);
            let is_known = |holding: &Holding| record.is_some_and(|record| record.is_held_under(holding.generation));
            if list.get(&flow).is_some_and(is_known) {
                continue;
            }
            if record.is_some_and(Flow::is_unheard_birth) {
                // It may be about to begin: only the answer is a promise.
                self.send(life, Message::Recall { flow, generation: Generation::BORN, terms: RecallTerms::IfUnborn });
            } else {
                self.handle_absence(flow);
            }
        }
        if self.flows.values().any(|record| record.is_at(life)) {
            // Should it be lost before its first lease.
            self.nodes.owe(life, now.after(self.lease_as_seen_here()));
        }
        for &(_, flow) in self.unborn.iter().filter(|(node, _)| *node == life.0) {
            // Before its first lease.
            self.effects
                .push_back(Effect::Send { session, message: Message::Release { flow, generation: Generation::BORN } });
        }
        self.nodes.is_heard(session);
        self.known.insert(life.0);
        if let Some(rules) = self.rules {
            self.effects.push_back(Effect::Send { session, message: Message::Rules(rules) });
        }
    }

    /// A node says that it has a flow.
    fn compare(&mut self, life: Life, holding: Holding) {
        let Holding { flow, generation, phase } = holding;
        if phase == HoldingPhase::Ended {
            self.hear_end(life, flow, generation, false);
            return;
        }
        self.find_birth(flow, life);
        let Some(record) = self.flows.get_mut(&flow) else {
            self.send(life, Message::Release { flow, generation });
            return;
        };
        let is_returning = phase == HoldingPhase::Returning;
        if phase == HoldingPhase::Taken && record.is_beside(life, generation) {
            return self.hear_passed(flow, life);
        }
        match record.holder {
            Holder::Offered { life: asked, .. } if asked == life && record.generation == generation => {
                if phase != HoldingPhase::Taking {
                    self.settle_at_node(flow, life);
                }
            }
            Holder::Node { life: holder, ref mut unconfirmed, recalled } if holder == life => {
                if record.generation == generation {
                    *unconfirmed = None;
                    if let Some(terms) = recalled.filter(|_| !is_returning) {
                        self.send(life, Message::Recall { flow, generation, terms });
                    }
                } else if *unconfirmed == Some(generation) {
                    let next = record.generation;
                    self.send(life, Message::Keep { flow, generation, next });
                } else {
                    self.send(life, Message::Release { flow, generation });
                }
            }
            Holder::Unclear(Some(node)) if node == life.0 && record.generation == generation => {
                // Packets may have been held when the life before ended.
                self.effects.push_back(Effect::Steer { flow, to: Target::Node(node), generation });
                if phase == HoldingPhase::Taking {
                    self.nodes.take_credit(life);
                    record.holder = Holder::Offered { life, own: false };
                } else {
                    self.settle_at_node(flow, life);
                }
            }
            // What it wants to return may be all that is left of the flow.
            Holder::Unclear(_) if is_returning && generation < record.generation => {}
            _ if record.giver == Some((life, generation)) => {}
            _ => self.send(life, Message::Release { flow, generation }),
        }
    }

    /// A connection that began has come to another of its node's processes than the one that was to have it: both accept for a while.
    fn find_birth(&mut self, flow: FlowId, life: Life) {
        let Some(record) = self.flows.get_mut(&flow).filter(|record| record.is_unheard_birth()) else { return };
        if let Holder::Offered { life: asked, own } = record.holder
            && asked.0 == life.0
            && asked != life
        {
            record.holder = Holder::Offered { life, own };
            self.nodes.return_credit(asked);
            self.nodes.take_credit(life);
        }
    }

    /// What began at a node while there was no link with it is the life's that has come.
    fn expect_births(&mut self, life: Life) {
        for flow in self.flows_where(|record| record.is_unclear_birth(life.0) && record.image.is_some()) {
            self.find_unclear_birth(flow, life);
        }
    }

    /// The same of one.
    fn find_unclear_birth(&mut self, flow: FlowId, life: Life) {
        if let Some(record) = self.flows.get_mut(&flow).filter(|record| record.is_unclear_birth(life.0)) {
            record.holder = Holder::Offered { life, own: false };
            self.nodes.take_credit(life);
            // Packets may have been held when the home's life before ended.
            let (to, generation) = (Target::Node(life.0), Generation::BORN);
            self.effects.push_back(Effect::Steer { flow, to, generation });
        }
    }

    /// A connection never came to that process of its node, and may have come to another: one that has followed, or one that still accepts. Whether that is
    /// asked. Only what all of them deny has never come.
    fn ask_another(&mut self, flow: FlowId, life: Life) -> bool {
        let Some(record) = self.flows.get_mut(&flow).filter(|record| record.is_unheard_birth()) else { return false };
        record.refusers.push(life);
        let Some(other) = self.nodes.ready_lives(life.0).find(|other| !record.refusers.contains(other)) else {
            record.refusers.clear();
            return false;
        };
        self.find_birth(flow, other);
        self.send(other, Message::Recall { flow, generation: Generation::BORN, terms: RecallTerms::IfUnborn });
        true
    }

    fn hear_end(&mut self, life: Life, flow: FlowId, generation: Generation, is_cut: bool) {
        self.find_birth(flow, life);
        let Some(record) = self.flows.get_mut(&flow) else { return };
        let is_its = record.is_at(life) || record.holder == Holder::Unclear(Some(life.0));
        if is_its && record.generation == generation {
            if is_cut {
                self.was_cut(flow);
                self.effects.push_back(Effect::Reset { flow });
            }
            self.end(flow);
        } else if is_its && record.was_left_under(generation) {
            // It had dropped what it wanted to return, and was to keep: what it returned is here.
            self.begin_recovery(flow);
        } else if record.giver == Some((life, generation)) {
            record.giver = None;
        }
    }

    /// A node doesn't have a flow that it was thought to have.
    fn handle_absence(&mut self, flow: FlowId) {
        match self.flows.get(&flow).map(|record| record.holder) {
            Some(Holder::Offered { .. }) => self.offer_failed(flow),
            Some(Holder::Node { unconfirmed: Some(_), .. }) if self.seek_at_heir(flow) => {}
            Some(Holder::Node { unconfirmed: Some(_), .. }) => self.begin_recovery(flow),
            Some(Holder::Node { .. }) => self.end(flow),
            _ => {}
        }
    }

    /// A flow has ended at its node.
    fn end(&mut self, flow: FlowId) {
        self.answered(flow);
        if let Some(record) = self.remove(flow) {
            if matches!(record.holder, Holder::Offered { own: true, .. }) {
                self.effects.push_back(Effect::CloseSilently { flow });
            }
            self.effects.push_back(Effect::Unsteer { flow, generation: record.generation });
        }
    }

    fn handle_claim(&mut self, now: Instant, life: Life, message: Message) {
        match message {
            Message::Taken { flow, generation } => {
                self.find_unclear_birth(flow, life);
                self.find_birth(flow, life);
                match self.standing(life, flow, generation) {
                    Standing::Offered => self.settle_at_node(flow, life),
                    Standing::Holder => self.found(flow),
                    Standing::Passed => self.hear_passed(flow, life),
                    Standing::None => self.send(life, Message::Release { flow, generation }),
                }
            }
            Message::Refused { flow, generation, reason } => match self.standing(life, flow, generation) {
                Standing::Offered if self.ask_another(flow, life) => {}
                Standing::Offered => self.offer_failed(flow),
                Standing::Holder if reason == RefuseReason::Absent => self.handle_absence(flow),
                Standing::Holder | Standing::Passed | Standing::None => {}
            },
            Message::Ended { flow, generation, is_cut } => self.hear_end(life, flow, generation, is_cut),
            Message::Began { flow, generation, progress }
                if self.standing(life, flow, generation) == Standing::Holder =>
            {
                // It has been asked since it's there: nodes tell of what they answer.
                self.has_gone_on(flow);
                self.keep_progress(flow, progress);
            }
            Message::Where { flow, generation, question }
                if self.standing(life, flow, generation) == Standing::Holder =>
            {
                self.effects.push_back(Effect::Where { flow, node: life.0, question });
            }
            Message::Inherited => {
                self.heirs.insert(life.0);
                self.flows_where(|record| record.is_left_with(life)).into_iter().for_each(|flow| self.end(flow));
            }
            Message::Probed { sequence, is_sent } => self.effects.push_back(Effect::Probed { sequence, is_sent }),
            Message::Yielded { ends, next, answer, shown } => {
                self.effects.push_back(Effect::Yielded { ends, next, answer, shown });
            }
            Message::Seen(samples) => self.effects.push_back(Effect::Seen(samples)),
            Message::Return { flow, generation, image } => self.take_back(now, life, flow, generation, image),
            _ => {}
        }
    }

    fn standing(&self, life: Life, flow: FlowId, generation: Generation) -> Standing {
        let record = self.flows.get(&flow).filter(|record| record.generation == generation);
        match record.map(|record| record.holder) {
            Some(Holder::Offered { life: asked, .. }) if asked == life => Standing::Offered,
            Some(Holder::Node { life: holder, .. }) if holder == life => Standing::Holder,
            _ if record.is_some_and(|record| record.is_beside(life, generation)) => Standing::Passed,
            _ => Standing::None,
        }
    }

    fn take_back(&mut self, now: Instant, life: Life, flow: FlowId, generation: Generation, image: Bytes) {
        self.find_birth(flow, life);
        match self.standing(life, flow, generation) {
            Standing::Offered => self.settle_at_node(flow, life),
            Standing::Holder => {}
            Standing::Passed | Standing::None => {
                self.handle_stray_return(now, life, flow, generation, image);
                return;
            }
        }
        self.drop_image(flow);
        let is_full = self.kept_bytes + image.len() > self.limits.kept_bytes_max;
        let Some(record) = self.flows.get_mut(&flow) else { return };
        if is_full {
            self.leave_with_giver(flow, life, generation);
            return;
        }
        record.holder = Holder::Held;
        record.generation = record.generation.next();
        record.giver = Some((life, generation));
        self.counters.returned += 1;
        self.keep(now, flow, image);
        self.ask_for_place(flow);
    }

    /// A return under another generation than the flow's.
    fn handle_stray_return(&mut self, now: Instant, life: Life, flow: FlowId, generation: Generation, image: Bytes) {
        let giver = (life, generation);
        match self.flows.get_mut(&flow) {
            Some(record) if record.giver == Some(giver) => {}
            Some(Flow { holder: Holder::Node { life: holder, unconfirmed, .. }, .. })
                if *holder == life && *unconfirmed == Some(generation) => {}
            Some(record)
                if matches!(record.holder, Holder::Unclear(_))
                    && record.giver.is_none()
                    && generation < record.generation =>
            {
                record.giver = Some(giver);
                self.keep(now, flow, image);
            }
            _ => self.send(life, Message::Release { flow, generation }),
        }
    }

    fn keep_progress(&mut self, flow: FlowId, progress: Bytes) {
        let Some(record) = self.flows.get_mut(&flow).filter(|record| record.image.is_some()) else { return };
        self.kept_bytes -= record.told.len_bytes();
        record.told.add(progress);
        self.kept_bytes += record.told.len_bytes();
        if self.kept_bytes > self.limits.kept_bytes_max {
            self.counters.dropped_images += 1;
            self.drop_image(flow);
        }
    }
}

/// What a node is to a flow under a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Offered,
    Holder,
    /// Another process of its has it, or had it.
    Passed,
    None,
}

impl Flow {
    /// Whether its node may rightly know it under that generation.
    fn is_held_under(&self, generation: Generation) -> bool {
        self.generation == generation || self.was_left_under(generation)
    }

    /// Whether it has begun at a node, as far as its steering entry says.
    fn is_unclear_birth(&self, node: ServerId) -> bool {
        self.generation == Generation::BORN && self.holder == Holder::Unclear(Some(node))
    }

    /// Whether its node was told to keep it, under that generation until then, and hasn't said that it does.
    fn was_left_under(&self, generation: Generation) -> bool {
        matches!(self.holder, Holder::Node { unconfirmed: Some(left), .. } if left == generation)
    }

    /// Whether a node in that life has it, or has just given it back and has taken it up again: what it's offered it isn't yet.
    fn is_left_with(&self, life: Life) -> bool {
        match self.holder {
            Holder::Node { life: at, .. } => at == life,
            Holder::Held => self.giver.is_some_and(|(giver, _)| giver == life),
            _ => false,
        }
    }

    /// Whether a node in that life has it, or may have it.
    fn is_at(&self, life: Life) -> bool {
        matches!(self.holder, Holder::Offered { life: at, .. } | Holder::Node { life: at, .. } if at == life)
    }
}
