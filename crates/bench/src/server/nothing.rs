//! The do-nothing servers, which are this very program.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Server, Site};

pub(super) struct Nothing {
    name: String,
    facility: &'static str,
}

impl Nothing {
    pub(super) fn new(facility: &'static str) -> Self {
        Self { name: format!("nothing-{facility}"), facility }
    }
}

impl Server for Nothing {
    fn name(&self) -> &str {
        &self.name
    }

    fn program(&self) -> Option<PathBuf> {
        std::env::current_exe().ok()
    }

    fn command(&self, site: &Site, address: SocketAddr, _directory: &Path) -> io::Result<Command> {
        let mut command = Command::new(self.program().ok_or(io::ErrorKind::NotFound)?);
        command.args(["nothing", self.facility, "--listen", &address.to_string()]);
        if let Some(file) = &site.only_file {
            command.arg("--file").arg(file);
        }
        if site.close {
            command.arg("--close");
        }
        Ok(command)
    }

    fn serves(&self, site: &Site) -> bool {
        site.only_file.is_some() && !(site.close && self.facility == "sendfile")
    }
}
