//! A client that sends exactly the bytes it's given, in the pieces it's given, and reads replies as strictly as RFC 9112 lets it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::process::Command;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::patience::PATIENCE;

/// One reply, whole.
#[derive(Clone, Debug)]
pub struct Reply {
    /// `HTTP/1.1`, say.
    pub version: String,
    /// The status code.
    pub status: u16,
    /// Names in lower case, in the order of their lines.
    pub fields: Vec<(String, String)>,
    /// The content, with any chunking taken off.
    pub body: Vec<u8>,
}

impl Reply {
    /// The value of a field; fails the test if it comes twice.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter(|(found, _)| found == name).map(|(_, value)| value.as_str());
        let value = values.next();
        assert!(values.next().is_none(), "`{name}` comes twice: {:?}", self.fields);
        value
    }

    /// The value of a field that must be there.
    pub fn must(&self, name: &str) -> &str {
        self.field(name).unwrap_or_else(|| panic!("no `{name}` in {} {:?}", self.status, self.fields))
    }

    /// The content as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Whether the reply says that the connection ends here.
    pub fn says_close(&self) -> bool {
        self.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// The items of a field with a comma-separated list, in lower case.
    pub fn list(&self, name: &str) -> Vec<String> {
        self.field(name).unwrap_or_default().split(',').map(|item| item.trim().to_lowercase()).collect()
    }
}

/// One connection.
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects, or fails the test.
    pub fn connect(to: SocketAddr) -> Client {
        Client::try_connect(to).unwrap_or_else(|error| panic!("no connection to {to}: {error}"))
    }

    /// Connects.
    pub fn try_connect(to: SocketAddr) -> io::Result<Client> {
        Client::of(TcpStream::connect_timeout(&to, PATIENCE)?)
    }

    /// Connects from one of this machine's IPv4 addresses.
    pub fn connect_from(from: IpAddr, to: SocketAddr) -> Client {
        let connect = || {
            let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            rustix::net::bind(&socket, &SocketAddr::new(from, 0))?;
            rustix::net::connect(&socket, &to)?;
            Client::of(socket.into())
        };
        connect().unwrap_or_else(|error: io::Error| panic!("no connection from {from} to {to}: {error}"))
    }

    fn of(stream: TcpStream) -> io::Result<Client> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Client { stream, buffer: Vec::new() })
    }

    /// The socket itself.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends bytes in one go.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("the server takes the request");
    }

    /// Sends bytes; a server that has already hung up is no failure of the test.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Says that nothing more will be sent.
    pub fn finish_sending(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Sends a request and reads the reply, minding that a reply to HEAD has no content.
    pub fn ask(&mut self, request: impl AsRef<[u8]>) -> Reply {
        let is_head = request.as_ref().starts_with(b"HEAD ");
        self.send(request);
        if is_head { self.reply_to_head() } else { self.reply() }
    }

    /// `GET path` on this connection.
    pub fn get(&mut self, path: &str) -> Reply {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    /// The next final reply; fails the test if it doesn't come whole.
    pub fn reply(&mut self) -> Reply {
        self.try_reply().unwrap_or_else(|error| panic!("no whole reply: {error}; had {:?}", self.had()))
    }

    /// The next final reply, or `UnexpectedEof` if the connection ends within it.
    pub fn try_reply(&mut self) -> io::Result<Reply> {
        self.read_reply(false)
    }

    /// The reply to a HEAD request.
    pub fn reply_to_head(&mut self) -> Reply {
        self.read_reply(true).unwrap_or_else(|error| panic!("no whole reply: {error}; had {:?}", self.had()))
    }

    /// The head of the next reply, content unread: for slow readers.
    pub fn reply_head(&mut self) -> io::Result<Reply> {
        let end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at + 4;
            }
            self.fill()?;
        };
        let head: Vec<u8> = self.buffer.drain(..end).collect();
        Ok(parse_head(&head))
    }

    /// Reads up to `bytes` of content after [`Client::reply_head`]; fewer only at the end of the connection, which is no error here.
    pub fn read_content(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < bytes {
            match self.fill() {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                other => other?,
            }
        }
        let bytes = bytes.min(self.buffer.len());
        Ok(self.buffer.drain(..bytes).collect())
    }

    /// Waits for the server to end the connection, and returns what it sent before.
    pub fn until_closed(&mut self) -> Vec<u8> {
        loop {
            match self.fill() {
                Ok(()) => {}
                Err(error) if ended(&error) => return std::mem::take(&mut self.buffer),
                Err(error) => panic!("the connection stays open: {error}; had {:?}", self.had()),
            }
        }
    }

    fn had(&self) -> String {
        String::from_utf8_lossy(&self.buffer[..self.buffer.len().min(400)]).into_owned()
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut piece = [0; 64 << 10];
        let count = loop {
            match self.stream.read(&mut piece) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.buffer.extend_from_slice(&piece[..count]);
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < bytes {
            self.fill()?;
        }
        Ok(self.buffer.drain(..bytes).collect())
    }

    fn take_line(&mut self) -> io::Result<String> {
        loop {
            if let Some(at) = find(&self.buffer, b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..at + 2).collect();
                return Ok(String::from_utf8(line[..at].to_vec()).expect("a line of ASCII"));
            }
            self.fill()?;
        }
    }

    fn read_reply(&mut self, is_head: bool) -> io::Result<Reply> {
        let mut reply = self.reply_head()?;
        while (100..200).contains(&reply.status) {
            reply = self.reply_head()?;
        }
        let is_chunked = reply.field("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
        let length = reply.field("content-length").map(|value| value.parse::<usize>().expect("a length"));
        assert!(!(is_chunked && length.is_some()), "both lengths: {:?}", reply.fields);
        if is_head || matches!(reply.status, 204 | 304) {
            return Ok(reply);
        }
        reply.body = if is_chunked {
            self.take_chunks()?
        } else if let Some(length) = length {
            self.take(length)?
        } else {
            self.until_closed()
        };
        Ok(reply)
    }

    fn take_chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.take_line()?;
            let size = usize::from_str_radix(line.split(';').next().unwrap().trim(), 16).expect("a chunk size");
            if size == 0 {
                while !self.take_line()?.is_empty() {}
                return Ok(body);
            }
            body.extend(self.take(size)?);
            assert_eq!(self.take(2)?, b"\r\n", "a chunk ends in CR LF");
        }
    }
}

/// Whether an error says that the other side has gone, politely or not.
pub fn ended(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// All replies in bytes that a closed connection had sent; no reply may be to HEAD.
pub fn replies_in(bytes: &[u8]) -> Vec<Reply> {
    let mut replies = Vec::new();
    let mut rest = bytes;
    while let Some(at) = find(rest, b"\r\n\r\n") {
        let mut reply = parse_head(&rest[..at + 4]);
        rest = &rest[at + 4..];
        let length = reply.field("content-length").map_or(0, |value| value.parse().expect("a length"));
        assert!(rest.len() >= length, "a reply of {length} bytes is cut after {}", rest.len());
        reply.body = rest[..length].to_vec();
        rest = &rest[length..];
        replies.push(reply);
    }
    assert!(rest.is_empty(), "bytes after the last reply: {:?}", String::from_utf8_lossy(rest));
    replies
}

fn parse_head(head: &[u8]) -> Reply {
    let text = std::str::from_utf8(head).expect("a head of ASCII");
    let mut lines = text.trim_end_matches("\r\n").split("\r\n");
    let status_line = lines.next().unwrap();
    let mut words = status_line.splitn(3, ' ');
    let version = words.next().unwrap().to_owned();
    let status = words.next().and_then(|word| word.parse().ok());
    let status = status.unwrap_or_else(|| panic!("a status line, not {status_line:?}"));
    assert!(words.next().is_some(), "a space after the status: {status_line:?}");
    let fields = lines.map(|line| {
        let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("a field line, not {line:?}"));
        let is_token =
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        assert!(is_token && !value.contains(['\r', '\n', '\0']), "a clean field line, not {line:?}");
        (name.to_lowercase(), value.trim_matches([' ', '\t']).to_owned())
    });
    Reply { version, status, fields: fields.collect(), body: Vec::new() }
}

/// Where `wanted` begins in `bytes`.
pub fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// What curl prints for these arguments; fails the test if curl fails.
pub fn curl(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "20", "--noproxy", "*"])
        .args(arguments)
        .output()
        .expect("curl is installed (Debian package `curl`)");
    assert!(output.status.success(), "curl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
