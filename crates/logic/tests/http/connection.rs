//! The connection, from files in `connection/`.

use crate::driver::{Manner, trace, trace_moved};
use crate::golden;
use leat_logic::http::Limits;

#[test]
fn connection() {
    let cases = golden::run("connection", |case| {
        let limits = limits(case.directives.get("limits").map_or("", String::as_str));
        let manner = match case.directives.get("manner").map(String::as_str) {
            None => Manner::AfterBody,
            Some("early") => Manner::Early,
            Some("continue") => Manner::Continue,
            Some(other) => panic!("no such manner: {other}"),
        };
        let whole = trace(&[&case.input], &limits, manner);
        // The few long ones, which are one byte repeated, are split at every seventh.
        let step = if case.input.len() > 2048 { 7 } else { 1 };
        for at in (1..case.input.len()).step_by(step) {
            let (left, right) = case.input.split_at(at);
            assert_eq!(trace(&[left, right], &limits, manner), whole, "{}: split at {at}", case.name);
        }
        let bytes: Vec<&[u8]> = case.input.chunks(1).collect();
        assert_eq!(trace(&bytes, &limits, manner), whole, "{}: byte by byte", case.name);
        assert_eq!(trace_moved(&bytes, &limits, manner), whole, "{}: moved at every byte", case.name);
        let threes: Vec<&[u8]> = case.input.chunks(3).collect();
        assert_eq!(trace(&threes, &limits, manner), whole, "{}: by threes", case.name);
        whole
    });
    assert!(cases > 400, "only {cases} cases");
}

fn limits(text: &str) -> Limits {
    let mut limits = Limits::default();
    for (name, value) in text.split_whitespace().map(|item| item.split_once('=').expect("name=value")) {
        let value: u64 = value.parse().expect("a number");
        let size = usize::try_from(value).expect("fits");
        match name {
            "head_bytes_max" => limits.head_bytes_max = size,
            "header_count_max" => limits.header_count_max = size,
            "target_bytes_max" => limits.target_bytes_max = size,
            "body_bytes_max" => limits.body_bytes_max = value,
            "requests_per_connection_max" => limits.requests_per_connection_max = u32::try_from(value).expect("fits"),
            other => panic!("no such limit: {other}"),
        }
    }
    limits
}
