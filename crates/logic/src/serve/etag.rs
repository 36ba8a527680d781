//! The strong validator of a file: a hash of its bytes, so that it's the same on every machine that has the same bytes, and proves it.
//!
//! BLAKE3, not a faster checksum: a reply that one machine began may be continued by another on the strength of the tag alone, and where
//! users may upload files, a checksum's collisions can be made to order. The cost is paid once for each state of a file.

use std::fmt;

/// How many bytes of the hash a tag shows: 144 bits, which is 24 characters with no padding.
const HASH_BYTES: usize = 18;
const TAG_BYTES: usize = HASH_BYTES / 3 * 4 + 2;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A strong entity tag, ready to be sent: 24 characters of base64url between double quotes (RFC 9110 section 8.8.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ETag([u8; TAG_BYTES]);

impl ETag {
    /// The tag of `content`.
    #[must_use]
    pub fn of(content: &[u8]) -> ETag {
        let mut hasher = ETagHasher::default();
        hasher.update(content);
        hasher.finish()
    }

    /// The tag with its quotes, as in the field `ETag`.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for ETag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(str::from_utf8(&self.0).unwrap_or_default())
    }
}

/// Makes the tag of content that comes in pieces.
#[derive(Clone, Default)]
pub struct ETagHasher(blake3::Hasher);

impl ETagHasher {
    /// Takes the next piece; how content is cut into pieces makes no difference.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The tag of all pieces.
    #[must_use]
    pub fn finish(&self) -> ETag {
        let hash = self.0.finalize();
        let mut tag = [b'"'; TAG_BYTES];
        for (three, four) in hash.as_bytes()[..HASH_BYTES].chunks_exact(3).zip(tag[1..].chunks_exact_mut(4)) {
            let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
            for (place, character) in four.iter_mut().enumerate() {
                *character = ALPHABET[(bits >> (18 - 6 * place)) as usize & 63];
            }
        }
        ETag(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_blake3_in_base64url() {
        // The hash of no bytes is published: af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9...
        assert_eq!(ETag::of(b"").as_bytes(), b"\"rxNJufX5oaagQE3qNtzJSZvL\"");
    }

    #[test]
    fn pieces_make_no_difference_and_one_bit_does() {
        let content: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
        let mut hasher = ETagHasher::default();
        for piece in content.chunks(777) {
            hasher.update(piece);
        }
        assert_eq!(hasher.finish(), ETag::of(&content));
        let mut other = content.clone();
        other[99_999] ^= 1;
        assert_ne!(ETag::of(&other), ETag::of(&content));
    }
}
