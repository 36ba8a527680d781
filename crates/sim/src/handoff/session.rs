//! Sessions between a node and the home: in order, each message at most once, as the link sees to it; late, and lost from some message on when
//! a session breaks. Each side learns of that in its own time.

use std::collections::BTreeMap;

use leat_logic::handoff::SessionId;

use crate::agenda::MILLISECOND;
use crate::random::Random;

#[derive(Debug)]
pub(super) struct Session {
    /// The node's machine.
    pub(super) node: usize,
    /// Lives of the node's and the home's processes when it began.
    pub(super) lives: (u64, u64),
    pub(super) is_cut: bool,
    /// When the last message arrives that is under way to the node, and to the home.
    arrivals: (u64, u64),
    /// What is under way when it's cut arrives nevertheless.
    pub(super) delivers_rest: bool,
}

#[derive(Debug, Default)]
pub(super) struct Sessions {
    last: u64,
    all: BTreeMap<SessionId, Session>,
}

impl Sessions {
    pub(super) fn open(&mut self, node: usize, lives: (u64, u64), opened_ns: u64) -> SessionId {
        self.last += 1;
        let session = SessionId(self.last);
        self.all.insert(
            session,
            Session { node, lives, is_cut: false, arrivals: (opened_ns, opened_ns), delivers_rest: false },
        );
        session
    }

    pub(super) fn get(&self, session: SessionId) -> Option<&Session> {
        self.all.get(&session)
    }

    /// When a message sent now arrives; never on a session that is cut.
    pub(super) fn arrival(
        &mut self,
        random: &mut Random,
        now_ns: u64,
        session: SessionId,
        to_home: bool,
    ) -> Option<u64> {
        let session = self.all.get_mut(&session).filter(|session| !session.is_cut)?;
        let last = if to_home { &mut session.arrivals.1 } else { &mut session.arrivals.0 };
        let latency_ns = if random.percent(3) { 60 * MILLISECOND } else { MILLISECOND };
        *last = (*last + 1).max(now_ns + random.below(latency_ns));
        Some(*last)
    }

    /// Cuts it. False when it was before.
    pub(super) fn cut(&mut self, random: &mut Random, session: SessionId) -> bool {
        match self.all.get_mut(&session) {
            Some(found) if !found.is_cut => {
                found.is_cut = true;
                found.delivers_rest = random.percent(50);
                true
            }
            _ => false,
        }
    }

    pub(super) fn of_node(&self, node: usize) -> Vec<SessionId> {
        self.all.iter().filter(|(_, session)| session.node == node && !session.is_cut).map(|(&id, _)| id).collect()
    }
}
