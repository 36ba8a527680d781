//! A request's head as the caller sees it: slices of what was received, found in one pass.

use super::Limits;
use super::body::BodyLength;
use super::conditional::Conditions;
use super::head::{ConnectionOptions, HeadProgress, HeadStep};
use super::known_sections::KnownSections;
use super::method::Method;
use super::target::Target;

/// The version that a request line names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// `HTTP/1.0`
    Http10,
    /// `HTTP/1.1`
    #[default]
    Http11,
}

/// A head that was accepted. Every slice points into the input.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'i> {
    /// The method.
    pub method: Method,
    /// The method as it was sent.
    pub method_name: &'i [u8],
    /// What is asked for.
    pub target: Target<'i>,
    /// The version.
    pub version: Version,
    /// The host that is asked, without its port and with an IPv6 address's brackets, in the letter case it was sent in. From the target
    /// when that is a whole URI, else from Host. `None` only in HTTP/1.0; empty when the client knows no name.
    pub host: Option<&'i [u8]>,
    /// The port behind the host, if one was given.
    pub port: Option<u16>,
    /// Every field line.
    pub headers: Headers<'i>,
    /// How the body is delimited; [`BodyLength::None`] when there is nothing to read (`Content-Length: 0` too).
    pub body: BodyLength,
    /// The client waits for 100 (Continue) before it sends the body.
    pub expect_continue: bool,
    /// What Connection says.
    pub(super) connection: ConnectionOptions,
    /// Preconditions and range.
    pub conditions: Conditions<'i>,
    /// `Accept-Encoding`, first line.
    pub accept_encoding: Option<&'i [u8]>,
    /// `User-Agent`, first line.
    pub user_agent: Option<&'i [u8]>,
    /// `Referer`, first line.
    pub referer: Option<&'i [u8]>,
}

impl<'i> Request<'i> {
    /// Reads a head again that a connection has accepted: the bytes that [`super::Connection::handle_input`] consumed for it. What was
    /// within the limits then is so now; `None` only for bytes that were never accepted.
    #[must_use]
    pub fn read_again(head: &'i [u8]) -> Option<Request<'i>> {
        let mut request = Request::default();
        match HeadProgress::default().step(head, &Limits::WIDEST, &mut KnownSections::default(), &mut request) {
            HeadStep::Head(_) => Some(request),
            HeadStep::NeedInput(_) | HeadStep::Reject(_) => None,
        }
    }
}

/// The header section of an accepted head, in the order it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers<'i> {
    /// Whole lines, each known to be `name ":" OWS value OWS CR LF`.
    pub(super) section: &'i [u8],
}

impl<'i> Headers<'i> {
    /// The section as it was sent, without the empty line that ends it.
    #[must_use]
    pub fn as_bytes(&self) -> &'i [u8] {
        self.section
    }

    /// Name and value of each line; names as sent, values without white space around.
    pub fn iter(&self) -> impl Iterator<Item = (&'i [u8], &'i [u8])> + use<'i> {
        let mut rest = self.section;
        std::iter::from_fn(move || {
            let end = memchr::memchr(b'\n', rest)?;
            let (line, after) = (&rest[..=end], &rest[end + 1..]);
            rest = after;
            let colon = memchr::memchr(b':', line)?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        })
    }

    /// The values of every line with this name, whatever its letter case.
    pub fn all<'n>(&self, name: &'n [u8]) -> impl Iterator<Item = &'i [u8]> + use<'i, 'n> {
        self.iter().filter(move |(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The value of the first line with this name, whatever its letter case.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&'i [u8]> {
        self.all(name).next()
    }
}

#[cfg(test)]
mod tests {
    use super::{Headers, Request};

    #[test]
    fn an_accepted_head_is_accepted_again_whatever_the_limits_are() {
        let head = b"\r\nPUT /long HTTP/1.1\r\nHost: a:1\r\nContent-Length: 18446744073709551615\r\n\r\n";
        let request = Request::read_again(head).expect("sound");
        assert_eq!((request.target.path, request.host, request.port), (&b"/long"[..], Some(&b"a"[..]), Some(1)));
        assert!(Request::read_again(b"GET / HTTP/1.1\r\nHost: a\r\n").is_none());
        assert!(Request::read_again(b"GET / HTTP/1.1\r\n\r\n").is_none());
    }

    #[test]
    fn lines_come_in_order_and_trimmed() {
        let headers = Headers { section: b"A: 1\r\nb:\t2 \r\nA:\r\nC: x: y\r\n" };
        let lines: Vec<_> = headers.iter().collect();
        assert_eq!(lines, [(&b"A"[..], &b"1"[..]), (b"b", b"2"), (b"A", b""), (b"C", b"x: y")]);
        assert_eq!(headers.all(b"a").collect::<Vec<_>>(), [&b"1"[..], b""]);
        assert_eq!(headers.get(b"B"), Some(&b"2"[..]));
        assert_eq!(headers.get(b"D"), None);
        assert_eq!(Headers::default().iter().count(), 0);
    }
}
