//! Where a request's body ends (RFC 9112 sections 6 and 7): what the fields say, and the strict decoder of the chunked coding.

use super::field::members;
use super::rejection::RejectReason;
use super::request::Version;
use super::{CHUNK_OVERHEAD_BYTES_MAX, Limits};

/// How a body is delimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyLength {
    /// There is nothing to read.
    #[default]
    None,
    /// So many bytes, one at least.
    Length(u64),
    /// The chunked transfer coding.
    Chunked,
}

/// What the fields said about the body, gathered line by line.
#[derive(Clone, Copy, Default)]
pub(super) struct Framing<'i> {
    content_length: Option<&'i [u8]>,
    content_length_repeated: bool,
    transfer_encoding: Option<&'i [u8]>,
    transfer_encoding_repeated: bool,
}

impl<'i> Framing<'i> {
    pub(super) fn add_content_length(&mut self, value: &'i [u8]) {
        self.content_length_repeated |= self.content_length.replace(value).is_some();
    }

    pub(super) fn add_transfer_encoding(&mut self, value: &'i [u8]) {
        self.transfer_encoding_repeated |= self.transfer_encoding.replace(value).is_some();
    }

    /// The body's length, or why nobody can tell it. Every doubt is refused: a proxy in front may have decided it the other way. Whether it's too long for
    /// its site is for whoever knows the site.
    pub(super) fn resolve(&self, version: Version) -> Result<BodyLength, RejectReason> {
        if self.content_length.is_none() && self.transfer_encoding.is_none() {
            return Ok(BodyLength::None);
        }
        if let Some(coding) = self.transfer_encoding {
            if self.content_length.is_some() {
                return Err(RejectReason::LengthConflict);
            }
            if version == Version::Http10 {
                return Err(RejectReason::TransferEncodingVersion);
            }
            return match (self.transfer_encoding_repeated, coding.eq_ignore_ascii_case(b"chunked")) {
                (false, true) => Ok(BodyLength::Chunked),
                (true, _) => Err(RejectReason::TransferEncodingInvalid),
                (false, false) => Err(judge_coding(coding)),
            };
        }
        if self.content_length_repeated {
            return Err(RejectReason::ContentLengthRepeated);
        }
        match parse_content_length(self.content_length.unwrap_or_default())? {
            0 => Ok(BodyLength::None),
            length => Ok(BodyLength::Length(length)),
        }
    }
}

/// Digits alone. A number past 64 bits is a length like any other, only too large.
fn parse_content_length(value: &[u8]) -> Result<u64, RejectReason> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(RejectReason::ContentLengthInvalid);
    }
    let add = |length: u64, digit: &u8| length.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    value.iter().try_fold(0u64, add).ok_or(RejectReason::BodyTooLarge)
}

/// A value other than `chunked`: a coding that isn't known (501), or a list in which chunked has the wrong place, number or parameters,
/// or that isn't a list of tokens at all (400).
#[cold]
fn judge_coding(value: &[u8]) -> RejectReason {
    let codings = || members(value);
    let is_token = |coding: &[u8]| !coding.is_empty() && coding.iter().all(|&byte| super::field::is_token_byte(byte));
    let chunked = codings().filter(|coding| coding.eq_ignore_ascii_case(b"chunked")).count();
    let last_is_chunked = codings().next_back().is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"));
    if codings().all(is_token) && (chunked == 0 || chunked == 1 && last_is_chunked) {
        RejectReason::TransferEncodingUnknown
    } else {
        RejectReason::TransferEncodingInvalid
    }
}

/// How far the body has come. Without a heap, 24 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BodyDecoder {
    /// Bytes left: of the body, or of the chunk's data; while a size is read, the size so far.
    remaining: u64,
    /// Content so far, for the limit; chunked only.
    received: u64,
    /// Bytes of extensions and trailers so far.
    overhead: u16,
    place: Place,
    /// Blanks may follow a chunk's size.
    is_padded: bool,
}

/// What the next byte is part of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Done,
    /// Content of a known length.
    Content,
    /// A chunk's size; so many digits have been read, 16 at most.
    Size(u8),
    /// Blanks after a size.
    Padding,
    Extension,
    /// The LF after a size or an extension.
    SizeEnd,
    ChunkData,
    ChunkDataCr,
    ChunkDataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    FinalLf,
}

/// A decoder's state as plain numbers. The codes of `place` stay the same in all versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyState {
    /// Where in the framing the next byte stands; 0 when there is no body or it has ended.
    pub place: u8,
    /// Bytes left of the body or of the chunk; while a chunk's size is read, the size so far.
    pub remaining: u64,
    /// Content so far; chunked only.
    pub received: u64,
    /// Bytes of chunk extensions and trailers so far.
    pub overhead: u16,
}

impl Place {
    /// By code; `Size` follows, a code for each number of digits.
    const ALL: [Place; 13] = [
        Place::Done,
        Place::Content,
        Place::Extension,
        Place::SizeEnd,
        Place::ChunkData,
        Place::ChunkDataCr,
        Place::ChunkDataLf,
        Place::TrailerStart,
        Place::TrailerName,
        Place::TrailerValue,
        Place::TrailerLf,
        Place::FinalLf,
        Place::Padding,
    ];
    const SIZE_CODE: u8 = 32;
    const SIZE_DIGITS_MAX: u8 = 16;

    fn code(self) -> u8 {
        match self {
            Place::Size(digits) => Self::SIZE_CODE + digits,
            other => Self::ALL.iter().position(|&place| place == other).unwrap_or_default().to_le_bytes()[0],
        }
    }

    fn of_code(code: u8) -> Option<Place> {
        match code.checked_sub(Self::SIZE_CODE) {
            Some(digits) => (digits <= Self::SIZE_DIGITS_MAX).then_some(Place::Size(digits)),
            None => Self::ALL.get(usize::from(code)).copied(),
        }
    }
}

/// What one step of a decoder found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyStep<'i> {
    NeedInput,
    Content(&'i [u8]),
    End,
}

impl BodyDecoder {
    pub(super) fn new(length: BodyLength) -> BodyDecoder {
        let (remaining, place) = match length {
            BodyLength::None => (0, Place::Done),
            BodyLength::Length(length) => (length, Place::Content),
            BodyLength::Chunked => (0, Place::Size(0)),
        };
        BodyDecoder { remaining, received: 0, overhead: 0, place, is_padded: false }
    }

    /// Of another server's reply. Some pad the sizes of chunks with blanks, as Apache 1.3 did; in a request that is refused, as whoever is in front may
    /// have read it otherwise.
    pub(super) fn of_reply(length: BodyLength) -> BodyDecoder {
        BodyDecoder { is_padded: true, ..BodyDecoder::new(length) }
    }

    pub(super) fn export(&self) -> BodyState {
        let BodyDecoder { remaining, received, overhead, place, .. } = *self;
        BodyState { place: place.code(), remaining, received, overhead }
    }

    /// As [`BodyDecoder::import`], for a reply.
    pub(super) fn import_of_reply(state: &BodyState) -> Option<BodyDecoder> {
        BodyDecoder::import(state).map(|decoder| BodyDecoder { is_padded: true, ..decoder })
    }

    /// `None` for what no decoder exports.
    pub(super) fn import(state: &BodyState) -> Option<BodyDecoder> {
        let BodyState { place, remaining, received, overhead } = *state;
        let place = Place::of_code(place)?;
        let is_within = matches!(place, Place::Content | Place::ChunkData);
        let is_sound = overhead <= CHUNK_OVERHEAD_BYTES_MAX && (remaining > 0 || !is_within);
        is_sound.then_some(BodyDecoder { remaining, received, overhead, place, is_padded: false })
    }

    /// Reads up to the next run of content, the body's end, or the input's. Returns how many bytes were consumed, content included.
    pub(super) fn step<'i>(&mut self, input: &'i [u8], limits: &Limits) -> Result<(usize, BodyStep<'i>), RejectReason> {
        let mut consumed = 0;
        while self.place != Place::Done {
            let Some(&byte) = input.get(consumed) else { return Ok((consumed, BodyStep::NeedInput)) };
            if matches!(self.place, Place::Content | Place::ChunkData) {
                let content = self.take_content(&input[consumed..]);
                return Ok((consumed + content.len(), BodyStep::Content(content)));
            }
            consumed += 1;
            self.place = self.accept(byte, limits)?;
        }
        Ok((consumed, BodyStep::End))
    }

    fn take_content<'i>(&mut self, input: &'i [u8]) -> &'i [u8] {
        let count = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(input.len());
        self.remaining -= count as u64;
        if self.remaining == 0 {
            self.place = if self.place == Place::Content { Place::Done } else { Place::ChunkDataCr };
        }
        &input[..count]
    }

    /// One byte outside the content; the place that follows it.
    fn accept(&mut self, byte: u8, limits: &Limits) -> Result<Place, RejectReason> {
        match (self.place, byte) {
            (Place::Size(digits), b' ' | b'\t') if digits > 0 && self.is_padded => self.count_overhead(Place::Padding),
            (Place::Size(digits), _) => self.accept_in_size(byte, digits, limits),
            (Place::Padding, b' ' | b'\t') => self.count_overhead(Place::Padding),
            (Place::Padding, b'\r' | b';') => self.accept_in_size(byte, 1, limits),
            (Place::Padding, _) => Err(RejectReason::ChunkSize),
            (Place::Extension, b'\r') => Ok(Place::SizeEnd),
            (Place::Extension, byte) if !is_value_byte(byte) => Err(RejectReason::ChunkExtension),
            (Place::Extension, _) => self.count_overhead(Place::Extension),
            (Place::SizeEnd, b'\n') => Ok(if self.remaining == 0 { Place::TrailerStart } else { Place::ChunkData }),
            (Place::SizeEnd, _) => Err(RejectReason::ChunkSize),
            (Place::ChunkDataCr, b'\r') => Ok(Place::ChunkDataLf),
            (Place::ChunkDataLf, b'\n') => {
                self.remaining = 0;
                Ok(Place::Size(0))
            }
            (Place::ChunkDataCr | Place::ChunkDataLf, _) => Err(RejectReason::ChunkEnd),
            (Place::TrailerStart, b'\r') => Ok(Place::FinalLf),
            (Place::FinalLf, b'\n') => Ok(Place::Done),
            (Place::TrailerName, b':') => self.count_overhead(Place::TrailerValue),
            (Place::TrailerStart | Place::TrailerName, byte) if super::field::is_token_byte(byte) => {
                self.count_overhead(Place::TrailerName)
            }
            (Place::TrailerValue, b'\r') => Ok(Place::TrailerLf),
            (Place::TrailerValue, byte) if is_value_byte(byte) => self.count_overhead(Place::TrailerValue),
            (Place::TrailerLf, b'\n') => Ok(Place::TrailerStart),
            _ => Err(RejectReason::Trailer),
        }
    }

    fn accept_in_size(&mut self, byte: u8, digits: u8, limits: &Limits) -> Result<Place, RejectReason> {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            b'\r' | b';' if digits > 0 => {
                self.received = self.received.saturating_add(self.remaining);
                if self.received > limits.body_bytes_max {
                    return Err(RejectReason::BodyTooLarge);
                }
                return Ok(if byte == b'\r' { Place::SizeEnd } else { Place::Extension });
            }
            _ => return Err(RejectReason::ChunkSize),
        };
        if digits == Place::SIZE_DIGITS_MAX {
            return Err(RejectReason::ChunkSize);
        }
        self.remaining = self.remaining << 4 | u64::from(digit);
        Ok(Place::Size(digits + 1))
    }

    fn count_overhead(&mut self, next: Place) -> Result<Place, RejectReason> {
        self.overhead += 1;
        if self.overhead > CHUNK_OVERHEAD_BYTES_MAX { Err(RejectReason::ChunkOverhead) } else { Ok(next) }
    }
}

fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7F)
}
