//! After a reply: counts and the access log's line.

use leat_host::reactor::Token;
use leat_logic::http::Request;
use leat_logic::time::Instant;

use super::exchange::Exchange;
use super::{File, Host, Worker};
use crate::access_log::Record;
use crate::metrics::TIME_BOUNDS_US;

/// Lines wait at most so long in a worker's memory.
pub(super) const LOG_DELAY: std::time::Duration = std::time::Duration::from_millis(100);

impl<H: Host> Worker<H> {
    /// Counts a request whose reply ended at `ended`, whole or not.
    pub(super) fn account(&mut self, token: Token, exchange: &Exchange<File<H>>, ended: Instant, is_complete: bool) {
        if self.cluster.is_some() && is_complete {
            self.note_reply(exchange);
        }
        let Some(site) = &exchange.site else { return };
        let time_us = u64::try_from(ended.since(exchange.started).as_micros()).unwrap_or(u64::MAX);
        let metrics = &site.metrics;
        let class = usize::from(exchange.status / 100).clamp(1, 5) - 1;
        metrics.requests[class].increment();
        metrics.body_bytes.add(exchange.body_bytes);
        metrics.times[TIME_BOUNDS_US.iter().take_while(|&&bound| time_us > bound).count()].increment();
        metrics.time_us.add(time_us);
        let Some(log) = &site.log else { return };
        let connection = &self.connections[token];
        let head = &exchange.head;
        let line_end = head.iter().position(|&byte| byte == b'\r').unwrap_or(head.len());
        let mut record = Record {
            date: self.date.as_bytes(),
            peer: self.client(token).map(|address| address.ip()),
            site: &site.name,
            request_line: head[..line_end].trim_ascii_start(),
            host: b"",
            status: exchange.status,
            body_bytes: exchange.body_bytes,
            is_complete,
            time_us,
            request_number: connection.http.request_count(),
            referer: b"",
            user_agent: b"",
        };
        if let Some(request) = Request::read_again(head) {
            record.host = request.host.unwrap_or_default();
            record.referer = request.referer.unwrap_or_default();
            record.user_agent = request.user_agent.unwrap_or_default();
        }
        metrics.log_lines_dropped.add(log.add(&record));
        self.flush_at = self.flush_at.min(self.now.after(LOG_DELAY));
    }

    /// Passes the access logs' lines on.
    pub(super) fn flush_logs(&mut self) {
        for site in &self.sites {
            if let Some(log) = &site.log {
                site.metrics.log_lines_dropped.add(log.flush());
            }
        }
        self.flush_at = Instant::NEVER;
    }
}
