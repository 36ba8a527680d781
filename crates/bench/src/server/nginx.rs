//! nginx: one worker, sendfile with full packets, open file cache, no access log.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{CONNECTIONS_MAX, DESCRIPTORS_MAX, KEEP_ALIVE_S, Server, Site, find_program};

pub(super) struct Nginx {
    /// Reads files on a thread pool (`aio threads`): only helps when they aren't in the page cache.
    pub(super) threads: bool,
    /// Another address at which it listens, of the other family say.
    pub(super) also: Option<SocketAddr>,
}

impl Server for Nginx {
    fn name(&self) -> &str {
        if self.threads { "nginx-threads" } else { "nginx" }
    }

    fn program(&self) -> Option<PathBuf> {
        find_program("nginx")
    }

    fn package(&self) -> Option<&'static str> {
        Some("nginx-light")
    }

    fn command(&self, site: &Site, address: SocketAddr, directory: &Path) -> io::Result<Command> {
        let folder = directory.display();
        let also = self.also.map_or_else(String::new, |also| format!("listen {also} backlog=16384; "));
        let threads = if self.threads { "aio threads;" } else { "" };
        let configuration = format!(
            "daemon off;
worker_processes 1;
user root;
worker_rlimit_nofile {DESCRIPTORS_MAX};
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ use epoll; multi_accept on; worker_connections {CONNECTIONS_MAX}; }}
http {{
    access_log off;
    sendfile on;
    {threads}
    tcp_nopush on;
    tcp_nodelay on;
    open_file_cache max=10000 inactive=1h;
    open_file_cache_valid 60s;
    open_file_cache_min_uses 1;
    keepalive_timeout {KEEP_ALIVE_S}s;
    keepalive_requests 1000000000;
    default_type text/html;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{ listen {address} backlog=16384; {also}root {root}; }}
}}
",
            root = site.root.display(),
        );
        let path = directory.join("nginx.conf");
        std::fs::write(&path, configuration)?;
        let mut command = Command::new(self.program().ok_or(io::ErrorKind::NotFound)?);
        command.arg("-p").arg(directory).arg("-c").arg(path).arg("-e").arg(directory.join("error.log"));
        Ok(command)
    }
}
