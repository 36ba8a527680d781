//! The receive stage: bytes become requests. What is a request, and what is refused, is `http::Connection`'s to say.

use std::rc::Rc;
use std::time::Duration;

use leat_host::reactor::{Reactor, Token};
use leat_logic::http::{
    self, BodyLength, EndOfInput, Method, PathError, Progress, RejectReason, Rejection, Request, Status,
    decode_path_to_pass_on,
};
use leat_logic::schedule::Operation;

use super::connection::Connection;
use super::exchange::Exchange;
use super::settings::{Listener, Site};
use super::stream::News;
use super::{Host, Stage, Worker, before};

/// Unread bytes after which a connection stops receiving: the client's kernel keeps the rest.
const INBOX_BYTES_MAX: usize = 128 * 1024;
/// The same of one that is held after a refusal: a request, and no more.
const HELD_INBOX_BYTES_MAX: usize = 16 * 1024;
/// Exchanges kept for use by later requests.
const SPARE_EXCHANGES_MAX: usize = 256;
/// Bytes that are read and discarded after a last reply: what a fast client sends of what has been refused before it looks at the reply.
const LINGER_BYTES_MAX: u32 = 1024 * 1024 * 1024;
/// Of the first line of a head that is refused, so much is kept for the log.
const REFUSED_LINE_BYTES_MAX: usize = 2048;

impl<H: Host> Worker<H> {
    /// Bytes have come. They are looked at when the tree says so, unless a reply is in progress: then after it.
    pub(super) fn input_arrived(&mut self, token: Token) {
        let connection = &mut self.connections[token];
        if std::mem::take(&mut connection.flags.once) {
            connection.flags.receiving = false;
        }
        if connection.flags.closing {
            connection.inbox.clear(&mut self.reactor);
            self.finish_close(token);
            return;
        }
        if !connection.flags.queued {
            let since_last_us = self.now_us.wrapping_sub(connection.arrived_us);
            self.gathering.arrived(Duration::from_micros(since_last_us.into()));
            connection.arrived_us = self.now_us;
        }
        if connection.exchange.is_none() && !connection.flags.held && !connection.flags.departing {
            self.queue(Stage::Receive, token);
        } else {
            connection.inbox.keep(&mut self.reactor);
            if connection.expects_content() {
                self.queue(Stage::Transmit, token);
            } else {
                self.ask_while_held(token);
            }
        }
        self.bound_inbox(token);
    }

    /// Has the client's kernel keep what comes further, if too much waits here: for a reply that goes out first, or for its site's turn.
    fn bound_inbox(&mut self, token: Token) {
        let Some(connection) = self.connections.get(token) else { return };
        let is_full = self.gates[connection.site as usize].is_full() || is_inbox_full(connection);
        if is_full && connection.flags.receiving && !connection.flags.pausing {
            connection.flags.pausing = true;
            self.reactor.pause(connection.socket, token);
        }
    }

    /// Parses what has come, up to one request.
    pub(super) fn receive(&mut self, token: Token) {
        if self.cluster.is_some() && self.freeze_goes_on(token) {
            return;
        }
        let arrived_bytes = self.connections[token].inbox.len();
        self.meter.did(Operation::Receive, arrived_bytes as u64);
        if self.connections[token].flags.untold && !self.hear_of_client(token) {
            return;
        }
        while self.connections[token].exchange.is_none() {
            let connection = &mut self.connections[token];
            // The site of the last request sets the body's and the connection's limits, the server those of a head.
            let limits = &self.sites[connection.site as usize].limits;
            let input = connection.inbox.bytes(&self.reactor);
            let found = connection.http.handle_input_knowing(&mut self.known_sections, self.now, input, limits);
            let consumed = found.0;
            // Looked at where it is: a request is too large to be moved for nothing.
            match &found.1 {
                Progress::Request(request) => {
                    let mut exchange = self.spare.pop().unwrap_or_else(Exchange::new);
                    exchange.head.extend_from_slice(&input[..consumed]);
                    exchange.started = before(self.now, self.now_us, connection.arrived_us);
                    let listener = &self.listeners[connection.listener as usize].sites;
                    let (site, first) = understand(&mut exchange, request, listener, &self.sites, &mut self.path);
                    connection.inbox.consume(&mut self.reactor, consumed);
                    if std::mem::take(&mut connection.flags.unread) {
                        self.gates[connection.site as usize].unread.forget(token);
                    }
                    let site_before = std::mem::replace(&mut connection.site, site);
                    connection.exchange = Some(exchange);
                    self.under_way.in_hand += 1;
                    if site != site_before {
                        // What that has of the connection is found by its site only.
                        let held = std::mem::take(&mut connection.accounted_bytes);
                        self.release_memory(site_before, held);
                    }
                    if !self.refuse_first(token, first) {
                        self.admit(token);
                    }
                    return;
                }
                // Nothing that leat serves takes a body: it's read so that the next request can be found.
                Progress::Body(_) | Progress::BodyEnd => connection.inbox.consume(&mut self.reactor, consumed),
                Progress::NeedInput => {
                    connection.inbox.consume(&mut self.reactor, consumed);
                    if connection.http.is_lingering() {
                        connection.lingered_bytes = connection.lingered_bytes.saturating_add(consumed as u32);
                        if connection.lingered_bytes > LINGER_BYTES_MAX {
                            self.cut(token);
                            return;
                        }
                    }
                    self.await_input(token);
                    return;
                }
                &Progress::Reject(rejection) => {
                    self.begin_refusal(token, rejection.reason);
                    self.reply_rejection(token, rejection);
                    return;
                }
                Progress::Ended => {
                    self.finish(token);
                    return;
                }
            }
        }
    }

    /// Refuses a request that nothing is to be done for. Whether it's one.
    pub(super) fn refuse_first(&mut self, token: Token, first: First) -> bool {
        match first {
            First::Admit => return false,
            First::TooLarge => self.refuse_length(token),
            First::Misdirected => self.reply_misdirected(token),
            First::Bad(status) => self.reply_error(token, status),
        }
        true
    }

    /// The content of a request is longer than its site takes: none of it is read.
    fn refuse_length(&mut self, token: Token) {
        let Rejection { status, reason, .. } = RejectReason::BodyTooLarge.into();
        self.metrics.rejections[reason.index()].increment();
        self.connections[token].http.give_up_content();
        self.reply_error(token, status);
    }

    /// A request in hand whose head was accepted elsewhere: it's served when the tree says so. What this server's own rules say of it, which count if nobody
    /// has begun to serve it.
    pub(super) fn resume_request(&mut self, token: Token, head: &[u8]) -> First {
        let Some(request) = Request::read_again(head) else { return First::Admit };
        let mut exchange = self.spare.pop().unwrap_or_else(Exchange::new);
        exchange.head.extend_from_slice(head);
        exchange.started = self.now;
        let connection = &mut self.connections[token];
        let listener = &self.listeners[connection.listener as usize].sites;
        let (site, first) = understand(&mut exchange, &request, listener, &self.sites, &mut self.path);
        connection.site = site;
        connection.exchange = Some(exchange);
        self.under_way.in_hand += 1;
        first
    }

    /// Everything that has come is parsed: either more comes, or the client has ended its side.
    fn await_input(&mut self, token: Token) {
        let connection = &mut self.connections[token];
        if connection.flags.ended {
            match connection.http.handle_end_of_input() {
                EndOfInput::AnswerFirst => {}
                EndOfInput::Close | EndOfInput::Abort => self.close(token),
            }
            return;
        }
        self.arm_receive(token);
    }

    /// Has a connection receive again that didn't for a while. What lies here to be gathered comes first.
    pub(super) fn receive_on(&mut self, token: Token) {
        let connection = &self.connections[token];
        if connection.awaits_content() && !connection.inbox.is_empty() {
            self.queue(Stage::Transmit, token);
        } else {
            self.arm_receive(token);
        }
    }

    /// Has the reactor receive: from now until the end, or once on a connection that has been lent. Not while what has been asked ahead waits for the
    /// reply that is under way: each reply would let as much again in.
    pub(super) fn arm_receive(&mut self, token: Token) {
        // That may go home with its next request: there is nothing to be stopped first then.
        let once = self.cluster.is_some() && self.is_lent(token);
        let connection = &self.connections[token];
        let (site, flags) = (connection.site, connection.flags);
        let is_ahead =
            connection.inbox.len() > INBOX_BYTES_MAX && connection.exchange.is_some() && !connection.expects_content();
        if !flags.receiving && !flags.ended && !flags.closing && !is_ahead {
            let is_full = self.gates[site as usize].is_full();
            if is_full && !self.may_receive(token) {
                self.connections[token].flags.unread = true;
                return;
            }
            let connection = &mut self.connections[token];
            if std::mem::take(&mut connection.flags.unread)
                && let Some(since) = self.gates[site as usize].unread.end_wait(token)
            {
                connection.http.handle_unread(since, self.now);
            }
            // No more is taken in at once than can be where too much is held already.
            let once = once || is_full || connection.flags.uploads;
            let flags = &mut connection.flags;
            flags.receiving = true;
            flags.pausing = false;
            flags.once = once;
            match once {
                true => self.reactor.receive_once(connection.socket, token),
                false => self.reactor.receive(connection.socket, token),
            }
        }
    }

    /// Stops receiving until further notice, where that is under way and much content comes.
    pub(super) fn receive_by_parts(&mut self, token: Token) {
        let connection = &mut self.connections[token];
        let flags = &mut connection.flags;
        if flags.uploads && flags.receiving && !flags.once && !flags.pausing {
            flags.pausing = true;
            self.reactor.pause(connection.socket, token);
        }
    }

    /// Receives what else of a request's content has come behind a receive buffer that it filled: as the request's turn is, and not before. A
    /// broken connection is the next receive's to tell.
    pub(super) fn receive_content(&mut self, token: Token) {
        let Some(connection) = self.connections.get(token) else { return };
        let flags = &mut connection.flags;
        let is_behind = std::mem::take(&mut flags.behind) && !flags.receiving && !flags.ended && !flags.closing;
        let space = INBOX_BYTES_MAX.saturating_sub(connection.inbox.len());
        if !is_behind || space == 0 || self.gates[connection.site as usize].is_full() {
            return;
        }
        let room = connection.inbox.room(&mut self.reactor, &mut self.rooms, INBOX_BYTES_MAX);
        let received = self.reactor.receive_now(connection.socket, token, room, space);
        connection.flags.behind = received.is_ok_and(|count| count == space);
    }

    /// The client will send no more, or can't.
    pub(super) fn input_ended(&mut self, token: Token, error: Option<std::io::Error>) {
        let Some(connection) = self.connections.get(token) else {
            return self.stream_news(token, News::Ended { broken: error.is_some() });
        };
        connection.flags.receiving = false;
        connection.flags.once = false;
        let was_pausing = std::mem::take(&mut connection.flags.pausing);
        connection.flags.ended = true;
        connection.flags.departing = false;
        if connection.flags.closing {
            self.finish_close(token);
        } else if error.is_some() || connection.is_being_handled() {
            // A reset: there is nobody to answer. While a handler is at work an end is taken for one: who can't be told from somebody that
            // has gone would otherwise keep it at work for nobody.
            self.account_unanswered(token);
            self.cut(token);
        } else if self.cluster.is_none() && connection.http.is_lingering() && connection.inbox.is_empty() {
            // There's nothing to be looked at, and its site's turn may never come.
            self.close(token);
        } else if connection.exchange.is_none() {
            // What one has asked that is held is looked at later, whether it has gone meanwhile or not.
            if !connection.flags.held || connection.inbox.is_empty() {
                self.queue(Stage::Receive, token);
            }
        } else {
            // The request in progress is still answered: the client may have ended only its own side.
            if connection.inbox.is_empty() {
                let _ = connection.http.handle_end_of_input();
            }
            // A tunnel's other end is told.
            if connection.expects_content() {
                self.queue(Stage::Transmit, token);
            }
            // It was to leave as soon as receiving had stopped, and so it has: it's answered here if it can't any more.
            if was_pausing && !self.freeze_goes_on(token) {
                self.passing_goes_on(token);
            }
        }
    }

    /// Receiving has stopped, because we asked for it or because of an error.
    pub(super) fn receive_stopped(&mut self, token: Token, error: Option<std::io::Error>) {
        if error.is_some() {
            self.input_ended(token, error);
            return;
        }
        let is_retiring = self.is_retiring();
        let Some(connection) = self.connections.get(token) else { return self.stream_news(token, News::Stopped) };
        connection.flags.receiving = false;
        connection.flags.once = false;
        let was_pausing = std::mem::take(&mut connection.flags.pausing);
        if connection.flags.closing {
            self.finish_close(token);
            return;
        }
        let freezes = was_pausing && self.freeze_goes_on(token);
        if was_pausing && !freezes && self.passing_goes_on(token) {
            return;
        }
        let Some(connection) = self.connections.get(token) else { return };
        // A program at work has all of its content before its connection may leave.
        if freezes && !connection.expects_content() {
            return;
        }
        let is_heirs = was_pausing && is_retiring && connection.http.is_idle() && connection.inbox.is_empty();
        if is_heirs || connection.flags.departing {
            self.hand_over(token);
        } else if connection.awaits_content()
            || !is_inbox_full(connection) && (connection.exchange.is_none() || connection.expects_content())
        {
            self.receive_on(token);
        }
    }

    /// An exchange for a refusal: there is no request, but a reply. What has come is forgotten, but for a line of a head, for the log.
    pub(super) fn begin_refusal(&mut self, token: Token, reason: RejectReason) {
        let mut exchange = self.spare.pop().unwrap_or_else(Exchange::new);
        let connection = &mut self.connections[token];
        if reason.is_of_head() {
            let head = connection.inbox.bytes(&self.reactor).trim_ascii_start();
            let end = head.iter().position(|&byte| matches!(byte, b'\r' | b'\n')).unwrap_or(head.len());
            exchange.head.extend_from_slice(&head[..end.min(REFUSED_LINE_BYTES_MAX)]);
        }
        if connection.inbox.bytes(&self.reactor).starts_with(b"HEAD ") {
            exchange.method = Method::Head;
        }
        connection.inbox.clear(&mut self.reactor);
        exchange.started = self.now;
        exchange.site = Some(self.sites[connection.site as usize].clone());
        connection.exchange = Some(exchange);
        self.under_way.in_hand += 1;
    }

    /// Answers what can't be accepted as a request, and ends the connection.
    pub(super) fn reply_rejection(&mut self, token: Token, rejection: Rejection) {
        self.metrics.rejections[rejection.reason.index()].increment();
        self.reply_page(token, rejection.status, Vec::new());
    }

    /// Keeps an exchange for later.
    pub(super) fn recycle(&mut self, mut exchange: Box<Exchange<super::File<H>>>) {
        self.under_way.in_hand = self.under_way.in_hand.saturating_sub(1);
        self.forget(&exchange);
        if self.spare.len() < SPARE_EXCHANGES_MAX {
            exchange.reset();
            self.spare.push(exchange);
        }
    }
}

/// What is to be done first with a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum First {
    #[default]
    Admit,
    TooLarge,
    Misdirected,
    Bad(Status),
}

/// Whether more waits at a connection than it may bring before that has been looked at.
fn is_inbox_full<F>(connection: &Connection<F>) -> bool {
    let max = if connection.flags.held { HELD_INBOX_BYTES_MAX } else { INBOX_BYTES_MAX };
    connection.inbox.len() > max
}

/// Fills in what a request says beyond its head. Returns the number of the site that it's for, and what comes first.
fn understand<F>(
    exchange: &mut Exchange<F>,
    request: &Request<'_>,
    listener: &Listener,
    sites: &[Rc<Site>],
    room: &mut Vec<u8>,
) -> (u32, First) {
    exchange.method = request.method;
    exchange.conditional = !request.conditions.is_empty() || request.conditions.range.is_some();
    let site = listener.site(request.host.unwrap_or_default());
    let found = match request.target.decode_path(room) {
        Err(PathError::EncodedSlash) => decode_path_to_pass_on(request.target.path, room),
        found => found.map(|path| (path, None)),
    };
    let found = found.map(|(path, encoded_slash)| {
        exchange.path.extend_from_slice(path);
        exchange.encoded_slash = encoded_slash;
    });
    let number = site.unwrap_or(super::UNKNOWN_SITE);
    let known = &sites[number as usize];
    exchange.codings = known.codings(request);
    let is_too_large = matches!(request.body, BodyLength::Length(length) if length > known.limits.body_bytes_max);
    exchange.site = Some(known.clone());
    let is_asterisk = request.target.form == http::TargetForm::Asterisk;
    let first = match (site, found) {
        _ if is_too_large => First::TooLarge,
        (None, _) => First::Misdirected,
        (Some(_), Err(error)) if !is_asterisk => First::Bad(error.status()),
        (Some(_), _) => First::Admit,
    };
    (number, first)
}
