//! Connections at servers that aren't leat, on which a client asks for what belongs to another of such servers: this home sees each request that no standing choice
//! knows, asks the node for the connection once its server has answered all before, and has the other server's kernel make it of that request. The leat beside a
//! server says whether it has. How the packets are made is `steering`'s; where a request belongs, the dispatcher's.
//! `docs/decisions/0033-transplants.md` has the reasons.

use std::collections::BTreeMap;
use std::time::Duration;

use leat_host::connections;
use leat_host::steering::{self, FlowKey, Next, Planted, Reply};
use leat_logic::dispatch::cost::{Way, Ways};
use leat_logic::dispatch::{Facts, NodeId, Whence};
use leat_logic::handoff::{Ends, ServerId, Yielding};
use leat_logic::http::client::{self, Ending, Seen};
use leat_logic::http::{self, BodyLength, Method, Progress, Request};
use leat_logic::time::Instant;

use super::super::{Host, UNKNOWN_SITE, Worker};
use super::Part;
use super::home::Home;
use super::placing::ROUND_TRIP;
use super::shared::NodeGuard;

/// A request that hasn't come as a whole by then goes where its connection is, and so does all that follows.
const WHOLE_BY: Duration = Duration::from_millis(200);
const WHOLE_LOOK: Duration = Duration::from_millis(2);
/// A server that is busy with a connection is asked for it again after so long, at first and at most; and for so long in all.
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
/// As many are looked at in one worker at a time; of more, the requests go where their connections are.
const COUNT_MAX: usize = 4096;

/// A home's.
#[derive(Default)]
pub(super) struct Transplants {
    /// Requests that aren't whole yet, and since when.
    unread: BTreeMap<Ends, Instant>,
    read_at: Option<Instant>,
    asked: BTreeMap<Ends, Asked>,
    planted: BTreeMap<Ends, Again>,
}

/// A connection that its node was asked for.
struct Asked {
    next: Next,
    to: To,
    since: Instant,
    pause: Duration,
    /// When it's asked for again, or isn't any more if it hasn't answered.
    at: Instant,
    is_answered: bool,
}

/// What a server may not have got.
struct Again {
    planted: Planted,
    pause: Duration,
    at: Instant,
    times: u32,
}

impl Transplants {
    pub(super) fn poll_timeout(&self) -> Instant {
        let asked = self.asked.values().map(|asked| asked.at).min().unwrap_or(Instant::NEVER);
        let planted = self.planted.values().map(|again| again.at).min().unwrap_or(Instant::NEVER);
        asked.min(planted).min(self.read_at.unwrap_or(Instant::NEVER))
    }

    /// How many are seen to.
    pub(super) fn count(&self) -> usize {
        self.unread.len() + self.asked.len() + self.planted.len()
    }
}

impl Again {
    /// False when its client has heard from that server, or it's been sent often enough.
    fn is_sent_again(&mut self, steering: &steering::Dispatcher, now: Instant) -> bool {
        self.times += 1;
        self.pause = (self.pause * 2).min(PLANT_PAUSE_MAX);
        self.at = now.after(self.pause);
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
        let mut rest = &next.arrival.payload[..];
        let (consumed, progress) = connection.handle_input(now, rest, limits);
        let request = match progress {
            Progress::Request(request) => request,
            Progress::NeedInput if !next.arrival.has_fin => return Verdict::Unread,
            _ => return Verdict::Stays,
        };
        let (belongs, body) = (self.belongs(next, &request, now), request.body);
        let comes_at_once = match body {
            BodyLength::None => true,
            BodyLength::Length(bytes) => bytes <= BODY_BYTES_MAX && !request.expect_continue,
            BodyLength::Chunked => false,
        };
        rest = &rest[consumed..];
        let mut is_whole = body == BodyLength::None;
        while !is_whole {
            let (consumed, progress) = connection.handle_input(now, rest, limits);
            rest = &rest[consumed..];
            match progress {
                Progress::Body(_) => {}
                Progress::BodyEnd => is_whole = true,
                Progress::NeedInput => break,
                _ => return Verdict::Stays,
            }
        }
        match belongs {
            None if is_whole && !next.arrival.has_fin => Verdict::GoesOn(next.arrival.payload.len() - rest.len()),
            None => Verdict::Stays,
            Some(to) if is_whole && !next.arrival.has_fin => Verdict::Belongs(to),
            Some(_) if !is_whole && comes_at_once && !next.arrival.has_fin => Verdict::Unread,
            // Its server would be sent the rest by nobody until its client has heard from it.
            Some(_) => Verdict::Belongs(To::Here),
        }
    }

    /// Where a request belongs, if not where its connection is.
    fn belongs(&mut self, next: &Next, request: &Request<'_>, now: Instant) -> Option<To> {
        let holder = self.node(next.arrival.flow.holder)?;
        let whence = Whence {
            holder: Some(holder),
            client: Some(next.arrival.key.client.ip()),
            had: 1,
            round_trip: ROUND_TRIP,
            possible: Ways::of(&[Way::MovedThere]),
        };
        let route = self.dispatcher.route(&Facts::of(request), &whence, now).ok()?;
        let node = route.choice.node;
        if node == holder || !self.bears || self.is_retiring || self.is_resigning {
            return None;
        }
        let can_have = self.number(node).and_then(|number| self.foreign(number)).is_some_and(|(_, can_bear)| can_bear);
        let is_moved = can_have && route.decision.way == Way::MovedThere;
        Some(if is_moved { To::Node(node) } else { To::Here })
    }

    /// Asks a connection's node for it. False if there is nobody to ask.
    fn ask_for(&mut self, next: &mut Next) -> bool {
        let flow = self.steering.as_ref().and_then(|steering| steering.flows().get(next.arrival.key).ok().flatten());
        flow.iter().for_each(|flow| next.hear(flow));
        self.flows.ask_to_yield(next.arrival.flow.holder, next.arrival.key.ends(), next.sequence(), next.acknowledged())
    }

    /// Asks once more for connections whose servers were busy. Returns what waits on those whose nodes haven't answered, or can't be asked.
    fn ask_again(&mut self, now: Instant) -> Vec<Next> {
        let due = self.transplants.asked.iter().filter(|(_, asked)| asked.at <= now);
        let due: Vec<Ends> = due.map(|(ends, _)| *ends).collect();
        let mut unanswered = Vec::new();
        for ends in due {
            let Some(mut asked) = self.transplants.asked.remove(&ends) else { continue };
            if std::mem::take(&mut asked.is_answered) && self.ask_for(&mut asked.next) {
                asked.at = now.after(ANSWER_TIME);
                self.transplants.asked.insert(ends, asked);
            } else {
                unanswered.push(asked.next);
            }
        }
        unanswered
    }
}

impl<H: Host> Worker<H> {
    /// Sees what clients say next on connections at servers that aren't leat.
    pub(super) fn place_next_requests(&mut self) {
        while let Some(next) = self.home_steering().and_then(steering::Dispatcher::poll_next) {
            self.place_next(next);
        }
        self.run_effects();
    }

    fn place_next(&mut self, mut next: Next) {
        let now = self.now;
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        let ends = next.arrival.key.ends();
        if next.arrival.flow.is_planted() {
            if home.transplants.planted.contains_key(&ends) {
                home.steering.iter().for_each(|steering| steering.drop_waiting(next.arrival.key));
                return;
            }
            // By another worker, or a process before this one.
            let to = (home.id, next.arrival.flow.holder);
            return self.plant(&next, to);
        }
        let mut verdict = match home.transplants.count() < COUNT_MAX {
            true => home.judge(&next, &self.sites[UNKNOWN_SITE as usize].limits, now),
            false => Verdict::GoesOn(next.arrival.payload.len()),
        };
        let since = home.transplants.unread.remove(&ends).unwrap_or(now);
        if matches!(verdict, Verdict::Unread) && now.since(since) >= WHOLE_BY {
            // Whoever may have it: this server waits for the rest, and passes it on.
            let is_matter = home.dispatcher.serve_different_things();
            verdict = if is_matter { Verdict::Belongs(To::Here) } else { Verdict::Stays };
        }
        match verdict {
            Verdict::Unread => {
                home.transplants.unread.insert(ends, since);
                home.transplants.read_at.get_or_insert(now.after(WHOLE_LOOK));
            }
            Verdict::Belongs(to) if home.ask_for(&mut next) => {
                let at = now.after(ANSWER_TIME);
                let asked = Asked { next, to, since: now, pause: ASK_PAUSE_MIN, at, is_answered: false };
                home.transplants.asked.insert(ends, asked);
            }
            Verdict::GoesOn(bytes) => {
                self.let_go_on(&next, bytes, false);
                self.let_stand(&next.arrival);
            }
            Verdict::Belongs(_) => self.let_go_on(&next, next.arrival.payload.len(), false),
            Verdict::Stays => self.let_go_on(&next, next.arrival.payload.len(), true),
        }
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
        let Some(mut asked) = home.transplants.asked.remove(&ends) else { return };
        if asked.next.sequence() != of {
            home.transplants.asked.insert(ends, asked);
            return;
        }
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
            Yielding::Later if now.since(asked.since) < ASK_TIME => {
                asked.at = now.after(asked.pause);
                asked.is_answered = true;
                asked.pause = (asked.pause * 2).min(ASK_PAUSE_MAX);
                home.transplants.asked.insert(ends, asked);
            }
            Yielding::Later => self.let_go_on(&asked.next, asked.next.arrival.payload.len(), false),
            Yielding::Never => self.let_go_on(&asked.next, asked.next.arrival.payload.len(), true),
        }
    }

    fn plant(&mut self, next: &Next, to: (ServerId, ServerId)) {
        let now = self.now;
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        let Some(steering) = &home.steering else { return };
        match steering.plant(next, to, leat_host::clock::now()) {
            Ok(planted) => {
                let (pause, at) = (PLANT_PAUSE_MIN, now.after(PLANT_PAUSE_MIN));
                home.transplants.planted.insert(next.arrival.key.ends(), Again { planted, pause, at, times: 0 });
            }
            // Its client has begun another.
            Err(steering::Error::Gone) => {}
            Err(error) => crate::log::warning(format_args!("a connection can't go on at another server: {error}")),
        }
    }

    fn take_back(&mut self, next: &Next) {
        let taken = self.home_steering().map(|steering| steering.take_back(next, leat_host::clock::now()));
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
        home.transplants.planted.retain(|_, again| again.at > now || again.is_sent_again(&steering, now));
        // Their nodes may have given them up without a word that came here: with what goes on they have them again.
        let unanswered = home.ask_again(now);
        unanswered.iter().for_each(|next| self.let_go_on(next, next.arrival.payload.len(), false));
        self.read_again();
    }

    /// Looks whether more has come of what wasn't whole.
    fn read_again(&mut self) {
        let now = self.now;
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        if home.transplants.read_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        let unread: Vec<Ends> = home.transplants.unread.keys().copied().collect();
        for ends in unread {
            let next = self.home_steering().and_then(|steering| steering.next_of(FlowKey::from(ends)));
            match next {
                Some(next) => self.place_next(next),
                // Nothing of it waits any more: its client will have said it again.
                None => self.forget_unread(ends),
            }
        }
    }

    fn forget_unread(&mut self, ends: Ends) {
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        home.transplants.unread.remove(&ends);
        home.steering.iter().for_each(|steering| steering.drop_waiting(ends.into()));
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
        let mut steering = self.steering();
        let look = |steering: &steering::Node| steering.last_reply(key).map_err(|error| error.to_string());
        let Some(reply) = look(&steering)? else { return Ok((Yielding::Never, 0)) };
        if reply.is_given {
            return Ok((Yielding::Given, reply.shown));
        }
        match over(&reply, next, acknowledged) {
            Ending::Over => {}
            Ending::NotYet => return Ok((Yielding::Later, 0)),
            Ending::Unknown => return Ok((Yielding::Never, 0)),
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
