//! A worker: one thread, one reactor, one event scheduling tree, nothing shared. It decides nothing itself: `http::Connection` says what was
//! asked, `serve` what is sent for it, `schedule::Tree` in which order; here they are joined.
//!
//! A request's way: [`Worker::run_once`] harvests a few completions and queues an event for each; [`receive`] parses, [`serve`] finds what to
//! answer, [`reply`] writes the head, [`transmit`] sends what doesn't go out at once.

mod accept;
mod account;
mod admin;
mod client;
mod cluster;
mod connection;
pub mod control;
mod entitlement;
mod exchange;
mod gate;
mod handler;
mod handover;
mod lifecycle;
mod meter;
mod overload;
mod passage;
mod port;
mod programs;
mod ready;
mod receive;
mod reconfigure;
mod reply;
mod serve;
mod settings;
mod shares;
mod stream;
mod timeouts;
mod transmit;
mod usage;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use leat_host::reactor::{Completion, Listener as ListeningSocket, Reactor, Socket, TOKEN_INDEX_MAX, Token};
use leat_host::storage::{Storage, StorageEvent, Ticket};
use leat_logic::admission::Admission;
use leat_logic::http::{CachedDate, KnownSections, Limits};
use leat_logic::schedule::{Cost, Gathering, LeafId, Operation, PolicyKind, Refused, Tree};
use leat_logic::serve::cache::Cache;
use leat_logic::time::{Instant, UnixTime};

use crate::config::Config;
use crate::metrics::{ServerMetrics, WorkerMetrics};
use accept::UnknownBranch;
pub use cluster::Shared as ClusterShared;
pub(crate) use cluster::worker_number;
use connection::Connections;
use control::Mailbox;
use entitlement::PlanWeights;
use exchange::Exchange;
use gate::Gate;
use handler::Handler;
use handover::Departures;
use meter::Meter;
use overload::{Holds, RefusalText};
use passage::Passages;
use port::Ports;
use programs::Programs;
use ready::ReadyReplies;
use settings::{Listener, Site};
use shares::Members;
use stream::{News, Streams};
use usage::{Looks, Usage};

/// Events run between two harvests: few, so that what has just come gets its place in the order before much else is done.
const EVENTS_MAX: usize = 64;
/// What they may cost together, in nanoseconds, before the last of them.
const TURN_NS_MAX: u64 = 200_000;
/// Times that completions are taken over in one turn, as long as there are more: what waits in the kernel isn't in the tree's order.
const HARVESTS_MAX: usize = 16;
/// Exchanges kept for use by later requests.
const SPARE_EXCHANGES_MAX: usize = 256;
/// Receive buffers that must be free when completions are asked for: a few batches find room.
const FREE_BUFFERS_MIN: usize = 256;
/// The number of the site that isn't known yet.
const UNKNOWN_SITE: u32 = 0;
/// The number of the admin pages.
const ADMIN_SITE: u32 = 1;

/// Tokens that aren't connections' have this generation's index space for themselves: the reactor keeps them apart by operation.
const BELL: Token = Token { index: 0, generation: 0 };
const STORAGE_WAKE: Token = Token { index: 1, generation: 0 };
const STORAGE_WATCH: Token = Token { index: 2, generation: 0 };
/// Above every slot's index: the listeners for links, and the descriptors by which packets come that wait, one for each interface.
const LINK_LISTENER_INDEX: u32 = TOKEN_INDEX_MAX - 1;
const HELD_PACKETS_INDEX: u32 = TOKEN_INDEX_MAX - 64;
/// Connections that come with a reply under way, for the storage.
const ARRIVALS_INDEX: u32 = TOKEN_INDEX_MAX - 65;

/// What a worker runs on: the kernel, or the simulator's pretend one.
pub trait Host {
    /// The network.
    type Reactor: Reactor<File: Clone>;
    /// The files.
    type Storage: Storage<File = <Self::Reactor as Reactor>::File>;
    /// The programs of handlers.
    type Programs: leat_host::program::Programs;

    /// The monotonic clock.
    fn now(&self) -> Instant;
    /// The wall clock.
    fn wall(&self) -> UnixTime;
    /// Uses so much of the processor, whatever else happens on it. Returns what it came to: a little more.
    fn burn(&self, time: Duration) -> Duration;
    /// What the worker's thread has used of the processor so far.
    fn processor_time(&self) -> Duration;
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
    /// What it shares of its part in a cluster.
    pub shared: Arc<ClusterShared>,
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
    /// A slice of what a handler computes.
    Compute,
}

impl Stage {
    const COUNT: usize = 4;
    const ALL: [Stage; Stage::COUNT] = [Stage::Receive, Stage::Serve, Stage::Transmit, Stage::Compute];
}

/// What there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// A stage of a connection's request.
    Stage(Stage),
    /// Accepting at a listener.
    Accept,
    /// A slice of a program.
    Program,
    /// Connections that change hands, and that nobody waits for.
    Handoffs,
    /// Bytes between a client of a port and its nodes.
    Relay,
}

/// What the tree orders.
#[derive(Clone, Copy, Debug)]
struct Event {
    task: Task,
    /// The connection's, the listener's or the program's.
    token: Token,
    /// [`Worker::now_us`] when it was queued.
    queued_us: u32,
    /// Admission control counts it as waiting for its site to be known.
    is_unknown: bool,
}

/// One of the tree's ways to queue an event.
type Push = fn(&mut Tree<Event>, LeafId, Event) -> Result<(), Refused<Event>>;

/// A listening socket of this worker.
struct Listening {
    socket: ListeningSocket,
    /// Keeps the socket open; gone when its address has left the configuration.
    descriptor: Option<std::os::fd::OwnedFd>,
    /// Which sites answer there: the last that the address had, if it's gone from the configuration.
    sites: Rc<Listener>,
    /// Its connections are awaited, or about to be accepted.
    accepting: bool,
    /// An event for accepting is in the tree.
    queued: bool,
    /// Who pays for accepting, until a connection's site is known.
    leaf: LeafId,
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
    /// Streams that are open.
    pub streams: usize,
    /// Programs that haven't ended.
    pub programs: usize,
    /// Whether [`Worker::run`] would return.
    pub has_ended: bool,
}

/// See the module.
pub struct Worker<H: Host> {
    host: H,
    reactor: H::Reactor,
    storage: H::Storage,
    tree: Tree<Event>,
    unknown: UnknownBranch,
    /// Whose weights can be changed in place.
    members: Members,
    /// Those that were changed last.
    plan_weights: PlanWeights,
    /// Connections that are to go to other workers.
    departures: Departures,
    /// Connections that go to the next engine, and that come from the one before.
    passages: Passages<File<H>>,
    meter: Meter,
    gathering: Gathering,
    admission: Admission,
    holds: Holds,
    /// By site number.
    usages: Vec<Usage>,
    looks: Looks,
    /// By site number.
    gates: Vec<Gate>,
    /// Sites that may not do everything now, or of which something waits.
    watched_gates: Vec<u32>,
    refusal: Rc<RefusalText>,
    /// By site number, then by stage.
    leaves: Vec<[LeafId; Stage::COUNT]>,
    sites: Vec<Rc<Site>>,
    listeners: Vec<Listening>,
    /// As the reactor was last told; `None`: as many as usual.
    listener_queue_max: Option<u32>,
    connections: Connections<File<H>>,
    streams: Streams,
    /// Where other protocols than HTTP are passed on.
    ports: Ports,
    /// The worker's part in a cluster, if the server has one.
    cluster: Option<Box<cluster::Cluster<File<H>>>>,
    spread: Option<Box<cluster::Spread>>,
    shared: Arc<ClusterShared>,
    under_way: cluster::UnderWay,
    programs: Programs<H::Programs>,
    /// Those that have programs, until the last has ended.
    handlers: Vec<Rc<Handler>>,
    /// For requests that are given to peers.
    peers: Option<Rc<Handler>>,
    /// What has become of those.
    passed: Vec<handler::Passed>,
    /// The sites of the configuration in force.
    current: Vec<u32>,
    /// The index of the next pipe's token.
    next_pipe: u32,
    /// Pipes that the reactor may still look at.
    closing_pipes: Vec<handler::ErrorPipe>,
    #[allow(
        clippy::vec_box,
        reason = "a connection holds its exchange by a pointer, so that an idle one costs 8 bytes"
    )]
    spare: Vec<Box<Exchange<File<H>>>>,
    cache: Cache<File<H>>,
    ready: ReadyReplies<File<H>>,
    config: Arc<Config>,
    /// For heads whose site isn't known yet.
    limits: Limits,
    known_sections: KnownSections,
    connections_max: usize,
    mailbox: Arc<Mailbox>,
    metrics: Arc<WorkerMetrics>,
    server_metrics: Arc<ServerMetrics>,
    now: Instant,
    /// The same in microseconds, from the clock's low bits: for differences.
    now_us: u32,
    date: CachedDate,
    drain: Option<Drain>,
    retiring: Option<Retiring>,
    sweep_at: Instant,
    /// When access log lines go to the thread that writes them.
    flush_at: Instant,
    /// Of the wall clock, and when it's looked at again.
    second: i64,
    second_ends: Instant,
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
    pub fn new(host: H, reactor: H::Reactor, storage: H::Storage, programs: H::Programs, setup: Setup) -> Worker<H> {
        let Setup { mailbox, metrics, server_metrics, config, shared, seed } = setup;
        let (now, wall) = (host.now(), host.wall());
        let meter = Meter::new(host.processor_time());
        let operations = [Operation::Receive, Operation::Serve, Operation::Refuse];
        let refusal_ns = operations.iter().map(|&operation| meter.price(operation, 0)).sum();
        let tree = Tree::new(PolicyKind::WeightedFair);
        let mut worker = Worker {
            reactor,
            storage,
            unknown: UnknownBranch::new(tree.root(), seed),
            members: Members::default(),
            plan_weights: PlanWeights::default(),
            departures: Departures::default(),
            passages: Passages::default(),
            tree,
            admission: Admission::new(Cost::from_ns(refusal_ns)),
            meter,
            gathering: settings::gathering(&config),
            holds: Holds::new(refusal_ns),
            usages: Vec::new(),
            looks: Looks { next: Instant::NEVER, count: 0 },
            gates: Vec::new(),
            watched_gates: Vec::new(),
            refusal: Rc::new(RefusalText::new()),
            leaves: Vec::new(),
            sites: Vec::new(),
            listeners: Vec::new(),
            listener_queue_max: None,
            connections: Connections::new(),
            streams: Streams::default(),
            ports: Ports::default(),
            cluster: None,
            spread: None,
            shared,
            under_way: cluster::UnderWay::default(),
            programs: Programs::new(programs),
            handlers: Vec::new(),
            peers: None,
            passed: Vec::new(),
            current: Vec::new(),
            next_pipe: 0,
            closing_pipes: Vec::new(),
            spare: Vec::new(),
            cache: Cache::new(settings::cache_limits(&config), seed),
            ready: ReadyReplies::new(),
            limits: settings::widest_limits(&config),
            known_sections: KnownSections::new(),
            connections_max: config.limits.connections / config.workers.max(1),
            mailbox,
            metrics,
            server_metrics,
            now,
            now_us: microseconds(now),
            date: CachedDate::new(wall),
            drain: None,
            retiring: None,
            path: Vec::new(),
            accept_error_second: i64::MIN,
            storage_error_second: i64::MIN,
            sweep_at: now,
            flush_at: Instant::NEVER,
            second: wall.seconds,
            second_ends: end_of_second(now, wall),
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

    /// One turn: harvest what has completed, run a few events in the tree's order, look at the clock.
    ///
    /// # Errors
    /// The reactor can't go on.
    pub fn run_once(&mut self) -> io::Result<()> {
        self.harvest()?;
        self.run_events()?;
        if self.now >= self.sweep_at {
            self.handle_timeouts();
        }
        if self.now >= self.holds.next() || (self.tree.is_empty() && !self.holds.is_empty()) {
            self.end_holds();
        }
        if !self.watched_gates.is_empty() {
            self.look_at_gates();
        }
        if self.now >= self.looks.next {
            self.look_at_usage();
        }
        if self.now >= self.flush_at {
            self.flush_logs();
        }
        if self.now >= self.programs.look_at {
            self.look_at_programs();
        }
        if !self.passed.is_empty() {
            self.settle_passed();
        }
        if self.now >= self.cluster_timeout() {
            self.handle_cluster_timeout();
        }
        if self.now >= self.ports_timeout() {
            self.handle_ports_timeout();
        }
        self.flush_links();
        Ok(())
    }

    fn harvest(&mut self) -> io::Result<()> {
        let timeout = self.time_to_wait();
        let mut completions = std::mem::take(&mut self.completions);
        let waits = self.cluster.is_some() && timeout != Some(Duration::ZERO);
        let before = waits.then(|| (self.host.now(), self.host.processor_time()));
        let gather = (self.tree.is_empty() && timeout != Some(Duration::ZERO)).then(|| self.gathering.plan()).flatten();
        match gather {
            Some(gather) => {
                self.metrics.gathers.increment();
                self.reactor.wait_for_several(gather, timeout, &mut completions)?;
            }
            None => self.reactor.wait(timeout, &mut completions)?,
        }
        if let Some((began, used)) = before {
            let worked = self.host.processor_time().saturating_sub(used);
            self.under_way.idle += self.host.now().since(began).saturating_sub(worked);
        }
        self.closing_pipes.clear();
        self.tell_time();
        self.settle_slice();
        // Now, as what the last events asked for has been submitted, and nothing since has been counted.
        if self.meter.is_due() {
            self.measure();
        }
        self.meter.overhead(Operation::Turn);
        for _ in 1..HARVESTS_MAX {
            self.take_over(&mut completions);
            if !self.reactor.has_more() {
                break;
            }
            self.reactor.wait(Some(Duration::ZERO), &mut completions)?;
        }
        self.take_over(&mut completions);
        self.gathering.harvested(self.now);
        self.completions = completions;
        Ok(())
    }

    /// How long the reactor may wait: not at all while there is work, but that of programs goes on meanwhile.
    fn time_to_wait(&self) -> Option<Duration> {
        if !self.completions.is_empty() {
            return Some(Duration::ZERO);
        }
        match self.programs.slice() {
            Some(slice) if self.programs.are_all(self.tree.len()) => {
                Some(self.time_to_next_timeout().map_or(slice, |next| next.min(slice)))
            }
            _ if self.tree.is_empty() => self.time_to_next_timeout(),
            _ => Some(Duration::ZERO),
        }
    }

    fn take_over(&mut self, completions: &mut Vec<Completion>) {
        self.take_changes(completions);
        for completion in completions.drain(..) {
            self.handle_completion(completion);
        }
    }

    fn run_events(&mut self) -> io::Result<()> {
        let mut turn_ns = 0;
        if !self.tree.is_empty() {
            self.look_soon();
        }
        for _ in 0..EVENTS_MAX {
            let Some((leaf, event)) = self.tree.pop() else { break };
            let is_long = matches!(event.task, Task::Program | Task::Stage(Stage::Compute));
            if turn_ns > 0 && is_long {
                // What was done before goes out before that, which takes long.
                self.meter.did(Operation::Turn, 0);
                self.reactor.wait(Some(Duration::ZERO), &mut self.completions)?;
            }
            if event.task == Task::Program {
                self.begin_slice(event.token, leaf);
                break;
            }
            turn_ns += self.run_event(leaf, event).ns;
            if is_long || turn_ns >= TURN_NS_MAX {
                // Who has arrived meanwhile gets a place in the order first.
                break;
            }
        }
        Ok(())
    }

    /// Reads the thread's clock: everybody pays for what the charges have missed.
    fn measure(&mut self) {
        let Worker { meter, tree, .. } = self;
        meter.measure(self.host.processor_time(), |leaf, delta_ns| tree.correct(leaf, delta_ns));
    }

    /// What it holds now.
    #[must_use]
    pub fn holdings(&self) -> Holdings {
        Holdings {
            connections: self.connections.len() + self.ports.len(),
            events: self.tree.len(),
            open_files: self.cache.open_files(),
            streams: self.streams.len(),
            programs: self.programs.len(),
            has_ended: self.is_drained(),
        }
    }

    fn tell_time(&mut self) {
        self.now = self.host.now();
        self.now_us = microseconds(self.now);
        if self.now < self.second_ends {
            return;
        }
        let wall = self.host.wall();
        self.second_ends = end_of_second(self.now, wall);
        if wall.seconds != self.second {
            self.second = wall.seconds;
            self.date.update(wall);
            self.ready.clear();
            self.storage.handle_timeout(self.now);
            self.poll_storage();
            self.await_links_again();
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
                    if self.reactor.free_buffers() < FREE_BUFFERS_MIN {
                        // They're for everybody: who has to wait for a turn waits with a copy.
                        connection.inbox.keep(&mut self.reactor);
                    }
                    self.input_arrived(token);
                    if self.is_memory_limited(token) {
                        self.account_memory(self.connections[token].site, token);
                    }
                }
                None => self.stream_news(token, News::Received(buffer)),
            },
            Completion::Sent { token, error, waited } => self.sent(token, error, waited),
            Completion::ConnectionsWait { listener } if listener.index == LINK_LISTENER_INDEX => {
                self.links_wait(listener)
            }
            Completion::ConnectionsWait { listener } => self.queue_accept(listener),
            Completion::EndOfInput { token } => self.input_ended(token, None),
            Completion::ReceiveStopped { token, error } => self.receive_stopped(token, error),
            Completion::Writable { token } => self.writable(token),
            Completion::Readable { token } if token == BELL => self.handle_mail(),
            Completion::Readable { token } if token == STORAGE_WAKE || token == STORAGE_WATCH => {}
            Completion::Readable { token } if token.index >= HELD_PACKETS_INDEX => self.receive_held_packets(),
            Completion::Readable { token } => self.errors_readable(token),
        }
    }

    /// Queues an event for a connection, at the leaf of the site that pays for it.
    fn queue(&mut self, stage: Stage, token: Token) {
        self.queue_at(stage, token, Tree::push);
    }

    /// As [`Worker::queue`], before the site's other events of this stage: it has begun already.
    fn queue_first(&mut self, stage: Stage, token: Token) {
        self.queue_at(stage, token, Tree::push_first);
    }

    fn queue_at(&mut self, stage: Stage, token: Token, push: Push) {
        if self.connections[token].flags.queued {
            return;
        }
        let leaf = self.leaf(stage, token);
        let connection = &mut self.connections[token];
        connection.flags.queued = true;
        let gate = &mut self.gates[connection.site as usize];
        if gate.is_closed(stage) {
            gate.park(stage, token);
            return;
        }
        let is_unknown = stage == Stage::Receive && self.connections[token].site == UNKNOWN_SITE;
        if is_unknown {
            // Nobody is refused who isn't known.
            let _ = self.admission.arrive(UNKNOWN_SITE as usize, self.now);
        }
        let event = Event { task: Task::Stage(stage), token, queued_us: self.now_us, is_unknown };
        if push(&mut self.tree, leaf, event).is_err() {
            // The site has been removed, or more events wait than there may be connections: neither can be served.
            self.connections[token].flags.queued = false;
            self.cut(token);
        }
    }

    /// Runs an event, and charges what it cost to the site that it was for.
    fn run_event(&mut self, leaf: LeafId, event: Event) -> Cost {
        let stage = match event.task {
            Task::Stage(stage) => stage,
            Task::Handoffs => return self.take_turns(leaf),
            Task::Relay => {
                self.run_relay(event.token);
                let cost = self.meter.charge(leaf);
                self.tree.charge(leaf, cost);
                return cost;
            }
            Task::Accept | Task::Program => {
                let cost = self.accept(event.token, leaf);
                self.tree.charge(leaf, cost);
                return cost;
            }
        };
        let token = event.token;
        let site_before = match self.connections.get(token) {
            Some(connection) if !connection.flags.closing => {
                connection.flags.queued = false;
                connection.site
            }
            _ => {
                if event.is_unknown {
                    self.admission.abandon(UNKNOWN_SITE as usize, self.now);
                }
                self.tree.charge(leaf, Cost::from_ns(0));
                return Cost::from_ns(0);
            }
        };
        if event.is_unknown {
            let queued = before(self.now, self.now_us, event.queued_us);
            let _ = self.admission.start(UNKNOWN_SITE as usize, queued, self.now);
            self.admission.finish(UNKNOWN_SITE as usize, Cost::from_ns(self.meter.price(Operation::Receive, 0)));
        }
        match stage {
            Stage::Receive => self.receive(token),
            Stage::Serve => self.serve(token),
            Stage::Transmit => self.transmit(token),
            Stage::Compute => {
                let cost = self.compute(token);
                self.meter.measured(cost);
            }
        }
        let (sent_bytes, read_bytes) = self.meter.take_bytes();
        let Some(connection) = self.connections.get(token) else {
            let cost = self.meter.charge(leaf);
            self.tree.charge(leaf, cost);
            return cost;
        };
        let site = connection.site;
        let payer = if site == site_before { leaf } else { self.leaves[site as usize][stage as usize] };
        let cost = self.meter.charge(payer);
        let mut refused = None;
        if let Some(exchange) = connection.exchange.as_mut() {
            exchange.cost_ns += cost.ns;
            refused = exchange.refusal.map(|refusal| (refusal, exchange.cost_ns));
        }
        let waited_us = self.now_us.wrapping_sub(event.queued_us);
        self.sites[site as usize].metrics.stages[stage as usize].waited_us.add(u64::from(waited_us));
        self.tree.charge(leaf, cost);
        if self.gates[site as usize].is_limited() {
            self.charge_quotas(site, cost, sent_bytes, read_bytes);
            if stage == Stage::Receive {
                self.account_memory(site_before, token);
            }
        }
        if payer != leaf {
            // The site has become known by this event, or is another than that of the connection's last request.
            self.tree.transfer(leaf, payer, cost.ns);
            if site_before == UNKNOWN_SITE {
                self.charge_accept(token, payer);
            }
        }
        if let Some((refusal, cost_ns)) = refused {
            self.settle_refusal(token, payer, refusal, cost_ns);
        }
        cost
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
        if token.index == ARRIVALS_INDEX {
            return self.arrival_answered(token.generation, answer);
        }
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

/// When the second ends that the wall clock is in, unless it's set meanwhile.
fn end_of_second(now: Instant, wall: UnixTime) -> Instant {
    now.after(Duration::from_secs(1).saturating_sub(Duration::from_nanos(wall.nanoseconds.into())))
}

fn microseconds(now: Instant) -> u32 {
    (now.ns / 1_000) as u32
}

/// When something happened that is known by its microseconds.
fn before(now: Instant, now_us: u32, then_us: u32) -> Instant {
    let since_ns = u64::from(now_us.wrapping_sub(then_us)) * 1_000;
    Instant { ns: now.ns.saturating_sub(since_ns) }
}

/// The socket that a descriptor's number names.
fn socket_of(descriptor: &impl std::os::fd::AsRawFd) -> Socket {
    Socket(descriptor.as_raw_fd().cast_unsigned())
}
