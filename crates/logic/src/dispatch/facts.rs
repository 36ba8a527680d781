//! What of a request counts for a choice, and the key by which its content is remembered. Parsing is the protocol's.

use std::net::IpAddr;

use crate::http::Request;

/// What a policy may go by. For other protocols than HTTP, `path` is whatever names the content: an object's key, a server's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts<'i> {
    /// As it was sent; empty where the protocol has none.
    pub method: &'i [u8],
    /// Without a port, in any letter case; empty when unknown.
    pub host: &'i [u8],
    /// Still encoded.
    pub path: &'i [u8],
    /// What follows the first `?`.
    pub query: Option<&'i [u8]>,
    /// The Cookie field's value (its first line).
    pub cookies: Option<&'i [u8]>,
    /// Who asks, where it counts which nodes are near.
    pub client: Option<IpAddr>,
}

impl<'i> Facts<'i> {
    /// The facts of an HTTP request.
    #[must_use]
    pub fn of(request: &Request<'i>) -> Facts<'i> {
        Facts {
            method: request.method_name,
            host: request.host.unwrap_or_default(),
            path: request.target.path,
            query: request.target.query,
            cookies: request.headers.get(b"cookie"),
            client: None,
        }
    }

    /// The facts of a request written as people do: `GET http://host/path?query`, `GET /path`, `/path`. `None` without a path, or
    /// where no request line can have it.
    #[must_use]
    pub fn written(text: &'i str) -> Option<Facts<'i>> {
        let text = text.trim();
        let (method, target) = text.split_once(' ').unwrap_or(("GET", text));
        let target = target.trim();
        if target.contains(|character: char| character.is_ascii_control() || character == ' ') {
            return None;
        }
        let (host, target) = match target.split_once("://") {
            Some((_, rest)) => rest.split_at(rest.find('/')?),
            None => ("", target),
        };
        // An IPv6 address has colons of its own, within its brackets.
        let is_port = |port: &str| !port.contains(']');
        let host = host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |(name, _)| name);
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let path = path.starts_with('/').then_some(path)?;
        Some(Facts {
            method: method.as_bytes(),
            host: host.as_bytes(),
            path: path.as_bytes(),
            query: query.map(str::as_bytes),
            cookies: None,
            client: None,
        })
    }

    /// The same of this client's, if it's known.
    #[must_use]
    pub fn by(self, client: Option<IpAddr>) -> Facts<'i> {
        Facts { client, ..self }
    }

    /// The last segment's ending, without its dot; `None` when it has none.
    #[must_use]
    pub fn extension(&self) -> Option<&'i [u8]> {
        let segment = memchr::memrchr(b'/', self.path).map_or(self.path, |slash| &self.path[slash + 1..]);
        let dot = memchr::memrchr(b'.', segment)?;
        (dot + 1 < segment.len()).then(|| &segment[dot + 1..])
    }
}

/// What names a piece of content in tables: 64 bits of a keyed hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentKey(pub u64);

impl std::fmt::Display for ContentKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Makes content keys. Machines whose makers have the same key agree on every content's, and nobody else can say which paths collide.
#[derive(Clone, Debug)]
pub struct KeyMaker {
    start: blake3::Hasher,
}

impl KeyMaker {
    /// A maker for this cluster.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> KeyMaker {
        KeyMaker { start: blake3::Hasher::new_keyed(key) }
    }

    /// Of host and path; the query isn't part of it, and the host's letter case makes no difference.
    #[must_use]
    pub fn content(&self, facts: &Facts<'_>) -> ContentKey {
        ContentKey(self.hash(facts.host, facts.path))
    }

    /// Of the host alone.
    #[must_use]
    pub fn site(&self, facts: &Facts<'_>) -> ContentKey {
        ContentKey(self.hash(facts.host, b""))
    }

    /// Of a node's name, for orders that all machines agree on.
    pub(super) fn node(&self, name: &str) -> u64 {
        self.hash(b"", name.as_bytes())
    }

    fn hash(&self, host: &[u8], rest: &[u8]) -> u64 {
        let mut hasher = self.start.clone();
        let mut lower = [0; 64];
        for piece in host.chunks(lower.len()) {
            let lower = &mut lower[..piece.len()];
            lower.copy_from_slice(piece);
            lower.make_ascii_lowercase();
            hasher.update(lower);
        }
        // No host has a NUL, so that no part of a host passes for one of a path.
        hasher.update(&[0]);
        hasher.update(rest);
        let mut first = [0; 8];
        first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        u64::from_le_bytes(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_understood() {
        let facts = Facts::written("POST http://Example.org:8080/a/b.php?x=1").expect("it has a path");
        assert_eq!((facts.method, facts.host, facts.path), (&b"POST"[..], &b"Example.org"[..], &b"/a/b.php"[..]));
        assert_eq!((facts.query, facts.extension()), (Some(&b"x=1"[..]), Some(&b"php"[..])));
        assert_eq!(Facts::written("/x").map(|facts| facts.method), Some(&b"GET"[..]));
        for address in ["http://[2001:db8::1]/x", "http://[2001:db8::1]:80/x"] {
            assert_eq!(Facts::written(address).map(|facts| facts.host), Some(&b"[2001:db8::1]"[..]));
        }
        assert!(Facts::written("nothing").is_none());
        assert!(Facts::written("http://host").is_none());
        assert!(Facts::written("GET http://host/a b").is_none());
        assert!(Facts::written("GET /a\tb").is_none());
    }

    #[test]
    fn an_extension_belongs_to_the_last_segment() {
        let of = |path: &'static str| Facts { path: path.as_bytes(), ..Facts::default() }.extension();
        assert_eq!(of("/a.b/c"), None);
        assert_eq!(of("/a/c."), None);
        assert_eq!(of("/a/c.tar.gz"), Some(&b"gz"[..]));
        assert_eq!(of("/"), None);
    }

    #[test]
    fn keys_tell_hosts_and_paths_apart_and_nothing_else() {
        let maker = KeyMaker::new(&[7; 32]);
        let key = |text: &'static str| maker.content(&Facts::written(text).expect("it has a path"));
        assert_eq!(key("GET http://EXAMPLE.org/a"), key("HEAD http://example.org:80/a?q"));
        assert_ne!(key("http://example.org/a"), key("http://example.org/b"));
        assert_ne!(key("http://example.org/a"), key("http://example.net/a"));
        assert_ne!(KeyMaker::new(&[8; 32]).content(&Facts::written("/a").expect("a path")), key("/a"));
    }
}
