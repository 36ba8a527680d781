//! Conditional requests: the five fields and their precedence (RFC 9110 section 13).

use crate::on_both_reactors;
use crate::support::{Directory, Reactor, Reply, Server};

/// 2001-09-09 01:46:40, a Sunday.
const MODIFIED: u64 = 1_000_000_000;
const AT: &str = "Sun, 09 Sep 2001 01:46:40 GMT";
const BEFORE: &str = "Sun, 09 Sep 2001 01:46:39 GMT";
const AFTER: &str = "Sun, 09 Sep 2001 01:46:41 GMT";

fn site() -> Directory {
    let site = Directory::with(&[("a.txt", b"alpha\n"), ("b.txt", b"beta\n")]);
    site.set_modified("a.txt", MODIFIED);
    site
}

fn expect(server: &Server, cases: &[(u16, String)]) {
    let mut wrong = Vec::new();
    for (status, fields) in cases {
        let found = server.get_with("/a.txt", fields).status;
        if found != *status {
            wrong.push(format!("{fields:?}: {found}, not {status}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn tag(server: &Server) -> String {
    server.get("/a.txt").must("etag").to_owned()
}

fn has_fields_of_200(not_modified: &Reply, whole: &Reply) {
    // RFC 9110 section 15.4.5: these go along if the 200 would have had them.
    for name in ["etag", "vary", "cache-control", "expires", "content-location"] {
        assert_eq!(not_modified.field(name), whole.field(name), "{name}");
    }
    assert!(not_modified.field("date").is_some());
}

fn validators_are_there_and_strong(reactor: Reactor) {
    let site = site();
    let reply = Server::of(reactor, site.path()).get("/a.txt");
    let etag = reply.must("etag");
    assert!(etag.len() > 2 && etag.starts_with('"') && etag.ends_with('"'), "{etag}");
    assert_eq!(reply.must("last-modified"), AT);
}

fn if_none_match(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let tag = tag(&server);
    expect(
        &server,
        &[
            (304, format!("If-None-Match: {tag}\r\n")),
            (304, format!("If-None-Match: W/{tag}\r\n")),
            (304, "If-None-Match: *\r\n".into()),
            (304, format!("If-None-Match: \"other\", {tag}\r\n")),
            (304, format!("If-None-Match: \"other\",{tag} , W/\"third\"\r\n")),
            (304, format!("If-None-Match: , {tag},,\r\n")),
            (304, format!("If-None-Match: \"other\"\r\nIf-None-Match: {tag}\r\n")),
            (304, format!("If-None-Match: \"with,comma\", {tag}\r\n")),
            (200, "If-None-Match: \"other\"\r\n".into()),
            (200, format!("If-None-Match: \"{}x\"\r\n", tag.trim_matches('"'))),
            (200, format!("If-None-Match: \"x,{}\"\r\n", tag.trim_matches('"'))),
        ],
    );
}

fn a_304_has_no_content_and_the_right_fields(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    let whole = client.get("/a.txt");
    let fields = format!("If-None-Match: {}\r\n", whole.must("etag"));
    for method in ["GET", "HEAD"] {
        let reply = client.ask(format!("{method} /a.txt HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"));
        assert_eq!(reply.status, 304);
        has_fields_of_200(&reply, &whole);
        assert!(matches!(reply.field("content-length"), None | Some("6")), "{:?}", reply.fields);
    }
    assert_eq!(client.get("/b.txt").text(), "beta\n");
}

fn if_modified_since(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    expect(
        &server,
        &[
            (304, format!("If-Modified-Since: {AT}\r\n")),
            (304, format!("If-Modified-Since: {AFTER}\r\n")),
            (200, format!("If-Modified-Since: {BEFORE}\r\n")),
            // The two obsolete forms must be understood (RFC 9110 section 5.6.7).
            (304, "If-Modified-Since: Sunday, 09-Sep-01 01:46:40 GMT\r\n".into()),
            (304, "If-Modified-Since: Sun Sep  9 01:46:40 2001\r\n".into()),
            (200, "If-Modified-Since: Sun Sep  9 01:46:39 2001\r\n".into()),
            // What is no date is ignored.
            (200, "If-Modified-Since: yesterday\r\n".into()),
            (200, "If-Modified-Since: Sun, 32 Sep 2030 01:46:40 GMT\r\n".into()),
            (200, "If-Modified-Since: \r\n".into()),
        ],
    );
    let head = server.request(format!("HEAD /a.txt HTTP/1.1\r\nHost: localhost\r\nIf-Modified-Since: {AT}\r\n\r\n"));
    assert_eq!(head.status, 304);
}

fn if_match(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let tag = tag(&server);
    expect(
        &server,
        &[
            (200, format!("If-Match: {tag}\r\n")),
            (200, "If-Match: *\r\n".into()),
            (200, format!("If-Match: \"other\", {tag}\r\n")),
            (412, "If-Match: \"other\"\r\n".into()),
            // If-Match compares strongly: a weak tag never matches.
            (412, format!("If-Match: W/{tag}\r\n")),
        ],
    );
    let absent = server.get_with("/none.txt", "If-Match: *\r\n").status;
    assert!(matches!(absent, 404 | 412), "{absent}");
}

fn if_unmodified_since(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    expect(
        &server,
        &[
            (200, format!("If-Unmodified-Since: {AT}\r\n")),
            (200, format!("If-Unmodified-Since: {AFTER}\r\n")),
            (412, format!("If-Unmodified-Since: {BEFORE}\r\n")),
            (200, "If-Unmodified-Since: whenever\r\n".into()),
        ],
    );
}

fn precedence(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let tag = tag(&server);
    expect(
        &server,
        &[
            // If-Match hides If-Unmodified-Since.
            (200, format!("If-Match: {tag}\r\nIf-Unmodified-Since: {BEFORE}\r\n")),
            (412, format!("If-Match: \"x\"\r\nIf-Unmodified-Since: {AFTER}\r\n")),
            // If-None-Match hides If-Modified-Since.
            (200, format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {AFTER}\r\n")),
            (304, format!("If-None-Match: {tag}\r\nIf-Modified-Since: {BEFORE}\r\n")),
            // 412 comes before 304.
            (412, format!("If-Match: \"x\"\r\nIf-None-Match: {tag}\r\n")),
            (412, format!("If-Unmodified-Since: {BEFORE}\r\nIf-None-Match: {tag}\r\n")),
            (304, format!("If-Match: {tag}\r\nIf-None-Match: {tag}\r\n")),
            (304, format!("If-Unmodified-Since: {AT}\r\nIf-Modified-Since: {AT}\r\n")),
            // Preconditions come before ranges.
            (304, format!("If-None-Match: {tag}\r\nRange: bytes=0-1\r\n")),
            (412, "If-Match: \"x\"\r\nRange: bytes=0-1\r\n".into()),
            (412, "If-Match: \"x\"\r\nRange: bytes=900-\r\n".into()),
            (206, format!("If-Match: {tag}\r\nRange: bytes=0-1\r\n")),
        ],
    );
}

fn if_range(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let tag = tag(&server);
    expect(
        &server,
        &[
            (206, format!("Range: bytes=0-1\r\nIf-Range: {tag}\r\n")),
            (200, "Range: bytes=0-1\r\nIf-Range: \"other\"\r\n".into()),
            // A weak tag never matches, even the right one (RFC 9110 section 13.1.5).
            (200, format!("Range: bytes=0-1\r\nIf-Range: W/{tag}\r\n")),
            (206, format!("Range: bytes=0-1\r\nIf-Range: {AT}\r\n")),
            // Dates match exactly or not at all.
            (200, format!("Range: bytes=0-1\r\nIf-Range: {AFTER}\r\n")),
            (200, format!("Range: bytes=0-1\r\nIf-Range: {BEFORE}\r\n")),
            (200, "Range: bytes=0-1\r\nIf-Range: nonsense\r\n".into()),
            (200, format!("If-Range: {tag}\r\n")),
            // When it doesn't match, Range is ignored, even one that can't be satisfied.
            (200, "Range: bytes=900-\r\nIf-Range: \"other\"\r\n".into()),
            (416, format!("Range: bytes=900-\r\nIf-Range: {tag}\r\n")),
        ],
    );
}

fn a_recent_date_is_no_strong_validator(reactor: Reactor) {
    // RFC 9110 section 8.8.2.2: a file changed in the second of the reply may change again with the same date.
    let site = site();
    let server = Server::of(reactor, site.path());
    site.write("fresh.txt", "fresh\n");
    let whole = server.get("/fresh.txt");
    if whole.field("last-modified") == whole.field("date") {
        let fields = format!("Range: bytes=0-1\r\nIf-Range: {}\r\n", whole.must("last-modified"));
        let reply = server.get_with("/fresh.txt", &fields);
        assert!(reply.status == 200 || reply.field("date") != reply.field("last-modified"), "{reply:?}");
    }
}

fn a_precondition_on_nothing_is_still_404(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    assert_eq!(server.get_with("/none.txt", "If-None-Match: *\r\n").status, 404);
    assert_eq!(server.get_with("/none.txt", &format!("If-Modified-Since: {AFTER}\r\n")).status, 404);
}

fn equal_content_has_an_equal_tag_everywhere(reactor: Reactor) {
    // Two directories, two times: as on two machines.
    let (one, two) = (site(), site());
    two.set_modified("a.txt", MODIFIED + 1);
    two.write("deeper/copy.txt", b"alpha\n");
    let (first, second) = (Server::of(reactor, one.path()), Server::of(reactor, two.path()));
    assert_eq!(tag(&first), tag(&second));
    assert_eq!(tag(&first), second.get("/deeper/copy.txt").must("etag"));
    assert_ne!(tag(&first), first.get("/b.txt").must("etag"));
}

on_both_reactors!(
    validators_are_there_and_strong,
    if_none_match,
    a_304_has_no_content_and_the_right_fields,
    if_modified_since,
    if_match,
    if_unmodified_since,
    precedence,
    if_range,
    a_recent_date_is_no_strong_validator,
    a_precondition_on_nothing_is_still_404,
    equal_content_has_an_equal_tag_everywhere,
);
