//! What is wrong with a file and how it is told: place, line, caret, cure. What counts as a mistake is left to the kinds and to `check`.

use std::fmt::{self, Write as _};
use std::ops::Range;

use super::source::Source;

/// How bad a mistake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file can't be used.
    Error,
    /// The file can be used, though hardly as it was meant.
    Warning,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Mistake {
    /// How bad.
    pub severity: Severity,
    /// Where: bytes of the file; `None` when it is the file itself.
    pub span: Option<Range<usize>>,
    /// What is wrong.
    pub message: String,
    /// What would be right; empty when there is nothing to say.
    pub help: String,
    /// Another place that has to do with it, and how.
    pub note: Option<(Range<usize>, String)>,
}

impl Mistake {
    pub(super) fn new(
        severity: Severity,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Mistake { severity, span: Some(span), message: message.into(), help: help.into(), note: None }
    }

    pub(super) fn with_note(mut self, span: Range<usize>, text: impl Into<String>) -> Self {
        self.note = Some((span, text.into()));
        self
    }
}

/// All that is wrong with one file, in its order. Displays as a compiler would: `leat.toml:12:8: error: ...`, the line, a caret, the cure.
#[derive(Clone, Debug, PartialEq)]
pub struct Mistakes {
    source: Source,
    entries: Vec<Mistake>,
}

impl Mistakes {
    pub(super) fn new(source: Source, mut entries: Vec<Mistake>) -> Self {
        entries.sort_by_key(|mistake| mistake.span.as_ref().map_or((0, 0), |span| (span.start, span.end)));
        entries.dedup();
        Mistakes { source, entries }
    }

    /// A file that couldn't even be read.
    pub(super) fn of_file(source: Source, message: impl Into<String>, help: impl Into<String>) -> Self {
        let entry =
            Mistake { severity: Severity::Error, span: None, message: message.into(), help: help.into(), note: None };
        Mistakes { source, entries: vec![entry] }
    }

    /// In the order of the file.
    pub fn entries(&self) -> &[Mistake] {
        &self.entries
    }

    /// Neither errors nor warnings.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many errors.
    pub fn errors(&self) -> usize {
        self.entries.iter().filter(|mistake| mistake.severity == Severity::Error).count()
    }

    /// How many warnings.
    pub fn warnings(&self) -> usize {
        self.entries.len() - self.errors()
    }
}

impl std::error::Error for Mistakes {}

impl fmt::Display for Mistakes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.entries.iter().enumerate() {
            if index > 0 {
                writeln!(formatter)?;
            }
            self.show(mistake, formatter)?;
        }
        Ok(())
    }
}

/// Text that may have come from the file, whose control characters mean nothing to a terminal or to a log: they're shown as TOML writes them.
struct Harmless<'a>(&'a str);

impl fmt::Display for Harmless<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '\n' => formatter.write_str("\\n"),
            _ if character.is_control() => write!(formatter, "\\u{:04X}", u32::from(character)),
            _ => formatter.write_char(character),
        })
    }
}

impl Mistakes {
    fn show(&self, mistake: &Mistake, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match mistake.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let name = Harmless(self.source.name());
        let (message, help) = (Harmless(&mistake.message), Harmless(&mistake.help));
        let Some(span) = &mistake.span else {
            writeln!(formatter, "{name}: {severity}: {message}")?;
            return if mistake.help.is_empty() { Ok(()) } else { writeln!(formatter, "  = help: {help}") };
        };
        let (line, column) = self.source.position(span.start);
        writeln!(formatter, "{name}:{line}:{column}: {severity}: {message}")?;
        let gutter = " ".repeat(line.to_string().len());
        let excerpt = self.source.excerpt(span);
        writeln!(formatter, "{gutter} |")?;
        writeln!(formatter, "{line} | {}", excerpt.text)?;
        writeln!(formatter, "{gutter} | {}{}", " ".repeat(excerpt.indent), "^".repeat(excerpt.width))?;
        if let Some((place, text)) = &mistake.note {
            let (line, column) = self.source.position(place.start);
            let text = Harmless(text);
            writeln!(formatter, "{gutter} = note: {text} at {name}:{line}:{column}")?;
        }
        if !mistake.help.is_empty() {
            writeln!(formatter, "{gutter} = help: {help}")?;
        }
        Ok(())
    }
}
