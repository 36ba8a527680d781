//! From bytes to a head (RFC 9112 sections 2, 3 and 5): `scan` finds the lines, this file says what they mean together, and keeps the limits.
//!
//! A line is judged when its line feed has come, or when the head has reached its limit, so what a head leads to never depends on how
//! its bytes were cut on the way. A head that comes in pieces is searched once for its end, not anew from the start with each piece.

use super::body::{BodyLength, Framing};
use super::diagnosis::diagnose;
use super::field::{is_token_byte, members};
use super::host::{self, Authority};
use super::known_sections::KnownSections;
use super::method::Method;
use super::rejection::RejectReason;
use super::request::{Headers, Request, Version};
use super::scan::{self, RequestLine};
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadStep {
    /// So many bytes (empty lines) are done with; the rest is not a whole head yet.
    NeedInput(usize),
    /// So many bytes were empty lines and the head; the request is filled in.
    Head(usize),
    Reject(RejectReason),
}

impl HeadProgress {
    pub(super) fn empty_lines(self) -> u8 {
        self.empty_lines
    }

    /// Before the first byte of a head, after so many empty lines; `None` for more than are passed over.
    pub(super) fn after_empty_lines(empty_lines: u8) -> Option<HeadProgress> {
        (empty_lines <= EMPTY_LINES_MAX).then_some(HeadProgress { empty_lines, ..HeadProgress::default() })
    }

    /// True when the first byte of a head has been seen.
    pub(super) fn has_begun(self) -> bool {
        self.searched > 0
    }

    /// Looks at everything received from where the head before ended; fills in `request`, which comes empty, when the head is whole.
    #[inline]
    pub(super) fn step<'i>(
        &mut self,
        input: &'i [u8],
        limits: &Limits,
        known: &mut KnownSections,
        request: &mut Request<'i>,
    ) -> HeadStep {
        let first_look = self.searched == 0 && input.first().is_some_and(|&byte| is_token_byte(byte));
        if !first_look {
            return self.step_slowly(input, limits, known, request);
        }
        let window = &input[..input.len().min(head_bytes_max(limits))];
        match read(window, limits, known, request) {
            Reading::Head(length) => HeadStep::Head(length),
            Reading::Refused(reason) => HeadStep::Reject(reason),
            Reading::NoLine(start) => match memchr::memrchr(b'\n', &window[start..]) {
                // A whole line stands there, so it has an offence.
                Some(last) => HeadStep::Reject(diagnose(&window[..=start + last], limits)),
                None => self.wait_or_refuse(window, input.len(), limits),
            },
        }
    }

    /// What isn't a whole head in one piece.
    #[cold]
    fn step_slowly<'i>(
        &mut self,
        input: &'i [u8],
        limits: &Limits,
        known: &mut KnownSections,
        request: &mut Request<'i>,
    ) -> HeadStep {
        if self.searched == 0 {
            let skipped = match self.skip_empty_lines(input) {
                Ok(skipped) => skipped,
                Err(reason) => return HeadStep::Reject(reason),
            };
            // A CR alone may still become an empty line.
            if matches!(&input[skipped..], [] | [b'\r']) {
                return HeadStep::NeedInput(skipped);
            }
            return match self.step(&input[skipped..], limits, known, request) {
                HeadStep::NeedInput(_) => HeadStep::NeedInput(skipped),
                HeadStep::Head(length) => HeadStep::Head(skipped + length),
                reject @ HeadStep::Reject(_) => reject,
            };
        }
        let window = &input[..input.len().min(head_bytes_max(limits))];
        match self.resume(window, limits) {
            Ok(false) => self.wait_or_refuse(window, input.len(), limits),
            Ok(true) => match read(window, limits, known, request) {
                Reading::Head(length) => HeadStep::Head(length),
                Reading::Refused(reason) => HeadStep::Reject(reason),
                Reading::NoLine(_) => HeadStep::Reject(diagnose(window, limits)),
            },
            Err(reason) => HeadStep::Reject(reason),
        }
    }

    /// The head isn't whole: either it is too long already, or the next look begins where this one ended.
    #[cold]
    fn wait_or_refuse(&mut self, window: &[u8], received: usize, limits: &Limits) -> HeadStep {
        if received >= head_bytes_max(limits) {
            let in_request_line = memchr::memchr(b'\n', window).is_none();
            return HeadStep::Reject(if in_request_line {
                RejectReason::RequestLineTooLong
            } else {
                RejectReason::HeadTooLong
            });
        }
        let line_start = usize::from(self.line_start);
        if let Some(last) = memchr::memrchr(b'\n', &window[line_start..]) {
            let lines = memchr::memchr_iter(b'\n', &window[line_start..]).count() - usize::from(line_start == 0);
            self.lines += u8::try_from(lines).unwrap_or(u8::MAX);
            self.line_start = place(line_start + last + 1);
        }
        self.searched = place(window.len());
        HeadStep::NeedInput(0)
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
        let offence = || diagnose(whole, limits);
        let (mut at, mut lines) = (line_start, usize::from(self.lines));
        if at == 0 {
            at = scan::request_line(whole).ok_or_else(offence)?.len;
        }
        while at < whole.len() {
            if whole[at..].starts_with(b"\r\n") {
                return Ok(true);
            }
            let line = scan::field_line(&whole[at..]).filter(|_| lines < header_count_max(limits));
            at += line.ok_or_else(offence)?.len;
            lines += 1;
        }
        Ok(false)
    }
}

/// The first byte of a TLS record that holds a handshake (RFC 8446 section 5.1).
const TLS_HANDSHAKE: u8 = 0x16;

/// An offset in a window, which [`HEAD_BYTES_CEILING`] keeps to 16 bits.
fn place(offset: usize) -> u16 {
    u16::try_from(offset).unwrap_or(u16::MAX)
}

pub(super) fn header_count_max(limits: &Limits) -> usize {
    limits.header_count_max.min(HEADER_COUNT_CEILING)
}

fn head_bytes_max(limits: &Limits) -> usize {
    limits.head_bytes_max.min(HEAD_BYTES_CEILING)
}

/// What a look at the lines found.
enum Reading {
    /// A whole head of so many bytes; the request is filled in.
    Head(usize),
    /// No whole and sound line stands at this offset, where the head must go on.
    NoLine(usize),
    /// Every line is sound, but not what they say.
    Refused(RejectReason),
}

/// Reads a head from its first byte, in one pass.
#[inline]
fn read<'i>(window: &'i [u8], limits: &Limits, known: &mut KnownSections, request: &mut Request<'i>) -> Reading {
    let Some(line) = scan::request_line(window) else { return Reading::NoLine(0) };
    let (section, lines_max) = (&window[line.len..], header_count_max(limits));
    if let Some(host) = known.find(section, lines_max, request) {
        request.headers = Headers { section: &section[..section.len() - 2] };
        return match fill(request, &line, &Facts::default(), Some(host), limits) {
            Ok(()) => Reading::Head(window.len()),
            Err(reason) => Reading::Refused(reason),
        };
    }
    let mut facts = Facts::default();
    let (mut at, mut lines) = (0, 0);
    while !section[at..].starts_with(b"\r\n") {
        let field = scan::field_line(&section[at..]).filter(|_| lines < lines_max);
        let Some(field) = field else { return Reading::NoLine(line.len + at) };
        add_line(request, &mut facts, field.name, field.value);
        at += field.len;
        lines += 1;
    }
    request.headers = Headers { section: &section[..at] };
    let host = facts.host.and_then(host::parse);
    match fill(request, &line, &facts, host, limits) {
        Ok(()) => {
            if let (Some(host), false) = (host, facts.is_unusual) {
                known.remember(&section[..at + 2], lines, request, host);
            }
            Reading::Head(line.len + at + 2)
        }
        Err(reason) => Reading::Refused(reason),
    }
}

/// Says what a head of sound lines means, whose Host field says `host` if that's sound. Refusals come in a fixed order.
#[inline]
fn fill<'i>(
    request: &mut Request<'i>,
    line: &RequestLine<'i>,
    facts: &Facts<'i>,
    host: Option<Authority<'i>>,
    limits: &Limits,
) -> Result<(), RejectReason> {
    request.version = line.version;
    if line.target.len() > limits.target_bytes_max {
        return Err(RejectReason::TargetTooLong);
    }
    request.method_name = line.method;
    request.method = Method::from_name(line.method);
    if request.method == Method::Connect {
        return Err(RejectReason::Connect);
    }
    let (target, target_authority) = target::parse(line.target, line.kinds, request.method == Method::Options)?;
    request.target = target;
    if facts.host_repeated {
        return Err(RejectReason::HostRepeated);
    }
    if host.is_none() && facts.host.is_some() {
        return Err(RejectReason::HostInvalid);
    }
    if host.is_none() && request.version == Version::Http11 {
        return Err(RejectReason::HostMissing);
    }
    if let Some(authority) = target_authority.or(host) {
        request.host = Some(authority.host);
        request.port = authority.port;
    }
    request.body = facts.framing.resolve(request.version)?;
    // Expectations are of HTTP/1.1 (RFC 9110 section 10.1.1).
    if facts.expects && request.version == Version::Http11 {
        if facts.expects_the_unknown {
            return Err(RejectReason::Expectation);
        }
        request.expect_continue = request.body != BodyLength::None;
    }
    request.conditions.settle(request.headers);
    Ok(())
}

/// What the field lines say that stands in no request.
#[derive(Default)]
struct Facts<'i> {
    host: Option<&'i [u8]>,
    host_repeated: bool,
    framing: Framing<'i>,
    expects: bool,
    expects_the_unknown: bool,
    /// There are lines that say more than a request keeps of them.
    is_unusual: bool,
}

/// The options of `Connection` that mean something here (RFC 9112 section 9.3, RFC 9110 section 7.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConnectionOptions {
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) upgrade: bool,
}

impl ConnectionOptions {
    fn add(&mut self, value: &[u8]) {
        if is(value, b"keep-alive") {
            self.keep_alive = true;
            return;
        }
        for option in members(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            self.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
        }
    }
}

#[inline]
fn add_line<'i>(request: &mut Request<'i>, facts: &mut Facts<'i>, name: &[u8], value: &'i [u8]) {
    // Length first: most names of a browser's head share theirs with none of these.
    match name.len() {
        4 if is(name, b"host") => facts.host_repeated |= facts.host.replace(value).is_some(),
        10 if is(name, b"user-agent") => request.user_agent = request.user_agent.or(Some(value)),
        15 if is(name, b"accept-encoding") => request.accept_encoding = request.accept_encoding.or(Some(value)),
        5 | 6 | 7 | 8 | 10 | 13 | 14 | 17 | 19 => add_rarer_line(request, facts, name, value),
        _ => {}
    }
}

/// Kept apart so that the loop stays small for heads that have none of these.
#[inline(never)]
fn add_rarer_line<'i>(request: &mut Request<'i>, facts: &mut Facts<'i>, name: &[u8], value: &'i [u8]) {
    match name.len() {
        5 if is(name, b"range") => request.conditions.add_range(value),
        6 if is(name, b"expect") => add_expectation(facts, value),
        7 if is(name, b"referer") => {
            request.referer = request.referer.or(Some(value));
            return;
        }
        8 if is(name, b"if-match") => request.conditions.add_if_match(value),
        8 if is(name, b"if-range") => request.conditions.add_if_range(value),
        10 if is(name, b"connection") => {
            request.connection.add(value);
            return;
        }
        13 if is(name, b"if-none-match") => request.conditions.add_if_none_match(value),
        14 if is(name, b"content-length") => facts.framing.add_content_length(value),
        17 if is(name, b"if-modified-since") => request.conditions.add_if_modified_since(value),
        17 if is(name, b"transfer-encoding") => facts.framing.add_transfer_encoding(value),
        19 if is(name, b"if-unmodified-since") => request.conditions.add_if_unmodified_since(value),
        _ => return,
    }
    facts.is_unusual = true;
}

#[cold]
fn add_expectation(facts: &mut Facts<'_>, value: &[u8]) {
    for expectation in members(value).filter(|expectation| !expectation.is_empty()) {
        facts.expects = true;
        facts.expects_the_unknown |= !expectation.eq_ignore_ascii_case(b"100-continue");
    }
}

/// Compares without regard to letter case, all bytes at once. `lower_case` has only letters and hyphens; among token bytes no
/// other than a letter's two cases becomes that letter by setting the bit that tells them apart. A value that isn't known to be a token could
/// only have `\r` in place of a hyphen, which no value has.
#[inline]
pub(super) fn is<const N: usize>(name: &[u8], lower_case: &[u8; N]) -> bool {
    let Ok(name) = <&[u8; N]>::try_from(name) else { return false };
    name.iter().zip(lower_case).fold(0, |difference, (byte, lower)| difference | ((byte | 0x20) ^ lower)) == 0
}
