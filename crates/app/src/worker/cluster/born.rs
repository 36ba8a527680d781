//! Connections that begin at a node: their SYN is answered by the steering programs, and the packet with the request is looked at here, given a
//! node and sent on. Whose packet isn't a whole request, or has no node, gets a socket of this server's and goes the ordinary way. At a node:
//! which flow an accepted connection is. A connection server's begin at data servers in the same way, if their first requests are delegated whatever
//! else there is to do. `docs/decisions/0012-born.md` has the reasons.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leat_host::reactor::{Reactor, Token};
use leat_host::socket;
use leat_host::steering::{self, Arrival, Birth, CookieKey, FlowKey, can_name};
use leat_logic::dispatch::cost::{Side, Way, Ways, Work};
use leat_logic::dispatch::{Choice, Facts, NodeId};
use leat_logic::handoff::{FlowId, HttpState, Image, Load, ServerId, cookie_key};
use leat_logic::http::{self, Progress, Request};
use leat_logic::split::Delegation;
use leat_logic::time::Instant;

use super::super::settings::SiteKind;
use super::super::{Host, Listening, UNKNOWN_SITE, Worker};
use super::home::Home;
use super::node::{Borrowed, Node};
use super::transplant::{Extent, body_end};
use super::{DISPATCHER, Part, Shared, shared};
use crate::config::{ClusterNode, Config, Role};

/// What has begun and ended at a node is told at once for so long: much sooner than its home would ask.
const TELL_PAUSE: Duration = Duration::from_millis(5);

/// Where a connection begins that brings a request, if it doesn't at this server.
enum Beginning {
    At(Birthplace),
    /// Nowhere yet, as there's no room: its client says the request again.
    PutOff,
}

/// A connection's home, and the node at which it begins.
struct Birthplace {
    home: ServerId,
    node: ServerId,
    /// The server there isn't leat: it says nothing of what it has, and gives nothing back.
    is_foreign: bool,
    /// Its next requests are looked at.
    is_watched: bool,
    /// Others for the same may begin there.
    stands: bool,
}

/// The dispatcher's programs: those that answer SYNs where that's wanted and the kernel has what they need.
pub(super) fn dispatcher(config: &Config, pins: &Path) -> Result<steering::Dispatcher, String> {
    or_moved(config, |key| {
        let Some(key) = key else { return steering::Dispatcher::load(pins, shared::FLOWS_MAX) };
        let (nodes, vips) = (&config.cluster.nodes, &config.cluster.vip);
        // Connections whose handshakes are replayed can't be moved, and to nodes of leat's they may have to be.
        let may_replay = config.role == Role::Dispatcher && nodes.iter().all(|node| !node.server.is_empty());
        let replay = Replay::of(may_replay, nodes.iter().all(|node| node.replay), pins);
        let born = || steering::Dispatcher::load_for_births(pins, shared::FLOWS_MAX, key, vips);
        let replays = || steering::Dispatcher::load_for_replays(pins, shared::FLOWS_MAX, key, vips);
        or_replayed(replay, born, replays)
    })
}

/// A node's programs: those by which connections begin here, where that's wanted and can be.
pub(super) fn node(config: &Config, pins: &Path, node: &ClusterNode) -> Result<steering::Node, String> {
    or_moved(config, |key| {
        let Some(key) = key else { return steering::Node::load(pins) };
        let replay = Replay::of(!node.server.is_empty(), node.replay, pins);
        let born = || steering::Node::load_for_births(pins, key);
        or_replayed(replay, born, || steering::Node::load_for_replays(pins, key))
    })
}

/// Whether handshakes are replayed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replay {
    Never,
    WhereNeeded,
    /// Connections are left that an earlier process has begun so.
    Still,
    Always,
}

impl Replay {
    fn of(is_possible: bool, is_wanted: bool, pins: &Path) -> Replay {
        match (is_possible, is_wanted) {
            (false, _) => Replay::Never,
            (true, true) => Replay::Always,
            (true, false) if steering::has_replays_left(pins) => Replay::Still,
            (true, false) => Replay::WhereNeeded,
        }
    }
}

/// Programs by which connections begin, or those that replay handshakes.
fn or_replayed<T>(
    replay: Replay,
    born: impl Fn() -> Result<T, steering::Error>,
    replays: impl Fn() -> Result<T, steering::Error>,
) -> Result<T, steering::Error> {
    let why = match replay {
        Replay::Never => return born(),
        Replay::Always => "`replay` says so".to_owned(),
        Replay::Still => "there are some from before this start, which would be cut otherwise; who wants none lets them end before the next start \
                          (at a node: `leat drain`)"
            .to_owned(),
        Replay::WhereNeeded => match born() {
            Err(cannot @ steering::Error::Kernel { .. }) => {
                format!("the kernel can't be handed them (Linux 6.9 can): {cannot}")
            }
            loaded => return loaded,
        },
    };
    let loaded = replays()?;
    crate::log::info(format_args!(
        "connections begin at servers that aren't leat by handshakes that are replayed, and their packets are translated there: {why}"
    ));
    Ok(loaded)
}

/// Whether connections are to begin at nodes.
pub(super) fn are_wanted(config: &Config) -> bool {
    // A connection server that answers some itself has sockets for less, and a peer is given sockets only.
    let is_delegating = config.split.delegation == Delegation::Full && config.split.peer.is_empty();
    config.cluster.born && (config.role != Role::ConnectionServer || is_delegating)
}

fn or_moved<T>(config: &Config, load: impl Fn(Option<CookieKey>) -> Result<T, steering::Error>) -> Result<T, String> {
    let key_file = config.cluster.key_file.as_ref().filter(|_| are_wanted(config));
    let key = key_file.map(|key| CookieKey::new(cookie_key(key.bytes())));
    if let Some(key) = key {
        match load(Some(key)) {
            Ok(loaded) => return Ok(loaded),
            // Nor may the others be loaded.
            Err(error @ steering::Error::Forbidden { .. }) => return Err(error.to_string()),
            Err(error) => crate::log::warning(format_args!(
                "connections are moved to nodes, and none begins there, as the kernel can't (Linux 6.9 can): {error}"
            )),
        }
    }
    load(None).map_err(|error| error.to_string())
}

impl Home {
    /// Has connections begin at nodes as the configuration says by now. Those that have begun aren't touched.
    pub(super) fn arrange_births(&mut self, config: &Config, shared: &Shared) {
        let Some(steering) = self.steering.as_ref() else { return };
        let are_wanted = are_wanted(config);
        if are_wanted == self.bears {
            return;
        }
        self.bears = are_wanted;
        if are_wanted && !steering.can_bear() && shared.is_news("births wait".to_owned(), true) {
            crate::log::warning(format_args!(
                "connections are moved to nodes: that they begin there is possible from the next start or upgrade (SIGUSR2) on"
            ));
        }
        for &vip in &config.cluster.vip {
            let told = if are_wanted { steering.answer(vip) } else { steering.stop_answering(vip) };
            if let Err(error) = told {
                crate::log::warning(format_args!("where connections begin can't be changed: {error}"));
            }
        }
        self.dispatcher.set_first_ways(first_ways(Some(steering), self.bears));
    }
}

/// By which first requests get to nodes.
pub(super) fn first_ways(steering: Option<&Arc<steering::Dispatcher>>, bears: bool) -> Ways {
    let begins = bears && steering.is_some_and(|steering| steering.can_bear());
    let moves = steering.is_some_and(|steering| steering.can_move());
    Ways::of(match (begins, moves) {
        (true, true) => &[Way::BornThere, Way::MovedThere, Way::Proxy],
        (true, false) => &[Way::BornThere, Way::Proxy],
        (false, true) => &[Way::MovedThere, Way::Proxy],
        (false, false) => &[Way::Proxy],
    })
}

impl Home {
    /// Whether there may be room for one more of a client's connections at a node's worker.
    fn take_room(&mut self, server: ServerId, client: IpAddr, now: Instant) -> bool {
        // A connection server has some itself.
        self.split.is_some() || self.rooms.take(server, self.flows.unanswered(server), client, now)
    }

    /// A node's worker has reported.
    pub(super) fn heed_room(&mut self, node: NodeId, server: ServerId, load: &Load, now: Instant) {
        if load.is_crowded {
            self.dispatcher.had_no_room(node, !load.is_foreign, now);
        }
        self.rooms.reported(server, load.is_crowded, self.flows.unanswered(server));
    }
}

impl Node {
    /// Has the home told, together with what else will have happened.
    pub(super) fn tell_soon(&mut self, now: Instant) {
        if self.births_at == Instant::NEVER {
            self.births_at = now.after(TELL_PAUSE);
        }
    }

    /// Tells it what is due.
    pub(super) fn tell(&mut self, now: Instant) {
        if now >= self.births_at {
            self.births_at = Instant::NEVER;
            self.tell_births();
        }
    }
}

impl<H: Host> Worker<H> {
    /// Gives every connection whose request has come to a node, or to this server's own listener.
    pub(super) fn place_arrivals(&mut self) {
        self.read_begun();
        let have_waited = self.have_births_waited();
        if self.have_births_to_wait() {
            return;
        }
        let (before, mut count) = (self.host.processor_time(), 0);
        while let Some(arrival) = self.home_steering().and_then(steering::Dispatcher::poll_arrival) {
            self.metrics.node_waits.add(have_waited.into());
            let beginning = self.bear(&arrival);
            let Some(steering) = self.home_steering() else { return };
            let (key, flow, flows) = (arrival.key, &arrival.flow, steering.flows());
            let node = match beginning {
                Some(Beginning::At(node)) => Some(node),
                Some(Beginning::PutOff) => {
                    steering.drop_waiting(key);
                    self.metrics.births_put_off.increment();
                    continue;
                }
                None => None,
            };
            let entered = match node {
                Some(Birthplace { home, node, is_foreign: true, is_watched, .. }) => {
                    flows.entrust(key, flow, (home, node), arrival.payload.len(), is_watched)
                }
                Some(Birthplace { home, node, is_foreign: false, .. }) => flows.bear(key, flow, home, node),
                None => flows.admit(key, flow),
            };
            steering.deliver(key);
            match (entered, &node) {
                (Ok(()), Some(born)) => {
                    count += 1;
                    self.watch_birth(&arrival, born);
                    if born.stands {
                        self.let_stand(&arrival);
                    }
                }
                (Ok(()), None) => {}
                // Sent twice, it came to another worker as well, or a choice stood by then; or its client has begun another connection.
                (Err(steering::Error::Gone), Some(Birthplace { is_foreign: false, .. })) => self.unbear(flow.id.serial),
                (Err(steering::Error::Gone), _) => {}
                (Err(error), _) => {
                    crate::log::warning(format_args!("a connection that begins can't be steered: {error}"));
                }
            }
        }
        self.place_next_requests();
        if let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part)
            && count > 0
        {
            let each = self.host.processor_time().saturating_sub(before) / count;
            home.dispatcher.measured(Work::Born, Side::Dispatcher, 0, each);
        }
    }

    pub(super) fn home_steering(&self) -> Option<&steering::Dispatcher> {
        match &self.cluster.as_ref()?.part {
            Part::Home(home) => home.steering.as_deref(),
            _ => None,
        }
    }

    /// Whether this server answers nothing of the cluster's itself.
    pub(super) fn is_all_for_nodes(&self) -> bool {
        self.sites.iter().all(|site| site.kind != SiteKind::Cluster || site.handlers.is_empty())
    }

    /// The node at which a connection is to begin that brings a request.
    pub(super) fn choose_birthplace(&mut self, request: &Request<'_>, arrival: &Arrival) -> Option<Choice> {
        let now = self.now;
        // Otherwise it takes the way that knows all cases.
        if !self.is_all_for_nodes() {
            return None;
        }
        let is_split = self.cluster.as_mut().is_some_and(|cluster| cluster.part.split().is_some());
        if is_split && !self.delegates_birth(request, &arrival.state()) {
            return None;
        }
        let Part::Home(home) = &mut self.cluster.as_mut()?.part else { return None };
        if home.is_retiring() || !home.bears || !can_name(home.id) {
            return None;
        }
        let facts = Facts::of(request);
        if let Some(split) = &home.split {
            // Where some are kept, each is looked at; and where another client's may begin elsewhere.
            let are_alike = split.balance.delegates_all() && !home.dispatcher.goes_by_client();
            let choice = home.dispatcher.choose(&facts.by(Some(arrival.key.client.ip())), now).ok()?;
            return Some(Choice { stands: choice.stands && are_alike, ..choice });
        }
        home.dispatcher.bear(&facts, arrival.key.client.ip(), now)
    }

    /// Where a connection is to begin. A node that is leat is in the books as its holder then. None when it's to begin here.
    fn bear(&mut self, arrival: &Arrival) -> Option<Beginning> {
        let now = self.now;
        if arrival.has_fin {
            return None;
        }
        let mut connection = http::Connection::new(now);
        let limits = &self.sites[UNKNOWN_SITE as usize].limits;
        let (consumed, progress) = connection.handle_input(now, &arrival.payload, limits);
        let Progress::Request(request) = progress else { return None };
        let content = &arrival.payload[consumed..];
        let extent = body_end(&mut connection, request.body, content, limits, now);
        let is_one = extent == Some(Extent::Whole(content.len()));
        let Choice { node, stands, .. } = self.choose_birthplace(&request, arrival)?;
        let cluster = self.cluster.as_mut()?;
        let Part::Home(home) = &mut cluster.part else { return None };
        let client = arrival.key.client.ip();
        home.dispatcher.direct().allows(node, client, now).then_some(())?;
        let number = home.number(node)?;
        if let Some((server, can_bear)) = home.foreign(number) {
            // What follows within its first packet, or on it as content, may look like a request for another server.
            if !is_one && home.dispatcher.serve_different_things() {
                return None;
            }
            // Nobody else ever has it, and whatever is lost the client sends again: there is nothing to keep or to be told.
            home.dispatcher.begin_unheard(node);
            home.entrusted += u64::from(can_bear);
            return can_bear.then_some(Beginning::At(Birthplace {
                home: home.id,
                node: server,
                is_foreign: true,
                is_watched: is_one && home.watches(),
                stands,
            }));
        }
        let server = home.workers(number).into_iter().find(|worker| can_name(*worker))?;
        if !home.take_room(server, client, now) {
            return Some(Beginning::PutOff);
        }
        let flow = FlowId { home: home.id, serial: arrival.flow.id.serial };
        let image = image(flow, arrival, now)?;
        home.flows.born(now, flow, server, image).ok()?;
        let home = flow.home;
        self.enter_birth(flow, arrival.key, node);
        Some(Beginning::At(Birthplace { home, node: server, is_foreign: false, is_watched: false, stands }))
    }

    /// A flow that has begun at a node is under way there.
    pub(super) fn enter_birth(&mut self, flow: FlowId, key: FlowKey, node: NodeId) {
        let Some(cluster) = &mut self.cluster else { return };
        let Part::Home(home) = &mut cluster.part else { return };
        cluster.flows.begin_away(flow, key);
        home.dispatcher.begin(node);
        match &mut home.split {
            Some(split) => {
                split.taken(flow, node);
                self.metrics.requests_delegated.increment();
            }
            None => drop(home.begun.insert(flow, node)),
        }
    }

    /// Whether its client hears the node will be seen.
    fn watch_birth(&mut self, arrival: &Arrival, born: &Birthplace) {
        let flow = FlowId { home: born.home, serial: arrival.flow.id.serial };
        if let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) {
            home.watch_birth(born.node, arrival, (!born.is_foreign).then_some(flow), self.now);
        }
    }

    /// A connection doesn't begin where it was to.
    fn unbear(&mut self, serial: u64) {
        let Some(cluster) = &mut self.cluster else { return };
        let Part::Home(home) = &mut cluster.part else { return };
        let flow = FlowId { home: home.id, serial };
        home.flows.never_born(flow);
        home.came_back(flow, self.now);
        cluster.flows.remove(flow);
    }

    /// The listeners at which connections may begin.
    fn birthplaces(&self) -> BTreeSet<u32> {
        let serves = |listening: &Listening| {
            listening.state.is_open() && !listening.sites.name.is_admin && listening.sites.port.is_none()
        };
        (0..).zip(&self.listeners).filter(|(_, listening)| serves(listening)).map(|(index, _)| index).collect()
    }

    /// This worker accepts no more after that: nobody else would accept those that have begun here, and what the kernel says of them when their listener
    /// closes doesn't leave a node.
    pub(in crate::worker) fn accept_last_births(&mut self) {
        let Some(Part::Node(node)) = self.cluster.as_ref().map(|cluster| &cluster.part) else { return };
        if !node.guard.has_births() {
            return;
        }
        for index in self.birthplaces() {
            self.accept_all(index as usize, true);
            self.none_waits_at(index);
        }
    }

    /// A home asks for connections that may wait to be accepted: those that do are accepted before it gets an answer. At once where they're few, as in a queue that
    /// is bound because there is too much to do: nobody else is accepted for a while then, and the home would wait for as long.
    pub(super) fn accept_all_births(&mut self) {
        let mut at = self.birthplaces();
        at.retain(|index| !self.accept_few(*index as usize));
        let Some(Part::Node(node)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        if at.is_empty() {
            return node.none_waits();
        }
        node.unaccepted.clone_from(&at);
        at.into_iter().for_each(|index| self.queue_accept(Token { index, generation: 0 }));
    }

    /// What a client of one that isn't to begin here any more has said again may have made a socket: it's dropped when it's accepted. Whether none waits now.
    pub(super) fn drop_late_births(&mut self, listener: u16) -> bool {
        let is_node = matches!(self.cluster.as_ref().map(|cluster| &cluster.part), Some(Part::Node(_)));
        is_node && self.accept_few(listener.into())
    }

    /// Nobody waits at a listener.
    pub(in crate::worker) fn none_waits_at(&mut self, listener: u32) {
        let Some(Part::Node(node)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        if node.unaccepted.remove(&listener) && node.unaccepted.is_empty() {
            node.none_waits();
            self.run_effects();
        }
    }

    /// A connection was accepted: if it began by a cookie, or at a node that hands on, it's a flow. False when another server goes on with it, and
    /// nothing is left of it here.
    pub(in crate::worker) fn accepted_birth(&mut self, token: Token) -> bool {
        let socket = self.connections[token].socket;
        let Some(cluster) = &mut self.cluster else { return true };
        let node = match &mut cluster.part {
            Part::Node(node) => node,
            Part::Peer(_) => {
                self.begins_at_peer(token);
                return true;
            }
            Part::Home(_) | Part::Front(_) => return true,
        };
        let before = cluster.flows.is_to_be_measured(self.now).then(|| self.host.processor_time());
        let Ok((vip, client)) = socket::ends(&Borrowed(socket)) else { return true };
        let Birth { serial, home, worker } = match node.guard.birth(FlowKey { client, vip }) {
            Ok(Some(birth)) => birth,
            Ok(None) => return true,
            Err(error) => {
                crate::log::warning(format_args!("a connection can't be told to the dispatcher: {error}"));
                return true;
            }
        };
        let flow = FlowId { home: ServerId::new(DISPATCHER, u32::from(home)), serial };
        // It's another worker's where listeners have just changed places.
        if worker == node.id.worker() && node.born(self.now, flow) {
            node.tell_soon(self.now);
            cluster.flows.settle(flow, token);
            if let Some(before) = before {
                node.samples.add_work(Work::Born, 0, self.host.processor_time().saturating_sub(before));
            }
            return true;
        }
        // Where it can't be frozen it's closed unmarked: what the kernel says then doesn't leave this host.
        if let Ok(socket) = self.reactor.give_up(socket, token)
            && let Ok(frozen) = cluster.freezer.freeze(socket)
        {
            frozen.close_silently();
        }
        let (_, left) = self.connections.close(token.index);
        self.leave_nothing(left);
        false
    }
}

/// What a socket here would have made of a connection: by that it goes on if its node never gets it.
pub(super) fn image(flow: FlowId, arrival: &Arrival, now: Instant) -> Option<Bytes> {
    let http = HttpState { connection: http::Connection::new(now).export(now), ..HttpState::default() };
    let image = Image { flow, tcp: Some(arrival.state()), congestion: None, http, reply: None };
    image.encode().ok().map(Bytes::from)
}
