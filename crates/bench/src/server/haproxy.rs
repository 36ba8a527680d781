//! HAProxy: one thread; replies with one file from memory, as it serves no files from disk. For experiments with one file only.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{DESCRIPTORS_MAX, KEEP_ALIVE_S, Server, Site, find_program};

pub(super) struct HaProxy;

/// It counts two descriptors for each connection, though it has no server behind it here.
const CONNECTIONS_HELD_MAX: usize = DESCRIPTORS_MAX / 2 - 500;
/// The file and its head must fit.
const BUFFER_BYTES: u64 = 80 << 10;

impl Server for HaProxy {
    fn name(&self) -> &str {
        "haproxy"
    }

    fn program(&self) -> Option<PathBuf> {
        find_program("haproxy")
    }

    fn package(&self) -> Option<&'static str> {
        Some("haproxy")
    }

    fn connections_max(&self) -> usize {
        CONNECTIONS_HELD_MAX
    }

    fn command(&self, site: &Site, address: SocketAddr, directory: &Path) -> io::Result<Command> {
        let file = site.only_file.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let configuration = format!(
            "global
    nbthread 1
    maxconn {CONNECTIONS_HELD_MAX}
    tune.bufsize {BUFFER_BYTES}
defaults
    mode http
    timeout client {KEEP_ALIVE_S}s
    timeout http-request 10s
    timeout http-keep-alive {KEEP_ALIVE_S}s
frontend files
    bind {address} backlog 16384
    http-request return status 200 content-type text/html file {file}
",
            file = file.display(),
        );
        let path = directory.join("haproxy.cfg");
        std::fs::write(&path, configuration)?;
        let mut command = Command::new(self.program().ok_or(io::ErrorKind::NotFound)?);
        command.arg("-db").arg("-f").arg(path);
        Ok(command)
    }

    fn serves(&self, site: &Site) -> bool {
        let bytes = site.only_file.as_ref().and_then(|file| file.metadata().ok()).map(|metadata| metadata.len());
        bytes.is_some_and(|bytes| bytes + 1024 < BUFFER_BYTES)
    }
}
