//! One run: a world, a worker in it, and the questions that are asked when everything has ended.

use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use leat::access_log::{AccessLogWriter, AccessLogs};
use leat::config::{Config, Log, LogLevel};
use leat::ctl::Desk;
use leat::listener::ListenerName;
use leat::metrics::{ServerMetrics, WorkerMetrics};
use leat::worker::control::{Control, Mailbox};
use leat::worker::{Setup, Worker};

use crate::agenda::{Happening, MILLISECOND, SECOND};
use crate::host::SimHost;
use crate::programs::SimPrograms;
use crate::random::Random;
use crate::reactor::SimReactor;
use crate::settings;
use crate::storage::SimStorage;
use crate::world::{Faults, World};

/// By then every connection of a run must have ended by itself.
const END_NS: u64 = 900 * SECOND;
/// Turns in which a worker that has drained must have put everything back.
const LAST_TURNS_MAX: usize = 400;
/// How late a drain may end: a sweep may be that far away.
const DRAIN_LATE_NS_MAX: u64 = SECOND;

/// A defect that a run has on purpose, to see that it's found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// The storage says of every file that it hasn't changed.
    TrustsFiles,
    /// Pages of a file that lie in a socket's queue change with the file. This is what Linux does after sendfile(2), and no defect of it: it is
    /// the worker that can't see it, unless it waits until every byte but the last few has been acknowledged.
    QueuedPagesChange,
}

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Decides everything.
    pub seed: u64,
    /// Whether each step is written to standard error.
    pub verbose: bool,
    /// A defect to be found.
    pub defect: Option<Defect>,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Connections that the worker accepted.
    pub accepted: u64,
    /// Replies that clients have got, whole and right.
    pub replies: u64,
    /// Replies that were cut, each for a reason.
    pub cuts: u64,
    /// Virtual time at the end, in milliseconds.
    pub ended_at_ms: u64,
    /// Equal for two runs in which the worker was told the same things at the same times.
    pub fingerprint: u64,
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The run.
    pub seed: u64,
    /// What must never happen and did, in order of time.
    pub violations: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "seed {} fails; `cargo run -p leat-sim -- --seed {} --verbose` replays it",
            self.seed, self.seed
        )?;
        self.violations.iter().try_for_each(|violation| writeln!(formatter, "  {violation}"))
    }
}

/// A worker in its world, and what speaks to it.
pub(crate) struct Run {
    world: Rc<RefCell<World>>,
    worker: Worker<SimHost<SimReactor>>,
    mailbox: Arc<Mailbox>,
    metrics: Arc<WorkerMetrics>,
    logs: Arc<AccessLogs>,
    /// What the engine will say.
    mail: Vec<Mail>,
    receive_buffers: u16,
    /// The most that was held at once for sites with a quota of memory.
    pub(crate) held_bytes_max: u64,
    seed: u64,
}

/// How a reactor receives.
pub(crate) struct Receives {
    /// Its receive buffers.
    pub(crate) buffers: u16,
    /// Whether cancelling takes effect late, as io_uring's does, or at once, as epoll's.
    pub(crate) cancels_late: bool,
}

/// What the engine says in a run.
pub(crate) enum Mail {
    Configure(Arc<Config>),
    Drain { within: Duration, keep_idle: bool },
}

/// Runs a world to its end.
///
/// # Errors
/// What went wrong in it.
pub fn run(options: Options) -> Result<Summary, Failure> {
    let unready = |error| Failure { seed: options.seed, violations: vec![format!("the run can't be set up: {error}")] };
    Run::new(options).map_err(unready)?.finish()
}

impl Run {
    fn new(options: Options) -> io::Result<Run> {
        let mut random = Random::new(options.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x1EA7);
        let faults = Faults {
            watching: random.percent(60),
            cached_percent: *random.pick(&[0, 50, 90, 100]),
            disk_errors_in_1000: *random.pick(&[0, 0, 0, 50]),
            accept_failures_in_1000: *random.pick(&[0, 0, 30]),
            queued_pages_change: options.defect == Some(Defect::QueuedPagesChange),
            trusts_files: options.defect == Some(Defect::TrustsFiles),
        };
        let receives = Receives { buffers: *random.pick(&[1, 2, 4, 512]), cancels_late: random.percent(50) };
        let first = Arc::new(settings::make(&mut random));
        let mut mail = vec![Mail::Configure(first.clone())];
        let mut plan = vec![(0, 0)];
        if random.percent(40) {
            plan.push((mail.len(), random.below(8 * SECOND)));
            mail.push(Mail::Configure(Arc::new(settings::make(&mut random))));
        }
        if random.percent(30) {
            plan.push((mail.len(), random.below(8 * SECOND)));
            let within = Duration::from_nanos(random.below(8 * SECOND));
            mail.push(Mail::Drain { within, keep_idle: random.percent(30) });
        }
        let clients = *random.pick(&[1, 4, 12, 40]);
        let mutations = *random.pick(&[0, 5, 60, 300]);
        let mut world = World::new(random, faults, options.verbose);
        let later = mail.iter().filter_map(|message| match message {
            Mail::Configure(config) => Some(config.limits.connections),
            _ => None,
        });
        world.is_crowded = later.chain([first.limits.connections]).any(|most| clients > most);
        world.furnish(settings::SITES, mutations, 10 * SECOND);
        for _ in 0..clients {
            world.add_client(4 * SECOND);
        }
        for (message, at_ns) in plan {
            world.agenda.after(at_ns, Happening::Mail(message));
        }
        Run::begin(world, receives, first, mail, options.seed)
    }

    /// A worker in a world that is ready for it.
    pub(crate) fn begin(
        world: World,
        receives: Receives,
        first: Arc<Config>,
        mail: Vec<Mail>,
        seed: u64,
    ) -> io::Result<Run> {
        let world = Rc::new(RefCell::new(world));
        let reactor = SimReactor::new(world.clone(), receives.buffers, receives.cancels_late);
        let storage = SimStorage::new(world.clone());
        let mailbox = Arc::new(Mailbox::new()?);
        let metrics = Arc::new(WorkerMetrics::new(0));
        leat::log::configure(&Log { level: LogLevel::Error, ..Log::default() });
        let logs = AccessLogWriter::start()?.open(&first).map_err(io::Error::other)?;
        let setup = Setup {
            mailbox: mailbox.clone(),
            metrics: metrics.clone(),
            server_metrics: Arc::new(ServerMetrics::default()),
            config: first,
            shared: Arc::default(),
            aggregates: Arc::default(),
            names: Arc::default(),
            desk: Desk::default(),
            seed,
        };
        let worker = Worker::new(SimHost::new(&world), reactor, storage, SimPrograms(world.clone()), setup);
        let (logs, receive_buffers) = (Arc::new(logs), receives.buffers);
        Ok(Run { world, worker, mailbox, metrics, logs, mail, receive_buffers, held_bytes_max: 0, seed })
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// What went wrong.
    pub(crate) fn finish(&mut self) -> Result<Summary, Failure> {
        let outcome = self.go();
        let mut world = self.world.borrow_mut();
        if let Err(error) = outcome
            && !world.has_failed()
        {
            world.violation(format!("the worker gave up: {error}"));
        }
        if world.has_failed() {
            return Err(Failure { seed: self.seed, violations: world.violations.clone() });
        }
        Ok(Summary {
            accepted: world.accepted,
            replies: world.replies,
            cuts: world.cuts,
            ended_at_ms: world.agenda.now_ns() / MILLISECOND,
            fingerprint: world.fingerprint,
        })
    }

    /// Replies that said that there was too much to do.
    pub(crate) fn unavailable(&self) -> u64 {
        self.world.borrow().unavailable
    }

    /// Until the worker has drained; then a look at what it has left behind.
    fn go(&mut self) -> io::Result<()> {
        loop {
            let holdings = self.worker.holdings();
            self.held_bytes_max = self.held_bytes_max.max(holdings.memory_bytes);
            if holdings.has_ended {
                break;
            }
            self.worker.run_once()?;
            self.deliver_mail()?;
            let mut world = self.world.borrow_mut();
            if world.has_failed() {
                return Ok(());
            }
            let now_ns = world.agenda.now_ns();
            match world.drain {
                None if world.is_over() => {
                    drop(world);
                    self.drain(Duration::from_secs(5), false);
                }
                Some((_, deadline_ns)) if now_ns > deadline_ns + DRAIN_LATE_NS_MAX => {
                    let left = world.left();
                    world.violation(format!("a drain doesn't end: {left}"));
                }
                _ if now_ns > END_NS => {
                    let left = world.left();
                    world.violation(format!("connections don't end: {left}"));
                }
                _ => {}
            }
        }
        self.look_behind()
    }

    fn deliver_mail(&mut self) -> io::Result<()> {
        let due = std::mem::take(&mut self.world.borrow_mut().mail_due);
        for message in due {
            match &self.mail[message] {
                Mail::Configure(config) => {
                    let mut listeners = Vec::new();
                    if message == 0 {
                        // Any descriptor: only its number is looked at.
                        let descriptor = OwnedFd::from(File::open("/dev/null")?);
                        self.world.borrow_mut().listeners.insert(descriptor.as_raw_fd().cast_unsigned(), 0);
                        listeners.push((ListenerName::site(settings::address()), descriptor));
                    }
                    self.mailbox.send(Control::Configure {
                        config: config.clone(),
                        logs: self.logs.clone(),
                        listeners,
                    });
                    self.world.borrow_mut().rung.insert(self.mailbox.descriptor());
                }
                &Mail::Drain { within, keep_idle } => {
                    if self.world.borrow().drain.is_none() {
                        self.drain(within, keep_idle);
                    }
                }
            }
        }
        Ok(())
    }

    fn drain(&mut self, within: Duration, keep_idle: bool) {
        let mut world = self.world.borrow_mut();
        let (now, now_ns) = (world.agenda.instant(), world.agenda.now_ns());
        world.trace(|| format!("drain within {within:?}"));
        world.drain = Some((now_ns, now_ns + within.as_nanos() as u64));
        self.mailbox.send(Control::Drain { deadline: now.after(within), keep_idle, passage: None });
        world.rung.insert(self.mailbox.descriptor());
    }

    /// A worker that has drained holds nothing that isn't in its cache.
    fn look_behind(&mut self) -> io::Result<()> {
        for _ in 0..LAST_TURNS_MAX {
            let holdings = self.worker.holdings();
            let is_idle = holdings.events == 0
                && holdings.programs + holdings.streams == 0
                && self.world.borrow().storage.pending() == 0;
            if is_idle || self.world.borrow().has_failed() {
                break;
            }
            self.worker.run_once()?;
        }
        let holdings = self.worker.holdings();
        let mut world = self.world.borrow_mut();
        if holdings.programs + holdings.streams != 0 || world.programs.count() != 0 {
            let count = world.programs.count();
            world.violation(format!("{count} programs are left, and the worker holds {holdings:?}"));
        }
        if holdings.connections != 0 || holdings.events != 0 || self.metrics.connections.get() != 0 {
            world.violation(format!("the worker has ended and holds {holdings:?}"));
        }
        if holdings.memory_bytes != 0 {
            world.violation(format!("no connection is left, and sites hold {} bytes for them", holdings.memory_bytes));
        }
        if world.storage.pending() != 0 {
            let pending = world.storage.pending();
            world.violation(format!("{pending} answers of the storage were never fetched"));
        }
        if world.receive_buffers_free != self.receive_buffers {
            let (free, all) = (world.receive_buffers_free, self.receive_buffers);
            world.violation(format!("{free} of {all} receive buffers have come back"));
        }
        if world.files.open_files() > holdings.open_files {
            let open = world.files.open_files();
            world.violation(format!("{open} files are open, of which the cache knows {}", holdings.open_files));
        }
        let open = world.network.links.values().filter(|link| link.token.is_some() && !link.closed).count();
        if open > 0 {
            world.violation(format!("{open} sockets are still open"));
        }
        if let Some(text) = world.overdue() {
            world.violation(text);
        }
        Ok(())
    }
}
