//! Room for new connections where there are as many as there may be: which others end, in which order, a few in each turn. Which they are is
//! `Survey`'s to say.

use std::fmt::Arguments;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use leat_host::reactor::{Reactor, Token};
use leat_logic::admission::limits::{ROOM_HEAD_NS, ROOM_IDLE_NS, ROOM_MAX, ROOM_PART, ROOM_REST_NS};
use leat_logic::admission::{Dispensable, Survey};
use leat_logic::client_prefix::ClientPrefix;
use leat_logic::time::Instant;

use super::{ADMIN_SITE, Host, Worker};
use crate::log;

/// Slots looked at in one turn: some ten microseconds' work.
const SLOTS_EACH_TURN: u32 = 256;
/// Connections ended in one turn.
const ENDED_EACH_TURN: usize = 8;
/// Before it's done again: those who have been told that nothing follows may go by themselves.
const PAUSE: Duration = Duration::from_nanos(ROOM_REST_NS);
/// Between two messages.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// How far it is.
#[derive(Debug, Default)]
enum Step {
    /// Nobody waits for room.
    #[default]
    Rest,
    /// The first look has come to this slot.
    Count(Survey<Token>, u32),
    /// The second has.
    Choose(Survey<Token>, u32),
    /// These are to end.
    End(Vec<Token>),
    /// Those have.
    Pause,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Room {
    step: Step,
    next: Instant,
    /// The network that had most when somebody last looked.
    largest: Option<ClientPrefix>,
    /// Ended since the last message.
    idle: u64,
    heads: u64,
    said: Option<Instant>,
}

impl Default for Room {
    fn default() -> Room {
        Room { step: Step::Rest, next: Instant::NEVER, largest: None, idle: 0, heads: 0, said: None }
    }
}

impl Room {
    /// When to go on.
    pub(super) fn next(&self) -> Instant {
        self.next
    }
}

impl<H: Host> Worker<H> {
    /// Somebody waits at a listener, and there's no room.
    pub(super) fn want_room(&mut self) {
        // Whoever waited during the pause was let in, as some have gone.
        if matches!(self.room.step, Step::Rest | Step::Pause) {
            self.room.step = Step::Count(Survey::default(), 0);
            self.room.next = self.now;
        }
    }

    /// Goes on making room.
    pub(super) fn make_room(&mut self) {
        self.room.next = self.now;
        match std::mem::take(&mut self.room.step) {
            _ if self.drain.is_some() => self.room.next = Instant::NEVER,
            Step::Rest | Step::Pause => {
                self.room.next = Instant::NEVER;
                self.ask_who_waits();
            }
            Step::Count(mut survey, from) => {
                let to = from.saturating_add(SLOTS_EACH_TURN);
                for token in self.tokens(from, to) {
                    let is_dispensable = self.dispensable(token).map(|(.., is_due)| is_due);
                    survey.count(self.network(token), is_dispensable);
                }
                self.room.step = if (to as usize) < self.connections.slots() {
                    Step::Count(survey, to)
                } else {
                    let wanted = (self.connections_max / ROOM_PART).clamp(1, ROOM_MAX);
                    match survey.divide(wanted) {
                        Some(network) => self.room.largest = Some(network),
                        None => self.say_that_all_are_busy(),
                    }
                    Step::Choose(survey, 0)
                };
            }
            Step::Choose(mut survey, from) => {
                let to = from.saturating_add(SLOTS_EACH_TURN);
                for token in self.tokens(from, to) {
                    if let Some((what, since, true)) = self.dispensable(token) {
                        survey.consider(self.network(token), what, since, token);
                    }
                }
                self.room.step = match (to as usize) < self.connections.slots() {
                    true => Step::Choose(survey, to),
                    false => Step::End(survey.chosen()),
                };
            }
            Step::End(mut chosen) => {
                let left = chosen.len().saturating_sub(ENDED_EACH_TURN);
                chosen.split_off(left).into_iter().for_each(|token| self.displace(token));
                if chosen.is_empty() {
                    self.room.step = Step::Pause;
                    self.room.next = self.now.after(PAUSE);
                    self.say_who_made_room();
                } else {
                    self.room.step = Step::End(chosen);
                }
            }
        }
    }

    fn tokens(&self, from: u32, to: u32) -> Vec<Token> {
        (from..to.min(self.connections.slots() as u32)).filter_map(|index| self.connections.token(index)).collect()
    }

    fn network(&self, token: Token) -> ClientPrefix {
        let client = self.connections[token].client;
        ClientPrefix::of(client.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |client| client.ip()))
    }

    /// What a connection loses if it ends now, since when it has been so, and whether that is for long enough; `None` if it would lose more than its
    /// place: a request or a reply. What a dispatcher has lent, or asks by, is the dispatcher's to end.
    fn dispensable(&mut self, token: Token) -> Option<(Dispensable, Instant, bool)> {
        let connection = self.connections.get(token)?;
        let flags = connection.flags;
        let is_wanted = flags.queued || flags.held || flags.unread || flags.sending || flags.awaiting || flags.pausing;
        let is_leaving = flags.closing || flags.departing || flags.leaving || flags.elsewhere;
        if connection.exchange.is_some() || is_wanted || is_leaving || connection.site == ADMIN_SITE {
            return None;
        }
        let since = connection.http.waits_since()?;
        let (what, least_ns) = if connection.http.is_lingering() {
            (Dispensable::Ended, ROOM_REST_NS)
        } else if connection.http.is_idle() && connection.http.request_count() > 0 && connection.inbox.is_empty() {
            (Dispensable::Idle, ROOM_REST_NS)
        } else {
            (Dispensable::Head, ROOM_HEAD_NS)
        };
        let is_due = self.now.ns.saturating_sub(since.ns) >= least_ns;
        (!self.is_from_cluster(token) && !self.is_lent(token)).then_some((what, since, is_due))
    }

    /// Ends a connection that is still dispensable.
    fn displace(&mut self, token: Token) {
        let Some((what, since, true)) = self.dispensable(token) else { return };
        let connection = &mut self.connections[token];
        match what {
            // Counted when it was told, or no loss.
            Dispensable::Ended => return self.close(token),
            Dispensable::Idle => self.room.idle += 1,
            Dispensable::Head => self.room.heads += 1,
        }
        self.metrics.displaced.increment();
        let has_read = self.now.ns.saturating_sub(since.ns) >= ROOM_IDLE_NS
            && self.reactor.unacknowledged_bytes(connection.socket) == 0;
        if what == Dispensable::Idle && has_read {
            return self.close(token);
        }
        let expired = connection.http.expire(self.now);
        self.end_expired(token, expired);
    }

    fn say_who_made_room(&mut self) {
        if let Some(network) = self.room.largest
            && self.room.idle + self.room.heads > 0
            && self.may_say()
        {
            let (idle, heads) = (std::mem::take(&mut self.room.idle), std::mem::take(&mut self.room.heads));
            self.say(format_args!(
                "{idle} that were idle and {heads} without a whole request have been ended, most lately of {network}"
            ));
        }
    }

    fn say_that_all_are_busy(&mut self) {
        if self.may_say() {
            self.say(format_args!("all are needed, and new ones wait"));
        }
    }

    /// Whether the last message is old enough for another.
    fn may_say(&mut self) -> bool {
        let is_due = self.room.said.is_none_or(|said| self.now.since(said) >= SAID_EVERY);
        if is_due {
            self.room.said = Some(self.now);
        }
        is_due
    }

    fn say(&self, what: Arguments<'_>) {
        log::warning(format_args!(
            "there's no room for more than {} connections of a worker: {what}; raise limits.connections, or the limit on open files where that leaves \
             room for fewer",
            self.connections_max
        ));
    }
}
