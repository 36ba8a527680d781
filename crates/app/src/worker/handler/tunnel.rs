//! Connections that become something else than HTTP, as client and server have agreed: a WebSocket. From then on bytes go both ways until the server ends its
//! side; what they mean is nobody's business here, and a client's end goes on to the server as an end. As nobody's business it goes to the next engine at an upgrade.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use leat_host::reactor::Token;
use leat_logic::handoff::{ReplyState, Tunnel};
use leat_logic::http::client::WEBSOCKET;
use leat_logic::http::{HeadWriter, Status};

use super::super::exchange::Piece;
use super::super::stream::{Contents, Owner};
use super::super::{Host, Stage, Worker};
use super::program_run::{Body, Framing, ProgramRun, Talk};
use super::{Handler, Kind, Run};

/// A tunnel that has come from another process, but for its client's end.
pub(in crate::worker) struct TunnelArrival {
    server: OwnedFd,
    tunnel: Tunnel,
    handler: Rc<Handler>,
    named: usize,
}

impl<H: Host> Worker<H> {
    /// The server has agreed, in a head with these lines: the client is told.
    pub(super) fn begin_tunnel(&mut self, token: Token, run: &mut ProgramRun, lines: &[u8], out: &mut Vec<u8>) {
        let Talk::Http { stream, place, .. } = run.talk else { return };
        let connection = &mut self.connections[token];
        let Some(exchange) = connection.exchange.as_mut() else { return };
        let limits = exchange.site.as_ref().map_or(&self.limits, |site| &site.limits);
        let _ = connection.http.reply(self.now, limits, true);
        exchange.status = Status::SWITCHING_PROTOCOLS.code();
        exchange.replied = self.now;
        let _ = HeadWriter::start(out, Status::SWITCHING_PROTOCOLS, &self.date);
        [WEBSOCKET, lines, b"\r\n"].iter().for_each(|part| out.extend_from_slice(part));
        (run.framing, run.body, run.talk) = (Some(Framing::Plain), Body::Tunnel, Talk::Tunnel { stream });
        // It may last for hours, and requests go on beside it.
        if let Kind::Proxy { proxy, .. } = &run.handler.kind {
            proxy.leave_place(self.now, place);
        }
        self.leave_requests(token);
        self.serve_waiting(&run.handler);
        // What the client has sent already.
        self.queue(Stage::Transmit, token);
    }

    /// Whether a connection is one of these.
    pub(in crate::worker) fn is_tunnel(&mut self, token: Token) -> bool {
        self.program_run(token).is_some_and(|run| run.is_tunnel())
    }

    /// Whether what a handler has under way for a connection, if anything, can go on in another process.
    pub(in crate::worker) fn run_may_pass(&mut self, token: Token) -> bool {
        let Some(exchange) = self.connections[token].exchange.as_ref() else { return true };
        match &exchange.run {
            None => true,
            Some(Run::Burn { .. }) => false,
            Some(Run::Program(run)) => {
                let is_over = run.failed.is_some() || run.passing.stop.is_some();
                let Talk::Tunnel { stream } = run.talk else { return false };
                !is_over && self.streams.get(stream).is_some_and(|stream| stream.can_travel())
            }
        }
    }

    /// Has the reactor let go of a tunnel's other end. Whether it has; also where there is none.
    pub(in crate::worker) fn freeze_tunnel(&mut self, token: Token) -> bool {
        match self.program_run(token).and_then(|run| run.stream()).and_then(|stream| self.streams.get(stream)) {
            Some(stream) => stream.freeze(&mut self.reactor),
            None => true,
        }
    }

    /// A tunnel that was to go on elsewhere goes on here.
    pub(in crate::worker) fn thaw_tunnel(&mut self, token: Token) {
        let stream = self.program_run(token).and_then(|run| run.stream());
        if let Some(stream) = stream.and_then(|stream| self.streams.get(stream)) {
            stream.thaw(&mut self.reactor);
            self.queue(Stage::Transmit, token);
        }
    }

    /// Takes what has come from the server's end, for the client.
    pub(in crate::worker) fn empty_tunnel(&mut self, token: Token) {
        let stream = self.program_run(token).and_then(|run| run.stream());
        let Some(stream) = stream.and_then(|stream| self.streams.get(stream)) else { return };
        let bytes = stream.bytes().to_vec();
        stream.take(&mut self.reactor, bytes.len());
        self.count_content(token, bytes.len() as u64);
        self.send_on(token, bytes);
    }

    /// The server's end of a tunnel, of which the reactor has let go, and what is on its way in both directions; its inbox is empty.
    pub(in crate::worker) fn give_up_tunnel(&mut self, token: Token) -> Option<(OwnedFd, Tunnel)> {
        let stream = self.program_run(token)?.stream()?;
        let (socket, Contents { outbox, .. }) = self.give_up_stream(stream)?;
        let pieces = self.connections[token].exchange.iter().flat_map(|exchange| &exchange.pieces);
        let unsent = pieces.filter_map(|piece| match piece {
            Piece::Bytes { bytes, done } => Some(&bytes[*done..]),
            Piece::File { .. } => None,
        });
        let to_client = unsent.collect::<Vec<_>>().concat();
        Some((socket, Tunnel { to_server: outbox, to_client, relay: None }))
    }

    /// Finds the handler whose tunnel it is: the one that there is for its path.
    pub(in crate::worker) fn understand_tunnel(
        &self,
        (server, tunnel): (OwnedFd, Tunnel),
        reply: Option<&(ReplyState, u32)>,
    ) -> Option<TunnelArrival> {
        let (reply, site) = reply.filter(|(reply, _)| reply.status == Status::SWITCHING_PROTOCOLS.code())?;
        let site = &self.sites[*site as usize];
        let (place, named) = site.handler(&reply.path)?;
        let handler = site.handlers[place].clone();
        matches!(handler.kind, Kind::Proxy { .. }).then_some(TunnelArrival { server, tunnel, handler, named })
    }

    /// Goes on with a tunnel of which this connection is the client's end. False where the other end can't be had.
    pub(in crate::worker) fn resume_tunnel(&mut self, token: Token, arrival: TunnelArrival) -> bool {
        let TunnelArrival { server, tunnel: Tunnel { to_server, to_client, .. }, handler, named } = arrival;
        let contents = Contents { inbox: Vec::new(), outbox: to_server };
        let Some(stream) = self.take_over_stream(server, Owner::Connection(token), contents) else {
            return false;
        };
        if let Some(exchange) = self.connections[token].exchange.as_mut() {
            exchange.run = Some(Run::Program(ProgramRun::tunnel(&handler, named, stream, self.now)));
        }
        self.send_on(token, to_client);
        true
    }

    /// What the client has sent to the server, which has room for so much.
    pub(super) fn relay_to_tunnel(&mut self, token: Token, room: usize) {
        let Some(connection) = self.connections.get(token) else { return };
        let Some(Run::Program(run)) = connection.exchange.as_mut().and_then(|exchange| exchange.run.as_mut()) else {
            return;
        };
        let Some(stream) = run.stream().and_then(|stream| self.streams.get(stream)) else { return };
        let input = connection.inbox.bytes(&self.reactor);
        let count = input.len().min(room);
        if count > 0 {
            stream.outbox().extend_from_slice(&input[..count]);
            connection.inbox.consume(&mut self.reactor, count);
            run.heard_at = self.now;
        }
        let has_all = connection.inbox.is_empty();
        if has_all && connection.flags.ended {
            run.body = Body::Ended;
            stream.finish(&mut self.reactor);
        } else {
            stream.flush(&mut self.reactor);
        }
        let has_room = stream.room() > 0;
        if has_all {
            self.arm_receive(token);
        } else if has_room {
            // Nobody else may ever ask for the rest: the client is silent until it's answered, and so is the server.
            self.queue(Stage::Transmit, token);
        }
    }
}
