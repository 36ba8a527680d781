//! What the case runs on: files, a lab for each round-trip time, and what all of its processes spend.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use leat::ctl::Command;

use crate::experiment::{self, Records, RunOptions};
use crate::lab::cost::Meter;
use crate::lab::{self, CLIENT, CLIENT_CORE, Lab};
use crate::load::{self, Outcome, Plan};
use crate::server::running::{WorkFolder, descendants};
use crate::sys::process::signal;
use crate::workload::file_set::FileSet;
use crate::workload::mix::{Body, CLOSE, Mix, Target};

const DISPATCHER: &str = "dispatcher";
const NODES: [(&str, &str); 2] = [("n1", "10.77.0.11"), ("n2", "10.77.0.12")];
const VIP: &str = "10.77.0.100";
/// In the nodes' network.
const ROUTER: &str = "10.77.0.254";
/// How long a reload may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A file for each size.
pub(super) const SIZES: [(&str, &str, u64); 4] =
    [("1 KB", "1k", 1 << 10), ("8 KB", "8k", 8 << 10), ("64 KB", "64k", 64 << 10), ("1 MB", "1m", 1 << 20)];

/// What the case runs on.
pub(crate) struct Bench {
    pub(super) options: RunOptions,
    pub(crate) records: Records,
    program: PathBuf,
    files: FileSet,
    folder: WorkFolder,
}

impl experiment::Bench for Bench {
    fn records(&mut self) -> &mut Records {
        &mut self.records
    }
}

/// A lab that is up.
pub(super) struct Cluster {
    lab: Lab,
    /// Of the dispatcher, the nodes and the client's line, and the kernel's own that handle packets.
    processes: Vec<u32>,
}

/// One measurement.
pub(super) struct Trial {
    pub(super) outcome: Outcome,
    /// Processor time of all: the cluster's, the client's and its line's.
    pub(super) spent: Duration,
    /// Connections that went to a node, of those that began.
    pub(super) handed_over: f64,
}

impl Bench {
    pub(super) fn new(options: RunOptions, program: &Path) -> io::Result<Self> {
        let folder = WorkFolder::create("ways")?;
        let sizes = SIZES.map(|(_, file, bytes)| (file, bytes));
        let files = FileSet::of_sizes(&folder.path().join("files"), &sizes, options.seed)?;
        Ok(Self { options, records: Records::default(), program: program.to_owned(), files, folder })
    }

    /// Builds a lab whose client is so far away.
    ///
    /// # Errors
    /// What leat says.
    pub(super) fn up(&self, round_trip_ms: u32) -> io::Result<Cluster> {
        let text = self.configuration("always", round_trip_ms);
        let lab = Lab::up(&self.program, self.folder.path(), &[text])?;
        let hosts = [DISPATCHER, NODES[0].0, NODES[1].0, CLIENT];
        let mut processes: Vec<u32> = hosts.iter().flat_map(|host| lab.processes(host)).flatten().collect();
        processes.extend(packet_threads());
        Ok(Cluster { lab, processes })
    }

    /// Has the dispatcher and the nodes send to clients by this algorithm from their next connection on. By a route: a namespace may not have a default that
    /// isn't everybody's.
    ///
    /// # Errors
    /// This kernel doesn't have it.
    pub(super) fn set_congestion_control(&self, cluster: &Cluster, algorithm: &str) -> io::Result<()> {
        for host in [DISPATCHER, NODES[0].0, NODES[1].0] {
            let namespace = cluster.lab.namespace(host);
            let mut ip = process::Command::new("ip");
            ip.arg("-n").arg(namespace.file_name().unwrap_or_default());
            ip.args(["route", "replace", "default", "via", ROUTER, "congctl", algorithm]);
            let output = ip.output()?;
            if !output.status.success() {
                return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
            }
        }
        Ok(())
    }

    /// Tells the dispatcher what to do with first requests.
    ///
    /// # Errors
    /// It doesn't take it over.
    pub(super) fn set_hand_over(&self, cluster: &Cluster, hand_over: &str, round_trip_ms: u32) -> io::Result<()> {
        let file = self.folder.path().join("cluster0.toml");
        fs::write(file, self.configuration(hand_over, round_trip_ms))?;
        let reloads = || number(&cluster.lab, "leat_reloads_total");
        let before = reloads()?;
        let supervisor = cluster.lab.processes(DISPATCHER)?.into_iter().max_by_key(|&pid| descendants(pid).len());
        supervisor.map_or(Err(io::ErrorKind::NotFound.into()), |pid| signal(pid, libc::SIGHUP))?;
        let began = Instant::now();
        while reloads()? == before {
            if began.elapsed() > PATIENCE {
                return Err(io::Error::other("the dispatcher doesn't take over its configuration"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// A closed loop for one file, with so many requests on each connection.
    ///
    /// # Errors
    /// The load can't run.
    pub(super) fn measure(&self, cluster: &Cluster, plan: &Plan, file: &str) -> io::Result<Trial> {
        let content = self.files.content(file);
        let body = content.map_or(Body::Unknown, |(_, content)| Body::Seeded(content));
        let fields = if plan.requests_per_connection == Some(1) { CLOSE } else { "" };
        let target = Target::of_host(VIP, &format!("/{file}"), fields);
        let mix = Mix::new(vec![(target.with_body(content.map(|(bytes, _)| bytes), body), 1.0)]);
        let mut meter = Meter::new(cluster.processes.clone());
        let before = handed_over(&cluster.lab)?;
        let outcome = cluster.lab.at(CLIENT, CLIENT_CORE, || load::run(plan, &mix, &mut meter))?;
        let handed_over = (handed_over(&cluster.lab)? - before) as f64 / outcome.connects.max(1) as f64;
        Ok(Trial { spent: meter.spent.process + outcome.cpu, handed_over, outcome })
    }

    fn configuration(&self, hand_over: &str, round_trip_ms: u32) -> String {
        let folder = self.folder.path();
        let nodes: String = NODES
            .iter()
            .map(|(name, address)| format!("[[cluster.node]]\nname = '{name}'\naddress = '{address}'\n"))
            .collect();
        format!(
            "[admin]\nlisten = ''\nsocket = '{}'\n[cluster]\nvip = '{VIP}:80'\ndispatchers = '10.77.0.1'\n\
             key_file = 'cluster.key'\npolicy = 'round_robin'\nhand_over = '{hand_over}'\n{nodes}\
             [[site]]\nroot = '{}'\nlisten = '0.0.0.0:80'\n{}client_delay = '{}ms'\n",
            Lab::socket(folder).display(),
            folder.join("files").display(),
            lab::processors(),
            round_trip_ms / 2,
        )
    }
}

/// Connections that have gone to nodes so far, by either way.
fn handed_over(lab: &Lab) -> io::Result<u64> {
    Ok(number(lab, "leat_births_total")? + number(lab, "leat_handoffs_total")?)
}

/// One of the dispatcher's metrics.
fn number(lab: &Lab, name: &str) -> io::Result<u64> {
    let answer = lab.ask(&Command::Counters)?;
    let text = answer["text"].as_str().unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    line.ok_or_else(|| io::Error::other(format!("the dispatcher doesn't tell {name}")))
}

/// The kernel's threads that take packets further when nobody else does.
fn packet_threads() -> Vec<u32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_one =
        |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("ksoftirqd/"));
    pids.filter(is_one).collect()
}
