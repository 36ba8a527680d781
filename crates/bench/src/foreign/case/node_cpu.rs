//! What a request costs the machine of nginx when its connection begins there, beside one to its own address.

use std::io;

use crate::experiment::{Case, Samples};
use crate::foreign::bench::{Bench, Meters, NODES, SIZES, direct, vip};
use crate::lab::cost::Meter;
use crate::lab::placed::Placed;
use crate::result::Mark;
use crate::server;

const NAME: &str = "node-cpu";
const BORN: &str = "nginx, born";
const DIRECT: &str = "nginx, direct";
const TOTAL: &str = "cpu_us";
/// What leat may add.
const FACTOR: f64 = 1.03;
/// Those of the mark.
const MEASURED: [usize; 2] = [0, 3];
const KINDS: [(u32, &str); 2] = [(1, "one request a connection"), (10, "ten requests a connection")];

pub(super) struct NodeCpu;

impl Case<Bench> for NodeCpu {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "processor time of nginx, and of leat beside it, for a request: born there, and without leat"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let nginx = server::nginx(None)?;
        let placed = bench.place(nginx.as_ref(), 1)?;
        for round in 0..bench.options.run.rounds {
            for (requests, kind) in KINDS {
                for place in MEASURED {
                    turns(bench, &placed[0], round, (requests, kind), place)?;
                }
            }
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let points = KINDS.into_iter().flat_map(|(_, kind)| MEASURED.map(|place| point(place, kind)));
        points.map(|point| mark(samples, &point)).collect()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            (TOTAL, "us a request", 2),
            ("server_us", "nginx", 2),
            ("leat_us", "leat's process", 2),
            ("programs_us", "eBPF", 2),
            ("ratio", "of the direct one's", 3),
            ("answered_per_s", "answered/s", 0),
            ("failed", "failed", 0),
        ]
    }
}

fn point(place: usize, kind: &str) -> String {
    format!("{}, {kind}", SIZES[place].0)
}

/// Both at one point, one right after the other, in the other order each time.
fn turns(
    bench: &mut Bench,
    server: &Placed,
    round: u32,
    (requests, kind): (u32, &str),
    place: usize,
) -> io::Result<()> {
    let mut both = [(DIRECT, direct()), (BORN, vip())];
    if round % 2 == 1 {
        both.reverse();
    }
    let (at, mix) = (point(place, kind), bench.requests(&[SIZES[place].1], requests == 1));
    let mut spent = [0.0; 2];
    for (name, address) in both {
        let leat = Meter::new(bench.leat(NODES[0].0, server)?);
        let mut meters = Meters { server: Meter::new(server.processes()), leat };
        let outcome = bench.measure(&bench.saturate(address, requests), &mix, &mut meters)?;
        let each_us = |spent: std::time::Duration| spent.as_secs_f64() * 1e6 / outcome.answered.max(1) as f64;
        let server_us = each_us(meters.server.spent.process);
        let (mut leat_us, mut programs_us) = (0.0, 0.0);
        // Without leat there would be neither.
        if name == BORN {
            leat_us = each_us(meters.leat.spent.process);
            programs_us = each_us(meters.leat.spent.programs);
            bench.records.record((NAME, &at, round), name, "leat_us", leat_us);
            bench.records.record((NAME, &at, round), name, "programs_us", programs_us);
        }
        spent[usize::from(name == BORN)] = server_us + leat_us + programs_us;
        bench.records.record((NAME, &at, round), name, TOTAL, server_us + leat_us + programs_us);
        bench.records.record((NAME, &at, round), name, "server_us", server_us);
        bench.records.record((NAME, &at, round), name, "answered_per_s", outcome.answered_per_s());
        bench.records.record((NAME, &at, round), name, "failed", outcome.failed() as f64);
        if outcome.failed() > 0 {
            bench.records.note(NAME, &format!("{name}, {at}, round {round}: {:?}", outcome.failures));
        }
    }
    bench.records.record((NAME, &at, round), BORN, "ratio", spent[1] / spent[0]);
    Ok(())
}

/// By the median of the rounds' ratios, as what else the machine does is the same for both of a round.
fn mark(samples: &Samples, point: &str) -> Mark {
    let value = samples.median(NAME, point, BORN, "ratio");
    let (case, doubt) = (format!("{NAME} {point}"), samples.failures(NAME, point, BORN));
    Mark::at_most((case, "leat"), "within 3 % of nginx's cost without leat", value, Some(FACTOR), "", doubt)
}
