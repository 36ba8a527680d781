//! Those who knock at a listener: how many wait to be accepted, and what part of the rest the kernel hears at all. How many that should be is for
//! others to decide.

use std::io;
use std::mem;
use std::net::IpAddr;
use std::os::fd::RawFd;

use leat_logic::admission::LetIn;

/// Where the flags are in a TCP header, and those that tell a first packet.
const FLAGS_AT: u32 = 13;
const SYN: u32 = 0x02;
const ACK: u32 = 0x10;
/// Where socket filters find a random number, and the IP header, though the packet begins with its TCP header for them.
const RANDOM_AT: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;
const IP_AT: u32 = libc::SKF_NET_OFF as u32;
/// The version, in a byte's upper half, and the client's address in either.
const VERSION_SHIFT: u32 = 4;
const V4_CLIENT_AT: u32 = IP_AT + 12;
const V6_CLIENT_AT: u32 = IP_AT + 8;
/// Networks are told apart by so many words of a client's address.
const WORDS: u32 = 2;
/// `SK_MEMINFO_DROPS` of linux/sock_diag.h, and how many numbers there are.
const DROPS: usize = 8;
const MEMORY_NUMBERS: usize = 9;

/// What the kernel says of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Knocking {
    /// Connections that wait to be accepted.
    pub waiting: u32,
    /// Packets dropped there since it listens: of those that weren't let in, and for want of room.
    pub dropped: u32,
}

/// How a listener stands; nothing of what isn't one any more.
pub fn look(listener: RawFd) -> Knocking {
    let mut memory = [0_u32; MEMORY_NUMBERS];
    let mut length = mem::size_of_val(&memory) as libc::socklen_t;
    // SAFETY: pointer and length describe `memory`, of which the kernel fills in as much as it knows.
    unsafe {
        libc::getsockopt(listener, libc::SOL_SOCKET, libc::SO_MEMINFO, memory.as_mut_ptr().cast(), &raw mut length)
    };
    // For a listener, this is how many wait.
    let waiting = crate::socket::tcp_info(listener).map_or(0, |info| info.tcpi_unacked);
    Knocking { waiting, dropped: memory[DROPS] }
}

/// Has the kernel hear only a part of the first packets of connections: it drops the others before it remembers or answers anything.
///
/// # Errors
/// Those of setsockopt(2): it isn't a socket any more, or the kernel has no memory.
pub fn let_in(listener: RawFd, whom: &LetIn) -> io::Result<()> {
    if whom.others >= 1.0 && whom.networks.is_empty() {
        let none: libc::c_int = 0;
        return match set(listener, libc::SO_DETACH_FILTER, &none) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            result => result,
        };
    }
    let mut program = filter(whom);
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    set(listener, libc::SO_ATTACH_FILTER, &filter)
}

/// The program that says of each packet whether it's heard. Accepted connections inherit it, and never get a packet that it drops.
fn filter(whom: &LetIn) -> Vec<libc::sock_filter> {
    let mut program = vec![
        op(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, FLAGS_AT),
        op(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, SYN | ACK),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, SYN),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
    ];
    for (network, part) in &whom.networks {
        let (address, bits) = network.network();
        let then = draw(*part);
        program.extend(unless_of(address, bits, then.len() as u8));
        program.extend(then);
    }
    program.extend(draw(whom.others));
    program
}

fn op(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Hears such a part of all that come to it.
fn draw(part: f64) -> [libc::sock_filter; 4] {
    let threshold = (part.clamp(0.0, 1.0) * f64::from(u32::MAX)) as u32;
    [
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, RANDOM_AT),
        op(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, 0, threshold),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ]
}

/// Skips so many instructions unless a packet comes from a network.
fn unless_of(address: IpAddr, bits: u32, skipped: u8) -> Vec<libc::sock_filter> {
    let (version, at, words) = match address {
        IpAddr::V4(v4) => (4, V4_CLIENT_AT, vec![v4.to_bits()]),
        IpAddr::V6(v6) => (6, V6_CLIENT_AT, (0..WORDS).map(|word| (v6.to_bits() >> (96 - 32 * word)) as u32).collect()),
    };
    // Each word is loaded, its bits that don't tell are cleared, and it's compared.
    let left = |word: usize| 3 * (words.len() - word - 1) as u8 + skipped;
    let mut program = vec![
        op(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, IP_AT),
        op(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 0, 0, VERSION_SHIFT),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 3 * words.len() as u8 + skipped, version),
    ];
    for (place, word) in words.iter().enumerate() {
        let told = bits.saturating_sub(32 * place as u32).min(32);
        let mask = u32::MAX.checked_shl(32 - told).unwrap_or(0);
        program.extend([
            op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at + 4 * place as u32),
            op(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, mask),
            op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, left(place), word & mask),
        ]);
    }
    program
}

fn set<T>(socket: RawFd, name: libc::c_int, value: &T) -> io::Result<()> {
    let length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`; the program that a filter points to lives as long as the call.
    let result = unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, name, (&raw const *value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leat_logic::client_prefix::ClientPrefix;
    use std::net::{SocketAddr, TcpStream};
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use crate::socket::{listen, local_address};

    /// Less than the second after which a first packet is sent again.
    const SOON: Duration = Duration::from_millis(200);

    fn knock(address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect_timeout(&address, SOON)
    }

    /// Whether it's heard.
    fn knock_from(client: IpAddr, to: SocketAddr) -> bool {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket(family, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::new(client, 0)).unwrap();
        // connect(2) waits for as long.
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(SOON)).unwrap();
        match connect(&socket, &to) {
            Ok(()) => true,
            Err(error) if error == rustix::io::Errno::INPROGRESS => false,
            Err(error) => panic!("{client} to {to}: {error}"),
        }
    }

    #[test]
    fn it_is_known_how_many_wait() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = local_address(&listener).unwrap();
        assert_eq!(look(listener.as_raw_fd()), Knocking::default());
        let _waiting: Vec<TcpStream> = (0..3).map(|_| knock(address).unwrap()).collect();
        assert_eq!(look(listener.as_raw_fd()), Knocking { waiting: 3, dropped: 0 });
        assert_eq!(look(-1), Knocking::default());
    }

    #[test]
    fn who_is_not_let_in_is_told_nothing_and_connections_that_there_are_go_on() {
        use std::io::{Read, Write};
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = listen(address.parse().unwrap()).unwrap();
            let (raw, address) = (listener.as_raw_fd(), local_address(&listener).unwrap());
            let mut before = knock(address).unwrap();
            let_in(raw, &LetIn::of_all(0.0)).unwrap();
            assert_eq!(knock(address).unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert_eq!(look(raw), Knocking { waiting: 1, dropped: 1 });
            before.write_all(b"heard").unwrap();
            let_in(raw, &LetIn::of_all(0.5)).unwrap();
            let come =
                (0..64).filter(|_| TcpStream::connect_timeout(&address, Duration::from_millis(5)).is_ok()).count();
            assert!((8..56).contains(&come), "{come} of 64 at a half");
            let_in(raw, &LetIn::of_all(1.0)).unwrap();
            let_in(raw, &LetIn::of_all(1.0)).expect("letting in everybody twice is no error");
            let _after = knock(address).unwrap();
            let mut heard = [0; 5];
            std::net::TcpListener::from(listener).accept().unwrap().0.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, b"heard");
        }
        assert!(let_in(-1, &LetIn::of_all(0.5)).is_err());
    }

    #[test]
    fn networks_are_let_in_by_what_is_said_of_each() {
        let network = |address: &str| ClientPrefix::of(address.parse().unwrap());
        // Those that aren't meant come first: none of them may be taken for the last, or for each other.
        let others = ["127.0.7.1", "198.18.0.1", "1::1", "0:0:1::1", "0:0:0:100::1"];
        let most: Vec<_> = others.iter().map(|&address| (network(address), 0.0)).collect();
        for (address, client) in [("127.0.0.1:0", "127.0.9.1"), ("[::1]:0", "::1")] {
            let listener = listen(address.parse().unwrap()).unwrap();
            let (raw, address) = (listener.as_raw_fd(), local_address(&listener).unwrap());
            let is_heard = |networks: Vec<(ClientPrefix, f64)>, others: f64| {
                let_in(raw, &LetIn { networks, others }).unwrap();
                knock_from(client.parse().unwrap(), address)
            };
            let with = |part: f64| [most.clone(), vec![(network(client), part)]].concat();
            assert!(is_heard(with(1.0), 0.0) && is_heard(most.clone(), 1.0), "{client}");
            assert!(!is_heard(with(0.0), 1.0) && !is_heard(most.clone(), 0.0), "{client}");
        }
    }
}
