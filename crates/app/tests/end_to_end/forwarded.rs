//! Balancers in front that speak HTTP and tell who asks, and how: whom leat believes, and where it counts.

use std::os::unix::fs::PermissionsExt;

use crate::on_both_reactors;
use crate::support::{Directory, Reactor, Server, Upstream, eventually};

const TOLD: &str =
    "X-Forwarded-For: 6.6.6.6, 192.0.2.9, 127.0.0.2\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: shop.example\r\n";

fn serve(reactor: Reactor, directory: &Directory, from: &str, upstream: &Upstream) -> Server {
    directory.write("site/index.html", "a file");
    let program = "#!/bin/sh\nprintf 'X: y\\n\\n'; echo \"$REMOTE_ADDR|$REMOTE_PORT|$HTTPS|$REQUEST_SCHEME\"\n";
    let program = directory.write("tell", program);
    std::fs::set_permissions(program, PermissionsExt::from_mode(0o755)).unwrap();
    let text = format!(
        "workers = 1\n[forwarded]\nfrom = [{from}]\n[[site]]\nroot = \"site\"\nlisten = \"127.0.0.1:0\"\naccess_log = {{ path = \"log\" }}\n\
         [[site.access]]\npath = \"/closed/*\"\ndeny = \"192.0.2.9\"\n\
         [[site.handler]]\npath = \"/tell\"\ncgi = {{ command = \"tell\" }}\n\
         [[site.handler]]\npath = \"/api/*\"\nproxy = {{ to = \"{}\" }}\n",
        upstream.address()
    );
    Server::configured(reactor, directory, &text)
}

fn logged(directory: &Directory, count: usize) -> Vec<String> {
    eventually("the log's lines", || {
        let text = std::fs::read_to_string(directory.at("log")).ok()?;
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    })
}

fn who_asks_is_whom_the_balancer_names(reactor: Reactor) {
    let (directory, upstream) = (Directory::new(), Upstream::saying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
    let server = serve(reactor, &directory, "\"127.0.0.0/8\"", &upstream);
    assert_eq!(server.get_with("/tell", TOLD).text(), "192.0.2.9||on|https\n");
    assert_eq!(server.get_with("/closed/x", TOLD).status, 403);
    assert_eq!(server.get_with("/api/", TOLD).status, 200);
    let told = upstream.heads().pop().unwrap();
    assert!(
        told.contains(
            "X-Forwarded-For: 6.6.6.6, 192.0.2.9, 127.0.0.2, 127.0.0.1\r\nX-Forwarded-Host: shop.example\r\n"
        ),
        "{told}"
    );
    assert!(told.contains("Forwarded: for=192.0.2.9;") && told.contains("X-Forwarded-Proto: https\r\n"), "{told}");
    // The next request of the connection may be another client's; one that names nobody is the balancer's own.
    let mut balancer = server.connect();
    for (fields, client) in [("X-Forwarded-For: 192.0.2.1\r\n", "192.0.2.1"), ("", "127.0.0.1")] {
        let reply = balancer.ask(format!("GET /tell HTTP/1.1\r\nHost: x\r\n{fields}\r\n"));
        assert!(reply.text().starts_with(&format!("{client}|")), "{}", reply.text());
    }
    let logged = logged(&directory, 5);
    let clients: Vec<_> = logged.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(clients, ["192.0.2.9", "192.0.2.9", "192.0.2.9", "192.0.2.1", "127.0.0.1"]);
}

fn anybody_else_is_not_believed(reactor: Reactor) {
    let (directory, upstream) = (Directory::new(), Upstream::saying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
    let server = serve(reactor, &directory, "\"10.0.0.0/8\"", &upstream);
    let told = server.get_with("/tell", TOLD).text();
    assert!(told.starts_with("127.0.0.1|") && told.ends_with("||http\n"), "{told}");
    assert_eq!((server.get_with("/closed/x", TOLD).status, server.get_with("/api/", TOLD).status), (404, 200));
    let told = upstream.heads().pop().unwrap();
    assert!(
        told.contains("X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: localhost\r\nX-Forwarded-Proto: http\r\n"),
        "{told}"
    );
    assert!(logged(&directory, 3).iter().all(|line| line.starts_with("127.0.0.1 ")));
}

on_both_reactors!(who_asks_is_whom_the_balancer_names, anybody_else_is_not_believed);
