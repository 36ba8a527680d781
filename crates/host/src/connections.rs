//! Other processes' TCP sockets in this network namespace, as the kernel lists them (sock_diag(7)): who listens, and how much there is to do. Changes
//! nothing, and decides nothing.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, netlink, recv, send, socket};

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
const REQUEST_DUMP: u16 = 0x301;
const INET_DIAG_INFO: u16 = 2;
const LISTEN: u32 = 1 << 10;
/// ESTABLISHED, FIN_WAIT1, CLOSE_WAIT, LAST_ACK, CLOSING: there may be something to send.
const OPEN: u32 = 1 << 1 | 1 << 4 | 1 << 8 | 1 << 9 | 1 << 11;

/// Connections of one local address.
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

/// The connections of `address`.
///
/// # Errors
/// What the kernel says.
pub fn open_at(address: SocketAddr) -> io::Result<Open> {
    let mut open = Open::default();
    // Those that a socket of all IPv6 addresses has accepted are listed under that family.
    list(OPEN, address.port(), |entry| {
        if entry.local == Some(address.ip()) {
            open.connections += 1;
            open.busy += u32::from(entry.is_busy);
        }
    })?;
    Ok(open)
}

struct Entry {
    local: Option<IpAddr>,
    is_busy: bool,
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

fn request(states: u32, port: u16) -> [u8; HEADER + REQUEST] {
    let mut bytes = [0; HEADER + REQUEST];
    let length = (HEADER + REQUEST) as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes[4..6].copy_from_slice(&TCPDIAG_GETSOCK.to_ne_bytes());
    bytes[6..8].copy_from_slice(&REQUEST_DUMP.to_ne_bytes());
    let body = &mut bytes[HEADER..];
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
                    let number = message.first_chunk().map_or(0, |number| i32::from_ne_bytes(*number));
                    return Err(io::Error::from_raw_os_error(-number));
                }
                TCPDIAG_GETSOCK => see(message),
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
        let has_queued = number(56)? > 0 || number(60)? > 0;
        Some(Entry { local, is_busy: has_queued || is_owing(message.get(MESSAGE..)?) })
    }
}

/// Whether the last data of a connection was the client's, by the times in its `struct tcp_info`.
fn is_owing(mut attributes: &[u8]) -> bool {
    const LAST_SENT: usize = 44;
    const LAST_RECEIVED: usize = 52;
    while let Some(header) = attributes.first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let Some(value) = attributes.get(4..length) else { return false };
        if u16::from_ne_bytes([header[2], header[3]]) == INET_DIAG_INFO {
            let ago_ms =
                |at: usize| value.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes);
            return ago_ms(LAST_RECEIVED) < ago_ms(LAST_SENT);
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn what_listens_and_is_open_is_seen() {
        for any in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
            let listener = TcpListener::bind(any).expect("a free port");
            let port = listener.local_addr().expect("it's bound").port();
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            assert!(has_listener(address).expect("the kernel tells"), "{any}");
            assert_eq!(open_at(address).expect("the kernel tells"), Open::default());
            let mut client = TcpStream::connect(address).expect("it listens");
            let (_server, _) = listener.accept().expect("a connection");
            assert_eq!(open_at(address).expect("the kernel tells").connections, 1, "{any}");
            client.write_all(b"a question").expect("it's open");
            assert_eq!(open_at(address).expect("the kernel tells"), Open { connections: 1, busy: 1 }, "{any}");
            // A child that another test has just forked may have a copy, so closing isn't enough.
            rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).expect("it's a socket");
            assert!(!has_listener(address).expect("the kernel tells"), "{any}");
        }
    }
}
