//! One io_uring with one ring of provided buffers: what both the do-nothing server and the generator stand on.
//!
//! Set up with single issuer and deferred task run: completions are made only inside [`Ring::enter`], so a ring stays
//! on the thread that made it. The descriptor of the ring isn't registered: with one thread its look-up takes no
//! reference, and no gain could be measured.

use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use io_uring::types::{BufRingEntry, CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

const BUFFER_GROUP: u16 = 0;
/// How often, and after what pause, a ring is asked for again where memory is short.
const MEMORY_ATTEMPTS_MAX: u32 = 20;
const MEMORY_PAUSE: Duration = Duration::from_millis(50);
/// io_uring.h: wait for readiness before the first attempt, as a reply can't be there yet.
const POLL_FIRST: u16 = 1;
/// Most bytes that one discarding receive can ask for.
pub(crate) const DISCARD_BYTES_MAX: u32 = 8 << 20;

/// Sizes of a ring.
#[derive(Clone, Copy)]
pub(crate) struct RingSize {
    /// Submissions between two enters; a power of two.
    pub(crate) submissions: u32,
    /// Completions the kernel can queue before it falls back to a slower list.
    pub(crate) completions: u32,
    /// Provided buffers; a power of two, at most 32,768.
    pub(crate) buffers: u16,
    /// Bytes in each provided buffer.
    pub(crate) buffer_bytes: u32,
}

/// A provided buffer that the kernel has filled and that has to be given back with [`Ring::recycle`].
pub(crate) struct Filled {
    id: u16,
    bytes: usize,
}

/// One harvested completion.
pub(crate) struct Completion {
    /// What was given at submission.
    pub(crate) token: u64,
    /// Bytes, a descriptor, or `-errno`.
    pub(crate) result: i32,
    /// A multishot operation goes on.
    pub(crate) more: bool,
    /// What a receive brought.
    pub(crate) filled: Option<Filled>,
}

/// Memory from mmap: page-aligned, zeroed, given back when dropped.
struct Mapping {
    start: *mut u8,
    bytes: usize,
}

impl Mapping {
    fn new(bytes: usize, protection: libc::c_int) -> io::Result<Self> {
        // SAFETY: an anonymous mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        if start == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Self { start: start.cast(), bytes })
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped; nothing borrows from it past its owner.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// An io_uring and its buffers.
pub(crate) struct Ring {
    ring: IoUring,
    entries: Mapping,
    buffers: Mapping,
    /// Address range that discarding receives name and the kernel never touches.
    nowhere: Mapping,
    size: RingSize,
    tail: u16,
}

impl Ring {
    /// # Errors
    /// What the kernel says; `PermissionDenied` where io_uring is refused.
    pub(crate) fn new(size: RingSize) -> io::Result<Self> {
        let mut attempts = MEMORY_ATTEMPTS_MAX;
        let ring = loop {
            match build(size) {
                // The kernel asks for a ring's pages all at once and doesn't wait for what the page cache could give back.
                Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && attempts > 0 => {
                    attempts -= 1;
                    std::thread::sleep(MEMORY_PAUSE);
                }
                other => break other?,
            }
        };
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let entries = Mapping::new(usize::from(size.buffers) * std::mem::size_of::<BufRingEntry>(), both)?;
        let buffers = Mapping::new(usize::from(size.buffers) * size.buffer_bytes as usize, both)?;
        let nowhere = Mapping::new(DISCARD_BYTES_MAX as usize, libc::PROT_NONE)?;
        // SAFETY: `entries` is page-aligned, holds `size.buffers` entries and outlives the ring: see `Drop`.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(entries.start as u64, size.buffers, BUFFER_GROUP, 0)?;
        }
        let mut made = Self { ring, entries, buffers, nowhere, size, tail: 0 };
        for id in 0..size.buffers {
            made.recycle(Filled { id, bytes: 0 });
        }
        Ok(made)
    }

    /// Submissions not yet handed over, completions not yet harvested or still to be made: [`Self::enter`] would help.
    pub(crate) fn has_work(&mut self) -> bool {
        let submissions = self.ring.submission();
        let kernel_waits = !submissions.is_empty() || submissions.taskrun() || submissions.cq_overflow();
        drop(submissions);
        kernel_waits || !self.ring.completion().is_empty()
    }

    /// Hands over what was submitted and makes completions; one system call. Waits for one completion when `wait`.
    pub(crate) fn enter(&mut self, wait: bool) -> io::Result<()> {
        match self.ring.submit_and_wait(usize::from(wait)) {
            Ok(_) => Ok(()),
            Err(error) if transient(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// As [`Self::enter`], waiting for one completion for at most `limit`.
    pub(crate) fn enter_for(&mut self, limit: Duration) -> io::Result<()> {
        let time = Timespec::new().sec(limit.as_secs()).nsec(limit.subsec_nanos());
        match self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time)) {
            Ok(_) => Ok(()),
            Err(error) if transient(&error) || error.raw_os_error() == Some(libc::ETIME) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The next completion that is there.
    pub(crate) fn next_completion(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().next()?;
        let flags = entry.flags();
        let filled =
            cqueue::buffer_select(flags).map(|id| Filled { id, bytes: usize::try_from(entry.result()).unwrap_or(0) });
        Some(Completion { token: entry.user_data(), result: entry.result(), more: cqueue::more(flags), filled })
    }

    /// What the kernel put into a buffer.
    pub(crate) fn bytes<'a>(&'a self, filled: &'a Filled) -> &'a [u8] {
        let offset = usize::from(filled.id) * self.size.buffer_bytes as usize;
        let length = filled.bytes.min(self.size.buffer_bytes as usize);
        // SAFETY: ids come from the kernel, which got only ids below `size.buffers`, so the range is inside the
        // mapping; while `Filled` exists the buffer isn't the kernel's to write.
        unsafe { std::slice::from_raw_parts(self.buffers.start.add(offset), length) }
    }

    /// Gives a buffer back to the kernel.
    pub(crate) fn recycle(&mut self, filled: Filled) {
        let slot = usize::from(self.tail & (self.size.buffers - 1));
        let address = self.buffers.start as u64 + u64::from(filled.id) * u64::from(self.size.buffer_bytes);
        self.tail = self.tail.wrapping_add(1);
        let ring = self.entries.start.cast::<BufRingEntry>();
        // SAFETY: `slot` is below the number of entries, and the kernel reads an entry only after the tail that is
        // stored below has passed it. The tail lies inside the first entry and is aligned for u16.
        unsafe {
            let entry = &mut *ring.add(slot);
            entry.set_addr(address);
            entry.set_len(self.size.buffer_bytes);
            entry.set_bid(filled.id);
            AtomicU16::from_ptr(BufRingEntry::tail(ring).cast_mut()).store(self.tail, Ordering::Release);
        }
    }

    /// Accepts until cancelled; each completion's result is a descriptor for [`adopt`].
    pub(crate) fn accept_multishot(&mut self, listener: RawFd, token: u64) {
        self.push(opcode::AcceptMulti::new(Fd(listener)).flags(libc::SOCK_CLOEXEC).build().user_data(token));
    }

    /// Receives into provided buffers until the peer finishes or buffers run out.
    pub(crate) fn receive_multishot(&mut self, socket: RawFd, token: u64) {
        self.push(opcode::RecvMulti::new(Fd(socket), BUFFER_GROUP).build().user_data(token));
    }

    /// Receives once, at most `bytes`, into a provided buffer, when something has arrived.
    pub(crate) fn receive_once(&mut self, socket: RawFd, token: u64, bytes: u32) {
        let entry = opcode::Recv::new(Fd(socket), std::ptr::null_mut(), bytes)
            .ioprio(POLL_FIRST)
            .buf_group(BUFFER_GROUP)
            .build()
            .flags(squeue::Flags::BUFFER_SELECT)
            .user_data(token);
        self.push(entry);
    }

    /// Takes up to `bytes` off the socket without copying them (MSG_TRUNC on TCP), when something has arrived.
    /// `bytes` is cut to [`DISCARD_BYTES_MAX`].
    ///
    /// Not with MSG_WAITALL: the kernel's retry after a part would ask for the whole again, as bytes that aren't copied
    /// don't move its iterator.
    pub(crate) fn discard(&mut self, socket: RawFd, token: u64, bytes: u32) {
        let bytes = bytes.min(DISCARD_BYTES_MAX);
        let entry =
            opcode::Recv::new(Fd(socket), self.nowhere.start, bytes).flags(libc::MSG_TRUNC).build().user_data(token);
        self.push(entry);
    }

    /// Sends all of `bytes`; a completion comes only for a failure.
    pub(crate) fn send(&mut self, socket: RawFd, token: u64, bytes: &'static [u8]) {
        let entry = opcode::Send::new(Fd(socket), bytes.as_ptr(), bytes.len() as u32)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(token);
        self.push(entry);
    }

    /// Closes a descriptor inside the next enter; a completion comes only for a failure.
    pub(crate) fn close(&mut self, socket: OwnedFd, token: u64) {
        let entry =
            opcode::Close::new(Fd(socket.into_raw_fd())).build().flags(squeue::Flags::SKIP_SUCCESS).user_data(token);
        self.push(entry);
    }

    /// Ends the receive that was submitted with `token`, inside the next enter: it completes with ECANCELED.
    ///
    /// A shutdown would do it too, but the kernel hands that to a worker thread, which looks the descriptor up later,
    /// when it may be another socket's.
    pub(crate) fn cancel(&mut self, token: u64, ignored: u64) {
        let entry = opcode::AsyncCancel::new(token).build().flags(squeue::Flags::SKIP_SUCCESS).user_data(ignored);
        self.push(entry);
    }

    fn push(&mut self, entry: squeue::Entry) {
        loop {
            // SAFETY: every entry built above names memory that lives as long as needed: static bytes, the ring's own
            // mappings, or none; descriptors are only numbers, and a stale one fails with EBADF.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            // Full: hand over what is there. An error shows again at the next enter, where it is returned.
            let _ = self.ring.submit();
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Nothing may still be receiving when the mappings go. An error means that nothing was in flight.
        let _ = self.ring.submitter().register_sync_cancel(None, CancelBuilder::any());
        let _ = self.ring.submitter().unregister_buf_ring(BUFFER_GROUP);
    }
}

fn build(size: RingSize) -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .setup_cqsize(size.completions)
        .build(size.submissions)
}

fn transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN))
}

/// Takes ownership of a descriptor that a completion of [`Ring::accept_multishot`] brought.
pub(crate) fn adopt(completion: &Completion) -> Option<OwnedFd> {
    if completion.result < 0 {
        return None;
    }
    // SAFETY: the kernel made this descriptor for us with that completion and nobody else holds it.
    Some(unsafe { OwnedFd::from_raw_fd(completion.result) })
}
