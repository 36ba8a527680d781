//! Entity tags and how they compare (RFC 9110 section 8.8.3).

/// A representation's tag: the opaque text between the quotes, and whether it is weak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityTag<'a> {
    /// `W/`: equal only in meaning, not byte for byte.
    pub weak: bool,
    /// What stands between the quotes.
    pub opaque: &'a [u8],
}

impl<'a> EntityTag<'a> {
    /// A tag that vouches for every byte; `None` when `opaque` has a quote, white space or a control character.
    #[must_use]
    pub fn strong(opaque: &'a [u8]) -> Option<EntityTag<'a>> {
        opaque.iter().all(|&byte| is_opaque_byte(byte)).then_some(EntityTag { weak: false, opaque })
    }

    /// Exactly one tag with nothing around it: `"x"` or `W/"x"`.
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Option<EntityTag<'a>> {
        match split_first(text)? {
            (tag, b"") => Some(tag),
            _ => None,
        }
    }

    /// Whether a field's whole value is a strong tag.
    #[must_use]
    pub fn is_strong(text: &[u8]) -> bool {
        EntityTag::parse(text).is_some_and(|tag| !tag.weak)
    }

    /// True when both are strong and the same.
    #[must_use]
    pub fn matches_strongly(&self, other: &EntityTag<'_>) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// True when the opaque texts are the same.
    #[must_use]
    pub fn matches_weakly(&self, other: &EntityTag<'_>) -> bool {
        self.opaque == other.opaque
    }
}

/// What a value of If-Match or If-None-Match lists.
pub(super) enum TagList<'a> {
    /// `*`
    Any,
    Tags(Tags<'a>),
}

impl<'a> TagList<'a> {
    pub(super) fn parse(value: &'a [u8]) -> TagList<'a> {
        if value == b"*" { TagList::Any } else { TagList::Tags(Tags { rest: value }) }
    }
}

/// The tags of a comma-separated list; ends at the first thing that is none.
pub(super) struct Tags<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Tags<'a> {
    type Item = EntityTag<'a>;

    fn next(&mut self) -> Option<EntityTag<'a>> {
        let start = self.rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
        let Some((tag, rest)) = split_first(&self.rest[start..]) else {
            self.rest = &[];
            return None;
        };
        self.rest = rest.trim_ascii_start();
        if !matches!(self.rest, [] | [b',', ..]) {
            self.rest = &[];
            return None;
        }
        Some(tag)
    }
}

fn split_first(text: &[u8]) -> Option<(EntityTag<'_>, &[u8])> {
    let (weak, quoted) = match text {
        [b'W', b'/', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let inside = quoted.strip_prefix(b"\"")?;
    let end = memchr::memchr(b'"', inside)?;
    let opaque = &inside[..end];
    opaque.iter().all(|&byte| is_opaque_byte(byte)).then_some((EntityTag { weak, opaque }, &inside[end + 1..]))
}

/// `etagc`: visible ASCII but the quote, and obs-text.
fn is_opaque_byte(byte: u8) -> bool {
    byte > b' ' && byte != b'"' && byte != 0x7F
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(value: &str) -> Vec<(bool, String)> {
        match TagList::parse(value.as_bytes()) {
            TagList::Any => vec![(false, "*".into())],
            TagList::Tags(tags) => {
                tags.map(|tag| (tag.weak, String::from_utf8_lossy(tag.opaque).into_owned())).collect()
            }
        }
    }

    #[test]
    fn lists() {
        let strong = |text: &str| (false, text.to_string());
        let weak = |text: &str| (true, text.to_string());
        assert_eq!(tags("*"), [strong("*")]);
        assert_eq!(tags("\"a\""), [strong("a")]);
        assert_eq!(tags("\"a\", W/\"b\" ,, \"c,d\""), [strong("a"), weak("b"), strong("c,d")]);
        assert_eq!(tags("\"\""), [strong("")]);
        assert_eq!(tags("\"a\" \"b\""), []);
        assert_eq!(tags("\"a\", b, \"c\""), [strong("a")]);
        assert_eq!(tags("w/\"a\""), []);
        assert_eq!(tags("\"a"), []);
        assert_eq!(tags("\"a b\""), []);
        assert_eq!(tags(""), []);
    }

    #[test]
    fn comparison_as_in_the_table_of_section_8_8_3_2() {
        let tag = |text: &'static [u8]| EntityTag::parse(text).expect("a tag");
        for (left, right, strongly, weakly) in [
            (&b"W/\"1\""[..], &b"W/\"1\""[..], false, true),
            (b"W/\"1\"", b"W/\"2\"", false, false),
            (b"W/\"1\"", b"\"1\"", false, true),
            (b"\"1\"", b"\"1\"", true, true),
        ] {
            assert_eq!(tag(left).matches_strongly(&tag(right)), strongly);
            assert_eq!(tag(left).matches_weakly(&tag(right)), weakly);
        }
        assert_eq!(EntityTag::parse(b"\"a\" "), None);
        assert_eq!(EntityTag::strong(b"a\"b"), None);
    }
}
