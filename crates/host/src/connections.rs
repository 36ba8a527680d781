//! Other processes' TCP sockets in this network namespace, as the kernel lists them (sock_diag(7)): who listens, how much there is to do, what a process
//! has left that died, and how often a listener had no room. Decides nothing.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use aya::util::KernelVersion;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, bind, netlink, recv, send, socket, sockopt};

const HEADER: usize = 16;
/// `struct inet_diag_req` and `struct inet_diag_msg`. The older kind of request is for all families: the kernel goes through its whole table of connections
/// for each, which takes milliseconds however few there are.
const REQUEST: usize = 60;
const STATES: usize = 52;
const MESSAGE: usize = 72;

/// `enum` values of linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h and net/tcp_states.h.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const TCPDIAG_GETSOCK: u16 = 18;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SOCK_DESTROY: u16 = 21;
const REQUEST_DUMP: u16 = 0x301;
const REQUEST_ACKNOWLEDGED: u16 = 0x5;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_MARK: u16 = 15;
const LISTEN: u32 = 1 << 10;
/// ESTABLISHED, FIN_WAIT1, CLOSE_WAIT, LAST_ACK, CLOSING: there may be something to send.
const OPEN: u32 = 1 << 1 | 1 << 4 | 1 << 8 | 1 << 9 | 1 << 11;
/// FIN_WAIT1, LAST_ACK, CLOSING: this side's end hasn't been acknowledged.
const ENDING: u32 = 1 << 4 | 1 << 9 | 1 << 11;
/// `struct inet_diag_req_v2`, whose end, as that of a message's head, says which socket.
const ONE: usize = 56;
const SOCKET_ID: usize = 48;
/// What of `struct inet_diag_msg` says how much waits to be read, and how much hasn't been acknowledged.
const RECEIVED: usize = 56;
const QUEUED: usize = 60;

/// Connections of some local addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// All of them.
    pub connections: u32,
    /// Those whose client has sent something since it was last sent something, or that have something to send.
    pub busy: u32,
}

/// Whether a socket listens at `address`, or at all addresses with its port.
///
/// # Errors
/// What the kernel says.
pub fn has_listener(address: SocketAddr) -> io::Result<bool> {
    let mut is_there = false;
    // A socket of all IPv6 addresses may take IPv4 as well.
    list(LISTEN, address.port(), |entry| {
        is_there |= entry.local.is_some_and(|local| local.is_unspecified() || local == address.ip());
    })?;
    Ok(is_there)
}

/// Whether those that listen at `address` share it (`SO_REUSEPORT`). Those of another user's aren't found out.
#[must_use]
pub fn is_shared(address: SocketAddr) -> bool {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    // Only where all have said so may one more have the address.
    let Ok(one) = socket(family, SocketType::STREAM, None) else { return false };
    sockopt::set_socket_reuseport(&one, true).is_ok() && bind(&one, &address).is_ok()
}

/// The connections of all `addresses` together. The kernel goes through its table once for each port.
///
/// # Errors
/// What the kernel says.
pub fn open_at(addresses: &[SocketAddr]) -> io::Result<Open> {
    let mut open = Open::default();
    for port in addresses.iter().map(SocketAddr::port).collect::<BTreeSet<_>>() {
        let is_one = |ip| addresses.contains(&SocketAddr::new(ip, port));
        // Those that a socket of all IPv6 addresses has accepted are listed under that family.
        list(OPEN, port, |entry| {
            if entry.local.is_some_and(is_one) {
                open.connections += 1;
                open.busy += u32::from(entry.is_busy);
            }
        })?;
    }
    Ok(open)
}

/// Whether a process has a connection of `address`. One that was killed has its own until the kernel has taken down its io_uring, which a thread of the
/// kernel's does after the process is gone.
///
/// # Errors
/// What the kernel says.
pub fn are_held(address: SocketAddr) -> io::Result<bool> {
    let mut are_held = false;
    list(OPEN, address.port(), |entry| are_held |= entry.local == Some(address.ip()) && !entry.is_orphan)?;
    Ok(are_held)
}

/// How often the queue of any listener in this thread's network namespace had no room for a connection, since the kernel began to count.
///
/// # Errors
/// What the kernel says, or that it doesn't count them.
pub fn overflows() -> io::Result<u64> {
    // Two lines for each group of counters: their names, and their values in the same order.
    let counters = std::fs::read_to_string("/proc/thread-self/net/netstat")?;
    let mut lines = counters.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut counters = names.split_whitespace().zip(values.split_whitespace());
    let value = counters.find_map(|(name, value)| (name == "ListenOverflows").then(|| value.parse().ok())?);
    value.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Whether this host's end of a connection, at `local`, is open both ways and has nothing left to do: its process has read all that has come, and all that it
/// has written has been sent. Its other end may still have to say that it has got it.
///
/// # Errors
/// What the kernel says; not that there is no such connection.
pub fn is_quiet(local: SocketAddr, remote: SocketAddr) -> io::Result<bool> {
    const ESTABLISHED: u8 = 1;
    /// In `struct tcp_info`.
    const NOT_SENT: usize = 144;
    let mut is_quiet = false;
    look_up(local, remote, |message| {
        let info = find(message.get(MESSAGE..).unwrap_or_default(), INET_DIAG_INFO);
        let is_all_sent = info.is_some_and(|info| info.len() >= NOT_SENT + 4 && number_at(info, NOT_SENT) == 0);
        is_quiet = message.get(1) == Some(&ESTABLISHED) && number_at(message, RECEIVED) == 0 && is_all_sent;
    })?;
    Ok(is_quiet)
}

/// Whether this host has its end of a connection, at `local`, or remembers it.
///
/// # Errors
/// What the kernel says.
pub fn is_there(local: SocketAddr, remote: SocketAddr) -> io::Result<bool> {
    let mut is_there = false;
    // One that isn't there is answered with the listener at `local`, if there is one.
    look_up(local, remote, |message| is_there = message.get(1).is_some_and(|&state| 1 << state != LISTEN))?;
    Ok(is_there)
}

/// Shows what the kernel has of a connection, if it has any.
fn look_up(local: SocketAddr, remote: SocketAddr, see: impl FnMut(&[u8])) -> io::Result<()> {
    let socket = socket(AddressFamily::NETLINK, SocketType::DGRAM, Some(netlink::SOCK_DIAG))?;
    let (family, id) = socket_id(local, remote);
    let mut request = about(SOCK_DIAG_BY_FAMILY, family, &id);
    request[HEADER + 2] = 1 << (INET_DIAG_INFO - 1);
    send(&socket, &request, SendFlags::empty())?;
    match receive(&socket, see) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        seen => seen,
    }
}

/// `struct inet_diag_sockid`, with the family that it's of.
fn socket_id(local: SocketAddr, remote: SocketAddr) -> (u8, [u8; SOCKET_ID]) {
    let (local_ip, remote_ip) = (local.ip().to_canonical(), remote.ip().to_canonical());
    let family = if local_ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut id = [0; SOCKET_ID];
    id[..2].copy_from_slice(&local.port().to_be_bytes());
    id[2..4].copy_from_slice(&remote.port().to_be_bytes());
    for (at, ip) in [(4, local_ip), (20, remote_ip)] {
        match ip {
            IpAddr::V4(ip) => id[at..at + 4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => id[at..at + 16].copy_from_slice(&ip.octets()),
        }
    }
    // Whatever its cookie is.
    id[40..].fill(0xff);
    (family.as_raw() as u8, id)
}

/// Has the kernel forget the connections of `address` that no process has any more and whose ends aren't acknowledged, unless they were closed under `mark`:
/// while it tries to end them, nobody else here can have them. Returns how many there were; none on kernels before 6.11, which would keep them for ever
/// instead, as they end no socket that no process has but stop its timers.
///
/// # Errors
/// Not allowed (`CAP_NET_ADMIN`), or made without `CONFIG_INET_DIAG_DESTROY`.
pub fn forget_orphans(address: SocketAddr, mark: u32) -> io::Result<usize> {
    if !can_forget_orphans() {
        return Ok(0);
    }
    let mut orphans = Vec::new();
    list(ENDING, address.port(), |entry| {
        if entry.local == Some(address.ip()) && entry.is_orphan && entry.mark != mark {
            orphans.push((entry.family, entry.id));
        }
    })?;
    let socket = socket(AddressFamily::NETLINK, SocketType::DGRAM, Some(netlink::SOCK_DIAG))?;
    for (family, id) in &orphans {
        destroy(&socket, *family, id)?;
    }
    Ok(orphans.len())
}

/// Has the kernel forget a handshake that it answers and whose client has yet to hear it, if that is all that it has of a connection: nobody else here can have one with
/// the same ends. Returns whether it was that.
///
/// # Errors
/// Not allowed (`CAP_NET_ADMIN`), or made without `CONFIG_INET_DIAG_DESTROY`.
pub fn forget_handshake(local: SocketAddr, remote: SocketAddr) -> io::Result<bool> {
    const SYN_RECEIVED: u8 = 3;
    let mut is_handshake = false;
    look_up(local, remote, |message| is_handshake = message.get(1) == Some(&SYN_RECEIVED))?;
    if is_handshake {
        let socket = socket(AddressFamily::NETLINK, SocketType::DGRAM, Some(netlink::SOCK_DIAG))?;
        let (family, id) = socket_id(local, remote);
        destroy(&socket, family, &id)?;
    }
    Ok(is_handshake)
}

/// One that has ended meanwhile is no error.
fn destroy(socket: &OwnedFd, family: u8, id: &[u8; SOCKET_ID]) -> io::Result<()> {
    send(socket, &about(SOCK_DESTROY, family, id), SendFlags::empty())?;
    match receive(socket, |_| {}) {
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
        _ => Ok(()),
    }
}

/// Whether [`forget_orphans`] does anything.
#[must_use]
pub fn can_forget_orphans() -> bool {
    KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(6, 11, 0))
}

struct Entry {
    family: u8,
    id: [u8; SOCKET_ID],
    local: Option<IpAddr>,
    is_busy: bool,
    is_orphan: bool,
    mark: u32,
}

/// The sockets of both families, in these states and with this port.
fn list(states: u32, port: u16, mut see: impl FnMut(&Entry)) -> io::Result<()> {
    let socket = socket(AddressFamily::NETLINK, SocketType::DGRAM, Some(netlink::SOCK_DIAG))?;
    send(&socket, &request(states, port), SendFlags::empty())?;
    receive(&socket, |message| {
        if let Some(entry) = Entry::read(message) {
            see(&entry);
        }
    })
}

fn begin(message: &mut [u8], kind: u16, flags: u16) -> &mut [u8] {
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&flags.to_ne_bytes());
    &mut message[HEADER..]
}

/// A request about one socket.
fn about(kind: u16, family: u8, id: &[u8; SOCKET_ID]) -> [u8; HEADER + ONE] {
    let mut bytes = [0; HEADER + ONE];
    let body = begin(&mut bytes, kind, REQUEST_ACKNOWLEDGED);
    (body[0], body[1]) = (family, libc::IPPROTO_TCP as u8);
    body[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
    body[ONE - SOCKET_ID..].copy_from_slice(id);
    bytes
}

fn request(states: u32, port: u16) -> [u8; HEADER + REQUEST] {
    let mut bytes = [0; HEADER + REQUEST];
    let body = begin(&mut bytes, TCPDIAG_GETSOCK, REQUEST_DUMP);
    body[3] = 1 << (INET_DIAG_INFO - 1);
    body[4..6].copy_from_slice(&port.to_be_bytes());
    body[STATES..STATES + 4].copy_from_slice(&states.to_ne_bytes());
    bytes
}

/// Each message's content, up to the end of the list.
fn receive(socket: &OwnedFd, mut see: impl FnMut(&[u8])) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let (count, _) = recv(socket, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = &buffer[..count];
        while let Some(header) = rest.first_chunk::<HEADER>() {
            let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
            let Some(message) = rest.get(HEADER..length) else { return Err(io::ErrorKind::InvalidData.into()) };
            match u16::from_ne_bytes([header[4], header[5]]) {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => {
                    // An acknowledgement is an error of number 0.
                    let number = message.first_chunk().map_or(libc::EPROTO, |number| -i32::from_ne_bytes(*number));
                    return if number == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(number)) };
                }
                TCPDIAG_GETSOCK | SOCK_DIAG_BY_FAMILY => see(message),
                _ => {}
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

impl Entry {
    fn read(message: &[u8]) -> Option<Entry> {
        let number = |at: usize| Some(u32::from_ne_bytes(message.get(at..at + 4)?.try_into().ok()?));
        let local: [u8; 16] = message.get(8..24)?.try_into().ok()?;
        let is_ipv4 = i32::from(*message.first()?) == i32::from(AddressFamily::INET.as_raw());
        let local = if is_ipv4 {
            local.first_chunk::<4>().map(|octets| IpAddr::from(*octets))
        } else {
            Some(IpAddr::from(local).to_canonical())
        };
        let has_queued = number(RECEIVED)? > 0 || number(QUEUED)? > 0;
        let attributes = message.get(MESSAGE..)?;
        Some(Entry {
            family: *message.first()?,
            id: message.get(4..4 + SOCKET_ID)?.try_into().ok()?,
            local,
            is_busy: has_queued || find(attributes, INET_DIAG_INFO).is_some_and(is_owing),
            is_orphan: number(68)? == 0,
            mark: find(attributes, INET_DIAG_MARK).map_or(0, |value| number_at(value, 0)),
        })
    }
}

/// An attribute's value.
fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let header = attributes.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = attributes.get(4..length)?;
        if u16::from_ne_bytes([header[2], header[3]]) == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

/// 0 where there is none.
fn number_at(value: &[u8], at: usize) -> u32 {
    value.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

/// Whether the last data of a connection was the client's, by the times in its `struct tcp_info`.
fn is_owing(info: &[u8]) -> bool {
    const LAST_SENT: usize = 44;
    const LAST_RECEIVED: usize = 52;
    number_at(info, LAST_RECEIVED) < number_at(info, LAST_SENT)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn connections_of_several_addresses_are_counted_together_whatever_their_ports() {
        let listen = |address: &str| TcpListener::bind(address).expect("a free port");
        let first = listen("127.0.0.1:0");
        let port = first.local_addr().expect("it's bound").port();
        let listeners = [first, listen(&format!("127.0.0.2:{port}")), listen("127.0.0.1:0")];
        let addresses = listeners.each_ref().map(|one| one.local_addr().expect("it's bound"));
        let _clients = addresses.map(|address| TcpStream::connect(address).expect("it listens"));
        let _servers = listeners.each_ref().map(|one| one.accept().expect("a connection"));
        let count = |addresses: &[SocketAddr]| open_at(addresses).expect("the kernel tells").connections;
        assert_eq!((count(&addresses), count(&addresses[..2]), count(&addresses[1..])), (3, 2, 2));
        assert_eq!((count(&addresses[..1]), count(&[])), (1, 0), "who has the same port isn't among them");
    }

    #[test]
    fn it_is_found_out_whether_listeners_share_their_address() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let alone = TcpListener::bind(address).unwrap();
            let shared = crate::socket::listen(address.parse().unwrap()).unwrap();
            let shared_at = crate::socket::local_address(&shared).unwrap();
            assert_eq!((is_shared(alone.local_addr().unwrap()), is_shared(shared_at)), (false, true));
        }
    }

    #[test]
    fn what_a_process_has_left_can_be_had_again() {
        if !super::can_forget_orphans() {
            return println!("skipped: it needs Linux 6.11");
        }
        const MARK: u32 = 7;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it's bound");
        let mut clients = Vec::new();
        let mut leave = |mark| {
            let client = TcpStream::connect(address).expect("it listens");
            let (mut server, _) = listener.accept().expect("a connection");
            if crate::socket::set_option(server.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MARK, mark).is_err() {
                return false;
            }
            server.set_nonblocking(true).expect("it's a socket");
            // Its end comes behind what its client doesn't read.
            while server.write(&[0; 1 << 16]).is_ok() {}
            clients.push(client);
            true
        };
        if !(leave(0) && leave(MARK.cast_signed()) && leave(0)) {
            return println!("skipped: it needs CAP_NET_ADMIN");
        }
        assert_eq!(forget_orphans(address, MARK).expect("the kernel does so"), 2);
        assert_eq!(forget_orphans(address, MARK).expect("the kernel does so"), 0);
        assert_eq!(
            open_at(&[address]).expect("the kernel tells").connections,
            1,
            "what was closed on purpose ends in order"
        );
    }

    #[test]
    fn a_connection_is_held_by_who_has_accepted_it_until_it_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it's bound");
        let are_held = || are_held(address).expect("the kernel tells");
        let _client = TcpStream::connect(address).expect("it listens");
        assert!(!are_held(), "it waits to be accepted");
        let (server, _) = listener.accept().expect("a connection");
        assert!(are_held());
        drop(server);
        assert!(!are_held());
    }

    #[test]
    fn who_finds_no_room_is_counted() {
        let listener = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        rustix::net::listen(&listener, 0).expect("it's bound");
        let address = crate::socket::local_address(&listener).expect("it's bound");
        let before = overflows().expect("the kernel tells");
        let _queued = TcpStream::connect(address).expect("there's room for one");
        // Its handshake gets no answer: it's over when that was dropped once.
        let _ = TcpStream::connect_timeout(&address, std::time::Duration::from_millis(10));
        assert!(overflows().expect("the kernel tells") > before);
    }

    #[test]
    fn what_listens_and_is_open_is_seen() {
        for any in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
            let listener = TcpListener::bind(any).expect("a free port");
            let port = listener.local_addr().expect("it's bound").port();
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            assert!(has_listener(address).expect("the kernel tells"), "{any}");
            assert_eq!(open_at(&[address]).expect("the kernel tells"), Open::default());
            let mut client = TcpStream::connect(address).expect("it listens");
            let (mut server, _) = listener.accept().expect("a connection");
            assert_eq!(open_at(&[address]).expect("the kernel tells").connections, 1, "{any}");
            client.write_all(b"a question").expect("it's open");
            assert_eq!(open_at(&[address]).expect("the kernel tells"), Open { connections: 1, busy: 1 }, "{any}");
            let of_client = client.local_addr().expect("it's connected");
            assert!(!is_quiet(address, of_client).expect("the kernel tells"), "{any}: nobody has read it");
            assert_eq!(server.read(&mut [0; 100]).expect("it's open"), 10);
            assert!(is_quiet(address, of_client).expect("the kernel tells"), "{any}");
            client.shutdown(std::net::Shutdown::Write).expect("it's open");
            assert!(!is_quiet(address, of_client).expect("the kernel tells"), "{any}: its client has ended it");
            assert!(!is_quiet(of_client, of_client).expect("the kernel tells"), "{any}: there is none");
            // A child that another test has just forked may have a copy, so closing isn't enough.
            rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).expect("it's a socket");
            assert!(!has_listener(address).expect("the kernel tells"), "{any}");
        }
    }
}
