//! The redirecting handler: sends clients to another place. Which one, `serve::redirect` says.

use leat_host::reactor::Token;
use leat_logic::http::{Request, rest_as_sent};

use super::super::{Host, Worker};
use crate::config;

impl<H: Host> Worker<H> {
    /// `named`: bytes of the path that name the handler.
    pub(super) fn redirect(&mut self, token: Token, redirect: &config::Redirect, named: usize) {
        if !self.start(token) {
            return;
        }
        let Some(exchange) = self.connections[token].exchange.as_ref() else { return };
        let Some(Request { target, .. }) = Request::read_again(&exchange.head) else { return };
        let location = redirect.to.location(&rest_as_sent(target.path, &exchange.path, named), target.query);
        let mut lines = Vec::with_capacity(location.len() + 128);
        lines.extend_from_slice(b"Location: ");
        lines.extend_from_slice(&location);
        lines.extend_from_slice(b"\r\n");
        self.reply_page(token, redirect.kind, lines);
    }
}
