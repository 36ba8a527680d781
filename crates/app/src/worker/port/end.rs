//! How a client's time at a port ends, and what is said of it.

use std::fmt;

use leat_host::reactor::Token;
use leat_logic::dispatch::Outcome;
use leat_logic::protocol::Mistake;
use leat_logic::protocol::proxy_header::BadHeader;
use leat_logic::time::Instant;

use super::super::account::LOG_DELAY;
use super::super::{Drain, Host, Worker};
use super::relay::Relay;
use crate::access_log::ConnectionRecord;

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Everybody has said and heard all.
    Done,
    /// The client has broken it off.
    ClientGone,
    /// The client has ended in the middle of a request.
    Unfinished,
    /// A node has broken it off.
    NodeGone,
    /// No node can be reached, or may have it.
    NoNode,
    /// Nobody has said anything for too long.
    Idle,
    /// The client takes too long to say where its request goes.
    Late,
    /// Somebody doesn't keep to the protocol.
    Mistake(Mistake),
    /// The client doesn't, and has been told so after all that it was owed.
    Told(Mistake),
    /// A balancer doesn't tell who its client is.
    BadHeader(BadHeader),
    /// More than this worker takes on.
    Overloaded,
    /// The server ends, and nothing is under way.
    Stopped,
    /// It ends, and won't wait any longer for what is.
    Drained,
}

impl From<Mistake> for End {
    fn from(mistake: Mistake) -> End {
        End::Mistake(mistake)
    }
}

impl End {
    /// Whether what both have heard is all there was; `is_held`: bytes lie here that they haven't heard.
    fn is_clean(self, is_held: bool) -> bool {
        matches!(self, End::Done | End::Told(_)) || matches!(self, End::Idle | End::Stopped) && !is_held
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Done => f.write_str("done"),
            End::ClientGone => f.write_str("client gone"),
            End::Unfinished => f.write_str("client ended in a request"),
            End::NodeGone => f.write_str("node gone"),
            End::NoNode => f.write_str("no node"),
            End::Idle => f.write_str("idle"),
            End::Late => f.write_str("late"),
            End::Mistake(mistake) | End::Told(mistake) => mistake.fmt(f),
            End::BadHeader(error) => error.fmt(f),
            End::Overloaded => f.write_str("overloaded"),
            End::Stopped => f.write_str("stopped"),
            End::Drained => f.write_str("drained"),
        }
    }
}

impl<H: Host> Worker<H> {
    /// Ends a relay: its streams are closed, its nodes have less to do.
    pub(super) fn end_relay(&mut self, token: Token, end: End) {
        let Some(mut relay) = self.ports.relays.remove(&token.index) else { return };
        let is_passing = relay.session.is_passing();
        let is_held = relay
            .open_legs()
            .map(|(_, to)| to.stream)
            .chain([relay.token])
            .any(|stream| self.streams.get(stream).is_some_and(|stream| stream.held_bytes() > 0));
        let is_clean = end.is_clean(is_held);
        for leg in 0..relay.legs.len() {
            let Some(to) = relay.legs[leg].take() else { continue };
            let owed = relay.session.owed(leg);
            // Of the nodes of a client one has broken off. If it has said something it may have its reasons. If it has heard something, the client may
            // have given it one: whoever sends what no node takes would have them all ejected.
            let has_ended = self.streams.get(to.stream).is_none_or(|stream| stream.has_ended());
            let has_failed = end == End::NodeGone && has_ended && !to.has_spoken() && !to.has_heard;
            if let Some(port) = self.ports.ports.get_mut(&relay.site) {
                for place in 0..owed {
                    let outcome = match end {
                        End::NodeGone if has_failed && place == 0 => Outcome::Failed,
                        End::NodeGone => Outcome::Unknown,
                        _ => Outcome::Served,
                    };
                    port.request_ended(to.node, outcome, self.now);
                }
            }
            match is_clean || !is_passing {
                true => self.close_stream(to.stream),
                false => self.cut_stream(to.stream),
            }
        }
        match is_clean {
            true => self.close_stream(relay.token),
            false => self.cut_stream(relay.token),
        }
        self.leave_port(relay.site);
        let site = relay.settings.site.clone();
        let metrics = &site.metrics.port;
        if matches!(end, End::Mistake(_) | End::Told(_) | End::Late | End::Unfinished) {
            metrics.mistakes.increment();
        }
        if matches!(end, End::NodeGone | End::NoNode) {
            metrics.failures.increment();
        }
        relay.count(metrics);
        self.log_relay(&relay, end);
        if self.listeners.iter().any(|listening| !listening.accepting) {
            self.resume_accepting();
        }
    }

    fn log_relay(&mut self, relay: &Relay, end: End) {
        let Some(log) = &relay.settings.site.log else { return };
        let record = ConnectionRecord {
            date: self.date.as_bytes(),
            peer: relay.ends.map(|(client, _)| client.ip()),
            port: &relay.settings.site.name,
            protocol: relay.settings.protocol.name(),
            nodes: &relay.nodes,
            requests: relay.session.requests(),
            received_bytes: relay.received_bytes,
            sent_bytes: relay.sent_bytes,
            time_us: u64::try_from(self.now.since(relay.began).as_micros()).unwrap_or(u64::MAX),
            end: &end.to_string(),
        };
        log.add_connection(&record);
        self.flush_at = self.flush_at.min(self.now.after(LOG_DELAY));
    }

    /// Ends relays whose time is over. Returns when to look again.
    pub(in crate::worker) fn handle_relay_timeouts(&mut self) -> Instant {
        let mut next = Instant::NEVER;
        let mut over = Vec::new();
        let mut unreached = Vec::new();
        for relay in self.ports.relays.values() {
            let settings = &relay.settings;
            let is_idle = !relay.session.is_passing() && relay.session.is_idle();
            if let Some(Drain { deadline, keep_idle, .. }) = self.drain {
                let is_heard = self.streams.get(relay.token).is_none_or(|client| client.held_bytes() == 0);
                let is_over = is_idle && is_heard;
                if self.now >= deadline || !keep_idle && is_over {
                    over.push((relay.token, if is_over { End::Stopped } else { End::Drained }));
                    continue;
                }
                next = next.min(deadline);
            }
            let mut due = relay.moved_at.after(settings.idle_timeout);
            let mut end = End::Idle;
            let is_new = relay.session.requests() == 0;
            let since = relay.head_since.or(is_new.then_some(relay.began));
            if let Some(since) = since.filter(|_| is_idle) {
                let late = since.after(settings.head_timeout);
                (due, end) = if late < due { (late, End::Late) } else { (due, end) };
            }
            if self.now >= due {
                over.push((relay.token, end));
                continue;
            }
            let connecting = relay.open_legs().filter_map(|(leg, to)| Some((leg, to.connect_by?)));
            for (leg, connect_by) in connecting {
                if self.now >= connect_by {
                    unreached.push((relay.token, leg));
                }
                due = due.min(connect_by);
            }
            next = next.min(due);
        }
        over.into_iter().for_each(|(token, end)| self.end_relay(token, end));
        for (token, leg) in unreached {
            let Some(mut relay) = self.ports.relays.remove(&token.index) else { continue };
            let tried = self.try_another(&mut relay, leg);
            self.ports.relays.insert(token.index, relay);
            match tried {
                Ok(()) => self.queue_relay(token),
                Err(end) => self.end_relay(token, end),
            }
        }
        next
    }
}
