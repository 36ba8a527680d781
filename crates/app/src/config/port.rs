//! A dispatcher's ports for protocols other than the VIP's HTTP: no server of its own is there, only nodes behind.

use std::net::SocketAddr;
use std::time::Duration;

use leat_logic::dispatch::limits::WEIGHT_MAX;
use leat_logic::dispatch::{
    DynamicRules, HealthSettings, NodeSettings, PolicyKind, PolicySettings, QueryRule, Serves, Settings,
};
use leat_logic::protocol::{Limits, Protocol, proxy_header};

use super::cluster::{Cluster, ClusterNode};
use super::kinds::{
    ACCESS_LOG, ADDRESS, Choice, Count, DISPATCH_POLICY, KIB, ListOf, NAME, Nested, Optional, OrBlank, PROTOCOL,
    Period, Size,
};
use super::proxy_protocol::SEND_PROXY;
use super::schema::{Fallback::*, section};
use super::site::{AccessLog, AccessLogFormat, AccessLogTarget, Site, SiteLimits};

/// What is chosen a node for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Each {
    /// Each request, where the protocol has such.
    Request,
    /// A whole connection.
    Connection,
}

/// Bytes that a stream's inbox holds: a head must fit.
const HEAD_SIZE_MAX: u64 = 32 * KIB;
/// With this much, a node can have the whole load: its part of the content stays there, however much that is asked for.
const LOAD_UNBOUNDED_PERCENT: u32 = 1_000_000;

section! {
    /// A port on which a dispatcher has no server of its own, only the nodes': what comes is passed on, and what a node says goes back. There may be
    /// any number of them. Where a cluster has only ports, it needs neither `vip` nor `key_file`, and its nodes may be any servers.
    ClusterPort "[[cluster.port]]" example "[[cluster.port]]\nlisten = \"0.0.0.0:6379\"\nprotocol = \"redis\"\nnodes = [\"n1\", \"n2\"]\n" {
        /// How metrics and logs call it; no two are the same.
        name: String = OrBlank(NAME), Otherwise("protocol and port, as in `\"redis-6379\"`");
        /// Addresses to listen on. Port 0 takes any free port.
        listen: Vec<SocketAddr> = OrBlank(ListOf(ADDRESS)), Required;
        /// What is spoken there.
        protocol: Protocol = PROTOCOL, Toml("\"tcp\"");
        /// The port at which nodes take it; 0 for the one that the client came to, where probes go to the first in `listen`.
        node_port: u16 = Count::<u16> { min: 0, max: u16::MAX }, Toml("0");
        /// The nodes that take it, by name; all when empty. Which of them may have a connection of TLS or HTTP can be said by their `hosts`; they count for no other protocol.
        nodes: Vec<String> = ListOf(NAME), Toml("[]");
        /// How a node is chosen.
        policy: Option<PolicyKind> = Optional(DISPATCH_POLICY), Otherwise("`\"consistent_hash\"` for `redis` and with `first_bytes`, else `\"least_connections\"`");
        /// What a node is chosen for: each request, where the protocol lets a connection's requests be told apart, or a connection by its first.
        schedule: Each = Choice(&[("request", Each::Request), ("connection", Each::Connection)]), Toml("\"request\"");
        /// Bytes at the beginning of a connection that stand for what it's about, under the protocol `tcp`. Only for protocols whose clients speak
        /// first: nothing happens before they have come.
        first_bytes: usize = Count::<usize> { min: 0, max: 1024 }, Toml("0");
        /// Whether nodes are told the client's address before its first byte, by the PROXY protocol, in which version. They must expect it.
        send_proxy: Option<proxy_header::Version> = SEND_PROXY, Toml("\"none\"");
        /// Bytes that may have to be seen before it's known where a request goes. A client that needs more is cut.
        head_size: usize = Size::<usize>::between(64, HEAD_SIZE_MAX), Toml("\"16KiB\"");
        /// Time from the connection's start, or from a request's first byte, until it's known where it goes. After that, the client is cut.
        head_timeout: Duration = Period { min_ms: 100, max_ms: 3_600_000 }, Toml("\"10s\"");
        /// Time in which a connection to a node must be made. After that, another node is tried.
        connect_timeout: Duration = Period { min_ms: 100, max_ms: 600_000 }, Toml("\"3s\"");
        /// Time without one byte in either direction. After that, the connection is closed.
        idle_timeout: Duration = Period { min_ms: 100, max_ms: 86_400_000 }, Toml("\"10m\"");
        /// The log of connections.
        access_log: PortLog = Nested::<PortLog>::new(), Otherwise("");
    }
}

section! {
    /// A line for each connection to the `[[cluster.port]]` above it, when it ends. As for a site, writing never holds up a worker.
    PortLog "[cluster.port.access_log]" example "[[cluster.port]]\nlisten = \"0.0.0.0:6379\"\n\n[cluster.port.access_log]\npath = \"-\"\nformat = \"json\"\n" {
        /// The file, `"-"` for standard output, `""` for no log. It is opened anew at a reload.
        path: Option<AccessLogTarget> = ACCESS_LOG, Toml("\"\"");
        /// A line like those of web servers, or a JSON object on each line.
        format: AccessLogFormat = Choice(&[("combined", AccessLogFormat::Combined), ("json", AccessLogFormat::Json)]),
            Toml("\"combined\"");
    }
}

impl ClusterPort {
    /// Whether each request may go to another node.
    #[must_use]
    pub fn is_by_request(&self) -> bool {
        self.protocol.is_separable() && self.schedule == Each::Request
    }

    /// What parsers are told.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits { head_bytes_max: self.head_size.max(self.first_bytes), first_bytes: self.first_bytes }
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> PolicyKind {
        let is_by_content = self.protocol.is_store() || self.protocol == Protocol::Tcp && self.first_bytes > 0;
        self.policy.unwrap_or(match is_by_content {
            true => PolicyKind::ConsistentHash,
            false => PolicyKind::LeastConnections,
        })
    }

    /// What its choices go by.
    #[must_use]
    pub fn settings(&self, cluster: &Cluster) -> Settings {
        let settings = cluster.settings();
        let nothing = Vec::new();
        // A node of a store that is back has its part at once: what is written elsewhere while it grows isn't found when it has.
        let slow_start = if self.protocol.is_store() { Duration::ZERO } else { settings.health.slow_start };
        Settings {
            policy: self.policy(),
            health: HealthSettings { slow_start, ..settings.health },
            // A store's content is at one node and no other.
            parameters: PolicySettings { load_bound_percent: LOAD_UNBOUNDED_PERCENT, ..settings.parameters },
            // What HTTP calls dynamic means nothing here.
            rules: DynamicRules {
                methods: Vec::new(),
                cookies: Vec::new(),
                paths: Vec::new(),
                extensions: nothing,
                query: QueryRule::Never,
            },
            ..settings
        }
    }

    /// Its nodes, each with where it takes connections; under `node_port` of 0, those that came to the first of `listen`.
    #[must_use]
    pub fn targets(&self, cluster: &Cluster) -> Vec<(NodeSettings, SocketAddr)> {
        let Some(listen) = self.listen.first() else { return Vec::new() };
        let port = if self.node_port == 0 { listen.port() } else { self.node_port };
        let is_named = |name: &String| self.nodes.is_empty() || self.nodes.contains(name);
        let takes = |node: &&ClusterNode| !node.is_removed() && is_named(&node.name);
        // Other protocols' clients name no host.
        let goes_by_host = matches!(self.protocol, Protocol::Tls | Protocol::Http);
        let target = |node: &ClusterNode| {
            let same_family = node.address.iter().find(|address| address.is_ipv4() == listen.is_ipv4());
            let address = *same_family.or(node.address.first())?;
            let serves = if goes_by_host { Serves::new(&node.hosts, &[]) } else { Serves::default() };
            let weight = node.weight.min(WEIGHT_MAX);
            Some((
                NodeSettings { name: node.name.clone(), weight, serves, near: Vec::new() },
                SocketAddr::new(address, port),
            ))
        };
        cluster.nodes.iter().filter(takes).filter_map(target).collect()
    }

    /// What the workers' shares, metrics and logs know it as.
    #[must_use]
    pub fn as_site(&self, place: usize) -> Site {
        Site {
            name: self.name.clone(),
            listen: self.listen.clone(),
            access_log: AccessLog { path: self.access_log.path.clone(), format: self.access_log.format },
            limits: SiteLimits::default(),
            port: Some(place),
            ..Site::default()
        }
    }
}

/// Gives each port the name that the file doesn't.
pub(super) fn name_ports(ports: &mut [ClusterPort]) {
    for port in ports.iter_mut().filter(|port| port.name.is_empty()) {
        let number = port.listen.first().map_or(0, SocketAddr::port);
        port.name = format!("{}-{number}", port.protocol);
    }
}
