//! The one reply, and how many requests a run of received bytes has ended.

/// Replies joined for pipelined requests that came together; more are sent in several calls.
const JOINED_MAX: usize = 32;
/// Joined replies past this size would only take memory: they are sent one by one.
const JOINED_BYTES_MAX: usize = 1 << 20;

/// A reply head as long as nginx's for a static file: about 230 bytes.
pub(super) fn head(body_bytes: usize, close: bool) -> String {
    let connection = if close { "close" } else { "keep-alive" };
    format!(
        "HTTP/1.1 200 OK\r\nServer: nothing/1.0.0\r\nDate: Sat, 01 Jan 2000 00:00:00 GMT\r\nContent-Type: text/html\r\n\
         Content-Length: {body_bytes}\r\nLast-Modified: Sat, 01 Jan 2000 00:00:00 GMT\r\nConnection: {connection}\r\n\
         ETag: \"386d4380-264\"\r\nAccept-Ranges: bytes\r\n\r\n"
    )
}

/// The same reply, ready once and several times over. Lives as long as the process, as the kernel reads from it.
#[derive(Clone, Copy)]
pub(super) struct FixedReply {
    joined: &'static [u8],
    reply_bytes: usize,
    pub(super) close: bool,
}

impl FixedReply {
    pub(super) fn new(body: Vec<u8>, close: bool) -> Self {
        let mut reply = head(body.len(), close).into_bytes();
        reply.extend_from_slice(&body);
        let reply_bytes = reply.len();
        let copies = (JOINED_BYTES_MAX / reply_bytes).clamp(1, JOINED_MAX);
        Self { joined: reply.repeat(copies).leak(), reply_bytes, close }
    }

    /// The bytes of up to `count` replies, and how many replies they are.
    pub(super) fn of(&self, count: usize) -> (&'static [u8], usize) {
        let count = count.min(self.joined.len() / self.reply_bytes);
        (&self.joined[..count * self.reply_bytes], count)
    }
}

/// Counts the heads that end in a connection's bytes, wherever the reads happen to split them.
#[derive(Clone, Copy, Default)]
pub(super) struct HeadCounter {
    /// Bytes of the empty line seen at the end of the last read: 0 to 3.
    matched: u8,
}

impl HeadCounter {
    /// How many heads end within `bytes`.
    pub(super) fn count(&mut self, bytes: &[u8]) -> usize {
        const END: &[u8; 4] = b"\r\n\r\n";
        let mut count = 0;
        let mut rest = bytes;
        // The rest of an ending that the last read began.
        while self.matched > 0 {
            let Some((&first, others)) = rest.split_first() else { return count };
            if first == END[usize::from(self.matched)] {
                self.matched += 1;
                rest = others;
                if self.matched == 4 {
                    self.matched = 0;
                    count += 1;
                }
            } else {
                // What was matched can only begin anew at a carriage return, which the search below finds.
                self.matched = 0;
            }
        }
        while let Some(position) = memchr::memmem::find(rest, END) {
            count += 1;
            rest = &rest[position + END.len()..];
        }
        self.matched = (1..4).rev().find(|&length| rest.ends_with(&END[..length])).unwrap_or(0) as u8;
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_about_as_long_as_nginx_s() {
        let length = head(612, false).len();
        assert!((220..250).contains(&length), "{length}");
    }

    #[test]
    fn heads_are_counted_however_they_are_split() {
        let bytes = b"GET / HTTP/1.1\r\nA: b\r\n\r\nGET / HTTP/1.1\r\n\r\r\n\r\n\r\n\r\nG";
        for first in 0..bytes.len() {
            for second in first..bytes.len() {
                let mut counter = HeadCounter::default();
                let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                let count: usize = parts.iter().map(|part| counter.count(part)).sum();
                assert_eq!(count, 3, "split at {first} and {second}");
            }
        }
    }

    #[test]
    fn replies_are_joined_up_to_a_limit() {
        let reply = FixedReply::new(vec![b'x'; 612], false);
        let (bytes, count) = reply.of(1000);
        assert_eq!(count, JOINED_MAX);
        assert_eq!(bytes.len(), reply.of(1).0.len() * JOINED_MAX);
    }
}
