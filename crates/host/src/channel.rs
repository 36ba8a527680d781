//! Messages with descriptors between two processes of one server, over a Unix socket. What the messages mean is the caller's.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::fs::MemfdFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

/// Bytes in one message: a connection that passes may bring along what its client has sent ahead.
const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Descriptors in one message; the kernel allows 253.
pub const DESCRIPTORS_MAX: usize = 250;

/// A message of text, and descriptors that come with it.
#[derive(Debug)]
pub struct Message {
    /// The text.
    pub text: String,
    /// At most [`DESCRIPTORS_MAX`].
    pub descriptors: Vec<OwnedFd>,
}

/// A message of any bytes.
#[derive(Debug)]
pub struct Packet {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// At most [`DESCRIPTORS_MAX`]; fewer than were sent when this process has no room for more.
    pub descriptors: Vec<OwnedFd>,
}

/// Sends a message; waits until the other side has room for it.
///
/// # Errors
/// Those of sendmsg(2): the other process has gone.
pub fn send(stream: &UnixStream, text: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_bytes(stream, text.as_bytes(), descriptors)
}

/// As [`send`], with any bytes.
///
/// # Errors
/// As [`send`]; after one the other side has no whole message, and can read none any more.
pub fn send_bytes(mut stream: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    if bytes.len() > MESSAGE_BYTES_MAX || descriptors.len() > DESCRIPTORS_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "message too long for the channel"));
    }
    // The descriptors travel with the length, so that a reader has them before the text.
    let length = (bytes.len() as u32).to_be_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let sent = loop {
        match rustix::net::sendmsg(stream.as_fd(), &[IoSlice::new(&length)], &mut ancillary, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    stream.write_all(&length[sent..])?;
    stream.write_all(bytes)
}

/// A text that may be longer than a message, as a descriptor to be sent with one.
///
/// # Errors
/// Those of memfd_create(2): there is no memory.
pub fn text_as_descriptor(text: &str) -> io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create(c"leat text", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file.into())
}

/// The text that a descriptor of [`text_as_descriptor`] brings.
///
/// # Errors
/// Those of read(2), or what isn't UTF-8.
pub fn text_of_descriptor(descriptor: OwnedFd) -> io::Result<String> {
    io::read_to_string(File::from(descriptor))
}

/// Waits for a message; `Ok(None)` when the other process has closed its end.
///
/// # Errors
/// Those of recvmsg(2), a message that isn't UTF-8 or too long, an end in its middle.
pub fn receive(stream: &UnixStream) -> io::Result<Option<Message>> {
    let Some(Packet { bytes, descriptors }) = receive_bytes(stream)? else { return Ok(None) };
    let text = String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Some(Message { text, descriptors }))
}

/// As [`receive`], with any bytes.
///
/// # Errors
/// As [`receive`], but for what isn't UTF-8.
pub fn receive_bytes(mut stream: &UnixStream) -> io::Result<Option<Packet>> {
    let mut length = [0u8; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let flags = RecvFlags::CMSG_CLOEXEC;
        match rustix::net::recvmsg(stream.as_fd(), &mut [IoSliceMut::new(&mut length)], &mut ancillary, flags) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?.bytes,
        }
    };
    if received == 0 {
        return Ok(None);
    }
    let mut descriptors = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    stream.read_exact(&mut length[received..])?;
    let length = u32::from_be_bytes(length) as usize;
    if length > MESSAGE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message too long"));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(Some(Packet { bytes, descriptors }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_descriptors_arrive_together_and_in_order() {
        let (left, right) = UnixStream::pair().unwrap();
        let (inner, mut outer) = UnixStream::pair().unwrap();
        send(&left, "first", &[inner.as_fd()]).unwrap();
        send(&left, "", &[]).unwrap();
        drop((left, inner));

        let first = receive(&right).unwrap().unwrap();
        assert_eq!((first.text.as_str(), first.descriptors.len()), ("first", 1));
        let mut passed = UnixStream::from(first.descriptors.into_iter().next().unwrap());
        outer.write_all(b"hello").unwrap();
        drop(outer);
        let mut read = String::new();
        passed.read_to_string(&mut read).unwrap();
        assert_eq!(read, "hello");

        let second = receive(&right).unwrap().unwrap();
        assert!(second.text.is_empty() && second.descriptors.is_empty());
        assert!(receive(&right).unwrap().is_none());
    }

    #[test]
    fn a_text_longer_than_a_message_is_a_descriptor() {
        let (left, right) = UnixStream::pair().unwrap();
        let text = "x".repeat(MESSAGE_BYTES_MAX + 1);
        assert!(send(&left, &text, &[]).is_err());
        send(&left, "look", &[text_as_descriptor(&text).unwrap().as_fd()]).unwrap();
        let Message { mut descriptors, .. } = receive(&right).unwrap().unwrap();
        assert!(text_of_descriptor(descriptors.remove(0)).unwrap() == text);
    }

    #[test]
    fn an_end_in_the_middle_is_an_error() {
        let (mut left, right) = UnixStream::pair().unwrap();
        left.write_all(&[0, 0, 0, 9, b'x']).unwrap();
        drop(left);
        assert_eq!(receive(&right).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
