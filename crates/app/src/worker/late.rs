//! Requests whose turn hasn't come when they have waited for as long as they may: their clients are told then, and not when it comes, which may be never
//! where others go before them. How long that is, is `Admission`'s to say.

use std::collections::VecDeque;

use leat_host::reactor::Token;
use leat_logic::time::Instant;

use super::exchange::Standing;
use super::{Host, Stage, Worker};

/// Refused in one turn.
const REFUSED_EACH_TURN: usize = 16;

/// Requests that wait for their turn, and since when: by site number, in the order in which they came. Those that wait no more go with the next that has
/// its turn, so there are few.
#[derive(Debug)]
pub(super) struct Late {
    waiting: Vec<VecDeque<(Instant, Token)>>,
    /// When one of a site's last had its turn.
    turns: Vec<Instant>,
    next: Instant,
}

impl Default for Late {
    fn default() -> Late {
        Late { waiting: Vec::new(), turns: Vec::new(), next: Instant::NEVER }
    }
}

impl Late {
    /// When somebody may have waited for too long.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// All are about to be queued again.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.next = Instant::NEVER;
    }

    /// A request of a site's has had its turn.
    pub(super) fn count_turn(&mut self, site: u32, now: Instant) {
        if let Some(turn) = self.turns.get_mut(site as usize) {
            *turn = now;
        }
    }
}

impl<H: Host> Worker<H> {
    /// A request has been queued: it's refused in time if its turn doesn't come.
    pub(super) fn await_turn(&mut self, token: Token) {
        let connection = &self.connections[token];
        let (site, Some(exchange)) = (connection.site as usize, connection.exchange.as_deref()) else { return };
        if exchange.standing != Standing::Waiting {
            return;
        }
        let due = self.admission.may_wait_until(site, exchange.queued);
        if due == Instant::NEVER {
            return;
        }
        if site >= self.late.waiting.len() {
            self.late.waiting.resize_with(site + 1, VecDeque::new);
        }
        if site >= self.late.turns.len() {
            self.late.turns.resize(site + 1, Instant::default());
        }
        self.late.waiting[site].push_back((exchange.queued, token));
        self.late.next = self.late.next.min(due);
    }

    /// A request of a site's has had its turn: forgets it, and those before it that have gone.
    pub(super) fn had_turn(&mut self, site: u32) {
        while let Some(&(since, token)) = self.late.waiting.get(site as usize).and_then(VecDeque::front)
            && !self.waits_since(site, since, token)
        {
            self.late.waiting[site as usize].pop_front();
        }
    }

    /// Refuses those that have waited for too long, a few at once.
    pub(super) fn refuse_late(&mut self) {
        self.late.next = Instant::NEVER;
        let mut left = REFUSED_EACH_TURN;
        for site in 0..self.late.waiting.len() {
            loop {
                self.had_turn(site as u32);
                let Some(&(since, token)) = self.late.waiting[site].front() else { break };
                let due = self.admission.may_wait_until(site, since);
                if self.now < due || left == 0 {
                    self.late.next = self.late.next.min(due.max(self.now));
                    break;
                }
                left -= 1;
                self.late.waiting[site].pop_front();
                self.refuse_waiting(token, since);
            }
        }
    }

    fn waits_since(&mut self, site: u32, since: Instant, token: Token) -> bool {
        self.connections.get(token).is_some_and(|connection| {
            let (flags, exchange) = (connection.flags, connection.exchange.as_deref());
            let waits =
                |exchange: &super::Exchange<_>| exchange.standing == Standing::Waiting && exchange.queued == since;
            connection.site == site && flags.queued && !flags.parked && !flags.closing && exchange.is_some_and(waits)
        })
    }

    /// Its event stays in the tree, for nothing. If nothing of its site's has had a turn since it came, the next request on its connection would have none in
    /// which it's seen to be one: so that is closed.
    fn refuse_waiting(&mut self, token: Token, since: Instant) {
        let leaf = self.leaf(Stage::Serve, token);
        let connection = &mut self.connections[token];
        let site = connection.site as usize;
        connection.flags.queued = false;
        // As of none that is there.
        connection.queued_us = self.now_us;
        if self.late.turns.get(site).is_none_or(|&turn| turn < since) {
            connection.http.give_up_content();
        }
        let turn = self.late.turns.get(site).copied();
        if self.start(token) {
            return;
        }
        // That was none.
        if let Some(turn) = turn {
            self.late.turns[site] = turn;
        }
        let cost = self.meter.charge(leaf);
        self.tree.correct(leaf, i64::try_from(cost.ns).unwrap_or(i64::MAX));
        let exchange = self.connections.get(token).and_then(|connection| connection.exchange.as_mut());
        let Some(exchange) = exchange else { return };
        exchange.cost_ns += cost.ns;
        if let Some((refusal, cost_ns)) = exchange.take_refused() {
            self.settle_refusal(token, leaf, refusal, cost_ns);
        }
    }
}
