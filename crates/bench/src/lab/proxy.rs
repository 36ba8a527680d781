//! The proxies beside a dispatcher: HAProxy and nginx in its namespace, one thread each, with connections kept to the same nodes.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Lab;
use crate::cleanup;
use crate::server::running::descendants;
use crate::sys::process;

const START_LIMIT: Duration = Duration::from_secs(10);

/// Where a proxy runs, and what is behind it.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) lab: &'a Lab,
    /// For its files.
    pub(crate) folder: &'a Path,
    pub(crate) host: &'a str,
    /// The address at which it is asked.
    pub(crate) address: &'a str,
    /// Name and address of each server.
    pub(crate) servers: &'a [(&'a str, &'a str)],
}

impl Place<'_> {
    fn lines(&self, line: impl Fn(&str, &str) -> String) -> String {
        self.servers.iter().map(|(name, address)| line(name, address)).collect()
    }
}

/// How a proxy chooses a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Balance {
    InTurn,
    /// By a consistent hash of what is asked for.
    ByContent,
}

impl Balance {
    fn in_haproxy(self) -> &'static str {
        match self {
            Balance::InTurn => "balance roundrobin",
            Balance::ByContent => "balance uri\n    hash-type consistent",
        }
    }

    fn in_nginx(self) -> &'static str {
        match self {
            Balance::InTurn => "",
            Balance::ByContent => "hash $request_uri consistent; ",
        }
    }
}

/// A proxy that runs; ended when dropped.
pub(crate) struct Proxy {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    child: Child,
}

impl Proxy {
    /// Replies go by splice(2) where HAProxy finds it worth it, whose pipes are within the limit of descriptors; connections to the nodes are shared by all clients.
    pub(crate) fn haproxy(place: Place<'_>, balance: Balance) -> io::Result<Self> {
        let servers: String =
            place.lines(|name, address| format!("    server {name} {address}:80 pool-purge-delay 1h\n"));
        let text = format!(
            "global\n    nbthread 1\n    maxconn 4000\ndefaults\n    mode http\n    timeout connect 5s\n    timeout client 60s\n    \
             timeout server 60s\n    timeout http-keep-alive 60s\n    option splice-response\nfrontend vip\n    \
             bind {}:81 backlog 16384\n    default_backend nodes\nbackend nodes\n    {}\n    http-reuse always\n{servers}",
            place.address,
            balance.in_haproxy(),
        );
        let file = place.folder.join("haproxy.cfg");
        fs::write(&file, text)?;
        Self::start(place, ("haproxy", 81), &["-db", "-f", &file.display().to_string()])
    }

    /// As [`Proxy::haproxy`], but that it passes on bytes, a connection to a node for each of a client's.
    pub(crate) fn haproxy_tcp(place: Place<'_>) -> io::Result<Self> {
        let servers = place.lines(|name, address| format!("    server {name} {address}:80\n"));
        let text = format!(
            "global\n    nbthread 1\n    maxconn 4000\ndefaults\n    mode tcp\n    timeout connect 5s\n    timeout client 60s\n    \
             timeout server 60s\n    option splice-auto\nfrontend vip\n    bind {}:83 backlog 16384\n    default_backend nodes\n\
             backend nodes\n    balance roundrobin\n{servers}",
            place.address,
        );
        let file = place.folder.join("haproxy-tcp.cfg");
        fs::write(&file, text)?;
        Self::start(place, ("haproxy", 83), &["-db", "-f", &file.display().to_string()])
    }

    /// Buffers hold a reply of 64 KB; a longer one never goes to disk.
    pub(crate) fn nginx(place: Place<'_>, balance: Balance) -> io::Result<Self> {
        let directory = place.folder.join("nginx");
        fs::create_dir_all(&directory)?;
        let servers: String = place.lines(|_, address| format!("server {address}:80; "));
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {}/{kind};\n", directory.display()))
            .concat();
        let text = format!(
            "daemon off;\nuser root;\nworker_processes 1;\nworker_rlimit_nofile 16000;\npid {directory}/pid;\n\
             events {{ use epoll; multi_accept on; worker_connections 8000; }}\nhttp {{\naccess_log off;\ntcp_nodelay on;\n{temporary}\
             keepalive_requests 1000000000;\nupstream nodes {{ {}{servers}keepalive 256; keepalive_requests 1000000000; }}\n\
             server {{ listen {}:82 backlog=16384; location / {{ proxy_pass http://nodes; proxy_http_version 1.1;\n\
             proxy_set_header Connection \"\"; proxy_buffers 16 16k; proxy_buffer_size 16k; proxy_busy_buffers_size 64k;\n\
             proxy_max_temp_file_size 0; }} }}\n}}\n",
            balance.in_nginx(),
            place.address,
            directory = directory.display(),
        );
        let file = directory.join("nginx.conf");
        fs::write(&file, text)?;
        let log = directory.join("error.log").display().to_string();
        Self::start(place, ("nginx", 82), &["-c", &file.display().to_string(), "-e", &log])
    }

    fn start(place: Place<'_>, (name, port): (&'static str, u16), arguments: &[&str]) -> io::Result<Self> {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", place.lab.namespace(place.host).display())).arg(name).args(arguments);
        let log = place.folder.join(format!("{name}.log"));
        let output = fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        process::start_as_others(&mut command, &[0]);
        let child = {
            let _not_at_the_end = cleanup::starting();
            command.spawn()?
        };
        let address = SocketAddr::new(place.address.parse().map_err(io::Error::other)?, port);
        let proxy = Self { name, address, child };
        let listens = place.lab.at(place.host, 0, || await_listener(address));
        let said =
            |error| io::Error::other(format!("{error}: {}", fs::read_to_string(&log).unwrap_or_default().trim()));
        listens.map_err(said)?;
        Ok(proxy)
    }

    pub(crate) fn processes(&self) -> Vec<u32> {
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
