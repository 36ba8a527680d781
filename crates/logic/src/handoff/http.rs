//! The HTTP part of an image: where the protocol stands, and what has been read and still matters.

use std::time::Duration;

use super::limits::{HEAD_BYTES_MAX, PASSAGE_INPUT_BYTES_MAX};
use super::wire::{DecodeError, Reader, put_bytes, put_number};
use crate::http::{BodyState, ConnectionState};

/// A connection's HTTP state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpState {
    /// What `http::Connection` exports: phase, body progress, number of requests.
    pub connection: ConnectionState,
    /// Received by the application and not consumed: half a head, or pipelined requests. The kernel's unread bytes follow.
    pub input: Vec<u8>,
    /// The head of the request in hand, as it came; empty between requests.
    pub head: Vec<u8>,
    /// How long ago that head was complete.
    pub elapsed: Duration,
}

impl HttpState {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let ConnectionState { elapsed, requests, phase, flags, empty_lines, body } = self.connection;
        let BodyState { place, remaining, received, overhead } = body;
        out.extend_from_slice(&[phase, flags, empty_lines, place]);
        for number in [nanoseconds(elapsed), u64::from(requests), remaining, received, u64::from(overhead)] {
            put_number(out, number);
        }
        put_bytes(out, &self.input);
        put_bytes(out, &self.head);
        put_number(out, nanoseconds(self.elapsed));
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<HttpState, DecodeError> {
        let [phase, flags, empty_lines, place] = reader.array("the connection's state")?;
        let elapsed = Duration::from_nanos(reader.number("the connection's state")?);
        let requests = reader.number_u32("the connection's state")?;
        let body = BodyState {
            place,
            remaining: reader.number("the body's state")?,
            received: reader.number("the body's state")?,
            overhead: reader.number_u16("the body's state")?,
        };
        Ok(HttpState {
            connection: ConnectionState { elapsed, requests, phase, flags, empty_lines, body },
            input: reader.bytes(PASSAGE_INPUT_BYTES_MAX, "the input")?.to_vec(),
            head: reader.bytes(HEAD_BYTES_MAX, "the head")?.to_vec(),
            elapsed: Duration::from_nanos(reader.number("the request's age")?),
        })
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
