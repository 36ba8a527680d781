//! A strict reader of replies (RFC 9112 section 6.3), written without a look at the server's code: two readers that agree are worth more.

/// Leave to send content: nothing follows from it here, as clients send theirs anyhow.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// One reply, whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Names in lower case.
    fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// The value of a field; an error when there is more than one.
    pub(crate) fn field(&self, name: &str) -> Result<Option<&str>, String> {
        let mut values = self.fields.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let first = values.next();
        if values.next().is_some() { Err(format!("{name} is there twice")) } else { Ok(first) }
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, String> {
        let Some(value) = self.field(name)? else { return Ok(None) };
        let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        let number = is_number.then(|| value.parse().ok()).flatten();
        number.map(Some).ok_or_else(|| format!("{name} is `{value}`"))
    }

    /// Its fields, in one line.
    pub(crate) fn describe(&self) -> String {
        self.fields.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn says_close(&self) -> bool {
        matches!(self.field("connection"), Ok(Some("close")))
    }
}

/// Bytes of replies that have come, and the head of the one that is coming.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    bytes: Vec<u8>,
    /// A head that is complete, and the length of its body.
    head: Option<(Reply, usize)>,
}

impl Reader {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// What there is of a reply that isn't complete.
    pub(crate) fn describe(&self) -> String {
        let start = self.bytes[..self.bytes.len().min(60)].escape_ascii();
        let head = self.head.as_ref().map(|(reply, len)| format!("a {} of {len} bytes and ", reply.status));
        format!("{}{} bytes `{start}`", head.unwrap_or_default(), self.bytes.len())
    }

    /// Whether a reply has begun that isn't complete.
    pub(crate) fn has_begun(&self) -> bool {
        !self.bytes.is_empty() || self.head.is_some()
    }

    /// The next reply, when it's complete. `to_head`: it answers a HEAD, and has no body whatever its fields say.
    pub(crate) fn next(&mut self, to_head: bool) -> Result<Option<Reply>, String> {
        while self.head.is_none() && self.bytes.starts_with(CONTINUE) {
            self.bytes.drain(..CONTINUE.len());
        }
        if self.head.is_none() && CONTINUE.starts_with(&self.bytes) {
            return Ok(None);
        }
        if self.head.is_none() {
            let Some(end) = self.bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
            let reply = read_head(&self.bytes[..end])?;
            self.bytes.drain(..end + 4);
            let length = reply.number("content-length")?;
            let len = match (to_head || matches!(reply.status, 100..200 | 204 | 304), length) {
                (true, _) => 0,
                (false, Some(length)) => length as usize,
                (false, None) => return Err(format!("a {} without Content-Length", reply.status)),
            };
            if reply.field("transfer-encoding")?.is_some() {
                return Err("a transfer coding that nobody asked for".to_owned());
            }
            self.head = Some((reply, len));
        }
        match self.head.take() {
            Some((mut reply, len)) if self.bytes.len() >= len => {
                reply.body = self.bytes.drain(..len).collect();
                Ok(Some(reply))
            }
            head => {
                self.head = head;
                Ok(None)
            }
        }
    }
}

fn read_head(bytes: &[u8]) -> Result<Reply, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "a head that isn't text".to_owned())?;
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let shape = || format!("a status line that isn't one: `{}`", first.escape_debug());
    let rest = first.strip_prefix("HTTP/1.1 ").ok_or_else(shape)?;
    let (code, _reason) = rest.split_once(' ').ok_or_else(shape)?;
    let is_code = code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_digit());
    let status = is_code.then(|| code.parse().ok()).flatten().ok_or_else(shape)?;
    let mut fields = Vec::new();
    for line in lines {
        let shape = || format!("a field line that isn't one: `{}`", line.escape_debug());
        let (name, value) = line.split_once(':').ok_or_else(shape)?;
        let is_token = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !is_token || value.bytes().any(|byte| byte < b' ') {
            return Err(shape());
        }
        fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let reply = Reply { status, fields, body: Vec::new() };
    if reply.field("date")?.is_none() {
        return Err(format!("a {status} without Date"));
    }
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_replies_in_one_byte_pieces() {
        let text =
            b"HTTP/1.1 200 OK\r\nDate: x\r\nContent-Length: 2\r\n\r\nabHTTP/1.1 304 Not Modified\r\nDate: x\r\n\r\n";
        let mut reader = Reader::default();
        let mut found = Vec::new();
        for byte in text {
            reader.add(&[*byte]);
            found.extend(reader.next(false).unwrap().map(|reply| (reply.status, reply.body)));
        }
        assert_eq!(found, [(200, b"ab".to_vec()), (304, Vec::new())]);
        assert!(!reader.has_begun());
    }

    #[test]
    fn a_length_is_needed_and_only_one() {
        for text in [
            &b"HTTP/1.1 200 OK\r\nDate: x\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nDate: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nDate: x\r\nContent-Length: +1\r\n\r\n",
        ] {
            let mut reader = Reader::default();
            reader.add(text);
            assert!(reader.next(false).is_err(), "{}", text.escape_ascii());
        }
    }
}
