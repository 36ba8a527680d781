//! What a delegation costs: the connection server's part of serving a reply itself, and both sides together beyond that.

use std::io;

use super::super::bench::{Bench, size};
use super::super::setup::{Kind, Setup};
use super::{COLUMNS, at_most, measure_in_turns, saturate, with_setups};
use crate::experiment::{Case, Samples};
use crate::result::Mark;

const NAME: &str = "delegation";
const NONE: Setup = Setup::new(Kind::Kept, 1, 1);
/// Every request is delegated and given back.
const BACK: Setup = Setup::new(Kind::Full(1), 1, 1);
/// Ten requests are answered there.
const STAYS: Setup = Setup::new(Kind::Full(10), 1, 1);
const SETUPS: [Setup; 3] = [NONE, BACK, STAYS];
const SIZE_NAMES: [&str; 4] = ["4 KB", "64 KB", "1 MB", "10 MB"];
/// Requests on a connection, and how that's called.
const KINDS: [(Option<u32>, &str); 2] = [(Some(1), "one request a connection"), (None, "kept connections")];
const EXTRA_US: f64 = 80.0;
const BORN_US: f64 = 25.0;

pub(super) struct Delegation;

impl Case<Bench> for Delegation {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "what delegating costs: the connection server's part of what serving takes, and both sides together"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let points: Vec<_> = KINDS.iter().flat_map(|kind| SIZE_NAMES.map(|size| (size, kind))).collect();
        for round in 0..bench.options.run.rounds {
            with_setups(bench, NAME, &SETUPS, |bench, clusters| {
                for &(name, (requests, kind)) in &points {
                    let size = size(name);
                    let load = saturate(bench, if size.bytes > 1 << 17 { 8 } else { 16 }, *requests);
                    measure_in_turns(bench, (NAME, &point(name, kind), round), (&SETUPS, clusters), (size, &load))?;
                }
                Ok(())
            });
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let of = |setup: &Setup, point: &str, metric| samples.median(NAME, point, &setup.name(), metric);
        let part = |setup: &Setup, size: &str, kind: &str, percent: f64| {
            let point = point(size, kind);
            let pair = of(setup, &point, "first_us").zip(of(&NONE, &point, "first_us"));
            let value = pair.map(|(delegating, serving)| delegating / serving * 100.0);
            let text = format!("{}: the connection server's time, of serving itself", setup.name());
            at_most((NAME, &point), &text, value, percent, "%", samples.failures(NAME, &point, &setup.name()))
        };
        let extra = point("64 KB", KINDS[1].1);
        let both = of(&BACK, &extra, "first_us").zip(of(&BACK, &extra, "behind_us"));
        let value = both.zip(of(&NONE, &extra, "first_us")).map(|((first, behind), serving)| first + behind - serving);
        let text = "delegated and given back: both sides, beyond serving";
        let once = point("64 KB", KINDS[0].1);
        let born = of(&STAYS, &once, "first_us").zip(of(&STAYS, &once, "behind_us"));
        let born = born.zip(of(&NONE, &once, "first_us")).map(|((first, behind), serving)| first + behind - serving);
        let doubt = samples.failures(NAME, &once, &STAYS.name());
        vec![
            part(&BACK, "1 MB", KINDS[1].1, 35.0),
            part(&BACK, "10 MB", KINDS[1].1, 4.0),
            part(&BACK, "1 MB", KINDS[0].1, 35.0),
            part(&BACK, "10 MB", KINDS[0].1, 4.0),
            part(&STAYS, "1 MB", KINDS[1].1, 12.0),
            at_most((NAME, &extra), text, value, EXTRA_US, "us", samples.failures(NAME, &extra, &BACK.name())),
            at_most((NAME, &once), "born at the data server: both sides, beyond serving", born, BORN_US, "us", doubt),
        ]
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        COLUMNS.to_vec()
    }
}

fn point(size: &str, kind: &str) -> String {
    format!("{size}, {kind}")
}
