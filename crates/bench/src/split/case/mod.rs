//! The cases: what is asked of request splitting, and what it must reach. A case is one file.

mod cpu;
mod delegation;
mod faults;
mod links;
mod times;

use std::io;
use std::time::Duration;

use super::bench::{Bench, Cluster, Cost, Load, Size, Trial};
use super::setup::{Kind, Setup};
use crate::experiment::Case;
use crate::lab::faults::Wire;
use crate::result::Mark;

/// All, in the order of the table.
pub(super) fn all() -> Vec<Box<dyn Case<Bench>>> {
    vec![Box::new(links::Links), Box::new(cpu::Cpu), Box::new(delegation::Delegation), Box::new(times::Times)]
}

/// Those that take minutes each.
pub(super) fn faults() -> Vec<Box<dyn Case<Bench>>> {
    let faults = |name, title, (lost_percent, connections), deaths| faults::Faults {
        name,
        title,
        wire: Wire { lost_percent, overtaken_percent: 0 },
        connections,
        deaths,
    };
    let lossy = faults("loss-1", "one of a hundred packets is lost, each way", (1, 64), false);
    // Most of them wait for what was lost.
    let lossier = faults("loss-5", "five of a hundred are", (5, 256), false);
    let deadly = faults("deaths", "data servers die in turn", (0, 64), true);
    vec![Box::new(lossy), Box::new(lossier), Box::new(deadly)]
}

/// Of a measurement in which setups have their turns.
const TURNS: u32 = 4;
/// Of so many replies one is compared byte for byte.
const VERIFY_EVERY: u64 = 8;
/// The subject of marks.
const LEAT: &str = "leat";

/// A closed loop on so many connections, for as long as the options say.
fn saturate(bench: &Bench, connections: usize, requests: Option<u32>) -> Load {
    let window = Duration::from_secs_f64(bench.options.run.seconds);
    Load {
        connections,
        requests,
        rate: None,
        warm_up: Duration::from_millis(200),
        window,
        drain: Duration::from_secs(1),
        requests_max: u64::MAX,
        verify_every: VERIFY_EVERY,
    }
}

/// Has `work` done with a setup that is up. What goes wrong is noted, and the others have their turn.
fn with_setup(
    bench: &mut Bench,
    case: &str,
    (setup, link_mbit): (&Setup, Option<u32>),
    work: impl FnOnce(&mut Bench, &Cluster) -> io::Result<()>,
) {
    let worked = bench.up(setup, link_mbit).and_then(|cluster| work(bench, &cluster));
    if let Err(error) = worked {
        bench.records.note(case, &format!("{}: {error}", setup.name()));
    }
}

/// The same with several that are up together, so that they can be measured in turns.
fn with_setups(
    bench: &mut Bench,
    case: &str,
    setups: &[Setup],
    work: impl FnOnce(&mut Bench, &[Cluster]) -> io::Result<()>,
) {
    let up: io::Result<Vec<_>> = setups.iter().map(|setup| bench.up(setup, None)).collect();
    if let Err(error) = up.and_then(|clusters| work(bench, &clusters)) {
        let names: Vec<_> = setups.iter().map(Setup::name).collect();
        bench.records.note(case, &format!("{}: {error}", names.join(", ")));
    }
}

/// Puts a load on several setups that are up, in turns: what differs by a few percent would be lost in what a machine does from one second to the next.
fn measure_in_turns(
    bench: &mut Bench,
    (case, point, round): (&str, &str, u32),
    (setups, clusters): (&[Setup], &[Cluster]),
    (size, load): (&Size, &Load),
) -> io::Result<()> {
    for turn in 0..TURNS {
        // Only the first turn finds caches cold, and prices of delegating not yet measured.
        let warm_up = if turn == 0 { load.warm_up } else { load.warm_up / TURNS };
        let load = Load { warm_up, window: load.window / TURNS, ..*load };
        let mut pairs: Vec<_> = setups.iter().zip(clusters).collect();
        // Nobody is always first.
        pairs.rotate_left(turn as usize % setups.len());
        for (setup, cluster) in pairs {
            let trial = bench.measure(cluster, size, &load)?;
            record(bench, (case, point, round * TURNS + turn), setup, &trial);
        }
    }
    Ok(())
}

/// What was answered and what failed, and what every machine spent on it.
fn record(bench: &mut Bench, at: (&str, &str, u32), setup: &Setup, trial: &Trial) {
    let name = setup.name();
    let costs = trial.costs();
    let (first, behind) = costs.split_at(setup.connection_servers);
    let most = |costs: &[Cost]| costs.iter().map(|cost| cost.total()).fold(0.0, f64::max);
    let records = &mut bench.records;
    records.record(at, &name, "mbit", trial.mbit());
    records.record(at, &name, "answered_per_s", trial.answered_per_s());
    records.record(at, &name, "failed", trial.failed() as f64);
    // Programs of a server on its own aren't its business: a plain one has none.
    let first_us = if setup.kind == Kind::Kept { most(first) - first[0].programs } else { most(first) };
    records.record(at, &name, "first_us", first_us);
    records.record(at, &name, "first_process_us", first[0].process);
    records.record(at, &name, "first_programs_us", first[0].programs);
    records.record(at, &name, "first_packets_us", first[0].packets);
    let count = behind.len().max(1) as f64;
    let mean = |of: fn(&Cost) -> f64| behind.iter().map(of).sum::<f64>() / count;
    records.record(at, &name, "behind_us", mean(Cost::total));
    records.record(at, &name, "behind_process_us", mean(|cost| cost.process));
    records.record(at, &name, "behind_programs_us", mean(|cost| cost.programs));
    records.record(at, &name, "behind_packets_us", mean(|cost| cost.packets));
    records.record(at, &name, "behind_most_us", most(behind));
    if trial.failed() > 0 {
        let failures: Vec<_> = trial.outcomes.iter().map(|outcome| &outcome.failures).collect();
        records.note(at.0, &format!("{name}, {}, round {}: {failures:?}", at.1, at.2));
    }
}

const COLUMNS: [(&str, &str, usize); 12] = [
    ("mbit", "Mbit/s", 0),
    ("answered_per_s", "answered/s", 0),
    ("first_us", "CS (or first): us a request", 1),
    ("first_process_us", "its process", 1),
    ("first_programs_us", "eBPF", 1),
    ("first_packets_us", "packets", 1),
    ("behind_us", "each DS, us a request", 1),
    ("behind_process_us", "its process", 1),
    ("behind_programs_us", "eBPF", 1),
    ("behind_packets_us", "packets", 1),
    ("behind_most_us", "the busiest DS", 1),
    ("failed", "failed", 0),
];

fn point(size: &Size) -> String {
    size.name.to_owned()
}

/// `value` must be at most `limit`; `doubt` says why it doesn't count, and is empty otherwise.
fn at_most((case, point): (&str, &str), mark: &str, value: Option<f64>, limit: f64, unit: &str, doubt: String) -> Mark {
    let case = if point.is_empty() { case.to_owned() } else { format!("{case} {point}") };
    Mark::at_most((case, LEAT), mark, value, Some(limit), unit, doubt)
}

/// By how many hundredths `value` falls short of `whole`.
fn lost_percent(value: Option<f64>, whole: Option<f64>) -> Option<f64> {
    value.zip(whole).map(|(value, whole)| (1.0 - value / whole) * 100.0)
}
