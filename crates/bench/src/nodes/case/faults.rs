//! A million requests through handoffs, on links that carry frames, while packets are lost and nodes die: every byte of every reply is compared, and no
//! steering entry is left.

use std::io;
use std::time::Duration;

use leat::ctl;

use super::super::bench::{Bench, LEAT};
use super::super::setup::{Policy, Setup};
use super::at_most;
use crate::experiment::{Case, Samples};
use crate::lab::faults;
use crate::load::Plan;
use crate::result::Mark;
use crate::workload::mix::Mix;

/// Each file is at the node that was given it, so that connections with several requests go to and fro.
const SETUP: Setup = Setup { nodes: 3, policy: Policy::MixLard, limits: None, wire_packets: true };
/// File, length, and how often it's asked for.
const SIZES: [(&str, u64, f64); 4] =
    [("4k", 4 << 10, 0.80), ("64k", 64 << 10, 0.15), ("128k", 128 << 10, 0.04), ("1m", 1 << 20, 0.01)];
const REQUESTS: u64 = 1_000_000;
const CONNECTIONS: usize = 64;
const REQUESTS_PER_CONNECTION: u32 = 10;

/// So many of a hundred packets are lost, each way; nodes die or don't.
pub(super) struct Faults {
    name: &'static str,
    title: &'static str,
    lost_percent: u32,
    deaths: bool,
}

pub(super) const LOSS: Faults =
    Faults { name: "loss-1", title: "one of a hundred packets is lost, each way", lost_percent: 1, deaths: false };
pub(super) const DEATHS: Faults = Faults { name: "deaths", title: "nodes die in turn", lost_percent: 0, deaths: true };
pub(super) const BOTH: Faults = Faults {
    name: "loss-deaths",
    title: "one of a hundred packets is lost, each way, and nodes die in turn",
    lost_percent: 1,
    deaths: true,
};

impl Case<Bench> for Faults {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> &'static str {
        self.title
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let files = bench.sizes(&SIZES.map(|(file, bytes, _)| (file, bytes)))?;
        let cluster = bench.up(&SETUP, &files)?;
        faults::lose_packets(&cluster.lab, self.lost_percent)?;
        let mix = Mix::new(SIZES.map(|(file, _, weight)| (files.requests(file, false), weight)).to_vec());
        let plan = Plan {
            warm_up: Duration::ZERO,
            verify_every: 1,
            requests_max: REQUESTS,
            drain: Duration::from_secs(10),
            ..bench.saturate(CONNECTIONS, REQUESTS_PER_CONNECTION)
        };
        let dying = if self.deaths { SETUP.names() } else { Vec::new() };
        let measured = faults::while_they_die(&cluster.lab, &dying, || bench.measure(&cluster, LEAT, &plan, &mix));
        let (trial, deaths) = measured?;
        faults::record(&mut bench.records, (self.name, ""), LEAT, &trial.outcome, deaths);
        let state = cluster.lab.ask(&ctl::Command::Flows)?;
        bench.records.note(self.name, &format!("flows in the end: {state}"));
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let judged = faults::judged(samples, self.name, LEAT, REQUESTS as f64);
        let mark = |(text, value, limit): (String, Option<f64>, f64)| {
            at_most((self.name, ""), &text, value, limit, "", String::new())
        };
        judged.map(mark).to_vec()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        faults::COLUMNS.to_vec()
    }
}
