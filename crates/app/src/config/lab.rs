//! The section of `leat lab`: what the machines that it pretends can do.

use super::kinds::{CPU_LIST, Count, Flag, Size, TIB};
use super::schema::{Fallback::*, section};

section! {
    /// `leat lab up FILE` builds the cluster of a file on one machine, in network namespaces: this says how large. Nothing else reads it.
    Lab "[lab]" example "[lab]\nclients = 2\nnode_rate_mbit = 1000\nnode_cpu_percent = 50\n" {
        /// How many clients there are.
        clients: u8 = Count::<u8> { min: 1, max: 32 }, Toml("1");
        /// Megabits a second from and to each node; 0 for no limit.
        node_rate_mbit: u32 = Count::<u32> { min: 0, max: 400_000 }, Toml("0");
        /// The same for the dispatcher, or the connection server.
        dispatcher_rate_mbit: u32 = Count::<u32> { min: 0, max: 400_000 }, Toml("0");
        /// The same for each client.
        client_rate_mbit: u32 = Count::<u32> { min: 0, max: 400_000 }, Toml("0");
        /// Whether links carry packets larger than their own (TSO, GSO, GRO), as network cards do.
        offloads: bool = Flag, Toml("true");
        /// Processor time of each node, in hundredths of a core; 0 for no limit.
        node_cpu_percent: u32 = Count::<u32> { min: 0, max: 102_400 }, Toml("0");
        /// Processors that nodes may run on; `""` for all.
        node_cpus: String = CPU_LIST, Toml("\"\"");
        /// Processors that the dispatcher, or the connection server, may run on; `""` for all.
        dispatcher_cpus: String = CPU_LIST, Toml("\"\"");
        /// Memory of each node, the kernel's cache of files included; 0 for no limit.
        node_memory: u64 = Size::<u64>::between(0, TIB), Toml("\"0B\"");
        /// What each node may read from the disk under its sites in a second; 0 for no limit.
        node_read_rate: u64 = Size::<u64>::between(0, TIB), Toml("\"0B\"");
    }
}

impl Lab {
    /// Whether nodes are held to anything that takes a control group.
    #[must_use]
    pub fn limits_nodes(&self) -> bool {
        self.node_cpu_percent > 0 || !self.node_cpus.is_empty() || self.node_memory > 0 || self.node_read_rate > 0
    }
}
