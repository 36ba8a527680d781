//! Sockets: the system calls that both reactors make, and how listeners are set up. No policy.

use std::io::{self, IoSlice};
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags};

use crate::reactor::{Peer, SendNow};

/// Connections that may wait in a listener's queue; the kernel lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
/// Bytes that the kernel takes from us for a connection beyond what it may send: a client that doesn't read holds this and its own window, not as
/// much as the kernel's buffers have grown to, and what a connection takes along when it moves is little.
const UNSENT_BYTES_MAX: i32 = 128 * 1024;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Sets an integer socket option.
///
/// # Errors
/// Those of setsockopt(2).
pub fn set_option(socket: RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which lives through the call.
    check(unsafe {
        libc::setsockopt(socket, level, name, (&raw const value).cast(), mem::size_of::<i32>() as libc::socklen_t)
    })
    .map(drop)
}

/// Reads an integer socket option.
///
/// # Errors
/// Those of getsockopt(2).
pub fn option(socket: RawFd, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut length = mem::size_of::<i32>() as libc::socklen_t;
    // SAFETY: the pointers describe `value` and `length`, which live through the call.
    check(unsafe { libc::getsockopt(socket, level, name, (&raw mut value).cast(), &raw mut length) })?;
    Ok(value)
}

/// An address as the kernel wants it: storage and used length.
fn to_raw(address: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: all-zero bytes are a valid sockaddr_storage.
    let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let length = match address {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: sockaddr_storage is at least as large and as aligned as any address.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(raw) };
            mem::size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(raw) };
            mem::size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, length as libc::socklen_t)
}

fn from_raw(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that the kernel wrote a sockaddr_in.
            let raw = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(raw.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that the kernel wrote a sockaddr_in6.
            let raw = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            Some(SocketAddr::new(IpAddr::V6(ip).to_canonical(), u16::from_be(raw.sin6_port)))
        }
        _ => None,
    }
}

/// A listening socket with `SO_REUSEPORT`, so that each worker has its own queue. What is set here, accepted sockets inherit.
///
/// # Errors
/// Those of socket(2), bind(2) and listen(2): the address in use, not ours, or not allowed.
pub fn listen(address: SocketAddr) -> io::Result<OwnedFd> {
    listen_with(address, true)
}

/// A listening socket that nobody else may share the address with: refused when anybody listens there already.
///
/// # Errors
/// As [`listen`].
pub fn listen_alone(address: SocketAddr) -> io::Result<OwnedFd> {
    listen_with(address, false)
}

fn listen_with(address: SocketAddr, is_shared: bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: no pointers are passed.
    let raw = check(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: `raw` is a descriptor that was just made and that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    set_option(raw, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    if is_shared {
        set_option(raw, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    }
    if address.is_ipv6() {
        // `[::]:80` and `0.0.0.0:80` are two addresses here, whatever the system's default is.
        set_option(raw, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    }
    // A reply is written as a whole: waiting for the client's acknowledgement before the last segment only delays it.
    set_option(raw, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    limit_unsent(raw)?;
    let (storage, length) = to_raw(address);
    // SAFETY: pointer and length describe `storage`, which lives through the call.
    check(unsafe { libc::bind(raw, (&raw const storage).cast(), length) })?;
    // SAFETY: no pointers are passed.
    check(unsafe { libc::listen(raw, BACKLOG) })?;
    Ok(socket)
}

/// Has the kernel queue little that it can't send yet.
pub(crate) fn limit_unsent(socket: RawFd) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)
}

/// Changes how many connections may wait in a listener's queue; without a number, to as many as at first. Those that wait stay.
pub fn set_queue_max(listener: RawFd, connections: Option<u32>) {
    let backlog = connections.map_or(BACKLOG, |connections| i32::try_from(connections).unwrap_or(BACKLOG));
    // SAFETY: no pointers are passed. It fails only for what isn't a listener any more.
    unsafe { libc::listen(listener, backlog) };
}

type NameCall = unsafe extern "C" fn(libc::c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> libc::c_int;

fn name(socket: RawFd, call: NameCall) -> io::Result<SocketAddr> {
    // SAFETY: all-zero bytes are a valid sockaddr_storage.
    let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let mut length = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // SAFETY: the pointers describe `storage` and its length, which live through the call.
    check(unsafe { call(socket, (&raw mut storage).cast(), &raw mut length) })?;
    from_raw(&storage).ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "not an IP address"))
}

/// The address that a socket is bound to.
///
/// # Errors
/// Those of getsockname(2).
pub fn local_address(socket: &impl AsRawFd) -> io::Result<SocketAddr> {
    name(socket.as_raw_fd(), libc::getsockname)
}

/// The address of the other side; IPv4 in IPv6 is shown as IPv4.
///
/// # Errors
/// Those of getpeername(2): the connection is gone.
pub fn peer_address(socket: RawFd) -> io::Result<SocketAddr> {
    name(socket, libc::getpeername)
}

/// A connection's own address and the other side's.
///
/// # Errors
/// Those of getsockname(2) and getpeername(2): it isn't connected any more.
pub fn ends(socket: &impl AsRawFd) -> io::Result<(SocketAddr, SocketAddr)> {
    Ok((local_address(socket)?, peer_address(socket.as_raw_fd())?))
}

/// A reactor's socket, by its number, for one call.
pub(crate) fn borrow<'a>(socket: RawFd) -> BorrowedFd<'a> {
    // SAFETY: reactors own their sockets by number and close them only when no call is under way: this borrow ends with the call.
    unsafe { BorrowedFd::borrow_raw(socket) }
}

// The calls below go to the kernel directly (rustix), not through the C library: there each of them is a point at which a thread could be
// cancelled, and in a process with threads that costs a twentieth of a small reply.

/// Accepts one connection; `Ok(None)` when none waits.
///
/// # Errors
/// Those of accept4(2), without those that concern only the connection that was to be accepted.
pub fn accept(listener: RawFd, nonblocking: bool) -> io::Result<Option<RawFd>> {
    let mut flags = SocketFlags::CLOEXEC;
    flags.set(SocketFlags::NONBLOCK, nonblocking);
    loop {
        match rustix::net::accept_with(borrow(listener), flags) {
            Ok(socket) => return Ok(Some(socket.into_raw_fd())),
            Err(Errno::AGAIN) => return Ok(None),
            // The client went away while it waited in the queue, or an interruption: the next one is as good.
            Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A socket that is connecting, or connected already; it doesn't block.
///
/// # Errors
/// Those of socket(2) and connect(2), without the one that only says that it isn't decided yet.
pub(crate) fn connect(to: &Peer) -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, socket_with};
    let family = match to {
        Peer::Internet(SocketAddr::V4(_)) => AddressFamily::INET,
        Peer::Internet(SocketAddr::V6(_)) => AddressFamily::INET6,
        Peer::Unix(_) => AddressFamily::UNIX,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    let result = match to {
        Peer::Internet(address) => {
            rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
            rustix::net::connect(&socket, address)
        }
        Peer::Unix(path) => rustix::net::connect(&socket, &SocketAddrUnix::new(path)?),
    };
    match result {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// The error that a socket has met since it was last asked: why a connect failed.
///
/// # Errors
/// That error.
pub(crate) fn take_error(socket: RawFd) -> io::Result<()> {
    match rustix::net::sockopt::socket_error(borrow(socket))? {
        Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Receives into `buffer` without waiting. `Ok(0)` is the end of input.
///
/// # Errors
/// Those of recv(2); `WouldBlock` when nothing is there.
pub fn receive(socket: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::net::recv(borrow(socket), &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((count, _)) => return Ok(count),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Appends what is there to `bytes`, at most `max`, and says how much that was: nothing, where nothing has come or nothing more will.
pub fn receive_into(socket: RawFd, bytes: &mut Vec<u8>, max: usize) -> io::Result<usize> {
    bytes.reserve(max);
    loop {
        let space = &mut bytes.spare_capacity_mut()[..max];
        match rustix::net::recv(borrow(socket), space, RecvFlags::DONTWAIT) {
            Ok(((received, _), _)) => {
                let count = received.len();
                // SAFETY: the kernel has written so many bytes to the beginning of the spare capacity.
                unsafe { bytes.set_len(bytes.len() + count) };
                return Ok(count);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Makes a call that was interrupted again, and says what came of it.
fn send_with(mut call: impl FnMut() -> rustix::io::Result<usize>) -> SendNow {
    loop {
        match call() {
            Ok(count) => return SendNow::Sent(count),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return SendNow::Blocked,
            Err(error) => return SendNow::Failed(error.into()),
        }
    }
}

/// Sends what fits of `bytes` without waiting. `more` holds back a partial segment for what follows at once.
pub fn send(socket: RawFd, bytes: &[u8], more: bool) -> SendNow {
    let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    flags.set(SendFlags::MORE, more);
    send_with(|| rustix::net::send(borrow(socket), bytes, flags))
}

/// Sends what fits of several runs of bytes, one after the other, without waiting.
pub fn send_parts(socket: RawFd, parts: &[IoSlice<'_>]) -> SendNow {
    let empty = parts.iter().take_while(|part| part.is_empty()).count();
    match &parts[empty..] {
        [] => SendNow::Sent(0),
        [only] => send(socket, only, false),
        parts => {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            send_with(|| rustix::net::sendmsg(borrow(socket), parts, &mut SendAncillaryBuffer::default(), flags))
        }
    }
}

/// Sends what fits of a file's range from the page cache. The socket must be non-blocking: sendfile(2) has no flag for it.
pub fn send_file(socket: RawFd, file: RawFd, offset: u64, len: usize) -> SendNow {
    let mut position = offset;
    match send_with(|| rustix::fs::sendfile(borrow(socket), borrow(file), Some(&mut position), len)) {
        SendNow::Sent(0) => SendNow::EndOfFile,
        other => other,
    }
}

/// The kernel's description of a slice that is only read.
pub(crate) fn io_slice(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// Makes calls on a socket that take no flag wait or not.
///
/// # Errors
/// Those of ioctl(2).
pub fn set_nonblocking(socket: RawFd, nonblocking: bool) -> io::Result<()> {
    let mut value = libc::c_int::from(nonblocking);
    // SAFETY: FIONBIO reads an int from the pointer.
    check(unsafe { libc::ioctl(socket, libc::FIONBIO, &raw mut value) }).map(drop)
}

/// `TC_PRIO_INTERACTIVE` (linux/pkt_sched.h): what `pfifo_fast` and most disciplines of network cards send first.
const PRIORITY_INTERACTIVE: i32 = 6;

/// Has what a socket sends go before the rest where this machine's link is full.
///
/// # Errors
/// Those of setsockopt(2).
pub fn send_first(socket: &impl AsRawFd) -> io::Result<()> {
    set_option(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PRIORITY, PRIORITY_INTERACTIVE)
}

/// Whether bytes have come that nobody has received.
#[must_use]
pub fn has_unread(socket: RawFd) -> bool {
    rustix::io::ioctl_fionread(borrow(socket)).is_ok_and(|bytes| bytes > 0)
}

/// Bytes sent and not acknowledged, with those not sent yet.
#[must_use]
pub fn unacknowledged_bytes(socket: RawFd) -> usize {
    let mut value: libc::c_int = 0;
    // SAFETY: TIOCOUTQ writes an int to the pointer.
    let result = unsafe { libc::ioctl(socket, libc::TIOCOUTQ, &raw mut value) };
    if result < 0 { 0 } else { usize::try_from(value).unwrap_or(0) }
}

/// What `SO_MEMINFO` says of memory for what is being sent (`SK_MEMINFO_WMEM_ALLOC` in linux/sock_diag.h).
const SOCKET_MEMORY_SENDING: usize = 2;
/// Asks for the bytes that haven't been sent once (linux/sockios.h).
const SIOCOUTQNSD: libc::Ioctl = 0x894b;

/// Whether bytes wait in this machine to go out on its link: those that have left, and wait for the client or on the way, don't count.
#[must_use]
pub fn waits_at_link(socket: RawFd) -> bool {
    let mut memory = [0_u32; SOCKET_MEMORY_SENDING + 1];
    let mut length = size_of_val(&memory) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to the first pointer, and to the second how many.
    let result = unsafe {
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, memory.as_mut_ptr().cast(), &raw mut length)
    };
    if result == 0 && memory[SOCKET_MEMORY_SENDING] > 0 {
        return true;
    }
    let mut unsent: libc::c_int = 0;
    // SAFETY: SIOCOUTQNSD writes an int to the pointer.
    let result = unsafe { libc::ioctl(socket, SIOCOUTQNSD, &raw mut unsent) };
    result == 0 && unsent > 0
}

/// How long ago the last bytes came, read or not, in whole milliseconds.
#[must_use]
pub fn since_arrival(socket: RawFd) -> Duration {
    tcp_info(socket).map_or(Duration::ZERO, |info| Duration::from_millis(u64::from(info.tcpi_last_data_recv)))
}

pub(crate) fn tcp_info(socket: RawFd) -> Option<libc::tcp_info> {
    // SAFETY: all fields are plain numbers.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut length = mem::size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: pointer and length describe `info`, of which the kernel fills in as much as it knows.
    let result =
        unsafe { libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut length) };
    (result == 0).then_some(info)
}

/// Ends sending, or with `both` both directions. A connection that is gone already is no error.
pub fn shutdown(socket: RawFd, both: bool) {
    let how = if both { libc::SHUT_RDWR } else { libc::SHUT_WR };
    // SAFETY: no pointers are passed.
    unsafe { libc::shutdown(socket, how) };
}

/// Has the kernel wait for no end of the client's, once all has been sent and acknowledged: a socket that began behind that would wait for a minute, and
/// be in the way of a new connection that has the same ends.
///
/// # Errors
/// What the kernel says.
pub fn expect_no_end(socket: &impl AsRawFd) -> io::Result<()> {
    set_option(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_LINGER2, -1)
}

/// Makes the close that follows throw away what is queued and reset the connection.
pub fn reset_on_close(socket: RawFd) {
    set_reset_on_close(socket, true);
}

/// Whether the close that follows does that.
pub(crate) fn set_reset_on_close(socket: RawFd, resets: bool) {
    let linger = libc::linger { l_onoff: resets.into(), l_linger: 0 };
    // SAFETY: pointer and length describe `linger`.
    unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            mem::size_of::<libc::linger>() as libc::socklen_t,
        )
    };
}

/// Makes a reactor's descriptor somebody's own.
pub(crate) fn into_owned(socket: RawFd) -> OwnedFd {
    // SAFETY: the reactor was the owner, by number, and doesn't use it afterwards.
    unsafe { OwnedFd::from_raw_fd(socket) }
}

/// Closes a descriptor that a reactor owns by number.
pub(crate) fn close(socket: RawFd) {
    // SAFETY: the reactor's caller gave up this descriptor; nobody uses it afterwards.
    unsafe { libc::close(socket) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_tells_the_port_it_was_given() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = listen(address.parse().unwrap()).unwrap();
            let bound = local_address(&listener).unwrap();
            assert_ne!(bound.port(), 0);
            assert_eq!(bound.ip().to_string(), address.parse::<SocketAddr>().unwrap().ip().to_string());
            let second = listen(bound).expect("SO_REUSEPORT lets another worker listen on the same port");
            assert_eq!(local_address(&second).unwrap(), bound);
        }
    }

    #[test]
    fn a_listener_with_nobody_waiting_does_not_block() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        set_nonblocking(listener.as_raw_fd(), true).unwrap();
        assert!(accept(listener.as_raw_fd(), true).unwrap().is_none());
    }

    #[test]
    fn a_client_that_does_not_read_is_sent_little() {
        use std::io::Write;
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let client = std::net::TcpStream::connect(local_address(&listener).unwrap()).unwrap();
        let accepted = std::net::TcpListener::from(listener).accept().unwrap().0;
        accepted.set_nonblocking(true).unwrap();
        let mut taken_bytes = 0;
        let error = loop {
            match (&accepted).write(&[0; 64 * 1024]) {
                Ok(count) => taken_bytes += count,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        // What the client's kernel takes is its own affair.
        let unread_bytes = option(client.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap() as usize;
        assert!(taken_bytes <= UNSENT_BYTES_MAX as usize + unread_bytes + 128 * 1024, "{taken_bytes}");
    }

    #[test]
    fn it_is_known_how_long_ago_bytes_came_that_nobody_has_read() {
        use std::io::Write;
        let old = Duration::from_millis(40);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        client.write_all(b"once").unwrap();
        while since_arrival(server.as_raw_fd()) < old {
            std::thread::yield_now();
        }
        client.write_all(b"again").unwrap();
        while since_arrival(server.as_raw_fd()) >= old {
            std::thread::yield_now();
        }
        assert_eq!(since_arrival(-1), Duration::ZERO);
    }
}
