//! Why a request is refused: for each reason one status, one metric label, one sentence for a human.
//!
//! A refused request always closes its connection: after bytes that could not be understood, or that were not read, nobody can say where
//! the next request begins.

use super::status::Status;

/// A refusal, to be answered with `status` and then closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// What to answer.
    pub status: Status,
    /// Why.
    pub reason: RejectReason,
    /// Whether the connection ends after the answer: always, today.
    pub close: bool,
}

impl From<RejectReason> for Rejection {
    fn from(reason: RejectReason) -> Rejection {
        Rejection { status: reason.status(), reason, close: true }
    }
}

macro_rules! reasons {
    ($($name:ident $status:ident $label:literal $sentence:literal)*) => {
        /// Why a request is refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
        pub enum RejectReason {
            $(
                #[doc = $sentence]
                #[error($sentence)]
                $name,
            )*
        }

        impl RejectReason {
            /// Every reason, in the order of [`RejectReason::index`].
            pub const ALL: &'static [RejectReason] = &[$(RejectReason::$name),*];

            /// What is answered.
            #[must_use]
            pub const fn status(self) -> Status {
                match self { $(RejectReason::$name => Status::$status,)* }
            }

            /// The metric label: lower case, words joined by underscores.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(RejectReason::$name => $label,)* }
            }

            /// One sentence that names what is wrong, for an error page and a log.
            #[must_use]
            pub const fn sentence(self) -> &'static str {
                match self { $(RejectReason::$name => $sentence,)* }
            }
        }
    };
}

reasons! {
    RequestLine BAD_REQUEST "request_line" "The request line is not a method, a space, a target, a space and a version."
    EmptyLines BAD_REQUEST "empty_lines" "There are too many empty lines before the request line."
    TlsOnPlainPort BAD_REQUEST "tls_on_plain_port" "TLS was spoken to a port that expects plain HTTP."
    Http2Preface HTTP_VERSION_NOT_SUPPORTED "http2_preface" "HTTP/2 was spoken to a port that expects HTTP/1.1."
    Version HTTP_VERSION_NOT_SUPPORTED "version" "The version is not HTTP/1."
    BareLineFeed BAD_REQUEST "bare_line_feed" "A line of the head ends in LF without CR."
    BareCarriageReturn BAD_REQUEST "bare_carriage_return" "The head has a CR that no LF follows."
    FoldedLine BAD_REQUEST "folded_line" "A header line begins with white space: line folding is obsolete."
    SpaceBeforeColon BAD_REQUEST "space_before_colon" "White space stands between a field name and its colon."
    FieldName BAD_REQUEST "field_name" "A header line has no valid field name before a colon."
    FieldValue BAD_REQUEST "field_value" "A field value has a control character."
    HeadTooLong REQUEST_HEADER_FIELDS_TOO_LARGE "head_too_long" "The head is longer than this server accepts."
    TooManyFields REQUEST_HEADER_FIELDS_TOO_LARGE "too_many_fields" "The head has more fields than this server accepts."
    RequestLineTooLong URI_TOO_LONG "request_line_too_long" "The request line is longer than this server accepts."
    TargetTooLong URI_TOO_LONG "target_too_long" "The request target is longer than this server accepts."
    TargetForm BAD_REQUEST "target_form" "The request target is neither a path nor a whole http URI."
    TargetByte BAD_REQUEST "target_byte" "The request target has a byte that must be percent-encoded."
    Connect NOT_IMPLEMENTED "connect" "This server makes no tunnels: CONNECT is not implemented."
    HostMissing BAD_REQUEST "host_missing" "An HTTP/1.1 request must have a Host field."
    HostRepeated BAD_REQUEST "host_repeated" "The request has more than one Host field."
    HostInvalid BAD_REQUEST "host_invalid" "The Host field is not a host name or address with an optional port."
    ContentLengthInvalid BAD_REQUEST "content_length_invalid" "Content-Length is not a decimal number."
    ContentLengthRepeated BAD_REQUEST "content_length_repeated" "The request has more than one Content-Length."
    LengthConflict BAD_REQUEST "length_conflict" "The request has both Content-Length and Transfer-Encoding."
    TransferEncodingInvalid BAD_REQUEST "transfer_encoding_invalid" "Transfer-Encoding does not end in exactly one chunked."
    TransferEncodingUnknown NOT_IMPLEMENTED "transfer_encoding_unknown" "The only transfer coding that this server knows is chunked."
    TransferEncodingVersion BAD_REQUEST "transfer_encoding_version" "HTTP/1.0 has no Transfer-Encoding."
    BodyTooLarge CONTENT_TOO_LARGE "body_too_large" "The request's content is larger than this server accepts."
    Expectation EXPECTATION_FAILED "expectation" "The only expectation that this server meets is 100-continue."
    ChunkSize BAD_REQUEST "chunk_size" "A chunk's size is not a hexadecimal number that CR LF or an extension follows."
    ChunkExtension BAD_REQUEST "chunk_extension" "A chunk extension has a control character."
    ChunkEnd BAD_REQUEST "chunk_end" "A chunk's data does not end in CR LF where its size says."
    ChunkOverhead BAD_REQUEST "chunk_overhead" "Chunk extensions and trailers are longer than this server accepts."
    Trailer BAD_REQUEST "trailer" "A trailer line is not a field name, a colon, a value and CR LF."
    HeadTimeout REQUEST_TIMEOUT "head_timeout" "The head did not arrive in time."
    BodyTimeout REQUEST_TIMEOUT "body_timeout" "The content came too slowly."
    RequestLost BAD_GATEWAY "request_lost" "The server that had the request died before it answered. Whatever was asked may have been done."
}

impl RejectReason {
    /// Whether it's for what stands in a head, not for content.
    #[must_use]
    pub const fn is_of_head(self) -> bool {
        use RejectReason::{BodyTimeout, BodyTooLarge, ChunkEnd, ChunkExtension, ChunkOverhead, ChunkSize, Trailer};
        !matches!(self, BodyTooLarge | ChunkSize | ChunkExtension | ChunkEnd | ChunkOverhead | Trailer | BodyTimeout)
    }

    /// The place in [`RejectReason::ALL`], for an array of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::RejectReason;
    use std::collections::BTreeSet;

    #[test]
    fn labels_are_unique_and_well_formed() {
        let labels: BTreeSet<_> = RejectReason::ALL.iter().map(|reason| reason.label()).collect();
        assert_eq!(labels.len(), RejectReason::ALL.len());
        for (index, &reason) in RejectReason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), index);
            assert!(reason.label().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte == b'2'));
            assert!(reason.sentence().ends_with('.') && reason.to_string() == reason.sentence());
            assert!(reason.status().code() >= 400);
        }
    }
}
