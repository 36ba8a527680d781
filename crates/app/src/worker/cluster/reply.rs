//! Replies under way: what is left of one goes along with its connection as runs of its content, and whoever has that content under an equal
//! strong tag goes on with it; nobody else does. The home is told of long ones as they begin, in case this node dies.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use leat_host::handoff;
use leat_host::reactor::{Reactor, Token, Transmit};
use leat_host::storage::limits::READ_BYTES_MAX;
use leat_host::storage::{Outcome, Payer, Storage};
use leat_logic::handoff::{FlowId, Image, Node, Piece as Left, Progress, RefuseReason, ReplyState, SessionId};
use leat_logic::http::{self, EntityTag, Method, Status};
use leat_logic::serve::cache::Lookup;
use leat_logic::serve::coding::{Coding, CodingOrder};
use leat_logic::serve::path::LoadRequest;
use leat_logic::serve::resource::{Content, Description, Found, Resource};
use leat_logic::time::Instant;

use super::super::exchange::{Answer, Exchange, Piece};
use super::super::serve::is_by_rules_of;
use super::super::{ARRIVALS_INDEX, File, Host, Stage, Worker, ticket_of};
use super::Part;
use super::flows::{http_state, refused};
use super::told::Ready;

/// Replies with less content aren't told of, but for a connection server: they are over before a death would be noticed.
const TOLD_BYTES_MIN: u64 = 64 * 1024;

/// A reply that nobody else could make, such as a program's, is told of as it stands if it's no longer than this, head included: longer ones would have
/// content pass the dispatcher.
pub(in crate::worker) const TOLD_AS_IT_STANDS_BYTES_MAX: usize = 4096;

/// So long a client whose server is dead waits for another to hash what it was sent, as long as that has no tag there; looked at so often.
const TAG_WITHIN: Duration = Duration::from_secs(20);
const TAG_PAUSE: Duration = Duration::from_millis(100);

/// Flows that have come with a reply under way, while their content is looked for.
pub(super) struct Arrivals<F> {
    all: BTreeMap<u16, Arrival<F>>,
    next: u16,
    /// When it's looked again whether content has a tag by now.
    at: Instant,
}

struct Arrival<F> {
    flow: FlowId,
    image: Image,
    reply: ReplyState,
    site: u32,
    request: LoadRequest,
    resource: Option<Arc<Resource<F>>>,
    /// What the client may have already: the beginning of what is left.
    resent: Vec<u8>,
    /// Until when it may wait for its content to have a tag, and whether it does.
    tag_by: Instant,
    awaits_tag: bool,
}

impl<F> Default for Arrivals<F> {
    fn default() -> Arrivals<F> {
        Arrivals { all: BTreeMap::new(), next: 0, at: Instant::NEVER }
    }
}

impl<F> Arrivals<F> {
    /// Drops what has come of a flow.
    pub(super) fn remove(&mut self, flow: FlowId) {
        self.all.retain(|_, arrival| arrival.flow != flow);
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        self.at
    }
}

/// What is left of a reply, behind what the kernel has of it; `None` for one that can't go on elsewhere, or hasn't begun.
pub(super) fn left_of<F>(exchange: &Exchange<F>) -> Option<ReplyState> {
    let content = match &exchange.resource.as_ref()?.content {
        Content::Memory(content) => &content[..],
        Content::File(_) => &[],
    };
    let left = |piece: &Piece<F>| match piece {
        Piece::Bytes { bytes, done } => run_of(content, &bytes[*done..]),
        Piece::File { offset, end, .. } => Left::Content { first: *offset, length: end - offset },
    };
    reply_of(exchange, || exchange.pieces.iter().map(left).collect())
}

/// Bytes that are some of the content's own are a run of it.
fn run_of(content: &[u8], bytes: &[u8]) -> Left {
    match bytes.as_ptr().addr().checked_sub(content.as_ptr().addr()) {
        Some(first) if first < content.len() && !bytes.is_empty() => {
            Left::Content { first: first as u64, length: bytes.len() as u64 }
        }
        _ => Left::Literal(bytes.to_vec()),
    }
}

/// A reply that consists of these pieces; `None` for one that can't go on elsewhere, or hasn't begun.
fn reply_of<F>(exchange: &Exchange<F>, pieces: impl FnOnce() -> Vec<Left>) -> Option<ReplyState> {
    if !exchange.can_go_on_elsewhere() {
        return None;
    }
    let (site, description) = (exchange.site.as_ref()?, &exchange.resource.as_ref()?.description);
    Some(ReplyState {
        site: site.name.clone(),
        path: exchange.path.clone(),
        coding: description.coding,
        etag: description.etag.as_ref()?.as_bytes().to_vec(),
        complete_length: description.len_bytes,
        status: exchange.status,
        content_bytes: exchange.body_bytes,
        pieces: pieces(),
        resend_bytes: 0,
    })
}

/// A reply that goes on as it stands, whoever sends it. A refusal is told of, too: whoever was refused asks again.
fn literal_reply<F>(exchange: &Exchange<F>, parts: &[&[u8]]) -> Option<ReplyState> {
    let (site, bytes) = (exchange.site.as_ref()?, as_it_stands(parts)?);
    Some(ReplyState {
        site: site.name.clone(),
        path: Vec::new(),
        coding: None,
        etag: Vec::new(),
        complete_length: 0,
        status: exchange.status,
        content_bytes: exchange.body_bytes,
        pieces: vec![Left::Literal(bytes)],
        resend_bytes: 0,
    })
}

/// All of a reply that is told of as it stands; `None` if it's too long for that.
fn as_it_stands(parts: &[&[u8]]) -> Option<Vec<u8>> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    (length <= TOLD_AS_IT_STANDS_BYTES_MAX).then(|| parts.concat())
}

/// A reply that another server has begun, with so much content; `None` for one that can't go on elsewhere.
fn fetched_reply<F>(exchange: &Exchange<F>, head: &[u8], lines: &[u8], length: u64) -> Option<ReplyState> {
    let etag = http::client::field(lines, b"etag").filter(|etag| EntityTag::is_strong(etag))?;
    let coding = match http::client::field(lines, b"content-encoding") {
        Some(name) => Some(Coding::ALL.into_iter().find(|coding| coding.name().as_bytes() == name)?),
        None => None,
    };
    let content_bytes = match exchange.method {
        Method::Get => length,
        Method::Head => 0,
        _ => return None,
    };
    let is_first = exchange.status == Status::OK.code() && exchange.pieces.is_empty() && exchange.error.is_none();
    is_first.then_some(ReplyState {
        site: exchange.site.as_ref()?.name.clone(),
        path: exchange.path.clone(),
        coding,
        etag: etag.to_vec(),
        complete_length: length,
        status: exchange.status,
        content_bytes,
        pieces: vec![Left::Literal(head.to_vec()), Left::Content { first: 0, length: content_bytes }],
        resend_bytes: 0,
    })
}

impl<H: Host> Worker<H> {
    /// A reply in pieces begins: the home is told of it, if it's long or all are told of, and if it can be made elsewhere.
    pub(in crate::worker) fn tell_of_reply(&mut self, token: Token) {
        let is_long = |exchange: &Exchange<File<H>>| exchange.body_bytes >= TOLD_BYTES_MIN;
        if self.connections[token].exchange.as_deref().is_some_and(is_long) || self.tells_all(token) {
            let reply = self.connections[token].exchange.as_deref().and_then(left_of);
            self.tell_reply(token, reply);
        }
    }

    /// A long reply has begun before its content had a tag, and it has one by now: the home is told of what is left.
    pub(in crate::worker) fn tell_when_tagged(&mut self, token: Token) {
        if !matches!(self.cluster.as_ref().map(|cluster| &cluster.part), Some(Part::Node(_))) {
            return;
        }
        let connection = &mut self.connections[token];
        let Some(exchange) = connection.exchange.as_mut().filter(|_| !connection.flags.sending) else { return };
        let Some(resource) = exchange.resource.as_ref().filter(|_| exchange.body_bytes >= TOLD_BYTES_MIN) else {
            return;
        };
        let (Content::File(file), None) = (&resource.content, &resource.description.etag) else { return };
        let Some(etag) = self.storage.tag(file).filter(|_| self.storage.unchanged(file)) else { return };
        let description = Description { etag: Some(etag), ..resource.description.clone() };
        // Its field lines have been sent.
        exchange.resource = Some(Arc::new(Resource::new(description, resource.content.clone(), &[])));
        let Some(mut reply) = left_of(exchange) else { return };
        // What the kernel has may never be acknowledged to this server. The last run of several is never the last piece.
        let unacknowledged = self.reactor.unacknowledged_bytes(connection.socket) as u64;
        let back = match &mut reply.pieces[..] {
            [Left::Content { first, length }] if unacknowledged <= reply.content_bytes.saturating_sub(*length) => {
                (*first, *length) = (first.saturating_sub(unacknowledged), *length + unacknowledged);
                unacknowledged
            }
            _ => 0,
        };
        self.tell_reply_from(token, Some(reply), Some(back));
    }

    /// The same of one that goes out whole: its head, and of the content of what it's made from so much. Its client is left with a connection that goes on if
    /// this server dies now.
    pub(in crate::worker) fn tell_of_whole_reply(
        &mut self,
        token: Token,
        head: &[u8],
        content: &[u8],
        run: Range<u64>,
    ) {
        if self.tells_all(token) {
            let Some(exchange) = self.connections[token].exchange.as_mut() else { return };
            let pieces =
                || vec![Left::Literal(head.to_vec()), Left::Content { first: run.start, length: run.end - run.start }];
            let reply = reply_of(exchange, pieces).or_else(|| literal_reply(exchange, &[head, content]));
            // All of it is about to be the reactor's: nothing of it could leave with the connection.
            exchange.resource = None;
            self.tell_reply(token, reply);
        }
    }

    /// The same of one that a program or another server has made, now that all of it is here. Some of it may have been sent.
    pub(in crate::worker) fn tell_of_made_reply(&mut self, token: Token, said: &[u8]) {
        if self.tells_all(token) && !self.is_telling(token) {
            let Some(exchange) = self.connections[token].exchange.as_deref() else { return };
            let unsent: u64 = exchange.pieces.iter().map(Piece::unsent).sum();
            if let Some(sent) = (said.len() as u64).checked_sub(unsent) {
                let reply = literal_reply(exchange, &[said]);
                self.tell_reply_from(token, reply, (sent > 0).then_some(sent));
            }
        }
    }

    /// The same of a whole file that another node of the cluster has begun to answer with: whoever has it under the tag that this one tells can go on
    /// too. `head`: all that is to be sent before its content. `lines`: the fields of the other one's reply.
    pub(in crate::worker) fn tell_of_fetched_reply(
        &mut self,
        token: Token,
        (head, lines): (&[u8], &[u8]),
        length: Option<u64>,
    ) {
        if length.is_some_and(|length| length >= TOLD_BYTES_MIN) || self.tells_all(token) {
            let exchange = self.connections[token].exchange.as_deref();
            let reply =
                exchange.zip(length).and_then(|(exchange, length)| fetched_reply(exchange, head, lines, length));
            self.tell_reply(token, reply);
        }
    }

    /// Whether a connection server has lent a connection.
    pub(in crate::worker) fn is_lent(&mut self, token: Token) -> bool {
        self.machine_of(token).is_some_and(|(flows, flow)| flows.is_lent(flow))
    }

    /// Whether a connection's home is told of all of its replies.
    pub(in crate::worker) fn tells_all(&mut self, token: Token) -> bool {
        self.machine_of(token).is_some_and(|(flows, flow)| flows.tells_all(flow))
    }

    fn machine_of(&mut self, token: Token) -> Option<(&mut Node, FlowId)> {
        let cluster = self.cluster.as_mut()?;
        let Part::Node(node) = &mut cluster.part else { return None };
        let flow = cluster.flows.at(token)?;
        node.of(flow).map(|flows| (flows, flow))
    }

    fn tell_reply(&mut self, token: Token, reply: Option<ReplyState>) {
        self.tell_reply_from(token, reply, None);
    }

    /// `back`: of one that has begun, what of it the kernel has.
    fn tell_reply_from(&mut self, token: Token, reply: Option<ReplyState>, back: Option<u64>) {
        if reply.is_some()
            && let Some(session) = self.tell_progress(token, reply, back)
            && let Some(cluster) = &mut self.cluster
            && let Some(batch) = cluster.links.next_batch(session)
        {
            cluster.told.add(token, session, batch);
        }
    }

    /// Whether a reply's home is still being told of it.
    pub(in crate::worker) fn is_telling(&mut self, token: Token) -> bool {
        self.cluster.as_mut().is_some_and(|cluster| cluster.told.knows(token))
    }

    /// Gives a whole reply to the reactor, or has it go out behind what homes are being told.
    pub(in crate::worker) fn give_to_reactor(&mut self, token: Token, transmit: Transmit) {
        let transmit = match &mut self.cluster {
            Some(cluster) => cluster.told.keep(token, transmit),
            None => Some(transmit),
        };
        if let Some(transmit) = transmit {
            self.reactor.send(self.connections[token].socket, token, transmit);
        }
    }

    /// A connection ends. Whether its whole reply waited for its home to be told.
    pub(in crate::worker) fn forget_told(&mut self, token: Token) -> bool {
        self.cluster.as_mut().is_some_and(|cluster| cluster.told.forget(token))
    }

    /// Homes have been told: what waited for that goes out.
    pub(super) fn send_told(&mut self) {
        let Some(cluster) = &mut self.cluster else { return };
        for ready in cluster.told.take_ready(|session| cluster.links.flushed_batch(session)) {
            let (Ready::Send(token, _) | Ready::Continue(token)) = ready;
            // A slot stays as long as something is being sent, whatever has become of the connection.
            let Some(connection) = self.connections.get(token) else { continue };
            match ready {
                Ready::Send(_, transmit) => self.reactor.send(connection.socket, token, transmit),
                Ready::Continue(_) => self.queue(Stage::Transmit, token),
            }
        }
    }

    /// Whether nobody has to be told any more before a reply's pieces are sent. If not, they're sent once its home has been told.
    pub(in crate::worker) fn has_told(&mut self, token: Token) -> bool {
        if self.is_telling(token) {
            self.flush_links();
        }
        !self.cluster.as_mut().is_some_and(|cluster| cluster.told.holds_up(token))
    }

    /// Has a connection's home know how far it has come, and what is to be sent. By which link it's told, if it is. `back`: of a reply that has begun, so many
    /// bytes that the kernel has are to be sent as well.
    pub(super) fn tell_progress(
        &mut self,
        token: Token,
        reply: Option<ReplyState>,
        back: Option<u64>,
    ) -> Option<SessionId> {
        let now = self.now;
        let cluster = self.cluster.as_mut()?;
        let Part::Node(node) = &mut cluster.part else { return None };
        let flow = cluster.flows.at(token)?;
        let connection = &self.connections[token];
        let input = connection.inbox.bytes(&self.reactor);
        let base = cluster.flows.base(flow);
        // The kernel needn't be asked if the request in hand came along and nothing has come since.
        let is_silent = connection.flags.once && connection.flags.receiving;
        let known =
            cluster.flows.come_with(flow, connection.http.request_count()).filter(|_| is_silent && back.is_none());
        let position = known.map_or_else(|| handoff::position(&super::node::Borrowed(connection.socket)), Ok).ok()?;
        let progress = Progress {
            server_bytes: position.written.saturating_sub(base.0).checked_sub(back.unwrap_or(0))?,
            acknowledged_bytes: position.acknowledged.saturating_sub(base.0),
            client_bytes: position.read.saturating_sub(base.1),
            http: http_state(connection, input, now),
            reply,
        };
        // One that is too large to be told isn't: it's cut if this node dies.
        let progress = progress.encode().ok()?;
        let home = node.home(flow.home)?;
        home.flows.began(flow, progress.into());
        let session = home.flows.session();
        self.run_effects();
        session
    }

    /// A flow comes with a reply under way: is its content here?
    pub(super) fn seek_content(&mut self, flow: FlowId, image: Image, reply: ReplyState) -> Result<(), RefuseReason> {
        let site = self.current.iter().map(|&number| &self.sites[number as usize]).find(|site| site.name == reply.site);
        let site = site.ok_or_else(|| refused(RefuseReason::Image, &"its site isn't here"))?;
        let codings = reply.coding.map_or(CodingOrder::NONE, |coding| CodingOrder::NONE.with(coding));
        let request = LoadRequest::new::<File<H>>(&site.files, &reply.path, codings);
        let request = request.map_err(|_| refused(RefuseReason::Image, &"its path names nothing here"))?;
        let site = site.number;
        let known = match self.cache.lookup(site, codings, &reply.path, self.now) {
            Lookup::Fresh(found) => Some(found.clone()),
            Lookup::Stale(..) | Lookup::Absent => None,
        };
        let Some(cluster) = &mut self.cluster else { return Err(RefuseReason::Absent) };
        let arrivals = &mut cluster.arrivals;
        arrivals.next = arrivals.next.wrapping_add(1);
        let number = arrivals.next;
        if arrivals.all.contains_key(&number) {
            return Err(RefuseReason::Full);
        }
        let (question, resource, resent) = (request.clone(), None, Vec::new());
        // Whoever lives goes on with it meanwhile, and is asked again.
        let is_givers = image.congestion.is_some();
        let tag_by = if is_givers { Instant::default() } else { self.now.after(TAG_WITHIN) };
        let awaits_tag = false;
        let arrival = Arrival { flow, image, reply, site, request, resource, resent, tag_by, awaits_tag };
        cluster.arrivals.all.insert(number, arrival);
        match known {
            Some(found) => self.arrival_found(number, Some(found)),
            None => self.load_arrival(number, site, question),
        }
        Ok(())
    }

    /// The storage has answered for an arrival.
    pub(in crate::worker) fn arrival_answered(&mut self, number: u16, answer: Answer<File<H>>) {
        let now = self.now;
        let Some(arrival) = self.cluster.as_mut().and_then(|cluster| cluster.arrivals.all.get_mut(&number)) else {
            return;
        };
        match answer {
            Answer::Loaded(Some(loaded)) => {
                if is_by_rules_of(&self.sites[arrival.site as usize], &arrival.request) {
                    self.cache.insert(arrival.site, &arrival.request, &loaded, now);
                }
                self.arrival_found(number, Some(loaded.found));
            }
            Answer::Read(Ok(bytes)) if !bytes.is_empty() => {
                arrival.resent.extend_from_slice(&bytes);
                self.read_arrival(number);
            }
            Answer::Loaded(None) | Answer::Resident(_) | Answer::Read(_) | Answer::Told(_) => {
                self.arrival_found(number, None)
            }
        }
        self.run_effects();
    }

    /// Looks again for content that had no tag: to be asked for it has had it hashed.
    pub(super) fn seek_tags(&mut self) {
        let now = self.now;
        let Some(cluster) = self.cluster.as_mut().filter(|cluster| now >= cluster.arrivals.at) else { return };
        cluster.arrivals.at = Instant::NEVER;
        let waiting = cluster.arrivals.all.iter_mut().filter(|(_, arrival)| arrival.awaits_tag);
        let waiting = waiting.map(|(number, arrival)| {
            arrival.awaits_tag = false;
            (*number, arrival.site, arrival.request.clone())
        });
        for (number, site, question) in waiting.collect::<Vec<_>>() {
            self.load_arrival(number, site, question);
        }
    }

    fn load_arrival(&mut self, number: u16, site: u32, question: LoadRequest) {
        let account = self.open_account(site);
        let outcome = self.storage.load(ticket_of(arrival_token(number)), account.payer, question);
        self.close_account(account);
        if let Outcome::Ready(loaded) = outcome {
            self.arrival_answered(number, Answer::Loaded(loaded));
        }
    }

    fn arrival_found(&mut self, number: u16, found: Option<Found<File<H>>>) {
        let now = self.now;
        let Some(cluster) = &mut self.cluster else { return };
        let Some(arrival) = cluster.arrivals.all.get_mut(&number) else { return };
        let reply = &arrival.reply;
        match found {
            Some(Found::Resource(resource))
                if reply.continues_with(resource.description.etag.as_ref().map(|etag| etag.as_bytes()))
                    && resource.description.len_bytes == reply.complete_length =>
            {
                arrival.resource = Some(resource);
                self.read_arrival(number);
            }
            Some(Found::Resource(resource))
                if resource.description.etag.is_none()
                    && resource.description.len_bytes == reply.complete_length
                    && now < arrival.tag_by =>
            {
                arrival.awaits_tag = true;
                cluster.arrivals.at = cluster.arrivals.at.min(now.after(TAG_PAUSE));
            }
            _ => {
                let path = String::from_utf8_lossy(&reply.path);
                let why = format!("what is at {path} isn't the same here");
                self.end_arrival(number, Err(refused(RefuseReason::Image, &why)));
            }
        }
    }

    /// Reads what the client may have already: the new socket must have sent it.
    fn read_arrival(&mut self, number: u16) {
        let Some(site) = self.cluster.as_ref().and_then(|cluster| Some(cluster.arrivals.all.get(&number)?.site)) else {
            return;
        };
        let account = self.open_account(site);
        let ended = self.read_resent(number, account.payer);
        self.close_account(account);
        let Some(ended) = ended else { return };
        let Some(arrival) = self.cluster.as_mut().and_then(|cluster| cluster.arrivals.all.remove(&number)) else {
            return;
        };
        let Arrival { flow, image, reply, resource, resent, .. } = arrival;
        let arrived = ended.and_then(|()| self.go_on_with(flow, image, &reply, resource, resent));
        self.thaw_ended(flow, arrived);
    }

    /// Whether it has all been read; nothing while the storage is at it.
    fn read_resent(&mut self, number: u16, payer: Option<Payer>) -> Option<Result<(), RefuseReason>> {
        let arrival = self.cluster.as_mut()?.arrivals.all.get_mut(&number)?;
        loop {
            let done = arrival.resent.len() as u64;
            let left = arrival.reply.resend_bytes.saturating_sub(done);
            let next = arrival.reply.after(done).into_iter().next();
            let (Some(piece), Some(resource), 1..) = (next, &arrival.resource, left) else {
                return Some(Ok(()));
            };
            match (piece, &resource.content) {
                (Left::Literal(bytes), _) => {
                    let count = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    arrival.resent.extend_from_slice(&bytes[..count]);
                }
                (Left::Content { first, length }, Content::Memory(content)) => {
                    let range = first as usize..(first + length.min(left)) as usize;
                    arrival.resent.extend_from_slice(&content[range]);
                }
                (Left::Content { first, length }, Content::File(file)) => {
                    let count = length.min(left).min(READ_BYTES_MAX as u64) as usize;
                    match self.storage.read(ticket_of(arrival_token(number)), payer, file, first, count) {
                        Outcome::Ready(Ok(bytes)) if !bytes.is_empty() => arrival.resent.extend_from_slice(&bytes),
                        Outcome::Ready(_) => {
                            return Some(Err(refused(RefuseReason::Image, &"its content can't be read")));
                        }
                        Outcome::Pending => return None,
                    }
                }
            }
        }
    }

    /// Makes the connection, and the reply from where it is. `resent`: what the client may have of it already. Without a resource nothing is left of its content.
    pub(super) fn go_on_with(
        &mut self,
        flow: FlowId,
        mut image: Image,
        reply: &ReplyState,
        resource: Option<Arc<Resource<File<H>>>>,
        mut resent: Vec<u8>,
    ) -> Result<Token, RefuseReason> {
        let mut tcp = image.tcp.take().ok_or(RefuseReason::Image)?;
        let listener = self.listener_of(&tcp).ok_or(RefuseReason::Address)?;
        let content = resource.as_ref().map(|resource| &resource.content);
        let pieces = reply.after(resent.len() as u64).into_iter().map(|piece| match (piece, content) {
            (Left::Literal(bytes), _) => Some(Piece::Bytes { bytes: bytes.into(), done: 0 }),
            (Left::Content { first, length }, Some(Content::Memory(content))) => {
                Some(Piece::Bytes { bytes: content.slice(first as usize..(first + length) as usize), done: 0 })
            }
            (Left::Content { first, length }, Some(Content::File(file))) => {
                Some(Piece::File { file: file.clone(), offset: first, end: first + length })
            }
            (Left::Content { .. }, None) => None,
        });
        let pieces: VecDeque<_> = pieces.collect::<Option<_>>().ok_or(RefuseReason::Image)?;
        let unchecked = match content {
            Some(Content::File(file)) => Some(file.clone()),
            Some(Content::Memory(_)) | None => None,
        };
        tcp.send_next = tcp.send_next.wrapping_add(resent.len() as u32);
        tcp.sent.append(&mut resent);
        let state = image.http;
        let http = http::Connection::import(self.now, &state.connection).ok_or(RefuseReason::Image)?;
        let token = self.make_connection(flow, (&tcp, image.congestion), &state, listener)?;
        let connection = &mut self.connections[token];
        connection.http = http;
        connection.flags.ended = state.connection.has_input_ended();
        connection.inbox.put(state.input);
        self.resume_request(token, &state.head);
        self.was_given(flow, token);
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return Err(RefuseReason::Image) };
        (exchange.status, exchange.body_bytes, exchange.replied) = (reply.status, reply.content_bytes, self.now);
        (exchange.pieces, exchange.unchecked) = (pieces, unchecked);
        exchange.resource = resource;
        self.metrics.replies_continued.increment();
        Ok(token)
    }

    fn end_arrival(&mut self, number: u16, arrived: Result<Token, RefuseReason>) {
        let Some(cluster) = &mut self.cluster else { return };
        let Some(arrival) = cluster.arrivals.all.remove(&number) else { return };
        self.thaw_ended(arrival.flow, arrived);
    }
}

/// The storage's answers find an arrival by it.
fn arrival_token(number: u16) -> Token {
    Token { index: ARRIVALS_INDEX, generation: number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_replies_are_told_of_as_they_stand() {
        let (head, content) = ([b'h'; 96], [b'c'; TOLD_AS_IT_STANDS_BYTES_MAX - 96]);
        assert_eq!(as_it_stands(&[&head, &content]), Some([&head[..], &content].concat()));
        assert_eq!(as_it_stands(&[&head, &content, b"x"]), None);
    }

    #[test]
    fn what_is_the_contents_own_is_a_run_of_it() {
        let content = bytes::Bytes::from_static(b"a resource's content");
        let run = |first, length| Left::Content { first, length };
        assert_eq!(run_of(&content, &content), run(0, 20));
        assert_eq!(run_of(&content, &content.slice(2..10)), run(2, 8));
        let none = content.slice(20..);
        let copy = content.to_vec();
        for bytes in [&none[..], &copy, b"HTTP/1.1 200 OK"] {
            assert_eq!(run_of(&content, bytes), Left::Literal(bytes.to_vec()));
        }
        assert_eq!(run_of(&[], &content), Left::Literal(content.to_vec()), "it's in a file");
    }
}
