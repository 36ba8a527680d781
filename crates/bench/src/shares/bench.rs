//! What the cases of shares have in common: leat with their configuration, one measurement of several sites, and going on until it's sure.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::SharesOptions;
use super::confidence::{Estimate, estimate};
use super::leat::{ConfiguredLeat, Setup};
use super::meter::{Counters, Meter};
use super::stalls::{StallWatch, Stalls};
use super::wire::{Times, WATCHED, Wire};
use crate::experiment::{self, Clocks, Records};
use crate::load::{self, Demand, Observer, Outcome, Plan, Spacing, Unobserved};
use crate::server::running::WorkFolder;
use crate::server::{self, Running, Server, Site};
use crate::workload::file_set::FileSet;
use crate::workload::mix::{Body, CLOSE, Mix, Target};

/// How long one generator waits for the other to have its connections.
const READY_PATIENCE: Duration = Duration::from_secs(10);
/// A measurement has at least so many batches.
const BATCHES_MIN: u32 = 3;
/// Processor time of the burning handler's requests, in microseconds, all equally often: as the larger classes of SPECweb99 cost.
const BURNS_US: [u32; 4] = [200, 300, 400, 500];
const BURN_EVENLY_US: u32 = 300;
/// The file that every server has: large enough to cost as much as some small requests, small enough for a proxy to hold.
pub(super) const FILE: &str = "file.html";
pub(super) const FILE_BYTES: u64 = 64 << 10;
/// A small file.
pub(super) const SMALL_FILE: &str = "small.html";
pub(super) const SMALL_FILE_BYTES: u64 = 612;
/// A file that takes as long as a burning request.
pub(super) const LARGE_FILE: &str = "large.html";
pub(super) const LARGE_FILE_BYTES: u64 = 1 << 20;

/// Which processors server and generator run on.
pub(super) struct Placement {
    server: Vec<usize>,
    client: Vec<usize>,
    /// The generator shares a processor with the server: it sleeps when it has nothing to do.
    is_shared: bool,
}

impl Placement {
    /// A processor for each worker, the next one for the generator. Where there are too few, the generator runs on those of the
    /// server, as preferred as it is: it needs a few hundredths of one, as requests cost a hundred times what asking for them does, and
    /// takes from all sites alike.
    fn new(workers: usize, cores: usize) -> Self {
        let server: Vec<usize> = (0..workers.min(cores)).collect();
        let is_shared = workers >= cores;
        let client = if is_shared { server.clone() } else { vec![workers] };
        Self { server, client, is_shared }
    }

    pub(super) fn describe(&self) -> &'static str {
        if self.is_shared {
            "Server and client share the processors."
        } else {
            "Server on one core, client on another."
        }
    }
}

/// Who asks for what.
pub(super) type Clients = (Plan, Mix);

/// One measurement.
pub(super) struct Trial {
    /// One for each of the clients.
    pub(super) outcomes: Vec<Outcome>,
    pub(super) server_time: Duration,
    /// leat's own; none where it has no figures, or its admin address didn't answer.
    pub(super) counters: Option<Counters>,
    /// How long the server had the watched client's requests; empty where nobody was watched.
    times: Times,
    /// What others took of the processors meanwhile; nothing where nobody was watched.
    pub(super) stalls: Stalls,
}

impl Trial {
    /// Of all clients together.
    pub(super) fn answered_per_s(&self) -> f64 {
        self.outcomes.iter().map(Outcome::answered_per_s).sum()
    }

    /// At a part of a hundred of the watched client's requests, how long the server had them, in microseconds.
    pub(super) fn server_us(&self, percent: usize) -> Option<f64> {
        self.times.us(percent)
    }

    /// Processors that a site was charged for; none where the server doesn't say.
    pub(super) fn cores_used(&self, site: &str) -> Option<f64> {
        self.counters.as_ref()?.of(site, None, "cores_used")
    }

    pub(super) fn cpu_us_per_request(&self) -> f64 {
        let answered: u64 = self.outcomes.iter().map(|outcome| outcome.answered).sum();
        self.server_time.as_secs_f64() * 1e6 / answered.max(1) as f64
    }
}

/// A running server and how to reach it.
pub(super) struct Started {
    pub(super) running: Running,
    admin: Option<SocketAddr>,
    workers: usize,
}

impl Started {
    pub(super) fn address(&self) -> SocketAddr {
        self.running.address()
    }
}

/// Options, files and all records so far.
pub(crate) struct Bench {
    pub(super) options: SharesOptions,
    pub(crate) records: Records,
    program: PathBuf,
    folder: WorkFolder,
    files: FileSet,
}

impl experiment::Bench for Bench {
    fn records(&mut self) -> &mut Records {
        &mut self.records
    }
}

impl Bench {
    pub(super) fn new(options: SharesOptions, program: PathBuf) -> io::Result<Self> {
        let folder = WorkFolder::create("shares")?;
        let sizes = [(FILE, FILE_BYTES), (SMALL_FILE, SMALL_FILE_BYTES), (LARGE_FILE, LARGE_FILE_BYTES)];
        let files = FileSet::of_sizes(&folder.path().join("files"), &sizes, options.seed)?;
        Ok(Self { options, records: Records::default(), program, folder, files })
    }

    pub(super) fn placement(&self, workers: usize) -> Placement {
        Placement::new(workers, std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// The site that peers serve, asked for one file at first.
    pub(super) fn site(&self, file: &str) -> Site {
        let root = self.root();
        let only_file = Some(root.join(file));
        Site { root, only_file, close: false }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("files")
    }

    /// Starts leat.
    pub(super) fn start(&self, setup: &Setup) -> io::Result<Started> {
        let leat = ConfiguredLeat::new(&self.program, setup.clone())?;
        let started = self.start_server(&leat, FILE, setup.workers)?;
        Ok(Started { admin: Some(leat.admin), ..started })
    }

    /// Calls `turn` with each of the servers that others use, started with `file`, unless they aren't wanted. One that fails is noted, and
    /// the next has its turn.
    pub(super) fn each_peer(
        &mut self,
        case: &str,
        file: &str,
        mut turn: impl FnMut(&mut Self, &str, &Started) -> io::Result<()>,
    ) {
        let site = self.site(file);
        let mut peers = if self.options.no_peers { Vec::new() } else { server::crowded() };
        peers.retain(|peer| peer.serves(&site) && self.options.wants(peer.name()));
        for peer in &peers {
            let started = self.start_server(peer.as_ref(), file, 1);
            if let Err(error) = started.and_then(|started| turn(self, peer.name(), &started)) {
                self.records.note(case, &format!("{} with {file}: {error}", peer.name()));
            }
        }
    }

    /// Starts any server, which is asked for `file` first, and has no other if it holds but one.
    pub(super) fn start_server(&self, server: &dyn Server, file: &str, workers: usize) -> io::Result<Started> {
        let cores = self.placement(workers).server;
        let running = Running::start(server, &self.site(file), self.folder.path(), &cores)?;
        Ok(Started { running, admin: None, workers })
    }

    /// Requests of 200 to 500 us to the burning handler of a site.
    pub(super) fn burn(&self, host: &str) -> Mix {
        burning(host, &BURNS_US, "")
    }

    /// The same, each of which is the last of its connection.
    pub(super) fn burn_once(&self, host: &str) -> Mix {
        burning(host, &BURNS_US, CLOSE)
    }

    /// Requests to it that all cost the same, where few of them have to show a share.
    pub(super) fn burn_evenly(&self, host: &str) -> Mix {
        burning(host, &[BURN_EVENLY_US], "")
    }

    /// One of the files of a site, with more header fields.
    pub(super) fn file(&self, host: &str, file: &str, fields: &str) -> Mix {
        let content = self.files.content(file);
        let body_bytes = content.map(|(bytes, _)| bytes);
        let body = content.map_or(Body::Unknown, |(_, content)| Body::Seeded(content));
        Mix::new(vec![(Target::of_host(host, &format!("/{file}"), fields).with_body(body_bytes, body), 1.0)])
    }

    /// A closed loop over some connections, for one batch.
    pub(super) fn saturate(&self, connections: usize) -> Plan {
        Plan {
            warm_up: Duration::from_millis(150),
            window: Duration::from_secs_f64(self.options.seconds),
            drain: Duration::from_millis(300),
            may_be_refused: true,
            seed: self.options.seed,
            ..Plan::saturate(([127, 0, 0, 1], 0).into(), connections)
        }
    }

    /// An open loop for one batch. Who finds no connection free goes away.
    pub(super) fn offer(&self, per_s: f64, connections: usize) -> Plan {
        let demand = Demand::Rate { per_s, spacing: Spacing::Poisson };
        Plan { demand, waiting_max: 0, ..self.saturate(connections) }
    }

    /// One batch of all clients at once.
    ///
    /// # Errors
    /// The generator can't run, or a client that isn't a flood is refused everything.
    pub(super) fn measure(&self, started: &Started, clients: &[Clients]) -> io::Result<Trial> {
        let Placement { client, is_shared, .. } = self.placement(started.workers);
        let plans: Vec<Clients> = clients
            .iter()
            .map(|(plan, mix)| (Plan { address: started.address(), sleep: is_shared, ..plan.clone() }, mix.clone()))
            .collect();
        let parts: Vec<(&Plan, &Mix)> = plans.iter().map(|(plan, mix)| (plan, mix)).collect();
        let mut watch = Watch::of(started);
        let outcomes = experiment::on_cores(&client, || load::run_together(&parts, &mut watch))?;
        watch.end(outcomes)
    }

    /// As [`Bench::measure`], with the first client watched on its way to the server and back, and the others on another processor where there
    /// is one: what they cost doesn't make the first one late.
    pub(super) fn measure_watched(&self, started: &Started, clients: &[Clients]) -> io::Result<Trial> {
        let Placement { client, is_shared, .. } = self.placement(started.workers);
        let mut clients = clients.to_vec();
        for (plan, _) in &mut clients {
            (plan.address, plan.sleep) = (started.address(), is_shared);
        }
        clients[0].0.source = Some(WATCHED);
        let parts: Vec<(&Plan, &Mix)> = clients.iter().map(|(plan, mix)| (plan, mix)).collect();
        let stalls = StallWatch::new(self.all_cores(started), started.running.processes());
        let wire = Wire::open(started.address())?;
        let mut watch = Watch { wire: Some(wire), stalls: Some(stalls), ..Watch::of(started) };
        let outcomes = match self.two_cores(started) {
            Some(cores) if parts.len() > 1 => on_two(cores, parts.split_at(1), &mut watch)?,
            _ => experiment::on_cores(&client, || load::run_together(&parts, &mut watch))?,
        };
        watch.end(outcomes)
    }

    /// Two processors for clients, if there are as many.
    fn two_cores(&self, started: &Started) -> Option<[usize; 2]> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let others: Vec<usize> = (started.workers..cores).take(2).collect();
        others.try_into().ok()
    }

    /// Those that the server and its clients run on.
    fn all_cores(&self, started: &Started) -> Vec<usize> {
        let Placement { mut server, client, .. } = self.placement(started.workers);
        server.extend(self.two_cores(started).map_or(client, Vec::from));
        server
    }

    /// As [`Bench::measure`], for one client that is more than one processor's work: on two, where there are as many.
    pub(super) fn measure_on_two(&self, started: &Started, client: &Clients) -> io::Result<Trial> {
        let Some(cores) = self.two_cores(started) else { return self.measure(started, std::slice::from_ref(client)) };
        let (plan, mix) = client;
        let part = |thread| Plan { address: started.address(), ..plan.part(thread, 2) };
        let (near, far) = (part(0), part(1));
        let mut watch = Watch::of(started);
        let mut outcomes = on_two(cores, (&[(&near, mix)], &[(&far, mix)]), &mut watch)?;
        let other = outcomes.pop().ok_or_else(|| io::Error::other("a run without an outcome"))?;
        outcomes[0].add(&other).map_err(io::Error::other)?;
        watch.end(outcomes)
    }

    /// What all clients together are answered in a second, when they ask for all they can.
    pub(super) fn capacity_per_s(&self, started: &Started, clients: &[Clients]) -> io::Result<f64> {
        let trials = (0..2).map(|_| self.measure(started, clients).map(|trial| trial.answered_per_s()));
        let capacity_per_s = trials.collect::<io::Result<Vec<_>>>()?.into_iter().fold(0.0, f64::max);
        if capacity_per_s > 0.0 { Ok(capacity_per_s) } else { Err(io::Error::other("answered nothing")) }
    }

    /// Measures batches until each figure's 95 % confidence interval is within `half_width` of its mean on either side (a part of it), or
    /// there are as many as the options allow. Calls `keep` with every batch and its number; comes to the first figure.
    pub(super) fn until_sure<const FIGURES: usize>(
        &mut self,
        started: &Started,
        clients: &[Clients],
        half_width: f64,
        mut keep: impl FnMut(&mut Records, u32, &Trial) -> [f64; FIGURES],
    ) -> io::Result<Estimate> {
        let mut batches: Vec<[f64; FIGURES]> = Vec::new();
        let estimate_of = |batches: &[[f64; FIGURES]], figure: usize| {
            estimate(&batches.iter().map(|batch| batch[figure]).collect::<Vec<_>>())
        };
        for round in 0..self.options.rounds.max(1) {
            let seed = self.options.seed + u64::from(round);
            let seeded = clients.iter().map(|(plan, mix)| (Plan { seed, ..plan.clone() }, mix.clone()));
            let trial = self.measure(started, &seeded.collect::<Vec<_>>())?;
            batches.push(keep(&mut self.records, round, &trial));
            let is_sure =
                |figure| estimate_of(&batches, figure).is_some_and(|found| found.half_width <= half_width * found.mean);
            if round + 1 >= BATCHES_MIN && (0..FIGURES).all(is_sure) {
                break;
            }
        }
        estimate_of(&batches, 0).ok_or_else(|| io::Error::other("no batch"))
    }
}

fn burning(host: &str, times_us: &[u32], fields: &str) -> Mix {
    let target = |&us: &u32| {
        let path = format!("/burn?us={us}&bytes={SMALL_FILE_BYTES}");
        (Target::of_host(host, &path, fields).with_body(Some(SMALL_FILE_BYTES), Body::Unknown), 1.0)
    };
    Mix::new(times_us.iter().map(target).collect())
}

/// Clients with the plans that they have by now.
type Parts<'a> = [(&'a Plan, &'a Mix)];

/// Runs some clients on one processor and others on another, at the same time. What came of each, in this order.
fn on_two(cores: [usize; 2], (near, far): (&Parts<'_>, &Parts<'_>), watch: &mut Watch<'_>) -> io::Result<Vec<Outcome>> {
    let ready = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let mut near_together = Together { ready: &ready, observer: watch };
        let others = scope.spawn(|| {
            let mut together = Together { ready: &ready, observer: &mut Unobserved };
            experiment::on_cores(&cores[1..], || load::run_together(far, &mut together))
        });
        let outcomes = experiment::on_cores(&cores[..1], || load::run_together(near, &mut near_together));
        let others = others.join().map_err(|_| io::Error::other("the second generator panicked"))?;
        Ok([outcomes?, others?].into_iter().flatten().collect())
    })
}

/// Reads clocks and counters when the window begins and ends, and watches who is to be watched.
struct Watch<'a> {
    clocks: Clocks<'a>,
    meter: Option<Meter>,
    wire: Option<Wire>,
    stalls: Option<StallWatch>,
}

impl<'a> Watch<'a> {
    fn of(started: &'a Started) -> Self {
        Self { clocks: Clocks::of(&started.running), meter: started.admin.map(Meter::new), wire: None, stalls: None }
    }

    fn end(self, outcomes: Vec<Outcome>) -> io::Result<Trial> {
        let counters = self.meter.and_then(Meter::end);
        let times = self.wire.map_or_else(|| Ok(Times::default()), Wire::end)?;
        let stalls = self.stalls.map(|watch| watch.seen).unwrap_or_default();
        Ok(Trial { outcomes, server_time: self.clocks.server_time(), counters, times, stalls })
    }
}

impl Observer for Watch<'_> {
    fn opened(&mut self) {
        self.clocks.opened();
    }

    fn window_begins(&mut self) {
        self.clocks.window_begins();
        self.meter.iter().for_each(Meter::read);
        self.wire.iter_mut().for_each(Wire::window_begins);
        self.stalls.iter_mut().for_each(StallWatch::window_begins);
    }

    fn window_ends(&mut self) {
        self.clocks.window_ends();
        self.stalls.iter_mut().for_each(StallWatch::window_ends);
        self.meter.iter().for_each(Meter::read);
        self.wire.iter_mut().for_each(Wire::window_ends);
    }
}

/// Has two generators begin their warm-up, and with it their window, at the same moment: when both have all their connections.
struct Together<'a> {
    ready: &'a AtomicUsize,
    observer: &'a mut (dyn Observer + Send),
}

impl Observer for Together<'_> {
    fn opened(&mut self) {
        self.ready.fetch_add(1, Ordering::AcqRel);
        // The other may have failed.
        let until = Instant::now() + READY_PATIENCE;
        while self.ready.load(Ordering::Acquire) < 2 && Instant::now() < until {
            std::thread::yield_now();
        }
        self.observer.opened();
    }

    fn window_begins(&mut self) {
        self.observer.window_begins();
    }

    fn window_ends(&mut self) {
        self.observer.window_ends();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_has_a_processor_of_its_own_where_there_is_one() {
        let of = |workers, cores| {
            let Placement { server, client, is_shared } = Placement::new(workers, cores);
            (server, client, is_shared)
        };
        assert_eq!(of(1, 2), (vec![0], vec![1], false));
        assert_eq!(of(2, 4), (vec![0, 1], vec![2], false));
        assert_eq!(of(2, 2), (vec![0, 1], vec![0, 1], true));
        assert_eq!(of(1, 1), (vec![0], vec![0], true));
    }
}
