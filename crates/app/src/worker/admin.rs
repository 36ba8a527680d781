//! The admin address: `/metrics` and `/health`.

use leat_host::reactor::Token;
use leat_logic::http::Status;

use super::reply::Body;
use super::{Host, Worker};

impl<H: Host> Worker<H> {
    pub(super) fn reply_admin(&mut self, token: Token) {
        let path = self.connections[token].exchange.as_ref().map(|exchange| exchange.path.clone()).unwrap_or_default();
        match &path[..] {
            b"/metrics" => {
                self.metrics.cache_bytes.set(self.cache.bytes() as u64);
                let text = self.server_metrics.render();
                self.reply_text(token, Status::OK, "text/plain; version=0.0.4; charset=utf-8", text);
            }
            b"/health" => {
                let (status, text) = match (&self.drain, self.spreads_nothing()) {
                    (Some(_), _) => (Status::SERVICE_UNAVAILABLE, "draining\n"),
                    // Who routes packets may ask here where to.
                    (None, true) => (Status::SERVICE_UNAVAILABLE, "connections aren't spread over nodes\n"),
                    (None, false) => (Status::OK, "well\n"),
                };
                self.reply_text(token, status, "text/plain; charset=utf-8", text.into());
            }
            b"/" => {
                let page = "<!doctype html><html lang=en><meta charset=utf-8><title>leat</title><h1>leat</h1>\
                            <ul><li><a href=/health>health</a><li><a href=/metrics>metrics</a></ul>";
                self.reply_text(token, Status::OK, "text/html; charset=utf-8", page.into());
            }
            _ => self.reply_error(token, Status::NOT_FOUND),
        }
    }

    fn reply_text(&mut self, token: Token, status: Status, content_type: &str, text: String) {
        let lines =
            format!("Cache-Control: no-store\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n", text.len());
        self.reply(token, status, lines.as_bytes(), Body::whole(&text.into()));
    }
}
