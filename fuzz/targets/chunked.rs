//! The chunked coding: anything decodes to the same in pieces as whole, and what is encoded decodes to what it was.
#![no_main]

#[path = "../../crates/logic/tests/http/driver.rs"]
#[allow(dead_code)]
mod driver;

use driver::{Manner, trace};
use leat_logic::http::Limits;
use libfuzzer_sys::fuzz_target;

const HEAD: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

fuzz_target!(|data: &[u8]| {
    let Some((&[cut, size], body)) = data.split_first_chunk::<2>() else { return };
    let limits = Limits::default();
    let cut = usize::from(cut) * (body.len() + 1) / 256;

    let stream = [HEAD, body].concat();
    let whole = trace(&[&stream], &limits, Manner::AfterBody);
    assert_eq!(trace(&[&stream[..HEAD.len() + cut], &body[cut..]], &limits, Manner::AfterBody), whole);
    if body.len() <= 512 {
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(trace(&bytes, &limits, Manner::AfterBody), whole);
    }

    let content = &body[..body.len().min(150)];
    let mut encoded = HEAD.to_vec();
    for chunk in content.chunks(usize::from(size).max(1)) {
        encoded.extend_from_slice(format!("{:x};a=b\r\n", chunk.len()).as_bytes());
        encoded.extend_from_slice(chunk);
        encoded.extend_from_slice(b"\r\n");
    }
    encoded.extend_from_slice(b"0\r\nX: y\r\n\r\nGET /next HTTP/1.0\r\n\r\n");
    let lines = trace(&[&encoded], &limits, Manner::AfterBody);
    if !content.is_empty() {
        assert_eq!(lines[1], format!("body {}", content.escape_ascii()));
    }
    assert_eq!(lines.last().map(String::as_str), Some("reply close close"));
    assert!(lines[lines.len() - 2].starts_with("request GET /next"));
});
