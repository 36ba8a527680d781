//! A lab of the bench's own, taken down when it's dropped or a signal ends the program, and what runs in its namespaces.

pub(crate) mod asking;
pub(crate) mod cost;
pub(crate) mod faults;
pub(crate) mod origin;
pub(crate) mod placed;
pub(crate) mod proxy;
pub(crate) mod steered;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use leat::ctl;
use serde_json::Value;

use crate::cleanup;
use crate::sys::process;

pub(crate) const CLIENT: &str = "client1";
pub(crate) const DISPATCHER: &str = "dispatcher";
pub(crate) const ROUTER: &str = "router";
/// The router's leg in the client's network.
pub(crate) const ROUTER_ADDRESS: &str = "198.18.0.254";
/// The core of the client.
pub(crate) const CLIENT_CORE: usize = 1;
/// Idle connections and some hundred busy ones at one node.
const DESCRIPTORS: u64 = 20_000;
/// How long a server may take until the dispatcher gives it connections.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Lab {
    program: PathBuf,
    name: String,
    socket: PathBuf,
}

impl Lab {
    /// Builds it from the clusters' configurations, whose hosts share its networks. The first one's control socket is [`Lab::socket`].
    ///
    /// # Errors
    /// What leat says; most often that this isn't root.
    pub(crate) fn up(program: &Path, folder: &Path, clusters: &[String]) -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let lab = Self {
            program: program.to_owned(),
            name: format!("b{}x{number}", std::process::id()),
            socket: Self::socket(folder),
        };
        fs::write(folder.join("cluster.key"), "0f".repeat(32))?;
        process::allow_descriptors(DESCRIPTORS)?;
        let mut up = lab.command("up");
        for (number, text) in clusters.iter().enumerate() {
            let file = folder.join(format!("cluster{number}.toml"));
            fs::write(&file, text)?;
            up.arg(&file);
        }
        process::start_as_others(&mut up, &all_cores());
        cleanup::run_at_end(&lab.program, &lab.arguments("down"));
        let output = up.output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok(lab)
    }

    /// Where a lab of `folder` is to be asked.
    pub(crate) fn socket(folder: &Path) -> PathBuf {
        folder.join("leat.sock")
    }

    fn arguments(&self, command: &str) -> Vec<String> {
        ["lab", "--name", &self.name, command].map(str::to_owned).to_vec()
    }

    fn command(&self, command: &str) -> Command {
        let mut leat = Command::new(&self.program);
        leat.args(self.arguments(command));
        leat
    }

    pub(crate) fn namespace(&self, host: &str) -> PathBuf {
        Path::new("/run/netns").join(format!("leat-lab-{}-{host}", self.name))
    }

    /// Does something in a host's namespace, on a thread of its own that stays on a processor. Sockets that it makes stay there.
    pub(crate) fn at<T: Send>(
        &self,
        host: &str,
        core: usize,
        work: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        let path = self.namespace(host);
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                process::pin_to_core(core % all_cores().len())?;
                process::enter_network(&path)?;
                work()
            });
            thread.join().map_err(|_| io::Error::other("the thread in a namespace panicked"))?
        })
    }

    /// The processes of a host.
    pub(crate) fn processes(&self, host: &str) -> io::Result<Vec<u32>> {
        let namespace = fs::metadata(self.namespace(host))?.ino();
        let is_there = |pid: u32| fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|met| met.ino() == namespace);
        let entries = fs::read_dir("/proc")?.flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Ok(pids.filter(|&pid| is_there(pid)).collect())
    }

    /// What leat has said at a host so far.
    ///
    /// # Errors
    /// There is no such host.
    pub(crate) fn log(&self, host: &str) -> io::Result<String> {
        fs::read_to_string(Path::new("/run/leat-lab").join(&self.name).join(format!("{host}.log")))
    }

    /// Has a host's disk, which the lab limits, give so many bytes a second from now on.
    pub(crate) fn limit_reads(&self, host: &str, bytes_per_s: u64) -> io::Result<()> {
        let namespace = self.namespace(host);
        let group = Path::new("/sys/fs/cgroup/blkio").join(namespace.file_name().unwrap_or_default());
        let file = group.join("blkio.throttle.read_bps_device");
        let set = fs::read_to_string(&file)?;
        let device = set.split_whitespace().next().ok_or_else(|| io::Error::other("its disk has no limit"))?;
        fs::write(&file, format!("{device} {bytes_per_s}"))
    }

    /// Asks the dispatcher.
    pub(crate) fn ask(&self, command: &ctl::Command) -> io::Result<Value> {
        ctl::ask(&self.socket, command).map_err(io::Error::other)
    }

    /// One of the dispatcher's metrics.
    ///
    /// # Errors
    /// It doesn't answer, or has no such metric.
    pub(crate) fn number(&self, name: &str) -> io::Result<u64> {
        let answer = self.ask(&ctl::Command::Counters)?;
        let text = answer["text"].as_str().unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        line.ok_or_else(|| io::Error::other(format!("the dispatcher doesn't tell {name}")))
    }

    /// Has a shell do something at a host.
    ///
    /// # Errors
    /// What it says.
    pub(crate) fn run_at(&self, host: &str, script: &str) -> io::Result<()> {
        let namespace = format!("--net={}", self.namespace(host).display());
        let done = Command::new("nsenter").args([&namespace, "sh", "-c", script]).output()?;
        let said = || format!("{host}: {}", String::from_utf8_lossy(&done.stderr).trim());
        if done.status.success() { Ok(()) } else { Err(io::Error::other(said())) }
    }

    /// Waits until the dispatcher gives connections to these nodes and no others.
    ///
    /// # Errors
    /// It still doesn't after the longest time that a server may take.
    pub(crate) fn await_fit(&self, wanted: &[&str]) -> io::Result<()> {
        let began = Instant::now();
        loop {
            let fit = self.fit_nodes()?;
            if fit == wanted {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(io::Error::other(format!(
                    "the servers of {fit:?} are found well, and not those of {wanted:?}"
                )));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn fit_nodes(&self) -> io::Result<Vec<String>> {
        let answer = self.ask(&ctl::Command::Nodes)?;
        let nodes = answer["nodes"].as_array().into_iter().flatten();
        let fit = nodes.filter(|node| node["standing"] == "may be chosen");
        Ok(fit.filter_map(|node| Some(node["name"].as_str()?.to_owned())).collect())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        match self.command("down").output() {
            Ok(output) if output.status.success() => cleanup::ran(&self.arguments("down")),
            Ok(output) => eprintln!("{}", String::from_utf8_lossy(&output.stderr)),
            Err(error) => eprintln!("the lab {} is left: {error}", self.name),
        }
    }
}

/// `[lab]` as every bench has it: who the clients know has the first processor, the nodes have all from the third on.
pub(crate) fn processors() -> String {
    let last = all_cores().len() - 1;
    format!("[lab]\ndispatcher_cpus = '0'\nnode_cpus = '{}-{last}'\n", node_core())
}

/// The first of the nodes' processors there.
pub(crate) fn node_core() -> usize {
    (all_cores().len() - 1).min(2)
}

/// The same for the `number`-th of so many servers that the clients know: each machine has a processor of its own, beside the client's, as far as there
/// are enough; nodes share what is left.
pub(crate) fn own_processors(number: usize, known: usize, nodes: usize) -> String {
    let mut free = all_cores();
    free.retain(|core| *core != CLIENT_CORE);
    let place = |place: usize| free.get(place).or(free.last()).copied().unwrap_or_default();
    let rest = (0..nodes.max(1)).map(|node| place(known + node).to_string()).collect::<BTreeSet<_>>();
    let rest = rest.into_iter().collect::<Vec<_>>().join(",");
    format!("[lab]\ndispatcher_cpus = '{}'\nnode_cpus = '{rest}'\n", place(number - 1))
}

fn all_cores() -> Vec<usize> {
    (0..std::thread::available_parallelism().map_or(1, usize::from)).collect()
}
