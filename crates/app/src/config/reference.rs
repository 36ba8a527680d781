//! `docs/config.md`, from the sections.

/// The reference of every key, in Markdown.
pub fn reference() -> String {
    String::new()
}
