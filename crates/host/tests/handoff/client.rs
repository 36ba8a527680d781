//! A client that checks every byte and how long it had to wait for it.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::content;

pub(crate) struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    /// The longest that nothing came while something was due.
    pub(crate) stall: Duration,
}

impl Client {
    pub(crate) fn connect(vip: &str) -> Client {
        Client::new(TcpStream::connect(vip).unwrap())
    }

    fn new(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, input: Vec::new(), stall: Duration::ZERO }
    }

    /// From a port of its own choice, as a client that uses one again.
    pub(crate) fn connect_from(port: u16, vip: &str) -> Client {
        use rustix::io::Errno;
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
        let vip: SocketAddr = vip.parse().unwrap();
        let (family, any) = match vip {
            SocketAddr::V4(_) => (AddressFamily::INET, IpAddr::from([0; 4])),
            SocketAddr::V6(_) => (AddressFamily::INET6, IpAddr::from([0; 16])),
        };
        let start = Instant::now();
        loop {
            let socket = socket(family, SocketType::STREAM, None).unwrap();
            sockopt::set_socket_reuseaddr(&socket, true).unwrap();
            bind(&socket, &SocketAddr::new(any, port)).unwrap();
            match connect(&socket, &vip) {
                // The last acknowledgement of the connection before is still under way.
                Err(Errno::ADDRNOTAVAIL) if start.elapsed() < Duration::from_secs(5) => {}
                result => {
                    result.unwrap();
                    return Client::new(socket.into());
                }
            }
        }
    }

    /// Waits for the server's end.
    pub(crate) fn expect_end(&mut self) {
        assert_eq!(self.stream.read(&mut [0; 1]).unwrap(), 0);
    }

    pub(crate) fn ask(&mut self, server: char, bytes: usize) {
        self.stream.write_all(format!("GET /{server}/{bytes} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    }

    /// A request after which the server closes.
    pub(crate) fn ask_last(&mut self, server: char, bytes: usize) {
        self.stream.write_all(format!("LAST /{server}/{bytes} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    }

    pub(crate) fn get(&mut self, server: char, bytes: usize) {
        self.ask(server, bytes);
        self.expect(server, &content::of(bytes));
    }

    /// Sends all of it while the connection moves.
    pub(crate) fn post(&mut self, server: char, bytes: usize) {
        let head = format!("POST /{server}/{bytes} HTTP/1.1\r\nHost: x\r\nContent-Length: {bytes}\r\n\r\n");
        self.stream.write_all(&[head.as_bytes(), &content::of(bytes)].concat()).unwrap();
        self.expect(server, b"intact");
    }

    pub(crate) fn expect(&mut self, server: char, content: &[u8]) {
        let head = format!("HTTP/1.1 200 OK\r\nServer: {server}\r\nContent-Length: {}\r\n\r\n", content.len());
        let whole = [head.as_bytes(), content].concat();
        let mut buffer = vec![0; 256 * 1024];
        while self.input.len() < whole.len() {
            let start = Instant::now();
            let count = self.stream.read(&mut buffer).unwrap();
            self.stall = self.stall.max(start.elapsed());
            assert!(count > 0, "the end after {} of {} bytes", self.input.len(), whole.len());
            self.input.extend_from_slice(&buffer[..count]);
        }
        let rest = self.input.split_off(whole.len());
        assert!(self.input == whole, "a reply of {} bytes from {server} is corrupt", whole.len());
        self.input = rest;
    }
}
