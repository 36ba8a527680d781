//! Several sites from one configuration: which answers for a host, and what each may set for itself.

use crate::on_both_reactors;
use crate::support::{Directory, Reactor, Reply, Server, curl};

fn ask(server: &Server, host: &str, path: &str) -> Reply {
    server.request(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
}

fn three() -> Directory {
    Directory::with(&[
        ("one/index.html", b"one"),
        ("two/index.html", b"two"),
        ("wild/index.html", b"wild"),
        ("rest/index.html", b"rest"),
    ])
}

const THREE: &str = r#"
[[site]]
hosts = ["one.example", "www.one.example"]
listen = ["127.0.0.1:0"]
root = "one"

[[site]]
hosts = ["two.example"]
listen = ["127.0.0.1:0"]
root = "two"
weight = 300

[[site]]
hosts = ["*.wild.example"]
listen = ["127.0.0.1:0"]
root = "wild"
"#;

fn the_host_picks_the_site(reactor: Reactor) {
    let directory = three();
    let rest = format!("{THREE}\n[[site]]\nname = \"rest\"\nlisten = [\"127.0.0.1:0\"]\nroot = \"rest\"\n");
    let server = Server::configured(reactor, &directory, &rest);
    for (host, content) in [
        ("one.example", "one"),
        ("ONE.Example", "one"),
        ("one.example:8080", "one"),
        ("www.one.example", "one"),
        ("one.example.", "one"),
        ("two.example", "two"),
        ("a.wild.example", "wild"),
        ("a.b.wild.example", "wild"),
        ("wild.example", "rest"),
        ("other.example", "rest"),
        ("127.0.0.1", "rest"),
        ("", "rest"),
        ("xone.example", "rest"),
    ] {
        let reply = ask(&server, host, "/");
        // Whether a dot at the end is another name is the server's to say.
        assert!(reply.text() == content || (host.ends_with('.') && reply.text() == "rest"), "{host}: {}", reply.text());
    }
}

fn hosts_take_turns_on_one_connection(reactor: Reactor) {
    let directory = three();
    let server = Server::configured(reactor, &directory, THREE);
    let mut client = server.connect();
    for round in 0..20 {
        let (host, content) = [("one.example", "one"), ("two.example", "two"), ("x.wild.example", "wild")][round % 3];
        assert_eq!(client.ask(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).text(), content);
    }
    // The authority of an absolute target wins over Host (RFC 9112 section 3.2.2).
    assert_eq!(client.ask("GET http://two.example/ HTTP/1.1\r\nHost: one.example\r\n\r\n").text(), "two");
}

fn a_host_of_nobody_is_refused(reactor: Reactor) {
    let directory = three();
    let server = Server::configured(reactor, &directory, THREE);
    let status = ask(&server, "nobody.example", "/").status;
    assert!(matches!(status, 400 | 404 | 421), "{status}");
    let without_host = server.request("GET / HTTP/1.0\r\n\r\n").status;
    assert!(matches!(without_host, 400 | 404 | 421), "{without_host}");
    assert_eq!(ask(&server, "one.example", "/").text(), "one");
}

fn sites_can_have_addresses_of_their_own(reactor: Reactor) {
    let directory = three();
    let text = "[[site]]\nname = \"a\"\nlisten = [\"127.0.0.1:0\"]\nroot = \"one\"\n[[site]]\nname = \"b\"\nlisten = [\"127.0.0.2:0\"]\nroot = \"two\"\n";
    let server = Server::configured_with_listeners(reactor, &directory, text, 2);
    for &address in server.addresses() {
        let wanted = if address.ip().to_string() == "127.0.0.1" { "one" } else { "two" };
        assert_eq!(crate::support::Client::connect(address).get("/").text(), wanted, "{address}");
    }
}

fn headers_are_added(reactor: Reactor) {
    let directory = three();
    let text = r#"
[[site]]
listen = ["127.0.0.1:0"]
root = "one"
headers = { "Cache-Control" = "public, max-age=60", "X-Content-Type-Options" = "nosniff", "Content-Security-Policy" = "default-src 'self'" }
"#;
    let server = Server::configured(reactor, &directory, text);
    let whole = server.get("/");
    for (name, value) in [
        ("cache-control", "public, max-age=60"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "default-src 'self'"),
    ] {
        assert_eq!(whole.must(name), value);
    }
    // A cached copy is refreshed by them too (RFC 9110 section 15.4.5).
    let unchanged = server.get_with("/", &format!("If-None-Match: {}\r\n", whole.must("etag")));
    assert_eq!((unchanged.status, unchanged.must("cache-control")), (304, "public, max-age=60"));
    assert_eq!(server.get_with("/", "Range: bytes=0-0\r\n").must("cache-control"), "public, max-age=60");
}

fn headers_are_added_by_path(reactor: Reactor) {
    let directory = three();
    directory.write("one/fonts/a.css", "x");
    directory.write("one/b.css", "x");
    let text = |age| {
        format!(
            "[[site]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"one\"\nheaders = {{ \"Cache-Control\" = \"no-cache\", \"X-All\" = \"1\" }}\n\
             [[site.header]]\npath = \"*.css\"\nheaders = {{ \"cache-control\" = \"max-age={age}\" }}\n\
             [[site.header]]\npath = \"/fonts/*\"\nheaders = {{ \"Access-Control-Allow-Origin\" = \"*\" }}\n"
        )
    };
    let server = Server::configured(reactor, &directory, &text(60));
    let said = |path, name| server.get(path).list(name);
    for (path, cache, is_font) in
        [("/", "no-cache", false), ("/b.css", "max-age=60", false), ("/fonts/a.css", "max-age=60", true)]
    {
        assert_eq!(
            (said(path, "cache-control"), said(path, "x-all")),
            (vec![cache.to_owned()], vec!["1".to_owned()]),
            "{path}"
        );
        assert_eq!(server.get(path).field("access-control-allow-origin").is_some(), is_font, "{path}");
    }
    server.reload(reactor, &directory, &text(90));
    assert_eq!(said("/b.css", "cache-control"), ["max-age=90"]);
}

fn error_pages_are_sent_with_their_status(reactor: Reactor) {
    let directory = three();
    directory.write("one/lost.html", "<p>a page of our own</p>");
    let text = r#"
[[site]]
listen = ["127.0.0.1:0"]
root = "one"
error_pages = { 404 = "/lost.html", 405 = "/lost.html", 412 = "/lost.html", 413 = "/lost.html", 416 = "/lost.html" }
limits = { body_size = "10B" }
headers = { "X-All" = "1", "Cache-Control" = "max-age=31536000", "Expires" = "Sun, 06 Nov 2094 08:49:37 GMT" }
[[site.handler]]
path = "/programs/*"
cgi.command = "."
"#;
    let server = Server::configured(reactor, &directory, text);
    let mut client = server.connect();
    let reply = client.get("/none");
    assert_eq!((reply.status, reply.text().as_str()), (404, "<p>a page of our own</p>"));
    assert!(reply.must("content-type").starts_with("text/html"));
    assert_eq!(reply.must("x-all"), "1");
    // An error has no validators of the page: a client must not take it for an unchanged file. Nor may a cache keep it as long as a file.
    for name in ["etag", "last-modified", "accept-ranges", "cache-control", "expires"] {
        assert_eq!(reply.field(name), None);
        assert!(client.get("/lost.html").field(name).is_some(), "{name}");
    }
    let head = client.ask("HEAD /none HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!((head.status, head.field("content-length")), (404, reply.field("content-length")));
    for fields in ["Range: bytes=0-2\r\n", "If-None-Match: *\r\n"] {
        let reply = client.ask(format!("GET /none HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"));
        assert_eq!((reply.status, reply.text().as_str()), (404, "<p>a page of our own</p>"), "{fields}");
    }
    // Whatever the method, the error is the one that there was.
    for method in ["GET", "POST", "OPTIONS", "PROPFIND"] {
        let reply =
            client.ask(format!("{method} /programs/none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"));
        assert_eq!((reply.status, reply.text().as_str()), (404, "<p>a page of our own</p>"), "{method}");
    }
    let reply = client.ask("DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!((reply.status, reply.text().as_str()), (405, "<p>a page of our own</p>"));
    assert!(reply.list("allow").contains(&"get".to_owned()));
    assert_eq!(client.get("/lost.html").status, 200);
    for (fields, status, range) in [("If-Match: \"no\"", 412, None), ("Range: bytes=1000-", 416, Some("bytes */24"))] {
        let reply = client.ask(format!("GET /lost.html HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n"));
        assert_eq!((reply.status, reply.text().as_str()), (status, "<p>a page of our own</p>"));
        assert_eq!(reply.field("content-range"), range);
    }
    let reply = client.ask("POST /programs/none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\n");
    assert_eq!((reply.status, reply.text().as_str()), (413, "<p>a page of our own</p>"));
    assert!(reply.says_close());
}

/// The limit of the site that a connection's last request was for says nothing of the next.
fn a_connection_may_go_from_site_to_site(reactor: Reactor) {
    let directory = three();
    let text = r#"
[[site]]
hosts = ["small"]
listen = ["127.0.0.1:0"]
root = "one"
limits = { body_size = "0B" }
[[site]]
hosts = ["large"]
listen = ["127.0.0.1:0"]
root = "one"
limits = { body_size = "100B" }
"#;
    let server = Server::configured(reactor, &directory, text);
    let mut client = server.connect();
    for (host, length, status) in [("small", 0, 405), ("large", 100, 405), ("small", 0, 405), ("small", 1, 413)] {
        let head = format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n");
        assert_eq!(client.ask(head + &"x".repeat(length)).status, status, "{host}, {length}");
    }
}

fn errors_without_a_page_have_plain_words(reactor: Reactor) {
    let directory = three();
    let reply = Server::of(reactor, directory.at("one")).get("/<script>alert(1)</script>");
    assert!(matches!(reply.status, 400 | 404) && !reply.text().contains("<script>"), "{}", reply.text());
    assert!(!reply.body.is_empty() && reply.must("content-type").starts_with("text/"), "{:?}", reply.fields);
}

fn index_types_charset_and_siblings_can_be_set(reactor: Reactor) {
    let directory = Directory::with(&[
        ("w/start.htm", b"start"),
        ("w/a.foo", b"foo"),
        ("w/a.txt", b"text"),
        ("w/a.txt.gz", b"gz"),
        ("w/a.txt.br", b"br"),
        ("w/index.html", b"index"),
    ]);
    let text = r#"
[[site]]
listen = ["127.0.0.1:0"]
root = "w"
index = ["first.html", "start.htm", "index.html"]
types = { ".foo" = "text/x-foo" }
charset = "iso-8859-1"
precompressed = ["gz"]
"#;
    let server = Server::configured(reactor, &directory, text);
    assert_eq!(server.get("/").text(), "start");
    assert!(server.get("/a.foo").must("content-type").starts_with("text/x-foo"));
    assert_eq!(server.get("/a.txt").must("content-type").to_lowercase(), "text/plain; charset=iso-8859-1");
    assert_eq!(server.get_with("/a.txt", "Accept-Encoding: br, gzip\r\n").text(), "gz");
}

fn curl_resolves_names_to_sites(reactor: Reactor) {
    let directory = three();
    let server = Server::configured(reactor, &directory, THREE);
    let port = server.address().port();
    let resolve = format!("two.example:{port}:127.0.0.1");
    assert_eq!(curl(&["--resolve", &resolve, &format!("http://two.example:{port}/")]), b"two");
}

on_both_reactors!(
    the_host_picks_the_site,
    hosts_take_turns_on_one_connection,
    a_host_of_nobody_is_refused,
    sites_can_have_addresses_of_their_own,
    headers_are_added,
    headers_are_added_by_path,
    error_pages_are_sent_with_their_status,
    a_connection_may_go_from_site_to_site,
    errors_without_a_page_have_plain_words,
    index_types_charset_and_siblings_can_be_set,
    curl_resolves_names_to_sites,
);
