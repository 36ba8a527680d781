//! What all built-in pages share: their head and style, and how names are shown. Nothing that a file is called, or a client asked for, can
//! become markup.

/// The style of all built-in pages: no file to load, no script, light and dark, fit for a phone.
const STYLE: &str = include_str!("style.css");

/// Everything up to the body's content, for a title without markup.
pub(super) fn head(title: &str) -> String {
    let mut page = String::with_capacity(4_096);
    page.push_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    page.push_str(
        "<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"robots\" content=\"noindex\">\n<title>",
    );
    escape(title.as_bytes(), &mut page);
    page.push_str("</title>\n<style>\n");
    page.push_str(STYLE);
    page.push_str("</style>\n</head>\n<body>\n");
    page
}

/// Appends `name` as text or as the value of a quoted attribute. Bytes that aren't UTF-8 and control characters show as U+FFFD.
pub(super) fn escape(name: &[u8], out: &mut String) {
    for character in String::from_utf8_lossy(name).chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Overrides of writing direction would let one name pass for another.
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            _ if character.is_control() => out.push('\u{fffd}'),
            _ => out.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_through_as_markup() {
        let mut out = String::new();
        escape(b"<script>\"'&amp;\n\xff\xe2\x80\xae", &mut out);
        assert_eq!(out, "&lt;script&gt;&quot;&#39;&amp;amp;\u{fffd}\u{fffd}\u{fffd}");
    }
}
