//! The do-nothing server on io_uring.
//!
//! System calls for a request: a share of one `io_uring_enter`, which hands over a batch of sends and brings the next
//! batch of completions. Accepting and receiving are multishot: submitted once for a listener, once for a connection.
//! Received bytes lie in provided buffers; a send that succeeds makes no completion. Single issuer, deferred task run.
//! For a connection: two submissions, one to receive and one to
//! close; a third, to end the receive, where the server closes first.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};

use super::reply::{FixedReply, HeadCounter};
use crate::sys::ring::{self, Completion, Ring, RingSize};

const ACCEPT: u64 = u64::MAX;
/// Sends and closes: a completion comes only when one fails, which the receive will show too.
const IGNORED: u64 = u64::MAX - 1;

const SIZE: RingSize = RingSize { submissions: 4096, completions: 32_768, buffers: 1024, buffer_bytes: 2048 };

struct Connection {
    socket: OwnedFd,
    heads: HeadCounter,
    answered: bool,
}

/// Accepts and answers until the process is ended.
pub(super) fn serve(listener: &TcpListener, reply: FixedReply) -> io::Result<()> {
    let mut ring = Ring::new(SIZE)?;
    ring.accept_multishot(listener.as_raw_fd(), ACCEPT);
    // Indexed by descriptor: the kernel keeps those small.
    let mut connections: Vec<Option<Connection>> = Vec::new();
    loop {
        ring.enter(true)?;
        while let Some(completion) = ring.next_completion() {
            match completion.token {
                ACCEPT => {
                    if !completion.more {
                        ring.accept_multishot(listener.as_raw_fd(), ACCEPT);
                    }
                    let Some(accepted) = ring::adopt(&completion) else { continue };
                    let number = accepted.as_raw_fd() as usize;
                    ring.receive_multishot(accepted.as_raw_fd(), number as u64);
                    if connections.len() <= number {
                        connections.resize_with(number + 1, || None);
                    }
                    connections[number] =
                        Some(Connection { socket: accepted, heads: HeadCounter::default(), answered: false });
                }
                IGNORED => {}
                number => received(&mut ring, &mut connections[number as usize], completion, reply),
            }
        }
    }
}

fn received(ring: &mut Ring, slot: &mut Option<Connection>, completion: Completion, reply: FixedReply) {
    let Completion { token, result, more, filled } = completion;
    let Some(filled) = filled else {
        // Out of buffers is for a moment only. A cancelled receive belongs to a connection that is closed already, and
        // its number may be another's by now. All else is the end of the connection.
        match slot {
            _ if result == -libc::ECANCELED => {}
            Some(connection) if result == -libc::ENOBUFS => {
                ring.receive_multishot(connection.socket.as_raw_fd(), token);
            }
            _ => {
                if let Some(connection) = slot.take() {
                    ring.close(connection.socket, IGNORED);
                }
            }
        }
        return;
    };
    if let Some(connection) = slot.as_mut() {
        let mut heads = connection.heads.count(ring.bytes(&filled));
        while heads > 0 {
            let (bytes, count) = reply.of(heads);
            heads -= count;
            ring.send(connection.socket.as_raw_fd(), IGNORED, bytes);
            connection.answered = true;
        }
        if reply.close && connection.answered {
            // The receive that still waits holds the socket.
            if more {
                ring.cancel(token, IGNORED);
            }
            if let Some(connection) = slot.take() {
                ring.close(connection.socket, IGNORED);
            }
        } else if !more {
            ring.receive_multishot(connection.socket.as_raw_fd(), token);
        }
    }
    ring.recycle(filled);
}
