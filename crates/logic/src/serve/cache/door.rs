//! Who is let in where somebody else would have to go: whoever has been asked for before, lately (the doorkeeper of TinyLFU: Einziger, Friedman and Manes,
//! ACM Transactions on Storage 13(4), 2017). Where more is asked for than there is room for, most would be put in only to be thrown out unused, which costs
//! as much as reading them.

const BITS: usize = 1 << 16;
/// So many are remembered at least.
const SEEN_MIN: usize = 64;

/// A bit for each that was asked for once; several may have the same.
#[derive(Debug)]
pub(super) struct Door {
    bits: Box<[u64]>,
    seen: usize,
}

impl Default for Door {
    fn default() -> Door {
        Door { bits: vec![0; BITS / 64].into(), seen: 0 }
    }
}

impl Door {
    /// Whether one with this hash has come before, and not longer ago than so many others.
    pub(super) fn has_seen(&mut self, hash: u64, others: usize) -> bool {
        let (word, bit) = (hash as usize % BITS / 64, 1 << (hash % 64));
        if self.bits[word] & bit != 0 {
            return true;
        }
        if self.seen >= others.max(SEEN_MIN) {
            self.seen = 0;
            self.bits.fill(0);
        }
        self.bits[word] |= bit;
        self.seen += 1;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_again_is_known_until_as_many_others_have_come() {
        let mut door = Door::default();
        assert!(!door.has_seen(7, 100));
        assert!(door.has_seen(7, 100));
        assert!((1_000..1_099).all(|hash| !door.has_seen(hash, 100)));
        assert!(door.has_seen(7, 100), "a hundred are remembered");
        assert!(!door.has_seen(2_000, 100));
        assert!(!door.has_seen(7, 100), "and then forgotten at once");
    }
}
