//! The kernel facilities that measuring needs and the standard library lacks: sockets without a wrapper's extra
//! calls, epoll, io_uring, sendfile, processors to run on, processor time, cache advice.
//!
//! This is the only folder of the crate with `unsafe`. leat itself keeps `unsafe` in `leat-host`; the bench isn't
//! shipped, and must not share the code that it measures, so it has its own. Everything exported is safe to call.
//! What to do with these calls is decided by the callers.

pub(crate) mod epoll;
pub(crate) mod file;
pub(crate) mod process;
pub(crate) mod ring;
pub(crate) mod socket;
pub(crate) mod tap;

use std::io;

/// Turns a C result into `io::Result`: negative means errno.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Turns a C byte count into `io::Result`: negative means errno.
fn checked_size(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
