//! The generator: when to send what on which connection. What comes back is `receiving`'s, whose turn it is `together`'s.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::arrivals::Arrivals;
use super::connection::{Answered, Connection, Outstanding, WHOLE_REPLY_BYTES, Want};
use super::outcome::{Failure, Outcome};
use super::{Demand, Plan};
use crate::sys::ring::{Ring, RingSize};
use crate::sys::socket;
use crate::workload::mix::{Mix, PIPELINE_MAX};

/// Greetings under way at once while connections are opened: below any server's accept queue.
const GREETINGS_MAX: usize = 128;
/// Longest time without one more connection while they are opened.
const OPENING_STALL_MAX: Duration = Duration::from_secs(10);
/// The same for a flood, which goes on with those that it has.
const FLOOD_STALL_MAX: Duration = Duration::from_millis(500);
/// What a slow reader takes at a time, and the most its socket holds.
const SLOW_READ_BYTES: u32 = 1 << 10;
const SLOW_BUFFER_BYTES: i32 = 4 << 10;
/// Between two lines of a slow head.
const SLOW_HEAD_STEP: Duration = Duration::from_millis(200);

pub(super) const KIND_SHIFT: u32 = 56;
pub(super) const RECEIVE: u64 = 1;
pub(super) const DISCARD: u64 = 2;
/// Sends and closes complete only when they fail, which the receive shows too.
pub(super) const IGNORED: u64 = 3 << KIND_SHIFT;
pub(super) const GENERATION_MASK: u32 = 0xff_ffff;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Opening,
    Running,
    Draining,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Active,
    Idle,
    Slow,
    /// Sends a head a few bytes at a time and never ends it.
    SlowHead,
}

/// What a round came to.
pub(super) struct Round {
    pub(super) has_worked: bool,
    /// When there is something to do without anything coming.
    pub(super) next_ns: u64,
    pub(super) may_sleep: bool,
}

pub(super) struct Generator<'a> {
    pub(super) plan: &'a Plan,
    pub(super) mix: &'a Mix,
    pub(super) ring: Ring,
    pub(super) connections: Vec<Connection>,
    /// Receives are submitted once for a connection, as every reply fits a buffer.
    pub(super) multishot: bool,
    pub(super) stage: Stage,
    pub(super) start: Instant,
    pub(super) now_ns: u64,
    pub(super) window_ns: std::ops::Range<u64>,
    pub(super) random: fastrand::Rng,
    /// Free slots in the order in which they became free (open loop).
    pub(super) ready: VecDeque<u32>,
    /// Arrivals without a free slot: intended time and target.
    pub(super) waiting: VecDeque<(u64, u32)>,
    /// Targets that were refused, to be asked for again (closed loop).
    pub(super) again: Vec<u32>,
    /// Slots that became free in this round.
    pub(super) freed: Vec<u32>,
    pub(super) answered: Vec<Answered>,
    /// When slow readers read next, or slow heads go on; in order, as all of a plan wait equally long.
    pub(super) slow_steps: VecDeque<(u64, u32)>,
    pub(super) begin_ns: u64,
    arrivals: Option<Arrivals>,
    pub(super) greeted: usize,
    pub(super) in_flight: u64,
    pub(super) requests: u64,
    pub(super) failures_in_a_row: u64,
    pub(super) outcome: Outcome,
}

impl<'a> Generator<'a> {
    /// `start` is the zero of its clock.
    pub(super) fn new(plan: &'a Plan, mix: &'a Mix, start: Instant) -> io::Result<Self> {
        let total = plan.all_connections();
        // The head takes up to 1 KB of a buffer.
        let fits = |bytes: u32| mix.body_bytes_max().is_some_and(|body| body + 1024 <= u64::from(bytes));
        let multishot = plan.requests_per_connection.is_none() && fits(WHOLE_REPLY_BYTES);
        let buffer_bytes = if fits(2048) && plan.pipeline == 1 { 2048 } else { WHOLE_REPLY_BYTES };
        let active = plan.connections * plan.pipeline;
        let size = RingSize {
            submissions: 4096,
            // A receive for each connection, and sends and closes that fail.
            completions: (4 * (total + active)).next_power_of_two().clamp(4_096, 65_536) as u32,
            // Few enough to stay in the cache: a reply is read before many more have come.
            buffers: (2 * active).next_power_of_two().clamp(128, 2048) as u16,
            buffer_bytes,
        };
        Ok(Self {
            plan,
            mix,
            ring: Ring::new(size)?,
            connections: (0..total).map(|_| Connection::default()).collect(),
            multishot,
            stage: Stage::Opening,
            start,
            now_ns: 0,
            window_ns: 0..0,
            random: fastrand::Rng::with_seed(plan.seed),
            ready: VecDeque::new(),
            waiting: VecDeque::new(),
            again: Vec::new(),
            freed: Vec::new(),
            answered: Vec::new(),
            slow_steps: VecDeque::new(),
            begin_ns: 0,
            arrivals: None,
            greeted: 0,
            in_flight: 0,
            requests: 0,
            failures_in_a_row: 0,
            outcome: Outcome::new(),
        })
    }

    /// Gives the connections back.
    pub(super) fn end(self) -> Outcome {
        // Receives go first, as they hold the sockets; then no connection is left in TIME_WAIT to use up ports.
        drop(self.ring);
        for connection in &self.connections {
            if let Some(socket) = &connection.socket {
                socket::reset_on_close(socket);
            }
        }
        self.outcome
    }

    /// Opens every connection that is kept and has one request answered on each.
    pub(super) fn open_connections(&mut self) -> io::Result<()> {
        let active = if self.plan.requests_per_connection.is_none() { self.plan.connections } else { 0 };
        let idle = self.plan.connections..self.plan.connections + self.plan.idle;
        let mut to_greet = (0..active).chain(idle);
        let wanted = active + self.plan.idle;
        let mut started = 0;
        let mut progress_ns = self.now_ns;
        while self.greeted < wanted {
            while started < wanted && started - self.greeted < GREETINGS_MAX {
                let Some(index) = to_greet.next() else { break };
                started += 1;
                let target = self.mix.draw(&mut self.random);
                self.dispatch(index as u32, target, 1, self.now_ns);
            }
            self.ring.enter_for(Duration::from_millis(100))?;
            self.tick();
            self.harvest()?;
            if !self.freed.is_empty() {
                progress_ns = self.now_ns;
                self.greeted += std::mem::take(&mut self.freed).len();
            }
            if self.plan.is_flood && self.now_ns - progress_ns > FLOOD_STALL_MAX.as_nanos() as u64 {
                return Ok(());
            }
            if self.now_ns - progress_ns > OPENING_STALL_MAX.as_nanos() as u64 {
                let message = format!("{} of {wanted} connections opened, then none", self.greeted);
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
        }
        if wanted > 0 && !self.plan.is_flood && self.failures_in_a_row >= wanted as u64 {
            Err(self.hopeless())
        } else {
            Ok(())
        }
    }

    /// Puts the load on; its window begins when [`Self::begin_window`] is called.
    pub(super) fn begin(&mut self) {
        self.stage = Stage::Running;
        self.tick();
        self.begin_ns = self.now_ns;
        // Nothing counts until the window begins.
        self.window_ns = u64::MAX..u64::MAX;
        self.arrivals = match self.plan.demand {
            Demand::Saturate => None,
            Demand::Rate { per_s, spacing } => Some(Arrivals::new(spacing, per_s, self.plan.seed)),
        };
        for _ in 0..self.plan.pipeline {
            self.freed.extend(0..self.plan.connections as u32);
        }
        let first_slow = self.plan.connections + self.plan.idle;
        // Not all at the same moment: that would be the generator's own stall.
        let gap_ns = SLOW_HEAD_STEP.as_nanos() as u64 / self.plan.slow_heads.max(1) as u64;
        let mut step_ns = self.now_ns;
        for index in first_slow..self.connections.len() {
            match self.role(index as u32) {
                Role::SlowHead => {
                    self.slow_steps.push_back((step_ns, index as u32));
                    step_ns += gap_ns;
                }
                _ => self.dispatch(index as u32, self.mix.longest(), 1, self.now_ns),
            }
        }
    }

    /// From now on, what happens counts.
    pub(super) fn begin_window(&mut self) {
        self.tick();
        self.window_ns = self.now_ns..self.now_ns + self.plan.window.as_nanos() as u64;
    }

    /// From now on, it doesn't; what was due before is still sent and waited for.
    pub(super) fn end_window(&mut self) {
        self.tick();
        self.window_ns.end = self.now_ns.max(self.window_ns.start);
        self.outcome.window = Duration::from_nanos(self.window_ns.end - self.window_ns.start);
        // A thread that was kept from running when its window ended still owes what was due meanwhile.
        if let Some(mut arrivals) = self.arrivals.take().filter(|_| self.requests < self.plan.requests_max) {
            self.send_due(&mut arrivals);
        }
        self.stage = Stage::Draining;
    }

    /// The window's time is up, or enough was sent.
    pub(super) fn is_over(&self) -> bool {
        self.now_ns >= self.window_ns.end || self.requests >= self.plan.requests_max
    }

    /// One round of load: sends what is due, and makes one system call if there is work for it.
    pub(super) fn round(&mut self) -> io::Result<Round> {
        self.tick();
        let round_ns = self.now_ns;
        self.use_freed_slots();
        let mut next_ns = self.window_ns.end;
        if let Some(mut arrivals) = self.arrivals.take() {
            self.send_due(&mut arrivals);
            next_ns = next_ns.min(self.begin_ns + arrivals.next_ns());
            self.arrivals = Some(arrivals);
        }
        next_ns = next_ns.min(self.step_slowly());
        let has_worked = self.step()?;
        if has_worked && self.window_ns.contains(&round_ns) {
            self.outcome.busy += Duration::from_nanos(self.now_ns - round_ns);
        }
        Ok(Round { has_worked, next_ns, may_sleep: self.plan.sleep || self.in_flight == 0 })
    }

    /// One round after the window; its `has_worked` says whether replies are still to come.
    pub(super) fn drain_round(&mut self) -> io::Result<Round> {
        self.tick();
        // What was due within the window is still sent; a closed loop sends no more.
        match self.plan.demand {
            Demand::Saturate => self.freed.clear(),
            Demand::Rate { .. } => self.use_freed_slots(),
        }
        self.step()?;
        let is_waiting = self.in_flight > 0 || !self.waiting.is_empty();
        Ok(Round { has_worked: is_waiting, next_ns: u64::MAX, may_sleep: self.plan.sleep })
    }

    /// Counts the replies that haven't come.
    pub(super) fn give_up_waiting(&mut self) {
        let active = &self.connections[..self.plan.connections];
        let outstanding = active.iter().flat_map(|connection| &connection.outstanding);
        let missing = outstanding.map(|request| request.intended_ns).chain(self.waiting.iter().map(|&(ns, _)| ns));
        let mut unanswered = 0;
        for intended_ns in missing {
            unanswered += 1;
            if self.window_ns.contains(&intended_ns) {
                self.outcome.took(intended_ns - self.window_ns.start, self.now_ns - intended_ns);
            }
        }
        self.outcome.fail(Failure::Unanswered, unanswered);
    }

    /// One system call if there is work for it; true if there was.
    fn step(&mut self) -> io::Result<bool> {
        let has_work = self.ring.has_work();
        if has_work {
            self.ring.enter(false)?;
            self.tick();
            self.harvest()?;
            self.tick();
        }
        Ok(has_work)
    }

    pub(super) fn tick(&mut self) {
        self.now_ns = self.start.elapsed().as_nanos() as u64;
    }

    pub(super) fn role(&self, index: u32) -> Role {
        let index = index as usize;
        if index < self.plan.connections {
            Role::Active
        } else if index < self.plan.connections + self.plan.idle {
            Role::Idle
        } else if index < self.plan.connections + self.plan.idle + self.plan.slow {
            Role::Slow
        } else {
            Role::SlowHead
        }
    }

    /// Sends what is due (open loop).
    fn send_due(&mut self, arrivals: &mut Arrivals) {
        loop {
            let intended_ns = self.begin_ns + arrivals.next_ns();
            if intended_ns > self.now_ns || intended_ns >= self.window_ns.end {
                return;
            }
            arrivals.advance();
            let in_window = self.window_ns.contains(&intended_ns);
            self.outcome.offered += u64::from(in_window);
            let target = self.mix.draw(&mut self.random);
            if let Some(index) = self.ready.pop_front() {
                if in_window {
                    self.outcome.lateness_ns.saturating_record(self.now_ns - intended_ns);
                }
                self.dispatch(index, target, 1, intended_ns);
            } else if self.waiting.len() < self.plan.waiting_max {
                self.waiting.push_back((intended_ns, target));
            } else {
                self.outcome.fail(Failure::Overflow, 1);
            }
        }
    }

    /// Gives every slot that became free its next request, or lays it by.
    fn use_freed_slots(&mut self) {
        if self.freed.is_empty() {
            return;
        }
        let freed = std::mem::take(&mut self.freed);
        let mut rest = freed.as_slice();
        while let Some(&index) = rest.first() {
            let mut count = 1;
            match self.plan.demand {
                Demand::Saturate => {
                    // Slots of one connection that became free together are filled by one send.
                    if self.mix.len() == 1 {
                        let same = rest.iter().take(PIPELINE_MAX).take_while(|&&other| other == index);
                        count = if self.connections[index as usize].socket.is_some() { same.count() } else { 1 };
                    }
                    let target = self.again.pop().unwrap_or_else(|| self.mix.draw(&mut self.random));
                    self.outcome.offered += u64::from(self.window_ns.contains(&self.now_ns)) * count as u64;
                    self.dispatch(index, target, count, self.now_ns);
                }
                Demand::Rate { .. } => match self.waiting.pop_front() {
                    Some((intended_ns, target)) => self.dispatch(index, target, 1, intended_ns),
                    None => self.ready.push_back(index),
                },
            }
            rest = &rest[count..];
        }
        // Keep the allocation unless something was freed meanwhile.
        if self.freed.is_empty() {
            self.freed = freed;
            self.freed.clear();
        }
    }

    /// Takes the steps of slow readers and slow heads that are due; says when the next one is.
    fn step_slowly(&mut self) -> u64 {
        while let Some(&(due_ns, index)) = self.slow_steps.front() {
            if due_ns > self.now_ns {
                return due_ns;
            }
            self.slow_steps.pop_front();
            match self.role(index) {
                Role::SlowHead => self.send_more_of_a_head(index),
                _ if self.connections[index as usize].socket.is_none() => {
                    self.dispatch(index, self.mix.longest(), 1, self.now_ns);
                }
                _ => self.arm(index, Want::Look { bytes: SLOW_READ_BYTES }),
            }
        }
        u64::MAX
    }

    /// Begins a head, or goes on with it; a connection that the server has ended is opened anew.
    fn send_more_of_a_head(&mut self, index: u32) {
        let is_new = self.connections[index as usize].socket.is_none();
        if is_new && self.open(index).is_err() {
            self.failed(Failure::Connect, 1);
        }
        if let Some(socket) = &self.connections[index as usize].socket {
            let part: &[u8] = if is_new { b"GET / HTTP/1.1\r\nHost: localhost\r\n" } else { b"X-Slow: x\r\n" };
            self.ring.send(socket.as_raw_fd(), IGNORED, part);
            if is_new {
                self.arm(index, Want::Look { bytes: SLOW_READ_BYTES });
            }
        }
        self.slow_steps.push_back((self.now_ns + SLOW_HEAD_STEP.as_nanos() as u64, index));
    }

    /// Lets a slow reader wait for as long as its rate wants.
    pub(super) fn read_later(&mut self, index: u32) {
        let wait_ns = u64::from(SLOW_READ_BYTES) * 1_000_000_000 / u64::from(self.plan.slow_bytes_per_s.max(1));
        self.slow_steps.push_back((self.now_ns + wait_ns, index));
    }

    /// Sends `count` requests for one target on a connection, opening it if need be.
    pub(super) fn dispatch(&mut self, index: u32, target: u32, count: usize, intended_ns: u64) {
        if self.connections[index as usize].socket.is_none()
            && let Err(_error) = self.open(index)
        {
            self.failed(Failure::Connect, 1);
            self.freed.extend(std::iter::repeat_n(index, count));
            return;
        }
        let token = self.token(RECEIVE, index);
        let role = self.role(index);
        let connection = &mut self.connections[index as usize];
        let Some(socket) = &connection.socket else { return };
        self.ring.send(socket.as_raw_fd(), IGNORED, self.mix.target(target).requests(count));
        connection.requests += count as u32;
        for _ in 0..count {
            self.requests += 1;
            let every = self.plan.verify_every;
            let verify = every > 0 && self.requests.is_multiple_of(every);
            connection.outstanding.push_back(Outstanding { intended_ns, target, verify });
        }
        if self.window_ns.contains(&self.now_ns) {
            self.outcome.sent += count as u64;
        }
        if role == Role::Slow {
            self.read_later(index);
            return;
        }
        self.in_flight += count as u64;
        if !connection.armed {
            connection.armed = true;
            if self.multishot {
                self.ring.receive_multishot(socket.as_raw_fd(), token);
            } else {
                let want = connection.want(self.mix);
                self.arm(index, want);
            }
        }
    }

    fn open(&mut self, index: u32) -> io::Result<()> {
        let receive_buffer_bytes = (self.role(index) == Role::Slow).then_some(SLOW_BUFFER_BYTES);
        let socket = socket::connect(self.plan.address, receive_buffer_bytes, self.plan.source)?;
        let connection = &mut self.connections[index as usize];
        connection.socket = Some(socket);
        connection.requests = 0;
        connection.armed = false;
        connection.reader = super::reply::ReplyReader::default();
        connection.server = None;
        if self.window_ns.contains(&self.now_ns) {
            self.outcome.connects += 1;
        }
        Ok(())
    }

    pub(super) fn arm(&mut self, index: u32, want: Want) {
        let kind = if matches!(want, Want::Discard { .. }) { DISCARD } else { RECEIVE };
        let token = self.token(kind, index);
        let connection = &mut self.connections[index as usize];
        let Some(socket) = &connection.socket else { return };
        connection.armed = true;
        match want {
            Want::Look { bytes } => self.ring.receive_once(socket.as_raw_fd(), token, bytes),
            Want::Discard { bytes } => self.ring.discard(socket.as_raw_fd(), token, bytes),
        }
    }

    pub(super) fn token(&self, kind: u64, index: u32) -> u64 {
        let generation = self.connections[index as usize].generation & GENERATION_MASK;
        kind << KIND_SHIFT | u64::from(generation) << 32 | u64::from(index)
    }
}
