//! What threads have the disk read, and for whom: by the kernel's own account, in which everything is that had to come from a block device, and what the
//! kernel read ahead with it, and nothing that was in memory.

use super::{Payer, StorageEvent};

/// The unit of the kernel's account, in bytes.
const BLOCK_BYTES: u64 = 512;

/// Bytes that the calling thread has had read from disks so far.
#[must_use]
pub fn disk_bytes() -> u64 {
    bytes_of(libc::RUSAGE_THREAD)
}

/// The same of all threads of this process.
#[must_use]
pub fn disk_bytes_of_all() -> u64 {
    bytes_of(libc::RUSAGE_SELF)
}

fn bytes_of(whose: libc::c_int) -> u64 {
    // SAFETY: an all-zero rusage is valid (it holds integers only).
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live rusage.
    let result = unsafe { libc::getrusage(whose, &raw mut usage) };
    if result == 0 { u64::try_from(usage.ru_inblock).unwrap_or(0) * BLOCK_BYTES } else { 0 }
}

/// What the calling thread has the disk read from here on, where somebody pays for it.
pub(super) struct Reading(Option<(Payer, u64)>);

impl Reading {
    pub(super) fn begin(payer: Option<Payer>) -> Reading {
        Reading(payer.map(|payer| (payer, disk_bytes())))
    }

    /// To be told before the answer that it was read for.
    pub(super) fn end<F>(self) -> Option<StorageEvent<F>> {
        let (payer, before) = self.0?;
        let bytes = disk_bytes().saturating_sub(before);
        (bytes > 0).then_some(StorageEvent::FromDisk { payer, bytes })
    }
}
