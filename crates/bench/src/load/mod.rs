//! The load generator: one thread, thousands of connections, open or closed loop.
//!
//! Open loop: requests are due at times drawn from a seed, whatever the server does, and latency counts from when a
//! request was due. Closed loop: each connection always has its requests outstanding, which is how the processor time
//! of a saturated server is measured. Every reply's status and length is checked, and every few replies' bytes.
//!
//! It stands on one io_uring: sends of a batch and receives share one system call; bodies longer than a buffer are
//! taken off the socket without a copy. While requests are outstanding it looks for completions instead of sleeping,
//! so neither does the server pay for waking it nor does a timer make it late.

mod arrivals;
mod connection;
mod generator;
mod options;
mod outcome;
mod receiving;
mod reply;
mod slices;
#[cfg(test)]
mod tests;
mod together;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

pub(crate) use arrivals::Spacing;
pub(crate) use options::{LoadOptions, run_command};
pub(crate) use outcome::{Failure, Outcome, SIZES_BYTES};
pub(crate) use reply::{Progress, ReplyReader, lengths};
pub(crate) use slices::{SLICE, stalled_share};

use crate::workload::mix::Mix;

/// Most connections of one run: the range of local ports towards one address has 28,000.
pub(crate) const CONNECTIONS_MAX: usize = 24_000;

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Demand {
    /// Closed loop: as soon as a reply is complete.
    Saturate,
    /// Open loop.
    Rate { per_s: f64, spacing: Spacing },
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) address: SocketAddr,
    /// Where its connections come from; `None`: wherever the kernel says.
    pub(crate) source: Option<Ipv4Addr>,
    pub(crate) demand: Demand,
    /// Connections that requests go out on.
    pub(crate) connections: usize,
    /// Requests outstanding on one connection at most.
    pub(crate) pipeline: usize,
    /// Close (or let the server close) after so many; `None`: keep for the whole run.
    pub(crate) requests_per_connection: Option<u32>,
    /// Connections that ask once and are then left alone.
    pub(crate) idle: usize,
    /// Connections that ask for the longest file and read it at `slow_bytes_per_s`.
    pub(crate) slow: usize,
    pub(crate) slow_bytes_per_s: u32,
    /// Connections that send a head a few bytes at a time and never end it.
    pub(crate) slow_heads: usize,
    /// Arrivals that may wait for a connection; the others count as failed.
    pub(crate) waiting_max: usize,
    /// A reply with status 503 is counted apart, not as a failure. A closed loop asks for the same again, so that what is answered is the mix.
    pub(crate) may_be_refused: bool,
    /// The server may keep out or cut off whatever it likes, and the run goes on.
    pub(crate) is_flood: bool,
    /// Load before the measured window.
    pub(crate) warm_up: Duration,
    pub(crate) window: Duration,
    /// Longest wait for replies after the window.
    pub(crate) drain: Duration,
    /// Ends sending early.
    pub(crate) requests_max: u64,
    /// Compares the body of each n-th reply; 0: of none.
    pub(crate) verify_every: u64,
    pub(crate) seed: u64,
    /// Sleep when there is nothing to do, even while requests are outstanding.
    pub(crate) sleep: bool,
}

impl Plan {
    /// A closed loop over kept connections.
    pub(crate) fn saturate(address: SocketAddr, connections: usize) -> Self {
        Self {
            address,
            source: None,
            demand: Demand::Saturate,
            connections,
            pipeline: 1,
            requests_per_connection: None,
            idle: 0,
            slow: 0,
            slow_bytes_per_s: 10_000,
            slow_heads: 0,
            waiting_max: 1 << 20,
            may_be_refused: false,
            is_flood: false,
            warm_up: Duration::from_millis(500),
            window: Duration::from_secs(2),
            drain: Duration::from_secs(1),
            requests_max: u64::MAX,
            verify_every: 64,
            seed: 1,
            sleep: false,
        }
    }

    /// A part of it for one of several threads that run it together: as many connections and requests for each.
    pub(crate) fn part(&self, thread: usize, threads: usize) -> Self {
        let of = |all: usize| all / threads + usize::from(thread < all % threads);
        let demand = match self.demand {
            Demand::Rate { per_s, spacing } => Demand::Rate { per_s: per_s / threads as f64, spacing },
            Demand::Saturate => Demand::Saturate,
        };
        Self {
            demand,
            connections: of(self.connections),
            idle: of(self.idle),
            slow: of(self.slow),
            slow_heads: of(self.slow_heads),
            waiting_max: of(self.waiting_max),
            seed: self.seed.wrapping_add(thread as u64),
            ..self.clone()
        }
    }

    fn all_connections(&self) -> usize {
        self.connections + self.idle + self.slow + self.slow_heads
    }
}

/// Is told where a run stands, on the generator's thread: to read clocks and counters of the server at that moment.
pub(crate) trait Observer {
    /// All kept connections are open and have had one reply each.
    fn opened(&mut self) {}
    fn window_begins(&mut self) {}
    fn window_ends(&mut self) {}
}

/// Both are told.
impl<A: Observer, B: Observer> Observer for (A, B) {
    fn opened(&mut self) {
        self.0.opened();
        self.1.opened();
    }

    fn window_begins(&mut self) {
        self.0.window_begins();
        self.1.window_begins();
    }

    fn window_ends(&mut self) {
        self.0.window_ends();
        self.1.window_ends();
    }
}

/// Observes nothing.
pub(crate) struct Unobserved;

impl Observer for Unobserved {}

/// Runs `plan` on the calling thread.
///
/// # Errors
/// io_uring is refused, descriptors run out, or the server fails every request.
pub(crate) fn run(plan: &Plan, mix: &Mix, observer: &mut dyn Observer) -> io::Result<Outcome> {
    let mut outcomes = run_together(&[(plan, mix)], observer)?;
    outcomes.pop().ok_or_else(|| io::Error::other("a run without an outcome"))
}

/// Runs several plans at once on the calling thread, each with its own connections, seed and outcome. Warm-up, window and drain are the
/// first one's.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_together(parts: &[(&Plan, &Mix)], observer: &mut dyn Observer) -> io::Result<Vec<Outcome>> {
    let connections: usize = parts.iter().map(|(plan, _)| plan.all_connections()).sum();
    if connections == 0 || connections > CONNECTIONS_MAX {
        let message = format!("{connections} connections: give 1 to {CONNECTIONS_MAX}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    crate::sys::process::allow_descriptors(connections as u64 + 512)?;
    crate::sys::process::sharpen_timers()?;
    together::run(parts, observer)
}
