//! A program's output (RFC 3875 section 6): header lines, an empty line, content. Programs are written by hand, so lines may end in LF alone;
//! whatever could break the reply that is made of them is refused.

use crate::http::{FieldName, FieldValue, Status};

/// Bytes of a program's header lines.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Fields that belong to the connection, or that the server says itself.
const NOT_PASSED_ON: [&[u8]; 10] = [
    b"connection",
    b"date",
    b"keep-alive",
    b"proxy-connection",
    b"server",
    b"status",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
];

/// Why a program's output is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReply {
    /// Too long.
    #[error("its header lines are longer than 32 KiB")]
    TooLong,
    /// It ended before the empty line.
    #[error("it ended before its header lines did")]
    Incomplete,
    /// The empty line came first.
    #[error("it has no header line")]
    NoField,
    /// A line that isn't `name: value`.
    #[error("header line {0} isn't a name, a colon and a value")]
    Line(usize),
    /// Status that isn't a number from 200 to 599.
    #[error("its Status isn't a number from 200 to 599")]
    Status,
    /// Content-Length that isn't a number, or two of them.
    #[error("its Content-Length isn't one number")]
    Length,
    /// Less content than Content-Length said.
    #[error("its content is shorter than its Content-Length")]
    Short,
}

/// What a program's header lines say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyHead {
    /// 302 with a Location and no Status, else 200 unless the program says.
    pub status: Status,
    /// Field lines to pass on, each with its CRLF, without Content-Length.
    pub lines: Vec<u8>,
    /// The content's length, if the program says.
    pub length: Option<u64>,
}

/// What came of input.
#[derive(Debug, PartialEq, Eq)]
pub enum ReplyStep<'i> {
    /// More has to come.
    NeedInput,
    /// The header lines.
    Head(ReplyHead),
    /// Content: never empty.
    Content(&'i [u8]),
}

/// Reads one program's output.
#[derive(Clone, Debug, Default)]
pub struct ReplyReader {
    /// Bytes of the head that have been looked through for its end.
    searched: usize,
    has_head: bool,
    /// Content bytes that Content-Length still promises.
    promised: Option<u64>,
}

impl ReplyReader {
    /// Takes in everything received and not consumed. Returns how many bytes are done with; call again with the rest until it needs more.
    /// Content past Content-Length is dropped.
    ///
    /// # Errors
    /// Why it is no reply. Once the head has been handed out, there are none.
    pub fn handle_input<'i>(&mut self, input: &'i [u8]) -> Result<(usize, ReplyStep<'i>), BadReply> {
        if self.has_head {
            let wanted =
                self.promised.map_or(input.len(), |left| input.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
            self.promised = self.promised.map(|left| left - wanted as u64);
            let step = if wanted == 0 { ReplyStep::NeedInput } else { ReplyStep::Content(&input[..wanted]) };
            return Ok((input.len(), step));
        }
        let Some(end) = self.head_end(input) else {
            return if input.len() >= HEAD_BYTES_MAX { Err(BadReply::TooLong) } else { Ok((0, ReplyStep::NeedInput)) };
        };
        if end > HEAD_BYTES_MAX {
            return Err(BadReply::TooLong);
        }
        let head = parse(&input[..end])?;
        self.has_head = true;
        self.promised = head.length;
        Ok((end, ReplyStep::Head(head)))
    }

    /// Whether there has been as much content as Content-Length said.
    #[must_use]
    pub fn has_all(&self) -> bool {
        self.has_head && self.promised == Some(0)
    }

    /// The output has ended.
    ///
    /// # Errors
    /// What is missing of it.
    pub fn handle_end(&self) -> Result<(), BadReply> {
        match (self.has_head, self.promised) {
            (false, _) => Err(BadReply::Incomplete),
            (true, Some(1..)) => Err(BadReply::Short),
            (true, _) => Ok(()),
        }
    }

    /// Where content begins: after the first empty line.
    fn head_end(&mut self, input: &[u8]) -> Option<usize> {
        let from = self.searched.saturating_sub(2).min(input.len());
        for at in memchr::memchr_iter(b'\n', &input[from..]) {
            let line_end = from + at;
            let is_empty = matches!(&input[..line_end], [] | [.., b'\n'] | [b'\r'] | [.., b'\n', b'\r']);
            if is_empty {
                return Some(line_end + 1);
            }
        }
        self.searched = input.len();
        None
    }
}

fn parse(head: &[u8]) -> Result<ReplyHead, BadReply> {
    let (mut status, mut length, mut is_redirect, mut fields) = (None, None, false, 0);
    let mut lines = Vec::with_capacity(head.len() + 16);
    let text = head.strip_suffix(b"\n").unwrap_or(head);
    for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            break;
        }
        let wrong = BadReply::Line(number + 1);
        let colon = memchr::memchr(b':', line).ok_or(wrong)?;
        let name = FieldName::new(&line[..colon]).map_err(|_| wrong)?;
        let value = FieldValue::new(line[colon + 1..].trim_ascii()).map_err(|_| wrong)?;
        fields += 1;
        let is = |known: &[u8]| name.as_bytes().eq_ignore_ascii_case(known);
        if is(b"status") {
            status = Some(parse_status(value.as_bytes()).ok_or(BadReply::Status)?);
        } else if is(b"content-length") {
            let number = decimal(value.as_bytes()).filter(|_| length.is_none()).ok_or(BadReply::Length)?;
            length = Some(number);
        } else if !NOT_PASSED_ON.iter().any(|known| is(known)) {
            is_redirect |= is(b"location");
            for part in [name.as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                lines.extend_from_slice(part);
            }
        }
    }
    if fields == 0 {
        return Err(BadReply::NoField);
    }
    let status = status.unwrap_or(if is_redirect { Status::FOUND } else { Status::OK });
    Ok(ReplyHead { status, lines, length })
}

/// A code, perhaps with a reason phrase behind it.
fn parse_status(value: &[u8]) -> Option<Status> {
    let code = value.split(|&byte| byte == b' ').next()?;
    let code = decimal(code).filter(|_| code.len() == 3)?;
    Status::new(u16::try_from(code).ok()?).filter(|status| (200..600).contains(&status.code()))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let is_decimal = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_decimal)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of an output that comes in pieces of so many bytes.
    fn read(output: &[u8], piece: usize) -> Result<(ReplyHead, Vec<u8>), BadReply> {
        let mut reader = ReplyReader::default();
        let (mut head, mut content, mut kept) = (None, Vec::new(), Vec::new());
        for more in output.chunks(piece.max(1)) {
            kept.extend_from_slice(more);
            loop {
                let (consumed, step) = reader.handle_input(&kept)?;
                let is_all = step == ReplyStep::NeedInput;
                match step {
                    ReplyStep::NeedInput => {}
                    ReplyStep::Head(found) => head = Some(found),
                    ReplyStep::Content(bytes) => content.extend_from_slice(bytes),
                }
                kept.drain(..consumed);
                if is_all || kept.is_empty() {
                    break;
                }
            }
        }
        reader.handle_end()?;
        Ok((head.expect("the end is right"), content))
    }

    fn read_anyhow(output: &[u8]) -> Result<(ReplyHead, Vec<u8>), BadReply> {
        let whole = read(output, output.len());
        for piece in [1, 2, 3, 7] {
            assert_eq!(read(output, piece), whole, "in pieces of {piece}");
        }
        whole
    }

    fn head(output: &str) -> ReplyHead {
        read_anyhow(output.as_bytes()).expect("a reply").0
    }

    #[test]
    fn lines_may_end_as_they_like() {
        for end in ["\n", "\r\n"] {
            let output = format!("Content-Type: text/plain{end}X-A:  b {end}{end}hello\r\n\r\n");
            let (head, content) = read_anyhow(output.as_bytes()).expect("a reply");
            assert_eq!(head.status, Status::OK);
            assert_eq!(head.lines, b"Content-Type: text/plain\r\nX-A: b\r\n");
            assert_eq!((head.length, &content[..]), (None, &b"hello\r\n\r\n"[..]));
        }
    }

    #[test]
    fn status_location_and_length_are_understood() {
        assert_eq!(head("Status: 404 Nothing here\n\n").status.code(), 404);
        assert_eq!(head("Location: /elsewhere\n\n").status, Status::FOUND);
        assert_eq!(head("Location: /made\nStatus: 201\n\n").status, Status::CREATED);
        let (head, content) = read_anyhow(b"content-length: 3\n\nabcdef").expect("a reply");
        assert_eq!((head.length, &content[..], &head.lines[..]), (Some(3), &b"abc"[..], &b""[..]));
        assert_eq!(read_anyhow(b"Content-Length: 3\n\nab"), Err(BadReply::Short));
        let mut reader = ReplyReader::default();
        let output = b"Content-Length: 3\n\nabc";
        let (consumed, _) = reader.handle_input(output).expect("a head");
        assert!(!reader.has_all());
        reader.handle_input(&output[consumed..]).expect("content");
        assert!(reader.has_all());
    }

    #[test]
    fn what_is_the_servers_to_say_is_left_out() {
        let said = "Connection: close\nTransfer-Encoding: chunked\nServer: x\nDATE: never\nUpgrade: h2c\nKeep-Alive: 1\nX: y\n\n";
        assert_eq!(head(said).lines, b"X: y\r\n");
    }

    #[test]
    fn garbage_is_told_apart() {
        for (output, reason) in [
            (&b""[..], BadReply::Incomplete),
            (b"Content-Type: text/plain\n", BadReply::Incomplete),
            (b"\nhello", BadReply::NoField),
            (b"hello\n\n", BadReply::Line(1)),
            (b"X: y\n folded\n\n", BadReply::Line(2)),
            (b"X: \x01\n\n", BadReply::Line(1)),
            (b"X : y\n\n", BadReply::Line(1)),
            (b"X: a\rb\n\n", BadReply::Line(1)),
            (b"Status: 99\n\n", BadReply::Status),
            (b"Status: 100 Continue\n\n", BadReply::Status),
            (b"Status: fine\n\n", BadReply::Status),
            (b"Content-Length: -1\n\n", BadReply::Length),
            (b"Content-Length: 1\nContent-Length: 1\n\n", BadReply::Length),
        ] {
            assert_eq!(read_anyhow(output), Err(reason), "{}", output.escape_ascii());
        }
        let endless = vec![b'a'; HEAD_BYTES_MAX + 10];
        assert_eq!(read(&endless, 4096), Err(BadReply::TooLong));
        let long = [b"X: ", &endless[..], b"\n\n"].concat();
        assert_eq!(read(&long, long.len()), Err(BadReply::TooLong));
    }
}
