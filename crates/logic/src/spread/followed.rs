//! What a front knows of connections that don't live at their bucket's owner: decides whose word counts, and when an entry goes. It asks nobody: nodes tell
//! it what they have taken over, all of it when a link begins. `peer.rs` is their side.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::{PRESENT_PAUSE, SILENCE_MAX};
use crate::handoff::{Effect, Ends, FlowId, Generation, Incarnation, Message, ServerId, SessionId};
use crate::time::Instant;

/// An entry stays so long after its connection was closed: its client may have to say goodbye more than once.
const OVER_KEEP: Duration = Duration::from_secs(60);

/// Entries of a node's worker that has no link stay so long: it may come back and say that it has them all.
const ABSENT_KEEP: Duration = Duration::from_secs(60);

/// As many as the programs have room for. What is told beyond that isn't entered, and its former node goes on sending its packets on.
pub const FOLLOWED_MAX: usize = 1 << 20;

struct Entry {
    ends: Ends,
    generation: Generation,
    holder: ServerId,
    is_over: bool,
}

struct Session {
    peer: ServerId,
    heard_at: Instant,
    /// What its node had before this link, and hasn't said yet to have still.
    unconfirmed: BTreeSet<FlowId>,
}

/// See the module.
pub struct Followed {
    sessions: BTreeMap<SessionId, Session>,
    entries: BTreeMap<FlowId, Entry>,
    /// Which flow an entry of the programs is: a client may use its port anew.
    by_ends: BTreeMap<Ends, FlowId>,
    /// Entries that are over, and when they go.
    over: VecDeque<(Instant, FlowId, Generation)>,
    /// Workers without a link, and since when.
    absent: BTreeMap<ServerId, Instant>,
    present_at: Instant,
    effects: VecDeque<Effect>,
}

impl Followed {
    /// A front that has been told nothing.
    #[must_use]
    pub fn new(now: Instant) -> Followed {
        Followed {
            sessions: BTreeMap::new(),
            entries: BTreeMap::new(),
            by_ends: BTreeMap::new(),
            over: VecDeque::new(),
            absent: BTreeMap::new(),
            present_at: now,
            effects: VecDeque::new(),
        }
    }

    /// A node's worker has a link. An earlier one has ended.
    pub fn connected(&mut self, now: Instant, session: SessionId, peer: ServerId) {
        let replaced = self.sessions.iter().find(|(_, known)| known.peer == peer).map(|(id, _)| *id);
        replaced.into_iter().for_each(|replaced| self.end(now, replaced));
        self.absent.remove(&peer);
        let unconfirmed = self.of(peer).collect();
        self.sessions.insert(session, Session { peer, heard_at: now, unconfirmed });
    }

    /// A link has ended.
    pub fn disconnected(&mut self, now: Instant, session: SessionId) {
        if let Some(Session { peer, .. }) = self.sessions.remove(&session) {
            self.absent.insert(peer, now);
        }
    }

    /// A message has come.
    pub fn handle_message(&mut self, now: Instant, session: SessionId, message: Message) {
        let Some(known) = self.sessions.get_mut(&session) else { return };
        known.heard_at = now;
        let peer = known.peer;
        match message {
            Message::Present { load, .. } => {
                self.effects.push_back(Effect::Load { node: peer, incarnation: Incarnation(0), load });
            }
            Message::Lives { flow, generation, ends } => {
                known.unconfirmed.remove(&flow);
                if self.enter(flow, Entry { ends, generation, holder: peer, is_over: false }) {
                    self.effects.push_back(Effect::Send { session, message: Message::Known { flow, generation } });
                }
            }
            Message::Ended { flow, generation, .. } => self.over(now, flow, generation),
            Message::Holding { is_last: true, .. } => {
                // Somebody else may have said meanwhile that he has it.
                let is_its = |flow: &FlowId| self.entries.get(flow).is_some_and(|entry| entry.holder == peer);
                let forgotten: Vec<_> = std::mem::take(&mut known.unconfirmed).into_iter().filter(is_its).collect();
                forgotten.into_iter().for_each(|flow| self.remove(flow));
            }
            _ => self.end(now, session),
        }
    }

    /// When [`Followed::handle_timeout`] is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        self.present_at
    }

    /// Says that it's here, sees who says so no more, and lets entries go.
    pub fn handle_timeout(&mut self, now: Instant) {
        if now < self.present_at {
            return;
        }
        self.present_at = now.after(PRESENT_PAUSE);
        let silent = |session: &Session| now >= session.heard_at.after(SILENCE_MAX);
        let gone: Vec<_> = self.sessions.iter().filter(|(_, known)| silent(known)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|session| self.end(now, session));
        for &session in self.sessions.keys() {
            let message =
                Message::Present { load: Default::default(), process: Default::default(), workers: Vec::new() };
            self.effects.push_back(Effect::Send { session, message });
        }
        while let Some((_, flow, generation)) = self.over.pop_front_if(|(at, ..)| *at <= now) {
            if self.entries.get(&flow).is_some_and(|entry| entry.generation == generation) {
                self.remove(flow);
            }
        }
        let is_late = |since: &Instant| now >= since.after(ABSENT_KEEP);
        let late: Vec<_> = self.absent.iter().filter(|(_, since)| is_late(since)).map(|(peer, _)| *peer).collect();
        for peer in late {
            self.absent.remove(&peer);
            self.of(peer).collect::<Vec<_>>().into_iter().for_each(|flow| self.remove(flow));
        }
    }

    /// What is to be done next.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Connections that are followed, and some that are over.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether this connection is followed.
    #[must_use]
    pub fn knows(&self, ends: Ends) -> bool {
        self.by_ends.contains_key(&ends)
    }

    fn of(&self, peer: ServerId) -> impl Iterator<Item = FlowId> {
        self.entries.iter().filter(move |(_, entry)| entry.holder == peer).map(|(id, _)| *id)
    }

    /// False if there is no room.
    fn enter(&mut self, flow: FlowId, entry: Entry) -> bool {
        match self.entries.get(&flow) {
            // Whoever had it before says so late.
            Some(known) if known.generation >= entry.generation => return true,
            None if self.entries.len() >= FOLLOWED_MAX => return false,
            _ => {}
        }
        self.by_ends.insert(entry.ends, flow);
        self.effects.push_back(Effect::Follow { ends: entry.ends, node: entry.holder, is_over: false });
        self.entries.insert(flow, entry);
        true
    }

    fn over(&mut self, now: Instant, flow: FlowId, generation: Generation) {
        let Some(entry) = self.entries.get_mut(&flow) else { return };
        if entry.generation != generation || entry.is_over {
            return;
        }
        entry.is_over = true;
        self.over.push_back((now.after(OVER_KEEP), flow, generation));
        if self.by_ends.get(&entry.ends) == Some(&flow) {
            self.effects.push_back(Effect::Follow { ends: entry.ends, node: entry.holder, is_over: true });
        }
    }

    fn remove(&mut self, flow: FlowId) {
        let Some(entry) = self.entries.remove(&flow) else { return };
        if self.by_ends.get(&entry.ends) == Some(&flow) {
            self.by_ends.remove(&entry.ends);
            self.effects.push_back(Effect::Unfollow { ends: entry.ends });
        }
    }

    fn end(&mut self, now: Instant, session: SessionId) {
        self.effects.push_back(Effect::Disconnect { session });
        self.disconnected(now, session);
    }
}
