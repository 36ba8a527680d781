//! The dispatcher's processor time where each request has a node of its own choosing: contents by Zipf over all nodes, placed by Mix-LARD, ten
//! requests on a connection, which follows them from node to node as far as that pays.

use std::io;

use leat::ctl::Command;
use leat_logic::dispatch::PolicyKind;

use super::dispatcher_cpu::{COLUMNS, mark, turns};
use crate::experiment::{Case, Samples};
use crate::handoff::bench::{Bench, LEAT, SIZES, SPREAD_SIZES};
use crate::result::Mark;

const NAME: &str = "spread-cpu";
const REQUESTS: u32 = 10;
/// By size, what part of HAProxy's cost is allowed.
const FACTORS: [f64; SPREAD_SIZES] = [1.0, 0.5, 0.1];
const CHANGES: &str = "changes";

pub(super) struct Spread;

impl Case<Bench> for Spread {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "the dispatcher's processor time where contents are spread over the nodes by Mix-LARD, ten requests a connection"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        bench.lab.ask(&Command::Policy { policy: PolicyKind::MixLard })?;
        take_turns(bench, NAME)?;
        bench.lab.ask(&Command::Policy { policy: PolicyKind::RoundRobin })?;
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        marks(samples, NAME)
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        columns()
    }
}

/// In every round everybody's turn with each size, under a case's name.
///
/// # Errors
/// The dispatcher doesn't answer.
pub(crate) fn take_turns(bench: &mut Bench, case: &str) -> io::Result<()> {
    for round in 0..bench.options.run.rounds {
        for size in &SIZES[..SPREAD_SIZES] {
            let mix = bench.spread_requests(size);
            let before = bench.changes()?;
            turns(bench, (case, size.name, round), REQUESTS, size, &mix);
            let asked = bench.changes()?.since(before);
            bench.records.record((case, size.name, round), LEAT, CHANGES, asked.for_each_of(REQUESTS));
        }
    }
    Ok(())
}

/// leat's cost must be at most a part of HAProxy's.
pub(crate) fn marks(samples: &Samples, case: &str) -> Vec<Mark> {
    SIZES.iter().zip(FACTORS).map(|(size, factor)| mark(samples, (case, size.name), factor)).collect()
}

/// What [`take_turns`] records.
pub(crate) fn columns() -> Vec<(&'static str, &'static str, usize)> {
    let mut columns = COLUMNS.to_vec();
    columns.push((CHANGES, "changes of node a request, by the dispatcher", 3));
    columns
}
