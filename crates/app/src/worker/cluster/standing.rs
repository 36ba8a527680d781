//! Standing choices: where connections begin whose first requests are for what many ask for, is left to the steering program for a moment. Decides which
//! choices stand, for how long and for how many, and reads what has begun by them. What is chosen is `born`'s.
//! `docs/decisions/0030-standing-choices.md` has the reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leat_host::steering::{Arrival, Begun, CHOICE_TURNS, StandingChoice, can_name};
use leat_logic::dispatch::cost::{Side, Work};
use leat_logic::dispatch::{NodeId, Why};
use leat_logic::handoff::ServerId;
use leat_logic::http::{self, Progress};
use leat_logic::time::Instant;

use super::super::{Host, UNKNOWN_SITE, Worker};
use super::home::Home;
use super::{Part, born};

/// A choice stands for so long unless it's renewed: what has changed is heeded within that. Shorter than a report, longer than a lull (`lull`).
const STANDS: Duration = Duration::from_millis(20);
/// Renewed when that much is left: by then it has been read which connections have begun.
const RENEWED: Duration = Duration::from_millis(10);
/// The clock by which the program goes may be so much late.
const COARSE: Duration = Duration::from_millis(10);
/// So many may begin before anybody looks: at first, and at most. Otherwise four times what has begun since the last look.
const LIMIT_MIN: u32 = 16;
const LIMIT_MAX: u32 = 1024;
/// Contents that are thought of. Beyond that all are forgotten.
const CONTENTS_MAX: usize = 4096;

/// What stands, and what may come to.
#[derive(Default)]
pub(super) struct Standing {
    contents: BTreeMap<u64, Content>,
    /// When the last one has ended.
    until: Option<Instant>,
    /// Something has ever stood. What it let begin is looked for without end: a processor that was taken away may finish at any time.
    has_any: bool,
}

#[derive(Clone, Copy, Default)]
struct Content {
    asked_at: Instant,
    until: Instant,
    limit: u32,
    begun: u32,
    /// How many turns have been taken, ever.
    turns: u32,
}

impl Standing {
    /// Somebody has asked for it, and would be given a choice that stands. For how many it's to stand now, and whose turn it is, if that pays: not what is asked
    /// for once in a while.
    fn asked(&mut self, content: u64, now: Instant) -> Option<(u32, u32)> {
        if self.contents.len() >= CONTENTS_MAX && !self.contents.contains_key(&content) {
            self.contents.clear();
        }
        let known = self.contents.entry(content).or_default();
        let is_asked_again = known.asked_at != Instant::default() && now.since(known.asked_at) < STANDS;
        known.asked_at = now;
        let limit = known.begun.saturating_mul(4).clamp(LIMIT_MIN, LIMIT_MAX);
        is_asked_again.then_some((limit, known.turns))
    }

    /// It stands from now on.
    fn stands(&mut self, content: u64, limit: u32, now: Instant) -> Instant {
        let until = now.after(STANDS);
        if let Some(known) = self.contents.get_mut(&content) {
            (known.until, known.limit, known.begun) = (until, limit, 0);
        }
        (self.until, self.has_any) = (Some(until.after(COARSE)), true);
        until
    }

    /// So many have begun by a choice. Whether it's to be renewed.
    fn has_begun(&mut self, content: u64, count: u32, now: Instant) -> bool {
        let Some(known) = self.contents.get_mut(&content) else { return false };
        known.asked_at = now;
        known.begun += count;
        known.turns = known.turns.wrapping_add(count);
        known.until <= now.after(RENEWED) || known.begun > known.limit / 2
    }

    /// When all that stood has ended, if it hasn't been read since.
    pub(super) fn poll_timeout(&self) -> Instant {
        self.until.unwrap_or(Instant::NEVER)
    }

    /// What has begun is being read.
    fn reads(&mut self, now: Instant) {
        self.until = self.until.filter(|until| *until > now);
    }
}

/// Who has the connections that begin, in turns, and whether these aren't leat.
struct Holders {
    servers: Vec<ServerId>,
    are_foreign: bool,
}

impl Home {
    /// The node of this number, if the server there isn't leat, and whether connections can begin at it.
    pub(super) fn foreign(&self, number: u32) -> Option<(ServerId, bool)> {
        let server = self.linked.iter().find(|(server, _)| server.server() == number);
        server.filter(|(_, load)| load.is_foreign).map(|(server, load)| (*server, load.can_bear))
    }

    /// The workers of a node at which connections may begin unasked: none where some find no room, as it's seen to then that few are on their way.
    fn birth_workers(&mut self, node: NodeId, now: Instant) -> Option<Holders> {
        let number = self.number(node)?;
        if let Some((server, can_bear)) = self.foreign(number) {
            return can_bear.then(|| Holders { servers: vec![server], are_foreign: true });
        }
        if self.dispatcher.direct().is_crowded(node, now) {
            return None;
        }
        let mut servers = self.workers(number);
        servers.retain(|worker| can_name(*worker));
        Some(Holders { servers, are_foreign: false })
    }
}

impl<H: Host> Worker<H> {
    /// A connection has begun at a node with a request of which others may follow: they begin there as well for a while, if there are many.
    pub(super) fn let_stand(&mut self, arrival: &Arrival) {
        let now = self.now;
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        // What isn't heard by all is looked at one by one.
        if !home.dispatcher.direct().allows_all() {
            return;
        }
        let Some(steering) = home.steering.clone() else { return };
        let Some(content) = steering.content(arrival.key.vip, &arrival.payload) else { return };
        let Some((limit, first)) = home.standing.asked(content, now) else { return };
        let Some(Holders { servers, are_foreign }) = self.choose_holders(arrival) else { return };
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        let until = home.standing.stands(content, limit, now);
        let are_watched = are_foreign && home.watches();
        let choice = StandingChoice { until, home: home.id, limit, holders: &servers, first, are_foreign, are_watched };
        if let Err(error) = steering.choose_for(content, &choice)
            && self.shared.is_news("standing choices".to_owned(), true)
        {
            crate::log::warning(format_args!("where connections begin can't be left to the kernel: {error}"));
        }
    }

    /// Where the next ones begin that are for the same; none if each is to be looked at.
    fn choose_holders(&mut self, arrival: &Arrival) -> Option<Holders> {
        let now = self.now;
        let mut connection = http::Connection::new(now);
        let limits = &self.sites[UNKNOWN_SITE as usize].limits;
        let (_, progress) = connection.handle_input(now, &arrival.payload, limits);
        let Progress::Request(request) = progress else { return None };
        let choice = self.choose_birthplace(&request, arrival).filter(|choice| choice.stands)?;
        let Part::Home(home) = &mut self.cluster.as_mut()?.part else { return None };
        let mut holders = home.birth_workers(choice.node, now)?;
        if choice.why != Why::Turn {
            return Some(holders);
        }
        // As they would be chosen one after the other.
        holders.servers.truncate(1);
        while holders.servers.len() < CHOICE_TURNS {
            let choice = self.choose_birthplace(&request, arrival).filter(|choice| choice.stands)?;
            let Part::Home(home) = &mut self.cluster.as_mut()?.part else { return None };
            let next = home.birth_workers(choice.node, now).filter(|next| next.are_foreign == holders.are_foreign)?;
            holders.servers.push(*next.servers.first()?);
        }
        // Whole rounds: what is left over of one would be the first node's each time.
        let nodes: BTreeSet<u32> = holders.servers.iter().map(|server| server.server()).collect();
        holders.servers.truncate(CHOICE_TURNS / nodes.len() * nodes.len());
        Some(holders)
    }

    /// Reads what has begun by choices that stand. To be done before anything that nodes say of it is heard.
    pub(super) fn read_begun(&mut self) {
        let now = self.now;
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        if !home.standing.has_any {
            return;
        }
        home.standing.reads(now);
        let (Some(steering), id) = (home.steering.clone(), home.id) else { return };
        let mut next = steering.poll_begun(id);
        if next.is_none() {
            return;
        }
        let before = self.host.processor_time();
        let mut contents: BTreeMap<u64, (u32, Begun)> = BTreeMap::new();
        let mut count = 0;
        while let Some(begun) = next {
            self.enter_begun(&begun.arrival, begun.holder);
            count += 1;
            contents.entry(begun.content).and_modify(|(count, _)| *count += 1).or_insert((1, begun));
            next = steering.poll_begun(id);
        }
        for (content, (count, begun)) in contents {
            let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
            if home.standing.has_begun(content, count, now) {
                self.let_stand(&begun.arrival);
            }
        }
        self.metrics.births_unasked.add(count.into());
        let each = self.host.processor_time().saturating_sub(before) / count;
        if let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) {
            home.dispatcher.measured(Work::Born, Side::Dispatcher, 0, each);
        }
    }

    fn enter_begun(&mut self, arrival: &Arrival, holder: ServerId) {
        let now = self.now;
        let flow = arrival.flow.id;
        let Some(Part::Home(home)) = self.cluster.as_mut().map(|cluster| &mut cluster.part) else { return };
        let node = home.node(holder);
        if arrival.flow.foreign {
            home.entrusted += 1;
            node.into_iter().for_each(|node| home.dispatcher.begin_unheard(node));
            return home.watch_birth(holder, arrival, None, now);
        }
        if !home.flows.begun(now, flow, holder, born::image(flow, arrival, now)) {
            return;
        }
        home.watch_birth(holder, arrival, Some(flow), now);
        match node {
            Some(node) => self.enter_birth(flow, arrival.key, node),
            // A reload has removed it meanwhile.
            None => self.cluster.iter_mut().for_each(|cluster| cluster.flows.begin_away(flow, arrival.key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant { ns: 1_000_000_000 + ms * 1_000_000 }
    }

    #[test]
    fn what_is_asked_for_once_in_a_while_doesnt_stand() {
        let mut standing = Standing::default();
        assert_eq!(standing.asked(1, at(0)), None);
        assert_eq!(standing.asked(1, at(30)), None);
        assert_eq!(standing.asked(2, at(35)), None, "it's another's");
        assert_eq!(standing.asked(1, at(40)), Some((LIMIT_MIN, 0)));
    }

    #[test]
    fn a_choice_is_renewed_before_it_ends_and_for_as_many_as_have_come() {
        let mut standing = Standing::default();
        standing.asked(1, at(0));
        assert_eq!(standing.asked(1, at(1)), Some((LIMIT_MIN, 0)));
        assert_eq!(standing.stands(1, LIMIT_MIN, at(1)), at(21));
        assert!(!standing.has_begun(1, 5, at(5)), "there is time and room");
        assert!(standing.has_begun(1, 5, at(6)), "ten of sixteen");
        assert_eq!(standing.asked(1, at(6)), Some((40, 10)), "turns are counted on");
        standing.stands(1, 40, at(6));
        assert!(!standing.has_begun(1, 1, at(15)) && standing.has_begun(1, 1, at(16)), "its end is near");
        standing.reads(at(35));
        assert_eq!(standing.poll_timeout(), at(36), "it ends at 26, by a clock that may be late");
        standing.reads(at(36));
        assert_eq!(standing.poll_timeout(), Instant::NEVER);
    }

    #[test]
    fn contents_are_bounded() {
        let mut standing = Standing::default();
        for content in 0..100_000 {
            assert_eq!(standing.asked(content, at(0)), None);
        }
        assert!(standing.contents.len() <= CONTENTS_MAX);
    }
}
