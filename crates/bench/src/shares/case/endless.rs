//! A handler that never ends on one site, static files on the other, equal weights: the files get their half, and as fast as before.

use std::io;
use std::time::Duration;

use super::Measured;
use crate::experiment::{Case, Samples};
use crate::load::Plan;
use crate::result::Mark;
use crate::shares::bench::{Bench, Clients, FILE};
use crate::shares::leat::{Setup, SharedSite};
use crate::shares::pairs::{self, Count, RATIO};
use crate::workload::mix::{Mix, Target};

const NAME: &str = "endless";
const FILES: &str = "files";
const BESIDE: &str = "beside the endless, at a rate";
const GREEDY: &str = "beside the endless, all it can get";
const CONNECTIONS: usize = 32;
/// Requests that never end.
const ENDLESS: usize = 4;
/// Of what the files' site can answer alone: within its half.
const LOAD: f64 = 0.2;
/// A turn at a rate.
const WINDOW: Duration = Duration::from_millis(250);
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
        let setup = Setup::of_sites([FILES, "endless"].map(|site| SharedSite::of_weight(site, 100)).into());
        let (alone, beside) = (bench.start(&setup)?, bench.start(&setup)?);
        let greedy = (bench.saturate(CONNECTIONS), bench.file(FILES, FILE, ""));
        let endless = endless(bench);
        let mut count = Count::default();
        for round in 0..bench.options.rounds {
            let alone_per_s = bench.measure(&alone, std::slice::from_ref(&greedy))?.answered_per_s();
            let offer = bench.offer(alone_per_s * LOAD, 16 * CONNECTIONS);
            let steady = (Plan { window: WINDOW, ..offer }, bench.file(FILES, FILE, ""));
            let beside_it = (Plan { window: WINDOW, ..endless.0.clone() }, endless.1.clone());
            let pair = bench.measure_pair([&alone, &beside], &steady, &beside_it, round)?;
            count.take(&pair, &mut bench.records, (NAME, BESIDE, round), FILES);
            let trial = bench.measure(&beside, &[greedy.clone(), endless.clone()])?;
            let at = (NAME, GREEDY, round);
            let answered = trial.outcomes[0].answered_per_s() / alone_per_s;
            // By what it answers, where the server doesn't say what it was charged.
            let cores = [FILES, "endless"].map(|site| trial.cores_used(site));
            let charged = cores[0].zip(cores[1]).map(|(files, endless)| files / (files + endless));
            bench.records.record(at, FILES, "share", charged.unwrap_or(answered));
            bench.records.record(at, FILES, "part_of_alone", answered);
        }
        count.record(&mut bench.records, (NAME, BESIDE), FILES);
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let at = |point, metric| Measured { samples, case: NAME, point, subject: FILES, metric };
        let ratio = at(BESIDE, RATIO);
        vec![
            at(GREEDY, "share").near(HALF, LIMIT_PERCENT, "half of the CPU"),
            ratio.at_most(
                ratio.median(),
                Some(P99_FACTOR),
                "x",
                "p99 in the server, beside and alone",
                pairs::doubt(samples, (NAME, BESIDE), FILES),
            ),
        ]
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        let more = [("part_of_alone", "answered, beside / alone", 3)];
        pairs::COLUMNS.into_iter().chain(more).collect()
    }
}
