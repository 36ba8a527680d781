//! The text of a file, from byte offsets to lines and columns. What is said about a place is left to `mistake`.

use std::ops::Range;

/// Longest piece of a line that an excerpt shows.
const EXCERPT_CHARACTERS_MAX: usize = 140;

/// A file's name and text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Source {
    name: String,
    text: String,
}

/// A line of the file with a part to underline.
pub(super) struct Excerpt {
    /// The line, or the piece of it around the part; control characters are blanks.
    pub(super) text: String,
    /// Characters before the part.
    pub(super) indent: usize,
    /// Characters of the part, 1 or more.
    pub(super) width: usize,
}

impl Source {
    pub(super) fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Source { name: name.into(), text: text.into() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Line and column, each from 1, columns in characters.
    pub(super) fn position(&self, offset: usize) -> (usize, usize) {
        let line = self.line(offset);
        let number = self.text.as_bytes()[..line.start].iter().filter(|byte| **byte == b'\n').count() + 1;
        let end = self.text.floor_char_boundary(offset.max(line.start));
        (number, self.text[line.start..end].chars().count() + 1)
    }

    /// The line that holds `offset`, without its end.
    pub(super) fn line(&self, offset: usize) -> Range<usize> {
        let offset = self.text.floor_char_boundary(offset);
        let start = self.text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
        let end = self.text[offset..].find('\n').map_or(self.text.len(), |newline| offset + newline);
        let end = if self.text[start..end].ends_with('\r') { end - 1 } else { end };
        start..end.max(start)
    }

    /// The first line of `span` with the part of it that is in `span`.
    pub(super) fn excerpt(&self, span: &Range<usize>) -> Excerpt {
        let line = self.line(span.start);
        let start = self.text.floor_char_boundary(span.start.clamp(line.start, line.end));
        let end = self.text.ceil_char_boundary(span.end.clamp(start, line.end));
        let mut indent = self.text[line.start..start].chars().count();
        let mut width = self.text[start..end].chars().count().max(1);
        let mut skip = 0;
        if indent + width > EXCERPT_CHARACTERS_MAX {
            width = width.min(EXCERPT_CHARACTERS_MAX / 2);
            skip = (indent + width).saturating_sub(EXCERPT_CHARACTERS_MAX);
            indent -= skip;
        }
        let shown = self.text[line].chars().skip(skip).take(EXCERPT_CHARACTERS_MAX);
        Excerpt { text: shown.map(|c| if c.is_control() { ' ' } else { c }).collect(), indent, width }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_from_one() {
        let source = Source::new("x", "ab\r\n\u{e9}\u{e9}=1\n");
        assert_eq!(source.position(0), (1, 1));
        assert_eq!(source.position(4), (2, 1));
        assert_eq!(source.position(8), (2, 3));
        assert_eq!(source.position(source.text.len()), (3, 1));
        assert_eq!(source.line(1), 0..2);
    }

    #[test]
    fn no_span_panics() {
        let text = format!("a\u{1f600}b\r\n\t{}\n\n", "\u{e9}".repeat(400));
        let source = Source::new("x", text.clone());
        for start in 0..text.len() + 3 {
            for length in [0, 1, 3, 500, 2000] {
                let excerpt = source.excerpt(&(start..start + length));
                assert!(excerpt.width >= 1);
                assert!(excerpt.text.chars().count() <= EXCERPT_CHARACTERS_MAX);
                source.position(start);
            }
        }
    }
}
