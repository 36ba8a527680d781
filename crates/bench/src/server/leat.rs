//! leat on one of its reactors, with one worker.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Server, Site};

pub(super) struct Leat {
    name: String,
    reactor: &'static str,
    program: PathBuf,
}

impl Leat {
    /// Uses `program`, or else the binary that stands beside this one.
    pub(super) fn new(reactor: &'static str, program: Option<&Path>) -> Self {
        let beside = || std::env::current_exe().ok().map(|own| own.with_file_name("leat")).unwrap_or_default();
        Self { name: format!("leat-{reactor}"), reactor, program: program.map_or_else(beside, Path::to_owned) }
    }
}

impl Server for Leat {
    fn name(&self) -> &str {
        &self.name
    }

    fn program(&self) -> Option<PathBuf> {
        self.program.is_file().then(|| self.program.clone())
    }

    fn command(&self, site: &Site, address: SocketAddr, _directory: &Path) -> io::Result<Command> {
        let mut command = Command::new(&self.program);
        command.arg("serve").arg(&site.root).arg("--listen").arg(address.to_string());
        command.args(["--workers", "1", "--reactor", self.reactor]);
        Ok(command)
    }
}
