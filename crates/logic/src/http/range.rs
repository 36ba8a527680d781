//! Which bytes a Range field asks for (RFC 9110 section 14), and how several parts are framed (section 14.6).
//!
//! Overlapping ranges are merged, so no reply is ever longer than the representation but for the heads of its parts; more than
//! [`RANGE_COUNT_MAX`] ranges are no use to anybody, and the field is ignored.

use super::field::{FieldValue, members};
use super::response::{push_decimal, write_decimal};

/// Ranges in one request that are honoured.
pub const RANGE_COUNT_MAX: usize = 16;

/// Bytes `first` to `last`, both included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub first: u64,
    /// Offset of the last byte, not before `first`.
    pub last: u64,
}

impl ByteRange {
    /// How many bytes it has, one at least.
    #[must_use]
    pub fn length(&self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }

    /// `bytes 0-4/10`
    pub(super) fn push_content_range(self, out: &mut Vec<u8>, complete_length: u64) {
        out.extend_from_slice(b"bytes ");
        push_decimal(out, self.first);
        out.push(b'-');
        push_decimal(out, self.last);
        out.push(b'/');
        push_decimal(out, complete_length);
    }

    fn overlaps(&self, other: &ByteRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Two or more ranges that don't overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRanges {
    ranges: [ByteRange; RANGE_COUNT_MAX],
    count: usize,
}

impl ByteRanges {
    /// The ranges, in the order asked for, or ascending if some had to be merged.
    #[must_use]
    pub fn as_slice(&self) -> &[ByteRange] {
        &self.ranges[..self.count]
    }
}

/// What a Range field comes to for a representation of a known length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "lives on the stack for one request")]
pub enum RangeOutcome {
    /// All of it, with 200: the field is not understood, or asks too much.
    Whole,
    /// One range, with 206.
    Single(ByteRange),
    /// Several parts, with 206 and `multipart/byteranges`.
    Multiple(ByteRanges),
    /// Nothing of what is asked exists: 416 with `Content-Range: bytes */length`.
    Unsatisfiable,
}

impl RangeOutcome {
    /// Evaluates the value of a Range field. A field that breaks the grammar anywhere is ignored as a whole.
    #[must_use]
    pub fn evaluate(value: &[u8], complete_length: u64) -> RangeOutcome {
        let Some(set) = strip_unit(value) else { return RangeOutcome::Whole };
        let mut found = ByteRanges { ranges: [ByteRange::default(); RANGE_COUNT_MAX], count: 0 };
        let (mut specs, mut suffix_of_nothing) = (0, false);
        for spec in members(set).filter(|spec| !spec.is_empty()) {
            specs += 1;
            if specs > RANGE_COUNT_MAX {
                return RangeOutcome::Whole;
            }
            match Spec::parse(spec) {
                None => return RangeOutcome::Whole,
                Some(spec) => {
                    suffix_of_nothing |= complete_length == 0 && matches!(spec, Spec::Suffix(1..));
                    if let Some(range) = spec.resolve(complete_length) {
                        found.ranges[found.count] = range;
                        found.count += 1;
                    }
                }
            }
        }
        // The last bytes of nothing are satisfiable, but Content-Range can't say it.
        if specs == 0 || suffix_of_nothing {
            return RangeOutcome::Whole;
        }
        found.merge();
        match found.count {
            0 => RangeOutcome::Unsatisfiable,
            1 => RangeOutcome::Single(found.ranges[0]),
            _ => RangeOutcome::Multiple(found),
        }
    }
}

impl ByteRanges {
    /// Merges if any two overlap.
    fn merge(&mut self) {
        let ranges = &mut self.ranges[..self.count];
        let overlap = |(at, range): (usize, &ByteRange)| ranges[..at].iter().any(|other| range.overlaps(other));
        if !ranges.iter().enumerate().any(overlap) {
            return;
        }
        ranges.sort_unstable();
        let mut kept = 0;
        for at in 1..ranges.len() {
            if ranges[kept].overlaps(&ranges[at]) {
                ranges[kept].last = ranges[kept].last.max(ranges[at].last);
            } else {
                kept += 1;
                ranges[kept] = ranges[at];
            }
        }
        self.count = kept + 1;
        self.ranges[self.count..].fill(ByteRange::default());
    }
}

fn strip_unit(value: &[u8]) -> Option<&[u8]> {
    let (unit, set) = value.split_at_checked(6)?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(set)
}

/// One element of the list. Numbers past 64 bits are as good as the largest.
enum Spec {
    Between(u64, u64),
    From(u64),
    Suffix(u64),
}

impl Spec {
    fn parse(text: &[u8]) -> Option<Spec> {
        let dash = memchr::memchr(b'-', text)?;
        let (first, last) = (&text[..dash], &text[dash + 1..]);
        match (first, last) {
            (b"", digits) => Some(Spec::Suffix(number(digits)?)),
            (digits, b"") => Some(Spec::From(number(digits)?)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Spec::Between(first, last))
            }
        }
    }

    fn resolve(self, complete_length: u64) -> Option<ByteRange> {
        let end = complete_length.checked_sub(1)?;
        match self {
            Spec::Between(first, last) if first <= end => Some(ByteRange { first, last: last.min(end) }),
            Spec::From(first) if first <= end => Some(ByteRange { first, last: end }),
            Spec::Suffix(length @ 1..) => Some(ByteRange { first: complete_length.saturating_sub(length), last: end }),
            _ => None,
        }
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0u64, |number, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))))
}

/// What stands between the parts (RFC 2046 section 5.1.1). The caller takes it from a source that a client can't foresee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary([u8; 20]);

impl Boundary {
    /// A boundary that carries a number.
    #[must_use]
    pub fn from_number(number: u64) -> Boundary {
        let mut text = [b'0'; 20];
        write_decimal(&mut text, number);
        Boundary(text)
    }

    /// Its text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The framing of a `multipart/byteranges` body: for each part a head and the bytes of the range, then an end.
#[derive(Clone, Copy, Debug)]
pub struct MultipartRanges<'a> {
    /// Between the parts.
    pub boundary: Boundary,
    /// Of the whole representation.
    pub content_type: FieldValue<'a>,
    /// Of the whole representation, in bytes.
    pub complete_length: u64,
}

impl MultipartRanges<'_> {
    /// Appends the value of the reply's Content-Type.
    pub fn push_content_type(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"multipart/byteranges; boundary=");
        out.extend_from_slice(self.boundary.as_bytes());
    }

    /// Appends what stands before the bytes of a part.
    pub fn push_part_head(&self, out: &mut Vec<u8>, range: ByteRange) {
        out.extend_from_slice(b"\r\n--");
        out.extend_from_slice(self.boundary.as_bytes());
        out.extend_from_slice(b"\r\nContent-Type: ");
        out.extend_from_slice(self.content_type.as_bytes());
        out.extend_from_slice(b"\r\nContent-Range: ");
        range.push_content_range(out, self.complete_length);
        out.extend_from_slice(b"\r\n\r\n");
    }

    /// Appends what stands after the last part.
    pub fn push_end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\r\n--");
        out.extend_from_slice(self.boundary.as_bytes());
        out.extend_from_slice(b"--\r\n");
    }

    /// The exact length of the whole body; saturates, for a representation of nearly 2^64 bytes.
    #[must_use]
    pub fn content_length(&self, ranges: &ByteRanges) -> u64 {
        let mut framing = Vec::with_capacity(256 * (ranges.count + 1));
        ranges.as_slice().iter().for_each(|&range| self.push_part_head(&mut framing, range));
        self.push_end(&mut framing);
        let content: u64 = ranges.as_slice().iter().map(ByteRange::length).sum();
        content.saturating_add(framing.len() as u64)
    }
}
