//! Where an answer ends in what a GIOP server says, and whose it is. The fragments of one are kept together.

use super::super::{Answer, Answers, Mistake, Piece};
use super::cdr::Reader;
use super::{HEADER_BYTES, Header, Kind, header};

const NOT_GIOP: Mistake = Mistake::Node("a message isn't GIOP 1.0, 1.1 or 1.2");
const CALLS_BACK: Mistake = Mistake::Node("it calls the client back on its connection, which isn't passed on");
/// Answers of which fragments are to come.
const OPEN_MAX: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Answering {
    /// Bytes of the message in hand; 0 between messages.
    left: u64,
    is_aside: bool,
    /// The request that is answered when the message in hand ends.
    id: Option<u32>,
    /// Requests whose answers go on in other messages (GIOP 1.2).
    open: Vec<u32>,
    /// The same of GIOP 1.1, where fragments don't say so.
    last: Option<u32>,
}

impl Answers for Answering {
    fn go_on(&mut self, input: &[u8]) -> Result<Answer, Mistake> {
        let more = Answer { piece: Piece { bytes: 0, is_last: false }, is_aside: false, id: None };
        if self.left == 0 {
            let Some(header) = header(input).map_err(|()| NOT_GIOP)? else { return Ok(more) };
            if !self.begin(&header, input)? {
                return Ok(more);
            }
        }
        let bytes = self.left.min(input.len() as u64);
        self.left -= bytes;
        // The session asks who is answered once a piece is the last: where others are open still, it's told with the last of all. What goes on in
        // fragments that name nobody (GIOP 1.1) isn't over: nobody else may speak in between.
        let is_whole = self.left == 0;
        Ok(Answer {
            piece: Piece { bytes: bytes as usize, is_last: is_whole && self.last.is_none() },
            is_aside: self.is_aside,
            id: self.id.filter(|_| is_whole),
        })
    }
}

impl Answering {
    /// Takes a message's header. False until all that is needed is there.
    fn begin(&mut self, header: &Header, input: &[u8]) -> Result<bool, Mistake> {
        let mut reader = Reader::new(input, HEADER_BYTES, header.is_little);
        let id = match header.kind {
            // The node may end a connection on which nothing is to be answered.
            Kind::CloseConnection => {
                (self.left, self.is_aside, self.id) = (header.size, true, None);
                return Ok(true);
            }
            Kind::MessageError => None,
            Kind::Reply | Kind::LocateReply => {
                if header.kind == Kind::Reply && header.minor < 2 && reader.skip_contexts().is_none() {
                    return self.wait(&reader, header, input);
                }
                match reader.number() {
                    Some(id) => Some(id),
                    None => return self.wait(&reader, header, input),
                }
            }
            Kind::Fragment if header.minor == 1 => self.last,
            Kind::Fragment => match reader.number() {
                Some(id) => Some(id),
                None => return self.wait(&reader, header, input),
            },
            Kind::Request | Kind::LocateRequest | Kind::CancelRequest => return Err(CALLS_BACK),
        };
        (self.left, self.is_aside) = (header.size, false);
        self.last = id.filter(|_| header.has_followers && header.minor == 1);
        if let Some(id) = id {
            self.open.retain(|open| *open != id);
            if header.has_followers {
                if self.open.len() >= OPEN_MAX {
                    return Err(NOT_GIOP);
                }
                self.open.push(id);
            }
        }
        self.id = id.filter(|_| !header.has_followers);
        Ok(true)
    }

    fn wait(&self, reader: &Reader<'_>, header: &Header, input: &[u8]) -> Result<bool, Mistake> {
        if reader.is_bad() || input.len() as u64 >= header.size { Err(NOT_GIOP) } else { Ok(false) }
    }
}
