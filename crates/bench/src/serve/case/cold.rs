//! Files that have to come from a slow disk, and what that does to those that are in the page cache.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::{Case, Judge, LEAT};
use crate::experiment::Samples;
use crate::load::{self, Demand, Plan, Spacing, Unobserved};
use crate::result::Mark;
use crate::serve::bench::{Bench, Turns};
use crate::serve::cold_disk::{self, SlowDisk, Throttle};
use crate::server::{Server, Site};
use crate::workload::file_set::FileSet;
use crate::workload::specweb99::SetFile;

const NAME: &str = "cold";
const SERVERS: [&str; 5] = ["leat-io_uring", "leat-epoll", "nginx", "nginx-threads", "h2o"];
const CACHED_FILES: u32 = 100;
const CACHED_BYTES: u64 = 8 << 10;
const CACHED_PER_S: f64 = 5_000.0;
/// More than are asked for in one round, so that most requests really wait for the disk.
const COLD_FILES: u32 = 200;
const COLD_BYTES: u64 = 256 << 10;
/// Requests for the disk are few: a shorter window would see hardly any.
const WINDOW_MIN: Duration = Duration::from_secs(2);
/// Three quarters of what the throttled disk can do: it is busy, but its queue doesn't grow without end.
const COLD_PER_S: f64 = 6.0;
/// So slow that a file takes longer than the tenth of a second for which the kernel lets a burst pass.
const THROTTLE: Throttle = Throttle { read_bytes_per_s: 2 << 20, reads_per_s: 1_000 };

pub(super) struct Cold;

impl Case<Bench> for Cold {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "8 KB files in the page cache at 5,000/s, with and without 6/s of 256 KB that aren't, disk throttled to 2 MB/s"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let root = bench.disk_folder();
        let file = |kind: &str, number: u32, bytes| SetFile { path: format!("{kind}/{number:05}"), bytes, weight: 1.0 };
        let set = (0..CACHED_FILES).map(|number| file("cached", number, CACHED_BYTES));
        let set = set.chain((0..COLD_FILES).map(|number| file("cold", number, COLD_BYTES)));
        let files = FileSet::create(&root, set.collect(), bench.options.seed)?;
        let site = Site { root: root.clone(), only_file: None, close: false };
        bench.rounds(
            Turns { case: NAME, site: &site, rounds: bench.options.rounds },
            |server| SERVERS.contains(&server),
            |bench, server, round| {
                for (point, cold) in [("cached", false), ("cold", true)] {
                    turn(bench, server, &site, &files, (point, cold, round))?;
                }
                Ok(())
            },
        );
        // One ratio for each server: of medians, as single rounds differ.
        for server in SERVERS {
            let median = |point| bench.records.samples.median(NAME, point, server, "p99_us");
            if let Some((without, with)) = median("cached").zip(median("cold")) {
                bench.record((NAME, "", 0), server, "p99_ratio", with / without);
                bench.record((NAME, "", 0), server, "p99_without_us", without);
                bench.record((NAME, "", 0), server, "p99_with_us", with);
            }
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let judge = Judge { samples, case: NAME, point: "", metric: "p99_ratio", unit: "times" };
        let text = "p99 of cached files at most 1.5 times what it is without";
        LEAT.map(|leat| judge.mark(leat, text, Some(1.5), String::new())).into()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            ("p99_ratio", "p99 with / without", 2),
            ("p99_without_us", "p99 us without", 0),
            ("p99_with_us", "p99 us with", 0),
            ("p99_us", "p99 us", 0),
            ("stalled", "slices with a stall", 2),
            ("cold_p50_us", "cold p50 us", 0),
            ("failures", "failures", 0),
        ]
    }
}

fn turn(
    bench: &mut Bench,
    server: &dyn Server,
    site: &Site,
    files: &FileSet,
    (point, with_cold, round): (&str, bool, u32),
) -> io::Result<()> {
    warm(&site.root.join("cached"))?;
    let disk = SlowDisk::create(&site.root, THROTTLE)?;
    let running = bench.start(server, site)?;
    disk.take(&running.processes())?;
    let plan = Plan {
        demand: Demand::Rate { per_s: CACHED_PER_S, spacing: Spacing::Poisson },
        window: bench.window().max(WINDOW_MIN),
        seed: bench.options.seed + u64::from(round),
        ..Plan::saturate(running.address(), 64)
    };
    let cold_plan = Plan {
        demand: Demand::Rate { per_s: COLD_PER_S, spacing: Spacing::Constant },
        connections: 32,
        // Opened lazily: a first request on each would already wait for the disk.
        requests_per_connection: Some(u32::MAX),
        window: plan.warm_up + plan.window,
        warm_up: Duration::ZERO,
        drain: Duration::from_secs(3),
        verify_every: 1,
        sleep: true,
        ..plan.clone()
    };
    let cached = files.mix(false, |path| path.starts_with("cached"));
    let cold = files.mix(false, |path| path.starts_with("cold"));
    let (measured, cold_outcome) = bench.undisturbed(|bench| {
        // What an attempt before this one has read is in the page cache.
        cold_disk::forget(&site.root.join("cold"))?;
        std::thread::scope(|scope| {
            let beside = with_cold
                .then(|| scope.spawn(|| bench.on_client_core(|| load::run(&cold_plan, &cold, &mut Unobserved))));
            let measured = bench.measure(&running, &plan, &cached);
            let cold_outcome =
                beside.map(|thread| thread.join().map_err(|_| io::Error::other("the generator panicked"))?);
            io::Result::Ok((measured?, cold_outcome.transpose()?))
        })
    })?;
    // The group can only go once its processes have.
    drop(running);
    drop(disk);
    bench.record_load((NAME, point, round), server.name(), &measured);
    if let Some(outcome) = cold_outcome {
        bench.record((NAME, point, round), server.name(), "cold_p50_us", outcome.latency_us(0.5));
        bench.record((NAME, point, round), server.name(), "cold_answered", outcome.answered as f64);
        bench.record((NAME, point, round), server.name(), "cold_failures", outcome.failed() as f64);
    }
    Ok(())
}

fn warm(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        fs::read(entry?.path())?;
    }
    Ok(())
}
