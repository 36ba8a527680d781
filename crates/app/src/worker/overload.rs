//! What becomes of requests when there is more to do than can be done: `Admission` decides, here requests are put before it and refused.

use std::time::Duration;

use bytes::Bytes;
use leat_host::reactor::{Reactor, Token};
use leat_logic::admission::{Refusal, Verdict, limits::RETRY_AFTER_S};
use leat_logic::http::Status;
use leat_logic::schedule::{Cost, LeafId, Operation};
use leat_logic::time::Instant;

use super::exchange::{Exchange, Standing};
use super::reply::Body;
use super::{File, Host, Stage, UNKNOWN_SITE, Worker};

/// How the mean cost of refusals moves with each.
const COST_SHIFT: u32 = 4;

/// Why a connection is held no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoldEnd {
    /// Its time is over.
    Over,
    /// There's room, and it has just asked.
    Fresh,
    /// There's room for what it asks next; what it has asked is too old.
    Stale,
}

/// A refusal's field lines and content, made once: being cheap is what it's for.
pub(super) struct RefusalText {
    lines: Vec<u8>,
    content: Bytes,
}

impl RefusalText {
    pub(super) fn new() -> RefusalText {
        let content = Bytes::from_static(b"The server is busy: try again in a moment.\n");
        let length = content.len();
        let lines = format!(
            "Retry-After: {RETRY_AFTER_S}\r\nCache-Control: no-store\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: {length}\r\n"
        );
        RefusalText { lines: lines.into_bytes(), content }
    }
}

impl<H: Host> Worker<H> {
    /// A request is known: it waits for its turn, or is refused.
    pub(super) fn admit(&mut self, token: Token) {
        let is_check = self.is_check(token);
        let connection = &mut self.connections[token];
        let Some(exchange) = connection.exchange.as_mut() else { return };
        let Some(site) = &exchange.site else { return };
        if is_check {
            // A node that has too much to do isn't ill: others would have its part as well.
            exchange.is_check = true;
            exchange.queued = exchange.started;
            return self.queue(Stage::Serve, token);
        }
        let site = site.number as usize;
        self.admission.count_connection(site, &mut connection.last_asked, self.now);
        let is_let_go = std::mem::take(&mut connection.flags.let_go);
        let verdict = if std::mem::take(&mut connection.flags.was_hidden) {
            // It has waited in the kernel, unless it has come since.
            let since_ns = self.reactor.since_arrival(connection.socket).as_nanos() as u64;
            exchange.started = exchange.started.min(Instant { ns: self.now.ns.saturating_sub(since_ns) });
            self.admission.arrive_late(site, exchange.started, self.now, is_let_go)
        } else {
            self.admission.arrive(site, self.now)
        };
        let parked_us = std::mem::take(&mut connection.parked_us);
        exchange.queued = exchange.started.after(Duration::from_micros(parked_us.into())).min(self.now);
        match verdict {
            Verdict::Admit => {
                exchange.standing = Standing::Waiting;
                self.queue(Stage::Serve, token);
            }
            Verdict::Refuse(refusal) => self.refuse(token, Stage::Receive, refusal),
        }
    }

    /// Whether a connection is this node's check of itself. Nobody else has the port it comes from, as long as it's there.
    fn is_check(&self, token: Token) -> bool {
        if !self.shared.is_checked() {
            return false;
        }
        let client = self.client(token).filter(|client| self.shared.is_check_port(client.port()));
        let own = || self.config.cluster.own_node().map_or(&[][..], |node| &node.address);
        client.is_some_and(|client| own().contains(&client.ip().to_canonical()))
    }

    /// The tree has chosen a request: whether it's still worth serving. If not, it has been refused.
    pub(super) fn start(&mut self, token: Token) -> bool {
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return false };
        if exchange.standing != Standing::Waiting {
            return true;
        }
        let Some(site) = &exchange.site else { return true };
        site.metrics.count_delay(self.now.since(exchange.queued));
        let number = site.number;
        let verdict = self.admission.start(number as usize, exchange.queued, self.now);
        if verdict == Verdict::Admit {
            exchange.standing = Standing::Started;
        }
        self.had_turn(number);
        self.late.count_turn(number, self.now);
        if !self.holds.is_empty() {
            self.end_holds_early(number);
        }
        match verdict {
            Verdict::Admit => true,
            Verdict::Refuse(refusal) => {
                self.refuse(token, Stage::Serve, refusal);
                false
            }
        }
    }

    /// A reply that takes turns to be sent is ready: it waits for the first, or is refused. What another server may have been told of isn't any more.
    pub(super) fn await_sending(&mut self, token: Token) {
        if let Some(exchange) = self.connections[token].exchange.as_mut()
            && exchange.standing == Standing::Started
            && exchange.resource.is_none()
            && let Some(site) = &exchange.site
        {
            if let Verdict::Refuse(refusal) = self.admission.reply(site.number as usize, self.now) {
                return self.refuse_reply(token, refusal);
            }
            exchange.standing = Standing::Replied;
        }
        self.queue(Stage::Transmit, token);
    }

    /// The tree has chosen a reply of which nothing has been sent: whether it's still worth sending. If not, it has been refused.
    pub(super) fn begin_sending(&mut self, token: Token) -> bool {
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return true };
        let (Standing::Replied, Some(site)) = (exchange.standing, &exchange.site) else { return true };
        exchange.standing = Standing::Started;
        site.metrics.count_delay(self.now.since(exchange.replied));
        match self.admission.send(site.number as usize, exchange.replied, self.now) {
            Verdict::Admit => true,
            Verdict::Refuse(refusal) => {
                self.refuse_reply(token, refusal);
                false
            }
        }
    }

    /// Answers 503 instead of a reply of which nothing has been sent.
    fn refuse_reply(&mut self, token: Token, refusal: Refusal) {
        if let Some(exchange) = self.connections[token].exchange.as_mut() {
            exchange.pieces.clear();
            exchange.unchecked = None;
        }
        self.refuse(token, Stage::Transmit, refusal);
    }

    /// Answers 503. The connection is kept, but not looked at before its slot comes: a client that asks again at once costs no more than
    /// one that waits. One that would ask again by another connection isn't held by that, so it's held before: it hears of the refusal when its slot
    /// comes, or has waited for as long as a request may, unless there's room before.
    fn refuse(&mut self, token: Token, stage: Stage, refusal: Refusal) {
        let connection = &mut self.connections[token];
        let Some(exchange) = connection.exchange.as_mut() else { return };
        exchange.standing = Standing::Apart;
        exchange.refusal = Some(refusal);
        exchange.run = None;
        exchange.is_passed_on = false;
        if connection.http.request_count() == 1 {
            self.admission.turn_away(connection.site as usize, self.now);
        }
        if refusal.hold_ns > 0 && !connection.flags.held {
            let until = Instant { ns: self.now.ns.saturating_add(refusal.hold_ns) };
            let told_by = self.admission.may_wait_until(connection.site as usize, exchange.queued);
            let is_told_later = stage != Stage::Transmit && connection.http.is_last_request() && self.now < told_by;
            connection.flags.held = true;
            connection.flags.asked = is_told_later;
            connection.held_until = if is_told_later { until.min(told_by) } else { until };
            self.holds.add(connection.site, token, connection.held_until);
            if is_told_later {
                exchange.standing = Standing::Held(stage);
                self.holds.ask(connection.site, token, self.now);
                return;
            }
        }
        self.tell_of_refusal(token, stage);
    }

    /// Tells a client that was held of its refusal. Whether it was.
    pub(super) fn refuse_held(&mut self, token: Token) -> bool {
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return false };
        let Standing::Held(stage) = exchange.standing else { return false };
        exchange.standing = Standing::Apart;
        self.tell_of_refusal(token, stage);
        true
    }

    fn tell_of_refusal(&mut self, token: Token, stage: Stage) {
        if let Some(site) = self.connections[token].exchange.as_ref().and_then(|exchange| exchange.site.as_ref()) {
            site.metrics.stages[stage as usize].refused.increment();
        }
        let text = self.refusal.clone();
        self.reply(token, Status::SERVICE_UNAVAILABLE, &text.lines, Body::whole(&text.content));
    }

    /// Looks again at connections whose time has come, and at some of each site's that has nothing waiting.
    pub(super) fn end_holds(&mut self) {
        for (until, token) in self.holds.take_ended(self.now) {
            if self.connections.get(token).is_some_and(|connection| connection.held_until == until) {
                self.end_hold(token, HoldEnd::Over);
            }
        }
        self.holds.sites().into_iter().for_each(|site| self.end_holds_early(site));
    }

    /// Has some ask whom a site has refused, if it has nothing waiting: so it doesn't lose what it's due.
    fn end_holds_early(&mut self, site: u32) {
        let number = site as usize;
        if self.admission.counts(number).waiting > 0 {
            return;
        }
        for _ in 0..self.admission.room(number) {
            if let Some(token) = self.holds.take_fresh(site, self.now) {
                self.end_hold(token, HoldEnd::Fresh);
            } else if self.holds.has_asked(site) {
                if let Err(at) = self.admission.let_go(number, self.now) {
                    return self.holds.look_at(at);
                }
                // Of some who have asked the time was over since.
                while let Some(token) = self.holds.take_stale(site)
                    && !self.end_hold(token, HoldEnd::Stale)
                {}
            }
        }
    }

    /// Whether it was held until now.
    fn end_hold(&mut self, token: Token, end: HoldEnd) -> bool {
        let Some(connection) = self.connections.get(token) else { return false };
        let flags = &mut connection.flags;
        if !std::mem::take(&mut flags.held) || flags.closing {
            return false;
        }
        if let Some(exchange) = connection.exchange.as_mut() {
            if !matches!(exchange.standing, Standing::Held(_)) {
                return false;
            }
            if end == HoldEnd::Fresh && self.admission.arrive(connection.site as usize, self.now) == Verdict::Admit {
                exchange.standing = Standing::Waiting;
                exchange.refusal = None;
                exchange.queued = self.now;
            }
            self.queue(Stage::Serve, token);
            return true;
        }
        let has_asked = !connection.inbox.is_empty();
        flags.was_hidden = end != HoldEnd::Fresh && (has_asked || !flags.receiving);
        flags.let_go = end == HoldEnd::Stale;
        if has_asked || flags.ended {
            self.queue(Stage::Receive, token);
        } else {
            self.arm_receive(token);
        }
        true
    }

    /// Something has come on a connection, or had when it was refused, that is to be looked at later.
    pub(super) fn ask_while_held(&mut self, token: Token) {
        let connection = &mut self.connections[token];
        if connection.flags.held
            && connection.exchange.is_none()
            && !std::mem::replace(&mut connection.flags.asked, true)
        {
            self.holds.ask(connection.site, token, self.now);
        }
    }

    /// An event has refused a request: says who pays for all that the request has cost, of which a part has been charged to unknown work already.
    /// Refusals that the budget covers are nobody's, so that what sites get done follows their weights however much of what they're asked they refuse.
    pub(super) fn settle_refusal(&mut self, token: Token, leaf: LeafId, refusal: Refusal, cost_ns: (u64, u64)) {
        let (cost_ns, unknown_ns) = cost_ns;
        let is_first = self.connections[token].http.request_count() == 1;
        let connecting_ns = self.meter.price(Operation::Accept, 0) + self.meter.price(Operation::Close, 0);
        let whole_ns = cost_ns + if is_first { connecting_ns } else { 0 };
        self.refusal_ns = self.refusal_ns - (self.refusal_ns >> COST_SHIFT) + (whole_ns >> COST_SHIFT);
        self.admission.set_refusal_cost(Cost::from_ns(self.refusal_ns));
        if refusal.is_covered {
            let nobody = self.leaves[UNKNOWN_SITE as usize][0];
            self.tree.return_to_keeper(leaf, nobody, unknown_ns);
            self.tree.transfer(leaf, nobody, cost_ns - unknown_ns);
            self.meter.transfer(leaf, nobody, cost_ns);
        }
    }

    /// A request has become something that isn't one and may last for hours: it keeps no other out, and what it costs from now on says nothing of requests.
    pub(super) fn leave_requests(&mut self, token: Token) {
        let Some(mut exchange) = self.connections[token].exchange.take() else { return };
        self.forget(&exchange);
        exchange.standing = Standing::Apart;
        self.connections[token].exchange = Some(exchange);
    }

    /// An exchange is over, however it ended.
    pub(super) fn forget(&mut self, exchange: &Exchange<File<H>>) {
        let Some(site) = &exchange.site else { return };
        match exchange.standing {
            Standing::Apart | Standing::Held(_) => {}
            Standing::Waiting => self.admission.abandon(site.number as usize, self.now),
            Standing::Replied => self.admission.abandon_reply(site.number as usize, self.now),
            Standing::Started => self.admission.finish(site.number as usize, Cost::from_ns(exchange.cost_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_how_long_it_is() {
        let text = RefusalText::new();
        let lines = String::from_utf8(text.lines).unwrap();
        assert!(lines.contains(&format!("Content-Length: {}\r\n", text.content.len())), "{lines}");
        assert!(lines.starts_with(&format!("Retry-After: {RETRY_AFTER_S}\r\n")) && lines.ends_with("\r\n"), "{lines}");
    }
}
