//! Which paths of a site a handler answers for: one path, all below one, or all that end alike.

use std::fmt;

/// A set of decoded paths, without dot segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathPattern {
    /// This path alone.
    Exact(Box<str>),
    /// This path and everything below it; written with `/*` at its end, kept without.
    Below(Box<str>),
    /// Every path that ends so; written with `*` at its start, kept without.
    Ending(Box<str>),
}

impl Default for PathPattern {
    fn default() -> PathPattern {
        PathPattern::Below("".into())
    }
}

impl PathPattern {
    /// Reads `/path`, `/path/*` or `*.ending`; `None` for anything else.
    #[must_use]
    pub fn parse(written: &str) -> Option<PathPattern> {
        let has_dots = |path: &str| path.split('/').skip(1).any(|segment| matches!(segment, "" | "." | ".."));
        if let Some(ending) = written.strip_prefix('*') {
            let is_ending = !ending.is_empty() && !ending.contains(['*', '/', '\0']);
            return is_ending.then(|| PathPattern::Ending(ending.into()));
        }
        if !written.starts_with('/') || written.contains('\0') {
            return None;
        }
        if let Some(prefix) = written.strip_suffix("/*") {
            return (!prefix.contains('*') && !has_dots(prefix)).then(|| PathPattern::Below(prefix.into()));
        }
        let is_path = !written.contains('*') && (written == "/" || !has_dots(written));
        is_path.then(|| PathPattern::Exact(written.into()))
    }

    /// How many bytes of `path` name the handler (`SCRIPT_NAME` of RFC 3875); what follows is for the handler. `None` if the path isn't one
    /// of these.
    #[must_use]
    pub fn split(&self, path: &[u8]) -> Option<usize> {
        match self {
            PathPattern::Exact(exact) => (path == exact.as_bytes()).then_some(path.len()),
            PathPattern::Below(prefix) => {
                let rest = path.strip_prefix(prefix.as_bytes())?;
                let is_below = rest.first().map_or(!prefix.is_empty(), |&byte| byte == b'/');
                is_below.then_some(prefix.len())
            }
            PathPattern::Ending(ending) => path.ends_with(ending.as_bytes()).then_some(path.len()),
        }
    }
}

impl PathPattern {
    /// Whether every path of `other` is one of these.
    #[must_use]
    pub fn covers(&self, other: &PathPattern) -> bool {
        match (self, other) {
            (_, PathPattern::Exact(path)) => self.split(path.as_bytes()).is_some(),
            (PathPattern::Below(ours), PathPattern::Below(theirs)) => {
                ours == theirs || self.split(theirs.as_bytes()).is_some()
            }
            (PathPattern::Below(ours), PathPattern::Ending(_)) => ours.is_empty(),
            (PathPattern::Ending(ours), PathPattern::Ending(theirs)) => theirs.ends_with(&**ours),
            (PathPattern::Exact(_), _) | (PathPattern::Ending(_), PathPattern::Below(_)) => false,
        }
    }

    /// As [`PathPattern::split`], where an ending is a segment's and not the path's: `/a.php/b` by `*.php`. The first one counts.
    #[must_use]
    pub fn split_within(&self, path: &[u8]) -> Option<usize> {
        let PathPattern::Ending(ending) = self else { return None };
        let mut found = memchr::memmem::find_iter(path, ending.as_bytes()).map(|at| at + ending.len());
        found.find(|&end| path.get(end) == Some(&b'/'))
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathPattern::Exact(path) => formatter.write_str(path),
            PathPattern::Below(path) => write!(formatter, "{path}/*"),
            PathPattern::Ending(ending) => write!(formatter, "*{ending}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PathPattern;

    fn split(pattern: &str, path: &str) -> Option<usize> {
        let parsed = PathPattern::parse(pattern).expect("a pattern");
        assert_eq!(parsed.to_string(), pattern);
        parsed.split(path.as_bytes())
    }

    #[test]
    fn one_may_cover_another() {
        let covers = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|pattern| PathPattern::parse(pattern).expect("a pattern"));
            one.covers(&other)
        };
        for (one, other) in [
            ("/*", "/*"),
            ("/*", "/"),
            ("/*", "*.php"),
            ("/a/*", "/a"),
            ("/a/*", "/a/b/*"),
            ("*.php", "*.x.php"),
            ("*.php", "/a.php"),
            ("/a", "/a"),
        ] {
            assert!(covers(one, other), "{one} {other}");
        }
        for (one, other) in [
            ("/a/*", "/*"),
            ("/a/*", "/ab/*"),
            ("/a/*", "/ab"),
            ("/a", "/a/*"),
            ("*.php", "/*"),
            ("/a/*", "*.php"),
            ("*.x.php", "*.php"),
        ] {
            assert!(!covers(one, other), "{one} {other}");
        }
    }

    #[test]
    fn an_ending_may_be_a_segments() {
        let split = |pattern: &str, path: &str| {
            PathPattern::parse(pattern).and_then(|pattern| pattern.split_within(path.as_bytes()))
        };
        assert_eq!(split("*.php", "/a.php/b"), Some(6));
        assert_eq!(split("*.php", "/a.php5/b.php/c.php/"), Some(13));
        for (pattern, path) in [("*.php", "/a.php"), ("*.php", "/a.phpx/b"), ("/a.php/*", "/a.php/b"), ("*.php", "/")] {
            assert_eq!(split(pattern, path), None, "{pattern} {path}");
        }
    }

    #[test]
    fn paths_are_matched_and_divided() {
        assert_eq!(split("/app", "/app"), Some(4));
        assert_eq!(split("/app", "/app/"), None);
        assert_eq!(split("/app/*", "/app"), Some(4));
        assert_eq!(split("/app/*", "/app/x/y"), Some(4));
        assert_eq!(split("/app/*", "/apple"), None);
        assert_eq!(split("/*", "/"), Some(0));
        assert_eq!(split("/*", "/x"), Some(0));
        assert_eq!(split("/*", ""), None, "`*` of OPTIONS is no path");
        assert_eq!(split("*.php", "/a/b.php"), Some(8));
        assert_eq!(split("*.php", "/a/b.php/c"), None);
        assert_eq!(split("/", "/"), Some(1));
    }

    #[test]
    fn what_could_mean_two_things_is_no_pattern() {
        for wrong in ["", "app", "/a/*/b", "/a*", "*", "*/x", "//", "/a//b/*", "/../*", "/a/./b", "/x\0", "**.php"] {
            assert_eq!(PathPattern::parse(wrong), None, "{wrong:?}");
        }
    }
}
