//! What nodes tell of how far their connections have come, and what of that their homes keep: the last, and what their clients may not have got to the
//! end. How a connection goes on by it, `continuation.rs` knows.

use std::collections::VecDeque;

use bytes::Bytes;

use super::http::HttpState;
use super::limits::{PROGRESS_BYTES_MAX, PROGRESSES_MAX};
use super::reply::ReplyState;
use super::wire::{DecodeError, Reader, put_number};

/// What a node tells when it begins a reply, before the first byte of it is sent; and of a connection that has nothing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes sent since the image, before this reply.
    pub server_bytes: u64,
    /// Of those, the ones that the client has acknowledged: it's done with replies that end there.
    pub acknowledged_bytes: u64,
    /// Bytes read since the image.
    pub client_bytes: u64,
    /// The protocol's state now, with whatever has been received and not consumed.
    pub http: HttpState,
    /// The whole reply. `None`: all that was asked for has been answered, and the client has acknowledged it.
    pub reply: Option<ReplyState>,
}

impl Progress {
    /// As bytes.
    ///
    /// # Errors
    /// A part that is over its limit: the reply isn't told of, and is cut if its node dies.
    pub fn encode(&self) -> Result<Vec<u8>, DecodeError> {
        let mut out = Vec::with_capacity(256);
        put_number(&mut out, self.server_bytes);
        put_number(&mut out, self.acknowledged_bytes);
        put_number(&mut out, self.client_bytes);
        self.http.encode(&mut out);
        if let Some(reply) = &self.reply {
            reply.encode(&mut out);
        }
        Progress::decode(&out).map(|_| out)
    }

    /// From bytes.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Progress, DecodeError> {
        if bytes.len() > PROGRESS_BYTES_MAX {
            let (found, most) = (bytes.len() as u64, PROGRESS_BYTES_MAX as u64);
            return Err(DecodeError::TooLarge { what: "a reply's description", found, most });
        }
        let mut reader = Reader::new(bytes);
        let (server_bytes, acknowledged_bytes) = read_place(&mut reader)?;
        Ok(Progress {
            server_bytes,
            acknowledged_bytes,
            client_bytes: reader.number("the bytes received before")?,
            http: HttpState::decode(&mut reader)?,
            reply: if reader.is_empty() { None } else { Some(ReplyState::decode(&mut reader)?) },
        })
    }

    /// What the client had asked for behind this reply's request, by what was told of `later` replies: their requests, if those are all that came since.
    /// One that had a body, or wasn't told of, leaves a gap. An end of the client's may count as a byte.
    pub(super) fn add_requests(&mut self, later: &[Progress], may_have_ended: bool) {
        let Some(last) = later.last() else { return };
        let heads = later.iter().map(|progress| &progress.http.head[..]);
        let requests: Vec<u8> = heads.chain([&last.http.input[..]]).collect::<Vec<_>>().concat();
        let had_come = self.client_bytes.saturating_sub(self.http.input.len() as u64);
        let gap = last.client_bytes.checked_sub(had_come + requests.len() as u64);
        if gap == Some(0) || may_have_ended && gap == Some(1) {
            self.client_bytes = last.client_bytes;
            self.http.input = requests;
        }
    }
}

/// Where a reply begins, and what was acknowledged by then.
fn read_place(reader: &mut Reader<'_>) -> Result<(u64, u64), DecodeError> {
    Ok((reader.number("the bytes sent before")?, reader.number("the bytes acknowledged before")?))
}

/// What a node has told of a connection since the last image of it, encoded, the oldest first: the last, and replies before it of which the client may
/// not have all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told(VecDeque<Bytes>);

impl Told {
    /// Adds what was told last, and drops what the client is done with, or too much.
    pub fn add(&mut self, progress: Bytes) {
        // What can't be read leaves the image alone.
        let (begins, acknowledged) = read_place(&mut Reader::new(&progress)).unwrap_or((0, 0));
        while self.0.back().is_some_and(|last| begins_at(last) >= begins) {
            self.0.pop_back();
        }
        self.0.push_back(progress);
        while self.0.len() > PROGRESSES_MAX || self.0.get(1).is_some_and(|second| begins_at(second) <= acknowledged) {
            self.0.pop_front();
        }
    }

    /// Whether nothing was told.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes that are kept.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// What was told, the oldest first. What can't be read was never told.
    #[must_use]
    pub fn read(&self) -> Vec<Progress> {
        self.0.iter().filter_map(|progress| Progress::decode(progress).ok()).collect()
    }
}

fn begins_at(progress: &[u8]) -> u64 {
    Reader::new(progress).number("the bytes sent before").unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(server_bytes: u64, acknowledged_bytes: u64) -> Progress {
        Progress { server_bytes, acknowledged_bytes, client_bytes: 0, http: HttpState::default(), reply: None }
    }

    fn kept(all: &[(u64, u64)]) -> Vec<u64> {
        let mut kept = Told::default();
        for &(server_bytes, acknowledged_bytes) in all {
            kept.add(told(server_bytes, acknowledged_bytes).encode().unwrap().into());
        }
        assert_eq!(kept.len_bytes(), kept.0.iter().map(Bytes::len).sum());
        kept.read().iter().map(|progress| progress.server_bytes).collect()
    }

    #[test]
    fn replies_are_kept_until_their_client_has_acknowledged_them() {
        assert_eq!(kept(&[(0, 0), (100, 0), (200, 99)]), [0, 100, 200]);
        assert_eq!(kept(&[(0, 0), (100, 0), (200, 100)]), [100, 200]);
        assert_eq!(kept(&[(0, 0), (100, 100)]), [100], "who asks for one after the other has one");
        assert_eq!(kept(&[(0, 0), (100, 0), (200, 0), (300, 300)]), [300]);
        // What is told of the same reply again takes its place.
        assert_eq!(kept(&[(0, 0), (100, 0), (100, 50)]), [0, 100]);
    }

    #[test]
    fn so_many_are_kept_and_no_more() {
        let all: Vec<(u64, u64)> = (0..100).map(|number| (number * 10, 0)).collect();
        let kept = kept(&all);
        assert_eq!((kept.len(), kept.last()), (PROGRESSES_MAX, Some(&990)));
    }

    #[test]
    fn what_cant_be_read_was_never_told() {
        let mut kept = Told::default();
        kept.add(told(7, 0).encode().unwrap().into());
        kept.add(Bytes::from_static(&[0xff]));
        assert!(kept.len_bytes() > 0 && kept.read().len() <= 1);
    }
}
