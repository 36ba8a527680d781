//! A worker: one thread, one reactor, one event scheduling tree, nothing shared. It decides nothing itself: `http::Connection` says what was
//! asked, `serve` what is sent for it, `schedule::Tree` in which order; here they are joined.
//!
//! A request's way: [`Worker::run_once`] harvests a few completions and queues an event for each; [`receive`] parses, [`serve`] finds what to
//! answer, [`reply`] writes the head, [`transmit`] sends what doesn't go out at once.

mod account;
mod admin;
mod connection;
pub mod control;
mod exchange;
mod handover;
mod lifecycle;
mod receive;
mod reconfigure;
mod reply;
mod serve;
mod settings;
mod timeouts;
mod transmit;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use leat_host::reactor::{Completion, Listener as ListeningSocket, Reactor, Socket, Token};
use leat_host::storage::{Storage, StorageEvent, Ticket};
use leat_logic::http::{CachedDate, Limits};
use leat_logic::schedule::{Cost, LeafId, PolicyKind, Tree};
use leat_logic::serve::cache::Cache;
use leat_logic::time::{Instant, UnixTime};

use crate::config::Config;
use crate::metrics::{ServerMetrics, WorkerMetrics};
use connection::Connections;
use control::Mailbox;
use exchange::Exchange;
use settings::{Listener, Site};

/// Events run between two harvests: few, so that what has just come gets its place in the order before much else is done.
const EVENTS_MAX: usize = 64;
/// Exchanges kept for use by later requests.
const SPARE_EXCHANGES_MAX: usize = 256;
/// The number of the site that isn't known yet.
const UNKNOWN_SITE: u32 = 0;

/// Tokens that aren't connections' have this generation's index space for themselves: the reactor keeps them apart by operation.
const BELL: Token = Token { index: 0, generation: 0 };
const STORAGE_WAKE: Token = Token { index: 1, generation: 0 };
const STORAGE_WATCH: Token = Token { index: 2, generation: 0 };

/// What a worker runs on: the kernel, or the simulator's pretend one.
pub trait Host {
    /// The network.
    type Reactor: Reactor<File: Clone>;
    /// The files.
    type Storage: Storage<File = <Self::Reactor as Reactor>::File>;

    /// The monotonic clock.
    fn now(&self) -> Instant;
    /// The wall clock.
    fn wall(&self) -> UnixTime;
}

/// What a worker is given besides its host.
pub struct Setup {
    /// What the engine says arrives here.
    pub mailbox: Arc<Mailbox>,
    /// The worker's own numbers.
    pub metrics: Arc<WorkerMetrics>,
    /// Everybody's, for the admin pages.
    pub server_metrics: Arc<ServerMetrics>,
    /// Sizes that are fixed for the worker's life; the rest is put in force by the mailbox.
    pub config: Arc<Config>,
    /// A number that clients can't foresee.
    pub seed: u64,
}

/// An open file of a host.
type File<H> = <<H as Host>::Reactor as Reactor>::File;

/// The stages of a request's life in a worker: each has a leaf for each site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Bytes to a request.
    Receive,
    /// A request to a reply.
    Serve,
    /// The parts of a reply that don't fit in one send.
    Transmit,
}

impl Stage {
    const ALL: [Stage; 3] = [Stage::Receive, Stage::Serve, Stage::Transmit];
}

/// What the tree orders.
#[derive(Clone, Copy, Debug)]
struct Event {
    stage: Stage,
    connection: Token,
}

/// A listening socket of this worker.
struct Listening {
    socket: ListeningSocket,
    /// Keeps the socket open; gone when its address has left the configuration.
    descriptor: Option<std::os::fd::OwnedFd>,
    /// Which sites answer there: the last that the address had, if it's gone from the configuration.
    sites: Rc<Listener>,
    accepting: bool,
    retired: bool,
}

/// An end in sight.
#[derive(Clone, Copy, Debug)]
struct Drain {
    deadline: Instant,
    keep_idle: bool,
    since: Instant,
}

/// A worker that is to go.
struct Retiring {
    accept_until: Instant,
    deadline: Instant,
    heirs: Vec<Arc<Mailbox>>,
}

/// What a worker holds at a moment, for whoever checks that it keeps nothing for nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holdings {
    /// Slots in use.
    pub connections: usize,
    /// Events in the tree.
    pub events: usize,
    /// Files that the cache keeps open.
    pub open_files: usize,
    /// Whether [`Worker::run`] would return.
    pub has_ended: bool,
}

/// See the module.
pub struct Worker<H: Host> {
    host: H,
    reactor: H::Reactor,
    storage: H::Storage,
    tree: Tree<Event>,
    /// The stages' nodes, in the order of [`Stage::ALL`].
    stages: Vec<leat_logic::schedule::NodeId>,
    /// By site number, then by stage.
    leaves: Vec<[LeafId; 3]>,
    sites: Vec<Rc<Site>>,
    listeners: Vec<Listening>,
    connections: Connections<File<H>>,
    #[allow(
        clippy::vec_box,
        reason = "a connection holds its exchange by a pointer, so that an idle one costs 8 bytes"
    )]
    spare: Vec<Box<Exchange<File<H>>>>,
    cache: Cache<File<H>>,
    config: Arc<Config>,
    /// For heads whose site isn't known yet.
    limits: Limits,
    connections_max: usize,
    mailbox: Arc<Mailbox>,
    metrics: Arc<WorkerMetrics>,
    server_metrics: Arc<ServerMetrics>,
    now: Instant,
    date: CachedDate,
    drain: Option<Drain>,
    retiring: Option<Retiring>,
    sweep_at: Instant,
    /// When access log lines go to the thread that writes them.
    flush_at: Instant,
    second: i64,
    boundary: u64,
    /// Room for a path that has to be decoded.
    path: Vec<u8>,
    /// The second in which a failure was last logged.
    accept_error_second: i64,
    storage_error_second: i64,
    completions: Vec<Completion>,
    storage_events: Vec<StorageEvent<File<H>>>,
}

impl<H: Host> Worker<H> {
    /// A worker that serves nothing until its mailbox tells it a configuration.
    pub fn new(host: H, reactor: H::Reactor, storage: H::Storage, setup: Setup) -> Worker<H> {
        let Setup { mailbox, metrics, server_metrics, config, seed } = setup;
        let (now, wall) = (host.now(), host.wall());
        let mut worker = Worker {
            reactor,
            storage,
            tree: Tree::new(PolicyKind::RoundRobin),
            stages: Vec::new(),
            leaves: Vec::new(),
            sites: Vec::new(),
            listeners: Vec::new(),
            connections: Connections::new(),
            spare: Vec::new(),
            cache: Cache::new(settings::cache_limits(&config), seed),
            limits: settings::widest_limits(&config),
            connections_max: config.limits.connections / config.workers.max(1),
            mailbox,
            metrics,
            server_metrics,
            now,
            date: CachedDate::new(wall),
            drain: None,
            retiring: None,
            path: Vec::new(),
            accept_error_second: i64::MIN,
            storage_error_second: i64::MIN,
            sweep_at: now,
            flush_at: Instant::NEVER,
            second: wall.seconds,
            boundary: seed,
            completions: Vec::new(),
            storage_events: Vec::new(),
            config,
            host,
        };
        worker.reactor.poll_readable(worker.mailbox.descriptor(), BELL);
        if let Some(descriptor) = worker.storage.wake_fd() {
            worker.reactor.poll_readable(descriptor, STORAGE_WAKE);
        }
        if let Some(descriptor) = worker.storage.watch_fd() {
            worker.reactor.poll_readable(descriptor, STORAGE_WATCH);
        }
        worker
    }

    /// Serves until a drain is complete.
    ///
    /// # Errors
    /// The reactor can't go on.
    pub fn run(&mut self) -> io::Result<()> {
        while !self.is_drained() {
            self.run_once()?;
        }
        Ok(())
    }

    /// One turn: harvest a few completions, run a few events in the tree's order, look at the clock.
    ///
    /// # Errors
    /// The reactor can't go on.
    pub fn run_once(&mut self) -> io::Result<()> {
        let timeout = if self.tree.is_empty() { self.time_to_next_timeout() } else { Some(Duration::ZERO) };
        let mut completions = std::mem::take(&mut self.completions);
        self.reactor.wait(timeout, &mut completions)?;
        self.tell_time();
        self.take_changes(&completions);
        for completion in completions.drain(..) {
            self.handle_completion(completion);
        }
        self.completions = completions;
        for _ in 0..EVENTS_MAX {
            let Some((leaf, event)) = self.tree.pop() else { break };
            let cost = self.run_event(event);
            self.tree.charge(leaf, cost);
        }
        if self.now >= self.sweep_at {
            self.handle_timeouts();
        }
        if self.now >= self.flush_at {
            self.flush_logs();
        }
        Ok(())
    }

    /// What it holds now.
    #[must_use]
    pub fn holdings(&self) -> Holdings {
        Holdings {
            connections: self.connections.len(),
            events: self.tree.len(),
            open_files: self.cache.open_files(),
            has_ended: self.is_drained(),
        }
    }

    fn tell_time(&mut self) {
        self.now = self.host.now();
        let wall = self.host.wall();
        if wall.seconds != self.second {
            self.second = wall.seconds;
            self.date.update(wall);
            self.storage.handle_timeout(self.now);
            self.poll_storage();
        }
    }

    /// A change to a file comes before the requests that came with it: whoever wrote the file and then asks for it gets the new one.
    fn take_changes(&mut self, completions: &[Completion]) {
        let storage = |completion: &Completion| matches!(completion, Completion::Readable { token } if *token == STORAGE_WAKE || *token == STORAGE_WATCH);
        if completions.iter().any(storage) {
            self.poll_storage();
        }
    }

    fn poll_storage(&mut self) {
        let mut events = std::mem::take(&mut self.storage_events);
        self.storage.poll(&mut events);
        for event in events.drain(..) {
            self.handle_storage_event(event);
        }
        self.storage_events = events;
    }

    fn handle_completion(&mut self, completion: Completion) {
        match completion {
            Completion::Received { token, buffer } => match self.connections.get(token) {
                Some(connection) => {
                    connection.inbox.add(&mut self.reactor, buffer);
                    self.input_arrived(token);
                }
                None => self.reactor.release(buffer),
            },
            Completion::Sent { token, error } => self.sent(token, error),
            Completion::Accepted { listener, socket } => self.accepted(listener, socket),
            Completion::AcceptFailed { listener, error } => self.accept_failed(listener, &error),
            Completion::EndOfInput { token } => self.input_ended(token, None),
            Completion::ReceiveStopped { token, error } => self.receive_stopped(token, error),
            Completion::Writable { token } => self.writable(token),
            Completion::Readable { token } if token == BELL => self.handle_mail(),
            Completion::Readable { .. } => {}
        }
    }

    /// Queues an event for a connection, at the leaf of the site that pays for it.
    fn queue(&mut self, stage: Stage, token: Token) {
        let connection = &mut self.connections[token];
        if connection.flags.queued {
            return;
        }
        let leaf = self.leaves[connection.site as usize][stage as usize];
        connection.flags.queued = true;
        if self.tree.push(leaf, Event { stage, connection: token }).is_err() {
            // The site has been removed, or more events wait than there may be connections: neither can be served.
            self.connections[token].flags.queued = false;
            self.cut(token);
        }
    }

    fn run_event(&mut self, event: Event) -> Cost {
        let token = event.connection;
        match self.connections.get(token) {
            Some(connection) if !connection.flags.closing => connection.flags.queued = false,
            _ => return Cost::from_ns(0),
        }
        match event.stage {
            Stage::Receive => self.receive(token),
            Stage::Serve => self.serve(token),
            Stage::Transmit => self.transmit(token),
        }
    }

    fn handle_storage_event(&mut self, event: StorageEvent<File<H>>) {
        use exchange::Answer;
        match event {
            StorageEvent::Changed(change) => self.cache.apply(&change),
            StorageEvent::DescriptorsShort => {
                self.cache.release_files(DESCRIPTORS_GIVEN_BACK);
            }
            StorageEvent::Loaded { ticket, loaded } => self.answered(ticket, Answer::Loaded(loaded), Stage::Serve),
            StorageEvent::Resident { ticket, result } => {
                self.answered(ticket, Answer::Resident(result), Stage::Transmit);
            }
            StorageEvent::Read { ticket, result } => self.answered(ticket, Answer::Read(result), Stage::Transmit),
        }
    }

    fn answered(&mut self, ticket: Ticket, answer: exchange::Answer<File<H>>, stage: Stage) {
        let token = token_of(ticket);
        let exchange = self.connections.get(token).and_then(|connection| connection.exchange.as_mut());
        // The client may have gone meanwhile.
        if let Some(exchange) = exchange {
            exchange.answer = Some(answer);
            self.queue(stage, token);
        }
    }
}

/// Open files that the cache gives back when descriptors are short.
const DESCRIPTORS_GIVEN_BACK: usize = 16;

/// The storage's answer finds its connection by the ticket: the token in one number.
fn ticket_of(token: Token) -> Ticket {
    Ticket(u64::from(token.generation) << 32 | u64::from(token.index))
}

fn token_of(ticket: Ticket) -> Token {
    Token { index: ticket.0 as u32, generation: (ticket.0 >> 32) as u16 }
}

/// The socket that a descriptor's number names.
fn socket_of(descriptor: &impl std::os::fd::AsRawFd) -> Socket {
    Socket(descriptor.as_raw_fd().cast_unsigned())
}
