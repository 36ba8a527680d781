//! The burning handler: uses a given amount of processor time, in slices, and replies with a given number of bytes.

use std::time::Duration;

use bytes::Bytes;
use leat_host::reactor::Token;
use leat_logic::http::{Request, Status};
use leat_logic::schedule::Cost;
use leat_logic::serve::burn::{Burn, BurnPolicy};

use super::super::reply::Body;
use super::super::{Host, Stage, Worker};
use super::{Kind, Run};
use crate::config;

/// Processor time between two looks at who else wants it: the longest that a request of another site waits which comes meanwhile. The look
/// costs a fiftieth of it.
const SLICE_NS: u64 = 100_000;
/// A request that has computed for so long goes behind the others of its site. Until then it goes on: each slice that a request waits for
/// another's would make both late, and none of that would be seen as waiting to begin.
const TURN_NS: u64 = 5_000_000;
/// What is said of the content.
const FIELDS: &str = "Cache-Control: no-store\r\nContent-Type: application/octet-stream\r\n";

pub(super) fn kind(burn: &config::Burn) -> Kind {
    let &config::Burn { us, us_max, bytes, bytes_max, forever } = burn;
    // Zeros take no memory until they are sent.
    let content = Bytes::from(vec![0; bytes.max(bytes_max)]);
    Kind::Burn { policy: BurnPolicy { us, us_max, bytes, bytes_max, forever }, content }
}

impl<H: Host> Worker<H> {
    pub(super) fn begin_burn(&mut self, token: Token, policy: &BurnPolicy, content: &Bytes) {
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return };
        let query = Request::read_again(&exchange.head).and_then(|request| request.target.query);
        let Some(Burn { ns, bytes }) = policy.read(query.unwrap_or_default()) else {
            self.reply_error(token, Status::BAD_REQUEST);
            return;
        };
        exchange.run = Some(Run::Burn { left_ns: ns, turn_ns: 0, content: content.slice(..bytes) });
        self.queue(Stage::Compute, token);
    }

    /// Computes for a slice and replies after the last.
    pub(super) fn burn_slice(&mut self, token: Token) -> Cost {
        let connection = &mut self.connections[token];
        let site = connection.site;
        let Some(exchange) = connection.exchange.as_mut() else { return Cost::from_ns(0) };
        let Some(Run::Burn { left_ns, turn_ns, content }) = &mut exchange.run else { return Cost::from_ns(0) };
        let used = self.host.burn(Duration::from_nanos(left_ns.map_or(SLICE_NS, |left| left.min(SLICE_NS))));
        let used_ns = used.as_nanos() as u64;
        if let Some(left) = left_ns {
            *left = left.saturating_sub(used_ns);
        }
        *turn_ns += used_ns;
        let is_over = *turn_ns >= TURN_NS;
        if is_over {
            *turn_ns = 0;
        }
        if *left_ns == Some(0) {
            let content = std::mem::take(content);
            exchange.run = None;
            let length = content.len();
            let lines = format!("{FIELDS}Content-Length: {length}\r\n");
            self.reply(token, Status::OK, lines.as_bytes(), Body::whole(&content));
        } else if is_over {
            self.queue(Stage::Compute, token);
        } else {
            self.queue_first(Stage::Compute, token);
        }
        if let Some(site) = self.sites.get(site as usize) {
            site.metrics.compute_ns.add(used_ns);
        }
        Cost::from_ns(used_ns)
    }
}
