//! From a path to a file: types, indexes, redirects, listings, hidden names, and no way out of the root.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use crate::on_both_reactors;
use crate::support::{Directory, Reactor, Server, curl};

fn configured(reactor: Reactor, site: &Directory, configuration: &Directory, more: &str) -> Server {
    let text = format!("[[site]]\nlisten = [\"127.0.0.1:0\"]\nroot = {:?}\n{more}", site.path());
    Server::configured(reactor, configuration, &text)
}

fn types_by_extension_with_a_charset_for_text(reactor: Reactor) {
    let site = Directory::new();
    let types = [
        ("a.html", "text/html; charset=utf-8"),
        ("a.htm", "text/html; charset=utf-8"),
        ("A.HTML", "text/html; charset=utf-8"),
        ("a.css", "text/css; charset=utf-8"),
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.mjs", "text/javascript; charset=utf-8"),
        ("a.txt", "text/plain; charset=utf-8"),
        ("a.md", "text/markdown; charset=utf-8"),
        ("a.json", "application/json"),
        ("a.svg", "image/svg+xml"),
        ("a.png", "image/png"),
        ("a.jpg", "image/jpeg"),
        ("a.jpeg", "image/jpeg"),
        ("a.webp", "image/webp"),
        ("a.avif", "image/avif"),
        ("a.gif", "image/gif"),
        ("a.woff2", "font/woff2"),
        ("a.wasm", "application/wasm"),
        ("a.pdf", "application/pdf"),
        ("a.mp4", "video/mp4"),
        ("a.zip", "application/zip"),
        ("a", "application/octet-stream"),
        ("a.unknownextension", "application/octet-stream"),
        ("a.b.html", "text/html; charset=utf-8"),
    ];
    for (name, _) in types {
        site.write(name, "x");
    }
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    let mut wrong = Vec::new();
    for (name, wanted) in types {
        let reply = client.get(&format!("/{name}"));
        let found = reply.field("content-type").unwrap_or("none").to_lowercase();
        // JSON and SVG may say their charset too.
        if found != wanted && found != format!("{wanted}; charset=utf-8") {
            wrong.push(format!("{name}: {found}, not {wanted}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn an_index_stands_for_its_directory(reactor: Reactor) {
    let site =
        Directory::with(&[("index.html", b"root"), ("sub/index.html", b"sub"), ("sub/deep/index.html", b"deep")]);
    let server = Server::of(reactor, site.path());
    for (path, content) in
        [("/", "root"), ("/sub/", "sub"), ("/sub/deep/", "deep"), ("/sub/?q=1", "sub"), ("/sub/index.html", "sub")]
    {
        let reply = server.get(path);
        assert_eq!((reply.status, reply.text().as_str()), (200, content), "{path}");
        assert!(reply.must("content-type").starts_with("text/html"), "{path}");
    }
}

fn a_directory_without_its_slash_is_redirected(reactor: Reactor) {
    let site = Directory::with(&[
        ("sub/index.html", b"sub"),
        ("two words/index.html", b"x"),
        ("sub/deep/index.html", b"deep"),
        ("a&b<c>/index.html", b"x"),
    ]);
    let server = Server::of(reactor, site.path());
    for (path, wanted) in [
        ("/sub", "/sub/"),
        ("/sub?a=1&b=%20", "/sub/?a=1&b=%20"),
        ("/sub/deep", "/sub/deep/"),
        ("/two%20words", "/two%20words/"),
        ("/sub?", "/sub/"),
        ("/sub?é", "/sub/?%C3%A9"),
    ] {
        let reply = server.get(path);
        assert!(matches!(reply.status, 301 | 308), "{path}: {}", reply.status);
        let location = reply.must("location");
        let location = location.strip_prefix("http://localhost").unwrap_or(location);
        assert!(location == wanted || location == format!("{wanted}?"), "{path}: {location}");
    }
    assert_eq!(curl(&["--location", &server.url("/sub?x=1")]), b"sub");
}

fn a_redirect_never_leads_to_another_host(reactor: Reactor) {
    let site = Directory::with(&[("evil.example/index.html", b"x"), ("index.html", b"root")]);
    let server = Server::of(reactor, site.path());
    for path in [
        "//evil.example",
        "///evil.example",
        "/./evil.example",
        "/\\evil.example",
        "//evil.example/..",
        "/%2fevil.example",
        "/%5cevil.example",
    ] {
        let reply = server.get(path);
        if let Some(location) = reply.field("location") {
            assert!(
                !location.starts_with("//") && !location.contains('\\') && !location.starts_with("http://evil"),
                "{path}: {location}"
            );
        }
    }
}

fn a_file_is_no_directory(reactor: Reactor) {
    let site = Directory::with(&[("a.txt", b"alpha\n")]);
    let server = Server::of(reactor, site.path());
    for path in ["/a.txt/", "/a.txt/b", "/a.txt/.", "/a.txt/.."] {
        let status = server.get(path).status;
        assert!(matches!(status, 404 | 400) || (path.ends_with("..") && status == 200), "{path}: {status}");
    }
}

fn names_are_percent_decoded_once(reactor: Reactor) {
    let site = Directory::with(&[
        ("two words.txt", b"words"),
        ("100%.txt", b"percent"),
        ("a+b.txt", b"plus"),
        ("dé.txt", b"accent"),
        ("%41.txt", b"literal"),
        ("a;b,c=d@e.txt", b"marks"),
        ("q?.txt", b"question"),
        ("h#.txt", b"hash"),
    ]);
    let server = Server::of(reactor, site.path());
    for (path, content) in [
        ("/two%20words.txt", "words"),
        ("/100%25.txt", "percent"),
        ("/a+b.txt", "plus"),
        ("/a%2Bb.txt", "plus"),
        ("/d%C3%A9.txt", "accent"),
        ("/d%c3%a9.txt", "accent"),
        ("/%2541.txt", "literal"),
        ("/a;b,c=d@e.txt", "marks"),
        ("/q%3F.txt", "question"),
        ("/h%23.txt", "hash"),
        ("/%74wo%20words.txt", "words"),
    ] {
        let reply = server.get(path);
        assert_eq!((reply.status, reply.text().as_str()), (200, content), "{path}");
    }
    // A byte above 0x7F may come as it is.
    assert_eq!(server.get("/dé.txt?é").text(), "accent");
    for path in ["/%", "/%4", "/%zz", "/100%.txt", "/%00", "/two%20words.txt%00", "/two%20words.txt%00.html"] {
        let status = server.get(path).status;
        assert!(matches!(status, 400 | 404), "{path}: {status}");
    }
}

fn names_that_are_not_utf_8_are_served(reactor: Reactor) {
    let site = Directory::new();
    fs::write(site.path().join(std::ffi::OsStr::from_bytes(b"latin-\xe9.txt")), "latin").unwrap();
    let server = Server::of(reactor, site.path());
    for name in [&b"latin-%E9.txt"[..], b"latin-\xe9.txt"] {
        let reply = server.request([b"GET /", name, b" HTTP/1.1\r\nHost: localhost\r\n\r\n"].concat());
        assert_eq!((reply.status, reply.text().as_str()), (200, "latin"));
    }
}

fn there_is_no_way_out_of_the_root(reactor: Reactor) {
    let around = Directory::with(&[
        ("secret.txt", b"the secret"),
        ("site/a.txt", b"alpha\n"),
        ("site/sub/b.txt", b"beta\n"),
        ("site-2/secret.txt", b"the secret"),
    ]);
    let server = Server::of(reactor, around.at("site"));
    let paths = [
        "/../secret.txt",
        "/sub/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/%2E%2E/secret.txt",
        "/.%2e/secret.txt",
        "/%2e./secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e%2fsecret.txt",
        "/%252e%252e/secret.txt",
        "/%252e%252e%252fsecret.txt",
        "/..%252fsecret.txt",
        "/..\\secret.txt",
        "/..%5csecret.txt",
        "/%2e%2e%5csecret.txt",
        "/..%00/secret.txt",
        "/../secret.txt%00",
        "/..;/secret.txt",
        "/..%c0%afsecret.txt",
        "/%c0%ae%c0%ae/secret.txt",
        "/%e0%80%ae%e0%80%ae/secret.txt",
        "/..%ef%bc%8fsecret.txt",
        "/....//secret.txt",
        "/.../secret.txt",
        "//../secret.txt",
        "/./../secret.txt",
        "/sub/./../../secret.txt",
        "/sub/..//../secret.txt",
        "/sub%2f..%2f..%2fsecret.txt",
        "/../site-2/secret.txt",
        "/..%2fsite-2%2fsecret.txt",
        "/-2/secret.txt",
        "/../../../../../../../../../../etc/passwd",
        "/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/%2fetc/passwd",
        "/file:///etc/passwd",
        "/a.txt/../../secret.txt",
        "/proc/self/root/etc/passwd",
        "/..?/secret.txt",
        "/?/../secret.txt",
        "/..#/secret.txt",
    ];
    for path in paths {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        let sent = String::from_utf8_lossy(&client.until_closed()).into_owned();
        assert!(!sent.contains("the secret") && !sent.contains("root:"), "{path}: {sent}");
        let is_refused = ["400", "403", "404"].iter().any(|status| sent.starts_with(&format!("HTTP/1.1 {status} ")));
        assert!(is_refused || path.contains('?'), "{path}: {sent}");
    }
    let absolute = server.request("GET http://localhost/../secret.txt HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(matches!(absolute.status, 400 | 403 | 404), "{}", absolute.status);
    // Within the root, dots are only a longer way.
    for path in ["/sub/../a.txt", "/./a.txt", "/sub/.././sub/../a.txt", "/sub/%2e%2e/a.txt"] {
        let reply = server.get(path);
        assert!(
            matches!((reply.status, reply.text().as_str()), (200, "alpha\n") | (301 | 308 | 400 | 404, _)),
            "{path}: {}",
            reply.status
        );
    }
}

fn hidden_names_are_hidden(reactor: Reactor) {
    let site = Directory::with(&[
        (".env", b"the secret"),
        (".git/config", b"the secret"),
        ("sub/.htpasswd", b"the secret"),
        (".well-known/security.txt", b"contact"),
        ("index.html", b"x"),
    ]);
    let server = Server::of(reactor, site.path());
    for path in
        ["/.env", "/%2eenv", "/.git/config", "/.git/", "/.git", "/sub/.htpasswd", "/.git/../.env", "/%2egit/config"]
    {
        let reply = server.get(path);
        assert!(matches!(reply.status, 403 | 404), "{path}: {}", reply.status);
        assert!(!reply.text().contains("the secret"), "{path}");
    }
    assert_eq!(server.get("/.well-known/security.txt").text(), "contact");
}

fn hidden_names_can_be_shown(reactor: Reactor) {
    let (site, configuration) = (Directory::with(&[(".env", b"shown")]), Directory::new());
    let server = configured(reactor, &site, &configuration, "hidden = true\n");
    assert_eq!(server.get("/.env").text(), "shown");
}

fn links_are_followed_beneath_the_root_only(reactor: Reactor) {
    let around = Directory::with(&[
        ("secret.txt", b"the secret"),
        ("site/a.txt", b"alpha\n"),
        ("site/sub/b.txt", b"beta\n"),
        ("outside/c.txt", b"the secret"),
    ]);
    let link = |target: &str, name: &str| symlink(target, around.at(name)).unwrap();
    link("a.txt", "site/within.txt");
    link("sub", "site/way");
    link("../a.txt", "site/sub/up.txt");
    link("../secret.txt", "site/out.txt");
    link("../outside", "site/outside");
    link("/etc/passwd", "site/absolute.txt");
    link("nowhere", "site/dangling.txt");
    link("circle.txt", "site/circle.txt");
    let beneath = Server::of(reactor, around.at("site"));
    for (path, content) in [("/within.txt", "alpha\n"), ("/way/b.txt", "beta\n"), ("/sub/up.txt", "alpha\n")] {
        assert_eq!(beneath.get(path).text(), content, "{path}");
    }
    for path in ["/out.txt", "/outside/c.txt", "/outside/", "/absolute.txt", "/dangling.txt", "/circle.txt"] {
        let reply = beneath.get(path);
        assert!(matches!(reply.status, 403 | 404), "{path}: {}", reply.status);
    }
    let configuration = Directory::new();
    let site = around.at("site");
    let policy =
        |policy: &str| format!("[[site]]\nlisten = [\"127.0.0.1:0\"]\nroot = {site:?}\nsymlinks = \"{policy}\"\n");
    let follow = Server::configured(reactor, &configuration, &policy("follow"));
    for (path, content) in [("/within.txt", "alpha\n"), ("/out.txt", "the secret"), ("/outside/c.txt", "the secret")] {
        assert_eq!(follow.get(path).text(), content, "{path}");
    }
    let deny = Server::configured(reactor, &configuration, &policy("deny"));
    for path in ["/within.txt", "/way/b.txt", "/sub/up.txt", "/out.txt", "/outside/c.txt"] {
        let reply = deny.get(path);
        assert!(matches!(reply.status, 403 | 404), "{path}: {}", reply.status);
    }
    assert_eq!(deny.get("/a.txt").text(), "alpha\n");
}

fn what_is_no_file_is_not_opened(reactor: Reactor) {
    // Opening a named pipe would wait for a writer; opening some devices does things.
    let site = Directory::with(&[("a.txt", b"alpha\n")]);
    site.fifo("pipe");
    let _socket = std::os::unix::net::UnixListener::bind(site.at("socket")).unwrap();
    let server = Server::of(reactor, site.path());
    for path in ["/pipe", "/socket"] {
        let reply = server.get(path);
        assert!(matches!(reply.status, 403 | 404), "{path}: {}", reply.status);
    }
    assert_eq!(server.get("/a.txt").text(), "alpha\n");
}

fn a_file_that_may_not_be_read_is_refused(reactor: Reactor) {
    use std::os::unix::fs::PermissionsExt;
    let site = Directory::with(&[("closed.txt", b"closed")]);
    fs::set_permissions(site.at("closed.txt"), fs::Permissions::from_mode(0o000)).unwrap();
    let status = Server::of(reactor, site.path()).get("/closed.txt").status;
    // Root may read everything.
    let may_read = fs::read(site.at("closed.txt")).is_ok();
    assert!(matches!(status, 403 | 404) || (may_read && status == 200), "{status}");
}

fn a_listing_escapes_what_it_names(reactor: Reactor) {
    let site = Directory::with(&[
        ("plain.txt", b"1"),
        ("two words.txt", b"2"),
        ("<script>alert(1)</script>.txt", b"3"),
        ("\"quoted\".txt", b"4"),
        ("it's.txt", b"5"),
        ("a&amp;b.txt", b"6"),
        ("100%.txt", b"7"),
        ("javascript:alert(1)", b"8"),
        ("sub/x.txt", b"9"),
        ("dé.txt", b"10"),
        ("q?x#y.txt", b"11"),
        (".hidden", b"12"),
        ("line\nbreak.txt", b"13"),
    ]);
    let server = Server::of(reactor, site.path());
    let reply = server.get("/");
    assert_eq!(reply.status, 200);
    assert_eq!(reply.must("content-type").to_lowercase(), "text/html; charset=utf-8");
    let page = reply.text();
    assert!(!page.contains("<script>alert") && !page.contains("\"\"quoted") && !page.contains(".hidden"), "{page}");
    assert!(!page.contains("href=\"javascript:") && !page.contains("href='javascript:"), "{page}");
    // Every link leads to what it names.
    let mut found = 0;
    for link in page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        if link.starts_with("..") || link.starts_with('?') || link.starts_with("http") || link == "/" {
            continue;
        }
        let link = link.replace("&amp;", "&").replace("&#39;", "'");
        let path = format!("/{}", link.trim_start_matches("./").trim_start_matches('/'));
        let reply = server.get(&path);
        assert_eq!(reply.status, 200, "{path}");
        found += 1;
    }
    assert_eq!(found, 12, "{page}");
}

fn a_listing_can_be_off(reactor: Reactor) {
    let (site, configuration) = (Directory::with(&[("sub/a.txt", b"alpha\n")]), Directory::new());
    let server = configured(reactor, &site, &configuration, "");
    for path in ["/", "/sub/"] {
        let reply = server.get(path);
        assert!(matches!(reply.status, 403 | 404), "{path}: {}", reply.status);
        assert!(!reply.text().contains("a.txt"), "{path}");
    }
    let server = configured(reactor, &site, &configuration, "listing = true\n");
    assert!(server.get("/sub/").text().contains("a.txt"));
}

fn a_listing_notices_changes(reactor: Reactor) {
    let site = Directory::with(&[("first.txt", b"1")]);
    let server = Server::of(reactor, site.path());
    assert!(server.get("/").text().contains("first.txt"));
    site.write("second.txt", "2");
    crate::support::eventually("the new file is listed", || {
        server.get("/").text().contains("second.txt").then_some(())
    });
}

fn long_and_deep_paths_are_answered(reactor: Reactor) {
    let site = Directory::with(&[("a.txt", b"alpha\n")]);
    let server = Server::of(reactor, site.path());
    for path in [
        format!("/{}", "x".repeat(300)),
        format!("/{}", "x/".repeat(2000)),
        "/".repeat(4000),
        format!("/{}a.txt", "./".repeat(1000)),
        format!("/{}", "%41".repeat(1000)),
    ] {
        let status = server.get(&path).status;
        assert!(matches!(status, 200 | 301 | 308 | 400 | 404 | 414), "{status}");
    }
    assert_eq!(server.get("/a.txt").status, 200);
}

on_both_reactors!(
    types_by_extension_with_a_charset_for_text,
    an_index_stands_for_its_directory,
    a_directory_without_its_slash_is_redirected,
    a_redirect_never_leads_to_another_host,
    a_file_is_no_directory,
    names_are_percent_decoded_once,
    names_that_are_not_utf_8_are_served,
    there_is_no_way_out_of_the_root,
    hidden_names_are_hidden,
    hidden_names_can_be_shown,
    links_are_followed_beneath_the_root_only,
    what_is_no_file_is_not_opened,
    a_file_that_may_not_be_read_is_refused,
    a_listing_escapes_what_it_names,
    a_listing_can_be_off,
    a_listing_notices_changes,
    long_and_deep_paths_are_answered,
);
