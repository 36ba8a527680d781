//! Replies of which homes are being told. Decides when their bytes may be sent: not before the kernel has what their home is told, or there is nobody to tell.
//! A link has its messages in batches, one at each turn's end; when it's full, the next one waits until the last has gone.

use std::collections::BTreeMap;

use leat_host::reactor::{Token, Transmit};
use leat_logic::handoff::SessionId;

/// Which of a link's batches, counted from 1.
pub(super) type Batch = u64;

/// See the module.
#[derive(Default)]
pub(super) struct Told {
    /// By the connection's slot.
    waiting: BTreeMap<u32, Waiting>,
}

struct Waiting {
    token: Token,
    session: SessionId,
    batch: Batch,
    next: Next,
}

/// What a reply's bytes wait for, besides.
enum Next {
    /// Nobody wants to send them yet.
    Nothing,
    /// They go out whole.
    Send(Transmit),
    /// They're sent in pieces.
    Continue,
}

/// A reply whose home has been told.
pub(super) enum Ready {
    /// It goes out.
    Send(Token, Transmit),
    /// Its pieces may be sent.
    Continue(Token),
}

impl Told {
    /// A home is told of a reply with this batch.
    pub(super) fn add(&mut self, token: Token, session: SessionId, batch: Batch) {
        self.waiting.insert(token.index, Waiting { token, session, batch, next: Next::Nothing });
    }

    /// Keeps a whole reply until its home has been told. It's given back if nothing is told of it.
    pub(super) fn keep(&mut self, token: Token, transmit: Transmit) -> Option<Transmit> {
        match self.waiting_mut(token) {
            Some(waiting) => {
                waiting.next = Next::Send(transmit);
                None
            }
            None => Some(transmit),
        }
    }

    /// Whether a reply's home is still being told. Its pieces follow when it has been.
    pub(super) fn holds_up(&mut self, token: Token) -> bool {
        let waiting = self.waiting_mut(token);
        waiting.map(|waiting| waiting.next = Next::Continue).is_some()
    }

    /// Whether anything is told of a reply.
    pub(super) fn knows(&mut self, token: Token) -> bool {
        self.waiting_mut(token).is_some()
    }

    /// Its connection ends. Whether a whole reply waited here, which the reactor won't be given now.
    pub(super) fn forget(&mut self, token: Token) -> bool {
        let is_known = self.waiting_mut(token).is_some();
        let waiting = if is_known { self.waiting.remove(&token.index) } else { None };
        waiting.is_some_and(|waiting| matches!(waiting.next, Next::Send(_)))
    }

    /// Replies whose home has been told. `flushed`: up to which batch the kernel has all of a link's; none for a link that there isn't.
    pub(super) fn take_ready(&mut self, flushed: impl Fn(SessionId) -> Option<Batch>) -> Vec<Ready> {
        let is_told =
            |_: &u32, waiting: &mut Waiting| flushed(waiting.session).is_none_or(|batch| batch >= waiting.batch);
        let told = self.waiting.extract_if(.., is_told).map(|(_, waiting)| waiting);
        let ready = |waiting: Waiting| match waiting.next {
            Next::Nothing => None,
            Next::Send(transmit) => Some(Ready::Send(waiting.token, transmit)),
            Next::Continue => Some(Ready::Continue(waiting.token)),
        };
        told.filter_map(ready).collect()
    }

    fn waiting_mut(&mut self, token: Token) -> Option<&mut Waiting> {
        self.waiting.get_mut(&token.index).filter(|waiting| waiting.token == token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: SessionId = SessionId(1);
    const FAST: SessionId = SessionId(2);

    fn token(index: u32) -> Token {
        Token { index, generation: 0 }
    }

    fn transmit() -> Transmit {
        Transmit { head: b"HTTP/1.1".to_vec(), body: bytes::Bytes::new(), unhurried: true }
    }

    fn ready(told: &mut Told, slow: Option<Batch>) -> Vec<String> {
        let name = |ready: &Ready| match ready {
            Ready::Send(token, _) => format!("send {}", token.index),
            Ready::Continue(token) => format!("continue {}", token.index),
        };
        told.take_ready(|session| if session == SLOW { slow } else { Some(1) }).iter().map(name).collect()
    }

    #[test]
    fn a_reply_waits_for_its_own_homes_link_and_for_no_other() {
        let mut told = Told::default();
        told.add(token(1), SLOW, 4);
        told.add(token(2), FAST, 1);
        told.add(token(3), SLOW, 5);
        assert!(told.keep(token(1), transmit()).is_none() && told.keep(token(2), transmit()).is_none());
        assert!(told.keep(token(4), transmit()).is_some(), "nobody is told of it");
        assert!(told.holds_up(token(3)) && !told.holds_up(Token { generation: 1, ..token(3) }));
        assert_eq!(ready(&mut told, Some(3)), ["send 2"]);
        assert_eq!(ready(&mut told, Some(4)), ["send 1"]);
        assert_eq!(ready(&mut told, Some(4)), Vec::<String>::new());
        assert_eq!(ready(&mut told, Some(5)), ["continue 3"]);
        assert!(!told.knows(token(3)));
    }

    #[test]
    fn what_ends_waits_for_nobody() {
        let mut told = Told::default();
        (1..4).for_each(|slot| told.add(token(slot), SLOW, 9));
        told.keep(token(1), transmit());
        told.holds_up(token(2));
        assert!(!told.forget(Token { generation: 1, ..token(1) }), "it's another connection's");
        assert!(told.forget(token(1)) && !told.forget(token(1)));
        assert!(!told.forget(token(2)) && !told.forget(token(3)), "the reactor was to be given nothing");
        assert_eq!(ready(&mut told, None), Vec::<String>::new());
    }

    #[test]
    fn nobody_waits_for_a_link_that_has_ended() {
        let mut told = Told::default();
        (1..4).for_each(|slot| told.add(token(slot), SLOW, 9));
        told.keep(token(1), transmit());
        told.holds_up(token(2));
        assert_eq!(ready(&mut told, None), ["send 1", "continue 2"], "and who hasn't begun to send may");
        assert!(!told.knows(token(3)));
    }
}
