//! The admin address: `/metrics`, `/health`, and commands at `/ctl`. Those are the engine's to answer: they are left at its desk, and their connections
//! wait as for a file. Which requests are commands, and who may ask, is decided in `ctl::http`.

use leat_host::reactor::Token;
use leat_logic::http::{Method, Request, Status};

use super::control::Control;
use super::exchange::Answer;
use super::reply::Body;
use super::{Host, Stage, Worker};
use crate::ctl::http::{self, Told};

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
                            <ul><li><a href=/health>health</a><li><a href=/metrics>metrics</a><li><a href=/ctl/>commands</a></ul>";
                self.reply_text(token, Status::OK, "text/html; charset=utf-8", page.into());
            }
            _ => self.reply_error(token, Status::NOT_FOUND),
        }
    }

    /// Answers a command as the engine has said, or has the engine asked.
    pub(super) fn reply_command(&mut self, token: Token) {
        let connection = &mut self.connections[token];
        let Some(exchange) = connection.exchange.as_mut() else { return };
        if let Some(Answer::Told(told)) = exchange.answer.take() {
            return self.reply_told(token, *told);
        }
        let Some(request) = Request::read_again(&exchange.head) else { return };
        let is_read = matches!(request.method, Method::Get | Method::Head);
        match http::read(&exchange.path, &request, &self.config.admin) {
            Ok(asked) => {
                exchange.asks = true;
                let mailbox = self.mailbox.clone();
                self.desk.leave(asked, move |told| mailbox.send(Control::Told { token, told: Box::new(told) }));
            }
            Err(told) => {
                if !is_read {
                    // What comes with a change that isn't made is nobody's.
                    connection.http.give_up_content();
                }
                self.reply_told(token, told);
            }
        }
    }

    /// The engine has answered: the reply is written when the request has its turn.
    pub(super) fn command_answered(&mut self, token: Token, told: Box<Told>) {
        let exchange = self.connections.get(token).and_then(|connection| connection.exchange.as_mut());
        // The client may have gone meanwhile.
        if let Some(exchange) = exchange.filter(|exchange| exchange.asks && exchange.status == 0) {
            exchange.answer = Some(Answer::Told(told));
            self.queue(Stage::Serve, token);
        }
    }

    fn reply_told(&mut self, token: Token, told: Told) {
        let content_type = if told.is_json { "application/json" } else { "text/plain; charset=utf-8" };
        let lines = format!(
            "{}Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n",
            told.fields,
            told.text.len()
        );
        self.reply(token, told.status, lines.as_bytes(), Body::whole(&told.text.into()));
    }

    fn reply_text(&mut self, token: Token, status: Status, content_type: &str, text: String) {
        let lines =
            format!("Cache-Control: no-store\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n", text.len());
        self.reply(token, status, lines.as_bytes(), Body::whole(&text.into()));
    }
}
