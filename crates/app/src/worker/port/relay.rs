//! One client of a port and its nodes: bytes go from stream to stream as the session says, none faster than they are taken.

use std::net::SocketAddr;
use std::rc::Rc;

use leat_host::reactor::Token;
use leat_logic::dispatch::{Facts, NodeId, Outcome};
use leat_logic::handoff::RelayState;
use leat_logic::protocol::{ClientStep, Leg, NodeStep, Session, proxy_header};
use leat_logic::time::Instant;

use super::super::{Host, Worker};
use super::end::End;
use super::{Ports, Settings};
use crate::metrics::PortMetrics;

/// Bytes that are moved for one client before others have their turn.
const TURN_BYTES: u64 = 128 * 1024;
/// Bytes that go from one to another before it's looked at what others have to say.
const IN_A_ROW_BYTES: u64 = 16 * 1024;
/// Nodes that are tried for one request.
pub(super) const TRIES_MAX: u8 = 3;

/// See the module.
pub(super) struct Relay {
    pub(super) token: Token,
    pub(super) site: u32,
    pub(super) settings: Rc<Settings>,
    pub(super) session: Session,
    /// The client's address, and the one that it came to.
    pub(super) ends: Option<(SocketAddr, SocketAddr)>,
    /// Where nodes take it, if that isn't the same for all clients.
    pub(super) node_port: Option<u16>,
    /// By the session's numbers.
    pub(super) legs: Vec<Option<To>>,
    pub(super) is_queued: bool,
    /// It goes to the next engine as soon as the reactor has let go of it.
    pub(super) is_leaving: bool,
    /// The next engine doesn't take it.
    pub(super) stays: bool,
    /// A balancer hasn't told yet who the client is.
    pub(super) must_tell: bool,
    pub(super) began: Instant,
    /// When bytes last moved.
    pub(super) moved_at: Instant,
    /// When the first byte came of a request of which isn't known yet where it goes.
    pub(super) head_since: Option<Instant>,
    pub(super) received_bytes: u64,
    pub(super) sent_bytes: u64,
    /// Names of its nodes, for the log.
    pub(super) nodes: Vec<String>,
    /// What has been counted.
    counted: (u64, u64, u64),
    finished: bool,
}

/// What a request is about.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    method: Vec<u8>,
    host: Vec<u8>,
    path: Vec<u8>,
}

impl Wanted {
    fn of(facts: &Facts<'_>) -> Wanted {
        Wanted { method: facts.method.to_vec(), host: facts.host.to_vec(), path: facts.path.to_vec() }
    }

    pub(super) fn facts(&self) -> Facts<'_> {
        Facts { method: &self.method, host: &self.host, path: &self.path, ..Facts::default() }
    }
}

/// Who gets a request that begins.
struct Chosen {
    node: NodeId,
    /// What it's about, where the node isn't connected yet and another may have to be found for it.
    wanted: Option<Wanted>,
}

/// A stream to a node.
pub(super) struct To {
    pub(super) stream: Token,
    pub(super) node: NodeId,
    /// When it must be connected; `None` once it is.
    pub(super) connect_by: Option<Instant>,
    /// What it's to be asked as soon as it is: another node may have to be found for that.
    pub(super) wanted: Option<Wanted>,
    pub(super) tries: u8,
    has_spoken: bool,
    /// It has been given something that the client has said.
    pub(super) has_heard: bool,
    finished: bool,
}

impl To {
    pub(super) fn new(stream: Token, node: NodeId, connect_by: Instant, wanted: Option<Wanted>, tries: u8) -> To {
        To {
            stream,
            node,
            connect_by: Some(connect_by),
            wanted,
            tries,
            has_spoken: false,
            has_heard: false,
            finished: false,
        }
    }

    /// One that has been connected elsewhere, and has heard and said what nobody here knows.
    pub(super) fn connected(stream: Token, node: NodeId) -> To {
        let (connect_by, has_spoken, has_heard) = (None, true, true);
        To { stream, node, connect_by, wanted: None, tries: TRIES_MAX, has_spoken, has_heard, finished: false }
    }

    /// Whether it has said anything.
    pub(super) fn has_spoken(&self) -> bool {
        self.has_spoken
    }
}

impl Relay {
    pub(super) fn new(
        token: Token,
        site: u32,
        settings: Rc<Settings>,
        session: Session,
        ends: Option<(SocketAddr, SocketAddr)>,
        now: Instant,
    ) -> Relay {
        Relay {
            token,
            site,
            settings,
            session,
            ends,
            node_port: None,
            legs: Vec::new(),
            is_queued: false,
            is_leaving: false,
            stays: false,
            must_tell: false,
            began: now,
            moved_at: now,
            head_since: None,
            received_bytes: 0,
            sent_bytes: 0,
            nodes: Vec::new(),
            counted: (0, 0, 0),
            finished: false,
        }
    }

    /// Goes on where another engine has been since `began`; `to`: its whole connection is this node's.
    pub(super) fn resume(&mut self, to: Option<To>, state: RelayState, began: Instant) {
        self.legs.extend(to.map(Some));
        (self.nodes, self.began) = (state.nodes, began);
        (self.received_bytes, self.sent_bytes) = (state.received_bytes, state.sent_bytes);
        self.counted = (self.session.requests(), self.received_bytes, self.sent_bytes);
    }

    /// The stream to the node that has all of the connection, once it's connected.
    pub(super) fn only_node(&self) -> Option<(Token, NodeId)> {
        let to = self.legs.iter().flatten().next().filter(|to| to.connect_by.is_none())?;
        self.session.is_passing().then_some((to.stream, to.node))
    }

    pub(super) fn moved_bytes(&self) -> u64 {
        self.received_bytes + self.sent_bytes
    }

    /// Adds what is new since the last time.
    pub(super) fn count(&mut self, metrics: &PortMetrics) {
        let now = (self.session.requests(), self.received_bytes, self.sent_bytes);
        metrics.requests.add(now.0 - self.counted.0);
        metrics.received_bytes.add(now.1 - self.counted.1);
        metrics.sent_bytes.add(now.2 - self.counted.2);
        self.counted = now;
    }

    /// The streams by which a node may be told of one more request.
    fn legs_to(&self, node: NodeId) -> impl Iterator<Item = (Leg, &To)> {
        self.open_legs().filter(move |&(leg, to)| to.node == node && !self.session.is_closing(leg))
    }

    /// Whether that can be told at once, whichever of them it is.
    fn is_connected_to(&self, node: NodeId) -> bool {
        let mut are_connected = self.legs_to(node).map(|(_, to)| to.connect_by.is_none()).peekable();
        are_connected.peek().is_some() && are_connected.all(|is_connected| is_connected)
    }

    pub(super) fn open_legs(&self) -> impl Iterator<Item = (Leg, &To)> {
        self.legs.iter().enumerate().filter_map(|(leg, to)| Some((leg, to.as_ref()?)))
    }
}

/// Has the client hear that no node can have its request, if that is so and there are words for it.
fn or_refused(relay: &mut Relay, begun: Result<bool, End>) -> Result<bool, End> {
    match begun {
        Err(End::NoNode) if relay.session.refuse() => Ok(true),
        begun => begun,
    }
}

impl Ports {
    /// The node of a request that begins; `None` if it must wait.
    fn choose(&mut self, relay: &Relay, facts: Option<&Facts<'_>>, now: Instant) -> Option<Result<Chosen, End>> {
        // What was said to all nodes can be taken back for as long as nobody has heard it.
        let is_untold = |(leg, to): (Leg, &To)| to.connect_by.is_some() && relay.session.speaks_for_all(leg);
        if relay.open_legs().any(is_untold) {
            return None;
        }
        let Some(port) = self.ports.get_mut(&relay.site) else { return Some(Err(End::NoNode)) };
        // What any node may have goes where the client has one already, unless that is to be emptied.
        let is_kept = |node: &NodeId| facts.is_none() && !port.dispatcher.is_draining(*node);
        let chosen = match relay.open_legs().map(|(_, to)| to.node).find(is_kept) {
            Some(node) => Ok(node),
            None => port.choose(facts, now),
        };
        let about = |node| facts.filter(|_| !relay.is_connected_to(node)).map(Wanted::of);
        Some(chosen.map(|node| Chosen { node, wanted: about(node) }))
    }
}

impl<H: Host> Worker<H> {
    /// Moves a client's bytes, both ways. Whether there is more to move now; or why it's over.
    pub(super) fn relay(&mut self, relay: &mut Relay) -> Result<bool, End> {
        if relay.must_tell && !self.hear_of_relays_client(relay)? {
            return Ok(false);
        }
        let moved = self.move_bytes(relay);
        // Answers that have come are the client's, however it ends.
        for stream in relay.open_legs().map(|(_, to)| to.stream).chain([relay.token]) {
            if let Some(stream) = self.streams.get(stream) {
                stream.flush(&mut self.reactor);
            }
        }
        if !moved? {
            self.settle_ends(relay)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// The same, as far as that's possible now. Whether there is more; some of it may wait to be flushed.
    fn move_bytes(&mut self, relay: &mut Relay) -> Result<bool, End> {
        let limit = relay.moved_bytes() + TURN_BYTES;
        loop {
            // Nodes first: one that can't be reached gives its place to another before it's told any more.
            let mut is_moving = false;
            for leg in 0..relay.legs.len() {
                is_moving |= self.repeat(relay, |worker, relay| worker.step_node(relay, leg))?;
            }
            is_moving |= self.repeat(relay, Self::step_client)?;
            is_moving |= self.give_own_words(relay);
            if !is_moving {
                return Ok(false);
            }
            relay.moved_at = self.now;
            if relay.moved_bytes() >= limit {
                return Ok(true);
            }
        }
    }

    /// Takes steps of one kind for as long as they change anything and little is moved: short requests, and their answers, come many at a time. Whether any did.
    fn repeat(
        &mut self,
        relay: &mut Relay,
        step: impl Fn(&mut Self, &mut Relay) -> Result<bool, End>,
    ) -> Result<bool, End> {
        let limit = relay.moved_bytes() + IN_A_ROW_BYTES;
        let mut is_moving = false;
        while relay.moved_bytes() < limit && step(self, relay)? {
            is_moving = true;
        }
        Ok(is_moving)
    }

    /// Reads what a balancer tells of its client. False until that is there.
    fn hear_of_relays_client(&mut self, relay: &mut Relay) -> Result<bool, End> {
        let Some(client) = self.streams.get(relay.token) else { return Err(End::ClientGone) };
        match proxy_header::read(client.bytes()) {
            Ok(Some((bytes, ends))) => {
                client.take(&mut self.reactor, bytes);
                relay.must_tell = false;
                relay.ends = ends.or(relay.ends);
                Ok(true)
            }
            Ok(None) if client.has_ended() => Err(End::ClientGone),
            Ok(None) => Ok(false),
            Err(error) => {
                self.refuse_header(relay.ends.map(|(peer, _)| peer), error);
                Err(End::BadHeader(error))
            }
        }
    }

    /// One step with what the client says. Whether it changed anything.
    fn step_client(&mut self, relay: &mut Relay) -> Result<bool, End> {
        let Some(client) = self.streams.get(relay.token) else { return Err(End::ClientGone) };
        if client.is_gone() {
            return Err(End::ClientGone);
        }
        let (bytes, is_all) = (client.bytes(), client.has_ended());
        let step = relay.session.client_step(bytes, is_all)?;
        if let Some(leg) = relay.session.given_up()
            && let (Some(to), Some(port)) = (&relay.legs[leg], self.ports.ports.get_mut(&relay.site))
        {
            port.request_ended(to.node, Outcome::Unknown, self.now);
        }
        let is_head = step == ClientStep::NeedMore && !bytes.is_empty();
        relay.head_since = is_head.then(|| relay.head_since.unwrap_or(self.now));
        match step {
            ClientStep::NeedMore if is_all && (!bytes.is_empty() || relay.session.is_in_request()) => {
                Err(End::Unfinished)
            }
            ClientStep::NeedMore | ClientStep::Wait => Ok(false),
            ClientStep::End => {
                // Nobody wants what else has come, and a socket that is closed on it would be reset before the client has read all.
                let bytes = client.bytes().len();
                self.drop_from(relay.token, bytes);
                Ok(false)
            }
            ClientStep::Choose(facts) => {
                let Some(chosen) = self.ports.choose(relay, facts.as_ref(), self.now) else { return Ok(false) };
                self.begin_request(relay, chosen)
            }
            ClientStep::ChooseGathered(gathered) => {
                let facts = gathered.facts();
                let Some(chosen) = self.ports.choose(relay, Some(&facts), self.now) else { return Ok(false) };
                self.begin_request(relay, chosen)
            }
            ClientStep::Open => {
                let Some(port) = self.ports.ports.get_mut(&relay.site) else { return Err(End::NoNode) };
                let chosen = port.choose(None, self.now);
                let opened = chosen.and_then(|node| self.open_leg(relay, node, None)).map(|_| true);
                or_refused(relay, opened)
            }
            ClientStep::Forward(leg, bytes) => {
                let Some(to) = relay.legs[leg].as_mut() else { return Err(End::NodeGone) };
                let room = self.streams.get(to.stream).map_or(0, |stream| stream.room());
                let bytes = bytes.min(room);
                to.has_heard |= bytes > 0;
                self.streams.pass(&mut self.reactor, relay.token, to.stream, bytes);
                relay.session.took(bytes);
                relay.received_bytes += bytes as u64;
                Ok(bytes > 0)
            }
            ClientStep::Instead(leg, bytes, words) => self.say_instead(relay, leg, bytes, &words),
            ClientStep::Everywhere(bytes) => Ok(self.say_everywhere(relay, bytes)),
            ClientStep::Drop(bytes) => {
                self.drop_from(relay.token, bytes);
                relay.session.took(bytes);
                relay.received_bytes += bytes as u64;
                Ok(true)
            }
        }
    }

    /// Says something else to a node than so many bytes of the client's. False if it must wait.
    fn say_instead(&mut self, relay: &mut Relay, leg: Leg, bytes: usize, words: &[u8]) -> Result<bool, End> {
        let Some(to) = relay.legs[leg].as_mut() else { return Err(End::NodeGone) };
        let Some(stream) = self.streams.get(to.stream) else { return Err(End::NodeGone) };
        if stream.room() < words.len() {
            return Ok(false);
        }
        to.has_heard = true;
        stream.outbox().extend_from_slice(words);
        relay.session.took_instead(leg, bytes);
        self.drop_from(relay.token, bytes);
        relay.received_bytes += bytes as u64;
        Ok(true)
    }

    /// Says so many bytes of the client's to all nodes that it has. False if they must wait.
    fn say_everywhere(&mut self, relay: &mut Relay, bytes: usize) -> bool {
        let streams: Vec<Token> = relay.open_legs().map(|(_, to)| to.stream).collect();
        if streams.iter().any(|&stream| self.streams.get(stream).is_none_or(|stream| stream.room() < bytes)) {
            return false;
        }
        let Some(client) = self.streams.get(relay.token) else { return false };
        let said = client.bytes()[..bytes].to_vec();
        relay.legs.iter_mut().flatten().for_each(|to| to.has_heard = true);
        for stream in streams {
            if let Some(stream) = self.streams.get(stream) {
                stream.outbox().extend_from_slice(&said);
            }
        }
        relay.session.took_everywhere(&said);
        self.drop_from(relay.token, bytes);
        relay.received_bytes += bytes as u64;
        true
    }

    fn drop_from(&mut self, stream: Token, bytes: usize) {
        if let Some(stream) = self.streams.get(stream) {
            stream.take(&mut self.reactor, bytes);
        }
    }

    /// Gives a request that begins to its node. False if it must wait.
    fn begin_request(&mut self, relay: &mut Relay, chosen: Result<Chosen, End>) -> Result<bool, End> {
        let begun = chosen.and_then(|chosen| self.begin_at(relay, chosen));
        or_refused(relay, begun)
    }

    fn begin_at(&mut self, relay: &mut Relay, Chosen { node, wanted }: Chosen) -> Result<bool, End> {
        // Two are the same node's where one took the place of another that couldn't be reached. What one has been asked comes before what follows.
        let mut known = None;
        let mut are_asked = 0;
        for (leg, _) in relay.legs_to(node) {
            let is_asked = relay.session.is_needed(leg);
            are_asked += usize::from(is_asked);
            if is_asked || known.is_none() {
                known = Some(leg);
            }
        }
        if are_asked > 1 && relay.session.answers_in_order() {
            return Ok(false);
        }
        let leg = match known {
            Some(leg) => {
                // If that can't be reached, another takes all that it was to be asked, which must be one thing.
                if let (Some(wanted), Some(to)) = (wanted, &mut relay.legs[leg])
                    && to.connect_by.is_some()
                    && *to.wanted.get_or_insert_with(|| wanted.clone()) != wanted
                {
                    return Ok(false);
                }
                leg
            }
            None => self.open_leg(relay, node, wanted)?,
        };
        // One that couldn't be reached has given its place to another.
        let node = relay.legs[leg].as_ref().map_or(node, |to| to.node);
        if relay.session.assign(leg)
            && let Some(port) = self.ports.ports.get_mut(&relay.site)
        {
            port.dispatcher.begin(node);
        }
        Ok(true)
    }

    /// Says to the client what is to be said here. Whether there was something.
    fn give_own_words(&mut self, relay: &mut Relay) -> bool {
        let Some(client) = self.streams.get(relay.token) else { return false };
        let mut was_any = false;
        while client.room() > 0
            && let Some(words) = relay.session.own_words()
        {
            client.outbox().extend_from_slice(&words);
            relay.sent_bytes += words.len() as u64;
            was_any = true;
        }
        was_any
    }

    /// One step with what a node says. Whether it changed anything.
    fn step_node(&mut self, relay: &mut Relay, leg: Leg) -> Result<bool, End> {
        let Some(to) = relay.legs[leg].as_mut() else { return Ok(false) };
        let (token, node) = (to.stream, to.node);
        let Some(stream) = self.streams.get(token) else { return Err(End::NodeGone) };
        if stream.is_connecting() {
            return Ok(false);
        }
        if stream.is_lost_untold() && stream.bytes().is_empty() && !to.has_spoken {
            return self.try_another(relay, leg).map(|()| true);
        }
        to.connect_by = None;
        to.has_spoken |= !stream.bytes().is_empty();
        let is_finished = to.finished;
        let (has_ended, is_broken) = (stream.has_ended(), stream.is_gone());
        match relay.session.node_step(leg, stream.bytes())? {
            NodeStep::Give(bytes) => {
                let room = self.streams.get(relay.token).map_or(0, |client| client.room());
                let bytes = bytes.min(room);
                self.streams.pass(&mut self.reactor, token, relay.token, bytes);
                relay.sent_bytes += bytes as u64;
                self.gave(relay, leg, node, bytes);
                Ok(bytes > 0)
            }
            NodeStep::Drop(bytes) => {
                self.drop_from(token, bytes);
                self.gave(relay, leg, node, bytes);
                Ok(true)
            }
            NodeStep::NotItsTurn => Ok(false),
            NodeStep::NeedMore if is_broken && relay.session.is_needed(leg) => Err(End::NodeGone),
            NodeStep::NeedMore if has_ended && !relay.session.is_passing() => {
                if relay.session.is_needed(leg) {
                    // Told that the client has ended, it gives up what the client waited for.
                    return Err(if is_finished { End::ClientGone } else { End::NodeGone });
                }
                // Between requests it may: the next one is told by another stream. If it has said so before, it may leave requests unanswered.
                if let Some(port) = self.ports.ports.get_mut(&relay.site) {
                    (0..relay.session.owed(leg)).for_each(|_| port.request_ended(node, Outcome::Unknown, self.now));
                }
                relay.session.close(leg);
                relay.legs[leg] = None;
                self.close_stream(token);
                Ok(true)
            }
            NodeStep::NeedMore => Ok(false),
        }
    }

    fn gave(&mut self, relay: &mut Relay, leg: Leg, node: NodeId, bytes: usize) {
        if relay.session.gave(leg, bytes)
            && let Some(port) = self.ports.ports.get_mut(&relay.site)
        {
            port.request_ended(node, Outcome::Served, self.now);
        }
    }

    /// Passes ends on: a side that says no more is one thing, and one that hears no more another.
    fn settle_ends(&mut self, relay: &mut Relay) -> Result<(), End> {
        let is_passing = relay.session.is_passing();
        let Some(client) = self.streams.get(relay.token) else { return Err(End::ClientGone) };
        let client_is_done = client.has_ended() && client.bytes().is_empty();
        let client_is_flushed = client.is_flushed();
        if !is_passing {
            // An answer that waits for what others do isn't wanted without end: the node is told that its client has ended.
            if client_is_done
                && let Some(to) = relay.session.awaited().and_then(|leg| relay.legs[leg].as_mut())
                && let Some(stream) = self.streams.get(to.stream)
                && !std::mem::replace(&mut to.finished, true)
            {
                stream.finish(&mut self.reactor);
            }
            let is_over = client_is_done || relay.session.has_said_goodbye();
            let is_done = is_over && relay.session.is_idle() && client_is_flushed;
            return if is_done { Err(relay.session.mistake().map_or(End::Done, End::Told)) } else { Ok(()) };
        }
        let Some(to) = relay.legs.iter_mut().flatten().next() else { return Err(End::NodeGone) };
        let Some(stream) = self.streams.get(to.stream) else { return Err(End::NodeGone) };
        if client_is_done && !std::mem::replace(&mut to.finished, true) {
            stream.finish(&mut self.reactor);
        }
        let node_is_done = stream.has_ended() && stream.bytes().is_empty();
        let is_flushed = stream.is_flushed();
        if node_is_done
            && !std::mem::replace(&mut relay.finished, true)
            && let Some(client) = self.streams.get(relay.token)
        {
            client.finish(&mut self.reactor);
        }
        if client_is_done && node_is_done && is_flushed && client_is_flushed { Err(End::Done) } else { Ok(()) }
    }
}
