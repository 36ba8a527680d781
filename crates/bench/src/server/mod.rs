//! The servers that are measured: how each is started at its best setting for static files.
//!
//! A server is one file here and one line in [`all`]. It runs in the foreground on one core, with everything it writes
//! in a folder of its own; [`running`] starts, watches and ends it.

mod apache;
mod caddy;
mod h2o;
mod haproxy;
mod leat;
mod lighttpd;
mod nginx;
mod nothing;
pub(crate) mod running;
pub(crate) mod squid;
pub(crate) mod tomcat;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use running::Running;

/// Descriptors that every server is allowed: a common hard limit.
const DESCRIPTORS_MAX: usize = 20_000;
/// Connections that every server is set up for; leaves descriptors for files.
const CONNECTIONS_MAX: usize = 18_500;
/// How long idle connections must be kept: longer than any run.
const KEEP_ALIVE_S: u32 = 3_600;

/// What a server is to serve.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) root: PathBuf,
    /// The one file that is asked for, when the case has only one; do-nothing servers answer with it.
    pub(crate) only_file: Option<PathBuf>,
    /// Every client asks for its connection to be closed.
    pub(crate) close: bool,
}

/// A kind of server.
pub(crate) trait Server: Send + Sync {
    /// As in tables: `nginx`, `leat-epoll`.
    fn name(&self) -> &str;

    /// The program, if it is installed.
    fn program(&self) -> Option<PathBuf>;

    /// Debian's package that has it; none for what this project builds.
    fn package(&self) -> Option<&'static str> {
        None
    }

    /// Connections that it holds at once with [`DESCRIPTORS_MAX`] descriptors.
    fn connections_max(&self) -> usize {
        CONNECTIONS_MAX
    }

    /// Writes the configuration into `directory` and gives the command that serves `site` at `address` in the
    /// foreground, on one core.
    fn command(&self, site: &Site, address: SocketAddr, directory: &Path) -> io::Result<Command>;

    /// Can serve `site`; only the do-nothing servers can't serve all.
    fn serves(&self, _site: &Site) -> bool {
        true
    }
}

/// Every server that this machine has, and what is missing.
pub(crate) struct Servers {
    pub(crate) present: Vec<Box<dyn Server>>,
    pub(crate) missing: Vec<Box<dyn Server>>,
}

impl Servers {
    /// How to get what is missing; none when nothing is.
    pub(crate) fn install_command(&self) -> Option<String> {
        let mut packages: Vec<_> = self.missing.iter().filter_map(|server| server.package()).collect();
        packages.dedup();
        let command = "apt-get install --yes --no-install-recommends";
        (!packages.is_empty()).then(|| format!("{command} {}", packages.join(" ")))
    }
}

/// All servers: leat on both reactors, the peers, and those that do nothing.
pub(crate) fn all(leat: Option<&Path>) -> Servers {
    let list: Vec<Box<dyn Server>> = vec![
        Box::new(leat::Leat::new("io_uring", leat)),
        Box::new(leat::Leat::new("epoll", leat)),
        Box::new(nginx::Nginx { threads: false, also: None }),
        Box::new(nginx::Nginx { threads: true, also: None }),
        Box::new(h2o::H2o),
        Box::new(lighttpd::Lighttpd),
        Box::new(apache::Apache::new(256)),
        Box::new(apache::Apache::new(1024)),
        Box::new(apache::Apache::new(2048)),
        Box::new(caddy::Caddy),
        Box::new(nothing::Nothing::new("epoll")),
        Box::new(nothing::Nothing::new("io_uring")),
        Box::new(nothing::Nothing::new("sendfile")),
    ];
    let (present, missing) = list.into_iter().partition(|server| server.program().is_some());
    Servers { present, missing }
}

/// The servers that leat's shares and its behaviour under overload are compared with, those that are installed.
pub(crate) fn crowded() -> Vec<Box<dyn Server>> {
    let peers: [Box<dyn Server>; 4] = [
        Box::new(nginx::Nginx { threads: false, also: None }),
        Box::new(h2o::H2o),
        Box::new(haproxy::HaProxy),
        Box::new(caddy::Caddy),
    ];
    peers.into_iter().filter(|server| server.program().is_some()).collect()
}

/// nginx, listening at another address too where one is given.
///
/// # Errors
/// It isn't installed.
pub(crate) fn nginx(also: Option<SocketAddr>) -> io::Result<Box<dyn Server>> {
    let nginx = nginx::Nginx { threads: false, also };
    let install = || io::Error::other("nginx isn't installed: apt-get install nginx-light");
    nginx.program().ok_or_else(install)?;
    Ok(Box::new(nginx))
}

/// The do-nothing server on `facility`: `epoll`, `io_uring` or `sendfile`.
pub(crate) fn do_nothing(facility: &'static str) -> Box<dyn Server> {
    Box::new(nothing::Nothing::new(facility))
}

/// Whether a name is that of somebody else's server: neither leat nor one that does nothing.
pub(crate) fn is_peer(name: &str) -> bool {
    !name.starts_with("leat-") && !name.starts_with("nothing-")
}

/// Whether a server is another setting of one that is measured anyway, for cases that are about that setting.
pub(crate) fn is_variant(name: &str) -> bool {
    ["nginx-threads", "apache-1024", "apache-2048"].contains(&name)
}

/// Finds a program in PATH or where Debian keeps servers.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"].map(PathBuf::from));
    folders.into_iter().map(|folder| folder.join(name)).find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{self, Plan, Unobserved};
    use crate::workload::file_set::FileSet;
    use std::time::Duration;

    #[test]
    fn what_is_missing_is_named_once_with_its_package() {
        let missing: Vec<Box<dyn Server>> = vec![
            Box::new(leat::Leat::new("epoll", None)),
            Box::new(h2o::H2o),
            Box::new(apache::Apache::new(256)),
            Box::new(apache::Apache::new(1024)),
        ];
        let servers = Servers { present: Vec::new(), missing };
        let command = servers.install_command();
        assert_eq!(command.as_deref(), Some("apt-get install --yes --no-install-recommends h2o apache2"));
        assert_eq!(Servers { present: Vec::new(), missing: Vec::new() }.install_command(), None);
    }

    /// Every server serves the file, keeps the connection, and ends when told.
    #[test]
    fn every_server_serves_and_ends() {
        let directory = running::WorkFolder::create("conformance").expect("a temporary folder");
        let root = directory.path().join("files");
        let files = FileSet::of_sizes(&root, &[("small.html", 612)], 1).expect("files");
        let site = Site { root: root.clone(), only_file: Some(root.join("small.html")), close: false };
        let servers = all(None);
        let install = servers.install_command();
        assert!(install.is_none(), "peers are missing. As root:\n  {}", install.unwrap_or_default());
        for server in servers.present {
            // The test's own program isn't the one with `nothing` in it; those are tried by the experiment itself.
            if server.name().starts_with("nothing-") {
                continue;
            }
            let running = Running::start(server.as_ref(), &site, directory.path(), &[0])
                .unwrap_or_else(|error| panic!("{}: {error}", server.name()));
            let plan = Plan {
                window: Duration::from_millis(50),
                warm_up: Duration::ZERO,
                sleep: true,
                ..Plan::saturate(running.address(), 2)
            };
            let outcome = load::run(&plan, &files.mix(false, |_| true), &mut Unobserved)
                .unwrap_or_else(|error| panic!("{}: {error}", server.name()));
            assert!(outcome.answered > 0, "{}", server.name());
            assert_eq!(outcome.failed(), 0, "{}: {:?}", server.name(), outcome.failures);
            let processes = running.processes();
            assert!(running.cpu_time() > Duration::ZERO, "{}", server.name());
            drop(running);
            for pid in processes {
                assert!(!crate::sys::process::is_alive(pid), "{} left process {pid}", server.name());
            }
        }
    }
}
