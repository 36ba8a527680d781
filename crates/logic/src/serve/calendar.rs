//! Dates for people and for HTTP, from seconds since 1970. UTC only.

use crate::time::UnixTime;

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const DAY_SECONDS: i64 = 86_400;

/// Year, month 1 to 12, day 1 to 31 in the Gregorian calendar, of a day counted from 1970-01-01.
fn civil(days: i64) -> (i64, usize, i64) {
    // Count from 0000-03-01, so that the leap day ends a year; an era is 400 years, 146,097 days.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), usize::try_from(month).unwrap_or(1), day)
}

/// `2026-01-31 12:34`, for a listing.
pub(super) fn listing_time(time: UnixTime) -> String {
    let (year, month, day) = civil(time.seconds.div_euclid(DAY_SECONDS));
    let second = time.seconds.rem_euclid(DAY_SECONDS);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", second / 3_600, second / 60 % 60)
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 section 5.6.7).
pub(super) fn imf_fixdate(time: UnixTime) -> Vec<u8> {
    let days = time.seconds.div_euclid(DAY_SECONDS);
    let (year, month, day) = civil(days);
    let second = time.seconds.rem_euclid(DAY_SECONDS);
    let weekday = WEEKDAYS[usize::try_from(days.rem_euclid(7)).unwrap_or(0)];
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{weekday}, {day:02} {} {year:04} {hour:02}:{minute:02}:{second:02} GMT", MONTHS[month - 1]).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        let fixdate = |seconds| String::from_utf8(imf_fixdate(UnixTime { seconds, nanoseconds: 0 })).unwrap();
        assert_eq!(fixdate(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(fixdate(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(fixdate(-1), "Wed, 31 Dec 1969 23:59:59 GMT");
        assert_eq!(fixdate(951_827_696), "Tue, 29 Feb 2000 12:34:56 GMT");
        assert_eq!(fixdate(4_107_542_400), "Mon, 01 Mar 2100 00:00:00 GMT");
        assert_eq!(listing_time(UnixTime { seconds: 951_827_696, nanoseconds: 0 }), "2000-02-29 12:34");
    }
}
