//! What a connection that a node has shows of whether the node's replies get to its client. All that's known is what the client says.

use super::super::node::NodeId;
use crate::handoff::{Ends, FlowId, ServerId};

/// What says nothing new, in so many looks that don't follow each other at once, is said because nothing was heard.
const REPEATS: u8 = 2;
/// In so many looks an acknowledgement comes from anywhere.
const LONG_SILENCE: u8 = 5;
/// A connection is looked at so often.
const LOOKS: u8 = 10;
/// So often it may be put off: until it's known of another whether that hears anything, which takes longer where silence has to tell.
const DELAYS: u8 = 3;
const DELAYS_OF_SILENT: u8 = 8;
/// What a client has said last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// The sequence number that it would use next.
    pub next: u32,
    /// The first one that it hasn't acknowledged.
    pub acknowledged: u32,
    /// How often it has said nothing new, a count that wraps; none if that isn't known. A client that asks whether there is room, or anybody, repeats nothing.
    pub repeats: Option<u8>,
}

/// What came of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The client has acknowledged something that its node said.
    Heard,
    /// It repeats itself, though its node has what it said.
    Unheard,
    /// The client has nothing to repeat, and only its node knows whether it waits for something that was sent.
    Silent,
    Nothing,
    /// Nothing, and it isn't looked at any more.
    Enough,
}

/// A connection that is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Whose replies are in question.
    pub node: NodeId,
    /// The node's worker that has it.
    pub server: ServerId,
    /// Which connection.
    pub ends: Ends,
    /// What it is to its home; none if it's in no books.
    pub flow: Option<FlowId>,
    /// It's to be looked at even if it has ended.
    pub matters: bool,
    pub(super) is_trial: bool,
    /// That its client hears nothing is known.
    pub(super) is_counted: bool,
    said: Option<Said>,
    repeats: u8,
    /// One at first where silence may mean something.
    silences: u8,
    looks: u8,
    delays: u8,
}

impl Look {
    /// `said`: before the node had it, if that's known.
    #[must_use]
    pub fn new(node: NodeId, server: ServerId, ends: Ends, flow: Option<FlowId>, said: Option<Said>) -> Look {
        let (matters, is_trial, is_counted) = (false, false, false);
        let (repeats, silences, looks, delays) = (0, 0, 0, 0);
        Look { node, server, ends, flow, matters, is_trial, is_counted, said, repeats, silences, looks, delays }
    }

    /// The same of one that another server has had: that has acknowledged what the client said, so that it has nothing to repeat.
    #[must_use]
    pub fn moved(self) -> Look {
        Look { silences: 1, ..self }
    }

    /// Whether it isn't looked at yet, but may be later.
    pub(super) fn delay(&mut self) -> bool {
        self.delays += 1;
        self.delays < if self.silences > 0 { DELAYS_OF_SILENT } else { DELAYS }
    }

    /// Whether the client has acknowledged anything since it was looked at last.
    #[must_use]
    pub fn is_heard_since(&self, acknowledged: u32) -> bool {
        self.said.is_some_and(|said| said.acknowledged != acknowledged)
    }

    /// Whether it's silent for so long that what its node has said and ended would have been acknowledged, wherever it is.
    pub(super) fn is_long_silent(&self) -> bool {
        self.silences > LONG_SILENCE
    }

    pub(super) fn is_last(&self) -> bool {
        self.looks >= LOOKS
    }

    /// `said`: what the client has said by now; none while the node doesn't have the connection yet.
    ///
    /// What is received is acknowledged by a kernel, at once and whatever becomes of the request. A client that hears nothing of that says the same again, so
    /// its numbers stand still while it speaks; one that waits for a slow reply is silent.
    pub(super) fn judge(&mut self, said: Option<Said>) -> Shown {
        self.looks += 1;
        let nothing = if self.is_last() { Shown::Enough } else { Shown::Nothing };
        let Some(said) = said else {
            // Whatever it says meanwhile doesn't count.
            self.said.iter_mut().for_each(|before| before.repeats = None);
            return nothing;
        };
        let Some(before) = self.said.replace(said) else { return nothing };
        if said.acknowledged != before.acknowledged {
            return Shown::Heard;
        }
        if said.next != before.next {
            self.repeats = 0;
        } else if before.repeats.zip(said.repeats).is_some_and(|(before, now)| before != now) {
            self.repeats += 1;
        } else if self.silences > 0 {
            self.silences = self.silences.saturating_add(1);
        }
        match self.repeats < REPEATS {
            false => Shown::Unheard,
            true if self.silences > REPEATS => Shown::Silent,
            true => nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(next: u32, acknowledged: u32, repeats: u8) -> Said {
        Said { next, acknowledged, repeats: Some(repeats) }
    }

    fn shown(looks: &[Option<Said>]) -> Vec<Shown> {
        let ends = Ends { client: "198.18.0.1:5".parse().unwrap(), vip: "10.77.0.100:80".parse().unwrap() };
        let mut look = Look::new(NodeId(0), ServerId(1), ends, None, Some(said(100, 7, 0)));
        looks.iter().map(|said| look.judge(*said)).collect()
    }

    #[test]
    fn who_repeats_itself_has_heard_nothing() {
        let looks = [said(100, 7, 1), said(100, 7, 2)].map(Some);
        assert_eq!(shown(&looks), [Shown::Nothing, Shown::Unheard]);
        // Once may be a packet that was lost.
        let looks = [said(100, 7, 1), said(100, 7, 1), said(100, 9, 1)].map(Some);
        assert_eq!(shown(&looks), [Shown::Nothing, Shown::Nothing, Shown::Heard]);
    }

    #[test]
    fn who_is_silent_waits_and_who_says_more_goes_on() {
        let waits = [Some(said(100, 7, 0)); LOOKS as usize];
        let said_of_waiting = shown(&waits);
        assert!(
            said_of_waiting[..9].iter().all(|shown| *shown == Shown::Nothing) && said_of_waiting[9] == Shown::Enough
        );
        let uploads = [300, 600, 900].map(|ms| Some(said(ms, 7, 0)));
        assert_eq!(shown(&uploads), [Shown::Nothing; 3]);
    }

    #[test]
    fn who_was_acknowledged_by_another_is_silent() {
        let ends = Ends { client: "198.18.0.1:5".parse().unwrap(), vip: "10.77.0.100:80".parse().unwrap() };
        let mut look = Look::new(NodeId(0), ServerId(1), ends, None, Some(said(100, 7, 0))).moved();
        let mut judge = || (look.judge(Some(said(100, 7, 0))), look.is_long_silent());
        assert_eq!([judge().0, judge().0], [Shown::Nothing, Shown::Silent]);
        assert_eq!([judge().1, judge().1, judge().1], [false, false, true]);
    }

    #[test]
    fn what_does_not_count_is_no_repetition() {
        let ended = |repeats| Some(Said { repeats, ..said(100, 7, 0) });
        assert_eq!(shown(&[ended(Some(1)), ended(None), ended(Some(3)), ended(Some(3))]), [Shown::Nothing; 4]);
        assert_eq!(shown(&[ended(None), Some(said(100, 8, 0))]), [Shown::Nothing, Shown::Heard]);
    }

    #[test]
    fn a_node_that_does_not_have_it_yet_is_not_to_blame() {
        let looks = [None, None, Some(said(100, 7, 4)), Some(said(100, 7, 5))];
        assert_eq!(shown(&looks), [Shown::Nothing; 4], "once, since it has it");
        assert_eq!(shown(&[None, Some(said(100, 8, 0))]), [Shown::Nothing, Shown::Heard]);
    }
}
