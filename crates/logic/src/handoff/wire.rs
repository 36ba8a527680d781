//! How numbers and runs of bytes are written in images and messages: LEB128 numbers, and bytes behind their length. Reading never
//! panics and never takes more than its named limit. What the numbers mean is decided elsewhere.

/// Why bytes from a peer aren't what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// They end too early, or a length points past their end.
    #[error("the bytes end within {0}")]
    Truncated(&'static str),
    /// A length or number is over its limit.
    #[error("{what} is {found}, more than the limit of {most}")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// What was found.
        found: u64,
        /// The named limit.
        most: u64,
    },
    /// A value that none of this version has.
    #[error("{what} has the unknown value {found}")]
    Unknown {
        /// What it is.
        what: &'static str,
        /// What was found.
        found: u64,
    },
    /// A version that isn't spoken here.
    #[error("version {0} isn't spoken here: upgrade this server, or downgrade its peer")]
    Version(u8),
    /// A section that must be understood and isn't.
    #[error("the image has section {0}, which must be understood: upgrade this server")]
    Section(u64),
    /// Sections out of order, twice, or missing; bytes behind the end; values that contradict each other.
    #[error("{0}")]
    Malformed(&'static str),
}

/// Appends a number, seven bits to a byte, the lowest first (LEB128): 1 to 10 bytes.
pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Appends bytes behind their length.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// What is left to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(DecodeError::Truncated(what))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Truncated(what))?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn byte(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        Ok(self.array::<1>(what)?[0])
    }

    /// A LEB128 number. More than 64 bits are refused; zeros in front aren't, as they do no harm.
    pub(crate) fn number(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            let bits = u64::from(byte & 0x7F);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(DecodeError::TooLarge { what, found: u64::MAX, most: u64::MAX })
    }

    /// A number up to `most`.
    pub(crate) fn number_up_to(&mut self, most: u64, what: &'static str) -> Result<u64, DecodeError> {
        let found = self.number(what)?;
        if found > most { Err(DecodeError::TooLarge { what, found, most }) } else { Ok(found) }
    }

    pub(crate) fn number_u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        let found = self.number(what)?;
        u32::try_from(found).map_err(|_| DecodeError::TooLarge { what, found, most: u64::from(u32::MAX) })
    }

    pub(crate) fn number_u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        let found = self.number(what)?;
        u16::try_from(found).map_err(|_| DecodeError::TooLarge { what, found, most: u64::from(u16::MAX) })
    }

    /// Bytes behind their length, `most` at most.
    pub(crate) fn bytes(&mut self, most: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let count = self.number_up_to(most as u64, what)?;
        self.take(usize::try_from(count).unwrap_or(usize::MAX), what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_written() {
        for number in [0, 1, 0x7F, 0x80, 0x3FFF, 0x4000, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_number(&mut out, number);
            let mut reader = Reader::new(&out);
            assert_eq!(reader.number("it"), Ok(number));
            assert!(reader.is_empty());
            assert_eq!(Reader::new(&out[..out.len() - 1]).number("it"), Err(DecodeError::Truncated("it")));
        }
    }

    #[test]
    fn what_is_too_much_is_refused() {
        let endless = [0xFF; 11];
        assert!(matches!(Reader::new(&endless).number("it"), Err(DecodeError::TooLarge { .. })));
        let mut out = Vec::new();
        put_bytes(&mut out, b"four");
        assert_eq!(Reader::new(&out).bytes(4, "it"), Ok(&b"four"[..]));
        assert!(matches!(Reader::new(&out).bytes(3, "it"), Err(DecodeError::TooLarge { found: 4, most: 3, .. })));
        assert_eq!(Reader::new(&[200, 1, 0]).bytes(1000, "it"), Err(DecodeError::Truncated("it")));
    }
}
