//! Ranges: one, many, from the end, out of reach, too many (RFC 9110 section 14).

use crate::on_both_reactors;
use crate::support::client::find;
use crate::support::directory::noise;
use crate::support::{Directory, Reactor, Reply, Server, curl};

const SIZE: usize = 100_000;

fn site() -> (Directory, Vec<u8>) {
    let content = noise(SIZE, 7);
    (Directory::with(&[("data.bin", &content), ("empty.bin", b""), ("small.txt", b"0123456789")]), content)
}

fn range(server: &Server, value: &str) -> Reply {
    server.get_with("/data.bin", &format!("Range: {value}\r\n"))
}

/// The parts of a multipart/byteranges reply: (Content-Range, content).
fn parts(reply: &Reply) -> Vec<(String, Vec<u8>)> {
    let (kind, boundary) = reply.must("content-type").split_once("; boundary=").expect("a boundary");
    assert_eq!(kind, "multipart/byteranges");
    let delimiter = format!("--{}", boundary.trim_matches('"'));
    let mut parts = Vec::new();
    let start = find(&reply.body, delimiter.as_bytes()).expect("a first delimiter");
    let mut rest = &reply.body[start + delimiter.len()..];
    while !rest.starts_with(b"--") {
        assert!(rest.starts_with(b"\r\n"));
        let head_end = find(rest, b"\r\n\r\n").expect("a part's head");
        let head = String::from_utf8_lossy(&rest[2..head_end]).into_owned();
        let content_range =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-range: ").map(str::to_owned));
        rest = &rest[head_end + 4..];
        let content_range = content_range.expect("a Content-Range in each part");
        let span = content_range.strip_prefix("bytes ").and_then(|value| value.split_once('/')).expect("a span").0;
        let (first, last) = span.split_once('-').unwrap();
        let length = last.parse::<usize>().unwrap() - first.parse::<usize>().unwrap() + 1;
        parts.push((content_range, rest[..length].to_vec()));
        rest = rest[length..].strip_prefix(format!("\r\n{delimiter}").as_bytes()).expect("a delimiter after the part");
    }
    parts
}

fn ranges_are_offered(reactor: Reactor) {
    let (site, _) = site();
    assert_eq!(Server::of(reactor, site.path()).get("/data.bin").must("accept-ranges"), "bytes");
}

fn one_range(reactor: Reactor) {
    let (site, content) = site();
    let server = Server::of(reactor, site.path());
    let whole = server.get("/data.bin");
    let last = SIZE - 1;
    for (value, from, to) in [
        ("bytes=0-0".to_owned(), 0, 0),
        ("bytes=0-99".to_owned(), 0, 99),
        ("bytes=500-999".to_owned(), 500, 999),
        (format!("bytes={last}-"), last, last),
        ("bytes=99000-".to_owned(), 99_000, last),
        ("bytes=99000-5000000".to_owned(), 99_000, last),
        ("bytes=-1".to_owned(), last, last),
        ("bytes=-500".to_owned(), SIZE - 500, last),
        ("bytes=-5000000".to_owned(), 0, last),
        ("bytes=0-".to_owned(), 0, last),
        ("bytes= 5-6".to_owned(), 5, 6),
        ("bytes=0-18446744073709551615".to_owned(), 0, last),
    ] {
        let reply = range(&server, &value);
        assert_eq!(reply.status, 206, "{value}");
        assert_eq!(reply.must("content-range"), format!("bytes {from}-{to}/{SIZE}"), "{value}");
        assert_eq!(reply.must("content-length"), (to - from + 1).to_string(), "{value}");
        assert!(reply.body == content[from..=to], "{value}: wrong bytes");
        for name in ["etag", "last-modified", "content-type"] {
            assert_eq!(reply.field(name), whole.field(name), "{value}: {name}");
        }
    }
}

fn unsatisfiable_ranges_are_416(reactor: Reactor) {
    let (site, _) = site();
    let server = Server::of(reactor, site.path());
    for value in [
        "bytes=100000-",
        "bytes=100000-100001",
        "bytes=-0",
        "bytes=18446744073709551615-",
        "bytes=200000-,300000-300001",
    ] {
        let reply = range(&server, value);
        assert_eq!(reply.status, 416, "{value}");
        assert_eq!(reply.must("content-range"), format!("bytes */{SIZE}"), "{value}");
    }
    let empty = server.get_with("/empty.bin", "Range: bytes=0-\r\n");
    assert!(matches!(empty.status, 200 | 416), "{}", empty.status);
}

fn ranges_that_are_not_understood_are_ignored(reactor: Reactor) {
    let (site, _) = site();
    let server = Server::of(reactor, site.path());
    for value in [
        "bytes=5-1",
        "bytes=abc",
        "bytes=",
        "bytes",
        "bytes=-",
        "bytes=1",
        "lines=0-1",
        "bytes=0-1;2-3",
        "bytes=0x1-2",
        "bytes=+1-2",
        "bytes=1--2",
        "bytes 0-1",
    ] {
        let reply = range(&server, value);
        assert!(matches!(reply.status, 200 | 416), "{value}: {}", reply.status);
        assert!(reply.status == 416 || reply.body.len() == SIZE, "{value}");
    }
    // Of two Range fields none can be trusted.
    let twice = server.get_with("/data.bin", "Range: bytes=0-1\r\nRange: bytes=5-6\r\n");
    assert!(matches!(twice.status, 200 | 206 | 400 | 416), "{}", twice.status);
}

fn several_ranges_come_as_parts(reactor: Reactor) {
    let (site, content) = site();
    let server = Server::of(reactor, site.path());
    let reply = range(&server, "bytes=0-9,5000-5099, -10");
    assert_eq!(reply.status, 206);
    assert!(reply.field("content-range").is_none());
    let parts = parts(&reply);
    let spans: Vec<_> = parts.iter().map(|(span, _)| span.as_str()).collect();
    assert_eq!(spans, ["bytes 0-9/100000", "bytes 5000-5099/100000", "bytes 99990-99999/100000"]);
    assert!(parts[0].1 == content[..10] && parts[1].1 == content[5000..5100] && parts[2].1 == content[SIZE - 10..]);
    assert_eq!(reply.must("content-length"), reply.body.len().to_string());
}

fn of_several_the_satisfiable_ones_are_sent(reactor: Reactor) {
    let (site, content) = site();
    let server = Server::of(reactor, site.path());
    let reply = range(&server, "bytes=900000-,10-19");
    assert_eq!(reply.status, 206);
    let body = if reply.field("content-range").is_some() { reply.body.clone() } else { parts(&reply).remove(0).1 };
    assert!(body == content[10..20]);
}

fn several_ranges_leave_the_connection_in_step(reactor: Reactor) {
    let (site, _) = site();
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    for method in ["GET", "HEAD", "GET"] {
        let reply =
            client.ask(format!("{method} /data.bin HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-9,20-29\r\n\r\n"));
        // RFC 9110 section 14.2: Range is defined for GET alone.
        assert_eq!(reply.status, if method == "HEAD" { 200 } else { 206 }, "{method}");
    }
    assert_eq!(client.get("/small.txt").text(), "0123456789");
}

fn abuse_costs_no_more_than_the_file(reactor: Reactor) {
    let (site, content) = site();
    let server = Server::of(reactor, site.path());
    let many: Vec<String> = (0..300).map(|n| format!("{n}-")).collect();
    let overlapping = ["0-"; 500].join(",");
    let tiny: Vec<String> = (0..900).map(|n| format!("{}-{}", n * 100, n * 100)).collect();
    for value in [many.join(","), overlapping, tiny.join(",")] {
        let reply = range(&server, &format!("bytes={value}"));
        assert!(matches!(reply.status, 200 | 206 | 416), "{}", reply.status);
        assert!(reply.body.len() <= content.len() + 1000, "{} bytes for a file of {SIZE}", reply.body.len());
    }
}

fn a_large_file_in_ranges_adds_up(reactor: Reactor) {
    let (site, _) = site();
    let content = noise(6_000_001, 9);
    site.write("large.bin", &content);
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    let mut collected = Vec::new();
    while collected.len() < content.len() {
        let from = collected.len();
        let reply = client.ask(format!(
            "GET /large.bin HTTP/1.1\r\nHost: localhost\r\nRange: bytes={from}-{}\r\n\r\n",
            from + 777_776
        ));
        assert_eq!(reply.status, 206);
        collected.extend(reply.body);
    }
    assert!(collected == content);
    // Several ranges may be ignored until the file has a tag, which is computed behind the scenes.
    crate::support::eventually("the file has a tag", || server.get("/large.bin").field("etag").map(str::to_owned));
    let parts = parts(&server.get_with("/large.bin", "Range: bytes=0-4,5999990-\r\n"));
    assert!(parts[0].1 == content[..5] && parts[1].1 == content[5_999_990..]);
}

/// Some are copied behind their heads, some sent from the file, and of many the client's socket takes only a part.
fn short_ranges_of_a_large_file_arrive_whole(reactor: Reactor) {
    const LARGE: usize = 3_000_000;
    let (site, _) = site();
    let content = noise(LARGE, 10);
    site.write("large.bin", &content);
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    let lengths = [1, 4096, 4097, 20_000, 32_768, 32_769, 70_000];
    let ranges: Vec<(usize, usize)> =
        lengths.iter().cycle().take(300).enumerate().map(|(n, &len)| (n * 9_000, n * 9_000 + len)).collect();
    let ask = |&(from, end): &(usize, usize)| {
        format!("GET /large.bin HTTP/1.1\r\nHost: localhost\r\nRange: bytes={from}-{}\r\n\r\n", end - 1)
    };
    client.send(ranges.iter().map(ask).collect::<String>());
    for (from, end) in ranges {
        let reply = client.reply();
        assert_eq!(reply.status, 206);
        assert!(reply.body == content[from..end], "bytes {from} to {end}");
    }
}

/// The same of parts of one reply: those that are short altogether go out in one send.
fn short_parts_of_a_large_file_arrive_whole(reactor: Reactor) {
    const LARGE: usize = 3_000_000;
    let (site, _) = site();
    let content = noise(LARGE, 11);
    site.write("large.bin", &content);
    let server = Server::of(reactor, site.path());
    let mut client = server.connect();
    let ask = |&(count, len): &(usize, usize)| {
        let range = |n: usize| format!("{}-{}", n * 100_000, n * 100_000 + len - 1);
        let ranges = (0..count).map(range).collect::<Vec<_>>().join(",");
        format!("GET /large.bin HTTP/1.1\r\nHost: localhost\r\nRange: bytes={ranges}\r\n\r\n")
    };
    let asked = [(2, 1), (3, 1_000), (16, 2_048), (16, 2_049), (2, 16_384), (4, 40_000)];
    let asked: Vec<_> = asked.iter().cycle().take(120).collect();
    client.send(asked.iter().copied().map(ask).collect::<String>());
    for &(count, len) in asked {
        let parts = parts(&client.reply());
        assert_eq!(parts.len(), count);
        for (n, (span, part)) in parts.iter().enumerate() {
            let from = n * 100_000;
            assert_eq!(*span, format!("bytes {from}-{}/{LARGE}", from + len - 1));
            assert!(part[..] == content[from..from + len], "part {n} of {count}, {len} bytes each");
        }
    }
}

fn curl_resumes_a_download(reactor: Reactor) {
    let (site, content) = site();
    let server = Server::of(reactor, site.path());
    let downloads = Directory::with(&[("data.bin", &content[..12_345])]);
    let file = downloads.at("data.bin");
    curl(&["--continue-at", "-", "--output", file.to_str().unwrap(), &server.url("/data.bin")]);
    assert!(std::fs::read(file).unwrap() == content);
}

on_both_reactors!(
    ranges_are_offered,
    one_range,
    unsatisfiable_ranges_are_416,
    ranges_that_are_not_understood_are_ignored,
    several_ranges_come_as_parts,
    of_several_the_satisfiable_ones_are_sent,
    several_ranges_leave_the_connection_in_step,
    abuse_costs_no_more_than_the_file,
    a_large_file_in_ranges_adds_up,
    short_ranges_of_a_large_file_arrive_whole,
    short_parts_of_a_large_file_arrive_whole,
    curl_resumes_a_download,
);
