//! A reply under way, as what is left of it rather than as its bytes: literal bytes (heads, short replies as a whole) and runs of a resource's content.
//! Whoever has content under an equal strong entity tag can go on with it (RFC 9110 section 8.8.1); nobody else may. With literal bytes alone anybody can.

use super::limits::{
    ETAG_BYTES_MAX, LITERAL_BYTES_MAX, PATH_BYTES_MAX, PIECE_COUNT_MAX, RESEND_BYTES_MAX, SITE_BYTES_MAX,
};
use super::wire::{DecodeError, Reader, put_bytes, put_number};
use crate::http::EntityTag;
use crate::serve::coding::Coding;

/// What is left of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyState {
    /// Whose it is, by the site's name.
    pub site: String,
    /// The resource's path within the site, decoded, without dot segments.
    pub path: Vec<u8>,
    /// The coding of the sibling that is sent.
    pub coding: Option<Coding>,
    /// The tag of the content with its quotes, as in the field ETag; empty when it has none.
    pub etag: Vec<u8>,
    /// Length of the whole content, in bytes.
    pub complete_length: u64,
    /// The status, for the access log.
    pub status: u16,
    /// Bytes of content in the whole reply, for the access log.
    pub content_bytes: u64,
    /// What follows the send queue's last byte, in order.
    pub pieces: Vec<Piece>,
    /// So many of these bytes may have reached the client already. They go into the new socket's send queue as *sent*: else it would take
    /// their acknowledgement for one of bytes that it never sent, and ignore it.
    pub resend_bytes: u64,
}

/// A part of what is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// As it stands.
    Literal(Vec<u8>),
    /// A run of the content.
    Content {
        /// Its first byte's offset.
        first: u64,
        /// Its length, in bytes.
        length: u64,
    },
}

impl Piece {
    /// Its length, in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Piece::Literal(bytes) => bytes.len() as u64,
            Piece::Content { length, .. } => *length,
        }
    }

    /// It without its first `count` bytes.
    #[must_use]
    pub fn without_first(&self, count: u64) -> Piece {
        let count = count.min(self.length());
        match self {
            Piece::Literal(bytes) => {
                Piece::Literal(bytes[usize::try_from(count).unwrap_or(bytes.len()).min(bytes.len())..].to_vec())
            }
            Piece::Content { first, length } => Piece::Content { first: first + count, length: length - count },
        }
    }
}

impl ReplyState {
    /// Whether content under `etag` (with its quotes) may stand in for this reply's: both tags are strong and equal.
    #[must_use]
    pub fn continues_with(&self, etag: Option<&[u8]>) -> bool {
        let (Some(ours), Some(theirs)) = (EntityTag::parse(&self.etag), etag.and_then(EntityTag::parse)) else {
            return false;
        };
        ours.matches_strongly(&theirs)
    }

    /// Whether what is left has any of the resource's content.
    #[must_use]
    pub fn has_content(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Content { length: 1.., .. }))
    }

    /// Whether what is left can be sent as it stands, whatever its resource has become.
    #[must_use]
    pub fn is_all_here(&self) -> bool {
        !self.has_content() && self.resend_bytes == 0
    }

    /// The pieces that are left when the first `count` bytes have been sent.
    #[must_use]
    pub fn after(&self, count: u64) -> Vec<Piece> {
        let mut count = count;
        let mut left = Vec::new();
        for piece in &self.pieces {
            let skipped = count.min(piece.length());
            count -= skipped;
            if skipped < piece.length() {
                left.push(piece.without_first(skipped));
            }
        }
        left
    }

    /// Bytes left.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.pieces.iter().fold(0, |sum: u64, piece| sum.saturating_add(piece.length()))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.site.as_bytes());
        put_bytes(out, &self.path);
        out.push(self.coding.map_or(0, |coding| coding as u8));
        put_bytes(out, &self.etag);
        put_number(out, self.complete_length);
        put_number(out, u64::from(self.status));
        put_number(out, self.content_bytes);
        put_number(out, self.resend_bytes);
        put_number(out, self.pieces.len() as u64);
        for piece in &self.pieces {
            match piece {
                Piece::Literal(bytes) => {
                    out.push(0);
                    put_bytes(out, bytes);
                }
                Piece::Content { first, length } => {
                    out.push(1);
                    put_number(out, *first);
                    put_number(out, *length);
                }
            }
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<ReplyState, DecodeError> {
        let site = reader.bytes(SITE_BYTES_MAX, "the site's name")?;
        let site = str::from_utf8(site).map_err(|_| DecodeError::Malformed("the site's name isn't UTF-8"))?.to_owned();
        let path = reader.bytes(PATH_BYTES_MAX, "the path")?.to_vec();
        let coding = reader.byte("the content coding")?;
        let coding = match Coding::ALL.into_iter().find(|known| *known as u8 == coding) {
            None if coding != 0 => {
                return Err(DecodeError::Unknown { what: "the content coding", found: u64::from(coding) });
            }
            coding => coding,
        };
        let etag = reader.bytes(ETAG_BYTES_MAX, "the entity tag")?.to_vec();
        let complete_length = reader.number("the content's length")?;
        let status = reader.number_u16("the status")?;
        let content_bytes = reader.number("the reply's length")?;
        let resend_bytes = reader.number_up_to(RESEND_BYTES_MAX, "the bytes to be sent again")?;
        let count = reader.number_up_to(PIECE_COUNT_MAX as u64, "the number of pieces")?;
        let mut literal_bytes_left = LITERAL_BYTES_MAX;
        let mut pieces = Vec::new();
        for _ in 0..count {
            let piece = decode_piece(reader, literal_bytes_left, complete_length)?;
            if let Piece::Literal(bytes) = &piece {
                literal_bytes_left -= bytes.len();
            }
            pieces.push(piece);
        }
        Ok(ReplyState { site, path, coding, etag, complete_length, status, content_bytes, pieces, resend_bytes })
    }
}

fn decode_piece(reader: &mut Reader<'_>, literal_bytes_max: usize, end: u64) -> Result<Piece, DecodeError> {
    match reader.byte("a piece's kind")? {
        0 => Ok(Piece::Literal(reader.bytes(literal_bytes_max, "a reply's literal bytes")?.to_vec())),
        1 => {
            let first = reader.number_up_to(end, "a piece's first byte")?;
            let length = reader.number_up_to(end - first, "a piece's length")?;
            Ok(Piece::Content { first, length })
        }
        found => Err(DecodeError::Unknown { what: "a piece's kind", found: u64::from(found) }),
    }
}
