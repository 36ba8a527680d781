//! Requests that another server answers, on their way to the next engine: its connection goes along, as soon as it has been told the request's head. Programs
//! can't go: they are this process's children.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use leat_host::reactor::Token;
use leat_logic::handoff::limits::ETAG_BYTES_MAX;
use leat_logic::handoff::{ProxiedRequest, ReplyState, ServerEnd, Talk as Said};
use leat_logic::http::client::{ReplyReader, asks_for_websocket};
use leat_logic::http::{BodyLength, Request, Status};

use super::super::exchange::Piece;
use super::super::stream::{Contents, Owner};
use super::super::{Host, Stage, Worker};
use super::program_run::{Body, Framing, ProgramRun, Talk};
use super::{Handler, Kind, Run};

/// A server's connection that has come from another engine, and how its client's request goes on here.
pub(in crate::worker) struct ServerArrival {
    socket: OwnedFd,
    end: ServerEnd,
    handler: Rc<Handler>,
    named: usize,
    speech: Speech,
}

enum Speech {
    WebSocket,
    Request { place: usize, reader: ReplyReader, request: ProxiedRequest },
}

impl<H: Host> Worker<H> {
    /// Whether what a handler has under way for a connection, if anything, can go on in another process.
    pub(in crate::worker) fn run_may_pass(&mut self, token: Token) -> bool {
        let Some(exchange) = self.connections[token].exchange.as_ref() else { return true };
        match &exchange.run {
            None => true,
            Some(Run::Burn { .. }) => false,
            Some(Run::Program(run)) => {
                let stream = run.stream().filter(|_| !exchange.is_fetched && what_is_said(run).is_some());
                stream.and_then(|stream| self.streams.get(stream)).is_some_and(|stream| stream.can_travel())
            }
        }
    }

    /// Has the reactor let go of the server's connection. Whether it has; also where there is none.
    pub(in crate::worker) fn freeze_run(&mut self, token: Token) -> bool {
        let stream = self.program_run(token).and_then(|run| run.stream());
        let stream = stream.and_then(|stream| self.streams.get(stream));
        stream.is_none_or(|stream| stream.freeze(&mut self.reactor))
    }

    /// What was to go on elsewhere goes on here.
    pub(in crate::worker) fn thaw_run(&mut self, token: Token) {
        let stream = self.program_run(token).and_then(|run| run.stream());
        if let Some(stream) = stream.and_then(|stream| self.streams.get(stream)) {
            stream.thaw(&mut self.reactor);
            self.queue(Stage::Transmit, token);
        }
    }

    /// The server's connection, of which the reactor has let go, and what is on its way.
    pub(in crate::worker) fn give_up_server(&mut self, token: Token) -> Option<(OwnedFd, ServerEnd)> {
        let run = self.program_run(token)?;
        let (stream, talk, here, handler) = (run.stream()?, what_is_said(run)?, run.talk, run.handler.clone());
        let (socket, Contents { inbox, outbox }) = self.give_up_stream(stream)?;
        let exchange = self.connections[token].exchange.as_ref()?;
        let unsent = exchange.pieces.iter().filter_map(|piece| match piece {
            Piece::Bytes { bytes, done } => Some(&bytes[*done..]),
            Piece::File { .. } => None,
        });
        let to_client = unsent.collect::<Vec<_>>().concat();
        let drawn = exchange.drawn;
        if let (Talk::Http { place, .. }, Kind::Proxy { proxy, .. }) = (here, &handler.kind) {
            proxy.leave_place(self.now, place);
            self.serve_waiting(&handler);
        }
        Some((socket, ServerEnd { to_server: outbox, from_server: inbox, to_client, drawn, talk }))
    }

    /// Finds the handler that goes on: the one that there is for the request's path, which must have the same server.
    pub(in crate::worker) fn understand_server(
        &self,
        (socket, end): (OwnedFd, ServerEnd),
        head: &[u8],
        reply: Option<&(ReplyState, u32)>,
    ) -> Option<ServerArrival> {
        let (state, site) = reply?;
        let site = &self.sites[*site as usize];
        let (place, named) = site.handler(&state.path)?;
        let handler = site.handlers[place].clone();
        let Kind::Proxy { proxy, .. } = &handler.kind else { return None };
        let speech = match &end.talk {
            Said::WebSocket if state.status == Status::SWITCHING_PROTOCOLS.code() => Speech::WebSocket,
            Said::Request(request) => {
                let asked = Request::read_again(head)?;
                let mut reader = ReplyReader::import(asked.method, &request.reader)?;
                if asks_for_websocket(&asked) {
                    reader.expect_websocket();
                }
                Speech::Request { place: proxy.place_of(&request.server)?, reader, request: request.clone() }
            }
            Said::WebSocket | Said::Relay(_) => return None,
        };
        Some(ServerArrival { socket, end, handler, named, speech })
    }

    /// Goes on with a request that another server answers. False where its connection can't be had.
    pub(in crate::worker) fn resume_run(&mut self, token: Token, arrival: ServerArrival) -> bool {
        let ServerArrival { socket, end, handler, named, speech } = arrival;
        let ServerEnd { to_server, from_server, to_client, drawn, .. } = end;
        let contents = Contents { inbox: from_server, outbox: to_server };
        let Some(stream) = self.take_over_stream(socket, Owner::Connection(token), contents) else { return false };
        let mut run = match speech {
            Speech::WebSocket => ProgramRun::resumed(&handler, named, Talk::Tunnel { stream }, self.now),
            Speech::Request { place, reader, request } => {
                if let Kind::Proxy { proxy, .. } = &handler.kind {
                    proxy.take_place(self.now, place);
                }
                let mut run = ProgramRun::resumed(&handler, named, Talk::Http { stream, place, reader }, self.now);
                let framing = |is_chunked| if is_chunked { Framing::Chunked } else { Framing::Plain };
                run.framing = request.is_chunked.map(framing);
                run.body = if request.expects_content { Body::Expected } else { Body::Ended };
                (run.whole, run.passing.is_kept) = (request.whole, request.is_kept);
                (run.has_sent, run.passing.has_spoken) = (run.framing.is_some(), run.framing.is_some());
                run
            }
        };
        let Some(exchange) = self.connections[token].exchange.as_mut() else { return false };
        let length = Request::read_again(&exchange.head).map_or(BodyLength::None, |request| {
            run.passing.given(self.now, &request);
            request.body
        });
        (exchange.run, exchange.drawn) = (Some(Run::Program(run)), drawn);
        self.expect_length(token, length);
        self.send_on(token, to_client);
        true
    }
}

/// What is said between client and server, if another process can go on with it.
fn what_is_said(run: &ProgramRun) -> Option<Said> {
    let passing = &run.passing;
    if run.failed.is_some() || passing.stop.is_some() || !passing.is_given || !passing.is_of_handler() {
        return None;
    }
    match (run.talk, &run.handler.kind) {
        (Talk::Tunnel { .. }, _) => Some(Said::WebSocket),
        (Talk::Http { place, reader, .. }, Kind::Proxy { proxy, .. }) if run.framing != Some(Framing::Dropped) => {
            let whole = run.whole.clone().filter(|whole| whole.etag().len() <= ETAG_BYTES_MAX);
            Some(Said::Request(ProxiedRequest {
                server: proxy.name_of(place)?,
                expects_content: run.body == Body::Expected,
                is_kept: passing.is_kept,
                reader: reader.export()?,
                is_chunked: run.framing.map(|framing| framing == Framing::Chunked),
                whole,
            }))
        }
        _ => None,
    }
}
