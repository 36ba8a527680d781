//! The events that the tree orders: which there are, how they get into it, and who pays for what one has cost when it has run.

use std::time::Duration;

use leat_host::reactor::Token;
use leat_logic::admission::Admission;
use leat_logic::schedule::{Cost, LeafId, Operation, Urgency};
use leat_logic::time::Instant;

use super::exchange::{Exchange, Standing};
use super::{ADMIN_SITE, Host, UNKNOWN_SITE, Worker, before};

/// The stages of a request's life in a worker: each has a leaf for each site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Bytes to a request.
    Receive,
    /// A request to a reply.
    Serve,
    /// The parts of a reply that don't fit in one send.
    Transmit,
    /// A slice of what a handler computes.
    Compute,
}

impl Stage {
    pub(super) const COUNT: usize = 4;
    pub(super) const ALL: [Stage; Stage::COUNT] = [Stage::Receive, Stage::Serve, Stage::Transmit, Stage::Compute];
}

/// What there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// A stage of a connection's request.
    Stage(Stage),
    /// Accepting at a listener.
    Accept,
    /// A slice of a program.
    Program,
    /// Connections that change hands, and that nobody waits for.
    Handoffs,
    /// Bytes between a client of a port and its nodes.
    Relay,
}

/// What the tree orders.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) task: Task,
    /// The connection's, the listener's or the program's.
    pub(super) token: Token,
    /// [`Worker::now_us`] when it was queued.
    pub(super) queued_us: u32,
    /// Admission control counts it as waiting for its site to be known.
    pub(super) is_unknown: bool,
}

/// An event of a site's that has waited since then: due when that is as long as the site's requests may wait.
pub(super) fn urgency(admission: &Admission, site: u32, since: Instant, remaining: u64) -> Urgency {
    Urgency { deadline_ns: since.ns.saturating_add(admission.queue_delay_max_ns(site as usize)), remaining }
}

impl<H: Host> Worker<H> {
    /// Queues an event for a connection, at the leaf of the site that pays for it.
    pub(super) fn queue(&mut self, stage: Stage, token: Token) {
        self.queue_at(stage, token, false);
    }

    /// As [`Worker::queue`], before the site's other events of this stage: it has begun already.
    pub(super) fn queue_first(&mut self, stage: Stage, token: Token) {
        self.queue_at(stage, token, true);
    }

    fn queue_at(&mut self, stage: Stage, token: Token, is_first: bool) {
        if self.connections[token].flags.queued {
            return;
        }
        let leaf = self.leaf(stage, token);
        let connection = &mut self.connections[token];
        connection.flags.queued = true;
        connection.queued_us = self.now_us;
        let gate = &mut self.gates[connection.site as usize];
        if gate.is_closed(stage) {
            connection.flags.parked = true;
            gate.park(stage, token, self.now);
            return;
        }
        let is_unknown = stage == Stage::Receive && self.connections[token].site == UNKNOWN_SITE;
        if is_unknown {
            // Nobody is refused who isn't known.
            let _ = self.admission.arrive(UNKNOWN_SITE as usize, self.now);
        }
        let event = Event { task: Task::Stage(stage), token, queued_us: self.now_us, is_unknown };
        let (connection, admission, now) = (&self.connections[token], &self.admission, self.now);
        let how_urgent = || {
            let exchange = connection.exchange.as_deref();
            let remaining = match stage {
                Stage::Receive | Stage::Serve => 0,
                Stage::Transmit => exchange.map_or(0, Exchange::bytes_left),
                Stage::Compute => u64::MAX,
            };
            // What a request waits for its turn is one wait, whatever it waits at.
            let waiting = exchange.filter(|exchange| exchange.standing == Standing::Waiting);
            urgency(admission, connection.site, waiting.map_or(now, |exchange| exchange.started), remaining)
        };
        let tree = &mut self.tree;
        let queued = if is_first { tree.push_first(leaf, event) } else { tree.push_with(leaf, event, how_urgent) };
        if queued.is_err() {
            // The site has been removed, or more events wait than there may be connections: neither can be served.
            self.connections[token].flags.queued = false;
            self.cut(token);
        } else if matches!(stage, Stage::Serve | Stage::Compute) {
            self.await_turn(token);
        }
    }

    /// Counts how long an event of a site's has waited for its turn.
    pub(super) fn count_wait(&self, site: u32, stage: Stage, queued_us: u32) {
        let waited_us = self.now_us.wrapping_sub(queued_us);
        self.sites[site as usize].metrics.stages[stage as usize].waited_us.add(u64::from(waited_us));
    }

    /// Runs an event, and charges what it cost to the site that it was for.
    pub(super) fn run_event(&mut self, leaf: LeafId, event: Event) -> Cost {
        let stage = match event.task {
            Task::Stage(stage) => stage,
            Task::Handoffs => return self.take_turns(leaf),
            Task::Relay => {
                self.handlers.early_end.ran(UNKNOWN_SITE);
                self.run_relay(event.token);
                let cost = self.meter.charge(leaf);
                self.tree.charge(leaf, cost);
                return cost;
            }
            Task::Accept | Task::Program => {
                self.handlers.early_end.ran(UNKNOWN_SITE);
                let is_admin = leaf == self.leaves[ADMIN_SITE as usize][0];
                self.count_wait(if is_admin { ADMIN_SITE } else { UNKNOWN_SITE }, Stage::Receive, event.queued_us);
                let cost = self.accept(event.token, leaf);
                self.tree.charge(leaf, cost);
                return cost;
            }
        };
        let token = event.token;
        let Some(site_before) = self.begin_event(&event, stage) else {
            self.tree.charge(leaf, Cost::from_ns(0));
            return Cost::from_ns(0);
        };
        match stage {
            Stage::Receive => self.receive(token),
            Stage::Serve => self.serve(token),
            Stage::Transmit if self.is_shared && self.meter.begin_sample() => {
                let before = self.host.processor_time();
                self.transmit(token);
                self.meter.end_sample(self.host.processor_time().saturating_sub(before));
            }
            Stage::Transmit => self.transmit(token),
            Stage::Compute => {
                let cost = self.compute(token);
                self.meter.measured(Duration::from_nanos(cost.ns));
            }
        }
        let sent_bytes = self.meter.take_sent_bytes();
        if self.connections.get(token).is_some() {
            self.count_wait(site_before, stage, event.queued_us);
            return self.charge_event(leaf, token, stage, site_before, sent_bytes);
        }
        self.handlers.early_end.ran(site_before);
        let cost = self.meter.charge(leaf);
        self.tree.charge(leaf, cost);
        cost
    }

    /// Whether an event of a connection is run now: the site that it's for. Not if the connection has gone, or its site has used up what it may.
    fn begin_event(&mut self, event: &Event, stage: Stage) -> Option<u32> {
        let token = event.token;
        let known = self.connections.get(token);
        let known = known.filter(|known| !known.flags.closing && known.queued_us == event.queued_us);
        let Some(site) = known.map(|known| known.site) else {
            if event.is_unknown {
                self.admission.abandon(UNKNOWN_SITE as usize, self.now);
            }
            return None;
        };
        if self.is_held_back(site, stage) {
            self.connections[token].flags.parked = true;
            self.gates[site as usize].park(stage, token, self.now);
            return None;
        }
        self.connections[token].flags.queued = false;
        if event.is_unknown {
            let queued = before(self.now, self.now_us, event.queued_us);
            let _ = self.admission.start(UNKNOWN_SITE as usize, queued, self.now);
            self.admission.finish(UNKNOWN_SITE as usize, Cost::from_ns(self.meter.price(Operation::Receive, 0)));
        }
        Some(site)
    }

    /// Charges what an event has cost to the site that its connection is of now, which it may have shown.
    fn charge_event(&mut self, leaf: LeafId, token: Token, stage: Stage, site_before: u32, sent_bytes: u64) -> Cost {
        let connection = &mut self.connections[token];
        let site = connection.site;
        self.handlers.early_end.ran(site);
        let payer = if site == site_before { leaf } else { self.leaves[site as usize][stage as usize] };
        let cost = self.meter.charge(payer);
        let mut refused = None;
        if let Some(exchange) = connection.exchange.as_mut() {
            exchange.cost_ns += cost.ns;
            if payer != leaf && site_before == UNKNOWN_SITE {
                exchange.unknown_ns += cost.ns;
            }
            // More may follow: each is settled once.
            refused = exchange.take_refused();
        }
        self.tree.charge(leaf, cost);
        if self.gates[site as usize].is_limited() {
            self.charge_quotas(site, cost, sent_bytes);
            if matches!(stage, Stage::Receive | Stage::Transmit) {
                self.account_memory(site_before, token);
            }
        }
        if payer != leaf {
            // The site has become known by this event, or is another than that of the connection's last request.
            self.tree.transfer(leaf, payer, cost.ns);
            if site_before == UNKNOWN_SITE {
                self.charge_accept(token, payer);
            }
        }
        if let Some((refusal, cost_ns)) = refused {
            self.settle_refusal(token, payer, refusal, cost_ns);
        }
        cost
    }
}
