//! Where an answer of Redis ends: values of values, counted and not kept.

use super::super::{Answer, Answers, Mistake, Piece};
use super::number_line;

const NOT_REDIS: Mistake = Mistake::Node("an answer isn't a RESP value");

/// Elements that an aggregate may have: Redis's own limit.
const ELEMENTS_MAX: u64 = u32::MAX as u64;
/// Values that may be still to come of one answer.
const PENDING_MAX: u64 = 1 << 40;
const STRING_BYTES_MAX: u64 = 4 << 30;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// An answer is in hand.
    has_begun: bool,
    /// Values of it that haven't begun.
    pending: u64,
    state: State,
    /// The value in hand is something else than an answer: it comes by itself.
    is_push: bool,
    /// It's an error.
    is_refusal: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Value,
    /// The rest of a line.
    Line,
    /// So many bytes of a string, its end included.
    Bytes(u64),
}

impl Answers for Reader {
    fn has_refused(&self) -> bool {
        self.is_refusal
    }

    fn go_on(&mut self, input: &[u8]) -> Result<Answer, Mistake> {
        let mut at = 0;
        if !std::mem::replace(&mut self.has_begun, true) {
            self.pending = 1;
            self.is_push = input.first() == Some(&b'>');
            // A line, or in RESP 3 any text.
            self.is_refusal = matches!(input.first(), Some(b'-' | b'!'));
        }
        let (bytes, is_last) = loop {
            let rest = &input[at..];
            match self.state {
                State::Value if self.pending == 0 => {
                    self.has_begun = false;
                    // What was pushed isn't the answer: that is still to come.
                    break (at, !std::mem::take(&mut self.is_push));
                }
                State::Value => match self.value(rest)? {
                    Some(bytes) => at += bytes,
                    None => break (at, false),
                },
                State::Line => match memchr::memchr(b'\n', rest) {
                    Some(end) => {
                        at += end + 1;
                        self.state = State::Value;
                    }
                    None => break (input.len(), false),
                },
                State::Bytes(left) => {
                    let here = left.min(rest.len() as u64);
                    at += here as usize;
                    self.state = if here < left { State::Bytes(left - here) } else { State::Value };
                    if here < left {
                        break (at, false);
                    }
                }
            }
        };
        Ok(Answer { piece: Piece { bytes, is_last }, is_aside: false, id: None })
    }
}

impl Reader {
    /// Takes the beginning of a value, and returns its bytes; `None` until it's there.
    fn value(&mut self, input: &[u8]) -> Result<Option<usize>, Mistake> {
        let Some(&kind) = input.first() else { return Ok(None) };
        let number = |max| number_line(input, max).map_err(|()| NOT_REDIS);
        match kind {
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {
                self.pending -= 1;
                self.state = State::Line;
                Ok(Some(1))
            }
            b'$' | b'=' | b'!' => {
                let Some((length, bytes)) = number(STRING_BYTES_MAX)? else { return Ok(None) };
                self.pending -= 1;
                if let Ok(length) = u64::try_from(length) {
                    self.state = State::Bytes(length + 2);
                }
                Ok(Some(bytes))
            }
            b'*' | b'~' | b'>' | b'%' | b'|' => {
                let Some((count, bytes)) = number(ELEMENTS_MAX)? else { return Ok(None) };
                let count = count.max(0).cast_unsigned();
                let (each, is_itself) = match kind {
                    b'%' => (2, true),
                    // What is said of the value that follows.
                    b'|' => (2, false),
                    _ => (1, true),
                };
                self.pending = self.pending - u64::from(is_itself) + each * count;
                if self.pending > PENDING_MAX { Err(NOT_REDIS) } else { Ok(Some(bytes)) }
            }
            _ => Err(NOT_REDIS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of the first answer in `input`, which comes in pieces of this size.
    fn size(input: &[u8], piece: usize) -> Result<usize, Mistake> {
        let (mut reader, mut taken) = (Reader::default(), 0);
        for end in (1..=input.len()).filter(|end| end % piece == 0 || *end == input.len()) {
            loop {
                let answer = reader.go_on(&input[taken..end])?;
                taken += answer.piece.bytes;
                if answer.piece.is_last {
                    return Ok(taken);
                }
                if answer.piece.bytes == 0 {
                    break;
                }
            }
        }
        Ok(0)
    }

    #[test]
    fn an_answer_ends_where_its_last_value_does() {
        for answer in [
            "+OK\r\n",
            "-ERR x\r\n",
            "$-1\r\n",
            "$0\r\n\r\n",
            "$5\r\na\r\nbc\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*2\r\n*2\r\n:1\r\n$1\r\na\r\n*0\r\n",
            "%1\r\n+k\r\n~1\r\n#t\r\n",
            "|1\r\n+ttl\r\n:5\r\n$1\r\na\r\n",
            ">2\r\n+message\r\n+x\r\n+OK\r\n",
            "_\r\n",
            "(349\r\n",
            "=7\r\ntxt:abc\r\n",
        ] {
            for piece in 1..=answer.len() {
                let with_more = format!("{answer}+NEXT\r\n");
                assert_eq!(size(with_more.as_bytes(), piece), Ok(answer.len()), "{answer:?} by {piece}");
            }
        }
    }

    #[test]
    fn what_is_no_value_is_told() {
        for input in ["HTTP/1.1", "$x\r\n", "*99999999999999999999\r\n", "$1", "\0"] {
            let expected = if input == "$1" { Ok(0) } else { Err(NOT_REDIS) };
            assert_eq!(size(input.as_bytes(), 100), expected, "{input:?}");
        }
    }
}
