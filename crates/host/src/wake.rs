//! A bell that one thread rings and another one's reactor hears.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};

/// See the module. Ringing twice before it is heard is the same as once.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// A silent bell.
    ///
    /// # Errors
    /// Those of eventfd(2): no descriptors left.
    pub fn new() -> io::Result<Bell> {
        Ok(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the descriptor readable.
    pub fn ring(&self) {
        // It fails only when 2^64 - 2 rings have not been heard: then it is readable anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it silent again.
    pub fn hear(&self) {
        let mut count = [0u8; 8];
        // Silent already: nothing to do.
        let _ = rustix::io::read(&self.0, &mut count);
    }
}

impl AsRawFd for Bell {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
