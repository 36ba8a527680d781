//! A cluster against itself: what a role can't do without, and nodes and addresses that clash.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use leat_logic::dispatch::limits::NODES_MAX;
use leat_logic::dispatch::{HandOver, PolicyKind};
use leat_logic::protocol::Protocol;
use leat_logic::split::Near;
use toml::Spanned;
use toml::de::DeValue;

use super::check::Judge;
use super::cluster::{Cluster, ClusterNode, Role};
use super::load::CLUSTER_SITE;
use super::port::{ClusterPort, Each};
use super::site::Site;

pub(super) fn judge(judge: &mut Judge<'_>) {
    let config = judge.config;
    if matches!(config.role, Role::Server | Role::Dispatcher)
        && let Some(span) = judge.written_at(&["split"])
    {
        let message = format!("[split] counts for nothing under role = \"{}\"", config.role.name());
        judge.warning(span, message, "write role = \"connection_server\" before the first section, or take it out");
    }
    if config.role == Role::Server {
        if let Some(span) = judge.written_at(&["cluster"]) {
            judge.warning(
                span,
                "[cluster] counts for nothing under role = \"server\"",
                "start it by `leat dispatch`, `leat connection-server` or `leat node`, which say the role, or write it before the first section",
            );
        }
        return;
    }
    parameters(judge);
    ports(judge);
    // It may have been told on the command line.
    let role = judge.value(&["role"]).map_or(0..0, |value| value.span());
    if !judge.is_good(&role) {
        return;
    }
    needs(judge, &role);
    match config.role {
        Role::Dispatcher => home(judge, &role, "dispatcher"),
        Role::ConnectionServer => {
            home(judge, &role, "connection server");
            if judge.config.cluster.dispatchers.is_empty() {
                let help = "add the address at which data servers reach this machine, as in dispatchers = \"10.0.0.1\": none that clients know";
                missing(judge, &role, "dispatchers", help);
            }
            vips_are_served(judge);
        }
        Role::Node | Role::Server => node(judge, &role),
    }
    nodes(judge);
    checks(judge);
    vips(judge);
    peer(judge);
    near(judge);
    if judge.config.cluster.is_spread() {
        spread(judge);
    }
}

/// What can't be where nobody in front of the nodes sees a request.
fn spread(judge: &mut Judge<'_>) {
    let (config, Some(written)) = (judge.config, judge.written_at(&["cluster", "spread"])) else { return };
    if config.role == Role::ConnectionServer {
        let message = "spread = \"l4\" isn't possible under role = \"connection_server\"";
        judge.error(written, message, "take it out: a connection server's clients have its own address");
        return;
    }
    let hands_on = config.cluster.hands_on();
    for (index, node) in config.cluster.nodes.iter().enumerate() {
        let Some(span) = item(judge, &["cluster", "node"], index) else { continue };
        let name = &node.name;
        if node.routed {
            let message = format!("node `{name}` is `routed`, which spread = \"l4\" can't do");
            judge.error(span.clone(), message, "have fronts and nodes share a network, and take `routed` out");
        }
        if hands_on && !node.server.is_empty() {
            let message = format!("node `{name}` has `for`, and its server can't choose by content");
            let help = "take out `policy`, then each node serves what comes to it; or `for`: only leat hands connections on, and takes others'";
            judge.error(span, message, help);
        }
        if !hands_on {
            serves_only(judge, index);
        }
    }
    if let (true, Some(span)) = (hands_on, judge.written_at(&["cluster", "health", "slow_start"])) {
        let message = "`slow_start` counts for nothing where nodes choose by content";
        judge.warning(
            span,
            message,
            "take it out: each would see the others come at another time, and they wouldn't agree",
        );
    }
    if let (true, true, Some(span)) =
        (hands_on, config.cluster.dispatchers.is_empty(), judge.written_at(&["cluster", "policy"]))
    {
        let help = "add the fronts' addresses, as in dispatchers = [\"10.0.0.1\", \"10.0.0.2\"]: nodes tell them which connections they have handed on";
        judge.error(span, "`dispatchers` is missing in [cluster]", help);
    }
    let unused: &[&str] = match hands_on {
        true => &["born", "mix_lard", "replies_told"],
        false => {
            &["policy", "hand_over", "born", "load_bound_percent", "mix_lard", "dynamic", "link_port", "replies_told"]
        }
    };
    for key in unused {
        if let Some(span) = judge.written_at(&["cluster", key]) {
            let message = format!("`{key}` counts for nothing under spread = \"l4\"");
            let help = match hands_on {
                true => "take it out: connections begin at the fronts' choice, and nodes remember no content",
                false => {
                    "take it out, or write policy = \"consistent_hash\": then nodes choose by content; so far connections go to nodes whatever they ask for"
                }
            };
            judge.warning(span, message, help);
        }
    }
}

/// A node that doesn't serve everything, where connections go to nodes whatever they ask for.
fn serves_only(judge: &mut Judge<'_>, index: usize) {
    let cluster = &judge.config.cluster;
    let node = &cluster.nodes[index];
    let help = if cluster.nodes.iter().any(|node| !node.server.is_empty()) {
        "take it out and have every node serve the same, or take `spread` out: only a dispatcher that reads requests sends them to servers that aren't leat by what they ask for"
    } else if cluster.policy == PolicyKind::ConsistentHash {
        "take hand_over = \"never\" out, then nodes hand connections on to who serves what they ask for; or have every node serve the same"
    } else {
        "write policy = \"consistent_hash\" in [cluster], then nodes hand connections on to who serves what they ask for; or have every node serve the same"
    };
    // A port's clients are told apart by their host.
    let is_for_ports = !cluster.ports.is_empty();
    let wrong = [("hosts", !node.hosts.is_empty() && !is_for_ports), ("paths", !node.paths.is_empty())];
    for (key, _) in wrong.into_iter().filter(|(_, is_wrong)| *is_wrong) {
        if let Some(written) = written_in(judge, &["cluster", "node"], index, key) {
            let message = format!("node `{}` has `{key}`, which fronts don't see", node.name);
            judge.error(written.span(), message, help);
        }
    }
}

/// Who goes on in a connection server's place must be somebody that can.
fn peer(judge: &mut Judge<'_>) {
    let (config, Some(span)) = (judge.config, judge.written_at(&["split", "peer"])) else { return };
    let (name, nodes) = (&config.split.peer, &config.cluster.nodes);
    match nodes.iter().find(|node| node.name == *name) {
        Some(node) if node.routed => {
            let help = "write a data server on the connection server's own network: others can't get the VIP's packets as they are";
            judge.error(span, format!("the peer `{name}` is `routed`"), help);
        }
        None if !name.is_empty() && !nodes.is_empty() => {
            let names: Vec<_> = nodes.iter().map(|node| node.name.as_str()).collect();
            let help = format!("the data servers are {}", names.join(", "));
            judge.error(span, format!("there is no data server `{name}` to be the peer"), help);
        }
        _ => {}
    }
}

/// Who is near to whom counts where requests are split.
fn near(judge: &mut Judge<'_>) {
    let config = judge.config;
    let nodes = &config.cluster.nodes;
    if config.role == Role::Dispatcher {
        for (index, node) in nodes.iter().enumerate().filter(|(_, node)| !node.near.is_empty()) {
            if let Some(written) = written_in(judge, &["cluster", "node"], index, "near") {
                let message = format!("node `{}` has `near`, which role = \"dispatcher\" doesn't go by", node.name);
                let help = "take it out, or write role = \"connection_server\": a dispatcher's nodes are chosen by content and load";
                judge.error(written.span(), message, help);
            }
        }
        return;
    }
    let is_written = |index| written_in(judge, &["cluster", "node"], index, "near").is_some();
    let is_any = nodes.iter().enumerate().any(|(index, node)| !node.near.is_empty() || is_written(index));
    if config.split.near == Near::Always
        && !is_any
        && let Some(span) = judge.written_at(&["split", "near"])
    {
        judge.warning(
            span,
            "`near` counts for nothing: no data server is near to anybody",
            "add its clients' networks to a data server, as in near = \"10.8.0.0/16\" at its [[cluster.node]]",
        );
    }
}

/// Limits that contradict each other.
fn parameters(judge: &mut Judge<'_>) {
    let cluster = &judge.config.cluster;
    let table = &cluster.mix_lard;
    if table.load_low >= table.load_high {
        let place = judge.written_at(&["cluster", "mix_lard", "load_low"]);
        if let Some(span) = place.or_else(|| judge.written_at(&["cluster", "mix_lard", "load_high"])) {
            let message = format!("`load_low` is {}, not below `load_high`, {}", table.load_low, table.load_high);
            judge.error(span, message, "a node must be able to have neither too much nor too little");
        }
    }
    let health = &cluster.health;
    if health.eject_time > health.eject_time_max {
        let place = judge.written_at(&["cluster", "health", "eject_time"]);
        if let Some(span) = place.or_else(|| judge.written_at(&["cluster", "health", "eject_time_max"])) {
            judge.error(
                span,
                "`eject_time` is longer than `eject_time_max`",
                "make the first shorter or the second longer",
            );
        }
    }
    if health.timeout > health.interval
        && !health.interval.is_zero()
        && let Some(span) = judge.written_at(&["cluster", "health", "timeout"])
    {
        judge.error(
            span,
            "`timeout` is longer than `interval`",
            "a probe must end before the next begins: make the first shorter or the second longer",
        );
    }
}

/// Reports `key` of `[cluster]` as missing, unless it was written with a mistake.
fn missing(judge: &mut Judge<'_>, role: &Range<usize>, key: &str, help: &str) {
    if judge.value(&["cluster", key]).is_none_or(|value| judge.is_good(&value.span())) {
        let place = judge.written_at(&["cluster", key]).unwrap_or_else(|| role.clone());
        judge.error(place, format!("`{key}` is missing in [cluster]"), help);
    }
}

/// What dispatcher and nodes both need.
fn needs(judge: &mut Judge<'_>, role: &Range<usize>) {
    let cluster = &judge.config.cluster;
    if judge.config.role == Role::Dispatcher && cluster.vip.is_empty() && !cluster.ports.is_empty() {
        // It only passes on what comes to its ports.
        return;
    }
    if cluster.vip.is_empty() {
        missing(judge, role, "vip", "add the address and port that clients use, as in vip = \"192.0.2.100:80\"");
    }
    if cluster.key_file.is_none() {
        let help = "make one with: (umask 077; openssl rand -hex 32 > cluster.key), and add key_file = \"cluster.key\"";
        missing(judge, role, "key_file", help);
    }
}

fn home(judge: &mut Judge<'_>, role: &Range<usize>, what: &str) {
    let config = judge.config;
    if config.cluster.nodes.is_empty() {
        missing(judge, role, "node", "add [[cluster.node]] on a line of its own, and below it name and address");
    }
    if let Some(span) = judge.written_at(&["cluster", "name"]).filter(|_| !config.cluster.is_spread()) {
        judge.warning(
            span,
            format!("`name` counts for nothing at a {what}"),
            "take it out: it says which node a machine is",
        );
    }
}

fn node(judge: &mut Judge<'_>, role: &Range<usize>) {
    let config = judge.config;
    let cluster = &config.cluster;
    if cluster.dispatchers.is_empty() && !cluster.is_spread() {
        missing(judge, role, "dispatchers", "add the address of the dispatcher, as in dispatchers = \"192.0.2.1\"");
    }
    if cluster.nodes.is_empty() {
        missing(
            judge,
            role,
            "node",
            "add [[cluster.node]] for each node, as the dispatcher's file has them: nodes are known by their places",
        );
    }
    let is_known = cluster.own_node().is_some();
    if cluster.name.is_empty() {
        missing(judge, role, "name", "say which node this machine is, as in name = \"n1\"");
    } else if !is_known && !cluster.nodes.is_empty() {
        let span = judge.written_at(&["cluster", "name"]).unwrap_or_else(|| role.clone());
        let names: Vec<_> = cluster.nodes.iter().map(|node| node.name.as_str()).collect();
        let help = format!("the nodes are {}", names.join(", "));
        judge.error(span, format!("no node has the name `{}`", cluster.name), help);
    }
    vips_are_served(judge);
    checks_are_served(judge);
}

/// Connections of a VIP are served by the sites that listen on it.
fn vips_are_served(judge: &mut Judge<'_>) {
    let config = judge.config;
    for (index, vip) in config.cluster.vip.iter().enumerate() {
        let mut listening = config.sites.iter().flat_map(|site| &site.listen);
        let hears = listening.any(|address| {
            let is_wide = address.ip().is_unspecified() && address.is_ipv4() == vip.is_ipv4();
            address.port() == vip.port() && (is_wide || address.ip() == vip.ip())
        });
        if let (false, false, Some(span)) = (hears, config.sites.is_empty(), item(judge, &["cluster", "vip"], index)) {
            let wide = if vip.is_ipv4() { "0.0.0.0" } else { "[::]" };
            let help = format!("add \"{vip}\" or \"{wide}:{}\" to the `listen` of a site", vip.port());
            judge.error(span, format!("no site listens on {vip}"), help);
        }
    }
}

/// Where item `index` of the list at `path` is.
fn item(judge: &Judge<'_>, path: &[&str], index: usize) -> Option<Range<usize>> {
    let value = judge.value(path)?;
    let span = match value.get_ref() {
        DeValue::Array(items) => items.get(index)?.span(),
        _ => value.span(),
    };
    judge.is_good(&span).then_some(span)
}

/// What is written for `key` in the section that is at `index` of those at `path`.
fn written_in<'a>(judge: &Judge<'a>, path: &[&str], index: usize, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
    let sections = judge.value(path)?;
    let section = match sections.get_ref() {
        DeValue::Array(items) => items.get(index)?,
        _ => sections,
    };
    section.get_ref().get(key)
}

/// Where item `at` of the list `key` in the section that is at `index` of those at `path` is.
fn item_in(judge: &Judge<'_>, path: &[&str], index: usize, key: &str, at: usize) -> Option<Range<usize>> {
    let value = written_in(judge, path, index, key)?;
    Some(value.get_ref().get(at).unwrap_or(value).span())
}

fn nodes(judge: &mut Judge<'_>) {
    let nodes = &judge.config.cluster.nodes;
    for (index, node) in nodes.iter().enumerate() {
        let Some(span) = item(judge, &["cluster", "node"], index) else { continue };
        if index == NODES_MAX {
            judge.error(
                span.clone(),
                format!("there are more than {NODES_MAX} nodes"),
                "make several clusters of them",
            );
        }
        let earlier = &nodes[..index];
        if let Some(other) = earlier.iter().position(|other| other.name == node.name && !node.name.is_empty()) {
            let place = item(judge, &["cluster", "node"], other).unwrap_or_else(|| span.clone());
            let message = format!("two nodes have the name `{}`", node.name);
            judge.error_with_note(span.clone(), message, "write another name in one of them", (place, "the other is"));
        }
        let shared = |other: &ClusterNode| node.address.iter().copied().find(|address| other.address.contains(address));
        if let Some((other, address)) = earlier.iter().enumerate().find_map(|(i, other)| Some((i, shared(other)?))) {
            let place = item(judge, &["cluster", "node"], other).unwrap_or_else(|| span.clone());
            let message = format!("two nodes have the address {address}");
            judge.error_with_note(span.clone(), message, "a node is a machine of its own", (place, "the other is"));
        }
        if let Some(written) = written_in(judge, &["cluster", "node"], index, "address")
            && written.get_ref().as_array().is_some_and(|list| list.is_empty())
        {
            let help = "write one, as in address = \"192.0.2.11\"";
            judge.error(written.span(), format!("node `{}` has no address", node.name), help);
        }
        addresses(judge, index, &span);
        if !node.server.is_empty() {
            server(judge, index, &span);
        } else if node.replay {
            let span = item_in(judge, &["cluster", "node"], index, "replay", 0).unwrap_or(span);
            let message = format!("node `{}`: `replay` counts for nothing without `for`", node.name);
            judge.warning(span, message, "take it out: leat's own nodes need no other handshake");
        }
    }
}

/// What is written of health checks must be asked of somebody, and be answered by whom it's meant for.
fn checks(judge: &mut Judge<'_>) {
    let (config, cluster) = (judge.config, &judge.config.cluster);
    let health = &cluster.health;
    let own = |node: &&ClusterNode| node.server.is_empty();
    let has_own = cluster.nodes.iter().any(|node| own(&node));
    if let Some(span) = judge.written_at(&["cluster", "health", "path"]) {
        if health.interval.is_zero() {
            let help = "take it out, or make `interval` longer than 0, as in interval = \"2s\"";
            judge.warning(span.clone(), "`path` isn't asked for, as `interval` is 0", help);
        } else if has_own && cluster.is_spread() && !cluster.hands_on() {
            let help = "write policy = \"consistent_hash\" in [cluster]: then nodes hand on what they can't answer; fronts only connect to nodes";
            judge.warning(
                span.clone(),
                "leat's own nodes aren't asked for `path` under spread = \"l4\" without a `policy`",
                help,
            );
        }
    }
    let Some(host) = &health.host else { return };
    let Some(span) = judge.written_at(&["cluster", "health", "host"]) else { return };
    if host.is_wildcard() {
        let message = format!("`host` {host} stands for several");
        judge.error(span, message, format!("write one, as in host = \"www.{}\"", host.name()));
    } else if health.path.is_none() && !cluster.nodes.iter().any(|node| !own(&node)) {
        let help = "add `path`, as in path = \"/health\": without it leat's own nodes aren't asked for anything";
        judge.warning(span, "`host` counts for nothing without `path`", help);
    } else if config.role == Role::Node && cluster.own_node().as_ref().is_some_and(own) {
        let serves = |site: &Site| site.hosts.is_empty() || site.hosts.iter().any(|known| known.covers(host));
        if !config.sites.is_empty() && !config.sites.iter().any(serves) {
            let help = "write one of the `hosts` of a site: the answer would be that of whichever site has requests for other hosts";
            judge.warning(span, format!("no site has the host {host}"), help);
        }
    }
}

/// Where a node's own sites are asked for `path`, one of them must listen.
fn checks_are_served(judge: &mut Judge<'_>) {
    let cluster = &judge.config.cluster;
    let Some(span) = judge.written_at(&["cluster", "health", "path"]) else { return };
    let Some(node) = cluster.own_node().filter(|node| node.server.is_empty()) else { return };
    let Some(at) = cluster.vip.first().and_then(|&vip| cluster.proxy_address(node, vip)) else { return };
    let sites = &judge.config.sites;
    let hears = |address: &SocketAddr| address.port() == at.port() && (*address == at || address.ip().is_unspecified());
    if !sites.is_empty() && !sites.iter().flat_map(|site| &site.listen).any(hears) {
        let help = format!(
            "add \"{at}\" to the `listen` of a site: requests that are proxied to this node come there as well"
        );
        judge.error(span, format!("`path` is asked for at {at}, where no site listens"), help);
    }
}

/// A server that answers in a node's place and isn't leat.
fn server(judge: &mut Judge<'_>, index: usize, span: &Range<usize>) {
    let node = &judge.config.cluster.nodes[index];
    let name = &node.name;
    let place = |judge: &Judge<'_>, at| item_in(judge, &["cluster", "node"], index, "for", at);
    if judge.config.role == Role::ConnectionServer {
        let message = format!("the data server `{name}` isn't leat");
        let help = "take `for` out: a connection server lends connections, and only leat gives them back";
        judge.error(span.clone(), message, help);
    }
    for (at, server) in node.server.iter().enumerate() {
        let wrong = match server.ip().is_unspecified() {
            true => "is every address",
            false if server.port() == 0 => "has no port",
            false => continue,
        };
        let help = "write one address at which the server listens, as in for = \"127.0.0.1:8080\"";
        let span = place(judge, at).unwrap_or_else(|| span.clone());
        judge.error(span, format!("node `{name}`: `for` {server} {wrong}"), help);
    }
    for vip in &judge.config.cluster.vip {
        let family = if vip.is_ipv4() { "IPv4" } else { "IPv6" };
        let of_family: Vec<usize> =
            (0..node.server.len()).filter(|&at| node.server[at].is_ipv4() == vip.is_ipv4()).collect();
        match of_family[..] {
            [_] => {}
            [] => {
                let message = format!("node `{name}`: `for` has no {family} address, and {vip} is one");
                let help = "have the server listen there as well and add that address: a connection begins where its family is";
                judge.error(place(judge, 0).unwrap_or_else(|| span.clone()), message, help);
            }
            [_, second, ..] => {
                let message = format!("node `{name}`: `for` has several {family} addresses");
                let span = place(judge, second).unwrap_or_else(|| span.clone());
                judge.error(span, message, "write one: a node stands for one server");
                return;
            }
        }
    }
}

/// Balancers tell their clients' addresses where connections stay, and nobody tells where they don't.
pub(super) fn balancers(judge: &mut Judge<'_>) {
    let config = judge.config;
    let (from, listen) = (&config.proxy_protocol.from, &config.proxy_protocol.listen);
    let span = judge.written_at(&["proxy_protocol", "from"]).or_else(|| judge.written_at(&["proxy_protocol"]));
    let is_meant = judge.value(&["proxy_protocol", "from"]).is_none_or(|value| judge.is_good(&value.span()));
    if let (true, true, false, Some(span)) = (is_meant, from.is_empty(), listen.is_empty(), span.clone()) {
        judge.warning(
            span,
            "[proxy_protocol] counts for nothing without `from`",
            "add the balancers' addresses, as in from = \"10.0.0.0/8\"",
        );
    }
    let has_no_port = config.cluster.ports.is_empty() && judge.value(&["cluster", "port"]).is_none();
    if let (false, true, Role::Dispatcher, true, Some(span)) =
        (from.is_empty(), listen.is_empty(), config.role, has_no_port, span.clone())
    {
        judge.warning(
            span,
            "[proxy_protocol] counts for nothing at a dispatcher without a [[cluster.port]]",
            "take it out, or have the balancers come to a [[cluster.port]]: connections to VIPs change hands, and nobody could tell whose they are",
        );
    }
    if let (false, Role::Node | Role::ConnectionServer, Some(span)) = (from.is_empty(), config.role, span) {
        let message = format!("[proxy_protocol] isn't possible under role = \"{}\"", config.role.name());
        judge.error(
            span,
            message,
            "connections change hands there, and nobody could tell whose they are: have the dispatcher's ports read it",
        );
    }
    let listening = |address: &SocketAddr| match config.role {
        Role::Dispatcher => config.cluster.ports.iter().any(|port| port.listen.contains(address)),
        _ => config.sites.iter().any(|site| site.listen.contains(address)),
    };
    for (index, address) in listen.iter().enumerate() {
        if let (false, Some(span)) = (listening(address), item(judge, &["proxy_protocol", "listen"], index)) {
            let (message, help) = match config.cluster.vip.contains(address) && config.role == Role::Dispatcher {
                true => (
                    format!("{address} is a VIP, whose connections are handed over"),
                    "write the `listen` of a [[cluster.port]]",
                ),
                false => (
                    format!("nobody listens on {address}"),
                    "write one of the addresses in `listen` of a site or a [[cluster.port]]",
                ),
            };
            judge.error(span, message, help);
        }
    }
}

/// Ports against each other, the VIPs, the nodes, and what their protocol can do.
fn ports(judge: &mut Judge<'_>) {
    let config = judge.config;
    for (index, port) in config.cluster.ports.iter().enumerate() {
        let Some(span) = item(judge, &["cluster", "port"], index) else { continue };
        let name = &port.name;
        if config.role != Role::Dispatcher {
            let message = format!("the port `{name}` counts for nothing under role = \"{}\"", config.role.name());
            judge.warning(
                span,
                message,
                "only a dispatcher has ports: this is right in a file that is the dispatcher's too",
            );
            continue;
        }
        port_name(judge, index, &span);
        port_addresses(judge, index, &span);
        port_nodes(judge, index, &span);
        port_choice(judge, index, &span);
    }
}

/// The name of a port, at `span`, by which metrics and logs tell it from others.
fn port_name(judge: &mut Judge<'_>, index: usize, span: &Range<usize>) {
    let ports = &judge.config.cluster.ports;
    let (name, earlier) = (&ports[index].name, &ports[..index]);
    if let Some(other) = earlier.iter().position(|other| other.name == *name) {
        let place = item(judge, &["cluster", "port"], other).unwrap_or_else(|| span.clone());
        let help = "write another `name`: metrics and logs tell ports apart by it";
        judge.error_with_note(span.clone(), format!("two ports have the name `{name}`"), help, (place, "the other is"));
    } else if *name == CLUSTER_SITE {
        judge.error(
            span.clone(),
            format!("a port can't be called `{name}`"),
            "write another `name`: the VIPs are called so",
        );
    }
}

/// Where a port listens, beside whatever else does.
fn port_addresses(judge: &mut Judge<'_>, index: usize, span: &Range<usize>) {
    let config = judge.config;
    let cluster = &config.cluster;
    let (port, earlier) = (&cluster.ports[index], &cluster.ports[..index]);
    let name = &port.name;
    if let Some(written) = written_in(judge, &["cluster", "port"], index, "listen")
        && written.get_ref().as_array().is_some_and(|list| list.is_empty())
    {
        judge.error(
            written.span(),
            format!("`listen` of the port `{name}` is empty"),
            "write an address: nobody could reach it",
        );
    }
    let taken =
        |address: &&SocketAddr| earlier.iter().any(|other| address.port() != 0 && other.listen.contains(address));
    if let Some(address) = port.listen.iter().find(taken) {
        judge.error(span.clone(), format!("two ports listen on {address}"), "write another address in one of them");
    }
    if let Some(address) = port.listen.iter().find(|address| cluster.vip.contains(address)) {
        judge.error(
            span.clone(),
            format!("the port `{name}` listens on {address}, which is a VIP"),
            "write another address",
        );
    }
    if let Some(address) =
        port.listen.iter().find(|&&address| Some(address) == config.admin.listen && address.port() != 0)
    {
        let help = "write another port here or in [admin]";
        judge.error(span.clone(), format!("the port `{name}` listens on {address}, which is the admin address"), help);
    }
    if port.node_port == 0 && port.listen.iter().any(|address| address.port() == 0) {
        let help = "add node_port = ..., the port at which nodes take it";
        judge.error(span.clone(), format!("nobody says where nodes take what comes to the port `{name}`"), help);
    }
}

/// Who takes what comes to a port.
fn port_nodes(judge: &mut Judge<'_>, index: usize, span: &Range<usize>) {
    let cluster = &judge.config.cluster;
    let port = &cluster.ports[index];
    let name = &port.name;
    for (at, node) in port.nodes.iter().enumerate() {
        if cluster.nodes.iter().all(|known| known.name != *node) {
            let span = item_in(judge, &["cluster", "port"], index, "nodes", at).unwrap_or_else(|| span.clone());
            let message = format!("the port `{name}` has a node `{node}`, and there is none of that name");
            judge.error(span, message, "write the name of a [[cluster.node]]");
        }
    }
    if let Some(at) = own_node_of(cluster, port) {
        let span = written_in(judge, &["cluster", "port"], index, "node_port").map_or(span.clone(), Spanned::span);
        let help = "write the node's own port as `node_port`, or another address here or there: each connection would be passed on to itself";
        judge.error(span, format!("the port `{name}` is its own node: it listens on {at} itself"), help);
    }
}

/// What a port chooses nodes by, as far as its protocol shows that.
fn port_choice(judge: &mut Judge<'_>, index: usize, span: &Range<usize>) {
    let cluster = &judge.config.cluster;
    let port = &cluster.ports[index];
    let name = &port.name;
    let protocol = port.protocol;
    if port.first_bytes > 0 && protocol != Protocol::Tcp {
        let message = format!("`first_bytes` of the port `{name}` counts for nothing: its protocol is \"{protocol}\"");
        judge.warning(span.clone(), message, "take it out, or write protocol = \"tcp\"");
    }
    let policy = port.policy();
    if protocol.is_store() && policy != PolicyKind::ConsistentHash {
        let message = format!("the port `{name}` sends the same key now to one node and now to another");
        let help = "write policy = \"consistent_hash\", unless all nodes have the same content";
        judge.warning(span.clone(), message, help);
    }
    let is_by_load = !policy.goes_by_content();
    if is_by_load && port.first_bytes > 0 && protocol == Protocol::Tcp {
        let message = format!("`first_bytes` of the port `{name}` counts for nothing: {policy} goes by load");
        judge.warning(span.clone(), message, "take it out, or write policy = \"consistent_hash\"");
    }
    if let (false, Protocol::Tcp, 0, Some(written)) =
        (is_by_load, protocol, port.first_bytes, written_in(judge, &["cluster", "port"], index, "policy"))
    {
        let message = format!("{policy} goes by content, and the port `{name}` looks at none: it goes by load");
        let help =
            "add `first_bytes`, as in first_bytes = 16, write the protocol that is spoken there, or take `policy` out";
        judge.warning(written.span(), message, help);
    }
    if let (Each::Request, false, Some(written)) =
        (port.schedule, protocol.is_separable(), written_in(judge, &["cluster", "port"], index, "schedule"))
        && judge.is_good(&written.span())
    {
        let message = format!("schedule = \"request\" counts for nothing at the port `{name}`");
        let help =
            format!("take it out: requests of \"{protocol}\" aren't told apart, and each connection has one node");
        judge.warning(written.span(), message, help);
    }
    let goes_by_host = || port.targets(cluster).iter().any(|(node, _)| node.serves.goes_by_host());
    if is_by_load && matches!(protocol, Protocol::Tls | Protocol::Http) && !goes_by_host() {
        let message = format!("the port `{name}` goes by load alone, whatever host its clients ask for");
        let help =
            "write `hosts` for its nodes or policy = \"consistent_hash\"; if load is meant, write protocol = \"tcp\"";
        judge.warning(span.clone(), message, help);
    }
}

/// Where a port would pass on to that it listens on itself.
fn own_node_of(cluster: &Cluster, port: &ClusterPort) -> Option<SocketAddr> {
    let is_here = |ip: IpAddr| ip.is_loopback() || cluster.dispatchers.contains(&ip);
    let targets = port.targets(cluster);
    // Without `node_port` it's the port that the client came to.
    let of = |listen: &SocketAddr| if port.node_port == 0 { listen.port() } else { port.node_port };
    let mut all = port.listen.iter().flat_map(|listen| {
        let number = of(listen);
        targets.iter().map(move |(_, target)| SocketAddr::new(target.ip(), number))
    });
    all.find(|target| {
        let hears = |listen: &SocketAddr| {
            let ip = listen.ip();
            let is_any = ip.is_unspecified() && ip.is_ipv4() == target.is_ipv4() && is_here(target.ip());
            listen.port() == target.port() && (ip == target.ip() || is_any)
        };
        target.port() != 0 && port.listen.iter().any(hears)
    })
}

fn addresses(judge: &mut Judge<'_>, index: usize, span: &Range<usize>) {
    let node = &judge.config.cluster.nodes[index];
    let place = |judge: &Judge<'_>, at| {
        item_in(judge, &["cluster", "node"], index, "address", at).unwrap_or_else(|| span.clone())
    };
    let of_family = |is_ipv4: bool| node.address.iter().filter(|address| address.is_ipv4() == is_ipv4).count();
    let is_second =
        |at: &usize| node.address[..*at].iter().any(|earlier| earlier.is_ipv4() == node.address[*at].is_ipv4());
    if let Some(second) = (0..node.address.len()).find(is_second) {
        let message = format!("node `{}` has several addresses of one family", node.name);
        judge.error(place(judge, second), message, "write one IPv4 address, one IPv6 address, or one of each");
        return;
    }
    let lacking = judge.config.cluster.vip.iter().find(|vip| of_family(vip.is_ipv4()) == 0);
    if let (true, Some(vip), false) = (node.routed, lacking, node.address.is_empty()) {
        let family = if vip.is_ipv4() { "IPv4" } else { "IPv6" };
        let message = format!("the routed node `{}` has no {family} address, and {vip} is one", node.name);
        judge.error(place(judge, 0), message, format!("add its {family} address: packets to a routed node carry it"));
        return;
    }
    // IPv6 packets have no way to a neighbour that has only an IPv4 address; the other way round they have.
    let is_given_any = judge.config.cluster.hand_over != HandOver::Never;
    if let (true, Some(vip), false) = (is_given_any, lacking.filter(|vip| vip.is_ipv6()), node.address.is_empty()) {
        let message = format!("node `{}` has no IPv6 address, and {vip} is one", node.name);
        judge.error(place(judge, 0), message, "add its IPv6 address: clients' packets to that VIP couldn't reach it");
    }
}

fn vips(judge: &mut Judge<'_>) {
    let cluster = &judge.config.cluster;
    let owned = |ip: IpAddr| cluster.nodes.iter().find(|node| node.address.contains(&ip));
    for (index, vip) in cluster.vip.iter().enumerate() {
        let wrong = if vip.ip().is_multicast() {
            Some((format!("{} is a group's address", vip.ip()), "write the one address that clients use".to_owned()))
        } else if vip.ip().is_unspecified() {
            Some((format!("{vip} is every address"), "write the one address that clients use".to_owned()))
        } else if vip.port() == 0 {
            Some((format!("{vip} has no port"), "write the port that clients use".to_owned()))
        } else if let Some(node) = owned(vip.ip()) {
            let help = "a VIP belongs to the cluster: write another address here or there".to_owned();
            Some((format!("{} is the address of node `{}`", vip.ip(), node.name), help))
        } else if cluster.dispatchers.contains(&vip.ip()) {
            let help = "a dispatcher has an address of its own beside the VIP: packets to the VIP may go to any node";
            Some((format!("{} is the address of a dispatcher", vip.ip()), help.to_owned()))
        } else {
            None
        };
        if let (Some((message, help)), Some(span)) = (wrong, item(judge, &["cluster", "vip"], index)) {
            judge.error(span, message, help);
        }
    }
}
