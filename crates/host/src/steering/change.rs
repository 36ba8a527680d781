//! Changes of entries, made in place by a program (`make_change` in `programs/dispatcher.c`, `make_mark` in `node.c`): what packets say meanwhile isn't undone, as it would be by an
//! entry that is read here, changed, and written as a whole.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use aya::Pod;
use aya::util::KernelVersion;

use super::attach::Programs;
use super::flows::FlowKey;
use super::layout::{CHANGE_DONE, CHANGE_FULL, CHANGE_GONE, RawChange, RawMark};
use super::{Doing, Error, Result};

/// The part of `union bpf_attr` for running a program (include/uapi/linux/bpf.h).
#[repr(C)]
struct RunAttributes {
    program: u32,
    result: u32,
    data_bytes: u32,
    out_bytes: u32,
    data: u64,
    out: u64,
    repeat: u32,
    duration: u32,
    context_bytes: [u32; 2],
    contexts: [u64; 2],
    flags: u32,
    processor: u32,
    batch: u32,
    unused: u32,
}

/// The program that makes changes. Before Linux 5.18 the kernel has each run of an XDP program wait until all processors know of it: milliseconds, while a
/// worker waits.
pub(super) fn program() -> &'static str {
    if can_run_xdp() { "change_flow" } else { "change_flow_as_packet" }
}

fn can_run_xdp() -> bool {
    KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(5, 18, 0))
}

/// A node's: the program that marks what is known of connections there.
pub(super) struct Marks(OwnedFd);

impl Marks {
    pub(super) fn new(programs: &mut Programs) -> Result<Marks> {
        programs.descriptor(if can_run_xdp() { "mark" } else { "mark_as_packet" }).map(Marks)
    }

    /// Marks a connection, if anything is known of it; `serial`: of the birth that is meant, if it's one.
    pub(super) fn set(&self, key: FlowKey, what: u8, serial: u64) -> Result<()> {
        let mark = RawMark { ethernet: [0; 14], what, unused: 0, key: key.raw(), unused2: 0, serial };
        let doing = || "marking a connection".to_owned();
        match run(&self.0, &mark).doing(doing)? {
            CHANGE_DONE | CHANGE_GONE => Ok(()),
            _ => Err(Error::Kernel { doing: doing(), reason: "the program doesn't know such a mark".to_owned() }),
        }
    }
}

/// Whether there was such an entry, or is by now.
///
/// # Errors
/// [`Error::Full`], or what the kernel says.
pub(super) fn apply(program: &OwnedFd, change: &RawChange, capacity: u32) -> Result<bool> {
    let doing = || "changing a flow's entry".to_owned();
    match run(program, change).doing(doing)? {
        CHANGE_DONE => Ok(true),
        CHANGE_GONE => Ok(false),
        CHANGE_FULL => Err(Error::Full { capacity }),
        _ => Err(Error::Kernel { doing: doing(), reason: "no memory for it".to_owned() }),
    }
}

fn run<T: Pod>(program: &OwnedFd, wanted: &T) -> io::Result<u32> {
    const BPF_PROG_RUN: libc::c_long = 10;
    let mut attributes = RunAttributes {
        program: program.as_raw_fd().cast_unsigned(),
        result: 0,
        data_bytes: mem::size_of::<T>() as u32,
        out_bytes: 0,
        data: std::ptr::from_ref(wanted) as u64,
        out: 0,
        repeat: 1,
        duration: 0,
        context_bytes: [0; 2],
        contexts: [0; 2],
        flags: 0,
        processor: 0,
        batch: 0,
        unused: 0,
    };
    // SAFETY: pointer and length describe `attributes`; what it points to is read only, lives through the call, and has no padding.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_RUN, &raw mut attributes, mem::size_of::<RunAttributes>()) };
    if result == 0 { Ok(attributes.result) } else { Err(io::Error::last_os_error()) }
}
