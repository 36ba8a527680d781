//! What isn't TOML at all, in words that say what to do. Finding it is the parser's.

use super::mistake::{Mistake, Severity};
use super::source::Source;

/// One mistake for each of `errors`.
pub(super) fn mistakes(errors: &[toml::de::Error], source: &Source) -> Vec<Mistake> {
    let mut mistakes: Vec<Mistake> = Vec::new();
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        let line = source.line(span.start);
        // The first on a line is the cause, the others follow from it.
        let follows = |earlier: &Mistake| earlier.span.as_ref().is_some_and(|span| source.line(span.start) == line);
        if mistakes.iter().any(follows) {
            continue;
        }
        let text = source.text().get(span.clone()).unwrap_or_default();
        let (message, help) = words(error.message(), text);
        mistakes.push(Mistake::new(Severity::Error, span, message, help));
    }
    mistakes
}

fn words(message: &str, text: &str) -> (String, String) {
    if message.starts_with("string values must be quoted") {
        return if text.is_empty() {
            ("the value is missing".to_owned(), "write a value after the equals sign".to_owned())
        } else {
            (format!("`{text}` has no quotes"), format!("write \"{text}\""))
        };
    }
    if message == "duplicate key" {
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
