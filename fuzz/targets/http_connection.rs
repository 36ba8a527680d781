//! A connection fed with anything: never panics, gives the same whole and in pieces, and takes no head that a plain reading of the grammar
//! refuses, nor refuses one that it takes.
#![no_main]

#[path = "../../crates/logic/tests/http/driver.rs"]
#[allow(dead_code)]
mod driver;

use driver::{Manner, trace};
use leat_logic::http::Limits;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // The first four bytes choose; the rest is the stream.
    let Some((&[flavour, first, second, third], stream)) = data.split_first_chunk::<4>() else { return };
    let manner = [Manner::AfterBody, Manner::Early, Manner::Continue][usize::from(flavour) % 3];
    let limits = if flavour & 0x80 == 0 {
        Limits::default()
    } else {
        Limits {
            head_bytes_max: 120,
            header_count_max: 4,
            target_bytes_max: 20,
            body_bytes_max: 30,
            requests_per_connection_max: 3,
            ..Limits::default()
        }
    };
    let whole = trace(&[stream], &limits, manner);

    let mut cuts = [first, second, third].map(|cut| usize::from(cut) * (stream.len() + 1) / 256);
    cuts.sort_unstable();
    let [a, b, c] = cuts;
    assert_eq!(trace(&[&stream[..a], &stream[a..b], &stream[b..c], &stream[c..]], &limits, manner), whole);
    if stream.len() <= 512 {
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(trace(&bytes, &limits, manner), whole);
    }
    if flavour & 0x80 == 0 {
        compare_with_grammar(stream, &whole);
    }
});

/// Reasons that say that a head broke the grammar.
const SYNTAX: [&str; 8] = [
    "request_line",
    "bare_line_feed",
    "bare_carriage_return",
    "folded_line",
    "space_before_colon",
    "field_name",
    "field_value",
    "version",
];

fn compare_with_grammar(stream: &[u8], whole: &[String]) {
    let Some(first) = whole.first() else { return };
    let mut head = stream;
    for _ in 0..2 {
        head = head.strip_prefix(b"\r\n").unwrap_or(head);
    }
    let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") else {
        assert!(!first.starts_with("request"), "a request without an end: {first}");
        return;
    };
    let is_sound = is_sound(&head[..end]);
    if first.starts_with("request") {
        assert!(is_sound, "accepted: {first}");
    } else if let Some(reason) = first.strip_prefix("reject ").and_then(|rest| rest.split(' ').nth(1)) {
        assert!(!(is_sound && SYNTAX.contains(&reason)), "refused for {reason}");
    }
}

/// The grammar of RFC 9112, line by line, as slowly and plainly as can be.
fn is_sound(head: &[u8]) -> bool {
    let text: String = head.iter().map(|&byte| byte as char).collect();
    let mut lines = text.split("\r\n");
    let parts: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let &[method, target, version] = &parts[..] else { return false };
    let is_token = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
    };
    let is_line = |text: &str| text.chars().all(|c| c == '\t' || (c >= ' ' && c != '\x7f'));
    is_token(method)
        && !target.is_empty()
        && is_line(target)
        && !target.contains('\t')
        && version.strip_prefix("HTTP/1.").is_some_and(|minor| minor.len() == 1 && minor.as_bytes()[0].is_ascii_digit())
        && lines.all(|line| line.split_once(':').is_some_and(|(name, value)| is_token(name) && is_line(value)))
}
