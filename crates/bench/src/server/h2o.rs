//! H2O: one thread; its cache of open files is always on.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{CONNECTIONS_MAX, KEEP_ALIVE_S, Server, Site, find_program};

pub(super) struct H2o;

impl Server for H2o {
    fn name(&self) -> &str {
        "h2o"
    }

    fn program(&self) -> Option<PathBuf> {
        find_program("h2o")
    }

    fn package(&self) -> Option<&'static str> {
        Some("h2o")
    }

    fn command(&self, site: &Site, address: SocketAddr, directory: &Path) -> io::Result<Command> {
        let configuration = format!(
            "user: root
num-threads: 1
max-connections: {CONNECTIONS_MAX}
http1-request-timeout: {KEEP_ALIVE_S}
error-log: {folder}/error.log
pid-file: {folder}/h2o.pid
listen:
  host: {host}
  port: {port}
hosts:
  default:
    paths:
      /:
        file.dir: {root}
",
            folder = directory.display(),
            host = address.ip(),
            port = address.port(),
            root = site.root.display(),
        );
        let path = directory.join("h2o.yaml");
        std::fs::write(&path, configuration)?;
        let mut command = Command::new(self.program().ok_or(io::ErrorKind::NotFound)?);
        command.arg("-m").arg("worker").arg("-c").arg(path);
        Ok(command)
    }
}
