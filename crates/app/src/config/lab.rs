//! The section of `leat lab`: what the machines that it pretends can do.

use std::path::PathBuf;
use std::time::Duration;

use super::kinds::{CPU_LIST, Count, DIRECTORY, Flag, Optional, Percent, Period, Size, TIB};
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
        /// How long packets from and to each client are under way, one way: a round trip takes twice that.
        client_delay: Duration = Period { min_ms: 0, max_ms: 1_000 }, Toml("\"0ms\"");
        /// How many of them are lost, each way. With `offloads` it's bursts that are.
        client_loss: u8 = Percent(Count { min: 0, max: 50 }), Toml("\"0%\"");
        /// How many of them are overtaken by those behind them.
        client_reorder: u8 = Percent(Count { min: 0, max: 50 }), Toml("\"0%\"");
        /// Whether links carry packets larger than their own (TSO, GSO, GRO), as network cards do.
        offloads: bool = Flag, Toml("true");
        /// Processor time of each node, in hundredths of a core; 0 for no limit.
        node_cpu_percent: u32 = Count::<u32> { min: 0, max: 102_400 }, Toml("0");
        /// Processors that nodes may run on, each on as many of them as it has workers, in turn; `""` for all.
        node_cpus: String = CPU_LIST, Toml("\"\"");
        /// Processors that the dispatcher, or the connection server, may run on; `""` for all.
        dispatcher_cpus: String = CPU_LIST, Toml("\"\"");
        /// Memory of each node, the kernel's cache of files included; 0 for no limit.
        node_memory: u64 = Size::<u64>::between(0, TIB), Toml("\"0B\"");
        /// What each node may read from the disk under its sites in a second; 0 for no limit.
        node_read_rate: u64 = Size::<u64>::between(0, TIB), Toml("\"0B\"");
        /// A directory that has one for each node, by its name. A node finds it where the first site's `root` is: so nodes have copies of their own, as
        /// machines do, and none of them finds in memory what another has read. Without it all have the same files.
        node_files: Option<PathBuf> = Optional(DIRECTORY), Otherwise("none");
    }
}

impl Lab {
    /// Whether clients are far away: a process carries what they send and receive.
    #[must_use]
    pub fn has_lines(&self) -> bool {
        !self.client_delay.is_zero() || self.client_loss > 0 || self.client_reorder > 0
    }
}
