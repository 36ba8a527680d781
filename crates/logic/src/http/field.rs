//! Field names and values that are safe to write: a value of these types can't end its line (RFC 9110 sections 5.1 and 5.5). And what a value lists.

/// True for a `tchar` (RFC 9110 section 5.6.2).
pub(super) const fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        )
}

/// What a field lists (RFC 9110 section 5.6.1), with what is empty between two commas.
pub(super) fn members(value: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// Why bytes are no field name or value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidField {
    /// Empty, or a byte at this offset that is no token byte.
    #[error("a field name must be letters, digits and !#$%&'*+-.^_`|~: the byte at offset {0} is not")]
    Name(usize),
    /// A control character at this offset.
    #[error("a field value must not have control characters: there is one at offset {0}")]
    Value(usize),
}

/// A field name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldName<'a>(&'a [u8]);

impl<'a> FieldName<'a> {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// [`InvalidField::Name`] when it is empty or not a token.
    pub const fn new(name: &'a [u8]) -> Result<FieldName<'a>, InvalidField> {
        if name.is_empty() {
            return Err(InvalidField::Name(0));
        }
        let mut at = 0;
        while at < name.len() {
            if !is_token_byte(name[at]) {
                return Err(InvalidField::Name(at));
            }
            at += 1;
        }
        Ok(FieldName(name))
    }

    /// A name that is written in the source: in a `const` a mistake doesn't compile.
    ///
    /// # Panics
    ///
    /// When it is no token.
    #[must_use]
    pub const fn literal(name: &'static str) -> FieldName<'static> {
        match FieldName::new(name.as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("not a field name"),
        }
    }

    /// The name.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

/// A field value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldValue<'a>(&'a [u8]);

impl<'a> FieldValue<'a> {
    /// Checks a value.
    ///
    /// # Errors
    ///
    /// [`InvalidField::Value`] when it has a control character other than a tab.
    pub const fn new(value: &'a [u8]) -> Result<FieldValue<'a>, InvalidField> {
        let mut at = 0;
        while at < value.len() {
            if (value[at] < b' ' && value[at] != b'\t') || value[at] == 0x7F {
                return Err(InvalidField::Value(at));
            }
            at += 1;
        }
        Ok(FieldValue(value))
    }

    /// A value that is written in the source: in a `const` a mistake doesn't compile.
    ///
    /// # Panics
    ///
    /// When it has a control character.
    #[must_use]
    pub const fn literal(value: &'static str) -> FieldValue<'static> {
        match FieldValue::new(value.as_bytes()) {
            Ok(value) => value,
            Err(_) => panic!("not a field value"),
        }
    }

    /// The value.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_tokens() {
        assert_eq!(FieldName::new(b"X-A!#$%&'*+-.^_`|~9").map(|name| name.as_bytes().len()), Ok(19));
        for (name, at) in [(&b""[..], 0), (b"a:", 1), (b"a b", 1), (b"\xe9", 0), (b"a\r\nb", 1), (b"ab(", 2)] {
            assert_eq!(FieldName::new(name), Err(InvalidField::Name(at)));
        }
    }

    #[test]
    fn values_cannot_end_their_line() {
        assert!(FieldValue::new("tab\t and é".as_bytes()).is_ok());
        for byte in (0..b' ').filter(|&byte| byte != b'\t').chain([0x7F]) {
            assert_eq!(FieldValue::new(&[b'a', byte]), Err(InvalidField::Value(1)));
        }
    }
}
