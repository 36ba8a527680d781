//! One process of a node follows another, as in an upgrade. Behind fronts their flows pass with their connections, and to everybody else they are two workers
//! of that node; homes listen to both, and are given back what the old one has, but for what another server answers by way of this one: that passes, too.
//! Decides how the processes that there are at a time are told apart, and whether there's only one; who has a flow is `spread::Peer`'s to say.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use leat_host::process::random_number;
use leat_host::reactor::Token;
use leat_host::socket;
use leat_host::steering::FlowKey;
use leat_logic::handoff::{FlowId, Generation, Process};
use leat_logic::spread::WORKERS_MAX;
use leat_logic::time::Instant;

use super::super::{Host, Worker};
use super::node::Borrowed;
use super::{Part, shared};
use crate::config;

/// At a plain stop homes are given back what there is for so long: where nobody else can take it, it ends as everywhere.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(3);

/// What homes had begin here before they heard that this process ends comes within this time. Whoever waited longer would never be accepted, and his kernel
/// has an acknowledgement of his request.
const BIRTHS_WITHIN: Duration = Duration::from_millis(500);

/// The number of a process that no other one of its node has, as long as it lives.
pub(super) struct Life {
    number: u16,
    /// Of this process, and of none before or after it.
    process: u64,
    /// Processes that there may be at a time.
    most: u16,
    /// What the names of all begin with.
    prefix: String,
    /// The kernel gives its name to nobody else, and takes it back however this process ends.
    _holds: UnixDatagram,
}

impl Life {
    pub(super) fn begin(cluster: &config::Cluster, most: u16) -> Result<Life, String> {
        let prefix = format!("leat-peer-{}-{}", cluster.name, shared::vip_name(cluster));
        for number in 0..most {
            match hold(&prefix, number) {
                Ok(_holds) => return Ok(Life { number, process: random_number(), most, prefix, _holds }),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(format!("this process can't be told from those before it: {error}")),
            }
        }
        Err(format!("{most} earlier processes of this node still have replies to end: upgrade again when they have"))
    }

    /// Whether no other process of its node lives. One that begins just now may not be seen yet, but sees this one.
    pub(super) fn is_only(&self) -> bool {
        (0..self.most).filter(|number| *number != self.number).all(|number| hold(&self.prefix, number).is_ok())
    }

    /// This process, as others are told of it.
    pub(super) fn process(&self) -> Process {
        Process { number: self.process, is_only: self.is_only() }
    }

    /// What a worker of this process is called by others.
    pub(super) fn worker(&self, number: u16) -> u16 {
        self.number * WORKERS_MAX + number % WORKERS_MAX
    }
}

fn hold(prefix: &str, number: u16) -> io::Result<UnixDatagram> {
    SocketAddr::from_abstract_name(format!("{prefix}-{number}")).and_then(|name| UnixDatagram::bind_addr(&name))
}

impl<H: Host> Worker<H> {
    /// This process ends, and none follows: other nodes take what they can, and keep what they have.
    pub(in crate::worker) fn drain_to_peers(&mut self) {
        if let Some(Part::Peer(peer)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) {
            peer.end(self.now);
        }
    }

    /// A worker that ends, and has nothing left, leaves other nodes.
    pub(super) fn leave_peers_if_empty(&mut self) {
        let accepts = self.retiring.as_ref().is_some_and(|retiring| self.now < retiring.accept_until);
        let is_empty = !accepts && self.connections.len() == 0;
        if let Some(Part::Peer(peer)) = self.cluster.as_ref().map(|cluster| &cluster.part)
            && is_empty
            && peer.is_ending
            && !peer.flows.is_leaving()
        {
            self.leave_peers();
        }
    }

    /// Another process takes over, or nothing is left here: this one has nothing to do with other nodes any more, as soon as nothing is on its way.
    pub(in crate::worker) fn leave_peers(&mut self) {
        let Some(cluster) = &mut self.cluster else { return };
        let Part::Peer(peer) = &mut cluster.part else { return };
        peer.flows.leave();
        cluster.links.seek_only(peer.fronts());
        self.refuse_links();
    }

    /// This process ends: homes are given back what it has, and give that to others. If its node's server isn't leat it has nothing to give back, and homes
    /// needn't know of it any more: another that follows wants the same links.
    pub(in crate::worker) fn leave_homes(&mut self, is_followed: bool) {
        let (now, end) = (self.now, self.drain.map_or(self.now, |drain| drain.deadline));
        let Some(cluster) = &mut self.cluster else { return };
        let Part::Node(node) = &mut cluster.part else { return };
        if node.is_foreign() {
            cluster.links.seek_none().into_iter().for_each(|session| self.end_session(session));
        } else {
            node.leave(now, is_followed, end);
        }
    }

    /// This process ends. Whether it accepts for a while yet: nobody else would, and homes have had connections begin here.
    pub(in crate::worker) fn awaits_births(&mut self, is_followed: bool) -> bool {
        let until = self.now.after(BIRTHS_WITHIN);
        match self.cluster.as_mut().map(|cluster| &mut cluster.part) {
            Some(Part::Node(node)) if !is_followed && node.guard.has_births() => {
                node.accepts_until = Some(until);
                true
            }
            _ => false,
        }
    }

    /// Accepts no more once everybody has come. Until when that isn't so.
    pub(in crate::worker) fn end_births(&mut self) -> Instant {
        let Some(Part::Node(node)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else {
            return Instant::NEVER;
        };
        if node.accepts_until.take_if(|until| *until <= self.now).is_some() {
            self.accept_last_births();
            self.end_accepting();
            return Instant::NEVER;
        }
        node.accepts_until.unwrap_or(Instant::NEVER)
    }

    /// Whether homes have back what this process had, which ends, or won't have it.
    pub(in crate::worker) fn has_left_homes(&self) -> bool {
        match self.cluster.as_ref().map(|cluster| &cluster.part) {
            Some(Part::Node(node)) => node.has_left(self.now, !self.leaves_homes()) && node.accepts_until.is_none(),
            _ => true,
        }
    }

    /// Whether this process ends, and homes are given back what it has.
    fn leaves_homes(&self) -> bool {
        self.drain.is_some_and(|drain| drain.keep_idle || self.now < drain.since.after(GIVEN_BACK_WITHIN))
    }

    /// Whether a connection is given back to its home, now or in its turn. A home that there's no link to may be back while its lease holds: it may be in an
    /// upgrade itself.
    pub(in crate::worker) fn goes_home(&mut self, token: Token) -> bool {
        if !self.leaves_homes() {
            return false;
        }
        let (now, flow) = (self.now, self.flow_at(token));
        let (Some(flow), Some(cluster)) = (flow, &mut self.cluster) else { return false };
        let Part::Node(node) = &mut cluster.part else { return false };
        node.of(flow).is_some_and(|flows| flows.session().is_some() || !flows.is_fenced(now))
    }

    /// Whether nothing of another node's is on its way to or from this process, which leaves.
    pub(in crate::worker) fn has_left_peers(&self) -> bool {
        match self.cluster.as_ref().map(|cluster| &cluster.part) {
            Some(Part::Peer(peer)) => !(peer.is_ending || peer.flows.is_leaving()) || peer.flows.has_left(),
            _ => true,
        }
    }

    /// Whether a connection may pass to the next process: no other server has anything of it, or is about to. Of what homes have in their books only that does
    /// that can't be given back to them, as another server answers it by way of this one.
    pub(in crate::worker) fn flow_may_pass(&mut self, token: Token) -> bool {
        let (Some(flow), Some(cluster)) = (self.flow_at(token), &mut self.cluster) else { return true };
        match &mut cluster.part {
            Part::Peer(peer) => peer.flows.may_pass(flow),
            Part::Home(home) => home.flows.is_here(flow),
            Part::Node(node) => {
                let is_answered =
                    self.connections[token].exchange.as_ref().is_some_and(|exchange| exchange.run.is_some());
                is_answered && node.of(flow).is_some_and(|flows| flows.may_pass(self.now, flow))
            }
            Part::Front(_) => false,
        }
    }

    /// Whether a connection is in a home's books.
    pub(in crate::worker) fn is_of_home(&self, token: Token) -> bool {
        let is_node = matches!(self.cluster.as_ref().map(|cluster| &cluster.part), Some(Part::Node(_)));
        is_node && self.flow_at(token).is_some()
    }

    /// By which number homes know this worker.
    pub(in crate::worker) fn number_at_homes(&self) -> Option<u16> {
        match self.cluster.as_ref().map(|cluster| &cluster.part) {
            Some(Part::Node(node)) => Some(node.id.worker()),
            _ => None,
        }
    }

    /// A connection is about to pass to the next process: it isn't frozen for its home any more.
    pub(in crate::worker) fn flow_leaves(&mut self, token: Token) {
        let (Some(flow), Some(cluster)) = (self.flow_at(token), &mut self.cluster) else { return };
        if let Part::Node(node) = &mut cluster.part {
            node.of(flow).and_then(|flows| flows.pass(flow));
            cluster.flows.stop_freezing(flow);
        }
    }

    /// It doesn't pass after all.
    pub(in crate::worker) fn flow_stays(&mut self, token: Token) {
        let (Some(flow), Some(cluster)) = (self.flow_at(token), &mut self.cluster) else { return };
        if let Part::Node(node) = &mut cluster.part {
            node.of(flow).into_iter().for_each(|flows| flows.stay(flow));
        }
    }

    /// A connection passes to the next process: if it's a flow, that is none here any more.
    pub(in crate::worker) fn flow_passes(&mut self, token: Token) -> Option<Generation> {
        let cluster = self.cluster.as_mut()?;
        match &mut cluster.part {
            Part::Peer(peer) => peer.flows.pass(cluster.flows.remove_at(token)?),
            Part::Node(node) => {
                let flow = cluster.flows.remove_at(token)?;
                node.of(flow)?.pass(flow)
            }
            Part::Home(_) | Part::Front(_) => {
                self.flow_ended(token, None);
                None
            }
        }
    }

    /// Whether a flow can go on in this process: who has taken one over from another server has to tell others of it, and is known to homes by this worker's
    /// number.
    pub(in crate::worker) fn takes_flow(&self, generation: Option<Generation>, worker: Option<u16>) -> bool {
        let is_known = generation.is_some_and(|generation| generation != Generation::default());
        match worker {
            Some(_) => worker == self.number_at_homes(),
            None => !is_known || self.is_behind_fronts(),
        }
    }

    /// A connection has come from another process of this node, or back from there. If it was a flow there, it goes on as that.
    pub(in crate::worker) fn flow_arrives(&mut self, token: Token, flow: Option<(FlowId, Generation)>) {
        let Some((flow, generation)) = flow else { return self.begins_at_peer(token) };
        let socket = Borrowed(self.connections[token].socket);
        let Some(cluster) = &mut self.cluster else { return };
        match &mut cluster.part {
            Part::Peer(peer) => {
                let ends = socket::ends(&socket).map(|(vip, client)| FlowKey { client, vip }.ends());
                // One that is lost by now ends here: nobody will ask for it.
                peer.flows.take_over(flow, generation, ends.ok());
            }
            Part::Node(node) => node.take_over(self.now, flow, generation),
            Part::Home(_) | Part::Front(_) => return,
        }
        cluster.flows.settle(flow, token);
        self.run_effects();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_whether_there_are_others_of_its_node() {
        let of = |name: &str| config::Cluster { name: name.into(), ..config::Cluster::default() };
        let (here, other) = (of(&format!("only-{}", std::process::id())), of(&format!("other-{}", std::process::id())));
        let (first, elsewhere) = (Life::begin(&here, 3).unwrap(), Life::begin(&other, 3).unwrap());
        assert!(first.is_only() && elsewhere.is_only());
        let second = Life::begin(&here, 3).unwrap();
        assert!(!first.is_only() && !second.is_only() && elsewhere.is_only());
        assert_ne!(first.number, second.number);
        drop(first);
        assert!(second.is_only());
        let _third = [Life::begin(&here, 3).unwrap(), Life::begin(&here, 3).unwrap()];
        assert!(Life::begin(&here, 3).is_err_and(|why| why.contains("upgrade again")));
    }
}
