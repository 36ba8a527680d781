//! Whether a part of a file is in memory, and bringing it there.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};

use super::file::OpenFile;
use super::limits;

/// Whether sending these bytes won't wait for the disk, as far as can be told without waiting.
///
/// `cachestat` (Linux 6.5) says whether every page is there, but counts those that are still being read. So a byte is read here and there
/// with "don't wait" as well: a disk reads in order, more or less. Without `cachestat`, that alone has to do.
pub(super) fn is_resident(file: &OpenFile, offset: u64, len_bytes: u64) -> bool {
    let end = offset.saturating_add(len_bytes).min(file.version().len_bytes);
    if offset >= end {
        return true;
    }
    let page_bytes = rustix::param::page_size() as u64;
    let pages = end.div_ceil(page_bytes) - offset / page_bytes;
    let stride = match cached_pages(file, offset, end - offset) {
        Some(cached) if cached < pages => return false,
        Some(_) => limits::RESIDENCY_PROBE_STRIDE_BYTES,
        None => limits::RESIDENCY_PROBE_STRIDE_ALONE_BYTES,
    };
    // From the end: of what is read in order, the last byte comes last.
    let mut probe = end - 1;
    loop {
        if !is_byte_resident(file, probe) {
            return false;
        }
        match probe.checked_sub(stride) {
            Some(before) if before >= offset => probe = before,
            _ => return true,
        }
    }
}

/// Reads these bytes, so that they're in memory; waits for the disk.
pub(super) fn bring(file: &OpenFile, offset: u64, len_bytes: u64) -> Result<(), Errno> {
    let end = offset.saturating_add(len_bytes).min(file.version().len_bytes);
    if let Some(len) = std::num::NonZeroU64::new(end.saturating_sub(offset)) {
        // All of it at once, so that the disk sees one large read; then wait for each part.
        let _ = rustix::fs::fadvise(file, offset, Some(len), Advice::WillNeed);
    }
    let mut scratch = vec![0; limits::RESIDENCY_READ_BYTES];
    let mut at = offset;
    while at < end {
        let len = scratch.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        match rustix::io::pread(file, &mut scratch[..len], at) {
            // It has shrunk: whoever sends it will see that.
            Ok(0) => return Ok(()),
            Ok(read) => at += read as u64,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Reads up to `len` bytes without waiting, fewer only at the end: `EAGAIN` when not all of them are in memory.
pub(super) fn read_cached(file: impl AsFd, len: usize, offset: u64) -> Result<Vec<u8>, Errno> {
    let mut content = Vec::with_capacity(len);
    while content.len() < len {
        match read_now(file.as_fd(), &mut content, len, offset) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Err(Errno::AGAIN),
            Err(errno) => return Err(errno),
        }
    }
    Ok(content)
}

/// Adds to what has been read from `offset` on what follows it, up to `len` bytes in all. To memory that isn't set to zero before: that was 2 % of what a
/// file of 8 KB takes that isn't kept.
fn read_now(file: BorrowedFd<'_>, content: &mut Vec<u8>, len: usize, offset: u64) -> Result<usize, Errno> {
    let before = content.len();
    let at = i64::try_from(offset + before as u64).map_err(|_| Errno::INVAL)?;
    let room = content.spare_capacity_mut();
    let piece = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len().min(len - before) };
    // SAFETY: the one piece is room of this vector's, which is alive, and the descriptor is open as long as it's borrowed.
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &raw const piece, 1, at, libc::RWF_NOWAIT) };
    let Ok(read) = usize::try_from(read) else {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    };
    // SAFETY: the kernel has written that many bytes into the room.
    unsafe { content.set_len(before + read) };
    Ok(read)
}

/// Reads up to `into.len()` bytes, waiting for the disk; fewer only at the end.
pub(super) fn read_waiting(file: impl AsFd, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < into.len() {
        match rustix::io::pread(&file, &mut into[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

fn is_byte_resident(file: &OpenFile, offset: u64) -> bool {
    let mut byte = [0];
    let piece = &mut [IoSliceMut::new(&mut byte)];
    rustix::io::retry_on_intr(|| rustix::io::preadv2(file, piece, offset, ReadWriteFlags::NOWAIT)).is_ok()
}

/// How many of the pages with these bytes are in the page cache; none where the kernel can't tell.
fn cached_pages(file: &OpenFile, offset: u64, len_bytes: u64) -> Option<u64> {
    #[repr(C)]
    struct Range {
        offset: u64,
        len_bytes: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Statistics {
        cached: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    const SYS_CACHESTAT: libc::c_long = 451;
    let range = Range { offset, len_bytes };
    let mut statistics = Statistics::default();
    // SAFETY: both structs have the kernel's layout (struct cachestat_range, struct cachestat), are alive, and only the second is written to;
    // the descriptor is open as long as `file` is borrowed.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut statistics, 0) };
    (result == 0).then_some(statistics.cached)
}
