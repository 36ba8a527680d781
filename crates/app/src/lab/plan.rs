//! What a lab consists of: hosts, networks, addresses, routes, and the commands that make them. Running these is `ground`'s.
//!
//! All bridges are in one namespace, the switch; a router has a leg in each network. The networks are the VIPs' own, with the dispatcher and the
//! nodes beside it, one for each subnet of routed nodes, and the clients'. Data servers are on the connection server's wire, in a subnet of which the
//! router knows nothing: they can send to clients, and no client to them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::config::{Config, Lab, Role};

/// Networks of clients: addresses set aside for benchmarks (RFC 2544, RFC 5180).
const CLIENTS: Network =
    Network { v4: Some(Ipv4Addr::new(198, 18, 0, 0)), v6: Some(Ipv6Addr::new(0x2001, 2, 0, 0xc, 0, 0, 0, 0)) };

/// The router's last byte in every network.
const ROUTER: u8 = 0xfe;

/// What a host is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostKind {
    Switch,
    Router,
    Dispatcher,
    ConnectionServer,
    Node,
    Client,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) kind: HostKind,
    pub(super) addresses: Vec<IpAddr>,
    /// On the servers' side of a split cluster, by which it's known there.
    back: Vec<IpAddr>,
}

/// A leat that runs at a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// The host's place.
    pub(super) host: usize,
    /// The place of its configuration.
    pub(super) cluster: usize,
    pub(super) kind: HostKind,
    /// A node's, or a front's.
    pub(super) name: String,
}

/// What is to be built.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) hosts: Vec<Host>,
    pub(super) members: Vec<Member>,
    /// Clients that are far away, and the port of the switch at which each is.
    pub(super) lines: Vec<(String, String)>,
    pub(super) steps: Vec<Step>,
}

/// One step of building it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A command, with words between single spaces.
    Run(String),
    /// A kernel parameter, `name=value`, which the kernel `may_lack`.
    Set { namespace: String, setting: String, may_lack: bool },
}

/// A subnet of /24 and one of /64 on the same wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Network {
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
}

impl Network {
    fn of(addresses: impl IntoIterator<Item = IpAddr>) -> Network {
        let mut network = Network::default();
        for address in addresses {
            match subnet(address) {
                IpAddr::V4(subnet) => network.v4 = network.v4.or(Some(subnet)),
                IpAddr::V6(subnet) => network.v6 = network.v6.or(Some(subnet)),
            }
        }
        network
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.subnets().any(|known| known == subnet(address))
    }

    fn overlaps(&self, other: &Network) -> bool {
        other.subnets().any(|subnet| self.contains(subnet))
    }

    fn subnets(&self) -> impl Iterator<Item = IpAddr> + use<> {
        self.v4.map(IpAddr::V4).into_iter().chain(self.v6.map(IpAddr::V6))
    }

    /// Its addresses with this last byte.
    fn hosts(self, last: u8) -> Vec<IpAddr> {
        let v4 = self.v4.map(|v4| IpAddr::V4((u32::from(v4) | u32::from(last)).into()));
        let v6 = self.v6.map(|v6| IpAddr::V6((u128::from(v6) | u128::from(last)).into()));
        v4.into_iter().chain(v6).collect()
    }
}

fn subnet(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => IpAddr::V4((u32::from(v4) & !0xff).into()),
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) & !u128::from(u64::MAX)).into()),
    }
}

/// What is being planned.
struct Planner<'a> {
    namespace: &'a dyn Fn(&str) -> String,
    lab: &'a Lab,
    hosts: Vec<Host>,
    members: Vec<Member>,
    lines: Vec<(String, String)>,
    steps: Vec<Step>,
    /// Ports of the switch so far.
    ports: usize,
    /// Legs of the router so far, one for each network.
    legs: usize,
}

pub(super) const SWITCH: &str = "switch";
const ROUTER_NAME: &str = "router";
const DISPATCHER: &str = "dispatcher";
const CONNECTION_SERVER: &str = "cs";
const FRONT: &str = "front";

impl Plan {
    /// The lab of a cluster's configuration, or of several connection servers' that share its networks; `namespace` gives each host's namespace its
    /// name.
    ///
    /// # Errors
    /// What of the clusters can't be built here, and why.
    pub(super) fn new(configs: &[Config], namespace: impl Fn(&str) -> String) -> Result<Plan, String> {
        if configs.iter().any(|config| config.cluster.dispatchers.is_empty()) {
            return Err(
                "`dispatchers` is missing in [cluster]: add the address of the dispatcher beside the VIP".into()
            );
        }
        let is_split = configs.iter().all(|config| config.role == Role::ConnectionServer);
        if configs.len() > 1 && !is_split {
            return Err("only connection servers share a lab: give one file, or files with that role".into());
        }
        let first = configs.first().ok_or("a lab needs a cluster's file")?;
        let vips: Vec<IpAddr> = configs.iter().flat_map(vips).collect();
        let back: Vec<IpAddr> = configs.iter().flat_map(own_addresses).collect();
        let own = vips.iter().chain(back.iter().filter(|_| !is_split)).copied();
        let center = Network::of(own.clone());
        if let Some(seen) = back.iter().find(|address| is_split && center.contains(**address)) {
            let help =
                "give `dispatchers` and data servers a subnet beside the VIP's, so that no client can reach them";
            return Err(format!("{seen} is in the VIP's subnet: {help}"));
        }
        if let Some(stray) = own.into_iter().find(|address| !center.contains(*address)) {
            let help = "VIPs, dispatcher and nodes that aren't `routed` share one /24 and one /64 in a lab";
            return Err(format!("{stray} is in another subnet: {help}"));
        }
        let mut planner = Planner {
            namespace: &namespace,
            lab: &first.lab,
            hosts: Vec::new(),
            members: Vec::new(),
            lines: Vec::new(),
            steps: Vec::new(),
            ports: 0,
            legs: 0,
        };
        planner.host(SWITCH, HostKind::Switch, Vec::new())?;
        planner.has_no_filters(SWITCH);
        planner.host(ROUTER_NAME, HostKind::Router, Vec::new())?;
        for key in ["ipv4.ip_forward=1", "ipv6.conf.all.forwarding=1", "ipv4.conf.all.rp_filter=0"] {
            planner.sysctl(ROUTER_NAME, key);
        }
        planner.network(&center);
        if is_split {
            planner.connection_servers(configs)?;
            for (number, config) in configs.iter().enumerate() {
                planner.data_servers(number, config, center)?;
            }
        } else if first.cluster.is_spread() {
            planner.fronts(&first.cluster.dispatchers, &unique(&vips))?;
            planner.nodes(first, center, &unique(&vips))?;
        } else {
            planner.member(DISPATCHER, HostKind::Dispatcher, 0, &first.cluster.dispatchers)?;
            let dispatcher = planner.hosts.len() - 1;
            planner.runs(dispatcher, 0, HostKind::Dispatcher, "");
            for vip in unique(&vips) {
                planner.vip(vip);
            }
            planner.nodes(first, center, &unique(&vips))?;
        }
        planner.clients()?;
        Ok(Plan { hosts: planner.hosts, members: planner.members, lines: planner.lines, steps: planner.steps })
    }
}

impl Plan {
    /// What to tell where hosts that all talk to each other are more neighbours than the kernel keeps: what goes to one that it has had to forget waits,
    /// a connection's first packet for a second.
    pub(super) fn too_many_neighbours(&self, family: &str, known_max: usize) -> Option<String> {
        let is_of = |address: &IpAddr| address.is_ipv4() == (family == "ipv4");
        let count = self.hosts.iter().filter(|host| host.addresses.iter().any(is_of)).count();
        let neighbours = count * count.saturating_sub(1);
        (neighbours > known_max).then(|| {
            format!(
                "\n{count} hosts are up to {neighbours} neighbours of each other, and the kernel knows {known_max} in all namespaces together: \
                 connections\nbetween them may wait for a second. `sysctl -w net.{family}.neigh.default.gc_thresh3={neighbours}` lets it know them all.\n"
            )
        })
    }
}

fn vips(config: &Config) -> impl Iterator<Item = IpAddr> {
    config.cluster.vip.iter().map(std::net::SocketAddr::ip)
}

/// Those of the machines on the VIP's wire that are not VIPs.
fn own_addresses(config: &Config) -> impl Iterator<Item = IpAddr> {
    let beside = config.cluster.nodes.iter().filter(|node| !node.routed);
    config.cluster.dispatchers.iter().chain(beside.flat_map(|node| &node.address)).copied()
}

fn unique(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for address in addresses {
        if !found.contains(address) {
            found.push(*address);
        }
    }
    found
}

impl Planner<'_> {
    fn step(&mut self, command: String) {
        self.steps.push(Step::Run(command));
    }

    fn sysctl(&mut self, host: &str, setting: &str) {
        let namespace = (self.namespace)(host);
        self.steps.push(Step::Set { namespace, setting: format!("net.{setting}"), may_lack: false });
    }

    /// A switch's frames don't pass filters of IP packets, as a bridge's do where the kernel has the module for that.
    fn has_no_filters(&mut self, switch: &str) {
        let namespace = (self.namespace)(switch);
        for filters in ["iptables", "ip6tables"] {
            let setting = format!("net.bridge.bridge-nf-call-{filters}=0");
            self.steps.push(Step::Set { namespace: namespace.clone(), setting, may_lack: true });
        }
    }

    fn host(&mut self, name: &str, kind: HostKind, addresses: Vec<IpAddr>) -> Result<(), String> {
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !is_name || self.hosts.iter().any(|host| host.name == name) {
            return Err(format!("`{name}` can't be a node's name in a lab: write another, of letters, digits and -_."));
        }
        let namespace = (self.namespace)(name);
        self.hosts.push(Host { name: name.to_owned(), kind, addresses, back: Vec::new() });
        self.step(format!("ip netns add {namespace}"));
        // An address may be used at once.
        self.sysctl(name, "ipv6.conf.default.accept_dad=0");
        self.step(format!("ip -n {namespace} link set lo up"));
        Ok(())
    }

    /// A bridge, with the router on it.
    fn network(&mut self, network: &Network) -> usize {
        let leg = self.legs;
        self.legs += 1;
        let switch = (self.namespace)(SWITCH);
        self.step(format!("ip -n {switch} link add br{leg} type bridge"));
        self.step(format!("ip -n {switch} link set br{leg} up"));
        self.wire(ROUTER_NAME, &format!("eth{leg}"), leg, 0);
        for address in network.hosts(ROUTER) {
            self.address(ROUTER_NAME, &format!("eth{leg}"), address, width(address));
        }
        leg
    }

    /// A host with one leg in a network, and the router as its way to everywhere else.
    fn member(&mut self, name: &str, kind: HostKind, leg: usize, addresses: &[IpAddr]) -> Result<(), String> {
        self.wired(name, kind, leg, addresses)?;
        let namespace = (self.namespace)(name);
        for router in Network::of(addresses.iter().copied()).hosts(ROUTER) {
            self.step(format!("ip -n {namespace} route add default via {router}"));
        }
        Ok(())
    }

    /// A host with one leg in a network.
    fn wired(&mut self, name: &str, kind: HostKind, leg: usize, addresses: &[IpAddr]) -> Result<(), String> {
        self.host(name, kind, addresses.to_vec())?;
        let rate_mbit = match kind {
            HostKind::Dispatcher | HostKind::ConnectionServer => self.lab.dispatcher_rate_mbit,
            HostKind::Node => self.lab.node_rate_mbit,
            HostKind::Client => self.lab.client_rate_mbit,
            HostKind::Switch | HostKind::Router => 0,
        };
        if kind == HostKind::Client && self.lab.has_lines() {
            self.line(name, "eth0");
        }
        self.wire(name, "eth0", leg, rate_mbit);
        for address in addresses {
            self.address(name, "eth0", *address, width(*address));
        }
        Ok(())
    }

    /// Ends of a link from a host to the switch between which a process carries the packets.
    fn line(&mut self, host: &str, device: &str) {
        let port = format!("port{}", self.ports);
        for (host, device) in [(host, device), (SWITCH, &port)] {
            let namespace = (self.namespace)(host);
            self.step(format!("ip -n {namespace} tuntap add dev {device} mode tap vnet_hdr"));
        }
        self.lines.push((host.to_owned(), port));
    }

    /// A link from a host to the switch.
    fn wire(&mut self, host: &str, device: &str, leg: usize, rate_mbit: u32) {
        let (namespace, switch, port) = ((self.namespace)(host), (self.namespace)(SWITCH), self.ports);
        self.ports += 1;
        if self.lines.last().is_none_or(|(line, _)| line != host) {
            self.step(format!("ip -n {namespace} link add {device} type veth peer name port{port} netns {switch}"));
        }
        self.step(format!("ip -n {switch} link set port{port} master br{leg} up"));
        // What follows at the host is done together with this: `ground::run_all`.
        self.step(format!("ip -n {namespace} link set {device} up"));
        for (namespace, device) in [(&namespace, device), (&switch, &format!("port{port}"))] {
            if rate_mbit > 0 {
                // Two milliseconds' worth, and never less than two of the largest packets.
                let burst = (rate_mbit * 250).max(131_072);
                let limit = format!("rate {rate_mbit}mbit burst {burst} latency 50ms");
                self.step(format!("tc -n {namespace} qdisc add dev {device} root handle 1: tbf {limit}"));
                // As a network card has: what only acknowledges goes before replies. Without it tbf has one queue for all.
                self.step(format!("tc -n {namespace} qdisc add dev {device} parent 1: pfifo_fast"));
            }
            if !self.lab.offloads {
                self.step(format!("ip netns exec {namespace} ethtool -K {device} tso off gso off gro off"));
            }
        }
    }

    fn address(&mut self, host: &str, device: &str, address: IpAddr, bits: u8) {
        let nodad = if address.is_ipv6() { " nodad" } else { "" };
        let namespace = (self.namespace)(host);
        self.step(format!("ip -n {namespace} addr add {address}/{bits} dev {device}{nodad}"));
    }

    /// The dispatcher's, but never its source address: nodes would take such packets for their own (RFC 6724 would prefer it to a /64's).
    fn vip(&mut self, vip: IpAddr) {
        let namespace = (self.namespace)(DISPATCHER);
        self.step(match vip {
            IpAddr::V4(_) => format!("ip -n {namespace} addr add {vip}/32 dev eth0"),
            IpAddr::V6(_) => format!("ip -n {namespace} addr add {vip}/128 dev eth0 nodad preferred_lft 0"),
        });
    }

    /// Each has one of `dispatchers`, of each family. None has the VIPs: the router sends what is for these to all, by a hash of addresses and ports.
    fn fronts(&mut self, addresses: &[IpAddr], vips: &[IpAddr]) -> Result<(), String> {
        let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) = addresses.iter().partition(|address| address.is_ipv4());
        for number in 0..v4.len().max(v6.len()) {
            let own: Vec<_> = [&v4, &v6].iter().filter_map(|family| family.get(number)).copied().collect();
            let name = format!("{FRONT}{}", number + 1);
            self.member(&name, HostKind::Dispatcher, 0, &own)?;
            self.runs(self.hosts.len() - 1, 0, HostKind::Dispatcher, &name);
        }
        for family in ["ipv4", "ipv6"] {
            self.sysctl(ROUTER_NAME, &format!("{family}.fib_multipath_hash_policy=1"));
        }
        let namespace = (self.namespace)(ROUTER_NAME);
        for vip in vips {
            let (fronts, bits) = if vip.is_ipv4() { (&v4, 32) } else { (&v6, 128) };
            if fronts.is_empty() {
                return Err(format!("no front has an address of {vip}'s family: add one to `dispatchers`"));
            }
            let hops: String = fronts.iter().map(|front| format!(" nexthop via {front}")).collect();
            self.step(format!("ip -n {namespace} route add {vip}/{bits}{hops}"));
        }
        Ok(())
    }

    fn nodes(&mut self, config: &Config, center: Network, vips: &[IpAddr]) -> Result<(), String> {
        let mut networks = vec![(center, 0)];
        for node in &config.cluster.nodes {
            let network = Network::of(node.address.iter().copied());
            let leg = match networks.iter().position(|(known, _)| known.overlaps(&network)) {
                Some(0) if node.routed => {
                    return Err(format!("node `{}` is `routed`, but in the VIP's subnet: give it another", node.name));
                }
                Some(place) if networks[place].0 == network || !node.routed => networks[place].1,
                Some(_) => {
                    let help = "nodes on one wire share their /24 and their /64";
                    return Err(format!("node `{}` shares only one of its subnets with another: {help}", node.name));
                }
                None if network.overlaps(&CLIENTS) => {
                    return Err(format!("node `{}` is in the subnet of a lab's clients: give it another", node.name));
                }
                None => {
                    let leg = self.network(&network);
                    networks.push((network, leg));
                    leg
                }
            };
            self.member(&node.name, HostKind::Node, leg, &node.address)?;
            self.runs(self.hosts.len() - 1, 0, HostKind::Node, &node.name);
            self.has_vips(&node.name, vips);
        }
        Ok(())
    }

    /// Each has its VIP on the clients' side and an address of its own on the other.
    fn connection_servers(&mut self, configs: &[Config]) -> Result<(), String> {
        for (number, config) in configs.iter().enumerate() {
            let name = match configs.len() {
                1 => CONNECTION_SERVER.to_owned(),
                _ => format!("{CONNECTION_SERVER}{}", number + 1),
            };
            self.member(&name, HostKind::ConnectionServer, 0, &unique(&vips(config).collect::<Vec<_>>()))?;
            self.runs(self.hosts.len() - 1, number, HostKind::ConnectionServer, "");
            for address in &config.cluster.dispatchers {
                self.address(&name, "eth0", *address, width(*address));
                self.hosts.iter_mut().filter(|host| host.name == name).for_each(|host| host.back.push(*address));
            }
        }
        Ok(())
    }

    /// Data servers send to clients by way of the router, which has no way back to them. One that has a connection server's own address is that
    /// machine, and several of one address are one.
    fn data_servers(&mut self, cluster: usize, config: &Config, center: Network) -> Result<(), String> {
        for node in &config.cluster.nodes {
            if node.routed {
                return Err(format!(
                    "data server `{}` is `routed`: in a lab they share the connection server's wire",
                    node.name
                ));
            }
            let known =
                self.hosts.iter().position(|host| host.back.iter().any(|address| node.address.contains(address)));
            let place = match known {
                Some(place) => place,
                None => {
                    self.wired(&node.name, HostKind::Node, 0, &node.address)?;
                    let namespace = (self.namespace)(&node.name);
                    for router in center.hosts(ROUTER) {
                        self.step(format!("ip -n {namespace} route add default via {router} dev eth0 onlink"));
                    }
                    let place = self.hosts.len() - 1;
                    self.hosts[place].back.clone_from(&node.address);
                    place
                }
            };
            let name = self.hosts[place].name.clone();
            self.has_vips(&name, &unique(&vips(config).collect::<Vec<_>>()));
            self.runs(place, cluster, HostKind::Node, &node.name);
        }
        Ok(())
    }

    /// leat runs at a host.
    fn runs(&mut self, host: usize, cluster: usize, kind: HostKind, name: &str) {
        self.members.push(Member { host, cluster, kind, name: name.to_owned() });
    }

    /// A node has the VIPs without telling anybody.
    fn has_vips(&mut self, node: &str, vips: &[IpAddr]) {
        for setting in ["arp_ignore=1", "arp_announce=2", "rp_filter=0"] {
            self.sysctl(node, &format!("ipv4.conf.all.{setting}"));
        }
        self.sysctl(node, "ipv4.conf.eth0.rp_filter=0");
        let namespace = (self.namespace)(node);
        for vip in vips {
            let bits = if vip.is_ipv4() { 32 } else { 128 };
            self.step(format!("ip -n {namespace} route add local {vip}/{bits} dev lo"));
        }
    }

    fn clients(&mut self) -> Result<(), String> {
        let leg = self.network(&CLIENTS);
        for number in 1..=self.lab.clients {
            let name = format!("client{number}");
            self.member(&name, HostKind::Client, leg, &CLIENTS.hosts(number))?;
            // Ten thousand connections a second from one address have all of its ports in TIME_WAIT soon, and look for a free one for milliseconds.
            self.sysctl(&name, "ipv4.tcp_tw_reuse=1");
        }
        Ok(())
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 24 } else { 64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::from_text;

    fn plan(text: &str) -> Result<Plan, String> {
        let config = from_text(&format!("[cluster]\n{text}\n[[site]]\nroot = '.'\n")).expect("it's valid");
        Plan::new(std::slice::from_ref(&config), |host| format!("x-{host}"))
    }

    const CENTER: &str = "vip = ['10.77.0.100:80', '[fd77::100]:80']\ndispatchers = ['10.77.0.1', 'fd77::1']\n";

    fn steps(plan: &Plan) -> Vec<String> {
        let told = |step: &Step| match step {
            Step::Run(command) => command.clone(),
            Step::Set { namespace, setting, .. } => format!("{namespace}: {setting}"),
        };
        plan.steps.iter().map(told).collect()
    }

    #[test]
    fn hosts_have_their_places() {
        let routed = "[[cluster.node]]\nname = 'n3'\naddress = ['10.78.0.3', 'fd78::3']\nrouted = true\n";
        let text = format!("{CENTER}[[cluster.node]]\nname = 'n1'\naddress = ['10.77.0.11', 'fd77::11']\n{routed}");
        let plan = plan(&text).expect("it can be built");
        let names: Vec<_> = plan.hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["switch", "router", "dispatcher", "n1", "n3", "client1"]);
        let steps = steps(&plan);
        let has = |step: &str| assert!(steps.iter().any(|known| known == step), "{step}\n{steps:#?}");
        has("ip -n x-dispatcher addr add fd77::100/128 dev eth0 nodad preferred_lft 0");
        has("ip -n x-router addr add 10.78.0.254/24 dev eth1");
        has("ip -n x-n3 route add default via fd78::fe");
        has("ip -n x-n3 route add local 10.77.0.100/32 dev lo");
        has("x-n1: net.ipv4.conf.all.arp_ignore=1");
        has("ip -n x-client1 addr add 198.18.0.1/24 dev eth0");
        has("x-client1: net.ipv4.tcp_tw_reuse=1");
        assert!(steps.iter().all(|step| !step.contains("tbf") && !step.contains("ethtool")));
    }

    #[test]
    fn data_servers_are_out_of_clients_reach() {
        let folder = std::env::temp_dir().join(format!("leat-plan-{}", std::process::id()));
        let config = split(&folder, 1, ("ds1", "10.99.0.11"));
        let plan = Plan::new(std::slice::from_ref(&config), |host| format!("x-{host}")).expect("it can be built");
        let names: Vec<_> = plan.hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["switch", "router", "cs", "ds1", "client1"]);
        let steps = steps(&plan);
        let has = |step: &str| assert!(steps.iter().any(|known| known == step), "{step}\n{steps:#?}");
        has("ip -n x-cs addr add 10.77.0.100/24 dev eth0");
        has("ip -n x-cs addr add 10.99.0.1/24 dev eth0");
        has("ip -n x-ds1 route add default via 10.77.0.254 dev eth0 onlink");
        has("ip -n x-ds1 route add local 10.77.0.100/32 dev lo");
        assert!(!steps.iter().any(|step| step.contains("x-router") && step.contains("10.99.")), "{steps:#?}");
        let mut config = config;
        config.cluster.nodes[0].address = vec!["10.77.0.11".parse().expect("an address")];
        let told =
            Plan::new(std::slice::from_ref(&config), |host| format!("x-{host}")).expect_err("clients could reach it");
        assert!(told.contains("10.77.0.11 is in the VIP's subnet"), "{told}");
        std::fs::remove_dir_all(folder).expect("the test's directory");
    }

    #[test]
    fn machines_of_several_clusters_are_the_same_by_their_addresses() {
        let folder = std::env::temp_dir().join(format!("leat-plans-{}", std::process::id()));
        let hosts = |plan: &Plan| plan.hosts.iter().map(|host| host.name.clone()).collect::<Vec<_>>();
        let members = |plan: &Plan| {
            let member = |member: &Member| (plan.hosts[member.host].name.clone(), member.cluster, member.name.clone());
            plan.members.iter().map(member).collect::<Vec<_>>()
        };
        let plan_of = |nodes: [(&str, &str); 2]| {
            let configs = [split(&folder, 1, nodes[0]), split(&folder, 2, nodes[1])];
            Plan::new(&configs, |host| format!("x-{host}")).expect("it can be built")
        };
        let shared = plan_of([("ds1", "10.99.0.11"), ("ds1", "10.99.0.11")]);
        assert_eq!(hosts(&shared), ["switch", "router", "cs1", "cs2", "ds1", "client1"]);
        let ds1 = |cluster| ("ds1".to_owned(), cluster, "ds1".to_owned());
        assert_eq!(members(&shared)[2..], [ds1(0), ds1(1)]);
        let peers = plan_of([("b", "10.99.0.2"), ("a", "10.99.0.1")]);
        assert_eq!(hosts(&peers), ["switch", "router", "cs1", "cs2", "client1"]);
        let at = |host: &str, cluster, name: &str| (host.to_owned(), cluster, name.to_owned());
        assert_eq!(members(&peers), [at("cs1", 0, ""), at("cs2", 1, ""), at("cs2", 0, "b"), at("cs1", 1, "a")]);
        std::fs::remove_dir_all(folder).expect("the test's directory");
    }

    /// A connection server's configuration, with one data server.
    fn split(folder: &std::path::Path, number: u32, (name, address): (&str, &str)) -> Config {
        let text = format!(
            "role = 'connection_server'\n[cluster]\nvip = '10.77.0.{}:80'\ndispatchers = '10.99.0.{number}'\nkey_file = 'cluster.key'\n\
             [[cluster.node]]\nname = '{name}'\naddress = '{address}'\n[[site]]\nroot = '.'\n",
            99 + number
        );
        std::fs::create_dir_all(folder).expect("a directory for the test");
        std::fs::write(folder.join("cluster.key"), "0f".repeat(32)).expect("a key");
        std::fs::write(folder.join("x.toml"), text).expect("a configuration");
        crate::config::load(&folder.join("x.toml")).unwrap_or_else(|mistakes| panic!("{mistakes}"))
    }

    #[test]
    fn links_are_limited_at_both_ends() {
        let text = format!(
            "{CENTER}[[cluster.node]]\nname = 'n1'\naddress = '10.77.0.11'\n[lab]\nnode_rate_mbit = 100\noffloads = false\n"
        );
        let plan = plan(&text).expect("it can be built");
        let steps = steps(&plan);
        let limits: Vec<_> = steps.iter().filter(|step| step.contains("tbf")).collect();
        assert_eq!(limits.len(), 2);
        assert_eq!(
            limits[0],
            "tc -n x-n1 qdisc add dev eth0 root handle 1: tbf rate 100mbit burst 131072 latency 50ms"
        );
        assert!(limits[1].starts_with("tc -n x-switch qdisc add dev port2 root handle 1: tbf"), "{}", limits[1]);
        assert_eq!(steps.iter().filter(|step| step.contains("ethtool")).count(), 2 * 5);
    }

    #[test]
    fn fronts_share_the_vip_by_the_routers_choice() {
        let node = "[[cluster.node]]\nname = 'n1'\naddress = ['10.77.0.11', 'fd77::11']\n";
        let fronts = "spread = 'l4'\nvip = ['10.77.0.100:80', '[fd77::100]:80']\n\
                      dispatchers = ['10.77.0.1', '10.77.0.2', 'fd77::1', 'fd77::2']\n";
        let built = plan(&format!("{fronts}{node}")).expect("it can be built");
        let names: Vec<_> = built.hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["switch", "router", "front1", "front2", "n1", "client1"]);
        let steps = steps(&built);
        let has = |step: &str| assert!(steps.iter().any(|known| known == step), "{step}\n{steps:#?}");
        has("ip -n x-router route add 10.77.0.100/32 nexthop via 10.77.0.1 nexthop via 10.77.0.2");
        has("ip -n x-router route add fd77::100/128 nexthop via fd77::1 nexthop via fd77::2");
        has("ip -n x-front2 addr add fd77::2/64 dev eth0 nodad");
        has("x-router: net.ipv6.fib_multipath_hash_policy=1");
        assert!(steps.iter().all(|step| !step.contains("x-front1 addr add 10.77.0.100")), "only nodes have it");
        let told = plan(&format!("{}{node}", fronts.replace(", 'fd77::1', 'fd77::2'", ""))).expect_err("no way");
        assert!(told.contains("no front has an address of fd77::100's family"), "{told}");
    }

    #[test]
    fn clients_far_away_are_at_the_end_of_a_line() {
        let node = "[[cluster.node]]\nname = 'n1'\naddress = '10.77.0.11'\n";
        let text = format!("{CENTER}{node}[lab]\nclients = 2\nclient_delay = '20ms'\n");
        let plan = plan(&text).expect("it can be built");
        let line = |client: &str, port: &str| (client.to_owned(), port.to_owned());
        assert_eq!(plan.lines, [line("client1", "port4"), line("client2", "port5")]);
        let steps = steps(&plan);
        let taps: Vec<_> = steps.iter().filter(|step| step.contains("tuntap")).collect();
        assert_eq!(
            taps[..2],
            [
                "ip -n x-client1 tuntap add dev eth0 mode tap vnet_hdr",
                "ip -n x-switch tuntap add dev port4 mode tap vnet_hdr"
            ]
        );
        assert!(!steps.iter().any(|step| step.contains("x-client1 link add")), "{steps:#?}");
    }

    #[test]
    fn more_hosts_than_the_kernel_knows_are_told_of() {
        let node = |number: u8| format!("[[cluster.node]]\nname = 'n{number}'\naddress = '10.77.0.{}'\n", 10 + number);
        let plan = plan(&format!("{CENTER}{}", (1..=3).map(node).collect::<String>())).expect("it can be built");
        // The dispatcher, three nodes and a client.
        assert_eq!(plan.too_many_neighbours("ipv4", 20), None);
        let told = plan.too_many_neighbours("ipv4", 19).expect("one too many");
        assert!(
            told.contains("5 hosts are up to 20 neighbours") && told.contains("net.ipv4.neigh.default.gc_thresh3=20"),
            "{told}"
        );
        assert_eq!(
            plan.too_many_neighbours("ipv6", 2),
            None,
            "only the dispatcher and the client have addresses of that family"
        );
    }

    #[test]
    fn what_cannot_be_built_is_told() {
        let node = |name: &str, rest: &str| format!("{CENTER}[[cluster.node]]\nname = '{name}'\naddress = {rest}\n");
        let cases = [
            ("vip = '10.77.0.100:80'\n".to_owned(), "`dispatchers` is missing"),
            (node("n1", "'10.79.0.1'"), "10.79.0.1 is in another subnet"),
            (node("router", "'10.77.0.11'"), "`router` can't be a node's name"),
            (node("n1", "'10.77.0.11'\nrouted = true"), "is `routed`, but in the VIP's subnet"),
            (node("n1", "'198.18.0.9'\nrouted = true"), "in the subnet of a lab's clients"),
        ];
        for (text, message) in cases {
            let told = plan(&text).expect_err("it can't be built");
            assert!(told.contains(message), "{told}");
        }
    }
}
