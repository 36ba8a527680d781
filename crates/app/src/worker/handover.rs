//! A worker that retires gives its connections to the others, each between two requests: only the socket goes along.

use std::os::fd::{IntoRawFd, OwnedFd};

use leat_host::reactor::{Reactor, Socket, Token};

use super::control::Control;
use super::{Host, Worker};
use crate::listener::ListenerName;

impl<H: Host> Worker<H> {
    /// Whether connections are to go to other workers.
    pub(super) fn is_retiring(&self) -> bool {
        self.retiring.is_some()
    }

    /// Starts handing over a connection, if nothing of a request is here.
    pub(super) fn offer_to_heirs(&mut self, token: Token) {
        let connection = &mut self.connections[token];
        let flags = &mut connection.flags;
        let is_between = connection.http.is_idle() && connection.exchange.is_none() && connection.inbox.is_empty();
        if !is_between || flags.queued || flags.ended || flags.closing || flags.sending || flags.pausing {
            return;
        }
        if flags.receiving {
            // The reactor may have received the next request already: then it's answered here.
            flags.pausing = true;
            self.reactor.pause(connection.socket, token);
        } else {
            self.hand_over(token);
        }
    }

    pub(super) fn offer_all_to_heirs(&mut self) {
        for index in 0..self.connections.slots() as u32 {
            if let Some(token) = self.connections.token(index) {
                self.offer_to_heirs(token);
            }
        }
    }

    /// Gives a connection to one of the others.
    pub(super) fn hand_over(&mut self, token: Token) {
        let connection = &mut self.connections[token];
        let listener = self.listeners[connection.listener as usize].sites.name;
        let heirs = self.retiring.as_ref().map_or(&[][..], |retiring| &retiring.heirs);
        let (false, Ok(socket)) = (heirs.is_empty(), self.reactor.give_up(connection.socket)) else {
            // Nobody takes it: it goes on here, to the end of the drain.
            self.arm_receive(token);
            return;
        };
        heirs[token.index as usize % heirs.len()].send(Control::Adopt { socket, listener });
        if let Some(exchange) = self.connections.close(token.index) {
            self.recycle(exchange);
        }
        self.metrics.connections.set(self.connections.len() as u64);
    }

    /// Takes a connection that another worker has given up.
    pub(super) fn adopt(&mut self, socket: OwnedFd, name: ListenerName) {
        let Some(listener) = self.listeners.iter().position(|listening| listening.sites.name == name) else {
            // Its address has just been removed: it closes, as all of that address do.
            return;
        };
        let socket = Socket(socket.into_raw_fd().cast_unsigned());
        let token = self.connections.open(self.now, socket, listener as u16);
        self.metrics.connections.set(self.connections.len() as u64);
        self.arm_receive(token);
        if self.is_retiring() {
            self.offer_to_heirs(token);
        }
    }
}
