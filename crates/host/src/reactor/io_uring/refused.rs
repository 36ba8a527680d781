//! A ring in a sandbox that refuses some of its system calls: that shows when it's made, and not when it's first used.

use std::io;

use super::IoUring;

/// Has this thread's calls of one system call fail from here on, as container profiles do.
fn refuse(call: libc::c_long) {
    let statement = |code: u32, k| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut filter = [
        // The call's number is the first thing in what a filter sees.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter { jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32) },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: no pointers are passed.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program and its filter live until the call returns; the kernel copies both.
    let filtered = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(filtered, 0, "{}", io::Error::last_os_error());
}

#[test]
fn a_ring_of_which_any_call_is_refused_is_refused_when_it_is_made() {
    for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_register, libc::SYS_io_uring_enter] {
        // A filter is its thread's, and ends with it.
        let made = std::thread::spawn(move || {
            refuse(call);
            IoUring::new().map(drop)
        });
        let error = made.join().expect("it doesn't panic").expect_err("it's refused");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "call {call}: {error}");
    }
}
