//! What a request costs in `http`: heads of real clients, reply heads, paths, slow heads.
//!
//! `cargo bench -p leat-logic --bench http` prints a Markdown table. `-- --once CASE COUNT` runs one case so many times and prints nothing but
//! its name, for counting instructions (under `valgrind --tool=callgrind`, say): the difference between two counts is the figure that
//! noise does not touch.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock; the library never does"
)]

use leat_logic::http::{
    CachedDate, Connection, EntityTag, FieldValue, HeadWriter, HttpDate, Limits, PreparedFields, Progress, Status,
    decode_path,
};
use leat_logic::time::{Instant, UnixTime};
use std::hint::black_box;
use std::time::Instant as Clock;

const ROUNDS: usize = 31;
const CALLS_EACH_ROUND: u32 = 20_000;

const WRK: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";
const CURL: &[u8] =
    b"GET /index.html HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: curl/8.14.1\r\nAccept: */*\r\n\r\n";
const CHROME: &[u8] = b"GET /library/stdtypes.html HTTP/1.1\r\nHost: localhost:8080\r\nConnection: keep-alive\r\n\
Cache-Control: max-age=0\r\nsec-ch-ua: \"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\", \"Google Chrome\";v=\"140\"\r\n\
sec-ch-ua-mobile: ?0\r\nsec-ch-ua-platform: \"Linux\"\r\nUpgrade-Insecure-Requests: 1\r\n\
User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36\r\n\
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7\r\n\
Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\r\n\
Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-GB,en;q=0.9\r\n\r\n";

struct Bench {
    limits: Limits,
    date: CachedDate,
    prepared: PreparedFields,
    out: Vec<u8>,
    path: Vec<u8>,
    now: u64,
}

impl Bench {
    fn new() -> Bench {
        let time = UnixTime { seconds: 1_760_000_000, nanoseconds: 0 };
        let tag = EntityTag::strong(b"0123456789abcdef").expect("a tag");
        Bench {
            limits: Limits::default(),
            date: CachedDate::new(time),
            prepared: PreparedFields::new(|head| {
                let html = FieldValue::literal("text/html; charset=utf-8");
                head.content_type(html).content_length(612).entity_tag(&tag).last_modified(HttpDate::from(time))
            }),
            out: Vec::with_capacity(1024),
            path: Vec::with_capacity(1024),
            now: 0,
        }
    }

    /// One request from its head to its reply's end.
    fn request(&mut self, connection: &mut Connection, head: &[u8]) {
        self.now += 1;
        let now = Instant { ns: self.now };
        let (consumed, progress) = connection.handle_input(now, black_box(head), &self.limits);
        assert!(matches!(progress, Progress::Request(_)), "{progress:?}");
        black_box((&progress, consumed));
        let persistence = connection.reply(now, &self.limits, false);
        black_box((persistence, connection.handle_reply_sent(now)));
    }

    fn reply_head(&mut self) {
        self.out.clear();
        HeadWriter::start(&mut self.out, Status::OK, &self.date).prepared(&self.prepared).finish();
        black_box(&self.out);
    }

    fn run(&mut self, case: &str, count: u32) {
        let mut connection = Connection::new(Instant::default());
        for _ in 0..count {
            match case {
                "wrk head" => self.request(&mut connection, WRK),
                "curl head" => self.request(&mut connection, CURL),
                "Chrome head" => self.request(&mut connection, CHROME),
                "Chrome head in 100 pieces" => {
                    for end in (8..CHROME.len()).step_by(CHROME.len() / 100) {
                        black_box(connection.handle_input(Instant::default(), black_box(&CHROME[..end]), &self.limits));
                    }
                    self.request(&mut connection, CHROME);
                }
                "reply head" => self.reply_head(),
                "plain path" => {
                    let _ = black_box(decode_path(black_box(b"/library/stdtypes.html"), &mut self.path));
                }
                "encoded path" => {
                    let _ = black_box(decode_path(black_box(b"/a%20b/../caf%C3%A9/x.html"), &mut self.path));
                }
                "date" => {
                    let date = HttpDate::parse(black_box(b"Sun, 06 Nov 1994 08:49:37 GMT"), UnixTime::default());
                    black_box(date);
                }
                other => panic!("no such case: {other}; there are {CASES:?}"),
            }
        }
    }
}

const CASES: [&str; 8] = [
    "wrk head",
    "curl head",
    "Chrome head",
    "Chrome head in 100 pieces",
    "reply head",
    "plain path",
    "encoded path",
    "date",
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let mut bench = Bench::new();
    if let [once, case, count] = &arguments[..]
        && once == "--once"
    {
        bench.run(case, count.parse().expect("a count"));
        println!("{case}");
        return;
    }
    println!("| case | ns, median | ns, least |\n|---|---:|---:|");
    for case in CASES {
        let count = if case.contains("pieces") { CALLS_EACH_ROUND / 100 } else { CALLS_EACH_ROUND };
        let mut rounds: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let start = Clock::now();
                bench.run(case, count);
                start.elapsed().as_secs_f64() * 1e9 / f64::from(count)
            })
            .collect();
        rounds.sort_by(f64::total_cmp);
        println!("| {case} | {:.1} | {:.1} |", rounds[ROUNDS / 2], rounds[0]);
    }
}
