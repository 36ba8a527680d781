//! Connections that become something else than HTTP, as client and server have agreed: a WebSocket. From then on bytes go both ways until the server ends its
//! side; what they mean is nobody's business here, and a client's end goes on to the server as an end.

use std::io::IoSlice;

use leat_host::reactor::Token;
use leat_logic::http::client::WEBSOCKET;
use leat_logic::http::{HeadWriter, Status};

use super::super::{Host, Stage, Worker};
use super::program_run::{Body, Framing, ProgramRun, Talk};
use super::relay::Heard;
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

    /// What the server has said to the client.
    pub(super) fn hear_tunnel(&mut self, token: Token, stream: Token, out: &mut Vec<u8>) -> Heard {
        let has_ended = self.streams.get(stream).is_some_and(|stream| stream.has_ended());
        let Some(lent) = self.streams.lend(stream) else { return Heard::More };
        let count = lent.bytes().len();
        if count > 0 {
            let is_next = out.is_empty();
            let done = if is_next { self.send_at_once(token, &[IoSlice::new(lent.bytes())]) } else { 0 };
            out.extend_from_slice(&lent.bytes()[done..]);
            self.count_content(token, count as u64);
        }
        self.streams.take_back(&mut self.reactor, &mut self.rooms, stream, lent, count);
        if has_ended { Heard::All } else { Heard::More }
    }

    /// What the client has sent to the server, which has room for so much.
    pub(super) fn relay_to_tunnel(&mut self, token: Token, room: usize) {
        // More than a receive buffer at a time: the rest of it is received where it's sent from.
        if self.connections[token].flags.behind {
            self.connections[token].flags.uploads = true;
            self.receive_by_parts(token);
            self.receive_content(token);
        }
        let Some(connection) = self.connections.get(token) else { return };
        let Some(Run::Program(run)) = connection.exchange.as_mut().and_then(|exchange| exchange.run.as_mut()) else {
            return;
        };
        let Some(stream) = run.stream().and_then(|stream| self.streams.get(stream)) else { return };
        connection.inbox.keep(&mut self.reactor);
        let input = connection.inbox.kept();
        let count = input.len().min(room);
        if count > 0 {
            stream.say(&mut self.reactor, &input[..count]);
            connection.inbox.consume_kept(count, &mut self.rooms);
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
