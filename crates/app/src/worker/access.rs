//! Requests that a site's clients may not make, or not so often: `admission::judge` decides, here they're answered, before anything is looked for.

use leat_host::reactor::Token;
use leat_logic::admission::{Denial, judge};
use leat_logic::http::{Request, Status};

use super::{Host, Worker};

impl<H: Host> Worker<H> {
    /// Whether the request in hand may be served; else it's answered when it has its turn. Looked at once for each.
    pub(super) fn let_in(&mut self, token: Token) -> bool {
        let Some(exchange) = self.connections[token].exchange.as_ref() else { return false };
        let is_open = exchange.site.as_ref().is_none_or(|site| site.access.is_empty());
        if is_open || exchange.is_let_in || exchange.error.is_some() {
            return true;
        }
        let client = Request::read_again(&exchange.head).and_then(|request| self.asking(token, &request));
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return false };
        let Some(site) = exchange.site.clone() else { return true };
        let Err(denial) = judge(&site.access, &exchange.path, client.map(|client| client.ip()), self.now) else {
            exchange.is_let_in = true;
            return true;
        };
        if !self.start(token) {
            return false;
        }
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return false };
        site.metrics.denied[denial.index()].increment();
        let status = match denial {
            Denial::Address => Status::FORBIDDEN,
            Denial::Rate(after) => {
                let seconds = after.as_millis().div_ceil(1000).max(1);
                exchange.error_fields = format!("Retry-After: {seconds}\r\n").into_bytes();
                Status::TOO_MANY_REQUESTS
            }
        };
        self.reply_error(token, status);
        false
    }
}
