//! Content that comes in chunks for a program of CGI or FastCGI: such a program reads as much as CONTENT_LENGTH says (RFC 3875 section 4.2), so nothing
//! is given to it before all has come. Decides how much may lie in memory for that; where content ends, and how much a site takes, is `http`'s to say.

use std::cell::Cell;
use std::rc::Rc;

use leat_host::reactor::Token;
use leat_logic::admission::Next;
use leat_logic::http::{BodyLength, Progress, Request, Status};

use super::super::exchange::Piece;
use super::super::{Host, Worker};
use super::program_run::Body;
use super::{Kind, Run};

/// Content of one request: who sends more has to say how long it is.
const REQUEST_BYTES_MAX: usize = 16 << 20;
/// Content for one handler at one worker.
const HANDLER_BYTES_MAX: usize = 64 << 20;

/// Bytes that lie in memory for a handler.
#[derive(Clone, Debug, Default)]
pub(super) struct Account(Rc<Cell<usize>>);

impl Account {
    /// Whether some request's content is being gathered, or given to its program.
    pub(super) fn is_in_use(&self) -> bool {
        Rc::strong_count(&self.0) > 1
    }
}

/// The content of one request, as far as it has come.
#[derive(Debug)]
pub(super) struct Gathered {
    bytes: Vec<u8>,
    /// Bytes that the program has had.
    given: usize,
    account: Account,
}

impl Gathered {
    pub(super) fn new(account: &Account) -> Gathered {
        Gathered { bytes: Vec::new(), given: 0, account: account.clone() }
    }

    /// Adds what has come, unless that is more than may lie here.
    ///
    /// # Errors
    /// What to answer.
    fn add(&mut self, content: &[u8]) -> Result<(), Status> {
        let held = self.account.0.get() + content.len();
        if self.bytes.len() + content.len() > REQUEST_BYTES_MAX {
            return Err(Status::LENGTH_REQUIRED);
        }
        if held > HANDLER_BYTES_MAX {
            return Err(Status::SERVICE_UNAVAILABLE);
        }
        self.account.0.set(held);
        self.bytes.extend_from_slice(content);
        Ok(())
    }

    /// Bytes of all of it.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// What follows, `max` bytes at most, and whether nothing comes after that.
    pub(super) fn next(&mut self, max: usize) -> (&[u8], bool) {
        let begin = self.given;
        self.given = self.bytes.len().min(begin.saturating_add(max));
        (&self.bytes[begin..self.given], self.given == self.bytes.len())
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        self.account.0.set(self.account.0.get() - self.bytes.len());
    }
}

impl Kind {
    /// Where to gather the content of a request before a program is found for it; `None` where it's passed on as it comes.
    pub(super) fn gathers(&self, length: BodyLength) -> Option<Gathered> {
        match self {
            Kind::Cgi { pool, .. } | Kind::FastCgi { pool, .. } if length == BodyLength::Chunked => {
                Some(Gathered::new(&pool.gathered))
            }
            _ => None,
        }
    }
}

impl<H: Host> Worker<H> {
    /// Takes in what has come of a content that a program is to have as a whole, and finds the program once that is complete.
    pub(super) fn gather_content(&mut self, token: Token) {
        let failure = loop {
            let Some(connection) = self.connections.get(token) else { return };
            let Some(Run::Program(run)) = connection.exchange.as_mut().and_then(|exchange| exchange.run.as_mut())
            else {
                return;
            };
            let (Body::Gathering, Some(gathered), None) = (run.body, &mut run.gathered, run.failed) else { return };
            let gate = &mut self.gates[connection.site as usize];
            if gate.is_full() && !gate.unread.is_first(token) {
                // It goes on in its turn, with what has come already if nothing more does.
                gate.unread.ask(token, Next::IsGathered, self.now);
                connection.flags.unread = true;
                return;
            }
            if !gate.can_hold(gathered.len()) {
                break Status::LENGTH_REQUIRED;
            }
            let limits = &self.sites[connection.site as usize].limits;
            let input = connection.inbox.bytes(&self.reactor);
            let (consumed, progress) = connection.http.handle_input(self.now, input, limits);
            let is_all = match progress {
                Progress::Body(content) => gathered.add(content).map(|()| false),
                Progress::BodyEnd => Ok(true),
                Progress::Reject(rejection) => {
                    connection.inbox.clear(&mut self.reactor);
                    return self.refuse_content(token, rejection);
                }
                Progress::NeedInput | Progress::Request(_) | Progress::Ended => {
                    connection.inbox.consume(&mut self.reactor, consumed);
                    return self.receive_more_content(token);
                }
            };
            connection.inbox.consume(&mut self.reactor, consumed);
            match is_all {
                Ok(false) => {}
                Ok(true) => {
                    run.body = Body::Gathered;
                    run.heard_at = self.now;
                    let handler = run.handler.clone();
                    match self.find_program(token, &handler) {
                        Ok(_) => return,
                        Err(status) => break status,
                    }
                }
                Err(status) => break status,
            }
        };
        self.fail_run_later(token, failure);
    }

    /// Has what follows of a content be received. A client that ended its side before a handler was at work won't send it.
    pub(super) fn receive_more_content(&mut self, token: Token) {
        let connection = &self.connections[token];
        if !connection.flags.ended {
            return self.arm_receive(token);
        }
        let has_begun = connection.exchange.as_ref().is_some_and(|exchange| exchange.status != 0);
        self.account_unanswered(token);
        // A reset would have replies lost that it may still read.
        if has_begun { self.cut(token) } else { self.close(token) }
    }

    /// Tells a client that waits for it that it may send its content. That is on its way before the reply.
    pub(super) fn give_leave(&mut self, token: Token) {
        let connection = &mut self.connections[token];
        let Some(exchange) = connection.exchange.as_mut() else { return };
        if connection.inbox.is_empty()
            && Request::read_again(&exchange.head).is_some_and(|request| request.expect_continue)
        {
            connection.http.handle_continue_sent();
            let bytes = bytes::Bytes::from_static(leat_logic::http::CONTINUE);
            exchange.pieces.push_back(Piece::Bytes { bytes, done: 0 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_limited_for_a_request_and_for_all() {
        let account = Account::default();
        let part = vec![0; REQUEST_BYTES_MAX];
        let mut all: Vec<Gathered> =
            (0..HANDLER_BYTES_MAX / REQUEST_BYTES_MAX).map(|_| Gathered::new(&account)).collect();
        for gathered in &mut all {
            assert_eq!(gathered.add(&part), Ok(()));
            assert_eq!(gathered.add(b"x"), Err(Status::LENGTH_REQUIRED));
        }
        let mut another = Gathered::new(&account);
        assert_eq!(another.add(b"x"), Err(Status::SERVICE_UNAVAILABLE));
        all.pop();
        assert_eq!(another.add(b"x"), Ok(()));
        drop((all, another));
        assert_eq!(account.0.get(), 0);
    }

    #[test]
    fn it_is_given_piece_by_piece() {
        let mut gathered = Gathered::new(&Account::default());
        gathered.add(b"abc").expect("there is room");
        gathered.add(b"de").expect("there is room");
        assert_eq!(gathered.len(), 5);
        assert_eq!(gathered.next(4), (&b"abcd"[..], false));
        assert_eq!(gathered.next(4), (&b"e"[..], true));
    }
}
