//! What a responder says for one request: output, messages for the log, the end.

use super::record::{END_REQUEST, ERROR, HEADER_BYTES, OUTPUT, REQUEST_ID};

/// Why a responder's bytes can't be understood: the connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    /// Another version than 1.
    #[error("a record has version {0}, not 1")]
    Version(u8),
    /// A record that a responder doesn't send.
    #[error("a record has the type {0}, which a responder doesn't send")]
    Type(u8),
    /// A record of a request that isn't there.
    #[error("a record is for request {0}, which there isn't")]
    Request(u16),
    /// END_REQUEST with other than eight bytes.
    #[error("the record that ends the request has {0} bytes instead of 8")]
    EndLength(u16),
    /// More after the end.
    #[error("records follow the end of the request")]
    AfterEnd,
}

/// What came of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'i> {
    /// More has to come.
    NeedInput,
    /// Output of the responder: what CGI's standard output would be.
    Output(&'i [u8]),
    /// For the log.
    Error(&'i [u8]),
    /// The request has ended.
    End {
        /// The responder took it; otherwise it had no room or didn't know its role.
        is_complete: bool,
    },
}

/// Reads the records of one request's reply.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conversation {
    kind: u8,
    /// Content of the record that is still to come, and padding behind it.
    content: u16,
    padding: u8,
    has_ended: bool,
}

impl Conversation {
    /// Takes in everything received and not consumed. Returns how many bytes are done with; call again with the rest until it needs more.
    ///
    /// # Errors
    /// What can't be understood; nothing can be said of what follows.
    pub fn handle_input<'i>(&mut self, input: &'i [u8]) -> Result<(usize, Step<'i>), BadRecord> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            if rest.is_empty() {
                return Ok((at, Step::NeedInput));
            }
            if self.content > 0 && self.kind == END_REQUEST {
                let Some(body) = rest.first_chunk::<8>() else { return Ok((at, Step::NeedInput)) };
                self.content = 0;
                self.has_ended = true;
                return Ok((at + body.len(), Step::End { is_complete: body[4] == 0 }));
            }
            if self.content > 0 {
                let count = rest.len().min(usize::from(self.content));
                self.content -= count as u16;
                let bytes = &rest[..count];
                let step = if self.kind == OUTPUT { Step::Output(bytes) } else { Step::Error(bytes) };
                return Ok((at + count, step));
            }
            if self.padding > 0 {
                let count = rest.len().min(usize::from(self.padding));
                self.padding -= count as u8;
                at += count;
                continue;
            }
            if self.has_ended {
                return Err(BadRecord::AfterEnd);
            }
            let Some(&header) = rest.first_chunk::<HEADER_BYTES>() else { return Ok((at, Step::NeedInput)) };
            self.begin_record(header)?;
            at += HEADER_BYTES;
        }
    }

    fn begin_record(&mut self, header: [u8; HEADER_BYTES]) -> Result<(), BadRecord> {
        let [version, kind, id_high, id_low, length_high, length_low, padding, _] = header;
        let id = u16::from_be_bytes([id_high, id_low]);
        let length = u16::from_be_bytes([length_high, length_low]);
        match kind {
            _ if version != 1 => Err(BadRecord::Version(version)),
            END_REQUEST | OUTPUT | ERROR if id != REQUEST_ID => Err(BadRecord::Request(id)),
            END_REQUEST if length != 8 => Err(BadRecord::EndLength(length)),
            END_REQUEST | OUTPUT | ERROR => {
                (self.kind, self.content, self.padding) = (kind, length, padding);
                Ok(())
            }
            _ => Err(BadRecord::Type(kind)),
        }
    }

    /// Whether the responder has said anything.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.kind != 0
    }

    /// Whether the request has ended and nothing of it is to come: the connection may carry another.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.has_ended && self.padding == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
        let mut bytes = vec![1, kind, 0, 1, (content.len() >> 8) as u8, content.len() as u8, padding, 0xFF];
        bytes.extend_from_slice(content);
        bytes.extend(std::iter::repeat_n(0xAA, usize::from(padding)));
        bytes
    }

    #[derive(Debug, Default, PartialEq, Eq)]
    struct Said {
        output: Vec<u8>,
        error: Vec<u8>,
        end: Option<bool>,
        over: bool,
    }

    fn read(stream: &[u8], piece: usize) -> Result<Said, BadRecord> {
        let (mut conversation, mut said, mut kept) = (Conversation::default(), Said::default(), Vec::new());
        for more in stream.chunks(piece) {
            kept.extend_from_slice(more);
            loop {
                let (consumed, step) = conversation.handle_input(&kept)?;
                let needs_input = step == Step::NeedInput;
                match step {
                    Step::NeedInput => {}
                    Step::Output(bytes) => said.output.extend_from_slice(bytes),
                    Step::Error(bytes) => said.error.extend_from_slice(bytes),
                    Step::End { is_complete } => said.end = Some(is_complete),
                }
                kept.drain(..consumed);
                if needs_input {
                    break;
                }
            }
        }
        said.over = conversation.is_over();
        Ok(said)
    }

    fn read_anyhow(stream: &[u8]) -> Result<Said, BadRecord> {
        let whole = read(stream, stream.len());
        for piece in [1, 3, 8, 13] {
            assert_eq!(read(stream, piece), whole, "in pieces of {piece}");
        }
        whole
    }

    #[test]
    fn records_are_put_together() {
        let stream = [
            record(OUTPUT, b"Status: 200\n", 4),
            record(ERROR, b"oh\n", 0),
            record(OUTPUT, b"\nbody", 255),
            record(OUTPUT, b"", 0),
            record(ERROR, b"", 8),
            record(END_REQUEST, &[0; 8], 3),
        ]
        .concat();
        let said = read_anyhow(&stream).expect("records");
        assert_eq!(
            said,
            Said { output: b"Status: 200\n\nbody".to_vec(), error: b"oh\n".to_vec(), end: Some(true), over: true }
        );
        let without_padding = read_anyhow(&stream[..stream.len() - 1]).expect("records");
        assert_eq!((without_padding.end, without_padding.over), (Some(true), false));
    }

    #[test]
    fn a_responder_may_have_no_room() {
        let said = read_anyhow(&record(END_REQUEST, &[0, 0, 0, 0, 2, 0, 0, 0], 0)).expect("a record");
        assert_eq!(said.end, Some(false));
    }

    #[test]
    fn garbage_is_told_apart() {
        let end = record(END_REQUEST, &[0; 8], 0);
        for (stream, reason) in [
            (b"HTTP/1.1 400 Bad".to_vec(), BadRecord::Version(b'H')),
            (record(1, b"", 0), BadRecord::Type(1)),
            (record(10, b"", 0), BadRecord::Type(10)),
            (vec![1, OUTPUT, 0, 2, 0, 0, 0, 0], BadRecord::Request(2)),
            (record(END_REQUEST, b"", 0), BadRecord::EndLength(0)),
            ([end.clone(), end].concat(), BadRecord::AfterEnd),
        ] {
            assert_eq!(read_anyhow(&stream), Err(reason));
        }
    }
}
