//! What each part does as a flow changes hands: packets that arrive here wait, follow or come back, and the machine hears what became of a socket.

use std::sync::Arc;

use bytes::Bytes;
use leat_host::steering::{self, FlowKey};
use leat_logic::handoff::{self, FlowId};
use leat_logic::time::Instant;

use super::Part;

impl Part {
    /// What steers packets that arrive here.
    pub(super) fn steering(&self) -> Option<&Arc<steering::Dispatcher>> {
        match self {
            Part::Home(home) => home.steering.as_ref(),
            Part::Peer(peer) => Some(&peer.steering),
            Part::Node(_) | Part::Front(_) => None,
        }
    }

    /// Packets that have waited go where their flow's entry says.
    pub(super) fn release(&mut self, key: FlowKey, now: Instant) {
        if let Some(steering) = self.steering() {
            steering.release(key, now);
        }
        if let Part::Home(home) = self {
            home.has_taken_in = true;
        }
    }

    /// Packets of the flow wait from now on, where they arrive.
    pub(super) fn hold(&mut self, flow: FlowId, key: FlowKey) -> Result<(), String> {
        match self {
            Part::Home(_) | Part::Peer(_) => {
                let steering = self.steering().ok_or("nothing steers packets")?;
                steering.flows().hold(key, flow).map_err(|error| error.to_string())
            }
            Part::Node(_) | Part::Front(_) => Ok(()),
        }
    }

    /// A flow that a data server may have had is here, or over.
    pub(super) fn came_back(&mut self, flow: FlowId, now: Instant) {
        if let Part::Home(home) = self {
            home.came_back(flow, now);
        }
    }

    /// The flow's packets come here again.
    pub(super) fn let_go(&mut self, flow: FlowId, key: FlowKey, now: Instant) {
        let Some(steering) = self.steering() else { return };
        let flows = steering.flows();
        let deleted = match self {
            // The packet that began it may have gone past this node, and past what is left here of its client's connection before.
            Part::Peer(_) => flows.clear(key),
            _ => flows.delete(key, flow).map(drop),
        };
        if let Err(error) = deleted {
            crate::log::warning(format_args!("an entry of a flow can't be deleted: {error}"));
        }
        self.release(key, now);
    }

    /// The flow's packets go to its node, those that have waited first.
    pub(super) fn unhold(&mut self, flow: FlowId, key: FlowKey, now: Instant) {
        let is_given = match self {
            Part::Home(home) => home.asked.contains_key(&flow),
            _ => true,
        };
        let Some(steering) = self.steering() else { return };
        if is_given && let Err(error) = steering.flows().unhold(key, flow) {
            crate::log::warning(format_args!("a flow can't be steered: {error}"));
        }
        self.release(key, now);
    }

    pub(super) fn frozen(&mut self, now: Instant, flow: FlowId, image: Bytes) {
        match self {
            Part::Home(home) => home.flows.frozen(now, flow, image),
            Part::Node(node) => node.of(flow).into_iter().for_each(|flows| flows.frozen(flow, image.clone())),
            Part::Peer(peer) => peer.flows.frozen(flow, image),
            Part::Front(_) => {}
        }
    }

    pub(super) fn freeze_failed(&mut self, flow: FlowId) {
        match self {
            Part::Home(home) => home.flows.freeze_failed(flow),
            Part::Node(node) => node.of(flow).into_iter().for_each(|flows| flows.freeze_failed(flow)),
            Part::Peer(peer) => peer.flows.freeze_failed(flow),
            Part::Front(_) => {}
        }
    }

    pub(super) fn thawed(&mut self, flow: FlowId, key: Option<FlowKey>) {
        match self {
            Part::Home(home) => home.flows.thawed(flow),
            Part::Node(node) => node.of(flow).into_iter().for_each(|flows| flows.thawed(flow)),
            Part::Peer(peer) => peer.flows.thawed(flow, key.map(FlowKey::ends)),
            Part::Front(_) => {}
        }
    }

    pub(super) fn thaw_failed(&mut self, flow: FlowId, reason: handoff::RefuseReason) {
        match self {
            Part::Home(home) => home.flows.thaw_failed(flow),
            Part::Node(node) => node.of(flow).into_iter().for_each(|flows| flows.thaw_failed(flow, reason)),
            Part::Peer(peer) => peer.flows.thaw_failed(flow, reason),
            Part::Front(_) => {}
        }
    }
}
