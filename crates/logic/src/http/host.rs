//! Whether a Host field or a URI's authority is well formed: `uri-host [ ":" port ]` (RFC 9110 section 7.2, RFC 3986 section 3.2.2).

/// A host and its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Authority<'i> {
    /// The host, with an IPv6 address's brackets; may be empty.
    pub(super) host: &'i [u8],
    /// The port, if digits follow a colon.
    pub(super) port: Option<u16>,
}

/// `None` when it is malformed. User information is malformed here: http has none (RFC 9110 section 4.2.4).
pub(super) fn parse(bytes: &[u8]) -> Option<Authority<'_>> {
    let (mut name_end, mut seen) = (0, 0);
    for &byte in bytes {
        let class = CLASS[usize::from(byte)];
        if class == 0 {
            break;
        }
        seen |= class;
        name_end += 1;
    }
    if seen & ESCAPE != 0 && !escapes_are_whole(&bytes[..name_end]) {
        return None;
    }
    let host_end = if name_end == 0 && bytes.first() == Some(&b'[') { address_end(bytes)? } else { name_end };
    let host = &bytes[..host_end];
    match &bytes[host_end..] {
        [] => Some(Authority { host, port: None }),
        // A port of no host means nothing.
        [b':', digits @ ..] if host_end > 0 => Some(Authority { host, port: parse_port(digits)? }),
        _ => None,
    }
}

/// Where `[...]` ends. What is inside must be an IPv6 address; IPvFuture and zones name nothing that this server could be called.
fn address_end(bytes: &[u8]) -> Option<usize> {
    let close = memchr::memchr(b']', bytes)?;
    let address = std::str::from_utf8(&bytes[1..close]).ok()?;
    address.parse::<std::net::Ipv6Addr>().ok()?;
    Some(close + 1)
}

/// The outer `None` is a malformed port; the grammar allows an empty one.
fn parse_port(digits: &[u8]) -> Option<Option<u16>> {
    if digits.is_empty() {
        return Some(None);
    }
    if digits.len() > 5 {
        return None;
    }
    let (mut port, mut is_number) = (0u32, true);
    for &digit in digits {
        let value = digit.wrapping_sub(b'0');
        is_number &= value <= 9;
        port = port * 10 + u32::from(value);
    }
    if is_number { u16::try_from(port).ok().map(Some) } else { None }
}

fn escapes_are_whole(name: &[u8]) -> bool {
    name.split(|&byte| byte == b'%')
        .skip(1)
        .all(|after| after.len() >= 2 && after[..2].iter().all(u8::is_ascii_hexdigit))
}

const NAME: u8 = 1;
const ESCAPE: u8 = 2;

/// Bytes of a reg-name (an IPv4 address is one too): unreserved and sub-delims are [`NAME`], `%` is [`ESCAPE`], the rest is 0.
static CLASS: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let c = byte as u8;
        if c.is_ascii_alphanumeric()
            || matches!(c, b'-' | b'.' | b'_' | b'~')
            || matches!(c, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=')
        {
            table[byte] = NAME;
        }
        byte += 1;
    }
    table[b'%' as usize] = ESCAPE;
    table
};

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn well_formed() {
        for (text, host, port) in [
            ("example.com", "example.com", None),
            ("EXAMPLE.com:8080", "EXAMPLE.com", Some(8080)),
            ("127.0.0.1:1", "127.0.0.1", Some(1)),
            ("[::1]", "[::1]", None),
            ("[2001:db8::7]:443", "[2001:db8::7]", Some(443)),
            ("a:", "a", None),
            ("", "", None),
            ("a%41b", "a%41b", None),
            ("xn--caf-dma.example", "xn--caf-dma.example", None),
            ("a_b", "a_b", None),
            ("h:65535", "h", Some(65535)),
            ("h:00080", "h", Some(80)),
        ] {
            let found = parse(text.as_bytes()).map(|found| (found.host, found.port));
            assert_eq!(found, Some((host.as_bytes(), port)), "{text}");
        }
    }

    #[test]
    fn malformed() {
        for text in [
            "a b",
            "a/b",
            "u@h",
            "h:80:80",
            "h:-1",
            "h:+1",
            "h:65536",
            "h:000080",
            "h:8a",
            "[::1",
            "::1",
            "[::1]x",
            "[]",
            "[::g]",
            "[::1%eth0]",
            "[v1.x]",
            "a[::1]",
            "a%4",
            "a%zz",
            ":80",
            ":",
            "a,b:c",
            "é",
            "a\0",
            "a\\b",
            "a#",
            "a?",
            "a\"b",
            "<a>",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
