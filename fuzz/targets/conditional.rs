//! Preconditions: whatever the fields hold, the outcome is one that the method allows, and what lists our own tag is seen to.
#![no_main]

use leat_logic::http::{Connection, EntityTag, HttpDate, Limits, Method, Precondition, Progress, Validators};
use leat_logic::time::{Instant, UnixTime};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&[flavour, second], rest)) = data.split_first_chunk::<2>() else { return };
    let method = ["GET", "HEAD", "PUT"][usize::from(flavour) % 3];
    let mut stream = format!("{method} / HTTP/1.1\r\nHost: a\r\n").into_bytes();
    stream.extend_from_slice(rest);
    stream.extend_from_slice(b"\r\n\r\n");
    let mut connection = Connection::new(Instant::default());
    let (_, progress) = connection.handle_input(Instant::default(), &stream, &Limits::default());
    let Progress::Request(request) = progress else { return };

    let modified = UnixTime { seconds: 784_111_777 + i64::from(second) - 128, nanoseconds: 0 };
    let now = UnixTime { seconds: 1_760_000_000, nanoseconds: 0 };
    let tag = EntityTag { weak: flavour & 0x80 != 0, opaque: b"a" };
    let current = Validators { entity_tag: Some(tag), last_modified: Some(modified) };
    let conditions = &request.conditions;
    let outcome = conditions.evaluate(request.method, Some(&current), now);

    if outcome == Precondition::NotModified {
        assert!(matches!(request.method, Method::Get | Method::Head));
        assert!(conditions.if_none_match.is_some() || conditions.if_modified_since.is_some());
    }
    if conditions.is_empty() {
        assert_eq!(outcome, Precondition::Proceed);
    }
    if conditions.if_match.is_some() && outcome != Precondition::Failed {
        let lines = request.headers.all(b"if-match");
        assert!(lines.into_iter().any(|value| value == b"*" || (!tag.weak && contains(value, b"\"a\""))));
    }
    if let (None, Some(value), None) = (conditions.if_match, conditions.if_none_match, conditions.if_unmodified_since)
        && (value == b"*" || value == b"\"a\"" || value == b"W/\"a\"")
    {
        assert_ne!(outcome, Precondition::Proceed);
    }
    if let Some(range) = conditions.applicable_range(request.method, &current, now) {
        assert_eq!(request.method, Method::Get);
        assert_eq!(conditions.range, Some(range));
        if let Some(validator) = conditions.if_range {
            let is_date = HttpDate::parse(validator, now).is_some_and(|date| date.unix_seconds() == modified.seconds);
            assert!(is_date || (!tag.weak && validator == b"\"a\""));
        }
    }
});

fn contains(value: &[u8], part: &[u8]) -> bool {
    value.windows(part.len()).any(|window| window == part)
}
