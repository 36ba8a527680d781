//! The reactor on io_uring: multishot receive, a ring of provided buffers, one submitter, task work deferred until it is asked for.
//!
//! System calls for a small request on a kept connection: its share of one io_uring_enter, which submits the sends of a batch and
//! waits for what comes next. A small send that the kernel takes at once makes no completion: the enter's return says so for all of them.

use std::alloc::{self, Layout};
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use io_uring::types::{BufRingEntry, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring as Ring, cqueue, opcode, squeue};
use leat_logic::schedule::Gather;

use super::buffers::HeadBuffers;
use super::{
    COMPLETIONS_MAX, Completion, Listener, Peer, RECEIVE_BUFFER_BYTES, RECEIVE_BUFFERS, Reactor, ReceiveBuffer,
    SendNow, Socket, Token, Transmit,
};
use crate::socket;
use crate::storage::OpenFile;

/// Submissions that fit before they must go to the kernel.
const SUBMISSIONS: u32 = 256;
/// Completions that the kernel keeps for us: several for each submission, as receives repeat.
const COMPLETIONS: u32 = 4096;
/// From one receive buffer to the next: not a power of two, as the first lines of all would then fall into the same few places of the processor's
/// caches. They are used in turn, and hardly more of each.
const BUFFER_STRIDE: usize = RECEIVE_BUFFER_BYTES + 64;
/// The group number of the provided buffers.
const BUFFER_GROUP: u16 = 0;
/// Sends up to this size are expected to fit in the socket's buffer, whatever it's tuned to.
const PROMPT_SEND_BYTES_MAX: usize = 4096;
/// How long a send whose completion nobody waits for may be kept back.
const UNHURRIED_MAX: Duration = Duration::from_millis(10);
/// How long a wait for several lasts that nothing else limits.
const GATHER_LIMIT: Duration = Duration::from_secs(1);

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
}

impl Operation {
    const ALL: [Operation; 6] = [
        Operation::Unwatched,
        Operation::Listener,
        Operation::Receive,
        Operation::Send,
        Operation::Writable,
        Operation::Readable,
    ];
}

fn pack(operation: Operation, token: Token) -> u64 {
    (operation as u64) << 56 | u64::from(token.generation) << 32 | u64::from(token.index)
}

fn unpack(data: u64) -> (Operation, Token) {
    let operation = Operation::ALL.get((data >> 56) as usize).copied().unwrap_or(Operation::Unwatched);
    (operation, Token { index: data as u32, generation: (data >> 32) as u16 })
}

/// The receive buffers and the ring through which the kernel takes them, in one allocation that never moves.
#[derive(Debug)]
struct ProvidedBuffers {
    memory: NonNull<u8>,
    tail: u16,
    /// Buffers that the kernel has filled, and that haven't been given back.
    lent: u16,
}

impl ProvidedBuffers {
    const RING_BYTES: usize = RECEIVE_BUFFERS as usize * mem::size_of::<BufRingEntry>();

    fn layout() -> Layout {
        // The kernel wants the ring on a page of its own.
        Layout::from_size_align(Self::RING_BYTES + RECEIVE_BUFFERS as usize * BUFFER_STRIDE, 4096)
            .expect("a constant size and a power of two")
    }

    fn new() -> ProvidedBuffers {
        // SAFETY: the layout isn't empty.
        let memory = unsafe { alloc::alloc_zeroed(Self::layout()) };
        let Some(memory) = NonNull::new(memory) else { alloc::handle_alloc_error(Self::layout()) };
        ProvidedBuffers { memory, tail: 0, lent: RECEIVE_BUFFERS }
    }

    fn ring(&self) -> *mut BufRingEntry {
        self.memory.as_ptr().cast()
    }

    fn buffer(&self, id: u16) -> *mut u8 {
        assert!(id < RECEIVE_BUFFERS, "receive buffer {id} doesn't exist");
        // SAFETY: `id` is below the number of buffers that the allocation has behind the ring.
        unsafe { self.memory.as_ptr().add(Self::RING_BYTES + id as usize * BUFFER_STRIDE) }
    }

    /// Gives a buffer to the kernel, which sees it at the next [`ProvidedBuffers::publish`].
    fn provide(&mut self, id: u16) {
        let address = self.buffer(id) as u64;
        let position = (self.tail & (RECEIVE_BUFFERS - 1)) as usize;
        // SAFETY: `position` is within the ring. Only entries between head and tail are read by the kernel; this one is beyond the tail.
        let entry = unsafe { &mut *self.ring().add(position) };
        entry.set_addr(address);
        entry.set_len(RECEIVE_BUFFER_BYTES as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
        self.lent -= 1;
    }

    fn publish(&self) {
        // SAFETY: the ring lives as long as `self`; the kernel reads its tail as an atomic number.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.ring()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for ProvidedBuffers {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout. The ring is dropped before (field order), so the kernel has let go.
        unsafe { alloc::dealloc(self.memory.as_ptr(), Self::layout()) };
    }
}

/// What the kernel reads until a send is complete; boxed, so that it stays where it is.
struct InFlight {
    transmit: Transmit,
    parts: [libc::iovec; 2],
    message: libc::msghdr,
    /// Bytes that went out before the kernel had to wait.
    done_bytes: usize,
    /// The kernel keeps it until there is room, and completes it then; otherwise it's done when the enter that submits it returns.
    waits: bool,
}

impl InFlight {
    /// What is still to be sent, as sendmsg(2) wants it.
    fn message(&mut self) -> *const libc::msghdr {
        let Transmit { head, body, .. } = &self.transmit;
        let head_done = self.done_bytes.min(head.len());
        let body_done = self.done_bytes - head_done;
        self.parts = [socket::io_slice(&head[head_done..]), socket::io_slice(&body[body_done..])];
        self.message.msg_iov = self.parts.as_mut_ptr();
        self.message.msg_iovlen = self.parts.len();
        &raw const self.message
    }
}

#[derive(Default)]
struct Slot {
    socket: RawFd,
    generation: u16,
    /// Receive until told to stop, rather than once.
    repeat: bool,
    receiving: bool,
    starved: bool,
    /// A pause has been asked for and not been confirmed.
    pausing: bool,
    /// The descriptor has O_NONBLOCK, which sendfile wants and io_uring's own operations don't.
    nonblocking: bool,
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
    /// Sends that the next enter decides.
    undecided: Vec<Token>,
    /// Somebody waits to hear of one of them.
    hurried: bool,
    /// Sends that are done: handed over before all else, as the next request of a connection may be there already.
    sent: VecDeque<Completion>,
    completed: VecDeque<Completion>,
}

impl IoUring {
    /// A reactor for one worker; made on the thread that will use it, as only that thread may submit.
    ///
    /// # Errors
    /// io_uring is refused (seccomp, sysctl), lacks something we need (Linux 6.1), or locked memory is used up: use epoll then.
    pub fn new() -> io::Result<IoUring> {
        let ring: Ring = Ring::builder()
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
        // Only spares a look-up for each call.
        let _ = ring.submitter().register_ring_fd();
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

    fn submit_receive(&mut self, token: Token) {
        let slot = &mut self.slots[token.index as usize];
        slot.receiving = true;
        slot.starved = false;
        let socket = slot.socket;
        let data = pack(Operation::Receive, token);
        let entry = if slot.repeat {
            opcode::RecvMulti::new(Fd(socket), BUFFER_GROUP).build().user_data(data)
        } else {
            opcode::Recv::new(Fd(socket), std::ptr::null_mut(), RECEIVE_BUFFER_BYTES as u32)
                .buf_group(BUFFER_GROUP)
                .build()
                .flags(squeue::Flags::BUFFER_SELECT)
                .user_data(data)
        };
        if self.slots[token.index as usize].nonblocking {
            self.set_nonblocking(Socket(socket.cast_unsigned()), token, false);
        }
        self.push(&entry);
    }

    fn start_receiving(&mut self, socket: Socket, token: Token, repeat: bool) {
        let slot = self.slot(socket, token);
        slot.repeat = repeat;
        if !slot.receiving {
            self.submit_receive(token);
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

    /// A listener's poll has ended, by a connection or by being cancelled.
    fn connections_wait(&mut self, listener: Token) {
        if let Some(place) = self.listeners.iter().position(|known| *known == listener) {
            self.listeners.swap_remove(place);
            self.completed.push_back(Completion::ConnectionsWait { listener });
        }
    }

    fn received(&mut self, token: Token, result: i32, flags: u32) {
        let more = cqueue::more(flags);
        let buffer = cqueue::buffer_select(flags);
        self.buffers.lent += u16::from(buffer.is_some());
        let current = self.slots.get(token.index as usize).is_some_and(|slot| slot.generation == token.generation);
        if !current {
            if let Some(id) = buffer {
                self.release(ReceiveBuffer::new(id, 0));
            }
            return;
        }
        let slot = &mut self.slots[token.index as usize];
        if !more {
            slot.receiving = false;
        }
        match (result, buffer) {
            (1.., Some(id)) => {
                let repeat = slot.repeat;
                let buffer = ReceiveBuffer::new(id, result.unsigned_abs());
                self.completed.push_back(Completion::Received { token, buffer });
                if !more && repeat {
                    self.submit_receive(token);
                } else if !more {
                    self.confirm_pause(token);
                }
            }
            (0.., buffer) => {
                if let Some(id) = buffer {
                    self.release(ReceiveBuffer::new(id, 0));
                }
                self.completed.push_back(Completion::EndOfInput { token });
            }
            (error, _) => match -error {
                libc::ENOBUFS | libc::EAGAIN | libc::EINTR | libc::ECANCELED if slot.pausing => {
                    self.confirm_pause(token);
                }
                libc::ENOBUFS => {
                    slot.starved = true;
                    self.starved.push_back(token.index);
                }
                libc::EAGAIN | libc::EINTR => self.submit_receive(token),
                libc::ECANCELED => self.completed.push_back(Completion::ReceiveStopped { token, error: None }),
                errno => {
                    let error = Some(io::Error::from_raw_os_error(errno));
                    self.completed.push_back(Completion::ReceiveStopped { token, error });
                }
            },
        }
    }

    /// Receiving has ended, by the cancellation or by itself just before it: either way whoever asked for a pause is told, once.
    fn confirm_pause(&mut self, token: Token) {
        if mem::take(&mut self.slots[token.index as usize].pausing) {
            self.completed.push_back(Completion::ReceiveStopped { token, error: None });
        }
    }

    /// Only sends that fail, that find no room, or that are large complete by themselves.
    fn send_completed(&mut self, token: Token, result: i32) {
        let Some(slot) = self.slots.get_mut(token.index as usize) else { return };
        let Some(in_flight) = slot.in_flight.as_mut() else { return };
        let whole = in_flight.transmit.len();
        in_flight.done_bytes += usize::try_from(result).unwrap_or(0);
        let error = match result {
            0.. if in_flight.done_bytes == whole => None,
            // The kernel goes on until all is sent (MSG_WAITALL): fewer bytes mean that the connection broke in the middle.
            0.. if in_flight.waits => Some(io::ErrorKind::BrokenPipe.into()),
            0.. => return self.send_rest(token),
            _ if !in_flight.waits && -result == libc::EAGAIN => return self.send_rest(token),
            _ => Some(io::Error::from_raw_os_error(-result)),
        };
        let waited = in_flight.waits;
        if let Some(in_flight) = slot.in_flight.take() {
            self.keep_spare(in_flight);
        }
        self.completed.push_back(Completion::Sent { token, error, waited });
    }

    fn keep_spare(&mut self, mut in_flight: Box<InFlight>) {
        self.heads.put(mem::take(&mut in_flight.transmit.head));
        in_flight.transmit.body = bytes::Bytes::new();
        if self.spare.len() < COMPLETIONS_MAX {
            self.spare.push(in_flight);
        }
    }

    /// There was no room for all of it: the kernel sends the rest when there is.
    fn send_rest(&mut self, token: Token) {
        let slot = &mut self.slots[token.index as usize];
        let Some(in_flight) = slot.in_flight.as_mut() else { return };
        in_flight.waits = true;
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let message = in_flight.message();
        let entry = opcode::SendMsg::new(Fd(slot.socket), message).flags(flags.cast_unsigned()).build();
        self.push(&entry.user_data(pack(Operation::Send, token)));
    }

    /// After an enter whose completions have all been reaped: the sends that it submitted and that didn't complete have been taken whole,
    /// as they may neither wait (MSG_DONTWAIT) nor stop halfway without a completion (MSG_WAITALL).
    fn decide_sends(&mut self) {
        let submissions = self.ring.submission();
        if !submissions.is_empty() || submissions.cq_overflow() {
            drop(submissions);
            self.hurried = true;
            return;
        }
        drop(submissions);
        self.hurried = false;
        let mut undecided = mem::take(&mut self.undecided);
        for token in undecided.drain(..) {
            let slot = &mut self.slots[token.index as usize];
            if slot.generation == token.generation
                && let Some(in_flight) = slot.in_flight.take_if(|in_flight| !in_flight.waits)
            {
                self.keep_spare(in_flight);
                self.sent.push_back(Completion::Sent { token, error: None, waited: false });
            }
        }
        self.undecided = undecided;
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
                Operation::Writable => self.completed.push_back(Completion::Writable { token }),
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
        let slot = self.slot(socket, token);
        if mem::take(&mut slot.starved) {
            slot.repeat = false;
            self.starved.retain(|&index| index != token.index);
            self.completed.push_back(Completion::ReceiveStopped { token, error: None });
        } else if slot.receiving {
            slot.repeat = false;
            slot.pausing = true;
            self.cancel(pack(Operation::Receive, token));
        }
    }

    fn bytes(&self, buffer: &ReceiveBuffer) -> &[u8] {
        // SAFETY: the kernel gave this buffer to us with so many bytes written, and takes it again only after `release`, which consumes it.
        unsafe { std::slice::from_raw_parts(self.buffers.buffer(buffer.id()), buffer.len()) }
    }

    fn release(&mut self, buffer: ReceiveBuffer) {
        self.buffers.provide(buffer.id());
        self.buffers.publish();
        while let Some(index) = self.starved.pop_front() {
            let slot = &self.slots[index as usize];
            if slot.starved {
                let token = Token { index, generation: slot.generation };
                self.submit_receive(token);
                break;
            }
        }
    }

    fn send_buffer(&mut self) -> Vec<u8> {
        self.heads.take()
    }

    fn send(&mut self, socket: Socket, token: Token, transmit: Transmit) {
        if self.slot(socket, token).nonblocking {
            self.set_nonblocking(socket, token, false);
        }
        let mut in_flight = self.spare.pop().unwrap_or_else(|| {
            // SAFETY: all-zero bytes are a valid msghdr and valid iovecs.
            let (parts, message) = unsafe { (mem::zeroed(), mem::zeroed()) };
            Box::new(InFlight { transmit: Transmit::default(), parts, message, done_bytes: 0, waits: false })
        });
        let is_prompt = transmit.len() <= PROMPT_SEND_BYTES_MAX;
        let is_hurried = !transmit.unhurried;
        in_flight.transmit = transmit;
        in_flight.done_bytes = 0;
        in_flight.waits = !is_prompt;
        let mut flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let mut entry_flags = squeue::Flags::empty();
        if is_prompt {
            flags |= libc::MSG_DONTWAIT;
            entry_flags |= squeue::Flags::SKIP_SUCCESS;
            self.undecided.push(token);
            self.hurried |= is_hurried;
        }
        let entry = match in_flight.transmit.one_piece() {
            Some(bytes) => opcode::Send::new(Fd(raw(socket)), bytes.as_ptr(), bytes.len() as u32).flags(flags).build(),
            None => opcode::SendMsg::new(Fd(raw(socket)), in_flight.message()).flags(flags.cast_unsigned()).build(),
        };
        self.slot(socket, token).in_flight = Some(in_flight);
        self.push(&entry.flags(entry_flags).user_data(pack(Operation::Send, token)));
    }

    fn send_now(&mut self, socket: Socket, bytes: &[u8], more: bool) -> SendNow {
        socket::send(raw(socket), bytes, more)
    }

    fn send_file_now(&mut self, socket: Socket, token: Token, file: &Self::File, offset: u64, len: usize) -> SendNow {
        self.set_nonblocking(socket, token, true);
        socket::send_file(raw(socket), file.as_raw_fd(), offset, len)
    }

    fn await_writable(&mut self, socket: Socket, token: Token) {
        let entry = opcode::PollAdd::new(Fd(raw(socket)), libc::POLLOUT as u32)
            .build()
            .user_data(pack(Operation::Writable, token));
        self.push(&entry);
    }

    fn stop_awaiting_writable(&mut self, _socket: Socket, token: Token) {
        self.cancel(pack(Operation::Writable, token));
    }

    fn unacknowledged_bytes(&self, socket: Socket) -> usize {
        socket::unacknowledged_bytes(raw(socket))
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

    fn give_up(&mut self, socket: Socket) -> io::Result<OwnedFd> {
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
