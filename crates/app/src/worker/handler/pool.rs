//! How many requests of a handler are at work at once, and which wait; and the pipe that its programs' errors come by.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;

use leat_host::reactor::Token;

use super::gather::Account;
use super::program_log::{Begun, ProgramLog};

/// See the module. Shared by the worker's exchanges with the handler.
pub(super) struct Pool {
    /// At work at once, at most.
    pub(super) processes_max: usize,
    queue_max: usize,
    /// Patience with a program.
    pub(super) timeout: Duration,
    /// Contents of requests that none of its programs has had yet.
    pub(super) gathered: Account,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// Programs of CGI that haven't ended.
    running: usize,
    /// Connections whose request waits.
    waiting: VecDeque<Token>,
    errors: Option<ErrorPipe>,
    log: ProgramLog,
}

/// The pipe that programs write their errors to.
pub(in crate::worker) struct ErrorPipe {
    pub(super) token: Token,
    pub(super) read: OwnedFd,
    pub(super) write: OwnedFd,
    /// What the pipe has brought of a line that hasn't ended.
    pub(super) begun: Begun,
}

impl Pool {
    pub(super) fn new(processes_max: usize, queue_max: usize, timeout: Duration) -> Pool {
        Pool { processes_max, queue_max, timeout, gathered: Account::default(), state: RefCell::default() }
    }

    /// Takes a place for a program, if there is one.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let has_place = state.running < self.processes_max;
        state.running += usize::from(has_place);
        has_place
    }

    /// A program has ended.
    pub(super) fn end(&self) {
        self.state.borrow_mut().running -= 1;
    }

    /// Puts a connection at the end of the queue, unless that is full.
    pub(super) fn wait(&self, token: Token) -> bool {
        let mut state = self.state.borrow_mut();
        let has_room = state.waiting.len() < self.queue_max;
        if has_room {
            state.waiting.push_back(token);
        }
        has_room
    }

    /// Puts the connection back that was [`Pool::next`]: there is no place for it yet.
    pub(super) fn wait_on(&self, token: Token) {
        self.state.borrow_mut().waiting.push_front(token);
    }

    /// The connection that has waited longest.
    pub(super) fn next(&self) -> Option<Token> {
        self.state.borrow_mut().waiting.pop_front()
    }

    /// Whether requests wait for a place.
    pub(super) fn has_waiting(&self) -> bool {
        !self.state.borrow().waiting.is_empty()
    }

    /// Whether programs run for a request, or requests wait, for their content if for nothing else.
    pub(super) fn is_busy(&self) -> bool {
        let state = self.state.borrow();
        state.running > 0 || !state.waiting.is_empty() || self.gathered.is_in_use()
    }

    /// Takes a connection out of the queue: its client has gone.
    pub(super) fn give_up(&self, token: Token) {
        self.state.borrow_mut().waiting.retain(|&waiting| waiting != token);
    }

    /// Calls `use_it` with the pipe for errors, if there is one.
    pub(super) fn with_errors<T>(&self, use_it: impl FnOnce(&mut ErrorPipe, &mut ProgramLog) -> T) -> Option<T> {
        let state = &mut *self.state.borrow_mut();
        state.errors.as_mut().map(|errors| use_it(errors, &mut state.log))
    }

    /// Calls `use_it` with the log of its programs.
    pub(super) fn with_log(&self, use_it: impl FnOnce(&mut ProgramLog)) {
        use_it(&mut self.state.borrow_mut().log);
    }

    pub(super) fn set_errors(&self, errors: ErrorPipe) {
        self.state.borrow_mut().errors = Some(errors);
    }

    /// Takes the pipe away: the handler is going.
    pub(super) fn take_errors(&self) -> Option<ErrorPipe> {
        self.state.borrow_mut().errors.take()
    }
}
