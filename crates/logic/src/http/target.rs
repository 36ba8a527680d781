//! What a request target means (RFC 9112 section 3.2), and the path that it names (RFC 3986).
//!
//! A path is decoded once. After that, empty segments are merged and dot segments resolved; `..` at the root stays at the root, as RFC 3986
//! section 5.2.4 has it, so no path names anything above it. An encoded slash (`%2F`) is data within a segment, and no file's name can
//! hold a slash: such a path names no file, and is answered as not found rather than as something that it does not say. Whoever gets the path
//! as it came ([`decode_path_to_pass_on`]) knows what it means.
//!
//! Bytes above 0x7F should come encoded (RFC 3986 section 2.1), and some clients leave them raw. Here they are what they'd be if they were encoded; others
//! are told them encoded ([`as_uri`]), so that nobody can take them for something else.

use std::borrow::Cow;

use super::host::{self, Authority};
use super::rejection::RejectReason;
use super::scan::TargetKinds;
use super::status::Status;

/// How a target was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetForm {
    /// A path with an optional query.
    #[default]
    Origin,
    /// A whole `http` or `https` URI.
    Absolute,
    /// `*`, for OPTIONS alone: the server as a whole.
    Asterisk,
}

/// A request target, as it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target<'i> {
    /// How it was written.
    pub form: TargetForm,
    /// All of it.
    pub raw: &'i [u8],
    /// The path, still encoded; begins with `/`, except `*` in [`TargetForm::Asterisk`].
    pub path: &'i [u8],
    /// What follows the first `?`, still encoded.
    pub query: Option<&'i [u8]>,
    /// The path is decoded as it stands.
    is_plain: bool,
}

impl<'i> Target<'i> {
    /// As [`decode_path`], of a path that has been looked at in passing.
    ///
    /// # Errors
    ///
    /// See [`PathError`].
    #[inline]
    pub fn decode_path<'p>(&self, buffer: &'p mut Vec<u8>) -> Result<&'p [u8], PathError>
    where
        'i: 'p,
    {
        if self.is_plain { Ok(self.path) } else { decode_path(self.path, buffer) }
    }
}

/// Why a path can't be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// A `%` without two hexadecimal digits.
    #[error("the path has a % that two hexadecimal digits do not follow")]
    Escape,
    /// `%00`: no file name can hold it, and C strings end there.
    #[error("the path has an encoded NUL")]
    Nul,
    /// `%2F`: names nothing.
    #[error("the path has an encoded slash, which no name can hold")]
    EncodedSlash,
    /// Not an absolute path, as in `OPTIONS *`.
    #[error("the path does not begin with a slash")]
    Relative,
}

impl PathError {
    /// What to answer. The connection can go on: the head itself was sound.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            PathError::Escape | PathError::Nul | PathError::Relative => Status::BAD_REQUEST,
            PathError::EncodedSlash => Status::NOT_FOUND,
        }
    }
}

/// Splits a target. The second value is the authority that an absolute form carries.
pub(super) fn parse(
    raw: &[u8],
    kinds: TargetKinds,
    options: bool,
) -> Result<(Target<'_>, Option<Authority<'_>>), RejectReason> {
    if raw.first() == Some(&b'/') {
        let (path, query) = split(raw, kinds)?;
        return Ok((Target { form: TargetForm::Origin, raw, path, query, is_plain: kinds.is_plain() }, None));
    }
    if raw == b"*" && options {
        return Ok((Target { form: TargetForm::Asterisk, raw, path: raw, query: None, is_plain: false }, None));
    }
    parse_absolute(raw, kinds)
}

#[cold]
fn parse_absolute(raw: &[u8], kinds: TargetKinds) -> Result<(Target<'_>, Option<Authority<'_>>), RejectReason> {
    let after_scheme = strip_prefix_ignore_case(raw, b"http://")
        .or_else(|| strip_prefix_ignore_case(raw, b"https://"))
        .ok_or(RejectReason::TargetForm)?;
    let end = after_scheme.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(after_scheme.len());
    let (authority, rest) = after_scheme.split_at(end);
    let authority = host::parse(authority).filter(|authority| !authority.host.is_empty());
    let authority = authority.ok_or(RejectReason::TargetForm)?;
    let (path, query) = split(rest, kinds)?;
    let path = if path.is_empty() { b"/" } else { path };
    Ok((Target { form: TargetForm::Absolute, raw, path, query, is_plain: false }, Some(authority)))
}

fn strip_prefix_ignore_case<'i>(bytes: &'i [u8], prefix: &[u8]) -> Option<&'i [u8]> {
    let (head, rest) = bytes.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Path and query; refuses what may not stand in a target even leniently: controls, white space and `#`. The bytes
/// ``"<>\^`{|}`` and those above 0x7F should be encoded too, but browsers and scripts send them raw, and nothing here gives them a meaning.
fn split(bytes: &[u8], kinds: TargetKinds) -> Result<(&[u8], Option<&[u8]>), RejectReason> {
    if kinds.has_refused() {
        return Err(RejectReason::TargetByte);
    }
    let question = if kinds.has_question_mark() { memchr::memchr(b'?', bytes) } else { None };
    Ok(match question {
        Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
        None => (bytes, None),
    })
}

/// Decodes a path's escapes once, merges empty segments and resolves dot segments. The result begins with `/`, has no `//`, no `.` or `..`
/// segment and no NUL, and keeps a final `/` (`/a/.` and `/a/b/..` name directories: both give `/a/`). It is a slice of `path` itself
/// when nothing had to change, else of `buffer`, whose former content is lost.
///
/// # Errors
///
/// See [`PathError`].
pub fn decode_path<'p>(path: &'p [u8], buffer: &'p mut Vec<u8>) -> Result<&'p [u8], PathError> {
    if path.first() != Some(&b'/') {
        return Err(PathError::Relative);
    }
    if is_plain(path) {
        return Ok(path);
    }
    match decode(path, buffer)? {
        None => Ok(buffer),
        Some(_) => Err(PathError::EncodedSlash),
    }
}

/// As [`decode_path`], for who passes the path on as it came: an encoded slash is a slash, and the second value says how much of the result comes before
/// the first of them. None may stand beside a dot segment: whoever takes it for data would find another path than is found here.
///
/// # Errors
///
/// See [`PathError`].
pub fn decode_path_to_pass_on<'p>(
    path: &'p [u8],
    buffer: &'p mut Vec<u8>,
) -> Result<(&'p [u8], Option<usize>), PathError> {
    if path.first() != Some(&b'/') {
        return Err(PathError::Relative);
    }
    let first = decode(path, buffer)?;
    Ok((buffer, first))
}

/// What follows the first `known` bytes of a decoded `path`: as it was `sent`, but for dot segments, if that's what it was decoded from, since to some `/a;b`
/// isn't `/a%3Bb`, nor `/a//b` the same as `/a/b`. Begins with one slash, or is empty.
#[must_use]
pub fn rest_as_sent(sent: &[u8], path: &[u8], known: usize) -> Vec<u8> {
    let Some((known, rest)) = path.split_at_checked(known) else { return Vec::new() };
    let (mut room, mut out) = (Vec::new(), Vec::new());
    if decode_path_to_pass_on(sent, &mut room).is_ok_and(|(own, _)| own == path) {
        let segments = known.iter().filter(|&&byte| byte == b'/').count();
        out.extend_from_slice(rest_after(without_dots(sent, &mut room), segments));
        if out.is_empty() && !rest.is_empty() {
            out.push(b'/');
        }
    } else {
        encode_path(rest, &mut out);
    }
    out
}

/// A path as it came, but without dot segments and with one slash at its beginning: who resolves those in another way, keeps them, or takes `//` for
/// a host's beginning would find another path than has been judged here. Empty segments elsewhere may be data, as in `/archive/http://x/`, and so may
/// escapes: to some servers `/a;b` isn't `/a%3Bb`.
pub(super) fn without_dots<'p>(path: &'p [u8], room: &'p mut Vec<u8>) -> &'p [u8] {
    if path.split(|&byte| byte == b'/').any(|segment| dots(segment) > 0) {
        resolve(path, room);
        return room;
    }
    let slashes = path.iter().take_while(|&&byte| byte == b'/').count();
    &path[slashes.saturating_sub(1)..]
}

/// What of a path follows its first `segments`, as it came.
fn rest_after(path: &[u8], segments: usize) -> &[u8] {
    let starts = path.iter().zip(path.iter().skip(1)).enumerate();
    let mut starts = starts.filter(|(_, (byte, next))| **byte == b'/' && **next != b'/').map(|(at, _)| at);
    starts.nth(segments).map_or(b"", |at| &path[at..])
}

/// How many dots a segment consists of, encoded ones too, if it's a dot segment.
fn dots(segment: &[u8]) -> usize {
    let (mut rest, mut count) = (segment, 0);
    while let Some(after) = rest.strip_prefix(b".").or_else(|| strip_prefix_ignore_case(rest, b"%2e")) {
        (rest, count) = (after, count + 1);
    }
    if rest.is_empty() && count <= 2 { count } else { 0 }
}

/// Merges empty segments and resolves dot segments as [`decode_path`], whose result is that of `out` too, and leaves all else as it came.
fn resolve(path: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.push(b'/');
    let mut segments = path.split(|&byte| byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        match dots(segment) {
            0 if segment.is_empty() => {}
            0 => {
                out.extend_from_slice(segment);
                if segments.peek().is_some() {
                    out.push(b'/');
                }
            }
            1 => {}
            _ => {
                let parent = out.len() - 1;
                out.truncate(memchr::memrchr(b'/', &out[..parent]).map_or(1, |slash| slash + 1));
            }
        }
    }
}

/// Decodes into `buffer`. How long that was when the first encoded slash came.
fn decode(path: &[u8], buffer: &mut Vec<u8>) -> Result<Option<usize>, PathError> {
    buffer.clear();
    let (mut first_encoded, mut has_dots) = (None, false);
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let (byte, is_encoded) = match byte {
            b'%' => {
                let (high, low) = (hex(rest.first()), hex(rest.get(1)));
                let (Some(high), Some(low)) = (high, low) else { return Err(PathError::Escape) };
                rest = &rest[2..];
                (high << 4 | low, true)
            }
            byte => (byte, false),
        };
        match byte {
            0 => return Err(PathError::Nul),
            b'/' => {
                if is_encoded {
                    first_encoded = first_encoded.or(Some(buffer.len()));
                }
                has_dots |= ends_in_dots(buffer);
                end_segment(buffer);
            }
            byte => buffer.push(byte),
        }
    }
    // A dot segment at the end names a directory, so it leaves the slash that `end_segment` puts there; a plain name stays as it is.
    if ends_in_dots(buffer) {
        has_dots = true;
        end_segment(buffer);
    }
    if first_encoded.is_some() && has_dots { Err(PathError::EncodedSlash) } else { Ok(first_encoded) }
}

fn ends_in_dots(out: &[u8]) -> bool {
    matches!(last_segment(out), b"." | b"..")
}

/// True when no byte asks for work: no escape, no NUL, and no slash that a dot or a slash follows. Without a way out in the middle, so that
/// many bytes are looked at at once.
fn is_plain(path: &[u8]) -> bool {
    let pairs = path.iter().zip(path.iter().skip(1));
    let has_work = path.iter().fold(false, |found, &byte| found | (byte == b'%') | (byte == 0));
    !pairs.fold(has_work, |found, (&byte, &next)| found | ((byte == b'/') & ((next == b'/') | (next == b'.'))))
}

/// Closes the segment under construction with a slash: nothing is added for an empty one, a `.` is dropped, a `..` takes the segment
/// before it along.
fn end_segment(out: &mut Vec<u8>) {
    match last_segment(out) {
        b"" if !out.is_empty() => {}
        b"." => out.truncate(out.len() - 1),
        b".." => {
            out.truncate(out.len() - 2);
            let parent = out.len().saturating_sub(1);
            let start = memchr::memrchr(b'/', &out[..parent]).map_or(1, |slash| slash + 1);
            out.truncate(start);
        }
        _ => out.push(b'/'),
    }
}

fn last_segment(out: &[u8]) -> &[u8] {
    memchr::memrchr(b'/', out).map_or(out, |slash| &out[slash + 1..])
}

fn hex(digit: Option<&u8>) -> Option<u8> {
    match *digit? {
        digit @ b'0'..=b'9' => Some(digit - b'0'),
        digit @ b'a'..=b'f' => Some(digit - b'a' + 10),
        digit @ b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Appends `path` with every byte escaped that may not stand raw in a path (RFC 3986 section 3.3), for a Location field or a link. A first
/// segment is never empty in a path from [`decode_path`], so the result can't be taken for `//host`.
pub fn encode_path(path: &[u8], out: &mut Vec<u8>) {
    encode(path, is_path_byte, out);
}

/// As [`encode_path`], for a path whose escapes are sound and stay.
pub fn complete_path(path: &[u8], out: &mut Vec<u8>) {
    encode(path, |byte| byte == b'%' || is_path_byte(byte), out);
}

fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(&byte)
}

/// A path or a query as it was sent, but for bytes above 0x7F, which are escaped.
#[must_use]
pub fn as_uri(sent: &[u8]) -> Cow<'_, [u8]> {
    if sent.is_ascii() {
        return Cow::Borrowed(sent);
    }
    let mut encoded = Vec::with_capacity(3 * sent.len());
    encode(sent, |byte| byte.is_ascii(), &mut encoded);
    Cow::Owned(encoded)
}

fn encode(bytes: &[u8], stays: impl Fn(u8) -> bool, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        if stays(byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(path: &str) -> Result<String, PathError> {
        let mut buffer = Vec::new();
        decode_path(path.as_bytes(), &mut buffer).map(|path| String::from_utf8_lossy(path).into_owned())
    }

    #[test]
    fn plain_paths_are_not_copied() {
        let mut buffer = b"old".to_vec();
        for path in ["/", "/index.html", "/a/b.c/d..e/f.", "/a..", "/a b"] {
            assert_eq!(decode_path(path.as_bytes(), &mut buffer), Ok(path.as_bytes()));
        }
        assert_eq!(buffer, b"old");
    }

    #[test]
    fn dot_segments_never_climb() {
        for (path, expected) in [
            ("/..", "/"),
            ("/../", "/"),
            ("/../../etc/passwd", "/etc/passwd"),
            ("/a/../../b", "/b"),
            ("/a/./b/.", "/a/b/"),
            ("/a/b/..", "/a/"),
            ("/a/b/../", "/a/"),
            ("/%2e%2e/%2E./x", "/x"),
            ("/a/.%2e/b", "/b"),
            ("//evil.example/..", "/"),
            ("//evil.example//x//", "/evil.example/x/"),
            ("/...", "/..."),
            ("/.well-known/x", "/.well-known/x"),
            ("/..a/b", "/..a/b"),
            ("/.", "/"),
            ("/a/...", "/a/..."),
        ] {
            assert_eq!(decoded(path).as_deref(), Ok(expected), "{path}");
        }
    }

    #[test]
    fn a_resolved_path_says_the_same_and_keeps_its_escapes() {
        for number in 0..7u32.pow(6) {
            let piece = |place| ["", "/", "/", ".", "%2E", "a", "%3b"][number as usize / 7usize.pow(place) % 7];
            let path = ["/".to_owned(), (0..6).map(piece).collect()].concat();
            let mut resolved = Vec::new();
            resolve(path.as_bytes(), &mut resolved);
            let resolved = String::from_utf8(resolved).expect("text");
            assert_eq!(decoded(&resolved), decoded(&path), "{path}: {resolved}");
            let is_dots = |segment: &str| dots(segment.as_bytes()) > 0;
            assert!(!resolved.split('/').any(is_dots) && !resolved.contains("//"), "{path}: {resolved}");
            assert!(!resolved.contains(';'), "{path}: {resolved}");
        }
    }

    #[test]
    fn escapes_are_decoded_once() {
        assert_eq!(decoded("/%252e%252e/x").as_deref(), Ok("/%2e%2e/x"));
        assert_eq!(decoded("/a%20b%3Fc%25").as_deref(), Ok("/a b?c%"));
        assert_eq!(decoded("/%C3%A9").as_deref(), Ok("/é"));
        for path in ["/%", "/%4", "/%4g", "/%g4", "/a%%41", "/%+1", "/%u0041"] {
            assert_eq!(decoded(path), Err(PathError::Escape), "{path}");
        }
        assert_eq!(decoded("/a%00.html"), Err(PathError::Nul));
        assert_eq!(decoded("/a%2fb"), Err(PathError::EncodedSlash));
        assert_eq!(decoded("/..%2F..%2Fetc"), Err(PathError::EncodedSlash));
        assert_eq!(decoded("*"), Err(PathError::Relative));
        assert_eq!(decoded(""), Err(PathError::Relative));
    }

    #[test]
    fn an_encoded_slash_is_for_who_gets_the_path_as_it_came() {
        let decoded = |path: &str| {
            let mut buffer = Vec::new();
            let found = decode_path_to_pass_on(path.as_bytes(), &mut buffer);
            found.map(|(path, first)| (String::from_utf8_lossy(path).into_owned(), first))
        };
        for (path, expected, first) in [
            ("/a/b", "/a/b", None),
            ("/a/./b/../c", "/a/c", None),
            ("/api/group%2Fproject", "/api/group/project", Some(10)),
            ("/api/queues/%2F/name", "/api/queues/name", Some(12)),
            ("//api//%2fx%20y%2F", "/api/x y/", Some(5)),
        ] {
            assert_eq!(decoded(path), Ok((expected.to_owned(), first)), "{path}");
        }
        for path in ["/a%2f..%2fb", "/admin/..%2Fpublic", "/a%2Fb/..", "/a/../b%2Fc", "/.%2F"] {
            assert_eq!(decoded(path), Err(PathError::EncodedSlash), "{path}");
        }
        assert_eq!(decoded("/a%2Fb%00"), Err(PathError::Nul));
        assert_eq!(decoded("*"), Err(PathError::Relative));
        for (path, segments, rest) in [
            ("/api/a%2Fb/c", 1, "/a%2Fb/c"),
            ("//%61pi//a%2Fb", 1, "/a%2Fb"),
            ("/a/b/c%2F/", 2, "/c%2F/"),
            ("/a%2F", 0, "/a%2F"),
        ] {
            assert_eq!(rest_after(path.as_bytes(), segments), rest.as_bytes(), "{path}");
        }
        for (sent, path, known, rest) in [
            ("/%6Fld/a%3Bb//c", "/old/a;b/c", 4, "/a%3Bb//c"),
            ("/x/../old/%7E", "/old/~", 4, "/%7E"),
            ("/old/", "/old/", 4, "/"),
            ("/old", "/old", 4, ""),
            ("/", "/", 0, "/"),
            ("//a%2F", "/a/", 0, "/a%2F"),
            // Another path than was asked for.
            ("/else", "/old/a;b c", 4, "/a;b%20c"),
        ] {
            assert_eq!(rest_as_sent(sent.as_bytes(), path.as_bytes(), known), rest.as_bytes(), "{sent}");
        }
    }

    #[test]
    fn encoding_is_undone_by_decoding() {
        let every_byte: Vec<u8> = std::iter::once(b'/').chain((1..=255).filter(|&byte| byte != b'/')).collect();
        let mut encoded = Vec::new();
        encode_path(&every_byte, &mut encoded);
        assert!(encoded.iter().all(|byte| byte.is_ascii_graphic()));
        let mut buffer = Vec::new();
        assert_eq!(decode_path(&encoded, &mut buffer), Ok(&every_byte[..]));
    }

    #[test]
    fn forms() {
        let form = |raw: &'static str, options| {
            parse(raw.as_bytes(), TargetKinds::of(raw.as_bytes()), options).map(|(target, _)| target)
        };
        let target = form("/a?b?c", false).expect("origin form");
        assert_eq!((target.form, target.path, target.query), (TargetForm::Origin, &b"/a"[..], Some(&b"b?c"[..])));
        let (target, authority) =
            parse(b"HTTP://h:81?q", TargetKinds::of(b"HTTP://h:81?q"), false).expect("absolute form");
        assert_eq!((target.form, target.path, target.query), (TargetForm::Absolute, &b"/"[..], Some(&b"q"[..])));
        assert_eq!(authority.map(|authority| (authority.host, authority.port)), Some((&b"h"[..], Some(81))));
        assert_eq!(form("*", true).map(|target| target.form), Ok(TargetForm::Asterisk));
        for raw in ["*", "a", "h:80", "ftp://h/", "http:/x", "http:///x", "http://u@h/", "https://"] {
            assert_eq!(form(raw, false), Err(RejectReason::TargetForm), "{raw}");
        }
        for raw in ["/#", "/a b", "/\x7f", "http://h/#f", "http://h#f"] {
            assert_eq!(form(raw, false), Err(RejectReason::TargetByte), "{raw}");
        }
        assert_eq!(form("http://é/", false), Err(RejectReason::TargetForm));
    }

    #[test]
    fn a_raw_byte_is_what_it_would_be_if_it_were_encoded() {
        let target = |raw: &'static [u8]| parse(raw, TargetKinds::of(raw), false).expect("sound").0;
        for (raw, encoded) in [
            (&b"/caf\xc3\xa9?q=\xc3\xa9"[..], &b"/caf%C3%A9?q=%C3%A9"[..]),
            (b"/\xff/..\xc0\xaf/%41", b"/%FF/..%C0%AF/%41"),
            (b"http://h/\x80", b"/%80"),
        ] {
            let (raw, encoded) = (target(raw), target(encoded));
            let (mut left, mut right) = (Vec::new(), Vec::new());
            assert_eq!(raw.decode_path(&mut left), encoded.decode_path(&mut right));
            assert_eq!(as_uri(raw.path), encoded.path);
            assert_eq!(raw.query.map(as_uri).as_deref(), encoded.query);
        }
    }
}
