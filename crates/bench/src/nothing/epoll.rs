//! The do-nothing server on epoll, edge-triggered.
//!
//! System calls for a request on a kept connection: one `recv`, one `send`, and a share of one `epoll_wait` (one for
//! all the connections that became ready together). Edge-triggered is the cheaper way here: level-triggered, each wait
//! polls again every socket that the one before reported. For a connection: one `accept4`, one `epoll_ctl`, one
//! `recv` that returns 0, one `close`.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};

use super::reply::{FixedReply, HeadCounter};
use crate::sys::epoll::{Epoll, Interest};
use crate::sys::socket;

const LISTENER: u64 = u64::MAX;

struct Connection {
    socket: OwnedFd,
    heads: HeadCounter,
    /// What the socket had no room for.
    unsent: Vec<u8>,
}

/// Accepts and answers until the process is ended.
pub(super) fn serve(listener: &TcpListener, reply: FixedReply) -> io::Result<()> {
    let mut epoll = Epoll::new()?;
    epoll.add(listener, LISTENER, Interest::Readable)?;
    // Indexed by descriptor: the kernel keeps those small.
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        for index in 0..epoll.wait()? {
            let token = epoll.token(index);
            if token != LISTENER {
                let slot = &mut connections[token as usize];
                let keep = slot.as_mut().is_none_or(|connection| answer(connection, reply, &mut buffer));
                if !keep {
                    *slot = None;
                }
                continue;
            }
            while let Ok(accepted) = socket::accept(listener) {
                let number = accepted.as_raw_fd() as usize;
                epoll.add(&accepted, number as u64, Interest::ReadableWritableEdge)?;
                if connections.len() <= number {
                    connections.resize_with(number + 1, || None);
                }
                connections[number] =
                    Some(Connection { socket: accepted, heads: HeadCounter::default(), unsent: Vec::new() });
            }
        }
    }
}

/// Answers what has come; false when the connection is over.
fn answer(connection: &mut Connection, reply: FixedReply, buffer: &mut [u8]) -> bool {
    if !connection.unsent.is_empty() {
        match socket::send(&connection.socket, &connection.unsent, false) {
            Ok(sent) => drop(connection.unsent.drain(..sent)),
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
        if reply.close && connection.unsent.is_empty() {
            return false;
        }
    }
    loop {
        let received = match socket::receive(&connection.socket, buffer) {
            Ok(0) => return false,
            Ok(received) => received,
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        };
        let mut heads = connection.heads.count(&buffer[..received]);
        while heads > 0 {
            let (bytes, count) = reply.of(heads);
            heads -= count;
            // Replies go in order: nothing passes what still waits.
            let sent = if connection.unsent.is_empty() {
                match socket::send(&connection.socket, bytes, false) {
                    Ok(sent) => sent,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                    Err(_) => return false,
                }
            } else {
                0
            };
            connection.unsent.extend_from_slice(&bytes[sent..]);
            if reply.close && connection.unsent.is_empty() {
                return false;
            }
        }
        // A read that didn't fill the buffer has emptied the socket: the next edge will tell.
        if received < buffer.len() {
            return true;
        }
    }
}
