//! A node's part: connections arrive from its home and are served like any other; the kernel lets nothing out under a VIP without a lease.

use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use leat_host::interfaces;
use leat_host::process;
use leat_host::reactor::{Socket, Token};
use leat_host::steering::{self, Service, boot_clock_ns};
use leat_logic::dispatch::KeyMaker;
use leat_logic::handoff::{self, Incarnation, Load, NodeLimits, Places, ServerId};
use leat_logic::time::Instant;

use super::super::{Host, Stage, Worker};
use super::placing::Samples;
use super::{Part, born, home};
use crate::config::Config;
use crate::pins;

/// Time between two messages with what was seen.
const TELL_PAUSE: Duration = Duration::from_millis(250);

/// See the module.
pub(super) struct Node {
    pub(super) flows: handoff::Node,
    pub(super) id: ServerId,
    /// What its home has answered, by content.
    pub(super) places: Places,
    pub(super) keys: KeyMaker,
    pub(super) samples: Samples,
    tell_at: Instant,
    pub(super) steering: steering::Node,
    /// When the home is to be told what has begun and ended here.
    pub(super) births_at: Instant,
}

impl Node {
    pub(super) fn new(config: &Config) -> Result<Node, String> {
        let cluster = &config.cluster;
        let place = cluster.nodes.iter().position(|node| node.name == cluster.name);
        let place = place.ok_or_else(|| format!("no [[cluster.node]] has the name `{}`", cluster.name))?;
        let text = |error: steering::Error| error.to_string();
        let pins = pins::directory(&format!("node-{}-{}", cluster.name, home::vip_name(cluster)))?;
        let mut steering = born::node(cluster, &pins)?;
        let node = &cluster.nodes[place];
        for &vip in &cluster.vip {
            let same_family = node.address.iter().find(|address| address.is_ipv4() == vip.is_ipv4());
            let own = same_family.filter(|_| node.routed).copied();
            steering.add_service(&Service { vip, own, marked: true }).map_err(text)?;
        }
        for interface in interfaces::outward().map_err(|error| format!("interfaces: {error}"))? {
            steering.attach(&interface).map_err(text)?;
        }
        let incarnation = Incarnation(process::random_number());
        let flows = handoff::Node::new(NodeLimits::default(), incarnation);
        let key = cluster.key_file.as_ref().ok_or("`key_file` is missing in [cluster]")?;
        Ok(Node {
            flows,
            id: home::number_of(place),
            places: Places::default(),
            keys: KeyMaker::new(key.bytes()),
            samples: Samples::default(),
            tell_at: Instant::default(),
            steering,
            births_at: Instant::NEVER,
        })
    }

    /// How much there is to do, and what was seen.
    pub(super) fn report(&mut self, connections: u32, now: Instant) {
        let load = Load { flows: connections, requests: connections, ..Load::default() };
        self.flows.set_load(load);
        if now >= self.tell_at {
            self.tell_at = now.after(TELL_PAUSE);
            let samples = self.samples.take();
            if !samples.is_empty() {
                self.flows.tell(samples);
            }
        }
    }
}

/// A socket of the reactor's, for one call.
pub(super) struct Borrowed(pub(super) Socket);

impl AsRawFd for Borrowed {
    fn as_raw_fd(&self) -> RawFd {
        self.0.0.cast_signed()
    }
}

impl<H: Host> Worker<H> {
    pub(super) fn renew_lease(&mut self, until: Instant) {
        let left = until.since(self.now);
        let Some(Part::Node(node)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        if let Err(error) = node.steering.set_lease(boot_clock_ns().saturating_add(left_ns)) {
            crate::log::warning(format_args!("the lease can't be renewed: {error}"));
        }
    }

    /// A connection has arrived, or is back: on with what is there of it.
    pub(in crate::worker) fn begin_with(&mut self, token: Token) {
        let connection = &mut self.connections[token];
        if let Some(exchange) = &connection.exchange {
            let is_begun = exchange.status != 0;
            self.queue(if is_begun { Stage::Transmit } else { Stage::Serve }, token);
        } else if !connection.inbox.is_empty() {
            self.queue(Stage::Receive, token);
        }
        self.arm_receive(token);
    }
}
