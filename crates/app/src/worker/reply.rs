//! Writes replies: the head into one of the reactor's buffers, with a small body behind it so that both go out in one send. Which status,
//! which range, which fields is `leat_logic::serve`'s to say.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use leat_host::reactor::{Reactor, Token, Transmit};
use leat_logic::http::{Boundary, CachedDate, HeadWriter, Method, Persistence, Request, Status, as_uri};
use leat_logic::schedule::Operation;
use leat_logic::serve::error_page;
use leat_logic::serve::reply::{self, Plan};
use leat_logic::serve::resource::{Content, Found, Resource};

use super::exchange::Piece;
use super::{File, Host, Worker};

/// A body up to this size is copied behind its head: cheaper than having the kernel gather two pieces.
const COPIED_BODY_BYTES_MAX: usize = 2048;

/// Room for what stands in a head before a resource's own lines, and for its end.
const HEAD_BYTES: usize = 96;

/// Takes one boundary to the next (Knuth's linear congruential generator): a client can't foresee where it began.
const BOUNDARY_FACTOR: u64 = 6_364_136_223_846_793_005;

/// What every resource here allows.
const ALLOW: &[u8] = b"Allow: GET, HEAD, OPTIONS\r\n";

/// Field lines that go with an error, whatever its page is.
fn fields_of(status: Status) -> &'static [u8] {
    match status {
        Status::METHOD_NOT_ALLOWED => ALLOW,
        Status::SERVICE_UNAVAILABLE => b"Retry-After: 1\r\n",
        _ => b"",
    }
}

/// A reply's body. Content in memory is borrowed: a small one is copied, and only a larger one is worth a reference of its own.
pub(super) enum Body<'a, F> {
    Empty,
    Memory { content: &'a Bytes, range: Range<usize> },
    Pieces(Vec<Piece<F>>),
}

impl<'a, F> Body<'a, F> {
    pub(super) fn whole(content: &'a Bytes) -> Body<'a, F> {
        Body::Memory { content, range: 0..content.len() }
    }

    fn into_pieces(self) -> Vec<Piece<F>> {
        match self {
            Body::Empty => Vec::new(),
            Body::Memory { content, range } => vec![Piece::Bytes { bytes: content.slice(range), done: 0 }],
            Body::Pieces(pieces) => pieces,
        }
    }

    fn len(&self) -> u64 {
        match self {
            Body::Empty => 0,
            Body::Memory { range, .. } => range.len() as u64,
            Body::Pieces(pieces) => pieces.iter().map(Piece::len).sum(),
        }
    }
}

/// Bytes `start..end` of a resource's content.
fn body_of<F: Clone>(resource: &Resource<F>, start: u64, end: u64) -> Body<'_, F> {
    if start == end {
        return Body::Empty;
    }
    match &resource.content {
        Content::Memory(content) => Body::Memory { content, range: start as usize..end as usize },
        Content::File(file) => Body::Pieces(vec![Piece::File { file: file.clone(), offset: start, end }]),
    }
}

/// All of a head; `lines` are those after Server, Date and Connection.
fn write_head(head: &mut Vec<u8>, status: Status, date: &CachedDate, persistence: Persistence, lines: &[u8]) {
    let _ = HeadWriter::start(head, status, date).persistence(persistence);
    head.extend_from_slice(lines);
    head.extend_from_slice(b"\r\n");
}

impl<H: Host> Worker<H> {
    /// Answers with what a path names.
    pub(super) fn reply_found(&mut self, token: Token, found: Found<File<H>>) {
        let exchange = self.connections[token].exchange.as_ref();
        let method =
            exchange.filter(|exchange| exchange.error.is_none()).map_or(Method::Get, |exchange| exchange.method);
        // A script's part of a path is a file's or nobody's.
        let is_of_script = exchange.is_some_and(|exchange| exchange.is_script());
        let found = match found {
            Found::HandledIndex(_) | Found::Redirect(_) | Found::Forbidden if is_of_script => Found::NotFound,
            found => found,
        };
        match found {
            Found::HandledIndex(path) => self.serve_at(token, &path),
            Found::NotFound if self.serve_script_within(token) => {}
            Found::NotFound if self.cluster.is_some() && self.gives_back_unserved(token) => {}
            Found::Resource(_) if self.asks_for_script(token) => self.serve_script(token),
            _ if !matches!(method, Method::Get | Method::Head) && !self.asks_for_script(token) => {
                self.reply_unreadable(token, method)
            }
            Found::Resource(resource) => self.reply_resource(token, &resource),
            Found::Redirect(location) => self.reply_redirect(token, &location),
            Found::NotFound if self.fall_back(token) => {}
            // A directory without an index and a listing.
            Found::Forbidden if self.asks_for_directory(token) && self.fall_back(token) => {}
            Found::NotFound => self.reply_error(token, Status::NOT_FOUND),
            Found::Forbidden => self.reply_error(token, Status::FORBIDDEN),
            Found::Unavailable(cause) => {
                self.metrics.storage_failures.increment();
                self.log_storage_failure(&cause);
                self.reply_error(token, cause.status());
            }
        }
    }

    fn reply_resource(&mut self, token: Token, resource: &Arc<Resource<File<H>>>) {
        if self.cluster.is_some() && self.delegates(token, &resource.description) {
            return;
        }
        if self.cluster.is_some() {
            let is_wanted = matches!(resource.content, Content::File(_)) || self.tells_all(token);
            if let (Some(exchange), true) = (&mut self.connections[token].exchange, is_wanted) {
                exchange.resource = Some(resource.clone());
            }
        }
        let Some(exchange) = self.connections[token].exchange.as_ref() else { return };
        if let Some(status) = exchange.error.and_then(Status::new) {
            // The site's page for an error: all of it, whatever the request's conditions were.
            let mut lines = [fields_of(status), &exchange.error_fields].concat();
            resource.push_fields_of_error(&mut lines);
            let body = body_of(resource, 0, resource.description.len_bytes);
            self.reply(token, status, &lines, body);
            return;
        }
        if !exchange.conditional {
            self.reply_whole(token, resource);
            return;
        }
        let wall = self.host.wall();
        let plan = Request::read_again(&exchange.head)
            .map_or(Plan::Whole, |request| Plan::for_resource(request.method, &request.conditions, resource, wall));
        let boundary = Boundary::from_number(self.draw());
        let mut lines = Vec::with_capacity(512);
        plan.push_fields(resource, boundary, &mut lines);
        let body = match &plan {
            Plan::Whole => body_of(resource, 0, resource.description.len_bytes),
            Plan::Range(range) => body_of(resource, range.first, range.last + 1),
            Plan::Ranges(ranges) => {
                let multipart = reply::multipart(resource, boundary);
                let mut pieces = Vec::new();
                for &range in ranges.as_slice() {
                    let mut head = Vec::new();
                    multipart.push_part_head(&mut head, range);
                    pieces.push(Piece::Bytes { bytes: head.into(), done: 0 });
                    match body_of(resource, range.first, range.last + 1) {
                        Body::Empty => {}
                        Body::Memory { content, range } => {
                            pieces.push(Piece::Bytes { bytes: content.slice(range), done: 0 });
                        }
                        Body::Pieces(part) => pieces.extend(part),
                    }
                }
                let mut end = Vec::new();
                multipart.push_end(&mut end);
                pieces.push(Piece::Bytes { bytes: end.into(), done: 0 });
                Body::Pieces(pieces)
            }
            Plan::NotModified => Body::Empty,
            Plan::PreconditionFailed | Plan::Unsatisfiable => {
                if let Some(exchange) = self.connections[token].exchange.as_mut() {
                    exchange.error_fields = lines;
                }
                self.reply_error(token, plan.status());
                return;
            }
        };
        self.reply(token, plan.status(), &lines, body);
    }

    /// Answers with all of a resource. A small one that is wanted often is sent as it was made for somebody else.
    fn reply_whole(&mut self, token: Token, resource: &Arc<Resource<File<H>>>) {
        let body = body_of(resource, 0, resource.description.len_bytes);
        let lines = resource.fields_whole();
        let Some((persistence, body)) = self.begin(token, Status::OK, body) else { return };
        if let (Persistence::Persistent, Body::Memory { content, .. }) = (persistence, &body)
            && content.len() <= COPIED_BODY_BYTES_MAX
            && !self.tells_all(token)
        {
            let whole = || {
                let mut whole = Vec::with_capacity(HEAD_BYTES + lines.len() + content.len());
                write_head(&mut whole, Status::OK, &self.date, persistence, lines);
                whole.extend_from_slice(content);
                whole.into()
            };
            if let Some(whole) = self.ready.get(resource, whole) {
                self.send(token, persistence, Vec::new(), whole);
                return;
            }
        }
        self.write(token, Status::OK, persistence, lines, body);
    }

    /// Starts a reply: `lines` are the field lines after Server, Date and Connection.
    pub(super) fn reply(&mut self, token: Token, status: Status, lines: &[u8], body: Body<'_, File<H>>) {
        if let Some((persistence, body)) = self.begin(token, status, body) {
            self.write(token, status, persistence, lines, body);
        }
    }

    /// Notes that a reply begins. What becomes of the connection after it, and what of the body is sent.
    fn begin<'a>(
        &mut self,
        token: Token,
        status: Status,
        body: Body<'a, File<H>>,
    ) -> Option<(Persistence, Body<'a, File<H>>)> {
        let close = self.ends_after_reply(token);
        let connection = &mut self.connections[token];
        let exchange = connection.exchange.as_mut()?;
        let limits = exchange.site.as_ref().map_or(&self.limits, |site| &site.limits);
        let persistence = connection.http.reply(self.now, limits, close);
        let body = if exchange.method == Method::Head { Body::Empty } else { body };
        exchange.status = status.code();
        exchange.replied = self.now;
        exchange.body_bytes = body.len();
        Some((persistence, body))
    }

    /// Writes the head, and sends it with the body or has them sent in pieces.
    fn write(&mut self, token: Token, status: Status, persistence: Persistence, lines: &[u8], body: Body<'_, File<H>>) {
        let mut head = self.reactor.send_buffer();
        write_head(&mut head, status, &self.date, persistence, lines);
        let goes_home = self.cluster.is_some()
            && persistence != Persistence::Close
            && self.connections[token].exchange.as_ref().is_some_and(|exchange| exchange.goes_home);
        let body = if goes_home { Body::Pieces(body.into_pieces()) } else { body };
        if self.cluster.is_some() {
            match &body {
                Body::Memory { content, range } => {
                    let run = range.start as u64..range.end as u64;
                    self.tell_of_whole_reply(token, &head, &content[range.clone()], run);
                }
                Body::Empty => self.tell_of_whole_reply(token, &head, b"", 0..0),
                Body::Pieces(_) => {}
            }
        }
        let body = match body {
            Body::Empty => Bytes::new(),
            Body::Memory { content, range } if range.len() <= COPIED_BODY_BYTES_MAX => {
                head.extend_from_slice(&content[range]);
                Bytes::new()
            }
            Body::Memory { content, range } => content.slice(range),
            Body::Pieces(pieces) => {
                let Some(exchange) = self.connections[token].exchange.as_mut() else { return };
                exchange.pieces.push_back(Piece::Bytes { bytes: head.into(), done: 0 });
                exchange.unchecked = pieces.iter().find_map(|piece| match piece {
                    Piece::File { file, .. } => Some(file.clone()),
                    Piece::Bytes { .. } => None,
                });
                exchange.pieces.extend(pieces);
                exchange.resident_end = 0;
                if goes_home && self.gives_back_reply(token) {
                    return;
                }
                if self.cluster.is_some() {
                    self.tell_of_reply(token);
                }
                if persistence != Persistence::Close {
                    self.arm_receive(token);
                }
                self.await_sending(token);
                return;
            }
        };
        self.send(token, persistence, head, body);
    }

    /// Gives a whole reply to the reactor.
    pub(super) fn send(&mut self, token: Token, persistence: Persistence, head: Vec<u8>, body: Bytes) {
        let Some((head, body)) = self.coalesce(token, persistence, head, body) else { return };
        let connection = &mut self.connections[token];
        if std::mem::replace(&mut connection.flags.sending, true) {
            // Earlier replies are still on their way: it goes out after them.
            let Some(exchange) = connection.exchange.as_mut() else { return };
            let parts = [Bytes::from(head), body].into_iter().filter(|part| !part.is_empty());
            exchange.pieces.extend(parts.map(|bytes| Piece::Bytes { bytes, done: 0 }));
            return;
        }
        let is_refusal = connection.exchange.as_ref().is_some_and(|exchange| exchange.refusal.is_some());
        // Only a close, or what a pipelining client has sent already, waits for the completion.
        let unhurried = persistence != Persistence::Close && connection.inbox.is_empty() && !connection.flags.ended;
        if persistence != Persistence::Close {
            self.arm_receive(token);
        }
        let operation = if is_refusal { Operation::Refuse } else { Operation::Send };
        self.meter.did(operation, (head.len() + body.len()) as u64);
        self.under_way.undecided += 1;
        self.give_to_reactor(token, Transmit { head, body, unhurried });
    }

    /// A number that no client can foresee, and no other reply has.
    pub(super) fn draw(&mut self) -> u64 {
        self.boundary = self.boundary.wrapping_mul(BOUNDARY_FACTOR).wrapping_add(1);
        self.boundary
    }

    fn reply_redirect(&mut self, token: Token, location: &[u8]) {
        let mut lines = Vec::with_capacity(location.len() + 128);
        lines.extend_from_slice(b"Location: ");
        lines.extend_from_slice(location);
        let exchange = self.connections[token].exchange.as_ref();
        if let Some(query) = exchange.and_then(|exchange| Request::read_again(&exchange.head)?.target.query) {
            lines.push(b'?');
            lines.extend_from_slice(&as_uri(query));
        }
        lines.extend_from_slice(b"\r\n");
        self.reply_page(token, Status::MOVED_PERMANENTLY, lines);
    }

    pub(super) fn reply_options(&mut self, token: Token) {
        self.reply(token, Status::NO_CONTENT, ALLOW, Body::Empty);
    }

    pub(super) fn reply_not_allowed(&mut self, token: Token) {
        self.reply_error(token, Status::METHOD_NOT_ALLOWED);
    }

    /// No site answers for the host.
    pub(super) fn reply_misdirected(&mut self, token: Token) {
        self.reply_page(token, Status::MISDIRECTED_REQUEST, Vec::new());
    }

    /// An error: with the site's own page if it has one, else with leat's.
    pub(super) fn reply_error(&mut self, token: Token, status: Status) {
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return };
        let code = exchange.error.unwrap_or(status.code());
        let page = exchange.site.as_ref().and_then(|site| {
            let mut pages = site.error_pages.iter();
            pages.find_map(|(candidate, path)| (*candidate == code).then(|| path.clone()))
        });
        if let (Some(path), None) = (page, exchange.error) {
            exchange.error = Some(code);
            exchange.conditional = false;
            return self.serve_at(token, &path);
        }
        let status = Status::new(code).unwrap_or(status);
        let lines = [fields_of(status), &exchange.error_fields].concat();
        self.reply_page(token, status, lines);
    }

    /// A reply with a small page of leat's own. `lines` are fields that go before its own.
    pub(super) fn reply_page(&mut self, token: Token, status: Status, mut lines: Vec<u8>) {
        let page = error_page::render(status);
        lines.extend_from_slice(b"Content-Type: text/html; charset=utf-8\r\nContent-Length: ");
        lines.extend_from_slice(page.len().to_string().as_bytes());
        lines.extend_from_slice(b"\r\n");
        self.reply(token, status, &lines, Body::whole(&page));
    }

    fn log_storage_failure(&mut self, cause: &dyn std::fmt::Display) {
        // Once a second at most: a broken disk breaks many requests.
        if self.rations.files.take(self.second, 1) {
            crate::log::warning(format_args!("a file can't be served: {cause}"));
        }
    }
}
