//! FastCGI: the responders of a handler, their connections, kept where nobody else could want them, and their processes where leat starts them.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::time::Duration;

use leat_host::program::{Standard, private_listener};
use leat_host::reactor::{Peer, Reactor, Token};
use leat_logic::fastcgi::{Conversation, Encoder};
use leat_logic::http::{Method, Status};
use leat_logic::time::Instant;

use super::super::programs::Purpose;
use super::super::stream::Owner;
use super::super::{Host, Worker};
use super::program_run::{Body, Talk};
use super::{Handler, Kind};
use crate::config;

/// A process that has ended before it answered anything is started again after this time, twice as long each time.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// The same for one that had taken a request: that it ended may be the request's doing, and others' requests wait as long.
const PAUSE_AFTER_REQUEST_MAX: Duration = Duration::from_millis(500);
/// One that has lived so long has ended for another reason than those before.
const LIFE_MIN: Duration = Duration::from_secs(10);

/// The responders of one handler at one worker.
pub(super) struct Responders(RefCell<Vec<Responder>>);

/// Somebody who takes one request at a time.
struct Responder {
    /// `None` while its process isn't there.
    peer: Option<Peer>,
    /// The connection to it, kept between requests.
    stream: Option<Token>,
    is_busy: bool,
    /// `None` where somebody else runs it.
    process: Option<Process>,
}

/// A responder's process.
struct Process {
    program: Option<Token>,
    /// Keeps the path of the socket alive that it accepts from. Each process has a socket of its own: what waited in that of the one before
    /// ended with it.
    name: Option<OwnedFd>,
    started_at: Instant,
    /// When to start it, if it isn't there.
    start_at: Instant,
    pause: Duration,
    reached: Reached,
}

/// What a process has shown to be able to do since it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reached {
    Nothing,
    /// It has taken a request.
    Request,
    /// It has answered one, or begun to.
    Reply,
}

impl Process {
    fn new() -> Process {
        let (started_at, start_at) = (Instant::default(), Instant::default());
        Process { program: None, name: None, started_at, start_at, pause: PAUSE_MIN, reached: Reached::Nothing }
    }

    /// It has ended, or couldn't be started: says when it's to be started again.
    fn plan_start(&mut self, now: Instant) {
        if self.reached == Reached::Reply || now.since(self.started_at) >= LIFE_MIN {
            self.pause = PAUSE_MIN;
        }
        let pause = match self.reached {
            // Each such start costs an answer at least.
            Reached::Reply => {
                self.start_at = now;
                return;
            }
            Reached::Request => self.pause.min(PAUSE_AFTER_REQUEST_MAX),
            Reached::Nothing => self.pause,
        };
        self.start_at = now.after(pause);
        self.pause = (pause * 2).min(PAUSE_MAX);
    }
}

impl Responders {
    pub(super) fn new(config: &config::FastCgi) -> Responders {
        let responder = |_| {
            let process = config.address.is_none().then(Process::new);
            Responder { peer: config.address.clone(), stream: None, is_busy: false, process }
        };
        Responders(RefCell::new((0..config.processes).map(responder).collect()))
    }

    /// A free responder that can be expected to answer: one with a connection first.
    fn take_free(&self) -> Option<(usize, Peer, Option<Token>)> {
        let mut all = self.0.borrow_mut();
        let is_free = |responder: &Responder| !responder.is_busy && responder.peer.is_some();
        let connected = all.iter().position(|responder| is_free(responder) && responder.stream.is_some());
        let place = connected.or_else(|| all.iter().position(is_free))?;
        let responder = &mut all[place];
        responder.is_busy = true;
        Some((place, responder.peer.clone()?, responder.stream.take()))
    }

    /// Whether there is anybody to wait for until then: who is there, is about to end, or will have been started.
    fn are_awaited(&self, until: Instant) -> bool {
        self.0.borrow().iter().any(|responder| {
            let has_process = |process: &Process| process.program.is_some() || process.start_at <= until;
            responder.is_busy || responder.peer.is_some() || responder.process.as_ref().is_some_and(has_process)
        })
    }

    pub(super) fn has_work(&self) -> bool {
        self.0.borrow().iter().any(|responder| responder.is_busy)
    }

    fn set_free(&self, place: usize, stream: Option<Token>) {
        if let Some(responder) = self.0.borrow_mut().get_mut(place) {
            responder.is_busy = false;
            responder.stream = stream;
        }
    }

    /// Nobody is sent any more to a process that has ended, or is about to.
    fn shun(&self, place: usize) {
        if let Some(responder) = self.0.borrow_mut().get_mut(place) {
            responder.peer = None;
        }
    }

    /// Whether one may be sent there.
    fn is_there(&self, place: usize) -> bool {
        self.0.borrow().get(place).is_some_and(|responder| responder.peer.is_some())
    }

    /// What the request with a responder has shown of it.
    fn note_reached(&self, place: usize, reached: Reached) {
        let mut all = self.0.borrow_mut();
        if let Some(process) = all.get_mut(place).and_then(|responder| responder.process.as_mut()) {
            process.reached = process.reached.max(reached);
        }
    }

    /// Has a process that ended with a request be started again: what it had reached is known by now.
    fn plan_start_of_ended(&self, place: usize, now: Instant) {
        let mut all = self.0.borrow_mut();
        let process = all.get_mut(place).and_then(|responder| responder.process.as_mut());
        if let Some(process) = process.filter(|process| process.program.is_none()) {
            process.plan_start(now);
        }
    }

    pub(super) fn program(&self, place: usize) -> Option<Token> {
        self.0.borrow().get(place)?.process.as_ref()?.program
    }

    /// Forgets a kept connection. Whether it was one.
    pub(super) fn forget(&self, place: usize, stream: Token) {
        let mut all = self.0.borrow_mut();
        if let Some(responder) = all.get_mut(place).filter(|responder| responder.stream == Some(stream)) {
            responder.stream = None;
        }
    }

    /// All that is to be let go of when the handler goes: connections and programs.
    pub(super) fn take_all(&self) -> Vec<(Option<Token>, Option<Token>)> {
        let mut all = self.0.borrow_mut();
        all.drain(..)
            .map(|responder| (responder.stream, responder.process.and_then(|process| process.program)))
            .collect()
    }
}

impl<H: Host> Worker<H> {
    /// Gives the request to a responder; `Ok(false)` if none is free and one may be in time.
    pub(super) fn find_responder(&mut self, token: Token, handler: &Rc<Handler>) -> Result<bool, Status> {
        let Kind::FastCgi { config, responders, .. } = &handler.kind else { return Ok(true) };
        let Some(run) = self.program_run(token) else { return Ok(true) };
        let (has_body, named, since, wants_new) =
            (run.body != Body::Ended, run.named, run.heard_at, run.passing.wants_new());
        let method = self.connections[token].exchange.as_ref().map(|exchange| exchange.method);
        let is_safe = matches!(method, Some(Method::Get | Method::Head | Method::Options));
        let (place, kept, stream) = loop {
            let Some((place, peer, mut kept)) = responders.take_free() else {
                if responders.are_awaited(since.after(self.queue_delay_max(token))) {
                    return Ok(false);
                }
                self.count_place_refused(token, since);
                return Err(Status::SERVICE_UNAVAILABLE);
            };
            // One that ends its process would end that of each kept connection in turn.
            if wants_new && let Some(stream) = kept.take() {
                self.close_stream(stream);
            }
            if let Some(stream) = kept {
                break (place, kept, stream);
            }
            match self.reactor.connect(&peer) {
                Ok(socket) => break (place, None, self.open_stream(socket, true, Owner::Connection(token))),
                Err(error) => {
                    responders.set_free(place, None);
                    if error.kind() == io::ErrorKind::ConnectionRefused && responders.program(place).is_some() {
                        self.give_up_responder(handler, place);
                        continue;
                    }
                    crate::log::warning(format_args!("{}: can't connect to {peer}: {error}", handler.name));
                    return Err(Status::BAD_GATEWAY);
                }
            }
        };
        let request = self.encode_request(token, handler, config, named, has_body);
        if let Some(known) = self.streams.get(stream) {
            known.owner = Owner::Connection(token);
            known.outbox().extend_from_slice(&request);
            self.streams.flush_soon(stream);
        }
        // What has content, or an effect, isn't asked again if the connection turns out to have ended.
        let reused = kept.is_some() && !has_body && is_safe;
        let conversation = Conversation::default();
        self.run_has_begun(token, Talk::FastCgi { stream, responder: place, conversation, reused });
        if let Some(program) = responders.program(place) {
            self.rouse_program(program);
        }
        Ok(true)
    }

    fn encode_request(
        &self,
        token: Token,
        handler: &Handler,
        config: &config::FastCgi,
        named: usize,
        has_body: bool,
    ) -> Vec<u8> {
        let mut encoder = Encoder::default();
        let exchange = self.connections[token].exchange.as_ref();
        let path = exchange.map_or(&[][..], |exchange| &exchange.path);
        let (script_name, path_info) = path.split_at(named.min(path.len()));
        let path_info =
            exchange.map(|exchange| &exchange.path_info[..]).filter(|rest| !rest.is_empty()).unwrap_or(path_info);
        let mut file = handler.root.as_os_str().as_bytes().to_vec();
        file.extend_from_slice(script_name);
        if let (Some(index), true) = (&config.index, script_name.ends_with(b"/")) {
            file.extend_from_slice(index.as_bytes());
        }
        self.tell_request(token, handler, (script_name, path_info, &file), |name, value| {
            encoder.parameter(name, value)
        });
        for variable in &config.environment {
            encoder.parameter(variable.name.as_bytes(), variable.value.as_bytes());
        }
        let mut out = Vec::new();
        encoder.begin(config.keeps_connections(), &mut out);
        if !has_body {
            Encoder::end_of_input(&mut out);
        }
        out
    }

    /// A request's responder is free again. `has_replied`: something of a reply has come; `may_stay`: its connection can carry another.
    pub(super) fn release_responder(
        &mut self,
        handler: &Rc<Handler>,
        place: usize,
        stream: Token,
        has_replied: bool,
        may_stay: bool,
    ) {
        let Kind::FastCgi { config, responders, .. } = &handler.kind else { return };
        if has_replied {
            responders.note_reached(place, Reached::Reply);
        } else if self.streams.get(stream).is_some_and(|stream| stream.has_ended_in_order()) {
            // With something left unread, Linux has the connection end with an error.
            responders.note_reached(place, Reached::Request);
        }
        let may_stay = may_stay && config.keeps_connections() && responders.is_there(place);
        let is_usable = self.streams.get(stream).is_some_and(|stream| !stream.has_ended() && !stream.is_behind());
        if may_stay && is_usable {
            if let Some(stream) = self.streams.get(stream) {
                stream.owner = Owner::Kept { handler: handler.clone(), responder: place };
                stream.ask(&mut self.reactor);
            }
            responders.set_free(place, Some(stream));
        } else {
            self.close_stream(stream);
            responders.set_free(place, None);
            self.check_responder(handler, place);
            self.programs.look_at = self.now;
        }
        responders.plan_start_of_ended(place, self.now);
        self.serve_waiting(handler);
    }

    /// A connection to a responder has ended, perhaps with its process: whoever is next isn't to be sent to that.
    pub(in crate::worker) fn check_responder(&mut self, handler: &Handler, place: usize) {
        if let Kind::FastCgi { responders, .. } = &handler.kind
            && let Some(program) = responders.program(place)
            && self.programs.await_end(program)
        {
            responders.shun(place);
        }
    }

    /// Nobody can connect to a responder's process any more: it's to be started again, once it has ended, by itself or killed.
    fn give_up_responder(&mut self, handler: &Handler, place: usize) {
        self.check_responder(handler, place);
        if let Kind::FastCgi { responders, .. } = &handler.kind
            && responders.is_there(place)
            && let Some(program) = responders.program(place)
        {
            responders.shun(place);
            self.leave_program(program, true);
        }
    }

    /// Ends the process of a responder that has had its time: it is started again.
    pub(super) fn kill_responder(&mut self, handler: &Handler, place: usize) {
        if let Kind::FastCgi { responders, .. } = &handler.kind
            && let Some(program) = responders.program(place)
        {
            responders.note_reached(place, Reached::Request);
            responders.shun(place);
            self.leave_program(program, true);
        }
    }

    /// A responder's process has ended.
    pub(super) fn responder_ended(&mut self, handler: &Rc<Handler>, program: Token) {
        let Kind::FastCgi { responders, .. } = &handler.kind else { return };
        let mut kept = None;
        for responder in responders.0.borrow_mut().iter_mut() {
            if let Some(process) = &mut responder.process
                && process.program == Some(program)
            {
                process.program = None;
                process.name = None;
                // What is still to be read for a request says what it has reached.
                if !responder.is_busy {
                    process.plan_start(self.now);
                }
                responder.peer = None;
                kept = responder.stream.take();
                self.metrics.program_restarts.increment();
            }
        }
        if let Some(stream) = kept {
            self.close_stream(stream);
        }
    }

    /// Starts the processes whose time has come; returns when the next is due.
    pub(super) fn start_responders(&mut self, handler: &Rc<Handler>) -> Instant {
        let Kind::FastCgi { config, responders, .. } = &handler.kind else { return Instant::NEVER };
        let mut next = Instant::NEVER;
        let mut has_started = false;
        let count = responders.0.borrow().len();
        for place in 0..count {
            match &responders.0.borrow()[place] {
                Responder { is_busy: false, process: Some(process), .. } if process.program.is_none() => {
                    if process.start_at > self.now {
                        next = next.min(process.start_at);
                        continue;
                    }
                }
                _ => continue,
            }
            let started = self.start_responder(handler, config);
            let responder = &mut responders.0.borrow_mut()[place];
            let Some(process) = &mut responder.process else { continue };
            (process.started_at, process.reached) = (self.now, Reached::Nothing);
            match started {
                Ok((program, name, peer)) => {
                    process.program = Some(program);
                    process.name = Some(name);
                    responder.peer = Some(peer);
                    has_started = true;
                }
                Err(error) => {
                    if let Some(command) = &config.command {
                        self.log_start_failure(handler, &command.program, &error);
                    }
                    process.plan_start(self.now);
                    next = next.min(process.start_at);
                }
            }
        }
        if has_started {
            self.serve_waiting(handler);
        }
        next
    }

    fn start_responder(
        &mut self,
        handler: &Rc<Handler>,
        config: &config::FastCgi,
    ) -> io::Result<(Token, OwnedFd, Peer)> {
        let command = config.command.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
        let (listener, name, path) = private_listener()?;
        let mut environment: Vec<(OsString, OsString)> = vec![("PATH".into(), super::cgi::PATH.into())];
        environment.extend(config.environment.iter().map(|v| (v.name.clone().into(), v.value.clone().into())));
        let standard = Standard::Listener(listener);
        let (program, _) = self.start_program(handler, &command.program, &command.arguments, environment, standard)?;
        let program = self.add_program(program, handler, Purpose::Responder);
        self.charge_start(program);
        Ok((program, name, Peer::Unix(path)))
    }
}
