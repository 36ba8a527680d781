//! The server behind the fronts: one thread on epoll that has its replies ready and sums up what is sent to it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::experiment;
use crate::sys::epoll::{Epoll, Interest};
use crate::sys::socket;
use crate::workload::content::Content;

pub(super) const SMALL: &str = "/1k";
pub(super) const LARGE: &str = "/100k";
pub(super) const CHUNKED: &str = "/chunked";
pub(super) const UPLOAD: &str = "/upload";
pub(super) const SMALL_BYTES: usize = 1 << 10;
pub(super) const LARGE_BYTES: usize = 100 << 10;
/// What an application's buffer commonly has.
const CHUNK_BYTES: usize = 8 << 10;
const LISTENER: u64 = u64::MAX;
const BUFFER_BYTES: usize = 128 << 10;

/// What a path has; none for one that isn't known.
pub(super) fn content(path: &str) -> Option<(Content, usize)> {
    match path {
        SMALL => Some((Content::new(1), SMALL_BYTES)),
        LARGE => Some((Content::new(2), LARGE_BYTES)),
        CHUNKED => Some((Content::new(3), LARGE_BYTES)),
        _ => None,
    }
}

/// What it says of an upload.
pub(super) fn receipt(bytes: u64, sum: u64) -> String {
    format!("{bytes:010} {sum:020}\n")
}

/// Order doesn't count, but it takes next to no time.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|&byte| u64::from(byte)).sum()
}

/// Ended when dropped.
pub(super) struct Upstream {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Upstream {
    /// # Errors
    /// No port is free.
    pub(super) fn start(core: usize) -> io::Result<Self> {
        let listener = socket::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), true)?;
        socket::set_no_delay(&listener)?;
        let address = listener.local_addr()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            if let Err(error) = experiment::on_cores(&[core], || serve(&listener, &until)) {
                eprintln!("the server behind the fronts ended: {error}");
            }
        });
        Ok(Self { address, is_over, thread: Some(thread) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Where it can't be woken, the thread ends with the program.
        if TcpStream::connect(self.address).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &std::net::TcpListener, is_over: &AtomicBool) -> io::Result<()> {
    let replies = Replies::new();
    let mut epoll = Epoll::new()?;
    epoll.add(listener, LISTENER, Interest::Readable)?;
    // Indexed by descriptor: the kernel keeps those small.
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    while !is_over.load(Ordering::Relaxed) {
        for index in 0..epoll.wait()? {
            let token = epoll.token(index);
            if token != LISTENER {
                let slot = &mut connections[token as usize];
                if !slot.as_mut().is_none_or(|connection| connection.step(&replies, &mut buffer)) {
                    *slot = None;
                }
                continue;
            }
            while let Ok(accepted) = socket::accept(listener) {
                let number = accepted.as_raw_fd() as usize;
                epoll.add(&accepted, number as u64, Interest::ReadableWritableEdge)?;
                if connections.len() <= number {
                    connections.resize_with(number + 1, || None);
                }
                let talk = Talk::default();
                connections[number] = Some(Connection { socket: accepted, talk, sending: None });
            }
        }
    }
    Ok(())
}

/// Heads and content of all replies but receipts.
struct Replies {
    by_path: Vec<(&'static str, Rc<[u8]>)>,
    unknown: Rc<[u8]>,
}

impl Replies {
    fn new() -> Self {
        let by_path = [SMALL, LARGE, CHUNKED].into_iter().filter_map(|path| {
            let (content, bytes) = content(path)?;
            let content = content.bytes(bytes);
            Some((path, if path == CHUNKED { chunked(&content) } else { with_length(&content) }))
        });
        let unknown = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".as_slice();
        Self { by_path: by_path.collect(), unknown: unknown.into() }
    }

    fn of(&self, path: &[u8]) -> Rc<[u8]> {
        let known = self.by_path.iter().find(|(known, _)| known.as_bytes() == path);
        Rc::clone(known.map_or(&self.unknown, |(_, reply)| reply))
    }
}

fn with_length(content: &[u8]) -> Rc<[u8]> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\n\r\n",
        content.len()
    );
    [head.as_bytes(), content].concat().into()
}

fn chunked(content: &[u8]) -> Rc<[u8]> {
    let mut reply =
        b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in content.chunks(CHUNK_BYTES) {
        reply.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        reply.extend_from_slice(chunk);
        reply.extend_from_slice(b"\r\n");
    }
    reply.extend_from_slice(b"0\r\n\r\n");
    reply.into()
}

struct Connection {
    socket: OwnedFd,
    talk: Talk,
    /// A reply, and how much of it has gone.
    sending: Option<(Rc<[u8]>, usize)>,
}

impl Connection {
    /// Does what can be done now; false when the connection is over.
    fn step(&mut self, replies: &Replies, buffer: &mut [u8]) -> bool {
        let mut is_empty = false;
        loop {
            if let Some((reply, gone)) = &mut self.sending {
                match socket::send(&self.socket, &reply[*gone..], false) {
                    Ok(sent) => *gone += sent,
                    Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
                }
                if *gone == reply.len() {
                    self.sending = None;
                }
            } else if let Some(reply) = self.talk.next(replies) {
                self.sending = Some((reply, 0));
            } else if is_empty {
                // A read that didn't fill the buffer has emptied the socket: the next edge will tell.
                return true;
            } else {
                match socket::receive(&self.socket, buffer) {
                    Ok(0) => return false,
                    Ok(received) => {
                        is_empty = received < buffer.len();
                        self.talk.feed(&buffer[..received]);
                    }
                    Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
                }
            }
        }
    }
}

/// What has been said to it on a connection, and not answered. No I/O.
#[derive(Default)]
struct Talk {
    /// Not looked at yet.
    input: Vec<u8>,
    upload: Option<Upload>,
}

struct Upload {
    bytes: u64,
    left: u64,
    sum: u64,
}

impl Upload {
    /// Gives back what comes after it.
    fn take<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (now, rest) = bytes.split_at((bytes.len() as u64).min(self.left) as usize);
        self.sum += sum(now);
        self.left -= now.len() as u64;
        rest
    }
}

impl Talk {
    fn feed(&mut self, bytes: &[u8]) {
        let rest = match &mut self.upload {
            Some(upload) if self.input.is_empty() => upload.take(bytes),
            _ => bytes,
        };
        self.input.extend_from_slice(rest);
    }

    /// The reply to the next request that has come whole.
    fn next(&mut self, replies: &Replies) -> Option<Rc<[u8]>> {
        if self.upload.is_none() {
            let end = memchr::memmem::find(&self.input, b"\r\n\r\n")? + 4;
            let head: Vec<u8> = self.input.drain(..end).collect();
            let mut words = head.split(|&byte| byte == b' ');
            if words.next() != Some(b"POST") {
                return Some(replies.of(words.next().unwrap_or_default()));
            }
            // Fronts pass on the length that the client has given.
            let Some(bytes) = content_length(&head) else { return Some(Rc::clone(&replies.unknown)) };
            self.upload = Some(Upload { bytes, left: bytes, sum: 0 });
        }
        let upload = self.upload.as_mut()?;
        let input = std::mem::take(&mut self.input);
        self.input = upload.take(&input).to_vec();
        if upload.left > 0 {
            return None;
        }
        let text = receipt(upload.bytes, upload.sum);
        self.upload = None;
        Some(with_length(text.as_bytes()))
    }
}

fn content_length(head: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(head).ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_answered_however_they_are_split() {
        let replies = Replies::new();
        let text =
            b"POST /upload HTTP/1.1\r\nHost: x\r\ncontent-length: 3\r\n\r\n\x01\x02\x03GET /1k HTTP/1.1\r\nHost: x\r\n\r\n";
        for split in 0..text.len() {
            let mut talk = Talk::default();
            let mut answers = Vec::new();
            for part in [&text[..split], &text[split..]] {
                talk.feed(part);
                answers.extend(std::iter::from_fn(|| talk.next(&replies)));
            }
            let first = String::from_utf8_lossy(&answers[0]);
            assert!(first.ends_with(&receipt(3, 6)), "{first}");
            assert_eq!((answers.len(), &answers[1]), (2, &replies.of(SMALL.as_bytes())), "split at {split}");
        }
    }
}
