//! The bare sendfile loop: the floor for large files.
//!
//! System calls for a request: one `recv`, one `send` of the head (held back for what follows, as with TCP_CORK), one
//! `sendfile` for each time that the socket's buffer had room, and a share of one `epoll_wait` for each time that it
//! became ready. Bytes go from the page cache to the socket with no copy in the process. Nothing is asked in vain: room to write is no reason
//! to receive, and a `sendfile` that took less than it was given has filled the socket's buffer, of which the next edge will tell.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};

use super::reply::{HeadCounter, head};
use crate::sys::epoll::{Epoll, Interest};
use crate::sys::socket;

const LISTENER: u64 = u64::MAX;

struct Connection {
    socket: OwnedFd,
    heads: HeadCounter,
    /// Requests not yet answered, the one being answered counted.
    waiting: usize,
    head_sent: usize,
    offset: libc::off_t,
}

struct Reply<'a> {
    head: &'a [u8],
    file: &'a File,
    file_bytes: u64,
}

/// Accepts and answers until the process is ended.
pub(super) fn serve(listener: &TcpListener, file: &File) -> io::Result<()> {
    let file_bytes = file.metadata()?.len();
    let head = head(file_bytes as usize, false).into_bytes();
    let reply = Reply { head: &head, file, file_bytes };
    let mut epoll = Epoll::new()?;
    epoll.add(listener, LISTENER, Interest::Readable)?;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut buffer = vec![0; 16 << 10];
    loop {
        for index in 0..epoll.wait()? {
            let token = epoll.token(index);
            if token != LISTENER {
                let slot = &mut connections[token as usize];
                let has_come = epoll.is_readable(index);
                let buffer = has_come.then_some(&mut buffer[..]);
                let over = slot.as_mut().is_some_and(|connection| answer(connection, &reply, buffer).is_err());
                if over {
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
                let heads = HeadCounter::default();
                connections[number] = Some(Connection { socket: accepted, heads, waiting: 0, head_sent: 0, offset: 0 });
            }
        }
    }
}

/// Reads what has come, if a buffer is given for it, and sends what there is room for; an error when the connection is over.
fn answer(connection: &mut Connection, reply: &Reply, buffer: Option<&mut [u8]>) -> io::Result<()> {
    if let Some(buffer) = buffer {
        match socket::receive(&connection.socket, buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(received) => connection.waiting += connection.heads.count(&buffer[..received]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    while connection.waiting > 0 {
        match send_some(connection, reply) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        if connection.head_sent == reply.head.len() && connection.offset as u64 == reply.file_bytes {
            connection.waiting -= 1;
            connection.head_sent = 0;
            connection.offset = 0;
        }
    }
    Ok(())
}

/// Sends once; false when there is no room for more.
fn send_some(connection: &mut Connection, reply: &Reply) -> io::Result<bool> {
    if connection.head_sent < reply.head.len() {
        connection.head_sent +=
            socket::send(&connection.socket, &reply.head[connection.head_sent..], reply.file_bytes > 0)?;
        return Ok(true);
    }
    let left = reply.file_bytes as usize - connection.offset as usize;
    match socket::send_file(&connection.socket, reply.file, &mut connection.offset, left)? {
        0 if left > 0 => Err(io::Error::other("the file has shrunk")),
        sent => Ok(sent == left),
    }
}
