//! Those who knock at a listener: how many wait to be accepted, and what part of the rest the kernel hears at all. How many that should be is for
//! others to decide.

use std::io;
use std::mem;
use std::os::fd::RawFd;

/// Where the flags are in a TCP header, and those that tell a first packet.
const FLAGS_AT: u32 = 13;
const SYN: u32 = 0x02;
const ACK: u32 = 0x10;
/// Where socket filters find a random number.
const RANDOM_AT: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;
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

/// Has the kernel hear only a part of the first packets of connections, from 0 to 1: it drops the others before it remembers or answers anything.
///
/// # Errors
/// Those of setsockopt(2): it isn't a socket any more, or the kernel has no memory.
pub fn let_in(listener: RawFd, part: f64) -> io::Result<()> {
    if part >= 1.0 {
        let none: libc::c_int = 0;
        return match set(listener, libc::SO_DETACH_FILTER, &none) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            result => result,
        };
    }
    let op = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let threshold = (part.max(0.0) * f64::from(u32::MAX)) as u32;
    // The packet begins with its TCP header. Accepted connections inherit the filter, and never get such a packet.
    let mut program = [
        op(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, FLAGS_AT),
        op(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, SYN | ACK),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 2, SYN),
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, RANDOM_AT),
        op(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, 0, threshold),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    set(listener, libc::SO_ATTACH_FILTER, &filter)
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
    use std::net::{SocketAddr, TcpStream};
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use crate::socket::{listen, local_address};

    /// Less than the second after which a first packet is sent again.
    const SOON: Duration = Duration::from_millis(200);

    fn knock(address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect_timeout(&address, SOON)
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
            let_in(raw, 0.0).unwrap();
            assert_eq!(knock(address).unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert_eq!(look(raw), Knocking { waiting: 1, dropped: 1 });
            before.write_all(b"heard").unwrap();
            let_in(raw, 0.5).unwrap();
            let come =
                (0..64).filter(|_| TcpStream::connect_timeout(&address, Duration::from_millis(5)).is_ok()).count();
            assert!((8..56).contains(&come), "{come} of 64 at a half");
            let_in(raw, 1.0).unwrap();
            let_in(raw, 1.0).expect("letting in everybody twice is no error");
            let _after = knock(address).unwrap();
            let mut heard = [0; 5];
            std::net::TcpListener::from(listener).accept().unwrap().0.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, b"heard");
        }
        assert!(let_in(-1, 0.5).is_err());
    }
}
