//! Where each flow is, and what a connection is while it has no slot: frozen, on its way, or just arrived.

use std::collections::BTreeMap;
use std::os::fd::IntoRawFd;
use std::time::Duration;

use bytes::Bytes;
use leat_host::connections;
use leat_host::handoff::{Freezer, Frozen, Known, Position, Refused};
use leat_host::reactor::{Reactor, Socket, Token};
use leat_host::socket;
use leat_host::steering::FlowKey;
use leat_logic::dispatch::Outcome;
use leat_logic::dispatch::cost::Work;
use leat_logic::handoff::{Congestion, FlowId, HttpState, Image, RefuseReason, TcpState};
use leat_logic::http;
use leat_logic::time::Instant;

use super::super::connection::Connection;
use super::super::exchange::Exchange;
use super::super::{Host, Worker};
use super::{Part, reply};

/// All flows that a worker has something of.
pub(super) struct Flows<F> {
    all: BTreeMap<FlowId, Flow<F>>,
    /// By slot.
    at: BTreeMap<u32, (Token, FlowId)>,
    /// Those that are to be frozen as soon as the client has acknowledged everything.
    unacknowledged: Vec<FlowId>,
    /// Until then nothing is said of connections that can't be frozen.
    quiet_until: Instant,
    /// When what a change of hands takes was measured last.
    measured: Instant,
    /// Changes of hands since.
    unmeasured: u32,
}

/// From one word of connections that can't be frozen to the next: a full map keeps all of them from it.
const WORD_PAUSE: Duration = Duration::from_secs(10);

/// From one change of hands whose cost is measured to the next: reading the clock isn't free. By time, as those that are rare count most: a way that is tried
/// now and then.
const MEASURED_EVERY: Duration = Duration::from_millis(10);
/// But only after so many others: the first after a while takes longer than the rest.
const UNMEASURED_MIN: u32 = 11;
/// What a change of hands takes in all, of what is measured of it at either end, which is up to the offer and the thaw: messages, packets that are held
/// meanwhile, and the end of the socket that is left take half as much again at least (docs/decisions/0028-ways.md).
pub(super) const TIMES_MEASURED: f64 = 1.5;
/// How long a flow that is to be frozen waits for its client's acknowledgements, and how often it looks.
const ACKNOWLEDGED_PATIENCE: Duration = Duration::from_millis(100);
const ACKNOWLEDGED_LOOK: Duration = Duration::from_millis(1);

struct Flow<F> {
    key: Option<FlowKey>,
    /// Where the image was made that its home has: bytes written and acknowledged, bytes read, as its socket counts.
    base: (u64, u64),
    /// Where its socket stood when it was frozen last.
    known: Option<Known>,
    /// Bytes of its send queue when it came here with a request in hand, or was left here with it.
    queued: Option<u64>,
    /// Requests that it had brought by then; the one in hand isn't one of them.
    requests_before: u32,
    place: Place<F>,
}

enum Place<F> {
    /// In a slot. `freezing`: it's to be frozen as soon as nothing is under way, since then.
    Slot {
        token: Token,
        freezing: Option<Instant>,
    },
    Frozen {
        frozen: Box<Frozen>,
        parts: Parts<F>,
    },
    /// At another server.
    Away,
}

/// What a slot had.
struct Parts<F> {
    http: http::Connection,
    input: Vec<u8>,
    exchange: Option<Box<Exchange<F>>>,
    listener: u16,
    site: u32,
    frozen_at: Instant,
}

impl<F> Default for Flows<F> {
    fn default() -> Flows<F> {
        let (quiet_until, measured) = Default::default();
        Flows {
            all: BTreeMap::new(),
            at: BTreeMap::new(),
            unacknowledged: Vec::new(),
            quiet_until,
            measured,
            unmeasured: 0,
        }
    }
}

impl<F> Flows<F> {
    /// Whether what the next change of hands takes is measured.
    pub(super) fn is_to_be_measured(&mut self, now: Instant) -> bool {
        let is_due = self.unmeasured >= UNMEASURED_MIN && now.since(self.measured) >= MEASURED_EVERY;
        if is_due {
            (self.measured, self.unmeasured) = (now, 0);
        } else {
            self.unmeasured = self.unmeasured.saturating_add(1);
        }
        is_due
    }

    /// The flow of a connection.
    pub(super) fn at(&self, token: Token) -> Option<FlowId> {
        self.at.get(&token.index).filter(|(known, _)| *known == token).map(|&(_, flow)| flow)
    }

    /// The connection of a flow.
    pub(super) fn token(&self, flow: FlowId) -> Option<Token> {
        match self.all.get(&flow)?.place {
            Place::Slot { token, .. } => Some(token),
            Place::Frozen { .. } | Place::Away => None,
        }
    }

    pub(super) fn key(&self, flow: FlowId) -> Option<FlowKey> {
        self.all.get(&flow)?.key
    }

    pub(super) fn base(&self, flow: FlowId) -> (u64, u64) {
        self.all.get(&flow).map(|flow| flow.base).unwrap_or_default()
    }

    pub(super) fn is_freezing(&self, flow: FlowId) -> bool {
        matches!(self.all.get(&flow).map(|flow| &flow.place), Some(Place::Slot { freezing: Some(_), .. }))
    }

    /// How far a flow's socket has come, as it counts, if its request of this number came along: nothing was written before that is answered.
    pub(super) fn come_with(&self, flow: FlowId, request: u32) -> Option<Position> {
        let known = self.all.get(&flow).filter(|known| known.requests_before + 1 == request)?;
        let (acknowledged, read) = known.base;
        Some(Position { written: acknowledged + known.queued?, acknowledged, read })
    }

    /// A flow that was to be frozen isn't any more.
    pub(super) fn stop_freezing(&mut self, flow: FlowId) {
        if let Some(Flow { place: Place::Slot { freezing, .. }, .. }) = self.all.get_mut(&flow) {
            *freezing = None;
        }
    }

    /// Requests that were brought elsewhere.
    pub(super) fn requests_before(&self, flow: FlowId) -> u32 {
        self.all.get(&flow).map_or(0, |flow| flow.requests_before)
    }

    /// What the kernel knew of a flow that is frozen here.
    pub(super) fn frozen_state(&self, flow: FlowId) -> Option<&TcpState> {
        match &self.all.get(&flow)?.place {
            Place::Frozen { frozen, .. } => Some(frozen.state()),
            Place::Slot { .. } | Place::Away => None,
        }
    }

    pub(super) fn is_frozen(&self, flow: FlowId) -> bool {
        matches!(self.all.get(&flow).map(|flow| &flow.place), Some(Place::Frozen { .. }))
    }

    /// A flow begins at another server.
    pub(super) fn begin_away(&mut self, flow: FlowId, key: FlowKey) {
        self.all.insert(
            flow,
            Flow { key: Some(key), base: (0, 0), known: None, queued: None, requests_before: 0, place: Place::Away },
        );
    }

    /// A flow is in a slot from now on.
    pub(super) fn settle(&mut self, flow: FlowId, token: Token) {
        let place = Place::Slot { token, freezing: None };
        match self.all.get_mut(&flow) {
            Some(known) => known.place = place,
            None => {
                drop(self.all.insert(
                    flow,
                    Flow { key: None, base: (0, 0), known: None, queued: None, requests_before: 0, place },
                ))
            }
        }
        self.at.insert(token.index, (token, flow));
    }

    /// Those that wait for acknowledgements: they wait anew if they must.
    pub(super) fn take_unacknowledged(&mut self) -> Vec<FlowId> {
        let mut flows = std::mem::take(&mut self.unacknowledged);
        flows.sort_unstable();
        flows.dedup();
        flows.retain(|flow| self.is_freezing(*flow));
        flows
    }

    /// Says why a connection stays here, now and then: a drain tries again and again.
    fn tell_unmoved(&mut self, error: &dyn std::fmt::Display, now: Instant) {
        if now >= self.quiet_until {
            self.quiet_until = now.after(WORD_PAUSE);
            crate::log::warning(format_args!("a connection can't be handed over: {error}"));
        }
    }

    fn leave(&mut self, flow: FlowId, place: Place<F>) {
        if let Some(known) = self.all.get_mut(&flow) {
            if let Place::Slot { token, .. } = known.place {
                self.at.remove(&token.index);
            }
            known.place = place;
        }
    }

    /// Forgets the flow of a connection that has ended.
    pub(super) fn remove_at(&mut self, token: Token) -> Option<FlowId> {
        let flow = self.at(token)?;
        self.at.remove(&token.index);
        self.all.remove(&flow);
        Some(flow)
    }

    /// Forgets a flow. What was frozen of it is dropped without a word.
    pub(super) fn remove(&mut self, flow: FlowId) {
        self.leave(flow, Place::Away);
        self.all.remove(&flow);
    }
}

impl<H: Host> Worker<H> {
    /// Freezes a flow's connection, now or as soon as nothing is under way for it.
    pub(super) fn freeze(&mut self, flow: FlowId) {
        let Some(cluster) = &mut self.cluster else { return };
        // A request may have come meanwhile, and it's its turn now: later the flow may live here again, which nobody would know of what is frozen then.
        cluster.turns.remove(flow);
        let keeps_replies = cluster.part.keeps_reply(flow);
        let Some(Flow { place: Place::Slot { token, freezing }, .. }) = cluster.flows.all.get_mut(&flow) else {
            return self.freeze_failed(flow);
        };
        let since = *freezing.get_or_insert(self.now);
        let token = *token;
        let connection = &mut self.connections[token];
        let flags = connection.flags;
        if flags.closing || flags.ended {
            return self.freeze_failed(flow);
        }
        // A request moves that nobody has begun to answer, and a node's reply that others can make.
        let is_begun = connection
            .exchange
            .as_ref()
            .is_some_and(|exchange| exchange.is_begun() && (keeps_replies || !exchange.can_go_on_elsewhere()));
        if is_begun || flags.queued || flags.sending {
            return;
        }
        if flags.awaiting {
            // Room, which its client may never make: what is left goes without.
            return self.reactor.stop_awaiting_writable(connection.socket, token);
        }
        // What the client hasn't acknowledged would go along, for nothing: its acknowledgement is under way.
        if !keeps_replies
            && connection.exchange.is_none()
            && self.now < since.after(ACKNOWLEDGED_PATIENCE)
            && self.reactor.unacknowledged_bytes(connection.socket) > 0
        {
            cluster.flows.unacknowledged.push(flow);
            cluster.look_at = cluster.look_at.min(self.now.after(ACKNOWLEDGED_LOOK));
            return;
        }
        if flags.receiving {
            if !flags.pausing {
                connection.flags.pausing = true;
                self.reactor.pause(connection.socket, token);
            }
            return;
        }
        self.freeze_now(flow, token);
    }

    /// Whether a node measures what the next change of hands takes.
    fn measures(&mut self) -> bool {
        let now = self.now;
        self.cluster.as_mut().is_some_and(|cluster| {
            matches!(cluster.part, Part::Node(_) | Part::Peer(_)) && cluster.flows.is_to_be_measured(now)
        })
    }

    fn freeze_now(&mut self, flow: FlowId, token: Token) {
        let before = self.measures().then(|| self.host.processor_time());
        let begun_at = self.host.now();
        let connection = &mut self.connections[token];
        let input = connection.inbox.bytes(&self.reactor).to_vec();
        let Ok(socket) = self.reactor.give_up(connection.socket, token) else { return self.freeze_failed(flow) };
        let Some(cluster) = &mut self.cluster else { return };
        let key = match cluster.flows.key(flow) {
            Some(known) => Ok(known),
            None => socket::ends(&socket).map(|(vip, client)| FlowKey { client, vip }),
        };
        let key = key.map_err(|error| error.to_string()).and_then(|key| cluster.part.hold(flow, key).map(|()| key));
        let frozen = match &key {
            Ok(FlowKey { client, vip }) => {
                let known = cluster.flows.all.get(&flow).and_then(|flow| flow.known);
                let frozen = cluster.freezer.freeze_between((*vip, *client), socket, known);
                frozen.map_err(|Refused { socket, error }| {
                    (socket, (!error.is_opening_or_closing()).then(|| error.to_string()))
                })
            }
            Err(error) => Err((socket, Some(error.clone()))),
        };
        match frozen {
            Ok(frozen) => {
                let (base, queued) = (frozen.come(), connection.exchange.as_ref().map(|_| queued(frozen.state())));
                let image = image_of(flow, &frozen, connection, &input, self.now);
                connection.inbox.clear(&mut self.reactor);
                let (http, listener, site) = (connection.http.clone(), connection.listener, connection.site);
                self.admission.uncount_connection(site as usize, connection.last_asked);
                let (exchange, left) = self.connections.close(token.index);
                let parts = Parts { http, input, exchange, listener, site, frozen_at: begun_at };
                cluster.flows.leave(flow, Place::Frozen { frozen: Box::new(frozen), parts });
                if let Some(known) = cluster.flows.all.get_mut(&flow) {
                    (known.key, known.base, known.queued) = (key.ok(), base, queued);
                }
                self.metrics.connections.set(self.connections.len() as u64);
                match image.encode() {
                    Ok(image) => {
                        if let Some(before) = before {
                            let spent = self.host.processor_time().saturating_sub(before);
                            cluster.part.measured(Work::HandedOn, 0, 2 * spent);
                        }
                        cluster.part.frozen(self.now, flow, image.into());
                    }
                    Err(error) => {
                        cluster.flows.tell_unmoved(&error, self.now);
                        self.unfreeze(flow);
                        self.freeze_failed(flow);
                    }
                }
                self.leave_nothing(left);
            }
            Err((socket, error)) => {
                if let Some(error) = error {
                    cluster.flows.tell_unmoved(&error, self.now);
                }
                if let Ok(key) = key {
                    cluster.part.let_go(flow, key, self.now);
                }
                self.connections[token].socket = Socket(socket.into_raw_fd().cast_unsigned());
                self.freeze_failed(flow);
            }
        }
    }

    pub(super) fn freeze_failed(&mut self, flow: FlowId) {
        let Some(cluster) = &mut self.cluster else { return };
        cluster.part.freeze_failed(flow);
        let token = cluster.flows.token(flow);
        cluster.flows.stop_freezing(flow);
        if let Some(token) = token {
            // A reply that was to go along.
            self.tell_of_reply(token);
            // No node has seen it.
            self.stays_here(token, Outcome::Unknown);
        }
    }

    /// A frozen connection goes on here.
    pub(super) fn unfreeze(&mut self, flow: FlowId) {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return };
        if !cluster.flows.is_frozen(flow) {
            return;
        }
        let Some(Flow { key, base, queued, place: Place::Frozen { frozen, parts }, .. }) =
            cluster.flows.all.remove(&flow)
        else {
            return;
        };
        if let Some(key) = key {
            cluster.part.let_go(flow, key, now);
        }
        let known = Some(frozen.known());
        let adopted = frozen.resume().map_err(|error| error.to_string());
        let adopted = adopted.and_then(|socket| self.reactor.adopt(socket).map_err(|error| error.to_string()));
        match adopted {
            Ok(socket) => {
                let token = self.connections.open(now, socket, parts.listener);
                let connection = &mut self.connections[token];
                connection.http = parts.http;
                connection.inbox.put(parts.input);
                connection.exchange = parts.exchange;
                connection.site = parts.site;
                // It's left here as if it had come anew: so many further requests may be answered here.
                let requests_before =
                    connection.http.request_count().saturating_sub(u32::from(connection.exchange.is_some()));
                cluster.flows.all.insert(flow, Flow { key, base, known, queued, requests_before, place: Place::Away });
                cluster.flows.settle(flow, token);
                self.stays_here(token, Outcome::Failed);
            }
            Err(error) => {
                crate::log::warning(format_args!("a connection is lost: {error}"));
                if let Some(exchange) = parts.exchange {
                    self.recycle(exchange);
                }
                self.flow_is_lost(flow);
            }
        }
    }

    /// A flow that was given away isn't here any more.
    pub(super) fn close_silently(&mut self, flow: FlowId) {
        let Some(cluster) = &mut self.cluster else { return };
        cluster.turns.remove(flow);
        let Some(known) = cluster.flows.all.get_mut(&flow) else { return };
        let key = known.key;
        let place = std::mem::replace(&mut known.place, Place::Away);
        cluster.arrivals.remove(flow);
        let is_node = matches!(cluster.part, Part::Node(_));
        if is_node {
            cluster.flows.remove(flow);
        }
        match place {
            Place::Frozen { frozen, parts } => {
                self.metrics.count_handoff(self.host.now().since(parts.frozen_at));
                frozen.close_silently();
                if let Some(key) = key {
                    cluster.part.unhold(flow, key, self.now);
                }
                if let Some(exchange) = parts.exchange {
                    self.recycle(exchange);
                }
                self.flow_was_taken(flow);
            }
            // It lives here, as after a lease that ran out, and went on elsewhere. Its socket isn't marked: what the kernel says doesn't leave this host.
            Place::Slot { token, .. } if is_node => {
                cluster.flows.at.remove(&token.index);
                self.connections[token].flags.elsewhere = true;
                self.cut(token);
            }
            Place::Slot { .. } | Place::Away => {}
        }
    }

    /// Makes a connection from an image.
    pub(super) fn thaw(&mut self, flow: FlowId, image: &Bytes) {
        match Image::decode(image).map_err(|error| refused(RefuseReason::Image, &error)) {
            Ok(image) => self.thaw_in_turn(flow, image),
            Err(reason) => self.thaw_ended(flow, Err(reason)),
        }
    }

    pub(super) fn thaw_now(&mut self, flow: FlowId, mut image: Image) {
        let before = self.measures().then(|| self.host.processor_time());
        let serves = self.cluster.as_ref().is_some_and(|cluster| cluster.part.serves());
        let thawed = match image.reply.take() {
            Some(reply) if serves && reply.is_all_here() => self.go_on_with(flow, image, &reply, None, Vec::new()),
            Some(reply) if serves => match self.seek_content(flow, image, reply) {
                Ok(()) => return,
                Err(reason) => Err(reason),
            },
            Some(_) => Err(refused(RefuseReason::Image, &"a reply under way, whose content nodes have")),
            None => self.try_to_thaw(flow, image),
        };
        if let (Ok(token), Some(cluster), Some(before)) = (&thawed, &mut self.cluster, before) {
            let spent = self.host.processor_time().saturating_sub(before);
            match self.connections[*token].http.request_count() {
                0 | 1 => cluster.part.measured(Work::Moved, 0, spent.mul_f64(TIMES_MEASURED)),
                // Half of it: the giver's freeze is the other.
                _ => cluster.part.measured(Work::HandedOn, 0, 2 * spent),
            }
        }
        self.thaw_ended(flow, thawed);
    }

    pub(super) fn thaw_ended(&mut self, flow: FlowId, thawed: Result<Token, RefuseReason>) {
        let Some(cluster) = &mut self.cluster else { return };
        match thawed {
            Ok(token) => {
                cluster.part.came_back(flow, self.now);
                cluster.flows.settle(flow, token);
                cluster.part.thawed(flow, cluster.flows.key(flow));
                self.begin_with(token);
            }
            Err(reason) => cluster.part.thaw_failed(flow, reason),
        }
    }

    fn try_to_thaw(&mut self, flow: FlowId, image: Image) -> Result<Token, RefuseReason> {
        let Image { tcp: Some(mut tcp), congestion, http: state, .. } = image else { return Err(RefuseReason::Image) };
        if let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part)
            && home.taken_back.remove(&flow).is_some()
        {
            // It has got none of it: said now, and not when a timer says so.
            tcp.unsent.splice(0..0, tcp.sent.drain(..));
        }
        let listener = self.listener_of(&tcp).ok_or(RefuseReason::Address)?;
        let http = http::Connection::import(self.now, &state.connection).ok_or(RefuseReason::Image)?;
        let token = self.make_connection(flow, (&tcp, congestion), &state, listener)?;
        let connection = &mut self.connections[token];
        connection.http = http;
        connection.flags.ended = state.connection.has_input_ended();
        connection.inbox.put(state.input);
        if !state.head.is_empty() {
            let first = self.resume_request(token, &state.head);
            self.was_given(flow, token);
            let split = self.cluster.as_mut().and_then(|cluster| cluster.part.split());
            let is_kept = split.is_some_and(|split| split.take_kept(flow));
            if let Some(exchange) = &mut self.connections[token].exchange {
                exchange.first = first;
                exchange.stays = is_kept;
            }
        }
        Ok(token)
    }

    /// Makes the socket, and a slot for it.
    pub(super) fn make_connection(
        &mut self,
        flow: FlowId,
        (tcp, congestion): (&TcpState, Option<Congestion>),
        http: &HttpState,
        at: u16,
    ) -> Result<Token, RefuseReason> {
        let cluster = self.cluster.as_mut().ok_or(RefuseReason::Absent)?;
        let (key, base) = (Some(FlowKey::of(tcp)), (0, 0));
        let requests_before = http.connection.requests.saturating_sub(u32::from(!http.head.is_empty()));
        let queued = (!http.head.is_empty()).then(|| queued(tcp));
        cluster.flows.all.insert(flow, Flow { key, base, known: None, queued, requests_before, place: Place::Away });
        let known = congestion.unwrap_or_default();
        let thaw = |freezer: &Freezer| freezer.thaw_knowing(tcp, known);
        let thawed = thaw(&cluster.freezer).or_else(|error| match error.is_taken() && self.makes_way(tcp, at) {
            true => self.cluster.as_ref().map_or(Err(error), |cluster| thaw(&cluster.freezer)),
            false => Err(error),
        });
        let thawed = thawed.map_err(|error| refused(RefuseReason::Kernel, &error));
        let Some(cluster) = &mut self.cluster else { return Err(RefuseReason::Absent) };
        let socket = thawed.inspect(|socket| {
            if http.connection.has_input_ended() {
                // Without it the connection goes on all the same.
                let _ = socket::expect_no_end(socket);
            }
        });
        let adopt = |socket| self.reactor.adopt(socket).map_err(|error| refused(RefuseReason::Kernel, &error));
        let Ok(socket) = socket.and_then(adopt) else {
            // Its home offers it to others, and a node hears of it no more.
            if matches!(cluster.part, Part::Node(_)) {
                cluster.flows.remove(flow);
            }
            return Err(RefuseReason::Kernel);
        };
        let token = self.connections.open(self.now, socket, at);
        self.metrics.connections.set(self.connections.len() as u64);
        self.connections[token].arrived_us = self.now_us;
        Ok(token)
    }

    /// What else has a flow's ends here goes, if it isn't needed. Whether any has.
    fn makes_way(&mut self, tcp: &TcpState, at: u16) -> bool {
        // Behind fronts: this node has answered a SYN whose client goes by another's answer (decision 17).
        self.drop_late_births(at) || connections::forget_handshake(tcp.local, tcp.remote).unwrap_or(false)
    }

    /// The listener at whose address a flow lives.
    pub(super) fn listener_of(&self, tcp: &TcpState) -> Option<u16> {
        let vips = &self.config.cluster.vip;
        let is_vip = vips.contains(&tcp.local);
        let serves = |address: std::net::SocketAddr| {
            let is_wide = address.ip().is_unspecified() && address.is_ipv4() == tcp.local.is_ipv4();
            address == tcp.local || is_wide && address.port() == tcp.local.port()
        };
        let place = self.listeners.iter().position(|listening| serves(listening.sites.name.address));
        place.filter(|_| is_vip).and_then(|place| u16::try_from(place).ok())
    }
}

/// Bytes that the client hasn't acknowledged.
fn queued(tcp: &TcpState) -> u64 {
    (tcp.sent.len() + tcp.unsent.len()) as u64
}

/// Says why a flow isn't taken.
pub(super) fn refused(reason: RefuseReason, why: &dyn std::fmt::Display) -> RefuseReason {
    crate::log::warning(format_args!("a connection isn't taken over: {reason}: {why}"));
    reason
}

fn image_of<F>(flow: FlowId, frozen: &Frozen, connection: &Connection<F>, input: &[u8], now: Instant) -> Image {
    let reply = connection.exchange.as_deref().and_then(reply::left_of);
    let (tcp, congestion) = (Some(frozen.state().clone()), Some(frozen.congestion()));
    Image { flow, tcp, congestion, http: http_state(connection, input, now), reply }
}

/// Where the protocol stands.
pub(super) fn http_state<F>(connection: &Connection<F>, input: &[u8], now: Instant) -> HttpState {
    let exchange = connection.exchange.as_ref();
    let mut state = connection.http.export(now);
    if exchange.is_some_and(|exchange| exchange.given_up) {
        state.give_up_request();
    }
    HttpState {
        connection: state,
        input: input.to_vec(),
        head: exchange.map(|exchange| exchange.head.clone()).unwrap_or_default(),
        elapsed: exchange.map(|exchange| now.since(exchange.started)).unwrap_or_default(),
    }
}
