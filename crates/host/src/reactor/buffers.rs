//! Recycled head buffers, the same for every reactor.

/// Head buffers kept for reuse by a worker.
const KEPT_MAX: usize = 256;
/// A buffer that grew past this isn't kept: a rare large head mustn't pin memory.
const KEPT_BYTES_MAX: usize = 16 * 1024;
/// Room for a head and a small body, so that the usual reply never grows its buffer.
const CAPACITY_BYTES: usize = 2048;

/// A free list of head buffers.
#[derive(Debug, Default)]
pub(super) struct HeadBuffers {
    free: Vec<Vec<u8>>,
}

impl HeadBuffers {
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.free.pop().unwrap_or_else(|| Vec::with_capacity(CAPACITY_BYTES))
    }

    pub(super) fn put(&mut self, mut buffer: Vec<u8>) {
        if self.free.len() < KEPT_MAX && (1..=KEPT_BYTES_MAX).contains(&buffer.capacity()) {
            buffer.clear();
            self.free.push(buffer);
        }
    }
}
