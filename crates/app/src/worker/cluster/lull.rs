//! Decides when what nodes tell a home may lie unread for a moment. Most of it is only for the case that they die, and nobody waits for it: which
//! replies have begun, which flows have ended. But to be woken for each such message takes a home several times what the message does. Who reads it
//! is `link`'s business.

use std::time::Duration;

use leat_logic::handoff::Message;
use leat_logic::time::Instant;

/// As long as nodes keep what begins and ends, so that it travels together. All links are read at the same moments.
const LULL: Duration = Duration::from_millis(5);
/// For so long after a message that somebody waits for, others may follow.
const HURRY: Duration = Duration::from_secs(1);

/// Of one link.
#[derive(Default)]
pub(super) struct Lull {
    hurried_at: Instant,
    came_at: Instant,
    until: Option<Instant>,
}

impl Lull {
    /// A message has come, or is about to be sent.
    pub(super) fn saw(&mut self, message: &Message, now: Instant) {
        if is_awaited(message) {
            self.hurried_at = now;
        }
    }

    /// All that was there has been read. Whether what comes next is left to lie until the lull is over: only where several messages are expected
    /// until then.
    pub(super) fn begins(&mut self, now: Instant) -> bool {
        let came_at = std::mem::replace(&mut self.came_at, now);
        let is_dense = now.since(came_at) < LULL / 2;
        let is_calm = now.since(self.hurried_at) > HURRY;
        if is_dense && is_calm {
            self.until = Some(now.after(Duration::from_nanos(1)).rounded_up(LULL));
        }
        self.until.is_some()
    }

    /// Whether a lull is over, which it's said to be once.
    pub(super) fn ends(&mut self, now: Instant) -> bool {
        let is_over = self.until.is_some_and(|until| until <= now || self.hurried_at == now);
        if is_over {
            self.until = None;
            self.came_at = now;
        }
        is_over
    }

    /// When it's over.
    pub(super) fn poll_timeout(&self) -> Instant {
        self.until.unwrap_or(Instant::NEVER)
    }
}

/// Whether a client, a connection or a server waits for what comes of it. A node's word that it has taken what it was offered is told from its word
/// that something has begun there by the offer.
fn is_awaited(message: &Message) -> bool {
    !matches!(
        message,
        Message::Heartbeat { .. }
            | Message::Lease { .. }
            | Message::Taken { .. }
            | Message::Began { .. }
            | Message::Ended { .. }
            | Message::Seen(_)
    )
}

#[cfg(test)]
mod tests {
    use leat_logic::handoff::{FlowId, Generation, ServerId};

    use super::*;

    const FLOW: FlowId = FlowId { home: ServerId(0), serial: 1 };
    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Instant {
        Instant { ns: 10_000 * MS + ms * MS }
    }

    fn ended() -> Message {
        Message::Ended { flow: FLOW, generation: Generation(1), is_cut: false }
    }

    fn release() -> Message {
        Message::Release { flow: FLOW, generation: Generation(1) }
    }

    #[test]
    fn what_nobody_waits_for_is_read_together() {
        let mut lull = Lull::default();
        lull.saw(&ended(), at(1));
        assert!(!lull.begins(at(1)), "one message alone is read as it comes");
        assert!(!lull.begins(at(4)), "and so are a few");
        assert!(lull.begins(at(6)), "one that follows soon shows that there are many");
        assert_eq!(lull.poll_timeout(), at(10));
        assert!(!lull.ends(at(9)) && lull.ends(at(10)) && !lull.ends(at(10)));
        assert!(lull.begins(at(10)), "something had come meanwhile");
        assert!(lull.ends(at(15)));
        assert_eq!(lull.poll_timeout(), Instant::NEVER);
        assert!(!lull.begins(at(18)), "nothing had");
    }

    #[test]
    fn what_somebody_waits_for_is_read_as_it_comes() {
        let mut lull = Lull::default();
        assert!(!lull.begins(at(0)) && lull.begins(at(1)));
        lull.saw(&release(), at(2));
        assert!(lull.ends(at(2)), "its answer mustn't lie");
        assert!(!lull.begins(at(3)));
        assert!(!lull.begins(at(1_000)) && !lull.begins(at(1_002)));
        assert!(lull.begins(at(1_003)), "a second later nobody has waited for anything");
    }
}
