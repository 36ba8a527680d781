//! Connections that go to another worker, each between two requests: all of a worker's that retires, and a few where a site's sit unevenly.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use leat_host::reactor::{Reactor, Token};
use leat_logic::time::Instant;

use super::control::{Control, Mailbox};
use super::{Host, Retiring, Stage, Worker};
use crate::listener::ListenerName;

/// How long connections may take to come to the end of a reply before they go.
const DEPARTURE_PATIENCE: Duration = Duration::from_secs(1);

/// Connections that are to go to other workers, so that shares hold over all.
#[derive(Default)]
pub(super) struct Departures {
    wanted: Vec<Departure>,
}

/// So many of one site's.
struct Departure {
    site: u32,
    left: u32,
    to: Arc<Mailbox>,
    until: Instant,
}

impl Departures {
    #[inline]
    pub(super) fn are_any(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Whether one more connection of the site is to go.
    fn begin(&mut self, site: u32) -> bool {
        match self.wanted.iter_mut().find(|departure| departure.site == site && departure.left > 0) {
            Some(departure) => {
                departure.left -= 1;
                true
            }
            None => false,
        }
    }

    /// Where a connection goes that was to go.
    fn heir(&self, site: u32) -> Option<Arc<Mailbox>> {
        self.wanted.iter().find(|departure| departure.site == site).map(|departure| departure.to.clone())
    }

    /// Forgets what hasn't come about in time: by now it may be wrong.
    pub(super) fn forget_old(&mut self, now: Instant) {
        self.wanted.retain(|departure| now < departure.until);
    }
}

impl Retiring {
    /// Who gets a connection. Heirs may have gone since, too.
    fn heir(&self, token: Token) -> Option<Arc<Mailbox>> {
        let (before, after) = self.heirs.split_at(token.index as usize % self.heirs.len().max(1));
        after.iter().chain(before).find(|heir| heir.is_open()).cloned()
    }
}

impl<H: Host> Worker<H> {
    /// Whether connections are to go to other workers.
    pub(super) fn is_retiring(&self) -> bool {
        self.retiring.is_some()
    }

    /// Starts handing over a connection, if nothing of a request is here.
    pub(super) fn offer_to_heirs(&mut self, token: Token) {
        let may_leave = self.may_leave(token);
        let connection = &mut self.connections[token];
        let flags = &mut connection.flags;
        let is_between =
            may_leave && connection.http.is_idle() && connection.exchange.is_none() && connection.inbox.is_empty();
        if !is_between || flags.untold || flags.queued || flags.ended || flags.closing || flags.sending || flags.pausing
        {
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

    /// Gives a connection to one of the others, with what it has received of the next request.
    pub(super) fn hand_over(&mut self, token: Token) {
        let connection = &mut self.connections[token];
        let is_between = connection.http.is_idle() && connection.exchange.is_none();
        let heir = match std::mem::take(&mut connection.flags.departing) {
            true => self.departures.heir(connection.site),
            false => self.retiring.as_ref().and_then(|retiring| retiring.heir(token)),
        };
        let heir = heir.filter(|heir| heir.is_open());
        let listener = self.listeners[connection.listener as usize].sites.name;
        // Nobody takes it: it goes on here.
        let (true, Some(heir)) = (is_between, heir) else { return self.go_on_here(token) };
        let Ok(socket) = self.reactor.give_up(connection.socket, token) else { return self.go_on_here(token) };
        let site = self.sites[connection.site as usize].name.clone();
        let input = connection.inbox.bytes(&self.reactor).to_vec();
        connection.inbox.clear(&mut self.reactor);
        let client = connection.told_client();
        self.flow_ended(token, None);
        let refused = heir.offer(Control::Adopt { socket, listener, site, input, client });
        let (exchange, left) = self.connections.close(token.index);
        exchange.into_iter().for_each(|exchange| self.recycle(exchange));
        self.leave_nothing(left);
        if let Some(Control::Adopt { socket, listener, site, input, client }) = refused {
            // It has ended at this moment.
            self.adopt(socket, listener, &site, input, client);
        }
    }

    fn go_on_here(&mut self, token: Token) {
        let connection = &self.connections[token];
        if connection.exchange.is_none() && !connection.inbox.is_empty() {
            self.queue(Stage::Receive, token);
        }
        self.arm_receive(token);
    }

    /// Gives some of a site's connections away: those that wait now, and others after their next reply.
    pub(super) fn depart(&mut self, site: &str, connections: u32, to: Arc<Mailbox>) {
        let Some(site) = self.sites.iter().find(|known| known.name == site).map(|known| known.number) else { return };
        self.departures.wanted.retain(|departure| departure.site != site);
        let until = self.now.after(DEPARTURE_PATIENCE);
        self.departures.wanted.push(Departure { site, left: connections, to, until });
        for index in 0..self.connections.slots() as u32 {
            if let Some(token) = self.connections.token(index) {
                self.offer_departure(token);
            }
        }
    }

    /// Sends a connection to another worker if its site is to have fewer here.
    pub(super) fn offer_departure(&mut self, token: Token) {
        let may_leave = self.may_leave(token);
        let connection = &mut self.connections[token];
        let flags = &mut connection.flags;
        let is_between =
            may_leave && connection.http.is_idle() && connection.exchange.is_none() && connection.inbox.is_empty();
        let is_busy = flags.untold
            || flags.queued
            || flags.ended
            || flags.closing
            || flags.sending
            || flags.pausing
            || flags.held;
        if !is_between || is_busy || !self.departures.begin(connection.site) {
            return;
        }
        flags.departing = true;
        if flags.receiving {
            // What it receives before that has stopped goes along.
            flags.pausing = true;
            self.reactor.pause(connection.socket, token);
        } else {
            self.hand_over(token);
        }
    }

    /// Takes a connection that another worker has given up.
    pub(super) fn adopt(
        &mut self,
        socket: OwnedFd,
        name: ListenerName,
        site: &str,
        input: Vec<u8>,
        client: Option<SocketAddr>,
    ) {
        let Some(listener) = self.listeners.iter().position(|listening| listening.sites.name == name) else {
            // Its address has just been removed: it closes, as all of that address do.
            return;
        };
        let Ok(socket) = self.reactor.adopt(socket) else { return };
        let token = self.open(listener as u16, socket);
        self.begins_at_peer(token);
        if let Some(client) = client {
            self.know_client(token, client);
        }
        let site = self.sites.iter().find(|known| known.name == site);
        let connection = &mut self.connections[token];
        connection.site = site.map_or(connection.site, |site| site.number);
        connection.arrived_us = self.now_us;
        if !input.is_empty() {
            connection.inbox.put(input);
            self.queue(Stage::Receive, token);
        }
        self.arm_receive(token);
        if self.is_retiring() {
            self.offer_to_heirs(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heirs_that_have_ended_get_nothing() {
        let heirs: Vec<_> = (0..3).map(|_| Arc::new(Mailbox::new().unwrap())).collect();
        let now = Instant::default();
        let retiring = Retiring { accept_until: now, deadline: now, heirs: heirs.clone() };
        let place = |index| {
            let heir = retiring.heir(Token { index, generation: 0 })?;
            heirs.iter().position(|known| Arc::ptr_eq(known, &heir))
        };
        assert_eq!([0, 1, 2, 3].map(place), [0, 1, 2, 0].map(Some));
        assert!(heirs[2].close());
        assert_eq!([0, 1, 2, 3].map(place), [0, 1, 0, 0].map(Some));
        assert!(heirs[0].close() && heirs[1].close());
        assert_eq!(place(1), None);
    }
}
