//! A handler that never ends on one site, static files on the other, equal weights: the files get their half, and as fast as before.

use std::io;

use super::Measured;
use crate::experiment::{Case, Samples};
use crate::load::Plan;
use crate::result::Mark;
use crate::shares::bench::{Bench, Clients, FILE};
use crate::shares::leat::{Setup, SharedSite};
use crate::workload::mix::{Mix, Target};

const NAME: &str = "endless";
const FILES: &str = "files";
const ALONE: &str = "alone, at a rate";
const BESIDE: &str = "beside the endless, at a rate";
const GREEDY: &str = "beside the endless, all it can get";
const CONNECTIONS: usize = 32;
/// Requests that never end.
const ENDLESS: usize = 4;
/// Of what the files' site can answer alone: within its half.
const LOAD: f64 = 0.3;
const HALF: f64 = 0.5;
const LIMIT_PERCENT: f64 = 2.0;
const P99_FACTOR: f64 = 1.5;

pub(super) struct Endless;

/// Requests that are never answered, one on each connection.
fn endless(bench: &Bench) -> Clients {
    let plan = Plan { is_flood: true, requests_per_connection: Some(1), ..bench.saturate(ENDLESS) };
    (plan, Mix::new(vec![(Target::of_host("endless", "/burn?us=forever", ""), 1.0)]))
}

impl Case<Bench> for Endless {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "a handler that computes for ever, beside files of 64 KB, with equal weights"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let sites = [FILES, "endless"].map(|site| SharedSite::of_weight(site, 100));
        let started = bench.start(&Setup::of_sites(sites.into()))?;
        let greedy = (bench.saturate(CONNECTIONS), bench.file(FILES, FILE, ""));
        let capacity_per_s = bench.capacity_per_s(&started, std::slice::from_ref(&greedy))?;
        let steady = (bench.offer(capacity_per_s * LOAD, 16 * CONNECTIONS), bench.file(FILES, FILE, ""));
        let endless = endless(bench);
        for round in 0..bench.options.rounds {
            let alone_per_s = bench.measure(&started, std::slice::from_ref(&greedy))?.answered_per_s();
            for (point, clients) in [
                (ALONE, vec![steady.clone()]),
                (BESIDE, vec![steady.clone(), endless.clone()]),
                (GREEDY, vec![greedy.clone(), endless.clone()]),
            ] {
                let trial = bench.measure_watched(&started, &clients)?;
                let at = (NAME, point, round);
                let files = &trial.outcomes[0];
                bench.records.record(at, FILES, "answered_per_s", files.answered_per_s());
                bench.records.record(at, FILES, "p99_us", files.latency_us(0.99));
                trial.record_server_times(&mut bench.records, at, FILES);
                if point == GREEDY {
                    // By what it answers, until the server says what it was charged.
                    let cores = [FILES, "endless"].map(|site| trial.cores_used(site));
                    let charged = cores[0].zip(cores[1]).map(|(files, endless)| files / (files + endless));
                    let share = charged.unwrap_or(files.answered_per_s() / alone_per_s);
                    bench.records.record(at, FILES, "share", share);
                    bench.records.record(at, FILES, "part_of_alone", files.answered_per_s() / alone_per_s);
                }
            }
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let at = |point, metric| Measured { samples, case: NAME, point, subject: FILES, metric };
        vec![
            at(GREEDY, "share").near(HALF, LIMIT_PERCENT, "half of the CPU"),
            at(BESIDE, "p99_us").beside(at(ALONE, "p99_us"), P99_FACTOR, "us", "p99 within 1.5 times of alone"),
            at(BESIDE, "server_p99_us").beside(
                at(ALONE, "server_p99_us"),
                P99_FACTOR,
                "us",
                "p99 in the server within 1.5 times of alone",
            ),
        ]
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            ("answered_per_s", "answered/s", 0),
            ("share", "share of the CPU", 3),
            ("part_of_alone", "answered, beside / alone", 3),
            ("p99_us", "p99 us", 0),
            ("server_p50_us", "p50 in the server, us", 0),
            ("server_p90_us", "p90", 0),
            ("server_p99_us", "p99", 0),
            ("server_slice_p99_us", "p99 of the middle 50 ms", 0),
            ("server_samples", "of so many requests", 0),
        ]
    }
}
