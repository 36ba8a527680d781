//! Processors, processor time, limits and signals of this process and of others.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use super::checked;

/// Keeps the calling thread, and what it spawns, on one processor.
pub(crate) fn pin_to_core(core: usize) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is the empty set, `core` is within it (CPU_SET ignores what isn't), and the size is
    // that of the set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        checked(libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &set)).map(drop)
    }
}

/// Makes `command` start on one processor, in a process group of its own, ended when the thread that starts it ends.
pub(crate) fn start_on_core(command: &mut Command, core: usize) {
    command.process_group(0);
    // SAFETY: between fork and exec only two async-signal-safe system calls are made; nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            pin_to_core(core)?;
            checked(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM)).map(drop)
        });
    }
}

/// User and system time of all threads of a process, those that have ended too, in nanoseconds.
///
/// # Errors
/// `InvalidInput` when there is no such process.
pub(crate) fn cpu_time(pid: u32) -> io::Result<Duration> {
    // The clock's number is defined by the kernel's ABI: the process id inverted, and 2 for the scheduler's own clock.
    let clock = ((!(pid as libc::clockid_t)) << 3) | 2;
    clock_time(clock)
}

/// Processor time of the calling thread.
pub(crate) fn own_thread_cpu_time() -> io::Result<Duration> {
    clock_time(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_time(clock: libc::clockid_t) -> io::Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live, exclusive timespec.
    checked(unsafe { libc::clock_gettime(clock, &mut time) })?;
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Raises the limit of open descriptors to `count` if it is lower, past the hard limit where that is allowed.
///
/// # Errors
/// `PermissionDenied` when the hard limit is lower than `count` and stays so.
pub(crate) fn allow_descriptors(count: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live rlimit in both calls.
    unsafe {
        checked(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit))?;
        if limit.rlim_cur >= count {
            return Ok(());
        }
        limit.rlim_cur = count;
        limit.rlim_max = limit.rlim_max.max(count);
        checked(libc::setrlimit(libc::RLIMIT_NOFILE, &limit)).map(drop)
    }
}

/// Wakes this thread on time: the kernel's default slack of 50 us would be charged to the server.
pub(crate) fn sharpen_timers() -> io::Result<()> {
    // SAFETY: plain call with integer arguments.
    checked(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000 as libc::c_ulong) }).map(drop)
}

/// Sends a signal to one process.
pub(crate) fn signal(pid: u32, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: plain call. Zero and negative ids, which would mean groups, can't come from a u32 that is a process id.
    checked(unsafe { libc::kill(pid as libc::pid_t, signal) }).map(drop)
}
