//! The cases: what is asked of a cluster's nodes, and what they must reach. A case is one file.

mod faults;
mod mixed;
mod throughput;
mod working_set;

use std::io;
use std::time::Duration;

use super::bench::{Bench, Files, LEAT, Trial};
use super::setup::{Disk, Limits, Policy, Setup};
use crate::experiment::Case;
use crate::load::Plan;
use crate::result::Mark;
use crate::workload::mix::Mix;

/// All, in the order of the table.
pub(super) fn all() -> Vec<Box<dyn Case<Bench>>> {
    vec![
        Box::new(throughput::Throughput),
        Box::new(working_set::TOO_LARGE),
        Box::new(working_set::FITS),
        Box::new(mixed::Mixed),
    ]
}

/// Those that take minutes each.
pub(super) fn faults() -> Vec<Box<dyn Case<Bench>>> {
    vec![
        Box::new(faults::LOSS),
        Box::new(faults::DEATHS),
        Box::new(faults::BOTH),
        Box::new(faults::DEATHS_LONG),
        Box::new(faults::UPGRADES),
        Box::new(faults::STORM),
    ]
}

/// Of the cases with more files than one node has memory for.
const NODES: usize = 4;
const CONNECTIONS: usize = 96;

/// Memory and a disk of each node's own.
const DISK: Disk = Disk { memory_mib: 80, read_mib_per_s: 2, cache_mib: 12 };
const LIMITS: Limits = Limits { cpu_percent: 40, disk: Some(DISK) };
/// Memories are filled from disks that are so many times faster, for so long; with the slow ones it takes half a minute.
const FILLING_TIMES: u32 = 8;
const FILLING: Duration = Duration::from_secs(8);
/// From then on until something is measured.
const SETTLING: Duration = Duration::from_secs(4);

fn small_nodes(policy: Policy) -> Setup {
    Setup { nodes: NODES, policy, limits: Some(LIMITS), wire: None, are_all_told: true }
}

/// Puts the same load on a cluster of small nodes by each policy in turn. What a node refuses as it has too much to do is no failure.
fn by_policy(bench: &mut Bench, case: &str, policies: &[Policy], (files, mix): (&Files, &Mix)) -> io::Result<()> {
    let wanted = bench.options.policy.clone();
    let is_wanted = |policy: &&Policy| wanted.is_empty() || wanted.iter().any(|name| name == policy.name());
    for round in 0..bench.options.rounds {
        for &policy in policies.iter().filter(is_wanted) {
            let cluster = bench.up(&small_nodes(policy), files)?;
            let plan = Plan { may_be_refused: true, ..bench.saturate(CONNECTIONS, 1) };
            let filling = Plan { window: FILLING, ..plan.clone() };
            let plan = Plan { warm_up: SETTLING, ..plan };
            let filled = cluster.limit_reads(DISK.read_mib_per_s * FILLING_TIMES);
            let filled = filled.and_then(|()| bench.measure(&cluster, LEAT, &filling, mix));
            let settled = filled.and_then(|_| cluster.limit_reads(DISK.read_mib_per_s));
            match settled.and_then(|()| bench.measure(&cluster, LEAT, &plan, mix)) {
                Ok(trial) => record(bench, (case, "", round), policy.name(), &trial),
                Err(error) => bench.records.note(case, &format!("{}, round {round}: {error}", policy.name())),
            }
        }
    }
    Ok(())
}

/// What was answered by a cluster with this policy, and what was read for it.
fn record(bench: &mut Bench, at: (&str, &str, u32), name: &str, trial: &Trial) {
    let outcome = &trial.outcome;
    let records = &mut bench.records;
    records.record(at, name, "answered_per_s", outcome.answered_per_s());
    records.record(at, name, "disk_kb", trial.disk_bytes as f64 / 1024.0 / outcome.answered.max(1) as f64);
    records.record(
        at,
        name,
        "disk_mib_per_s",
        trial.disk_bytes as f64 / f64::from(1 << 20) / outcome.window.as_secs_f64(),
    );
    records.record(at, name, "mean_ms", outcome.latency_ns.mean() / 1e6);
    records.record(at, name, "p99_ms", outcome.latency_us(0.99) / 1e3);
    records.record(at, name, "node_us", trial.nodes_us());
    records.record(at, name, "used_percent", trial.used_percent(LIMITS));
    records.record(at, name, "busiest_percent", trial.busiest_percent());
    records.record(at, name, "refused_per_s", outcome.refused_per_s());
    records.record(at, name, "failed", trial.failed() as f64);
    if trial.failed() > 0 {
        records.note(at.0, &format!("{name}, round {}: {:?}", at.2, outcome.failures));
    }
}

const COLUMNS: [(&str, &str, usize); 10] = [
    ("answered_per_s", "answered/s", 0),
    ("disk_kb", "KB read from disks, a request", 2),
    ("disk_mib_per_s", "MiB/s", 1),
    ("mean_ms", "mean ms", 1),
    ("p99_ms", "p99 ms", 1),
    ("node_us", "nodes' us a request", 0),
    ("used_percent", "% that the nodes used of their processor time", 0),
    ("busiest_percent", "% that the busiest used of the mean", 0),
    ("refused_per_s", "refused/s", 0),
    ("failed", "failed", 0),
];

/// `value` must be at most `limit`; `doubt` says why it doesn't count, and is empty otherwise.
fn at_most((case, point): (&str, &str), mark: &str, value: Option<f64>, limit: f64, unit: &str, doubt: String) -> Mark {
    let case = if point.is_empty() { case.to_owned() } else { format!("{case} {point}") };
    Mark::at_most((case, LEAT), mark, value, Some(limit), unit, doubt)
}

/// What `value` is in hundredths of `whole`.
fn percent(value: Option<f64>, whole: Option<f64>) -> Option<f64> {
    value.zip(whole).map(|(value, whole)| value / whole * 100.0)
}
