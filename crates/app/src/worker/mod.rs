//! A worker: one thread, one reactor, one event scheduling tree, nothing shared. It decides nothing itself: `http::Connection` says what was
//! asked, `serve` what is sent for it, `schedule::Tree` in which order; here they are joined.
//!
//! A request's way: in a [`turn`] a few completions are harvested, and an [`event`] is queued for each; [`receive`] parses, [`serve`] finds what to
//! answer, [`reply`] writes the head, [`transmit`] sends what doesn't go out at once.

mod accept;
mod access;
mod account;
mod admin;
mod aggregates;
mod client;
mod cluster;
mod coalesce;
mod connection;
pub mod control;
mod entitlement;
mod event;
mod exchange;
mod gate;
mod handler;
mod handover;
mod knocks;
mod late;
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
mod room;
mod serve;
mod settings;
mod shares;
mod storage;
mod stream;
mod timeouts;
mod transmit;
mod turn;
mod usage;

use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use leat_host::reactor::{Completion, Listener as ListeningSocket, Reactor, Socket, TOKEN_INDEX_MAX, Token};
use leat_host::storage::{Storage, StorageEvent};
use leat_logic::admission::{Admission, Holds, Shedding};
use leat_logic::http::{CachedDate, KnownSections, Limits};
use leat_logic::schedule::{Cost, Gathering, LeafId, Operation, PolicyKind, Tree};
use leat_logic::serve::cache::Cache;
use leat_logic::time::{Instant, UnixTime};

use crate::config::Config;
use crate::ctl::Desk;
use crate::log::Ration;
use crate::metrics::{ServerMetrics, WorkerMetrics};
use crate::names::Names;
use accept::{ListenerState, UnknownBranch};
pub use aggregates::Aggregates;
pub use cluster::Shared as ClusterShared;
pub(crate) use cluster::worker_number;
use coalesce::Coalesced;
use connection::Connections;
use control::Mailbox;
use entitlement::PlanWeights;
use event::{Event, Stage, Task};
use exchange::Exchange;
use gate::Gate;
use handler::Handlers;
use handover::Departures;
use knocks::Knocks;
use late::Late;
use meter::Meter;
use overload::RefusalText;
use passage::Passages;
use port::Ports;
use programs::Programs;
use ready::ReadyReplies;
use room::Room;
use settings::{Listener, Site};
use shares::Members;
use storage::ticket_of;
use stream::{Rooms, Streams};
use turn::end_of_second;
use usage::{Looks, Usages};

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
    /// Bytes that the worker's thread has had read from disks so far.
    fn disk_bytes(&self) -> u64;
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
    /// What sites and owners with quotas have used on all workers.
    pub aggregates: Arc<Aggregates>,
    /// What names of other servers stand for.
    pub names: Arc<Names>,
    /// Where commands of the admin address are left.
    pub desk: Desk,
    /// A number that clients can't foresee.
    pub seed: u64,
}

/// An open file of a host.
type File<H> = <<H as Host>::Reactor as Reactor>::File;

/// A listening socket of this worker.
struct Listening {
    socket: ListeningSocket,
    state: ListenerState,
    /// Which sites answer there: the last that the address had, if it's gone from the configuration.
    sites: Rc<Listener>,
    /// Its connections are awaited, or about to be accepted.
    accepting: bool,
    /// The reactor says when some come.
    awaited: bool,
    /// Somebody is known to wait there.
    knocked: bool,
    /// An event for accepting is in the tree.
    queued: bool,
    /// Who pays for accepting, until a connection's site is known.
    leaf: LeafId,
    /// How many may wait in its queue, as the kernel was last told; `None`: as many as usual.
    queue_max: Option<u32>,
    /// Who isn't let in, and what has been dropped, as last seen.
    shedding: Shedding,
    dropped: u32,
    /// Accepted, and not heard until there is less to do: others were behind them in the queue.
    parked: VecDeque<Socket>,
    /// Since when the configuration hasn't its address: connections that were accepted there end.
    gone_since: Option<Instant>,
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
    /// Bytes of memory that sites with a quota of that hold.
    pub memory_bytes: u64,
    /// Whether [`Worker::run`] would return.
    pub has_ended: bool,
}

/// What is said in a second of what goes wrong.
#[derive(Default)]
struct Rations {
    /// Connections that can't be accepted.
    accepting: Ration,
    /// Connections of which a balancer hasn't said whose they are.
    proxy_headers: Ration,
    /// Programs that can't be started.
    program_starts: Ration,
    /// Files that can't be read.
    files: Ration,
    /// Connections to other servers for which there is no descriptor.
    descriptors: Ration,
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
    /// Connections that were refused something and have to wait.
    holds: Holds<Token>,
    /// What a refusal costs, on average of the last.
    refusal_ns: u64,
    late: Late,
    /// By site number.
    usages: Usages,
    looks: Looks,
    /// Several sites wanted something when that was last looked at: turns are short.
    is_shared: bool,
    /// One of them used clearly less than its share: turns are shorter still.
    is_prompt: bool,
    /// Who has computed last of all in the last turn, and pays for the next.
    ended_turn: Option<LeafId>,
    /// By site number.
    aggregates: Arc<Aggregates>,
    names: Arc<Names>,
    gates: Vec<Gate>,
    /// Sites that may not do everything now, or of which something waits.
    watched_gates: Vec<u32>,
    refusal: Rc<RefusalText>,
    /// By site number, then by stage.
    leaves: Vec<[LeafId; Stage::COUNT]>,
    sites: Vec<Rc<Site>>,
    /// The place in the configuration of each, if it's there.
    configured: Vec<Option<usize>>,
    listeners: Vec<Listening>,
    knocks: Knocks,
    /// Connections wait that aren't accepted, as there's too much to do: asked again each turn.
    is_shut: bool,
    connections: Connections<File<H>>,
    streams: Streams,
    rooms: Rooms,
    /// Where other protocols than HTTP are passed on.
    ports: Ports,
    /// The worker's part in a cluster, if the server has one.
    cluster: Option<Box<cluster::Cluster<File<H>>>>,
    spread: Option<Box<cluster::Spread>>,
    shared: Arc<ClusterShared>,
    under_way: cluster::UnderWay,
    programs: Programs<H::Programs>,
    handlers: Handlers,
    /// The sites of the configuration in force.
    current: Vec<u32>,
    /// Those with handlers that others have taken the places of: requests in hand have them still.
    former_sites: Vec<Weak<Site>>,
    #[allow(
        clippy::vec_box,
        reason = "a connection holds its exchange by a pointer, so that an idle one costs 8 bytes"
    )]
    spare: Vec<Box<Exchange<File<H>>>>,
    cache: Cache<File<H>>,
    ready: ReadyReplies<File<H>>,
    coalesced: Coalesced,
    config: Arc<Config>,
    /// For heads whose site isn't known yet.
    limits: Limits,
    known_sections: KnownSections,
    connections_max: usize,
    room: Room,
    mailbox: Arc<Mailbox>,
    metrics: Arc<WorkerMetrics>,
    server_metrics: Arc<ServerMetrics>,
    desk: Desk,
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
    rations: Rations,
    completions: Vec<Completion>,
    storage_events: Vec<StorageEvent<File<H>>>,
}

impl<H: Host> Worker<H> {
    /// A worker that serves nothing until its mailbox tells it a configuration.
    pub fn new(host: H, reactor: H::Reactor, storage: H::Storage, programs: H::Programs, setup: Setup) -> Worker<H> {
        let Setup { mailbox, metrics, server_metrics, config, shared, aggregates, names, desk, seed } = setup;
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
            holds: Holds::default(),
            refusal_ns,
            late: Late::default(),
            usages: Usages::default(),
            looks: Looks { next: Instant::NEVER, count: 0 },
            aggregates,
            names,
            is_shared: false,
            is_prompt: false,
            ended_turn: None,
            gates: Vec::new(),
            watched_gates: Vec::new(),
            refusal: Rc::new(RefusalText::new()),
            leaves: Vec::new(),
            sites: Vec::new(),
            configured: Vec::new(),
            listeners: Vec::new(),
            knocks: Knocks::default(),
            is_shut: false,
            connections: Connections::new(),
            streams: Streams::default(),
            rooms: Rooms::default(),
            ports: Ports::default(),
            cluster: None,
            spread: None,
            shared,
            under_way: cluster::UnderWay::default(),
            programs: Programs::new(programs),
            handlers: Handlers::default(),
            current: Vec::new(),
            former_sites: Vec::new(),
            spare: Vec::new(),
            cache: Cache::new(settings::cache_limits(&config), seed),
            ready: ReadyReplies::new(),
            coalesced: Coalesced::default(),
            limits: settings::widest_limits(&config),
            known_sections: KnownSections::new(),
            connections_max: config.limits.connections / config.workers.max(1),
            room: Room::default(),
            mailbox,
            metrics,
            server_metrics,
            desk,
            now,
            now_us: microseconds(now),
            date: CachedDate::new(wall),
            drain: None,
            retiring: None,
            path: Vec::new(),
            rations: Rations::default(),
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

    /// Connections that are accepted and not heard yet.
    fn parked(&self) -> usize {
        self.listeners.iter().map(|listening| listening.parked.len()).sum()
    }

    /// What it holds now.
    #[must_use]
    pub fn holdings(&self) -> Holdings {
        Holdings {
            connections: self.connections.len() + self.ports.len() + self.parked(),
            events: self.tree.len(),
            open_files: self.cache.open_files(),
            streams: self.streams.len(),
            programs: self.programs.len(),
            memory_bytes: self.gates.iter().map(Gate::held_bytes).sum(),
            has_ended: self.is_drained(),
        }
    }
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
