//! What the cases have in common: the server behind, the fronts, and one measurement of one front.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::ProxyOptions;
use super::front::{self, Front};
use super::upstream::{self, SMALL, UPLOAD, Upstream};
use crate::experiment::{self, Records};
use crate::load::{self, Demand, Observer, Outcome, Plan};
use crate::server::running::{Running, WorkFolder};
use crate::server::{Server, Site};
use crate::sys::process;
use crate::workload::content::Content;
use crate::workload::mix::{Body, Mix, Target};

const WARM_UP: Duration = Duration::from_millis(300);
/// Each so many replies to a GET are compared byte by byte; lengths always are.
const VERIFY_EVERY: u64 = 64;

/// How often a turn is tried whose window had no answer at all: on a busy machine somebody may have had no processor for so long.
const TRIES: u32 = 3;

/// What clients do.
#[derive(Clone, Copy)]
pub(super) struct Load {
    /// In words.
    pub(super) point: &'static str,
    pub(super) what: What,
    pub(super) connections: usize,
    /// A connection for each request.
    pub(super) close: bool,
}

#[derive(Clone, Copy)]
pub(super) enum What {
    Get(&'static str),
    /// So many bytes.
    Post(usize),
}

impl Load {
    /// An upload is found right by what is said of it, length and sum.
    fn mix(&self) -> Mix {
        let target = match self.what {
            What::Get(path) => {
                let known = upstream::content(path);
                let bytes = known.map(|(_, bytes)| bytes as u64);
                let body = known.map_or(Body::Unknown, |(content, _)| Body::Seeded(content));
                Target::new(path, self.close, bytes, body)
            }
            What::Post(bytes) => {
                let content = Content::new(bytes as u64).bytes(bytes);
                let receipt = upstream::receipt(bytes as u64, upstream::sum(&content)).into_bytes();
                let told = Some(receipt.len() as u64);
                Target::post(UPLOAD, self.close, &content).with_body(told, Body::Bytes(receipt.into()))
            }
        };
        Mix::new(vec![(target, 1.0)])
    }

    fn verify_every(&self) -> u64 {
        if matches!(self.what, What::Post(_)) { 1 } else { VERIFY_EVERY }
    }
}

/// What the cases run on. Fields are dropped in this order.
pub(crate) struct Bench {
    pub(super) options: ProxyOptions,
    pub(crate) records: Records,
    fronts: Vec<Front>,
    site: Site,
    _upstream: Upstream,
    folder: WorkFolder,
}

impl experiment::Bench for Bench {
    fn records(&mut self) -> &mut Records {
        &mut self.records
    }
}

impl Bench {
    pub(super) fn new(options: ProxyOptions, program: &Path) -> io::Result<Self> {
        let folder = WorkFolder::create("proxy")?;
        let upstream = Upstream::start(options.upstream_core())?;
        let fronts = front::all(&fs::canonicalize(program)?, upstream.address())?;
        // A front is awaited by its first file, whose name is all that counts here.
        let root = folder.path().join("files");
        fs::create_dir_all(&root)?;
        fs::write(root.join(SMALL.trim_start_matches('/')), "")?;
        let site = Site { root, only_file: None, close: false };
        Ok(Self { options, records: Records::default(), fronts, site, _upstream: upstream, folder })
    }

    /// In every round each front has its turn at each load, anew, the order moved on by one.
    ///
    /// # Errors
    /// A front doesn't start, or fails every request.
    pub(super) fn rounds(&mut self, case: &str, loads: &[Load], demand: Demand) -> io::Result<()> {
        for round in 0..self.options.run.rounds {
            for load in loads {
                for turn in 0..self.fronts.len() {
                    let front = (turn + round as usize) % self.fronts.len();
                    self.turn((case, load.point, round), front, load, demand)?;
                }
            }
        }
        Ok(())
    }

    /// How many requests a second each front answers, the least of all.
    ///
    /// # Errors
    /// As [`Self::rounds`].
    pub(super) fn least_capacity(&self, load: &Load) -> io::Result<f64> {
        let mut least = f64::INFINITY;
        for front in 0..self.fronts.len() {
            least = least.min(self.measure(front, load, Demand::Saturate)?.0.answered_per_s());
        }
        Ok(least)
    }

    fn turn(&mut self, at: (&str, &str, u32), front: usize, load: &Load, demand: Demand) -> io::Result<()> {
        let who = self.fronts[front].name().to_owned();
        let failed = |error: io::Error| io::Error::other(format!("{who}, {}, round {}: {error}", at.1, at.2));
        let (outcome, spent) = self.measure(front, load, demand).map_err(failed)?;
        let cpu_us = spent.as_secs_f64() * 1e6 / outcome.answered as f64;
        eprintln!(
            "  {who:15} {:24} round {} {cpu_us:8.2} us a request, {:8.0}/s, p99 {:8.0} us",
            at.1,
            at.2,
            outcome.answered_per_s(),
            outcome.latency_us(0.99)
        );
        let busy_percent = 100.0 * spent.as_secs_f64() / outcome.window.as_secs_f64();
        let records = &mut self.records;
        records.record(at, &who, "cpu_us", cpu_us);
        records.record(at, &who, "answered_per_s", outcome.answered_per_s());
        records.record(at, &who, "p50_us", outcome.latency_us(0.5));
        records.record(at, &who, "p99_us", outcome.latency_us(0.99));
        records.record(at, &who, "busy_percent", busy_percent);
        records.record(at, &who, "failed", outcome.failed() as f64);
        if demand != Demand::Saturate {
            outcome.slice_p99s_us().into_iter().for_each(|p99_us| records.record(at, &who, "slice_p99_us", p99_us));
            records.record(at, &who, "late_us", outcome.lateness_us(0.99));
        }
        if outcome.failed() > 0 {
            records.note(at.0, &format!("{who}, {}, round {}: {:?}", at.1, at.2, outcome.failures));
        }
        Ok(())
    }

    /// What a load brought, and what the front took of its processor within the window. A request that nobody answered would cost nothing, so a
    /// turn without an answer is taken again.
    ///
    /// # Errors
    /// It stays so.
    fn measure(&self, front: usize, load: &Load, demand: Demand) -> io::Result<(Outcome, Duration)> {
        for _ in 0..TRIES {
            let (outcome, spent) = self.measure_once(front, load, demand)?;
            if outcome.answered > 0 {
                return Ok((outcome, spent));
            }
            eprintln!("  {} answered nothing within {:?}: again", self.fronts[front].name(), outcome.window);
        }
        Err(io::Error::other(format!("nothing was answered in {TRIES} tries: is the machine busy?")))
    }

    fn measure_once(&self, front: usize, load: &Load, demand: Demand) -> io::Result<(Outcome, Duration)> {
        let front = &self.fronts[front];
        let running = Running::start(front, &self.site, self.folder.path(), &[self.options.server_core])?;
        if demand != Demand::Saturate {
            // Whoever else has something to do on its core doesn't hold up what is measured.
            running.run_at_once();
        }
        let plan = Plan {
            demand,
            warm_up: WARM_UP,
            window: Duration::from_secs_f64(self.options.run.seconds),
            verify_every: load.verify_every(),
            requests_per_connection: load.close.then_some(1),
            seed: self.options.run.seed,
            ..Plan::saturate(running.address(), load.connections)
        };
        let mut clock = Clock { pids: running.processes(), begin: Duration::ZERO, spent: Duration::ZERO };
        let mix = load.mix();
        let outcome = experiment::on_cores(&[self.options.client_core], || load::run(&plan, &mix, &mut clock))?;
        Ok((outcome, clock.spent))
    }
}

/// Processor time of a front's processes within the window.
struct Clock {
    pids: Vec<u32>,
    begin: Duration,
    spent: Duration,
}

impl Clock {
    fn now(&self) -> Duration {
        self.pids.iter().filter_map(|&pid| process::cpu_time(pid).ok()).sum()
    }
}

impl Observer for Clock {
    fn window_begins(&mut self) {
        self.begin = self.now();
    }

    fn window_ends(&mut self) {
        self.spent = self.now().saturating_sub(self.begin);
    }
}
