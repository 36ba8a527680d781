//! Connections at servers that aren't leat, on which a client asks for what belongs to another of such servers: this home sees each request that no standing choice
//! knows, asks the node for the connection once its server has answered all before, and has the other server's kernel make it of that request. The leat beside a
//! server says whether it has. How the packets are made is `steering`'s; where a request belongs, the dispatcher's.
//! `docs/decisions/0033-transplants.md` has the reasons.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leat_host::connections;
use leat_host::steering::{self, FlowKey, Next, Planted, Reply};
use leat_logic::client_prefix::ClientPrefix;
use leat_logic::dispatch::cost::{Way, Ways};
use leat_logic::dispatch::{Facts, NodeId, Whence};
use leat_logic::handoff::{Ends, ServerId, Yielding};
use leat_logic::http::client::{self, Ending, Seen};
use leat_logic::http::{self, BodyLength, Method, Progress, Request};
use leat_logic::time::Instant;

use super::super::{Host, UNKNOWN_SITE, Worker};
use super::Part;
use super::home::Home;
use super::shared::NodeGuard;

/// A request that hasn't come as a whole by then goes where its connection is, and so does all that follows; where nodes have different things, here.
const WHOLE_BY: Duration = Duration::from_millis(200);
/// A server that is busy with a connection is asked for it again after so long, at first and at most; and for so long in all, unless it hasn't what is asked for.
const ASK_PAUSE_MIN: Duration = Duration::from_micros(250);
const ASK_PAUSE_MAX: Duration = Duration::from_millis(200);
const ASK_TIME: Duration = Duration::from_secs(10);
/// A node that doesn't answer within that isn't waited for.
const ANSWER_TIME: Duration = Duration::from_millis(500);
/// What a server may not have got is sent to it again after so long, at first; each time it's twice as long, up to the most, and so often.
const PLANT_PAUSE_MIN: Duration = Duration::from_millis(25);
const PLANT_PAUSE_MAX: Duration = Duration::from_millis(400);
const PLANT_TIMES: u32 = 16;
/// Content that its client sends at once with its head, whatever it hears.
const BODY_BYTES_MAX: u64 = 8 << 10;
/// As many are seen to in one worker at a time, and so many of one client.
const COUNT_MAX: usize = 4096;
const CLIENT_COUNT_MAX: usize = 256;

/// A home's: connections that it sees to.
#[derive(Default)]
pub(super) struct Transplants {
    all: BTreeMap<Ends, (Instant, Stage)>,
    /// The same by when something is to be done.
    due: BTreeSet<(Instant, Ends)>,
    /// How many there are of each client.
    of_clients: BTreeMap<ClientPrefix, usize>,
}

/// How far one has come.
enum Stage {
    /// Its request isn't whole yet, and began to come then.
    Unread(Instant),
    /// Its node was asked for it.
    Asked(Asked),
    /// The next server may not have got it.
    Planted(Again),
}

struct Asked {
    next: Next,
    to: To,
    since: Instant,
    pause: Duration,
    /// The server wasn't done, or its node had no link: it's to be asked again. Else its node hasn't answered yet.
    is_answered: bool,
}

struct Again {
    planted: Planted,
    pause: Duration,
    times: u32,
}

impl Transplants {
    pub(super) fn poll_timeout(&self) -> Instant {
        self.due.first().map_or(Instant::NEVER, |&(at, _)| at)
    }

    /// How many are seen to.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Whether there's room for one more of a client.
    fn has_room_for(&self, ends: Ends) -> bool {
        let of_client = self.of_clients.get(&ClientPrefix::of(ends.client.ip()));
        self.all.len() < COUNT_MAX && of_client.is_none_or(|&count| count < CLIENT_COUNT_MAX)
    }

    /// Sees to a connection, in place of how it was seen to before.
    fn insert(&mut self, ends: Ends, at: Instant, stage: Stage) {
        self.take(ends);
        *self.of_clients.entry(ClientPrefix::of(ends.client.ip())).or_default() += 1;
        self.due.insert((at, ends));
        self.all.insert(ends, (at, stage));
    }

    fn take(&mut self, ends: Ends) -> Option<Stage> {
        let (at, stage) = self.all.remove(&ends)?;
        self.due.remove(&(at, ends));
        if let Entry::Occupied(mut count) = self.of_clients.entry(ClientPrefix::of(ends.client.ip())) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        Some(stage)
    }

    /// Its server isn't done, or its node has no link at the moment.
    fn ask_later(&mut self, mut asked: Asked, now: Instant) {
        let (ends, at) = (asked.next.arrival.key.ends(), now.after(asked.pause));
        asked.is_answered = true;
        asked.pause = (asked.pause * 2).min(ASK_PAUSE_MAX);
        self.insert(ends, at, Stage::Asked(asked));
    }

    /// One whose node was asked for it, before what its client said from a sequence number on.
    fn take_asked(&mut self, ends: Ends, of: u32) -> Option<Asked> {
        let is_it = matches!(self.all.get(&ends)?, (_, Stage::Asked(asked)) if asked.next.sequence() == of);
        match if is_it { self.take(ends) } else { None } {
            Some(Stage::Asked(asked)) => Some(asked),
            _ => None,
        }
    }

    /// The next one for which it's time to do something.
    fn poll(&mut self, now: Instant) -> Option<(Ends, Stage)> {
        let &(_, ends) = self.due.first().filter(|&&(at, _)| at <= now)?;
        self.take(ends).map(|stage| (ends, stage))
    }

    fn is_planted(&self, ends: Ends) -> bool {
        matches!(self.all.get(&ends), Some((_, Stage::Planted(_))))
    }
}

impl Again {
    /// False when its client has heard from that server, or it's been sent often enough.
    fn is_sent_again(&mut self, steering: &steering::Dispatcher) -> bool {
        self.times += 1;
        self.pause = (self.pause * 2).min(PLANT_PAUSE_MAX);
        self.times < PLANT_TIMES && steering.plant_again(&self.planted)
    }
}

/// Where a connection goes on.
#[derive(Clone, Copy)]
enum To {
    /// At the server of that node.
    Node(NodeId),
    /// Here, as one that was never given away: what can't be given to a server by packets is proxied, or moved.
    Here,
}

/// What is to be done with what a client says next.
enum Verdict {
    /// More of it has to come.
    Unread,
    /// So many bytes of it go where the connection is: a request.
    GoesOn(usize),
    /// So does all that follows: where its requests begin isn't known.
    Stays,
    /// It belongs elsewhere.
    Belongs(To),
}

impl Home {
    /// Whether the requests of connections at servers that aren't leat are looked at.
    pub(super) fn watches(&self) -> bool {
        self.split.is_none() && self.dispatcher.answers_hold().is_some()
    }

    /// Where what a client says next belongs.
    fn judge(&mut self, next: &Next, limits: &http::Limits, now: Instant) -> Verdict {
        let mut connection = http::Connection::new(now);
        let payload = &next.arrival.payload[..];
        let is_matter = self.dispatcher.serve_different_things();
        let (consumed, progress) = connection.handle_input(now, payload, limits);
        let request = match progress {
            Progress::Request(request) => request,
            Progress::NeedInput if !next.arrival.has_fin => return Verdict::Unread,
            // Its server may understand it, and then whatever follows would be its as well: it's refused here.
            Progress::Reject(_) if is_matter => return Verdict::Belongs(To::Here),
            _ => return Verdict::Stays,
        };
        let (belongs, body, is_last) = (self.belongs(next, &request, now), request.body, next.arrival.has_fin);
        let comes_at_once = match body {
            BodyLength::None => true,
            BodyLength::Length(bytes) => bytes <= BODY_BYTES_MAX && !request.expect_continue,
            BodyLength::Chunked => false,
        };
        match body_end(&mut connection, body, &payload[consumed..], limits, now) {
            None if is_matter => Verdict::Belongs(To::Here),
            None => Verdict::Stays,
            // Whoever gets the first of several that come at once gets them all.
            Some(Extent::Whole(bytes)) if is_matter && consumed + bytes < payload.len() => Verdict::Belongs(To::Here),
            // More than one request is more than its server's reply says the end of, and may be less than two.
            Some(Extent::Whole(bytes)) if belongs.is_some() && consumed + bytes < payload.len() => Verdict::Stays,
            Some(Extent::Whole(_)) if is_last => belongs.map_or(Verdict::Stays, |_| Verdict::Belongs(To::Here)),
            Some(Extent::Whole(bytes)) => belongs.map_or(Verdict::GoesOn(consumed + bytes), Verdict::Belongs),
            Some(Extent::Partial) if is_last && belongs.is_none() => Verdict::Stays,
            Some(Extent::Partial) if comes_at_once && !is_last => Verdict::Unread,
            // Where what follows begins isn't seen.
            Some(Extent::Partial) if belongs.is_none() && !is_matter => Verdict::Stays,
            // Its server would be sent the rest by nobody until its client has heard from it.
            Some(Extent::Partial) => Verdict::Belongs(To::Here),
        }
    }

    /// Where a request belongs, if not where its connection is.
    fn belongs(&mut self, next: &Next, request: &Request<'_>, now: Instant) -> Option<To> {
        let holder = self.node(next.arrival.flow.holder)?;
        let whence = Whence {
            holder: Some(holder),
            client: Some(next.arrival.key.client.ip()),
            had: 1,
            possible: Ways::of(&[Way::MovedThere]),
        };
        let facts = Facts::of(request);
        let route = self.dispatcher.route(&facts, &whence, now);
        let gives = self.bears && !self.is_retiring() && !self.is_resigning;
        let route = match route {
            Ok(route) if route.choice.node == holder => return None,
            Ok(route) if gives => route,
            // Nobody can have it now: its holder answers what it serves, and nothing else.
            _ => {
                let is_anothers = self.dispatcher.serve_different_things() && !self.dispatcher.serves(holder, &facts);
                return is_anothers.then_some(To::Here);
            }
        };
        let node = route.choice.node;
        let can_have = self.number(node).and_then(|number| self.foreign(number)).is_some_and(|(_, can_bear)| can_bear);
        let is_moved = can_have && route.decision.way == Way::MovedThere;
        Some(if is_moved { To::Node(node) } else { To::Here })
    }
}

/// How much there is of a request's content.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// All of it: so many bytes, as they're sent.
    Whole(usize),
    Partial,
}

/// How long the first request is, with its content, if all of it is there.
fn first_request(payload: &[u8], limits: &http::Limits, now: Instant) -> Option<usize> {
    let mut connection = http::Connection::new(now);
    let (head, progress) = connection.handle_input(now, payload, limits);
    let Progress::Request(Request { body, .. }) = progress else { return None };
    match body_end(&mut connection, body, &payload[head..], limits, now)? {
        Extent::Whole(bytes) => Some(head + bytes),
        Extent::Partial => None,
    }
}

/// Where the content of a request ends whose head `connection` has just read; none where it's no content.
pub(super) fn body_end(
    connection: &mut http::Connection,
    body: BodyLength,
    bytes: &[u8],
    limits: &http::Limits,
    now: Instant,
) -> Option<Extent> {
    if body == BodyLength::None {
        return Some(Extent::Whole(0));
    }
    let mut rest = bytes;
    loop {
        let (consumed, progress) = connection.handle_input(now, rest, limits);
        rest = &rest[consumed..];
        match progress {
            Progress::Body(_) => {}
            Progress::BodyEnd => return Some(Extent::Whole(bytes.len() - rest.len())),
            Progress::NeedInput => return Some(Extent::Partial),
            _ => return None,
        }
    }
}

impl<H: Host> Worker<H> {
    /// Sees what clients say next on connections at servers that aren't leat.
    pub(super) fn place_next_requests(&mut self) {
        while let Some(next) = self.home_steering().and_then(steering::Dispatcher::poll_next) {
            self.place_next(next, None);
        }
        self.run_effects();
    }

    /// `unread`: since when some of it has waited, if it wasn't whole in time.
    fn place_next(&mut self, mut next: Next, unread: Option<Instant>) {
        let now = self.now;
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        let ends = next.arrival.key.ends();
        if next.arrival.flow.is_planted() {
            if home.transplants.is_planted(ends) {
                home.steering.iter().for_each(|steering| steering.drop_waiting(next.arrival.key));
                return;
            }
            // By another worker, or a process before this one: one request, whatever its client has said since.
            let to = (home.id, next.arrival.flow.holder);
            let limits = &self.sites[UNKNOWN_SITE as usize].limits;
            if let Some(bytes) = first_request(&next.arrival.payload, limits, now) {
                next.arrival.payload.truncate(bytes);
            }
            return self.plant(&next, to);
        }
        let mut verdict = home.judge(&next, &self.sites[UNKNOWN_SITE as usize].limits, now);
        let since = match home.transplants.take(ends) {
            Some(Stage::Unread(since)) => since,
            _ => unread.unwrap_or(now),
        };
        if matches!(verdict, Verdict::Unread) && now.since(since) >= WHOLE_BY {
            // Whoever may have it: this server waits for the rest, and passes it on.
            let is_matter = home.dispatcher.serve_different_things();
            verdict = if is_matter { Verdict::Belongs(To::Here) } else { Verdict::Stays };
        }
        match verdict {
            Verdict::Unread if home.transplants.has_room_for(ends) => {
                home.transplants.insert(ends, since.after(WHOLE_BY), Stage::Unread(since));
                home.steering.iter().for_each(|steering| steering.await_more(next.arrival.key));
            }
            Verdict::Belongs(to) if home.transplants.has_room_for(ends) => {
                self.ask_for(Asked { next, to, since: now, pause: ASK_PAUSE_MIN, is_answered: false });
            }
            Verdict::GoesOn(bytes) => {
                self.let_go_on(&next, bytes, false);
                self.let_stand(&next.arrival);
            }
            // Where the rest of it ends isn't seen.
            Verdict::Unread => self.cant_go(&next, true),
            Verdict::Belongs(_) => self.cant_go(&next, false),
            Verdict::Stays => self.let_go_on(&next, next.arrival.payload.len(), true),
        }
    }

    /// Asks a connection's node for it, if there is somebody to ask.
    fn ask_for(&mut self, mut asked: Asked) {
        let now = self.now;
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        let key = asked.next.arrival.key;
        let flow = home.steering.as_ref().and_then(|steering| steering.flows().get(key).ok().flatten());
        let Some(flow) = flow.filter(|flow| flow.id == asked.next.arrival.flow.id && !flow.reset) else {
            // Its client has given it up.
            home.steering.iter().for_each(|steering| steering.drop_waiting(key));
            return;
        };
        asked.next.hear(&flow);
        let (holder, next, acknowledged) = (flow.holder, asked.next.sequence(), asked.next.acknowledged());
        if home.flows.ask_to_yield(holder, key.ends(), next, acknowledged) {
            asked.is_answered = false;
            home.transplants.insert(key.ends(), now.after(ANSWER_TIME), Stage::Asked(asked));
        } else if home.dispatcher.serve_different_things() && home.waiting.is_patient(now) {
            home.transplants.ask_later(asked, now);
        } else {
            self.cant_go(&asked.next, false);
        }
    }

    /// A request belongs elsewhere and can't go there: it goes on where it is, unless its server hasn't what is asked for. Then its client is reset: it asks
    /// again on another connection, as for any that a server has closed meanwhile (RFC 9112, section 9.5).
    fn cant_go(&mut self, next: &Next, stays: bool) {
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        if !home.dispatcher.serve_different_things() {
            return self.let_go_on(next, next.arrival.payload.len(), stays);
        }
        let Some(steering) = home.steering.clone() else { return };
        let (flow, key, heard) = (next.arrival.flow.id, next.arrival.key, steering.give_up(next));
        self.metrics.transplants_cut.increment();
        if let Some(cluster) = &mut self.cluster {
            cluster.part.keep_cut(flow, key, &heard, self.now);
        }
        self.reset_client(key, &heard);
    }

    fn let_go_on(&mut self, next: &Next, bytes: usize, stays: bool) {
        if stays {
            self.metrics.transplants_impossible.increment();
        }
        let done = self.home_steering().map(|steering| steering.let_go_on(next, bytes, stays));
        if let Some(Err(error)) = done.filter(|done| !matches!(done, Err(steering::Error::Gone))) {
            crate::log::warning(format_args!("a request can't be sent on: {error}"));
        }
    }

    /// A node has answered whether its server gives up a connection.
    pub(super) fn was_yielded(&mut self, ends: Ends, of: u32, (answer, shown): (Yielding, u32)) {
        let now = self.now;
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        let Some(mut asked) = home.transplants.take_asked(ends, of) else { return };
        let is_matter = home.dispatcher.serve_different_things();
        match answer {
            Yielding::Given => {
                asked.next.was_shown(shown);
                let server = match asked.to {
                    // Whoever else has become the better one meanwhile: this one can have it.
                    To::Node(node) => {
                        home.number(node).and_then(|number| home.foreign(number)).map(|(to, _)| (node, to))
                    }
                    To::Here => None,
                };
                let id = home.id;
                self.metrics.transplants.increment();
                match server {
                    Some((node, server)) => {
                        home.dispatcher.begin_unheard(node);
                        self.plant(&asked.next, (id, server));
                    }
                    None => self.take_back(&asked.next),
                }
            }
            // A client that has asked for more waits for as long as what it asked for before takes.
            Yielding::Later if is_matter || now.since(asked.since) < ASK_TIME => {
                home.transplants.ask_later(asked, now);
            }
            Yielding::Later => self.cant_go(&asked.next, false),
            Yielding::Never => self.cant_go(&asked.next, true),
            // What looked like a request is none, and belongs nowhere else.
            Yielding::Switched => self.let_go_on(&asked.next, asked.next.arrival.payload.len(), true),
        }
    }

    fn plant(&mut self, next: &Next, to: (ServerId, ServerId)) {
        let now = self.now;
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        let Some(steering) = &home.steering else { return };
        match steering.plant(next, to) {
            Ok(planted) => {
                let again = Again { planted, pause: PLANT_PAUSE_MIN, times: 0 };
                home.transplants.insert(next.arrival.key.ends(), now.after(PLANT_PAUSE_MIN), Stage::Planted(again));
            }
            // Its client has begun another.
            Err(steering::Error::Gone) => {}
            Err(error) => crate::log::warning(format_args!("a connection can't go on at another server: {error}")),
        }
    }

    fn take_back(&mut self, next: &Next) {
        let taken = self.home_steering().map(|steering| steering.take_back(next));
        if let Some(Err(error)) = taken {
            crate::log::warning(format_args!("a connection can't be taken back from a server: {error}"));
        }
    }

    /// Asks, looks and sends again, as far as it's time for that.
    pub(super) fn handle_transplants(&mut self) {
        let now = self.now;
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        if home.transplants.poll_timeout() > now {
            return;
        }
        let Some(steering) = home.steering.clone() else {
            // Whoever has the home now sees what clients say again.
            home.transplants = Transplants::default();
            return;
        };
        while let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part)
            && let Some((ends, stage)) = home.transplants.poll(now)
        {
            match stage {
                Stage::Planted(mut again) => {
                    if again.is_sent_again(&steering) {
                        home.transplants.insert(ends, now.after(again.pause), Stage::Planted(again));
                    }
                }
                Stage::Asked(asked) if asked.is_answered => self.ask_for(asked),
                // Its node may have given it up without a word that came here: with what goes on it has it again.
                Stage::Asked(asked) => self.cant_go(&asked.next, false),
                Stage::Unread(since) => self.read_at_last(ends, since),
            }
        }
    }

    /// What has come of a request that isn't whole in time.
    fn read_at_last(&mut self, ends: Ends, since: Instant) {
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        let Some(steering) = home.steering.clone() else { return };
        match steering.next_of(ends.into()) {
            Some(next) => self.place_next(next, Some(since)),
            // Nothing of it waits any more: its client will have said it again.
            None => steering.drop_waiting(ends.into()),
        }
    }

    /// The dispatcher wants a connection of this node's server.
    pub(super) fn answer_yield(&mut self, home: ServerId, ends: Ends, next: u32, acknowledged: u32) {
        let Some(Part::Node(node)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        let answer = match node.is_foreign() {
            true => node.guard.give(FlowKey::from(ends), next, acknowledged).unwrap_or_else(|error| {
                crate::log::warning(format_args!("whether a server has answered can't be seen: {error}"));
                (Yielding::Never, 0)
            }),
            false => (Yielding::Never, 0),
        };
        if answer.0 == Yielding::Given {
            self.metrics.transplants.increment();
        }
        if let Some(home) = node.home(home) {
            home.flows.yielded(ends, next, answer);
        }
    }
}

impl NodeGuard {
    /// Has the server's kernel say nothing any more on a connection whose client has said all up to `next`, and has all up to `acknowledged`, if the server has
    /// answered all of it. Returns with it what the kernel has told last of its clock.
    fn give(&self, key: FlowKey, next: u32, acknowledged: u32) -> Result<(Yielding, u32), String> {
        let steering = self.steering();
        let look = |steering: &steering::Node| steering.last_reply(key).map_err(|error| error.to_string());
        let Some(reply) = look(&steering)? else { return Ok((Yielding::Never, 0)) };
        if reply.is_given {
            return Ok((Yielding::Given, reply.shown));
        }
        match over(&reply, next, acknowledged) {
            Ending::Over => {}
            Ending::NotYet => return Ok((Yielding::Later, 0)),
            Ending::Unknown => return Ok((Yielding::Never, 0)),
            Ending::Switched => return Ok((Yielding::Switched, 0)),
        }
        // What it says between the look and this has been kept back, or is seen.
        steering.set_given(key, true).map_err(|error| error.to_string())?;
        let is_quiet = connections::is_quiet(key.vip, key.client);
        let is_same = look(&steering)?.is_some_and(|now| now == Reply { is_given: true, ..reply });
        if matches!(is_quiet, Ok(true)) && is_same {
            return Ok((Yielding::Given, reply.shown));
        }
        steering.set_given(key, false).map_err(|error| error.to_string())?;
        is_quiet.map(|_| (Yielding::Later, 0)).map_err(|error| error.to_string())
    }
}

/// Whether a server has answered all that its client has said up to `next`, and the client has all of that.
fn over(reply: &Reply, next: u32, acknowledged: u32) -> Ending {
    if reply.is_muddled {
        return Ending::Unknown;
    }
    if reply.is_awaited || reply.next != next {
        return Ending::NotYet;
    }
    let method = match &reply.request {
        b"HEAD" => Method::Head,
        b"CONN" => return Ending::Unknown,
        // Where their replies end is the same for all others.
        _ => Method::Get,
    };
    let bytes = reply.end.wrapping_sub(reply.begin).into();
    match client::ending(&Seen { method, first: &reply.head, bytes, last: &reply.tail }) {
        Ending::Over if reply.end != acknowledged => Ending::NotYet,
        ending => ending,
    }
}
