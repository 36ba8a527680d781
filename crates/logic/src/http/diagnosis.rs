//! Which offence a refused head has: the first, line by line.
//!
//! Runs only once a head has been refused, and decides nothing but the reason. It is written apart from `scan`, so the two check each other
//! when they are fuzzed.

use super::Limits;
use super::field::is_token_byte;
use super::head::header_count_max;
use super::rejection::RejectReason;

/// The first thing that is wrong with these lines, which are known to be refused.
#[cold]
pub(super) fn diagnose(lines: &[u8], limits: &Limits) -> RejectReason {
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
        Some([b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0'..=b'9']) => {}
        Some(b"HTTP/2.0") if method == b"PRI" => return Some(RejectReason::Http2Preface),
        Some([b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9']) => return Some(RejectReason::Version),
        _ => return Some(RejectReason::RequestLine),
    }
    if !target.iter().all(|&byte| byte > b' ' && byte != 0x7F) {
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
