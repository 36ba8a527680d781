//! A connection server that is stopped, and its peer, which goes on in its place: the one gives it all connections and whatever begins, the other has
//! them as its own when the first is empty and ends (`docs/decisions/0019-peer.md`). Without a peer all connections come back to be ended here.

use std::collections::BTreeMap;
use std::time::Duration;

use leat_host::reactor::Token;
use leat_logic::dispatch::NodeId;
use leat_logic::handoff::{FlowId, RecallTerms, ServerId};
use leat_logic::time::Instant;

use super::super::{Host, Worker};
use super::home::Home;
use super::{Part, number_of};
use crate::config::Config;

/// Handshakes that were under way when the peer was to have what begins end within this time, or not at all.
const HANDSHAKES: Duration = Duration::from_secs(1);
/// Connections that are offered at a time, and the time until more are, or until all are looked at again.
const OFFERS_MAX: usize = 256;
const OFFER_PAUSE: Duration = Duration::from_millis(20);
const LOOK_PAUSE: Duration = Duration::from_millis(80);
/// Until a reply under way that wasn't taken is offered again: its content may be another there, and will be.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// See the module: a worker's part of it.
pub(super) struct Leaving {
    peer: NodeId,
    /// Its number.
    pub(super) to: u32,
    /// Until when connections are accepted here, and what doesn't leave is given time.
    accepts_until: Instant,
    deadline: Instant,
    next_look: Instant,
    /// The next place to look for a connection that is still here.
    slot: u32,
    /// When connections with a reply under way were offered.
    offered: BTreeMap<FlowId, Instant>,
    /// There is a link to the peer. Without one this server ends as any other does.
    is_linked: bool,
    /// The peer knows that all of it is its own.
    is_done: bool,
}

impl Leaving {
    pub(super) fn poll_timeout(&self) -> Instant {
        if self.is_done { Instant::NEVER } else { self.next_look }
    }
}

/// The number of the node that goes on in a connection server's place, if there is one.
pub(super) fn peer_number(config: &Config) -> Option<u32> {
    let named = |node: &crate::config::ClusterNode| node.name == config.split.peer;
    config.cluster.nodes.iter().position(named).map(number_of)
}

impl Home {
    /// Has everything go to the peer from now on, what data servers have included.
    fn leave(&mut self, config: &Config, deadline: Instant, now: Instant) -> Result<Leaving, String> {
        let peer = self.dispatcher.find(&config.split.peer).ok_or("it isn't known")?;
        let to = self.number(peer).ok_or("it isn't known")?;
        let steering = self.steering.as_ref().ok_or("nothing steers packets")?;
        if !self.is_linked(to) {
            return Err("its link is down".to_owned());
        }
        for &vip in &config.cluster.vip {
            steering.bequeath(vip, to).map_err(|error| error.to_string())?;
        }
        self.drain_all_but(to, now);
        let accepts_until = now.after(HANDSHAKES).min(deadline);
        let (slot, offered) = (0, BTreeMap::new());
        Ok(Leaving {
            peer,
            to,
            accepts_until,
            deadline,
            next_look: now,
            slot,
            offered,
            is_linked: true,
            is_done: false,
        })
    }

    /// Has all nodes but one asked for what they have.
    fn drain_all_but(&mut self, number: u32, now: Instant) {
        self.draining = (0..self.nodes.len()).map(number_of).filter(|known| *known != number).collect();
        self.recall_at = now;
    }

    /// Whether there is a link to a node's worker.
    fn is_linked(&self, number: u32) -> bool {
        self.linked.keys().any(|server| server.server() == number)
    }

    /// The worker of the peer that is to have a flow which a data server has given back: that one, if it's the peer's.
    pub(super) fn heir(&self, to: u32, flow: FlowId, giver: ServerId) -> Option<ServerId> {
        if giver.server() == to { Some(giver) } else { self.lender(flow, to).next() }
    }
}

impl<H: Host> Worker<H> {
    /// This server is stopped: has its peer go on in its place, if it has one that can. Whether it does.
    pub(in crate::worker) fn leave_to_peer(&mut self, deadline: Instant) -> bool {
        let (config, now) = (self.config.clone(), self.now);
        let Some(cluster) = self.cluster.as_mut() else { return false };
        let Part::Home(home) = &mut cluster.part else { return false };
        if home.split.is_none() || home.is_retiring() || peer_number(&config).is_none() {
            return false;
        }
        match home.leave(&config, deadline, now) {
            Ok(leaving) => {
                home.leaving = Some(leaving);
                true
            }
            Err(error) => {
                let peer = &config.split.peer;
                crate::log::warning(format_args!(
                    "the peer {peer} can't go on with connections, which end here: {error}"
                ));
                false
            }
        }
    }

    /// Whether a connection goes on elsewhere though this server ends.
    pub(in crate::worker) fn goes_to_peer(&self, token: Token) -> bool {
        let is_admin = self.listeners[self.connections[token].listener as usize].sites.name.is_admin;
        !is_admin && self.leaving().is_some_and(|leaving| leaving.is_linked)
    }

    /// Whether nothing has to be done for the peer any more.
    pub(in crate::worker) fn has_left_to_peer(&self) -> bool {
        self.leaving().is_none_or(|leaving| leaving.is_done)
    }

    /// This connection server ends, and no peer goes on: what data servers have comes back, as nobody else would know of it.
    pub(in crate::worker) fn take_home(&mut self) {
        let now = self.now;
        if let Some(home) = self.split_home() {
            home.retire(now, RecallTerms::AtOnce);
        }
    }

    /// Whether data servers have nothing of a connection server's that ends, once it has no connection itself.
    pub(in crate::worker) fn has_taken_home(&self) -> bool {
        match self.cluster.as_ref().map(|cluster| &cluster.part) {
            Some(Part::Home(home)) if home.split.is_some() && home.leaving.is_none() => {
                home.flows.flow_count() == 0 && home.given_up.is_empty()
            }
            Some(Part::Home(home)) => home.given_up.is_empty(),
            _ => true,
        }
    }

    /// What hasn't come back by now ends.
    pub(in crate::worker) fn give_up_what_is_away(&mut self) {
        if self.split_home().is_some() {
            self.give_up_flows(|_| false);
        }
    }

    /// A connection server's part, unless its peer goes on.
    fn split_home(&mut self) -> Option<&mut Home> {
        match &mut self.cluster.as_mut()?.part {
            Part::Home(home) if home.split.is_some() && home.leaving.is_none() => Some(home),
            _ => None,
        }
    }

    fn leaving(&self) -> Option<&Leaving> {
        match &self.cluster.as_ref()?.part {
            Part::Home(home) => home.leaving.as_ref(),
            _ => None,
        }
    }

    /// Gives the peer some of what is here; and once nothing is, has it know that all is its own.
    pub(super) fn handle_leaving(&mut self) {
        let now = self.now;
        let Some(leaving) = self.leaving().filter(|leaving| now >= leaving.poll_timeout()) else { return };
        let (accepts, is_over, to) = (now < leaving.accepts_until, now >= leaving.deadline, leaving.to);
        let is_heir = |server: ServerId| server.server() == to;
        if !accepts {
            self.end_accepting();
            self.close_admins();
        }
        let has_all_been_seen = self.offer_to_peer();
        if is_over {
            // What is nowhere but at data servers ends as what is here does.
            self.give_up_flows(is_heir);
        }
        let is_empty = !accepts && self.connections.len() == 0;
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        let is_linked = home.is_linked(to);
        let Some(leaving) = &mut home.leaving else { return };
        leaving.is_linked = is_linked;
        leaving.is_done = match is_linked {
            true => is_empty && home.flows.all_are_at(is_heir) && home.flows.bequeath(is_heir),
            false => is_empty && home.flows.flow_count() == 0,
        };
        leaving.next_look = now.after(if has_all_been_seen && !is_empty { LOOK_PAUSE } else { OFFER_PAUSE });
        if let Some(drain) = self.drain.as_mut().filter(|drain| drain.keep_idle != is_linked) {
            (drain.keep_idle, drain.since) = (is_linked, now);
        }
        self.run_effects();
    }

    /// Offers the peer some of the connections that are here. Whether all have been looked at.
    fn offer_to_peer(&mut self) -> bool {
        let mut given = 0;
        while given < OFFERS_MAX {
            let slots = self.connections.slots() as u32;
            let Some(leaving) = self.leaving_mut() else { return true };
            let slot = leaving.slot;
            leaving.slot = if slot < slots { slot + 1 } else { 0 };
            if slot >= slots {
                return true;
            }
            if let Some(token) = self.connections.token(slot) {
                given += usize::from(self.give_to_peer(token));
            }
        }
        false
    }

    fn leaving_mut(&mut self) -> Option<&mut Leaving> {
        match &mut self.cluster.as_mut()?.part {
            Part::Home(home) => home.leaving.as_mut(),
            _ => None,
        }
    }

    /// Has a connection frozen for the peer, unless it's about to end. Whether it is.
    fn give_to_peer(&mut self, token: Token) -> bool {
        let now = self.now;
        if !self.goes_to_peer(token) {
            return false;
        }
        let connection = &self.connections[token];
        let is_ending = connection.flags.closing || connection.flags.ended || connection.http.is_lingering();
        let is_begun = connection.exchange.as_ref().is_some_and(|exchange| exchange.is_begun());
        let Some(cluster) = self.cluster.as_mut().filter(|_| !is_ending) else { return false };
        let Part::Home(home) = &mut cluster.part else { return false };
        let flow = match cluster.flows.at(token) {
            Some(flow) => flow,
            None => {
                let flow = home.next_flow();
                if !home.flows.open(flow) {
                    return false;
                }
                cluster.flows.settle(flow, token);
                flow
            }
        };
        let Some(leaving) = &mut home.leaving else { return false };
        if is_begun && leaving.offered.get(&flow).is_some_and(|at| now < at.after(REFUSED_PAUSE)) {
            return false;
        }
        let peer = leaving.peer;
        let is_given = home.lend(now, flow, peer);
        if let (true, true, Some(leaving)) = (is_given, is_begun, &mut home.leaving) {
            leaving.offered.insert(flow, now);
        }
        self.run_effects();
        is_given
    }

    /// Ends what asks for metrics: it would keep this worker.
    fn close_admins(&mut self) {
        for index in 0..self.connections.slots() as u32 {
            if let Some(token) = self.connections.token(index)
                && !self.goes_to_peer(token)
                && self.connections[token].http.is_idle()
                && self.connections[token].inbox.is_empty()
            {
                self.close(token);
            }
        }
    }

    /// A home has ended: its flows are connections like any other.
    pub(super) fn inherit(&mut self, flows: &[FlowId]) {
        let Some(cluster) = &mut self.cluster else { return };
        let Part::Node(node) = &mut cluster.part else { return };
        node.guard.inherit();
        for &flow in flows {
            if let Some(token) = cluster.flows.token(flow) {
                cluster.flows.remove_at(token);
            }
        }
    }
}
