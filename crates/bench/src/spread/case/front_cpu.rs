//! What a small request on a connection of its own costs the fronts, and HAProxy in TCP mode in their place.

use std::io;
use std::time::Duration;

use crate::experiment::{Case, Samples};
use crate::result::{Figure, Mark};
use crate::spread::bench::{Bench, HAPROXY, LEAT};

const NAME: &str = "front-cpu";
const TOTAL: &str = "cpu_us";
const STEERED: &str = "steered_us";
/// What part of HAProxy's cost is allowed.
const FACTOR: f64 = 0.1;
const CONNECTIONS: usize = 32;

pub(super) struct FrontCpu;

impl Case<Bench> for FrontCpu {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "processor time of the fronts for a request of 1 KB on a connection of its own, beside HAProxy in TCP mode"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let window = Duration::from_secs_f64(bench.options.seconds);
        for round in 0..bench.options.rounds {
            let mut subjects = bench.subjects();
            subjects.rotate_left(round as usize % 2);
            for (name, address) in subjects {
                turn(bench, round, (name, address), window)?;
            }
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let (value, haproxy) = (samples.median(NAME, "", LEAT, TOTAL), samples.median(NAME, "", HAPROXY, TOTAL));
        let limit = haproxy.map(|median| median * FACTOR);
        let doubt = samples.failures(NAME, "", LEAT);
        vec![Mark::at_most((NAME.to_owned(), LEAT), "1/10 of HAProxy's in TCP mode", value, limit, "us", doubt)]
    }

    fn figures(&self, samples: &Samples) -> Vec<Figure> {
        let figure = |value| Figure {
            case: NAME.to_owned(),
            subject: LEAT.to_owned(),
            figure: "charged for each packet that a front receives".to_owned(),
            value,
            unit: "us".to_owned(),
        };
        samples.median(NAME, "", LEAT, STEERED).map(figure).into_iter().collect()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            (TOTAL, "us a request", 2),
            ("process_us", "its process", 2),
            ("programs_us", "eBPF", 2),
            ("forwarding_us", "forwarding", 2),
            ("packets_in", "packets in", 1),
            ("answered_per_s", "answered/s", 0),
            ("failed", "failed", 0),
            (STEERED, "us to send a packet on", 2),
        ]
    }
}

fn turn(
    bench: &mut Bench,
    round: u32,
    (name, address): (&str, std::net::SocketAddr),
    window: Duration,
) -> io::Result<()> {
    let mix = bench.requests(true);
    let plan = bench.saturate(address, CONNECTIONS, window);
    let plan = crate::load::Plan { requests_per_connection: Some(1), ..plan };
    let (outcome, meters) = bench.measure(name, &plan, &mix)?;
    let spent = meters.spent();
    let each = |value: f64| value / outcome.answered.max(1) as f64;
    let process_us = each(spent.process.as_secs_f64() * 1e6);
    let (mut programs_us, mut forwarding_us) = (0.0, 0.0);
    let at = (NAME, "", round);
    // What the kernel does with packets of HAProxy's sockets isn't counted: it would only be more.
    if name == LEAT {
        programs_us = each(spent.programs.as_secs_f64() * 1e6);
        // Right after: what else the machine does makes this dearer as well.
        let steered_us = bench.steered_us()?;
        forwarding_us = each(spent.packets_in as f64) * steered_us;
        bench.records.record(at, name, STEERED, steered_us);
        bench.records.record(at, name, "programs_us", programs_us);
        bench.records.record(at, name, "forwarding_us", forwarding_us);
    }
    bench.records.record(at, name, TOTAL, process_us + programs_us + forwarding_us);
    bench.records.record(at, name, "process_us", process_us);
    bench.records.record(at, name, "packets_in", each(spent.packets_in as f64));
    bench.records.record(at, name, "answered_per_s", outcome.answered_per_s());
    bench.records.record(at, name, "failed", outcome.failed() as f64);
    if outcome.failed() > 0 {
        bench.records.note(NAME, &format!("{name}, round {round}: {:?}", outcome.failures));
    }
    Ok(())
}
