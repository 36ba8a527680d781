//! Header sections that have come before. A client says the same with each request, a browser with each image of a page: what is the same byte for
//! byte means the same, so it's compared and not read again. Decides what is remembered; what lines mean is `head`'s to say.

use super::head::ConnectionOptions;
use super::host::Authority;
use super::request::Request;

/// Sections remembered at a time.
const SECTIONS_MAX: usize = 64;
/// Longer ones aren't remembered. A browser's are half as long.
const SECTION_BYTES_MAX: usize = 1024;

/// What a worker remembers of its clients' header sections. The default remembers nothing.
#[derive(Debug, Default)]
pub struct KnownSections {
    /// By [`place_of`].
    sections: Vec<Known>,
}

/// A section that asks for nothing unusual: no body, no conditions, no expectation.
#[derive(Debug, Default)]
struct Known {
    /// With the empty line that ends it.
    bytes: Vec<u8>,
    lines: usize,
    host: Span,
    port: Option<u16>,
    connection: ConnectionOptions,
    accept_encoding: Option<Span>,
    user_agent: Option<Span>,
    referer: Option<Span>,
}

/// A part of a section.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u16,
    end: u16,
}

impl Span {
    /// Where `part` is in `whole`, of which it's a slice.
    fn of(part: &[u8], whole: &[u8]) -> Span {
        let start = part.as_ptr().addr().wrapping_sub(whole.as_ptr().addr());
        Span { start: start as u16, end: (start + part.len()) as u16 }
    }

    fn within(self, whole: &[u8]) -> &[u8] {
        whole.get(usize::from(self.start)..usize::from(self.end)).unwrap_or_default()
    }
}

/// Where a section is looked for: a few of its bytes tell most from each other.
fn place_of(section: &[u8]) -> Option<usize> {
    const BITS: u32 = SECTIONS_MAX.trailing_zeros();
    let middle = section.get(section.len() / 2..)?.first_chunk::<8>()?;
    let last = section.last_chunk::<16>()?.as_chunks::<8>().0;
    let words = [*section.first_chunk::<8>()?, *middle, last[0], last[1]].map(u64::from_le_bytes);
    let mixed =
        words.iter().fold(section.len() as u64, |mixed, word| (mixed ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    Some((mixed >> (u64::BITS - BITS)) as usize)
}

impl KnownSections {
    /// Remembers some tens of sections.
    #[must_use]
    pub fn new() -> KnownSections {
        KnownSections { sections: std::iter::repeat_with(Known::default).take(SECTIONS_MAX).collect() }
    }

    /// Fills in what `section` says, with the empty line at its end and nothing behind it, if it's known and has no more than `lines_max` lines.
    /// Gives what its Host field says.
    #[inline]
    pub(super) fn find<'i>(
        &self,
        section: &'i [u8],
        lines_max: usize,
        request: &mut Request<'i>,
    ) -> Option<Authority<'i>> {
        if self.sections.is_empty() {
            return None;
        }
        let known = &self.sections[place_of(section)?];
        if known.bytes != section || known.lines > lines_max {
            return None;
        }
        let within = |span: Span| span.within(section);
        request.connection = known.connection;
        request.accept_encoding = known.accept_encoding.map(within);
        request.user_agent = known.user_agent.map(within);
        request.referer = known.referer.map(within);
        Some(Authority { host: within(known.host), port: known.port })
    }

    /// Remembers a section that has been read, in the place of another. It has so many lines, no more in it than `request` and `host` say, and an empty line at its end.
    pub(super) fn remember(&mut self, section: &[u8], lines: usize, request: &Request<'_>, host: Authority<'_>) {
        if self.sections.is_empty() || section.len() > SECTION_BYTES_MAX {
            return;
        }
        let Some(place) = place_of(section) else { return };
        let known = &mut self.sections[place];
        let span = |part: &[u8]| Span::of(part, section);
        known.bytes.clear();
        known.bytes.extend_from_slice(section);
        known.lines = lines;
        (known.host, known.port) = (span(host.host), host.port);
        known.connection = request.connection;
        known.accept_encoding = request.accept_encoding.map(span);
        known.user_agent = request.user_agent.map(span);
        known.referer = request.referer.map(span);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Connection, Limits, Progress};
    use super::*;
    use crate::time::Instant;

    fn read(known: &mut KnownSections, head: &str, limits: &Limits) -> String {
        let mut connection = Connection::new(Instant::default());
        match connection.handle_input_knowing(known, Instant::default(), head.as_bytes(), limits) {
            (consumed, Progress::Request(request)) => format!("{consumed} {request:?}"),
            (consumed, progress) => format!("{consumed} {progress:?}"),
        }
    }

    fn is_remembered(known: &KnownSections, section: &str) -> bool {
        known.find(section.as_bytes(), usize::MAX, &mut Request::default()).is_some()
    }

    const SECTION: &str = "Host: Example.org:81\r\nUser-Agent: a b\r\nAccept-Encoding: br, gzip\r\nReferer: http://x/\r\n\
                           X-Other: y\r\nConnection: close\r\n\r\n";

    #[test]
    fn what_is_known_says_the_same_as_what_is_read() {
        let mut known = KnownSections::new();
        let limits = Limits::default();
        for line in [
            "GET / HTTP/1.1",
            "HEAD /a HTTP/1.0",
            "GET http://other:82/ HTTP/1.1",
            "OPTIONS * HTTP/1.1",
            "CONNECT a HTTP/1.1",
        ] {
            let head = format!("{line}\r\n{SECTION}");
            let expected = read(&mut KnownSections::default(), &head, &limits);
            assert_eq!(read(&mut known, &head, &limits), expected);
            assert_eq!(read(&mut known, &head, &limits), expected);
            // More behind it: another head, or half of one.
            let more = format!("{head}{head}");
            assert_eq!(read(&mut known, &more, &limits), read(&mut KnownSections::default(), &more, &limits));
        }
        assert!(is_remembered(&known, SECTION));
    }

    #[test]
    fn limits_hold_for_what_is_known() {
        let mut known = KnownSections::new();
        let head = format!("GET / HTTP/1.1\r\n{SECTION}");
        read(&mut known, &head, &Limits::default());
        let narrow = [
            Limits { header_count_max: 5, ..Limits::default() },
            Limits { head_bytes_max: head.len() - 1, ..Limits::default() },
            Limits { target_bytes_max: 0, ..Limits::default() },
        ];
        for limits in narrow {
            assert_eq!(read(&mut known, &head, &limits), read(&mut KnownSections::default(), &head, &limits));
        }
    }

    #[test]
    fn what_asks_for_more_is_not_remembered() {
        let mut known = KnownSections::new();
        for line in [
            "Content-Length: 0",
            "Transfer-Encoding: chunked",
            "Range: bytes=0-1",
            "If-None-Match: *",
            "Expect: 100-continue",
            "Host: b",
        ] {
            let section = format!("Host: a.example\r\n{line}\r\n\r\n");
            read(&mut known, &format!("PUT / HTTP/1.1\r\n{section}"), &Limits::default());
            assert!(!is_remembered(&known, &section), "{line}");
        }
        let long = format!("Host: a.example\r\nCookie: {}\r\n\r\n", "c".repeat(SECTION_BYTES_MAX));
        read(&mut known, &format!("GET / HTTP/1.1\r\n{long}"), &Limits::default());
        assert!(!is_remembered(&known, &long));
    }
}
