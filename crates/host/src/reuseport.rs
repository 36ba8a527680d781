//! Which of the sockets that share an address (`SO_REUSEPORT`) the kernel gives a new connection to.

use std::io;
use std::mem;
use std::os::fd::AsRawFd;

use crate::socket::{local_address, set_option};

/// Which of the sockets that share an address get its new connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// Only so many, in the order in which they began to listen; the others can then be emptied and closed without resetting anybody.
    pub first: Option<u32>,
    /// A segment may say which of those it's for: by its urgent pointer, which means nothing without its flag, counted from 1.
    pub is_named: bool,
}

/// Has the kernel share out new connections of the address at which `member` listens. Those whose handshake is under way belong to a socket already.
///
/// # Errors
/// Those of setsockopt(2) and getsockname(2).
pub fn share_out(member: &impl AsRawFd, share: Share) -> io::Result<()> {
    if share == Share::default() {
        // It fails when nothing was attached: then there is nothing to undo.
        let _ = set_option(member.as_raw_fd(), libc::SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, 0);
        return Ok(());
    }
    let instruction = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let at_header = |offset: i32| (libc::SKF_NET_OFF + offset).cast_unsigned();
    let random = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM).cast_unsigned();
    let mut program = Vec::new();
    if share.is_named {
        if local_address(member)?.is_ipv4() {
            program.extend([
                instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, at_header(0), 0, 0),
                instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 15, 0, 0),
                instruction(libc::BPF_ALU | libc::BPF_LSH | libc::BPF_K, 2, 0, 0),
                instruction(libc::BPF_MISC | libc::BPF_TAX, 0, 0, 0),
                instruction(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, at_header(URGENT_POINTER), 0, 0),
            ]);
        } else {
            let after_ipv6 = at_header(IPV6_HEADER + URGENT_POINTER);
            program.push(instruction(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, after_ipv6, 0, 0));
        }
        program.extend([
            instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 3, 0),
            instruction(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, share.first.unwrap_or(u32::MAX), 2, 0),
            instruction(libc::BPF_ALU | libc::BPF_SUB | libc::BPF_K, 1, 0, 0),
            instruction(libc::BPF_RET | libc::BPF_A, 0, 0, 0),
        ]);
    }
    match share.first {
        Some(count) => program.extend([
            instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, random, 0, 0),
            instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, count.max(1), 0, 0),
            instruction(libc::BPF_RET | libc::BPF_A, 0, 0, 0),
        ]),
        // No such socket: the kernel chooses as it would without this.
        None => program.push(instruction(libc::BPF_RET | libc::BPF_K, u32::MAX, 0, 0)),
    }
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: pointer and length describe `filter`, which describes `program`; both live through the call.
    let result = unsafe {
        libc::setsockopt(
            member.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const filter).cast(),
            mem::size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The places of what a share goes by.
const URGENT_POINTER: i32 = 18;
const IPV6_HEADER: i32 = 40;

/// Missing in the libc crate for this target (include/uapi/asm-generic/socket.h).
const SO_DETACH_REUSEPORT_BPF: i32 = 68;
