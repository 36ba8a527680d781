//! Which method a request has (RFC 9110 section 9). What a resource allows is the caller's.

/// A request method. Names are case-sensitive: `get` is [`Method::Other`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Method {
    /// `GET`
    #[default]
    Get,
    /// `HEAD`
    Head,
    /// `OPTIONS`
    Options,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `DELETE`
    Delete,
    /// `PATCH` (RFC 5789)
    Patch,
    /// `TRACE`
    Trace,
    /// `CONNECT`; a head with it is refused before it becomes a request.
    Connect,
    /// Any other token.
    Other,
}

impl Method {
    /// The method with this name.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Method {
        match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"OPTIONS" => Method::Options,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"PATCH" => Method::Patch,
            b"TRACE" => Method::Trace,
            b"CONNECT" => Method::Connect,
            _ => Method::Other,
        }
    }

    /// The method's name, as in an `Allow` field or a log; [`Method::Other`] has none of its own.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Options => "OPTIONS",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Patch => "PATCH",
            Method::Trace => "TRACE",
            Method::Connect => "CONNECT",
            Method::Other => "OTHER",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Method;

    #[test]
    fn names_round_trip() {
        use Method::*;
        for method in [Get, Head, Options, Post, Put, Delete, Patch, Trace, Connect] {
            assert_eq!(Method::from_name(method.name().as_bytes()), method);
            assert_eq!(Method::from_name(method.name().to_ascii_lowercase().as_bytes()), Other);
        }
        assert_eq!(Method::from_name(b"GETX"), Other);
        assert_eq!(Method::from_name(b""), Other);
    }
}
