//! Waiting for room in the socket of a client that has ended its side. A poll of the ring's completes at once then, whatever it was to wait for, as the
//! kernel adds POLLRDHUP to each (`IO_POLL_UNMASK` in `io_uring/poll.c`); a worker would ask again and again. epoll tells only what it's asked for,
//! so these few wait in an epoll set, and the ring polls that.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::reactor::COMPLETIONS_MAX;

/// What of a poll's result says that there is room, or will never be.
pub(super) const ROOM_OR_NEVER: i32 = (libc::POLLOUT | libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) as i32;

/// The set.
pub(super) struct HalfClosed(OwnedFd);

impl HalfClosed {
    /// # Errors
    /// Those of epoll_create1(2).
    pub(super) fn new() -> io::Result<HalfClosed> {
        // SAFETY: it takes no pointer.
        let raw = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it has just been made, and nobody else has it.
        Ok(HalfClosed(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    /// Readable when there is something to be told.
    pub(super) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Has `data` be told once, when `socket` has room.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub(super) fn watch(&self, socket: RawFd, data: u64) -> io::Result<()> {
        // One that has been told of stays in the set until it's closed.
        match self.control(libc::EPOLL_CTL_ADD, socket, data) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => self.control(libc::EPOLL_CTL_MOD, socket, data),
            result => result,
        }
    }

    /// Nothing is told of it any more.
    pub(super) fn forget(&self, socket: RawFd) {
        // It can fail only where it isn't in the set.
        let _ = self.control(libc::EPOLL_CTL_DEL, socket, 0);
    }

    fn control(&self, operation: i32, socket: RawFd, data: u64) -> io::Result<()> {
        let events = (libc::EPOLLOUT | libc::EPOLLONESHOT).cast_unsigned();
        let mut event = libc::epoll_event { events, u64: data };
        // SAFETY: the event outlives the call, which copies it.
        let result = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, socket, &raw mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// What there is to be told; each is told once.
    pub(super) fn told(&self) -> Vec<u64> {
        let mut all = Vec::new();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; COMPLETIONS_MAX];
        loop {
            // SAFETY: the kernel writes no more events than there is room for.
            let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), COMPLETIONS_MAX as i32, 0) };
            let Ok(count) = usize::try_from(count) else { return all };
            all.extend(events[..count].iter().map(|event| event.u64));
            if count < COMPLETIONS_MAX {
                return all;
            }
        }
    }
}
