//! What `leat ctl` can ask and order of ports.

use serde_json::{Value, json};

use super::super::{Host, Worker};
use super::Port;
use crate::config::Role;
use crate::ctl::{self, Command};

impl<H: Host> Worker<H> {
    /// Every port, with its nodes and how much each has to do.
    pub(in crate::worker) fn list_ports(&self) -> Value {
        let ports = self.ports.ports.values().map(|port| port.describe(self.now)).collect();
        ctl::list_ports(ports)
    }

    /// What a dispatcher answers that has ports and no VIP; `is_known`: a port has the node that it's about.
    pub(in crate::worker) fn answer_by_ports(
        &self,
        command: &Command,
        is_known: bool,
    ) -> Option<Result<Value, String>> {
        let cluster = &self.config.cluster;
        if self.config.role != Role::Dispatcher || cluster.ports.is_empty() || !cluster.vip.is_empty() {
            return None;
        }
        Some(match command {
            Command::Drain { node } | Command::Resume { node } | Command::Weight { node, .. } if !is_known => {
                Err(format!("no port has a node `{node}`"))
            }
            Command::Drain { node } => Ok(ctl::drain_ports(node)),
            Command::Resume { node } => Ok(ctl::done(format!("{node} may be chosen again by every port"))),
            Command::Weight { node, weight } => {
                Ok(ctl::done(format!("{node} has weight {weight} at every port until the next reload")))
            }
            _ => Err("this dispatcher has ports and no VIP, which that is about: `leat ctl ports` says what ports do"
                .to_owned()),
        })
    }

    /// Has ports do what the dispatcher is told: drains and weights are a machine's, not a port's. Whether any port knows the node.
    pub(in crate::worker) fn tell_ports(&mut self, command: &Command) -> bool {
        let now = self.now;
        let (Command::Drain { node } | Command::Resume { node } | Command::Weight { node, .. }) = command else {
            return false;
        };
        let mut is_known = false;
        for port in self.ports.ports.values_mut() {
            let Some(id) = port.dispatcher.find(node) else { continue };
            is_known = true;
            match command {
                Command::Weight { weight, .. } => port.dispatcher.set_weight(id, *weight),
                _ => port.dispatcher.set_draining(id, matches!(command, Command::Drain { .. }), now),
            }
        }
        is_known
    }
}

impl Port {
    fn describe(&self, now: leat_logic::time::Instant) -> Value {
        let (site, settings) = (&self.settings.site, &self.settings);
        let nodes: Vec<Value> = self
            .dispatcher
            .nodes(now)
            .map(|line| json!({ "name": line.name, "standing": line.standing.to_string(), "active": line.active }))
            .collect();
        json!({
            "name": site.name,
            "protocol": settings.protocol.name(),
            "for_each": if settings.is_by_request { "request" } else { "connection" },
            "policy": self.dispatcher.settings().policy.name(),
            "connections": self.relays,
            "nodes": nodes,
        })
    }
}
