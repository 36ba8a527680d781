//! From bytes to a head (RFC 9112 sections 2, 3 and 5): `httparse` finds the fields, this file adds what strictness asks beyond it, and
//! the limits.
//!
//! A line is judged when its line feed has come, or when the head has reached its limit, so what a head leads to never depends on how
//! its bytes were cut on the way. A head that comes in pieces is searched once for its end, not anew from the start with each piece.

use std::mem::MaybeUninit;

use super::body::Framing;
use super::conditional::Conditions;
use super::field::is_token_byte;
use super::host;
use super::method::Method;
use super::rejection::RejectReason;
use super::request::{Headers, Request, Version};
use super::target;
use super::{EMPTY_LINES_MAX, HEAD_BYTES_CEILING, HEADER_COUNT_CEILING, Limits};

/// How far the search for the head's end has come. Offsets are from the head's first byte.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeadProgress {
    /// No line feed from `line_start` to here.
    searched: u16,
    /// Where the first line begins that has not been judged; zero until the request line has been.
    line_start: u16,
    /// Header lines judged.
    lines: u8,
    /// Empty lines passed over before the request line.
    empty_lines: u8,
}

/// What a look at the input found.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "made and taken apart within one call: a box would be an allocation for each request"
)]
pub(super) enum HeadStep<'i> {
    /// So many bytes (empty lines) are done with; the rest is not a whole head yet.
    NeedInput(usize),
    /// So many bytes were empty lines and the head.
    Head(usize, Request<'i>),
    Reject(RejectReason),
}

impl HeadProgress {
    /// True when the first byte of a head has been seen.
    pub(super) fn has_begun(self) -> bool {
        self.searched > 0
    }

    /// Looks at everything received from where the head before ended.
    pub(super) fn step<'i>(&mut self, input: &'i [u8], limits: &Limits) -> HeadStep<'i> {
        let mut skipped = 0;
        if self.searched == 0 && input.first().is_some_and(|&byte| !is_token_byte(byte)) {
            match self.skip_empty_lines(input) {
                Ok(count) => skipped = count,
                Err(reason) => return HeadStep::Reject(reason),
            }
        }
        let input = &input[skipped..];
        // A CR alone may still become an empty line.
        if input.is_empty() || input == b"\r" {
            return HeadStep::NeedInput(skipped);
        }
        let bytes_max = limits.head_bytes_max.min(HEAD_BYTES_CEILING);
        let window = &input[..input.len().min(bytes_max)];
        if self.searched == 0 {
            match parse(window, limits) {
                Ok(Some((length, request))) => return HeadStep::Head(skipped + length, request),
                Ok(None) => {}
                Err(Failure::Certain(reason)) => return HeadStep::Reject(reason),
                Err(Failure::Syntax) => {
                    if let Err(reason) = judge_whole_lines(window, limits) {
                        return HeadStep::Reject(reason);
                    }
                }
            }
        } else {
            match self.resume(window, limits) {
                Ok(false) => {}
                Ok(true) => match parse(window, limits) {
                    Ok(Some((length, request))) => return HeadStep::Head(skipped + length, request),
                    Ok(None) | Err(Failure::Syntax) => return HeadStep::Reject(diagnose(window, limits)),
                    Err(Failure::Certain(reason)) => return HeadStep::Reject(reason),
                },
                Err(reason) => return HeadStep::Reject(reason),
            }
        }
        if input.len() >= bytes_max {
            let in_request_line = memchr::memchr(b'\n', window).is_none();
            return HeadStep::Reject(if in_request_line {
                RejectReason::RequestLineTooLong
            } else {
                RejectReason::HeadTooLong
            });
        }
        self.remember(window);
        HeadStep::NeedInput(skipped)
    }

    /// Passes over empty lines, or says what a first byte means that begins no method.
    #[cold]
    fn skip_empty_lines(&mut self, input: &[u8]) -> Result<usize, RejectReason> {
        let mut skipped = 0;
        while input[skipped..].starts_with(b"\r\n") {
            if self.empty_lines == EMPTY_LINES_MAX {
                return Err(RejectReason::EmptyLines);
            }
            self.empty_lines += 1;
            skipped += 2;
        }
        match &input[skipped..] {
            [] | [b'\r'] => Ok(skipped),
            [b'\r', ..] => Err(RejectReason::BareCarriageReturn),
            [b'\n', ..] => Err(RejectReason::BareLineFeed),
            [TLS_HANDSHAKE, ..] => Err(RejectReason::TlsOnPlainPort),
            [byte, ..] if !is_token_byte(*byte) => Err(RejectReason::RequestLine),
            _ => Ok(skipped),
        }
    }

    /// Judges the lines that have become whole since the last look. `true`: the head is complete.
    fn resume(&mut self, window: &[u8], limits: &Limits) -> Result<bool, RejectReason> {
        let (searched, line_start) = (usize::from(self.searched), usize::from(self.line_start));
        // Limits may have shrunk since the last look.
        let fresh = window.get(searched..).unwrap_or_default();
        let Some(last) = memchr::memrchr(b'\n', fresh) else { return Ok(false) };
        let whole = &window[..=searched + last];
        let mut slots = [httparse::EMPTY_HEADER; HEADER_COUNT_CEILING];
        let result = if line_start == 0 {
            let room = &mut slots[..header_count_max(limits)];
            httparse::Request::new(room).parse(whole).map(|status| status.is_complete())
        } else {
            let room = &mut slots[..header_count_max(limits).saturating_sub(usize::from(self.lines))];
            httparse::parse_headers(&whole[line_start..], room).map(|status| status.is_complete())
        };
        result.map_err(|_| diagnose(whole, limits))
    }

    /// The head isn't whole: next time, begin where this look ended.
    #[cold]
    fn remember(&mut self, window: &[u8]) {
        let line_start = usize::from(self.line_start);
        if let Some(last) = memchr::memrchr(b'\n', &window[line_start..]) {
            let lines = memchr::memchr_iter(b'\n', &window[line_start..]).count() - usize::from(line_start == 0);
            self.lines += u8::try_from(lines).unwrap_or(u8::MAX);
            self.line_start = place(line_start + last + 1);
        }
        self.searched = place(window.len());
    }
}

/// The first byte of a TLS record that holds a handshake (RFC 8446 section 5.1).
const TLS_HANDSHAKE: u8 = 0x16;

/// An offset in a window, which [`HEAD_BYTES_CEILING`] keeps to 16 bits.
fn place(offset: usize) -> u16 {
    u16::try_from(offset).unwrap_or(u16::MAX)
}

fn header_count_max(limits: &Limits) -> usize {
    limits.header_count_max.min(HEADER_COUNT_CEILING)
}

enum Failure {
    /// The head is complete, and refused.
    Certain(RejectReason),
    /// `httparse` took offence, perhaps at a line that isn't whole.
    Syntax,
}

/// One head from its first byte on, if it is complete.
fn parse<'i>(window: &'i [u8], limits: &Limits) -> Result<Option<(usize, Request<'i>)>, Failure> {
    let mut slots = [const { MaybeUninit::<httparse::Header<'i>>::uninit() }; HEADER_COUNT_CEILING];
    let mut parsed = httparse::Request::new(&mut []);
    let length = match parsed.parse_with_uninit_headers(window, &mut slots[..header_count_max(limits)]) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Failure::Syntax),
    };
    let head = &window[..length];
    let (Some(method), Some(raw), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(Failure::Syntax);
    };
    let version = if version == 0 { Version::Http10 } else { Version::Http11 };
    let fields = Fields::gather(head, parsed.headers);
    if fields.has_bare_line_feed || !head.ends_with(b"\r\n\r\n") {
        return Err(Failure::Certain(diagnose(head, limits)));
    }
    accept(head, method.as_bytes(), raw.as_bytes(), version, &fields, limits)
        .map(|request| Some((length, request)))
        .map_err(Failure::Certain)
}

/// What the one pass over the field lines finds.
#[derive(Default)]
struct Fields<'i> {
    /// Offset of the first field line; zero when there is none.
    start: usize,
    has_bare_line_feed: bool,
    host: Option<&'i [u8]>,
    host_repeated: bool,
    framing: Framing<'i>,
    connection: ConnectionOptions,
    expect: Option<&'i [u8]>,
    expect_unknown: bool,
    conditions: Conditions<'i>,
    accept_encoding: Option<&'i [u8]>,
    user_agent: Option<&'i [u8]>,
    referer: Option<&'i [u8]>,
}

/// The options of `Connection` that mean something here (RFC 9112 section 9.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConnectionOptions {
    pub(super) close: bool,
    pub(super) keep_alive: bool,
}

impl ConnectionOptions {
    fn add(&mut self, value: &[u8]) {
        for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }
}

impl<'i> Fields<'i> {
    fn gather(head: &'i [u8], lines: &[httparse::Header<'i>]) -> Fields<'i> {
        let mut fields = Fields::default();
        let base = head.as_ptr() as usize;
        for line in lines {
            let start = line.name.as_ptr() as usize - base;
            // `httparse` takes LF for a line's end; the byte before it must be CR.
            fields.has_bare_line_feed |= head[start - 2] != b'\r';
            if fields.start == 0 {
                fields.start = start;
            }
            fields.add(line.name.as_bytes(), line.value);
        }
        fields
    }

    #[inline]
    fn add(&mut self, name: &[u8], value: &'i [u8]) {
        // Length first: most names of a browser's head share theirs with none of these.
        match name.len() {
            4 if is(name, b"host") => self.host_repeated |= self.host.replace(value).is_some(),
            5 if is(name, b"range") => self.conditions.add_range(value),
            6 if is(name, b"expect") => self.add_expect(value),
            7 if is(name, b"referer") => self.referer = self.referer.or(Some(value)),
            8 if is(name, b"if-match") => self.conditions.add_if_match(value),
            8 if is(name, b"if-range") => self.conditions.add_if_range(value),
            10 if is(name, b"connection") => self.connection.add(value),
            10 if is(name, b"user-agent") => self.user_agent = self.user_agent.or(Some(value)),
            13 if is(name, b"if-none-match") => self.conditions.add_if_none_match(value),
            14 if is(name, b"content-length") => self.framing.add_content_length(value),
            15 if is(name, b"accept-encoding") => self.accept_encoding = self.accept_encoding.or(Some(value)),
            17 if is(name, b"if-modified-since") => self.conditions.add_if_modified_since(value),
            17 if is(name, b"transfer-encoding") => self.framing.add_transfer_encoding(value),
            19 if is(name, b"if-unmodified-since") => self.conditions.add_if_unmodified_since(value),
            _ => {}
        }
    }

    #[cold]
    fn add_expect(&mut self, value: &'i [u8]) {
        for expectation in
            value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|expectation| !expectation.is_empty())
        {
            self.expect_unknown |= !expectation.eq_ignore_ascii_case(b"100-continue");
            self.expect = Some(value);
        }
    }
}

fn is(name: &[u8], lower_case: &[u8]) -> bool {
    name.eq_ignore_ascii_case(lower_case)
}

/// What the fields mean together, in a fixed order of refusals.
fn accept<'i>(
    head: &'i [u8],
    method_name: &'i [u8],
    raw: &'i [u8],
    version: Version,
    fields: &Fields<'i>,
    limits: &Limits,
) -> Result<Request<'i>, RejectReason> {
    if raw.len() > limits.target_bytes_max {
        return Err(RejectReason::TargetTooLong);
    }
    let method = Method::from_name(method_name);
    if method == Method::Connect {
        return Err(RejectReason::Connect);
    }
    let (target, target_authority) = target::parse(raw, method == Method::Options)?;
    if fields.host_repeated {
        return Err(RejectReason::HostRepeated);
    }
    let authority = match fields.host {
        Some(value) => Some(host::parse(value).ok_or(RejectReason::HostInvalid)?),
        None if version == Version::Http11 => return Err(RejectReason::HostMissing),
        None => None,
    };
    let authority = target_authority.or(authority);
    let body = fields.framing.resolve(version, limits)?;
    // Expectations are of HTTP/1.1 (RFC 9110 section 10.1.1).
    let expects = fields.expect.is_some() && version == Version::Http11;
    if expects && fields.expect_unknown {
        return Err(RejectReason::Expectation);
    }
    let section = if fields.start == 0 { &[][..] } else { &head[fields.start..head.len() - 2] };
    let headers = Headers { section };
    Ok(Request {
        method,
        method_name,
        target,
        version,
        host: authority.map(|authority| authority.host),
        port: authority.and_then(|authority| authority.port),
        headers,
        body,
        expect_continue: expects && body != super::BodyLength::None,
        connection: fields.connection,
        conditions: fields.conditions.within(headers),
        accept_encoding: fields.accept_encoding,
        user_agent: fields.user_agent,
        referer: fields.referer,
    })
}

/// After an offence: judges the lines that are whole.
#[cold]
fn judge_whole_lines(window: &[u8], limits: &Limits) -> Result<(), RejectReason> {
    let Some(last) = memchr::memrchr(b'\n', window) else { return Ok(()) };
    let whole = &window[..=last];
    let mut slots = [httparse::EMPTY_HEADER; HEADER_COUNT_CEILING];
    let mut parsed = httparse::Request::new(&mut slots[..header_count_max(limits)]);
    match parsed.parse(whole) {
        Ok(_) => Ok(()),
        Err(_) => Err(diagnose(whole, limits)),
    }
}

/// The first thing that is wrong with these lines, which are known to be refused. Written apart from `httparse`, so that the two check
/// each other in the tests.
#[cold]
fn diagnose(lines: &[u8], limits: &Limits) -> RejectReason {
    let mut lines = lines.split_inclusive(|&byte| byte == b'\n');
    if let Some(reason) = lines.next().and_then(diagnose_request_line) {
        return reason;
    }
    for (index, line) in lines.enumerate() {
        if line == b"\r\n" {
            break;
        }
        if let Some(reason) = diagnose_field_line(line) {
            return reason;
        }
        if index == header_count_max(limits) {
            return RejectReason::TooManyFields;
        }
    }
    RejectReason::RequestLine
}

fn diagnose_request_line(line: &[u8]) -> Option<RejectReason> {
    let (text, ending) = match line {
        [text @ .., b'\r', b'\n'] => (text, None),
        [text @ .., b'\n'] => (text, Some(RejectReason::BareLineFeed)),
        text => (text, Some(RejectReason::RequestLine)),
    };
    if text.contains(&b'\r') {
        return Some(RejectReason::BareCarriageReturn);
    }
    let mut parts = text.split(|&byte| byte == b' ');
    let (method, target, version) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    if method.is_empty() || !method.iter().all(|&byte| is_token_byte(byte)) || parts.next().is_some() {
        return Some(RejectReason::RequestLine);
    }
    let Some(target) = target.filter(|target| !target.is_empty()) else { return Some(RejectReason::RequestLine) };
    match version {
        Some(b"HTTP/1.0" | b"HTTP/1.1") => {}
        Some(b"HTTP/2.0") if method == b"PRI" => return Some(RejectReason::Http2Preface),
        Some([b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9']) => return Some(RejectReason::Version),
        _ => return Some(RejectReason::RequestLine),
    }
    if !target.iter().all(|&byte| byte > b' ' && byte != 0x7F) || std::str::from_utf8(target).is_err() {
        return Some(RejectReason::TargetByte);
    }
    ending
}

fn diagnose_field_line(line: &[u8]) -> Option<RejectReason> {
    let (text, ending) = match line {
        [text @ .., b'\r', b'\n'] => (text, None),
        [text @ .., b'\n'] => (text, Some(RejectReason::BareLineFeed)),
        text => (text, Some(RejectReason::FieldName)),
    };
    if matches!(text.first(), Some(b' ' | b'\t')) {
        return Some(RejectReason::FoldedLine);
    }
    if text.contains(&b'\r') {
        return Some(RejectReason::BareCarriageReturn);
    }
    if text.is_empty() {
        return ending.or(Some(RejectReason::FieldName));
    }
    let Some(colon) = memchr::memchr(b':', text) else { return Some(RejectReason::FieldName) };
    let (name, value) = (&text[..colon], &text[colon + 1..]);
    if let [before @ .., b' ' | b'\t'] = name
        && before.trim_ascii_end().iter().all(|&byte| is_token_byte(byte))
    {
        return Some(RejectReason::SpaceBeforeColon);
    }
    if name.is_empty() || !name.iter().all(|&byte| is_token_byte(byte)) {
        return Some(RejectReason::FieldName);
    }
    if value.iter().any(|&byte| (byte < b' ' && byte != b'\t') || byte == 0x7F) {
        return Some(RejectReason::FieldValue);
    }
    ending
}
