//! What a port knows of a client that passes to the next engine.

use std::time::Duration;

use super::limits::SITE_BYTES_MAX;
use super::passage::text;
use super::wire::{DecodeError, Reader, put_bytes, put_number};
use crate::protocol::{PROLOGUE_BYTES_MAX, SessionState};

/// Bytes that a parser knows: it has seen no more at once.
const PARSER_BYTES_MAX: usize = 64 * 1024;
/// Names of nodes, and what was said to all of them.
const COUNT_MAX: u64 = 4096;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayState {
    /// Nodes that it has had, by name.
    pub nodes: Vec<String>,
    /// How long ago the client came.
    pub age: Duration,
    /// Bytes of the client's that have been passed on.
    pub received_bytes: u64,
    /// Bytes that the client has been given.
    pub sent_bytes: u64,
    /// The conversation, if no node has any part in it now.
    pub at_rest: Option<SessionState>,
    /// What the client has said of what comes next, where no node has any part in it.
    pub input: Vec<u8>,
}

impl RelayState {
    /// The state as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(&mut out, self.nodes.len() as u64);
        self.nodes.iter().for_each(|node| put_bytes(&mut out, node.as_bytes()));
        put_number(&mut out, u64::try_from(self.age.as_nanos()).unwrap_or(u64::MAX));
        put_number(&mut out, self.received_bytes);
        put_number(&mut out, self.sent_bytes);
        put_bytes(&mut out, &self.input);
        out.push(u8::from(self.at_rest.is_some()));
        if let Some(SessionState { requests, said, parser }) = &self.at_rest {
            put_number(&mut out, *requests);
            put_number(&mut out, said.len() as u64);
            for (code, text) in said {
                out.push(*code);
                put_bytes(&mut out, text);
            }
            put_bytes(&mut out, parser);
        }
        out
    }

    /// Reads a state.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<RelayState, DecodeError> {
        let mut reader = Reader::new(bytes);
        let count = reader.number_up_to(COUNT_MAX, "the number of nodes")?;
        let nodes = (0..count).map(|_| text(reader.bytes(SITE_BYTES_MAX, "a node's name")?));
        let nodes = nodes.collect::<Result<_, _>>()?;
        let age = Duration::from_nanos(reader.number("the age")?);
        let (received_bytes, sent_bytes) = (reader.number("the bytes")?, reader.number("the bytes")?);
        let input = reader.bytes(super::limits::INPUT_BYTES_MAX, "the input")?.to_vec();
        let at_rest = match reader.byte("whether it's at rest")? {
            0 => None,
            _ => {
                let requests = reader.number("the requests")?;
                let count = reader.number_up_to(COUNT_MAX, "what was said to all nodes")?;
                let said = (0..count).map(|_| {
                    let code = reader.byte("a code")?;
                    Ok((code, reader.bytes(PROLOGUE_BYTES_MAX, "what was said")?.to_vec()))
                });
                let said = said.collect::<Result<_, DecodeError>>()?;
                let parser = reader.bytes(PARSER_BYTES_MAX, "what the parser knows")?.to_vec();
                Some(SessionState { requests, said, parser })
            }
        };
        Ok(RelayState { nodes, age, received_bytes, sent_bytes, at_rest, input })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written_and_no_byte_makes_it_panic() {
        let said = vec![(2, b"AUTH x".to_vec()), (1, b"SELECT 3".to_vec())];
        let at_rest = Some(SessionState { requests: 7, said, parser: vec![1, 2] });
        let nodes = vec!["n1".to_owned(), "größe".to_owned()];
        let (age, input) = (Duration::from_secs(7200), b"*1".to_vec());
        let state = RelayState { nodes, age, received_bytes: u64::MAX, sent_bytes: 9, at_rest, input };
        for state in [state, RelayState::default()] {
            let bytes = state.encode();
            assert_eq!(RelayState::decode(&bytes), Ok(state));
            for place in 0..bytes.len() {
                assert!(RelayState::decode(&bytes[..place]).is_err(), "cut after {place} bytes");
                for value in [0, 1, 0x7F, 0x80, 0xFF] {
                    let mut wrong = bytes.clone();
                    wrong[place] = value;
                    let _ = RelayState::decode(&wrong);
                }
            }
        }
    }
}
