//! TLS: the server name, and else the first application protocol, of a ClientHello (RFC 8446, section 4.1.2; RFC 6066, section 3; RFC 7301). Nothing
//! is decrypted: what follows goes to the node as it is.

use super::{About, Begin, Gathered, Limits, Mistake, Parser, Piece, Request, Scope};
use crate::dispatch::Facts;

pub(super) const ABOUT: About = About {
    name: "tls",
    about: "TLS, not decrypted: each connection goes to the nodes whose `hosts` have the server name in its first message, among them by \
            load, or under a policy that goes by content by that name",
    parser: |limits| Box::new(Tls { limits, hello: Vec::new() }),
    is_store: false,
    separable: None,
};

const RECORD_HEADER_BYTES: usize = 5;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// RFC 8446, section 5.1: plaintext of a record.
const RECORD_BYTES_MAX: usize = 1 << 14;
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const HOST_NAME: u8 = 0;

#[derive(Debug)]
struct Tls {
    limits: Limits,
    /// What the names are pieces of, as records may divide them anywhere.
    hello: Vec<u8>,
}

const NOT_TLS: Mistake = Mistake::Client("it doesn't begin with a TLS ClientHello");

impl Parser for Tls {
    fn begin<'i>(&mut self, input: &'i [u8], _is_all: bool) -> Result<Begin<'i>, Mistake> {
        self.hello.clear();
        let mut rest = input;
        loop {
            if let Some(size) = size_of_hello(&self.hello)?
                && self.hello.len() >= size
            {
                self.hello.truncate(size);
                break;
            }
            if rest.first().is_some_and(|&kind| kind != HANDSHAKE) || rest.get(1).is_some_and(|&major| major != 3) {
                return Err(NOT_TLS);
            }
            let Some((header, after)) = rest.split_at_checked(RECORD_HEADER_BYTES) else { return Ok(Begin::NeedMore) };
            let size = usize::from(u16::from_be_bytes([header[3], header[4]]));
            if size == 0 || size > RECORD_BYTES_MAX {
                return Err(NOT_TLS);
            }
            let Some((fragment, after)) = after.split_at_checked(size) else {
                // What it is of a message can be told wrong before it's whole.
                size_of_hello(&[&self.hello, after].concat())?;
                return Ok(Begin::NeedMore);
            };
            if self.hello.len() + size > self.limits.head_bytes_max {
                return Err(Mistake::TooLong);
            }
            self.hello.extend_from_slice(fragment);
            rest = after;
        }
        let names = Reader(&self.hello[4..]).hello().ok_or(NOT_TLS)?;
        // They lie in `input` too, unless records divide them.
        let scope = match (find(input, names.host), find(input, names.protocol)) {
            (Some(b""), Some(b"")) => Scope::Any,
            (Some(host), Some(method)) => Scope::Content(Facts { host, method, ..Facts::default() }),
            _ => Scope::Gathered(Gathered { host: names.host.to_vec(), method: names.protocol.to_vec() }),
        };
        Ok(Begin::Request(Request::new(scope)))
    }

    fn go_on(&mut self, input: &[u8]) -> Result<Piece, Mistake> {
        Ok(Piece { bytes: input.len(), is_last: false })
    }
}

fn find<'i>(input: &'i [u8], name: &[u8]) -> Option<&'i [u8]> {
    memchr::memmem::find(input, name).map(|at| &input[at..at + name.len()])
}

/// Bytes of the handshake message, its header included; `None` when that isn't there.
fn size_of_hello(hello: &[u8]) -> Result<Option<usize>, Mistake> {
    if hello.first().is_some_and(|&kind| kind != CLIENT_HELLO) {
        return Err(NOT_TLS);
    }
    let Some(header) = hello.get(..4) else { return Ok(None) };
    Ok(Some(4 + (usize::from(header[1]) << 16 | usize::from(header[2]) << 8 | usize::from(header[3]))))
}

#[derive(Default)]
struct Names<'m> {
    host: &'m [u8],
    protocol: &'m [u8],
}

/// Reads from the front; `None` where something is missing.
struct Reader<'m>(&'m [u8]);

impl<'m> Reader<'m> {
    fn take(&mut self, count: usize) -> Option<&'m [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, bytes: usize) -> Option<usize> {
        Some(self.take(bytes)?.iter().fold(0, |number, &byte| number << 8 | usize::from(byte)))
    }

    /// What has its length, of so many bytes, before it.
    fn vector(&mut self, length_bytes: usize) -> Option<Reader<'m>> {
        let length = self.number(length_bytes)?;
        self.take(length).map(Reader)
    }

    /// A ClientHello after its header.
    fn hello(&mut self) -> Option<Names<'m>> {
        self.take(2 + 32)?;
        self.vector(1)?;
        self.vector(2)?;
        self.vector(1)?;
        let mut names = Names::default();
        if self.0.is_empty() {
            return Some(names);
        }
        let mut extensions = self.vector(2)?;
        while !extensions.0.is_empty() {
            let kind = extensions.number(2)?;
            let mut extension = extensions.vector(2)?;
            if kind == usize::from(SERVER_NAME) {
                let mut list = extension.vector(2)?;
                while !list.0.is_empty() {
                    let kind = list.number(1)?;
                    let name = list.vector(2)?;
                    if kind == usize::from(HOST_NAME) {
                        names.host = name.0;
                    }
                }
            } else if kind == usize::from(ALPN) {
                names.protocol = extension.vector(2)?.vector(1)?.0;
            }
        }
        Some(names)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn vector(length_bytes: usize, content: &[u8]) -> Vec<u8> {
        [&content.len().to_be_bytes()[8 - length_bytes..], content].concat()
    }

    /// A ClientHello in records of at most `record` bytes.
    pub(in crate::protocol) fn hello(host: &str, protocol: &str, record: usize) -> Vec<u8> {
        let name = vector(2, &vector(2, &[&[0][..], &vector(2, host.as_bytes())].concat()));
        let alpn = vector(2, &vector(2, &vector(1, protocol.as_bytes())));
        let extensions = [&[0, 10, 0, 2, 0, 0][..], &[0, 0], &name, &[0, 16], &alpn].concat();
        let parts = [
            &[3, 3][..],
            &[7; 32],
            &vector(1, &[1; 32]),
            &vector(2, &[0x13, 1]),
            &vector(1, &[0]),
            &vector(2, &extensions),
        ];
        let message = [&[1][..], &vector(3, &parts.concat())].concat();
        message.chunks(record).flat_map(|piece| [&[22, 3, 1][..], &vector(2, piece)].concat()).collect()
    }

    fn begin(input: &[u8]) -> Result<Option<(String, String)>, Mistake> {
        let mut parser = Tls { limits: Limits { head_bytes_max: 4096, first_bytes: 0 }, hello: Vec::new() };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(match parser.begin(input, false)? {
            Begin::NeedMore | Begin::Nothing(_) => None,
            Begin::Request(Request { scope: Scope::Content(facts), .. }) => {
                Some((text(facts.host), text(facts.method)))
            }
            Begin::Request(Request { scope: Scope::Gathered(gathered), .. }) => {
                Some((text(gathered.facts().host), text(gathered.facts().method)))
            }
            Begin::Request(_) => Some(Default::default()),
        })
    }

    #[test]
    fn the_server_name_is_read_however_records_divide_the_message() {
        let names = Some(("shop.example.org".to_owned(), "h2".to_owned()));
        for record in 1..=500 {
            assert_eq!(begin(&hello("shop.example.org", "h2", record)), Ok(names.clone()), "by {record}");
        }
        let whole = hello("a.example", "", 500);
        for end in 0..whole.len() {
            assert_eq!(begin(&whole[..end]), Ok(None), "{end} bytes");
        }
    }

    #[test]
    fn what_isn_t_a_hello_is_told_at_its_first_wrong_byte() {
        for input in [
            &b"G"[..],
            b"\x16\x02",
            b"\x16\x03\x01\x00\x00",
            b"\x16\x03\x01\x00\x05\x02",
            b"\x15\x03\x01\x00\x02\x01\x00",
        ] {
            assert_eq!(begin(input), Err(NOT_TLS), "{input:?}");
        }
        let long = [b"\x16\x03\x01\x20\x00\x01\x00\x1f\xfc".to_vec(), vec![0; 0x2000 - 4]].concat();
        assert_eq!(begin(&long), Err(Mistake::TooLong));
    }
}
