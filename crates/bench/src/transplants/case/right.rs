//! Whether every reply is right, byte for byte, and comes from a server that has it, on connections whose requests go to and fro between two nginx: nodes that serve
//! different paths, and contents placed by Mix-LARD; both families of addresses; packets lost or not.

use std::io;
use std::time::Duration;

use crate::experiment::{Case, Samples};
use crate::lab::faults::{self, Happened};
use crate::load::{Failure, Plan, SIZES_BYTES};
use crate::result::Mark;
use crate::transplants::bench::{Bench, Cluster, Layout, VIPS, plan};

const NAME: &str = "right";
/// Without loss, and with: what is lost makes it slow, and most of them wait.
const CONNECTIONS: [usize; 2] = [16, 256];
const REQUESTS_PER_CONNECTION: u32 = 20;
const POINTS: u64 = (Layout::ALL.len() * VIPS.len() * CONNECTIONS.len()) as u64;
/// So many of the servers' complaints are told.
const COMPLAINTS_TOLD: usize = 5;

pub(super) struct Right;

impl Case<Bench> for Right {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "every reply is right, byte for byte, and from a server that has it; 1 KB to 10 MB"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        let requests = (bench.options.requests / POINTS).max(1);
        for layout in Layout::ALL {
            let cluster = bench.up(layout)?;
            for (has_loss, connections) in [false, true].into_iter().zip(CONNECTIONS) {
                if has_loss {
                    cluster.lose_packets()?;
                }
                for vip in VIPS {
                    let family = if vip.is_ipv4() { "IPv4" } else { "IPv6" };
                    let loss = if has_loss { ", one packet in a hundred lost" } else { "" };
                    let name = format!("{}, {family}{loss}", layout.name());
                    let longest = Duration::from_secs(bench.options.limit_s);
                    let plan = Plan {
                        requests_per_connection: Some(REQUESTS_PER_CONNECTION),
                        seed: bench.options.run.seed,
                        ..plan(vip, connections, requests, longest)
                    };
                    ask(bench, &cluster, &plan, &name)?;
                }
            }
            let complaints = cluster.complaints()?;
            let text = format!("{}: the servers have complained {} times", layout.name(), complaints.len());
            bench.records.note(NAME, &text);
            complaints.iter().take(COMPLAINTS_TOLD).for_each(|line| bench.records.note(NAME, line));
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let points = samples.servers(NAME);
        let of =
            |metric: &str| -> f64 { points.iter().flat_map(|point| samples.values(NAME, "", point, metric)).sum() };
        let asked = of("asked");
        let doubt = match points.len() as u64 {
            POINTS if of("transplants") > 0.0 => String::new(),
            POINTS => "no connection went on elsewhere".to_owned(),
            count => format!("{count} of {POINTS} points only"),
        };
        let mark = |(what, value): (&str, f64)| {
            let text = format!("of {asked:.0} requests none: {what}");
            Mark::at_most((NAME.to_owned(), "leat"), &text, Some(value), Some(0.0), "", doubt.clone())
        };
        [
            ("with a wrong byte", of("wrong")),
            ("unanswered", of("unanswered")),
            ("on a connection that was cut or reset", of("cut")),
            ("answered by a node that doesn't have it", of("elsewhere")),
            ("refused", of("refused") - of("elsewhere")),
        ]
        .map(mark)
        .into()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        let own = [
            ("longest_short_ms", "longest ms of up to 100 KB", 0),
            ("mb", "MB", 0),
            ("elsewhere", "by who hasn't it", 0),
            ("born", "connections begun at nodes", 0),
            ("changes", "changes of node, by content", 0),
            ("transplants", "connections gone on elsewhere", 0),
            ("impossible", "that couldn't", 0),
        ];
        let found =
            faults::COLUMNS.into_iter().filter(|(metric, ..)| !["deaths", "upgrades", "reloads"].contains(metric));
        found.chain(own).collect()
    }
}

/// Asks as the plan says, and writes down what came of it.
fn ask(bench: &mut Bench, cluster: &Cluster, plan: &Plan, name: &str) -> io::Result<()> {
    const COUNTERS: [(&str, &str); 3] = [
        ("born", "leat_births_total"),
        ("transplants", "leat_transplants_total"),
        ("impossible", "leat_transplants_impossible_total"),
    ];
    let counted =
        || COUNTERS.map(|(_, counter)| cluster.lab.number(counter)).into_iter().collect::<io::Result<Vec<_>>>();
    let before = counted()?;
    let outcome = cluster.run(plan, &cluster.requests())?;
    let since = counted()?.into_iter().zip(before).map(|(now, before)| now.saturating_sub(before) as f64);
    let at = (NAME, "", 0);
    for ((metric, _), value) in COUNTERS.into_iter().zip(since) {
        bench.records.record(at, name, metric, value);
    }
    let elsewhere = outcome.failures.get(&Failure::Status(404)).copied().unwrap_or_default();
    bench.records.record(at, name, "elsewhere", elsewhere as f64);
    bench.records.record(at, name, "changes", outcome.changes as f64);
    // All classes of lengths but the last have a bound.
    let short = outcome.by_size_ns[..SIZES_BYTES.len()].iter().map(|times| times.max()).max().unwrap_or_default();
    bench.records.record(at, name, "longest_short_ms", short as f64 / 1e6);
    bench.records.record(at, name, "mb", outcome.received_bytes as f64 / 1e6);
    eprintln!("  {name}: {} of {} answered, {:?}", outcome.answered, outcome.sent, outcome.failures);
    faults::record(&mut bench.records, (NAME, name), (&cluster.lab, "dispatcher"), (&outcome, Happened::default()))
}
