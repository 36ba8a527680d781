//! Processors, processor time, limits and signals of this process and of others.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use super::checked;

/// Keeps the calling thread, and what it spawns, on one processor.
pub(crate) fn pin_to_core(core: usize) -> io::Result<()> {
    pin_to_cores(&[core])
}

/// Keeps the calling thread, and what it spawns, on some processors.
pub(crate) fn pin_to_cores(cores: &[usize]) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is the empty set, each core is within it (CPU_SET ignores what isn't), and the size is
    // that of the set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cores.iter().for_each(|&core| libc::CPU_SET(core, &mut set));
        checked(libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &set)).map(drop)
    }
}

/// Puts the calling thread, and what it spawns, before what others run on the machine, where that is allowed: root may.
pub(crate) fn prefer() {
    // SAFETY: plain call with integer arguments. Refused, it changes nothing, and the run's conditions tell of others.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
}

/// Has a thread (0: the calling one) run at once whenever it is woken, before all that isn't real-time, where that is allowed: root may. Nice
/// values only share: whoever runs when a thread of the highest is woken goes on until its slice or the kernel's next tick (4 ms at 250 Hz).
pub(crate) fn run_at_once(thread: u32) {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: `lowest` is live for the call. Refused, it changes nothing.
    let _ = unsafe { libc::sched_setscheduler(thread as libc::pid_t, libc::SCHED_FIFO, &lowest) };
}

/// Puts this process, and what it spawns, into a session of its own that goes before all others: where the kernel shares processors among
/// sessions first (autogroup, sched(7)), [`prefer`] alone counts among the programs of one session only. Where that isn't allowed, or the
/// process leads a job of a terminal, nothing changes. It ends with its parent, as that session's terminal no longer ends it.
pub(crate) fn lead_session() {
    // SAFETY: plain calls with integer arguments.
    let leads = unsafe { libc::setsid() != -1 && libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != -1 };
    if leads {
        // There is no such file on kernels that don't group by session: then there is nothing to be done.
        let _ = std::fs::write("/proc/self/autogroup", "-20");
    }
}

/// Makes `command` start on some processors, before what others run, in a process group of its own, ended when the thread that starts it ends.
pub(crate) fn start_on_cores(command: &mut Command, cores: &[usize]) {
    start_with(command, cores, true);
}

/// As [`start_on_cores`], but as preferred as others: between network namespaces the kernel's threads carry packets, and would be starved.
pub(crate) fn start_as_others(command: &mut Command, cores: &[usize]) {
    start_with(command, cores, false);
}

fn start_with(command: &mut Command, cores: &[usize], is_preferred: bool) {
    let cores = cores.to_vec();
    command.process_group(0);
    // SAFETY: between fork and exec only async-signal-safe system calls are made; nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            pin_to_cores(&cores)?;
            // Else a server would inherit what `block_end_signals` blocks, and not end when told.
            mask(libc::SIG_UNBLOCK)?;
            if is_preferred {
                prefer();
            }
            checked(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM)).map(drop)
        });
    }
}

/// Moves the calling thread, and what it spawns, into the network namespace that a file stands for.
pub(crate) fn enter_network(namespace: &std::path::Path) -> io::Result<()> {
    let file = std::fs::File::open(namespace)?;
    // SAFETY: the descriptor is open for the whole call.
    checked(unsafe { libc::setns(std::os::fd::AsRawFd::as_raw_fd(&file), libc::CLONE_NEWNET) }).map(drop)
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

/// Bytes that a process has had the disk read.
///
/// # Errors
/// `NotFound` when there is no such process, `InvalidData` when the kernel doesn't count them.
pub(crate) fn disk_bytes(pid: u32) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io"))?;
    let bytes = text.lines().find_map(|line| line.strip_prefix("read_bytes:")?.trim().parse().ok());
    bytes.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "this kernel doesn't count what processes read"))
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

/// Keeps SIGTERM, SIGINT and SIGHUP from ending this thread and the threads that it starts; [`start_on_cores`] lets them
/// through again.
pub(crate) fn block_end_signals() -> io::Result<()> {
    mask(libc::SIG_BLOCK)
}

fn mask(how: libc::c_int) -> io::Result<()> {
    let signals = end_signals();
    // SAFETY: `signals` is a live set; the old one isn't asked for.
    match unsafe { libc::pthread_sigmask(how, &signals, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Waits for one of the signals that [`block_end_signals`] keeps off, and gives its number.
pub(crate) fn await_end_signal() -> libc::c_int {
    let signals = end_signals();
    let mut signal = 0;
    // SAFETY: `signals` and `signal` are live. An interrupted wait is begun again.
    while unsafe { libc::sigwait(&signals, &mut signal) } != 0 {}
    signal
}

fn end_signals() -> libc::sigset_t {
    // SAFETY: sigemptyset makes any sigset_t valid, and the set is live in every call.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&mut signals, signal);
        }
        signals
    }
}

/// Whether a process is there and hasn't ended: one that nobody has waited for yet has.
pub(crate) fn is_alive(pid: u32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    text.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Processor time of this process and of all its children that have ended and were waited for.
pub(crate) fn own_and_children_cpu_time() -> Duration {
    let of = |who| {
        // SAFETY: all fields are plain numbers, and `usage` is live.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &mut usage);
            usage
        };
        [usage.ru_utime, usage.ru_stime]
            .map(|time| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1_000))
            .iter()
            .sum::<Duration>()
    };
    of(libc::RUSAGE_SELF) + of(libc::RUSAGE_CHILDREN)
}

/// Sends a signal to one process.
pub(crate) fn signal(pid: u32, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: plain call. Zero and negative ids, which would mean groups, can't come from a u32 that is a process id.
    checked(unsafe { libc::kill(pid as libc::pid_t, signal) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_ones_own_goes_before_others() {
        let mut command = Command::new("cat");
        command.arg("/proc/self/autogroup");
        // SAFETY: a file is opened and written by a short, static name; the parent holds no lock of the allocator that the child needs.
        unsafe {
            command.pre_exec(|| {
                lead_session();
                Ok(())
            });
        }
        let text = String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned();
        // SAFETY: plain call.
        let may = unsafe { libc::geteuid() } == 0;
        assert!(text.is_empty() || !may || text.contains("nice -20"), "{text}");
    }
}
