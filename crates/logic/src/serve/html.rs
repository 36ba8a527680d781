//! Names in HTML: nothing that a file is called, or a client asked for, can become markup.

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
