//! File contents as a function of a seed and an offset, so that a reply can be checked without keeping the file.

/// The content of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    seed: u64,
}

impl Content {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Eight bytes of the content; the mixing function is that of SplitMix64 (Steele, Lea, Flood 2014).
    fn word(self, index: u64) -> [u8; 8] {
        let mut word = self.seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)).to_le_bytes()
    }

    /// The bytes from the start to `length`.
    pub(crate) fn bytes(self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        let mut index = 0;
        while bytes.len() < length {
            bytes.extend_from_slice(&self.word(index));
            index += 1;
        }
        bytes.truncate(length);
        bytes
    }

    /// Whether `bytes` is what the content holds from `offset` on.
    pub(crate) fn matches(self, offset: u64, bytes: &[u8]) -> bool {
        let skipped = (offset % 8) as usize;
        let (first, rest) = bytes.split_at(bytes.len().min((8 - skipped) % 8));
        if !self.word(offset / 8)[skipped..].starts_with(first) && skipped > 0 {
            return false;
        }
        let start = offset.div_ceil(8);
        rest.chunks(8).zip(start..).all(|(chunk, index)| self.word(index).starts_with(chunk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_matches_and_every_changed_byte_does_not() {
        let content = Content::new(7);
        let bytes = content.bytes(53);
        for start in 0..=bytes.len() {
            for end in start..=bytes.len() {
                assert!(content.matches(start as u64, &bytes[start..end]), "{start}..{end}");
            }
            for position in start..bytes.len() {
                let mut changed = bytes[start..].to_vec();
                changed[position - start] ^= 1;
                assert!(!content.matches(start as u64, &changed), "{position} from {start}");
            }
        }
    }
}
