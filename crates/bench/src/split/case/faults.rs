//! Packets are lost on the way between clients and servers, and data servers die in mid-reply: every byte of every reply is compared.

use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::bench::{Bench, Cluster, Load, Trial, size};
use super::super::setup::{Kind, Setup};
use super::{at_most, with_setup};
use crate::experiment::{Case, Samples};
use crate::lab::ROUTER;
use crate::load::Failure;
use crate::result::Mark;
use crate::server::running::descendants;
use crate::sys::process;

/// Every request but the smallest is delegated, and connections go to and fro.
const SETUP: Setup = Setup { wire_packets: true, ..Setup::new(Kind::Full(3), 1, 3) };
/// Sizes and how often each is asked for.
const SIZES: [(&str, f64); 4] = [("4 KB", 0.80), ("64 KB", 0.15), ("128 KB", 0.04), ("1 MB", 0.01)];
const REQUESTS: f64 = 1e6;
const CONNECTIONS: usize = 64;
const REQUESTS_PER_CONNECTION: u32 = 10;
/// From one data server's death to the next one's: its supervisor starts it again meanwhile.
const DEATH_EVERY: Duration = Duration::from_secs(5);

/// So many of a hundred packets are lost, each way; data servers die or don't.
pub(super) struct Faults {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) lost_percent: u32,
    pub(super) deaths: bool,
}

impl Case<Bench> for Faults {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> &'static str {
        self.title
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        with_setup(bench, self.name, (&SETUP, None), |bench, cluster| {
            self.lose_packets(cluster)?;
            let (trial, deaths) = self.measure(bench, cluster)?;
            let outcome = &trial.outcomes[0];
            let count =
                |kinds: &[Failure]| kinds.iter().filter_map(|kind| outcome.failures.get(kind)).sum::<u64>() as f64;
            let (at, name) = ((self.name, "", 0), SETUP.name());
            let wrong = [Failure::Body, Failure::Length, Failure::MalformedHead];
            bench.records.record(at, &name, "answered", outcome.answered as f64);
            bench.records.record(at, &name, "compared", outcome.verified as f64);
            bench.records.record(at, &name, "wrong", count(&wrong));
            bench.records.record(at, &name, "refused", count(&[Failure::Status]));
            bench.records.record(at, &name, "cut", count(&[Failure::ClosedEarly, Failure::Connect]));
            bench.records.record(at, &name, "deaths", deaths as f64);
            bench.records.record(at, &name, "answered_per_s", outcome.answered_per_s());
            bench.records.record(at, &name, "p99_ms", outcome.latency_us(0.99) / 1e3);
            bench.records.record(at, &name, "longest_ms", outcome.latency_ns.max() as f64 / 1e6);
            bench.records.note(self.name, &format!("what failed, by kind: {:?}", outcome.failures));
            Ok(())
        });
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let of = |metric| samples.median(self.name, "", &SETUP.name(), metric);
        let at = (self.name, "");
        let missing = of("answered").map(|answered| (REQUESTS - answered).max(0.0));
        vec![
            at_most(at, "replies with a wrong byte", of("wrong"), 0.0, "", String::new()),
            at_most(at, "connections cut", of("cut"), 0.0, "", String::new()),
            at_most(at, "requests that are missing to a million", missing, 0.0, "", String::new()),
        ]
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            ("answered", "answered", 0),
            ("compared", "compared byte for byte", 0),
            ("wrong", "wrong", 0),
            ("refused", "not 200", 0),
            ("deaths", "deaths of data servers", 0),
            ("cut", "connections cut", 0),
            ("answered_per_s", "answered/s", 0),
            ("p99_ms", "p99 ms", 0),
            ("longest_ms", "longest ms", 0),
        ]
    }
}

impl Faults {
    /// At the router, where packets are those of the wire, and none is lost between the servers.
    fn lose_packets(&self, cluster: &Cluster) -> io::Result<()> {
        if self.lost_percent == 0 {
            return Ok(());
        }
        let rules = format!(
            "table inet loss {{\nchain forward {{\ntype filter hook forward priority 0;\nnumgen random mod 100 < {} drop\n}}\n}}\n",
            self.lost_percent
        );
        let run = || Command::new("nft").arg(&rules).output();
        let output = cluster.lab.at(ROUTER, 0, run)?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(()) } else { Err(io::Error::other(format!("nft: {}", said.trim()))) }
    }

    /// The load, and how often a data server died meanwhile.
    fn measure(&self, bench: &Bench, cluster: &Cluster) -> io::Result<(Trial, u64)> {
        let load = Load {
            connections: CONNECTIONS,
            requests: Some(REQUESTS_PER_CONNECTION),
            rate: None,
            warm_up: Duration::ZERO,
            window: Duration::from_secs_f64(bench.options.run.seconds),
            verify_every: 1,
        };
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let deaths = scope.spawn(|| if self.deaths { kill_in_turn(cluster, &ended) } else { Ok(0) });
            let trial = bench.measure_mix(cluster, &SIZES.map(|(name, weight)| (size(name), weight)), &load);
            ended.store(true, Ordering::Relaxed);
            let deaths = deaths.join().map_err(|_| io::Error::other("the killing thread panicked"))??;
            Ok((trial?, deaths))
        })
    }
}

/// Has data servers die one after the other.
fn kill_in_turn(cluster: &Cluster, ended: &AtomicBool) -> io::Result<u64> {
    let mut deaths = 0;
    let hosts = SETUP.hosts();
    let mut behind = hosts.iter().skip(SETUP.connection_servers).cycle();
    while !ended.load(Ordering::Relaxed) {
        std::thread::park_timeout(DEATH_EVERY);
        let Some(machine) = behind.next() else { break };
        // The engine: its supervisor has it for a child.
        let processes = cluster.lab.processes(&machine.host)?;
        if let Some(engine) = processes.into_iter().find(|&pid| descendants(pid).len() == 1) {
            process::signal(engine, libc::SIGKILL)?;
            deaths += 1;
        }
    }
    Ok(deaths)
}
