//! After a reply: counts and the access log's line.

use std::rc::Rc;

use leat_host::reactor::Token;
use leat_logic::handoff::RequestId;
use leat_logic::http::Request;
use leat_logic::time::Instant;

use super::exchange::{Exchange, Piece, RequestName};
use super::settings::{Site, SiteKind};
use super::{File, Host, Worker};
use crate::access_log::Record;
use crate::config::Role;

/// Lines wait at most so long in a worker's memory.
pub(super) const LOG_DELAY: std::time::Duration = std::time::Duration::from_millis(100);
/// Stands for a status where nothing was answered, as in nginx's logs.
const CLIENT_GONE: u16 = 499;
/// No server of a cluster gives a request a longer name.
const NAME_BYTES_MAX: usize = 64;

impl<H: Host> Worker<H> {
    /// Counts a request whose reply ended at `ended`, whole or not.
    pub(super) fn account(&mut self, token: Token, exchange: &Exchange<File<H>>, ended: Instant, is_complete: bool) {
        if exchange.is_check {
            return;
        }
        if self.cluster.is_some() && is_complete {
            self.note_reply(exchange);
            self.may_rest(token);
        }
        let Some(site) = &exchange.site else { return };
        // Who answers it counts it. A dispatcher's nodes count under their own sites, and not under its one.
        if exchange.is_passed_on && site.kind != SiteKind::Cluster {
            return;
        }
        let time_us = u64::try_from(ended.since(exchange.started).as_micros()).unwrap_or(u64::MAX);
        let metrics = &site.metrics;
        let class = usize::from(exchange.status / 100).clamp(1, 6) - 1;
        metrics.requests[class].increment();
        let unsent_bytes = if is_complete { 0 } else { exchange.pieces.iter().map(Piece::left).sum() };
        let body_bytes = exchange.body_bytes.saturating_sub(unsent_bytes);
        metrics.body_bytes.add(body_bytes);
        metrics.count_request_time(time_us);
        if exchange.is_passed_on {
            return;
        }
        let other = if site.kind == SiteKind::Unknown { self.site_of_strangers(token) } else { None };
        let Some(log) = &other.as_ref().unwrap_or(site).log else { return };
        let drawn = if exchange.drawn == 0 { self.draw() } else { exchange.drawn };
        let connection = &self.connections[token];
        let name = self.name_of(token, exchange, drawn);
        // Empty lines may come before a request (RFC 9112, section 2.2).
        let head = exchange.head.trim_ascii_start();
        let line_end = head.iter().position(|&byte| byte == b'\r').unwrap_or(head.len());
        let request = Request::read_again(head);
        let peer = request.as_ref().map_or_else(|| self.client(token), |request| self.asking(token, request));
        let mut record = Record {
            date: self.date.as_bytes(),
            peer: peer.map(|address| address.ip()),
            site: &site.name,
            request_line: &head[..line_end],
            host: b"",
            status: exchange.status,
            body_bytes,
            is_complete,
            time_us,
            request_number: connection.http.request_count(),
            referer: b"",
            user_agent: b"",
            id: &name,
        };
        if let Some(request) = request {
            record.host = request.host.unwrap_or_default();
            record.referer = request.referer.unwrap_or_default();
            record.user_agent = request.user_agent.unwrap_or_default();
        }
        log.add(&record);
        self.flush_at = self.flush_at.min(self.now.after(LOG_DELAY));
    }

    /// The site in whose log requests stand that are no site's, where a connection was accepted.
    fn site_of_strangers(&self, token: Token) -> Option<Rc<Site>> {
        let listener = &self.listeners[self.connections[token].listener as usize].sites;
        listener.site_of_strangers().and_then(|number| self.sites.get(number as usize).cloned())
    }

    /// The client has gone while a handler was at work and had said nothing: who looks for what takes too long finds it in the log.
    pub(super) fn account_unanswered(&mut self, token: Token) {
        let is_unanswered = |exchange: &mut Box<Exchange<_>>| exchange.run.is_some() && exchange.status == 0;
        let Some(mut exchange) = self.connections[token].exchange.take_if(is_unanswered) else { return };
        exchange.status = CLIENT_GONE;
        self.account(token, &exchange, self.now, false);
        exchange.status = 0;
        self.connections[token].exchange = Some(exchange);
    }

    /// The name of the request in hand.
    pub(super) fn request_name(&self, token: Token) -> String {
        let exchange = self.connections[token].exchange.as_ref();
        exchange.map(|exchange| self.name_of(token, exchange, exchange.drawn).to_string()).unwrap_or_default()
    }

    /// Has the request in hand have a name: somebody else is about to be asked to answer it.
    pub(super) fn draw_name(&mut self, token: Token) {
        let drawn = self.draw();
        if let Some(exchange) = self.connections[token].exchange.as_mut().filter(|exchange| exchange.drawn == 0) {
            exchange.drawn = drawn;
        }
    }

    /// What a request is called. `drawn`: if it has no other name.
    pub(super) fn name_of<'a>(&self, token: Token, exchange: &'a Exchange<File<H>>, drawn: u64) -> RequestName<'a> {
        let told = || Request::read_again(&exchange.head)?.headers.get(b"x-request-id");
        let told = if self.is_from_cluster(token) { told() } else { None };
        match told.and_then(|name| std::str::from_utf8(name).ok()) {
            Some(name) if (1..=NAME_BYTES_MAX).contains(&name.len()) => RequestName::Told(name),
            _ => match self.flow_at(token) {
                Some(flow) => {
                    let number = self.connections[token].http.request_count();
                    RequestName::Flow(RequestId { flow, number })
                }
                None => RequestName::Drawn(drawn),
            },
        }
    }

    /// Whether a connection is another server's of this cluster, which says of a request what it knows.
    pub(super) fn is_from_cluster(&self, token: Token) -> bool {
        let is_node = self.config.role == Role::Node;
        is_node && self.client(token).is_some_and(|client| self.config.cluster.has_machine(client.ip().to_canonical()))
    }

    /// Passes the access logs' lines on.
    pub(super) fn flush_logs(&mut self) {
        for log in self.sites.iter().filter_map(|site| site.log.as_ref()) {
            log.flush();
        }
        self.flush_at = Instant::NEVER;
    }
}
