//! Receiving on io_uring: until told to stop or once, with a buffer that the kernel picks; what ends it, and who waits for a buffer.

use std::io;
use std::mem;

use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue};

use super::{BUFFER_GROUP, IoUring, Operation, pack};
use crate::reactor::{Completion, RECEIVE_BUFFER_BYTES, ReceiveBuffer, Socket, Token};

/// IORING_RECVSEND_POLL_FIRST: look whether something is there before trying to receive it (Linux 5.19).
const POLL_FIRST: u16 = 1;

impl IoUring {
    fn submit_receive(&mut self, token: Token) {
        let slot = &mut self.slots[token.index as usize];
        slot.receiving = true;
        slot.starved = false;
        let socket = slot.socket;
        let how = if mem::take(&mut slot.is_drained) { POLL_FIRST } else { 0 };
        let data = pack(Operation::Receive, token);
        let entry = if slot.repeat {
            opcode::RecvMulti::new(Fd(socket), BUFFER_GROUP).build().user_data(data)
        } else {
            opcode::Recv::new(Fd(socket), std::ptr::null_mut(), RECEIVE_BUFFER_BYTES as u32)
                .buf_group(BUFFER_GROUP)
                .ioprio(how)
                .build()
                .flags(squeue::Flags::BUFFER_SELECT)
                .user_data(data)
        };
        if self.slots[token.index as usize].nonblocking {
            self.set_nonblocking(Socket(socket.cast_unsigned()), token, false);
        }
        self.push(&entry);
    }

    pub(super) fn start_receiving(&mut self, socket: Socket, token: Token, repeat: bool) {
        let slot = self.slot(socket, token);
        slot.repeat = repeat;
        if !slot.receiving {
            self.submit_receive(token);
        }
    }

    pub(super) fn received(&mut self, token: Token, result: i32, flags: u32) {
        let more = cqueue::more(flags);
        let buffer = cqueue::buffer_select(flags);
        self.buffers.lent += u16::from(buffer.is_some());
        let current = self.slots.get(token.index as usize).is_some_and(|slot| slot.generation == token.generation);
        if !current {
            if let Some(id) = buffer {
                self.provide_again(ReceiveBuffer::new(id, 0));
            }
            return;
        }
        let slot = &mut self.slots[token.index as usize];
        if !more {
            slot.receiving = false;
        }
        slot.is_drained = (1..RECEIVE_BUFFER_BYTES as i32).contains(&result) && !cqueue::sock_nonempty(flags);
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
                    self.provide_again(ReceiveBuffer::new(id, 0));
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

    pub(super) fn pause_receiving(&mut self, socket: Socket, token: Token) {
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

    /// Gives a buffer back to the kernel, and has a receive go on that waits for one.
    pub(super) fn provide_again(&mut self, buffer: ReceiveBuffer) {
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
}
