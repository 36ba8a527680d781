//! HTTP: the first request of a connection says where all of it goes. Where each request is to go by itself, a VIP is what is wanted.

use super::{About, Begin, Limits, Mistake, Parser, Piece, Request, Scope};
use crate::dispatch::Facts;
use crate::http::{self, Progress};
use crate::time::Instant;

pub(super) const ABOUT: About = About {
    name: "http",
    about: "HTTP/1: each connection goes to the nodes whose `hosts` have its first request's host, among them by load, or under a policy \
            that goes by content by host and path (a VIP does so for each request)",
    parser: |limits| Box::new(Http { limits }),
    is_store: false,
    separable: None,
};

#[derive(Debug)]
struct Http {
    limits: Limits,
}

impl Parser for Http {
    fn begin<'i>(&mut self, input: &'i [u8], _is_all: bool) -> Result<Begin<'i>, Mistake> {
        let limits = http::Limits {
            head_bytes_max: self.limits.head_bytes_max,
            target_bytes_max: self.limits.head_bytes_max,
            body_bytes_max: u64::MAX,
            ..http::Limits::default()
        };
        // Asked again with the same bytes, it begins anew: a head comes in one piece nearly always.
        let mut connection = http::Connection::new(Instant::default());
        match connection.handle_input(Instant::default(), input, &limits).1 {
            Progress::Request(request) => Ok(Begin::Request(Request::new(Scope::Content(Facts::of(&request))))),
            Progress::NeedInput => Ok(Begin::NeedMore),
            _ => Err(Mistake::Client("it doesn't begin with an HTTP/1 request")),
        }
    }

    fn go_on(&mut self, input: &[u8]) -> Result<Piece, Mistake> {
        Ok(Piece { bytes: input.len(), is_last: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_goes_by_its_first_request() {
        let mut parser = Http { limits: Limits { head_bytes_max: 1024, first_bytes: 0 } };
        let input = b"POST /a?b HTTP/1.1\r\nHost: x.example\r\nContent-Length: 3\r\n\r\n123GET";
        let Ok(Begin::Request(Request { scope: Scope::Content(facts), .. })) = parser.begin(input, false) else {
            panic!("a request");
        };
        assert_eq!((facts.host, facts.path), (&b"x.example"[..], &b"/a"[..]));
        assert_eq!(parser.begin(&input[..30], false), Ok(Begin::NeedMore));
        assert!(matches!(parser.begin(b"\x16\x03\x01\r\n\r\n", false), Err(Mistake::Client(_))));
    }
}
