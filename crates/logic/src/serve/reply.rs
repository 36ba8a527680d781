//! What is sent for a resource: which status, which bytes, which field lines (RFC 9110 sections 13 to 15).

use crate::http::{
    Boundary, ByteRange, ByteRanges, Conditions, FieldValue, Method, MultipartRanges, Precondition, RangeOutcome,
    Status,
};
use crate::time::UnixTime;

use super::resource::Resource;

/// What a reply to GET consists of; one to HEAD has the same status and fields, and no content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "lives on the stack for one request")]
pub enum Plan {
    /// 200, all bytes.
    Whole,
    /// 206, one run of bytes.
    Range(ByteRange),
    /// 206, several runs, each with a head before it.
    Ranges(ByteRanges),
    /// 304, no content.
    NotModified,
    /// 412: the client's condition doesn't hold.
    PreconditionFailed,
    /// 416: nothing of what is asked exists.
    Unsatisfiable,
}

impl Plan {
    /// What a GET or HEAD with these conditions gets. The order is that of RFC 9110 section 13.2.2: conditions, then If-Range, then Range.
    #[must_use]
    pub fn for_resource<F>(method: Method, conditions: &Conditions<'_>, resource: &Resource<F>, now: UnixTime) -> Plan {
        if conditions.is_empty() && conditions.range.is_none() {
            return Plan::Whole;
        }
        let validators = resource.validators();
        match conditions.evaluate(method, Some(&validators), now) {
            Precondition::NotModified => return Plan::NotModified,
            Precondition::Failed => return Plan::PreconditionFailed,
            Precondition::Proceed => {}
        }
        let Some(range) = conditions.applicable_range(method, &validators, now) else { return Plan::Whole };
        match RangeOutcome::evaluate(range, resource.description.len_bytes) {
            RangeOutcome::Whole => Plan::Whole,
            RangeOutcome::Single(range) => Plan::Range(range),
            RangeOutcome::Multiple(ranges) => Plan::Ranges(ranges),
            RangeOutcome::Unsatisfiable => Plan::Unsatisfiable,
        }
    }

    /// The reply's status.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Plan::Whole => Status::OK,
            Plan::Range(_) | Plan::Ranges(_) => Status::PARTIAL_CONTENT,
            Plan::NotModified => Status::NOT_MODIFIED,
            Plan::PreconditionFailed => Status::PRECONDITION_FAILED,
            Plan::Unsatisfiable => Status::RANGE_NOT_SATISFIABLE,
        }
    }

    /// Appends the field lines that the resource and the plan ask for, each with its CRLF. For 412 and 416 that leaves Content-Type and
    /// Content-Length to the page that goes with them. `boundary` is used for several ranges only.
    pub fn push_fields<F>(&self, resource: &Resource<F>, boundary: Boundary, out: &mut Vec<u8>) {
        match self {
            Plan::Whole => out.extend_from_slice(resource.fields_whole()),
            Plan::Range(range) => {
                out.extend_from_slice(resource.fields_range());
                out.extend_from_slice(
                    format!(
                        "Content-Range: bytes {}-{}/{}\r\nContent-Length: {}\r\n",
                        range.first,
                        range.last,
                        resource.description.len_bytes,
                        range.length()
                    )
                    .as_bytes(),
                );
            }
            Plan::Ranges(ranges) => {
                let multipart = multipart(resource, boundary);
                out.extend_from_slice(resource.fields_multipart());
                out.extend_from_slice(b"Content-Type: ");
                multipart.push_content_type(out);
                out.extend_from_slice(
                    format!("\r\nContent-Length: {}\r\n", multipart.content_length(ranges)).as_bytes(),
                );
            }
            Plan::NotModified => out.extend_from_slice(resource.fields_not_modified()),
            Plan::PreconditionFailed => {}
            Plan::Unsatisfiable => {
                out.extend_from_slice(
                    format!("Content-Range: bytes */{}\r\n", resource.description.len_bytes).as_bytes(),
                );
            }
        }
    }
}

/// The framing of a reply with several ranges.
#[must_use]
pub fn multipart<F>(resource: &Resource<F>, boundary: Boundary) -> MultipartRanges<'_> {
    let octets = FieldValue::literal("application/octet-stream");
    MultipartRanges {
        boundary,
        // A type that a configuration got wrong can't add a line.
        content_type: FieldValue::new(&resource.description.content_type).unwrap_or(octets),
        complete_length: resource.description.len_bytes,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::serve::coding::{Coding, CodingSet};
    use crate::serve::etag::ETag;
    use crate::serve::resource::{Content, Description};

    const MODIFIED: UnixTime = UnixTime { seconds: 784_111_777, nanoseconds: 5 };
    const NOW: UnixTime = UnixTime { seconds: 784_111_900, nanoseconds: 0 };
    const DATE: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";
    const CONTENT: &[u8] = b"0123456789";

    fn resource(has_tag: bool) -> Resource<()> {
        let description = Description {
            len_bytes: 10,
            etag: has_tag.then(|| ETag::of(CONTENT)),
            modified: Some(MODIFIED),
            content_type: Bytes::from_static(b"text/plain"),
            coding: None,
            siblings: CodingSet::default().with(Coding::Gzip),
        };
        Resource::new(description, Content::Memory(Bytes::from_static(CONTENT)), b"Cache-Control: no-cache\r\n")
    }

    fn plan(has_tag: bool, method: Method, set: impl FnOnce(&mut Conditions<'static>)) -> Plan {
        let mut conditions = Conditions::default();
        set(&mut conditions);
        Plan::for_resource(method, &conditions, &resource(has_tag), NOW)
    }

    fn fields(plan: &Plan) -> String {
        let mut out = Vec::new();
        plan.push_fields(&resource(true), Boundary::from_number(7), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn without_conditions_all_of_it_is_sent() {
        let whole = plan(true, Method::Get, |_| {});
        assert_eq!((whole, whole.status()), (Plan::Whole, Status::OK));
        let tag = String::from_utf8(ETag::of(CONTENT).as_bytes().to_vec()).unwrap();
        let expected = format!(
            "ETag: {tag}\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nVary: Accept-Encoding\r\nCache-Control: no-cache\r\n\
             Accept-Ranges: bytes\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n"
        );
        assert_eq!(fields(&whole), expected);
    }

    #[test]
    fn a_client_that_has_it_gets_validators_and_what_caches_need() {
        let unchanged = plan(true, Method::Get, |conditions| conditions.if_modified_since = Some(DATE));
        assert_eq!(unchanged, Plan::NotModified);
        let lines = fields(&unchanged);
        for needed in ["ETag: ", "Vary: ", "Cache-Control: "] {
            assert!(lines.contains(needed), "{needed} is missing");
        }
        assert!(!lines.contains("Content-"));
        // A condition comes before a range.
        let both = |conditions: &mut Conditions<'static>| {
            conditions.if_none_match = Some(b"*");
            conditions.range = Some(b"bytes=0-1");
        };
        assert_eq!(plan(true, Method::Head, both), Plan::NotModified);
        assert_eq!(
            plan(true, Method::Get, |conditions| conditions.if_match = Some(b"\"other\"")),
            Plan::PreconditionFailed
        );
    }

    #[test]
    fn a_range_is_for_get_and_for_what_the_client_has_part_of() {
        let range = |conditions: &mut Conditions<'static>| conditions.range = Some(b"bytes=2-4");
        let part = plan(true, Method::Get, range);
        assert_eq!(part, Plan::Range(ByteRange { first: 2, last: 4 }));
        assert!(
            fields(&part).ends_with("Content-Type: text/plain\r\nContent-Range: bytes 2-4/10\r\nContent-Length: 3\r\n")
        );
        assert_eq!(plan(true, Method::Head, range), Plan::Whole);
        let stale = |conditions: &mut Conditions<'static>| {
            conditions.range = Some(b"bytes=2-4");
            conditions.if_range = Some(b"\"other\"");
        };
        assert_eq!(plan(true, Method::Get, stale), Plan::Whole);
        let none = plan(true, Method::Get, |conditions| conditions.range = Some(b"bytes=10-"));
        assert_eq!((none, fields(&none).as_str()), (Plan::Unsatisfiable, "Content-Range: bytes */10\r\n"));
    }

    #[test]
    fn several_ranges_say_their_exact_length() {
        let ranges = |conditions: &mut Conditions<'static>| conditions.range = Some(b"bytes=0-1,5-6");
        assert!(matches!(plan(false, Method::Get, ranges), Plan::Ranges(_)), "a tag isn't needed");
        let parts = plan(true, Method::Get, ranges);
        let Plan::Ranges(ranges) = &parts else { panic!("{parts:?}") };
        let (resource, boundary) = (resource(true), Boundary::from_number(7));
        let multipart = multipart(&resource, boundary);
        let mut body = Vec::new();
        for &range in ranges.as_slice() {
            multipart.push_part_head(&mut body, range);
            body.extend_from_slice(&CONTENT[range.first as usize..=range.last as usize]);
        }
        multipart.push_end(&mut body);
        let lines = fields(&parts);
        assert!(lines.contains("Content-Type: multipart/byteranges; boundary="));
        assert!(!lines.contains("Content-Type: text/plain"));
        assert!(lines.ends_with(&format!("Content-Length: {}\r\n", body.len())));
    }
}
