//! Ranges: those that come out lie within the representation, don't overlap, and cover exactly the bytes asked for.
#![no_main]

use leat_logic::http::{Boundary, ByteRange, FieldValue, MultipartRanges, RANGE_COUNT_MAX, RangeOutcome};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((length, value)) = data.split_first_chunk::<8>() else { return };
    let length = u64::from_le_bytes(*length);
    // Small ones can be checked byte by byte.
    let length = if length & 1 == 0 { length >> 1 & 0xFF } else { length };
    let outcome = RangeOutcome::evaluate(value, length);
    let ranges: &[ByteRange] = match &outcome {
        RangeOutcome::Whole => return,
        RangeOutcome::Unsatisfiable => &[],
        RangeOutcome::Single(range) => std::slice::from_ref(range),
        RangeOutcome::Multiple(ranges) => {
            assert!((2..=RANGE_COUNT_MAX).contains(&ranges.as_slice().len()));
            let content_type = FieldValue::literal("text/plain");
            let multipart =
                MultipartRanges { boundary: Boundary::from_number(length), content_type, complete_length: length };
            let mut framing = Vec::new();
            ranges.as_slice().iter().for_each(|&range| multipart.push_part_head(&mut framing, range));
            multipart.push_end(&mut framing);
            let content: u64 = ranges.as_slice().iter().map(ByteRange::length).sum();
            assert_eq!(multipart.content_length(ranges), content.saturating_add(framing.len() as u64));
            ranges.as_slice()
        }
    };
    for (at, range) in ranges.iter().enumerate() {
        assert!(range.first <= range.last && range.last < length);
        assert!(ranges[..at].iter().all(|other| range.last < other.first || other.last < range.first));
    }
    if length <= 0xFF {
        for offset in 0..length {
            let is_covered = ranges.iter().any(|range| (range.first..=range.last).contains(&offset));
            assert_eq!(is_covered, is_asked_for(value, length, offset), "offset {offset}");
        }
    }
});

/// Whether a well-formed value asks for the byte at `offset`.
fn is_asked_for(value: &[u8], length: u64, offset: u64) -> bool {
    let text = std::str::from_utf8(value).expect("well-formed");
    let big = |digits: &str| match digits.trim_start_matches('0') {
        "" => 0,
        digits => digits.parse::<u128>().unwrap_or(u128::MAX),
    };
    let (length, offset) = (u128::from(length), u128::from(offset));
    text[6..]
        .split(',')
        .map(|spec| spec.trim_matches([' ', '\t', '\n', '\r', '\x0c']))
        .filter(|spec| !spec.is_empty())
        .any(|spec| {
            let (first, last) = spec.split_once('-').expect("well-formed");
            match (first, last) {
                ("", suffix) => offset >= length.saturating_sub(big(suffix)),
                (first, "") => offset >= big(first),
                (first, last) => offset >= big(first) && offset <= big(last),
            }
        })
}
