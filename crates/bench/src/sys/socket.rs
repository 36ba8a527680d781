//! TCP sockets by the bare system calls, one call for each function unless said otherwise.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::{checked, checked_size};

/// Longest queue of connections not yet accepted: a run opens up to 18,000 at once.
const BACKLOG: libc::c_int = 16_384;

/// A listener with a long accept queue. `nonblocking` suits epoll; io_uring's multishot accept wants it blocking.
pub(crate) fn listen(address: SocketAddr, nonblocking: bool) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    // SAFETY: plain call on a descriptor that `listener` owns; listening again only changes the queue's length.
    checked(unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) })?;
    listener.set_nonblocking(nonblocking)?;
    Ok(listener)
}

/// Accepts one connection, nonblocking, with Nagle's delay off as it was set on the listener.
///
/// # Errors
/// `WouldBlock` when none is waiting.
pub(crate) fn accept(listener: &TcpListener) -> io::Result<OwnedFd> {
    // SAFETY: null address pointers are allowed: the peer's address isn't wanted.
    let fd = checked(unsafe {
        libc::accept4(
            listener.as_raw_fd(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
        )
    })?;
    // SAFETY: the kernel just gave this descriptor to us and nobody else holds it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets TCP_NODELAY; connections accepted from a listener inherit it.
pub(crate) fn set_no_delay(socket: &impl AsRawFd) -> io::Result<()> {
    set_option(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)
}

/// Bounds the receive buffer, so that a slow reader's window closes early.
pub(crate) fn set_receive_buffer_bytes(socket: &impl AsRawFd, bytes: i32) -> io::Result<()> {
    set_option(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)
}

fn set_option(fd: RawFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the pointer and length name a live `c_int`, which is what these options take.
    checked(unsafe {
        libc::setsockopt(
            fd,
            level,
            name,
            std::ptr::from_ref(&value).cast(),
            std::mem::size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// A nonblocking connection to `address`, with Nagle's delay off: three system calls. It comes from `source` if that is given.
///
/// Over loopback the handshake is over when this returns; elsewhere a send waits for it.
pub(crate) fn connect(
    address: SocketAddr,
    receive_buffer_bytes: Option<i32>,
    source: Option<Ipv4Addr>,
) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: plain call; the descriptor it returns is owned right after.
    let socket = unsafe { OwnedFd::from_raw_fd(checked(libc::socket(family, flags, 0))?) };
    set_no_delay(&socket)?;
    if let Some(bytes) = receive_buffer_bytes {
        set_receive_buffer_bytes(&socket, bytes)?;
    }
    if let Some(source) = source {
        let name = name_of(SocketAddrV4::new(source, 0));
        // SAFETY: `name` is a live sockaddr_in and its size is given.
        checked(unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&name).cast(), bytes_of(&name)) })?;
    }
    let result = match address {
        SocketAddr::V4(address) => connect_to(&socket, &name_of(address)),
        SocketAddr::V6(address) => connect_to(&socket, &name_of_v6(address)),
    };
    match result {
        Ok(()) => Ok(socket),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// A socket whose sends are whole TCP segments for `to`, whose IPv4 header the kernel writes.
pub(crate) fn raw_tcp(to: Ipv4Addr) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: plain call; the descriptor it returns is owned right after.
    let socket = unsafe { OwnedFd::from_raw_fd(checked(libc::socket(libc::AF_INET, flags, libc::IPPROTO_TCP))?) };
    connect_to(&socket, &name_of(SocketAddrV4::new(to, 0)))?;
    Ok(socket)
}

/// `name` is an address as the kernel has it: sockaddr_in or sockaddr_in6.
fn connect_to<T>(socket: &OwnedFd, name: &T) -> io::Result<()> {
    // SAFETY: `name` is live and its size is given.
    let result = unsafe { libc::connect(socket.as_raw_fd(), std::ptr::from_ref(name).cast(), bytes_of(name)) };
    checked(result).map(drop)
}

fn bytes_of<T>(_name: &T) -> libc::socklen_t {
    std::mem::size_of::<T>() as libc::socklen_t
}

fn name_of(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
        sin_zero: [0; 8],
    }
}

fn name_of_v6(address: SocketAddrV6) -> libc::sockaddr_in6 {
    libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as libc::sa_family_t,
        sin6_port: address.port().to_be(),
        sin6_flowinfo: address.flowinfo(),
        sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
        sin6_scope_id: address.scope_id(),
    }
}

/// Makes closing reset the connection, so that it takes up no port afterwards.
pub(crate) fn reset_on_close(socket: &OwnedFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the pointer and length name a live `linger`. That the peer was quicker is no error worth telling.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            std::ptr::from_ref(&linger).cast(),
            std::mem::size_of::<libc::linger>() as libc::socklen_t,
        );
    }
}

/// Receives into `buffer`; 0 means that the peer has finished.
pub(crate) fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer and length are those of a live, exclusive slice.
    checked_size(unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) })
}

/// Sends from `bytes`, returning how many went; never raises SIGPIPE. `more` holds a short packet back for what follows.
pub(crate) fn send(socket: &OwnedFd, bytes: &[u8], more: bool) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
    // SAFETY: the pointer and length are those of a live slice.
    checked_size(unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) })
}

/// Sends up to `count` bytes of `file` from `offset`, from the page cache, moving `offset` on.
pub(crate) fn send_file(
    socket: &OwnedFd,
    file: &impl AsRawFd,
    offset: &mut libc::off_t,
    count: usize,
) -> io::Result<usize> {
    // SAFETY: `offset` is a live, exclusive off_t.
    checked_size(unsafe { libc::sendfile(socket.as_raw_fd(), file.as_raw_fd(), offset, count) })
}
