//! Requests that two servers could read in two ways: each is refused with 400 and the connection closed, so that nothing after it can be
//! taken for a request (RFC 9112 sections 2.2, 5, 6, 7 and 11.2).

use crate::on_both_reactors;
use crate::support::client::replies_in;
use crate::support::{Directory, Reactor, Server};

const NEXT: &str = "GET /secret.txt HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn site() -> Directory {
    Directory::with(&[("a.txt", b"alpha\n"), ("secret.txt", b"smuggled\n")])
}

/// Sends each head (after a good request line and Host) with `body`, then another request, and expects one refusal and the end.
fn are_refused(server: &Server, cases: &[(&str, &str)]) {
    let mut wrong = Vec::new();
    for (head, body) in cases {
        let mut client = server.connect();
        // A server that closes early may reset the connection while this is still being sent.
        let _ = client.try_send(format!("POST /a.txt HTTP/1.1\r\nHost: localhost\r\n{head}\r\n{body}{NEXT}"));
        let sent = client.until_closed();
        let text = String::from_utf8_lossy(&sent).into_owned();
        let statuses: Vec<_> =
            if text.is_empty() { Vec::new() } else { replies_in(&sent).iter().map(|r| r.status).collect() };
        // One answer, 400 (or 501 for a coding that isn't known), and then the end. Never the secret.
        let is_unknown_coding =
            head.to_lowercase().contains("encoding: gzip") || head.contains("identity") || head.contains("xchunked");
        // A length that no machine can count is a number all the same.
        let is_too_large = head.len() > 35
            && head.starts_with("Content-Length: ")
            && head.trim_end().ends_with(|c: char| c.is_ascii_digit());
        let is_right =
            statuses == [400] || (is_unknown_coding && statuses == [501]) || (is_too_large && statuses == [413]);
        if !is_right || text.contains("smuggled") {
            wrong.push(format!("{head:?} {body:?}: {statuses:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} are not refused with one 400:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

fn conflicting_or_malformed_content_length(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    are_refused(
        &server,
        &[
            ("Content-Length: 5\r\nContent-Length: 6\r\n", "hello"),
            ("Content-Length: 5, 6\r\n", "hello"),
            ("Content-Length: +5\r\n", "hello"),
            ("Content-Length: -5\r\n", "hello"),
            ("Content-Length: 0x5\r\n", "hello"),
            ("Content-Length: 5 5\r\n", "hello"),
            ("Content-Length: 5;\r\n", "hello"),
            ("Content-Length: five\r\n", "hello"),
            ("Content-Length:\r\n", ""),
            ("Content-Length: \"5\"\r\n", "hello"),
            ("Content-Length: 5.0\r\n", "hello"),
            ("Content-Length: 1_0\r\n", "hello"),
            ("Content-Length: 18446744073709551621\r\n", "hello"),
            ("Content-Length: 99999999999999999999999999999999\r\n", "hello"),
        ],
    );
}

fn transfer_encoding_that_is_not_plainly_chunked(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    are_refused(
        &server,
        &[
            ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
            ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
            ("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
            ("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
            ("Transfer-Encoding: identity\r\n", "0\r\n\r\n"),
            ("Transfer-Encoding: gzip\r\n", "0\r\n\r\n"),
            ("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
            ("Transfer-Encoding: chunked;q=1\r\n", "0\r\n\r\n"),
            ("Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n"),
            ("Transfer-Encoding:\r\n", "0\r\n\r\n"),
            ("Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"),
            ("Transfer-Encoding: chunk\r\n ed\r\n", "0\r\n\r\n"),
            ("Transfer-Encoding\t: chunked\r\n", "0\r\n\r\n"),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n"),
            ("Transfer-Encoding: gzip, chunked\r\nContent-Length: 3\r\n", "0\r\n\r\n"),
        ],
    );
}

fn transfer_encoding_in_http_1_0(reactor: Reactor) {
    // RFC 9112 section 6.1: a request of HTTP/1.0 with it has faulty framing.
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    client.send(format!(
        "POST /a.txt HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{NEXT}"
    ));
    let statuses: Vec<_> = replies_in(&client.until_closed()).iter().map(|reply| reply.status).collect();
    assert_eq!(statuses, [400]);
}

fn bad_line_ends_and_white_space(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    are_refused(
        &server,
        &[
            ("X: a\nY: b\r\n", ""),
            ("X: a\rY: b\r\n", ""),
            ("X: a\r\r\n", ""),
            ("X: a\r\n folded\r\n", ""),
            ("X: a\r\n\tfolded\r\n", ""),
            (" X: a\r\n", ""),
            ("X : a\r\n", ""),
            ("X\t: a\r\n", ""),
            ("Content-Length : 5\r\n", "hello"),
            (": a\r\n", ""),
            ("X\r\n", ""),
            ("X y: a\r\n", ""),
            ("X: a\0b\r\n", ""),
            ("X: a\x01b\r\n", ""),
            ("X: a\x7fb\r\n", ""),
            ("X\0: a\r\n", ""),
            ("X(: a\r\n", ""),
            ("\u{e9}: a\r\n", ""),
        ],
    );
}

fn bare_line_feeds_end_no_head(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    for request in [
        "GET /a.txt HTTP/1.1\nHost: localhost\n\n",
        "GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\n",
        "GET /a.txt HTTP/1.1\nHost: localhost\r\n\r\n",
        "GET /a.txt HTTP/1.1\r\nHost: localhost\n\r\n",
        "GET /a.txt HTTP/1.1\rHost: localhost\r\r",
        "GET /a.txt HTTP/1.1\r\n Host: localhost\r\n\r\n",
    ] {
        let mut client = server.connect();
        let _ = client.try_send(format!("{request}{NEXT}"));
        let statuses: Vec<_> = replies_in(&client.until_closed()).iter().map(|reply| reply.status).collect();
        assert_eq!(statuses, [400], "{request:?}");
    }
}

fn bad_chunks(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let chunked = "Transfer-Encoding: chunked\r\n";
    // The reply may have gone out before the bad chunk was seen; what matters is that the connection ends and nothing is smuggled.
    let bodies = [
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhelloworld\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "g\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5;a\nhello\r\n0\r\n\r\n",
        "5;a\rb\r\nhello\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "0\r\nX: a\nY: b\r\n\r\n",
        "0\r\n X: a\r\n\r\n",
        "0\r\nX : a\r\n\r\n",
        "5;\0\r\nhello\r\n0\r\n\r\n",
        "0\n\n",
        "0\r\n\n",
    ];
    let mut wrong = Vec::new();
    for body in bodies {
        let mut client = server.connect();
        let _ = client.try_send(format!("POST /a.txt HTTP/1.1\r\nHost: localhost\r\n{chunked}\r\n{body}{NEXT}"));
        let sent = client.until_closed();
        let statuses: Vec<_> = replies_in(&sent).iter().map(|reply| reply.status).collect();
        if !(statuses == [400] || statuses == [405]) || String::from_utf8_lossy(&sent).contains("smuggled") {
            wrong.push(format!("{body:?}: {statuses:?}"));
        }
    }
    assert!(wrong.is_empty(), "not refused:\n{}", wrong.join("\n"));
}

fn equal_content_lengths_are_refused_or_taken_as_one(reactor: Reactor) {
    // RFC 9110 section 8.6 lets a server do either; nothing else.
    let site = site();
    let server = Server::of(reactor, site.path());
    for head in ["Content-Length: 5\r\nContent-Length: 5\r\n", "Content-Length: 5, 5\r\n"] {
        let mut client = server.connect();
        client.send(format!("POST /a.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{head}\r\nhello{NEXT}"));
        let statuses: Vec<_> = replies_in(&client.until_closed()).iter().map(|reply| reply.status).collect();
        assert!(statuses == [400] || statuses == [405], "{head:?}: {statuses:?}");
    }
}

fn tls_and_http_2_on_a_plain_port(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".as_slice();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice();
    for (bytes, statuses) in [(hello, &[400_u16][..]), (preface, &[505, 400])] {
        let mut client = server.connect();
        client.send(bytes);
        let replies = replies_in(&client.until_closed());
        assert!(replies.len() <= 1 && replies.iter().all(|reply| statuses.contains(&reply.status)), "{replies:?}");
    }
}

on_both_reactors!(
    conflicting_or_malformed_content_length,
    transfer_encoding_that_is_not_plainly_chunked,
    transfer_encoding_in_http_1_0,
    bad_line_ends_and_white_space,
    bare_line_feeds_end_no_head,
    bad_chunks,
    equal_content_lengths_are_refused_or_taken_as_one,
    tls_and_http_2_on_a_plain_port,
);
