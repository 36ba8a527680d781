//! Caddy: one processor, no administration, no TLS, no log.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Server, Site, find_program};

pub(super) struct Caddy;

impl Server for Caddy {
    fn name(&self) -> &str {
        "caddy"
    }

    fn program(&self) -> Option<PathBuf> {
        find_program("caddy")
    }

    fn package(&self) -> Option<&'static str> {
        Some("caddy")
    }

    fn command(&self, site: &Site, address: SocketAddr, directory: &Path) -> io::Result<Command> {
        let configuration = format!(
            "{{
	admin off
	auto_https off
	servers {{
		timeouts {{
			idle 1h
		}}
	}}
}}
http://:{port} {{
	bind {host}
	root * {root}
	file_server
}}
",
            port = address.port(),
            host = address.ip(),
            root = site.root.display(),
        );
        let path = directory.join("Caddyfile");
        std::fs::write(&path, configuration)?;
        let mut command = Command::new(self.program().ok_or(io::ErrorKind::NotFound)?);
        command
            .args(["run", "--adapter", "caddyfile", "--config"])
            .arg(path)
            .env("GOMAXPROCS", "1")
            .env("HOME", directory)
            .env("XDG_DATA_HOME", directory)
            .env("XDG_CONFIG_HOME", directory);
        Ok(command)
    }
}
