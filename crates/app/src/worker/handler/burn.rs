//! The burning handler: uses a given amount of processor time, in slices, and replies with a given number of bytes.

use std::time::Duration;

use bytes::Bytes;
use leat_host::reactor::{Reactor, Token};
use leat_logic::http::{Request, Status};
use leat_logic::schedule::Cost;
use leat_logic::serve::burn::{Burn, BurnPolicy};

use super::super::reply::Body;
use super::super::{Host, Stage, Worker};
use super::{Kind, Run};
use crate::config;

/// Processor time between two looks at who else wants it. The look costs a fiftieth of it.
const SLICE_NS: u64 = 100_000;
/// While several sites want something, a slice ends after so much of it when somebody has come, as far as that's seen without a system call.
const STEP_NS: u64 = 20_000;
/// A request that has computed for so long goes behind the others of its site. Until then it goes on: each slice that a request waits for
/// another's would make both late, and none of that would be seen as waiting to begin.
const TURN_NS: u64 = 5_000_000;
/// What is said of the content.
const FIELDS: &str = "Cache-Control: no-store\r\nContent-Type: application/octet-stream\r\n";

/// Whether it pays to end a slice before its time because somebody has come: not if the last time nobody else had a turn before the next slice.
#[derive(Debug, Default)]
pub(in crate::worker) struct EarlyEnd {
    /// The site that had the last slice.
    site: u32,
    was_early: bool,
    others_ran: bool,
}

impl EarlyEnd {
    fn pays(&self, site: u32) -> bool {
        !self.was_early || self.others_ran || self.site != site
    }

    fn slice_ended(&mut self, site: u32, was_early: bool) {
        *self = EarlyEnd { site, was_early, others_ran: false };
    }

    /// An event of a site's has run.
    #[inline]
    pub(in crate::worker) fn ran(&mut self, site: u32) {
        self.others_ran |= site != self.site;
    }
}

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
        let slice_ns = left_ns.map_or(SLICE_NS, |left| left.min(SLICE_NS));
        let step_ns = if self.is_shared && self.handlers.early_end.pays(site) { STEP_NS } else { SLICE_NS };
        let mut used_ns = 0;
        while used_ns < slice_ns && (used_ns == 0 || self.completions.is_empty() && !self.reactor.has_more()) {
            used_ns += self.host.burn(Duration::from_nanos(step_ns.min(slice_ns - used_ns))).as_nanos() as u64;
        }
        self.handlers.early_end.slice_ended(site, used_ns < slice_ns);
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
