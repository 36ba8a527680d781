//! What the cases have in common: files, copies of them, a lab for each setup, and load from the client's namespace with clocks and disks read.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::NodesOptions;
use super::setup::{Limits, PROGRAMS, Setup, VIP, node};
use crate::experiment::{self, Records};
use crate::lab::cost::{Meter, Spent, hop_us};
use crate::lab::proxy::{Balance, Place, Proxy};
use crate::lab::{CLIENT, CLIENT_CORE, DISPATCHER, Lab};
use crate::load::{self, Observer, Outcome, Plan};
use crate::serve::cold_disk::forget;
use crate::server::running::WorkFolder;
use crate::sys::process;
use crate::workload::file_set::FileSet;
use crate::workload::mix::{Body, CLOSE, Mix, Target};
use crate::workload::specweb99;

pub(super) const LEAT: &str = "leat";
pub(super) const HAPROXY: &str = "haproxy";
/// Of so many replies one is compared byte for byte.
const VERIFY_EVERY: u64 = 8;

/// What the cases run on.
pub(crate) struct Bench {
    pub(super) options: NodesOptions,
    pub(crate) records: Records,
    program: PathBuf,
    folder: WorkFolder,
    _programs_are_timed: std::os::fd::OwnedFd,
}

impl experiment::Bench for Bench {
    fn records(&mut self) -> &mut Records {
        &mut self.records
    }
}

/// Files, and a folder with a copy for each node where there are any.
pub(super) struct Files {
    set: FileSet,
    root: PathBuf,
    copies: PathBuf,
}

/// One measurement.
pub(super) struct Trial {
    pub(super) outcome: Outcome,
    pub(super) dispatcher: Spent,
    pub(super) nodes: Vec<Spent>,
    /// By all nodes.
    pub(super) disk_bytes: u64,
    hop_us: f64,
}

impl Trial {
    /// Requests that went wrong; those that were under way when the time was up aren't among them.
    pub(super) fn failed(&self) -> u64 {
        self.outcome.failed() - self.outcome.left_over()
    }

    /// The dispatcher's process for each request, its eBPF programs, and what the kernel forwards there if it's one that forwards, in microseconds.
    pub(super) fn dispatcher_us(&self, forwards: bool) -> f64 {
        let Spent { process, programs, packets_in, .. } = self.dispatcher;
        let forwarding_us = if forwards { programs.as_secs_f64() * 1e6 + packets_in as f64 * self.hop_us } else { 0.0 };
        (process.as_secs_f64() * 1e6 + forwarding_us) / self.outcome.answered.max(1) as f64
    }

    /// The processor time of the node that used most, in hundredths of what all used on average: 100 where all had as much to do.
    pub(super) fn busiest_percent(&self) -> f64 {
        let spent = self.nodes.iter().map(|spent| spent.process.as_secs_f64());
        let (most, sum) = spent.fold((0.0_f64, 0.0), |(most, sum), one| (most.max(one), sum + one));
        if sum > 0.0 { most * self.nodes.len() as f64 / sum * 100.0 } else { 100.0 }
    }

    /// Of all that the nodes may use of processors, in hundredths.
    pub(super) fn used_percent(&self, limit: Limits) -> f64 {
        let spent: f64 = self.nodes.iter().map(|spent| spent.process.as_secs_f64()).sum();
        let granted =
            f64::from(limit.cpu_percent) / 100.0 * self.nodes.len() as f64 * self.outcome.window.as_secs_f64();
        spent / granted * 100.0
    }

    /// The nodes' processes for each request, in microseconds.
    pub(super) fn nodes_us(&self) -> f64 {
        let spent: Duration = self.nodes.iter().map(|spent| spent.process).sum();
        spent.as_secs_f64() * 1e6 / self.outcome.answered.max(1) as f64
    }
}

/// A setup that is up. Fields are dropped in this order.
pub(super) struct Cluster {
    proxy: Option<Proxy>,
    pub(super) lab: Lab,
    dispatcher: Vec<u32>,
    nodes: Vec<Vec<u32>>,
    hop_us: f64,
}

impl Bench {
    pub(super) fn new(options: NodesOptions, program: PathBuf) -> io::Result<Self> {
        let programs_are_timed = leat_host::steering::measure_run_time().map_err(io::Error::other)?;
        let folder = WorkFolder::create("nodes")?;
        Ok(Self { options, records: Records::default(), program, folder, _programs_are_timed: programs_are_timed })
    }

    /// A file for each of these sizes, for all nodes.
    pub(super) fn sizes(&self, sizes: &[(&str, u64)]) -> io::Result<Files> {
        let root = self.folder.path().join("sizes");
        let set = FileSet::of_sizes(&root, sizes, self.options.seed)?;
        Ok(Files { set, copies: root.clone(), root })
    }

    /// So many directories of SPECweb99's, each node with copies of its own.
    pub(super) fn specweb99(&self, directories: u32, nodes: usize) -> io::Result<Files> {
        let root = self.folder.path().join(format!("specweb99-{directories}"));
        let copies = root.with_extension("copies");
        let set = FileSet::create(&root, specweb99::files(directories), self.options.seed)?;
        for (name, _) in (1..=nodes).map(node) {
            copy(&root, &copies.join(name), set.paths())?;
        }
        Ok(Files { set, root, copies })
    }

    /// Builds a setup over these files, none of which is in memory.
    ///
    /// # Errors
    /// What leat or the proxy says.
    pub(super) fn up(&self, setup: &Setup, files: &Files) -> io::Result<Cluster> {
        let folder = self.folder.path();
        forget(&files.copies)?;
        let lab = Lab::up(&self.program, folder, &[setup.configuration(folder, &files.root, &files.copies)])?;
        let nodes = setup.names().iter().map(|name| lab.processes(name)).collect::<io::Result<_>>()?;
        let (name, address) = node(1);
        let (dispatcher, hop_us) = (lab.processes(DISPATCHER)?, hop_us(&lab, (&name, &address))?);
        Ok(Cluster { proxy: None, lab, dispatcher, nodes, hop_us })
    }

    /// Starts HAProxy in front of the same nodes.
    ///
    /// # Errors
    /// It doesn't start.
    pub(super) fn add_proxy(&self, cluster: &mut Cluster) -> io::Result<()> {
        let servers: Vec<_> = (1..=cluster.nodes.len()).map(node).collect();
        let servers: Vec<_> = servers.iter().map(|(name, address)| (name.as_str(), address.as_str())).collect();
        let (lab, folder) = (&cluster.lab, self.folder.path());
        cluster.proxy = Some(Proxy::haproxy(
            Place { lab, folder, host: DISPATCHER, address: VIP, servers: &servers },
            Balance::InTurn,
        )?);
        Ok(())
    }

    /// A closed loop on so many connections, with so many requests each.
    pub(super) fn saturate(&self, connections: usize, requests: u32) -> Plan {
        Plan {
            requests_per_connection: Some(requests),
            warm_up: Duration::from_millis(500),
            window: Duration::from_secs_f64(self.options.seconds),
            drain: Duration::from_secs(2),
            verify_every: VERIFY_EVERY,
            seed: self.options.seed,
            sleep: true,
            ..Plan::saturate(SocketAddr::new(VIP.parse().expect("it's written as an address"), 80), connections)
        }
    }

    /// Puts a load on leat, or on the proxy if `who` is its name.
    ///
    /// # Errors
    /// The load can't run.
    pub(super) fn measure(&self, cluster: &Cluster, who: &str, plan: &Plan, mix: &Mix) -> io::Result<Trial> {
        let proxy = cluster.proxy.as_ref().filter(|proxy| proxy.name == who);
        let plan = Plan { address: proxy.map_or(plan.address, |proxy| proxy.address), ..plan.clone() };
        let dispatcher = proxy.map_or_else(|| cluster.dispatcher.clone(), Proxy::processes);
        let disk = Disk { pids: cluster.nodes.concat(), begin: 0, bytes: 0 };
        let nodes = cluster.nodes.iter().cloned().map(Meter::new).collect();
        let mut readings = Readings { dispatcher: Meter::new(dispatcher), nodes, disk };
        let outcome = cluster.lab.at(CLIENT, CLIENT_CORE, || load::run(&plan, mix, &mut readings))?;
        Ok(Trial {
            outcome,
            dispatcher: readings.dispatcher.spent,
            nodes: readings.nodes.iter().map(|meter| meter.spent).collect(),
            disk_bytes: readings.disk.bytes,
            hop_us: cluster.hop_us,
        })
    }
}

impl Cluster {
    /// What each node's disk gives from now on, in MiB a second.
    pub(super) fn limit_reads(&self, mib_per_s: u32) -> io::Result<()> {
        (1..=self.nodes.len()).try_for_each(|number| self.lab.limit_reads(&node(number).0, u64::from(mib_per_s) << 20))
    }
}

impl Files {
    /// Requests for one of them, on connections that end with each where `close` says so.
    pub(super) fn requests(&self, file: &str, close: bool) -> Target {
        let content = self.set.content(file);
        let body = content.map_or(Body::Unknown, |(_, content)| Body::Seeded(content));
        let target = Target::of_host("localhost", &format!("/{file}"), if close { CLOSE } else { "" });
        target.with_body(content.map(|(bytes, _)| bytes), body)
    }

    /// Requests for all, as often as the benchmark has it.
    pub(super) fn all(&self) -> Vec<(Target, f64)> {
        self.set.targets(true, |_| true)
    }

    pub(super) fn mib(&self) -> f64 {
        self.set.paths().filter_map(|path| self.set.content(path)).map(|(bytes, _)| bytes as f64).sum::<f64>()
            / f64::from(1 << 20)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // The work folder's end takes what can't be removed here.
        let _ = fs::remove_dir_all(&self.copies);
    }
}

/// A request that computes for so long; all of one script have one path.
pub(super) fn computing(script: u32, us: u64) -> Target {
    const REPLY_BYTES: u64 = 1000;
    let target = Target::of_host("localhost", &format!("{PROGRAMS}/app{script}?us={us}&bytes={REPLY_BYTES}"), CLOSE);
    target.with_body(Some(REPLY_BYTES), Body::Unknown)
}

fn copy<'a>(root: &Path, to: &Path, paths: impl Iterator<Item = &'a str>) -> io::Result<()> {
    for path in paths {
        let copy = to.join(path);
        if let Some(parent) = copy.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::copy(root.join(path), copy)?;
    }
    Ok(())
}

/// Clocks and disks within the window.
struct Readings {
    dispatcher: Meter,
    nodes: Vec<Meter>,
    disk: Disk,
}

struct Disk {
    pids: Vec<u32>,
    begin: u64,
    bytes: u64,
}

impl Disk {
    fn now(&self) -> u64 {
        self.pids.iter().filter_map(|&pid| process::disk_bytes(pid).ok()).sum()
    }
}

impl Observer for Readings {
    fn window_begins(&mut self) {
        self.dispatcher.window_begins();
        self.nodes.iter_mut().for_each(Observer::window_begins);
        self.disk.begin = self.disk.now();
    }

    fn window_ends(&mut self) {
        self.dispatcher.window_ends();
        self.nodes.iter_mut().for_each(Observer::window_ends);
        self.disk.bytes = self.disk.now().saturating_sub(self.disk.begin);
    }
}
