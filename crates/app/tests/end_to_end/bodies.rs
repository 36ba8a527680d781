//! Request content: drained, refused past the limit, Expect: 100-continue (RFC 9110 section 10.1.1, RFC 9112 section 6).

use crate::on_both_reactors;
use crate::support::client::replies_in;
use crate::support::{Client, Directory, Reactor, Server};

const GET: &str = "GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn site() -> Directory {
    Directory::with(&[("a.txt", b"alpha\n")])
}

/// Sends POST, which a file refuses, and then GET on the same connection.
fn posts_then_gets(client: &mut Client, head: &str, body: &[u8]) {
    client.send(format!("POST /a.txt HTTP/1.1\r\nHost: localhost\r\n{head}\r\n"));
    client.send(body);
    client.send(GET);
    assert_eq!(client.reply().status, 405, "{head}");
    assert_eq!(client.reply().text(), "alpha\n", "{head}");
}

fn content_is_drained_and_the_next_request_served(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    posts_then_gets(&mut client, "Content-Length: 10\r\n", b"0123456789");
    // What looks like a request is content.
    posts_then_gets(&mut client, &format!("Content-Length: {}\r\n", GET.len()), GET.as_bytes());
    posts_then_gets(&mut client, "Content-Length: 5000\r\n", &[b'x'; 5000]);
}

fn chunks_are_drained_however_they_come(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    let chunked = "Transfer-Encoding: chunked\r\n";
    posts_then_gets(&mut client, chunked, b"0\r\n\r\n");
    posts_then_gets(&mut client, chunked, b"5\r\nhello\r\n0\r\n\r\n");
    posts_then_gets(&mut client, chunked, b"5;name=value;x=\"y z\"\r\nhello\r\n000A\r\n0123456789\r\n0\r\n\r\n");
    posts_then_gets(&mut client, chunked, b"1\r\nx\r\n0\r\nTrailer: value\r\nOther: value\r\n\r\n");
    let body = b"b\r\nhello\r\nGET \r\n3;a\r\n/ H\r\n0\r\nT: v\r\n\r\n";
    client.send(format!("POST /a.txt HTTP/1.1\r\nHost: localhost\r\n{chunked}\r\n"));
    for byte in body {
        client.send([*byte]);
    }
    client.send(GET);
    assert_eq!(client.reply().status, 405);
    assert_eq!(client.reply().text(), "alpha\n");
}

fn a_get_may_have_content(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    client.send(format!("GET /a.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nxyz{GET}"));
    assert_eq!(client.reply().text(), "alpha\n");
    assert_eq!(client.reply().text(), "alpha\n");
}

fn content_past_the_limit_is_413_before_it_is_read(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    client.send("POST /a.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000000000\r\n\r\n");
    let replies = replies_in(&client.until_closed());
    assert_eq!((replies.len(), replies[0].status), (1, 413));
    assert!(replies[0].says_close());
}

/// As browsers do, which read no reply before they have sent all.
fn who_sends_on_past_a_refusal_can_read_it(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let content = vec![b'x'; 24 << 20];
    let length = content.len();
    let chunk = format!("{length:x}\r\n");
    let ways: [(String, &str, &str); 2] = [
        (format!("Content-Length: {length}"), "", ""),
        ("Transfer-Encoding: chunked".into(), chunk.as_str(), "\r\n0\r\n\r\n"),
    ];
    for (field, before, after) in ways {
        let mut client = server.connect();
        client.send(format!("POST /a.txt HTTP/1.1\r\nHost: localhost\r\n{field}\r\n\r\n{before}"));
        client.send(&content);
        client.send(after);
        client.finish_sending();
        let replies = replies_in(&client.until_closed());
        assert!(replies.len() == 1 && matches!(replies[0].status, 405 | 413), "{field}: {replies:?}");
    }
}

fn chunks_past_the_limit_are_cut_off(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    client.send("POST /a.txt HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = [b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat();
    // 4 GiB: more than any default limit; the server must hang up on its own well before.
    let sent = (0..65_536).take_while(|_| client.try_send(&chunk).is_ok()).count();
    assert!(sent < 65_536, "the server took 4 GiB");
}

fn expect_100_continue_gets_an_answer_before_the_content(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    client.send("POST /a.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    // Either 100 and then the final status, or at once the final status (RFC 9110 section 10.1.1).
    let first = client.reply_head().unwrap();
    if first.status == 100 {
        client.send(format!("hello{GET}"));
        assert_eq!(client.reply().status, 405);
        assert_eq!(client.reply().text(), "alpha\n");
    } else {
        // The client then either sends the content after all or gives up: only a closed connection is in step with both.
        assert_eq!(first.status, 405);
        assert!(first.says_close(), "{:?}", first.fields);
    }
}

fn expect_100_continue_on_get_is_answered(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    client.send("GET /a.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n\r\n");
    let first = client.reply_head().unwrap();
    if first.status == 100 {
        client.send(format!("hello{GET}"));
        assert_eq!(client.reply().text(), "alpha\n");
        assert_eq!(client.reply().text(), "alpha\n");
    } else {
        assert_eq!(first.status, 200);
    }
}

fn a_body_that_came_along_needs_no_100(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    client.send(format!(
        "POST /a.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello{GET}"
    ));
    // `reply` skips a 100 that was sent all the same.
    let refused = client.reply();
    assert_eq!(refused.status, 405);
    if !refused.says_close() {
        assert_eq!(client.reply().text(), "alpha\n");
    }
}

fn other_expectations_are_417(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let reply = server.get_with("/a.txt", "Expect: 200-ok\r\n");
    assert_eq!(reply.status, 417);
}

fn http_1_0_has_no_expectations(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    client.send("GET /a.txt HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nhi");
    assert_eq!(client.reply_head().unwrap().status, 200);
}

fn content_that_never_ends_gets_no_second_answer(reactor: Reactor) {
    let site = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    client.send("POST /a.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nshort");
    client.finish_sending();
    let replies = replies_in(&client.until_closed());
    assert!(replies.len() <= 1, "{replies:?}");
}

on_both_reactors!(
    content_is_drained_and_the_next_request_served,
    chunks_are_drained_however_they_come,
    a_get_may_have_content,
    content_past_the_limit_is_413_before_it_is_read,
    who_sends_on_past_a_refusal_can_read_it,
    chunks_past_the_limit_are_cut_off,
    expect_100_continue_gets_an_answer_before_the_content,
    expect_100_continue_on_get_is_answered,
    a_body_that_came_along_needs_no_100,
    other_expectations_are_417,
    http_1_0_has_no_expectations,
    content_that_never_ends_gets_no_second_answer,
);
