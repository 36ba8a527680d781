//! Whether a conditional request is carried out (RFC 9110 section 13), and whether a range in it counts.

use super::date::HttpDate;
use super::entity_tag::{EntityTag, TagList};
use super::method::Method;
use super::request::Headers;
use crate::time::UnixTime;

/// The conditional fields of a request, and Range, as they were sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conditions<'i> {
    /// `If-Match`, first line.
    pub if_match: Option<&'i [u8]>,
    /// `If-None-Match`, first line.
    pub if_none_match: Option<&'i [u8]>,
    /// `If-Modified-Since`; `None` when it was repeated, as no list is a date.
    pub if_modified_since: Option<&'i [u8]>,
    /// `If-Unmodified-Since`; `None` when it was repeated.
    pub if_unmodified_since: Option<&'i [u8]>,
    /// `If-Range`.
    pub if_range: Option<&'i [u8]>,
    /// `Range`; `None` when it or If-Range was repeated: then nobody can say what was meant, and the whole is always right.
    pub range: Option<&'i [u8]>,
    /// Where further lines of the two list fields stand, when there are any.
    further_lines: Option<Headers<'i>>,
    seen: Seen,
}

/// Which fields were repeated.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    list_repeated: bool,
    modified_repeated: bool,
    unmodified_repeated: bool,
    range_repeated: bool,
}

/// What a representation can be recognised by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validators<'a> {
    /// Its tag.
    pub entity_tag: Option<EntityTag<'a>>,
    /// When it last changed. Only whole seconds count: a field carries no more.
    pub last_modified: Option<UnixTime>,
}

/// What the preconditions come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Carry the request out.
    Proceed,
    /// Answer 304 with the validators and without content.
    NotModified,
    /// Answer 412.
    Failed,
}

impl<'i> Conditions<'i> {
    pub(super) fn add_range(&mut self, value: &'i [u8]) {
        self.seen.range_repeated |= self.range.replace(value).is_some();
    }

    pub(super) fn add_if_range(&mut self, value: &'i [u8]) {
        self.seen.range_repeated |= self.if_range.replace(value).is_some();
    }

    pub(super) fn add_if_match(&mut self, value: &'i [u8]) {
        self.seen.list_repeated |= self.if_match.is_some();
        self.if_match = self.if_match.or(Some(value));
    }

    pub(super) fn add_if_none_match(&mut self, value: &'i [u8]) {
        self.seen.list_repeated |= self.if_none_match.is_some();
        self.if_none_match = self.if_none_match.or(Some(value));
    }

    pub(super) fn add_if_modified_since(&mut self, value: &'i [u8]) {
        self.seen.modified_repeated |= self.if_modified_since.replace(value).is_some();
    }

    pub(super) fn add_if_unmodified_since(&mut self, value: &'i [u8]) {
        self.seen.unmodified_repeated |= self.if_unmodified_since.replace(value).is_some();
    }

    /// Settles what repetition means, once every line has been added.
    pub(super) fn settle(&mut self, headers: Headers<'i>) {
        if self.seen.list_repeated {
            self.further_lines = Some(headers);
        }
        if self.seen.modified_repeated {
            self.if_modified_since = None;
        }
        if self.seen.unmodified_repeated {
            self.if_unmodified_since = None;
        }
        if self.seen.range_repeated {
            self.range = None;
        }
    }

    /// True when there is nothing to evaluate.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.if_match.is_none()
            && self.if_none_match.is_none()
            && self.if_modified_since.is_none()
            && self.if_unmodified_since.is_none()
    }

    /// Evaluates in the order of section 13.2.2. `current` is `None` when the target has no representation. `now` tells the century of
    /// dates with two-digit years. Call it only where the answer without conditions would be 2xx or 412 (section 13.2.1), and not
    /// for OPTIONS or TRACE.
    #[must_use]
    pub fn evaluate(&self, method: Method, current: Option<&Validators<'_>>, now: UnixTime) -> Precondition {
        if self.is_empty() {
            return Precondition::Proceed;
        }
        let tag = current.and_then(|current| current.entity_tag);
        let last_modified = current.and_then(|current| current.last_modified);
        if let Some(first) = self.if_match {
            if !self.lists(b"if-match", first, current.is_some(), |listed| {
                tag.is_some_and(|tag| listed.matches_strongly(&tag))
            }) {
                return Precondition::Failed;
            }
        } else if let (Some(date), Some(modified)) = (parse_date(self.if_unmodified_since, now), last_modified)
            && modified.seconds > date.unix_seconds()
        {
            return Precondition::Failed;
        }
        let safe = matches!(method, Method::Get | Method::Head);
        if let Some(first) = self.if_none_match {
            if self.lists(b"if-none-match", first, current.is_some(), |listed| {
                tag.is_some_and(|tag| listed.matches_weakly(&tag))
            }) {
                return if safe { Precondition::NotModified } else { Precondition::Failed };
            }
        } else if let (true, Some(date), Some(modified)) =
            (safe, parse_date(self.if_modified_since, now), last_modified)
            && modified.seconds <= date.unix_seconds()
        {
            return Precondition::NotModified;
        }
        Precondition::Proceed
    }

    /// True when a value of this field is `*` and there is a representation, or lists a tag that `is_match` takes.
    fn lists(&self, name: &[u8], first: &[u8], exists: bool, is_match: impl Fn(&EntityTag<'_>) -> bool) -> bool {
        let further = self.further_lines.unwrap_or_default();
        std::iter::once(first).chain(further.all(name).skip(1)).any(|value| match TagList::parse(value) {
            TagList::Any => exists,
            TagList::Tags(mut tags) => tags.any(|tag| is_match(&tag)),
        })
    }

    /// The Range value, if it is to be honoured: only in a GET (section 14.2), and only when If-Range, if given, names exactly
    /// the current representation (section 13.1.5). A date counts as exact only when the representation is older than it by a
    /// second at least: `last_modified` may otherwise have been followed by a change within the same second (section 8.8.2.2).
    #[must_use]
    pub fn applicable_range(&self, method: Method, current: &Validators<'_>, now: UnixTime) -> Option<&'i [u8]> {
        let range = self.range.filter(|_| method == Method::Get)?;
        let Some(validator) = self.if_range else { return Some(range) };
        let holds = if let Some(listed) = EntityTag::parse(validator) {
            current.entity_tag.is_some_and(|tag| listed.matches_strongly(&tag))
        } else {
            let date = HttpDate::parse(validator, now);
            date.zip(current.last_modified).is_some_and(|(date, modified)| {
                date.unix_seconds() == modified.seconds && modified.seconds < now.seconds
            })
        };
        holds.then_some(range)
    }
}

fn parse_date(value: Option<&[u8]>, now: UnixTime) -> Option<HttpDate> {
    HttpDate::parse(value?, now)
}
