//! The reactor on epoll, edge-triggered: one registration for a connection's life, made only when its first receive finds nothing.
//!
//! System calls for a small request on a kept connection: its share of one epoll_wait, one recv, one send.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use leat_logic::admission::LetIn;

use super::buffers::HeadBuffers;
use super::{
    COMPLETIONS_MAX, Completion, Listener, Peer, RECEIVE_BUFFER_BYTES, RECEIVE_BUFFERS, Reactor, ReceiveBuffer,
    SendNow, Socket, Token, Transmit,
};
use crate::knocking::{self, Knocking};
use crate::socket;
use crate::storage::OpenFile;

const KIND_CONNECTION: u64 = 0;
/// What is told of a connection, when it changes.
const CONNECTION_EVENTS: i32 = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
const KIND_LISTENER: u64 = 1;
const KIND_POLLED: u64 = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Receiving {
    #[default]
    Off,
    Once,
    On,
}

#[derive(Debug)]
struct Unsent {
    transmit: Transmit,
    done_bytes: usize,
}

#[derive(Debug, Default)]
struct Slot {
    socket: RawFd,
    generation: u16,
    receiving: Receiving,
    registered: bool,
    /// Something may be there to receive that no further edge will announce.
    readable: bool,
    /// The client has ended its side, or the connection is broken.
    ended: bool,
    await_writable: bool,
    unsent: Option<Box<Unsent>>,
}

/// See the module.
#[derive(Debug)]
pub struct Epoll {
    epoll: OwnedFd,
    slots: Vec<Slot>,
    polled: Vec<(Token, RawFd)>,
    memory: Vec<u8>,
    free: Vec<u16>,
    /// Connections whose receive waits for a buffer.
    starved: VecDeque<u32>,
    /// Connections that may have more to receive than the one buffer they got.
    ready: VecDeque<u32>,
    heads: HeadBuffers,
    completed: VecDeque<Completion>,
    events: Vec<libc::epoll_event>,
}

impl Epoll {
    /// A reactor for one worker.
    ///
    /// # Errors
    /// Those of epoll_create1(2).
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: no pointers are passed.
        let raw = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Epoll {
            // SAFETY: `raw` was just made and nobody else owns it.
            epoll: unsafe { OwnedFd::from_raw_fd(raw) },
            slots: Vec::new(),
            polled: Vec::new(),
            memory: vec![0; RECEIVE_BUFFER_BYTES * RECEIVE_BUFFERS as usize],
            free: (0..RECEIVE_BUFFERS).rev().collect(),
            starved: VecDeque::new(),
            ready: VecDeque::new(),
            heads: HeadBuffers::default(),
            completed: VecDeque::new(),
            events: Vec::with_capacity(COMPLETIONS_MAX),
        })
    }

    fn control(&self, operation: i32, descriptor: RawFd, events: i32, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events.cast_unsigned(), u64: data };
        // SAFETY: the pointer is to `event`, which lives through the call.
        let result = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, descriptor, &raw mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn poll(&mut self, descriptor: RawFd, token: Token, how: i32) {
        let events = libc::EPOLLIN | libc::EPOLLET | how;
        match self.control(libc::EPOLL_CTL_ADD, descriptor, events, pack(KIND_POLLED, token)) {
            Ok(()) => self.polled.push((token, descriptor)),
            Err(_) => self.completed.push_back(Completion::Readable { token }),
        }
    }

    fn slot(&mut self, socket: Socket, token: Token) -> &mut Slot {
        let index = token.index as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, Slot::default);
        }
        let slot = &mut self.slots[index];
        let descriptor = raw(socket);
        if slot.generation != token.generation || slot.socket != descriptor {
            *slot = Slot { socket: descriptor, generation: token.generation, ..Slot::default() };
        }
        slot
    }

    fn register(&mut self, token: Token) {
        let slot = &mut self.slots[token.index as usize];
        if slot.registered {
            return;
        }
        slot.registered = true;
        let descriptor = slot.socket;
        let data = pack(KIND_CONNECTION, token);
        if let Err(error) = self.control(libc::EPOLL_CTL_ADD, descriptor, CONNECTION_EVENTS, data) {
            self.completed.push_back(Completion::ReceiveStopped { token, error: Some(error) });
        }
    }

    /// Receives what is there, at most one buffer. If there may be more, the connection goes to the end of the line.
    fn receive_buffer(&mut self, token: Token) {
        let slot = &mut self.slots[token.index as usize];
        if slot.receiving == Receiving::Off {
            return;
        }
        let Some(id) = self.free.pop() else {
            self.starved.push_back(token.index);
            return;
        };
        let start = id as usize * RECEIVE_BUFFER_BYTES;
        match socket::receive(slot.socket, &mut self.memory[start..start + RECEIVE_BUFFER_BYTES]) {
            Ok(0) => {
                slot.receiving = Receiving::Off;
                self.free.push(id);
                self.completed.push_back(Completion::EndOfInput { token });
            }
            Ok(count) => {
                // A short receive has emptied the socket, and what comes later brings an edge; but none follows an end of input.
                slot.readable = count == RECEIVE_BUFFER_BYTES || slot.ended;
                match slot.receiving {
                    Receiving::Once => slot.receiving = Receiving::Off,
                    Receiving::On if slot.readable => self.ready.push_back(token.index),
                    // Everything so far may have been there when it was looked for: nobody watches the socket yet.
                    Receiving::On => self.register(token),
                    Receiving::Off => {}
                }
                let buffer = ReceiveBuffer::new(id, count as u32);
                self.completed.push_back(Completion::Received { token, buffer });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                slot.readable = false;
                self.free.push(id);
                self.register(token);
            }
            Err(error) => {
                slot.receiving = Receiving::Off;
                self.free.push(id);
                self.completed.push_back(Completion::ReceiveStopped { token, error: Some(error) });
            }
        }
    }

    fn send_more(&mut self, token: Token) {
        let slot = &mut self.slots[token.index as usize];
        let Some(mut unsent) = slot.unsent.take() else { return };
        let descriptor = slot.socket;
        let error = loop {
            let head_left = unsent.transmit.head.get(unsent.done_bytes..).unwrap_or_default();
            let body_done = unsent.done_bytes.saturating_sub(unsent.transmit.head.len());
            let body_left = &unsent.transmit.body[body_done..];
            if head_left.is_empty() && body_left.is_empty() {
                break None;
            }
            match socket::send_parts(descriptor, &[IoSlice::new(head_left), IoSlice::new(body_left)]) {
                SendNow::Sent(count) => unsent.done_bytes += count,
                SendNow::Blocked => {
                    self.slots[token.index as usize].unsent = Some(unsent);
                    self.register(token);
                    return;
                }
                SendNow::EndOfFile => break Some(io::ErrorKind::UnexpectedEof.into()),
                SendNow::Failed(error) => break Some(error),
            }
        };
        self.heads.put(mem::take(&mut unsent.transmit.head));
        self.completed.push_back(Completion::Sent { token, error, waited: true });
    }

    fn connection_event(&mut self, token: Token, events: u32) {
        let Some(slot) = self.slots.get_mut(token.index as usize) else { return };
        if slot.generation != token.generation || !slot.registered {
            return;
        }
        let any = |mask: i32| events & mask.cast_unsigned() != 0;
        if any(libc::EPOLLOUT | libc::EPOLLERR | libc::EPOLLHUP) {
            if slot.await_writable {
                slot.await_writable = false;
                self.completed.push_back(Completion::Writable { token });
            } else if slot.unsent.is_some() {
                self.send_more(token);
            }
        }
        let ended = any(libc::EPOLLRDHUP | libc::EPOLLERR | libc::EPOLLHUP);
        if ended || any(libc::EPOLLIN) {
            let slot = &mut self.slots[token.index as usize];
            slot.readable = true;
            slot.ended |= ended;
            self.receive_buffer(token);
        }
    }

    /// The holder of a slot now, if any: the line may name a connection that has gone.
    fn receive_next_in_line(&mut self, index: u32) {
        let token = Token { index, generation: self.slots[index as usize].generation };
        self.receive_buffer(token);
    }

    fn harvest(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout_ms = timeout.map_or(-1, |timeout| {
            // Rounded up: a timer that is a fraction of a millisecond away would otherwise be polled for.
            i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
        });
        // SAFETY: the vector has room for COMPLETIONS_MAX events; the kernel says how many it wrote.
        let count = unsafe {
            libc::epoll_wait(self.epoll.as_raw_fd(), self.events.as_mut_ptr(), COMPLETIONS_MAX as i32, timeout_ms)
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
        }
        // SAFETY: the kernel has written this many events, at most the capacity.
        unsafe { self.events.set_len(count.unsigned_abs() as usize) };
        for i in 0..self.events.len() {
            let libc::epoll_event { events, u64: data } = self.events[i];
            let (kind, token) = unpack(data);
            match kind {
                KIND_LISTENER => self.completed.push_back(Completion::ConnectionsWait { listener: token }),
                KIND_POLLED => self.completed.push_back(Completion::Readable { token }),
                _ => self.connection_event(token, events),
            }
        }
        Ok(())
    }
}

fn raw(socket: Socket) -> RawFd {
    socket.0.cast_signed()
}

fn pack(kind: u64, token: Token) -> u64 {
    kind << 56 | u64::from(token.generation) << 32 | u64::from(token.index)
}

fn unpack(data: u64) -> (u64, Token) {
    (data >> 56, Token { index: data as u32, generation: (data >> 32) as u16 })
}

impl Reactor for Epoll {
    type File = Arc<OpenFile>;

    fn await_connections(&mut self, listener: Listener, token: Token) {
        let descriptor = listener.0.cast_signed();
        let data = pack(KIND_LISTENER, token);
        let events = libc::EPOLLIN | libc::EPOLLONESHOT;
        let again = self.control(libc::EPOLL_CTL_MOD, descriptor, events, data);
        if again.is_err() {
            let first = socket::set_nonblocking(descriptor, true)
                .and_then(|()| self.control(libc::EPOLL_CTL_ADD, descriptor, events, data));
            if first.is_err() {
                // Accepting will tell why.
                self.completed.push_back(Completion::ConnectionsWait { listener: token });
            }
        }
    }

    fn stop_awaiting_connections(&mut self, listener: Listener, token: Token) {
        // It may not be registered: then there is nothing to undo.
        let _ = self.control(libc::EPOLL_CTL_DEL, listener.0.cast_signed(), 0, 0);
        self.completed.retain(|done| !matches!(done, Completion::ConnectionsWait { listener } if *listener == token));
    }

    fn accept(&mut self, listener: Listener) -> io::Result<Option<Socket>> {
        let accepted = socket::accept(listener.0.cast_signed(), true)?;
        Ok(accepted.map(|descriptor| Socket(descriptor.cast_unsigned())))
    }

    fn set_queue_max(&mut self, listener: Listener, connections: Option<u32>) {
        socket::set_queue_max(listener.0.cast_signed(), connections);
    }

    fn let_in(&mut self, listener: Listener, whom: &LetIn) {
        // Without it, as many are heard as before, and the queue is short all the same.
        let _ = knocking::let_in(listener.0.cast_signed(), whom);
    }

    fn knocking(&self, listener: Listener) -> Knocking {
        knocking::look(listener.0.cast_signed())
    }

    fn receive_once(&mut self, socket: Socket, token: Token) {
        let slot = self.slot(socket, token);
        slot.receiving = Receiving::Once;
        // The request has often come with the connection: then it needs no registration at all.
        if !slot.registered || slot.readable {
            self.receive_buffer(token);
        }
    }

    fn receive(&mut self, socket: Socket, token: Token) {
        let slot = self.slot(socket, token);
        slot.receiving = Receiving::On;
        if slot.readable {
            self.receive_buffer(token);
        } else {
            self.register(token);
        }
    }

    fn receive_now(&mut self, socket: Socket, token: Token, bytes: &mut Vec<u8>, max: usize) -> io::Result<usize> {
        let count = socket::receive_into(raw(socket), bytes, max)?;
        let slot = self.slot(socket, token);
        // As with a buffer: a short receive has emptied the socket.
        slot.readable = count == max || slot.ended;
        Ok(count)
    }

    fn pause(&mut self, socket: Socket, token: Token) {
        let slot = self.slot(socket, token);
        if slot.receiving != Receiving::Off {
            slot.receiving = Receiving::Off;
            slot.readable = true;
            self.completed.push_back(Completion::ReceiveStopped { token, error: None });
        }
    }

    fn bytes(&self, buffer: &ReceiveBuffer) -> &[u8] {
        let start = buffer.id() as usize * RECEIVE_BUFFER_BYTES;
        &self.memory[start..start + buffer.len()]
    }

    fn release(&mut self, buffer: ReceiveBuffer) {
        self.free.push(buffer.id());
        if let Some(index) = self.starved.pop_front() {
            self.receive_next_in_line(index);
        }
    }

    fn send_buffer(&mut self) -> Vec<u8> {
        self.heads.take()
    }

    fn send(&mut self, socket: Socket, token: Token, transmit: Transmit) {
        // The usual reply goes out whole: no box, no state.
        let whole = transmit.len();
        let first = match transmit.one_piece() {
            Some(bytes) => socket::send(raw(socket), bytes, false),
            None => socket::send_parts(raw(socket), &[IoSlice::new(&transmit.head), IoSlice::new(&transmit.body)]),
        };
        let done_bytes = match first {
            SendNow::Sent(count) if count == whole => {
                self.heads.put(transmit.head);
                self.completed.push_back(Completion::Sent { token, error: None, waited: false });
                return;
            }
            SendNow::Sent(count) => count,
            SendNow::Blocked => 0,
            SendNow::EndOfFile | SendNow::Failed(_) => {
                let error = if let SendNow::Failed(error) = first { Some(error) } else { None };
                self.heads.put(transmit.head);
                self.completed.push_back(Completion::Sent { token, error, waited: false });
                return;
            }
        };
        self.slot(socket, token).unsent = Some(Box::new(Unsent { transmit, done_bytes }));
        self.send_more(token);
    }

    fn send_now(&mut self, socket: Socket, bytes: &[u8], more: bool) -> SendNow {
        socket::send(raw(socket), bytes, more)
    }

    fn send_parts_now(&mut self, socket: Socket, parts: &[IoSlice<'_>]) -> SendNow {
        socket::send_parts(raw(socket), parts)
    }

    fn send_file_now(&mut self, socket: Socket, _token: Token, file: &Self::File, offset: u64, len: usize) -> SendNow {
        socket::send_file(raw(socket), file.as_raw_fd(), offset, len)
    }

    fn await_writable(&mut self, socket: Socket, token: Token) {
        let slot = self.slot(socket, token);
        slot.await_writable = true;
        if !slot.registered {
            return self.register(token);
        }
        // There may be room, of which there was an edge before: the kernel looks again.
        if let Err(error) =
            self.control(libc::EPOLL_CTL_MOD, raw(socket), CONNECTION_EVENTS, pack(KIND_CONNECTION, token))
        {
            self.completed.push_back(Completion::ReceiveStopped { token, error: Some(error) });
        }
    }

    fn stop_awaiting_writable(&mut self, socket: Socket, token: Token) {
        if mem::take(&mut self.slot(socket, token).await_writable) {
            self.completed.push_back(Completion::Writable { token });
        }
    }

    fn has_unread(&self, socket: Socket) -> bool {
        socket::has_unread(raw(socket))
    }

    fn unacknowledged_bytes(&self, socket: Socket) -> usize {
        socket::unacknowledged_bytes(raw(socket))
    }

    fn waits_at_link(&self, socket: Socket) -> bool {
        socket::waits_at_link(raw(socket))
    }

    fn since_arrival(&self, socket: Socket) -> Duration {
        socket::since_arrival(raw(socket))
    }

    fn peer(&self, socket: Socket) -> Option<SocketAddr> {
        socket::peer_address(raw(socket)).ok()
    }

    fn own_address(&self, socket: Socket) -> Option<SocketAddr> {
        socket::local_address(&raw(socket)).ok()
    }

    fn shutdown(&mut self, socket: Socket, token: Token, both: bool) {
        socket::shutdown(raw(socket), both);
        if !both {
            return;
        }
        let slot = self.slot(socket, token);
        if slot.receiving != Receiving::Off {
            slot.receiving = Receiving::Off;
            self.completed.push_back(Completion::EndOfInput { token });
        }
        let slot = self.slot(socket, token);
        let waited = mem::take(&mut slot.await_writable);
        let unsent = slot.unsent.take();
        if waited {
            self.completed.push_back(Completion::Writable { token });
        }
        if unsent.is_some() {
            let error = Some(io::ErrorKind::BrokenPipe.into());
            self.completed.push_back(Completion::Sent { token, error, waited: true });
        }
    }

    fn set_reset_on_close(&mut self, socket: Socket, resets: bool) {
        socket::set_reset_on_close(raw(socket), resets);
    }

    fn close(&mut self, socket: Socket, reset: bool) {
        if reset {
            socket::reset_on_close(raw(socket));
        }
        // Closing the only descriptor takes it out of the epoll set too.
        socket::close(raw(socket));
    }

    fn give_up(&mut self, socket: Socket, token: Token) -> io::Result<OwnedFd> {
        // It may never have been registered: then there is nothing to undo.
        let _ = self.control(libc::EPOLL_CTL_DEL, raw(socket), 0, 0);
        // Who can't get rid of it takes it back by the same token: it's watched anew then.
        *self.slot(socket, token) = Slot::default();
        Ok(socket::into_owned(raw(socket)))
    }

    fn adopt(&mut self, socket: OwnedFd) -> io::Result<Socket> {
        // sendfile(2) has no flag for not waiting; everything else here has.
        socket::set_nonblocking(socket.as_raw_fd(), true)?;
        Ok(Socket(socket.into_raw_fd().cast_unsigned()))
    }

    fn connect(&mut self, to: &Peer) -> io::Result<Socket> {
        Ok(Socket(socket::connect(to)?.into_raw_fd().cast_unsigned()))
    }

    fn connected(&mut self, socket: Socket) -> io::Result<()> {
        socket::take_error(raw(socket))
    }

    fn poll_readable(&mut self, descriptor: i32, token: Token) {
        self.poll(descriptor, token, 0);
    }

    fn poll_shared(&mut self, descriptor: i32, token: Token) {
        self.poll(descriptor, token, libc::EPOLLEXCLUSIVE);
    }

    fn stop_polling(&mut self, descriptor: i32, token: Token) {
        self.polled.retain(|(known, _)| *known != token);
        // It isn't registered if that failed: then there is nothing to undo.
        let _ = self.control(libc::EPOLL_CTL_DEL, descriptor, 0, 0);
    }

    fn free_buffers(&self) -> usize {
        self.free.len()
    }

    fn has_more(&self) -> bool {
        !self.completed.is_empty() || !self.ready.is_empty() || self.events.len() == COMPLETIONS_MAX
    }

    fn wait(&mut self, timeout: Option<Duration>, completions: &mut Vec<Completion>) -> io::Result<()> {
        if self.completed.is_empty() {
            let timeout = if self.ready.is_empty() { timeout } else { Some(Duration::ZERO) };
            self.harvest(timeout)?;
            for _ in 0..self.ready.len().min(COMPLETIONS_MAX) {
                let Some(index) = self.ready.pop_front() else { break };
                self.receive_next_in_line(index);
            }
        }
        let count = self.completed.len().min(COMPLETIONS_MAX);
        completions.extend(self.completed.drain(..count));
        Ok(())
    }
}
