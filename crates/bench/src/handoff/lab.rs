//! A lab of the bench's own, taken down when it's dropped or a signal ends the program, and what runs in its namespaces.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use leat::ctl;
use serde_json::Value;

use crate::cleanup;
use crate::sys::process;

pub(super) const CLIENT: &str = "client1";
pub(super) const DISPATCHER: &str = "dispatcher";
pub(super) const ROUTER: &str = "router";
/// Name and address of each node.
pub(super) const NODES: [(&str, &str); 2] = [("n1", "10.77.0.11"), ("n2", "10.77.0.12")];
pub(super) const VIP: &str = "10.77.0.100";
/// The router's leg in the client's network.
pub(super) const ROUTER_ADDRESS: &str = "198.18.0.254";
/// Idle connections and some hundred busy ones at one node.
const DESCRIPTORS: u64 = 20_000;

pub(super) struct Lab {
    program: PathBuf,
    name: String,
    socket: PathBuf,
}

impl Lab {
    /// Builds it, with `root` as what all nodes serve. The dispatcher has the first processor, the nodes have all from the third on.
    ///
    /// # Errors
    /// What leat says; most often that this isn't root.
    pub(super) fn up(program: &Path, folder: &Path, root: &Path) -> io::Result<Self> {
        let lab = Self {
            program: program.to_owned(),
            name: format!("b{}", std::process::id()),
            socket: folder.join("leat.sock"),
        };
        let file = folder.join("cluster.toml");
        fs::write(folder.join("cluster.key"), "0f".repeat(32))?;
        fs::write(&file, lab.configuration(root))?;
        process::allow_descriptors(DESCRIPTORS)?;
        let mut up = lab.command("up");
        up.arg(&file);
        process::start_as_others(&mut up, &all_cores());
        cleanup::run_at_end(&lab.program, &lab.arguments("down"));
        let output = up.output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok(lab)
    }

    fn configuration(&self, root: &Path) -> String {
        let nodes: String = NODES
            .iter()
            .map(|(name, address)| format!("[[cluster.node]]\nname = '{name}'\naddress = '{address}'\n"))
            .collect();
        let last = all_cores().len() - 1;
        format!(
            "[admin]\nlisten = ''\nsocket = '{}'\n[cluster]\nvip = '{VIP}:80'\ndispatchers = '10.77.0.1'\n\
             key_file = 'cluster.key'\npolicy = 'round_robin'\n{nodes}[[site]]\nroot = '{}'\nlisten = '0.0.0.0:80'\n\
             [lab]\ndispatcher_cpus = '0'\nnode_cpus = '{}-{last}'\n",
            self.socket.display(),
            root.display(),
            last.min(2),
        )
    }

    fn arguments(&self, command: &str) -> Vec<String> {
        ["lab", "--name", &self.name, command].map(str::to_owned).to_vec()
    }

    fn command(&self, command: &str) -> Command {
        let mut leat = Command::new(&self.program);
        leat.args(self.arguments(command));
        leat
    }

    pub(super) fn namespace(&self, host: &str) -> PathBuf {
        Path::new("/run/netns").join(format!("leat-lab-{}-{host}", self.name))
    }

    /// Does something in a host's namespace, on a thread of its own that stays on a processor. Sockets that it makes stay there.
    pub(super) fn at<T: Send>(
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
    pub(super) fn processes(&self, host: &str) -> io::Result<Vec<u32>> {
        let namespace = fs::metadata(self.namespace(host))?.ino();
        let is_there = |pid: u32| fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|met| met.ino() == namespace);
        let entries = fs::read_dir("/proc")?.flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Ok(pids.filter(|&pid| is_there(pid)).collect())
    }

    /// Asks the dispatcher.
    pub(super) fn ask(&self, command: &ctl::Command) -> io::Result<Value> {
        ctl::ask(&self.socket, command).map_err(io::Error::other)
    }

    /// How many connections a node has been given.
    pub(super) fn flows(&self, node: &str) -> io::Result<u64> {
        Ok(self.ask(&ctl::Command::Flows)?["nodes"][node].as_u64().unwrap_or(0))
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

fn all_cores() -> Vec<usize> {
    (0..std::thread::available_parallelism().map_or(1, usize::from)).collect()
}
