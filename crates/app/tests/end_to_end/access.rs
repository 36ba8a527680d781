//! Who may ask for some paths of a site, and how often.

use crate::on_both_reactors;
use crate::support::{Client, Directory, Reactor, Server, Upstream};

fn denied(server: &Server, reason: &str) -> u64 {
    let page = Client::connect(server.admin()).get("/metrics").text();
    let start = format!("leat_denied_total{{site=\"it\",reason=\"{reason}\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok()).unwrap_or_default()
}

fn site(rest: &str) -> String {
    format!(
        "workers = 2\n[admin]\nlisten = \"127.0.0.1:0\"\n{rest}\n[[site]]\nname = \"it\"\nroot = \"site\"\nlisten = \"127.0.0.1:0\"\n\
         error_pages = {{ 403 = \"/403.html\", 429 = \"/429.html\" }}\n"
    )
}

fn folder() -> Directory {
    let directory = Directory::new();
    for name in ["index.html", "closed/index.html", "inside/file", "403.html", "429.html"] {
        directory.write(&format!("site/{name}"), format!("this is {name}"));
    }
    directory
}

fn who_may_not_ask_is_told_nothing_of_what_is_there(reactor: Reactor) {
    let directory = folder();
    let upstream = Upstream::saying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let text = format!(
        "{}[[site.access]]\npath = \"/closed/*\"\nallow = \"127.0.0.0/8\"\ndeny = [\"127.0.0.1\", \"::1\"]\n\
         [[site.access]]\npath = \"/inside/*\"\nallow = \"127.0.0.0/8\"\n[[site.access]]\nallow = \"127.0.0.1\"\n\
         [[site.handler]]\npath = \"/closed/app/*\"\nproxy = {{ to = \"{}\" }}\n",
        site(""),
        upstream.address()
    );
    let server = Server::configured(reactor, &directory, &text);
    let mut client = server.connect();
    let paths =
        ["/closed", "/closed/", "/closed/none", "//closed/./x", "/%63losed/", "/inside/../closed/", "/closed/app/x"];
    for path in paths.into_iter().chain(["/closed/app/%2F"]) {
        let reply = client.get(path);
        assert_eq!((reply.status, reply.text()), (403, "this is 403.html".to_owned()), "{path}");
    }
    // Its content is read, so that the next request is found.
    client.send("POST /closed/app/ HTTP/1.1\r\nHost: it.test\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(client.reply().status, 403);
    assert_eq!(client.ask("HEAD /closed/ HTTP/1.1\r\nHost: it.test\r\n\r\n").status, 403);
    assert_eq!(
        (client.get("/inside/file").status, client.get("/closedness").status, client.get("/").status),
        (200, 404, 200)
    );
    assert_eq!((upstream.accepted(), denied(&server, "address"), denied(&server, "rate")), (0, 10, 0));
}

/// Servers resolve dot segments in ways of their own, or keep them.
fn what_is_passed_on_is_the_path_that_was_judged(reactor: Reactor) {
    let directory = folder();
    let upstream = Upstream::saying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let text = format!(
        "{}[[site.access]]\npath = \"/admin/*\"\ndeny = \"127.0.0.1\"\n[[site.handler]]\npath = \"/*\"\nproxy = {{ to = \"{}\" }}\n",
        site(""),
        upstream.address()
    );
    let server = Server::configured(reactor, &directory, &text);
    let mut client = server.connect();
    for (path, told) in [
        ("/admin//../secret", "/secret"),
        ("/admin/../secret", "/secret"),
        ("/admin/%2e%2E/secret?a=/..", "/secret?a=/.."),
        ("//x/admin/%2Fsecret", "/x/admin/%2Fsecret"),
    ] {
        assert_eq!(client.get(path).status, 200, "{path}");
        let head = upstream.heads().pop().unwrap();
        assert!(head.starts_with(&format!("GET {told} HTTP/1.1\r\n")), "{path}: {head}");
    }
    assert_eq!((client.get("/secret/..//admin/").status, upstream.heads().len()), (403, 4));
}

fn a_client_is_who_its_balancer_says(reactor: Reactor) {
    let directory = folder();
    let text = format!("{}[[site.access]]\ndeny = \"192.0.2.0/24\"\n", site("[proxy_protocol]\nfrom = \"127.0.0.1\""));
    let server = Server::configured(reactor, &directory, &text);
    for (client, status) in [("192.0.2.9", 403), ("198.51.100.9", 200)] {
        let told = format!("PROXY TCP4 {client} 203.0.113.1 4711 80\r\nGET / HTTP/1.1\r\nHost: it.test\r\n\r\n");
        assert_eq!(server.request(told).status, status, "{client}");
    }
}

fn who_asks_too_often_is_told_when_to_ask_again(reactor: Reactor) {
    let directory = folder();
    let text = format!("{}[[site.access]]\npath = \"/inside/*\"\nrequests = 4\nper = \"1h\"\n", site(""));
    let server = Server::configured(reactor, &directory, &text);
    // On all workers together, whatever is there.
    for path in ["/inside/file", "/inside/none", "/inside/file", "/inside"] {
        assert_ne!(server.get(path).status, 429, "{path}");
    }
    let mut client = server.connect();
    let reply = client.get("/inside/file");
    assert_eq!((reply.status, reply.text()), (429, "this is 429.html".to_owned()));
    let after: u32 = reply.must("retry-after").parse().unwrap();
    assert!((800..=900).contains(&after), "{after} of the 900 s in which one more may come");
    assert_eq!((client.get("/").status, client.get("/inside/file").status, denied(&server, "rate")), (200, 429, 2));
    // What was asked for counts on after a reload, as long as the rate is the same.
    assert!(server.reload(reactor, &directory, &format!("{text}allow = \"127.0.0.1\"\n")).contains("in force"));
    assert_eq!(server.get("/inside/file").status, 429);
    let more = text.replace("requests = 4", "requests = 5");
    assert!(server.reload(reactor, &directory, &more).contains("in force"));
    assert_eq!(server.get("/inside/file").status, 200);
}

on_both_reactors!(
    who_may_not_ask_is_told_nothing_of_what_is_there,
    what_is_passed_on_is_the_path_that_was_judged,
    a_client_is_who_its_balancer_says,
    who_asks_too_often_is_told_when_to_ask_again,
);
