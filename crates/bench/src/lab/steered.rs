//! What it takes a dispatcher's or a front's kernel to send a client's packet on to a node, beside its programs' own run time: bare acknowledgements
//! on a connection that is at a node, sent by way of the dispatcher, less the same on a connection to the node's own address. In between are the
//! dispatcher's link both ways, the bridge once more, and what the kernel does around an eBPF redirect.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use super::cost::program_time;
use super::{CLIENT, CLIENT_CORE, Lab};
use crate::experiment::samples::median;
use crate::sys::socket;

const BATCH: u32 = 20_000;
const BATCHES: u32 = 7;

/// In microseconds. `begin` opens connections that have had a reply: the first is at a node by way of the dispatcher, the second leads to a node itself.
/// `processes` hold the programs of the dispatcher and the nodes.
///
/// # Errors
/// No connection can be made, or no raw socket.
pub(crate) fn steered_us(
    lab: &Lab,
    processes: &[u32],
    begin: impl FnOnce() -> io::Result<[TcpStream; 2]> + Send,
) -> io::Result<f64> {
    lab.at(CLIENT, CLIENT_CORE, || {
        let streams = begin()?;
        let [by_dispatcher, direct] = &streams;
        let differences = (0..BATCHES).map(|_| Ok(send_us(by_dispatcher, processes)? - send_us(direct, processes)?));
        Ok(median(differences.collect::<io::Result<_>>()?).unwrap_or_default().max(0.0))
    })
}

fn send_us(stream: &TcpStream, processes: &[u32]) -> io::Result<f64> {
    let (from, to) = (ipv4(stream.local_addr()?)?, ipv4(stream.peer_addr()?)?);
    let (raw, packet) = (socket::raw_tcp(*to.ip())?, acknowledgement(from, to));
    let (began, programs) = (Instant::now(), program_time(processes));
    for _ in 0..BATCH {
        socket::send(&raw, &packet, false)?;
    }
    let spent: Duration = began.elapsed().saturating_sub(program_time(processes).saturating_sub(programs));
    Ok(spent.as_secs_f64() * 1e6 / f64::from(BATCH))
}

fn ipv4(address: SocketAddr) -> io::Result<SocketAddrV4> {
    match (address.ip(), address) {
        (IpAddr::V4(_), SocketAddr::V4(address)) => Ok(address),
        _ => Err(io::Error::other(format!("{address} isn't an IPv4 address"))),
    }
}

/// A TCP header that acknowledges nothing new. Its numbers are far from the connection's, so that nobody answers.
fn acknowledgement(from: SocketAddrV4, to: SocketAddrV4) -> [u8; 20] {
    const OFFSET_AND_ACK: [u8; 2] = [5 << 4, 0x10];
    let mut header = [0; 20];
    header[..2].copy_from_slice(&from.port().to_be_bytes());
    header[2..4].copy_from_slice(&to.port().to_be_bytes());
    header[12..14].copy_from_slice(&OFFSET_AND_ACK);
    let sum = checksum(*from.ip(), *to.ip(), &header);
    header[16..18].copy_from_slice(&sum.to_be_bytes());
    header
}

/// RFC 9293, section 3.1.
fn checksum(from: Ipv4Addr, to: Ipv4Addr, header: &[u8; 20]) -> u16 {
    let addresses = [from.octets(), to.octets()].concat();
    let words = addresses.chunks(2).chain(header.chunks(2)).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let mut sum = words.sum::<u32>() + libc::IPPROTO_TCP as u32 + header.len() as u32;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_sums_up_to_nothing() {
        let (from, to) =
            (SocketAddrV4::new([198, 18, 0, 1].into(), 40_000), SocketAddrV4::new([10, 77, 0, 100].into(), 80));
        let header = acknowledgement(from, to);
        assert_eq!(checksum(*from.ip(), *to.ip(), &header), 0, "with its own checksum in it");
        assert_eq!(header[13], 0x10);
    }
}
