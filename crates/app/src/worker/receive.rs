//! The receive stage: bytes become requests. What is a request, and what is refused, is `http::Connection`'s to say.

use leat_host::reactor::{Reactor, Token};
use leat_logic::http::{self, BodyLength, EndOfInput, Progress, RejectReason, Rejection};
use leat_logic::schedule::Cost;
use leat_logic::serve::coding::CodingOrder;

use super::exchange::Exchange;
use super::{Host, SPARE_EXCHANGES_MAX, Stage, Worker};

/// Unread bytes after which a connection stops receiving: the client's kernel keeps the rest.
const INBOX_BYTES_MAX: usize = 64 * 1024;
/// Bytes that are read and discarded after a last reply: enough for what was on its way when the client saw it.
const LINGER_BYTES_MAX: u32 = 1024 * 1024;
/// What parsing a head costs, within a factor of two.
const RECEIVE_COST: Cost = Cost::from_ns(2_000);

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
        if connection.exchange.is_none() {
            self.queue(Stage::Receive, token);
        } else {
            connection.inbox.keep(&mut self.reactor);
            if connection.inbox.len() > INBOX_BYTES_MAX && connection.flags.receiving && !connection.flags.pausing {
                connection.flags.pausing = true;
                self.reactor.pause(connection.socket, token);
            }
        }
    }

    /// Parses what has come, up to one request.
    pub(super) fn receive(&mut self, token: Token) -> Cost {
        while self.connections[token].exchange.is_none() {
            let connection = &mut self.connections[token];
            // The site of the last request sets the body's and the connection's limits, the server those of a head.
            let limits = &self.sites[connection.site as usize].limits;
            let input = connection.inbox.bytes(&self.reactor);
            let (consumed, progress) = connection.http.handle_input(self.now, input, limits);
            match progress {
                Progress::Request(request) => {
                    let mut exchange = self.spare.pop().unwrap_or_else(Exchange::new);
                    exchange.head.extend_from_slice(&input[..consumed]);
                    exchange.method = request.method;
                    exchange.conditional = !request.conditions.is_empty() || request.conditions.range.is_some();
                    exchange.started = self.now;
                    let listener = &self.listeners[connection.listener as usize].sites;
                    let site = listener.site(request.host.unwrap_or_default());
                    let too_large = match (request.body, site) {
                        (BodyLength::Length(length), Some(site)) => {
                            length > self.sites[site as usize].limits.body_bytes_max
                        }
                        _ => false,
                    };
                    let path = http::decode_path(request.target.path, &mut self.path);
                    let found = path.map(|path| exchange.path.extend_from_slice(path));
                    if let Some(site) = site {
                        let offered = &self.sites[site as usize].offered;
                        if let (Some(accepted), false) = (request.accept_encoding, offered.is_empty()) {
                            exchange.codings = CodingOrder::negotiate(Some(accepted), offered);
                        }
                    }
                    let asterisk = request.target.form == http::TargetForm::Asterisk;
                    connection.inbox.consume(&mut self.reactor, consumed);
                    let number = site.unwrap_or(super::UNKNOWN_SITE);
                    connection.site = number;
                    exchange.site = Some(self.sites[number as usize].clone());
                    connection.exchange = Some(exchange);
                    match (site, found) {
                        _ if too_large => self.reply_rejection(token, RejectReason::BodyTooLarge.into()),
                        (None, _) => self.reply_misdirected(token),
                        (Some(_), Err(error)) if !asterisk => self.reply_error(token, error.status()),
                        _ => self.queue(Stage::Serve, token),
                    }
                    return RECEIVE_COST;
                }
                // Nothing that leat serves takes a body: it's read so that the next request can be found.
                Progress::Body(_) | Progress::BodyEnd => connection.inbox.consume(&mut self.reactor, consumed),
                Progress::NeedInput => {
                    connection.inbox.consume(&mut self.reactor, consumed);
                    if connection.http.is_lingering() {
                        connection.lingered_bytes = connection.lingered_bytes.saturating_add(consumed as u32);
                        if connection.lingered_bytes > LINGER_BYTES_MAX {
                            self.cut(token);
                            return RECEIVE_COST;
                        }
                    }
                    self.await_input(token);
                    return RECEIVE_COST;
                }
                Progress::Reject(rejection) => {
                    connection.inbox.clear(&mut self.reactor);
                    self.begin_refusal(token);
                    self.reply_rejection(token, rejection);
                    return RECEIVE_COST;
                }
                Progress::Ended => {
                    self.finish(token);
                    return RECEIVE_COST;
                }
            }
        }
        RECEIVE_COST
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

    /// Has the reactor receive, from now until the end.
    pub(super) fn arm_receive(&mut self, token: Token) {
        let connection = &mut self.connections[token];
        let flags = &mut connection.flags;
        if !flags.receiving && !flags.ended && !flags.closing {
            flags.receiving = true;
            self.reactor.receive(connection.socket, token);
        }
    }

    /// The client will send no more, or can't.
    pub(super) fn input_ended(&mut self, token: Token, error: Option<std::io::Error>) {
        let Some(connection) = self.connections.get(token) else { return };
        connection.flags.receiving = false;
        connection.flags.once = false;
        connection.flags.pausing = false;
        connection.flags.ended = true;
        if connection.flags.closing {
            self.finish_close(token);
        } else if error.is_some() {
            // A reset: there is nobody to answer.
            self.cut(token);
        } else if connection.exchange.is_none() {
            self.queue(Stage::Receive, token);
        } else if connection.inbox.is_empty() {
            // The request in progress is still answered: the client may have ended only its own side.
            let _ = connection.http.handle_end_of_input();
        }
    }

    /// Receiving has stopped, because we asked for it or because of an error.
    pub(super) fn receive_stopped(&mut self, token: Token, error: Option<std::io::Error>) {
        if error.is_some() {
            self.input_ended(token, error);
            return;
        }
        let is_retiring = self.is_retiring();
        let Some(connection) = self.connections.get(token) else { return };
        connection.flags.receiving = false;
        connection.flags.once = false;
        let was_pausing = std::mem::take(&mut connection.flags.pausing);
        if connection.flags.closing {
            self.finish_close(token);
        } else if was_pausing && is_retiring && connection.http.is_idle() && connection.inbox.is_empty() {
            self.hand_over(token);
        } else if connection.inbox.len() <= INBOX_BYTES_MAX && connection.exchange.is_none() {
            self.arm_receive(token);
        }
    }

    /// An exchange for a refusal: there is no request, but a reply.
    pub(super) fn begin_refusal(&mut self, token: Token) {
        let mut exchange = self.spare.pop().unwrap_or_else(Exchange::new);
        exchange.started = self.now;
        exchange.site = Some(self.sites[self.connections[token].site as usize].clone());
        self.connections[token].exchange = Some(exchange);
    }

    /// Answers what can't be accepted as a request, and ends the connection.
    pub(super) fn reply_rejection(&mut self, token: Token, rejection: Rejection) {
        self.metrics.rejections[rejection.reason.index()].increment();
        self.reply_page(token, rejection.status, Vec::new());
    }

    /// Keeps an exchange for later.
    pub(super) fn recycle(&mut self, mut exchange: Box<Exchange<super::File<H>>>) {
        if self.spare.len() < SPARE_EXCHANGES_MAX {
            exchange.reset();
            self.spare.push(exchange);
        }
    }
}
