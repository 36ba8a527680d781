//! Single values, from files of `input => outcome` lines in `values/`; `#` begins a comment.

use crate::driver::escape;
use crate::golden::unescape;
use leat_logic::http::{HttpDate, RangeOutcome, decode_path};
use leat_logic::time::UnixTime;

fn check(file: &str, evaluate: impl Fn(&[u8]) -> String) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http/values").join(file);
    let text = std::fs::read_to_string(&path).expect("readable");
    let mut written = String::new();
    let mut failures = Vec::new();
    for line in text.lines() {
        if line.is_empty() || line.starts_with('#') {
            written += &format!("{line}\n");
            continue;
        }
        let (input, expected) = line.split_once(" =>").unwrap_or((line, ""));
        let found = evaluate(&unescape(input));
        if found != expected.trim_start() {
            failures.push(format!("{input}: expected {expected}, found {found}"));
        }
        written += &format!("{input} => {found}\n");
    }
    if std::env::var_os("LEAT_BLESS").is_some() {
        std::fs::write(&path, written).expect("writable");
    } else {
        assert!(failures.is_empty(), "{file}: {failures:#?}");
    }
}

#[test]
fn paths() {
    check("paths.txt", |input| match decode_path(input, &mut Vec::new()) {
        Ok(path) => escape(path),
        Err(error) => format!("{} {error:?}", error.status().code()),
    });
}

#[test]
fn dates() {
    let now = UnixTime { seconds: 1_760_000_000, nanoseconds: 0 };
    check("dates.txt", |input| {
        HttpDate::parse(input, now)
            .map_or("none".to_string(), |date| format!("{} {}", date.unix_seconds(), escape(&date.format())))
    });
}

/// The length of the representation stands before the field's value.
#[test]
fn ranges() {
    check("ranges.txt", |input| {
        let space = input.iter().position(|&byte| byte == b' ').expect("a length");
        let length = std::str::from_utf8(&input[..space]).expect("digits").parse().expect("a number");
        match RangeOutcome::evaluate(&input[space + 1..], length) {
            RangeOutcome::Whole => "whole".to_string(),
            RangeOutcome::Single(range) => format!("{}-{}", range.first, range.last),
            RangeOutcome::Multiple(ranges) => {
                let parts: Vec<_> =
                    ranges.as_slice().iter().map(|range| format!("{}-{}", range.first, range.last)).collect();
                parts.join(" ")
            }
            RangeOutcome::Unsatisfiable => "unsatisfiable".to_string(),
        }
    });
}
