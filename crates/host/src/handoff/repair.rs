//! The socket options of `TCP_REPAIR`, one function for each (Documentation of them is the kernel's net/ipv4/tcp.c). The order of calls is
//! the callers'.

use std::io;
use std::mem;
use std::os::fd::RawFd;
use std::time::Duration;

use leat_logic::handoff::{Congestion, TcpWindow};

use crate::socket::{option, set_option};

// Missing in the libc crate for this target (include/uapi/linux/tcp.h).
const TCP_REPAIR_OFF: i32 = 0;
const TCP_REPAIR_ON: i32 = 1;
const TCP_REPAIR_OFF_WITHOUT_PROBE: i32 = -1;

/// Which of the two queues the following calls are about.
#[derive(Debug, Clone, Copy)]
pub(super) enum Queue {
    Receive = 1,
    Send = 2,
}

/// `struct tcp_repair_opt`: the option's number in a TCP header, and its value.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Agreed {
    pub(super) code: u32,
    pub(super) value: u32,
}

pub(super) const OPTION_TIMESTAMPS: u8 = 1;
pub(super) const OPTION_SACK: u8 = 2;
pub(super) const OPTION_WINDOW_SCALE: u8 = 4;

/// The start of `struct tcp_info`, as far as anything here is wanted of it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Info {
    pub(super) state: u8,
    _congestion_state_retransmits_probes_backoff: [u8; 4],
    /// Bits as above: what the handshake agreed on.
    pub(super) options: u8,
    /// The client's in the lower half, this side's in the upper.
    pub(super) window_scales: u8,
    _flags: u8,
    /// How long an acknowledgement is waited for, in us.
    resend_timeout_us: u32,
    _ato_to_receive_mss: [u32; 3],
    /// Segments that were sent and not acknowledged.
    unacknowledged: u32,
    _sacked_to_fackets: [u32; 4],
    since_sent_ms: u32,
    _last_ack_sent_to_receive_ssthresh: [u32; 5],
    srtt_us: u32,
    rttvar_us: u32,
    ssthresh: u32,
    cwnd: u32,
    _mss_to_retransmits: [u32; 5],
    _pacing: [u64; 2],
    pub(super) counts: Counts,
    _segments: [u32; 2],
    /// Bytes written and not sent.
    unsent: u32,
    /// The highest number if none has been measured.
    shortest_round_trip_us: u32,
    _data_segments: [u32; 2],
    _rate_to_limits: [u64; 4],
    _delivered: [u32; 2],
    sent: u64,
    sent_again: u64,
}

impl Info {
    /// Whether the send queue was empty: nothing sent that wasn't acknowledged, and nothing left to send.
    pub(super) fn has_all_acknowledged(&self) -> bool {
        self.unacknowledged == 0 && self.unsent == 0
    }

    /// Bytes that were written and not sent yet, where `later` was read after this one and nothing was written between them. A timer of a socket
    /// whose send queue is selected pretends to send, and takes bytes out of what the kernel says to be unsent that never were on the way; they
    /// don't count here.
    pub(super) fn unsent_by(&self, later: &Info) -> usize {
        let first = |info: &Info| info.sent.saturating_sub(info.sent_again);
        (self.unsent as usize).saturating_sub(first(later).saturating_sub(first(self)) as usize)
    }

    pub(super) fn shortest_round_trip(&self) -> Duration {
        Duration::from_micros(self.shortest_round_trip_us.into())
    }

    /// Since it sent data, or was made.
    pub(super) fn since_sent(&self) -> Duration {
        Duration::from_millis(self.since_sent_ms.into())
    }

    pub(super) fn resend_timeout(&self) -> Duration {
        Duration::from_micros(self.resend_timeout_us.into())
    }

    pub(super) fn congestion(&self) -> Congestion {
        let Info { srtt_us, rttvar_us, cwnd, ssthresh, .. } = *self;
        Congestion { srtt_us, rttvar_us, cwnd, ssthresh }
    }
}

/// Bytes in both directions since the connection began, or since its sequence numbers were set.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) acknowledged: u64,
    pub(super) received: u64,
}

pub(super) fn begin(socket: RawFd) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR, TCP_REPAIR_ON)
}

/// Ends it; with `probe` the kernel sends a segment that the client answers with what it has received and how much it takes.
pub(super) fn end(socket: RawFd, probe: bool) -> io::Result<()> {
    let how = if probe { TCP_REPAIR_OFF } else { TCP_REPAIR_OFF_WITHOUT_PROBE };
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR, how)
}

pub(super) fn select(socket: RawFd, queue: Queue) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR_QUEUE, queue as i32)
}

/// Of the selected queue: the sequence number after its last byte.
pub(super) fn sequence(socket: RawFd) -> io::Result<u32> {
    option(socket, libc::IPPROTO_TCP, libc::TCP_QUEUE_SEQ).map(i32::cast_unsigned)
}

pub(super) fn set_sequence(socket: RawFd, sequence: u32) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_QUEUE_SEQ, sequence.cast_signed())
}

pub(super) fn timestamp(socket: RawFd) -> io::Result<u32> {
    option(socket, libc::IPPROTO_TCP, libc::TCP_TIMESTAMP).map(i32::cast_unsigned)
}

pub(super) fn set_timestamp(socket: RawFd, timestamp: u32) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_TIMESTAMP, timestamp.cast_signed())
}

pub(super) fn info(socket: RawFd) -> io::Result<Info> {
    get(socket, libc::TCP_INFO)
}

pub(super) fn window(socket: RawFd) -> io::Result<TcpWindow> {
    let [snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup] = get(socket, libc::TCP_REPAIR_WINDOW)?;
    Ok(TcpWindow { snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup })
}

pub(super) fn set_window(socket: RawFd, window: TcpWindow) -> io::Result<()> {
    let TcpWindow { snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup } = window;
    set(socket, libc::TCP_REPAIR_WINDOW, &[snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup])
}

pub(super) fn set_agreed(socket: RawFd, options: &[Agreed]) -> io::Result<()> {
    set(socket, libc::TCP_REPAIR_OPTIONS, options)
}

/// Bytes received and not read.
pub(super) fn unread_bytes(socket: RawFd) -> io::Result<usize> {
    queued(socket, libc::FIONREAD)
}

/// Bytes written and not acknowledged, sent or not.
pub(super) fn unacknowledged_bytes(socket: RawFd) -> io::Result<usize> {
    queued(socket, libc::TIOCOUTQ)
}

fn queued(socket: RawFd, request: libc::Ioctl) -> io::Result<usize> {
    let mut value: libc::c_int = 0;
    // SAFETY: both requests above writes an int to the pointer.
    if unsafe { libc::ioctl(socket, request, &raw mut value) } < 0 {
        return Err(io::Error::last_os_error());
    }
    usize::try_from(value).map_err(|_| io::Error::other(format!("a queue of {value} bytes")))
}

/// What the kernel writes and reads as it is in memory.
trait Plain: Copy + Default {}
impl Plain for u32 {}
impl Plain for [u32; 5] {}
impl Plain for Agreed {}
impl Plain for Info {}

fn get<T: Plain>(socket: RawFd, name: i32) -> io::Result<T> {
    let mut value = T::default();
    let mut length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointers describe `value` and `length`; every pattern of bytes is a `T`, which is `repr(C)` and has only integers.
    let result = unsafe { libc::getsockopt(socket, libc::IPPROTO_TCP, name, (&raw mut value).cast(), &raw mut length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

fn set<T: Plain>(socket: RawFd, name: i32, values: &[T]) -> io::Result<()> {
    let length = mem::size_of_val(values) as libc::socklen_t;
    // SAFETY: pointer and length describe `values`, integers without padding between them.
    let result = unsafe { libc::setsockopt(socket, libc::IPPROTO_TCP, name, values.as_ptr().cast(), length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
