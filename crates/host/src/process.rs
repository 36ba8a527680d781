//! Processes and signals: starting over, ending, reaping, and hearing what the operator wants.

use std::io;
use std::os::fd::AsFd;

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, wait};

use crate::family::{children, kill_tree, stat};

/// A signal that a server's operator sends, or the kernel when a child has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// SIGTERM: finish what is under way, then end.
    Stop,
    /// SIGINT: the same; a second one wants it over at once.
    Interrupt,
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGUSR1: open log files anew.
    ReopenLogs,
    /// SIGUSR2: let the binary on disk take over.
    Upgrade,
    /// SIGCHLD: [`reap`] has something.
    ChildEnded,
}

/// Calls `hear` with each notice, on a thread of its own, for as long as the process lives.
///
/// # Errors
/// Those of sigaction(2) and of starting a thread.
pub fn hear_notices(mut hear: impl FnMut(Notice) + Send + 'static) -> io::Result<()> {
    use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
    let mut signals = signal_hook::iterator::Signals::new([SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            hear(match signal {
                SIGCHLD => Notice::ChildEnded,
                SIGHUP => Notice::Reload,
                SIGUSR1 => Notice::ReopenLogs,
                SIGUSR2 => Notice::Upgrade,
                SIGINT => Notice::Interrupt,
                _ => Notice::Stop,
            });
        }
    })?;
    Ok(())
}

/// Has the operator's signals wait in the kernel, or come again. For the thread that calls exec: they wait until the new program listens, which
/// would end by them before.
pub fn hold_notices(hold: bool) {
    let how = if hold { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    // SAFETY: the set is initialised by sigemptyset before it's read, and lives through the calls.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2] {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut());
    }
}

/// Makes this process deaf to the signals that are meant for the supervisor: a terminal sends them to the whole group, and systemd sends SIGTERM
/// to every process of a service.
///
/// # Errors
/// Those of sigaction(2).
pub fn ignore_operator() -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
    for signal in [SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2] {
        // A handler that sets a flag which nobody reads: unlike SIG_IGN it isn't inherited by programs that we start.
        signal_hook::flag::register(signal, std::sync::Arc::default())?;
    }
    Ok(())
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which one.
    pub pid: u32,
    /// Its exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

/// A child that has ended and that nobody has asked about yet, of whatever process group: what a program left behind has one of its own.
#[must_use]
pub fn reap() -> Option<Ended> {
    let (pid, status) = wait(WaitOptions::NOHANG).ok()??;
    Some(Ended {
        pid: pid.as_raw_nonzero().get().unsigned_abs(),
        code: status.exit_status(),
        signal: status.terminating_signal(),
    })
}

/// Ends a process that we started, at once.
pub fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended by itself meanwhile.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Ends a process that we started at the head of a group of its own, and its group, at once.
pub fn kill_group(leader: u32) {
    if let Some(pid) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        // As above.
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

/// What programs leave behind, whose parent this process becomes when theirs has ended.
#[derive(Debug)]
pub struct Orphans {
    /// Children that whoever was this process before had, by their numbers and beginnings.
    foreign: Vec<(u32, u64)>,
}

impl Orphans {
    /// Makes this process the parent of all orphans among its descendants, for [`Orphans::kill`].
    #[must_use]
    pub fn adopt() -> Orphans {
        // A kernel that refuses gives orphans to somebody else: they aren't ended then.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        let children = children(std::process::id()).into_iter();
        // Programs' orphans may have come while another binary began to be this process.
        let foreign = children.filter(|&child| !crate::program::is_program(child));
        let foreign = foreign.filter_map(|child| Some((child, stat(child)?.began)));
        Orphans { foreign: foreign.collect() }
    }

    /// Ends what programs of `engines`, or of such as have ended, have left behind, with all that it has started. An orphan of the group of a program that
    /// lives goes with that. Returns how many there were: they're children of this process until they've been reaped.
    pub fn kill(&self, engines: &[u32]) -> usize {
        // The first process of a machine or container gets everybody's orphans.
        let is_first = std::process::id() == 1;
        let mut count = 0;
        for child in children(std::process::id()) {
            let Some(own) = stat(child).filter(|_| !engines.contains(&child)) else { continue };
            let has_program =
                || own.group != child && stat(own.group).is_some_and(|leader| engines.contains(&leader.parent));
            if self.foreign.contains(&(child, own.began))
                || is_first && !crate::program::is_program(child)
                || has_program()
            {
                continue;
            }
            count += 1;
            kill_tree(child, &own);
        }
        count
    }
}

/// Whether a descriptor survives exec(2).
///
/// # Errors
/// Those of fcntl(2).
pub fn keep_over_exec(descriptor: impl AsFd, keep: bool) -> io::Result<()> {
    let flags = fcntl_getfd(&descriptor)?;
    Ok(fcntl_setfd(&descriptor, if keep { flags - FdFlags::CLOEXEC } else { flags | FdFlags::CLOEXEC })?)
}

/// Raises the limit on open files to what may be had, and returns it.
#[must_use]
pub fn raise_open_files_limit() -> u64 {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Refused: then the lower limit stays in force.
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Whether the error is that this process, or the whole system, has no descriptor left.
#[must_use]
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Whether the error is that every local port is taken by which an address could be connected to. It's also what connecting says where this machine has no
/// address of the peer's family.
#[must_use]
pub fn is_out_of_ports(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
}

/// How many descriptors are open; 0 where nobody can tell.
#[must_use]
pub fn open_files() -> usize {
    // The one by which they're read is among them.
    std::fs::read_dir("/proc/self/fd").map_or(0, |descriptors| descriptors.count().saturating_sub(1))
}

/// What [`keep_freed_memory`] keeps at the end of each thread's memory.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: i32 = 8 << 20;
/// Larger blocks are mapped one by one, and given back.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: i32 = 16 << 20;

/// Has the allocator keep 8 MiB of what is freed at the end of a thread's memory. A worker that passes long messages on wants the same buffers again thousands of times a
/// second: by default glibc gives the kernel all but 128 KiB of them, and has other pages cleared for the next.
pub fn keep_freed_memory() {
    // SAFETY: these are numbers of the allocator's, which refuses those that it can't have.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
        // By the first it stays where it begins, at 128 KiB, and doesn't grow with what is used any more.
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
    }
}

/// Descriptors that room is made for at the start: a megabyte of the kernel's memory, which is what the default number of connections takes.
const DESCRIPTORS_RESERVED_MAX: u64 = 1 << 17;

/// Has the kernel make room for as many descriptors as may be open, to a limit. It makes the table larger when one is opened that finds none, and of a
/// process with threads it has that thread wait meanwhile until all processors have forgotten the old one: milliseconds in which a worker does
/// nothing. So this is for a process that has no other threads yet.
pub fn reserve_descriptors(open_files_max: u64) {
    let last = open_files_max.min(DESCRIPTORS_RESERVED_MAX).saturating_sub(1);
    // Refused: then the table grows when it must, as it did before.
    let _ = rustix::io::fcntl_dupfd_cloexec(io::stdin(), i32::try_from(last).unwrap_or_default());
}

/// Takes over a descriptor that a predecessor kept open over exec(2) and told us the number of.
///
/// # Errors
/// The number isn't an open descriptor.
pub fn inherit(number: i32) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: only used to ask whether the number is open; fcntl(F_GETFD) does nothing to it.
    let open = unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
    if number <= 2 || !open {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("descriptor {number} isn't open")));
    }
    // SAFETY: it is open, and the predecessor that gave us its number was this process: nobody else owns it.
    let descriptor = unsafe { std::os::fd::OwnedFd::from_raw_fd(number) };
    keep_over_exec(&descriptor, false)?;
    Ok(descriptor)
}

/// The channel to the supervisor, which is this process's standard input. Standard input itself reads nothing afterwards.
///
/// # Errors
/// Standard input isn't a socket: this process wasn't started by a supervisor.
pub fn standard_input_as_stream() -> io::Result<std::os::unix::net::UnixStream> {
    let descriptor = io::stdin().as_fd().try_clone_to_owned()?;
    let stream = std::os::unix::net::UnixStream::from(descriptor);
    if stream.local_addr().is_err() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "standard input isn't a supervisor's channel: use `leat serve`",
        ));
    }
    Ok(stream)
}

/// Random bytes for keys (getrandom(2)).
///
/// # Errors
/// The kernel has none.
pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(())
}

/// A number that nobody can foresee.
#[must_use]
pub fn random_number() -> u64 {
    // The standard library seeds each of its hash tables from the kernel's random source.
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many descriptors the kernel has room for in its table of this process's.
    fn room() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
        line.trim().parse().unwrap()
    }

    #[test]
    fn room_is_made_for_descriptors_before_they_are_opened() {
        let limit = raise_open_files_limit();
        reserve_descriptors(limit);
        assert!(room() >= limit.min(DESCRIPTORS_RESERVED_MAX), "room for {} of {limit}", room());
    }
}
