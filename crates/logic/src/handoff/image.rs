//! The image: all that a connection needs to go on in another process or on another machine, as bytes.
//!
//! ```text
//! image   = version section*                 version: one byte, 1
//! section = tag length value                 tag, length: LEB128 numbers; tags ascend
//! ```
//!
//! **Rule for what is to come.** Who takes a flow must understand every section with an odd tag, or refuse; a section with an even tag may be
//! skipped. A section that is known may grow at its end by what may be ignored. What fits neither needs a new version, which older servers refuse:
//! the giver then serves the flow itself.

use super::http::HttpState;
use super::limits::{IMAGE_BYTES_MAX, INPUT_BYTES_MAX, PASSAGE_BYTES_MAX, SKIPPED_BYTES_MAX};
use super::reply::ReplyState;
use super::tcp::{Congestion, TcpState};
use super::wire::{DecodeError, Reader, put_bytes, put_number};
use super::{FlowId, RequestId, ServerId};

/// The version written, and the only one read.
pub const IMAGE_VERSION: u8 = 1;

const SECTION_FLOW: u64 = 1;
const SECTION_CONGESTION: u64 = 2;
const SECTION_TCP: u64 = 3;
const SECTION_HTTP: u64 = 5;
const SECTION_REPLY: u64 = 7;
/// Kept for record keys and sequence numbers of TLS. Odd: who can't speak TLS must refuse.
pub const SECTION_TLS: u64 = 9;

/// A frozen connection. Its generation isn't part of it: the same image is passed on under the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Whose connection.
    pub flow: FlowId,
    /// The kernel's state; none when the socket itself goes along.
    pub tcp: Option<TcpState>,
    /// What the kernel had learnt of the path.
    pub congestion: Option<Congestion>,
    /// The protocol's state.
    pub http: HttpState,
    /// What is left of a reply under way, behind what is in the send queue.
    pub reply: Option<ReplyState>,
}

impl Image {
    /// The id under which the request in hand, or the last one, is logged.
    #[must_use]
    pub fn request_id(&self) -> RequestId {
        RequestId { flow: self.flow, number: self.http.connection.requests }
    }

    /// The head of the request in hand; between requests, what has come of the next one.
    #[must_use]
    pub fn next_bytes(&self) -> &[u8] {
        let unread = self.tcp.as_ref().map_or(&[][..], |tcp| &tcp.unread);
        let parts = [&self.http.head[..], &self.http.input, unread];
        parts.into_iter().find(|part| !part.is_empty()).unwrap_or_default()
    }

    /// The image as bytes.
    ///
    /// # Errors
    /// A part that is over its limit: the connection must not be frozen in this state.
    pub fn encode(&self) -> Result<Vec<u8>, DecodeError> {
        let mut out = Vec::with_capacity(512);
        out.push(IMAGE_VERSION);
        let mut value = Vec::with_capacity(256);
        let mut section = |tag, write: &dyn Fn(&mut Vec<u8>)| {
            value.clear();
            write(&mut value);
            put_number(&mut out, tag);
            put_bytes(&mut out, &value);
        };
        section(SECTION_FLOW, &|out| encode_flow(self.flow, out));
        if let Some(congestion) = &self.congestion {
            section(SECTION_CONGESTION, &|out| congestion.encode(out));
        }
        if let Some(tcp) = &self.tcp {
            section(SECTION_TCP, &|out| tcp.encode(out));
        }
        section(SECTION_HTTP, &|out| self.http.encode(out));
        if let Some(reply) = &self.reply {
            section(SECTION_REPLY, &|out| reply.encode(out));
        }
        // What can't be read back isn't written.
        Image::decode(&out).map(|_| out)
    }

    /// Reads an image from a peer.
    ///
    /// # Errors
    /// What is wrong with it, or not understood: the flow must be refused.
    pub fn decode(bytes: &[u8]) -> Result<Image, DecodeError> {
        check_length("the image", bytes.len(), PASSAGE_BYTES_MAX)?;
        let mut reader = Reader::new(bytes);
        match reader.byte("the version")? {
            IMAGE_VERSION => {}
            version => return Err(DecodeError::Version(version)),
        }
        let mut parts = Parts::default();
        let mut previous = 0;
        while !reader.is_empty() {
            let tag = reader.number("a section's tag")?;
            if tag <= previous {
                return Err(DecodeError::Malformed("an image's sections aren't in order"));
            }
            previous = tag;
            let value = reader.bytes(PASSAGE_BYTES_MAX, "a section")?;
            parts.read(tag, value)?;
        }
        let image = parts.join()?;
        if image.tcp.is_some() {
            check_length("the image", bytes.len(), IMAGE_BYTES_MAX)?;
            check_length("the input", image.http.input.len(), INPUT_BYTES_MAX)?;
        }
        Ok(image)
    }
}

/// What has been read so far.
#[derive(Default)]
struct Parts {
    flow: Option<FlowId>,
    congestion: Option<Congestion>,
    tcp: Option<TcpState>,
    http: Option<HttpState>,
    reply: Option<ReplyState>,
}

impl Parts {
    fn read(&mut self, tag: u64, value: &[u8]) -> Result<(), DecodeError> {
        let mut reader = Reader::new(value);
        match tag {
            SECTION_FLOW => self.flow = Some(decode_flow(&mut reader)?),
            SECTION_CONGESTION => self.congestion = Some(Congestion::decode(&mut reader)?),
            SECTION_TCP => self.tcp = Some(TcpState::decode(&mut reader)?),
            SECTION_HTTP => self.http = Some(HttpState::decode(&mut reader)?),
            SECTION_REPLY => self.reply = Some(ReplyState::decode(&mut reader)?),
            odd if odd % 2 == 1 => return Err(DecodeError::Section(odd)),
            _ if value.len() > SKIPPED_BYTES_MAX => {
                let (found, most) = (value.len() as u64, SKIPPED_BYTES_MAX as u64);
                return Err(DecodeError::TooLarge { what: "an unknown section", found, most });
            }
            _ => {}
        }
        Ok(())
    }

    fn join(self) -> Result<Image, DecodeError> {
        let flow = self.flow.ok_or(DecodeError::Malformed("the image names no flow"))?;
        let http = self.http.ok_or(DecodeError::Malformed("the image has no protocol state"))?;
        Ok(Image { flow, tcp: self.tcp, congestion: self.congestion, http, reply: self.reply })
    }
}

pub(super) fn encode_flow(flow: FlowId, out: &mut Vec<u8>) {
    put_number(out, u64::from(flow.home.0));
    put_number(out, flow.serial);
}

pub(super) fn decode_flow(reader: &mut Reader<'_>) -> Result<FlowId, DecodeError> {
    let home = ServerId(reader.number_u32("the flow's home")?);
    Ok(FlowId { home, serial: reader.number("the flow's serial")? })
}

fn check_length(what: &'static str, length: usize, most: usize) -> Result<(), DecodeError> {
    if length > most {
        return Err(DecodeError::TooLarge { what, found: length as u64, most: most as u64 });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
