//! A whole worker that has more to do than it can, in virtual time: every operation has a price, and nothing else takes time. How much is
//! answered, how fast, and who is refused, is then the same in every run, whatever else the machine does.
//!
//! What clients do is `clients`' to say, what operations cost is `reactor`'s.

mod clients;
mod reactor;

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use leat::access_log::{AccessLogWriter, AccessLogs};
use leat::balance::{Balance, Member};
use leat::config::{Admin, Burn, Config, Handler, Limits, Listener, Log, LogLevel, Site};
use leat::ctl::Desk;
use leat::listener::ListenerName;
use leat::metrics::{ServerMetrics, WorkerMetrics};
use leat::worker::control::{Control, Mailbox};
use leat::worker::{Aggregates, Setup, Worker};
use leat_logic::serve::hosts::HostTable;
use leat_logic::serve::path_pattern::PathPattern;

use crate::agenda::SECOND;
use crate::host::SimHost;
use crate::programs::SimPrograms;
use crate::random::Random;
use crate::settings;
use crate::storage::SimStorage;
use crate::world::{Faults, World};
use clients::Crowd;
pub use clients::{Asking, Got};
use reactor::CrowdReactor;

/// One site: its clients, and what its requests cost.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Beside the other sites'.
    pub weight: u32,
    /// How its clients ask.
    pub asking: Asking,
    /// What they ask for.
    pub what: What,
}

/// What a request is for.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// So much processor time, in microseconds: from, to.
    Burn(u64, u64),
    /// Processor time without end.
    Forever,
    /// A file of 1 MB, read as it comes, or never.
    File {
        /// Whether the client reads it.
        is_read: bool,
    },
    /// A file of 16 KB.
    SmallFile,
    /// A file of 64 KB, which is kept in memory.
    Page,
    /// A hundred single bytes of the file of 1 MB, a range each.
    Ranges,
}

/// Length of the file that takes turns to be sent.
const FILE_BYTES: usize = 1 << 20;
const SMALL_FILE_BYTES: usize = 1 << 14;
const PAGE_BYTES: usize = 1 << 16;
/// Where they are.
const FILE_PATH: &str = "/file";
const SMALL_FILE_PATH: &str = "/small";
const PAGE_PATH: &str = "/page";

/// Runs a worker for a while under these demands; what each site got after `warm_up`.
///
/// # Errors
/// The run can't be set up, or the worker gives up.
pub fn run(demands: &[Demand], seed: u64, warm_up: Duration, window: Duration) -> io::Result<Vec<Got>> {
    run_under(|_| {}, demands, seed, warm_up, window)
}

/// As [`run`], with a configuration that `arrange` has changed: sites are called `site0.test` and so on, in the order of the demands.
///
/// # Errors
/// As [`run`].
pub fn run_under(
    arrange: impl FnOnce(&mut Config),
    demands: &[Demand],
    seed: u64,
    warm_up: Duration,
    window: Duration,
) -> io::Result<Vec<Got>> {
    let mut config = configure(demands);
    arrange(&mut config);
    Ok(run_configured(config, &[demands.to_vec()], seed, warm_up, window)?.remove(0))
}

/// As [`run`], on a core that others take for `interruption.1` each time that the worker has worked for `interruption.0`.
///
/// # Errors
/// As [`run`].
pub fn run_interrupted(
    interruption: (Duration, Duration),
    demands: &[Demand],
    seed: u64,
    warm_up: Duration,
    window: Duration,
) -> io::Result<Vec<Got>> {
    let (each, lasts) = interruption;
    let interruption = Some((each.as_nanos() as u64, lasts.as_nanos() as u64));
    run_on(|scene| scene.world.borrow_mut().interruption = interruption, demands, seed, warm_up, window)
}

/// As [`run`], where what the worker does with sockets costs `times` what it does on a machine of today.
///
/// # Errors
/// As [`run`].
pub fn run_priced(
    times: u64,
    demands: &[Demand],
    seed: u64,
    warm_up: Duration,
    window: Duration,
) -> io::Result<Vec<Got>> {
    run_on(|scene| scene.crowd.borrow_mut().price_times = times, demands, seed, warm_up, window)
}

/// As [`run`], where nearly all receive buffers are full whenever the worker looks.
///
/// # Errors
/// As [`run`].
pub fn run_short_of_buffers(
    demands: &[Demand],
    seed: u64,
    warm_up: Duration,
    window: Duration,
) -> io::Result<Vec<Got>> {
    run_on(|scene| scene.crowd.borrow_mut().is_short_of_buffers = true, demands, seed, warm_up, window)
}

/// As [`run_priced`], where each site's clients have a network of their own.
///
/// # Errors
/// As [`run`].
pub fn run_apart(
    times: u64,
    demands: &[Demand],
    seed: u64,
    warm_up: Duration,
    window: Duration,
) -> io::Result<Vec<Got>> {
    run_on(|scene| scene.set_apart(times), demands, seed, warm_up, window)
}

/// As [`run`], on a machine that `change` has changed.
fn run_on(
    change: impl FnOnce(&Scene),
    demands: &[Demand],
    seed: u64,
    warm_up: Duration,
    window: Duration,
) -> io::Result<Vec<Got>> {
    let mut engine = Engine::new(configure(demands), &[demands.to_vec()], seed)?;
    change(&engine.scenes[0]);
    Ok(engine.measure(warm_up, window)?.remove(0))
}

/// As [`run`], with a reload at the end of `warm_up`, by a configuration that `change` has changed; what each site got from then on.
///
/// # Errors
/// As [`run`].
pub fn run_reloaded(
    change: impl FnOnce(&mut Config),
    demands: &[Demand],
    seed: u64,
    warm_up: Duration,
    window: Duration,
) -> io::Result<Vec<Got>> {
    let mut engine = Engine::new(configure(demands), &[demands.to_vec()], seed)?;
    engine.go_on(warm_up)?;
    let mut config = configure(demands);
    change(&mut config);
    engine.reload(config)?;
    Ok(engine.measure(Duration::ZERO, window)?.remove(0))
}

/// What became of who was connected when a worker was told to stop.
#[derive(Clone, Copy, Debug)]
pub struct Stopped {
    /// Connections that had been accepted and not heard then.
    pub unheard: usize,
    /// Connections that were closed before the reply to their request, from the start.
    pub cut: u64,
    /// Connections that were left in the end.
    pub left: usize,
}

/// As [`run`], where each site's clients have a network of their own, with a reload in the middle of `time`, and told to stop at its end, for which there's
/// `drain`.
///
/// # Errors
/// As [`run`].
pub fn run_stopped(demands: &[Demand], seed: u64, time: Duration, drain: Duration) -> io::Result<Stopped> {
    let mut engine = Engine::new(configure(demands), &[demands.to_vec()], seed)?;
    engine.scenes[0].set_apart(1);
    engine.go_on(time / 2)?;
    engine.reload(configure(demands))?;
    engine.go_on(time / 2)?;
    let scene = &engine.scenes[0];
    let deadline = scene.world.borrow().agenda.instant().after(2 * drain);
    let unheard = scene.crowd.borrow().unheard();
    scene.mailbox.send(Control::Drain { deadline, keep_idle: false, passage: None });
    engine.go_on(drain)?;
    let scene = &engine.scenes[0];
    Ok(Stopped { unheard, cut: scene.crowd.borrow().cut, left: scene.worker.holdings().connections })
}

/// Runs several workers, each with the demands that fall on it: the same sites, in the same order. Connections stay where they are; what each
/// worker has for each site is weighed as the engine does it. What each site got on each worker.
///
/// # Errors
/// As [`run`].
pub fn run_workers(
    demands: &[Vec<Demand>],
    seed: u64,
    warm_up: Duration,
    window: Duration,
) -> io::Result<Vec<Vec<Got>>> {
    run_workers_under(|_| {}, demands, seed, warm_up, window)
}

/// As [`run_workers`], with a configuration that `arrange` has changed.
///
/// # Errors
/// As [`run`].
pub fn run_workers_under(
    arrange: impl FnOnce(&mut Config),
    demands: &[Vec<Demand>],
    seed: u64,
    warm_up: Duration,
    window: Duration,
) -> io::Result<Vec<Vec<Got>>> {
    let mut config = configure(&demands[0]);
    arrange(&mut config);
    run_configured(config, demands, seed, warm_up, window)
}

fn run_configured(
    config: Config,
    demands: &[Vec<Demand>],
    seed: u64,
    warm_up: Duration,
    window: Duration,
) -> io::Result<Vec<Vec<Got>>> {
    Engine::new(config, demands, seed)?.measure(warm_up, window)
}

/// All workers, and what holds shares over them.
struct Engine {
    scenes: Vec<Scene>,
    config: Arc<Config>,
    balance: Balance,
}

impl Engine {
    fn new(config: Config, demands: &[Vec<Demand>], seed: u64) -> io::Result<Engine> {
        let (config, aggregates) = (Arc::new(config), Arc::default());
        let scenes = demands.iter().enumerate();
        let scenes =
            scenes.map(|(number, demands)| Scene::new(demands, &config, &aggregates, seed + 2 * number as u64));
        Ok(Engine { scenes: scenes.collect::<io::Result<_>>()?, config, balance: Balance::default() })
    }

    fn reload(&mut self, config: Config) -> io::Result<()> {
        self.config = Arc::new(config);
        for scene in &self.scenes {
            let (config, listeners) = (self.config.clone(), Vec::new());
            scene.mailbox.send(Control::Configure { logs: open_logs(&config)?, config, listeners });
        }
        Ok(())
    }

    /// What each site gets on each worker after `warm_up`.
    fn measure(&mut self, warm_up: Duration, window: Duration) -> io::Result<Vec<Vec<Got>>> {
        self.go_on(warm_up)?;
        let before: Vec<Vec<u64>> = self.scenes.iter().map(Scene::charged).collect();
        self.scenes.iter().for_each(|scene| scene.crowd.borrow_mut().count_from_now());
        self.go_on(window)?;
        let got = self.scenes.iter().zip(before).map(|(scene, before)| {
            let mut got = scene.crowd.borrow_mut().take_counts();
            for ((got, charged), before) in got.iter_mut().zip(scene.charged()).zip(before) {
                got.charged_ns = charged - before;
            }
            got
        });
        Ok(got.collect())
    }

    fn go_on(&mut self, time: Duration) -> io::Result<()> {
        let members = self.scenes.iter().enumerate().map(|(number, scene)| Member {
            number,
            metrics: scene.metrics.clone(),
            mailbox: scene.mailbox.clone(),
        });
        let members: Vec<Member> = members.collect();
        let mut left = time;
        while !left.is_zero() {
            let now = self.scenes[0].world.borrow().agenda.instant();
            let pause = self.balance.step(&self.config, &members, now).unwrap_or(left).min(left);
            let ends_ns: Vec<u64> = self.scenes.iter().map(|scene| scene.now_ns() + pause.as_nanos() as u64).collect();
            self.scenes.iter().for_each(|scene| scene.rung.set(true));
            // Whoever is behind goes on, a turn each time: what they use together is used at about the same time.
            loop {
                let late = self.scenes.iter_mut().zip(&ends_ns).filter(|(scene, end_ns)| scene.now_ns() < **end_ns);
                let Some((scene, _)) = late.min_by_key(|(scene, _)| scene.now_ns()) else { break };
                scene.worker.run_once()?;
            }
            left -= pause;
        }
        Ok(())
    }
}

struct Scene {
    world: Rc<RefCell<World>>,
    crowd: Rc<RefCell<Crowd>>,
    worker: Worker<SimHost<CrowdReactor>>,
    metrics: Arc<WorkerMetrics>,
    mailbox: Arc<Mailbox>,
    rung: Rc<Cell<bool>>,
    sites: usize,
}

impl Scene {
    fn new(demands: &[Demand], config: &Arc<Config>, aggregates: &Arc<Aggregates>, seed: u64) -> io::Result<Scene> {
        let faults = Faults {
            watching: false,
            cached_percent: 100,
            disk_errors_in_1000: 0,
            accept_failures_in_1000: 0,
            queued_pages_change: false,
            trusts_files: false,
        };
        let world = Rc::new(RefCell::new(World::new(Random::new(seed), faults, false)));
        for (path, bytes) in [(FILE_PATH, FILE_BYTES), (SMALL_FILE_PATH, SMALL_FILE_BYTES), (PAGE_PATH, PAGE_BYTES)] {
            world.borrow_mut().put_known(&(0, path.to_owned()), vec![b'x'; bytes]);
        }
        let crowd = Rc::new(RefCell::new(Crowd::new(demands, Random::new(seed ^ 1), world.borrow().agenda.now_ns())));
        let mailbox = Arc::new(Mailbox::new()?);
        let metrics = Arc::new(WorkerMetrics::new(0));
        leat::log::configure(&Log { level: LogLevel::Error, ..Log::default() });
        let logs = open_logs(config)?;
        // Any descriptor: there is one listener.
        let descriptor = OwnedFd::from(File::open("/dev/null")?);
        let listeners = vec![(ListenerName::site(settings::address()), descriptor)];
        mailbox.send(Control::Configure { config: config.clone(), logs, listeners });
        let reactor = CrowdReactor::new(world.clone(), crowd.clone(), mailbox.descriptor().as_raw_fd());
        let rung = reactor.rung();
        let server_metrics = Arc::new(ServerMetrics::default());
        let (mailbox, config) = (mailbox.clone(), config.clone());
        let setup = Setup {
            mailbox: mailbox.clone(),
            metrics: metrics.clone(),
            server_metrics,
            config,
            shared: Arc::default(),
            aggregates: aggregates.clone(),
            names: Arc::default(),
            desk: Desk::default(),
            seed,
        };
        let host = SimHost::new(&world);
        let worker = Worker::new(host, reactor, SimStorage::new(world.clone()), SimPrograms(world.clone()), setup);
        Ok(Scene { world, crowd, worker, metrics, mailbox, rung, sites: demands.len() })
    }

    /// See [`run_apart`].
    fn set_apart(&self, times: u64) {
        let mut crowd = self.crowd.borrow_mut();
        (crowd.price_times, crowd.are_apart) = (times, true);
    }

    fn now_ns(&self) -> u64 {
        self.world.borrow().agenda.now_ns()
    }

    fn charged(&self) -> Vec<u64> {
        let of = |site: usize| {
            let site = self.metrics.site(&host(site));
            site.stages.iter().map(|stage| stage.used_ns.get()).sum()
        };
        (0..self.sites).map(of).collect()
    }
}

fn open_logs(config: &Config) -> io::Result<Arc<AccessLogs>> {
    Ok(Arc::new(AccessLogWriter::start()?.open(config).map_err(io::Error::other)?))
}

/// The name of a site, and of its only host.
fn host(site: usize) -> String {
    format!("site{site}.test")
}

fn configure(demands: &[Demand]) -> Config {
    let burn = Burn { us_max: 10_000, forever: true, ..Burn::default() };
    let path = PathPattern::parse("/burn").unwrap_or_default();
    let handler = Handler { path, burn: Some(burn), ..Handler::default() };
    let site = |(number, demand): (usize, &Demand)| Site {
        name: host(number),
        hosts: host(number).parse().into_iter().collect(),
        listen: vec![settings::address()],
        root: PathBuf::from("/site0"),
        weight: demand.weight,
        precompressed: Vec::new(),
        handlers: vec![handler.clone()],
        ..Site::default()
    };
    let sites: Vec<Site> = demands.iter().enumerate().map(site).collect();
    let hosts = sites
        .iter()
        .enumerate()
        .flat_map(|(number, site)| site.hosts.iter().map(move |host| (host.clone(), number as u32)));
    let listeners = vec![Listener { address: settings::address(), hosts: HostTable::new(hosts, None) }];
    let limits =
        Limits { idle_timeout: Duration::from_nanos(3_600 * SECOND), connections: 100_000, ..Limits::default() };
    let mut config = Config {
        workers: 1,
        admin: Admin { listen: None, ..Admin::default() },
        limits,
        sites,
        listeners,
        ..Config::default()
    };
    // Off unless somebody wants it: here, so that crowds show that it harms nobody who asks again at once.
    config.schedule.gather_us = 50;
    config
}
