//! A node is drained: idle connections and busy ones go to the other node, and none is cut.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use leat::ctl::Command;

use super::at_most;
use crate::experiment::{Case, Samples};
use crate::handoff::bench::{Bench, LEAT, NODES, SIZES, vip};
use crate::lab::asking::ask_for;
use crate::lab::{CLIENT, CLIENT_CORE, Lab};
use crate::load::{self, Outcome, Plan, Unobserved};
use crate::result::Mark;
use crate::sys::{process, socket};

const NAME: &str = "drain";
const BUSY: usize = 100;
/// Rounds need connections of their own: local ports allow two.
const ROUNDS_MAX: u32 = 2;
const LIMIT_S: f64 = 2.0;
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub(super) struct Drain;

impl Case<Bench> for Drain {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "a node with idle connections and 100 busy ones is drained, and all of them answer afterwards"
    }

    fn run(&self, bench: &mut Bench) -> io::Result<()> {
        process::allow_descriptors(bench.options.idle as u64 + 1_000)?;
        for round in 0..bench.options.run.rounds.min(ROUNDS_MAX) {
            let drained = drain(bench)?;
            let at = (NAME, "", round);
            bench.records.record(at, LEAT, "idle", bench.options.idle as f64);
            bench.records.record(at, LEAT, "moved", drained.moved as f64);
            bench.records.record(at, LEAT, "empty_s", drained.time.as_secs_f64());
            bench.records.record(at, LEAT, "idle_cut", drained.idle_cut as f64);
            bench.records.record(at, LEAT, "busy_failed", drained.busy.failed() as f64);
            bench.records.record(at, LEAT, "busy_answered", drained.busy.answered as f64);
            if drained.busy.failed() > 0 {
                bench.records.note(NAME, &format!("round {round}: busy connections: {:?}", drained.busy.failures));
            }
        }
        Ok(())
    }

    fn marks(&self, samples: &Samples) -> Vec<Mark> {
        let most = |metric| samples.spread(NAME, "", LEAT, metric).map(|spread| spread.max);
        let cut = most("idle_cut").zip(most("busy_failed")).map(|(idle, busy)| idle + busy);
        let limits = [("none cut", cut, 0.0, ""), ("empty within two seconds", most("empty_s"), LIMIT_S, "s")];
        limits
            .map(|(text, value, limit, unit)| at_most((NAME, ""), text, value, Some(limit), unit, String::new()))
            .into()
    }

    fn columns(&self) -> Vec<(&'static str, &'static str, usize)> {
        vec![
            ("idle", "idle", 0),
            ("moved", "at the node", 0),
            ("empty_s", "empty after s", 2),
            ("idle_cut", "idle cut", 0),
            ("busy_failed", "busy failed", 0),
            ("busy_answered", "busy answered", 0),
        ]
    }
}

struct Drained {
    moved: u64,
    time: Duration,
    idle_cut: usize,
    busy: Outcome,
}

fn drain(bench: &Bench) -> io::Result<Drained> {
    let (lab, [(from, _), (to, _)]) = (&bench.lab, NODES);
    // The other one takes nothing until all connections are where they are to be taken from.
    lab.ask(&Command::Drain { node: to.to_owned() })?;
    await_flows(lab, to, |flows| flows == 0)?;
    let mut idle = lab.at(CLIENT, CLIENT_CORE, || open(bench.options.idle))?;
    let mix = bench.requests(&[(SIZES[1].file, 1.0)], false);
    let plan = Plan { window: Duration::from_secs(5), ..bench.saturate(vip(), BUSY) };
    let (moved, time, busy) = thread::scope(|scope| {
        let busy = scope.spawn(|| lab.at(CLIENT, CLIENT_CORE, || load::run(&plan, &mix, &mut Unobserved)));
        let drained = (|| {
            let wanted = (bench.options.idle + BUSY) as u64;
            await_flows(lab, from, |flows| flows >= wanted)?;
            lab.ask(&Command::Resume { node: to.to_owned() })?;
            let began = Instant::now();
            let moved = lab.ask(&Command::Drain { node: from.to_owned() })?["flows"].as_u64().unwrap_or(0);
            await_flows(lab, from, |flows| flows == 0)?;
            Ok::<_, io::Error>((moved, began.elapsed()))
        })();
        let busy = busy.join().map_err(|_| io::Error::other("the load panicked"))?;
        let (moved, time) = drained?;
        Ok::<_, io::Error>((moved, time, busy?))
    })?;
    let idle_cut = idle.iter_mut().filter_map(|stream| ask_for(stream, SIZES[0].wanted()).err()).count();
    lab.ask(&Command::Resume { node: from.to_owned() })?;
    for stream in idle {
        socket::reset_on_close(&OwnedFd::from(stream));
    }
    Ok(Drained { moved, time, idle_cut, busy })
}

/// Connections that have had a reply each.
fn open(count: usize) -> io::Result<Vec<TcpStream>> {
    let open = |_| {
        let mut stream = TcpStream::connect(vip())?;
        ask_for(&mut stream, SIZES[0].wanted())?;
        Ok(stream)
    };
    (0..count).map(open).collect()
}

fn await_flows(lab: &Lab, node: &str, is_enough: impl Fn(u64) -> bool) -> io::Result<()> {
    let began = Instant::now();
    loop {
        let flows = lab.ask(&Command::Flows)?["nodes"][node].as_u64().unwrap_or(0);
        if is_enough(flows) {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            return Err(io::Error::other(format!("{node} has {flows} connections after {PATIENCE:?}")));
        }
        thread::sleep(LOOK_EVERY);
    }
}
