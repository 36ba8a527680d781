//! epoll: who is ready, told by a token chosen at registration.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::checked;

/// Which edges or levels to report.
#[derive(Clone, Copy)]
pub(crate) enum Interest {
    /// Whenever there is something to read.
    Readable,
    /// Each time that something new can be read or that room to write appears.
    ReadableWritableEdge,
}

/// An epoll instance and room for one wait's events.
pub(crate) struct Epoll {
    instance: OwnedFd,
    events: Vec<libc::epoll_event>,
    ready: usize,
}

impl Epoll {
    /// Events harvested by one wait at most.
    const EVENTS_MAX: usize = 512;

    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: plain call; the descriptor it returns is owned right after.
        let instance = unsafe { OwnedFd::from_raw_fd(checked(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) };
        Ok(Self { instance, events: vec![libc::epoll_event { events: 0, u64: 0 }; Self::EVENTS_MAX], ready: 0 })
    }

    pub(crate) fn add(&self, source: &impl AsRawFd, token: u64, interest: Interest) -> io::Result<()> {
        let events = match interest {
            Interest::Readable => libc::EPOLLIN,
            Interest::ReadableWritableEdge => libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET,
        };
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: `event` is live for the call, which copies it.
        checked(unsafe {
            libc::epoll_ctl(self.instance.as_raw_fd(), libc::EPOLL_CTL_ADD, source.as_raw_fd(), &mut event)
        })
        .map(drop)
    }

    /// Waits without limit and returns how many events [`Self::token`] can then be asked for.
    pub(crate) fn wait(&mut self) -> io::Result<usize> {
        self.ready = 0;
        // SAFETY: the pointer and count are those of a live, exclusive vector.
        let result = unsafe {
            libc::epoll_wait(self.instance.as_raw_fd(), self.events.as_mut_ptr(), Self::EVENTS_MAX as libc::c_int, -1)
        };
        match checked(result) {
            Ok(count) => {
                self.ready = count as usize;
                Ok(self.ready)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// The token of the `index`-th event of the last wait.
    pub(crate) fn token(&self, index: usize) -> u64 {
        assert!(index < self.ready, "event {index} asked for, {} harvested", self.ready);
        self.events[index].u64
    }

    /// Whether the `index`-th event of the last wait says that there is something to read, or an end; else there is room to write.
    pub(crate) fn is_readable(&self, index: usize) -> bool {
        assert!(index < self.ready, "event {index} asked for, {} harvested", self.ready);
        self.events[index].events & !(libc::EPOLLOUT as u32) != 0
    }
}
