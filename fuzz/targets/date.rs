//! Dates: what is read is written the same again, and every time can be written and read.
#![no_main]

use leat_logic::http::HttpDate;
use leat_logic::time::UnixTime;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((now, text)) = data.split_first_chunk::<8>() else { return };
    let now = UnixTime { seconds: i64::from_le_bytes(*now), nanoseconds: 0 };

    if let Some(date) = HttpDate::parse(text, now) {
        let written = date.format();
        assert_eq!(HttpDate::parse(&written, now), Some(date));
        if text.len() == written.len() && text[3] == b',' {
            // The weekday isn't checked, and a leap second is the one before it.
            assert!(text[5..] == written[5..] || &text[23..25] == b"60");
        }
    }
    let date = HttpDate::from(now);
    assert_eq!(HttpDate::parse(&date.format(), UnixTime::default()), Some(date));
});
