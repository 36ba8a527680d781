//! Commands at the admin address: what `leat ctl` shows and changes, over HTTP, and who may.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use crate::on_both_reactors;
use crate::ports::configuration;
use crate::support::client::Reply;
use crate::support::server::run;
use crate::support::{Client, Directory, Reactor, Server, eventually};

const TOKEN: &str = "1f0c4a3be2d95778a0c1d2e3f4a5b6c7";

/// The key is written at the beginning of `[admin]`.
fn with_keys(text: &str, keys: &str) -> String {
    text.replace("[admin]\n", &format!("[admin]\nsocket = \"ctl.sock\"\n{keys}"))
}

fn write_token(directory: &Directory, token: &str) {
    let path = directory.write("token", format!("{token}\n"));
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("it's ours");
}

/// A dispatcher with two nodes and a port, where nobody answers.
fn dispatcher(reactor: Reactor, directory: &Directory, keys: &str) -> Server {
    write_token(directory, TOKEN);
    Server::configured(reactor, directory, &with_keys(&configuration(2, 9, ""), keys))
}

fn ask(server: &Server, line: &str, fields: &str) -> Reply {
    let host = if fields.contains("Host:") { "" } else { "Host: localhost\r\n" };
    Client::connect(server.admin()).ask(format!("{line} HTTP/1.1\r\n{host}{fields}\r\n"))
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// The standing of a node, as `GET /ctl/ports` tells it.
fn is_draining(server: &Server, node: &str) -> bool {
    let reply = ask(server, "GET /ctl/ports", "");
    assert_eq!((reply.status, reply.must("content-type")), (200, "text/plain; charset=utf-8"));
    reply.text().lines().any(|line| line.trim_start().starts_with(&format!("{node}  draining")))
}

fn what_is_changed_over_http_is_seen_over_http_and_at_the_socket(reactor: Reactor) {
    let directory = Directory::new();
    let server = dispatcher(reactor, &directory, "token_file = \"token\"\n");
    assert!(!is_draining(&server, "n1") && !is_draining(&server, "n2"));
    let reply = ask(&server, "POST /ctl/drain?node=n1", &bearer(TOKEN));
    assert_eq!((reply.status, reply.text().as_str()), (200, "n1 is given nothing new by any port\n"));
    assert!(is_draining(&server, "n1") && !is_draining(&server, "n2"));
    let socket = directory.at("ctl.sock");
    let arguments = ["ctl", "ports", "--socket", socket.to_str().expect("a path in UTF-8")];
    let (code, text, _) = run(&arguments.map(OsStr::new));
    assert_eq!((code, text), (Some(0), ask(&server, "GET /ctl/ports", "").text()), "they say the same");
    eventually("the change is logged", || {
        let told = "changed over the admin address: {\"command\":\"drain\",\"node\":\"n1\"}";
        server.stderr().iter().any(|line| line.contains(told)).then_some(())
    });
    let json = ask(&server, "POST /ctl/resume?node=n1", &format!("Accept: application/json\r\n{}", bearer(TOKEN)));
    assert_eq!((json.status, json.must("content-type")), (200, "application/json"));
    assert_eq!(json.text(), "{\"text\":\"n1 may be chosen again by every port\\n\"}\n");
    assert!(!is_draining(&server, "n1"));
    assert!(server.stderr().iter().all(|line| !line.contains(TOKEN)), "a token is never shown");
}

fn who_may_not_changes_nothing(reactor: Reactor) {
    let directory = Directory::new();
    let server = dispatcher(reactor, &directory, "token_file = \"token\"\n");
    let drain = "POST /ctl/drain?node=n1";
    let reply = ask(&server, drain, "");
    assert_eq!((reply.status, reply.must("www-authenticate")), (401, "Bearer realm=\"leat\""));
    assert_eq!(ask(&server, drain, &bearer("1f0c4a3be2d95778a0c1d2e3f4a5b6c8")).status, 401);
    assert_eq!(ask(&server, drain, &format!("Origin: http://localhost:9180\r\n{}", bearer(TOKEN))).status, 403);
    assert_eq!(ask(&server, drain, &format!("Host: evil.example\r\n{}", bearer(TOKEN))).status, 403);
    assert_eq!(ask(&server, "GET /ctl/nodes", "Host: evil.example\r\n").status, 403);
    let reply = ask(&server, "GET /ctl/drain?node=n1", &bearer(TOKEN));
    assert_eq!((reply.status, reply.must("allow")), (405, "POST"));
    let reply = ask(&server, "POST /ctl/ports", &format!("Content-Length: 0\r\n{}", bearer(TOKEN)));
    assert_eq!((reply.status, reply.must("allow")), (405, "GET, HEAD"));
    assert_eq!(ask(&server, "GET /ctl/table", "").status, 401, "it tells what clients have asked for");
    assert!(!is_draining(&server, "n1"));
    // Another token, without a restart; and a name.
    write_token(&directory, &TOKEN.to_uppercase());
    let text = with_keys(&configuration(2, 9, ""), "token_file = \"token\"\nhosts = [\"admin.example\"]\n");
    let line = server.reload(reactor, &directory, &text);
    assert!(line.contains("the new configuration is in force"), "{line}");
    assert_eq!(ask(&server, drain, &bearer(TOKEN)).status, 401);
    let fields = format!("Host: admin.example\r\n{}", bearer(&TOKEN.to_uppercase()));
    assert_eq!(ask(&server, drain, &fields).status, 200);
    assert!(is_draining(&server, "n1"));
}

fn without_a_token_file_nobody_changes_anything(reactor: Reactor) {
    let directory = Directory::new();
    let server = dispatcher(reactor, &directory, "");
    for line in ["POST /ctl/drain?node=n1", "GET /ctl/table"] {
        let reply = ask(&server, line, &bearer(TOKEN));
        assert!(reply.status == 403 && reply.text().contains("set `token_file` in [admin]"), "{}", reply.text());
    }
    assert!(!is_draining(&server, "n1"));
}

fn what_is_wrong_is_told_and_holds_nothing_up(reactor: Reactor) {
    let directory = Directory::new();
    let server = dispatcher(reactor, &directory, "token_file = \"token\"\n");
    let reply = ask(&server, "GET /ctl/stop", "");
    assert!(reply.status == 404 && reply.text().starts_with("there is no command `stop`: they are status, "));
    let reply = ask(&server, "POST /ctl/weight?node=n1&weight=0", &bearer(TOKEN));
    let expected =
        "`weight` is missing, or no whole number from 1 to 10000; write POST /ctl/weight?node=...&weight=...\n";
    assert_eq!((reply.status, reply.text().as_str()), (400, expected));
    let reply = ask(&server, "POST /ctl/drain?node=n9", &bearer(TOKEN));
    assert_eq!(reply.status, 400, "{}", reply.text());
    // Content that is too long, and some that never comes.
    let much = format!("Content-Length: 1000000000000\r\n{}", bearer(TOKEN));
    assert_eq!(ask(&server, "POST /ctl/drain?node=n1", &much).status, 413);
    assert_eq!(ask(&server, "POST /ctl/drain?node=n1", &format!("Content-Length: 9\r\n{}", bearer(TOKEN))).status, 400);
    assert!(!is_draining(&server, "n1"));
    // Many requests behind each other are answered in their order; who goes without waiting harms nobody.
    let mut client = Client::connect(server.admin());
    let one = "GET /ctl/status HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    client.send(one.repeat(50));
    for _ in 0..50 {
        let status = client.reply();
        assert!(status.status == 200 && status.text().contains("workers: "), "{} {}", status.status, status.text());
        assert_eq!(client.reply().text(), "well\n");
    }
    for _ in 0..100 {
        let gone = Client::connect(server.admin());
        let _ = gone.stream().write_all(b"GET /ctl/counters HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    eventually("it still answers", || (ask(&server, "GET /ctl/ports", "").status == 200).then_some(()));
}

fn any_server_lists_and_answers_what_it_can(reactor: Reactor) {
    let directory = Directory::with(&[("site/a.txt", b"alpha\n")]);
    let text =
        "workers = 1\n[admin]\nlisten = \"127.0.0.1:0\"\n[[site]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n";
    let server = Server::configured(reactor, &directory, text);
    assert_eq!(ask(&server, "GET /ctl/status", "").text(), "1 site on 1 address; workers: 1\n");
    let json = ask(&server, "GET /ctl/status", "Accept: application/json\r\n").text();
    assert!(json.contains("\"role\":\"server\""), "{json}");
    assert_eq!(ask(&server, "HEAD /ctl/status", "").status, 200);
    assert!(ask(&server, "GET /ctl/counters", "").text().contains("# TYPE leat_"));
    let reply = ask(&server, "GET /ctl/nodes", "");
    assert_eq!(
        (reply.status, reply.text().as_str()),
        (400, "this leat is neither a dispatcher nor a connection server\n")
    );
    // Every command that `leat ctl` lists is listed here, with its words.
    let (list, help) = (ask(&server, "GET /ctl/", "").text(), run(&["ctl", "--help"].map(OsStr::new)).1);
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands: Vec<&str> =
        commands.filter_map(|line| line.split_whitespace().next()).filter(|it| *it != "help").collect();
    assert!(commands.len() > 10, "{help}");
    assert!(commands.iter().all(|name| list.contains(&format!(" /ctl/{name}"))), "{commands:?} {list}");
    assert_eq!(server.get("/ctl/status").status, 404, "sites have none of it");
}

on_both_reactors!(
    what_is_changed_over_http_is_seen_over_http_and_at_the_socket,
    who_may_not_changes_nothing,
    without_a_token_file_nobody_changes_anything,
    what_is_wrong_is_told_and_holds_nothing_up,
    any_server_lists_and_answers_what_it_can,
);
