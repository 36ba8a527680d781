//! The proxies beside a dispatcher: HAProxy and nginx in its namespace, one thread each, with connections kept to the same nodes.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::lab::{DISPATCHER, Lab, NODES, VIP};
use crate::cleanup;
use crate::server::running::descendants;
use crate::sys::process;

const START_LIMIT: Duration = Duration::from_secs(10);

/// A proxy that runs; ended when dropped.
pub(super) struct Proxy {
    pub(super) name: &'static str,
    pub(super) address: SocketAddr,
    child: Child,
}

impl Proxy {
    /// Replies go by splice(2) where HAProxy finds it worth it, whose pipes are within the limit of descriptors; connections to the nodes are shared by all clients.
    pub(super) fn haproxy(lab: &Lab, folder: &Path) -> io::Result<Self> {
        let servers: String = lines(|name, address| format!("    server {name} {address}:80 pool-purge-delay 1h\n"));
        let text = format!(
            "global\n    nbthread 1\n    maxconn 4000\ndefaults\n    mode http\n    timeout connect 5s\n    timeout client 60s\n    \
             timeout server 60s\n    timeout http-keep-alive 60s\n    option splice-response\nfrontend vip\n    \
             bind {VIP}:81 backlog 16384\n    default_backend nodes\nbackend nodes\n    balance roundrobin\n    http-reuse always\n{servers}"
        );
        let file = folder.join("haproxy.cfg");
        fs::write(&file, text)?;
        Self::start(lab, folder, ("haproxy", 81), &["-db", "-f", &file.display().to_string()])
    }

    /// Buffers hold a reply of 64 KB; a longer one never goes to disk.
    pub(super) fn nginx(lab: &Lab, folder: &Path) -> io::Result<Self> {
        let directory = folder.join("nginx");
        fs::create_dir_all(&directory)?;
        let servers: String = lines(|_, address| format!("server {address}:80; "));
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {}/{kind};\n", directory.display()))
            .concat();
        let text = format!(
            "daemon off;\nuser root;\nworker_processes 1;\nworker_rlimit_nofile 16000;\npid {directory}/pid;\n\
             events {{ use epoll; multi_accept on; worker_connections 8000; }}\nhttp {{\naccess_log off;\ntcp_nodelay on;\n{temporary}\
             keepalive_requests 1000000000;\nupstream nodes {{ {servers}keepalive 256; keepalive_requests 1000000000; }}\n\
             server {{ listen {VIP}:82 backlog=16384; location / {{ proxy_pass http://nodes; proxy_http_version 1.1;\n\
             proxy_set_header Connection \"\"; proxy_buffers 16 16k; proxy_buffer_size 16k; proxy_busy_buffers_size 64k;\n\
             proxy_max_temp_file_size 0; }} }}\n}}\n",
            directory = directory.display(),
        );
        let file = directory.join("nginx.conf");
        fs::write(&file, text)?;
        let log = directory.join("error.log").display().to_string();
        Self::start(lab, folder, ("nginx", 82), &["-c", &file.display().to_string(), "-e", &log])
    }

    fn start(lab: &Lab, folder: &Path, (name, port): (&'static str, u16), arguments: &[&str]) -> io::Result<Self> {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", lab.namespace(DISPATCHER).display())).arg(name).args(arguments);
        let log = folder.join(format!("{name}.log"));
        let output = fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        process::start_as_others(&mut command, &[0]);
        let child = {
            let _not_at_the_end = cleanup::starting();
            command.spawn()?
        };
        let address = SocketAddr::new(VIP.parse().map_err(io::Error::other)?, port);
        let proxy = Self { name, address, child };
        let listens = lab.at(DISPATCHER, 0, || await_listener(address));
        let said =
            |error| io::Error::other(format!("{error}: {}", fs::read_to_string(&log).unwrap_or_default().trim()));
        listens.map_err(said)?;
        Ok(proxy)
    }

    pub(super) fn processes(&self) -> Vec<u32> {
        descendants(self.child.id())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // One that has ended already is no failure.
        let _ = process::signal(self.child.id(), libc::SIGTERM);
        let _ = self.child.wait();
    }
}

fn lines(line: impl Fn(&str, &str) -> String) -> String {
    NODES.iter().map(|(name, address)| line(name, address)).collect()
}

fn await_listener(address: SocketAddr) -> io::Result<()> {
    let began = Instant::now();
    loop {
        match std::net::TcpStream::connect(address) {
            Ok(_) => return Ok(()),
            Err(error) if began.elapsed() > START_LIMIT => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}
