//! How urgent the calling thread is, to the processor and to the disk.

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
