//! What isn't TOML at all, in words that say what to do. Finding it is the parser's.

use std::ops::Range;

use toml::de::DeTable;

use super::mistake::{Mistake, Severity};
use super::source::Source;

/// One mistake for each of `errors`. `root` is what could be read all the same.
pub(super) fn mistakes(errors: &[toml::de::Error], source: &Source, root: &DeTable<'_>) -> Vec<Mistake> {
    let mut mistakes: Vec<Mistake> = Vec::new();
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        let early = early_part(error, source, root);
        let span = early.as_ref().map_or(span, |early| early.place.clone());
        let line = source.line(span.start);
        // The first on a line is the cause, the others follow from it.
        let follows = |earlier: &Mistake| earlier.span.as_ref().is_some_and(|span| source.line(span.start) == line);
        if mistakes.iter().any(follows) {
            continue;
        }
        let text = source.text().get(span.clone()).unwrap_or_default();
        let (message, help) = early.map_or_else(|| words(error.message(), text), EarlyPart::words);
        mistakes.push(Mistake::new(Severity::Error, span, message, help));
    }
    mistakes
}

/// The section of a part that stands before the section whose part it is, as `[[site.handler]]` before `[[site]]`.
struct EarlyPart<'s> {
    place: Range<usize>,
    header: &'s str,
    whole: &'s str,
}

/// The one that has made of the list that an error is about a single table.
fn early_part<'s>(error: &toml::de::Error, source: &'s Source, root: &DeTable<'_>) -> Option<EarlyPart<'s>> {
    let (text, span) = (source.text(), error.span()?);
    let whole = text.get(span.clone())?;
    if error.message() != DUPLICATE || !text.get(..span.start)?.ends_with("[[") {
        return None;
    }
    let place = root.get(whole)?.span();
    let rest = text.get(place.end..)?;
    let line = source.line(place.start);
    let header = text.get(line.start..place.end + rest.find([']', '\n'])?)?.trim_start();
    let is_part = rest.starts_with('.') && header.trim_start_matches('[') != header;
    is_part.then_some(EarlyPart { place, header, whole })
}

impl EarlyPart<'_> {
    fn words(self) -> (String, String) {
        let EarlyPart { header, whole, .. } = self;
        let end = "]".repeat(header.len() - header.trim_start_matches('[').len());
        (
            format!("{header}{end} is before its [[{whole}]]"),
            format!("write it below the [[{whole}]] that it belongs to"),
        )
    }
}

/// What the parser says of a key that it has read already.
const DUPLICATE: &str = "duplicate key";

fn words(message: &str, text: &str) -> (String, String) {
    if message.starts_with("string values must be quoted") {
        return if text.is_empty() {
            ("the value is missing".to_owned(), "write a value after the equals sign".to_owned())
        } else {
            (format!("`{text}` has no quotes"), format!("write \"{text}\""))
        };
    }
    if message == DUPLICATE {
        let help = if text == "site" {
            "write [[site]] with double brackets: there may be several"
        } else {
            "take one of them out; the keys of a section stand together"
        };
        return (format!("`{text}` is there twice"), help.to_owned());
    }
    let help = match message {
        _ if message.starts_with("invalid boolean") => "write true or false, in lower case",
        _ if message.starts_with("key with no value") => "write key = value",
        _ if message.starts_with("missing comma") => "write a comma between the values",
        _ if message.starts_with("invalid basic string") => "a string ends with a double quote on the same line",
        _ => "",
    };
    let message = message.strip_suffix(", expected nothing").unwrap_or(message);
    (format!("this isn't TOML: {message}"), help.to_owned())
}
