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

/// A process that has ended is started again after this time, twice as long each time.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);
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
}

impl Process {
    fn new() -> Process {
        let (started_at, start_at) = (Instant::default(), Instant::default());
        Process { program: None, name: None, started_at, start_at, pause: PAUSE_MIN }
    }

    /// It has ended, or couldn't be started.
    fn has_failed(&mut self, now: Instant) {
        self.program = None;
        self.name = None;
        self.start_at = now.after(self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
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

    /// Whether there is anybody to wait for.
    fn is_alive(&self) -> bool {
        self.0.borrow().iter().any(|responder| responder.is_busy || responder.peer.is_some())
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
    /// Gives the request to a responder; `Ok(false)` if all are busy.
    pub(super) fn find_responder(&mut self, token: Token, handler: &Rc<Handler>) -> Result<bool, Status> {
        let Kind::FastCgi { config, responders, .. } = &handler.kind else { return Ok(true) };
        let Some((place, peer, kept)) = responders.take_free() else {
            return if responders.is_alive() { Ok(false) } else { Err(Status::SERVICE_UNAVAILABLE) };
        };
        let Some(run) = self.program_run(token) else { return Ok(true) };
        let (has_body, named) = (run.body != Body::Ended, run.named);
        let method = self.connections[token].exchange.as_ref().map(|exchange| exchange.method);
        let is_safe = matches!(method, Some(Method::Get | Method::Head | Method::Options));
        let stream = match kept {
            Some(stream) => stream,
            None => match self.reactor.connect(&peer) {
                Ok(socket) => self.open_stream(socket, true, Owner::Connection(token)),
                Err(error) => {
                    responders.set_free(place, None);
                    crate::log::warning(format_args!("{}: can't connect to {peer}: {error}", handler.name));
                    return Err(Status::BAD_GATEWAY);
                }
            },
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

    /// A request's responder is free again. `may_stay`: its connection can carry another.
    pub(super) fn release_responder(&mut self, handler: &Rc<Handler>, place: usize, stream: Token, may_stay: bool) {
        let Kind::FastCgi { config, responders, .. } = &handler.kind else { return };
        let may_stay = may_stay && config.keeps_connections();
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
            // Its process may have ended.
            self.programs.look_at = self.now;
        }
        self.serve_waiting(handler);
    }

    /// Ends the process of a responder that has had its time: it is started again.
    pub(super) fn kill_responder(&mut self, handler: &Handler, place: usize) {
        if let Kind::FastCgi { responders, .. } = &handler.kind
            && let Some(program) = responders.program(place)
        {
            self.leave_program(program, true);
        }
    }

    /// A responder's process has ended.
    pub(super) fn responder_ended(&mut self, handler: &Rc<Handler>, program: Token) {
        let Kind::FastCgi { responders, .. } = &handler.kind else { return };
        for responder in responders.0.borrow_mut().iter_mut() {
            if let Some(process) = &mut responder.process
                && process.program == Some(program)
            {
                if self.now.since(process.started_at) >= LIFE_MIN {
                    process.pause = PAUSE_MIN;
                }
                process.has_failed(self.now);
                responder.peer = None;
                self.metrics.program_restarts.increment();
            }
        }
    }

    /// Starts the processes whose time has come; returns when the next is due.
    pub(super) fn start_responders(&mut self, handler: &Rc<Handler>) -> Instant {
        let Kind::FastCgi { config, responders, .. } = &handler.kind else { return Instant::NEVER };
        let mut next = Instant::NEVER;
        let mut has_started = false;
        let count = responders.0.borrow().len();
        for place in 0..count {
            match &responders.0.borrow()[place].process {
                Some(process) if process.program.is_none() && process.start_at > self.now => {
                    next = next.min(process.start_at);
                    continue;
                }
                Some(process) if process.program.is_none() => {}
                _ => continue,
            }
            let started = self.start_responder(handler, config);
            let responder = &mut responders.0.borrow_mut()[place];
            let Some(process) = &mut responder.process else { continue };
            match started {
                Ok((program, name, peer)) => {
                    process.program = Some(program);
                    process.name = Some(name);
                    process.started_at = self.now;
                    responder.peer = Some(peer);
                    has_started = true;
                }
                Err(error) => {
                    if let Some(command) = &config.command {
                        self.log_start_failure(handler, &command.program, &error);
                    }
                    process.has_failed(self.now);
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
