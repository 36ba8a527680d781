//! The built-in handler for tests and experiments: how long a request is to compute and how much it is to reply.

/// What a burning handler does unless it's asked otherwise, and the most that it may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurnPolicy {
    /// Microseconds of processor time.
    pub us: u64,
    /// The most that `?us=` may ask for.
    pub us_max: u64,
    /// Bytes of the reply's content.
    pub bytes: usize,
    /// The most that `?bytes=` may ask for.
    pub bytes_max: usize,
    /// Whether `?us=forever` may be asked for.
    pub forever: bool,
}

/// What one request is to cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burn {
    /// Nanoseconds of processor time; `None` for ever.
    pub ns: Option<u64>,
    /// Bytes of the reply's content.
    pub bytes: usize,
}

impl BurnPolicy {
    /// What a request with this query asks for; `None` if it asks for more than is allowed, or for something else.
    #[must_use]
    pub fn read(&self, query: &[u8]) -> Option<Burn> {
        let mut burn = Burn { ns: Some(self.us * 1000), bytes: self.bytes };
        for pair in query.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()) {
            let pair = std::str::from_utf8(pair).ok()?;
            match pair.split_once('=')? {
                ("us", "forever") if self.forever => burn.ns = None,
                ("us", us) => burn.ns = Some(us.parse().ok().filter(|&us: &u64| us <= self.us_max)? * 1000),
                ("bytes", bytes) => burn.bytes = bytes.parse().ok().filter(|&bytes| bytes <= self.bytes_max)?,
                _ => return None,
            }
        }
        Some(burn)
    }
}

#[cfg(test)]
mod tests {
    use super::{Burn, BurnPolicy};

    #[test]
    fn a_query_may_ask_for_less_and_not_for_more() {
        let policy = BurnPolicy { us: 300, us_max: 1000, bytes: 10, bytes_max: 20, forever: false };
        let read = |query: &str| policy.read(query.as_bytes());
        assert_eq!(read(""), Some(Burn { ns: Some(300_000), bytes: 10 }));
        assert_eq!(read("us=0&bytes=20"), Some(Burn { ns: Some(0), bytes: 20 }));
        for wrong in ["us=1001", "bytes=21", "us=-1", "us=forever", "us", "x=1", "us=18446744073709551616", "\u{ff}=1"]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let endless = BurnPolicy { forever: true, ..policy };
        assert_eq!(endless.read(b"us=forever"), Some(Burn { ns: None, bytes: 10 }));
    }
}
