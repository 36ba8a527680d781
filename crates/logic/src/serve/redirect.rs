//! Where a redirect sends a client: one place for all paths, or one below which each path has its own.

use std::fmt;

use super::path_pattern::PathPattern;
use crate::http::{as_uri, complete_path};

/// A place to be sent to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destination {
    /// A URL or a path, ready for a Location field.
    base: String,
    /// Whether what a path has after the pattern's own part is put behind it.
    appends: bool,
}

impl Destination {
    /// Reads `http://host/path`, `https://host/path` or `/path`, in the characters that a URL may have. With `/*` at its end the rest of the
    /// path goes there; `None` for anything else.
    #[must_use]
    pub fn parse(written: &str) -> Option<Destination> {
        let (base, appends) = match written.strip_suffix("/*") {
            Some(base) => (base, true),
            None => (written, false),
        };
        // RFC 3986, appendix A, without what would end a field, or begin a fragment before the query that is added.
        let is_url_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()+,;=:@/?[]".contains(&byte);
        if !base.bytes().all(is_url_byte) || appends && base.contains('?') {
            return None;
        }
        let host = ["http://", "https://"].iter().find_map(|scheme| base.strip_prefix(scheme));
        let is_place = match host {
            Some(host) => !host.is_empty() && !host.starts_with(['/', '?']),
            // Two slashes would begin a host.
            None => (base.starts_with('/') && !base.starts_with("//")) || (base.is_empty() && appends),
        };
        is_place.then(|| Destination { base: base.to_owned(), appends })
    }

    /// Whether what follows the pattern's own part of a path counts.
    #[must_use]
    pub fn appends(&self) -> bool {
        self.appends
    }

    /// Whether it may lead to one of `paths` at the same host.
    #[must_use]
    pub fn leads_to(&self, paths: &PathPattern) -> bool {
        let path = self.base.split('?').next().unwrap_or_default();
        let below = format!("{path}/x");
        (self.base.starts_with('/') || self.base.is_empty())
            && (paths.split(path.as_bytes()).is_some() || self.appends && paths.split(below.as_bytes()).is_some())
    }

    /// The value of the Location field for a path that ends in `rest` after the pattern's own part, with the escapes that it came with, and a query.
    #[must_use]
    pub fn location(&self, rest: &[u8], query: Option<&[u8]>) -> Vec<u8> {
        let mut location = self.base.clone().into_bytes();
        if self.appends {
            // A path that began with two slashes would be taken for a host.
            let doubled = if self.base.is_empty() { rest.iter().take_while(|&&byte| byte == b'/').count() } else { 1 };
            complete_path(&rest[doubled.saturating_sub(1).min(rest.len())..], &mut location);
        }
        if location.is_empty() {
            location.push(b'/');
        }
        if let Some(query) = query {
            location.push(if self.base.contains('?') { b'&' } else { b'?' });
            location.extend_from_slice(&as_uri(query));
        }
        location
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", self.base, if self.appends { "/*" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(to: &str, rest: &str, query: Option<&str>) -> String {
        let destination = Destination::parse(to).expect("a place");
        assert_eq!(destination.to_string(), to);
        String::from_utf8(destination.location(rest.as_bytes(), query.map(str::as_bytes))).expect("text")
    }

    #[test]
    fn what_follows_and_the_query_go_along() {
        assert_eq!(location("/new", "/x", None), "/new");
        assert_eq!(location("/new/*", "/x/y", Some("a=b")), "/new/x/y?a=b");
        assert_eq!(location("/new/*", "", None), "/new");
        assert_eq!(location("https://www.example.org/*", "/x y", None), "https://www.example.org/x%20y");
        assert_eq!(location("http://example.org/a?b=c", "", Some("d")), "http://example.org/a?b=c&d");
        assert_eq!(location("/*", "", None), "/");
        assert_eq!(location("/new/*", "/é", Some("é")), "/new/%C3%A9?%C3%A9");
        assert_eq!(location("/new/*", "/a%2Fb%3Bc;d", None), "/new/a%2Fb%3Bc;d");
    }

    #[test]
    fn nobody_is_sent_to_a_host_that_only_the_path_names() {
        assert_eq!(location("/*", "//evil.example/x", None), "/evil.example/x");
        assert_eq!(location("/*", "///evil.example", None), "/evil.example");
        assert_eq!(location("/*", "/\\evil.example", None), "/%5Cevil.example");
        assert_eq!(location("/a/*", "/\r\nSet-Cookie: x", None), "/a/%0D%0ASet-Cookie:%20x");
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for wrong in [
            "",
            "example.org",
            "//example.org",
            "ftp://example.org",
            "http://",
            "http:///x",
            "/a b",
            "/a*",
            "/a?b/*",
            "/a#b",
        ] {
            assert_eq!(Destination::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn what_leads_to_the_same_host_is_known() {
        let leads_to = |to: &str, paths: &str| {
            let paths = PathPattern::parse(paths).expect("a pattern");
            Destination::parse(to).expect("a place").leads_to(&paths)
        };
        assert!(leads_to("/new/*", "/*") && leads_to("/a", "/a") && leads_to("/*", "/x/*"));
        assert!(leads_to("/a?b=c", "/a"));
        assert!(!leads_to("/new/*", "/old/*") && !leads_to("/a/b", "/a"));
        assert!(!leads_to("http://example.org/*", "/*"), "the host may be another");
    }
}
