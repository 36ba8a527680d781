//! What the cases run on: files, a lab for each way, side by side, and what all of a lab's processes spend.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use leat::ctl;

use crate::experiment::{self, Records, RunOptions};
use crate::lab::cost::packet_threads;
use crate::lab::{self, CLIENT, CLIENT_CORE, DISPATCHER, Lab};
use crate::load::{self, Outcome, Plan, Unobserved};
use crate::server::running::WorkFolder;
use crate::sys::process;
use crate::workload::file_set::FileSet;
use crate::workload::mix::{Body, CLOSE, Mix, Target};

const NODES: [(&str, &str); 2] = [("n1", "10.77.0.11"), ("n2", "10.77.0.12")];
const VIP: &str = "10.77.0.100";
/// In the nodes' network.
const ROUTER: &str = "10.77.0.254";
/// For what servers say to each other of connections that have ended.
const AFTERWARDS: Duration = Duration::from_millis(30);

/// A file for each size.
pub(super) const SIZES: [(&str, &str, u64); 4] =
    [("1 KB", "1k", 1 << 10), ("8 KB", "8k", 8 << 10), ("64 KB", "64k", 64 << 10), ("1 MB", "1m", 1 << 20)];

/// What the cases run on.
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

/// What is the same for all ways of a case.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub(super) round_trip_ms: u32,
    /// Connections can begin at nodes; otherwise they can only be moved there.
    pub(super) born: bool,
}

/// A lab that is up, whose dispatcher does one thing with first requests.
pub(super) struct Cluster {
    pub(super) hand_over: &'static str,
    lab: Lab,
    /// Of the dispatcher, the nodes and the client's line, and the kernel's own that handle packets.
    processes: Vec<u32>,
}

/// One measurement.
pub(super) struct Trial {
    pub(super) outcome: Outcome,
    /// Processor time of all for a request, in microseconds: the cluster's, the client's and its line's.
    pub(super) system_us: f64,
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

    /// Builds a lab whose dispatcher does so with first requests.
    ///
    /// # Errors
    /// What leat says.
    pub(super) fn up(&self, setting: Setting, hand_over: &'static str) -> io::Result<Cluster> {
        let folder = self.folder.path().join(hand_over);
        fs::create_dir_all(&folder)?;
        let text = self.configuration(setting, hand_over, &folder);
        let lab = Lab::up(&self.program, &folder, &[text])?;
        lab.await_fit(&NODES.map(|(name, _)| name))?;
        let hosts = [DISPATCHER, NODES[0].0, NODES[1].0, CLIENT];
        let mut processes: Vec<u32> = hosts.iter().flat_map(|host| lab.processes(host)).flatten().collect();
        processes.extend(packet_threads());
        Ok(Cluster { hand_over, lab, processes })
    }

    /// A closed loop for one file, from the first connection's beginning to the last one's end.
    ///
    /// # Errors
    /// The load can't run.
    pub(super) fn measure(&self, cluster: &Cluster, plan: &Plan, file: &str) -> io::Result<Trial> {
        let content = self.files.content(file);
        let body = content.map_or(Body::Unknown, |(_, content)| Body::Seeded(content));
        let fields = if plan.requests_per_connection == Some(1) { CLOSE } else { "" };
        let target = Target::of_host(VIP, &format!("/{file}"), fields);
        let mix = Mix::new(vec![(target.with_body(content.map(|(bytes, _)| bytes), body), 1.0)]);
        let before = cluster.handed_over()?;
        let (outcome, spent) = cluster.lab.at(CLIENT, CLIENT_CORE, || {
            let spent = || Ok::<_, io::Error>(cluster.spent() + process::own_thread_cpu_time()?);
            let before = spent()?;
            let outcome = load::run(plan, &mix, &mut Unobserved)?;
            thread::sleep(AFTERWARDS);
            Ok((outcome, spent()?.saturating_sub(before)))
        })?;
        let handed_over = (cluster.handed_over()? - before) as f64 / outcome.connects.max(1) as f64;
        Ok(Trial { system_us: spent.as_secs_f64() * 1e6 / outcome.sent.max(1) as f64, handed_over, outcome })
    }

    fn configuration(&self, setting: Setting, hand_over: &str, folder: &Path) -> String {
        let Setting { round_trip_ms, born } = setting;
        let nodes: String = NODES
            .iter()
            .map(|(name, address)| format!("[[cluster.node]]\nname = '{name}'\naddress = '{address}'\n"))
            .collect();
        format!(
            "[admin]\nlisten = ''\nsocket = '{}'\n[cluster]\nvip = '{VIP}:80'\ndispatchers = '10.77.0.1'\n\
             key_file = 'cluster.key'\npolicy = 'round_robin'\nhand_over = '{hand_over}'\nborn = {born}\n{nodes}\
             [[site]]\nroot = '{}'\nlisten = '0.0.0.0:80'\n{}client_delay = '{}ms'\n",
            Lab::socket(folder).display(),
            self.folder.path().join("files").display(),
            lab::processors(),
            round_trip_ms / 2,
        )
    }
}

impl Cluster {
    /// Has the dispatcher and the nodes send to clients by this algorithm from their next connection on. By a route: a namespace may not have a default that
    /// isn't everybody's.
    ///
    /// # Errors
    /// This kernel doesn't have it.
    pub(super) fn set_congestion_control(&self, algorithm: &str) -> io::Result<()> {
        for host in [DISPATCHER, NODES[0].0, NODES[1].0] {
            let namespace = self.lab.namespace(host);
            let mut ip = Command::new("ip");
            ip.arg("-n").arg(namespace.file_name().unwrap_or_default());
            ip.args(["route", "replace", "default", "via", ROUTER, "congctl", algorithm]);
            let output = ip.output()?;
            if !output.status.success() {
                return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
            }
        }
        Ok(())
    }

    /// What the dispatcher takes each way to cost for a connection's first request.
    pub(super) fn estimates(&self, file: &str) -> io::Result<String> {
        let answer = self.lab.ask(&ctl::Command::Explain { request: format!("GET http://{VIP}/{file}") })?;
        let text = answer["text"].as_str().unwrap_or_default();
        Ok(text.lines().find(|line| line.contains("first request")).unwrap_or(text).trim().to_owned())
    }

    /// Connections that have gone to nodes so far, by either way.
    fn handed_over(&self) -> io::Result<u64> {
        Ok(self.lab.number("leat_births_total")? + self.lab.number("leat_handoffs_total")?)
    }

    fn spent(&self) -> Duration {
        self.processes.iter().filter_map(|&pid| process::cpu_time(pid).ok()).sum()
    }
}
