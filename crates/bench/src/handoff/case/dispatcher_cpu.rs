//! What a request costs the dispatcher, beside proxies to the same nodes, by size and by requests on a connection.

use std::io;

use super::at_most;
use crate::experiment::{Case, Plot, Samples, plot::Scale};
use crate::handoff::bench::{Bench, HAPROXY, LEAT, SIZES, Size, Trial};
use crate::load::Plan;
use crate::result::{Figure, Mark};
use crate::workload::mix::Mix;

pub(in crate::handoff) const NAME: &str = "dispatcher-cpu";
const TOTAL: &str = "cpu_us";
const STEERED: &str = "steered_us";
/// A part of the window in which whoever is measured was ready and others had its processor. Above it the rate is theirs, and it's said.
const WAITED_MAX: f64 = 0.3;
/// Requests on a connection, how it's called, and by size what part of HAProxy's cost is allowed; none where no mark is set.
const KINDS: [(u32, &str, [Option<f64>; SIZES.len()]); 2] = [
    (1, "one request a connection", [Some(1.0), Some(0.5), Some(0.1), None]),
    (10, "ten requests a connection", [Some(1.0 / 3.0), Some(1.0 / 6.0), Some(0.05), None]),
];

/// What [`turns`] records.
pub(super) const COLUMNS: [(&str, &str, usize); 11] = [
    (TOTAL, "us a request", 2),
    ("process_us", "its process", 2),
    ("programs_us", "eBPF", 2),
    ("forwarding_us", "forwarding", 2),
    ("packets_in", "packets in", 1),
    ("program_runs", "eBPF runs", 1),
    ("answered_per_s", "answered/s", 0),
    ("waited_percent", "waited, %", 0),
    ("whole_us", "us of all processes", 1),
    ("seen_changes", "changes of node a request, by content", 3),
    ("failed", "failed", 0),
];

pub(super) struct DispatcherCpu;

impl Case<Bench> for DispatcherCpu {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "the dispatcher's processor time for a request: handing over, beside proxying to the same nodes"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        bench.records.record((NAME, "", 0), LEAT, STEERED, bench.steered_us);
        for round in 0..bench.options.run.rounds {
            for (requests, kind, _) in KINDS {
                for size in &SIZES {
                    let mix = bench.requests(&[(size.file, 1.0)], requests == 1);
                    turns(bench, (NAME, &point(size, kind), round), requests, size, &mix);
                }
            }
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let of_kind = |(_, kind, factors): (u32, &'static str, [Option<f64>; SIZES.len()])| {
            let pairs = SIZES.iter().zip(factors).filter_map(|(size, factor)| Some((size, factor?)));
            pairs.map(move |(size, factor)| mark(samples, (NAME, &point(size, kind)), factor)).collect::<Vec<_>>()
        };
        KINDS.into_iter().flat_map(of_kind).collect()
    }

    fn figures(&self, samples: &Samples) -> Vec<Figure> {
        let value = samples.median(NAME, "", LEAT, STEERED);
        let figure = |value| Figure {
            case: NAME.to_owned(),
            subject: LEAT.to_owned(),
            figure: "charged for each packet that the dispatcher receives".to_owned(),
            value,
            unit: "us".to_owned(),
        };
        value.map(figure).into_iter().collect()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        let mut columns = COLUMNS.to_vec();
        columns.push((STEERED, "us to send a packet on", 2));
        columns
    }

    fn plots(&self, samples: &Samples) -> Vec<Plot> {
        let names = ["one-request", "ten-requests"];
        let plot = |((_, kind, _), name): ((u32, &'static str, _), &'static str)| Plot {
            name,
            title: format!("The dispatcher's time for a request, {kind}"),
            x: ("KB", Scale::Logarithmic),
            y: Scale::Linear,
            series: samples
                .servers(NAME)
                .into_iter()
                .map(|server| (server.clone(), line(samples, kind, &server)))
                .collect(),
        };
        KINDS.into_iter().zip(names).map(plot).collect()
    }
}

fn point(size: &Size, kind: &str) -> String {
    format!("{}, {kind}", size.name)
}

fn line(samples: &Samples, kind: &str, server: &str) -> Vec<(f64, f64)> {
    let place = |size: &Size| {
        let value = samples.median(NAME, &point(size, kind), server, TOTAL)?;
        Some((size.bytes as f64 / 1024.0, value))
    };
    SIZES.iter().filter_map(place).collect()
}

/// Everybody's turn at one point, the order moved on by one in each round.
pub(super) fn turns(bench: &mut Bench, at: (&str, &str, u32), requests: u32, size: &Size, mix: &Mix) {
    let mut dispatchers = bench.dispatchers();
    let (case, point, round) = at;
    let first = round as usize % dispatchers.len();
    dispatchers.rotate_left(first);
    // Enough to keep both nodes busy; fewer of the long ones, which would only wait for each other.
    let connections = if size.bytes > 1 << 17 { 8 } else { 32 };
    for (name, address) in dispatchers {
        let plan = Plan { requests_per_connection: Some(requests), ..bench.saturate(address, connections) };
        match bench.measure(name, &plan, mix) {
            Ok(trial) => record(bench, at, name, &trial),
            Err(error) => bench.records.note(case, &format!("{name}, {point}, round {round}: {error}")),
        }
    }
}

fn record(bench: &mut Bench, at: (&str, &str, u32), name: &str, trial: &Trial) {
    let (outcome, spent) = (&trial.outcome, trial.meter.spent);
    let each = |value: f64| value / outcome.answered.max(1) as f64;
    let process_us = each(spent.process.as_secs_f64() * 1e6);
    let (mut programs_us, mut forwarding_us) = (0.0, 0.0);
    if name == LEAT {
        programs_us = each(spent.programs.as_secs_f64() * 1e6);
        forwarding_us = each(spent.packets_in as f64) * bench.steered_us;
        bench.records.record(at, name, "programs_us", programs_us);
        bench.records.record(at, name, "forwarding_us", forwarding_us);
        bench.records.record(at, name, "program_runs", each(spent.program_runs as f64));
    }
    bench.records.record(at, name, TOTAL, process_us + programs_us + forwarding_us);
    bench.records.record(at, name, "process_us", process_us);
    bench.records.record(at, name, "packets_in", each(spent.packets_in as f64));
    bench.records.record(at, name, "answered_per_s", outcome.answered_per_s());
    let waited = spent.waited.as_secs_f64() / bench.options.run.seconds;
    bench.records.record(at, name, "waited_percent", waited * 100.0);
    if waited > WAITED_MAX {
        let text = format!("ready for {:.0} % of the time while others had its processor", waited * 100.0);
        bench.records.note(at.0, &format!("{name}, {}, round {}: {text}", at.1, at.2));
    }
    bench.records.record(at, name, "whole_us", each(trial.whole.as_secs_f64() * 1e6));
    if outcome.changes > 0 {
        bench.records.record(at, name, "seen_changes", each(outcome.changes as f64));
    }
    bench.records.record(at, name, "failed", outcome.failed() as f64);
    if outcome.failed() > 0 {
        bench.records.note(at.0, &format!("{name}, {}, round {}: {:?}", at.1, at.2, outcome.failures));
    }
}

/// leat's cost must be at most that part of HAProxy's.
pub(super) fn mark(samples: &Samples, (case, point): (&str, &str), factor: f64) -> Mark {
    let limit = samples.median(case, point, HAPROXY, TOTAL).map(|median| median * factor);
    let failed: f64 = samples.values(case, point, LEAT, "failed").iter().sum();
    let doubt = if failed > 0.0 { format!("{failed} failures") } else { String::new() };
    let text =
        if factor >= 1.0 { "less than HAProxy's".to_owned() } else { format!("1/{:.0} of HAProxy's", 1.0 / factor) };
    at_most((case, point), &text, samples.median(case, point, LEAT, TOTAL), limit, "us", doubt)
}
