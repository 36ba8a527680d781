//! Sets of paths, and where redirects lead.

use std::path::Path;

use leat_logic::serve::path_pattern::PathPattern;
use leat_logic::serve::redirect::Destination;

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

/// A path and all below it.
pub(in crate::config) const BELOW: Text<PathPattern> =
    Text { description: "`\"/path/*\"`", example: "/inside/*", parse: parse_below };

fn parse_below(written: &str, base: &Path) -> Result<PathPattern, Wrong> {
    match parse_pattern(written, base) {
        Ok(below @ PathPattern::Below(_)) => Ok(below),
        Ok(PathPattern::Exact(path)) => {
            let all = path.trim_end_matches('/');
            Wrong::new("is one path", format!("write \"{all}/*\", which is it and all below it"))
        }
        Ok(PathPattern::Ending(_)) | Err(_) => {
            Wrong::new("isn't a path and all below it", "write it as in \"/inside/*\"; \"/*\" is all of the site")
        }
    }
}

/// A URL or a path, for some paths or for each its own.
pub(in crate::config) const DESTINATION: Text<Destination> = Text {
    description: "URL or path, with or without `/*` at its end",
    example: "https://www.example.org/*",
    parse: parse_destination,
};

fn parse_destination(written: &str, _: &Path) -> Result<Destination, Wrong> {
    match Destination::parse(written) {
        Some(destination) => Ok(destination),
        None => Wrong::new(
            "isn't a place to be sent to",
            "write \"http://host/path\", \"https://host/path\" or \"/path\"; with /* at its end the rest of each path goes there",
        ),
    }
}
