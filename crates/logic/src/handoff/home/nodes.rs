//! Which nodes a home talks with, and until when each may send. A node that lives again is another: what its earlier life may still send
//! ends only with that life's lease, or when a process says that it's the only one. Both may be there at a time, as in an upgrade: what is new goes to the one
//! that doesn't drain.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::continuation::ACKNOWLEDGED_WITHIN;
use super::super::effect::SessionId;
use super::super::{Incarnation, Process, ServerId};
use super::{GiveError, Life};
use crate::time::Instant;

/// Lives of a node that are listened to at a time: a process that follows another, which has replies to end, and may be followed itself.
const LIVES_MAX: usize = 4;

/// So long is listened on to a node whose lease has run out while its session is there: if this process stood still, its words may lie unread.
const LISTEN_ON: Duration = Duration::from_millis(20);

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
    is_ready: bool,
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
    /// That this has come was first seen then.
    overdue_at: Option<Instant>,
    /// It can be offered something: one that has only said what it holds hasn't had a lease from here.
    is_granted: bool,
    is_draining: bool,
    process: Option<Process>,
    /// A process that began later is its node's only one.
    is_over: bool,
    /// The first one: a life that began later has a higher one.
    first: SessionId,
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
        process: Option<Process>,
    ) -> Result<Option<SessionId>, Late> {
        let Some(state) = self.sessions.get_mut(&session) else { return Err(Late) };
        let life = (state.node, incarnation);
        let unknown = || Lease { first: session, ..Lease::default() };
        let lease = self.lives.entry(life).or_insert_with(unknown);
        if number <= lease.last_number {
            return Err(Late);
        }
        lease.last_number = number;
        lease.process = process;
        let before = lease.session.replace(session);
        state.life = Some(life);
        state.offers_max = offers_max;
        self.prefer_one(life.0);
        let others = self.sessions_of(life.0).filter(|(id, _)| *id != session);
        let is_full = others.count() >= LIVES_MAX;
        let least = || self.sessions_of(life.0).filter(|(id, _)| *id != session).min_by_key(|(_, rank)| *rank);
        Ok(before.or_else(|| least().filter(|_| is_full).map(|(id, _)| id)))
    }

    /// The node in that session has said what it holds.
    pub(super) fn is_heard(&mut self, session: SessionId) {
        if let Some(state) = self.sessions.get_mut(&session) {
            state.is_ready = true;
            let node = state.node;
            self.prefer_one(node);
        }
    }

    /// The node in that session takes on nothing more, or does again. Whether what it says is so for what it's given from now on.
    pub(super) fn drains(&mut self, session: SessionId, is_draining: bool) -> bool {
        let Some(state) = self.sessions.get(&session) else { return false };
        let node = state.node;
        if let Some(lease) = state.life.and_then(|life| self.lives.get_mut(&life))
            && std::mem::replace(&mut lease.is_draining, is_draining) != is_draining
        {
            self.prefer_one(node);
        }
        self.current.get(&node) == Some(&session)
    }

    /// In that session a process has said that it's its node's only one: the leases of others end soon, and none is renewed. One that has begun since, which the
    /// other couldn't know, has done so in a later session.
    pub(super) fn outlive(&mut self, now: Instant, session: SessionId, process: Process) {
        let Some(node) = self.sessions.get(&session).map(|session| session.node) else { return };
        // What was offered last has to be so old if it is to be answered anew.
        let ends = now.after(ACKNOWLEDGED_WITHIN);
        let of_node = self.lives.iter_mut().filter(|((known, _), _)| *known == node).map(|(_, lease)| lease);
        let is_other = |lease: &Lease| lease.process.is_none_or(|other| other.number != process.number);
        for lease in of_node.filter(|lease| lease.first < session && is_other(lease)) {
            lease.is_over = true;
            lease.ends = lease.ends.map(|lease_ends| lease_ends.min(ends));
        }
        self.prefer_one(node);
    }

    /// Whether a life is of a process that was its node's only one when it said hello.
    pub(super) fn is_only(&self, life: Life) -> bool {
        self.lives.get(&life).and_then(|lease| lease.process).is_some_and(|process| process.is_only)
    }

    /// Chooses which of a node's lives is given what is new.
    fn prefer_one(&mut self, node: ServerId) {
        match self.sessions_of(node).max_by_key(|(_, rank)| *rank) {
            Some((session, _)) => self.current.insert(node, session),
            None => self.current.remove(&node),
        };
    }

    /// A node's sessions that have said hello, each with what is preferred: who can be given something now, else who will be, and of these who began last.
    fn sessions_of(&self, node: ServerId) -> impl Iterator<Item = (SessionId, impl Ord + Copy + use<>)> + '_ {
        let ranked = move |(&id, session): (&SessionId, &Session)| {
            let lease =
                self.lives.get(&session.life.filter(|_| session.node == node)?).filter(|lease| !lease.is_over)?;
            let can_take = session.is_ready && lease.is_granted && !lease.is_draining;
            Some((id, (can_take, !lease.is_draining, lease.first, id)))
        };
        self.sessions.iter().filter_map(ranked)
    }

    /// The life of a node that is given what is new, if it's another one: that follows.
    pub(super) fn follower(&self, life: Life) -> Option<Life> {
        let session = self.sessions.get(self.current.get(&life.0)?).filter(|session| session.is_ready)?;
        let follower = session.life.filter(|follower| *follower != life)?;
        self.lives.get(&follower).is_some_and(|lease| lease.is_granted && !lease.is_draining).then_some(follower)
    }

    /// Whether a life has said that it takes nothing on: what it had may have passed to those that followed.
    pub(super) fn is_draining(&self, life: Life) -> bool {
        self.lives.get(&life).is_some_and(|lease| lease.is_draining)
    }

    /// The life that followed this one first, of those whose leases run.
    pub(super) fn heir_of(&self, life: Life) -> Option<Life> {
        let first = self.lives.get(&life)?.first;
        let of_node = self.lives.iter().filter(|(other, _)| other.0 == life.0);
        let later = of_node.filter(|(_, lease)| lease.first > first && lease.ends.is_some());
        later.min_by_key(|(_, lease)| lease.first).map(|(&other, _)| other)
    }

    /// The lives of a node that may have what begins there, those that began last first: who drains has accepted its last, and has said so.
    pub(super) fn ready_lives(&self, node: ServerId) -> impl Iterator<Item = Life> {
        let of_node = self.sessions.values().filter(|session| session.node == node && session.is_ready);
        let lives = of_node.filter_map(|session| Some((self.lives.get(&session.life?)?, session.life?)));
        let granted = lives.filter(|(lease, _)| lease.is_granted && !lease.is_draining && !lease.is_over);
        let mut lives: Vec<(SessionId, Life)> = granted.map(|(lease, life)| (lease.first, life)).collect();
        lives.sort_unstable_by_key(|(first, _)| std::cmp::Reverse(*first));
        lives.into_iter().map(|(_, life)| life)
    }

    /// Whether there is a session with a node that has said what it holds.
    pub(super) fn has_ready(&self, node: ServerId) -> bool {
        self.current.get(&node).and_then(|session| self.sessions.get(session)).is_some_and(|session| session.is_ready)
    }

    /// Who speaks in a session, once that has said hello, and whether what it holds has been heard; none for a session that there isn't.
    pub(super) fn state(&self, session: SessionId) -> Option<(Option<Life>, bool)> {
        self.sessions.get(&session).map(|session| (session.life, session.is_ready))
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
        let lease = self
            .lives
            .get(&life)
            .filter(|lease| lease.is_granted && !lease.is_draining)
            .ok_or(GiveError::NotConnected)?;
        if lease.unanswered < session.offers_max { Ok(life) } else { Err(GiveError::NoCredit) }
    }

    /// The life of a node that has what has just begun there, whatever else it takes on. It's waited for until then if it has had no lease yet.
    pub(super) fn present(&mut self, node: ServerId, ends: Instant) -> Option<Life> {
        let session = self.current.get(&node).and_then(|session| self.sessions.get(session));
        let life = session.filter(|session| session.is_ready)?.life?;
        if self.lives.get(&life).is_some_and(|lease| lease.ends.is_none()) {
            self.owe(life, ends);
        }
        Some(life)
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

    /// A lease that ends at `ends`, as seen from here, is granted. False if there's none for that life any more.
    pub(super) fn grant(&mut self, life: Life, ends: Instant) -> bool {
        if self.is_over(life) {
            return false;
        }
        self.owe(life, ends);
        if let Some(lease) = self.lives.get_mut(&life)
            && !std::mem::replace(&mut lease.is_granted, true)
        {
            self.prefer_one(life.0);
        }
        true
    }

    /// Whether a process that began later is its node's only one.
    pub(super) fn is_over(&self, life: Life) -> bool {
        self.lives.get(&life).is_some_and(|lease| lease.is_over)
    }

    /// Until then it may send for what it holds: it has a lease from this home's life before, or will have one.
    pub(super) fn owe(&mut self, life: Life, ends: Instant) {
        match self.lives.get_mut(&life) {
            Some(lease) if !lease.is_over => (lease.ends, lease.overdue_at) = (lease.ends.max(Some(ends)), None),
            Some(lease) => lease.ends = lease.ends.or(Some(ends)),
            None => {}
        }
    }

    /// Whose lease has run out, and all that they said has been heard.
    pub(super) fn lapsed(&mut self, now: Instant) -> Vec<Life> {
        let overdue = self.lives.iter_mut().filter(|(_, lease)| lease.ends.is_some_and(|ends| ends <= now));
        let lapsed = overdue.filter_map(|(&life, lease)| {
            let overdue_at = *lease.overdue_at.get_or_insert(now);
            (lease.session.is_none() || overdue_at.after(LISTEN_ON) <= now).then_some(life)
        });
        lapsed.collect()
    }

    /// Its flows have been taken back: nothing is owed to it any more.
    pub(super) fn settle_lapse(&mut self, life: Life) {
        if let Some(lease) = self.lives.get_mut(&life) {
            (lease.ends, lease.overdue_at, lease.is_granted) = (None, None, false);
        }
        self.forget_if_nothing_is_owed(life);
    }

    pub(super) fn next_lapse(&self) -> Instant {
        let lapse = |lease: &Lease| match (lease.overdue_at, lease.session) {
            (Some(overdue_at), Some(_)) => Some(overdue_at.after(LISTEN_ON)),
            _ => lease.ends,
        };
        self.lives.values().filter_map(lapse).min().unwrap_or(Instant::NEVER)
    }

    fn forget_if_nothing_is_owed(&mut self, life: Life) {
        if self.lives.get(&life).is_some_and(|lease| lease.session.is_none() && lease.ends.is_none()) {
            self.lives.remove(&life);
        }
    }
}
