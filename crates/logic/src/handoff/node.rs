//! The node's side: which flows of one home are held here, and until when they may send. It never decides who holds a flow, only says no.
//!
//! Sockets and sessions are the host's. What it wants done comes out of [`Node::poll_effect`]; what became of that goes in by the methods that
//! are named there. A server that holds flows for several homes has a `Node` for each.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::effect::{Effect, SessionId};
use super::limits::{FLOWS_PER_MESSAGE_MAX, HEARTBEATS_MAX, UNBORN_MAX};
use super::message::{Holding, HoldingPhase, Load, Message, RecallTerms, RefuseReason, Yielding};
use super::placing::{Question, Rules, Sample, There};
use super::{Ends, FlowId, Generation, Incarnation, Process};
use crate::time::Instant;

mod succession;

/// What a node takes, and how often it says that it's here.
#[derive(Clone, Debug)]
pub struct NodeLimits {
    /// Flows held.
    pub flows_max: usize,
    /// Offers unanswered at a time.
    pub offers_max: u32,
    /// Between heartbeats: a quarter of the lease, so that three may be late.
    pub heartbeat_interval: Duration,
    /// A home that has been silent so long after the lease isn't coming back: its flows are dropped.
    pub orphan_timeout: Duration,
    /// So long the answer to a question is waited for.
    pub question_timeout: Duration,
    /// How long a process that is followed stays whose home doesn't say so, at most: its successor's link may take its time.
    pub follower_timeout: Duration,
    /// Until a process that ends gives back again what has been left to it.
    pub give_back_pause: Duration,
}

impl Default for NodeLimits {
    fn default() -> NodeLimits {
        NodeLimits {
            flows_max: 1_000_000,
            offers_max: 1_024,
            heartbeat_interval: Duration::from_millis(250),
            orphan_timeout: Duration::from_secs(60),
            question_timeout: Duration::from_millis(100),
            follower_timeout: Duration::from_secs(5),
            give_back_pause: Duration::from_millis(200),
        }
    }
}

/// What has happened, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounters {
    /// Offers taken.
    pub taken: u64,
    /// Flows that began here.
    pub born: u64,
    /// Offers refused.
    pub refused: u64,
    /// Flows returned.
    pub returned: u64,
    /// Flows that their home has left here.
    pub inherited: u64,
    /// Flows that went on elsewhere, or that their home had given up.
    pub released: u64,
    /// Flows dropped as their home didn't come back.
    pub orphaned: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// A socket is being made.
    Taking,
    /// A live socket.
    Live,
    /// The socket is being frozen.
    Freezing,
    /// A frozen socket, and its image.
    Returning(Bytes),
    /// The socket goes to the process that follows this one, or is there.
    Passing,
}

#[derive(Debug)]
struct Flow {
    generation: Generation,
    phase: Phase,
    /// Its home wants it back once the request in hand has been answered.
    is_lent: bool,
    /// It's given back, and a reply under way isn't to go along.
    keeps_reply: bool,
    /// The last request after which it was given back: if it's left here, it's the next one's turn.
    given_back_after: Option<u32>,
    /// The request whose place has been asked for.
    asked: Option<u32>,
}

/// See the module.
#[derive(Debug)]
pub struct Node {
    limits: NodeLimits,
    incarnation: Incarnation,
    flows: BTreeMap<FlowId, Flow>,
    session: Option<SessionId>,
    sessions: u64,
    lease_until: Instant,
    homes: Vec<u16>,
    is_draining: bool,
    /// The first heartbeat after what its home is to know before this process ends, until one has been answered.
    drain_told: Option<u64>,
    /// When this process, which ends, gives back what it has.
    leaves_at: Instant,
    /// The session's home takes another process's word for what passes there.
    may_pass: bool,
    /// The session's home ends, and leaves what is here.
    is_heir: bool,
    /// [`Rules::UNTOLD`] before the session's home has told.
    rules: Rules,
    /// When questions are given up, the oldest first.
    questions: VecDeque<(Instant, FlowId, u32)>,
    load: Load,
    next_heartbeat: Instant,
    heartbeats: u64,
    /// Sent and not answered, with their times, the oldest first.
    sent: VecDeque<(u64, Instant)>,
    /// Flows that began here and that the home hasn't been told of.
    newborn: Vec<FlowId>,
    /// Flows that the home asks for and that haven't begun: they may be among those that wait to be accepted.
    recalled: Vec<FlowId>,
    /// Flows of which the home was told that they aren't here, or has said so itself, the oldest first: they don't begin here any more.
    unborn: VecDeque<FlowId>,
    /// Flows that have ended, each with the heartbeat whose answer shows that the home knows.
    ended: VecDeque<(u64, FlowId, Generation)>,
    counters: NodeCounters,
    effects: VecDeque<Effect>,
}

impl Node {
    /// A node that holds nothing. No other life of it, ever, may have had the same incarnation.
    #[must_use]
    pub fn new(limits: NodeLimits, incarnation: Incarnation) -> Node {
        Node {
            limits,
            incarnation,
            flows: BTreeMap::new(),
            session: None,
            sessions: 0,
            lease_until: Instant::default(),
            homes: Vec::new(),
            is_draining: false,
            drain_told: None,
            leaves_at: Instant::NEVER,
            may_pass: false,
            is_heir: false,
            rules: Rules::UNTOLD,
            questions: VecDeque::new(),
            load: Load::default(),
            next_heartbeat: Instant::NEVER,
            heartbeats: 0,
            sent: VecDeque::new(),
            newborn: Vec::new(),
            recalled: Vec::new(),
            unborn: VecDeque::new(),
            ended: VecDeque::new(),
            counters: NodeCounters::default(),
            effects: VecDeque::new(),
        }
    }

    /// A session with the home is open. An earlier one isn't listened to any more. `process`: as of now.
    pub fn connected(&mut self, now: Instant, session: SessionId, process: Option<Process>) {
        if let Some(replaced) = self.session.replace(session) {
            self.effects.push_back(Effect::Disconnect { session: replaced });
        }
        self.sent.clear();
        (self.is_heir, self.may_pass) = (false, false);
        self.rules = Rules::UNTOLD;
        self.give_up_questions(Instant::NEVER);
        self.sessions += 1;
        self.drain_told = self.is_draining.then_some(self.heartbeats + 1);
        self.send(Message::Hello {
            incarnation: self.incarnation,
            number: self.sessions,
            offers_max: self.limits.offers_max,
            process,
        });
        self.send_list();
        self.send_heartbeat(now);
    }

    /// A session has ended. What is held is served until the lease ends.
    pub fn disconnected(&mut self, session: SessionId) {
        if self.session == Some(session) {
            (self.session, self.may_pass) = (None, false);
            self.next_heartbeat = Instant::NEVER;
            self.rules = Rules::UNTOLD;
            self.give_up_questions(Instant::NEVER);
        }
    }

    /// A message came. What comes on a session that has been replaced is dropped.
    pub fn handle_message(&mut self, now: Instant, session: SessionId, message: Message) {
        if self.session != Some(session) {
            return;
        }
        match message {
            Message::Lease { number, duration_ms, homes } => {
                self.homes = homes;
                self.extend_lease(number, duration_ms);
            }
            Message::Offer { flow, generation, image, is_lent } => {
                self.handle_offer(now, flow, generation, image, is_lent);
            }
            Message::Recall { flow, generation, terms } => self.handle_recall(flow, generation, terms),
            Message::Release { flow, generation } => self.handle_release(flow, generation),
            Message::Keep { flow, generation, next } => self.handle_keep(flow, generation, next),
            Message::There { flow, generation, number, there } => {
                self.handle_answer(flow, generation, number, Some(there));
            }
            Message::Rules(rules) => {
                self.rules = rules;
                self.effects.push_back(Effect::Rules(rules));
            }
            Message::Probe { ends, sequence } => self.effects.push_back(Effect::Probe { ends, sequence }),
            Message::Yield { ends, next, acknowledged } => {
                self.effects.push_back(Effect::Yield { ends, next, acknowledged });
            }
            Message::Followed { hears_passed } => {
                self.may_pass = hears_passed;
                if self.is_waiting_to_leave() {
                    self.leaves_at = now;
                }
            }
            Message::Bequeath => {
                self.is_heir = true;
                self.inherit();
            }
            _ => {
                self.disconnected(session);
                self.effects.push_back(Effect::Disconnect { session });
            }
        }
    }

    /// [`Effect::Thaw`] has been done: the flow is live here.
    pub fn thawed(&mut self, flow: FlowId) {
        let Some(record) = self.flows.get_mut(&flow) else { return };
        if record.phase != Phase::Taking {
            return;
        }
        record.phase = Phase::Live;
        let generation = record.generation;
        self.counters.taken += 1;
        self.send(Message::Taken { flow, generation });
        self.inherit();
    }

    /// [`Effect::Thaw`] can't be done, and no socket is left of it.
    pub fn thaw_failed(&mut self, flow: FlowId, reason: RefuseReason) {
        if self.flows.get(&flow).is_some_and(|record| record.phase == Phase::Taking)
            && let Some(record) = self.flows.remove(&flow)
        {
            self.refuse(flow, record.generation, reason);
        }
    }

    /// A flow has begun here. False when its home has been told that it isn't here: it goes on elsewhere, and its socket is to be dropped with nothing
    /// sent. Else the home is told by [`Node::tell_births`], or by the list with which its first session begins.
    pub fn born(&mut self, now: Instant, flow: FlowId) -> bool {
        if self.flows.contains_key(&flow) || self.unborn.contains(&flow) {
            return false;
        }
        // A home that hasn't been heard is waited for as one that is silent: its lease is with the process before.
        self.lease_until = self.lease_until.max(now);
        self.flows.insert(flow, Flow::new(Generation::BORN, Phase::Live, self.rules.are_births_lent));
        self.newborn.push(flow);
        self.counters.born += 1;
        true
    }

    /// [`Effect::AcceptAll`] has been done. What was asked for and hasn't begun by now never does; unless another process follows, which may have it:
    /// only when the home knows that one it's told so.
    pub fn none_waits(&mut self) {
        if self.is_waiting_to_leave() {
            return;
        }
        for flow in std::mem::take(&mut self.recalled) {
            if self.flows.contains_key(&flow) {
                continue;
            }
            self.never_begin(flow);
            self.refuse(flow, Generation::BORN, RefuseReason::Absent);
        }
    }

    /// Tells of the flows that have begun here since the last call, and haven't ended: sooner than the home's `birth_timeout`. What else is said of a
    /// flow is said after that, since the home believes only who has it.
    pub fn tell_births(&mut self) {
        for flow in std::mem::take(&mut self.newborn) {
            if let Some(record) = self.flows.get(&flow)
                && matches!(record.phase, Phase::Live | Phase::Freezing)
                && record.generation == Generation::BORN
            {
                self.send(Message::Taken { flow, generation: Generation::BORN });
            }
        }
    }

    /// Gives a live flow back to its home, which may pass it on: the next request belongs elsewhere, or this node drains. Best when nothing
    /// is unacknowledged.
    pub fn give_back(&mut self, flow: FlowId) {
        if let Some(record) = self.flows.get_mut(&flow)
            && record.phase == Phase::Live
        {
            record.phase = Phase::Freezing;
            (record.keeps_reply, record.asked) = (false, None);
            self.effects.push_back(Effect::Freeze { flow });
        }
    }

    /// Asks where the request in hand of a live flow belongs, of which nothing has been answered. [`Effect::Told`] says what came of it, once.
    /// False if nobody is to be asked, or can be.
    pub fn ask(&mut self, now: Instant, flow: FlowId, question: Question) -> bool {
        let Some(record) = self.flows.get_mut(&flow) else { return false };
        if !self.rules.is_asked || self.session.is_none() || record.phase != Phase::Live {
            return false;
        }
        record.asked = Some(question.number);
        let generation = record.generation;
        self.tell_births();
        self.questions.push_back((now.after(self.limits.question_timeout), flow, question.number));
        self.send(Message::Where { flow, generation, question });
        true
    }

    /// What became of [`Effect::Probe`].
    pub fn probed(&mut self, sequence: u32, is_sent: bool) {
        self.send(Message::Probed { sequence, is_sent });
    }

    /// What became of [`Effect::Yield`].
    pub fn yielded(&mut self, ends: Ends, next: u32, (answer, shown): (Yielding, u32)) {
        self.send(Message::Yielded { ends, next, answer, shown });
    }

    /// Tells the home what was seen, if there is a session with it.
    pub fn tell(&mut self, samples: Vec<Sample>) {
        self.send(Message::Seen(samples));
    }

    /// The reply to request `number` of a connection has ended, and no other has begun: gives a flow back that was only lent. True when it does,
    /// once for each request: what its home leaves here, or has forgotten to have lent, would go to and fro without a pause.
    ///
    /// This is what request splitting stands on: its home lends a flow for one request ([`super::Home::lend`]), and has it back as a live socket
    /// of its own without asking for it.
    pub fn replied(&mut self, flow: FlowId, number: u32) -> bool {
        let found = self.flows.get_mut(&flow).filter(|record| record.is_lent && record.phase == Phase::Live);
        let Some(record) = found.filter(|record| record.given_back_after != Some(number)) else { return false };
        record.given_back_after = Some(number);
        self.give_back(flow);
        true
    }

    /// Whether a flow is held only until its home's next request.
    #[must_use]
    pub fn is_lent(&self, flow: FlowId) -> bool {
        self.flows.get(&flow).is_some_and(|record| record.is_lent)
    }

    /// Whether a flow that is being given back stays until the reply under way has ended.
    #[must_use]
    pub fn keeps_reply(&self, flow: FlowId) -> bool {
        self.flows.get(&flow).is_some_and(|record| record.keeps_reply)
    }

    /// Whether the home is told of every reply of a flow, and not of long ones only.
    #[must_use]
    pub fn tells_all(&self, flow: FlowId) -> bool {
        self.rules.are_all_told || self.is_lent(flow)
    }

    /// [`Effect::Freeze`] has been done; `image` is encoded.
    pub fn frozen(&mut self, flow: FlowId, image: Bytes) {
        if let Some(record) = self.flows.get_mut(&flow)
            && record.phase == Phase::Freezing
        {
            record.phase = Phase::Returning(image.clone());
            let generation = record.generation;
            if self.is_heir {
                return self.inherit();
            }
            self.counters.returned += 1;
            self.send(Message::Return { flow, generation, image });
        }
    }

    /// [`Effect::Freeze`] can't be done: the flow lives on here.
    pub fn freeze_failed(&mut self, flow: FlowId) {
        if let Some(record) = self.flows.get_mut(&flow)
            && record.phase == Phase::Freezing
        {
            record.phase = Phase::Live;
            self.inherit();
        }
    }

    /// A reply has begun that is worth going on with elsewhere if this node dies; `progress` is an encoded `Progress`. Before its first byte is sent.
    pub fn began(&mut self, flow: FlowId, progress: Bytes) {
        if let Some(&Flow { generation, .. }) = self.flows.get(&flow) {
            self.tell_births();
            self.send(Message::Began { flow, generation, progress });
        }
    }

    /// A flow has ended here: its socket is closed. `is_cut`: with a reset, which its client may not have heard.
    pub fn ended(&mut self, flow: FlowId, is_cut: bool) {
        if let Some(record) = self.flows.remove(&flow) {
            self.tell_end(flow, record.generation, is_cut);
        }
    }

    /// Takes nothing on any more, or does again.
    pub fn drain(&mut self, is_draining: bool) {
        // First, as its home asks no process that drains for what may have begun there.
        self.tell_births();
        self.is_draining = is_draining;
        self.drain_told = is_draining.then_some(self.heartbeats + 1);
        if self.session.is_some() {
            // Its home is to know at once.
            self.next_heartbeat = Instant::default();
        }
    }

    /// What the next heartbeats tell. That connections found no room is told once, however often this is set before.
    pub fn set_load(&mut self, load: Load) {
        self.load = Load { is_crowded: load.is_crowded || self.load.is_crowded, ..load };
    }

    /// The workers of the home's server that are homes, as it said last.
    #[must_use]
    pub fn homes(&self) -> &[u16] {
        &self.homes
    }

    /// The session with the home, if there is one.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Whether nothing may be sent, nor anything begun that can't be done twice.
    #[must_use]
    pub fn is_fenced(&self, now: Instant) -> bool {
        now >= self.lease_until
    }

    /// The earliest time at which [`Node::handle_timeout`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        let orphaned = if self.flows.is_empty() { Instant::NEVER } else { self.orphaned_at() };
        let question = self.questions.front().map_or(Instant::NEVER, |&(deadline, ..)| deadline);
        self.next_heartbeat.min(orphaned).min(question).min(self.leaves_at)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.leaves_at <= now {
            self.give_back_all(now);
        }
        if self.next_heartbeat <= now {
            self.send_heartbeat(now);
        }
        self.give_up_questions(now);
        if self.orphaned_at() <= now {
            self.drop_orphans();
        }
    }

    /// Its home isn't coming back: nothing is held any more.
    pub fn drop_orphans(&mut self) {
        for (flow, record) in std::mem::take(&mut self.flows) {
            self.counters.orphaned += 1;
            self.effects.push_back(Effect::CloseSilently { flow });
            self.tell_end(flow, record.generation, false);
        }
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Flows held.
    #[must_use]
    pub fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// The flows that are live here.
    pub fn live_flows(&self) -> impl Iterator<Item = FlowId> + '_ {
        self.flows.iter().filter(|(_, record)| record.phase == Phase::Live).map(|(&flow, _)| flow)
    }

    /// What has happened so far.
    #[must_use]
    pub fn counters(&self) -> NodeCounters {
        self.counters
    }

    fn handle_offer(&mut self, now: Instant, flow: FlowId, generation: Generation, image: Bytes, is_lent: bool) {
        if let Some(Flow { generation: held, phase, .. }) = self.flows.get(&flow) {
            let held = *held;
            if held >= generation {
                return;
            }
            if matches!(phase, Phase::Returning(_)) {
                // It comes back to where its frozen socket still is.
                self.handle_keep(flow, held, generation);
                self.send(Message::Taken { flow, generation });
                self.await_word();
                return;
            }
            // The home has gone on without what is here.
            self.handle_release(flow, held);
        }
        if self.is_fenced(now) {
            self.refuse(flow, generation, RefuseReason::Fenced);
        } else if self.is_draining {
            self.refuse(flow, generation, RefuseReason::Draining);
        } else if self.flows.len() >= self.limits.flows_max {
            self.refuse(flow, generation, RefuseReason::Full);
        } else {
            self.flows.insert(flow, Flow::new(generation, Phase::Taking, is_lent));
            self.effects.push_back(Effect::Thaw { flow, generation, image });
        }
    }

    fn handle_recall(&mut self, flow: FlowId, generation: Generation, terms: RecallTerms) {
        let found = self.flows.get_mut(&flow).filter(|record| record.generation == generation);
        match found.map(|record| (&record.phase, &mut record.keeps_reply)) {
            // A server with much to do has connections waiting: they'd be dropped if they went on elsewhere.
            None if generation == Generation::BORN => {
                self.recalled.push(flow);
                self.effects.push_back(Effect::AcceptAll);
            }
            None => self.refuse(flow, generation, RefuseReason::Absent),
            // Its home asks since it hasn't been told yet, or since a full link keeps what it was told. An older one doesn't say so, and asks for nothing
            // else that it hasn't been told of.
            Some((Phase::Live, _)) if terms == RecallTerms::IfUnborn || self.newborn.contains(&flow) => {
                self.tell_births()
            }
            Some((Phase::Live, _)) => {
                self.give_back(flow);
                self.flows.entry(flow).and_modify(|record| record.keeps_reply = terms == RecallTerms::AtRest);
            }
            Some((Phase::Freezing, keeps_reply)) => *keeps_reply &= terms == RecallTerms::AtRest,
            // Who has it by then is asked, as soon as the home has heard of that.
            Some((Phase::Taking | Phase::Returning(_) | Phase::Passing, _)) => {}
        }
    }

    fn handle_release(&mut self, flow: FlowId, generation: Generation) {
        match self.flows.get(&flow) {
            Some(record) if record.generation == generation => {
                self.flows.remove(&flow);
                self.counters.released += 1;
                self.effects.push_back(Effect::CloseSilently { flow });
            }
            // Its packet may be late, or it waits to be accepted: it goes on elsewhere.
            None if generation == Generation::BORN => self.never_begin(flow),
            _ => {}
        }
    }

    fn never_begin(&mut self, flow: FlowId) {
        if self.unborn.contains(&flow) {
            return;
        }
        self.unborn.push_back(flow);
        if self.unborn.len() > UNBORN_MAX {
            self.unborn.pop_front();
        }
    }

    fn handle_keep(&mut self, flow: FlowId, generation: Generation, next: Generation) {
        match self.flows.get_mut(&flow) {
            Some(record) if record.generation == generation && matches!(record.phase, Phase::Returning(_)) => {
                (record.generation, record.phase, record.asked) = (next, Phase::Live, None);
                self.effects.push_back(Effect::Unfreeze { flow, generation: next });
            }
            Some(record) if record.generation == next => {}
            // It's kept already, for good.
            None if self.is_heir => {}
            _ => self.refuse(flow, next, RefuseReason::Absent),
        }
    }

    /// Once the home has said that it ends: what isn't just being frozen or thawed is its own no more. What it has been returned it leaves, too.
    fn inherit(&mut self) {
        if !self.is_heir {
            return;
        }
        self.give_up_questions(Instant::NEVER);
        // The other process inherits those.
        self.flows.retain(|_, record| record.phase != Phase::Passing);
        let is_settled = |record: &Flow| matches!(record.phase, Phase::Live | Phase::Returning(_));
        let (settled, left) = std::mem::take(&mut self.flows).into_iter().partition(|(_, record)| is_settled(record));
        self.flows = left;
        let settled: BTreeMap<FlowId, Flow> = settled;
        for (&flow, record) in settled.iter().filter(|(_, record)| record.phase != Phase::Live) {
            self.effects.push_back(Effect::Unfreeze { flow, generation: record.generation });
        }
        self.counters.inherited += settled.len() as u64;
        self.effects.push_back(Effect::Inherit { flows: settled.into_keys().collect() });
        if self.flows.is_empty() {
            self.send(Message::Inherited);
        }
    }

    fn handle_answer(&mut self, flow: FlowId, generation: Generation, number: u32, there: Option<There>) {
        if let Some(record) = self.flows.get_mut(&flow).filter(|record| record.generation == generation)
            && record.asked == Some(number)
        {
            record.asked = None;
            self.effects.push_back(Effect::Told { flow, there });
        }
    }

    /// What nobody has answered until then isn't waited for any more.
    fn give_up_questions(&mut self, until: Instant) {
        while let Some(&(deadline, flow, number)) = self.questions.front()
            && deadline <= until
        {
            self.questions.pop_front();
            if let Some(&Flow { generation, .. }) = self.flows.get(&flow) {
                self.handle_answer(flow, generation, number, None);
            }
        }
    }

    /// A lease counts from when its heartbeat was sent: the home, which got it later, knows that it has ended before it acts.
    fn extend_lease(&mut self, number: u64, duration_ms: u32) {
        self.drain_told = self.drain_told.filter(|told| *told > number);
        while self.ended.front().is_some_and(|&(shown, ..)| shown <= number) {
            self.ended.pop_front();
        }
        while let Some(&(sent, at)) = self.sent.front() {
            if sent > number {
                return;
            }
            self.sent.pop_front();
            if sent == number {
                let until = at.after(Duration::from_millis(u64::from(duration_ms)));
                if until > self.lease_until {
                    self.lease_until = until;
                    self.effects.push_back(Effect::LeaseUntil { until });
                }
            }
        }
    }

    fn send_heartbeat(&mut self, now: Instant) {
        if self.sent.len() >= HEARTBEATS_MAX {
            self.sent.pop_front();
        }
        self.heartbeats += 1;
        self.sent.push_back((self.heartbeats, now));
        self.next_heartbeat = now.after(self.limits.heartbeat_interval);
        let load = Load { is_draining: self.is_draining, ..self.load };
        self.load.is_crowded = false;
        self.send(Message::Heartbeat { number: self.heartbeats, load });
    }

    /// What is held, and again the images that the home may not have got.
    fn send_list(&mut self) {
        let ended = |&(_, flow, generation): &_| Holding { flow, generation, phase: HoldingPhase::Ended };
        let held = self.flows.iter().map(|(&flow, record)| record.describe(flow));
        let list: Vec<Holding> = self.ended.iter().map(ended).chain(held).collect();
        let mut chunks = list.chunks(FLOWS_PER_MESSAGE_MAX).peekable();
        if chunks.peek().is_none() {
            self.send(Message::Holding { flows: Vec::new(), is_last: true });
        }
        while let Some(chunk) = chunks.next() {
            self.send(Message::Holding { flows: chunk.to_vec(), is_last: chunks.peek().is_none() });
        }
        let returning = |(&flow, record): (&FlowId, &Flow)| match &record.phase {
            Phase::Returning(image) => {
                Some(Message::Return { flow, generation: record.generation, image: image.clone() })
            }
            _ => None,
        };
        let returns: Vec<Message> = self.flows.iter().filter_map(returning).collect();
        returns.into_iter().for_each(|message| self.send(message));
    }

    /// A flow that was taken and has ended must not look like one whose offer was lost: it's told until it's known.
    fn tell_end(&mut self, flow: FlowId, generation: Generation, is_cut: bool) {
        self.ended.push_back((self.heartbeats + 1, flow, generation));
        self.send(Message::Ended { flow, generation, is_cut });
    }

    fn refuse(&mut self, flow: FlowId, generation: Generation, reason: RefuseReason) {
        self.counters.refused += 1;
        self.await_word();
        self.send(Message::Refused { flow, generation, reason });
    }

    /// What is said now may be a draining process's last word: one that ends stays until it's known, or the flow would look as if it had died with it.
    fn await_word(&mut self) {
        if self.is_draining {
            self.drain_told = Some(self.heartbeats + 1);
        }
    }

    /// To the home, if there is a session with it: what is lost is made good by the list at the next one's beginning.
    fn send(&mut self, message: Message) {
        if let Some(session) = self.session {
            self.effects.push_back(Effect::Send { session, message });
        }
    }

    fn orphaned_at(&self) -> Instant {
        self.lease_until.after(self.limits.orphan_timeout)
    }
}

impl Flow {
    fn new(generation: Generation, phase: Phase, is_lent: bool) -> Flow {
        Flow { generation, phase, is_lent, keeps_reply: false, given_back_after: None, asked: None }
    }

    fn describe(&self, flow: FlowId) -> Holding {
        let phase = match self.phase {
            Phase::Taking => HoldingPhase::Taking,
            Phase::Live | Phase::Freezing => HoldingPhase::Taken,
            Phase::Returning(_) => HoldingPhase::Returning,
            Phase::Passing => HoldingPhase::Passing,
        };
        Holding { flow, generation: self.generation, phase }
    }
}
