//! What leat counts. Each worker counts for itself without atomic read-modify-write; a scrape adds up, as `page` says.

mod named;
mod owner;
mod page;
mod port;
mod upstream;
mod worker;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leat_host::lock::lock;
use leat_host::steering::{DispatcherCounters, NodeCounters};
use leat_logic::admission::{Denial, Resource};
use leat_logic::http::RejectReason;

use named::Named;
pub use owner::OwnerMetrics;
pub use page::reference;
use page::{Family, Read, ReadSite};
pub use port::PortMetrics;
pub use upstream::UpstreamMetrics;

/// A number that one thread changes and any thread reads.
#[derive(Debug, Default)]
pub struct Number(AtomicU64);

impl Number {
    /// Adds one. For the owner's thread only: two writers would lose counts.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `count`; as [`Number::increment`].
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// Sets it.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Sets it to a ratio, in millionths.
    pub fn set_ratio(&self, ratio: f64) {
        self.set((ratio * 1e6) as u64);
    }

    /// Reads it.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of the request time histogram, in microseconds: near enough to each other where most requests are to tell half as long again.
pub const TIME_BOUNDS_US: [u64; 18] = [
    50, 100, 150, 200, 300, 400, 600, 1_000, 1_500, 2_500, 5_000, 10_000, 15_000, 25_000, 50_000, 250_000, 1_000_000,
    10_000_000,
];

/// Upper bounds of the queue delay histogram, in microseconds.
pub const DELAY_BOUNDS_US: [u64; 11] = [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 250_000, 1_000_000];

/// Upper bounds of the histogram of workers' turns, in microseconds.
pub const TURN_BOUNDS_US: [u64; 12] = [25, 50, 75, 100, 150, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000];

/// Upper bounds of the histogram of hand-overs, in microseconds.
pub const HANDOFF_BOUNDS_US: [u64; 12] = [50, 75, 100, 125, 150, 200, 300, 500, 1_000, 5_000, 50_000, 1_000_000];

/// Counts a time in the bucket that is its own among those that these bounds separate; the last is for what's above all.
fn count_time(buckets: &[Number], bounds_us: &[u64], time_us: u64) {
    buckets[bounds_us.iter().take_while(|&&bound| time_us > bound).count()].increment();
}

/// What is counted of a site at one worker.
#[derive(Debug, Default)]
pub struct SiteMetrics {
    /// The site's name.
    pub name: String,
    /// Requests answered, by the first digit of the status: `[0]` is 1xx, the last are those from 600 on.
    pub requests: [Number; 6],
    /// Content bytes that the kernel has taken.
    pub body_bytes: Number,
    /// Requests by time from the whole head to the last byte handed to the kernel; the last is those above all bounds.
    pub times: [Number; TIME_BOUNDS_US.len() + 1],
    /// The sum of those times.
    pub time_us: Number,
    /// Requests by the time that they waited for their turn, served or refused then; the last is those above all bounds.
    pub delays: [Number; DELAY_BOUNDS_US.len() + 1],
    /// The sum of those times.
    pub delay_us: Number,
    /// Connections whose last request was the site's.
    pub connections: Number,
    /// Requests that wait for their turn now.
    pub waiting: Number,
    /// Requests that are being served now.
    pub started: Number,
    /// What it has used of its quotas and its owners', by resource, in nanoseconds in which as much of the smallest comes in.
    pub quota_used_ns: [Number; Resource::COUNT],
    /// Time in which its quotas, or its owners', held something back, in nanoseconds.
    pub quota_wait_ns: Number,
    /// Memory held for its connections, where it has a quota of that.
    pub memory_held_bytes: Number,
    /// What the site was entitled to lately among those that wanted something, in millionths of the worker.
    pub share_given: Number,
    /// What it has used lately, in millionths of what all have.
    pub share_used: Number,
    /// By the stages' order: [`STAGES`].
    pub stages: [StageMetrics; STAGES.len()],
    /// Requests of clients that may not ask, or not so often: by `Denial::index`.
    pub denied: [Number; Denial::COUNT],
    /// Processor time of the site's handlers, in nanoseconds.
    pub compute_ns: Number,
    /// Slices that its handlers' programs got.
    pub slices: Number,
    /// Requests that are passed on.
    pub upstream: UpstreamMetrics,
    /// If it's a dispatcher's port for another protocol.
    pub port: PortMetrics,
    /// Access log lines that were dropped because the log couldn't keep up. Whoever drops one counts it: the worker, or the thread that writes.
    pub log_lines_dropped: Arc<AtomicU64>,
}

/// The stages of a request's life, by their names in metrics.
pub const STAGES: [&str; 4] = ["receive", "serve", "transmit", "compute"];

/// What is counted of a site at one stage at one worker.
#[derive(Debug, Default)]
pub struct StageMetrics {
    /// Events that were run.
    pub events: Number,
    /// Processor time charged, in nanoseconds.
    pub used_ns: Number,
    /// The sum of the times that events waited for their turn, in microseconds.
    pub waited_us: Number,
    /// Requests answered with 503 because there was too much to do: as they were received, as they were to be served, before their replies were sent.
    pub refused: Number,
    /// What the stage was entitled to lately, of what the site was, in millionths of the worker.
    pub share_given: Number,
}

impl SiteMetrics {
    /// Counts a request that has waited so long for its turn.
    pub fn count_delay(&self, delay: Duration) {
        let delay_us = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        count_time(&self.delays, &DELAY_BOUNDS_US, delay_us);
        self.delay_us.add(delay_us);
    }

    /// Counts a request that took so long, in microseconds, from its whole head to its reply's last byte.
    pub fn count_request_time(&self, time_us: u64) {
        count_time(&self.times, &TIME_BOUNDS_US, time_us);
        self.time_us.add(time_us);
    }
}

/// What is counted at one worker.
#[derive(Debug)]
pub struct WorkerMetrics {
    /// The worker's number.
    pub worker: usize,
    /// 1 once it has ended: it has nothing any more, and what it has counted stays.
    pub ended: Number,
    /// Connections accepted.
    pub accepted: Number,
    /// Times that accepting failed.
    pub accept_failures: Number,
    /// Connections that ended as there was no room for new ones.
    pub displaced: Number,
    /// Connections from balancers that didn't tell who the client is.
    pub headers_refused: Number,
    /// Connections open now.
    pub connections: Number,
    /// Requests refused, by reason.
    pub rejections: Vec<Number>,
    /// Flows that are elsewhere or on their way, at a dispatcher; that are here, at a node.
    pub flows: Number,
    /// Entries by which packets are steered, of all workers: the first tells.
    pub flow_entries: Number,
    /// Packets that a front has sent to nodes by its table.
    pub packets_spread: Number,
    /// Packets that a front has sent after connections which have left their bucket's owner.
    pub packets_followed: Number,
    /// Packets that a node has sent on to the one that had their connection.
    pub packets_passed_on: Number,
    /// Packets of either whose node isn't known.
    pub packets_unreached: Number,
    /// Packets that a node has given to a server that isn't leat.
    pub packets_served: Number,
    /// The same, which that server didn't want.
    pub packets_unserved: Number,
    /// Connections given to a node, or taken by one.
    pub handoffs: Number,
    /// Connections that began at a node.
    pub births: Number,
    /// Of these, by a choice that stood.
    pub births_unasked: Number,
    /// Requests that weren't heard, as their node had no room: their clients say them again.
    pub births_put_off: Number,
    /// Offers that were refused or lost.
    pub handoffs_refused: Number,
    /// Connections that came back from a node.
    pub handoffs_returned: Number,
    /// Connections that a connection server has left here when it ended.
    pub connections_inherited: Number,
    /// Connections whose turn to change hands hasn't come.
    pub handoffs_waiting: Number,
    /// Requests that have waited for a node.
    pub node_waits: Number,
    /// Requests on connections at nodes whose place was asked for.
    pub questions: Number,
    /// Replies that a node fetched from a peer.
    pub fetches: Number,
    /// Replies that another server had begun.
    pub replies_continued: Number,
    /// Connections with nothing to do of which homes were told.
    pub rests_told: Number,
    /// Connections that went on although their node had died.
    pub flows_recovered: Number,
    /// Connections that couldn't go on.
    pub flows_cut: Number,
    /// Connections that were asked back from nodes that their clients didn't hear.
    pub flows_taken_back: Number,
    /// Connections that went from one server that isn't leat to another.
    pub transplants: Number,
    /// Connections that could have and stay where they are.
    pub transplants_impossible: Number,
    /// Connections that were reset, as they couldn't go where what was asked for is.
    pub transplants_cut: Number,
    /// Connections that couldn't be asked back.
    pub replies_unheard: Number,
    /// Prefixes of clients, or whole families, for which nodes are proxied.
    pub detours: Number,
    /// Nodes whose own health checks fail.
    pub nodes_unwell: Number,
    /// Connections that the next engine has taken.
    pub connections_passed: Number,
    /// Connections that the next engine didn't take, or not as they were.
    pub connections_returned: Number,
    /// Connections taken from the engine before.
    pub connections_taken: Number,
    /// Requests that a connection server had data servers answer.
    pub requests_delegated: Number,
    /// Requests that it could have delegated and answered itself.
    pub requests_kept: Number,
    /// Turns of the loop by how long they kept it from looking at what has come; the last is those above all bounds.
    pub turns: [Number; TURN_BOUNDS_US.len() + 1],
    /// The sum of those times, in nanoseconds.
    pub turn_ns: Number,
    /// Connections that others have taken, by the time from their freeze to that word; the last is those above all bounds.
    pub handoff_times: [Number; HANDOFF_BOUNDS_US.len() + 1],
    /// What the steering programs have counted at a dispatcher, and at a node. It's the same whichever worker reads it.
    pub dispatcher_counts: [Number; DispatcherCounters::NAMES.len()],
    /// See above.
    pub node_counts: [Number; NodeCounters::NAMES.len()],
    /// The sum of those times.
    pub handoff_time_us: Number,
    /// Waits for several requests instead of the first.
    pub gathers: Number,
    /// Packets of those who knocked that were dropped while there was too much to do.
    pub knocks_dropped: Number,
    /// Requests answered from the worker's cache.
    pub cache_hits: Number,
    /// Requests for which the storage was asked for a file.
    pub cache_misses: Number,
    /// Requests for which the storage was asked whether the cache is right.
    pub cache_checks: Number,
    /// Bytes in the cache.
    pub cache_bytes: Number,
    /// Replies cut because the file had changed.
    pub torn_replies: Number,
    /// Replies that didn't reach their end, for whatever reason.
    pub cut_replies: Number,
    /// Connections cut because no byte moved in time.
    pub stalled: Number,
    /// Requests that the storage couldn't answer.
    pub storage_failures: Number,
    /// How far off the cost model's predictions were lately, in millionths of what was measured.
    pub cost_model_error: Number,
    /// Programs of handlers that haven't ended.
    pub programs: Number,
    /// Programs started.
    pub program_starts: Number,
    /// Responders that ended, to be started again.
    pub program_restarts: Number,
    sites: Mutex<Named<SiteMetrics>>,
    owners: Mutex<Named<OwnerMetrics>>,
}

impl WorkerMetrics {
    /// All at zero.
    #[must_use]
    pub fn new(worker: usize) -> WorkerMetrics {
        WorkerMetrics {
            worker,
            ended: Number::default(),
            accepted: Number::default(),
            accept_failures: Number::default(),
            displaced: Number::default(),
            headers_refused: Number::default(),
            connections: Number::default(),
            rejections: RejectReason::ALL.iter().map(|_| Number::default()).collect(),
            flows: Number::default(),
            flow_entries: Number::default(),
            packets_spread: Number::default(),
            packets_followed: Number::default(),
            packets_passed_on: Number::default(),
            packets_unreached: Number::default(),
            packets_served: Number::default(),
            packets_unserved: Number::default(),
            handoffs: Number::default(),
            births: Number::default(),
            births_unasked: Number::default(),
            births_put_off: Number::default(),
            handoffs_refused: Number::default(),
            handoffs_returned: Number::default(),
            connections_inherited: Number::default(),
            handoffs_waiting: Number::default(),
            node_waits: Number::default(),
            questions: Number::default(),
            fetches: Number::default(),
            replies_continued: Number::default(),
            rests_told: Number::default(),
            flows_recovered: Number::default(),
            flows_cut: Number::default(),
            flows_taken_back: Number::default(),
            transplants: Number::default(),
            transplants_impossible: Number::default(),
            transplants_cut: Number::default(),
            replies_unheard: Number::default(),
            detours: Number::default(),
            nodes_unwell: Number::default(),
            connections_passed: Number::default(),
            connections_returned: Number::default(),
            connections_taken: Number::default(),
            requests_delegated: Number::default(),
            requests_kept: Number::default(),
            turns: Default::default(),
            turn_ns: Number::default(),
            handoff_times: Default::default(),
            dispatcher_counts: Default::default(),
            node_counts: Default::default(),
            handoff_time_us: Number::default(),
            gathers: Number::default(),
            knocks_dropped: Number::default(),
            cache_hits: Number::default(),
            cache_misses: Number::default(),
            cache_checks: Number::default(),
            cache_bytes: Number::default(),
            torn_replies: Number::default(),
            cut_replies: Number::default(),
            stalled: Number::default(),
            storage_failures: Number::default(),
            cost_model_error: Number::default(),
            programs: Number::default(),
            program_starts: Number::default(),
            program_restarts: Number::default(),
            sites: Mutex::default(),
            owners: Mutex::default(),
        }
    }

    /// Counts a turn of the loop.
    #[inline]
    pub fn count_turn(&self, turn: Duration) {
        let turn_ns = u64::try_from(turn.as_nanos()).unwrap_or(u64::MAX);
        count_time(&self.turns, &TURN_BOUNDS_US, turn_ns.div_ceil(1_000));
        self.turn_ns.add(turn_ns);
    }

    /// Counts a connection that somebody else has taken, so long after it was frozen here.
    pub fn count_handoff(&self, time: Duration) {
        let time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        count_time(&self.handoff_times, &HANDOFF_BOUNDS_US, time_us);
        self.handoff_time_us.add(time_us);
    }

    /// The numbers of a site, which stay over reloads.
    #[must_use]
    pub fn site(&self, name: &str) -> Arc<SiteMetrics> {
        lock(&self.sites).get_or_add(name, || SiteMetrics { name: name.to_owned(), ..SiteMetrics::default() })
    }

    fn sites(&self) -> Vec<Arc<SiteMetrics>> {
        lock(&self.sites).all().to_vec()
    }
}

/// What is counted of the whole engine.
#[derive(Debug, Default)]
pub struct ServerMetrics {
    workers: Mutex<Vec<Arc<WorkerMetrics>>>,
    belonging: Mutex<owner::Belonging>,
    /// Configurations put in force since the engine's start.
    pub reloads: AtomicU64,
    /// Seconds since 1970 at the engine's start.
    pub started_seconds: AtomicU64,
}

impl ServerMetrics {
    /// Counts a new worker's numbers in. Those of workers that have gone stay: a counter never goes back.
    pub fn add_worker(&self, metrics: Arc<WorkerMetrics>) {
        lock(&self.workers).push(metrics);
    }

    /// Connections that the next engine has taken.
    #[must_use]
    pub fn connections_passed(&self) -> u64 {
        let workers = lock(&self.workers);
        workers.iter().map(|worker| worker.connections_passed.get()).sum()
    }

    /// What is under way, for people: connections, and whose requests have no whole reply yet.
    #[must_use]
    pub fn under_way(&self) -> String {
        let workers = lock(&self.workers);
        let sum = |read: fn(&WorkerMetrics) -> &Number| workers.iter().map(|worker| read(worker).get()).sum::<u64>();
        let mut by_site = BTreeMap::<String, u64>::new();
        for site in workers.iter().flat_map(|worker| worker.sites()) {
            let count = site.started.get() + site.waiting.get() + site.port.open.get();
            if count > 0 {
                *by_site.entry(site.name.clone()).or_default() += count;
            }
        }
        let mut text = format!("connections: {}", sum(|worker| &worker.connections));
        for (name, count) in [("flows", sum(|worker| &worker.flows)), ("programs", sum(|worker| &worker.programs))] {
            if count > 0 {
                text += &format!("; {name}: {count}");
            }
        }
        let by_site: Vec<_> = by_site.iter().map(|(name, count)| format!("{name} {count}")).collect();
        if !by_site.is_empty() {
            text += &format!("; not answered yet: {}", by_site.join(", "));
        }
        text
    }
}
