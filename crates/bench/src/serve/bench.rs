//! What all cases share: taking turns, one measurement with its clocks, and the proof of what the generator can offer.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::ServeOptions;
use super::disturbance::{Repeats, Surroundings};
use crate::experiment::{self, Clocks, GENERATOR, Records, stolen_s};
use crate::load::{self, Demand, Observer, Outcome, Plan, Spacing, stalled_share};
use crate::server::running::WorkFolder;
use crate::server::{Running, Server, Site};
use crate::workload::mix::Mix;

/// A point counts only where the generator was shown to offer this many times its rate.
pub(crate) const OFFER_FACTOR: f64 = 1.5;
/// Rates tried, as parts of [`OFFER_FACTOR`] times what the fastest server reached; the first twice, as others on the
/// machine may have been in the way.
const OFFER_STEPS: [f64; 10] = [1.0, 1.0, 0.92, 0.85, 0.78, 0.72, 0.66, 0.6, 0.55, 0.5];
/// A server that answers a smaller share of what is offered doesn't keep up.
pub(crate) const KEPT_UP_MIN: f64 = 0.98;
/// Share of what was due that must have gone out for a rate to count as offered.
const OFFERED_SHARE_MIN: f64 = 0.98;
/// How late nine tenths of the requests may go out for that.
const OFFERED_LATENESS_MAX_US: f64 = 1_000.0;
/// Larger files are sent by sendfile, smaller ones by a copy: whichever is the lower floor.
const LARGE_BYTES: u64 = 200_000;

/// One measurement of one server.
pub(crate) struct Measured {
    pub(crate) outcome: Outcome,
    /// Processor time of the server's processes within the window.
    pub(crate) server_time: Duration,
    /// Memory of its own once all connections were open, in bytes.
    pub(crate) memory_bytes: u64,
    /// Time of the server's and the generator's processors that the hypervisor took within the window.
    stolen_s: f64,
    repeats: u32,
    /// An open loop: latencies count from when a request was due.
    is_open: bool,
}

impl Measured {
    fn surroundings(&self) -> Surroundings {
        Surroundings { lateness_us: self.outcome.lateness_us(0.99), stolen_s: self.stolen_s }
    }

    pub(crate) fn cpu_us_per_request(&self) -> f64 {
        self.server_time.as_secs_f64() * 1e6 / self.outcome.answered.max(1) as f64
    }

    pub(crate) fn server_busy(&self) -> f64 {
        self.server_time.as_secs_f64() / self.outcome.window.as_secs_f64()
    }
}

/// Whose turn it is how often.
#[derive(Clone, Copy)]
pub(crate) struct Turns<'a> {
    pub(crate) case: &'a str,
    pub(crate) site: &'a Site,
    pub(crate) rounds: u32,
}

/// Servers, options and all records so far.
pub(crate) struct Bench {
    pub(crate) options: ServeOptions,
    pub(crate) records: Records,
    repeats: Repeats,
    servers: Vec<Box<dyn Server>>,
    folder: WorkFolder,
}

impl experiment::Bench for Bench {
    fn records(&mut self) -> &mut Records {
        &mut self.records
    }

    fn case_ended(&mut self, case: &str) {
        self.note_disturbances(case);
    }
}

impl Bench {
    pub(super) fn new(options: ServeOptions, servers: Vec<Box<dyn Server>>) -> io::Result<Self> {
        let folder = WorkFolder::create("serve")?;
        let wanted = |name: &str| options.server.is_empty() || options.server.iter().any(|server| server == name);
        if let Some(unknown) = options.server.iter().find(|name| servers.iter().all(|server| server.name() != *name)) {
            let message = format!("no server here is named {unknown}: `leat-bench serve --list` names them all");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let servers = servers.into_iter().filter(|server| wanted(server.name())).collect();
        Ok(Self { options, records: Records::default(), repeats: Repeats::default(), servers, folder })
    }

    /// Folder for configurations, logs and files that may lie in memory.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Folder on a block device, below the one that the options name.
    pub(crate) fn disk_folder(&self) -> PathBuf {
        self.options.disk_folder.join(format!("leat-bench-{}-disk", std::process::id()))
    }

    pub(crate) fn note(&mut self, case: &str, text: &str) {
        self.records.note(case, text);
    }

    /// Says of a case how many of its measurements were disturbed in spite of repeats: what counts nevertheless, and has to be told.
    fn note_disturbances(&mut self, case: &str) {
        let samples = &self.records.samples;
        let all = |metric: &str| -> Vec<f64> {
            let points = samples.points(case);
            let servers = samples.servers(case);
            let each = points.iter().flat_map(|point| servers.iter().map(move |server| (point, server)));
            each.flat_map(|(point, server)| samples.values(case, point, server, metric)).collect()
        };
        let (disturbed, repeats) = (all("disturbed"), all("repeats"));
        let (sum, repeated) = (disturbed.iter().sum::<f64>(), repeats.iter().sum::<f64>());
        if sum + repeated > 0.0 {
            let of = disturbed.len();
            let text = format!(
                "{repeated:.0} measurements were repeated because the generator was late or the hypervisor took time; {sum:.0} of the {of} \
                 that count were disturbed nevertheless (`disturbed` in samples.csv)"
            );
            self.note(case, &text);
        }
    }

    pub(crate) fn window(&self) -> Duration {
        Duration::from_secs_f64(self.options.seconds)
    }

    /// For figures that hardly differ between rounds, or that no mark is judged by.
    pub(crate) fn few_rounds(&self) -> u32 {
        self.options.rounds.min(2)
    }

    /// Calls `turn` for every server that serves the site and that `wanted` accepts, in several rounds, the order moved
    /// on by one each time. A server that fails is noted and the others go on.
    pub(crate) fn rounds(
        &mut self,
        turns: Turns<'_>,
        wanted: impl Fn(&str) -> bool,
        mut turn: impl FnMut(&mut Self, &dyn Server, u32) -> io::Result<()>,
    ) {
        let Turns { case, site, rounds } = turns;
        // Out of `self` meanwhile, so that a turn can use the rest of it.
        let servers = std::mem::take(&mut self.servers);
        let mut chosen: Vec<&dyn Server> = servers.iter().map(Box::as_ref).collect();
        chosen.retain(|server| server.serves(site) && wanted(server.name()));
        for round in 0..rounds {
            for server in &chosen {
                if let Err(error) = turn(self, *server, round) {
                    let text = format!("{} failed in round {round}: {error}", server.name());
                    eprintln!("{case}: {text}");
                    self.note(case, &text);
                }
            }
            let by = 1.min(chosen.len());
            chosen.rotate_left(by);
        }
        self.servers = servers;
    }

    /// Starts a server on the server's core.
    pub(crate) fn start(&self, server: &dyn Server, site: &Site) -> io::Result<Running> {
        Running::start(server, site, self.folder.path(), &[self.options.server_core])
    }

    /// One run of the generator on the client's core.
    pub(crate) fn measure(&self, running: &Running, plan: &Plan, mix: &Mix) -> io::Result<Measured> {
        let cores = [self.options.server_core, self.options.client_core];
        let mut watch = Watch { clocks: Clocks::of(running), cores, stolen_s: 0.0 };
        let outcome = self.on_client_core(|| load::run(plan, mix, &mut watch))?;
        if outcome.answered == 0 {
            return Err(io::Error::other("answered nothing"));
        }
        let Watch { clocks, stolen_s, .. } = watch;
        Ok(Measured {
            outcome,
            server_time: clocks.server_time(),
            memory_bytes: clocks.memory_bytes,
            stolen_s,
            repeats: 0,
            is_open: matches!(plan.demand, Demand::Rate { .. }),
        })
    }

    /// Calls `measure`, again if it was disturbed. It brings, beside the measurement, what else the caller wants.
    pub(crate) fn undisturbed<T>(
        &mut self,
        measure: impl Fn(&Self) -> io::Result<(Measured, T)>,
    ) -> io::Result<(Measured, T)> {
        let mut repeats = std::mem::take(&mut self.repeats);
        let settled = repeats.settle(|| measure(self), |(measured, _)| measured.surroundings());
        self.repeats = repeats;
        settled.map(|((measured, beside), repeats)| (Measured { repeats, ..measured }, beside))
    }

    /// As [`Self::measure`], again if it was disturbed.
    pub(crate) fn measure_undisturbed(&mut self, running: &Running, plan: &Plan, mix: &Mix) -> io::Result<Measured> {
        self.undisturbed(|bench| Ok((bench.measure(running, plan, mix)?, ()))).map(|(measured, ())| measured)
    }

    /// As [`Self::measure_undisturbed`], for latencies: whoever else has something to do on the two processors doesn't hold up what is measured.
    pub(crate) fn measure_latency(&mut self, running: &Running, plan: &Plan, mix: &Mix) -> io::Result<Measured> {
        running.run_at_once();
        self.measure_undisturbed(running, plan, mix)
    }

    /// Runs `work` on a thread of its own that stays on the client's core.
    pub(crate) fn on_client_core<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        experiment::on_cores(&[self.options.client_core], work)
    }

    /// Records one number.
    pub(crate) fn record(&mut self, at: (&str, &str, u32), server: &str, metric: &'static str, value: f64) {
        self.records.record(at, server, metric, value);
    }

    /// Records what every load run tells.
    pub(crate) fn record_load(&mut self, at: (&str, &str, u32), server: &str, measured: &Measured) {
        let outcome = &measured.outcome;
        let Surroundings { lateness_us, stolen_s } = measured.surroundings();
        let slice_p99s_us = outcome.slice_p99s_us();
        let stalled = stalled_share(&slice_p99s_us);
        eprintln!(
            "  {server:15} {:6} round {} {:8.2} us a request, {:8.0}/s, p99 {:8.0} us, {:3.0} % stalled, server {:3.0} % busy, generator {:.2} us {}",
            at.1,
            at.2,
            measured.cpu_us_per_request(),
            outcome.answered_per_s(),
            outcome.latency_us(0.99),
            stalled * 100.0,
            measured.server_busy() * 100.0,
            outcome.generator_us_per_request(),
            if outcome.failures.is_empty() { String::new() } else { format!("{:?}", outcome.failures) },
        );
        self.record(at, server, "cpu_us", measured.cpu_us_per_request());
        self.record(at, server, "answered_per_s", outcome.answered_per_s());
        self.record(at, server, "offered_per_s", outcome.offered_per_s());
        self.record(at, server, "p50_us", outcome.latency_us(0.5));
        self.record(at, server, "p99_us", outcome.latency_us(0.99));
        self.record(at, server, "server_busy", measured.server_busy());
        self.record(at, server, "generator_us", outcome.generator_us_per_request());
        // A closed loop is never late, and its latencies are its own doing.
        if measured.is_open {
            slice_p99s_us.iter().for_each(|&p99_us| self.record(at, server, "slice_p99_us", p99_us));
            self.record(at, server, "stalled", stalled);
            self.record(at, server, "late_us", lateness_us);
            self.record(at, server, "stolen_ms", stolen_s * 1e3);
            self.record(at, server, "disturbed", f64::from(measured.surroundings().is_disturbed()));
            self.record(at, server, "repeats", f64::from(measured.repeats));
        }
        let kept_up = outcome.answered as f64 / outcome.offered.max(1) as f64;
        self.record(at, server, "kept_up", kept_up);
        // A server that is offered more than it can answer hasn't failed by not answering it.
        let beyond = if kept_up < KEPT_UP_MIN { outcome.left_over() } else { 0 };
        self.record(at, server, "failures", (outcome.failed() - beyond) as f64);
    }

    /// Finds what rate the generator can offer, up to 1.5 times the highest that was answered at `at`, and records it.
    pub(crate) fn prove_offer(&mut self, at: (&str, &str), site: &Site, plan: &Plan, mix: &Mix) {
        let (case, point) = at;
        // Of servers that are measured, not of the floor that they are measured against.
        let mut servers = self.records.samples.servers(case);
        servers.retain(|server| !server.starts_with("nothing-"));
        let rates =
            servers.iter().filter_map(|server| self.records.samples.median(case, point, server, "answered_per_s"));
        let highest = rates.fold(0.0, f64::max);
        if highest > 0.0 {
            let offer_per_s = self.shown_offer(case, site, plan, mix, highest);
            self.record((case, point, 0), GENERATOR, "offer_per_s", offer_per_s);
        }
    }

    /// What rate the generator can offer to a do-nothing server, up to 1.5 times `highest_per_s`; 0 when hardly any. The
    /// same requests over as many connections; more are outstanding at once, as the server can't keep up.
    pub(crate) fn shown_offer(&mut self, case: &str, site: &Site, plan: &Plan, mix: &Mix, highest_per_s: f64) -> f64 {
        let file = site.only_file.as_ref().and_then(|file| file.metadata().ok());
        let large = file.is_some_and(|file| file.len() > LARGE_BYTES);
        let floor = if large { "sendfile" } else { "io_uring" };
        for step in OFFER_STEPS {
            let rate_per_s = highest_per_s * OFFER_FACTOR * step;
            match self.offer(floor, site, plan, mix, rate_per_s) {
                Ok(true) => return rate_per_s,
                Ok(false) => {}
                Err(error) => self.note(case, &format!("no proof of what the generator offers: {error}")),
            }
        }
        0.0
    }

    fn offer(&self, floor: &'static str, site: &Site, plan: &Plan, mix: &Mix, rate_per_s: f64) -> io::Result<bool> {
        let server = crate::server::do_nothing(floor);
        let running = self.start(server.as_ref(), site)?;
        let close = plan.requests_per_connection.is_some();
        let plan = Plan {
            address: running.address(),
            demand: Demand::Rate { per_s: rate_per_s, spacing: Spacing::Poisson },
            pipeline: if close { 1 } else { 64 },
            connections: if close { 4_000 } else { plan.connections.max(256) },
            warm_up: Duration::from_millis(200),
            window: Duration::from_millis(800),
            ..plan.clone()
        };
        let outcome = self.on_client_core(|| load::run(&plan, mix, &mut load::Unobserved))?;
        let share = outcome.sent_per_s() / rate_per_s;
        eprintln!("  generator       offers {:.0} % of {rate_per_s:.0}/s to {}", share * 100.0, server.name());
        Ok(share >= OFFERED_SHARE_MIN && outcome.lateness_us(0.9) <= OFFERED_LATENESS_MAX_US)
    }
}

/// Reads the server's clocks and the hypervisor's when the window begins and ends.
struct Watch<'a> {
    clocks: Clocks<'a>,
    cores: [usize; 2],
    /// Since the machine started, and then within the window.
    stolen_s: f64,
}

impl Observer for Watch<'_> {
    fn opened(&mut self) {
        self.clocks.opened();
    }

    fn window_begins(&mut self) {
        self.stolen_s = stolen_s(&self.cores);
        self.clocks.window_begins();
    }

    fn window_ends(&mut self) {
        self.clocks.window_ends();
        self.stolen_s = stolen_s(&self.cores) - self.stolen_s;
    }
}
