//! A filter that drops all that arrives for a socket before TCP sees it: neither acknowledgement nor reset answers.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::socket::set_option;

/// The program `return 0`, loaded if that was allowed.
#[derive(Debug)]
pub(super) struct Deafness {
    program: Option<OwnedFd>,
}

impl Deafness {
    pub(super) fn new() -> Deafness {
        Deafness { program: load().ok() }
    }

    /// The socket hears nothing from now on.
    pub(super) fn begin(&self, socket: RawFd) -> io::Result<()> {
        match &self.program {
            Some(program) => set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, program.as_raw_fd()),
            None => attach_classic(socket),
        }
    }

    /// The socket hears again.
    pub(super) fn end(socket: RawFd) -> io::Result<()> {
        set_option(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0)
    }
}

/// The part of `union bpf_attr` that BPF_PROG_LOAD of Linux 4.x reads (include/uapi/linux/bpf.h); the kernel takes the rest as zeros.
#[repr(C)]
struct LoadAttributes {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

fn load() -> io::Result<OwnedFd> {
    const BPF_PROG_LOAD: libc::c_long = 5;
    const BPF_PROG_TYPE_SOCKET_FILTER: u32 = 1;
    // r0 = 0; exit. Each instruction: code, registers, offset (2 bytes), immediate (4 bytes).
    const PROGRAM: [[u8; 8]; 2] = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    let attributes = LoadAttributes {
        program_type: BPF_PROG_TYPE_SOCKET_FILTER,
        instruction_count: PROGRAM.len() as u32,
        instructions: PROGRAM.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
    };
    // SAFETY: pointer and length describe `attributes`, whose own pointers are to constants; the kernel only reads them.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const attributes, mem::size_of::<LoadAttributes>()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just made this descriptor, and nobody else knows of it. (It is closed on exec: the kernel makes them so.)
    Ok(unsafe { OwnedFd::from_raw_fd(result as RawFd) })
}

/// The same as a classic program, which the kernel translates anew for each socket: 14 us instead of 1.
fn attach_classic(socket: RawFd) -> io::Result<()> {
    let mut program = [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: pointer and length describe `filter`, which describes `program`; both live through the call.
    let result = unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            mem::size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
