//! The end of a connection: closing in order, cutting.

use leat_host::reactor::{Reactor, Token};
use leat_logic::schedule::{LeafId, Operation};

use super::connection::Left;
use super::{Host, Stage, Worker};

impl<H: Host> Worker<H> {
    /// Charges the site of a connection for what no event does.
    pub(super) fn charge_apart(&mut self, token: Token, operation: Operation, bytes: u64) {
        self.charge_leaf_apart(self.leaf(Stage::Receive, token), operation, bytes);
    }

    /// As [`Self::charge_apart`], for a leaf.
    pub(super) fn charge_leaf_apart(&mut self, leaf: LeafId, operation: Operation, bytes: u64) {
        let cost = self.meter.charge_apart(leaf, operation, bytes);
        self.tree.correct(leaf, i64::try_from(cost.ns).unwrap_or(i64::MAX));
    }

    /// Ends our side, and closes when the client has ended its own: closing on bytes that it still sends would reset the connection, and with
    /// it the last reply.
    pub(super) fn finish(&mut self, token: Token) {
        self.flow_ends(token);
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
        self.flow_ends(token);
        let connection = &mut self.connections[token];
        connection.inbox.clear(&mut self.reactor);
        if let Some(mut exchange) = connection.exchange.take() {
            let run = exchange.run.take();
            self.abort_run(token, run);
            if exchange.status != 0 {
                self.metrics.cut_replies.increment();
                self.account(token, &exchange, self.now, false);
            }
            // The kernel may still read what a send in flight points to: the reactor owns that, not the exchange.
            self.recycle(exchange);
        }
        let is_untold = self.forget_told(token);
        let connection = &mut self.connections[token];
        let (socket, flags) = (connection.socket, &mut connection.flags);
        flags.sending &= !is_untold;
        if !flags.busy() {
            self.finish_close(token);
        } else if cut && !flags.sending {
            // A shutdown would have the client see an end in order before the reset, and take what it has for all of a reply without a length.
            if flags.receiving && !std::mem::replace(&mut flags.pausing, true) {
                self.reactor.pause(socket, token);
            }
            if flags.awaiting {
                self.reactor.stop_awaiting_writable(socket, token);
            }
        } else {
            // Makes everything under way complete; the last completion closes.
            self.reactor.shutdown(socket, token, true);
        }
    }

    /// Closes for real, once the reactor owes nothing.
    pub(super) fn finish_close(&mut self, token: Token) {
        let connection = &mut self.connections[token];
        if connection.flags.busy() {
            return;
        }
        connection.inbox.clear(&mut self.reactor);
        let (socket, is_cut) = (connection.socket, connection.flags.cut);
        let heard = if is_cut { self.last_heard(token) } else { None };
        self.reactor.close(socket, is_cut);
        self.flow_ended(token, heard);
        self.charge_apart(token, Operation::Close, 0);
        let (_, left) = self.connections.close(token.index);
        self.leave_nothing(left);
        if self.connections.len() + 1 == self.connections_max
            || self.listeners.iter().any(|listening| !listening.accepting)
        {
            self.resume_accepting();
        }
    }

    /// A connection isn't there any more: its site has nothing left of it.
    pub(super) fn leave_nothing(&mut self, left: Left) {
        let Left { token, site, held_bytes, flags } = left;
        if flags.queued {
            self.forget_parked(site);
        }
        self.gates[site as usize].unread.forget(token);
        self.release_memory(site, held_bytes);
        self.metrics.connections.set(self.connections.len() as u64);
    }
}
