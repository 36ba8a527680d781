//! What becomes of requests when there is more to do than can be done: `Admission` decides, here requests are put before it and refused.

use std::collections::VecDeque;

use bytes::Bytes;
use leat_host::reactor::{Reactor, Token};
use leat_logic::admission::{Refusal, Verdict, limits::RETRY_AFTER_S};
use leat_logic::http::Status;
use leat_logic::schedule::Cost;
use leat_logic::time::Instant;

use super::exchange::{Exchange, Standing};
use super::reply::Body;
use super::{File, Host, Stage, Worker};

/// Connections that aren't looked at for a while after a refusal, in the order in which that ends. Each connection is here once at most.
#[derive(Debug, Default)]
pub(super) struct Holds {
    queue: VecDeque<(Instant, Token)>,
}

impl Holds {
    /// When the first ends.
    pub(super) fn next(&self) -> Instant {
        self.queue.front().map_or(Instant::NEVER, |&(until, _)| until)
    }
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
        let connection = &mut self.connections[token];
        let Some(exchange) = connection.exchange.as_mut() else { return };
        let Some(site) = &exchange.site else { return };
        let site = site.number as usize;
        let verdict = if std::mem::take(&mut connection.flags.was_held) {
            // It has waited in the kernel, unless it has come since.
            let since_ns = self.reactor.since_arrival(connection.socket).as_nanos() as u64;
            exchange.started = exchange.started.min(Instant { ns: self.now.ns.saturating_sub(since_ns) });
            self.admission.arrive_after_hold(site, exchange.started, self.now)
        } else {
            self.admission.arrive(site, self.now)
        };
        match verdict {
            Verdict::Admit => {
                exchange.standing = Standing::Waiting;
                self.queue(Stage::Serve, token);
            }
            Verdict::Refuse(refusal) => self.refuse(token, refusal),
        }
    }

    /// The tree has chosen a request: whether it's still worth serving. If not, it has been refused.
    pub(super) fn start(&mut self, token: Token) -> bool {
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return false };
        if exchange.standing != Standing::Waiting {
            return true;
        }
        let Some(site) = &exchange.site else { return true };
        site.metrics.count_delay(self.now.since(exchange.started));
        match self.admission.start(site.number as usize, exchange.started, self.now) {
            Verdict::Admit => {
                exchange.standing = Standing::Started;
                true
            }
            Verdict::Refuse(refusal) => {
                self.refuse(token, refusal);
                false
            }
        }
    }

    /// Answers 503. The connection is kept, but not looked at before its slot comes: a client that asks again at once costs no more than
    /// one that waits.
    fn refuse(&mut self, token: Token, refusal: Refusal) {
        let connection = &mut self.connections[token];
        let Some(exchange) = connection.exchange.as_mut() else { return };
        exchange.standing = Standing::Apart;
        exchange.is_refusal = true;
        exchange.run = None;
        if let Some(site) = &exchange.site {
            site.metrics.refused.increment();
        }
        if refusal.hold_ns > 0 && !connection.flags.held {
            connection.flags.held = true;
            self.holds.queue.push_back((Instant { ns: self.now.ns.saturating_add(refusal.hold_ns) }, token));
        }
        let text = self.refusal.clone();
        self.reply(token, Status::SERVICE_UNAVAILABLE, &text.lines, Body::whole(&text.content));
    }

    /// Looks again at connections whose time has come.
    pub(super) fn end_holds(&mut self) {
        while let Some(&(until, token)) = self.holds.queue.front()
            && until <= self.now
        {
            self.holds.queue.pop_front();
            let Some(connection) = self.connections.get(token) else { continue };
            if !std::mem::take(&mut connection.flags.held) || connection.flags.closing || connection.exchange.is_some()
            {
                continue;
            }
            connection.flags.was_held = true;
            if connection.inbox.is_empty() && !connection.flags.ended {
                self.arm_receive(token);
            } else {
                self.queue(Stage::Receive, token);
            }
        }
    }

    /// An exchange is over, however it ended.
    pub(super) fn forget(&mut self, exchange: &Exchange<File<H>>) {
        let Some(site) = &exchange.site else { return };
        match exchange.standing {
            Standing::Apart => {}
            Standing::Waiting => self.admission.abandon(site.number as usize),
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
        assert!(lines.starts_with("Retry-After: 1\r\n") && lines.ends_with("\r\n"), "{lines}");
    }
}
