//! A reply of another server: its head, where its content ends (RFC 9112 section 6.3), and whether its connection is sound after it.

use std::borrow::Cow;

use super::super::body::{BodyDecoder, BodyLength, BodyState, BodyStep};
use super::super::field::members;
use super::super::head::is;
use super::super::{EntityTag, Limits, Method, Status, scan};
use super::HopByHop;
use super::request::Rest;

/// Bytes of a reply's head.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Interim replies (1xx) before the reply itself: a server may say every few seconds that it's still at it.
const INTERIM_MAX: u8 = 128;

/// Why what a server sent is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReply {
    /// Too long.
    #[error("its head is longer than 32 KiB")]
    TooLong,
    /// Not `HTTP/1.1 200 ...`.
    #[error("its first line isn't a status line of HTTP/1")]
    StatusLine,
    /// A line that isn't `name: value` with CRLF.
    #[error("header line {0} isn't a name, a colon, a value and CRLF")]
    Line(usize),
    /// Nobody can tell where it ends.
    #[error("its Content-Length or Transfer-Encoding is wrong, or they contradict each other")]
    Framing,
    /// A chunk.
    #[error("its chunked coding is wrong")]
    Chunk,
    /// It changed the protocol without having been asked, or to another one.
    #[error("it switches to a protocol that nobody asked for")]
    Switched,
    /// Too many replies that aren't final.
    #[error("it sends interim replies and no final one")]
    Interim,
    /// The connection ended before the reply did.
    #[error("it ended in the middle of its reply")]
    Ended,
}

/// What a reply's head says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyHead {
    /// The status.
    pub status: Status,
    /// Field lines to pass on, each with its CRLF, without Content-Length.
    pub lines: Vec<u8>,
    /// The content's length, if it is known. For HEAD and 304 what it would be.
    pub length: Option<u64>,
}

/// A reply with whose rest another server can go on: all of a resource, under a strong tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    etag: Vec<u8>,
    length: u64,
}

impl Whole {
    /// One of so many bytes under this tag.
    #[must_use]
    pub fn new(etag: Vec<u8>, length: u64) -> Whole {
        Whole { etag, length }
    }

    /// Its entity tag.
    #[must_use]
    pub fn etag(&self) -> &[u8] {
        &self.etag
    }

    /// Its bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// What a reply to GET is, if it's one; from its head as it's passed on.
    #[must_use]
    pub fn of(status: Status, lines: &[u8], length: Option<u64>) -> Option<Whole> {
        let etag = field(lines, b"etag").filter(|etag| EntityTag::is_strong(etag))?;
        let length = length.filter(|_| status == Status::OK)?;
        Some(Whole { etag: etag.to_vec(), length })
    }

    /// What is to be asked for when `first` bytes have come.
    #[must_use]
    pub fn after(&self, first: u64) -> Rest<'_> {
        Rest { etag: &self.etag, first }
    }

    /// Whether that is what another reply has, to its end (RFC 9110 section 15.3.7).
    #[must_use]
    pub fn goes_on_with(&self, first: u64, head: &ReplyHead) -> bool {
        let range = format!("bytes {first}-{}/{}", self.length.saturating_sub(1), self.length);
        head.status == Status::PARTIAL_CONTENT
            && field(&head.lines, b"etag") == Some(&self.etag)
            && field(&head.lines, b"content-range") == Some(range.as_bytes())
            && head.length == self.length.checked_sub(first)
    }
}

/// The value of the first field of that name in `lines`, as [`ReplyHead`] has them.
#[must_use]
pub fn field<'l>(lines: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let mut lines = lines.split(|&byte| byte == b'\n');
    lines.find_map(|line| {
        let (at, rest) = line.split_at_checked(name.len())?;
        let value = rest.strip_prefix(b":").filter(|_| at.eq_ignore_ascii_case(name));
        value.map(<[u8]>::trim_ascii)
    })
}

/// What came of input.
#[derive(Debug, PartialEq, Eq)]
pub enum ReplyStep<'i> {
    /// More has to come.
    NeedInput,
    /// An interim reply (1xx), which the client is to get too (RFC 9110 section 15.2); the reply itself is to come. Never 100: leave to send content is
    /// for whoever holds that to give.
    Interim(ReplyHead),
    /// The head.
    Head(ReplyHead),
    /// Content without any framing: never empty.
    Content(&'i [u8]),
    /// The reply is whole. What follows isn't part of it.
    End,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Head,
    Body(BodyDecoder),
    /// To the end of the connection.
    Rest,
    Ended,
}

/// Where a reader is, for one elsewhere that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderState {
    /// What comes next.
    pub next: ReplyPart,
    /// The server hasn't said that it closes.
    pub is_persistent: bool,
}

/// What a reader expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyPart {
    /// The head.
    Head,
    /// Content that has an end of its own.
    Body(BodyState),
    /// Content to the end of the connection.
    Rest,
}

/// Reads one reply.
#[derive(Clone, Copy, Debug)]
pub struct ReplyReader {
    is_head_request: bool,
    phase: Phase,
    /// Bytes that have been looked through for the head's end.
    searched: usize,
    interims: u8,
    is_persistent: bool,
    /// The request asks for a WebSocket.
    may_switch: bool,
}

impl ReplyReader {
    /// For the reply to a request of that method.
    #[must_use]
    pub fn new(method: Method) -> ReplyReader {
        let is_head_request = method == Method::Head;
        let phase = Phase::Head;
        ReplyReader { is_head_request, phase, searched: 0, interims: 0, is_persistent: false, may_switch: false }
    }

    /// Where it is; `None` after the reply's end.
    #[must_use]
    pub fn export(&self) -> Option<ReaderState> {
        let next = match &self.phase {
            Phase::Head => ReplyPart::Head,
            Phase::Body(decoder) => ReplyPart::Body(decoder.export()),
            Phase::Rest => ReplyPart::Rest,
            Phase::Ended => return None,
        };
        Some(ReaderState { next, is_persistent: self.is_persistent })
    }

    /// Goes on in the reply to a request of that method. `None` for what no reader exports.
    #[must_use]
    pub fn import(method: Method, state: &ReaderState) -> Option<ReplyReader> {
        let phase = match &state.next {
            ReplyPart::Head => Phase::Head,
            ReplyPart::Body(body) => Phase::Body(BodyDecoder::import_of_reply(body)?),
            ReplyPart::Rest => Phase::Rest,
        };
        Some(ReplyReader { phase, is_persistent: state.is_persistent, ..ReplyReader::new(method) })
    }

    /// The request asks for a WebSocket: a reply of 101 that agrees is one, and all that follows is its content.
    pub fn expect_websocket(&mut self) {
        self.may_switch = true;
    }

    /// Takes in everything received and not consumed. Returns how many bytes are done with; call again with the rest until it needs more or
    /// the reply has ended.
    ///
    /// # Errors
    /// Why it's no reply: its connection is of no more use.
    pub fn handle_input<'i>(&mut self, input: &'i [u8]) -> Result<(usize, ReplyStep<'i>), BadReply> {
        match &mut self.phase {
            Phase::Head => self.read_head(input),
            Phase::Rest if input.is_empty() => Ok((0, ReplyStep::NeedInput)),
            Phase::Rest => Ok((input.len(), ReplyStep::Content(input))),
            Phase::Ended => Ok((0, ReplyStep::End)),
            Phase::Body(decoder) => match decoder.step(input, &Limits::WIDEST).map_err(|_| BadReply::Chunk)? {
                (consumed, BodyStep::NeedInput) => Ok((consumed, ReplyStep::NeedInput)),
                (consumed, BodyStep::Content(content)) => Ok((consumed, ReplyStep::Content(content))),
                (consumed, BodyStep::End) => {
                    self.phase = Phase::Ended;
                    Ok((consumed, ReplyStep::End))
                }
            },
        }
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// The reply isn't whole.
    pub fn handle_end(&self) -> Result<(), BadReply> {
        if matches!(self.phase, Phase::Rest | Phase::Ended) { Ok(()) } else { Err(BadReply::Ended) }
    }

    /// Whether another request may be sent on the connection: the reply has ended, and the server hasn't said that it closes.
    #[must_use]
    pub fn is_reusable(&self) -> bool {
        matches!(self.phase, Phase::Ended) && self.is_persistent
    }

    /// Whether the server hasn't said that it closes after this reply; once its head was read.
    pub(super) fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    /// Whether the reply has no other end than the connection's.
    pub(super) fn ends_with_connection(&self) -> bool {
        matches!(self.phase, Phase::Rest)
    }

    fn read_head<'i>(&mut self, input: &'i [u8]) -> Result<(usize, ReplyStep<'i>), BadReply> {
        let window = &input[..input.len().min(HEAD_BYTES_MAX)];
        let from = self.searched.saturating_sub(3).min(window.len());
        // A simple program ends its lines with LF alone, all of them (RFC 9112 section 2.2). One among others is no line's end.
        let has_bare_ends = memchr::memchr(b'\n', window).is_some_and(|at| !window[..at].ends_with(b"\r"));
        let Some(end) = head_end(&window[from..], has_bare_ends).map(|at| from + at) else {
            self.searched = window.len();
            return if input.len() >= HEAD_BYTES_MAX { Err(BadReply::TooLong) } else { Ok((0, ReplyStep::NeedInput)) };
        };
        self.searched = 0;
        let head =
            if has_bare_ends { Cow::Owned(with_whole_ends(&window[..end])) } else { Cow::Borrowed(&window[..end]) };
        let Parsed { status, version_minor, section } = parse_status_line(&head)?;
        match status {
            101 => {
                let fields = Fields::read(section)?;
                if !(self.may_switch && fields.agrees_to_websocket) {
                    return Err(BadReply::Switched);
                }
                self.phase = Phase::Rest;
                let (status, lines) = (Status::SWITCHING_PROTOCOLS, fields.lines);
                return Ok((end, ReplyStep::Head(ReplyHead { status, lines, length: None })));
            }
            100..=199 if self.interims < INTERIM_MAX => {
                self.interims += 1;
                let Some(status) = Status::new(status).filter(|&status| status != Status::CONTINUE) else {
                    return Ok((end, ReplyStep::NeedInput));
                };
                let Fields { lines, .. } = Fields::read(section)?;
                return Ok((end, ReplyStep::Interim(ReplyHead { status, lines, length: None })));
            }
            100..=199 => return Err(BadReply::Interim),
            _ => {}
        }
        let status = Status::new(status).ok_or(BadReply::StatusLine)?;
        let fields = Fields::read(section)?;
        if version_minor == 0 && fields.is_chunked {
            // Who speaks HTTP/1.0 knows no codings: somebody between has passed on what he didn't understand (RFC 9112 section 6.1).
            return Err(BadReply::Framing);
        }
        let length = fields.length()?;
        self.is_persistent = if version_minor > 0 { !fields.closes } else { fields.keeps_alive };
        let has_no_content = self.is_head_request || matches!(status.code(), 204 | 304);
        self.phase = match (fields.is_chunked, length) {
            _ if has_no_content => Phase::Ended,
            (true, _) => Phase::Body(BodyDecoder::of_reply(BodyLength::Chunked)),
            (false, Some(0)) => Phase::Ended,
            (false, Some(length)) => Phase::Body(BodyDecoder::of_reply(BodyLength::Length(length))),
            (false, None) => Phase::Rest,
        };
        Ok((end, ReplyStep::Head(ReplyHead { status, lines: fields.lines, length })))
    }
}

/// Where a head ends that does.
fn head_end(window: &[u8], has_bare_ends: bool) -> Option<usize> {
    if !has_bare_ends {
        return memchr::memmem::find(window, b"\r\n\r\n").map(|at| at + 4);
    }
    memchr::memchr_iter(b'\n', window).find_map(|at| match &window[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

/// The same lines, each with CRLF.
fn with_whole_ends(head: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(head.len() + 32);
    for line in head.split_inclusive(|&byte| byte == b'\n') {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        whole.extend_from_slice(text.strip_suffix(b"\r").unwrap_or(text));
        whole.extend_from_slice(b"\r\n");
    }
    whole
}

struct Parsed<'i> {
    status: u16,
    version_minor: u8,
    section: &'i [u8],
}

fn parse_status_line(head: &[u8]) -> Result<Parsed<'_>, BadReply> {
    let line_end = memchr::memmem::find(head, b"\r\n").ok_or(BadReply::StatusLine)?;
    let (line, section) = (&head[..line_end], &head[line_end + 2..]);
    let [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'0'..=b'9', b' ', code @ ..] = line else {
        return Err(BadReply::StatusLine);
    };
    let ([hundreds @ b'1'..=b'9', tens @ b'0'..=b'9', ones @ b'0'..=b'9']
    | [hundreds @ b'1'..=b'9', tens @ b'0'..=b'9', ones @ b'0'..=b'9', b' ', ..]) = code
    else {
        return Err(BadReply::StatusLine);
    };
    let digit = |byte: &u8| u16::from(byte - b'0');
    let status = digit(hundreds) * 100 + digit(tens) * 10 + digit(ones);
    Ok(Parsed { status, version_minor: minor - b'0', section })
}

/// What the field lines say together.
#[derive(Default)]
struct Fields {
    lines: Vec<u8>,
    content_length: Option<u64>,
    is_length_wrong: bool,
    is_chunked: bool,
    is_coding_wrong: bool,
    closes: bool,
    keeps_alive: bool,
    agrees_to_websocket: bool,
}

impl Fields {
    fn read(section: &[u8]) -> Result<Fields, BadReply> {
        let mut fields = Fields { lines: Vec::with_capacity(section.len()), ..Fields::default() };
        let mut all = Vec::with_capacity(16);
        let mut at = 0;
        while !section[at..].starts_with(b"\r\n") {
            let line = scan::field_line(&section[at..]).ok_or(BadReply::Line(all.len() + 1))?;
            fields.add(line.name, line.value);
            all.push((line.name, line.value));
            at += line.len;
        }
        let connections = all.iter().filter(|(name, _)| is(name, b"connection")).map(|&(_, value)| value);
        let hop_by_hop = HopByHop::of(connections);
        for &(name, value) in &all {
            // Date and Server are said here anew; who said them first doesn't matter to the client.
            let is_own = is(name, b"content-length") || is(name, b"date") || is(name, b"server");
            if !is_own && !hop_by_hop.has(name) {
                [name, b": ", value, b"\r\n"].iter().for_each(|part| fields.lines.extend_from_slice(part));
            }
        }
        Ok(fields)
    }

    fn add(&mut self, name: &[u8], value: &[u8]) {
        if is(name, b"content-length") {
            let number = std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let number = number.and_then(|text| text.parse().ok());
            // Two that agree are common enough, and harmless.
            self.is_length_wrong |= number.is_none() || self.content_length.is_some_and(|known| Some(known) != number);
            self.content_length = number;
        } else if is(name, b"transfer-encoding") {
            self.is_coding_wrong |= self.is_chunked || !value.eq_ignore_ascii_case(b"chunked");
            self.is_chunked = true;
        } else if is(name, b"upgrade") {
            self.agrees_to_websocket = value.eq_ignore_ascii_case(b"websocket");
        } else if is(name, b"connection") {
            for option in members(value) {
                self.closes |= option.eq_ignore_ascii_case(b"close");
                self.keeps_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            }
        }
    }

    /// What Content-Length says; nothing beside a transfer coding.
    fn length(&self) -> Result<Option<u64>, BadReply> {
        let is_contradicted = self.is_chunked && self.content_length.is_some();
        if self.is_length_wrong || self.is_coding_wrong || is_contradicted {
            return Err(BadReply::Framing);
        }
        Ok(self.content_length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_among_lines() {
        let lines = b"ETag-Of: x\r\nETag: \"a:b\"\r\netag: \"c\"\r\nVary:\r\n";
        let found = [b"etag" as &[u8], b"vary", b"etag-", b"age"].map(|name| field(lines, name));
        assert_eq!(found, [Some(b"\"a:b\"" as &[u8]), Some(b""), None, None]);
    }

    #[derive(Debug, PartialEq, Eq)]
    struct Read {
        interims: Vec<ReplyHead>,
        head: ReplyHead,
        content: Vec<u8>,
        has_ended: bool,
        is_reusable: bool,
        left: usize,
    }

    fn read(method: Method, bytes: &[u8], piece: usize) -> Result<Read, BadReply> {
        let mut reader = ReplyReader::new(method);
        let (mut head, mut content, mut kept, mut has_ended) = (None, Vec::new(), Vec::new(), false);
        let mut interims = Vec::new();
        for more in bytes.chunks(piece) {
            kept.extend_from_slice(more);
            // Another goes on in the content as if nothing had happened.
            if let Some(state) = reader.export().filter(|_| head.is_some()) {
                reader = ReplyReader::import(method, &state).unwrap();
            }
            while !has_ended {
                let (consumed, step) = reader.handle_input(&kept)?;
                let waits = step == ReplyStep::NeedInput && consumed == 0;
                match step {
                    ReplyStep::NeedInput => {}
                    ReplyStep::Interim(found) => interims.push(found),
                    ReplyStep::Head(found) => head = Some(found),
                    ReplyStep::Content(bytes) => content.extend_from_slice(bytes),
                    ReplyStep::End => has_ended = true,
                }
                kept.drain(..consumed);
                if waits {
                    break;
                }
            }
        }
        if !has_ended {
            reader.handle_end()?;
        }
        let head = head.ok_or(BadReply::Ended)?;
        Ok(Read { interims, head, content, has_ended, is_reusable: reader.is_reusable(), left: kept.len() })
    }

    fn get(bytes: &str) -> Result<Read, BadReply> {
        let whole = read(Method::Get, bytes.as_bytes(), bytes.len().max(1));
        for piece in [1, 2, 5] {
            assert_eq!(read(Method::Get, bytes.as_bytes(), piece), whole, "in pieces of {piece}");
        }
        whole
    }

    #[test]
    fn a_reply_ends_where_its_framing_says() {
        let known = get("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\nServer: s\r\n\r\nhello").expect("a reply");
        assert_eq!((known.head.status, known.head.length), (Status::OK, Some(5)));
        assert_eq!((&known.content[..], &known.head.lines[..]), (&b"hello"[..], &b"X: y\r\n"[..]));
        assert!(known.has_ended && known.is_reusable);
        let chunked =
            get("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nT: t\r\n\r\n");
        let chunked = chunked.expect("a reply");
        assert_eq!((&chunked.content[..], chunked.head.length), (&b"abcde"[..], None));
        assert!(chunked.has_ended && chunked.is_reusable);

        let padded =
            get("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3  \r\nabc\r\n2\t;x\r\nde\r\n0 \r\n\r\n");
        assert_eq!(padded.expect("a reply").content, b"abcde");
        let rest = get("HTTP/1.1 200 OK\r\n\r\nall the rest").expect("a reply");
        assert_eq!(&rest.content[..], b"all the rest");
        assert!(!rest.has_ended && !rest.is_reusable);
    }

    #[test]
    fn lines_may_end_in_lf_alone_if_all_do() {
        for head in ["HTTP/1.0 200 OK\nX: y\nContent-Length: 2\n\n", "HTTP/1.0 200 OK\nX: y\r\nContent-Length: 2\n\r\n"]
        {
            let reply = get(&format!("{head}ok")).expect("a reply");
            assert_eq!((&reply.head.lines[..], &reply.content[..]), (&b"X: y\r\n"[..], &b"ok"[..]), "{head:?}");
        }
        assert_eq!(get("HTTP/1.1 200 OK\r\nX: y\nZ: z\r\n\r\n"), Err(BadReply::Line(1)));
        assert_eq!(get("garbage\n\n"), Err(BadReply::StatusLine));
    }

    #[test]
    fn odd_statuses_and_later_versions_are_passed_on() {
        for (head, code) in [("HTTP/1.1 999 Denied", 999), ("HTTP/1.1 600", 600), ("HTTP/1.2 200 OK", 200)] {
            let reply = get(&format!("{head}\r\nContent-Length: 2\r\n\r\nok")).expect("a reply");
            assert_eq!((reply.head.status.code(), &reply.content[..], reply.is_reusable), (code, &b"ok"[..], true));
        }
    }

    #[test]
    fn some_replies_have_no_content() {
        for status in ["204 No Content", "304 Not Modified"] {
            let reply = get(&format!("HTTP/1.1 {status}\r\nContent-Length: 7\r\n\r\n")).expect("a reply");
            assert!(reply.has_ended && reply.is_reusable && reply.head.length == Some(7), "{status}");
        }
        let reply = read(Method::Head, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 9).expect("a reply");
        assert!(reply.has_ended && reply.is_reusable);
        let reply = read(Method::Get, b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nabc", 100).expect("a reply");
        assert_eq!(reply.left, 2);
    }

    #[test]
    fn interim_replies_go_before_the_reply() {
        let hints = "HTTP/1.1 103 Early Hints\r\nLink: x\r\nConnection: A\r\nA: b\r\nDate: now\r\n\r\n";
        let reply = get(&format!(
            "HTTP/1.1 100 Continue\r\n\r\n{hints}HTTP/1.1 104\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        ));
        let reply = reply.expect("a reply");
        let told: Vec<_> = reply.interims.iter().map(|head| (head.status.code(), head.lines.as_slice())).collect();
        assert_eq!(
            (told, reply.head.lines.as_slice()),
            (vec![(103, b"Link: x\r\n".as_slice()), (104, b"")], b"".as_slice())
        );
        assert_eq!(get("HTTP/1.1 101 Switching Protocols\r\n\r\n"), Err(BadReply::Switched));
        assert_eq!(get("HTTP/1.1 103 Early Hints\r\nLink x\r\n\r\n"), Err(BadReply::Line(1)));
        for interim in ["HTTP/1.1 100 Continue\r\n\r\n", hints] {
            assert_eq!(get(&interim.repeat(usize::from(INTERIM_MAX) + 1)), Err(BadReply::Interim));
        }
    }

    #[test]
    fn who_asks_for_a_websocket_gets_that_or_a_reply() {
        let read = |bytes: &str| {
            let mut reader = ReplyReader::new(Method::Get);
            reader.expect_websocket();
            let (consumed, step) = reader.handle_input(bytes.as_bytes())?;
            let ReplyStep::Head(head) = step else { panic!("{step:?}") };
            let (_, rest) = reader.handle_input(&bytes.as_bytes()[consumed..])?;
            assert_eq!((rest, reader.is_reusable()), (ReplyStep::Content(b"first"), false));
            reader.handle_end().map(|()| (head.status, head.lines))
        };
        let lines = b"Sec-WebSocket-Accept: x\r\n".to_vec();
        assert_eq!(
            read(
                "HTTP/1.1 101 Well\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\nfirst"
            ),
            Ok((Status::SWITCHING_PROTOCOLS, lines))
        );
        assert_eq!(
            read("HTTP/1.1 101 Well\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nfirst"),
            Err(BadReply::Switched)
        );
        assert_eq!(get("HTTP/1.1 101 Well\r\nUpgrade: websocket\r\n\r\n"), Err(BadReply::Switched));
    }

    #[test]
    fn a_server_that_closes_is_believed() {
        for (head, is_reusable) in [
            ("HTTP/1.1 200 OK\r\nConnection: Close\r\n", false),
            ("HTTP/1.0 200 OK\r\n", false),
            ("HTTP/1.0 200 OK\r\nConnection: keep-alive, x\r\nX: 1\r\n", true),
        ] {
            let reply = get(&format!("{head}Content-Length: 0\r\n\r\n")).expect("a reply");
            assert_eq!((reply.is_reusable, &reply.head.lines[..]), (is_reusable, &b""[..]), "{head}");
        }
    }

    #[test]
    fn what_isnt_a_reply_is_told_apart() {
        for (bytes, bad) in [
            ("", BadReply::Ended),
            ("HTTP/1.1 200 OK\r\n", BadReply::Ended),
            ("HTTP/2 200\r\n\r\n", BadReply::StatusLine),
            ("HTTP/1.1 2000\r\n\r\n", BadReply::StatusLine),
            ("HTTP/1.1 099 x\r\n\r\n", BadReply::StatusLine),
            ("<html>\r\n\r\n", BadReply::StatusLine),
            ("HTTP/1.1 200 OK\r\nX : y\r\n\r\n", BadReply::Line(1)),
            ("HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n", BadReply::Line(2)),
            ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", BadReply::Framing),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na", BadReply::Framing),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", BadReply::Framing),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", BadReply::Framing),
            ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", BadReply::Framing),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", BadReply::Chunk),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1 1\r\n", BadReply::Chunk),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n 1\r\n", BadReply::Chunk),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", BadReply::Ended),
        ] {
            assert_eq!(get(bytes).map(|_| ()), Err(bad), "{bytes:?}");
        }
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "a".repeat(HEAD_BYTES_MAX));
        assert_eq!(read(Method::Get, endless.as_bytes(), 4096).map(|_| ()), Err(BadReply::TooLong));
    }
}
