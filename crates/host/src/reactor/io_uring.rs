//! The reactor on io_uring: multishot receive, a ring of provided buffers, one submitter, task work deferred until it is asked for.
//!
//! System calls for a small request on a kept connection: its share of one io_uring_enter, which submits the sends of a batch and
//! waits for what comes next. A small send that the kernel takes at once makes no completion: the enter's return says so for all of them.

mod half_closed;
mod provided_buffers;
mod receive;
#[cfg(test)]
mod refused;
mod send;

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring as Ring, cqueue, opcode, squeue};
use leat_logic::admission::LetIn;
use leat_logic::schedule::Gather;

use super::buffers::HeadBuffers;
use super::{
    COMPLETIONS_MAX, Completion, Listener, Peer, RECEIVE_BUFFERS, Reactor, ReceiveBuffer, SendNow, Socket, Token,
    Transmit,
};
use crate::knocking::{self, Knocking};
use crate::socket;
use crate::storage::OpenFile;
use half_closed::{HalfClosed, ROOM_OR_NEVER};
use provided_buffers::ProvidedBuffers;
use send::InFlight;

/// Submissions that fit before they must go to the kernel.
const SUBMISSIONS: u32 = 256;
/// Completions that the kernel keeps for us: several for each submission, as receives repeat.
const COMPLETIONS: u32 = 4096;
/// The group number of the provided buffers.
const BUFFER_GROUP: u16 = 0;
/// How often a reactor that ends tries to hand over what it still has to do.
const LAST_SUBMITS_MAX: usize = 16;
/// And how long it waits to hear of it each time, which doesn't take long.
const LAST_WAIT: Duration = Duration::from_millis(100);
/// How long a send whose completion nobody waits for may be kept back.
const UNHURRIED_MAX: Duration = Duration::from_millis(10);
/// How long a wait for several lasts that nothing else limits.
const GATHER_LIMIT: Duration = Duration::from_secs(1);
/// Threads on which the kernel waits for room in sockets. It does so only for clients that have ended their side, where its polls end at once
/// (`half_closed.rs`); without a limit each that reads nothing has one. More wait for one of these to be free, which comes when a stalled client is cut.
const KERNEL_THREADS_MAX: u32 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Operation {
    /// Nobody waits for the result: close, cancel, shutdown.
    Unwatched,
    Listener,
    Receive,
    Send,
    Writable,
    Readable,
    HalfClosed,
}

impl Operation {
    const ALL: [Operation; 7] = [
        Operation::Unwatched,
        Operation::Listener,
        Operation::Receive,
        Operation::Send,
        Operation::Writable,
        Operation::Readable,
        Operation::HalfClosed,
    ];
}

fn pack(operation: Operation, token: Token) -> u64 {
    (operation as u64) << 56 | u64::from(token.generation) << 32 | u64::from(token.index)
}

fn unpack(data: u64) -> (Operation, Token) {
    let operation = Operation::ALL.get((data >> 56) as usize).copied().unwrap_or(Operation::Unwatched);
    (operation, Token { index: data as u32, generation: (data >> 32) as u16 })
}

#[derive(Default)]
struct Slot {
    socket: RawFd,
    generation: u16,
    /// Receive until told to stop, rather than once.
    repeat: bool,
    receiving: bool,
    starved: bool,
    /// The last receive has left nothing in the socket.
    is_drained: bool,
    /// A pause has been asked for and not been confirmed.
    pausing: bool,
    /// The descriptor has O_NONBLOCK, which sendfile wants and io_uring's own operations don't.
    nonblocking: bool,
    /// Room for it is waited for as for one whose client has ended its side.
    is_half_closed: bool,
    in_flight: Option<Box<InFlight>>,
}

/// See the module.
pub struct IoUring {
    ring: Ring,
    buffers: ProvidedBuffers,
    slots: Vec<Slot>,
    /// Connections whose receive waits for a buffer.
    starved: VecDeque<u32>,
    heads: HeadBuffers,
    #[allow(clippy::vec_box, reason = "the kernel has their address: they must not move")]
    spare: Vec<Box<InFlight>>,
    /// Those that are awaited.
    listeners: Vec<Token>,
    /// Descriptors of listeners that don't block.
    known_listeners: Vec<RawFd>,
    /// With whether others poll it, too.
    polled: Vec<(Token, RawFd, bool)>,
    /// Made when the first client has ended its side and has no room.
    half_closed: Option<HalfClosed>,
    /// Sends that the next enter decides.
    undecided: Vec<Token>,
    /// Somebody waits to hear of one of them.
    hurried: bool,
    /// Sends that are done: handed over before all else, as the next request of a connection may be there already.
    sent: VecDeque<Completion>,
    completed: VecDeque<Completion>,
}

impl Drop for IoUring {
    /// What has been asked for last is still done: sockets that were closed are, though the process lives on. The kernel lets go of listeners and whatever
    /// else is polled here, rather than when it gets round to clearing up: until then a listener takes connections that nobody accepts.
    fn drop(&mut self) {
        let all = opcode::AsyncCancel2::new(CancelBuilder::any())
            .build()
            .user_data(pack(Operation::Unwatched, Token { index: 0, generation: 0 }));
        self.push(&all);
        for _ in 0..LAST_SUBMITS_MAX {
            let _ = self.enter(Some(LAST_WAIT), None);
            self.reap();
            if self.ring.submission().is_empty() {
                return;
            }
        }
    }
}

impl IoUring {
    /// A reactor for one worker; made on the thread that will use it, as only that thread may submit.
    ///
    /// # Errors
    /// io_uring is refused (seccomp, sysctl), lacks something we need (Linux 6.1), or locked memory is used up: use epoll then.
    pub fn new() -> io::Result<IoUring> {
        let mut ring: Ring = Ring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS)
            .build(SUBMISSIONS)?;
        let mut buffers = ProvidedBuffers::new();
        for id in 0..RECEIVE_BUFFERS {
            buffers.provide(id);
        }
        // SAFETY: the ring's memory is page-aligned, large enough, and outlives the io_uring, which is dropped first.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(buffers.ring() as u64, RECEIVE_BUFFERS, BUFFER_GROUP, 0)?;
        }
        buffers.publish();
        // Linux 5.15 has it; that it's refused is no reason to do without the ring.
        let _ = ring.submitter().register_iowq_max_workers(&mut [0, KERNEL_THREADS_MAX]);
        // Only spares a look-up for each call.
        let _ = ring.submitter().register_ring_fd();
        try_out(&mut ring)?;
        Ok(IoUring {
            ring,
            buffers,
            slots: Vec::new(),
            starved: VecDeque::new(),
            heads: HeadBuffers::default(),
            spare: Vec::new(),
            listeners: Vec::new(),
            known_listeners: Vec::new(),
            polled: Vec::new(),
            half_closed: None,
            undecided: Vec::new(),
            hurried: false,
            sent: VecDeque::new(),
            completed: VecDeque::new(),
        })
    }

    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: what entries point to (buffers, messages) is kept in `slots` until the completion.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            // The queue is full. Submitting can fail only while completions overflow; then the next wait makes room.
            if self.ring.submit().is_err() {
                self.reap();
            }
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

    fn set_nonblocking(&mut self, socket: Socket, token: Token, nonblocking: bool) {
        let slot = self.slot(socket, token);
        if slot.nonblocking != nonblocking && socket::set_nonblocking(raw(socket), nonblocking).is_ok() {
            slot.nonblocking = nonblocking;
        }
    }

    fn cancel(&mut self, data: u64) {
        let entry = opcode::AsyncCancel::new(data)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(pack(Operation::Unwatched, Token { index: 0, generation: 0 }));
        self.push(&entry);
    }

    fn submit_poll(&mut self, token: Token, descriptor: RawFd, is_shared: bool) {
        // One that's asked for anew each time is the last of those that share it.
        let events = libc::POLLIN as u32 | if is_shared { libc::EPOLLEXCLUSIVE as u32 } else { 0 };
        let entry = opcode::PollAdd::new(Fd(descriptor), events)
            .multi(!is_shared)
            .build()
            .user_data(pack(Operation::Readable, token));
        self.push(&entry);
    }

    /// There is no room yet for a client that has ended its side.
    fn await_half_closed(&mut self, token: Token) {
        let slot = &mut self.slots[token.index as usize];
        if slot.generation != token.generation {
            return;
        }
        let socket = slot.socket;
        match self.watch_half_closed(socket, token) {
            Ok(()) => self.slots[token.index as usize].is_half_closed = true,
            // No descriptors left: the worker will ask again, which is dear but right.
            Err(_) => self.completed.push_back(Completion::Writable { token }),
        }
    }

    fn watch_half_closed(&mut self, socket: RawFd, token: Token) -> io::Result<()> {
        if self.half_closed.is_none() {
            self.half_closed = Some(HalfClosed::new()?);
            self.poll_half_closed();
        }
        self.half_closed.as_ref().map_or(Ok(()), |set| set.watch(socket, pack(Operation::Writable, token)))
    }

    fn poll_half_closed(&mut self) {
        let Some(set) = &self.half_closed else { return };
        let entry = opcode::PollAdd::new(Fd(set.descriptor()), libc::POLLIN as u32)
            .multi(true)
            .build()
            .user_data(pack(Operation::HalfClosed, Token { index: 0, generation: 0 }));
        self.push(&entry);
    }

    /// Some of those may have room; `more`: the ring tells of the next too.
    fn half_closed_told(&mut self, more: bool) {
        for data in self.half_closed.as_ref().map(HalfClosed::told).unwrap_or_default() {
            self.half_closed_writable(unpack(data).1);
        }
        if !more {
            self.poll_half_closed();
        }
    }

    fn half_closed_writable(&mut self, token: Token) {
        let slot = &mut self.slots[token.index as usize];
        if slot.generation == token.generation && std::mem::take(&mut slot.is_half_closed) {
            self.completed.push_back(Completion::Writable { token });
        }
    }

    /// A listener's poll has ended, by a connection or by being cancelled.
    fn connections_wait(&mut self, listener: Token) {
        if let Some(place) = self.listeners.iter().position(|known| *known == listener) {
            self.listeners.swap_remove(place);
            self.completed.push_back(Completion::ConnectionsWait { listener });
        }
    }

    /// Takes over all that the kernel has completed.
    fn reap(&mut self) {
        for _ in 0..COMPLETIONS {
            let Some(entry) = self.ring.completion().next() else { return };
            let (operation, token) = unpack(entry.user_data());
            let (result, flags) = (entry.result(), entry.flags());
            match operation {
                Operation::Unwatched => {}
                Operation::Listener => self.connections_wait(token),
                Operation::Receive => self.received(token, result, flags),
                Operation::Send => self.send_completed(token, result),
                Operation::Writable if result >= 0 && result & ROOM_OR_NEVER == 0 => self.await_half_closed(token),
                Operation::Writable => self.completed.push_back(Completion::Writable { token }),
                Operation::HalfClosed => self.half_closed_told(cqueue::more(flags)),
                Operation::Readable => {
                    let polled = self.polled.iter().find(|(known, ..)| *known == token).copied();
                    if let (false, Some((_, descriptor, is_shared))) = (cqueue::more(flags), polled) {
                        self.submit_poll(token, descriptor, is_shared);
                    }
                    self.completed.push_back(Completion::Readable { token });
                }
            }
        }
    }

    /// Whether the kernel has work that it does with the next enter: each does a few pieces only.
    fn has_work_pending(&self) -> bool {
        // SAFETY: nothing is submitted through this view, so that it can't disagree with another.
        unsafe { self.ring.submission_shared() }.taskrun()
    }

    fn enter(&mut self, timeout: Option<Duration>, gather: Option<Gather>) -> io::Result<()> {
        let gather = gather.filter(|_| self.ring.params().is_feature_min_timeout());
        let result = match (timeout, gather) {
            (Some(Duration::ZERO), _) => self.ring.submit(),
            (Some(timeout), gather) => {
                let limit = Timespec::from(timeout);
                let mut wait = SubmitArgs::new().timespec(&limit);
                if let Some(gather) = gather {
                    wait = wait.min_wait_usec(gather.time.min(timeout).as_micros() as u32);
                }
                let wanted = gather.map_or(1, |gather| gather.arrivals as usize);
                self.ring.submitter().submit_with_args(wanted, &wait)
            }
            (None, _) => self.ring.submit_and_wait(1),
        };
        match result {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // The time is over, a signal came, or completions must be reaped first: none is a failure.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    fn harvest(
        &mut self,
        timeout: Option<Duration>,
        gather: Option<Gather>,
        completions: &mut Vec<Completion>,
    ) -> io::Result<()> {
        if self.completed.is_empty() && self.sent.is_empty() {
            let timeout = match timeout {
                _ if self.hurried => Some(Duration::ZERO),
                _ if self.undecided.is_empty() => timeout,
                timeout => Some(timeout.map_or(UNHURRIED_MAX, |timeout| timeout.min(UNHURRIED_MAX))),
            };
            self.enter(timeout, gather)?;
            self.reap();
            self.decide_sends();
        }
        let count = self.sent.len().min(COMPLETIONS_MAX);
        completions.extend(self.sent.drain(..count));
        let count = self.completed.len().min(COMPLETIONS_MAX - count);
        completions.extend(self.completed.drain(..count));
        Ok(())
    }
}

/// Some sandboxes have rings made and refuse to have them entered: that must show while epoll can be used instead.
fn try_out(ring: &mut Ring) -> io::Result<()> {
    // SAFETY: what does nothing points to nothing.
    unsafe { ring.submission().push(&opcode::Nop::new().build()) }.map_err(io::Error::other)?;
    while let Err(error) = ring.submit_and_wait(1) {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    match ring.completion().next().map(|entry| entry.result()) {
        Some(result) if result < 0 => Err(io::Error::from_raw_os_error(-result)),
        Some(_) => Ok(()),
        None => Err(io::Error::other("nothing is completed")),
    }
}

fn raw(socket: Socket) -> RawFd {
    socket.0.cast_signed()
}

impl Reactor for IoUring {
    type File = Arc<OpenFile>;

    fn await_connections(&mut self, listener: Listener, token: Token) {
        let descriptor = listener.0.cast_signed();
        if !self.known_listeners.contains(&descriptor) {
            // A failure shows when a connection is accepted.
            let _ = socket::set_nonblocking(descriptor, true);
            self.known_listeners.push(descriptor);
        }
        self.listeners.push(token);
        let entry = opcode::PollAdd::new(Fd(descriptor), libc::POLLIN as u32)
            .build()
            .user_data(pack(Operation::Listener, token));
        self.push(&entry);
    }

    fn stop_awaiting_connections(&mut self, listener: Listener, token: Token) {
        self.known_listeners.retain(|known| *known != listener.0.cast_signed());
        self.listeners.retain(|known| *known != token);
        self.completed.retain(|done| !matches!(done, Completion::ConnectionsWait { listener } if *listener == token));
        self.cancel(pack(Operation::Listener, token));
    }

    fn accept(&mut self, listener: Listener) -> io::Result<Option<Socket>> {
        let accepted = socket::accept(listener.0.cast_signed(), false)?;
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
        self.start_receiving(socket, token, false);
    }

    fn receive(&mut self, socket: Socket, token: Token) {
        self.start_receiving(socket, token, true);
    }

    fn receive_now(&mut self, socket: Socket, _token: Token, bytes: &mut Vec<u8>, max: usize) -> io::Result<usize> {
        socket::receive_into(raw(socket), bytes, max)
    }

    fn pause(&mut self, socket: Socket, token: Token) {
        self.pause_receiving(socket, token);
    }

    fn bytes(&self, buffer: &ReceiveBuffer) -> &[u8] {
        // SAFETY: the kernel gave this buffer to us with so many bytes written, and takes it again only after `release`, which consumes it.
        unsafe { std::slice::from_raw_parts(self.buffers.buffer(buffer.id()), buffer.len()) }
    }

    fn release(&mut self, buffer: ReceiveBuffer) {
        self.provide_again(buffer);
    }

    fn send_buffer(&mut self) -> Vec<u8> {
        self.heads.take()
    }

    fn send(&mut self, socket: Socket, token: Token, transmit: Transmit) {
        self.submit_send(socket, token, transmit);
    }

    fn send_now(&mut self, socket: Socket, bytes: &[u8], more: bool) -> SendNow {
        socket::send(raw(socket), bytes, more)
    }

    fn send_parts_now(&mut self, socket: Socket, parts: &[IoSlice<'_>]) -> SendNow {
        socket::send_parts(raw(socket), parts)
    }

    fn send_file_now(&mut self, socket: Socket, token: Token, file: &Self::File, offset: u64, len: usize) -> SendNow {
        self.set_nonblocking(socket, token, true);
        socket::send_file(raw(socket), file.as_raw_fd(), offset, len)
    }

    fn await_writable(&mut self, socket: Socket, token: Token) {
        self.slot(socket, token);
        let entry = opcode::PollAdd::new(Fd(raw(socket)), libc::POLLOUT as u32)
            .build()
            .user_data(pack(Operation::Writable, token));
        self.push(&entry);
    }

    fn stop_awaiting_writable(&mut self, socket: Socket, token: Token) {
        match &self.half_closed {
            Some(set) if self.slots[token.index as usize].is_half_closed => {
                set.forget(raw(socket));
                self.half_closed_writable(token);
            }
            _ => self.cancel(pack(Operation::Writable, token)),
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
        // Now, not at the next submission: what was sent before has been submitted, as its completion was waited for.
        socket::shutdown(raw(socket), both);
        if both && self.slot(socket, token).starved {
            self.slot(socket, token).repeat = false;
            self.pause(socket, token);
        }
    }

    fn set_reset_on_close(&mut self, socket: Socket, resets: bool) {
        socket::set_reset_on_close(raw(socket), resets);
    }

    fn close(&mut self, socket: Socket, reset: bool) {
        if reset {
            socket::reset_on_close(raw(socket));
        }
        let entry = opcode::Close::new(Fd(raw(socket)))
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(pack(Operation::Unwatched, Token { index: 0, generation: 0 }));
        self.push(&entry);
    }

    fn give_up(&mut self, socket: Socket, _token: Token) -> io::Result<OwnedFd> {
        Ok(socket::into_owned(raw(socket)))
    }

    fn adopt(&mut self, socket: OwnedFd) -> io::Result<Socket> {
        // Operations on a socket with O_NONBLOCK would fail with EAGAIN instead of waiting.
        socket::set_nonblocking(socket.as_raw_fd(), false)?;
        Ok(Socket(socket.into_raw_fd().cast_unsigned()))
    }

    fn connect(&mut self, to: &Peer) -> io::Result<Socket> {
        // Not the ring's own operation: the address would have to stay where it is until that completes, and a poll does as well.
        Ok(Socket(socket::connect(to)?.into_raw_fd().cast_unsigned()))
    }

    fn connected(&mut self, socket: Socket) -> io::Result<()> {
        socket::take_error(raw(socket))?;
        socket::set_nonblocking(raw(socket), false)
    }

    fn poll_readable(&mut self, descriptor: i32, token: Token) {
        self.polled.push((token, descriptor, false));
        self.submit_poll(token, descriptor, false);
    }

    fn poll_shared(&mut self, descriptor: i32, token: Token) {
        self.polled.push((token, descriptor, true));
        self.submit_poll(token, descriptor, true);
    }

    fn stop_polling(&mut self, _descriptor: i32, token: Token) {
        self.polled.retain(|(known, ..)| *known != token);
        self.cancel(pack(Operation::Readable, token));
    }

    fn free_buffers(&self) -> usize {
        usize::from(RECEIVE_BUFFERS - self.buffers.lent)
    }

    fn has_more(&self) -> bool {
        !self.sent.is_empty() || !self.completed.is_empty() || self.has_work_pending()
    }

    fn wait(&mut self, timeout: Option<Duration>, completions: &mut Vec<Completion>) -> io::Result<()> {
        self.harvest(timeout, None, completions)
    }

    fn wait_for_several(
        &mut self,
        gather: Gather,
        timeout: Option<Duration>,
        completions: &mut Vec<Completion>,
    ) -> io::Result<()> {
        // Without a limit the kernel would return after the time to gather, with nothing.
        self.harvest(Some(timeout.unwrap_or(GATHER_LIMIT)), Some(gather), completions)
    }
}
