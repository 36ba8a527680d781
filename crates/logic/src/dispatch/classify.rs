//! How a request is told to be dynamic: by method, cookie, path, extension or query, as configured. What follows from it is the policy's.

use std::fmt;

use super::facts::Facts;
use crate::serve::path_pattern::PathPattern;

/// When a query makes a request dynamic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueryRule {
    /// Always.
    Always,
    /// Where the path's last segment has no extension: `/search?q=x`, but not `/style.css?v=3`.
    #[default]
    Bare,
    /// Never.
    Never,
}

/// What makes a request dynamic. One rule that matches is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DynamicRules {
    /// Methods, as sent.
    pub methods: Vec<String>,
    /// Names of cookies.
    pub cookies: Vec<String>,
    /// Paths, compared before anything is decoded.
    pub paths: Vec<PathPattern>,
    /// Extensions without their dot, in lower case.
    pub extensions: Vec<String>,
    /// Whether by the query.
    pub query: QueryRule,
}

/// The rule by which a request was found dynamic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Its method.
    Method,
    /// A cookie that it carries.
    Cookie,
    /// Its path.
    Path,
    /// Its path's extension.
    Extension,
    /// Its query.
    Query,
}

/// Where a request is best served: where its content is, or where there is time for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The same content for everybody: by locality.
    Static,
    /// Made for the occasion: by load.
    Dynamic(Rule),
}

impl Class {
    /// Whether it is dynamic.
    #[must_use]
    pub fn is_dynamic(self) -> bool {
        matches!(self, Class::Dynamic(_))
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Static => "static",
            Class::Dynamic(Rule::Method) => "dynamic (by its method)",
            Class::Dynamic(Rule::Cookie) => "dynamic (by a cookie)",
            Class::Dynamic(Rule::Path) => "dynamic (by its path)",
            Class::Dynamic(Rule::Extension) => "dynamic (by its extension)",
            Class::Dynamic(Rule::Query) => "dynamic (by its query)",
        })
    }
}

impl DynamicRules {
    /// Which class a request is of; the first rule that matches is told.
    #[must_use]
    pub fn classify(&self, facts: &Facts<'_>) -> Class {
        let extension = facts.extension();
        let is_listed = |names: &[String], name: &[u8]| names.iter().any(|listed| listed.as_bytes() == name);
        let has_extension =
            |extension: &[u8]| self.extensions.iter().any(|listed| listed.as_bytes().eq_ignore_ascii_case(extension));
        if is_listed(&self.methods, facts.method) {
            Class::Dynamic(Rule::Method)
        } else if self.paths.iter().any(|paths| paths.split(facts.path).is_some()) {
            Class::Dynamic(Rule::Path)
        } else if extension.is_some_and(has_extension) {
            Class::Dynamic(Rule::Extension)
        } else if facts.query.is_some() && self.query.counts(extension.is_some()) {
            Class::Dynamic(Rule::Query)
        } else if facts.cookies.is_some_and(|cookies| self.has_cookie(cookies)) {
            Class::Dynamic(Rule::Cookie)
        } else {
            Class::Static
        }
    }

    fn has_cookie(&self, cookies: &[u8]) -> bool {
        // RFC 6265, section 4.2.1: pairs with a semicolon between them.
        !self.cookies.is_empty()
            && cookies.split(|byte| *byte == b';').any(|pair| {
                let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii();
                self.cookies.iter().any(|listed| listed.as_bytes() == name)
            })
    }
}

impl QueryRule {
    fn counts(self, has_extension: bool) -> bool {
        match self {
            QueryRule::Always => true,
            QueryRule::Bare => !has_extension,
            QueryRule::Never => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> DynamicRules {
        DynamicRules {
            methods: vec!["POST".into()],
            cookies: vec!["session".into()],
            paths: vec![PathPattern::parse("/cgi-bin/*").expect("a pattern")],
            extensions: vec!["php".into()],
            query: QueryRule::Bare,
        }
    }

    fn class(text: &str) -> Class {
        rules().classify(&Facts::written(text).expect("it has a path"))
    }

    #[test]
    fn each_rule_is_enough() {
        assert_eq!(class("/a.html"), Class::Static);
        assert_eq!(class("POST /a.html"), Class::Dynamic(Rule::Method));
        assert_eq!(class("/cgi-bin/x"), Class::Dynamic(Rule::Path));
        assert_eq!(class("/a.PHP"), Class::Dynamic(Rule::Extension));
        assert_eq!(class("/search?q"), Class::Dynamic(Rule::Query));
        assert_eq!(class("/a.css?v=3"), Class::Static);
        assert_eq!(DynamicRules::default().classify(&Facts::written("POST /x.php").expect("a path")), Class::Static);
    }

    #[test]
    fn a_cookie_counts_by_its_whole_name() {
        let with = |cookies: &'static str| {
            let facts = Facts { path: b"/", cookies: Some(cookies.as_bytes()), ..Facts::default() };
            rules().classify(&facts)
        };
        assert_eq!(with("a=1; session=x"), Class::Dynamic(Rule::Cookie));
        assert_eq!(with("sessions=x; b=session"), Class::Static);
        assert_eq!(with(";;=;"), Class::Static);
    }
}
