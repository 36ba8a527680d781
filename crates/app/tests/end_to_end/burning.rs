//! The handler that burns processor time: what it may be asked for, that it never keeps others waiting, and that it ends with its client.

use crate::on_both_reactors;
use crate::support::{Client, Directory, Reactor, Reply, Server, eventually};

const TEXT: &str = "workers = 1
[[site]]
hosts = [\"still.test\"]
root = \"site\"
listen = \"127.0.0.1:0\"
[[site]]
hosts = [\"busy.test\"]
root = \"site\"
listen = \"127.0.0.1:0\"
[[site.handler]]
path = \"/burn/*\"
burn = { us = 2000, us_max = 50000, bytes = 10, bytes_max = 100000, forever = true }
";

fn start(reactor: Reactor, directory: &Directory) -> Server {
    directory.write("site/index.html", "still here");
    Server::configured(reactor, directory, TEXT)
}

fn ask(server: &Server, host: &str, request: &str) -> Reply {
    server.connect().ask(format!("{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
}

fn it_replies_with_what_it_is_asked_for(reactor: Reactor) {
    let directory = Directory::new();
    let server = start(reactor, &directory);
    let plain = ask(&server, "busy.test", "GET /burn");
    assert_eq!((plain.status, plain.body.len(), plain.must("cache-control")), (200, 10, "no-store"));
    let large = ask(&server, "busy.test", "POST /burn/below?us=0&bytes=100000");
    assert_eq!((large.status, large.body.len()), (200, 100_000));
    let head = ask(&server, "busy.test", "HEAD /burn?bytes=77");
    assert_eq!((head.status, head.must("content-length"), head.body.len()), (200, "77", 0));
    for wrong in ["us=50001", "bytes=100001", "us=x", "what=1", "us"] {
        assert_eq!(ask(&server, "busy.test", &format!("GET /burn?{wrong}")).status, 400, "{wrong}");
    }
    // The file next to it, and the other site, know nothing of a handler.
    assert_eq!(ask(&server, "busy.test", "GET /").text(), "still here");
    assert_eq!(ask(&server, "still.test", "GET /burn").status, 404);
}

fn it_uses_the_time_that_it_says(reactor: Reactor) {
    let directory = Directory::new();
    let server = start(reactor, &directory);
    let before = server.processor_time();
    for _ in 0..10 {
        assert_eq!(ask(&server, "busy.test", "GET /burn?us=20000").status, 200);
    }
    let used = server.processor_time() - before;
    // Read in hundredths of a second.
    assert!(used.as_millis() >= 190, "200 ms were asked for, {used:?} were used");
}

fn one_that_never_ends_leaves_others_their_time(reactor: Reactor) {
    let directory = Directory::new();
    let server = start(reactor, &directory);
    let mut endless = server.connect();
    endless.send("GET /burn?us=forever HTTP/1.1\r\nHost: busy.test\r\n\r\n");
    for _ in 0..50 {
        assert_eq!(ask(&server, "still.test", "GET /").text(), "still here");
        assert_eq!(ask(&server, "busy.test", "GET /burn?us=1000").status, 200);
    }
    drop(endless);
    let (mut last, mut still) = (server.processor_time(), 0);
    eventually("the handler ends with its client", || {
        let now = server.processor_time();
        still = if now == last { still + 1 } else { 0 };
        last = now;
        (still == 20).then_some(())
    });
}

/// Each costs 5 ms, and they come together: the last of them would have waited for half a second.
fn what_has_waited_for_too_long_is_refused_before_its_first_slice(reactor: Reactor) {
    let directory = Directory::new();
    let server = start(reactor, &directory);
    let before = server.processor_time();
    let mut clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("GET /burn?us=5000 HTTP/1.1\r\nHost: busy.test\r\n\r\n");
    }
    let replies: Vec<Reply> = clients.iter_mut().map(Client::reply).collect();
    let used = server.processor_time() - before;
    let (answered, refused): (Vec<&Reply>, Vec<&Reply>) = replies.iter().partition(|reply| reply.status == 200);
    assert!(refused.iter().all(|reply| reply.status == 503 && reply.must("retry-after") == "2"));
    // Ten, as a site is overloaded when all have waited for 50 ms; fewer where others have the processor meanwhile.
    assert!(answered.len() >= 2 && refused.len() >= 10, "{} answered, {} refused", answered.len(), refused.len());
    let worked_ms = answered.len() as u128 * 5;
    assert!(used.as_millis() < worked_ms + 100, "{} answered, and {used:?} used", answered.len());
}

on_both_reactors!(
    what_has_waited_for_too_long_is_refused_before_its_first_slice,
    it_replies_with_what_it_is_asked_for,
    it_uses_the_time_that_it_says,
    one_that_never_ends_leaves_others_their_time,
);
