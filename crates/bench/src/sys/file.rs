//! What the page cache holds of a file.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Drops the clean pages of one file from the page cache. Pages that are mapped or dirty stay.
pub(crate) fn drop_from_page_cache(file: &File) -> io::Result<()> {
    // SAFETY: plain call on an open descriptor; offset 0 and length 0 mean the whole file.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
