//! The PROXY protocol, versions 1 and 2: what a balancer says of its client before the client's own bytes (HAProxy's `proxy-protocol.txt`). Whom to
//! believe is the caller's to decide.

use std::net::{IpAddr, SocketAddr};

/// The longest header that is accepted: version 2 may have additions, of which nothing is needed.
pub const HEADER_BYTES_MAX: usize = 2048;

const V1_BYTES_MAX: usize = 107;
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_HEAD_BYTES: usize = 16;

/// Which version is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// Why bytes aren't such a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHeader {
    /// They begin otherwise.
    #[error("it doesn't begin with a PROXY header")]
    Missing,
    /// They begin so and go on wrongly.
    #[error("its PROXY header is malformed")]
    Malformed,
    /// See [`HEADER_BYTES_MAX`].
    #[error("its PROXY header is too long")]
    TooLong,
}

/// What a header says: between whom the connection is that is passed on. `None`: the balancer speaks for itself, or doesn't know.
pub type Ends = Option<(SocketAddr, SocketAddr)>;

/// A header at the beginning of `input`: its bytes, and what it says. `None` until enough has come.
///
/// # Errors
/// It isn't one.
pub fn read(input: &[u8]) -> Result<Option<(usize, Ends)>, BadHeader> {
    let common = input.len().min(V2_SIGNATURE.len());
    if input[..common] == V2_SIGNATURE[..common] {
        return read_v2(input);
    }
    let common = input.len().min(6);
    if input[..common] != b"PROXY "[..common] {
        return Err(BadHeader::Missing);
    }
    let head = &input[..input.len().min(V1_BYTES_MAX)];
    let Some(end) = memchr::memchr(b'\n', head) else {
        return if head.len() < V1_BYTES_MAX { Ok(None) } else { Err(BadHeader::TooLong) };
    };
    let line = head[..end].strip_suffix(b"\r").and_then(|line| std::str::from_utf8(line).ok());
    let ends = line.and_then(read_v1_line).ok_or(BadHeader::Malformed)?;
    Ok(Some((end + 1, ends)))
}

/// `PROXY TCP4 source destination source-port destination-port`.
fn read_v1_line(line: &str) -> Option<Ends> {
    let mut words = line.split(' ').skip(1);
    let family = words.next()?;
    if family == "UNKNOWN" {
        return Some(None);
    }
    let (source, destination): (IpAddr, IpAddr) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let mut port = || words.next().filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok();
    let ends = (SocketAddr::new(source, port()?), SocketAddr::new(destination, port()?));
    let is_of_family = |address: IpAddr| match family {
        "TCP4" => address.is_ipv4(),
        "TCP6" => address.is_ipv6(),
        _ => false,
    };
    (words.next().is_none() && is_of_family(source) && is_of_family(destination)).then_some(Some(ends))
}

fn read_v2(input: &[u8]) -> Result<Option<(usize, Ends)>, BadHeader> {
    let Some(head) = input.get(..V2_HEAD_BYTES) else {
        return if input.get(12).is_some_and(|version| version >> 4 != 2) {
            Err(BadHeader::Malformed)
        } else {
            Ok(None)
        };
    };
    let is_proxied = match head[12] {
        0x20 => false,
        0x21 => true,
        _ => return Err(BadHeader::Malformed),
    };
    let size = V2_HEAD_BYTES + usize::from(u16::from_be_bytes([head[14], head[15]]));
    if size > HEADER_BYTES_MAX {
        return Err(BadHeader::TooLong);
    }
    let Some(addresses) = input.get(V2_HEAD_BYTES..size) else { return Ok(None) };
    // The transport in the lower half doesn't matter: it's a stream if it came by one.
    let ends = match head[13] >> 4 {
        _ if !is_proxied => None,
        1 => Some(ends_of::<4>(addresses).ok_or(BadHeader::Malformed)?),
        2 => Some(ends_of::<16>(addresses).ok_or(BadHeader::Malformed)?),
        0 | 3 => None,
        _ => return Err(BadHeader::Malformed),
    };
    Ok(Some((size, ends)))
}

/// Two addresses, then two ports.
fn ends_of<const N: usize>(bytes: &[u8]) -> Option<(SocketAddr, SocketAddr)>
where
    IpAddr: From<[u8; N]>,
{
    let (source, rest) = bytes.split_first_chunk::<N>()?;
    let (destination, rest) = rest.split_first_chunk::<N>()?;
    let (ports, _) = rest.split_first_chunk::<4>()?;
    let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
    Some((SocketAddr::new((*source).into(), port(0)), SocketAddr::new((*destination).into(), port(2))))
}

/// Writes a header. Ends of two families are both written as IPv6.
pub fn write(version: Version, ends: Ends, out: &mut Vec<u8>) {
    let ends = ends.map(|(source, destination)| match (source.ip(), destination.ip()) {
        (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => (source, destination),
        _ => (mapped(source), mapped(destination)),
    });
    match (version, ends) {
        (Version::V1, None) => out.extend_from_slice(b"PROXY UNKNOWN\r\n"),
        (Version::V1, Some((source, destination))) => {
            let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
            let (from, to) = (source.port(), destination.port());
            let line = format!("PROXY {family} {} {} {from} {to}\r\n", source.ip(), destination.ip());
            out.extend_from_slice(line.as_bytes());
        }
        (Version::V2, ends) => {
            out.extend_from_slice(V2_SIGNATURE);
            let Some((source, destination)) = ends else {
                return out.extend_from_slice(&[0x20, 0, 0, 0]);
            };
            match (source.ip(), destination.ip()) {
                (IpAddr::V4(from), IpAddr::V4(to)) => {
                    out.extend_from_slice(&[0x21, 0x11, 0, 12]);
                    out.extend_from_slice(&from.octets());
                    out.extend_from_slice(&to.octets());
                }
                (from, to) => {
                    out.extend_from_slice(&[0x21, 0x21, 0, 36]);
                    for address in [from, to] {
                        out.extend_from_slice(&as_ipv6(address).octets());
                    }
                }
            }
            out.extend_from_slice(&source.port().to_be_bytes());
            out.extend_from_slice(&destination.port().to_be_bytes());
        }
    }
}

fn as_ipv6(address: IpAddr) -> std::net::Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn mapped(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(as_ipv6(address.ip()).into(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(source: &str, destination: &str) -> Ends {
        Some((source.parse().expect("an address"), destination.parse().expect("an address")))
    }

    #[test]
    fn what_is_written_is_read_again_however_it_is_split() {
        for ends in [
            ends("192.0.2.1:56324", "198.51.100.2:443"),
            ends("[2001:db8::1]:1", "[2001:db8::2]:65535"),
            ends("[::ffff:192.0.2.1]:5", "[2001:db8::2]:6"),
            None,
        ] {
            for version in [Version::V1, Version::V2] {
                let mut header = Vec::new();
                write(version, ends, &mut header);
                let size = header.len();
                header.extend_from_slice(b"GET / HTTP/1.1\r\n");
                assert_eq!(read(&header), Ok(Some((size, ends))), "{version:?} {ends:?}");
                for end in 0..size {
                    assert_eq!(read(&header[..end]), Ok(None), "{version:?} {end} of {size}");
                }
            }
        }
    }

    #[test]
    fn families_that_differ_are_written_as_ipv6() {
        let mut header = Vec::new();
        write(Version::V1, ends("192.0.2.1:5", "[2001:db8::2]:6"), &mut header);
        assert_eq!(header, b"PROXY TCP6 ::ffff:192.0.2.1 2001:db8::2 5 6\r\n");
    }

    #[test]
    fn additions_are_passed_over_and_a_balancer_s_own_probe_has_no_client() {
        let mut header = Vec::new();
        write(Version::V2, ends("192.0.2.1:5", "192.0.2.2:6"), &mut header);
        header[15] += 5;
        header.extend_from_slice(b"\x04\x00\x02ab!");
        assert_eq!(read(&header), Ok(Some((V2_HEAD_BYTES + 17, ends("192.0.2.1:5", "192.0.2.2:6")))));
        header[12] = 0x20;
        assert_eq!(read(&header), Ok(Some((V2_HEAD_BYTES + 17, None))));
        assert_eq!(read(b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n"), Ok(Some((35, None))));
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (input, error) in [
            (&b"GET / HTTP/1.1\r\n"[..], BadHeader::Missing),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 5 99999\r\n", BadHeader::Malformed),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 +5 6\r\n", BadHeader::Malformed),
            (b"PROXY TCP6 192.0.2.1 192.0.2.2 5 6\r\n", BadHeader::Malformed),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 5 6 7\r\n", BadHeader::Malformed),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 5 6\n", BadHeader::Malformed),
            (b"\r\n\r\n\0\r\nQUIT\n\x11", BadHeader::Malformed),
            (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x04abcd", BadHeader::Malformed),
            (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff", BadHeader::TooLong),
        ] {
            assert_eq!(read(input), Err(error), "{input:?}");
        }
        assert_eq!(read(&[b"PROXY ".to_vec(), vec![b'a'; 200]].concat()), Err(BadHeader::TooLong));
    }
}
