//! The generator's loop: when to send what on which connection. What comes back is `receiving`'s.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::arrivals::Arrivals;
use super::connection::{Answered, Connection, Outstanding, WHOLE_REPLY_BYTES, Want};
use super::outcome::{Failure, Outcome};
use super::{Demand, Observer, Plan};
use crate::sys::process::own_thread_cpu_time;
use crate::sys::ring::{Ring, RingSize};
use crate::sys::socket;
use crate::workload::mix::{Mix, PIPELINE_MAX};

/// Greetings under way at once while connections are opened: below any server's accept queue.
const GREETINGS_MAX: usize = 128;
/// Longest time without one more connection while they are opened.
const OPENING_STALL_MAX: Duration = Duration::from_secs(10);
/// Arrivals that may wait for a connection.
const WAITING_MAX: usize = 1 << 20;
/// Looking for work is cheaper than a timer that is nearer than this.
const SPIN_NS: u64 = 500_000;
/// What a slow reader takes at a time, and the most its socket holds.
const SLOW_READ_BYTES: u32 = 1 << 10;
const SLOW_BUFFER_BYTES: i32 = 4 << 10;

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
    /// Slots that became free in this round.
    pub(super) freed: Vec<u32>,
    pub(super) answered: Vec<Answered>,
    /// When slow readers read next; in order, as all wait equally long.
    pub(super) slow_reads: VecDeque<(u64, u32)>,
    pub(super) greeted: usize,
    pub(super) in_flight: u64,
    pub(super) requests: u64,
    pub(super) failures_in_a_row: u64,
    pub(super) outcome: Outcome,
}

impl<'a> Generator<'a> {
    pub(super) fn new(plan: &'a Plan, mix: &'a Mix) -> io::Result<Self> {
        let total = plan.connections + plan.idle + plan.slow;
        // The head takes up to 1 KB of a buffer.
        let fits = |bytes: u32| mix.body_bytes_max().is_some_and(|body| body + 1024 <= u64::from(bytes));
        let multishot = plan.requests_per_connection.is_none() && fits(WHOLE_REPLY_BYTES);
        let buffer_bytes = if fits(2048) && plan.pipeline == 1 { 2048 } else { WHOLE_REPLY_BYTES };
        let active = plan.connections * plan.pipeline;
        let size = RingSize {
            submissions: 4096,
            completions: 65_536,
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
            start: Instant::now(),
            now_ns: 0,
            window_ns: 0..0,
            random: fastrand::Rng::with_seed(plan.seed),
            ready: VecDeque::new(),
            waiting: VecDeque::new(),
            freed: Vec::new(),
            answered: Vec::new(),
            slow_reads: VecDeque::new(),
            greeted: 0,
            in_flight: 0,
            requests: 0,
            failures_in_a_row: 0,
            outcome: Outcome::new(),
        })
    }

    pub(super) fn run(mut self, observer: &mut dyn Observer) -> io::Result<Outcome> {
        self.open_connections()?;
        observer.opened();
        self.load(observer)?;
        self.drain()?;
        // Receives go first, as they hold the sockets; then no connection is left in TIME_WAIT to use up ports.
        drop(self.ring);
        for connection in &self.connections {
            if let Some(socket) = &connection.socket {
                socket::reset_on_close(socket);
            }
        }
        Ok(self.outcome)
    }

    /// Opens every connection that is kept and has one request answered on each.
    fn open_connections(&mut self) -> io::Result<()> {
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
            if self.now_ns - progress_ns > OPENING_STALL_MAX.as_nanos() as u64 {
                let message = format!("{} of {wanted} connections opened, then none", self.greeted);
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
        }
        if wanted > 0 && self.failures_in_a_row >= wanted as u64 { Err(self.hopeless()) } else { Ok(()) }
    }

    fn load(&mut self, observer: &mut dyn Observer) -> io::Result<()> {
        self.stage = Stage::Running;
        self.tick();
        let begin_ns = self.now_ns;
        let window_start_ns = begin_ns + self.plan.warm_up.as_nanos() as u64;
        self.window_ns = window_start_ns..window_start_ns + self.plan.window.as_nanos() as u64;
        let mut arrivals = match self.plan.demand {
            Demand::Saturate => None,
            Demand::Rate { per_s, spacing } => Some(Arrivals::new(spacing, per_s, self.plan.seed)),
        };
        for _ in 0..self.plan.pipeline {
            self.freed.extend(0..self.plan.connections as u32);
        }
        for index in self.plan.connections + self.plan.idle..self.connections.len() {
            self.dispatch(index as u32, self.mix.longest(), 1, self.now_ns);
        }
        let mut begun = false;
        let mut cpu_at_begin = Duration::ZERO;
        while self.now_ns < self.window_ns.end && self.requests < self.plan.requests_max {
            if !begun && self.now_ns >= self.window_ns.start {
                begun = true;
                // From here, not from the plan: the observer's counters are read now.
                self.window_ns = self.now_ns..self.now_ns + self.plan.window.as_nanos() as u64;
                observer.window_begins();
                cpu_at_begin = own_thread_cpu_time()?;
            }
            let round_ns = self.now_ns;
            self.use_freed_slots();
            let mut next_ns = if begun { self.window_ns.end } else { self.window_ns.start };
            if let Some(arrivals) = &mut arrivals {
                self.send_due(arrivals, begin_ns);
                next_ns = next_ns.min(begin_ns + arrivals.next_ns());
            }
            next_ns = next_ns.min(self.read_slowly());
            let worked = self.step(next_ns)?;
            if worked && begun {
                self.outcome.busy += Duration::from_nanos(self.now_ns - round_ns);
            }
        }
        observer.window_ends();
        self.outcome.cpu = own_thread_cpu_time()?.saturating_sub(cpu_at_begin);
        self.tick();
        self.window_ns.end = self.now_ns;
        self.outcome.window = Duration::from_nanos(self.window_ns.end - self.window_ns.start);
        Ok(())
    }

    /// Waits for the replies that are still to come and counts those that don't.
    fn drain(&mut self) -> io::Result<()> {
        self.stage = Stage::Draining;
        let end_ns = self.now_ns + self.plan.drain.as_nanos() as u64;
        while (self.in_flight > 0 || !self.waiting.is_empty()) && self.now_ns < end_ns {
            // What was due within the window is still sent; a closed loop sends no more.
            match self.plan.demand {
                Demand::Saturate => self.freed.clear(),
                Demand::Rate { .. } => self.use_freed_slots(),
            }
            self.step(end_ns)?;
        }
        let active = &self.connections[..self.plan.connections];
        let outstanding = active.iter().flat_map(|connection| &connection.outstanding);
        let missing = outstanding.map(|request| request.intended_ns).chain(self.waiting.iter().map(|&(ns, _)| ns));
        let mut unanswered = 0;
        for intended_ns in missing {
            unanswered += 1;
            if self.window_ns.contains(&intended_ns) {
                self.outcome.latency_ns.saturating_record(self.now_ns - intended_ns);
            }
        }
        self.outcome.fail(Failure::Unanswered, unanswered);
        Ok(())
    }

    /// One system call if there is work for it; true if there was. Sleeps until `next_ns` if that pays.
    fn step(&mut self, next_ns: u64) -> io::Result<bool> {
        let worked = if self.ring.has_work() {
            self.ring.enter(false)?;
            true
        } else {
            let gap_ns = next_ns.saturating_sub(self.now_ns);
            if gap_ns > SPIN_NS && (self.plan.sleep || self.in_flight == 0) {
                self.ring.enter_for(Duration::from_nanos(gap_ns - SPIN_NS / 2))?;
            } else {
                std::hint::spin_loop();
            }
            false
        };
        self.tick();
        if worked || self.ring.has_work() {
            self.harvest()?;
            self.tick();
        }
        Ok(worked)
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
        } else {
            Role::Slow
        }
    }

    /// Sends what is due (open loop).
    fn send_due(&mut self, arrivals: &mut Arrivals, begin_ns: u64) {
        loop {
            let intended_ns = begin_ns + arrivals.next_ns();
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
            } else if self.waiting.len() < WAITING_MAX {
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
                    let target = self.mix.draw(&mut self.random);
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

    /// Submits reads of slow readers that are due; says when the next one is.
    fn read_slowly(&mut self) -> u64 {
        while let Some(&(due_ns, index)) = self.slow_reads.front() {
            if due_ns > self.now_ns {
                return due_ns;
            }
            self.slow_reads.pop_front();
            self.arm(index, Want::Look { bytes: SLOW_READ_BYTES });
        }
        u64::MAX
    }

    /// Lets a slow reader wait for as long as its rate wants.
    pub(super) fn read_later(&mut self, index: u32) {
        let wait_ns = u64::from(SLOW_READ_BYTES) * 1_000_000_000 / u64::from(self.plan.slow_bytes_per_s.max(1));
        self.slow_reads.push_back((self.now_ns + wait_ns, index));
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
        if index as usize >= self.plan.connections + self.plan.idle {
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
        let socket = socket::connect(self.plan.address, receive_buffer_bytes)?;
        let connection = &mut self.connections[index as usize];
        connection.socket = Some(socket);
        connection.requests = 0;
        connection.armed = false;
        connection.reader = super::reply::ReplyReader::default();
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
