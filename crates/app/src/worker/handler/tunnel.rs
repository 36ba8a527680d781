//! Connections that become something else than HTTP, as client and server have agreed: a WebSocket. From then on bytes go both ways until the server ends its
//! side; what they mean is nobody's business here, and a client's end goes on to the server as an end.

use leat_host::reactor::Token;
use leat_logic::http::client::WEBSOCKET;
use leat_logic::http::{HeadWriter, Status};

use super::super::{Host, Stage, Worker};
use super::program_run::{Body, Framing, ProgramRun, Talk};
use super::{Kind, Run};

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
