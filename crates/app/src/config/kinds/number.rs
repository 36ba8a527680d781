//! Quantities: counts, sizes in bytes, durations.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time;

use toml::Spanned;
use toml::de::DeValue;

use super::{Describe, Kind};
use crate::config::schema::At;

pub(in crate::config) const KIB: u64 = 1 << 10;
pub(in crate::config) const MIB: u64 = 1 << 20;
pub(in crate::config) const GIB: u64 = 1 << 30;
pub(in crate::config) const TIB: u64 = 1 << 40;

/// The unit that each size may be written with, larger ones of a system after smaller ones.
const SIZE_UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("KB", 1000),
    ("MB", 1000 * 1000),
    ("GB", 1000 * 1000 * 1000),
    ("TB", 1000 * 1000 * 1000 * 1000),
    ("KiB", KIB),
    ("MiB", MIB),
    ("GiB", GIB),
    ("TiB", TIB),
];

/// The unit that each duration may be written with, in milliseconds.
const DURATION_UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// A whole number.
pub(in crate::config) struct Count<T> {
    pub(in crate::config) min: T,
    pub(in crate::config) max: T,
}

impl<T: Display + Copy> Describe for Count<T> {
    fn describe(&self) -> String {
        format!("integer, {} to {}", self.min, self.max)
    }

    fn example(&self) -> String {
        self.min.to_string()
    }
}

impl<T: Display + Copy + PartialOrd + TryFrom<i128>> Kind for Count<T> {
    type Value = T;

    fn read(&self, value: &Spanned<DeValue<'_>>, at: &At<'_>) -> Option<T> {
        let range = format!("a whole number from {} to {}", self.min, self.max);
        let DeValue::Integer(written) = value.get_ref() else {
            at.wrong_type(value, &format!("{range}, without quotes"));
            return None;
        };
        let number = integer(written).and_then(|number| T::try_from(number).ok());
        let found = number.filter(|number| (self.min..=self.max).contains(number));
        if found.is_none() {
            at.error(value.span(), format!("{written} is out of range"), format!("write {range}"));
        }
        found
    }
}

fn integer(written: &toml::de::DeInteger<'_>) -> Option<i128> {
    i128::from_str_radix(&written.as_str().replace('_', ""), written.radix()).ok()
}

/// How many workers; as many as cores that this process may run on where the file doesn't say.
pub(in crate::config) struct Workers(pub(in crate::config) Count<usize>);

impl Describe for Workers {
    fn describe(&self) -> String {
        self.0.describe()
    }

    fn example(&self) -> String {
        self.0.example()
    }
}

impl Kind for Workers {
    type Value = usize;

    fn read(&self, value: &Spanned<DeValue<'_>>, at: &At<'_>) -> Option<usize> {
        self.0.read(value, at)
    }

    fn otherwise(&self, _at: &At<'_>) -> Option<usize> {
        Some(cores().min(self.0.max))
    }
}

/// Cores that this process may run on.
pub(in crate::config) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A number of bytes.
pub(in crate::config) struct Size<T> {
    pub(in crate::config) min: u64,
    pub(in crate::config) max: u64,
    pub(in crate::config) value: std::marker::PhantomData<T>,
}

impl<T> Size<T> {
    pub(in crate::config) const fn between(min: u64, max: u64) -> Self {
        Size { min, max, value: std::marker::PhantomData }
    }
}

impl<T> Describe for Size<T> {
    fn describe(&self) -> String {
        format!("size, {} to {}", show_size(self.min), show_size(self.max))
    }

    fn example(&self) -> String {
        format!("\"{}\"", show_size(self.max.min(16 * KIB)))
    }
}

impl<T: TryFrom<u64>> Kind for Size<T> {
    type Value = T;

    fn read(&self, value: &Spanned<DeValue<'_>>, at: &At<'_>) -> Option<T> {
        let help = format!(
            "write a number with one of the units B, KiB, MiB, GiB, TiB (or KB, MB, GB, TB, which count by 1000), from {} to {}, \
             as in {}",
            show_size(self.min),
            show_size(self.max),
            self.example()
        );
        let size = Quantity { what: "a size", example: self.example(), help, parse: parse_size, show: show_size };
        T::try_from(size.read(value, at, self.min..=self.max)?).ok()
    }
}

/// Bytes in a second, written as a size with `/s` behind it.
pub(in crate::config) struct Rate(pub(in crate::config) Size<u64>);

impl Describe for Rate {
    fn describe(&self) -> String {
        format!("rate, {} to {}", show_rate(self.0.min), show_rate(self.0.max))
    }

    fn example(&self) -> String {
        "\"10MiB/s\"".to_owned()
    }
}

impl Kind for Rate {
    type Value = u64;

    fn read(&self, value: &Spanned<DeValue<'_>>, at: &At<'_>) -> Option<u64> {
        let (min, max) = (show_rate(self.0.min), show_rate(self.0.max));
        let help = format!("write a size and \"/s\", from {min} to {max}, as in {}", self.example());
        let rate = Quantity { what: "a rate", example: self.example(), help, parse: parse_rate, show: show_rate };
        rate.read(value, at, self.0.min..=self.0.max)
    }
}

/// A part of a whole, in hundredths.
pub(in crate::config) struct Percent(pub(in crate::config) Count<u8>);

impl Describe for Percent {
    fn describe(&self) -> String {
        format!("percentage, {}% to {}%", self.0.min, self.0.max)
    }

    fn example(&self) -> String {
        format!("\"{}%\"", self.0.max.min(25))
    }
}

impl Kind for Percent {
    type Value = u8;

    fn read(&self, value: &Spanned<DeValue<'_>>, at: &At<'_>) -> Option<u8> {
        let Count { min, max } = self.0;
        let help = format!("write a whole percentage from {min}% to {max}%, as in {}", self.example());
        let DeValue::String(written) = value.get_ref() else {
            at.wrong_type(value, &format!("a percentage, as in {}", self.example()));
            return None;
        };
        let Some(number) = written.strip_suffix('%').filter(|number| number.bytes().all(|b| b.is_ascii_digit())) else {
            at.error(value.span(), format!("\"{written}\" isn't a whole percentage"), help);
            return None;
        };
        let found = number.parse().ok().filter(|percent| (min..=max).contains(percent));
        if found.is_none() {
            at.error(value.span(), format!("\"{written}\" is out of range"), help);
        }
        found
    }
}

/// A number that is written with its unit.
struct Quantity {
    /// What it is, with its article.
    what: &'static str,
    example: String,
    /// How to write it right.
    help: String,
    /// From what is written to the number, or what is wrong with it.
    parse: fn(&str) -> Result<u64, String>,
    show: fn(u64) -> String,
}

impl Quantity {
    /// The number, if it is in `range`. Nothing needs no unit.
    fn read(self, value: &Spanned<DeValue<'_>>, at: &At<'_>, range: RangeInclusive<u64>) -> Option<u64> {
        let wrong = match value.get_ref() {
            DeValue::String(written) => match (self.parse)(written) {
                Ok(number) if range.contains(&number) => return Some(number),
                Ok(number) => format!("{} is out of range", (self.show)(number)),
                Err(wrong) => format!("\"{written}\" {wrong}"),
            },
            DeValue::Integer(written) if integer(written) != Some(0) => format!("{written} has no unit"),
            DeValue::Integer(_) if range.contains(&0) => return Some(0),
            DeValue::Integer(_) => format!("{} is out of range", (self.show)(0)),
            _ => {
                at.wrong_type(value, &format!("{}, as in {}", self.what, self.example));
                return None;
            }
        };
        at.error(value.span(), wrong, self.help);
        None
    }
}

fn parse_rate(written: &str) -> Result<u64, String> {
    written.strip_suffix("/s").map_or_else(|| Err("doesn't end in \"/s\"".to_owned()), parse_size)
}

fn show_rate(bytes: u64) -> String {
    format!("{}/s", show_size(bytes))
}

fn parse_size(written: &str) -> Result<u64, String> {
    let (number, unit) = split(written)?;
    let unit = unit.trim_start();
    let Some((_, bytes)) = SIZE_UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(wrong_unit(unit));
    };
    number.checked_mul(*bytes).ok_or_else(|| "is out of range".to_owned())
}

/// The shortest exact way to write `bytes`.
pub(in crate::config) fn show_size(bytes: u64) -> String {
    let units = SIZE_UNITS.iter().filter(|(name, _)| *name == "B" || name.ends_with("iB"));
    match units.rev().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

/// A span of time.
pub(in crate::config) struct Duration {
    pub(in crate::config) min_ms: u64,
    pub(in crate::config) max_ms: u64,
}

impl Describe for Duration {
    fn describe(&self) -> String {
        format!("duration, {} to {}", show_duration(self.min_ms), show_duration(self.max_ms))
    }

    fn example(&self) -> String {
        format!("\"{}\"", show_duration(self.max_ms.min(30_000)))
    }
}

impl Kind for Duration {
    type Value = time::Duration;

    fn read(&self, value: &Spanned<DeValue<'_>>, at: &At<'_>) -> Option<time::Duration> {
        let help = format!(
            "write numbers with units ms, s, m, h or d, from {} to {}, as in {} or \"1m30s\"",
            show_duration(self.min_ms),
            show_duration(self.max_ms),
            self.example()
        );
        let duration =
            Quantity { what: "a duration", example: self.example(), help, parse: parse_duration, show: show_duration };
        duration.read(value, at, self.min_ms..=self.max_ms).map(time::Duration::from_millis)
    }
}

fn parse_duration(written: &str) -> Result<u64, String> {
    let mut rest = written;
    let mut total: u64 = 0;
    let mut smallest = u64::MAX;
    while total == 0 && smallest == u64::MAX || !rest.is_empty() {
        let (number, unit_and_rest) = split(rest)?;
        let length = unit_and_rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit_and_rest.len());
        let (unit, after) = unit_and_rest.split_at(length);
        let Some((_, milliseconds)) = DURATION_UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(wrong_unit(unit));
        };
        if *milliseconds >= smallest {
            return Err("isn't a duration: larger units come first, each once".to_owned());
        }
        smallest = *milliseconds;
        let part = number.checked_mul(*milliseconds).and_then(|part| total.checked_add(part));
        total = part.ok_or_else(|| "is out of range".to_owned())?;
        rest = after;
    }
    Ok(total)
}

fn show_duration(milliseconds: u64) -> String {
    let unit = DURATION_UNITS.iter().rev().find(|(_, unit)| milliseconds > 0 && milliseconds.is_multiple_of(*unit));
    match unit {
        Some((name, unit)) => format!("{}{name}", milliseconds / unit),
        None if milliseconds == 0 => "0s".to_owned(),
        None => format!("{milliseconds}ms"),
    }
}

/// The number at the start of `written`, and the rest.
fn split(written: &str) -> Result<(u64, &str), String> {
    let length = written.find(|c: char| !c.is_ascii_digit()).unwrap_or(written.len());
    let (digits, rest) = written.split_at(length);
    if digits.is_empty() {
        return Err("doesn't begin with a number".to_owned());
    }
    if rest.starts_with(['.', ',']) {
        return Err("isn't a whole number: use a smaller unit".to_owned());
    }
    let number = digits.parse().map_err(|_| "is out of range".to_owned())?;
    Ok((number, rest))
}

fn wrong_unit(unit: &str) -> String {
    if unit.is_empty() { "has no unit".to_owned() } else { format!("has the unit \"{unit}\", which isn't known here") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("16KiB"), Ok(16 * 1024));
        assert_eq!(parse_size("16 KB"), Ok(16_000));
        assert_eq!(parse_size("0B"), Ok(0));
        for wrong in ["", "KiB", "16", "16Kib", "1.5MiB", "-1B", "99999999999TiB", "99999999999999999999B"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(show_size(0), "0B");
        assert_eq!(show_size(1536), "1536B");
        assert_eq!(show_size(128 << 20), "128MiB");
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("10s"), Ok(10_000));
        assert_eq!(parse_duration("1m30s"), Ok(90_000));
        assert_eq!(parse_duration("0s"), Ok(0));
        assert_eq!(parse_duration("0m5s"), Ok(5_000));
        for wrong in ["", "s", "10", "30s1m", "1s1s", "1.5s", "10 s", "10sec", "9999999999999999d", "0s0s"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!(show_duration(90_000), "90s");
        assert_eq!(show_duration(3_600_000), "1h");
    }
}
