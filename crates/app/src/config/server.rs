//! The server-wide sections of the file. Those of a site are in `site`, the order of work is in `schedule`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use leat_host::users::User;
use leat_logic::http::{HEAD_BYTES_CEILING, HEADER_COUNT_CEILING};
use leat_logic::serve::hosts::{HostPattern, HostTable};

use super::cluster::{Cluster, Role};
use super::forwarded::Forwarded;
use super::handler::Upstream;
use super::kinds::{
    ADMIN_TOKEN, Choice, Count, GIB, HOST, KIB, ListOf, Nested, OPTIONAL_ADDRESS, Period, Rate, Repeated, SOCKET, Size,
    TIB, USER, Workers,
};
use super::lab::Lab;
use super::port::ClusterPort;
use super::proxy_protocol::ProxyProtocol;
use super::schedule::{Owner, Schedule};
use super::schema::{Fallback::*, section};
use super::site::Site;
use super::split::Split;

/// How workers wait for the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reactor {
    /// io_uring, or epoll where the kernel refuses it.
    #[default]
    IoUring,
    /// epoll.
    Epoll,
}

/// The least serious message that is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// leat can't do its work.
    Error,
    /// leat works, though not as it was meant to.
    Warning,
    /// Starts, reloads, stops.
    #[default]
    Info,
    /// What developers want to know.
    Debug,
}

/// How messages are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object on each line.
    Json,
}

/// Sites that share an address, and how a request finds its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// As written; port 0 stands for any free port.
    pub address: SocketAddr,
    /// From the request's host to an index into [`Config::sites`].
    pub hosts: HostTable,
}

section! {
    /// What concerns the whole process. These keys come before the first section.
    Config "" example "workers = 2\nreactor = \"epoll\"\n" {
        /// Threads that serve, each pinned to a core with a listener of its own.
        workers: usize = Workers(Count { min: 1, max: 1024 }), Otherwise("one for each core that leat may run on; in a cluster, one");
        /// How workers wait for the network. Where the kernel refuses io_uring, leat logs one line and uses epoll.
        reactor: Reactor = Choice(&[("io_uring", Reactor::IoUring), ("epoll", Reactor::Epoll)]), Toml("\"io_uring\"");
        /// Who serves, where leat is started by root: files are read, access logs written and programs run as this user, with the user's own group
        /// and no other. Only the process that listens at ports and starts the others stays root's. `""` for whoever starts leat. It can't be
        /// given for a part of a cluster, which needs privileges as long as it runs.
        user: Option<User> = USER, Toml("\"\"");
        /// What this process is: a server on its own, the dispatcher of a cluster, one of its nodes, or a connection server, which
        /// serves and delegates.
        role: Role = Choice(Role::NAMES), Toml("\"server\"");
        /// Metrics and health.
        admin: Admin = Nested::<Admin>::new(), Otherwise("");
        /// What a client may ask for.
        limits: Limits = Nested::<Limits>::new(), Otherwise("");
        /// Balancers in front.
        proxy_protocol: ProxyProtocol = Nested::<ProxyProtocol>::new(), Otherwise("");
        /// Balancers in front that speak HTTP.
        forwarded: Forwarded = Nested::<Forwarded>::new(), Otherwise("");
        /// Reading files.
        files: Files = Nested::<Files>::new(), Otherwise("");
        /// Messages about leat itself.
        log: Log = Nested::<Log>::new(), Otherwise("");
        /// The order of work.
        schedule: Schedule = Nested::<Schedule>::new(), Otherwise("");
        /// Who sites belong to, one for each `[[owner]]`.
        owners ("owner"): Vec<Owner> = Repeated::<Owner>::new(), Otherwise("");
        /// The cluster that a dispatcher or a node is of.
        cluster: Cluster = Nested::<Cluster>::new(), Otherwise("");
        /// What a connection server has data servers answer.
        split: Split = Nested::<Split>::new(), Otherwise("");
        /// What `leat lab` builds.
        lab: Lab = Nested::<Lab>::new(), Otherwise("");
        /// The sites, one for each `[[site]]`. Those of a cluster are the nodes'.
        sites ("site"): Vec<Site> = Repeated::<Site>::new(), Otherwise("");
    }
    computed {
        /// One for each address that some site listens on, in the order of the file.
        listeners: Vec<Listener>;
    }
}

section! {
    /// Metrics for Prometheus at `/metrics`, a health page at `/health`, and what `leat ctl` has at `/ctl`, on an address of their own.
    Admin "[admin]" example "[admin]\nlisten = \"127.0.0.1:9180\"\n" {
        /// Where to listen; `""` turns it off. Whoever can reach it can read the metrics: keep it on a private address.
        listen: Option<SocketAddr> = OPTIONAL_ADDRESS, Toml("\"127.0.0.1:9180\"");
        /// A Unix socket for `leat ctl`; `""` for none. Only its owner can use it. It's made at the first start that has it, in the place of a socket
        /// that an earlier one has left, and never of another file, nor while another leat answers there: then it doesn't start.
        socket: Option<PathBuf> = SOCKET, Toml("\"\"");
        /// A file with a token of 32 to 512 visible ASCII characters. Who sends it (`Authorization: Bearer TOKEN`) may change by `POST /ctl/...`
        /// what `leat ctl` can change, and read at `GET /ctl/table` what clients have asked for. `""` for none: nobody may. It travels unencrypted.
        /// The file must be readable for whoever leat runs as, `user` included, and not for everybody; a reload reads it again.
        token_file: Option<AdminToken> = ADMIN_TOKEN, Toml("\"\"");
        /// Names by which `/ctl` may be asked, beside IP addresses and `localhost`. Other names are refused, as anybody can have one point here and
        /// have a browser ask.
        hosts: Vec<HostPattern> = ListOf(HOST), Toml("[]");
    }
}

/// What whoever changes something over HTTP has to know. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminToken(Box<[u8]>);

impl AdminToken {
    /// Bytes of a token. Fewer could be guessed.
    pub(crate) const BYTES: std::ops::RangeInclusive<usize> = 32..=512;

    /// `None` if it's too short or long, or has other bytes than visible ASCII.
    pub(crate) fn new(bytes: &[u8]) -> Option<AdminToken> {
        let is_good = Self::BYTES.contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
        is_good.then(|| AdminToken(bytes.into()))
    }

    /// Whether somebody has written it. The time that takes says nothing of where they differ.
    pub(crate) fn is(&self, written: &[u8]) -> bool {
        let differences = |all: u8, (own, other): (&u8, &u8)| std::hint::black_box(all | (own ^ other));
        written.len() == self.0.len() && self.0.iter().zip(written).fold(0, differences) == 0
    }
}

impl std::fmt::Debug for AdminToken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("AdminToken")
    }
}

/// The whole KiB below what the parser can take.
const HEAD_SIZE_MAX: u64 = (HEAD_BYTES_CEILING as u64 + 1) / KIB * KIB - KIB;

/// The kinds of limits that a site may set for itself.
pub(super) const BODY_SIZE: Size<u64> = Size::between(0, TIB);
pub(super) const IDLE_TIMEOUT: Period = Period { min_ms: 100, max_ms: 86_400_000 };
pub(super) const STALL_TIMEOUT: Period = Period { min_ms: 100, max_ms: 86_400_000 };
pub(super) const BODY_RATE: Rate = Rate(Size::between(0, TIB));
pub(super) const REQUESTS_PER_CONNECTION: Count<u32> = Count { min: 0, max: 1_000_000_000 };

section! {
    /// What a client may ask for, and how long it may take. What concerns a request whose site is known can be set for each site too,
    /// in `[site.limits]`.
    Limits "[limits]" example "[limits]\nhead_size = \"32KiB\"\nbody_size = \"10MiB\"\nidle_timeout = \"2m\"\n" {
        /// Bytes of a request's head: request line and headers together. More is answered with 431.
        head_size: usize = Size::<usize>::between(KIB, HEAD_SIZE_MAX), Toml("\"16KiB\"");
        /// Headers of one request. More is answered with 431.
        header_count: usize = Count::<usize> { min: 8, max: HEADER_COUNT_CEILING }, Toml("100");
        /// Bytes of a request's target: path and query. More is answered with 414. Never more than `head_size`.
        target_size: usize = Size::<usize>::between(64, HEAD_SIZE_MAX), Toml("\"8KiB\"");
        /// Bytes of a request's body. More is answered with 413.
        body_size: u64 = BODY_SIZE, Toml("\"1MiB\"");
        /// Time from a request's first byte, or from the connection's start, to the end of its head. After that, 408.
        head_timeout: Duration = Period { min_ms: 100, max_ms: 3_600_000 }, Toml("\"10s\"");
        /// Time that a connection may wait for its next request.
        idle_timeout: Duration = IDLE_TIMEOUT, Toml("\"75s\"");
        /// Time without one byte moving in a body or a reply. After that, 408 if it's a body of which nothing has been answered; else the
        /// connection is cut.
        stall_timeout: Duration = STALL_TIMEOUT, Toml("\"30s\"");
        /// The least rate of a request's body. A client that falls behind it by more than `stall_timeout` is treated as one that stalls. 0 for
        /// any rate.
        body_rate: u64 = BODY_RATE, Toml("\"500B/s\"");
        /// Time without a byte after a last reply for which leat goes on reading what the client still sends, so that the reply isn't lost to a
        /// reset; half a minute in all, or this if it's more, and 1 GiB.
        linger_timeout: Duration = Period { min_ms: 0, max_ms: 60_000 }, Toml("\"2s\"");
        /// Requests on one connection before it is closed; 0 for no limit.
        requests_per_connection: u32 = REQUESTS_PER_CONNECTION, Toml("0");
        /// Connections open at once, over all workers, each of which takes an equal part. Past that, connections that ask for
        /// nothing end, so that new ones find room: of the network that has most, those that have been idle longest, then heads that have taken
        /// longer than 2 s. Where none can end, new ones wait in the kernel's queue. Where the process's limit on descriptors has no room for so
        /// many, fewer: what files kept open (`files.open_files_max`, a quarter of the limit at most) and 256 descriptors to spare leave.
        connections: usize = Count::<usize> { min: 1, max: 16_000_000 }, Toml("65536");
        /// Time that requests in progress have to end after SIGTERM, or on workers that a reload removes where they can't go on at others. What dispatchers or
        /// connection servers and their nodes have of each other isn't ended by a reload, however long it takes.
        drain_timeout: Duration = Period { min_ms: 0, max_ms: 86_400_000 }, Toml("\"30s\"");
    }
}

section! {
    /// How files get from the disk to the network. Sizes and counts are for the whole process; each worker takes an equal part.
    Files "[files]" example "[files]\ncache_size = \"1GiB\"\nio_threads = 8\n" {
        /// Memory for the contents of small files. `"0B"` turns the cache off.
        cache_size: u64 = Size::<u64>::between(0, TIB), Toml("\"128MiB\"");
        /// The largest file that is kept in the cache; larger ones go from the kernel's page cache to the network. Never more than
        /// `cache_size`.
        cache_file_size_max: u64 = Size::<u64>::between(0, GIB), Toml("\"64KiB\"");
        /// Files kept open between requests.
        open_files_max: usize = Count::<usize> { min: 0, max: 1_000_000 }, Toml("4096");
        /// Threads of the process that wait for the disk, so that no worker does.
        io_threads: usize = Count::<usize> { min: 1, max: 256 }, Toml("4");
    }
}

section! {
    /// Messages about leat itself, on standard error. Requests go to a site's access log.
    Log "[log]" example "[log]\nlevel = \"debug\"\nformat = \"json\"\n" {
        /// The least serious message that is written.
        level: LogLevel = Choice(&[
            ("error", LogLevel::Error),
            ("warning", LogLevel::Warning),
            ("info", LogLevel::Info),
            ("debug", LogLevel::Debug),
        ]), Toml("\"info\"");
        /// Lines for people, or a JSON object on each line.
        format: LogFormat = Choice(&[("text", LogFormat::Text), ("json", LogFormat::Json)]), Toml("\"text\"");
    }
}

impl Config {
    /// The port for another protocol than HTTP that listens at an address.
    #[must_use]
    pub fn port_at(&self, address: SocketAddr) -> Option<&ClusterPort> {
        let is_home = self.role == Role::Dispatcher;
        self.cluster.ports.iter().find(|port| is_home && port.listen.contains(&address))
    }

    /// What connection servers delegate, and how long data servers keep a connection.
    pub(crate) fn split_rules(&self) -> leat_logic::split::Rules {
        let serves_some = |node: &super::ClusterNode| !node.hosts.is_empty() || !node.paths.is_empty();
        self.split.rules(self.cluster.nodes.iter().any(serves_some))
    }

    /// Whether it's a dispatcher that has in its books what nodes hold: one process at a time has those.
    pub(crate) fn keeps_books(&self) -> bool {
        self.role == Role::Dispatcher && !self.cluster.is_spread() && !self.cluster.vip.is_empty()
    }

    /// Whether it starts programs.
    pub(crate) fn starts_programs(&self) -> bool {
        let mut handlers = self.sites.iter().flat_map(|site| &site.handlers);
        handlers.any(|handler| handler.cgi.is_some() || handler.fastcgi.as_ref().is_some_and(|it| it.command.is_some()))
    }

    /// Names of servers that requests are passed on to.
    #[must_use]
    pub fn names(&self) -> BTreeSet<&str> {
        let proxies = self.sites.iter().flat_map(|site| &site.handlers).filter_map(|handler| handler.proxy.as_ref());
        proxies.flat_map(|proxy| &proxy.to).filter_map(Upstream::name).collect()
    }

    /// What it serves in a few words: "2 sites on 3 addresses", "dispatcher: 4 nodes behind 1 address".
    #[must_use]
    pub fn summary(&self) -> String {
        let count =
            |number: usize, noun: &str, plural: &str| format!("{number} {}", if number == 1 { noun } else { plural });
        let sites = count(self.sites.len(), "site", "sites");
        let sites = format!("{sites} on {}", count(self.listeners.len(), "address", "addresses"));
        let vips = count(self.cluster.vip.len(), "address", "addresses");
        match self.role {
            Role::Server => sites,
            Role::Dispatcher => {
                let nodes = count(self.cluster.nodes.iter().filter(|node| !node.is_removed()).count(), "node", "nodes");
                let ports = count(self.cluster.ports.len(), "port", "ports");
                match (self.cluster.vip.is_empty(), self.cluster.ports.is_empty()) {
                    (_, true) => format!("dispatcher: {nodes} behind {vips}"),
                    (true, false) => format!("dispatcher: {nodes} behind {ports}"),
                    (false, false) => format!("dispatcher: {nodes} behind {vips} and {ports}"),
                }
            }
            Role::ConnectionServer => {
                format!(
                    "connection server of {}: {sites}",
                    count(self.cluster.nodes.len(), "data server", "data servers")
                )
            }
            Role::Node if self.cluster.own_node().is_some_and(|node| !node.server.is_empty()) => {
                format!("node `{}` behind {vips}, for a server that isn't leat", self.cluster.name)
            }
            Role::Node => format!("node `{}` behind {vips}: {sites}", self.cluster.name),
        }
    }
}
