//! Finds a head's lines and their parts (RFC 9112 sections 2 to 5): one pass, each byte judged where it's read.
//!
//! Says only whether a whole and sound line stands at a place. Which offence another one has is `diagnosis`'s to say, what a sound one means
//! `head`'s.

use super::field::is_token_byte;
use super::request::Version;

/// A sound request line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestLine<'i> {
    pub(super) method: &'i [u8],
    /// Not empty, without white space or controls.
    pub(super) target: &'i [u8],
    /// What kinds of bytes the target has.
    pub(super) kinds: TargetKinds,
    pub(super) version: Version,
    /// Bytes with the line's end.
    pub(super) len: usize,
}

/// A sound field line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FieldLine<'i> {
    pub(super) name: &'i [u8],
    /// Without white space around.
    pub(super) value: &'i [u8],
    /// Bytes with the line's end.
    pub(super) len: usize,
}

/// Kinds of bytes, seen in passing, that ask for work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TargetKinds(u8);

impl TargetKinds {
    const TOKEN: u8 = 1;
    /// White space, controls.
    const STOP: u8 = 2;
    const QUESTION: u8 = 4;
    const HASH: u8 = 8;
    const PERCENT: u8 = 32;
    const SLASH: u8 = 64;
    /// Of a byte: a slash or a dot. Of a target: such a byte stands behind a slash.
    const BEHIND_SLASH: u8 = 128;

    /// For bytes that haven't been looked at.
    #[cfg(test)]
    pub(super) fn of(bytes: &[u8]) -> TargetKinds {
        let mut seen = SeenKinds::default();
        bytes.iter().for_each(|&byte| seen.add(KINDS[usize::from(byte)]));
        seen.all()
    }

    /// A byte that may not stand in a target: white space, a control, `#`.
    pub(super) fn has_refused(self) -> bool {
        self.0 & (TargetKinds::STOP | TargetKinds::HASH) != 0
    }

    pub(super) fn has_question_mark(self) -> bool {
        self.0 & TargetKinds::QUESTION != 0
    }

    /// Neither an escape, nor an empty or a hidden segment, nor one of dots: a path that is decoded as it stands.
    pub(super) fn is_plain(self) -> bool {
        self.0 & (TargetKinds::PERCENT | TargetKinds::BEHIND_SLASH) == 0
    }
}

/// Gathers the kinds of one byte after the other.
#[derive(Clone, Copy, Default)]
struct SeenKinds {
    seen: u8,
    pairs: u8,
    last: u8,
}

impl SeenKinds {
    #[inline]
    fn add(&mut self, kinds: u8) {
        self.seen |= kinds;
        self.pairs |= (self.last & TargetKinds::SLASH) << 1 & kinds;
        self.last = kinds;
    }

    fn all(self) -> TargetKinds {
        TargetKinds(self.seen & !TargetKinds::BEHIND_SLASH | self.pairs)
    }
}

static KINDS: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let c = byte as u8;
        table[byte] = match c {
            0..=b' ' | 0x7F => TargetKinds::STOP,
            b'?' => TargetKinds::QUESTION,
            b'/' => TargetKinds::SLASH | TargetKinds::BEHIND_SLASH,
            // Token bytes too.
            b'.' => TargetKinds::BEHIND_SLASH | TargetKinds::TOKEN,
            b'%' => TargetKinds::PERCENT | TargetKinds::TOKEN,
            b'#' => TargetKinds::HASH | TargetKinds::TOKEN,
            _ if is_token_byte(c) => TargetKinds::TOKEN,
            _ => 0,
        };
        byte += 1;
    }
    table
};

/// The request line that `input` begins with. `None`: it isn't whole, or not sound.
#[inline]
pub(super) fn request_line(input: &[u8]) -> Option<RequestLine<'_>> {
    let method_len = if input.starts_with(b"GET ") { 3 } else { token_len(input) };
    let (method, rest) = input.split_at(method_len);
    let [b' ', rest @ ..] = rest else { return None };
    let (mut target_len, mut seen) = (0, SeenKinds::default());
    for &byte in rest {
        let kind = KINDS[usize::from(byte)];
        if kind & TargetKinds::STOP != 0 {
            break;
        }
        seen.add(kind);
        target_len += 1;
    }
    let seen = seen.all();
    let (target, rest) = rest.split_at(target_len);
    let version = match rest.first_chunk::<11>()? {
        b" HTTP/1.1\r\n" => Version::Http11,
        b" HTTP/1.0\r\n" => Version::Http10,
        // Of a later minor version only what 1.1 has is understood (RFC 9110 section 2.5).
        [b' ', b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9', b'\r', b'\n'] => Version::Http11,
        _ => return None,
    };
    let is_sound = !method.is_empty() && !target.is_empty();
    is_sound.then_some(RequestLine { method, target, kinds: seen, version, len: method_len + target_len + 12 })
}

/// The field line that `input` begins with. `None`: it isn't whole, or not sound, or it's the empty line that ends a head.
#[inline]
pub(super) fn field_line(input: &[u8]) -> Option<FieldLine<'_>> {
    let name_len = token_len(input);
    let (name, rest) = input.split_at(name_len);
    if name.is_empty() || rest.first() != Some(&b':') {
        return None;
    }
    let mut start = name_len + 1;
    while matches!(input.get(start), Some(b' ' | b'\t')) {
        start += 1;
    }
    let mut end = start;
    loop {
        end = next_control(input, end)?;
        match input[end] {
            b'\t' => end += 1,
            b'\r' if input.get(end + 1) == Some(&b'\n') => break,
            _ => return None,
        }
    }
    let mut value = &input[start..end];
    while let [before @ .., b' ' | b'\t'] = value {
        value = before;
    }
    Some(FieldLine { name, value, len: end + 2 })
}

#[inline]
fn token_len(bytes: &[u8]) -> usize {
    let mut len = 0;
    while let Some(&byte) = bytes.get(len)
        && KINDS[usize::from(byte)] & TargetKinds::TOKEN != 0
    {
        len += 1;
    }
    len
}

const EACH_BYTE: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x80 * EACH_BYTE;

/// Where the next control character stands, from `at` on: eight bytes at a time.
#[inline]
fn next_control(bytes: &[u8], mut at: usize) -> Option<usize> {
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*eight);
        // The high bit of each byte below 0x20, and of each that is 0x7F. A borrow can only mark bytes above one that is marked rightly, and
        // the lowest is what counts.
        let below_space = word.wrapping_sub(0x20 * EACH_BYTE) & !word;
        let from_delete = word ^ (0x7F * EACH_BYTE);
        let delete = from_delete.wrapping_sub(EACH_BYTE) & !from_delete;
        let found = (below_space | delete) & HIGH_BITS;
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let rest = bytes.get(at..)?;
    rest.iter().position(u8::is_ascii_control).map(|place| at + place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_are_found_wherever_they_stand() {
        for byte in 0..=255u8 {
            for length in 1..20 {
                for place in 0..length {
                    let mut bytes = vec![b'~'; length];
                    bytes[place] = byte;
                    let expected = byte.is_ascii_control().then_some(place);
                    assert_eq!(next_control(&bytes, 0), expected, "{byte:#x} at {place} of {length}");
                    bytes.iter_mut().skip(place + 1).for_each(|after| *after = 0x80);
                    assert_eq!(next_control(&bytes, 0), expected, "{byte:#x} at {place} of {length}");
                }
            }
        }
        assert_eq!(next_control(b"\x7f\x1f", 0), Some(0));
        assert_eq!(next_control(b"abc", 3), None);
    }

    #[test]
    fn a_line_is_taken_whole_or_not_at_all() {
        let line = b"Name: \t a\tvalue\xff \t\r\n";
        let found = field_line(line).expect("sound");
        assert_eq!((found.name, found.value, found.len), (&b"Name"[..], &b"a\tvalue\xff"[..], line.len()));
        let request = b"PUT /a?b#c HTTP/1.0\r\n";
        let found = request_line(request).expect("sound");
        assert_eq!((found.method, found.target, found.len), (&b"PUT"[..], &b"/a?b#c"[..], request.len()));
        assert!(found.kinds.has_question_mark() && found.kinds.has_refused());
        for end in 0..line.len() {
            assert_eq!(field_line(&line[..end]), None);
        }
        for end in 0..request.len() {
            assert_eq!(request_line(&request[..end]), None);
        }
        assert_eq!(field_line(b"Empty:\r\n").map(|line| line.value.len()), Some(0));
        assert_eq!(field_line(b"Empty: \t\r\n").map(|line| line.value.len()), Some(0));
    }

    #[test]
    fn unsound_lines() {
        for line in [
            "\r\n",
            ": a\r\n",
            "a b: c\r\n",
            "a : c\r\n",
            " a: b\r\n",
            "a: b\n",
            "a: b\rc\r\n",
            "a: \x7f\r\n",
            "a: \0\r\n",
        ] {
            assert_eq!(field_line(line.as_bytes()), None, "{line:?}");
        }
        for line in [
            "GET  HTTP/1.1\r\n",
            " / HTTP/1.1\r\n",
            "GET / HTTP/2.1\r\n",
            "GET / HTTP/1.1\n",
            "GET /\t HTTP/1.1\r\n",
            "GET / / HTTP/1.1\r\n",
        ] {
            assert_eq!(request_line(line.as_bytes()), None, "{line:?}");
        }
        assert!(request_line(b"GET /\xff HTTP/1.1\r\n").is_some());
    }
}
