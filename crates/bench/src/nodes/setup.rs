//! The clusters that are measured: how many nodes, what each is held to, and by which policy they're chosen.

use std::path::Path;

use crate::lab::faults::Wire;
use crate::lab::{self, Lab};

/// A dispatcher, nodes and what they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setup {
    pub(super) nodes: usize,
    pub(super) policy: Policy,
    /// What each node is held to, and whether it has its own files; none for as much as there is.
    pub(super) limits: Option<Limits>,
    /// Links carry packets as wires do.
    pub(super) wire: Option<Wire>,
    /// Nodes tell of short replies too.
    pub(super) are_all_told: bool,
}

/// What one node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Of a core.
    pub(super) cpu_percent: u32,
    /// Memory and what its disk gives in a second; none for no limit of either, and files that it has in common with others.
    pub(super) disk: Option<Disk>,
}

/// A node's memory and disk, in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Disk {
    pub(super) memory_mib: u32,
    pub(super) read_mib_per_s: u32,
    /// Of the memory, what leat's own cache may take.
    pub(super) cache_mib: u32,
}

/// By what nodes are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    MixLard,
    /// LARD/R: all requests by content, those too that run a program.
    Lard,
    RoundRobin,
    LeastConnections,
}

impl Policy {
    /// As in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Policy::MixLard => "Mix-LARD",
            Policy::Lard => "LARD/R",
            Policy::RoundRobin => "weighted round robin",
            Policy::LeastConnections => "least connections",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Policy::MixLard => "policy = 'mix_lard'\n",
            Policy::Lard => {
                "policy = 'mix_lard'\ndynamic = { methods = [], paths = [], extensions = [], query = 'never' }\n"
            }
            Policy::RoundRobin => "policy = 'round_robin'\n",
            Policy::LeastConnections => "policy = 'least_connections'\n",
        }
    }
}

/// A node's name and address, from the first.
pub(super) fn node(number: usize) -> (String, String) {
    (format!("n{number}"), format!("10.77.0.{}", 10 + number))
}

pub(super) const VIP: &str = "10.77.0.100";
/// Below this, requests compute.
pub(super) const PROGRAMS: &str = "/cgi-bin";

impl Setup {
    pub(super) fn names(&self) -> Vec<String> {
        (1..=self.nodes).map(|number| node(number).0).collect()
    }

    /// Nodes have their files below `copies` where their memory is limited, else all have `root`.
    pub(super) fn configuration(&self, folder: &Path, root: &Path, copies: &Path) -> String {
        let nodes: String = (1..=self.nodes)
            .map(node)
            .map(|(name, address)| format!("[[cluster.node]]\nname = '{name}'\naddress = '{address}'\n"))
            .collect();
        let (mut limits, mut cache) = (String::new(), String::new());
        if let Some(Limits { cpu_percent, disk }) = self.limits {
            limits += &format!("node_cpu_percent = {cpu_percent}\n");
            if let Some(Disk { memory_mib, read_mib_per_s, cache_mib }) = disk {
                cache = format!("[files]\ncache_size = '{cache_mib}MiB'\n");
                limits += &format!(
                    "node_memory = '{memory_mib}MiB'\nnode_read_rate = '{read_mib_per_s}MiB'\nnode_files = '{}'\n",
                    copies.display()
                );
            }
        }
        limits.extend(self.wire.map(Wire::settings));
        let told = if self.are_all_told { "" } else { "replies_told = 'long'\n" };
        format!(
            "[admin]\nlisten = ''\nsocket = '{}'\n{cache}[cluster]\nvip = '{VIP}:80'\ndispatchers = '10.77.0.1'\n\
             key_file = 'cluster.key'\n{told}{}{nodes}[[site]]\nroot = '{}'\nlisten = '0.0.0.0:80'\nmax_queue_delay = '0s'\n\
             [[site.handler]]\npath = '{PROGRAMS}/*'\nburn = {{}}\n{}{limits}",
            Lab::socket(folder).display(),
            self.policy.text(),
            root.display(),
            lab::processors(),
        )
    }
}
