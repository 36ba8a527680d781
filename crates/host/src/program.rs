//! Programs that a worker starts on its own core: starting, stopping and resuming, ending, and what they have used of the processor. When a
//! program may run is the worker's decision.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit};

use crate::family::{Family, orphans, stat};
use crate::spawn::{Start, spawn};

/// Open files that a program may have, unless it raises its limit itself: more than 1,024 would break those that use select(2).
const OPEN_FILES: u64 = 1024;
/// How nice a program is while it competes with others.
const NICE_AMONG_OTHERS: i32 = 5;
/// From linux/sched.h, as proc(5) says of the flags in `stat`.
const PF_EXITING: u64 = 4;
/// How often it's looked what programs have left behind, at most.
const ORPHANS_PAUSE: Duration = Duration::from_millis(10);

/// A program that was started: the number of its first process and of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProgramId(pub u32);

/// What a program's standard input and output are.
#[derive(Debug)]
pub enum Standard {
    /// One socket for both, whose other end the worker gets.
    Conversation,
    /// Nothing to read, and a socket for what it prints: its end is heard as soon as the program closes its output alone.
    Output,
    /// Standard input is a listening socket; what it prints goes where its errors go.
    Listener(OwnedFd),
}

/// How to start a program.
#[derive(Debug)]
pub struct Order<'a> {
    /// Its file.
    pub program: &'a Path,
    /// Without its name.
    pub arguments: &'a [String],
    /// All of it: nothing of leat's own is added.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it's started.
    pub directory: &'a Path,
    /// Standard input and output.
    pub standard: Standard,
    /// Standard error.
    pub error: BorrowedFd<'a>,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// All processor time of the program and of those of its descendants that it has waited for.
    pub used: Duration,
}

/// A worker's way to programs.
pub trait Programs {
    /// Starts a program on this thread's core, below everything else there. It doesn't outlive the thread. Gives the other end of its conversation, if that is what it has.
    ///
    /// # Errors
    /// It can't be started: no such file, not executable, no processes left.
    fn start(&mut self, order: Order<'_>) -> io::Result<(ProgramId, Option<OwnedFd>)>;

    /// Lets a stopped program run, with all that it has started, when the worker sleeps.
    fn resume(&mut self, program: ProgramId);

    /// Keeps a program from running, and all that it has started. Descendants that it finds count from now on.
    fn stop(&mut self, program: ProgramId);

    /// Ends a program and all that it has started. It's to be reaped all the same.
    fn kill(&mut self, program: ProgramId);

    /// Processor time that the program, with the descendants last seen, has used since this was last asked.
    fn take_used(&mut self, program: ProgramId) -> Duration;

    /// Whether the program or a descendant wants the processor: not while it's stopped. Descendants that it finds count from now on; those that stand still though
    /// the program was resumed are resumed too.
    fn is_runnable(&mut self, program: ProgramId) -> bool;

    /// Whether the program has ended, or is about to: nothing keeps it from that but a moment of the processor. Not if it has only closed its output.
    fn is_ending(&mut self, program: ProgramId) -> bool;

    /// How the program has ended, if it has; said once.
    fn reap(&mut self, program: ProgramId) -> Option<Ended>;

    /// Has a program, and the descendants last seen, compete with other processes of its core for a while: it runs even where the core always has
    /// something else to do. Needs privileges; without them nothing changes.
    fn raise(&mut self, program: ProgramId);

    /// Takes back what [`Programs::raise`] did.
    fn lower(&mut self, program: ProgramId);

    /// Leaves the core to programs.
    fn step_aside(&mut self, time: Duration);
}

/// Programs as processes of this machine.
#[derive(Debug, Default)]
pub struct LocalPrograms {
    families: BTreeMap<ProgramId, Family>,
    /// What programs have left behind and nobody has ended yet, and when that was last looked for.
    orphans: Vec<u32>,
    orphans_at: Option<Instant>,
}

impl LocalPrograms {
    /// None yet.
    #[must_use]
    pub fn new() -> LocalPrograms {
        LocalPrograms::default()
    }
}

fn pid(number: u32) -> Option<Pid> {
    Pid::from_raw(number.cast_signed())
}

fn set_class(process: u32, class: libc::c_int) -> io::Result<()> {
    // SAFETY: an all-zero sched_param is valid (it holds integers only).
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live sched_param.
    let result = unsafe { libc::sched_setscheduler(process.cast_signed(), class, &raw const parameters) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Puts a process below all others: it runs when its core has nothing else to do. Those that it starts inherit that.
fn put_last(process: u32) -> io::Result<()> {
    set_class(process, libc::SCHED_IDLE)
}

/// Has a process that was put last compete with others: for a quarter of the core beside one that computes all the time. A worker that wakes is
/// preferred.
fn put_among_others(process: u32) {
    if set_class(process, libc::SCHED_BATCH).is_ok() {
        let _ = rustix::process::setpriority_process(pid(process), NICE_AMONG_OTHERS);
    }
}

/// Whether a process is a program, or was started by one: by its class and how nice it is.
pub(crate) fn is_program(process: u32) -> bool {
    // SAFETY: takes and returns integers.
    match unsafe { libc::sched_getscheduler(process.cast_signed()) } {
        libc::SCHED_IDLE => true,
        libc::SCHED_BATCH => rustix::process::getpriority_process(pid(process)) == Ok(NICE_AMONG_OTHERS),
        _ => false,
    }
}

/// Lets a process that has been killed end soon: that takes a moment of a core that may be busy. Only with privileges.
pub(crate) fn hasten(process: u32) {
    let _ = set_class(process, libc::SCHED_OTHER);
}

/// Processor time of all threads of a process; `None` when it has gone.
pub(crate) fn processor_time(process: u32) -> Option<Duration> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: the pointer is to a live clockid_t.
    if unsafe { libc::clock_getcpuclockid(process.cast_signed(), &raw mut clock) } != 0 {
        return None;
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (result == 0).then(|| Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32))
}

/// Calls wait4(2) without waiting; `None` when the process hasn't ended.
fn wait(process: u32, options: libc::c_int) -> Option<Ended> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is valid (it holds integers only).
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointers are to live values of the right types.
    let result = unsafe { libc::wait4(process.cast_signed(), &raw mut status, options, &raw mut usage) };
    if result <= 0 {
        return None;
    }
    let time = |time: libc::timeval| Duration::new(time.tv_sec.cast_unsigned(), time.tv_usec as u32 * 1000);
    Some(Ended {
        code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        used: time(usage.ru_utime) + time(usage.ru_stime),
    })
}

/// Whether the kernel has begun to end a process: it says so before it closes what that has open.
fn is_exiting(process: u32) -> bool {
    stat(process).is_none_or(|stat| stat.flags & PF_EXITING != 0)
}

impl Programs for LocalPrograms {
    fn start(&mut self, order: Order<'_>) -> io::Result<(ProgramId, Option<OwnedFd>)> {
        let (ours, input, output) = match order.standard {
            Standard::Conversation => {
                let (ours, theirs) = UnixStream::pair()?;
                (Some(ours.into()), OwnedFd::from(theirs.try_clone()?), OwnedFd::from(theirs))
            }
            Standard::Output => {
                let (ours, theirs) = UnixStream::pair()?;
                (Some(ours.into()), OwnedFd::from(File::open("/dev/null")?), OwnedFd::from(theirs))
            }
            Standard::Listener(listener) => (None, listener, order.error.try_clone_to_owned()?),
        };
        let program = ProgramId(spawn(Start {
            program: order.program,
            arguments: order.arguments,
            environment: order.environment,
            directory: order.directory,
            standard: [input.as_fd(), output.as_fd(), order.error],
        })?);
        if let Err(error) = put_last(program.0) {
            // At its usual priority it would take the core away from the worker.
            Family::new(program.0).kill();
            wait(program.0, 0);
            return Err(error);
        }
        let limit = Rlimit { current: Some(OPEN_FILES), maximum: rustix::process::getrlimit(Resource::Nofile).maximum };
        // It only spares the program a surprise.
        let _ = rustix::process::prlimit(pid(program.0), Resource::Nofile, limit);
        self.families.insert(program, Family::new(program.0));
        Ok((program, ours))
    }

    fn resume(&mut self, program: ProgramId) {
        if let Some(family) = self.families.get_mut(&program) {
            family.resume();
        }
    }

    fn stop(&mut self, program: ProgramId) {
        if let Some(family) = self.families.get_mut(&program) {
            family.stop();
        }
    }

    fn kill(&mut self, program: ProgramId) {
        // Once it's reaped, its number may be somebody else's.
        if let Some(family) = self.families.get_mut(&program) {
            family.kill();
        }
    }

    fn take_used(&mut self, program: ProgramId) -> Duration {
        self.families.get_mut(&program).map_or(Duration::ZERO, Family::take_used)
    }

    fn is_runnable(&mut self, program: ProgramId) -> bool {
        if self.orphans_at.is_none_or(|at| at.elapsed() >= ORPHANS_PAUSE) {
            (self.orphans, self.orphans_at) = (orphans(), Some(Instant::now()));
        }
        self.families.get_mut(&program).is_some_and(|family| family.is_runnable(&self.orphans))
    }

    fn is_ending(&mut self, program: ProgramId) -> bool {
        let is_ending = is_exiting(program.0);
        if is_ending {
            hasten(program.0);
        }
        is_ending
    }

    fn reap(&mut self, program: ProgramId) -> Option<Ended> {
        if !self.families.contains_key(&program) {
            return None;
        }
        let ended = wait(program.0, libc::WNOHANG)?;
        // What it has started and left behind goes with it.
        if let Some(family) = self.families.remove(&program) {
            family.kill_rest();
        }
        Some(ended)
    }

    fn raise(&mut self, program: ProgramId) {
        if let Some(family) = self.families.get_mut(&program) {
            family.each(put_among_others);
        }
    }

    fn lower(&mut self, program: ProgramId) {
        // Also what it has started meanwhile, which inherited its class.
        if let Some(family) = self.families.get_mut(&program) {
            family.each(|process| {
                // It may have ended.
                let _ = put_last(process);
            });
        }
    }

    fn step_aside(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
}

impl Drop for LocalPrograms {
    fn drop(&mut self) {
        for (program, mut family) in std::mem::take(&mut self.families) {
            family.kill();
            // It has been killed: this doesn't take long.
            wait(program.0, 0);
            family.kill_rest();
        }
    }
}

/// A listening Unix socket that no other user can reach, and the path by which this process can connect to it for as long as the socket
/// and the descriptor that goes with it are open.
///
/// # Errors
/// No directory for temporary files, no descriptors left.
pub fn private_listener() -> io::Result<(OwnedFd, OwnedFd, PathBuf)> {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::DirBuilderExt;
    let directory = std::env::temp_dir().join(format!("leat-{:016x}", crate::process::random_number()));
    std::fs::DirBuilder::new().mode(0o700).create(&directory)?;
    let path = directory.join("listener");
    let made = std::os::unix::net::UnixListener::bind(&path).and_then(|listener| {
        // The name is gone before anybody else can use it; /proc leads to the socket all the same.
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        let name = rustix::fs::open(&path, flags, rustix::fs::Mode::empty())?;
        Ok((OwnedFd::from(listener), name))
    });
    let _ = std::fs::remove_file(&path);
    let _ = std::fs::remove_dir(&directory);
    let (listener, name) = made?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", name.as_raw_fd()));
    Ok((listener, name, path))
}

/// A pipe for what programs say beside their replies: the end to read from, which doesn't block, and theirs.
///
/// # Errors
/// No descriptors left.
pub fn error_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::pipe::{PipeFlags, pipe_with};
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&read, true)?;
    Ok((read, write))
}

/// Reads what is there, without waiting; 0 when there is nothing.
pub fn read_error_pipe(pipe: &OwnedFd, buffer: &mut [u8]) -> usize {
    rustix::io::read(pipe, buffer).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Shutdown;

    use rustix::process::{Signal, kill_process};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            assert!(start.elapsed() < PATIENCE, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn state(process: u32) -> Option<u8> {
        stat(process).map(|stat| stat.state)
    }

    fn signal_one(process: u32, signal: Signal) {
        kill_process(pid(process).unwrap(), signal).unwrap();
    }

    fn read_number(stream: &mut UnixStream) -> u32 {
        let mut digits = [0; 16];
        let count = stream.read(&mut digits).unwrap();
        std::str::from_utf8(&digits[..count]).unwrap().trim().parse().unwrap()
    }

    fn shell(programs: &mut LocalPrograms, script: &str) -> (ProgramId, UnixStream) {
        let (_read, error) = error_pipe().unwrap();
        let order = Order {
            program: Path::new("/bin/sh"),
            arguments: &["-c".to_owned(), script.to_owned()],
            environment: vec![("WORD".into(), "told".into())],
            directory: Path::new("/"),
            standard: Standard::Conversation,
            error: error.as_fd(),
        };
        let (program, ours) = programs.start(order).unwrap();
        (program, ours.unwrap().into())
    }

    #[test]
    fn a_program_converses_and_ends() {
        let mut programs = LocalPrograms::new();
        let (program, mut stream) = shell(&mut programs, "read line; echo \"$line $WORD\"; ulimit -n; exit 3");
        stream.write_all(b"was\n").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert_eq!(said, format!("was told\n{OPEN_FILES}\n"));
        let ended = eventually("it ends", || programs.reap(program));
        assert_eq!((ended.code, ended.signal), (Some(3), None));
        assert_eq!(programs.reap(program), None, "said once");
        assert_eq!(programs.take_used(program), Duration::ZERO);
    }

    #[test]
    fn a_program_that_computes_is_stopped_resumed_and_killed() {
        let mut programs = LocalPrograms::new();
        let (program, _stream) = shell(&mut programs, "while :; do :; done");
        eventually("it computes", || (programs.take_used(program) > Duration::ZERO).then_some(()));
        assert!(programs.is_runnable(program));
        programs.stop(program);
        assert!(!programs.is_runnable(program));
        eventually("it stops", || (state(program.0) == Some(b'T')).then_some(()));
        programs.take_used(program);
        programs.step_aside(Duration::from_millis(20));
        assert_eq!(programs.take_used(program), Duration::ZERO);
        programs.resume(program);
        eventually("it goes on", || (programs.take_used(program) > Duration::ZERO).then_some(()));
        programs.kill(program);
        let ended = eventually("it ends", || programs.reap(program));
        assert_eq!((ended.code, ended.signal), (None, Some(libc::SIGKILL)));
        assert!(ended.used > Duration::ZERO);
    }

    #[test]
    fn a_program_competes_with_others_for_a_while_and_so_does_what_it_starts() {
        let mut programs = LocalPrograms::new();
        let (program, mut stream) = shell(&mut programs, "read line; sleep 100 & echo $!; wait");
        // SAFETY: takes and returns integers.
        let class = |process: u32| unsafe { libc::sched_getscheduler(process.cast_signed()) };
        assert_eq!(class(program.0), libc::SCHED_IDLE);
        programs.raise(program);
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root");
            return;
        }
        assert_eq!(class(program.0), libc::SCHED_BATCH);
        stream.write_all(b"go on\n").unwrap();
        let child = read_number(&mut stream);
        assert_eq!(class(child), libc::SCHED_BATCH);
        assert!(is_program(program.0) && is_program(child) && !is_program(std::process::id()));
        programs.lower(program);
        assert_eq!((class(program.0), class(child)), (libc::SCHED_IDLE, libc::SCHED_IDLE));
        programs.kill(program);
        eventually("it ends", || programs.reap(program));
    }

    #[test]
    fn what_a_program_starts_counts_and_goes_with_it() {
        let mut programs = LocalPrograms::new();
        let (program, mut stream) = shell(&mut programs, "(while :; do :; done) & echo $!; wait");
        let child = read_number(&mut stream);
        eventually("the child is seen", || programs.is_runnable(program).then_some(()));
        programs.take_used(program);
        eventually("the child's time counts", || {
            (programs.take_used(program) > Duration::from_millis(1)).then_some(())
        });
        programs.kill(program);
        eventually("it ends", || programs.reap(program));
        eventually("the child ends", || processor_time(child).is_none_or(|_| state(child) != Some(b'R')).then_some(()));
    }

    #[test]
    fn what_has_left_the_programs_group_is_stopped_resumed_and_killed_with_it() {
        for script in [
            "setsid sh -c 'echo $$; while :; do :; done'; echo never",
            "timeout 1000 sh -c 'echo $$; while :; do :; done'; echo never",
            "timeout 1000 setsid sh -c '(while :; do :; done) & echo $!; wait' & read line",
        ] {
            let mut programs = LocalPrograms::new();
            let (program, mut stream) = shell(&mut programs, script);
            let child = read_number(&mut stream);
            assert_ne!(rustix::process::getpgid(pid(child)).unwrap(), pid(program.0).unwrap(), "{script}");
            // Nobody has looked for it before.
            programs.stop(program);
            eventually("it stops", || (state(child) == Some(b'T')).then_some(()));
            assert!(!programs.is_runnable(program), "{script}");
            programs.resume(program);
            eventually("it goes on", || (state(child) == Some(b'R')).then_some(()));
            programs.take_used(program);
            eventually("its time counts", || (programs.take_used(program) > Duration::from_millis(1)).then_some(()));
            programs.kill(program);
            eventually("it ends", || programs.reap(program));
            eventually("so does the other", || state(child).is_none_or(|state| state == b'Z').then_some(()));
        }
    }

    #[test]
    fn what_has_left_the_programs_group_doesnt_outlive_it() {
        let mut programs = LocalPrograms::new();
        let (program, mut stream) = shell(&mut programs, "setsid sh -c 'echo $$; sleep 1000' & read line");
        let child = read_number(&mut stream);
        assert!(!programs.is_runnable(program) || state(child).is_some(), "it's seen");
        stream.shutdown(Shutdown::Write).unwrap();
        eventually("the program ends by itself", || programs.reap(program));
        eventually("so does the other", || state(child).is_none_or(|state| state == b'Z').then_some(()));
    }

    /// What stopping and resuming a group leaves now and then of a process that is just begun.
    #[test]
    fn what_a_program_starts_isnt_left_standing_still() {
        let mut programs = LocalPrograms::new();
        let (program, mut stream) = shell(&mut programs, "sleep 100 & echo $!; wait");
        let child = read_number(&mut stream);
        programs.stop(program);
        eventually("all stand still", || (state(program.0) == Some(b'T') && state(child) == Some(b'T')).then_some(()));
        assert!(!programs.is_runnable(program), "the worker has stopped them all");
        assert_eq!(state(child), Some(b'T'));
        programs.resume(program);
        eventually("all go on", || (state(program.0) != Some(b'T') && state(child) != Some(b'T')).then_some(()));
        signal_one(child, Signal::STOP);
        eventually("it stands still", || (state(child) == Some(b'T')).then_some(()));
        assert!(programs.is_runnable(program));
        eventually("so does what it has started", || (state(child) != Some(b'T')).then_some(()));
        programs.kill(program);
        eventually("it ends", || programs.reap(program));
    }

    #[test]
    fn a_program_that_closes_its_output_isnt_one_that_ends() {
        let mut programs = LocalPrograms::new();
        let (program, mut stream) = shell(&mut programs, "exec 1>&- 0<&-; while :; do :; done");
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        assert!(!programs.is_ending(program));
        programs.kill(program);
        eventually("it ends", || programs.reap(program));
        for script in ["exit 3", "kill -9 $$"] {
            let (program, mut stream) = shell(&mut programs, script);
            assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
            assert!(programs.is_ending(program), "{script}");
            eventually("it has ended", || programs.reap(program));
        }
    }

    #[test]
    fn nothing_stays_when_the_worker_goes() {
        let mut programs = LocalPrograms::new();
        let (program, mut stream) = shell(&mut programs, "while :; do :; done");
        programs.stop(program);
        drop(programs);
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        assert_eq!(processor_time(program.0), None);
    }

    #[test]
    fn a_program_ends_with_the_thread_that_started_it() {
        let start = || {
            let mut programs = LocalPrograms::new();
            let (program, stream) = shell(&mut programs, "while :; do :; done");
            // Nobody ends it in order.
            std::mem::forget(programs);
            (program, stream)
        };
        let (program, mut stream) = std::thread::spawn(start).join().unwrap();
        let ended = eventually("it ends", || wait(program.0, libc::WNOHANG));
        assert_eq!(ended.signal, Some(libc::SIGKILL));
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    }

    #[test]
    fn a_program_begins_with_no_signal_blocked_and_can_die_of_a_broken_pipe() {
        let mut programs = LocalPrograms::new();
        let (program, mut stream) =
            shell(&mut programs, "while read -r line; do echo \"$line\"; done < /proc/$$/status");
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        let mask = |name| {
            let digits = said.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(digits.trim(), 16).unwrap()
        };
        assert_eq!((mask("SigBlk:"), mask("SigIgn:") & 1 << (libc::SIGPIPE - 1)), (0, 0), "{said}");
        eventually("it ends", || programs.reap(program));
    }

    #[test]
    fn what_cannot_be_started_says_so() {
        let (_read, error) = error_pipe().unwrap();
        let order = |program| Order {
            program,
            arguments: &[],
            environment: Vec::new(),
            directory: Path::new("/"),
            standard: Standard::Conversation,
            error: error.as_fd(),
        };
        let mut programs = LocalPrograms::new();
        let missing = programs.start(order(Path::new("/nonexistent/program"))).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let not_executable = programs.start(order(Path::new("/etc/passwd"))).unwrap_err();
        assert_eq!(not_executable.kind(), io::ErrorKind::PermissionDenied);
        let no_directory = Order { directory: Path::new("/nonexistent"), ..order(Path::new("/bin/true")) };
        assert_eq!(programs.start(no_directory).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_private_listener_is_found_by_its_path_and_by_no_name() {
        let (listener, _name, path) = private_listener().unwrap();
        let listener = std::os::unix::net::UnixListener::from(listener);
        let mut ours = UnixStream::connect(&path).unwrap();
        ours.write_all(b"x").unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        let mut byte = [0; 1];
        theirs.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }

    #[test]
    fn an_error_pipe_does_not_wait() {
        let (read, write) = error_pipe().unwrap();
        let mut buffer = [0; 10];
        assert_eq!(read_error_pipe(&read, &mut buffer), 0);
        rustix::io::write(&write, b"oh\n").unwrap();
        assert_eq!(read_error_pipe(&read, &mut buffer), 3);
    }
}
