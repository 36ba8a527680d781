//! Sets of paths.

use std::path::Path;

use leat_logic::serve::path_pattern::PathPattern;

use super::{Text, Wrong};

/// One path, all below one, or all with an ending.
pub(in crate::config) const PATH_PATTERN: Text<PathPattern> =
    Text { description: "`\"/path\"`, `\"/path/*\"` or `\"*.ending\"`", example: "/app/*", parse: parse_pattern };

fn parse_pattern(written: &str, _: &Path) -> Result<PathPattern, Wrong> {
    match PathPattern::parse(written) {
        Some(pattern) => Ok(pattern),
        None => Wrong::new(
            "isn't a set of paths",
            "write \"/app\" for one path, \"/app/*\" for it and all below, \"*.php\" for all with an ending",
        ),
    }
}
