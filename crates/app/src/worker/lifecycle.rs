//! The beginning and the end of a connection: accepting, closing in order, cutting.

use std::io;

use leat_host::reactor::{Reactor, Socket, Token};

use super::{Host, Worker};
use crate::log;

impl<H: Host> Worker<H> {
    pub(super) fn accepted(&mut self, listener: Token, socket: Socket) {
        self.metrics.accepted.increment();
        let token = self.connections.open(self.now, socket, listener.index as u16);
        self.metrics.connections.set(self.connections.len() as u64);
        let connection = &mut self.connections[token];
        connection.flags.receiving = true;
        connection.flags.once = true;
        self.reactor.receive_once(socket, token);
        if self.connections.len() >= self.connections_max {
            // Those that come now wait in the kernel's queue, and are accepted when others have gone.
            self.stop_accepting();
        }
    }

    pub(super) fn accept_failed(&mut self, listener: Token, error: &io::Error) {
        if let Some(listening) = self.listeners.get_mut(listener.index as usize) {
            listening.accepting = false;
        }
        // Said once: it is tried again whenever a connection has closed, and each second.
        self.metrics.accept_failures.increment();
        if self.accept_error_second != self.second {
            self.accept_error_second = self.second;
            log::warning(format_args!(
                "can't accept a connection: {error}; raise the limit on open files (ulimit -n), or lower limits.connections"
            ));
        }
        let given_back = self.cache.release_files(super::DESCRIPTORS_GIVEN_BACK);
        if given_back > 0 {
            self.resume_accepting();
        }
    }

    fn stop_accepting(&mut self) {
        for (index, listening) in self.listeners.iter_mut().enumerate() {
            if std::mem::take(&mut listening.accepting) {
                self.reactor.stop_accepting(listening.socket, Token { index: index as u32, generation: 0 });
            }
        }
    }

    /// Accepts at every listener that should and doesn't.
    pub(super) fn resume_accepting(&mut self) {
        if self.drain.is_some() || self.connections.len() >= self.connections_max {
            return;
        }
        for (index, listening) in self.listeners.iter_mut().enumerate() {
            if !listening.accepting && !listening.retired {
                listening.accepting = true;
                self.reactor.accept(listening.socket, Token { index: index as u32, generation: 0 });
            }
        }
    }

    /// Stops accepting for good.
    pub(super) fn end_accepting(&mut self) {
        self.stop_accepting();
        for listening in &mut self.listeners {
            listening.retired = true;
            listening.descriptor = None;
        }
    }

    /// Ends our side, and closes when the client has ended its own: closing on bytes that it still sends would reset the connection, and with
    /// it the last reply.
    pub(super) fn finish(&mut self, token: Token) {
        let connection = &mut self.connections[token];
        connection.inbox.clear(&mut self.reactor);
        if connection.flags.ended {
            self.close(token);
        } else {
            self.reactor.shutdown(connection.socket, token, false);
            self.arm_receive(token);
        }
    }

    /// Closes in order: what is with the kernel still goes out.
    pub(super) fn close(&mut self, token: Token) {
        self.end(token, false);
    }

    /// Closes with a reset, so that a client can't take what it has for a whole reply.
    pub(super) fn cut(&mut self, token: Token) {
        self.end(token, true);
    }

    fn end(&mut self, token: Token, cut: bool) {
        let connection = &mut self.connections[token];
        if connection.flags.closing {
            return;
        }
        connection.flags.closing = true;
        connection.flags.cut = cut;
        connection.inbox.clear(&mut self.reactor);
        if let Some(exchange) = connection.exchange.take() {
            if exchange.status != 0 {
                self.metrics.cut_replies.increment();
                self.account(token, &exchange, false);
            }
            // The kernel may still read what a send in flight points to: the reactor owns that, not the exchange.
            self.recycle(exchange);
        }
        let connection = &mut self.connections[token];
        if connection.flags.busy() {
            // Makes everything under way complete; the last completion closes.
            self.reactor.shutdown(connection.socket, token, true);
        } else {
            self.finish_close(token);
        }
    }

    /// Closes for real, once the reactor owes nothing.
    pub(super) fn finish_close(&mut self, token: Token) {
        let connection = &mut self.connections[token];
        if connection.flags.busy() {
            return;
        }
        connection.inbox.clear(&mut self.reactor);
        self.reactor.close(connection.socket, connection.flags.cut);
        self.connections.close(token.index);
        self.metrics.connections.set(self.connections.len() as u64);
        if self.connections.len() + 1 == self.connections_max
            || self.listeners.iter().any(|listening| !listening.accepting)
        {
            self.resume_accepting();
        }
    }
}
