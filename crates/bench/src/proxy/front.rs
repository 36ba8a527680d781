//! The fronts that are compared: one worker each, connections to the server behind kept, nothing logged.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::server::{Server, Site};

pub(super) const LEAT: [&str; 2] = ["leat-io_uring", "leat-epoll"];
pub(super) const PEERS: [&str; 2] = ["nginx", "haproxy"];

/// One front.
pub(super) struct Front {
    name: &'static str,
    program: PathBuf,
    upstream: SocketAddr,
}

/// All of them, in the order of the table.
///
/// # Errors
/// A peer isn't installed.
pub(super) fn all(leat: &Path, upstream: SocketAddr) -> io::Result<Vec<Front>> {
    let fronts = LEAT.into_iter().chain(PEERS).map(|name| {
        let of_leat = LEAT.contains(&name).then(|| leat.to_owned());
        let missing = || io::Error::other(format!("{name} isn't installed. As root: apt-get install {name}"));
        let program = of_leat.or_else(|| crate::server::find_program(name)).ok_or_else(missing)?;
        Ok(Front { name, program, upstream })
    });
    fronts.collect()
}

impl Server for Front {
    fn name(&self) -> &str {
        self.name
    }

    fn program(&self) -> Option<PathBuf> {
        Some(self.program.clone())
    }

    fn command(&self, _site: &Site, address: SocketAddr, directory: &Path) -> io::Result<Command> {
        let (text, arguments): (_, &[&str]) = match self.name {
            "nginx" => (nginx(address, self.upstream, directory), &["-c"]),
            "haproxy" => (haproxy(address, self.upstream), &["-db", "-f"]),
            name => (leat(address, self.upstream, name.trim_start_matches("leat-")), &["serve", "--config"]),
        };
        let file = directory.join("front.conf");
        fs::write(&file, text)?;
        let mut command = Command::new(&self.program);
        command.args(arguments).arg(file);
        if self.name == "nginx" {
            command.arg("-e").arg(directory.join("error.log"));
        }
        Ok(command)
    }
}

fn leat(listen: SocketAddr, upstream: SocketAddr, reactor: &str) -> String {
    format!(
        "workers = 1\nreactor = '{reactor}'\n[admin]\nlisten = ''\n[limits]\nidle_timeout = '1h'\n[[site]]\nlisten = '{listen}'\n\
         [[site.handler]]\npath = '/*'\nproxy = {{ to = '{upstream}' }}\n"
    )
}

/// Buffers hold the longest reply and the longest upload: neither goes to disk.
fn nginx(listen: SocketAddr, upstream: SocketAddr, directory: &Path) -> String {
    let folder = directory.display();
    format!(
        "daemon off;
user root;
worker_processes 1;
worker_rlimit_nofile 16000;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ use epoll; multi_accept on; worker_connections 8000; }}
http {{
    access_log off;
    tcp_nodelay on;
    keepalive_timeout 1h;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    client_body_buffer_size 128k;
    upstream behind {{ server {upstream}; keepalive 64; keepalive_requests 1000000000; keepalive_time 1h; }}
    server {{
        listen {listen} backlog=16384;
        location / {{
            proxy_pass http://behind;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_buffer_size 16k;
            proxy_buffers 16 16k;
            proxy_busy_buffers_size 64k;
            proxy_max_temp_file_size 0;
        }}
    }}
}}
"
    )
}

/// Bytes go by splice(2) where HAProxy finds it worth it; connections to the server are shared by all clients.
fn haproxy(listen: SocketAddr, upstream: SocketAddr) -> String {
    format!(
        "global
    nbthread 1
    maxconn 4000
defaults
    mode http
    timeout connect 5s
    timeout client 1h
    timeout server 60s
    timeout http-keep-alive 1h
    option splice-auto
    option forwardfor
frontend front
    bind {listen} backlog 16384
    default_backend behind
backend behind
    http-reuse always
    server one {upstream} pool-purge-delay 1h
"
    )
}
