//! Fetches the metrics page from an admin address: one request, one reply, read to its end, with limits on time and size.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use thiserror::Error;

use super::page::{Page, PageError};

/// Longest wait for the connection, and for each piece of the reply.
const PATIENCE: Duration = Duration::from_secs(2);
/// A page of some thousand sites is shorter than this.
const PAGE_BYTES_MAX: u64 = 64 << 20;

/// Why there is no page.
#[derive(Debug, Error)]
pub enum FetchError {
    /// Nobody answers there.
    #[error("{address}: {error}: is leat running, with this address under [admin] in its configuration?")]
    Unreachable {
        /// Who was asked.
        address: SocketAddr,
        /// What the kernel says.
        error: io::Error,
    },
    /// Something else answers there.
    #[error("{address} answers, but not as leat's admin address does: {said:?}")]
    NotLeat {
        /// Who was asked.
        address: SocketAddr,
        /// The first line of the reply.
        said: String,
    },
    /// The page can't be read.
    #[error("{0}")]
    Page(#[from] PageError),
}

/// A page and when it came.
#[derive(Clone, Debug)]
pub struct Reading {
    /// When its last byte was there.
    pub at: Instant,
    /// What it says.
    pub page: Page,
}

/// Asks for `/metrics`.
///
/// # Errors
/// Nobody answers in time, or not with such a page.
pub fn fetch(address: SocketAddr) -> Result<Reading, FetchError> {
    let reply = exchange(address).map_err(|error| FetchError::Unreachable { address, error })?;
    let reply = String::from_utf8_lossy(&reply);
    let not_leat = || FetchError::NotLeat { address, said: reply.lines().next().unwrap_or_default().to_owned() };
    let (head, text) = reply.split_once("\r\n\r\n").ok_or_else(not_leat)?;
    if !head.starts_with("HTTP/1.1 200 ") || !text.contains("leat_") {
        return Err(not_leat());
    }
    Ok(Reading { at: Instant::now(), page: Page::parse(text)? })
}

fn exchange(address: SocketAddr) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut reply = Vec::new();
    match stream.take(PAGE_BYTES_MAX).read_to_end(&mut reply) {
        Ok(_) => Ok(reply),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(ErrorKind::TimedOut.into()),
        Err(error) => Err(error),
    }
}
