//! Requests that are answered by something else than what their path names: redirects, and the fallback of a site.

use std::os::unix::fs::PermissionsExt;

use crate::on_both_reactors;
use crate::support::{Directory, Reactor, Server};

fn redirecting(reactor: Reactor) -> (Directory, Server) {
    let directory = Directory::with(&[("site/a.txt", b"alpha\n")]);
    let text = "[[site]]\nroot = \"site\"\nlisten = \"127.0.0.1:0\"\n\
        [[site.handler]]\npath = \"/old/*\"\nredirect = { to = \"/new/*\" }\n\
        [[site.handler]]\npath = \"/shop/*\"\nredirect = { to = \"https://shop.example.org/*\", kind = \"temporary\" }\n\
        [[site.handler]]\npath = \"/form\"\nredirect = { to = \"/forms?kind=new\", kind = \"temporary_same_method\" }\n\
        [[site.handler]]\npath = \"/up/*\"\nredirect = { to = \"/*\", kind = \"permanent_same_method\" }\n";
    let server = Server::configured(reactor, &directory, text);
    (directory, server)
}

fn a_redirect_takes_the_rest_and_the_query_along(reactor: Reactor) {
    let (_directory, server) = redirecting(reactor);
    let mut client = server.connect();
    for (path, status, location) in [
        ("/old/a%20b/c?d=e", 301, "/new/a%20b/c?d=e"),
        ("/old", 301, "/new"),
        ("/shop/x", 302, "https://shop.example.org/x"),
        ("/shop?", 302, "https://shop.example.org?"),
        ("/form?a=b", 307, "/forms?kind=new&a=b"),
        ("/up/", 308, "/"),
        ("/up//evil.example/x", 308, "/evil.example/x"),
        ("/up/%0d%0aX:%20y", 308, "/%0d%0aX:%20y"),
        // As it came: an escape may be what keeps a byte from meaning something, and an empty segment part of a name.
        ("/%6Fld/a%2Fb%3Bc;d%7E", 301, "/new/a%2Fb%3Bc;d%7E"),
        ("/old/./http://x//y?http://z", 301, "/new/http:/x/y?http://z"),
        ("/old/http://x//y?http://z", 301, "/new/http://x//y?http://z"),
        ("/up/%2Fevil.example", 308, "/%2Fevil.example"),
        ("/up/\\evil.example", 308, "/%5Cevil.example"),
    ] {
        let reply = client.get(path);
        assert_eq!((reply.status, reply.must("location")), (status, location), "{path}");
        assert!(reply.text().contains("at another address"), "{path}: {}", reply.text());
    }
    assert_eq!(client.get("/a.txt").text(), "alpha\n");
}

fn a_redirect_answers_every_method(reactor: Reactor) {
    let (_directory, server) = redirecting(reactor);
    let mut client = server.connect();
    let head = client.ask("HEAD /old/x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!((head.status, head.must("location"), head.body.len()), (301, "/new/x", 0));
    let posted = client.ask("POST /form HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!((posted.status, posted.must("location")), (307, "/forms?kind=new"));
    assert_eq!(client.get("/a.txt").text(), "alpha\n", "the content has been passed over");
}

fn a_fallback_answers_where_nothing_is(reactor: Reactor) {
    let directory = Directory::with(&[
        ("site/app.html", b"<p>the app</p>\n"),
        ("site/a.txt", b"alpha\n"),
        ("site/empty/x.txt", b"x"),
        ("site/404.html", b"nothing here"),
    ]);
    let text = "[[site]]\nroot = \"site\"\nlisten = \"127.0.0.1:0\"\nfallback = \"/app.html\"\nerror_pages = { 404 = \"/404.html\" }\n\
        headers = { \"X-Site\" = \"yes\" }\n";
    let server = Server::configured(reactor, &directory, text);
    let mut client = server.connect();
    for path in ["/", "/some/route?q=1", "/empty/", "/.git/config", "/a.txt/"] {
        let reply = client.get(path);
        assert_eq!((reply.status, reply.text().as_str()), (200, "<p>the app</p>\n"), "{path}");
        assert_eq!((reply.must("content-type"), reply.must("x-site")), ("text/html; charset=utf-8", "yes"), "{path}");
    }
    assert_eq!(client.get("/a.txt").text(), "alpha\n");
    let tag = client.get("/route").must("etag").to_owned();
    let known = client.ask(format!("GET /other HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {tag}\r\n\r\n"));
    assert_eq!(known.status, 304);
    let head = client.ask("HEAD /route HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!((head.status, head.must("content-length")), (200, "15"));
    let part = client.ask("GET /route HTTP/1.1\r\nHost: localhost\r\nRange: bytes=3-9\r\n\r\n");
    assert_eq!((part.status, part.text().as_str()), (206, "the app"));
    assert_eq!(client.ask("DELETE /route HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 405);
    assert_eq!(client.ask("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 204);
    // Where the fallback isn't there any more, it's 404 with its page, and no circle.
    std::fs::remove_file(directory.at("site/app.html")).unwrap();
    let gone = client.get("/route");
    assert_eq!((gone.status, gone.text().as_str()), (404, "nothing here"));
}

fn an_index_that_a_handler_answers_for_is_never_sent(reactor: Reactor) {
    let program = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s %s %s' \"$REQUEST_METHOD\" \"$PATH_INFO\" \"$REQUEST_URI\"\n";
    let directory = Directory::with(&[
        ("site/index.run", b"the source"),
        ("site/sub/index.run", b"the source"),
        ("site/page/index.html", b"a page"),
        ("site/page/index.run", b"the source"),
        ("site/bare/x.txt", b"x"),
        ("run", program.as_bytes()),
    ]);
    std::fs::set_permissions(directory.at("run"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let site = "[[site]]\nroot = \"site\"\nlisten = \"127.0.0.1:0\"\nindex = [\"index.html\", \"index.run\"]\n";
    let handler = "[[site.handler]]\npath = \"*.run\"\ncgi = { command = \"run\" }\n";
    let server = Server::configured(reactor, &directory, &format!("{site}{handler}"));
    let mut client = server.connect();
    // Once from the disk, once from what is remembered.
    for _ in 0..2 {
        assert_eq!(client.get("/?a=b").text(), "GET  /?a=b");
        assert_eq!(client.get("/sub/").text(), "GET  /sub/");
        assert_eq!(client.get("/page/").text(), "a page");
        assert_eq!(client.get("/bare/").status, 403);
    }
    let post = |path: &str| format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.ask(post("/sub/")).text(), "POST  /sub/");
    assert_eq!(client.ask(post("/page/")).status, 405);
    assert_eq!(client.ask(post("/bare/")).status, 405);
    assert_eq!(client.ask("OPTIONS /page/ HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 204);
    // A reload that gives the paths to nobody: then it's a file like others; and back.
    server.reload(reactor, &directory, site);
    assert_eq!(server.get("/").text(), "the source");
    server.reload(reactor, &directory, &format!("{site}{handler}"));
    assert_eq!(server.get("/").text(), "GET  /");
}

fn a_fallback_may_be_a_program(reactor: Reactor) {
    let directory = Directory::with(&[("site/a.txt", b"alpha\n")]);
    let program = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s %s %s' \"$REQUEST_METHOD\" \"$SCRIPT_NAME\" \"$REQUEST_URI\"\n\
        [ -z \"$CONTENT_LENGTH\" ] || { printf ' '; cat; }\n";
    let path = directory.write("front", program);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let text = "[[site]]\nroot = \"site\"\nlisten = \"127.0.0.1:0\"\nfallback = \"/front\"\n\
        [[site.handler]]\npath = \"/front\"\ncgi = { command = \"front\" }\n";
    let server = Server::configured(reactor, &directory, text);
    let mut client = server.connect();
    assert_eq!(client.get("/a.txt").text(), "alpha\n");
    assert_eq!(client.get("/some/route?q=1").text(), "GET /front /some/route?q=1");
    let posted = client.ask("POST /some/form HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!((posted.status, posted.text().as_str()), (200, "POST /front /some/form hello"));
    assert_eq!(client.ask("OPTIONS /api HTTP/1.1\r\nHost: localhost\r\n\r\n").text(), "OPTIONS /front /api");
}

on_both_reactors!(
    a_redirect_takes_the_rest_and_the_query_along,
    a_redirect_answers_every_method,
    a_fallback_answers_where_nothing_is,
    an_index_that_a_handler_answers_for_is_never_sent,
    a_fallback_may_be_a_program,
);
