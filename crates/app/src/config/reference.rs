//! `docs/config.md`, from the sections: what it says of a key is what the parser goes by.

use std::fmt::Write as _;

use super::schema::{Fallback, Key, Schema, Section};
use super::server::Config;
use super::suggest::visit;

const INTRODUCTION: &str = "\
<!-- Generated: cargo run -p leat -- reference config > docs/config.md -->

# Configuration

`leat serve --config leat.toml` serves the sites of a file in [TOML](https://toml.io). `leat check leat.toml` tells all that is wrong with
one, with line, column and cure; nothing is started. SIGHUP has a running leat read its file again: requests in progress end under the old
one, new ones begin under the new one, and a file with errors is refused as a whole while the old one goes on.

A file needs one site, and a site needs one key:

```toml
[[site]]
root = \"/srv/www\"
```

Keys that aren't in this reference are errors. In values,

- a **size** is a whole number with a unit: `B`, `KiB`, `MiB`, `GiB`, `TiB`, or `KB`, `MB`, `GB`, `TB`, which count by 1000; `0` needs none;
- a **rate** is a size for each second: `\"10MiB/s\"`; `0` needs no unit;
- a **percentage** is a whole number with its sign: `\"25%\"`;
- a **duration** is one or more whole numbers with units `ms`, `s`, `m`, `h`, `d`, larger ones first: `\"1m30s\"`; `0` needs no unit;
- an **address and port** is `\"192.0.2.1:80\"` or `\"[2001:db8::1]:80\"`; `0.0.0.0` is every IPv4 address, `[::]` every IPv6 address;
- a **list** of one may be written without its brackets;
- a **path** to a file or directory that doesn't begin with a slash starts where the configuration file is.

A request goes to the site that has its host, among the sites that listen on the address that it came in by: first a host written in full,
then the longest wildcard, then the site without hosts. Where there is none, the answer is 421.
";

/// The reference of every key, in Markdown.
pub fn reference() -> String {
    let mut page = INTRODUCTION.to_owned();
    visit(Config::SCHEMA, &mut |schema| section(schema, &mut page));
    page
}

fn section(schema: &Schema, page: &mut String) {
    let title = if schema.header.is_empty() { "The top level".to_owned() } else { format!("`{}`", schema.header) };
    // Writing to a string can't fail.
    let _ = write!(page, "\n## {title}\n\n{}\n\n", sentence(schema.doc));
    page.push_str("| key | type | default | meaning |\n|---|---|---|---|\n");
    for key in schema.keys {
        let _ = writeln!(page, "| `{}` | {} | {} | {} |", key.name, kind(key), fallback(key), meaning(key));
    }
    let mut words: Vec<(&str, &str)> = Vec::new();
    for word in schema.keys.iter().flat_map(|key| key.kind.words()) {
        if !words.contains(&word) {
            words.push(word);
        }
    }
    if !words.is_empty() {
        page.push('\n');
    }
    for (word, about) in words {
        let _ = writeln!(page, "- `\"{word}\"`: {about}.");
    }
    let _ = write!(page, "\n```toml\n{}```\n", schema.example);
}

fn kind(key: &Key) -> String {
    match key.kind.nested() {
        Some(schema) => format!("[`{}`](#{})", schema.header, anchor(schema.header)),
        None => key.kind.describe(),
    }
}

fn fallback(key: &Key) -> String {
    match key.fallback {
        Fallback::Toml(text) => format!("`{text}`"),
        Fallback::Limits(_) => "as in `[limits]`".to_owned(),
        Fallback::Schedule(_) => "as in `[schedule]`".to_owned(),
        Fallback::Otherwise(text) => text.to_owned(),
        Fallback::Required => "none: must be written".to_owned(),
    }
}

fn meaning(key: &Key) -> String {
    sentence(key.doc)
}

/// Lines of a doc comment as one.
fn sentence(doc: &[&str]) -> String {
    doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// The name that Markdown renderers give a heading.
fn anchor(header: &str) -> String {
    header.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')).collect()
}
