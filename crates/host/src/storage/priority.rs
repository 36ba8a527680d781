//! How urgent the calling thread is, to the processor and to the disk.

/// How much nicer than its process a thread is that must not be in the workers' way.
const NICER_THAN_WORKERS: i32 = 5;

/// Keeps the calling thread from taking the processor away from a worker each time that a piece of a file has arrived: it waits until the worker
/// sleeps, or for its smaller share.
pub(super) fn yield_to_workers() {
    // SAFETY: an all-zero sched_param is valid (it holds integers only).
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: 0 is the calling thread; the pointer is to a live sched_param.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
    if let Ok(nice) = rustix::process::getpriority_process(None) {
        let _ = rustix::process::setpriority_process(None, nice + NICER_THAN_WORKERS);
    }
}

/// Makes the calling thread run, and its reads be served, only when nothing else wants to; as far as the system allows it.
pub(super) fn yield_to_everything() {
    const IOPRIO_WHO_PROCESS: libc::c_int = 1;
    const IOPRIO_CLASS_IDLE: libc::c_int = 3 << 13;
    // SAFETY: an all-zero sched_param is valid (it holds integers only).
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: 0 is the calling thread; the pointer is to a live sched_param.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) };
    // SAFETY: takes three integers; 0 is the calling thread.
    let _ = unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_CLASS_IDLE) };
}
