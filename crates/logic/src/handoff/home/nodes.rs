//! Which nodes a home talks with, and until when each may send. A node that lives again is another: what its earlier life may still send
//! ends only with that life's lease. Both may be there at a time, as in an upgrade: what is new goes to the one that doesn't drain.

use std::collections::BTreeMap;

use super::super::effect::SessionId;
use super::super::{Incarnation, ServerId};
use super::{GiveError, Life};
use crate::time::Instant;

/// Lives of a node that are listened to at a time: a process that follows another, which has replies to end, and may be followed itself.
const LIVES_MAX: usize = 4;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    sessions: BTreeMap<SessionId, Session>,
    /// The one that counts, for each node.
    current: BTreeMap<ServerId, SessionId>,
    lives: BTreeMap<Life, Lease>,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) node: ServerId,
    /// From its Hello on.
    pub(super) life: Option<Life>,
    /// What it holds has been heard and answered.
    pub(super) is_ready: bool,
    is_draining: bool,
    offers_max: u32,
}

/// A newer session of the same life has said hello before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late;

/// What is owed to one life of a node.
#[derive(Debug, Default)]
struct Lease {
    /// When it surely sends no more; none while it never could.
    ends: Option<Instant>,
    session: Option<SessionId>,
    last_number: u64,
    unanswered: u32,
}

impl Nodes {
    pub(super) fn connect(&mut self, node: ServerId, session: SessionId) {
        self.sessions.insert(session, Session { node, life: None, is_ready: false, is_draining: false, offers_max: 0 });
    }

    pub(super) fn drop_session(&mut self, session: SessionId) {
        let Some(dropped) = self.sessions.remove(&session) else { return };
        self.prefer_one(dropped.node);
        let Some(life) = dropped.life else { return };
        if let Some(lease) = self.lives.get_mut(&life)
            && lease.session == Some(session)
        {
            lease.session = None;
        }
        self.forget_if_nothing_is_owed(life);
    }

    /// The node says who it is. Returns the session that is replaced.
    pub(super) fn hello(
        &mut self,
        session: SessionId,
        incarnation: Incarnation,
        number: u64,
        offers_max: u32,
    ) -> Result<Option<SessionId>, Late> {
        let Some(state) = self.sessions.get_mut(&session) else { return Err(Late) };
        let life = (state.node, incarnation);
        let lease = self.lives.entry(life).or_default();
        if number <= lease.last_number {
            return Err(Late);
        }
        lease.last_number = number;
        let before = lease.session.replace(session);
        state.life = Some(life);
        state.offers_max = offers_max;
        self.prefer_one(life.0);
        let mut lives = self.sessions.iter().filter(|(_, known)| known.life.is_some_and(|known| known.0 == life.0));
        let oldest = lives.next().map(|(&oldest, _)| oldest).filter(|_| lives.count() >= LIVES_MAX);
        Ok(before.or(oldest))
    }

    /// The node in that session takes on nothing more, or does again. Whether what it says is so for what it's given from now on.
    pub(super) fn drains(&mut self, session: SessionId, is_draining: bool) -> bool {
        let Some(state) = self.sessions.get_mut(&session) else { return false };
        let node = state.node;
        if std::mem::replace(&mut state.is_draining, is_draining) != is_draining {
            self.prefer_one(node);
        }
        self.current.get(&node) == Some(&session)
    }

    /// Chooses which of a node's lives is given what is new: the last that doesn't drain.
    fn prefer_one(&mut self, node: ServerId) {
        let lives = self.sessions.iter().filter(|(_, session)| session.node == node && session.life.is_some());
        match lives.max_by_key(|&(&id, session)| (!session.is_draining, id)) {
            Some((&session, _)) => self.current.insert(node, session),
            None => self.current.remove(&node),
        };
    }

    /// The life of a node that is given what is new, if it's another one: that follows.
    pub(super) fn follower(&self, life: Life) -> Option<Life> {
        let session = self.sessions.get(self.current.get(&life.0)?)?;
        session.life.filter(|follower| *follower != life && session.is_ready)
    }

    /// Whether there is a session with a node that has said what it holds.
    pub(super) fn has_ready(&self, node: ServerId) -> bool {
        self.current.get(&node).and_then(|session| self.sessions.get(session)).is_some_and(|session| session.is_ready)
    }

    pub(super) fn state(&mut self, session: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(&session)
    }

    /// The session with a node in that life.
    pub(super) fn session(&self, life: Life) -> Option<SessionId> {
        self.lives.get(&life)?.session
    }

    /// The life of a node that can be offered a flow now.
    pub(super) fn ready(&self, node: ServerId) -> Result<Life, GiveError> {
        let session = self.current.get(&node).and_then(|session| self.sessions.get(session));
        let session = session.filter(|session| session.is_ready).ok_or(GiveError::NotConnected)?;
        let life = session.life.ok_or(GiveError::NotConnected)?;
        let lease = self.lives.get(&life).filter(|lease| lease.ends.is_some()).ok_or(GiveError::NotConnected)?;
        if lease.unanswered < session.offers_max { Ok(life) } else { Err(GiveError::NoCredit) }
    }

    /// Offers to a node in its present life that wait for their answers.
    pub(super) fn unanswered(&self, node: ServerId) -> u32 {
        let session = self.current.get(&node).and_then(|session| self.sessions.get(session));
        let lease = session.and_then(|session| self.lives.get(&session.life?));
        lease.map_or(0, |lease| lease.unanswered)
    }

    /// The sessions on which anything may be said, and with whom.
    pub(super) fn ready_nodes(&self) -> impl Iterator<Item = (SessionId, ServerId)> + '_ {
        self.sessions.iter().filter(|(_, session)| session.is_ready).map(|(&id, session)| (id, session.node))
    }

    pub(super) fn take_credit(&mut self, life: Life) {
        if let Some(lease) = self.lives.get_mut(&life) {
            lease.unanswered += 1;
        }
    }

    pub(super) fn return_credit(&mut self, life: Life) {
        if let Some(lease) = self.lives.get_mut(&life) {
            lease.unanswered = lease.unanswered.saturating_sub(1);
        }
    }

    /// A lease that ends at `ends`, as seen from here, has been granted.
    pub(super) fn grant(&mut self, life: Life, ends: Instant) {
        if let Some(lease) = self.lives.get_mut(&life) {
            lease.ends = lease.ends.max(Some(ends));
        }
    }

    /// Whose lease has run out.
    pub(super) fn lapsed(&self, now: Instant) -> Vec<Life> {
        let has_lapsed = |lease: &Lease| lease.ends.is_some_and(|ends| ends <= now);
        self.lives.iter().filter(|(_, lease)| has_lapsed(lease)).map(|(&life, _)| life).collect()
    }

    /// Its flows have been taken back: nothing is owed to it any more.
    pub(super) fn settle_lapse(&mut self, life: Life) {
        if let Some(lease) = self.lives.get_mut(&life) {
            lease.ends = None;
        }
        self.forget_if_nothing_is_owed(life);
    }

    pub(super) fn next_lapse(&self) -> Instant {
        self.lives.values().filter_map(|lease| lease.ends).min().unwrap_or(Instant::NEVER)
    }

    fn forget_if_nothing_is_owed(&mut self, life: Life) {
        if self.lives.get(&life).is_some_and(|lease| lease.session.is_none() && lease.ends.is_none()) {
            self.lives.remove(&life);
        }
    }
}
