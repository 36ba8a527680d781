//! Squid as a cache before another server: one process, everything in memory, no log.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{DESCRIPTORS_MAX, KEEP_ALIVE_S, Server, Site, find_program};

pub(crate) struct Squid {
    /// The server that has the content.
    pub(crate) origin: SocketAddr,
    /// What it may keep, in 4 KB pages.
    pub(crate) memory_mb: u32,
}

impl Server for Squid {
    fn name(&self) -> &str {
        "squid"
    }

    fn program(&self) -> Option<PathBuf> {
        find_program("squid")
    }

    fn package(&self) -> Option<&'static str> {
        Some("squid")
    }

    /// The site's files are the origin's.
    fn command(&self, _site: &Site, address: SocketAddr, directory: &Path) -> io::Result<Command> {
        let configuration = format!(
            "http_port {address} accel no-vhost defaultsite=localhost
cache_peer {origin} parent {port} 0 no-query no-digest no-netdb-exchange originserver name=origin
never_direct allow all
http_access allow all
cache_mem {memory} MB
maximum_object_size_in_memory 256 KB
memory_replacement_policy lru
memory_cache_shared off
client_idle_pconn_timeout {KEEP_ALIVE_S} seconds
max_filedescriptors {DESCRIPTORS_MAX}
access_log none
cache_log /dev/null
cache_store_log none
pid_filename none
netdb_filename none
pinger_enable off
icp_port 0
visible_hostname localhost
shutdown_lifetime 0 seconds
",
            origin = self.origin.ip(),
            port = self.origin.port(),
            memory = self.memory_mb,
        );
        let path = directory.join("squid.conf");
        std::fs::write(&path, configuration)?;
        let mut command = Command::new(self.program().ok_or(io::ErrorKind::NotFound)?);
        command.arg("-N").arg("-f").arg(path);
        Ok(command)
    }
}
