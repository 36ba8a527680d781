//! Files that lines are added to.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, fcntl_getfl, fcntl_setfl, openat};

/// Opens a file at its end, and makes it if there is none. A named pipe is opened only if somebody reads it: nobody is waited for here, only in writing.
///
/// # Errors
/// It can't be opened for writing; of a pipe that nobody reads, `ENXIO`.
pub fn append_to(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat(CWD, path, flags, Mode::from_raw_mode(0o666))?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file.into())
}
