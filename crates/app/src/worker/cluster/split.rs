//! A connection server's part: a request that `split::Balance` wants answered by a data server is lent to one with its connection, which comes home
//! with the first request that is this server's again. And the data server's: which request that is (`docs/decisions/0013-request-splitting.md`).

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use leat_host::reactor::{Reactor, Token};
use leat_logic::dispatch::cost::{Side, Work};
use leat_logic::dispatch::{Facts, NodeId};
use leat_logic::handoff::{Effect, FlowId, Image, ServerId, TcpState};
use leat_logic::http::{self, Method, Request};
use leat_logic::schedule::Operation;
use leat_logic::serve::cache::Lookup;
use leat_logic::serve::coding::{Coding, CodingOrder};
use leat_logic::serve::resource::{Description, Found};
use leat_logic::split::{Asked, Balance, Delegation, Loads, Rules};
use serde_json::{Value, json};

use super::super::connection::Connection;
use super::super::exchange::Placing;
use super::super::settings::SiteKind;
use super::super::transmit::FLIGHT_BYTES;
use super::super::{ADMIN_SITE, File, Host, Stage, UNKNOWN_SITE, Worker};
use super::Part;

/// One delegation of so many has its cost measured: reading the clock isn't free.
const MEASURED_EVERY: u64 = 16;
/// Replies on their way that are known of; past it, the oldest counts no more.
const UNACKNOWLEDGED_MAX: usize = 4096;
/// Of those, so many are looked at for each request, and twice as many for each reply: more than come. Who is found to have been acknowledged doesn't count.
const LOOKS: usize = 2;
/// But so many are looked at once at most.
const LOOKS_MAX: usize = 64;

/// What a connection server keeps of what it delegates.
#[derive(Default)]
pub(super) struct Split {
    pub(super) balance: Balance,
    /// Who has each connection that is away.
    delegated: BTreeMap<FlowId, NodeId>,
    /// What a delegation has cost so far whose cost is measured.
    spent: Option<(FlowId, Duration)>,
    /// A connection that is coming home, and whose request has been judged already: it's answered here.
    kept: Option<FlowId>,
}

impl Split {
    pub(super) fn new(rules: Rules) -> Split {
        let mut split = Split::default();
        split.balance.configure(rules);
        split
    }

    /// A data server has the flow.
    pub(super) fn taken(&mut self, flow: FlowId, node: NodeId) {
        self.delegated.insert(flow, node);
        if let Some((_, spent)) = self.spent.take_if(|(measured, _)| *measured == flow) {
            self.balance.measured(Work::Moved, Side::Dispatcher, spent);
        }
    }

    /// Whether the request in hand of a connection that has come home has been judged already.
    pub(super) fn take_kept(&mut self, flow: FlowId) -> bool {
        self.kept.take_if(|kept| *kept == flow).is_some()
    }

    /// The flow is here again, or over. Who had it.
    pub(super) fn came_back(&mut self, flow: FlowId) -> Option<NodeId> {
        if let Some((_, spent)) = self.spent.take_if(|(measured, _)| *measured == flow) {
            self.balance.measured(Work::Returned, Side::Dispatcher, spent);
        }
        self.delegated.remove(&flow)
    }

    /// Whether what `effect` costs is to be measured.
    fn measures(&mut self, effect: &Effect) -> bool {
        let (Effect::Freeze { flow } | Effect::Steer { flow, .. } | Effect::Thaw { flow, .. }) = effect else {
            let Effect::CloseSilently { flow } = effect else { return false };
            return self.spent.is_some_and(|(measured, _)| measured == *flow);
        };
        let is_first = matches!(effect, Effect::Freeze { .. } | Effect::Thaw { .. });
        if is_first && flow.serial.is_multiple_of(MEASURED_EVERY) {
            self.spent = Some((*flow, Duration::ZERO));
        }
        self.spent.is_some_and(|(measured, _)| measured == *flow)
    }
}

/// A reply that is with the kernel: of which connection, to its how many-th request, and whether some of it waited for the link when it was looked at.
struct Reply {
    token: Token,
    number: u32,
    waits: bool,
}

/// Requests whose replies clients are waiting for.
#[derive(Default)]
pub(in crate::worker) struct UnderWay {
    /// Replies that are with the kernel: first those that nobody has looked at yet, then those that weren't acknowledged when they were last looked at.
    unacknowledged: VecDeque<Reply>,
    /// Those of them that waited for this machine's link then: only clients keep the others.
    waiting: u32,
    /// Replies that were given to the reactor since it was last asked, which hasn't said yet whether they fit into the kernel.
    pub(in crate::worker) undecided: u32,
    /// Requests in hand, whatever they wait for, those included that are being lent.
    pub(in crate::worker) in_hand: usize,
    /// Time in which the worker had nothing to do.
    pub(in crate::worker) idle: Duration,
}

impl UnderWay {
    fn take_next(&mut self) -> Option<Reply> {
        let reply = self.unacknowledged.pop_front()?;
        self.waiting -= u32::from(reply.waits);
        Some(reply)
    }

    fn add(&mut self, reply: Reply) {
        self.waiting += u32::from(reply.waits);
        self.unacknowledged.push_back(reply);
    }

    /// A reply is with the kernel. It's looked at first: what has just been sent has nearly always left where links don't bind.
    fn begin(&mut self, reply: Reply) {
        if self.unacknowledged.len() == UNACKNOWLEDGED_MAX {
            self.take_next();
        }
        self.unacknowledged.push_front(reply);
    }

    /// Looks at replies until so many are found that are still on their way, as what `look` leaves of them. A worker that has nothing to do but to report how much
    /// that is would take long to forget the others, and be given nothing meanwhile.
    fn look(&mut self, count: usize, mut look: impl FnMut(Reply) -> Option<Reply>) {
        let mut left = count;
        for _ in 0..LOOKS_MAX.min(self.unacknowledged.len()) {
            let Some(reply) = self.take_next() else { return };
            if let Some(reply) = look(reply) {
                self.add(reply);
                left = left.saturating_sub(1);
            }
            if left == 0 {
                return;
            }
        }
    }
}

/// What is known of a resource that is asked about.
struct Measured {
    path: Vec<u8>,
    bytes: u64,
    /// In which coding it has that many.
    coding: Option<Coding>,
}

impl<H: Host> Worker<H> {
    /// Whether it matters how much time is left here.
    pub(in crate::worker) fn weighs_delegating(&self) -> bool {
        let Some(Part::Home(home)) = self.cluster.as_ref().map(|cluster| &cluster.part) else { return false };
        home.split.as_ref().is_some_and(|split| split.balance.rules().delegation == Delegation::Partial)
    }

    /// Has the request in hand, for a resource of that description, answered by another server if that's better. Whether it's on its way there.
    pub(in crate::worker) fn delegates(&mut self, token: Token, found: &Description) -> bool {
        let bytes = found.len_bytes;
        let is_splitting = match self.cluster.as_ref().map(|cluster| &cluster.part) {
            Some(Part::Home(home)) => home.split.is_some() && home.leaving.is_none(),
            Some(Part::Node(_)) => return self.gives_back(token, Some(found)),
            _ => false,
        };
        let connection = &self.connections[token];
        let Some(exchange) = connection.exchange.as_ref() else { return false };
        let is_get = exchange.method == Method::Get;
        if !is_splitting || !is_get || exchange.stays || connection.flags.ended || connection.flags.held {
            return false;
        }
        let serving = self.serving_time(bytes);
        let own = self.own_load();
        // This one is under way and waits for nothing.
        let own = Loads { at_link: own.at_link.saturating_sub(1), ..own };
        let socket = self.connections[token].socket;
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return false };
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return false };
        let asked = Asked { path: &exchange.path, bytes, serving, is_here: true };
        let is_kept = home.split.as_mut().is_none_or(|split| split.balance.keeps(&asked, &own));
        let is_delegated = !is_kept && {
            let request = Request::read_again(&exchange.head);
            let facts = request.as_ref().map(Facts::of).unwrap_or_default().by(home.client_who_counts(socket));
            let loads = home.loads(own, &facts, self.now);
            home.split.as_mut().is_some_and(|split| split.balance.decide(&asked, &loads).delegates())
        };
        if !is_delegated {
            self.metrics.requests_kept.increment();
            return false;
        }
        // Whatever becomes of it now: if it comes back from there unanswered, it's answered here.
        exchange.stays = true;
        if self.lend(token).is_none() {
            self.metrics.requests_kept.increment();
            return false;
        }
        self.metrics.requests_delegated.increment();
        self.run_effects();
        true
    }

    /// Lends the request in hand, with its connection, to the data server whose it is; none where that can't be.
    fn lend(&mut self, token: Token) -> Option<()> {
        let request = Request::read_again(&self.connections[token].exchange.as_ref()?.head)?;
        let cluster = self.cluster.as_mut()?;
        let Part::Home(home) = &mut cluster.part else { return None };
        home.steering.as_ref()?;
        let socket = self.connections[token].socket;
        let facts = Facts::of(&request).by(home.client_who_counts(socket));
        let node = home.dispatcher.choose(&facts, self.now).ok()?.node;
        let client = home.client_in_doubt(socket);
        client.is_none_or(|client| home.dispatcher.direct().allows(node, client, self.now)).then_some(())?;
        let flow = match cluster.flows.at(token) {
            Some(flow) => flow,
            None => {
                let flow = home.next_flow();
                home.flows.open(flow).then(|| cluster.flows.settle(flow, token))?;
                flow
            }
        };
        home.lend(self.now, flow, node).then_some(())
    }

    /// A connection has come home as an image, with a request in hand that nobody has answered: to whom it's lent for that one as well, none if the
    /// request is this server's. A socket that is made for it would be taken apart again at once.
    pub(super) fn lends_on(&mut self, flow: FlowId, image: &Image, giver: ServerId) -> Option<ServerId> {
        let request = Request::read_again(&image.http.head)?;
        let tcp = image.tcp.as_ref()?;
        if image.http.connection.is_request_given_up() {
            self.cluster.as_mut()?.part.split()?.kept = Some(flow);
            return None;
        }
        let is_delegated =
            self.judge_elsewhere(&request, tcp, |balance, asked, loads| balance.decide(asked, loads).delegates())?;
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return None };
        let facts = Facts::of(&request).by(Some(tcp.remote.ip()));
        let server = is_delegated.then(|| home.lend_on(self.now, flow, giver, (&facts, image))).flatten();
        match (server, &mut home.split) {
            (Some(_), _) => self.metrics.requests_delegated.increment(),
            // Its reply is made: there is nothing to be judged when it's here.
            (None, _) if image.reply.is_some() => self.metrics.requests_kept.increment(),
            // It's counted when it's here.
            (None, Some(split)) => split.kept = Some(flow),
            (None, None) => {}
        }
        server
    }

    /// Whether a request is delegated with which a connection begins that nobody has a socket of. If not, it's judged again when it has one.
    pub(super) fn delegates_birth(&mut self, request: &Request<'_>, tcp: &TcpState) -> bool {
        self.judge_elsewhere(request, tcp, Balance::delegates_at_once).unwrap_or(false)
    }

    /// What `judge` says of a request whose connection has no socket here. None if it can't be a data server's, or what it names isn't known for
    /// certain: that is looked up when there is one.
    fn judge_elsewhere(
        &mut self,
        request: &Request<'_>,
        tcp: &TcpState,
        judge: impl FnOnce(&mut Balance, &Asked<'_>, &Loads) -> bool,
    ) -> Option<bool> {
        if request.method != Method::Get {
            return None;
        }
        let listener = self.listener_of(tcp)?;
        let number = self.listeners[listener as usize].sites.site(request.host.unwrap_or_default())?;
        let site = &self.sites[number as usize];
        let mut room = Vec::new();
        let path = request.target.decode_path(&mut room).ok()?;
        if site.kind != SiteKind::Files || site.handler(path).is_some() {
            return None;
        }
        let found = self.cache.lookup(number, site.codings(request), path, self.now);
        let Lookup::Fresh(Found::Resource(resource)) = found else { return None };
        let bytes = resource.description.len_bytes;
        let asked = Asked { path, bytes, serving: self.serving_time(bytes), is_here: false };
        // As if the request were under way.
        let own = self.own_load();
        let own = Loads { own: own.own + 1, ..own };
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return None };
        let loads = home.loads(own, &Facts::of(request).by(Some(tcp.remote.ip())), self.now);
        Some(judge(&mut home.split.as_mut()?.balance, &asked, &loads))
    }

    /// At a data server: a connection that was lent goes home with a request that is its home's, as all are that aren't for a file of some size.
    /// Whether it does. One that goes home only since it has been here for long is likely to be left here once more: its reply is made first, and goes
    /// along, so that its home needn't be told when it begins.
    pub(in crate::worker) fn gives_back(&mut self, token: Token, found: Option<&Description>) -> bool {
        let Some(cluster) = &mut self.cluster else { return false };
        let (Some(flow), Part::Node(node)) = (cluster.flows.at(token), &mut cluster.part) else { return false };
        let connection = &mut self.connections[token];
        let Some(exchange) = connection.exchange.as_mut() else { return false };
        let number = connection.http.request_count();
        let answered = number.saturating_sub(1 + cluster.flows.requests_before(flow));
        // The request that it came with is answered in any case.
        let stays = found.is_some_and(|found| node.rules.stays(answered, &exchange.path, found.len_bytes));
        if exchange.stays || answered == 0 || stays {
            return false;
        }
        exchange.stays = true;
        exchange.goes_home = found.is_some_and(|found| {
            let is_allowed = node.rules.allow(&exchange.path, found.len_bytes).is_ok();
            is_allowed && !exchange.conditional && exchange.error.is_none() && found.etag.is_some()
        });
        !exchange.goes_home && self.gives_back_reply(token)
    }

    /// At a data server: what the request in hand names isn't here. Its home may have it, and answers in any case: once, so that one which leaves it here
    /// has it answered. Whether it goes.
    pub(in crate::worker) fn gives_back_unserved(&mut self, token: Token) -> bool {
        let is_lent = self.is_lent(token);
        let exchange = self.connections[token].exchange.as_mut();
        let Some(exchange) = exchange.filter(|it| is_lent && !it.stays && it.error.is_none()) else { return false };
        exchange.stays = true;
        exchange.given_up = true;
        // So that it may leave.
        exchange.placing = Placing::Unknown;
        self.gives_back_reply(token)
    }

    /// Gives a connection back with the request in hand, and with its reply if that has been made. Whether it goes.
    pub(in crate::worker) fn gives_back_reply(&mut self, token: Token) -> bool {
        let number = self.connections[token].http.request_count();
        let Some(cluster) = &mut self.cluster else { return false };
        let (Some(flow), Part::Node(node)) = (cluster.flows.at(token), &mut cluster.part) else { return false };
        if !node.of(flow).is_some_and(|flows| flows.replied(flow, number)) {
            return false;
        }
        self.run_effects();
        true
    }

    /// Requests that clients are waiting for, as far as this worker knows.
    pub(in crate::worker) fn requests_under_way(&mut self) -> u32 {
        self.look_at_replies(LOOKS);
        let unread = self.tree.len().saturating_sub(self.for_processor());
        let counted = self.under_way.unacknowledged.len() + self.kept_in_hand() + unread;
        u32::try_from(counted).unwrap_or(u32::MAX)
    }

    /// Requests in hand that wait for the processor.
    fn for_processor(&self) -> usize {
        // All stages of these two are at one leaf: nobody's requests are theirs.
        let sites =
            self.leaves.iter().enumerate().filter(|(site, _)| ![UNKNOWN_SITE, ADMIN_SITE].contains(&(*site as u32)));
        let in_hand = [Stage::Serve, Stage::Transmit, Stage::Compute];
        sites.flat_map(|(_, leaves)| in_hand.map(|stage| self.tree.queued(leaves[stage as usize]))).sum()
    }

    /// Requests in hand but those that are on their way to data servers: they count there from the moment when they're lent.
    fn kept_in_hand(&self) -> usize {
        let lent = match self.cluster.as_ref().map(|cluster| &cluster.part) {
            Some(Part::Home(home)) if home.split.is_some() => home.asked.len(),
            _ => 0,
        };
        self.under_way.in_hand.saturating_sub(lent)
    }

    /// How much there is to do here.
    fn own_load(&mut self) -> Loads {
        let own = self.requests_under_way();
        let at_link = self.kept_in_hand().saturating_sub(self.for_processor() + self.under_way.undecided as usize);
        let at_link = u32::try_from(at_link).unwrap_or(u32::MAX).saturating_add(self.under_way.waiting);
        Loads { own, at_link, idle: self.under_way.idle, ..Loads::default() }
    }

    /// Forgets replies that have been acknowledged: those of the next few that are. Whoever asks again has got the last reply.
    fn look_at_replies(&mut self, count: usize) {
        let weighs = self.weighs_delegating();
        let Worker { under_way, connections, reactor, .. } = self;
        under_way.look(count, |reply| {
            let is_last = |connection: &&mut Connection<File<H>>| {
                !connection.flags.closing && connection.http.request_count() == reply.number
            };
            let socket = connections.get(reply.token).filter(is_last).map(|connection| connection.socket);
            let socket = socket.filter(|socket| reactor.unacknowledged_bytes(*socket) > 0)?;
            Some(Reply { waits: weighs && reactor.waits_at_link(socket), ..reply })
        });
    }

    /// A reply is with the kernel: its client waits for it until it has acknowledged it.
    pub(in crate::worker) fn reply_is_on_its_way(&mut self, token: Token) {
        if self.cluster.is_none() {
            return;
        }
        self.look_at_replies(if self.weighs_delegating() { 2 * LOOKS } else { LOOKS });
        let number = self.connections[token].http.request_count();
        self.under_way.begin(Reply { token, number, waits: false });
    }

    /// Whether a connection that is to be closed stays until its client has ended it, as its last reply counts as under way until then: a socket that
    /// is closed can't be asked, and a reply on a slow link is nearly always wholly with the kernel when the last of it has been sent. At a node one stays of whose
    /// last reply there may be some that has yet to leave: a client that says more would have the kernel drop that, and wouldn't hear the reset.
    pub(in crate::worker) fn waits_for_acknowledgement(&mut self, token: Token) -> bool {
        let splits = self.cluster.as_mut().is_some_and(|cluster| cluster.part.split().is_some());
        let counts = splits || self.is_lent(token);
        let is_nodes = self
            .cluster
            .as_ref()
            .is_some_and(|cluster| matches!(cluster.part, Part::Node(_)) && cluster.flows.at(token).is_some());
        if !counts && !is_nodes {
            return false;
        }
        let connection = &mut self.connections[token];
        let least = if counts { 1 } else { FLIGHT_BYTES };
        self.reactor.unacknowledged_bytes(connection.socket) >= least && connection.http.linger(self.now)
    }

    /// What it takes of the processor to serve so many bytes.
    fn serving_time(&self, bytes: u64) -> Duration {
        let sending = if bytes > self.config.files.cache_file_size_max { Operation::SendFile } else { Operation::Send };
        Duration::from_nanos(self.meter.price(Operation::Serve, 0) + self.meter.price(sending, bytes))
    }

    /// Does what a machine wants done, and learns what it costs if it belongs to a delegation.
    pub(super) fn run_effect_measured(&mut self, home: ServerId, effect: Effect) {
        let split = self.cluster.as_mut().and_then(|cluster| cluster.part.split());
        if !split.is_some_and(|split| split.measures(&effect)) {
            return self.run_effect(home, effect);
        }
        let before = self.host.processor_time();
        self.run_effect(home, effect);
        let spent = self.host.processor_time().saturating_sub(before);
        if let Some((_, sum)) = self.cluster.as_mut().and_then(|cluster| cluster.part.split()?.spent.as_mut()) {
            *sum += spent;
        }
    }

    /// What would become of a request, and why.
    pub(super) fn explain_split(&mut self, written: &str, client: Option<IpAddr>) -> Result<Value, String> {
        let facts = Facts::written(written).ok_or("write a request as in 'GET /path' or 'GET http://host/path'")?;
        let facts = facts.by(client);
        if facts.method != b"GET" {
            let text = "it is answered here: only what is asked for by GET is delegated\n";
            return Ok(json!({ "delegated": false, "text": text }));
        }
        let now = self.now;
        let Measured { path, bytes, coding } = self.size_of(&facts)?;
        let (own, serving) = (self.own_load(), self.serving_time(bytes));
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else {
            return Err("this leat couldn't become a connection server: its log says why".to_owned());
        };
        // As if the request were under way.
        let loads = home.loads(Loads { own: own.own + 1, ..own }, &facts, now);
        let choice = home.explain_choice(&facts, now);
        let Some(split) = &home.split else { return Err("this leat isn't a connection server".to_owned()) };
        let explanation = split.balance.explain(&Asked { path: &path, bytes, serving, is_here: true }, &loads);
        let lacks_client = client.is_none() && home.dispatcher.goes_by_client();
        let note = if lacks_client {
            "that is of a client to whom no data server is near: name one by --client\n"
        } else {
            ""
        };
        let coding = coding.map(Coding::name);
        let coded = coding.map(|coding| format!("that is of its content in {coding}: nobody has asked for another\n"));
        let coded = coded.unwrap_or_default();
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        Ok(json!({
            "delegated": explanation.reason.delegates(),
            "bytes": bytes,
            "coding": coding,
            "serving_us": us(serving),
            "delegating_us": us(explanation.price.own),
            "data_server_us": us(explanation.price.data_server),
            "under_way": loads.own,
            "under_way_delegated": loads.delegated,
            "near": loads.is_near,
            "text": format!("{explanation}{coded}{note}if it were delegated: {choice}"),
        }))
    }

    /// A resource's path, decoded, and its size, as the cache knows it.
    fn size_of(&mut self, facts: &Facts<'_>) -> Result<Measured, String> {
        let mut room = Vec::new();
        let path =
            http::decode_path(facts.path, &mut room).map_err(|_| "the path isn't one that a client may ask for")?;
        let path = path.to_vec();
        let is_sites = |number: &u32| self.sites.get(*number as usize).is_some_and(|site| site.kind == SiteKind::Files);
        let numbers = self.listeners.iter().filter_map(|listening| listening.sites.site(facts.host)).filter(is_sites);
        for number in numbers.collect::<Vec<_>>() {
            let site = self.sites[number as usize].clone();
            if site.handler(&path).is_some() {
                return Err("a handler answers for it here: only files are delegated".to_owned());
            }
            // Clients that all take a coding have nothing else be kept.
            let codings = std::iter::once(None).chain(site.offered.iter().copied().map(Some));
            for coding in codings {
                let order = coding.map_or(CodingOrder::NONE, |coding| CodingOrder::NONE.with(coding));
                if let Lookup::Fresh(Found::Resource(resource)) | Lookup::Stale(Found::Resource(resource), _) =
                    self.cache.lookup(number, order, &path, self.now)
                {
                    let Description { len_bytes: bytes, coding, .. } = resource.description;
                    return Ok(Measured { path, bytes, coding });
                }
            }
        }
        Err("nobody has asked for it lately, so its size isn't known here: ask for it once, then again for this"
            .to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_that_have_been_acknowledged_are_soon_forgotten() {
        let mut under_way = UnderWay::default();
        let reply = |index| Reply { token: Token { index, generation: 0 }, number: 1, waits: false };
        (0..100).for_each(|index| under_way.add(reply(index)));
        under_way.look(2, Some);
        assert_eq!(under_way.unacknowledged.len(), 100);
        let is_left = |reply: Reply| (reply.token.index >= 98).then_some(reply);
        under_way.look(2, is_left);
        assert_eq!(under_way.unacknowledged.len(), 100 - LOOKS_MAX, "no more at once");
        (0..2).for_each(|_| under_way.look(2, is_left));
        assert_eq!(under_way.unacknowledged.len(), 2);
    }

    #[test]
    fn what_has_just_been_sent_is_looked_at_first() {
        let mut under_way = UnderWay::default();
        let reply = |index| Reply { token: Token { index, generation: 0 }, number: 1, waits: false };
        (0..8).for_each(|index| under_way.begin(reply(index)));
        under_way.look(8, |reply| Some(Reply { waits: reply.token.index < 4, ..reply }));
        assert_eq!(under_way.waiting, 4);
        under_way.begin(reply(8));
        under_way.look(1, |reply| Some(Reply { waits: reply.token.index == 8, ..reply }));
        assert_eq!(under_way.waiting, 5);
        under_way.look(9, |reply| Some(Reply { waits: false, ..reply }));
        assert_eq!((under_way.waiting, under_way.unacknowledged.len()), (0, 9));
    }
}
