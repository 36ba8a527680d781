//! Programs and their share of the core (decision 7): each has a slot and, while it wants the processor, an event in the tree. A popped event is
//! a slice. Between slices a program that computes is stopped; one that waits for something isn't, and is looked at from time to time.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use leat_host::program::{Ended, ProgramId, Programs as HostPrograms};
use leat_host::reactor::Token;
use leat_logic::schedule::{Cost, LeafId};
use leat_logic::time::Instant;

use super::event::urgency;
use super::handler::Handler;
use super::{Event, Host, Stage, Task, Worker};

/// The slice of a program while nothing but programs wants the core. Whoever arrives ends it.
const SLICE: Duration = Duration::from_millis(1);
/// The slice while others wait: they wait so long.
const SLICE_AMONG_OTHERS: Duration = Duration::from_micros(200);
/// A slice that ended earlier says nothing of whether the program wanted it.
const SLICE_MIN: Duration = Duration::from_micros(50);
/// How often a program that waits for something is looked at: at first, and after a while.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(16);
/// How often one is looked at that is about to end, while its reply waits for that.
const END_LOOK: Duration = Duration::from_micros(100);
/// How often a program is looked at that has nothing to do.
const IDLE_LOOK: Duration = Duration::from_secs(1);

/// What others of the machine have to take of a program's slices before it competes with them (decision 7), and the most that is made good.
const OWED_MIN: Duration = Duration::from_millis(3);
const OWED_MAX: Duration = Duration::from_millis(50);

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// One request, of this connection.
    Cgi(Token),
    /// One request after the other.
    Responder,
}

/// One program.
struct Program {
    token: Token,
    id: ProgramId,
    handler: Rc<Handler>,
    purpose: Purpose,
    /// The site that pays.
    site: u32,
    state: State,
    is_stopped: bool,
    /// Time for which leat has kept it from running, but for the stop that lasts: since when it does.
    held: Duration,
    stopped_at: Instant,
    /// Processor time that has been charged.
    charged: Duration,
    /// Time of its slices that it wanted and that processes outside leat had.
    owed: Duration,
    /// It competes with those until it has got it.
    is_raised: bool,
    /// When it's killed, had it been held no longer than it was by then: its request is over.
    kill_at: Instant,
    held_by_then: Duration,
    is_killed: bool,
    /// Its reply waits for its end.
    is_awaited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It wants the processor: its event is in the tree, or it has the slice.
    Queued,
    /// It waits for something, and runs freely when that comes.
    Waiting { look_at: Instant, pause: Duration },
}

/// A slice that goes on while the worker waits in its reactor.
#[derive(Clone, Copy, Debug)]
struct Slice {
    program: Token,
    leaf: LeafId,
    began: Instant,
}

/// All programs of a worker.
pub(super) struct Programs<P> {
    pub(super) host: P,
    all: BTreeMap<u32, Program>,
    /// Events of programs in the tree.
    queued: usize,
    /// The program that had the last slice and isn't stopped.
    resumed: Option<Token>,
    slice: Option<Slice>,
    /// When the next program is to be looked at.
    pub(super) look_at: Instant,
}

impl Program {
    /// Keeps it from running. Whether it wasn't.
    fn stop(&mut self, now: Instant) -> bool {
        let is_new = !std::mem::replace(&mut self.is_stopped, true);
        if is_new {
            self.stopped_at = now;
        }
        is_new
    }

    /// Lets it run. Whether it was kept from that.
    fn resume(&mut self, now: Instant) -> bool {
        let was_stopped = std::mem::take(&mut self.is_stopped);
        if was_stopped {
            self.held += now.since(self.stopped_at);
        }
        was_stopped
    }

    /// Time for which leat has kept it from running: it can't have said anything meanwhile.
    fn held(&self, now: Instant) -> Duration {
        self.held + if self.is_stopped { now.since(self.stopped_at) } else { Duration::ZERO }
    }
}

impl<P: HostPrograms> Programs<P> {
    pub(super) fn new(host: P) -> Programs<P> {
        let (queued, resumed, slice, look_at) = (0, None, None, Instant::NEVER);
        Programs { host, all: BTreeMap::new(), queued, resumed, slice, look_at }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// An event of a program has left the tree.
    pub(super) fn event_left(&mut self) {
        self.queued -= 1;
    }

    /// Whether so many events in the tree are all of programs.
    pub(super) fn are_all(&self, events: usize) -> bool {
        events <= self.queued
    }

    /// Whether the core belongs to a program while the worker waits; if so, for how long at most.
    pub(super) fn slice(&self) -> Option<Duration> {
        self.slice.map(|_| SLICE)
    }

    /// Whether a token's program hasn't ended.
    pub(super) fn is_there(&self, token: Token) -> bool {
        self.all.get(&token.index).is_some_and(|program| program.token == token)
    }

    /// Whether a program that says nothing more is about to end: then how it has ended is told soon.
    pub(super) fn await_end(&mut self, token: Token) -> bool {
        let Some(id) = self.get(token).map(|program| program.id) else { return false };
        let is_ending = self.host.is_ending(id);
        if let Some(program) = self.get(token).filter(|_| is_ending) {
            program.is_awaited = true;
            self.look_at = Instant::default();
        }
        is_ending
    }

    /// Time for which a program has been kept from running.
    pub(super) fn held(&self, token: Token, now: Instant) -> Duration {
        let program = self.all.get(&token.index).filter(|program| program.token == token);
        program.map_or(Duration::ZERO, |program| program.held(now))
    }

    fn get(&mut self, token: Token) -> Option<&mut Program> {
        self.all.get_mut(&token.index).filter(|program| program.token == token)
    }

    /// A program wanted its slice and others of the machine had so much of it.
    fn owe(&mut self, token: Token, missed: Duration) {
        let Some(program) = self.get(token) else { return };
        program.owed = (program.owed + missed).min(OWED_MAX);
        if program.owed >= OWED_MIN && !std::mem::replace(&mut program.is_raised, true) {
            let id = program.id;
            self.host.raise(id);
        }
    }

    /// Gives a program the core, and keeps the one before from it.
    fn grant(&mut self, token: Token, now: Instant) {
        if let Some(before) = self.resumed.replace(token).filter(|&before| before != token)
            && let Some(before) = self.get(before)
            && before.state == State::Queued
            && before.stop(now)
        {
            let id = before.id;
            self.host.stop(id);
        }
        if let Some(program) = self.get(token)
            && program.resume(now)
        {
            let id = program.id;
            self.host.resume(id);
        }
    }
}

impl<H: Host> Worker<H> {
    /// Takes in a program that was just started. It's stopped until its first slice.
    pub(super) fn add_program(&mut self, id: ProgramId, handler: &Rc<Handler>, purpose: Purpose) -> Token {
        let token = self.connections.lend();
        let site = handler.site().unwrap_or(super::UNKNOWN_SITE);
        self.programs.host.stop(id);
        let program = Program {
            token,
            id,
            handler: handler.clone(),
            purpose,
            site,
            state: State::Queued,
            is_stopped: true,
            held: Duration::ZERO,
            stopped_at: self.now,
            charged: Duration::ZERO,
            owed: Duration::ZERO,
            is_raised: false,
            kill_at: Instant::NEVER,
            held_by_then: Duration::ZERO,
            is_killed: false,
            is_awaited: false,
        };
        self.programs.all.insert(token.index, program);
        self.metrics.programs.set(self.programs.len() as u64);
        self.queue_program(token);
        token
    }

    /// Has the site pay for a program's start that was no event.
    pub(super) fn charge_start(&mut self, token: Token) {
        let Some(program) = self.programs.get(token) else { return };
        let leaf = self.leaves[program.site as usize][Stage::Compute as usize];
        let cost = self.meter.charge(leaf);
        self.tree.correct(leaf, i64::try_from(cost.ns).unwrap_or(i64::MAX));
    }

    /// Puts a program's event in the tree.
    pub(super) fn queue_program(&mut self, token: Token) {
        let Some(program) = self.programs.get(token) else { return };
        program.state = State::Queued;
        let site = program.site;
        if self.gates[site as usize].is_closed(Stage::Compute) {
            self.hold_program_back(site, token);
            return;
        }
        let leaf = self.leaves[site as usize][Stage::Compute as usize];
        let event = Event { task: Task::Program, token, queued_us: self.now_us, is_unknown: false };
        let (admission, now) = (&self.admission, self.now);
        if self.tree.push_with(leaf, event, || urgency(admission, site, now, u64::MAX)).is_ok() {
            self.programs.queued += 1;
        } else {
            // More events wait than there may be connections: it's looked at later.
            self.watch_program(token, LOOK_MAX);
        }
    }

    /// Has a program wait until its site may compute again. It had the core until another's slice, if there was none.
    fn hold_program_back(&mut self, site: u32, token: Token) {
        self.gates[site as usize].park_program(token);
        let now = self.now;
        if let Some(program) = self.programs.get(token)
            && program.stop(now)
        {
            let id = program.id;
            self.programs.host.stop(id);
        }
    }

    fn watch_program(&mut self, token: Token, pause: Duration) {
        let look_at = self.now.after(pause);
        let Some(program) = self.programs.get(token) else { return };
        program.state = State::Waiting { look_at, pause };
        let was_stopped = program.resume(self.now);
        let id = program.id;
        if was_stopped {
            self.programs.host.resume(id);
        }
        self.programs.look_at = self.programs.look_at.min(look_at);
    }

    /// A program has got something to do.
    pub(super) fn rouse_program(&mut self, token: Token) {
        if self.programs.get(token).is_some_and(|program| program.state != State::Queued) {
            self.queue_program(token);
        }
    }

    /// A program's slice has come.
    pub(super) fn begin_slice(&mut self, event: Event, leaf: LeafId) {
        let token = event.token;
        self.programs.event_left();
        let Some(site) = self.programs.get(token).map(|program| program.site) else {
            self.tree.charge(leaf, Cost::from_ns(0));
            return;
        };
        if self.is_held_back(site, Stage::Compute) {
            self.hold_program_back(site, token);
            self.tree.charge(leaf, Cost::from_ns(0));
            return;
        }
        self.count_wait(site, Stage::Compute, event.queued_us);
        self.programs.grant(token, self.now);
        self.programs.slice = Some(Slice { program: token, leaf, began: self.host.now() });
        if !self.programs.are_all(self.tree.len()) {
            self.programs.host.step_aside(SLICE_AMONG_OTHERS);
            self.settle_slice();
        }
    }

    /// The worker has come back: ends the slice that went on meanwhile, and charges it.
    pub(super) fn settle_slice(&mut self) {
        if let Some(slice) = self.programs.slice.take() {
            let cost = self.end_slice(slice);
            self.tree.charge(slice.leaf, cost);
        }
    }

    fn end_slice(&mut self, slice: Slice) -> Cost {
        self.now = self.host.now();
        let lasted = self.now.since(slice.began);
        let Some(program) = self.programs.get(slice.program) else { return Cost::from_ns(0) };
        let id = program.id;
        let used = self.programs.host.take_used(id);
        self.note_used(slice.program, used);
        if let Some(program) = self.programs.get(slice.program) {
            self.sites[program.site as usize].metrics.slices.increment();
        }
        let is_starved = lasted >= SLICE_MIN && used * 10 < lasted && self.programs.host.is_runnable(id);
        if is_starved {
            self.programs.owe(slice.program, lasted - used);
        }
        if lasted >= SLICE_MIN && used * 2 < lasted && !is_starved {
            self.watch_program(slice.program, LOOK_MIN);
            self.look_at_program(slice.program);
        } else {
            self.queue_program(slice.program);
        }
        Cost::from_ns(used.as_nanos() as u64)
    }

    fn note_used(&mut self, token: Token, used: Duration) {
        let Some(program) = self.programs.get(token) else { return };
        program.charged += used;
        program.owed = program.owed.saturating_sub(used);
        if program.owed.is_zero() && std::mem::take(&mut program.is_raised) {
            let id = program.id;
            self.programs.host.lower(id);
        }
        let Some(program) = self.programs.get(token) else { return };
        let site = program.site;
        self.sites[site as usize].metrics.compute_ns.add(used.as_nanos() as u64);
        if self.gates[site as usize].is_limited() {
            self.charge_quotas(site, Cost::from_ns(used.as_nanos() as u64), 0);
        }
    }

    /// Charges what was used outside of slices.
    fn charge_late(&mut self, token: Token, used: Duration) {
        let Some(program) = self.programs.get(token) else { return };
        let leaf = self.leaves[program.site as usize][Stage::Compute as usize];
        self.tree.correct(leaf, i64::try_from(used.as_nanos()).unwrap_or(i64::MAX));
        self.note_used(token, used);
    }

    /// The program has no more part in a request: it may go on to its end for as long as its handler has patience, or is killed.
    pub(super) fn leave_program(&mut self, token: Token, kill: bool) {
        let patience = match kill {
            true => Duration::ZERO,
            false => self.programs.get(token).and_then(|program| program.handler.timeout()).unwrap_or_default(),
        };
        let (now, kill_at) = (self.now, self.now.after(patience));
        let Some(program) = self.programs.get(token) else { return };
        program.kill_at = kill_at;
        program.held_by_then = program.held(now);
        program.is_killed |= kill;
        let id = program.id;
        if kill {
            self.programs.host.kill(id);
        }
        // It has often ended by now.
        self.programs.look_at = self.now;
    }

    /// Looks at the programs that are due: have they ended, do they want the processor, have they had their time?
    pub(super) fn look_at_programs(&mut self) {
        let mut next = Instant::NEVER;
        let tokens: Vec<Token> = self.programs.all.values().map(|program| program.token).collect();
        for token in tokens {
            next = next.min(self.look_at_program(token));
        }
        // What ends here may have something new begun, which is to be looked at in turn.
        self.programs.look_at = next;
        self.programs.look_at = self.keep_handlers().min(self.programs.look_at);
    }

    fn look_at_program(&mut self, token: Token) -> Instant {
        let now = self.now;
        let Some(program) = self.programs.get(token) else { return Instant::NEVER };
        let (id, site, state) = (program.id, program.site, program.state);
        let held = program.held(now).saturating_sub(program.held_by_then);
        let kill_at = if program.is_killed { program.kill_at } else { program.kill_at.after(held) };
        let is_awaited = program.is_awaited;
        if let Some(ended) = self.programs.host.reap(id) {
            self.program_ended(token, ended);
            return Instant::NEVER;
        }
        if self.now >= kill_at {
            self.programs.host.kill(id);
            if let Some(program) = self.programs.get(token) {
                program.kill_at = self.now.after(LOOK_MIN);
                program.is_killed = true;
            }
            return self.now.after(LOOK_MIN);
        }
        if is_awaited {
            // It has its turn once more.
            self.rouse_program(token);
            return self.now.after(END_LOOK).min(kill_at);
        }
        let State::Waiting { look_at, pause } = state else { return self.now.after(LOOK_MAX).min(kill_at) };
        if self.now < look_at {
            return look_at.min(kill_at);
        }
        let wants = self.programs.host.is_runnable(id);
        let used = self.programs.host.take_used(id);
        self.charge_late(token, used);
        // One that computes between looks is held back with the others.
        if wants || !used.is_zero() && self.gates[site as usize].is_closed(Stage::Compute) {
            self.queue_program(token);
            return self.now.after(LOOK_MAX).min(kill_at);
        }
        let Some(program) = self.programs.get(token) else { return Instant::NEVER };
        let is_idle = program.purpose == Purpose::Responder && !program.handler.is_at_work();
        let pause = if is_idle { IDLE_LOOK } else { (pause * 2).min(LOOK_MAX) };
        let look_at = self.now.after(pause);
        program.state = State::Waiting { look_at, pause: pause.min(LOOK_MAX) };
        look_at.min(kill_at)
    }

    fn program_ended(&mut self, token: Token, ended: Ended) {
        let Some(program) = self.programs.get(token) else { return };
        let missed = ended.used.saturating_sub(program.charged);
        self.charge_late(token, missed);
        let Some(program) = self.programs.all.remove(&token.index) else { return };
        self.metrics.programs.set(self.programs.len() as u64);
        self.connections.take_back(token);
        self.forget_parked(program.site);
        self.handler_lost_program(&program.handler, token, program.purpose, ended, program.is_killed);
    }
}
