//! A connection for each request, past what the server can do: no time is lost while clients are refused and come again, and who connects to another site
//! is let in, or comes from another network.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use super::{LEAT, Measured};
use crate::experiment::{Case, Records, Samples};
use crate::load::{Outcome, Plan};
use crate::result::{Figure, Mark};
use crate::shares::bench::Bench;
use crate::shares::leat::{Setup, SharedSite};

const NAME: &str = "anew";
const SITE: &str = "a";
const OTHER: &str = "b";
/// As many clients as keep the server busy, each of which asks again at once, and more.
const BUSY: usize = 16;
const CLIENTS: [usize; 4] = [BUSY, 200, 1_000, 5_000];
/// Those for which there's a mark.
const MANY: [usize; 2] = [1_000, 5_000];
const LOST_PERCENT: f64 = 5.0;
/// Visitors of a site, who connect for each request, alone and beside so many connections that ask another site again and again.
const VISITORS_PER_S: f64 = 50.0;
const VISITORS_MAX: usize = 256;
const FLOOD: usize = 5_000;
const ALONE: &str = "visitors alone";
const BESIDE: &str = "visitors beside 5,000 connections";
const UNANSWERED_PERCENT: f64 = 3.0;
/// Visitors of another network than the clients beside them, who connect for each request as well; and how soon they're to be answered: before their
/// kernels would try to connect again.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 9, 1);
const FROM_ELSEWHERE: &str = "visitors from elsewhere beside 5,000 clients";
const SOON: Duration = Duration::from_millis(50);
const LATE_PERCENT: f64 = 5.0;
const ROUNDS_MAX: u32 = 3;
/// Until those have come in whose first packets were dropped.
const WARM_UP: Duration = Duration::from_secs(5);
const FLOOD_WARM_UP: Duration = Duration::from_secs(15);
const WINDOW: Duration = Duration::from_secs(5);
/// A client that was dropped comes back.
const DRAIN: Duration = Duration::from_secs(4);

pub(super) struct Anew;

fn point(clients: usize) -> String {
    format!("{clients} clients")
}

/// Each request on a connection of its own.
fn connecting(plan: Plan) -> Plan {
    Plan { requests_per_connection: Some(1), warm_up: WARM_UP, window: WINDOW, is_flood: true, ..plan }
}

fn record(records: &mut Records, at: (&str, &str, u32), outcome: &Outcome) {
    records.record(at, LEAT, "answered_per_s", outcome.answered_per_s());
    records.record(at, LEAT, "refused_per_s", outcome.refused_per_s());
    let missing = |answered: u64| 1.0 - answered as f64 / outcome.offered.max(1) as f64;
    records.record(at, LEAT, "unanswered", missing(outcome.answered));
    records.record(at, LEAT, "late", missing(outcome.answered_within(SOON)));
    // Where nobody was answered there are no times.
    if outcome.answered > 0 {
        records.record(at, LEAT, "p50_us", outcome.answered_us(0.5));
        records.record(at, LEAT, "p99_us", outcome.answered_us(0.99));
    }
}

fn measured<'a>(samples: &'a Samples, point: &'a str, metric: &'static str) -> Measured<'a> {
    Measured { samples, case: NAME, point, subject: LEAT, metric }
}

impl Case<Bench> for Anew {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "a connection for each request: clients that ask again at once, and visitors beside floods"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let sites = [SITE, OTHER].map(|site| SharedSite::of_weight(site, 100));
        let started = bench.start(&Setup::of_sites(sites.to_vec()))?;
        for round in 0..bench.options.rounds.min(ROUNDS_MAX) {
            for clients in CLIENTS {
                let trial = bench.measure(&started, &[(connecting(bench.saturate(clients)), bench.burn_once(SITE))])?;
                record(&mut bench.records, (NAME, &point(clients), round), &trial.outcomes[0]);
            }
            let visitors = connecting(bench.offer(VISITORS_PER_S, VISITORS_MAX));
            let alone = (visitors.clone(), bench.burn_once(OTHER));
            let trial = bench.measure(&started, std::slice::from_ref(&alone))?;
            record(&mut bench.records, (NAME, ALONE, round), &trial.outcomes[0]);
            let long = |plan| Plan { warm_up: FLOOD_WARM_UP, drain: DRAIN, ..plan };
            let flood = Plan { window: WINDOW, is_flood: true, ..bench.saturate(FLOOD) };
            let both = [(long(visitors.clone()), alone.1.clone()), (long(flood), bench.burn(SITE))];
            let trial = bench.measure(&started, &both)?;
            record(&mut bench.records, (NAME, BESIDE, round), &trial.outcomes[0]);
            let visitors = Plan { source: Some(ELSEWHERE), ..visitors };
            let both = [(long(visitors), alone.1), (long(connecting(bench.saturate(FLOOD))), bench.burn_once(SITE))];
            let trial = bench.measure(&started, &both)?;
            record(&mut bench.records, (NAME, FROM_ELSEWHERE, round), &trial.outcomes[0]);
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let peak = samples.median(NAME, &point(BUSY), LEAT, "answered_per_s");
        let mut marks = Vec::new();
        for clients in MANY {
            let point = point(clients);
            let answered = measured(samples, &point, "answered_per_s");
            let lost_percent = answered.median().zip(peak).map(|(answered, peak)| (1.0 - answered / peak) * 100.0);
            let mark = "goodput below that of 16 clients";
            marks.push(answered.at_most(lost_percent, Some(LOST_PERCENT), "%", mark, String::new()));
        }
        for (point, metric, most, mark) in [
            (BESIDE, "unanswered", UNANSWERED_PERCENT, "requests of visitors that aren't answered"),
            (FROM_ELSEWHERE, "late", LATE_PERCENT, "requests of visitors that aren't answered within 50 ms"),
        ] {
            let missing = measured(samples, point, metric);
            let percent = missing.median().map(|part| part * 100.0);
            marks.push(missing.at_most(percent, Some(most), "%", mark, String::new()));
        }
        marks
    }

    fn figures(&self, samples: &Samples) -> Vec<Figure> {
        let at = |point| measured(samples, point, "p99_us");
        [ALONE, BESIDE, FROM_ELSEWHERE]
            .into_iter()
            .filter_map(|point| at(point).told("p99 of what is answered", "us"))
            .collect()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            ("answered_per_s", "answered/s", 0),
            ("refused_per_s", "refused/s", 0),
            ("p50_us", "p50 us", 0),
            ("p99_us", "p99 us", 0),
            ("unanswered", "not answered, of offered", 3),
            ("late", "not answered within 50 ms", 3),
        ]
    }
}
