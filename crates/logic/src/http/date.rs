//! HTTP dates (RFC 9110 section 5.6.7): written as IMF-fixdate, read in that and in the two obsolete forms.

use crate::time::UnixTime;

/// Length of an IMF-fixdate such as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub const HTTP_DATE_BYTES: usize = 29;

/// A date that a field can hold: a whole second from year 0 to year 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HttpDate {
    unix_seconds: i64,
}

const DAY_SECONDS: i64 = 86_400;
/// 0000-01-01T00:00:00Z
const FIRST: i64 = -62_167_219_200;
/// 9999-12-31T23:59:59Z
const LAST: i64 = 253_402_300_799;

const WEEKDAYS: [&[u8; 3]; 7] = [b"Sun", b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat"];
const WEEKDAY_REST: [&str; 7] = ["day", "day", "sday", "nesday", "rsday", "day", "urday"];
const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

impl From<UnixTime> for HttpDate {
    /// The second that `time` lies in; the nearest that can be written where it lies outside years 0 to 9999.
    fn from(time: UnixTime) -> HttpDate {
        HttpDate { unix_seconds: time.seconds.clamp(FIRST, LAST) }
    }
}

impl HttpDate {
    /// Seconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn unix_seconds(self) -> i64 {
        self.unix_seconds
    }

    /// The date as IMF-fixdate.
    #[must_use]
    pub fn format(self) -> [u8; HTTP_DATE_BYTES] {
        let days = self.unix_seconds.div_euclid(DAY_SECONDS);
        let second_of_day = self.unix_seconds.rem_euclid(DAY_SECONDS);
        let (year, month, day) = civil_from_days(days);
        let mut text = *b"___, __ ___ ____ __:__:__ GMT";
        text[..3].copy_from_slice(WEEKDAYS[weekday(days)]);
        put_two(&mut text, 5, day);
        text[8..11].copy_from_slice(MONTHS[usize::from(month) - 1]);
        put_two(&mut text, 12, low_byte(year / 100));
        put_two(&mut text, 14, low_byte(year % 100));
        put_two(&mut text, 17, low_byte(second_of_day / 3600));
        put_two(&mut text, 20, low_byte(second_of_day / 60 % 60));
        put_two(&mut text, 23, low_byte(second_of_day % 60));
        text
    }

    /// Reads any of the three forms, exactly: names in their letter case, one space, GMT, a weekday that is a weekday (which one is not
    /// checked: the rest says all), a day that its month has. A leap second counts as the second before it. `now` tells the
    /// century of an RFC 850 date: one that would lie more than 50 years ahead is in the past.
    #[must_use]
    pub fn parse(text: &[u8], now: UnixTime) -> Option<HttpDate> {
        match text.get(3)? {
            b',' => parse_imf_fixdate(text),
            b' ' => parse_asctime(text),
            _ => parse_rfc850(text, now),
        }
    }

    fn from_parts(year: i64, month: i64, day: i64, time: &[u8]) -> Option<HttpDate> {
        let &[h1, h2, b':', m1, m2, b':', s1, s2] = time else { return None };
        let (hour, minute, second) = (number(&[h1, h2])?, number(&[m1, m2])?, number(&[s1, s2])?);
        if day < 1 || day > days_in_month(year, month) || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let days = days_from_civil(year, month, day);
        Some(HttpDate { unix_seconds: days * DAY_SECONDS + hour * 3600 + minute * 60 + second.min(59) })
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn parse_imf_fixdate(text: &[u8]) -> Option<HttpDate> {
    let text: &[u8; HTTP_DATE_BYTES] = text.try_into().ok()?;
    let shape =
        &text[3..5] == b", " && text[7] == b' ' && text[11] == b' ' && text[16] == b' ' && &text[25..] == b" GMT";
    if !shape || !is_weekday(&text[..3]) {
        return None;
    }
    HttpDate::from_parts(number(&text[12..16])?, month(&text[8..11])?, number(&text[5..7])?, &text[17..25])
}

/// `Sun Nov  6 08:49:37 1994`
fn parse_asctime(text: &[u8]) -> Option<HttpDate> {
    let text: &[u8; 24] = text.try_into().ok()?;
    let shape = text[3] == b' ' && text[7] == b' ' && text[10] == b' ' && text[19] == b' ';
    if !shape || !is_weekday(&text[..3]) {
        return None;
    }
    let day = number(if text[8] == b' ' { &text[9..10] } else { &text[8..10] })?;
    HttpDate::from_parts(number(&text[20..])?, month(&text[4..7])?, day, &text[11..19])
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`
fn parse_rfc850(text: &[u8], now: UnixTime) -> Option<HttpDate> {
    let index = WEEKDAYS.iter().position(|name| text.starts_with(&name[..]))?;
    let rest = text[3..].strip_prefix(WEEKDAY_REST[index].as_bytes())?;
    let rest: &[u8; 24] = rest.try_into().ok()?;
    let shape = &rest[..2] == b", " && rest[4] == b'-' && rest[8] == b'-' && rest[11] == b' ' && &rest[20..] == b" GMT";
    if !shape {
        return None;
    }
    let (current_year, ..) = civil_from_days(HttpDate::from(now).unix_seconds.div_euclid(DAY_SECONDS));
    let mut year = current_year - current_year % 100 + number(&rest[9..11])?;
    if year > current_year + 50 {
        year -= 100;
    } else if year <= current_year - 50 {
        year += 100;
    }
    // At the ends of what can be written there is no neighbouring century.
    let year = year.clamp(0, 9999);
    HttpDate::from_parts(year, month(&rest[5..8])?, number(&rest[2..4])?, &rest[12..20])
}

fn is_weekday(name: &[u8]) -> bool {
    WEEKDAYS.iter().any(|weekday| &weekday[..] == name)
}

fn month(name: &[u8]) -> Option<i64> {
    (1i64..).zip(MONTHS).find(|(_, month)| &month[..] == name).map(|(number, _)| number)
}

/// Digits alone; few enough that it can't overflow.
fn number(digits: &[u8]) -> Option<i64> {
    let add = |number: i64, &digit: &u8| digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0'));
    digits.iter().try_fold(0, add)
}

fn put_two(text: &mut [u8; HTTP_DATE_BYTES], at: usize, value: u8) {
    text[at] = b'0' + value / 10;
    text[at + 1] = b'0' + value % 10;
}

/// For numbers below 100.
fn low_byte(number: i64) -> u8 {
    number.to_le_bytes()[0]
}

/// 1970-01-01 was a Thursday.
fn weekday(days: i64) -> usize {
    usize::from(low_byte((days + 4).rem_euclid(7)))
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years are counted from March, so that the leap day is a year's last and the
/// lengths of the months before it follow 153 days in 5 months; 400 years have 146,097 days.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, u8, u8) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, low_byte(month), low_byte(day))
}

/// The current second's date, formatted once a second.
#[derive(Clone, Copy, Debug)]
pub struct CachedDate {
    date: HttpDate,
    text: [u8; HTTP_DATE_BYTES],
}

impl CachedDate {
    /// The date of `now`.
    #[must_use]
    pub fn new(now: UnixTime) -> CachedDate {
        let date = HttpDate::from(now);
        CachedDate { date, text: date.format() }
    }

    /// Moves to `now`; formats only when the second has changed.
    pub fn update(&mut self, now: UnixTime) {
        if self.date != HttpDate::from(now) {
            *self = CachedDate::new(now);
        }
    }

    /// The text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; HTTP_DATE_BYTES] {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixTime = UnixTime { seconds: 1_760_000_000, nanoseconds: 0 };

    fn parse(text: &str) -> Option<i64> {
        HttpDate::parse(text.as_bytes(), NOW).map(HttpDate::unix_seconds)
    }

    fn format(seconds: i64) -> String {
        String::from_utf8(HttpDate::from(UnixTime { seconds, nanoseconds: 0 }).format().to_vec()).expect("ASCII")
    }

    #[test]
    fn the_three_forms_of_the_rfc() {
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(parse("Sunday, 06-Nov-94 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(parse("Sun Nov  6 08:49:37 1994"), Some(784_111_777));
        assert_eq!(format(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn known_points() {
        assert_eq!(format(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(format(-1), "Wed, 31 Dec 1969 23:59:59 GMT");
        assert_eq!(format(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(format(4_107_542_400), "Mon, 01 Mar 2100 00:00:00 GMT");
        assert_eq!(format(i64::MIN), "Sat, 01 Jan 0000 00:00:00 GMT");
        assert_eq!(format(i64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn every_day_of_ten_thousand_years_round_trips() {
        let mut weekday_before = weekday(FIRST / DAY_SECONDS - 1);
        for days in FIRST / DAY_SECONDS..=LAST / DAY_SECONDS {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, i64::from(month), i64::from(day)), days);
            assert_eq!(weekday(days), (weekday_before + 1) % 7);
            weekday_before = weekday(days);
        }
        for seconds in (FIRST..LAST).step_by(86_399 * 97) {
            assert_eq!(parse(&format(seconds)), Some(seconds));
        }
    }

    #[test]
    fn leap_years_and_leap_seconds() {
        assert!(parse("Thu, 29 Feb 2024 00:00:00 GMT").is_some());
        for text in ["Wed, 29 Feb 2023 00:00:00 GMT", "Mon, 29 Feb 2100 00:00:00 GMT", "Sun, 31 Nov 1994 08:49:37 GMT"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("Sat, 31 Dec 2016 23:59:60 GMT"), parse("Sat, 31 Dec 2016 23:59:59 GMT"));
        assert_eq!(parse("Sat, 31 Dec 2016 23:59:61 GMT"), None);
    }

    #[test]
    fn two_digit_years_stay_within_fifty_years() {
        let year_of = |text| parse(text).map(|seconds| civil_from_days(seconds.div_euclid(DAY_SECONDS)).0);
        assert_eq!(year_of("Monday, 01-Jan-25 00:00:00 GMT"), Some(2025));
        assert_eq!(year_of("Monday, 01-Jan-75 00:00:00 GMT"), Some(2075));
        assert_eq!(year_of("Monday, 01-Jan-76 00:00:00 GMT"), Some(1976));
        assert_eq!(year_of("Monday, 01-Jan-00 00:00:00 GMT"), Some(2000));
    }

    #[test]
    fn nothing_else_is_a_date() {
        for text in [
            "",
            "Sun",
            "Sun,",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            " Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06-Nov-1994 08:49:37 GMT",
            "Xxx, 06 Nov 1994 08:49:37 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sunday, 06 Nov 94 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37",
            "Sun Nov 06 08:49:37 94",
            "Sun Nov 6 08:49:37 1994",
            "Sun Nov  6 08:49:37 1994 GMT",
            "784111777",
            "-1",
            "0",
            "Sun, 06 Nov 1994 08:49:37 GMT, Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 19940 8:49:37 GMT",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_cache_follows_the_second() {
        let mut cached = CachedDate::new(UnixTime { seconds: 1, nanoseconds: 0 });
        cached.update(UnixTime { seconds: 1, nanoseconds: 999_999_999 });
        assert_eq!(cached.as_bytes(), b"Thu, 01 Jan 1970 00:00:01 GMT");
        cached.update(UnixTime { seconds: 2, nanoseconds: 0 });
        assert_eq!(cached.as_bytes(), b"Thu, 01 Jan 1970 00:00:02 GMT");
    }
}
