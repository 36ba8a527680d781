//! What two engines of one server say to each other while connections pass from the old to the new one, sockets and all: an upgrade in place.
//!
//! ```text
//! old -> new   Offer    connections, each with its image; their descriptors come along
//! new -> old   Answer   for each: taken, or not; nothing has been done with it
//! old -> new   Go       the old one has let go of these: they're the new one's
//! ```
//!
//! Until `Go` a connection is the old engine's, and nobody reads or writes it: whichever engine dies meanwhile, or says nothing any more, it
//! goes on where it was. Decides what the messages look like; threads, sockets and time are the host's.

use super::flow::Generation;
use super::limits::{PASSAGE_BYTES_MAX, SITE_BYTES_MAX};
use super::server_end::ServerEnd;
use super::wire::{DecodeError, Reader, put_bytes, put_number};
use crate::serve::version::Version;
use crate::time::UnixTime;

/// The version written, and the only one read.
const VERSION: u8 = 1;
/// Connections in one message: each may bring two descriptors, and the kernel passes 253 at once.
pub const OFFERS_MAX: usize = 100;
/// Bytes of the images in one message, but for the last one's.
pub const OFFER_BYTES_MAX: usize = 256 * 1024;
/// Of a listener's name.
const LISTENER_BYTES_MAX: usize = 128;

const OFFER: u8 = 1;
const ANSWER: u8 = 2;
const GO: u8 = 3;

/// What else an offer says, one bit each. An engine that doesn't know one takes nothing.
const HAS_FILE: u8 = 1;
const HAS_GENERATION: u8 = 2;
const HAS_SERVER: u8 = 4;
const HAS_WORKER: u8 = 8;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PassageMessage {
    /// Connections.
    Offer(Vec<Offer>),
    /// What becomes of offers, by their numbers.
    Answer(Vec<(u64, Verdict)>),
    /// Taken connections, by their numbers.
    Go(Vec<u64>),
}

/// A connection. Its socket is the message's next descriptor, then its file if it has one, then its server's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Names it in the messages that follow.
    pub number: u64,
    /// Where it was accepted, by the listener's name.
    pub listener: String,
    /// The site of its last request, by name.
    pub site: String,
    /// The file that its reply is from.
    pub file: Option<FileState>,
    /// It's a flow that other servers know of, which the image names: how often it has changed hands.
    pub generation: Option<Generation>,
    /// Those know it as this worker's, by its number: only the worker that follows this one can have it.
    pub worker: Option<u16>,
    /// Another server answers its client by way of this one.
    pub server: Option<ServerEnd>,
    /// An [`super::Image`], or a [`super::RelayState`] of a port's client; as bytes, so that one in another version costs no more than this connection.
    pub image: Vec<u8>,
}

/// What was true of a file when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Its version.
    pub version: Version,
    /// How many names it had.
    pub links: u64,
}

/// What becomes of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It's taken as soon as the old engine lets go.
    Taken,
    /// Its address isn't listened at any more: it ends where it is.
    Unwanted,
    /// It isn't understood, its site is gone, or there is no room: it goes on where it is.
    Refused,
}

impl PassageMessage {
    /// The message as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        match self {
            PassageMessage::Offer(offers) => {
                out.push(OFFER);
                put_number(&mut out, offers.len() as u64);
                for offer in offers {
                    offer.encode(&mut out);
                }
            }
            PassageMessage::Answer(answers) => {
                out.push(ANSWER);
                put_number(&mut out, answers.len() as u64);
                for &(number, verdict) in answers {
                    put_number(&mut out, number);
                    out.push(verdict as u8);
                }
            }
            PassageMessage::Go(numbers) => {
                out.push(GO);
                put_number(&mut out, numbers.len() as u64);
                for &number in numbers {
                    put_number(&mut out, number);
                }
            }
        }
        out
    }

    /// Reads a message from the other engine.
    ///
    /// # Errors
    /// What is wrong with it: nothing more can pass.
    pub fn decode(bytes: &[u8]) -> Result<PassageMessage, DecodeError> {
        let mut reader = Reader::new(bytes);
        match reader.byte("the version")? {
            VERSION => {}
            version => return Err(DecodeError::Version(version)),
        }
        let kind = reader.byte("the message's kind")?;
        // No entry is shorter than a byte, so that no count can ask for more memory than the message has.
        let count = reader.number_up_to(reader.remaining() as u64, "the number of connections")?;
        match kind {
            OFFER if count <= OFFERS_MAX as u64 => {
                (0..count).map(|_| Offer::decode(&mut reader)).collect::<Result<_, _>>().map(PassageMessage::Offer)
            }
            ANSWER => {
                let answers = (0..count).map(|_| Ok((reader.number("a number")?, decode_verdict(&mut reader)?)));
                answers.collect::<Result<_, _>>().map(PassageMessage::Answer)
            }
            GO => (0..count).map(|_| reader.number("a number")).collect::<Result<_, _>>().map(PassageMessage::Go),
            kind => Err(DecodeError::Unknown { what: "the message's kind", found: u64::from(kind) }),
        }
    }
}

impl Offer {
    fn encode(&self, out: &mut Vec<u8>) {
        put_number(out, self.number);
        put_bytes(out, self.listener.as_bytes());
        put_bytes(out, self.site.as_bytes());
        let has = |is_so: bool, bit: u8| if is_so { bit } else { 0 };
        let (file, generation) = (has(self.file.is_some(), HAS_FILE), has(self.generation.is_some(), HAS_GENERATION));
        let worker = has(self.worker.is_some(), HAS_WORKER);
        out.push(file | generation | has(self.server.is_some(), HAS_SERVER) | worker);
        if let Some(FileState { version, links }) = &self.file {
            put_time(out, version.modified);
            put_time(out, version.changed);
            for number in [version.device, version.inode, version.len_bytes, *links] {
                put_number(out, number);
            }
        }
        if let Some(Generation(generation)) = self.generation {
            put_number(out, generation.into());
        }
        if let Some(worker) = self.worker {
            put_number(out, worker.into());
        }
        if let Some(server) = &self.server {
            server.encode(out);
        }
        put_bytes(out, &self.image);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Offer, DecodeError> {
        let number = reader.number("a number")?;
        let listener = text(reader.bytes(LISTENER_BYTES_MAX, "the listener's name")?)?;
        let site = text(reader.bytes(SITE_BYTES_MAX, "the site's name")?)?;
        let has = reader.byte("what else there is")?;
        if has & !(HAS_FILE | HAS_GENERATION | HAS_SERVER | HAS_WORKER) != 0 {
            return Err(DecodeError::Unknown { what: "what else there is", found: u64::from(has) });
        }
        let file = match has & HAS_FILE {
            0 => None,
            _ => {
                let (modified, changed) = (decode_time(reader)?, decode_time(reader)?);
                let mut number = || reader.number("the file's state");
                let version = Version { device: number()?, inode: number()?, len_bytes: number()?, modified, changed };
                Some(FileState { version, links: number()? })
            }
        };
        let generation = match has & HAS_GENERATION {
            0 => None,
            _ => Some(Generation(reader.number_u32("the flow's generation")?)),
        };
        let worker = match has & HAS_WORKER {
            0 => None,
            _ => Some(reader.number_u16("the worker")?),
        };
        let server = match has & HAS_SERVER {
            0 => None,
            _ => Some(ServerEnd::decode(reader)?),
        };
        let image = reader.bytes(PASSAGE_BYTES_MAX, "the image")?.to_vec();
        Ok(Offer { number, listener, site, file, generation, worker, server, image })
    }
}

fn decode_verdict(reader: &mut Reader<'_>) -> Result<Verdict, DecodeError> {
    let found = reader.byte("the verdict")?;
    let known = [Verdict::Taken, Verdict::Unwanted, Verdict::Refused].into_iter().find(|known| *known as u8 == found);
    known.ok_or(DecodeError::Unknown { what: "the verdict", found: u64::from(found) })
}

pub(super) fn text(bytes: &[u8]) -> Result<String, DecodeError> {
    str::from_utf8(bytes).map(str::to_owned).map_err(|_| DecodeError::Malformed("a name isn't UTF-8"))
}

fn put_time(out: &mut Vec<u8>, time: UnixTime) {
    put_number(out, time.seconds.cast_unsigned());
    put_number(out, u64::from(time.nanoseconds));
}

fn decode_time(reader: &mut Reader<'_>) -> Result<UnixTime, DecodeError> {
    let seconds = reader.number("a time")?.cast_signed();
    Ok(UnixTime { seconds, nanoseconds: reader.number_u32("a time")? })
}

#[cfg(test)]
mod tests {
    use super::super::server_end;
    use super::*;

    fn messages() -> Vec<PassageMessage> {
        let time = |seconds| UnixTime { seconds, nanoseconds: 999_999_999 };
        let version = Version { device: 1, inode: u64::MAX, len_bytes: 10, modified: time(-5), changed: time(1 << 40) };
        let offer = |number, file, generation| Offer {
            number,
            listener: "127.0.0.1:0".to_owned(),
            site: "größe".to_owned(),
            file,
            generation,
            worker: None,
            server: None,
            image: vec![1, 2, 3],
        };
        let served = |server| Offer { server: Some(server), image: Vec::new(), ..offer(10, None, None) };
        let mut served: Vec<_> = server_end::examples().into_iter().map(served).collect();
        served.push(offer(11, None, None));
        let file = Some(FileState { version, links: 2 });
        let generation = Some(Generation(u32::MAX));
        vec![
            PassageMessage::Offer(vec![offer(7, None, None), offer(u64::MAX, file, None)]),
            PassageMessage::Offer(vec![offer(8, None, generation), offer(9, file, generation)]),
            PassageMessage::Offer(vec![Offer { worker: Some(300), ..offer(12, file, generation) }]),
            PassageMessage::Offer(served),
            PassageMessage::Answer(vec![(7, Verdict::Taken), (8, Verdict::Unwanted), (1 << 60, Verdict::Refused)]),
            PassageMessage::Go(vec![7, u64::MAX]),
            PassageMessage::Go(Vec::new()),
        ]
    }

    #[test]
    fn a_message_is_read_as_it_was_written() {
        for message in messages() {
            let bytes = message.encode();
            assert_eq!(PassageMessage::decode(&bytes), Ok(message));
            for end in 0..bytes.len() {
                assert!(PassageMessage::decode(&bytes[..end]).is_err(), "cut after {end} bytes");
            }
        }
    }

    #[test]
    fn no_byte_makes_it_panic() {
        for message in messages() {
            let bytes = message.encode();
            for place in 0..bytes.len() {
                for value in [0, 1, 0x7F, 0x80, 0xFF] {
                    let mut wrong = bytes.clone();
                    wrong[place] = value;
                    let _ = PassageMessage::decode(&wrong);
                }
            }
        }
    }

    #[test]
    fn what_is_too_much_is_refused() {
        let (listener, site, image) = (String::new(), String::new(), Vec::new());
        let (file, generation, worker, server) = (None, None, None, None);
        let offer = Offer { number: 1, listener, site, file, generation, worker, server, image };
        let many = PassageMessage::Offer(vec![offer; OFFERS_MAX + 1]).encode();
        assert!(PassageMessage::decode(&many).is_err());
        assert_eq!(PassageMessage::decode(&[2, OFFER, 0]), Err(DecodeError::Version(2)));
        assert!(PassageMessage::decode(&[VERSION, GO, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]).is_err());
    }
}
