//! One request at a time over a plain socket, the reply's length checked.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::load::{self, Progress, ReplyReader};
use crate::workload::mix::Target;

const TIMEOUT: Duration = Duration::from_secs(5);
/// More than a small reply has.
const REPLY_BYTES: usize = 16 << 10;

/// Asks for a small file on a connection that stays; gives the time at which the first byte was there.
///
/// # Errors
/// The connection is cut, is silent, or brings something else.
pub(crate) fn ask_for(stream: &mut TcpStream, (file, bytes): (&str, u64)) -> io::Result<Instant> {
    stream.write_all(head(file).as_bytes())?;
    receive(stream, bytes)
}

/// The same, the request's head in two packets.
pub(crate) fn ask_in_two_packets(stream: &mut TcpStream, (file, bytes): (&str, u64)) -> io::Result<Instant> {
    stream.set_nodelay(true)?;
    let head = head(file);
    let (first, second) = head.split_at(head.len() / 2);
    stream.write_all(first.as_bytes())?;
    stream.write_all(second.as_bytes())?;
    receive(stream, bytes)
}

/// Asks for a target on a connection that stays, and hears the whole reply; gives its server, where the content says so.
///
/// # Errors
/// The connection is cut, is silent, or brings something else.
pub(crate) fn ask_for_target(stream: &mut TcpStream, target: &Target) -> io::Result<Option<u32>> {
    stream.write_all(target.requests(1))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let (mut reader, mut bytes) = (ReplyReader::default(), [0; REPLY_BYTES]);
    loop {
        let count = stream.read(&mut bytes)?;
        let mut rest = &bytes[..count];
        match reader.take(&mut rest, target, true).map_err(io::Error::other)? {
            Progress::Complete { .. } if rest.is_empty() => return Ok(reader.server()),
            Progress::More if count > 0 => {}
            progress => return Err(io::Error::other(format!("{progress:?}, then {} bytes", rest.len()))),
        }
    }
}

fn head(file: &str) -> String {
    format!("GET /{file} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

fn receive(stream: &mut TcpStream, bytes: u64) -> io::Result<Instant> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut reply = [0; REPLY_BYTES];
    let (mut filled, mut first) = (0, None);
    loop {
        let count = stream.read(&mut reply[filled..])?;
        let first = *first.get_or_insert_with(Instant::now);
        filled += count;
        match load::lengths(&reply[..filled]).map_err(io::Error::other)? {
            Some((head_bytes, body_bytes)) if filled as u64 >= head_bytes as u64 + body_bytes => {
                let is_right = body_bytes == bytes && reply.starts_with(b"HTTP/1.1 200 ");
                return if is_right { Ok(first) } else { Err(io::Error::other("another reply than was asked for")) };
            }
            _ if count == 0 => return Err(io::Error::other(format!("cut after {filled} bytes"))),
            _ => {}
        }
    }
}
