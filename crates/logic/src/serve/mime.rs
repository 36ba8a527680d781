//! Media types by file name, with their charset.
//!
//! A table of our own: what servers need is some 170 types that hardly change, and the charset and the names without an extension have to
//! be decided here anyway.

use bytes::Bytes;

/// Extension (lower case, sorted) and media type.
const TYPES: &[(&str, &str)] = &[
    ("3g2", "video/3gpp2"),
    ("3gp", "video/3gpp"),
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("adoc", "text/asciidoc"),
    ("ai", "application/postscript"),
    ("apk", "application/vnd.android.package-archive"),
    ("apng", "image/apng"),
    ("atom", "application/atom+xml"),
    ("avi", "video/x-msvideo"),
    ("avif", "image/avif"),
    ("azw", "application/vnd.amazon.ebook"),
    ("bin", "application/octet-stream"),
    ("bmp", "image/bmp"),
    ("br", "application/x-brotli"),
    ("bz2", "application/x-bzip2"),
    ("c", "text/x-c"),
    ("cbor", "application/cbor"),
    ("cc", "text/x-c"),
    ("cjs", "text/javascript"),
    ("cpp", "text/x-c"),
    ("crt", "application/x-x509-ca-cert"),
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("dart", "text/x-dart"),
    ("deb", "application/vnd.debian.binary-package"),
    ("dmg", "application/x-apple-diskimage"),
    ("doc", "application/msword"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("dtd", "application/xml-dtd"),
    ("ear", "application/java-archive"),
    ("eml", "message/rfc822"),
    ("eot", "application/vnd.ms-fontobject"),
    ("eps", "application/postscript"),
    ("epub", "application/epub+zip"),
    ("exe", "application/octet-stream"),
    ("flac", "audio/flac"),
    ("flv", "video/x-flv"),
    ("geojson", "application/geo+json"),
    ("gif", "image/gif"),
    ("glb", "model/gltf-binary"),
    ("gltf", "model/gltf+json"),
    ("go", "text/x-go"),
    ("gpx", "application/gpx+xml"),
    ("gz", "application/gzip"),
    ("h", "text/x-c"),
    ("heic", "image/heic"),
    ("heif", "image/heif"),
    ("hpp", "text/x-c"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("ico", "image/x-icon"),
    ("ics", "text/calendar"),
    ("img", "application/octet-stream"),
    ("ini", "text/plain"),
    ("ipynb", "application/x-ipynb+json"),
    ("iso", "application/octet-stream"),
    ("jar", "application/java-archive"),
    ("java", "text/x-java"),
    ("jfif", "image/jpeg"),
    ("jp2", "image/jp2"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("json5", "application/json5"),
    ("jsonl", "application/jsonl"),
    ("jsonld", "application/ld+json"),
    ("jxl", "image/jxl"),
    ("key", "application/vnd.apple.keynote"),
    ("kml", "application/vnd.google-earth.kml+xml"),
    ("kmz", "application/vnd.google-earth.kmz"),
    ("log", "text/plain"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4s", "video/iso.segment"),
    ("m4v", "video/mp4"),
    ("map", "application/json"),
    ("markdown", "text/markdown"),
    ("md", "text/markdown"),
    ("mid", "audio/midi"),
    ("midi", "audio/midi"),
    ("mjs", "text/javascript"),
    ("mka", "audio/matroska"),
    ("mkv", "video/matroska"),
    ("mml", "application/mathml+xml"),
    ("mobi", "application/x-mobipocket-ebook"),
    ("mov", "video/quicktime"),
    ("mp2", "audio/mpeg"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpd", "application/dash+xml"),
    ("mpeg", "video/mpeg"),
    ("mpg", "video/mpeg"),
    ("msi", "application/x-msi"),
    ("ndjson", "application/x-ndjson"),
    ("numbers", "application/vnd.apple.numbers"),
    ("odg", "application/vnd.oasis.opendocument.graphics"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("ogx", "application/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("pages", "application/vnd.apple.pages"),
    ("parquet", "application/vnd.apache.parquet"),
    ("pdf", "application/pdf"),
    ("pem", "application/x-pem-file"),
    ("pl", "text/x-perl"),
    ("png", "image/png"),
    ("ppt", "application/vnd.ms-powerpoint"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("ps", "application/postscript"),
    ("py", "text/x-python"),
    ("rar", "application/vnd.rar"),
    ("rb", "text/x-ruby"),
    ("rdf", "application/rdf+xml"),
    ("rpm", "application/x-rpm"),
    ("rs", "text/x-rust"),
    ("rss", "application/rss+xml"),
    ("rst", "text/x-rst"),
    ("rtf", "application/rtf"),
    ("sh", "text/x-shellscript"),
    ("sql", "application/sql"),
    ("srt", "application/x-subrip"),
    ("stl", "model/stl"),
    ("svg", "image/svg+xml"),
    ("svgz", "image/svg+xml"),
    ("swf", "application/x-shockwave-flash"),
    ("tar", "application/x-tar"),
    ("tex", "application/x-tex"),
    ("text", "text/plain"),
    ("tgz", "application/gzip"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml"),
    ("torrent", "application/x-bittorrent"),
    ("ts", "video/mp2t"),
    ("tsv", "text/tab-separated-values"),
    ("ttc", "font/collection"),
    ("ttf", "font/ttf"),
    ("ttl", "text/turtle"),
    ("txt", "text/plain"),
    ("vcf", "text/vcard"),
    ("vtt", "text/vtt"),
    ("war", "application/java-archive"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("wma", "audio/x-ms-wma"),
    ("wmv", "video/x-ms-wmv"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml"),
    ("xls", "application/vnd.ms-excel"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "text/xml"),
    ("xpi", "application/x-xpinstall"),
    ("xsd", "text/xml"),
    ("xsl", "text/xsl"),
    ("xslt", "application/xslt+xml"),
    ("xz", "application/x-xz"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

/// Names without an extension that are text, whatever their case.
const TEXT_NAMES: &[&str] = &[
    "AUTHORS",
    "CHANGELOG",
    "CHANGES",
    "CONTRIBUTING",
    "COPYING",
    "COPYRIGHT",
    "Dockerfile",
    "INSTALL",
    "LICENSE",
    "Makefile",
    "NEWS",
    "NOTICE",
    "README",
    "TODO",
];

/// Longest extension that is looked up, in bytes.
const EXTENSION_BYTES_MAX: usize = 32;

/// A site's media types: the built-in table, with what the site says otherwise.
#[derive(Clone, Debug)]
pub struct MimeTable {
    charset: Option<Box<str>>,
    default_type: Box<str>,
    overrides: Vec<(Box<str>, Box<str>)>,
}

impl Default for MimeTable {
    /// UTF-8 for text, `application/octet-stream` for what isn't known.
    fn default() -> MimeTable {
        MimeTable {
            charset: Some("utf-8".into()),
            default_type: "application/octet-stream".into(),
            overrides: Vec::new(),
        }
    }
}

impl MimeTable {
    /// A table where text has the charset `charset` (none: it isn't named), and names that aren't known have `default_type`.
    #[must_use]
    pub fn new(charset: Option<&str>, default_type: &str) -> MimeTable {
        MimeTable { charset: charset.map(Into::into), default_type: default_type.into(), overrides: Vec::new() }
    }

    /// The same table where names that end in `.extension` (any case) have `media_type`, to which no charset is added.
    #[must_use]
    pub fn with(mut self, extension: &str, media_type: &str) -> MimeTable {
        let extension = extension.trim_start_matches('.').to_ascii_lowercase();
        self.overrides.retain(|(known, _)| **known != *extension);
        self.overrides.push((extension.into(), media_type.into()));
        self
    }

    /// The value of `Content-Type` for a file called `name` (the last part of its path, without a coding's suffix).
    #[must_use]
    pub fn type_of(&self, name: &[u8]) -> Bytes {
        if let Some(extension) = extension(name) {
            if let Some((_, media_type)) = self.overrides.iter().find(|(known, _)| **known == *extension) {
                return Bytes::copy_from_slice(media_type.as_bytes());
            }
            if let Ok(place) = TYPES.binary_search_by(|(known, _)| (*known).cmp(&*extension)) {
                return self.with_charset(TYPES[place].1);
            }
        } else if TEXT_NAMES.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes())) {
            return self.with_charset("text/plain");
        }
        Bytes::copy_from_slice(self.default_type.as_bytes())
    }

    fn with_charset(&self, media_type: &'static str) -> Bytes {
        match &self.charset {
            Some(charset) if media_type.starts_with("text/") => format!("{media_type}; charset={charset}").into(),
            _ => Bytes::from_static(media_type.as_bytes()),
        }
    }
}

/// What comes after the last dot of `name`, in lower case; none when the dot comes first or last, or it's too long to be one.
fn extension(name: &[u8]) -> Option<String> {
    let dot = memchr::memrchr(b'.', name)?;
    let extension = &name[dot + 1..];
    if dot == 0 || extension.is_empty() || extension.len() > EXTENSION_BYTES_MAX {
        return None;
    }
    Some(str::from_utf8(extension).ok()?.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_each_type_well_formed() {
        assert!(TYPES.is_sorted_by(|one, next| one.0 < next.0));
        for (extension, media_type) in TYPES {
            assert!(extension.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()), "{extension}");
            assert_eq!(media_type.split('/').count(), 2, "{media_type}");
        }
    }

    #[test]
    fn text_names_its_charset_and_nothing_else_does() {
        let table = MimeTable::default();
        for (name, media_type) in [
            ("index.html", "text/html; charset=utf-8"),
            ("A.B.HTML", "text/html; charset=utf-8"),
            ("app.mjs", "text/javascript; charset=utf-8"),
            ("data.json", "application/json"),
            ("x.tar.gz", "application/gzip"),
            ("photo.JPG", "image/jpeg"),
            ("readme", "text/plain; charset=utf-8"),
            ("file", "application/octet-stream"),
            ("file.", "application/octet-stream"),
            (".html", "application/octet-stream"),
            ("x.unknown", "application/octet-stream"),
        ] {
            assert_eq!(table.type_of(name.as_bytes()), media_type, "{name}");
        }
        assert_eq!(table.type_of(b"x.\xff\xfe"), "application/octet-stream");
    }

    #[test]
    fn a_site_may_say_otherwise() {
        let table =
            MimeTable::new(None, "text/plain").with(".TS", "video/x").with("ts", "text/typescript; charset=utf-8");
        assert_eq!(table.type_of(b"a.ts"), "text/typescript; charset=utf-8");
        assert_eq!(table.type_of(b"a.html"), "text/html");
        assert_eq!(table.type_of(b"a"), "text/plain");
    }
}
