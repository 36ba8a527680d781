//! Starts a process that the kernel ends together with the thread that started it, however that goes.
//!
//! The new process must ask for that itself, before it becomes the program (`PR_SET_PDEATHSIG` of prctl(2)). The standard library runs code of
//! ours there only after a real fork(2), which copies the tables of all memory, on a worker whose cache may have gigabytes, and makes all threads
//! fault on their next writes. Here it shares the memory until it is the program, as with posix_spawn(3).

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::ptr;

/// Room for the few calls between clone(2) and execve(2).
const STACK_BYTES: usize = 32 * 1024;

/// What to start.
pub(crate) struct Start<'a> {
    /// Its file.
    pub(crate) program: &'a Path,
    /// Without its name.
    pub(crate) arguments: &'a [String],
    /// All of it.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Where it's started.
    pub(crate) directory: &'a Path,
    /// Standard input, output and error: none of them is one of this process's.
    pub(crate) standard: [BorrowedFd<'a>; 3],
}

/// A string and a list as C knows them. What `pointers` point to stays where it is.
struct Strings {
    _owned: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

impl Strings {
    fn new(strings: impl IntoIterator<Item = Vec<u8>>) -> io::Result<Strings> {
        let owned = strings.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>()?;
        let pointers = owned.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect();
        Ok(Strings { _owned: owned, pointers })
    }
}

/// What the new process reads, and writes its error into: it has this process's memory.
struct Plan<'a> {
    program: &'a CString,
    directory: &'a CString,
    arguments: &'a Strings,
    environment: &'a Strings,
    standard: [i32; 3],
    parent: libc::pid_t,
    error: i32,
}

/// Starts it as the leader of a group of its own, and returns when it is the program. It's killed when this thread ends.
///
/// # Errors
/// Those of clone(2), chdir(2) and execve(2); a NUL in a string.
pub(crate) fn spawn(start: Start<'_>) -> io::Result<u32> {
    let bytes = |text: &OsStr| text.as_bytes().to_vec();
    let program = CString::new(bytes(start.program.as_os_str()))?;
    let directory = CString::new(bytes(start.directory.as_os_str()))?;
    let arguments = start.arguments.iter().map(|argument| argument.clone().into_bytes());
    let arguments = Strings::new([bytes(start.program.as_os_str())].into_iter().chain(arguments))?;
    let environment = start.environment.into_iter().map(|(name, value)| {
        let mut variable = name.into_vec();
        variable.push(b'=');
        variable.extend_from_slice(value.as_bytes());
        variable
    });
    let environment = Strings::new(environment)?;
    let mut plan = Plan {
        program: &program,
        directory: &directory,
        arguments: &arguments,
        environment: &environment,
        standard: start.standard.map(|descriptor| descriptor.as_raw_fd()),
        parent: rustix::process::getpid().as_raw_nonzero().get(),
        error: 0,
    };
    let mut stack: Box<[MaybeUninit<u128>]> = Box::new_uninit_slice(STACK_BYTES / size_of::<u128>());
    let top = stack.as_mut_ptr_range().end;
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `all` is filled by the first call before the second reads it, which fills `before`. No handler may run in the new process: it
    // would be this one's, with this one's memory.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    // SAFETY: by CLONE_VFORK this thread sleeps until the new process has become the program or has ended, so that the plan and the stack, whose
    // top is aligned, outlive its use of them and nobody else looks at the plan meanwhile.
    let process = unsafe {
        libc::clone(
            become_program,
            top.cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw mut plan).cast(),
        )
    };
    let refused = io::Error::last_os_error();
    // SAFETY: `before` was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    if process < 0 {
        return Err(refused);
    }
    if plan.error != 0 {
        // SAFETY: takes and returns integers; the process is this one's child and has ended.
        unsafe { libc::waitpid(process, ptr::null_mut(), 0) };
        return Err(io::Error::from_raw_os_error(plan.error));
    }
    Ok(process.cast_unsigned())
}

/// What the new process does. It allocates nothing, takes no lock and can't panic: it has the memory of a process whose other threads go on.
extern "C" fn become_program(plan: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `spawn` gives a pointer to its plan, and sleeps.
    let plan = unsafe { &mut *plan.cast::<Plan<'_>>() };
    // SAFETY: system calls with integers and with pointers to what `spawn` keeps alive: strings that end in NUL, lists that end in null.
    let result = unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        if libc::getppid() != plan.parent {
            // It has gone before it could be asked for.
            libc::_exit(1);
        }
        for signal in 1..=libc::SIGRTMAX() {
            forget_handler(signal);
        }
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::setpgid(0, 0);
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
        let is_ready = (0..3).all(|number| libc::dup2(plan.standard[number as usize], number) >= 0)
            && libc::chdir(plan.directory.as_ptr()) == 0;
        if is_ready {
            libc::execve(plan.program.as_ptr(), plan.arguments.pointers.as_ptr(), plan.environment.pointers.as_ptr());
        }
        *libc::__errno_location()
    };
    plan.error = result;
    1
}

/// Programs begin with signals as they are by default: handlers are code of this process, and who ignores SIGPIPE must have chosen to.
///
/// # Safety
/// The caller is a process of its own.
unsafe fn forget_handler(signal: i32) {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: an all-zero sigaction is valid, and is the default action; the kernel refuses signals that can't have another.
    unsafe {
        if libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0
            && (signal == libc::SIGPIPE || action.assume_init_ref().sa_sigaction != libc::SIG_IGN)
        {
            libc::sigaction(signal, MaybeUninit::zeroed().as_ptr(), ptr::null_mut());
        }
    }
}
