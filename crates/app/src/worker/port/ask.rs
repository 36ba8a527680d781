//! What `leat ctl` can ask and order of ports.

use serde_json::{Value, json};

use super::super::{Host, Worker};
use super::Port;
use crate::ctl::{self, Command};

impl<H: Host> Worker<H> {
    /// Every port, with its nodes and how much each has to do.
    pub(in crate::worker) fn list_ports(&self) -> Value {
        let ports = self.ports.ports.values().map(|port| port.describe(self.now)).collect();
        ctl::list_ports(ports)
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
