//! What goes wrong in a lab on purpose, while every byte of every reply is compared: packets are lost, servers die. And what is told of it.

use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Lab, ROUTER};
use crate::experiment::{Records, Samples};
use crate::load::{Failure, Outcome};
use crate::server::running::descendants;
use crate::sys::process;

/// From one server's death to the next one's: its supervisor starts it again meanwhile.
const DEATH_EVERY: Duration = Duration::from_secs(5);

/// What tables show.
pub(crate) const COLUMNS: [(&str, &str, usize); 9] = [
    ("answered", "answered", 0),
    ("compared", "compared byte for byte", 0),
    ("wrong", "wrong", 0),
    ("refused", "not 200", 0),
    ("deaths", "deaths of servers", 0),
    ("cut", "connections cut", 0),
    ("answered_per_s", "answered/s", 0),
    ("p99_ms", "p99 ms", 0),
    ("longest_ms", "longest ms", 0),
];

/// So many of a hundred packets are lost, each way: at the router, where packets are those of the wire, and none is lost between the servers.
///
/// # Errors
/// What `nft` says.
pub(crate) fn lose_packets(lab: &Lab, lost_percent: u32) -> io::Result<()> {
    if lost_percent == 0 {
        return Ok(());
    }
    let rules = format!(
        "table inet loss {{\nchain forward {{\ntype filter hook forward priority 0;\nnumgen random mod 100 < {lost_percent} drop\n}}\n}}\n"
    );
    let run = || Command::new("nft").arg(&rules).output();
    let output = lab.at(ROUTER, 0, run)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(io::Error::other(format!("nft: {}", said.trim()))) }
}

/// Does something while servers die one after the other; gives how often one did. Without hosts, none does.
///
/// # Errors
/// Those of `work`, and a server that can't be killed.
pub(crate) fn while_they_die<T>(
    lab: &Lab,
    hosts: &[String],
    work: impl FnOnce() -> io::Result<T>,
) -> io::Result<(T, u64)> {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let deaths = scope.spawn(|| kill_in_turn(lab, hosts, &ended));
        let done = work();
        ended.store(true, Ordering::Relaxed);
        deaths.thread().unpark();
        let deaths = deaths.join().map_err(|_| io::Error::other("the killing thread panicked"))??;
        Ok((done?, deaths))
    })
}

fn kill_in_turn(lab: &Lab, hosts: &[String], ended: &AtomicBool) -> io::Result<u64> {
    let mut deaths = 0;
    for host in hosts.iter().cycle() {
        std::thread::park_timeout(DEATH_EVERY);
        if ended.load(Ordering::Relaxed) {
            break;
        }
        // The engine: its supervisor has it for a child.
        let processes = lab.processes(host)?;
        if let Some(engine) = processes.into_iter().find(|&pid| descendants(pid).len() == 1) {
            process::signal(engine, libc::SIGKILL)?;
            deaths += 1;
        }
    }
    Ok(deaths)
}

/// Writes down what became of the requests of the case's only round.
pub(crate) fn record(records: &mut Records, (case, point): (&str, &str), name: &str, outcome: &Outcome, deaths: u64) {
    let count = |kinds: &[Failure]| kinds.iter().filter_map(|kind| outcome.failures.get(kind)).sum::<u64>() as f64;
    let at = (case, point, 0);
    records.record(at, name, "answered", outcome.answered as f64);
    records.record(at, name, "compared", outcome.verified as f64);
    records.record(at, name, "wrong", count(&[Failure::Body, Failure::Length, Failure::MalformedHead]));
    records.record(at, name, "refused", count(&[Failure::Status(503)]));
    records.record(at, name, "cut", count(&[Failure::ClosedEarly, Failure::Connect]));
    records.record(at, name, "deaths", deaths as f64);
    records.record(at, name, "answered_per_s", outcome.answered_per_s());
    records.record(at, name, "p99_ms", outcome.latency_us(0.99) / 1e3);
    records.record(at, name, "longest_ms", outcome.latency_ns.max() as f64 / 1e6);
    records.note(case, &format!("what failed, by kind: {:?}", outcome.failures));
}

/// What is asked of a case: its words, what was counted, and what it may be at most.
pub(crate) fn judged(samples: &Samples, case: &str, name: &str, requests: f64) -> [(String, Option<f64>, f64); 3] {
    let of = |metric| samples.median(case, "", name, metric);
    let missing = of("answered").map(|answered| (requests - answered).max(0.0));
    [
        ("replies with a wrong byte".to_owned(), of("wrong"), 0.0),
        ("connections cut".to_owned(), of("cut"), 0.0),
        (format!("requests that are missing to {requests}"), missing, 0.0),
    ]
}
