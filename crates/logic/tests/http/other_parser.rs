//! Heads read by leat and by `httparse`, which shares no code with it: what both take they take alike, and where leat is stricter it says why.

use leat_logic::http::{Connection, Limits, Progress, RejectReason};
use leat_logic::time::Instant;

const HEADS: [&str; 5] = [
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /a/b?c=d HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: curl/8.14.1\r\nAccept: */*\r\n\r\n",
    "POST http://h:1/x HTTP/1.0\r\nA:\r\nB: \t \r\nC: long enough for two words \t and more\r\nContent-Length: 0\r\n\r\n",
    "DELETE /%41 HTTP/1.1\r\nHost: [::1]\r\nX-Odd!#$%&'*+-.^_`|~: \u{e9}\u{80}\r\nConnection: close\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nhost: a\r\nIf-None-Match: \"abc\"\r\nRange: bytes=0-1\r\n\r\n",
];

/// Offences that `httparse` has no part in: what lines mean together, and bare line feeds, which it allows.
const STRICTER: [RejectReason; 11] = [
    RejectReason::EmptyLines,
    RejectReason::BareLineFeed,
    RejectReason::TargetForm,
    RejectReason::TargetByte,
    RejectReason::Connect,
    RejectReason::HostMissing,
    RejectReason::HostRepeated,
    RejectReason::HostInvalid,
    RejectReason::ContentLengthInvalid,
    RejectReason::Expectation,
    RejectReason::BodyTooLarge,
];

fn compare(head: &[u8]) {
    let shown = head.escape_ascii();
    if (b'2'..=b'9').any(|minor| memchr::memmem::find(head, &[b" HTTP/1.", &[minor][..], b"\r\n"].concat()).is_some()) {
        // leat takes later minor versions for 1.1 (RFC 9110 section 2.5), httparse none.
        return;
    }
    if head.split(|&byte| byte == b' ').nth(1).is_some_and(|target| std::str::from_utf8(target).is_err()) {
        // leat takes any byte above 0x7F in a target, httparse only text.
        return;
    }
    let mut slots = [httparse::EMPTY_HEADER; 16];
    let mut other = httparse::Request::new(&mut slots);
    let verdict = other.parse(head);
    let mut connection = Connection::new(Instant::default());
    let (consumed, progress) = connection.handle_input(Instant::default(), head, &Limits::default());
    match progress {
        Progress::Request(request) => {
            // Empty lines before a request line are passed over by both.
            assert_eq!(verdict, Ok(httparse::Status::Complete(consumed)), "{shown}");
            assert_eq!(other.method.map(str::as_bytes), Some(request.method_name), "{shown}");
            assert_eq!(other.path.map(str::as_bytes), Some(request.target.raw), "{shown}");
            let lines: Vec<_> = request.headers.iter().collect();
            let others: Vec<_> = other.headers.iter().map(|line| (line.name.as_bytes(), line.value)).collect();
            assert_eq!(lines, others, "{shown}");
        }
        Progress::Reject(rejection) => {
            let reason = rejection.reason;
            let is_stricter = STRICTER.contains(&reason);
            assert!(verdict.is_err() || is_stricter, "{shown}: refused for {reason:?}, and httparse says {verdict:?}");
        }
        // A line is judged when it's whole; the other one judges byte by byte.
        Progress::NeedInput => assert!(verdict.is_err() || verdict == Ok(httparse::Status::Partial), "{shown}"),
        other => panic!("{shown}: {other:?}"),
    }
}

#[test]
fn every_byte_in_every_place() {
    for head in HEADS {
        compare(head.as_bytes());
        for place in 0..head.len() {
            for byte in 0..=255 {
                let mut changed = head.as_bytes().to_vec();
                changed[place] = byte;
                compare(&changed);
            }
        }
    }
}

#[test]
fn bytes_too_many_and_too_few() {
    for head in HEADS {
        for place in 0..head.len() {
            compare(&head.as_bytes()[..place]);
            let mut without = head.as_bytes().to_vec();
            without.remove(place);
            compare(&without);
            for byte in [b' ', b'\t', b'\r', b'\n', b':', b'/', b'?', 0, 0x7F, 0x80, b'a'] {
                let mut with = head.as_bytes().to_vec();
                with.insert(place, byte);
                compare(&with);
            }
        }
    }
}
