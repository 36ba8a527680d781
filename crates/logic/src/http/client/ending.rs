//! Whether a server has said all of a reply of which only the beginning and the end were seen. Where replies end is `reply`'s to know.

use super::super::Method;
use super::reply::{ReplyReader, ReplyStep};

/// What was seen of a reply.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The request's.
    pub method: Method,
    /// Its first bytes.
    pub first: &'a [u8],
    /// Bytes that were sent in all.
    pub bytes: u64,
    /// The last ones of these: at least 7, or as many as are known.
    pub last: &'a [u8],
}

/// See [`ending`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All has been sent, and the connection is good for another request.
    Over,
    /// There is more to come.
    NotYet,
    /// Nobody can tell, or the connection ends with it.
    Unknown,
    /// What follows isn't HTTP, in either direction (RFC 9110, section 15.2.2).
    Switched,
}

/// How such a reply begins.
const SWITCHED: &[u8] = b"HTTP/1.1 101 ";

/// Whether a reply is over.
///
/// The end of chunked content is told by its last bytes. Content may have the same within a chunk: only who sends its next request before it has all of a
/// reply, and just where these end what was sent, could tell.
#[must_use]
pub fn ending(seen: &Seen<'_>) -> Ending {
    if seen.first.starts_with(SWITCHED) {
        return Ending::Switched;
    }
    let mut reader = ReplyReader::new(seen.method);
    let Ok((head_bytes, step)) = reader.handle_input(seen.first) else { return Ending::Unknown };
    let ReplyStep::Head(head) = step else {
        // More than is looked at, or an interim reply, behind which the reply itself wouldn't be found.
        return Ending::Unknown;
    };
    let mut rest = &seen.first[head_bytes..];
    let is_all_seen = seen.bytes <= seen.first.len() as u64;
    loop {
        match reader.handle_input(rest) {
            Ok((consumed, ReplyStep::End)) => {
                let is_behind = rest.len() > consumed || !is_all_seen;
                return if is_behind || !reader.is_reusable() { Ending::Unknown } else { Ending::Over };
            }
            Ok((consumed, ReplyStep::Content(_))) if consumed > 0 => rest = &rest[consumed..],
            Ok((_, ReplyStep::NeedInput)) => break,
            Ok(_) | Err(_) => return Ending::Unknown,
        }
    }
    if !reader.is_persistent() {
        return Ending::Unknown;
    }
    if is_all_seen {
        return if reader.ends_with_connection() { Ending::Unknown } else { Ending::NotYet };
    }
    match head.length {
        Some(length) => match (head_bytes as u64).saturating_add(length).cmp(&seen.bytes) {
            std::cmp::Ordering::Equal => Ending::Over,
            std::cmp::Ordering::Greater => Ending::NotYet,
            std::cmp::Ordering::Less => Ending::Unknown,
        },
        None if reader.ends_with_connection() => Ending::Unknown,
        None if seen.last.ends_with(b"\r\n0\r\n\r\n") || seen.last == b"0\r\n\r\n" => Ending::Over,
        None => Ending::NotYet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: Method, first: &str, bytes: usize, last: &str) -> Ending {
        ending(&Seen { method, first: first.as_bytes(), bytes: bytes as u64, last: last.as_bytes() })
    }

    fn whole(reply: &str) -> Ending {
        of(Method::Get, reply, reply.len(), &reply[reply.len().saturating_sub(8)..])
    }

    #[test]
    fn what_was_seen_from_beginning_to_end_is_known() {
        assert_eq!(whole("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"), Ending::Over);
        assert_eq!(whole("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"), Ending::NotYet);
        assert_eq!(whole("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd"), Ending::Unknown);
        assert_eq!(whole("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"), Ending::Over);
        assert_eq!(whole("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n0\r\n\r\n"), Ending::NotYet);
        assert_eq!(whole("HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n"), Ending::Over);
        assert_eq!(whole("HTTP/1.1 204 No Content\r\n\r\n"), Ending::Over);
        assert_eq!(whole("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), Ending::Over);
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n";
        assert_eq!(of(Method::Head, head, head.len(), ""), Ending::Over);
    }

    #[test]
    fn what_is_known_by_its_length_or_last_bytes_is_over_there() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
        let all = head.len() + 1_000_000;
        assert_eq!(of(Method::Get, head, all, "abcdefgh"), Ending::Over);
        assert_eq!(of(Method::Get, head, all - 1, "abcdefgh"), Ending::NotYet);
        assert_eq!(of(Method::Get, head, all + 1, "abcdefgh"), Ending::Unknown);
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000\r\n";
        assert_eq!(of(Method::Get, chunked, 70_000, "x\r\n0\r\n\r\n"), Ending::Over);
        assert_eq!(of(Method::Get, chunked, 70_000, "0\r\n\r\n"), Ending::Over, "it was sent by itself");
        assert_eq!(of(Method::Get, chunked, 70_000, "xx0\r\n\r\n"), Ending::NotYet);
    }

    #[test]
    fn what_ends_with_its_connection_or_isnt_understood_is_left_alone() {
        for reply in [
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na",
            "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na",
            "HTTP/1.1 200 OK\r\n\r\nuntil the end",
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Le",
            "the middle of something",
            "",
        ] {
            assert_eq!(whole(reply), Ending::Unknown, "{reply:?}");
        }
    }

    #[test]
    fn what_follows_another_protocol_s_beginning_isnt_http() {
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n";
        assert_eq!(whole(head), Ending::Switched);
        assert_eq!(
            of(Method::Get, &head[..40], 70_000, "whatever"),
            Ending::Switched,
            "its server has said more since"
        );
    }
}
