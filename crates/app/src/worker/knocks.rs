//! Who is heard of those who want to connect while no more are let in than are served, and how many wait then: `Shedding` says, here the kernel is told,
//! and those are accepted past a flood who ask for little.

use std::time::Duration;

use leat_host::reactor::{Reactor, Socket, Token};
use leat_logic::admission::limits::{LISTENER_MANY, LISTENER_QUEUE_OF_NODE, LISTENER_QUEUE_SPARE};
use leat_logic::client_prefix::ClientPrefix;
use leat_logic::schedule::Operation;
use leat_logic::time::Instant;

use super::{Host, Worker};
use crate::log;

/// Between two messages.
const SAID_EVERY: Duration = Duration::from_secs(60);
/// Between two looks for bursts, which take some microseconds.
const BURSTS_EVERY: Duration = Duration::from_micros(500);
/// Connections at one listener that are accepted and not heard: with more of them, others wait in the kernel's queue behind the rest.
const PARKED_MAX: usize = LISTENER_QUEUE_SPARE as usize;

/// At all of a worker's listeners.
#[derive(Debug, Default)]
pub(super) struct Knocks {
    /// No more are let in than are served, as was last seen.
    pub(super) are_few: bool,
    /// When it was last said that most aren't.
    said: Option<Instant>,
    /// When it was last looked for bursts.
    looked: Instant,
    /// At a node: many have waited, as was seen since homes were last told.
    pub(super) are_many: bool,
}

impl<H: Host> Worker<H> {
    /// Somebody has been let in: counts for what part of those of the same network is, while few are. From which one, if that counts.
    pub(super) fn count_knock(&mut self, listener: Token, socket: Socket) -> Option<ClientPrefix> {
        if !self.knocks.are_few || !self.hears_first_packets() {
            return None;
        }
        let network = ClientPrefix::of(self.reactor.peer(socket)?.ip());
        self.listeners[listener.index as usize].shedding.count(network);
        Some(network)
    }

    /// Has the kernel keep fewer connections waiting while that is long, and as many as usual afterwards; it isn't to hear those for whom there is
    /// no room then.
    pub(super) fn bound_listener_queues(&mut self) {
        let is_few = self.admission.lets_few_in(self.now);
        if !std::mem::replace(&mut self.knocks.are_few, is_few) && !is_few {
            return;
        }
        self.shared.few_are_let_in(self.now);
        let hears = self.hears_first_packets();
        let mut is_crowded = false;
        for listening in self.listeners.iter_mut().filter(|it| it.state.is_open() && !it.sites.name.is_admin) {
            let knocking = self.reactor.knocking(listening.socket);
            let dropped = knocking.dropped.wrapping_sub(std::mem::replace(&mut listening.dropped, knocking.dropped));
            self.metrics.knocks_dropped.add(dropped.into());
            if let Some(whom) = listening.shedding.look(knocking.waiting + listening.parked.len() as u32, is_few) {
                self.reactor.let_in(listening.socket, &whom);
            }
            let queue_max = is_few.then(|| if hears { listening.shedding.queue_max() } else { LISTENER_QUEUE_OF_NODE });
            self.knocks.are_many |= is_few && !hears && knocking.waiting >= LISTENER_MANY;
            if std::mem::replace(&mut listening.queue_max, queue_max) != queue_max {
                self.reactor.set_queue_max(listening.socket, queue_max);
            }
            is_crowded |= listening.shedding.is_crowded();
        }
        if is_crowded {
            self.admission.saw_crowd(self.now);
        }
        if is_crowded && hears {
            self.say_who_is_dropped();
        }
    }

    /// While some networks ask for less than others: keeps the others' bursts out of the queues, and accepts past them while nobody else is accepted. Ask every
    /// turn while few are let in: before the worker sleeps it's looked in any case, as it could serve who is held back.
    pub(super) fn look_past_bursts(&mut self) {
        if self.now.since(self.knocks.looked) < BURSTS_EVERY && !self.tree.is_empty() {
            return;
        }
        self.knocks.looked = self.now;
        for index in 0..self.listeners.len() {
            let listening = &mut self.listeners[index];
            if !listening.state.is_open() || listening.sites.name.is_admin || !listening.shedding.tells_apart() {
                continue;
            }
            let waiting = self.reactor.knocking(listening.socket).waiting;
            if let Some(whom) = listening.shedding.hold_back(waiting + listening.parked.len() as u32) {
                self.reactor.let_in(listening.socket, &whom);
            }
            if !listening.accepting && waiting > 0 {
                self.accept_past_flood(index, waiting);
            }
        }
    }

    /// Those who ask for little are heard at once, the others when there is less to do.
    fn accept_past_flood(&mut self, index: usize, waiting: u32) {
        let listener = Token { index: index as u32, generation: 0 };
        for _ in 0..waiting {
            let listening = &self.listeners[index];
            if listening.parked.len() >= PARKED_MAX || !self.has_room(false) {
                break;
            }
            let leaf = listening.leaf;
            let Ok(Some(accepted)) = self.reactor.accept(listening.socket) else { break };
            self.charge_leaf_apart(leaf, Operation::Accept, 0);
            let network = self.count_knock(listener, accepted);
            let listening = &mut self.listeners[index];
            match network.is_some_and(|network| listening.shedding.asks_for_little(network)) {
                true => self.accepted(listener, accepted),
                false => listening.parked.push_back(accepted),
            }
        }
    }

    /// Who can do something about it is told.
    fn say_who_is_dropped(&mut self) {
        if self.knocks.said.is_some_and(|said| self.now.since(said) < SAID_EVERY) {
            return;
        }
        let crowded =
            self.listeners.iter().find(|listening| listening.state.is_open() && listening.shedding.is_crowded());
        let Some(listening) = crowded else { return };
        self.knocks.said = Some(self.now);
        let address = listening.sites.name.address;
        match listening.shedding.most_dropped() {
            Some((network, part)) => log::warning(format_args!(
                "more want to connect to {address} than can be served: of those from {network}, whence most come, one in {:.0} is let in; if they aren't \
                 wanted, keep them out before they come here",
                1.0 / part
            )),
            None => {
                log::warning(format_args!("more want to connect to {address} than can be served: most aren't let in"))
            }
        }
    }
}
