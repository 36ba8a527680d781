//! A turn of the worker's loop: harvest what has completed, run a few events in the tree's order, look at the clock. What an event does is for
//! its stage to say, what it costs for `event`.

use std::io;
use std::time::Duration;

use leat_host::reactor::{Completion, RECEIVE_BUFFER_BYTES, Reactor};
use leat_host::storage::Storage;
use leat_logic::schedule::{LeafId, Operation};
use leat_logic::time::{Instant, UnixTime};

use super::stream::News;
use super::{
    BELL, HELD_PACKETS_INDEX, Host, LINK_LISTENER_INDEX, STORAGE_WAKE, STORAGE_WATCH, Stage, Task, Worker, microseconds,
};

/// Events run between two harvests: few, so that what has just come gets its place in the order before much else is done.
const EVENTS_MAX: usize = 64;
/// What they may cost together, in nanoseconds, before the last of them. Whoever comes waits for the rest of a turn, whatever its share.
const TURN_NS_MAX: u64 = 200_000;
/// The same while several sites want something.
const SHARED_TURN_NS_MAX: u64 = 50_000;
/// The same while one of them uses clearly less than its share, so that it's due to be served as soon as it comes. The others pay for that: where
/// requests take 5 us, they take some tenth more.
const PROMPT_TURN_NS_MAX: u64 = 25_000;
/// Times that completions are taken over in one turn, as long as there are more: what waits in the kernel isn't in the tree's order.
const HARVESTS_MAX: usize = 16;
/// Receive buffers that must be free when completions are asked for: a few batches find room.
const FREE_BUFFERS_MIN: usize = 256;

impl<H: Host> Worker<H> {
    /// Serves until a drain is complete.
    ///
    /// # Errors
    /// The reactor can't go on.
    pub fn run(&mut self) -> io::Result<()> {
        loop {
            while !self.is_drained() {
                self.run_once()?;
            }
            if self.mailbox.close() {
                self.end_spread();
                self.leave_links();
                return self.close_kept();
            }
            // Another worker may just have given up a connection.
            self.handle_mail();
        }
    }

    /// One turn: harvest what has completed, run a few events in the tree's order, look at the clock.
    ///
    /// # Errors
    /// The reactor can't go on.
    pub fn run_once(&mut self) -> io::Result<()> {
        self.harvest()?;
        self.run_events()?;
        self.send_coalesced(false);
        if self.now >= self.sweep_at {
            self.handle_timeouts();
        }
        if self.now >= self.holds.next() || (self.tree.is_empty() && !self.holds.is_empty()) {
            self.end_holds();
        }
        if self.now >= self.late.next() {
            self.refuse_late();
        }
        if self.is_shut {
            self.resume_accepting();
        }
        if self.knocks.are_few {
            self.look_past_bursts();
        }
        if self.now >= self.room.next() {
            self.make_room();
        }
        if self.now >= self.looks.next {
            self.look_at_usage();
        }
        if self.now >= self.flush_at {
            self.flush_logs();
        }
        if self.now >= self.programs.look_at {
            self.look_at_programs();
        }
        if !self.handlers.passed.is_empty() {
            self.settle_passed();
        }
        if self.now >= self.cluster_timeout() {
            self.handle_cluster_timeout();
        }
        if self.now >= self.ports_timeout() {
            self.handle_ports_timeout();
        }
        // Last, so that nothing waits beside the tree of which nobody has taken account.
        if !self.watched_gates.is_empty() {
            self.look_at_gates();
        }
        self.flush_links();
        self.streams.flush_now(&mut self.reactor);
        Ok(())
    }

    fn harvest(&mut self) -> io::Result<()> {
        let timeout = self.time_to_wait();
        let mut completions = std::mem::take(&mut self.completions);
        let waits = timeout != Some(Duration::ZERO);
        let began = waits.then(|| self.host.now());
        let gather = (self.tree.is_empty() && waits).then(|| self.gathering.plan()).flatten();
        match gather {
            Some(gather) => {
                self.metrics.gathers.increment();
                self.reactor.wait_for_several(gather, timeout, &mut completions)?;
            }
            None => self.reactor.wait(timeout, &mut completions)?,
        }
        if let Some(began) = began.filter(|_| self.weighs_delegating()) {
            // What the kernel has done meanwhile isn't measured: the thread's clock takes longer to read than it's worth here.
            let worked = Duration::from_nanos(self.meter.price(Operation::Turn, 0));
            self.under_way.idle += self.host.now().since(began).saturating_sub(worked);
        }
        self.handlers.closing_pipes.clear();
        let looked = self.now;
        self.tell_time();
        self.metrics.count_turn(began.unwrap_or(self.now).since(looked));
        self.settle_slice();
        // Now, as what the last events asked for has been submitted, and nothing since has been counted.
        if self.meter.is_due() {
            self.measure();
        }
        match self.ended_turn.take() {
            Some(leaf) => self.pay_for_turn(leaf),
            None => self.meter.overhead(Operation::Turn),
        }
        for _ in 1..HARVESTS_MAX {
            self.take_over(&mut completions);
            if !self.reactor.has_more() {
                break;
            }
            self.reactor.wait(Some(Duration::ZERO), &mut completions)?;
        }
        self.take_over(&mut completions);
        self.under_way.undecided = 0;
        self.gathering.harvested(self.now);
        self.completions = completions;
        Ok(())
    }

    /// How long the reactor may wait: not at all while there is work, but that of programs goes on meanwhile.
    fn time_to_wait(&self) -> Option<Duration> {
        if !self.completions.is_empty() {
            return Some(Duration::ZERO);
        }
        match self.programs.slice() {
            Some(slice) if self.programs.are_all(self.tree.len()) => {
                Some(self.time_to_next_timeout().map_or(slice, |next| next.min(slice)))
            }
            _ if self.tree.is_empty() => self.time_to_next_timeout(),
            _ => Some(Duration::ZERO),
        }
    }

    fn take_over(&mut self, completions: &mut Vec<Completion>) {
        self.take_changes(completions);
        for completion in completions.drain(..) {
            self.handle_completion(completion);
        }
    }

    fn run_events(&mut self) -> io::Result<()> {
        let mut turn_ns = 0;
        let turn_ns_max = match (self.is_shared, self.is_prompt) {
            (false, _) => TURN_NS_MAX,
            (true, false) => SHARED_TURN_NS_MAX,
            (true, true) => PROMPT_TURN_NS_MAX,
        };
        if !self.tree.is_empty() {
            self.look_soon();
        }
        for _ in 0..EVENTS_MAX {
            let Some((leaf, event)) = self.tree.pop() else { break };
            let is_long = matches!(event.task, Task::Program | Task::Stage(Stage::Compute));
            if is_long && (turn_ns > 0 || !self.coalesced.is_empty()) {
                // What was done before goes out before that, which takes long.
                self.send_coalesced(true);
                self.flush_links();
                self.streams.flush_now(&mut self.reactor);
                self.pay_for_turn(leaf);
                self.reactor.wait(Some(Duration::ZERO), &mut self.completions)?;
            }
            if is_long {
                self.ended_turn = Some(leaf);
            }
            if event.task == Task::Program {
                self.begin_slice(event, leaf);
                break;
            }
            self.event_begins(event.token);
            turn_ns += self.run_event(leaf, event).ns;
            self.event_ended(event.token);
            if is_long || turn_ns >= turn_ns_max {
                // Who has arrived meanwhile gets a place in the order first.
                break;
            }
        }
        Ok(())
    }

    /// What computes takes a turn for each of its slices, and the others that come in between pay for their own work only.
    fn pay_for_turn(&mut self, leaf: LeafId) {
        self.charge_leaf_apart(leaf, Operation::Turn, 0);
    }

    /// Reads the thread's clock: everybody pays for what the charges have missed.
    fn measure(&mut self) {
        let Worker { meter, tree, .. } = self;
        meter.measure(self.host.processor_time(), |leaf, delta_ns| tree.correct(leaf, delta_ns));
    }

    fn tell_time(&mut self) {
        self.now = self.host.now();
        self.now_us = microseconds(self.now);
        if self.now < self.second_ends {
            return;
        }
        let wall = self.host.wall();
        self.second_ends = end_of_second(self.now, wall);
        if wall.seconds != self.second {
            self.second = wall.seconds;
            self.date.update(wall);
            self.ready.clear();
            self.storage.handle_timeout(self.now);
            self.poll_storage();
            self.await_links_again();
        }
    }

    fn handle_completion(&mut self, completion: Completion) {
        match completion {
            Completion::Received { token, buffer } => match self.connections.get(token) {
                Some(connection) => {
                    connection.flags.behind = buffer.len() == RECEIVE_BUFFER_BYTES;
                    connection.inbox.add(&mut self.reactor, buffer);
                    if self.reactor.free_buffers() < FREE_BUFFERS_MIN {
                        // They're for everybody: who has to wait for a turn waits with a copy.
                        connection.inbox.keep(&mut self.reactor);
                    }
                    self.input_arrived(token);
                    if self.is_memory_limited(token) {
                        self.account_memory(self.connections[token].site, token);
                    }
                }
                None => self.stream_news(token, News::Received(buffer)),
            },
            Completion::Sent { token, error, waited } => self.sent(token, error, waited),
            Completion::ConnectionsWait { listener } if listener.index == LINK_LISTENER_INDEX => {
                self.links_wait(listener)
            }
            Completion::ConnectionsWait { listener } => self.connections_wait(listener),
            Completion::EndOfInput { token } => self.input_ended(token, None),
            Completion::ReceiveStopped { token, error } => self.receive_stopped(token, error),
            Completion::Writable { token } => self.writable(token),
            Completion::Readable { token } if token == BELL => self.handle_mail(),
            Completion::Readable { token } if token == STORAGE_WAKE || token == STORAGE_WATCH => {}
            Completion::Readable { token } if token.index >= HELD_PACKETS_INDEX => self.receive_held_packets(),
            Completion::Readable { token } => self.errors_readable(token),
        }
    }
}

/// When the second ends that the wall clock is in, unless it's set meanwhile.
pub(super) fn end_of_second(now: Instant, wall: UnixTime) -> Instant {
    now.after(Duration::from_secs(1).saturating_sub(Duration::from_nanos(wall.nanoseconds.into())))
}
