//! Methods: HEAD, OPTIONS, those that a file doesn't allow, those that nobody knows (RFC 9110 section 9).

use crate::on_both_reactors;
use crate::support::{Directory, Reactor, Server, curl};

fn site() -> Directory {
    Directory::with(&[("a.txt", b"alpha\n"), ("index.html", b"<p>home</p>\n"), ("sub/index.html", b"sub")])
}

fn head_is_get_without_content(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    for path in ["/a.txt", "/", "/none", "/sub"] {
        let get = client.get(path);
        let head = client.ask(format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert_eq!(head.status, get.status, "{path}");
        for name in ["content-length", "content-type", "etag", "last-modified", "location", "vary", "accept-ranges"] {
            assert_eq!(head.field(name), get.field(name), "{path}: {name}");
        }
    }
    assert_eq!(client.get("/a.txt").text(), "alpha\n");
}

fn head_works_for_curl(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let printed = String::from_utf8(curl(&["--head", &server.url("/a.txt")])).unwrap().to_lowercase();
    assert!(printed.starts_with("http/1.1 200") && printed.contains("content-length: 6\r\n"), "{printed}");
}

fn a_head_that_is_refused_has_no_content(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let long = "a".repeat(9_000);
    for (target, status) in [("*", 400), ("/%zz", 400), ("a b", 400), (&format!("/{long}"), 414)] {
        let mut client = server.connect();
        client.send(format!("HEAD {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        let reply = client.until_closed();
        let (head, content) = reply.split_at(reply.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4);
        assert!(head.starts_with(format!("HTTP/1.1 {status} ").as_bytes()), "{target}: {}", head.escape_ascii());
        assert_eq!(content, b"", "{target}");
    }
}

fn options_names_the_methods(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    for target in ["/a.txt", "*"] {
        let reply = server.request(format!("OPTIONS {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert!(matches!(reply.status, 200 | 204), "{target}: {}", reply.status);
        let allowed = reply.list("allow");
        assert!(
            ["get", "head", "options"].iter().all(|method| allowed.contains(&(*method).to_owned())),
            "{target}: {allowed:?}"
        );
        assert_eq!(reply.body, b"", "{target}");
    }
}

fn an_asterisk_is_only_for_options(reactor: Reactor) {
    let site = site();
    let reply =
        Server::of(reactor, site.path()).request("GET * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!(reply.status, 400);
}

fn methods_that_a_file_does_not_allow_are_405(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE"] {
        let reply = server.request(format!("{method} /a.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"));
        assert_eq!(reply.status, 405, "{method}");
        let allowed = reply.list("allow");
        assert!(allowed.contains(&"get".to_owned()) && allowed.contains(&"head".to_owned()), "{method}: {allowed:?}");
    }
    assert_eq!(server.get("/a.txt").text(), "alpha\n");
}

fn a_refused_method_leaves_the_connection_in_step(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    client.send("DELETE /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\nGET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.reply().status, 405);
    assert_eq!(client.reply().text(), "alpha\n");
}

fn unknown_methods_are_refused(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    for method in ["BREW", "get", "Get", "PROPFIND", "X-1!#$%&'*+.^_`|~", "AVERYLONGMETHODNAMEINDEEDTHATNOBODYKNOWS"] {
        let reply = server.request(format!("{method} /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert!(matches!(reply.status, 405 | 501), "{method}: {}", reply.status);
    }
}

fn connect_makes_no_tunnel(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let reply = server.request("CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n");
    assert!(matches!(reply.status, 400 | 405 | 501), "{}", reply.status);
}

on_both_reactors!(
    head_is_get_without_content,
    head_works_for_curl,
    a_head_that_is_refused_has_no_content,
    options_names_the_methods,
    an_asterisk_is_only_for_options,
    methods_that_a_file_does_not_allow_are_405,
    a_refused_method_leaves_the_connection_in_step,
    unknown_methods_are_refused,
    connect_makes_no_tunnel,
);
