//! What handlers with programs need beside requests: their list, the pipe for errors, and their end.

use std::io;
use std::rc::{Rc, Weak};
use std::time::Duration;

use leat_host::program::{Ended, error_pipe, read_error_pipe};
use leat_host::reactor::{Reactor, TOKEN_INDEX_MAX, Token};

use super::super::programs::Purpose;
use super::super::settings::Site;
use super::super::{Host, Stage, Worker};
use super::pool::{ErrorPipe, Pool};
use super::program_log::Begun;
use super::program_run::{ProgramRun, Talk};
use super::{Handler, Kind};

/// Bytes read from the pipe for errors at a time, and how often at once: more than the pipe holds.
const ERROR_BYTES: usize = 4096;
const ERROR_READS_MAX: usize = 32;

/// When to look again whether requests may come to a handler that the configuration hasn't any more.
const LAST_REQUESTS_PAUSE: Duration = Duration::from_millis(100);

/// Turns in which a worker that ends hears that its connections to servers are closed: they were shut down before, so that this takes no time.
const CLOSING_TURNS_MAX: usize = 64;

/// The generation of pipes' tokens: no other polled descriptor has it.
const PIPES: u16 = 1;

impl<H: Host> Worker<H> {
    /// Takes in the handlers of the configuration's sites.
    pub(in crate::worker) fn arrange_handlers(&mut self, sites: &[u32]) {
        self.handlers.kept.iter().for_each(|handler| handler.state.is_configured.set(false));
        for &site in sites {
            for handler in &self.sites[site as usize].handlers {
                handler.state.site.set(Some(site));
                handler.state.is_configured.set(true);
                if handler.pool().is_some() && !handler.state.is_kept.replace(true) {
                    self.handlers.kept.push(handler.clone());
                }
            }
        }
        self.current = sites.to_vec();
        self.former_sites.retain(|site| site.strong_count() > 0);
        if !self.handlers.kept.is_empty() {
            // Starts responders, and ends those of handlers that have gone.
            self.programs.look_at = self.now;
        }
    }

    /// Whether a site of the configuration in force has the handler, and somebody may still ask for it: a worker that drains has requests yet
    /// to answer as long as it has connections.
    fn is_current(&self, handler: &Rc<Handler>) -> bool {
        let is_own = self.handlers.peers.as_ref().is_some_and(|peers| Rc::ptr_eq(peers, handler));
        let may_be_asked = self.drain.is_none() || self.connections.len() > 0;
        may_be_asked && (is_own || handler.state.is_configured.get())
    }

    /// Starts what is to be started, and lets go of handlers that the configuration hasn't any more, once nothing is under way. Returns when
    /// to look again.
    pub(in crate::worker) fn keep_handlers(&mut self) -> leat_logic::time::Instant {
        let mut next = leat_logic::time::Instant::NEVER;
        for handler in self.handlers.kept.clone() {
            let is_current = self.is_current(&handler);
            if is_current || self.may_be_asked(&handler) {
                next = next.min(self.start_responders(&handler)).min(self.keep_upstreams(&handler));
                if !is_current {
                    next = next.min(self.now.after(LAST_REQUESTS_PAUSE));
                }
            } else if !handler.is_at_work() {
                self.retire_handler(&handler);
            }
        }
        self.forget_retired();
        next
    }

    fn forget_retired(&mut self) {
        self.handlers.kept.retain(|handler| handler.state.is_kept.get());
    }

    /// Whether a request in hand may yet come to a handler that the configuration hasn't any more: each has the site that there was when it came.
    fn may_be_asked(&self, handler: &Rc<Handler>) -> bool {
        // The worker's list has one, and whoever asks: then no site has it any more, of which there may be thousands.
        if Rc::strong_count(handler) <= 2 {
            return false;
        }
        let has = |site: &Rc<Site>| site.handlers.iter().any(|known| Rc::ptr_eq(known, handler));
        self.sites.iter().any(|site| Rc::strong_count(site) > 1 && has(site))
            || self.former_sites.iter().filter_map(Weak::upgrade).any(|site| has(&site))
    }

    fn retire_handler(&mut self, handler: &Rc<Handler>) {
        if let Kind::FastCgi { responders, .. } = &handler.kind {
            for (stream, program) in responders.take_all() {
                if let Some(stream) = stream {
                    self.close_stream(stream);
                }
                if let Some(program) = program {
                    self.leave_program(program, true);
                }
            }
        }
        if let Kind::Proxy { proxy, .. } = &handler.kind {
            proxy.take_kept().into_iter().for_each(|stream| self.close_stream(stream));
        }
        if let Some(errors) = handler.pool().and_then(Pool::take_errors) {
            use std::os::fd::AsRawFd;
            self.reactor.stop_polling(errors.read.as_raw_fd(), errors.token);
            // Closed at the next turn but one, see `Reactor::stop_polling`.
            self.handlers.closing_pipes.push(errors);
        }
        handler.state.is_kept.set(false);
    }

    /// Lets go of all handlers, and of the connections that they keep: the worker ends, and the process may not.
    pub(in crate::worker) fn close_kept(&mut self) -> io::Result<()> {
        for handler in self.handlers.kept.clone() {
            self.retire_handler(&handler);
        }
        self.forget_retired();
        for _ in 0..CLOSING_TURNS_MAX {
            if !self.streams.are_closing() {
                break;
            }
            self.run_once()?;
        }
        Ok(())
    }

    /// Makes the pipe for errors, if it isn't there.
    pub(super) fn open_errors(&mut self, pool: &Pool) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        if pool.with_errors(|_, _| ()).is_some() {
            return Ok(());
        }
        let (read, write) = error_pipe()?;
        // Polled descriptors have names apart from those of slots.
        let token = Token { index: self.handlers.next_pipe, generation: PIPES };
        self.handlers.next_pipe = (self.handlers.next_pipe + 1) % TOKEN_INDEX_MAX;
        self.reactor.poll_readable(read.as_raw_fd(), token);
        pool.set_errors(ErrorPipe { token, read, write, begun: Begun::default() });
        Ok(())
    }

    /// Programs have written errors.
    pub(in crate::worker) fn errors_readable(&mut self, token: Token) {
        for handler in &self.handlers.kept {
            let Some(pool) = handler.pool() else { continue };
            pool.with_errors(|errors, log| {
                if errors.token != token {
                    return;
                }
                let mut bytes = [0; ERROR_BYTES];
                for _ in 0..ERROR_READS_MAX {
                    let count = read_error_pipe(&errors.read, &mut bytes);
                    log.add(&mut errors.begun, self.second, &bytes[..count], |line| {
                        crate::log::warning(format_args!("{}: {line}", handler.name));
                    });
                    if count < ERROR_BYTES {
                        return;
                    }
                }
            });
        }
    }

    /// A program of a handler has ended.
    pub(in crate::worker) fn handler_lost_program(
        &mut self,
        handler: &Rc<Handler>,
        program: Token,
        purpose: Purpose,
        ended: Ended,
        is_expected: bool,
    ) {
        // What it said last comes before what is said of it.
        if let Some(token) = handler.pool().and_then(|pool| pool.with_errors(|errors, _| errors.token)) {
            self.errors_readable(token);
        }
        if let Some(pool) = handler.pool() {
            pool.with_errors(|errors, log| {
                log.end(&mut errors.begun, self.second, |line| {
                    crate::log::warning(format_args!("{}: {line}", handler.name));
                });
            });
        }
        if !is_expected {
            match ended.signal {
                Some(signal) => {
                    crate::log::warning(format_args!("{}: a program was ended by signal {signal}", handler.name))
                }
                None if purpose == Purpose::Responder => {
                    let code = ended.code.unwrap_or_default();
                    crate::log::warning(format_args!("{}: a program has ended with code {code}", handler.name));
                }
                None => {}
            }
        }
        match purpose {
            Purpose::Cgi(connection) => {
                let is_its =
                    |run: &&mut ProgramRun| matches!(run.talk, Talk::Cgi { program: own, .. } if own == program);
                if let Some(run) = self.program_run(connection).filter(is_its) {
                    run.ended = Some(ended);
                    self.queue(Stage::Transmit, connection);
                }
                if let Some(pool) = handler.pool() {
                    pool.end();
                }
                self.serve_waiting(handler);
            }
            Purpose::Responder => self.responder_ended(handler, program),
        }
        self.programs.look_at = self.now;
    }
}
