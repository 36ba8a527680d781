//! The sections of a cluster: what a dispatcher and its nodes must know of each other. One file can serve them all: they differ in `role`,
//! and a node in `cluster.name`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use leat_logic::dispatch::limits::{NODES_MAX, TABLE_ENTRIES_MAX, TABLE_ENTRIES_MIN, WEIGHT_MAX};
use leat_logic::dispatch::{
    DynamicRules, HandOver, HealthSettings, MixLardSettings, NodeSettings, PolicyKind, PolicySettings, QueryRule,
    Serves, Settings,
};
use leat_logic::network::Network;
use leat_logic::serve::hosts::HostPattern;
use leat_logic::serve::path_pattern::PathPattern;

use super::kinds::{
    ACCESS_LOG, ADDRESS, CLUSTER_KEY, Choice, Count, DISPATCH_POLICY, EXTENSION, Flag, HOST, IP_ADDRESS, ListOf, NAME,
    NETWORK, Nested, Optional, OrBlank, PATH_PATTERN, Period, Repeated, TOKEN, URL_PATH,
};
use super::port::ClusterPort;
use super::schema::{Fallback::*, section};
use super::site::{AccessLogFormat, AccessLogTarget};

/// What a process is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// A server on its own.
    #[default]
    Server,
    /// It has the cluster's address and chooses a node for each request.
    Dispatcher,
    /// It serves what a dispatcher or a connection server hands over.
    Node,
    /// It has an address that clients know and serves; some of its requests are answered by nodes, which are its data servers.
    ConnectionServer,
}

impl Role {
    /// All of them, by their names in the configuration.
    pub(super) const NAMES: &'static [(&'static str, Role)] = &[
        ("server", Role::Server),
        ("dispatcher", Role::Dispatcher),
        ("node", Role::Node),
        ("connection_server", Role::ConnectionServer),
    ];

    /// Whether clients' packets arrive here, and connections go to nodes.
    #[must_use]
    pub fn is_home(self) -> bool {
        matches!(self, Role::Dispatcher | Role::ConnectionServer)
    }

    /// Its name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, role)| *role == self).map_or("", |(name, _)| name)
    }

    /// The role of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Role> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, role)| *role)
    }
}

/// What the machines of a cluster know and nobody else. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey([u8; 32]);

impl ClusterKey {
    /// From 64 hexadecimal digits.
    pub(super) fn from_hex(digits: &[u8]) -> Option<ClusterKey> {
        let mut key = [0; 32];
        if digits.len() != 2 * key.len() {
            return None;
        }
        for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(ClusterKey(key))
    }

    /// The key itself.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey")
    }
}

/// Of which replies nodes tell their dispatcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RepliesTold {
    /// Of those that are under way for some time.
    Long,
    /// Of all.
    #[default]
    All,
}

/// Who reads requests, and so decides where they go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpreadBy {
    /// The dispatcher, which chooses a node by content.
    #[default]
    Content,
    /// The nodes; fronts send each connection's packets to one of them, and see no request.
    L4,
}

section! {
    /// A cluster: one dispatcher, which has the address that clients know, and nodes, which answer under that address. One file can serve all
    /// its machines: `leat dispatch --config FILE` is the dispatcher, `leat node --config FILE --name NAME` a node.
    Cluster "[cluster]" example "role = \"dispatcher\"\n\n[cluster]\nvip = [\"192.0.2.100:80\", \"[2001:db8::100]:80\"]\n\
        key_file = \"cluster.key\"\n\n[[cluster.node]]\nname = \"n1\"\naddress = [\"192.0.2.11\", \"2001:db8::11\"]\n" {
        /// The addresses and ports that clients use. Nodes have the addresses too, without telling anybody. A dispatcher refuses a reload that changes
        /// them: that takes an upgrade or a new start.
        vip: Vec<SocketAddr> = ListOf(ADDRESS), Toml("[]");
        /// A file with the key that all machines of the cluster share: 64 hexadecimal digits. Connections are handed over only between
        /// machines that have it.
        key_file: Option<ClusterKey> = CLUSTER_KEY, Toml("\"\"");
        /// Which of the nodes this machine is. For nodes; and for fronts (`spread = "l4"`), where several run on one machine.
        name: String = OrBlank(NAME), Otherwise("none");
        /// Where dispatchers are. For nodes.
        dispatchers: Vec<IpAddr> = ListOf(IP_ADDRESS), Toml("[]");
        /// The first of the TCP ports by which dispatcher and nodes talk to each other: each of the dispatcher's workers has one, counted on from
        /// here. Numbers of workers that a reload has removed are used again after a thousand others.
        link_port: u16 = Count::<u16> { min: 1, max: 64_511 }, Toml("7450");
        /// What dispatchers go by: `"content"`, then there is one, which reads each request and chooses a node; or `"l4"`, then there may be many, the fronts, which
        /// send each connection to one of the nodes by a hash of its addresses and ports. They agree without talking. A node that comes or drains cuts
        /// nothing, and neither does a front that dies. Nodes serve what comes, so all must have the same content; with `policy = "consistent_hash"` they read
        /// each request, and hand its connection on to the node where its content belongs. The same on all machines of a cluster.
        spread: SpreadBy = Choice(&[("content", SpreadBy::Content), ("l4", SpreadBy::L4)]), Toml("\"content\"");
        /// Connections begin at the node that answers their first request, and the dispatcher never has a socket of them. Where the kernel can't do that
        /// (Linux 6.9 can; 5.17 where all nodes have `for`), or a client doesn't tell the time (TCP timestamps), they begin at the dispatcher and are moved. A connection
        /// server's begin at data servers with `delegation = "full"` and without a `peer`. The same on all machines of a cluster. Where many ask for the same,
        /// the dispatcher's kernel sends the next ones there for 20 ms without asking; with `policy` `least_connections` and `power_of_two` each is asked for.
        born: bool = Flag, Toml("true");
        /// Whether a connection goes to the node of its first request: wherever it can, as the dispatcher's processor is what limits a cluster; or if that takes
        /// less processor time of all machines together than passing its replies on, as a small reply of a connection with one request may not
        /// (`leat ctl explain` shows both); or never. It can be changed by a reload.
        hand_over: HandOver = Choice(&[
            ("always", HandOver::Always),
            ("when_cheaper", HandOver::WhenCheaper),
            ("never", HandOver::Never),
        ]), Toml("\"always\"");
        /// Of which replies nodes tell their dispatcher as they begin: of all, or of files' long ones (64 KiB and more) alone. What was told of goes on
        /// elsewhere when its node dies. Of what no other node could make, as programs' replies and error pages, only what is no longer than 4 KiB is told,
        /// as it stands, once all of it is there. With `"long"` a short reply takes up to a quarter less of the processor time of nodes, as none costs a
        /// message of some 300 bytes; but a connection is cut if its node dies less than 20 ms after such a reply, or before it. Data servers always tell of
        /// all. It can be changed by a reload.
        replies_told: RepliesTold = Choice(&[("all", RepliesTold::All), ("long", RepliesTold::Long)]), Toml("\"all\"");
        /// Time from one load report of a node to the next. One that is older than four of these counts for nothing.
        report_interval: Duration = Period { min_ms: 10, max_ms: 60_000 }, Toml("\"500ms\"");
        /// How a node is chosen for a request. It can be changed while leat runs.
        policy: PolicyKind = DISPATCH_POLICY, Toml("\"mix_lard\"");
        /// The load that a node may have under `consistent_hash`, in hundredths of its part of the load of all.
        load_bound_percent: u32 = Count::<u32> { min: 100, max: 10_000 }, Toml("125");
        /// The policy `mix_lard`.
        mix_lard: MixLard = Nested::<MixLard>::new(), Otherwise("");
        /// What makes a request dynamic.
        dynamic: Dynamic = Nested::<Dynamic>::new(), Otherwise("");
        /// The log of requests that a dispatcher answers itself.
        access_log: ClusterLog = Nested::<ClusterLog>::new(), Otherwise("");
        /// Whether nodes are fit.
        health: HealthChecks = Nested::<HealthChecks>::new(), Otherwise("");
        /// The nodes, one for each `[[cluster.node]]`; 64 at most. All machines have them in the same order, as they know each other by their places: new ones are
        /// written at the end, or in the place of one that has gone. A reload takes up what has changed; a node that isn't there any more gets nothing new
        /// and gives up its connections, behind fronts when it's drained itself. If nodes follow it, these keep their places until leat is upgraded or started anew: then on all machines.
        nodes ("node"): Vec<ClusterNode> = Repeated::<ClusterNode>::new(), Otherwise("");
        /// A dispatcher's ports for other protocols, one for each `[[cluster.port]]`.
        ports ("port"): Vec<ClusterPort> = Repeated::<ClusterPort>::new(), Otherwise("");
    }
}

section! {
    /// Where static content goes under the policy `mix_lard`: where it was sent last, to one more node when those have too much to do. Loads
    /// are requests under way for a weight of 100.
    MixLard "[cluster.mix_lard]" example "[cluster.mix_lard]\nload_high = 200\nload_low = 80\n" {
        /// A node with less could do more.
        load_low: u32 = Count::<u32> { min: 1, max: 1_000_000 }, Toml("25");
        /// A node with more has too much, if another could do more. One with twice as much has too much in any case.
        load_high: u32 = Count::<u32> { min: 1, max: 1_000_000 }, Toml("65");
        /// Content that is at several nodes and hasn't gone to another one for so long loses the one with the most to do.
        replica_time: Duration = Period { min_ms: 100, max_ms: 86_400_000 }, Toml("\"20s\"");
        /// Content that hasn't been asked for in so long is forgotten.
        entry_time: Duration = Period { min_ms: 1000, max_ms: 604_800_000 }, Toml("\"10m\"");
        /// Contents remembered at once, of 50 bytes each. Past that, the one that hasn't been asked for in longest is forgotten.
        entries_max: usize = Count::<usize> { min: TABLE_ENTRIES_MIN, max: TABLE_ENTRIES_MAX }, Toml("262144");
        /// Whether the requests that follow a connection's first may be served by the node that has the connection, wherever their content is: they are
        /// where that node has had hardly anything read from disks for ten seconds, so that it has memory for more (or since its start; longer
        /// where that was tried before and didn't fit), and has no more than `load_low` to do, or no more than the node where the content is. Else, and
        /// with `false`, the connection is handed on or the reply fetched, whichever is cheaper.
        may_stay: bool = Flag, Toml("true");
    }
}

section! {
    /// A line for each request to a VIP that a dispatcher answers itself: one whose head it refuses, one for which it has no node, or more than it can do.
    /// What nodes answer stands in the logs of their sites. Under `spread` nobody but nodes answers.
    ClusterLog "[cluster.access_log]" example "[cluster.access_log]\npath = \"-\"\nformat = \"json\"\n" {
        /// The file, `"-"` for standard output, `""` for no log. It is opened anew at a reload.
        path: Option<AccessLogTarget> = ACCESS_LOG, Toml("\"\"");
        /// As a site's.
        format: AccessLogFormat = Choice(AccessLogFormat::NAMES), Toml("\"combined\"");
    }
}

section! {
    /// What makes a request dynamic, so that it goes by load and not by content under the policy `mix_lard`. One rule that fits is enough.
    Dynamic "[cluster.dynamic]" example "[cluster.dynamic]\npaths = [\"/app/*\", \"/cgi-bin/*\"]\nextensions = [\".php\"]\ncookies = \"session\"\n" {
        /// Methods.
        methods: Vec<String> = ListOf(TOKEN), Toml("[\"POST\", \"PUT\", \"PATCH\", \"DELETE\"]");
        /// Paths, compared as they are sent.
        paths: Vec<PathPattern> = ListOf(PATH_PATTERN), Toml("[\"/cgi-bin/*\"]");
        /// Extensions.
        extensions: Vec<String> = ListOf(EXTENSION), Toml("[\".php\", \".cgi\", \".jsp\", \".asp\", \".aspx\", \".fcgi\"]");
        /// Names of cookies.
        cookies: Vec<String> = ListOf(TOKEN), Toml("[]");
        /// Queries: `"bare"` where the path's last part has no extension, as in `/search?q=x` but not in `/style.css?v=3`.
        query: QueryRule = Choice(&[("bare", QueryRule::Bare), ("always", QueryRule::Always), ("never", QueryRule::Never)]),
            Toml("\"bare\"");
    }
}

section! {
    /// Whether a node is fit to be given requests: by probes, and by what becomes of its requests. leat's own nodes tell by their links that they live. Where
    /// `path` is written, each also asks its own sites for that and tells what came of it, so that one whose application is broken is given nothing new; behind
    /// fronts that is so where nodes choose by content (`policy`). A server that isn't leat (`for`) is asked by the leat beside it. A port's nodes and fronts' are
    /// probed by connecting to them.
    HealthChecks "[cluster.health]" example "[cluster.health]\ninterval = \"1s\"\npath = \"/health\"\n" {
        /// Time from one probe of a node to the next; 0 for no probes.
        interval: Duration = Period { min_ms: 0, max_ms: 3_600_000 }, Toml("\"2s\"");
        /// Time that a probe may take.
        timeout: Duration = Period { min_ms: 10, max_ms: 60_000 }, Toml("\"1s\"");
        /// What nodes are asked for. A status below 500 is an answer. A node isn't chosen before it has answered once. It's asked at its own address and port, as
        /// when requests are proxied to it. Such requests aren't refused for overload, and are in no access log.
        path: Option<String> = Optional(URL_PATH), Otherwise("none; `\"/health\"` where the server isn't leat");
        /// The host that is asked for, where that tells sites apart.
        host: Option<HostPattern> = Optional(HOST), Otherwise("the address that is asked");
        /// Probes that must fail in a row before a node is down.
        fall: u32 = Count::<u32> { min: 1, max: 1000 }, Toml("3");
        /// Probes that must succeed in a row before it is up again.
        rise: u32 = Count::<u32> { min: 1, max: 1000 }, Toml("2");
        /// Requests that must fail in a row before a node is ejected; 0 for never. Half of the nodes at most are ejected at once.
        eject_after: u32 = Count::<u32> { min: 0, max: 1000 }, Toml("5");
        /// Time for which a node is ejected at first. It doubles with each time.
        eject_time: Duration = Period { min_ms: 100, max_ms: 3_600_000 }, Toml("\"10s\"");
        /// Time for which a node is ejected at most.
        eject_time_max: Duration = Period { min_ms: 100, max_ms: 86_400_000 }, Toml("\"5m\"");
        /// Time in which a node that comes back grows from a tenth of its weight to all of it. A port of a store (`redis`) has none: what is written
        /// elsewhere meanwhile wouldn't be found.
        slow_start: Duration = Period { min_ms: 0, max_ms: 3_600_000 }, Toml("\"10s\"");
    }
}

section! {
    /// A node.
    ClusterNode "[[cluster.node]]" example "[[cluster.node]]\nname = \"big\"\naddress = \"192.0.2.12\"\nweight = 400\nhosts = \"shop.example.org\"\n" {
        /// How everybody calls it. No two are the same.
        name: String = OrBlank(NAME), Required;
        /// Its own addresses, one of each family at most. The first is for the link.
        address: Vec<IpAddr> = OrBlank(ListOf(IP_ADDRESS)), Required;
        /// The port at which it takes requests that are proxied to it; 0 for the VIP's.
        port: u16 = Count::<u16> { min: 0, max: u16::MAX }, Toml("0");
        /// How much of the work it gets, in proportion to the others' weights.
        weight: u32 = Count::<u32> { min: 1, max: WEIGHT_MAX }, Toml("100");
        /// Hosts that it serves; all when empty.
        hosts: Vec<HostPattern> = ListOf(HOST), Toml("[]");
        /// Paths that it serves, compared as they are sent; all when empty.
        paths: Vec<PathPattern> = ListOf(PATH_PATTERN), Toml("[]");
        /// The networks whose clients it's near to, where it's a connection server's data server: what they ask for goes to it, if it's delegated (`near` in `[split]`
        /// says more) and it's up. Of several networks the one with the longest prefix counts; data servers that are equally near are chosen of by `policy`. What counts is
        /// the address from which a connection comes, whatever a balancer tells. A dispatcher refuses it.
        near: Vec<Network> = ListOf(NETWORK), Toml("[]");
        /// Where a server listens that isn't leat and answers in this node's place: nginx, Apache, whatever speaks HTTP. One address of each family of
        /// the VIPs. Connections begin at it, with the client's own address; what can't begin there is proxied to it (nothing is under `spread = "l4"`).
        /// Where the policy goes by content, or nodes have `hosts` or `paths`, a connection goes on at another such server as its next request belongs there.
        /// `leat node --for` says the same.
        server ("for"): Vec<SocketAddr> = ListOf(ADDRESS), Toml("[]");
        /// Connections begin at the server of `for` as they do on kernels before Linux 6.9, by a handshake that the node's program has with it in the client's
        /// place, also where the kernel could be handed them. Each packet is translated then. For trying out what such kernels do. A node's own file counts, when
        /// its process starts; a dispatcher does the same for its own listener if all nodes have it.
        replay: bool = Flag, Toml("false");
        /// Whether there is a router between the dispatcher and it. Packets to it then carry its own address on their way.
        routed: bool = Flag, Toml("false");
    }
}

impl Cluster {
    /// What the dispatcher goes by.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings {
            policy: self.policy,
            parameters: PolicySettings {
                mix_lard: MixLardSettings {
                    load_low: self.mix_lard.load_low,
                    load_high: self.mix_lard.load_high,
                    replica_time: self.mix_lard.replica_time,
                    entry_time: self.mix_lard.entry_time,
                    entries_max: self.mix_lard.entries_max,
                    may_stay: self.mix_lard.may_stay,
                },
                load_bound_percent: self.load_bound_percent,
            },
            rules: DynamicRules {
                methods: self.dynamic.methods.clone(),
                cookies: self.dynamic.cookies.clone(),
                paths: self.dynamic.paths.clone(),
                extensions: self.dynamic.extensions.clone(),
                query: self.dynamic.query,
            },
            health: self.health.settings(),
            report_age: self.report_interval * 4,
            hand_over: self.hand_over,
        }
    }

    /// What this node is configured for.
    #[must_use]
    pub fn own_serves(&self) -> Serves {
        self.own_node().map(ClusterNode::serves).unwrap_or_default()
    }

    /// The nodes as the dispatcher knows them.
    #[must_use]
    pub fn node_settings(&self) -> Vec<NodeSettings> {
        let node = |node: &ClusterNode| NodeSettings {
            name: node.name.clone(),
            weight: node.weight,
            serves: node.serves(),
            near: node.near.clone(),
        };
        self.nodes.iter().map(node).collect()
    }

    /// Whether others know nodes by their places, on links. Where a table alone spreads connections over them, all go by the file as it is.
    #[must_use]
    pub fn are_places_known(&self) -> bool {
        !self.vip.is_empty() && (!self.is_spread() || self.hands_on())
    }

    /// Has nodes keep the places that they have under `before`, as those that run know each other by these; new ones follow, and one takes the place of one that's
    /// gone if it has that in the file. Others that the file doesn't have any more stay, removed. Whether all are where the file has them.
    #[must_use]
    pub fn keep_places(&mut self, before: &[ClusterNode]) -> bool {
        let after = std::mem::take(&mut self.nodes);
        let is_new = |node: &&ClusterNode| before.iter().all(|known| known.name != node.name);
        for (place, known) in before.iter().enumerate() {
            let same = after.iter().find(|node| node.name == known.name);
            let next = same.or_else(|| after.get(place).filter(is_new));
            self.nodes.push(next.cloned().unwrap_or_else(|| ClusterNode { weight: 0, ..known.clone() }));
        }
        for node in &after {
            if self.nodes.iter().all(|known| known.name != node.name) {
                self.nodes.push(node.clone());
            }
        }
        self.nodes.truncate(NODES_MAX);
        after.iter().zip(&self.nodes).all(|(file, node)| file.name == node.name)
    }

    /// Whether fronts send connections to nodes by a table.
    #[must_use]
    pub fn is_spread(&self) -> bool {
        self.spread == SpreadBy::L4
    }

    /// Whether nodes behind fronts read requests, choose by content and hand on among themselves. They agree without talking only under a policy that
    /// remembers nothing.
    #[must_use]
    pub fn hands_on(&self) -> bool {
        self.is_spread() && self.policy == PolicyKind::ConsistentHash && self.hand_over != HandOver::Never
    }

    /// Whether a machine of the cluster has this address of its own.
    #[must_use]
    pub fn has_machine(&self, address: IpAddr) -> bool {
        self.dispatchers.contains(&address) || self.nodes.iter().any(|node| node.address.contains(&address))
    }

    /// The place of the node that has this address.
    #[must_use]
    pub fn node_at(&self, address: IpAddr) -> Option<usize> {
        self.nodes.iter().position(|node| !node.is_removed() && node.address.contains(&address))
    }

    /// The node that this machine is.
    #[must_use]
    pub fn own_node(&self) -> Option<&ClusterNode> {
        self.nodes.iter().find(|node| node.name == self.name)
    }

    /// Where a node takes requests for this VIP that are proxied to it: its address of that family, else its first.
    #[must_use]
    pub fn proxy_address(&self, node: &ClusterNode, vip: SocketAddr) -> Option<SocketAddr> {
        let same_family = node.address.iter().find(|address| address.is_ipv4() == vip.is_ipv4());
        let address = same_family.or(node.address.first())?;
        Some(SocketAddr::new(*address, if node.port == 0 { vip.port() } else { node.port }))
    }
}

/// What servers that aren't leat are asked for if nothing else is said.
const HEALTH_PATH: &str = "/health";

impl HealthChecks {
    /// What is asked for.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path.as_deref().unwrap_or(HEALTH_PATH)
    }

    /// When something counts as unfit, and as fit again.
    #[must_use]
    pub fn settings(&self) -> HealthSettings {
        let &HealthChecks { interval, fall, rise, eject_after, eject_time, eject_time_max, slow_start, .. } = self;
        HealthSettings { interval, fall, rise, eject_after, eject_time, eject_time_max, slow_start }
    }
}

impl ClusterNode {
    /// Whether a reload has taken it out of the file: it drains, and keeps its place (`Cluster::keep_places`). A file can't say a weight of 0.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.weight == 0
    }

    /// What it's configured for.
    #[must_use]
    pub fn serves(&self) -> Serves {
        Serves::new(&self.hosts, &self.paths)
    }

    /// Where its server listens for connections of a VIP, when that isn't leat.
    #[must_use]
    pub fn server_for(&self, vip: SocketAddr) -> Option<SocketAddr> {
        self.server.iter().copied().find(|server| server.is_ipv4() == vip.is_ipv4())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_keep_their_places_over_reloads() {
        let nodes = |names: &str| {
            let node = |name: &str| ClusterNode { name: name.to_owned(), weight: 100, ..ClusterNode::default() };
            names.split_whitespace().map(node).collect::<Vec<_>>()
        };
        let mut cluster = Cluster { nodes: nodes("n1 n2 n3"), ..Cluster::default() };
        let mut reloaded = |names: &str| {
            let before = std::mem::replace(&mut cluster.nodes, nodes(names));
            let are_as_written = cluster.keep_places(&before);
            let name = |node: &ClusterNode| format!("{}{}", node.name, if node.is_removed() { " gone" } else { "" });
            (cluster.nodes.iter().map(name).collect::<Vec<_>>().join(", "), are_as_written)
        };
        let mut is = |names: &str, places: &str, are_as_written: bool| {
            assert_eq!(reloaded(names), (places.to_owned(), are_as_written), "{names}");
        };
        is("n1 n2 n3 n4", "n1, n2, n3, n4", true);
        is("n1 n2 n3", "n1, n2, n3, n4 gone", true);
        is("n1 n2 n3 n4", "n1, n2, n3, n4", true);
        is("n1 n3 n4", "n1, n2 gone, n3, n4", false);
        is("n1 n5 n3 n4", "n1, n5, n3, n4", true);
        is("n3 n1 n4 n6", "n1, n5 gone, n3, n4, n6", false);
        is("n1 n5 n3 n4 n6", "n1, n5, n3, n4, n6", true);
        let all: String = (1..=64).map(|number| format!("n{number} ")).collect();
        let others = all.replace("n1 ", "");
        let mut cluster = Cluster { nodes: nodes(&format!("{others}m1")), ..Cluster::default() };
        assert!(!cluster.keep_places(&nodes(&all)));
        assert!(cluster.nodes.len() == NODES_MAX && cluster.nodes[0].is_removed() && cluster.nodes[63].name == "n64");
    }
}
