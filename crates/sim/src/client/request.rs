//! What clients ask for, and what may be answered: requests of every kind, each with what its client expects.

use crate::files::Name;
use crate::random::Random;
use crate::settings::{BURN_BYTES_MAX, BURN_US_MAX, PROGRAM_BYTES_MAX};
use crate::world::World;

/// What a request asks of a file.
#[derive(Clone, Debug)]
pub(crate) enum Selection {
    Whole,
    /// `Range`, with the runs as they were asked for.
    Ranges(Vec<(u64, u64)>),
    /// The last so many bytes.
    Suffix(u64),
    /// `If-None-Match` with this tag.
    UnlessTag(String),
    /// `If-None-Match: *`
    UnlessThere,
    /// `If-Match` with a tag that no content has.
    IfOther,
}

/// What its client expects of a reply.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// A file, whichever of its states.
    File { name: Name, selection: Selection },
    /// One of these, whatever the files are.
    Status(&'static [u16]),
    /// What a program says: so many bytes where all goes well. With 503, as many run as may.
    Said { status: u16, bytes: u64, is_cut: bool },
    /// So many bytes, after some computing.
    Burnt { bytes: u64 },
}

/// Whether the server may, or has to, end the connection after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Close {
    No,
    May,
    Must,
    /// It ends after the reply, which doesn't say so.
    Silently,
}

#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) request: Vec<u8>,
    pub(crate) is_head: bool,
    pub(crate) wanted: Wanted,
    pub(crate) close: Close,
    /// When its last byte was given to the network.
    pub(crate) sent_at_ns: u64,
}

impl Exchange {
    fn new(request: impl Into<Vec<u8>>, wanted: Wanted, close: Close) -> Exchange {
        Exchange { request: request.into(), is_head: false, wanted, close, sent_at_ns: 0 }
    }

    /// Half a head, after which nothing comes.
    pub(crate) fn half_a_head() -> Exchange {
        Exchange::new("GET /a HTTP/1.1\r\nHos", Wanted::Status(&[408]), Close::Must)
    }
}

const HOSTS: [&str; 2] = ["a.test", "b.test"];

/// Ways to spell paths of files that there may be.
const SPELLINGS: [(&str, &str); 14] = [
    ("/", "/index.html"),
    ("/index.html", "/index.html"),
    ("/a", "/a"),
    ("/a?query", "/a"),
    ("/%61", "/a"),
    ("//a", "/a"),
    ("/docs/../a", "/a"),
    ("/b.txt", "/b.txt"),
    ("/docs/", "/docs/index.html"),
    ("/docs/./index.html", "/docs/index.html"),
    ("/docs/c.html", "/docs/c.html"),
    ("/docs/large", "/docs/large"),
    ("/docs/%6Carge", "/docs/large"),
    ("/sometimes", "/sometimes"),
];

/// Requests that have one answer.
const PLAIN: [(&str, &[u16]); 8] = [
    ("GET /nothing HTTP/1.1\r\nHost: a.test\r\n\r\n", &[404]),
    ("GET /docs/nothing/at/all HTTP/1.1\r\nHost: b.test\r\n\r\n", &[404]),
    ("GET /.hidden HTTP/1.1\r\nHost: a.test\r\n\r\n", &[404]),
    ("GET /docs HTTP/1.1\r\nHost: a.test\r\n\r\n", &[301]),
    ("GET /a HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n", &[421]),
    ("OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n", &[204]),
    ("DELETE /a HTTP/1.1\r\nHost: a.test\r\n\r\n", &[405]),
    ("BREW /a HTTP/1.1\r\nHost: a.test\r\n\r\n", &[501]),
];

/// What is no request, or none that may go on.
const REFUSED: [(&str, &[u16]); 11] = [
    ("GET / HTTP/1.1\r\n\r\n", &[400]),
    ("GET / HTTP/1.1\nHost: a.test\n\n", &[400]),
    ("GET /a b HTTP/1.1\r\nHost: a.test\r\n\r\n", &[400]),
    ("GET / HTTP/3.0\r\nHost: a.test\r\n\r\n", &[505]),
    ("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", &[400]),
    ("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5, 6\r\n\r\n", &[400]),
    ("GET / HTTP/1.1\r\nHost : a.test\r\n\r\n", &[400]),
    ("GET / HTTP/1.1\r\nHost: a.test\r\n folded: line\r\n\r\n", &[400]),
    ("CONNECT a.test:80 HTTP/1.1\r\nHost: a.test\r\n\r\n", &[501]),
    ("POST /a HTTP/1.1\r\nHost: a.test\r\nContent-Length: 99999999999\r\n\r\n", &[413]),
    ("\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a.test\r\n\r\n", &[400]),
];

impl World {
    /// Some exchanges for one connection.
    pub(crate) fn make_exchanges(&mut self, count: u64) -> Vec<Exchange> {
        let mut exchanges = Vec::new();
        for _ in 0..count {
            let start = exchanges.len();
            match self.random.below(20) {
                0..13 => exchanges.push(self.file_exchange()),
                13..16 => {
                    let &(request, statuses) = self.random.pick(&PLAIN);
                    exchanges.push(Exchange::new(request, Wanted::Status(statuses), Close::No));
                }
                16 => exchanges.extend(with_body(&mut self.random)),
                17 if self.random.percent(50) => exchanges.push(burning(&mut self.random)),
                17 => exchanges.push(to_program(&mut self.random)),
                18 => {
                    let &(request, statuses) = self.random.pick(&REFUSED);
                    exchanges.push(Exchange::new(request, Wanted::Status(statuses), Close::Must));
                }
                _ => exchanges.push(too_long(&mut self.random)),
            }
            if exchanges[start..].iter().any(|exchange| exchange.close != Close::No) {
                break;
            }
        }
        exchanges
    }

    fn file_exchange(&mut self) -> Exchange {
        let site = self.random.below(2) as usize;
        let &(path, file) = self.random.pick(&SPELLINGS);
        let name = (site, file.to_owned());
        let is_head = self.random.percent(15);
        let method = if is_head { "HEAD" } else { "GET" };
        let (selection, field) = if is_head { (Selection::Whole, String::new()) } else { self.selection(&name) };
        let (version, connection, close) = match self.random.below(12) {
            0 => ("1.0", "", Close::Must),
            1 => ("1.0", "Connection: keep-alive\r\n", Close::No),
            2 => ("1.1", "Connection: close\r\n", Close::Must),
            _ => ("1.1", "", Close::No),
        };
        let host = HOSTS[site];
        let request = format!("{method} {path} HTTP/{version}\r\nHost: {host}\r\n{connection}{field}\r\n");
        Exchange { is_head, ..Exchange::new(request, Wanted::File { name, selection }, close) }
    }

    fn selection(&mut self, name: &Name) -> (Selection, String) {
        let content = self.files.current(name);
        let len = content.as_ref().map_or(10, |content| content.bytes.len() as u64).max(2);
        let random = &mut self.random;
        match random.below(10) {
            0 => {
                let first = random.below(len + len / 8);
                let last = first + random.below(len);
                (Selection::Ranges(vec![(first, last)]), format!("Range: bytes={first}-{last}\r\n"))
            }
            1 => {
                let count = random.between(1, len + 5);
                (Selection::Suffix(count), format!("Range: bytes=-{count}\r\n"))
            }
            2 if len >= 30 => {
                // Apart from each other, so that nobody has a reason to join them.
                let tenth = len / 10;
                let runs: Vec<(u64, u64)> =
                    (0..random.between(2, 3)).map(|n| (n * 3 * tenth, n * 3 * tenth + tenth)).collect();
                let list: Vec<String> = runs.iter().map(|(first, last)| format!("{first}-{last}")).collect();
                (Selection::Ranges(runs), format!("Range: bytes={}\r\n", list.join(", ")))
            }
            3 => match &content {
                Some(content) => {
                    let tag = format!("{:?}", content.etag);
                    (Selection::UnlessTag(tag.clone()), format!("If-None-Match: \"other\", {tag}\r\n"))
                }
                None => (Selection::Whole, String::new()),
            },
            4 => (Selection::UnlessThere, "If-None-Match: *\r\n".to_owned()),
            5 => (Selection::IfOther, "If-Match: \"other\"\r\n".to_owned()),
            6 => (Selection::Whole, "Range: bytes=0-0\r\nIf-Range: \"other\"\r\n".to_owned()),
            _ => (Selection::Whole, String::new()),
        }
    }
}

/// Requests with a body that nobody wants.
fn with_body(random: &mut Random) -> Vec<Exchange> {
    let body = "x".repeat(random.below(300) as usize);
    let refused = Wanted::Status(&[405]);
    match random.below(4) {
        0 => {
            let head = format!("POST /a HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n", body.len());
            vec![Exchange::new(head + &body, refused, Close::No)]
        }
        1 => {
            let head = "PUT /a HTTP/1.1\r\nHost: b.test\r\nTransfer-Encoding: chunked\r\n\r\n";
            let chunks = format!("{:x};extension\r\n{body}y\r\n0\r\nTrailer: t\r\n\r\n", body.len() + 1);
            vec![Exchange::new(head.to_owned() + &chunks, refused, Close::No)]
        }
        2 => {
            let head = "POST /a HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody";
            vec![Exchange::new(head, refused, Close::May)]
        }
        _ => {
            // The reply is out, or on its way, when the body turns out to be none: nothing can be said any more.
            let head = "POST /a HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n";
            vec![Exchange::new(head, refused, Close::Silently)]
        }
    }
}

/// What a handler computes, with content that it doesn't look at.
fn burning(random: &mut Random) -> Exchange {
    let (bytes, us) = (random.below(BURN_BYTES_MAX as u64 + 1), random.below(BURN_US_MAX + 1));
    let (method, body) = *random.pick(&[
        ("GET", "\r\n"),
        ("HEAD", "\r\n"),
        ("POST", "Content-Length: 3\r\n\r\nxyz"),
        ("PUT", "Transfer-Encoding: chunked\r\n\r\n3\r\nxyz\r\n0\r\n\r\n"),
    ]);
    let request = format!("{method} /burn?us={us}&bytes={bytes} HTTP/1.1\r\nHost: b.test\r\n{body}");
    Exchange { is_head: method == "HEAD", ..Exchange::new(request, Wanted::Burnt { bytes }, Close::No) }
}

/// What a program answers, with content that it reads or not.
fn to_program(random: &mut Random) -> Exchange {
    let (how, status) =
        *random.pick(&[("", 200), ("", 200), ("", 200), ("garbage", 502), ("crash", 200), ("hang", 504)]);
    let bytes = random.below(PROGRAM_BYTES_MAX as u64 + 1);
    let is_head = random.percent(10);
    let content_max = if random.percent(20) { 40_000 } else { 300 };
    let content = random.below(content_max) as usize;
    let body = match random.below(4) {
        _ if is_head => "\r\n".to_owned(),
        0 => "\r\n".to_owned(),
        1 => "Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello".to_owned(),
        2 => format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n0\r\n\r\n", content + 1, "x".repeat(content + 1)),
        _ => format!("Content-Length: {content}\r\n\r\n{}", "x".repeat(content)),
    };
    let method = if is_head { "HEAD" } else { "POST" };
    let request = format!("{method} /program/a?how={how}&bytes={bytes} HTTP/1.1\r\nHost: a.test\r\n{body}");
    let wanted = Wanted::Said { status, bytes, is_cut: how == "crash" };
    // What isn't read of awaited content leaves the end in doubt.
    let close = if body.starts_with("Expect") { Close::May } else { Close::No };
    Exchange { is_head, ..Exchange::new(request, wanted, close) }
}

/// Much content for a program that reads it.
pub(crate) fn upload(random: &mut Random, chunked_percent: u64) -> Exchange {
    let content = "x".repeat(random.between(20_000, 120_000) as usize);
    let bytes = random.below(2_000);
    let body = match random.percent(chunked_percent) {
        true => format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{content}\r\n0\r\n\r\n", content.len()),
        false => format!("Content-Length: {}\r\n\r\n{content}", content.len()),
    };
    let request = format!("POST /program/a?bytes={bytes} HTTP/1.1\r\nHost: a.test\r\n{body}");
    Exchange::new(request, Wanted::Said { status: 200, bytes, is_cut: false }, Close::No)
}

/// At a slow pace the time for a head is over before it's too long.
fn too_long(random: &mut Random) -> Exchange {
    if random.percent(50) {
        let field = format!("X: {}\r\n", "x".repeat(17_000));
        let request = format!("GET /a HTTP/1.1\r\nHost: a.test\r\n{field}\r\n");
        Exchange::new(request, Wanted::Status(&[431, 408]), Close::Must)
    } else {
        let request = format!("GET /{} HTTP/1.1\r\nHost: a.test\r\n\r\n", "a".repeat(9_000));
        Exchange::new(request, Wanted::Status(&[414, 408]), Close::Must)
    }
}
