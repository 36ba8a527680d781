//! The memory that the kernel receives into, and how it's lent: decides nothing, counts what is out.

use std::alloc::{self, Layout};
use std::mem;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

use crate::reactor::{RECEIVE_BUFFER_BYTES, RECEIVE_BUFFERS};

/// From one receive buffer to the next: not a power of two, as the first lines of all would then fall into the same few places of the processor's
/// caches. They are used in turn, and hardly more of each.
const BUFFER_STRIDE: usize = RECEIVE_BUFFER_BYTES + 64;

/// The receive buffers and the ring through which the kernel takes them, in one allocation that never moves.
#[derive(Debug)]
pub(super) struct ProvidedBuffers {
    memory: NonNull<u8>,
    tail: u16,
    /// Buffers that the kernel has filled, and that haven't been given back.
    pub(super) lent: u16,
}

impl ProvidedBuffers {
    const RING_BYTES: usize = RECEIVE_BUFFERS as usize * mem::size_of::<BufRingEntry>();

    fn layout() -> Layout {
        // The kernel wants the ring on a page of its own.
        Layout::from_size_align(Self::RING_BYTES + RECEIVE_BUFFERS as usize * BUFFER_STRIDE, 4096)
            .expect("a constant size and a power of two")
    }

    pub(super) fn new() -> ProvidedBuffers {
        // SAFETY: the layout isn't empty.
        let memory = unsafe { alloc::alloc_zeroed(Self::layout()) };
        let Some(memory) = NonNull::new(memory) else { alloc::handle_alloc_error(Self::layout()) };
        ProvidedBuffers { memory, tail: 0, lent: RECEIVE_BUFFERS }
    }

    pub(super) fn ring(&self) -> *mut BufRingEntry {
        self.memory.as_ptr().cast()
    }

    pub(super) fn buffer(&self, id: u16) -> *mut u8 {
        assert!(id < RECEIVE_BUFFERS, "receive buffer {id} doesn't exist");
        // SAFETY: `id` is below the number of buffers that the allocation has behind the ring.
        unsafe { self.memory.as_ptr().add(Self::RING_BYTES + id as usize * BUFFER_STRIDE) }
    }

    /// Gives a buffer to the kernel, which sees it at the next [`ProvidedBuffers::publish`].
    pub(super) fn provide(&mut self, id: u16) {
        let address = self.buffer(id) as u64;
        let position = (self.tail & (RECEIVE_BUFFERS - 1)) as usize;
        // SAFETY: `position` is within the ring. Only entries between head and tail are read by the kernel; this one is beyond the tail.
        let entry = unsafe { &mut *self.ring().add(position) };
        entry.set_addr(address);
        entry.set_len(RECEIVE_BUFFER_BYTES as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
        self.lent -= 1;
    }

    pub(super) fn publish(&self) {
        // SAFETY: the ring lives as long as `self`; the kernel reads its tail as an atomic number.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.ring()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for ProvidedBuffers {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout. The ring is dropped before (field order), so the kernel has let go.
        unsafe { alloc::dealloc(self.memory.as_ptr(), Self::layout()) };
    }
}
