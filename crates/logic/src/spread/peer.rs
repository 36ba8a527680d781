//! A node among others that hand connections on to each other: decides which of them has a flow at every moment, and who has to be told. Every one is
//! giver and taker, and there is no home: whoever has a flow is its only authority. Which node is the right one, others decide.
//!
//! A flow changes hands in one round trip: its giver freezes it and offers it, the taker goes live and says so, and only then does the giver let go.
//! From then on it's the taker's, whatever becomes of the giver. The taker tells all fronts where the flow lives; until they know, the giver sends its
//! packets on, and after that whatever may still come. `docs/decisions/0020-spread-by-content.md` has the reasons.

pub(super) mod succession;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::{PRESENT_PAUSE, SILENCE_MAX};
use crate::handoff::{
    CutReason, Effect, Ends, FlowId, Generation, Incarnation, Load, Message, Process, RefuseReason, ServerId,
    SessionId, Target,
};
use crate::time::Instant;

/// The number of all fronts, as links know them.
pub const FRONT: u32 = 0;

/// A front without a link for so long isn't waited for: when it's back it's told everything.
const FRONT_PATIENCE: Duration = Duration::from_secs(5);

/// For so long a flow whose taker may have died waits for word of that.
pub(super) const LOST_PATIENCE: Duration = Duration::from_secs(60);

/// Flows that one worker may have.
const FLOWS_MAX: usize = 1_000_000;

/// What has happened, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounters {
    /// Flows taken from others.
    pub taken: u64,
    /// Offers that others haven't taken.
    pub refused: u64,
    /// Flows that were on their way when the link to their taker was lost: they live there, or nowhere.
    pub lost: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A live socket.
    Here,
    /// It's being frozen, for that worker.
    Leaving(ServerId),
    /// Frozen, and offered to that one.
    Offered(ServerId),
    /// The same, and the link to its taker has ended: it lives there, or nowhere.
    Lost,
    /// A socket is being made.
    Taking,
    /// That one has it. What comes of its packets goes there.
    Away(ServerId),
}

#[derive(Debug)]
struct Flow {
    generation: Generation,
    phase: Phase,
    /// Being taken: who has offered it.
    giver: Option<ServerId>,
    /// Who had it before and sends its packets on.
    givers: BTreeSet<ServerId>,
    /// Being taken: where it was, if its packets were sent there from here.
    was_away: Option<(Generation, ServerId)>,
    ends: Option<Ends>,
    /// Fronts that have yet to say that they know where it lives, by their places.
    awaited: BTreeSet<usize>,
    /// Away: every front knows.
    is_known: bool,
}

struct Session {
    peer: ServerId,
    /// For a front: its place.
    front: Option<usize>,
    /// The process at the other end, once it has said so.
    process: Option<u64>,
    heard_at: Instant,
    /// This process has said its last word: nothing of the other's is taken any more, and the other ends the session.
    is_bequeathed: bool,
}

/// To whom a lost flow was offered.
#[derive(Debug)]
struct Lost {
    taker: ServerId,
    process: u64,
    /// When its giver gives it up.
    until: Instant,
}

/// See the module.
pub struct Peer {
    sessions: BTreeMap<SessionId, Session>,
    /// When each front was seen last, never while there is a link.
    absent: Vec<Instant>,
    flows: BTreeMap<FlowId, Flow>,
    /// Those in the phase of that name.
    lost: BTreeMap<FlowId, Lost>,
    load: Load,
    process: Process,
    /// This server's, as the others are told.
    workers: Vec<u16>,
    /// Of each other server, as it has told.
    others: BTreeMap<u32, Vec<u16>>,
    present_at: Instant,
    counters: PeerCounters,
    effects: VecDeque<Effect>,
    /// This process ends.
    is_leaving: bool,
}

impl Peer {
    /// A node's worker that has nothing yet, in a cluster of so many fronts.
    #[must_use]
    pub fn new(now: Instant, fronts: usize) -> Peer {
        Peer {
            sessions: BTreeMap::new(),
            absent: vec![now; fronts],
            flows: BTreeMap::new(),
            lost: BTreeMap::new(),
            load: Load::default(),
            process: Process::default(),
            workers: Vec::new(),
            others: BTreeMap::new(),
            present_at: now,
            counters: PeerCounters::default(),
            effects: VecDeque::new(),
            is_leaving: false,
        }
    }

    /// Which process this is, as others are told. To be said before they are.
    pub fn set_process(&mut self, process: Process) {
        self.process = process;
    }

    /// What others are told of this server: how much it has to do, and which workers it has.
    pub fn set_load(&mut self, load: Load, workers: &[u16]) {
        if load.is_draining != self.load.is_draining {
            // They are to know at once.
            self.present_at = Instant::default();
        }
        self.load = load;
        self.workers.clear();
        self.workers.extend_from_slice(workers);
    }

    /// The workers with which another server wants links, as far as it has told.
    #[must_use]
    pub fn workers_of(&self, server: u32) -> &[u16] {
        self.others.get(&server).map_or(&[], |workers| workers)
    }

    /// A link is there. `front`: the place of the front at its other end. An earlier one with the same worker has ended.
    pub fn connected(&mut self, now: Instant, session: SessionId, peer: ServerId, front: Option<usize>) {
        if self.is_leaving && front.is_none() {
            return self.effects.push_back(Effect::Disconnect { session });
        }
        let replaced = self.sessions.iter().find(|(_, known)| known.peer == peer && known.front == front);
        if let Some((&replaced, _)) = replaced {
            self.end(now, replaced);
        }
        self.sessions.insert(session, Session { peer, front, process: None, heard_at: now, is_bequeathed: false });
        self.send(session, self.present());
        let Some(place) = front else { return };
        if let Some(absent) = self.absent.get_mut(place) {
            *absent = Instant::NEVER;
        }
        // It may have been away for long, or remember nothing.
        let moved: Vec<FlowId> = self.flows.iter().filter(|(_, flow)| flow.is_elsewhere()).map(|(id, _)| *id).collect();
        moved.into_iter().for_each(|flow| self.tell_front(session, place, flow));
        self.send(session, Message::Holding { flows: Vec::new(), is_last: true });
    }

    /// A link has ended.
    pub fn disconnected(&mut self, now: Instant, session: SessionId) {
        let Some(Session { peer, front, process, .. }) = self.sessions.remove(&session) else { return };
        if let Some(absent) = front.and_then(|place| self.absent.get_mut(place)) {
            *absent = now;
            return;
        }
        let (mut lost, mut there) = (Vec::new(), Vec::new());
        for (id, flow) in &mut self.flows {
            flow.givers.remove(&peer);
            match flow.phase {
                // Nobody can tell whether it has been taken: two would speak if this one went on.
                Phase::Offered(to) if to == peer => {
                    flow.phase = Phase::Lost;
                    lost.push(*id);
                }
                Phase::Away(to) if to == peer => there.push(*id),
                _ => {}
            }
        }
        self.counters.lost += lost.len() as u64;
        for flow in lost {
            match process {
                Some(process) => {
                    self.lost.insert(flow, Lost { taker: peer, process, until: now.after(LOST_PATIENCE) });
                }
                None => self.give_up(flow, true),
            }
        }
        there.into_iter().for_each(|flow| self.forget(flow));
    }

    /// A message has come.
    pub fn handle_message(&mut self, now: Instant, session: SessionId, message: Message) {
        let Some(known) = self.sessions.get_mut(&session) else { return };
        known.heard_at = now;
        let (peer, front) = (known.peer, known.front);
        match (message, front) {
            (Message::Present { load, process, workers }, _) => {
                known.process = Some(process.number);
                self.others.insert(peer.server(), workers);
                self.heard_of(peer, process);
                self.effects.push_back(Effect::Load { node: peer, incarnation: Incarnation(0), load });
            }
            (Message::Known { flow, generation }, Some(place)) => self.front_knows(place, flow, generation),
            (Message::Offer { flow, generation, image, .. }, None) => {
                self.offered(session, peer, (flow, generation), image)
            }
            (Message::Taken { flow, generation }, None) => {
                if self.is_offered(flow, generation, peer) {
                    self.effects.push_back(Effect::CloseSilently { flow });
                    self.set_phase(flow, Phase::Away(peer));
                    self.flows.entry(flow).and_modify(|flow| flow.is_known = false);
                }
            }
            (Message::Refused { flow, generation, .. }, None) => {
                if self.is_offered(flow, generation, peer) {
                    self.counters.refused += 1;
                    self.stays(flow);
                }
            }
            (Message::Known { flow, generation }, None) => {
                // They may know of a later change of hands as well.
                let is_given =
                    |known: &&mut Flow| known.away().is_some_and(|(given, to)| to == peer && given < generation);
                if let Some(known) = self.flows.get_mut(&flow).filter(is_given) {
                    known.is_known = true;
                    self.all_know(flow);
                }
            }
            (Message::Bequeath, None) => {
                self.none_is_taken(peer);
                self.end(now, session);
            }
            (Message::Ended { flow, .. }, None) => {
                // Under whichever generation it was: it may have gone on from there.
                if self.flows.get(&flow).is_some_and(|flow| flow.phase == Phase::Away(peer)) {
                    self.forget(flow);
                }
            }
            _ => self.end(now, session),
        }
    }

    /// A connection has been accepted here.
    pub fn begin(&mut self, flow: FlowId) {
        self.flows.insert(flow, Flow::new(Generation::default(), Phase::Here));
    }

    /// Has a live flow given to another node's worker. False if it can't be.
    pub fn give(&mut self, flow: FlowId, to: ServerId) -> bool {
        let is_linked = self.session(to).is_some();
        let may_go = is_linked && !self.is_leaving;
        let Some(known) = self.flows.get_mut(&flow).filter(|flow| may_go && flow.phase == Phase::Here) else {
            return false;
        };
        known.phase = Phase::Leaving(to);
        self.effects.push_back(Effect::Freeze { flow });
        true
    }

    /// [`Effect::Freeze`] has been done; `image` is encoded.
    pub fn frozen(&mut self, flow: FlowId, image: Bytes) {
        let Some(known) = self.flows.get(&flow) else { return };
        let Phase::Leaving(to) = known.phase else { return };
        let generation = known.generation.next();
        match self.session(to) {
            Some(session) => {
                self.set_phase(flow, Phase::Offered(to));
                self.effects.push_back(Effect::Steer { flow, to: Target::Node(to), generation });
                self.send(session, Message::Offer { flow, generation, image, is_lent: false });
            }
            None => self.stays(flow),
        }
    }

    /// [`Effect::Freeze`] can't be done: the flow lives on here.
    pub fn freeze_failed(&mut self, flow: FlowId) {
        if let Some(known) = self.flows.get_mut(&flow)
            && let Phase::Leaving(_) = known.phase
        {
            known.phase = Phase::Here;
        }
    }

    /// [`Effect::Thaw`] has been done: the flow is live here, and it's this node's to say where it lives.
    pub fn thawed(&mut self, flow: FlowId, ends: Option<Ends>) {
        let Some(known) = self.flows.get_mut(&flow).filter(|flow| flow.phase == Phase::Taking) else { return };
        (known.phase, known.ends) = (Phase::Here, ends);
        let (generation, giver) = (known.generation, known.giver.take());
        self.counters.taken += 1;
        known.was_away = None;
        // It may have been here before, at whichever worker: then its packets were sent on.
        self.effects.push_back(Effect::Unsteer { flow, generation });
        self.tell(giver, Message::Taken { flow, generation });
        self.tell_fronts(flow);
    }

    /// [`Effect::Thaw`] can't be done, and no socket is left of it.
    pub fn thaw_failed(&mut self, flow: FlowId, reason: RefuseReason) {
        let Some(known) = self.flows.get_mut(&flow).filter(|flow| flow.phase == Phase::Taking) else { return };
        let (generation, giver) = (known.generation, known.giver.take());
        match known.was_away.take() {
            Some((generation, holder)) => (known.generation, known.phase) = (generation, Phase::Away(holder)),
            None => drop(self.flows.remove(&flow)),
        }
        self.tell(giver, Message::Refused { flow, generation, reason });
    }

    /// A flow's connection has ended here.
    pub fn ended(&mut self, flow: FlowId) {
        self.forget(flow);
    }

    /// When [`Peer::handle_timeout`] is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        self.present_at
    }

    /// Says that it's here, and sees who says so no more.
    pub fn handle_timeout(&mut self, now: Instant) {
        if now < self.present_at {
            return;
        }
        self.present_at = now.after(if self.is_leaving { succession::LOOK_PAUSE } else { PRESENT_PAUSE });
        let silent = |session: &Session| now >= session.heard_at.after(SILENCE_MAX);
        let gone: Vec<_> = self.sessions.iter().filter(|(_, known)| silent(known)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|session| self.end(now, session));
        let late = self.lost.iter().filter(|(_, lost)| lost.until <= now).map(|(flow, _)| *flow);
        late.collect::<Vec<_>>().into_iter().for_each(|flow| self.give_up(flow, true));
        let present = self.present();
        let sessions: Vec<_> = self.sessions.keys().copied().collect();
        sessions.into_iter().for_each(|session| self.send(session, present.clone()));
        self.leave_out_absent(now);
        self.bequeath_left();
    }

    /// What is to be done next.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Flows that are live here and may be given away.
    pub fn live(&self) -> impl Iterator<Item = FlowId> {
        self.flows.iter().filter(|(_, flow)| flow.phase == Phase::Here).map(|(id, _)| *id)
    }

    /// Whether nobody else has ever heard of a flow, or is to take it.
    #[must_use]
    pub fn lives_where_it_began(&self, flow: FlowId) -> bool {
        self.flows.get(&flow).is_some_and(|flow| flow.phase == Phase::Here && flow.ends.is_none())
    }

    /// Flows that end when this worker does: those that are here or on their way, and those whose packets not every front sends where they live yet.
    #[must_use]
    pub fn owned(&self) -> usize {
        let is_owned = |flow: &&Flow| match flow.phase {
            Phase::Away(_) => !flow.is_known,
            Phase::Lost => false,
            Phase::Here | Phase::Leaving(_) | Phase::Offered(_) | Phase::Taking => true,
        };
        self.flows.values().filter(is_owned).count()
    }

    /// Flows that are here, and those whose packets are sent on.
    #[must_use]
    pub fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// What has happened.
    #[must_use]
    pub fn counters(&self) -> PeerCounters {
        self.counters
    }

    fn offered(&mut self, session: SessionId, peer: ServerId, key: (FlowId, Generation), image: Bytes) {
        let (flow, generation) = key;
        // So it was taken.
        self.give_up(flow, true);
        let away = self.flows.get(&flow).map(|known| match known.phase {
            Phase::Away(holder) if known.generation < generation => Ok((known.generation, holder)),
            _ => Err(RefuseReason::Other),
        });
        let was_away = match away {
            _ if self.load.is_draining || self.is_leaving => Err(RefuseReason::Draining),
            None if self.flows.len() >= FLOWS_MAX => Err(RefuseReason::Full),
            known => known.transpose(),
        };
        let was_away = match was_away {
            Ok(was_away) => was_away,
            Err(reason) => return self.send(session, Message::Refused { flow, generation, reason }),
        };
        let known = self.flows.entry(flow).or_insert_with(|| Flow::new(generation, Phase::Taking));
        (known.generation, known.phase, known.was_away, known.giver) =
            (generation, Phase::Taking, was_away, Some(peer));
        known.givers.insert(peer);
        self.effects.push_back(Effect::Thaw { flow, generation, image });
    }

    fn is_offered(&self, flow: FlowId, generation: Generation, to: ServerId) -> bool {
        let is_so = |known: &Flow| known.phase == Phase::Offered(to) && known.generation.next() == generation;
        self.flows.get(&flow).is_some_and(is_so)
    }

    fn set_phase(&mut self, flow: FlowId, phase: Phase) {
        if let Some(known) = self.flows.get_mut(&flow) {
            known.phase = phase;
        }
    }

    /// A frozen flow goes on here.
    fn stays(&mut self, flow: FlowId) {
        if let Some(known) = self.flows.get_mut(&flow) {
            known.phase = Phase::Here;
            self.effects.push_back(Effect::Unfreeze { flow, generation: known.generation });
        }
    }

    /// A process of a node lives. What was lost on its way there lives with its taker if that's this one, and has died with it if that lives no more.
    fn heard_of(&mut self, peer: ServerId, process: Process) {
        let known = self.lost.iter().filter_map(|(flow, lost)| {
            let may_live = lost.process == process.number;
            // Of a node's processes that live, no two have workers of the same number.
            let is_known = may_live || lost.taker == peer || process.is_only && lost.taker.server() == peer.server();
            is_known.then_some((*flow, may_live))
        });
        known.collect::<Vec<_>>().into_iter().for_each(|(flow, may_live)| self.give_up(flow, may_live));
    }

    /// Nobody speaks for a flow here any more if it was lost. Of one that lives nowhere its client is told: it can't go on here, as its taker may have been
    /// heard; to who has heard that, what is said here is an old reset, and none.
    fn give_up(&mut self, flow: FlowId, may_live: bool) {
        if self.flows.get(&flow).is_some_and(|known| known.phase == Phase::Lost) {
            self.effects.push_back(match may_live {
                true => Effect::CloseSilently { flow },
                false => Effect::Cut { flow, reason: CutReason::LostWithTaker },
            });
            self.forget(flow);
        }
    }

    /// Another process has taken of what it was offered all that it will: the rest goes on here.
    fn none_is_taken(&mut self, by: ServerId) {
        let offered = self.flows.iter().filter(|(_, flow)| flow.phase == Phase::Offered(by));
        let offered: Vec<FlowId> = offered.map(|(flow, _)| *flow).collect();
        self.counters.refused += offered.len() as u64;
        offered.into_iter().for_each(|flow| self.stays(flow));
    }

    /// Nothing of a flow is known here any more. Who has to do with it is told.
    fn forget(&mut self, id: FlowId) {
        let Some(flow) = self.flows.remove(&id) else { return };
        self.lost.remove(&id);
        let ended = Message::Ended { flow: id, generation: flow.generation, is_cut: false };
        flow.givers.iter().for_each(|giver| self.tell(Some(*giver), ended.clone()));
        if flow.is_elsewhere() {
            let fronts: Vec<_> =
                self.sessions.iter().filter(|(_, known)| known.front.is_some()).map(|(id, _)| *id).collect();
            fronts.into_iter().for_each(|session| self.send(session, ended.clone()));
        }
        if let Phase::Away(_) | Phase::Offered(_) | Phase::Lost = flow.phase {
            self.effects.push_back(Effect::Unsteer { flow: id, generation: flow.generation });
        }
    }

    /// Where a flow lives that may not be at its bucket's owner. Every front has to say that it knows.
    fn tell_fronts(&mut self, flow: FlowId) {
        let Some(known) = self.flows.get_mut(&flow) else { return };
        known.awaited = (0..self.absent.len()).collect();
        let fronts = self.sessions.iter().filter_map(|(&session, known)| Some((session, known.front?)));
        for (session, place) in fronts.collect::<Vec<_>>() {
            self.tell_front(session, place, flow);
        }
    }

    fn tell_front(&mut self, session: SessionId, place: usize, flow: FlowId) {
        let Some(known) = self.flows.get_mut(&flow) else { return };
        let (Some(ends), generation) = (known.ends, known.generation) else { return };
        known.awaited.insert(place);
        self.send(session, Message::Lives { flow, generation, ends });
    }

    fn front_knows(&mut self, place: usize, flow: FlowId, generation: Generation) {
        if let Some(known) = self.flows.get_mut(&flow).filter(|flow| flow.generation == generation)
            && known.awaited.remove(&place)
            && known.awaited.is_empty()
        {
            self.all_know(flow);
        }
    }

    /// Fronts that have been away for long aren't waited for.
    fn leave_out_absent(&mut self, now: Instant) {
        let is_gone = |place: &usize| self.absent.get(*place).is_some_and(|since| now >= since.after(FRONT_PATIENCE));
        let gone: Vec<usize> = (0..self.absent.len()).filter(is_gone).collect();
        if gone.is_empty() {
            return;
        }
        let mut known = Vec::new();
        for (id, flow) in self.flows.iter_mut().filter(|(_, flow)| flow.ends.is_some() && !flow.awaited.is_empty()) {
            flow.awaited.retain(|place| !gone.contains(place));
            known.extend(flow.awaited.is_empty().then_some(*id));
        }
        known.into_iter().for_each(|flow| self.all_know(flow));
    }

    /// Who had a flow before needn't send its packets on any more.
    fn all_know(&mut self, flow: FlowId) {
        let Some(known) = self.flows.get(&flow) else { return };
        let (generation, givers) = (known.generation, known.givers.clone());
        givers.into_iter().for_each(|giver| self.tell(Some(giver), Message::Known { flow, generation }));
    }

    fn present(&self) -> Message {
        Message::Present { load: self.load, process: self.process, workers: self.workers.clone() }
    }

    fn tell(&mut self, peer: Option<ServerId>, message: Message) {
        if let Some(session) = peer.and_then(|peer| self.session(peer)) {
            self.send(session, message);
        }
    }

    fn session(&self, peer: ServerId) -> Option<SessionId> {
        self.sessions.iter().find(|(_, known)| known.peer == peer && known.front.is_none()).map(|(id, _)| *id)
    }

    fn send(&mut self, session: SessionId, message: Message) {
        self.effects.push_back(Effect::Send { session, message });
    }

    fn end(&mut self, now: Instant, session: SessionId) {
        self.effects.push_back(Effect::Disconnect { session });
        self.disconnected(now, session);
    }
}

impl Flow {
    fn new(generation: Generation, phase: Phase) -> Flow {
        let (givers, awaited) = (BTreeSet::new(), BTreeSet::new());
        Flow { generation, phase, giver: None, givers, was_away: None, ends: None, awaited, is_known: false }
    }

    /// Where it was given, under which generation of its giver, as far as nobody has taken it from there.
    fn away(&self) -> Option<(Generation, ServerId)> {
        match self.phase {
            Phase::Away(to) => Some((self.generation, to)),
            _ => self.was_away,
        }
    }

    /// Whether its giver and its taker still have to do with each other for it.
    fn is_on_its_way(&self) -> bool {
        match self.phase {
            Phase::Here | Phase::Lost => false,
            Phase::Leaving(_) | Phase::Offered(_) | Phase::Taking => true,
            Phase::Away(_) => !self.is_known,
        }
    }

    /// Whether it lives here, and its bucket's owner may be another.
    fn is_elsewhere(&self) -> bool {
        self.ends.is_some() && matches!(self.phase, Phase::Here | Phase::Leaving(_) | Phase::Offered(_) | Phase::Lost)
    }
}
