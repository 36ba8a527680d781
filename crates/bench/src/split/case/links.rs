//! Bound by links: each machine's carries so much, and its processor could fill it several times over. What a cluster's clients get, as a part of what
//! its links carry, which is what one server alone gets out of one.

use std::io;
use std::time::Duration;

use super::super::bench::{Bench, Load, size};
use super::super::setup::{Kind, Setup};
use super::{COLUMNS, at_most, lost_percent, point, record, saturate, with_setup};
use crate::experiment::{Case, Samples};
use crate::result::Mark;

const NAME: &str = "links";
const ONE: Setup = Setup::new(Kind::Separate, 1, 0);
const PROXIED: Setup = Setup::new(Kind::Proxied, 1, 3);
const PARTIAL_13: Setup = Setup::new(Kind::Partial, 1, 3);
const SETUPS: [Setup; 9] = [
    ONE,
    Setup::new(Kind::Separate, 2, 0),
    Setup::new(Kind::Separate, 4, 0),
    Setup::new(Kind::Proxied, 1, 1),
    PROXIED,
    Setup::new(Kind::Partial, 1, 1),
    Setup::new(Kind::Full(10), 1, 3),
    PARTIAL_13,
    Setup::new(Kind::Partial, 2, 1),
];
const SIZE_NAMES: [&str; 3] = ["4 KB", "64 KB", "1 MB"];
/// Setup, size, and how many machines' links are to be full.
const FULL: [(Setup, &str, usize); 7] = [
    (SETUPS[6], "64 KB", 3),
    (SETUPS[6], "1 MB", 3),
    (PARTIAL_13, "64 KB", 4),
    (PARTIAL_13, "1 MB", 4),
    (SETUPS[5], "64 KB", 2),
    (SETUPS[5], "1 MB", 2),
    (SETUPS[8], "4 KB", 3),
];
const LOST_PERCENT: f64 = 3.0;
const HAPROXY_PART: f64 = 1.0 / 3.5;
/// On each machine's link.
const CONNECTIONS: usize = 16;
/// Until all links have had their share, and how much longer than others this is measured: a reply of 1 MB takes a second and more.
const WARM_UP: Duration = Duration::from_millis(1_500);
const LONGER: f64 = 2.0;

pub(super) struct Links;

impl Case<Bench> for Links {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "every machine's link is limited: what clusters get out of all of them, beside separate servers and HAProxy"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let rate = bench.options.link_mbit;
        for round in 0..bench.options.run.rounds {
            for setup in SETUPS {
                with_setup(bench, NAME, (&setup, Some(rate)), |bench, cluster| {
                    for size in SIZE_NAMES.map(size) {
                        let load = Load {
                            warm_up: WARM_UP,
                            window: Duration::from_secs_f64(bench.options.run.seconds * LONGER),
                            ..saturate(bench, CONNECTIONS * setup.machines(), Some(1))
                        };
                        let trial = bench.measure(cluster, size, &load)?;
                        let point = point(size);
                        let at = (NAME, point.as_str(), round);
                        record(bench, at, &setup, &trial);
                        let bits = trial.link_bytes as f64 * 8.0 / trial.outcomes[0].window.as_secs_f64();
                        let percent = bits / (f64::from(rate) * 1e4 * setup.machines() as f64);
                        bench.records.record(at, &setup.name(), "wire_percent", percent);
                    }
                    Ok(())
                });
            }
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let mbit = |point: &str, setup: &Setup| samples.median(NAME, point, &setup.name(), "mbit");
        let full = FULL.iter().map(|(setup, point, links)| {
            let whole = mbit(point, &ONE).map(|one| one * *links as f64);
            let text = format!("{} falls short of {links} full links", setup.name());
            let doubt = samples.failures(NAME, point, &setup.name());
            at_most((NAME, point), &text, lost_percent(mbit(point, setup), whole), LOST_PERCENT, "%", doubt)
        });
        let beside_proxy = ["64 KB", "1 MB"].map(|point| {
            let value = mbit(point, &PROXIED).zip(mbit(point, &PARTIAL_13)).map(|(proxied, split)| proxied / split);
            let text = "HAProxy before three machines, as a part of 1+3 partial";
            at_most((NAME, point), text, value, HAPROXY_PART, "", samples.failures(NAME, point, &PARTIAL_13.name()))
        });
        full.chain(beside_proxy).collect()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        let wire = ("wire_percent", "of all links, on the wire, %", 1);
        COLUMNS.iter().copied().take(1).chain([wire]).chain(COLUMNS.iter().copied().skip(1)).collect()
    }
}
