//! Reading replies: where each ends, and whether it is the one that was asked for. No I/O.

use thiserror::Error;

use crate::workload::mix::{Target, Whose};

/// The status that says that a server has too much to do: not what was asked for, and not wrong.
pub(super) const REFUSAL: u16 = 503;
/// So much of a body is looked at in any case where it says whose it is.
const TELLING_BYTES: usize = 64;
/// Heads past this length are refused.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// What is wrong with a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Fault {
    #[error("the head can't be understood")]
    MalformedHead,
    #[error("status {0}")]
    Status(u16),
    #[error("a body of {got} bytes instead of {wanted}")]
    Length { got: u64, wanted: u64 },
    #[error("the body differs from the file")]
    Body,
}

/// How far one reply has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All bytes were used up and more are needed.
    More,
    /// The reply is complete.
    Complete { close: bool, is_refusal: bool },
}

/// Reads one reply after another from a connection's bytes.
#[derive(Default)]
pub(crate) struct ReplyReader {
    /// A head of which only a part has come; empty but for that.
    partial_head: Vec<u8>,
    body: Option<BodyState>,
    /// The last complete one's server.
    server: Option<u32>,
}

struct BodyState {
    offset: u64,
    /// Of the content, or of the chunk that is under way.
    left: u64,
    close: bool,
    is_refusal: bool,
    whose: Whose,
    chunks: Option<Chunks>,
}

impl BodyState {
    /// Looks at the body's next bytes: at all where they're to be compared, and at its first where these say whose it is.
    fn look_at(&mut self, bytes: &[u8], target: &Target, verify: bool) -> Result<(), Fault> {
        let is_telling = self.offset == 0 && target.body.tells_servers_apart();
        let seen = if is_telling && !verify { &bytes[..bytes.len().min(TELLING_BYTES)] } else { bytes };
        if (verify || is_telling) && !self.is_refusal {
            self.whose = target.body.whose(self.offset, seen, self.whose);
            return if self.whose.is_nobodys() { Err(Fault::Body) } else { Ok(()) };
        }
        Ok(())
    }
}

/// Where content that comes in chunks stands between them.
#[derive(Default)]
struct Chunks {
    /// A line of which only a part has come.
    line: Vec<u8>,
    next: ChunkLine,
}

/// What the next line is.
#[derive(Default)]
enum ChunkLine {
    #[default]
    Size,
    /// The empty one behind a chunk.
    EndOfChunk,
    /// Behind the last chunk: fields, then an empty one.
    Trailer,
}

struct Head {
    status: u16,
    bytes: usize,
    /// 0 where it comes in chunks.
    content_length: u64,
    is_chunked: bool,
    close: bool,
}

impl ReplyReader {
    /// Takes bytes from the front of `bytes` until they or the reply end. With `verify`, compares the body.
    ///
    /// # Errors
    /// The reply isn't what `target` wants; the connection is of no more use then.
    pub(crate) fn take(&mut self, bytes: &mut &[u8], target: &Target, verify: bool) -> Result<Progress, Fault> {
        if self.body.is_none() {
            let Some(head) = self.take_head(bytes)? else { return Ok(Progress::More) };
            let is_refusal = head.status == REFUSAL;
            if !target.statuses.contains(&head.status) && !is_refusal {
                return Err(Fault::Status(head.status));
            }
            if let Some(wanted) = target.body_bytes
                && wanted != head.content_length
                && !head.is_chunked
                && !is_refusal
            {
                return Err(Fault::Length { got: head.content_length, wanted });
            }
            let chunks = head.is_chunked.then(Chunks::default);
            let (left, whose) = (head.content_length, target.body.anybodys());
            self.body = Some(BodyState { offset: 0, left, close: head.close, is_refusal, whose, chunks });
        }
        let Some(state) = self.body.as_mut() else { return Ok(Progress::More) };
        if state.chunks.is_some() {
            return self.take_chunks(bytes, target, verify);
        }
        let count = (bytes.len() as u64).min(state.left);
        let (now, rest) = bytes.split_at(count as usize);
        *bytes = rest;
        state.look_at(now, target, verify)?;
        Ok(self.advance(count))
    }

    /// Notes that `count` bytes of the body went by unseen; no more than [`Self::body_left`].
    pub(crate) fn skip(&mut self, count: u64) -> Progress {
        self.advance(count)
    }

    /// Bytes of the body still to come, of its chunk where it comes in chunks; `None` while in a head.
    pub(crate) fn body_left(&self) -> Option<u64> {
        self.body.as_ref().map(|body| body.left)
    }

    /// Whose the last complete reply was, where its content says so.
    pub(crate) fn server(&self) -> Option<u32> {
        self.server
    }

    fn advance(&mut self, count: u64) -> Progress {
        let Some(state) = self.body.as_mut() else { return Progress::More };
        state.offset += count;
        state.left -= count.min(state.left);
        if state.left > 0 || state.chunks.is_some() {
            return Progress::More;
        }
        let BodyState { close, is_refusal, whose, .. } = *state;
        self.body = None;
        self.server = whose.server();
        Progress::Complete { close, is_refusal }
    }

    /// Takes chunks and the lines around them; the length is known at their end.
    fn take_chunks(&mut self, bytes: &mut &[u8], target: &Target, verify: bool) -> Result<Progress, Fault> {
        while let Some(state) = self.body.as_mut()
            && let Some(chunks) = state.chunks.as_mut()
            && !bytes.is_empty()
        {
            if state.left > 0 {
                let (now, rest) = bytes.split_at((bytes.len() as u64).min(state.left) as usize);
                *bytes = rest;
                state.look_at(now, target, verify)?;
                state.offset += now.len() as u64;
                state.left -= now.len() as u64;
                continue;
            }
            let end = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |end| end + 1);
            chunks.line.extend_from_slice(&bytes[..end]);
            *bytes = &bytes[end..];
            if chunks.line.last() != Some(&b'\n') {
                let is_endless = chunks.line.len() > HEAD_BYTES_MAX;
                return if is_endless { Err(Fault::MalformedHead) } else { Ok(Progress::More) };
            }
            let line = std::mem::take(&mut chunks.line);
            let line = line.trim_ascii_end();
            match chunks.next {
                ChunkLine::Size => {
                    state.left = chunk_bytes(line).ok_or(Fault::MalformedHead)?;
                    chunks.next = if state.left == 0 { ChunkLine::Trailer } else { ChunkLine::EndOfChunk };
                }
                ChunkLine::EndOfChunk if line.is_empty() => chunks.next = ChunkLine::Size,
                ChunkLine::EndOfChunk => return Err(Fault::MalformedHead),
                ChunkLine::Trailer if line.is_empty() => {
                    let BodyState { offset: got, close, is_refusal, whose, .. } = *state;
                    self.body = None;
                    self.server = whose.server();
                    return match target.body_bytes {
                        Some(wanted) if wanted != got && !is_refusal => Err(Fault::Length { got, wanted }),
                        _ => Ok(Progress::Complete { close, is_refusal }),
                    };
                }
                ChunkLine::Trailer => {}
            }
        }
        Ok(Progress::More)
    }

    fn take_head(&mut self, bytes: &mut &[u8]) -> Result<Option<Head>, Fault> {
        if self.partial_head.is_empty() {
            if let Some(head) = parse_head(bytes)? {
                *bytes = &bytes[head.bytes..];
                return Ok(Some(head));
            }
            self.partial_head.extend_from_slice(bytes);
            *bytes = &[];
        } else {
            let before = self.partial_head.len();
            self.partial_head.extend_from_slice(bytes);
            if let Some(head) = parse_head(&self.partial_head)? {
                *bytes = &bytes[head.bytes - before..];
                self.partial_head = Vec::new();
                return Ok(Some(head));
            }
            *bytes = &[];
        }
        if self.partial_head.len() > HEAD_BYTES_MAX { Err(Fault::MalformedHead) } else { Ok(None) }
    }
}

/// Lengths of head and body of a reply whose head has come; `None` before.
///
/// # Errors
/// Not a reply with status 200 and a length.
pub(crate) fn lengths(bytes: &[u8]) -> Result<Option<(usize, u64)>, Fault> {
    match parse_head(bytes)? {
        Some(head) if head.status != 200 => Err(Fault::Status(head.status)),
        Some(head) if head.is_chunked => Err(Fault::MalformedHead),
        head => Ok(head.map(|head| (head.bytes, head.content_length))),
    }
}

/// Finds the end, status, length and persistence of a head; `None` when its end hasn't come.
///
/// Each byte is looked at once, by line: at 150,000 replies a second a general parser would be a tenth of the cost.
fn parse_head(bytes: &[u8]) -> Result<Option<Head>, Fault> {
    let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else { return Ok(None) };
    let lines = &bytes[..end + 2];
    let digits = lines.get(9..12).ok_or(Fault::MalformedHead)?;
    if !lines.starts_with(b"HTTP/1.") || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Fault::MalformedHead);
    }
    let status = digits.iter().fold(0, |status, digit| status * 10 + u16::from(digit - b'0'));
    let mut content_length = None;
    let mut is_chunked = false;
    let mut close = lines[7] == b'0';
    let mut start = 0;
    for line_end in memchr::memchr_iter(b'\n', lines) {
        let line = &lines[start..line_end];
        start = line_end + 1;
        match line.first() {
            Some(b'C' | b'c') => {}
            Some(b'T' | b't') => match field(line, b"transfer-encoding:") {
                Some(coding) if coding.eq_ignore_ascii_case(b"chunked") => is_chunked = true,
                Some(_) => return Err(Fault::MalformedHead),
                None => continue,
            },
            _ => continue,
        }
        if let Some(value) = field(line, b"content-length:") {
            let value = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            content_length = Some(value.ok_or(Fault::MalformedHead)?);
        } else if let Some(value) = field(line, b"connection:") {
            close = value.eq_ignore_ascii_case(b"close");
        }
    }
    let content_length = match (content_length, is_chunked) {
        (Some(length), false) => length,
        (None, true) => 0,
        _ => return Err(Fault::MalformedHead),
    };
    Ok(Some(Head { status, bytes: end + 4, content_length, is_chunked, close }))
}

/// A chunk's length, by its first line.
fn chunk_bytes(line: &[u8]) -> Option<u64> {
    let digits = line.split(|&byte| byte == b';').next()?.trim_ascii();
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The value of a line if its name is `name` (in lower case, with its colon).
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::content::Content;
    use crate::workload::mix::Body;

    fn reply(content: Content) -> Vec<u8> {
        let mut reply = b"HTTP/1.1 200 OK\r\nServer: x\r\ncontent-length: 30\r\nConnection: close\r\n\r\n".to_vec();
        reply.extend_from_slice(&content.bytes(30));
        reply
    }

    fn target(content: Content, bytes: u64) -> Target {
        Target::new("/", false, Some(bytes), Body::Seeded(content))
    }

    #[test]
    fn a_reply_is_read_however_it_is_split() {
        let content = Content::new(1);
        let reply = reply(content);
        let target = target(content, 30);
        for first in 0..reply.len() {
            for second in first..reply.len() {
                let mut reader = ReplyReader::default();
                let mut last = Progress::More;
                for mut part in [&reply[..first], &reply[first..second], &reply[second..]] {
                    assert_eq!(last, Progress::More);
                    last = reader.take(&mut part, &target, true).expect("it is the right reply");
                    assert!(part.is_empty());
                }
                assert_eq!(last, Progress::Complete { close: true, is_refusal: false });
            }
        }
    }

    /// Chunks of 20 and 10 bytes.
    fn chunked(content: Content) -> Vec<u8> {
        let bytes = content.bytes(30);
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".as_slice();
        [head, b"14\r\n", &bytes[..20], b"\r\nA;x\r\n", &bytes[20..], b"\r\n0\r\nX: y\r\n\r\n"].concat()
    }

    #[test]
    fn chunks_are_read_however_they_are_split() {
        let content = Content::new(1);
        let reply = chunked(content);
        let target = target(content, 30);
        for first in 0..reply.len() {
            for second in first..reply.len() {
                let mut reader = ReplyReader::default();
                let mut last = Progress::More;
                for mut part in [&reply[..first], &reply[first..second], &reply[second..]] {
                    assert_eq!(last, Progress::More);
                    last = reader.take(&mut part, &target, true).expect("it is the right reply");
                    assert!(part.is_empty());
                }
                assert_eq!(last, Progress::Complete { close: false, is_refusal: false });
            }
        }
    }

    #[test]
    fn what_is_skipped_of_a_chunk_counts() {
        let content = Content::new(1);
        let reply = chunked(content);
        let data = memchr::memmem::find(&reply, b"14\r\n").expect("the first chunk") + 4;
        let target = target(content, 30);
        let mut reader = ReplyReader::default();
        assert_eq!(reader.take(&mut &reply[..data], &target, false), Ok(Progress::More));
        assert_eq!(reader.body_left(), Some(20));
        assert_eq!(reader.skip(20), Progress::More);
        let end = Ok(Progress::Complete { close: false, is_refusal: false });
        assert_eq!(reader.take(&mut &reply[data + 20..], &target, false), end);
    }

    #[test]
    fn pipelined_replies_are_told_apart() {
        let content = Content::new(1);
        let both = [reply(content), reply(content)].concat();
        let target = target(content, 30);
        let mut reader = ReplyReader::default();
        let mut rest = both.as_slice();
        for _ in 0..2 {
            assert_eq!(
                reader.take(&mut rest, &target, true),
                Ok(Progress::Complete { close: true, is_refusal: false })
            );
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn what_is_wrong_is_told() {
        let content = Content::new(1);
        let good = reply(content);
        let fault = |bytes: &[u8], target: &Target| {
            ReplyReader::default().take(&mut &bytes[..], target, true).expect_err("it is wrong")
        };
        assert_eq!(fault(&good, &target(content, 31)), Fault::Length { got: 30, wanted: 31 });
        assert_eq!(fault(&good, &target(Content::new(2), 30)), Fault::Body);
        assert_eq!(fault(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", &target(content, 30)), Fault::Status(404));
        assert_eq!(fault(b"SMTP please, thank you\r\n\r\n", &target(content, 30)), Fault::MalformedHead);
        assert_eq!(fault(b"HTTP/1.1 200 OK\r\n\r\n", &target(content, 30)), Fault::MalformedHead);
        let both = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 30\r\n\r\n";
        assert_eq!(fault(both, &target(content, 30)), Fault::MalformedHead);
        let chunked = chunked(content);
        assert_eq!(fault(&chunked, &target(content, 31)), Fault::Length { got: 30, wanted: 31 });
        assert_eq!(fault(&chunked, &target(Content::new(2), 30)), Fault::Body);
        let no_number = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n";
        assert_eq!(fault(no_number, &target(content, 30)), Fault::MalformedHead);
    }

    #[test]
    fn content_says_whose_it_is() {
        let (content, other) = (Content::new(1), Content::new(2));
        let of = |contents: [Option<Content>; 3]| {
            let target = Target::new("/", false, Some(30), Body::ByServer(contents.into()));
            let said = |verify| {
                let mut reader = ReplyReader::default();
                reader.take(&mut &reply(content)[..], &target, verify).map(|_| reader.server())
            };
            assert_eq!(said(true), said(false), "its first bytes say so");
            said(true)
        };
        assert_eq!(of([None, Some(other), Some(content)]), Ok(Some(2)));
        assert_eq!(of([None, Some(content), None]), Ok(Some(1)));
        assert_eq!(of([Some(content), Some(content), None]), Ok(None));
        assert_eq!(of([Some(other), None, None]), Err(Fault::Body), "it's of one that hasn't it");
        // Begun by one and ended by the other.
        let mixed = [&content.bytes(100)[..], &other.bytes(200)[100..]].concat();
        let reply = [b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n".as_slice(), &mixed].concat();
        let target = Target::new("/", false, Some(200), Body::ByServer([Some(content), Some(other)].into()));
        assert_eq!(ReplyReader::default().take(&mut &reply[..], &target, true), Err(Fault::Body));
    }

    #[test]
    fn a_head_without_end_is_refused() {
        let mut reader = ReplyReader::default();
        let content = Content::new(1);
        let mut results = (0..9).map(|_| reader.take(&mut &[b'x'; 1024][..], &target(content, 1), true));
        assert!(results.any(|result| result == Err(Fault::MalformedHead)));
    }

    #[test]
    fn skipped_bytes_count() {
        let content = Content::new(1);
        let reply = reply(content);
        let mut reader = ReplyReader::default();
        let mut part = &reply[..reply.len() - 20];
        assert_eq!(reader.take(&mut part, &target(content, 30), true), Ok(Progress::More));
        assert_eq!(reader.body_left(), Some(20));
        assert_eq!(reader.skip(19), Progress::More);
        assert_eq!(reader.skip(1), Progress::Complete { close: true, is_refusal: false });
    }
}
