//! `spread = "l4"`: a front's part, and a node's. A front has the kernel send packets to nodes by a table (`leat_logic::spread`), and finds out which nodes can
//! be reached; it sees no request. A node has the kernel send on what belongs to a connection that another node has; it serves as any server does, or has
//! the kernel give what begins to a server that isn't leat. `docs/decisions/0017-spread.md` has the reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use leat_host::interfaces;
use leat_host::process::is_out_of_descriptors;
use leat_host::reactor::{Peer, Reactor, Token};
use leat_host::steering::{self, FlowKey, SpreadPart, SpreadService};
use leat_logic::handoff::{Ends, ServerId};
use leat_logic::spread;
use leat_logic::spread::{Table, bucket_key};
use leat_logic::time::Instant;
use serde_json::Value;

use super::super::stream::{Owner, Probed};
use super::super::{Host, Worker};
use super::foreign::Foreign;
use super::front::{Front, Probe};
use super::served::Served;
use super::{Part, number_of, shared};
use crate::config::{self, ClusterNode, Config, Role};
use crate::ctl::Command;
use crate::metrics::WorkerMetrics;
use crate::pins;

/// How often what the programs have counted is told.
const COUNT_PAUSE: Duration = Duration::from_millis(250);

/// How long nodes have to say what they have, when a front starts anew.
const LEFT_KEEP: Duration = Duration::from_secs(10);

/// A front that is stopped spreads packets for so long yet: who routes them to it sees by its admin address that it ends.
const ROUTED_FOR: Duration = Duration::from_secs(3);

/// See the module.
pub(in crate::worker) struct Spread {
    /// What the kernel is told; the first worker's, for all.
    steering: Option<steering::Spread>,
    /// The interfaces whose packets it looks at.
    interfaces: Vec<String>,
    /// At a front.
    front: Option<Front>,
    /// At a node in the place of a server that isn't leat, and where that listened at the start.
    served: Option<Served>,
    server: Vec<SocketAddr>,
    count_at: Instant,
    /// Connections that an earlier process has followed: nodes have until then to say that they still have them.
    left: Vec<FlowKey>,
    forget_at: Instant,
    /// Linked workers that have said whether they drain, and the numbers of nodes of which all do.
    draining: BTreeMap<ServerId, bool>,
    drained: BTreeSet<u32>,
    /// Names of nodes to which there is no way.
    lost: BTreeSet<String>,
}

impl Spread {
    fn new(config: &Config, is_first: bool, now: Instant, seed: u64) -> Result<Spread, String> {
        let cluster = &config.cluster;
        let key = cluster.key_file.as_ref().ok_or("`key_file` is missing in [cluster]")?;
        let loaded = is_first.then(|| load(config, bucket_key(key.bytes()))).transpose()?;
        let (steering, interfaces) = loaded.map_or((None, Vec::new()), |(steering, names)| (Some(steering), names));
        let left = steering.as_ref().map(steering::Spread::buckets).transpose().map_err(|error| error.to_string())?;
        let table = left.map(Table::left).unwrap_or_default();
        let is_front = config.role == Role::Dispatcher;
        let front = is_front.then(|| Front::new(cluster, key.bytes(), seed, table));
        let followed = steering.as_ref().filter(|_| front.is_some()).map(steering::Spread::moved).transpose();
        let left = followed.map_err(|error| error.to_string())?.unwrap_or_default();
        let foreign = server_of(config).filter(|_| is_first).map(|node| Foreign::watch(config, node, None)).transpose();
        let foreign = foreign.map_err(|error| format!("no thread can be started: {error}"))?;
        let forget_at = if left.is_empty() { Instant::NEVER } else { now.after(LEFT_KEEP) };
        let server = server_of(config).map(|node| node.server.clone()).unwrap_or_default();
        let served = (!server.is_empty()).then(|| Served::new(foreign));
        let (draining, drained) = (BTreeMap::new(), BTreeSet::new());
        let lost = BTreeSet::new();
        Ok(Spread {
            steering,
            interfaces,
            front,
            served,
            server,
            count_at: now,
            left,
            forget_at,
            draining,
            drained,
            lost,
        })
    }

    /// Takes over what a configuration says of the nodes.
    fn configure(&mut self, cluster: &config::Cluster, now: Instant) -> Result<(), String> {
        let text = |error: steering::Error| error.to_string();
        self.renumber(cluster, now);
        self.set_ways(cluster, |_| true);
        if let Some(steering) = &mut self.steering {
            steering.set_services(&services(cluster, &self.server)).map_err(text)?;
        }
        if let Some(front) = &mut self.front {
            front.configure(cluster, now);
            // One that was put back may be emptied all the same.
            let drained =
                cluster.nodes.iter().enumerate().filter(|(place, _)| self.drained.contains(&number_of(*place)));
            for id in drained.filter_map(|(_, node)| front.dispatcher.find(&node.name)).collect::<Vec<_>>() {
                front.dispatcher.set_draining(id, true, now);
            }
        }
        self.renew(now)
    }

    /// Forgets what was said under numbers that a configuration gives to others, who haven't said it. Returns these numbers.
    pub(super) fn renumber(&mut self, cluster: &config::Cluster, now: Instant) -> Vec<u32> {
        let Some(front) = &mut self.front else { return Vec::new() };
        let renumbered = front.renumbered(cluster);
        for (number, had) in &renumbered {
            self.draining.retain(|server, _| server.server() != *number);
            // It may be there under another number.
            if let Some(had) = had.filter(|_| self.drained.remove(number)) {
                front.dispatcher.set_draining(had, false, now);
            }
        }
        renumbered.into_iter().map(|(number, _)| number).collect()
    }

    /// Tells the programs the ways to nodes. One to which there is none now gets nothing, until there is.
    fn set_ways(&mut self, cluster: &config::Cluster, which: impl Fn(&str) -> bool) {
        let Some(steering) = &mut self.steering else { return };
        let text = |error: steering::Error| error.to_string();
        let others =
            cluster.nodes.iter().enumerate().filter(|(_, node)| node.name != cluster.name && which(&node.name));
        for (place, node) in others {
            let (number, name) = (number_of(place), &node.name);
            let set = shared::reach(node).and_then(|reach| steering.set_node(number, &reach).map_err(text));
            if let Err(error) = set {
                let lost = steering.lose_node(number).map_err(text);
                if self.lost.insert(name.clone()) {
                    let error = lost.err().unwrap_or(error);
                    crate::log::warning(format_args!("packets can't be sent to {name}, until there is a way: {error}"));
                }
            } else if self.lost.remove(name) {
                crate::log::info(format_args!("node {name}: there is a way to it"));
            }
        }
    }

    /// Has the kernel told whose the buckets are by now.
    fn renew(&mut self, now: Instant) -> Result<(), String> {
        let Some(front) = &mut self.front else { return Ok(()) };
        let members = front.members(now);
        let changes = match front.untried.is_empty() {
            true => front.table.update(&members),
            // The kernel has the nodes' numbers by now.
            false => front.table.renumber(&members),
        };
        let Some(steering) = &mut self.steering else { return Ok(()) };
        for (bucket, owners) in &changes {
            steering.set_bucket(*bucket, *owners).map_err(|error| error.to_string())?;
        }
        if !changes.is_empty() {
            let takers = members.iter().filter(|member| member.standing == spread::Standing::Takes);
            let names: Vec<_> = takers.map(|member| member.name.as_str()).collect();
            crate::log::info(format_args!("new connections go to {}", names.join(", ")));
        }
        Ok(())
    }

    /// A node's worker has said whether it takes anything on, or (`None`) its link has ended: the node does as long as one of them does. Whether that's new.
    fn worker_drains(&mut self, node: &str, server: ServerId, drains: Option<bool>, now: Instant) -> bool {
        let Some(front) = &mut self.front else { return false };
        match drains {
            Some(drains) => _ = self.draining.insert(server, drains),
            None => _ = self.draining.remove(&server),
        }
        let number = server.server();
        let mut of_node = self.draining.iter().filter(|(known, _)| known.server() == number).peekable();
        let (is_linked, drains) = (of_node.peek().is_some(), of_node.all(|(_, drains)| *drains));
        // Of one without links, what its workers have said last holds.
        if !is_linked || drains == self.drained.contains(&number) {
            return false;
        }
        match drains {
            true => _ = self.drained.insert(number),
            false => _ = self.drained.remove(&number),
        }
        if let Some(id) = front.dispatcher.find(node) {
            front.dispatcher.set_draining(id, drains || front.is_removed(node), now);
        }
        true
    }

    fn poll_timeout(&self) -> Instant {
        let front = self.front.as_ref().map_or(Instant::NEVER, Front::poll_timeout);
        if self.steering.is_some() { front.min(self.count_at).min(self.forget_at) } else { front }
    }

    /// Forgets connections that no node has claimed.
    fn forget_left(&mut self, known: impl Fn(Ends) -> bool, now: Instant) {
        if now < self.forget_at {
            return;
        }
        self.forget_at = Instant::NEVER;
        let Some(steering) = &mut self.steering else { return };
        for key in std::mem::take(&mut self.left).into_iter().filter(|key| !known(key.ends())) {
            if let Err(error) = steering.remove_moved(key) {
                crate::log::warning(format_args!("a connection that is over can't be forgotten: {error}"));
            }
        }
    }

    fn count(&mut self, metrics: &WorkerMetrics, now: Instant) {
        let Some(steering) = self.steering.as_mut().filter(|_| now >= self.count_at) else { return };
        self.count_at = now.after(COUNT_PAUSE);
        let served = self.served.as_mut();
        // What can't be read now can be later.
        if let Ok(counters) = steering.counters() {
            metrics.packets_spread.set(counters.spread);
            metrics.packets_passed_on.set(counters.passed_on);
            metrics.packets_unreached.set(counters.unreached);
            metrics.packets_followed.set(counters.followed);
            metrics.packets_served.set(counters.served);
            metrics.packets_unserved.set(counters.unserved);
            served.into_iter().for_each(|served| served.has_begun(counters.served, counters.unserved, now));
        }
        let Some(served) = &self.served else { return };
        metrics.flows.set(u64::from(served.connections().unwrap_or(0)));
        if let Some(Err(error)) = served.is_well().map(|is_well| steering.set_well(is_well)) {
            crate::log::warning(format_args!("fronts can't see whether this node's server is well: {error}"));
        }
    }
}

/// This node, if its server isn't leat.
fn server_of(config: &Config) -> Option<&ClusterNode> {
    config.cluster.own_node().filter(|node| config.role == Role::Node && !node.server.is_empty())
}

/// The VIPs, and at a node whose server isn't leat its own addresses at which fronts probe it. `server`: where that listens.
fn services(cluster: &config::Cluster, server: &[SocketAddr]) -> Vec<SpreadService> {
    // The addresses may have changed since the start; where its server listens is what this one is built on.
    let own = ClusterNode { server: server.to_vec(), ..cluster.own_node().cloned().unwrap_or_default() };
    let vip = |&at: &SocketAddr| SpreadService { at, is_own: false, server: own.server_for(at) };
    let mut services: Vec<_> = cluster.vip.iter().map(vip).collect();
    if !server.is_empty() {
        for at in cluster.vip.iter().filter_map(|&vip| cluster.proxy_address(&own, vip)) {
            if services.iter().all(|known| known.at != at) {
                services.push(SpreadService { at, is_own: true, server: own.server_for(at) });
            }
        }
    }
    services
}

/// The programs, and the interfaces at which they are.
fn load(config: &Config, key: [u8; 16]) -> Result<(steering::Spread, Vec<String>), String> {
    let text = |error: steering::Error| error.to_string();
    let part = match (config.role, server_of(config)) {
        (Role::Dispatcher, _) => SpreadPart::Front,
        (_, None) => SpreadPart::Peer,
        (_, Some(_)) => SpreadPart::Served,
    };
    let name = format!("spread-{}-{}", config.cluster.name, shared::vip_name(&config.cluster));
    let mut steering = steering::Spread::load(&pins::directory(&name)?, part, key).map_err(text)?;
    let interfaces = interfaces::outward().map_err(|error| format!("interfaces: {error}"))?;
    interfaces.iter().try_for_each(|interface| steering.attach(interface).map_err(text))?;
    Ok((steering, interfaces))
}

impl<H: Host> Worker<H> {
    /// Takes up what a configuration says, at the worker's first one.
    pub(super) fn arrange_spread(&mut self, config: &Config) {
        let is_first = self.shared.workers().first() == Some(&super::worker_number(self.metrics.worker));
        let spread = match self.spread.take() {
            Some(spread) => Ok(spread),
            None => Spread::new(config, is_first, self.now, self.boundary).map(Box::new),
        };
        let configured = spread.and_then(|mut spread| {
            let configured = spread.configure(&config.cluster, self.now);
            self.spread = Some(spread);
            configured
        });
        if let Err(error) = configured {
            let what = match config.role {
                Role::Dispatcher => "connections aren't spread over nodes",
                _ => "packets of connections that another node has aren't sent on",
            };
            crate::log::error(format_args!("{what}: {error}"));
        }
    }

    /// Whether this is a front of whose table the kernel has nothing from this process: a connection that comes to it may get nowhere.
    pub(in crate::worker) fn spreads_nothing(&self) -> bool {
        self.config.role == Role::Dispatcher && self.config.cluster.is_spread() && self.spread.is_none()
    }

    /// Whether this worker tells a front's kernel whose packets are, and the process is being stopped, with none to follow at once.
    fn is_ending_front(&self) -> bool {
        let is_stopped = self.retiring.is_none() && self.drain.is_some_and(|drain| !drain.keep_idle);
        is_stopped && self.spread.as_ref().is_some_and(|spread| spread.front.is_some() && spread.steering.is_some())
    }

    /// Whether this is no front that is being stopped, or who routes packets to it has had the time to see that.
    pub(in crate::worker) fn has_left_routers(&self) -> bool {
        let drain = self.drain.filter(|_| self.is_ending_front());
        drain.is_none_or(|drain| self.now >= drain.since.after(ROUTED_FOR).min(drain.deadline))
    }

    /// Nobody will watch over a stopped front's table any more: packets go by it no longer. A process that dies leaves them to it, until it's started again.
    pub(in crate::worker) fn end_spread(&mut self) {
        if !self.is_ending_front() {
            return;
        }
        let Some(Spread { steering: Some(steering), interfaces, .. }) = self.spread.as_deref_mut() else { return };
        for interface in interfaces {
            if let Err(error) = steering.detach(interface) {
                crate::log::warning(format_args!("packets go on being spread by a table that stays as it is: {error}"));
            }
        }
    }

    pub(super) fn spread_timeout(&self) -> Instant {
        self.spread.as_ref().map_or(Instant::NEVER, |spread| spread.poll_timeout())
    }

    /// Begins probes that are due, and ends those that take too long.
    pub(super) fn handle_spread_timeout(&mut self) {
        let now = self.now;
        let Some(spread) = &mut self.spread else { return };
        if now >= spread.count_at && !spread.lost.is_empty() {
            let lost = spread.lost.clone();
            spread.set_ways(&self.config.cluster, |node| lost.contains(node));
        }
        spread.count(&self.metrics, now);
        if let Some(Part::Front(followed)) = self.cluster.as_ref().map(|cluster| &cluster.part) {
            spread.forget_left(|ends| followed.knows(ends), now);
        }
        let Some(front) = &mut spread.front else { return };
        let late = front.probes.values().filter(|probe| now >= probe.until).map(|probe| probe.stream);
        let late: Vec<_> = late.collect();
        let mut due = Vec::new();
        while let Some(node) = front.dispatcher.poll_probe(now) {
            due.push((node, front.addresses.get(node.index()).copied().flatten()));
        }
        late.into_iter().for_each(|stream| self.settle_probe(stream, Probed::Silent));
        for (node, address) in due {
            let socket = address.map(|address| self.reactor.connect(&Peer::Internet(address)));
            let is_ours = matches!(&socket, Some(Err(error)) if is_out_of_descriptors(error));
            let stream = socket.and_then(Result::ok).map(|socket| self.open_stream(socket, true, Owner::Probe));
            let Some(front) = self.spread.as_mut().and_then(|spread| spread.front.as_mut()) else { return };
            match stream {
                Some(stream) => {
                    let until = now.after(front.probe_timeout);
                    front.probes.insert(stream.index, Probe { stream, node, until });
                }
                None if is_ours => front.dispatcher.drop_probe(node),
                None => front.tried(node, Probed::Silent, now),
            }
        }
        self.renew_spread();
    }

    /// A probe of a front's has ended, if it was one.
    pub(in crate::worker) fn spread_probe_ended(&mut self, stream: Token, probed: Probed) {
        let now = self.now;
        let Some(front) = self.spread.as_mut().and_then(|spread| spread.front.as_mut()) else { return };
        if front.probes.get(&stream.index).is_some_and(|probe| probe.stream == stream)
            && let Some(probe) = front.probes.remove(&stream.index)
        {
            // What has come counts, however late this worker sees it.
            front.tried(probe.node, probed, now);
            self.renew_spread();
        }
    }

    fn renew_spread(&mut self) {
        let now = self.now;
        if let Some(Err(error)) = self.spread.as_mut().map(|spread| spread.renew(now)) {
            crate::log::warning(format_args!("the table of buckets can't be renewed: {error}"));
        }
    }

    /// A node has said where a connection lives.
    pub(super) fn follow(&mut self, ends: Ends, node: ServerId, is_over: bool) {
        let Some(steering) = self.spread.as_mut().and_then(|spread| spread.steering.as_mut()) else { return };
        let number = u16::try_from(node.server()).unwrap_or(0);
        let entered = match is_over {
            true => steering.end_moved(ends.into(), number),
            false => steering.set_moved(ends.into(), number),
        };
        if let Err(error) = entered {
            crate::log::warning(format_args!("a connection can't be followed: {error}"));
        }
    }

    pub(super) fn unfollow(&mut self, ends: Ends) {
        let Some(steering) = self.spread.as_mut().and_then(|spread| spread.steering.as_mut()) else { return };
        if let Err(error) = steering.remove_moved(ends.into()) {
            crate::log::warning(format_args!("a connection that is over can't be forgotten: {error}"));
        }
    }

    /// See [`Spread::worker_drains`].
    pub(super) fn node_drains(&mut self, server: ServerId, drains: Option<bool>) {
        let now = self.now;
        let place = server.server().checked_sub(number_of(0)).map(|place| place as usize);
        let name = place.and_then(|place| self.config.cluster.nodes.get(place)).map_or("", |node| &node.name);
        let Some(spread) = &mut self.spread else { return };
        if spread.worker_drains(name, server, drains, now) {
            self.renew_spread();
        }
    }

    /// What a front says to a command, or a node in the place of a server that isn't leat; none if this is neither.
    pub(super) fn answer_by_front(&mut self, command: &Command) -> Option<Result<Value, String>> {
        let now = self.now;
        let spread = self.spread.as_mut()?;
        if let Some(served) = &mut spread.served {
            let answer = served.answer(command, &self.config.cluster, now);
            spread.count_at = now;
            spread.count(&self.metrics, now);
            return Some(answer);
        }
        let answer = spread.front.as_mut()?.answer(command, now);
        self.renew_spread();
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Cluster;

    /// A front without programs.
    fn front(cluster: &Cluster, now: Instant) -> Spread {
        let mut spread = Spread {
            steering: None,
            interfaces: Vec::new(),
            front: Some(Front::new(cluster, &[0; 32], 1, Table::default())),
            served: None,
            server: Vec::new(),
            count_at: now,
            left: Vec::new(),
            forget_at: Instant::NEVER,
            draining: BTreeMap::new(),
            drained: BTreeSet::new(),
            lost: BTreeSet::new(),
        };
        spread.configure(cluster, now).expect("nothing to tell the kernel");
        spread
    }

    #[test]
    fn what_a_node_has_said_isnt_said_of_another_that_a_reload_gives_its_number() {
        let cluster = |names: &[&str]| Cluster {
            nodes: names
                .iter()
                .map(|name| ClusterNode { name: (*name).to_owned(), ..ClusterNode::default() })
                .collect(),
            ..Cluster::default()
        };
        let now = Instant { ns: 1 };
        let mut spread = front(&cluster(&["n1", "n2", "n3"]), now);
        let kept = |spread: &Spread| -> Vec<String> {
            let members = spread.front.as_ref().map(|front| front.members(now)).unwrap_or_default();
            let keeps = members.into_iter().filter(|member| member.standing == spread::Standing::Keeps);
            keeps.map(|member| member.name).collect()
        };
        for (name, number) in [("n1", 1), ("n2", 2), ("n3", 3)] {
            spread.worker_drains(name, ServerId::new(number, 0), Some(true), now);
        }
        assert_eq!(kept(&spread), ["n1", "n2", "n3"]);
        // One stays, one has another's number from now on, and one is new: these two will say what they do by new links.
        spread.configure(&cluster(&["n1", "n3", "n4"]), now).expect("nothing to tell the kernel");
        assert_eq!(kept(&spread), ["n1"]);
        spread.worker_drains("n3", ServerId::new(2, 0), Some(true), now);
        assert_eq!(kept(&spread), ["n1", "n3"]);
        // The last word of the one that had the number before is nothing to who has it now.
        spread.worker_drains("n4", ServerId::new(3, 0), None, now);
        assert_eq!(kept(&spread), ["n1", "n3"]);
    }

    #[test]
    fn a_node_drains_when_all_its_linked_workers_do_whichever_process_they_are_of() {
        let cluster = Cluster {
            nodes: vec![ClusterNode { name: "n1".to_owned(), ..ClusterNode::default() }],
            ..Cluster::default()
        };
        let now = Instant { ns: 1 };
        let mut spread = front(&cluster, now);
        let mut drains = |worker, drains| {
            spread.worker_drains("n1", ServerId::new(1, worker), drains, now);
            let members = spread.front.as_ref().map(|front| front.members(now)).unwrap_or_default();
            members[0].standing == spread::Standing::Keeps
        };
        assert!(!drains(0, Some(false)) && !drains(1, Some(false)));
        assert!(!drains(0, Some(true)) && drains(1, Some(true)) && !drains(0, Some(false)));
        // An upgrade: another process's workers follow, and the former ones end with their last word.
        assert!(!drains(8, Some(false)) && !drains(9, Some(false)));
        assert!(!drains(0, None) && !drains(1, Some(false)) && !drains(1, None));
        assert!(!drains(8, Some(true)) && drains(9, Some(true)));
        // One that is gone has said it; its next process says otherwise.
        assert!(drains(8, None) && drains(9, None));
        assert!(!drains(16, Some(false)));
    }

    #[test]
    fn connections_begin_at_the_server_of_a_vips_family_and_fronts_find_it_at_the_nodes_own_addresses() {
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let server = [address("[::1]:8080"), address("127.0.0.1:8080")];
        let node = ClusterNode {
            name: "n1".to_owned(),
            address: ["192.0.2.11", "2001:db8::11"].map(|text| text.parse().expect("an address")).to_vec(),
            // What a reload says of that isn't in force yet.
            server: vec![address("127.0.0.1:9090")],
            ..ClusterNode::default()
        };
        let vip = vec![address("192.0.2.100:80"), address("[2001:db8::100]:80"), address("192.0.2.100:81")];
        let mut cluster = Cluster { vip, name: node.name.clone(), nodes: vec![node], ..Cluster::default() };
        let told = |cluster: &Cluster, server: &[SocketAddr]| {
            services(cluster, server)
                .into_iter()
                .map(|SpreadService { at, is_own, server }| {
                    format!("{at} {is_own} {}", server.map(|server| server.to_string()).unwrap_or_default())
                })
                .collect::<Vec<_>>()
        };
        let expected = [
            "192.0.2.100:80 false 127.0.0.1:8080",
            "[2001:db8::100]:80 false [::1]:8080",
            "192.0.2.100:81 false 127.0.0.1:8080",
            "192.0.2.11:80 true 127.0.0.1:8080",
            "[2001:db8::11]:80 true [::1]:8080",
            "192.0.2.11:81 true 127.0.0.1:8080",
        ];
        assert_eq!(told(&cluster, &server), expected);
        assert_eq!(told(&cluster, &[])[0], "192.0.2.100:80 false ");
        assert_eq!(told(&cluster, &[]).len(), 3);
        // An address that a reload brings is used at once.
        cluster.nodes[0].address = vec!["192.0.2.12".parse().expect("an address")];
        assert_eq!(
            told(&cluster, &server[1..])[3..],
            ["192.0.2.12:80", "192.0.2.12:81"].map(|at| format!("{at} true 127.0.0.1:8080"))
        );
    }
}
