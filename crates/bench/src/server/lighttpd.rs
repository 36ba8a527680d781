//! lighttpd: epoll, sendfile, its stat cache, no modules, no access log.
//!
//! It takes half as many connections as descriptors: 10,000 where 20,000 descriptors are the hard limit.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{CONNECTIONS_MAX, DESCRIPTORS_MAX, KEEP_ALIVE_S, Server, Site, find_program};

/// The option is a 16-bit number: a connection is closed after this many requests at the latest.
const REQUESTS_PER_CONNECTION: u32 = 65_535;

pub(super) struct Lighttpd;

impl Server for Lighttpd {
    fn name(&self) -> &str {
        "lighttpd"
    }

    fn program(&self) -> Option<PathBuf> {
        find_program("lighttpd")
    }

    fn package(&self) -> Option<&'static str> {
        Some("lighttpd")
    }

    fn connections_max(&self) -> usize {
        DESCRIPTORS_MAX / 2 - 100
    }

    fn command(&self, site: &Site, address: SocketAddr, directory: &Path) -> io::Result<Command> {
        let configuration = format!(
            r#"server.document-root = "{root}"
server.bind = "{host}"
server.port = {port}
server.errorlog = "{folder}/error.log"
server.modules = ()
server.max-worker = 0
server.max-fds = {DESCRIPTORS_MAX}
server.max-connections = {CONNECTIONS_MAX}
server.listen-backlog = 16384
server.max-keep-alive-requests = {REQUESTS_PER_CONNECTION}
server.max-keep-alive-idle = {KEEP_ALIVE_S}
server.max-read-idle = {KEEP_ALIVE_S}
server.max-write-idle = {KEEP_ALIVE_S}
server.event-handler = "linux-sysepoll"
server.network-backend = "sendfile"
server.stat-cache-engine = "simple"
mimetype.assign = ( "" => "text/html" )
"#,
            root = site.root.display(),
            host = address.ip(),
            port = address.port(),
            folder = directory.display(),
        );
        let path = directory.join("lighttpd.conf");
        std::fs::write(&path, configuration)?;
        let mut command = Command::new(self.program().ok_or(io::ErrorKind::NotFound)?);
        command.arg("-D").arg("-f").arg(path);
        Ok(command)
    }
}
