//! Processors: which ones this process may use, and pinning a thread to one.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The numbers of the processors that this process may run on, in ascending order.
///
/// # Errors
/// Those of sched_getaffinity(2).
pub fn available() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect())
}

/// Pins the calling thread to one processor.
///
/// # Errors
/// Those of sched_setaffinity(2): the processor is gone, or not ours.
pub fn pin(processor: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    Ok(sched_setaffinity(None, &set)?)
}
