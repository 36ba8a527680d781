//! Precompressed siblings: which is sent to whom, and what the reply says of it (RFC 9110 sections 8.4, 12.5.3).

use crate::on_both_reactors;
use crate::support::{Directory, Reactor, Reply, Server, curl};

fn site() -> Directory {
    Directory::with(&[
        ("all.css", b"plain"),
        ("all.css.br", b"brotli"),
        ("all.css.zst", b"zstd!!"),
        ("all.css.gz", b"gzip!"),
        ("some.js", b"plain"),
        ("some.js.gz", b"gzip!"),
        ("none.html", b"plain"),
        ("index.html", b"plain"),
        ("index.html.gz", b"gzip!"),
    ])
}

fn ask(server: &Server, path: &str, accept: &str) -> Reply {
    server.get_with(path, &format!("Accept-Encoding: {accept}\r\n"))
}

fn each_coding_is_sent_to_who_takes_it(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    for (accept, coding, content) in [
        ("br", Some("br"), "brotli"),
        ("zstd", Some("zstd"), "zstd!!"),
        ("gzip", Some("gzip"), "gzip!"),
        ("x-gzip", Some("gzip"), "gzip!"),
        ("GZIP", Some("gzip"), "gzip!"),
        ("identity", None, "plain"),
        ("deflate", None, "plain"),
        ("", None, "plain"),
        ("gzip;q=0", None, "plain"),
        ("br;q=0, gzip", Some("gzip"), "gzip!"),
        ("br;q=0.1, gzip;q=0.9", Some("gzip"), "gzip!"),
        ("gzip;q=0.001", Some("gzip"), "gzip!"),
        ("identity;q=1, gzip;q=0.5", None, "plain"),
        ("identity, *;q=0", None, "plain"),
        ("*;q=0", None, "plain"),
    ] {
        let reply = ask(&server, "/all.css", accept);
        if accept == "*;q=0" && reply.status == 406 {
            continue;
        }
        assert_eq!(reply.status, 200, "{accept:?}");
        let coding = if accept == "x-gzip" && reply.field("content-encoding") == Some("x-gzip") {
            Some("x-gzip")
        } else {
            coding
        };
        if accept == "x-gzip" && reply.field("content-encoding").is_none() {
            continue;
        }
        assert_eq!((reply.field("content-encoding"), reply.text().as_str()), (coding, content), "{accept:?}");
    }
    let best = ask(&server, "/all.css", "gzip, deflate, br, zstd");
    assert!(matches!(best.field("content-encoding"), Some("br" | "zstd")), "{:?}", best.fields);
    assert!(ask(&server, "/all.css", "*").status == 200);
}

fn the_type_is_the_originals(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let (plain, packed) = (server.get("/all.css"), ask(&server, "/all.css", "br"));
    assert_eq!(plain.must("content-type"), packed.must("content-type"));
    assert_eq!(packed.must("content-length"), "6");
}

fn each_coding_has_its_own_tag(reactor: Reactor) {
    // RFC 9110 section 8.8.3.3.
    let site = site();
    let server = Server::of(reactor, site.path());
    let plain = server.get("/all.css");
    let packed = ask(&server, "/all.css", "br");
    assert_ne!(plain.must("etag"), packed.must("etag"));
    let fields = |tag: &str| format!("Accept-Encoding: br\r\nIf-None-Match: {tag}\r\n");
    assert_eq!(server.get_with("/all.css", &fields(packed.must("etag"))).status, 304);
    assert_eq!(server.get_with("/all.css", &fields(plain.must("etag"))).status, 200);
}

fn vary_is_said_wherever_there_is_a_choice(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    for accept in ["br", "gzip", "identity", "deflate"] {
        let reply = ask(&server, "/some.js", accept);
        assert!(reply.list("vary").contains(&"accept-encoding".to_owned()), "{accept}: {:?}", reply.fields);
    }
    assert!(server.get("/some.js").list("vary").contains(&"accept-encoding".to_owned()));
    let tag = ask(&server, "/some.js", "gzip").must("etag").to_owned();
    let unchanged = server.get_with("/some.js", &format!("Accept-Encoding: gzip\r\nIf-None-Match: {tag}\r\n"));
    assert_eq!(unchanged.status, 304);
    assert!(unchanged.list("vary").contains(&"accept-encoding".to_owned()), "{:?}", unchanged.fields);
}

fn an_index_has_siblings_too(reactor: Reactor) {
    let site = site();
    let reply = ask(&Server::of(reactor, site.path()), "/", "gzip");
    assert_eq!((reply.field("content-encoding"), reply.text().as_str()), (Some("gzip"), "gzip!"));
}

fn a_sibling_asked_for_by_name_is_itself(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let reply = ask(&server, "/all.css.gz", "gzip");
    assert_eq!((reply.status, reply.text().as_str(), reply.field("content-encoding")), (200, "gzip!", None));
}

fn ranges_are_of_the_coding_that_is_sent(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let reply = server.get_with("/all.css", "Accept-Encoding: br\r\nRange: bytes=1-3\r\n");
    match reply.status {
        206 if reply.field("content-encoding") == Some("br") => {
            assert_eq!((reply.text().as_str(), reply.must("content-range")), ("rot", "bytes 1-3/6"))
        }
        206 => assert_eq!((reply.text().as_str(), reply.must("content-range")), ("lai", "bytes 1-3/5")),
        status => assert_eq!(status, 200),
    }
}

fn no_sibling_without_its_original(reactor: Reactor) {
    let site = site();
    site.write("orphan.txt.gz", "gzip!");
    assert_eq!(ask(&Server::of(reactor, site.path()), "/orphan.txt", "gzip").status, 404);
}

fn siblings_that_come_and_go_are_noticed(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    assert_eq!(ask(&server, "/none.html", "gzip").text(), "plain");
    site.write("none.html.gz", "gzip!");
    crate::support::eventually("the new sibling is sent", || {
        (ask(&server, "/none.html", "gzip").text() == "gzip!").then_some(())
    });
    std::fs::remove_file(site.at("none.html.gz")).unwrap();
    crate::support::eventually("the original is sent", || {
        (ask(&server, "/none.html", "gzip").text() == "plain").then_some(())
    });
}

fn curl_unpacks_what_it_gets(reactor: Reactor) {
    let site = site();
    let text = "a line that repeats itself\n".repeat(100);
    let path = site.write("real.txt", &text);
    let packed = std::process::Command::new("gzip").args(["-9", "-k"]).arg(path).status().unwrap();
    assert!(packed.success());
    let server = Server::of(reactor, site.path());
    assert_eq!(curl(&["--compressed", &server.url("/real.txt")]), text.as_bytes());
}

on_both_reactors!(
    each_coding_is_sent_to_who_takes_it,
    the_type_is_the_originals,
    each_coding_has_its_own_tag,
    vary_is_said_wherever_there_is_a_choice,
    an_index_has_siblings_too,
    a_sibling_asked_for_by_name_is_itself,
    ranges_are_of_the_coding_that_is_sent,
    no_sibling_without_its_original,
    siblings_that_come_and_go_are_noticed,
    curl_unpacks_what_it_gets,
);
