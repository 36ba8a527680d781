//! The taking side: a [`TcpState`] becomes a live socket. Whether the state may be trusted, and its address taken, is decided before.

use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use leat_logic::handoff::limits::RESEND_BYTES_MAX;
use leat_logic::handoff::{Congestion, TcpState};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use super::congestion;
use super::deaf::Deafness;
use super::repair::{self, Agreed, Queue};
use super::{Error, Freezer, QUEUE_BYTES_MAX, Result, Step, UNREAD_BYTES_MAX};
use crate::socket::{self, set_option};

/// The kernel takes a piece of a receive queue as one allocation.
const UNREAD_PIECE_BYTES: usize = 32 * 1024;

/// At least what the kernel counts for a segment that waits, beside its bytes.
const SEGMENT_OVERHEAD_BYTES: usize = 1024;

/// What the kernel lets be set (TCP_MIN_MSS, MAX_TCP_WINDOW). Only a loopback has larger segments.
const MSS: RangeInclusive<u16> = 88..=32_767;

/// Missing in the libc crate for this target (include/uapi/asm-generic/socket.h).
const SO_BUF_LOCK: i32 = 72;

/// Option numbers in a TCP header.
mod code {
    pub(super) const MSS: u32 = 2;
    pub(super) const WINDOW_SCALE: u32 = 3;
    pub(super) const SACK_PERMITTED: u32 = 4;
    pub(super) const TIMESTAMP: u32 = 8;
}

impl Freezer {
    /// Makes a connection that lives, from what [`Freezer::freeze`] read here or elsewhere. The unread bytes are read from the socket as if they
    /// had just arrived; the unacknowledged and the unsent ones are the kernel's to send.
    ///
    /// The address must be one that this host takes packets for (a `local` route suffices). The socket doesn't block and sends without delay.
    ///
    /// # Errors
    /// The step that failed; nothing was sent to the client.
    pub fn thaw(&self, state: &TcpState) -> Result<OwnedFd> {
        self.thaw_knowing(state, Congestion::default())
    }

    /// As [`Freezer::thaw`], and what was known of the way to the client goes along.
    ///
    /// # Errors
    /// As [`Freezer::thaw`].
    pub fn thaw_knowing(&self, state: &TcpState, known: Congestion) -> Result<OwnedFd> {
        check(state)?;
        let family = if state.local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let owned = rustix::net::socket_with(family, SocketType::STREAM, flags, None).step("socket")?;
        let socket = owned.as_raw_fd();
        // From the connect on the kernel finds the socket: until it is whole it mustn't hear anything.
        self.deafness.begin(socket).step("SO_ATTACH_BPF")?;
        repair::begin(socket).step("TCP_REPAIR")?;
        congestion::set(socket, known, state.mss, self.complain);
        place(socket, state)?;
        agree(socket, state)?;
        fill(socket, state)?;
        begin(socket, state).inspect_err(|_| {
            // Closed like this it's gone without a word, and its place is free for another try.
            let _ = repair::begin(socket);
        })?;
        Ok(owned)
    }
}

/// That the two ends are of one family and somebody's, and that there isn't more than may be carried.
fn check(state: &TcpState) -> Result<()> {
    let (local, remote) = (state.local, state.remote);
    let is_somebodys = |address: SocketAddr| !address.ip().is_unspecified() && address.port() != 0;
    if local.is_ipv4() != remote.is_ipv4() || !is_somebodys(local) || !is_somebodys(remote) {
        return Err(Error::Addresses { local, remote });
    }
    let outstanding = state.sent.len() + state.unsent.len();
    let outstanding_max = QUEUE_BYTES_MAX + RESEND_BYTES_MAX as usize;
    for (queue, bytes, most) in
        [("unread", state.unread.len(), UNREAD_BYTES_MAX), ("unacknowledged", outstanding, outstanding_max)]
    {
        if bytes > most {
            return Err(Error::TooMuchQueued { queue, bytes, most });
        }
    }
    Ok(())
}

/// Addresses and sequence numbers; ends established.
fn place(socket: RawFd, state: &TcpState) -> Result<()> {
    if state.local.is_ipv6() {
        // A local route makes an IPv4 address bindable, an IPv6 one not.
        set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_FREEBIND, 1).step("IPV6_FREEBIND")?;
    }
    rustix::net::bind(socket::borrow(socket), &state.local).step("bind")?;
    let outstanding = state.sent.len() + state.unsent.len();
    // Before the connect, which derives the largest window from the buffer.
    let incoming = state.unread.len() + state.window.rcv_wnd as usize;
    make_room(socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, incoming).step("SO_RCVBUFFORCE")?;
    let mss = mss_within(state.mss, state.window.max_window).clamp(*MSS.start(), *MSS.end());
    let outgoing = outstanding + outstanding.div_ceil(usize::from(mss)) * SEGMENT_OVERHEAD_BYTES;
    make_room(socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, outgoing).step("SO_SNDBUFFORCE")?;
    repair::select(socket, Queue::Send).step("TCP_REPAIR_QUEUE send")?;
    repair::set_sequence(socket, state.send_next.wrapping_sub(outstanding as u32))
        .step("TCP_QUEUE_SEQ of the send queue")?;
    repair::select(socket, Queue::Receive).step("TCP_REPAIR_QUEUE receive")?;
    repair::set_sequence(socket, state.receive_next.wrapping_sub(state.unread.len() as u32))
        .step("TCP_QUEUE_SEQ of the receive queue")?;
    // Before the connect, which fixes the size of segments: without it they have 524 bytes until the path's MTU changes.
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG, i32::from(mss)).step("TCP_MAXSEG")?;
    rustix::net::connect(socket::borrow(socket), &state.remote).step("connect")
}

/// The largest segment for a client with this `max_window`: half of it, all of it where it's tiny (the kernel's own rule, `tcp_bound_to_half_wnd`).
/// The kernel sends no segment larger than the window but as a probe: one each 200 ms.
fn mss_within(mss: u16, max_window: u32) -> u16 {
    /// TCP_MSS_DEFAULT.
    const TINY: u32 = 536;
    let most = if max_window > TINY { max_window / 2 } else { max_window };
    if most == 0 { mss } else { mss.min(u16::try_from(most).unwrap_or(u16::MAX)) }
}

/// What the handshake agreed on.
fn agree(socket: RawFd, state: &TcpState) -> Result<()> {
    let mut options = [Agreed::default(); 4];
    let mut count = 0;
    let mut add = |code, value| {
        options[count] = Agreed { code, value };
        count += 1;
    };
    // Always, also when there is none: the connect has prepared this host's own.
    let scale = state.window_scale.map_or(0, |scale| u32::from(scale.send) | u32::from(scale.receive) << 16);
    add(code::WINDOW_SCALE, scale);
    add(code::MSS, u32::from(state.mss));
    if state.sack {
        add(code::SACK_PERMITTED, 0);
    }
    if state.timestamp.is_some() {
        add(code::TIMESTAMP, 0);
    }
    repair::set_agreed(socket, &options[..count]).step("TCP_REPAIR_OPTIONS")?;
    match state.timestamp {
        // Past what was sent before. The lowest bit isn't time, and would make microseconds of it.
        Some(timestamp) => repair::set_timestamp(socket, (timestamp & !1).wrapping_add(2)).step("TCP_TIMESTAMP"),
        None => Ok(()),
    }
}

/// The queues, as far as the client knows of them, and the windows.
fn fill(socket: RawFd, state: &TcpState) -> Result<()> {
    for piece in state.unread.chunks(UNREAD_PIECE_BYTES) {
        send_all(socket, piece).step("unread bytes")?;
    }
    if !state.sent.is_empty() {
        repair::select(socket, Queue::Send).step("TCP_REPAIR_QUEUE send")?;
        send_all(socket, &state.sent).step("unacknowledged bytes")?;
    }
    repair::set_window(socket, state.window).step("TCP_REPAIR_WINDOW")
}

/// Lets the connection live.
fn begin(socket: RawFd, state: &TcpState) -> Result<()> {
    repair::end(socket, false).step("TCP_REPAIR off")?;
    Deafness::end(socket).step("SO_DETACH_FILTER")?;
    if !state.sent.is_empty() {
        // Its acknowledgement may have been lost on the way, and without an estimate of the round trip the kernel would wait for a second
        // before it asks. Only now, as the answer can come before the call returns.
        repair::begin(socket).step("TCP_REPAIR")?;
        repair::end(socket, true).step("TCP_REPAIR off")?;
    }
    // Repair leaves the address unshareable, and a listener on it couldn't be bound again.
    set_option(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).step("SO_REUSEADDR")?;
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1).step("TCP_NODELAY")?;
    send_all(socket, &state.unsent).step("unsent bytes")?;
    socket::limit_unsent(socket).step("TCP_NOTSENT_LOWAT")
}

/// Enlarges a buffer that would be too small for what the connection brings, and lets the kernel tune it afterwards as it does any other.
fn make_room(socket: RawFd, force: i32, buffer: i32, bytes: usize) -> io::Result<()> {
    // The kernel counts its own overhead as well, and doubles what it's told for that.
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX / 2);
    if bytes == 0 || bytes < socket::option(socket, libc::SOL_SOCKET, buffer)? / 2 {
        return Ok(());
    }
    set_option(socket, libc::SOL_SOCKET, force, bytes)?;
    match set_option(socket, libc::SOL_SOCKET, SO_BUF_LOCK, 0) {
        // Before Linux 5.14: the buffer stays as it is.
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
        other => other,
    }
}

fn send_all(socket: RawFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = rustix::net::send(socket::borrow(socket), bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
        bytes = &bytes[count..];
    }
    Ok(())
}
