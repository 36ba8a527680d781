//! A million requests through handoffs, on links that carry frames, while packets are lost and overtaken, nodes die, and dispatcher and nodes are upgraded and
//! reloaded: every byte of every reply is compared, and no steering entry is left.

use std::io;
use std::time::Duration;

use leat::ctl;

use super::super::bench::{Bench, LEAT};
use super::super::setup::{Policy, Setup};
use super::at_most;
use crate::experiment::{Case, Samples};
use crate::lab::DISPATCHER;
use crate::lab::faults::{self, Fault, Storm, Wire};
use crate::load::Plan;
use crate::result::Mark;
use crate::workload::mix::Mix;

/// File, length, and how often it's asked for.
const SIZES: [(&str, u64, f64); 4] =
    [("4k", 4 << 10, 0.80), ("64k", 64 << 10, 0.15), ("128k", 128 << 10, 0.04), ("1m", 1 << 20, 0.01)];
const REQUESTS: u64 = 1_000_000;
const CONNECTIONS: usize = 64;
const REQUESTS_PER_CONNECTION: u32 = 10;
/// From one upgrade, reload or death to the next, where there are all kinds.
const FAULT_EVERY: Duration = Duration::from_secs(1);

/// What becomes of packets, and of servers.
pub(super) struct Faults {
    name: &'static str,
    title: &'static str,
    wire: Wire,
    /// Each kind is done to all nodes before the next one is, and to the dispatcher before those, but that isn't killed.
    faults: &'static [Fault],
    are_all_told: bool,
}

pub(super) const LOSS: Faults = Faults {
    name: "loss-1",
    title: "one of a hundred packets is lost and one overtaken, each way",
    wire: Wire { lost_percent: 1, overtaken_percent: 1 },
    faults: &[],
    are_all_told: true,
};
pub(super) const DEATHS: Faults = Faults {
    name: "deaths",
    title: "nodes die in turn, and have told of every reply",
    wire: Wire { lost_percent: 0, overtaken_percent: 0 },
    faults: &[Fault::Death],
    are_all_told: true,
};
pub(super) const DEATHS_LONG: Faults = Faults {
    name: "deaths-long",
    title: "nodes die in turn, and have told of long replies only",
    are_all_told: false,
    ..DEATHS
};
pub(super) const BOTH: Faults = Faults {
    name: "loss-deaths",
    title: "one of a hundred packets is lost and one overtaken, each way, and nodes die in turn, and have told of every reply",
    wire: Wire { lost_percent: 1, overtaken_percent: 1 },
    faults: &[Fault::Death],
    are_all_told: true,
};
pub(super) const UPGRADES: Faults = Faults {
    name: "upgrades",
    title: "dispatcher and nodes are upgraded and reloaded in turn, one each second",
    faults: &[Fault::Upgrade, Fault::Reload],
    ..DEATHS
};
pub(super) const STORM: Faults = Faults {
    name: "storm",
    title: "dispatcher and nodes are upgraded, nodes die, and all are reloaded in turn, one each second",
    faults: &[Fault::Upgrade, Fault::Death, Fault::Reload],
    ..DEATHS
};

impl Faults {
    fn storm(&self, nodes: &[String]) -> Storm {
        if self.faults == [Fault::Death] {
            return Storm::of_deaths(nodes.to_vec());
        }
        let hosts = |fault| {
            let home = (fault != Fault::Death).then(|| DISPATCHER.to_owned());
            home.into_iter().chain(nodes.iter().cloned()).map(move |host| (fault, host))
        };
        Storm { each: self.faults.iter().flat_map(|&fault| hosts(fault)).collect(), every: FAULT_EVERY }
    }
}

impl Case<Bench> for Faults {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> &'static str {
        self.title
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        // Each file is at the node that was given it, so that connections with several requests go to and fro.
        let setup = Setup {
            nodes: 3,
            policy: Policy::MixLard,
            limits: None,
            wire: Some(self.wire),
            are_all_told: self.are_all_told,
        };
        let files = bench.sizes(&SIZES.map(|(file, bytes, _)| (file, bytes)))?;
        let cluster = bench.up(&setup, &files)?;
        let mix = Mix::new(SIZES.map(|(file, _, weight)| (files.requests(file, false), weight)).to_vec());
        let plan = Plan {
            warm_up: Duration::ZERO,
            verify_every: 1,
            requests_max: REQUESTS,
            drain: Duration::from_secs(10),
            ..bench.saturate(CONNECTIONS, REQUESTS_PER_CONNECTION)
        };
        let storm = self.storm(&setup.names());
        let (trial, happened) = storm.beside(&cluster.lab, || bench.measure(&cluster, LEAT, &plan, &mix))?;
        let found = (&trial.outcome, happened);
        faults::record(&mut bench.records, (self.name, LEAT), (&cluster.lab, "dispatcher"), found)?;
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
