//! A whole worker that has more to do than it can, in virtual time: every operation has a price, and nothing else takes time. How much is
//! answered, how fast, and who is refused, is then the same in every run, whatever else the machine does.
//!
//! What clients do is `clients`' to say, what operations cost is `reactor`'s.

mod clients;
mod reactor;

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use leat::access_log::AccessLogWriter;
use leat::config::{Admin, Burn, Config, Handler, Limits, Listener, Log, LogLevel, Site};
use leat::listener::ListenerName;
use leat::metrics::{ServerMetrics, WorkerMetrics};
use leat::worker::control::{Control, Mailbox};
use leat::worker::{Host, Setup, Worker};
use leat_logic::serve::hosts::HostTable;
use leat_logic::serve::path_pattern::PathPattern;
use leat_logic::time::{Instant, UnixTime};

use crate::agenda::SECOND;
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
}

/// Length of the file that takes turns to be sent.
const FILE_BYTES: usize = 1 << 20;
/// Where it is.
const FILE_PATH: &str = "/file";

/// Runs a worker for a while under these demands; what each site got after `warm_up`.
///
/// # Errors
/// The run can't be set up, or the worker gives up.
pub fn run(demands: &[Demand], seed: u64, warm_up: Duration, window: Duration) -> io::Result<Vec<Got>> {
    let mut scene = Scene::new(demands, seed)?;
    scene.go_on(warm_up)?;
    let before = scene.charged();
    scene.crowd.borrow_mut().count_from_now();
    scene.go_on(window)?;
    let charged = scene.charged();
    let mut got = scene.crowd.borrow_mut().take_counts();
    for ((got, charged), before) in got.iter_mut().zip(charged).zip(before) {
        got.charged_ns = charged - before;
    }
    Ok(got)
}

struct CrowdHost {
    world: Rc<RefCell<World>>,
}

impl Host for CrowdHost {
    type Reactor = CrowdReactor;
    type Storage = SimStorage;
    type Programs = SimPrograms;

    fn now(&self) -> Instant {
        self.world.borrow().agenda.instant()
    }

    fn wall(&self) -> UnixTime {
        self.world.borrow().agenda.wall()
    }

    fn processor_time(&self) -> Duration {
        Duration::from_nanos(self.world.borrow().worked_ns)
    }

    fn burn(&self, time: Duration) -> Duration {
        self.world.borrow_mut().work(time.as_nanos() as u64);
        time
    }
}

struct Scene {
    world: Rc<RefCell<World>>,
    crowd: Rc<RefCell<Crowd>>,
    worker: Worker<CrowdHost>,
    metrics: Arc<WorkerMetrics>,
    sites: usize,
}

impl Scene {
    fn new(demands: &[Demand], seed: u64) -> io::Result<Scene> {
        let faults = Faults {
            watching: false,
            cached_percent: 100,
            disk_errors_in_1000: 0,
            accept_failures_in_1000: 0,
            queued_pages_change: false,
            trusts_files: false,
        };
        let world = Rc::new(RefCell::new(World::new(Random::new(seed), faults, false)));
        world.borrow_mut().put_known(&(0, FILE_PATH.to_owned()), vec![b'x'; FILE_BYTES]);
        let crowd = Rc::new(RefCell::new(Crowd::new(demands, Random::new(seed ^ 1), world.borrow().agenda.now_ns())));
        let config = Arc::new(configure(demands));
        let mailbox = Arc::new(Mailbox::new()?);
        let metrics = Arc::new(WorkerMetrics::new(0));
        leat::log::configure(&Log { level: LogLevel::Error, ..Log::default() });
        let logs = Arc::new(AccessLogWriter::start()?.open(&config).map_err(io::Error::other)?);
        // Any descriptor: there is one listener.
        let descriptor = OwnedFd::from(File::open("/dev/null")?);
        let listeners = vec![(ListenerName::site(settings::address()), descriptor)];
        mailbox.send(Control::Configure { config: config.clone(), logs, listeners });
        let reactor = CrowdReactor::new(world.clone(), crowd.clone(), mailbox.descriptor().as_raw_fd());
        let server_metrics = Arc::new(ServerMetrics::default());
        let setup = Setup { mailbox, metrics: metrics.clone(), server_metrics, config, shared: Arc::default(), seed };
        let host = CrowdHost { world: world.clone() };
        let worker = Worker::new(host, reactor, SimStorage::new(world.clone()), SimPrograms(world.clone()), setup);
        Ok(Scene { world, crowd, worker, metrics, sites: demands.len() })
    }

    fn go_on(&mut self, time: Duration) -> io::Result<()> {
        let end_ns = self.world.borrow().agenda.now_ns() + time.as_nanos() as u64;
        while self.world.borrow().agenda.now_ns() < end_ns {
            self.worker.run_once()?;
        }
        Ok(())
    }

    fn charged(&self) -> Vec<u64> {
        let of = |site: usize| {
            let site = self.metrics.site(&host(site));
            site.stages.iter().map(|stage| stage.used_ns.get()).sum()
        };
        (0..self.sites).map(of).collect()
    }
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
    Config {
        workers: 1,
        admin: Admin { listen: None, ..Admin::default() },
        limits,
        sites,
        listeners,
        ..Config::default()
    }
}
