//! A request that a program or another server answers: its way from the queue to a program, and its end, whoever ends it. What is said
//! meanwhile is `relay`'s.

use std::rc::Rc;
use std::time::Duration;

use leat_host::program::{Ended, Programs};
use leat_host::reactor::{Reactor, Token};
use leat_logic::cgi::{Place, ReplyReader};
use leat_logic::fastcgi::Conversation;
use leat_logic::http::client::{Teller, Whole};
use leat_logic::http::forwarded::scheme;
use leat_logic::http::{self, BodyLength, Rejection, Request, Status};
use leat_logic::time::Instant;

use super::super::{Host, Stage, Worker, programs};
use super::gather::Gathered;
use super::program_log::Begun;
use super::proxy::{Left, Outcome, Passing, Stop};
use super::{Handler, Kind, Run};

/// Content of a request that is received in few large parts, each when it's passed on.
const LONG_CONTENT_BYTES: u64 = 32 * 1024;

/// See the module.
pub(in crate::worker) struct ProgramRun {
    pub(super) handler: Rc<Handler>,
    /// Bytes of the path that name the handler.
    pub(super) named: usize,
    pub(super) talk: Talk,
    pub(super) reader: ReplyReader,
    /// The program's output that isn't understood yet: part of its header lines.
    pub(super) output: Vec<u8>,
    /// What it has said for the log of a line that hasn't ended.
    pub(super) begun: Begun,
    pub(super) framing: Option<Framing>,
    /// Some of the reply went out as soon as it was heard.
    pub(super) has_sent: bool,
    /// What another server's reply is, if one more can go on with it.
    pub(super) whole: Option<Whole>,
    /// All that the client is sent, as long as a home may be told of it.
    pub(super) said: Option<Vec<u8>>,
    pub(super) body: Body,
    /// Content whose length the client hasn't said, for a program that must be told.
    pub(super) gathered: Option<Gathered>,
    /// Of a request that is passed on to another server.
    pub(super) passing: Passing,
    /// What to answer in place of the program, which has been given up.
    pub(super) failed: Option<Status>,
    /// How a CGI program has ended.
    pub(super) ended: Option<Ended>,
    /// When the program last said or took something, or leat last didn't wait for it, and how long leat had kept it from running by then.
    pub(super) heard_at: Instant,
    pub(super) held_by_then: Duration,
}

/// How the program is spoken to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Talk {
    /// There is none yet.
    Waiting,
    /// Its own standard input and output, and its slot.
    Cgi { stream: Token, program: Token },
    /// Records. `reused`: the connection has carried requests before, so that its end may have nothing to do with this one.
    FastCgi { stream: Token, responder: usize, conversation: Conversation, reused: bool },
    /// HTTP/1.1, to the server at that place.
    Http { stream: Token, place: usize, reader: http::client::ReplyReader },
    /// As client and server like: HTTP is over.
    Tunnel { stream: Token },
}

/// How the reply's content is delimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Framing {
    /// By its length, or by the connection's end.
    #[default]
    Plain,
    Chunked,
    /// There is none to be sent.
    Dropped,
}

/// What of the request's content is still to go to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// All of it, which hasn't come yet: a program is found once it has.
    Gathering,
    /// All of it, which lies here.
    Gathered,
    /// What the client sends, as it comes.
    Expected,
    /// The same, whatever it is, until the client ends its side.
    Tunnel,
    Ended,
}

impl ProgramRun {
    fn new(handler: &Rc<Handler>, named: usize, body: Body, now: Instant) -> Box<ProgramRun> {
        Box::new(ProgramRun {
            handler: handler.clone(),
            named,
            talk: Talk::Waiting,
            reader: ReplyReader::default(),
            output: Vec::new(),
            begun: Begun::default(),
            framing: None,
            has_sent: false,
            whole: None,
            said: Some(Vec::new()),
            body,
            gathered: None,
            passing: Passing::default(),
            failed: None,
            ended: None,
            heard_at: now,
            held_by_then: Duration::ZERO,
        })
    }

    /// One of which another engine has sent a part.
    pub(super) fn resumed(handler: &Rc<Handler>, named: usize, talk: Talk, now: Instant) -> Box<ProgramRun> {
        let mut run = ProgramRun::new(handler, named, Body::Tunnel, now);
        (run.talk, run.framing) = (talk, Some(Framing::Plain));
        (run.has_sent, run.said) = (true, None);
        run
    }

    /// Whether the client has been told everything, whatever the program still says.
    pub(super) fn is_told(&self) -> bool {
        self.framing == Some(Framing::Dropped) || self.reader.has_all()
    }

    /// Whether client and server speak something else than HTTP by now.
    pub(super) fn is_tunnel(&self) -> bool {
        matches!(self.talk, Talk::Tunnel { .. })
    }

    /// The program, if leat has started it.
    fn program(&self) -> Option<Token> {
        match self.talk {
            Talk::Cgi { program, .. } => Some(program),
            Talk::FastCgi { responder, .. } => self.handler.program_at(responder),
            Talk::Waiting | Talk::Http { .. } | Talk::Tunnel { .. } => None,
        }
    }

    /// Something has been heard of the program.
    pub(super) fn note_heard<P: Programs>(&mut self, now: Instant, programs: &programs::Programs<P>) {
        self.heard_at = now;
        self.held_by_then = self.program().map_or(Duration::ZERO, |program| programs.held(program, now));
    }

    /// The program says nothing more for the log: php-fpm ends no line.
    pub(super) fn end_errors(&mut self, second: i64) {
        let ProgramRun { handler, begun, .. } = self;
        if let Some(pool) = handler.pool() {
            pool.with_log(|log| {
                log.end(begun, second, |line| crate::log::warning(format_args!("{}: {line}", handler.name)));
            });
        }
    }

    pub(super) fn stream(&self) -> Option<Token> {
        match self.talk {
            Talk::Waiting => None,
            Talk::Cgi { stream, .. }
            | Talk::FastCgi { stream, .. }
            | Talk::Http { stream, .. }
            | Talk::Tunnel { stream } => Some(stream),
        }
    }
}

impl<H: Host> Worker<H> {
    /// Gives the request in hand to one of a handler's programs or servers, or puts it in the handler's queue.
    pub(super) fn begin_program_run(&mut self, token: Token, handler: &Rc<Handler>, named: usize) {
        self.begin_run_with(token, handler, named, Passing::default());
    }

    pub(super) fn begin_run_with(&mut self, token: Token, handler: &Rc<Handler>, named: usize, passing: Passing) {
        self.draw_name(token);
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return };
        let length = Request::read_again(&exchange.head).map_or(BodyLength::None, |request| request.body);
        let gathered = handler.kind.gathers(length);
        let is_gathering = gathered.is_some();
        let body = match length {
            _ if is_gathering => Body::Gathering,
            BodyLength::None => Body::Ended,
            BodyLength::Length(_) | BodyLength::Chunked => Body::Expected,
        };
        let mut run = ProgramRun::new(handler, named, body, self.now);
        run.passing = passing;
        run.gathered = gathered;
        exchange.run = Some(Run::Program(run));
        self.expect_length(token, length);
        if is_gathering {
            self.give_leave(token);
            self.queue(Stage::Transmit, token);
        } else if let Err(status) = self.find_program(token, handler) {
            self.fail_run(token, status);
            return;
        }
        if let Some(timeout) = handler.timeout() {
            self.sweep_at = self.sweep_at.min(self.now.after(timeout));
        }
    }

    /// Has content of that length received as befits it.
    pub(super) fn expect_length(&mut self, token: Token, length: BodyLength) {
        self.connections[token].flags.uploads = match length {
            BodyLength::None => false,
            BodyLength::Length(length) => length > LONG_CONTENT_BYTES,
            BodyLength::Chunked => true,
        };
        self.receive_by_parts(token);
    }

    /// Finds a program for a request, or a place in the queue.
    pub(super) fn find_program(&mut self, token: Token, handler: &Rc<Handler>) -> Result<bool, Status> {
        let now = self.now;
        if let Some(run) = self.program_run(token) {
            run.heard_at = now;
        }
        if self.find_free_program(token, handler)? {
            return Ok(true);
        }
        if !handler.pool().is_some_and(|pool| pool.wait(token)) {
            self.count_place_refused(token, now);
            return Err(Status::SERVICE_UNAVAILABLE);
        }
        let delay_max = self.queue_delay_max(token);
        self.sweep_at = self.sweep_at.min(now.after(delay_max));
        Ok(false)
    }

    /// How long a request may wait for a place: as long as for the server.
    pub(super) fn queue_delay_max(&self, token: Token) -> Duration {
        Duration::from_nanos(self.admission.queue_delay_max_ns(self.connections[token].site as usize))
    }

    /// A request that has waited for a place since then gets none.
    pub(super) fn count_place_refused(&mut self, token: Token, since: Instant) {
        let metrics = &self.sites[self.connections[token].site as usize].metrics;
        metrics.count_delay(self.now.since(since));
        metrics.stages[Stage::Serve as usize].refused.increment();
    }

    fn find_free_program(&mut self, token: Token, handler: &Rc<Handler>) -> Result<bool, Status> {
        match &handler.kind {
            Kind::Burn { .. } | Kind::Redirect(_) => Ok(true),
            Kind::Cgi { config, pool } => self.find_cgi(token, handler, config, pool),
            Kind::FastCgi { .. } => self.find_responder(token, handler),
            Kind::Proxy { proxy, .. } => self.find_upstream(token, handler, proxy),
        }
    }

    /// A handler has a place again: who waits longest gets it.
    pub(super) fn serve_waiting(&mut self, handler: &Rc<Handler>) {
        let Some(pool) = handler.pool() else { return };
        while let Some(token) = pool.next() {
            let Some(since) = self.program_run(token).map(|run| run.heard_at) else { continue };
            match self.find_free_program(token, handler) {
                Ok(true) => {
                    let site = self.connections[token].site as usize;
                    self.sites[site].metrics.count_delay(self.now.since(since));
                }
                // It's still the first, and its time goes on.
                Ok(false) => return pool.wait_on(token),
                Err(status) => self.fail_run_later(token, status),
            }
        }
    }

    /// The run of a connection's request, if a program answers it.
    pub(in crate::worker) fn program_run(&mut self, token: Token) -> Option<&mut ProgramRun> {
        match self.connections.get(token)?.exchange.as_mut()?.run.as_mut()? {
            Run::Program(run) => Some(run),
            Run::Burn { .. } => None,
        }
    }

    /// Gives a run up; the answer is made when the connection's turn comes, as an event of it may be in the tree.
    pub(in crate::worker) fn fail_run_later(&mut self, token: Token, status: Status) {
        if let Some(run) = self.program_run(token) {
            run.failed = Some(status);
            self.queue(Stage::Transmit, token);
        }
    }

    /// The request's content comes too slowly or is wrong, and nothing has been answered yet.
    pub(in crate::worker) fn refuse_content(&mut self, token: Token, rejection: Rejection) {
        self.metrics.rejections[rejection.reason.index()].increment();
        match self.program_run(token) {
            Some(_) => self.fail_run_later(token, rejection.status),
            // Only handlers wait for content.
            None => self.cut(token),
        }
    }

    /// A program is there for the request: it may speak, and hear the request's content.
    pub(super) fn run_has_begun(&mut self, token: Token, talk: Talk) {
        let now = self.now;
        let Some(run) = self.program_run(token) else { return };
        run.talk = talk;
        let program = run.program();
        let held = program.map_or(Duration::ZERO, |program| self.programs.held(program, now));
        let Some(run) = self.program_run(token) else { return };
        (run.heard_at, run.held_by_then) = (now, held);
        if run.body == Body::Expected {
            // The program wants the content now.
            self.give_leave(token);
        }
        self.queue(Stage::Transmit, token);
    }

    /// Calls `tell` with what programs are told of the request in hand.
    pub(super) fn tell_request(
        &self,
        token: Token,
        handler: &Handler,
        names: (&[u8], &[u8], &[u8]),
        tell: impl FnMut(&[u8], &[u8]),
    ) {
        use std::os::unix::ffi::OsStrExt;
        let connection = &self.connections[token];
        let Some(exchange) = connection.exchange.as_ref() else { return };
        let Some(request) = Request::read_again(&exchange.head) else { return };
        let (script_name, path_info, script_file) = names;
        let request_id = self.name_of(token, exchange, exchange.drawn).to_string();
        let content_length = match (&exchange.run, request.body) {
            (Some(Run::Program(run)), BodyLength::Chunked) => {
                run.gathered.as_ref().map(|gathered| gathered.len() as u64)
            }
            (_, BodyLength::Length(length)) => Some(length),
            _ => None,
        };
        let place = Place {
            script_name,
            path_info,
            script_file,
            document_root: handler.root.as_os_str().as_bytes(),
            server_name: exchange.site.as_ref().map_or(b"", |site| site.name.as_bytes()),
            own: self.reactor.own_address(connection.socket).map(|own| own.ip().to_canonical()),
            port: self.listeners[connection.listener as usize].sites.name.address.port(),
            peer: self.asking(token, &request),
            teller: self.teller(token),
            scheme: (self.teller(token) != Teller::Nobody).then(|| scheme(&request)).flatten().unwrap_or(b"http"),
            request_id: &request_id,
            content_length,
        };
        leat_logic::cgi::variables(&request, &place, tell);
    }

    /// Lets go of a program whose part in a request is over: `is_whole` if both sides have said everything.
    pub(super) fn release_run(&mut self, token: Token, run: &ProgramRun, is_whole: bool) {
        if is_whole {
            self.note_passed(token, run, Outcome::Answered);
        }
        match run.talk {
            Talk::Waiting => {
                if let Some(pool) = run.handler.pool() {
                    pool.give_up(token);
                }
            }
            Talk::Tunnel { stream } => self.close_stream(stream),
            Talk::Cgi { stream, program } => {
                self.close_stream(stream);
                self.leave_program(program, !is_whole);
            }
            Talk::FastCgi { stream, responder, conversation, .. } => {
                let may_stay = is_whole && conversation.is_over();
                self.release_responder(&run.handler, responder, stream, conversation.has_begun(), may_stay);
            }
            Talk::Http { stream, place, reader } => {
                let left = match is_whole && run.body == Body::Ended {
                    true if reader.is_reusable() => Left::Reusable,
                    true => Left::Done,
                    false => Left::Midway,
                };
                self.release_upstream(&run.handler, place, stream, left);
            }
        }
    }

    /// Ends what a handler has under way for a request whose client has gone, or that is answered otherwise.
    pub(in crate::worker) fn abort_run(&mut self, token: Token, run: Option<Run>) {
        if let Some(Run::Program(mut run)) = run {
            run.end_errors(self.second);
            self.note_passed(token, &run, Outcome::Abandoned);
            self.release_run(token, &run, false);
        }
    }

    /// Deals with the time that a handler takes; returns when to look again.
    pub(in crate::worker) fn handle_run_timeout(&mut self, token: Token) -> Instant {
        let connection = &mut self.connections[token];
        let Some(exchange) = connection.exchange.as_mut() else { return Instant::NEVER };
        let has_pieces = !exchange.pieces.is_empty();
        let Some(Run::Program(run)) = exchange.run.as_mut() else {
            // The client waits for us, whatever it still has to send.
            connection.http.handle_transmit_progress(self.now);
            return Instant::NEVER;
        };
        let stream = run.stream().and_then(|stream| self.streams.get(stream));
        let is_connecting = stream.as_ref().is_some_and(|stream| stream.is_connecting());
        let awaits_content = run.body == Body::Expected
            && connection.inbox.is_empty()
            && stream.is_some_and(|stream| !stream.is_connecting() && stream.is_flushed());
        if has_pieces || awaits_content || run.body == Body::Gathering {
            // The client's turn: its own limits hold.
            run.note_heard(self.now, &self.programs);
        } else {
            connection.http.handle_transmit_progress(self.now);
        }
        let patience = run.handler.patience(is_connecting, run.is_tunnel());
        let patience = run.passing.patience_left().map_or(patience, |first| first.min(patience));
        let delay_max = Duration::from_nanos(self.admission.queue_delay_max_ns(connection.site as usize));
        let timeout = if matches!(run.talk, Talk::Waiting) { patience.min(delay_max) } else { patience };
        // While leat keeps a program from running, as its site's quota or others' shares want it, it can say nothing.
        let held = run.program().map_or(Duration::ZERO, |program| self.programs.held(program, self.now));
        let due = run.heard_at.after(timeout).after(held.saturating_sub(run.held_by_then));
        if self.now < due || run.failed.is_some() {
            return due;
        }
        let (handler, talk) = (run.handler.clone(), run.talk);
        if let Talk::Http { .. } | Talk::Tunnel { .. } = talk {
            run.passing.stop = Some(if is_connecting { Stop::Unreachable } else { Stop::Silent });
            self.queue(Stage::Transmit, token);
            return Instant::NEVER;
        }
        if matches!(talk, Talk::Waiting) {
            let since = run.heard_at;
            self.count_place_refused(token, since);
            self.fail_run_later(token, Status::SERVICE_UNAVAILABLE);
            return Instant::NEVER;
        }
        crate::log::warning(format_args!("{}: no byte from the program for {timeout:?}", handler.name));
        if let Talk::FastCgi { responder, .. } = talk {
            self.kill_responder(&handler, responder);
        }
        self.fail_run_later(token, Status::GATEWAY_TIMEOUT);
        Instant::NEVER
    }
}
