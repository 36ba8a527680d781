//! Sending on io_uring: small replies without a completion of their own, what finds no room when the kernel has some.

use std::io;
use std::mem;

use io_uring::types::Fd;
use io_uring::{opcode, squeue};

use super::{IoUring, Operation, pack, raw};
use crate::reactor::{COMPLETIONS_MAX, Completion, Socket, Token, Transmit};
use crate::socket;

/// Sends up to this size are expected to fit in the socket's buffer, whatever it's tuned to.
const PROMPT_SEND_BYTES_MAX: usize = 4096;

/// What the kernel reads until a send is complete; boxed, so that it stays where it is.
pub(super) struct InFlight {
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

impl IoUring {
    pub(super) fn submit_send(&mut self, socket: Socket, token: Token, transmit: Transmit) {
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

    /// Only sends that fail, that find no room, or that are large complete by themselves.
    pub(super) fn send_completed(&mut self, token: Token, result: i32) {
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
    pub(super) fn decide_sends(&mut self) {
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
}
