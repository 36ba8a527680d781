//! Who is let in when there is more to do than can be done, and what each may use: queue delay, not queue length, is what is controlled
//! (decision 24). Decides whether a request is served or refused and whether to read and accept on; how a refusal is sent, and in which
//! order what was let in is served, is for others.
//!
//! | file | decides |
//! |---|---|
//! | `site` | whether one site's requests have waited for too long |
//! | `crowd` | how many connections ask for one site |
//! | `in_flight` | how many requests of a site are in flight on all workers |
//! | `refusal` | how many refusals a worker can afford |
//! | `holds` | who of those that were refused is served or asks anew first |
//! | `door` | whether connections are accepted while many are turned away |
//! | `shedding` | what part of those who connect is let in |
//! | `aggregate` | how much a site or an owner may send, read, compute and hold on all workers |
//! | `access` | whether a client may ask for a path, by its address and how often it asks |
//! | `client_rates` | how often each client has asked lately |
//! | `quota` | when one worker goes on, and how much it may use at once |
//! | `room` | whose connections end so that new ones find room |
//! | `unread` | who is received from while too much memory is held |
//! | `limits` | the numbers |

mod access;
mod aggregate;
mod client_rates;
mod crowd;
mod door;
mod holds;
mod in_flight;
pub mod limits;
mod quota;
mod refusal;
mod room;
mod shedding;
mod site;
mod unread;

pub use access::{AccessRule, Denial, judge};
pub use aggregate::{Aggregate, Rate, Resource};
pub use client_rates::{ClientRate, ClientRates};
pub use crowd::LastAsked;
pub use holds::Holds;
pub use in_flight::InFlight;
pub use quota::Quotas;
pub use refusal::Refusal;
pub use room::{Dispensable, Survey};
pub use shedding::{LetIn, Shedding};
pub use site::{SiteCounts, SiteLimits, Standing};
pub use unread::{Next, Unread};

use std::sync::Arc;

use crate::schedule::Cost;
use crate::time::Instant;
use door::Door;
use refusal::RefusalBudget;
use site::Site;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It's served.
    Admit,
    /// It isn't, and no longer counts as in flight.
    Refuse(Refusal),
}

/// One worker's admission control. Sites are named by their number in the worker.
#[derive(Debug)]
pub struct Admission {
    sites: Vec<Site>,
    budget: RefusalBudget,
    /// Of periods in which connections are counted.
    crowd_marks: u32,
    /// The worker does something else for a while.
    is_held_up: bool,
    door: Door,
    /// The sites that stand for work whose site isn't known.
    unknown: Vec<usize>,
}

impl Admission {
    /// A worker without sites, where a refusal costs `refusal`.
    #[must_use]
    pub fn new(refusal: Cost) -> Admission {
        Admission {
            sites: Vec::new(),
            budget: RefusalBudget::new(refusal),
            crowd_marks: 0,
            is_held_up: false,
            door: Door::default(),
            unknown: Vec::new(),
        }
    }

    /// Sets what is asked of a site, new or known. Numbers that were left out belong to sites that are served without limits.
    pub fn set_site(&mut self, site: usize, limits: SiteLimits) {
        if site >= self.sites.len() {
            self.sites.resize_with(site + 1, || Site::new(SiteLimits::default()));
        }
        self.sites[site].limits = limits;
        self.sites[site].is_held_up = self.is_held_up;
        self.unknown.retain(|&unknown| unknown != site);
        if limits.standing == Standing::Unknown {
            self.unknown.push(site);
        }
    }

    /// What becomes of a request by what its site says.
    fn judge(&mut self, site: usize, now: Instant, goes_on: impl FnOnce(&mut Site, &RefusalBudget) -> bool) -> Verdict {
        match self.sites.get_mut(site).map(|known| (goes_on(known, &self.budget), known)) {
            Some((false, known)) => Verdict::Refuse(self.budget.refuse(&mut known.slots, known.share, now)),
            _ => Verdict::Admit,
        }
    }

    /// Counts a site's requests together with those of other workers, which have the same counter.
    pub fn count_with(&mut self, site: usize, in_flight: Arc<InFlight>) {
        if let Some(site) = self.sites.get_mut(site) {
            site.count_with(in_flight);
        }
    }

    /// How long a request of a site's may wait; `u64::MAX` for any time.
    #[must_use]
    pub fn queue_delay_max_ns(&self, site: usize) -> u64 {
        self.sites.get(site).map_or(u64::MAX, |site| site.limits.queue_delay_max_ns)
    }

    /// Until when a request that arrived then may wait for its turn; whoever waits longer may be refused by [`Admission::start`] before that comes.
    #[must_use]
    pub fn may_wait_until(&self, site: usize, arrived: Instant) -> Instant {
        self.sites.get(site).map_or(Instant::NEVER, |site| site.may_wait_until(arrived))
    }

    /// Tells what part of the worker a site is entitled to among those that want something, and what part it has used, both over the last
    /// interval and from 0 to 1. Until told, a site is taken to use all of its share.
    pub fn set_share(&mut self, site: usize, given: f64, used: f64) {
        if let Some(site) = self.sites.get_mut(site) {
            site.set_share(given, used);
        }
    }

    /// Tells whether the worker does something else for a while, which is over when it's done and none of the requests is about, as handing idle connections over
    /// by the thousand. Requests may wait behind that as in a round of few clients.
    pub fn set_held_up(&mut self, is_held_up: bool) {
        if self.is_held_up != is_held_up {
            self.is_held_up = is_held_up;
            self.sites.iter_mut().for_each(|site| site.is_held_up = is_held_up);
        }
    }

    /// Tells what a refusal costs by now, receiving the request included, and accepting and closing where connections come for each request: the
    /// cost model knows.
    pub fn set_refusal_cost(&mut self, refusal: Cost) {
        self.budget.set_cost(refusal);
    }

    /// A connection asks for a site, before its request arrives; `last` is what was written there when it last did. Sites of which this isn't told
    /// are taken to be asked by any number.
    pub fn count_connection(&mut self, site: usize, last: &mut LastAsked, now: Instant) {
        if let Some(known) = self.sites.get_mut(site) {
            known.crowd.add(last, &mut self.crowd_marks, now);
        }
    }

    /// A connection has gone to another server or worker, where it's counted.
    pub fn uncount_connection(&mut self, site: usize, last: LastAsked) {
        if let Some(known) = self.sites.get_mut(site) {
            known.crowd.remove(last);
        }
    }

    /// A request's head is known, and it's about to be queued. Admitted, it's in flight until [`Admission::finish`].
    pub fn arrive(&mut self, site: usize, now: Instant) -> Verdict {
        self.judge(site, now, |known, _| known.arrive())
    }

    /// As [`Admission::arrive`], for a request that may have waited where the worker couldn't see it: on a connection that was held after a
    /// refusal, or in the listener's queue. While so many of its site's are refused that connections are held, what is late by now is, if it's worth it:
    /// a late reply is what refusals are there to prevent. It's not held again where there's room for what it asks next, which is fresh, or it was let go
    /// for that. Of a site that refuses hardly anybody, who waited for others' flood is served.
    pub fn arrive_late(&mut self, site: usize, arrived: Instant, now: Instant, is_let_go: bool) -> Verdict {
        let Some(known) = self.sites.get_mut(site) else { return Verdict::Admit };
        let is_late = now.ns.saturating_sub(arrived.ns) > known.late_ns();
        let may_be_refused = known.limits.standing == Standing::Ordinary && known.is_worth_refusing(self.budget.cost());
        if !is_late || !may_be_refused || known.slots.hold_ns(now) == 0 {
            return self.arrive(site, now);
        }
        known.refused_late += 1;
        let refusal = self.budget.refuse(&mut known.slots, known.share, now);
        let hold_ns = if is_let_go || known.has_room(now) { 0 } else { refusal.hold_ns };
        Verdict::Refuse(Refusal { hold_ns, ..refusal })
    }

    /// For how many requests of a site's there's room that has none waiting: they'd have their turn soon. At least one.
    #[must_use]
    pub fn room(&self, site: usize) -> usize {
        self.sites.get(site).map_or(1, Site::room)
    }

    /// Lets one of a site's go that was held and has asked for something too old to be served, to be refused again at once and ask anew.
    ///
    /// # Errors
    /// Enough have been for the time being; when the next may be.
    pub fn let_go(&mut self, site: usize, now: Instant) -> Result<(), Instant> {
        self.sites.get_mut(site).map_or(Ok(()), |site| site.let_go(now))
    }

    /// Whether so much was refused lately that requests may wait where the worker can't see it: [`Admission::arrive_late`] is for them.
    #[must_use]
    pub fn is_holding(&self, now: Instant) -> bool {
        self.budget.is_holding(now)
    }

    /// The tree has chosen to serve a request that arrived at `arrived`, by the kernel's word where that is known. Each request that was admitted
    /// starts once, unless it's finished without.
    pub fn start(&mut self, site: usize, arrived: Instant, now: Instant) -> Verdict {
        self.judge(site, now, |known, budget| {
            let is_worth_refusing =
                known.is_worth_refusing(budget.cost()) && (known.has_many_requests() || budget.is_holding(now));
            known.start(arrived, now, is_worth_refusing)
        })
    }

    /// The reply to a request that has started takes turns to be sent, and is about to be queued for the first. Admitted, [`Admission::send`] follows,
    /// or [`Admission::abandon_reply`].
    pub fn reply(&mut self, site: usize, now: Instant) -> Verdict {
        self.judge(site, now, |known, budget| {
            let is_worth_refusing = known.is_worth_refusing(budget.cost());
            known.reply(is_worth_refusing)
        })
    }

    /// The tree has chosen to send the first of a reply that was ready at `ready`. A request that is refused now isn't to be finished.
    pub fn send(&mut self, site: usize, ready: Instant, now: Instant) -> Verdict {
        self.judge(site, now, |known, budget| {
            let is_worth_refusing =
                known.is_worth_refusing(budget.cost()) && (known.has_many_replies() || budget.is_holding(now));
            known.send(ready, now, is_worth_refusing)
        })
    }

    /// A request that had started is done, or its client has gone; `cost` is what it cost in all.
    pub fn finish(&mut self, site: usize, cost: Cost) {
        if let Some(site) = self.sites.get_mut(site) {
            site.finish(cost);
        }
    }

    /// The client of a request that was admitted and hasn't started has gone.
    pub fn abandon(&mut self, site: usize, now: Instant) {
        if let Some(site) = self.sites.get_mut(site) {
            site.abandon(now);
        }
    }

    /// The client of a request whose reply waits to be sent has gone.
    pub fn abandon_reply(&mut self, site: usize, now: Instant) {
        if let Some(site) = self.sites.get_mut(site) {
            site.abandon_reply(now);
        }
    }

    /// Whether a site's connections should be read. Ask again after each `start`, `finish` and `abandon` of that site: it becomes true when its
    /// queue has shrunk, which needs no timer.
    #[must_use]
    pub fn is_reading(&self, site: usize) -> bool {
        self.sites.get(site).is_none_or(|site| !site.is_overloaded() || site.is_worth_refusing(self.budget.cost()))
    }

    /// The first request of a connection has been refused.
    pub fn turn_away(&mut self, site: usize, now: Instant) {
        self.door.turn_away(site, self.budget.slot_ns(), now);
    }

    /// Whether connections should be accepted: not while work whose site isn't known waits for too long; and while as many are turned away as may be, only
    /// as long as little is waiting of a site that does so, so that nearly all who are let in are served. Ask every turn.
    #[must_use]
    pub fn is_accepting(&mut self, now: Instant) -> bool {
        let waiting_ns = |site: usize| self.sites.get(site).map_or(0, Site::waiting_ns);
        let has_enough = |site| waiting_ns(site) > limits::ACCEPTING_WAITING_NS_MAX;
        !self.door.is_shut(now, has_enough) && !self.unknown.iter().any(|&site| self.sites[site].is_overloaded())
    }

    /// Most of those who want to connect are dropped now.
    pub fn saw_crowd(&mut self, now: Instant) {
        self.door.saw_crowd(now);
    }

    /// Whether no more connections are to be let in than are served: [`Shedding`] says whose, and how many may wait in a listener's queue.
    #[must_use]
    pub fn lets_few_in(&mut self, now: Instant) -> bool {
        self.door.is_narrow(now)
    }

    /// Whether a site's requests wait for too long.
    #[must_use]
    pub fn is_overloaded(&self, site: usize) -> bool {
        self.sites.get(site).is_some_and(Site::is_overloaded)
    }

    /// What has happened to a site's requests so far.
    #[must_use]
    pub fn counts(&self, site: usize) -> SiteCounts {
        self.sites.get(site).map(Site::counts).unwrap_or_default()
    }
}
