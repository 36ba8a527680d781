//! Links: sessions between home and node over streams of the worker's. A node connects to its homes and tries again with growing pauses; a
//! home listens. Nodes behind fronts connect to these and to the nodes before them, and listen for the others. What the messages mean is the
//! handoff's business.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use leat_host::reactor::{Listener as ListeningSocket, Peer, Reactor, Socket, Token};
use leat_host::{process, socket};
use leat_logic::handoff::limits::LINK_OUTBOX_BYTES_AMPLE;
use leat_logic::handoff::{LinkError, LinkSession, Message, ServerId, SessionId};
use leat_logic::time::Instant;

use super::super::stream::Owner;
use super::super::{Host, LINK_LISTENER_INDEX, Worker};
use super::lull::Lull;
use super::node::Borrowed;
use super::shared::set_nodes;
use super::told::Batch;
use super::{Part, number_of};

/// After a link that failed the next is tried, each time twice as late.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Clients wait for a dispatcher's links when it has come back.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Links that haven't shown yet that they know the key: so many from the cluster's machines, and so many from elsewhere.
const UNPROVED_MAX: usize = 64;

/// All links of a worker.
#[derive(Default)]
pub(super) struct Links {
    sessions: BTreeMap<SessionId, Link>,
    next_session: u64,
    /// Those to which there are to be links, and when to try each.
    homes: BTreeMap<Place, Sought>,
    /// Where each server's first worker listens: the others' ports follow, by their numbers.
    addresses: Vec<SocketAddr>,
    /// Keeps the socket open.
    listeners: Vec<OwnedFd>,
    /// Numbers of nodes that a reload has given to other machines: those that had them may still be there.
    pub(super) replaced: BTreeSet<u32>,
    /// Places of listeners where accepting has failed.
    unawaited: Vec<usize>,
}

/// Whom a link leads to: the place of a server's address, and the number of its worker.
pub(super) type Place = (usize, u16);

struct Link {
    stream: Token,
    session: LinkSession,
    /// Whence it has come, if it was accepted.
    from: Option<IpAddr>,
    /// The cluster has no machine of that address: it may have another that the file doesn't name, or be somebody else's.
    is_strange: bool,
    /// Whether the machine knows of it.
    is_open: bool,
    /// Whether something has been said by it: who doesn't want it ends it without a word.
    is_heard: bool,
    /// The place in `homes`.
    home: Option<Place>,
    /// Batches of messages that have been made, and up to which the kernel has them.
    batches: Batch,
    flushed: Batch,
    lull: Lull,
}

struct Sought {
    session: Option<SessionId>,
    try_at: Instant,
    pause: Duration,
}

impl Sought {
    /// An attempt has failed, or a link has ended: when the next is made.
    fn put_off(&mut self, now: Instant) {
        self.try_at = now.after(self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

impl Links {
    /// Has links made to the servers at these addresses.
    pub(super) fn seek(&mut self, addresses: impl Iterator<Item = IpAddr>, port: u16, now: Instant) {
        self.addresses = addresses.map(|address| SocketAddr::new(address, port)).collect();
        (0..self.addresses.len()).for_each(|server| self.set_homes(server, &[], now));
    }

    /// Has links made to these of a server's workers, and always to the first, which says which others there are.
    pub(super) fn set_homes(&mut self, server: usize, numbers: &[u16], now: Instant) {
        self.homes.retain(|(place, number), home| {
            *place != server || *number == 0 || home.session.is_some() || numbers.contains(number)
        });
        for &number in numbers.iter().chain(&[0]) {
            self.homes.entry((server, number)).or_insert(Sought { session: None, try_at: now, pause: PAUSE_MIN });
        }
    }

    /// Has no links made any more but to the first so many servers.
    pub(super) fn seek_only(&mut self, servers: usize) {
        self.homes.retain(|(server, _), _| *server < servers);
    }

    /// Has no links made any more. Those that there are, and are to end.
    pub(super) fn seek_none(&mut self) -> Vec<SessionId> {
        self.seek_only(0);
        self.sessions.keys().copied().collect()
    }

    /// Has nobody make links any more. The sockets are still with the reactor.
    pub(super) fn take_listeners(&mut self) -> Vec<OwnedFd> {
        self.unawaited.clear();
        std::mem::take(&mut self.listeners)
    }

    fn address_of(&self, (server, number): Place) -> Option<SocketAddr> {
        let first = self.addresses.get(server)?;
        Some(SocketAddr::new(first.ip(), first.port().checked_add(number)?))
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        let homes = self.homes.values().filter(|home| home.session.is_none()).map(|home| home.try_at);
        let sessions = self.sessions.values().map(|link| link.session.poll_timeout().min(link.lull.poll_timeout()));
        homes.chain(sessions).min().unwrap_or(Instant::NEVER)
    }

    /// Whether so much waits for some peer that what nobody waits for isn't to be added.
    pub(super) fn are_loaded(&self) -> bool {
        self.sessions.values().any(|link| link.session.waiting_bytes() > LINK_OUTBOX_BYTES_AMPLE)
    }

    /// With which of a link's batches goes what is queued now.
    pub(super) fn next_batch(&self, session: SessionId) -> Option<Batch> {
        self.sessions.get(&session).map(|link| link.batches + 1)
    }

    /// Up to which of a link's batches the kernel has all.
    pub(super) fn flushed_batch(&self, session: SessionId) -> Option<Batch> {
        self.sessions.get(&session).map(|link| link.flushed)
    }

    /// The servers from this place on are at these addresses from the next link on.
    pub(super) fn move_to(&mut self, first: usize, addresses: impl Iterator<Item = IpAddr>) {
        self.addresses.iter_mut().skip(first).zip(addresses).for_each(|(known, address)| known.set_ip(address));
    }

    /// Links to nodes of these numbers.
    pub(super) fn sessions_of(&self, numbers: &[u32]) -> Vec<SessionId> {
        let is_of = |link: &Link| link.session.peer().is_some_and(|peer| numbers.contains(&peer.server()));
        self.sessions.iter().filter(|(_, link)| is_of(link)).map(|(&session, _)| session).collect()
    }

    fn of_stream(&self, stream: Token) -> Option<SessionId> {
        self.sessions.iter().find(|(_, link)| link.stream == stream).map(|(&session, _)| session)
    }

    fn add(&mut self, stream: Token, session: LinkSession, home: Option<Place>) -> SessionId {
        self.next_session += 1;
        let id = SessionId(self.next_session);
        let link = Link {
            stream,
            session,
            from: None,
            is_strange: false,
            is_open: false,
            is_heard: false,
            home,
            batches: 0,
            flushed: 0,
            lull: Lull::default(),
        };
        self.sessions.insert(id, link);
        id
    }

    /// Room for one more that is accepted: nobody else keeps the cluster's machines from it, and among others the newest has it. The one that ends for it.
    fn make_room(&self, is_strange: bool) -> Result<Option<SessionId>, io::Error> {
        let is_such = |link: &Link| !link.is_open && link.home.is_none() && link.is_strange == is_strange;
        let mut unproved = self.sessions.iter().filter(|(_, link)| is_such(link)).map(|(&session, _)| session);
        let oldest = unproved.next();
        match 1 + unproved.count() {
            ..UNPROVED_MAX => Ok(None),
            _ if is_strange => Ok(oldest),
            _ => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }
}

fn await_links<R: Reactor>(reactor: &mut R, listener: &OwnedFd, place: usize) {
    let token = Token { index: LINK_LISTENER_INDEX, generation: place as u16 };
    reactor.await_connections(ListeningSocket(super::super::socket_of(listener).0), token);
}

impl<H: Host> Worker<H> {
    /// Accepts links at these addresses, or at all that there are: who doesn't know the key gets nowhere.
    pub(super) fn listen_for_links(&mut self, links: &mut Links, own: &[IpAddr], port: u16) -> Result<(), String> {
        let wide = [IpAddr::from(Ipv6Addr::UNSPECIFIED), IpAddr::from(Ipv4Addr::UNSPECIFIED)];
        let addresses = if own.is_empty() { &wide } else { own };
        // A machine without IPv6 can't listen on it.
        let listened: Vec<_> = addresses.iter().map(|&ip| socket::listen(SocketAddr::new(ip, port))).collect();
        if let (true, Some(Err(error))) = (listened.iter().all(Result::is_err), listened.last()) {
            return Err(format!("can't listen on port {port}: {error}"));
        }
        for listener in listened.into_iter().flatten() {
            await_links(&mut self.reactor, &listener, links.listeners.len());
            links.listeners.push(listener);
        }
        Ok(())
    }

    /// A node has connected.
    fn link_accepted(&mut self, socket: Socket) {
        let now = self.now;
        let from = self.reactor.peer(socket).map(|from| from.ip().to_canonical());
        let is_strange = !from.is_some_and(|from| self.config.cluster.has_machine(from));
        let session = match &mut self.cluster {
            Some(cluster) => cluster.links.make_room(is_strange).and_then(|ended| {
                let entropy = entropy()?;
                Ok((ended, LinkSession::accept(now, cluster.own, &cluster.key, entropy)))
            }),
            None => Err(io::ErrorKind::ConnectionRefused.into()),
        };
        let Ok((ended, Ok(session))) = session else {
            self.reactor.close(socket, true);
            return;
        };
        ended.into_iter().for_each(|ended| self.drop_session(ended));
        let stream = self.open_link(socket, false);
        if let Some(cluster) = &mut self.cluster {
            if let (Part::Home(_), Some(stream)) = (&cluster.part, self.streams.get(stream)) {
                stream.pace();
            }
            let id = cluster.links.add(stream, session, None);
            if let Some(link) = cluster.links.sessions.get_mut(&id) {
                (link.from, link.is_strange) = (from, is_strange);
            }
        }
    }

    /// Leases and words of connections mustn't wait behind the replies that fill this machine's link.
    fn open_link(&mut self, socket: Socket, connecting: bool) -> Token {
        if let Err(error) = socket::send_first(&Borrowed(socket)) {
            crate::log::warning(format_args!("a link's messages may wait behind replies: {error}"));
        }
        self.open_stream(socket, connecting, Owner::Link)
    }

    /// Nodes have connected: few do, and what a link costs is nobody's share.
    pub(in crate::worker) fn links_wait(&mut self, token: Token) {
        let place = usize::from(token.generation);
        let listener = self.cluster.as_ref().and_then(|cluster| cluster.links.listeners.get(place));
        let Some(listener) = listener.map(|listener| ListeningSocket(super::super::socket_of(listener).0)) else {
            return;
        };
        for _ in 0..UNPROVED_MAX {
            match self.reactor.accept(listener) {
                Ok(Some(socket)) => self.link_accepted(socket),
                Ok(None) => break,
                Err(_) => {
                    // No descriptors, say: at once it would fail again.
                    if let Some(cluster) = &mut self.cluster {
                        cluster.links.unawaited.push(place);
                    }
                    return;
                }
            }
        }
        self.reactor.await_connections(listener, token);
    }

    /// Once a second: where accepting has failed, it's tried again.
    pub(in crate::worker) fn await_links_again(&mut self) {
        let Some(cluster) = &mut self.cluster else { return };
        for place in std::mem::take(&mut cluster.links.unawaited) {
            await_links(&mut self.reactor, &cluster.links.listeners[place], place);
        }
    }

    /// Something has come by a link, or it can be sent on, or it has ended.
    pub(in crate::worker) fn link_news(&mut self, stream: Token) {
        let Some(id) = self.cluster.as_ref().and_then(|cluster| cluster.links.of_stream(stream)) else { return };
        if let Err(error) = self.hear_link(id) {
            self.tell_end(id, error);
            self.drop_session(id);
        }
        self.listen_on(id);
        self.run_effects();
    }

    /// Receives what comes next by a link, at once or when its lull is over. Where much has come, as while this process stood still, it's read on: leases
    /// may hang on what it says.
    fn listen_on(&mut self, id: SessionId) {
        let Some(link) = self.cluster.as_mut().and_then(|cluster| cluster.links.sessions.get_mut(&id)) else { return };
        if let Some(stream) = self.streams.get(link.stream).filter(|stream| stream.is_paced())
            && (stream.has_plenty() || !link.lull.begins(self.now))
        {
            stream.go_on(&mut self.reactor);
        }
    }

    fn hear_link(&mut self, id: SessionId) -> Result<(), LinkError> {
        loop {
            // Before each word of a node's that has come by now.
            self.read_begun();
            let Some(cluster) = &mut self.cluster else { return Ok(()) };
            let Some(link) = cluster.links.sessions.get_mut(&id) else { return Ok(()) };
            let Some(stream) = self.streams.get(link.stream) else { return Err(LinkError::Ended) };
            let (came, ended) = (!stream.bytes().is_empty(), stream.has_ended());
            let taken = link.session.handle_input(stream.bytes())?;
            stream.take(&mut self.reactor, taken);
            if !link.is_open
                && let Some(peer) = link.session.peer()
            {
                if let Some(node) = link.from.and_then(|from| self.config.cluster.node_at(from))
                    && number_of(node) != peer.server()
                {
                    let name = self.config.cluster.nodes[node].name.clone();
                    if self.shared.is_news(format!("{name} misplaced"), true) {
                        crate::log::warning(format_args!(
                            "node {name} isn't linked: it says that it's the {}. in [[cluster.node]], and here it's the {}.: upgrade (SIGUSR2) or start \
                             anew both with the same file",
                            peer.server(),
                            number_of(node)
                        ));
                    }
                    self.drop_session(id);
                    return Ok(());
                }
                if link.is_strange && cluster.links.replaced.contains(&peer.server()) {
                    // Its packets go to the other by now.
                    if let (Some(from), number) = (link.from, peer.server())
                        && self.shared.is_news(format!("{from} replaced"), true)
                    {
                        crate::log::warning(format_args!(
                            "{from} isn't linked as the {number}. of [[cluster.node]]: since the last reload that has other addresses"
                        ));
                    }
                    self.drop_session(id);
                    return Ok(());
                }
                link.is_open = true;
                if let Some(from) = link.from {
                    self.shared.is_news(unproved(from), false);
                }
                cluster.part.connected(self.now, peer, id, link.home.map(|(server, _)| server));
                if let Some(steering) = cluster.part.steering().filter(|_| self.shared.is_way_lost()) {
                    set_nodes(steering, &self.config, &self.shared);
                }
            }
            let mut has_message = false;
            while let Some(message) = link.session.poll_message()? {
                has_message = true;
                if !std::mem::replace(&mut link.is_heard, true)
                    && let Some((place, _)) = link.home
                    && let Some(home) = link.home.and_then(|home| cluster.links.homes.get_mut(&home))
                {
                    home.pause = PAUSE_MIN;
                    self.shared.is_news(unwanted(place), false);
                }
                link.lull.saw(&message, self.now);
                // What is granted counts from now on: the node may have asked for it since this turn began.
                let now = if matches!(message, Message::Heartbeat { .. }) { self.host.now() } else { self.now };
                if let Some(peer) = link.session.peer() {
                    cluster.part.handle_message(now, peer, id, message);
                }
            }
            if !came || taken == 0 && !has_message {
                return if ended { Err(LinkError::Ended) } else { Ok(()) };
            }
        }
    }

    fn tell_end(&self, id: SessionId, error: LinkError) {
        let Some(cluster) = &self.cluster else { return };
        let Some(link) = cluster.links.sessions.get(&id) else { return };
        let home = link.home.and_then(|home| Some((cluster.links.address_of(home)?, cluster.links.homes.get(&home)?)));
        match home {
            // Said once, and not with each attempt.
            Some((_, home)) if !link.is_open && home.pause > PAUSE_MIN => {}
            Some((address, _)) if !link.is_open => {
                crate::log::info(format_args!("no link to {address} yet: {error}; it's tried again"));
            }
            Some((address, _)) if !link.is_heard => {
                if link.home.is_some_and(|(place, _)| self.shared.is_news(unwanted(place), true)) {
                    crate::log::warning(format_args!(
                        "{address} ends each link as soon as it's made, and its log says why; it's tried again"
                    ));
                }
            }
            Some((address, _)) => crate::log::warning(format_args!("the link to {address} is down: {error}")),
            None if link.is_open => crate::log::warning(format_args!("a link is down: {error}")),
            // Anybody can connect, and as often as they like: each is told once.
            None => match link.from {
                Some(from) if self.shared.is_news(unproved(from), true) => {
                    crate::log::warning(format_args!("no link from {from}: {error}"));
                }
                _ => {}
            },
        }
    }

    /// A node's worker has let its lease run out, and its link ends. That it's down is said only where no other worker of that node has one; then whatever was
    /// proxied to it is asked of others too.
    pub(super) fn lapsed(&mut self, server: ServerId) {
        let config = self.config.clone();
        let mut nodes = config.cluster.nodes.iter().enumerate();
        let Some((_, node)) = nodes.find(|(place, _)| number_of(*place) == server.server()) else { return };
        if self.shared.is_lapse_to_tell(server, self.now) {
            crate::log::warning(format_args!(
                "node {}: its lease has run out, as it, its machine or this one stood still: its connections go on elsewhere",
                node.name
            ));
        }
        let Some(Part::Home(home)) = self.cluster.as_ref().map(|cluster| &cluster.part) else { return };
        if !home.linked.keys().any(|known| known.server() == server.server() && *known != server) {
            self.give_up_peer(|peer| node.address.contains(&peer.to_canonical()));
        }
    }

    pub(super) fn send_message(&mut self, session: SessionId, message: &Message) {
        let Some(cluster) = &mut self.cluster else { return };
        let Some(link) = cluster.links.sessions.get_mut(&session) else { return };
        link.lull.saw(message, self.now);
        if let Err(error) = link.session.queue(message) {
            crate::log::warning(format_args!("a link has ended: {error}"));
            self.drop_session(session);
        }
    }

    /// Sends what waits, at each turn's end: its messages share a write, and wake their reader once. What has lain long enough is received.
    pub(in crate::worker) fn flush_links(&mut self) {
        let Some(cluster) = &mut self.cluster else { return };
        let mut failed = Vec::new();
        for (&id, link) in &mut cluster.links.sessions {
            let Some(stream) = self.streams.get(link.stream) else { continue };
            if link.lull.ends(self.now) {
                stream.go_on(&mut self.reactor);
            }
            if stream.is_flushed() {
                link.flushed = link.batches;
                match link.session.poll_output(stream.outbox()) {
                    Ok(()) => stream.flush(&mut self.reactor),
                    Err(_) => failed.push(id),
                }
                link.batches += 1;
                link.flushed += u64::from(stream.is_flushed());
            }
        }
        failed.into_iter().for_each(|id| self.drop_session(id));
        self.queue_turns();
        self.send_told();
    }

    pub(super) fn end_session(&mut self, session: SessionId) {
        self.drop_session(session);
    }

    /// Nobody makes links to this worker any more.
    pub(super) fn refuse_links(&mut self) {
        let Some(cluster) = &mut self.cluster else { return };
        for (place, listener) in cluster.links.take_listeners().iter().enumerate() {
            let token = Token { index: LINK_LISTENER_INDEX, generation: place as u16 };
            self.reactor.stop_awaiting_connections(ListeningSocket(super::super::socket_of(listener).0), token);
        }
    }

    /// Has no links any more.
    pub(super) fn end_links(&mut self) {
        self.refuse_links();
        let Some(cluster) = &mut self.cluster else { return };
        cluster.links.seek_none().into_iter().for_each(|session| self.end_session(session));
    }

    /// A worker ends whose process goes on: without this its links would stay open for as long as that, and others would wait for what it never says.
    pub(in crate::worker) fn leave_links(&mut self) {
        let Some(cluster) = self.cluster.as_mut().filter(|_| self.retiring.is_some()) else { return };
        if let Part::Home(home) = &mut cluster.part {
            // That their links end is no news.
            home.linked.clear();
        }
        self.end_links();
    }

    /// A session is over, for whatever reason. A node looks for its home again.
    fn drop_session(&mut self, id: SessionId) {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return };
        let Some(link) = cluster.links.sessions.remove(&id) else { return };
        if let Some(home) = link.home.and_then(|home| cluster.links.homes.get_mut(&home)) {
            home.session = None;
            home.put_off(now);
        }
        if link.is_open {
            cluster.part.disconnected(now, link.session.peer(), id);
        }
        let has_another = |peer: &ServerId| {
            cluster.links.sessions.values().any(|link| link.is_open && link.session.peer() == Some(*peer))
        };
        let left = link.session.peer().filter(|peer| matches!(cluster.part, Part::Front(_)) && !has_another(peer));
        self.close_stream(link.stream);
        if let Some(peer) = left {
            self.node_drains(peer, None);
        }
    }

    /// Links that take too long, and homes that are to be tried.
    pub(super) fn handle_link_timeout(&mut self) {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return };
        let late = |link: &mut Link| link.session.handle_timeout(now).is_err();
        let late: Vec<_> =
            cluster.links.sessions.iter_mut().filter_map(|(&id, link)| late(link).then_some(id)).collect();
        late.into_iter().for_each(|id| self.drop_session(id));
        let due = |(&place, home): (&Place, &Sought)| (home.session.is_none() && home.try_at <= now).then_some(place);
        let due: Vec<Place> =
            self.cluster.iter().flat_map(|cluster| cluster.links.homes.iter().filter_map(due)).collect();
        for home in due {
            if let Err(error) = self.connect_link(home) {
                crate::log::warning(format_args!("a link can't be made: {error}"));
                let homes = self.cluster.as_mut().map(|cluster| &mut cluster.links.homes);
                homes.and_then(|homes| homes.get_mut(&home)).into_iter().for_each(|home| home.put_off(now));
            }
        }
    }

    fn connect_link(&mut self, place: Place) -> Result<(), String> {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return Ok(()) };
        let Some(address) = cluster.links.address_of(place) else { return Ok(()) };
        let entropy = entropy().map_err(|error| error.to_string())?;
        let session =
            LinkSession::connect(now, cluster.own, &cluster.key, entropy).map_err(|error| error.to_string())?;
        let socket = self.reactor.connect(&Peer::Internet(address)).map_err(|error| format!("{address}: {error}"))?;
        let stream = self.open_link(socket, true);
        if let Some(cluster) = &mut self.cluster {
            let id = cluster.links.add(stream, session, Some(place));
            if let Some(home) = cluster.links.homes.get_mut(&place) {
                home.session = Some(id);
            }
        }
        Ok(())
    }
}

impl Part {
    /// `place`: of the server, if it was sought.
    fn connected(&mut self, now: Instant, peer: ServerId, session: SessionId, place: Option<usize>) {
        match self {
            Part::Home(home) => home.connected(peer, session),
            Part::Node(node) => node.connected(now, peer, session),
            Part::Peer(node) => node.connected(now, peer, session, place),
            Part::Front(front) => front.connected(now, session, peer),
        }
    }

    fn disconnected(&mut self, now: Instant, peer: Option<ServerId>, session: SessionId) {
        match self {
            Part::Home(home) => home.disconnected(now, peer, session),
            Part::Node(node) => node.disconnected(peer, session),
            Part::Peer(node) => node.disconnected(now, peer, session),
            Part::Front(front) => front.disconnected(now, session),
        }
    }

    fn handle_message(&mut self, now: Instant, peer: ServerId, session: SessionId, message: Message) {
        match self {
            Part::Home(home) => home.flows.handle_message(now, session, message),
            Part::Node(node) => node.handle_message(now, peer, session, message),
            Part::Peer(node) => node.flows.handle_message(now, session, message),
            Part::Front(front) => front.handle_message(now, session, message),
        }
    }
}

/// What was told of who connects and doesn't know the key.
fn unproved(from: IpAddr) -> String {
    format!("{from} unproved")
}

/// What was told of a server, by its place, that ends links.
fn unwanted(place: usize) -> String {
    format!("{place} unwanted")
}

fn entropy() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    process::fill_random(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_fails_is_tried_each_time_twice_as_late_and_soon_enough_for_clients() {
        let start = Instant::default();
        let mut sought = Sought { session: None, try_at: start, pause: PAUSE_MIN };
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let now = sought.try_at;
            sought.put_off(now);
            pauses.push(sought.try_at.since(now).as_millis());
        }
        assert_eq!(pauses, [50, 100, 200, 400, 500, 500]);
    }
}
