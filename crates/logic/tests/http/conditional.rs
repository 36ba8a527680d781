//! Preconditions and ranges of whole requests, from files in `conditional/`.
//!
//! Directives: `tag` (the representation's), `modified` (its date), `none` (there is no representation), `now` (a date; else 2025).

use crate::golden;
use leat_logic::http::{Connection, EntityTag, HttpDate, Limits, Precondition, Progress, RangeOutcome, Validators};
use leat_logic::time::{Instant, UnixTime};

#[test]
fn conditional() {
    let cases = golden::run("conditional", |case| {
        let date = |text: &String| {
            let date = HttpDate::parse(text.as_bytes(), UnixTime::default()).expect("a date");
            UnixTime { seconds: date.unix_seconds(), nanoseconds: 999_999_999 }
        };
        let now = case.directives.get("now").map_or(UnixTime { seconds: 1_760_000_000, nanoseconds: 0 }, date);
        let tag = case.directives.get("tag").map(|text| EntityTag::parse(text.as_bytes()).expect("a tag"));
        let current = Validators { entity_tag: tag, last_modified: case.directives.get("modified").map(date) };
        let exists = !case.directives.contains_key("none");

        let mut connection = Connection::new(Instant::default());
        let (_, progress) = connection.handle_input(Instant::default(), &case.input, &Limits::default());
        let Progress::Request(request) = progress else { panic!("{}: {progress:?}", case.name) };
        let precondition = request.conditions.evaluate(request.method, exists.then_some(&current), now);
        let mut lines = vec![match precondition {
            Precondition::Proceed => "proceed".to_string(),
            Precondition::NotModified => "not_modified".to_string(),
            Precondition::Failed => "failed".to_string(),
        }];
        if precondition == Precondition::Proceed && request.conditions.range.is_some() {
            let range = request.conditions.applicable_range(request.method, &current, now);
            lines.push(range.map_or("range ignored".to_string(), |range| match RangeOutcome::evaluate(range, 1000) {
                RangeOutcome::Whole => "range whole".to_string(),
                RangeOutcome::Single(range) => format!("range {}-{}", range.first, range.last),
                RangeOutcome::Multiple(ranges) => format!("ranges {}", ranges.as_slice().len()),
                RangeOutcome::Unsatisfiable => "range unsatisfiable".to_string(),
            }));
        }
        lines
    });
    assert!(cases > 50, "only {cases} cases");
}
