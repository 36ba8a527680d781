//! Live TCP connections taken out of the kernel and put into another one (`TCP_REPAIR`). When a connection moves, where its packets go
//! meanwhile, and who owns it, others decide.
//!
//! Freezing: packets of the flow are steered away first (see [`crate::steering`]), then [`Freezer::freeze`]; the socket is closed silently only
//! when the other side has said that it goes on. Every step and its order has a reason; the reasons stand beside them.

mod congestion;
mod deaf;
mod freeze;
mod repair;
#[cfg(test)]
mod tests;
mod thaw;

use std::io;
use std::os::fd::AsRawFd;

pub use congestion::forget_way;
pub use freeze::{Frozen, Known, Refused};
use leat_logic::handoff::limits::{QUEUE_BYTES_MAX, UNREAD_BYTES_MAX};
use repair::Queue;

/// As the kernel counts states (include/net/tcp_states.h).
const CLOSED: u8 = 7;

/// Why a connection couldn't be frozen or thawed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused a step.
    #[error("{step}: {source}")]
    Step {
        /// Which one, by the name that the kernel has for it.
        step: &'static str,
        /// What the kernel said. `EPERM`: the process lacks `CAP_NET_ADMIN`.
        source: io::Error,
    },
    /// A connection that opens, or that one side has closed already: it ends sooner where it is.
    #[error("the connection is in TCP state {state}, and only an established one (1) can be moved")]
    NotEstablished {
        /// As the kernel counts them (include/net/tcp_states.h).
        state: u8,
    },
    /// It would hold too much memory. Once more of it is read or acknowledged, it can be moved.
    #[error("{bytes} bytes are {queue}, and a connection that is moved may carry {most}")]
    TooMuchQueued {
        /// `unread` or `unacknowledged`.
        queue: &'static str,
        /// How many.
        bytes: usize,
        /// [`UNREAD_BYTES_MAX`] or [`QUEUE_BYTES_MAX`].
        most: usize,
    },
    /// Two addresses that don't go together, or one that nobody can have.
    #[error("no connection can be between {local} and {remote}")]
    Addresses {
        /// This side's.
        local: std::net::SocketAddr,
        /// The client's.
        remote: std::net::SocketAddr,
    },
}

impl Error {
    /// Whether there is another socket of the connection.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        matches!(self, Error::Step { step: "connect", source } if source.kind() == io::ErrorKind::AddrNotAvailable)
    }

    /// Whether nothing went wrong: the connection opens still, or has begun to end.
    #[must_use]
    pub fn is_opening_or_closing(&self) -> bool {
        matches!(self, Error::NotEstablished { .. })
    }
}

type Result<T> = std::result::Result<T, Error>;

/// Names the step that failed.
trait Step<T> {
    fn step(self, step: &'static str) -> Result<T>;
}

impl<T, E: Into<io::Error>> Step<T> for std::result::Result<T, E> {
    fn step(self, step: &'static str) -> Result<T> {
        self.map_err(|source| Error::Step { step, source: source.into() })
    }
}

/// What freezing and thawing needs, made once for each process.
#[derive(Debug)]
pub struct Freezer {
    deafness: deaf::Deafness,
    complain: fn(&crate::steering::Error),
}

impl Freezer {
    /// Loads the filter that keeps a frozen socket from hearing anything. Without the right to load programs a slower one is used.
    #[must_use]
    pub fn new() -> Freezer {
        Freezer { deafness: deaf::Deafness::new(), complain: |_| () }
    }

    /// Who is told, once for the process, why nothing that is known of the way to a client can go along with its connection.
    #[must_use]
    pub fn with_complaints_to(self, complain: fn(&crate::steering::Error)) -> Freezer {
        Freezer { complain, ..self }
    }
}

/// How far a connection has come since it was accepted or thawed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Bytes written to it.
    pub written: u64,
    /// Those of them that its client has acknowledged.
    pub acknowledged: u64,
    /// Bytes of the client that were read from it.
    pub read: u64,
}

/// See [`Position`].
///
/// # Errors
/// What the kernel says.
pub fn position(socket: &impl AsRawFd) -> io::Result<Position> {
    let socket = socket.as_raw_fd();
    let repair::Counts { acknowledged, received } = repair::info(socket)?.counts;
    let written = acknowledged + repair::unacknowledged_bytes(socket)? as u64;
    Ok(Position { written, acknowledged, read: received.saturating_sub(repair::unread_bytes(socket)? as u64) })
}

/// Of a connection that is about to be reset: the first number that its client hasn't acknowledged, and the one that it would use next. None if there's nobody
/// to be told, as the client has reset it.
///
/// # Errors
/// What the kernel says. `EPERM`: the process lacks `CAP_NET_ADMIN`.
pub fn last_numbers(socket: &impl AsRawFd) -> io::Result<Option<(u32, u32)>> {
    let socket = socket.as_raw_fd();
    if repair::info(socket)?.state == CLOSED {
        return Ok(None);
    }
    repair::begin(socket)?;
    let numbers = (|| {
        repair::select(socket, Queue::Receive)?;
        let receive_next = repair::sequence(socket)?;
        repair::select(socket, Queue::Send)?;
        let unacknowledged = repair::unacknowledged_bytes(socket)? as u32;
        Ok((repair::sequence(socket)?.wrapping_sub(unacknowledged), receive_next))
    })();
    repair::end(socket, false)?;
    numbers.map(Some)
}

impl Default for Freezer {
    fn default() -> Freezer {
        Freezer::new()
    }
}
