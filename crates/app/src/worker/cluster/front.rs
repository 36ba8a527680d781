//! What a front knows of its nodes: which can be reached, and what that makes of the table. The kernel's part, and probing, are `spread`'s.
//! `docs/decisions/0017-spread.md` has the reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use leat_host::reactor::Token;
use leat_logic::dispatch::{Dispatcher, NodeId, NodeLine, Standing};
use leat_logic::spread;
use leat_logic::spread::{Member, Table};
use leat_logic::time::Instant;
use serde_json::{Value, json};

use super::super::stream::Probed;
use super::number_of;
use crate::config;
use crate::ctl::{self, Command};

/// Which nodes can be reached, and whose each bucket is.
pub(super) struct Front {
    pub(super) dispatcher: Dispatcher,
    /// In the configuration's order, by which everybody numbers them: places in the dispatcher are given to others.
    names: Vec<String>,
    /// Those of them that a reload has removed.
    removed: BTreeSet<String>,
    /// Where nodes are probed, by their places.
    pub(super) addresses: Vec<Option<SocketAddr>>,
    /// By the number of the stream.
    pub(super) probes: BTreeMap<u32, Probe>,
    pub(super) probe_timeout: Duration,
    /// Probes that fail before a node is down.
    fall: u32,
    /// Nodes that haven't been reached yet, and of which not enough probes have failed: until there are none, the table stays what it was.
    pub(super) untried: BTreeSet<NodeId>,
    /// Nodes whose server isn't leat.
    foreign: BTreeSet<NodeId>,
    /// Those of them whose probes are refused: the machine lives, and may have connections though it's to get none. With how many probes were silent since.
    refusing: BTreeMap<NodeId, u32>,
    pub(super) table: Table,
}

pub(super) struct Probe {
    pub(super) stream: Token,
    pub(super) node: NodeId,
    pub(super) until: Instant,
}

impl Front {
    /// One that goes on from a table that it finds.
    pub(super) fn new(cluster: &config::Cluster, key: &[u8; 32], seed: u64, table: Table) -> Front {
        Front {
            dispatcher: Dispatcher::new(cluster.settings(), key, seed),
            names: Vec::new(),
            removed: BTreeSet::new(),
            addresses: Vec::new(),
            probes: BTreeMap::new(),
            probe_timeout: cluster.health.timeout,
            untried: BTreeSet::new(),
            foreign: BTreeSet::new(),
            refusing: BTreeMap::new(),
            fall: cluster.health.fall,
            table,
        }
    }

    pub(super) fn configure(&mut self, cluster: &config::Cluster, now: Instant) {
        let known: BTreeSet<_> = cluster.nodes.iter().filter_map(|node| self.dispatcher.find(&node.name)).collect();
        self.dispatcher.configure(cluster.settings());
        self.dispatcher.set_nodes(&cluster.node_settings(), now);
        self.probe_timeout = cluster.health.timeout;
        self.fall = cluster.health.fall;
        self.names = cluster.nodes.iter().map(|node| node.name.clone()).collect();
        self.addresses.clear();
        self.untried.retain(|node| known.contains(node));
        self.refusing.retain(|node, _| known.contains(node));
        self.foreign.clear();
        for node in &cluster.nodes {
            let Some(id) = self.dispatcher.find(&node.name) else { continue };
            if self.addresses.len() <= id.index() {
                self.addresses.resize(id.index() + 1, None);
            }
            self.addresses[id.index()] = cluster.vip.first().and_then(|&vip| cluster.proxy_address(node, vip));
            if !node.server.is_empty() {
                self.foreign.insert(id);
            }
            if node.is_removed() {
                self.dispatcher.set_draining(id, true, now);
            } else if self.removed.contains(&node.name) {
                self.dispatcher.set_draining(id, false, now);
            }
            if !known.contains(&id) && !cluster.health.interval.is_zero() {
                self.untried.insert(id);
                self.dispatcher.link_changed(id, false, now);
            }
        }
        self.removed = cluster.nodes.iter().filter(|node| node.is_removed()).map(|node| node.name.clone()).collect();
        if cluster.health.interval.is_zero() {
            self.untried.clear();
        }
    }

    /// The numbers that a configuration gives to others than this one, each with the node that had it, if there was one.
    pub(super) fn renumbered(&self, cluster: &config::Cluster) -> Vec<(u32, Option<NodeId>)> {
        let places = 0..self.names.len().max(cluster.nodes.len());
        let is_other = |place: &usize| self.names.get(*place) != cluster.nodes.get(*place).map(|node| &node.name);
        let had = |place: usize| self.names.get(place).and_then(|name| self.dispatcher.find(name));
        places.filter(is_other).map(|place| (number_of(place), had(place))).collect()
    }

    pub(super) fn is_removed(&self, node: &str) -> bool {
        self.removed.contains(node)
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        let probes = self.probes.values().map(|probe| probe.until).min().unwrap_or(Instant::NEVER);
        self.dispatcher.poll_timeout().unwrap_or(Instant::NEVER).min(probes)
    }

    /// A probe has ended. One that fails says little of a node, as the front itself may be busy: as many as it takes for being down say it.
    pub(super) fn tried(&mut self, node: NodeId, probed: Probed, now: Instant) {
        let is_well = probed == Probed::Well;
        match (probed, self.refusing.get_mut(&node)) {
            (Probed::Refused, _) if self.foreign.contains(&node) => _ = self.refusing.insert(node, 0),
            // It may take more than one until the node is used again.
            (Probed::Well, Some(silent)) => *silent = 0,
            (_, Some(silent)) => {
                *silent += 1;
                if *silent >= self.fall {
                    self.refusing.remove(&node);
                }
            }
            (_, None) => {}
        }
        let is_down = self.dispatcher.probe_ended(node, is_well, now);
        if is_well || is_down {
            self.untried.remove(&node);
        }
        if is_down {
            crate::log::warning(format_args!("node {}: its probes fail", self.dispatcher.name(node)));
        }
        if is_well && self.dispatcher.is_unlinked(node, now) {
            self.dispatcher.link_changed(node, true, now);
            crate::log::info(format_args!("node {}: it can be reached", self.dispatcher.name(node)));
        }
    }

    /// The nodes in the configuration's order, with their numbers.
    fn nodes(&self, now: Instant) -> impl Iterator<Item = (u16, NodeLine)> {
        let mut nodes: Vec<_> = self.dispatcher.nodes(now).collect();
        let place = |line: &NodeLine| self.names.iter().position(|name| *name == line.name).unwrap_or(usize::MAX);
        nodes.sort_by_cached_key(place);
        nodes.into_iter().enumerate().map(|(place, line)| (u16::try_from(number_of(place)).unwrap_or(0), line))
    }

    /// The nodes as the table has them.
    pub(super) fn members(&self, now: Instant) -> Vec<Member> {
        let member = |(number, line): (u16, NodeLine)| {
            let refuses = || self.dispatcher.find(&line.name).is_some_and(|node| self.refusing.contains_key(&node));
            let standing = match line.standing {
                Standing::Draining => spread::Standing::Keeps,
                Standing::Unfit(_) if refuses() => spread::Standing::Keeps,
                Standing::Unfit(_) => spread::Standing::Gone,
                _ => spread::Standing::Takes,
            };
            Member { number, name: line.name, weight: line.weight, standing }
        };
        self.nodes(now).map(member).collect()
    }

    fn list_nodes(&self, now: Instant) -> Value {
        let node = |(number, line): (u16, NodeLine)| {
            let owned = self.table.buckets().iter().filter(|owners| owners.current == number).count();
            let percent = owned as f64 * 100.0 / spread::BUCKETS as f64;
            let figures = format!("weight {}, {percent:.1} % of new connections", line.weight);
            json!({ "name": line.name, "standing": line.standing.to_string(), "weight": line.weight, "figures": figures })
        };
        ctl::list_nodes("maglev", self.nodes(now).map(node).collect())
    }

    pub(super) fn answer(&mut self, command: &Command, now: Instant) -> Result<Value, String> {
        match command {
            Command::Nodes => Ok(self.list_nodes(now)),
            Command::Weight { .. } | Command::Drain { .. } | Command::Resume { .. } => {
                ctl::answer(&mut self.dispatcher, command, now)
            }
            _ => Err("a front sees packets and no requests: it knows its nodes, and of connections nothing: ask the node itself".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Cluster, ClusterNode};

    fn front(cluster: &Cluster) -> Front {
        Front::new(cluster, &[0; 32], 1, Table::default())
    }

    #[test]
    fn a_server_that_refuses_keeps_what_it_has_as_long_as_its_machine_lives_unless_it_is_leat() {
        let node = |name: &str| ClusterNode { name: name.to_owned(), ..ClusterNode::default() };
        let server = vec![([127, 0, 0, 1], 8080).into()];
        let cluster = Cluster { nodes: vec![node("n1"), ClusterNode { server, ..node("n2") }], ..Cluster::default() };
        let now = Instant { ns: 1 };
        let mut front = front(&cluster);
        front.configure(&cluster, now);
        let [n1, n2] = ["n1", "n2"].map(|name| front.dispatcher.find(name).expect("it's configured"));
        let standings = |front: &mut Front, probed| {
            (0..cluster.health.fall).for_each(|_| [n1, n2].into_iter().for_each(|node| front.tried(node, probed, now)));
            front.members(now).iter().map(|member| member.standing).collect::<Vec<_>>()
        };
        use spread::Standing::{Gone, Keeps, Takes};
        assert_eq!(standings(&mut front, Probed::Well), [Takes, Takes]);
        assert_eq!(standings(&mut front, Probed::Refused), [Gone, Keeps]);
        // One that isn't used again yet, or was late once, keeps them all the same.
        front.tried(n2, Probed::Well, now);
        assert_eq!(front.members(now)[1].standing, Keeps);
        front.tried(n2, Probed::Silent, now);
        assert_eq!(front.members(now)[1].standing, Keeps);
        assert_eq!(standings(&mut front, Probed::Silent), [Gone, Gone]);
        assert_eq!(standings(&mut front, Probed::Well), [Takes, Takes]);
    }

    #[test]
    fn nodes_have_the_numbers_of_their_places_in_the_configuration_whichever_came_and_went() {
        let cluster = |names: &[&str]| Cluster {
            nodes: names
                .iter()
                .map(|name| ClusterNode { name: (*name).to_owned(), ..ClusterNode::default() })
                .collect(),
            ..Cluster::default()
        };
        let now = Instant { ns: 1 };
        let mut front = front(&cluster(&[]));
        let mut numbered = |names: &[&str]| {
            front.configure(&cluster(names), now);
            let members = front.members(now);
            members.iter().map(|member| format!("{}={}", member.name, member.number)).collect::<Vec<_>>()
        };
        assert_eq!(numbered(&["n1", "n2", "n3"]), ["n1=1", "n2=2", "n3=3"]);
        assert_eq!(numbered(&["n1", "n3"]), ["n1=1", "n3=2"]);
        assert_eq!(numbered(&["n1", "n3", "n4"]), ["n1=1", "n3=2", "n4=3"]);
        assert_eq!(numbered(&["n4", "n1"]), ["n4=1", "n1=2"]);
    }

    #[test]
    fn a_node_is_tried_once_it_is_reached_or_as_many_probes_have_failed_as_it_takes() {
        let node = |name: &str| ClusterNode { name: name.to_owned(), ..ClusterNode::default() };
        let cluster = Cluster { nodes: vec![node("n1"), node("n2")], ..Cluster::default() };
        let now = Instant { ns: 1 };
        let mut front = front(&cluster);
        front.configure(&cluster, now);
        let [n1, n2] = ["n1", "n2"].map(|name| front.dispatcher.find(name).expect("it's configured"));
        assert_eq!(front.untried, BTreeSet::from([n1, n2]));
        front.tried(n1, Probed::Well, now);
        (1..cluster.health.fall).for_each(|_| front.tried(n2, Probed::Silent, now));
        assert_eq!(front.untried, BTreeSet::from([n2]), "one that was late may come");
        front.tried(n2, Probed::Silent, now);
        assert!(front.untried.is_empty(), "it's down");
    }
}
