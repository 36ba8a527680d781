//! Whether nodes' own replies reach clients, as `dispatch::direct` decides: a home has nodes send probes, looks at what the clients of connections say that nodes
//! have, and takes back those that hear nothing. A node sends what it's told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use leat_host::reactor::Socket;
use leat_host::steering::{Arrival, Flow, FlowKey, Heard};
use leat_host::{interfaces, process, socket};
use leat_logic::dispatch::NodeId;
use leat_logic::dispatch::direct::{Event, Family, Look, Said, Verdict};
use leat_logic::handoff::{CutReason, Destination, Ends, FlowId, Image, RecallTerms, ServerId, TcpState, TcpWindow};
use leat_logic::time::Instant;

use super::super::{Host, Worker};
use super::Part;
use super::home::Home;
use super::node::Borrowed;
use super::number_of;

/// A probe that hasn't arrived by then is lost.
const PROBE_TIME: Duration = Duration::from_secs(1);
/// Ports that a probe goes to: those that connections of this machine's own have.
const PORT_MIN: u16 = 49_152;
/// Connections that are looked at in one turn: requests don't wait for the rest.
const LOOKS_AT_ONCE: usize = 64;
/// By then a reply has been acknowledged by who has heard it.
const ACKNOWLEDGED_BY: Duration = Duration::from_millis(400);
/// So long the other workers look more closely when one has found somebody who hears nothing.
const DOUBT_TIME: Duration = Duration::from_secs(5);
/// The most bytes that a probe's segment may have, and its window: it has one.
const PROBE_MSS: u16 = 536;

/// A home's probes.
#[derive(Default)]
pub(super) struct Probes {
    /// The VIP that a node sends under, and the address of this machine to which.
    ways: BTreeMap<(NodeId, Family), (SocketAddr, IpAddr)>,
    /// By the number of its byte.
    sent: BTreeMap<u32, Sent>,
    /// Nodes that are used as soon as they're probed.
    awaited: BTreeSet<NodeId>,
}

struct Sent {
    place: (NodeId, Family),
    key: FlowKey,
    id: FlowId,
    until: Instant,
}

/// A flow that its node is asked for.
pub(super) struct TakenBack {
    look: Look,
    /// Whether that is known, and not only supposed.
    is_unheard: bool,
}

impl Probes {
    pub(super) fn poll_timeout(&self) -> Instant {
        self.sent.values().map(|sent| sent.until).min().unwrap_or(Instant::NEVER)
    }
}

/// What the entry of a flow says that its client has said.
fn said(flow: &Flow) -> Said {
    // Who has ended its side and closed repeats itself whatever it hears.
    let repeats = (!flow.client_fin).then_some(flow.repeats);
    Said { next: flow.heard.client_next, acknowledged: flow.heard.acknowledged, repeats }
}

impl Home {
    /// A connection is to begin at a node. `flow`: none if it will be in no books.
    pub(super) fn watch_birth(&mut self, server: ServerId, arrival: &Arrival, flow: Option<FlowId>, now: Instant) {
        let Some(node) = self.node(server) else { return };
        let Heard { client_next, acknowledged, .. } = arrival.flow.heard;
        let next = client_next.wrapping_add(arrival.payload.len() as u32);
        let look = Look::new(
            node,
            server,
            arrival.key.ends(),
            flow,
            Some(Said { next, acknowledged, repeats: Some(arrival.flow.repeats) }),
        );
        self.dispatcher.direct_mut().watch(look, now);
    }

    /// A connection moves from here to a node. Only one that brings a request has anything to hear.
    pub(super) fn watch_moved(&mut self, server: ServerId, key: FlowKey, flow: FlowId, heard: Heard, now: Instant) {
        let Some(node) = self.node(server).filter(|_| self.asked.contains_key(&flow)) else { return };
        self.watch_given((node, server), key, flow, heard, now);
    }

    /// A connection goes on from one node to another, with a request and nothing that its client has yet to acknowledge.
    pub(super) fn watch_placed(&mut self, server: ServerId, flow: FlowId, image: &Image, now: Instant) {
        let (Some(node), Some(tcp)) = (self.node(server), &image.tcp) else { return };
        if image.reply.is_none() && tcp.sent.is_empty() && tcp.unsent.is_empty() {
            self.watch_given((node, server), FlowKey::of(tcp), flow, Heard::of(tcp), now);
        }
    }

    fn watch_given(&mut self, to: (NodeId, ServerId), key: FlowKey, flow: FlowId, heard: Heard, now: Instant) {
        let said = Said { next: heard.client_next, acknowledged: heard.acknowledged, repeats: None };
        let look = Look::new(to.0, to.1, key.ends(), Some(flow), Some(said)).moved();
        self.dispatcher.direct_mut().watch(look, now);
    }

    /// Whose connection it is, if there is a node that may not have everybody's.
    pub(super) fn client_in_doubt(&self, socket: Socket) -> Option<IpAddr> {
        let is_asked = !self.dispatcher.direct().allows_all();
        let ends = is_asked.then(|| socket::ends(&Borrowed(socket)).ok()).flatten();
        ends.map(|(_, client)| client.ip())
    }

    /// The client of a connection, where it counts which data server is near to it.
    pub(super) fn client_who_counts(&self, socket: Socket) -> Option<IpAddr> {
        let ends = self.dispatcher.goes_by_client().then(|| socket::ends(&Borrowed(socket)).ok()).flatten();
        ends.map(|(_, client)| client.ip())
    }

    /// Whether the client of a connection that is here as an image may hear a node's worker.
    pub(super) fn is_heard(&self, server: ServerId, image: Option<&Image>, now: Instant) -> bool {
        let client = image.and_then(|image| image.tcp.as_ref()).map(|tcp| tcp.remote.ip());
        let direct = self.dispatcher.direct();
        self.node(server).zip(client).is_none_or(|(node, client)| direct.allows(node, client, now))
    }

    /// The node of a worker that has given a connection back, if that may have it as before: it's linked and hasn't another process, and the client hears it.
    pub(super) fn can_stay(
        &self,
        flow: FlowId,
        giver: ServerId,
        image: Option<&Image>,
        now: Instant,
    ) -> Option<NodeId> {
        let is_there = self.linked.contains_key(&giver) && !self.flows.is_giver_followed(flow);
        self.node(giver).filter(|_| is_there && self.is_heard(giver, image, now))
    }

    /// A node's link is up: whatever it's probed for, it's to be used after that.
    fn begin_probes(&mut self, node: NodeId, now: Instant) {
        let of_node = self.probes.ways.keys().filter(|(known, _)| *known == node);
        let families: Vec<Family> = of_node.map(|(_, family)| *family).collect();
        self.dispatcher.direct_mut().begin_probes(node, &families, now);
        self.probes.awaited.insert(node);
    }

    /// A node's link is down.
    pub(super) fn end_probes(&mut self, node: NodeId) {
        self.dispatcher.direct_mut().end_probes(node);
        self.probes.awaited.remove(&node);
    }

    fn send_probe(&mut self, place: (NodeId, Family), now: Instant) -> Option<()> {
        let number = self.number(place.0)?;
        let server = *self.linked.keys().find(|server| server.server() == number)?;
        let (vip, own) = *self.probes.ways.get(&place)?;
        let random = process::random_number();
        let (sequence, port) = (random as u32, PORT_MIN | (random >> 32) as u16);
        let (id, key) = (self.next_flow(), FlowKey { client: vip, vip: SocketAddr::new(own, port) });
        if let Err(error) = self.steering.as_ref()?.flows().await_probe(key, id, sequence) {
            crate::log::warning(format_args!("a node can't be probed: {error}"));
            return None;
        }
        self.flows.probe(server, Ends { client: key.vip, vip }, sequence);
        self.probes.sent.insert(sequence, Sent { place, key, id, until: now.after(PROBE_TIME) });
        Some(())
    }

    /// Sees which probes have arrived.
    fn receive_probes(&mut self, now: Instant) {
        let Some(steering) = &self.steering else { return };
        let direct = self.dispatcher.direct_mut();
        self.probes.sent.retain(|&sequence, sent| {
            let has_arrived = steering.flows().has_probe(sent.key, sent.id, sequence);
            if matches!(has_arrived, Ok(true)) {
                direct.probe_arrived(sent.place.0, sent.place.1);
            }
            let is_awaited = matches!(has_arrived, Ok(false)) && now < sent.until;
            if !is_awaited && let Err(error) = steering.flows().delete(sent.key, sent.id) {
                crate::log::warning(format_args!("a probe's entry can't be deleted: {error}"));
            }
            is_awaited
        });
    }

    /// Looks at connections that nodes have, and asks for those whose clients hear nothing. Those of them that can't come back are returned.
    fn look(&mut self, is_doubted: bool, now: Instant) -> Vec<(FlowKey, Flow)> {
        let mut given_up = Vec::new();
        let Some(steering) = self.steering.clone() else { return given_up };
        self.taken_back.retain(|flow, _| self.flows.holder(*flow).is_some());
        for _ in 0..LOOKS_AT_ONCE {
            let Some(look) = self.dispatcher.direct_mut().poll_look(is_doubted, now) else { break };
            let holder = look.flow.and_then(|flow| self.flows.holder(flow));
            let (is_coming, is_there) = (holder == Some(None), holder == Some(Some(look.server)));
            // What has ended, or is in no books, can't be asked for.
            if holder.is_none() && !look.matters {
                self.dispatcher.direct_mut().put_off(look, now);
                continue;
            }
            let key = FlowKey::from(look.ends);
            let is_seen = is_there || holder.is_none();
            let entry = if is_seen { steering.flows().get(key).ok().flatten() } else { None };
            // Its client may have given it up, or begun another.
            let entry =
                entry.filter(|entry| !entry.reset && !entry.cut && look.flow.is_none_or(|flow| flow == entry.id));
            let direct = self.dispatcher.direct_mut();
            if entry.is_none() && !is_coming {
                direct.left(&look, now);
                continue;
            }
            let verdict = direct.looked(look.clone(), entry.as_ref().map(said), is_there, now);
            match (verdict, look.flow, entry) {
                (Verdict::TakeBack | Verdict::Ask, Some(flow), _) => {
                    self.taken_back.insert(flow, TakenBack { look, is_unheard: verdict == Verdict::TakeBack });
                    self.flows.recall(flow, RecallTerms::AtOnce);
                }
                (Verdict::GiveUp, _, Some(entry)) => given_up.push((key, entry)),
                _ => {}
            }
        }
        given_up
    }

    /// A flow is here as an image. Whether it was asked for because its client hears nothing, and that is so.
    pub(super) fn was_unheard(&mut self, flow: FlowId, image: &Image, now: Instant) -> bool {
        let Some(taken) = self.taken_back.get_mut(&flow) else { return false };
        let steering = self.steering.as_ref().map(|steering| steering.flows());
        let entry = steering.and_then(|flows| flows.get(FlowKey::from(taken.look.ends)).ok().flatten());
        if entry.is_some_and(|entry| taken.look.is_heard_since(entry.heard.acknowledged)) {
            // It took its node long to answer, and then it was heard.
            self.taken_back.remove(&flow);
            return false;
        }
        // What its node has said to somebody who has nothing to repeat would have been acknowledged by now.
        let is_old = image.http.connection.elapsed >= ACKNOWLEDGED_BY;
        let is_said = image.tcp.as_ref().is_some_and(|tcp| !tcp.sent.is_empty());
        if !taken.is_unheard && is_old && is_said {
            taken.is_unheard = true;
            self.dispatcher.direct_mut().was_unheard(&taken.look, now);
        }
        let is_unheard = taken.is_unheard;
        if !is_unheard {
            self.taken_back.remove(&flow);
        }
        is_unheard
    }

    /// Has a flow that was taken back go on where its client hears it: here, or at another node if its reply's bytes are with those.
    pub(super) fn place_where_heard(&mut self, flow: FlowId, image: &Image, now: Instant) {
        let can_go_on = image.reply.is_none() || self.split.is_some();
        if can_go_on && self.flows.place(flow, Destination::Here).is_ok() {
            return;
        }
        let from = self.taken_back.remove(&flow).map(|taken| taken.look.server.server());
        let hears = |server: &ServerId| Some(server.server()) != from && self.is_heard(*server, Some(image), now);
        let others: Vec<ServerId> = self.linked.keys().filter(|server| hears(server)).copied().collect();
        if !others.into_iter().any(|server| self.flows.place(flow, Destination::Node(server)).is_ok()) {
            self.flows.cut(flow, CutReason::Unheard);
        }
    }
}

impl<H: Host> Worker<H> {
    /// A node's link is up. It's used once it's known whether its replies arrive.
    pub(super) fn link_is_up(&mut self, node: NodeId) {
        let (now, config) = (self.now, self.config.clone());
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        let place = home.number(node).and_then(|number| number.checked_sub(number_of(0)));
        let addresses = place.and_then(|place| config.cluster.nodes.get(place as usize)).map(|node| &node.address);
        for &address in addresses.into_iter().flatten().filter(|_| home.steering.is_some()) {
            let vips = &config.cluster.vip;
            let vip = vips.iter().find(|vip| vip.is_ipv4() == address.is_ipv4());
            // By which it is reached, and reaches this machine. A VIP wouldn't tell who has sent something.
            let own = interfaces::own_address_towards(address).ok();
            let own = own.filter(|own| vips.iter().all(|vip| vip.ip() != *own));
            home.probes.ways.extend(vip.zip(own).map(|(vip, own)| ((node, Family::of(address)), (*vip, own))));
        }
        home.begin_probes(node, now);
        self.heed_replies();
    }

    /// Probes, looks and judges, as far as it's time for that.
    pub(super) fn heed_replies(&mut self) {
        let now = self.now;
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        home.receive_probes(now);
        while let Some(place) = home.dispatcher.direct_mut().poll_probe(now) {
            home.send_probe(place, now);
        }
        let given_up = home.look(self.shared.is_doubted(now), now);
        if home.dispatcher.direct().has_doubts() {
            self.shared.doubt_until(now.after(DOUBT_TIME));
        }
        while let Some(event) = home.dispatcher.direct_mut().poll_event() {
            tell(home.dispatcher.name(event.node), &event, &self.shared);
        }
        let probed: Vec<NodeId> =
            home.probes.awaited.iter().filter(|node| home.dispatcher.direct().is_probed(**node)).copied().collect();
        for node in probed {
            home.probes.awaited.remove(&node);
            home.dispatcher.link_changed(node, true, now);
            crate::log::info(format_args!("node {}: its link is up", home.dispatcher.name(node)));
        }
        given_up.into_iter().for_each(|(key, entry)| self.give_up_unheard(key, &entry));
    }

    /// A connection's client hears nothing, and its node can't give it back: it's told by a reset, rather than wait.
    fn give_up_unheard(&mut self, key: FlowKey, entry: &Flow) {
        self.metrics.replies_unheard.increment();
        if let Some(cluster) = &mut self.cluster {
            cluster.part.keep_cut(entry.id, key, &entry.heard, self.now);
        }
        self.reset_client(key, &entry.heard);
    }

    /// A node has sent a probe, or can't: then nothing is known of it.
    pub(super) fn probe_was_sent(&mut self, sequence: u32, is_sent: bool) {
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        if let Some(sent) = home.probes.sent.get(&sequence).filter(|_| is_sent) {
            home.dispatcher.direct_mut().probe_sent(sent.place.0, sent.place.1);
            self.heed_replies();
        }
    }

    /// A home wants to see whether what is sent here under a VIP gets there: from a socket as those of connections are, which is gone at once.
    pub(super) fn send_probe(&mut self, home: ServerId, ends: Ends, sequence: u32) {
        let is_vip = self.config.cluster.vip.contains(&ends.vip);
        let Some(cluster) = &mut self.cluster else { return };
        let Part::Node(node) = &mut cluster.part else { return };
        let sent = match is_vip {
            true => cluster.freezer.thaw(&probe(ends, sequence)).map_err(|error| error.to_string()),
            false => Err(format!("{} isn't among the VIPs here", ends.vip)),
        };
        let sent = sent.and_then(|socket| cluster.freezer.freeze(socket).map_err(|refused| refused.error.to_string()));
        let is_sent = sent.map(leat_host::handoff::Frozen::close_silently);
        if let Err(error) = &is_sent
            && self.shared.is_news(format!("no probe from {}", ends.vip), true)
        {
            crate::log::warning(format_args!("no probe can be sent from {}: {error}", ends.vip));
        }
        if let Some(home) = node.home(home) {
            home.flows.probed(sequence, is_sent.is_ok());
        }
    }
}

/// A connection on which nothing is to be said but one byte.
fn probe(ends: Ends, sequence: u32) -> TcpState {
    let window = u32::from(PROBE_MSS);
    TcpState {
        local: ends.vip,
        remote: ends.client,
        send_next: sequence.wrapping_add(1),
        receive_next: 1,
        window: TcpWindow { snd_wl1: 1, snd_wnd: window, max_window: window, rcv_wnd: window, rcv_wup: 1 },
        mss: PROBE_MSS,
        window_scale: None,
        sack: false,
        timestamp: None,
        unread: Vec::new(),
        sent: Vec::new(),
        unsent: vec![0],
    }
}

/// Says what has changed, once for all workers.
fn tell(name: &str, event: &Event, shared: &super::Shared) {
    let whom = event.whom;
    match event.cause {
        Some(cause) if shared.is_news(format!("{name} {whom}"), true) => crate::log::warning(format_args!(
            "node {name}: requests of {whom} are proxied to it, as {cause}: reverse-path filters, firewalls and clouds' source checks must let pass what it \
             sends under the VIP; that is tried again by itself"
        )),
        None if shared.is_news(format!("{name} {whom}"), false) => {
            crate::log::info(format_args!("node {name}: connections of {whom} are handed over to it again"));
        }
        _ => {}
    }
}
