//! "Did you mean": the known word nearest to one that isn't known. Where a word is wanted is left to the reader and the kinds.

use super::schema::{Schema, Section};
use super::server::Config;

/// The word of `known` that `written` was probably meant to be.
pub(super) fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.to_lowercase();
    // A third of a word may be wrong: more, and the guess is more often wrong than right.
    let distance_max = (written.chars().count().max(3)) / 3;
    let distance = |word: &str| {
        let word = word.to_lowercase();
        // "warn" for "warning", "gzip" for "gz".
        let is_prefix = written.len() >= 2 && (written.starts_with(&word) || word.starts_with(&written));
        let distance = strsim::damerau_levenshtein(&written, &word);
        if is_prefix { distance.min(distance_max) } else { distance }
    };
    known
        .into_iter()
        .map(|word| (distance(word), word))
        .filter(|(distance, _)| *distance <= distance_max)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// What to do about the key `written`, which `schema` doesn't have.
pub(super) fn key(written: &str, schema: &Schema) -> String {
    if let Some(name) = nearest(written, schema.keys.iter().map(|key| key.name)) {
        return format!("did you mean `{name}`?");
    }
    let mut homes = Vec::new();
    visit(Config::SCHEMA, &mut |section| {
        if section.keys.iter().any(|key| key.name == written) {
            homes.push(section.place());
        }
    });
    if !homes.is_empty() {
        return format!("`{written}` belongs {}", homes.join(" or "));
    }
    let names: Vec<&str> = schema.keys.iter().map(|key| key.name).collect();
    format!("the keys here are {}", names.join(", "))
}

/// Calls `visitor` with `schema` and all that is nested in it, in the order of the reference.
pub(super) fn visit(schema: &'static Schema, visitor: &mut dyn FnMut(&'static Schema)) {
    visitor(schema);
    for key in schema.keys {
        if let Some(nested) = key.kind.nested() {
            visit(nested, visitor);
        }
    }
}
