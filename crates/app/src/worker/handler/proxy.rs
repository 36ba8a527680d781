//! Requests that are passed on to other servers: over which connection, and what is done when it fails. Which server is next is
//! `http::client::Upstreams`' to say; what is said meanwhile is `relay`'s.
//!
//! A request is sent once more only where that can do no harm (RFC 9110 section 9.2.2): no connection could be made, so that nobody has seen it;
//! or one ended before the first byte of a reply, or the server said nothing to anybody, and the request is a safe one without content. Of a reply that breaks
//! off, another server is asked for the rest if that is provably the same (`docs/decisions/0026-recovery.md`).

use std::cell::{Ref, RefCell};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use leat_host::process::{is_out_of_descriptors, is_out_of_ports};
use leat_host::reactor::{Peer, Reactor, Token};
use leat_logic::http::client::{
    Forward, ReplyReader, Reuse, Teller, UpstreamLimits, Upstreams, asks_for_websocket, is_repeatable, write_head,
};
use leat_logic::http::{BodyLength, Method, Request, Status};
use leat_logic::protocol::proxy_header;
use leat_logic::serve::path_pattern::PathPattern;
use leat_logic::serve::resource::Cause;
use leat_logic::time::Instant;

use super::super::storage::DESCRIPTORS_GIVEN_BACK;
use super::super::stream::Owner;
use super::super::{Host, Stage, Worker};
use super::pool::Pool;
use super::program_run::{Body, Framing, ProgramRun, Talk};
use super::{Handler, Kind, Run, State};
use crate::config::{self, Upstream};
use crate::log::Ration;
use crate::names::Names;

/// Failures of one handler that are logged in a second.
const LOGGED_MAX: u32 = 5;

/// The servers of one handler at one worker.
pub(super) struct Proxy {
    upstreams: RefCell<Upstreams<Upstream, Token>>,
    connect_timeout: Duration,
    idle_timeout: Duration,
    websocket_timeout: Duration,
    retries: u32,
    strip_path: bool,
    send_proxy: Option<proxy_header::Version>,
    /// Failures that are logged.
    ration: RefCell<Ration>,
}

/// What of a request is known while it is passed on.
#[derive(Debug, Default)]
pub(super) struct Passing {
    /// How its content is delimited.
    pub(super) framing: Framing,
    /// The head is with the server, or on its way.
    pub(super) is_given: bool,
    /// Since when it is.
    given_at: Instant,
    /// A byte of the reply has come.
    pub(super) has_spoken: bool,
    /// What has come of it, if that wasn't told by the connection.
    pub(super) stop: Option<Stop>,
    /// How often it was sent again.
    retries: u32,
    /// The connection has carried requests before, so that its end may have nothing to do with this one.
    pub(super) is_kept: bool,
    /// No connection of before carries it any more: one has ended.
    wants_new: bool,
    /// The server that has just failed.
    failed_at: Option<usize>,
    /// The address to which a connection was begun, of a server that has a name.
    named_ip: Option<IpAddr>,
    /// The servers to ask, in this order, where the handler hasn't the choice.
    peers: Vec<SocketAddr>,
    /// How long each of them but the last may say nothing.
    patience: Option<Duration>,
}

/// Why a server is of no use for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// No connection can be made.
    Refused,
    /// No connection was made in time.
    Unreachable,
    /// It ended the connection instead of answering.
    Ended,
    /// It ended the connection in the middle of a reply with which another can go on.
    Midway,
    /// It doesn't say anything.
    Silent,
    /// It's a node, and says nothing to the dispatcher either.
    Lapsed,
    /// This machine has no port left from which it could be connected to.
    NoPort,
    /// It isn't known what its name stands for.
    Nameless,
    /// There is no descriptor for a connection to anybody.
    NoDescriptor,
}

/// What a failure says of its server.
#[derive(Clone, Copy, Debug, Default)]
struct Blame {
    /// Nothing: its name stands for another address, which is to be tried first.
    has_another_address: bool,
    /// It was thought to be well.
    is_news: bool,
    /// It seems to be dead, and another can be asked.
    is_dead: bool,
}

/// How a request has left the connection to its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// One of the two hadn't said everything.
    Midway,
    /// Both have, and the server wants no other request on it.
    Done,
    /// It can carry another.
    Reusable,
}

/// What has become of a request that was given to a peer by [`Worker::proxy_to`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::worker) struct Passed {
    pub(in crate::worker) token: Token,
    pub(in crate::worker) peer: SocketAddr,
    pub(in crate::worker) outcome: Outcome,
}

/// See [`Passed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::worker) enum Outcome {
    /// It was given to the peer: one of the others follows for the same.
    Begun,
    /// The whole reply has come.
    Answered,
    /// The peer couldn't be reached, or its reply was wrong or none. The next peer is asked where that's allowed.
    Failed,
    /// The client has gone.
    Abandoned,
}

impl fmt::Display for Stop {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Stop::Refused => "it can't be connected to",
            Stop::Unreachable => "no connection was made in time",
            Stop::Ended => "it ended the connection without a reply",
            Stop::Midway => "it ended in the middle of its reply",
            Stop::Silent => "it said nothing in time",
            Stop::Lapsed => "its node's lease has run out",
            Stop::Nameless => "its name can't be looked up",
            Stop::NoDescriptor => "no file descriptor is left",
            Stop::NoPort => {
                "this machine has no port left for a connection to it: widen net.ipv4.ip_local_port_range, or keep more connections (idle_connections)"
            }
        })
    }
}

impl Stop {
    fn status(self) -> Status {
        match self {
            Stop::Refused | Stop::Nameless | Stop::Ended | Stop::Midway => Status::BAD_GATEWAY,
            Stop::Unreachable | Stop::Silent | Stop::Lapsed => Status::GATEWAY_TIMEOUT,
            Stop::NoPort | Stop::NoDescriptor => Status::SERVICE_UNAVAILABLE,
        }
    }
}

pub(super) fn kind(config: &config::Proxy) -> Kind {
    let limits = UpstreamLimits {
        requests_max: config.connections,
        // One that has been told of a client speaks for no other.
        kept_max: if config.send_proxy.is_some() { 0 } else { config.idle_connections },
        kept_for: config.idle_timeout,
        connect_for: config.connect_timeout,
    };
    let proxy = Proxy {
        upstreams: RefCell::new(Upstreams::new(&config.to, limits)),
        connect_timeout: config.connect_timeout,
        idle_timeout: config.idle_timeout,
        websocket_timeout: config.websocket_timeout,
        retries: config.retries,
        strip_path: config.strip_path,
        send_proxy: config.send_proxy,
        ration: RefCell::default(),
    };
    Kind::Proxy { proxy, pool: Pool::new(config.connections, config.queue, config.timeout) }
}

impl Proxy {
    pub(super) fn has_work(&self) -> bool {
        self.upstreams.borrow().has_work()
    }

    pub(super) fn forget(&self, place: usize, stream: Token) {
        self.upstreams.borrow_mut().forget(place, stream);
    }

    pub(super) fn take_kept(&self) -> Vec<Token> {
        self.upstreams.borrow_mut().take_kept()
    }

    /// The place of the server to ask; `None` if all have as many requests as they may.
    fn choose(&self, now: Instant, passing: &Passing) -> Option<usize> {
        let mut upstreams = self.upstreams.borrow_mut();
        match passing.peer() {
            Some(peer) => Some(upstreams.place(&Upstream::At(Peer::Internet(peer)))),
            None => upstreams.choose(now, passing.failed_at),
        }
    }

    fn may_retry(&self, passing: &Passing) -> bool {
        let retries_max = match passing.peers.len() {
            0 => self.retries,
            peers => peers as u32 - 1,
        };
        passing.retries < retries_max
    }

    /// A request is none any more, and its connection won't carry another: others may have its place.
    pub(super) fn leave_place(&self, now: Instant, place: usize) {
        self.upstreams.borrow_mut().end(now, place, None);
    }

    /// A request is with a server that another engine has given it to.
    pub(super) fn take_place(&self, now: Instant, place: usize) {
        self.upstreams.borrow_mut().begin(now, place, Reuse::Never);
    }

    /// A server, as the configuration has it.
    pub(super) fn name_of(&self, place: usize) -> Option<String> {
        self.address(place).map(|address| address.to_string())
    }

    /// The place of a server of that name.
    pub(super) fn place_of(&self, name: &str) -> Option<usize> {
        let upstreams = self.upstreams.borrow();
        let mut all = (0..).map_while(|place| upstreams.address(place));
        all.position(|address| address.to_string() == name)
    }

    /// Books what a failed request says of its server. What becomes of peers is booked by who has chosen them.
    fn blame(&self, now: Instant, names: &Names, place: usize, stop: Stop, run: &ProgramRun) -> Blame {
        let passing = &run.passing;
        if matches!(stop, Stop::Refused | Stop::Unreachable) && self.has_another_address(names, place, passing.named_ip)
        {
            return Blame { has_another_address: true, ..Blame::default() };
        }
        let mut upstreams = self.upstreams.borrow_mut();
        let mut blame = Blame::default();
        match stop {
            Stop::Refused | Stop::Unreachable | Stop::NoPort | Stop::Nameless => {
                blame.is_news = upstreams.unreachable(now, place);
            }
            _ if !passing.peers.is_empty() => {}
            Stop::Ended if !passing.is_kept => blame.is_news = upstreams.unanswering(now, place),
            Stop::Silent if !passing.has_spoken => {
                let is_to_blame = upstreams.silent(now, place, run.heard_at);
                blame.is_dead = is_to_blame && upstreams.has_other(now, place);
            }
            Stop::Ended | Stop::Midway | Stop::Silent | Stop::Lapsed | Stop::NoDescriptor => {}
        }
        blame
    }

    /// No connection can be made to the address that a server's name stands for: whether there is another one, which is to be tried before anybody is blamed.
    fn has_another_address(&self, names: &Names, place: usize, named_ip: Option<IpAddr>) -> bool {
        let upstreams = self.upstreams.borrow();
        let host = upstreams.address(place).and_then(Upstream::name);
        host.zip(named_ip).is_some_and(|(host, ip)| names.give_up(host, ip))
    }

    fn address(&self, place: usize) -> Option<Ref<'_, Upstream>> {
        Ref::filter_map(self.upstreams.borrow(), |upstreams| upstreams.address(place)).ok()
    }
}

impl Handler {
    /// The handler for requests that are given to peers: no path leads to it.
    fn for_peers() -> Rc<Handler> {
        let config = config::Proxy {
            to: Vec::new(),
            strip_path: false,
            send_proxy: None,
            connections: usize::MAX,
            queue: 0,
            idle_connections: 64,
            idle_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(1),
            timeout: Duration::from_secs(60),
            websocket_timeout: Duration::from_secs(3600),
            retries: 0,
        };
        let paths = PathPattern::default();
        let own = config::Handler { path: paths.clone(), ..config::Handler::default() };
        let (name, root) = ("peers".to_owned(), std::path::PathBuf::new());
        Rc::new(Handler { paths, name, root, config: own, kind: kind(&config), state: State::default() })
    }

    /// How long whoever answers may be silent, or may take to be connected to; how long both sides of a tunnel may be.
    pub(super) fn patience(&self, is_connecting: bool, is_tunnel: bool) -> Duration {
        match &self.kind {
            Kind::Proxy { proxy, .. } if is_connecting => proxy.connect_timeout,
            Kind::Proxy { proxy, .. } if is_tunnel => proxy.websocket_timeout,
            _ => self.timeout().unwrap_or_default(),
        }
    }
}

impl<H: Host> Worker<H> {
    /// Passes the request in hand on to the first of `peers`; to the next where one fails and that can do no harm. Each attempt begins and ends
    /// with a [`Passed`], to be had from [`Worker::take_passed`].
    ///
    /// `patience`: how long a peer may be silent before the next one is asked, where that can do no harm either. Without it nobody else is asked then.
    pub(in crate::worker) fn proxy_to(&mut self, token: Token, peers: Vec<SocketAddr>, patience: Option<Duration>) {
        let handler = self.handlers.peers.get_or_insert_with(Handler::for_peers).clone();
        if !handler.state.is_kept.replace(true) {
            self.handlers.kept.push(handler.clone());
        }
        if let Some(exchange) = self.connections[token].exchange.as_mut() {
            exchange.is_passed_on = true;
        }
        self.begin_run_with(token, &handler, 0, Passing { peers, patience, ..Passing::default() });
        self.arm_receive(token);
    }

    /// A peer is as good as dead, as far as is known: requests that it has said nothing to go to the next one, where that does no harm. The others wait as for
    /// one that takes its time.
    pub(in crate::worker) fn give_up_peer(&mut self, is_peer: impl Fn(IpAddr) -> bool) {
        for index in 0..self.connections.slots() as u32 {
            let Some(token) = self.connections.token(index) else { continue };
            let Some(exchange) = self.connections[token].exchange.as_mut() else { continue };
            let Some(Run::Program(run)) = exchange.run.as_mut() else { continue };
            let request = Request::read_again(&exchange.head);
            let is_repeatable = request.is_some_and(|it| is_repeatable(exchange.method, it.body != BodyLength::None));
            let is_followed = run.passing.is_followed() || run.whole.is_some() && run.passing.has_next();
            if run.passing.peer().is_some_and(|peer| is_peer(peer.ip())) && is_followed && is_repeatable {
                run.passing.stop = Some(Stop::Lapsed);
                self.queue(Stage::Transmit, token);
            }
        }
    }

    /// What has become of requests that were given to peers, since the last call.
    pub(in crate::worker) fn take_passed(&mut self) -> Vec<Passed> {
        std::mem::take(&mut self.handlers.passed)
    }

    pub(super) fn note_passed(&mut self, token: Token, run: &ProgramRun, outcome: Outcome) {
        if let Some(peer) = run.passing.peer() {
            self.handlers.passed.push(Passed { token, peer, outcome });
        }
    }

    /// Gives the request to a server; `Ok(false)` if all have as many as they may.
    pub(super) fn find_upstream(&mut self, token: Token, handler: &Handler, proxy: &Proxy) -> Result<bool, Status> {
        let Some(exchange) = self.connections[token].exchange.as_ref() else { return Ok(true) };
        let method = exchange.method;
        // A node says itself what it thinks of it.
        let is_peers = self.program_run(token).is_some_and(|run| !run.passing.peers.is_empty());
        if method == Method::Connect || method == Method::Trace && !is_peers {
            return Err(Status::NOT_IMPLEMENTED);
        }
        loop {
            let now = self.now;
            let Some(run) = self.program_run(token) else { return Ok(true) };
            let Some(place) = proxy.choose(now, &run.passing) else {
                // It may be the one that tries a server which is left out.
                self.programs.look_at = self.programs.look_at.min(proxy.upstreams.borrow().next_try(now));
                return Ok(false);
            };
            let reuse = match is_repeatable(method, run.body == Body::Expected) {
                _ if run.passing.wants_new => Reuse::Never,
                true => Reuse::Any,
                false => Reuse::Warm,
            };
            let kept = proxy.upstreams.borrow_mut().begin(now, place, reuse);
            let stream = match kept.map_or_else(|| self.connect_upstream(token, proxy, place), Ok) {
                Ok(stream) => stream,
                Err(stop) => {
                    self.not_connected(token, handler, proxy, place, stop)?;
                    continue;
                }
            };
            let Some(run) = self.program_run(token) else { return Ok(true) };
            run.talk = Talk::Http { stream, place, reader: ReplyReader::new(method) };
            run.heard_at = now;
            run.passing.is_kept = kept.is_some();
            let has_content = run.body == Body::Expected;
            self.note_begun(token);
            if kept.is_some() {
                self.upstream_metrics(token).reuses.increment();
                if let Some(stream) = self.streams.get(stream) {
                    stream.owner = Owner::Connection(token);
                }
                self.give_request(token);
            } else {
                self.sweep_at = self.sweep_at.min(now.after(proxy.connect_timeout));
            }
            if has_content {
                self.queue(Stage::Transmit, token);
            }
            return Ok(true);
        }
    }

    /// No connection could even be begun. The status to answer with, unless a server can be asked again.
    fn not_connected(
        &mut self,
        token: Token,
        handler: &Handler,
        proxy: &Proxy,
        place: usize,
        stop: Stop,
    ) -> Result<(), Status> {
        proxy.upstreams.borrow_mut().end(self.now, place, None);
        if stop == Stop::NoDescriptor {
            if let Some(upstream) = proxy.address(place) {
                self.say_out_of_descriptors(&handler.name, &*upstream);
            }
            self.count_place_refused(token, self.now);
            self.upstream_metrics(token).failures.increment();
            return Err(stop.status());
        }
        let exchange = self.connections[token].exchange.as_mut();
        let Some(Run::Program(run)) = exchange.and_then(|exchange| exchange.run.as_mut()) else {
            return Err(stop.status());
        };
        let blame = proxy.blame(self.now, &self.names, place, stop, run);
        let goes_on = blame.has_another_address || proxy.may_retry(&run.passing);
        if goes_on {
            run.passing.leave(place, !blame.has_another_address);
        }
        if blame.is_news {
            self.log_failure(handler, proxy, place, format_args!("{stop}"));
        }
        let metrics = self.upstream_metrics(token);
        if !goes_on {
            metrics.failures.increment();
            return Err(stop.status());
        }
        metrics.retries.increment();
        Ok(())
    }

    /// Begins a connection.
    fn connect_upstream(&mut self, token: Token, proxy: &Proxy, place: usize) -> Result<Token, Stop> {
        let (peer, named_ip) = match &*proxy.address(place).ok_or(Stop::Refused)? {
            Upstream::At(peer) => (peer.clone(), None),
            Upstream::Named(host, port) => {
                let ip = self.names.next(host).ok_or(Stop::Nameless)?;
                (Peer::Internet(SocketAddr::new(ip, *port)), Some(ip))
            }
        };
        if let Some(run) = self.program_run(token) {
            run.passing.named_ip = named_ip;
        }
        self.upstream_metrics(token).connects.increment();
        let mut connected = self.reactor.connect(&peer);
        if connected.as_ref().is_err_and(is_out_of_descriptors) && self.cache.release_files(DESCRIPTORS_GIVEN_BACK) > 0
        {
            connected = self.reactor.connect(&peer);
        }
        let socket = connected.map_err(|error| match error {
            _ if is_out_of_descriptors(&error) => Stop::NoDescriptor,
            _ if is_out_of_ports(&error) => Stop::NoPort,
            _ => Stop::Refused,
        })?;
        Ok(self.open_stream(socket, true, Owner::Connection(token)))
    }

    /// Says, once a second, that there is no descriptor for a connection to `peer` for this handler or port.
    pub(in crate::worker) fn say_out_of_descriptors(&mut self, name: &str, peer: &dyn fmt::Display) {
        if self.rations.descriptors.take(self.second, 1) {
            let cause = Cause::DescriptorsExhausted;
            crate::log::warning(format_args!("{name}: no connection to {peer} can be made: {cause}"));
        }
    }

    fn note_begun(&mut self, token: Token) {
        if let Some(peer) = self.program_run(token).and_then(|run| run.passing.peer()) {
            self.handlers.passed.push(Passed { token, peer, outcome: Outcome::Begun });
        }
    }

    fn upstream_metrics(&self, token: Token) -> &crate::metrics::UpstreamMetrics {
        &self.sites[self.connections[token].site as usize].metrics.upstream
    }

    /// Writes the request's head to a server that has just been reached.
    pub(super) fn give_request(&mut self, token: Token) {
        let Some(run) = self.program_run(token) else { return };
        let Talk::Http { stream: server, place, .. } = run.talk else { return };
        let is_there = self.streams.get(server).is_some_and(|stream| !stream.is_connecting() && !stream.is_broken());
        if !is_there || self.program_run(token).is_none_or(|run| run.passing.is_given) {
            return;
        }
        let request_id = self.request_name(token);
        let teller = self.teller(token);
        let client = match (teller, &self.connections[token].exchange) {
            (Teller::Balancer(_), Some(exchange)) => {
                Request::read_again(&exchange.head).and_then(|request| self.asking(token, &request))
            }
            _ => self.client(token),
        };
        let connection = &mut self.connections[token];
        let Some(exchange) = connection.exchange.as_mut() else { return };
        let Some(request) = Request::read_again(&exchange.head) else { return };
        let Some(Run::Program(run)) = exchange.run.as_mut() else { return };
        let Some(stream) = self.streams.get(server) else { return };
        if let Kind::Proxy { proxy: Proxy { send_proxy: Some(version), .. }, .. } = &run.handler.kind {
            let ends = client.zip(self.reactor.own_address(connection.socket));
            proxy_header::write(*version, ends, stream.outbox());
        }
        let strips = matches!(&run.handler.kind, Kind::Proxy { proxy, .. } if proxy.strip_path);
        let without = strips.then_some((run.named, exchange.path.as_slice()));
        let default_host = match &run.handler.kind {
            // A node finds the site without a host as this server does.
            Kind::Proxy { proxy, .. } if request.host.is_none_or(<[u8]>::is_empty) && run.passing.peers.is_empty() => {
                proxy.address(place).map(|peer| peer.authority())
            }
            _ => None,
        };
        let default_host = default_host.as_deref();
        let is_last =
            matches!(&run.handler.kind, Kind::Proxy { proxy, .. } if !proxy.upstreams.borrow().keeps_connections());
        let rest = run.whole.as_ref().map(|whole| whole.after(exchange.body_bytes));
        let forward = Forward { client, request_id: &request_id, without, teller, default_host, is_last, rest };
        write_head(stream.outbox(), &request, &forward);
        // Content that has come with it goes out with it: `relay_content` is next.
        if run.body != Body::Expected || connection.inbox.is_empty() || stream.room() == 0 {
            self.streams.flush_soon(server);
        }
        run.heard_at = self.now;
        if let Some(patience) = run.passing.patience_left() {
            self.sweep_at = self.sweep_at.min(self.now.after(patience));
        }
        run.passing.given(self.now, &request);
        if let (Talk::Http { reader, .. }, true) = (&mut run.talk, asks_for_websocket(&request)) {
            reader.expect_websocket();
        }
        let (handler, is_wanted) = (run.handler.clone(), run.body == Body::Expected);
        if let Kind::Proxy { proxy, .. } = &handler.kind
            && proxy.upstreams.borrow_mut().reached(place)
            && let Some(peer) = proxy.address(place)
        {
            crate::log::warning(format_args!("{}: {peer} can be reached again", handler.name));
            self.programs.look_at = self.now;
        }
        if is_wanted {
            self.give_leave(token);
        }
    }

    /// A server has failed before its reply began: asks another, or answers in its place.
    pub(super) fn pass_on_again(&mut self, token: Token, mut run: Box<ProgramRun>, stop: Stop) {
        let handler = run.handler.clone();
        let (Kind::Proxy { proxy, .. }, Talk::Http { place, .. }) = (&handler.kind, run.talk) else { return };
        self.note_passed(token, &run, Outcome::Failed);
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return };
        // Content that was sent is gone, whether all of it had come or not.
        let is_repeatable = || {
            let length = Request::read_again(&exchange.head).map(|request| request.body);
            is_repeatable(exchange.method, length != Some(BodyLength::None))
        };
        let has_begun = exchange.status != 0;
        // Servers end connections that they have kept for long enough: the next is a new one, which tells more.
        let is_stale = stop == Stop::Ended && run.passing.is_kept;
        let blame = proxy.blame(self.now, &self.names, place, stop, &run);
        let is_harmless = match stop {
            Stop::Refused | Stop::Unreachable | Stop::NoPort | Stop::Nameless | Stop::NoDescriptor => true,
            Stop::Ended | Stop::Midway | Stop::Lapsed => is_repeatable(),
            // What takes long at a server that answers others would take as long at the next.
            Stop::Silent => (run.passing.patience_left().is_some() || blame.is_dead) && is_repeatable(),
        };
        let is_free = is_stale || blame.has_another_address;
        let can_go_on = !has_begun || run.whole.is_some();
        let goes_on = is_harmless && can_go_on && (is_free || proxy.may_retry(&run.passing));
        if goes_on {
            run.passing.wants_new |= stop == Stop::Ended;
            run.passing.leave(place, !is_free);
            run.talk = Talk::Waiting;
            exchange.run = Some(Run::Program(run));
            self.upstream_metrics(token).retries.increment();
        }
        let is_logged = match stop {
            // Once, until it's there again.
            Stop::Refused | Stop::Unreachable | Stop::NoPort | Stop::Nameless => blame.is_news,
            // One that ended a kept connection has mostly just closed it.
            Stop::Ended => blame.is_news || !goes_on,
            Stop::Silent | Stop::Midway => true,
            // Once for all of them, by who has found it out.
            Stop::Lapsed | Stop::NoDescriptor => false,
        };
        if is_logged {
            self.log_failure(&handler, proxy, place, format_args!("{stop}"));
        }
        if !goes_on {
            self.upstream_metrics(token).failures.increment();
            match stop != Stop::Silent && !has_begun && self.was_passed_on_here(token) {
                true => self.close(token),
                false => self.fail_run(token, stop.status()),
            }
        } else if let Err(status) = self.find_program(token, &handler) {
            self.fail_run(token, status);
        }
    }

    /// Whether a server of this cluster has passed the request on to this node, whose own server isn't leat. Where that has said nothing, an end without a
    /// reply has the dispatcher do what is right: ask another node, if that does no harm, or tell the client.
    fn was_passed_on_here(&self, token: Token) -> bool {
        let is_foreign = self.config.cluster.own_node().is_some_and(|node| !node.server.is_empty());
        is_foreign && self.is_from_cluster(token)
    }

    /// A server's reply can't go on.
    pub(super) fn upstream_failed(&mut self, token: Token, run: &ProgramRun, place: usize, why: fmt::Arguments<'_>) {
        self.upstream_metrics(token).failures.increment();
        self.note_passed(token, run, Outcome::Failed);
        if let Kind::Proxy { proxy, .. } = &run.handler.kind {
            if run.framing.is_none() && !run.is_tunnel() && run.passing.peers.is_empty() {
                proxy.upstreams.borrow_mut().unanswering(self.now, place);
            }
            self.log_failure(&run.handler, proxy, place, why);
        }
    }

    /// The head of a reply, or of an interim one, has come from a server.
    pub(super) fn upstream_answered(&mut self, run: &ProgramRun) {
        let (Kind::Proxy { proxy, .. }, Talk::Http { place, .. }) = (&run.handler.kind, run.talk) else { return };
        if proxy.upstreams.borrow_mut().answered(self.now, place, run.passing.given_at)
            && let Some(peer) = proxy.address(place)
        {
            crate::log::warning(format_args!("{}: {peer}: it answers again", run.handler.name));
            self.programs.look_at = self.now;
        }
    }

    fn log_failure(&self, handler: &Handler, proxy: &Proxy, place: usize, why: fmt::Arguments<'_>) {
        if let Some(peer) = proxy.address(place)
            && proxy.ration.borrow_mut().take(self.second, LOGGED_MAX)
        {
            crate::log::warning(format_args!("{}: {peer}: {why}", handler.name));
        }
    }

    /// A server's part in a request is over.
    pub(super) fn release_upstream(&mut self, handler: &Rc<Handler>, place: usize, stream: Token, left: Left) {
        let Kind::Proxy { proxy, .. } = &handler.kind else { return };
        let known = self.streams.get(stream).filter(|known| {
            // What was said beyond the reply would be taken for the next.
            left == Left::Reusable
                && !known.has_ended()
                && known.bytes().is_empty()
                && !known.is_behind()
                && known.is_flushed()
        });
        let is_usable = known.is_some();
        if let Some(known) = known {
            known.owner = Owner::Kept { handler: handler.clone(), responder: place };
            known.ask(&mut self.reactor);
            self.programs.look_at = self.programs.look_at.min(self.now.after(proxy.idle_timeout));
        }
        let excess = proxy.upstreams.borrow_mut().end(self.now, place, is_usable.then_some(stream));
        match excess {
            Some(excess) => self.close_stream_at_rest(excess),
            None if is_usable => {}
            None if left == Left::Midway => self.close_stream(stream),
            None => self.close_stream_at_rest(stream),
        }
        self.serve_waiting(handler);
    }

    /// Closes connections that nobody has used for too long, and serves who waits for a server that was left out; returns when to look again.
    pub(super) fn keep_upstreams(&mut self, handler: &Rc<Handler>) -> Instant {
        let Kind::Proxy { proxy, .. } = &handler.kind else { return Instant::NEVER };
        let mut old = Vec::new();
        let next = proxy.upstreams.borrow_mut().expire(self.now, |stream| old.push(stream));
        old.into_iter().for_each(|stream| self.close_stream(stream));
        self.serve_waiting(handler);
        match handler.pool().is_some_and(Pool::has_waiting) {
            true => next.min(proxy.upstreams.borrow().next_try(self.now)),
            false => next,
        }
    }
}

impl Passing {
    /// The server has been told a request's head.
    pub(super) fn given(&mut self, now: Instant, request: &Request<'_>) {
        (self.is_given, self.given_at) = (true, now);
        self.framing = if request.body == BodyLength::Chunked { Framing::Chunked } else { Framing::Plain };
    }

    /// Whether the handler has chosen the server.
    pub(super) fn is_of_handler(&self) -> bool {
        self.peers.is_empty()
    }

    /// For a request that a kept connection has ended on.
    pub(super) fn over_a_new_connection() -> Passing {
        Passing { wants_new: true, ..Passing::default() }
    }

    pub(super) fn wants_new(&self) -> bool {
        self.wants_new
    }

    /// The server at this place has failed: everything begins anew, elsewhere if there is one.
    fn leave(&mut self, place: usize, counts: bool) {
        let retries = self.retries + u32::from(counts);
        let (peers, patience, wants_new) = (std::mem::take(&mut self.peers), self.patience, self.wants_new);
        *self = Passing { retries, peers, patience, wants_new, failed_at: Some(place), ..Passing::default() };
    }

    /// Who of the servers to ask in order has the request, or is to get it.
    fn peer(&self) -> Option<SocketAddr> {
        self.peers.get(self.retries as usize).copied()
    }

    /// Whether there is another one to ask after it.
    fn has_next(&self) -> bool {
        self.retries as usize + 1 < self.peers.len()
    }

    /// The same of one that has said nothing.
    fn is_followed(&self) -> bool {
        self.has_next() && !self.has_spoken
    }

    /// How long the server that has the request may say nothing before another one is asked; none if that isn't to be, or it has begun to answer.
    pub(super) fn patience_left(&self) -> Option<Duration> {
        self.patience.filter(|_| self.is_followed())
    }
}
