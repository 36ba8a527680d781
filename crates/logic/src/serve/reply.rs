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
            // Parts would have to be cut from one state of the content, and only a tag says that they were.
            RangeOutcome::Multiple(_) if resource.description.etag.is_none() => Plan::Whole,
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
