//! Which nodes a home talks with, and until when each may send. A node that lives again is another: what its earlier life may still send
//! ends only with that life's lease.

use std::collections::BTreeMap;

use super::super::effect::SessionId;
use super::super::{Incarnation, ServerId};
use super::{GiveError, Life};
use crate::time::Instant;

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
        self.sessions.insert(session, Session { node, life: None, is_ready: false, offers_max: 0 });
    }

    pub(super) fn drop_session(&mut self, session: SessionId) {
        let Some(dropped) = self.sessions.remove(&session) else { return };
        if self.current.get(&dropped.node) == Some(&session) {
            self.current.remove(&dropped.node);
        }
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
        lease.session = Some(session);
        state.life = Some(life);
        state.offers_max = offers_max;
        Ok(self.current.insert(life.0, session))
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
