//! The reactor: a worker's only way to the network. Completion-based, as io_uring is; epoll makes its completions itself.
//!
//! A reactor decides nothing about order or about HTTP: what is submitted, and when completions are harvested, is the worker's
//! decision. Each implementation is one file here; the simulator has a third.

mod buffers;
mod epoll;
mod io_uring;

use std::io::{self, IoSlice};
use std::time::Duration;

use bytes::Bytes;
use leat_logic::admission::LetIn;
use leat_logic::schedule::Gather;

use crate::knocking::Knocking;

pub use epoll::Epoll;
pub use io_uring::IoUring;

/// Bytes in one receive buffer. A browser's request head is 0.6 to 2 KB: one buffer holds it whole, and a page of other protocols with what goes before it.
pub const RECEIVE_BUFFER_BYTES: usize = 8192;
/// Runs of bytes in one [`Reactor::send_parts_now`]; the kernel takes 1,024 (`UIO_MAXIOV`).
pub const PARTS_MAX: usize = 64;

/// Receive buffers of one worker: 4 MB, of which only what has been touched is resident. When all are taken, receiving waits until the
/// worker has processed some: that is the back-pressure on clients.
pub const RECEIVE_BUFFERS: u16 = 512;

/// The most completions handed over by one [`Reactor::wait`]. Small, so that an event's place in the schedule is decided late.
pub const COMPLETIONS_MAX: usize = 64;

/// A connected socket: a descriptor's number on a real host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Socket(pub u32);

/// Where [`Reactor::connect`] connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// TCP.
    Internet(std::net::SocketAddr),
    /// A Unix socket, by its path.
    Unix(std::path::PathBuf),
}

impl Peer {
    /// What a Host field calls it.
    #[must_use]
    pub fn authority(&self) -> String {
        match self {
            Peer::Internet(address) => address.to_string(),
            Peer::Unix(_) => "localhost".to_owned(),
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Peer::Internet(address) => address.fmt(formatter),
            Peer::Unix(path) => path.display().fmt(formatter),
        }
    }
}

/// A listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Listener(pub u32);

/// The caller's name for a connection (or a listener, or a polled descriptor), given back with each of its completions.
///
/// `index` has 24 bits and `generation` 16: they travel in the kernel's 64-bit user data beside the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    /// The slot, below 2^24.
    pub index: u32,
    /// Tells this holder of the slot from those before it.
    pub generation: u16,
}

/// The largest [`Token::index`] plus one.
pub const TOKEN_INDEX_MAX: u32 = 1 << 24;

/// Bytes that a socket received, in a buffer of the reactor: read with [`Reactor::bytes`], given back with [`Reactor::release`].
///
/// Not `Clone`: losing one leaks a buffer, releasing one twice would hand it to two connections.
#[derive(Debug, PartialEq, Eq)]
pub struct ReceiveBuffer {
    id: u16,
    len: u32,
}

impl ReceiveBuffer {
    /// A buffer by its number; for implementations of [`Reactor`] only.
    #[must_use]
    pub fn new(id: u16, len: u32) -> ReceiveBuffer {
        ReceiveBuffer { id, len }
    }

    /// The buffer's number.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.id
    }

    /// How many bytes were received.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether nothing was received; never so for a buffer in a completion.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Something that the kernel finished.
#[derive(Debug)]
pub enum Completion {
    /// A client has connected, and waits to be accepted. Said once for each [`Reactor::await_connections`].
    ConnectionsWait {
        /// The listener's token.
        listener: Token,
    },
    /// Bytes arrived.
    Received {
        /// The connection.
        token: Token,
        /// The bytes.
        buffer: ReceiveBuffer,
    },
    /// The client will send no more. Receiving has ended.
    EndOfInput {
        /// The connection.
        token: Token,
    },
    /// Receiving has ended because of an error, or because it was cancelled ([`Reactor::pause`]).
    ReceiveStopped {
        /// The connection.
        token: Token,
        /// `None` when it was cancelled.
        error: Option<io::Error>,
    },
    /// A [`Reactor::send`] is done: all of its bytes are with the kernel, or it failed.
    Sent {
        /// The connection.
        token: Token,
        /// Why it failed.
        error: Option<io::Error>,
        /// There was no room in the socket at first. Otherwise the kernel took it all when it was handed over, however late that is told.
        waited: bool,
    },
    /// What [`Reactor::await_writable`] waited for.
    Writable {
        /// The connection.
        token: Token,
    },
    /// A descriptor given to [`Reactor::poll_readable`] is readable.
    Readable {
        /// The token given with it.
        token: Token,
    },
}

/// What a send that doesn't wait achieved.
#[derive(Debug)]
pub enum SendNow {
    /// This many bytes went to the kernel; at least one.
    Sent(usize),
    /// The socket's buffer is full: [`Reactor::await_writable`].
    Blocked,
    /// The file ended before the range did: it has shrunk.
    EndOfFile,
    /// The connection is broken.
    Failed(io::Error),
}

/// What is to be sent: a head made for this reply, and a body shared with others.
#[derive(Debug, Default)]
pub struct Transmit {
    /// From [`Reactor::send_buffer`]; goes back there when it is sent. Empty if `body` is a whole reply.
    pub head: Vec<u8>,
    /// May be empty.
    pub body: Bytes,
    /// Nothing waits for its completion: that may come together with others', some milliseconds late, which saves a system call.
    pub unhurried: bool,
}

impl Transmit {
    /// Bytes of both.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no reply is empty")]
    pub fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// All of it, if it's in one piece.
    fn one_piece(&self) -> Option<&[u8]> {
        match (self.head.is_empty(), self.body.is_empty()) {
            (_, true) => Some(&self.head),
            (true, false) => Some(&self.body),
            (false, false) => None,
        }
    }
}

/// A worker's network.
///
/// At most one `send`, one `receive` and one `await_writable` may be under way for a socket. [`Reactor::close`] comes after all of them have
/// completed ([`Reactor::shutdown`] makes them).
pub trait Reactor {
    /// An open file whose bytes can go to a socket without entering the worker.
    type File;

    /// Asks for a [`Completion::ConnectionsWait`].
    fn await_connections(&mut self, listener: Listener, token: Token);

    /// Undoes [`Reactor::await_connections`]; connections that wait in the listener's queue stay there.
    fn stop_awaiting_connections(&mut self, listener: Listener, token: Token);

    /// Takes a connection that waits, if any does, at a listener that has been awaited. Accepting is a good part of a short connection's cost:
    /// who calls it decides when.
    ///
    /// # Errors
    /// No descriptors left, say. The connection waits on.
    fn accept(&mut self, listener: Listener) -> io::Result<Option<Socket>>;

    /// Bounds how many connections wait at a listener; the kernel doesn't answer those who come beyond that, and they try again a second later.
    /// `None`: as many as usual.
    fn set_queue_max(&mut self, listener: Listener, connections: Option<u32>);

    /// Has the kernel hear only a part of those who come; the others know nothing and try again a second later.
    fn let_in(&mut self, listener: Listener, whom: &LetIn);

    /// How many wait at a listener, and what has been dropped there.
    fn knocking(&self, listener: Listener) -> Knocking;

    /// Receives once: a connection's first request, after which most one-request connections end.
    fn receive_once(&mut self, socket: Socket, token: Token);

    /// Receives until end of input, an error or [`Reactor::pause`].
    fn receive(&mut self, socket: Socket, token: Token);

    /// Appends what else has come, `max` bytes at most, once a receive has filled its buffer and before the next one is asked for: one system call
    /// for what would take many. Says how much that was. An end of input is the next receive's to tell; who can't do this brings nothing.
    ///
    /// # Errors
    /// The connection is broken. Nothing tells it again.
    fn receive_now(&mut self, _socket: Socket, _token: Token, _bytes: &mut Vec<u8>, _max: usize) -> io::Result<usize> {
        Ok(0)
    }

    /// Cancels receiving; a [`Completion::ReceiveStopped`] (or an end that was on its way already) follows.
    fn pause(&mut self, socket: Socket, token: Token);

    /// The bytes in a receive buffer.
    fn bytes(&self, buffer: &ReceiveBuffer) -> &[u8];

    /// Gives a receive buffer back.
    fn release(&mut self, buffer: ReceiveBuffer);

    /// An empty buffer for a head, with some capacity: used again and again, so that a reply needs no allocation.
    fn send_buffer(&mut self) -> Vec<u8>;

    /// Sends all of it; [`Completion::Sent`] follows.
    fn send(&mut self, socket: Socket, token: Token, transmit: Transmit);

    /// Sends as much as fits now. `more` tells the kernel that a file follows, so that head and file share a segment.
    fn send_now(&mut self, socket: Socket, bytes: &[u8], more: bool) -> SendNow;

    /// Sends as much as fits now of several runs of bytes, one after the other; [`PARTS_MAX`] at most.
    fn send_parts_now(&mut self, socket: Socket, parts: &[IoSlice<'_>]) -> SendNow;

    /// Sends file bytes `offset..offset + len`, as many as fit now, from the page cache. The caller has made sure that they are there.
    fn send_file_now(&mut self, socket: Socket, token: Token, file: &Self::File, offset: u64, len: usize) -> SendNow;

    /// Asks for a [`Completion::Writable`], which comes at once where there is room.
    fn await_writable(&mut self, socket: Socket, token: Token);

    /// Has the [`Completion::Writable`] that is awaited come now, whatever room there is.
    fn stop_awaiting_writable(&mut self, socket: Socket, token: Token);

    /// Whether bytes have come that weren't received. A socket that is closed on them is reset, and what was sent last may not be read.
    fn has_unread(&self, socket: Socket) -> bool;

    /// Bytes that the client hasn't acknowledged yet: tells a slow reader from one that has stopped.
    fn unacknowledged_bytes(&self, socket: Socket) -> usize;

    /// Whether some of them still wait for this machine's link.
    fn waits_at_link(&self, socket: Socket) -> bool {
        self.unacknowledged_bytes(socket) > 0
    }

    /// How long ago the client's last bytes came, read or not, to some milliseconds; nothing when the connection is gone.
    fn since_arrival(&self, socket: Socket) -> Duration;

    /// The client's address, or `None` when the connection is gone.
    fn peer(&self, socket: Socket) -> Option<std::net::SocketAddr>;

    /// The address at which the client reached us, or `None` when the connection is gone.
    fn own_address(&self, socket: Socket) -> Option<std::net::SocketAddr>;

    /// Ends sending (a FIN goes out after what is queued); with `both`, receiving too, which completes everything that is under way.
    fn shutdown(&mut self, socket: Socket, token: Token, both: bool);

    /// Whether the close that follows is a reset, whoever it's by: the kernel closes the sockets of a process that is killed. [`Reactor::close`] leaves
    /// it at that. A pretended host has no such end.
    fn set_reset_on_close(&mut self, _socket: Socket, _resets: bool) {}

    /// Closes. With `reset`, what is queued is thrown away and the client sees a reset: how a reply is cut.
    fn close(&mut self, socket: Socket, reset: bool);

    /// Lets go of a socket for which nothing is under way, so that another reactor can have it, or this one again ([`Reactor::adopt`]).
    ///
    /// # Errors
    /// This reactor can't: then the socket is still its own.
    fn give_up(&mut self, socket: Socket, token: Token) -> io::Result<std::os::fd::OwnedFd>;

    /// Takes over a connected stream socket that it didn't accept: one end of a pair, or what another reactor has given up.
    ///
    /// # Errors
    /// Those of ioctl(2): it isn't a socket.
    fn adopt(&mut self, socket: std::os::fd::OwnedFd) -> io::Result<Socket>;

    /// Begins to connect a new socket, without waiting. When [`Reactor::await_writable`] says that it's decided, [`Reactor::connected`] says how.
    ///
    /// # Errors
    /// Those of socket(2) and connect(2) that show at once: nobody listens, a queue is full, no descriptors left.
    fn connect(&mut self, to: &Peer) -> io::Result<Socket>;

    /// How a connect has ended.
    ///
    /// # Errors
    /// Why the socket isn't connected.
    fn connected(&mut self, socket: Socket) -> io::Result<()>;

    /// Polls any descriptor for reading, until [`Reactor::stop_polling`]; [`Completion::Readable`] each time it becomes readable.
    fn poll_readable(&mut self, descriptor: i32, token: Token);

    /// As [`Reactor::poll_readable`], of what several reactors poll: each time, one of them is told. It's to take all that is there.
    fn poll_shared(&mut self, descriptor: i32, token: Token) {
        self.poll_readable(descriptor, token);
    }

    /// Undoes [`Reactor::poll_readable`]. The descriptor may be closed after the next [`Reactor::wait`]; a last [`Completion::Readable`] may come.
    fn stop_polling(&mut self, descriptor: i32, token: Token);

    /// Receive buffers that nobody holds.
    fn free_buffers(&self) -> usize;

    /// Whether [`Reactor::wait`] would have more at once, as far as that's known without a system call.
    fn has_more(&self) -> bool;

    /// Submits what was asked for and appends what has completed, at most [`COMPLETIONS_MAX`] entries. Waits for the first one up to `timeout`
    /// (for ever with `None`).
    ///
    /// # Errors
    /// Only those after which the reactor can't go on.
    fn wait(&mut self, timeout: Option<Duration>, completions: &mut Vec<Completion>) -> io::Result<()>;

    /// As [`Reactor::wait`], but if it has to wait, then as `gather` says: for several. A reactor that can't waits for the first.
    ///
    /// # Errors
    /// As [`Reactor::wait`].
    fn wait_for_several(
        &mut self,
        _gather: Gather,
        timeout: Option<Duration>,
        completions: &mut Vec<Completion>,
    ) -> io::Result<()> {
        self.wait(timeout, completions)
    }
}

/// The reactors of a real host, by the names that the configuration uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Linux's io_uring: multishot accept and receive, provided buffers.
    IoUring,
    /// epoll: where io_uring is refused (containers, old kernels).
    Epoll,
}

impl Kind {
    /// All of them, the preferred one first.
    pub const ALL: [Kind; 2] = [Kind::IoUring, Kind::Epoll];

    /// The name in the configuration, the log and the metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::IoUring => "io_uring",
            Kind::Epoll => "epoll",
        }
    }
}

#[cfg(test)]
mod conformance;
