//! Header names and values, and media types.

use std::path::Path;

use bytes::Bytes;

use super::{Text, Wrong};

/// Headers that leat sets itself, where it must: what the file says about them would be wrong sooner or later.
const OWN_HEADERS: [&str; 20] = [
    "accept-ranges",
    "allow",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "date",
    "etag",
    "keep-alive",
    "last-modified",
    "location",
    "proxy-connection",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "vary",
];

/// A header's name: as written, compared without regard to case.
#[derive(Clone, Debug, Eq)]
pub(in crate::config) struct HeaderName(pub(in crate::config) Bytes);

impl PartialEq for HeaderName {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

pub(in crate::config) const HEADER_NAME: Text<HeaderName> =
    Text { description: "header name", example: "Cache-Control", parse: parse_name };

pub(in crate::config) const HEADER_VALUE: Text<Bytes> =
    Text { description: "value", example: "max-age=60", parse: parse_value };

fn parse_name(written: &str, _: &Path) -> Result<HeaderName, Wrong> {
    if written.is_empty() || !written.bytes().all(is_token) {
        let help = "write letters, digits and hyphens, as in \"Cache-Control\"";
        return Wrong::new("isn't the name of a header", help);
    }
    let name = written.to_ascii_lowercase();
    if OWN_HEADERS.contains(&name.as_str()) {
        let help = match name.as_str() {
            "content-type" => "take it out; media types are set with `types` and `charset`",
            "keep-alive" | "connection" => "take it out; how long connections stay is set in [limits]",
            "content-encoding" => "take it out; compressed files are set with `precompressed`",
            _ => "take it out",
        };
        return Wrong::new("is a header that leat sets itself", help);
    }
    Ok(HeaderName(Bytes::copy_from_slice(written.as_bytes())))
}

fn parse_value(written: &str, _: &Path) -> Result<Bytes, Wrong> {
    // RFC 9110, section 5.5, without obs-text.
    if let Some(bad) = written.chars().find(|c| !(c.is_ascii_graphic() || matches!(c, ' ' | '\t'))) {
        let help = "write printable ASCII on one line: anything else could end the header or be read in two ways";
        return Wrong::new(format!("has the character {bad:?}, which no header value may have"), help);
    }
    if written != written.trim() {
        return Wrong::new("begins or ends with a blank", format!("write \"{}\"", written.trim()));
    }
    Ok(Bytes::copy_from_slice(written.as_bytes()))
}

pub(in crate::config) const MEDIA_TYPE: Text<String> =
    Text { description: "media type", example: "text/plain", parse: parse_media_type };

fn parse_media_type(written: &str, _: &Path) -> Result<String, Wrong> {
    // RFC 9110, section 8.3.1; parameters are taken as they are.
    let essence = written.split(';').next().unwrap_or_default().trim_end();
    let token = |part: &str| !part.is_empty() && part.bytes().all(is_token);
    let good = essence.split_once('/').is_some_and(|(kind, subtype)| token(kind) && token(subtype));
    if !good || written.chars().any(|c| !(c.is_ascii_graphic() || c == ' ')) || written != written.trim() {
        return Wrong::new("isn't a media type", "write a type and a subtype, as in \"text/plain\"");
    }
    Ok(written.to_owned())
}

/// RFC 9110, section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
