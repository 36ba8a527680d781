//! Status codes that leat sends, with their reason phrases (RFC 9110 section 15, RFC 6585).

/// A status code from 100 to 999: those from 600 on mean nothing, and are some servers' all the same (RFC 9110 section 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(u16);

macro_rules! statuses {
    ($($code:literal $name:ident $reason:literal)*) => {
        impl Status {
            $(
                #[doc = concat!(stringify!($code), " ", $reason)]
                pub const $name: Status = Status($code);
            )*

            /// The reason phrase; empty for a code that this table lacks.
            #[must_use]
            pub const fn reason(self) -> &'static str {
                match self.0 { $($code => $reason,)* _ => "" }
            }

            /// The whole status line with its line end, for a code in this table.
            pub(super) const fn line(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some(concat!("HTTP/1.1 ", stringify!($code), " ", $reason, "\r\n")),)*
                    _ => None,
                }
            }

            /// Every code in this table.
            pub const ALL: &'static [Status] = &[$(Status($code)),*];
        }
    };
}

statuses! {
    100 CONTINUE "Continue"
    101 SWITCHING_PROTOCOLS "Switching Protocols"
    103 EARLY_HINTS "Early Hints"
    200 OK "OK"
    201 CREATED "Created"
    202 ACCEPTED "Accepted"
    203 NON_AUTHORITATIVE_INFORMATION "Non-Authoritative Information"
    204 NO_CONTENT "No Content"
    205 RESET_CONTENT "Reset Content"
    206 PARTIAL_CONTENT "Partial Content"
    300 MULTIPLE_CHOICES "Multiple Choices"
    301 MOVED_PERMANENTLY "Moved Permanently"
    302 FOUND "Found"
    303 SEE_OTHER "See Other"
    304 NOT_MODIFIED "Not Modified"
    307 TEMPORARY_REDIRECT "Temporary Redirect"
    308 PERMANENT_REDIRECT "Permanent Redirect"
    400 BAD_REQUEST "Bad Request"
    401 UNAUTHORIZED "Unauthorized"
    402 PAYMENT_REQUIRED "Payment Required"
    403 FORBIDDEN "Forbidden"
    404 NOT_FOUND "Not Found"
    405 METHOD_NOT_ALLOWED "Method Not Allowed"
    406 NOT_ACCEPTABLE "Not Acceptable"
    407 PROXY_AUTHENTICATION_REQUIRED "Proxy Authentication Required"
    408 REQUEST_TIMEOUT "Request Timeout"
    409 CONFLICT "Conflict"
    410 GONE "Gone"
    411 LENGTH_REQUIRED "Length Required"
    412 PRECONDITION_FAILED "Precondition Failed"
    413 CONTENT_TOO_LARGE "Content Too Large"
    414 URI_TOO_LONG "URI Too Long"
    415 UNSUPPORTED_MEDIA_TYPE "Unsupported Media Type"
    416 RANGE_NOT_SATISFIABLE "Range Not Satisfiable"
    417 EXPECTATION_FAILED "Expectation Failed"
    421 MISDIRECTED_REQUEST "Misdirected Request"
    422 UNPROCESSABLE_CONTENT "Unprocessable Content"
    426 UPGRADE_REQUIRED "Upgrade Required"
    428 PRECONDITION_REQUIRED "Precondition Required"
    429 TOO_MANY_REQUESTS "Too Many Requests"
    431 REQUEST_HEADER_FIELDS_TOO_LARGE "Request Header Fields Too Large"
    451 UNAVAILABLE_FOR_LEGAL_REASONS "Unavailable For Legal Reasons"
    500 INTERNAL_SERVER_ERROR "Internal Server Error"
    501 NOT_IMPLEMENTED "Not Implemented"
    502 BAD_GATEWAY "Bad Gateway"
    503 SERVICE_UNAVAILABLE "Service Unavailable"
    504 GATEWAY_TIMEOUT "Gateway Timeout"
    505 HTTP_VERSION_NOT_SUPPORTED "HTTP Version Not Supported"
}

impl Status {
    /// A status with any code from 100 to 999; `None` outside it.
    #[must_use]
    pub const fn new(code: u16) -> Option<Status> {
        if code >= 100 && code <= 999 { Some(Status(code)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0
    }

    /// True where a reply never has content: 1xx, 204, 304 (RFC 9110 section 6.4.1).
    #[must_use]
    pub const fn has_no_content(self) -> bool {
        self.0 < 200 || self.0 == 204 || self.0 == 304
    }
}

#[cfg(test)]
mod tests {
    use super::Status;

    #[test]
    fn table_is_ascending_and_complete() {
        assert!(Status::ALL.windows(2).all(|pair| pair[0] < pair[1]));
        for &status in Status::ALL {
            assert!(!status.reason().is_empty());
            let expected = format!("HTTP/1.1 {} {}\r\n", status.code(), status.reason());
            assert_eq!(status.line(), Some(expected.as_str()));
            assert_eq!(Status::new(status.code()), Some(status));
        }
        assert_eq!(Status::new(99), None);
        assert_eq!(Status::new(1000), None);
        assert_eq!(Status::new(299).map(Status::reason), Some(""));
    }
}
